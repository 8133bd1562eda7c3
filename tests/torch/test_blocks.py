"""A block that is learned (SCHEDULE.BLOCKWISE), here and by PyTorch.

    test_blocks.py COMMAND

Two convolutions with a Relu between them and a sum around them, on one image, which is all
that each step sees: so both learn from the same numbers in the same order.  PyTorch
starts at the file without learning, whose graph it runs node by node; its gradients, its
Adam, BRECQ's losses as the paper has them: the squared distance from the float network,
summed over channels (of a signal of 1), and LAMBDA times the sum of 1 - |2h - 1|^beta.
Of both: rates are cosines for scales (of logarithms) and biases, beta falls from 20 to 2
after a fifth of all steps.

What must agree: the error of the block, by a tenth of what was gained; 95 % of the weights'
integers; scales, by a twentieth of how far their rate lets them go; biases, by a twentieth of
how far they went.  Steps are few: activations of 4 bits jump, so that after a hundred steps
two runs of PyTorch that start 1e-6 apart have 1 % other integers, while after these all are
equal.  Needs torch."""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import torch
    import torch.nn.functional as F
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

STEPS, RATE, LAMBDA = 20, 0.05, 0.01
N, CHANNELS, INNER, SIZE = 1, 6, 10, 25
CONFIG = """SCHEDULE: {{FUSE_BN: true{more}}}
W: {{QSCHEME: per-channel-symmetric, QUANTIZER: {{BIT: 3}}, OBSERVER: {{TYPE: mse}}}}
A: {{QSCHEME: per-tensor-affine, QUANTIZER: {{BIT: 4}}, OBSERVER: {{TYPE: mse}}}}
"""
LEARN = ", BLOCKWISE: {{STEPS: {}, BATCH: {}, DROP: 0, LEARNING_RATE: {}, SCALE_RATE: {}}}"
command = os.path.abspath(sys.argv[1])
failed = 0
torch.set_num_threads(1)


def check(what, good):
    global failed
    print(("ok   " if good else "FAIL ") + what)
    failed += not good


# ---- the network ------------------------------------------------------------
def network(path, rng):
    w = [rng.standard_normal((INNER, CHANNELS, 3, 3)) / 7,
         rng.standard_normal((CHANNELS, INNER, 3, 3)) / 9]
    b = [rng.standard_normal(len(m)) / 4 for m in w]
    init = [numpy_helper.from_array(v.astype(np.float32), f"{n}{i}")
            for n, some in (("w", w), ("b", b)) for i, v in enumerate(some)]
    nodes = [helper.make_node("Conv", ["x", "w0", "b0"], ["h"], "up",
                              pads=[1] * 4),
             helper.make_node("Relu", ["h"], ["r"], "act"),
             helper.make_node("Conv", ["r", "w1", "b1"], ["d"], "down",
                              pads=[1] * 4),
             helper.make_node("Add", ["d", "x"], ["y"], "sum")]
    shape = [N, CHANNELS, SIZE, SIZE]
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], init)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    onnx.save(model, path)
    return w, b


def quantize(folder, name, more=""):
    at = lambda n: os.path.join(folder, n)
    with open(at("q.yaml"), "w") as f:
        f.write(CONFIG.format(more=more))
    subprocess.run([command, "quantize", at("net.onnx"), "-c", at("q.yaml"),
                    "-d", at("x.yaml"), "-t", "virtual", "-o", at(name), "-q"],
                   check=True, stderr=subprocess.DEVNULL)
    return onnx.load(at(name)).graph


# ---- the same by PyTorch ----------------------------------------------------
class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, g):
        return g


class Block:
    """A quantized file whose weights, biases and scales of activations can be
    other ones."""

    def __init__(self, graph):
        self.graph = graph
        self.known = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
        self.codes, self.scales, self.biases, self.bounds = {}, {}, {}, {}
        made = {n.output[0]: n for n in graph.node}
        for n in graph.node:
            if n.op_type == "DequantizeLinear" and n.input[0] in self.known:
                self.codes[n.output[0]] = (
                    self.known[n.input[0]].astype(np.float64),
                    self.known[n.input[1]].astype(np.float64))
            elif n.op_type == "QuantizeLinear":
                zero = self.known[n.input[2]]
                kind = next(i.data_type for i in graph.initializer
                            if i.name == n.input[2])
                bits = 4 if kind in (TensorProto.UINT4, TensorProto.INT4) else 8
                low = 0 if kind in (TensorProto.UINT4, TensorProto.UINT8) \
                    else -2 ** (bits - 1)
                self.scales[n.output[0]] = float(self.known[n.input[1]])
                self.bounds[n.output[0]] = (low, low + 2 ** bits - 1,
                                            float(zero.astype(np.int64)))
        for n in graph.node:
            if n.op_type == "Conv":
                self.biases[n.name] = self.bias(made, n.input[2])

    def bias(self, made, name):
        if name in self.known:
            return self.known[name].astype(np.float64)
        codes, scale = self.codes.pop(name)
        return codes * scale

    def run(self, x, weights, biases, scales):
        v = {self.graph.input[0].name: x}
        for n in self.graph.node:
            if n.op_type == "QuantizeLinear":
                low, high, zero = (torch.tensor(float(b)).double()
                                   for b in self.bounds[n.output[0]])
                s = scales[n.output[0]]
                q = Round.apply(v[n.input[0]] / s) + zero
                # Not clamp(), which lets no gradient through at the ends.
                q = torch.where(q < low, low, torch.where(q > high, high, q))
                y = (q - zero) * s
            elif n.op_type == "DequantizeLinear":
                y = weights.get(n.output[0], v.get(n.input[0]))
            elif n.op_type == "Conv":
                y = F.conv2d(v[n.input[0]], v[n.input[1]], biases[n.name],
                             padding=1)
            elif n.op_type == "Relu":
                y = torch.relu(v[n.input[0]])
            elif n.op_type == "Add":
                y = v[n.input[0]] + v[n.input[1]]
            else:
                sys.exit(f"FAIL {n.op_type} in the file")
            v[n.output[0]] = y
        return v[self.graph.output[0].name]


def shaped(scale):
    return torch.tensor(scale).reshape(-1, 1, 1, 1)


def loss_of(y, target):
    return ((y - target) ** 2).mean() / (target ** 2).mean() * CHANNELS


def stretched(v):
    return torch.clamp(torch.sigmoid(v) * 1.2 - 0.1, 0, 1)


def learn(block, x, target, plain, scale_rate):
    """Integers of weights, biases and scales after all steps."""
    v, low = {}, {}
    names = list(block.codes)
    for name, w in zip(names, plain):
        steps = torch.tensor(w) / shaped(block.codes[name][1])
        low[name] = torch.floor(steps)
        share = steps - low[name]
        v[name] = (-torch.log(1.2 / (share + 0.1) - 1)).requires_grad_()
    unit = [np.sqrt((w ** 2).sum() / len(w)) for w in plain]
    offset = {n: torch.zeros(len(b), dtype=torch.float64, requires_grad=True)
              for n, b in block.biases.items()}
    logs = {n: torch.zeros((), dtype=torch.float64, requires_grad=True)
            for n in block.scales}
    high = 2 ** (3 - 1) - 1

    def values(h):
        weights = {n: torch.clamp(low[n] + h(v[n]), -high - 1, high) *
                   shaped(block.codes[n][1]) for n in names}
        biases = {n: torch.tensor(b) + u * offset[n]
                  for (n, b), u in zip(block.biases.items(), unit)}
        scales = {n: s * torch.exp(logs[n]) for n, s in block.scales.items()}
        return weights, biases, scales

    rounding = torch.optim.Adam(v.values(), lr=RATE)
    others = torch.optim.Adam([*offset.values(), *logs.values()], lr=scale_rate)
    for step in range(STEPS):
        for group in others.param_groups:
            group["lr"] = scale_rate * 0.5 * (1 + np.cos(np.pi * step / STEPS))
        rounding.zero_grad()
        others.zero_grad()
        loss = loss_of(block.run(x, *values(stretched)), target)
        warm = 0.2 * STEPS
        if step >= warm:
            beta = 2 + 18 * (1 - (step - warm) / (STEPS - warm))
            loss = loss + LAMBDA * sum(
                (1 - (2 * stretched(u) - 1).abs() ** beta).sum()
                for u in v.values())
        loss.backward()
        rounding.step()
        others.step()
    with torch.no_grad():
        found = values(lambda u: (u > 0).double())
        loss = float(loss_of(block.run(x, *found), target))
        return ({n: (w / shaped(block.codes[n][1])).round().numpy()
                 for n, w in found[0].items()},
                {n: b.numpy() for n, b in found[1].items()},
                {n: float(s) for n, s in found[2].items()}, loss)


def ours_of(block, x, target):
    """The same of a learned file, as it is."""
    with torch.no_grad():
        weights = {n: torch.tensor(c) * shaped(s)
                   for n, (c, s) in block.codes.items()}
        biases = {n: torch.tensor(b) for n, b in block.biases.items()}
        y = block.run(x, weights, biases, block.scales)
        return float(loss_of(y, target))


def compare(folder, x, plain, scale_rate):
    start = Block(quantize(folder, "start.onnx"))
    ours = Block(quantize(folder, "learned.onnx",
                          LEARN.format(STEPS, N, RATE, scale_rate)))
    x = torch.tensor(x, dtype=torch.float64)
    with torch.no_grad():
        (w0, w1), (b0, b1) = plain
        target = F.conv2d(torch.relu(
            F.conv2d(x, torch.tensor(w0), torch.tensor(b0), padding=1)),
            torch.tensor(w1), torch.tensor(b1), padding=1) + x
    codes, biases, scales, theirs = learn(start, x, target, plain[0], scale_rate)
    before, after = ours_of(start, x, target), ours_of(ours, x, target)
    what = f"rate of scales {scale_rate}"
    check(f"{what}: loss {before:.5f}, then {after:.5f}, PyTorch {theirs:.5f}",
          after < 0.85 * before and
          abs(after - theirs) < 0.1 * (before - theirs))
    same = np.mean(np.concatenate([
        (codes[n].ravel() == c.ravel()) for n, (c, _) in ours.codes.items()]))
    moved = np.mean(np.concatenate([
        (start.codes[n][0].ravel() != c.ravel())
        for n, (c, _) in ours.codes.items()]))
    check(f"{what}: {same:.2%} of the integers are equal, {moved:.2%} are not "
          "the nearest", same >= 0.95 and moved > 0.05)
    for n, s in start.scales.items():
        way = scale_rate * STEPS / 2 * s
        check(f"{what}: scale {s:.5f}, then {ours.scales[n]:.5f}, PyTorch "
              f"{scales[n]:.5f}",
              abs(ours.scales[n] - scales[n]) <= 0.05 * way + 1e-6 * s)
    for n, b in start.biases.items():
        way = np.abs(biases[n] - b).max()
        off = np.abs(biases[n] - ours.biases[n]).max()
        check(f"{what}: biases of {n} go {way:.5f}, {off:.5f} apart",
              off <= 0.05 * way + 1e-6)


def main():
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as folder:
        at = lambda n: os.path.join(folder, n)
        w, b = network(at("net.onnx"), rng)
        plain = [[m.astype(np.float32).astype(np.float64) for m in some]
                 for some in (w, b)]
        x = rng.standard_normal((N, CHANNELS, SIZE, SIZE)).astype(np.float32)
        np.save(at("x.npy"), x)
        with open(at("x.yaml"), "w") as f:
            f.write(f"SOURCE: npy\nPATH: {at('x.npy')}\nBATCH: {N}\n")
        for scale_rate in (0, 0.002):
            compare(folder, x, plain, scale_rate)
    return failed > 0


sys.exit(main())
