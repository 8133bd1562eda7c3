"""Mixed precision: a bit width for each layer, within a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Optional, Sequence, Union

from . import _core, _html
from ._base import Context, Progress, choose, count, number, reporting, several
from ._config import Config, ConfigSource, config_keywords
from ._data import DataSource, feed
from ._model import ModelSource, load

BUDGETS = ("bits", "size", "mac_bits", "error")


@dataclass(frozen=True)
class SearchLayer:
    """A layer, and what each width would cost at the outputs."""

    name: str
    op: str
    elements: float
    macs: float
    bits: int  #: that were chosen
    errors: dict[int, float]


@dataclass(frozen=True)
class SearchPoint:
    """A mixture of widths."""

    bits: float
    bytes: float
    mac_bits: float
    error: float
    measured: bool
    uniform: int  #: the width that all layers have; 0: mixed


@dataclass(frozen=True)
class Found:
    """What was found; ``config`` quantizes with it."""

    layers: list[SearchLayer]
    points: list[SearchPoint]
    uniform: list[SearchPoint]
    found: Optional[SearchPoint]
    error: float
    file_bytes: float
    runs: int
    config: Config

    def _repr_html_(self) -> str:
        return _html.table(("layer", "operator", "elements", "bits"),
                           [(e.name, e.op, e.elements, e.bits)
                            for e in self.layers], "bit widths")


def search(model: ModelSource, data: DataSource, *, limit: float,
           budget: str = "bits", bits: Optional[Sequence[int]] = None,
           config: ConfigSource = None, target: Optional[str] = None,
           exclude: Union[str, Iterable[str]] = (), samples: int = 0, batch: int = 0,
           example_input: Any = None, context: Optional[Context] = None,
           progress: Progress = None) -> Found:
    """Finds widths within a budget: mean ``bits`` of weights, ``size`` of the
    file in bytes, ``mac_bits``, or ``error`` of the outputs."""
    model = load(model, example_input, context=context)
    with reporting(model.context, progress) as report:
        handle = _core.search_create(
            model._handle, choose("budget", budget, BUDGETS),
            number("limit", limit),
            **config_keywords(config), target=target,
            bits=sorted({count("bits", b) for b in bits or ()}, reverse=True) or None,
            exclude=several("exclude", exclude))
        feed(data, model, handle, report=report, stage="measure",
             samples=samples, batch=batch,
             fixed=_core.search_fixed_batch(handle))
        result = _core.search_run(handle)
    found = result["found"]
    return Found([SearchLayer(**d) for d in result["layers"]],
                 [SearchPoint(**d) for d in result["points"]],
                 [SearchPoint(**d) for d in result["uniform"]],
                 SearchPoint(**found) if found else None, result["error"],
                 result["file_bytes"], result["runs"],
                 Config(_core.search_config(handle)))
