/*
 * held_calls.h - a test's side of held_serve.h: a server on some transport, a client of it, orders
 * and the check of what comes back. For unit tests, which include it once.
 */
#ifndef HELD_CALLS_H
#define HELD_CALLS_H

#include "common/gx_loop.h"
#include "echo.pb-c.h"
#include "rpc/rpc_chan_impl.h"
#include "rpc/rpc_status.h"
#include "tests/lib/held_serve.h"
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define HELD_FILE_BYTES (8u * 1024 * 1024)

enum { HELD_TCP, HELD_TLS, HELD_UNIX, HELD_TRANSPORTS };

static struct gx_env *env;
static char dir[64];
static struct held_serve *held;
static struct rpc_client *client;
static int fds_before;

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int count = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		count++;
	closedir(d);
	return count;
}

static void begin(int transport)
{
	struct rpc_client_options options;
	struct gx_loop *loop;
	char address[128];
	const char *tmp = getenv("TMPDIR");

	env = gx_env_posix();
	/* This thread finishes calls, as one of a daemon does (gx_env_sendfile). */
	ck_assert_int_eq(sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL), 0);
	/* What libuv opens at its first use and keeps is nobody's leak. */
	ck_assert_int_eq(gx_loop_new(env, &loop), 0);
	gx_loop_free(loop);
	ck_assert_int_eq(gx_format(dir, sizeof(dir), "%s/held.XXXXXX",
				   tmp && strlen(tmp) < 40 ? tmp : "/tmp"),
			 0);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	fds_before = count_fds();
	if (transport == HELD_UNIX)
		ck_assert_int_eq(gx_format(address, sizeof(address), "unix:%s/s", dir), 0);
	else
		ck_assert_int_eq(gx_format(address, sizeof(address), "%s:127.0.0.1:0",
					   transport == HELD_TLS ? "tls" : "plain"),
				 0);
	ck_assert_int_eq(held_serve_start(env, address, dir, HELD_FILE_BYTES, &held), 0);
	held_serve_client_options(held, &options);
	options.connections_max = 1;
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
}

static void end(void)
{
	rpc_client_free(client);
	client = NULL;
	held_serve_stop(held);
	ck_assert_int_eq(count_fds(), fds_before);
	ck_assert_int_eq(rmdir(dir), 0);
}

/* -- single calls ---------------------------------------------------------------------------- */

/* One call on its way; must stay where it is until it is over. */
struct held_call {
	struct held_order order;
	PbEcho__EchoRequest message;
	unsigned char *space;
	struct iovec out;
	uint64_t id;
	struct rpc_started *started;
	struct rpc_reply reply;
};

static void call_init(struct held_call *c, uint64_t flags, uint64_t offset, uint64_t bytes)
{
	*c = (struct held_call){.order = {flags, offset, bytes}};
	pb_echo__echo_request__init(&c->message);
	c->message.data = (ProtobufCBinaryData){sizeof(c->order), (uint8_t *)&c->order};
	if (bytes > 0) {
		c->space = malloc(bytes);
		ck_assert_ptr_nonnull(c->space);
	}
}

GX_UNUSED static void call_payload(struct held_call *c, void *data, size_t bytes)
{
	c->out = (struct iovec){data, bytes};
}

GX_UNUSED static void call_submit(struct rpc_chan *chan, struct held_call *c)
{
	struct rpc_request request = {
		.method = rpc_method_get(RPC_INDEX_ECHO),
		.message = &c->message.base,
		.payload_out = &c->out,
		.payload_out_count = c->out.iov_len > 0,
		.payload_in = c->space,
		.payload_in_bytes = c->order.bytes,
		.deadline_ns = gx_env_deadline_ms(env, 20000),
	};

	ck_assert_int_eq(rpc_chan_submit(chan, &request, &c->id, NULL), 0);
}

/* The options of such a call, which may be changed. */
GX_UNUSED static struct rpc_call_options call_options(struct held_call *c)
{
	return (struct rpc_call_options){
		.deadline_ns = gx_env_deadline_ms(env, 20000),
		.payload_out = &c->out,
		.payload_out_count = c->out.iov_len > 0,
		.payload_in = c->space,
		.payload_in_bytes = c->order.bytes,
	};
}

GX_UNUSED static void call_start(struct held_call *c, const struct rpc_call_options *options)
{
	ck_assert_int_eq(rpc_client_start(client, rpc_method_get(RPC_INDEX_ECHO), &c->message.base,
					  options, &c->started),
			 0);
}

static void call_fini(struct held_call *c)
{
	rpc_reply_fini(&c->reply);
	free(c->space);
	c->space = NULL;
}

/* The reply is right: its order comes back, and the bytes of the file. */
static void call_check(const struct held_call *c)
{
	const PbEcho__EchoReply *answer = (const PbEcho__EchoReply *)c->reply.message;
	bool has_payload = (c->order.flags & (HELD_FILE | HELD_MEMORY)) != 0;

	ck_assert_uint_eq(answer->data.len, sizeof(c->order));
	ck_assert_mem_eq(answer->data.data, &c->order, sizeof(c->order));
	ck_assert_uint_eq(c->reply.payload_bytes, has_payload ? c->order.bytes : 0);
	if (has_payload) {
		unsigned char *want = malloc(c->order.bytes);

		ck_assert_ptr_nonnull(want);
		held_pattern(want, c->order.offset, c->order.bytes);
		ck_assert(memcmp(want, c->space, c->order.bytes) == 0);
		free(want);
	}
}

GX_UNUSED static int call_wait(struct rpc_chan *chan, struct held_call *c)
{
	rpc_reply_init(&c->reply);
	return rpc_chan_wait(chan, c->id, &c->reply);
}

GX_UNUSED static void call_wait_ok(struct rpc_chan *chan, struct held_call *c)
{
	ck_assert_int_eq(call_wait(chan, c), 0);
	ck_assert_uint_eq(c->reply.status, RPC_STATUS_OK);
	call_check(c);
	call_fini(c);
}

/* A whole call through the client; what it returned. */
GX_UNUSED static int call_once(uint64_t flags, uint64_t offset, uint64_t bytes)
{
	struct rpc_call_options options;
	struct held_call c;
	int r;

	call_init(&c, flags, offset, bytes);
	options = call_options(&c);
	r = rpc_client_call(client, rpc_method_get(RPC_INDEX_ECHO), &c.message.base, &options,
			    &c.reply);
	if (r == 0)
		call_check(&c);
	call_fini(&c);
	return r;
}

GX_UNUSED static struct rpc_chan *borrow(void)
{
	struct rpc_chan *chan;

	ck_assert_int_eq(rpc_client_borrow(client, gx_env_deadline_ms(env, 10000), NULL, &chan), 0);
	return chan;
}

GX_UNUSED static void wait_readable(struct rpc_chan *chan)
{
	struct gx_pollfd pfd = {.fd = chan->stream.fd, .events = GX_READABLE};

	ck_assert_int_eq(gx_env_poll(env, &pfd, 1, gx_env_deadline_ms(env, 10000)), 1);
}

#endif
