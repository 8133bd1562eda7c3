"""The examples, command line and Python, each on a small part: networks of random
weights, a few made-up images and texts."""

import glob
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sparsebit as sb
from conftest import SANITIZED, random_cnn
from test_quantize import CONFIG

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
EXAMPLES = os.path.join(ROOT, "examples")
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
COMMAND = os.path.join(BUILD, "sparsebit")
RNG = np.random.default_rng(5)


def run(folder, script, *args, **env):
    """Output of an example; the command and the module are those of BUILD."""
    path = os.path.join(EXAMPLES, script)
    first = [sys.executable] if path.endswith(".py") else ["bash"]
    env = {**os.environ, "SPARSEBIT": COMMAND, **env}
    if not path.endswith(".py"):
        env.pop("LD_PRELOAD", None)
    done = subprocess.run([*first, path, *map(str, args)], cwd=folder, env=env,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cifar10(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cifar10")
    for name in ("data_batch_1.bin", "test_batch.bin"):
        rows = RNG.integers(0, 256, (64, 3073), dtype=np.uint8)
        rows[:, 0] %= 10
        (folder / name).write_bytes(rows.tobytes())
    sb.new("resnet20").save(folder / "resnet20.onnx")
    return folder


@pytest.mark.parametrize("script", ["cifar10/ptq.sh", "cifar10/ptq.py",
                                    "cifar10/qat.sh", "cifar10/qat.py",
                                    "pruning/prune.sh", "pruning/prune.py"])
def test_cifar10(tmp_path, cifar10, script):
    text = run(tmp_path, script, cifar10 / "resnet20.onnx", cifar10,
               "out.onnx", EPOCHS="1", TEST="16", BATCH="64",
               SAMPLES="64" if "qat" in script else "8")
    assert "agreement" in text
    if "qat" in script:  # `bits` on nodes is nothing that ONNX knows
        onnx.load(tmp_path / "out.onnx")
        return
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))


@pytest.fixture
def photos(tmp_path):
    from PIL import Image

    for i in range(6):
        pixels = RNG.integers(0, 256, (48, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    return tmp_path


def small_detector():
    """Boxes of 2 classes in the layout of YOLOv8: [N, 4 + 2, cells]."""
    w = RNG.standard_normal((6, 3, 8, 8)).astype(np.float32) * 0.05
    graph = helper.make_graph(
        [helper.make_node("Conv", ["images", "w"], ["c"], "conv",
                          strides=[8, 8]),
         helper.make_node("Reshape", ["c", "shape"], ["r"], "reshape"),
         helper.make_node("Sigmoid", ["r"], ["output0"], "sigmoid")],
        "detector",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT,
                                       ["N", 3, 64, 64])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT,
                                       ["N", 6, 64])],
        [numpy_helper.from_array(w, "w"),
         numpy_helper.from_array(np.array([0, 6, -1]), "shape")])
    model = helper.make_model(graph, opset_imports=[
        helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


@pytest.mark.parametrize("script", ["yolo/ptq.sh", "yolo/ptq.py"])
def test_yolo(photos, script):
    onnx.save(small_detector(), photos / "yolo.onnx")
    (photos / "p.yaml").write_text("SOURCE: image_folder\nPATH: .\n"
                                   "LETTERBOX: 64\nSCALE: 255\n")
    text = run(photos, script, "yolo.onnx", "p.yaml", "out.onnx",
               TASK="detect:yolov8", SAMPLES="3", TEST="3")
    assert "boxes" in text
    onnx.checker.check_model(onnx.load(photos / "out.onnx"))


@pytest.mark.parametrize("script", ["photos/ptq.sh", "photos/ptq.py"])
def test_photos(photos, script):
    sb.new("mobilenetv2", height=32, width=32).save(photos / "m.onnx")
    (photos / "p.yaml").write_text("SOURCE: image_folder\nPATH: .\n"
                                   "RESIZE: 36\nCROP: 32\nSCALE: 255\n")
    text = run(photos, script, "m.onnx", "p.yaml", "out.onnx", SAMPLES="3",
               TEST="3")
    assert "agreement" in text
    assert (photos / "out.html").stat().st_size > 1000


def small_encoder(vocabulary):
    """Embeddings, a layer, and their mean."""
    def weight(name, *shape):
        return numpy_helper.from_array(
            RNG.standard_normal(shape).astype(np.float32) * 0.2, name)

    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["e"], "embed"),
         helper.make_node("MatMul", ["e", "w1"], ["m"], "fc1"),
         helper.make_node("Tanh", ["m"], ["t"], "tanh"),
         helper.make_node("MatMul", ["t", "w2"], ["last"], "fc2")],
        "encoder",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64,
                                       ["N", "L"])],
        [helper.make_tensor_value_info("last", TensorProto.FLOAT,
                                       ["N", "L", 16])],
        [weight("table", vocabulary, 16), weight("w1", 16, 32),
         weight("w2", 32, 16)])
    model = helper.make_model(graph, opset_imports=[
        helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def test_sentences(tmp_path):
    tokenizer = os.path.join(ROOT, "tests/fixtures/llm/tok_gpt2.json")
    onnx.save(small_encoder(len(sb.Tokenizer(tokenizer))), tmp_path / "m.onnx")
    (tmp_path / "s.txt").write_text("a cat sat there\nthe dog ran\nwhy not\n")
    text = run(tmp_path, "sentences/ptq.py", "m.onnx", tokenizer, "s.txt",
               "out.onnx")
    assert "dynamic" in text and "static" in text
    np.savez(tmp_path / "t.npz", input_ids=np.array([[1, 2, 3], [4, 5, 6]]))
    (tmp_path / "t.yaml").write_text("SOURCE: npz\nPATH: t.npz\n")
    text = run(tmp_path, "sentences/ptq.sh", "m.onnx", "t.yaml", "o.onnx")
    assert "cosine" in text


def random_weight(name, shape):
    return RNG.standard_normal(shape) * 0.2


def write_llama(folder, vocabulary, hidden=32, inner=64, weight=random_weight):
    """A Hugging Face folder: one layer, and a tokenizer."""
    shapes = {"model.embed_tokens": (vocabulary, hidden),
              "lm_head": (vocabulary, hidden), "model.norm": (hidden,)}
    layer = "model.layers.0."
    for name in "qkvo":
        shapes[f"{layer}self_attn.{name}_proj"] = (hidden, hidden)
    shapes |= {layer + "mlp.gate_proj": (inner, hidden),
               layer + "mlp.up_proj": (inner, hidden),
               layer + "mlp.down_proj": (hidden, inner),
               layer + "input_layernorm": (hidden,),
               layer + "post_attention_layernorm": (hidden,)}
    header, data = {}, b""
    for name, shape in shapes.items():
        w = weight(name, shape).astype(np.float32).tobytes()
        header[name + ".weight"] = {
            "dtype": "F32", "shape": shape,
            "data_offsets": [len(data), len(data) + len(w)]}
        data += w
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(
        len(head).to_bytes(8, "little") + head + data)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 4, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 128, "vocab_size": vocabulary,
        "hidden_act": "silu", "rope_theta": 10000.0,
        "tie_word_embeddings": False}))


@pytest.mark.parametrize("script", ["wikitext/gptq.sh", "wikitext/gptq.py"])
def test_wikitext(tmp_path, script):
    tokenizer = os.path.join(ROOT, "tests/fixtures/llm/tok_smollm.json")
    folder = tmp_path / "llama"
    folder.mkdir()
    shutil.copy(tokenizer, folder / "tokenizer.json")
    write_llama(folder, len(sb.Tokenizer(tokenizer)))
    (tmp_path / "a.txt").write_text("one two three four five six seven " * 20)
    (tmp_path / "b.txt").write_text("a bird in the hand is worth two " * 20)
    text = run(tmp_path, script, folder, "a.txt", "b.txt", "out.onnx",
               SAMPLES="2", WINDOW="16", TEST_WINDOWS="2")
    assert "perplexity" in text
    assert (tmp_path / "out.onnx").exists()


def blocks(path):
    """The Python in a document."""
    with open(os.path.join(ROOT, path)) as f:
        return re.findall(r"^```python\n(.*?)^```$", f.read(), re.M | re.S)


@pytest.mark.parametrize("path", ["docs/python.md", "README.md"])
def test_documents_work(tmp_path, monkeypatch, images, path):
    monkeypatch.chdir(tmp_path)
    onnx.save(random_cnn(), "model.onnx")
    np.save("x.npy", np.concatenate(images))
    with open("qconfig.yaml", "w") as f:
        f.write(sb.Config(CONFIG).read())
    for name in ("photos.yaml", "test.yaml"):
        with open(name, "w") as f:
            f.write("SOURCE: npy\nPATH: x.npy\n")
    names = {"sb": sb, "batches": images, "network": random_cnn(),
             "loader": [(x, None) for x in images]}
    found = blocks(path)
    assert found
    for text in found:
        exec(compile(text, path, "exec"), names)  # noqa: S102
        if "work" in names:
            names.pop("work")()
    assert os.path.exists("model.int8.onnx")


def test_scripts_are_short():
    scripts = glob.glob(os.path.join(EXAMPLES, "*/*.py"))
    assert len(scripts) >= 6
    for path in scripts:
        with open(path) as f:
            assert len(f.readlines()) < 60, path
    folders = {os.path.dirname(s) for s in scripts}
    assert all(os.path.exists(os.path.join(f, "README.md")) for f in folders)


if SANITIZED:
    pytestmark = pytest.mark.skip(
        reason="the examples run without sanitizers: they are the same calls")
