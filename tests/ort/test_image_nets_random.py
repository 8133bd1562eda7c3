"""Random image networks through the passes that move work between nodes:
ONNX Runtime must give the same for the file before and after.

usage: test_image_nets_random.py SPARSEBIT [COUNT [FIRST_SEED]]

The networks are made of Pad, Conv, ConvTranspose, pools, BatchNormalization on
either side of layers, means over all positions and Gemm, with attributes that
allow the rewrites and such that forbid them, and with values given out at
random.  Each is also tried in float16: `simplify --float32` must give what the
float32 network with the same rounded weights gives, and widening alone must
leave inputs and outputs as they were.
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

SHAPE = (2, 4, 13, 12)


class Net:
    """A chain of layers with branches; values are (name, shape)."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.data = np.random.default_rng(seed)
        self.nodes, self.inits, self.count = [], {}, 0
        self.values = [("x", SHAPE)]

    def const(self, array, dtype=np.float32):
        self.count += 1
        self.inits[f"c{self.count}"] = np.array(array, dtype)
        return f"c{self.count}"

    def noise(self, *shape):
        # Numbers of float16, so that both types compute with the same.
        return self.const(self.data.normal(size=shape).astype(np.float16))

    def op(self, op, *inputs, **attrs):
        self.count += 1
        self.nodes.append(helper.make_node(op, inputs, [f"v{self.count}"],
                                           **attrs))
        return f"v{self.count}"

    def add(self, name, shape):
        if min(shape) > 0:
            self.values.append((name, tuple(shape)))

    def frame(self, most):
        return [self.rng.choice([0, 0, 1, most]) for _ in range(4)]

    def pad(self, x, s, number=0.0):
        p = self.frame(2)
        if self.rng.random() < 0.15:
            p = [1, 1, 0, 1]
            x = self.op("Pad", x, self.const([1, 1], np.int64), "",
                        self.const([1], np.int64))  # channels: not to be folded
            s = (s[0], s[1] + 2, *s[2:])
        if self.rng.random() < 0.5:
            y = self.op("Pad", x, self.const([0, 0, *p[:2], 0, 0, *p[2:]],
                                             np.int64),
                        *([self.const(number)] if number or
                          self.rng.random() < 0.5 else []))
        else:
            y = self.op("Pad", x, self.const([p[1], p[0], p[3], p[2]], np.int64),
                        self.const(number), self.const([-1, 2], np.int64))
        return y, (s[0], s[1], s[2] + p[0] + p[2], s[3] + p[1] + p[3])

    def maybe_pad(self, x, s):
        kind = self.rng.random()
        if kind < 0.15:
            x = self.op("Relu", x)
        if kind < 0.6:
            return self.pad(x, s, self.rng.choice([0.0, 0.0, 0.0, 1.0]))
        if kind < 0.7:
            return self.pad(x, s, -np.inf)
        return x, s

    def size(self, s, k, stride, pads, dilation=1):
        return [(s[2 + i] + pads[i] + pads[2 + i] - (k - 1) * dilation - 1) //
                stride + 1 for i in range(2)]

    def conv(self, x, s):
        x, s = self.pad(x, s) if self.rng.random() < 0.6 else (x, s)
        if self.rng.random() < 0.3:
            x = self.bn(x, s[1])
        k, stride = self.rng.choice([1, 3, 3, 5]), self.rng.choice([1, 2])
        dilation = self.rng.choice([1, 1, 2])
        out = self.rng.choice([4, 6])
        group = 2 if s[1] % 2 == 0 and self.rng.random() < 0.3 else 1
        pads = self.frame(2) if self.rng.random() < 0.4 else [0] * 4
        attrs = {"pads": pads} if any(pads) else {}
        if not attrs and self.rng.random() < 0.3:
            attrs = {"auto_pad": "VALID"}
        if min(self.size(s, k, stride, pads, dilation)) < 1:
            return
        bias = [self.noise(out)] if self.rng.random() < 0.5 else []
        y = self.op("Conv", x, self.noise(out, s[1] // group, k, k), *bias,
                    strides=[stride] * 2, dilations=[dilation] * 2,
                    group=group, **attrs)
        self.add(self.maybe_bn(y, out),
                 (s[0], out, *self.size(s, k, stride, pads, dilation)))

    def transposed(self, x, s):
        group = 2 if s[1] % 2 == 0 and self.rng.random() < 0.6 else 1
        bias = [self.noise(3 * group)] if self.rng.random() < 0.5 else []
        y = self.op("ConvTranspose", x, self.noise(s[1], 3, 2, 2), *bias,
                    group=group, strides=[2, 2])
        self.add(self.maybe_bn(y, 3 * group),
                 (s[0], 3 * group, 2 * s[2], 2 * s[3]))

    def bn(self, x, n):
        return self.op("BatchNormalization", x, self.noise(n), self.noise(n),
                       self.noise(n), self.const(self.data.uniform(
                           0.5, 2, n).astype(np.float16)))

    def maybe_bn(self, x, n):
        return self.bn(x, n) if self.rng.random() < 0.5 else x

    def preactivated(self, x, s):
        self.add(self.op("Relu", self.bn(x, s[1])), s)

    def pool(self, x, s):
        x, s = self.maybe_pad(x, s)
        kind = self.rng.choice(["MaxPool", "AveragePool"])
        k, stride = self.rng.choice([2, 3]), self.rng.choice([1, 2])
        pads = self.frame(1) if self.rng.random() < 0.3 else [0] * 4
        attrs = {"pads": pads} if any(pads) else {}
        if kind == "AveragePool" and self.rng.random() < 0.5:
            attrs["count_include_pad"] = 1
        if min(self.size(s, k, stride, pads)) < 1:
            return
        y = self.op(kind, x, kernel_shape=[k] * 2, strides=[stride] * 2,
                    **attrs)
        self.add(y, (s[0], s[1], *self.size(s, k, stride, pads)))

    def mean(self, x, s):
        axes = self.rng.choice([[2, 3], [3, 2], [-1, -2], [-2, 3], [1, 2], [3]])
        keep = self.rng.choice([0, 1])
        m = self.op("ReduceMean", x, self.const(axes, np.int64), keepdims=keep)
        if keep == 0 and sorted(a % 4 for a in axes) == [2, 3]:
            y = self.op("Gemm", m, self.noise(s[1], 3))
            self.last = self.op("Tanh", self.bn(y, 3))
        elif keep == 1:
            self.add(self.op("Sub" if self.rng.random() < 0.3 else "Mul", x, m),
                     s)

    def activation(self, x, s):
        self.add(self.op(self.rng.choice(["Relu", "Sigmoid", "Tanh"]), x), s)

    def model(self, dtype):
        self.last = None
        menu = [self.conv, self.conv, self.conv, self.pool, self.pool,
                self.transposed, self.preactivated, self.mean, self.activation]
        while len(self.nodes) < 16:
            x, s = self.rng.choice(self.values[-3:])
            self.rng.choice(menu)(x, s)
        outs = {self.values[-1][0]: 4}
        if self.last:
            outs[self.last] = 2
        for v, _ in self.values[1:]:
            if self.rng.random() < 0.1:
                outs[v] = 4
        info = helper.make_tensor_value_info
        inits = [numpy_helper.from_array(
            a if a.dtype == np.int64 else a.astype(dtype), n)
            for n, a in self.inits.items()]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        graph = helper.make_graph(
            self.nodes, "random", [info("x", kind, ["batch", *SHAPE[1:]])],
            [info(v, kind, [None] * n) for v, n in outs.items()], inits)
        return helper.make_model(graph, ir_version=10,
                                 opset_imports=[helper.make_opsetid("", 18)])


def run(path, x):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = \
        ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    sess = ort.InferenceSession(str(path), options,
                                providers=["CPUExecutionProvider"])
    return ([(o.name, o.type) for o in sess.get_outputs()],
            sess.run(None, {"x": x}))


def compare(what, names, got, want):
    for (name, _), g, w in zip(names, got, want):
        if g.shape != w.shape:
            return f"{what}: {name}: shape {g.shape}, want {w.shape}"
        if not np.array_equal(np.isfinite(g), np.isfinite(w)):
            return f"{what}: {name}: other elements are infinite"
        ok = np.isfinite(w)
        most = max(1.0, np.abs(w[ok]).max(initial=0))
        if not np.allclose(g[ok] / most, w[ok] / most, rtol=1e-3, atol=2e-5):
            return f"{what}: {name}: differs by {np.abs(g[ok] - w[ok]).max():g}"
    return None


def simplified(command, before, after, *options):
    done = subprocess.run([command, "simplify", str(before), "-o", str(after),
                           *options], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"simplify: {done.stderr.strip()}")
    onnx.checker.check_model(str(after), full_check=True)
    return after


def check(command, seed, folder):
    """Why this seed fails, or None."""
    before, after = folder / "before.onnx", folder / "after.onnx"
    half = folder / "half.onnx"
    onnx.save(Net(seed).model(np.float32), before)
    onnx.save(Net(seed).model(np.float16), half)
    x = np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float16)
    names, want = run(before, x.astype(np.float32))
    for what, path, options in (
            ("simplify", before, ()),
            ("folded", before, ("--passes", "simplify,fuse_bn,bn_to_conv")),
            ("float32", half, ("--float32",))):
        got_names, got = run(simplified(command, path, after, *options),
                             x.astype(np.float32))
        if names != got_names:
            return f"{what}: outputs {got_names}, want {names}"
        why = compare(what, names, got, want)
        if why:
            return why
    got_names, got = run(simplified(command, half, after, "--passes",
                                    "widen_half,simplify"), x)
    if [t for _, t in got_names] != ["tensor(float16)"] * len(names):
        return f"widen_half: outputs {got_names}"
    limit = np.finfo(np.float16).max
    for (name, _), g, w in zip(names, got, want):
        ok = np.isfinite(w) & (np.abs(w) < limit * 0.99)
        if not np.allclose(g[ok], w[ok], rtol=2e-3, atol=1e-3):
            return f"widen_half: {name}: differs"
    return None


def main():
    command = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 40
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
