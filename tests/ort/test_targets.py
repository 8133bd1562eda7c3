#!/usr/bin/env python3
"""Labels that are not one class a sample: masks of images, arrays of numbers.

    test_targets.py SPARSEBIT

Losses of the first epoch at a rate of nearly 0 and the figures of `eval` must be those
that NumPy computes from ONNX Runtime's outputs and what Pillow makes of images and masks."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
    from PIL import Image
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

command = os.path.abspath(sys.argv[1])
rng = np.random.default_rng(7)
failures = 0


def check(what, ok, why=""):
    global failures
    if not ok:
        failures += 1
        print(f"FAILED: {what} {why}")


def write_net(path, nodes, weights, x, y):
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(v.astype("f4"), k) for k, v in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                              ir_version=8)
    onnx.save(model, path)


def write_data(path, **keys):
    with open(path, "w") as f:
        json.dump(keys, f)


def run(*args):
    return subprocess.run([command, *args], capture_output=True, text=True)


def loss_of(net, data, loss):
    done = run("train", net, "-d", data, "-o", "out.onnx", "--force", "--json", "--folder",
               tempfile.mkdtemp(dir="."), "--set", f"LOSS={loss}", "--set", "EPOCHS=1",
               "--set", "LR=1e-12")
    check(f"train {net} {loss}", done.returncode == 0, done.stderr)
    return json.loads(done.stdout)["loss"] if done.returncode == 0 else float("nan")


def figures(net, data):
    done = run("eval", net, "-d", data, "--json")
    check(f"eval {net}", done.returncode == 0, done.stderr)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def near(what, got, want, tol=1e-5):
    check(what, got is not None and abs(got - want) <= tol * max(1, abs(want)),
          f"{got}, want {want}")


def refused(what, text, *args):
    done = run(*args)
    check(what, done.returncode != 0 and text in done.stderr, done.stderr)


# ---- numbers ----------------------------------------------------------------
def losses(y, t):
    d = np.abs(y - t)
    return {"mse": (d ** 2).mean(), "l1": d.mean(),
            "smooth_l1": np.where(d < 1, d * d / 2, d - 0.5).mean(),
            "bce": (np.logaddexp(0, y) - y * t).mean()}


def test_numbers():
    x, n = rng.normal(size=(24, 5)).astype("f4"), 3
    w = {"w.weight": rng.normal(size=(n, 5)), "w.bias": rng.normal(size=n)}
    one = {k: v[:1] for k, v in w.items()}
    gemm = helper.make_node("Gemm", ["x", "w.weight", "w.bias"], ["y"], transB=1)
    write_net("many.onnx", [gemm], w, ["N", 5], ["N", n])
    write_net("one.onnx", [gemm], one, ["N", 5], ["N", 1])
    np.save("x.npy", x)
    y = ort.InferenceSession("many.onnx").run(None, {"x": x})[0].astype("f8")
    kinds = {"real": rng.normal(size=(24, n)), "labels": rng.integers(0, 2, (24, n))}
    for kind, t in kinds.items():
        np.save("t.npy", t)
        np.savez("t.npz", x=x, t=t)
        write_data("npy.json", SOURCE="npy", PATH="x.npy", LABELS="t.npy", BATCH=8)
        write_data("npz.json", SOURCE="npz", PATH="t.npz", LABELS="t", BATCH=8)
        for data in ("npy.json", "npz.json"):
            for loss, want in losses(y, t).items():
                if loss != "bce" or kind == "labels":
                    near(f"{kind} {data} {loss}", loss_of("many.onnx", data, loss), want)
            got = figures("many.onnx", data)
            near("MAE", got["mean_absolute_error"], np.abs(y - t).mean())
            near("RMSE", got["root_mean_squared_error"], np.sqrt(((y - t) ** 2).mean()))
            if kind == "labels":
                both = ((y > 0) & (t == 1)).sum()
                near("F1", got["label_f1"], 200 * both / ((y > 0).sum() + t.sum()))
            check("F1 of numbers", ("label_f1" in got) == (kind == "labels"))
    # Of labels that are all 0 only what finds some has an F1.
    low = {"w.weight": w["w.weight"] / 1000, "w.bias": np.full(n, -5)}
    write_net("low.onnx", [gemm], low, ["N", 5], ["N", n])
    np.save("t.npy", np.zeros((24, n)))
    rows = run("eval", "low.onnx", "--against", "many.onnx", "-d", "npy.json").stdout
    rows = [line.split() for line in rows.splitlines()[:3]]
    check("columns", [rows[0][1:4], rows[1][3], rows[2][3:5]] ==
          [["MAE", "RMSE", "F1"], "-", ["0.00", "%"]], rows)
    near("MAE of the second model", float(rows[2][1]), np.abs(y).mean())
    # Dimensions of 1 that the output has not.
    for shape in ((24, n, 1), (24, 1, n, 1)):
        np.save("t.npy", kinds["real"].reshape(shape))
        near(f"{shape}", loss_of("many.onnx", "npy.json", "mse"),
             ((y - kinds["real"]) ** 2).mean())
    np.save("t.npy", np.full(24, 2 ** 40))
    refused("a large class", "label 0 is 1099511627776, want 0 to 2147483647", "eval",
            "many.onnx", "-d", "npy.json")
    # One number a sample, also integers, for an output [N,1].
    for t in (rng.normal(size=24), rng.integers(0, 60, 24)):
        np.save("t.npy", t)
        near("one number", loss_of("one.onnx", "npy.json", "mse"),
             ((y[:, 0] - t) ** 2).mean())
    refused("a wrong size", "does not fit 'y', float[N,3]", "train", "many.onnx", "-d",
            "npy.json", "-o", "none.onnx", "--set", "LOSS=l1")
    refused("bce", "found a label of", "train", "one.onnx", "-d", "npy.json", "-o",
            "none.onnx", "--set", "LOSS=bce")
    np.save("t.npy", kinds["real"])
    refused("no classes", "want LOSS mse, l1, smooth_l1 or bce", "train", "many.onnx",
            "-d", "npy.json", "-o", "none.onnx")
    refused("samples", "want numbers for 24 samples", "eval", "many.onnx", "-d",
            write_short())


def write_short():
    np.save("short.npy", np.zeros((23, 3)))
    write_data("short.json", SOURCE="npy", PATH="x.npy", LABELS="short.npy")
    return "short.json"


# ---- masks ------------------------------------------------------------------
SIZE, CROP, CLASSES = (14, 18), 12, 3


def write_masks():
    """Palettes, gray and arrays; what is cropped of the resized ones."""
    xs, ts = [], []
    for folder in ("photos/a", "masks/a"):
        os.makedirs(folder)
    for i in range(9):
        h, w = rng.integers(20, 40, 2)
        image = rng.integers(0, 256, (h, w, 3)).astype("u1")
        mask = rng.choice([0, 1, 2, 255], (h, w)).astype("u1")
        Image.fromarray(image).save(f"photos/a/{i}.png")
        if i % 3 == 0:
            np.save(f"masks/a/{i}.npy", mask.astype("i8"))
        else:
            shown = Image.fromarray(mask)
            if i % 3 == 1:
                shown = shown.convert("P")
                shown.putdata(mask.reshape(-1).tolist())
                shown.putpalette(rng.integers(0, 256, 768).astype("u1").tolist())
            shown.save(f"masks/a/{i}.png")
        top, left = (SIZE[0] - CROP) // 2, (SIZE[1] - CROP) // 2
        part = np.s_[top:top + CROP, left:left + CROP]
        size = SIZE[::-1]
        xs.append(np.asarray(Image.fromarray(image).resize(size, Image.BILINEAR))[part])
        ts.append(np.asarray(Image.fromarray(mask).resize(size, Image.NEAREST))[part])
    return (np.stack(xs).transpose(0, 3, 1, 2) / 255).astype("f4"), np.stack(ts)


def entropy(y, t):
    y = y.astype("f8")
    p = y - np.log(np.exp(y).sum(1, keepdims=True))
    counts = t != 255
    picked = np.take_along_axis(p, np.where(counts, t, 0)[:, None].astype("i8"), 1)[:, 0]
    return -picked[counts].mean()


def iou(y, t):
    found, shares = y.argmax(1), []
    for c in range(CLASSES):
        a, b = (found == c) & (t != 255), t == c
        if (a | b).any():
            shares.append((a & b).sum() / (a | b).sum())
    return 100 * np.mean(shares)


def test_masks():
    x, t = write_masks()
    w = {"w.weight": rng.normal(size=(CLASSES, 3, 3, 3)), "w.bias": rng.normal(size=CLASSES)}
    conv = helper.make_node("Conv", ["x", "w.weight", "w.bias"], ["y"], pads=[1] * 4)
    write_net("seg.onnx", [conv], w, ["N", 3, "H", "W"], ["N", CLASSES, "H", "W"])
    y = ort.InferenceSession("seg.onnx").run(None, {"x": x})[0]
    with open("list.txt", "w") as f:
        f.writelines(f"a/{i}.png\n" for i in range(9))
    os.rename("list.txt", "photos/list.txt")
    same = dict(LABELS="masks", RESIZE=list(SIZE), CROP=CROP, SCALE=255, BATCH=9)
    write_data("folder.json", SOURCE="image_folder", PATH="photos", **same)
    write_data("list.json", SOURCE="image_list", PATH="photos/list.txt", **same)
    np.save("x.npy", x)
    np.save("t.npy", t.astype("i4"))
    write_data("array.json", SOURCE="npy", PATH="x.npy", LABELS="t.npy", BATCH=9,
               IGNORE_LABEL=255)
    for data in ("folder.json", "list.json", "array.json"):
        # Pillow 13 rounds resized images in another order (docs/data.md), not masks.
        near(f"masks {data}", loss_of("seg.onnx", data, "auto"), entropy(y, t),
             1e-5 if data == "array.json" else 5e-4)
        got = figures("seg.onnx", data)
        near("mIoU", got["mean_iou"], iou(y, t))
        near("pixels", got["pixel_accuracy"],
             100 * (y.argmax(1) == t)[t != 255].mean())
    # Classes counted from 1, with 0 for what does not count.
    np.save("t.npy", np.where(t == 255, 0, t.astype("i4") + 1))
    write_data("array.json", SOURCE="npy", PATH="x.npy", LABELS="t.npy", BATCH=9,
               IGNORE_LABEL=0, LABEL_OFFSET=-1)
    near("masks from 1", loss_of("seg.onnx", "array.json", "auto"), entropy(y, t))
    np.save("t.npy", np.where(t == 255, -100, t.astype("i4")))
    write_data("array.json", SOURCE="npy", PATH="x.npy", LABELS="t.npy", BATCH=9)
    near("masks with -100", loss_of("seg.onnx", "array.json", "auto"), entropy(y, t))
    return x, t


def test_masks_as_numbers(x, t):
    """Masks of an output of one channel: 255 is no number, unless another one is ignored."""
    w = {"w.weight": rng.normal(size=(1, 3, 3, 3)), "w.bias": rng.normal(size=1)}
    conv = helper.make_node("Conv", ["x", "w.weight", "w.bias"], ["y"], pads=[1] * 4)
    write_net("map.onnx", [conv], w, ["N", 3, "H", "W"], ["N", 1, "H", "W"])
    y = ort.InferenceSession("map.onnx").run(None, {"x": x})[0][:, 0].astype("f8")
    np.save("numbers.npy", t.astype("i4"))
    train = ("train", "map.onnx", "-d", "map.json", "-o", "none.onnx", "--set")
    keys = dict(SOURCE="npy", PATH="x.npy", LABELS="numbers.npy", BATCH=9)
    write_data("map.json", **keys, IGNORE_LABEL=255)
    near("MAE of those that count", figures("map.onnx", "map.json")["mean_absolute_error"],
         np.abs(y - t)[t != 255].mean())
    for loss in ("mse", "bce"):
        refused(f"{loss} with IGNORE_LABEL", "a label is IGNORE_LABEL", *train, f"LOSS={loss}")
    write_data("map.json", **keys)
    near("mse of all", loss_of("map.onnx", "map.json", "mse"), ((y - t) ** 2).mean())
    np.save("numbers.npy", np.full(t.shape, 2 ** 63 - 1))
    write_data("map.json", **keys, LABEL_OFFSET=9)
    near("as large as can be", figures("map.onnx", "map.json")["mean_absolute_error"], 2 ** 63)


def test_teacher():
    """At a rate of nearly 0 the network stays what it is: MSE from the teacher's outputs, or
    top-1 where samples have a class each."""
    x, n = rng.normal(size=(24, 5)).astype("f4"), 3
    gemm = helper.make_node("Gemm", ["x", "w.weight"], ["y"], transB=1)
    y = []
    for net in ("pupil", "teacher"):
        write_net(f"{net}.onnx", [gemm], {"w.weight": rng.normal(size=(n, 5))}, ["N", 5],
                  ["N", n])
        y.append(ort.InferenceSession(f"{net}.onnx").run(None, {"x": x})[0].astype("f8"))
    np.save("five.npy", x)
    np.save("three.npy", rng.integers(0, n, 24))
    right = (y[0].argmax(1) == np.load("three.npy")).mean()
    write_data("plain.json", SOURCE="npy", PATH="five.npy", BATCH=8)
    write_data("classes.json", SOURCE="npy", PATH="five.npy", LABELS="three.npy", BATCH=8)
    train = ("train", "pupil.onnx", "--teacher", "teacher.onnx", "-o", "none.onnx", "--force",
             "--json", "--set", "EPOCHS=2", "--set", "LR=1e-12", "--folder")
    for data, loss, metric, want in (
            ("plain.json", "mse", "MSE", ((y[0] - y[1]) ** 2).mean()),
            ("plain.json", "l1", "MAE", np.abs(y[0] - y[1]).mean()),
            ("classes.json", "mse", "accuracy", right)):
        done = run(*train, tempfile.mkdtemp(dir="."), "-d", data, "--valid", data, "--set",
                   f"LOSS={loss}")
        check(f"teacher {data}", done.returncode == 0, done.stderr)
        got = json.loads(done.stdout) if done.returncode == 0 else {}
        check(f"metric of {data}", got.get("metric") == metric, got)
        near(f"{metric} of {data}", got.get("validation"), want)
    refused("bce", "LOSS bce is of labels", *train, "bce", "-d", "plain.json", "--set",
            "LOSS=bce")


def test_interrupted():
    """Pixels that are right are more than there are samples: counts of half an epoch."""
    write_data("small.json", SOURCE="npy", PATH="x.npy", LABELS="t.npy", BATCH=1)
    train = [command, "train", "seg.onnx", "-d", "small.json", "-o", "again.onnx",
             "--set", "EPOCHS=200"]
    first = subprocess.Popen(train, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(0.3)
    first.send_signal(signal.SIGINT)
    first.communicate()
    if first.returncode != 0:
        done = subprocess.run([*train, "--resume"], capture_output=True, text=True)
        check("--resume", done.returncode == 0, done.stderr)


def test_bad_masks():
    train = ("train", "seg.onnx", "-d", "folder.json", "-o", "none.onnx")
    good = open("masks/a/4.png", "rb").read()
    bad = np.full((25, 25), 9, "u1")
    refused("a label", "has label 255, the network has classes 0 to 2", *train[:2], "-d",
            write_data("other.json", SOURCE="image_folder", PATH="photos", LABELS="masks",
                       RESIZE=[14, 18], IGNORE_LABEL=7) or "other.json", *train[4:])
    write_data("other.json", SOURCE="image_folder", PATH="photos", LABELS="masks",
               IGNORE_LABEL=300)
    refused("IGNORE_LABEL", "found 300, allowed with masks are 0 to 255", "eval",
            "seg.onnx", "-d", "other.json")
    Image.fromarray(bad).save("masks/a/4.png")
    refused("a size", "masks/a/4.png: 25 x 25 pixels, its image has", "eval", "seg.onnx",
            "-d", "folder.json", "--strict")
    for mode in ("RGB", "I;16"):
        Image.fromarray(bad.astype("u2") if mode == "I;16" else np.stack([bad] * 3, 2)).save(
            "masks/a/4.png")
        refused(mode, "want a palette or gray values", "eval", "seg.onnx", "-d",
                "folder.json", "--strict")
    os.remove("masks/a/4.png")
    refused("no mask", "no mask for 'a/4.png', want a/4.png or .npy", *train)
    with open("masks/a/4.png", "wb") as f:
        f.write(good)
    np.save("t.npy", np.zeros((9, 4, 4), "i4"))
    refused("places", "do not fit together", "train", "seg.onnx", "-d", "array.json", "-o",
            "none.onnx")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    test_numbers()
    test_masks_as_numbers(*test_masks())
    test_interrupted()
    test_bad_masks()
    test_teacher()
    os.chdir("/")
print("labels of several numbers are right" if not failures else f"{failures} failures")
sys.exit(failures > 0)
