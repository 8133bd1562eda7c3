"""peers: ONNX Runtime's quantize_static, NNCF and OpenVINO (NNCF on OpenVINO's
own model) as workers for the scripts beside this file: each makes one quantized
file in a process of its own, so that its seconds and its peak of memory are
its own."""
import json
import os
import subprocess
import sys
import time

import numpy as np
import onnx
import onnxruntime as ort


def peak_mb():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f
                    if line.startswith("VmHWM")) * 1024 / 1e6


def batches(x, step):
    return [x[i:i + step] for i in range(0, len(x), step)]


def entry_of(path):
    """Name and fixed batch (or 0) of the only input."""
    graph = onnx.load(path, load_external_data=False).graph
    known = {i.name for i in graph.initializer}
    value = next(i for i in graph.input if i.name not in known)
    return value.name, max(0, value.type.tensor_type.shape.dim[0].dim_value)


def quantize_static(model, name, feeds, out):
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(q.CalibrationDataReader):
        left = iter([{name: x} for x in feeds])

        def get_next(self):
            return next(self.left, None)

    m = onnx.load(model)
    if next(i.version for i in m.opset_import if not i.domain) < 13:
        m = onnx.version_converter.convert_version(m, 13)
    onnx.save(m, out + ".pre")
    quant_pre_process(out + ".pre", out + ".pre", skip_symbolic_shape=True)
    q.quantize_static(out + ".pre", out, Reader(), per_channel=True,
                      quant_format=q.QuantFormat.QDQ,
                      activation_type=q.QuantType.QUInt8,
                      weight_type=q.QuantType.QInt8)


def nncf_quantize(model, name, feeds, out, **settings):
    import nncf
    m = onnx.load(model)
    if next(i.version for i in m.opset_import if not i.domain) < 13:
        m = onnx.version_converter.convert_version(m, 13)
    data = nncf.Dataset([{name: x} for x in feeds])
    onnx.save(nncf.quantize(m, data, subset_size=len(feeds), **settings), out)


def nncf_mixed(model, name, feeds, out):
    """Its most accurate settings: affine activations, full correction."""
    import nncf
    nncf_quantize(model, name, feeds, out,
                  preset=nncf.QuantizationPreset.MIXED,
                  fast_bias_correction=False)


def nncf_openvino(model, name, feeds, out):
    import nncf
    import openvino as ov
    data = nncf.Dataset(feeds)
    ov.save_model(nncf.quantize(ov.Core().read_model(model), data,
                                subset_size=len(feeds)), out)


PEERS = {"static": quantize_static, "nncf": nncf_quantize,
         "nncf_mixed": nncf_mixed, "nncf_ov": nncf_openvino}


def worker(how, model, images, out):
    ort.set_default_logger_severity(3)
    name, fixed = entry_of(model)
    feeds = [np.array(x) for x in batches(np.load(images), fixed or 1)]
    begin = time.perf_counter()
    PEERS[how](model, name, feeds, out)
    print(json.dumps({"seconds": time.perf_counter() - begin,
                      "rss": peak_mb()}))


def run(how, model, images, out):
    """Seconds and peak memory of a peer that makes `out`, or why it failed."""
    done = subprocess.run(
        [sys.executable, os.path.abspath(__file__),
         json.dumps([how, model, images, out])],
        capture_output=True, text=True)
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or ["failed"])[-1]
    return out, json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    worker(*json.loads(sys.argv[1]))
