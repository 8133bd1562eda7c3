#!/usr/bin/env bash
# ptq.sh MODEL TOKENS [OUT]: quantizes a sentence encoder (MiniLM, BERT) without
# samples, activations at run time, and compares embeddings.  TOKENS is a data
# file; tokens.py makes one.
set -euo pipefail
model=$1 tokens=$2 out=${3:-minilm.int8.onnx}
sparsebit=${SPARSEBIT:-sparsebit}
here=$(cd "$(dirname "$0")" && pwd)

$sparsebit quantize "$model" -c "$here/dynamic.yaml" -t onnxruntime-x86 -o "$out"
$sparsebit eval "$out" -d "$tokens" --against "$model" --task embed
