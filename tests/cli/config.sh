# config: check, default, explain; wrong files and wrong words.
cat >q.yaml <<'Y'
BACKEND: tensorrt
SKIP_TRACE_MODULES: ["head.*"]
SCHEDULE:
  FUSE_BN: True
W:
  QSCHEME: per-channel-symmetric
  QUANTIZER: {TYPE: uniform, BIT: 8}
  OBSERVER: {TYPE: MINMAX}
A:
  QSCHEME: per-tensor-symmetric
  QUANTIZER: {BIT: 8}
  OBSERVER: {TYPE: PERCENTILE, PERCENTILE: {ALPHA: 0.01}}
  SPECIFIC: [{
    "*norm": ["QUANTIZER.DISABLE", True],
    "fc": ["OBSERVER.TYPE", "ACIQ", "OBSERVER.ACIQ.DISTRIBUTION", "laplace"],
  }]
Y
cat >s.yaml <<'Y'
SPARSER:
  TYPE: structed
  STRATEGY: l1norm
  RATIO: 0.5
Y
cat >group.yaml <<'Y'
W: {QSCHEME: per-group-affine, QUANTIZER: {BIT: 4, GROUP_SIZE: 32}}
A: none
Y
cat >dynamic.yaml <<'Y'
BACKEND: onnxruntime
W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}
A: dynamic
Y
sed 's/BIT: 8}/BIT: 4}/' q.yaml >bits.yaml
sed 's/OBSERVER:/OBSERVERS:/' q.yaml >key.yaml
printf 'W: {QSCHEME: x\nA: 1\n' >yaml.yaml
printf 'W: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, SPECIFIC: [{fc: [QUANTIZER.BIT]}]}\nA: none\n' >odd.yaml
: >empty.yaml

$sparsebit config check q.yaml s.yaml group.yaml dynamic.yaml
for f in bits key yaml odd empty missing; do code $sparsebit config check $f.yaml; done
for b in onnxrt tensortr '[virtual]' ''; do
    { echo "BACKEND: $b"; sed 1d q.yaml; } >backend.yaml
    code $sparsebit config check backend.yaml
done
code $sparsebit config check q.yaml bits.yaml s.yaml -q
code $sparsebit config check s.yaml key.yaml --json
printf '\0\0\010\003\0\0\0\003\0\0\0\002\0\0\0\002abcdefghijkl' >x.idx
printf 'SOURCE: idx\nPATH: x.idx\nBATCH: 2\n' >d.yaml
printf 'SOURCE: idx\nPATH: x.idx\nBATCHES: 2\n' >d-key.yaml
for f in d d-key; do code $sparsebit config check $f.yaml; done
$sparsebit config default >default.yaml
$sparsebit config check default.yaml
grep -A 3 'width in bits' default.yaml | head -n 4
sed -n '/SPARSER/,$p' default.yaml | sed 's/^# //' >sparser.yaml
$sparsebit config check sparser.yaml
$sparsebit config default --json | head -n 4 | cut -c 1-40
$sparsebit config explain W.QUANTIZER A.OBSERVER.TYPE
$sparsebit config explain BACKEND --json
$sparsebit config explain SCHEDULE --markdown
$sparsebit config explain | grep -c allowed | sed 's/^[0-9][0-9]$/enough/'
$sparsebit config explain RESIZE
$sparsebit config explain data | grep -c allowed | sed 's/^[0-9][0-9]$/enough/'
code $sparsebit config explain W.QUANTIZER.BITS
code $sparsebit config explain EMA_RATIO
code $sparsebit config explain nothing.like.that
code $sparsebit config check
code $sparsebit config default q.yaml
code $sparsebit config chekc q.yaml
code $sparsebit config
