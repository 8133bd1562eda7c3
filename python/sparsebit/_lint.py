"""What a runtime makes of a quantized model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _core, _html
from ._base import Context, Progress, reporting
from ._model import ModelSource, load
from ._quantize import QuantizedModel


@dataclass(frozen=True)
class LintNode:
    """What becomes of one node."""

    name: str
    output: str
    op: str
    fate: str  #: ``float``, ``integer``, ``moves`` or ``absorbed``
    kernel: str
    rule: str
    why: str
    remedy: str
    weighted: bool
    overhead: bool
    saturates: bool


@dataclass(frozen=True)
class Lint:
    """What becomes of a model."""

    target: str
    nodes: list[LintNode]
    broken: list[LintNode]
    weighted: int
    weighted_integer: int
    quantize_nodes: int
    dequantize_nodes: int
    left_known: bool
    quantize_left: int
    dequantize_left: int

    @property
    def problems(self) -> list[LintNode]:
        """Nodes that stay in float although Q/DQ stand beside them, and Q/DQ
        that the runtime refuses."""
        return [n for n in self.nodes if n.rule] + self.broken

    def _repr_html_(self) -> str:
        return _html.table(
            ("node", "operator", "becomes", "why", "what helps"),
            [(n.name or n.output, n.op, n.kernel or n.fate, n.why, n.remedy)
             for n in self.nodes],
            f"{self.weighted_integer} of {self.weighted} layers with weights are "
            f"integer kernels of {self.target}")


def lint(model: Union[ModelSource, QuantizedModel],
         target: Optional[str] = None, *, context: Optional[Context] = None,
         progress: Progress = None) -> Lint:
    """Says which groups become integer kernels, which stay in float, and what
    helps."""
    if isinstance(model, QuantizedModel):
        target = target or model.target
        model = model.to_model()
    model = load(model, context=context)
    with reporting(model.context, progress):
        result: dict[str, Any] = _core.model_lint(model._handle, target)
    for key in ("nodes", "broken"):
        result[key] = [LintNode(**n) for n in result[key]]
    return Lint(**result)
