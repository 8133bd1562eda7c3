# threads: four threads write the same bytes and print the same numbers as one.
# Built with ThreadSanitizer, this is where it looks for races in the command.
network=$models/../../../examples/fashion_mnist.onnx
# 48 images of noise: the bytes of the network, as an idx file.
{ printf '\x00\x00\x08\x03\x00\x00\x00\x30\x00\x00\x00\x1c\x00\x00\x00\x1c'
  tail -c +1000 $network | head -c $((48 * 784)); } >x.idx
printf 'SOURCE: idx\nPATH: x.idx\nSCALE: 255\nMEAN: [0.286]\nSTD: [0.353]\nBATCH: 8\n' >x.yaml
png='iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAIElEQVR42mNk+M/A/5Gd/yMHGsmEVZT/IwcTVtGB1gEAvuJB5xnvAkgAAAAASUVORK5CYII='
mkdir photos
for i in 1 2 3 4 5 6 7 8; do echo $png | base64 -d >photos/$i.png; done
printf 'SOURCE: image_folder\nPATH: photos\nSCALE: 255\nBATCH: 2\n' >photos.yaml

for observer in minmax moving_average percentile mse kl_histogram aciq; do
    printf "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}
A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, OBSERVER: {TYPE: $observer}}\n" >q.yaml
    for n in 1 4; do
        code $sparsebit quantize $network -c q.yaml -d x.yaml --threads $n -o $observer.$n.onnx -q
    done
    cmp $observer.1.onnx $observer.4.onnx && echo $observer: the same file
done
for n in 1 4; do
    code $sparsebit quantize $network -c q.yaml -d x.yaml --asym --threads $n -o asym.$n.onnx -q
    code $sparsebit quantize $models/photo.onnx -d photos.yaml --threads $n -o photo.$n.onnx -q
done
cmp asym.1.onnx asym.4.onnx && cmp photo.1.onnx photo.4.onnx && echo --asym and images: the same files
for n in 1 4; do
    for file in $network minmax.4.onnx; do
        code $sparsebit eval $file -d x.yaml --threads $n --save-outputs $n.npz -q >/dev/null
    done
    code $sparsebit eval minmax.4.onnx -d x.yaml --against $network --threads $n --json -q | grep -v 'second\|_per_s' >$n.json
done
cmp 1.npz 4.npz && cmp 1.json 4.json && echo eval: the same numbers
