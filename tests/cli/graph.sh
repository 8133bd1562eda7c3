# The three forms of a graph; an If with its branches.
code $sparsebit graph $models/tiny.onnx
echo ---
code $sparsebit graph $models/branches.onnx --text
echo ---
code $sparsebit graph $models/tiny.onnx --dot
echo ---
code $sparsebit graph $models/two.onnx --mermaid
code $sparsebit graph $models/two.onnx --mermaid --dot
echo --- with quantizers
cat >q.yaml <<'END'
W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}}
A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}
END
code $sparsebit graph $models/cnn.onnx -c q.yaml
code $sparsebit graph $models/cnn.onnx -c q.yaml --mermaid
code $sparsebit graph $models/cnn.onnx --target onnxruntime-x86 --dot
code $sparsebit graph $models/cnn.onnx --target nothing
code $sparsebit graph $models/two.onnx -c q.yaml
echo --- after stages
code $sparsebit graph $models/two.onnx -c q.yaml --dump-after import --dump-after place 2>&1 >/dev/null
code $sparsebit graph $models/two.onnx -c q.yaml --dump-after plase
code $sparsebit graph $models/two.onnx --dump-after place
