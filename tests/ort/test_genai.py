#!/usr/bin/env python3
"""Language models in the layout of onnxruntime-genai, run by ONNX Runtime.

usage: test_genai.py COMMAND

Of every architecture: logits of all tokens at once, and of the same tokens in
three pieces with keys and values passed on, are those that transformers
computed (tests/fixtures/llm/make); a batch with padding on the right has those
of each row; what genai_config.json says of inputs and outputs is so.  Where
onnxruntime-genai is installed, it loads each folder, too, and has these logits
behind the prompt and behind each token that follows.

Exits 77 if onnxruntime is not there or does not load."""
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnxruntime
except Exception as error:
    print(f"skipped: {error}")
    sys.exit(77)

# Besides not being installed, it may lack a library, or be of a version with
# other functions: then ONNX Runtime alone runs the folders.
genai, why_not = None, ""
try:
    import onnxruntime_genai as genai
    for kind, needed in (("Generator", "append_tokens"),
                         ("Generator", "get_output"),
                         ("GeneratorParams", "set_search_options")):
        getattr(getattr(genai, kind), needed)
except Exception as error:
    genai, why_not = None, f"; skipped onnxruntime-genai: {error}"

command = sys.argv[1]
fixtures = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                        "fixtures", "llm")
failed = 0


def check(what, good, more=""):
    global failed
    if not good:
        failed += 1
        print(f"FAILED: {what} {more}")


class Runner:
    def __init__(self, folder):
        with open(f"{folder}/genai_config.json", encoding="utf8") as f:
            self.model = json.load(f)["model"]
        self.decoder = self.model["decoder"]
        self.session = onnxruntime.InferenceSession(
            f"{folder}/{self.decoder['filename']}",
            providers=["CPUExecutionProvider"])
        self.layers = self.decoder["num_hidden_layers"]

    def names(self, where, kind):
        pattern = self.decoder[where][kind]
        return [pattern % i for i in range(self.layers)]

    def empty(self, batch):
        shape = (batch, self.decoder["num_key_value_heads"], 0,
                 self.decoder["head_size"])
        return [np.zeros(shape, np.float32)] * (2 * self.layers)

    def run(self, ids, past, mask):
        inputs = self.decoder["inputs"]
        feed = {inputs["input_ids"]: ids, inputs["attention_mask"]: mask}
        if "position_ids" in inputs:
            begin = past[0].shape[2]
            feed[inputs["position_ids"]] = np.tile(
                np.arange(begin, begin + ids.shape[1]), (len(ids), 1))
        names = (self.names("inputs", "past_key_names") +
                 self.names("inputs", "past_value_names"))
        feed.update(zip(names, past))
        out = self.session.run(
            [self.decoder["outputs"]["logits"]] +
            self.names("outputs", "present_key_names") +
            self.names("outputs", "present_value_names"), feed)
        return out[0], out[1:]


def distance(a, b):
    return float(np.abs(a.astype(np.float64) - b).max())


def compare(name, folder):
    ids = np.load(f"{fixtures}/ids.npy").astype(np.int64)
    want = np.load(f"{fixtures}/{name}/logits.npy")
    r = Runner(folder)
    n = ids.shape[1]
    ones = np.ones_like(ids)
    got, _ = r.run(ids, r.empty(len(ids)), ones)
    check(f"{name}, at once", got.shape == want.shape and
          distance(got, want) < 2e-4, distance(got, want))
    past, at = r.empty(1), 0
    for size in (n // 2, 1, n - n // 2 - 1):
        got, past = r.run(ids[:1, at:at + size], past, ones[:1, :at + size])
        check(f"{name}, from {at} on",
              distance(got, want[:1, at:at + size]) < 2e-4,
              distance(got, want[:1, at:at + size]))
        at += size
    mask = np.array([[1] * n, [1] * (n - 3) + [0] * 3])
    got, _ = r.run(np.repeat(ids[:1], 2, 0), r.empty(2), mask)
    check(f"{name}, padded", distance(got[0], want[0]) < 2e-4 and
          distance(got[1, :n - 3], want[0, :n - 3]) < 2e-4)
    check(f"{name}, vocabulary", r.model["vocab_size"] == want.shape[2])


def compare_onnx(name, path):
    """The plain network, which knows windows by masks (opset 23)."""
    ids = np.load(f"{fixtures}/ids.npy").astype(np.int64)
    want = np.load(f"{fixtures}/{name}/logits.npy")
    session = onnxruntime.InferenceSession(
        path, providers=["CPUExecutionProvider"])
    got = session.run(None, {"input_ids": ids})[0]
    check(f"{name} as ONNX", distance(got, want) < 2e-4, distance(got, want))


def compare_genai(name, folder):
    """A prompt, then the other tokens one by one."""
    ids = np.load(f"{fixtures}/ids.npy")[0].astype(np.int32)
    want = np.load(f"{fixtures}/{name}/logits.npy")[0]
    model = genai.Model(folder)
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=len(ids), do_sample=False)
    generator = genai.Generator(model, params)
    for begin, end in [(0, 5), *((i, i + 1) for i in range(5, len(ids)))]:
        generator.append_tokens(ids[begin:end])
        got = np.asarray(generator.get_output("logits"))[0, -1]
        check(f"{name} in onnxruntime-genai, {end} tokens",
              distance(got, want[end - 1]) < 2e-4, distance(got, want[end - 1]))


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name in ("llama", "mistral", "qwen2", "qwen3", "gemma3", "gpt2",
                     "gptq", "gptq3", "awq"):
            out = os.path.join(folder, name)
            done = subprocess.run(
                [command, "convert", f"{fixtures}/{name}", out, "-q",
                 "--format", "genai", "--tokenizer", f"{fixtures}/tiny.gguf"],
                capture_output=True, text=True)
            check(f"{name} is written", done.returncode == 0, done.stderr)
            if done.returncode == 0:
                compare(name, out)
            if done.returncode == 0 and genai:
                compare_genai(name, out)
        for name in ("mistral", "gemma3", "gemma3_window", "gpt2"):
            out = os.path.join(folder, f"{name}.onnx")
            subprocess.run([command, "convert", f"{fixtures}/{name}", out,
                            "-q"], check=True)
            compare_onnx(name, out)
    print("genai: " + (f"{failed} failed" if failed else "same logits") +
          why_not)
    return failed > 0


sys.exit(main())
