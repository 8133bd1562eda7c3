# eval: accuracy, comparison, saved outputs, one line for whatever is wrong.
# The last column is a speed, which no two runs share.
speed='s/ *[0-9.]*$//; s/ *items\/s$/  items\/s/'
record() { # LABEL VALUE: an image of CIFAR-10 in one gray
    printf "\\$1"
    head -c 3072 /dev/zero | tr '\0' "\\$2"
}
{ record 0 100; record 1 200; record 1 300; record 1 040; } >test.bin
{ cat test.bin; printf x; } >long.bin
printf 'SOURCE: cifar10\nPATH: test.bin\nRESIZE: [1, 3]\nCROP: [1, 3]\nCOLOR: GRAY\nSCALE: 255\nBATCH: 3\n' >image.yaml
$sparsebit run $models/tiny.onnx --shape x=5x3 --out-dir r --dump-all --seed 4 -q >/dev/null
$sparsebit run $models/tiny.onnx --shape x=5x3 --seed 4 --npz y.npz -q >/dev/null
ls r
printf '1\n2\n0\n3\n3\n' >labels.txt
cat >x.yaml <<'END'
SOURCE: npy
PATH: x.npy
LABELS: labels.txt
BATCH: 2
END
python3 - <<'END' 2>/dev/null || exit 77
import struct
v = [((7 * i) % 11 - 5) / 4 for i in range(15)]
head = "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 3), }"
head += " " * (118 - 1 - len(head)) + "\n"
open("x.npy", "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
                          + head.encode() + struct.pack("<15f", *v))
END
code $sparsebit eval $models/tiny.onnx --data x.yaml | sed "$speed"
code $sparsebit eval $models/tiny.onnx --data x.yaml --samples 2 --skip 1 --batch 1 --json | grep -v '_per_s\|seconds'
$sparsebit eval $models/tiny.onnx --data x.yaml --save-outputs out.npz -q >/dev/null
code $sparsebit eval $models/tiny.onnx --data x.yaml --batch 5 --against-outputs out.npz --json | grep -v '_per_s\|seconds'
code $sparsebit eval $models/tiny.onnx --data x.yaml --against $models/tiny.onnx | sed "$speed"
echo --- a page: where both part
python3 - <<'END'
import struct
w = struct.pack("<12f", 1, 0, 2, 0, 0, 1, 0, 2, 1, 1, 1, 1)
double = struct.pack("<12f", *(2 * x for x in struct.unpack("<12f", w)))
data = open("$models/tiny.onnx".replace("$models", __import__("os").environ["models"]), "rb").read()
open("double.onnx", "wb").write(data.replace(w, double))
END
page() { code $sparsebit eval "$1" --data x.yaml --against $models/tiny.onnx --report page.html -q >/dev/null; grep -o '<g class="n a[0-5][^>]*><title>[A-Za-z]*' page.html | sed 's/<g class="n \(..\).*>/\1 /'; grep -A3 'data-node="0"' page.html | grep -o '<td.*' | sed 's/<[^>]*>/ /g'; }
page $models/tiny.onnx
page double.onnx | sed -n "1p;5p" # twice the signal: the noise is as large as it, 0 dB
echo --- quantized files: as integers where the target is ONNX Runtime
for target in onnxruntime-x86 tensorrt; do
    printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\nA: {QSCHEME: per-tensor-%s, QUANTIZER: {BIT: 8}}\n' $([ $target = tensorrt ] && echo symmetric || echo affine) >q.yaml
    $sparsebit quantize $models/tiny.onnx -c q.yaml -d x.yaml -t $target -o q.onnx -q
    for mode in "" --integer --simulate; do
        echo "$target $mode" $($sparsebit eval q.onnx --data x.yaml --json $mode | grep '"integer"')
    done
done
code $sparsebit eval q.onnx --data x.yaml --integer --simulate
echo --- what is wrong
code $sparsebit eval $models/tiny.onnx --data nothing.yaml
code $sparsebit eval $models/tiny.onnx
code $sparsebit eval $models/tiny.onnx --data x.yaml --against a --against-outputs b
code $sparsebit eval $models/tiny.onnx --data x.yaml --against $models/two.onnx
code $sparsebit eval $models/tiny.onnx --data x.yaml --skip 5
code $sparsebit eval $models/tiny.onnx --data x.yaml --against-outputs x.npy
code $sparsebit eval $models/tiny.onnx --data image.yaml
code $sparsebit eval $models/two.onnx --data x.yaml
sed 's/3$/4/' labels.txt >more.txt
wrong() { # EXPRESSION [FILE]: the data file changed by sed
    sed "$1" ${2:-x.yaml} >wrong.yaml
    code $sparsebit eval $models/tiny.onnx --data wrong.yaml
}
wrong s/labels/more/
wrong 's/npy$/nip/'
wrong 's/x.npy/y.npy/'
wrong 's/BATCH: 2/BATCH: 0/'
wrong 's/BATCH/BATHC/'
wrong 's/^SOURCE.*//'
wrong 's/LABELS: .*/RESIZE: 3/'
wrong 's/test.bin/long.bin/' image.yaml
wrong 's/GRAY/PINK/' image.yaml
wrong 's/RESIZE: .*/RESIZE: abc/' image.yaml
wrong 's/RESIZE: .*/RESIZE: [1, 2, 3]/' image.yaml
wrong 's/SCALE: .*/SCALE: 0/' image.yaml
wrong 's/SCALE: .*/MEAN: [1, 2]/' image.yaml
wrong 's/SCALE: .*/STD: [0]/' image.yaml
wrong 's/CROP: .*/CROP: 40/' image.yaml
mkdir folder
wrong 's/cifar10/image_folder/; s/test.bin/folder/' image.yaml
wrong 's/cifar10/image_folder/; s/test.bin/nowhere/' image.yaml
wrong 's/cifar10/idx/' image.yaml
cp test.bin folder/a.jpg
cp test.bin folder/b.png
wrong 's/cifar10/image_folder/; s/test.bin/folder/' image.yaml
sed 's/cifar10/image_folder/; s/test.bin/folder/' image.yaml >wrong.yaml
code $sparsebit eval $models/tiny.onnx --data wrong.yaml --strict
echo --- without a data file, and tasks
code $sparsebit eval $models/tiny.onnx -d x.npy --set LABELS=labels.txt 2>&1 | sed "$speed"
code $sparsebit eval $models/tiny.onnx -d x.npy --set LABELS
code $sparsebit eval $models/tiny.onnx -d x.npy --set BATCH=1 --set BATCH=2
code $sparsebit eval $models/tiny.onnx -d x.npy --set BATHC=3
code $sparsebit eval $models/tiny.onnx -d folder
code $sparsebit eval $models/tiny.onnx -d x.yaml --task detcet
code $sparsebit eval $models/tiny.onnx -d x.yaml --against $models/tiny.onnx --task detect
code $sparsebit eval $models/tiny.onnx -d x.yaml --against $models/tiny.onnx --task embed | sed -n '/^task/,$p'
code $sparsebit eval $models/tiny.onnx -d x.yaml --value y=3
echo --- models of the same name, folders and texts
mkdir other
cp $models/tiny.onnx tiny.onnx
cp tiny.onnx other
code $sparsebit eval tiny.onnx -d x.yaml --against other/tiny.onnx | sed "$speed" | head -n 3
llm=$models/../../fixtures/llm
printf 'ab ba ab ab ba ab ba ba ab ab ba ab ba ab ab ba ba ab ab ba\n' >story.txt
printf "SOURCE: text\nPATH: story.txt\nTOKENIZER: $llm/tiny.gguf\nWINDOW: 16\nBATCH: 1\n" >text.yaml
code $sparsebit eval $llm/tiny.gguf -d text.yaml | grep perplexity >one
code $sparsebit eval $llm/tiny.gguf -d story.txt --set WINDOW=16 2>&1 | sed "s|'.*gguf'|'GGUF'|" | grep 'perplexity\|assumed' >two
cat two
diff one two | grep -c '^<'
code $sparsebit eval $llm/qwen2/ -d text.yaml | grep -c 'perplexity of qwen2/ '
code $sparsebit eval $llm/tiny.gguf -d text.yaml | sed "$speed" | head -n 2
code $sparsebit eval $models/tiny.onnx -d story.txt
echo --- texts that do not fit the model
sed 's/WINDOW: 16/WINDOW: 65/' text.yaml >long.yaml
for i in 1 2 3 4; do cat story.txt; done >more.txt && mv more.txt story.txt
code $sparsebit eval $llm/tiny.gguf -d long.yaml
code $sparsebit eval $llm/tiny.gguf -d story.txt --set WINDOW=65
code $sparsebit eval $llm/tiny.gguf -d story.txt --set WINDOW=8 --set TOKENIZER=$llm/tok_llama3.json
code $sparsebit eval $models/tiny.onnx -d x.yaml --threshold 0
