"""Between kinds of arrays: what comes in decides what goes out."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from ._base import ArgumentError, Tensor
from ._data import _fit
from ._model import Model


def arrays_of(inputs: Any, by_name: Mapping[str, Any],
              model: Model) -> tuple[Tensor, ...]:
    """Positional and named arrays in the order of the model's inputs."""
    values = model.inputs
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        inputs, by_name = (), {**inputs[0], **by_name}
    if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)):
        inputs = inputs[0]
    names = [v.name for v in values[len(inputs):]]
    unknown = [n for n in by_name if n not in names]
    if unknown:
        raise ArgumentError(f"no input has the name '{unknown[0]}': there are "
                            + ", ".join(v.name for v in values))
    missing = [n for n in names if n not in by_name]
    if missing or len(inputs) > len(values):
        raise ArgumentError(f"{len(inputs) + len(by_name)} inputs, the model has "
                            f"{len(values)}: "
                            + ", ".join(f"{v.name}: {v.text}" for v in values))
    arrays = [*inputs, *(by_name[n] for n in names)]
    return tuple(_fit(model.context, a, v) for a, v in zip(arrays, values))


def like(inputs: Sequence[Any], tensor: Optional[Tensor]) -> Any:
    """A result of the kind of the inputs: torch, on their device, or NumPy."""
    if tensor is None:
        return None
    first: Any = inputs[0] if inputs else None
    if isinstance(first, (list, tuple)) and first:
        first = first[0]
    if type(first).__module__.startswith("torch"):
        made = tensor.torch()
        return made.to(first.device) if first.is_cuda else made
    return tensor.numpy()


def rename_ends(data: bytes, inputs: Optional[Sequence[str]],
                outputs: Optional[Sequence[str]]) -> bytes:
    """The bytes of an ONNX file with other names for inputs and outputs."""
    import onnx

    proto = onnx.load_from_string(data)
    ends = [*zip(proto.graph.input, inputs or ()),
            *zip(proto.graph.output, outputs or ())]
    new = {value.name: name for value, name in ends}
    for node in proto.graph.node:
        node.input[:] = [new.get(n, n) for n in node.input]
        node.output[:] = [new.get(n, n) for n in node.output]
    for value in (*proto.graph.input, *proto.graph.output,
                  *proto.graph.value_info):
        value.name = new.get(value.name, value.name)
    return bytes(proto.SerializeToString())
