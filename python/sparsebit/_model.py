"""Models: loading, saving, looking into them."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any, Mapping, Optional, Sequence, Union

from . import _core, _html
from ._base import (SEED, Array, Context, Path, Progress, Tensor, choose, count,
                    default_context, number, reporting, whole)

FORMATS = ("text", "dot", "mermaid")
LANGUAGE = ("gguf", "float", "gptq")


@dataclass(frozen=True)
class Value:
    """An input, an output, a weight or what a node computes."""

    name: str
    dtype: str
    shape: Optional[tuple[int, ...]]  #: -1 where not a number; None: unknown
    text: str  #: ``float[N,3,224,224]``
    is_input: bool
    is_output: bool
    is_constant: bool
    producer: Optional[int]  #: number of the node that computes it
    consumers: int


@dataclass(frozen=True)
class Node:
    """A node; attributes that are graphs are None."""

    name: str
    op: str
    domain: str
    module: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any]


@dataclass(frozen=True)
class ModelInfo:
    """What is in a model."""

    name: str
    producer: str
    doc: str
    ir_version: int
    opset: int
    nodes: int
    params: int
    weight_bytes: int
    file_bytes: int
    macs: float
    macs_assumed: bool
    ops: list[dict[str, Any]]
    modules: list[dict[str, Any]]
    quantize_nodes: int
    dequantize_nodes: int
    integer_nodes: int
    target: str
    quant_weights: list[dict[str, Any]]
    quant_activations: list[dict[str, Any]]

    def _repr_html_(self) -> str:
        plain = [(f.name, getattr(self, f.name)) for f in fields(self)
                 if not isinstance(getattr(self, f.name), list)]
        return _html.facts(self.name or "model", plain) + _html.table(
            ("operator", "nodes", "parameters", "multiply-accumulates"),
            [(o["name"], o["nodes"], o["params"], o["macs"]) for o in self.ops])


def make_value(d: Mapping[str, Any]) -> Value:
    shape = d["shape"]
    return Value(d["name"], d["dtype"], None if shape is None else tuple(shape),
                 d["text"], bool(d["is_input"]), bool(d["is_output"]),
                 bool(d["is_constant"]), d["producer"], d["consumers"])


class Model:
    """A network.  Made by :func:`load`, :func:`parse` and :func:`new`."""

    def __init__(self, handle: _core.Handle) -> None:
        self._handle = handle

    @property
    def context(self) -> Context:
        return self._handle.context  # type: ignore[return-value]

    @property
    def inputs(self) -> list[Value]:
        return [make_value(v) for v in _core.model_inputs(self._handle)]

    @property
    def outputs(self) -> list[Value]:
        return [make_value(v) for v in _core.model_outputs(self._handle)]

    @property
    def nodes(self) -> list[Node]:
        """All nodes in an order in which they can run."""
        return [Node(**n) for n in _core.model_nodes(self._handle)]

    @property
    def values(self) -> list[Value]:
        return [make_value(v) for v in _core.model_values(self._handle)]

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(**_core.model_info(self._handle))

    @property
    def metadata(self) -> dict[str, str]:
        """A copy; change it with :meth:`set_metadata`."""
        return _core.model_metadata(self._handle)

    def set_metadata(self, key: str, value: Optional[str]) -> None:
        _core.model_set_metadata(self._handle, key, value)

    def weight(self, name: str) -> Tensor:
        """A copy of a constant; KeyError if none has the name."""
        return _core.model_weight(self._handle, name)

    def set_weight(self, name: str, array: Array) -> None:
        """Other elements for a constant, of the same type and shape."""
        _core.model_set_weight(self._handle, name, array)

    def graph(self, format: str = "text") -> str:
        """The graph as ``text``, ``dot`` (Graphviz) or ``mermaid``."""
        return _core.model_print(self._handle, choose("format", format, FORMATS))

    def clone(self, context: Optional[Context] = None) -> "Model":
        """A copy that shares the weights, in another context if one is given."""
        return Model(_core.model_clone(context or self.context, self._handle))

    def simplify(self, passes: str = "simplify") -> dict[str, int]:
        """Runs graph passes in place; how often each changed something."""
        return {p["name"]: p["changes"]
                for p in _core.model_simplify(self._handle, passes)}

    def fix_shape(self, name: str, shape: Sequence[int]) -> None:
        _core.model_fix_shape(self._handle, name, shape)

    def fix_value(self, name: str, array: Array) -> None:
        """Makes an input a constant."""
        _core.model_fix_value(self._handle, name, array)

    def make_batch_dynamic(self) -> bool:
        """Lets a model with a fixed batch run with any; False if it cannot."""
        return _core.model_make_batch_dynamic(self._handle)

    def set_opset(self, opset: int) -> None:
        _core.model_set_opset(self._handle, whole("opset", opset))

    def save(self, path: Path, *, sparse: bool = False) -> None:
        """Writes an ONNX file, whole or not at all.  With ``sparse``, weights
        that are mostly zero are written as sparse initializers."""
        _core.model_save(self._handle, path, sparse)

    # ---- language models --------------------------------------------------

    def save_language(self, path: Path, *, format: str = "gguf",
                      tokenizer: Optional[Path] = None,
                      float_as: Optional[str] = None, round: bool = False,
                      shard_bytes: int = 0, gptq_version: int = 0) -> None:
        """Writes a language model: ``gguf``, for llama.cpp, or a Hugging Face
        folder, ``float`` or ``gptq``.  Codes of packed weights stay as they
        are; ``float_as`` says what matrices of floats become, and
        ``gptq_version`` is 1, 2 or, by what the weights need, 0."""
        _core.model_save_language(
            self._handle, path, format=choose("format", format, LANGUAGE),
            tokenizer=None if tokenizer is None else os.fspath(tokenizer),
            float_as=float_as, round=round,
            shard_bytes=count("shard_bytes", shard_bytes),
            gptq_version=whole("gptq_version", gptq_version))

    def add_lora(self, layers: str = "q_proj|v_proj", *, rank: int = 8,
                 alpha: float = 16.0, seed: int = 0) -> None:
        """Adds adapters beside layers with these names, to be trained."""
        _core.model_add_lora(self._handle, layers, whole("rank", rank),
                             number("alpha", alpha),
                             whole("seed", seed, most=SEED))

    def load_lora(self, folder: Path) -> None:
        """Adds the adapters of a folder that PEFT or :meth:`save_lora` wrote."""
        _core.model_load_lora(self._handle, folder)

    def save_lora(self, folder: Path) -> None:
        """Writes the adapters alone, as PEFT reads them."""
        _core.model_save_lora(self._handle, folder)

    def merge_lora(self) -> None:
        """Puts adapters into their layers, which become floats."""
        _core.model_merge_lora(self._handle)

    def to_bytes(self, *, sparse: bool = False) -> bytes:
        return _core.model_save_memory(self._handle, sparse)

    def __repr__(self) -> str:
        ins = ", ".join(f"{v.name}: {v.text}" for v in self.inputs)
        outs = ", ".join(f"{v.name}: {v.text}" for v in self.outputs)
        return f"<sparsebit.Model ({ins}) -> ({outs})>"

    def _repr_html_(self) -> str:
        return _html.table(
            ("", "name", "type"),
            [("input", v.name, v.text) for v in self.inputs]
            + [("output", v.name, v.text) for v in self.outputs],
            self.info.name or "model") + self.info._repr_html_()


#: What :func:`load` takes.
ModelSource = Union[Model, str, "os.PathLike[str]", bytes, bytearray, memoryview,
                    Any]


def load(model: ModelSource, example_input: Any = None, *,
         keep_inputs: bool = False, folder: Optional[Path] = None,
         context: Optional[Context] = None, progress: Progress = None) -> Model:
    """Reads a model.

    ``model`` is a path (ONNX, a Hugging Face folder, GGUF), the bytes of an
    ONNX file, an ``onnx.ModelProto``, a ``torch.nn.Module`` together with an
    ``example_input``, or a :class:`Model`, which is returned as it is.
    """
    if isinstance(model, Model):
        return model
    context = context or default_context()
    with reporting(context, progress):
        if isinstance(model, (str, os.PathLike)):
            return Model(_core.model_load(context, model,
                                          keep_inputs=keep_inputs))
        if isinstance(model, (bytes, bytearray, memoryview)):
            data: Any = model
        elif hasattr(model, "SerializeToString"):
            data = model.SerializeToString()
        elif hasattr(model, "state_dict") and hasattr(model, "forward"):
            from ._torch import export_module

            data = export_module(model, example_input)
        else:
            raise TypeError(
                "a model is a path, bytes, an onnx.ModelProto or a "
                f"torch.nn.Module, found {type(model).__name__}")
        return Model(_core.model_load_memory(
            context, data, os.fspath(folder) if folder else None))


def parse(text: str, context: Optional[Context] = None) -> Model:
    """A model from the text that :meth:`Model.graph` gives."""
    return Model(_core.model_parse(context or default_context(), text))


def new(name: str, *, channels: int = 0, height: int = 0, width: int = 0,
        classes: int = 0, seed: int = 0,
        context: Optional[Context] = None) -> Model:
    """An untrained network: ``resnet20``, ``mobilenetv2``, ..."""
    return Model(_core.model_new(
        context or default_context(), name, whole("channels", channels),
        whole("height", height), whole("width", width),
        whole("classes", classes), whole("seed", seed, most=SEED)))
