"""What networks get from data files beyond rows in batches: whole files, rows as
they are, other axes, scalars, states; padded images, four channels, bytes; and
what a folder without data file is taken for.

usage: test_feed.py SPARSEBIT

Expected values are NumPy's and Pillow's.  Exit status 77 means that something
needed is missing.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
    from PIL import Image
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sparsebit = sys.argv[1]
rng = np.random.default_rng(5)
folder = tempfile.TemporaryDirectory()
top = pathlib.Path(folder.name)
failures = 0
F, I = TensorProto.FLOAT, TensorProto.INT64


def check(name, good, why=""):
    global failures
    if not good:
        failures += 1
        print(f"FAIL {name}: {why}")


def same(name, got, want):
    check(name, got.shape == want.shape and got.dtype == want.dtype
          and np.array_equal(got, want),
          f"{got.dtype}{got.shape}, want {want.dtype}{want.shape}")


def model(nodes, inputs, outputs, constants=(), path="m.onnx"):
    info = lambda v: helper.make_tensor_value_info(*v)
    graph = helper.make_graph(nodes, "g", [info(v) for v in inputs],
                              [info(v) for v in outputs],
                              [numpy_helper.from_array(a, n)
                               for n, a in constants])
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", 17)]), top / path)
    return top / path


def identity(*inputs, path="m.onnx"):
    """A network whose outputs are its inputs."""
    return model([helper.make_node("Identity", [n], ["o_" + n])
                  for n, _, _ in inputs], inputs,
                 [("o_" + n, t, d) for n, t, d in inputs], path=path)


def run(path, text, *options, data=None):
    (top / "data.yaml").write_text(text or "")
    done = subprocess.run(
        [sparsebit, "eval", str(path), "-d", str(data or top / "data.yaml"),
         "--save-outputs", str(top / "out.npz"), *options],
        capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr
    with np.load(top / "out.npz") as z:
        return dict(z), done.stderr


def refused(name, path, text, *words, data=None, options=()):
    got, err = run(path, text, *options, data=data)
    check(name, got is None and err.count("\n") == 1 and
          all(w in err for w in words), err)


def test_whole():
    runs = [dict(x=rng.standard_normal((1, 6)).astype(np.float32),
                 s=rng.standard_normal((2, 1, 4)).astype(np.float32),
                 k=np.array(7 + i)) for i in range(3)]
    net = identity(("x", F, [1, 6]), ("s", F, [2, 1, 4]), ("k", I, []))
    (top / "files").mkdir()
    for i, arrays in enumerate(runs):
        np.savez(top / "files" / f"{i}.npz", **arrays)
    stacked = {n: np.stack([r[n] for r in runs]) for n in "xsk"}
    np.savez(top / "rows.npz", **stacked)
    for text in ("SOURCE: npz\nPATH: files\nFEED: files\n",
                 "SOURCE: npz\nPATH: rows.npz\nFEED: rows\n"):
        got, err = run(net, text)
        check(text, got, err)
        for n in "xsk" if got else "":
            same(f"{text} {n}", got["o_" + n], stacked[n])
    # Without data file the model says that a file is a run.
    got, err = run(net, None, data=top / "files")
    check("folder", got and "FEED: files" in err, err)
    if got:
        same("folder", got["o_s"], stacked["s"])
    # So does an axis of one size beside one of any.
    open_net = identity(("x", F, ["N", 6]), ("s", F, [2, "N", 4]),
                        path="open.onnx")
    (top / "pairs").mkdir()
    for i, arrays in enumerate(runs):
        np.savez(top / "pairs" / f"{i}.npz", x=arrays["x"], s=arrays["s"])
    got, err = run(open_net, None, data=top / "pairs")
    check("open batch", got and "FEED: files" in err, err)
    if got:
        same("open batch", got["o_s"], stacked["s"])
    refused("batches of whole runs", net, "SOURCE: npz\nPATH: files\n",
            "'s' is f32[2,1,4]", "'x' is f32[1,6]", "FEED: files")
    refused("axis of whole runs", net,
            "SOURCE: npz\nPATH: files\nFEED: files\nAXIS: {s: 1}\n", "AXIS")


def test_axes():
    x = rng.standard_normal((7, 3)).astype(np.float32)
    s = rng.standard_normal((2, 7, 4)).astype(np.float32)
    rate = np.array([8, 8, 8, 16, 16, 8, 8])
    np.savez(top / "a.npz", x=x, s=s, k=rate)
    np.savez(top / "one.npz", x=x, s=s, k=np.array(9))
    # [n, 3] + k, and s with its samples in front
    net = model([helper.make_node("Cast", ["k"], ["f"], to=F),
                 helper.make_node("Add", ["x", "f"], ["y"]),
                 helper.make_node("Transpose", ["s"], ["t"], perm=[1, 0, 2])],
                [("x", F, ["n", 3]), ("s", F, [2, "n", 4]), ("k", I, [])],
                [("y", F, ["n", 3]), ("t", F, ["n", 2, 4])])
    for batch in (1, 2, 3, 8):
        for path, k in (("a.npz", rate[:, None]), ("one.npz", 9)):
            got, err = run(net, f"SOURCE: npz\nPATH: {path}\nAXIS: {{s: 1}}\n"
                           f"BATCH: {batch}\n")
            check(f"axis {path} {batch}", got, err)
            if got:
                same(f"{path} {batch} y", got["y"], x + k.astype(np.float32)
                     if path == "a.npz" else x + np.float32(9))
                same(f"{path} {batch} t", got["t"], s.transpose(1, 0, 2))
    # A model that fixes the batch runs with that.
    fixed = model([helper.make_node("Identity", ["x"], ["y"]),
                   helper.make_node("Transpose", ["s"], ["t"], perm=[1, 0, 2])],
                  [("x", F, [1, 3]), ("s", F, [2, 1, 4])],
                  [("y", F, [1, 3]), ("t", F, [1, 2, 4])], path="fixed.onnx")
    got, err = run(fixed, "SOURCE: npz\nPATH: a.npz\nAXIS: {s: 1, k: none}\n")
    check("fixed", got, err)
    if got:
        same("fixed", got["t"], s.transpose(1, 0, 2))
    for name, axis in {"name": "{z: 1}", "number": "{s: x}", "rank": "{s: 5}",
                       "map": "3", "none": "{s: -1}"}.items():
        refused(f"axis {name}", net,
                f"SOURCE: npz\nPATH: a.npz\nAXIS: {axis}\n", "'s'"
                if name == "rank" else "AXIS")


def recurrent():
    """y = x @ w + s, and s is the mean of both."""
    w = rng.standard_normal((4, 4)).astype(np.float32)
    net = model([helper.make_node("MatMul", ["x", "w"], ["p"]),
                 helper.make_node("Add", ["p", "s"], ["y"]),
                 helper.make_node("Add", ["y", "s"], ["q"]),
                 helper.make_node("Mul", ["q", "h"], ["sN"])],
                [("x", F, ["n", 4]), ("s", F, ["n", 4])],
                [("y", F, ["n", 4]), ("sN", F, ["n", 4])],
                [("w", w), ("h", np.array(.5, np.float32))], "recurrent.onnx")
    return net, w


def test_states():
    net, w = recurrent()
    (top / "seq").mkdir()
    sequences = [rng.standard_normal((n, 4)).astype(np.float32)
                 for n in (5, 1, 3)]
    want = []
    session = ort.InferenceSession(str(net),
                                   providers=["CPUExecutionProvider"])
    for i, x in enumerate(sequences):
        np.savez(top / "seq" / f"{i}.npz", x=x)
        s = np.zeros((1, 4), np.float32)
        for row in x:
            y, s = session.run(None, {"x": row[None], "s": s})
            want.append((y, s))
    text = "SOURCE: npz\nPATH: seq\nSTATE: {s: sN}\nBATCH: 4\n"
    got, err = run(net, text)
    check("state", got, err)
    for k, name in enumerate(("y", "sN") if got else ()):
        off = np.abs(got[name] - np.stack([r[k] for r in want])).max()
        check(f"state {name}", off < 1e-5, off)
    # The same from the middle, and compared with what was saved.
    subprocess.run(["cp", top / "out.npz", top / "saved.npz"], check=True)
    done = subprocess.run([sparsebit, "eval", net, "-d", top / "data.yaml",
                           "--against-outputs", top / "saved.npz", "--json"],
                          capture_output=True, text=True)
    check("saved", done.returncode == 0 and
          json.loads(done.stdout)["cosine"] > 0.999999, done.stderr)
    # Calibration sees the states: their range is in the file.
    done = subprocess.run([sparsebit, "quantize", net, "-d", top / "data.yaml",
                           "-o", top / "q.onnx", "--json", "-v"],
                          capture_output=True, text=True)
    check("calibrate", done.returncode == 0, done.stderr)
    if done.returncode == 0:
        scale = {q["value"]: q for q in json.loads(done.stdout)["quantizers"]}
        y = np.concatenate([r[0] for r in want])
        check("range", "y" not in scale or
              abs(scale["y"]["scale"] - (max(y.max(), 0) - min(y.min(), 0))
                  / 255) < 1e-5, scale)
    refused("input", net, text.replace("{s:", "{z:"), "'z'")
    refused("output", net, text.replace("sN", "sM"), "'sM'")
    refused("order", net, text + "SHUFFLE: true\n", "SHUFFLE")


def test_values():
    """--value: an input as a constant, an If resolved."""
    branch = lambda name, op: helper.make_graph(
        [helper.make_node(op, ["x"], [name])], name, [],
        [helper.make_tensor_value_info(name, F, [2])])
    net = model([helper.make_node("Equal", ["rate", "w"], ["same"]),
                 helper.make_node("If", ["same"], ["y"],
                                  then_branch=branch("a", "Neg"),
                                  else_branch=branch("b", "Relu"))],
                [("x", F, [2]), ("rate", I, [])], [("y", F, [2])],
                [("w", np.array(16000))], "if.onnx")
    np.save(top / "x.npy", np.array([1, -2], np.float32))
    np.save(top / "rate.npy", np.array(16000))
    for value, want in (("rate=16000", [-1, 2]), ("rate=8000", [1, 0]),
                        ("rate=@" + str(top / "rate.npy"), [-1, 2])):
        subprocess.run([sparsebit, "simplify", net, "-o", top / "s.onnx",
                        "--value", value, "-q"], check=True)
        small = onnx.load(top / "s.onnx")
        check(value, len(small.graph.node) == 1 and
              len(small.graph.input) == 1, small.graph.node)
        subprocess.run([sparsebit, "run", net, "--value", value, "-i",
                        top / "x.npy", "--npz", top / "y.npz", "-q"],
                       check=True)
        with np.load(top / "y.npz") as z:
            same(value, z["y"], np.array(want, np.float32))
    for value in ("rate=1.5", "rate=x", "rate=1,2", "rat=1", "x=1,2,3",
                  "rate=@nothing.npy", "rate="):
        done = subprocess.run([sparsebit, "run", net, "--value", value],
                              capture_output=True, text=True)
        check(value, done.returncode in (1, 2) and
              done.stderr.count("\n") <= 2, done.stderr)


# ---- images ----------------------------------------------------------------

def padded(a, size, top_left):
    """[h, w, c] in the middle, or the corner, of 114."""
    out = np.full((*size, a.shape[2]), 114, np.uint8)
    y, x = (0, 0) if top_left else ((size[0] - a.shape[0]) // 2,
                                    (size[1] - a.shape[1]) // 2)
    out[y:y + a.shape[0], x:x + a.shape[1]] = a
    return out


def letterbox(image, size, top_left):
    r = min(size[0] / image.height, size[1] / image.width)
    whole = int if top_left else round
    w, h = whole(image.width * r), whole(image.height * r)
    return padded(np.asarray(image.resize((w, h), Image.BILINEAR)), size,
                  top_left)


def test_images():
    path = top / "img"
    path.mkdir()
    images = []
    for i, (h, w) in enumerate(((31, 50), (50, 31), (8, 64), (33, 33), (64, 9))):
        y, x = np.arange(h)[:, None, None], np.arange(w)[None, :, None]
        wave = np.sin(y / 5 + np.arange(3)) * 60 + np.cos(x / 4) * 60 + 128
        images.append(Image.fromarray(wave.astype(np.uint8)))
        images[-1].save(path / f"{i}.png")
    source = f"SOURCE: image_folder\nPATH: {path}\n"
    net = identity(("x", F, ["n", "c", "h", "w"]))
    for corner in (False, True):
        text = source + ("PAD_POSITION: top_left\n" if corner else "")
        for size in ((40, 40), (24, 70)):
            got, err = run(net, text + f"LETTERBOX: {list(size)}\n")
            check("letterbox", got, err)
            if not got:
                continue
            for i, p in enumerate(images):
                off = np.abs(got["o_x"][i] - letterbox(p, size, corner)
                             .transpose(2, 0, 1).astype(np.float32)).max()
                check(f"letterbox {i} {size}", off <= 1, off)
        got, err = run(net, text + "PAD: 70\nSCALE: 255\nMEAN: 0.5\n")
        for i, p in enumerate(images if got else ()):
            want = padded(np.asarray(p), (70, 70), corner).transpose(2, 0, 1)
            same(f"pad {i}", got["o_x"][i],
                 want.astype(np.float32) / np.float32(255) - np.float32(.5))
    for color, alpha in (("RGBA", 1), ("BGRA", 7)):
        got, err = run(net, source + f"RESIZE: [9, 8]\nCOLOR: {color}\n"
                       f"ALPHA: {alpha}\nMEAN: [1, 2, 3, 4]\n")
        check(color, got, err)
        for i, p in enumerate(images if got else ()):
            a = np.asarray(p.resize((8, 9), Image.BILINEAR)).astype(np.float32)
            a = a[..., ::-1] if color == "BGRA" else a
            want = np.dstack([a, np.full((9, 8), alpha, np.float32)])
            want = (want - np.array([1, 2, 3, 4], np.float32)).transpose(2, 0, 1)
            check(f"{color} {i}", np.abs(got["o_x"][i] - want).max() <= 1,
                  np.abs(got["o_x"][i] - want).max())
    nhwc = identity(("x", TensorProto.UINT8, ["n", 9, 8, 3]), path="b.onnx")
    got, err = run(nhwc, None, data=path)
    check("bytes", got and "RESIZE: [9, 8]" in err and "SCALE" not in err, err)
    for i, p in enumerate(images if got else ()):
        want = np.asarray(p.resize((8, 9), Image.BILINEAR))
        off = np.abs(got["o_x"][i].astype(int) - want).max()
        check(f"bytes {i}", got["o_x"].dtype == np.uint8 and off <= 1, off)
    refused("scaled bytes", nhwc, None, "SCALE: 1", data=path,
            options=("--set", "SCALE=255"))
    refused("any size", net, None, "images want one input", data=path)
    sized = identity(("x", F, ["n", 3, "h", "w"]), path="s.onnx")
    refused("any height", sized, None, "--set RESIZE", data=path)
    got, err = run(sized, None, "--set", "LETTERBOX=16", data=path)
    check("set", got and got["o_x"].shape == (5, 3, 16, 16) and
          got["o_x"].max() <= 1 and "SCALE: 255" in err, err)
    got, err = run(sized, None, "--set", "RESIZE=[4,5]", "--set", "SCALE=1",
                   data=path / "3.png")
    check("one image", got and got["o_x"].shape == (1, 3, 4, 5), err)
    refused("both", sized, source + "LETTERBOX: 9\nRESIZE: 9\n", "LETTERBOX")
    refused("key", sized, None, "SCAEL", data=path,
            options=("--set", "SCAEL=1", "--set", "RESIZE=9"))


test_whole()
test_axes()
test_states()
test_values()
test_images()
print(f"{failures} failed")
sys.exit(1 if failures else 0)
