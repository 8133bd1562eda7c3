# train: what it lists, and what it refuses.  How it learns is in
# tests/unit/test_train.c and tests/ort/test_train.py.
$sparsebit new mlp --input 1x4x4 --classes 3 -o m.onnx -q
code $sparsebit train m.onnx -d none.yaml -o t.onnx --dry-run
echo --- errors
code $sparsebit train m.onnx -o t.onnx
code $sparsebit train m.onnx -d none.yaml -o t.onnx
code $sparsebit train m.onnx -d none.yaml -o t.onnx --set LR
code $sparsebit train none.onnx -d none.yaml -o t.onnx
ls
echo --- quantizers
printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq, BIT: 4}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq, BIT: 4}}\n' >q.yaml
code $sparsebit quantize m.onnx -c q.yaml --dry-run
code $sparsebit train m.onnx -d none.yaml -o t.onnx -t onnxruntime-x86
code $sparsebit train m.onnx -d none.yaml -o t.onnx -c q.yaml -t onnxruntime-x86
code $sparsebit train m.onnx -d none.yaml -o t.onnx -c none.yaml
ls
