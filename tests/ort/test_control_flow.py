"""Loop, Scan and sequences against ONNX Runtime: as they are and
simplified, with other lengths in each run.

usage: test_control_flow.py COMMAND

Exits 77 if ONNX Runtime is missing.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

F32, I64, BOOL, F16 = (TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL,
                       TensorProto.FLOAT16)
rng = np.random.default_rng(5)


def info(name, dtype=F32, shape=None):
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def model(nodes, inputs, outputs, constants=None):
    graph = helper.make_graph(
        nodes, "g", inputs, outputs,
        [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()])
    return helper.make_model(graph, ir_version=8,
                             opset_imports=[helper.make_opsetid("", 17)])


def normal(*shape, scale=1.0, dtype=np.float32):
    return (rng.normal(size=shape) * scale).astype(dtype)


def growing_loop():
    """Values that change places and shapes, a condition, captured weights."""
    body = helper.make_graph(
        [node("Identity", "b", "a2"), node("MatMul", "a w", "aw"),
         node("Tanh", "aw", "t"), node("Add", "t b", "b2"),
         node("Concat", "c a", "c2", axis=0),
         node("ReduceSum", "b2", "s", keepdims=0),
         node("Less", "s limit", "go"), node("Mul", "a b", "slice")],
        "body",
        [info("i", I64, []), info("ci", BOOL, [])] + [info(v) for v in "abc"],
        [info("go", BOOL, [])] + [info(v) for v in ("a2", "b2", "c2", "slice")])
    loop = helper.make_node("Loop", ["n", "", "x", "y", "x"],
                            ["A", "B", "C", "S"], body=body)
    return model([loop], [info("x", F32, ["N", 4]), info("y", F32, ["N", 4]),
                          info("n", I64, [])],
                 [info(v) for v in "ABCS"],
                 {"w": normal(4, 4), "limit": np.float32(40)}), [
        {"x": normal(k, 4), "y": normal(k, 4), "n": np.array(n)}
        for k, n in ((2, 7), (1, 1), (3, 0), (2, 40))]


def recurrent_scan(dtype=np.float32):
    """A recurrent network in both directions, time in the middle."""
    elem = F16 if dtype == np.float16 else F32
    body = helper.make_graph(
        [node("MatMul", "h r", "hr"), node("MatMul", "v w", "vw"),
         node("Add", "hr vw", "sum"), node("Tanh", "sum", "h2"),
         node("Relu", "h2", "o")], "body", [info("h", elem), info("v", elem)],
        [info("h2", elem), info("o", elem)])
    nodes = [helper.make_node("Scan", ["h0", "x"], [f"h{d}", f"y{d}"],
                              body=body, num_scan_inputs=1,
                              scan_input_axes=[1], scan_input_directions=[d],
                              scan_output_axes=[a], scan_output_directions=[d])
             for d, a in ((0, 1), (1, -1))]
    nodes[0].output[0] = "forward"
    nodes[1].output[0] = "backward"
    return model(nodes, [info("h0", elem, ["N", 6]),
                         info("x", elem, ["N", "T", 5])],
                 [info(v, elem) for v in ("forward", "backward", "y0", "y1")],
                 {"r": normal(6, 6, scale=.3, dtype=dtype),
                  "w": normal(5, 6, dtype=dtype)}), [
        {"h0": normal(n, 6, dtype=dtype), "x": normal(n, t, 5, dtype=dtype)}
        for n, t in ((2, 9), (1, 1), (3, 4))]


def sequence_loop():
    """A list that grows in a loop, is edited, and joined again."""
    sequence = helper.make_tensor_sequence_value_info
    body = helper.make_graph(
        [node("SequenceAt", "parts i", "p"), node("MatMul", "p w", "q"),
         node("SequenceInsert", "list q", "list2"),
         node("Identity", "ci", "co")],
        "body", [info("i", I64, []), info("ci", BOOL, []),
                 sequence("list", F32, None)],
        [info("co", BOOL, []), sequence("list2", F32, None)])
    return model(
        [node("SplitToSequence", "x", "parts", axis=1, keepdims=0),
         node("SequenceLength", "parts", "n"),
         node("SequenceEmpty", "", "empty"),
         helper.make_node("Loop", ["n", "", "empty"], ["list"], body=body),
         node("SequenceInsert", "list z zero", "more"),
         node("SequenceErase", "more", "fewer"),
         node("SequenceAt", "fewer minus", "last"),
         node("ConcatFromSequence", "fewer", "all", axis=0, new_axis=1),
         node("Add", "all last", "y")],
        [info("x", F32, ["N", "T", 4]), info("z", F32, ["N", 4])],
        [info("y"), info("n", I64, [])],
        {"w": normal(4, 4), "zero": np.int64(0), "minus": np.int64(-1)}), [
        {"x": normal(2, t, 4), "z": normal(2, 4)} for t in (3, 1, 8)]


def run_ours(command, path, feed, top):
    np.savez(top / "in.npz", **feed)
    done = subprocess.run(
        [command, "run", path, "-i", top / "in.npz", "--npz", top / "out.npz",
         "-q"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{path}: {done.stderr}")
    return np.load(top / "out.npz")


def run_ort(path, feed):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options,
                                   providers=["CPUExecutionProvider"])
    return {o.name: v for o, v in zip(session.get_outputs(),
                                      session.run(None, feed))}


def compare(what, ours, want, tol):
    for name, w in want.items():
        got = ours[name]
        assert got.shape == w.shape and got.dtype == w.dtype, \
            f"{what}: {name}: got {got.dtype}{got.shape}, " \
            f"want {w.dtype}{w.shape}"
        error = np.abs(got.astype(np.float64) - w.astype(np.float64))
        bound = tol * (1 + np.abs(w.astype(np.float64)))
        assert (error <= bound).all(), f"{what}: {name}: off by {error.max()}"


def call(*args):
    done = subprocess.run([str(a) for a in args], capture_output=True,
                          text=True)
    assert done.returncode == 0, f"{args}: {done.stderr}"
    return done.stderr


def main():
    command = Path(sys.argv[1]).resolve()
    cases = [("loop", growing_loop(), 1e-4), ("scan", recurrent_scan(), 1e-5),
             ("scan16", recurrent_scan(np.float16), 4e-3),
             ("sequences", sequence_loop(), 1e-5)]
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        for name, (proto, feeds), tol in cases:
            path, small = top / f"{name}.onnx", top / f"{name}.small.onnx"
            onnx.save(proto, path)
            call(command, "info", path)
            call(command, "simplify", path, "-q", "-o", small)
            for feed in feeds:
                want = run_ort(path, feed)
                compare(name, run_ours(command, path, feed, top), want, tol)
                compare(f"{name} simplified",
                        run_ours(command, small, feed, top), want, tol)
                compare(f"{name} simplified, ONNX Runtime",
                        run_ort(small, feed), want, tol)
            print(f"ok {name}: {len(feeds)} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
