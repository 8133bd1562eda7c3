# run: files in and out, names with '/', archives, random inputs, dumps.
$sparsebit run $models/two.onnx --seed 3 --out-dir random -q --dump-all
ls random
cut -f1,3 random/index.tsv
cp random/t.npy t.npy
cp random/out_sum.npy s.npy
code $sparsebit run $models/two.onnx --input a=t.npy --input b=t.npy --npz two.npz
code $sparsebit run $models/two.onnx --input a=two.npz:diff -i b=two.npz:diff --json
code $sparsebit run $models/tiny.onnx --seed 0 --shape x=2x3
$sparsebit run $models/tiny.onnx --threads 1 --out-dir one -q
$sparsebit run $models/tiny.onnx --threads 4 --out-dir four -q
cmp one/y.npy four/y.npy && echo any number of threads
echo --- errors
code $sparsebit run $models/two.onnx --input a=t.npy
code $sparsebit run $models/two.onnx --input c=t.npy
code $sparsebit run $models/tiny.onnx --input t.npy
code $sparsebit run $models/tiny.onnx --input nothing.npy
code $sparsebit run $models/tiny.onnx --input $models/tiny.onnx
code $sparsebit run $models/tiny.onnx --shape x=4
code $sparsebit run $models/tiny.onnx --shape x=4x
code $sparsebit run $models/tiny.onnx --dump-all
code $sparsebit run $models/custom.onnx
