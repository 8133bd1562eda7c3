"""prune_more: more networks for prune_networks, in families that it has not:
detection by queries, speech, super-resolution, graphs, capsules, encoders with
decoders."""
import torch
from torch import nn
from torch.nn import functional as F


class Detr(nn.Module):
    """Convolutions, then an encoder and a decoder with learned queries."""

    def __init__(self, d=64):
        super().__init__()
        layers, c = [], 3
        for o in (32, 64, 96):
            layers += [nn.Conv2d(c, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU()]
            c = o
        self.front = nn.Sequential(*layers, nn.Conv2d(c, d, 1))
        self.body = nn.Transformer(d, 4, 2, 2, 128, batch_first=True, dropout=0)
        self.places = nn.Parameter(torch.randn(1, 64, d) * 0.1)
        self.queries = nn.Parameter(torch.randn(1, 10, d))
        self.cls = nn.Linear(d, 7)
        self.box = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 4))
        self.heads = [self.cls, self.box[-1]]

    def forward(self, x):
        x = self.front(x).flatten(2).transpose(1, 2) + self.places
        x = self.body(x, self.queries)
        return self.cls(x), self.box(x).sigmoid()


class Speech(nn.Module):
    """Strided convolutions, a grouped one under weight norm, an encoder."""

    def __init__(self, c=48, d=64):
        super().__init__()
        layers, i = [], 1
        for k, s in ((10, 5), (3, 2), (3, 2), (2, 2)):
            layers += [nn.Conv1d(i, c, k, s, bias=False),
                       nn.GroupNorm(c, c) if i == 1 else nn.Identity(),
                       nn.GELU()]
            i = c
        self.front = nn.Sequential(*layers)
        self.norm, self.to = nn.LayerNorm(c), nn.Linear(c, d)
        self.places = nn.utils.parametrizations.weight_norm(
            nn.Conv1d(d, d, 16, padding=8, groups=8))
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(
            d, 4, 128, batch_first=True, norm_first=True), 2,
            enable_nested_tensor=False)
        self.head = nn.Linear(d, 30)

    def forward(self, x):
        x = self.to(self.norm(self.front(x).transpose(1, 2)))
        y = F.gelu(self.places(x.transpose(1, 2))[..., :-1])
        return self.head(self.body(x + y.transpose(1, 2)))


class Tones(nn.Module):
    """Embeddings, convolutions, GRU, attention."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 32)
        self.front = nn.Sequential(
            nn.Conv1d(32, 48, 5, padding=2), nn.BatchNorm1d(48), nn.ReLU(),
            nn.Conv1d(48, 32, 5, padding=2), nn.BatchNorm1d(32), nn.ReLU())
        self.rnn = nn.GRU(32, 24, batch_first=True, bidirectional=True)
        self.look = nn.MultiheadAttention(48, 4, batch_first=True)
        self.head = nn.Sequential(nn.Linear(48, 64), nn.Tanh(),
                                  nn.Linear(64, 20))

    def forward(self, ids):
        x = self.front(self.table(ids).transpose(1, 2)).transpose(1, 2)
        x = self.rnn(x)[0]
        return self.head(x + self.look(x, x, x)[0])


class Edsr(nn.Module):
    """Residual blocks, channel attention, two pixel shuffles."""

    def __init__(self, c=32):
        super().__init__()
        def conv(o):
            return nn.Conv2d(c, o, 3, 1, 1)
        self.first = nn.Conv2d(3, c, 3, 1, 1)
        self.blocks = nn.ModuleList([nn.Sequential(conv(c), nn.ReLU(), conv(c))
                                     for _ in range(3)])
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, 4, 1),
                                  nn.ReLU(), nn.Conv2d(4, c, 1), nn.Sigmoid())
        self.up = nn.Sequential(conv(4 * c), nn.PixelShuffle(2), conv(4 * c),
                                nn.PixelShuffle(2), conv(3))

    def forward(self, x):
        y = x = self.first(x)
        for b in self.blocks:
            y = y + 0.1 * b(y)
        return self.up(x + y * self.gate(y))


class Unshuffle(nn.Module):
    """Pixel unshuffle, a grouped transposed convolution, a slice."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 16, 3, 1, 1), nn.Conv2d(64, 32, 3, 1, 1)
        self.c = nn.ConvTranspose2d(32, 16, 4, 2, 1, groups=4)
        self.d = nn.Conv2d(32, 5, 1)

    def forward(self, x):
        b = F.relu(self.b(F.pixel_unshuffle(F.relu(self.a(x)), 2)))
        up = F.interpolate(F.elu(b), scale_factor=2, mode="bilinear")
        return self.d(torch.cat([up[:, 4:20], self.c(b)], 1))


class GraphAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.o = nn.Linear(16, 32), nn.Linear(32, 6)
        self.a, self.b = nn.Linear(32, 1), nn.Linear(32, 1)

    def forward(self, x, edges):
        h = self.w(x)
        s = F.leaky_relu(self.a(h) + self.b(h).transpose(1, 2))
        return self.o(F.elu((s + (edges - 1) * 1e4).softmax(-1) @ h))


class Capsules(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 32, 5, 2), nn.Conv2d(32, 64, 5, 2)
        self.w = nn.Parameter(torch.randn(1, 5, 8 * 9, 16, 8) * 0.1)

    def forward(self, x):
        n = x.shape[0]
        u = self.b(F.relu(self.a(x))).view(n, 8, 8, -1).permute(0, 1, 3, 2)
        s = (self.w @ u.reshape(n, 1, -1, 8, 1)).squeeze(-1).mean(2)
        return (s * s).sum(-1).sqrt()


class Gated(nn.Module):
    """Gated and depthwise convolutions over time, then an LSTM."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(20, 64, 3, padding=1)
        self.b = nn.Conv1d(32, 32, 7, padding=3, groups=32)
        self.norm, self.c = nn.BatchNorm1d(32), nn.Conv1d(32, 48, 1)
        self.rnn = nn.LSTM(48, 32, batch_first=True)
        self.head = nn.Linear(32, 9)

    def forward(self, x):
        x = self.c(F.silu(self.norm(self.b(F.glu(self.a(x), 1)))))
        return self.head(self.rnn(x.transpose(1, 2))[0][:, -1])


class KeyPoints(nn.Module):
    """Rolled and stacked channels; places as means over maps."""

    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.BatchNorm2d(24),
                               nn.Hardswish())
        self.b = nn.Conv2d(24, 24, 3, 1, 1, groups=3)
        self.c = nn.Conv2d(48, 6, 1)

    def forward(self, x):
        a = self.a(x)
        b = torch.roll(self.b(a), 5, 1)
        h = self.c(torch.stack([a, b], 2).flatten(1, 2))
        p = h.flatten(2).softmax(-1).view_as(h)
        g = torch.linspace(0, 1, h.shape[-1])
        return torch.stack([(p.sum(2) * g).sum(-1), (p.sum(3) * g).sum(-1)], -1)


def ids(n=12):
    return torch.randint(0, 90, (1, n))


def written_here():
    yield "detr_like", Detr, (1, 3, 64, 64)
    yield "wav2vec_like", Speech, (1, 1, 1000)
    yield "conv_gru_attention", Tones, lambda: (torch.randint(0, 40, (1, 9)),)
    yield "edsr", Edsr, (1, 3, 16, 16)
    yield "unshuffle", Unshuffle, (1, 3, 16, 16)
    yield "graph_attention", GraphAttention, lambda: (
        torch.randn(1, 8, 16), torch.randint(0, 2, (1, 8, 8)).float())
    yield "capsules", Capsules, (1, 1, 21, 21)
    yield "gated_lstm", Gated, (1, 20, 15)
    yield "key_points", KeyPoints, (1, 3, 32, 32)


class First(nn.Module):
    """The first result of a network with named inputs."""

    def __init__(self, net, *names):
        super().__init__()
        self.net, self.names = net, names

    def forward(self, *x):
        return self.net(**dict(zip(self.names, x)), return_dict=False)[0]


def from_transformers():
    import transformers as t
    eager = dict(attn_implementation="eager")
    both = ("input_ids", "decoder_input_ids")
    pair = lambda: (ids(), ids(5))
    yield "t5", lambda: First(t.T5ForConditionalGeneration(t.T5Config(
        vocab_size=100, d_model=64, d_kv=16, d_ff=128, num_layers=2,
        num_heads=4, feed_forward_proj="gated-gelu", use_cache=False)),
        *both), pair
    yield "bart", lambda: First(t.BartForConditionalGeneration(t.BartConfig(
        vocab_size=100, d_model=64, encoder_layers=2, decoder_layers=2,
        encoder_ffn_dim=128, decoder_ffn_dim=128, encoder_attention_heads=4,
        decoder_attention_heads=4, use_cache=False, **eager)), *both), pair
    yield "wav2vec2", lambda: First(t.Wav2Vec2ForCTC(t.Wav2Vec2Config(
        vocab_size=32, hidden_size=64, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=128, conv_dim=(32,) * 7,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, **eager)),
        "input_values"), (1, 4000)
    yield "segformer", lambda: First(
        t.SegformerForSemanticSegmentation(t.SegformerConfig(
            num_labels=5, depths=[1] * 4, hidden_sizes=[16, 32, 48, 64],
            decoder_hidden_size=32)), "pixel_values"), (1, 3, 64, 64)
    yield "distilbert", lambda: First(
        t.DistilBertForSequenceClassification(t.DistilBertConfig(
            vocab_size=100, dim=64, n_layers=2, n_heads=4, hidden_dim=128,
            **eager)), "input_ids"), lambda: (ids(),)
    yield "albert", lambda: First(t.AlbertModel(t.AlbertConfig(
        vocab_size=100, embedding_size=32, hidden_size=64, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=128, **eager)),
        "input_ids"), lambda: (ids(),)
    yield "clip_text", lambda: First(
        t.CLIPTextModelWithProjection(t.CLIPTextConfig(
            vocab_size=100, hidden_size=64, intermediate_size=128,
            projection_dim=32, num_hidden_layers=2, num_attention_heads=4,
            **eager)), "input_ids"), lambda: (ids(),)


def from_torchvision():
    import torchvision.models as z
    yield "r2plus1d_18", lambda: z.video.r2plus1d_18(), (1, 3, 4, 32, 32)


SOURCES = (from_torchvision, from_transformers, written_here)
