# -q is the same everywhere: reports and errors are printed, progress, summaries
# of what was written, and warnings are not.
printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}, SPECIFIC: {"nothing*": [QUANTIZER.BIT, 4]}}\nA: none\n' >q.yaml
{
    printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
    head -c 24 /dev/zero
} >x.npy
printf 'SOURCE: npy\nPATH: x.npy\n' >x.yaml
same() { # COMMAND...: prints the same with -q
    "$@" 2>/dev/null | sed -E 's/[0-9.]+ (ms|s|items|MB|runs)?//g; s/ [0-9.]+$//' >loud
    "$@" -q 2>err | sed -E 's/[0-9.]+ (ms|s|items|MB|runs)?//g; s/ [0-9.]+$//' >quiet
    [ -s err ] && cat err
    [ -s loud ] || echo "$2 prints nothing"
    cmp loud quiet && echo "$2: the same"
}
same $sparsebit info $models/tiny.onnx
same $sparsebit graph $models/tiny.onnx
same $sparsebit run $models/tiny.onnx
same $sparsebit lint $models/qdq.onnx
same $sparsebit config check q.yaml
same $sparsebit list passes
same $sparsebit version
same $sparsebit help run
$sparsebit eval $models/tiny.onnx -d x.yaml -q | tail -n 1 | grep -c tiny
$sparsebit bench $models/tiny.onnx --seconds 0.01 -q | grep -c latency
echo --- files are written without a word, unless something is wrong
code $sparsebit simplify $models/tiny.onnx -o s.onnx -q
code $sparsebit quantize $models/tiny.onnx -c q.yaml -o q.onnx -q
code $sparsebit quantize $models/tiny.onnx -c q.yaml -o q.onnx 2>&1 | head -n 1
code $sparsebit quantize $models/tiny.onnx -c nothing.yaml -o q.onnx -q
$sparsebit simplify $models/cnn.onnx -o s.onnx -q --dump-after fuse_bn --passes fuse_bn 2>&1 | head -n 2
