# list: a few rows that must be there, and wrong names.
$sparsebit list ops | grep -E '^(Conv|Relu|com.microsoft::Gelu) ' | sed 's/  */ /g'
$sparsebit list passes | grep -c .  | sed 's/^[0-9][0-9]$/enough/'
$sparsebit list passes --json | grep -c '"name"' | sed 's/^[0-9][0-9]$/enough/'
$sparsebit list sources
$sparsebit list stages
$sparsebit list presets
$sparsebit list targets
# One line each, of 80 columns.
for what in nets ops passes observers quantizers presets criteria sources stages targets; do
    $sparsebit list $what | grep '.\{81\}\| $'
done
code $sparsebit list nothing
code $sparsebit list
