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
printf 'SOURCE: npy\nPATH: x.npy\n' >x.yaml
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n\0\0\x80\x3f\0\0\x80\x3f\0\0\x80\x3f' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }" >x.npy
cat /dev/zero >>disk/filler 2>/dev/null
code $sparsebit quantize $models/tiny.onnx -d x.yaml -o disk/out.onnx -q
code $sparsebit quantize $models/tiny.onnx -d x.yaml --save-calibration disk/seen.json -q
# Pages; what else was asked for is there.
page() { $sparsebit "$@" --report disk/page.html -q 2>&1 >/dev/null || echo "exit code $?"; }
printf '0\n' >labels.txt
printf 'LABELS: labels.txt\n' | cat x.yaml - >labeled.yaml
printf 'SPARSER: {RATIO: 0.5}\n' >half.yaml
page analyze $models/tiny.onnx -d x.yaml
page eval $models/tiny.onnx -d x.yaml --against $models/tiny.onnx
page prune $models/cnn.onnx -c half.yaml -o small.onnx
page train $models/tiny.onnx -d labeled.yaml -b 1 --set EPOCHS=1 -o trained.onnx
ls disk ./*.onnx
rm -r small.onnx trained.onnx* labels.txt labeled.yaml half.yaml
# What --asym keeps goes to TMPDIR.
{
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (200000, 3), }"
    head -c 2400000 /dev/zero
} >x.npy
TMPDIR=disk code $sparsebit quantize $models/tiny.onnx -d x.yaml --asym --asym-memory 1 -o out.onnx -q
TMPDIR=nowhere code $sparsebit quantize $models/tiny.onnx -d x.yaml --asym --asym-memory 1 -o out.onnx -q
# So does what learned blocks are made from; what they are is beside the output.
printf 'SCHEDULE: {BLOCKWISE: {STEPS: 4}}\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n' >learn.yaml
learn() { code $sparsebit quantize $models/tiny.onnx -c learn.yaml -d x.yaml --memory-limit 16M -q "$@"; }
TMPDIR=disk learn -o out.onnx
learn -n 100 -o disk/out.onnx 2>&1 | sed 's,rounding.*: No,rounding: No,'
ls disk; ls
