"""Quantization: samples from anywhere, scales, files, bad settings."""

import struct

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

import sparsebit as sb
from conftest import TINY

CONFIG = {
    "BACKEND": "virtual",
    "W": {"QSCHEME": "per-channel-symmetric", "QUANTIZER": {
        "TYPE": "uniform", "BIT": 8}, "OBSERVER": {"TYPE": "MINMAX"}},
    "A": {"QSCHEME": "per-tensor-affine", "QUANTIZER": {
        "TYPE": "uniform", "BIT": 8}, "OBSERVER": {"TYPE": "MINMAX"}},
}


class Reader:
    """As ONNX Runtime's CalibrationDataReader."""

    def __init__(self, arrays):
        self.left = list(arrays)

    def get_next(self):
        return {"image": self.left.pop(0)} if self.left else None


class Loader:
    """As a torch DataLoader: pairs of samples and labels."""

    def __init__(self, arrays):
        self.arrays = arrays

    def __len__(self):
        return len(self.arrays)

    def __iter__(self):
        for a in self.arrays:
            yield [a, np.arange(len(a))]


def scales(quantized):
    return [(q.name, q.scale, q.zero_point) for q in quantized.quantizers]


def sources(arrays, tmp_path):
    np.save(tmp_path / "x.npy", np.concatenate(arrays))
    (tmp_path / "d.yaml").write_text("SOURCE: npy\nPATH: x.npy\nBATCH: 4\n")
    yield arrays
    yield tuple(arrays)
    yield (a for a in arrays)
    yield [(a,) for a in arrays]
    yield [{"image": a} for a in arrays]
    yield [{"image": a, "labels": np.zeros(len(a))} for a in arrays]
    yield Reader(arrays)
    yield Loader(arrays)
    yield np.concatenate(arrays)
    yield [a.astype(np.float64) for a in arrays]
    yield [sb.tensor(a) for a in arrays]
    yield tmp_path / "d.yaml"
    yield str(tmp_path / "x.npy")
    yield sb.Data(tmp_path / "d.yaml")


def test_every_source_gives_the_same_scales(cnn, images, tmp_path):
    want = scales(sb.quantize(cnn, images, config=CONFIG))
    assert any(s for _, s, _ in want)
    for source in sources(images, tmp_path):
        quantized = sb.quantize(cnn, source, config=CONFIG)
        assert scales(quantized) == want, type(source)
        assert quantized.samples == 12


@given(hn.arrays("float32", (6, 3),
                 elements=st.floats(-50, 50, width=32)))
def test_scales_are_the_definition(x):
    quantized = sb.quantize(sb.parse(TINY), [x], config=CONFIG)
    q = next(q for q in quantized.quantizers if not q.is_weight)
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = max((np.float32(high) - np.float32(low)) / np.float32(255), 1e-6)
    assert q.scale == pytest.approx([scale], rel=1e-6)
    assert q.zero_point == [np.round(-low / np.float32(q.scale[0]))]
    w = next(q for q in quantized.quantizers if q.is_weight)
    weight = np.abs(np.array([[1, 0, 2, 0], [0, 1, 0, 2], [1, 1, 1, 1]]))
    np.testing.assert_allclose(w.scale, weight.max(0) * 2 / 255, rtol=1e-6)


@pytest.mark.parametrize("format", ["qdq", "qoperator"])
def test_files_run_in_onnx_runtime(tmp_path, cnn, images, format):
    quantized = sb.quantize(cnn, images, target="onnxruntime-x86",
                            reduce_range="all")
    path = tmp_path / "q.onnx"
    quantized.save(path, format=format)
    onnx.checker.check_model(onnx.load(path))
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    want, = session.run(None, {"image": images[0]})
    got, = sb.Session(path, integer="on").run(images[0])
    simulated, = quantized.run(images[0])
    step = max(q.scale[0] for q in quantized.quantizers if not q.is_weight)
    np.testing.assert_allclose(got, want, atol=2 * step)
    np.testing.assert_allclose(simulated, want, atol=4 * step)
    assert quantized.to_bytes(format=format) == path.read_bytes()
    assert len(quantized.to_model(format=format).nodes) == \
        len(sb.load(path).nodes)


def test_save_without_a_path_is_an_exception(cnn, images):
    with pytest.raises(TypeError, match="NoneType"):
        sb.quantize(cnn, images).save(None)


def test_weight_only_needs_no_data(cnn):
    config = {"W": CONFIG["W"], "A": "none"}
    assert sb.quantize(cnn, config=config).samples == 0
    with pytest.raises(sb.ArgumentError, match="needs samples"):
        sb.quantize(cnn, config=CONFIG)


def test_calibration_is_kept_in_a_file(tmp_path, cnn, images):
    first = sb.quantize(cnn, images, config=CONFIG)
    first.save_calibration(tmp_path / "seen.json")
    again = sb.quantize(cnn, config=CONFIG,
                        load_calibration=[tmp_path / "seen.json"])
    assert scales(again) == scales(first)
    alone = sb.quantize(cnn, config=CONFIG,
                        load_calibration=str(tmp_path / "seen.json"))
    assert scales(alone) == scales(first)


def test_asym_calibrates_behind_quantized_layers(cnn, images):
    plain = scales(sb.quantize(cnn, images, config=CONFIG))
    behind = scales(sb.quantize(cnn, images, config=CONFIG, asym="wa"))
    assert [n for n, _, _ in plain] == [n for n, _, _ in behind]
    assert plain != behind


def test_exclude(cnn, images):
    names = {q.name for q in sb.quantize(cnn, images, config=CONFIG,
                                         exclude=["fc"]).quantizers}
    assert not any(n.startswith("fc.") for n in names) and names
    with pytest.raises(sb.Error, match="nothing_like_it"):
        sb.quantize(cnn, images, exclude=["nothing_like_it"])


def test_config_as_file_text_and_dict(tmp_path, cnn, images):
    text = sb.Config(CONFIG).read()
    (tmp_path / "q.yaml").write_text(text)
    results = [scales(sb.quantize(cnn, images, config=c)) for c in
               (CONFIG, text, tmp_path / "q.yaml", sb.Config(CONFIG))]
    assert all(r == results[0] for r in results)
    assert "BIT" in sb.default_config()
    assert sb.check_config(CONFIG)


@pytest.mark.parametrize("change, line", [
    ({"NOPE": 1}, "NOPE"),
    ({"BACKEND": "abacus"}, "abacus"),
    ({"W": {**CONFIG["W"], "QUANTIZER": {"TYPE": "uniform", "BIT": 99}}},
     "BIT"),
    ({"A": {**CONFIG["A"], "OBSERVER": {"TYPE": "crystal ball"}}}, "ball"),
])
def test_wrong_config_is_an_exception(cnn, images, change, line):
    with pytest.raises(sb.ConfigError, match=line):
        sb.quantize(cnn, images, config={**CONFIG, **change})


@pytest.mark.parametrize("data, line", [
    ([np.zeros((1, 3, 9, 9), np.float32)], "image"),
    ([np.zeros((1, 4, 8, 8), np.float32)], "image"),
    ([{"photo": np.zeros((1, 3, 8, 8), np.float32)}], "photo"),
    ([(1, 2, 3)], "3 arrays"),
    ([np.full((1, 3, 8, 8), np.nan, np.float32)], "nan|NaN|finite"),
])
def test_wrong_samples_are_exceptions(cnn, data, line):
    with pytest.raises(sb.Error, match=line):
        sb.quantize(cnn, data, config=CONFIG)


def test_exceptions_of_iterables_arrive_unchanged(cnn, images):
    def samples():
        yield images[0]
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        sb.quantize(cnn, samples(), config=CONFIG)


def test_fixed_batches_are_cut(tmp_path):
    text = TINY.replace("[N,", "[2,")
    x = np.ones((6, 3), np.float32)
    assert sb.quantize(sb.parse(text), [x], config=CONFIG).samples == 6
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "d.yaml").write_text("SOURCE: npy\nPATH: x.npy\nBATCH: 6\n")
    for data in (tmp_path / "d.yaml", sb.Data(tmp_path / "d.yaml")):
        assert sb.quantize(sb.parse(text), data, config=CONFIG).samples == 6


GRAY = """graph gray(image: f32[BATCH,1,8,8]) -> (y: f32[*]) {
    w: f32[2,1,1,1] = [1, 1]
    y = Conv(image, w) "conv"
}
"""


@pytest.mark.parametrize("batch", ["N", "1"])  # as it comes; to be cut
def test_augment_calibrates_on_other_versions_too(tmp_path, batch):
    """Two gray images of 100, varied as bright as 50 to 150: of 512 of them one
    is as bright as 149."""
    (tmp_path / "gray.idx").write_bytes(
        struct.pack(">IIII", 0x803, 2, 8, 8) + bytes([100]) * 128)
    (tmp_path / "d.yaml").write_text(
        "SOURCE: idx\nPATH: gray.idx\nBATCH: 2\nSCALE: 1\n"
        "AUGMENT: {COLOR_JITTER: 0.5}\n")
    model = sb.parse(GRAY.replace("BATCH", batch))
    for data in (tmp_path / "d.yaml", sb.Data(tmp_path / "d.yaml")):
        for augment, least, most in ((0, 99.9, 100.1), (255, 148.5, 150.5)):
            quantized = sb.quantize(model, data, config=CONFIG, augment=augment)
            assert quantized.samples == 2 * (1 + augment)
            first = next(q for q in quantized.quantizers if q.value == "image")
            assert least < first.scale[0] * 255 < most


def test_augment_says_what_it_needs(cnn, images, tmp_path):
    for options, line in (
            ({}, "augment goes with config"),
            ({"config": CONFIG, "data": None}, "augment: there are no samples"),
            ({"config": CONFIG}, "a data file of images with AUGMENT"),
            ({"config": CONFIG, "augment": -1}, "augment: found -1")):
        with pytest.raises(sb.ArgumentError, match=line):
            sb.quantize(cnn, **{"data": images, "augment": 1, **options})


def test_no_samples_is_an_exception(cnn):
    with pytest.raises(sb.Error):
        sb.quantize(cnn, [], config=CONFIG)


def test_graph_and_html(cnn, images):
    quantized = sb.quantize(cnn, images, config=CONFIG)
    assert "flowchart" in quantized.graph("mermaid")
    page = quantized._repr_html_()
    assert page.count("<tr>") == 1 + sum(not q.fused
                                         for q in quantized.quantizers)
    assert "<table>" in sb.load(cnn)._repr_html_()


@given(st.data())
def test_however_samples_come_scales_are_the_same(data):
    """Cut into batches at any place, each in any of the forms."""
    x = np.random.default_rng(11).standard_normal((9, 3)).astype(np.float32)
    cuts = sorted(data.draw(st.sets(st.integers(1, 8))))
    forms = {"array": lambda a: a, "tuple": lambda a: (a,),
             "labels": lambda a: (a, np.zeros(len(a), np.int64)),
             "dict": lambda a: {"x": a}, "double": lambda a: a.astype("f8"),
             "strided": lambda a: np.repeat(a, 2, 1)[:, ::2],
             "tensor": sb.tensor, "view": lambda a: memoryview(a.copy())}
    items = [forms[data.draw(st.sampled_from(sorted(forms)))](part)
             for part in np.split(x, cuts)]
    quantized = sb.quantize(sb.parse(TINY), iter(items), config=CONFIG)
    assert quantized.samples == 9
    assert scales(quantized) == scales(
        sb.quantize(sb.parse(TINY), x, config=CONFIG))


@pytest.mark.parametrize("options, error, line", [
    ({"samples": -1}, sb.ArgumentError, "samples: found -1"),
    ({"samples": 2.5}, TypeError, "samples: found 2.5"),
    ({"batch": -3}, sb.ArgumentError, "batch: found -3"),
    ({"asym": "x"}, sb.ArgumentError, "asym: found"),
    ({"asym": 3}, TypeError, "asym: found 3"),
    ({"exclude": 3}, TypeError, "exclude: found 3"),
    ({"exclude": [None]}, TypeError, "exclude: found None"),
    ({"exclude": "a\0b"}, ValueError, "null"),
    ({"load_calibration": 3}, TypeError, "load_calibration: found 3"),
    ({"accuracy_drop": "x"}, TypeError, "accuracy_drop: found 'x'"),
    ({"target": 3}, TypeError, "target must be str"),
    ({"data": 3}, TypeError, "data: found int"),
    ({"data": b"photos"}, TypeError, "data: found bytes"),
])
def test_wrong_options_are_named(cnn, images, options, error, line):
    with pytest.raises(error, match=line):
        sb.quantize(cnn, **{"data": images, **options})


def test_an_iterator_that_is_at_its_end_is_an_exception(cnn, images):
    once = iter(images)
    quantized = sb.quantize(cnn, once)
    for use in (sb.quantize, sb.evaluate):
        with pytest.raises(sb.DataError, match="no samples"):
            use(cnn, once)
    with pytest.raises(sb.DataError, match="no samples"):
        sb.analyze(quantized, once)
    with pytest.raises(TypeError, match="data: found NoneType"):
        sb.analyze(quantized, None)


def test_numbers_of_numpy_in_a_config(cnn, images):
    w = {**CONFIG["W"], "QUANTIZER": {"TYPE": "uniform", "BIT": np.int64(4)}}
    quantized = sb.quantize(cnn, images, config={**CONFIG, "W": w})
    assert {q.bits for q in quantized.quantizers if q.is_weight} == {4}


def test_tensors_are_cut_for_a_fixed_batch(cnn, images):
    model = sb.load(cnn)
    model.fix_shape("image", [2, 3, 8, 8])
    from_arrays, from_tensors = (
        [q.scale for q in sb.quantize(model, data).quantizers]
        for data in (images, [sb.tensor(a) for a in images]))
    assert from_tensors == from_arrays
