"""Samples of an iterable as array files, for training, which shuffles them and
goes through them again and again."""

from __future__ import annotations

import json
import os
from typing import Any, BinaryIO, Optional

from ._base import DataError, Tensor
from ._data import DataSource, Samples, _fit, _items, _labels
from ._model import Model

_KINDS = {"bool": "|b1", "int8": "|i1", "uint8": "|u1", "int16": "<i2",
          "uint16": "<u2", "int32": "<i4", "uint32": "<u4", "int64": "<i8",
          "uint64": "<u8", "float16": "<f2", "float32": "<f4",
          "float64": "<f8"}
_HEAD = 128  # bytes of a header, with room for any count


class _Array:
    """A .npy file that grows along its first axis."""

    def __init__(self, path: str, name: str) -> None:
        self.name = name
        self.count = 0
        self.kind = ""
        self.rest: tuple[int, ...] = ()
        self.file: BinaryIO = open(path, "wb")
        self.file.write(bytes(_HEAD))

    def add(self, t: Tensor) -> None:
        kind = _KINDS.get(t.dtype)
        if kind is None or not t.ndim:
            raise DataError(f"'{self.name}': found {t.dtype} of {t.ndim} "
                            "dimensions, want numbers with an axis of samples")
        if self.count and (kind, t.shape[1:]) != (self.kind, self.rest):
            raise DataError(f"'{self.name}': a sample of shape "
                            f"{list(t.shape[1:])}, the first has "
                            f"{list(self.rest)}")
        self.kind, self.rest = kind, t.shape[1:]
        self.file.write(memoryview(t).cast("B"))
        self.count += t.shape[0]

    def close(self) -> None:
        head = (f"{{'descr': '{self.kind}', 'fortran_order': False, 'shape': "
                f"{(self.count, *self.rest)}, }}").encode()
        room = _HEAD - 10
        self.file.seek(0)
        self.file.write(b"\x93NUMPY\x01\x00" + room.to_bytes(2, "little")
                        + head.ljust(room - 1) + b"\n")
        self.file.close()


def spool(source: DataSource, model: Model, folder: str, batch: int,
          limit: int) -> str:
    """Writes all samples; the text of a data file that reads them."""
    samples = Samples(source, model)
    files = [_Array(os.path.join(folder, f"{i}.npy"), v.name)
             for i, v in enumerate(samples.inputs)]
    labels: Optional[_Array] = None
    try:
        for item in _items(source):
            arrays, names, marks = samples._split(item)
            if len(arrays) != len(files):
                raise DataError(f"a batch of {len(arrays)} arrays, the model has "
                                f"{len(files)} inputs")
            given = dict(zip(names, arrays)) if names else {}
            for file, value, a in zip(files, samples.inputs, arrays):
                file.add(_fit(model.context, given.get(value.name, a), value))
            batch = batch or files[0].count
            if marks is not None:
                labels = labels or _Array(os.path.join(folder, "labels.npy"),
                                          "labels")
                labels.add(_label_tensor(model, marks, arrays[0]))
            if limit and files[0].count >= limit:
                break
    finally:
        for file in [*files, *([labels] if labels else [])]:
            file.close()
    counts = {f.name: f.count for f in files}
    if labels:
        counts["labels"] = labels.count
    if len(set(counts.values())) != 1 or not files[0].count:
        raise DataError("samples: " + ", ".join(
            f"{n} of '{name}'" for name, n in counts.items())
            + ", want as many of each, and one at least")
    keys: dict[str, Any] = {
        "SOURCE": "npy", "BATCH": batch,
        "INPUTS": {f.name: f"{i}.npy" for i, f in enumerate(files)}}
    if labels:
        keys["LABELS"] = "labels.npy"
    return json.dumps(keys)


def _label_tensor(model: Model, marks: Any, beside: Any) -> Tensor:
    from . import _core

    # One integer for each sample, or an array with samples in its first axis.
    made = None if isinstance(marks, (int, list, tuple)) else _core.tensor(
        model.context, marks)
    if made is not None and made.ndim > 0 and made.shape[0] == len(beside) and (
            made.ndim > 1 or made.dtype.startswith("float")):
        return made
    return _core.tensor(model.context, _labels(marks))
