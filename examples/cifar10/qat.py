"""qat.py MODEL CIFAR10 [OUT]: trains a CIFAR-10 network with 4-bit quantizers that
learn their scales (LSQ), from a float network, which is also the teacher."""

import os
import sys

import sparsebit as sb

HERE = os.path.dirname(os.path.abspath(__file__))


def images(cifar10, files, samples):
    """Batches; for training shuffled, shifted and mirrored."""
    with open(os.path.join(HERE, "images.yaml")) as f:
        text = f.read()
    paths = ", ".join(os.path.join(cifar10, file) for file in files)
    if len(files) > 1:
        text = text.replace("BATCH: 64", "BATCH: " + os.environ.get("BATCH", "128"))
        text += "SHUFFLE: true\nAUGMENT: {PAD_CROP: 4, FLIP: true}\n"
    return sb.Data(text=f"{text}PATH: [{paths}]\n", samples=samples)


def show(state):
    if state.step == state.steps:
        print(f"epoch {state.epoch + 1} of {state.epochs}: loss {state.loss:.4f}, "
              f"validation {state.validation:.2f} %", flush=True)


def main(path, cifar10, out="resnet20.w4a4.onnx"):
    samples, test = (int(os.environ.get(k, 0)) for k in ("SAMPLES", "TEST"))
    cifar10 = os.path.abspath(cifar10)
    train = images(cifar10, [f for f in sorted(os.listdir(cifar10))
                             if f.startswith("data_batch")], samples)
    valid = images(cifar10, ["test_batch.bin"], test)
    model = sb.load(path)
    model.make_batch_dynamic()

    quantized = sb.quantize(model, images(cifar10, ["data_batch_1.bin"], 256),
                            config=os.path.join(HERE, "qconfig_lsq.yaml"),
                            train=True)
    print(f"before training: {sb.evaluate(quantized, valid)}")
    sb.train(quantized, train, valid, watch=show, teacher=model, options={
        "EPOCHS": int(os.environ.get("EPOCHS", 10)), "LR": 0.001,
        "TEMPERATURE": 4})
    quantized.save(out, extra_info=True)
    print(f"after: {sb.evaluate(quantized, valid, against=model)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
