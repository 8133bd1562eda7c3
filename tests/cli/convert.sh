# Language models from one format into another, and what no format holds.
llm=$models/../../fixtures/llm
code $sparsebit convert $llm/tiny.gguf again.gguf
code $sparsebit convert $llm/tiny.gguf folder --format float --float-as f32 --shard-size 1
ls folder
code $sparsebit generate $llm/tiny.gguf -p "ab" -n 12 -q
code $sparsebit generate again.gguf -p "ab" -n 12 -q
code $sparsebit generate folder -p "ab" -n 12 -q
code $sparsebit convert folder small.gguf --float-as q8_0 --json
code $sparsebit convert folder k.gguf --float-as q4_k
# Of 48 elements to a row.
code $sparsebit convert $llm/llama odd.gguf --float-as q4_k --tokenizer $llm/tiny.gguf
rm odd.gguf
code $sparsebit convert again.gguf genai --format genai
ls genai
head -n 12 genai/genai_config.json
code $sparsebit convert again.gguf net.onnx
code $sparsebit convert net.onnx third.gguf --tokenizer again.gguf
cmp again.gguf third.gguf
code $sparsebit convert $llm/gptq packed.gguf --tokenizer $llm/tiny.gguf
code $sparsebit convert $llm/awq gptq --tokenizer $llm/tiny.gguf -q
ls gptq
tail -n 20 gptq/quantize_config.json
echo
code $sparsebit info gptq | head -n 3
printf 'W:\n  QSCHEME: per-group-symmetric\n  QUANTIZER: {BIT: 4, GROUP_SIZE: 32}\n  OBSERVER: {TYPE: minmax}\nA: none\n' >w4.yaml
code $sparsebit quantize folder -c w4.yaml --format gguf --exclude 'model.embed_tokens' -o w4.gguf | grep -v seconds
code $sparsebit quantize folder -c w4.yaml --format matmulnbits -o table.onnx
code $sparsebit quantize folder -c w4.yaml --format matmulnbits -t onnxruntime-x86 -o table.onnx
rm table.onnx
code $sparsebit quantize folder -c w4.yaml -o named.gguf -q
cmp w4.gguf named.gguf && echo the name says the format
code $sparsebit quantize folder -o no.gguf
code $sparsebit quantize folder --format gptq -o no
code $sparsebit quantize $llm/gptq -c w4.yaml --format gptq --tokenizer $llm/tiny.gguf -o plain -q
code $sparsebit quantize $llm/gptq -c w4.yaml --format gptq --exclude 'model.embed_tokens' --tokenizer $llm/tiny.gguf -o again | grep -v seconds
diff -r plain again && echo embeddings stay in float by themselves
code $sparsebit quantize $llm/gptq -c w4.yaml --format gptq --exclude 'model.embed_tokens' --tokenizer $llm/tiny.gguf -o again -q --force --gptq-version 2
grep checkpoint_format again/config.json
code $sparsebit convert again again1 --gptq-version 1 -q
grep checkpoint_format again1/config.json
code $sparsebit convert again1 again2 -q --gptq-version 2
cmp again/model.safetensors again2/model.safetensors && echo the same
code $sparsebit quantize folder --format gguf --gguf-type q4_k -o k2.gguf | grep -v seconds
code $sparsebit quantize folder --format gguf --gguf-type q8_0 -o q8.gguf -q
echo --- wrong
code $sparsebit quantize folder --format gguf --gguf-type q9 -o no.gguf
code $sparsebit quantize folder -c w4.yaml --format gptq --gguf-type q4_k -o no
code $sparsebit quantize folder --format gguf --gguf-type q4_k --exclude '*' -o no.gguf
# Said before anything is computed.
quantize() { code $sparsebit quantize folder -c w4.yaml --calibrate self "$@"; }
quantize --format gguf --exclude 'model.embed_tokens' --float-as q9 -o no.gguf
quantize --format gptq --exclude 'model.embed_tokens' -o no
quantize --format gptq --exclude 'model.embed_tokens' --gptq-version 3 -o no
quantize --format gguf --exclude 'model.embed_tokens' --gptq-version 1 -o no.gguf
quantize --format gguf --exclude 'model.embed_tokens' --tokenizer w4.yaml -o no.gguf
sed 's/GROUP_SIZE: 32/GROUP_SIZE: 16/' w4.yaml >w16.yaml
code $sparsebit quantize folder -c w16.yaml --format gguf --exclude 'model.embed_tokens' -o no.gguf
code $sparsebit quantize $llm/gptq -c w4.yaml --format gptq --exclude 'model.embed_tokens' --tokenizer $llm/tiny.gguf --float-as q8_0 -o no
code $sparsebit convert $llm/gptq3 no --gptq-version 1 --tokenizer $llm/tiny.gguf
code $sparsebit convert $llm/llama no --format genai
code $sparsebit convert $llm/tiny.gguf no --format gptq
code $sparsebit convert $llm/tiny.gguf no --format ggml
code $sparsebit convert $llm/tiny.gguf no.gguf --float-as q9_k
code $sparsebit convert $llm/tiny.gguf folder
code $sparsebit convert $llm/tiny.gguf folder --format float -q --force
code $sparsebit convert $llm/tiny.gguf folder --format gguf
mkdir empty photos
echo >photos/one.jpg
code $sparsebit convert $llm/tiny.gguf photos
code $sparsebit convert $llm/tiny.gguf photos/one.jpg --format float
code $sparsebit quantize folder -c w4.yaml --format gptq --exclude 'model.embed_tokens' -o photos
code $sparsebit quantize $llm/gptq -c w4.yaml --format gptq --exclude 'model.embed_tokens' --tokenizer $llm/tiny.gguf -o empty -q
ls photos empty
code $sparsebit convert $llm/tiny.gguf no/such/folder
code $sparsebit convert $llm/llama no.gguf
code $sparsebit convert $models/tiny.onnx no.gguf
code $sparsebit convert $llm/gptq_order no.gguf --tokenizer $llm/tiny.gguf
# What will not be written is said before the work; our own Q/DQ file will be.
code $sparsebit quantize $llm/gptq_order -c w4.yaml --format gguf --exclude model.embed_tokens --tokenizer $llm/tiny.gguf -q -o no.gguf
code $sparsebit quantize folder -c w4.yaml --exclude model.embed_tokens -q -o qdq.onnx
code $sparsebit quantize qdq.onnx -c w4.yaml --format gguf --exclude model.embed_tokens --tokenizer $llm/tiny.gguf -q -o qdq.gguf
code $sparsebit info qdq.gguf | head -n 3
# Once.
code $sparsebit quantize $llm/mistral -c w4.yaml --format gguf --exclude model.embed_tokens --exclude '*down_proj*' --tokenizer $llm/tiny.gguf -o window.gguf 2>&1 | grep -c "the window"
code $sparsebit convert again.gguf again.gguf
sed 's/"gptq"/"marlin"/' $llm/gptq/config.json >gptq/config.json
code $sparsebit info gptq
cp $llm/gptq/config.json gptq
head -c 9000 $llm/gptq/model.safetensors >gptq/model.safetensors
code $sparsebit info gptq
code $sparsebit quantize folder -c w4.yaml --format matmulnbits --float-as f16 -o x.onnx
echo --- what other programs would read otherwise, or not at all
mkdir part
sed 's/"head_dim": [0-9]*/&, "partial_rotary_factor": 0.5/' folder/config.json >part/config.json
code $sparsebit info part
cp folder/config.json part
touch part/pytorch_model.bin
code $sparsebit info part
rm -r part
ls
