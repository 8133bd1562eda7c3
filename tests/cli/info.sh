# What info prints: a plain model, one with an operator we do not know, JSON.
code $sparsebit info $models/tiny.onnx
echo ---
code $sparsebit info $models/custom.onnx
echo ---
code $sparsebit info $models/two.onnx --json
echo --- a module in two places is one row
sed 's|/act/Relu|/fc/ARelu|' $models/tiny.onnx >parts.onnx
code $sparsebit info parts.onnx | sed -n '/^modules/,/^$/p'
echo --- quantized
code $sparsebit info $models/qdq.onnx | sed -n '/^quantization/,/^inputs/p'
printf 'W: {QSCHEME: per-group-symmetric, QUANTIZER: {BIT: 4}}\nA: none\n' >w4.yaml
printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\nA: dynamic\n' >dynamic.yaml
$sparsebit quantize -q $models/cnn.onnx -c w4.yaml -o w4.onnx
$sparsebit quantize -q $models/cnn.onnx -c w4.yaml --format matmulnbits -o nbits.onnx
$sparsebit quantize -q $models/cnn.onnx -c dynamic.yaml -o dynamic.onnx
for f in w4 nbits dynamic; do
    echo $f.onnx
    code $sparsebit info $f.onnx | sed -n '/^quantization/,/^inputs/p' | grep '^  '
done
code $sparsebit info w4.onnx --json | sed -n '/"quantization"/,$p'
echo --- values
printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 5}}\nA: none\n' >w5.yaml
$sparsebit quantize -q $models/cnn.onnx -c w5.yaml -o w5.onnx
for f in w5 nbits dynamic; do
    code $sparsebit info $f.onnx --quantized | sed -n '/^quantization/,/^inputs/p' | grep '^  '
done
code $sparsebit info nbits.onnx --quantized --json | sed -n '/"values"/,$p'
echo --- names, and modules of one node
code $sparsebit info $models/names.onnx | sed -n '/^inputs/,$p'
code $sparsebit info $models/names.onnx --shape v0=2x3 --shape mask=2x7 | sed -n '/^inputs/,/^$/p'
code $sparsebit info $models/names.onnx --shape v1=2x3
