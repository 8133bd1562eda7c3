# quantize: what it prints and writes, and one line for whatever is wrong.
png='iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAIElEQVR42mNk+M/A/5Gd/yMHGsmEVZT/IwcTVtGB1gEAvuJB5xnvAkgAAAAASUVORK5CYII='
jpg='/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAFA3PEY8MlBGQUZaVVBfeMiCeG5uePWvuZHI////////////////////////////////////////////////////wAALCAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAv/EABUQAQEAAAAAAAAAAAAAAAAAAAMA/9oACAEBAAA/ACRX/9k='
time='s/ in [0-9.]* s$//'
quantize() { code $sparsebit quantize "$@" 2>&1 | sed "$time"; }
mkdir good some none
echo $png | base64 -d >good/a.png
echo $jpg | base64 -d >good/b.jpg
echo $png | base64 -d >good/c.png
cp good/* some
head -c 40 good/b.jpg >some/broken.jpg
head -c 30 good/c.png >some/d.png
echo 'not an image' >some/e.jpg
for d in good some none; do
    printf "SOURCE: image_folder\nPATH: $d\nSCALE: 255\n" >$d.yaml
done
# 3 numbers a sample; the third is negative.
npy() { # FILE ROWS COLUMNS < DATA
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($2, $3), }"
    cat
}
printf '\x00\x00\x80\x3f%.0s' 1 2 3 4 5 6 >six
{ cat six; printf '\x00\x00\x80\x3f\x00\x00\x80\xbf\x00\x00\x80\x3f'; } >nine
npy x.npy 3 3 <nine >x.npy
printf 'SOURCE: npy\nPATH: x.npy\nBATCH: 2\n' >x.yaml
cat >q.yaml <<'END'
W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}
A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}
END

echo --- what it does
quantize $models/photo.onnx -d good.yaml -o out.onnx -v
quantize $models/photo.onnx -c q.yaml -d good.yaml -n 2 -o again.onnx --save-calibration seen.json
echo 'SCHEDULE: {BIAS_CORRECTION: true}
W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 2}}
A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 1}}' >coarse.yaml
quantize $models/photo.onnx -c coarse.yaml -d good.yaml -o coarse.onnx 2>&1 | sed 's/much, .* of/much, E of/'
quantize $models/photo.onnx -c q.yaml --load-calibration seen.json -o loaded.onnx -q
cmp again.onnx loaded.onnx
{ echo 'SCHEDULE: {EQUALIZATION: true}'; cat q.yaml; } >even.yaml # takes samples
quantize $models/photo.onnx -c even.yaml --load-calibration seen.json -o even.onnx | grep EQUAL
quantize $models/photo.onnx -c even.yaml -d good.yaml --asym -o even.onnx | grep EQUAL
{ echo 'SCHEDULE: {EQUALIZATION: true}'; sed 's/^A:.*/A: none/' q.yaml; } >even.yaml
quantize $models/photo.onnx -c even.yaml -o even.onnx | grep EQUAL
quantize $models/photo.onnx -c q.yaml -d good.yaml -o even.onnx --memory-limit 10M 2>&1 | sed -n "s/the run took [0-9]* MB/the run took N MB/p"
for i in 0 1; do # each in a process of its own
    quantize $models/photo.onnx -c q.yaml -d good.yaml --skip $i -n 1 --save-calibration $i.json -q
done
quantize $models/photo.onnx -c q.yaml --load-calibration 0.json --load-calibration 1.json -o merged.onnx -q
cmp again.onnx merged.onnx
for i in 0 1; do
    quantize $models/photo.onnx -c q.yaml --load-calibration $i.json -o one.onnx -q
    cmp -s again.onnx one.onnx || echo $i is not all
done
quantize $models/photo.onnx -c q.yaml -d good.yaml --set 'AUGMENT={FLIP: true}' --augment 2 -o o.onnx
quantize $models/photo.onnx -c q.yaml -d good.yaml --augment 2 -o o.onnx
quantize $models/photo.onnx -d good.yaml --augment 2 -o o.onnx
quantize $models/photo.onnx -c q.yaml -d good.yaml --skip 3 -o o.onnx
quantize $models/photo.onnx -c q.yaml -d good.yaml --asym -o asym.onnx
quantize $models/photo.onnx -c q.yaml -d good.yaml --asym w -q -o asym_w.onnx
quantize $models/photo.onnx -c q.yaml -d good.yaml --asym=a --asym-memory 1 --json -v | grep -v 'seconds\|load"\|calibrate"\|export"\|_mb'
cp $models/photo.onnx same.onnx
quantize same.onnx -d good.yaml -o same.onnx --force
$sparsebit info same.onnx | grep -c Linear
quantize same.onnx -o more.onnx
cmp same.onnx more.onnx && echo the same file

quantize $models/photo.onnx -d good.yaml -o dry.onnx --save-calibration dry.json --dry-run
ls dry*

echo --- known before the work
quantize $models/photo.onnx -d nothing.yaml -o nowhere/o.onnx
quantize $models/photo.onnx -d nothing.yaml -o o.onnx --format qoperator -t tensorrt
quantize $models/photo.onnx -d nothing.yaml -o o.onnx --format matmulnbits
quantize $models/photo.onnx -d nothing.yaml -o o.onnx -t ort
quantize $models/photo.onnx -d nothing.yaml -o o.onnx -t tensort

echo --- usage
quantize
quantize $models/photo.onnx
quantize $models/photo.onnx -d good.yaml
quantize $models/photo.onnx -d good.yaml --max-memory 0
quantize $models/photo.onnx -d good.yaml --max-memory 1X
quantize $models/photo.onnx -d good.yaml --max-memory '512 '
quantize $models/photo.onnx -d good.yaml --max-memory 99999999T
quantize $models/photo.onnx -d good.yaml --max-memory 20kb -o o.onnx 2>&1 | sed 's/[0-9.]* MB/N MB/g'
quantize $models/photo.onnx -d good.yaml --asym=b
quantize $models/photo.onnx -d good.yaml --asym=w,
quantize $models/photo.onnx -d good.yaml --asym w --asym-memory 3
quantize $models/photo.onnx -d good.yaml --weights wide
quantize $models/photo.onnx -d good.yaml --target abacus
quantize $models/photo.onnx -d good.yaml --observer mse

echo --- models
quantize nothing.onnx -d good.yaml -o o.onnx
echo text >text.onnx
quantize text.onnx -d good.yaml -o o.onnx
printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\nA: none\n' >w.yaml
quantize $models/two.onnx -c w.yaml -o o.onnx
quantize $models/qdq.onnx -o o.onnx
quantize $models/nan_weight.onnx -d x.yaml -o o.onnx
quantize $models/nan_weight.onnx -d x.yaml --asym -o o.onnx
quantize $models/nan_inside.onnx -d x.yaml -o o.onnx
quantize $models/nan_inside.onnx -d x.yaml --asym -o o.onnx
# Of a sample that no input takes: its file, its number, the input.
{ cat six; printf '\x00\x00\x80\x3f\x00\x00\xc0\x7f\x00\x00\x80\x3f'; } | npy nan.npy 3 3 >nan.npy
mkdir folder
npy a 2 3 <six >folder/a.npy
cp nan.npy folder/b.npy
for more in '' '--skip 1' '--asym a' '--preset fast'; do
    quantize $models/nan_inside.onnx -d nan.npy $more -o o.onnx -q
done
quantize $models/nan_inside.onnx -d folder -o o.onnx -q

echo --- data
quantize $models/photo.onnx -o o.onnx
quantize $models/photo.onnx -d nothing.yaml -o o.onnx
quantize $models/photo.onnx -d none.yaml -o o.onnx
quantize $models/photo.onnx -d some.yaml -o broken.onnx
quantize $models/photo.onnx -d some.yaml -o broken.onnx --asym
rm some/[de]*
quantize $models/photo.onnx -d some.yaml -o broken.onnx 2>&1 | grep skipped
quantize $models/photo.onnx -d some.yaml -o o.onnx --strict
sed 's/SCALE.*/CROP: 7/' good.yaml >size.yaml
quantize $models/photo.onnx -d size.yaml -o o.onnx
quantize $models/photo.onnx -d size.yaml -o o.onnx --asym
quantize $models/photo.onnx -d x.yaml -o o.onnx
quantize $models/two.onnx -d x.yaml -o o.onnx
printf 'SOURCE: npy\nINPUTS: {a: x.npy, c: x.npy}\n' >other.yaml
quantize $models/two.onnx -d other.yaml -o o.onnx

echo --- places
mkdir dir
quantize $models/photo.onnx -d good.yaml -o dir
quantize $models/photo.onnx -d good.yaml -o nowhere/o.onnx
quantize $models/photo.onnx -d good.yaml -o o.onnx --save-calibration nowhere/s.json
quantize $models/photo.onnx -d good.yaml -o o.onnx --save-calibration dir
(ulimit -f 1; code $sparsebit quantize $models/photo.onnx -d good.yaml -o o.onnx 2>&1) | cat

echo --- calibration files
load() { # WHAT: from standard input
    cat >bad.json
    quantize $models/photo.onnx -c q.yaml --load-calibration bad.json -o o.onnx
}
quantize $models/photo.onnx -c q.yaml --load-calibration nothing.json -o o.onnx
load </dev/null
head -c 150 seen.json | load
echo '{"points": []}' | load
echo '[1, 2]' | load
sed 's/calibration":1/calibration":9/' seen.json | load
sed 's/"value":"x"/"value":"z"/' seen.json | load
sed 's/"channels":1/"channels":4/' seen.json | load
sed 's/"channels":1/"channels":1e99/' seen.json | load
sed 's/"samples":/"s":/' seen.json | load
sed 's/"lo":\[[^]]*\]/"lo":[9]/' seen.json | load
sed 's/"lo":\[[^]]*\]/"lo":[1e999]/' seen.json | load
sed 's/"elements":[0-9]*/"elements":0/' seen.json | load
sed 's/minmax/mse/g' seen.json | load
head -c 4000 /dev/zero | tr '\0' '[' | load
sed 's/MINMAX/x/; s/BIT: 8/BIT: 4/' q.yaml >q4.yaml
quantize $models/photo.onnx -c q4.yaml --load-calibration seen.json -o o.onnx
ls
