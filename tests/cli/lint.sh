# lint: fused groups, reasons, refusals of TensorRT, exit codes.
$sparsebit lint $models/qdq.onnx | sed "s|$models/||"
$sparsebit lint $models/qdq.onnx -v | sed -n '/^  /p' | head -7
$sparsebit lint $models/qdq.onnx --target tensorrt | sed "s|$models/||"
$sparsebit lint $models/qdq.onnx --json | grep -c '"fate": "integer"'
code $sparsebit lint $models/qdq.onnx --strict -q
code $sparsebit lint $models/tiny.onnx --strict -q
code $sparsebit lint $models/qdq.onnx --target nothing 2>&1 | sed "s|$models/||"
code $sparsebit lint $models/qdq.onnx --target virtual 2>&1 | sed "s|$models/||"
