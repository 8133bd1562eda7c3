"""What the tests of lint and of integer runs share: files made by ONNX
Runtime's own quantizer, the comparison of lint with tools/ort-fusion, and of
`run --integer` with ONNX Runtime's results."""
import importlib.machinery
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
import tempfile

import fixtures

try:
    import numpy as np
    import onnx
    import onnx.version_converter
    import onnxruntime as ort
    from onnxruntime.quantization import (CalibrationDataReader, QuantFormat,
                                          QuantType, quantize_static)
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
logging.getLogger().setLevel(logging.ERROR)


class Checks:
    """Counts what was looked at; says at once what is wrong."""

    def __init__(self):
        self.n = self.failed = 0

    def __call__(self, what, ok, *more):
        self.n += 1
        if not ok:
            self.failed += 1
            print("FAILED:", what, *more)

    def end(self):
        print(f"{self.n} checks, {self.failed} failed")
        return 1 if self.failed else 0


def load_tool(name):
    loader = importlib.machinery.SourceFileLoader(
        name.replace("-", "_"), os.path.join(ROOT, "tools", name))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


sys.dont_write_bytecode = True
fusion = load_tool("ort-fusion")

U8, S8 = QuantType.QUInt8, QuantType.QInt8
SETTINGS = {
    "u8": dict(activation_type=U8, weight_type=S8),
    "u8-channel": dict(activation_type=U8, weight_type=S8, per_channel=True),
    "s8-channel": dict(activation_type=S8, weight_type=S8, per_channel=True),
    "s8-symmetric": dict(activation_type=S8, weight_type=S8,
                         extra_options={"ActivationSymmetric": True}),
    "u8-reduced": dict(activation_type=U8, weight_type=S8, per_channel=True,
                       reduce_range=True),
    "u8u8": dict(activation_type=U8, weight_type=U8),
    "qoperator": dict(activation_type=U8, weight_type=S8,
                      quant_format=QuantFormat.QOperator),
    "float-weights": dict(activation_type=U8, weight_type=S8, per_channel=True,
                          extra_options={"AddQDQPairToWeight": True,
                                         "DedicatedQDQPair": True,
                                         "QuantizeBias": False}),
    "products-only": dict(activation_type=U8, weight_type=S8,
                          op_types_to_quantize=["Conv", "MatMul", "Gemm"]),
    "u16": dict(activation_type=QuantType.QUInt16, weight_type=S8),
}


def depthwise_floats(model):
    """Results of the depthwise convolutions behind float operators, which our
    files leave in float where these go to others, or come from a first layer
    that stays in float."""
    shapes = {i.name: list(i.dims) for i in model.graph.initializer}
    integer = {o for n in model.graph.node
               if n.op_type == "DequantizeLinear" for o in n.output}
    groups = {n.output[0]: onnx.helper.get_node_attr_value(n, "group")
              for n in model.graph.node
              if any(a.name == "group" for a in n.attribute)}
    return {n.output[0] for n in model.graph.node
            if n.op_type == "Conv" and n.input[0] not in integer
            and n.input[1] in shapes
            and groups.get(n.output[0], 1) == shapes[n.input[1]][0] > 1}


def feeds_for(model, seed):
    """Random inputs; unknown dimensions are 1 in front and 16 behind."""
    rng = np.random.default_rng(seed)
    feeds = {}
    constants = {i.name for i in model.graph.initializer}
    for i in model.graph.input:
        if i.name in constants:
            continue
        dims = [max(d.dim_value, 1 if k == 0 else 16) if d.dim_value <= 0
                else d.dim_value
                for k, d in enumerate(i.type.tensor_type.shape.dim)]
        if i.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            high = 1000 if i.name == "input_ids" else 2
            feeds[i.name] = rng.integers(0, high, dims).astype(np.int64)
        else:
            feeds[i.name] = rng.normal(size=dims).astype(np.float32)
    return feeds


class Reader(CalibrationDataReader):
    def __init__(self, model):
        self.samples = iter([feeds_for(model, s) for s in (1, 2)])

    def get_next(self):
        return next(self.samples, None)


def prepare(model, path):
    """Writes `model` as the tool's own documentation wants it: shapes inferred,
    batch normalization folded."""
    opset = next(o for o in model.opset_import if o.domain in ("", "ai.onnx"))
    if opset.version < 13:
        model = onnx.version_converter.convert_version(model, 17)
    onnx.save(model, path)
    options = ort.SessionOptions()
    options.graph_optimization_level = \
        ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = path
    options.log_severity_level = 3
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    onnx.save(onnx.shape_inference.infer_shapes(onnx.load(path)), path)


def quantize_prepared(source, setting, path):
    """Writes the prepared model quantized by ONNX Runtime's tool."""
    quantize_static(source, path, Reader(onnx.load(source)),
                    **SETTINGS[setting])


def quantize(model, setting, path):
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "float.onnx")
        prepare(model, source)
        quantize_prepared(source, setting, path)


def lint(command, path, target="onnxruntime-x86"):
    text = subprocess.run([command, "lint", path, "--json", "--target",
                           target], capture_output=True, text=True, check=True)
    return json.loads(text.stdout)


def compare_fates(said, path):
    """Differences between lint's prediction and the real thing, in words; and
    how many nodes became integer kernels."""
    model, optimized, _, _ = fusion.optimize(path)
    found = {r["output"]: r for r in fusion.fates(model, optimized)}
    predicted = {r["output"]: r for r in said["nodes"]}
    wrong = []
    for output, real in found.items():
        ours = predicted.get(output, {"fate": "gone", "kernel": "", "rule": ""})
        fits = {
            "integer": ours["fate"] == "integer" and
                       ours["kernel"] == real["kernel"],
            "moves": ours["fate"] == "moves",
            "float": ours["fate"] == "float",
            "gone": ours["fate"] != "integer",
        }[real["fate"]]
        if not fits:
            wrong.append(f"{real['op']} {output}: {real['fate']} "
                         f"{real['kernel']}, lint says {ours['fate']} "
                         f"{ours['kernel']} {ours['rule']}")
    # Not those that the change to channels-last brings in, which have no name
    # of ours nor of a value; some of these stand for ours.
    kernels = [n.op_type for n in optimized.graph.node]
    named = [n.op_type for n in optimized.graph.node
             if not re.match(n.op_type + r"(_token_\d+)?$", n.name)]
    for op, key in (("QuantizeLinear", "quantize_left"),
                    ("DequantizeLinear", "dequantize_left")):
        if not named.count(op) <= said[key] <= kernels.count(op):
            wrong.append(f"{named.count(op)} to {kernels.count(op)} {op} left, "
                         f"lint says {said[key]}")
    return wrong, sum(r["fate"] == "integer" for r in found.values())


def run_ours(command, path, feeds, *options):
    with tempfile.TemporaryDirectory() as folder:
        given = os.path.join(folder, "in.npz")
        made = os.path.join(folder, "out.npz")
        np.savez(given, **feeds)
        subprocess.run([command, "run", path, "-q", "-i", given, "--npz", made,
                        *options], check=True, stdout=subprocess.DEVNULL)
        with np.load(made) as z:
            return {k: z[k] for k in z.files}


def run_ort(path, feeds):
    options = ort.SessionOptions()
    options.add_session_config_entry(*fixtures.EXACT)
    options.log_severity_level = 4  # what is refused is said by the caller
    options.intra_op_num_threads = 2
    try:
        session = ort.InferenceSession(path, options,
                                       providers=["CPUExecutionProvider"])
    except Exception as error:
        # ONNX Runtime 1.31 cannot take its exact kernels where layers share a
        # weight.
        if "replace the existing tensor" not in str(error):
            raise
        return None
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds)))


def cosine(a, b):
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    norm = np.linalg.norm(a) * np.linalg.norm(b)
    return 1.0 if norm == 0 else float(a @ b / norm)


def compare_results(command, path, seed=5):
    """Least share of equal elements and least cosine over the outputs; None if
    ONNX Runtime cannot compute them exactly."""
    feeds = feeds_for(onnx.load(path, load_external_data=False), seed)
    want = run_ort(path, feeds)
    if want is None:
        return None
    got = run_ours(command, path, feeds, "--integer")
    equal = min(float(np.mean(got[k] == want[k])) for k in want)
    return equal, min(cosine(got[k], want[k]) for k in want)
