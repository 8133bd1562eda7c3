# quantize --memory-limit: the same file in less memory than the weights take as
# floats; a limit that cannot be kept is said, with one that can; and a language
# model is calibrated on its own text.  The same for a network with static
# quantization, whose packed weights have no room.
llm=$models/../../fixtures/llm
# A layer with weights of 16 bits whose bits are those of digits: 0.13 to 0.67.
mkdir net
printf '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 8, "vocab_size": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true}' >net/config.json
at=0 header='{'
add() { # NAME SHAPE ELEMENTS
    header+="$comma\"model.$1.weight\": {\"dtype\": \"F16\", \"shape\": [$2], \"data_offsets\": [$at, $((at + 2 * $3))]}"
    at=$((at + 2 * $3)) comma=', '
}
comma=
add embed_tokens 64,512 32768
for m in q k v o; do add layers.0.self_attn.${m}_proj 512,512 262144; done
for m in gate up; do add layers.0.mlp.${m}_proj 1024,512 524288; done
add layers.0.mlp.down_proj 512,1024 524288
for m in layers.0.input_layernorm layers.0.post_attention_layernorm norm; do add $m 512 512; done
header+='}'
byte() { printf "\\x$(printf %02x $(($1 & 255)))"; }
{
    byte ${#header} && byte $((${#header} >> 8)) && printf '\0\0\0\0\0\0%s' "$header"
    seq 1000000 9999999 | tr '\n' 5 | head -c $at
} >net/model.safetensors
printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 8), }" >ids.npy
for i in 1 5 9 2 60 33 7 8 12 41 3 4 50 21 62 17; do byte $i && printf '\0\0\0\0\0\0\0'; done >>ids.npy
printf 'W: {QSCHEME: per-group-symmetric, QUANTIZER: {TYPE: gptq, BIT: 4, GROUP_SIZE: 128}}\nA: none\nSCHEDULE: {LAYERWISE: false}\n' >w4.yaml
quantize() { code $sparsebit quantize "$@" -c w4.yaml --format matmulnbits -q; }
quantize net -d ids.npy -o whole.onnx 2>/dev/null
quantize net -d ids.npy --memory-limit 33M -o less.onnx 2>/dev/null
cmp whole.onnx less.onnx && echo the same
quantize net -d ids.npy --memory-limit 10M -o none.onnx
quantize net -d ids.npy --memory-limit 1M -o none.onnx
# The smallest limit that is named is kept, whatever the method needs.
kept() { # METHOD
    sed "s/TYPE: gptq/TYPE: $1/" w4.yaml >m.yaml
    run() { $sparsebit quantize net -d ids.npy -c m.yaml --format matmulnbits -q -o "$@"; }
    least=$(run none.onnx --memory-limit 10M 2>&1 | sed -n 's/.*model is \([0-9]*M\)$/\1/p')
    echo "$1 $least"
    run all.onnx 2>/dev/null && run least.onnx --memory-limit $least 2>/dev/null
    cmp all.onnx least.onnx && echo the same
}
kept gptq
kept 'adaround, ADAROUND: {STEPS: 2}'
TMPDIR=nowhere quantize net -d ids.npy --memory-limit 33M -o none.onnx
test -e none.onnx || echo no file
echo --- its own text
$sparsebit convert $llm/tiny.gguf floats --format float -q
printf 'W: {QSCHEME: per-group-symmetric, QUANTIZER: {TYPE: gptq, BIT: 4, GROUP_SIZE: 32}}\nA: none\n' >w4.yaml
quantize floats --calibrate self -n 3 -o one.onnx 2>/dev/null
quantize floats --calibrate self -n 3 --threads 1 -o two.onnx 2>/dev/null
cmp one.onnx two.onnx && echo the same
quantize floats --calibrate self -n 3 --memory-limit 40M -o two.onnx 2>/dev/null
cmp one.onnx two.onnx && echo the same
quantize floats --calibrate other -o none.onnx
quantize floats --calibrate self -d ids.npy -o none.onnx
quantize net --calibrate self -o none.onnx
quantize $models/cnn.onnx --calibrate self --tokenizer $llm/tiny.gguf -o none.onnx
test -e none.onnx || echo no file
echo --- static: 21 MB of weights
$sparsebit new vit-tiny --input 1x32x32 --classes 4 -o vit.onnx -q
{
    printf '\0\0\x08\x03\0\0\0\x04\0\0\0\x20\0\0\0\x20'
    seq 1000000 9999999 | tr -d '\n' | head -c 4096
} >x.idx
printf 'SOURCE: idx\nPATH: x.idx\nBATCH: 2\n' >x.yaml
for preset in fast balanced; do
    static() { $sparsebit quantize vit.onnx -d x.yaml --preset $preset -q -o "$@" 2>/dev/null; }
    static all.onnx --force && static less.onnx --force --memory-limit 16M && cmp all.onnx less.onnx && echo the same
done
