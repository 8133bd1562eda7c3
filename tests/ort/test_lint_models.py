#!/usr/bin/env python3
"""(slow) Real networks quantized by ONNX Runtime's own tool with five settings
and by us: lint predicts what ONNX Runtime fuses, `run --integer` gives its
results.

usage: test_lint_models.py COMMAND [NAME|FILE.onnx...]

The networks are looked for in ../shared/models and in the folder that the
environment variable SPARSEBIT_MODELS names (`bench/export_models FOLDER` fills
one with torchvision networks); without any the test is skipped."""
import glob
import os
import subprocess
import sys
import tempfile

from qdq_common import ROOT, compare_fates, compare_results, feeds_for, lint, \
    np, onnx, quantize

CHOSEN = ("u8-channel", "s8-symmetric", "u8-reduced", "qoperator",
          "float-weights")


def find(wanted):
    folders = [os.path.join(ROOT, "../shared/models"),
               os.environ.get("SPARSEBIT_MODELS", "")]
    found = [p for f in folders if f
             for p in sorted(glob.glob(os.path.join(f, "*.onnx")))]
    if not wanted:
        return found
    return [w for w in wanted if w.endswith(".onnx")] + [
        p for p in found if os.path.basename(p).split(".")[0] in wanted]


def quantize_ours(command, source, folder, path):
    feeds = feeds_for(onnx.load(source), 1)
    np.savez(os.path.join(folder, "x.npz"), **feeds)
    data = os.path.join(folder, "d.yaml")
    with open(data, "w") as f:
        f.write("SOURCE: npz\nPATH: x.npz\nBATCH: 1\n")
    subprocess.run([command, "quantize", source, "-d", data, "-t",
                    "onnxruntime-x86", "-o", path, "-q"], check=True)


def check(command, path, what):
    wrong, n = compare_fates(command, path)
    equal, cosine = compare_results(command, path)
    # Float layers round differently, and one step of a quantizer behind them
    # may grow from layer to layer.
    report = lint(command, path)
    whole = report["weighted"] == report["weighted_integer"]
    if whole and cosine < 0.999:
        wrong.append("results differ")
    if what.endswith(" ours") and not whole:
        wrong.append(f"{report['weighted_integer']} of {report['weighted']} "
                     "layers are integer kernels")
    print(f"{'WRONG' if wrong else 'ok':6}{what}: {n} integer kernels, "
          f"{equal:.2%} of the outputs equal, cosine {cosine:.7f}", flush=True)
    for line in wrong[:8]:
        print("      " + line)
    return bool(wrong)


def main():
    command, found = sys.argv[1], find(sys.argv[2:])
    if not found:
        print("skipped: no ../shared/models, and SPARSEBIT_MODELS names no "
              "folder with models")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        for source in found:
            for setting in CHOSEN + ("ours",):
                what = f"{os.path.basename(source)} {setting}"
                try:
                    if setting == "ours":
                        quantize_ours(command, source, folder, path)
                    else:
                        quantize(onnx.load(source), setting, path)
                except Exception as error:
                    print(f"{what}: not quantized: {str(error)[:100]}")
                    failed += setting == "ours"
                    continue
                failed += check(command, path, what)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
