"""prune_more: more networks for prune_networks, in families that it has not:
detection by queries, speech, super-resolution, graphs, capsules, encoders with
decoders, pyramids, separation of sounds, reading of lines."""
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
        self.norm, self.lift = nn.LayerNorm(c), nn.Linear(c, d)
        self.places = nn.utils.parametrizations.weight_norm(
            nn.Conv1d(d, d, 16, padding=8, groups=8))
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(
            d, 4, 128, batch_first=True, norm_first=True), 2,
            enable_nested_tensor=False)
        self.head = nn.Linear(d, 30)

    def forward(self, x):
        x = self.lift(self.norm(self.front(x).transpose(1, 2)))
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


class Pyramid(nn.Module):
    """Sums of levels, heads with shared weights, a normalization in groups."""

    def __init__(self, c=32):
        super().__init__()
        def step(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, 2, 1, bias=False),
                                 nn.BatchNorm2d(o), nn.ReLU6())
        self.body = nn.ModuleList([step(3, 24), step(24, 40), step(40, 64)])
        self.side = nn.ModuleList([nn.Conv2d(i, c, 1) for i in (24, 40, 64)])
        self.head = nn.Sequential(nn.Conv2d(c, c, 3, 1, 1), nn.GroupNorm(8, c),
                                  nn.ReLU())
        self.cls, self.box = nn.Conv2d(c, 18, 3, 1, 1), nn.Conv2d(c, 8, 3, 1, 1)
        self.heads = [self.cls, self.box]

    def forward(self, x):
        levels, out, up = [], [], None
        for b in self.body:
            x = b(x)
            levels.append(x)
        for x, s in zip(reversed(levels), reversed(self.side)):
            x = s(x)
            up = x if up is None else x + F.interpolate(up, size=x.shape[2:])
            h = self.head(up)
            out.append(torch.cat([self.cls(h).flatten(2),
                                  self.box(h).flatten(2)], 1))
        return torch.cat(out, 2).transpose(1, 2)


class TasNet(nn.Module):
    """Masks for two sounds over learned frames, put back by a transposed
    convolution."""

    def __init__(self, n=32, b=24, h=48):
        super().__init__()
        self.enc, self.bottle = nn.Conv1d(1, n, 8, 4), nn.Conv1d(n, b, 1)
        self.blocks = nn.ModuleList([nn.Sequential(
            nn.Conv1d(b, h, 1), nn.PReLU(h), nn.BatchNorm1d(h),
            nn.Conv1d(h, h, 3, padding=2 ** i, dilation=2 ** i, groups=h),
            nn.PReLU(), nn.BatchNorm1d(h), nn.Conv1d(h, b, 1))
            for i in range(3)])
        self.mask = nn.Conv1d(b, 2 * n, 1)
        self.dec = nn.ConvTranspose1d(n, 1, 8, 4)

    def forward(self, x):
        w = self.enc(x)
        y = self.bottle(w)
        for block in self.blocks:
            y = y + block(y)
        n, c, t = w.shape
        m = torch.sigmoid(self.mask(y)).view(n, 2, c, t)
        return self.dec((w.unsqueeze(1) * m).view(2 * n, c, t)).view(n, 2, -1)


class Lines(nn.Module):
    """Reads lines of text: columns of an image become steps of a network."""

    def __init__(self):
        super().__init__()
        def block(i, o, pool):
            return [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(),
                    nn.MaxPool2d(pool, pool)]
        self.front = nn.Sequential(*block(1, 16, 2), *block(16, 32, 2),
                                   *block(32, 48, (4, 1)))
        self.a = nn.LSTM(96, 32, bidirectional=True)
        self.mid = nn.Linear(64, 24)
        self.b = nn.LSTM(24, 32, bidirectional=True)
        self.head = nn.Linear(64, 30)

    def forward(self, x):
        x = self.front(x).flatten(1, 2).permute(2, 0, 1)
        x = self.b(self.mid(self.a(x)[0]))[0]
        return self.head(x).log_softmax(2)


class Conformer(nn.Module):
    """Halves of layers, attention, a gated and a depthwise convolution."""

    def __init__(self, d=48):
        super().__init__()
        def half():
            return nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 96), nn.SiLU(),
                                 nn.Linear(96, d))
        self.front = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(),
                                   nn.Conv2d(8, 8, 3, 2), nn.ReLU())
        self.lift, self.a, self.b = nn.Linear(8 * 9, d), half(), half()
        self.norm, self.look = nn.LayerNorm(d), nn.MultiheadAttention(
            d, 4, batch_first=True)
        self.conv = nn.Sequential(nn.Conv1d(d, 2 * d, 1), nn.GLU(1),
                                  nn.Conv1d(d, d, 7, padding=3, groups=d),
                                  nn.BatchNorm1d(d), nn.SiLU(),
                                  nn.Conv1d(d, d, 1))
        self.last, self.head = nn.LayerNorm(d), nn.Linear(d, 20)

    def forward(self, x):
        x = self.lift(self.front(x).transpose(1, 2).flatten(2))
        x = x + 0.5 * self.a(x)
        y = self.norm(x)
        x = x + self.look(y, y, y, need_weights=False)[0]
        x = x + self.conv(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.last(x + 0.5 * self.b(x)))


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
    yield "pyramid", Pyramid, (1, 3, 64, 64)
    yield "tasnet", TasNet, (1, 1, 400)
    yield "lines", Lines, (1, 1, 32, 64)
    yield "conformer", Conformer, (1, 1, 40, 39)


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
    yield from causal(t)
    yield from seeing(t)
    yield "whisper", lambda: First(t.WhisperForConditionalGeneration(
        t.WhisperConfig(vocab_size=100, num_mel_bins=20, d_model=64,
                        encoder_layers=1, decoder_layers=1, encoder_ffn_dim=96,
                        decoder_ffn_dim=96, encoder_attention_heads=4,
                        decoder_attention_heads=4, max_source_positions=20,
                        pad_token_id=0, bos_token_id=1, eos_token_id=2,
                        decoder_start_token_id=1, use_cache=False, **eager)),
        "input_features", "decoder_input_ids"), lambda: (
            torch.randn(1, 20, 40), ids(5))


def causal(t):
    """Language models of other makers."""
    small = dict(vocab_size=100, hidden_size=64, num_hidden_layers=2,
                 num_attention_heads=4, use_cache=False, pad_token_id=0,
                 attn_implementation="eager")
    wide = dict(small, intermediate_size=96)
    for name, config, more in (
            ("GPT2", dict(vocab_size=100, n_embd=64, n_layer=2, n_head=4,
                          use_cache=False, attn_implementation="eager"), {}),
            ("OPT", dict(small, ffn_dim=96, word_embed_proj_dim=64), {}),
            ("GPTNeoX", wide, {}), ("Phi", wide, {}),
            ("Mistral", wide, dict(num_key_value_heads=2)),
            ("Gemma2", wide, dict(num_key_value_heads=2, head_dim=16)),
            ("Falcon", small, dict(new_decoder_architecture=False,
                                   multi_query=True))):
        yield name.lower(), lambda name=name, config=config, more=more: First(
            getattr(t, name + ("LMHeadModel" if name == "GPT2" else
                               "ForCausalLM"))(
                getattr(t, name + "Config")(**config, **more)),
            "input_ids"), lambda: (ids(),)


def seeing(t):
    """Transformers for images."""
    small = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                 intermediate_size=128, image_size=32, patch_size=8,
                 attn_implementation="eager")
    for name, kind, config in (
            ("beit", "Beit", small), ("dinov2", "Dinov2", small),
            ("siglip", "SiglipVision", small)):
        yield name, lambda kind=kind, config=config: First(
            getattr(t, kind + "Model")(getattr(t, kind + "Config")(**config)),
            "pixel_values"), (1, 3, 32, 32)
    yield "mobilevitv2", lambda: First(t.MobileViTV2ForImageClassification(
        t.MobileViTV2Config(image_size=64, width_multiplier=0.5)),
        "pixel_values"), (1, 3, 64, 64)
    yield "swin2sr", lambda: First(t.Swin2SRForImageSuperResolution(
        t.Swin2SRConfig(image_size=16, embed_dim=24, depths=[1, 1],
                        num_heads=[2, 2], window_size=4)),
        "pixel_values"), (1, 3, 16, 16)


def from_torchvision():
    import torchvision.models as z
    yield "r2plus1d_18", lambda: z.video.r2plus1d_18(), (1, 3, 4, 32, 32)
    yield "mc3_18", lambda: z.video.mc3_18(), (1, 3, 4, 32, 32)
    for n in ("mobilenet_v3_large", "efficientnet_v2_s", "swin_v2_t",
              "wide_resnet50_2"):
        yield n, lambda n=n: getattr(z, n)(), (1, 3, 64, 64)


def from_timm():
    import timm
    for n in ("repvit_m0_9", "efficientvit_m0", "coatnet_nano_rw_224",
              "pit_ti_224", "mvitv2_tiny", "gcvit_xxtiny", "caformer_s18",
              "resnetv2_50", "lambda_resnet26t", "tf_mixnet_s", "swiftformer_xs",
              "shvit_s1", "nest_tiny", "tresnet_m", "gernet_s"):
        yield n, lambda n=n: timm.create_model(n), (
            1, *timm.get_pretrained_cfg(n).input_size)


SOURCES = (from_torchvision, from_timm, from_transformers, written_here)
