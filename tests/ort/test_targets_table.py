#!/usr/bin/env python3
"""Which activation types and zero points ONNX Runtime fuses: the small networks
of docs/targets.md, one per line of its table, built from our text form; lint must
say the same as the installed ONNX Runtime, line by line.

usage: test_targets_table.py COMMAND
"""
import ctypes
import os
import sys
import tempfile

from qdq_common import compare_fates, fusion, lint, np

TYPES = {"uint8": np.uint8, "int8": np.int8}
SHORT = {"float32": "f32", "int8": "i8", "uint8": "u8", "int32": "i32"}


class Builder:
    """Models from text, by the library beside the command."""

    def __init__(self, command):
        path = os.path.join(os.path.dirname(os.path.abspath(command)),
                            "libsparsebit.so")
        try:
            self.lib = ctypes.CDLL(path)
        except OSError as error:  # not there, or built with a sanitizer
            print(f"skipped: {error}")
            sys.exit(77)
        self.lib.sb_ctx_error.restype = ctypes.c_char_p
        self.ctx = ctypes.c_void_p()
        assert self.lib.sb_ctx_create(None, ctypes.byref(self.ctx)) == 0

    def check(self, status):
        if status:
            raise RuntimeError(self.lib.sb_ctx_error(self.ctx).decode())

    def save(self, text, path):
        model = ctypes.c_void_p()
        self.check(self.lib.sb_model_parse(self.ctx, text.encode(),
                                           ctypes.byref(model)))
        try:
            self.check(self.lib.sb_model_save(model, path.encode()))
        finally:
            self.lib.sb_model_free(model)


class Net:
    def __init__(self, kind, zero):
        self.rng = np.random.default_rng(3)
        self.lines = []
        self.kind, self.zero, self.n = TYPES[kind], zero, 0

    def const(self, array):
        self.n += 1
        dims = ",".join(str(d) for d in np.shape(array))
        numbers = [repr(v) for v in np.ravel(array).tolist()]
        text = "[" + ", ".join(numbers) + "]" if dims else numbers[0]
        kind = SHORT[str(np.asarray(array).dtype)]
        self.lines.append(f"c{self.n}: {kind}[{dims}] = {text}")
        return f"c{self.n}"

    def add(self, op, *inputs, attrs=""):
        self.n += 1
        tail = f" {{{attrs}}}" if attrs else ""
        self.lines.append(f"v{self.n} = {op}({', '.join(inputs)}){tail}")
        return f"v{self.n}"

    def q(self, x):
        self.params = (self.const(np.float32(0.05)),
                       self.const(self.kind(self.zero)))
        return self.add("QuantizeLinear", x, *self.params)

    def dq(self, ints):
        return self.add("DequantizeLinear", ints, *self.params)

    def conv(self, x, float_bias=False):
        w = self.const(self.rng.integers(-99, 99, (4, 4, 3, 3))
                       .astype(np.int8))
        scale = self.rng.uniform(.01, .02, 4).astype(np.float32)
        w = self.add("DequantizeLinear", w, self.const(scale),
                     self.const(np.zeros(4, np.int8)), attrs="axis=0")
        if float_bias:
            b = self.const(self.rng.normal(size=4).astype(np.float32))
        else:
            b = self.add("DequantizeLinear",
                         self.const(np.arange(4, dtype=np.int32)),
                         self.const(np.float32(.05) * scale),
                         self.const(np.zeros(4, np.int32)), attrs="axis=0")
        return self.add("Conv", x, w, b, attrs="pads=[1,1,1,1]")

    def text(self, y):
        body = "\n  ".join(self.lines)
        return (f"graph g(x: f32[1,4,8,8]) -> ({y}: f32[1,4,8,8]) {{\n  "
                f"{body}\n}}\n")


def network(kind, zero, relu, residual=False, float_bias=False):
    n = Net(kind, zero)
    ints = n.q("x")
    for i in range(3 if residual else 2):
        y = n.conv(n.dq(ints), float_bias)
        if residual and i == 2:
            y = n.add("Add", n.dq(n.q(y)), n.dq(saved))
        y = n.add("Relu", y) if relu else y
        ints = n.q(y)
        if i == 0:
            saved = ints
    return n.text(n.dq(ints))


# What, arguments, and how many convolutions fuse (of 2, or of 3 if residual).
TABLE = [
    ("uint8, zero point 0, Relu", ("uint8", 0, True), 2),
    ("uint8, zero point 128, Relu", ("uint8", 128, True), 0),
    ("uint8, zero point 128", ("uint8", 128, False), 2),
    ("int8, zero point 0, Relu", ("int8", 0, True), 0),
    ("int8, zero point -128, Relu", ("int8", -128, True), 2),
    ("int8, zero point 0", ("int8", 0, False), 2),
    ("int8, zero point 0, residual", ("int8", 0, False, True), 1),
    ("int8, zero point -128, Relu, residual", ("int8", -128, True, True), 1),
    ("uint8, zero point 0, Relu, residual", ("uint8", 0, True, True), 3),
    ("uint8, zero point 0, Relu, float bias",
     ("uint8", 0, True, False, True), 2),
]


def main():
    command = sys.argv[1]
    builder = Builder(command)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/m.onnx"
        for what, args, want in TABLE:
            builder.save(network(*args), path)
            model, optimized, _, version = fusion.optimize(path)
            rows = fusion.fates(model, optimized)
            convs = [r for r in rows if r["op"] == "Conv"]
            got = sum(r["fate"] == "integer" for r in convs)
            wrong, _ = compare_fates(lint(command, path), path)
            if got != want:
                wrong.append(f"{got} convolutions are fused, the table says "
                             f"{want}")
            failed += bool(wrong)
            print(f"{'WRONG' if wrong else 'ok':6}{what}: {got} of "
                  f"{len(convs)} convolutions")
            for line in wrong:
                print("      " + line)
    print(f"ONNX Runtime {version}: {len(TABLE)} lines, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
