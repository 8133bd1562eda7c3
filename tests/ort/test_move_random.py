"""Data movement operators against ONNX Runtime on random single-node models.

usage: test_move_random.py COMMAND [CASES] [SEED] [OP]

Every case draws dtypes, shapes and attributes, makes some of the small inputs
constants and some of them run-time inputs (whose shapes are then known only
while running), and compares all outputs.  A failing case prints its seed.
Exits 77 if ONNX Runtime is missing.
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

OPSET = 21
DTYPES = [np.float32, np.float64, np.float16, np.int64, np.int32, np.int8,
          np.uint8, np.bool_]


class Case:
    """One node: arrays (None for an absent input), attributes, outputs."""

    def __init__(self, op, inputs, attrs=None, n_out=1, tol=0.0, shapes=()):
        self.op, self.inputs, self.attrs = op, inputs, attrs or {}
        self.n_out, self.tol = n_out, tol
        self.small = set(shapes)  # inputs that may be constants


def dims(rng, lo=0, hi=4, size=5, zero=0.05):
    rank = int(rng.integers(lo, hi + 1))
    low = 0 if rng.random() < zero else 1
    return [int(d) for d in rng.integers(low, size + 1, rank)]


def data(rng, shape, dtype=None):
    dtype = dtype or DTYPES[rng.integers(len(DTYPES))]
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, 50, shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def f32(rng, shape):
    return data(rng, shape, np.float32)


def i64(values):
    return np.array(values, np.int64)


def axis_of(rng, rank):
    return int(rng.integers(-rank, rank))


def reshape(rng):
    shape = dims(rng, 1)
    target = list(shape)
    rng.shuffle(target)
    if target and rng.random() < 0.5 and 0 not in target:
        target[rng.integers(len(target))] = -1
    return Case("Reshape", [data(rng, shape), i64(target)],
                {"allowzero": int(0 in target)}, shapes=[1])


def flatten(rng):
    shape = dims(rng)
    return Case("Flatten", [data(rng, shape)],
                {"axis": int(rng.integers(-len(shape), len(shape) + 1))})


def squeeze(rng):
    shape = [1 if rng.random() < 0.5 else d for d in dims(rng)]
    ones = [i for i, d in enumerate(shape) if d == 1]
    axes = [i - len(shape) * int(rng.integers(2)) for i in ones
            if rng.random() < 0.7]
    return Case("Squeeze", [data(rng, shape), i64(axes)] if axes
                else [data(rng, shape)], shapes=[1])


def unsqueeze(rng):
    shape = dims(rng, 0, 3)
    n = int(rng.integers(1, 3))
    axes = rng.permutation(len(shape) + n)[:n]
    axes = [int(a) - (len(shape) + n) * int(rng.integers(2)) for a in axes]
    return Case("Unsqueeze", [data(rng, shape), i64(axes)], shapes=[1])


def transpose(rng):
    shape = dims(rng, 1, 5, 9)
    attrs = {}
    if rng.random() < 0.8:
        attrs["perm"] = [int(p) for p in rng.permutation(len(shape))]
    return Case("Transpose", [data(rng, shape)], attrs)


def big_transpose(rng):
    shape = [int(d) for d in rng.integers(20, 90, 3)]
    return Case("Transpose", [data(rng, shape)],
                {"perm": [int(p) for p in rng.permutation(3)]})


def concat(rng):
    shape = dims(rng, 1)
    axis = axis_of(rng, len(shape))
    x = data(rng, shape)
    parts = [x]
    for _ in range(rng.integers(0, 3)):
        other = list(shape)
        other[axis] = int(rng.integers(0, 4))
        parts.append(data(rng, other, x.dtype.type))
    return Case("Concat", parts, {"axis": axis})


def split(rng):
    shape = dims(rng, 1, zero=0)
    axis = axis_of(rng, len(shape))
    n = int(rng.integers(1, 4))
    if rng.random() < 0.5:
        sizes = rng.multinomial(shape[axis], [1 / n] * n)
        return Case("Split", [data(rng, shape), i64(sizes)], {"axis": axis}, n,
                    shapes=[1])
    shape[axis] += n * (n - 1)  # the last part must not be empty
    return Case("Split", [data(rng, shape)], {"axis": axis, "num_outputs": n},
                n)


def slice_(rng):
    shape = dims(rng, 1)
    n = int(rng.integers(1, len(shape) + 1))
    axes = [int(a) - len(shape) * int(rng.integers(2))
            for a in rng.permutation(len(shape))[:n]]
    far = [-2 ** 63, -2 ** 31, 2 ** 31 - 1, 2 ** 63 - 1]

    def place():
        return int(far[rng.integers(4)]) if rng.random() < 0.2 else \
            int(rng.integers(-7, 8))
    starts, ends = [place() for _ in axes], [place() for _ in axes]
    steps = [int(rng.choice([-3, -2, -1, 1, 1, 1, 2, 3])) for _ in axes]
    return Case("Slice", [data(rng, shape), i64(starts), i64(ends), i64(axes),
                          i64(steps)], shapes=[1, 2, 3, 4])


def indices(rng, n, shape):
    return rng.integers(-n, n, shape).astype(
        np.int64 if rng.random() < 0.7 else np.int32)


def gather(rng):
    shape = dims(rng, 1, zero=0)
    axis = axis_of(rng, len(shape))
    return Case("Gather", [data(rng, shape),
                           indices(rng, shape[axis], dims(rng, 0, 2))],
                {"axis": axis}, shapes=[1])


def gather_elements(rng):
    shape = dims(rng, 1, zero=0)
    axis = axis_of(rng, len(shape))
    where = [int(rng.integers(1, d + 1)) for d in shape]
    where[axis] = int(rng.integers(1, 6))
    return Case("GatherElements", [data(rng, shape),
                                   indices(rng, shape[axis], where)],
                {"axis": axis}, shapes=[1])


def tuples(rng, shape, batch, lead):
    m = int(rng.integers(1, len(shape) - batch + 1))
    lead = shape[:batch] + lead
    return np.stack([rng.integers(-shape[batch + i], shape[batch + i], lead)
                     for i in range(m)], -1).astype(np.int64), m


def gather_nd(rng):
    shape = dims(rng, 2, zero=0)
    batch = int(rng.integers(0, len(shape)))
    where, _ = tuples(rng, shape, batch, dims(rng, 0, 2, zero=0))
    return Case("GatherND", [data(rng, shape), where], {"batch_dims": batch},
                shapes=[1])


def scatter_elements(rng):
    shape = dims(rng, 1, zero=0)
    axis = axis_of(rng, len(shape))
    where = [int(rng.integers(1, d + 1)) for d in shape]
    dtype = [np.float32, np.int64, np.int32, np.float64][rng.integers(4)]
    reduction = ["none", "add", "mul", "max", "min"][rng.integers(5)]
    idx = indices(rng, shape[axis], where)
    if reduction == "none":  # which of several wins is not defined
        idx = rng.permuted(np.broadcast_to(
            np.arange(shape[axis]).reshape(
                [-1 if i == axis % len(shape) else 1
                 for i in range(len(shape))]), shape),
            axis=axis)[tuple(slice(0, d) for d in where)].astype(np.int64)
    return Case("ScatterElements", [data(rng, shape, dtype), idx,
                                    data(rng, where, dtype)],
                {"axis": axis, "reduction": reduction}, tol=1e-5, shapes=[1])


def scatter_nd(rng):
    shape = dims(rng, 1, zero=0)
    lead = dims(rng, 1, 2, zero=0)
    where, m = tuples(rng, shape, 0, lead)
    dtype = [np.float32, np.int64, np.int32][rng.integers(3)]
    reduction = ["add", "mul", "max", "min"][rng.integers(4)]
    return Case("ScatterND", [data(rng, shape, dtype), where,
                              data(rng, lead + shape[m:], dtype)],
                {"reduction": reduction}, tol=1e-5, shapes=[1])


def expand(rng):
    shape = [1 if rng.random() < 0.5 else d for d in dims(rng)]
    target = [d if d != 1 else int(rng.integers(1, 5)) for d in shape]
    target = dims(rng, 0, 2) + target
    return Case("Expand", [data(rng, shape), i64(target)], shapes=[1])


def tile(rng):
    shape = dims(rng, 1)
    return Case("Tile", [data(rng, shape), i64(rng.integers(0 if rng.random() <
                0.1 else 1, 4, len(shape)))], shapes=[1])


def pad(rng):
    shape = dims(rng, 1, zero=0)
    mode = ["constant", "edge", "reflect", "wrap"][rng.integers(4)]
    lo = -1 if rng.random() < 0.3 and mode == "constant" else 0
    axes = list(range(len(shape)))
    inputs = [data(rng, shape, np.float32 if rng.random() < 0.5 else np.int64)]
    if rng.random() < 0.5:
        axes = [int(a) for a in rng.permutation(len(shape))[
            :rng.integers(1, len(shape) + 1)]]
    begin, end = [], []
    for a in axes:
        # ONNX Runtime mirrors once: pads stay below the dimension.
        most = shape[a] - 1 if mode == "reflect" else 3
        low = max(lo, -(shape[a] // 2))
        begin.append(int(rng.integers(low, most + 1)))
        end.append(int(rng.integers(low, most + 1)))
    inputs.append(i64(begin + end))
    inputs.append(inputs[0].dtype.type(3) if rng.random() < 0.5 else None)
    if len(axes) < len(shape) or rng.random() < 0.3:
        inputs.append(i64([a - len(shape) * int(rng.integers(2))
                           for a in axes]))
    return Case("Pad", inputs, {"mode": mode}, shapes=[1, 2, 3])


def shape(rng):
    return Case(["Shape", "Size"][rng.integers(2)], [data(rng, dims(rng))])


def shape_range(rng):
    return Case("Shape", [data(rng, dims(rng))],
                {"start": int(rng.integers(-6, 6)),
                 "end": int(rng.integers(-6, 6))})


def one_hot(rng):
    where = dims(rng, 1, 3)
    depth = int(rng.integers(1, 7))
    dtype = [np.float32, np.int64][rng.integers(2)]
    return Case("OneHot", [rng.integers(-depth - 1, depth + 2, where),
                           i64(depth), data(rng, [2], dtype)],
                {"axis": axis_of(rng, len(where) + 1)}, shapes=[1])


def eye_like(rng):
    return Case("EyeLike", [f32(rng, [int(d) for d in rng.integers(1, 6, 2)])],
                {"k": int(rng.integers(-6, 7)),
                 "dtype": [1, 6, 7, 11][rng.integers(4)]})


def non_zero(rng):
    x = data(rng, dims(rng, 1), [np.float32, np.int64, np.bool_, np.uint8][
        rng.integers(4)])
    return Case("NonZero", [x * (rng.random(x.shape) < 0.5).astype(x.dtype)])


def compress(rng):
    shape = dims(rng, 1, zero=0)
    if rng.random() < 0.3:
        return Case("Compress", [data(rng, shape), rng.random(
            int(rng.integers(0, np.prod(shape) + 1))) < 0.5], shapes=[1])
    axis = axis_of(rng, len(shape))
    return Case("Compress", [data(rng, shape), rng.random(
        int(rng.integers(0, shape[axis] + 1))) < 0.5], {"axis": axis},
        shapes=[1])


def unique(rng):
    shape = dims(rng, 1, 3, zero=0)
    x = rng.integers(0, 4, shape).astype(
        [np.float32, np.int64, np.int8][rng.integers(3)])
    attrs = {"sorted": int(rng.integers(2))}
    if rng.random() < 0.5:
        attrs["axis"] = axis_of(rng, len(shape))
    return Case("Unique", [x], attrs, 4)


def reverse_sequence(rng):
    shape = dims(rng, 2, zero=0)
    time = int(rng.integers(2))
    return Case("ReverseSequence", [data(rng, shape), rng.integers(
        1, shape[time] + 1, shape[1 - time])],
        {"time_axis": time, "batch_axis": 1 - time})


def depth_to_space(rng):
    b = int(rng.integers(1, 4))
    n, c, h, w = (int(d) for d in rng.integers(1, 5, 4))
    if rng.random() < 0.5:
        return Case("SpaceToDepth", [f32(rng, [n, c, h * b, w * b])],
                    {"blocksize": b})
    return Case("DepthToSpace", [f32(rng, [n, c * b * b, h, w])],
                {"blocksize": b, "mode": ["DCR", "CRD"][rng.integers(2)]})


def trilu(rng):
    inputs = [data(rng, dims(rng, 2))]
    if rng.random() < 0.7:
        inputs.append(i64(int(rng.integers(-6, 7))))
    return Case("Trilu", inputs, {"upper": int(rng.integers(2))}, shapes=[1])


def resize(rng):
    mode = ["nearest", "linear", "cubic"][rng.integers(3)]
    coord = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric",
             "half_pixel_symmetric", "tf_half_pixel_for_nn",
             "tf_crop_and_resize"][rng.integers(7)]
    antialias = int(mode != "nearest" and rng.random() < 0.25 and
                    coord not in ("tf_crop_and_resize",))
    if coord == "tf_half_pixel_for_nn" and mode != "nearest":
        coord = "half_pixel"
    x = f32(rng, [int(d) for d in rng.integers(1, 9, 4)])
    attrs = {"mode": mode, "coordinate_transformation_mode": coord,
             "antialias": antialias, "extrapolation_value": 7.0}
    if mode == "nearest":
        attrs["nearest_mode"] = ["round_prefer_floor", "round_prefer_ceil",
                                 "floor", "ceil"][rng.integers(4)]
    if mode == "cubic":
        attrs["cubic_coeff_a"] = [-0.75, -0.5][rng.integers(2)]
        attrs["exclude_outside"] = int(rng.integers(2))
    roi = None
    if coord == "tf_crop_and_resize":
        lo, hi = rng.uniform(-0.1, 0.4, 2), rng.uniform(0.6, 1.1, 2)
        roi = np.array([0, 0, *lo, 1, 1, *hi], np.float32)
    if rng.random() < 0.5:
        scales = np.array([1, 1, *rng.choice([0.5, 0.7, 1, 1.5, 2, 3, 2.3],
                                             2)], np.float32)
        inputs = [x, roi, scales]
    else:
        sizes = i64([x.shape[0], x.shape[1], *rng.integers(1, 17, 2)])
        inputs = [x, roi, None, sizes]
        if roi is None and rng.random() < 0.4:
            attrs["axes"] = [2, 3]
            attrs["keep_aspect_ratio_policy"] = [
                "stretch", "not_larger", "not_smaller"][rng.integers(3)]
            inputs[3] = sizes[2:]
    if roi is None and rng.random() < 0.2:
        inputs[0] = inputs[0].astype(np.float64)[..., :1].astype(np.float32)
    return Case("Resize", inputs, attrs, tol=1e-4, shapes=[1, 2, 3])


def resize_types(rng):
    dtype = [np.uint8, np.int8, np.int32, np.float16][rng.integers(4)]
    x = rng.integers(0, 100, [1, 2, 5, 6]).astype(dtype)
    return Case("Resize", [x, None, np.array([1, 1, 2, 2], np.float32)],
                {"mode": "nearest"}, shapes=[2])


def center_crop_pad(rng):
    shape = dims(rng, 1, zero=0)
    return Case("CenterCropPad", [f32(rng, shape), i64(rng.integers(
        1, 7, len(shape)))], shapes=[1])


def col2im(rng):
    block = rng.integers(1, 4, 2)
    dil, stride = rng.integers(1, 3, 2), rng.integers(1, 3, 2)
    pads = rng.integers(0, 2, 4)
    image = (block - 1) * dil + 1 + rng.integers(0, 4, 2)
    n = (image + pads[:2] + pads[2:] - (block - 1) * dil - 1) // stride + 1
    c = int(rng.integers(1, 3))
    x = f32(rng, [int(rng.integers(1, 3)), c * int(block.prod()),
                  int(n.prod())])
    return Case("Col2Im", [x, i64(image), i64(block)],
                {"dilations": dil.tolist(), "strides": stride.tolist(),
                 "pads": pads.tolist()}, tol=1e-5, shapes=[1, 2])


def grid_sample(rng):
    n = 2 if rng.random() < 0.7 else 3
    mode = ["linear", "nearest", "cubic"][rng.integers(3 if n == 2 else 2)]
    x = f32(rng, [int(d) for d in rng.integers(1, 6, n + 2)])
    grid = rng.uniform(-1.6, 1.6, [x.shape[0], *rng.integers(1, 5, n), n])
    return Case("GridSample", [x, grid.astype(np.float32)],
                {"mode": mode, "align_corners": int(rng.integers(2)),
                 "padding_mode": ["zeros", "border", "reflection"][
                     rng.integers(3)]}, tol=2e-4)


def affine_grid(rng):
    n = int(rng.integers(2, 4))
    size = [int(d) for d in rng.integers(2, 5, n + 2)]
    return Case("AffineGrid", [f32(rng, [size[0], n, n + 1]), i64(size)],
                {"align_corners": int(rng.integers(2))}, tol=1e-5, shapes=[1])


def roi_align(rng):
    x = f32(rng, [int(d) for d in rng.integers(1, 8, 4)])
    n = int(rng.integers(1, 4))
    lo = rng.uniform(-1, 5, [n, 2])
    rois = np.concatenate([lo, lo + rng.uniform(0.5, 6, [n, 2])], 1)
    return Case("RoiAlign", [x, rois.astype(np.float32),
                             rng.integers(0, x.shape[0], n)],
                {"mode": ["avg", "max"][rng.integers(2)],
                 "coordinate_transformation_mode":
                     ["half_pixel", "output_half_pixel"][rng.integers(2)],
                 "output_height": int(rng.integers(1, 5)),
                 "output_width": int(rng.integers(1, 5)),
                 "sampling_ratio": int(rng.integers(0, 3)),
                 "spatial_scale": float(rng.choice([1.0, 0.5]))}, tol=1e-4)


def max_roi_pool(rng):
    x = f32(rng, [int(d) for d in rng.integers(1, 8, 4)])
    n = int(rng.integers(1, 4))
    lo = rng.integers(0, 6, [n, 2])
    rois = np.concatenate([rng.integers(0, x.shape[0], [n, 1]), lo,
                           lo + rng.integers(0, 6, [n, 2])], 1)
    return Case("MaxRoiPool", [x, rois.astype(np.float32)],
                {"pooled_shape": [int(d) for d in rng.integers(1, 4, 2)],
                 "spatial_scale": float(rng.choice([1.0, 0.5]))})


def nms(rng):
    b, c, n = (int(d) for d in rng.integers(1, [3, 4, 40]))
    most = 20
    if rng.random() < 0.3:  # so many that they are compared block by block
        n, most = 300, 250
    boxes = rng.uniform(0, 4, [b, n, 4]).astype(np.float32)
    scores = np.round(rng.random([b, c, n]), 1).astype(np.float32)
    inputs = [boxes, scores, i64([int(rng.integers(0, most))]),
              np.array([rng.choice([0, 0.3, 0.5, 0.7])], np.float32)]
    if rng.random() < 0.7:
        inputs.append(np.array([rng.choice([0, 0.3, 0.5])], np.float32))
    return Case("NonMaxSuppression", inputs,
                {"center_point_box": int(rng.integers(2))}, shapes=[2, 3, 4])


def max_unpool(rng):
    n, c, h, w = (int(d) for d in rng.integers(1, 4, 4))
    out = n * c * h * 2 * w * 2
    return Case("MaxUnpool", [f32(rng, [n, c, h, w]),
                              rng.permutation(out)[:n * c * h * w].reshape(
                                  n, c, h, w)],
                {"kernel_shape": [2, 2], "strides": [2, 2]})


def constant_of_shape(rng):
    return Case("ConstantOfShape", [i64(dims(rng, 1))], {
        "value": numpy_helper.from_array(data(rng, [1]))}, shapes=[0])


MAKERS = [reshape, flatten, squeeze, unsqueeze, transpose, big_transpose,
          concat, split, slice_, gather, gather_elements, gather_nd,
          scatter_elements, scatter_nd, expand, tile, pad, shape, shape_range,
          one_hot, eye_like, non_zero, compress, unique, reverse_sequence,
          depth_to_space, trilu, resize, resize, resize, resize_types,
          center_crop_pad, col2im, grid_sample, affine_grid, roi_align,
          max_roi_pool, nms, max_unpool, constant_of_shape]


def build(case, rng):
    """The model and the arrays to feed."""
    names, feeds, infos, weights = [], {}, [], []
    for i, x in enumerate(case.inputs):
        if x is None:
            names.append("")
            continue
        name = f"x{i}"
        names.append(name)
        x = np.asarray(x)
        if i in case.small and rng.random() < 0.6:
            weights.append(numpy_helper.from_array(x, name))
            continue
        feeds[name] = x
        # Sometimes even the rank is all that the model says.
        dim = [f"{name}_{d}" for d in range(x.ndim)] if rng.random() < 0.3 \
            else list(x.shape)
        infos.append(helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), dim))
    outs = [f"y{i}" for i in range(case.n_out)]
    node = helper.make_node(case.op, names, outs, **case.attrs)
    graph = helper.make_graph(
        [node], "g", infos,
        [helper.make_empty_tensor_value_info(o) for o in outs], weights)
    model = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", OPSET)])
    try:
        model = onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        pass
    return model, feeds


def compare(got, want, tol):
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} instead of " \
               f"{want.dtype}{list(want.shape)}"
    if tol == 0 or want.dtype.kind not in "f":
        same = np.array_equal(got, want, equal_nan=want.dtype.kind == "f")
    else:
        same = np.allclose(got, want, rtol=tol, atol=tol, equal_nan=True)
    return None if same else f"{got.ravel()[:8]} instead of " \
                             f"{want.ravel()[:8]}"


def run_ours(command, folder, model, feeds):
    path = os.path.join(folder, "model.onnx")
    onnx.save(model, path)
    args = [command, "run", path, "--out-dir", folder, "--quiet"]
    for name, x in feeds.items():
        file = os.path.join(folder, f"in_{name}.npy")
        np.save(file, x)
        args += ["--input", f"{name}={file}"]
    done = subprocess.run(args, capture_output=True, text=True, timeout=60)
    if done.returncode:
        return None, done.stderr.strip() or f"exit {done.returncode}"
    return [np.load(os.path.join(folder, f"{o.name}.npy"))
            for o in model.graph.output], None


def describe(case):
    shapes = ["-" if x is None else f"{np.asarray(x).dtype}"
              f"{list(np.asarray(x).shape)}" for x in case.inputs]
    attrs = {k: v for k, v in case.attrs.items()
             if not isinstance(v, TensorProto)}
    return f"{case.op}({', '.join(shapes)}) {attrs}"


def main():
    command = sys.argv[1]
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 240
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    makers = [m for m in MAKERS if len(sys.argv) <= 4
              or m.__name__.startswith(sys.argv[4])]
    ort.set_default_logger_severity(4)
    bad = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + n):
            rng = np.random.default_rng(seed)
            case = makers[seed % len(makers)](rng)
            model, feeds = build(case, rng)
            try:
                session = ort.InferenceSession(
                    model.SerializeToString(),
                    providers=["CPUExecutionProvider"])
                want = session.run(None, feeds)
            except Exception as error:  # types that it lacks
                refused += 1
                if "-v" in sys.argv:
                    print(seed, describe(case), str(error)[:150])
                continue
            got, why = run_ours(command, folder, model, feeds)
            for i, w in enumerate(want):
                why = why or compare(got[i], w, case.tol)
            if why:
                bad += 1
                print(f"seed {seed}: {describe(case)}: {why}")
    print(f"{n - bad - refused} agree, {bad} differ, {refused} not run by "
          "ONNX Runtime")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
