"""Random quantized models: of one node, and of what follows convolutions."""
import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper

MS = "com.microsoft"
BYTES = (np.uint8, np.int8)
NP_TO_ONNX = {
    np.dtype(np.float32): T.FLOAT, np.dtype(np.float16): T.FLOAT16,
    np.dtype(np.uint8): T.UINT8, np.dtype(np.int8): T.INT8,
    np.dtype(np.uint16): T.UINT16, np.dtype(np.int16): T.INT16,
    np.dtype(np.int32): T.INT32, np.dtype(np.int64): T.INT64,
    np.dtype(np.bool_): T.BOOL,
}


class Maker:
    """Random values, and models of one node."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def pick(self, *options):
        return options[self.rng.integers(len(options))]

    def floats(self, *shape, spread=3.0, dtype=np.float32):
        return (self.rng.standard_normal(shape) * spread).astype(dtype)

    def ints(self, dtype, *shape):
        info = np.iinfo(dtype)
        return self.rng.integers(info.min, info.max + 1, shape).astype(dtype)

    def scale(self, *shape, lo=0.005, hi=0.1, dtype=np.float32):
        return self.rng.uniform(lo, hi, shape).astype(dtype)

    def size(self, lo, hi):
        return int(self.rng.integers(lo, hi + 1))

    def model(self, op, inputs, out_type, domain="", opset=21, const=(),
              nodes=(), outputs=("y",), **attrs):
        """`inputs`: arrays, None where absent; `const`: indices that become
        initializers."""
        names, feeds, infos, inits = [], {}, [], []
        for i, value in enumerate(inputs):
            if value is None:
                names.append("")
                continue
            names.append(f"x{i}")
            if isinstance(value, onnx.TensorProto):
                value.name = names[-1]
                inits.append(value)
                continue
            value = np.asarray(value)
            if i in const:
                inits.append(onnx.numpy_helper.from_array(value, names[-1]))
            else:
                infos.append(helper.make_tensor_value_info(
                    names[-1], NP_TO_ONNX[value.dtype], value.shape))
                feeds[names[-1]] = value
        types = out_type if isinstance(out_type, (list, tuple)) else [out_type]
        node = helper.make_node(op, names, list(outputs), domain=domain, **attrs)
        final = nodes[-1].output if nodes else outputs
        graph = helper.make_graph(
            [node, *nodes], op, infos,
            [helper.make_tensor_value_info(n, t, None)
             for n, t in zip(final, types)], inits)
        return helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]), feeds


def after_conv(m):
    """What reads images as convolutions leave them, one after another: every
    result is compared."""
    dtype = m.pick(*BYTES)
    kind, inits, nodes = NP_TO_ONNX[np.dtype(dtype)], [], []
    n, c, c_out = m.size(1, 2), m.size(1, 20), m.size(1, 70)
    h, w = m.size(3, 9), m.size(3, 9)

    def const(value):
        inits.append(onnx.numpy_helper.from_array(value, f"c{len(inits)}"))
        return inits[-1].name

    def params(lo=0.02, hi=0.1):
        return [const(m.scale(lo=lo, hi=hi)), const(m.ints(dtype))]

    def add(op, out, inputs, domain=MS, **attrs):
        nodes.append(helper.make_node(op, inputs, [out], domain=domain, **attrs))

    q = {name: params() for name in ("x", "a", "b", "sum", "mean", "mul")}
    for name in ("a", "b"):
        q[name] = params(1, 3)
        add("QLinearConv", name,
            ["x", *q["x"], const(m.ints(np.int8, c_out, c, 3, 3)),
             const(m.scale(c_out)), const(np.zeros(c_out, np.int8)), *q[name]],
            "", pads=[1, 1, 1, 1])
    add("QLinearAdd", "sum", ["a", *q["a"], "b", *q["b"], *q["sum"]])
    add("QLinearGlobalAveragePool", "mean", ["sum", *q["sum"], *q["mean"]])
    add("QLinearMul", "mul", ["sum", *q["sum"], "mean", *q["mean"], *q["mul"]])
    add("QLinearConcat", "cat", [*q["a"], "mul", *q["mul"], "a", *q["a"]], axis=1)
    add("QLinearSigmoid", "sig", ["cat", *q["a"], *q["b"]])
    add("QLinearLeakyRelu", "leaky", ["cat", *q["a"], *q["b"]], alpha=0.2)
    add("QLinearAveragePool", "pool", ["cat", *q["a"], *q["b"]],
        kernel_shape=[2, 3], strides=[1, 2], pads=[0, 1, 1, 1])
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, [n, c, h, w])],
        [helper.make_tensor_value_info(o, kind, None) for o in (
            "a", "sum", "mean", "mul", "cat", "sig", "leaky", "pool")], inits)
    yield helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]), {
            "x": m.ints(dtype, n, c, h, w)}
