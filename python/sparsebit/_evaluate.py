"""Accuracy, and how much two models agree."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Optional, Union

from . import _core, _html
from ._base import ArgumentError, Context, DataError, Progress, number, reporting
from ._data import NO_SAMPLES, DataSource, Samples
from ._model import Model, ModelSource, load
from ._quantize import QuantizedModel
from ._session import session_of


@dataclass(frozen=True)
class Evaluation:
    """What was counted; numbers that do not apply are NaN or 0.

    ``top1``, ``top5``, ``agreement``, ``pixel_accuracy``, ``mean_iou`` and
    ``label_f1`` are per cent.
    """

    samples: int
    labeled: int
    top1: float
    top5: float
    compared: int
    cosine: float
    sqnr_db: float
    task: Optional[str]
    task_guessed: bool
    agreement: float
    map_iou: float
    boxes: int
    reference_boxes: int
    matched_boxes: int
    recall: float
    precision: float
    f1: float
    vectors: int
    vector_cosine: float
    vector_cosine_p1: float
    texts: int
    texts_equal: float
    tokens: int
    perplexity: float
    divergence: float
    uneven: int  #: samples whose outputs differ in length
    pixels: int
    pixel_accuracy: float
    mean_iou: float
    numbers: int
    mean_absolute_error: float
    mean_squared_error: float
    label_f1: float
    reference: Optional["Evaluation"] = None  #: of the model compared with

    def _shown(self) -> list[tuple[str, Any]]:
        """What says something."""
        rows = [(f.name, getattr(self, f.name)) for f in fields(self)
                if f.name not in ("reference", "task_guessed")]
        if not self.labeled:
            rows = [r for r in rows if r[0] not in ("top1", "top5")]
        return [(k, v) for k, v in rows
                if (v == v if isinstance(v, float) else v)]

    def __str__(self) -> str:
        return ", ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}"
                         for k, v in self._shown())

    def _repr_html_(self) -> str:
        return _html.facts("evaluation", self._shown())


def _copy(model: Union[ModelSource, QuantizedModel], example: Any,
          context: Optional[Context]) -> Model:
    """A model to run with any batch; the caller's is not changed."""
    if isinstance(model, QuantizedModel):
        made = model.to_model()
    else:
        made = load(model, example, context=context)
    if context is None or made.context is context:
        made = made.clone()
    else:
        made = made.clone(context)
    made.make_batch_dynamic()
    return made


def evaluate(model: Union[ModelSource, QuantizedModel], data: DataSource, *,
             against: Union[None, ModelSource, QuantizedModel] = None,
             task: Optional[str] = None, threshold: float = -1.0,
             iou: float = 0.5, samples: int = 0, batch: int = 0,
             integer: str = "by_target", exact: bool = False,
             example_input: Any = None, context: Optional[Context] = None,
             progress: Progress = None) -> Evaluation:
    """Runs a model over samples: top-1 and top-5 where there are labels, and
    with ``against`` how much agrees with another model."""
    made = _copy(model, example_input, context)
    how = task, number("threshold", threshold), number("iou", iou)
    count = len(made.outputs)
    session = session_of(made, integer, exact)
    counts = _core.eval_create(made.context, count, *how)
    other = other_counts = None
    if against is not None:
        reference = _copy(against, example_input, made.context)
        if len(reference.outputs) != count:
            raise ArgumentError(f"the reference has {len(reference.outputs)} "
                                f"outputs, the model {count}")
        other = session_of(reference, integer, exact)
        other_counts = _core.eval_create(made.context, count, *how)
    batches = Samples(data, made, samples=samples, batch=batch)
    total = min(batches.total, samples) if samples else batches.total
    done = 0
    with reporting(made.context, progress) as report:
        for samples_now in batches:
            _core.eval_batch(samples_now, count, session, counts, other,
                             other_counts)
            done += _core.batch_count(samples_now)
            report("evaluate", done, total)
    if not done:
        raise DataError(NO_SAMPLES)
    result = _core.eval_get(counts)
    if other_counts is not None:
        result["reference"] = Evaluation(**_core.eval_get(other_counts))
    return Evaluation(**result)
