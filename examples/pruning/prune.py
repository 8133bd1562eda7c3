"""prune.py MODEL CIFAR10 [OUT]: removes channels of a CIFAR-10 network until 70 % of
the multiply-accumulates are left, and evaluates both."""

import os
import sys

import sparsebit as sb

HERE = os.path.dirname(os.path.abspath(__file__))


def images(cifar10, file, samples):
    with open(os.path.join(HERE, "../cifar10/images.yaml")) as f:
        text = f.read() + f"PATH: {os.path.join(cifar10, file)}\n"
    return sb.Data(text=text, samples=samples)


def main(path, cifar10, out="resnet20.pruned.onnx"):
    samples = int(os.environ.get("SAMPLES", 512))
    test = int(os.environ.get("TEST", 0))
    cifar10 = os.path.abspath(cifar10)
    model = sb.load(path)

    result = sb.prune(model, images(cifar10, "data_batch_1.bin", samples),
                      config=os.path.join(HERE, "sconfig.yaml"),
                      target_macs=0.7, progress=True)
    result.save(out)
    before, after = model.info, result.model.info
    print(f"{result.removed} of {result.size} channels removed, ratio "
          f"{result.ratio:.2f}")
    print(f"parameters {before.params} -> {after.params}, multiply-accumulates "
          f"{before.macs:.3g} -> {after.macs:.3g}")
    for layer in result.layers:
        if layer.reason:
            print(f"  {layer.name} keeps its channels: {layer.reason}")
    print(sb.evaluate(out, images(cifar10, "test_batch.bin", test),
                      against=model))


if __name__ == "__main__":
    main(*sys.argv[1:])
