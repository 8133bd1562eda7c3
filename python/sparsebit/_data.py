"""Samples: data files, folders, and whatever Python can iterate over."""

from __future__ import annotations

import array
import os
from typing import Any, Callable, Iterator, Mapping, Optional, Union

from . import _core
from ._base import (SEED, ArgumentError, Array, Context, DataError, Path, Progress,
                    Tensor, _strings, count, default_context, whole)
from ._model import Model, Value

NO_SAMPLES = "data: there are no samples, or an iterator has given them before"
LABELS = ("label", "labels", "target", "targets")


class Batch:
    """Samples side by side; tensors are copies."""

    def __init__(self, count: int, inputs: list[Tensor],
                 input_names: Optional[list[str]], labels: Optional[list[int]],
                 names: Optional[list[str]]) -> None:
        self.count = count
        self.inputs = inputs
        self.input_names = input_names
        self.labels = labels
        self.names = names


class Data:
    """A data set that a YAML file describes (docs/data.md).

    Iterating gives a :class:`Batch` at a time and starts from the beginning
    each time.  With a ``model``, ``path`` may also be a folder of images, an
    image or an array file, which is read as the model's inputs want it.
    ``keys`` are lines of a data file that stand instead of what it says.
    """

    def __init__(self, path: Optional[Path] = None, *, text: Optional[str] = None,
                 samples: int = 0, skip: int = 0, batch: int = 0,
                 strict: bool = False, threads: int = -1, seed: int = 0,
                 keys: Optional[str] = None, model: Optional[Model] = None,
                 context: Optional[Context] = None) -> None:
        if (path is None) == (text is None):
            raise ArgumentError("a data set is a path, or the text of a data file")
        if model is not None:
            context = model.context
            if path is not None and not is_data_file(path):
                text = _core.data_describe(model._handle, path, keys)
        make = _core.data_open if text is None else _core.data_parse
        self._handle = make(
            context or default_context(), text, path or "data.yaml",
            samples=count("samples", samples), skip=count("skip", skip),
            batch=count("batch", batch), strict=strict,
            threads=whole("threads", threads, -1),
            seed=whole("seed", seed, most=SEED), keys=keys)

    def __len__(self) -> int:
        """How many samples there are, broken ones included."""
        return int(_core.data_info(self._handle)["samples"])

    @property
    def batch_size(self) -> int:
        return int(_core.data_info(self._handle)["batch"])

    @property
    def has_labels(self) -> bool:
        return bool(_core.data_info(self._handle)["has_labels"])

    @property
    def broken(self) -> list[str]:
        """Samples that could not be read so far."""
        return list(_core.data_info(self._handle)["broken"])

    @property
    def context(self) -> Context:
        return self._handle.context  # type: ignore[return-value]

    def __iter__(self) -> Iterator[Batch]:
        return self._batches(None)

    def _batches(self, epoch: Optional[int]) -> Iterator[Batch]:
        _begin(self._handle, epoch)
        while (batch := _core.data_next(self._handle)) is not None:
            yield Batch(**_core.batch_get(batch))


#: A path to a data file, a folder or an array file; a :class:`Data`; an array;
#: an iterable of arrays, tuples or dicts; a CalibrationDataReader.
DataSource = Union[str, "os.PathLike[str]", Data, Any]


class Samples:
    """Samples of any source as batches of the library, for one model."""

    def __init__(self, source: DataSource, model: Model, *, samples: int = 0,
                 batch: int = 0, fixed: int = 0, seed: int = 0) -> None:
        self.model = model
        self.inputs: list[Value] = model.inputs
        self.limit = samples = count("samples", samples)
        self.batch = fixed or count("batch", batch)
        self.fixed = fixed
        self.total = 0
        #: of the random changes that AUGMENT asks for; None: samples as they are
        self.epoch: Optional[int] = None
        self._handle: Optional[_core.Handle] = None
        self._source: Any = None
        if isinstance(source, Data):
            if source.context is not model.context:
                raise ArgumentError("data and model are of different contexts")
            self._handle = source._handle
            if fixed and source.batch_size != fixed:
                self._source = source
        elif isinstance(source, (str, os.PathLike)):
            self._handle = open_for(source, model, samples=samples,
                                    batch=self.batch, seed=seed)
        elif isinstance(source, (bytes, bytearray)) or not any(
                hasattr(source, way) for way in
                ("__iter__", "__getitem__", "get_next", "shape")):
            raise TypeError(f"data: found {type(source).__name__}, want a path, "
                            "an array, or an iterable of arrays")
        else:
            self._source = source
            self.total = _count(source)
        if self._handle is not None:
            _core.data_set_model(self._handle, model._handle)
            self.total = _core.data_info(self._handle)["samples"]

    @property
    def varies(self) -> bool:
        """Are there random changes, so that samples differ by epoch?"""
        return (self._handle is not None
                and bool(_core.data_info(self._handle)["varies"]))

    def __iter__(self) -> Iterator[_core.Handle]:
        if self._source is not None:
            return self._take()
        return self._read()

    def _read(self) -> Iterator[_core.Handle]:
        assert self._handle is not None
        done = 0
        _begin(self._handle, self.epoch)
        while not self.limit or done < self.limit:
            batch = _core.data_next(self._handle)
            if batch is None:
                break
            done += _core.batch_count(batch)
            yield batch

    def _take(self) -> Iterator[_core.Handle]:
        done = 0
        for item in _items(self._source, self.epoch):
            arrays, names, labels = self._split(item)
            for part, marks in self._parts(arrays, labels):
                if self.limit and done >= self.limit:
                    return
                made = self._make(part, names, marks, done)
                done += _core.batch_count(made)
                yield made

    def _split(self, item: Any) -> tuple[list[Any], Optional[list[str]], Any]:
        """Arrays, their names if they have some, labels."""
        if isinstance(item, Mapping):
            known = {v.name for v in self.inputs}
            names = [n for n in item if n in known]
            others = [n for n in item if n not in known]
            unknown = [n for n in others if n not in LABELS]
            if unknown:
                raise DataError(f"no input has the name '{unknown[0]}': there are "
                                + ", ".join(v.name for v in self.inputs))
            return ([item[n] for n in names], names,
                    item[others[0]] if others else None)
        if isinstance(item, (tuple, list)):
            n = len(self.inputs)
            if len(item) not in (n, n + 1):
                raise DataError(f"a batch of {len(item)} arrays, the model has "
                                f"{n} inputs (one more may be labels)")
            return list(item[:n]), None, item[n] if len(item) > n else None
        return [item], None, None

    def _parts(self, arrays: list[Any], labels: Any
               ) -> Iterator[tuple[list[Any], Any]]:
        """Pieces of the number of samples that a run must have."""
        count = _length(arrays[0]) if arrays else 0
        step = self.fixed
        if not step or count == step or not count:
            yield arrays, labels
            return
        if count % step:
            raise DataError(f"a batch of {count} samples, the model takes {step} "
                            "at a time")
        for i in range(0, count, step):
            yield ([(memoryview(a) if isinstance(a, Tensor) else a)[i:i + step]
                    for a in arrays],
                   None if labels is None else labels[i:i + step])

    def _make(self, arrays: list[Any], names: Optional[list[str]], labels: Any,
              first: int) -> _core.Handle:
        context = self.model.context
        by_name = {v.name: v for v in self.inputs}
        wanted = ([by_name[n] for n in names] if names is not None
                  else self.inputs)
        tensors = [_fit(context, a, v) for a, v in zip(arrays, wanted)]
        lengths = {t.shape[0] if t.ndim else -1 for t in tensors}
        whole = len(lengths) != 1 or -1 in lengths
        count = 1 if whole or not lengths else lengths.pop()
        return _core.batch_new(context, tensors, names,
                               _labels(labels), count, first, whole)


def _begin(handle: _core.Handle, epoch: Optional[int]) -> None:
    if epoch is None:
        _core.data_rewind(handle)
    else:
        _core.data_start_epoch(handle, epoch)


def _fit(context: Context, item: Any, value: Value) -> Tensor:
    """An array as a tensor of the type that an input has."""
    text = _strings(item)
    if text is not None:
        return _core.tensor_strings(context, *text)
    if getattr(item, "is_cuda", False):
        item = item.cpu()
    made = _core.tensor(context, item)
    if value.dtype in ("undefined", made.onnx_dtype):
        return made
    return _core.tensor_cast(context, made, value.dtype)


def _labels(labels: Any) -> Optional[array.array[int]]:
    if labels is None:
        return None
    if hasattr(labels, "tolist"):
        labels = labels.tolist()
    if isinstance(labels, int):
        labels = [labels]
    try:
        whole = [int(v) for v in labels]
        if all(v == w for v, w in zip(labels, whole)):
            return array.array("q", whole)
    except (TypeError, ValueError, OverflowError):
        pass
    raise DataError("labels: want one integer for each sample")


def _length(item: Any) -> int:
    shape = getattr(item, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 0
    return len(item) if hasattr(item, "__len__") else 0


def _count(source: Any) -> int:
    """Samples, if a length says so; else 0."""
    if hasattr(source, "batch_size") and hasattr(source, "dataset"):
        return len(source.dataset) if hasattr(source.dataset, "__len__") else 0
    if hasattr(source, "shape"):
        return _length(source)
    return 0


def _items(source: Any, epoch: Optional[int] = None) -> Iterator[Any]:
    """What is iterated over: an array alone is one batch."""
    if isinstance(source, Data):  # to be cut: memoryviews can be
        for batch in source._batches(epoch):
            views = [memoryview(t) for t in batch.inputs]
            yield (views if batch.input_names is None
                   else dict(zip(batch.input_names, views)))
    elif hasattr(source, "get_next") and not hasattr(source, "__next__"):
        if hasattr(source, "rewind"):
            source.rewind()
        while (item := source.get_next()) is not None:
            yield item
    elif hasattr(source, "shape") and hasattr(source, "dtype"):
        yield source
    elif isinstance(source, Mapping):
        yield source
    else:
        yield from source


def is_data_file(path: Path) -> bool:
    return os.fspath(path).endswith((".yaml", ".yml"))


def repeatable(source: DataSource, samples: int) -> DataSource:
    """What can be gone through more than once: what comes from an iterator is
    kept."""
    if not hasattr(source, "__next__") and (
            not hasattr(source, "get_next") or hasattr(source, "rewind")):
        return source
    kept: list[Any] = []
    done = 0
    for item in _items(source):
        kept.append(item)
        first = item
        if isinstance(item, Mapping):
            first = next(iter(item.values()), ())
        elif isinstance(item, (list, tuple)) and item:
            first = item[0]
        done += max(_length(first), 1)
        if samples and done >= samples:
            break
    return kept


def open_for(path: Path, model: Model, *, samples: int = 0, skip: int = 0,
             batch: int = 0, seed: int = 0) -> _core.Handle:
    """A data file; or a folder or an array file, described by the model."""
    name = os.fspath(path)
    options = dict(samples=samples, skip=skip, batch=batch, seed=seed)
    if is_data_file(name):
        return _core.data_open(model.context, None, name, **options)
    text = _core.data_describe(model._handle, name, None)
    return _core.data_parse(model.context, text, name, **options)


def feed(source: DataSource, model: Model, taker: _core.Handle, *,
         report: Callable[[str, int, int], Any], stage: str, samples: int = 0,
         batch: int = 0, fixed: int = 0, augment: int = 0) -> int:
    """All samples to something that takes them, then ``augment`` other versions
    of each; how many there were."""
    batches = Samples(source, model, samples=samples, batch=batch, fixed=fixed)
    if augment and not batches.varies:
        raise ArgumentError("augment needs a data file of images with AUGMENT")
    total = min(batches.total, samples) if samples else batches.total
    way = _core.feed_create(model._handle)
    done = 0
    for epoch in (None, *range(augment)):
        batches.epoch = epoch
        for made in batches:
            _core.feed_run(way, made, taker)
            done += _core.batch_count(made)
            report(stage, done, total * (1 + augment))
    if not done:
        raise DataError(NO_SAMPLES)
    return done
