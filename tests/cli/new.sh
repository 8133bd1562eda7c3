# new: untrained networks, and what cannot be written.
code $sparsebit new mlp --input 1x4x4 --classes 3 --seed 5 -o a.onnx
$sparsebit new mlp --input 1x4x4 --classes 3 --seed 5 -o b.onnx -q
cmp a.onnx b.onnx && echo same bytes
code $sparsebit new resnet20 -o r.onnx --json
$sparsebit run r.onnx -q --out-dir out && ls out
$sparsebit list nets
echo --- errors
code $sparsebit new resnet21 -o x.onnx
code $sparsebit new mlp --input 4x4 -o x.onnx
code $sparsebit new vit-tiny --input 3x30x30 -o x.onnx
code $sparsebit new mlp
ls
