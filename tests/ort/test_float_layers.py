#!/usr/bin/env python3
"""Layers that are left in float because that is as fast, and more accurate.

    test_float_layers.py SPARSEBIT

A depthwise convolution between two HardSwish is float in the file for ONNX
Runtime on x86, one between two Relu is not; convolutions with narrow groups are, too.
So are filters of one channel, and the layers of a spectrogram whose logarithm is taken.
Of a network whose first layer has channels of very different size the first layers stay in float without a
configuration, and its results in ONNX Runtime are nearer to those in float
then; of one with a Relu behind the first layer, and with a configuration, they
do not.
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

command = os.path.abspath(sys.argv[1])
CONFIG = """SCHEDULE: {FUSE_BN: true}
W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}
A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}
"""
CHANNELS, LAYERS = 8, 12
failures = 0


def check(what, good):
    global failures
    if not good:
        failures += 1
        print(f"FAIL {what}")


def network(path, function, uneven):
    """Conv, depthwise Conv, then Convs of one pixel; `function` behind the first
    two, Relu behind the others.  `uneven`: channels of the first differ in size,
    which the second takes back."""
    rng = np.random.default_rng(1)
    size = np.geomspace(1, 1000, CHANNELS) if uneven else np.ones(CHANNELS)
    w = {"w0": rng.normal(size=(CHANNELS, 3, 3, 3)) * size[:, None, None, None] / 5,
         "w1": rng.normal(size=(CHANNELS, 1, 3, 3)) / size[:, None, None, None] / 3}
    nodes = [helper.make_node("Conv", ["x", "w0"], ["c0"], "first", pads=[1] * 4),
             helper.make_node(function, ["c0"], ["r0"]),
             helper.make_node("Conv", ["r0", "w1"], ["c1"], "second", pads=[1] * 4,
                              group=CHANNELS),
             helper.make_node(function, ["c1"], ["r1"])]
    for i in range(2, LAYERS):
        w[f"w{i}"] = rng.normal(size=(CHANNELS, CHANNELS, 1, 1)) / 2
        nodes += [helper.make_node("Conv", [f"r{i - 1}", f"w{i}"], [f"c{i}"], f"conv{i}"),
                  helper.make_node("Relu", [f"c{i}"], [f"r{i}"])]
    nodes.append(helper.make_node("GlobalAveragePool", [f"r{LAYERS - 1}"], ["y"]))
    init = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in w.items()]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 16, 16])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CHANNELS, 1, 1])
    model = helper.make_model(helper.make_graph(nodes, "g", [image], [out], init),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def grouped(path, groups, outputs):
    """Conv, Relu, a Conv of `groups` groups of 32 channels, Relu, Conv."""
    rng = np.random.default_rng(3)
    w = {"w0": rng.normal(size=(32, 3, 3, 3)), "w1": rng.normal(size=(outputs, 32 // groups, 3, 3)),
         "w2": rng.normal(size=(4, outputs, 1, 1))}
    nodes = [helper.make_node("Conv", ["x", "w0"], ["c0"]),
             helper.make_node("Relu", ["c0"], ["r0"]),
             helper.make_node("Conv", ["r0", "w1"], ["c1"], group=groups),
             helper.make_node("Relu", ["c1"], ["r1"]),
             helper.make_node("Conv", ["r1", "w2"], ["y"])]
    init = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in w.items()]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 16, 16])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph(nodes, "g", [image], [out], init),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def spectrogram(path, end):
    """Filters of 64 steps, squares, sums of them, what `end` gives, and a product.  All
    weights are positive, or the logarithm of a sum of squares would be nothing."""
    rng = np.random.default_rng(4)
    w = {"half": np.full((1, 1, 2), .5), "wave": rng.normal(size=(32, 1, 64)),
         "two": np.float32(2), "mel": rng.uniform(size=(32, 16)), "low": np.float32(1e-6),
         "last": rng.normal(size=(16, 8))}
    nodes = [helper.make_node("Conv", ["x", "half"], ["h"], "half"),
             helper.make_node("Conv", ["h", "wave"], ["s"], "wave", strides=[16]),
             helper.make_node("Pow", ["s", "two"], ["p"]),
             helper.make_node("Transpose", ["p"], ["t"], perm=[0, 2, 1]),
             helper.make_node("MatMul", ["t", "mel"], ["m"], "mel"),
             helper.make_node("Max", ["m", "low"], ["k"]),
             helper.make_node(end, ["k"], ["f"]),
             helper.make_node("MatMul", ["f", "last"], ["y"], "last")]
    init = [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in w.items()]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, 2048])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph(nodes, "g", [image], [out], init),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def loudness(path):
    """Sounds whose parts differ by a factor of 10,000."""
    rng = np.random.default_rng(5)
    level = np.repeat(np.geomspace(1e-4, 1, 8), 256)
    np.save(path, (rng.normal(size=(32, 1, 2048)) * level).astype(np.float32))


def quantize(model, out, *options):
    r = subprocess.run([command, "quantize", model, "-d", "x.npy", "-o", out,
                        "-t", "onnxruntime-x86", *options],
                       capture_output=True, text=True, check=False)
    check(f"{model} {options}: {r.stderr}", r.returncode == 0)
    return r.stdout


def session(path, kept=None):
    opt = ort.SessionOptions()
    opt.log_severity_level = 3
    if kept:
        opt.optimized_model_filepath = kept
    return ort.InferenceSession(path, opt, providers=["CPUExecutionProvider"])


def kernels(path):
    """Integer and float convolutions as ONNX Runtime runs them."""
    session(path, "optimized.onnx")
    types = [n.op_type for n in onnx.load("optimized.onnx").graph.node]
    return types.count("QLinearConv"), types.count("Conv") + types.count("FusedConv")


def results(path):
    return session(path).run(None, {"x": np.load("x.npy")})[0].astype(np.float64)


def main():
    rng = np.random.default_rng(2)
    np.save("x.npy", rng.normal(size=(32, 3, 16, 16)).astype(np.float32))
    with open("q.yaml", "w", encoding="utf-8") as f:
        f.write(CONFIG)
    network("even.onnx", "HardSwish", False)
    network("relu.onnx", "Relu", True)
    network("uneven.onnx", "HardSwish", True)

    quantize("even.onnx", "a.onnx", "--preset", "fast")
    check("a depthwise layer between HardSwish is float", kernels("a.onnx") == (LAYERS - 1, 1))
    quantize("relu.onnx", "b.onnx", "--preset", "fast")
    check("between Relu it is not", kernels("b.onnx") == (LAYERS, 0))

    for groups, outputs, floats in ((32, 32, 0), (32, 64, 1), (16, 32, 1), (4, 32, 0)):
        grouped("grouped.onnx", groups, outputs)
        quantize("grouped.onnx", "g.onnx", "--preset", "fast")
        found = kernels("g.onnx")
        check(f"{groups} groups, {outputs} channels: {found}", found == (3 - floats, floats))
    grouped("grouped.onnx", 16, 32)
    quantize("grouped.onnx", "g.onnx", "-c", "q.yaml")
    check("as the configuration says", kernels("g.onnx") == (3, 0))

    os.rename("x.npy", "photos.npy")
    loudness("x.npy")
    spectrogram("log.onnx", "Log")
    quantize("log.onnx", "l.onnx", "--preset", "fast")
    want, got = results("log.onnx"), results("l.onnx")
    check("the spectrogram is float", kernels("l.onnx") == (0, 2))
    check("results are near", np.mean((got - want) ** 2) < 1e-3 * np.var(want))
    spectrogram("relu2.onnx", "Relu")
    quantize("relu2.onnx", "l.onnx", "--preset", "fast")
    check("a filter of one channel is float", kernels("l.onnx") == (1, 1))
    os.rename("photos.npy", "x.npy")

    said = quantize("relu.onnx", "b.onnx")
    check("no first layers with Relu", "first layers" not in said)
    check("all are integer", kernels("b.onnx") == (LAYERS, 0))
    said = quantize("uneven.onnx", "c.onnx", "-c", "q.yaml")
    check("not with a configuration", "first layers" not in said)
    check("with it all are integer", kernels("c.onnx") == (LAYERS, 0))
    said = quantize("uneven.onnx", "d.onnx")
    line = [x for x in said.splitlines() if x.startswith("first layers in float: 2 layers")]
    check("they are kept", len(line) == 1 and "taken back" not in line[0])
    check("the others are integer", kernels("d.onnx") == (LAYERS - 2, 2))
    # Columns convolved at once suit integers only: they cost Transposes in float.
    types = {n.op_type for n in onnx.load("d.onnx").graph.node}
    check("the first is as it was", "Transpose" not in types)
    want = results("uneven.onnx")
    noise = [float(np.sum((results(p) - want) ** 2)) for p in ("c.onnx", "d.onnx")]
    check(f"nearer to float: {noise}", noise[1] < noise[0] / 2)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    main()
sys.exit(failures > 0)
