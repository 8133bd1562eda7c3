#!/usr/bin/env python3
"""Files of the target openvino in OpenVINO itself.

    test_openvino_int8.py SPARSEBIT [SHARED]

A small network made here (3x3, depthwise and 1x1 convolutions, a residual sum,
MaxPool, Concat, global pooling, Gemm), and of SHARED (default ../shared beside
the project), if it is there, ResNet-20 on the images that it was calibrated
with elsewhere.  Every layer with a constant weight runs on 8 bits in OpenVINO's
runtime model, and its results agree with ours: cosine 0.999, top-1 on 99 %.

Needs Python with openvino, onnx and numpy; skipped without.
"""
import os
import subprocess
import sys
import tempfile

# Seen on a virtual machine whose processor lists AMX: without this OpenVINO
# ended with an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI")
try:
    import numpy as np
    import onnx
    import openvino as ov
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

command = os.path.abspath(sys.argv[1])
root = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
shared = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else
                         os.path.join(root, "../shared"))


def small_network(path):
    """Writes it and returns how many layers have weights."""
    rng = np.random.default_rng(1)
    constants, nodes = [], []

    def constant(*shape):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 100
        name = f"w{len(constants)}"
        constants.append(numpy_helper.from_array(
            rng.normal(0, (2 / fan) ** 0.5, shape).astype("f4"), name))
        return name

    def node(op, inputs, **attrs):
        nodes.append(helper.make_node(op, inputs, [f"v{len(nodes)}"], **attrs))
        return nodes[-1].output[0]

    def conv(x, n_in, n_out, size=3, stride=1, group=1, relu=True):
        y = node("Conv", [x, constant(n_out, n_in // group, size, size),
                          constant(n_out)], kernel_shape=[size, size],
                 strides=[stride] * 2, pads=[size // 2] * 4, group=group)
        return node("Relu", [y]) if relu else y

    x = node("MaxPool", [conv("x", 3, 16)], kernel_shape=[2, 2],
             strides=[2, 2])
    y = conv(conv(x, 16, 16), 16, 16, relu=False)
    x = node("Relu", [node("Add", [x, y])])
    x = conv(conv(x, 16, 16, group=16), 16, 32, size=1)
    x = node("Concat", [conv(x, 32, 16, size=1), conv(x, 32, 16)], axis=1)
    x = node("Flatten", [node("GlobalAveragePool", [conv(x, 32, 32, stride=2)])])
    nodes.append(helper.make_node("Gemm", [x, constant(10, 32), constant(10)],
                                  ["y"], transB=1))
    graph = helper.make_graph(
        nodes, "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT,
                                       ["N", 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
        constants)
    onnx.save(helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return sum(n.op_type in ("Conv", "Gemm") for n in nodes)


def sparsebit(*args):
    done = subprocess.run([command, *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def layers(compiled):
    """(type, precision) of what OpenVINO runs with a weight."""
    rows = []
    for op in compiled.get_runtime_model().get_ordered_ops():
        info = {k: v.astype(str) if hasattr(v, "astype") else str(v)
                for k, v in op.get_rt_info().items()}
        if info.get("layerType") in ("Convolution", "FullyConnected",
                                     "MatMul", "Deconvolution"):
            rows.append((info["layerType"], info["runtimePrecision"]))
    return rows


def check(name, model, x, n_layers, folder):
    np.save(os.path.join(folder, "x.npy"), x)
    data = os.path.join(folder, "d.yaml")
    with open(data, "w") as f:
        f.write("SOURCE: npy\nPATH: x.npy\nBATCH: 8\n")
    path = os.path.join(folder, name + ".int8.onnx")
    saved = os.path.join(folder, "y.npz")
    sparsebit("quantize", model, "-d", data, "-n", "32", "-t", "openvino",
              "-o", path, "-q")
    sparsebit("eval", path, "-d", data, "--save-outputs", saved, "-q")
    z = np.load(saved)
    ours = z[z.files[0]].reshape(len(x), -1).astype("f8")
    compiled = ov.Core().compile_model(path, "CPU", {
        "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
    theirs = np.concatenate([compiled({0: x[i:i + 1]})[0].reshape(1, -1)
                             for i in range(len(x))]).astype("f8")
    rows = layers(compiled)
    bad = [r for r in rows if r[1] not in ("u8", "i8")]
    assert not bad, f"not on 8 bits: {bad}"
    assert len(rows) == n_layers, f"{len(rows)} layers, not {n_layers}"
    cosine = (ours * theirs).sum() / np.sqrt((ours ** 2).sum()
                                             * (theirs ** 2).sum())
    same = float(np.mean(ours.argmax(1) == theirs.argmax(1)))
    text = (f"{len(rows)} of {n_layers} layers on 8 bits, cosine "
            f"{cosine:.6f}, top-1 agreement {100 * same:.2f} %")
    assert cosine >= 0.999 and same >= 0.99, text
    return text


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "small.onnx")
        n = small_network(model)
        x = np.random.default_rng(2).normal(size=(64, 3, 32, 32)).astype("f4")
        cases = [("small network", model, x, n)]
        images = os.path.join(shared, "golden/resnet20/calib.npy")
        if os.path.exists(images):
            cases.append(("resnet20_cifar10",
                          os.path.join(shared, "models/resnet20_cifar10.onnx"),
                          np.load(images).astype("f4"), 22))
        for name, model, x, n in cases:
            try:
                print(f"{name}: {check(name, model, x, n, folder)}")
            except AssertionError as error:
                failed += 1
                print(f"{name}: FAILED {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
