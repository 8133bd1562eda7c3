/* info_against.h - info --against: a model beside the one it was made of. */
#ifndef SB_CLI_INFO_AGAINST_H
#define SB_CLI_INFO_AGAINST_H

#include "cli.h"

typedef struct cli_info_pair {
    const char *model, *against;
    const cli_list *shapes, *values; /* as for cli_model_fix() */
} cli_info_pair;

/* Parameters, MACs, file size, and latency measured now, of both: a table, or
 * keys of the object that is open (NULL: the table). */
int cli_info_against(cli_env *env, const cli_cmd *cmd,
                     const cli_info_pair *pair, cli_json *json);

#endif
