"""Networks with fewer channels, or with weights that are zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Optional, Sequence, Union

from . import _core, _html
from ._base import (SEED, ArgumentError, Context, Path, Progress, number,
                    reporting, several, whole)
from ._config import ConfigSource, config_keywords
from ._data import DataSource, feed, repeatable
from ._model import Model, ModelSource, load

UNUSED, HELPS, NEEDED = range(3)
RATIOS = (0.1, 0.3, 0.5, 0.7)


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
class PrunePoint:
    """A group of channels pruned, and all others whole."""

    ratio: float
    removed: int
    error: float  #: of the outputs, relative
    accuracy: float  #: top-1, 0 to 1; NaN without labels
    macs: float
    params: float


@dataclass(frozen=True)
class PruneGroup:
    """Channels that come out of the same layers."""

    name: str
    op: str
    channels: int
    points: list[PrunePoint]


@dataclass(frozen=True)
class PruneScan:
    """What each group of channels costs, at several ratios."""

    groups: list[PruneGroup]
    samples: int
    accuracy: float  #: of the whole network; NaN without labels
    macs: float
    params: float

    def _repr_html_(self) -> str:
        return _html.table(
            ("layer", "operator", "channels", "ratio", "error", "accuracy"),
            [(g.name, g.op, g.channels, p.ratio, p.error, p.accuracy)
             for g in self.groups for p in g.points],
            f"groups of channels, {self.samples} samples")


def _scan(d: Mapping[str, Any]) -> PruneScan:
    groups = [PruneGroup(g["name"], g["op"], g["channels"],
                         [PrunePoint(**p) for p in g["points"]])
              for g in d["groups"]]
    return PruneScan(**{**d, "groups": groups})


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
    scan: Optional[PruneScan] = None

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
          target_params: float = 0.0, target_latency: float = 0.0,
          scan: Union[bool, Sequence[float]] = False,
          before: Optional[ModelSource] = None, dry_run: bool = False,
          samples: int = 0, batch: int = 0,
          example_input: Any = None, context: Optional[Context] = None,
          progress: Progress = None) -> Pruned:
    """Removes channels with everything that depends on them, or sets weights
    to zero, as a configuration (sconfig.yaml) says.

    Targets are what must be left, as a share of the whole.  ``scan`` measures
    what each group of channels costs at several ratios (``True``: 0.1, 0.3, 0.5,
    0.7), and targets choose by it.  ``before`` is the network before training,
    for the criterion ``movement``.  ``dry_run``: only what could be removed.
    """
    model = load(model, example_input, context=context)
    untrained = None if before is None else load(before, context=model.context)
    with reporting(model.context, progress) as report:
        handle = _core.prune_create(
            model._handle, **config_keywords(config),
            exclude=several("exclude", exclude),
            masks_only=masks_only, seed=whole("seed", seed, most=SEED),
            target_macs=number("target_macs", target_macs),
            target_params=number("target_params", target_params),
            target_latency=number("target_latency", target_latency),
            before=untrained._handle if untrained else None, scan=bool(scan))
        if dry_run:
            return _pruned(model, handle, None)
        wants = _core.prune_wants_data(handle)
        if wants == NEEDED and data is None:
            raise ArgumentError(
                "the scan, and a latency, need samples: give data"
                if scan or target_latency else
                "the criterion looks at samples: give data")
        data = repeatable(data, samples)
        found = None
        more = True
        while more:
            if data is not None and wants != UNUSED:
                feed(data, model, handle, report=report, stage="prune",
                     samples=samples, batch=batch, fixed=fixed_batch(model))
            if scan and found is None:
                found = _scan(_core.prune_scan(
                    handle, RATIOS if scan is True
                    else [number("scan", ratio) for ratio in scan]))
            more = _core.prune_apply(handle)
        return _pruned(Model(_core.prune_model(handle)), handle, found)


def _pruned(model: Model, handle: _core.Handle,
            scan: Optional[PruneScan]) -> Pruned:
    result = _core.prune_report(handle)
    result["layers"] = [PrunedLayer(**d) for d in result["layers"]]
    return Pruned(model=model, scan=scan, **result)
