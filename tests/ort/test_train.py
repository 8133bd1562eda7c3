#!/usr/bin/env python3
"""Training that is killed at any moment goes on with the same result.

    test_train.py SPARSEBIT [KILLS]

A small network is trained once without a break, and then again with SIGKILL at
random moments, each followed by --resume: the files must be the same, byte by
byte, also with another number of threads.  Ctrl-C leaves a checkpoint of the last
complete step.  A full disk (a limit of the file size) is a warning."""
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

command = os.path.abspath(sys.argv[1])
kills = int(sys.argv[2]) if len(sys.argv) > 2 else 20
rng = random.Random(4)
failures = 0


def check(what, ok, why=""):
    global failures
    if not ok:
        failures += 1
        print(f"FAILED: {what} {why}")


def write_data(n=160, side=8):
    """Squares of different sizes in the format of MNIST."""
    images, labels = bytearray(), bytearray()
    for i in range(n):
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
    with open("data.yaml", "w") as f:
        f.write("SOURCE: idx\nPATH: x.idx\nLABELS: y.idx\nSCALE: 255\n"
                "MEAN: 0.4\nSTD: 0.3\nBATCH: 16\nSHUFFLE: true\n"
                "AUGMENT: {PAD_CROP: 1, FLIP: true, CUTOUT: 2}\n")


def arguments(out, *more):
    return [command, "train", "net.onnx", "-d", "data.yaml", "--valid",
            "data.yaml", "--valid-samples", "64", "-o", out, "--seed", "5",
            "--set", "EPOCHS=3", "--set", "LR=0.05", "--set", "CHECKPOINT=3",
            *more]


def run(*args, **kwargs):
    return subprocess.run(args, capture_output=True, text=True, **kwargs)


def same_bytes(path, want):
    with open(path, "rb") as f:
        check(f"{path}: same bytes", f.read() == want)


def main():
    write_data()
    run(command, "new", "resnet20", "--input", "1x8x8", "--classes", "4",
        "-o", "net.onnx", "--seed", "1")
    begin = time.time()
    done = run(*arguments("whole.onnx", "--json", "--report", "page.html"))
    seconds = time.time() - begin
    check("whole", done.returncode == 0, done.stderr)
    said = json.loads(done.stdout)
    check("learned", said["validation"] > 0.4, said)
    with open("page.html") as f:
        page = f.read()
    check("page", page.count("<polyline") + page.count("<path") >= 4 and
          all(word in page for word in ("Loss", "validation", "Learning rate")))
    with open("whole.onnx", "rb") as f:
        want = f.read()

    # Killed again and again; a run that came to its end is followed by a new one.
    killed = 0
    for i in range(3 * kills):
        begun = os.path.exists("part.onnx.train/last.npz")
        p = subprocess.Popen(
            arguments("part.onnx", "-q", "--threads", str(1 + i % 2),
                      *(["--resume"] if begun else [])),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            _, error = p.communicate(timeout=rng.uniform(0.02, seconds / 4))
            check(f"run {i}", p.returncode == 0, error)
            same_bytes("part.onnx", want)
            shutil.rmtree("part.onnx.train")
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()
            killed += 1
        if killed == kills:
            break
    begun = os.path.exists("part.onnx.train/last.npz")
    done = run(*arguments("part.onnx", "-q",
                          *(["--resume"] if begun else [])))
    check("resumed", done.returncode == 0, done.stderr)
    same_bytes("part.onnx", want)

    # Ctrl-C: by the signal, with a line that says how to go on.  A run that has
    # ended before the signal came is tried again.
    for _ in range(10):
        p = subprocess.Popen(arguments("stop.onnx"), stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True)
        while not os.path.exists("stop.onnx.train/last.npz") and p.poll() is None:
            time.sleep(0.002)
        p.send_signal(signal.SIGINT)
        _, error = p.communicate(timeout=60)
        if p.returncode != 0:
            break
        os.remove("stop.onnx")
        shutil.rmtree("stop.onnx.train")
    # A command that has not ended within a second is ended: on a slow disk
    # before it says how to go on.
    check("Ctrl-C", p.returncode == -signal.SIGINT and
          ("--resume" in error or error.endswith("interrupted\n")),
          (p.returncode, error))
    check("no file", not os.path.exists("stop.onnx"))
    done = run(*arguments("stop.onnx", "--resume"))
    check("after Ctrl-C", done.returncode == 0, done.stderr)
    same_bytes("stop.onnx", want)

    # No room for a checkpoint: a warning, and the result is as ever.
    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500000, 1500000))
    done = run(*arguments("full.onnx"), preexec_fn=small_files)
    check("full disk", done.returncode == 0 and "no checkpoint" in done.stderr,
          done.stderr)
    same_bytes("full.onnx", want)

    # Labels that the network has no output for.
    run(command, "new", "mlp", "--input", "1x8x8", "--classes", "3", "-o",
        "net.onnx")
    done = run(*arguments("wrong.onnx"))
    check("labels", done.returncode == 1 and "label" in done.stderr and
          len(done.stderr.splitlines()) == 1, done.stderr)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    main()
    os.chdir("/")
print("resumed" if not failures else f"{failures} failures")
sys.exit(1 if failures else 0)
