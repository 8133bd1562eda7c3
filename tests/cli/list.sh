# list: a few rows that must be there, and wrong names.
$sparsebit list ops | grep -E '^(Conv|Relu|com.microsoft::Gelu) ' | sed 's/  */ /g'
$sparsebit list passes | grep -c .  | sed 's/^[0-9][0-9]$/enough/'
$sparsebit list passes --json | grep -c '"name"' | sed 's/^[0-9][0-9]$/enough/'
$sparsebit list sources
$sparsebit list stages
$sparsebit list presets
$sparsebit list targets
code $sparsebit list nothing
code $sparsebit list
