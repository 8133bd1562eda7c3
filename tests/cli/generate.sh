# A small random network writes; the same from every kind of file is tested in
# tests/unit/test_generate.c.
llm=$models/../../fixtures/llm
code $sparsebit info $llm/tiny.gguf
code $sparsebit generate $llm/tiny.gguf -p "ab" -n 12 -q
code $sparsebit generate $llm/tiny.gguf -p "ab" -n 12 -q --threads 1
code $sparsebit generate $llm/tiny.gguf -p "ab" -n 12 -q --temperature 1 --seed 4
code $sparsebit generate $llm/tiny.gguf -p "ab" -n 12 -q --temperature 1 --top-k 5 --top-p 0.9 --seed 3
code $sparsebit generate $llm/tiny.gguf -p "ab" -n 4 --json | grep -v per_second
echo --- a text may have zeros in it
code $sparsebit generate $llm/tiny.gguf -p "ab" -n 60 --ignore-end --temperature 3 --seed 1 --json >zeros.json
code $sparsebit generate $llm/tiny.gguf -p "ab" -n 60 --ignore-end --temperature 3 --seed 1 -q >zeros.txt
grep -o '\\u0000' zeros.json | wc -l
tr -cd '\0' <zeros.txt | wc -c
echo --- prompt and result together have no more than the context
for n in 3 4 6; do
    code $sparsebit generate $llm/tiny.gguf -p "ab" --context $n --json | grep '"end"\|_*tokens":'
done
echo --- wrong
code $sparsebit generate $llm/tiny.gguf -p "$(printf '\377')"
code $sparsebit generate $llm/tiny.gguf -p "ab" --top-p 2
code $sparsebit generate $llm/tiny.gguf -p "ab" --top-p 0
code $sparsebit generate $llm/tiny.gguf -p "ab" --temperature -1
code $sparsebit generate $llm/tiny.gguf -p "ab" --top-k -1
code $sparsebit generate $llm/tiny.gguf -p "ab" -n 0
code $sparsebit train $llm/tiny.gguf --lora q_proj --lora-rank 0 -d data -o out
code $sparsebit generate $llm/tiny.gguf -p "ab" --tokenizer $llm/tok_llama3.json
code $sparsebit generate $llm/tiny.gguf -p "ab" --context 1000
code $sparsebit generate $llm/tiny.gguf -p "ab ab ab ab" --context 2
code $sparsebit generate $llm/llama -p "ab"
code $sparsebit generate $models/tiny.onnx -p "ab"
code $sparsebit generate nothing.gguf -p "ab"
head -c 5000 $llm/tiny.gguf >cut.gguf
code $sparsebit generate cut.gguf -p "ab"
code $sparsebit info $models
