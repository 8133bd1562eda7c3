# Wrong usage: one line with a hint, exit code 2.
code $sparsebit inof $models/tiny.onnx
code $sparsebit zzzzzzzz
code $sparsebit info
code $sparsebit info $models/tiny.onnx more
code $sparsebit info --jsno $models/tiny.onnx
code $sparsebit info --xyzzyplugh $models/tiny.onnx
code $sparsebit info -x $models/tiny.onnx
code $sparsebit info --json=yes $models/tiny.onnx
code $sparsebit run $models/tiny.onnx --input
code $sparsebit run $models/tiny.onnx --threads many
code $sparsebit run $models/tiny.onnx --threads -1
code $sparsebit run $models/tiny.onnx --seed 99999999999999999999
code $sparsebit generate none.gguf --temp 1
$sparsebit >out 2>err
echo "exit code $?, $(grep -c . err) error lines, $(head -n 1 out)"
echo --- what may be meant
code $sparsebit quant
code $sparsebit --hlep
code $sparsebit help quantise
code $sparsebit list obsrvers
code $sparsebit config explian
code $sparsebit config explain QSHEME
code $sparsebit lint $models/tiny.onnx -t tensort
code $sparsebit run $models/tiny.onnx -i y=x.npy
