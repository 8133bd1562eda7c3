#!/usr/bin/env python3
"""BLOCKWISE in a whole network, run by ONNX Runtime.

usage: test_learn_blocks.py COMMAND

A small residual network, 3-bit weights and 8-bit activations: learned block by
block its file is nearer to the float network, on samples that were not seen,
than one whose weights are rounded to nearest; with and without QDrop.  The file
is the same for any number of threads, and another one for another seed.  Asked for in vain, a line says so.

Exits 77 if onnx or onnxruntime is not there."""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto as T
    from onnx import helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

command = sys.argv[1]
failed = 0
CONFIG = """SCHEDULE: {{BLOCKWISE: {{STEPS: {steps}, BATCH: 8, DROP: {drop}}}}}
W: {{QSCHEME: per-channel-symmetric, QUANTIZER: {{BIT: 3}}}}
A: {{QSCHEME: per-tensor-affine, QUANTIZER: {{BIT: 8}}}}
"""


def check(what, good, more=""):
    global failed
    if not good:
        failed += 1
        print(f"FAILED: {what} {more}")


def network(path):
    rng = np.random.default_rng(1)
    weights, nodes = [], []

    def conv(x, y, inputs, outputs):
        w = rng.standard_normal((outputs, inputs, 3, 3)) / (9 * inputs) ** 0.5
        weights.append(numpy_helper.from_array(w.astype("f"), f"w_{y}"))
        b = rng.standard_normal(outputs) * 0.1
        weights.append(numpy_helper.from_array(b.astype("f"), f"b_{y}"))
        nodes.append(helper.make_node("Conv", [x, f"w_{y}", f"b_{y}"], [y],
                                      y, pads=[1] * 4))

    conv("x", "c0", 3, 8)
    nodes.append(helper.make_node("Relu", ["c0"], ["r0"]))
    conv("r0", "c1", 8, 8)
    nodes.append(helper.make_node("Relu", ["c1"], ["r1"]))
    conv("r1", "c2", 8, 8)
    nodes.append(helper.make_node("Add", ["c2", "r0"], ["a"]))
    nodes.append(helper.make_node("Relu", ["a"], ["r2"]))
    conv("r2", "y", 8, 4)
    shape = ["N", 3, 8, 8]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", T.FLOAT, shape)],
        [helper.make_tensor_value_info("y", T.FLOAT, ["N", 4, 8, 8])], weights)
    onnx.save(helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def quantize(folder, name, steps, drop, *more):
    out = os.path.join(folder, name)
    with open(out + ".yaml", "w") as f:
        f.write(CONFIG.format(steps=steps, drop=drop))
    subprocess.run([command, "quantize", folder + "/net.onnx", "-c",
                    out + ".yaml", "-d", folder + "/x.npy", "-b", "8", "-q",
                    "-o", out, *more], check=True)
    with open(out, "rb") as f:
        return f.read()


def run(data, x):
    """As the file says: there are no kernels for 3-bit weights to fuse."""
    options = ort.SessionOptions()
    options.graph_optimization_level = (
        ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    return ort.InferenceSession(
        data, options,
        providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


with tempfile.TemporaryDirectory() as folder:
    network(folder + "/net.onnx")
    rng = np.random.default_rng(2)
    # Neighbors are alike, as in photographs.
    few = rng.standard_normal((96, 3, 2, 2)).repeat(4, 2).repeat(4, 3)
    x = (few + 0.1 * rng.standard_normal(few.shape)).astype("f")
    np.save(folder + "/x.npy", x[:32])
    test = x[32:]
    want = run(open(folder + "/net.onnx", "rb").read(), test)

    def error(data):
        return float(((run(data, test) - want) ** 2).mean() /
                     (want ** 2).mean())

    nearest = error(quantize(folder, "nearest", 0, 0))
    brecq = error(quantize(folder, "brecq", 200, 0))
    drops = quantize(folder, "qdrop", 200, 0.5, "--threads", "1")
    print(f"error: nearest {nearest:.4f}, BRECQ {brecq:.4f}, QDrop "
          f"{error(drops):.4f}")
    check("nearer than rounded to nearest", brecq < 0.8 * nearest,
          f"{brecq} {nearest}")
    check("the same with QDrop", error(drops) < 0.8 * nearest,
          f"{error(drops)} {nearest}")
    check("same file with two threads",
          drops == quantize(folder, "two", 200, 0.5, "--threads", "2"))
    done = subprocess.run(
        [command, "quantize", folder + "/net.onnx", "-c", "/dev/stdin", "-o",
         folder + "/dynamic.onnx"], text=True, capture_output=True,
        input="SCHEDULE: {BLOCKWISE: {STEPS: 5}}\nA: dynamic\nW: {QSCHEME: "
        "per-channel-symmetric, QUANTIZER: {BIT: 8}}\n")
    check("a line if blocks are not learned", done.returncode == 0 and
          "SCHEDULE.BLOCKWISE: no blocks are learned" in done.stderr,
          done.stderr)
    check("another file with another seed",
          drops != quantize(folder, "seed", 200, 0.5, "--seed", "5"))
print(f"{failed} failed")
sys.exit(1 if failed else 0)
