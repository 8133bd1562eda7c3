"""ptq.py MODEL PHOTOS [OUT]: quantizes a network for photographs.  PHOTOS is a
data file; images that calibration has not seen are evaluated."""

import os
import sys

import sparsebit as sb


def main(path, photos, out="model.int8.onnx"):
    samples = int(os.environ.get("SAMPLES", 64))
    test = int(os.environ.get("TEST", 0))
    model = sb.load(path)

    quantized = sb.quantize(model, photos, samples=samples,
                            target="onnxruntime-x86", progress=True)
    quantized.save(out)
    print(f"{quantized}, calibrated in {quantized.seconds:.1f} s")
    for step in quantized.steps:
        print(f"  {step.name}: error {step.before:.2e} -> {step.after:.2e}"
              + ("" if step.kept else ", taken back"))

    verdict = sb.lint(quantized)
    print(f"{verdict.weighted_integer} of {verdict.weighted} layers run on "
          f"integers")
    result = sb.evaluate(out, sb.Data(photos, skip=samples, samples=test),
                         against=model)
    print(result)

    analysis = sb.analyze(quantized, photos, samples=16)
    for layer in analysis.worst(3):
        print(f"  {layer.name}: {layer.alone.sqnr_db:.1f} dB")
    analysis.save_report(os.path.splitext(out)[0] + ".html")


if __name__ == "__main__":
    main(*sys.argv[1:])
