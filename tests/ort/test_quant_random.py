#!/usr/bin/env python3
"""Quantized operators against ONNX Runtime, on single-node random models.

usage: test_quant_random.py COMMAND [SEED] [PATTERN]

Integer results must be equal to the last bit, float ones within a relative
1e-5 (1e-3 for float16) of the largest element.  Exits 77 if onnxruntime is
not there.
"""
import os
import subprocess
import sys
import tempfile

import fixtures

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto as T
    from onnx import helper

    from quant_models import BYTES, MS, NP_TO_ONNX, Maker, after_conv
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

# ---- cases: each yields (model, feeds) ----------------------------------------

def quantize(m):
    dtype = m.pick(np.uint8, np.int8, np.uint16, np.int16)
    x = m.floats(m.size(1, 3), m.size(1, 40), m.size(1, 9),
                 spread=m.pick(1.0, 30.0))
    axis = m.size(0, 2)
    kind = m.pick("tensor", "axis", "block")
    if kind == "tensor":
        shape, attrs = (), {}
    elif kind == "axis":
        shape, attrs = (x.shape[axis],), {"axis": axis}
    else:
        block = m.size(1, 8)
        shape = list(x.shape)
        shape[axis] = -(-shape[axis] // block)
        attrs = {"axis": axis, "block_size": block}
    zero = m.pick(None, m.ints(dtype, *shape))
    scale = m.scale(*shape)
    if zero is None:
        dtype = np.uint8
        if m.pick(False, True):
            dtype = np.int8
            attrs["output_dtype"] = T.INT8
    if kind != "block":  # blocked, the runtime converts these without clamping
        x.flat[0] = m.pick(0.0, np.inf, -np.inf, 1e30)
    if m.pick(False, True):  # exact ties
        scale = np.full_like(scale, 0.5)
        x = (np.round(x * 4) / 4).astype(np.float32)
    yield m.model("QuantizeLinear", [x, scale, zero],
                  NP_TO_ONNX[np.dtype(dtype)], **attrs)


def quantize_half(m):
    x = m.floats(4, 50, dtype=np.float16)
    yield m.model("QuantizeLinear", [x, m.scale(dtype=np.float16),
                                     m.ints(np.int8)], T.INT8)


def four_bits(m):
    kind = m.pick(T.UINT4, T.INT4)
    x = m.floats(m.size(1, 5), m.size(1, 21))
    block = m.size(1, 6)
    n = x.shape[0] * -(-x.shape[1] // block)
    scale = m.scale(x.shape[0], n // x.shape[0], lo=0.3, hi=1.0)
    lo = 0 if kind == T.UINT4 else -8
    zero = helper.make_tensor("z", kind, scale.shape,
                              m.rng.integers(lo, lo + 16, n))
    back = helper.make_node("DequantizeLinear", ["y", "x1", "x2"], ["back"],
                            axis=1, block_size=block)
    yield m.model("QuantizeLinear", [x, scale, zero], T.FLOAT, nodes=[back],
                  axis=1, block_size=block)


def dequantize(m):
    dtype = m.pick(np.uint8, np.int8, np.uint16, np.int16, np.int32)
    x = m.ints(dtype, m.size(1, 3), m.size(1, 30), m.size(1, 9))
    axis = m.size(-3, 2)
    kind = m.pick("tensor", "axis", "block")
    block = 0
    shape = ()
    if kind == "axis":
        shape = (x.shape[axis],)
    elif kind == "block":
        block = m.size(1, 8)
        shape = list(x.shape)
        shape[axis] = -(-shape[axis] // block)
    zero = None if dtype == np.int32 else m.pick(None, m.ints(dtype, *shape))
    out = m.pick(np.float32, np.float16) if dtype in BYTES else np.float32
    yield m.model("DequantizeLinear", [x, m.scale(*shape, dtype=out), zero],
                  NP_TO_ONNX[np.dtype(out)], axis=axis, block_size=block)


def dynamic_quantize(m):
    x = m.floats(m.size(1, 300)) + m.pick(0.0, 5.0, -20.0)
    yield m.model("DynamicQuantizeLinear", [x.astype(np.float32)],
                  [T.UINT8, T.FLOAT, T.UINT8], outputs=("y", "scale", "zero"))


def conv_shapes(m):
    n = m.pick(1, 2, 2, 2, 3)
    group = m.pick(1, 1, 2, 4)
    c_in, c_out = group * m.size(1, 5), group * m.size(1, 9)
    if m.pick(False, False, True):  # depthwise
        group = c_in = c_out = m.size(1, 8)
    size = [m.size(5, 13 if n < 3 else 7) for _ in range(n)]
    kernel = [m.size(1, 3) for _ in range(n)]
    attrs = {"group": group, "kernel_shape": kernel,
             "strides": [m.size(1, 2) for _ in range(n)],
             "dilations": [m.size(1, 2) for _ in range(n)]}
    if m.pick(True, True, False):
        attrs["pads"] = [m.size(0, 2) for _ in range(2 * n)]
    else:
        attrs["auto_pad"] = m.pick("SAME_UPPER", "SAME_LOWER", "VALID")
        attrs["dilations"] = [1] * n
    return ([m.size(1, 2), c_in, *size], [c_out, c_in // group, *kernel], attrs)


def group_shapes(m):
    """Images of several bands, many groups, and windows with gaps."""
    n = m.pick(1, 2, 2, 2, 3)
    group = m.pick(1, 3, 8, 20)
    c_in, c_out = group * m.size(2, 40 // group + 3), group * m.size(1, 18)
    edge = {1: m.pick(900, 30000), 2: 90 if group < 8 else 40, 3: 9}[n]
    size = [m.size(edge // 2, edge) for _ in range(n)]
    kernel = [m.size(1, 5 if n < 3 else 3) for _ in range(n)]
    attrs = {"group": group, "kernel_shape": kernel,
             "strides": [m.size(1, 3) for _ in range(n)],
             "dilations": [m.pick(1, 1, 2, 3) for _ in range(n)],
             "pads": [m.size(0, 4) for _ in range(2 * n)]}
    reach = [(k - 1) * d for k, d in zip(kernel, attrs["dilations"])]
    size = [max(a, b + 1) for a, b in zip(size, reach)]
    return ([m.size(1, 2), c_in, *size], [c_out, c_in // group, *kernel], attrs)


def qlinear_conv(m, shapes=conv_shapes):
    xs, ws, attrs = shapes(m)
    x_type = m.pick(*BYTES)
    w_type = np.int8 if x_type == np.int8 else m.pick(*BYTES)
    per = (ws[0],) if m.pick(False, True) else ()
    w_zero = np.zeros(per, w_type) if w_type == np.int8 else m.ints(w_type)
    if w_zero.shape != per:
        per = ()
    bias = m.pick(None, m.rng.integers(-3000, 3000, ws[0]).astype(np.int32))
    inputs = [m.ints(x_type, *xs), m.scale(), m.ints(x_type),
              m.ints(w_type, *ws), m.scale(*per), w_zero, m.scale(lo=0.5, hi=2),
              m.ints(x_type), bias]
    const = (1, 2, 3, 4, 5, 6, 7, 8) if m.pick(True, False) else (1, 2, 4, 5, 6, 7)
    yield m.model("QLinearConv", inputs, NP_TO_ONNX[np.dtype(x_type)],
                  const=const, **attrs)


def conv_integer(m, shapes=conv_shapes):
    xs, ws, attrs = shapes(m)
    zeros = m.pick(1, 0)
    yield m.model("ConvInteger",
                  [m.ints(np.uint8, *xs), m.ints(np.uint8, *ws)] +
                  ([m.ints(np.uint8), m.ints(np.uint8)] if zeros else []),
                  T.INT32, const=m.pick((1, 3), ()), **attrs)


def matrix_shapes(m):
    mm, k, n = m.size(1, 40), m.size(1, 50), m.size(1, 70)
    kind = m.pick("plain", "batch", "both", "vector", "broadcast")
    if kind == "plain":
        return [mm, k], [k, n]
    if kind == "batch":
        return [2, 3, mm, k], [k, n]
    if kind == "both":
        return [2, 3, mm, k], [2, 3, k, n]
    if kind == "broadcast":
        return [3, mm, k], [2, 1, k, n]
    return [k], [k, n]


def matmul_integer(m):
    a, b = matrix_shapes(m)
    a_type, b_type = m.pick((np.uint8, np.uint8), (np.uint8, np.int8),
                            (np.int8, np.int8))
    zeros = m.pick([], [m.ints(a_type), m.ints(b_type)])
    yield m.model("MatMulInteger", [m.ints(a_type, *a), m.ints(b_type, *b)] +
                  zeros, T.INT32, const=m.pick((1, 3), ()))


def qlinear_matmul(m):
    a, b = matrix_shapes(m)
    a_type, b_type = m.pick((np.uint8, np.uint8), (np.uint8, np.int8),
                            (np.int8, np.int8))
    per = (b[-1],) if m.pick(False, True) and len(b) == 2 else ()
    zero = m.ints(b_type, *per) if not per else np.zeros(per, b_type)
    yield m.model("QLinearMatMul", [
        m.ints(a_type, *a), m.scale(), m.ints(a_type), m.ints(b_type, *b),
        m.scale(*per), zero, m.scale(lo=0.5, hi=3), m.ints(a_type)],
        NP_TO_ONNX[np.dtype(a_type)], const=m.pick((3, 4, 5), (3, 5), ()))


def matmul_integer_to_float(m):
    a, b = matrix_shapes(m)
    if len(a) == 1:
        a = [1, *a]
    a_type, b_type = m.pick((np.uint8, np.uint8), (np.uint8, np.int8),
                            (np.int8, np.int8))
    bias = m.pick(None, m.floats(b[-1]))
    yield m.model("MatMulIntegerToFloat", [
        m.ints(a_type, *a), m.ints(b_type, *b), m.scale(), m.scale(),
        m.ints(a_type), m.ints(b_type), bias], T.FLOAT, domain=MS)


def dynamic_quantize_matmul(m):
    k, n = m.size(1, 60), m.size(1, 60)
    b_type = m.pick(*BYTES)
    per = m.pick((), (n,))
    yield m.model("DynamicQuantizeMatMul", [
        m.floats(m.size(1, 9), k), m.ints(b_type, k, n), m.scale(*per),
        m.ints(b_type, *per), m.pick(None, m.floats(n))], T.FLOAT, domain=MS,
        const=m.pick((1, 2, 3), ()))


def q_gemm(m):
    rows, k, n = m.size(1, 20), m.size(1, 50), m.size(1, 40)
    trans_a, trans_b = m.size(0, 1), m.size(0, 1)
    a_type = m.pick(*BYTES)
    b_type = np.int8 if a_type == np.int8 else m.pick(*BYTES)
    per = m.pick((), (n,))
    bias = m.pick(None, m.rng.integers(-9999, 9999, m.pick(
        (n,), (1, n), (rows, n), (rows, 1))).astype(np.int32))
    out = m.pick([], [m.scale(lo=0.5, hi=3), m.ints(a_type)])
    yield m.model("QGemm", [
        m.ints(a_type, *((k, rows) if trans_a else (rows, k))), m.scale(),
        m.ints(a_type), m.ints(b_type, *((n, k) if trans_b else (k, n))),
        m.scale(*per), m.ints(b_type, *per), bias, *out],
        NP_TO_ONNX[np.dtype(a_type)] if out else T.FLOAT, domain=MS,
        transA=trans_a, transB=trans_b, alpha=m.pick(1.0, 0.5),
        const=m.pick((3, 5), ()))


def binary(op):
    def case(m):
        dtype = m.pick(*BYTES)
        a, b = m.pick(((2, 5, 7), (2, 5, 7)), ((2, 5, 7), (5, 1)),
                      ((7,), (3, 7)), ((2, 1, 9), (4, 1)), ((64, 64), (64, 64)),
                      ((1, 8, 5, 5), (1, 8, 1, 1)), ((3, 1), (1,)),
                      ((3, 20011), (3, 20011)), ((2, 9001), (2, 1)),
                      ((8193,), (2, 8193)))
        yield m.model(op, [m.ints(dtype, *a), m.scale(), m.ints(dtype),
                           m.ints(dtype, *b), m.scale(), m.ints(dtype),
                           m.scale(lo=0.05 if op == "QLinearAdd" else 1, hi=2),
                           m.ints(dtype)], NP_TO_ONNX[np.dtype(dtype)],
                      domain=MS, const=m.pick((), (1, 2, 4, 5, 6, 7)))
    return case


def all_bytes(m, dtype):
    return np.arange(256, dtype=np.uint8).view(dtype).reshape(4, 64)


def unary(op, **attrs):
    def case(m):
        dtype = m.pick(*BYTES)
        yield m.model(op, [all_bytes(m, dtype), m.scale(), m.ints(dtype),
                           m.scale(lo=0.003, hi=0.01), m.ints(dtype)],
                      NP_TO_ONNX[np.dtype(dtype)], domain=MS, **attrs)
    return case


def qlinear_softmax(m):
    dtype = m.pick(*BYTES)
    zero = np.array(0, np.uint8) if dtype == np.uint8 else np.array(-128, np.int8)
    # of one element the runtime computes inf, and 0
    x = m.ints(dtype, m.size(2, 4), m.size(2, 20), m.size(2, 30))
    yield m.model("QLinearSoftmax", [x, m.scale(), m.ints(dtype),
                                     np.float32(1 / 256), zero],
                  NP_TO_ONNX[np.dtype(dtype)], domain=MS,
                  axis=m.size(0, 2), opset_=m.pick(12, 13))


def qlinear_concat(m):
    dtype = m.pick(*BYTES)
    parts = [m.scale(), m.ints(dtype)]
    for _ in range(m.size(1, 4)):
        parts += [m.ints(dtype, 2, m.size(1, 9), 5), m.scale(), m.ints(dtype)]
    yield m.model("QLinearConcat", parts, NP_TO_ONNX[np.dtype(dtype)],
                  domain=MS, axis=m.pick(1, -2),
                  const=[i for i in range(len(parts)) if i < 2 or i % 3 != 2])


def qlinear_where(m):
    dtype = m.pick(*BYTES)
    yield m.model("QLinearWhere", [
        m.rng.integers(0, 2, m.pick((4, 5, 6), (5, 1), (6,))).astype(bool),
        m.ints(dtype, *m.pick((4, 5, 6), (1, 6), (1,))), m.scale(),
        m.ints(dtype), m.ints(dtype, *m.pick((4, 5, 6), (4, 1, 1))), m.scale(),
        m.ints(dtype), m.scale(), m.ints(dtype)], NP_TO_ONNX[np.dtype(dtype)],
        domain=MS)


def global_pool(m):
    dtype = m.pick(*BYTES)
    yield m.model("QLinearGlobalAveragePool", [
        m.ints(dtype, m.size(1, 2), m.size(1, 20), m.size(1, 9), m.size(1, 9)),
        m.scale(), m.ints(dtype), m.scale(), m.ints(dtype)],
        NP_TO_ONNX[np.dtype(dtype)], domain=MS, channels_last=m.size(0, 1),
        const=(1, 2, 3, 4))


def average_pool(m):
    dtype = m.pick(*BYTES)
    n = m.pick(1, 2, 2, 3)
    last = m.size(0, 1)
    space = [m.size(4, 9) for _ in range(n)]
    c = m.size(1, 6)
    shape = [2, *space, c] if last else [2, c, *space]
    yield m.model("QLinearAveragePool", [
        m.ints(dtype, *shape), m.scale(), m.ints(dtype), m.scale(),
        m.ints(dtype)], NP_TO_ONNX[np.dtype(dtype)], domain=MS,
        channels_last=last, kernel_shape=[m.size(2, 3) for _ in range(n)],
        strides=[m.size(1, 2) for _ in range(n)], pads=[m.size(0, 1)] * 2 * n,
        count_include_pad=m.size(0, 1), const=(1, 2, 3, 4))


def matmul_nbits(m):
    bits = m.pick(2, 4, 4, 8)
    block = m.pick(16, 32, 64)
    k, n = m.size(1, 200), m.size(1, 40)
    blocks = -(-k // block)
    zero = m.pick(None, m.rng.integers(
        0, 256, n * -(-blocks * bits // 8)).astype(np.uint8))
    bias = m.pick(None, m.floats(n))
    order = None
    if bits < 8 and m.pick(True, False):
        zero = m.rng.uniform(-1, 2 ** bits, n * blocks).astype(np.float32)
    # The runtime has orders of 4-bit codes only, and then leaves packed zero
    # points out.
    if bits == 4 and m.pick(True, False):
        zero = zero if zero is None or zero.dtype != np.uint8 else None
        order = m.rng.integers(0, blocks, k).astype(np.int32)
    yield m.model("MatMulNBits", [
        m.floats(2, m.size(1, 70), k),
        m.ints(np.uint8, n, blocks, block * bits // 8),
        m.scale(n * blocks), zero, order, bias], T.FLOAT, domain=MS,
        K=k, N=n, bits=bits, block_size=block, const=(1, 2, 3, 4, 5))


def gather_nbits(m):
    bits, block = m.pick(2, 4, 8), m.pick(16, 32, 64)
    rows, blocks = m.size(1, 50), m.size(1, 5)
    k = blocks * block
    outer = m.pick([], [], [m.size(1, 3)])
    zero = m.pick(None, m.ints(np.uint8, rows, *outer, -(-blocks * bits // 8)))
    yield m.model("GatherBlockQuantized", [
        m.ints(np.uint8, rows, *outer, k * bits // 8),
        m.rng.integers(-rows, rows, (2, m.size(1, 20))),
        m.scale(int(np.prod([rows, *outer, blocks]))).reshape(
            rows, *outer, blocks), zero], T.FLOAT,
        domain=MS, bits=bits, block_size=block, gather_axis=0,
        quantize_axis=m.pick(-1, 1 + len(outer)), const=(0, 2, 3))


def gather_small(m):
    """Elements of 4 bits, any axes."""
    kind = m.pick(T.UINT4, T.INT4)
    lo = 0 if kind == T.UINT4 else -8
    rank = m.size(2, 3)
    shape = [m.size(1, 40) for _ in range(rank)]
    axis, along = m.size(0, rank - 1), m.size(0, rank - 1)
    blocks = [-(-n // 16) if i == along else n for i, n in enumerate(shape)]
    four = [helper.make_tensor("t", kind, dims, m.rng.integers(
        lo, lo + 16, int(np.prod(dims)))) for dims in (shape, blocks)]
    yield m.model("GatherBlockQuantized", [
        four[0],
        m.rng.integers(-shape[axis], shape[axis], (m.size(1, 5), 2)).astype(
            m.pick(np.int32, np.int64)),
        m.scale(int(np.prod(blocks))).reshape(blocks),
        m.pick(None, four[1])], T.FLOAT,
        domain=MS, bits=4, block_size=16, gather_axis=m.pick(axis, axis - rank),
        quantize_axis=m.pick(along, along - rank), const=(0, 2, 3))


def ms_quantize(m):
    dtype = m.pick(*BYTES)
    x = m.floats(3, 20, 5)
    yield m.model("QuantizeLinear", [x, m.scale(20), m.ints(dtype, 20)],
                  NP_TO_ONNX[np.dtype(dtype)], domain=MS, axis=1)


def ms_dequantize(m):
    dtype = m.pick(*BYTES)
    yield m.model("DequantizeLinear", [m.ints(dtype, 3, 20), m.scale(),
                                       m.ints(dtype)], T.FLOAT, domain=MS)


def dft(m):
    n = m.pick(1, 2, 8, 13, 16, 37, 64, 100, 255)
    one = m.size(0, 1)
    inverse = 0 if one else m.size(0, 1)
    x = m.floats(2, n, 3, 1 if one else m.pick(1, 2))
    length = m.pick(None, np.int64(m.size(1, 90)))
    yield m.model("DFT", [x, length, np.int64(1)], T.FLOAT, opset=20,
                  onesided=one, inverse=inverse, const=(1, 2))


def stft(m):
    n = m.pick(5, 16, 60)
    x = m.floats(2, m.size(100, 300), 1)
    yield m.model("STFT", [x, np.int64(m.size(1, 40)), m.floats(n), np.int64(n)],
                  T.FLOAT, opset=17, onesided=m.size(0, 1), const=(1, 3))


CASES = {
    "quantize": (quantize, 24), "quantize_half": (quantize_half, 4),
    "four_bits": (four_bits, 6), "dequantize": (dequantize, 16),
    "dynamic_quantize": (dynamic_quantize, 4), "qlinear_conv": (qlinear_conv, 24),
    "grouped_conv": (lambda m: qlinear_conv(m, group_shapes), 24),
    "grouped_sums": (lambda m: conv_integer(m, group_shapes), 8),
    "after_conv": (after_conv, 8),
    "conv_integer": (conv_integer, 10), "matmul_integer": (matmul_integer, 10),
    "qlinear_matmul": (qlinear_matmul, 14),
    "matmul_integer_to_float": (matmul_integer_to_float, 6),
    "dynamic_quantize_matmul": (dynamic_quantize_matmul, 6),
    "q_gemm": (q_gemm, 12), "add": (binary("QLinearAdd"), 20),
    "mul": (binary("QLinearMul"), 20), "sigmoid": (unary("QLinearSigmoid"), 6),
    "leaky_relu": (unary("QLinearLeakyRelu", alpha=0.1), 6),
    "softmax": (qlinear_softmax, 8), "concat": (qlinear_concat, 6),
    "where": (qlinear_where, 6), "global_pool": (global_pool, 6),
    "average_pool": (average_pool, 8), "matmul_nbits": (matmul_nbits, 24),
    "gather_nbits": (gather_nbits, 16), "gather_small": (gather_small, 12),
    "ms_quantize": (ms_quantize, 2), "ms_dequantize": (ms_dequantize, 2),
    "dft": (dft, 12), "stft": (stft, 4),
}

# Sums of products of bytes.
SUMS = {"after_conv", "qlinear_conv", "grouped_conv", "grouped_sums", "conv_integer",
        "matmul_integer", "qlinear_matmul", "matmul_integer_to_float",
        "dynamic_quantize_matmul", "q_gemm"}

# The runtime's own transforms are in float32; ours are more accurate.
LOOSE = {"dft": 1e-4, "stft": 1e-4}


def reference(model, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options,
                                   providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds)))


def run(command, model, feeds, folder):
    path = os.path.join(folder, "m.onnx")
    onnx.save(model, path)
    args = [command, "run", path, "-q", "--out-dir", folder]
    for name, value in feeds.items():
        np.save(os.path.join(folder, f"in_{name}.npy"), value)
        args += ["--input", f"{name}={folder}/in_{name}.npy"]
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())


def difference(got, want, tol):
    """None if they agree, else one line."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"got {got.dtype}{got.shape}, want {want.dtype}{want.shape}"
    if want.size == 0:
        return None
    diff = np.abs(got.astype(np.float64) - want.astype(np.float64))
    if want.dtype.kind != "f":
        bad = int((diff > 0).sum())
        return f"{bad} of {diff.size} differ, at most by {diff.max()}" if bad else None
    tol = max(tol, 1e-3 * (want.dtype == np.float16)) * np.abs(want).max()
    return f"differs by {diff.max()}, want {tol}" if not diff.max() <= tol else None


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    command = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    pattern = sys.argv[3] if len(sys.argv) > 3 else ""
    passed = failed = refused = 0
    saturates = fixtures.saturates()
    for name, (case, count) in CASES.items():
        if pattern not in name:
            continue
        if saturates and name in SUMS:
            print(f"skip {name}: {fixtures.SATURATES}")
            continue
        for i in range(count):
            label = f"{name} #{i} (seed {seed})"
            number = sum(name.encode()) * 1000 + i + seed * 10**6
            for model, feeds in case(Maker(number)):
                for attr in model.graph.node[0].attribute:
                    attr.name = "opset" if attr.name == "opset_" else attr.name
                try:
                    want = reference(model, feeds)
                except Exception as error:  # the runtime lacks this combination
                    refused += 1
                    if pattern:
                        print(f"refused {label}: {str(error)[:150]}")
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        run(command, model, feeds, folder)
                        wrong = [f"{o}: {d}" for o, w in want.items()
                                 if (d := difference(np.load(f"{folder}/{o}.npy"), w,
                                                     LOOSE.get(name, 1e-5)))]
                    except Exception as error:
                        wrong = [str(error)]
                passed += not wrong
                failed += bool(wrong)
                if wrong:
                    print(f"FAIL {label}: {'; '.join(wrong)}")
    print(f"{passed} passed, {failed} failed, {refused} refused by the runtime")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
