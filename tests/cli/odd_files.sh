# Files that are something else: links, pipes, other formats, empty folders.
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n\0\0\x80\x3f\0\0\x80\x3f\0\0\x80\x3f' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }" >x.npy
printf 'SOURCE: npy\nPATH: x.npy\n' >x.yaml
echo --- a link stays, and what it leads to is written
mkdir sub
cp $models/cnn.onnx real.onnx
ln -s ../real.onnx sub/link.onnx
code $sparsebit simplify $models/tiny.onnx -o sub/link.onnx -q
readlink sub/link.onnx
ls . sub
$sparsebit info sub/link.onnx | head -n 1
echo --- standard output is no file
ln -s /proc/self/fd/1 stdout
code $sparsebit simplify $models/tiny.onnx -o stdout
code $sparsebit simplify $models/tiny.onnx -o stdout | cat
code $sparsebit simplify $models/tiny.onnx -o -
code $sparsebit quantize $models/tiny.onnx -d x.yaml -o -
code $sparsebit quantize $models/tiny.onnx -d x.yaml --save-calibration - -q
code $sparsebit simplify $models/tiny.onnx -o /dev/full
readlink stdout
echo --- pipes are read
cat $models/tiny.onnx | $sparsebit info /dev/stdin | head -n 2
$sparsebit info <(cat $models/tiny.onnx) | sed -n 2p
$sparsebit config check <(printf 'W:\n  QUANTIZER: {BIT: 99}\n') 2>&1 | sed 's|/dev/fd/[0-9]*|PIPE|'
cat $models/tiny.onnx | $sparsebit quantize /dev/stdin -d x.yaml -t onnxruntime-x86 --preset fast -o o.onnx 2>&1 | grep written
rm o.onnx
head -c 100 $models/cnn.onnx | $sparsebit info /dev/stdin
: | $sparsebit info /dev/stdin
code $sparsebit info - <$models/tiny.onnx
code $sparsebit info /dev/null
code $sparsebit info /dev/zero
echo --- names that are none
code $sparsebit info ''
code $sparsebit simplify $models/tiny.onnx -o ''
code $sparsebit simplify $models/tiny.onnx -o $(printf '%0300d' 0) 2>&1 | sed 's/0\{300\}/ZEROS/'
code $sparsebit simplify $models/tiny.onnx -o $(printf '%0250d' 0).onnx -q
ls | grep -c 0000
rm -f 0000*
echo --- other formats
printf 'TFL3\34\0\0\0' >a.tflite
printf '\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94\x8c\1a\x94K\1s.' >a.pkl
printf 'PK\3\4\24\0\0\0\0\0' >a.pt
printf '\x89HDF\r\n\x1a\n' >a.h5
for file in a.tflite a.pkl a.pt a.h5 x.npy x.yaml; do
    code $sparsebit info $file
done
code $sparsebit quantize $models/tiny.onnx -d $models/tiny.onnx -o o.onnx
cp x.npy not.yaml
code $sparsebit quantize $models/tiny.onnx -d not.yaml -o o.onnx
code $sparsebit quantize $models/tiny.onnx -d sub -o o.onnx
code $sparsebit quantize $models/tiny.onnx -c x.npy -d x.yaml -o o.onnx
printf 'W:\n\tQSCHEME: per-tensor-affine\n' >tab.yaml
code $sparsebit quantize $models/tiny.onnx -c tab.yaml -d x.yaml -o o.onnx
code $sparsebit config check tab.yaml
echo --- nothing in it
mkdir nothing
for source in image_folder npy npz; do
    printf "SOURCE: $source\nPATH: nothing\n" >no.yaml
    code $sparsebit quantize $models/tiny.onnx -d no.yaml -o o.onnx
    code $sparsebit eval $models/tiny.onnx -d no.yaml
done
: >empty.txt
printf 'SOURCE: image_list\nPATH: empty.txt\n' >no.yaml
code $sparsebit eval $models/tiny.onnx -d no.yaml
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }" >empty.npy
printf 'SOURCE: npy\nPATH: empty.npy\n' >no.yaml
code $sparsebit eval $models/tiny.onnx -d no.yaml
ls
echo --- what is read is not written over
code $sparsebit quantize $models/tiny.onnx -d x.yaml -o ./x.yaml
code $sparsebit quantize $models/tiny.onnx -d x.yaml -o o.onnx --save-calibration o.onnx
cp $models/tiny.onnx own.onnx
code $sparsebit quantize own.onnx -d x.yaml -q -o own.onnx --force --save-calibration own.onnx
code $sparsebit quantize own.onnx -d x.yaml -q -o ./own.onnx
code $sparsebit quantize own.onnx -d x.yaml -q -o own.onnx --force
cp $models/tiny.onnx only.onnx
printf 'SPARSER: {RATIO: 0.5}\n' >s.yaml
code $sparsebit prune only.onnx -c s.yaml -o only.onnx
code $sparsebit prune only.onnx -c s.yaml -o s.yaml
code $sparsebit train only.onnx -d x.yaml -o ./only.onnx
code $sparsebit search only.onnx -d x.yaml --budget bits:6 -o only.onnx
code $sparsebit analyze only.onnx -d x.yaml --report only.onnx
code $sparsebit eval only.onnx -d x.yaml --against own.onnx --report own.onnx
cmp only.onnx $models/tiny.onnx
cat s.yaml x.yaml
$sparsebit info own.onnx | grep nodes
echo --- a file that becomes shorter while it is mapped
{ # a description of 2 MB makes it large enough
    cat $models/cnn.onnx
    printf '\x32\x80\x80\x80\x01'
    head -c 2097152 /dev/zero | tr '\0' a
} >large.onnx
mkfifo config
code $sparsebit quantize large.onnx -c config -o o.onnx &
exec 7>config # waits until the command, which has the model by then, reads it
truncate -s 0 large.onnx
printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\nA: none\n' >&7
exec 7>&-
wait
