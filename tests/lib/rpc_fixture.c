#include "tests/lib/rpc_fixture.h"
#include "common/gx_log.h"
#include "rpc/rpc_conn.h"
#include "rpc/rpc_serve.h"
#include <stdio.h>
#include <unistd.h>

#define LOG_BYTES_MAX (32u * 1024 * 1024)
#define WAIT_MS 10000u

struct rpc_fixture {
	struct gx_env *env;
	struct rpc_fixture_options options;
	char dir[64];
	struct rpc_endpoint endpoints[RPC_FIXTURE_COUNT];
	struct rpc_keytab *keys;
	struct rpc_auth auth;

	bool is_up;
	struct gx_loop *loop;
	struct gx_thread thread;
	struct rpc_sessions *sessions;
	struct rpc_dispatcher dispatcher, thread_dispatcher;
	struct echo_service service, thread_service;
	struct rpc_server *server;
	struct rpc_serve *serve;

	struct gx_mutex lock; /* all below */
	struct gx_cond changed;
	bool drained;
	struct gx_buf log; /* lines, each with its newline */
};

static const struct {
	const char *identity;
	unsigned char seed; /* the key is this byte 32 times: known, and different for each */
	bool admin, in_table, expired;
} people[RPC_FIXTURE_WHO_COUNT] = {
	[RPC_FIXTURE_ALICE] = {"user:alice", 0xa1, false, true, false},
	[RPC_FIXTURE_BOB] = {"user:bob", 0xb0, false, true, false},
	[RPC_FIXTURE_ROOT] = {"user:root", 0x40, true, true, false},
	[RPC_FIXTURE_HOST] = {"host:fsd1", 0xfd, false, true, false},
	[RPC_FIXTURE_EXPIRED] = {"user:late", 0x1a, false, true, true},
	[RPC_FIXTURE_STRANGER] = {"user:mallory", 0x66, false, false, false},
	[RPC_FIXTURE_IMPOSTOR] = {"user:alice", 0x67, false, false, false},
};

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "rpc_fixture: %s: %s\n", what, gx_strerror(r));
	abort();
}

/* -- log ---------------------------------------------------------------------------- */

static void on_log(void *arg, enum gx_log_level level GX_UNUSED, const char *line)
{
	struct rpc_fixture *f = arg;

	gx_env_mutex_lock(f->env, &f->lock);
	must(gx_buf_append_format(&f->log, "%s\n", line), "too much log");
	gx_env_cond_broadcast(f->env, &f->changed);
	gx_env_mutex_unlock(f->env, &f->lock);
}

static bool line_has(const char *line, size_t bytes, const char *text)
{
	return !text || memmem(line, bytes, text, strlen(text)) != NULL;
}

static bool log_has_locked(struct rpc_fixture *f, const char *text, const char *also)
{
	const char *line = gx_buf_text(&f->log);
	bool found = false;

	while (line && *line && !found) {
		size_t bytes = strcspn(line, "\n");

		found = line_has(line, bytes, text) && line_has(line, bytes, also);
		line += bytes + 1;
	}
	return found;
}

bool rpc_fixture_log_has(struct rpc_fixture *f, const char *text, const char *also)
{
	bool found;

	gx_env_mutex_lock(f->env, &f->lock);
	found = log_has_locked(f, text, also);
	gx_env_mutex_unlock(f->env, &f->lock);
	return found;
}

bool rpc_fixture_log_wait(struct rpc_fixture *f, const char *text, const char *also)
{
	int64_t deadline_ns = gx_env_deadline_ms(f->env, WAIT_MS);
	bool found;
	int r = 0;

	gx_env_mutex_lock(f->env, &f->lock);
	while (!(found = log_has_locked(f, text, also)) && r == 0)
		r = gx_env_cond_wait(f->env, &f->changed, &f->lock, deadline_ns);
	gx_env_mutex_unlock(f->env, &f->lock);
	return found;
}

void rpc_fixture_log_clear(struct rpc_fixture *f)
{
	gx_env_mutex_lock(f->env, &f->lock);
	gx_buf_clear(&f->log);
	gx_env_mutex_unlock(f->env, &f->lock);
}

void rpc_fixture_log_print(struct rpc_fixture *f)
{
	gx_env_mutex_lock(f->env, &f->lock);
	fwrite(f->log.data, 1, f->log.bytes, stderr);
	gx_env_mutex_unlock(f->env, &f->lock);
}

/* -- keys ----------------------------------------------------------------------------- */

const char *rpc_fixture_identity(enum rpc_fixture_who who)
{
	return people[who].identity;
}

const unsigned char *rpc_fixture_key(enum rpc_fixture_who who)
{
	static _Thread_local unsigned char keys[RPC_FIXTURE_WHO_COUNT][RPC_KEY_BYTES];

	memset(keys[who], people[who].seed, RPC_KEY_BYTES);
	return keys[who];
}

static void make_keys(struct rpc_fixture *f)
{
	int64_t now = gx_env_wall_ns(f->env);

	must(rpc_keytab_new(&f->keys), "key table");
	for (unsigned i = 0; i < RPC_FIXTURE_WHO_COUNT; i++) {
		struct rpc_key key = {.admin = people[i].admin,
				      .created_ns = now - 2 * GX_NSEC_PER_SEC};

		if (!people[i].in_table)
			continue;
		if (people[i].expired)
			key.expires_ns = now - GX_NSEC_PER_SEC;
		must(rpc_identity_parse(people[i].identity, &key.kind), "identity");
		must(gx_strcpy(key.identity, sizeof(key.identity), people[i].identity), "identity");
		memcpy(key.secret, rpc_fixture_key(i), RPC_KEY_BYTES);
		must(rpc_keytab_put(f->keys, &key, false), "key");
	}
}

/* -- server ------------------------------------------------------------------------------ */

static void loop_main(void *arg)
{
	struct rpc_fixture *f = arg;

	must(gx_loop_run(f->loop), "loop");
}

static void first_addresses(struct rpc_fixture *f)
{
	static const char *const tcp[RPC_FIXTURE_COUNT] = {
		[RPC_FIXTURE_PLAIN] = "plain:127.0.0.1:0",
		[RPC_FIXTURE_TLS] = "tls:127.0.0.1:0",
		[RPC_FIXTURE_THREAD_PLAIN] = "plain:127.0.0.1:0",
		[RPC_FIXTURE_THREAD_TLS] = "tls:127.0.0.1:0",
	};

	for (unsigned kind = 0; kind < RPC_FIXTURE_COUNT; kind++) {
		char text[GX_ADDR_TEXT_MAX];

		if (tcp[kind])
			must(gx_format(text, sizeof(text), "%s", tcp[kind]), "address");
		else if (kind == RPC_FIXTURE_UNIX)
			must(gx_format(text, sizeof(text), "unix:%s/plain", f->dir), "address");
		else
			must(gx_format(text, sizeof(text), "tls:unix:%s/tls", f->dir), "address");
		must(rpc_endpoint_parse(f->env, text, false, &f->endpoints[kind], NULL), text);
	}
}

static void make_loop_server(struct rpc_fixture *f, uint64_t boot)
{
	struct rpc_server_options options = RPC_SERVER_OPTIONS_INIT;

	rpc_dispatcher_init(&f->dispatcher, f->env, "fixture", "fixture/1");
	f->dispatcher.replay = rpc_sessions_replay(f->sessions);
	must(echo_service_init(&f->service, f->env), "echo service");
	rpc_dispatcher_add(&f->dispatcher, &echo_service_table, &f->service);
	options.loop = f->loop;
	options.dispatcher = &f->dispatcher;
	options.auth = &f->auth;
	options.sessions = f->sessions;
	options.boot = boot;
	options.connections_max = f->options.connections_max;
	options.half_open_max = f->options.half_open_max;
	options.handshake_ns = f->options.handshake_ns;
	options.payload_pool_bytes = f->options.payload_pool_bytes;
	must(rpc_server_new(&options, &f->server), "server");
	f->service.loop = f->loop;
	f->service.server = f->server;
}

static void make_thread_server(struct rpc_fixture *f, uint64_t boot)
{
	struct rpc_serve_options options = RPC_SERVE_OPTIONS_INIT;

	rpc_dispatcher_init(&f->thread_dispatcher, f->env, "fixture", "fixture/1");
	must(echo_service_init(&f->thread_service, f->env), "echo service");
	rpc_dispatcher_add(&f->thread_dispatcher, &echo_service_table, &f->thread_service);
	options.loop = f->loop;
	options.dispatcher = &f->thread_dispatcher;
	options.auth = &f->auth;
	options.sessions = f->sessions;
	options.boot = boot;
	options.threads_max = f->options.connections_max;
	options.handshake_ns = f->options.handshake_ns;
	must(rpc_serve_new(&options, &f->serve), "threaded server");
}

void rpc_fixture_up(struct rpc_fixture *f)
{
	uint64_t boot;

	gx_assert(!f->is_up);
	must(gx_env_random(f->env, &boot, sizeof(boot)), "random");
	must(f->options.poll_loop ? gx_loop_new_poll(f->env, &f->loop)
				  : gx_loop_new(f->env, &f->loop),
	     "loop");
	must(rpc_sessions_new(f->env, f->options.linger_ns, &f->sessions), "sessions");
	make_loop_server(f, boot);
	make_thread_server(f, boot);
	for (unsigned kind = 0; kind < RPC_FIXTURE_COUNT; kind++) {
		struct rpc_endpoint bound;

		/* The address as bound replaces port 0, so the next _up takes the same port. */
		must(kind < RPC_FIXTURE_LOOP_COUNT
			     ? rpc_server_listen(f->server, &f->endpoints[kind], &bound)
			     : rpc_serve_listen(f->serve, &f->endpoints[kind], &bound),
		     "listen");
		f->endpoints[kind] = bound;
	}
	f->drained = false;
	must(gx_env_thread_start(f->env, &f->thread, "fixture", loop_main, f), "thread");
	f->is_up = true;
}

static void close_all(struct rpc_fixture *f, void *arg GX_UNUSED)
{
	while (f->server->conns)
		rpc_conn_close(f->server->conns, "cut by the fixture");
}

void rpc_fixture_down(struct rpc_fixture *f)
{
	gx_assert(f->is_up);
	gx_loop_stop(f->loop);
	gx_env_thread_join(f->env, &f->thread);
	rpc_serve_free(f->serve);
	echo_service_fini(&f->thread_service);
	/* Connections first: a crash does not answer what is still in work. */
	close_all(f, NULL);
	echo_service_fini(&f->service);
	rpc_server_free(f->server);
	rpc_sessions_free(f->sessions);
	gx_loop_free(f->loop);
	f->is_up = false;
}

/* -- life ----------------------------------------------------------------------------------- */

static void make_dir(struct rpc_fixture *f)
{
	const char *tmp = getenv("TMPDIR");
	/* A unix socket's path has little room; fall back to where it is short. */
	const char *base = tmp && strlen(tmp) < 40 ? tmp : "/tmp";

	must(gx_format(f->dir, sizeof(f->dir), "%s/rpcfix.XXXXXX", base), "scratch");
	if (!mkdtemp(f->dir))
		must(gx_errno(), f->dir);
}

struct rpc_fixture *rpc_fixture_start(const struct rpc_fixture_options *options)
{
	static const struct rpc_fixture_options defaults = RPC_FIXTURE_OPTIONS_INIT;
	struct rpc_fixture *f = calloc(1, sizeof(*f));

	gx_assert(f);
	f->env = gx_env_posix();
	f->options = options ? *options : defaults;
	must(gx_env_mutex_init(f->env, &f->lock), "mutex");
	must(gx_env_cond_init(f->env, &f->changed), "cond");
	gx_buf_init(&f->log, LOG_BYTES_MAX);
	must(gx_log_set_levels(f->options.log_levels), "log levels");
	gx_log_to_callback(on_log, f);
	make_dir(f);
	make_keys(f);
	f->auth = (struct rpc_auth){.env = f->env, .keys = f->keys};
	first_addresses(f);
	rpc_fixture_up(f);
	return f;
}

void rpc_fixture_stop(struct rpc_fixture *f)
{
	if (!f)
		return;
	if (f->is_up)
		rpc_fixture_down(f);
	gx_log_to_stderr();
	rpc_keytab_free(f->keys);
	gx_buf_fini(&f->log);
	gx_env_cond_fini(f->env, &f->changed);
	gx_env_mutex_fini(f->env, &f->lock);
	rmdir(f->dir);
	free(f);
}

/* -- reaching it -------------------------------------------------------------------------- */

struct gx_env *rpc_fixture_env(struct rpc_fixture *f)
{
	return f->env;
}

const struct rpc_endpoint *rpc_fixture_endpoint(struct rpc_fixture *f, enum rpc_fixture_kind kind)
{
	return &f->endpoints[kind];
}

int64_t rpc_fixture_in_ms(struct rpc_fixture *f, uint64_t ms)
{
	return gx_env_deadline_ms(f->env, ms);
}

void rpc_fixture_client_options(struct rpc_fixture *f, enum rpc_fixture_kind kind,
				enum rpc_fixture_who who, struct rpc_client_options *ret_options)
{
	*ret_options = (struct rpc_client_options)RPC_CLIENT_OPTIONS_INIT;
	ret_options->env = f->env;
	ret_options->endpoint = f->endpoints[kind];
	ret_options->identity = rpc_fixture_identity(who);
	ret_options->key = rpc_fixture_key(who);
	ret_options->program = "test/1";
	ret_options->timeout_ns = 10 * GX_NSEC_PER_SEC;
}

struct rpc_client *rpc_fixture_client(struct rpc_fixture *f, enum rpc_fixture_kind kind,
				      enum rpc_fixture_who who, unsigned connections_max)
{
	struct rpc_client_options options;
	struct rpc_client *client;

	rpc_fixture_client_options(f, kind, who, &options);
	if (connections_max > 0)
		options.connections_max = connections_max;
	must(rpc_client_new(&options, &client), "client");
	return client;
}

int rpc_fixture_connect(struct rpc_fixture *f, enum rpc_fixture_kind kind)
{
	int fd = gx_env_connect(f->env, &f->endpoints[kind].addr,
				gx_env_deadline_ms(f->env, WAIT_MS));

	must(fd, "connect");
	return fd;
}

/* -- looking inside ----------------------------------------------------------------------- */

struct visit {
	struct gx_task task;
	struct rpc_fixture *fixture;
	rpc_fixture_fn fn;
	void *arg;
	bool done; /* fixture->lock */
};

static void on_visit(struct gx_task *task)
{
	struct visit *visit = GX_CONTAINER_OF(task, struct visit, task);
	struct rpc_fixture *f = visit->fixture;

	visit->fn(f, visit->arg);
	gx_env_mutex_lock(f->env, &f->lock);
	visit->done = true;
	gx_env_cond_broadcast(f->env, &f->changed);
	gx_env_mutex_unlock(f->env, &f->lock);
}

void rpc_fixture_run(struct rpc_fixture *f, rpc_fixture_fn fn, void *arg)
{
	struct visit visit = {.task = {.fn = on_visit}, .fixture = f, .fn = fn, .arg = arg};

	gx_assert(f->is_up);
	gx_loop_post(f->loop, &visit.task);
	gx_env_mutex_lock(f->env, &f->lock);
	while (!visit.done)
		GX_IGNORE(gx_env_cond_wait(f->env, &f->changed, &f->lock, GX_FOREVER));
	gx_env_mutex_unlock(f->env, &f->lock);
}

struct rpc_server *rpc_fixture_server(struct rpc_fixture *f)
{
	return f->server;
}

struct rpc_sessions *rpc_fixture_sessions(struct rpc_fixture *f)
{
	return f->sessions;
}

struct echo_service *rpc_fixture_service(struct rpc_fixture *f)
{
	return &f->service;
}

struct rpc_dispatcher *rpc_fixture_dispatcher(struct rpc_fixture *f, bool threaded)
{
	return threaded ? &f->thread_dispatcher : &f->dispatcher;
}

struct stats_visit {
	bool threaded;
	struct rpc_stats *ret_stats;
};

static void copy_stats(struct rpc_fixture *f, void *arg)
{
	struct stats_visit *v = arg;
	struct rpc_dispatcher *d = rpc_fixture_dispatcher(f, v->threaded);

	rpc_dispatcher_lock(d);
	*v->ret_stats = d->stats;
	rpc_dispatcher_unlock(d);
}

void rpc_fixture_stats(struct rpc_fixture *f, bool threaded, struct rpc_stats *ret_stats)
{
	struct stats_visit visit = {threaded, ret_stats};

	rpc_fixture_run(f, copy_stats, &visit);
}

void rpc_fixture_cut(struct rpc_fixture *f)
{
	rpc_fixture_run(f, close_all, NULL);
}

static void copy_tally_calls(struct rpc_fixture *f, void *arg)
{
	*(uint64_t *)arg = f->service.tally_calls;
}

uint64_t rpc_fixture_tally_calls(struct rpc_fixture *f)
{
	uint64_t calls = 0;

	rpc_fixture_run(f, copy_tally_calls, &calls);
	return calls;
}

void rpc_fixture_wait_tally(struct rpc_fixture *f, uint64_t calls)
{
	int64_t deadline_ns = gx_env_deadline_ms(f->env, WAIT_MS);

	while (rpc_fixture_tally_calls(f) < calls)
		if (gx_env_now_ns(f->env) > deadline_ns)
			must(-ETIMEDOUT, "the tally has not arrived");
}

static void on_drained(void *arg)
{
	struct rpc_fixture *f = arg;

	gx_env_mutex_lock(f->env, &f->lock);
	f->drained = true;
	gx_env_cond_broadcast(f->env, &f->changed);
	gx_env_mutex_unlock(f->env, &f->lock);
}

static void start_drain(struct rpc_fixture *f, void *arg)
{
	rpc_server_drain(f->server, *(int64_t *)arg, on_drained, f);
}

void rpc_fixture_drain(struct rpc_fixture *f, uint64_t deadline_ms)
{
	int64_t deadline_ns = gx_env_deadline_ms(f->env, deadline_ms);

	rpc_fixture_run(f, start_drain, &deadline_ns);
}

static void start_drain_threads(struct rpc_fixture *f, void *arg)
{
	rpc_serve_drain(f->serve, *(int64_t *)arg, on_drained, f);
}

void rpc_fixture_drain_threads(struct rpc_fixture *f, uint64_t deadline_ms)
{
	int64_t deadline_ns = gx_env_deadline_ms(f->env, deadline_ms);

	rpc_fixture_run(f, start_drain_threads, &deadline_ns);
}

bool rpc_fixture_wait_drained(struct rpc_fixture *f, uint64_t timeout_ms)
{
	int64_t deadline_ns = gx_env_deadline_ms(f->env, timeout_ms);
	bool drained;
	int r = 0;

	gx_env_mutex_lock(f->env, &f->lock);
	while (!f->drained && r == 0)
		r = gx_env_cond_wait(f->env, &f->changed, &f->lock, deadline_ns);
	drained = f->drained;
	gx_env_mutex_unlock(f->env, &f->lock);
	return drained;
}
