"""Gradients of all parameters of whole networks, ours and PyTorch's.

    test_networks.py COMMAND [all | NETWORK...]

Each network is exported by both of PyTorch's exporters and differentiated by
`sparsebit run --loss`; the loss is the mean squared distance to random numbers.  What is
right, PyTorch says in float64.  A gradient may be off by 1e-3 of its largest element.  What
a normalization takes out again (a bias of mixed tokens) has a gradient of 0, and float32
makes noise of it here and there: where 1e-3 of TINY of the largest gradient of the network
is more, that is allowed; such are counted, with how far off PyTorch is in float32.
All numbers must be the same bytes for 1 to 4 threads, and in a second run.  An initializer
is a parameter's if it has its elements, as they are or transposed.  Without names: a few
small networks.  Needs torch; networks whose package is missing are left out."""
import copy
import glob
import os
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import onnx
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

warnings.filterwarnings("ignore")
WORST = 1e-3  # of the largest element of a gradient
TINY = 1e-3  # beside the largest gradient of the network


# ---- networks ---------------------------------------------------------------
def image(batch, size):
    return torch.randn(batch, 3, size, size)


def tokens(batch, length):
    return torch.randint(0, 100, (batch, length))


def torchvision(name, **how):
    import torchvision.models
    return torchvision.models.get_model(name, num_classes=10, **how)


def timm(name, **how):
    import timm as package
    return package.create_model(name, num_classes=10, **how)


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).logits


def transformer(kind):
    import transformers as t

    sizes = dict(vocab_size=100, use_cache=False, attn_implementation="eager",
                 tie_word_embeddings=False)
    if kind == "bert":
        del sizes["use_cache"]
        return Logits(t.BertForSequenceClassification(t.BertConfig(
            hidden_size=64, num_hidden_layers=2, num_attention_heads=4, pad_token_id=None,
            intermediate_size=128, max_position_embeddings=40, num_labels=5, **sizes)))
    if kind == "gpt2":
        return Logits(t.GPT2LMHeadModel(t.GPT2Config(
            n_embd=64, n_layer=2, n_head=4, n_positions=40, **sizes)))
    return Logits(t.LlamaForCausalLM(t.LlamaConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=128, max_position_embeddings=64, **sizes)))


def conv_bn(before, after, kernel=3, stride=1, act=nn.ReLU):
    return nn.Sequential(nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False),
                         nn.BatchNorm2d(after), act())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = conv_bn(3, 16), conv_bn(16, 32), conv_bn(32, 64)
        self.up, self.d = nn.ConvTranspose2d(64, 32, 2, 2), conv_bn(64, 32)
        self.e, self.out = conv_bn(48, 16), nn.Conv2d(16, 4, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        d = self.d(torch.cat([self.up(self.c(F.max_pool2d(b, 2))), b], 1))
        d = F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(self.e(torch.cat([d, a], 1)))


class Detector(nn.Module):
    """Pyramid of pools, nearest upsampling, box distances by a softmax: a YOLO in small."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 16, 3, 2, nn.SiLU), conv_bn(16, 32, 3, 2, nn.SiLU))
        self.deep = nn.Sequential(conv_bn(32, 64, 3, 2, nn.SiLU), conv_bn(64, 32, 1, 1, nn.SiLU))
        self.join, self.head = conv_bn(128, 32, 1, 1, nn.SiLU), conv_bn(64, 32, 3, 1, nn.SiLU)
        self.cls, self.box, self.obj = (nn.Conv2d(32, n, 1) for n in (6, 64, 1))

    def forward(self, x):
        b = self.stem(x)
        pools = [self.deep(b)]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        c = F.interpolate(self.join(torch.cat(pools, 1)), scale_factor=2)
        h = self.head(torch.cat([c, b], 1))
        box = self.box(h).flatten(2).unflatten(1, (4, 16)).transpose(1, 2).softmax(1)
        low, high = (box * torch.arange(16.0).view(1, 16, 1, 1)).sum(1).chunk(2, 1)
        seen = self.cls(h).flatten(2).sigmoid() * self.obj(h).flatten(2).sigmoid()
        return torch.cat([low - high, low + high, seen], 1)


class Restorer(nn.Module):
    """Padding that copies, PRelu, instance and group normalization, pixel shuffle."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 16, 3, padding=1, padding_mode="reflect")
        self.p, self.i = nn.PReLU(16), nn.InstanceNorm2d(16, affine=True)
        self.g = nn.GroupNorm(4, 16)
        self.b = nn.Conv2d(16, 12, 3, padding=1, padding_mode="replicate")

    def forward(self, x):
        return F.pixel_shuffle(self.b(self.g(F.elu(self.i(self.p(self.a(x)))))), 2)


class Tagger(nn.Module):
    """A class for each token, by a GRU that reads both ways."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 16)
        self.gru = nn.GRU(16, 20, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(40, 7)

    def forward(self, x):
        return self.out(self.gru(self.table(x))[0])


class Language(nn.Module):
    """The next token, by an LSTM."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 16)
        self.lstm, self.out = nn.LSTM(16, 24, num_layers=2), nn.Linear(24, 100)

    def forward(self, x):
        return self.out(self.lstm(self.table(x).transpose(0, 1))[0])


class Elman(nn.Module):
    """A class for a sequence, from the last state of a plain RNN."""

    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.RNN(12, 20, nonlinearity="relu"), nn.Linear(20, 5)

    def forward(self, x):
        return self.out(self.rnn(x)[1][0])


class Waves(nn.Module):
    """Convolutions along a line, dilated, with group normalization and a gate."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(4, 16, 5, stride=2, padding=2)
        self.wide = nn.ModuleList(nn.Conv1d(16, 32, 3, padding=d, dilation=d) for d in (1, 2, 4))
        self.norm = nn.ModuleList(nn.GroupNorm(4, 16) for _ in range(3))
        self.out = nn.Linear(16, 5)

    def forward(self, x):
        x = self.first(x)
        for conv, norm in zip(self.wide, self.norm):
            a, b = conv(norm(x)).chunk(2, 1)
            x = x + a.tanh() * b.sigmoid()
        return self.out(F.adaptive_avg_pool1d(x, 1).flatten(1))


class Autoencoder(nn.Module):
    """A variational one in small: mean and logarithm of the variance, decoded."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 16, 4, 2, 1), nn.Conv2d(16, 32, 4, 2, 1)
        self.mean, self.log = nn.Linear(32 * 16, 8), nn.Linear(32 * 16, 8)
        self.wide = nn.Linear(8, 32 * 16)
        self.c = nn.ConvTranspose2d(32, 16, 4, 2, 1)
        self.d = nn.ConvTranspose2d(16, 3, 3, 2, 1, output_padding=1)

    def forward(self, x):
        h = F.leaky_relu(self.b(F.leaky_relu(self.a(x), 0.2)), 0.2).flatten(1)
        z = self.mean(h) + 0.3 * (0.5 * self.log(h)).exp()
        h = F.softplus(self.wide(z)).unflatten(1, (32, 4, 4))
        return self.d(F.elu(self.c(h))).sigmoid()


class Turner(nn.Module):
    """A spatial transformer: what is read depends on what was seen."""

    def __init__(self):
        super().__init__()
        self.look, self.theta = nn.Conv2d(3, 8, 5, 2), nn.Linear(8, 6)
        self.conv, self.out = nn.Conv2d(3, 8, 3), nn.Linear(8, 5)

    def forward(self, x):
        theta = self.theta(F.relu(self.look(x)).mean((2, 3))).view(-1, 2, 3)
        x = F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False),
                          align_corners=False)
        return self.out(F.local_response_norm(self.conv(x), 3).mean((2, 3)))


def segmenter(kind):
    import torchvision.models.segmentation as s

    class Out(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = s.__dict__[kind](weights=None, weights_backbone=None, num_classes=4)

        def forward(self, x):
            return self.net(x)["out"]
    return Out()


NETWORKS = {
    "tagger": (Tagger, tokens(3, 7)),
    "language": (Language, tokens(3, 7)),
    "elman": (Elman, torch.randn(6, 3, 12)),
    "waves": (Waves, torch.randn(3, 4, 40)),
    "autoencoder": (Autoencoder, image(2, 16)),
    "turner": (Turner, image(2, 20)),
    "detector": (Detector, image(2, 64)),
    "restorer": (Restorer, image(2, 16)),
    "unet": (UNet, image(2, 32)),
    "llama": (lambda: transformer("llama"), tokens(2, 12)),
    "bert": (lambda: transformer("bert"), tokens(2, 12)),
    "resnet18": (lambda: torchvision("resnet18"), image(2, 64)),
    "gpt2": (lambda: transformer("gpt2"), tokens(2, 12)),
    "mobilenet_v2": (lambda: torchvision("mobilenet_v2"), image(2, 64)),
    "mobilenet_v3": (lambda: torchvision("mobilenet_v3_small"), image(2, 64)),
    "efficientnet_b0": (lambda: torchvision("efficientnet_b0"), image(2, 64)),
    "shufflenet_v2": (lambda: torchvision("shufflenet_v2_x0_5"), image(2, 64)),
    "densenet121": (lambda: torchvision("densenet121"), image(2, 64)),
    "squeezenet": (lambda: torchvision("squeezenet1_1"), image(2, 64)),
    "googlenet": (lambda: torchvision("googlenet", aux_logits=False, init_weights=True),
                  image(2, 64)),
    "inception_v3": (lambda: torchvision("inception_v3", aux_logits=False, init_weights=False),
                     image(1, 96)),
    "alexnet": (lambda: torchvision("alexnet"), image(1, 96)),
    "resnext": (lambda: torchvision("resnext50_32x4d"), image(1, 64)),
    "fcn": (lambda: segmenter("fcn_resnet50"), image(1, 64)),
    "deeplab": (lambda: segmenter("deeplabv3_mobilenet_v3_large"), image(1, 64)),
    "lraspp": (lambda: segmenter("lraspp_mobilenet_v3_large"), image(1, 64)),
    "mnasnet": (lambda: torchvision("mnasnet0_5"), image(2, 64)),
    "vgg11": (lambda: torchvision("vgg11_bn"), image(1, 224)),
    "regnet_x": (lambda: torchvision("regnet_x_400mf"), image(2, 64)),
    "regnet_y": (lambda: torchvision("regnet_y_400mf"), image(2, 64)),
    "convnext": (lambda: torchvision("convnext_tiny"), image(1, 64)),
    "swin": (lambda: torchvision("swin_t"), image(1, 64)),
    "vit_tiny": (lambda: timm("vit_tiny_patch16_224", img_size=64), image(2, 64)),
    "convnext_atto": (lambda: timm("convnext_atto"), image(2, 64)),
    "ghostnet": (lambda: timm("ghostnet_050"), image(2, 64)),
    "mobilevit": (lambda: timm("mobilevit_xxs"), image(1, 64)),
    "mixer": (lambda: timm("mixer_s32_224", img_size=64), image(1, 64)),
    "maxvit": (lambda: timm("maxvit_rmlp_pico_rw_256", img_size=64), image(1, 64)),
    "efficientnet_lite": (lambda: timm("efficientnet_lite0"), image(1, 64)),
    "levit": (lambda: timm("levit_128s"), image(1, 224)),
    "pit": (lambda: timm("pit_ti_224"), image(1, 224)),
    "repvgg": (lambda: timm("repvgg_a0"), image(1, 64)),
    "res2net": (lambda: timm("res2net50_26w_4s"), image(1, 64)),
    "dla": (lambda: timm("dla34"), image(1, 64)),
    "hrnet": (lambda: timm("hrnet_w18_small"), image(1, 64)),
    "nfnet": (lambda: timm("nf_regnet_b0"), image(1, 64)),
    "poolformer": (lambda: timm("poolformer_s12"), image(1, 64)),
    "edgenext": (lambda: timm("edgenext_xx_small"), image(1, 64)),
    "cait": (lambda: timm("cait_xxs24_224", img_size=64), image(1, 64)),
    "xcit": (lambda: timm("xcit_nano_12_p16_224"), image(1, 64)),
    "gmlp": (lambda: timm("gmlp_ti16_224", img_size=64), image(1, 64)),
    "volo": (lambda: timm("volo_d1_224", img_size=64), image(1, 64)),
    "coat": (lambda: timm("coat_tiny", img_size=64), image(1, 64)),
    "eva02": (lambda: timm("eva02_tiny_patch14_224", img_size=56), image(1, 56)),
}
FEW = ["detector", "restorer", "unet", "llama"]


def build(make):
    """In evaluation form, with parameters that all differ: equal ones become one
    initializer."""
    torch.manual_seed(1)
    model = make().eval()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
            nn.init.uniform_(module.running_var, 0.8, 1.2)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() < 2 or p.max() == p.min():
                p.add_(torch.rand_like(p) * 0.2 - 0.1)
    return model


class NotExported(Exception):
    """What an exporter cannot do."""


# ---- one network ------------------------------------------------------------
def quietly(function):
    """Exporters print graphs of thousands of lines when they give up."""
    sys.stdout.flush()
    kept, nothing = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    try:
        function()
    finally:
        sys.stdout.flush()
        for i, fd in enumerate(kept):
            os.dup2(fd, i + 1)
            os.close(fd)
        os.close(nothing)


def export(model, x, path, dynamo):
    if dynamo:
        torch.onnx.export(model, (x,), path, dynamo=True, verbose=False, optimize=False,
                          external_data=False)
    else:
        torch.onnx.export(model, (x,), path, dynamo=False, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.PRESERVE, opset_version=17)


def owners(model, path):
    """Name of the initializer and whether it is transposed, by parameter."""
    by_value, found = {}, {}
    for t in onnx.load(path).graph.initializer:
        v = onnx.numpy_helper.to_array(t)
        by_value.setdefault((v.dtype, v.shape, v.tobytes()), t.name)
    for name, p in model.named_parameters():
        v = p.detach().numpy()
        for turned in (False, True):
            w = np.ascontiguousarray(v.T if turned else v)
            if (w.dtype, w.shape, w.tobytes()) in by_value:
                found[name] = by_value[w.dtype, w.shape, w.tobytes()], turned
                break
    return found


def gradients(model, x, target, dtype):
    """By parameter, as PyTorch computes them in that type."""
    twin = copy.deepcopy(model).to(dtype)
    y = twin(x.to(dtype) if x.is_floating_point() else x)
    F.mse_loss(y, target.to(dtype)).backward()
    return {n: p.grad.numpy().astype(np.float64) for n, p in twin.named_parameters()
            if p.grad is not None}


def run(command, path, folder, threads):
    """What went wrong, or None; and the bytes of all results."""
    value, out = onnx.load(path).graph.input[0].name, os.path.join(folder, "out")
    done = subprocess.run(
        [command, "run", path, "--input", f"{value}={folder}/x.npy", "--loss", "mse",
         "--labels", f"{folder}/target.npy", "--out-dir", out, "-q",
         "--threads", str(threads)],
        capture_output=True, text=True)
    if done.returncode:
        return f"FAILED: {done.stderr.strip()[-400:]}", None
    files = {}
    for name in sorted(glob.glob(os.path.join(out, "*.npy"))):
        with open(name, "rb") as f:
            files[os.path.basename(name)] = f.read()
    return None, files


def compare(command, name, dynamo, folder):
    make, x = NETWORKS[name]
    model, path = build(make), os.path.join(folder, "model.onnx")
    try:
        quietly(lambda: export(model, x, path, dynamo))
    except ImportError:
        raise
    except Exception as error:
        raise NotExported(type(error).__name__)
    with torch.no_grad():
        target = torch.randn(model(x).shape)
    found = owners(model, path)
    np.save(os.path.join(folder, "x.npy"), x.numpy())
    np.save(os.path.join(folder, "target.npy"), target.numpy())
    failure, files = run(command, path, folder, 1)
    if failure:
        return failure, False
    other = [t for t in (1, 2, 3, 4) if run(command, path, folder, t)[1] != files]
    exact, theirs = (gradients(model, x, target, t) for t in (torch.float64, torch.float32))
    worst, where, tiny, times = 0, "", 0, 0
    largest = max(np.abs(g).max() for g in exact.values())
    for parameter in exact:
        if parameter not in found:
            continue
        initializer, turned = found[parameter]
        want = exact[parameter].T if turned else exact[parameter]
        got = np.load(os.path.join(folder, "out", f"grad.{initializer.replace('/', '_')}.npy"))
        off, size = np.abs(got - want).max(), np.abs(want).max()
        if off > WORST * size and off <= WORST * TINY * largest:
            tiny += 1
            theirs_off = np.abs(theirs[parameter] - exact[parameter]).max()
            times = max(times, off / theirs_off if theirs_off else np.inf)
        elif not off <= worst * size:
            worst = off / size if size and np.isfinite(off) else np.inf
            where = parameter
    missing = [n for n, _ in model.named_parameters() if n not in found]
    return (f"{len(found)} parameters, largest difference {worst:.1e} {where}"
            + (f", {tiny} tiny ones ({times:.1f} times as far off as PyTorch's)" if tiny else "")
            + (f", not in the file: {' '.join(missing[:3])} ({len(missing)})" if missing else "")
            + (f", DIFFERENT BYTES with {other} threads" if other else ""),
            worst < WORST and len(found) > len(missing) and not other)


def main():
    command, names = sys.argv[1], sys.argv[2:] or FEW
    failed = compared = 0
    for name in (NETWORKS if names == ["all"] else names):
        for dynamo in (False, True):
            kind = "dynamo" if dynamo else "torchscript"
            with tempfile.TemporaryDirectory() as folder:
                try:
                    text, right = compare(command, name, dynamo, folder)
                except ImportError as error:
                    print(f"{name}: left out: {error}")
                    break
                except NotExported as error:
                    print(f"{name} {kind}: not exported: {error}")
                    continue
            print(f"{name} {kind}: {text}", flush=True)
            compared += 1
            failed += not right
    if not compared:
        print("skipped: nothing to compare")
        sys.exit(77)
    print(f"{compared} compared, {failed} failed")
    sys.exit(failed > 0)


main()
