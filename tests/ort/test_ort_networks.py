#!/usr/bin/env python3
"""(slow) Networks quantized for onnxruntime-x86, in ONNX Runtime.

    test_ort_networks.py SPARSEBIT [NETWORK...]

Those of the table below that are among the fixtures (tests/ort/fixtures.py), on
photographs; skipped if there are none.  Of each, calibrated on 16 samples: ONNX
Runtime loads the file without a warning; every layer with constant weights is
an integer kernel there, and lint says so of each; our results agree with its
own: top-1 on 99 % of the samples or cosine 0.999 with `eval --simulate`, 99.5 %
or 0.9999 as `eval` computes such files, with integer kernels.

Where that is not reached, ONNX Runtime must not agree with itself any better.  A
sum that falls between two integers is rounded to one or the other by a
difference in the last bit, the layers behind make more of it, and the sample
ends up as far away as quantization takes it from float.  So the floor is what
ONNX Runtime makes of differences in the last bit: with all optimizations
against none (for the simulation), and with float inputs and constants nudged by
one unit in the last place.  Chance decides which
sample gets such a rounding, so of each sample the worst case counts, and ours
may lose twice as much: it is one more draw, of some more differences.
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fixtures
import qdq_common  # exits with 77 if something is missing
import numpy as np
import onnx
import onnxruntime as ort

try:
    from PIL import Image
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

command = os.path.abspath(sys.argv[1])
networks = fixtures.need_networks()
photos = fixtures.photos()
if not photos:
    fixtures.skip(f"no photographs; {fixtures.HOW}")

CONFIG = """SCHEDULE: {FUSE_BN: true, DISABLE_UNNECESSARY_QUANT: true}
W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: uniform, BIT: 8}, OBSERVER: {TYPE: minmax}}
A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: uniform, BIT: 8}, OBSERVER: {TYPE: minmax}}
"""
# height, width, mean, deviation, order of colors, are there classes
NETWORKS = {
    "resnet20_cifar10": (32, 32, (123.7, 116.3, 103.5), (58.4, 57.1, 57.4),
                         "RGB", True),
    "mobilenet_v1": (224, 224, (127.5,) * 3, (127.5,) * 3, "RGB", True),
    "squeezenet1_1": (227, 227, (103.9, 116.8, 123.7), (1,) * 3, "BGR", True),
    "ultraface_rfb320": (240, 320, (127,) * 3, (128,) * 3, "RGB", False),
    "nanodet_m": (320, 320, (103.5, 116.3, 123.7), (57.4, 57.1, 58.4), "BGR",
                  False),
    "yolox_nano": (416, 416, (0,) * 3, (1,) * 3, "BGR", False),
    "minilm_l6": None,
    "orientation": (224, 224, (123.7, 116.3, 103.5), (58.4, 57.1, 57.4), "RGB",
                    True),
    # Photos are not lines of text: its classes are a matter of chance.
    "ppocr_cls": (48, 192, (127.5,) * 3, (127.5,) * 3, "BGR", False),
    "ppocr_det": (256, 256, (123.7, 116.3, 103.5), (58.4, 57.1, 57.4), "BGR",
                  False),
    "ppocr_rec": (48, 160, (127.5,) * 3, (127.5,) * 3, "BGR", False),
}

NUDGES = 8      # of the last bit, with different seeds


def inputs_of(name, n):
    model = onnx.load(networks[name], load_external_data=False)
    constants = {i.name for i in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in constants]
    if NETWORKS[name] is None:
        rng = np.random.default_rng(3)
        ids = rng.integers(1000, 20000, (n, 32))
        return {k: ids if k == "input_ids" else
                np.ones_like(ids) if k == "attention_mask" else
                np.zeros_like(ids) for k in names}
    height, width, mean, deviation, order, _ = NETWORKS[name]
    x = []
    for i in range(n):
        image = Image.open(photos[i % len(photos)]).convert("RGB")
        if i >= len(photos):  # the left half, then the right one
            part = image.width // 2 * (i // len(photos) - 1)
            image = image.crop((part, 0, part + image.width // 2,
                                image.height))
        a = np.asarray(image.resize((width, height)), "f4")
        a = a if order == "RGB" else a[..., ::-1]
        x.append(((a - np.float32(mean)) / np.float32(deviation))
                 .transpose(2, 0, 1))
    return {names[0]: np.ascontiguousarray(x, "f4")}


def sparsebit(*args):
    done = subprocess.run([command, *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def agreement(got, want, classes):
    """Share of the same classes, or the least cosine of an output.  Scores are
    quantized: a class within one of 256 steps of the best is the same."""
    if classes:
        a, b = (x[0].reshape(len(x[0]), -1) for x in (got, want))
        chosen = np.take_along_axis(b, a.argmax(1)[:, None], 1)[:, 0]
        return float(np.mean(chosen >= b.max(1) - np.ptp(b) / 256))
    cosines = []
    for a, b in zip(got, want):
        a, b = a.astype("f8").ravel(), b.astype("f8").ravel()
        norms = np.sqrt((a @ a) * (b @ b))
        # An output without any text is all zeros.
        cosines.append(a @ b / norms if norms else float((a == b).all()))
    return float(min(cosines))


def session_of(model, optimize=True):
    opt = ort.SessionOptions()
    opt.add_session_config_entry(*fixtures.EXACT)
    opt.intra_op_num_threads = 2
    if not optimize:
        opt.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model, opt, providers=["CPUExecutionProvider"])


def run_all(session, feeds, n):
    fixed = isinstance(session.get_inputs()[0].shape[0], int)
    step = 1 if fixed else 8
    outs = [session.run(None, {k: v[i:i + step] for k, v in feeds.items()})
            for i in range(0, n, step)]
    return [np.concatenate(o) for o in zip(*outs)]


def nudge(x, rng):
    """Each element, or its neighbor on one of both sides."""
    way = rng.integers(-1, 2, x.shape)
    x = np.where(way > 0, np.nextafter(x, np.float32(np.inf)), x)
    return np.where(way < 0, np.nextafter(x, np.float32(-np.inf)), x)


def nudged(path, feeds, seed, rank):
    """The same file and inputs: float inputs, weights of normalizations, and
    constants of at least this rank, differ in the last bit."""
    rng = np.random.default_rng(seed)
    model = onnx.load(path)
    norms = {name for node in model.graph.node
             if node.op_type == "LayerNormalization" for name in node.input}
    for t in model.graph.initializer:
        if t.data_type == onnx.TensorProto.FLOAT and (
                len(t.dims) >= rank or t.name in norms):
            a = onnx.numpy_helper.to_array(t)
            if np.all(a == np.round(a)):  # factors of a Resize
                continue
            t.CopyFrom(onnx.numpy_helper.from_array(nudge(a, rng), t.name))
    feeds = {k: nudge(v, rng) if v.dtype == np.float32 else v
             for k, v in feeds.items()}
    return model.SerializeToString(), feeds


def self_agreement(path, feeds, n, want, optimize):
    """How well ONNX Runtime agrees with itself: of each sample and output the
    least cosine, then the mean over the samples, the least of an output."""
    # Scales a channel must stay as they are for groups to be replaced.
    runs = [nudged(path, feeds, seed, 2 if optimize else 1)
            for seed in range(NUDGES)]
    if not optimize:
        runs.append((path, feeds))
    worst = np.ones((len(want), n))
    for model, x in runs:
        got = run_all(session_of(model, optimize), x, n)
        for i, (a, b) in enumerate(zip(got, want)):
            each = [agreement([p], [q], False)
                    for p, q in zip(a.reshape(n, -1), b.reshape(n, -1))]
            worst[i] = np.minimum(worst[i], each)
    return float(worst.mean(1).min())


def lint_integer(path):
    """Outputs of the weighted nodes that lint says run as integers."""
    nodes = json.loads(sparsebit("lint", path, "-t", "onnxruntime-x86",
                                 "--json"))["nodes"]
    return {n["output"] for n in nodes
            if n["weighted"] and n["fate"] == "integer"}


def check(name, folder):
    classes = NETWORKS[name] is not None and NETWORKS[name][5]
    n = 32 if classes else 16
    feeds = inputs_of(name, n)
    np.savez(os.path.join(folder, "x.npz"), **feeds)
    with open(os.path.join(folder, "d.yaml"), "w") as f:
        f.write("SOURCE: npz\nPATH: x.npz\nBATCH: 8\n")
    data = os.path.join(folder, "d.yaml")
    path = os.path.join(folder, name + ".onnx")
    # All layers as integers, rounded to nearest: this is about kernels, and what
    # is known of the networks' sensitivity was seen with them.
    config = os.path.join(folder, "q.yaml")
    with open(config, "w") as f:
        f.write(CONFIG)
    sparsebit("quantize", networks[name], "-d", data, "-n", "16", "-t",
              "onnxruntime-x86", "-c", config, "-o", path, "-q")
    onnx.checker.check_model(path, full_check=True)
    model, optimized, warnings, _ = qdq_common.fusion.optimize(path)
    assert not warnings, warnings[0]
    rows = qdq_common.fusion.fates(model, optimized)
    # It has no integer kernel for ConvTranspose.
    heavy = {r["output"] for r in rows
             if r["weighted"] and r["op"] != "ConvTranspose"}
    done = {r["output"] for r in rows
            if r["weighted"] and r["fate"] == "integer"}
    assert heavy == done, f"float in ONNX Runtime: {sorted(heavy - done)}"
    assert lint_integer(path) == done, "lint says otherwise"
    session = session_of(path)
    want = run_all(session, feeds, n)
    text = [f"{len(done)} of {len(heavy)} layers"]
    good = True
    goals = (0.99, 0.995) if classes else (0.999, 0.9999)
    for goal, mode in zip(goals, (["--simulate"], [])):
        saved = os.path.join(folder, "y.npz")
        sparsebit("eval", path, "-d", data, "--save-outputs", saved, "-q",
                  *mode)
        z = np.load(saved)
        got = [z[o.name].reshape(w.shape)
               for o, w in zip(session.get_outputs(), want)]
        value = agreement(got, want, classes)
        text.append(f"{'simulated' if mode else 'integer'} {value:.6f}")
        if value >= goal:
            continue
        own = self_agreement(path, feeds, n, want, optimize=not mode)
        text[-1] += f" (ONNX Runtime with itself {own:.6f})"
        good = good and not classes and 1 - value <= 2 * (1 - own)
    assert good, ", ".join(text)
    return ", ".join(text)


def main():
    failed = 0
    for name in sys.argv[2:] or [n for n in NETWORKS if n in networks]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(f"{name}: {check(name, folder)}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{name}: FAILED {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
