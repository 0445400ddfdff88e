/*
 * gfs_metad.h - questions to metad that have nothing to do with files: is it there, how is it.
 *
 * Without the session's machinery of libgfs (gfc.h): such a call must be answered while metad
 * waits for its clients after a restart, and must not be one of those it waits for next time.
 */
#ifndef GFS_METAD_H
#define GFS_METAD_H

#include "meta.pb-c.h"
#include "rpc/rpc_client.h"

/* As the configuration says (`config` NULL: the usual places). Nothing is sent yet. */
GX_MUST_CHECK int gfs_metad_new(struct gx_env *env, const char *config, const char *program,
				int64_t timeout_ns, struct gx_buf *errors,
				struct rpc_client **ret_client);
/*
 * How metad and the nodes are; `sessions` for administrators only, -EPERM. Fails at once if metad
 * is not there. ret_status points into reply, which the caller has made ready and ends.
 */
GX_MUST_CHECK int gfs_metad_status(struct rpc_client *client, bool sessions, struct gx_buf *errors,
				   struct rpc_reply *reply, const PbMeta__StatusReply **ret_status);
/* Ends the session, if metad answers soon, and frees the client. NULL is fine. */
void gfs_metad_leave(struct gx_env *env, struct rpc_client *client);

#endif
