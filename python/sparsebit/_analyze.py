"""What quantization costs, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional

from . import _core, _html
from ._base import Path, Progress, reporting
from ._data import DataSource, feed
from ._quantize import QuantizedModel


@dataclass(frozen=True)
class Difference:
    """How far a tensor is from the same in float, over all samples."""

    mse: float
    sqnr_db: float
    cosine: float
    largest: float


@dataclass(frozen=True)
class LayerError:
    """What quantization does to the result of one node."""

    name: str
    op: str
    module: str
    output: str
    alone: Difference  #: only this layer is quantized
    weights: Optional[Difference]  #: only its weights
    activations: Optional[Difference]  #: only its activations
    together: Optional[Difference]  #: the whole network is quantized
    added: float  #: noise that arises here, less what comes in
    #: how many times as far as the median one the farthest channel of what it
    #: reads reaches, where one scale serves them; else 0
    channel_spread: float


@dataclass(frozen=True)
class OutputError:
    """What quantization does to one output of the network."""

    name: str
    difference: Optional[Difference]
    kl: float
    agreement: float


def _difference(d: Optional[Mapping[str, float]]) -> Optional[Difference]:
    return Difference(**d) if d is not None else None


class Analysis:
    """Errors of all layers, in order of execution, and of the outputs."""

    def __init__(self, handle: _core.Handle, model: QuantizedModel,
                 samples: int) -> None:
        self._handle = handle
        self.quantized = model
        self.samples = samples
        layers, outputs = _core.errors_get(handle)
        self.layers: list[LayerError] = [self._layer(d) for d in layers]
        self.outputs: list[OutputError] = [
            OutputError(d["name"], _difference(d["difference"]), d["kl"],
                        d["agreement"]) for d in outputs]

    @staticmethod
    def _layer(d: Mapping[str, Any]) -> LayerError:
        return LayerError(d["name"], d["op"], d["module"], d["output"],
                          Difference(**d["alone"]), _difference(d["weights"]),
                          _difference(d["activations"]),
                          _difference(d["together"]), d["added"],
                          d["channel_spread"])

    def worst(self, n: int = 10) -> list[LayerError]:
        """Layers that lose most when they alone are quantized."""
        return sorted(self.layers, key=lambda e: e.alone.sqnr_db)[:n]

    def save_report(self, path: Path, title: str = "Quantization") -> None:
        """An HTML page: graph colored by error, charts, histograms."""
        report = _core.report_create(self._handle.context, title,
                                     f"{self.samples} samples, target "
                                     f"{self.quantized.target}")
        _core.report_quantization(report, self._handle)
        _core.report_save(report, path)

    def __repr__(self) -> str:
        return (f"<sparsebit.Analysis {len(self.layers)} layers, "
                f"{self.samples} samples>")

    def _repr_html_(self) -> str:
        return _html.table(
            ("layer", "operator", "SQNR alone, dB", "SQNR together, dB",
             "noise added"),
            [(e.name, e.op, e.alone.sqnr_db,
              e.together.sqnr_db if e.together else "", e.added)
             for e in self.layers], repr(self).strip("<>"))


def analyze(model: QuantizedModel, data: DataSource, *, samples: int = 0,
            batch: int = 0, histograms: bool = True,
            progress: Progress = None) -> Analysis:
    """Runs the float and the quantized network side by side over samples."""
    with reporting(model.context, progress) as report:
        handle = _core.errors_create(model._handle, histograms)
        seen = feed(data, model.model, handle, report=report, stage="analyze",
                    samples=samples, batch=batch,
                    fixed=_core.quant_facts(model._handle)["fixed_batch"])
    return Analysis(handle, model, seen)
