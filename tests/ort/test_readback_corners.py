#!/usr/bin/env python3
"""Small graphs on which reading a quantized file, or writing one, went wrong
once: results before and after in ONNX Runtime, without its optimizer where the
Q/DQ nodes themselves are in question.

    test_readback_corners.py SPARSEBIT
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import qdq_common  # exits with 77 if something is missing
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

command = os.path.abspath(sys.argv[1])
rng = np.random.default_rng(5)
node = helper.make_node
check = qdq_common.Checks()


def f(*v):
    return np.array(v[0] if len(v) == 1 else v, np.float32)


def save(name, nodes, inputs, outputs, constants, elem=TensorProto.FLOAT):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "corner", [info(n, elem, s) for n, s in inputs.items()],
        [info(n, elem, s) for n, s in outputs.items()],
        [numpy_helper.from_array(v, k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 17)]), name)


def run(path, feed, plain=True):
    opt = ort.SessionOptions()
    opt.log_severity_level = 3
    if plain:
        opt.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(path, opt, ["CPUExecutionProvider"])
    return session.run(None, feed)


def quantize(*args):
    return subprocess.run([command, "quantize", *args, "-o", "out.onnx", "-q"],
                          capture_output=True, text=True)


def same_after(name, feed, target, most=0.0):
    """Read and written again, the file computes the same."""
    done = quantize(name, "-t", target)
    check(f"{name} {target}", done.returncode == 0, done.stderr)
    if done.returncode:
        return
    off = max(float(np.abs(a - b).max())
              for a, b in zip(run(name, feed), run("out.onnx", feed)))
    check(f"{name} {target}", off <= most, "off by", off)


def qdq(x, y, scale, zero):
    return [node("QuantizeLinear", [x, scale, zero], [y + "_q"]),
            node("DequantizeLinear", [y + "_q", scale, zero], [y])]


def weights_of(name):
    return {i.name: numpy_helper.to_array(i)
            for i in onnx.load(name).graph.initializer}


def test_weights(image, result, same, w, feed):
    """What becomes of integers."""
    ints = rng.integers(-7, 8, w.shape, np.int8)
    byte = np.array(0, np.int8)
    scales = f(0.1, 0.2, 0.3, 0.4)

    # Few numbers of int8 are int8 all the same.
    save("few.onnx", qdq("x", "d", "s", "m") +
         [node("DequantizeLinear", ["k", "t", "i"], ["kd"]),
          node("Conv", ["d", "kd"], ["y"], **same)], image, result,
         dict(k=ints, s=f(0.05), t=f(0.02), i=byte, m=np.array(128, np.uint8)))
    same_after("few.onnx", feed, "virtual")
    types = {i.name: i.data_type for i in onnx.load("out.onnx").graph.initializer}
    check("few", TensorProto.INT4 not in types.values(), types)

    # Per-channel scales, one zero point.
    save("channels.onnx", [
        node("QuantizeLinear", ["x", "s", "m"], ["q"]),
        node("QLinearConv", ["q", "s", "m", "k", "t", "i", "u", "m"], ["r"],
             **same),
        node("DequantizeLinear", ["r", "u", "m"], ["y"])], image, result,
        dict(k=ints, s=f(0.05), t=scales, i=byte, u=f(0.3),
             m=np.array(128, np.uint8)))
    for target in ("virtual", "onnxruntime-x86"):
        same_after("channels.onnx", feed, target, 0.31)
        check("channels " + target, any(
            np.array_equal(v, ints) for v in weights_of("out.onnx").values()))

    # A normalization behind the layer multiplies scales, not integers.
    save("normal.onnx", qdq("x", "d", "s", "m") +
         [node("DequantizeLinear", ["k", "t", "i4"], ["kd"], axis=0),
          node("Conv", ["d", "kd"], ["c"], **same),
          node("BatchNormalization", ["c", "g", "b", "e", "v"], ["y"])],
         image, result,
         dict(k=ints, s=f(0.05), t=scales, i4=np.zeros(4, np.int8), g=f(
             0.5, 2, 3, 1), b=f(1, 2, 3, 4), e=f(0, 1, 0, 1), v=f(1, 2, 3, 4),
             m=np.array(128, np.uint8)))
    for target in ("virtual", "onnxruntime-x86"):
        same_after("normal.onnx", feed, target, 1e-4 if target == "virtual"
                   else 0.5)
        kinds = [n.op_type for n in onnx.load("out.onnx").graph.node]
        check("normal " + target, "BatchNormalization" not in kinds, kinds)
        check("normal " + target, any(
            np.array_equal(v, ints) for v in weights_of("out.onnx").values()))

    # A table of 4 bit: bytes for ONNX Runtime, with the same numbers.
    info = helper.make_tensor_value_info
    table = rng.integers(-7, 8, (6, 8), np.int8)
    graph = helper.make_graph(
        [node("DequantizeLinear", ["k", "t", "i"], ["kd"], axis=0),
         node("Gather", ["kd", "ids"], ["y"])], "table",
        [info("ids", TensorProto.INT64, ["n"])],
        [info("y", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor("k", TensorProto.INT4, [6, 8], table.ravel()),
         helper.make_tensor("i", TensorProto.INT4, [6], np.zeros(6, int)),
         numpy_helper.from_array(f(rng.uniform(0.1, 1, 6)), "t")])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21)]), "table.onnx")
    for target in ("virtual", "onnxruntime-x86"):
        same_after("table.onnx", {"ids": np.array([3, 0, 5])}, target)
        check("table " + target, any(
            np.array_equal(v.astype(int), table)
            for v in weights_of("out.onnx").values()))


def test_joined(image, same, w):
    """Joined at a scale of its own beside a reader with another, in whatever
    order: written again it is the same."""
    first = [node("Conv", ["x", "w"], ["a"], "c0", **same),
             node("Relu", ["a"], ["r"], "relu")]
    conv = node("Conv", ["r", "w1"], ["b"], "c1", **same)
    last = [node("Conv", ["j", "w2"], ["c"], "c2", **same),
            node("Add", ["b", "c"], ["s"], "sum"),
            node("Conv", ["s", "w1"], ["y"], "c3", **same)]
    orders = {
        "before": [node("Concat", ["r", "x"], ["j"], "j", axis=1), conv],
        "behind": [conv, node("Concat", ["r", "x"], ["j"], "j", axis=1)],
        "both": [conv, node("Concat", ["r", "b"], ["j"], "j", axis=1)],
    }
    for name, middle in orders.items():
        width = 8 if name == "both" else 7
        save("join.onnx", first + middle + last, image, {"y": [1, 4, 8, 8]},
             dict(w=w, w1=f(rng.normal(size=(4, 4, 3, 3))),
                  w2=f(rng.normal(size=(4, width, 3, 3)))))
        for target in ("openvino", "tensorrt", "onnxruntime-x86", "qnn"):
            done = quantize("join.onnx", "-d", "data.yaml", "-t", target)
            check(f"join {name} {target}", done.returncode == 0, done.stderr)
            os.replace("out.onnx", "once.onnx")
            done = quantize("once.onnx", "-t", target)
            check(f"join {name} {target}", done.returncode == 0, done.stderr)
            with open("once.onnx", "rb") as a, open("out.onnx", "rb") as b:
                check(f"join {name} {target}", a.read() == b.read(), "differs")
            # Nothing is joined there: both scales stay.
            same_after("once.onnx", {"x": np.load("x.npy")[:1]}, "virtual")


def test_two_readers(image, result, same, w, feed):
    """A value with a narrow scale for one reader and a wide one for another:
    the narrow one must not cut off what the other reads."""
    mid = np.array(128, np.uint8)
    point = f(rng.normal(size=(4, 4, 1, 1)) * 0.01)
    for order in ("narrow first", "wide first"):
        pairs = [qdq("a", "n", "s", "z"), qdq("a", "b", "t", "z")]
        save("readers.onnx", qdq("x", "xd", "t", "z") +
             [node("Conv", ["xd", "w"], ["a"], "c0", **same)] +
             sum(pairs if order == "narrow first" else pairs[::-1], []) +
             [node("Conv", ["n", "w1"], ["c"], "c1")] + qdq("c", "cd", "t", "z") +
             [node("Add", ["cd", "b"], ["u"], "sum")] + qdq("u", "y", "t", "z"),
             image, result, dict(w=w, w1=point, s=f(0.001), t=f(0.03), z=mid))
        size = float(np.abs(run("readers.onnx", feed)[0]).max())
        same_after("readers.onnx", feed, "virtual")
        for target in ("onnxruntime-x86", "qnn", "openvino", "tensorrt"):
            same_after("readers.onnx", feed, target, 0.05 * size)


def main():
    image = {"x": [1, 3, 8, 8]}
    result = {"y": [1, 4, 8, 8]}
    same = dict(pads=[1, 1, 1, 1])
    w = f(rng.normal(size=(4, 3, 3, 3)) * 0.2)
    point = f(rng.normal(size=(4, 4, 1, 1)))
    mid, zero = np.array(128, np.uint8), np.array(0, np.uint8)
    feed = {"x": f(rng.normal(size=(1, 3, 8, 8)))}
    np.save("x.npy", f(rng.normal(size=(4, 3, 8, 8))))
    with open("data.yaml", "w") as out:
        out.write("SOURCE: npy\nPATH: x.npy\n")

    # A Clip that means what it says is not a width.
    for name, lo, hi, z in (("clip.onnx", -0.2, 0.2, mid),
                            ("relu6.onnx", 0, 6, zero)):
        save(name, [node("Conv", ["x", "w"], ["c"], **same),
                    node("Clip", ["c", "lo", "hi"], ["k"])] +
             qdq("k", "d", "s", "z") + [node("Conv", ["d", "w1"], ["y"])],
             image, result, dict(w=w * 20, w1=point, lo=f(lo), hi=f(hi),
                                 s=f(0.05), z=z))
        same_after(name, feed, "virtual")

    # One value, two zero points; one constant, two scales.
    save("two_zeros.onnx", qdq("x", "a", "s", "z") + qdq("x", "b", "s", "m") +
         [node("Conv", ["a", "w"], ["y"], **same),
          node("Conv", ["b", "w"], ["y2"], **same)],
         image, {**result, "y2": [1, 4, 8, 8]},
         dict(w=w, s=f(0.02), z=zero, m=mid))
    same_after("two_zeros.onnx", feed, "virtual")
    i = np.array(0, np.int8)
    save("two_scales.onnx", qdq("w", "a", "s", "i") + qdq("w", "b", "t", "i") +
         [node("Conv", ["x", "a"], ["y"], **same),
          node("Conv", ["x", "b"], ["y2"], **same)],
         image, {**result, "y2": [1, 4, 8, 8]},
         dict(w=w, s=f(0.03), t=f(0.001), i=i))
    same_after("two_scales.onnx", feed, "virtual")

    test_two_readers(image, result, same, w, feed)

    # A Q before an output of the graph stays.
    save("result.onnx", qdq("x", "a", "s", "m") +
         [node("Conv", ["a", "w"], ["c"], **same)] + qdq("c", "y", "t", "m"),
         image, result, dict(w=w, s=f(0.05), t=f(0.3), m=mid))
    same_after("result.onnx", feed, "virtual")

    # a constant with per-channel scales, joined where one scale must do.
    save("joined.onnx", [node("Conv", ["x", "w"], ["c"], **same)] +
         qdq("c", "d", "s", "i") +
         [node("DequantizeLinear", ["k", "ks", "kz"], ["kd"], axis=1),
          node("Concat", ["d", "kd"], ["j"], axis=1)] +
         qdq("j", "jd", "t", "i") + [node("Conv", ["jd", "w2"], ["y"], **same)],
         image, result,
         dict(w=w, w2=f(rng.normal(size=(4, 8, 3, 3)) * 0.2), s=f(0.1),
              t=f(0.3), i=i, k=rng.integers(-99, 99, (1, 4, 8, 8), np.int8),
              ks=f(0.1, 0.2, 0.3, 0.4), kz=np.zeros(4, np.int8)))
    for target in ("openvino", "tensorrt", "onnxruntime-x86"):
        done = quantize("joined.onnx", "-t", target)
        check("joined " + target, done.returncode == 0, done.stderr)

    # Layers that share a weight, one of them with a bias that is large beside
    # the products: ONNX Runtime takes any bias scale below 1e-6.
    silent = w.copy()
    silent[1] = 0
    save("tied.onnx", [node("Conv", ["x", "w", "b"], ["y"], **same),
                       node("Conv", ["x", "w", "c"], ["y2"], **same)],
         image, {**result, "y2": [1, 4, 8, 8]},
         dict(w=silent, b=f(0, 0, 0, 0), c=f(0, 50, 0, 0)))
    np.save("small.npy", f(rng.normal(size=(4, 3, 8, 8)) * 0.01))
    with open("small.yaml", "w") as out:
        out.write("SOURCE: npy\nPATH: small.npy\n")
    done = quantize("tied.onnx", "-d", "small.yaml", "-t", "onnxruntime-x86")
    check("tied", done.returncode == 0, done.stderr)
    y = run("out.onnx", {"x": feed["x"] * f(0.01)}, plain=False)[1]
    check("tied", abs(float(y[0, 1].mean()) - 50) < 0.5, y[0, 1].mean())

    # An input whose batch is open stays so beside one that is fixed.
    save("batch.onnx", [node("Conv", ["x", "w"], ["c"], **same),
                        node("Concat", ["c", "e"], ["y"], axis=1)],
         {"x": ["N", 3, 8, 8], "e": [1, 4, 8, 8]}, {"y": [1, 8, 8, 8]},
         dict(w=w))
    np.savez("two.npz", x=f(np.ones((4, 3, 8, 8))), e=f(np.ones((4, 4, 8, 8))))
    with open("two.yaml", "w") as out:
        out.write("SOURCE: npz\nPATH: two.npz\nBATCH: 1\n")
    done = quantize("batch.onnx", "-d", "two.yaml")
    check("batch", done.returncode == 0, done.stderr)
    if done.returncode == 0:
        shape = onnx.load("out.onnx").graph.input[0].type.tensor_type.shape
        check("batch", shape.dim[0].dim_param == "N", shape.dim[0])

    # Half precision is widened; inputs and outputs keep their types.
    save("half.onnx", [node("Conv", ["x", "w"], ["y"], **same)], image, result,
         dict(w=w.astype(np.float16)), TensorProto.FLOAT16)
    done = quantize("half.onnx", "-d", "data.yaml")
    check("half", done.returncode == 0,
          done.stderr)
    if done.returncode == 0:
        g = onnx.load("out.onnx").graph
        check("half", all(v.type.tensor_type.elem_type == TensorProto.FLOAT16
                          for v in (g.input[0], g.output[0])))

    # Data that is given is read where the file has no scale.
    save("weights.onnx", [node("DequantizeLinear", ["k", "s", "i"], ["kd"]),
                          node("Conv", ["x", "kd"], ["y"], **same)], image,
         result, dict(k=rng.integers(-99, 99, w.shape, np.int8), s=f(0.01),
                      i=i))
    done = quantize("weights.onnx", "-d", "data.yaml", "-t", "onnxruntime-x86")
    check("weights", done.returncode == 0 and not done.stderr, done.stderr)
    kinds = [n.op_type for n in onnx.load("out.onnx").graph.node]
    check("weights", kinds.count("QuantizeLinear") == 2, kinds)
    test_weights(image, result, same, w, feed)
    test_joined(image, same, w)
    return check.end()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        code = main()
        os.chdir("/")
    sys.exit(code)
