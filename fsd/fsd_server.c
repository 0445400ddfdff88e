#define GX_LOG_COMPONENT "fsd"
#include "fsd/fsd_server.h"
#include "common/gx_log.h"
#include "common/gx_secret.h"
#include "common/gx_sum.h"
#include "fsd/fsd_server_impl.h"
#include <fcntl.h>

#define BOOT_FILE "/proc/sys/kernel/random/boot_id"
#define BOOT_TEXT_BYTES 36u
#define TICK_NS GX_NSEC_PER_SEC
#define ADDRESSES_BYTES_MAX 4096u
/* So that a client whose connection broke can ask "was that done?" on the next one. */
#define SESSION_LINGER_NS (60 * GX_NSEC_PER_SEC)

/* -- boot ------------------------------------------------------------------------------------- */

static int read_boot(struct gx_env *env, uint64_t *ret_boot)
{
	char text[BOOT_TEXT_BYTES];
	ssize_t n;
	int fd = gx_env_open(env, BOOT_FILE, O_RDONLY, 0);

	if (fd < 0)
		return fd;
	n = gx_env_pread(env, fd, text, sizeof(text), 0);
	GX_IGNORE(gx_env_close(env, fd));
	if (n != (ssize_t)sizeof(text))
		return n < 0 ? (int)n : -ENODATA;
	*ret_boot = gx_sum64(text, sizeof(text));
	return 0;
}

/*
 * The life of the machine, for that is how long bytes in the page cache last (rule B3). Where the
 * kernel does not tell, each start is another one: writers then send again what was not lost.
 */
static int find_boot(struct fsd_server *server)
{
	int r;

	server->boot = server->options.boot;
	if (server->boot != 0)
		return 0;
	r = read_boot(server->env, &server->boot);
	if (r == 0 && server->boot != 0)
		return 0;
	gx_log(WARNING, "cannot tell when this machine was started: a restart counts as a crash",
	       GX_KS("file", BOOT_FILE), GX_KE(r));
	return gx_env_random(server->env, &server->boot, sizeof(server->boot));
}

/* -- life ------------------------------------------------------------------------------------- */

static void on_tick(struct gx_timer *timer)
{
	struct fsd_server *server = GX_CONTAINER_OF(timer, struct fsd_server, tick);

	rpc_sessions_expire(server->sessions);
	/* Without memory for a timer old sessions stay; the table has its maximum. */
	GX_IGNORE(gx_timer_start(server->loop, &server->tick,
				 gx_loop_now_ns(server->loop) + TICK_NS, on_tick));
}

static int init_auth(struct fsd_server *server)
{
	const struct fsd_server_options *options = &server->options;

	if (options->key->kind != RPC_IDENTITY_HOST ||
	    strcmp(rpc_identity_name(options->key->identity), options->name) != 0) {
		gx_log(ERR, "the key is not that of this node",
		       GX_KS("key", options->key->identity), GX_KS("name", options->name));
		return -EKEYREJECTED;
	}
	server->auth = (struct rpc_auth){.env = server->env,
					 .keys = options->keys,
					 .node = options->name,
					 .skew_ns = FSD_SKEW_NS};
	return rpc_node_key(options->key->secret, server->auth.node_key);
}

static int start_rpc(struct fsd_server *server)
{
	struct rpc_serve_options options = RPC_SERVE_OPTIONS_INIT;
	int r = rpc_sessions_new(server->env, SESSION_LINGER_NS, &server->sessions);

	if (r < 0)
		return r;
	rpc_dispatcher_init(&server->dispatcher, server->env, server->options.name,
			    server->options.program);
	server->dispatcher.replay = rpc_sessions_replay(server->sessions);
	server->dispatcher.loop = server->loop;
	rpc_dispatcher_add(&server->dispatcher, &fsd_service_table, server->service);
	options.loop = server->loop;
	options.dispatcher = &server->dispatcher;
	options.auth = &server->auth;
	options.sessions = server->sessions;
	options.threads_max = server->options.threads_max;
	options.handshake_ns = server->options.handshake_ns;
	/* Of the process: what clients ask again is in the memory of this one, or of none. */
	r = gx_env_random(server->env, &options.boot, sizeof(options.boot));
	return r < 0 ? r : rpc_serve_new(&options, &server->serve);
}

static int start(struct fsd_server *server)
{
	int r = init_auth(server);

	if (r == 0)
		r = find_boot(server);
	if (r == 0)
		r = fsd_table_new(server, &server->table);
	if (r == 0)
		r = fsd_syncer_new(server, &server->syncer);
	if (r == 0)
		r = fsd_service_new(server, &server->service);
	if (r == 0)
		r = start_rpc(server);
	if (r == 0 && server->options.metad.addr.kind != GX_ADDR_NONE)
		r = fsd_agent_new(server, &server->agent);
	if (r == 0)
		r = gx_timer_start(server->loop, &server->tick,
				   gx_env_now_ns(server->env) + TICK_NS, on_tick);
	return r;
}

static void on_closed(struct gx_task *task);

int fsd_server_new(const struct fsd_server_options *options, struct fsd_server **ret_server)
{
	struct fsd_server *server = calloc(1, sizeof(*server));
	uint64_t capacity, free_bytes;
	int r;

	if (!server)
		return -ENOMEM;
	server->env = options->env;
	server->loop = options->loop;
	server->options = *options;
	server->closed.fn = on_closed;
	gx_buf_init(&server->addresses, ADDRESSES_BYTES_MAX);
	r = start(server);
	if (r < 0) {
		fsd_server_free(server);
		return r;
	}
	fsd_table_space(server->table, &capacity, &free_bytes);
	gx_log(NOTICE, "spools ready", GX_KU("spools", options->spool_count),
	       GX_KU("free", free_bytes), GX_KX("boot", server->boot));
	*ret_server = server;
	return 0;
}

int fsd_server_listen(struct fsd_server *server, const struct rpc_endpoint *endpoint,
		      struct rpc_endpoint *ret_bound)
{
	char text[GX_ADDR_TEXT_MAX];
	int r = rpc_serve_listen(server->serve, endpoint, ret_bound);

	if (r < 0 || server->options.addresses)
		return r;
	rpc_endpoint_format(ret_bound, text);
	return gx_buf_append_format(&server->addresses, "%s\n", text);
}

/* "a,b" becomes a line each. */
static int set_addresses(struct fsd_server *server)
{
	const char *list = server->options.addresses;
	int r = 0;

	while (r == 0 && list && *list) {
		size_t bytes = strcspn(list, ",");

		r = gx_buf_append_format(&server->addresses, "%.*s\n", (int)bytes, list);
		list += bytes + (list[bytes] == ',');
	}
	return r;
}

int fsd_server_start(struct fsd_server *server)
{
	int r = set_addresses(server);

	if (r < 0 || !server->agent)
		return r;
	return fsd_agent_start(server->agent);
}

/* -- the end ---------------------------------------------------------------------------------- */

/* No connection is left. What was written is on disk, and metad knows that and that we go. */
static void close_quietly(struct fsd_server *server)
{
	fsd_syncer_flush(server->syncer);
	/* Each calls the other: one ends, then the other goes, then the first. */
	if (server->agent)
		fsd_agent_stop(server->agent);
	fsd_syncer_free(server->syncer);
	server->syncer = NULL;
	fsd_agent_free(server->agent);
	server->agent = NULL;
}

static void on_closed(struct gx_task *task)
{
	struct fsd_server *server = GX_CONTAINER_OF(task, struct fsd_server, closed);

	if (server->closer_runs)
		gx_env_thread_join(server->env, &server->closer);
	server->closer_runs = false;
	server->drained_fn(server->drained_arg);
}

static void closer_main(void *arg)
{
	struct fsd_server *server = arg;

	close_quietly(server);
	gx_loop_post(server->loop, &server->closed);
}

/* A disk may take its time, and the loop has signals to hear. */
static void on_drained(void *arg)
{
	struct fsd_server *server = arg;

	server->closer_runs = gx_env_thread_start(server->env, &server->closer, "fsd-closer",
						  closer_main, server) == 0;
	if (server->closer_runs)
		return;
	close_quietly(server);
	gx_loop_post(server->loop, &server->closed);
}

void fsd_server_drain(struct fsd_server *server, int64_t deadline_ns, rpc_drained_fn fn, void *arg)
{
	server->drained_fn = fn;
	server->drained_arg = arg;
	rpc_serve_drain(server->serve, deadline_ns, on_drained, server);
}

void fsd_server_free(struct fsd_server *server)
{
	if (!server)
		return;
	if (server->closer_runs)
		gx_env_thread_join(server->env, &server->closer);
	gx_loop_unpost(server->loop, &server->closed);
	gx_timer_stop(&server->tick);
	/* It looks at the connections' counters. */
	if (server->agent)
		fsd_agent_stop(server->agent);
	/* From the outside in: each uses the next; connections wait for the syncer. */
	rpc_serve_free(server->serve);
	fsd_syncer_free(server->syncer);
	fsd_agent_free(server->agent);
	fsd_service_free(server->service);
	rpc_sessions_free(server->sessions);
	fsd_table_free(server->table);
	gx_wipe(server->auth.node_key, sizeof(server->auth.node_key));
	gx_buf_fini(&server->addresses);
	free(server);
}

bool fsd_server_known(struct fsd_server *server)
{
	return fsd_agent_known(server->agent);
}

struct rpc_dispatcher *fsd_server_dispatcher(struct fsd_server *server)
{
	return &server->dispatcher;
}
