"""What eval says of outputs, beside NumPy: boxes, rows, embeddings, maps, texts.

usage: test_eval.py SPARSEBIT

Outputs go through a network that does nothing, so any can be tried; detectors
among the fetched networks are compared on photos.  Exit status 77 means that
something needed is missing.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import fixtures

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sparsebit = sys.argv[1]
rng = np.random.default_rng(6)
folder = tempfile.TemporaryDirectory()
top = pathlib.Path(folder.name)
failures = 0


def check(name, good, why=""):
    global failures
    if not good:
        failures += 1
        print(f"FAIL {name}: {why}")


def near(name, got, want, tolerance=1e-6):
    check(name, got is not None and abs(got - want) <= tolerance,
          f"{got}, want {want}")


def compare(outputs, reference, *options):
    """eval of arrays by name against others."""
    info = lambda n, a: helper.make_tensor_value_info(
        n, TensorProto.FLOAT, ["n"] + [f"{n}{i}" for i in range(1, a.ndim)])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["i_" + n], [n]) for n in outputs], "g",
        [info("i_" + n, a) for n, a in outputs.items()],
        [info(n, a) for n, a in outputs.items()])
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", 17)]), top / "m.onnx")
    np.savez(top / "in.npz", **{"i_" + n: a for n, a in outputs.items()})
    np.savez(top / "ref.npz", **reference)
    (top / "d.yaml").write_text("SOURCE: npz\nPATH: in.npz\nBATCH: 3\n")
    return evaluate(top / "m.onnx", "-d", top / "d.yaml", "--against-outputs",
                    top / "ref.npz", *options)


def evaluate(*words):
    done = subprocess.run([sparsebit, "eval", *map(str, words), "--json"],
                          capture_output=True, text=True)
    check("eval", done.returncode == 0, done.stderr)
    return json.loads(done.stdout) if done.returncode == 0 else {"outputs": []}


# ---- boxes -----------------------------------------------------------------

def iou(a, b):
    """Of boxes [n, 4] and [m, 4] as corners."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    both = np.prod(np.clip(high - low, 0, None), axis=2)
    area = lambda x: np.prod(x[:, 2:] - x[:, :2], axis=1)
    return both / np.maximum(area(a)[:, None] + area(b)[None] - both, 1e-12)


def suppress(boxes, scores, classes, bar=0.25):
    keep = scores > bar
    boxes, scores, classes = boxes[keep], scores[keep], classes[keep]
    order = np.argsort(-scores, kind="stable")
    boxes, scores, classes = boxes[order], scores[order], classes[order]
    over = iou(boxes, boxes)
    kept = []
    for i in range(len(boxes)):
        if all(classes[k] != classes[i] or over[k, i] <= 0.45 for k in kept):
            kept.append(i)
    return boxes[kept[:300]], classes[kept[:300]]


def center(x):
    return np.concatenate([x[:, :2] - x[:, 2:4] / 2, x[:, :2] + x[:, 2:4] / 2],
                          axis=1)


def yolov8(o):
    o = o["y"].T.astype(np.float64)
    return suppress(center(o), o[:, 4:].max(1), o[:, 4:].argmax(1))


def yolov5(o, key="y"):
    o = o[key].astype(np.float64)
    return suppress(center(o), o[:, 5:].max(1) * o[:, 4], o[:, 5:].argmax(1))


def pair(o):
    b, s = o["boxes"].astype(np.float64), o["scores"].astype(np.float64)
    return suppress(b, s[:, 1:].max(1), s[:, 1:].argmax(1))


def count(a, b, read):
    """Boxes of all samples: found, wanted, in both."""
    found = wanted = both = 0
    for i in range(len(next(iter(a.values())))):
        x, p = read({n: v[i] for n, v in a.items()})
        y, q = read({n: v[i] for n, v in b.items()})
        over = iou(x, y) if len(x) and len(y) else np.zeros((len(x), len(y)))
        free = np.ones(len(y), bool)
        for k in range(len(x)):
            fit = np.where(free & (q == p[k]), over[k], 0)
            if len(y) and fit.max() > 0.5:
                free[fit.argmax()] = False
                both += 1
        found, wanted = found + len(x), wanted + len(y)
    return found, wanted, both


def check_boxes(name, said, a, b, read):
    found, wanted, both = count(a, b, read)
    check(name, (said.get("boxes"), said.get("reference_boxes"),
                 said.get("matched_boxes")) == (found, wanted, both),
          f"{said}, want {found}, {wanted}, {both}")
    check(f"{name}: enough to see", wanted > 4 and both > 0, (wanted, both))
    if wanted and found:
        near(f"{name} recall", said.get("recall"), both / wanted)
        near(f"{name} F1", said.get("f1"), 2 * both / (found + wanted))


def some_boxes(n, places):
    """Centers and sizes, in clusters that overlap."""
    xy = rng.integers(1, 8, (n, places, 2)) * 60 + rng.normal(0, 8, (n, places, 2))
    return np.concatenate([xy, rng.uniform(40, 90, (n, places, 2))], axis=2)


def test_boxes():
    n, places, classes = 7, 120, 3
    box = some_boxes(n, places)
    score = rng.uniform(0, .6, (n, places, classes))
    noise = lambda x, s: (x + rng.normal(0, s, x.shape)).astype(np.float32)
    near_box, near_score = noise(box, 6), noise(score, .08)
    layouts = {
        "yolov8": (lambda b, s: {"y": np.concatenate([b, s], 2)
                                 .transpose(0, 2, 1)}, yolov8),
        "yolov5": (lambda b, s: {"y": np.concatenate(
            [b, np.full((n, places, 1), .9), s], 2)}, yolov5)}
    for name, (make, read) in layouts.items():
        a = {k: v.astype(np.float32) for k, v in
             make(near_box, near_score).items()}
        b = {k: v.astype(np.float32) for k, v in make(box, score).items()}
        check_boxes(name, compare(a, b, "--task", "detect:" + name), a, b, read)
    corners = lambda b: np.concatenate([b[..., :2] - b[..., 2:] / 2,
                                        b[..., :2] + b[..., 2:] / 2], 2)
    soft = lambda s: np.concatenate([1 - s.sum(2, keepdims=True), s], 2)
    a = {"scores": soft(near_score[..., :1]).astype(np.float32),
         "boxes": corners(near_box).astype(np.float32)}
    b = {"scores": soft(score[..., :1]).astype(np.float32),
         "boxes": corners(box).astype(np.float32)}
    said = compare(a, b)
    check("pair guessed", said.get("task") == "detect:pair", said)
    check_boxes("pair", said, a, b, pair)


def test_detectors():
    """Networks on photos: outputs saved, boxes counted here."""
    photos = fixtures.find("data/imagenet300")
    nets = fixtures.networks()
    if not photos or not {"yolox_nano", "ultraface_rfb320"} <= set(nets):
        print(f"skip detectors: no networks or photos; {fixtures.HOW}")
        return
    ys = {s: np.stack(np.meshgrid(np.arange(416 // s), np.arange(416 // s)),
                      2).reshape(-1, 2) for s in (8, 16, 32)}
    grid = np.concatenate(list(ys.values()))
    stride = np.concatenate([np.full((len(g), 1), s) for s, g in ys.items()])

    def yolox(o):
        o = o["output"].astype(np.float64)
        o = np.concatenate([(o[:, :2] + grid) * stride,
                            np.exp(o[:, 2:4]) * stride, o[:, 4:]], 1)
        return yolov5({"y": o})

    for net, keys, read in (
            ("yolox_nano", ["COLOR=BGR", "SCALE=1", "LETTERBOX=416",
                            "PAD_POSITION=top_left"], yolox),
            ("ultraface_rfb320", ["SCALE=128", "MEAN=0.9921875"], pair)):
        words = ["-d", photos] + [w for k in keys for w in ("--set", k)]
        subprocess.run([sparsebit, "quantize", nets[net], *words, "-n", "4",
                        "-t", "onnxruntime-x86", "-o", top / "q.onnx", "-q"],
                       check=True)
        words += ["-n", "24"]
        said = evaluate(top / "q.onnx", *words, "--against", nets[net],
                        "--save-outputs", top / "a.npz")
        evaluate(nets[net], *words, "--save-outputs", top / "b.npz")
        check(net, said.get("task_guessed"), said)
        with np.load(top / "a.npz") as a, np.load(top / "b.npz") as b:
            check_boxes(net, said, dict(a), dict(b), read)


# ---- the rest --------------------------------------------------------------

def pooled(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return ((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()),
            10 * np.log10((b * b).sum() / ((a - b) ** 2).sum()))


def test_rows():
    """Boxes of hundreds and scores below one in one tensor."""
    box, score = some_boxes(5, 50), rng.uniform(0, 1, (5, 50, 6))
    b = np.concatenate([box, score], 2).astype(np.float32)
    a = (b + np.concatenate([rng.normal(0, .1, box.shape),
                             rng.normal(0, .4, score.shape)], 2)
         ).astype(np.float32)
    for x, y, cut in ((a, b, lambda v: (v[..., :4], v[..., 4:])),
                      (a.transpose(0, 2, 1), b.transpose(0, 2, 1),
                       lambda v: (v[:, :4], v[:, 4:]))):
        said = compare({"y": x}, {"y": y}, "--task", "none")
        parts = said["outputs"][0]["parts"] if said["outputs"] else []
        check("parts", [p["rows"] for p in parts] == ["0..3", "4..9"], parts)
        for p, u, v in zip(parts, cut(x), cut(y)):
            near("part", p["cosine"], pooled(u, v)[0], 1e-6)
            near("part", p["sqnr_db"], pooled(u, v)[1], 1e-3)
    check("no agreement", "agreement" not in said, said)
    said = compare({"y": a[..., 4:]}, {"y": b[..., 4:]}, "--task", "none")
    check("no parts", said["outputs"][0]["parts"] == [], said)


def cosines(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return np.sort(((a * b).sum(-1) / np.linalg.norm(a, axis=-1)
                    / np.linalg.norm(b, axis=-1)).ravel())


def test_vectors():
    for shape in ((9, 128), (4, 30, 64)):
        b = rng.standard_normal(shape).astype(np.float32)
        a = (b + .3 * rng.standard_normal(shape)).astype(np.float32)
        said, want = compare({"y": a}, {"y": b}), cosines(a, b)
        check("embed", said.get("task") == "embed", said)
        near("mean", said.get("vector_cosine"), want.mean(), 1e-6)
        near("p1", said.get("vector_cosine_p1"), want[len(want) // 100], 1e-6)
        check("no classes", "agreement" not in said, said)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(np.float32)


def ctc(x):
    best, last, text = x.argmax(-1), 0, []
    for c in best:
        if c != last and c != 0:
            text.append(int(c))
        last = c
    return text


def test_texts():
    b = softmax(rng.standard_normal((40, 12, 11)) * 4)
    a = softmax(np.log(b) + rng.standard_normal(b.shape) * .5)
    said = compare({"y": a}, {"y": b})
    want = np.mean([ctc(x) == ctc(y) for x, y in zip(a, b)])
    check("text", said.get("task") == "text" and 0.05 < want < 0.95, said)
    near("texts", said.get("texts_equal"), 100 * want)


def test_maps_and_classes():
    b = rng.uniform(0, 1, (4, 1, 20, 30)).astype(np.float32)
    a = (b + rng.normal(0, .1, b.shape)).astype(np.float32)
    for bar, words in ((.5, []), (.3, ["--threshold", "0.3"])):
        said = compare({"y": a}, {"y": b}, *words)
        x, y = a > np.float32(bar), b > np.float32(bar)
        check("map", said.get("task") == "segment", said)
        near("map", said.get("map_iou"), (x & y).sum() / (x | y).sum())
    b = rng.standard_normal((4, 5, 6, 7)).astype(np.float32)
    a = (b + rng.normal(0, .5, b.shape)).astype(np.float32)
    said = compare({"y": a}, {"y": b})
    near("pixels", said.get("agreement"),
         100 * (a.argmax(1) == b.argmax(1)).mean())
    b = rng.standard_normal((50, 10)).astype(np.float32)
    a = (b + rng.normal(0, .5, b.shape)).astype(np.float32)
    said = compare({"y": a}, {"y": b})
    check("classes", said.get("task") == "classify", said)
    near("classes", said.get("agreement"),
         100 * (a.argmax(1) == b.argmax(1)).mean())
    tokens = rng.standard_normal((4, 6, 9)).astype(np.float32)
    check("logits of tokens", compare({"y": tokens}, {"y": tokens})["task"]
          == "none")
    check("on demand", compare({"y": tokens}, {"y": tokens}, "--task",
                               "classify")["agreement"] == 100)


test_boxes()
test_detectors()
test_rows()
test_vectors()
test_texts()
test_maps_and_classes()
print(f"{failures} failed")
sys.exit(1 if failures else 0)
