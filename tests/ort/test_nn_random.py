#!/usr/bin/env python3
"""Convolution, pooling, matrix, normalization and recurrent operators against
ONNX Runtime, on single-node random models.

usage: test_nn_random.py COMMAND [SEED] [CASES] [PATTERN]

Results must lie within 1e-5 of the largest element (1e-4 for recurrent nets
and attention, whose errors add up).  A case that ONNX Runtime refuses is not
counted.  Exits 77 if onnxruntime is not there.
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto as T
    from onnx import helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

MS = "com.microsoft"
TYPES = {
    np.dtype(np.float32): T.FLOAT, np.dtype(np.int64): T.INT64,
    np.dtype(np.int32): T.INT32, np.dtype(np.int8): T.INT8,
    np.dtype(np.uint8): T.UINT8, np.dtype(np.bool_): T.BOOL,
    np.dtype(np.uint32): T.UINT32, np.dtype(np.uint64): T.UINT64,
}


class Case:
    """One node with its inputs; `const` are indices of initializers."""

    def __init__(self, op, inputs, n_out=1, const=(), domain="", opset=22,
                 tol=1e-5, lengths=None, **attrs):
        self.lengths = lengths  # of the first output; what is behind is any
        self.op, self.inputs, self.const = op, inputs, set(const)
        self.domain, self.opset, self.tol = domain, opset, tol
        self.outputs = [f"y{i}" for i in range(n_out)]
        self.attrs = {k: v for k, v in attrs.items() if v is not None}

    def model(self):
        names, infos, inits, self.feeds = [], [], [], {}
        for i, value in enumerate(self.inputs):
            names.append("" if value is None else f"x{i}")
            if value is None:
                continue
            if i in self.const:
                inits.append(onnx.numpy_helper.from_array(value, f"x{i}"))
            else:
                infos.append(helper.make_tensor_value_info(
                    f"x{i}", TYPES[value.dtype], value.shape))
                self.feeds[f"x{i}"] = value
        while names and not names[-1]:
            names.pop()
        node = helper.make_node(self.op, names, self.outputs,
                                domain=self.domain, **self.attrs)
        graph = helper.make_graph(
            [node], "g", infos,
            [onnx.ValueInfoProto(name=o) for o in self.outputs], inits)
        return helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", self.opset), helper.make_opsetid(MS, 1)])

    def __str__(self):
        shapes = [None if v is None else f"{v.dtype}{list(v.shape)}"
                  for v in self.inputs]
        return f"{self.op} {shapes} const={sorted(self.const)} {self.attrs}"


class Maker:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def pick(self, *options):
        return options[self.rng.integers(len(options))]

    def size(self, lo, hi):
        return int(self.rng.integers(lo, hi + 1))

    def sizes(self, n, lo, hi):
        return [self.size(lo, hi) for _ in range(n)]

    def floats(self, *shape):
        return self.rng.standard_normal(shape).astype(np.float32)

    def const(self, *indices):
        return self.pick((), indices)

    # ---- windows
    def window(self, n, pools=False):
        """kernel, attributes, smallest input that has a window."""
        kernel = self.sizes(n, 1, 4)
        attrs = {"strides": self.pick(None, self.sizes(n, 1, 3))}
        dilations = self.pick(None, None, self.sizes(n, 1, 3))
        mode = self.pick("pads", "pads", None, "SAME_UPPER", "SAME_LOWER",
                         "VALID")
        if mode == "pads":
            attrs["pads"] = [self.size(0, k - 1) for k in kernel + kernel]
        elif mode:
            attrs["auto_pad"] = mode
        if mode and mode.startswith("SAME"):
            dilations = None
            if not pools:  # negative pads: ONNX Runtime's way is its own
                attrs["strides"] = [self.size(1, k) for k in kernel]
        attrs["dilations"] = dilations
        if pools:
            attrs["ceil_mode"] = self.pick(None, 0, 1)
        reach = [(k - 1) * d + 1
                 for k, d in zip(kernel, dilations or [1] * n)]
        return kernel, attrs, [self.size(r, r + 9) for r in reach]

    def channels(self):
        group = self.pick(1, 1, 2, 3, 4, 8)
        per = self.pick(1, 2, 3, 4, 8, 16, 17)
        out = self.pick(1, 2, 3, 4, 8, 16, 19)
        return group, group * per, per, group * out, out

    def conv(self):
        n = self.pick(1, 2, 2, 2, 3)
        kernel, attrs, size = self.window(n)
        group, c, per, m, _ = self.channels()
        x = self.floats(self.size(1, 3), c, *size)
        w = self.floats(m, per, *kernel)
        b = self.pick(None, self.floats(m))
        return Case("Conv", [x, w, b], const=self.const(1, 2), group=group,
                    kernel_shape=self.pick(None, kernel), **attrs)

    def conv_transpose(self):
        n = self.pick(1, 2, 2, 2, 3)
        kernel, attrs, _ = self.window(n)
        group, c, per, _, out = self.channels()
        size = self.sizes(n, 1, 7)
        x = self.floats(self.size(1, 2), c, *size)
        w = self.floats(c, out, *kernel)
        b = self.pick(None, self.floats(group * out))
        strides = attrs["strides"] or [1] * n
        if self.pick(True, False):
            attrs["output_padding"] = [self.size(0, s - 1) for s in strides]
        if self.pick(True, False, False) and "auto_pad" not in attrs:
            attrs.pop("pads", None)
            dil = attrs["dilations"] or [1] * n
            pad = attrs.get("output_padding") or [0] * n
            full = [s * (i - 1) + (k - 1) * d + 1 + p for s, i, k, d, p in
                    zip(strides, size, kernel, dil, pad)]
            attrs["output_shape"] = [max(1, f - self.size(0, 3)) for f in full]
        return Case("ConvTranspose", [x, w, b], const=self.const(1, 2),
                    group=group, kernel_shape=self.pick(None, kernel), **attrs)

    def deform_conv(self):
        group, c, per, m, _ = self.channels()
        kernel = self.sizes(2, 1, 3)
        size = self.sizes(2, 5, 9)
        pads = self.sizes(4, 0, 1)
        strides = self.sizes(2, 1, 2)
        out = [(s + pads[i] + pads[i + 2] - k) // st + 1 for i, (s, k, st) in
               enumerate(zip(size, kernel, strides))]
        n, og = self.size(1, 2), self.pick(1, group)
        taps = og * kernel[0] * kernel[1]
        mask = self.pick(None, self.floats(n, taps, *out))
        return Case("DeformConv", [
            self.floats(n, c, *size), self.floats(m, per, *kernel),
            self.floats(n, 2 * taps, *out), self.pick(None, self.floats(m)),
            mask], group=group, offset_group=og, pads=pads, strides=strides,
            kernel_shape=kernel)

    # ---- pools
    def pool(self, op, n_out=1, **more):
        n = self.pick(1, 2, 2, 3)
        kernel, attrs, size = self.window(n, pools=True)
        x = self.floats(self.size(1, 2), self.size(1, 9), *size)
        return Case(op, [x], n_out=n_out, kernel_shape=kernel, **attrs, **more)

    def average_pool(self):
        return self.pool("AveragePool",
                         count_include_pad=self.pick(None, 0, 1))

    def max_pool(self):
        case = self.pool("MaxPool", n_out=self.pick(1, 2),
                         storage_order=self.pick(None, 0, 1))
        if self.pick(True, False, False):
            case.inputs[0] = (case.inputs[0] * 30).astype(
                self.pick(np.int8, np.uint8))
        return case

    def lp_pool(self):
        return self.pool("LpPool", p=self.pick(None, 1, 2, 3))

    def global_pool(self):
        n = self.size(1, 3)
        op = self.pick("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
        return Case(op, [self.floats(*self.sizes(2 + n, 1, 9))])

    # ---- matrices
    def matmul(self):
        m, k, n = [self.pick(1, 2, 7, 33, 64, 200, 300) for _ in range(3)]
        batch = self.sizes(self.size(0, 3), 1, 3)
        a_shape = batch[self.size(0, len(batch)):] + [m, k]
        b_shape = batch[self.size(0, len(batch)):] + [k, n]
        a_shape = [1 if i < len(a_shape) - 2 and self.pick(0, 0, 1) else d
                   for i, d in enumerate(a_shape)]
        b_shape = [1 if i < len(b_shape) - 2 and self.pick(0, 0, 1) else d
                   for i, d in enumerate(b_shape)]
        if self.pick(0, 0, 0, 1):
            a_shape = [k]
        if self.pick(0, 0, 0, 1):
            b_shape = [k]
        a, b = self.floats(*a_shape), self.floats(*b_shape)
        if self.pick(0, 0, 0, 0, 1):
            t = self.pick(np.int32, np.int64, np.uint32, np.uint64)
            a, b = (abs(a) * 9).astype(t), (abs(b) * 9).astype(t)
        return Case("MatMul", [a, b], const=self.const(1))

    def fused_matmul(self):
        m, k, n = [self.pick(1, 2, 33, 200) for _ in range(3)]
        ta, tb = self.pick(0, 1), self.pick(0, 1)
        batch = self.sizes(self.size(0, 2), 1, 3)
        a = self.floats(*batch, *((k, m) if ta else (m, k)))
        b = self.floats(*batch, *((n, k) if tb else (k, n)))
        return Case("FusedMatMul", [a, b], domain=MS, transA=ta, transB=tb,
                    alpha=self.pick(None, 0.5))

    def gemm(self):
        m, k, n = [self.pick(1, 2, 7, 33, 64, 200, 300) for _ in range(3)]
        ta, tb = self.pick(0, 1), self.pick(0, 1)
        c = self.pick(None, (n,), (m, n), (m, 1), (1, n), (1,), ())
        return Case("Gemm", [
            self.floats(*((k, m) if ta else (m, k))),
            self.floats(*((n, k) if tb else (k, n))),
            None if c is None else np.asarray(self.floats(*c))],
            const=self.const(1, 2), transA=ta, transB=tb,
            alpha=self.pick(None, 0.5), beta=self.pick(None, 0.25, 0.0))

    # ---- normalizations
    def batch_norm(self):
        shape = self.sizes(self.size(2, 5), 1, 7)
        c = shape[1]
        return Case("BatchNormalization", [
            self.floats(*shape), self.floats(c), self.floats(c),
            self.floats(c), abs(self.floats(c))], const=self.const(1, 2, 3, 4),
            epsilon=self.pick(None, 1e-2))

    def instance_norm(self):
        shape = self.sizes(self.size(3, 5), 1, 7)
        shape[-1] += 3
        return Case("InstanceNormalization", [
            self.floats(*shape), self.floats(shape[1]), self.floats(shape[1])],
            epsilon=self.pick(None, 1e-2), tol=1e-4)

    def group_norm(self):
        g = self.size(1, 4)
        c = g * self.size(1, 5)
        return Case("GroupNormalization", [
            self.floats(self.size(1, 3), c, *self.sizes(2, 2, 6)),
            self.floats(c), self.floats(c)], num_groups=g, tol=1e-4,
            epsilon=self.pick(None, 1e-2))

    def layer_norm(self):
        shape = self.sizes(self.size(1, 4), 1, 9)
        shape[-1] += 4
        axis = self.size(0, len(shape) - 1)
        tail = shape[axis:]
        return Case("LayerNormalization", [
            self.floats(*shape), self.floats(*tail),
            self.pick(None, self.floats(*tail))], n_out=self.pick(1, 3),
            axis=self.pick(axis, axis - len(shape)), tol=1e-4,
            epsilon=self.pick(None, 1e-2))

    def rms_norm(self):
        shape = self.sizes(self.size(1, 4), 1, 9)
        axis = self.size(0, len(shape) - 1)
        return Case("RMSNormalization", [
            self.floats(*shape), self.floats(*shape[axis:])], opset=23,
            axis=axis, epsilon=self.pick(None, 1e-2), tol=1e-4)

    def simplified_norm(self):
        shape = self.sizes(self.size(2, 4), 1, 9)
        return Case("SimplifiedLayerNormalization", [
            self.floats(*shape), self.floats(shape[-1])], opset=17, axis=-1,
            epsilon=1e-3, stash_type=1, tol=1e-4)

    def skip_norm(self):
        b, s, h = self.sizes(3, 1, 9)
        h += 3
        simplified = self.pick(True, False)
        skip = self.pick((b, s, h), (b, s, h), (1, s, h), (s, h))
        tail = [self.pick(None, self.floats(h))]
        if not simplified:
            tail = [self.pick(None, self.floats(h))] + tail
        return Case("SkipSimplifiedLayerNormalization" if simplified
                    else "SkipLayerNormalization",
                    [self.floats(b, s, h), self.floats(*skip),
                     self.floats(h)] + tail, domain=MS, n_out=self.pick(1, 4),
                    epsilon=1e-3, tol=1e-4)

    def lrn(self):
        return Case("LRN", [self.floats(*self.sizes(4, 1, 9))],
                    size=self.pick(1, 3, 5), alpha=self.pick(None, 0.5),
                    beta=self.pick(None, 0.5), bias=self.pick(None, 2.0))

    # ---- recurrent
    def recurrent(self, op, gates, n_acts):
        s, b, i, h = (self.size(1, 7), self.size(1, 4), self.size(1, 9),
                      self.pick(1, 3, 16, 40))
        direction = self.pick("forward", "reverse", "bidirectional")
        d = 2 if direction == "bidirectional" else 1
        lens = self.pick(None, self.rng.integers(1, s + 1, b).astype(np.int32))
        names = ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Elu",
                 "Softsign", "Softplus", "ScaledTanh", "Affine",
                 "ThresholdedRelu"]
        acts = alpha = beta = None
        if self.pick(True, False, False):
            acts = [self.pick(*names) for _ in range(n_acts * d)]
            takes = [a for a in acts if a in (
                "LeakyRelu", "HardSigmoid", "Elu", "ScaledTanh", "Affine",
                "ThresholdedRelu")]
            alpha = [0.1 + 0.1 * j for j in range(len(takes))] or None
            both = [a for a in takes if a in ("HardSigmoid", "ScaledTanh",
                                              "Affine")]
            beta = [0.2 + 0.1 * j for j in range(len(both))] or None
        w = self.floats(d, gates * h, i) * 0.5
        r = self.floats(d, gates * h, h) * 0.3
        bias = self.pick(None, self.floats(d, 2 * gates * h))
        first = self.pick(None, self.floats(d, b, h))
        inputs = [self.floats(s, b, i), w, r, bias, lens, first]
        attrs = dict(hidden_size=h, direction=direction, activations=acts,
                     activation_alpha=alpha, activation_beta=beta,
                     clip=self.pick(None, None, 1.5))
        return inputs, attrs, d, b, h

    def rnn(self):
        inputs, attrs, *_ = self.recurrent("RNN", 1, 1)
        return Case("RNN", inputs, n_out=2, const=self.const(1, 2, 3), tol=1e-4,
                    **attrs)

    def gru(self):
        inputs, attrs, *_ = self.recurrent("GRU", 3, 2)
        return Case("GRU", inputs, n_out=2, const=self.const(1, 2, 3), tol=1e-4,
                    linear_before_reset=self.pick(None, 0, 1), **attrs)

    def lstm(self):
        inputs, attrs, d, b, h = self.recurrent("LSTM", 4, 3)
        inputs.append(self.pick(None, self.floats(d, b, h)))
        inputs.append(self.pick(None, self.floats(d, 3 * h)))
        return Case("LSTM", inputs, n_out=3, const=self.const(1, 2, 3),
                    tol=1e-4, input_forget=self.pick(None, 0, 0), **attrs)

    # ---- attention
    def attention(self):
        b, q, k, p = self.size(1, 2), self.size(1, 9), self.size(1, 9), 0
        kv = self.size(1, 3)
        heads, d, dv = kv * self.size(1, 3), self.pick(1, 8, 16), 8
        past = [None, None]
        if self.pick(True, False, False):
            p = self.size(1, 5)
            past = [self.floats(b, kv, p, d), self.floats(b, kv, p, dv)]
        attrs = {}
        if self.pick(True, False):
            attrs = dict(q_num_heads=heads, kv_num_heads=kv)
            qkv = [self.floats(b, q, heads * d), self.floats(b, k, kv * d),
                   self.floats(b, k, kv * dv)]
        else:
            qkv = [self.floats(b, heads, q, d), self.floats(b, kv, k, d),
                   self.floats(b, kv, k, dv)]
        shape = self.pick((q, k + p), (b, heads, q, k + p), (b, 1, q, k + p))
        mask = self.pick(None, self.floats(*shape))
        return Case("Attention", qkv + [mask] + past, opset=23, tol=1e-4,
                    n_out=3 if past[0] is not None else 1,
                    is_causal=self.pick(None, 0, 1) if mask is None else None,
                    scale=self.pick(None, 0.2), **attrs)

    def rotary(self):
        b, h, s, d = (self.size(1, 2), self.size(1, 3), self.size(1, 6),
                      2 * self.size(1, 5))
        flat = self.pick(True, False)
        x = self.floats(b, s, h * d) if flat else self.floats(b, h, s, d)
        return Case("RotaryEmbedding", [
            x, self.floats(20, d // 2), self.floats(20, d // 2),
            self.rng.integers(0, 20, (b, s))], opset=23,
            num_heads=h if flat else None, interleaved=self.pick(None, 0, 1))

    def fused_conv(self):
        case = self.conv()
        case.op, case.domain, case.tol = "FusedConv", MS, 1e-4
        act = self.pick("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip",
                        "HardSigmoid")
        case.attrs["activation"] = act
        params = {"LeakyRelu": [0.2], "Clip": [-0.5, 0.75],
                  "HardSigmoid": [0.3, 0.4]}.get(act)
        if params:
            case.attrs["activation_params"] = params
        return case

    def fused_gemm(self):
        case = self.gemm()
        case.op, case.domain = "FusedGemm", MS
        case.attrs["activation"] = self.pick("Relu", "Tanh", "Sigmoid",
                                             "LeakyRelu")
        case.attrs["activation_alpha"] = 0.2
        return case

    def ms_attention(self):
        b, s, h, d = self.size(1, 2), self.size(1, 7), self.size(1, 3), 8
        hidden = h * d
        mask = self.pick(None, (self.rng.random((b, s)) < 0.7).astype(np.int32),
                         self.rng.integers(1, s + 1, b).astype(np.int32))
        if mask is not None and mask.ndim == 2:
            mask[:, 0] = 1
        return Case("Attention", [
            self.floats(b, s, hidden), self.floats(hidden, 3 * hidden) * 0.3,
            self.floats(3 * hidden), mask], domain=MS, num_heads=h, tol=1e-4,
            const=self.const(1, 2), unidirectional=self.pick(None, 1))

    def ms_mha(self):
        b, s, k, h, d = (self.size(1, 2), self.size(1, 7), self.size(1, 7),
                         self.size(1, 3), 8)
        mask = self.pick(None, (self.rng.random((b, k)) < 0.7).astype(np.int32))
        if mask is not None:
            mask[:, 0] = 1
        return Case("MultiHeadAttention", [
            self.floats(b, s, h * d), self.floats(b, k, h * d),
            self.floats(b, k, h * d), self.pick(None, self.floats(3 * h * d)),
            mask, self.pick(None, self.floats(b, h, s, k))], domain=MS,
            num_heads=h, tol=1e-4, scale=self.pick(None, 0.3))

    def gqa(self):
        """A first prompt, one token more, or a piece of a prompt."""
        kv, d = self.size(1, 3), self.pick(8, 16, 32)
        heads = kv * self.size(1, 3)
        kind = self.pick("prompt", "token", "piece")
        b = 1 if kind == "piece" else self.size(1, 3)
        s = 1 if kind == "token" else self.size(2, 9)
        past = 0 if kind == "prompt" else self.size(1, 12)
        total = s + past
        room = past + self.pick(0, 0, self.size(1, 20))
        lens = np.full(b, total - 1, np.int32)
        if kind == "token":
            lens = self.rng.integers(1, past + 1, b).astype(np.int32)
            lens[0] = past
        elif kind == "prompt" and self.pick(True, False):
            lens = self.rng.integers(0, s, b).astype(np.int32)
        if kind == "prompt":
            room = self.pick(0, self.size(0, 20))
        turn = d % 16 == 0 and self.pick(True, True, False)
        half = self.pick(d // 2, 8) if turn else 0
        ids = None
        if turn and self.pick(False, False, True):
            ids = self.rng.integers(0, 30, (b, s))
        caches = [self.floats(40, half), self.floats(40, half)]
        packed = self.pick(True, False)
        qkv = [self.floats(b, s, (heads + 2 * kv) * d), None, None]
        if not packed:
            qkv = [self.floats(b, s, n * d) for n in (heads, kv, kv)]
        has = kind != "prompt" or self.pick(True, False)
        state = [self.floats(b, kv, room, d) if has else None
                 for _ in range(2)]
        causal = self.pick(None, 1, 0)
        bias = self.pick(None, None, self.floats(
            self.pick(1, b), self.pick(1, heads), s, total))
        sink = self.pick(None, None, self.floats(heads))
        case = Case("GroupQueryAttention", [
            *qkv, *state, lens, np.array(total, np.int32),
            *(caches if turn else (None, None)), ids, bias, sink],
            const=self.const(7, 8), domain=MS, n_out=3, tol=1e-4,
            num_heads=heads, kv_num_heads=kv, do_rotary=int(turn),
            causal=causal, scale=self.pick(None, 0.3),
            rotary_interleaved=self.pick(None, 0, 1),
            smooth_softmax=self.pick(None, 0, 1) if sink is None else None,
            local_window_size=self.pick(-1, self.size(1, 8))
            if causal != 0 else None, softcap=self.pick(None, 2.5))
        # Where a prompt was filled up, the runtime moves windows on: what these
        # positions see means nothing.
        if kind == "prompt" and case.attrs.get("local_window_size", -1) > 0:
            case.lengths = lens + 1
        return case

    def embed_norm(self):
        b, s, h = self.size(1, 3), self.size(1, 6), 4 * self.size(1, 4)
        seg = self.pick(None, self.rng.integers(0, 2, (b, s)).astype(np.int32))
        return Case("EmbedLayerNormalization", [
            self.rng.integers(0, 11, (b, s)).astype(np.int32), seg,
            self.floats(11, h), self.floats(9, h),
            None if seg is None else self.floats(2, h), self.floats(h),
            self.floats(h)], domain=MS, n_out=2, epsilon=1e-5, tol=1e-4)


KINDS = [
    "conv", "conv_transpose", "deform_conv", "average_pool", "max_pool",
    "lp_pool", "global_pool", "matmul", "fused_matmul", "gemm", "batch_norm",
    "instance_norm", "group_norm", "layer_norm", "rms_norm", "simplified_norm",
    "skip_norm", "lrn", "rnn", "gru", "lstm", "attention", "rotary",
    "fused_conv", "fused_gemm", "ms_attention", "ms_mha", "gqa",
    "embed_norm",
]


def run_ort(model, case):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = (
        ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    session = ort.InferenceSession(model.SerializeToString(), options,
                                   providers=["CPUExecutionProvider"])
    return session.run(case.outputs, case.feeds)


def run_ours(command, model, case, folder):
    path = os.path.join(folder, "m.onnx")
    onnx.save(model, path)
    call = [command, "run", path, "-q", "--npz", os.path.join(folder, "o.npz")]
    for name, value in case.feeds.items():
        np.save(os.path.join(folder, name + ".npy"), value)
        call += ["--input", f"{name}={os.path.join(folder, name)}.npy"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60,
                          check=False)
    if done.returncode != 0:
        return None, done.stderr.strip() or f"exit {done.returncode}"
    with np.load(os.path.join(folder, "o.npz")) as found:
        return [found[o] for o in case.outputs], ""


def compare(got, want, tol):
    for i, (g, w) in enumerate(zip(got, want)):
        if g.shape != w.shape or g.dtype != w.dtype:
            return f"output {i}: {g.dtype}{g.shape}, want {w.dtype}{w.shape}"
        if w.size == 0:
            continue
        g, w = g.astype(np.float64), w.astype(np.float64)
        same = (g == w) | (np.isnan(g) & np.isnan(w))
        with np.errstate(invalid="ignore"):
            error = np.where(same, 0, np.abs(g - w))
        limit = tol * max(1e-3, np.max(np.abs(w[np.isfinite(w)]), initial=0))
        if not np.all(error <= limit):
            at = np.unravel_index(np.nanargmax(error), error.shape)
            return f"output {i}{list(at)}: {g[at]}, want {w[at]}"
    return ""


def main():
    command = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    each = int(sys.argv[3]) if len(sys.argv) > 3 else 12
    pattern = sys.argv[4] if len(sys.argv) > 4 else ""
    passed = refused = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            if pattern not in kind:
                continue
            for n in range(each):
                case = getattr(Maker([seed, n, len(kind), ord(kind[0])]),
                               kind)()
                model = case.model()
                try:
                    want = run_ort(model, case)
                except Exception:  # pylint: disable=broad-except
                    refused += 1
                    continue
                if any(not np.all(np.abs(w) < 1e4) for w in want
                       if w.dtype == np.float32):
                    continue  # a recurrent net that explodes: all is rounding
                got, error = run_ours(command, model, case, folder)
                if case.lengths is not None and not error:
                    for b, end in enumerate(case.lengths):
                        got[0][b, end:] = want[0][b, end:] = 0
                error = error or compare(got, want, case.tol)
                if error:
                    failed += 1
                    print(f"FAIL {kind} seed {seed} case {n}: {case}\n"
                          f"     {error}")
                else:
                    passed += 1
    print(f"seed {seed}: {passed} passed, {failed} failed, "
          f"{refused} refused by ONNX Runtime")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
