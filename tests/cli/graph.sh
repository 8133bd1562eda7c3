# The three forms of a graph; an If with its branches.
code $sparsebit graph $models/tiny.onnx
echo ---
code $sparsebit graph $models/branches.onnx --text
echo ---
code $sparsebit graph $models/tiny.onnx --dot
echo ---
code $sparsebit graph $models/two.onnx --mermaid
code $sparsebit graph $models/two.onnx --mermaid --dot
