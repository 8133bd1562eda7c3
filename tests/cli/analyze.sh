# analyze: tables, JSON, orders, reports, and one line for whatever is wrong.
# Times, which no two runs share, are left out.
analyze() { code $sparsebit analyze "$@" 2>&1 | sed 's/in [0-9.]* s/in T s/g'; }
npy() { # ROWS COLUMNS < DATA
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($1, $2), }"
    cat
}
printf '\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\xc0' >row
cat row row | npy 2 3 >x.npy
printf 'SOURCE: npy\nPATH: x.npy\n' >x.yaml
printf 'W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 4}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}}\n' >q.yaml
printf 'W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 2}}\nA: none\n' >w.yaml
analyze $models/tiny.onnx -c q.yaml -d x.yaml
analyze $models/tiny.onnx -c q.yaml -d x.yaml --by order --top 1 -q
analyze $models/tiny.onnx -c w.yaml -d x.yaml --by sync -q
echo --- JSON
analyze $models/tiny.onnx -c q.yaml -d x.yaml --json | grep -v 'calibrate\|compare\|rss'
echo --- a page
analyze $models/tiny.onnx -c q.yaml -d x.yaml --report r.html -q >/dev/null
analyze $models/tiny.onnx -c q.yaml -d x.yaml --report r.html | tail -1
grep -c '<h2>' r.html
grep -c 'http' r.html
$sparsebit quantize $models/tiny.onnx -c w.yaml -o w.onnx --report w.html -q
grep -o 'Errors were not measured' w.html
$sparsebit eval $models/tiny.onnx -d x.yaml --against $models/tiny.onnx --report e.html -q >/dev/null
grep -o '<h2>[A-Za-z ]*' e.html
grep -o '[0-9]*</b><span>samples\|<[^>]*>samples<' e.html
echo --- a file that is quantized already
$sparsebit quantize $models/tiny.onnx -c q.yaml -d x.yaml -o q.onnx -q 2>/dev/null
analyze q.onnx -d x.yaml -q
echo --- a cause
printf '\x00\x00\x80\x43\x00\x00\x80\x3f\x00\x00\xc0\x3f' | npy 1 3 >uneven.npy
analyze $models/uneven.onnx -d uneven.npy --preset fast | tail -2
printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n' >q8.yaml
analyze $models/uneven.onnx -c q8.yaml -d uneven.npy | tail -2
analyze $models/uneven.onnx -d uneven.npy -t tensorrt --json | grep spread
echo --- 0 / 0
printf '\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x80\x38' | npy 1 3 >small.npy
printf 'SOURCE: npy\nPATH: small.npy\n' >small.yaml
analyze $models/ratio.onnx -c q.yaml -d small.yaml -q
echo --- wrong
analyze $models/tiny.onnx -d x.yaml --by speed
analyze $models/tiny.onnx -d x.yaml --by order:mse
analyze $models/tiny.onnx -d x.yaml --by async:added
analyze $models/tiny.onnx -c q.yaml -d x.yaml --preset fast
analyze $models/tiny.onnx -d x.yaml --preset slow
analyze $models/tiny.onnx
analyze none.onnx -d x.yaml
analyze $models/tiny.onnx -d none.yaml
analyze $models/tiny.onnx -c none.yaml -d x.yaml
analyze $models/tiny.onnx -d x.yaml -n 1 --skip 2
analyze $models/tiny.onnx -d x.yaml --exclude '*'
analyze $models/tiny.onnx -d x.yaml --report none/r.html
