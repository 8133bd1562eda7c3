# A disk that fills up while a model is written: an error, and no half file.
mkdir disk
if [ "$(id -u)" != 0 ] || ! mount -t tmpfs -o size=16k none disk 2>/dev/null; then
    echo "no small file system to be had here"
    exit 77
fi
trap 'umount disk' EXIT
head -c 15000 /dev/zero >disk/filler 2>/dev/null
code $sparsebit simplify $models/slow.onnx -o disk/out.onnx -q
code $sparsebit run $models/tiny.onnx --shape x=1000x3 --out-dir disk/dir -q
ls disk
ls disk/dir
