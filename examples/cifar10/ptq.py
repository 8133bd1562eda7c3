"""ptq.py MODEL CIFAR10 [OUT]: quantizes a CIFAR-10 network after training, with
the names of the original Sparsebit."""

import os
import sys

import sparsebit as sb
from sparsebit.quantization import QuantModel, parse_qconfig

HERE = os.path.dirname(os.path.abspath(__file__))


def images(cifar10, file, samples):
    """Batches as the training script normalizes them."""
    with open(os.path.join(HERE, "images.yaml")) as f:
        text = f.read() + f"PATH: {os.path.join(cifar10, file)}\n"
    return sb.Data(text=text, samples=samples)


def main(path, cifar10, out="resnet20.int8.onnx"):
    samples = int(os.environ.get("SAMPLES", 256))
    test = int(os.environ.get("TEST", 0))
    cifar10 = os.path.abspath(cifar10)
    model = sb.load(path)
    model.make_batch_dynamic()

    qmodel = QuantModel(model, parse_qconfig(os.path.join(HERE,
                                                          "qconfig.yaml")))
    qmodel.prepare_calibration()
    for batch in images(cifar10, "data_batch_1.bin", samples):
        qmodel(batch.inputs[0])
    qmodel.calc_qparams()
    qmodel.set_quant(w_quant=True, a_quant=True)
    qmodel.export_onnx(None, out)

    errors = qmodel.get_quantization_error(next(iter(
        images(cifar10, "data_batch_1.bin", 64))).inputs[0])
    worst = max(errors, key=errors.get)
    print(f"largest error: {errors[worst]:.2e} in {worst}")
    print(sb.evaluate(out, images(cifar10, "test_batch.bin", test),
                      against=model))


if __name__ == "__main__":
    main(*sys.argv[1:])
