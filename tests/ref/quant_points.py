"""Where a network has quantizers, and what they see: read off the ONNX file
and computed by ONNX Runtime, without our own code.

Good for networks of Conv, BatchNormalization, Relu, Add, pooling and Gemm: the
residual networks that the tests use.  The rules: BatchNormalization is folded
into the convolution before it; convolutions and Gemm have a quantizer on their
input and on their weight (output channel first); global average pooling has one on
its input; Add has one on each input (QADD.ENABLE_QUANT); Relu always follows a
convolution or an Add here, so its own is switched off.
"""
import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

import observers


class Point:
    """One quantizer.  `node` is the ONNX node that it belongs to, `slot` the
    number of the input, `value` the tensor that it sees; of weights `weight`
    is the array, BatchNormalization folded in."""

    def __init__(self, node, slot, value, weight=None):
        self.node, self.slot, self.value = node, slot, value
        self.weight = weight
        self.path = ""  # module path, where names tell one

    @property
    def kind(self):
        return "activation" if self.weight is None else "weight"

    def __repr__(self):
        return f"{self.node.name or self.node.output[0]}.{self.kind}{self.slot}"


def module_path(node, constants):
    """From the name of the weight: `layer1.0.conv1.weight`."""
    for name in node.input:
        if name in constants and name.endswith(".weight"):
            return name[:-len(".weight")]
    return ""


def fold_bn(weight, bn, constants):
    gamma, var = (constants[bn.input[i]].astype(np.float64) for i in (1, 4))
    eps = next((a.f for a in bn.attribute if a.name == "epsilon"), 1e-5)
    factor = gamma / np.sqrt(var + eps)
    return weight * factor.reshape(-1, *[1] * (weight.ndim - 1))


def find(model):
    """All points in topological order; inputs of a node before its weight."""
    constants = {t.name: numpy_helper.to_array(t)
                 for t in model.graph.initializer}
    consumers = {}
    for node in model.graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node)
    points = []
    for node in model.graph.node:
        path = module_path(node, constants)
        first = len(points)
        if node.op_type in ("Conv", "Gemm"):
            weight = constants[node.input[1]].astype(np.float64)
            after = consumers.get(node.output[0], [])
            if len(after) == 1 and after[0].op_type == "BatchNormalization":
                weight = fold_bn(weight, after[0], constants)
            points.append(Point(node, 0, node.input[0]))
            points.append(Point(node, 1, node.input[1], weight))
        elif node.op_type == "Add":
            points += [Point(node, i, node.input[i]) for i in (0, 1)]
        elif node.op_type == "GlobalAveragePool":
            points.append(Point(node, 0, node.input[0]))
        for point in points[first:]:
            point.path = path
    return points


def activations(model, points, samples):
    """What each activation point sees: value name -> list of samples.  The model
    is run sample by sample."""
    entry = model.graph.input[0].name
    wanted = sorted({s.value for s in points if s.weight is None} - {entry})
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    copy.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(v) for v in wanted)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(copy.SerializeToString(), options,
                                   providers=["CPUExecutionProvider"])
    seen = {v: [] for v in wanted}
    seen[entry] = list(samples)
    for sample in samples:
        for v, y in zip(wanted, session.run(wanted, {entry: sample[None]})):
            seen[v].append(y[0])
    return seen


def scope(name):
    """`layer1.0.conv1` of a node named `/layer1/layer1.0/conv1/Conv`."""
    parts = name.split("/")[1:-1]
    out = []
    for part in parts:
        out.append(part.rsplit(".", 1)[1] if "." in part else part)
    return ".".join(out)


def match(point, table):
    """The command's entry for a point: quantizers are named by the module, or
    by the node where several nodes share it."""
    end = (".weight_quantizer" if point.weight is not None else
           f"_identity{point.slot}.input_quantizer"
           if point.node.op_type == "Add" else ".input_quantizer")
    for base in (point.path, scope(point.node.name), point.node.name,
                 point.node.output[0]):
        if base and base + end in table:
            return table[base + end]
    return None


def read_json(quantizers):
    """The command's list: name -> entry with arrays; those that are switched
    off are left out."""
    table = {}
    for q in quantizers:
        if q.get("fused") or not q.get("scale"):
            continue
        entry = dict(q)
        entry["scale"] = np.atleast_1d(np.asarray(q["scale"], np.float64))
        entry["zero_point"] = np.atleast_1d(
            np.asarray(q["zero_point"], np.float64))
        table[q["name"]] = entry
    return table


def gap_of_scales(got, want):
    """Largest relative difference; None where the number of scales differs.
    Of a channel that is nearly silent, the network's own rounding is forgiven:
    a millionth of the largest channel."""
    if got.shape != want.shape:
        return None
    gap = np.abs(got - want)
    if len(want) > 1:
        gap = np.maximum(gap - 1e-6 * want.max(), 0)
    return float((gap / want).max())


def zero_points_differ(got, lo, scale, bits, symmetric):
    """Zero points must be equal, save where -lo/scale lies on the edge between
    two integers, where float rounding decides."""
    if symmetric:
        return bool(got.any())
    exact = -np.minimum(lo, 0) / scale
    return bool((np.abs(got - exact) > 0.5 + 1e-3).any())


__all__ = ["Point", "find", "activations", "match", "read_json", "gap_of_scales",
           "zero_points_differ", "observers"]
