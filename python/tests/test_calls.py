"""Calls: callbacks that raise, Ctrl-C, threads, forks, memory."""

import gc
import logging
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import sparsebit as sb
from conftest import (SANITIZED, TINY, heavy_model, random_cnn, resident,
                      tiny_numpy)

X = np.ones((2, 3), np.float32)


def when_busy(context, action):
    """A thread that acts while the context is at work."""
    def wait():
        while not context.is_busy:
            pass
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


class Special(Exception):
    pass


def test_exception_of_progress_arrives_unchanged(cnn, images):
    context = sb.Context()
    model = sb.load(cnn, context=context)
    error = Special("mine")
    stages = []

    def progress(stage, done, total):
        stages.append(stage)
        if stage == "calibrate":
            raise error

    with pytest.raises(Special) as caught:
        sb.quantize(model, images, preset="fast", progress=progress)
    assert caught.value is error and "calibrate" in stages
    assert context.progress is None
    sb.quantize(model, images, preset="fast")  # the context is usable


def test_exception_inside_of_a_call_arrives_unchanged(cnn):
    context = sb.Context()
    error = Special("mine")

    def progress(stage, done, total):
        raise error

    with pytest.raises(Special) as caught:
        sb.load(cnn, context=context, progress=progress)
    assert caught.value is error
    assert error.__traceback__ is not None
    sb.load(cnn, context=context)


def test_callbacks_that_raise_leak_nothing(cnn):
    context = sb.Context()
    data = cnn.SerializeToString()

    def progress(stage, done, total):
        raise Special

    def once():
        with pytest.raises(Special):
            sb.load(data, context=context, progress=progress)

    once()
    gc.collect()
    before = context.memory
    for _ in range(50):
        once()
    assert context.memory == before


def test_calls_from_callbacks_are_refused(cnn, tiny):
    context = sb.Context()
    model = sb.load(cnn, context=context)
    other = sb.Session(tiny)
    results = []

    def progress(stage, done, total):
        results.append(other.run(X))  # another context is fine
        model.inputs

    with pytest.raises(RuntimeError, match="callback of the same context"):
        sb.Session(model, progress=progress)
    assert results
    assert model.inputs[0].name == "image"


def test_log_goes_to_logging(caplog, tmp_path):
    context = sb.Context()
    proto = random_cnn()
    import onnx

    proto.graph.input.append(onnx.helper.make_tensor_value_info(
        "w1", onnx.TensorProto.FLOAT, [8, 3, 3, 3]))
    with caplog.at_level(logging.INFO, logger="sparsebit"):
        sb.load(proto, context=context)
    assert any("initializer" in record.getMessage()
               for record in caplog.records)


def test_interrupt_from_another_thread():
    context = sb.Context()
    session = sb.Session(heavy_model(context))
    x = np.full((2048, 2048), 1e-4, np.float32)
    thread = when_busy(context, context.interrupt)
    with pytest.raises(sb.Interrupted):
        session.run(x)
    thread.join()
    small = sb.Session(sb.parse(TINY, context))
    np.testing.assert_array_equal(small.run(X)[0], tiny_numpy(X))


@pytest.fixture
def ctrl_c():
    """As in a terminal: in the background a shell has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_is_keyboard_interrupt(ctrl_c):
    context = sb.Context()
    session = sb.Session(heavy_model(context))
    x = np.full((2048, 2048), 1e-4, np.float32)
    thread = when_busy(context,
                       lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        session.run(x)
    thread.join()
    small = sb.Session(sb.parse(TINY, context))
    np.testing.assert_array_equal(small.run(X)[0], tiny_numpy(X))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_does_not_raise_still_ends_the_call():
    context = sb.Context()
    session = sb.Session(heavy_model(context))
    x = np.full((2048, 2048), 1e-4, np.float32)
    seen = []
    before = signal.signal(signal.SIGINT, lambda *args: seen.append(args[0]))
    try:
        thread = when_busy(context,
                           lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(sb.Interrupted):
            session.run(x)
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


def test_threads_share_a_context():
    session = sb.Session(sb.parse(TINY))
    errors = []

    def work(seed):
        x = np.random.default_rng(seed).standard_normal((5, 3))
        x = x.astype(np.float32)
        for _ in range(200):
            if not np.allclose(session.run(x)[0], tiny_numpy(x), atol=1e-5):
                errors.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_threads_with_contexts_of_their_own(cnn):
    model = sb.load(cnn)
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8))
    x = x.astype(np.float32)
    want = sb.Session(model).run(x)[0].numpy()
    errors = []

    def work():
        session = sb.Session(model.clone(sb.Context(threads=1)))
        for _ in range(50):
            if not np.array_equal(session.run(x)[0], want):
                errors.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_same_result_for_any_number_of_threads(cnn):
    x = np.random.default_rng(0).standard_normal((3, 3, 8, 8))
    x = x.astype(np.float32)
    results = {sb.Session(sb.load(cnn, context=sb.Context(threads=n)))
               .run(x)[0].numpy().tobytes() for n in (1, 2, 4)}
    assert len(results) == 1


def child(work):
    """Exit code of a forked child that works."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_forked_children_can_use_everything(cnn, images):
    session = sb.Session(cnn)
    want = session.run(images[0])[0].numpy().copy()

    def work():
        assert np.array_equal(session.run(images[0])[0], want)
        assert np.array_equal(sb.Session(cnn).run(images[0])[0], want)

    for _ in range(3):
        assert child(work) == 0
    np.testing.assert_array_equal(session.run(images[0])[0], want)


def test_fork_while_another_thread_computes():
    context = sb.Context()
    session = sb.Session(heavy_model(context))
    x = np.full((2048, 2048), 1e-4, np.float32)

    def compute():
        with pytest.raises(sb.Interrupted):
            session.run(x)

    def work():
        try:
            session.run(x)
        except RuntimeError as error:
            assert "forked" in str(error)
            np.testing.assert_array_equal(
                sb.Session(sb.parse(TINY, sb.Context())).run(X)[0],
                tiny_numpy(X))
            return
        raise AssertionError

    thread = threading.Thread(target=compute)
    thread.start()
    while not context.is_busy:
        pass
    code = child(work)
    context.interrupt()
    thread.join()
    assert code == 0


GROWTH = 4 << 20  # bytes: noise of the allocator


def test_many_runs_do_not_grow():
    session = sb.Session(sb.parse(TINY))
    out = np.zeros((2, 4), np.float32)

    def runs(n):
        for _ in range(n):
            session.run(X)
            session.run(X, out=[out])
            session.run({"x": X})

    runs(3000)
    before = resident()
    runs(3000 if SANITIZED else 34000)
    assert resident() - before < (64 << 20 if SANITIZED else GROWTH)


def test_many_objects_do_not_grow(cnn, images):
    data = cnn.SerializeToString()

    def cycle(n):
        for _ in range(n):
            context = sb.Context(threads=1)
            model = sb.load(data, context=context)
            sb.Session(model).run(images[0])
            sb.tensor(images[0], context).__dlpack__()
            try:
                sb.Session(model).run(images[0].astype(np.float64))
            except sb.DataError:
                pass
        gc.collect()

    n = 100 if SANITIZED else 1000
    cycle(n // 4)
    before = resident()
    cycle(n)
    assert resident() - before < (64 << 20 if SANITIZED else GROWTH)


def test_exit_with_objects_alive():
    code = ("import sparsebit as sb, threading\n"
            f"s = sb.Session(sb.parse({TINY!r}))\n"
            "t = sb.tensor(memoryview(bytearray(24)).cast('f', (2, 3)))\n"
            "s.run(t); keep = [s.run(t) for _ in range(3)]\n"
            "sb.add_observer('mine', lambda v: (v.least, v.most))\n"
            "import builtins; builtins.keep = (s, t, keep)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True,
                          text=True)
    assert done.returncode == 0 and done.stderr == ""
