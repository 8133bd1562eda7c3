# A folder that cannot be written to.  Root may write anywhere: skipped then.
[ "$(id -u)" = 0 ] && ! command -v setpriv >/dev/null && {
    echo "root, and no setpriv to become nobody"
    exit 77
}
as=""
[ "$(id -u)" = 0 ] && as="setpriv --reuid=65534 --regid=65534 --clear-groups"
$as test -r $models/tiny.onnx && $as test -x $sparsebit || {
    echo "another user cannot read this folder"
    exit 77
}
chmod 755 .
mkdir dir
chmod 555 dir
code $as $sparsebit simplify $models/tiny.onnx -o dir/out.onnx
code $as $sparsebit run $models/tiny.onnx --out-dir dir
code $as $sparsebit run $models/tiny.onnx --npz dir/out.npz
code $as $sparsebit run $models/tiny.onnx --out-dir dir/more
ls dir
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n\0\0\x80\x3f\0\0\x80\x3f\0\0\x80\x3f' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }" >x.npy
printf 'SOURCE: npy\nPATH: x.npy\n' >x.yaml
code $as $sparsebit quantize $models/tiny.onnx -d x.yaml -o dir/out.onnx
code $as $sparsebit quantize $models/tiny.onnx -d x.yaml --save-calibration dir/seen.json
code $as $sparsebit analyze $models/tiny.onnx -d x.yaml --report dir/page.html
ls dir
