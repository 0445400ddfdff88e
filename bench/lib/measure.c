#include "bench/lib/measure.h"
#include "bench/lib/shake.h"
#include "echo.pb-c.h"
#include <pthread.h>

#define WINDOW 8u
#define CONNECTIONS 8u
/* Even where one takes long, so that a median means something. */
#define CALLS_MIN 5u

static int64_t now_ns(void)
{
	return gx_env_now_ns(gx_env_posix());
}

/* -- samples ----------------------------------------------------------------------------- */

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

typedef int (*call_fn)(void *arg);

/* Calls one after the other for the time given, and puts the figures of it into *ret_result. */
static int run_calls(struct bench *b, call_fn fn, void *arg, struct result *ret_result)
{
	int64_t warm_end = now_ns() + b->round_ns / 10;
	size_t count = 0;
	int64_t start, end, last;
	int r = fn(arg);

	while (r == 0 && now_ns() < warm_end)
		r = fn(arg);
	start = last = now_ns();
	end = start + b->round_ns;
	while (r == 0 && (last < end || count < CALLS_MIN) && count < SAMPLES_MAX) {
		int64_t now;

		r = fn(arg);
		now = now_ns();
		b->samples[count++] = (uint32_t)GX_MIN(now - last, (int64_t)UINT32_MAX);
		last = now;
	}
	if (r < 0)
		return r;
	qsort(b->samples, count, sizeof(*b->samples), compare_u32);
	ret_result->p50_us = b->samples[count / 2] / 1e3;
	ret_result->p99_us = b->samples[count * 99 / 100] / 1e3;
	ret_result->per_sec = (double)count / ((double)(last - start) / 1e9);
	return 0;
}

/* -- one call at a time ------------------------------------------------------------------ */

struct raw_caller {
	struct raw_conn conn;
	const unsigned char *request;
	uint64_t request_bytes;
	uint64_t reply_bytes;
};

static int raw_call_once(void *arg)
{
	struct raw_caller *c = arg;
	unsigned char reply[SMALL_BYTES];
	int r = raw_write_all(&c->conn, c->request, c->request_bytes);

	return r < 0 ? r : raw_read_all(&c->conn, reply, c->reply_bytes);
}

static int raw_caller_open(struct bench *b, const struct job *job, struct raw_caller *ret_caller)
{
	struct raw_hello hello = {.request_bytes = job->bytes,
				  .reply_bytes =
					  job->bytes == SMALL_BYTES ? job->bytes : RAW_ACK_BYTES};

	*ret_caller = (struct raw_caller){.request = b->payload,
					  .request_bytes = hello.request_bytes,
					  .reply_bytes = hello.reply_bytes};
	return raw_open(&b->raw, job->raw_kind, &hello, &ret_caller->conn);
}

int side_raw_calls(struct bench *b, const struct job *job, struct result *ret_result)
{
	struct raw_caller caller;
	int r = raw_caller_open(b, job, &caller);

	if (r < 0)
		return r;
	r = run_calls(b, raw_call_once, &caller, ret_result);
	raw_close(&caller.conn);
	return r;
}

struct own_caller {
	struct rpc_client *client;
	struct iovec payload; /* empty: a small call */
	PbEcho__EchoRequest echo;
	PbEcho__SinkRequest sink;
};

static int own_echo_once(void *arg)
{
	struct own_caller *c = arg;
	struct rpc_reply reply;
	int r = rpc_client_call(c->client, rpc_method_get(RPC_INDEX_ECHO), &c->echo.base, NULL,
				&reply);

	if (r == 0 && ((PbEcho__EchoReply *)reply.message)->data.len != SMALL_BYTES)
		r = -EBADMSG;
	rpc_reply_fini(&reply);
	return r;
}

static int own_sink_once(void *arg)
{
	struct own_caller *c = arg;
	struct rpc_call_options options = {.payload_out = &c->payload, .payload_out_count = 1};
	struct rpc_reply reply;
	int r = rpc_client_call(c->client, rpc_method_get(RPC_INDEX_SINK), &c->sink.base, &options,
				&reply);

	if (r == 0 && ((PbEcho__SinkReply *)reply.message)->bytes != c->payload.iov_len)
		r = -EBADMSG;
	rpc_reply_fini(&reply);
	return r;
}

static const struct rpc_endpoint *own_endpoint(struct bench *b, const struct job *job)
{
	return job->threaded ? &b->ours.threads[job->own_kind] : &b->ours.loop[job->own_kind];
}

static int own_caller_open(struct bench *b, const struct job *job, struct own_caller *ret_caller)
{
	*ret_caller = (struct own_caller){.payload = {b->payload, job->bytes},
					  .echo = PB_ECHO__ECHO_REQUEST__INIT,
					  .sink = PB_ECHO__SINK_REQUEST__INIT};
	ret_caller->echo.data = (ProtobufCBinaryData){SMALL_BYTES, b->payload};
	return ours_client_new(&b->ours, own_endpoint(b, job), &ret_caller->client);
}

int side_own_calls(struct bench *b, const struct job *job, struct result *ret_result)
{
	struct own_caller caller;
	int r = own_caller_open(b, job, &caller);

	if (r < 0)
		return r;
	r = run_calls(b, job->bytes == SMALL_BYTES ? own_echo_once : own_sink_once, &caller,
		      ret_result);
	rpc_client_free(caller.client);
	return r;
}

/* -- several in flight on one connection ------------------------------------------------- */

/* Keeps WINDOW messages under way: as many are sent as replies have come, each with one write. */
int side_raw_window(struct bench *b, const struct job *job, struct result *ret_result)
{
	unsigned char replies[WINDOW * SMALL_BYTES];
	struct raw_caller caller;
	uint64_t got_bytes = 0;
	int64_t start, now;
	unsigned due = WINDOW;
	int r = raw_caller_open(b, job, &caller);

	if (r < 0)
		return r;
	start = now = now_ns();
	while (r == 0 && now < start + b->round_ns) {
		ssize_t n;

		for (; r == 0 && due > 0; due--)
			r = raw_write_all(&caller.conn, b->payload, SMALL_BYTES);
		n = r < 0 ? r : raw_read(&caller.conn, replies, sizeof(replies));
		if (n < 0) {
			r = (int)n;
			break;
		}
		due = (unsigned)((got_bytes % SMALL_BYTES + (uint64_t)n) / SMALL_BYTES);
		got_bytes += (uint64_t)n;
		now = now_ns();
	}
	raw_close(&caller.conn);
	*ret_result = (struct result){.per_sec = (double)(got_bytes / SMALL_BYTES) /
						 ((double)(now - start) / 1e9)};
	return r;
}

static int own_wait(struct rpc_chan *chan, uint64_t call)
{
	struct rpc_reply reply;
	int r;

	rpc_reply_init(&reply);
	r = rpc_chan_wait(chan, call, &reply);
	if (r == 0 && reply.status != 0)
		r = -EBADMSG;
	rpc_reply_fini(&reply);
	return r;
}

int side_own_window(struct bench *b, const struct job *job, struct result *ret_result)
{
	struct own_caller caller;
	struct rpc_request request = {.method = rpc_method_get(RPC_INDEX_ECHO)};
	struct rpc_chan *chan;
	uint64_t calls[WINDOW];
	uint64_t sent = 0, done = 0;
	int64_t start, now;
	int r = own_caller_open(b, job, &caller);

	if (r < 0)
		return r;
	start = now = now_ns();
	request.message = &caller.echo.base;
	request.deadline_ns = start + 60 * GX_NSEC_PER_SEC;
	r = rpc_client_borrow(caller.client, request.deadline_ns, NULL, &chan);
	if (r < 0)
		goto out;
	while (r == 0 && now < start + b->round_ns) {
		for (; r == 0 && sent < done + WINDOW; sent++)
			r = rpc_chan_submit(chan, &request, &calls[sent % WINDOW], NULL);
		if (r == 0)
			r = own_wait(chan, calls[done++ % WINDOW]);
		now = now_ns();
	}
	while (r == 0 && done < sent)
		r = own_wait(chan, calls[done++ % WINDOW]);
	*ret_result = (struct result){.per_sec = (double)done / ((double)(now - start) / 1e9)};
	rpc_client_return(caller.client, chan);
out:
	rpc_client_free(caller.client);
	return r;
}

/* -- several connections, a client thread each ------------------------------------------- */

struct crowd {
	pthread_barrier_t begin;
	int64_t round_ns;
};

struct member {
	struct crowd *crowd;
	pthread_t thread;
	call_fn call;
	void *arg;
	uint64_t done;
	int err;
};

static void *member_main(void *arg)
{
	struct member *m = arg;
	int64_t end;

	m->err = m->call(m->arg);
	pthread_barrier_wait(&m->crowd->begin);
	end = now_ns() + m->crowd->round_ns;
	while (m->err == 0 && now_ns() < end) {
		m->err = m->call(m->arg);
		m->done++;
	}
	return NULL;
}

/* `args`: one per connection, `stride` bytes apart. */
static int run_crowd(struct bench *b, call_fn call, void *args, size_t stride,
		     struct result *ret_result)
{
	struct crowd crowd = {.round_ns = b->round_ns};
	struct member members[CONNECTIONS];
	uint64_t done = 0;
	int r = 0;

	pthread_barrier_init(&crowd.begin, NULL, CONNECTIONS);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		members[i] = (struct member){
			.crowd = &crowd, .call = call, .arg = (char *)args + i * stride};
		r = pthread_create(&members[i].thread, NULL, member_main, &members[i]);
		gx_assert(r == 0);
	}
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		pthread_join(members[i].thread, NULL);
		done += members[i].done;
		if (r == 0)
			r = members[i].err;
	}
	pthread_barrier_destroy(&crowd.begin);
	*ret_result = (struct result){.per_sec = (double)done / ((double)b->round_ns / 1e9)};
	return r;
}

int side_raw_crowd(struct bench *b, const struct job *job, struct result *ret_result)
{
	struct raw_caller callers[CONNECTIONS];
	unsigned count = 0;
	int r = 0;

	while (r == 0 && count < CONNECTIONS) {
		r = raw_caller_open(b, job, &callers[count]);
		if (r == 0)
			count++;
	}
	if (r == 0)
		r = run_crowd(b, raw_call_once, callers, sizeof(callers[0]), ret_result);
	while (count > 0)
		raw_close(&callers[--count].conn);
	return r;
}

int side_own_crowd(struct bench *b, const struct job *job, struct result *ret_result)
{
	struct own_caller callers[CONNECTIONS];
	unsigned count = 0;
	int r = 0;

	while (r == 0 && count < CONNECTIONS) {
		r = own_caller_open(b, job, &callers[count]);
		if (r == 0)
			count++;
	}
	if (r == 0)
		r = run_crowd(b, own_echo_once, callers, sizeof(callers[0]), ret_result);
	while (count > 0)
		rpc_client_free(callers[--count].client);
	return r;
}

/* -- handshakes -------------------------------------------------------------------------- */

struct opener {
	struct bench *b;
	const struct job *job;
	struct rpc_tls_ctx *tls;
};

/* Connect, TLS handshake, one small exchange, so that the server is done, too; close. */
static int raw_open_once(void *arg)
{
	struct opener *o = arg;
	struct raw_caller caller;
	int r = raw_caller_open(o->b, o->job, &caller);

	if (r < 0)
		return r;
	r = raw_call_once(&caller);
	raw_close(&caller.conn);
	return r;
}

int side_raw_opens(struct bench *b, const struct job *job, struct result *ret_result)
{
	struct opener opener = {.b = b, .job = job};

	return run_calls(b, raw_open_once, &opener, ret_result);
}

/* The same with our handshake as the exchange. */
static int own_open_once(void *arg)
{
	struct opener *o = arg;
	struct ours *ours = &o->b->ours;
	struct rpc_chan_options options = {
		.env = ours->env,
		.endpoint = own_endpoint(o->b, o->job),
		.tls = o->tls,
		.identity = ours->key.identity,
		.key = ours->key.secret,
		.program = "bench",
		.deadline_ns = now_ns() + 10 * GX_NSEC_PER_SEC,
	};
	struct rpc_chan *chan;
	int r = rpc_chan_open(&options, &chan);

	if (r == 0)
		rpc_chan_close(chan);
	return r;
}

int side_own_opens(struct bench *b, const struct job *job, struct result *ret_result)
{
	struct opener opener = {.b = b, .job = job};
	int r = rpc_tls_ctx_new_client(b->ours.env, b->ours.key.identity, b->ours.key.secret,
				       &opener.tls);

	if (r < 0)
		return r;
	r = run_calls(b, own_open_once, &opener, ret_result);
	rpc_tls_ctx_free(opener.tls);
	return r;
}

struct shaker {
	SSL_CTX *server, *client;
};

static int shake_call(void *arg)
{
	struct shaker *s = arg;

	return shake_once(s->server, s->client);
}

int side_raw_shakes(struct bench *b, const struct job *job, struct result *ret_result)
{
	const struct raw_tls_pair *pair = raw_tls_pair(&b->tls, job->raw_kind);
	struct shaker shaker = {pair->server, pair->client};

	return run_calls(b, shake_call, &shaker, ret_result);
}

int side_own_shakes(struct bench *b, const struct job *job GX_UNUSED, struct result *ret_result)
{
	struct shaker shaker = {b->psk_server, b->psk_client};

	return run_calls(b, shake_call, &shaker, ret_result);
}
