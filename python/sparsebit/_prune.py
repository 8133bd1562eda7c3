"""Networks with fewer channels, or with weights that are zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Optional, Union

from . import _core, _html
from ._base import ArgumentError, Context, Path, Progress, reporting, several
from ._config import ConfigSource, config_keywords
from ._data import DataSource, feed
from ._model import Model, ModelSource, load

UNUSED, HELPS, NEEDED = range(3)


@dataclass(frozen=True)
class PrunedLayer:
    """A weight that makes channels, or whose elements become zero."""

    name: str
    op: str
    weight: str
    size: int
    removable: int
    removed: int
    reason: Optional[str]  #: why the rest cannot go
    reason_node: Optional[str]
    held: bool  #: more stayed than the ratio said, so that something is left


@dataclass(frozen=True)
class Pruned:
    """The pruned model, and what was done."""

    model: Model
    layers: list[PrunedLayer]
    cuts: list[dict[str, Any]]
    size: int
    removable: int
    removed: int
    ratio: float
    structured: bool

    def save(self, path: Path, *, sparse: bool = False) -> None:
        self.model.save(path, sparse=sparse)

    def _repr_html_(self) -> str:
        return _html.table(
            ("layer", "operator", "size", "removed", "reason"),
            [(e.name, e.op, e.size, e.removed, e.reason or "")
             for e in self.layers],
            f"{self.removed} of {self.size} "
            + ("channels" if self.structured else "weights") + " removed")


def fixed_batch(model: Model) -> int:
    """How many samples a network that is made for one number takes."""
    shape = model.inputs[0].shape if model.inputs else None
    return shape[0] if shape and shape[0] > 0 else 0


def prune(model: ModelSource, data: DataSource = None, *,
          config: ConfigSource, exclude: Union[str, Iterable[str]] = (),
          masks_only: bool = False, seed: int = 0, target_macs: float = 0.0,
          target_params: float = 0.0, samples: int = 0, batch: int = 0,
          example_input: Any = None, context: Optional[Context] = None,
          progress: Progress = None) -> Pruned:
    """Removes channels with everything that depends on them, or sets weights
    to zero, as a configuration (sconfig.yaml) says."""
    model = load(model, example_input, context=context)
    with reporting(model.context, progress) as report:
        handle = _core.prune_create(
            model._handle, **config_keywords(config),
            exclude=several(exclude),
            masks_only=masks_only, seed=seed, target_macs=target_macs,
            target_params=target_params)
        wants = _core.prune_wants_data(handle)
        if wants == NEEDED and data is None:
            raise ArgumentError("the criterion looks at samples: give data")
        more = True
        while more:
            if data is not None and wants != UNUSED:
                feed(data, model, handle, report=report, stage="prune",
                     samples=samples, batch=batch, fixed=fixed_batch(model))
            more = _core.prune_apply(handle)
        result = _core.prune_report(handle)
    result["layers"] = [PrunedLayer(**d) for d in result["layers"]]
    return Pruned(model=Model(_core.prune_model(handle)), **result)
