"""Mathematical operators on random nodes, against ONNX Runtime.

    test_math_random.py COMMAND [SEED [COUNT]]

Each round makes a model of one node with random type, shapes and attributes,
runs it with ONNX Runtime and with `COMMAND run`, and compares.  What ONNX
Runtime refuses is left out.  A failure prints the round, which SEED repeats.
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
except ImportError as why:
    print(f"skipped: {why}")
    sys.exit(77)

TYPES = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "i8": np.int8,
    "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8,
    "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.bool_,
}
FLOATS = ["f32", "f32", "f32", "f16", "f64"]
INTS = ["i32", "i64", "i8", "u8"]
SIZES = [1, 2, 3, 4, 7, 16, 33]


class Case:
    """One node with its inputs."""

    def __init__(self, op, arrays, attrs=None, n_out=1, constants=(), opset=22,
                 domain="", loose=1.0):
        self.op, self.arrays, self.attrs = op, arrays, attrs or {}
        self.n_out, self.constants, self.opset = n_out, set(constants), opset
        self.domain, self.loose = domain, loose

    def model(self, dtypes):
        names = [f"x{i}" if a is not None else "" for i, a in
                 enumerate(self.arrays)]
        outputs = [f"y{i}" for i in range(self.n_out)]
        node = helper.make_node(self.op, names, outputs, domain=self.domain,
                                **self.attrs)
        inputs, weights = [], []
        for i, a in enumerate(self.arrays):
            if a is None:
                continue
            if i in self.constants:
                weights.append(numpy_helper.from_array(a, names[i]))
            else:
                inputs.append(helper.make_tensor_value_info(
                    names[i], helper.np_dtype_to_tensor_dtype(a.dtype),
                    a.shape))
        outs = [helper.make_tensor_value_info(n, t, None)
                for n, t in zip(outputs, dtypes)]
        graph = helper.make_graph([node], "g", inputs, outs, weights)
        opsets = [helper.make_opsetid("", self.opset),
                  helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def __str__(self):
        shapes = ", ".join("_" if a is None else f"{a.dtype}{list(a.shape)}"
                           for a in self.arrays)
        return f"{self.op}({shapes}) {self.attrs}"


class Maker:
    """Makes random cases."""

    def __init__(self, rng):
        self.rng = rng

    def pick(self, items):
        return items[self.rng.integers(len(items))]

    def shape(self, low=0, high=5):
        rank = int(self.rng.integers(low, high))
        return [int(self.pick(SIZES[:4] if rank > 3 else SIZES))
                for _ in range(rank)]

    def array(self, kind, shape, low=-3.0, high=3.0):
        dtype = TYPES[kind]
        if kind == "bool":
            return self.rng.integers(0, 2, shape).astype(bool)
        if np.issubdtype(dtype, np.integer):
            lo = 0 if np.issubdtype(dtype, np.unsignedinteger) else -9
            return self.rng.integers(lo, 10, shape).astype(dtype)
        return np.asarray(self.rng.uniform(low, high, shape)).astype(dtype)

    def partner(self, shape):
        """A shape that broadcasts with `shape`."""
        own = [d if self.rng.random() < 0.7 else 1 for d in shape]
        return own[int(self.rng.integers(len(own) + 1)):] if own else own

    def axis(self, rank):
        return int(self.rng.integers(-rank, rank))

    def unary(self):
        op, low, high = self.pick([
            ("Abs", -3, 3), ("Neg", -3, 3), ("Sign", -3, 3), ("Ceil", -9, 9),
            ("Floor", -9, 9), ("Round", -9, 9), ("Sqrt", 0, 9),
            ("Reciprocal", 0.2, 9), ("Exp", -20, 8), ("Log", 0.01, 30),
            ("Sin", -9, 9), ("Cos", -9, 9), ("Tan", -1.3, 1.3),
            ("Asin", -1, 1), ("Acos", -1, 1), ("Atan", -9, 9),
            ("Sinh", -4, 4), ("Cosh", -4, 4), ("Tanh", -12, 12),
            ("Asinh", -9, 9), ("Acosh", 1, 9), ("Atanh", -0.9, 0.9),
            ("Erf", -5, 5), ("Sigmoid", -30, 30), ("Softplus", -30, 30),
            ("Softsign", -9, 9), ("HardSwish", -9, 9), ("Mish", -20, 20),
            ("Relu", -3, 3), ("Selu", -9, 9), ("IsNaN", -3, 3),
            ("Identity", -3, 3)])
        kind = self.pick(FLOATS + (INTS if op in ("Abs", "Neg", "Sign", "Relu")
                                   else []))
        return Case(op, [self.array(kind, self.shape(), low, high)])

    def activation(self):
        f = lambda lo, hi: float(self.rng.uniform(lo, hi))
        op, attrs = self.pick([
            ("LeakyRelu", {"alpha": f(0, 1)}), ("Elu", {"alpha": f(0, 2)}),
            ("Celu", {"alpha": f(0.1, 2)}),
            ("HardSigmoid", {"alpha": f(0, 1), "beta": f(0, 1)}),
            ("ThresholdedRelu", {"alpha": f(0, 2)}),
            ("Shrink", {"lambd": f(0, 2), "bias": f(0, 1)}),
            ("Gelu", {"approximate": "tanh"}), ("Gelu", {}),
            ("Selu", {"alpha": f(0, 2), "gamma": f(0, 2)})])
        return Case(op, [self.array(self.pick(FLOATS), self.shape(), -6, 6)],
                    attrs)

    def microsoft(self):
        shape = self.shape(1)
        x = self.array("f32", shape, -6, 6)
        bias = self.array("f32", shape[-1:])
        op = self.pick(["Gelu", "FastGelu", "BiasGelu", "QuickGelu"])
        arrays = [x, bias] if op == "BiasGelu" or (
            op == "FastGelu" and self.rng.random() < 0.5) else [x]
        return Case(op, arrays, domain="com.microsoft")

    def binary(self):
        op = self.pick(["Add", "Sub", "Mul", "Div", "Equal", "Less", "Greater",
                        "LessOrEqual", "GreaterOrEqual", "PRelu", "Max", "Min"])
        kind = self.pick(FLOATS + INTS)
        shape = self.shape()
        a, b = self.array(kind, shape), self.array(kind, self.partner(shape))
        if op == "Div" and not kind.startswith("f"):
            b = np.where(b == 0, 1, b).astype(b.dtype)
        if op not in ("PRelu",) and self.rng.random() < 0.5:
            a, b = (a, b) if op == "Div" else (b, a)
        return Case(op, [a, b], constants=self.pick([(), (1,)]))

    def logic(self):
        shape = self.shape()
        op = self.pick(["And", "Or", "Xor"])
        return Case(op, [self.array("bool", shape),
                         self.array("bool", self.partner(shape))])

    def bits(self):
        shape = self.shape()
        if self.rng.random() < 0.3:
            kind = self.pick(["u8", "u16", "u32", "u64"])
            return Case("BitShift", [self.array(kind, shape),
                                     self.array(kind, shape) % 8],
                        {"direction": self.pick(["LEFT", "RIGHT"])})
        kind = self.pick(INTS)
        return Case(self.pick(["BitwiseAnd", "BitwiseOr", "BitwiseXor"]),
                    [self.array(kind, shape),
                     self.array(kind, self.partner(shape))])

    def variadic(self):
        op, kind = self.pick(["Max", "Min", "Sum", "Mean"]), "f32"
        shape = self.shape()
        arrays = [self.array(kind, shape)]
        for _ in range(int(self.rng.integers(4))):
            arrays.append(self.array(kind, self.partner(shape)))
        return Case(op, arrays)

    def pow(self):
        shape = self.shape()
        base = self.array(self.pick(["f32", "f64", "i32", "i64"]), shape, 0.1,
                          4)
        if np.issubdtype(base.dtype, np.integer):
            base = np.abs(base)
        power = self.array(self.pick(["f32", "i32", "i64"]),
                           self.partner(shape), 0, 3)
        return Case("Pow", [base, np.abs(power)])

    def mod(self):
        kind = self.pick(["f32", "f64", "i32", "i64", "i8", "u8"])
        fmod = 1 if kind.startswith("f") else int(self.rng.integers(2))
        shape = self.shape()
        b = self.array(kind, self.partner(shape))
        b = np.where(b == 0, 1, b).astype(b.dtype)
        return Case("Mod", [self.array(kind, shape), b], {"fmod": fmod})

    def where(self):
        shape, kind = self.shape(), self.pick(FLOATS + INTS)
        return Case("Where", [self.array("bool", self.partner(shape)),
                              self.array(kind, shape),
                              self.array(kind, self.partner(shape))])

    def clip(self):
        kind = self.pick(FLOATS + INTS)
        lo, hi = self.array(kind, []), self.array(kind, [])
        return Case("Clip", [self.array(kind, self.shape()),
                             self.pick([lo, None]), self.pick([hi, None])],
                    constants=self.pick([(), (1, 2)]))

    def cast(self):
        to = self.pick(list(TYPES))
        kind = self.pick(list(TYPES))
        low = 0 if to.startswith("u") else -3
        attrs = {"to": helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[to]))}
        x = self.array(kind, self.shape(), low)
        if to.startswith("u") and kind.startswith("i"):
            x = np.abs(x)
        return Case("Cast", [x], attrs)

    def reduce(self):
        op = self.pick(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin",
                        "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
                        "ReduceLogSumExp", "ReduceSumSquare"])
        kind = self.pick(["f32", "f32", "f64", "i32", "i64"])
        if op in ("ReduceLogSum", "ReduceLogSumExp", "ReduceL2"):
            kind = self.pick(["f32", "f64"])
        shape = self.shape(1)
        low = 0.1 if op == "ReduceLogSum" else -1
        rank = len(shape)
        axes = [d if self.rng.random() < 0.5 else d - rank
                for d in range(rank) if self.rng.random() < 0.5]
        attrs = {"keepdims": int(self.rng.integers(2))}
        arrays = [self.array(kind, shape, low, 2)]
        if op == "ReduceProd" and kind.startswith("i"):
            arrays[0] %= 2  # what overflows is nobody's business
        if axes or self.rng.random() < 0.5:
            arrays.append(np.array(axes, np.int64))
            if not axes:
                attrs["noop_with_empty_axes"] = int(self.rng.integers(2))
        return Case(op, arrays, attrs, constants=(1,), opset=18)

    def arg(self):
        shape = self.shape(1)
        return Case(self.pick(["ArgMax", "ArgMin"]),
                    [self.array(self.pick(["f32", "f64", "i32", "i8", "u8"]),
                                shape)],
                    {"axis": self.axis(len(shape)),
                     "keepdims": int(self.rng.integers(2)),
                     "select_last_index": int(self.rng.integers(2))}, opset=13)

    def cum(self):
        shape = self.shape(1)
        axis = np.array(self.axis(len(shape)),
                        self.pick([np.int64, np.int32]))
        return Case("CumSum", [self.array(self.pick(["f32", "f64", "i32",
                                                     "i64"]), shape), axis],
                    {"exclusive": int(self.rng.integers(2)),
                     "reverse": int(self.rng.integers(2))},
                    constants=self.pick([(), (1,)]), opset=14)

    def along(self):
        shape = self.shape(1)
        op = self.pick(["Softmax", "LogSoftmax", "Hardmax", "LpNormalization"])
        attrs = {"axis": self.axis(len(shape))}
        if op == "LpNormalization":
            attrs["p"] = self.pick([1, 2])
        return Case(op, [self.array(self.pick(["f32", "f32", "f64"]), shape,
                                    -9, 9)], attrs, opset=13)

    def top_k(self):
        shape = self.shape(1)
        axis = self.axis(len(shape))
        k = np.array([self.rng.integers(1, shape[axis] + 1)], np.int64)
        return Case("TopK", [self.array(self.pick(["f32", "f64", "i32",
                                                   "i64"]), shape), k],
                    {"axis": axis, "largest": int(self.rng.integers(2))},
                    n_out=2, constants=self.pick([(), (1,)]), opset=11)

    def range(self):
        kind = self.pick(["f32", "f64", "i32", "i64"])
        start, limit = self.array(kind, []), self.array(kind, [])
        delta = np.asarray(self.pick([1, 2, 3]) * (1 if limit > start else -1),
                           start.dtype)
        if kind.startswith("f"):
            delta = (delta * np.asarray(0.37, start.dtype)).astype(start.dtype)
        return Case("Range", [start, limit, delta],
                    constants=self.pick([(), (0, 1, 2)]))

    def einsum(self):
        letters = list("abcde")
        size = {c: int(self.pick(SIZES[:5])) for c in letters}
        terms = ["".join(self.rng.permutation(letters)
                         [:self.rng.integers(1, 4)])
                 for _ in range(int(self.rng.integers(1, 4)))]
        used = sorted(set("".join(terms)))
        out = "".join(c for c in self.rng.permutation(used)
                      if self.rng.random() < 0.5)
        equation = ",".join(terms)
        if self.rng.random() < 0.8:
            equation += "->" + out
        return Case("Einsum", [self.array("f32", [size[c] for c in t])
                               for t in terms], {"equation": equation},
                    loose=10)

    def det(self):
        n = int(self.rng.integers(1, 6))
        return Case("Det", [self.array("f32", self.shape(0, 3) + [n, n])],
                    loose=10)

    def other(self):
        # One element per group has no variance: 0 / 0 in ONNX Runtime.
        shape = [2] + self.shape(3, 4)
        return Case("MeanVarianceNormalization", [self.array("f32", shape)],
                    {"axes": [0, 2, 3]}, opset=13, loose=10)

    def any(self):
        kinds = ["unary", "unary", "activation", "microsoft", "binary",
                 "binary", "logic", "bits", "variadic", "pow", "mod", "where",
                 "clip", "cast", "reduce", "reduce", "arg", "cum", "along",
                 "top_k", "range", "einsum", "det", "other"]
        return getattr(self, self.pick(kinds))()


def reference(case):
    """The outputs of ONNX Runtime, or None if it refuses."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    feeds = {f"x{i}": a for i, a in enumerate(case.arrays)
             if a is not None and i not in case.constants}
    try:
        model = onnx.shape_inference.infer_shapes(
            case.model([TensorProto.UNDEFINED] * case.n_out))
        dtypes = [o.type.tensor_type.elem_type for o in model.graph.output]
        if TensorProto.UNDEFINED in dtypes:
            dtypes = [helper.np_dtype_to_tensor_dtype(case.arrays[0].dtype)]
        model = case.model(dtypes)
        session = ort.InferenceSession(model.SerializeToString(), options,
                                       providers=["CPUExecutionProvider"])
        return model, feeds, session.run(None, feeds)
    except Exception:  # its errors have no common class
        return None


def run_command(command, folder, model, feeds, n_out):
    path = os.path.join(folder, "model.onnx")
    onnx.save(model, path)
    args = [command, "run", path, "-q", "--out-dir", folder]
    for name, array in feeds.items():
        file = os.path.join(folder, name + ".npy")
        np.save(file, array)
        args += ["--input", f"{name}={file}"]
    done = subprocess.run(args, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        return None, done.stderr.strip() or f"exit code {done.returncode}"
    return [np.load(os.path.join(folder, f"y{i}.npy"))
            for i in range(n_out)], None


def difference(got, want, loose):
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"got {got.dtype}{got.shape}, want {want.dtype}{want.shape}"
    if np.issubdtype(want.dtype, np.floating):
        tol = loose * (4e-3 if want.dtype == np.float16 else 1e-5)
        g, w = got.astype(np.float64), want.astype(np.float64)
        bad = ~np.isclose(g, w, rtol=tol, atol=tol, equal_nan=True)
    else:
        bad = got != want
    if not bad.any():
        return None
    at = np.argwhere(bad)[0]
    return (f"{int(bad.sum())} of {bad.size} differ, first at {at.tolist()}: "
            f"got {got[tuple(at)]}, want {want[tuple(at)]}")


def main():
    command = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 300
    compared = refused = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            case = Maker(np.random.default_rng([seed, i])).any()
            known = reference(case)
            if known is None:
                refused += 1
                continue
            model, feeds, want = known
            got, why = run_command(command, folder, model, feeds, case.n_out)
            for g, w in zip(got or [], want):
                why = why or difference(g, np.asarray(w), case.loose)
            compared += 1
            if why:
                failed += 1
                print(f"round {i}: {case}: {why}")
    print(f"{compared} compared, {failed} failed, {refused} left out because "
          "ONNX Runtime refuses them")
    return 1 if failed or compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
