/* plugin.h - what the files of plugin.h's functions share. */
#ifndef SB_API_PLUGIN_PLUGIN_H
#define SB_API_PLUGIN_PLUGIN_H

#include <sparsebit/plugin.h>

#include "base/alloc.h"

/* SB_BAD_ARG unless a name is there and `taken` is false; `what` is the kind of
 * thing. */
SB_MUST_USE sb_status sb_plugin_check_name(sb_ctx *ctx, const char *what,
                                           const char *name, bool taken);

/* The same for what configurations name: it must also be in lower case. */
SB_MUST_USE sb_status sb_plugin_check_key(sb_ctx *ctx, const char *what,
                                          const char *name, bool taken);

#endif
