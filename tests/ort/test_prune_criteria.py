"""sparsebit prune: criteria that look at data, beside their definitions in NumPy
(float64): taylor and fisher by gradients of a small classifier, and
sparsegpt by the inverse of the Gram matrix as its paper has it.

usage: test_prune_criteria.py SPARSEBIT

Exit status 77 means that something needed is missing."""
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

SPARSEBIT = sys.argv[1]
SAMPLES, BATCH, CLASSES = 96, 8, 5


def save(path, nodes, weights, shape, out):
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
        [numpy_helper.from_array(v.astype(np.float32), k)
         for k, v in weights.items()])
    onnx.save(helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def prune(folder, model, config, x, labels=None):
    """The initializers of the pruned network, and what was said."""
    np.save(os.path.join(folder, "x.npy"), x.astype(np.float32))
    data = f"SOURCE: npy\nPATH: x.npy\nBATCH: {BATCH}\n"
    if labels is not None:
        np.save(os.path.join(folder, "labels.npy"), labels)
        data += "LABELS: labels.npy\n"
    for name, text in (("data.yaml", data),
                       ("s.yaml", "SPARSER: {" + config + "}\n")):
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)
    done = subprocess.run(
        [SPARSEBIT, "prune", model, "-c", "s.yaml", "-d", "data.yaml", "-o",
         "out.onnx", "--json"], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{config}: {done.stderr}")
    out = onnx.load(os.path.join(folder, "out.onnx"))
    return ({t.name: numpy_helper.to_array(t) for t in out.graph.initializer},
            json.loads(done.stdout))


def same(what, got, want):
    ok = np.array_equal(got, want)
    print(f"{what}: {'as defined' if ok else f'{got}, want {want}  FAILED'}")
    return ok


# ---- gradients -------------------------------------------------------------------

def classifier(rng):
    return {"w1": rng.standard_normal((9, 12)), "b1": rng.standard_normal(12),
            "w2": rng.standard_normal((12, 10)), "b2": rng.standard_normal(10),
            "w3": rng.standard_normal((10, CLASSES))}


def slopes(w, x, labels):
    """w * dL/dw of the mean cross-entropy, for each batch."""
    out = []
    for i in range(0, len(x), BATCH):
        a, y = x[i:i + BATCH], labels[i:i + BATCH]
        h1 = a @ w["w1"] + w["b1"]
        r1 = np.maximum(h1, 0)
        h2 = r1 @ w["w2"] + w["b2"]
        r2 = np.maximum(h2, 0)
        z = r2 @ w["w3"]
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        p[np.arange(len(y)), y] -= 1
        d3 = p / len(y)
        d2 = (d3 @ w["w3"].T) * (h2 > 0)
        d1 = (d2 @ w["w2"].T) * (h1 > 0)
        out.append({"w3": w["w3"] * (r2.T @ d3), "w2": w["w2"] * (r1.T @ d2),
                    "w1": w["w1"] * (a.T @ d1)})
    return out


def test_gradients(folder):
    rng = np.random.default_rng(7)
    w = classifier(rng)
    w = {k: v.astype(np.float32).astype(np.float64) for k, v in w.items()}
    x = rng.standard_normal((SAMPLES, 9)).astype(np.float32).astype(np.float64)
    labels = rng.integers(0, CLASSES, SAMPLES)
    model = os.path.join(folder, "mlp.onnx")
    node = helper.make_node
    save(model, [node("Gemm", ["x", "w1", "b1"], ["h1"], "fc1"),
                 node("Relu", ["h1"], ["r1"]),
                 node("Gemm", ["r1", "w2", "b2"], ["h2"], "fc2"),
                 node("Relu", ["h2"], ["r2"]),
                 node("MatMul", ["r2", "w3"], ["y"], "fc3")],
         w, ["N", 9], ["N", CLASSES])
    terms = slopes(w, x, labels)
    results = []
    for name, power in (("taylor", 1), ("fisher", 2)):
        _, told = prune(folder, model,
                        f"STRATEGY: {name}, RATIO: 0.5, REFIT: false", x,
                        labels)
        for reader in ("w2", "w3"):
            score = sum(np.abs(t[reader].sum(1)) ** power for t in terms)
            cut = [c for c in told["cuts"] if c["initializer"] == reader
                   and c["role"] == "reads"]
            n = len(score) // 2
            results.append(same(f"{name}, channels of {reader}",
                                sorted(cut[0]["indices"]),
                                sorted(np.argsort(score)[:n].tolist())))
        got, _ = prune(folder, model, "TYPE: unstructured, RATIO: 0.4, "
                       f"STRATEGY: {name}", x, labels)
        for k in ("w1", "w2", "w3"):
            score = sum(np.abs(t[k]) ** power for t in terms)
            low = np.argsort(score, axis=None)[:int(0.4 * score.size)]
            results.append(same(f"{name}, weights of {k}",
                                np.flatnonzero(got[k] == 0),
                                np.sort(low)))
    # One ratio for the whole network: scores are in units of the loss.
    _, told = prune(folder, model, "STRATEGY: taylor, RATIO: 0.5, REFIT: false,"
                    " SCOPE: global", x, labels)
    score = np.concatenate([sum(np.abs(t[k].sum(1)) for t in terms)
                            for k in ("w2", "w3")])
    low = set(np.argsort(score)[:11].tolist())
    for k, base in (("w2", 0), ("w3", 12)):
        cut = [c for c in told["cuts"] if c["initializer"] == k and
               c["role"] == "reads"]
        want = sorted(i - base for i in low
                      if base <= i < base + len(w[k]))
        results.append(same(f"taylor, global, {k}",
                            cut[0]["indices"] if cut else [], want))
    return results


# ---- sparsegpt -------------------------------------------------------------------

def sparsegpt(w, gram, ratio=None, nm=None, taps=1, block=128, damping=0.01):
    """The paper's algorithm on w [rows, cols] with the columns tap by tap."""
    rows, cols = w.shape
    order = np.arange(cols).reshape(-1, taps).T.ravel()
    w = w[:, order].astype(np.float64).copy()
    h = gram[np.ix_(order, order)].astype(np.float64).copy()
    h[np.diag_indices(cols)] += damping * np.mean(np.diag(gram))
    u = np.linalg.cholesky(np.linalg.inv(h)).T
    channels, total, done = cols // taps, int(ratio * w.size) if ratio else 0, 0
    begin = 0
    while begin < cols:
        if nm:
            end = min(begin + nm[1], begin - begin % channels + channels)
        else:
            end = min(begin + block, cols)
        score = w[:, begin:end] ** 2 / np.diag(u)[begin:end] ** 2
        gone = np.zeros_like(score, bool)
        if nm and end - begin == nm[1]:
            low = np.argsort(score, axis=1, kind="stable")[:, :nm[1] - nm[0]]
            np.put_along_axis(gone, low, True, axis=1)
        elif not nm:
            now = total if end == cols else int(total / cols * end)
            gone.ravel()[np.argsort(score, axis=None)[:now - done]] = True
            done = now
        for i in range(begin, end):
            error = np.where(gone[:, i - begin], w[:, i], 0) / u[i, i]
            w[:, i:] -= np.outer(error, u[i, i:])
            w[gone[:, i - begin], i] = 0
        begin = end
    back = np.empty_like(w)
    back[:, order] = w
    return back


def close(what, got, want):
    zeros = np.array_equal(got == 0, want == 0)
    error = np.max(np.abs(got - want)) / np.max(np.abs(want))
    ok = zeros and error < 2e-3
    print(f"{what}: {np.mean(got == 0):.4f} zero, error {error:.1e}"
          + ("" if ok else "  FAILED"))
    return ok


def correlated(rng, shape):
    """Channels that know of each other."""
    mix = rng.standard_normal((shape[1], shape[1])) + np.eye(shape[1])
    x = np.einsum("nc...,cd->nd...", rng.standard_normal(shape), mix)
    return x.astype(np.float32).astype(np.float64)


def test_sparsegpt(folder):
    rng = np.random.default_rng(3)
    node, results = helper.make_node, []
    model = os.path.join(folder, "layer.onnx")
    # A product whose weight is [inputs, outputs], in more than one block.
    x, w = correlated(rng, (400, 150)), rng.standard_normal((150, 20))
    w = w.astype(np.float32).astype(np.float64)
    save(model, [node("MatMul", ["x", "w"], ["y"], "fc")], {"w": w},
         ["N", 150], ["N", 20])
    gram = x.T @ x
    for what, config, args in (
            ("half", "RATIO: 0.5", {"ratio": 0.5}),
            ("nine tenths", "RATIO: 0.9", {"ratio": 0.9}),
            ("2:4", "NM: '2:4'", {"nm": (2, 4)}),
            ("1:8", "NM: '1:8'", {"nm": (1, 8)})):
        config = f"TYPE: unstructured, STRATEGY: sparsegpt, {config}"
        got, _ = prune(folder, model, config, x)
        results.append(close(f"sparsegpt, {what}", got["w"].T,
                             sparsegpt(w.T, gram, **args)))
    # A convolution, whole and in groups; places are few enough to be all seen.
    for groups in (1, 3):
        x = correlated(rng, (256, 12, 3, 3))
        w = rng.standard_normal((9, 12 // groups, 2, 2))
        w = w.astype(np.float32).astype(np.float64)
        save(model, [node("Conv", ["x", "w"], ["y"], "conv", group=groups)],
             {"w": w}, ["N", 12, 3, 3], ["N", 9, 2, 2])
        patches = np.stack([x[:, :, i:i + 2, j:j + 2] for i in range(2)
                            for j in range(2)], 1).reshape(-1, groups,
                                                           48 // groups)
        for what, config, args in (("half", "RATIO: 0.5", {"ratio": 0.5}),
                                   ("2:4", "NM: '2:4'", {"nm": (2, 4)})):
            config = f"TYPE: unstructured, STRATEGY: sparsegpt, {config}"
            got, _ = prune(folder, model, config, x)
            want = np.concatenate([sparsegpt(
                m, p.T @ p, taps=4, **args) for m, p in zip(
                    w.reshape(groups, 9 // groups, -1),
                    patches.transpose(1, 0, 2))])
            results.append(close(f"sparsegpt, convolution in {groups}, {what}",
                                 got["w"].reshape(9, -1), want))
    return results


def main():
    with tempfile.TemporaryDirectory() as folder:
        results = test_gradients(folder) + test_sparsegpt(folder)
    print(f"{sum(results)} of {len(results)} as defined")
    return 0 if all(results) else 1


sys.exit(main())
