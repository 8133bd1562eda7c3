#!/usr/bin/env python3
"""Networks in float16 get what those in float32 get.

usage: test_half.py COMMAND

examples/fashion_mnist.onnx is converted here: once as a whole, once with inputs
and outputs that stay float32.  Without a configuration the same steps are tried
and their gains measured, and ONNX Runtime says that the file is as near to the
float network as that of the float32 network is, and nearer than one that only
has ranges.  Blocks are learned to the last layer, search and analyze compare,
and what is trained with quantizers has a loss, as in float32.

Exits 77 if onnx or onnxruntime is not there."""
import json
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

command = os.path.abspath(sys.argv[1])
NETWORK = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       "../../examples/fashion_mnist.onnx")
CONFIG = """BACKEND: onnxruntime
SCHEDULE: {BLOCKWISE: {STEPS: 4}}
W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}
A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}
"""
failed = 0


def check(what, good, more=""):
    global failed
    if not good:
        failed += 1
        print(f"FAILED: {what} {more}")


def halve_constants(graph):
    tensors = list(graph.initializer)
    tensors += [a.t for n in graph.node for a in n.attribute if a.HasField("t")]
    for t in tensors:
        if t.data_type == T.FLOAT:
            t.CopyFrom(numpy_helper.from_array(
                numpy_helper.to_array(t).astype(np.float16), t.name))


def halve(path, whole):
    """All that is float32 becomes float16; unless `whole`, between Casts."""
    model = onnx.load(NETWORK)
    graph = model.graph
    halve_constants(graph)
    del graph.value_info[:]
    x, y = graph.input[0], graph.output[0]
    if whole:
        x.type.tensor_type.elem_type = T.FLOAT16
        y.type.tensor_type.elem_type = T.FLOAT16
    else:
        for node in graph.node:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name in (x.name, y.name):
                        names[i] = name + "_half"
        graph.node.insert(0, helper.make_node(
            "Cast", [x.name], [x.name + "_half"], to=T.FLOAT16))
        graph.node.append(helper.make_node(
            "Cast", [y.name + "_half"], [y.name], to=T.FLOAT))
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def images(rng, n):
    """Smooth noise: what neighbors have in common is what networks look for."""
    x = rng.standard_normal((n, 1, 34, 34))
    for axis in (2, 3):
        for _ in range(3):
            first = [slice(None)] * 4
            second = list(first)
            first[axis], second[axis] = slice(1, None), slice(None, -1)
            x = x[tuple(first)] + x[tuple(second)]
        first[axis] = slice(0, 28)
        x = x[tuple(first)]
    return (x / x.std()).astype(np.float32)


def run(path, x):
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    kind = np.float16 if given.type == "tensor(float16)" else np.float32
    y = session.run(None, {given.name: x.astype(kind)})[0]
    return kind, y.dtype, y.astype(np.float64)


def call(*arguments):
    done = subprocess.run([command, *arguments], capture_output=True, text=True)
    check(f"{arguments[0]} {os.path.basename(arguments[1])}",
          done.returncode == 0, done.stderr)
    return done


def quantized(at, name, *options):
    done = call("quantize", at(name), "-d", at("x.yaml"), "-o", at("out.onnx"),
                "--json", *options)
    return json.loads(done.stdout)


def noise(want, got):
    return ((want - got) ** 2).sum() / (want ** 2).sum()


def check_default(at, test):
    """Steps, and what ONNX Runtime says of the file."""
    want = run(NETWORK, test)[2]
    errors = {}
    for name in ("f32.onnx", "whole.onnx", "inner.onnx"):
        found = quantized(at, name, "-t", "onnxruntime-x86")
        steps = {s["name"] for s in found["steps"]}
        measured = all(s["error_before"] > 0 and s["error_after"] > 0
                       for s in found["steps"])
        check(f"{name}: steps", measured and
              {"rounding of weights", "bias correction"} <= steps, found)
        kind, made, y = run(at("out.onnx"), test)
        check(f"{name}: types", kind == made == (
            np.float16 if name == "whole.onnx" else np.float32))
        errors[name] = noise(want, y)
        quantized(at, name, "-t", "onnxruntime-x86", "--preset", "fast")
        fast = noise(want, run(at("out.onnx"), test)[2])
        check(f"{name}: default", errors[name] < 0.9 * fast,
              f"{errors[name]} of {fast}")
    for name in ("whole.onnx", "inner.onnx"):
        check(f"{name}: as float32", errors[name] < 1.25 * errors["f32.onnx"],
              errors)


def results(at, name):
    """Of the commands that compare outputs, or have a loss of them."""
    some = [at(name), "-d", at("x.yaml"), "--json"]
    blocks = quantized(at, name, "-c", at("q.yaml"), "-t", "onnxruntime-x86")
    search = json.loads(call("search", *some, "-o", at("s.yaml"), "--budget",
                             "bits:5").stdout)
    analyze = json.loads(call("analyze", *some).stdout)
    train = json.loads(call(
        "train", *some, "-c", at("q.yaml"), "-t", "onnxruntime-x86", "--set",
        "EPOCHS=1", "-o", at(name + ".trained.onnx")).stdout)
    layers = [s["layers"] for s in blocks["steps"]
              if s["name"] == "learning of blocks"]
    return layers, search["error"], analyze, train


def check_others(at):
    a, b = results(at, "f32.onnx"), results(at, "whole.onnx")
    check("blocks", a[0] == b[0] and len(b[0]) == 1, (a[0], b[0]))
    check("search", 0 < b[1] < 2 * a[1], (a[1], b[1]))
    (a_out,), (b_out,) = a[2]["outputs"], b[2]["outputs"]
    check("analyze", abs(a_out["difference"]["sqnr_db"] -
                         b_out["difference"]["sqnr_db"]) < 2 and
          0 < b_out["kl"] < 3 * a_out["kl"], (a_out, b_out))
    check("train", 0.5 * a[3]["loss"] < b[3]["loss"] < 2 * a[3]["loss"] and
          b[3]["check_agreement"] > 0.9, (a[3], b[3]))


def main():
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        def at(name):
            return os.path.join(folder, name)
        halve(at("whole.onnx"), True)
        halve(at("inner.onnx"), False)
        onnx.save(onnx.load(NETWORK), at("f32.onnx"))
        x = images(rng, 48)
        np.save(at("x.npy"), x)
        np.save(at("labels.npy"), run(NETWORK, x)[2].argmax(1))
        with open(at("x.yaml"), "w") as f:
            f.write("SOURCE: npy\nPATH: x.npy\nLABELS: labels.npy\nBATCH: 4\n")
        with open(at("q.yaml"), "w") as f:
            f.write(CONFIG)
        check_default(at, images(rng, 256))
        check_others(at)
    print("failed" if failed else "all good")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
