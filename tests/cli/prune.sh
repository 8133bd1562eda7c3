# prune: what it removes, what it refuses, and what it writes.
cat >half.yaml <<'Y'
SPARSER:
  TYPE: structed
  STRATEGY: l1norm
  RATIO: 0.5
Y
$sparsebit graph $models/cnn.onnx
code $sparsebit prune $models/cnn.onnx -c half.yaml --dry-run
$sparsebit prune $models/cnn.onnx -c half.yaml --dry-run -q --report dry.html >/dev/null
grep -o '>remov[a-z]*<' dry.html
colors() { grep -o '<g class="n a[0-5] s0" id="n[0-9]*"><title>[A-Za-z]*' "$1" | sed 's/<g class="n \(..\).*>/\1 /' | grep -v a0; }
colors dry.html # all of the convolution's channels, none of the last layer's
code $sparsebit prune $models/cnn.onnx -c half.yaml -o small.onnx --report cut.html
colors cut.html # 36 -> 18, 8 -> 4, and 27 -> 15 parameters
grep -o '>[0-9x]* → [0-9x]*<' cut.html
$sparsebit graph small.onnx
code $sparsebit prune $models/cnn.onnx -c half.yaml -o small.onnx -q
code $sparsebit prune $models/cnn.onnx -c half.yaml -o json.onnx --json
code $sparsebit prune $models/cnn.onnx -c half.yaml -o masked.onnx --masks-only -v
cmp small.onnx json.onnx && echo same file
$sparsebit info small.onnx --against $models/cnn.onnx | sed -n '/against/,$p' | sed 's/latency.*/latency/; s/   */  /g'
echo --- weights
printf 'SPARSER: {TYPE: unstructured, RATIO: 0.5}\n' >weights.yaml
code $sparsebit prune $models/cnn.onnx -c weights.yaml -o sparse.onnx -v --report zeros.html
colors zeros.html # a half of each
echo --- scan
printf 'SPARSER: {RATIO: 0.5, REFIT: false}\n' >plain.yaml
{
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 4, 4), }"
    head -c 256 /dev/zero | tr '\000' '@'
} >photos.npy
code $sparsebit prune $models/cnn.onnx -c plain.yaml -d photos.npy --scan --ratios 0.25,0.5 --report page.html
grep -c 'role="img"' page.html
code $sparsebit prune $models/cnn.onnx -c plain.yaml -d photos.npy --scan --target-macs 0.7 -o scanned.onnx
echo --- errors
printf 'SPARSER: {RATIO: 1}\n' >one.yaml
code $sparsebit prune $models/cnn.onnx -c one.yaml -o x.onnx
printf 'SPARSER: {RATIO: 0.5, EXCLUDE: [nothing]}\n' >none.yaml
code $sparsebit prune $models/cnn.onnx -c none.yaml -o x.onnx
printf 'SPARSER: {RATIO: 0.5, STRATEGY: hrank}\n' >data.yaml
code $sparsebit prune $models/cnn.onnx -c data.yaml -o x.onnx
printf 'SPARSER: {TYPE: unstructured, STRATEGY: movement, RATIO: 0.5}\n' >movement.yaml
code $sparsebit prune $models/cnn.onnx -c movement.yaml -o x.onnx
code $sparsebit prune $models/cnn.onnx -c movement.yaml --before small.onnx -o x.onnx
printf 'SPARSER: {TYPE: unstructured, STRATEGY: sparsegpt, RATIO: 0.5, SCOPE: global}\n' >scope.yaml
code $sparsebit prune $models/cnn.onnx -c scope.yaml -o x.onnx
code $sparsebit prune $models/cnn.onnx -c half.yaml
code $sparsebit prune $models/cnn.onnx -o x.onnx
code $sparsebit prune $models/custom.onnx -c half.yaml -o x.onnx
code $sparsebit prune $models/cnn.onnx -c half.yaml --exclude head -o x.onnx
code $sparsebit prune $models/cnn.onnx -c half.yaml --target-macs 2 -o x.onnx
code $sparsebit prune $models/cnn.onnx -c half.yaml --target-params 0 -o x.onnx
code $sparsebit prune $models/cnn.onnx -c half.yaml --target-latency 0.5 -o x.onnx
code $sparsebit prune $models/cnn.onnx -c half.yaml --target-macs 0.01 -o x.onnx
code $sparsebit prune $models/cnn.onnx -c weights.yaml --target-macs 0.5 -o x.onnx
code $sparsebit prune $models/cnn.onnx -c weights.yaml -d photos.npy --scan
code $sparsebit prune $models/cnn.onnx -c half.yaml --ratios 0.5 -o x.onnx
code $sparsebit prune $models/cnn.onnx -c half.yaml --scan
code $sparsebit prune $models/cnn.onnx -c plain.yaml -d photos.npy --scan --ratios 0.5,x
code $sparsebit prune $models/cnn.onnx -c plain.yaml -d photos.npy --scan --ratios 0.5,0.25
printf 'SPARSER: {RATIO: -0.1}\n' >negative.yaml
code $sparsebit prune $models/cnn.onnx -c negative.yaml -o x.onnx
printf "SPARSER: {SPECIFIC: {'*': 0.2, 'stem': 1.5}}\n" >specific.yaml
code $sparsebit prune $models/cnn.onnx -c specific.yaml -o x.onnx
printf 'SPARSER: {RATIO: 0.5, SCHEDULE: cubic}\n' >cubic.yaml
code $sparsebit prune $models/cnn.onnx -c cubic.yaml -o x.onnx
printf 'SPARSER: {STRATEGY: l1norm}\n' >zero.yaml
code $sparsebit prune $models/cnn.onnx -c zero.yaml -o zero.onnx
printf "SPARSER: {TYPE: unstructured, NM: '32:64'}\n" >few.yaml
code $sparsebit prune $models/cnn.onnx -c few.yaml -o zero.onnx
printf 'SPARSER: {RATIO: 0.99, ROUND_TO: 2}\n' >most.yaml
code $sparsebit prune $models/cnn.onnx -c most.yaml -o most.onnx -v
code $sparsebit prune $models/cnn.onnx -c plain.yaml -d photos.npy --scan --ratios 0.5 --report no/such/page.html
{
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 4, 4), }"
    head -c 252 /dev/zero
    printf '\x00\x00\xc0\x7f'
} >nan.npy
code $sparsebit prune $models/cnn.onnx -c half.yaml -d nan.npy -o x.onnx
# What has no score stays, with a word.
code $sparsebit prune $models/nan_weight.onnx -c weights.yaml -o nan.onnx
ls
