"""One measurement of our command, and one of ONNX Runtime, each in a process of
its own; what the scripts beside this file share."""
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../tests/ort"))
import fixtures  # noqa: E402  for the scripts


def worker(path, shapes, threads, seconds):
    """ONNX Runtime in a process of its own, so that its memory is its own."""
    import numpy as np
    import onnxruntime as ort

    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64,
             "tensor(int32)": np.int32, "tensor(uint8)": np.uint8,
             "tensor(float16)": np.float16, "tensor(double)": np.float64,
             "tensor(bool)": np.bool_}
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    begin = time.perf_counter()
    session = ort.InferenceSession(path, options,
                                   providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feeds = {}
    for value in session.get_inputs():
        dtype, dims = kinds[value.type], shapes[value.name]
        feeds[value.name] = (rng.standard_normal(dims).astype(dtype)
                             if np.issubdtype(dtype, np.floating)
                             else rng.integers(0, 2, dims).astype(dtype))
    session.run(None, feeds)
    first = (time.perf_counter() - begin) * 1e3
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        at = time.perf_counter()
        session.run(None, feeds)
        times.append((time.perf_counter() - at) * 1e3)
    with open("/proc/self/status") as f:
        rss = next(int(line.split()[1]) for line in f if "VmHWM" in line)
    print(json.dumps({"median": statistics.median(times), "best": min(times),
                      "first": first, "rss": rss * 1024 / 1e6}))


def input_shapes(command, path, batch, length):
    """Shapes with the unknown dimensions filled in; None if `batch` is not
    free."""
    info = json.loads(subprocess.run(
        [command, "info", path, "--json"], check=True, capture_output=True,
        text=True).stdout)
    shapes = {}
    for value in info["inputs"]:
        dims = list(value["shape"])
        if dims and dims[0] >= 0 and dims[0] != batch and batch != 1:
            return None
        for i, d in enumerate(dims):
            if d < 0:
                dims[i] = batch if i == 0 else length
        shapes[value["name"]] = dims
    return shapes


def ours(command, path, shapes, threads, seconds, more=()):
    words = [command, "bench", path, "--json", "--threads", str(threads),
             "--seconds", str(seconds), *more]
    for name, dims in shapes.items():
        words += ["--shape", f"{name}={'x'.join(map(str, dims))}"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    j = json.loads(done.stdout)
    return {"median": j["latency_ms"], "best": j["latency_best_ms"],
            "first": j["start_ms"], "rss": j["peak_rss_mb"]}


def theirs(path, shapes, threads, seconds):
    done = subprocess.run(
        [sys.executable, __file__,
         json.dumps([path, shapes, threads, seconds])],
        capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def need_onnxruntime():
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        sys.exit(f"{os.path.basename(sys.argv[0])}: needs onnxruntime and "
                 "numpy: run tools/venv")


if __name__ == "__main__":
    worker(*json.loads(sys.argv[1]))
