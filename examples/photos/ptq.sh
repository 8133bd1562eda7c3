#!/usr/bin/env bash
# ptq.sh MODEL PHOTOS [OUT]: quantizes a network for photographs to int8, and says
# how often it agrees with the float network.  PHOTOS is a data file.
set -euo pipefail
model=$1 photos=$2 out=${3:-model.int8.onnx}
sparsebit=${SPARSEBIT:-sparsebit}
half=${SAMPLES:-64}

$sparsebit quantize "$model" -d "$photos" -n "$half" -t onnxruntime-x86 -o "$out"
$sparsebit eval "$out" -d "$photos" --skip "$half" -n "${TEST:-0}" --against "$model"
$sparsebit analyze "$model" -d "$photos" -n 16 --report "${out%.onnx}.html"
