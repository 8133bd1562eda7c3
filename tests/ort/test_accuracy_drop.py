#!/usr/bin/env python3
"""Layers that stay in float for --accuracy-drop.

    test_accuracy_drop.py SPARSEBIT

Of three matrix products one has a large weight that hides the others under one
scale: all of them become zero, and with them the differences of the classes.
It alone must stay in float, with the Relu that finishes it; the file is run by
ONNX Runtime, and its answers are those of NumPy in float.  A convolution that
stays in float between integer ones, also next to operators that only move
elements, does so in ONNX Runtime, too, which is told by its own results without
optimization; so it does once the file was simplified or quantized again.
"""
import json
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
CONFIG = """W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}
A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}
"""
failures = 0


def check(what, good):
    global failures
    if not good:
        failures += 1
        print(f"FAIL {what}")


def weights(broken):
    """Classes change places in each layer.  In a broken one the first input, which
    is always 1, adds 1000 to all results: what differs is below half a step."""
    out = []
    for i in range(3):
        w = np.eye(7, dtype=np.float32)
        w[1:6, 1:6] = np.roll(w[1:6, 1:6], 1, 0)
        w[6, 6] = 1.0625  # so that 1 is 120 steps; its input is always 0
        if i in broken:
            w[0, 1:6] = 1000
        out.append(w)
    return out


def network(path, mats, named, relu):
    init = [numpy_helper.from_array(m, f"w{i}") for i, m in enumerate(mats)]
    # What a broken layer adds to all but the first is taken away again.
    init += [numpy_helper.from_array(-m[0] + np.eye(7, dtype=np.float32)[0],
                                     f"b{i}") for i, m in enumerate(mats)]
    if relu:  # before it runs, the last result hides all others
        init[len(mats) + 1].CopyFrom(numpy_helper.from_array(
            numpy_helper.to_array(init[len(mats) + 1]) -
            np.float32(1000) * np.eye(7, dtype=np.float32)[6], "b1"))
    nodes = [helper.make_node(
        "Gemm", ["x" if i == 0 else f"y{i - 1}", f"w{i}", f"b{i}"],
        [f"y{i}"], name=f"layer[{i}]*" if named else "") for i in range(3)]
    if relu:
        nodes[2].input[0] = "z1"
        nodes.insert(2, helper.make_node("Relu", ["y1"], ["z1"], name="act"))
    f32 = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", f32, ["N", 7])],
        [helper.make_tensor_value_info("y2", f32, ["N", 7])], init)
    model = helper.make_model(graph,
                              opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)


def searched(at, *options):
    """Does `search` write a configuration that makes the same file?"""
    some = [at("net.onnx"), "-d", at("x.yaml"), "-q"]
    found = subprocess.run(
        [command, "search", *some, "-c", at("q.yaml"), "-o", at("found.yaml"),
         *options], capture_output=True, text=True)
    if found.returncode:
        return found.stderr
    subprocess.run([command, "quantize", *some, "-c", at("found.yaml"), "-o",
                    at("found.onnx")], check=True)
    with open(at("out.onnx"), "rb") as one, open(at("found.onnx"), "rb") as two:
        return "" if one.read() == two.read() else "another file"


def run(broken, *options, named=True, relu=False):
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        rng = np.random.default_rng(3)
        # From 0 to 2.55, so that a step is 0.01 and 1 is a whole number.
        x = np.zeros((40, 7), np.float32)
        x[:, 0] = 1
        x[:, 1:6] = np.where(np.eye(5)[rng.integers(0, 5, 40)] > 0, 2.55,
                             0.1 * rng.random((40, 5)))
        np.save(at("x.npy"), x)
        with open(at("x.yaml"), "w") as f:
            f.write(f"SOURCE: npy\nPATH: {at('x.npy')}\nBATCH: 8\n")
        with open(at("q.yaml"), "w") as f:
            f.write(CONFIG)
        mats = weights(broken)
        network(at("net.onnx"), mats, named, relu)
        done = subprocess.run(
            [command, "quantize", at("net.onnx"), "-c", at("q.yaml"), "-d",
             at("x.yaml"), "-o", at("out.onnx"), "--json", "-q", *options],
            capture_output=True, text=True)
        same = searched(at, *options) if options else ""
        if done.returncode:
            check("nothing is written", not os.path.exists(at("out.onnx")))
            check(f"nor by search: {same}",
                  not os.path.exists(at("found.yaml")) and
                  same.replace(" search", "") ==
                  done.stderr.replace(" quantize", ""))
            return done.returncode, done.stderr, None
        check(f"search finds the same: {same}", not same)
        y = ort.InferenceSession(
            at("out.onnx"), providers=["CPUExecutionProvider"]).run(
                None, {"x": x})[0]
        want = x.astype(np.float64)
        for m in mats:
            want = want @ m - m[0] + np.eye(7)[0]
        agree = 100 * (y[:, 1:].argmax(1) == want[:, 1:].argmax(1)).mean()
        return 0, json.loads(done.stdout), agree


code, found, agree = run({1})
check("no drop asked for", code == 0 and "accuracy_drop" not in found)
check("the broken layer hurts", agree < 60)

code, found, agree = run({1}, "--accuracy-drop", "1")
check(f"works: {found}", code == 0)
if code == 0:
    drop = found["accuracy_drop"]
    check(f"by classes: {drop}", drop["of"] == "agreement of classes")
    check(f"all quantized: {drop}", drop["all_quantized"] > 40)
    check(f"reached: {drop}", drop["reached"] <= 1)
    check(f"the broken one: {drop}",
          drop["float_layers"] == ["layer[[]1][*]"])
    check(f"ONNX Runtime agrees: {agree}", agree >= 99)

code, found, agree = run({1}, "--accuracy-drop", "1", named=False)
check(f"nodes without names: {found}", code == 0 and agree >= 99 and
      found["accuracy_drop"]["float_layers"] == ["y1"])

code, found, agree = run({1}, "--accuracy-drop", "1", relu=True)
check(f"an activation stays with its layer: {found}", code == 0 and
      agree >= 99 and
      found["accuracy_drop"]["float_layers"] == ["layer[[]1][*]", "act"])

code, found, agree = run(set(), "--accuracy-drop", "1")
check("nothing to keep", code == 0 and
      found["accuracy_drop"]["float_layers"] == [] and agree == 100)

code, text, _ = run({0, 1, 2}, "--accuracy-drop", "1")
check(f"cannot be met: {text}", code == 1 and "cannot be met" in text and
      len(text.splitlines()) == 1)


def alone():
    """Four channels differ by less than a step of their scale.  With the
    convolution in float the pooling behind it is not quantized either."""
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        rng = np.random.default_rng(1)
        w = 1 + 1e-4 * rng.normal(size=(4, 2, 3, 3))
        nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
                 helper.make_node("MaxPool", ["c"], ["p"], name="pool",
                                  kernel_shape=[2, 2]),
                 helper.make_node("GlobalAveragePool", ["p"], ["a"]),
                 helper.make_node("Flatten", ["a"], ["y"])]
        f32 = TensorProto.FLOAT
        graph = helper.make_graph(
            nodes, "net",
            [helper.make_tensor_value_info("x", f32, ["N", 2, 8, 8])],
            [helper.make_tensor_value_info("y", f32, ["N", 4])],
            [numpy_helper.from_array(w.astype(np.float32), "w")])
        model = helper.make_model(graph,
                                  opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        onnx.save(model, at("net.onnx"))
        np.save(at("x.npy"), rng.normal(size=(32, 2, 8, 8)).astype(np.float32))
        with open(at("q.yaml"), "w") as f:
            f.write(CONFIG)
        done = subprocess.run(
            [command, "quantize", at("net.onnx"), "-c", at("q.yaml"), "-d",
             at("x.npy"), "-t", "onnxruntime-x86", "-o", at("out.onnx"), "-q",
             "--accuracy-drop", "0"], capture_output=True, text=True)
        check(f"none is left: {done.stderr}", done.returncode == 1 and
              "cannot be met" in done.stderr and
              "none is left" in done.stderr and
              len(done.stderr.splitlines()) == 1)
        check("nothing is written by it", not os.path.exists(at("out.onnx")))


alone()
for word in ("x", "-1", "101", "1%"):
    code, text, _ = run({1}, f"--accuracy-drop={word}")
    check(f"{word}: {text}", code == 2 and "want per cent" in text)


LAYERS = {"Conv", "ConvTranspose"}
OTHERS = {"Relu": {}, "Clip": {}, "MaxPool": {"kernel_shape": [2, 2]},
          "Transpose": {"perm": [0, 1, 3, 2]}}


def apart(path, x):
    """How far results with and without optimization are apart."""
    results = []
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
                  ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        session = ort.InferenceSession(path, options,
                                       providers=["CPUExecutionProvider"])
        results.append(session.run(None, {"v0": x[:1]})[0])
    return np.abs(results[0] - results[1]).max() / np.abs(results[0]).max()


def between(ops):
    """Three layers, of which the second, whose channels differ by 1000, is in
    float, as written and after the file was read again."""
    rng = np.random.default_rng(5)
    w = [rng.normal(size=(8, 8, 1, 1)).astype(np.float32) for _ in range(3)]
    steps = np.logspace(0, -3, 8, dtype=np.float32)
    w[1] *= steps.reshape((1, 8, 1, 1) if "ConvTranspose" in ops
                          else (8, 1, 1, 1))
    w[2] /= steps[None, :, None, None]
    init = [numpy_helper.from_array(m, f"w{i}") for i, m in enumerate(w)]
    init += [numpy_helper.from_array(np.float32(v), n)
             for n, v in (("lo", -1), ("hi", 2))]
    nodes, layers = [], 0
    for i, op in enumerate(ops):
        inputs = [f"v{i}"] + (["lo", "hi"] if op == "Clip" else [])
        if op in LAYERS:
            inputs.append(f"w{layers}")
            layers += 1
        nodes.append(helper.make_node(
            op, inputs, [f"v{i + 1}"], **OTHERS.get(op, {}),
            name=f"layer{layers - 1}" if op in LAYERS else f"other{i}"))
    f32 = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("v0", f32, [1, 8, 6, 6])],
        [helper.make_tensor_value_info(f"v{len(ops)}", f32, None)], init)
    model = helper.make_model(graph,
                              opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    x = rng.normal(size=(8, 8, 6, 6)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        onnx.save(model, at("net.onnx"))
        np.save(at("x.npy"), x)
        with open(at("q.yaml"), "w") as f:
            f.write(CONFIG.replace("per-tensor-sym", "per-channel-sym"))
        quantize = ["-c", at("q.yaml"), "-d", at("x.npy"), "-t",
                    "onnxruntime-x86", "--exclude", "layer1", "-q"]
        for job, source, result, options in (
                ("quantize", "net", "written", quantize),
                ("simplify", "written", "simplified", []),
                ("quantize", "written", "again", quantize)):
            subprocess.run(
                [command, job, at(f"{source}.onnx"), "-o",
                 at(f"{result}.onnx"), *options], check=True,
                capture_output=True)
            far = apart(at(f"{result}.onnx"), x)
            check(f"{' '.join(ops)}, {result}: float in the runtime, too: "
                  f"{far}", far < 0.03)
        with open(at("written.onnx"), "rb") as a, \
                open(at("again.onnx"), "rb") as b:
            check(f"{' '.join(ops)}: read and written again it is the same",
                  a.read() == b.read())


for middle in ("Conv", "ConvTranspose", "Conv Relu MaxPool", "MaxPool Conv",
               "Transpose MaxPool Conv Clip Relu Transpose"):
    between(["Conv", *middle.split(), "Conv"])
print("failed" if failures else "passed")
sys.exit(1 if failures else 0)
