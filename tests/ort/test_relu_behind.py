#!/usr/bin/env python3
"""Layers whose kernels may leave their result in float, with a Relu, a Clip or
a sum behind them: ONNX Runtime must make an integer kernel of each, whoever
reads what comes out.

    test_relu_behind.py SPARSEBIT
"""
import itertools
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

command = os.path.abspath(sys.argv[1])
BEHIND = {"Relu": ["m"], "Clip": ["m", "low", "high"], "Add": ["x", "m"]}
KERNELS = {"Gemm": ("QGemm",), "MatMul": ("QLinearMatMul", "MatMulIntegerToFloat")}
# Nodes that read the result; none: it is that of the network.
READERS = {"none": [], "a function": [("Softplus", ["r"])],
           "a sum": [("Add", ["r", "x"])],
           "two": [("Softplus", ["r"]), ("Exp", ["r"])]}


def network(path, op, act, readers):
    rng = np.random.default_rng(1)
    values = {"w": rng.normal(size=(16, 16)) / 4, "b": rng.normal(size=16),
              "low": np.array(0), "high": np.array(6)}
    nodes = [helper.make_node(op, ["x", "w", "b"][:3 if op == "Gemm" else 2], ["m"]),
             helper.make_node(act, BEHIND[act], ["r"])]
    outputs = [f"y{i}" for i in range(len(readers))] or ["r"]
    nodes += [helper.make_node(kind, inputs, [y])
              for (kind, inputs), y in zip(readers, outputs)]
    read = {i for n in nodes for i in n.input}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 16])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, ["N", 16]) for y in outputs],
        [numpy_helper.from_array(v.astype(np.float32), k)
         for k, v in values.items() if k in read])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=8), path)


def kernels(path):
    opt = ort.SessionOptions()
    opt.log_severity_level = 3
    opt.optimized_model_filepath = "optimized.onnx"
    ort.InferenceSession(path, opt, providers=["CPUExecutionProvider"])
    return [n.op_type for n in onnx.load("optimized.onnx").graph.node]


def main():
    failed = 0
    np.save("x.npy", np.random.default_rng(2).normal(size=(64, 16)).astype(np.float32))
    for op, act, who, target in itertools.product(
            KERNELS, BEHIND, READERS, ("onnxruntime-x86", "onnxruntime-arm")):
        network("m.onnx", op, act, READERS[who])
        subprocess.run([command, "quantize", "m.onnx", "-d", "x.npy", "-t", target,
                        "-o", "q.onnx", "--preset", "fast", "-q"], check=True)
        types = kernels("q.onnx")
        if sum(t in KERNELS[op] for t in types) != 1:
            failed += 1
            print(f"FAIL {op}, {act}, read by {who}, {target}: {types}")
    return failed > 0


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    sys.exit(main())
