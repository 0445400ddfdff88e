#include "tests/lib/held_serve.h"
#include "common/gx_hash.h"
#include "echo.pb-c.h"
#include "rpc/rpc_serve.h"
#include <fcntl.h>
#include <stdio.h>

#define IDENTITY "user:alice"
#define CALLS_MAX 256u
#define EAT_BYTES 65536u

static const unsigned char key_of_alice[RPC_KEY_BYTES] = {7, 7, 7};

struct held_serve {
	struct gx_env *env;
	struct gx_loop *loop;
	struct gx_thread thread;
	struct rpc_keytab *keys;
	struct rpc_auth auth;
	struct rpc_sessions *sessions;
	struct rpc_dispatcher dispatcher;
	struct rpc_serve *serve;
	struct rpc_endpoint endpoint;
	struct gx_task drain_task;
	int64_t drain_ns;
	char path[128];
	int file;
	unsigned char *memory; /* what the file holds at first */

	struct gx_mutex lock; /* all below */
	struct gx_cond changed;
	struct rpc_call *deferred[CALLS_MAX]; /* oldest first */
	unsigned deferred_count;
	unsigned blocked, calls, done;
	bool unblocked, drained, ending;
};

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "held_serve: %s: %s\n", what, gx_strerror(r));
	abort();
}

static void lock(struct held_serve *held)
{
	gx_env_mutex_lock(held->env, &held->lock);
}

static void unlock(struct held_serve *held)
{
	gx_env_cond_broadcast(held->env, &held->changed);
	gx_env_mutex_unlock(held->env, &held->lock);
}

static void wait_change(struct held_serve *held)
{
	must(gx_env_cond_wait(held->env, &held->changed, &held->lock,
			      gx_env_deadline_ms(held->env, 30000)),
	     "waiting");
}

void held_pattern(void *buf, uint64_t offset, size_t bytes)
{
	unsigned char *p = buf;

	while (bytes > 0) {
		uint64_t word = (offset / 8 + 1) * UINT64_C(0x9e3779b97f4a7c15);
		size_t skip = offset % 8;
		size_t part = GX_MIN(sizeof(word) - skip, bytes);

		memcpy(p, (unsigned char *)&word + skip, part);
		p += part;
		offset += part;
		bytes -= part;
	}
}

/* -- handlers ----------------------------------------------------------------------------- */

static int eat(struct rpc_call *call, uint64_t bytes)
{
	unsigned char space[EAT_BYTES];

	while (bytes > 0) {
		ssize_t n = rpc_call_read_payload(call, space,
						  (size_t)GX_MIN((uint64_t)sizeof(space), bytes));

		if (n <= 0)
			return n < 0 ? (int)n : -EPROTO;
		bytes -= (uint64_t)n;
	}
	return 0;
}

static void block(struct held_serve *held)
{
	lock(held);
	held->blocked++;
	gx_env_cond_broadcast(held->env, &held->changed);
	while (!held->unblocked)
		wait_change(held);
	held->blocked--;
	unlock(held);
}

static void on_done(struct rpc_call *call)
{
	struct held_serve *held = call->reply_done_arg;

	lock(held);
	held->done++;
	unlock(held);
}

/* RPC_DEFERRED; 0 at the end, when nobody would release it. */
static int defer(struct held_serve *held, struct rpc_call *call)
{
	int r = RPC_DEFERRED;

	lock(held);
	gx_assert(held->deferred_count < CALLS_MAX);
	if (held->ending)
		r = 0;
	else
		held->deferred[held->deferred_count++] = call;
	unlock(held);
	return r;
}

static int held_op_echo(struct rpc_call *call, const PbEcho__EchoRequest *request,
			PbEcho__EchoReply *reply)
{
	struct held_serve *held = call->data;
	struct held_order order;
	int r = 0;

	if (request->data.len != sizeof(order))
		return -EINVAL;
	memcpy(&order, request->data.data, sizeof(order));
	reply->data = request->data;
	lock(held);
	held->calls++;
	unlock(held);
	call->reply_done = on_done;
	call->reply_done_arg = held;
	if (order.flags & HELD_EAT)
		r = eat(call, call->payload_bytes);
	if (r == 0 && (order.flags & HELD_EAT_HALF))
		r = eat(call, call->payload_bytes / 2);
	if (r < 0)
		return r;
	if (order.flags & HELD_BLOCK)
		block(held);
	if (order.flags & HELD_DESCRIPTOR)
		call->reply_descriptor = held->file;
	if (order.flags & HELD_FILE) {
		call->reply_file = held->file;
		call->reply_file_offset = order.offset;
		call->reply_payload_bytes = order.bytes;
	} else if (order.flags & HELD_MEMORY) {
		call->reply_payload = held->memory + order.offset;
		call->reply_payload_bytes = order.bytes;
	}
	if (order.flags & HELD_FAIL)
		return rpc_call_fail(call, -EBUSY, "as ordered");
	return order.flags & HELD_DEFER ? defer(held, call) : 0;
}

static int thunk_echo(struct rpc_call *call, const ProtobufCMessage *request,
		      ProtobufCMessage *reply)
{
	return held_op_echo(call, (const PbEcho__EchoRequest *)request, (PbEcho__EchoReply *)reply);
}

static const struct rpc_service_row rows[] = {{RPC_ECHO, thunk_echo}};
static const struct rpc_service held_table = {rows, GX_COUNT_OF(rows)};

/* -- from the test --------------------------------------------------------------------------- */

void held_serve_wait_deferred(struct held_serve *held, unsigned count)
{
	lock(held);
	while (held->deferred_count < count)
		wait_change(held);
	unlock(held);
}

void held_serve_wait_blocked(struct held_serve *held, unsigned count)
{
	lock(held);
	while (held->blocked < count)
		wait_change(held);
	unlock(held);
}

void held_serve_wait_done(struct held_serve *held, unsigned count)
{
	lock(held);
	while (held->done < count)
		wait_change(held);
	unlock(held);
}

void held_serve_release(struct held_serve *held)
{
	struct rpc_call *call;

	lock(held);
	gx_assert(held->deferred_count > 0);
	call = held->deferred[0];
	held->deferred_count--;
	memmove(held->deferred, held->deferred + 1, held->deferred_count * sizeof(call));
	unlock(held);
	rpc_call_finish(call, 0);
}

void held_serve_unblock(struct held_serve *held)
{
	lock(held);
	held->unblocked = true;
	unlock(held);
}

unsigned held_serve_done(struct held_serve *held)
{
	unsigned done;

	lock(held);
	done = held->done;
	unlock(held);
	return done;
}

unsigned held_serve_calls(struct held_serve *held)
{
	unsigned calls;

	lock(held);
	calls = held->calls;
	unlock(held);
	return calls;
}

unsigned held_serve_deferred(struct held_serve *held)
{
	unsigned count;

	lock(held);
	count = held->deferred_count;
	unlock(held);
	return count;
}

void held_serve_truncate(struct held_serve *held, uint64_t bytes)
{
	must(gx_env_ftruncate(held->env, held->file, bytes), "truncate");
}

/* -- drain ------------------------------------------------------------------------------------ */

static void on_drained(void *arg)
{
	struct held_serve *held = arg;

	lock(held);
	held->drained = true;
	unlock(held);
}

static void on_drain(struct gx_task *task)
{
	struct held_serve *held = GX_CONTAINER_OF(task, struct held_serve, drain_task);

	rpc_serve_drain(held->serve, held->drain_ns, on_drained, held);
}

void held_serve_drain(struct held_serve *held, uint64_t ms)
{
	held->drain_ns = gx_env_deadline_ms(held->env, ms);
	held->drain_task.fn = on_drain;
	gx_loop_post(held->loop, &held->drain_task);
}

bool held_serve_wait_drained(struct held_serve *held, uint64_t ms)
{
	int64_t deadline_ns = gx_env_deadline_ms(held->env, ms);
	bool drained;
	int r = 0;

	lock(held);
	while (!held->drained && r == 0)
		r = gx_env_cond_wait(held->env, &held->changed, &held->lock, deadline_ns);
	drained = held->drained;
	unlock(held);
	return drained;
}

/* -- life ------------------------------------------------------------------------------------- */

static void loop_main(void *arg)
{
	/* It may fail in fault tests; then nobody can connect any more. */
	GX_IGNORE(gx_loop_run(((struct held_serve *)arg)->loop));
}

/* Also half made. */
static void held_free(struct held_serve *held)
{
	rpc_serve_free(held->serve);
	rpc_sessions_free(held->sessions);
	gx_loop_free(held->loop);
	rpc_keytab_free(held->keys);
	if (held->file >= 0) {
		gx_env_close(held->env, held->file);
		GX_IGNORE(gx_env_unlink(held->env, held->path));
	}
	free(held->memory);
	gx_env_cond_fini(held->env, &held->changed);
	gx_env_mutex_fini(held->env, &held->lock);
	free(held);
}

static int make_file(struct held_serve *held, const char *dir, size_t bytes)
{
	struct iovec iov;
	int r;

	held->memory = malloc(bytes);
	if (!held->memory)
		return -ENOMEM;
	held_pattern(held->memory, 0, bytes);
	r = gx_format(held->path, sizeof(held->path), "%s/held", dir);
	if (r < 0)
		return r;
	held->file = gx_env_open(held->env, held->path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (held->file < 0)
		return held->file;
	iov = (struct iovec){held->memory, bytes};
	return gx_env_pwritev(held->env, held->file, &iov, 1, 0);
}

static int make_keys(struct held_serve *held)
{
	struct rpc_key key = {.kind = RPC_IDENTITY_USER, .identity = IDENTITY};
	int r = rpc_keytab_new(&held->keys);

	memcpy(key.secret, key_of_alice, sizeof(key_of_alice));
	if (r == 0)
		r = rpc_keytab_put(held->keys, &key, false);
	held->auth = (struct rpc_auth){.env = held->env, .keys = held->keys};
	return r;
}

static int make_server(struct held_serve *held, const char *address)
{
	struct rpc_serve_options options = RPC_SERVE_OPTIONS_INIT;
	struct rpc_endpoint endpoint;
	int r;

	rpc_dispatcher_init(&held->dispatcher, held->env, "held", "held/1");
	rpc_dispatcher_add(&held->dispatcher, &held_table, held);
	options.loop = held->loop;
	options.dispatcher = &held->dispatcher;
	options.auth = &held->auth;
	options.sessions = held->sessions;
	options.boot = 1;
	r = rpc_serve_new(&options, &held->serve);
	if (r == 0)
		r = rpc_endpoint_parse(held->env, address, false, &endpoint, NULL);
	if (r == 0)
		r = rpc_serve_listen(held->serve, &endpoint, &held->endpoint);
	return r;
}

int held_serve_start(struct gx_env *env, const char *address, const char *dir, size_t bytes,
		     struct held_serve **ret_held)
{
	struct held_serve *held = calloc(1, sizeof(*held));
	int r;

	if (!held)
		return -ENOMEM;
	held->env = env;
	held->file = -1;
	r = gx_env_mutex_init(env, &held->lock);
	if (r < 0) {
		free(held);
		return r;
	}
	r = gx_env_cond_init(env, &held->changed);
	if (r < 0) {
		gx_env_mutex_fini(env, &held->lock);
		free(held);
		return r;
	}
	r = make_file(held, dir, bytes);
	if (r == 0)
		r = make_keys(held);
	if (r == 0)
		r = gx_loop_new(env, &held->loop);
	if (r == 0)
		r = rpc_sessions_new(env, 60 * GX_NSEC_PER_SEC, &held->sessions);
	if (r == 0)
		r = make_server(held, address);
	if (r == 0)
		r = gx_env_thread_start(env, &held->thread, "held", loop_main, held);
	if (r < 0) {
		held_free(held);
		return r;
	}
	*ret_held = held;
	return 0;
}

static void release_all(struct held_serve *held)
{
	held_serve_unblock(held);
	lock(held);
	held->ending = true;
	unlock(held);
	while (held->deferred_count > 0)
		held_serve_release(held);
}

void held_serve_stop(struct held_serve *held)
{
	gx_loop_stop(held->loop);
	gx_env_thread_join(held->env, &held->thread);
	gx_loop_unpost(held->loop, &held->drain_task);
	release_all(held);
	held_free(held);
}

void held_client_options(struct gx_env *env, const struct rpc_endpoint *endpoint,
			 struct rpc_client_options *ret_options)
{
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;

	options.env = env;
	options.endpoint = *endpoint;
	options.identity = IDENTITY;
	options.key = key_of_alice;
	options.timeout_ns = 20 * GX_NSEC_PER_SEC;
	*ret_options = options;
}

void held_serve_client_options(const struct held_serve *held,
			       struct rpc_client_options *ret_options)
{
	held_client_options(held->env, &held->endpoint, ret_options);
}
