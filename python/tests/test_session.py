"""Models and sessions, beside ONNX Runtime."""

import gc
import weakref

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

import sparsebit as sb
from conftest import TINY, TINY_WEIGHT, random_cnn, tiny_numpy


@given(st.integers(0, 5), st.integers(1, 6), st.sampled_from([4, 8, 12]))
def test_results_are_onnx_runtimes(seed, n, channels):
    proto = random_cnn(seed, channels)
    x = np.random.default_rng(seed).standard_normal((n, 3, 8, 8))
    x = x.astype(np.float32)
    want, = ort.InferenceSession(proto.SerializeToString(), providers=[
        "CPUExecutionProvider"]).run(None, {"image": x})
    got, = sb.Session(proto).run(x)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_model_is_a_path_bytes_or_a_proto(tmp_path, cnn):
    path = tmp_path / "m.onnx"
    onnx.save(cnn, path)
    texts = {sb.load(m).graph() for m in (
        path, str(path), cnn, cnn.SerializeToString(),
        bytearray(cnn.SerializeToString()))}
    assert len(texts) == 1
    model = sb.load(cnn)
    assert sb.load(model) is model
    with pytest.raises(TypeError, match="a model is a path"):
        sb.load(12)


def test_inspecting(tiny):
    assert [v.name for v in tiny.inputs] == ["x"]
    assert tiny.inputs[0].shape == (-1, 3) and tiny.inputs[0].dtype == "float"
    assert [n.op for n in tiny.nodes] == ["MatMul", "Add", "Relu"]
    assert tiny.nodes[0].module == "fc"
    assert tiny.info.params == 16
    np.testing.assert_array_equal(tiny.weight("fc.weight"), TINY_WEIGHT)
    with pytest.raises(KeyError, match="nothing"):
        tiny.weight("nothing")
    tiny.set_metadata("a", "b")
    assert tiny.metadata["a"] == "b"
    assert "flowchart" in tiny.graph("mermaid")
    with pytest.raises(sb.ArgumentError, match="format.*'x'.*text"):
        tiny.graph("x")


def test_attributes(cnn):
    conv = sb.load(cnn).nodes[0]
    assert conv.attrs["pads"] == [1, 1, 1, 1]


def test_changing_weights(tiny):
    old = sb.Session(tiny)
    tiny.set_weight("fc.weight", 2 * TINY_WEIGHT)
    x = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(old.run(x)[0], tiny_numpy(x))
    np.testing.assert_array_equal(sb.Session(tiny).run(x)[0],
                                  tiny_numpy(2 * x))
    with pytest.raises(sb.Error, match="fc.weight"):
        tiny.set_weight("fc.weight", np.zeros((3, 5), np.float32))


def test_saving(tmp_path, tiny):
    tiny.save(tmp_path / "m.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"))
    assert sb.load(tmp_path / "m.onnx").graph() == tiny.graph()
    assert sb.load(tiny.to_bytes()).graph() == tiny.graph()
    with pytest.raises(OSError, match="nowhere"):
        tiny.save(tmp_path / "nowhere" / "m.onnx")


def test_inputs_by_name_and_position(tiny):
    session = sb.Session(tiny)
    x = np.ones((2, 3), np.float32)
    for result in (session.run(x), session({"x": x})):
        np.testing.assert_array_equal(result[0], tiny_numpy(x))
    with pytest.raises(sb.ArgumentError, match="'z'.*x"):
        session.run({"z": x})


@pytest.mark.parametrize("inputs, line", [
    ((np.zeros((2, 3)),), "x"),
    ((np.zeros((2, 4), np.float32),), "x"),
    ((np.zeros(3, np.float32),), "x"),
    ((), "1"),
    ((np.zeros((2, 3), np.float32),) * 2, "1"),
    ((None,), "x"),
])
def test_wrong_inputs_are_exceptions(inputs, line):
    session = sb.Session(sb.parse(TINY))
    with pytest.raises(sb.Error, match=line) as caught:
        session.run(*inputs)
    assert isinstance(caught.value, ValueError) and caught.value.status > 0
    assert "\n" not in str(caught.value)
    session.run(np.zeros((2, 3), np.float32))


def test_statuses_are_built_in_exceptions_too(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x07nonsense")
    with pytest.raises(sb.ModelError) as caught:
        sb.load(tmp_path / "bad.onnx")
    assert isinstance(caught.value, ValueError)
    with pytest.raises(sb.FileError, match="absent.onnx") as caught:
        sb.load(tmp_path / "absent.onnx")
    assert isinstance(caught.value, OSError)
    with pytest.raises(sb.NoMemoryError) as caught:
        sb.load(random_cnn(), context=sb.Context(max_memory=1000))
    assert isinstance(caught.value, MemoryError)


def test_objects_outlive_what_they_came_from():
    context = sb.Context()
    model = sb.parse(TINY, context)
    session = sb.Session(model)
    clone = model.clone(sb.Context())
    other = sb.Session(clone)
    gone = weakref.ref(model)
    del model, clone
    gc.collect()
    assert gone() is None
    x = np.ones((1, 3), np.float32)
    out = session.run(x)[0]
    del session, context
    gc.collect()
    np.testing.assert_array_equal(out, tiny_numpy(x))
    np.testing.assert_array_equal(other.run(x)[0], tiny_numpy(x))


def test_objects_of_two_contexts_do_not_mix(tmp_path, images, cnn):
    np.save(tmp_path / "x.npy", images[0])
    quantized = sb.quantize(sb.load(cnn, context=sb.Context()), images,
                            preset="fast")
    (tmp_path / "d.yaml").write_text("SOURCE: npy\nPATH: x.npy\n")
    with pytest.raises(sb.ArgumentError, match="context"):
        sb.analyze(quantized, sb.Data(tmp_path / "d.yaml"))


def test_profile(tiny):
    session = sb.Session(tiny, profile=True)
    for _ in range(3):
        session.run(np.ones((1, 3), np.float32))
    assert session.profile()["runs"] >= 1 and session.workspace >= 0


def test_new_networks_and_lists():
    names = [n["name"] for n in sb.default_context().list("nets")]
    assert "resnet20" in names
    model = sb.new("mlp", channels=1, height=4, width=4, classes=3)
    y, = sb.Session(model).run(np.zeros((2, 1, 4, 4), np.float32))
    assert y.shape == (2, 3)


def test_a_negative_number_of_outputs_is_refused(tiny):
    with pytest.raises(ValueError, match="found -1"):
        sb._core.session_run(sb.Session(tiny)._handle,
                             (np.zeros((1, 3), np.float32),), -1)


def test_inputs_are_read_where_they_lie():
    """An input that is larger than all the memory the context may take."""
    context = sb.Context(threads=1, max_memory=8 << 20)
    session = sb.Session(sb.parse(
        "graph g(x: f32[N,1024]) -> (y) {\n"
        "    y = ReduceMax(x) {axes=[0, 1], keepdims=0}\n}\n", context))
    x = np.zeros((8192, 1024), np.float32)
    x[5000, 7] = 3
    assert session.run(x)[0].tolist() == 3
    assert context.memory < 8 << 20
    with pytest.raises(sb.NoMemoryError):  # which a result of that size needs
        sb.Session(sb.parse("graph g(x: f32[N,1024]) -> (y) {\n"
                            "    y = Neg(x)\n}\n", context)).run(x)


@given(st.data())
def test_any_array_is_computed_or_refused(data):
    """Whatever type, shape and strides an array has: NumPy's result or an
    exception, and the session still works."""
    dtype = data.draw(st.sampled_from(
        ["f4", "f8", "f2", "i4", "i8", "u1", "?", ">f4", "c8", "S3"]))
    shape = data.draw(hn.array_shapes(min_dims=0, max_dims=4, min_side=0,
                                      max_side=4) | st.just((2, 3)))
    a = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    for axis in range(a.ndim):
        step = data.draw(st.sampled_from([1, -1, 2]))
        a = a[(slice(None),) * axis + (slice(None, None, step),)]
    if data.draw(st.booleans()):
        a = a.T
    a.flags.writeable = data.draw(st.booleans()) and a.flags.writeable
    session = sb.Session(sb.parse(TINY))
    fits = a.dtype == np.float32 and a.dtype.isnative and \
        a.ndim == 2 and a.shape[1] == 3
    try:
        got, = session.run(a)
    except (sb.Error, TypeError, ValueError):
        assert not fits
    else:
        assert fits
        np.testing.assert_array_equal(got, tiny_numpy(a))
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(session.run(x)[0], tiny_numpy(x))
