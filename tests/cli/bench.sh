# bench: the keys that scripts read; numbers differ from machine to machine.
code $sparsebit bench $models/tiny.onnx --seconds 0.01 --batch 4 --threads 1 |
    sed -E 's/[0-9]+\.[0-9]+/N/g; s/, [0-9]+ runs/, N runs/'
code $sparsebit bench $models/tiny.onnx --seconds 0.01 --json |
    sed -nE 's/^  "(batch|items_per_s|latency_ms|peak_rss_mb)": .*/\1/p'
code $sparsebit bench $models/two.onnx --batch 3
code $sparsebit bench $models/tiny.onnx --seconds soon
