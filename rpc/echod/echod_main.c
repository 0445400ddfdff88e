/*
 * gfs-echod - the smallest daemon of the grid: ping, echo, bulk, once-only
 * counting and pushes, to prove a network, keys and TLS before anything big
 * depends on them.
 */
#define GX_LOG_COMPONENT "echod"
#include "common/gx_log.h"
#include "rpc/echod/echo_service.h"
#include "rpc/rpc_daemon.h"
#include "rpc/rpc_serve.h"

#define PROGRAM "gfs-echod"
#define DRAIN_NS (5 * GX_NSEC_PER_SEC)

struct echod_conf {
	struct gx_daemon_conf daemon;
	struct rpc_daemon_conf rpc;
	char *bulk_listen;
	int64_t session_linger;
};

static struct echod_conf conf;

static const struct gx_conf_row rows[] = {
	GX_DAEMON_CONF_ROWS(struct echod_conf, daemon),
	RPC_DAEMON_CONF_ROWS("echo", struct echod_conf, rpc, "echo", "127.0.0.1:7600"),
	{"echo", "bulk_listen", GX_CONF_LIST, offsetof(struct echod_conf, bulk_listen), NULL, NULL,
	 NULL, NULL, 0, "Addresses served by one thread per connection, for large payloads."},
	{"echo", "session_linger", GX_CONF_DURATION, offsetof(struct echod_conf, session_linger),
	 "60s", "1s", "1d", NULL, 0,
	 "How long a session outlives its last connection, so that a client can come back."},
};

static const struct gx_conf_table table = {PROGRAM, rows, GX_COUNT_OF(rows),
					   sizeof(struct echod_conf)};

struct echod {
	struct rpc_keytab *keys;
	struct rpc_auth auth;
	struct rpc_sessions *sessions;
	struct rpc_dispatcher dispatcher, bulk_dispatcher;
	struct echo_service service, bulk_service;
	struct rpc_server *server;
	struct rpc_serve *bulk;
	struct gx_buf addresses;
	bool addresses_written;
	unsigned draining; /* servers whose drain is not over */
};

static int echod_check(const void *config, struct gx_env *env, struct gx_buf *errors)
{
	const struct echod_conf *c = config;
	int r = rpc_daemon_check_addresses(env, c->rpc.listen, c->rpc.insecure, errors);
	int bulk = rpc_daemon_check_addresses(env, c->bulk_listen, c->rpc.insecure, errors);

	return r < 0 || bulk < 0 ? -EINVAL : 0;
}

static int server_listen(void *server, const struct rpc_endpoint *endpoint,
			 struct rpc_endpoint *ret_bound)
{
	return rpc_server_listen(server, endpoint, ret_bound);
}

static int bulk_listen(void *serve, const struct rpc_endpoint *endpoint,
		       struct rpc_endpoint *ret_bound)
{
	return rpc_serve_listen(serve, endpoint, ret_bound);
}

static int start_server(struct gx_daemon *d, struct echod *echod, uint64_t boot)
{
	struct rpc_server_options options = RPC_SERVER_OPTIONS_INIT;
	int r;

	rpc_dispatcher_init(&echod->dispatcher, d->env, conf.rpc.name, PROGRAM "/" GX_VERSION);
	echod->dispatcher.replay = rpc_sessions_replay(echod->sessions);
	r = echo_service_init(&echod->service, d->env);
	if (r < 0)
		return r;
	rpc_dispatcher_add(&echod->dispatcher, &echo_service_table, &echod->service);
	options.loop = d->loop;
	options.dispatcher = &echod->dispatcher;
	options.auth = &echod->auth;
	options.sessions = echod->sessions;
	options.boot = boot;
	options.connections_max = (unsigned)conf.rpc.connections_max;
	options.half_open_max = (unsigned)conf.rpc.half_open_max;
	options.handshake_ns = conf.rpc.handshake_timeout;
	r = rpc_server_new(&options, &echod->server);
	if (r < 0)
		return r;
	echod->service.loop = d->loop;
	echod->service.server = echod->server;
	return rpc_daemon_listen(d->env, conf.rpc.listen, conf.rpc.insecure, server_listen,
				 echod->server, &echod->addresses);
}

static int start_bulk(struct gx_daemon *d, struct echod *echod, uint64_t boot)
{
	struct rpc_serve_options options = RPC_SERVE_OPTIONS_INIT;
	int r;

	rpc_dispatcher_init(&echod->bulk_dispatcher, d->env, conf.rpc.name, PROGRAM "/" GX_VERSION);
	r = echo_service_init(&echod->bulk_service, d->env);
	if (r < 0)
		return r;
	rpc_dispatcher_add(&echod->bulk_dispatcher, &echo_service_table, &echod->bulk_service);
	options.loop = d->loop;
	options.dispatcher = &echod->bulk_dispatcher;
	options.auth = &echod->auth;
	options.sessions = echod->sessions;
	options.boot = boot;
	options.handshake_ns = conf.rpc.handshake_timeout;
	r = rpc_serve_new(&options, &echod->bulk);
	if (r < 0)
		return r;
	return rpc_daemon_listen(d->env, conf.bulk_listen, conf.rpc.insecure, bulk_listen,
				 echod->bulk, &echod->addresses);
}

static int echod_start(struct gx_daemon *d)
{
	struct echod *echod = calloc(1, sizeof(*echod));
	uint64_t boot;
	int r;

	if (!echod)
		return gx_log_errno(ERR, -ENOMEM, "cannot start");
	d->data = echod;
	gx_buf_init(&echod->addresses, GX_CONF_FILE_MAX);
	r = rpc_daemon_load_keys(d->env, conf.rpc.keys, &echod->keys);
	if (r < 0)
		return r;
	echod->auth = (struct rpc_auth){.env = d->env, .keys = echod->keys};
	r = gx_env_random(d->env, &boot, sizeof(boot));
	if (r == 0)
		r = rpc_sessions_new(d->env, conf.session_linger, &echod->sessions);
	if (r == 0)
		r = start_server(d, echod, boot);
	if (r == 0 && conf.bulk_listen && conf.bulk_listen[0])
		r = start_bulk(d, echod, boot);
	if (r == 0)
		r = rpc_daemon_write_addresses(d->env, conf.rpc.address_file, &echod->addresses);
	echod->addresses_written = r == 0;
	return r < 0 ? gx_log_errno(ERR, r, "cannot start") : 0;
}

static void on_drained(void *arg)
{
	struct gx_daemon *d = arg;
	struct echod *echod = d->data;

	if (--echod->draining == 0)
		gx_loop_stop(d->loop);
}

static void echod_stop(struct gx_daemon *d)
{
	struct echod *echod = d->data;
	int64_t deadline_ns = gx_env_now_ns(d->env) + DRAIN_NS;

	echod->draining = echod->bulk ? 2 : 1;
	if (echod->bulk)
		rpc_serve_drain(echod->bulk, deadline_ns, on_drained, d);
	rpc_server_drain(echod->server, deadline_ns, on_drained, d);
}

static void echod_finish(struct gx_daemon *d)
{
	struct echod *echod = d->data;

	if (!echod)
		return;
	rpc_serve_free(echod->bulk);
	echo_service_fini(&echod->bulk_service);
	echo_service_fini(&echod->service);
	rpc_server_free(echod->server);
	rpc_sessions_free(echod->sessions);
	rpc_keytab_free(echod->keys);
	/* Only our own: after a failed start it may be that of the daemon that is in our way. */
	if (echod->addresses_written && conf.rpc.address_file)
		GX_IGNORE(gx_env_unlink(d->env, conf.rpc.address_file));
	gx_buf_fini(&echod->addresses);
	free(echod);
}

int main(int argc, char **argv)
{
	static const struct gx_daemon_spec spec = {
		.program = PROGRAM,
		.synopsis = "echo daemon of the Gridstage wire",
		.default_conf = "gridstage/echod.conf",
		.table = &table,
		.config = &conf,
		.daemon_conf = &conf.daemon,
		.check = echod_check,
		.start = echod_start,
		.stop = echod_stop,
		.finish = echod_finish,
	};

	return gx_daemon_main(&spec, argc, argv);
}
