#!/usr/bin/env python3
"""Quantized files of others are read back, and written again they compute the
same: those of ONNX Runtime's quantize_static, of PyTorch's
exporter and of Sparsebit (float weights, Q and DQ, with and without the
attribute `bits`).

    test_readback.py SPARSEBIT
"""
import os
import subprocess
import sys
import tempfile

import fixtures

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import qdq_common  # exits with 77 if something is missing
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (CalibrationDataReader, quantize_dynamic,
                                      quantize_static)

command = os.path.abspath(sys.argv[1])
rng = np.random.default_rng(11)


def sparsebit(*args):
    return subprocess.run([command, *args], capture_output=True, text=True)


def network():
    """Convolutions with a residual sum, pooling, a joined branch, a Gemm."""
    def w(name, *dims):
        return numpy_helper.from_array(
            (rng.normal(size=dims) / np.sqrt(np.prod(dims[1:]))).astype("f4"),
            name)

    weights = [w("w0", 8, 3, 3, 3), w("b0", 8), w("w1", 8, 8, 3, 3),
               w("b1", 8), w("w2", 8, 1, 3, 3), w("b2", 8), w("w3", 16, 4),
               w("b3", 4)]
    same = dict(pads=[1, 1, 1, 1])
    n = helper.make_node
    nodes = [
        n("Conv", ["x", "w0", "b0"], ["c0"], "conv0", **same),
        n("Relu", ["c0"], ["r0"], "relu0"),
        n("Conv", ["r0", "w1", "b1"], ["c1"], "conv1", **same),
        n("Add", ["c1", "r0"], ["s"], "add"),
        n("Relu", ["s"], ["r1"], "relu1"),
        n("MaxPool", ["r1"], ["p"], "pool", kernel_shape=[2, 2],
          strides=[2, 2]),
        n("Conv", ["p", "w2", "b2"], ["d"], "depthwise", group=8, **same),
        n("Concat", ["p", "d"], ["j"], "join", axis=1),
        n("GlobalAveragePool", ["j"], ["g"], "mean"),
        n("Flatten", ["g"], ["f"], "flat"),
        n("Gemm", ["f", "w3", "b3"], ["y"], "fc"),
    ]
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        weights)
    return helper.make_model(graph, ir_version=8,
                             opset_imports=[helper.make_opsetid("", 17)])


class Reader(CalibrationDataReader):
    def __init__(self, samples):
        self.left = list(samples)

    def get_next(self):
        return {"x": self.left.pop()} if self.left else None


def run(path, x):
    opt = ort.SessionOptions()
    opt.add_session_config_entry(*fixtures.EXACT)
    opt.intra_op_num_threads = 1
    opt.log_severity_level = 3
    return ort.InferenceSession(
        path, opt, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def ours(path, x, folder):
    np.save(os.path.join(folder, "x.npy"), x)
    done = sparsebit("run", path, "-i", "x=" + os.path.join(folder, "x.npy"),
                     "-o", os.path.join(folder, "out"))
    assert done.returncode == 0, done.stderr
    return np.load(os.path.join(folder, "out", "y.npy"))


def torch_style(model, bits=None):
    """x -> Q -> DQ on inputs of layers, weights as float -> Q -> DQ."""
    graph = model.graph
    weights = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    nodes, n = [], 0

    def pair(name, scale, zero, axis):
        nonlocal n
        n += 1
        params = [f"s{n}", f"z{n}"]
        graph.initializer.extend([
            numpy_helper.from_array(np.asarray(scale, "f4"), params[0]),
            numpy_helper.from_array(np.asarray(zero), params[1])])
        extra = {"bits": bits} if bits else {}
        nodes.append(helper.make_node("QuantizeLinear", [name, *params],
                                      [f"q{n}"], axis=axis, **extra))
        nodes.append(helper.make_node("DequantizeLinear", [f"q{n}", *params],
                                      [f"dq{n}"], axis=axis, **extra))
        return f"dq{n}"

    for node in graph.node:
        if node.op_type in ("Conv", "Gemm"):
            w = weights[node.input[1]]
            top = 2 ** ((bits or 8) - 1) - 1
            axis = 0 if node.op_type == "Conv" else 1
            other = tuple(i for i in range(w.ndim) if i != axis)
            scale = np.abs(w).max(axis=other) / top
            node.input[0] = pair(node.input[0], 0.07, np.int8(0), 0)
            node.input[1] = pair(node.input[1], scale,
                                 np.zeros(scale.shape, np.int8), axis)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def close(got, want, part):
    return np.abs(got - want).max() <= part * np.abs(want).max()


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "float.onnx")
        onnx.save(network(), path)
        samples = rng.normal(size=(8, 1, 3, 12, 12)).astype("f4")
        files = {}
        for name, settings in qdq_common.SETTINGS.items():
            files[name] = os.path.join(folder, name + ".onnx")
            quantize_static(path, files[name], Reader(samples), **settings)
        for name, bits in (("torch", None), ("sparsebit", 8)):
            files[name] = os.path.join(folder, name + ".onnx")
            onnx.save(torch_style(network(), bits), files[name])
        for name, file in files.items():
            want = ours(file, samples[0], folder) if name == "sparsebit" \
                else run(file, samples[0])
            same = "onnxruntime-x86" if name not in ("u16", "torch",
                                                     "sparsebit") else "virtual"
            # Elsewhere some of the roundings fall away.
            for target, part in ((same, 0.03), ("virtual", 0.03),
                                 ("onnxruntime-x86", 0.1), ("qnn", 0.1),
                                 ("tensorrt", 0.1), ("openvino", 0.1)):
                out = os.path.join(folder, "out.onnx")
                done = sparsebit("quantize", file, "-t", target, "-o", out,
                                 "-q")
                try:
                    assert done.returncode == 0, done.stderr
                    onnx.checker.check_model(out, full_check=True)
                    got = run(out, samples[0])
                    assert close(got, want, part), \
                        f"differs by {np.abs(got - want).max()} of " \
                        f"{np.abs(want).max()}"
                except Exception as error:
                    failed += 1
                    print(f"{name} for {target}: {type(error).__name__} "
                          f"{str(error)[:300]}")
        dynamic = os.path.join(folder, "dynamic.onnx")
        quantize_dynamic(path, dynamic)
        if not close(ours(dynamic, samples[0], folder),
                     run(dynamic, samples[0]), 1e-3):
            failed += 1
            print("a dynamic file: differs")
    print(f"{6 * len(files) + 1} checks, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
