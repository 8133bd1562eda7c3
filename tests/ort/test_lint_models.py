#!/usr/bin/env python3
"""(slow) Real networks quantized by ONNX Runtime's own tool and by us: lint
predicts what ONNX Runtime fuses, `run --integer` gives its results.

usage: test_lint_models.py COMMAND [NAME|FILE.onnx...]

Five settings of the tool take turns, two for each network; networks that are
named get all of them.

The networks are those among the fixtures (tests/ort/fixtures.py), and those in
the folder that the environment variable SPARSEBIT_MODELS names
(`bench/export_models FOLDER` fills one with torchvision networks); without any
the test is skipped."""
import glob
import os
import subprocess
import sys
import tempfile

import fixtures
from qdq_common import compare_fates, compare_results, depthwise_floats, \
    feeds_for, lint, np, onnx, prepare, quantize_prepared

CHOSEN = ("u8-channel", "s8-symmetric", "u8-reduced", "qoperator",
          "float-weights")


def find(wanted):
    found = list(fixtures.networks().values()) + sorted(glob.glob(
        os.path.join(os.environ.get("SPARSEBIT_MODELS") or "none", "*.onnx")))
    if not wanted:
        return found
    return [w for w in wanted if w.endswith(".onnx")] + [
        p for p in found if os.path.basename(p).split(".")[0] in wanted]


def quantize_ours(command, source, folder, path):
    feeds = feeds_for(onnx.load(source), 1)
    np.savez(os.path.join(folder, "x.npz"), **feeds)
    data = os.path.join(folder, "d.yaml")
    with open(data, "w") as f:
        f.write("SOURCE: npz\nPATH: x.npz\nFEED: files\n")
    subprocess.run([command, "quantize", source, "-d", data, "-t",
                    "onnxruntime-x86", "-o", path, "-q"], check=True)


def check(command, path, what):
    report = lint(command, path)
    wrong, n = compare_fates(report, path)
    norms = any(node.op_type == "LayerNormalization"
                for node in onnx.load(path, load_external_data=False).graph.node)
    # Float layers round differently: now and then a value falls to the other
    # side of an edge between two integers, and in transformers, where
    # normalizations stay in float, that grows from layer to layer.  It is chance
    # and hits single inputs, so the middle one of three counts there.
    seeds = (5, 6, 7) if norms else (5,)
    runs = [compare_results(command, path, seed) for seed in seeds]
    results = None if None in runs else \
        sorted(runs, key=lambda r: r[1])[len(runs) // 2]
    # ONNX Runtime has no integer kernel for ConvTranspose.
    floats = {node["output"] for node in report["nodes"]
              if node["weighted"] and node["op"] != "ConvTranspose"
              and node["fate"] != "integer"}
    whole = not floats
    if whole and results and results[1] < 0.999:
        wrong.append("results differ")
    # Besides, the first convolution stays in float where that is worth it.
    if what.endswith(" ours") and len(floats - depthwise_floats(
            onnx.load(path, load_external_data=False))) > 1:
        wrong.append(f"{report['weighted_integer']} of {report['weighted']} "
                     "layers are integer kernels")
    same = "results skipped: ONNX Runtime's exact kernels refuse the file, " \
           "where layers share a weight"
    if results:
        same = f"{results[0]:.2%} of the outputs equal, cosine {results[1]:.7f}"
    print(f"{'WRONG' if wrong else 'ok':6}{what}: {n} integer kernels, {same}",
          flush=True)
    for line in wrong[:8]:
        print("      " + line)
    return bool(wrong)


def make(command, source, setting, folder, path):
    if setting == "ours":
        quantize_ours(command, source, folder, path)
        return
    prepared = os.path.join(folder, "float.onnx")
    if not os.path.exists(prepared):
        prepare(onnx.load(source), prepared)
    quantize_prepared(prepared, setting, path)


def check_network(command, source, settings):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        for setting in settings:
            what = f"{os.path.basename(source)} {setting}"
            try:
                make(command, source, setting, folder, path)
            except Exception as error:
                print(f"{what}: not quantized: {str(error)[:100]}")
                failed += setting == "ours"
                continue
            failed += check(command, path, what)
    return failed


def main():
    command, found = sys.argv[1], find(sys.argv[2:])
    if not found:
        fixtures.skip(f"no networks; {fixtures.HOW}")
    failed = 0
    for i, source in enumerate(found):
        settings = CHOSEN
        if len(sys.argv) == 2:
            settings = [CHOSEN[(2 * i + k) % len(CHOSEN)] for k in (0, 1)]
        failed += check_network(command, source, [*settings, "ours"])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
