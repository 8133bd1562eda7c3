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
