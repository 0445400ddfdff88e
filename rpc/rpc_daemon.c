#define GX_LOG_COMPONENT "daemon"
#include "rpc/rpc_daemon.h"
#include "common/gx_log.h"
#include <fcntl.h>

/* Calls fn for each address of a comma-separated list; fn NULL only parses. */
static int each_address(struct gx_env *env, const char *list, bool insecure, struct gx_buf *errors,
			rpc_listen_fn fn, void *server, struct gx_buf *bound_out)
{
	int result = 0;

	while (list && *list) {
		char text[GX_ADDR_TEXT_MAX];
		char bound_text[GX_ADDR_TEXT_MAX];
		size_t bytes = strcspn(list, ",");
		struct rpc_endpoint endpoint, bound;
		int r;

		r = gx_format(text, sizeof(text), "%.*s", (int)bytes, list);
		list += bytes + (list[bytes] == ',');
		if (r == 0)
			r = rpc_endpoint_parse(env, text, insecure, &endpoint, errors);
		if (r == 0 && fn) {
			r = fn(server, &endpoint, &bound);
			if (r < 0)
				return gx_log_errno(ERR, r, "cannot listen",
						    GX_KS("address", text));
			rpc_endpoint_format(&bound, bound_text);
			gx_log(NOTICE, "listening", GX_KS("address", bound_text));
			r = gx_buf_append_format(bound_out, "%s\n", bound_text);
		}
		if (r < 0)
			result = r;
	}
	return result;
}

int rpc_daemon_check_addresses(struct gx_env *env, const char *list, bool insecure,
			       struct gx_buf *errors)
{
	return each_address(env, list, insecure, errors, NULL, NULL, NULL);
}

int rpc_daemon_listen(struct gx_env *env, const char *list, bool insecure, rpc_listen_fn fn,
		      void *server, struct gx_buf *bound)
{
	return each_address(env, list, insecure, NULL, fn, server, bound);
}

int rpc_daemon_write_addresses(struct gx_env *env, const char *path, const struct gx_buf *bound)
{
	char temporary[GX_PATH_MAX];
	int fd, r, closed;

	if (!path || !path[0])
		return 0;
	r = gx_format(temporary, sizeof(temporary), "%s.new", path);
	if (r < 0)
		return -ENAMETOOLONG;
	fd = gx_env_open(env, temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0)
		return fd;
	r = gx_env_pwrite(env, fd, bound->data, bound->bytes, 0);
	closed = gx_env_close(env, fd);
	if (r == 0)
		r = closed;
	if (r == 0)
		r = gx_env_rename(env, temporary, path);
	if (r < 0)
		GX_IGNORE(gx_env_unlink(env, temporary));
	return r;
}

int rpc_daemon_load_keys(struct gx_env *env, const char *path, struct rpc_keytab **ret_keys)
{
	GX_CLEANUP(rpc_keytab_freep) struct rpc_keytab *keys = NULL;
	struct gx_buf errors;
	int r;

	gx_buf_init(&errors, GX_CONF_LINE_MAX);
	r = rpc_keytab_new(&keys);
	if (r == 0)
		r = rpc_keytab_load(keys, env, path, &errors);
	if (r < 0)
		gx_log(ERR, "cannot load the key table", GX_KS("problem", gx_buf_text(&errors)),
		       GX_KE(r));
	else
		*ret_keys = GX_TAKE(keys);
	gx_buf_fini(&errors);
	return r;
}
