"""The original's names: what its own CI asks of quantizers, observers and
export, and the steps of its scripts."""

import io

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import sparsebit as sb
from conftest import TINY, random_cnn
from sparsebit.quantization import QuantModel, parse_qconfig
from sparsebit.quantization.quant_config import _C
from sparsebit.sparse import SparseModel, parse_sconfig

SETTINGS = ["BACKEND", "tensorrt", "SCHEDULE.FUSE_BN", True,
            "W.QSCHEME", "per-channel-symmetric",
            "W.QUANTIZER.TYPE", "uniform", "W.QUANTIZER.BIT", 8,
            "W.OBSERVER.TYPE", "MINMAX",
            "A.QSCHEME", "per-tensor-symmetric",
            "A.QUANTIZER.TYPE", "uniform", "A.QUANTIZER.BIT", 8,
            "A.OBSERVER.TYPE", "MINMAX", "A.OBSERVER.LAYOUT", "NCHW"]


def config(*changes):
    made = _C.clone()
    made.defrost()
    made.DEVICE = "cpu"
    made.merge_from_list([*SETTINGS, *changes])
    made.freeze()
    return made


def run_ort(path, x):
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        None, {"image": x})[0]


def calibrated(model, images, backend="tensorrt", **asym):
    qmodel = QuantModel(model, config("BACKEND", backend))
    qmodel.prepare_calibration()
    qmodel.eval()
    for x in images:
        qmodel(x)
    qmodel.calc_qparams(**asym)
    return qmodel


def test_before_calibration_it_is_the_float_network(cnn, images):
    qmodel = QuantModel(cnn, config()).to("cpu")
    np.testing.assert_allclose(qmodel(images[0]),
                               run_ort(cnn.SerializeToString(), images[0]),
                               rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("asym", [
    {}, dict(asym=True, w_quant=True, a_quant=False),
    dict(asym=True, w_quant=False, a_quant=True),
    dict(asym=True, w_quant=True, a_quant=True)])
def test_calibration(cnn, images, asym):
    qmodel = calibrated(cnn, images, **asym)
    on = [q for q in qmodel.quantizers if not q.fused]
    assert on and all(q.scale for q in on)
    first = next(q for q in on if not q.is_weight)
    most = max(np.abs(x).max() for x in images)  # the network's own input
    assert first.scale == pytest.approx([2 * most / 255], rel=1e-5)
    float_output = qmodel(images[0])
    qmodel.set_quant(w_quant=True, a_quant=True)
    quantized = qmodel(images[0])
    assert 0 < np.abs(quantized - float_output).max() < 0.2
    qmodel.set_quant(w_quant=False, a_quant=False)
    np.testing.assert_array_equal(qmodel(images[0]), float_output)


def test_scales_are_those_of_the_formula(images):
    qmodel = calibrated(random_cnn(3), images, "virtual")
    w = sb.load(random_cnn(3)).weight("w1").numpy()
    q = next(q for q in qmodel.quantizers
             if q.name == "conv1.weight_quantizer")
    np.testing.assert_allclose(
        q.scale, 2 * np.abs(w).reshape(len(w), -1).max(1) / 255, rtol=1e-6)
    assert set(q.zero_point) == {0.0} and (q.qmin, q.qmax) == (-128, 127)


def test_qadd_quantizes_both_inputs(cnn, images):
    def adds(*changes):
        return [q.name for q in QuantModel(cnn, config(
            "BACKEND", "virtual", *changes)).quantizers
            if q.name.startswith("add")]

    assert len(adds("A.QADD.ENABLE_QUANT", True)) == 2
    assert adds() == []


def test_export_is_what_was_simulated(tmp_path, cnn, images):
    qmodel = calibrated(cnn, images)
    qmodel.set_quant(w_quant=True, a_quant=True)
    qmodel.export_onnx(images[0], tmp_path / "q.onnx")
    session = ort.SessionOptions()
    session.graph_optimization_level = \
        ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    got = ort.InferenceSession(
        tmp_path / "q.onnx", session, providers=["CPUExecutionProvider"]).run(
        None, {"image": images[0]})[0]
    np.testing.assert_allclose(qmodel(images[0]), got, rtol=1e-3, atol=2e-3)


def test_extra_info_has_the_bits(tmp_path, cnn, images):
    qmodel = QuantModel(cnn, config(
        "BACKEND", "virtual", "W.QUANTIZER.BIT", 4, "A.QUANTIZER.BIT", 4,
        "A.QSCHEME", "per-tensor-affine"))
    qmodel.prepare_calibration()
    qmodel(images[0])
    qmodel.calc_qparams()
    qmodel.export_onnx(images[0], tmp_path / "q.onnx", extra_info=True)
    nodes = onnx.load(tmp_path / "q_extra.onnx").graph.node
    bits = [a.i for n in nodes if "Quantize" in n.op_type
            for a in n.attribute if a.name == "bits"]
    assert bits and set(bits) == {4}


def test_names_of_inputs_and_outputs(tmp_path, cnn, images):
    qmodel = calibrated(cnn, images)
    qmodel.export_onnx(images[0], tmp_path / "q.onnx", input_names=["data"],
                       output_names=["classes"])
    session = ort.InferenceSession(tmp_path / "q.onnx", providers=[
        "CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["data"]
    assert [o.name for o in session.get_outputs()] == ["classes"]
    session.run(None, {"data": images[0]})


def test_errors_of_layers(cnn, images):
    qmodel = calibrated(cnn, images)
    alone = qmodel.get_quantization_error(images[0])
    together = qmodel.get_quantization_error(images[0], is_async=False)
    assert {"conv1", "conv2", "fc"} <= set(alone)
    assert all(v >= 0 for v in alone.values())
    assert together["fc"] > 0
    assert qmodel.get_quantization_error(images[0], "cosine")["fc"] > 0.9
    with pytest.raises(sb.ArgumentError, match="checker.*mse"):
        qmodel.get_quantization_error(images[0], max)


def test_mermaid(tmp_path, cnn, images):
    qmodel = calibrated(cnn, images)
    file = io.StringIO()
    qmodel.dump_mermaid(file)
    qmodel.dump_mermaid(tmp_path / "g.md")
    assert file.getvalue() == (tmp_path / "g.md").read_text()
    assert "conv1" in file.getvalue()


def test_order_of_steps(cnn, images):
    qmodel = QuantModel(cnn, config())
    with pytest.raises(sb.ArgumentError, match="prepare_calibration"):
        qmodel.calc_qparams()
    with pytest.raises(sb.Error):
        qmodel.export_onnx(images[0], "/nowhere/q.onnx")
    qmodel.prepare_calibration(asym=False)
    qmodel(images[0])
    with pytest.raises(sb.ArgumentError, match="asym"):
        qmodel.calc_qparams(asym=True, w_quant=True)
    with pytest.raises(sb.ArgumentError, match="2 inputs, the model has 1"):
        qmodel(images[0], images[0])


def test_config_files(tmp_path):
    path = tmp_path / "qconfig.yaml"
    path.write_text(sb.Config(config()).read())
    assert parse_qconfig(path).path == str(path)
    path.write_text("W: {QUANTIZER: {BITS: 8}}\nA: none\n")
    with pytest.raises(sb.ConfigError, match="qconfig.yaml:1.*BITS"):
        parse_qconfig(path)


@pytest.mark.parametrize("kind", ["structed", "unstructed"])
def test_sparse_model(tmp_path, cnn, images, kind):
    path = tmp_path / "sconfig.yaml"
    path.write_text(f"SPARSER: {{TYPE: {kind}, STRATEGY: l1norm, "
                    "RATIO: 0.5}\n")
    smodel = SparseModel(cnn, parse_sconfig(path))
    before = smodel(images[0])
    smodel.calc_params()
    after = smodel(images[0])
    assert after.shape == before.shape and not np.array_equal(after, before)
    smodel.export_onnx(images[0], tmp_path / "s.onnx")
    np.testing.assert_allclose(run_ort(tmp_path / "s.onnx", images[0]), after,
                               rtol=1e-4, atol=1e-4)
    with pytest.raises(sb.ArgumentError, match="calc_params"):
        SparseModel(cnn, path).export_onnx(images[0], tmp_path / "n.onnx")


# ---- with PyTorch, where it is ------------------------------------------------

def torch_network():
    torch = pytest.importorskip("torch")
    from torch import nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer1 = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1),
                                        nn.BatchNorm2d(8), nn.ReLU())
            self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
            self.fc = nn.Linear(8, 5)

        def forward(self, x):
            x = self.layer1(x)
            return self.fc((self.conv2(x) + x).mean((2, 3)))

    torch.manual_seed(0)
    return torch, Network().eval()


def test_torch_module_is_exported_at_the_first_call():
    torch, network = torch_network()
    qmodel = QuantModel(network, config()).to("cpu")
    with pytest.raises(sb.ArgumentError, match="first call"):
        qmodel.quantizers
    x = torch.randn(2, 3, 8, 8)
    qmodel.prepare_calibration()
    with torch.no_grad():
        torch.testing.assert_close(qmodel(x), network(x), rtol=1e-4,
                                   atol=1e-4)
    qmodel.calc_qparams()
    qmodel.set_quant(w_quant=True, a_quant=True)
    assert isinstance(qmodel(x), torch.Tensor)
    assert {"layer1.0", "conv2", "fc"} <= {n.module
                                           for n in qmodel.model.nodes}
    assert qmodel(torch.randn(5, 3, 8, 8)).shape == (5, 5)


def test_torch_data_loader():
    torch, network = torch_network()
    from torch.utils.data import DataLoader, TensorDataset

    x, y = torch.randn(20, 3, 8, 8), torch.arange(20) % 5
    loader = DataLoader(TensorDataset(x, y), batch_size=4, num_workers=2)
    quantized = sb.quantize(network, loader, example_input=x[:1],
                            preset="fast")
    assert quantized.samples == 20
    with torch.no_grad():
        want = (network(x).argmax(1) == y).float().mean().item() * 100
    result = sb.evaluate(quantized.model, loader, task="classify")
    assert result.top1 == pytest.approx(want)


def test_qat_by_an_optimizer_of_torch(tmp_path):
    torch, network = torch_network()
    x, y = torch.randn(20, 3, 8, 8), torch.arange(20) % 5
    x[:, 0] += 2 * y[:, None, None]
    qmodel = QuantModel(network, config(
        "BACKEND", "virtual", "W.QUANTIZER.TYPE", "lsq", "W.QUANTIZER.BIT", 4,
        "A.QUANTIZER.TYPE", "lsq", "A.QUANTIZER.BIT", 4))
    qmodel.prepare_calibration()
    qmodel(x)
    qmodel.init_QAT()
    optimizer = torch.optim.SGD(qmodel.parameters(), lr=0.1)
    losses = []
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(qmodel(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert any("scale" in name for name, _ in qmodel.named_parameters())
    qmodel.eval()
    with torch.no_grad():
        want = qmodel(x).numpy()
    qmodel.export_onnx(x, tmp_path / "q.onnx")
    got = ort.InferenceSession(tmp_path / "q.onnx", providers=[
        "CPUExecutionProvider"]).run(None, {"input": x.numpy()})[0]
    np.testing.assert_allclose(got, want, atol=1e-3)


def test_qat_gradients_are_those_of_torch():
    """With 16 bits rounding is all but absent: features, and so the gradients of
    the last layer, are the module's in inference form, with which training
    begins."""
    torch, network = torch_network()
    x, y = torch.randn(6, 3, 8, 8), torch.arange(6) % 5
    qmodel = QuantModel(network, config(
        "BACKEND", "virtual", "W.QUANTIZER.BIT", 16, "A.QUANTIZER.BIT", 16))
    qmodel.prepare_calibration()
    qmodel(x)
    qmodel.init_QAT()
    torch.nn.functional.cross_entropy(qmodel(x), y).backward()
    torch.nn.functional.cross_entropy(network(x), y).backward()
    found = dict(qmodel.named_parameters())
    weight = network.fc.weight
    # The largest weight of a row is rounded beyond the last number, and clipped.
    inside = weight.abs() < weight.abs().amax(1, keepdim=True)
    torch.testing.assert_close(found["fc.weight"].grad[inside],
                               weight.grad[inside], rtol=0.02, atol=1e-3)
    torch.testing.assert_close(found["fc.bias"].grad, network.fc.bias.grad,
                               rtol=0.02, atol=1e-3)


def test_qat_gradients_behind_an_output_without_one(images):
    pytest.importorskip("torch")
    from sparsebit._torch_train import TorchLearner

    model = random_cnn()
    model.graph.node.append(onnx.helper.make_node("ArgMax", ["logits"], ["best"],
                                                  "best", axis=1, keepdims=0))
    model.graph.output.insert(0, onnx.helper.make_tensor_value_info(
        "best", onnx.TensorProto.INT64, ["N"]))
    learner = TorchLearner(sb.quantize(model, images, config=config(),
                                       train=True))
    logits = learner.run((sb.tensor(images[0]),), True)
    logits.sum().backward()
    assert learner.parameters["b3"].grad.tolist() == [len(images[0])] * 5


def test_qat_needs_a_calibration(cnn):
    pytest.importorskip("torch")
    with pytest.raises(sb.ArgumentError, match="prepare_calibration"):
        QuantModel(cnn, config()).init_QAT()
    with pytest.raises(sb.ArgumentError, match="init_QAT"):
        QuantModel(cnn, config()).parameters()


def test_torch_module_without_example_is_an_exception():
    _, network = torch_network()
    with pytest.raises(sb.ArgumentError, match="example_input"):
        sb.load(network)
    assert not network.training


def channels_of(y):
    y = np.asarray(y).transpose(1, 0, 2, 3).reshape(np.asarray(y).shape[1], -1)
    return y.mean(1), y.std(1)


def test_batchnorm_tuning_restores_means_and_sizes_of_channels():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((16, 3, 8, 8)).astype(np.float32)
    w = [rng.standard_normal(s).astype(np.float32) * 0.4
         for s in ((6, 3, 3, 3), (5, 6, 3, 3))]
    nodes, weights = [], []
    for i, (value, op, to) in enumerate((("image", "Relu", "r"),
                                         ("r", "Neg", "y"))):
        c = w[i].shape[0]
        norm = {"g": rng.uniform(0.5, 2, c), "b": rng.standard_normal(c),
                "m": rng.standard_normal(c), "v": rng.uniform(0.5, 2, c)}
        weights.append(onnx.numpy_helper.from_array(w[i], f"w{i}"))
        weights += [onnx.numpy_helper.from_array(v.astype(np.float32), k + f"{i}")
                    for k, v in norm.items()]
        nodes.append(onnx.helper.make_node(
            "Conv", [value, f"w{i}"], [f"c{i}"], f"conv{i}", pads=[1] * 4))
        nodes.append(onnx.helper.make_node(
            "BatchNormalization", [f"c{i}", *(k + f"{i}" for k in norm)],
            [f"n{i}"], f"norm{i}"))
        nodes.append(onnx.helper.make_node(op, [f"n{i}"], [to]))
    value = onnx.helper.make_tensor_value_info
    model = onnx.helper.make_model(onnx.helper.make_graph(
        nodes, "norms", [value("image", 1, ["N", 3, 8, 8])],
        [value("y", 1, ["N", 5, 8, 8])], weights),
        opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    want = channels_of(run_ort(model.SerializeToString(), x))
    errors = []
    for tuning in (False, True):
        qmodel = QuantModel(model, config(
            "BACKEND", "virtual", "W.QUANTIZER.BIT", 2, "A.QUANTIZER.BIT", 3,
            "SCHEDULE.BN_TUNING", tuning))
        qmodel.prepare_calibration()
        qmodel(x)
        qmodel.calc_qparams()
        qmodel.set_quant(w_quant=True, a_quant=True)
        if tuning:
            with qmodel.batchnorm_tuning():
                qmodel(x)
        else:
            with pytest.raises(sb.ArgumentError, match="BN_TUNING"):
                with qmodel.batchnorm_tuning():
                    pass
        got = channels_of(qmodel(x))
        errors.append(max(np.abs(a - b).max() for a, b in zip(got, want)))
    assert errors[0] > 0.05 and errors[1] < 1e-4


def test_batchnorm_tuning_says_what_is_missing(cnn, images, caplog):
    qmodel = QuantModel(cnn, config("BACKEND", "virtual",
                                    "SCHEDULE.BN_TUNING", True))
    with pytest.raises(sb.ArgumentError, match="call calc_qparams"):
        with qmodel.batchnorm_tuning():
            pass
    qmodel.prepare_calibration()
    qmodel(np.concatenate(images))
    qmodel.calc_qparams()
    with qmodel.batchnorm_tuning():
        qmodel(images[0])
    assert "nothing was tuned" not in caplog.text
    qmodel = QuantModel(sb.parse(TINY), qmodel.cfg)
    qmodel.prepare_calibration()
    qmodel(images[0][:, :, 0].reshape(-1, 3))
    qmodel.calc_qparams()
    with qmodel.batchnorm_tuning():
        pass
    assert "nothing was tuned, the network has no" in caplog.text


# ---- modules as attributes ----------------------------------------------------

def test_bits_of_single_layers(images):
    torch, network = torch_network()
    qmodel = QuantModel(network, config("BACKEND", "virtual",
                                        "W.QUANTIZER.BIT", 4,
                                        "A.QUANTIZER.BIT", 4)).cuda()
    qmodel.model.layer1[0].weight_quantizer.set_bit(bit=8)
    qmodel.model.fc.input_quantizer.set_bit(bit=6)
    with pytest.raises(AttributeError, match="conv9"):
        qmodel.model.conv9.input_quantizer
    qmodel.prepare_calibration()
    qmodel(torch.from_numpy(images[0]))
    with pytest.raises(sb.ArgumentError, match="before prepare_calibration"):
        qmodel.model.fc.input_quantizer.set_bit(8)
    qmodel.calc_qparams()
    bits = {q.name: q.bits for q in qmodel.quantizers if not q.fused}
    assert bits["layer1.0.weight_quantizer"] == 8
    assert bits["conv2.weight_quantizer"] == bits["fc.weight_quantizer"] == 4
    assert bits["fc.input_quantizer"] == 6
    assert "fc.input_quantizer: 6 bit" in repr(qmodel.model)


def test_bits_of_single_layers_of_a_file(cnn):
    pytest.importorskip("yaml")
    qmodel = QuantModel(cnn, sb.Config(config("BACKEND", "virtual")).read())
    qmodel.model.conv1.weight_quantizer.set_bit(4)
    bits = {q.name: q.bits for q in qmodel.quantizers}
    assert bits["conv1.weight_quantizer"] == 4
    assert bits["conv2.weight_quantizer"] == 8
    with pytest.raises(AttributeError, match="conv9"):
        qmodel.model.conv9


def test_keys_are_attributes(tmp_path):
    pytest.importorskip("yaml")
    (tmp_path / "q.yaml").write_text(
        "BACKEND: virtual\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: "
        "{BIT: 4}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: pact, "
        "BIT: 4}}\n")
    read = parse_qconfig(tmp_path / "q.yaml")
    assert read.A.QUANTIZER.TYPE == "pact" and read.W.QUANTIZER.BIT == 4
    assert read.W.QUANTIZER.TYPE == "uniform"  # a preset
    assert read.SCHEDULE.BN_TUNING is False
    with pytest.raises(AttributeError):
        read.abacus


def test_arguments_by_name():
    torch = pytest.importorskip("torch")

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 3)

        def forward(self, x, mask=None, *, flip=False):
            x = self.fc(x)
            return -x if flip else x * mask

    network = Scaled().eval()
    x, mask = torch.randn(5, 4), torch.rand(5, 1)
    qmodel = QuantModel(network, config())
    with torch.no_grad():
        torch.testing.assert_close(qmodel(mask=mask, x=x), network(x, mask))
    assert [v.name for v in qmodel.model.inputs] == ["x", "mask"]
    assert "forward" not in vars(network)


def test_a_module_without_anything_to_quantize_runs_in_float():
    torch = pytest.importorskip("torch")
    network = torch.nn.Embedding(10, 4)
    qmodel = QuantModel(network, config())
    ids = torch.tensor([[1, 9]])
    with torch.no_grad():
        torch.testing.assert_close(qmodel(ids), network(ids))
    qmodel.prepare_calibration()
    with pytest.raises(sb.ModelError, match="nothing to quantize"):
        qmodel(ids)


class OnGpu:
    """What a tensor of a GPU looks like from outside."""

    is_cuda = True

    def __init__(self, array):
        self.array = array

    def cpu(self):
        return self.array


def test_tensors_of_a_gpu_are_brought_over(cnn, images):
    plain = sb.quantize(cnn, images, preset="fast")
    brought = sb.quantize(cnn, [OnGpu(x) for x in images], preset="fast")
    assert [q.scale for q in plain.quantizers] == [
        q.scale for q in brought.quantizers]


# ---- training of pruned networks ------------------------------------------------

def test_ratios_of_single_layers(cnn):
    smodel = SparseModel(cnn, {"SPARSER": {
        "TYPE": "unstructed", "STRATEGY": "l1norm", "RATIO": 0.5}}).cuda()
    smodel.model.fc.sparser.set_ratio(0.0)
    smodel.calc_params()
    removed = {e.name: e.removed for e in smodel.pruned.layers}
    assert removed["fc"] == 0 < removed["conv1"]
    with pytest.raises(sb.ArgumentError, match="before calc_params"):
        smodel.model.fc.sparser.set_ratio(0.5)
    assert "conv1: " in repr(smodel.model)


def test_layers_before_additions_keep_their_channels(cnn):
    structured = {"SPARSER": {"TYPE": "structed", "STRATEGY": "l1norm",
                              "RATIO": 0.5}}
    smodel = SparseModel(cnn, structured)
    smodel.disable_sparse_before_add()
    with pytest.raises(sb.Error):  # both convolutions are added to something
        smodel.calc_params()


@pytest.mark.parametrize("kind", ["structed", "unstructed"])
def test_pruned_network_is_trained_by_torch(tmp_path, kind):
    torch, network = torch_network()
    x, y = torch.randn(6, 3, 8, 8), torch.arange(6) % 5
    smodel = SparseModel(network, {"SPARSER": {
        "TYPE": kind, "STRATEGY": "l1norm", "RATIO": 0.5}}, x[:1])
    with pytest.raises(sb.ArgumentError, match="calc_params"):
        smodel.parameters()
    smodel.calc_params()
    optimizer = torch.optim.SGD(smodel.parameters(), lr=0.1, momentum=0.9,
                                weight_decay=0.01)
    zeros = {n: p == 0 for n, p in smodel.named_parameters()}
    smodel.train()
    losses = []
    for step in range(8):
        outputs = smodel(x)
        loss = torch.nn.functional.cross_entropy(outputs, y)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:  # d loss / d bias of the last layer, by hand
            want = (torch.softmax(outputs.detach(), 1)
                    - torch.nn.functional.one_hot(y, 5)).mean(0)
            bias = dict(smodel.named_parameters())["fc.bias"]
            torch.testing.assert_close(bias.grad, want, rtol=1e-4, atol=1e-5)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    smodel.eval()
    with torch.no_grad():
        want = smodel(x).numpy()
    smodel.export_onnx(x, tmp_path / "p.onnx")
    got = ort.InferenceSession(tmp_path / "p.onnx", providers=[
        "CPUExecutionProvider"]).run(None, {"input": x.numpy()})[0]
    np.testing.assert_allclose(got, want, atol=1e-4)
    if kind == "unstructed":
        weights = {i.name: onnx.numpy_helper.to_array(i) for i in
                   onnx.load(tmp_path / "p.onnx").graph.initializer}
        for name in ("conv2.weight", "fc.weight"):
            assert zeros[name].any()
            assert (weights[name][zeros[name].numpy()] == 0).all()
    state = smodel.state_dict()
    assert "fc.weight" in state
    other = {k: torch.zeros_like(v) for k, v in state.items()}
    smodel.load_state_dict(other)
    with torch.no_grad():
        assert (smodel(x) == 0).all()
    smodel.load_state_dict(state)
    with torch.no_grad():
        np.testing.assert_allclose(smodel(x).numpy(), want, atol=1e-6)
    with pytest.raises(KeyError, match="fc.bias"):
        smodel.load_state_dict({k: v for k, v in state.items()
                                if k != "fc.bias"})
