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
