/*
 * gfs-echod - the smallest daemon of the grid: ping, echo, bulk, once-only
 * counting and pushes, to prove a network, keys and TLS before anything big
 * depends on them.
 */
#define GX_LOG_COMPONENT "echod"
#include "common/gx_daemon.h"
#include "common/gx_log.h"
#include "rpc/echod/echo_service.h"
#include "rpc/rpc_serve.h"
#include <fcntl.h>

#define PROGRAM "gfs-echod"
#define DRAIN_NS (5 * GX_NSEC_PER_SEC)

struct echod_conf {
	struct gx_daemon_conf daemon;
	char *name;
	char *listen;
	char *bulk_listen;
	char *address_file;
	char *keys;
	bool insecure;
	uint64_t connections_max;
	uint64_t half_open_max;
	int64_t handshake_timeout;
	int64_t session_linger;
};

static struct echod_conf conf;

static const struct gx_conf_row rows[] = {
	GX_DAEMON_CONF_ROWS(struct echod_conf, daemon),
	{"echo", "name", GX_CONF_STRING, offsetof(struct echod_conf, name), "echo", NULL, NULL,
	 NULL, 0, "The daemon's name, as clients see it."},
	{"echo", "listen", GX_CONF_LIST, offsetof(struct echod_conf, listen), "127.0.0.1:7600",
	 NULL, NULL, NULL, 0,
	 "Addresses to listen on: HOST:PORT, unix:/PATH, each optionally behind tls:. "
	 "Port 0 picks a free one. Beyond loopback it is always TLS."},
	{"echo", "bulk_listen", GX_CONF_LIST, offsetof(struct echod_conf, bulk_listen), NULL, NULL,
	 NULL, NULL, 0, "Addresses served by one thread per connection, for large payloads."},
	{"echo", "address_file", GX_CONF_PATH, offsetof(struct echod_conf, address_file), NULL,
	 NULL, NULL, NULL, 0,
	 "Write the addresses really bound to this file, one a line, once ready."},
	{"echo", "keys", GX_CONF_PATH, offsetof(struct echod_conf, keys), NULL, NULL, NULL, NULL,
	 GX_CONF_REQUIRED | GX_CONF_SECRET, "Key table: who may connect. Made with gfs key."},
	{"echo", "insecure", GX_CONF_BOOL, offsetof(struct echod_conf, insecure), "no", NULL, NULL,
	 NULL, 0, "Allow listening beyond this machine without TLS. Do not."},
	{"echo", "connections_max", GX_CONF_U64, offsetof(struct echod_conf, connections_max),
	 "4096", "1", "1000000", NULL, 0, "Connections at the same time."},
	{"echo", "half_open_max", GX_CONF_U64, offsetof(struct echod_conf, half_open_max), "1024",
	 "1", "100000", NULL, 0, "Of those, how many may not have authenticated yet."},
	{"echo", "handshake_timeout", GX_CONF_DURATION,
	 offsetof(struct echod_conf, handshake_timeout), "10s", "100ms", "10m", NULL, 0,
	 "Time a connection has to authenticate."},
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

typedef int (*listen_fn)(void *server, const struct rpc_endpoint *endpoint,
			 struct rpc_endpoint *ret_bound);

/* Calls fn for each address of a comma-separated list. */
static int each_address(struct gx_env *env, const char *list, bool insecure, struct gx_buf *errors,
			listen_fn fn, void *server, struct gx_buf *bound_out)
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

static int echod_check(const void *config, struct gx_env *env, struct gx_buf *errors)
{
	const struct echod_conf *c = config;
	int r = each_address(env, c->listen, c->insecure, errors, NULL, NULL, NULL);
	int bulk = each_address(env, c->bulk_listen, c->insecure, errors, NULL, NULL, NULL);

	return r < 0 || bulk < 0 ? -EINVAL : 0;
}

static int load_keys(struct gx_daemon *d, struct rpc_keytab **ret_keys)
{
	GX_CLEANUP(rpc_keytab_freep) struct rpc_keytab *keys = NULL;
	struct gx_buf errors;
	int r;

	gx_buf_init(&errors, GX_CONF_LINE_MAX);
	r = rpc_keytab_new(&keys);
	if (r == 0)
		r = rpc_keytab_load(keys, d->env, conf.keys, &errors);
	if (r < 0)
		gx_log(ERR, "cannot load the key table", GX_KS("problem", gx_buf_text(&errors)),
		       GX_KE(r));
	else
		*ret_keys = GX_TAKE(keys);
	gx_buf_fini(&errors);
	return r;
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

	rpc_dispatcher_init(&echod->dispatcher, d->env, conf.name, PROGRAM "/" GX_VERSION);
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
	options.connections_max = (unsigned)conf.connections_max;
	options.half_open_max = (unsigned)conf.half_open_max;
	options.handshake_ns = conf.handshake_timeout;
	r = rpc_server_new(&options, &echod->server);
	if (r < 0)
		return r;
	echod->service.loop = d->loop;
	echod->service.server = echod->server;
	return each_address(d->env, conf.listen, conf.insecure, NULL, server_listen, echod->server,
			    &echod->addresses);
}

static int start_bulk(struct gx_daemon *d, struct echod *echod, uint64_t boot)
{
	struct rpc_serve_options options = RPC_SERVE_OPTIONS_INIT;
	int r;

	rpc_dispatcher_init(&echod->bulk_dispatcher, d->env, conf.name, PROGRAM "/" GX_VERSION);
	r = echo_service_init(&echod->bulk_service, d->env);
	if (r < 0)
		return r;
	rpc_dispatcher_add(&echod->bulk_dispatcher, &echo_service_table, &echod->bulk_service);
	options.loop = d->loop;
	options.dispatcher = &echod->bulk_dispatcher;
	options.auth = &echod->auth;
	options.sessions = echod->sessions;
	options.boot = boot;
	options.handshake_ns = conf.handshake_timeout;
	r = rpc_serve_new(&options, &echod->bulk);
	if (r < 0)
		return r;
	return each_address(d->env, conf.bulk_listen, conf.insecure, NULL, bulk_listen, echod->bulk,
			    &echod->addresses);
}

/* Written beside and renamed, so that a reader finds all of it or nothing. */
static int write_addresses(struct gx_daemon *d, struct echod *echod)
{
	const struct gx_buf *addresses = &echod->addresses;
	char temporary[GX_PATH_MAX];
	int fd, r, closed;

	if (!conf.address_file || !conf.address_file[0])
		return 0;
	r = gx_format(temporary, sizeof(temporary), "%s.new", conf.address_file);
	if (r < 0)
		return -ENAMETOOLONG;
	fd = gx_env_open(d->env, temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0)
		return fd;
	r = gx_env_pwrite(d->env, fd, addresses->data, addresses->bytes, 0);
	closed = gx_env_close(d->env, fd);
	if (r == 0)
		r = closed;
	if (r == 0)
		r = gx_env_rename(d->env, temporary, conf.address_file);
	if (r < 0)
		GX_IGNORE(gx_env_unlink(d->env, temporary));
	else
		echod->addresses_written = true;
	return r;
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
	r = load_keys(d, &echod->keys);
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
		r = write_addresses(d, echod);
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
	if (echod->addresses_written)
		GX_IGNORE(gx_env_unlink(d->env, conf.address_file));
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
