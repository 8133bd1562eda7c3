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
# The seven numbers of a llama2.c checkpoint, and none of its weights.
printf '\x40\0\0\0\x80\0\0\0\2\0\0\0\4\0\0\0\4\0\0\0\x20\0\0\0\x10\0\0\0' >cut.bin
code $sparsebit info cut.bin
code $sparsebit simplify $models/tiny.onnx -o folder.onnx
# Two results do not go into one file, whether it is there or not.
code $sparsebit quantize $models/tiny.onnx -o both --report both
code $sparsebit quantize $models/tiny.onnx -o both --report folder.onnx/.././both
code $sparsebit search $models/tiny.onnx -d x.npy --budget bits:4 -o empty.onnx --report ./empty.onnx
code $sparsebit quantize $models/tiny.onnx -o both --preset bets
ls
