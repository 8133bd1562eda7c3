#!/usr/bin/env python3
"""train_fashion_mnist.py OUT.onnx: makes the network in examples/.

A small residual CNN for Fashion-MNIST (28x28 grey pictures of clothes, ten
classes), trained from nothing in a few minutes on a CPU with PyTorch, and
written as ONNX the way PyTorch users write it: BatchNorm not folded, module
paths in the names, any batch.  Pictures come from Debian's package
dataset-fashion-mnist.  Input: grey / 255, minus 0.2860, divided by 0.3530
(mean and deviation of the training pictures).

Needs torch, numpy and onnx.  The command itself needs none of them: the file
in this folder is what this script wrote.
"""
import argparse
import gzip
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FOLDER = "/usr/share/datasets/fashion-mnist"
MEAN, STD = 0.2860, 0.3530


class Block(nn.Module):
    """Two 3x3 convolutions and the way around them."""

    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.relu2 = nn.ReLU()
        self.down = nn.Sequential()
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False),
                nn.BatchNorm2d(cout))

    def forward(self, x):
        y = self.relu1(self.bn1(self.conv1(x)))
        return self.relu2(self.bn2(self.conv2(y)) + self.down(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 32, 3, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(32)
        self.relu = nn.ReLU()
        self.layer1 = Block(32, 32, 1)
        self.layer2 = Block(32, 64, 2)
        self.layer3 = Block(64, 64, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = self.relu(self.bn(self.conv(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(self.flatten(self.pool(x)))


def load(part):
    """Normalised pictures [n,1,28,28] and their labels."""
    def read(kind, head):
        path = os.path.join(FOLDER, f"{part}-{kind}-ubyte.gz")
        with gzip.open(path) as f:
            return np.frombuffer(f.read(), np.uint8, offset=head)
    x = read("images-idx3", 16).reshape(-1, 1, 28, 28)
    y = read("labels-idx1", 8)
    x = (torch.from_numpy(x.astype(np.float32)) / 255 - MEAN) / STD
    return x, torch.from_numpy(y.astype(np.int64))


def augment(x):
    """Half of the pictures mirrored, all moved by up to two pixels."""
    mirrored = torch.rand(len(x)) < 0.5
    x = torch.where(mirrored[:, None, None, None], x.flip(3), x)
    x = F.pad(x, (2, 2, 2, 2), value=-MEAN / STD)
    dy, dx = torch.randint(0, 5, (2, len(x)))
    rows = (dy[:, None] + torch.arange(28))[:, None, :, None]
    cols = (dx[:, None] + torch.arange(28))[:, None, None, :]
    return x[torch.arange(len(x))[:, None, None, None], 0, rows, cols]


def accuracy(net, x, y):
    net.eval()
    with torch.no_grad():
        hits = sum(int((net(x[i:i + 500]).argmax(1) == y[i:i + 500]).sum())
                   for i in range(0, len(x), 500))
    return 100 * hits / len(x)


def train(net, x, y, valid, epochs, batch):
    steps = len(x) // batch
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9,
                                nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.2, epochs * steps, pct_start=0.2)
    begin = time.time()
    for epoch in range(epochs):
        net.train()
        order, total = torch.randperm(len(x)), 0.0
        for i in range(steps):
            pick = order[i * batch:(i + 1) * batch]
            loss = F.cross_entropy(net(augment(x[pick])), y[pick],
                                   label_smoothing=0.05)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1:2}/{epochs}  loss {total / steps:.4f}  "
              f"test {accuracy(net, *valid):.2f} %  "
              f"{time.time() - begin:.0f} s", flush=True)


def export(net, path):
    """PRESERVE keeps BatchNorm as a node of its own."""
    net.eval()
    torch.onnx.export(
        net, torch.zeros(1, 1, 28, 28), path, dynamo=False, opset_version=17,
        training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False,
        input_names=["image"], output_names=["logits"],
        dynamic_axes={"image": {0: "N"}, "logits": {0: "N"}})


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--epochs", type=int, default=15)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    x, y = load("train")
    valid = load("t10k")
    net = Net().to(memory_format=torch.channels_last)
    print(f"{sum(v.numel() for v in net.parameters())} parameters")
    train(net, x, y, valid, args.epochs, args.batch)
    export(net.to(memory_format=torch.contiguous_format), args.out)
    print(f"{args.out}: {os.path.getsize(args.out)} bytes")


if __name__ == "__main__":
    main()
