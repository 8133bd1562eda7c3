# Files that are not there, not models, not whole, or not ours to write.
head -c 300 $models/cnn.onnx >cut.onnx
echo "not a model" >text.onnx
: >empty.onnx
mkdir folder.onnx
for file in nothing.onnx cut.onnx text.onnx empty.onnx folder.onnx; do
    for command in info graph run bench; do
        code $sparsebit $command $file
    done
    code $sparsebit simplify $file -o out.onnx
done
code $sparsebit simplify $models/tiny.onnx -o folder.onnx
ls
