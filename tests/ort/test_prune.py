"""sparsebit prune: what is cut computes what the whole network computes with
the weights that read the removed channels set to zero.

The command says which indices of which initializers it removed.  This test
checks that with the file (the original's weights without these indices), finds
by itself which axes of which weights sum over channels, sets the removed
indices of those to zero in the simplified original, and ONNX Runtime runs
both.  Networks: those of the fixtures, and small ones made here of the parts
that tie channels in other ways (residual sums, concatenations, splits, groups,
shuffles, heads, grouped heads, norms, transposed convolutions); one of them
also in half precision, in integers, rounded, and with its weights in a file of
their own.

usage: test_prune.py SPARSEBIT [MODEL.onnx ...]

Exit status 77 means that something needed is missing."""
import json
import os
import subprocess
import sys
import tempfile

import fixtures

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

SPARSEBIT = sys.argv[1]
TOLERANCE = 1e-4
CONFIG = "SPARSER: {TYPE: structed, STRATEGY: l1norm, RATIO: 0.3}\n"
QUICK = ("resnet20_cifar10", "ultraface_rfb320", "nanodet_m", "yolox_nano")


class Net:
    """A network being written, node by node, with random weights."""

    def __init__(self, seed, shape):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.shape = [], [], shape

    def weight(self, *shape, scale=None):
        name = f"w{len(self.weights)}"
        value = self.rng.standard_normal(shape).astype(np.float32)
        value *= scale or 1 / np.sqrt(max(1, np.prod(shape[1:])))
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def ints(self, *values):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(
            np.array(values, np.int64), name))
        return name

    def add(self, op, *inputs, n_out=1, **attrs):
        names = [f"v{len(self.nodes)}_{i}" for i in range(n_out)]
        self.nodes.append(helper.make_node(op, inputs, names,
                                           f"{op}_{len(self.nodes)}", **attrs))
        return names[0] if n_out == 1 else names

    def conv(self, x, c, m, k=1, group=1, **attrs):
        return self.add("Conv", x, self.weight(m, c // group, k, k),
                        self.weight(m, scale=0.1), group=group,
                        pads=[k // 2] * 4, **attrs)

    def bn(self, x, c):
        var = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(
            self.rng.uniform(0.5, 2, c).astype(np.float32), var))
        return self.add("BatchNormalization", x, self.weight(c, scale=1),
                        self.weight(c, scale=1), self.weight(c, scale=1), var)

    def linear(self, x, c, m):
        return self.add("MatMul", x, self.weight(c, m))

    def write(self, path, y):
        self.nodes.append(helper.make_node("Identity", [y], ["y"]))
        graph = helper.make_graph(
            self.nodes, "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            self.weights)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)


def residual(net):
    a = net.add("Relu", net.bn(net.conv("x", 3, 16, 3), 16))
    b = net.bn(net.conv(net.add("Relu", net.conv(a, 16, 8)), 8, 16, 3), 16)
    s = net.add("GlobalAveragePool", b)
    s = net.add("Sigmoid", net.conv(net.conv(s, 16, 6), 6, 16))
    a = net.add("Relu", net.add("Add", a, net.add("Mul", b, s)))
    a = net.conv(net.conv(a, 16, 16, 3, group=16), 16, 10)
    a = net.add("Flatten", net.add("MaxPool", a, kernel_shape=[4, 4],
                                   strides=[4, 4]))
    return net.add("Gemm", a, net.weight(5, 40), net.weight(5), transB=1)


def joined(net):
    a = net.conv("x", 3, 12, 3)
    b = net.add("Concat", a, net.conv(a, 12, 8), axis=1)
    c, d = net.add("Split", b, net.ints(9, 11), n_out=2, axis=1)
    c = net.add("Slice", c, net.ints(2), net.ints(9), net.ints(1))
    d = net.add("Gather", d, net.ints(3, 1, 10, 5), axis=1)
    e = net.add("Concat", c, d, net.conv(b, 20, 6, 3), axis=1)
    e = net.add("Pad", e, net.ints(0, 0, 1, 1, 0, 3, 1, 1))
    return net.conv(net.add("PRelu", e, net.weight(20, 1, 1)), 20, 4)


def grouped(net):
    a = net.conv("x", 3, 24)
    a = net.conv(net.conv(a, 24, 24, 3, group=4), 24, 36, group=6)
    a = net.add("Reshape", a, net.ints(1, 2, 18, 4, 8))
    a = net.add("Reshape", net.add("Transpose", a, perm=[0, 2, 1, 3, 4]),
                net.ints(1, 36, 4, 8))
    a = net.conv(a, 36, 36, 3, group=36)
    a = net.add("DepthToSpace", net.conv(a, 36, 32), blocksize=2)
    a = net.add("Resize", a, "", "", net.ints(1, 8, 12, 12))
    a = net.add("ConvTranspose", a, net.weight(8, 5, 2, 2), strides=[2, 2],
                group=2)
    a = net.add("InstanceNormalization", a, net.weight(10, scale=1),
                net.weight(10, scale=1))
    return net.conv(a, 10, 3)


def heads(net):
    """Attention with 4 query heads on 2 key heads, and a gated layer."""
    q = net.add("Reshape", net.linear("x", 12, 32), net.ints(1, 6, 4, 8))
    k = net.add("Reshape", net.linear("x", 12, 16), net.ints(1, 6, 2, 8))
    v = net.add("Reshape", net.linear("x", 12, 16), net.ints(1, 6, 2, 8))
    q = net.add("Transpose", q, perm=[0, 2, 1, 3])
    k, v = (net.add("Reshape", net.add(
        "Expand", net.add("Unsqueeze", net.add(
            "Transpose", t, perm=[0, 2, 1, 3]), net.ints(2)),
        net.ints(1, 2, 2, 6, 8)), net.ints(1, 4, 6, 8)) for t in (k, v))
    s = net.add("MatMul", q, net.add("Transpose", k, perm=[0, 1, 3, 2]))
    s = net.add("Add", net.add("Softmax", s), net.weight(1, 4, 6, 6))
    o = net.add("Transpose", net.add("MatMul", s, v), perm=[0, 2, 1, 3])
    x = net.linear(net.add("Reshape", o, net.ints(0, 0, -1)), 32, 12)
    x = net.add("LayerNormalization", net.add("Add", "x", x),
                net.weight(12, scale=1))
    h = net.add("Mul", net.add("Sigmoid", net.linear(x, 12, 20)),
                net.linear(x, 12, 20))
    return net.add("Add", x, net.linear(h, 20, 12))


MADE = [(residual, [1, 3, 8, 8]), (joined, [1, 3, 8, 8]),
        (grouped, [1, 3, 4, 8]), (heads, [1, 6, 12])]


def in_half(model):
    """All floats of 16 bit."""
    for t in model.graph.initializer:
        if t.data_type == TensorProto.FLOAT:
            t.CopyFrom(numpy_helper.from_array(
                numpy_helper.to_array(t).astype(np.float16), t.name))
    for v in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        v.type.tensor_type.elem_type = TensorProto.FLOAT16


def in_integers(model):
    """Weights and biases as integers behind DequantizeLinear, with a scale for
    each output, and what layers read rounded to 8 bit."""
    graph, nodes = model.graph, []
    tensors = {t.name: t for t in graph.initializer}

    def constant(name, value):
        graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def layer_input(node, k):
        x = node.input[k]
        if x in tensors:
            value = numpy_helper.to_array(tensors[x])
            size = np.abs(value).reshape(len(value), -1).max(1) + 1e-6
            kind, most = (np.int8, 127) if k == 1 else (np.int32, 1 << 20)
            scale = (size / most).astype(np.float32)
            bits = np.round(value / scale.reshape(-1, *[1] * (value.ndim - 1)))
            tensors[x].CopyFrom(numpy_helper.from_array(bits.astype(kind), x))
            words = [x, constant(x + "_s", scale)]
            nodes.append(helper.make_node("DequantizeLinear", words, [x + "_f"],
                                          axis=0))
        else:
            words = [constant(f"{node.name}_s", np.array(0.05, np.float32)),
                     constant(f"{node.name}_z", np.array(128, np.uint8))]
            q = f"{node.name}_q"
            nodes.append(helper.make_node("QuantizeLinear", [x, *words], [q]))
            x = f"{node.name}_x"
            nodes.append(helper.make_node("DequantizeLinear", [q, *words],
                                          [x + "_f"]))
        node.input[k] = x + "_f"

    for node in graph.node:
        for k in range(len(node.input)):
            if node.op_type in ("Conv", "Gemm"):
                layer_input(node, k)
        nodes.append(node)
    del graph.value_info[:]
    kept = helper.make_graph(nodes, "net", [], [])
    graph.node.clear()
    graph.node.extend(kept.node)


def in_steps(model):
    """Float weights, rounded where they are read, with a scale and a zero point
    for each output, as training for integers leaves them."""
    graph, nodes = model.graph, []
    tensors = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    for node in graph.node:
        if node.op_type in ("Conv", "Gemm") and node.input[1] in tensors:
            w = node.input[1]
            value = tensors[w].reshape(len(tensors[w]), -1)
            scale = (np.ptp(value, 1) / 200 + 1e-6).astype(np.float32)
            zero = np.arange(len(value)) % 7 - 3
            graph.initializer.extend([
                numpy_helper.from_array(scale, w + "_s"),
                numpy_helper.from_array(zero.astype(np.int8), w + "_z")])
            for op, x, y in (("QuantizeLinear", w, w + "_q"),
                             ("DequantizeLinear", w + "_q", w + "_f")):
                nodes.append(helper.make_node(op, [x, w + "_s", w + "_z"], [y],
                                              axis=0))
            node.input[1] = w + "_f"
        nodes.append(node)
    kept = helper.make_graph(nodes, "net", [], [])
    graph.node.clear()
    graph.node.extend(kept.node)


def write_forms(path, folder):
    """The same network as other programs may have left it."""
    paths = [os.path.join(folder, f"{n}.onnx")
             for n in ("half", "integers", "steps", "apart")]
    for change, to in zip((in_half, in_integers, in_steps), paths):
        model = onnx.load(path)
        change(model)
        onnx.save(onnx.shape_inference.infer_shapes(model), to)
    onnx.save(onnx.load(path), paths[3], save_as_external_data=True,
              location="apart.data", size_threshold=0)
    return paths


def session(path):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    return ort.InferenceSession(path, options,
                                providers=["CPUExecutionProvider"])


def feeds(sess):
    rng = np.random.default_rng(0)
    out = {}
    for i in sess.get_inputs():
        free = 64 if len(i.shape) == 4 else 16
        shape = [d if isinstance(d, int) and d > 0 else 1 if k == 0 else free
                 for k, d in enumerate(i.shape)]
        out[i.name] = (rng.integers(0, 2, shape) if "int" in i.type
                       else rng.standard_normal(shape).astype(
                           np.float16 if "16" in i.type else np.float32))
    return out


def run(*words):
    done = subprocess.run([SPARSEBIT, *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def summed_axes(model):
    """Initializer -> axes that a layer sums over; weights of several nodes that
    read them in different ways have several."""
    rank = {t.name: len(t.dims) for t in model.graph.initializer}
    # Read behind what rounds or dequantizes them.
    behind = {}
    for n in model.graph.node:
        x = behind.get(n.input[0], n.input[0]) if n.input else ""
        if x in rank and n.op_type in ("QuantizeLinear", "DequantizeLinear"):
            behind[n.output[0]] = x
    axes = {}
    for node in model.graph.node:
        attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        for place, name in enumerate(node.input):
            name = behind.get(name, name)
            if name not in rank or node.domain not in ("", "ai.onnx"):
                continue
            axis = None
            if node.op_type == "Conv" and place == 1:
                axis = 1
            elif node.op_type == "ConvTranspose" and place == 1:
                axis = 0
            elif node.op_type == "Gemm" and place < 2:
                turned = attrs.get("transB" if place else "transA", 0)
                axis = int(bool(turned)) if place else 1 - int(bool(turned))
            elif node.op_type == "MatMul":
                axis = rank[name] - 1 if place == 0 or rank[name] == 1 else \
                    rank[name] - 2
            if axis is not None:
                axes.setdefault(name, set()).add(axis)
    return axes


def zeroed(path, cuts):
    """Sets what reads the removed channels to zero; True if the command's word
    for each such axis is the same."""
    model = onnx.load(path)
    tensors = {t.name: t for t in model.graph.initializer}
    axes, agree = summed_axes(model), True
    for cut in cuts:
        name, axis = cut["initializer"], cut["axis"]
        reads = axis in axes.get(name, ())
        if name in axes:
            agree &= (cut["role"] == "reads") == reads
        if reads or cut["role"] == "reads":
            t = tensors[name]
            value = numpy_helper.to_array(t).copy()
            at = [slice(None)] * value.ndim
            at[axis] = cut["indices"]
            value[tuple(at)] = 0
            t.CopyFrom(numpy_helper.from_array(value, t.name))
    onnx.save(model, path)
    return agree


def as_told(whole, cut, cuts):
    """Are the weights of the file those of the original without the indices
    that the command names?"""
    before = {t.name: numpy_helper.to_array(t)
              for t in onnx.load(whole).graph.initializer}
    for c in cuts:
        if c["initializer"] in before:
            before[c["initializer"]] = np.delete(
                before[c["initializer"]], c["indices"], c["axis"])
    after = {t.name: numpy_helper.to_array(t)
             for t in onnx.load(cut).graph.initializer}
    kinds = (np.float32, np.float16, np.int8, np.int32)
    weights = [n for n in after if n in before and after[n].dtype in kinds]
    return len(weights) > 0 and all(
        before[n].shape == after[n].shape and np.array_equal(
            before[n], after[n], equal_nan=after[n].dtype.kind == "f")
        for n in weights)


def tolerance(path, outputs):
    """Sums with fewer summands may be rounded to the neighbor, where values are
    rounded to steps."""
    steps = any(n.op_type == "QuantizeLinear" for n in onnx.load(
        path, load_external_data=False).graph.node)
    half = outputs[0].dtype == np.float16
    return 5e-2 if steps else 2e-3 if half else TOLERANCE


def check(path, folder):
    name = os.path.basename(path)
    whole, cut = os.path.join(folder, "w.onnx"), os.path.join(folder, "c.onnx")
    config = os.path.join(folder, "sconfig.yaml")
    with open(config, "w") as f:
        f.write(CONFIG)
    try:
        run("simplify", path, "-q", "-o", whole)
        told = json.loads(run("prune", path, "-c", config, "-o", cut, "--json"))
    except RuntimeError as error:
        none = "no channel can be removed" in str(error) and sys.argv[2:]
        print(f"{name}: {error}" + ("" if none else "  FAILED"))
        return bool(none)
    wrong = [] if as_told(whole, cut, told["cuts"]) else ["weights"]
    if not zeroed(whole, told["cuts"]):
        wrong.append("roles")
    onnx.checker.check_model(cut, full_check=True)
    x = feeds(session(path))
    before, want, got = (session(p).run(None, x) for p in (path, whole, cut))
    error = max(np.max(np.abs(a - b)) / (np.max(np.abs(a)) + 1e-9)
                for a, b in zip(want, got))
    moved = max(np.max(np.abs(a - b)) for a, b in zip(before, got))
    if not error <= tolerance(cut, want):
        wrong.append("outputs")
    # (Channels of a random network may happen to be silent.)
    if (moved == 0 and not sys.argv[2:]) or told["removed"] == 0:
        wrong.append("nothing changed")
    if any(a.shape != b.shape for a, b in zip(before, got)):
        wrong.append("shapes")
    left = [100 * told[k + "_after"] / max(told[k + "_before"], 1)
            for k in ("params", "macs")]
    if not sys.argv[2:] and left[0] >= 95:
        wrong.append("too little went")
    print(f"{name}: {100 * told['removable'] / told['size']:.1f} % removable, "
          f"parameters {left[0]:.1f} %, MACs {left[1]:.1f} %, "
          f"error {error:.0e}"
          + (f"  FAILED: {', '.join(wrong)}" if wrong else ""))
    return not wrong


def one_head(net):
    """Attention with a single head: of queries and keys go elements."""
    q, k, v = (net.add("Add", net.linear("x", 12, 16), net.weight(16))
               for _ in range(3))
    s = net.add("MatMul", q, net.add("Transpose", k, perm=[0, 2, 1]))
    s = net.add("Softmax", net.add("Mul", s, net.weight(1, scale=0.25)))
    return net.linear(net.add("MatMul", s, v), 16, 12)


def check_pairs(folder):
    """Where activations are multiplied with each other no weight reads what is
    removed: the sum has no such summands, as if the queries were zero."""
    path, whole, cut, config = (
        os.path.join(folder, n) for n in ("p.onnx", "w.onnx", "c.onnx",
                                          "sconfig.yaml"))
    net = Net(7, [1, 6, 12])
    net.write(path, one_head(net))
    good = True
    for statistics, wanted in ((False, 16), (True, 48)):
        with open(config, "w") as f:
            f.write("SPARSER: {RATIO: 0.3, STATISTICS: %s}\n" % statistics)
        run("simplify", path, "-q", "-o", whole)
        told = json.loads(run("prune", path, "-c", config, "-o", cut, "--json"))
        model = onnx.load(whole)
        tensors = {t.name: t for t in model.graph.initializer}
        for c in told["cuts"]:
            # What makes a channel, and its bias, but not what reads it.
            t = tensors[c["initializer"]]
            value = numpy_helper.to_array(t).copy()
            if c["role"] != "reads":
                value[..., c["indices"]] = 0
            t.CopyFrom(numpy_helper.from_array(value, t.name))
        onnx.save(model, whole)
        x = feeds(session(path))
        before, want, got = (session(p).run(None, x)[0]
                             for p in (path, whole, cut))
        error = np.max(np.abs(want - got)) / np.max(np.abs(want))
        good &= bool(told["removable"] == wanted and error <= TOLERANCE and
                     np.max(np.abs(before - got)) > 1e-3)
        print(f"one head: {told['removable']} removable, error {error:.0e}"
              + ("" if good else "  FAILED"))
    return good


def dense(sparse):
    """What a sparse tensor stands for."""
    value = np.zeros(int(np.prod(sparse.dims)), np.float32)
    value[numpy_helper.to_array(sparse.indices)] = numpy_helper.to_array(
        sparse.values)
    return value.reshape(list(sparse.dims))


def check_sparse(folder):
    """--sparse: the same weights, in less room where most of them are zero; ONNX
    Runtime and our own reader take the file."""
    net, ok = Net(9, [1, 3, 8, 8]), True
    path, config, plain, thin, again = (
        os.path.join(folder, n) for n in ("m.onnx", "u.yaml", "plain.onnx",
                                          "thin.onnx", "again.onnx"))
    net.write(path, net.conv(net.conv("x", 3, 24, 3), 24, 32, 3))
    for ratio, pays in ((0.8, True), (0.5, False)):
        with open(config, "w") as f:
            f.write(f"SPARSER: {{TYPE: unstructured, RATIO: {ratio}}}\n")
        run("prune", path, "-c", config, "-q", "-o", plain)
        run("prune", path, "-c", config, "-q", "-o", thin, "--sparse")
        run("simplify", thin, "-q", "-o", again)
        model = onnx.load(thin)
        # Not in full: its inference takes sparse weights for vectors, also
        # those that its own helpers make.
        onnx.checker.check_model(model)
        want, back = ({t.name: numpy_helper.to_array(t)
                       for t in onnx.load(p).graph.initializer}
                      for p in (plain, again))
        got = {t.name: numpy_helper.to_array(t)
               for t in model.graph.initializer}
        made = {t.values.name: dense(t)
                for t in model.graph.sparse_initializer}
        got.update(made)
        x = feeds(session(path))
        runs = [session(p).run(None, x)[0] for p in (plain, thin, again)]
        good = (want.keys() == got.keys() == back.keys() and
                all(np.array_equal(want[n], got[n]) and
                    np.array_equal(want[n], back[n]) for n in want) and
                np.array_equal(runs[0], runs[1]) and
                np.array_equal(runs[0], runs[2]) and
                (len(made) > 0) == pays and
                (os.path.getsize(thin) < os.path.getsize(plain)) == pays)
        print(f"sparse initializers at ratio {ratio}: {len(made)} of "
              f"{len(got)}" + ("" if good else "  FAILED"))
        ok &= good
    return ok


def main():
    paths = sys.argv[2:] or [p for n, p in fixtures.networks().items()
                             if n in QUICK]
    with tempfile.TemporaryDirectory() as folder:
        if not sys.argv[2:]:
            for seed, (make, shape) in enumerate(MADE):
                net = Net(seed, shape)
                path = os.path.join(folder, make.__name__ + ".onnx")
                net.write(path, make(net))
                paths.append(path)
                if make is residual:
                    paths += write_forms(path, folder)
        results = [check(p, folder) for p in paths]
        if not sys.argv[2:]:
            results.append(check_sparse(folder))
            results.append(check_pairs(folder))
    print(f"{sum(results)} of {len(results)} networks")
    return 0 if all(results) else 1


sys.exit(main())
