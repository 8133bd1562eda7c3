#!/usr/bin/env python3
"""(slow) models that no tool should write: load, run, simplify, quantize.

usage: test_mutants.py COMMAND [SEED] [SECONDS] [MODELS] [--keep FOLDER]

Small models (cases of the ONNX suite, corpora of the fuzz targets, networks
made here) are changed in structured ways: attributes, types, shapes,
initializers, wiring, opsets, operators, Q and DQ, NaN and infinities.
tests/mutants/mutant_runner does with each what users do and compares its ways
of running; what runs is compared with ONNX Runtime without optimizations, in a
process of its own, which may crash.

A crash, a hang, a report of a sanitizer or a disagreement is a failure: the
model is kept, and the command that repeats it printed.  The same seed gives the
same models.  SECONDS (default 60) or MODELS is when no more are made.  Exits 77 without
onnxruntime.
"""
import glob
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import AttributeProto as AP
    from onnx import TensorProto as TP
    from onnx import helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
# The OpenMP runtime of clang never frees its threads' records.
os.environ.setdefault("LSAN_OPTIONS", "print_suppressions=0:suppressions=" +
                      os.path.join(HERE, "..", "lsan.supp"))
SUITE = "/usr/share/libonnx-testdata/data"
TARGETS = ["virtual", "onnxruntime-x86", "tensorrt", "onnxruntime-arm",
           "openvino", "qnn"]
LIMIT = 10  # seconds for one model
MODELS = 3000  # at most, unless the time is given

SMALL = [0, 1, -1, 2, -2, 3, 4, 5, 7]
EDGE = [12, 64, -64, 255, 65536, 2**31 - 1, -2**31, 2**32, 2**40, 2**62,
        2**63 - 1, -2**63]
REAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 6.0, float("nan"), float("inf"),
        -float("inf"), 1e38, -1e38, 1e-38, 1e-40, -1e-45, 1e30, 65504.0]
WORDS = ["", "constant", "edge", "reflect", "wrap", "linear", "cubic",
         "nearest", "asymmetric", "align_corners", "half_pixel", "SAME_UPPER",
         "SAME_LOWER", "VALID", "NOTSET", "none", "add", "mul", "max", "DCR",
         "CRD", "forward", "reverse", "bidirectional", "zeros", "border",
         "bilinear", "floor", "ceil", "tanh", "Relu", "\x1b[2J", "a" * 300]
DTYPES = [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16, 8, 17, 21, 22, 0, 99]
UNARY = ["Relu", "Sigmoid", "Identity", "Neg", "Clip", "HardSigmoid", "Tanh",
         "LeakyRelu", "Elu", "HardSwish", "Softmax", "ReduceMax", "Transpose",
         "GlobalAveragePool", "GlobalMaxPool", "Flatten", "Abs", "Exp", "Erf",
         "Gelu", "ReduceMean", "Shape", "Squeeze", "LogSoftmax", "Softplus"]
BINARY = ["Add", "Mul", "Sub", "Div", "Max", "Min", "MatMul", "Concat", "Pow",
          "PRelu", "Gemm", "Reshape", "Gather", "Expand", "Where", "Equal"]
# Where NaN depends on the order of comparisons in ONNX Runtime.
MAXIMA = {"MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "TopK",
          "ArgMax", "ArgMin", "MaxRoiPool", "RoiAlign", "Unique", "Hardmax"}
# Where it saturates sums of two products in 16 bit, on machines without VNNI.
INTEGER = {"MatMulInteger", "MatMulIntegerToFloat", "ConvInteger", "QGemm",
           "QLinearConv", "QLinearMatMul", "DynamicQuantizeMatMul"}
RANDOM_OPS = {"RandomNormal", "RandomNormalLike", "RandomUniform", "Bernoulli",
              "RandomUniformLike", "Multinomial", "Dropout"}


# ---- seeds ------------------------------------------------------------------

def weights(rng, *shape):
    return np.array([rng.gauss(0, 1) for _ in range(int(np.prod(shape)))],
                    np.float32).reshape(shape)


class Net:
    """A chain of layers, as networks have them, each with what follows."""

    def __init__(self, rng):
        self.rng, self.nodes, self.inits = rng, [], []
        self.channels = rng.choice([1, 3, 4, 8, 16])
        size = rng.choice([4, 6, 9])
        self.shape = [rng.choice([1, 2]), self.channels, size, size]
        self.at, self.before = "x", None

    def const(self, value):
        name = f"c{len(self.inits)}"
        self.inits.append(numpy_helper.from_array(np.array(value), name))
        return name

    def add(self, op, *inputs, **attrs):
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [out], **attrs))
        return out

    def layer(self):
        r, c = self.rng, self.channels
        kind = r.choice(["conv", "conv", "conv", "depthwise", "pool", "act",
                         "sum", "bn", "qdq"])
        self.before = self.at
        if kind in ("conv", "depthwise"):
            k = r.choice([1, 3])
            m = c if kind == "depthwise" else r.choice([c, 8, 16])
            per = 1 if kind == "depthwise" else c
            inputs = [self.at, self.const(weights(r, m, per, k, k))]
            if r.random() < .5:
                inputs.append(self.const(weights(r, m)))
            self.at = self.add("Conv", *inputs, pads=[k // 2] * 4,
                               group=c if kind == "depthwise" else 1)
            self.channels = m
        elif kind == "pool":
            op = r.choice(["MaxPool", "AveragePool"])
            self.at = self.add(op, self.at, kernel_shape=[3, 3],
                               pads=[1] * 4)
        elif kind == "act":
            self.act()
        elif kind == "sum":
            self.at = self.add("Add", self.at, self.at)
        elif kind == "bn":
            p = [self.const(np.abs(weights(r, c)) + .1) for _ in range(4)]
            self.at = self.add("BatchNormalization", self.at, *p)
        else:
            self.qdq()
        if r.random() < .6:
            self.act()

    def act(self):
        r = self.rng
        op = r.choice(["Relu", "Clip", "HardSigmoid", "HardSwish", "Sigmoid",
                       "LeakyRelu", "Tanh", "swish", "PRelu"])
        if op == "Clip":
            ends = [self.const(np.float32(r.choice([0, -1, 6, 10])))
                    for _ in range(2)]
            self.at = self.add("Clip", self.at, *ends)
        elif op == "swish":
            self.at = self.add("Mul", self.at, self.add("Sigmoid", self.at))
        elif op == "PRelu":
            slope = self.const(weights(r, self.channels, 1, 1))
            self.at = self.add("PRelu", self.at, slope)
        else:
            self.at = self.add(op, self.at)

    def qdq(self):
        r = self.rng
        dtype = r.choice([np.int8, np.uint8])
        p = [self.const(np.float32(r.choice([.02, .1, 1]))),
             self.const(dtype(r.choice([0, 0, 3])))]
        q = self.add("QuantizeLinear", self.at, *p)
        self.at = self.add("DequantizeLinear", q, *p)

    def model(self):
        for _ in range(self.rng.randint(1, 4)):
            self.layer()
        if not self.nodes:
            self.at = self.add("Relu", self.at)
        graph = helper.make_graph(
            self.nodes, "g",
            [helper.make_tensor_value_info("x", TP.FLOAT, self.shape)],
            [onnx.ValueInfoProto(name=self.at)], self.inits)
        return helper.make_model(graph, ir_version=9, opset_imports=[
            helper.make_opsetid("", self.rng.choice([13, 17, 19, 21]))])


def seed_files():
    files = [p for k in ("node", "simple", "pytorch-operator",
                         "pytorch-converted")
             for p in sorted(glob.glob(f"{SUITE}/{k}/*/model.onnx"))]
    for corpus in ("onnx", "quant", "readback"):
        files += sorted(glob.glob(f"{HERE}/../fuzz/corpus-{corpus}/*"))
    return [p for p in files if os.path.getsize(p) < 60000]


def load_seed(path):
    try:
        return onnx.load(path, load_external_data=False)
    except Exception:  # corpora hold files that are none
        return None


# ---- mutations: each changes the model in place, False if it cannot ----------

def all_graphs(graph):
    yield graph
    for node in graph.node:
        for a in node.attribute:
            if a.type == AP.GRAPH:
                yield from all_graphs(a.g)


def all_nodes(model):
    return [n for g in all_graphs(model.graph) for n in g.node]


def whole(r):
    return r.choice(SMALL) if r.random() < .7 else r.choice(EDGE)


def change_list(r, values, pick):
    values, how = list(values), r.random()
    if values and how < .6:
        values[r.randrange(len(values))] = pick()
    elif values and how < .75:
        values.pop(r.randrange(len(values)))
    elif how < .9:
        values.insert(r.randrange(len(values) + 1), pick())
    else:
        values = [pick()] * r.choice([0, 0, 1, 2, 4, 13])
    return values


def mutate_attribute(model, r):
    nodes = [n for n in all_nodes(model) if n.attribute]
    if not nodes:
        return False
    node = r.choice(nodes)
    a = r.choice(list(node.attribute))
    if r.random() < .08:
        node.attribute.remove(a)
    elif a.type == AP.INT:
        a.i = whole(r)
    elif a.type == AP.FLOAT:
        a.f = r.choice(REAL)
    elif a.type == AP.STRING:
        a.s = r.choice(WORDS).encode()
    elif a.type == AP.INTS:
        values = change_list(r, a.ints, lambda: whole(r))
        del a.ints[:]
        a.ints.extend(values)
    elif a.type == AP.FLOATS:
        values = change_list(r, a.floats, lambda: r.choice(REAL))
        del a.floats[:]
        a.floats.extend(values)
    elif a.type == AP.TENSOR:
        return mutate_tensor(a.t, r)
    else:
        return False
    return True


def mutate_new_attribute(model, r):
    """Gives a node an attribute that its operator has and it has not."""
    node = r.choice(all_nodes(model))
    try:
        schema = onnx.defs.get_schema(node.op_type, node.domain)
    except onnx.defs.SchemaError:
        return False
    have = {a.name for a in node.attribute}
    kinds = {onnx.defs.OpSchema.AttrType.INT: lambda: whole(r),
             onnx.defs.OpSchema.AttrType.FLOAT: lambda: r.choice(REAL),
             onnx.defs.OpSchema.AttrType.STRING: lambda: r.choice(WORDS),
             onnx.defs.OpSchema.AttrType.INTS: lambda: [
                 whole(r) for _ in range(r.choice([1, 2, 2, 4]))]}
    names = [k for k, v in schema.attributes.items()
             if k not in have and v.type in kinds]
    if not names:
        return False
    name = r.choice(sorted(names))
    value = kinds[schema.attributes[name].type]()
    node.attribute.append(helper.make_attribute(name, value))
    return True


def change_elements(array, r):
    flat = array.copy().reshape(-1)
    for _ in range(r.choice([1, 1, 1, 2, flat.size])):
        i = r.randrange(flat.size)
        if array.dtype.kind == "f":
            flat[i] = r.choice(REAL)
        elif array.dtype.kind == "b":
            flat[i] = not flat[i]
        else:
            info = np.iinfo(array.dtype)
            flat[i] = max(info.min, min(info.max, whole(r)))
    return flat.reshape(array.shape)


def mutate_tensor(tensor, r):
    try:
        array = numpy_helper.to_array(tensor)
    except Exception:  # a seed's own fault
        return False
    how = r.random()
    if array.dtype.kind not in "fiub":
        return False
    if how < .5:
        if not array.size:
            return False
        array = change_elements(array, r)
    elif how < .6:
        array = array.reshape(-1)[:r.randrange(max(1, array.size))]
    elif how < .7:
        array = np.concatenate([array.reshape(-1)] * 2)
    elif how < .8:
        array = array.reshape((1,) * r.choice([0, 1, 2, 5]) + array.shape)
    elif how < .85:
        array = np.zeros(r.choice([(0,), (0, 3), ()]), array.dtype)
    elif how < .93:
        array = array.astype(r.choice(["f4", "f8", "f2", "i1", "u1", "i4",
                                       "i8", "?"]))
    elif how < .97:
        tensor.data_type = r.choice(DTYPES)
        return True
    else:
        tensor.dims.append(whole(r))
        return True
    name = tensor.name
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))
    return True


def mutate_initializer(model, r):
    tensors = [t for g in all_graphs(model.graph) for t in g.initializer]
    return bool(tensors) and mutate_tensor(r.choice(tensors), r)


def mutate_input(model, r):
    values = [v for v in list(model.graph.input) + list(model.graph.output)
              if v.type.HasField("tensor_type")]
    if not values:
        return False
    t, how = r.choice(values).type.tensor_type, r.random()
    if how < .25:
        t.elem_type = r.choice(DTYPES)
    elif how < .35:
        t.shape.dim.add().dim_value = r.choice([0, 1, 2, 3])
    elif not t.shape.dim:
        return False
    elif how < .45:
        del t.shape.dim[r.randrange(len(t.shape.dim))]
    else:
        d = r.choice(list(t.shape.dim))
        if how < .85:
            d.dim_value = r.choice([0, 1, 2, 3, 5, 8, 17])
        else:
            d.dim_param = r.choice(["N", "M", ""])
    return True


def mutate_wiring(model, r):
    g = r.choice(list(all_graphs(model.graph)))
    if not g.node:
        return False
    node, how = r.choice(list(g.node)), r.random()
    values = ([v.name for v in g.input] + [t.name for t in g.initializer] +
              [o for n in g.node for o in n.output] + [""])
    if how < .45 and node.input:
        node.input[r.randrange(len(node.input))] = r.choice(values)
    elif how < .65:
        node.input.append(r.choice(values))
    elif how < .8 and node.input:
        node.input.pop()
    elif how < .9:
        node.output.append(f"extra{r.randrange(99)}")
    else:
        g.output.append(onnx.ValueInfoProto(name=r.choice(values) or "x"))
    return True


def mutate_operator(model, r):
    node = r.choice(all_nodes(model))
    names = sorted(s.name for s in onnx.defs.get_all_schemas()
                   if s.domain == "" and
                   s.min_input <= len(node.input) <= s.max_input)
    if not names:
        return False
    node.op_type, node.domain = r.choice(names), ""
    return True


def mutate_opset(model, r):
    if not model.opset_import:
        return False
    model.opset_import[0].version = r.choice(
        [1, 6, 7, 9, 10, 11, 12, 13, 15, 17, 18, 19, 20, 21, 23, 25, 0, -1])
    return True


def append_node(model, r):
    """Another operator behind an output, which takes its place."""
    g = model.graph
    if not g.output:
        return False
    out = r.choice(list(g.output))
    values = [v.name for v in g.input] + [t.name for t in g.initializer]
    if r.random() < .6 or not values:
        op, inputs = r.choice(UNARY), [out.name]
    else:
        op, inputs = r.choice(BINARY), [out.name, r.choice(values)]
        r.shuffle(inputs)
    name = f"n{len(g.node)}"
    attrs = {"axis": 1} if op == "Concat" else {}
    g.node.append(helper.make_node(op, inputs, [name], **attrs))
    kept = onnx.ValueInfoProto(name=name)
    out.CopyFrom(kept)
    return True


MUTATIONS = [(mutate_attribute, 5), (mutate_new_attribute, 3),
             (mutate_initializer, 4), (mutate_input, 2), (mutate_wiring, 2),
             (mutate_operator, 1), (mutate_opset, 1), (append_node, 4)]


def constants(model):
    for t in [t for g in all_graphs(model.graph) for t in g.initializer] + [
            a.t for n in all_nodes(model) for a in n.attribute
            if a.type == AP.TENSOR]:
        try:
            array = numpy_helper.to_array(t)
        except Exception:  # its data do not fit its type
            continue
        if array.dtype.kind == "f" and array.size:
            yield array.astype(np.float64)


def is_huge(model):
    """Does it hold numbers near the end of the range?"""
    huge = any((np.abs(v[np.isfinite(v)]) > 1e15).any()
               for v in constants(model))
    return huge or any(a.type == AP.FLOAT and abs(a.f) > 1e3
                       for n in all_nodes(model) for a in n.attribute)


def mutant(r, seeds):
    """A changed copy of a seed and how to run it (see mutant_runner)."""
    while True:
        if r.random() < .5:
            model = Net(r).model()
        else:
            model = load_seed(r.choice(seeds))
        if model is None or not all_nodes(model):
            continue
        kinds, odds = zip(*MUTATIONS)
        done = 0
        for _ in range(r.choice([0, 1, 1, 1, 2, 3])):
            done += bool(r.choices(kinds, odds)[0](model, r))
        try:
            data = model.SerializeToString()
            return data, (r.random() < .1) + 2 * is_huge(model)
        except Exception:  # a text that is no UTF-8
            continue


# ---- ONNX Runtime, in a process of its own -----------------------------------

def outputs_differ(model, ours, theirs):
    ops = {n.op_type for n in all_nodes(model)}
    for i, b in enumerate(theirs):
        a = ours[f"t{i}"]
        if not isinstance(b, np.ndarray):
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i}: {a.dtype}{a.shape}, want {b.dtype}{b.shape}"
        if a.dtype.kind not in "fiub" or not a.size:
            continue
        bad = wrong_elements(ops, a.astype(np.float64), b.astype(np.float64),
                             a.dtype)
        if bad.any():
            j = int(np.argmax(bad))
            return (f"output {i}[{j}]: {a.reshape(-1)[j]}, want "
                    f"{b.reshape(-1)[j]} ({int(bad.sum())} of {bad.size})")
    return None


def wrong_elements(ops, a, b, dtype):
    a, b = a.reshape(-1), b.reshape(-1)
    finite = b[np.isfinite(b)]
    most = np.abs(finite).max() if finite.size else 0
    rounded = ops & {"QuantizeLinear", "DynamicQuantizeLinear", "Cast",
                     "ConvInteger", "QLinearConv", "QLinearMatMul", "Round",
                     "MatMulNBits"}  # which rounds its input, too
    tol = {"f": 1e-3, "i": 0, "u": 0, "b": 0}[dtype.kind]
    if dtype == np.float16:
        tol = 2e-2
    if rounded:  # one step of an integer, or of what became of it
        steps = 1 if dtype.kind in "iu" else .02 * most
        tol = max(tol, 1e-3)
    else:
        steps = 0
    with np.errstate(all="ignore"):
        ok = (np.abs(a - b) <= tol * np.abs(b) + .2 * tol * most + steps + 1e-6)
    ok |= (a == b) | (np.isnan(a) & np.isnan(b))
    # 0 times NaN or infinity in the padding is NaN there, as its convolution
    # is a matrix product of a copy with zeros.
    if ops & {"Conv", "ConvTranspose", "FusedConv", "QLinearConv"}:
        ok |= ~np.isfinite(b) | ~np.isfinite(a)
    if most > 1e30 or not np.isfinite(b).all():
        ok |= ~np.isfinite(a) | ~np.isfinite(b) | (np.abs(b) > 1e30)
    return ~ok


def not_comparable(model, ins):
    """Results that ONNX Runtime does not define, or not on this machine."""
    ops = {n.op_type for n in all_nodes(model)}
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        saturates = "vnni" not in f.read()
    finite = all(np.isfinite(v).all() for v in list(constants(model)) + [
        ins[k] for k in ins.files if ins[k].dtype.kind == "f"])
    # Y_h of a sequence without steps: zeros there, the initial state here.
    if ops & {"LSTM", "GRU", "RNN"} and any(
            ins[k].dtype == np.int32 and not ins[k].all() for k in ins.files):
        return True
    # Near a pole the last bit of what was computed before decides.
    computed = {o for n in all_nodes(model) for o in n.output}
    if any(n.op_type == "Tan" and n.input[0] in computed
           for n in all_nodes(model)):
        return True
    # Its training-mode normalization writes over the statistics it is given.
    if any(n.op_type == "BatchNormalization" and
           any(a.name == "training_mode" and a.i for a in n.attribute)
           for n in all_nodes(model)):
        return True
    # Its recurrent networks turn NaN into a limit of their activations.
    return (ops & RANDOM_OPS or (saturates and ops & INTEGER) or
            (ops & (MAXIMA | {"LSTM", "GRU", "RNN"}) and not finite) or
            is_huge(model))


def ort_answer(path, prefix):
    model = onnx.load(path, load_external_data=False)
    ins, ours = np.load(prefix + ".in.npz"), np.load(prefix + ".out.npz")
    if not_comparable(model, ins):
        return "skip"
    options = ort.SessionOptions()
    options.graph_optimization_level = (
        ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(path, options,
                                       providers=["CPUExecutionProvider"])
        names = [i.name for i in session.get_inputs()]
        theirs = session.run(None, {n: ins[f"t{i}"]
                                    for i, n in enumerate(names)})
    except Exception:  # refuses it, or its inputs
        return "skip"
    return outputs_differ(model, ours, theirs) or "same"


def serve_ort():
    ort.set_default_logger_severity(4)
    for line in sys.stdin:
        path, prefix = line.split()
        try:
            answer = ort_answer(path, prefix)
        except FileNotFoundError:  # strings are not saved
            answer = "skip"
        except Exception as error:  # pylint: disable=broad-except
            answer = f"skip {error!r}"
        print(answer.replace("\n", " "), flush=True)


class Server:
    """A process that answers a line with a line; started anew if it dies."""

    def __init__(self, command):
        self.command, self.process = command, None

    def ask(self, line):
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True,
                errors="replace")
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().rstrip("\n")
        if not answer:
            self.process.wait()
        return answer

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


# ---- the test ----------------------------------------------------------------

def describe(path):
    try:
        model = onnx.load(path, load_external_data=False)
        return ",".join(n.op_type for n in all_nodes(model))[:120]
    except Exception:  # not even that
        return "?"


class Hunt:
    def __init__(self, command, seed, folder, keep):
        self.command, self.seed = command, seed
        self.folder, self.keep = folder, keep
        tests = os.path.join(os.path.dirname(command), "tests")
        self.runner = Server([os.path.join(tests, "mutant_runner"),
                              str(LIMIT)])
        self.ort = Server([sys.executable, os.path.abspath(__file__),
                           "--ort"])
        self.counts, self.failures = {}, 0

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def fail(self, index, path, prefix, message, target, how):
        os.makedirs(self.keep, exist_ok=True)
        kept = os.path.join(self.keep, f"mutant-{self.seed}-{index}.onnx")
        shutil.copy(path, kept)
        if os.path.exists(prefix + ".err") and os.path.getsize(prefix + ".err"):
            shutil.copy(prefix + ".err", kept + ".err")
        self.failures += 1
        print(f"FAIL {message} [{describe(path)}]\n"
              f"     echo {kept} {kept[:-5]} {target} {how} | "
              f"{self.runner.command[0]} {LIMIT}", flush=True)

    def one(self, index, r, seeds):
        path = os.path.join(self.folder, "m.onnx")
        prefix = os.path.join(self.folder, "m")
        data, how = mutant(r, seeds)
        for old in glob.glob(prefix + ".*"):
            os.unlink(old)
        with open(path, "wb") as f:
            f.write(data)
        target = TARGETS[index % len(TARGETS)]
        answer = self.runner.ask(f"{path} {prefix} {target} {how}")
        verdict, _, message = answer.partition("\t")
        message = message.partition("\t")[2]
        self.count(verdict)
        if verdict in ("WRONG", "CRASH", "HANG", ""):
            self.fail(index, path, prefix, f"{verdict} {message}", target, how)
        elif verdict == "ran":
            answer = self.ort.ask(f"{path} {prefix}")
            self.count("ONNX Runtime: " + (
                "crashed" if not answer else answer.split()[0]
                if answer.startswith(("same", "skip")) else "differs"))
            if answer and not answer.startswith(("same", "skip")):
                self.fail(index, path, prefix, f"ONNX Runtime: {answer}",
                          target, how)

    def close(self):
        self.runner.close()
        self.ort.close()


def main():
    words = [w for w in sys.argv[1:] if not w.startswith("--")]
    keep = tempfile.gettempdir()
    if "--keep" in sys.argv:
        keep = sys.argv[sys.argv.index("--keep") + 1]
        words.remove(keep)
    command = os.path.abspath(words[0])
    seed = int(words[1]) if len(words) > 1 else 1
    seconds = float(words[2]) if len(words) > 2 else 60
    most = int(words[3]) if len(words) > 3 else \
        MODELS if len(words) < 3 else sys.maxsize
    seeds = seed_files()
    begin = time.time()
    with tempfile.TemporaryDirectory() as folder:
        hunt = Hunt(command, seed, folder, keep)
        index = 0
        while index < most and time.time() - begin < seconds:
            hunt.one(index, random.Random(f"{seed}/{index}"), seeds)
            index += 1
        hunt.close()
    for what in sorted(hunt.counts):
        print(f"{hunt.counts[what]:6} {what}")
    print(f"{index} models, {hunt.failures} failures")
    sys.exit(1 if hunt.failures else 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--ort"]:
        serve_ort()
    else:
        main()
