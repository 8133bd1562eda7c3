#!/usr/bin/env python3
"""lint predicts exactly what ONNX Runtime fuses, and `run --integer` gives its
results: small networks quantized by ONNX Runtime's own tool with ten settings,
and random graphs with Q/DQ nodes in random places.

usage: test_lint_vs_ort.py COMMAND [SEED] [COUNT]
"""
import sys
import tempfile

from qdq_common import (SETTINGS, compare_fates, compare_results, lint, np, onnx,
                        quantize)
from onnx import TensorProto as T
from onnx import helper, numpy_helper


class Net:
    """A model under construction."""

    def __init__(self, seed, opset=17):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.n = [], [], 0
        self.opset = opset

    def const(self, array, stem="c"):
        self.n += 1
        self.weights.append(numpy_helper.from_array(array, f"{stem}{self.n}"))
        return f"{stem}{self.n}"

    def floats(self, *shape):
        return self.const(self.rng.normal(size=shape).astype(np.float32) * 0.4)

    def add(self, op, *inputs, outputs=1, **attrs):
        self.n += 1
        names = [f"{op}_{self.n}" + (f"_{i}" if i else "")
                 for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names,
                                           name=f"n_{self.n}", **attrs))
        return names[0] if outputs == 1 else names

    def conv(self, x, c_in, c_out, k=3, bias=True, **attrs):
        group = attrs.get("group", 1)
        w = self.floats(c_out, c_in // group, k, k)
        b = [self.floats(c_out)] if bias else []
        return self.add("Conv", x, w, *b, pads=[k // 2] * 4, **attrs)

    def model(self, inputs, outputs):
        graph = helper.make_graph(
            self.nodes, "g",
            [helper.make_tensor_value_info("x", T.FLOAT, inputs)],
            [helper.make_tensor_value_info(o, T.FLOAT, None) for o in outputs],
            self.weights)
        model = helper.make_model(graph, opset_imports=[
            helper.make_opsetid("", self.opset)])
        model.ir_version = 8
        return model


def residual():
    n = Net(1)
    a = n.add("Relu", n.conv("x", 3, 8))
    b = n.add("Relu", n.conv(a, 8, 8))
    b = n.add("Add", n.conv(b, 8, 8, bias=False), a)
    p = n.add("MaxPool", n.add("Relu", b), kernel_shape=[2, 2], strides=[2, 2])
    c = n.add("Clip", n.conv(p, 8, 8, group=8), n.const(np.float32(0)),
              n.const(np.float32(6)))
    g = n.add("GlobalAveragePool", n.conv(c, 8, 16, k=1))
    f = n.add("Flatten", g)
    y = n.add("Gemm", f, n.floats(16, 10), n.floats(10))
    return n.model([1, 3, 16, 16], [n.add("Softmax", y, axis=1)])


def detector():
    n = Net(2)
    a = n.conv("x", 4, 8)
    a = n.add("Mul", a, n.add("Sigmoid", a))
    p = n.add("AveragePool", a, kernel_shape=[2, 2], strides=[2, 2])
    b = n.add("LeakyRelu", n.conv(p, 8, 8), alpha=0.1)
    up = n.add("Resize", b, "", n.const(np.array([1, 1, 2, 2], np.float32)),
               mode="nearest")
    c = n.add("Concat", up, a, axis=1)
    l, r = n.add("Split", c, outputs=2, axis=1)
    s = n.add("Slice", l, n.const(np.array([0], np.int64)),
              n.const(np.array([4], np.int64)), n.const(np.array([1], np.int64)))
    t = n.add("Transpose", n.conv(r, 8, 8, k=1), perm=[0, 2, 3, 1])
    u = n.add("Reshape", t, n.const(np.array([1, -1, 8], np.int64)))
    d = n.add("DepthToSpace", n.conv(s, 4, 8, k=1), blocksize=2)
    e = n.add("Tanh", n.add("ConvTranspose", d, n.floats(2, 3, 2, 2)))
    lin = n.add("Resize", e, "", n.const(np.array([1, 1, .5, .5], np.float32)),
                mode="linear")
    return n.model([1, 4, 8, 8], [u, n.add("Add", lin, n.floats(1, 3, 1, 1))])


def attention():
    n = Net(3)
    heads = [n.add("MatMul", "x", n.floats(16, 16)) for _ in range(3)]
    shape = n.const(np.array([1, 6, 2, 8], np.int64))
    q, k, v = [n.add("Transpose", n.add("Reshape", n.add(
        "Add", h, n.floats(16)), shape), perm=[0, 2, 1, 3]) for h in heads]
    kt = n.add("Transpose", k, perm=[0, 1, 3, 2])
    s = n.add("Div", n.add("MatMul", q, kt), n.const(np.float32(2.8)))
    o = n.add("MatMul", n.add("Softmax", s, axis=-1), v)
    o = n.add("Reshape", n.add("Transpose", o, perm=[0, 2, 1, 3]),
              n.const(np.array([1, 6, 16], np.int64)))
    o = n.add("Add", n.add("MatMul", o, n.floats(16, 16)), "x")
    o = n.add("LayerNormalization", o, n.floats(16), n.floats(16), axis=-1)
    return n.model([1, 6, 16], [n.add("Add", n.add(
        "MatMul", o, n.floats(16, 4)), n.floats(4))])


# ---- random placement ------------------------------------------------------

def random_graph(seed):
    """A chain with branches; each edge may get Q/DQ pairs of some type, with
    parameters from a small set so that equal ones meet."""
    n = Net(seed, opset=21)
    rng = n.rng
    scales = [n.const(np.float32(s), "s") for s in (0.05, 0.1)]
    scales += [n.const(np.array([0.05], np.float32), "s1")]
    zeros = {t: [n.const(np.array(z, t), "z") for z in zs] for t, zs in
             ((np.uint8, (0, 128)), (np.int8, (-128, 0)),
              (np.uint16, (0, 32768)))}
    mood = rng.choice(3, p=[0.6, 0.25, 0.15])

    def params():
        kind = rng.choice(3, p=[0.97, 0.02, 0.01])
        main = [np.uint8, np.int8, np.uint8][mood]
        t = main if kind == 0 else (np.uint8, np.int8, np.uint16)[kind]
        zero = zeros[t][0 if mood == 2 else rng.integers(2)]
        scale = scales[0] if rng.random() < 0.5 else scales[rng.integers(2)]
        if rng.random() < 0.02:
            scale = scales[2]
        return [scale] + ([zero] if rng.random() < 0.98 or t != np.uint8
                          else [])

    def pair(x, chance=0.8):
        if rng.random() > chance:
            return x
        p = params()
        q = n.add("QuantizeLinear", x, *p)
        return n.add("DequantizeLinear", q, *p)

    def weight(array, axis):
        kind = rng.integers(6)
        if kind == 0:
            return n.const(array)
        if kind == 1:
            s = n.const(np.float32(0.01))
            z = n.const(np.int8(0))
            q = n.add("QuantizeLinear", n.const(array), s, z)
            return n.add("DequantizeLinear", q, s, z)
        w = n.const(np.clip(np.round(array * 60), -127, 127).astype(np.int8))
        if kind < 4:
            return n.add("DequantizeLinear", w, n.const(np.float32(0.01)),
                         n.const(np.int8(0)))
        c = array.shape[axis]
        return n.add("DequantizeLinear", w,
                     n.const(rng.uniform(.005, .02, c).astype(np.float32)),
                     n.const(np.zeros(c, np.int8)), axis=axis)

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    def conv(x):
        bias = [n.const(normal(4))] if rng.random() < 0.6 else []
        return n.add("Conv", x, weight(normal(4, 4, 1, 1), 0), *bias)

    def matmul(x):
        y = n.add("MatMul", x, weight(normal(8, 8), 1))
        return n.add("Add", y, n.const(normal(8))) if rng.random() < .4 else y

    # All keep [1, 4, 8, 8].  No Transpose: ONNX Runtime moves those around,
    # which lint does not follow.
    axes = n.const(np.array([1], np.int64))
    steps = [
        conv, conv, matmul,
        lambda x: n.add("Relu", x),
        lambda x: n.add("Clip", x, n.const(np.float32(0)),
                        n.const(np.float32(rng.choice([6, 30])))),
        lambda x: n.add("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4),
        lambda x: n.add("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4),
        lambda x: n.add("Sigmoid", x),
        lambda x: n.add("Tanh", x),
        lambda x: n.add("Softmax", x),
        lambda x: n.add("LeakyRelu", x),
        lambda x: n.add("Squeeze", pair(n.add("Unsqueeze", x, axes)), axes),
        lambda x: n.add("Mul", x, pair(n.const(normal(4, 1, 1)))),
        lambda x: n.add("Identity", x),
    ]
    live = [pair("x")]
    outputs = []
    for _ in range(int(rng.integers(2, 9))):
        x = live[rng.integers(len(live))] if rng.random() < .2 else live[-1]
        if rng.random() < .2 and len(live) > 1:
            y = n.add("Add", x, live[rng.integers(len(live))])
        elif rng.random() < .1:
            a = n.add("Concat", x, live[rng.integers(len(live))], axis=1)
            a, b = n.add("Split", pair(a), outputs=2, axis=1, num_outputs=2)
            live.append(pair(b))
            y = a
        else:
            y = steps[rng.integers(len(steps))](x)
        if rng.random() < .06:
            outputs.append(y)
        live.append(pair(y))
    used = {i for node in n.nodes for i in node.input}
    made = [o for node in n.nodes for o in node.output]
    outputs += [o for o in made if o not in used and o not in outputs]
    return n.model([1, 4, 8, 8], outputs)


def main():
    command = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 150
    failed, n_int, done, refused = 0, 0, 0, 0

    def check(what, path):
        nonlocal failed, n_int, done
        said = lint(command, path)
        wrong, n = compare_fates(said, path)
        results = compare_results(command, path)
        # Float operators round differently, and the Q behind them may then
        # give the next number; integers must be the same.
        exact = all(r["fate"] != "float" or r["op"] in ("Identity", "Relu")
                    for r in said["nodes"])
        if results is None:
            print(f"{what}: results skipped: ONNX Runtime has no exact "
                  "kernels where layers share a weight")
        elif not (results[0] == 1 if exact else results[1] > 0.999):
            wrong.append(f"results: {results[0]:.4f} equal, "
                         f"cosine {results[1]:.6f}")
        done += 1
        n_int += n
        if wrong:
            failed += 1
            print(f"{what}:\n  " + "\n  ".join(wrong))

    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/m.onnx"
        for make in (residual, detector, attention):
            for setting in SETTINGS:
                quantize(make(), setting, path)
                check(f"{make.__name__} {setting}", path)
        for i in range(count):
            onnx.save(random_graph(seed * 100000 + i), path)
            try:
                check(f"random graph {seed * 100000 + i}", path)
            except Exception as error:  # ONNX Runtime refuses or fails
                text = str(error)
                if "ONNXRuntimeError" not in text:
                    raise
                refused += 1
    print(f"{done} files, {n_int} integer kernels, {failed} wrong, "
          f"{refused} refused by ONNX Runtime")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
