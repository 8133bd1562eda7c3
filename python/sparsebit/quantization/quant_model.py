"""QuantModel: calibrate, simulate and export a network, as the original does."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import (Any, Callable, IO, Iterator, Mapping, Optional, Sequence,
                    Union)

from .. import _core
from .._analyze import analyze
from .._base import (ArgumentError, ConfigError, Context, ModelError, Path,
                     UnsupportedError, _logger)
from .._config import Config, ConfigSource, config_keywords, with_specific
from .._convert import arrays_of, like
from .._model import Model, ModelSource, load
from .._modules import Original
from .._quantize import TO_FILE, QuantizedModel, Quantizer
from .._session import Session

_BN_TUNING = re.compile(r"^[^#\n]*\bBN_TUNING\W+(true|yes|on)\b", re.I | re.M)
MEASURES = ("mse", "sqnr_db", "cosine", "largest")


class QuantModel(Original):
    """A network being quantized.

    ``model`` is an ONNX path, bytes, ``onnx.ModelProto`` or
    ``torch.nn.Module``.  A module is exported with ``example_input``, or with
    what the first call is given.  Results are torch tensors where inputs are,
    else NumPy arrays.  Bit widths of single layers can be set before
    calibration: ``qmodel.model.conv1.input_quantizer.set_bit(8)``.
    """

    def __init__(self, model: ModelSource, config: ConfigSource,
                 example_input: Any = None, *, target: Optional[str] = None,
                 context: Optional[Context] = None) -> None:
        self.cfg = config
        self._source = model
        self._target = target
        self._context = context
        self._quantized: Optional[QuantizedModel] = None
        self._calibrating = False
        self._keep = True
        self._seen: list[tuple[Any, ...]] = []
        self._on = (False, False)
        self._train = False  # made to be trained
        self._calibrated = False
        is_module = hasattr(model, "state_dict") and hasattr(model, "forward")
        if not is_module or example_input is not None:
            self._build(example_input)

    # ---- building ---------------------------------------------------------

    def _build(self, example: Any) -> QuantizedModel:
        if self._quantized is None:
            model = load(self._source, example, context=self._context)
            self._source = model
            try:
                handle = self._create(model)
            except (ConfigError, UnsupportedError) as error:
                self._train = True  # quantizers that only training has
                try:
                    handle = self._create(model)
                except (ConfigError, UnsupportedError):
                    raise error from None
            self._quantized = QuantizedModel(handle, model)
        return self._quantized

    def _set(self, section: str, path: str, key: str, value: Any) -> None:
        if self._calibrating or self._calibrated:
            raise ArgumentError("bit widths are set before prepare_calibration()")
        self.cfg = with_specific(self.cfg or {}, section, {path: [key, value]})
        if self._quantized is not None:
            self._quantized = None
            self._build(None)

    def _create(self, model: Model) -> _core.Handle:
        return _core.quant_create(
            model._handle, **config_keywords(self.cfg), target=self._target,
            calibrate=True, train=self._train)

    @property
    def _built(self) -> QuantizedModel:
        if self._quantized is None:
            raise ArgumentError("a torch.nn.Module is exported at the first call: "
                                "call the QuantModel, or give an example_input")
        return self._quantized

    def _network(self) -> Optional[Model]:
        return self._quantized.model if self._quantized else None

    def _describe(self) -> str:
        rows = [f"  {q.name}: {q.bits} bit, {q.scheme}, scale "
                + (", ".join(f"{v:.4g}" for v in q.scale[:3]) or "none yet")
                + (", ..." if len(q.scale) > 3 else "")
                for q in self._built.quantizers if not q.fused]
        return "\n".join([repr(self._built), *rows])

    @property
    def quantizers(self) -> list[Quantizer]:
        return self._built.quantizers

    # ---- calibration ------------------------------------------------------

    def prepare_calibration(self, asym: Optional[bool] = None) -> None:
        """From now on calls are observed; what was observed is forgotten.

        Inputs are kept until :meth:`calc_qparams`, which may need them again,
        unless ``asym`` is False.
        """
        self._calibrating = True
        self._keep = asym is not False
        self._seen = []
        if self._quantized is not None:
            _core.quant_prepare(self._quantized._handle, False, False)

    def calc_qparams(self, asym: bool = False, w_quant: bool = False,
                     a_quant: bool = False) -> None:
        """Computes scales from what was observed.

        With ``asym`` each layer is calibrated behind quantized weights
        (``w_quant``), activations (``a_quant``) or both.
        """
        if not self._calibrating:
            raise ArgumentError("call prepare_calibration() first")
        handle = self._built._handle
        if asym and (w_quant or a_quant):
            if not self._keep:
                raise ArgumentError("asym: calibration was prepared without it")
            _core.quant_prepare(handle, w_quant, a_quant)
            self._run_seen(self._built)
        _core.quant_calc_qparams(handle)
        self._built.samples = len(self._seen)
        self._calibrating = False
        self._calibrated = True
        self._seen = []

    def _run_seen(self, quantized: QuantizedModel) -> None:
        n = len(quantized.model.outputs)
        for arrays in self._seen:
            _core.quant_forward(quantized._handle, arrays, n)

    @contextmanager
    def batchnorm_tuning(self) -> Iterator["QuantModel"]:
        """For SCHEDULE.BN_TUNING.  :meth:`calc_qparams` has measured batch
        norms in the quantized network already, on the calibration samples, and
        folded them: what is called inside is only run."""
        if not self._calibrated:
            raise ArgumentError("call calc_qparams() before batchnorm_tuning()")
        if not _BN_TUNING.search(Config(self.cfg or {}).read()):
            raise ArgumentError("set SCHEDULE.BN_TUNING in the configuration: "
                                "calc_qparams() then tunes batch norms")
        if not any(s.name == "batch norm statistics" and s.layers
                   for s in self._built.steps):
            _logger.warning("batchnorm_tuning(): nothing was tuned, the network "
                            "has no quantized convolution")
        yield self

    def set_quant(self, w_quant: bool = False, a_quant: bool = False) -> None:
        """Which quantizers calls simulate."""
        self._on = (w_quant, a_quant)
        if self._quantized is not None:
            _core.quant_set_quant(self._quantized._handle, w_quant, a_quant)

    # ---- training ---------------------------------------------------------

    @property
    def _trained(self) -> Any:
        if self._learner is None:
            raise ArgumentError("call init_QAT() first")
        return self._learner

    def init_QAT(self) -> None:
        """Computes scales from what was observed, and makes the network ready to
        be trained with its quantizers, by an optimizer of PyTorch over
        :meth:`parameters`::

            qmodel.init_QAT()
            optimizer = torch.optim.SGD(qmodel.parameters(), lr=0.01)
            for x, y in loader:
                loss = torch.nn.functional.cross_entropy(qmodel(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        Without PyTorch, :func:`sparsebit.train` and :class:`sparsebit.Learner`
        train a :class:`sparsebit.QuantizedModel`.
        """
        from .._torch_train import TorchLearner

        if self._calibrating:
            if not self._train:  # made again, to be trained
                model = self._built.model
                self._train = True
                self._quantized = QuantizedModel(self._create(model), model)
                _core.quant_prepare(self._quantized._handle, False, False)
                self._run_seen(self._quantized)
            self.calc_qparams()
        if not self._train:
            raise ArgumentError("init_QAT() needs a calibration: call "
                                "prepare_calibration() and give samples")
        self.set_quant(w_quant=True, a_quant=True)
        self._learner = TorchLearner(self._built)
        self.train()

    # ---- running ----------------------------------------------------------

    def __call__(self, *inputs: Any, **by_name: Any) -> Any:
        """Runs once: observing while calibrating, else with the quantizers
        that are on.  One output is returned as it is, several as a tuple."""
        first = self._quantized is None
        try:
            quantized = self._build(inputs if len(inputs) > 1 else
                                    inputs[0] if inputs else by_name or None)
        except ModelError as error:
            if self._calibrating or "nothing to quantize" not in str(error):
                raise
            return self._run_float(inputs, by_name)
        if first and self._calibrating:
            _core.quant_prepare(quantized._handle, False, False)
        elif first:
            _core.quant_set_quant(quantized._handle, *self._on)
        arrays = arrays_of(inputs, by_name, quantized.model)
        inputs = inputs or tuple(by_name.values())
        if self._learner is not None:
            from .._torch_train import device_of

            return self._learner.run(arrays, self.training, device_of(inputs))
        if self._calibrating and self._keep:
            self._seen.append(arrays)
        outputs = _core.quant_forward(quantized._handle, arrays,
                                      len(quantized.model.outputs))
        made = tuple(like(inputs, t) for t in outputs)
        return made[0] if len(made) == 1 else made

    forward = __call__

    def _run_float(self, inputs: Any, by_name: Mapping[str, Any]) -> Any:
        """A network without anything to quantize, until it is calibrated."""
        arrays = arrays_of(inputs, by_name, self._source)
        inputs = inputs or tuple(by_name.values())
        made = tuple(like(inputs, t) for t in Session(self._source).run(*arrays))
        return made[0] if len(made) == 1 else made

    def get_quantization_error(self, data: Any,
                               checker: Union[str, Callable[..., Any]] = "mse",
                               is_async: bool = True) -> dict[str, float]:
        """Error of each layer, by name: alone quantized (``is_async``), or in
        the quantized network.  ``checker`` is ``mse``, ``sqnr_db``, ``cosine``
        or ``largest``; ``torch.nn.functional.mse_loss`` is the first."""
        name = getattr(checker, "__name__", checker)
        name = "mse" if name == "mse_loss" else name
        if name not in MEASURES:
            raise ArgumentError(f"checker: found {name!r}, allowed are "
                                + ", ".join(MEASURES))
        batch = data if isinstance(data, (list, tuple, dict)) else [data]
        found = analyze(self._built, [batch], histograms=False)
        return {e.name: getattr(e.alone if is_async else e.together, name)
                for e in found.layers if is_async or e.together}

    # ---- writing ----------------------------------------------------------

    def export_onnx(self, dummy_data: Any, name: Path,
                    input_names: Optional[Sequence[str]] = None,
                    output_names: Optional[Sequence[str]] = None,
                    dynamic_axes: Any = None, opset_version: Optional[int] = None,
                    verbose: bool = False, extra_info: bool = False) -> None:
        """Writes the quantized network.

        With ``extra_info`` a second file, ``<name>_extra.onnx``, has the
        attribute ``bits`` on Q and DQ nodes.  ``dummy_data`` and
        ``dynamic_axes`` are not needed: shapes are those of the model.
        """
        self._build(dummy_data)
        if self._learner is not None:
            self._learner.take()
        path = os.fspath(name)
        if extra_info:
            root, end = os.path.splitext(path)
            self._write(f"{root}_extra{end}", True, opset_version, input_names,
                        output_names)
        try:
            self._write(path, False, opset_version, input_names, output_names)
        except (ArgumentError, UnsupportedError) as error:
            if not extra_info:
                raise
            _logger.warning("%s is not written, only the file with extra_info: "
                            "%s", path, error)
        if verbose:
            print(self._built.graph())

    def _write(self, path: str, extra: bool, opset: Optional[int],
               inputs: Optional[Sequence[str]],
               outputs: Optional[Sequence[str]]) -> None:
        if inputs is None and outputs is None:
            _core.quant_export(self._built._handle, TO_FILE, path,
                               extra_info=extra, opset=opset or 0)
            return
        from .._convert import rename_ends

        data = self._built.to_bytes(extra_info=extra, opset=opset or 0)
        with open(path, "wb") as f:
            f.write(rename_ends(data, inputs, outputs))

    def dump_mermaid(self, f: Union[Path, IO[str]]) -> None:
        """The graph with its quantizers, to a file."""
        text = self._built.graph("mermaid")
        if isinstance(f, (str, os.PathLike)):
            with open(f, "w", encoding="utf-8") as file:
                file.write(text)
        else:
            f.write(text)

    def __repr__(self) -> str:
        return repr(self._quantized or self._source)

    def _repr_html_(self) -> str:
        return self._built._repr_html_()
