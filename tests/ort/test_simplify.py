"""sparsebit simplify: the file it writes is valid ONNX, ONNX Runtime runs it,
and gives what it gave for the original.

Outputs alone can hide an error: those of an untrained detector hardly depend
on its layers.  So every intermediate value that has the same name before and
after is compared too, each on its own scale.

usage: test_simplify.py SPARSEBIT [MODEL.onnx ...]

Without models those among the fixtures (tests/ort/fixtures.py) are used, with
their reference inputs and outputs.  Exit status 77 means that something needed is missing.
"""
import pathlib
import subprocess
import sys
import tempfile

import fixtures

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

# Operators that collapsing removes wherever they were a decomposition.
GONE = {"yolox_nano": [], "minilm_l6": ["Erf", "Pow", "Sqrt"]}
TOLERANCE = 1e-4
# ONNX Runtime's sigmoid is off by 1e-7, which is a lot near 0.
INNER_TOLERANCE, INNER_FLOOR = 1e-3, 1e-6


def session(model, optimize=True):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = (
            ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    return ort.InferenceSession(model, options,
                                providers=["CPUExecutionProvider"])


def node_outputs(model):
    return [o for n in model.graph.node for o in n.output if o]


def inner_values(path, names, feeds):
    """Values of these names, made outputs, without the runtime's optimizer."""
    model = onnx.load(path)
    have = {o.name for o in model.graph.output}
    model.graph.output.extend(
        onnx.ValueInfoProto(name=n) for n in names if n not in have)
    sess = session(model.SerializeToString(), optimize=False)
    return dict(zip([o.name for o in sess.get_outputs()],
                    sess.run(None, feeds)))


def compare_inner(before, after, feeds):
    """Why the intermediate values differ, or None; and how many there are."""
    kept = set(node_outputs(onnx.load(after)))
    names = [n for n in node_outputs(onnx.load(before)) if n in kept]
    want = inner_values(before, names, feeds)
    got = inner_values(after, names, feeds)
    for n in names:
        w, g = want[n], got[n]
        if not isinstance(w, np.ndarray) or w.dtype.kind != "f" or not w.size:
            continue
        if w.shape != g.shape:
            return f"{n}: shape {g.shape}, want {w.shape}", len(names)
        w, g = w.astype("f8"), g.astype("f8")
        finite = np.isfinite(w)  # masks hold -inf on purpose
        if not np.array_equal(w[~finite], g[~finite], equal_nan=True):
            return f"{n}: infinities differ", len(names)
        scale = np.abs(w[finite]).max(initial=0)
        diff = np.abs(g[finite] - w[finite]).max(initial=0)
        if not diff <= INNER_TOLERANCE * scale + INNER_FLOOR:
            return f"{n}: differs by {diff:g} of {scale:g}", len(names)
    return None, len(names)


def random_inputs(sess, rng):
    """Inputs of the declared shapes; each symbol gets a size of its own."""
    feeds, sizes = {}, {}
    for i in sess.get_inputs():
        shape = [d if isinstance(d, int) and d > 0
                 else sizes.setdefault(d, 2 + len(sizes)) for d in i.shape]
        if "float" in i.type or "double" in i.type:
            dtype = {"tensor(float)": np.float32, "tensor(double)": np.float64,
                     "tensor(float16)": np.float16}[i.type]
            feeds[i.name] = rng.standard_normal(shape).astype(dtype)
        else:
            dtype = i.type[len("tensor("):-1]
            # Not all the same: normalizing equal numbers leaves only rounding.
            feeds[i.name] = rng.integers(0, 2, shape).astype(dtype)
    return feeds


def reference(model, ref):
    """Inputs, and outputs by name: from the folder `ref`, or computed."""
    # The runtime's optimizer rounds differently, which dynamic quantization
    # turns into whole steps: without a stored reference leave it out.
    sess = session(str(model), optimize=ref is not None)
    names = [o.name for o in sess.get_outputs()]
    if ref is None:
        feeds = random_inputs(sess, np.random.default_rng(1))
        return feeds, dict(zip(names, sess.run(None, feeds)))
    feeds = {i.name: np.load(ref / f"in.{i.name.replace('/', '_')}.npy")
             for i in sess.get_inputs()}
    outs = {n: np.load(ref / f"out.{n.replace('/', '_')}.npy") for n in names}
    return feeds, outs


def check(command, model, ref, folder):
    out = folder / model.name
    done = subprocess.run([command, "simplify", str(model), "-o", str(out)],
                          capture_output=True, text=True)
    if done.returncode != 0:
        return f"simplify: {done.stderr.strip()}"
    onnx.checker.check_model(str(out), full_check=True)
    feeds, want = reference(model, ref)
    if ref is None:
        session(str(out)).run(None, feeds)  # optimized, it must run all the same
    sess = session(str(out), optimize=ref is not None)
    names = [o.name for o in sess.get_outputs()]
    if names != list(want):
        return f"outputs {names}, want {list(want)}"
    for name, got in zip(names, sess.run(None, feeds)):
        w = want[name]
        if got.shape != w.shape or got.dtype != w.dtype:
            return f"{name}: {got.dtype}{got.shape}, want {w.dtype}{w.shape}"
        if w.size == 0:
            continue
        diff = np.abs(got.astype("f8") - w.astype("f8")).max()
        if not diff <= TOLERANCE * max(np.abs(w.astype("f8")).max(), 1e-30):
            return f"{name}: differs by {diff:g}"
    why, n_inner = compare_inner(model, out, feeds)
    if why:
        return why
    before = len(onnx.load(model, load_external_data=False).graph.node)
    after = onnx.load(out, load_external_data=False)
    left = {n.op_type for n in after.graph.node}
    still = left.intersection(GONE.get(model.stem, []))
    if still:
        return f"not collapsed: {sorted(still)}"
    opset = max(o.version for o in after.opset_import if o.domain == "")
    print(f"ok {model.name}: {before} nodes, then {len(after.graph.node)}, "
          f"opset {opset}, {n_inner} inner values agree")
    return None


def main():
    command = sys.argv[1]
    models = [(pathlib.Path(p), None) for p in sys.argv[2:]]
    if not models:
        for path in fixtures.need_networks().values():
            ref = fixtures.reference(path)
            models.append((pathlib.Path(path), ref and pathlib.Path(ref)))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for model, ref in models:
            try:
                why = check(command, model, ref, pathlib.Path(folder))
            except Exception as error:  # a checker or runtime refusal
                why = str(error).splitlines()[0][:300]
            if why:
                print(f"FAILED {model.name}: {why}")
                failed += 1
    return 1 if failed else 0


sys.exit(main())
