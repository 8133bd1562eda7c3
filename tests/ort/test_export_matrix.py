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

import fixtures

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


KINDS = ["Conv", "depthwise", "ConvTranspose", "Gemm", "MatMul", "biased",
         "Add", "Concat", "AveragePool"]
INPUTS = {"image": [2, 8, 6, 6], "row": [2, 16], "rows": [2, 3, 16]}


def input_of(kind):
    return ("rows" if kind == "biased" else
            "row" if kind in ("Gemm", "MatMul") else "image")


def branch(kind, nodes, weights):
    """A layer of that kind between two convolutions (or products); its output
    is named after it."""
    flat, x = input_of(kind) != "image", input_of(kind)

    def add(op, inputs, output, **attrs):
        inputs = [i if i in weights or i == x else f"{kind}.{i}"
                  for i in inputs]
        nodes.append(helper.make_node(
            op, inputs, [kind if output == "y" else f"{kind}.{output}"],
            name=f"{kind}.{output}", **attrs))

    def const(name, *dims):
        weights[f"{kind}.{name}"] = weight(*dims)
        return f"{kind}.{name}"

    if kind == "biased":
        add("MatMul", [x, const("w0", 16, 16)], "s")
        add("Add", ["s", const("b0", 16)], "a")
    elif flat:
        add("Gemm", [x, const("w0", 16, 16), const("b0", 16)], "a")
    else:
        add("Conv", [x, const("w0", 8, 8, 3, 3), const("b0", 8)], "c",
            pads=[1, 1, 1, 1])
        add("Relu", ["c"], "a")
    if kind == "Conv":
        add("Conv", ["a", const("w1", 8, 8, 3, 3), const("b1", 8)], "m",
            pads=[1, 1, 1, 1])
    elif kind == "depthwise":
        add("Conv", ["a", const("w1", 8, 1, 3, 3), const("b1", 8)], "m",
            group=8, pads=[1, 1, 1, 1])
    elif kind == "ConvTranspose":
        add("ConvTranspose", ["a", const("w1", 8, 8, 3, 3), const("b1", 8)],
            "m", pads=[1, 1, 1, 1])
    elif kind == "Gemm":
        add("Gemm", ["a", const("w1", 16, 16), const("b1", 16)], "m",
            transB=1)
    elif kind == "MatMul":
        add("MatMul", ["a", const("w1", 16, 16)], "m")
    elif kind == "biased":
        add("MatMul", ["a", const("w1", 16, 16)], "t")
        add("Add", [const("b1", 16), "t"], "m")
    elif kind == "Add":
        add("Conv", ["a", const("w1", 8, 8, 1, 1)], "t")
        add("Add", ["t", "a"], "m")
    elif kind == "Concat":
        add("Conv", ["a", const("w1", 8, 8, 1, 1)], "t")
        add("Concat", ["t", "a"], "m", axis=1)
    elif kind == "AveragePool":
        add("AveragePool", ["a"], "m", kernel_shape=[2, 2], strides=[2, 2])
    if flat:
        add("MatMul", ["m", const("w2", 16, 4)], "y")
    else:
        inner = 16 if kind == "Concat" else 8
        add("Conv", ["m", const("w2", 4, inner, 1, 1)], "y")


def network(kinds):
    """A branch, with an output, for each of these kinds of layers."""
    nodes, weights = [], {}
    for kind in kinds:
        branch(kind, nodes, weights)
    used = [i for i in INPUTS if i in map(input_of, kinds)]
    graph = helper.make_graph(
        nodes, "layers",
        [helper.make_tensor_value_info(i, TensorProto.FLOAT, INPUTS[i])
         for i in used],
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, None)
         for k in kinds],
        [numpy_helper.from_array(v, k) for k, v in weights.items()])
    model = helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 13)])
    feeds = {i: rng.normal(size=INPUTS[i]).astype("f4") for i in used}
    return onnx.shape_inference.infer_shapes(model), feeds


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


def ort_run(path, feeds):
    """The results, and what ONNX Runtime had to say about the model."""
    opt = ort.SessionOptions()
    opt.add_session_config_entry(*fixtures.EXACT)
    opt.intra_op_num_threads = 1
    opt.log_severity_level = 2
    with Captured() as log:
        s = ort.InferenceSession(path, opt, providers=["CPUExecutionProvider"])
        y = s.run(None, feeds)
    names = [o.name for o in s.get_outputs()]
    return dict(zip(names, y)), [line for line in log.text.splitlines() if line.strip()]


def agree(got, want, steps):
    """Within `steps` hundredths of the largest."""
    return np.abs(got - want).max() <= steps / 100 * np.abs(want).max()


def check(folder, feeds, target):
    path = os.path.join(folder, "q.onnx")
    onnx.checker.check_model(path, full_check=True)
    want, warnings = ort_run(path, feeds)
    assert not warnings, warnings[0]
    for mode in ([], ["--integer"]):
        if mode and not target.startswith("onnxruntime-x86"):
            continue
        made = os.path.join(folder, "out.npz")
        done = sparsebit("run", path, *mode, "-i",
                         os.path.join(folder, "x.npz"), "--npz", made, "-q")
        assert done.returncode == 0, done.stderr
        with np.load(made) as got:
            for k in want:
                # A value on the edge between two integers may fall to either
                # side.
                assert agree(got[k], want[k], 1e-3 if mode else 3), \
                    f"{k} {mode}: differs by {np.abs(got[k] - want[k]).max()}"
    again = os.path.join(folder, "again.onnx")
    done = sparsebit("quantize", path, "-t", target, "-o", again, "-q")
    assert done.returncode == 0, done.stderr
    with open(path, "rb") as a, open(again, "rb") as b:
        assert a.read() == b.read(), "read and written again it differs"
    os.remove(path)


class Matrix:
    def __init__(self, folder):
        self.folder, self.networks = folder, {}
        self.counts = {"exported": 0, "refused": 0, "failed": 0}
        self.reasons = set()

    def place(self, kinds):
        """A folder with the network, its data file and inputs."""
        if kinds not in self.networks:
            folder = os.path.join(self.folder, str(len(self.networks)))
            os.mkdir(folder)
            model, feeds = network(kinds)
            onnx.save(model, os.path.join(folder, "float.onnx"))
            np.savez(os.path.join(folder, "x.npz"), **feeds)
            with open(os.path.join(folder, "d.yaml"), "w") as f:
                f.write("SOURCE: npz\nPATH: x.npz\nBATCH: 2\n")
            self.networks[kinds] = folder, feeds
        return self.networks[kinds]

    def case(self, kinds, target, per, scheme, bits):
        folder, feeds = self.place(kinds)
        name = f"{'+'.join(kinds)} {target} per-{per}-{scheme} {bits} bit"
        # The scheme is that of activations too, but where only the other is
        # allowed there for sure.
        act = {"tensorrt": "symmetric", "onnxruntime-x86": "affine",
               "onnxruntime-arm": "affine"}.get(target, scheme)
        config = os.path.join(folder, "q.yaml")
        with open(config, "w") as f:
            f.write("SCHEDULE: {FUSE_BN: true}\n"
                    f"W: {{QSCHEME: per-{per}-{scheme}, "
                    f"QUANTIZER: {{BIT: {bits}}}}}\n"
                    f"A: {{QSCHEME: per-tensor-{act}, QUANTIZER: {{BIT: 8}}}}\n")
        done = sparsebit("quantize", os.path.join(folder, "float.onnx"), "-c",
                         config, "-d", os.path.join(folder, "d.yaml"), "-t",
                         target, "-o", os.path.join(folder, "q.onnx"), "-q")
        lines = done.stderr.strip().splitlines()
        result = "exported"
        if done.returncode == 1 and len(lines) == 1:
            if len(kinds) > 1:  # which of them are not?
                for kind in kinds:
                    self.case((kind,), target, per, scheme, bits)
                return
            result = "refused"
            self.reasons.add(re.sub(r"^.*yaml: |\(node.*\)", "", lines[0]))
            if verbose:
                print(name, "refused:", lines[0])
        else:
            try:
                assert done.returncode == 0, done.stderr
                check(folder, feeds, target)
            except Exception as error:  # any failure is a finding
                result = "failed"
                print(f"{name}: {type(error).__name__}: {str(error)[:300]}")
        self.counts[result] += len(kinds)


def main():
    with tempfile.TemporaryDirectory() as folder:
        matrix = Matrix(folder)
        for target, per, scheme, bits in itertools.product(
                TARGETS, ("tensor", "channel"), ("symmetric", "affine"),
                (8, 4)):
            # ONNX Runtime 1.31 trips over a Q that it adds itself, if
            # activations are int8 and the opset is 21.
            kinds = [k for k in KINDS if
                     (k, target, bits) != ("biased", "virtual", 4)]
            matrix.case(tuple(kinds), target, per, scheme, bits)
    for reason in sorted(matrix.reasons):
        print("refused:", reason)
    print(", ".join(f"{n} {k}" for k, n in matrix.counts.items()))
    return 1 if matrix.counts["failed"] or matrix.counts["exported"] < 256 else 0


if __name__ == "__main__":
    sys.exit(main())
