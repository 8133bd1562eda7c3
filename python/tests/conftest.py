"""A line for each test, which tools/verdicts counts; small networks."""

import os
import sys

import numpy as np
import pytest
from hypothesis import settings

import sparsebit as sb

settings.register_profile("check", deadline=None, max_examples=40,
                          derandomize=True, database=None)
settings.load_profile("check")

TINY = """graph tiny(x: f32[N,3]) -> (y: f32[N,4]) {
    fc.weight: f32[3,4] = [1, 0, 2, 0, 0, 1, 0, 2, 1, 1, 1, 1]
    fc.bias: f32[4] = [0, -1, 2, 3]
    m = MatMul(x, fc.weight) "/fc/MatMul" @ fc
    a = Add(m, fc.bias) "/fc/Add" @ fc
    y = Relu(a) "/act/Relu" @ act
}
"""
TINY_WEIGHT = np.array([[1, 0, 2, 0], [0, 1, 0, 2], [1, 1, 1, 1]], np.float32)
TINY_BIAS = np.array([0, -1, 2, 3], np.float32)


def tiny_numpy(x):
    return np.maximum(x @ TINY_WEIGHT + TINY_BIAS, 0)


def pytest_terminal_summary(terminalreporter):
    words = {"passed": "pass", "failed": "FAIL", "error": "FAIL",
             "skipped": "skip"}
    for kind, word in words.items():
        for report in terminalreporter.stats.get(kind, []):
            name = report.nodeid.split("::", 1)[-1].replace(" ", "_")
            why = ""
            if word == "skip" and isinstance(report.longrepr, tuple):
                why = ": " + report.longrepr[2].removeprefix("Skipped: ")
            terminalreporter.write_line(f"{word} {name}{why}")


@pytest.fixture
def tiny():
    return sb.parse(TINY)


def random_cnn(seed=0, channels=8):
    """Conv, Relu, Conv, residual Add, mean, Gemm, as an onnx.ModelProto."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(seed)

    def weight(name, *shape):
        array = rng.standard_normal(shape).astype(np.float32) * 0.3
        return numpy_helper.from_array(array, name)

    c = channels
    graph = helper.make_graph(
        [helper.make_node("Conv", ["image", "w1", "b1"], ["c1"], "conv1",
                          pads=[1, 1, 1, 1]),
         helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
         helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], "conv2",
                          pads=[1, 1, 1, 1]),
         helper.make_node("Add", ["c2", "r1"], ["s"], "add"),
         helper.make_node("Relu", ["s"], ["r2"], "relu2"),
         helper.make_node("GlobalAveragePool", ["r2"], ["p"], "pool"),
         helper.make_node("Flatten", ["p"], ["f"], "flatten"),
         helper.make_node("Gemm", ["f", "w3", "b3"], ["logits"], "fc",
                          transB=1)],
        "cnn",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT,
                                       ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT,
                                       ["N", 5])],
        [weight("w1", c, 3, 3, 3), weight("b1", c), weight("w2", c, c, 3, 3),
         weight("b2", c), weight("w3", 5, c), weight("b3", 5)])
    model = helper.make_model(graph, opset_imports=[
        helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


@pytest.fixture
def cnn():
    return random_cnn()


@pytest.fixture
def images():
    rng = np.random.default_rng(1)
    return [rng.standard_normal((4, 3, 8, 8)).astype(np.float32)
            for _ in range(3)]


def heavy_model(context=None, layers=60, size=2048):
    """Products that take a minute, for what has to be interrupted."""
    lines = [f"    v{i + 1} = MatMul(v{i}, v{i})" for i in range(layers)]
    text = (f"graph heavy(x: f32[{size},{size}]) -> (v{layers}) {{\n"
            "    v0 = Mul(x, x)\n" + "\n".join(lines) + "\n}\n")
    return sb.parse(text, context)


def resident():
    """Bytes of memory that the process has."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


SANITIZED = bool(os.environ.get("SB_SANITIZED"))
assert sys.version_info >= (3, 11)
