#!/usr/bin/env python3
"""What quantizers and observers must compute, written down in float64 NumPy.

The plain definitions, on stored data, with no thought for speed or memory: the
C code streams and approximates, this file does not, so tests can compare the
two.  It shares nothing with the C code.  Run it to check it against answers
known by hand.

A `stream` is a list of samples, each an array without batch axis.  `axis` is
the channel axis inside a sample (weights: a stream of one sample, the weight),
or None for one range over everything.  Every observer returns two float64
arrays (lo, hi): one element, or one for each channel.
"""
import math
import sys

import numpy as np

# Clipping values of ACIQ in units of sigma (or of b), by bits from 1.
GAUS = [1.24, 1.71, 2.15, 2.55, 2.93, 3.28, 3.61, 3.92]
GAUS_ONE_SIDED = [1.71, 2.15, 2.55, 2.93, 3.28, 3.61, 3.92, 4.2]
LAPLACE = [1.86, 2.83, 3.89, 5.03, 6.2, 7.41, 8.64, 9.89]
LAPLACE_ONE_SIDED = [2.83, 3.89, 5.02, 6.2, 7.41, 8.64, 9.89, 11.16]
KL_BINS = 2048


# ---- quantizers ---------------------------------------------------------------
def bounds(bits, symmetric):
    """qmin and qmax."""
    if symmetric:
        return -2 ** (bits - 1), 2 ** (bits - 1) - 1
    return 0, 2 ** bits - 1


def qparams(lo, hi, bits, symmetric):
    """Scale and zero point of a range; zero is always inside."""
    lo = np.minimum(np.asarray(lo, np.float64), 0)
    hi = np.maximum(np.asarray(hi, np.float64), 0)
    qmin, qmax = bounds(bits, symmetric)
    if symmetric:
        scale = np.maximum(-lo, hi) * 2 / (qmax - qmin)
        scale = np.maximum(scale, 1e-6)
        return scale, np.zeros_like(scale)
    scale = np.maximum((hi - lo) / (qmax - qmin), 1e-6)
    return scale, np.round(-lo / scale)


def fake_quant(x, scale, zero, bits, symmetric):
    """np.round rounds halves to even."""
    qmin, qmax = bounds(bits, symmetric)
    z = np.round(zero)
    q = np.clip(np.round(np.asarray(x, np.float64) / scale) + z, qmin, qmax)
    return (q - z) * scale


# ---- observers ------------------------------------------------------------------
def rows(stream, axis):
    """All values of each channel, as one row; checked to be finite."""
    parts = []
    for i, sample in enumerate(stream):
        x = np.asarray(sample, np.float64)
        if not np.isfinite(x).all():
            raise ValueError(f"sample {i} is not finite")
        parts.append(x.reshape(1, -1) if axis is None else
                     np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1))
    return np.concatenate(parts, axis=1)


def minmax(stream, axis=None, **_):
    x = rows(stream, axis)
    return x.min(1), x.max(1)


def moving_average(stream, axis=None, ratio=0.9, **_):
    lo = hi = None
    for sample in stream:
        x = rows([sample], axis)
        new_lo, new_hi = x.min(1), x.max(1)
        lo = new_lo if lo is None else ratio * lo + (1 - ratio) * new_lo
        hi = new_hi if hi is None else ratio * hi + (1 - ratio) * new_hi
    return lo, hi


def percentile(stream, axis=None, alpha=0.001, **_):
    lo, hi = [], []
    for x in rows(stream, axis):
        ordered = np.sort(x)
        p = int((x >= 0).sum())
        n = len(x) - p
        cut_hi = max(int(np.round(p * alpha)), 0)
        cut_lo = max(int(np.round(n * alpha)), 1)
        hi.append(ordered[len(x) - cut_hi - 1] if p else 0.0)
        lo.append(ordered[cut_lo - 1] if n else 0.0)
    return np.array(lo), np.array(hi)


def mse_error(x, lo, hi, bits, symmetric):
    scale, zero = qparams(lo, hi, bits, symmetric)
    return float(((fake_quant(x, scale, zero, bits, symmetric) - x) ** 2).sum())


def mse_excess(x, scale, zero, lo, hi, bits, symmetric):
    """By how much the root mean square error with this scale and zero point is
    above that with the range [lo, hi], as a part of the largest magnitude."""
    best = mse_error(x, lo, hi, bits, symmetric)
    ours = ((fake_quant(x, scale, zero, bits, symmetric) - x) ** 2).sum()
    return float((math.sqrt(ours / x.size) - math.sqrt(best / x.size))
                 / max(np.abs(x).max(), 1e-300))


def mse(stream, axis=None, bits=8, symmetric=False, **_):
    lo, hi = [], []
    for x in rows(stream, axis):
        best, at = math.inf, 1.0
        for step in range(80):
            factor = 1.0 - 0.01 * step
            error = mse_error(x, x.min() * factor, x.max() * factor, bits,
                              symmetric)
            if error < best:
                best, at = error, factor
        lo.append(x.min() * at)
        hi.append(x.max() * at)
    return np.array(lo), np.array(hi)


def kl_divergence(hist, half, levels):
    """KL divergence between the histogram clipped to the `half` bins on either
    side of zero and the same with `levels` steps.

    P: the bins inside, what is cut off added to the outermost ones.
    Q: the bins inside without that, summed into `levels` equal parts, each sum
    spread evenly over those of its bins that P fills.
    A threshold that cuts off more than half is out: in the end P and Q would
    agree perfectly, both in the outermost bin.
    """
    middle = len(hist) // 2
    inside = hist[middle - half:middle + half].astype(np.float64)
    p = inside.copy()
    p[0] += hist[:middle - half].sum()
    p[-1] += hist[middle + half:].sum()
    level = np.arange(2 * half) * levels // (2 * half)
    full = p > 0
    total = np.bincount(level, inside, levels)
    count = np.bincount(level, full, levels)
    q = np.where(full, total[level] / np.maximum(count[level], 1), 0)
    if 2 * inside.sum() < hist.sum():
        return math.inf
    p, q = p / p.sum(), q / q.sum()
    # A level that holds nothing but what was cut off: as if it held little.
    q = np.where(full & (q == 0), 1e-9, q)
    return float((p[full] * np.log(p[full] / q[full])).sum())


def kl_curve(x, bits):
    """Divergence for every threshold, and the threshold of each.  Zeros, which
    are represented without error, do not count, and thresholds that cut off
    more than half of the rest are out (docs/observers.md says why)."""
    top = float(np.abs(x).max())
    x = x[x != 0]
    hist, _ = np.histogram(x, KL_BINS, (-top, top))
    levels, middle = 2 ** bits - 1, KL_BINS // 2
    halves = np.arange(min((levels + 1) // 2, middle), middle + 1)
    curve = np.array([
        kl_divergence(hist, h, levels)
        if hist[middle - h:middle + h].sum() * 2 >= len(x) else math.inf
        for h in halves])
    return curve, halves * top / middle


def kl_histogram(stream, axis=None, bits=8, symmetric=False, **_):
    lo, hi = [], []
    for x in rows(stream, axis):
        if not x.any():
            lo.append(0.0)
            hi.append(0.0)
            continue
        # Zeros are left out: no threshold changes them, but their peak behind
        # a ReLU, spread over a level, would favor ever finer levels.
        curve, thresholds = kl_curve(x[x != 0], bits)
        t = thresholds[int(np.argmin(curve))]
        lo.append(max(-t, x.min()) if not symmetric else -t)
        hi.append(min(t, x.max()) if not symmetric else t)
    return np.array(lo), np.array(hi)


def aciq(stream, axis=None, bits=8, symmetric=False, distribution="gaus", **_):
    x = rows(stream, axis)
    one_sided = not symmetric and bool((x >= 0).all())
    if distribution == "gaus":
        n = x.shape[1] * x.shape[0] / len(stream)
        spread = ((x.max(1) - x.min(1)) * 0.175
                  * (1 + math.sqrt(math.pi * math.log(4)))
                  / math.sqrt(2 * math.log(n)))
        table = GAUS_ONE_SIDED if one_sided else GAUS
    else:
        spread = np.abs(x - x.mean(1, keepdims=True)).mean(1)
        table = LAPLACE_ONE_SIDED if one_sided else LAPLACE
    clip = table[bits - 1] * spread
    return (np.zeros_like(clip) if one_sided else -clip), clip


OBSERVERS = {f.__name__: f for f in (minmax, moving_average, percentile, mse,
                                     kl_histogram, aciq)}


def observe(name, stream, axis=None, **params):
    return OBSERVERS[name](stream, axis, **params)


# ---- answers known by hand ---------------------------------------------------------
def near(what, got, want, tolerance=1e-12):
    got, want = np.broadcast_arrays(np.asarray(got, float),
                                    np.asarray(want, float))
    gap = np.abs(got - want).max()
    if not gap <= tolerance:
        raise AssertionError(f"{what}: {got}, want {want}")


def check_quantizers():
    near("affine", qparams(-1, 4, 8, False), [5 / 255, 51])
    near("affine, all above 0", qparams(1, 5.1, 8, False), [0.02, 0])
    near("symmetric", qparams(-1, 2.55, 8, True), [0.02, 0])
    near("one bit", qparams(-1, 1, 1, True), [2, 0])
    near("no range", qparams(0, 0, 8, True), [1e-6, 0])
    near("halves to even", fake_quant([0.5, 1.5, 2.5, -0.5], 1, 0, 8, True),
         [0, 2, 2, 0])
    near("clamped", fake_quant([-500, 500], 1, 10, 8, False), [-10, 245])


def check_ranges():
    stream = [np.array([[-1., 2.], [3., 5.]]), np.array([[-3., 1.], [9., 4.]])]
    near("minmax", minmax(stream), [[-3], [9]])
    near("minmax by channel", minmax(stream, 0), [[-3, 3], [2, 9]])
    near("moving average", moving_average(stream, ratio=0.5), [[-2], [7]])
    near("moving average by channel", moving_average(stream, 0, ratio=0.5),
         [[-2, 3.5], [1.5, 7]])
    near("percentile", percentile([np.arange(-1000., 2000.)], alpha=0.01),
         [[-991], [1979]])
    near("percentile without negatives",
         percentile([np.arange(1000.)], alpha=0.01), [[0], [989]])
    near("percentile of little data", percentile([np.array([-2., 1.])]),
         [[-2], [1]])


def check_searches():
    rng = np.random.default_rng(0)
    grid = np.arange(-128, 128) / 32.0
    near("mse on the grid", mse([np.append(grid, 4.0 - 1 / 32)], symmetric=False),
         [[-4], [4 - 1 / 32]])
    core = np.append(rng.uniform(-1, 1, 100000), [4.0, -4.0])
    near("mse cuts two outliers at 4 bit", mse([core], bits=4)[1], 1.0, 0.15)
    flat = rng.uniform(-1, 1, 1 << 20)
    near("kl keeps a flat distribution",
         kl_histogram([flat], symmetric=True)[1], 1, 0.01)
    core = np.append(flat, [6.0])
    near("kl cuts an outlier", kl_histogram([core], symmetric=True)[1], 1, 0.05)
    bell = rng.standard_normal(1 << 20)
    t8 = float(kl_histogram([bell], bits=8, symmetric=True)[1][0])
    t4 = float(kl_histogram([bell], bits=4, symmetric=True)[1][0])
    if not 2 < t4 < t8 < 5:
        raise AssertionError(f"kl on a bell: {t4} at 4 bit, {t8} at 8 bit")
    low = kl_histogram([np.abs(bell)], bits=8)[0]
    near("kl without negatives", low, np.abs(bell).min())


def check_aciq():
    x = np.array([-2., -1., 0., 1., 2., 6.])
    spread = (8 * 0.175 * (1 + math.sqrt(math.pi * math.log(4)))
              / math.sqrt(2 * math.log(6)))
    near("aciq gaus", aciq([x], bits=8)[1], 3.92 * spread)
    near("aciq laplace", aciq([x], bits=4, distribution="laplace"),
         [[-5.03 * 2], [5.03 * 2]])
    near("aciq one-sided", aciq([x + 2], bits=4, distribution="laplace"),
         [[0], [6.2 * 2]])
    near("aciq symmetric never one-sided",
         aciq([x + 2], bits=4, distribution="laplace", symmetric=True)[0],
         -5.03 * 2)


def self_check():
    check_quantizers()
    check_ranges()
    check_searches()
    check_aciq()
    try:
        minmax([np.array([1.0]), np.array([np.nan])])
    except ValueError as e:
        if "sample 1" not in str(e):
            raise
    else:
        raise AssertionError("NaN went through")


if __name__ == "__main__":
    self_check()
    print("pass observers")
    sys.exit(0)
