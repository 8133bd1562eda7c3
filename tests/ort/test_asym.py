"""Calibration behind a quantized prefix (`quantize --asym`) against its
definition, computed the slow way with ONNX Runtime and NumPy.

usage: test_asym.py SPARSEBIT

For one quantizer after another, in the order of the nodes, the whole network
runs from its input on all samples, with the quantizers that are known already
written out as Div, Round, Clip and Mul; the range of the value gives the next
scale.  `sparsebit` must come to the same scales for every choice of w and a,
in memory and from a file, with samples of one length and of several.
Exit status 77 means that something needed is missing.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sparsebit = sys.argv[1]
rng = np.random.default_rng(7)
folder = tempfile.TemporaryDirectory()
top = pathlib.Path(folder.name)
failures = 0

CONFIG = """
W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}
A:
  QSCHEME: per-tensor-%s
  QUANTIZER: {BIT: %d}
  OBSERVER: {TYPE: %s}
  QADD: {ENABLE_QUANT: true}
"""


def weight(name, *shape):
    scale = np.sqrt(2 / np.prod(shape[1:]))
    return numpy_helper.from_array(
        (rng.standard_normal(shape) * scale).astype(np.float32), name)


def node(op, name, inputs, **attrs):
    return helper.make_node(op, inputs, [name + "_out"], name=name, **attrs)


def images():
    """Branches of different length that meet in a sum, a join, a product."""
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", "conv1", ["x", "w1"], **pads),
        node("Relu", "relu1", ["conv1_out"]),
        node("Conv", "conv2", ["relu1_out", "w2"], **pads),
        node("Relu", "relu2", ["conv2_out"]),
        node("Conv", "conv3", ["relu2_out", "w3"], **pads),
        node("Add", "add", ["conv3_out", "relu1_out"]),
        node("Relu", "relu3", ["add_out"]),
        node("MaxPool", "pool", ["relu3_out"], kernel_shape=[2, 2],
             strides=[2, 2]),
        node("Conv", "conv4", ["x", "w4"], kernel_shape=[2, 2],
             strides=[2, 2]),
        node("Concat", "join", ["pool_out", "conv4_out"], axis=1),
        node("Tanh", "gate", ["join_out"]),
        node("Mul", "mul", ["join_out", "gate_out"]),
        node("GlobalAveragePool", "mean", ["mul_out"]),
        node("Flatten", "flat", ["mean_out"]),
        node("Gemm", "fc", ["flat_out", "w5"], transB=1),
    ]
    weights = [weight("w1", 6, 3, 3, 3), weight("w2", 6, 6, 3, 3),
               weight("w3", 6, 6, 3, 3), weight("w4", 5, 3, 2, 2),
               weight("w5", 4, 11)]
    return nodes, weights, ["N", 3, 8, 8], ["N", 4]


def sequences():
    """Attention over samples of any length."""
    nodes = [
        node("MatMul", "q", ["x", "wq"]), node("MatMul", "k", ["x", "wk"]),
        node("MatMul", "v", ["x", "wv"]),
        node("Transpose", "kt", ["k_out"], perm=[0, 2, 1]),
        node("MatMul", "score", ["q_out", "kt_out"]),
        node("Softmax", "soft", ["score_out"], axis=-1),
        node("MatMul", "mix", ["soft_out", "v_out"]),
        node("Add", "add", ["mix_out", "x"]),
        node("MatMul", "fc", ["add_out", "wf"]),
    ]
    weights = [weight(n, 8, 8) for n in ("wq", "wk", "wv", "wf")]
    return nodes, weights, ["N", "L", 8], ["N", "L", 8]


def model_of(nodes, weights, shape, out, watch=()):
    outputs = [helper.make_tensor_value_info(nodes[-1].output[0],
                                             TensorProto.FLOAT, out)]
    outputs += [helper.make_tensor_value_info(w, TensorProto.FLOAT, None)
                for w in watch if w != nodes[-1].output[0]]
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        outputs, weights)
    model = helper.make_model(graph,
                              opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


class Reference:
    """Scales by their definition: {(node, input): (scale, zero point)}."""

    def __init__(self, net, points, data, settings, asym):
        self.nodes, self.weights, self.shape, self.out = net
        self.data = data
        self.symmetric = settings[0] == "symmetric"
        self.bits = settings[1]
        self.observer = settings[2]
        self.asym = asym
        self.scales = {}
        for n in self.nodes:
            for i, value in enumerate(n.input):
                if (n.name, i) in points:
                    self.scales[n.name, i] = self.observe(n, i, value)

    def observe(self, n, i, value):
        for w in self.weights:
            if w.name == value:
                array = numpy_helper.to_array(w)
                axis = 1 if n.op_type == "MatMul" else 0
                rest = tuple(k for k in range(array.ndim) if k != axis)
                most = np.abs(array).max(axis=rest)
                return self.width(most, 255), np.zeros_like(most)
        lo = hi = None
        for batch in self.data:
            for sample in self.run(batch, value):
                least, most = sample.min(), sample.max()
                if lo is None:
                    lo, hi = least, most
                elif self.observer == "minmax":
                    lo, hi = min(lo, least), max(hi, most)
                else:
                    lo, hi = (.9 * lo + .1 * least, .9 * hi + .1 * most)
        lo, hi, steps = min(lo, 0), max(hi, 0), 2 ** self.bits - 1
        if self.symmetric:
            return self.width(max(-lo, hi), steps), 0
        scale = (hi - lo) / steps
        return scale, np.round(-lo / scale)

    @staticmethod
    def width(most, steps):
        """In float: the largest value is half a step from two integers."""
        return np.float32(most) * np.float32(2) / np.float32(steps)

    def run(self, batch, value):
        if value == "x":
            return batch
        nodes, constants = [], list(self.weights)
        for n in self.nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(n)
            for i in range(len(n.input)):
                if (n.name, i) in self.scales and self.is_on(n.input[i]):
                    new, more = self.rounded(n, i)
                    nodes += new
                    constants += more
                    copy.input[i] = new[-1].output[0]
            nodes.append(copy)
        model = model_of(nodes, constants, self.shape, self.out, [value])
        options = ort.SessionOptions()
        options.graph_optimization_level = \
            ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(model.SerializeToString(), options,
                                       providers=["CPUExecutionProvider"])
        return session.run([value], {"x": batch})[0]

    def is_on(self, value):
        constant = any(w.name == value for w in self.weights)
        return ("w" if constant else "a") in self.asym

    def rounded(self, n, i):
        """Nodes that round input i as its quantizer does."""
        scale, zero = self.scales[n.name, i]
        constant = any(w.name == n.input[i] for w in self.weights)
        bits = 8 if constant else self.bits
        if constant or self.symmetric:
            lo, hi = -2 ** (bits - 1), 2 ** (bits - 1) - 1
        else:
            lo, hi = -zero, 2 ** bits - 1 - zero
        scale = np.asarray(scale, np.float32)
        if constant:
            rank = next(len(w.dims) for w in self.weights
                        if w.name == n.input[i])
            shape = [1] * rank
            shape[1 if n.op_type == "MatMul" else 0] = -1
            scale = scale.reshape(shape)
        at = f"{n.name}_{i}_"
        more = [numpy_helper.from_array(scale, at + "s"),
                numpy_helper.from_array(np.float32(lo), at + "lo"),
                numpy_helper.from_array(np.float32(hi), at + "hi")]
        new = [helper.make_node("Div", [n.input[i], at + "s"], [at + "d"]),
               helper.make_node("Round", [at + "d"], [at + "r"]),
               helper.make_node("Clip", [at + "r", at + "lo", at + "hi"],
                                [at + "c"]),
               helper.make_node("Mul", [at + "c", at + "s"], [at + "y"])]
        return new, more


def point_of(name):
    """The edge of a quantizer, from its name."""
    base, kind = name.rsplit(".", 1)
    if "_identity" in base:
        base, i = base.rsplit("_identity", 1)
        return base, int(i)
    return base, 1 if kind == "weight_quantizer" else 0


def compare(what, net, yaml, data, settings, asym, extra=()):
    global failures
    nodes, weights, shape, out = net
    onnx.save(model_of(nodes, weights, shape, out), top / "net.onnx")
    (top / "q.yaml").write_text(CONFIG % settings)
    command = [sparsebit, "quantize", top / "net.onnx", "-c", top / "q.yaml",
               "-d", yaml, "--json", "-v", "-q", *extra]
    if asym:
        command += ["--asym", asym]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        failures += 1
        print(f"FAIL {what}: {done.stderr.strip()}")
        return
    got = json.loads(done.stdout)
    quantizers = {point_of(q["name"]): q for q in got["quantizers"]}
    want = Reference(net, quantizers, data, settings, asym).scales
    assert len(want) == len(quantizers) > 0
    for point, (scale, zero) in want.items():
        q = quantizers[point]
        error = np.max(np.abs(np.array(q["scale"]) / scale - 1))
        off = np.max(np.abs(np.array(q["zero_point"]) - zero))
        if error > 1e-5 or off > 0:
            failures += 1
            print(f"FAIL {what}: {q['name']}: scale {q['scale']}, zero point "
                  f"{q['zero_point']}, want {scale}, {zero}")
            return


x = rng.standard_normal((10, 3, 8, 8)).astype(np.float32)
np.save(top / "x.npy", x)
(top / "x.yaml").write_text("SOURCE: npy\nPATH: x.npy\nBATCH: 4\n")
batches = [x[:4], x[4:8], x[8:]]

lengths = [5, 5, 3, 9, 9, 1]
(top / "seq").mkdir()
tokens = [rng.standard_normal((n, 8)).astype(np.float32) for n in lengths]
for i, t in enumerate(tokens):
    np.save(top / "seq" / f"{i}.npy", t[None])
(top / "seq.yaml").write_text("SOURCE: npy\nPATH: seq\nBATCH: 2\n")
rows = [t[None] for t in tokens]

for asym in ("", "w", "a", "w,a"):
    for settings in (("affine", 8, "minmax"), ("symmetric", 4, "minmax"),
                     ("affine", 8, "moving_average")):
        what = f"asym '{asym}', {settings}"
        compare("images, " + what, images(), top / "x.yaml", batches,
                settings, asym)
        compare("lengths, " + what, sequences(), top / "seq.yaml", rows,
                settings, asym)

# More than the memory allowed: a file takes the rest, and does not stay.
os.environ["TMPDIR"] = str(top / "tmp")
(top / "tmp").mkdir()
big = rng.standard_normal((40, 3, 64, 64)).astype(np.float32)
np.save(top / "x.npy", big)
nodes, weights, shape, out = images()
compare("spilled", (nodes, weights, ["N", 3, 64, 64], out), top / "x.yaml",
        [big[i:i + 4] for i in range(0, 40, 4)], ("affine", 8, "minmax"),
        "w,a", ["--asym-memory", "1"])
if os.listdir(top / "tmp"):
    failures += 1
    print("FAIL something is left in TMPDIR")

print(f"{failures} failed")
sys.exit(1 if failures else 0)
