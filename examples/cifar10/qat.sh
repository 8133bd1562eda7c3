#!/usr/bin/env bash
# qat.sh MODEL CIFAR10 [OUT]: trains a CIFAR-10 network with 4-bit quantizers that
# learn their scales (LSQ), from a float network, which is also the teacher.
set -euo pipefail
model=$1 cifar10=$(realpath "$2") out=${3:-resnet20.w4a4.onnx}
sparsebit=${SPARSEBIT:-sparsebit}
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

{
    cat "$here/images.yaml"
    echo "PATH: [$(printf '%s, ' "$cifar10"/data_batch_*.bin)]"
    printf 'SHUFFLE: true\nAUGMENT: {PAD_CROP: 4, FLIP: true}\n'
} >"$tmp/train.yaml"
cat "$here/images.yaml" - >"$tmp/test.yaml" <<<"PATH: $cifar10/test_batch.bin"
$sparsebit train "$model" -c "$here/qconfig_lsq.yaml" -d "$tmp/train.yaml" \
    --valid "$tmp/test.yaml" -n "${SAMPLES:-0}" \
    --teacher "$model" --options "$here/qat_options.yaml" \
    --set EPOCHS="${EPOCHS:-10}" -b "${BATCH:-128}" -o "$out"
$sparsebit eval "$out" -d "$tmp/test.yaml" -n "${TEST:-0}" --against "$model"
