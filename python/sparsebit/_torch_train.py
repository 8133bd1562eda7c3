"""Quantization-aware training by PyTorch's optimizers: the library computes the
network and its gradients, PyTorch the loss and the update."""

from __future__ import annotations

from typing import Any

import torch

from ._base import Tensor
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
        found = [owner.learner.gradient_of(name) for name in owner.parameters]
        return (None, None, *(None if g is None else g.torch() for g in found))


class TorchLearner:
    """Parameters of a learner as torch Parameters, which stay the same."""

    def __init__(self, quantized: QuantizedModel) -> None:
        self.quantized = quantized
        # The update is PyTorch's: ours changes statistics of norms alone.
        self.learner = Learner(quantized, loss="custom", learning_rate=0.0,
                               momentum=0.0)
        self.parameters: dict[str, Any] = {
            p.name: torch.nn.Parameter(self.learner.value(p.name).torch())
            for p in self.learner.parameters
            if p.trained and p.role != "statistic"}
        self._versions = {n: p._version for n, p in self.parameters.items()}

    def push(self) -> None:
        """Brings what an optimizer has changed to the library."""
        for name, parameter in self.parameters.items():
            if parameter._version != self._versions[name]:
                self.learner.set_value(name, parameter.detach())
                self._versions[name] = parameter._version

    def run(self, arrays: tuple[Tensor, ...], training: bool) -> Any:
        self.push()
        if training and torch.is_grad_enabled():
            return _Network.apply(self, arrays, *self.parameters.values())
        return tuple(t.torch() for t in self.learner.evaluate(arrays))

    def take(self) -> None:
        """The quantized model gets what was learned."""
        self.push()
        self.quantized.take(self.learner)
