"""Language models: tokens and text."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Optional, Union

from . import _core
from ._base import (LONG, SEED, ArgumentError, Context, Path, callable_or_error,
                    count, default_context, number, several, whole)
from ._model import Model, load


@dataclass(frozen=True)
class Generation:
    """What was written, and what it took."""

    text: str
    prompt_tokens: int
    tokens: int
    prompt_seconds: float
    seconds: float
    end: str  #: why it ended

    def __str__(self) -> str:
        return self.text


class Tokenizer:
    """Text to token IDs and back: a Hugging Face folder, tokenizer.json, GGUF,
    SentencePiece or llama2.c file."""

    def __init__(self, path: Path, context: Optional[Context] = None) -> None:
        self._handle = _core.tokenizer_open(context or default_context(), path)

    def __len__(self) -> int:
        return _core.tokenizer_size(self._handle)

    def encode(self, text: str, special: bool = True) -> list[int]:
        return _core.tokenizer_encode(self._handle, text, special)

    def decode(self, ids: Iterable[int]) -> str:
        return _core.tokenizer_decode(self._handle, tuple(
            whole("ids", i, most=LONG) for i in ids))


class Generator:
    """A language model that writes text."""

    def __init__(self, model: Union[Model, Path],
                 tokenizer: Union[None, Tokenizer, Path] = None, *,
                 length: int = 0, context: Optional[Context] = None) -> None:
        loaded = load(model, context=context)
        if tokenizer is None:
            if isinstance(model, Model):
                raise TypeError("give the tokenizer of the model as well")
            tokenizer = model
        if not isinstance(tokenizer, Tokenizer):
            tokenizer = Tokenizer(tokenizer, loaded.context)
        self.tokenizer = tokenizer
        self._handle = _core.generator_create(loaded._handle, tokenizer._handle,
                                              count("length", length))

    def __call__(self, prompt: str, *, max_tokens: int = 128,
                 temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0,
                 seed: int = 0, stop: Union[str, Iterable[str]] = (),
                 ignore_end: bool = False,
                 text: Optional[Callable[[str], Any]] = None) -> Generation:
        """Writes what follows after a prompt.  ``text`` receives it as it is
        made; returning False ends it."""
        if text is not None:
            callable_or_error("text", text)
        return Generation(**_core.generator_run(
            self._handle, prompt, max_tokens=count("max_tokens", max_tokens),
            temperature=number("temperature", temperature),
            top_k=count("top_k", top_k), top_p=number("top_p", top_p),
            seed=whole("seed", seed, most=SEED),
            stop=several("stop", stop),
            ignore_end=ignore_end, text=text))


def generate(model: Union[Model, Path], prompt: str,
             tokenizer: Union[None, Tokenizer, Path] = None, *,
             length: int = 0, max_tokens: int = 128, temperature: float = 0.0,
             top_k: int = 0, top_p: float = 1.0, seed: int = 0,
             stop: Union[str, Iterable[str]] = (), ignore_end: bool = False,
             text: Optional[Callable[[str], Any]] = None,
             context: Optional[Context] = None) -> Generation:
    """Text from a language model; for several prompts make a
    :class:`Generator` once.  ``length`` is of prompt and result together."""
    generator = Generator(model, tokenizer, length=length, context=context)
    return generator(prompt, max_tokens=max_tokens, temperature=temperature,
                     top_k=top_k, top_p=top_p, seed=seed, stop=stop,
                     ignore_end=ignore_end, text=text)


CONVERSIONS = ("gguf", "float", "gptq", "onnx")


def convert(model: Union[Model, Path], path: Path, *,
            format: Optional[str] = None, tokenizer: Optional[Path] = None,
            float_as: Optional[str] = None, round: bool = False,
            lora: Optional[Path] = None, shard_bytes: int = 0,
            gptq_version: int = 0,
            context: Optional[Context] = None) -> str:
    """Writes a language model as another kind of file: ``gguf``, ``gptq`` or
    ``float`` (folders) or ``onnx``; without ``format`` by the name, and of a
    folder by whether weights are packed.  ``lora`` is a PEFT folder to merge.
    Returns the format."""
    made = load(model, context=context)
    if lora is not None:
        made = made.clone()
        made.load_lora(lora)
        made.merge_lora()
    name = os.fspath(path)
    if format is None:
        format = ("gguf" if name.endswith(".gguf") else
                  "onnx" if name.endswith(".onnx") else
                  "gptq" if made.info.quant_weights else "float")
    elif format not in CONVERSIONS:
        raise ArgumentError(f"format: found {format!r}, allowed are "
                            + ", ".join(CONVERSIONS))
    if format == "onnx":
        made.save(name)
    else:
        if tokenizer is None and not isinstance(model, Model):
            tokenizer = model
        made.save_language(name, format=format, tokenizer=tokenizer,
                           float_as=float_as, round=round,
                           shard_bytes=shard_bytes, gptq_version=gptq_version)
    return format
