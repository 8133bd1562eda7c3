#!/usr/bin/env python3
"""Errors of layers against their definition, computed with NumPy and ONNX
Runtime.

    test_analyze.py SPARSEBIT

A residual network with random weights is quantized; scales are taken from
`quantize --json -v`, everything else is computed here: the float network and
the quantized one by ONNX Runtime, layer by layer, rounding by NumPy.  Then one
layer is broken, by large and small weights under one scale for all, and must
be the worst of the list, alone and in the quantized network.
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
rng = np.random.default_rng(7)
SAMPLES = 12
failures = 0


def check(what, good):
    global failures
    if not good:
        failures += 1
        print(f"FAIL {what}")


def network(broken=None):
    """Nodes have the names of their results.  The layer with the weight
    `broken` computes the same, but with one scale for all weights most of them
    become zero."""
    init, nodes = [], []
    feeds = {"w2": "w1", "w3": "w2"}

    def weight(name, *shape):
        w = rng.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape)
        if name == broken:  # one input channel counts 100 times as much,
            w[:, 0] *= 100
        if name == feeds.get(broken):  # and gets a hundredth
            w[0] /= 100
        init.append(numpy_helper.from_array(w.astype(np.float32), name))
        return name

    def node(op, inputs, output, **attrs):
        nodes.append(helper.make_node(op, inputs, [output], name=output,
                                      **attrs))
        return output

    pads = {"pads": [1, 1, 1, 1]}
    a = node("Conv", ["x", weight("w1", 8, 3, 3, 3)], "conv1", **pads)
    a = node("Relu", [a], "relu1")
    b = node("Conv", [a, weight("w2", 8, 8, 3, 3)], "conv2", **pads)
    b = node("Relu", [b], "relu2")
    b = node("Conv", [b, weight("w3", 8, 8, 3, 3)], "conv3", **pads)
    b = node("Add", [b, a], "add")
    b = node("Relu", [b], "relu3")
    b = node("GlobalAveragePool", [b], "pool")
    b = node("Flatten", [b], "flat")
    node("Gemm", [b, weight("w4", 5, 8)], "fc", transB=1)
    f32 = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", f32, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("fc", f32, ["N", 5])], init)
    model = helper.make_model(graph,
                              opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def run(*args):
    done = subprocess.run([command, *args], capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout, done.stderr)
        sys.exit(1)
    return json.loads(done.stdout)


def fake_quant(x, q):
    """x_dq by the definition, in float32 as runtimes do it."""
    shape = [1] * x.ndim
    if q["axis"] >= 0:
        shape[q["axis"]] = -1
    scale = np.float32(q["scale"]).reshape(shape)
    zero = np.float32(q["zero_point"]).reshape(shape)
    v = np.clip(np.rint(x / scale) + zero, q["qmin"], q["qmax"])
    return ((v - zero) * scale).astype(np.float32)


def node_run(node, values):
    """One node by ONNX Runtime."""
    f32 = TensorProto.FLOAT
    graph = helper.make_graph(
        [node], "one",
        [helper.make_tensor_value_info(n, f32, values[n].shape)
         for n in node.input],
        [helper.make_tensor_value_info(node.output[0], f32, None)])
    model = helper.make_model(graph,
                              opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    session = ort.InferenceSession(model.SerializeToString(),
                                   providers=["CPUExecutionProvider"])
    return session.run(None, {n: values[n] for n in node.input})[0]


def difference(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    d = ((a - b) ** 2).sum()
    return {"mse": d / a.size,
            "sqnr_db": 10 * np.log10((a ** 2).sum() / d) if d else np.inf,
            "cosine": (a * b).sum() / np.sqrt((a ** 2).sum() * (b ** 2).sum()),
            "largest": np.abs(a - b).max()}


def reference(model, x, quantizers):
    """For each node: what analyze must say."""
    weights = {w.name: numpy_helper.to_array(w)
               for w in model.graph.initializer}
    by_edge = {}
    for q in quantizers:
            by_edge.setdefault(q["value"], []).append(q)
    exact = {"x": x, **weights}
    rounded = {"x": x, **weights}
    want = {}

    def inputs(node, values, w, a):
        out = dict(values)
        on = [False, False]
        for name in node.input:
            for q in by_edge.get(name, []):
                if not node_reads(q, node):
                    continue
                on[0 if name in weights else 1] = True
                if (w if name in weights else a):
                    out[name] = fake_quant(values[name], q)
        return out, on

    for node in model.graph.node:
        exact[node.output[0]] = node_run(node, exact)
        _, on = inputs(node, exact, True, True)
        row = {}
        for key, w, a in (("async", 1, 1), ("weights", 1, 0),
                          ("activations", 0, 1)):
            values, _ = inputs(node, exact, w, a)
            row[key] = difference(exact[node.output[0]],
                                  node_run(node, values))
        values, _ = inputs(node, rounded, True, True)
        rounded[node.output[0]] = node_run(node, values)
        row["sync"] = difference(exact[node.output[0]],
                                 rounded[node.output[0]])
        if any(on):
            row = {k: v for k, v in row.items()
                   if not (k == "weights" and not on[0]) and
                   not (k == "activations" and not on[1])}
            want[node.name] = row
    return want, exact["fc"], rounded["fc"]


def node_reads(q, node):
    """Is the quantizer on an edge to this node?  By its name, which is that of
    the layer; a sum has one for each input."""
    return (q["name"].split(".")[0] == node.name or
            q["name"].startswith(node.name + "_identity"))


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


CONFIG = """SCHEDULE: {{FUSE_BN: true}}
W: {{QSCHEME: {w}, QUANTIZER: {{BIT: {bits}}}}}
A: {{QSCHEME: per-tensor-affine, QUANTIZER: {{BIT: 8}},
    QADD: {{ENABLE_QUANT: true}}}}
"""


def compare(folder, scheme, bits):
    model = network()
    path = os.path.join(folder, "net.onnx")
    config = os.path.join(folder, "q.yaml")
    data = os.path.join(folder, "x.npy")
    onnx.save(model, path)
    with open(config, "w") as f:
        f.write(CONFIG.format(w=scheme, bits=bits))
    x = rng.normal(size=(SAMPLES, 3, 8, 8)).astype(np.float32)
    np.save(data, x)
    common = [path, "-c", config, "-d", data, "--exact", "--json"]
    quantizers = run("quantize", *common, "-v")["quantizers"]
    want, exact, rounded = reference(model, x, quantizers)
    for batch in (1, 5, SAMPLES):
        got = run("analyze", *common, "-b", str(batch))
        rows = {row["name"]: row for row in got["layers"]}
        check(f"{scheme} {bits}: layers {sorted(rows)}, want {sorted(want)}",
              sorted(rows) == sorted(want))
        for name, row in want.items():
            for key, values in row.items():
                for measure, value in values.items():
                    if not np.isfinite(value):
                        continue
                    found = rows[name][key][measure]
                    # A value at the border of two integers may round either
                    # way: a few of thousands.
                    near = abs(found - value) <= 0.02 * abs(value) + 1e-9
                    if measure == "sqnr_db":
                        near = abs(found - value) < 0.1
                    elif measure == "cosine":
                        near = abs(found - value) < 1e-5
                    elif measure == "largest":
                        near = abs(found - value) <= 0.2 * value
                    check(f"{scheme} {bits} batch {batch}: {name} {key} "
                          f"{measure} {found}, want {value}", near)
            check(f"{name}: keys {sorted(rows[name])}",
                  set(row) == set(rows[name]) & {"async", "weights",
                                                 "activations", "sync"})
        p, q = softmax(exact.astype(np.float64)), softmax(
            rounded.astype(np.float64))
        kl = (p * np.log(p / q)).sum(axis=1).mean()
        out = got["outputs"][0]
        check(f"KL {out['kl']}, want {kl}", abs(out["kl"] - kl) < 0.03 * kl)
        check("agreement", out["agreement"] ==
              (exact.argmax(axis=1) == rounded.argmax(axis=1)).mean())


def broken_is_worst(folder):
    path = os.path.join(folder, "broken.onnx")
    config = os.path.join(folder, "broken.yaml")
    with open(config, "w") as f:
        f.write(CONFIG.format(w="per-tensor-symmetric", bits=8))
    for weight, layer in (("w2", "conv2"), ("w3", "conv3")):
        onnx.save(network(weight), path)
        for by in ("async", "async:cosine", "weights", "sync"):
            got = run("analyze", path, "-c", config, "-d",
                      os.path.join(folder, "x.npy"), "--json", "--by", by,
                      "--top", "3")
            names = [row["name"] for row in got["layers"]]
            check(f"{layer} is broken, by {by} the worst are {names}",
                  names[0] == layer)


with tempfile.TemporaryDirectory() as folder:
    compare(folder, "per-channel-symmetric", 8)
    compare(folder, "per-tensor-symmetric", 4)
    broken_is_worst(folder)
print(f"{'FAIL' if failures else 'pass'}: {failures} failures")
sys.exit(1 if failures else 0)
