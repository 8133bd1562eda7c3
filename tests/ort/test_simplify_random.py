"""sparsebit simplify on random networks: ONNX Runtime must give the same for
the file before and after.

usage: test_simplify_random.py SPARSEBIT [COUNT [FIRST_SEED]]

The networks are made of what the passes look for (decomposed activations and
normalizations, shape arithmetic, chains of Reshape and Transpose, splits,
identities, equal nodes), with intermediate values used twice or given out at
random, so that rewrites which must not happen are provoked too.
Exit status 77 means that something needed is missing.
"""
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

BATCH = 3


class Net:
    """A network under construction; values are (name, shape) with the shape
    of a run with BATCH."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.nodes, self.inits, self.count = [], [], 0
        self.values = [("x", (BATCH, 4, 6))]

    def const(self, array, dtype=np.float32):
        self.count += 1
        name = f"c{self.count}"
        self.inits.append(numpy_helper.from_array(np.array(array, dtype), name))
        return name

    def scalar(self, number):
        return self.const(number if self.rng.random() < 0.5 else [number])

    def ints(self, *v):
        return self.const(v, np.int64)

    def op(self, op, *inputs, n_out=1, **attrs):
        self.count += 1
        outs = [f"v{self.count}_{i}" for i in range(n_out)]
        self.nodes.append(helper.make_node(op, inputs, outs, **attrs))
        return outs[0] if n_out == 1 else outs

    def swap(self, op, a, b):
        return self.op(op, *((a, b) if self.rng.random() < 0.5 else (b, a)))

    def add(self, name, shape):
        self.values.append((name, tuple(shape)))

    # What the menu holds: each takes a value and adds one or more.

    def unary(self, x, s):
        op = self.rng.choice(["Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Erf",
                              "Identity", "Softplus"])
        self.add(self.op(op, x), s)

    def nothing(self, x, s):
        kind = self.rng.randrange(7)
        if kind == 0:
            y = self.op("Dropout", x)
        elif kind == 1:
            y = self.op("Cast", x, to=1)
        elif kind == 2:
            y = self.swap("Add", x, self.scalar(0))
        elif kind == 3:
            y = self.op("Div", x, self.scalar(1))
        elif kind == 4:
            y = self.op("Pad", x, self.ints(*[0] * (2 * len(s))))
        elif kind == 5:
            y = self.op("Slice", x, self.ints(0), self.ints(2**62),
                        self.ints(len(s) - 1))
        else:
            y = self.op("Transpose", x, perm=list(range(len(s))))
        self.add(y, s)

    def binary(self, x, s):
        same = [v for v, t in self.values if t == s]
        op = self.rng.choice(["Add", "Sub", "Mul"])
        self.add(self.op("Tanh", self.op(op, x, self.rng.choice(same))), s)

    def transpose(self, x, s):
        perm = list(range(len(s)))
        self.rng.shuffle(perm)
        y = self.op("Transpose", x, perm=perm)
        self.add(y, [s[p] for p in perm])
        if self.rng.random() < 0.5:
            back = [perm.index(i) for i in range(len(perm))]
            self.add(self.op("Transpose", y, perm=back), s)

    def reshape(self, x, s):
        if s[0] != BATCH or len(s) < 2:
            return
        n = int(np.prod(s[1:]))
        kind = self.rng.randrange(4)
        if kind == 0:
            self.add(self.op("Flatten", x), (BATCH, n))
        elif kind == 1:
            self.add(self.op("Reshape", x, self.ints(0, -1)), (BATCH, n))
        elif kind == 2 and n % 24 == 0:
            self.add(self.op("Reshape", x, self.ints(-1, 4, n // 4)),
                     (BATCH, 4, n // 4))
        else:
            axis = self.rng.randrange(1, len(s) + 1)
            y = self.op("Unsqueeze", x, self.ints(axis))
            t = s[:axis] + (1,) + s[axis:]
            self.add(y, t)
            self.add(self.op("Squeeze", y, self.ints(axis)), s)

    def shape_arithmetic(self, x, s):
        if s[0] != BATCH:
            return
        shape = self.op("Shape", x)
        n = self.op("Gather", shape, self.const(0, np.int64))
        n = self.op("Unsqueeze", n, self.ints(0))
        t = self.op("Concat", n, self.ints(-1), axis=0)
        self.add(self.op("Reshape", x, t), (BATCH, int(np.prod(s[1:]))))

    def split(self, x, s):
        axis = self.rng.randrange(len(s))
        if s[axis] % 2 or s[axis] < 2 or s[axis] == BATCH:
            return
        half = s[axis] // 2
        a, b = self.op("Split", x, self.ints(half, half), axis=axis, n_out=2)
        t = s[:axis] + (half,) + s[axis + 1:]
        if self.rng.random() < 0.5:
            self.add(a, t)
        if self.rng.random() < 0.7:
            self.add(b, t)
        if self.rng.random() < 0.3:
            self.add(self.op("Concat", b, a, axis=axis), s)

    def unbind(self, x, s):
        axis = self.rng.randrange(len(s))
        if s[axis] > 6 or s[axis] == BATCH or len(s) < 2:
            return
        parts = self.op("Split", x, self.ints(*[1] * s[axis]), axis=axis,
                        n_out=s[axis])
        parts = [parts] if s[axis] == 1 else parts
        for p in parts:
            if self.rng.random() < 0.6:
                self.add(self.op("Squeeze", p, self.ints(axis)),
                         s[:axis] + s[axis + 1:])

    def activation(self, x, s):
        kind = self.rng.randrange(5)
        if kind == 0:
            y = self.swap("Mul", x, self.op("Sigmoid", x))
        elif kind == 1:
            y = self.swap("Mul", x, self.op("Tanh", self.op("Softplus", x)))
        elif kind == 2:
            c = self.op("Clip", self.swap("Add", x, self.scalar(3)),
                        self.const(0), self.const(6))
            if self.rng.random() < 0.5:
                y = self.op("Div", self.swap("Mul", x, c), self.scalar(6))
            else:
                y = self.swap("Mul", x, self.op("Div", c, self.scalar(6)))
        elif kind == 3:
            e = self.op("Erf", self.op("Div", x, self.scalar(2**0.5)))
            a = self.swap("Add", e, self.scalar(1))
            if self.rng.random() < 0.5:
                y = self.swap("Mul", self.swap("Mul", x, a), self.scalar(0.5))
            else:
                y = self.swap("Mul", self.swap("Mul", x, self.scalar(0.5)), a)
            if self.rng.random() < 0.2:
                self.add(e, s)  # an inner value that is used elsewhere
        else:
            c = self.op("Pow", x, self.scalar(3))
            u = self.swap("Add", x, self.swap("Mul", c, self.scalar(0.044715)))
            t = self.op("Tanh", self.swap("Mul", u, self.scalar(0.79788456)))
            a = self.swap("Add", t, self.scalar(1))
            y = self.swap("Mul", x, self.swap("Mul", a, self.scalar(0.5)))
        self.add(y, s)

    def norm(self, x, s):
        axis = len(s) - 1 if self.rng.random() < 0.8 else self.rng.randrange(
            len(s))
        axes = self.ints(axis if self.rng.random() < 0.5 else axis - len(s))
        d = x
        if self.rng.random() < 0.6:
            d = self.op("Sub", x, self.op("ReduceMean", x, axes))
        q = self.op("Mul", d, d) if self.rng.random() < 0.5 else self.op(
            "Pow", d, self.scalar(2))
        v = self.swap("Add", self.op("ReduceMean", q, axes), self.scalar(1e-2))
        r = self.op("Sqrt", v)
        if self.rng.random() < 0.5:
            n = self.op("Div", d, r)
        else:
            n = self.swap("Mul", d, self.op("Reciprocal", r))
        if s[-1] != BATCH and self.rng.random() < 0.7:
            g = [0.5 + i for i in range(s[-1])]
            n = self.swap("Mul", n, self.const(g))
            if self.rng.random() < 0.7:
                n = self.swap("Add", n, self.const(g))
        self.add(self.op("Tanh", n) if self.rng.random() < 0.5 else n, s)

    def softmax(self, x, s):
        axes = self.ints(self.rng.randrange(len(s)))
        e = self.op("Exp", self.op("Sub", x, self.op("ReduceMax", x, axes)))
        self.add(self.op("Div", e, self.op("ReduceSum", e, axes)), s)

    def model(self):
        menu = [self.unary, self.nothing, self.binary, self.transpose,
                self.reshape, self.shape_arithmetic, self.split, self.unbind,
                self.activation, self.activation, self.norm, self.softmax]
        while len(self.nodes) < 40:
            x, s = self.rng.choice(self.values[-6:])
            if len(s) > 0:
                self.rng.choice(menu)(x, s)
        outs = {self.values[-1][0]: self.values[-1][1]}
        for v, s in self.values[1:]:
            if self.rng.random() < 0.1:
                outs[v] = s
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, "random",
            [info("x", TensorProto.FLOAT, ["batch", 4, 6])],
            [info(v, TensorProto.FLOAT, [None] * len(s))
             for v, s in outs.items()], self.inits)
        return helper.make_model(
            graph, ir_version=10,
            opset_imports=[helper.make_opsetid("", 18)])


def run(path, x):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    sess = ort.InferenceSession(str(path), options,
                                providers=["CPUExecutionProvider"])
    names = [o.name for o in sess.get_outputs()]
    return names, sess.run(None, {"x": x})


def check(command, seed, folder):
    """Why this seed fails, or None."""
    before, after = folder / "before.onnx", folder / "after.onnx"
    onnx.save(Net(seed).model(), before)
    done = subprocess.run([command, "simplify", str(before), "-o", str(after)],
                          capture_output=True, text=True)
    if done.returncode != 0:
        return f"simplify: {done.stderr.strip()}"
    onnx.checker.check_model(str(after), full_check=True)
    x = np.random.default_rng(seed).standard_normal((BATCH, 4, 6)).astype("f4")
    names, want = run(before, x)
    got_names, got = run(after, x)
    if names != got_names:
        return f"outputs {got_names}, want {names}"
    for name, g, w in zip(names, got, want):
        if g.shape != w.shape:
            return f"{name}: shape {g.shape}, want {w.shape}"
        if w.size and not np.allclose(g, w, rtol=1e-3, atol=1e-4):
            return f"{name}: differs by {np.abs(g - w).max():g}"
    return None


def main():
    command = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            try:
                why = check(command, seed, pathlib.Path(folder))
            except Exception as error:  # a checker or runtime refusal
                why = str(error).splitlines()[0][:300]
            if why:
                print(f"FAILED seed {seed}: {why}")
                failed += 1
    print(f"{count - failed} of {count} random networks agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
