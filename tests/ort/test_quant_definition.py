#!/usr/bin/env python3
"""(slow) Scales and zero points of a ResNet-18 against their definition.

    test_quant_definition.py SPARSEBIT

Builds a ResNet-18 with random weights and BatchNormalization, takes what every
quantizer sees from ONNX Runtime, computes scale and zero point by the float64
definitions in tests/ref/observers.py, and compares with what `quantize --json`
prints.  Weights, and minmax and moving_average of activations, must agree to
1e-5; the others to the bounds that docs/observers.md states (BOUNDS below).
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../ref"))
try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    import quant_points
    from quant_points import observers
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

command = os.path.abspath(sys.argv[1])
SAMPLES, SIDE, BATCH = 8, 64, 3

# What docs/observers.md promises for activations, as parts of the largest
# magnitude; per channel in brackets, where histograms are smaller.
#   range    an end of the range may be off by so much
#   error    the root mean square error may be so much above the best one
# kl_histogram promises edges of a histogram: the divergence at its threshold
# may be 2 % above the least one.
BOUNDS = {
    "minmax": {"range": (0, 0)},
    "moving_average": {"range": (0, 0)},
    "percentile": {"range": (1 / 32768, 1 / 512)},
    "mse": {"error": (1 / 16384, 1 / 512)},
    "kl_histogram": {"kl": (0.02, 0.02)},
    # b is off by 1/16384 at most, and 11.16 b the range at most.
    "aciq": {"range": (11.16 / 16384, 11.16 / 512)},
}

# activation observer, its scheme and bits; weight observer, its scheme and bits;
# parameters of the two
SETTINGS = [
    ("minmax", "per-tensor-affine", 8, "minmax", "per-channel-symmetric", 8, {}),
    ("minmax", "per-tensor-symmetric", 4, "minmax", "per-tensor-affine", 4, {}),
    ("minmax", "per-channel-affine", 8, "percentile", "per-channel-symmetric",
     8, {"alpha": 0.01}),
    ("moving_average", "per-tensor-affine", 8, "mse", "per-channel-symmetric",
     4, {"ratio": 0.8}),
    ("moving_average", "per-channel-symmetric", 8, "mse",
     "per-tensor-symmetric", 8, {}),
    ("percentile", "per-tensor-affine", 8, "aciq", "per-channel-symmetric", 8,
     {"distribution": "gaus"}),
    ("percentile", "per-channel-symmetric", 8, "aciq", "per-channel-symmetric",
     4, {"alpha": 0.01, "distribution": "laplace"}),
    ("mse", "per-tensor-affine", 8, "minmax", "per-channel-symmetric", 8, {}),
    ("mse", "per-tensor-symmetric", 4, "minmax", "per-channel-affine", 8, {}),
    ("kl_histogram", "per-tensor-affine", 8, "kl_histogram",
     "per-tensor-symmetric", 8, {}),
    ("kl_histogram", "per-tensor-symmetric", 4, "minmax",
     "per-channel-symmetric", 8, {}),
    ("aciq", "per-tensor-affine", 8, "minmax", "per-channel-symmetric", 8,
     {"distribution": "gaus"}),
    ("aciq", "per-tensor-symmetric", 4, "minmax", "per-channel-symmetric", 8,
     {"distribution": "laplace"}),
]


# ---- the network -----------------------------------------------------------------
class Builder:
    """torchvision's ResNet-18, node by node, with torchvision's names."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.constants = [], []

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(
            np.asarray(array, np.float32), name))
        return name

    def node(self, op, path, inputs, **attrs):
        parts = path.split(".")
        scope = "".join(f"/{parts[i - 1]}.{p}" if p.isdigit() else "/" + p
                        for i, p in enumerate(parts))
        name = f"{scope}/{op}"
        y = f"{name}_output_0"
        self.nodes.append(helper.make_node(op, inputs, [y], name, **attrs))
        return y

    def conv_bn(self, conv, bn, x, cin, cout, k, stride):
        r = self.rng
        w = r.standard_normal((cout, cin, k, k)) * np.sqrt(2 / (cin * k * k))
        y = self.node("Conv", conv, [x, self.constant(conv + ".weight", w)],
                      kernel_shape=[k, k], strides=[stride] * 2,
                      pads=[k // 2] * 4)
        parts = {"weight": r.uniform(0.5, 1.5, cout),
                 "bias": r.standard_normal(cout) * 0.2,
                 "running_mean": r.standard_normal(cout) * 0.1,
                 "running_var": r.uniform(0.5, 2.0, cout)}
        return self.node("BatchNormalization", bn, [y] + [
            self.constant(f"{bn}.{n}", v) for n, v in parts.items()])

    def block(self, at, x, cin, cout, stride):
        y = self.conv_bn(at + ".conv1", at + ".bn1", x, cin, cout, 3, stride)
        y = self.node("Relu", at + ".relu", [y])
        y = self.conv_bn(at + ".conv2", at + ".bn2", y, cout, cout, 3, 1)
        if stride != 1 or cin != cout:
            x = self.conv_bn(at + ".downsample.0", at + ".downsample.1", x,
                             cin, cout, 1, stride)
        y = self.node("Add", at, [y, x])
        return self.node("Relu", at + ".relu_1", [y])

    def model(self):
        y = self.conv_bn("conv1", "bn1", "x", 3, 64, 7, 2)
        y = self.node("Relu", "relu", [y])
        y = self.node("MaxPool", "maxpool", [y], kernel_shape=[3, 3],
                      strides=[2, 2], pads=[1] * 4)
        cin = 64
        for i, cout in enumerate((64, 128, 256, 512)):
            for j in range(2):
                y = self.block(f"layer{i + 1}.{j}", y, cin, cout,
                               2 if i and not j else 1)
                cin = cout
        y = self.node("GlobalAveragePool", "avgpool", [y])
        y = self.node("Flatten", "flatten", [y])
        w = self.rng.standard_normal((1000, 512)) * 0.05
        y = self.node("Gemm", "fc", [
            y, self.constant("fc.weight", w),
            self.constant("fc.bias", self.rng.standard_normal(1000))], transB=1)
        graph = helper.make_graph(
            self.nodes, "resnet18",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT,
                                           ["N", 3, SIDE, SIDE])],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, ["N", 1000])],
            self.constants)
        return helper.make_model(graph, ir_version=8, opset_imports=[
            helper.make_opsetid("", 17)])


# ---- ours --------------------------------------------------------------------------
def part_of_config(scheme, bits, observer, params, activation):
    text = (f"  QSCHEME: {scheme}\n"
            f"  QUANTIZER:\n    TYPE: uniform\n    BIT: {bits}\n"
            f"  OBSERVER:\n    TYPE: {observer}\n")
    if observer == "percentile" and "alpha" in params:
        text += f"    PERCENTILE:\n      ALPHA: {params['alpha']}\n"
    if observer == "aciq":
        text += f"    ACIQ:\n      DISTRIBUTION: {params['distribution']}\n"
    if observer == "moving_average" and "ratio" in params:
        text += f"    MOVING_AVERAGE:\n      EMA_RATIO: {params['ratio']}\n"
    if activation:
        text += "  QADD:\n    ENABLE_QUANT: true\n"
    return text


def quantize(folder, setting):
    fo, fs, fb, wo, ws, wb, params = setting
    config = os.path.join(folder, "q.yaml")
    with open(config, "w") as f:
        f.write("BACKEND: virtual\nSCHEDULE:\n  FUSE_BN: true\nW:\n"
                + part_of_config(ws, wb, wo, params, False)
                + "A:\n" + part_of_config(fs, fb, fo, params, True))
    words = [command, "quantize", os.path.join(folder, "m.onnx"), "-c", config,
             "--data", os.path.join(folder, "d.yaml"), "--json", "-v", "--exact", "-o",
             os.path.join(folder, "out.onnx"), "-q"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip()
    found = json.loads(done.stdout)
    return quant_points.read_json(found["quantizers"]), None


# ---- comparison ----------------------------------------------------------------------
class Definition:
    """Ranges by definition, each computed once."""

    def __init__(self, points, seen):
        self.seen, self.known = seen, {}

    def data(self, point):
        if point.weight is not None:
            # What the command quantizes are floats.
            return [np.asarray(point.weight, np.float32)]
        return self.seen[point.value]

    def range(self, point, observer, scheme, bits, params):
        axis = 0 if "channel" in scheme else None
        symmetric = "symmetric" in scheme
        key = (point.value, point.kind, observer, scheme, bits,
               tuple(params.items()))
        if key not in self.known:
            self.known[key] = observers.observe(
                observer, self.data(point), axis, bits=bits,
                symmetric=symmetric, **params)
        return self.known[key]


def problem_of_error(entry, data, lo, hi, bits, symmetric, scheme, bound):
    """mse: the error with our scale may be little above the best."""
    rows = observers.rows(data, 0 if "channel" in scheme else None)
    for i, x in enumerate(rows):
        above = observers.mse_excess(x, entry["scale"][i],
                                     entry["zero_point"][i], lo[i], hi[i],
                                     bits, symmetric)
        if above > bound:
            return f"channel {i}: error {above:.3g} of the largest above the best"
    return None


def problem_of_range(entry, data, lo, hi, bits, symmetric, scheme, bound):
    """The scale must be one of a range whose ends are off by the bound."""
    rows = observers.rows(data, 0 if "channel" in scheme else None)
    slack = bound * np.abs(rows).max(1)
    low, _ = observers.qparams(lo + slack, hi - slack, bits, symmetric)
    high, _ = observers.qparams(lo - slack, hi + slack, bits, symmetric)
    off = ((entry["scale"] < low * (1 - 1e-5)) |
           (entry["scale"] > high * (1 + 1e-5)))
    if off.any():
        i = int(off.argmax())
        return f"channel {i}: scale {entry['scale'][i]:.6g}, want {low[i]:.6g}"
    return None


def problem_of_kl(entry, data, bits, symmetric, bound):
    """kl_histogram: the divergence at our threshold may be little above the
    least one."""
    x = observers.rows(data, None)[0]
    curve, thresholds = observers.kl_curve(x, bits)
    # Our threshold is the one that gives our scale.
    lo = -thresholds if symmetric else np.maximum(-thresholds, x.min())
    hi = thresholds if symmetric else np.minimum(thresholds, x.max())
    scales, _ = observers.qparams(lo, hi, bits, symmetric)
    at = int(np.abs(scales - entry["scale"][0]).argmin())
    near = curve[max(at - 1, 0):at + 2].min()
    if near > curve.min() * (1 + bound) + 1e-9:
        return (f"threshold {thresholds[at]:.6g} diverges by {near:.6g}, least "
                f"{curve.min():.6g} at {thresholds[curve.argmin()]:.6g}")
    return None


def problem(point, entry, want, setting_part, data):
    observer, scheme, bits = setting_part
    symmetric = "symmetric" in scheme
    if entry["bits"] != bits or entry["scheme"] != scheme:
        return f"{entry['bits']} bits, {entry['scheme']}"
    lo, hi = want
    scale, _ = observers.qparams(lo, hi, bits, symmetric)
    gap = quant_points.gap_of_scales(entry["scale"], scale)
    if gap is None:
        return f"{len(entry['scale'])} scales, want {len(scale)}"
    if gap <= 1e-5:
        if quant_points.zero_points_differ(entry["zero_point"], lo, scale, bits,
                                          symmetric):
            return "another zero point"
        return None
    if point.kind == "weight":
        return f"scale off by {gap:.2g}"
    (rule, bound), = BOUNDS[observer].items()
    bound = bound["channel" in scheme]
    if rule == "error":
        return problem_of_error(entry, data, lo, hi, bits, symmetric, scheme,
                                bound)
    if rule == "kl":
        return problem_of_kl(entry, data, bits, symmetric, bound)
    return problem_of_range(entry, data, lo, hi, bits, symmetric, scheme, bound)


def compare(setting, points, table, definition):
    fo, fs, fb, wo, ws, wb, params = setting
    bad, missing = [], []
    for point in points:
        weight = point.kind == "weight"
        part = (wo, ws, wb) if weight else (fo, fs, fb)
        if weight and wo in ("mse", "kl_histogram") and point.weight.size > 2e5:
            continue  # the definition is slow
        entry = quant_points.match(point, table)
        if entry is None:
            missing.append(repr(point))
            continue
        found = problem(point, entry, definition.range(point, *part, params),
                        part, definition.data(point))
        if found:
            bad.append(f"{entry['name']}: {found}")
    if missing:
        bad.append(f"missing: {' '.join(missing[:3])}; there are "
                   + " ".join(sorted(table)[:6]))
    if len(table) != len(points):
        bad.append(f"{len(table)} quantizers, want {len(points)}")
    return bad


def main():
    observers.self_check()
    print("pass the definitions themselves")
    model = Builder(1).model()
    onnx.checker.check_model(model)
    rng = np.random.default_rng(2)
    samples = rng.standard_normal((SAMPLES, 3, SIDE, SIDE)).astype(np.float32)
    points = quant_points.find(model)
    seen = quant_points.activations(model, points, samples)
    definition = Definition(points, seen)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, os.path.join(folder, "m.onnx"))
        np.save(os.path.join(folder, "x.npy"), samples)
        with open(os.path.join(folder, "d.yaml"), "w") as f:
            f.write(f"SOURCE: npy\nPATH: x.npy\nBATCH: {BATCH}\n")
        for setting in SETTINGS:
            name = (f"A {setting[0]} {setting[1]} {setting[2]}, "
                    f"W {setting[3]} {setting[4]} {setting[5]}")
            table, error = quantize(folder, setting)
            bad = [error] if error else compare(setting, points, table,
                                                definition)
            failed += bool(bad)
            print(f"{'FAIL' if bad else 'pass'} {name}"
                  + "".join(f"\n    {b}" for b in bad[:8]), flush=True)
    return 1 if failed else 0


sys.exit(main())
