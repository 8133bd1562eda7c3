"""ptq.py MODEL TOKENIZER SENTENCES [OUT]: quantizes a sentence encoder and compares
embeddings.  SENTENCES is a text file, one per line; the tokenizer is read by
Sparsebit (tokenizer.json, a Hugging Face folder)."""

import os
import sys

import numpy as np

import sparsebit as sb

HERE = os.path.dirname(os.path.abspath(__file__))


def batches(model, tokenizer, path):
    """One sentence each, as the encoder's inputs ask for it."""
    wanted = {v.name for v in model.inputs}
    with open(path, encoding="utf-8") as f:
        for line in f:
            ids = np.array([tokenizer.encode(line.strip())], np.int64)
            inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids),
                      "token_type_ids": np.zeros_like(ids)}
            yield {k: v for k, v in inputs.items() if k in wanted}


def main(path, tokenizer, sentences, out="minilm.int8.onnx"):
    model = sb.load(path)
    tokenizer = sb.Tokenizer(tokenizer)
    data = list(batches(model, tokenizer, sentences))

    dynamic = sb.quantize(model, target="onnxruntime-x86",
                          config=os.path.join(HERE, "dynamic.yaml"))
    static = sb.quantize(model, data, target="onnxruntime-x86")
    dynamic.save(out)
    for name, quantized in (("dynamic", dynamic), ("static", static)):
        result = sb.evaluate(quantized, data, against=model, task="embed")
        print(f"{name}: {len(quantized.to_bytes()) / 1e6:.1f} MB, cosine of "
              f"{result.vectors} embeddings {result.vector_cosine:.5f}, lowest "
              f"hundredth {result.vector_cosine_p1:.5f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
