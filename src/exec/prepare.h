/* prepare.h - plans that are made before the first run. */
#ifndef SB_EXEC_PREPARE_H
#define SB_EXEC_PREPARE_H

#include "exec/exec.h"

/* Makes the plan that a run with such inputs will use, and runs nothing. */
SB_MUST_USE sb_status sb_exec_prepare(sb_exec *exec,
                                      const sb_tensor *const *inputs);

#endif
