# train: what it lists, and what it refuses.  How it learns is in
# tests/unit/test_train.c and tests/ort/test_train.py.
$sparsebit new mlp --input 1x4x4 --classes 3 -o m.onnx -q
code $sparsebit train m.onnx -d none.yaml -o t.onnx --dry-run
code $sparsebit train m.onnx -d none.yaml -o t.onnx --dry-run --set 'FREEZE=["*.weight"]'
echo --- errors
code $sparsebit train m.onnx -o t.onnx
code $sparsebit train m.onnx -d none.yaml -o t.onnx
code $sparsebit train m.onnx -d none.yaml -o t.onnx --set LR
code $sparsebit train m.onnx -d none.yaml -o t.onnx --set LR=1 --set EPOCHS=1 --set LR=2
code $sparsebit train m.onnx -d none.yaml -o t.onnx --freeze-bn 1 --set FREEZE_BN=2
code $sparsebit train none.onnx -d none.yaml -o t.onnx
ls
echo --- quantizers
printf 'W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq, BIT: 4}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq, BIT: 4}}\n' >q.yaml
code $sparsebit quantize m.onnx -c q.yaml --dry-run
code $sparsebit train m.onnx -d none.yaml -o t.onnx -t onnxruntime-x86
code $sparsebit train m.onnx -d none.yaml -o t.onnx -c q.yaml -t onnxruntime-x86
code $sparsebit train m.onnx -d none.yaml -o t.onnx -c none.yaml
ls
echo --- a page: a layer that is frozen does not move
python3 - <<'END' 2>/dev/null || exit 77
import struct
head = "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 1, 4, 4), }"
head += " " * (118 - 1 - len(head)) + "\n"
open("x.npy", "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
                          + head.encode() + struct.pack("<96f", *((7 * i) % 11 - 5 for i in range(96))))
END
printf '0\n1\n2\n0\n1\n2\n' >labels.txt
printf 'SOURCE: npy\nPATH: x.npy\nLABELS: labels.txt\nBATCH: 3\n' >x.yaml
code $sparsebit train m.onnx -d x.yaml -o t.onnx --set EPOCHS=1 --set 'FREEZE=["fc2.*"]' --report moved.html -q
grep -o '<g class="n a[0-5]' moved.html | sort | uniq -c | sed -n 's/ *\([0-9]*\) .* a\([01]\)/\1 of color \2/p'
grep -A2 'data-node' moved.html | grep -o 'fc2/.*' | sed 's/<[^>]*>/ /g; s/ \+/ /g' | cut -d' ' -f1-6
code $sparsebit train m.onnx -d x.yaml -o q.onnx -c q.yaml --set EPOCHS=1 --report errors.html -q
grep -o '<h2>[A-Za-z ]*' errors.html
rm -r ./*.train ./*.html t.onnx q.onnx x.npy x.yaml labels.txt
echo --- adapters
tiny=$models/../../fixtures/llm/tiny.gguf
printf '[{"instruction": "ab", "output": "ba"}, {"instruction": "ba", "input": "a", "output": "ab"}]' >qa.json
printf 'SOURCE: instruct\nPATH: qa.json\nTOKENIZER: %s\nWINDOW: 40\nBATCH: 2\n' $tiny >qa.yaml
code $sparsebit train $tiny --lora 'q_proj|v_proj' --lora-rank 2 -d qa.yaml --set EPOCHS=2 --set OPTIMIZER=adamw -o adapter -q
ls adapter
code $sparsebit train $tiny --lora q_proj --lora-rank 2 -d qa.yaml -o adapter
code $sparsebit train $tiny --lora 'q_proj|v_proj' --lora-rank 2 -d qa.yaml --set EPOCHS=2 --set OPTIMIZER=adamw -o adapter --folder again -q --force
code $sparsebit train $tiny --lora q_proj --lora-rank 2 -d qa.yaml -o other --dry-run | grep -v frozen
mkdir other
code $sparsebit train $tiny --lora q_proj --lora-rank 2 -d qa.yaml -o other -q
code $sparsebit train $tiny --lora q_proj -d qa.yaml -o qa.json
grep -E '"r"|alpha|modules' adapter/adapter_config.json
code $sparsebit convert $tiny merged --lora adapter --format float -q
code $sparsebit convert $tiny third --lora merged --format float
code $sparsebit train $tiny --lora nothing -d qa.yaml -o none
code $sparsebit train $tiny --lora q_proj -c q.yaml -d qa.yaml -o none
code $sparsebit train $tiny --lora-rank 2 -d qa.yaml -o none
code $sparsebit train $tiny --pipeline 2 -d qa.yaml -o none
printf '[{"instruction": "ab"}]' >bad.json
sed 's/qa.json/bad.json/' qa.yaml >bad.yaml
code $sparsebit train $tiny --lora q_proj -d bad.yaml -o none
printf '{"instruction": "ab", "output": "b"}\n\n{"instruction": "ab", "answer": "b"}\n' >bad.json
code $sparsebit train $tiny --lora q_proj -d bad.yaml -o none
sed 's/WINDOW: 40/WINDOW: 2/' qa.yaml >short.yaml
code $sparsebit train $tiny --lora q_proj -d short.yaml -o none
ls
