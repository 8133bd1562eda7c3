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
