"""SparseModel: prune a network, train what is left and export it, as the original
does."""

from __future__ import annotations

import os
from typing import Any, Optional, Sequence, Union

from .._base import ArgumentError, Context, Path
from .._config import (Config, ConfigNode, ConfigSource, check_config,
                       with_specific)
from .._convert import arrays_of, like, rename_ends
from .._data import DataSource
from .._drop import pattern
from .._model import Model, ModelSource, load
from .._modules import Original
from .._prune import Pruned, prune
from .._session import Session


def parse_sconfig(config: Union[Path, ConfigNode]) -> Config:
    """Reads an sconfig.yaml and checks every setting."""
    check_config(config)
    return Config(config)


class SparseModel(Original):
    """A network being pruned.

    Unlike the original's, channels are really removed: the exported network is
    smaller.  A ``torch.nn.Module`` needs an ``example_input``, unless the
    SparseModel is called before :meth:`calc_params`.  Ratios of single layers
    can be set before that: ``smodel.model.fc.sparser.set_ratio(0)``.
    """

    def __init__(self, model: ModelSource, config: ConfigSource,
                 example_input: Any = None, *,
                 context: Optional[Context] = None) -> None:
        self.config = config
        self._source = model
        self._example = example_input
        self._context = context
        self._exclude: list[str] = []
        self.pruned: Optional[Pruned] = None  #: after calc_params()
        self._session: Optional[Session] = None

    def _load(self) -> Model:
        made = load(self._source, self._example, context=self._context)
        self._source = made
        return made

    def _network(self) -> Optional[Model]:
        if hasattr(self._source, "get_submodule") and self._example is None:
            return None
        return self._load()

    def _set(self, section: str, path: str, key: str, value: Any) -> None:
        if self.pruned is not None:
            raise ArgumentError("ratios are set before calc_params()")
        self.config = with_specific(self.config or {}, section, {path: value})

    def _describe(self) -> str:
        if self.pruned is None:
            return repr(self._source)
        rows = [f"  {e.name}: {e.removed} of {e.size} removed"
                for e in self.pruned.layers]
        return "\n".join([repr(self.pruned.model), *rows])

    def _repr_html_(self) -> str:
        return (self.pruned or self._load())._repr_html_()

    def disable_sparse_before_add(self) -> None:
        """Layers whose results are added to something keep everything."""
        nodes = self._load().nodes
        makers = {value: n for n in nodes for value in n.outputs}
        left = [v for n in nodes if n.op == "Add" for v in n.inputs]
        seen: set[str] = set()
        while left:
            value = left.pop()
            node = makers.get(value)
            if node is None or value in seen:
                continue
            seen.add(value)
            if node.op in ("Conv", "Gemm", "MatMul"):
                self._exclude.append(pattern(node.name))
            if node.op != "Conv":
                left.extend(node.inputs)

    def calc_params(self, data: DataSource = None) -> None:
        """Chooses what goes, and removes it; ``data`` is for criteria that look
        at samples and for fitting weights anew."""
        self.pruned = prune(self._load(), data, config=self.config,
                            exclude=self._exclude)
        self._session = None
        self._learner = None

    @property
    def _done(self) -> Pruned:
        if self.pruned is None:
            raise ArgumentError("call calc_params() first")
        return self.pruned

    @property
    def _trained(self) -> Any:
        """Parameters for an optimizer of PyTorch; weights that are zero stay
        so."""
        if self._learner is None:
            from .._torch_train import TorchLearner

            pruned = self._done
            masks = {} if pruned.structured else {
                e.weight: pruned.model.weight(e.weight).torch() != 0
                for e in pruned.layers}
            self._learner = TorchLearner(pruned.model, masks)
        return self._learner

    def __call__(self, *inputs: Any, **by_name: Any) -> Any:
        if self._example is None:
            self._example = (inputs if len(inputs) > 1 else
                             inputs[0] if inputs else by_name or None)
        model = self.pruned.model if self.pruned else self._load()
        arrays = arrays_of(inputs, by_name, model)
        inputs = inputs or tuple(by_name.values())
        if self._learner is not None:
            from .._torch_train import device_of

            return self._learner.run(arrays, self.training, device_of(inputs))
        if self._session is None:
            self._session = Session(model)
        made = tuple(like(inputs, t) for t in self._session.run(*arrays))
        return made[0] if len(made) == 1 else made

    forward = __call__

    def export_onnx(self, dummy_data: Any, name: Path,
                    input_names: Optional[Sequence[str]] = None,
                    output_names: Optional[Sequence[str]] = None,
                    dynamic_axes: Any = None, opset_version: Optional[int] = None,
                    verbose: bool = False, extra_info: bool = False) -> None:
        """Writes the pruned network, with what was trained."""
        model = (self._learner.model() if self._learner is not None
                 else self._done.model.clone())
        if opset_version:
            model.set_opset(opset_version)
        if input_names is None and output_names is None:
            model.save(name)
            return
        with open(os.fspath(name), "wb") as f:
            f.write(rename_ends(model.to_bytes(), input_names, output_names))
