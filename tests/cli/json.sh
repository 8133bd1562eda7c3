# --json: one object on standard output, with the version of its layout, the
# command and the model, also on failure.
python=$(command -v python3) || { echo "no python3"; exit 77; }
{
    printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
    head -c 24 /dev/zero
} >x.npy
printf 'SOURCE: npy\nPATH: x.npy\n' >x.yaml
keys() { # COMMAND...: the keys of what it prints
    "$@" --json 2>err >out.json
    local rc=$?
    $python - "$2" $rc <<'END'
import json, os, sys
found = json.load(open("out.json"))
assert found["schema"] == 1 and found["command"] == sys.argv[1], found
named = {k: f"{k}={os.path.basename(found[k])}" for k in ("model", "output") if k in found}
print(sys.argv[1], sys.argv[2],
      *(named.get(k, k) for k in found if k not in ("schema", "command")))
if "error" in found:
    print("   ", found["error"]["exit_code"], os.path.basename(found["error"]["message"]))
    assert os.path.getsize("err") > 0
END
}
keys $sparsebit info $models/tiny.onnx
keys $sparsebit graph $models/tiny.onnx
keys $sparsebit graph $models/tiny.onnx -t tensorrt
keys $sparsebit simplify $models/tiny.onnx -o s.onnx
keys $sparsebit new mlp -o n.onnx
keys $sparsebit run $models/tiny.onnx
keys $sparsebit lint $models/qdq.onnx
keys $sparsebit eval $models/tiny.onnx -d x.yaml --against $models/tiny.onnx
keys $sparsebit quantize $models/tiny.onnx -d x.yaml -o q.onnx
keys $sparsebit quantize $models/tiny.onnx -d x.yaml -o q.onnx -v
keys $sparsebit bench $models/tiny.onnx --seconds 0.01
keys $sparsebit config default
keys $sparsebit config check x.yaml x.npy
keys $sparsebit config explain BACKEND
keys $sparsebit list targets
keys $sparsebit help
keys $sparsebit help run
keys $sparsebit version
echo --- failures
for command in info graph run lint bench; do
    keys $sparsebit $command nothing.onnx
done
keys $sparsebit simplify nothing.onnx -o s.onnx
keys $sparsebit eval nothing.onnx -d x.yaml
keys $sparsebit quantize nothing.onnx -d x.yaml -o q.onnx
keys $sparsebit quantize
keys $sparsebit quantize $models/tiny.onnx --bogus
keys $sparsebit config explain NOTHING
keys $sparsebit config guess
keys $sparsebit list nothing
keys $sparsebit help nothing
keys $sparsebit nothing
keys $sparsebit run $models/tiny.onnx --threads many
keys $sparsebit run $models/tiny.onnx --shape x=1x1x1
echo --- the graph
$sparsebit graph $models/cnn.onnx --json >graph.json
$python - <<'END'
import json
g = json.load(open("graph.json"))
made = {v["name"] for v in g["values"] if v["constant"]} | set(g["inputs"])
for node in g["nodes"]:
    assert set(node["inputs"]) - {""} <= made, node
    made |= set(node["outputs"])
assert set(g["outputs"]) <= made
print([n["attributes"] for n in g["nodes"] if n["op"] == "Conv"])
print([v["shape"] for v in g["values"] if v["name"] in g["inputs"] + g["outputs"]])
END
