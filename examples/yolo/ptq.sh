#!/usr/bin/env bash
# ptq.sh MODEL PHOTOS [OUT]: quantizes a detector to int8, and says how many boxes
# agree with the float network.  PHOTOS is a data file.
set -euo pipefail
model=$1 photos=$2 out=${3:-yolo.int8.onnx}
sparsebit=${SPARSEBIT:-sparsebit}
task=${TASK:-detect}
half=${SAMPLES:-64}

$sparsebit quantize "$model" -d "$photos" -n "$half" -t onnxruntime-x86 -o "$out"
$sparsebit eval "$out" -d "$photos" --skip "$half" -n "${TEST:-0}" \
    --against "$model" --task "$task"
