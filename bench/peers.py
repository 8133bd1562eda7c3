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


def feeds_of(path, samples):
    """One for each sample, by name: of the array of the only input, or of an
    archive with all of them."""
    graph = onnx.load(path, load_external_data=False).graph
    known = {i.name for i in graph.initializer}
    first = next(i for i in graph.input if i.name not in known)
    step = max(1, first.type.tensor_type.shape.dim[0].dim_value)
    x = np.load(samples)
    x = dict(x) if samples.endswith(".npz") else {first.name: x}
    n = len(next(iter(x.values())))
    return [{k: np.array(v[i:i + step]) for k, v in x.items()}
            for i in range(0, n, step)]


def quantize_static(model, feeds, out):
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(q.CalibrationDataReader):
        left = iter(feeds)

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


def nncf_quantize(model, feeds, out, **settings):
    import nncf
    m = onnx.load(model)
    if next(i.version for i in m.opset_import if not i.domain) < 13:
        m = onnx.version_converter.convert_version(m, 13)
    data = nncf.Dataset(feeds)
    onnx.save(nncf.quantize(m, data, subset_size=len(feeds), **settings), out)


def nncf_mixed(model, feeds, out):
    """Its most accurate settings: affine activations, full correction."""
    import nncf
    nncf_quantize(model, feeds, out,
                  preset=nncf.QuantizationPreset.MIXED,
                  fast_bias_correction=False)


def nncf_transformer(model, feeds, out):
    """With SmoothQuant, and attention left as it is best."""
    import nncf
    nncf_quantize(model, feeds, out, model_type=nncf.ModelType.TRANSFORMER)


def nncf_openvino(model, feeds, out, **settings):
    import nncf
    import openvino as ov
    ov.save_model(nncf.quantize(ov.Core().read_model(model),
                                nncf.Dataset(feeds), subset_size=len(feeds),
                                **settings), out)


def nncf_openvino_mixed(model, feeds, out):
    import nncf
    nncf_openvino(model, feeds, out, preset=nncf.QuantizationPreset.MIXED,
                  fast_bias_correction=False)


def nncf_openvino_transformer(model, feeds, out):
    import nncf
    nncf_openvino(model, feeds, out, model_type=nncf.ModelType.TRANSFORMER)


PEERS = {"static": quantize_static, "nncf": nncf_quantize,
         "nncf_mixed": nncf_mixed, "nncf_transformer": nncf_transformer,
         "nncf_ov": nncf_openvino, "nncf_ov_mixed": nncf_openvino_mixed,
         "nncf_ov_transformer": nncf_openvino_transformer}


def worker(how, model, images, out):
    ort.set_default_logger_severity(3)
    feeds = feeds_of(model, images)
    begin = time.perf_counter()
    PEERS[how](model, feeds, out)
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
