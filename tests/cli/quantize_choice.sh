# quantize: what stays in float (--exclude), a plan without work (--dry-run), the
# opset of the file (--opset).
{
    printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 4, 4), }"
    for _ in $(seq 32); do printf '\0\0\200\077\0\0\0\100'; done
} >x.npy
printf 'SOURCE: npy\nPATH: x.npy\n' >x.yaml
quantize() {
    code $sparsebit quantize "$@" 2>&1 | sed -E 's/ in [0-9.]+ s$//'
}
echo --- exclude
{
    printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
    for _ in $(seq 3); do printf '\0\0\200\077\0\0\0\100'; done
} >v.npy
printf 'SOURCE: npy\nPATH: v.npy\n' >v.yaml
printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n' >q.yaml
quantize $models/tiny.onnx -c q.yaml -d v.yaml -o all.onnx
quantize $models/tiny.onnx -c q.yaml -d v.yaml -o some.onnx --exclude act
quantize $models/tiny.onnx -c q.yaml -d v.yaml -o some.onnx --exclude '/act/*'
quantize $models/tiny.onnx -c q.yaml -d v.yaml -o some.onnx --exclude fc --exclude act
quantize $models/tiny.onnx -c q.yaml -d v.yaml -o some.onnx --exclude 'nothing*'
quantize $models/tiny.onnx -c q.yaml -d v.yaml -o some.onnx --exclude ''
code $sparsebit graph $models/tiny.onnx -c q.yaml --json | grep -c '"quantizer"'
code $sparsebit graph $models/tiny.onnx -c q.yaml --exclude act --json | grep -c '"quantizer"'
code $sparsebit graph $models/tiny.onnx --exclude act
echo --- dry run
quantize $models/cnn.onnx -t tensorrt --dry-run -v -o never.onnx
quantize $models/cnn.onnx -t tensorrt --dry-run --json | grep -E 'dry|bytes|needs|weights'
ls never.onnx 2>&1
quantize $models/tiny.onnx -c q.yaml --dry-run --exclude act
quantize nothing.onnx --dry-run
echo --- opset
for n in 13 21 12 6 99; do
    quantize $models/cnn.onnx -d x.yaml -t tensorrt -o o.onnx -q --opset $n
    [ ! -e o.onnx ] || $sparsebit info o.onnx | grep opset
    rm -f o.onnx
done
printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}}\nA: none\n' >w4.yaml
quantize $models/cnn.onnx -c w4.yaml -o o.onnx --opset 17
