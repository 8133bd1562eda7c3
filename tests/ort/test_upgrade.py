#!/usr/bin/env python3
"""Old models mean the same after loading and saving. (slow)

    test_upgrade.py SPARSEBIT

Each case of the conformance suite (opset 1 to 17) is written back with
`simplify --passes none`, which upgrades its operators; ONNX Runtime must then
compute the stored outputs.  Models with functions, sub-graphs and old forms of
Resize, made here, are compared with ONNX Runtime's own result of the original.
Cases that ONNX Runtime cannot run in either form are skipped.
"""
import glob
import itertools
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper, parser
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

SUITE = "/usr/share/libonnx-testdata/data"

FUNCTIONS = """
<ir_version: 9, opset_import: ["" : 11, "loc" : 1]>
g (float[2,3] x) => (float[2,3] y, float[2,3] z) {
  y = loc.F <alpha = 3.0> (x)
  z = loc.F (y)
}
<domain: "loc", opset_import: ["" : 11, "loc" : 1]>
F <alpha: float = 2.0> (a) => (b) {
  c = LeakyRelu <alpha: float = @alpha> (a)
  t = loc.G <ax = 1> (c)
  b = Add (t, a)
}
<domain: "loc", opset_import: ["" : 11]>
G <ax> (a) => (b) {
  s = Softmax <axis: int = @ax> (a)
  r = ReduceSum <axes = [1], keepdims = 1> (s)
  b = Div (s, r)
}
"""

BRANCHES = """
<ir_version: 9, opset_import: ["" : 17, "loc" : 1]>
g (float[2,3] x, bool c) => (float[2,3] y) {
  k = Constant <value_float = 5.0> ()
  xx = Mul (x, k)
  y = If (c) <
    then_branch = tb () => (float[2,3] r) { r = loc.F (xx, c) },
    else_branch = eb () => (float[2,3] r2) {
      q = Neg (xx)
      r2 = If (c) <
        then_branch = tb2 () => (float[2,3] w) { w = Add (q, x) },
        else_branch = eb2 () => (float[2,3] w2) { w2 = Sub (q, k) }>
    }>
}
<domain: "loc", opset_import: ["" : 17]>
F (a, c) => (b) {
  h = Exp (a)
  b = If (c) <then_branch = tb () => (float[2,3] r) { r = Add (h, a) },
              else_branch = eb () => (float[2,3] r) { r = Identity (h) }>
}
"""


def resize_model(op, opset, mode, scale):
    scales = numpy_helper.from_array(np.array([1, 1, scale, scale], np.float32), "s")
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "s"], ["y"], mode=mode)], "g",
        [helper.make_tensor_value_info("x", 1, [1, 1, 7, 9])],
        [helper.make_tensor_value_info("y", 1, [1, 1, None, None])], initializer=[scales])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=5)


def made_models():
    yield "functions", parser.parse_model(FUNCTIONS)
    yield "branches", parser.parse_model(BRANCHES)
    for op, mode, scale in itertools.product(["Upsample", "Resize"], ["nearest", "linear"],
                                             [0.5, 0.6, 0.8, 1.7, 2.0]):
        if op == "Resize" or scale > 1:
            yield (f"{op} {mode} {scale}",
                   resize_model(op, 9 if op == "Upsample" else 10, mode, scale))


def read_tensor(path):
    t = onnx.TensorProto()
    with open(path, "rb") as f:
        t.ParseFromString(f.read())
    return numpy_helper.to_array(t)


def read_all(folder, what):
    paths = glob.glob(f"{folder}/{what}_*.pb")
    return [read_tensor(p) for p in sorted(paths, key=lambda p: int(p.split("_")[-1][:-3]))]


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(path, inputs):
    s = session(path)
    names = [i.name for i in onnx.load(path, load_external_data=False).graph.input]
    return s.run(None, dict(zip(names, inputs)))


def same(got, want):
    if len(got) != len(want):
        return False
    for a, b in zip(got, want):
        a = np.asarray(a)
        if a.shape != b.shape:
            return False
        close = np.allclose(a, b, 1e-3, 1e-4, True) if a.dtype.kind in "fc" else (a == b).all()
        if not close:
            return False
    return True


def convert(command, path, out):
    done = subprocess.run([command, "simplify", path, "-o", out, "--passes", "none"],
                          capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip()


def attempt(path, inputs, want):
    """None if the outputs are right, else why not."""
    try:
        return None if same(run(path, inputs), want) else "other outputs"
    except Exception as e:  # whatever ONNX Runtime raises
        return str(e).replace("\n", " ")[:200]


def suite_case(command, path, out):
    folder = os.path.join(os.path.dirname(path), "test_data_set_0")
    try:
        inputs, want = read_all(folder, "input"), read_all(folder, "output")
    except Exception:
        return "skipped", "not tensors"
    error = convert(command, path, out)
    if error:
        known = "Scan of opset 8" if "Scan of opset 8 is not known" in error \
            else None
        return ("skipped", known) if known else ("failed", error)
    error = attempt(out, inputs, want)
    if not error:
        return "passed", None
    if attempt(path, inputs, want):
        return "skipped", "ONNX Runtime cannot do the original either"
    return "failed", error


def made_case(command, path, out):
    rng = np.random.default_rng(7)
    for flag in (True, False):
        inputs = []
        for i in onnx.load(path).graph.input:
            shape = [d.dim_value for d in i.type.tensor_type.shape.dim]
            is_bool = i.type.tensor_type.elem_type == onnx.TensorProto.BOOL
            inputs.append(np.array(flag) if is_bool else rng.normal(size=shape).astype(np.float32))
        error = convert(command, path, out) or attempt(out, inputs, run(path, inputs))
        if error:
            return "failed", error
    return "passed", None


def main():
    command = sys.argv[1]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.onnx")
        cases = []
        for name, m in made_models():
            path = os.path.join(folder, name.replace(" ", "_") + ".onnx")
            onnx.save(m, path)
            cases.append((name, path, made_case))
        for path in sorted(glob.glob(f"{SUITE}/*/*/model.onnx")):
            cases.append(("/".join(path.split("/")[-3:-1]), path, suite_case))
        for name, path, check in cases:
            verdict, why = check(command, path, out)
            counts[verdict] += 1
            if verdict == "failed":
                print(f"failed {name}: {why}")
    print(", ".join(f"{n} {v}" for v, n in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
