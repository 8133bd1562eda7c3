# help: of the program and of one command; the manual has every command.
code $sparsebit --help
echo ---
code $sparsebit run --help
echo ---
code $sparsebit help list
code $sparsebit help nothing
$sparsebit help --manual man | grep '^.SS'
$sparsebit help --manual markdown | grep '^## '
code $sparsebit help --manual pdf
# For machines: what another program reads from it is what the tables say.
python=$(command -v python3) || python=
$sparsebit help --json >all.json
$sparsebit help run --json >one.json
$sparsebit run --help --json | cmp - one.json
grep -c '^      "name": ' all.json
grep -E '^      "(name|summary)"' one.json
if [ -n "$python" ]; then
    $python - <<'END'
import json
commands = json.load(open("all.json"))["commands"]
[run] = json.load(open("one.json"))["commands"]
assert run in commands
assert [a["name"] for a in run["arguments"]] == ["MODEL"]
assert "json" in [o["name"] for o in run["common_options"]]
END
fi
code $sparsebit help --manual man --json
code $sparsebit help nothing --json
