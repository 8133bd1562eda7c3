#!/usr/bin/env bash
# ptq.sh MODEL CIFAR10 [OUT]: quantizes a CIFAR-10 network to int8 after training.
set -euo pipefail
model=$1 cifar10=$(realpath "$2") out=${3:-resnet20.int8.onnx}
sparsebit=${SPARSEBIT:-sparsebit}
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cat "$here/images.yaml" - >"$tmp/calibrate.yaml" <<<"PATH: $cifar10/data_batch_1.bin"
cat "$here/images.yaml" - >"$tmp/test.yaml" <<<"PATH: $cifar10/test_batch.bin"
$sparsebit quantize "$model" -d "$tmp/calibrate.yaml" -n "${SAMPLES:-256}" \
    -t onnxruntime-x86 -o "$out"
$sparsebit lint "$out" -t onnxruntime-x86
$sparsebit eval "$out" -d "$tmp/test.yaml" -n "${TEST:-0}" --against "$model"
