"""Quantization in one call."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterable, Optional, Sequence, Union

from . import _core, _html
from ._base import (ArgumentError, Array, Context, Path, Progress, Tensor,
                    choose, count, number, reporting, several, whole)
from ._config import ConfigSource, config_keywords
from ._data import DataSource, feed, repeatable
from ._model import FORMATS, LANGUAGE, Model, ModelSource, load

if TYPE_CHECKING:
    from ._drop import Drop
    from ._train import Learner, TrainCheck

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
        self.drop: Optional[Drop] = None  #: what ``accuracy_drop`` led to
        self.trained: Optional[TrainCheck] = None  #: what :func:`train` found
        self._journal = False

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
            opset=whole("opset", opset), float_weights=float_weights,
            extra_info=extra_info,
            accuracy_level=whole("accuracy_level", accuracy_level))

    def save(self, path: Path, *, format: str = "qdq", opset: int = 0,
             float_weights: bool = False, extra_info: bool = False,
             accuracy_level: int = 0) -> None:
        """Writes an ONNX file: ``qdq``, ``qoperator`` or ``matmulnbits``."""
        self._export(TO_FILE, path, format, opset, float_weights, extra_info,
                     accuracy_level)
        self._end_journal()

    def save_language(self, path: Path, *, format: str = "gguf",
                      tokenizer: Optional[Path] = None,
                      float_as: Optional[str] = None,
                      gptq_version: int = 0) -> None:
        """Writes a language model that was quantized with ``half_scales``:
        ``gguf``, for llama.cpp, or ``gptq``, a Hugging Face folder."""
        if choose("format", format, LANGUAGE) == 0 and float_as is None:
            float_as = "q8_0"
        self.to_model(format="matmulnbits").save_language(
            path, format=format, tokenizer=tokenizer, float_as=float_as,
            gptq_version=gptq_version,
            round=True)  # offsets; scales are float16 already
        self._end_journal()

    def _end_journal(self) -> None:
        if self._journal:
            _core.quant_end_journal(self._handle)
            self._journal = False

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
             augment: int = 0,
             asym: Union[str, Sequence[str]] = (), asym_memory: int = 0,
             exclude: Union[str, Iterable[str]] = (), reduce_range: str = "auto",
             exact: bool = False, train: bool = False,
             accuracy_drop: Optional[float] = None, half_scales: bool = False,
             journal: Optional[Path] = None, dump_after: Optional[str] = None,
             load_calibration: Union[Path, Iterable[Path]] = (),
             example_input: Any = None, context: Optional[Context] = None,
             progress: Progress = None) -> QuantizedModel:
    """Calibrates a model on samples and quantizes it.

    ``data`` may be missing where activations are not calibrated (weight-only,
    dynamic).  ``augment`` calibrates on so many other versions of each sample,
    too, changed at random as AUGMENT of the data file says; it goes with a
    ``config``, for weights of less than 8 bits.  ``asym`` is ``"w"``, ``"a"`` or ``"wa"``: calibrate each layer on
    the outputs of quantized weights, activations or both.  ``exclude`` are
    patterns of nodes and modules that stay in float.  ``train``: it will be
    trained, with :func:`train` or a :class:`Learner`.

    ``accuracy_drop`` keeps layers in float, the worst first, until no more than
    so many per cent are lost on the samples: of top-1 where they have labels,
    else of what agrees with the float model.  Of language models,
    ``half_scales`` is for :meth:`QuantizedModel.save_language`, and ``journal``
    a folder that keeps what is rounded already until the model is saved, so
    that the same call goes on where another was ended.
    """
    loaded = load(model, example_input, context=context, progress=progress)
    start = time.perf_counter()
    augment = count("augment", augment)
    _check_augment(augment, config, data)
    asym = several("asym", asym)
    if not set("".join(asym)) <= {"w", "a"}:
        raise ArgumentError(f"asym: found {asym!r}, allowed are w, a, wa")
    asym = "".join(asym)
    if accuracy_drop is not None:
        accuracy_drop = number("accuracy_drop", accuracy_drop)
        if not 0 <= accuracy_drop <= 100:
            raise ArgumentError(f"accuracy_drop: found {accuracy_drop:g}, want "
                                "per cent, such as 0.5")
        if data is None or journal is not None:
            raise ArgumentError("accuracy_drop needs data, and no journal: it "
                                "quantizes several times")
        data = repeatable(data, samples)

    def once(floats: Iterable[str]) -> QuantizedModel:
        return _quantize(
            loaded, data, samples, batch, augment, asym, asym_memory, journal,
            several("load_calibration", load_calibration), progress, **config_keywords(config),
            target=target, exact=exact,
            reduce_range=choose("reduce_range", reduce_range, REDUCTIONS),
            exclude=(*several("exclude", exclude), *floats), preset=preset, train=train,
            half_scales=half_scales, dump_after=dump_after)

    made = once(())
    if accuracy_drop is not None:
        from ._drop import limit

        made = limit(made, data, accuracy_drop, once, samples=samples,
                     batch=batch, progress=progress)
    made.seconds = time.perf_counter() - start
    return made


def _check_augment(augment: int, config: ConfigSource,
                   data: DataSource) -> None:
    if augment and config is None:  # its steps are judged by other samples
        raise ArgumentError("augment goes with config")
    if augment and data is None:
        raise ArgumentError("augment: there are no samples to change: give data")


def _quantize(model: Model, data: DataSource, samples: int, batch: int,
              augment: int, asym: str, asym_memory: int,
              journal: Optional[Path], calibrations: tuple[Path, ...],
              progress: Progress, **options: Any) -> QuantizedModel:
    with reporting(model.context, progress) as report:
        handle = _core.quant_create(
            model._handle, calibrate=data is not None or bool(calibrations),
            **options)
        facts = _core.quant_facts(handle)
        if facts["needs_calibration"] and data is None and not calibrations:
            raise ArgumentError("quantization needs samples to be calibrated on: "
                                "give data or load_calibration")
        _core.quant_prepare(handle, "w" in asym, "a" in asym,
                            count("asym_memory", asym_memory), journal)
        seen = 0
        if data is not None and facts["can_calibrate"]:
            seen = feed(data, model, handle, report=report, stage="calibrate",
                        samples=samples, batch=batch, fixed=facts["fixed_batch"],
                        augment=augment)
        elif augment:
            raise ArgumentError("augment: the config needs no samples to change")
        for path in calibrations:
            _core.quant_load_calibration(handle, path)
        _core.quant_calc_qparams(handle)
        _core.quant_set_quant(handle, True, True)
    made = QuantizedModel(handle, model, seen)
    made._journal = journal is not None
    return made
