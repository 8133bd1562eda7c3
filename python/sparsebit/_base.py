"""Contexts, logging, progress, arrays: what all parts share."""

from __future__ import annotations

import contextlib
import logging
import operator
import os
import sys
import threading
import time
from typing import Any, Callable, Iterator, Optional, Union

from . import _core
from ._core import (
    ArgumentError,
    BackendError,
    ConfigError,
    DataError,
    Error,
    FileError,
    Interrupted,
    ModelError,
    NoMemoryError,
    Tensor,
    UnsupportedError,
)

__all__ = [
    "ArgumentError", "BackendError", "ConfigError", "Context", "DataError",
    "Error", "FileError", "Interrupted", "ModelError", "NoMemoryError",
    "Tensor", "UnsupportedError", "default_context", "tensor",
]

#: Anything with the buffer protocol or DLPack, or what NumPy makes an array of.
Array = Any
#: ``True`` for a bar (tqdm), or a function of (stage, done, total).
Progress = Union[None, bool, Callable[[str, int, int], Any]]
Path = Union[str, "os.PathLike[str]"]

_logger = logging.getLogger("sparsebit")


def _log(is_warning: int, line: str) -> None:
    _logger.log(logging.WARNING if is_warning else logging.INFO, "%s", line)


class Context(_core.Context):
    """Threads, log, progress and memory of objects that belong together.

    Calls on objects of one context wait for each other.  To compute on several
    threads at once give each its own context and a :meth:`Model.clone` there,
    which shares the weights.  Warnings go to the logger ``sparsebit``.
    """

    def __init__(self, threads: int = 0, max_memory: int = 0) -> None:
        super().__init__()
        self.log = _log
        if threads:
            self.threads = whole("threads", threads, most=2**16)
        if max_memory:
            self.set_max_memory(count("max_memory", max_memory))

    def __new__(cls, *args: Any, **keywords: Any) -> "Context":
        return super().__new__(cls)

    def __repr__(self) -> str:
        return f"<sparsebit.Context threads={self.threads} memory={self.memory}>"


_default: Optional[Context] = None
_default_lock = threading.Lock()


def default_context() -> Context:
    """The context of everything that is made without naming one."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = Context()
    return _default


def _after_fork() -> None:
    """A child must not wait for threads that it does not have."""
    global _default, _default_lock
    _default_lock = threading.Lock()
    if _default is not None and _default.is_busy:
        _default = None


os.register_at_fork(after_in_child=_after_fork)


def tensor(array: Array, context: Optional[Context] = None) -> Tensor:
    """A :class:`Tensor` that shares the memory of an array.

    Arrays that are read-only or not contiguous are copied; lists of strings
    become a tensor of strings.
    """
    context = context or default_context()
    text = _strings(array)
    if text is not None:
        return _core.tensor_strings(context, *text)
    return _core.tensor(context, array)


def _strings(array: Any) -> Optional[tuple[tuple[int, ...], list[str]]]:
    """Shape and elements of strings; None if there are none."""
    kind = getattr(getattr(array, "dtype", None), "kind", None)
    if kind in ("U", "O", "S", "T"):
        shape = tuple(array.shape)
        flat = array.reshape(-1).tolist()
    elif isinstance(array, (list, tuple)):
        shape, flat = _flatten(array)
    else:
        return None
    if not flat or not all(isinstance(item, (str, bytes)) for item in flat):
        return None
    return shape, [item.decode() if isinstance(item, bytes) else item
                   for item in flat]


def _flatten(items: Any) -> tuple[tuple[int, ...], list[Any]]:
    if not isinstance(items, (list, tuple)):
        return (), [items]
    parts = [_flatten(item) for item in items]
    shape = parts[0][0] if parts else ()
    return (len(parts), *shape), [leaf for part in parts for leaf in part[1]]


class _Bar:
    """Progress as a bar of tqdm; stages that are over at once have none."""

    LEAST = 0.2  # seconds

    def __init__(self) -> None:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]

        self._make = tqdm
        self._bar: Any = None
        self._stage = ""
        self._next = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if stage != self._stage:
            self.close()
            self._stage = stage
            self._next = now + self.LEAST
        if now < self._next:
            return
        self._next = now + self.LEAST
        if self._bar is None:
            self._bar = self._make(desc=stage, leave=False)
        self._bar.total = total or None
        self._bar.n = done
        self._bar.refresh()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _Lines:
    """Progress as lines of the log, where there is no tqdm."""

    def __init__(self) -> None:
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            self._stage = stage
            _logger.info("%s", stage)

    def close(self) -> None:
        pass


@contextlib.contextmanager
def reporting(context: _core.Context, progress: Progress
              ) -> Iterator[Callable[[str, int, int], Any]]:
    """Sends the progress of all calls in the block to ``progress``."""
    if not progress:
        yield lambda stage, done, total: None
        return
    call: Any = progress
    if progress is True:
        try:
            call = _Bar()
        except ImportError:
            call = _Lines()
    before = context.progress
    context.progress = call
    try:
        yield call
    finally:
        context.progress = before
        if progress is True:
            call.close()


def choose(what: str, value: str, names: tuple[str, ...]) -> int:
    """The number of a name."""
    if value not in names:
        raise ArgumentError(f"{what}: found {value!r}, allowed are "
                            + ", ".join(names))
    return names.index(value)


#: What an ``int`` and an ``int64_t`` of the library hold; seeds have all bits.
INT, LONG, SEED = 2**31 - 1, 2**63 - 1, 2**64 - 1


def whole(what: str, value: Any, least: int = 0,
          most: Optional[int] = INT) -> int:
    """A whole number in a range."""
    try:
        n = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: found {value!r}, want a whole number") from None
    if n >= least and (most is None or n <= most):
        return n
    raise ArgumentError(f"{what}: found {n}, want {least} " + (
        "or more" if n < least else f"to {most}"))


def count(what: str, value: Any) -> int:
    """A whole number that is not negative; what is more than any is all."""
    return min(whole(what, value, most=None), sys.maxsize)


def number(what: str, value: Any) -> float:
    if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
        raise TypeError(f"{what}: found {value!r}, want a number")
    return float(value)


def several(what: str, value: Any) -> tuple[Any, ...]:
    """Strings or paths of an iterable; one alone stands for itself."""
    items = ((value,) if isinstance(value, (str, bytes, os.PathLike))
             or not hasattr(value, "__iter__") else tuple(value))
    for item in items:
        if not isinstance(item, (str, bytes, os.PathLike)):
            raise TypeError(f"{what}: found {item!r}, want text")
    return tuple(os.fspath(item) for item in items)


def callable_or_error(what: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(f"{what}: found {value!r}, want a function")


def text_path(path: Path) -> str:
    return os.fspath(path)
