# Ctrl-C in the middle of the work: one line, the end by the signal (so that a
# loop of the shell ends as well), no half file.

# Waits until process $pid leaves SIGTERM to the thread that waits for signals, then
# a little longer, so that it is at work.
at_work() {
    for _ in $(seq 400); do
        blocked=$(sed -n 's/^SigBlk:[[:space:]]*/0x/p' /proc/$pid/status 2>/dev/null)
        [ $((${blocked:-0} >> 14 & 1)) = 1 ] && break
        sleep 0.05
    done
    sleep 0.7
}
$sparsebit run $models/slow.onnx --shape x=1200x1200 --out-dir out 2>err &
pid=$!
at_work
kill -INT $pid
wait $pid 2>/dev/null
echo "exit code $?"
cat err
ls -d out 2>&1
$sparsebit run $models/slow.onnx --shape x=1200x1200 --dump-all --out-dir out 2>err &
pid=$!
at_work
kill -INT $pid
wait $pid 2>/dev/null
echo "exit code $?"
ls -d out 2>&1
$sparsebit bench $models/slow.onnx --shape x=600x600 --seconds 60 2>err &
pid=$!
at_work
kill -TERM $pid
wait $pid 2>/dev/null
echo "exit code $?"
cat err
$sparsebit bench $models/cnn.onnx --batch 10000 --seconds 60 2>err & # no word on sizes
pid=$!
at_work
kill -INT $pid
wait $pid 2>/dev/null
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
    at_work
    kill -INT $pid
    wait $pid 2>/dev/null
    echo "exit code $?"
    cat err
    ls . tmp
done
# A terminal that closes is Ctrl-C; with nohup it is nothing.
env --default-signal=HUP $sparsebit bench $models/slow.onnx --shape x=600x600 --seconds 60 2>err &
pid=$!
at_work
kill -HUP $pid
wait $pid 2>/dev/null
echo "exit code $?"
cat err
env --ignore-signal=HUP $sparsebit bench $models/slow.onnx --shape x=60x60 --seconds 1 -q >out.txt 2>err &
pid=$!
at_work
kill -HUP $pid
wait $pid 2>/dev/null
echo "exit code $?"
cat err
# Whatever it waits for: a pipe without a writer.
mkfifo pipe
printf 'SOURCE: npy\nPATH: pipe\n' >pipe.yaml
waits() {
    "$@" 2>err >/dev/null &
    pid=$!
    for _ in $(seq 200); do # until it has the pipe open
        ls -l /proc/$pid/fd 2>/dev/null | grep -q '/pipe$' && break
        sleep 0.05
    done
    kill -TERM $pid
    wait $pid 2>/dev/null
    echo "exit code $?"
    cat err
}
waits $sparsebit info pipe
waits $sparsebit quantize $models/slow.onnx -c pipe -d x.yaml -o out.onnx
waits $sparsebit quantize $models/slow.onnx -d pipe -o out.onnx
waits $sparsebit quantize $models/slow.onnx --load-calibration pipe -o out.onnx
waits $sparsebit run $models/slow.onnx -i pipe
# The name comes from a file: only regular files.
code $sparsebit quantize $models/slow.onnx -d pipe.yaml -o out.onnx
ls
