"""--opset: files in older opsets are valid, have the opset that was asked for, and
compute what ONNX Runtime computes for the original; what an opset cannot hold is
refused by name.

usage: test_opset.py SPARSEBIT"""
import os
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

COMMAND = sys.argv[1]
F = TensorProto.FLOAT
rng = np.random.default_rng(0)
checks = failed = 0


def check(what, ok):
    global checks, failed
    checks += 1
    if not ok:
        failed += 1
        print("FAIL", what)


def model(op, shape, constants, opset, **attrs):
    """One operator on x and constants (None: an absent input)."""
    names = [f"c{i}" if c is not None else "" for i, c in enumerate(constants)]
    outs = [f"y{i}" for i in range(attrs.pop("outputs", 1))]
    graph = helper.make_graph(
        [helper.make_node(op, ["x"] + names, outs, name="the_node", **attrs)],
        "g", [helper.make_tensor_value_info("x", F, shape)],
        [helper.make_tensor_value_info(o, F, None) for o in outs],
        [numpy_helper.from_array(np.asarray(c), n)
         for c, n in zip(constants, names) if c is not None])
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", opset)])


def run(path, x):
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        None, {"x": x})


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


I = np.int64
SCALES = np.array([1, 1, 2, 2], np.float32)
# operator, shape of x, constants, opset of the file, attributes, lowest opset
CASES = [
    ("Resize", [1, 2, 4, 5], [None, SCALES], 19, {"mode": "nearest"}, 13),
    ("Resize", [1, 2, 4, 5], [None, SCALES], 19,
     {"mode": "linear", "antialias": 0, "keep_aspect_ratio_policy": "stretch"}, 13),
    ("Resize", [1, 2, 8, 8], [None, np.array([1, 1, 0.5, 0.5], np.float32)], 19,
     {"mode": "linear", "antialias": 1}, 18),
    ("Resize", [1, 2, 4, 5], [None, SCALES], 19,
     {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}, 19),
    ("Pad", [2, 3], [np.array([0, 1, 1, 0], I)], 19, {}, 11),
    ("Pad", [2, 3], [np.array([1, 1], I), None, np.array([1], I)], 19, {}, 18),
    ("Pad", [2, 3], [np.array([0, 1, 1, 0], I)], 19, {"mode": "wrap"}, 19),
    ("Split", [4, 3], [np.array([1, 3], I)], 18, {"outputs": 2}, 13),
    ("Split", [4, 3], [], 18, {"outputs": 2, "num_outputs": 2}, 18),
    ("Reshape", [4, 3], [np.array([3, 4], I)], 19, {"allowzero": 0}, 7),
    ("Reshape", [4, 3], [np.array([3, 4], I)], 19, {"allowzero": 1}, 14),
    ("ReduceMean", [2, 3, 4], [np.array([-1, 1], I)], 18, {}, 11),
    ("ReduceMax", [2, 3, 4], [np.array([0], I)], 20, {"keepdims": 0}, 11),
    ("ReduceL2", [2, 3, 4], [], 18, {}, 11),
    ("Gelu", [3, 7], [], 20, {}, 9),
    ("Gelu", [3, 7], [], 20, {"approximate": "tanh"}, 7),
    ("Mish", [3, 7], [], 18, {}, 7),
    ("HardSwish", [3, 7], [], 14, {}, 7),
    ("LayerNormalization", [3, 7], [f32(7), f32(7)], 17, {"epsilon": 0.01}, 11),
    ("LayerNormalization", [2, 3, 7], [f32(3, 7)], 17, {"axis": 1}, 11),
]


def simplify(path, out, opset, *more):
    return subprocess.run([COMMAND, "simplify", path, "-o", out, "--opset",
                           str(opset), "-q", *more], capture_output=True, text=True)


def main(folder):
    path, out = os.path.join(folder, "a.onnx"), os.path.join(folder, "b.onnx")
    for op, shape, constants, opset, attrs, lowest in CASES:
        onnx.save(model(op, shape, constants, opset, **attrs), path)
        x = f32(*shape) * 3
        want = run(path, x)
        what = f"{op} {attrs}"
        for n in range(7, 26):
            # Without passes: nodes stay as they are.
            done = simplify(path, out, n, "--passes", "remove_dead")
            check(f"{what} in opset {n}: {done.stderr}",
                  (done.returncode == 0) == (n >= lowest))
            if done.returncode:
                check(f"{what} in opset {n}: {done.stderr}",
                      f"opset {n} cannot hold node" in done.stderr
                      and "needs opset" in done.stderr)
                continue
            got = onnx.load(out)
            check(f"{what}: opset", got.opset_import[0].version == n)
            onnx.checker.check_model(got, full_check=True)
            if n > 24:  # newer than the installed ONNX Runtime reads, perhaps
                continue
            for a, b in zip(want, run(out, x)):
                check(f"{what} in opset {n}: values",
                      a.shape == b.shape and np.allclose(a, b, rtol=1e-5, atol=1e-6))
    # A file is not lifted above its opset by what it can hold.
    onnx.save(model("Resize", [1, 2, 4, 5], [None, SCALES], 13), path)
    subprocess.run([COMMAND, "simplify", path, "-o", out, "-q"], check=True)
    check("Resize stays in opset 13", onnx.load(out).opset_import[0].version == 13)
    for n, word in ((6, "want 7 to 25"), (26, "want 7 to 25")):
        done = simplify(path, out, n)
        check(f"opset {n}: {done.stderr}", done.returncode == 1 and word in done.stderr)


with tempfile.TemporaryDirectory() as top:
    main(top)
print(f"{checks} checks, {failed} failed")
sys.exit(1 if failed else 0)
