# Whatever is around: locales, no HOME, few and many threads, readers that leave
# early, names that are not UTF-8.  The results are the same.
same() { # COMMAND...: prints whether the output is that of the plain run
    "$@" $sparsebit run $models/cnn.onnx --seed 1 >other 2>&1 || cat other
    cmp plain other && echo same
}
$sparsebit run $models/cnn.onnx --seed 1 >plain
same env -i
same env -u HOME
same env LC_ALL=de_DE.UTF-8
same env LANG=tr_TR.UTF-8 LC_ALL=
same env LC_ALL=no_such.locale
same env TMPDIR=/nowhere
same env -u PATH
for n in 0 1 99 100000; do
    $sparsebit run $models/cnn.onnx --seed 1 --threads $n | cmp plain - && echo same
done
echo --- a reader that leaves early
for command in "help --manual man" "list ops" "graph $models/cnn.onnx"; do
    $sparsebit $command 2>err | head -n 1
    rc=${PIPESTATUS[0]} # 1 and a line where SIGPIPE is ignored
    [ $rc -lt 2 -o $rc = 141 ] || echo "exit code $rc"
done
{
    until [ -e left ]; do sleep 0.05; done
    $sparsebit list ops 2>err
    echo "exit code $?" >rc
} | {
    exec 0<&-
    touch left
}
cat rc err # and no word
echo --- little memory: a result, or one line and exit code 1
network=$models/../../../examples/fashion_mnist.onnx
for kb in $(seq 60000 10000 200000); do
    # Less than the program itself takes; all limits are, with sanitizers.
    { (ulimit -v $kb; $sparsebit --version) >/dev/null; } 2>/dev/null || continue
    (ulimit -v $kb; $sparsebit run $network --threads 2) >out 2>err
    rc=$?
    [ $rc = 0 ] || [ $rc = 1 -a "$(wc -l <err)" = 1 ] ||
        { echo "exit code $rc with $kb KB"; cat err; }
done
echo --- JSON is JSON
command -v python3 >/dev/null || exit 77
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n\0\0\x80\x3f\0\0\x80\x3f\0\0\x80\x3f' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }" >x.npy
printf 'SOURCE: npy\nPATH: x.npy\n' >x.yaml
cat >read.py <<'END'
import json, sys
def no(word): raise ValueError(word)
json.loads(sys.stdin.buffer.read().decode(), parse_constant=no)
END
# A name of the tensor in this file, and the file's own, are no UTF-8.
odd=$(printf 'odd\xff\xe2\x82.onnx')
sed 's/fc\.weight/fc.w\xff\xc0\xafht/g' $models/tiny.onnx >"$odd"
json() {
    $sparsebit "$@" --json >out.json 2>err || cat err
    python3 read.py <out.json || echo "not JSON: $*"
}
for m in $models/tiny.onnx $models/cnn.onnx $models/two.onnx "$odd"; do
    json info "$m"
    json graph "$m"
    json lint "$m" -t onnxruntime-x86
    json run "$m"
    json bench "$m" --seconds 0.01 --profile
    json simplify "$m" -o o.onnx
done
for m in $models/tiny.onnx "$odd"; do
    json quantize "$m" -d x.yaml -o q.onnx --save-calibration seen.json
    python3 read.py <seen.json
    json quantize "$m" --load-calibration seen.json -o q.onnx
    json eval "$m" -d x.yaml --against q.onnx
    json info q.onnx
    json lint q.onnx -t tensorrt
done
for list in ops passes observers quantizers targets sources; do
    json list $list
done
json config check x.yaml
json config default
json config explain
json version
echo done
