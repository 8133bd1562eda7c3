# --max-memory on every command, with limits from far too little to enough: each
# run works or says in one line that memory is out, exits with 1, prints no
# result and leaves no file.
llm=$models/../../fixtures/llm
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }" >x.npy
printf '\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\xc0' >>x.npy
printf 'SOURCE: npy\nPATH: x.npy\n' >x.yaml
printf 'SOURCE: idx\nPATH: x.idx\nLABELS: y.idx\nBATCH: 2\n' >digits.yaml
printf '\0\0\x08\x03\0\0\0\x02\0\0\0\x04\0\0\0\x04%032d' 0 >x.idx
printf '\0\0\x08\x01\0\0\0\x02\0\x01' >y.idx
printf 'SPARSER: {RATIO: 0.5}\n' >s.yaml
$sparsebit new mlp --input 1x4x4 --classes 3 -o mlp.onnx -q
limits() { # WORDS...: the command; what it writes is called o.*
    local refused=0 worked=0 wrong=0
    for size in 1K 4K 16K 64K 256K 1M 4M 16M 256M; do
        rm -rf o.*
        $sparsebit "$@" -q --max-memory $size >out 2>err
        rc=$?
        if [ $rc = 0 ]; then
            worked=$((worked + 1))
        elif [ $rc = 1 ] && [ "$(grep -c 'out of memory' err)" = 1 ] && [ "$(wc -l <err)" = 1 ] &&
            [ ! -s out ] && [ -z "$(find . -type f -name "o.*")" ]; then
            refused=$((refused + 1))
        else
            wrong=$((wrong + 1))
            echo "$1 with $size: $rc"
            cat err
            find . -name "o.*"
        fi
    done
    [ $refused -gt 0 ] && [ $worked -gt 0 ] && [ $wrong = 0 ] && echo "$1: as it should" ||
        echo "$1: $refused refused, $worked worked, $wrong wrong"
}
limits info $models/cnn.onnx
limits graph $models/cnn.onnx
limits simplify $models/cnn.onnx -o o.onnx
limits lint $models/qdq.onnx
limits run $models/tiny.onnx --npz o.npz
limits eval $models/tiny.onnx -d x.yaml --against $models/tiny.onnx
limits quantize $models/tiny.onnx -d x.yaml -t onnxruntime-x86 -o o.onnx
limits prune $models/cnn.onnx -c s.yaml -o o.onnx
limits generate $llm/tiny.gguf -p ab -n 2
limits new mlp --input 1x4x4 --classes 3 -o o.onnx
limits train mlp.onnx -d digits.yaml --set EPOCHS=1 -o o.onnx
limits analyze $models/tiny.onnx -d x.yaml --report o.html
limits search $models/tiny.onnx -d x.yaml --budget bits:5 -o o.yaml
limits bench $models/tiny.onnx --seconds 0.001
limits config check s.yaml
limits config default
code $sparsebit list ops --max-memory 1K -q | head -n 1 | cut -c 1-20
