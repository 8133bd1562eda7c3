"""Analysis, search, evaluation, lint, pruning, training, plug-ins."""

import gc
import math
import weakref

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import sparsebit as sb
from conftest import random_cnn
from test_quantize import CONFIG, Loader


def run_ort(model, x):
    session = ort.InferenceSession(
        model if isinstance(model, bytes) else model.SerializeToString(),
        providers=["CPUExecutionProvider"])
    return session.run(None, {"image": x})[0]


def test_analysis_of_the_output_is_onnx_runtimes(cnn, images, tmp_path):
    quantized = sb.quantize(cnn, images, config=CONFIG)
    found = sb.analyze(quantized, images)
    x = np.concatenate(images)
    difference = run_ort(cnn, x) - run_ort(quantized.to_bytes(), x)
    assert found.outputs[0].difference.mse == pytest.approx(
        float((difference ** 2).mean()), rel=0.05)
    assert found.samples == 12 and found.worst(1)[0] in found.layers
    assert {e.name for e in found.layers} >= {"conv1", "conv2", "fc"}
    found.save_report(tmp_path / "report.html")
    assert "<html" in (tmp_path / "report.html").read_text().lower()
    assert "conv1" in found._repr_html_()


def test_search_keeps_the_budget(cnn, images):
    found = sb.search(cnn, images, limit=6, bits=(4, 8))
    assert found.found.bits <= 6
    elements = sum(e.elements for e in found.layers)
    mean = sum(e.bits * e.elements for e in found.layers) / elements
    assert mean == pytest.approx(found.found.bits)
    quantized = sb.quantize(cnn, images, config=found.config)
    by_name = {q.bits for q in quantized.quantizers if q.is_weight}
    assert by_name <= {4, 8}
    with pytest.raises(sb.ArgumentError, match="smallest"):
        sb.search(cnn, images, limit=1, bits=(4, 8))


def test_evaluation_counts_as_numpy_does(cnn, images):
    x = np.concatenate(images)
    logits = run_ort(cnn, x)
    labels = np.where(np.arange(12) % 3, logits.argmax(1), 0)
    result = sb.evaluate(cnn, [(x, labels)], task="classify")
    assert result.samples == result.labeled == 12
    assert result.top1 == pytest.approx(
        100 * (logits.argmax(1) == labels).mean())
    quantized = sb.quantize(cnn, images, config=CONFIG)
    both = sb.evaluate(quantized, Loader(images), against=cnn,
                       task="classify")
    other = run_ort(quantized.to_bytes(), x)
    assert both.agreement == pytest.approx(
        100 * (other.argmax(1) == logits.argmax(1)).mean())
    assert both.reference.samples == 12 and "agreement" in str(both)


def test_evaluation_does_not_change_the_model(cnn, images):
    model = sb.load(cnn)
    before = model.graph()
    sb.evaluate(model, images, task="none")
    assert model.graph() == before


def test_lint_says_what_becomes_integer(cnn, images):
    good = sb.quantize(cnn, images, target="onnxruntime-x86")
    result = sb.lint(good)
    assert result.target == "onnxruntime-x86"
    assert result.weighted == result.weighted_integer == 3
    assert {n.kernel for n in result.nodes if n.weighted} <= {
        "QLinearConv", "QGemm", "MatMulIntegerToFloat", "QLinearMatMul"}
    assert not sb.lint(cnn).weighted_integer
    with pytest.raises(sb.ArgumentError, match="abacus"):
        sb.lint(cnn, "abacus")


SPARSE = {"SPARSER": {"TYPE": "structed", "STRATEGY": "l1norm",
                      "RATIO": 0.5}}


def test_pruned_network_is_smaller_and_runs(cnn, images):
    result = sb.prune(cnn, config=SPARSE)
    assert result.structured and 0 < result.removed <= result.removable
    assert result.model.info.params < sb.load(cnn).info.params
    got, = sb.Session(result.model).run(images[0])
    np.testing.assert_allclose(
        got, run_ort(result.model.to_bytes(), images[0]), rtol=1e-4,
        atol=1e-4)
    kept = next(e for e in result.layers if e.name == "fc")
    assert kept.removed == 0 and kept.reason
    assert "fc" in result._repr_html_()


def test_pruning_cuts_batches_for_a_fixed_one(cnn, images, tmp_path):
    cnn.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    np.save(tmp_path / "x.npy", np.concatenate(images))
    (tmp_path / "d.yaml").write_text("SOURCE: npy\nPATH: x.npy\nBATCH: 4\n")
    results = [sb.prune(cnn, data, config=SPARSE).model.to_bytes() for data in
               (images, tmp_path / "d.yaml", sb.Data(tmp_path / "d.yaml"))]
    assert results[0] == results[1] == results[2]
    with pytest.raises(sb.DataError, match="3 samples, the model takes 2"):
        sb.prune(cnn, [images[0][:3]], config=SPARSE)


def test_unstructured_pruning_is_the_smallest_weights():
    cnn = random_cnn(channels=4)
    result = sb.prune(cnn, config={"SPARSER": {
        "TYPE": "unstructed", "STRATEGY": "l1norm", "RATIO": 0.5}})
    before = sb.load(cnn).weight("w2").numpy()
    after = result.model.weight("w2").numpy()
    gone = np.abs(before)[after == 0]
    assert gone.size == before.size // 2
    assert gone.max() <= np.abs(before)[after != 0].min()


def test_zeros_are_saved_as_sparse_initializers(images, tmp_path):
    result = sb.prune(random_cnn(channels=16), config={"SPARSER": {
        "TYPE": "unstructured", "RATIO": 0.9}})
    result.save(tmp_path / "thin.onnx", sparse=True)
    assert (tmp_path / "thin.onnx").read_bytes() == \
        result.model.to_bytes(sparse=True)
    thin = onnx.load(tmp_path / "thin.onnx")
    names = {t.values.name for t in thin.graph.sparse_initializer}
    assert "w2" in names
    assert names.isdisjoint(t.name for t in thin.graph.initializer)
    np.testing.assert_array_equal(
        sb.load(tmp_path / "thin.onnx").weight("w2").numpy(),
        result.model.weight("w2").numpy())
    np.testing.assert_array_equal(
        run_ort(thin.SerializeToString(), images[0]),
        run_ort(result.model.to_bytes(), images[0]))
    plain = onnx.load_from_string(result.model.to_bytes())
    assert not plain.graph.sparse_initializer


def test_learner_step_is_sgd():
    rng = np.random.default_rng(0)
    model = sb.parse("graph g(x: f32[N,3]) -> (y: f32[N,2]) {\n"
                     "  w: f32[3,2] = [1, 2, 3, 4, 5, 6]\n"
                     "  y = MatMul(x, w)\n}\n")
    x = rng.standard_normal((5, 3)).astype(np.float32)
    t = rng.standard_normal((5, 2)).astype(np.float32)
    w = np.arange(1, 7, dtype=np.float64).reshape(3, 2)
    learner = sb.Learner(model, loss="mse", learning_rate=0.1, momentum=0.0)
    error = x @ w - t
    assert learner.step(x, t) == pytest.approx((error ** 2).mean(), rel=1e-5)
    gradient = 2 * x.T @ error / error.size
    np.testing.assert_allclose(learner.gradient_of("w"), gradient, rtol=1e-4)
    np.testing.assert_allclose(learner.value("w"), w - 0.1 * gradient,
                               rtol=1e-5)
    learner.learning_rate = 0.5
    assert learner.learning_rate == 0.5
    np.testing.assert_allclose(learner.model().weight("w"),
                               learner.value("w"))
    assert [p.name for p in learner.parameters] == ["w"]


def test_learner_with_a_loss_of_ones_own(tmp_path):
    model = sb.parse("graph g(x: f32[N,1]) -> (y: f32[N,1]) {\n"
                     "  w: f32[1,1] = [3]\n  y = MatMul(x, w)\n}\n")
    learner = sb.Learner(model, loss="custom", learning_rate=0.1,
                         momentum=0.0)
    x = np.array([[2.0]], np.float32)
    y, = learner.forward(x)
    assert y.tolist() == [[6.0]]
    learner.backward(np.array([[1.0]], np.float32))  # loss = y
    assert learner.value("w").tolist() == [[pytest.approx(3 - 0.1 * 2)]]
    learner.save(tmp_path / "l.npz")
    learner.set_value("w", np.array([[9.0]], np.float32))
    learner.load(tmp_path / "l.npz")
    assert learner.value("w").tolist() == [[pytest.approx(2.8)]]


def test_inputs_live_until_backward():
    model = sb.parse("graph g(x: f32[N,1]) -> (y: f32[N,1]) {\n"
                     "  w: f32[1,1] = [3]\n  y = MatMul(x, w)\n}\n")
    learner = sb.Learner(model, loss="custom", learning_rate=0.0, momentum=0.0)
    x = np.arange(6, dtype=np.float32).reshape(6, 1)
    alive = weakref.ref(x)
    learner.forward(x)
    del x
    gc.collect()
    assert alive() is not None
    learner.backward(np.ones((6, 1), np.float32))
    assert learner.gradient_of("w").tolist() == [[15.0]]
    gc.collect()
    assert alive() is None
    learner.forward(np.arange(12, dtype=np.float32).reshape(6, 2)[:, 1:])
    learner.backward(np.ones((6, 1), np.float32))
    assert learner.gradient_of("w").tolist() == [[36.0]]


def test_trained_and_frozen_may_be_one_pattern(tiny):
    def trained(**options):
        return [p.name for p in sb.Learner(tiny, loss="mse", **options).parameters
                if p.trained]

    assert trained(freeze="fc.weight") == ["fc.bias"]
    assert trained(train="fc.weight") == ["fc.weight"]


@pytest.fixture
def labeled(tmp_path):
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 64)
    x = rng.standard_normal((64, 1, 4, 4)) + 2 * y[:, None, None, None]
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    (tmp_path / "y.txt").write_text("\n".join(map(str, y)) + "\n")
    (tmp_path / "d.yaml").write_text("SOURCE: npy\nPATH: x.npy\n"
                                     "LABELS: y.txt\nBATCH: 16\n")
    return tmp_path / "d.yaml"


def test_training_learns(labeled):
    model = sb.new("mlp", channels=1, height=4, width=4, classes=2)
    states = []
    trained = sb.train(model, labeled, labeled, options={"EPOCHS": 20},
                       watch=states.append)
    assert states[-1].epoch == 19 and states[-1].loss < states[3].loss
    assert sb.evaluate(trained, labeled).top1 > 90
    with pytest.raises(sb.ConfigError, match="NOPE"):
        sb.train(model, labeled, options={"NOPE": 3})


LSQ = {
    "W": {"QSCHEME": "per-channel-symmetric",
          "QUANTIZER": {"TYPE": "lsq", "BIT": 4}},
    "A": {"QSCHEME": "per-tensor-affine",
          "QUANTIZER": {"TYPE": "lsq", "BIT": 4}}}


@pytest.mark.parametrize("form", ["tuples", "dicts", "iterator"])
def test_training_on_iterables_is_that_on_files(labeled, form):
    """The same samples in the same order give the same network."""
    model, path = sb.new("mlp", channels=1, height=4, width=4, classes=2), labeled
    batches = [(np.asarray(b.inputs[0]), np.array(b.labels))
               for b in sb.Data(path)]
    data = {"tuples": batches,
            "dicts": [{model.inputs[0].name: x, "label": y}
                      for x, y in batches],
            "iterator": iter(batches)}[form]
    options = {"EPOCHS": 2, "LR": 0.05}
    want = sb.train(model, path, options=options)
    got = sb.train(model, data, options=options)
    assert got.to_bytes() == want.to_bytes()


def test_samples_that_cannot_be_trained_on(labeled):
    model, path = sb.new("mlp", channels=1, height=4, width=4, classes=2), labeled
    x, y = next((np.asarray(b.inputs[0]), np.array(b.labels))
                for b in sb.Data(path))
    for data, line in (([], "one at least"), ([(x, y[:1])], "as many"),
                       ([(x, y), (x[:, :, :1], y)], "the first has"),
                       ([(x, x)], "labels")):
        with pytest.raises(sb.DataError, match=line):
            sb.train(model, data, options={"EPOCHS": 1})


def test_training_with_quantizers(labeled):
    model = sb.train(sb.new("mlp", channels=1, height=4, width=4, classes=2),
                     labeled, options={"EPOCHS": 20})
    quantized = sb.quantize(model, labeled, config=LSQ, train=True)
    before = {q.name: q.scale for q in quantized.quantizers}
    assert sb.train(quantized, labeled, labeled,
                    options={"EPOCHS": 3}) is quantized
    assert {q.name: q.scale for q in quantized.quantizers} != before
    assert sb.evaluate(quantized, labeled).top1 > 85
    with pytest.raises(sb.Error):
        sb.quantize(model, labeled, config=LSQ)  # not to be trained


def test_learner_with_quantizers(cnn, images):
    quantized = sb.quantize(cnn, images, config=LSQ, train=True)
    learner = sb.Learner(quantized, learning_rate=0.05)
    roles = {p.role for p in learner.parameters}
    assert {"weight", "scale"} <= roles
    target = np.array([0, 1, 2, 3])
    losses = [learner.step(images[0], target) for _ in range(20)]
    assert losses[-1] < losses[0]
    quantized.take(learner)
    np.testing.assert_allclose(quantized.run(images[0])[0],
                               learner.evaluate(images[0])[0], atol=1e-3)
    np.testing.assert_allclose(
        run_ort(quantized.to_bytes(), images[0]),
        learner.evaluate(images[0])[0], atol=1e-3)


def test_exception_of_watch_ends_training(labeled):
    model = sb.new("mlp", channels=1, height=4, width=4, classes=2)

    def watch(state):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        sb.train(model, labeled, options={"EPOCHS": 3}, watch=watch)


def test_data_gives_its_batches(labeled):
    data = sb.Data(labeled)
    assert len(data) == 64 and data.has_labels and data.batch_size == 16
    batches = list(data)
    assert [b.count for b in batches] == [16] * 4
    assert batches[0].inputs[0].shape == (16, 1, 4, 4)
    assert len(batches[0].labels) == 16
    assert [b.count for b in data] == [16] * 4


# ---- plug-ins ---------------------------------------------------------------

def with_observer(name, **params):
    observer = {"TYPE": name}
    if params:
        observer[name.upper()] = params
    return {**CONFIG, "A": {**CONFIG["A"], "OBSERVER": observer}}


def test_observer_in_python(cnn, images):
    context = sb.Context()
    seen = []

    def shrink(values):
        seen.append(values)
        x, count = np.asarray(values.x), np.asarray(values.count)
        assert len(x) == len(count)
        return values.least * values.params[0], values.most * values.params[0]

    sb.add_observer("shrink", shrink, params=[sb.Param("BY", 0.5)],
                    weights=False, context=context)
    assert "shrink" in [o["name"] for o in context.list("observers")]
    half = sb.quantize(sb.load(cnn, context=context), images,
                       config=with_observer("shrink"))
    whole = sb.quantize(sb.load(cnn, context=context), images,
                        config=with_observer("shrink", BY=1.0))
    plain = sb.quantize(cnn, images, config=CONFIG)
    for a, b, c in zip(half.quantizers, whole.quantizers, plain.quantizers):
        assert b.scale == pytest.approx(c.scale, rel=1e-6)
        if not a.is_weight and not a.fused:
            assert a.scale == pytest.approx([s / 2 for s in b.scale],
                                            rel=1e-5)
    assert seen and not seen[0].is_weight and seen[0].bits == 8


@pytest.mark.parametrize("function, error", [
    (lambda v: 1 / 0, ZeroDivisionError),
    (lambda v: None, TypeError),
    (lambda v: (1,), TypeError),
    (lambda v: (float("nan"), 1.0), sb.DataError),
    (lambda v: (2.0, 1.0), sb.DataError),
])
def test_observers_that_fail(cnn, images, function, error):
    context = sb.Context()
    sb.add_observer("bad", function, context=context)
    model = sb.load(cnn, context=context)
    with pytest.raises(error):
        sb.quantize(model, images, config=with_observer("bad"))
    sb.quantize(model, images, config=CONFIG)


def test_quantizer_in_python(cnn, images):
    context = sb.Context()
    sb.add_quantizer("cube", lambda x, params: np.asarray(x) ** 3,
                     activations=False, context=context)
    config = {**CONFIG, "W": {**CONFIG["W"],
                              "QUANTIZER": {"TYPE": "cube", "BIT": 8}}}
    quantized = sb.quantize(sb.load(cnn, context=context), images,
                            config=config)
    w = sb.load(cnn).weight("w1").numpy() ** 3
    q = next(q for q in quantized.quantizers
             if q.is_weight and q.name.startswith("conv1"))
    np.testing.assert_allclose(
        q.scale, np.abs(w).reshape(len(w), -1).max(1) * 2 / 255, rtol=1e-5)


def test_quantizer_that_returns_nonsense(cnn, images):
    context = sb.Context()
    sb.add_quantizer("bad", lambda x, params: np.zeros(2), activations=False,
                     context=context)
    config = {**CONFIG, "W": {**CONFIG["W"],
                              "QUANTIZER": {"TYPE": "bad", "BIT": 8}}}
    with pytest.raises(ValueError, match="floats"):
        sb.quantize(sb.load(cnn, context=context), images, config=config)


def with_criterion(name, kind="structured"):
    return {"SPARSER": {"TYPE": kind, "STRATEGY": name, "RATIO": 0.5}}


def test_criterion_in_python(cnn):
    context = sb.Context()
    axes = []

    def last(weight, axis):
        axes.append((np.asarray(weight).shape, axis))
        return list(range(np.asarray(weight).shape[axis], 0, -1))

    sb.add_criterion("last", last, context=context)
    assert "last" in [c["name"] for c in context.list("criteria")]
    pruned = sb.prune(sb.load(cnn, context=context),
                      config=with_criterion("last"))
    whole = sb.load(cnn).weight("w1").numpy()
    np.testing.assert_array_equal(pruned.model.weight("w1").numpy(),
                                  whole[:len(whole) // 2])
    assert (whole.shape, 0) in axes


def test_scores_that_are_not_finite_or_negative(cnn):
    whole = sb.load(cnn).weight("w1").numpy()

    def left(scores):
        context = sb.Context()
        sb.add_criterion("mine", lambda w, axis: scores[:np.asarray(w)
                         .shape[axis]], context=context)
        pruned = sb.prune(sb.load(cnn, context=context),
                          config=with_criterion("mine"))
        return pruned.model.weight("w1").numpy()

    np.testing.assert_array_equal(
        left([3.0, float("nan"), 1.0, 2.0, 7.0, 6.0, 5.0, 4.0]),
        whole[[1, 4, 5, 6]])
    np.testing.assert_array_equal(
        left([-3.0, -8.0, -1.0, -2.0, -7.0, -6.0, -5.0, -4.0]),
        whole[[0, 2, 3, 7]])


def test_criterion_of_elements_in_python(cnn):
    context = sb.Context()
    sb.add_criterion("signed", weigh=lambda w: np.asarray(w),
                     context=context)
    pruned = sb.prune(sb.load(cnn, context=context),
                      config=with_criterion("signed", "unstructured"))
    w = sb.load(cnn).weight("w2").numpy()
    want = np.where(w > np.sort(w, axis=None)[w.size // 2 - 1], w, 0)
    np.testing.assert_array_equal(pruned.model.weight("w2").numpy(), want)


@pytest.mark.parametrize("function, error", [
    (lambda w, axis: 1 / 0, ZeroDivisionError),
    (lambda w, axis: None, TypeError),
    (lambda w, axis: [1.0], ValueError),
    (lambda w, axis: ["a"], TypeError),
    (lambda w, axis: np.zeros(8, np.int32), ValueError),
])
def test_criteria_that_fail(cnn, function, error):
    context = sb.Context()
    sb.add_criterion("bad", function, context=context)
    model = sb.load(cnn, context=context)
    with pytest.raises(error):
        sb.prune(model, config=with_criterion("bad"))
    with pytest.raises(sb.ConfigError, match="not for TYPE unstructured"):
        sb.prune(model, config=with_criterion("bad", "unstructured"))
    sb.prune(model, config=with_criterion("l1norm"))


def test_names_that_are_taken_are_refused():
    with pytest.raises(sb.ArgumentError, match="l1norm"):
        sb.add_criterion("l1norm", lambda w, axis: [], context=sb.Context())
    with pytest.raises(sb.ArgumentError, match="minmax"):
        sb.add_observer("minmax", lambda v: (0, 1), context=sb.Context())


@pytest.mark.parametrize("add, what", [
    (lambda: sb.add_observer("three", 3), "function"),
    (lambda: sb.add_quantizer("three", 3), "map_weight"),
    (lambda: sb.add_criterion("three", 3), "score"),
    (lambda: sb.add_criterion("three", weigh=3), "weigh"),
])
def test_what_is_no_function_is_no_plug_in(add, what):
    with pytest.raises(TypeError, match=what + ": found 3"):
        add()


def test_plug_ins_may_return_tensors(cnn, images):
    def scales(function):
        context = sb.Context()
        sb.add_quantizer("bent", function, context=context)
        w = {**CONFIG["W"], "QUANTIZER": {"TYPE": "bent", "BIT": 8}}
        made = sb.quantize(sb.load(cnn, context=context), images,
                           config={**CONFIG, "W": w})
        return [q.scale for q in made.quantizers]

    assert scales(lambda x, p: sb.tensor(np.tanh(x))) == scales(
        lambda x, p: np.tanh(x))


@pytest.mark.parametrize("label", [0.5, 2**70, "1", None])
def test_labels_are_whole_numbers(cnn, images, label):
    with pytest.raises(sb.DataError, match="labels"):
        sb.evaluate(cnn, [(images[0], [label] * 4)])


def test_more_blocks_to_recompute_than_nodes(cnn, images):
    target = np.arange(4)
    least, most = (sb.Learner(cnn, recompute=n) for n in (0, 2**62))
    assert most.step(images[0], target) == least.step(images[0], target)
    with pytest.raises(sb.ArgumentError, match="recompute: found -1"):
        sb.Learner(cnn, recompute=-1)


def test_a_learning_rate_is_a_number(cnn):
    learner = sb.Learner(cnn)
    for rate in (math.nan, -1, math.inf):
        with pytest.raises(sb.ArgumentError, match="learning_rate"):
            learner.learning_rate = rate
    with pytest.raises(TypeError, match="learning_rate: found 'x'"):
        learner.learning_rate = "x"
    assert learner.learning_rate == 0.01
