/*
 * Replies of the threaded server: deferred calls, PROGRESS frames, files, descriptors; peers that
 * do not read, leave, or send what nobody asked for. Each on all transports, by the loop index.
 */
#include "common/gx_num.h"
#include "rpc/rpc_handshake.h"
#include "tests/lib/held_calls.h"
#include <sys/socket.h>
#include <sys/un.h>

#define LARGE (8u * 1024 * 1024)
#define UPLOAD (32u * 1024 * 1024)

static struct rpc_chan *chan;

static void begin_chan(int transport)
{
	begin(transport);
	chan = borrow();
}

static void end_chan(void)
{
	rpc_client_return(client, chan);
	end();
}

/* -- deferred calls --------------------------------------------------------------------------- */

START_TEST(a_deferred_call_does_not_hold_up_the_next)
{
	struct held_call first, second;

	begin_chan(_i);
	call_init(&first, HELD_DEFER, 0, 0);
	call_init(&second, HELD_MEMORY, 5, 1000);
	call_submit(chan, &first);
	held_serve_wait_deferred(held, 1);
	call_submit(chan, &second);
	call_wait_ok(chan, &second);
	ck_assert(!rpc_chan_arrived(chan, first.id));
	held_serve_release(held);
	call_wait_ok(chan, &first);
	held_serve_wait_done(held, 2);
	end_chan();
}
END_TEST

static void release_main(void *arg)
{
	unsigned count = *(unsigned *)arg;

	while (count-- > 0)
		held_serve_release(held);
}

START_TEST(replies_from_many_threads_are_each_whole)
{
	enum { DEFERRED = 60, THREADS = 3, OWN = 10 };
	static struct held_call calls[DEFERRED], own[OWN];
	struct gx_thread threads[THREADS];
	unsigned each = DEFERRED / THREADS;

	begin_chan(_i);
	for (unsigned i = 0; i < DEFERRED; i++) {
		/* Small, large, from memory, from the file. */
		uint64_t bytes = i % 3 == 0 ? 0 : i % 3 == 1 ? 3000 + i : 100000 + i;

		call_init(&calls[i], HELD_DEFER | (i % 2 == 0 ? HELD_MEMORY : HELD_FILE), i, bytes);
		if (bytes == 0)
			calls[i].order.flags = HELD_DEFER;
		call_submit(chan, &calls[i]);
	}
	held_serve_wait_deferred(held, DEFERRED);
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_int_eq(
			gx_env_thread_start(env, &threads[i], "release", release_main, &each), 0);
	for (unsigned i = 0; i < OWN; i++) {
		call_init(&own[i], i % 2 == 0 ? HELD_MEMORY : HELD_FILE, i, 500000);
		call_submit(chan, &own[i]);
	}
	for (unsigned i = 0; i < OWN; i++)
		call_wait_ok(chan, &own[i]);
	for (unsigned i = 0; i < DEFERRED; i++)
		call_wait_ok(chan, &calls[DEFERRED - 1 - i]);
	for (unsigned i = 0; i < THREADS; i++)
		gx_env_thread_join(env, &threads[i]);
	held_serve_wait_done(held, DEFERRED + OWN);
	end_chan();
}
END_TEST

START_TEST(a_connection_has_so_many_calls_in_work_and_no_more)
{
	enum { MOST = 65, MORE = 10 };
	static struct held_call calls[MOST + MORE];

	begin_chan(_i);
	for (unsigned i = 0; i < MOST + MORE; i++) {
		call_init(&calls[i], HELD_DEFER, 0, 0);
		call_submit(chan, &calls[i]);
	}
	held_serve_wait_deferred(held, MOST);
	gx_env_sleep_until(env, gx_env_deadline_ms(env, 30)); /* for those that must not come */
	ck_assert_uint_eq(held_serve_calls(held), MOST);
	for (unsigned i = 0; i < MOST + MORE; i++) {
		held_serve_wait_deferred(held, 1);
		held_serve_release(held);
		call_wait_ok(chan, &calls[i]);
	}
	end_chan();
}
END_TEST

START_TEST(a_deferred_call_outlives_its_peer)
{
	struct held_call c;

	begin_chan(_i);
	call_init(&c, HELD_DEFER | HELD_MEMORY, 0, 1000);
	call_submit(chan, &c);
	held_serve_wait_deferred(held, 1);
	rpc_chan_cancel(chan, c.id);
	rpc_client_return(client, chan);
	rpc_client_free(client);
	client = NULL;
	/* Perhaps before the server's thread has noticed the end, perhaps after. */
	if (_i % 2 == 0)
		gx_env_sleep_until(env, gx_env_deadline_ms(env, 20));
	held_serve_release(held);
	held_serve_wait_done(held, 1);
	call_fini(&c);
	end();
}
END_TEST

START_TEST(finishing_a_call_does_not_wait_for_a_reply_before_it)
{
	struct held_call deferred, large;
	int64_t before;

	begin_chan(_i);
	call_init(&deferred, HELD_DEFER, 0, 0);
	call_init(&large, HELD_MEMORY, 0, LARGE);
	call_submit(chan, &deferred);
	held_serve_wait_deferred(held, 1);
	call_submit(chan, &large);
	wait_readable(chan);
	/* The connection's thread is sending what we do not read. */
	before = gx_env_now_ns(env);
	held_serve_release(held);
	ck_assert_int_lt(gx_env_now_ns(env) - before, 5 * GX_NSEC_PER_SEC);
	ck_assert_uint_eq(held_serve_done(held), 0);
	call_wait_ok(chan, &large);
	call_wait_ok(chan, &deferred);
	end_chan();
}
END_TEST

/* The thread of the connection waits for a request; nobody but the watcher sends the rest. */
START_TEST(finishing_a_call_does_not_wait_for_its_peer)
{
	uint64_t kind = _i >= HELD_TRANSPORTS ? HELD_FILE : HELD_MEMORY;
	struct held_call c;
	int64_t before;

	begin_chan(_i % HELD_TRANSPORTS);
	call_init(&c, HELD_DEFER | kind, 0, LARGE);
	call_submit(chan, &c);
	held_serve_wait_deferred(held, 1);
	before = gx_env_now_ns(env);
	held_serve_release(held);
	ck_assert_int_lt(gx_env_now_ns(env) - before, 5 * GX_NSEC_PER_SEC);
	ck_assert_uint_eq(held_serve_done(held), 0);
	call_wait_ok(chan, &c);
	held_serve_wait_done(held, 1);
	end_chan();
}
END_TEST

START_TEST(what_a_handler_leaves_of_a_payload_is_skipped)
{
	static const uint64_t flags[] = {HELD_EAT, HELD_EAT_HALF, 0, HELD_FAIL, HELD_DEFER};
	unsigned char *data = calloc(1, UPLOAD);

	ck_assert_ptr_nonnull(data);
	begin_chan(_i);
	for (size_t i = 0; i < GX_COUNT_OF(flags); i++) {
		struct held_call c;

		call_init(&c, flags[i], 0, 0);
		call_payload(&c, data, 1000000);
		call_submit(chan, &c);
		if (flags[i] == HELD_DEFER) {
			held_serve_wait_deferred(held, 1);
			held_serve_release(held);
		}
		if (flags[i] == HELD_FAIL) {
			ck_assert_int_eq(call_wait(chan, &c), 0);
			ck_assert_int_eq(rpc_status_to_errno(c.reply.status), -EBUSY);
			ck_assert_str_eq(c.reply.detail, "as ordered");
			call_fini(&c);
		} else {
			call_wait_ok(chan, &c);
		}
	}
	end_chan();
	free(data);
}
END_TEST

START_TEST(a_reply_does_not_wait_for_a_peer_that_is_still_sending)
{
	unsigned char *data = calloc(1, UPLOAD);
	struct held_call c;

	ck_assert_ptr_nonnull(data);
	begin_chan(_i);
	call_init(&c, HELD_EAT_HALF | HELD_FILE, 0, LARGE);
	call_payload(&c, data, UPLOAD);
	call_submit(chan, &c);
	call_wait_ok(chan, &c);
	end_chan();
	free(data);
}
END_TEST

/* Without help the client would write what the server does not read, and the other way round. */
START_TEST(a_large_reply_and_a_large_request_cross_each_other)
{
	unsigned char *data = calloc(1, UPLOAD);
	struct held_call down, up, more;

	ck_assert_ptr_nonnull(data);
	begin_chan(_i);
	call_init(&down, HELD_MEMORY, 0, LARGE);
	call_init(&up, HELD_EAT | HELD_FILE, 3, LARGE - 3);
	call_payload(&up, data, UPLOAD);
	call_init(&more, HELD_EAT, 0, 0);
	call_payload(&more, data, UPLOAD);
	call_submit(chan, &down);
	call_submit(chan, &up);
	call_submit(chan, &more);
	call_wait_ok(chan, &more);
	call_wait_ok(chan, &down);
	call_wait_ok(chan, &up);
	end_chan();
	free(data);
}
END_TEST

/* -- progress --------------------------------------------------------------------------------- */

/* In the handler, or deferred. */
START_TEST(a_slow_call_sends_progress_frames)
{
	bool deferred = _i >= HELD_TRANSPORTS;
	struct held_call c;
	int64_t heard_ns = 0;

	begin_chan(_i % HELD_TRANSPORTS);
	call_init(&c, deferred ? HELD_DEFER : HELD_BLOCK, 0, 0);
	call_submit(chan, &c);
	for (unsigned i = 0; i < 3; i++) {
		int64_t before = gx_env_now_ns(env);

		wait_readable(chan);
		ck_assert(!rpc_chan_arrived(chan, c.id));
		ck_assert_int_gt(chan->heard_ns, heard_ns);
		heard_ns = chan->heard_ns;
		/* Every 250 ms and at most half of that late; this machine may be busy. */
		ck_assert_int_lt(gx_env_now_ns(env) - before, GX_NSEC_PER_SEC);
		ck_assert(i == 0 || gx_env_now_ns(env) - before > 100 * GX_NSEC_PER_MSEC);
	}
	if (deferred)
		held_serve_release(held);
	else
		held_serve_unblock(held);
	call_wait_ok(chan, &c);
	end_chan();
}
END_TEST

START_TEST(a_slow_server_is_not_a_silent_one)
{
	struct rpc_call_options options;
	struct held_call c;

	begin(_i);
	call_init(&c, HELD_DEFER, 0, 0);
	options = call_options(&c);
	options.silent_ns = 700 * GX_NSEC_PER_MSEC;
	call_start(&c, &options);
	gx_env_sleep_until(env, gx_env_deadline_ms(env, 1600)); /* slow is what it is */
	ck_assert(!rpc_client_started_done(c.started));
	held_serve_release(held);
	ck_assert_int_eq(rpc_client_finish(c.started, &c.reply), 0);
	call_check(&c);
	call_fini(&c);
	end();
}
END_TEST

/* -- files ------------------------------------------------------------------------------------ */

START_TEST(a_payload_comes_from_a_file)
{
	static const uint64_t sizes[] = {1, 63, 4096, 16384, 16385, 65536, 1000003, LARGE - 77};

	begin(_i);
	for (size_t i = 0; i < GX_COUNT_OF(sizes); i++)
		ck_assert_int_eq(call_once(HELD_FILE, 77 * (i % 2), sizes[i]), 0);
	held_serve_wait_done(held, GX_COUNT_OF(sizes));
	end();
}
END_TEST

START_TEST(a_small_file_that_was_cut_is_asked_for_again)
{
	struct held_call c;

	begin_chan(_i);
	held_serve_truncate(held, 5000);
	call_init(&c, HELD_FILE, 4000, 2000);
	call_submit(chan, &c);
	ck_assert_int_eq(call_wait(chan, &c), 0);
	ck_assert_uint_eq(c.reply.status, RPC_STATUS_AGAIN);
	ck_assert_uint_eq(c.reply.payload_bytes, 0);
	call_fini(&c);
	/* The connection is as good as before. */
	call_init(&c, HELD_FILE, 4000, 1000);
	call_submit(chan, &c);
	call_wait_ok(chan, &c);
	end_chan();
}
END_TEST

START_TEST(a_large_file_that_was_cut_ends_the_connection)
{
	struct held_call c;

	begin_chan(_i);
	held_serve_truncate(held, 1000000);
	call_init(&c, HELD_FILE, 0, LARGE);
	call_submit(chan, &c);
	ck_assert_int_lt(call_wait(chan, &c), 0);
	call_fini(&c);
	held_serve_wait_done(held, 1);
	/* Other connections do not notice. */
	rpc_client_return(client, chan);
	ck_assert_int_eq(call_once(HELD_FILE, 0, 1000000), 0);
	end();
}
END_TEST

/* -- descriptors ------------------------------------------------------------------------------ */

START_TEST(a_descriptor_comes_with_its_reply)
{
	unsigned char byte, want;
	struct held_call c;

	begin_chan(HELD_UNIX);
	for (unsigned i = 0; i < 4; i++) {
		call_init(&c, HELD_DESCRIPTOR | (i % 2 ? HELD_FILE : 0) | (i / 2 ? HELD_DEFER : 0),
			  i, i % 2 ? 100000 : 0);
		call_submit(chan, &c);
		if (i / 2) {
			held_serve_wait_deferred(held, 1);
			held_serve_release(held);
		}
		/* It may arrive before anybody waits for it. */
		if (i == 0)
			while (!rpc_chan_arrived(chan, c.id))
				wait_readable(chan);
		ck_assert_int_eq(call_wait(chan, &c), 0);
		call_check(&c);
		ck_assert_int_ge(c.reply.descriptor, 0);
		ck_assert_int_eq(fcntl(c.reply.descriptor, F_GETFD), FD_CLOEXEC);
		ck_assert_int_eq(pread(c.reply.descriptor, &byte, 1, 12345), 1);
		held_pattern(&want, 12345, 1);
		ck_assert_uint_eq(byte, want);
		call_fini(&c);
	}
	end_chan();
}
END_TEST

/* end() counts what is open. */
START_TEST(a_descriptor_nobody_takes_is_closed)
{
	struct held_call a, b;

	begin_chan(HELD_UNIX);
	/* Given up before it comes, and after. */
	call_init(&a, HELD_DESCRIPTOR | HELD_DEFER, 0, 0);
	call_init(&b, HELD_DESCRIPTOR, 0, 0);
	call_submit(chan, &a);
	call_submit(chan, &b);
	held_serve_wait_deferred(held, 1);
	rpc_chan_cancel(chan, a.id);
	while (!rpc_chan_arrived(chan, b.id))
		wait_readable(chan);
	rpc_chan_cancel(chan, b.id);
	held_serve_release(held);
	/* On its way when the connection ends; half read, if it has a payload. */
	call_init(&a, HELD_DESCRIPTOR | HELD_FILE, 0, LARGE);
	call_submit(chan, &a);
	wait_readable(chan);
	rpc_chan_arrived(chan, a.id);
	rpc_chan_cancel(chan, a.id);
	call_fini(&a);
	end_chan();
}
END_TEST

START_TEST(without_a_unix_socket_there_are_no_descriptors)
{
	begin(_i);
	ck_assert_int_eq(call_once(HELD_DESCRIPTOR, 0, 0), -EOPNOTSUPP);
	end();
}
END_TEST

START_TEST(an_error_comes_without_its_descriptor)
{
	struct held_call c;

	begin_chan(HELD_UNIX);
	call_init(&c, HELD_DESCRIPTOR | HELD_FAIL, 0, 0);
	call_submit(chan, &c);
	ck_assert_int_eq(call_wait(chan, &c), 0);
	ck_assert_int_eq(rpc_status_to_errno(c.reply.status), -EBUSY);
	ck_assert_int_eq(c.reply.descriptor, -1);
	call_fini(&c);
	end_chan();
}
END_TEST

/* Writes bytes with descriptors of /dev/null; the peer is in this very process. */
static void send_with_fds(int sock, const void *data, size_t bytes, int fd_count)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {0};
	struct iovec iov = {(void *)(uintptr_t)data, bytes};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	int fds[8];

	ck_assert_int_le(fd_count, 8);
	for (int i = 0; i < fd_count; i++) {
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		ck_assert_int_ge(fds[i], 0);
	}
	if (fd_count > 0) {
		struct cmsghdr *c = (struct cmsghdr *)control;

		*c = (struct cmsghdr){.cmsg_len = CMSG_LEN((size_t)fd_count * sizeof(int)),
				      .cmsg_level = SOL_SOCKET,
				      .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(c), fds, (size_t)fd_count * sizeof(int));
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE((size_t)fd_count * sizeof(int));
	}
	ck_assert_int_eq(sendmsg(sock, &msg, MSG_NOSIGNAL), (ssize_t)bytes);
	for (int i = 0; i < fd_count; i++)
		close(fds[i]);
}

START_TEST(a_server_takes_no_descriptors)
{
	struct rpc_frame frame = {.type = RPC_FRAME_REQUEST, .code = RPC_ECHO, .id = 4711};
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	int fds;

	begin_chan(HELD_UNIX);
	fds = count_fds();
	rpc_frame_encode(&frame, NULL, chan->secret, header);
	/* The header in two pieces, as the message header of a read may have room for more. */
	send_with_fds(chan->stream.fd, header, 10, 8);
	send_with_fds(chan->stream.fd, header + 10, sizeof(header) - 10, 3);
	wait_readable(chan); /* it has been answered: an order of no bytes is an error */
	ck_assert_int_eq(count_fds(), fds);
	end_chan();
}
END_TEST

/* -- a server that lies ----------------------------------------------------------------------- */

/* What the false server does with the first request. */
struct lie {
	int fd_count;
	uint16_t flags;
	bool twice; /* another frame of the same kind follows */
	int listener;
	struct gx_thread thread;
	struct rpc_auth auth;
};

static int any_session(void *arg GX_UNUSED, const struct rpc_peer *peer GX_UNUSED,
		       uint64_t asked GX_UNUSED, uint64_t *ret_session, bool *ret_known)
{
	*ret_session = 1;
	*ret_known = false;
	return 0;
}

static void lie_main(void *arg)
{
	struct lie *lie = arg;
	struct rpc_handshake_server server = {
		.auth = &lie->auth, .name = "liar", .boot = 1, .session = any_session};
	unsigned char header[2 * RPC_FRAME_HEADER_BYTES];
	struct rpc_frame reply = {.type = RPC_FRAME_REPLY, .flags = lie->flags};
	struct gx_pollfd pfd = {.fd = lie->listener, .events = GX_READABLE};
	struct rpc_handshake hs;
	struct rpc_stream stream;
	size_t bytes = RPC_FRAME_HEADER_BYTES;
	char byte;
	int r;

	ck_assert_int_eq(gx_env_poll(env, &pfd, 1, GX_FOREVER), 1);
	r = gx_env_accept(env, lie->listener);
	ck_assert_int_ge(r, 0);
	ck_assert_int_eq(rpc_stream_init(&stream, env, r), 0);
	rpc_handshake_init_server(&hs, env, &server, false, NULL, &stream.local, &stream.remote);
	do {
		r = rpc_handshake_round(&hs, &stream, GX_FOREVER);
	} while (r == 0);
	ck_assert_int_eq(r, 1);
	ck_assert_int_eq(rpc_stream_read_all(&stream, header, RPC_FRAME_HEADER_BYTES, GX_FOREVER),
			 0);
	reply.id = gx_get_le64(header + 24);
	rpc_frame_encode(&reply, NULL, hs.secret, header);
	if (lie->twice) {
		memcpy(header + bytes, header, bytes);
		bytes *= 2;
	}
	send_with_fds(stream.fd, header, bytes, lie->fd_count);
	/* Until the client leaves. */
	while (rpc_stream_read_all(&stream, &byte, 1, GX_FOREVER) == 0)
		;
	rpc_handshake_fini(&hs);
	rpc_stream_fini(&stream);
}

static const struct {
	int fd_count;
	uint16_t flags;
	bool twice;
	int want; /* what the call returns */
} lies[] = {
	{1, RPC_FRAME_DESCRIPTOR, false, 0}, /* no lie */
	{2, RPC_FRAME_DESCRIPTOR, false, 0}, /* one is taken, the other dropped */
	{8, RPC_FRAME_DESCRIPTOR, false, 0},
	{0, RPC_FRAME_DESCRIPTOR, false, -EPROTO},
	{1, 0, false, -EPROTO}, /* unasked */
	{8, 0, false, -EPROTO},
	{1, RPC_FRAME_DESCRIPTOR, true, -EPROTO}, /* a reply to nothing, and no descriptor */
	{0, 2, false, -EPROTO},                   /* an unknown flag */
};

START_TEST(a_server_cannot_make_us_keep_descriptors)
{
	struct lie lie = {.fd_count = lies[_i].fd_count,
			  .flags = lies[_i].flags,
			  .twice = lies[_i].twice,
			  .auth = {.env = gx_env_posix()}};
	struct rpc_key key = {.kind = RPC_IDENTITY_USER, .identity = "user:alice"};
	struct rpc_client_options options;
	struct rpc_endpoint endpoint;
	struct rpc_keytab *keys;
	char address[128];
	struct held_call c;
	struct rpc_request request;
	int r;

	begin(HELD_UNIX);
	held_serve_client_options(held, &options);
	memcpy(key.secret, options.key, RPC_KEY_BYTES);
	ck_assert_int_eq(rpc_keytab_new(&keys), 0);
	ck_assert_int_eq(rpc_keytab_put(keys, &key, false), 0);
	lie.auth.keys = keys;
	ck_assert_int_eq(gx_format(address, sizeof(address), "unix:%s/liar", dir), 0);
	ck_assert_int_eq(rpc_endpoint_parse(env, address, false, &endpoint, NULL), 0);
	lie.listener = gx_env_listen(env, &endpoint.addr, 1);
	ck_assert_int_ge(lie.listener, 0);
	ck_assert_int_eq(gx_env_thread_start(env, &lie.thread, "liar", lie_main, &lie), 0);
	rpc_client_free(client);
	held_client_options(env, &endpoint, &options);
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
	chan = borrow();
	call_init(&c, 0, 0, 0);
	/* A request of no bytes, so that the liar need not read more than a header. */
	c.message.data = (ProtobufCBinaryData){0, NULL};
	request = (struct rpc_request){.method = rpc_method_get(RPC_INDEX_ECHO),
				       .message = &c.message.base,
				       .deadline_ns = gx_env_deadline_ms(env, 10000)};
	ck_assert_int_eq(rpc_chan_submit(chan, &request, &c.id, NULL), 0);
	r = call_wait(chan, &c);
	/* The lie may come to light with the frame behind the reply. */
	if (r == 0 && lies[_i].want < 0)
		r = rpc_chan_usable(chan) ? 0 : chan->failed;
	ck_assert_int_eq(r, lies[_i].want);
	call_fini(&c);
	rpc_client_return(client, chan);
	rpc_client_free(client);
	client = NULL;
	gx_env_thread_join(env, &lie.thread);
	gx_env_close(env, lie.listener);
	ck_assert_int_eq(unlink(address + strlen("unix:")), 0);
	rpc_keytab_free(keys);
	end();
}
END_TEST

/* -- drain ------------------------------------------------------------------------------------ */

START_TEST(a_drain_waits_for_deferred_calls_and_answers_them)
{
	struct held_call idle, busy;

	begin_chan(_i);
	call_init(&idle, HELD_DEFER, 0, 0);
	call_init(&busy, HELD_DEFER | HELD_FILE, 0, LARGE);
	call_submit(chan, &idle);
	call_submit(chan, &busy);
	held_serve_wait_deferred(held, 2);
	held_serve_drain(held, 15000);
	ck_assert(!held_serve_wait_drained(held, 50));
	held_serve_release(held);
	call_wait_ok(chan, &idle);
	ck_assert(!held_serve_wait_drained(held, 50));
	held_serve_release(held);
	call_wait_ok(chan, &busy);
	ck_assert(held_serve_wait_drained(held, 10000));
	end_chan();
}
END_TEST

START_TEST(a_drain_cuts_off_a_peer_that_does_not_take_its_reply)
{
	struct held_call c;

	begin_chan(_i);
	call_init(&c, HELD_DEFER | HELD_MEMORY, 0, LARGE);
	call_submit(chan, &c);
	held_serve_wait_deferred(held, 1);
	held_serve_release(held);
	held_serve_drain(held, 200);
	ck_assert(held_serve_wait_drained(held, 10000));
	ck_assert_uint_eq(held_serve_done(held), 1);
	ck_assert_int_lt(call_wait(chan, &c), 0);
	call_fini(&c);
	end_chan();
}
END_TEST

static void add_calls(TCase *tc)
{
	tcase_add_loop_test(tc, a_deferred_call_does_not_hold_up_the_next, 0, HELD_TRANSPORTS);
	tcase_add_loop_test(tc, replies_from_many_threads_are_each_whole, 0, HELD_TRANSPORTS);
	tcase_add_loop_test(tc, a_connection_has_so_many_calls_in_work_and_no_more, 0,
			    HELD_TRANSPORTS);
	tcase_add_loop_test(tc, a_deferred_call_outlives_its_peer, 0, HELD_TRANSPORTS);
	tcase_add_loop_test(tc, finishing_a_call_does_not_wait_for_a_reply_before_it, 0,
			    HELD_TRANSPORTS);
	tcase_add_loop_test(tc, finishing_a_call_does_not_wait_for_its_peer, 0,
			    2 * HELD_TRANSPORTS);
	tcase_add_loop_test(tc, what_a_handler_leaves_of_a_payload_is_skipped, 0, HELD_TRANSPORTS);
	tcase_add_loop_test(tc, a_reply_does_not_wait_for_a_peer_that_is_still_sending, 0,
			    HELD_TRANSPORTS);
	tcase_add_loop_test(tc, a_large_reply_and_a_large_request_cross_each_other, 0,
			    HELD_TRANSPORTS);
	tcase_add_loop_test(tc, a_slow_call_sends_progress_frames, 0, 2 * HELD_TRANSPORTS);
	tcase_add_loop_test(tc, a_slow_server_is_not_a_silent_one, 0, HELD_TRANSPORTS);
	tcase_add_loop_test(tc, a_drain_waits_for_deferred_calls_and_answers_them, 0,
			    HELD_TRANSPORTS);
	tcase_add_loop_test(tc, a_drain_cuts_off_a_peer_that_does_not_take_its_reply, 0,
			    HELD_TRANSPORTS);
}

static void add_files(TCase *tc)
{
	tcase_add_loop_test(tc, a_payload_comes_from_a_file, 0, HELD_TRANSPORTS);
	tcase_add_loop_test(tc, a_small_file_that_was_cut_is_asked_for_again, 0, HELD_TRANSPORTS);
	tcase_add_loop_test(tc, a_large_file_that_was_cut_ends_the_connection, 0, HELD_TRANSPORTS);
	tcase_add_test(tc, a_descriptor_comes_with_its_reply);
	tcase_add_test(tc, a_descriptor_nobody_takes_is_closed);
	tcase_add_loop_test(tc, without_a_unix_socket_there_are_no_descriptors, 0, HELD_UNIX);
	tcase_add_test(tc, an_error_comes_without_its_descriptor);
	tcase_add_test(tc, a_server_takes_no_descriptors);
	tcase_add_loop_test(tc, a_server_cannot_make_us_keep_descriptors, 0,
			    (int)GX_COUNT_OF(lies));
}

int main(void)
{
	Suite *suite = suite_create("rpc_serve_reply");
	TCase *tc = tcase_create("replies");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	add_calls(tc);
	add_files(tc);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
