"""Data sets: the pixels are Pillow's, the numbers torchvision's, the arrays
NumPy's; and what eval says of them is what NumPy says.

usage: test_data.py SPARSEBIT

`eval --save-outputs` of a network that does nothing hands out the very tensors
that networks get.  Exit status 77 means that something needed is missing.
"""
import gzip
import io
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import fixtures

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    import PIL
    from onnx import TensorProto, helper, numpy_helper
    from PIL import Image
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sparsebit = sys.argv[1]
rng = np.random.default_rng(1)
folder = tempfile.TemporaryDirectory()
top = pathlib.Path(folder.name)
failures = 0
FILTERS = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR,
           "bicubic": Image.BICUBIC}


def check(name, good, why=""):
    global failures
    if not good:
        failures += 1
        print(f"FAIL {name}: {why}")


def same(name, got, want):
    good = got.shape == want.shape and got.dtype == want.dtype
    why = f"{got.dtype}{got.shape}, want {want.dtype}{want.shape}"
    if good:
        good = np.array_equal(got, want)
        if not good:
            why = f"differs by up to {np.abs(got.astype(float) - want).max()}"
    check(name, good, why)


def nothing(*inputs):
    """A network whose outputs are its inputs; inputs are (name, type, rank)."""
    path = top / "nothing.onnx"
    ins = [helper.make_tensor_value_info(n, t, [f"{n}{i}" for i in range(r)])
           for n, t, r in inputs]
    outs = [helper.make_tensor_value_info("o_" + n, t,
                                          [f"{n}{i}" for i in range(r)])
            for n, t, r in inputs]
    nodes = [helper.make_node("Identity", [n], ["o_" + n])
             for n, _, _ in inputs]
    graph = helper.make_graph(nodes, "nothing", ins, outs)
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", 17)]), path)
    return path


IMAGE = [("x", TensorProto.FLOAT, 4)]


def evaluate(model, text, *options):
    (top / "data.yaml").write_text(text)
    done = subprocess.run(
        [sparsebit, "eval", str(model), "--data", str(top / "data.yaml"),
         "--json", *options], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def tensors(text, inputs=IMAGE, *options):
    """What a network gets, by input."""
    code, out, err = evaluate(nothing(*inputs), text, "--save-outputs",
                              str(top / "out.npz"), *options)
    if code:
        print(f"FAIL {err.strip()}")
        sys.exit(1)
    with np.load(top / "out.npz") as z:
        return {n: z["o_" + n] for n, _, _ in inputs}, json.loads(out)


def resized(image, mode, size, how):
    a = np.asarray(image.convert(mode).resize(size, FILTERS[how]))
    return a.transpose(2, 0, 1) if mode == "RGB" else a[None]


def rows_last(image, size):
    """Since version 13 Pillow may take columns first: other roundings."""
    return (int(PIL.__version__.split(".")[0]) >= 13
            and image.height / size[1] > image.width / size[0])


def smooth(height, width):
    y, x = np.arange(height)[:, None, None], np.arange(width)[None, :, None]
    c = np.arange(3)
    wave = np.sin(y / 9 + c) * 60 + np.cos(x / 7 - c) * 60 + 128
    return Image.fromarray(wave.astype(np.uint8))


def make_images():
    path = top / "images"
    path.mkdir()
    noise = lambda *s: rng.integers(0, 256, s, dtype=np.uint8)
    for i in range(8):
        h, w = rng.integers(20, 300, 2)
        Image.fromarray(noise(h, w, 3)).save(path / f"a{i}.png")
    Image.fromarray(noise(1, 1, 3)).save(path / "a_one.png")
    Image.fromarray(noise(90, 80)).save(path / "b_gray.png")
    Image.fromarray(noise(90, 80, 2)).save(path / "b_gray_alpha.png")
    Image.fromarray(noise(90, 80, 4)).save(path / "b_alpha.png")
    Image.fromarray(noise(90, 81)).convert("1").save(path / "b_bits.png")
    colors = Image.fromarray(noise(90, 80, 3)).quantize(16)
    colors.save(path / "b_palette.png")
    colors.save(path / "b_transparent.png", transparency=3)
    for i, (name, options) in enumerate({
            "full": {"subsampling": 0}, "half": {"subsampling": 1},
            "quarter": {"subsampling": 2}, "steps": {"progressive": True},
            "good": {"quality": 97}}.items()):
        smooth(150 + i, 131 + 3 * i).save(path / f"c_{name}.jpg", **options)
    smooth(150, 131).convert("L").save(path / "c_gray.jpg")
    smooth(150, 131).convert("CMYK").save(path / "c_cmyk.jpeg")
    return path


def test_images(path):
    files = sorted(path.iterdir())
    for how in FILTERS:
        for size in ((48, 64), (133, 130)):
            for color, mode in (("RGB", "RGB"), ("GRAY", "L")):
                got, _ = tensors(
                    f"SOURCE: image_folder\nPATH: images\n"
                    f"RESIZE: [{size[1]}, {size[0]}]\n"
                    f"INTERPOLATION: {how}\nCOLOR: {color}\n")
                check("count", len(got["x"]) == len(files))
                for file, x in zip(files, got["x"]):
                    image = Image.open(file)
                    want = resized(image, mode, size, how)
                    off = np.abs(x - want.astype(float)).max()
                    # Pillow may come with another release of libjpeg.
                    most = 1 if file.suffix != ".png" else 0
                    if rows_last(image, size) and how != "nearest":
                        most = 1 if how == "bilinear" else 255
                    check(f"{file.name} {how} {size} {color}", off <= most,
                          f"off by {off}")


def test_torchvision(path):
    """Short side, center crop, and float arithmetic as torchvision has them."""
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    for crop in (21, 32):
        for size in ((41, 67), (67, 41), (50, 50), (37, 36)):
            pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
            image = Image.fromarray(pixels)
            image.save(top / "one.png")
            (top / "list.txt").write_text("one.png 3\n")
            h, w = size
            new = (32, int(32 * h / w)) if w <= h else (int(32 * w / h), 32)
            a = np.asarray(image.resize(new, Image.BILINEAR))
            y = int(round((new[1] - crop) / 2.0))
            x = int(round((new[0] - crop) / 2.0))
            a = a[y:y + crop, x:x + crop]
            want = ((a.astype(np.float32) / np.float32(255)
                     - np.array(mean, np.float32)) / np.array(std, np.float32))
            for color, layout in (("RGB", "NCHW"), ("RGB", "NHWC"),
                                   ("BGR", "NCHW")):
                flip = slice(None, None, -1 if color == "BGR" else 1)
                got, _ = tensors(
                    f"SOURCE: image_list\nPATH: list.txt\nRESIZE: 32\n"
                    f"CROP: {crop}\nCOLOR: {color}\nLAYOUT: {layout}\n"
                    f"SCALE: 255\nMEAN: {mean[flip]}\nSTD: {std[flip]}\n")
                b = want[..., flip]
                if layout == "NCHW":
                    b = b.transpose(2, 0, 1)
                name = f"torchvision {size} {crop} {color} {layout}"
                # The scales of the sides differ a little: columns first?
                off = np.abs(got["x"][0] - b).max()
                check(name, off <= 1 / 255 / min(std) * 1.001
                      if rows_last(image, new) else off == 0, f"off by {off}")


def test_photos():
    photos = fixtures.photos()
    if not photos:
        print(f"skip photos: none; {fixtures.HOW}")
        return
    folder = os.path.dirname(photos[0])
    got, _ = tensors(f"SOURCE: image_folder\nPATH: {folder}\nRESIZE: 256\n"
                     "CROP: 224\n", IMAGE, "--samples", "40")
    for file, x in zip(photos, got["x"]):
        image = Image.open(file).convert("RGB")
        w, h = image.size
        new = (256, int(256 * h / w)) if w <= h else (int(256 * w / h), 256)
        a = np.asarray(image.resize(new, Image.BILINEAR))
        y = int(round((new[1] - 224) / 2.0))
        z = int(round((new[0] - 224) / 2.0))
        off = np.abs(a[y:y + 224, z:z + 224].transpose(2, 0, 1) - x).max()
        check(file, off <= 1, f"off by {off}")


def test_broken(path):
    """Cut off, damaged, empty, not an image: left out and named."""
    for name in ("one.jpg", "cut.jpg", "bits.jpg", "two.png", "cut.png",
                 "text.jpg", "empty.png"):
        (top / "broken").mkdir(exist_ok=True)
        buffer = io.BytesIO()
        kind = "PNG" if name.endswith("png") else "JPEG"
        smooth(60, 50).save(buffer, kind)
        data = bytearray(buffer.getvalue())
        if name.startswith("cut"):
            data = data[:len(data) * 2 // 3]
        if name == "bits.jpg":
            at = len(data) * 2 // 3
            data[at:at + 40] = bytes(40)
            data[at + 40:at + 42] = b"\xff\xd9"
            data = data[:at + 42]
        if name == "text.jpg":
            data = b"hello"
        if name == "empty.png":
            data = b""
        (top / "broken" / name).write_bytes(data)
    text = "SOURCE: image_folder\nPATH: broken\nBATCH: 2\n"
    got, said = tensors(text)
    bad = ["bits.jpg", "cut.jpg", "cut.png", "empty.png", "text.jpg"]
    check("broken", said["broken"] == bad, said["broken"])
    check("left", said["samples"] == 2 and len(got["x"]) == 2, said)
    model = nothing(*IMAGE)
    for threads in ("1", "2"):
        code, _, err = evaluate(model, text, "--strict", "--threads", threads)
        check("strict", code == 1 and "bits.jpg" in err
              and err.count("\n") == 1, err)


def test_labels(path):
    (top / "classes").mkdir()
    for name in ("cat/1.png", "cat/2.png", "dog/deep/3.png", "eel/4.png"):
        file = top / "classes" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        value = int(file.stem)
        Image.new("L", (3, 1), 0).save(file)
        Image.fromarray(np.array([[value == 1 or value == 4, value == 2,
                                   value == 3]], np.uint8)).save(file)
    # The class is where the 1 is: 1, 3 and nothing else is right.
    text = ("SOURCE: image_folder\nPATH: classes\nCOLOR: GRAY\n"
            "LAYOUT: NHWC\n")
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["y"])], "classes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT,
                                       ["N", 1, 3, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])])
    model = top / "classes.onnx"
    onnx.save(helper.make_model(graph, ir_version=9), model)

    def top1(text, *options):
        code, out, err = evaluate(model, text, *options)
        return json.loads(out).get("top1") if code == 0 else err

    check("folders", top1(text) == 25.0, top1(text))
    (top / "labels.txt").write_text(
        "cat/1.png 0\ncat/2.png 1\ndog/deep/3.png 2\neel/4.png\t0\n\n")
    text += "LABELS: labels.txt\n"
    check("file", top1(text) == 100.0, top1(text))
    (top / "labels.txt").write_text(
        "cat/1.png 1\ncat/2.png 2\ndog/deep/3.png 1\neel/4.png 1\n")
    text += "LABEL_OFFSET: -1\n"
    check("offset", top1(text) == 75.0, top1(text))
    check("skip", top1(text, "--skip", "3") == 100.0)
    (top / "labels.txt").write_text("cat/1.png 1\n")
    check("missing", "no label for 'cat/2.png'" in top1(text), top1(text))


def test_cifar():
    records = [rng.integers(0, 256, (n, 3073), dtype=np.uint8) for n in (5, 3)]
    for i, r in enumerate(records):
        r[:, 0] %= 10
        r.tofile(top / f"part{i}.bin")
    want = np.concatenate(records)[:, 1:].reshape(-1, 3, 32, 32)
    text = "SOURCE: cifar10\nPATH: [part0.bin, part1.bin]\nBATCH: 3\n"
    got, _ = tensors(text)
    same("cifar10", got["x"], want.astype(np.float32))
    got, _ = tensors(text + "SHUFFLE: true\n", IMAGE, "--seed", "5")
    again, _ = tensors(text + "SHUFFLE: true\n", IMAGE, "--seed", "5",
                       "--threads", "1", "--batch", "8")
    same("shuffle twice", got["x"], again["x"])
    key = lambda a: sorted(a.reshape(len(a), -1).tolist())
    check("shuffle", key(got["x"]) == key(want)
          and not np.array_equal(got["x"], want))
    got, said = tensors(text, IMAGE, "--skip", "2", "--samples", "4")
    same("part", got["x"], want[2:6].astype(np.float32))


def idx(a):
    return bytes([0, 0, 8, a.ndim]) + struct.pack(
        f">{a.ndim}I", *a.shape) + a.tobytes()


def test_idx():
    a = rng.integers(0, 256, (6, 9, 7), dtype=np.uint8)
    labels = np.arange(6, dtype=np.uint8)
    (top / "i.gz").write_bytes(gzip.compress(idx(a)))
    (top / "i.idx").write_bytes(idx(a))
    (top / "l.gz").write_bytes(gzip.compress(idx(labels)))
    for name in ("i.gz", "i.idx"):
        got, _ = tensors(f"SOURCE: idx\nPATH: {name}\nLABELS: l.gz\n"
                         "SCALE: 255\n")
        same(name, got["x"], a[:, None].astype(np.float32) / np.float32(255))
    model = nothing(*IMAGE)
    lies = {"short": idx(a)[:-1], "long": idx(a) + b"x", "type":
            b"\0\0\x0d\3" + idx(a)[4:], "rank": b"\0\0\x08\0" + idx(a)[4:],
            "huge": b"\0\0\x08\3" + b"\xff" * 12 + bytes(99), "none": b""}
    for name, data in lies.items():
        for pack in (bytes, gzip.compress):
            (top / "lie").write_bytes(pack(data))
            code, _, err = evaluate(model, "SOURCE: idx\nPATH: lie\n")
            check(f"idx {name}", code == 1 and err.count("\n") == 1, err)
    cut = gzip.compress(idx(a))
    (top / "lie").write_bytes(cut[:len(cut) // 2])
    code, _, err = evaluate(model, "SOURCE: idx\nPATH: lie\n")
    check("idx cut", code == 1 and "lie" in err, err)


def test_arrays():
    a = rng.standard_normal((5, 2, 3))
    np.save(top / "a.npy", a)
    inputs = [("x", TensorProto.FLOAT, 3)]
    got, _ = tensors("SOURCE: npy\nPATH: a.npy\nBATCH: 2\n", inputs)
    same("npy", got["x"], a.astype(np.float32))
    (top / "many").mkdir()
    for i in range(5):
        np.save(top / "many" / f"{i}.npy", a[i:i + 1].astype(np.float32))
    got, _ = tensors("SOURCE: npy\nPATH: many\n", inputs)
    same("npy folder", got["x"], a.astype(np.float32))
    b = rng.integers(0, 99, (5, 4))
    np.save(top / "b.npy", b)
    two = [("b", TensorProto.INT64, 2), ("a", TensorProto.FLOAT, 3)]
    got, _ = tensors("SOURCE: npy\nINPUTS: {a: a.npy, b: b.npy}\n", two)
    same("two a", got["a"], a.astype(np.float32))
    same("two b", got["b"], b)
    np.savez_compressed(top / "ab.npz", a=a, b=b, y=np.arange(5) % 4)
    got, _ = tensors("SOURCE: npz\nPATH: ab.npz\nLABELS: y\nBATCH: 3\n", two)
    same("npz a", got["a"], a.astype(np.float32))
    same("npz b", got["b"], b)
    np.save(top / "short.npy", a[:4])
    model = nothing(*two)
    for name, text in {
            "rows": "SOURCE: npy\nINPUTS: {a: short.npy, b: b.npy}\n",
            "input": "SOURCE: npz\nPATH: ab.npz\nINPUTS: [a, y]\n",
            "array": "SOURCE: npz\nPATH: ab.npz\nINPUTS: [a, c]\n",
            "labels": "SOURCE: npy\nPATH: a.npy\nLABELS: short.npy\n",
            "both": "SOURCE: npy\nPATH: a.npy\nINPUTS: {a: a.npy}\n"}.items():
        code, _, err = evaluate(model, text)
        check(name, code == 1 and err.count("\n") == 1, err)


def test_types():
    """Any type of numbers for any type of input: as astype() or a line."""
    values = {"u1": [0, 1, 255], "i1": [0, 1, -128], "i4": [0, 7, -9],
              "i8": [0, 100, 30000], "u8": [0, 1, 100], "f2": [0, .5, -2],
              "f4": [.1, .2, 1e30], "f8": [.1, 1 / 3, 2.0 ** 100], "?": [0, 1, 1]}
    wants = {"f2": TensorProto.FLOAT16, "f4": TensorProto.FLOAT,
             "f8": TensorProto.DOUBLE, "i4": TensorProto.INT32,
             "i8": TensorProto.INT64, "u1": TensorProto.UINT8}
    for have, value in values.items():
        a = np.array([value], have)
        np.save(top / "t.npy", a)
        np.savez(top / "t.npz", x=a)
        for want, proto in wants.items():
            inputs = [("x", proto, 2)]
            name = f"{have} for {want}"
            for text in ("SOURCE: npy\nPATH: t.npy\n",
                         "SOURCE: npz\nPATH: t.npz\n"):
                fits = want[0] == "f" or a.dtype.kind != "f"
                if want[0] != "f" and fits:
                    limits = np.iinfo(want)
                    fits = limits.min <= min(value) and max(value) <= limits.max
                if fits:
                    got, _ = tensors(text, inputs)
                    with np.errstate(over="ignore"):
                        same(name, got["x"], a.astype(want))
                    subprocess.run([sparsebit, "run", top / "nothing.onnx", "-q",
                                    "-i", top / "t.npy", "--npz",
                                    top / "run.npz"], check=True)
                    with np.load(top / "run.npz") as z:
                        same(name + ", run", z["o_x"], got["x"])
                    continue
                code, out, err = evaluate(nothing(*inputs), text)
                check(name, code == 1 and err.count("\n") == 1, err)
    # Images, too, for networks of doubles.
    Image.fromarray(np.full((2, 2, 3), 51, np.uint8)).save(top / "gray.png")
    (top / "one.txt").write_text("gray.png\n")
    got, _ = tensors("SOURCE: image_list\nPATH: one.txt\nSCALE: 255\n",
                     [("x", TensorProto.DOUBLE, 4)])
    same("image", got["x"],
         np.full((1, 3, 2, 2), np.float32(51) / np.float32(255), np.float64))


def test_lengths():
    """Texts of several lengths: batches hold equal ones only."""
    (top / "texts").mkdir()
    want = []
    for i, (n, length) in enumerate([(3, 5), (2, 5), (1, 9), (2, 4)]):
        ids = rng.integers(0, 50, (n, length))
        want += list(ids)
        np.savez(top / "texts" / f"{i}.npz", ids=ids, mask=np.ones_like(ids))
    weight = rng.standard_normal((50, 7)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["w", "ids"], ["e"]),
             helper.make_node("ReduceMean", ["e", "axes"], ["y"], keepdims=0)]
    graph = helper.make_graph(
        nodes, "texts",
        [helper.make_tensor_value_info(n, TensorProto.INT64, ["N", "L"])
         for n in ("mask", "ids")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 7])],
        [numpy_helper.from_array(weight, "w"),
         numpy_helper.from_array(np.array([1]), "axes")])
    model = top / "texts.onnx"
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", 18)]), model)
    code, out, err = evaluate(model, "SOURCE: npz\nPATH: texts\nBATCH: 4\n",
                              "--save-outputs", str(top / "out.npz"))
    check("texts", code == 0, err)
    if code == 0:
        with np.load(top / "out.npz") as z:
            right = np.stack([weight[i].mean(0) for i in want])
            check("texts", np.allclose(z["y"], right, atol=1e-5))


def test_eval():
    """Accuracy and distances beside ONNX Runtime and NumPy."""
    x = rng.standard_normal((40, 6)).astype(np.float32)
    labels = rng.integers(0, 9, 40)
    np.save(top / "x.npy", x)
    np.save(top / "labels.npy", labels)
    text = "SOURCE: npy\nPATH: x.npy\nLABELS: labels.npy\nBATCH: 7\n"
    weight = rng.standard_normal((6, 9)).astype(np.float32)
    paths, outs = [], []
    for i, batch in ((0, 1), (1, "N")):
        # One file fixes its batch to 1.
        w = weight + i * 0.3 * rng.standard_normal((6, 9)).astype(np.float32)
        shape = np.array([batch if batch == 1 else -1, 9])
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"]),
             helper.make_node("Reshape", ["y", "s"], ["r"]),
             helper.make_node("Relu", ["y"], ["z"])], "linear",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT,
                                           [batch, 6])],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, [batch, 9])
             for n in "rz"],
            [numpy_helper.from_array(w, "w"),
             numpy_helper.from_array(shape, "s")])
        paths.append(top / f"linear{i}.onnx")
        onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[
            helper.make_opsetid("", 17)]), paths[i])
        run = ort.InferenceSession(str(paths[i]),
                                   providers=["CPUExecutionProvider"])
        rows = [run.run(None, {"x": x[k:k + 1]}) for k in range(40)]
        outs.append([np.concatenate([r[o] for r in rows]).astype(np.float64)
                     for o in range(2)])
    code, out, err = evaluate(paths[1], text, "--against", str(paths[0]))
    check("eval", code == 0, err)
    if code:
        return
    said = json.loads(out)
    for side, o in ((said["against"], outs[0]), (said, outs[1])):
        order = np.argsort(-o[0], axis=1, kind="stable")
        hit = order == labels[:, None]
        check("top1", abs(side["top1"] - 100 * hit[:, 0].mean()) < 1e-6, side)
        check("top5", abs(side["top5"] - 100 * hit[:, :5].sum(1).mean())
              < 1e-6, side)
    a, b = outs[1], outs[0]

    def cosine(p, q):
        """Of rows; 1 of two zeros, 0 of a zero and something else."""
        norms = np.linalg.norm(p, axis=1) * np.linalg.norm(q, axis=1)
        return np.mean(np.where(norms > 0,
                                (p * q).sum(1) / np.maximum(norms, 1e-300),
                                ~p.any(1) & ~q.any(1)))

    sqnr = lambda p, q: 10 * np.log10((q * q).sum() / ((p - q) ** 2).sum())
    agree = 100 * (a[0].argmax(1) == b[0].argmax(1)).mean()
    check("agreement", abs(said["agreement"] - agree) < 1e-6, said)
    pairs = [(said, np.hstack(a), np.hstack(b))]
    pairs += [(said["outputs"][i], a[i], b[i]) for i in range(2)]
    for got, p, q in pairs:
        check("cosine", abs(got["cosine"] - cosine(p, q)) < 1e-5, got)
        check("sqnr", abs(got["sqnr_db"] - sqnr(p, q)) < 1e-3, got)


def test_batches():
    """Files that fix their batch to 1, three samples at once, beside ONNX
    Runtime, which takes them one by one."""
    if not fixtures.networks():
        print(f"skip batches: no networks; {fixtures.HOW}")
    for path in map(pathlib.Path, fixtures.networks().values()):
        run = ort.InferenceSession(str(path),
                                   providers=["CPUExecutionProvider"])
        if len(run.get_inputs()) > 1:
            continue
        shape = run.get_inputs()[0].shape[1:]
        x = rng.standard_normal((3, *shape)).astype(np.float32)
        np.save(top / "x.npy", x)
        code, _, err = evaluate(path, "SOURCE: npy\nPATH: x.npy\nBATCH: 3\n",
                                "--save-outputs", str(top / "out.npz"))
        check(path.name, code == 0, err)
        if code:
            continue
        want = [run.run(None, {run.get_inputs()[0].name: x[i:i + 1]})
                for i in range(3)]
        with np.load(top / "out.npz") as z:
            for k, output in enumerate(run.get_outputs()):
                got = z[output.name]
                for i in range(3):
                    one = want[i][k].reshape(got[i].shape)
                    off = np.abs(got[i] - one).max() / np.abs(one).max()
                    check(f"{path.name} {output.name}", off < 1e-3, off)


images = make_images()
test_images(images)
test_torchvision(images)
test_photos()
test_broken(images)
test_labels(images)
test_cifar()
test_idx()
test_arrays()
test_types()
test_lengths()
test_eval()
test_batches()
print(f"{failures} failed")
sys.exit(1 if failures else 0)
