"""Running networks."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Union

from . import _core
from ._base import Array, ArgumentError, Context, Progress, Tensor, choose, reporting
from ._model import Model, ModelSource, Value, load

INTEGER = ("off", "on", "by_target")


class Session:
    """A network made ready to run.

    ``integer`` says whether Q/DQ groups are computed as the integer kernels
    that ONNX Runtime makes of them: ``on``, ``off``, or ``by_target``, as the
    file asks for.
    """

    def __init__(self, model: ModelSource, *, exact: bool = False,
                 profile: bool = False, integer: str = "by_target",
                 context: Optional[Context] = None,
                 progress: Progress = None) -> None:
        loaded = load(model, context=context)
        self.inputs: list[Value] = loaded.inputs
        self.outputs: list[Value] = loaded.outputs
        self._input_names = [v.name for v in self.inputs]
        self._n_outputs = len(self.outputs)
        with reporting(loaded.context, progress):
            self._handle = _core.session_create(
                loaded._handle, exact=exact, profile=profile,
                integer=choose("integer", integer, INTEGER))
        self._run = _core.session_run

    def run(self, *inputs: Union[Array, Mapping[str, Array]],
            out: Optional[Sequence[Optional[Array]]] = None) -> list[Tensor]:
        """Runs once.

        ``inputs`` are arrays in the model's order, or one dict of arrays by
        name.  Their memory is used as it is.  The result is a list of new
        tensors, which share their memory with ``numpy.asarray(tensor)``; with
        ``out``, arrays to write to, those are returned.
        """
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            inputs = self._by_name(inputs[0])
        return self._run(self._handle, inputs, self._n_outputs, out)

    __call__ = run

    def _by_name(self, arrays: Mapping[str, Array]) -> tuple[Any, ...]:
        unknown = [n for n in arrays if n not in self._input_names]
        if unknown:
            raise ArgumentError(f"no input has the name '{unknown[0]}': there are "
                                + ", ".join(self._input_names))
        return tuple(arrays.get(n) for n in self._input_names)

    @property
    def is_integer(self) -> bool:
        return _core.session_is_integer(self._handle)

    @property
    def workspace(self) -> int:
        """Bytes of activations of the last run."""
        return _core.session_workspace(self._handle)

    def profile(self) -> dict[str, Any]:
        """What runs cost, by node and operator; needs ``profile=True``."""
        return _core.session_profile(self._handle)

    @property
    def context(self) -> Context:
        return self._handle.context  # type: ignore[return-value]


def session_of(model: Model, integer: str, exact: bool) -> _core.Handle:
    return _core.session_create(model._handle, exact=exact,
                                integer=choose("integer", integer, INTEGER))
