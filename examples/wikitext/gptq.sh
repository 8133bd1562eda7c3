#!/usr/bin/env bash
# gptq.sh MODEL CALIBRATION TEST [OUT]: a language model with 4-bit weights by GPTQ,
# and its perplexity.  MODEL is a Hugging Face folder or a GGUF file in float,
# CALIBRATION and TEST are text files.
set -euo pipefail
model=$(realpath "$1") calibration=$(realpath "$2") test=$(realpath "$3")
out=${4:-model.w4.onnx}
sparsebit=${SPARSEBIT:-sparsebit}
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

describe() {
    printf 'SOURCE: text\nPATH: %s\nTOKENIZER: %s\nWINDOW: %s\nSTYLE: paper\n' \
        "$1" "$model" "${WINDOW:-512}"
}
describe "$calibration" >"$tmp/calibration.yaml"
describe "$test" >"$tmp/test.yaml"
$sparsebit quantize "$model" -c "$here/gptq.yaml" -d "$tmp/calibration.yaml" \
    -n "${SAMPLES:-32}" -o "$out"
$sparsebit eval "$out" -d "$tmp/test.yaml" -n "${TEST_WINDOWS:-8}" --against "$model"
