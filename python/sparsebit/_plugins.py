"""Observers, quantizers and criteria written in Python."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Optional

from . import _core
from ._base import Array, Context, callable_or_error, default_context


@dataclass(frozen=True)
class Param:
    """A number that a configuration may set: OBSERVER.<NAME>.<KEY>."""

    key: str
    preset: float
    help: str = ""
    min: float = 0.0
    max: float = 0.0  #: min and max both 0: no limit

    def _row(self) -> tuple[str, str, float, float, float]:
        return (self.key, self.help or self.key.lower(), float(self.preset),
                float(self.min), float(self.max))


@dataclass(frozen=True)
class Values:
    """What an observer has seen of one channel.

    Of a weight ``x`` are its values and ``count`` is None.  Of an activation
    ``x`` are the centers of the bins of a histogram, and ``count`` how many
    values each stands for.  Both are memoryviews, for ``numpy.asarray``.
    """

    is_weight: bool
    bits: int
    is_symmetric: bool
    channel: int
    params: tuple[float, ...]
    least: float
    most: float
    x: memoryview
    count: Optional[memoryview]
    bin_width: float


def add_observer(name: str, function: Callable[[Values], tuple[float, float]],
                 *, summary: str = "an observer in Python",
                 params: Iterable[Param] = (), weights: bool = True,
                 activations: bool = True,
                 context: Optional[Context] = None) -> None:
    """Adds an observer, by its name under OBSERVER.TYPE of a configuration.

    ``function`` says the range to quantize: least and greatest value.
    """
    callable_or_error("function", function)

    def call(values: dict[str, Any]) -> tuple[float, float]:
        return function(Values(**values))

    _core.add_observer(context or default_context(), name, summary, call,
                       weights, activations, tuple(p._row() for p in params))


def add_quantizer(name: str,
                  map_weight: Optional[Callable[[memoryview, tuple[float, ...]],
                                                Array]] = None,
                  *, map_activation: Optional[str] = None,
                  summary: str = "a quantizer in Python",
                  params: Iterable[Param] = (), weights: bool = True,
                  activations: bool = True,
                  context: Optional[Context] = None) -> None:
    """Adds a quantizer, by its name under QUANTIZER.TYPE of a configuration.

    ``map_weight`` gets the elements of a weight and the parameters, and returns
    as many floats: the domain in which they are observed and rounded.
    ``map_activation`` names an operator that does so with activations.
    """
    if map_weight is not None:
        callable_or_error("map_weight", map_weight)
    _core.add_quantizer(context or default_context(), name, summary, map_weight,
                        map_activation, weights, activations,
                        tuple(p._row() for p in params))


def add_criterion(name: str,
                  score: Optional[Callable[[memoryview, int], Any]] = None,
                  *, weigh: Optional[Callable[[memoryview], Any]] = None,
                  summary: str = "a criterion in Python",
                  context: Optional[Context] = None) -> None:
    """Adds a criterion for pruning, by its name under SPARSER.STRATEGY.

    ``score`` gets a weight and an axis, and returns what each index along the
    axis is worth; ``weigh`` gets a weight and returns what each element is
    worth, for unstructured pruning.  The lowest are pruned first.
    """
    for what, function in (("score", score), ("weigh", weigh)):
        if function is not None:
            callable_or_error(what, function)

    def call(weight: memoryview, axis: int) -> Any:
        if axis >= 0:
            result = score(weight, axis)  # type: ignore[misc]
        else:
            result = weigh(weight)  # type: ignore[misc]
        return array("d", result) if isinstance(result, (list, tuple)) \
            else result

    _core.add_criterion(context or default_context(), name, summary, call,
                        score is not None, weigh is not None)
