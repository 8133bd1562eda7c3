"""Arrays in and out: types, shapes, memory that is shared, bad ones."""

import array
import ctypes
import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

import sparsebit as sb
from conftest import TINY, tiny_numpy

TYPES = ["float32", "float64", "float16", "int8", "uint8", "int16", "uint16",
         "int32", "uint32", "int64", "uint64", "bool", "complex64",
         "complex128"]
ARRAYS = hn.arrays(st.sampled_from(TYPES),
                   hn.array_shapes(min_dims=0, max_dims=5, min_side=0,
                                   max_side=4))


def address(a):
    return a.__array_interface__["data"][0]


@given(ARRAYS)
def test_array_survives_both_ways(a):
    t = sb.tensor(a)
    assert t.shape == a.shape and t.dtype == a.dtype.name
    assert t.size == a.size and t.nbytes == a.nbytes
    back = t.numpy()
    assert back.dtype == a.dtype and back.tobytes() == a.tobytes()


@given(ARRAYS)
def test_memory_is_shared_not_copied(a):
    a = np.array(a)  # writable and contiguous
    t = sb.tensor(a)
    if a.size:
        assert t.data_ptr == address(a)
        assert address(t.numpy()) == address(a)
        a.flat[0] = 1
        assert t.numpy().flat[0] == 1


@given(ARRAYS)
def test_dlpack_shares_memory(a):
    a = np.array(a)
    t = sb.tensor(a)
    back = np.from_dlpack(t)
    assert back.shape == a.shape and back.tobytes() == a.tobytes()
    if a.size:
        assert address(back) == address(a)
    assert t.__dlpack_device__() == (1, 0)


@given(hn.arrays("float32", hn.array_shapes(min_dims=1, max_dims=4)),
       st.data())
def test_strided_arrays_are_copied_right(a, data):
    index = tuple(slice(None, None, data.draw(st.sampled_from([1, 2, -1])))
                  for _ in a.shape)
    view = a[index].T
    assert sb.tensor(view).numpy().tobytes() == view.tobytes()


@given(hn.arrays("float32", st.tuples(st.integers(1, 5), st.just(3)),
                 elements=st.floats(-100, 100, width=32)))
def test_tolist_is_numpys(a):
    assert sb.tensor(a).tolist() == a.tolist()


def test_array_stays_while_tensor_does():
    a = np.arange(12, dtype=np.float32)
    t = sb.tensor(a)
    view = t.numpy()
    del a, t
    gc.collect()
    assert view.tolist() == list(range(12))


def test_capsule_that_is_not_taken_lets_go():
    t = sb.tensor(np.arange(3, dtype=np.float32))
    for version in (None, (1, 0)):
        capsule = t.__dlpack__(max_version=version)
        assert "dltensor" in repr(capsule)
        del capsule
    assert t.tolist() == [0, 1, 2]


def test_buffers_without_numpy():
    a = array.array("f", [1, 2, 3])
    assert sb.tensor(a).tolist() == [1, 2, 3]
    assert memoryview(sb.tensor(a)).tolist() == [1, 2, 3]
    m = memoryview(bytearray(12)).cast("f", (1, 3))
    assert sb.tensor(m).shape == (1, 3)


def test_buffers_say_which_order_they_have():
    """As NumPy does: PyBUF_F_CONTIGUOUS is refused where rows lie in a row."""
    def column_major(a):
        view = (ctypes.c_char * 128)()  # a Py_buffer has 80 bytes
        if ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(a), view, 0x58):
            return False
        ctypes.pythonapi.PyBuffer_Release(view)
        return True

    for shape in (), (3,), (1, 3), (3, 1), (2, 3), (2, 1, 3), (2, 0, 3):
        a = np.zeros(shape, np.float32)
        try:
            want = column_major(a)
        except (BufferError, ValueError):
            want = False
        try:
            got = column_major(sb.tensor(a))
        except BufferError:
            got = False
        assert got == want == a.flags.f_contiguous, shape


def test_readonly_arrays_are_read_and_not_written():
    a = np.arange(3, dtype=np.float32)
    a.flags.writeable = False
    t = sb.tensor(a)
    t.numpy()[0] = 7  # a copy of ours
    assert a[0] == 0


def test_strings():
    t = sb.tensor(["a", "bc"])
    assert t.dtype == "string" and t.tolist() == ["a", "bc"]
    assert sb.tensor(np.array([["x"], ["y"]])).tolist() == [["x"], ["y"]]
    with pytest.raises(BufferError, match="string"):
        memoryview(t)


def test_torch_both_ways():
    torch = pytest.importorskip("torch")
    a = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    t = sb.tensor(a)
    assert t.data_ptr == a.data_ptr()
    assert t.torch().data_ptr() == a.data_ptr()
    assert sb.tensor(a.t()).tolist() == a.t().tolist()
    b = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
    assert sb.tensor(b).dtype == "bfloat16"
    assert torch.equal(sb.tensor(b).torch(), b.detach())


@pytest.mark.parametrize("bad, error", [
    (np.zeros(2, ">f4"), TypeError),
    (np.zeros(2, [("a", "f4"), ("b", "i4")]), TypeError),
    (np.zeros(2, "M8[s]"), (TypeError, ValueError)),
    (np.zeros((1,) * 13, "f4"), ValueError),
    (np.array([object()]), (TypeError, ValueError)),
    ("text", TypeError), (None, TypeError), ({}, TypeError),
    (object(), TypeError),
])
def test_bad_arrays_are_exceptions(bad, error):
    with pytest.raises(error):
        sb.tensor(bad)


def test_outputs_are_the_callers(tiny):
    session = sb.Session(tiny)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = np.zeros((2, 4), np.float32)
    pointer = address(out)
    result, = session.run(x, out=[out])
    assert result is out and address(out) == pointer
    np.testing.assert_array_equal(out, tiny_numpy(x))
    given_one, = session.run(x, out=[None])
    np.testing.assert_array_equal(given_one, tiny_numpy(x))


def readonly(shape):
    a = np.zeros(shape, np.float32)
    a.flags.writeable = False
    return a


@pytest.mark.parametrize("out, error", [
    (np.zeros((2, 4), np.float64), ValueError),
    (np.zeros((2, 5), np.float32), ValueError),
    (np.zeros((2, 8), np.float32)[:, ::2], ValueError),
    (readonly((2, 4)), ValueError),
    ([[0.0] * 4] * 2, TypeError),
    (object(), TypeError),
])
def test_bad_outputs_are_exceptions(out, error):
    session = sb.Session(sb.parse(TINY))
    with pytest.raises(error):
        session.run(np.zeros((2, 3), np.float32), out=[out])
    session.run(np.zeros((2, 3), np.float32))  # still works


def test_sub_byte_types_are_read():
    model = sb.parse("graph g(x: f32[2]) -> (y) {\n"
                     "  w: i4[2] = [-8, 7]\n  f = Cast(w) {to=1}\n"
                     "  y = Add(x, f)\n}\n")
    w = model.weight("w")
    assert w.tolist() == [-8, 7] and w.dtype == "int4"
    with pytest.raises(BufferError, match="int4"):
        memoryview(w)


def test_numbers_alone_have_no_dimensions():
    assert sb.tensor(3.5).shape == np.asarray(3.5).shape == ()
    y, = sb.Session(sb.parse("graph g(x: f64[]) -> (y: f64[]) {\n"
                             "  y = Neg(x)\n}\n")).run(3.5)
    assert y.tolist() == -3.5


def test_a_string_is_not_cut_at_a_null_character():
    with pytest.raises(ValueError, match="null"):
        sb.tensor(["a\0b"])
