#!/usr/bin/env python3
"""make.py: writes the small models of the command tests (here) and the seeds
of the fuzz target (tests/fuzz/corpus-onnx).  Needs onnx and numpy.

Weights are small whole numbers, so that results are exact on any machine."""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

here = os.path.dirname(os.path.abspath(__file__))
corpus = os.path.join(here, "../../fuzz/corpus-onnx")


def value(name, dtype, shape):
    return h.make_tensor_value_info(name, dtype, shape)


def weight(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def model(nodes, inputs, outputs, weights=(), name="test", opset=17, extra=()):
    graph = h.make_graph(nodes, name, inputs, outputs, list(weights))
    m = h.make_model(graph, producer_name="make.py", opset_imports=[
        h.make_opsetid("", opset)] + [h.make_opsetid(d, 1) for d in extra])
    m.ir_version = 8
    return m


def save(m, name, folder=here):
    data = m if isinstance(m, bytes) else m.SerializeToString()
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)
    return data


def tiny():
    w = np.array([[1, 0, 2, 0], [0, 1, 0, 2], [1, 1, 1, 1]], np.float32)
    nodes = [
        h.make_node("MatMul", ["x", "fc.weight"], ["m"], name="/fc/MatMul"),
        h.make_node("Add", ["m", "fc.bias"], ["a"], name="/fc/Add"),
        h.make_node("Identity", ["a"], ["i"], name="/drop/Identity"),
        h.make_node("Relu", ["i"], ["y"], name="/act/Relu"),
    ]
    return model(nodes, [value("x", T.FLOAT, ["N", 3])],
                 [value("y", T.FLOAT, ["N", 4])],
                 [weight("fc.weight", w),
                  weight("fc.bias", np.array([0, -1, 2, 3], np.float32))],
                 name="tiny")


def names():
    """Names of two columns a character, with tabs and newlines; one module for
    each node; dimensions that are sums."""
    nodes = [h.make_node("Neg", [f"v{i}"], [f"v{i + 1}"], name=f"/\u5c42{i}/Neg")
             for i in range(20)]
    nodes[7].output[0] = nodes[8].input[0] = "a\tb\nc"
    nodes += [h.make_node("Concat", ["\u72b6\u6001", "v20"], ["all"], axis=1,
                          name="/tail/Concat"),
              h.make_node("Add", ["all", "mask"], ["sum"], name="/tail/Add")]
    return model(nodes, [value("v0", T.FLOAT, ["batch", "length"]),
                         value("\u72b6\u6001", T.FLOAT, ["batch", "past"]),
                         value("mask", T.FLOAT, ["batch", "past + length"])],
                 [value("sum", T.FLOAT, ["batch", "past + length"])],
                 name="names")


def two():
    return model([h.make_node("Add", ["a", "b"], ["out/sum"]),
                  h.make_node("Sub", ["a", "b"], ["t"]),
                  h.make_node("Neg", ["t"], ["diff"])],
                 [value("a", T.FLOAT, [2, 2]), value("b", T.FLOAT, [2, 2])],
                 [value("out/sum", T.FLOAT, [2, 2]),
                  value("diff", T.FLOAT, [2, 2])], name="two")


def defaults():
    """An initializer that is listed as an input, too."""
    return model([h.make_node("Add", ["x", "w"], ["y"])],
                 [value("x", T.FLOAT, [2, 2]), value("w", T.FLOAT, [2, 2])],
                 [value("y", T.FLOAT, [2, 2])],
                 [weight("w", np.array([[0, 1], [2, 3]], np.float32))],
                 name="defaults")


def half():
    """Weights, input and output in float16."""
    w = np.array([[1, 0, 2, 0], [0, 1, 0, 2], [1, 1, 1, 1]], np.float16)
    return model([h.make_node("MatMul", ["x", "w"], ["m"], name="fc"),
                  h.make_node("Relu", ["m"], ["y"])],
                 [value("x", T.FLOAT16, ["N", 3])],
                 [value("y", T.FLOAT16, ["N", 4])], [weight("w", w)],
                 name="half")


def bodies():
    """Layers inside an If, one with a weight of its own, and one outside."""
    w = np.array([[1, 2], [3, 4]], np.float32)
    out = value("t", T.FLOAT, ["N", 2])
    then = h.make_graph([h.make_node("MatMul", ["h", "w1"], ["t"],
                                     name="inside")], "then", [], [out],
                        [weight("w1", w)])
    other = h.make_graph([h.make_node("MatMul", ["h", "w2"], ["u"])], "else",
                         [], [value("u", T.FLOAT, ["N", 2])])
    nodes = [h.make_node("MatMul", ["x", "w"], ["h"], name="outside"),
             h.make_node("If", ["c"], ["y"], then_branch=then,
                         else_branch=other)]
    return model(nodes, [value("x", T.FLOAT, ["N", 2]), value("c", T.BOOL, [])],
                 [value("y", T.FLOAT, ["N", 2])],
                 [weight("w", w), weight("w2", w)], name="bodies")


def custom():
    return model([h.make_node("Foo", ["x"], ["t"], domain="com.example",
                              name="foo1", alpha=0.5),
                  h.make_node("Relu", ["t"], ["y"])],
                 [value("x", T.FLOAT, [2])], [value("y", T.FLOAT, [2])],
                 name="custom", extra=["com.example"])


def slow():
    nodes = [h.make_node("MatMul", ["x" if i == 0 else f"m{i - 1}", "x"],
                         [f"m{i}"]) for i in range(400)]
    return model(nodes, [value("x", T.FLOAT, ["N", "N"])],
                 [value("m399", T.FLOAT, ["N", "N"])], name="slow")


def photo():
    """Small RGB images of one size, as photo files give them."""
    w = np.zeros((2, 3, 3, 3), np.float32)
    w[0, :, 1, 1] = [1, 2, 1]
    w[1, 0, :, :] = 1
    return model([h.make_node("Conv", ["x", "w"], ["c"], name="conv"),
                  h.make_node("Relu", ["c"], ["r"], name="act"),
                  h.make_node("GlobalAveragePool", ["r"], ["y"],
                              name="pool")],
                 [value("x", T.FLOAT, ["N", 3, 8, 8])],
                 [value("y", T.FLOAT, ["N", 2, 1, 1])], [weight("w", w)],
                 name="photo")


def nan_weight():
    w = np.array([[1, 0], [0, np.nan], [1, 1]], np.float32)
    return model([h.make_node("MatMul", ["x", "fc.weight"], ["y"],
                              name="fc")],
                 [value("x", T.FLOAT, ["N", 3])],
                 [value("y", T.FLOAT, ["N", 2])], [weight("fc.weight", w)],
                 name="nan_weight")


def nan_inside():
    """The logarithm of a negative number, in the middle."""
    w = np.ones((3, 2), np.float32)
    return model([h.make_node("Log", ["x"], ["log"], name="log"),
                  h.make_node("MatMul", ["log", "fc.weight"], ["y"],
                              name="fc")],
                 [value("x", T.FLOAT, ["N", 3])],
                 [value("y", T.FLOAT, ["N", 2])], [weight("fc.weight", w)],
                 name="nan_inside")


def cnn():
    rng = np.random.default_rng(0)
    f32 = np.float32
    nodes = [
        h.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        h.make_node("BatchNormalization", ["c", "g", "b", "b", "v"], ["n"]),
        h.make_node("Relu", ["n"], ["r"]),
        h.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2],
                    strides=[2, 2]),
        h.make_node("Shape", ["p"], ["s"]),
        h.make_node("Constant", [], ["zero"],
                    value=weight("", np.array(0, np.int64))),
        h.make_node("Gather", ["s", "zero"], ["n0"], axis=0),
        h.make_node("Unsqueeze", ["n0", "axes"], ["n1"]),
        h.make_node("Concat", ["n1", "rest"], ["shape"], axis=0),
        h.make_node("Reshape", ["p", "shape"], ["f"]),
        h.make_node("Gemm", ["f", "fc", "fb"], ["y"], transB=1),
    ]
    return model(nodes, [value("x", T.FLOAT, ["N", 2, 4, 4])],
                 [value("y", T.FLOAT, ["N", 3])],
                 [weight("w", rng.integers(-2, 3, (2, 2, 3, 3)).astype(f32)),
                  weight("g", np.ones(2, f32)), weight("b", np.zeros(2, f32)),
                  weight("v", np.ones(2, f32)),
                  weight("axes", np.array([0], np.int64)),
                  weight("rest", np.array([-1], np.int64)),
                  weight("fc", rng.integers(-2, 3, (3, 8)).astype(f32)),
                  weight("fb", np.zeros(3, f32))], name="cnn", opset=13)


def branches():
    yes = h.make_graph([h.make_node("Neg", ["x"], ["p"])], "yes", [],
                       [value("p", T.FLOAT, [2])])
    no = h.make_graph([h.make_node("Abs", ["x"], ["q"])], "no", [],
                      [value("q", T.FLOAT, [2])])
    return model([h.make_node("If", ["c"], ["y"], then_branch=yes,
                              else_branch=no)],
                 [value("c", T.BOOL, []), value("x", T.FLOAT, [2])],
                 [value("y", T.FLOAT, [2])], name="branches")


def function():
    f = h.make_function("local", "Twice", ["a"], ["b"],
                        [h.make_node("Add", ["a", "a"], ["b"])],
                        [h.make_opsetid("", 17)])
    m = model([h.make_node("Twice", ["x"], ["y"], domain="local")],
              [value("x", T.FLOAT, [2])], [value("y", T.FLOAT, [2])],
              name="function", extra=["local"])
    m.functions.append(f)
    return m


def quantized():
    return model([
        h.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        h.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])],
        [value("x", T.FLOAT, [4])], [value("y", T.FLOAT, [4])],
        [weight("s", np.array(0.5, np.float32)),
         weight("z", np.array(3, np.uint8))], name="quantized")


def field(number, data):
    """One length-delimited protobuf field."""
    size, length = len(data), b""
    while size >= 128:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


def nested(levels):
    """If inside If inside If: deeper than any library would build it."""
    y = value("y", T.FLOAT, [2]).SerializeToString()
    graph = (field(1, h.make_node("Neg", ["x"], ["y"]).SerializeToString())
             + field(2, b"g") + field(12, y))
    for _ in range(levels):
        branches = b"".join(
            field(5, field(1, name) + field(6, body) + b"\xa0\x01\x05")
            for name, body in ((b"then_branch", graph),
                               (b"else_branch", field(2, b"e"))))
        graph = (field(1, field(1, b"c") + field(2, b"y") + field(4, b"If")
                       + branches) + field(2, b"g") + field(12, y))
    graph += field(11, value("c", T.BOOL, []).SerializeToString())
    graph += field(11, value("x", T.FLOAT, [2]).SerializeToString())
    return (b"\x08\x08" + field(7, graph) + field(
        8, h.make_opsetid("", 17).SerializeToString()))


def hostile():
    """Files that break the rules, each in its own way."""
    def one(nodes, inputs=None, weights=()):
        return model(nodes, inputs or [value("x", T.FLOAT, [2])],
                     [value("y", T.FLOAT, None)], weights)
    relu = h.make_node("Relu", ["x"], ["y"])
    yield "cycle", one([h.make_node("Add", ["x", "b"], ["a"]),
                        h.make_node("Neg", ["a"], ["b"]),
                        h.make_node("Neg", ["b"], ["y"])])
    yield "self-loop", one([h.make_node("Add", ["y", "x"], ["y"])])
    yield "missing-input", one([h.make_node("Add", ["x", "nobody"], ["y"])])
    yield "duplicate-output", one([relu, h.make_node("Neg", ["x"], ["y"])])
    yield "negative-dim", one([relu], [value("x", T.FLOAT, [-5, 3])])
    yield "huge-dims", one([relu], [value("x", T.FLOAT, [1 << 40, 1 << 40])])
    yield "many-dims", one([relu], [value("x", T.FLOAT, [1] * 40)])
    bad = weight("w", np.ones(4, np.float32))
    bad.dims[0] = 1 << 60
    yield "short-weight", one([h.make_node("Add", ["x", "w"], ["y"])],
                              weights=[bad])
    bad = weight("w", np.ones(4, np.float32))
    bad.dims[0] = -4
    yield "negative-weight", one([h.make_node("Add", ["x", "w"], ["y"])],
                                 weights=[bad])
    bad = weight("w", np.ones(4, np.float32))
    bad.data_type = 77
    yield "unknown-dtype", one([h.make_node("Add", ["x", "w"], ["y"])],
                               weights=[bad])
    big = weight("s", np.array([1 << 40, 1 << 30], np.int64))
    yield "huge-expand", one([h.make_node("Expand", ["x", "s"], ["y"])],
                             weights=[big])
    yield "huge-constant", one(
        [h.make_node("ConstantOfShape", ["s"], ["y"])], weights=[big])
    w = weight("w", np.ones((1, 1, 3, 3), np.float32))
    x = [value("x", T.FLOAT, [1, 1, 4, 4])]
    for key, attrs in {
            "group": {"group": 1 << 40}, "zero-group": {"group": 0},
            "stride": {"strides": [0, 0]}, "pads": {"pads": [1 << 60] * 4},
            "negative-pads": {"pads": [-9] * 4},
            "dilation": {"dilations": [1 << 31, 1 << 31]},
            "kernel": {"kernel_shape": [1, 1, 1]}}.items():
        yield "conv-" + key, one([h.make_node("Conv", ["x", "w"], ["y"],
                                              **attrs)], x, [w])
    yield "pool-kernel", one([h.make_node("MaxPool", ["x"], ["y"],
                                          kernel_shape=[1 << 40, 2])], x)
    yield "axis", one([h.make_node("Softmax", ["x"], ["y"], axis=99)])
    yield "perm", one([h.make_node("Transpose", ["x"], ["y"],
                                   perm=[5, -1, 0, 0])], x)
    yield "attr-type", one([h.make_node("Softmax", ["x"], ["y"], axis="one")])
    i = weight("i", np.array([1 << 40, -(1 << 40)], np.int64))
    yield "gather-index", one([h.make_node("Gather", ["x", "i"], ["y"])],
                              weights=[i])
    r = weight("r", np.array([-1, -1], np.int64))
    yield "reshape-twice", one([h.make_node("Reshape", ["x", "r"], ["y"])],
                               weights=[r])
    k = weight("k", np.array([1 << 50], np.int64))
    yield "topk", one([h.make_node("TopK", ["x", "k"], ["y", "j"])],
                      weights=[k])
    t = weight("t", np.array([1 << 62, 4], np.int64))
    yield "tile", one([h.make_node("Tile", ["x", "t"], ["y"])], x[:0] or
                      [value("x", T.FLOAT, [2, 2])], [t])
    yield "opset-future", model([relu], [value("x", T.FLOAT, [2])],
                                [value("y", T.FLOAT, [2])], opset=999)
    yield "no-graph", onnx.ModelProto(ir_version=8)
    ext = onnx.TensorProto(name="w", data_type=T.FLOAT, dims=[2],
                           data_location=T.EXTERNAL)
    entry = ext.external_data.add()
    entry.key, entry.value = "location", "../../../etc/passwd"
    yield "external-escape", one([h.make_node("Add", ["x", "w"], ["y"])],
                                 weights=[ext])
    yield "deep", nested(20)
    yield "too-deep", nested(3000)
    f = h.make_function("local", "F", ["a"], ["b"],
                        [h.make_node("F", ["a"], ["b"], domain="local")],
                        [h.make_opsetid("", 17), h.make_opsetid("local", 1)])
    m = model([h.make_node("F", ["x"], ["y"], domain="local")],
              [value("x", T.FLOAT, [2])], [value("y", T.FLOAT, [2])],
              extra=["local"])
    m.functions.append(f)
    yield "recursive-function", m


def qdq():
    """Two quantized convolutions, of which the second has a Relu that its zero
    point does not make redundant, a MaxPool, and a Tanh that nobody needs to
    quantize."""
    nodes, weights = [], []
    rng = np.random.default_rng(3)

    def const(name, array):
        weights.append(onnx.numpy_helper.from_array(array, name))
        return name

    def pair(x, scale, zero):
        s = const(x + "_s", np.float32(scale))
        z = const(x + "_z", np.uint8(zero))
        nodes.append(h.make_node("QuantizeLinear", [x, s, z], [x + "_q"]))
        nodes.append(h.make_node("DequantizeLinear", [x + "_q", s, z],
                                 [x + "_dq"]))
        return x + "_dq"

    def conv(name, x, scale_x, c_in, c_out):
        w = rng.integers(-127, 128, [c_out, c_in, 3, 3]).astype(np.int8)
        sw = rng.uniform(0.01, 0.02, c_out).astype(np.float32)
        const(name + "_w_q", w)
        const(name + "_w_s", sw)
        const(name + "_w_z", np.zeros(c_out, np.int8))
        const(name + "_b_q", rng.integers(-99, 99, c_out).astype(np.int32))
        const(name + "_b_s", np.float32(scale_x) * sw)
        const(name + "_b_z", np.zeros(c_out, np.int32))
        for part in ("_w", "_b"):
            nodes.append(h.make_node(
                "DequantizeLinear",
                [name + part + end for end in ("_q", "_s", "_z")],
                [name + part], axis=0))
        nodes.append(h.make_node("Conv", [x, name + "_w", name + "_b"],
                                 [name + "_y"], name=name, pads=[1] * 4))
        nodes.append(h.make_node("Relu", [name + "_y"], [name + "_r"],
                                 name=name + "_relu"))
        return name + "_r"

    x = pair("x", 0.02, 128)
    x = pair(conv("conv1", x, 0.02, 3, 4), 0.1, 0)
    nodes.append(h.make_node("MaxPool", [x], ["pool"], name="pool",
                             kernel_shape=[2, 2], strides=[2, 2]))
    x = pair("pool", 0.1, 0)
    x = pair(conv("conv2", x, 0.1, 4, 4), 0.3, 128)
    nodes.append(h.make_node("Tanh", [x], ["t"], name="tanh"))
    x = pair("t", 0.01, 128)
    nodes.append(h.make_node("Identity", [x], ["y"]))
    return model(nodes, [value("x", T.FLOAT, [1, 3, 8, 8])],
                 [value("y", T.FLOAT, [1, 4, 4, 4])], weights)


def ratio():
    """A divisor that rounding to integers makes zero."""
    return model([h.make_node("Relu", ["x"], ["r"], name="relu"),
                  h.make_node("Div", ["r", "r"], ["y"], name="ratio")],
                 [value("x", T.FLOAT, ["N", 3])],
                 [value("y", T.FLOAT, ["N", 3])], [])


def uneven():
    """A channel that a small weight makes up for."""
    nodes = [h.make_node("MatMul", ["x", "w"], ["y"], name="fc")]
    return model(nodes, [value("x", T.FLOAT, ["N", 3])],
                 [value("y", T.FLOAT, ["N", 1])],
                 [weight("w", np.array([[1 / 256], [1], [1]], np.float32))])


def shared():
    """A weight that a layer reads, and the body of an If."""
    w = np.arange(48 * 48, dtype=np.float32).reshape(48, 48) % 7 - 3
    then = h.make_graph([h.make_node("MatMul", ["m", "w"], ["t"])], "then", [],
                        [value("t", T.FLOAT, None)])
    other = h.make_graph([h.make_node("Identity", ["m"], ["o"])], "else", [],
                         [value("o", T.FLOAT, None)])
    nodes = [h.make_node("MatMul", ["x", "w"], ["m"], name="fc"),
             h.make_node("If", ["c"], ["y"], name="if", then_branch=then,
                         else_branch=other)]
    return model(nodes, [value("x", T.FLOAT, ["N", 48]),
                         value("c", T.BOOL, [])],
                 [value("y", T.FLOAT, ["N", 48])], [weight("w", w)])


def recurrent():
    nodes = [h.make_node("MatMul", ["x", "w"], ["m"], name="fc"),
             h.make_node("LSTM", ["m", "wx", "wh"], ["y"], name="lstm",
                         hidden_size=2)]
    return model(nodes, [value("x", T.FLOAT, [4, 1, 3])],
                 [value("y", T.FLOAT, [4, 1, 1, 2])],
                 [weight("w", np.eye(3, dtype=np.float32)),
                  weight("wx", np.ones((1, 8, 3), np.float32)),
                  weight("wh", np.ones((1, 8, 2), np.float32))])


def main():
    for make in (tiny, two, names, custom, slow, cnn, branches, qdq, photo,
                 nan_weight, nan_inside, defaults, half, bodies, ratio, uneven,
                 shared, recurrent):
        save(make(), make.__name__ + ".onnx")
    for make in (tiny, two, custom, cnn, branches, function, quantized):
        save(make(), make.__name__ + ".onnx", corpus)
    data = cnn().SerializeToString()
    rng = np.random.default_rng(1)
    for n in (0, 1, 17, len(data) // 3, len(data) - 1):
        save(data[:n], f"cut-{n}.onnx", corpus)
    for k in range(12):
        flipped = bytearray(data)
        for _ in range(1 + k // 4):
            at = int(rng.integers(len(data)))
            flipped[at] ^= 1 << int(rng.integers(8))
        save(bytes(flipped), f"flip-{k}.onnx", corpus)
    for name, m in hostile():
        save(m, f"bad-{name}.onnx", corpus)


sys.exit(main())
