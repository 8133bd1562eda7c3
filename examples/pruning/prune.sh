#!/usr/bin/env bash
# prune.sh MODEL CIFAR10 [OUT]: removes channels of a CIFAR-10 network until 70 % of
# the multiply-accumulates are left, fits the weights anew, and evaluates both.
set -euo pipefail
model=$1 cifar10=$(realpath "$2") out=${3:-resnet20.pruned.onnx}
sparsebit=${SPARSEBIT:-sparsebit}
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cat "$here/../cifar10/images.yaml" - >"$tmp/train.yaml" \
    <<<"PATH: $cifar10/data_batch_1.bin"
cat "$here/../cifar10/images.yaml" - >"$tmp/test.yaml" \
    <<<"PATH: $cifar10/test_batch.bin"
$sparsebit prune "$model" -c "$here/sconfig.yaml" --target-macs 0.7 \
    -d "$tmp/train.yaml" -n "${SAMPLES:-512}" -o "$out"
$sparsebit eval "$out" -d "$tmp/test.yaml" -n "${TEST:-0}" --against "$model"
