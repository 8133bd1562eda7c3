#!/usr/bin/env python3
"""Files that quantize activations at each run, or weight-only, are read back
and written again: those of ONNX Runtime's quantize_dynamic, of its optimizer,
of its quantizer for MatMulNBits, and ours.  Written for the same target they
compute the same in ONNX Runtime, and the second time the file is the same byte
by byte; with data the activations are calibrated and the weights stay.

    test_readback_dynamic.py SPARSEBIT
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fixtures
import qdq_common  # exits with 77 if something is missing
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

command = os.path.abspath(sys.argv[1])
rng = np.random.default_rng(7)
node = helper.make_node
check = qdq_common.Checks()


def f(*dims):
    return (rng.normal(size=dims) / np.sqrt(np.prod(dims[1:]))).astype("f4")


# ---- networks ----------------------------------------------------------------

def save(path, nodes, weights, inputs):
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
        [helper.make_tensor_value_info("y", T.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in weights.items()])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 17)]), path)


def convolutions(path):
    same = dict(pads=[1, 1, 1, 1])
    save(path, [
        node("Conv", ["x", "w0", "b0"], ["a"], "c0", strides=[2, 2], **same),
        node("Relu", ["a"], ["r"], "relu"),
        node("Conv", ["r", "w1"], ["c"], "c1", **same),
        node("BatchNormalization", ["c", "g", "b4", "b4", "v"], ["n"], "bn"),
        node("Conv", ["r", "w4", "b4"], ["e"], "c2", group=8, **same),
        node("Add", ["n", "e"], ["k"], "sum"),
        node("Add", ["k", "r"], ["s"], "residual"),
        node("GlobalAveragePool", ["s"], ["p"], "pool"),
        node("Flatten", ["p"], ["fl"], "flat"),
        node("Gemm", ["fl", "w2", "b2"], ["h"], "fc", transB=1),
        node("MatMul", ["h", "w3"], ["m"], "mm"),
        node("Add", ["m", "b3"], ["y"], "add")],
        dict(w0=f(8, 3, 3, 3), b0=f(8, 1)[:, 0], w1=f(8, 8, 3, 3),
             w2=f(12, 8), b2=f(12, 1)[:, 0], w3=f(12, 5), b3=f(5, 1)[:, 0],
             w4=f(8, 1, 3, 3), b4=f(8, 1)[:, 0],
             g=rng.uniform(0.5, 2, 8).astype("f4"),
             v=rng.uniform(0.5, 2, 8).astype("f4")),
        [("x", T.FLOAT, [1, 3, 10, 10])])


def products(path):
    save(path, [
        node("Gather", ["table", "ids"], ["e"], "table"),
        node("Tanh", ["e"], ["t"], "tanh"),
        node("MatMul", ["t", "w0"], ["a"], "m0"),
        node("Add", ["a", "b0"], ["b"], "add"),
        node("Relu", ["b"], ["r"], "relu"),
        node("MatMul", ["r", "w1"], ["c"], "m1"),
        node("Gather", ["c", "first"], ["d"], "first", axis=1),
        node("Gemm", ["d", "w2", "b2"], ["y"], "fc", transB=1, alpha=0.5)],
        dict(table=f(30, 72), w0=f(72, 96), b0=f(96, 1)[:, 0], w1=f(96, 40),
             w2=f(12, 40), b2=f(12, 1)[:, 0],
             first=np.array(0)), [("ids", T.INT64, ["n", "l"])])


def feed_of(path):
    if onnx.load(path).graph.input[0].name == "x":
        return {"x": rng.normal(size=(1, 3, 10, 10)).astype("f4")}
    return {"ids": rng.integers(0, 30, (2, 6))}


def data_of(path):
    if onnx.load(path).graph.input[0].name == "x":
        return "images.yaml"
    return "ids.yaml"


# ---- running -----------------------------------------------------------------

def run(path, feed, plain=True):
    opt = ort.SessionOptions()
    opt.log_severity_level = 3
    opt.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if plain:
        opt.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(path, opt, ["CPUExecutionProvider"]).run(
        None, feed)[0]


def sparsebit(*args):
    return subprocess.run([command, *args], capture_output=True, text=True)


def quantize(what, path, out, *options):
    # Weights of the whole range stay as they are only if the processor may have
    # VNNI; without it this part of the test is skipped.
    done = sparsebit("quantize", path, "-o", out, "--json", "-v",
                     "--reduce-range", "off", *options)
    check(what, done.returncode == 0 and not done.stderr, done.stderr)
    if done.returncode:
        return None
    onnx.checker.check_model(out, full_check=True)
    return {q["name"]: q for q in json.loads(done.stdout)["quantizers"]}


def same(what, a, b):
    with open(a, "rb") as x, open(b, "rb") as y:
        check(what + ": again", x.read() == y.read())


def off(a, b):
    return float(np.abs(a - b).max() / np.abs(b).max())


def ops(path):
    return [n.op_type for n in onnx.load(path).graph.node]


def integers(path):
    """Weights of a file by their sorted bytes: layouts may differ."""
    t = (T.INT8, T.UINT8, T.INT4, T.UINT4)
    return {tuple(sorted(numpy_helper.to_array(i).astype(int).ravel()))
            for i in onnx.load(path).graph.initializer
            if i.data_type in t and np.prod(i.dims) > 32}


def set_level(path, level):
    m = onnx.load(path)
    for n in m.graph.node:
        for a in n.attribute:
            if a.name == "accuracy_level":
                a.i = level
    onnx.save(m, path)


# ---- dynamic -----------------------------------------------------------------

def dynamic_files():
    """Path and whether it is ours, for its target."""
    for make in (convolutions, products):
        name = make.__name__
        path = name + ".onnx"
        make(path)
        for channel in (False, True):
            for kind in (QuantType.QInt8, QuantType.QUInt8):
                out = f"{name}.{kind.name}.{channel}.onnx"
                quantize_dynamic(path, out, per_channel=channel,
                                 weight_type=kind)
                yield out, None
        for target in ("virtual", "onnxruntime-x86"):
            out = f"{name}.ours.{target}.onnx"
            with open("q.yaml", "w") as y:
                y.write("W: {QSCHEME: per-channel-symmetric, QUANTIZER: "
                        "{BIT: 8}}\nA: dynamic\n")
            quantize(out, path, out, "-c", "q.yaml", "-t", target)
            yield out, target
    # What ONNX Runtime's optimizer makes of a file: fused operators.
    opt = ort.SessionOptions()
    opt.log_severity_level = 3
    opt.optimized_model_filepath = "fused.onnx"
    ort.InferenceSession("products.QInt8.True.onnx", opt,
                         ["CPUExecutionProvider"])
    kinds = ops("fused.onnx")
    check("fused.onnx", "DynamicQuantizeMatMul" in kinds or
          "MatMulIntegerToFloat" in kinds, kinds)
    yield "fused.onnx", None


def test_dynamic():
    for path, mine in dynamic_files():
        feed = feed_of(path)
        want = run(path, feed)
        for target in ("virtual", "onnxruntime-x86"):
            what = f"{path} for {target}"
            if quantize(what, path, "o1.onnx", "-t", target) is None:
                continue
            kinds = ops("o1.onnx")
            check(what, "DynamicQuantizeLinear" in kinds, kinds)
            # A code may change where a value lies between two.
            check(what, off(run("o1.onnx", feed), want) < 1e-2,
                  off(run("o1.onnx", feed), want))
            check(what + ": weights", integers(path) == integers("o1.onnx"))
            quantize(what, "o1.onnx", "o2.onnx", "-t", target)
            same(what, "o1.onnx", "o2.onnx")
            if target == mine:
                same(what + ", ours", path, "o1.onnx")
            # The normalization goes into the weight, whose integers stay.
            with open("q.yaml", "w") as y:
                y.write("SCHEDULE: {FUSE_BN: true}\nW: {QSCHEME: per-channel-"
                        "symmetric, QUANTIZER: {BIT: 8}}\nA: dynamic\n")
            quantize(what, path, "o1.onnx", "-t", target, "-c", "q.yaml")
            check(what, "BatchNormalization" not in ops("o1.onnx"))
            check(what + ": weights", integers(path) <= integers("o1.onnx"))
            check(what, off(run("o1.onnx", feed), want) < 1e-2,
                  off(run("o1.onnx", feed), want))
        for target in ("tensorrt", "openvino", "qnn"):
            done = sparsebit("quantize", path, "-t", target, "-o", "o1.onnx")
            check(f"{path} for {target}", done.returncode == 1 and
                  "calibrate" in done.stderr, done.stderr)
        affine = "QUInt8" in path  # which these targets do not have
        for target in ("virtual", "onnxruntime-x86", "tensorrt", "openvino"):
            what = f"{path} calibrated for {target}"
            quantize(what, path, "o1.onnx", "-t", target, "-d", data_of(path))
            kinds = ops("o1.onnx")
            check(what, "QuantizeLinear" in kinds and
                  "DynamicQuantizeLinear" not in kinds, kinds)
            plain = "fused" in path or affine or "ids" in data_of(path)
            check(what + ": weights", plain or
                  integers(path) == integers("o1.onnx"))
            check(what, off(run("o1.onnx", feed), want) < 0.1,
                  off(run("o1.onnx", feed), want))
        info = json.loads(sparsebit("info", path, "--json").stdout)
        acts = info["quantization"]["activations"]
        check(path + ": info", [a["granularity"] for a in acts] ==
              ["at run time"], acts)


# ---- weight-only -------------------------------------------------------------

def nbits_files():
    products("products.onnx")
    for bits in (2, 4, 8):
        for scheme in ("symmetric", "affine"):
            with open("q.yaml", "w") as y:
                y.write(f"W: {{QSCHEME: per-group-{scheme}, QUANTIZER: "
                        f"{{BIT: {bits}, GROUP_SIZE: 32}}}}\nA: none\n")
            for form in ("qdq", "matmulnbits"):
                out = f"ours.{bits}.{scheme}.{form}.onnx"
                quantize(out, "products.onnx", out, "-c", "q.yaml", "-t",
                         "onnxruntime-x86", "--format", form)
                yield out, form
    try:
        from onnxruntime.quantization import matmul_nbits_quantizer as nbits
    except ImportError as error:
        print(f"left out: matmul_nbits_quantizer ({error})")
        return
    import logging
    logging.disable(logging.INFO)
    for bits in (2, 4, 8):
        for symmetric in (False, True):
            for form in ("QOperator", "QDQ"):
                if form == "QDQ" and bits != 4:
                    continue
                q = nbits.MatMulNBitsQuantizer(
                    onnx.load("products.onnx"), bits=bits, block_size=32,
                    is_symmetric=symmetric, accuracy_level=1,
                    quant_format=getattr(nbits.QuantFormat, form))
                q.process()
                out = f"theirs.{bits}.{symmetric}.{form}.onnx"
                q.model.save_model_to_file(out)
                yield out, None


def test_weights():
    for path, mine in nbits_files():
        feed = feed_of(path)
        set_level(path, 1)
        want = run(path, feed)
        set_level(path, 4)
        for target in ("virtual", "onnxruntime-x86", "openvino", "tensorrt"):
            what = f"{path} for {target}"
            if quantize(what, path, "o1.onnx", "-t", target) is None:
                continue
            quantize(what, "o1.onnx", "o2.onnx", "-t", target)
            same(what, "o1.onnx", "o2.onnx")
            if target == "onnxruntime-x86" and mine == "qdq":
                same(what + ", ours", path, "o1.onnx")
            # Affine weights are quantized anew there, at the same width.
            if target != "tensorrt":
                check(what, off(run("o1.onnx", feed), want) < 2e-5,
                      off(run("o1.onnx", feed), want))
        what = path + " packed"
        quantize(what, path, "o1.onnx", "-t", "onnxruntime-x86", "--format",
                 "matmulnbits")
        quantize(what, "o1.onnx", "o2.onnx", "-t", "onnxruntime-x86",
                 "--format", "matmulnbits")
        same(what, "o1.onnx", "o2.onnx")
        if mine == "matmulnbits":
            same(what + ", ours", path, "o1.onnx")
        check(what, "MatMulNBits" in ops("o1.onnx"))
        set_level("o1.onnx", 1)
        check(what, off(run("o1.onnx", feed), want) < 2e-5,
              off(run("o1.onnx", feed), want))
        what = path + " calibrated"
        quantize(what, path, "o1.onnx", "-t", "onnxruntime-x86", "-d",
                 "ids.yaml")
        check(what, "QuantizeLinear" in ops("o1.onnx"))
        check(what, off(run("o1.onnx", feed), want) < 0.1,
              off(run("o1.onnx", feed), want))


def packed_product(path, float_zeros, order):
    """MatMulNBits by hand, with zero points in float or an order of rows."""
    k, n, bits, block = 72, 8, 4, 16
    blocks = -(-k // block)
    arrays = {"b": rng.integers(0, 256, (n, blocks, block * bits // 8))
              .astype(np.uint8),
              "s": rng.uniform(0.01, 0.1, n * blocks).astype("f4")}
    inputs = ["x", "b", "s", "", ""]
    if float_zeros:
        arrays["z"] = rng.uniform(0, 15, n * blocks).astype("f4")
        inputs[3] = "z"
    if order:
        arrays["g"] = rng.permutation(np.arange(k) // block).astype("i4")
        inputs[4] = "g"
    while not inputs[-1]:
        inputs.pop()
    graph = helper.make_graph(
        [helper.make_node("MatMulNBits", inputs, ["y"], "packed",
                          domain="com.microsoft", K=k, N=n, bits=bits,
                          block_size=block, accuracy_level=1)], "packed",
        [helper.make_tensor_value_info("x", T.FLOAT, ["N", k])],
        [helper.make_tensor_value_info("y", T.FLOAT, ["N", n])],
        [numpy_helper.from_array(v, a) for a, v in arrays.items()])
    onnx.save(helper.make_model(
        graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 21),
            helper.make_opsetid("com.microsoft", 1)]), path)


def test_refused_weights():
    """What has no form as integers behind DequantizeLinear; ORT runs it."""
    feed = {"x": rng.normal(size=(5, 72)).astype("f4")}
    for float_zeros, order, why in ((True, False, "zero points that are not"),
                                    (False, True, "with g_idx"),
                                    (True, True, "with g_idx")):
        packed_product("never.onnx", float_zeros, order)
        run("never.onnx", feed)
        done = sparsebit("quantize", "never.onnx", "-o", "o1.onnx", "-q")
        check("never.onnx", done.returncode == 1 and
              "node 'packed' is a MatMulNBits " in done.stderr and
              why in done.stderr, done.stderr)


def main():
    np.save("x.npy", rng.normal(size=(64, 3, 10, 10)).astype("f4"))
    np.save("ids.npy", rng.integers(0, 30, (64, 6)))
    for name, source in (("images", "x"), ("ids", "ids")):
        with open(name + ".yaml", "w") as out:
            out.write(f"SOURCE: npy\nPATH: {source}.npy\n")
    if fixtures.saturates():
        print(f"skip dynamic: {fixtures.SATURATES}")
    else:
        test_dynamic()
    test_weights()
    test_refused_weights()
    return check.end()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        code = main()
        os.chdir("/")
    sys.exit(code)
