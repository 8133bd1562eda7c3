#!/usr/bin/env python3
"""(slow) Every kind of layer, in every setting, for every target: exported, accepted by
onnx.checker, loaded by ONNX Runtime without a warning, run there with the
result of our own run of the file, read back and written again byte by byte the
same; or refused in one line that says why.

    test_export_matrix.py SPARSEBIT [-v]
"""
import itertools
import os
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

command = os.path.abspath(sys.argv[1])
verbose = "-v" in sys.argv
TARGETS = ["virtual", "onnxruntime-x86", "onnxruntime-arm", "tensorrt",
           "openvino", "qnn"]
rng = np.random.default_rng(5)


def weight(*dims):
    return (rng.normal(size=dims) / np.sqrt(np.prod(dims[1:]))).astype("f4")


def network(kind):
    """A layer of that kind between two convolutions (or products)."""
    flat = kind in ("Gemm", "MatMul", "biased")
    x = [2, 3, 16] if kind == "biased" else [2, 16] if flat else [2, 8, 6, 6]
    nodes, weights = [], {}

    def add(op, inputs, output, **attrs):
        nodes.append(helper.make_node(op, inputs, [output], **attrs))

    def const(name, value):
        weights[name] = value
        return name

    if kind == "biased":
        add("MatMul", ["x", const("w0", weight(16, 16))], "s")
        add("Add", ["s", const("b0", weight(16))], "a")
    elif flat:
        add("Gemm", ["x", const("w0", weight(16, 16)),
                     const("b0", weight(16))], "a")
    else:
        add("Conv", ["x", const("w0", weight(8, 8, 3, 3)),
                     const("b0", weight(8))], "c", pads=[1, 1, 1, 1])
        add("Relu", ["c"], "a")
    if kind == "Conv":
        add("Conv", ["a", const("w1", weight(8, 8, 3, 3)),
                     const("b1", weight(8))], "m", pads=[1, 1, 1, 1])
    elif kind == "depthwise":
        add("Conv", ["a", const("w1", weight(8, 1, 3, 3)),
                     const("b1", weight(8))], "m", group=8, pads=[1, 1, 1, 1])
    elif kind == "ConvTranspose":
        add("ConvTranspose", ["a", const("w1", weight(8, 8, 3, 3)),
                              const("b1", weight(8))], "m", pads=[1, 1, 1, 1])
    elif kind == "Gemm":
        add("Gemm", ["a", const("w1", weight(16, 16)),
                     const("b1", weight(16))], "m", transB=1)
    elif kind == "MatMul":
        add("MatMul", ["a", const("w1", weight(16, 16))], "m")
    elif kind == "biased":
        add("MatMul", ["a", const("w1", weight(16, 16))], "t")
        add("Add", [const("b1", weight(16)), "t"], "m")
    elif kind == "Add":
        add("Conv", ["a", const("w1", weight(8, 8, 1, 1))], "t")
        add("Add", ["t", "a"], "m")
    elif kind == "Concat":
        add("Conv", ["a", const("w1", weight(8, 8, 1, 1))], "t")
        add("Concat", ["t", "a"], "m", axis=1)
    elif kind == "AveragePool":
        add("AveragePool", ["a"], "m", kernel_shape=[2, 2], strides=[2, 2])
    if flat:
        add("MatMul", ["m", const("w2", weight(16, 4))], "y")
    else:
        inner = 16 if kind == "Concat" else 8
        add("Conv", ["m", const("w2", weight(4, inner, 1, 1))], "y")
    graph = helper.make_graph(
        nodes, kind,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in weights.items()])
    model = helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 13)])
    return onnx.shape_inference.infer_shapes(model), x


def sparsebit(*args):
    return subprocess.run([command, *args], capture_output=True, text=True)


class Captured:
    """What the process writes to standard error meanwhile."""

    def __enter__(self):
        self.file = tempfile.TemporaryFile()
        self.saved = os.dup(2)
        os.dup2(self.file.fileno(), 2)
        return self

    def __exit__(self, *_):
        os.dup2(self.saved, 2)
        os.close(self.saved)
        self.file.seek(0)
        self.text = self.file.read().decode(errors="replace")
        self.file.close()


def ort_run(path, x):
    """The result, and what ONNX Runtime had to say about the model."""
    opt = ort.SessionOptions()
    opt.intra_op_num_threads = 1
    opt.log_severity_level = 2
    with Captured() as log:
        s = ort.InferenceSession(path, opt, providers=["CPUExecutionProvider"])
        y = s.run(None, {"x": x})[0]
    return y, [line for line in log.text.splitlines() if line.strip()]


def agree(got, want, steps):
    """Within `steps` hundredths of the largest."""
    return np.abs(got - want).max() <= steps / 100 * np.abs(want).max()


def check(folder, x, target):
    path = os.path.join(folder, "q.onnx")
    onnx.checker.check_model(path, full_check=True)
    want, warnings = ort_run(path, x)
    assert not warnings, warnings[0]
    for mode in ([], ["--integer"]):
        if mode and not target.startswith("onnxruntime-x86"):
            continue
        done = sparsebit("run", path, *mode, "-i",
                         "x=" + os.path.join(folder, "x.npy"), "-o",
                         os.path.join(folder, "out"))
        assert done.returncode == 0, done.stderr
        got = np.load(os.path.join(folder, "out", "y.npy"))
        # A value on the edge between two integers may fall to either side.
        assert agree(got, want, 1e-3 if mode else 3), \
            f"run {mode}: differs by {np.abs(got - want).max()}"
    again = os.path.join(folder, "again.onnx")
    done = sparsebit("quantize", path, "-t", target, "-o", again, "-q")
    assert done.returncode == 0, done.stderr
    with open(path, "rb") as a, open(again, "rb") as b:
        assert a.read() == b.read(), "read and written again it differs"
    os.remove(path)


def main():
    counts = {"exported": 0, "refused": 0, "failed": 0}
    reasons = set()
    kinds = ["Conv", "depthwise", "ConvTranspose", "Gemm", "MatMul", "biased",
             "Add", "Concat", "AveragePool"]
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            model, dims = network(kind)
            float_path = os.path.join(folder, "float.onnx")
            onnx.save(model, float_path)
            x = rng.normal(size=dims).astype("f4")
            np.save(os.path.join(folder, "x.npy"), x)
            with open(os.path.join(folder, "d.yaml"), "w") as f:
                f.write("SOURCE: npy\nPATH: x.npy\nBATCH: 2\n")
            for target, per, scheme, bits in itertools.product(
                    TARGETS, ("tensor", "channel"), ("symmetric", "affine"),
                    (8, 4)):
                # ONNX Runtime 1.31 trips over a Q that it adds itself, if
                # activations are int8 and the opset is 21.
                if (kind, target, bits) == ("biased", "virtual", 4):
                    continue
                name = f"{kind} {target} per-{per}-{scheme} {bits} bit"
                # The scheme is that of activations too, but where only the
                # other is allowed there for sure.
                act = {"tensorrt": "symmetric", "onnxruntime-x86": "affine",
                       "onnxruntime-arm": "affine"}.get(target, scheme)
                with open(os.path.join(folder, "q.yaml"), "w") as f:
                    f.write("SCHEDULE: {FUSE_BN: true}\n"
                            f"W: {{QSCHEME: per-{per}-{scheme}, "
                            f"QUANTIZER: {{BIT: {bits}}}}}\n"
                            f"A: {{QSCHEME: per-tensor-{act}, "
                            "QUANTIZER: {BIT: 8}}\n")
                done = sparsebit("quantize", float_path, "-c",
                                 os.path.join(folder, "q.yaml"), "-d",
                                 os.path.join(folder, "d.yaml"), "-t", target,
                                 "-o", os.path.join(folder, "q.onnx"), "-q")
                lines = done.stderr.strip().splitlines()
                result = "exported"
                if done.returncode == 1 and len(lines) == 1:
                    result = "refused"
                    reasons.add(re.sub(r"^.*yaml: |\(node.*\)", "", lines[0]))
                else:
                    try:
                        assert done.returncode == 0, done.stderr
                        check(folder, x, target)
                    except Exception as error:  # any failure is a finding
                        result = "failed"
                        print(f"{name}: {type(error).__name__}: "
                              f"{str(error)[:300]}")
                counts[result] += 1
                if verbose and result == "refused":
                    print(name, "refused:", lines[0])
    for reason in sorted(reasons):
        print("refused:", reason)
    print(", ".join(f"{n} {k}" for k, n in counts.items()))
    return 1 if counts["failed"] or counts["exported"] < 256 else 0


if __name__ == "__main__":
    sys.exit(main())
