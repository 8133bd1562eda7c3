"""ptq.py MODEL PHOTOS [OUT]: quantizes a detector and counts boxes that agree with
the float network's.  PHOTOS is a data file.

Scores and coordinates stand side by side in the output of most detectors, far
apart in magnitude.  If boxes are lost, keep the last layers in float:
EXCLUDE='head.*' names them by module or node."""

import os
import sys

import sparsebit as sb


def main(path, photos, out="yolo.int8.onnx"):
    samples = int(os.environ.get("SAMPLES", 64))
    test = int(os.environ.get("TEST", 0))
    exclude = os.environ.get("EXCLUDE", "").split()
    model = sb.load(path)

    quantized = sb.quantize(model, photos, samples=samples, exclude=exclude,
                            target="onnxruntime-x86", progress=True)
    quantized.save(out)
    result = sb.evaluate(out, sb.Data(photos, skip=samples, samples=test),
                         against=model, task=os.environ.get("TASK", "detect"))
    print(f"{quantized}")
    print(f"{result.task}: {result.boxes} boxes, float {result.reference_boxes}, "
          f"in both {result.matched_boxes}: recall {result.recall:.4f}, "
          f"precision {result.precision:.4f}, F1 {result.f1:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
