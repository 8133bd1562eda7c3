# What is printed must get out: a full disk or a closed pipe is a failure.
for command in "info $models/tiny.onnx" "graph $models/tiny.onnx" "list ops" help; do
    $sparsebit $command >/dev/full
    echo "exit code $?"
done
$sparsebit info $models/tiny.onnx >&-
echo "exit code $?"
$sparsebit list ops >/dev/null && echo fine
