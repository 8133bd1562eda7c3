# bench: the keys that scripts read; numbers differ from machine to machine.
code $sparsebit bench $models/tiny.onnx --seconds 0.01 --batch 4 --threads 1 |
    sed -E 's/[0-9]+\.[0-9]+/N/g; s/, [0-9]+ runs/, N runs/'
code $sparsebit bench $models/tiny.onnx --seconds 0.01 --json |
    sed -nE 's/^  "(batch|items_per_s|latency_ms|peak_rss_mb)": .*/\1/p'
code $sparsebit bench $models/two.onnx --batch 3
code $sparsebit bench $models/tiny.onnx --seconds soon
# A profile: numbers are replaced, names and counts stay.
numbers() {
    sed -E 's/-?[0-9]+\.[0-9]+/N/g; s/, [0-9]+ runs/, N runs/; s/of [0-9]+ runs/of N runs/; s/with .*/with HOW/; s/ +/ /g; s/N ([0-9]+|-) (N|-) (N|-)$/N P \2 \3/'
}
code $sparsebit bench $models/cnn.onnx --seconds 0.01 --threads 1 --profile --all --exact | numbers | sed -n '/^Steps/,$p'
code $sparsebit bench $models/cnn.onnx --seconds 0.01 --profile --top 1 | grep -c more
code $sparsebit bench $models/cnn.onnx --seconds 0.01 --profile --json |
    sed -nE 's/^ +"(profile|types|steps|peak_gflops|gb_per_s)": .*/\1/p' | sort -u
code $sparsebit bench $models/cnn.onnx --seconds 0.01 --report page.html >/dev/null
head -n 1 page.html
grep -c 'aria-label' page.html
grep -cE '<script|https?://' page.html
$sparsebit bench $models/cnn.onnx --seconds 0.01 --report none/page.html >/dev/null; echo "exit code $?"
code $sparsebit bench $models/qdq.onnx --seconds 0.01 2>&1 >/dev/null
