"""SparseModel: prune a network and export it, as the original does."""

from __future__ import annotations

import os
from typing import Any, Optional, Sequence, Union

from .._base import ArgumentError, Context, Path
from .._config import Config, ConfigNode, ConfigSource, check_config
from .._convert import arrays_of, like, rename_ends
from .._data import DataSource
from .._model import ModelSource, load
from .._prune import Pruned, prune
from .._session import Session


def parse_sconfig(config: Union[Path, ConfigNode]) -> Config:
    """Reads an sconfig.yaml and checks every setting."""
    check_config(config)
    return Config(config)


class SparseModel:
    """A network being pruned.

    Unlike the original's, channels are really removed: the exported network is
    smaller.  A ``torch.nn.Module`` needs an ``example_input``, unless the
    SparseModel is called before :meth:`calc_params`.
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

    def eval(self) -> "SparseModel":
        return self

    def cpu(self) -> "SparseModel":
        return self

    def to(self, device: Any) -> "SparseModel":
        return self

    def _load(self) -> Any:
        self._source = load(self._source, self._example, context=self._context)
        return self._source

    def calc_params(self, data: DataSource = None) -> None:
        """Chooses what goes, and removes it; ``data`` is for criteria that look
        at samples and for fitting weights anew."""
        self.pruned = prune(self._load(), data, config=self.config,
                            exclude=self._exclude)
        self._session = None

    def __call__(self, *inputs: Any, **by_name: Any) -> Any:
        if self._example is None and inputs:
            self._example = inputs if len(inputs) > 1 else inputs[0]
        model = self.pruned.model if self.pruned else self._load()
        if self._session is None:
            self._session = Session(model)
        outputs = self._session.run(*arrays_of(inputs, by_name, model))
        made = tuple(like(inputs, t) for t in outputs)
        return made[0] if len(made) == 1 else made

    forward = __call__

    def export_onnx(self, dummy_data: Any, name: Path,
                    input_names: Optional[Sequence[str]] = None,
                    output_names: Optional[Sequence[str]] = None,
                    dynamic_axes: Any = None, opset_version: Optional[int] = None,
                    verbose: bool = False, extra_info: bool = False) -> None:
        """Writes the pruned network."""
        if self.pruned is None:
            raise ArgumentError("call calc_params() first")
        model = self.pruned.model.clone()
        if opset_version:
            model.set_opset(opset_version)
        if input_names is None and output_names is None:
            model.save(name)
            return
        with open(os.fspath(name), "wb") as f:
            f.write(rename_ends(model.to_bytes(), input_names, output_names))
