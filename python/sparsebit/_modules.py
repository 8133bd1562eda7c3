"""What the original's classes share: modules of a network as attributes, and
the methods of torch.nn.Module that scripts call."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional

from ._base import ArgumentError
from ._model import Model


class Setting:
    """A quantizer or sparser of a module, to be set before anything runs."""

    def __init__(self, owner: "Original", path: str, section: str) -> None:
        self._owner = owner
        self._path = path
        self._section = section

    def set_bit(self, bit: int) -> None:
        """The width, instead of what the configuration says."""
        self._owner._set(self._section, self._path, "QUANTIZER.BIT", bit)

    def set_ratio(self, ratio: float) -> None:
        """How much is pruned, instead of what the configuration says."""
        self._owner._set(self._section, self._path, "RATIO", ratio)


class Module:
    """A module: ``qmodel.model.layer1[0].conv1``."""

    _SETTINGS = {"input_quantizer": "A", "weight_quantizer": "W",
                 "sparser": "SPARSER"}

    def __init__(self, owner: "Original", path: str) -> None:
        self._owner = owner
        self._path = path
        self._owner._check_path(path)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._SETTINGS:
            return Setting(self._owner, self._path, self._SETTINGS[name])
        return Module(self._owner, f"{self._path}.{name}")

    def __getitem__(self, index: int) -> "Module":
        return Module(self._owner, f"{self._path}.{index}")


class Modules:
    """The float network (a :class:`sparsebit.Model` once it is known), with its
    modules as attributes."""

    def __init__(self, owner: "Original") -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        model = self._owner._network()
        if hasattr(Model, name) or name == "_handle":
            if model is None:
                raise ArgumentError("a torch.nn.Module is exported at the first "
                                    "call, or with an example_input")
            return getattr(model, name)
        return Module(self._owner, name)

    def __repr__(self) -> str:
        return self._owner._describe()

    def _repr_html_(self) -> str:
        return self._owner._repr_html_()


class Original:
    """A network of the original's API."""

    _source: Any
    _learner: Any = None  # after training was prepared
    training = False

    def _network(self) -> Optional[Model]:
        """The float network, once it is known."""
        raise NotImplementedError

    def _set(self, section: str, path: str, key: str, value: Any) -> None:
        raise NotImplementedError

    def _describe(self) -> str:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        raise NotImplementedError

    @property
    def _trained(self) -> Any:
        raise NotImplementedError

    def _check_path(self, path: str) -> None:
        """AttributeError if no module has the path."""
        model = self._network()
        if model is None:
            self._source.get_submodule(path)
        elif not any((n.module + ".").startswith(path + ".")
                     or n.name == path for n in model.nodes):
            raise AttributeError(f"no module has the path '{path}'")

    @property
    def model(self) -> Any:
        """The float network, and its modules: ``model.conv1``."""
        return Modules(self)

    def train(self, mode: bool = True) -> Any:
        """Whether calls are part of training."""
        self.training = mode
        return self

    def eval(self) -> Any:
        return self.train(False)

    def cpu(self) -> Any:
        return self

    def cuda(self, device: Any = None) -> Any:
        """The network is computed on the CPU, wherever inputs come from;
        results are where inputs are."""
        return self

    def to(self, device: Any) -> Any:
        """The same."""
        return self

    def named_parameters(self) -> Iterable[tuple[str, Any]]:
        """What is trained, as torch Parameters."""
        return list(self._trained.parameters.items())

    def parameters(self) -> list[Any]:
        return [p for _, p in self.named_parameters()]

    def state_dict(self) -> dict[str, Any]:
        """Copies of what is trained, and of statistics of norms."""
        state: dict[str, Any] = self._trained.state()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._trained.load_state(state)
