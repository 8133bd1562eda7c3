/* comm.h - the ranks of a context; the interface is in the public header, since
 * all of it is public.
 *
 * Not to be called on threads of the pool: what moves the bytes is asked on the
 * thread of the call only. */
#ifndef SB_BASE_RANKS_COMM_H
#define SB_BASE_RANKS_COMM_H

#include <sparsebit/comm.h>

#include "base/ctx.h"

/* Between these two calls the context is alone: for what every rank does by
 * itself. */
struct sb_comm_state *sb_comm_hide(sb_ctx *ctx);
void sb_comm_show(sb_ctx *ctx, struct sb_comm_state *hidden);

/* After a call has failed, or sb_comm_give_up(), on all ranks: was it for
 * nothing worse than an interruption?  Then they may go on together, to save
 * what they have. */
bool sb_comm_reopen(sb_ctx *ctx);

/* Can bytes go from rank to rank (sb_comm_send_receive())? */
bool sb_comm_sends(const sb_ctx *ctx);

/* Forgets the ranks and frees the memory; when the context is freed. */
void sb_comm_forget(sb_ctx *ctx);

#endif
