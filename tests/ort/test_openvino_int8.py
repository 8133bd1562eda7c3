#!/usr/bin/env python3
"""Files of the target openvino in OpenVINO itself.

    test_openvino_int8.py SPARSEBIT

A small network made here (3x3, depthwise and 1x1 convolutions, a residual sum,
MaxPool, Concat, global pooling, Gemm), and the trained one in examples/ on the
images of tests/fixtures/original.npz.  Every layer with a constant weight runs on 8 bits in OpenVINO's
runtime model, and its results agree with ours: cosine 0.999, top-1 on 99 %.
Then graphs with Q/DQ in places that OpenVINO does not like: lint counts as many
layers on 8 bits as the runtime model has, and its rules are OpenVINO's.

Needs Python with openvino, onnx and numpy; skipped without.
"""
import json
import os
import subprocess
import sys
import tempfile

import fixtures

# Seen on a virtual machine whose processor lists AMX: without this OpenVINO
# ended with an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI")
try:
    import numpy as np
    import onnx
    import openvino as ov
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

command = os.path.abspath(sys.argv[1])


def small_network(path):
    """Writes it and returns how many layers have weights."""
    rng = np.random.default_rng(1)
    constants, nodes = [], []

    def constant(*shape):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 100
        name = f"w{len(constants)}"
        constants.append(numpy_helper.from_array(
            rng.normal(0, (2 / fan) ** 0.5, shape).astype("f4"), name))
        return name

    def node(op, inputs, **attrs):
        nodes.append(helper.make_node(op, inputs, [f"v{len(nodes)}"], **attrs))
        return nodes[-1].output[0]

    def conv(x, n_in, n_out, size=3, stride=1, group=1, relu=True):
        y = node("Conv", [x, constant(n_out, n_in // group, size, size),
                          constant(n_out)], kernel_shape=[size, size],
                 strides=[stride] * 2, pads=[size // 2] * 4, group=group)
        return node("Relu", [y]) if relu else y

    x = node("MaxPool", [conv("x", 3, 16)], kernel_shape=[2, 2],
             strides=[2, 2])
    y = conv(conv(x, 16, 16), 16, 16, relu=False)
    x = node("Relu", [node("Add", [x, y])])
    x = conv(conv(x, 16, 16, group=16), 16, 32, size=1)
    # One scale for each channel between the two.
    x = node("Elu", [conv(x, 32, 32, size=1, relu=False)])
    x = node("Elu", [conv(x, 32, 32, group=32, relu=False)])
    x = node("Concat", [conv(x, 32, 16, size=1), conv(x, 32, 16)], axis=1)
    x = node("Flatten", [node("GlobalAveragePool", [conv(x, 32, 32, stride=2)])])
    nodes.append(helper.make_node("Gemm", [x, constant(10, 32), constant(10)],
                                  ["y"], transB=1))
    graph = helper.make_graph(
        nodes, "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT,
                                       ["N", 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
        constants)
    onnx.save(helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return sum(n.op_type in ("Conv", "Gemm") for n in nodes)


def pooled_tokens(path):
    """A norm whose channels differ, the mean of tokens, its products."""
    rng = np.random.default_rng(4)
    gains = np.exp(rng.normal(0, 1.5, 32)).astype("f4")
    constants = [numpy_helper.from_array(a, n) for a, n in (
        (gains, "gains"), (np.array([1, 2], "i8"), "axes"),
        (rng.normal(0, 1, (48, 32)).astype("f4"), "w"),
        (rng.normal(0, 1, 48).astype("f4"), "b"))]
    nodes = [
        helper.make_node("Mul", ["x", "gains"], ["n"]),
        helper.make_node("ReduceMax", ["n", "axes"], ["m"], keepdims=0),
        helper.make_node("Gemm", ["m", "w", "b"], ["y"], transB=1)]
    graph = helper.make_graph(
        nodes, "pooled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT,
                                       ["N", 5, 6, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 48])],
        constants)
    onnx.save(helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return 1


def sparsebit(*args):
    done = subprocess.run([command, *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def layers(compiled):
    """(type, precision) of what OpenVINO runs with a weight."""
    rows = []
    for op in compiled.get_runtime_model().get_ordered_ops():
        info = {k: v.astype(str) if hasattr(v, "astype") else str(v)
                for k, v in op.get_rt_info().items()}
        if info.get("layerType") in ("Convolution", "FullyConnected",
                                     "MatMul", "Deconvolution"):
            rows.append((info["layerType"], info["runtimePrecision"]))
    return rows


def check(name, model, x, n_layers, folder):
    np.save(os.path.join(folder, "x.npy"), x)
    data = os.path.join(folder, "d.yaml")
    with open(data, "w") as f:
        f.write("SOURCE: npy\nPATH: x.npy\nBATCH: 8\n")
    path = os.path.join(folder, name + ".int8.onnx")
    saved = os.path.join(folder, "y.npz")
    sparsebit("quantize", model, "-d", data, "-n", "32", "-t", "openvino",
              "-o", path, "-q")
    sparsebit("eval", path, "-d", data, "--save-outputs", saved, "-q")
    z = np.load(saved)
    ours = z[z.files[0]].reshape(len(x), -1).astype("f8")
    compiled = ov.Core().compile_model(path, "CPU", {
        "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
    theirs = np.concatenate([compiled({0: x[i:i + 1]})[0].reshape(1, -1)
                             for i in range(len(x))]).astype("f8")
    rows = layers(compiled)
    bad = [r for r in rows if r[1] not in ("u8", "i8")]
    assert not bad, f"not on 8 bits: {bad}"
    assert len(rows) == n_layers, f"{len(rows)} layers, not {n_layers}"
    cosine = (ours * theirs).sum() / np.sqrt((ours ** 2).sum()
                                             * (theirs ** 2).sum())
    same = float(np.mean(ours.argmax(1) == theirs.argmax(1)))
    text = (f"{len(rows)} of {n_layers} layers on 8 bits, cosine "
            f"{cosine:.6f}, top-1 agreement {100 * same:.2f} %")
    assert cosine >= 0.999 and same >= 0.99, text
    return text


class Pieces:
    """A graph with Q/DQ, put together by hand."""

    def __init__(self):
        self.rng = np.random.default_rng(3)
        self.constants, self.nodes = [], []
        self.x = self.qdq("x", 0.05)

    def constant(self, array):
        self.constants.append(
            numpy_helper.from_array(array, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def node(self, op, *inputs, **attrs):
        self.nodes.append(helper.make_node(op, inputs, [f"v{len(self.nodes)}"],
                                           **attrs))
        return self.nodes[-1].output[0]

    def qdq(self, x, scale, zero=128):
        s = self.constant(np.float32(scale))
        z = self.constant(np.uint8(zero))
        return self.node("DequantizeLinear",
                         self.node("QuantizeLinear", x, s, z), s, z)

    def conv(self, x, c_in=16, group=1, quantized=True):
        shape = (16 * c_in // 16, c_in // group, 3, 3)
        if quantized:
            w = self.node(
                "DequantizeLinear",
                self.constant(self.rng.integers(-127, 128, shape).astype("i1")),
                self.constant(np.full(shape[0], 0.01, "f4")),
                self.constant(np.zeros(shape[0], "i1")), axis=0)
        else:
            w = self.constant(self.rng.normal(size=shape).astype("f4"))
        return self.node("Conv", x, w, pads=[1] * 4, group=group)

    def concat(self, first, second, zero=128):
        return self.node("Concat", self.qdq(self.conv(self.x), first),
                         self.qdq(self.conv(self.x), second, zero), axis=1)

    def save(self, path):
        self.nodes[-1].output[0] = "y"
        graph = helper.make_graph(
            self.nodes, "pieces",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT,
                                           [1, 16, 32, 32])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            self.constants)
        onnx.save(helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8),
            path)


# What to build, and the rule that lint names; None: nothing to say.
PLACES = {
    "good": (lambda p: p.conv(p.qdq(p.node("Relu", p.conv(p.x)), 0.3, 0)),
             None),
    "float weight": (lambda p: p.conv(p.x, quantized=False), "O5-inputs"),
    "float activation": (lambda p: p.conv("x"), "O5-inputs"),
    "between": (lambda p: p.conv(p.qdq(
        p.node("Relu", p.qdq(p.conv(p.x), 0.3)), 0.3, 0)), "O5-between"),
    "residual": (lambda p: p.conv(p.qdq(
        p.node("Add", p.conv(p.x), p.conv(p.x)), 0.4)), "O5-residual"),
    "one scale": (lambda p: p.conv(p.concat(0.3, 0.3), 32), None),
    "two zero points": (lambda p: p.conv(p.concat(0.3, 0.3, 99), 32), None),
    "two scales": (lambda p: p.conv(p.concat(0.3, 0.2), 32), "O4-concat"),
    "two scales, pooled": (lambda p: p.conv(p.node(
        "MaxPool", p.concat(0.3, 0.2), kernel_shape=[3, 3], pads=[1] * 4), 32),
        "O4-concat"),
    "two scales, rescaled": (lambda p: p.conv(
        p.qdq(p.concat(0.3, 0.2), 0.3), 32), "O4-concat"),
    "two scales, groups": (lambda p: p.conv(p.concat(0.3, 0.2), 32, 8),
                           "O4-concat"),
}


def check_place(name, build, rule, folder):
    path = os.path.join(folder, "place.onnx")
    pieces = Pieces()
    build(pieces)
    pieces.save(path)
    done = subprocess.run([command, "lint", path, "-t", "openvino", "--json"],
                          capture_output=True, text=True)
    lint = json.loads(done.stdout)
    rules = {n["rule"] for n in lint["nodes"] if n.get("rule")}
    assert rules == ({rule} if rule else set()), f"lint says {rules or 'nothing'}"
    compiled = ov.Core().compile_model(path, "CPU", {
        "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
    theirs = sum(r[1] in ("u8", "i8") for r in layers(compiled))
    ours = lint["weighted_integer"]
    assert ours == theirs, f"lint counts {ours} layers, OpenVINO {theirs}"
    return f"{ours} of {lint['weighted']} layers, {rule or 'no reason'}"


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "small.onnx")
        n = small_network(model)
        x = np.random.default_rng(2).normal(size=(64, 3, 32, 32)).astype("f4")
        cases = [("small network", model, x, n)]
        tokens = os.path.join(folder, "pooled.onnx")
        n = pooled_tokens(tokens)
        x = np.random.default_rng(5).normal(size=(64, 5, 6, 32)).astype("f4")
        cases.append(("pooled tokens", tokens, x, n))
        with np.load(os.path.join(fixtures.ROOT,
                                  "tests/fixtures/original.npz")) as z:
            x = (z["calib"][:, None] / 255 - 0.2860) / 0.3530
        cases.append(("fashion_mnist", os.path.join(
            fixtures.ROOT, "examples/fashion_mnist.onnx"), x.astype("f4"), 9))
        for name, model, x, n in cases:
            try:
                print(f"{name}: {check(name, model, x, n, folder)}")
            except AssertionError as error:
                failed += 1
                print(f"{name}: FAILED {error}")
        for name, (build, rule) in PLACES.items():
            try:
                print(f"{name}: {check_place(name, build, rule, folder)}")
            except AssertionError as error:
                failed += 1
                print(f"{name}: FAILED {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
