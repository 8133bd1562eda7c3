"""What commands have beyond the plain case: limits of accuracy, scans, adapters,
files of language models, keys of configurations."""

import json
import os
import subprocess

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsebit as sb
from conftest import random_cnn
from sparsebit._drop import lost, pattern
from test_examples import COMMAND, ROOT, write_llama
from test_tools import SPARSE, run_ort

TINY_LLM = os.path.join(ROOT, "tests/fixtures/llm/tiny.gguf")
COARSE = {"BACKEND": "virtual",
          "W": {"QSCHEME": "per-tensor-symmetric", "QUANTIZER": {"BIT": 2}},
          "A": {"QSCHEME": "per-tensor-affine", "QUANTIZER": {"BIT": 2}}}


@pytest.fixture
def many():
    """Images that differ enough for the network to see several classes."""
    rng = np.random.default_rng(7)
    return [(rng.standard_normal((20, 3, 8, 8))
             * rng.uniform(0.2, 2, (20, 1, 1, 1))
             + 2 * rng.standard_normal((20, 3, 1, 1))).astype(np.float32)
            for _ in range(3)]


# ---- quantizing -----------------------------------------------------------------

def agreement(model, quantized, x):
    return 100 * (run_ort(model, x).argmax(1)
                  == run_ort(quantized.to_bytes(), x).argmax(1)).mean()


def test_accuracy_drop_keeps_layers_in_float(cnn, many):
    x = np.concatenate(many)
    plain = sb.quantize(cnn, many, config=COARSE)
    before = 100 - agreement(cnn, plain, x)
    assert before > 10
    made = sb.quantize(cnn, (x for x in many), config=COARSE, accuracy_drop=10)
    assert made.drop.what == "agreement of classes"
    assert made.drop.before == pytest.approx(before)
    assert made.drop.lost <= 10
    assert made.drop.lost == pytest.approx(100 - agreement(cnn, made, x))
    assert 0 < len(made.drop.layers) < 8
    of_weights = {q.name for q in made.quantizers if q.is_weight}
    for name in made.drop.layers:
        assert not any(q.startswith(name + ".") for q in of_weights)
    fewer = sb.quantize(cnn, many, config=COARSE,
                        exclude=made.drop.layers[:-1])
    assert 100 - agreement(cnn, fewer, x) > 10
    assert sb.quantize(cnn, many, config=COARSE,
                       accuracy_drop=100).drop.layers == []


@pytest.mark.skipif(not os.path.exists(COMMAND), reason="no command was built")
def test_accuracy_drop_is_that_of_the_command(cnn, many, tmp_path):
    onnx.save(cnn, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.concatenate(many))
    (tmp_path / "d.yaml").write_text("SOURCE: npy\nPATH: x.npy\nBATCH: 20\n")
    (tmp_path / "q.yaml").write_text(sb.Config(COARSE).read())
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    told = subprocess.run(
        [COMMAND, "quantize", "m.onnx", "-c", "q.yaml", "-d", "d.yaml",
         "--accuracy-drop", "10", "-o", "o.onnx", "--json"], cwd=tmp_path,
        env=env, capture_output=True, text=True, check=True)
    drop = json.loads(told.stdout)["accuracy_drop"]
    made = sb.quantize(cnn, tmp_path / "d.yaml", config=COARSE,
                       accuracy_drop=10).drop
    assert made.layers == drop["float_layers"]
    assert made.lost == pytest.approx(drop["reached"])
    assert made.before == pytest.approx(drop["all_quantized"])


def test_accuracy_drop_that_cannot_be_met(cnn, many):
    with pytest.raises(sb.Error, match="cannot be met: with 3 of 4"):
        sb.quantize(random_cnn(2), many, config=COARSE, accuracy_drop=1)
    for data, drop in ((None, 1), (many, -1), (many, float("nan"))):
        with pytest.raises(sb.ArgumentError, match="accuracy_drop"):
            sb.quantize(cnn, data, config=COARSE, accuracy_drop=drop)


@given(st.text("ab*?[]-", max_size=8))
def test_a_pattern_means_its_name_alone(name):
    import fnmatch

    assert fnmatch.fnmatchcase(name, pattern(name))
    assert not fnmatch.fnmatchcase(name + "b", pattern(name))


def test_what_is_lost_depends_on_the_outputs(cnn, many):
    x = np.concatenate(many)
    labels = run_ort(cnn, x).argmax(1)
    quantized = sb.quantize(cnn, many, config=COARSE)
    what, much = lost(sb.evaluate(quantized, [(x, labels)], against=cnn))
    assert what == "top-1"
    assert much == pytest.approx(100 - agreement(cnn, quantized, x))


# ---- pruning --------------------------------------------------------------------

def test_scan_measures_one_group_at_a_time(cnn, images):
    found = sb.prune(cnn, images, config=SPARSE, scan=(0.25, 0.5)).scan
    assert found.samples == 12 and np.isnan(found.accuracy)
    x = np.concatenate(images)
    want = run_ort(cnn, x)
    for group in found.groups:
        assert [p.ratio for p in group.points] == [0.25, 0.5]
        for point in group.points:
            alone = sb.prune(cnn, images, config={"SPARSER": {
                **SPARSE["SPARSER"], "RATIO": 0,
                "SPECIFIC": {group.name: point.ratio}}})
            error = run_ort(alone.model.to_bytes(), x) - want
            assert point.error == pytest.approx(
                np.sqrt((error ** 2).mean() / (want ** 2).mean()), rel=1e-3)
            assert alone.removed == point.removed * (
                alone.removed // max(point.removed, 1))
    assert "conv1" in found._repr_html_()
    with pytest.raises(sb.ArgumentError, match="need samples"):
        sb.prune(cnn, config=SPARSE, scan=True)
    with pytest.raises(sb.ArgumentError, match="ratio"):
        sb.prune(cnn, images, config=SPARSE, scan=(0.5, 0.2))


def test_targets_of_pruning(cnn, images):
    whole = sb.load(cnn).info
    small = sb.prune(cnn, images, config=SPARSE, target_macs=0.6)
    assert small.model.info.macs <= 0.6 * whole.macs
    small = sb.prune(cnn, config=SPARSE, target_params=0.5)
    assert small.model.info.params <= 0.5 * whole.params
    could = sb.prune(cnn, config=SPARSE, dry_run=True)
    assert could.removed == 0 and could.removable > 0
    assert could.model.info.params == whole.params


def test_labels_reach_the_criterion(cnn, images, tmp_path):
    """As from a data file, whose labels the library reads itself."""
    taylor = {"SPARSER": {"TYPE": "structured", "STRATEGY": "taylor",
                          "RATIO": 0.5}}
    x = np.concatenate(images)
    labels = np.zeros(12, np.int64)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", labels)
    (tmp_path / "d.yaml").write_text(
        "SOURCE: npy\nPATH: x.npy\nLABELS: y.npy\nBATCH: 12\n")
    by_file, by_arrays, other = (
        sb.prune(cnn, data, config=taylor).model.to_bytes() for data in
        (tmp_path / "d.yaml", [(x, labels)], [(x, labels + 4)]))
    assert by_file == by_arrays
    assert by_file != other


@pytest.mark.parametrize("criterion", ["hrank", "l1norm"])
def test_every_round_sees_the_samples(cnn, images, criterion):
    """Rounds are what pruning again and again does, with re-fit each time."""
    def config(**keys):
        return {"SPARSER": {"TYPE": "structured", "STRATEGY": criterion,
                            **keys}}

    want, left = sb.load(cnn), 8
    for gone in 1, 1, 2:  # of 8 channels a sixth, two and three sixths
        want = sb.prune(want, images, config=config(
            RATIO=gone / left + 1e-6)).model
        left -= gone
    rounds = config(RATIO=0.5, ITERATIONS=3)
    got = sb.prune(cnn, images, config=rounds).model
    assert got.graph() == want.graph()
    for name in ("w1", "w2", "w3"):
        np.testing.assert_allclose(got.weight(name).numpy(),
                                   want.weight(name).numpy(), atol=1e-5)
    want = got.to_bytes()
    assert sb.prune(cnn, iter(images), config=rounds).model.to_bytes() == want

    def forever():
        while True:
            yield from images
    assert sb.prune(cnn, forever(), config=rounds, samples=12
                    ).model.to_bytes() == want


def test_sparse_files_hold_what_is_left(cnn, tmp_path):
    pruned = sb.prune(cnn, config={"SPARSER": {
        "TYPE": "unstructured", "STRATEGY": "l1norm", "RATIO": 0.9}})
    pruned.save(tmp_path / "s.onnx", sparse=True)
    pruned.save(tmp_path / "d.onnx")
    saved = onnx.load(tmp_path / "s.onnx").graph
    weights = {s.values.name: s for s in saved.sparse_initializer}
    w2 = pruned.model.weight("w2").numpy()
    assert weights["w2"].values.dims[0] == np.count_nonzero(w2)
    assert list(weights["w2"].dims) == list(w2.shape)
    assert not onnx.load(tmp_path / "d.onnx").graph.sparse_initializer
    assert (sb.load(tmp_path / "s.onnx").weight("w2").numpy() == w2).all()


def test_pruning_while_training(tmp_path):
    """Half of the weights are zero at the end, and the rest has learned."""
    rng = np.random.default_rng(3)
    np.save(tmp_path / "x.npy", rng.standard_normal(
        (32, 3, 8, 8)).astype(np.float32))
    np.save(tmp_path / "y.npy", np.arange(32) % 5)
    (tmp_path / "d.yaml").write_text(
        "SOURCE: npy\nPATH: x.npy\nLABELS: y.npy\nBATCH: 8\n")
    states = []
    sparse = {"SPARSER": {"TYPE": "unstructured", "STRATEGY": "l1norm",
                          "RATIO": 0.5}}
    model = sb.load(random_cnn())
    trained = sb.train(model, tmp_path / "d.yaml", prune=sparse,
                       options={"EPOCHS": 2, "LR": 0.01}, watch=states.append)
    w2 = trained.weight("w2").numpy()
    assert (w2 == 0).mean() >= 0.4
    assert (w2 != model.weight("w2").numpy())[w2 != 0].any()
    assert states[-1].pruned == 1


# ---- language models --------------------------------------------------------------

@pytest.fixture
def answers(tmp_path):
    (tmp_path / "qa.json").write_text(json.dumps(
        [{"instruction": "ab", "output": "ba"},
         {"instruction": "ba", "input": "a", "output": "ab"}]))
    (tmp_path / "qa.yaml").write_text(
        f"SOURCE: instruct\nPATH: qa.json\nTOKENIZER: {TINY_LLM}\n"
        "WINDOW: 40\nBATCH: 2\n")
    return tmp_path / "qa.yaml"


IDS = np.array([[1, 3, 5, 4]])


def logits(model):
    return sb.Session(model).run(IDS)[0].numpy()


def test_adapters_are_trained_merged_and_read_again(tmp_path, answers):
    base = sb.load(TINY_LLM)
    tuned = sb.train(base, answers, lora="q_proj|v_proj", lora_rank=2,
                     options={"EPOCHS": 2, "OPTIMIZER": "adamw", "LR": 0.01})
    tuned.save_lora(tmp_path / "adapter")
    told = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert told["r"] == 2 and told["lora_alpha"] == 16
    names = [v.name for v in tuned.values if ".lora_B." in v.name]
    assert names and not any(".lora_" in v.name for v in base.values)
    layer = names[0].removeprefix("base_model.model.").removesuffix(
        ".lora_B.weight")
    learned = tensors(tmp_path / "adapter/adapter_model.safetensors")
    b = learned[names[0]]
    a = learned[names[0].replace("lora_B", "lora_A")]
    assert np.abs(b).max() > 0

    again = base.clone()
    again.load_lora(tmp_path / "adapter")
    np.testing.assert_allclose(logits(again), logits(tuned), atol=1e-5)
    assert np.abs(logits(again) - logits(base)).max() > 1e-4
    again.merge_lora()
    np.testing.assert_allclose(logits(again), logits(tuned), atol=1e-3)
    sb.convert(base, tmp_path / "before", format="float", tokenizer=TINY_LLM)
    sb.convert(base, tmp_path / "after", format="float", tokenizer=TINY_LLM,
               lora=tmp_path / "adapter")
    before, after = (tensors(tmp_path / f / "model.safetensors")
                     for f in ("before", "after"))
    np.testing.assert_allclose(
        after[layer + ".weight"] - before[layer + ".weight"],
        16 / 2 * (b @ a), atol=2e-3)
    with pytest.raises(sb.ArgumentError, match="nothing"):
        base.clone().add_lora("nothing")
    with pytest.raises(sb.ArgumentError, match="without"):
        sb.train(base, answers, lora="q_proj", teacher=base)


def tensors(path):
    """Arrays of a safetensors file, by its own definition."""
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    kinds = {"F32": np.float32, "F16": np.float16}
    made = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__" and t["dtype"] in kinds:
            first, last = (8 + n + i for i in t["data_offsets"])
            made[name] = np.frombuffer(
                data[first:last], kinds[t["dtype"]]).reshape(
                    t["shape"]).astype(np.float64)
    return made


def test_converted_models_compute_the_same(tmp_path):
    base = sb.load(TINY_LLM)
    assert sb.convert(TINY_LLM, tmp_path / "m.onnx") == "onnx"
    assert sb.convert(TINY_LLM, tmp_path / "m.gguf", float_as="f32") == "gguf"
    assert sb.convert(TINY_LLM, tmp_path / "hf", format="float") == "float"
    for name in ("m.onnx", "m.gguf", "hf"):
        np.testing.assert_allclose(logits(sb.load(tmp_path / name)),
                                   logits(base), atol=1e-3)
    with pytest.raises(sb.ArgumentError, match="allowed are gguf"):
        sb.convert(TINY_LLM, tmp_path / "m.bin", format="zip")


def test_quantized_language_models_as_files_of_others(tmp_path):
    config = {"BACKEND": "virtual", "A": "none",
              "W": {"QSCHEME": "per-group-symmetric",
                    "QUANTIZER": {"BIT": 4, "GROUP_SIZE": 32}}}
    tokenizer = os.path.join(ROOT, "tests/fixtures/llm/tok_smollm.json")
    (tmp_path / "hf").mkdir()
    write_llama(tmp_path / "hf", len(sb.Tokenizer(tokenizer)))
    made = sb.quantize(tmp_path / "hf", config=config, half_scales=True,
                       exclude=["model.embed_tokens", "lm_head"],
                       journal=tmp_path / "rounding")
    with pytest.raises(sb.UnsupportedError, match="embed_tokens.*exclude"):
        sb.quantize(tmp_path / "hf", config=config).save_language(
            tmp_path / "no.gguf", tokenizer=tokenizer)
    assert not (tmp_path / "no.gguf").exists()
    want = made.run(IDS)[0].numpy()
    assert np.abs(want - logits(sb.load(tmp_path / "hf"))).max() > 0.01
    for name, format in (("q.gguf", "gguf"), ("q.gptq", "gptq")):
        made.save_language(tmp_path / name, format=format, tokenizer=tokenizer,
                           float_as="f32")
        # as floats: kernels of packed weights round activations
        sb.convert(tmp_path / name, tmp_path / format, format="float")
        np.testing.assert_allclose(logits(sb.load(tmp_path / format)), want,
                                   atol=1e-3)
    assert not (tmp_path / "rounding").exists()


def test_length_of_generated_text():
    made = sb.generate(TINY_LLM, "ab", length=8, ignore_end=True)
    assert made.prompt_tokens + made.tokens == 8
    assert made.end == "context"


# ---- small ones -------------------------------------------------------------------

def test_keys_of_configurations():
    keys = {k.key: k for k in sb.explain_config()}
    assert keys["W.QUANTIZER.TYPE"].preset == "uniform"
    assert keys["SCHEDULE"].section
    assert [k.key for k in sb.explain_config("A.QUANTIZER.BIT")] == [
        "A.QUANTIZER.BIT"]
    assert any(k.key == "SOURCE" for k in sb.explain_config("data"))
    with pytest.raises(sb.ArgumentError, match="ABACUS"):
        sb.explain_config("ABACUS")


def test_graph_of_a_step(cnn):
    graph = sb.Learner(cnn).graph()
    ops = [n.op for n in graph.nodes]
    assert ops.count("Conv") >= 2
    assert len(ops) > 2 * len(sb.load(cnn).nodes)


def test_a_folder_as_data_of_a_model(tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(1)
    for i in range(3):
        image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(
            tmp_path / f"{i}.png")
    data = sb.Data(tmp_path, keys="SCALE: 255\nMEAN: [0, 0, 0]\nSTD: [1, 1, 1]",
                   model=sb.load(random_cnn()), skip=1, batch=2)
    batch, = data
    want = np.asarray(image.open(tmp_path / "1.png")).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(batch.inputs[0].numpy()[0], want, atol=1e-6)
    assert len(data) == 2


# ---- numbers out of range ---------------------------------------------------------

@pytest.mark.parametrize("key, values", [
    ("iou", (-0.1, 7, float("nan"))), ("threshold", (-2, float("inf"))),
    ("samples", (-1,)), ("batch", (-1,))])
def test_evaluate_refuses_numbers_out_of_range(cnn, images, key, values):
    for value in values:
        with pytest.raises(sb.ArgumentError, match=key):
            sb.evaluate(cnn, images, against=cnn, **{key: value})
    with pytest.raises(TypeError, match=key):
        sb.evaluate(cnn, images, against=cnn, **{key: "1"})


def test_export_refuses_numbers_out_of_range(cnn, images):
    made = sb.quantize(cnn, images)
    for key in ("accuracy_level", "opset"):
        for value in (-1, 5 if key == "accuracy_level" else 3, 2**70):
            with pytest.raises(sb.ArgumentError, match=key):
                made.to_bytes(**{key: value})
        with pytest.raises(TypeError, match=key):
            made.to_bytes(**{key: "4"})


def test_all_numbers_are_refused_by_name(cnn, images):
    llm = sb.load(TINY_LLM)
    write = sb.Generator(TINY_LLM)
    calls = {
        "threads": sb.Context, "max_memory": sb.Context,
        "opset": lambda opset: sb.load(cnn).clone().set_opset(opset),
        "rank": llm.clone().add_lora, "alpha": llm.clone().add_lora,
        "gptq_version": lambda **k: llm.save_language("x", format="gptq", **k),
        "width": lambda **k: sb.new("mlp", **k),
        "seed": lambda **k: sb.new("mlp", **k),
        "momentum": lambda **k: sb.Learner(cnn, **k),
        "temperature": lambda **k: write("ab", **k),
        "top_p": lambda **k: write("ab", **k),
        "ids": lambda ids: write.tokenizer.decode([ids]),
    }
    for key, call in calls.items():
        # So much memory is no limit.
        for value in (-1,) if key == "max_memory" else (-1, 2**70):
            with pytest.raises(sb.ArgumentError, match=key):
                call(**{key: value})
        with pytest.raises(TypeError, match=key):
            call(**{key: "1"})
