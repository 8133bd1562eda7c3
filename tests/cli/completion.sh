# completion: what bash offers; zsh and fish at least read their scripts.
bin=$PWD/bin
mkdir "$bin"
ln -s $sparsebit "$bin/sparsebit"
PATH=$bin:$PATH
touch model.onnx "with space.onnx" data.yaml
mkdir folder
eval "$(sparsebit completion bash)"
complete -p sparsebit
try() { # WORDS...: what is offered for the last of them
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    $(complete -p sparsebit | sed 's/.*-F \([^ ]*\) .*/\1/') sparsebit "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf '%s:' "$*"
    printf ' <%s>' "${COMPREPLY[@]}"
    echo
}
try sparsebit q
try sparsebit --v
try sparsebit info mod
try sparsebit info w
try sparsebit quantize model.onnx --ex
try sparsebit quantize model.onnx -t tens
try sparsebit quantize model.onnx --format q
try sparsebit quantize model.onnx --threads ""
try sparsebit quantize model.onnx --data d
try sparsebit lint model.onnx -t openv
try sparsebit simplify model.onnx --dump-after fold_c
try sparsebit graph model.onnx --dump-after pl
try sparsebit config ch
try sparsebit config check da
try sparsebit list st
try sparsebit help ver
try sparsebit completion z
# Every option is offered.
for command in $(sparsebit help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    missing=$(sparsebit $command --help | grep -o '^  .\{4\}--[a-z0-9-]*' | grep -o -e '--.*' | while read -r option; do
        COMP_WORDS=(sparsebit $command $option)
        COMP_CWORD=2
        COMPREPLY=()
        _sparsebit
        [[ " ${COMPREPLY[*]} " == *" $option "* ]] || echo "$option"
    done)
    [ -z "$missing" ] || echo "$command does not offer" $missing
done
code sparsebit completion powershell
code sparsebit completion
sparsebit completion zsh >_sparsebit
sparsebit completion fish >sparsebit.fish
if command -v zsh >/dev/null; then zsh -n _sparsebit || echo zsh; fi
if command -v fish >/dev/null; then fish -n sparsebit.fish || echo fish; fi
