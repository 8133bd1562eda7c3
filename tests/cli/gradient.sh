# gradient: losses and gradients from run, graph and bench.
cp $models/cnn.onnx .
$sparsebit run cnn.onnx --seed 1 --dump-all --out-dir all -q >/dev/null
printf '\223NUMPY\001\000v\000%-117s\n\000\000\000\000\000\000\000\000' \
    "{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }" >y.npy
code $sparsebit run cnn.onnx --seed 1 --loss cross-entropy --labels y.npy --out-dir out
ls out
$sparsebit run cnn.onnx --seed 1 --loss cross-entropy --labels y.npy --out-dir one --threads 1 -q >/dev/null
diff -r out one && echo any number of threads
code $sparsebit graph cnn.onnx --gradient | tail -4
code $sparsebit bench cnn.onnx --train --seconds 0.01 --json | grep -c latency_ms
code $sparsebit bench cnn.onnx --train --seconds 0.01 --profile | grep -oE 'SgdStep|ConvGradW' | sort -u
echo --- errors
code $sparsebit run cnn.onnx --loss cross-entropy
code $sparsebit run cnn.onnx --labels y.npy
code $sparsebit run cnn.onnx --loss hinge --labels y.npy
code $sparsebit run cnn.onnx --loss mse --labels y.npy --out-dir none
ls none 2>&1 | grep -c 'No such file'
code $sparsebit run cnn.onnx --loss cross-entropy --labels nothing.npy
code $sparsebit run cnn.onnx --loss cross-entropy --labels y.npy --loss-output z
code $sparsebit run $models/two.onnx --loss mse --labels y.npy
code $sparsebit graph cnn.onnx --loss mse
code $sparsebit graph $models/qdq.onnx --gradient
code $sparsebit graph $models/custom.onnx --gradient
code $sparsebit bench cnn.onnx --loss mse
code $sparsebit bench cnn.onnx --train --integer
