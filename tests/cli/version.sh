# version, in three spellings.
$sparsebit version | sed 's/[0-9.]*$/N/'
$sparsebit --version | sed 's/[0-9.]*$/N/'
$sparsebit version --json | sed 's/"[0-9.]*"$/N/'
