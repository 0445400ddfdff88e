/*
 * The daemons of a grid: metad first, because the others register with it, then all that are
 * missing. A storage node counts as ready when metad lists it with the addresses that its daemon
 * has written down: those of an earlier life have another port.
 */
#include "client/tools/gfs_metad.h"
#include "client/tools/gfs_tool.h"
#include "client/tools/gfs_up.h"
#include "core.pb-c.h"
#include <fcntl.h>
#include <signal.h>

#define RPC_SERVICE_CORE
#include "rpc/rpc_stub.h"

#define ANSWER_WAIT_NS (10 * GX_NSEC_PER_SEC)
#define REGISTER_WAIT_MS 60000u
#define KEYS_WAIT_MS 30000u
#define POLL_MS 20
#define LOG_TAIL_BYTES 4096u /* of a log that is shown after a failure */
#define METAD_PROGRAM "gfs-metad"
#define NODE_PROGRAM "gfs-fsd"

/* -- one daemon ----------------------------------------------------------------------------------
 */

static uint64_t file_bytes(struct gx_env *env, const char *path)
{
	struct stat st;

	return gx_env_stat(env, path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* What the log has got since it was `from` bytes long, at most its end. */
static void show_log(struct gx_env *env, const char *path, uint64_t from)
{
	char text[LOG_TAIL_BYTES + 1];
	uint64_t bytes = file_bytes(env, path);
	char *rest = text, *line;
	int fd = gx_env_open(env, path, O_RDONLY, 0);
	ssize_t n;

	if (fd < 0)
		return;
	if (bytes > LOG_TAIL_BYTES && bytes - LOG_TAIL_BYTES > from)
		from = bytes - LOG_TAIL_BYTES;
	n = gx_env_pread(env, fd, text, LOG_TAIL_BYTES, from);
	gx_env_close(env, fd);
	text[n > 0 ? n : 0] = '\0';
	while ((line = strsep(&rest, "\n")) != NULL)
		if (*line)
			fprintf(stderr, "  %s\n", line);
}

static int start(struct gfs_up *up, struct gfs_up_daemon *daemon, const char *program)
{
	struct gx_env *env = up->grid.env;
	char conf[GX_PATH_MAX], log[GX_PATH_MAX];
	uint64_t log_bytes;
	int r = GFS_GRID_PATH_OF(&up->grid, GFS_GRID_CONF_OF, daemon->name, conf);

	if (r == 0)
		r = GFS_GRID_PATH_OF(&up->grid, GFS_GRID_LOG_OF, daemon->name, log);
	if (r < 0)
		return gfs_fail("up", GFS_EXIT_FAILED, "%s", gx_strerror(r));
	log_bytes = file_bytes(env, log);
	r = gfs_proc_start(env, program, conf, up->grid.dir);
	if (r == 0) {
		daemon->started = true;
		return 0;
	}
	if (r == -ENOENT)
		return gfs_fail("up", GFS_EXIT_FAILED,
				"there is no %s: not beside gfs, not in ../sbin, not in PATH",
				program);
	if (r == -ETIMEDOUT)
		gfs_fail("up", 0, "%s is still not ready; the end of its log %s:", daemon->name,
			 log);
	else if (r == -ECHILD)
		gfs_fail("up", 0, "%s did not start; the end of its log %s:", daemon->name, log);
	else
		gfs_fail("up", 0, "cannot start %s: %s", program, gx_strerror(r));
	show_log(env, log, log_bytes);
	return GFS_EXIT_FAILED;
}

int gfs_up_find(struct gfs_up *up, const char *name, struct gfs_proc *ret_proc)
{
	char path[GX_PATH_MAX];
	int r = GFS_GRID_PATH_OF(&up->grid, GFS_GRID_PID_OF, name, path);

	if (r == 0)
		r = gfs_proc_find(up->grid.env, path, ret_proc);
	if (r == -EAGAIN)
		gfs_fail("up", 0, "%s is just starting or stopping; try again", name);
	else if (r < 0)
		gfs_fail("up", 0, "%s: %s", path, gx_strerror(r));
	return r < 0 ? -1 : r;
}

static int ensure(struct gfs_up *up, struct gfs_up_daemon *daemon, const char *program)
{
	struct gfs_proc proc;
	int found = gfs_up_find(up, daemon->name, &proc);

	if (found == 0) {
		int code = start(up, daemon, program);

		if (code)
			return code;
		found = gfs_up_find(up, daemon->name, &proc);
		if (found == 0)
			gfs_fail("up", 0, "%s has ended again; see its log in %s/" GFS_GRID_LOG,
				 daemon->name, up->grid.dir);
	}
	if (found <= 0)
		return GFS_EXIT_FAILED;
	daemon->pid = proc.pid;
	gfs_proc_close(up->grid.env, &proc);
	return 0;
}

void gfs_up_read_addresses(struct gfs_up *up, struct gfs_up_daemon *daemon)
{
	char path[GX_PATH_MAX];
	ssize_t n;
	int fd;

	if (GFS_GRID_PATH_OF(&up->grid, GFS_GRID_ADDR_OF, daemon->name, path) < 0)
		return;
	fd = gx_env_open(up->grid.env, path, O_RDONLY, 0);
	if (fd < 0)
		return;
	n = gx_env_pread(up->grid.env, fd, daemon->addresses, sizeof(daemon->addresses) - 1, 0);
	daemon->addresses[n > 0 ? n : 0] = '\0';
	gx_env_close(up->grid.env, fd);
}

/* -- metad ---------------------------------------------------------------------------------------
 */

/* Whoever answers on the socket knows our key; tries until the deadline. */
static int call_metad(struct rpc_client *client, struct gx_buf *errors)
{
	PbCore__PingRequest request = PB_CORE__PING_REQUEST__INIT;
	struct rpc_call_options options = {.errors = errors};
	const PbCore__PingReply *message;
	struct rpc_reply reply;
	int r;

	rpc_reply_init(&reply);
	r = core_call_ping(client, &request, &options, &reply, &message);
	rpc_reply_fini(&reply);
	return r;
}

static int ensure_metad(struct gfs_up *up, struct rpc_client **ret_client, struct gx_buf *errors)
{
	struct gx_env *env = up->grid.env;
	char conf[GX_PATH_MAX];
	int r, code = ensure(up, &up->metad, METAD_PROGRAM);

	if (code)
		return code;
	r = gfs_grid_path(&up->grid, GFS_GRID_CLIENT_CONF, conf);
	if (r == 0)
		r = gfs_metad_new(env, conf, "gfs-up/" GX_VERSION, ANSWER_WAIT_NS, errors,
				  ret_client);
	if (r == 0)
		r = call_metad(*ret_client, errors);
	if (r < 0) {
		gfs_fail_buf("up", errors, r);
		return gfs_fail("up", GFS_EXIT_FAILED,
				"metad runs (process %lld) but does not answer; gfs down stops it",
				(long long)up->metad.pid);
	}
	gfs_up_read_addresses(up, &up->metad);
	return 0;
}

/* -- a table of keys that metad has read before ------------------------------------------------ */

/* 1: metad lets that node in; 0: not yet. */
static int knows_node(struct gfs_up *up, const char *name, struct gx_buf *errors)
{
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;
	char socket[GX_PATH_MAX], address[GX_PATH_MAX], path[GX_PATH_MAX];
	struct rpc_client *client = NULL;
	struct rpc_key key = {0};
	int r = GFS_GRID_PATH_OF(&up->grid, GFS_GRID_KEY_OF, name, path);

	if (r == 0)
		r = gfs_grid_socket(&up->grid, GFS_GRID_METAD, socket);
	if (r == 0)
		r = gx_format(address, sizeof(address), "unix:%s", socket);
	if (r == 0)
		r = rpc_endpoint_parse(up->grid.env, address, false, &options.endpoint, errors);
	if (r == 0)
		r = rpc_key_load(up->grid.env, path, &key, errors);
	if (r < 0)
		return r;
	options.env = up->grid.env;
	options.identity = key.identity;
	options.key = key.secret;
	options.program = "gfs-up/" GX_VERSION;
	options.connections_max = 1;
	options.timeout_ns = ANSWER_WAIT_NS;
	r = rpc_client_new(&options, &client);
	if (r == 0) {
		r = call_metad(client, errors);
		r = r == 0 ? 1 : r == -EKEYREJECTED || r == -EACCES ? 0 : r;
	}
	gfs_metad_leave(up->grid.env, client);
	rpc_key_clear(&key);
	return r;
}

/* The signal has no answer, so the proof is that metad lets the last of the new nodes in. */
static int wait_for_keys(struct gfs_up *up, struct gx_buf *errors)
{
	int64_t deadline_ns = gx_env_deadline_ms(up->grid.env, KEYS_WAIT_MS);
	int r;

	while ((r = knows_node(up, up->nodes[up->fsd - 1].name, errors)) == 0) {
		int64_t now_ns = gx_env_now_ns(up->grid.env);

		if (now_ns >= deadline_ns)
			return -ETIMEDOUT;
		gx_buf_clear(errors);
		gx_env_sleep_until(up->grid.env, now_ns + POLL_MS * GX_NSEC_PER_MSEC);
	}
	return r < 0 ? r : 0;
}

static int tell_keys(struct gfs_up *up, struct gx_buf *errors)
{
	struct gfs_proc proc;
	int r, found;

	if (!up->keys_changed || up->metad.started || up->fsd == 0)
		return 0;
	found = gfs_up_find(up, up->metad.name, &proc);
	if (found <= 0)
		return found < 0 ? GFS_EXIT_FAILED
				 : gfs_fail("up", GFS_EXIT_FAILED, "metad has ended");
	r = gfs_proc_signal(&proc, SIGHUP);
	gfs_proc_close(up->grid.env, &proc);
	if (r == 0)
		r = wait_for_keys(up, errors);
	if (r < 0) {
		gfs_fail_buf("up", errors, r);
		return gfs_fail("up", GFS_EXIT_FAILED, "metad has not taken the new keys");
	}
	return 0;
}

/* -- storage nodes -----------------------------------------------------------------------------
 */

/* The node's addresses are, in this order, the lines of the text. */
static bool same_addresses(const PbMeta__Node *node, const char *text)
{
	for (size_t i = 0; i < node->n_addresses; i++) {
		size_t bytes = strlen(node->addresses[i]);

		if (strncmp(text, node->addresses[i], bytes) != 0 || text[bytes] != '\n')
			return false;
		text += bytes + 1;
	}
	return node->n_addresses > 0;
}

static bool is_listed(const PbMeta__StatusReply *status, const struct gfs_up_daemon *node)
{
	for (size_t i = 0; i < status->n_nodes; i++)
		if (status->nodes[i]->up && strcmp(status->nodes[i]->name, node->name) == 0)
			return same_addresses(status->nodes[i], node->addresses);
	return false;
}

/* 1: all are there; 0: *ret_missing is not. */
static int ask_for_nodes(struct gfs_up *up, struct rpc_client *client, struct gx_buf *errors,
			 const char **ret_missing)
{
	const PbMeta__StatusReply *message;
	struct rpc_reply reply;
	int r;

	rpc_reply_init(&reply);
	r = gfs_metad_status(client, false, errors, &reply, &message);
	*ret_missing = NULL;
	for (uint64_t i = 0; r == 0 && i < up->fsd; i++)
		if (!*ret_missing && !is_listed(message, &up->nodes[i]))
			*ret_missing = up->nodes[i].name;
	rpc_reply_fini(&reply);
	return r < 0 ? r : *ret_missing == NULL;
}

static int wait_for_nodes(struct gfs_up *up, struct rpc_client *client, struct gx_buf *errors)
{
	int64_t deadline_ns = gx_env_deadline_ms(up->grid.env, REGISTER_WAIT_MS);
	const char *missing;
	int r;

	while ((r = ask_for_nodes(up, client, errors, &missing)) == 0) {
		int64_t now_ns = gx_env_now_ns(up->grid.env);

		if (now_ns >= deadline_ns)
			return gfs_fail("up", GFS_EXIT_FAILED,
					"%s runs but has not registered with metad; see its log in "
					"%s/" GFS_GRID_LOG,
					missing, up->grid.dir);
		gx_env_sleep_until(up->grid.env, now_ns + POLL_MS * GX_NSEC_PER_MSEC);
	}
	return r < 0 ? gfs_fail_buf("up", errors, r) : 0;
}

static int ensure_nodes(struct gfs_up *up, struct rpc_client *client, struct gx_buf *errors)
{
	int code = tell_keys(up, errors);

	for (uint64_t i = 0; code == 0 && i < up->fsd; i++) {
		code = ensure(up, &up->nodes[i], NODE_PROGRAM);
		if (code == 0)
			gfs_up_read_addresses(up, &up->nodes[i]);
	}
	return code == 0 && up->fsd > 0 ? wait_for_nodes(up, client, errors) : code;
}

int gfs_up_run(struct gfs_up *up)
{
	struct rpc_client *client = NULL;
	struct gx_buf errors;
	int code;

	GX_IGNORE(gx_strcpy(up->metad.name, sizeof(up->metad.name), GFS_GRID_METAD)); /* fits */
	gx_buf_init(&errors, 8192);
	code = ensure_metad(up, &client, &errors);
	gx_buf_clear(&errors);
	if (code == 0)
		code = ensure_nodes(up, client, &errors);
	gx_buf_fini(&errors);
	gfs_metad_leave(up->grid.env, client);
	return code;
}
