"""Quantization in one call."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterable, Optional, Sequence, Union

from . import _core, _html
from ._base import (ArgumentError, Array, Context, Path, Progress, Tensor,
                    choose, reporting, several)
from ._config import ConfigSource, config_keywords
from ._data import DataSource, feed
from ._model import FORMATS, Model, ModelSource, load

if TYPE_CHECKING:
    from ._train import Learner

REDUCTIONS = ("off", "auto", "all")
EXPORTS = ("qdq", "qoperator", "matmulnbits")
TO_FILE, TO_BYTES, TO_MODEL, TO_NOTHING = range(4)


@dataclass(frozen=True)
class Quantizer:
    """A quantizer on an edge of the network."""

    name: str
    value: str
    is_weight: bool
    fused: bool  #: inside conv + norm + activation: never on
    bits: int
    scheme: str
    quantizer: str
    observer: str
    axis: int  #: -1: per tensor
    group_size: int
    qmin: int
    qmax: int
    scale: list[float]
    zero_point: list[float]
    elements: int  #: of the weight


@dataclass(frozen=True)
class Step:
    """What was done beyond scales, and the error of the outputs around it."""

    name: str
    layers: int
    before: float
    after: float
    kept: bool


class QuantizedModel:
    """A quantized network: to run in simulation, inspect and save."""

    def __init__(self, handle: _core.Handle, model: Model, samples: int = 0,
                 seconds: float = 0.0) -> None:
        self._handle = handle
        self.model = model  #: the float network
        self.samples = samples  #: that it was calibrated on
        self.seconds = seconds

    @property
    def context(self) -> Context:
        return self._handle.context  # type: ignore[return-value]

    @property
    def target(self) -> str:
        return str(_core.quant_facts(self._handle)["target"])

    @property
    def quantizers(self) -> list[Quantizer]:
        return [Quantizer(**q) for q in _core.quant_quantizers(self._handle)]

    @property
    def steps(self) -> list[Step]:
        """What was done beyond scales, to lose less accuracy."""
        return [Step(**s) for s in _core.quant_steps(self._handle)]

    def graph(self, format: str = "text") -> str:
        """The graph with its quantizers."""
        return _core.quant_print(self._handle, choose("format", format, FORMATS))

    def run(self, *inputs: Array) -> list[Tensor]:
        """Runs the network with rounding in float, as the file would be."""
        return _core.quant_forward(self._handle, inputs, len(self.model.outputs))

    __call__ = run

    def _export(self, to: int, path: Optional[Path], format: str, opset: int,
                float_weights: bool, extra_info: bool,
                accuracy_level: int) -> Any:
        return _core.quant_export(
            self._handle, to, path, format=choose("format", format, EXPORTS),
            opset=opset, float_weights=float_weights, extra_info=extra_info,
            accuracy_level=accuracy_level)

    def save(self, path: Path, *, format: str = "qdq", opset: int = 0,
             float_weights: bool = False, extra_info: bool = False,
             accuracy_level: int = 0) -> None:
        """Writes an ONNX file: ``qdq``, ``qoperator`` or ``matmulnbits``."""
        self._export(TO_FILE, path, format, opset, float_weights, extra_info,
                     accuracy_level)

    def to_bytes(self, *, format: str = "qdq", opset: int = 0,
                 float_weights: bool = False, extra_info: bool = False,
                 accuracy_level: int = 0) -> bytes:
        """The bytes of that file."""
        return bytes(self._export(TO_BYTES, None, format, opset, float_weights,
                                  extra_info, accuracy_level))

    def to_model(self, *, format: str = "qdq", opset: int = 0,
                 float_weights: bool = False, extra_info: bool = False,
                 accuracy_level: int = 0) -> Model:
        """The network of that file, without writing it."""
        return Model(self._export(TO_MODEL, None, format, opset, float_weights,
                                  extra_info, accuracy_level))

    def take(self, learner: "Learner", average: bool = False) -> None:
        """Takes over what a learner of this model has learned."""
        _core.quant_take(self._handle, learner._handle, average)

    def save_calibration(self, path: Path) -> None:
        """What was observed, as JSON, for ``load_calibration``."""
        _core.quant_save_calibration(self._handle, path)

    def __repr__(self) -> str:
        on = [q for q in self.quantizers if not q.fused]
        weights = sum(q.is_weight for q in on)
        return (f"<sparsebit.QuantizedModel {weights} weights, "
                f"{len(on) - weights} activations, target {self.target}>")

    def _repr_html_(self) -> str:
        return _html.table(
            ("quantizer", "bits", "scheme", "observer", "scales", "smallest",
             "largest"),
            [(q.name, q.bits, q.scheme, q.observer, len(q.scale),
              min(q.scale, default=0.0), max(q.scale, default=0.0))
             for q in self.quantizers if not q.fused], repr(self).strip("<>"))


def quantize(model: ModelSource, data: DataSource = None, *,
             config: ConfigSource = None, target: Optional[str] = None,
             preset: Optional[str] = None, samples: int = 0, batch: int = 0,
             asym: Union[str, Sequence[str]] = (), asym_memory: int = 0,
             exclude: Union[str, Iterable[str]] = (), reduce_range: str = "auto",
             exact: bool = False, train: bool = False,
             load_calibration: Union[Path, Iterable[Path]] = (),
             example_input: Any = None, context: Optional[Context] = None,
             progress: Progress = None) -> QuantizedModel:
    """Calibrates a model on samples and quantizes it.

    ``data`` may be missing where activations are not calibrated (weight-only,
    dynamic).  ``asym`` is ``"w"``, ``"a"`` or ``"wa"``: calibrate each layer on
    the outputs of quantized weights, activations or both.  ``exclude`` are
    patterns of nodes and modules that stay in float.  ``train``: it will be
    trained, with :func:`train` or a :class:`Learner`.
    """
    model = load(model, example_input, context=context, progress=progress)
    calibrations = several(load_calibration)
    start = time.perf_counter()
    with reporting(model.context, progress) as report:
        handle = _core.quant_create(
            model._handle, **config_keywords(config), target=target,
            exact=exact, reduce_range=choose("reduce_range", reduce_range,
                                             REDUCTIONS),
            calibrate=data is not None or bool(calibrations),
            exclude=several(exclude),
            preset=preset, train=train)
        facts = _core.quant_facts(handle)
        if facts["needs_calibration"] and data is None and not calibrations:
            raise ArgumentError("quantization needs samples to be calibrated on: "
                                "give data or load_calibration")
        _core.quant_prepare(handle, "w" in asym, "a" in asym, asym_memory)
        seen = 0
        if data is not None and facts["can_calibrate"]:
            seen = feed(data, model, handle, report=report, stage="calibrate",
                        samples=samples, batch=batch, fixed=facts["fixed_batch"])
        for path in calibrations:
            _core.quant_load_calibration(handle, path)
        _core.quant_calc_qparams(handle)
        _core.quant_set_quant(handle, True, True)
    return QuantizedModel(handle, model, seen, time.perf_counter() - start)
