#include "bench/lib/ours.h"
#include "common/gx_loop.h"
#include "rpc/echod/echo_service.h"
#include "rpc/rpc_serve.h"
#include <unistd.h>

#define IDENTITY "user:bench"
#define LINGER_NS GX_NSEC_PER_SEC

int ours_init(struct ours *ours, struct gx_env *env, const char *directory)
{
	*ours = (struct ours){.env = env};
	if (gx_strcpy(ours->directory, sizeof(ours->directory), directory) < 0)
		return -ENAMETOOLONG;
	return rpc_key_make(env, IDENTITY, 0, false, &ours->key);
}

struct server {
	struct gx_loop *loop;
	struct rpc_keytab *keys;
	struct rpc_auth auth;
	struct rpc_sessions *sessions;
	struct rpc_dispatcher loop_dispatcher, thread_dispatcher;
	struct echo_service loop_echo, thread_echo;
	struct rpc_server *loop_server;
	struct rpc_serve *thread_server;
};

static int parse(const struct ours *ours, enum ours_kind kind, struct rpc_endpoint *ret_endpoint)
{
	static const char *const formats[OURS_KIND_COUNT] = {
		[OURS_TCP] = "127.0.0.1:0", [OURS_UNIX] = "unix:", [OURS_TLS] = "tls:127.0.0.1:0"};
	char text[GX_ADDR_TEXT_MAX];

	if (gx_format(text, sizeof(text), "%s%s%s", formats[kind],
		      kind == OURS_UNIX ? ours->directory : "",
		      kind == OURS_UNIX ? "/ours" : "") < 0)
		return -ENAMETOOLONG;
	return rpc_endpoint_parse(ours->env, text, false, ret_endpoint, NULL);
}

static int start_loop_server(struct ours *ours, struct server *s)
{
	struct rpc_server_options options = RPC_SERVER_OPTIONS_INIT;
	int r;

	rpc_dispatcher_init(&s->loop_dispatcher, ours->env, "bench", "bench");
	s->loop_dispatcher.replay = rpc_sessions_replay(s->sessions);
	r = echo_service_init(&s->loop_echo, ours->env);
	if (r < 0)
		return r;
	rpc_dispatcher_add(&s->loop_dispatcher, &echo_service_table, &s->loop_echo);
	options.loop = s->loop;
	options.dispatcher = &s->loop_dispatcher;
	options.auth = &s->auth;
	options.sessions = s->sessions;
	options.boot = 1;
	r = rpc_server_new(&options, &s->loop_server);
	for (int kind = 0; r == 0 && kind < OURS_KIND_COUNT; kind++) {
		struct rpc_endpoint endpoint;

		r = parse(ours, (enum ours_kind)kind, &endpoint);
		if (r == 0)
			r = rpc_server_listen(s->loop_server, &endpoint, &ours->loop[kind]);
	}
	return r;
}

static int start_thread_server(struct ours *ours, struct server *s)
{
	struct rpc_serve_options options = RPC_SERVE_OPTIONS_INIT;
	int r;

	rpc_dispatcher_init(&s->thread_dispatcher, ours->env, "bench", "bench");
	r = echo_service_init(&s->thread_echo, ours->env);
	if (r < 0)
		return r;
	rpc_dispatcher_add(&s->thread_dispatcher, &echo_service_table, &s->thread_echo);
	options.loop = s->loop;
	options.dispatcher = &s->thread_dispatcher;
	options.auth = &s->auth;
	options.sessions = s->sessions;
	options.boot = 1;
	r = rpc_serve_new(&options, &s->thread_server);
	for (int kind = 0; r == 0 && kind < OURS_KIND_COUNT; kind++) {
		struct rpc_endpoint endpoint;

		if (kind == OURS_UNIX)
			continue;
		r = parse(ours, (enum ours_kind)kind, &endpoint);
		if (r == 0)
			r = rpc_serve_listen(s->thread_server, &endpoint, &ours->threads[kind]);
	}
	return r;
}

static int start(struct ours *ours, struct server *s)
{
	int r = gx_loop_new(ours->env, &s->loop);

	if (r == 0)
		r = rpc_keytab_new(&s->keys);
	if (r == 0)
		r = rpc_keytab_put(s->keys, &ours->key, false);
	s->auth = (struct rpc_auth){.env = ours->env, .keys = s->keys};
	if (r == 0)
		r = rpc_sessions_new(ours->env, LINGER_NS, &s->sessions);
	if (r == 0)
		r = start_loop_server(ours, s);
	if (r == 0)
		r = start_thread_server(ours, s);
	return r;
}

void ours_server_run(struct ours *ours, int ready_fd)
{
	static struct server server;
	int r = start(ours, &server);

	/* A parent that reads nothing knows that we failed. */
	if (r == 0 &&
	    (write(ready_fd, ours->loop, sizeof(ours->loop)) != sizeof(ours->loop) ||
	     write(ready_fd, ours->threads, sizeof(ours->threads)) != sizeof(ours->threads)))
		r = gx_errno();
	close(ready_fd);
	if (r == 0)
		r = gx_loop_run(server.loop);
	_exit(r < 0 ? 1 : 0);
}

int ours_take_endpoints(struct ours *ours, int ready_fd)
{
	if (read(ready_fd, ours->loop, sizeof(ours->loop)) != sizeof(ours->loop) ||
	    read(ready_fd, ours->threads, sizeof(ours->threads)) != sizeof(ours->threads))
		return -EPIPE;
	return 0;
}

int ours_client_new(const struct ours *ours, const struct rpc_endpoint *endpoint,
		    struct rpc_client **ret_client)
{
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;

	options.env = ours->env;
	options.endpoint = *endpoint;
	options.identity = ours->key.identity;
	options.key = ours->key.secret;
	options.connections_max = 1;
	return rpc_client_new(&options, ret_client);
}
