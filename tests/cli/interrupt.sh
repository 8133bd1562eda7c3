# Ctrl-C in the middle of the work: one line, exit code 1, no half file.
$sparsebit run $models/slow.onnx --shape x=1200x1200 --out-dir out 2>err &
pid=$!
sleep 1.5
kill -INT $pid
wait $pid
echo "exit code $?"
cat err
ls out
$sparsebit bench $models/slow.onnx --shape x=600x600 --seconds 60 2>err &
pid=$!
sleep 1
kill -TERM $pid
wait $pid
echo "exit code $?"
cat err
# quantize, in the middle of calibration.
rows() { head -c $((4 * $1 * $1)) /dev/zero; }
{
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (1200, 1200), }"
    rows 1200
} >x.npy
printf 'SOURCE: npy\nPATH: x.npy\nBATCH: 1200\n' >x.yaml
for asym in "" --asym; do
    mkdir -p tmp
    TMPDIR=tmp $sparsebit quantize $models/slow.onnx -d x.yaml $asym -o out.onnx --save-calibration seen.json 2>err &
    pid=$!
    sleep 1.5
    kill -INT $pid
    wait $pid
    echo "exit code $?"
    cat err
    ls . tmp
done
# A terminal that closes is Ctrl-C; with nohup it is nothing.
env --default-signal=HUP $sparsebit bench $models/slow.onnx --shape x=600x600 --seconds 60 2>err &
pid=$!
sleep 1
kill -HUP $pid
wait $pid
echo "exit code $?"
cat err
env --ignore-signal=HUP $sparsebit bench $models/slow.onnx --shape x=60x60 --seconds 1 -q >out.txt 2>err &
pid=$!
sleep 0.5
kill -HUP $pid
wait $pid
echo "exit code $?"
cat err
