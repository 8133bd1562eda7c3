# simplify: what it changes, what it writes, and that it computes the same.
code $sparsebit simplify $models/tiny.onnx -o small.onnx
$sparsebit graph small.onnx
code $sparsebit simplify $models/cnn.onnx -o fixed.onnx --shape x=2x2x4x4
$sparsebit graph fixed.onnx
$sparsebit run $models/cnn.onnx --shape x=2x2x4x4 --out-dir a -q
$sparsebit run fixed.onnx --out-dir b -q
cmp a/y.npy b/y.npy && echo same result
code $sparsebit simplify $models/custom.onnx -o custom.onnx -q
$sparsebit graph custom.onnx
echo --- errors
code $sparsebit simplify $models/tiny.onnx
code $sparsebit simplify $models/tiny.onnx -o x.onnx --passes nothing
code $sparsebit simplify $models/cnn.onnx -o x.onnx --shape x=2x3x4x4
code $sparsebit simplify $models/cnn.onnx -o x.onnx --shape z=2x3x4x4
code $sparsebit simplify $models/cnn.onnx -o x.onnx --shape x=2xx4
code $sparsebit simplify $models/cnn.onnx -o no/such/folder/x.onnx
ls
