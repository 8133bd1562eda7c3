#!/usr/bin/env python3
"""Real networks against the outputs that ONNX Runtime gave for them.

    test_models.py SPARSEBIT

Of the networks among the fixtures (tests/ort/fixtures.py) that have inputs and
outputs beside them; skipped if there are none.
Every output must be within 1e-4 of the largest reference value, before and
after simplify, and be the same for one thread as for three.  `info` of each
must be quick: 50 ms for 100 MB.
"""
import glob
import os
import subprocess
import sys
import tempfile

import fixtures

try:
    import numpy as np
except ImportError as e:
    fixtures.skip(e)

command = os.path.abspath(sys.argv[1])

failed = 0


def verdict(name, problem):
    global failed
    failed += problem is not None
    print(f"{'FAIL' if problem else 'pass'} {name}"
          + (f": {problem}" if problem else ""), flush=True)


def run(model, ref, out, *more):
    words = [command, "run", model, "--out-dir", out, "-q", *more]
    for path in sorted(glob.glob(os.path.join(ref, "in.*.npy"))):
        words += ["--input", os.path.basename(path)[3:-4] + "=" + path]
    done = subprocess.run(words, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip()


def compare(ref, out):
    for path in sorted(glob.glob(os.path.join(ref, "out.*.npy"))):
        want = np.load(path)
        got = np.load(os.path.join(out, os.path.basename(path)[4:]))
        if got.shape != want.shape:
            return f"{os.path.basename(path)}: shape {got.shape}, want {want.shape}"
        gap = float(np.abs(got - want).max() / np.abs(want).max())
        if not gap <= 1e-4:
            return f"{os.path.basename(path)}: off by {gap:.2g} of the largest"
    return None


def same_files(a, b):
    for name in os.listdir(a):
        with open(os.path.join(a, name), "rb") as x, \
                open(os.path.join(b, name), "rb") as y:
            if x.read() != y.read():
                return f"{name} differs"
    return None


def info_time(model):
    """Of the processor: what else the machine does is not our time."""
    best = 1e9
    for _ in range(5):
        begin = os.times()
        subprocess.run([command, "info", model], check=True,
                       stdout=subprocess.DEVNULL)
        end = os.times()
        best = min(best, end.children_user - begin.children_user +
                   end.children_system - begin.children_system)
    limit = 0.05 * (10 if "asan" in command else 2)
    return None if best < limit else f"{best * 1e3:.0f} ms"


with tempfile.TemporaryDirectory() as tmp:
    for name, model in fixtures.need_networks().items():
        ref = fixtures.reference(model)
        if not ref:
            continue
        at = os.path.join(tmp, name)
        verdict(f"{name}/run", run(model, ref, at, "--threads", "3")
                or compare(ref, at))
        verdict(f"{name}/threads", run(model, ref, at + "1", "--threads", "1")
                or same_files(at, at + "1"))
        small = at + ".onnx"
        done = subprocess.run([command, "simplify", model, "-o", small, "-q"],
                              capture_output=True, text=True)
        verdict(f"{name}/simplify", done.stderr.strip() or
                run(small, ref, at + "s") or compare(ref, at + "s"))
        verdict(f"{name}/info", info_time(model))
sys.exit(1 if failed else 0)
