"""Training by PyTorch's optimizers: the library computes the network and its
gradients, PyTorch the loss and the update."""

from __future__ import annotations

from typing import Any, Mapping, Union

import torch

from ._base import Tensor
from ._model import Model
from ._quantize import QuantizedModel
from ._train import Learner


class _Network(torch.autograd.Function):
    """The network as one function of its parameters."""

    @staticmethod
    def forward(ctx: Any, owner: "TorchLearner", arrays: Any,
                *parameters: Any) -> Any:
        ctx.owner = owner
        outputs = owner.learner.forward(arrays)
        ctx.given = [t is not None for t in outputs]
        return tuple(t.torch() for t in outputs if t is not None)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        owner = ctx.owner
        rest = iter(gradients)
        of_all = [next(rest) if given else None for given in ctx.given]
        owner.learner.backward([None if g is None else g.contiguous()
                                for g in of_all])
        return (None, None, *map(owner.gradient, owner.parameters))


class TorchLearner:
    """Parameters of a learner as torch Parameters, which stay the same.

    ``masks`` are by parameter: where they are zero, so is the parameter.
    """

    def __init__(self, network: Union[QuantizedModel, Model],
                 masks: Mapping[str, Any] = {}) -> None:
        self.network = network
        # The update is PyTorch's: ours changes statistics of norms alone.
        self.learner = Learner(network, loss="custom", learning_rate=0.0,
                               momentum=0.0)
        self.parameters: dict[str, Any] = {
            p.name: torch.nn.Parameter(self.learner.value(p.name).torch())
            for p in self.learner.parameters
            if p.trained and p.role != "statistic"}
        self.masks = {n: m for n, m in masks.items() if n in self.parameters}
        self._versions = {n: p._version for n, p in self.parameters.items()}

    def gradient(self, name: str) -> Any:
        found = self.learner.gradient_of(name)
        if found is None or name not in self.masks:
            return None if found is None else found.torch()
        return found.torch() * self.masks[name]

    def push(self) -> None:
        """Brings what an optimizer has changed to the library."""
        for name, parameter in self.parameters.items():
            if parameter._version != self._versions[name]:
                if name in self.masks:
                    with torch.no_grad():
                        parameter.mul_(self.masks[name])
                self.learner.set_value(name, parameter.detach())
                self._versions[name] = parameter._version

    def run(self, arrays: tuple[Tensor, ...], training: bool,
            device: Any = None) -> Any:
        """One output as it is, several as a tuple."""
        self.push()
        if training and torch.is_grad_enabled():
            outputs = _Network.apply(self, arrays, *self.parameters.values())
        else:
            outputs = tuple(t.torch() for t in self.learner.evaluate(arrays))
        if device is not None:
            outputs = tuple(t.to(device) for t in outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def state(self) -> dict[str, Any]:
        """Copies of parameters and statistics, by name."""
        self.push()
        return {p.name: self.learner.value(p.name).torch()
                for p in self.learner.parameters}

    def load_state(self, state: Mapping[str, Any]) -> None:
        names = {p.name for p in self.learner.parameters}
        if names != set(state):
            odd = sorted(names ^ set(state))[0]
            raise KeyError(f"{odd}: in one of state and network only")
        for name, value in state.items():
            if name in self.parameters:
                with torch.no_grad():
                    self.parameters[name].copy_(value)
            else:
                self.learner.set_value(name, value)
        self.push()

    def take(self) -> None:
        """The quantized model gets what was learned."""
        assert isinstance(self.network, QuantizedModel)
        self.push()
        self.network.take(self.learner)

    def model(self) -> Model:
        """The network with what was learned."""
        self.push()
        return self.learner.model()


def device_of(inputs: Any) -> Any:
    """Where results go; None: they stay on the CPU."""
    first: Any = inputs[0] if inputs else None
    return first.device if getattr(first, "is_cuda", False) else None
