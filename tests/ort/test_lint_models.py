#!/usr/bin/env python3
"""(slow) Real networks quantized by ONNX Runtime's own tool with five settings:
lint predicts what ONNX Runtime fuses, `run --integer` gives its results.

usage: test_lint_models.py COMMAND [NAME...]

The networks are looked for in ../shared/models; without them the test is
skipped."""
import glob
import os
import sys
import tempfile

from qdq_common import ROOT, compare_fates, compare_results, lint, onnx, \
    quantize

CHOSEN = ("u8-channel", "s8-symmetric", "u8-reduced", "qoperator",
          "float-weights")


def main():
    command, names = sys.argv[1], sys.argv[2:]
    found = sorted(glob.glob(os.path.join(ROOT, "../shared/models/*.onnx")))
    found = [p for p in found if not names or
             os.path.basename(p).split(".")[0] in names]
    if not found:
        print("skipped: no ../shared/models")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        for source in found:
            for setting in CHOSEN:
                what = f"{os.path.basename(source)} {setting}"
                try:
                    quantize(onnx.load(source), setting, path)
                except Exception as error:
                    print(f"{what}: not quantized: {str(error)[:100]}")
                    continue
                wrong, n = compare_fates(command, path)
                equal, cosine = compare_results(command, path)
                # Float layers round differently, and one step of a quantizer
                # behind them may grow from layer to layer.
                report = lint(command, path)
                whole = report["weighted"] == report["weighted_integer"]
                if whole and cosine < 0.999:
                    wrong.append("results differ")
                failed += bool(wrong)
                print(f"{'WRONG' if wrong else 'ok':6}{what}: {n} integer "
                      f"kernels, {equal:.2%} of the outputs equal, cosine "
                      f"{cosine:.7f}", flush=True)
                for line in wrong[:8]:
                    print("      " + line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
