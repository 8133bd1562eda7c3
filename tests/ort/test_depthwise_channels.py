#!/usr/bin/env python3
"""Activations with one scale for each channel, in files for OpenVINO.

    test_depthwise_channels.py SPARSEBIT

What only a depthwise convolution reads, behind a function that channels cannot
be divided in front of, has the range of each channel there (NumPy's, of ONNX
Runtime's results in float), and the network has a tenth of the noise that it has
with one scale, or less.  There is one scale behind a Relu, where another layer
reads it, too, where the result of the depthwise one is quantized (ONNX Runtime
cannot run that), for another runtime, and where a configuration or a file says so.
A file that is read and written again is the same.
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
CHANNELS = 16
CONFIG = """W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}
A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}
"""
failures = 0


def check(what, good):
    global failures
    if not good:
        failures += 1
        print(f"FAIL {what}")


def network(path, function="HardSwish", behind="HardSwish", other=False):
    """Conv, function, depthwise Conv, which takes back that channels differ, the
    function `behind` it, Conv; `other`: what the first function gives is read by
    one more Conv."""
    rng = np.random.default_rng(1)
    size = np.geomspace(1, 300, CHANNELS)[:, None, None, None]
    w = {"w0": rng.normal(size=(CHANNELS, 3, 3, 3)) * size / 5,
         "w1": rng.normal(size=(CHANNELS, 1, 3, 3)) / size / 3,
         "w2": rng.normal(size=(4, CHANNELS, 1, 1)),
         "w3": rng.normal(size=(4, CHANNELS, 1, 1)) / size.reshape(1, -1, 1, 1)}
    nodes = [helper.make_node("Conv", ["x", "w0"], ["c"], pads=[1] * 4),
             helper.make_node(function, ["c"], ["f"]),
             helper.make_node("Conv", ["f", "w1"], ["d"], group=CHANNELS, pads=[1] * 4),
             helper.make_node(behind, ["d"], ["b"]),
             helper.make_node("Conv", ["b", "w2"], ["y"])]
    outputs = ["y", "f"]
    if other:
        nodes.append(helper.make_node("Conv", ["f", "w3"], ["z"]))
        outputs.append("z")
    init = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in w.items()
            if other or k != "w3"]

    def value(name, *dims):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *dims])

    # `f` is an output only of the copy from which ranges are taken.
    for name, of in ((path, outputs[:1] + outputs[2:]), ("seen.onnx", ["f"])):
        graph = helper.make_graph(nodes, "g", [value("x", 3, 12, 12)],
                                  [value(o, None, None, None) for o in of], init)
        onnx.save(helper.make_model(graph, ir_version=8,
                                    opset_imports=[helper.make_opsetid("", 17)]), name)


def quantize(model, out, *options, target="openvino"):
    r = subprocess.run([command, "quantize", model, "-o", out, "-t", target, "-q",
                        "--force", *options], capture_output=True, text=True, check=False)
    check(f"{model} {options}: {r.stderr}", r.returncode == 0)


def results(path):
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.load("x.npy")})[0].astype(np.float64)


def scales(path):
    """Of what the depthwise convolution reads."""
    graph = onnx.load(path).graph
    constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    conv = next(n for n in graph.node if n.op_type == "Conv" and
                any(a.name == "group" and a.i == CHANNELS for a in n.attribute))
    dq = next((n for n in graph.node if conv.input[0] in n.output
               and n.op_type == "DequantizeLinear"), None)
    return constants[dq.input[1]].reshape(-1) if dq else np.zeros(0)


def main():
    rng = np.random.default_rng(2)
    np.save("x.npy", rng.normal(size=(32, 3, 12, 12)).astype(np.float32))
    with open("q.yaml", "w", encoding="utf-8") as f:
        f.write(CONFIG)
    data = ("-d", "x.npy", "--preset", "fast")

    network("m.onnx")
    quantize("m.onnx", "a.onnx", *data)
    f = results("seen.onnx")
    want = (np.maximum(f.max((0, 2, 3)), 0) - np.minimum(f.min((0, 2, 3)), 0)) / 255
    got = scales("a.onnx")
    check("a scale for each channel", got.shape == want.shape)
    check("its range", got.shape == want.shape and np.allclose(got, want, rtol=1e-5))
    quantize("a.onnx", "again.onnx")
    with open("a.onnx", "rb") as one, open("again.onnx", "rb") as two:
        check("read and written again", one.read() == two.read())

    quantize("m.onnx", "one.onnx", "-d", "x.npy", "-c", "q.yaml")
    check("one with a configuration", scales("one.onnx").size == 1)
    quantize("one.onnx", "again.onnx")
    check("one as the file says", np.array_equal(scales("again.onnx"), scales("one.onnx")))
    y = results("m.onnx")
    noise = [np.sum((results(p) - y) ** 2) for p in ("one.onnx", "a.onnx")]
    check(f"noise {noise}", noise[1] < noise[0] / 10)

    quantize("m.onnx", "b.onnx", *data, target="tensorrt")
    check("one for another runtime", scales("b.onnx").size == 1)
    quantize("a.onnx", "b.onnx", target="tensorrt")
    check("one, from a file with several", scales("b.onnx").size == 1)
    network("relu.onnx", "Relu")
    quantize("relu.onnx", "c.onnx", *data)
    check("one behind a Relu", scales("c.onnx").size == 1)
    network("three.onnx", behind="Relu")
    quantize("three.onnx", "c.onnx", *data)
    check("one in front of a Relu", scales("c.onnx").size == 1)
    results("c.onnx")
    network("two.onnx", other=True)
    quantize("two.onnx", "d.onnx", *data)
    check("one with another reader", scales("d.onnx").size == 1)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    main()
sys.exit(failures > 0)
