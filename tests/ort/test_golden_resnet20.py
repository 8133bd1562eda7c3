#!/usr/bin/env python3
"""(slow) ResNet-20 quantized in 24 ways, against what the original computed.

    test_golden_resnet20.py SPARSEBIT [SHARED]

SHARED (default ../shared beside the project; skipped if it is not there) holds
models/resnet20_cifar10.onnx and golden/resnet20: for six observers, affine and
symmetric, 8 and 4 bit, the scales and zero points of all 63 quantizers, the
logits of 32 images and the accuracy on 1000, all from the original program.

Scales must agree to 3e-7 (aciq LAPLACE, which uses a histogram: 1e-5; mse: or
be as good, see docs/observers.md), zero points exactly (LAPLACE: or lie on the edge
between two integers), accuracies to 0.003.  Logits must agree to 1e-3, for every
image; where a scale of mse or aciq differs rightly, the original's is put
into the file before.

That works because both sum in the same order: the original ran on oneDNN's
kernels for AVX2, and an environment variable makes oneDNN take these here.  In
another order, rounding in a convolution now and then moves a value over the
edge between two integers, and from there on the image is another one.  PyTorch
against itself, AVX-512 against AVX2, agrees on 255 of 384 images at 8 bit.  So
processors without AVX2 need only agree to 1e-5, and on a sixth of the images.
A single weight that is quantized otherwise leaves no image as it was.
Accuracies need CIFAR-10 (tools/cifar10) and are left out without it.
"""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(ROOT, "tests/ref"))
try:
    import numpy as np
    import onnx

    import quant_sites
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

command = os.path.abspath(sys.argv[1])
shared = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else
                         os.path.join(ROOT, "../shared"))
golden = os.path.join(shared, "golden/resnet20")
path = os.path.join(shared, "models/resnet20_cifar10.onnx")
if not os.path.isdir(golden) or not os.path.exists(path):
    print(f"skipped: no folder {golden}")
    sys.exit(77)

OBSERVERS = {
    "minmax": "TYPE: MINMAX",
    "moving_average": "TYPE: MOVING_AVERAGE",
    "percentile": "TYPE: PERCENTILE",
    "mse": "TYPE: MSE",
    "aciq_gaus": "TYPE: ACIQ\n    ACIQ:\n      DISTRIBUTION: GAUS",
    "aciq_laplace": "TYPE: ACIQ\n    ACIQ:\n      DISTRIBUTION: LAPLACE",
}
CONFIG = """BACKEND: virtual
SCHEDULE:
  FUSE_BN: true
W:
  QSCHEME: per-channel-symmetric
  QUANTIZER:
    TYPE: uniform
    BIT: {bits}
  OBSERVER:
    TYPE: MINMAX
A:
  QSCHEME: per-tensor-{scheme}
  QUANTIZER:
    TYPE: uniform
    BIT: {bits}
  OBSERVER:
    {observer}
  QADD:
    ENABLE_QUANT: true
"""
CIFAR = """SOURCE: cifar10
PATH: {folder}/test_batch.bin
SCALE: 255
MEAN: [0.485, 0.456, 0.406]
STD: [0.229, 0.224, 0.225]
BATCH: 50
"""


def original_names(sites):
    """The original's name for each site: FX names of the PyTorch model, where
    a folded BatchNormalization leaves `_bn` behind and adds are numbered on
    from the nine activations."""
    names, add = [], 8
    for site in sites:
        if site.node.op_type == "Add":
            add += site.slot == 0
            names.append(f"add_{add}_identity{site.slot}.input_quantizer")
        elif site.node.op_type == "GlobalAveragePool":
            names.append("avgpool.input_quantizer")
        else:
            module = site.path.replace("ResBlock", "layer").replace(".", "_")
            if site.node.op_type == "Conv":
                module += "_bn"
            names.append(module + (".weight_quantizer" if site.weight is not
                                   None else ".input_quantizer"))
    return names


def has_avx2():
    try:
        with open("/proc/cpuinfo") as f:
            return " avx2 " in f.read()
    except OSError:
        return False


def run(*words, avx2=False):
    env = dict(os.environ)
    if avx2:
        env["ONEDNN_MAX_CPU_ISA"] = env["DNNL_MAX_CPU_ISA"] = "AVX2"
    done = subprocess.run([command, *words], capture_output=True, text=True,
                          env=env)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]}: {done.stderr.strip()}")
    return done.stdout


def as_good(site, entry, seen, bits, symmetric):
    """mse: is the squared error with our scale that of the best range?"""
    x = quant_sites.observers.rows(seen[site.value], None)
    lo, hi = quant_sites.observers.mse(seen[site.value], bits=bits,
                                       symmetric=symmetric)
    return quant_sites.observers.mse_excess(
        x[0], entry["scale"][0], entry["zero_point"][0], lo[0], hi[0], bits,
        symmetric) <= 1 / 16384


def differing(pairs, found, want, seen, symmetric, name):
    """Quantizers that are not what the original had: the wrong ones, and
    those that differ rightly, as a map from value to what the original had.
    """
    bad, others = [], {}
    strict = has_avx2() and not name.startswith("aciq_laplace")
    for site, ours in pairs:
        g, w = quant_sites.match(site, found), want[ours]
        if g is None:
            bad.append(f"{ours}: missing")
            continue
        scale, zero = np.array(w["scale"]), np.array(w["zero_point"])
        gap = quant_sites.gap_of_scales(g["scale"], scale)
        if site.weight is None and (
                (g["scale"].astype(np.float32) !=
                 scale.astype(np.float32)).any()
                or (g["zero_point"] != zero).any()):
            others[g["value"]] = w
        if gap is None or gap > (3e-7 if strict else 1e-5):
            if not name.startswith("mse") or site.weight is not None or not as_good(
                    site, g, seen, w["bits"], symmetric):
                bad.append(f"{ours}: scale off by {gap}")
        elif (g["zero_point"] != zero).any():
            # Ranges [-c, c] have 127.5 (7.5) steps below zero.
            if strict or (np.abs(g["zero_point"] - zero) > 1).any() or not (
                    zero[0] in (127, 128) or zero[0] in (7, 8)):
                bad.append(f"{ours}: zero point {g['zero_point']}, "
                           f"want {zero}")
    if len(found) != len(want):
        bad.append(f"{len(found)} quantizers, want {len(want)}")
    return bad, others


def put_scales(file, others):
    """Gives quantizers in a file the scales and zero points of the original."""
    model = onnx.load(file)
    constants = {t.name: t for t in model.graph.initializer}
    for node in model.graph.node:
        w = others.get(node.input[0])
        if node.op_type != "QuantizeLinear" or w is None:
            continue
        for name, key in zip(node.input[1:3], ("scale", "zero_point")):
            old = onnx.numpy_helper.to_array(constants[name])
            new = np.array(w[key]).astype(old.dtype).reshape(old.shape)
            constants[name].CopyFrom(onnx.numpy_helper.from_array(new, name))
    onnx.save(model, file)


def logits_differ(got, want, bits, strict):
    """See the top of the file."""
    if got.shape != want.shape:
        return f"shape {got.shape}, want {want.shape}"
    gaps = np.abs(got - want).max(1) / np.abs(want).max(1)
    same = int((gaps <= 1e-3).sum())
    wanted = len(gaps) if strict or bits == 4 else len(gaps) // 6
    off = float(np.linalg.norm(got - want) / np.linalg.norm(want))
    if same < wanted:
        return f"only {same} images have the same logits, want {wanted}"
    if off > (1e-4 if strict else 0.02 if bits == 8 else 0.1):
        return f"logits off by {off:.2g}"
    return None


def check(name, scheme, bits, observer, pairs, seen, tmp, cifar, accuracies):
    """Problems of one setting."""
    config = os.path.join(tmp, "q.yaml")
    out = os.path.join(tmp, "out.onnx")
    with open(config, "w") as f:
        f.write(CONFIG.format(scheme=scheme, bits=bits, observer=observer))
    found = json.loads(run("quantize", path, "-c", config, "--data",
                           os.path.join(tmp, "calib.yaml"), "-o", out,
                           "--json", "--exact", "-q", avx2=True))
    with open(os.path.join(golden, name + ".json")) as f:
        want = json.load(f)
    bad, others = differing(pairs, quant_sites.read_json(found["quantizers"]),
                            want, seen, scheme == "symmetric", name)

    if cifar:
        result = json.loads(run("eval", out, "--data", cifar, "--samples",
                                "1000", "--json", "-q"))
        gap = abs(result["top1"] / 100 - accuracies[name])
        if gap > 0.003 + 1e-9:
            bad.append(f"accuracy {result['top1']:.1f} %, want "
                       f"{accuracies[name] * 100:.1f} %")
    saved = os.path.join(tmp, "logits.npz")
    if name.startswith(("mse", "aciq")):
        put_scales(out, others)
    run("eval", out, "--data", os.path.join(tmp, "probe.yaml"), "--exact",
        "--save-outputs", saved, "-q", avx2=True)
    with np.load(saved) as z:
        got = z[z.files[0]]
    problem = logits_differ(
        got, np.load(os.path.join(golden, name + "_probe.npy")), bits,
        has_avx2())
    if problem:
        bad.append(problem)
    return bad


def data_files(tmp):
    for name in ("calib", "probe"):
        with open(os.path.join(tmp, name + ".yaml"), "w") as f:
            f.write(f"SOURCE: npy\nPATH: {golden}/{name}.npy\nBATCH: 16\n")
    found = subprocess.run([os.path.join(ROOT, "tools/cifar10")],
                           capture_output=True, text=True)
    if found.returncode != 0:
        print(f"without accuracies: {found.stderr.strip()}")
        return None
    cifar = os.path.join(tmp, "cifar.yaml")
    with open(cifar, "w") as f:
        f.write(CIFAR.format(folder=found.stdout.strip()))
    return cifar


def main():
    model = onnx.load(path)
    sites = quant_sites.find(model)
    pairs = list(zip(sites, original_names(sites)))
    seen = quant_sites.activations(
        model, sites, np.load(os.path.join(golden, "calib.npy")))
    with open(os.path.join(golden, "accuracy_first_1000.json")) as f:
        accuracies = json.load(f)
    failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        cifar = data_files(tmp)
        for observer, text in OBSERVERS.items():
            for scheme in ("affine", "symmetric"):
                for bits in (8, 4):
                    name = f"{observer}_{scheme}_{bits}"
                    try:
                        bad = check(name, scheme, bits, text, pairs, seen,
                                    tmp, cifar, accuracies)
                    except (RuntimeError, ValueError, OSError) as e:
                        bad = [str(e)]
                    failed += bool(bad)
                    print(f"{'FAIL' if bad else 'pass'} {name}"
                          + "".join(f"\n    {b}" for b in bad[:6]), flush=True)
    return 1 if failed else 0


sys.exit(main())
