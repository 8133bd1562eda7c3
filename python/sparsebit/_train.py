"""Training: the whole loop, and single steps."""

from __future__ import annotations

import json
import math
import os
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union

from . import _core
from ._base import (SEED, ArgumentError, Array, Context, Path, Progress, Tensor,
                    callable_or_error, choose, count, number, reporting, several,
                    whole)
from ._config import ConfigSource, config_keywords, plain_number
from ._data import Data, DataSource, open_for
from ._model import Model, ModelSource, load
from ._quantize import QuantizedModel

LOSSES = ("cross_entropy", "mse", "kl", "custom", "l1", "smooth_l1", "bce")
OPTIMIZERS = ("sgd", "adam", "adamw")
RESTORED = ("auto", "restore", "folded")
NORMS = ("batch", "frozen", "model")


@dataclass(frozen=True)
class TrainState:
    """How far training has come."""

    epoch: int
    epochs: int
    step: int
    steps: int
    learning_rate: float
    loss: float
    accuracy: float
    validation: float
    best: float
    best_epoch: int
    samples_per_second: float
    seconds_left: float
    pruned: float = 1.0  #: share of what is to go that has gone
    metric: str = "accuracy"  #: what `validation` is


@dataclass(frozen=True)
class TrainCheck:
    """How the exported network compares with the one that was trained."""

    samples: int
    agreement: float  #: share of samples whose greatest element is the same
    error: float


def _data(source: DataSource, model: Model, batch: int, samples: int,
          folders: ExitStack) -> _core.Handle:
    if isinstance(source, Data):
        return source._handle
    if isinstance(source, (str, os.PathLike)):
        return open_for(source, model, batch=batch, samples=samples)
    from ._spool import spool

    folder = folders.enter_context(TemporaryDirectory())
    text = spool(source, model, folder, batch, samples)
    return _core.data_parse(model.context, text, os.path.join(folder, "d.yaml"),
                            samples=samples)


def train(model: Union[ModelSource, QuantizedModel], data: DataSource,
          validation: DataSource = None, *,
          options: Union[None, Path, Mapping[str, Any]] = None,
          folder: Optional[Path] = None, resume: bool = False,
          teacher: Optional[ModelSource] = None, prune: ConfigSource = None,
          lora: Optional[str] = None, lora_rank: int = 8,
          lora_alpha: float = 16.0, seed: int = 0, batch: int = 0,
          samples: int = 0, valid_samples: int = 0,
          watch: Optional[Callable[[TrainState], Any]] = None,
          context: Optional[Context] = None) -> Any:
    """Trains a network, or a quantized one with its quantizers (``train=True``
    of :func:`quantize`), which is changed and returned.

    ``options`` are a YAML file or a dict of its keys (docs/training.md).
    Samples of an iterable are kept in a temporary folder while it trains.
    ``watch`` is called after every step and epoch; what it raises ends
    training.  Ctrl-C writes a checkpoint into ``folder`` first.  ``prune`` is a
    configuration (sconfig.yaml) by which the network is pruned, at once or while
    it is trained.  ``lora`` names layers of a language model beside which
    adapters are trained, and nothing else: ``"q_proj|v_proj"``;
    :meth:`Model.save_lora` writes them.
    """
    quantized = model if isinstance(model, QuantizedModel) else None
    network = model.model if isinstance(model, QuantizedModel) else load(
        model, context=context)
    batch, samples = count("batch", batch), count("samples", samples)
    valid_samples = count("valid_samples", valid_samples)
    text = path = None
    if isinstance(options, Mapping):
        text = json.dumps(dict(options), default=plain_number)
    elif options is not None:
        path = os.fspath(options)
    if lora is not None:
        if quantized is not None or prune is not None or teacher is not None:
            raise ArgumentError("lora goes without a quantized model, prune and "
                                "teacher")
        network = network.clone()
        network.add_lora(lora, rank=lora_rank, alpha=lora_alpha, seed=seed)
        keys = json.loads(text) if text else {}
        text = json.dumps({**keys, "TRAIN": ["*.lora_?.weight"]})
    pruning = config_keywords(prune)
    call = None
    if watch is not None:
        callable_or_error("watch", watch)

        def call(state: dict[str, Any]) -> None:  # noqa: F811
            watch(TrainState(**state))
    with ExitStack() as folders:
        handle = _data(data, network, batch, samples, folders)
        result = _core.train(
            (quantized or network)._handle, handle,
            None if validation is None else
            _data(validation, network, batch, valid_samples, folders),
            options=path, options_text=text,
            folder=None if folder is None else os.fspath(folder),
            resume=resume,
            teacher=(None if teacher is None
                     else load(teacher, context=network.context)._handle),
            seed=whole("seed", seed, most=SEED), watch=call, prune=pruning["config"],
            prune_text=pruning["config_text"])
    if quantized is None:
        return Model(result)
    quantized.trained = TrainCheck(**result)
    return quantized


@dataclass(frozen=True)
class Parameter:
    """A parameter of a model that is being trained."""

    name: str
    role: str  #: ``weight``, ``scale`` or ``statistic``
    trained: bool
    rate: float
    decay: float


class Learner:
    """A model that is being trained, step by step.

    With ``loss="custom"`` a step is :meth:`forward`, a loss of your own, and
    :meth:`backward` with its gradients.  Of a quantized model (``train=True`` of
    :func:`quantize`) quantizers round in the forward pass and learn their
    scales; :meth:`QuantizedModel.take` brings back what was learned.
    ``restored`` says what becomes of its batch norms, which were folded:
    ``auto``, ``restore`` or ``folded``.
    """

    def __init__(self, model: Union[ModelSource, QuantizedModel], *, loss: str = "cross_entropy",
                 optimizer: str = "sgd", learning_rate: float = 0.01,
                 momentum: float = 0.9, nesterov: bool = False,
                 weight_decay: float = 0.0, label_smoothing: float = 0.0,
                 temperature: float = 1.0, clip_norm: float = 0.0,
                 ema_decay: float = 0.0, norm: str = "batch",
                 dropout: bool = True, train: Union[str, Iterable[str]] = (),
                 freeze: Union[str, Iterable[str]] = (), accumulate: int = 1,
                 recompute: int = 0, loss_output: Optional[str] = None,
                 scale_rate: float = 1.0, restored: str = "auto",
                 exact: bool = False, seed: int = 0, example_input: Any = None,
                 context: Optional[Context] = None,
                 progress: Progress = None) -> None:
        if isinstance(model, QuantizedModel):
            loaded, handle = model.model, model._handle
        else:
            loaded = load(model, example_input, context=context)
            handle = loaded._handle
        self._n_outputs = len(loaded.outputs)
        self._inputs: tuple[Optional[Tensor], ...] = ()
        with reporting(loaded.context, progress):
            self._handle = _core.learner_create(
                handle, loss=choose("loss", loss, LOSSES),
                optimizer=choose("optimizer", optimizer, OPTIMIZERS),
                learning_rate=number("learning_rate", learning_rate),
                momentum=number("momentum", momentum), nesterov=nesterov,
                weight_decay=number("weight_decay", weight_decay),
                label_smoothing=number("label_smoothing", label_smoothing),
                temperature=number("temperature", temperature),
                clip_norm=number("clip_norm", clip_norm),
                ema_decay=number("ema_decay", ema_decay),
                norm=choose("norm", norm, NORMS), dropout=dropout,
                train=several("train", train), freeze=several("freeze", freeze),
                accumulate=count("accumulate", accumulate),
                recompute=count("recompute", recompute),
                loss_output=loss_output, exact=exact,
                seed=whole("seed", seed, most=SEED),
                scale_rate=number("scale_rate", scale_rate),
                norms=choose("restored", restored, RESTORED))

    def step(self, inputs: Union[Array, Sequence[Array]], target: Array) -> float:
        """Loss, gradients, update; the loss before it."""
        return _core.learner_step(self._handle, _tuple(inputs), target)

    def gradient(self, inputs: Union[Array, Sequence[Array]],
                 target: Array) -> float:
        """Loss and gradients alone: nothing else changes."""
        return _core.learner_gradient(self._handle, _tuple(inputs), target)

    def forward(self, inputs: Union[Array, Sequence[Array]]
                ) -> list[Optional[Tensor]]:
        # The library reads them again in backward().
        shared = tuple(None if a is None
                       else _core.tensor(self._handle.context, a)
                       for a in _tuple(inputs))
        outputs = _core.learner_forward(self._handle, shared, self._n_outputs)
        self._inputs = shared
        return outputs

    def graph(self) -> Model:
        """What a step computes (forward, loss, backward), to look at."""
        return Model(_core.learner_graph(self._handle))

    def backward(self, gradients: Union[Array, Sequence[Optional[Array]]]) -> None:
        _core.learner_backward(self._handle, _tuple(gradients))
        self._inputs = ()

    def evaluate(self, inputs: Union[Array, Sequence[Array]],
                 average: bool = False) -> list[Tensor]:
        """Outputs in inference form, with the present parameters."""
        return _core.learner_eval(self._handle, _tuple(inputs), self._n_outputs,
                                  average)

    def model(self, average: bool = False) -> Model:
        """A copy of the model with the present parameters."""
        return Model(_core.learner_model(self._handle, average))

    @property
    def learning_rate(self) -> float:
        return _core.learner_rate(self._handle)

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        rate = number("learning_rate", rate)
        if not 0 <= rate < math.inf:
            raise ArgumentError(f"learning_rate: found {rate!r}, want 0 or more")
        _core.learner_rate(self._handle, rate)

    @property
    def parameters(self) -> list[Parameter]:
        return [Parameter(**p) for p in _core.learner_parameters(self._handle)]

    def value(self, name: str) -> Tensor:
        """A copy of a parameter."""
        return _core.learner_parameter(self._handle, name)[0]

    def gradient_of(self, name: str) -> Optional[Tensor]:
        """A copy of a parameter's gradient in the last step."""
        return _core.learner_parameter(self._handle, name)[1]

    def set_value(self, name: str, array: Array) -> None:
        _core.learner_set_parameter(self._handle, name, array)

    def save(self, path: Path) -> None:
        """All that steps have changed; :meth:`load` goes on to the last bit."""
        _core.learner_save(self._handle, path)

    def load(self, path: Path) -> None:
        _core.learner_load(self._handle, path)


def _tuple(arrays: Any) -> tuple[Any, ...]:
    return tuple(arrays) if isinstance(arrays, (list, tuple)) else (arrays,)
