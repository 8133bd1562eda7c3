# What info prints: a plain model, one with an operator we do not know, JSON.
code $sparsebit info $models/tiny.onnx
echo ---
code $sparsebit info $models/custom.onnx
echo ---
code $sparsebit info $models/two.onnx --json
