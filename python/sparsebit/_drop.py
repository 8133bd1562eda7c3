"""Layers that stay in float, the worst first, until a model is good enough.

How bad a layer is, is measured once, with all of them quantized; how many must
stay is found by doubling and halving, each time with a model quantized anew."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable

from ._analyze import analyze
from ._base import Error, Progress
from ._data import DataSource
from ._evaluate import Evaluation, evaluate
from ._quantize import QuantizedModel


@dataclass(frozen=True)
class Drop:
    """What was lost, in per cent."""

    what: str  #: ``top-1``, ``agreement of classes``, ...
    before: float  #: with all layers quantized
    lost: float  #: in the end
    layers: list[str]  #: patterns of those that stayed in float


def lost(found: Evaluation) -> tuple[str, float]:
    """Of what, and how much, by what the outputs are."""
    if found.labeled and found.reference and found.reference.labeled:
        return "top-1", found.reference.top1 - found.top1
    if not math.isnan(found.agreement):
        return "agreement of classes", 100 - found.agreement
    if found.reference_boxes:
        f1 = 0.0 if math.isnan(found.f1) else found.f1
        return "F1 of boxes", 100 * (1 - f1)
    if not math.isnan(found.map_iou):
        return "overlap of maps", 100 * (1 - found.map_iou)
    if found.texts:
        return "equal texts", 100 - found.texts_equal
    return "cosine of the outputs", 100 * (1 - found.cosine)


def pattern(name: str) -> str:
    """A pattern that means this name alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def followers(model: QuantizedModel, output: str) -> list[str]:
    """Patterns of the activation that finishes a layer: quantized by itself,
    before it runs, once the layer is in float."""
    end = ".input_quantizer"
    return [pattern(q.name[:-len(end)]) for q in model.quantizers
            if q.fused and q.value == output and q.name.endswith(end)]


def limit(first: QuantizedModel, data: DataSource, most: float,
          again: Callable[[list[str]], QuantizedModel], *, samples: int,
          batch: int, progress: Progress) -> QuantizedModel:
    """Quantizes ``again`` with layers in float until ``most`` is kept."""
    def measure(model: QuantizedModel) -> tuple[str, float]:
        return lost(evaluate(model, data, against=model.model, integer="off",
                             samples=samples, batch=batch, progress=progress))

    what, before = measure(first)
    if before <= most:
        first.drop = Drop(what, before, before, [])
        return first
    found = analyze(first, data, samples=samples, batch=batch,
                    histograms=False, progress=progress)
    layers = [e for e in found.layers if e.op != "Output"]
    layers.sort(key=lambda e: -math.inf if math.isnan(e.alone.sqnr_db)
                else e.alone.sqnr_db)
    names = [[pattern(e.name), *followers(first, e.output)] for e in layers]
    tried: dict[int, tuple[QuantizedModel, float]] = {}

    def enough(n: int) -> bool:
        if n not in tried:
            model = again(sum(names[:n], []))
            tried.clear()  # one model at a time
            tried[n] = (model, measure(model)[1])
        return tried[n][1] <= most

    few, many = 0, 1
    while many < len(names) and not enough(many):
        if many + 1 >= len(names):
            break
        few, many = many, min(2 * many, len(names) - 1)
    if len(names) < 2 or not enough(many):
        left = tried[many][1] if many in tried else before
        raise Error(f"accuracy_drop {most:g} cannot be met: with "
                    f"{many if tried else 0} of {len(names)} layers in float "
                    f"{what} still drops by {left:.4g}")
    while many - few > 1:
        middle = few + (many - few) // 2
        few, many = (few, middle) if enough(middle) else (middle, many)
    enough(many)
    model, left = tried[many]
    model.drop = Drop(what, before, left, sum(names[:many], []))
    return model
