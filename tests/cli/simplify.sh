# simplify: what it changes, what it writes, and that it computes the same.
code $sparsebit simplify $models/tiny.onnx -o small.onnx
$sparsebit graph small.onnx
code $sparsebit simplify $models/cnn.onnx -o fixed.onnx --shape x=2x2x4x4
$sparsebit graph fixed.onnx
$sparsebit run $models/cnn.onnx --shape x=2x2x4x4 --out-dir a -q >/dev/null
$sparsebit run fixed.onnx --out-dir b -q >/dev/null
cmp a/y.npy b/y.npy && echo same result
code $sparsebit simplify $models/custom.onnx -o custom.onnx -q
$sparsebit graph custom.onnx
echo --- float16
code $sparsebit simplify $models/half.onnx -o wide.onnx --float32
$sparsebit graph wide.onnx
code $sparsebit simplify $models/half.onnx -o inside.onnx --passes widen_half -q
$sparsebit graph inside.onnx
printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\nA: none\n' >w8.yaml
code $sparsebit quantize $models/half.onnx -c w8.yaml -o q.onnx
$sparsebit graph q.onnx
echo --- errors
code $sparsebit simplify $models/tiny.onnx
code $sparsebit simplify $models/tiny.onnx -o x.onnx --passes nothing
code $sparsebit simplify $models/cnn.onnx -o x.onnx --shape x=2x3x4x4
code $sparsebit simplify $models/cnn.onnx -o x.onnx --shape z=2x3x4x4
code $sparsebit simplify $models/cnn.onnx -o x.onnx --shape x=2xx4
code $sparsebit simplify $models/cnn.onnx -o no/such/folder/x.onnx
ls

# The model that is read stays, unless it is meant.
cp $models/tiny.onnx same.onnx
code $sparsebit simplify same.onnx -o same.onnx
cmp same.onnx $models/tiny.onnx && echo untouched
code $sparsebit simplify same.onnx -o same.onnx --force -q
