# search: tables, JSON, the configuration that is written, and one line for
# whatever is wrong.  Times, which no two runs share, are left out.
search() { code $sparsebit search "$@" 2>&1 | sed 's/in [0-9.]* s/in T s/g'; }
npy() { # ROWS COLUMNS < DATA
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($1, $2), }"
    cat
}
printf '\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\xc0' >row
cat row row | npy 2 3 >x.npy
printf 'SOURCE: npy\nPATH: x.npy\n' >x.yaml
printf 'W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\nA: none\n' >q.yaml
search $models/tiny.onnx -c q.yaml -d x.yaml --budget bits:5 -o mixed.yaml --report r.html
grep -o '<th[^>]*>[a-zA-Z]*' r.html | sed 's/.*>//' | tr '\n' ' '
grep -o '[^>]*</b><span>size of the file' r.html | sed 's/^[0-9.]* /N /'
cat mixed.yaml
grep -c '<h2>' r.html
grep -o '<g class="n a[1-5]' r.html | wc -l # nodes with a color: of layers
$sparsebit quantize $models/tiny.onnx -c mixed.yaml -o m.onnx -q && $sparsebit info m.onnx --json | grep -c int4
search $models/tiny.onnx -c q.yaml -d x.yaml --budget error:0.5 -q --json | grep '"bits"\|"runs"'
echo --- layers without a name
{
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 4, 4), }"
    seq 1000 | head -c 256
} >image.npy
search $models/cnn.onnx -c q.yaml -d image.npy --budget bits:6 -o cnn.yaml 2>&1 | awk '/^[cy] / { print $1, $2, $5 }'
sed -n '/SPECIFIC/,/^A/p' cnn.yaml
$sparsebit quantize $models/cnn.onnx -c cnn.yaml -o m.onnx -q && $sparsebit info m.onnx | grep int4
rm image.npy cnn.yaml
echo --- wrong
search $models/tiny.onnx -c q.yaml -d x.yaml --budget bits:1
search $models/tiny.onnx -c q.yaml -d x.yaml --budget size:100
search $models/tiny.onnx -c q.yaml -d x.yaml --budget error:1e-9
search $models/tiny.onnx -c q.yaml -d x.yaml --budget speed:3
search $models/tiny.onnx -c q.yaml -d x.yaml --budget bits:-1
search $models/tiny.onnx -c q.yaml -d x.yaml --budget bits:4 --bits 4,8
search $models/tiny.onnx -c q.yaml -d x.yaml --budget bits:4 --bits 8,x
search $models/tiny.onnx -c q.yaml -d x.yaml --budget bits:4 --bits 8
search $models/tiny.onnx -c q.yaml -d x.yaml --budget bits:4 --bits 8,5,4
search $models/tiny.onnx -c mixed.yaml -d x.yaml --budget bits:4
printf 'W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}, SPECIFIC: [{fc: [QUANTIZER.BIT, 4]}]}\nA: none\n' >s.yaml
search $models/tiny.onnx -c s.yaml -d x.yaml --budget bits:4
search $models/tiny.onnx -d x.yaml
echo --- layers in float
printf 'W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 2}}\nA: none\nSKIP_TRACE_MODULES: [none.*]\n' >w2.yaml
search $models/tiny.onnx -c q.yaml -d x.yaml --accuracy-drop 5 -o floats.yaml
cat floats.yaml
# Samples are read for each try; what they are taken for is said once.
$sparsebit new mlp --input 1x4x4 --classes 10 -q -o mlp.onnx
{
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': (32, 1, 4, 4), }"
    seq 1000 | head -c 512
} >bytes.npy
search mlp.onnx -c w2.yaml -d bytes.npy --accuracy-drop 1 | grep -c assumed
rm mlp.onnx bytes.npy
search $models/tiny.onnx -c w2.yaml -d x.yaml --accuracy-drop 5 -o none.yaml
search $models/tiny.onnx -c w2.yaml -d x.yaml --accuracy-drop 100 --json | sed 's/"seconds": [0-9.e-]*/"seconds": T/'
tail -2 none.yaml
search $models/tiny.onnx -d x.yaml --accuracy-drop 5 --budget bits:4
search $models/tiny.onnx -d x.yaml --accuracy-drop 5 --bits 8,4
search $models/tiny.onnx -d x.yaml --accuracy-drop 5 --report r2.html
search $models/tiny.onnx -d x.yaml --accuracy-drop much
ls
