"""Language models: tokens and text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterable, Optional, Union

from . import _core
from ._base import Context, Path, default_context, several
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
        return _core.tokenizer_decode(self._handle, tuple(ids))


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
                                              length)

    def __call__(self, prompt: str, *, max_tokens: int = 128,
                 temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0,
                 seed: int = 0, stop: Union[str, Iterable[str]] = (),
                 ignore_end: bool = False,
                 text: Optional[Callable[[str], Any]] = None) -> Generation:
        """Writes what follows after a prompt.  ``text`` receives it as it is
        made; returning False ends it."""
        return Generation(**_core.generator_run(
            self._handle, prompt, max_tokens=max_tokens, temperature=temperature,
            top_k=top_k, top_p=top_p, seed=seed, stop=several(stop),
            ignore_end=ignore_end, text=text))


def generate(model: Union[Model, Path], prompt: str,
             tokenizer: Union[None, Tokenizer, Path] = None,
             **options: Any) -> Generation:
    """Text from a language model; for several prompts make a
    :class:`Generator` once."""
    return Generator(model, tokenizer)(prompt, **options)
