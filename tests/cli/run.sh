# run: files in and out, names with '/', archives, random inputs, dumps.
$sparsebit run $models/two.onnx --seed 3 --out-dir random -q --dump-all >/dev/null
ls random
cut -f1,3 random/index.tsv
cp random/t.npy t.npy
cp random/out_sum.npy s.npy
code $sparsebit run $models/two.onnx --input a=t.npy --input b=t.npy --npz two.npz
code $sparsebit run $models/two.onnx --input a=two.npz:diff -i b=two.npz:diff --json
code $sparsebit run $models/tiny.onnx --seed 0 --shape x=2x3
$sparsebit run $models/tiny.onnx --threads 1 --out-dir one -q >/dev/null
$sparsebit run $models/tiny.onnx --threads 4 --out-dir four -q >/dev/null
cmp one/y.npy four/y.npy && echo any number of threads
echo --- inputs that have an initializer
code $sparsebit run $models/defaults.onnx --input x=t.npy
code $sparsebit run $models/defaults.onnx --input x=t.npy -i w=s.npy
code $sparsebit run $models/defaults.onnx --input t.npy --keep-inputs
code $sparsebit run $models/defaults.onnx --input x=t.npy -i w=s.npy --keep-inputs --out-dir sum -q
$sparsebit run $models/two.onnx --input a=t.npy --input b=s.npy --out-dir want -q
cmp sum/y.npy want/out_sum.npy && echo the file of the caller
code $sparsebit info $models/defaults.onnx --keep-inputs | sed -n '/^inputs/,/^$/p'
echo --- errors
code $sparsebit run $models/two.onnx --input a=t.npy
code $sparsebit run $models/two.onnx --input c=t.npy
code $sparsebit run $models/two.onnx --input t.npy --input t.npy
code $sparsebit run $models/tiny.onnx --input t.npy
code $sparsebit run $models/tiny.onnx --input nothing.npy
code $sparsebit run $models/tiny.onnx --input $models/tiny.onnx
code $sparsebit run $models/tiny.onnx --shape x=4
code $sparsebit run $models/tiny.onnx --shape x=4x
code $sparsebit run $models/tiny.onnx --dump-all
code $sparsebit run $models/tiny.onnx --out-dir y.npz
code $sparsebit run $models/custom.onnx
echo --- values of inputs
code $sparsebit run $models/two.onnx --value b=0 -i a=two.npz:diff
code $sparsebit run $models/two.onnx --value c=0
code $sparsebit run $models/two.onnx --value b=x
code $sparsebit run $models/two.onnx --value b=1,2,3,4,5,6,7
code $sparsebit run $models/two.onnx --value b=@nothing.npy
echo --- sizes that the file leaves open
code $sparsebit run $models/names.onnx
code $sparsebit run $models/names.onnx --shape v0=2x3
code $sparsebit run $models/names.onnx --shape mask=2x5
$sparsebit run $models/names.onnx --dump-all --out-dir names -q >/dev/null
sed -n '8,9p' names/index.tsv
echo --- samples
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n\0\0\x80\x3f\0\0\x80\x3f\0\0\x80\x3f' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }" >x.npy
printf 'SOURCE: npy\nPATH: x.npy\n' >x.yaml
code $sparsebit run $models/tiny.onnx -d x.yaml
code $sparsebit run $models/tiny.onnx -d x.npy
code $sparsebit run $models/tiny.onnx -d x.yaml -i x.npy
{
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<c8', 'fortran_order': False, 'shape': (1, 3), }"
    head -c 24 /dev/zero
} >complex.npy
code $sparsebit run $models/tiny.onnx -d complex.npy
code $sparsebit quantize $models/tiny.onnx -d complex.npy -q -o no.onnx
code $sparsebit run $models/tiny.onnx -n 3
