#include "client/tools/gfs_metad.h"
#include "client/fs/gfs_conf.h"
#include "include/gfs.h"

#define RPC_SERVICE_META
#include "rpc/rpc_stub.h"

#define LEAVE_WAIT_MS 500u

int gfs_metad_new(struct gx_env *env, const char *config, const char *program, int64_t timeout_ns,
		  struct gx_buf *errors, struct rpc_client **ret_client)
{
	struct gfs_options wanted = {.config = config};
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;
	struct gfc_options found;
	struct gfs_conf conf;
	struct rpc_key key;
	int r = gfs_conf_load(env, &wanted, &conf, errors);

	if (r == 0) {
		r = gfs_conf_connect_options(env, &conf, &key, &found, errors);
		if (r == 0) {
			options.env = env;
			options.endpoint = found.metad;
			options.identity = found.identity;
			options.key = found.key;
			options.program = program;
			options.connections_max = 1;
			options.timeout_ns = timeout_ns;
			r = rpc_client_new(&options, ret_client);
		}
		rpc_key_clear(&key);
	}
	gfs_conf_fini(&conf);
	return r;
}

int gfs_metad_status(struct rpc_client *client, bool sessions, struct gx_buf *errors,
		     struct rpc_reply *reply, const PbMeta__StatusReply **ret_status)
{
	PbMeta__StatusRequest request = PB_META__STATUS_REQUEST__INIT;
	struct rpc_call_options options = {.errors = errors, .fail_fast = true};

	request.sessions = sessions;
	return meta_call_status(client, &request, &options, reply, ret_status);
}

void gfs_metad_leave(struct gx_env *env, struct rpc_client *client)
{
	PbMeta__LeaveRequest request = PB_META__LEAVE_REQUEST__INIT;
	struct rpc_call_options options = {.fail_fast = true};
	const PbMeta__LeaveReply *message;
	struct rpc_reply reply;

	if (client && rpc_client_session(client) != 0) {
		options.deadline_ns = gx_env_deadline_ms(env, LEAVE_WAIT_MS);
		rpc_reply_init(&reply);
		/* If it fails, metad ends the session by itself after a while. */
		GX_IGNORE(meta_call_leave(client, &request, &options, &reply, &message));
		rpc_reply_fini(&reply);
	}
	rpc_client_free(client);
}
