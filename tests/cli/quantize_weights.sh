# quantize without data: weight-only, activations at run time, formats.
quantize() { code $sparsebit quantize $models/cnn.onnx "$@" 2>&1 | sed "s|$models/||"; }
config() { printf "W: {QSCHEME: $1, QUANTIZER: {BIT: $2}}\nA: $3\n"; }
config per-channel-symmetric 8 none >w8.yaml
config per-group-affine 4 none >w4.yaml
config per-channel-symmetric 8 dynamic >dynamic.yaml
config per-channel-symmetric 3 none >w3.yaml
printf 'SOURCE: npy\nPATH: nothing.npy\n' >data.yaml

echo --- what it does
quantize -c w8.yaml -o w8.onnx
quantize -c w4.yaml -o w4.onnx -v
quantize -c dynamic.yaml -o dynamic.onnx
quantize -c dynamic.yaml -d data.yaml -o dynamic.onnx
quantize -c dynamic.yaml -t onnxruntime-x86 -o ort.onnx
quantize -c w4.yaml -t onnxruntime-x86 -o w4.ort.onnx
quantize -c w4.yaml --format matmulnbits -o nbits.onnx
for f in w8 w4 dynamic ort w4.ort nbits; do
    echo $f.onnx
    $sparsebit info $f.onnx | grep -o '^  [a-zA-Z.:]*\(Integer\|Linear\|NBits\)  *[0-9]*'
done

echo --- what is refused
quantize -c w3.yaml -t onnxruntime-x86 -o x.onnx
quantize -c w8.yaml -t qnn -o x.onnx
quantize -c dynamic.yaml -t tensorrt -o x.onnx
quantize -c dynamic.yaml --format matmulnbits -o x.onnx
quantize -c w8.yaml --format int4 -o x.onnx
test -e x.onnx || echo no file
echo --- layers inside an If are named
printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\nA: none\n' >w8.yaml
code $sparsebit quantize $models/bodies.onnx -c w8.yaml -o bodies.onnx
echo --- a weight that is read in float as well
printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\nA: none\n' >w8.yaml
code $sparsebit quantize $models/shared.onnx -c w8.yaml -o shared.onnx 2>/dev/null | tail -1
echo --- recurrent layers
printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\nA: dynamic\n' >d8.yaml
code $sparsebit quantize $models/recurrent.onnx -c w8.yaml -o r.onnx 2>/dev/null | grep -c LSTM
code $sparsebit quantize $models/recurrent.onnx -c d8.yaml -o r.onnx -t onnxruntime-x86 2>/dev/null | grep -c LSTM
{
    printf '\223NUMPY\001\000v\000'
    printf '%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1, 3), }"
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do printf '\000\000\000\077'; done
} >r.npy
printf 'SOURCE: npy\nPATH: r.npy\nFEED: files\n' >r.yaml
code $sparsebit quantize $models/recurrent.onnx --preset fast -d r.yaml -o r.onnx 2>/dev/null | grep LSTM
