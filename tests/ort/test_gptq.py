#!/usr/bin/env python3
"""Quantizer "gptq" in a whole network against its definition in NumPy.

usage: test_gptq.py COMMAND

The definition, in float64 and with an inverse: layer after layer, each reading
what the quantized layers before it make, is fitted to what the float network
computes, gets its scales, and is rounded column by column, those with the
largest inputs first, then twice anew, each element given all others.  The weights are the same but for single elements that lie
between two numbers, and the error of the output within half a per cent; without
the fit as well.  (Symmetric groups: within twenty, because the largest element of
each lies just between two numbers.)  Rounding to nearest is worse in every case.

Exits 77 if onnx is not there."""
import itertools
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import TensorProto as T
    from onnx import helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

command = sys.argv[1]
SAMPLES, GROUP, DAMPING, FIT, PASSES = 512, 16, 0.01, 0.1, 2
SHAPES = {"w0": (48, 64), "w1": (64, 48), "w2": (48, 32)}
failed = 0


def check(what, good, more=""):
    global failed
    if not good:
        failed += 1
        print(f"FAILED: {what} {more}")


def inputs_of(w, x):
    """What each layer reads, and what the last one makes."""
    h = np.maximum(x @ w["w0"], 0)
    y = h @ w["w1"] + x
    return {"w0": x, "w1": h, "w2": y}, y @ w["w2"]


def scales_of(w, bits, symmetric):
    """By row and group: the whole range, zero in it."""
    groups = w.reshape(len(w), -1, GROUP)
    low = np.minimum(groups.min(-1), 0)
    high = np.maximum(groups.max(-1), 0)
    if symmetric:
        scale = 2 * np.maximum(-low, high) / (2 ** bits - 1)
        zero = np.zeros_like(scale)
    else:
        scale = (high - low) / (2 ** bits - 1)
        zero = np.round(-low / scale)
    return np.repeat(scale, GROUP, 1), np.repeat(zero, GROUP, 1)


def nearest(w, scale, zero, bits, symmetric):
    least = -2 ** (bits - 1) if symmetric else 0
    code = np.round(w / scale) + zero
    return (np.clip(code, least, least + 2 ** bits - 1) - zero) * scale


def gptq(w, gram, bits, symmetric):
    """Rows of w are outputs."""
    scale, zero = scales_of(w, bits, symmetric)
    order = np.argsort(-np.diag(gram), kind="stable")
    share = max(DAMPING, len(gram) / (4 * SAMPLES))
    damped = gram + share * np.diag(gram).mean() * np.eye(len(gram))
    inverse = np.linalg.inv(damped[np.ix_(order, order)])
    before, w = w, w.copy()
    for k, c in enumerate(order):
        q = nearest(w[:, c], scale[:, c], zero[:, c], bits, symmetric)
        rest = order[k + 1:]
        w[:, rest] -= np.outer((w[:, c] - q) / inverse[k, k],
                               inverse[k, k + 1:])
        w[:, c] = q
        left = inverse[k + 1:, k].copy()
        inverse[k + 1:, k + 1:] -= np.outer(left, left) / inverse[k, k]
    for c in itertools.chain.from_iterable([range(len(gram))] * PASSES):
        least = w[:, c] - (w - before) @ damped[:, c] / damped[c, c]
        w[:, c] = nearest(least, scale[:, c], zero[:, c], bits, symmetric)
    return w


def fitted(w, x, y):
    """The layer that makes of x what comes nearest to w @ y."""
    gram = x.T @ x / len(x)
    share = max(FIT, 8 * len(gram) / (len(x) + 1))
    damped = gram + share * np.diag(gram).mean() * np.eye(len(gram))
    return w + w @ (y.T @ x / len(x) - gram) @ np.linalg.inv(damped)


def definition(weights, x, bits, symmetric, fit):
    done = dict(weights)
    plain, _ = inputs_of(weights, x)
    for name, w in weights.items():
        read = inputs_of(done, x)[0][name]
        wanted = fitted(w.T, read, plain[name]) if fit else w.T
        done[name] = gptq(wanted, read.T @ read, bits, symmetric).T
    return done


def network(weights):
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["a"], "l0"),
             helper.make_node("Relu", ["a"], ["h"]),
             helper.make_node("MatMul", ["h", "w1"], ["b"], "l1"),
             helper.make_node("Add", ["b", "x"], ["y"]),
             helper.make_node("MatMul", ["y", "w2"], ["z"], "l2")]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", T.FLOAT, ["N", 48])],
        [helper.make_tensor_value_info("z", T.FLOAT, ["N", 32])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()])
    made = helper.make_model(graph,
                             opset_imports=[helper.make_opsetid("", 21)])
    made.ir_version = 10
    return made


def quantized(folder, bits, symmetric, fit):
    """The weights of the file that the command writes."""
    config = os.path.join(folder, "c.yaml")
    out = os.path.join(folder, "out.onnx")
    with open(config, "w", encoding="utf8") as f:
        f.write(f"""SCHEDULE: {{LAYERWISE: {fit}}}
W:
  QSCHEME: per-group-{"symmetric" if symmetric else "affine"}
  QUANTIZER: {{TYPE: gptq, BIT: {bits}, GROUP_SIZE: {GROUP},
    GPTQ: {{PASSES: {PASSES}}}}}
  OBSERVER: {{TYPE: minmax}}
A: none
""")
    subprocess.run(
        [command, "quantize", os.path.join(folder, "m.onnx"), "-q", "-c",
         config, "-d", os.path.join(folder, "d.yaml"), "--weights",
         "float-qdq", "--force", "-o", out], check=True)
    found = {t.name: numpy_helper.to_array(t)
             for t in onnx.load(out).graph.initializer}
    return {name: found[name].astype(np.float64) for name in SHAPES}


def compare(folder, weights, x, bits, symmetric):
    plain = inputs_of(weights, x)[1]

    def error(w):
        return ((inputs_of(w, x)[1] - plain) ** 2).mean()

    rounded = {k: nearest(w.T, *scales_of(w.T, bits, symmetric), bits,
                          symmetric).T for k, w in weights.items()}
    for fit in (False, True):
        what = f"{bits} bit, symmetric {symmetric}, fit {fit}:"
        ours = quantized(folder, bits, symmetric, str(fit).lower())
        want = definition(weights, x, bits, symmetric, fit)
        same = np.mean([np.mean(np.abs(ours[k] - want[k]) <
                                0.01 * np.abs(want[k]).max())
                        for k in weights])
        check(what, same > (0.5 if symmetric else 0.99),
              f"{same:.4f} of the weights are the same")
        ratio = error(ours) / error(want)
        check(what, abs(ratio - 1) < (0.2 if symmetric else 0.005),
              f"error {ratio:.4f} times")
        check(what, error(ours) < 0.9 * error(rounded),
              f"{error(ours):.3g}, rounded {error(rounded):.3g}")


def main():
    rng = np.random.default_rng(5)
    weights = {k: rng.standard_normal(s).astype(np.float32)
               for k, s in SHAPES.items()}
    mix = rng.standard_normal((48, 48)) * rng.uniform(0.05, 1, 48)
    x = (rng.standard_normal((SAMPLES, 48)) @ mix).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(network(weights), os.path.join(folder, "m.onnx"))
        np.savez(os.path.join(folder, "x.npz"), x=x)
        with open(os.path.join(folder, "d.yaml"), "w", encoding="utf8") as f:
            f.write(f"SOURCE: npz\nPATH: {folder}/x.npz\n")
        exact = {k: v.astype(np.float64) for k, v in weights.items()}
        for bits, symmetric in itertools.product((2, 3, 4), (False, True)):
            compare(folder, exact, x.astype(np.float64), bits, symmetric)
    print("gptq: " + (f"{failed} failed" if failed else "as defined"))
    return failed > 0


sys.exit(main())
