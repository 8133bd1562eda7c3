"""gptq.py MODEL CALIBRATION TEST [OUT]: a language model with 4-bit weights by
GPTQ, and its perplexity beside rounding to nearest.  MODEL is a Hugging Face
folder or a GGUF file in float, CALIBRATION and TEST are text files."""

import os
import sys

import sparsebit as sb

HERE = os.path.dirname(os.path.abspath(__file__))


def text(path, model, samples):
    keys = {"PATH": path, "TOKENIZER": model,
            "WINDOW": os.environ.get("WINDOW", 512)}
    lines = [f"{k}: {v}" for k, v in keys.items()]
    return sb.Data(text="SOURCE: text\nSTYLE: paper\n" + "\n".join(lines) + "\n",
                   samples=samples)


def main(path, calibration, test, out="model.w4.onnx"):
    path, calibration, test = map(os.path.abspath, (path, calibration, test))
    windows = int(os.environ.get("TEST_WINDOWS", 8))
    model = sb.load(path)
    data = text(calibration, path, int(os.environ.get("SAMPLES", 32)))
    with open(os.path.join(HERE, "gptq.yaml")) as f:
        gptq = f.read()

    nearest = sb.quantize(model, config=gptq.replace("gptq", "uniform"))
    best = sb.quantize(model, data, config=gptq, progress=True)
    best.save(out)
    for name, quantized in (("nearest", nearest), ("gptq", best)):
        result = sb.evaluate(quantized, text(test, path, windows),
                             against=model)
        print(f"{name}: perplexity {result.perplexity:.4f}, float "
              f"{result.reference.perplexity:.4f}, divergence "
              f"{result.divergence:.5f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
