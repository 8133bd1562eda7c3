#!/usr/bin/env python3
"""Networks that were trained with quantizers, in ONNX Runtime.

    test_qat.py SPARSEBIT

A small residual network is trained with quantizers for a few epochs and exported.
ONNX Runtime must load the file and see the classes that `sparsebit run` sees (which
the training compared with the network as it was trained), W8A8 for
onnxruntime-x86 with integer kernels for all layers.  A run that was killed goes on
with the same bytes."""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

command = os.path.abspath(sys.argv[1])
rng = random.Random(4)
failures = 0
ort.set_default_logger_severity(4)


def check(what, ok, *why):
    global failures
    if not ok:
        failures += 1
        print(f"FAILED: {what}", *why)


def write_data(n=256, side=8):
    """Squares of different sizes in the format of MNIST; returns them as the
    network sees them."""
    images, labels = bytearray(), bytearray()
    for _ in range(n):
        label = rng.randrange(4)
        labels.append(label)
        for y in range(side):
            for x in range(side):
                inside = max(abs(x - side / 2), abs(y - side / 2)) < label + 1
                images.append(min(255, 160 * inside + rng.randrange(96)))
    with open("x.idx", "wb") as f:
        f.write(struct.pack(">IIII", 0x803, n, side, side) + images)
    with open("y.idx", "wb") as f:
        f.write(struct.pack(">II", 0x801, n) + labels)
    for name, batch, more in ("train", 16, "SHUFFLE: true\n"
                              "AUGMENT: {PAD_CROP: 1, FLIP: true}\n"), ("test", 64, ""):
        with open(f"{name}.yaml", "w") as f:
            f.write("SOURCE: idx\nPATH: x.idx\nLABELS: y.idx\nSCALE: 255\n"
                    f"MEAN: 0.4\nSTD: 0.3\nBATCH: {batch}\n{more}")
    x = np.frombuffer(bytes(images), np.uint8).reshape(n, 1, side, side)
    return ((x.astype(np.float32) / 255 - np.float32(0.4)) / np.float32(0.3),
            np.frombuffer(bytes(labels), np.uint8))


def run(*args):
    return subprocess.run(args, capture_output=True, text=True)


def config(name, weights, activations):
    with open(name, "w") as f:
        f.write("W: {QSCHEME: per-channel-symmetric, QUANTIZER: {%s}}\n"
                "A: {QSCHEME: per-tensor-affine, QUANTIZER: {%s}}\n" % (weights, activations))


def train(out, *more):
    return run(command, "train", "float.onnx", "-d", "train.yaml", "--valid", "test.yaml",
               "-o", out, "--set", "EPOCHS=2", "--json", *more)


def classes_in_ort(path, x):
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    fixed = session.get_inputs()[0].shape[0]
    parts = np.split(x, len(x)) if fixed == 1 else [x]
    return np.concatenate([session.run(None, {name: p})[0] for p in parts])


def compare(name, x, labels, said, integer):
    """Classes in ONNX Runtime against ours."""
    onnx.checker.check_model(onnx.load(name + ".onnx"))
    there = classes_in_ort(name + ".onnx", x)
    np.save("x.npy", x)
    done = run(command, "run", name + ".onnx", "--input", "x.npy", "--out-dir", name,
               *(["--integer"] if integer else []))
    check(f"{name}: run", done.returncode == 0, done.stderr)
    here = np.load(os.path.join(name, os.listdir(name)[0]))
    same = float((here.argmax(1) == there.argmax(1)).mean())
    check(f"{name}: agreement with ONNX Runtime", same >= 0.99, same)
    accuracy = float((there.argmax(1) == labels).mean())
    check(f"{name}: accuracy", abs(accuracy - said["validation"]) < 0.03, accuracy, said)
    check(f"{name}: trained and exported agree", said["check_agreement"] >= 0.98, said)


def input_scale(out, what, *more):
    """Of the first QuantizeLinear in the file of a command."""
    done = run(command, what, "float.onnx", "-c", "w8a8u.yaml", "-d", "gray.yaml", "-o", out,
               *more)
    check(out, done.returncode == 0, done.stderr)
    model = onnx.load(out)
    node = next(n for n in model.graph.node if n.op_type == "QuantizeLinear")
    return next(float(onnx.numpy_helper.to_array(i)) for i in model.graph.initializer
                if i.name == node.input[1])


def calibrate_on_epochs(side=8):
    """Two gray images of 100, in training as bright as 50 to 150: of 512 of them one is as
    bright as 149."""
    with open("gray.idx", "wb") as f:
        f.write(struct.pack(">IIII", 0x803, 2, side, side) + bytes([100]) * (2 * side * side))
    with open("two.idx", "wb") as f:
        f.write(struct.pack(">II", 0x801, 2) + bytes(2))
    with open("gray.yaml", "w") as f:
        f.write("SOURCE: idx\nPATH: gray.idx\nLABELS: two.idx\nSCALE: 255\nBATCH: 2\n"
                "AUGMENT: {COLOR_JITTER: 0.5}\n")
    config("w8a8u.yaml", "BIT: 8", "BIT: 8")
    still = "--set", "EPOCHS=1", "--set", "LR=1e-9"
    for out, least, most, args in (
            ("once", 50, 147.5, ("train", *still, "--set", "CALIBRATE=2")),
            ("often", 148.5, 150.5, ("train", *still)),
            ("plain", 99.9, 100.1, ("quantize",)),
            ("varied", 148.5, 150.5, ("quantize", "--augment", "255"))):
        brightest = input_scale(out + ".onnx", *args) * 255 * 255
        check(f"the brightest that {out} saw", least < brightest < most, brightest)


def main():
    x, labels = write_data()
    done = run(command, "new", "resnet20", "--input", "1x8x8", "--classes", "4", "-o",
               "new.onnx", "--seed", "1")
    check("new", done.returncode == 0, done.stderr)
    done = run(command, "train", "new.onnx", "-d", "train.yaml", "-o", "float.onnx",
               "--set", "EPOCHS=3", "--set", "LR=0.05")
    check("float", done.returncode == 0, done.stderr)

    config("w8a8.yaml", "TYPE: lsq, BIT: 8", "TYPE: lsq, BIT: 8")
    done = train("w8a8.onnx", "-c", "w8a8.yaml", "-t", "onnxruntime-x86")
    check("w8a8", done.returncode == 0, done.stderr)
    if done.returncode == 0:
        compare("w8a8", x, labels, json.loads(done.stdout), True)
    done = run(command, "lint", "w8a8.onnx", "-t", "onnxruntime-x86", "--json")
    said = json.loads(done.stdout)
    check("all layers are integer", said["weighted"] == said["weighted_integer"] == 22, said)

    for name, weights, activations in (
            ("lsq", "TYPE: lsq, BIT: 4", "TYPE: lsq, BIT: 4"),
            ("lsq_plus", "TYPE: lsq+, BIT: 4", "TYPE: lsq+, BIT: 4"),
            ("dorefa", "TYPE: dorefa, BIT: 4", "BIT: 4"),
            ("gptq", "TYPE: gptq, BIT: 4", "BIT: 8"),
            ("pact", "BIT: 4", "TYPE: pact, BIT: 4, PACT: {ALPHA_VALUE: 4}")):
        config(name + ".yaml", weights, activations)
        done = train(name + ".onnx", "-c", name + ".yaml")
        check(name, done.returncode == 0, done.stderr)
        if done.returncode == 0:
            compare(name, x, labels, json.loads(done.stdout), False)

    calibrate_on_epochs()

    # Killed before the end, twice.
    with open("lsq.onnx", "rb") as f:
        want = f.read()
    for resume in [], ["--resume"]:
        p = subprocess.Popen([command, "train", "float.onnx", "-d", "train.yaml", "--valid",
                              "test.yaml", "-o", "part.onnx", "--set", "EPOCHS=2", "-c",
                              "lsq.yaml", "-q", *resume])
        while p.poll() is None and not os.path.exists("part.onnx.train/last.npz"):
            try:
                p.wait(0.05)
            except subprocess.TimeoutExpired:
                pass
        p.kill()
        p.wait()
    done = train("part.onnx", "-c", "lsq.yaml",
                 *(["--resume"] if os.path.exists("part.onnx.train/last.npz") else []))
    check("resumed", done.returncode == 0, done.stderr)
    with open("part.onnx", "rb") as f:
        check("same bytes", f.read() == want)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    main()
    os.chdir("/")
print("same in ONNX Runtime" if not failures else f"{failures} failures")
sys.exit(1 if failures else 0)
