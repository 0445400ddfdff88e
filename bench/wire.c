/*
 * bench/wire - how fast the wire is, next to raw sockets and raw OpenSSL.
 *
 * Each test has a raw and an own side that do the same work; every round runs
 * both, one right after the other, so that whatever else the machine is doing
 * hits both alike. Printed are the medians over the rounds and, as ratio, the
 * median of the rounds' ratios. The servers are processes of their own.
 *
 * Speed never fails: the exit status is 0 unless something broke.
 */
#include "bench/lib/ours.h"
#include "bench/lib/raw.h"
#include "bench/lib/shake.h"
#include "common/gx_num.h"
#include "common/gx_sum.h"
#include "echo.pb-c.h"
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define SMALL_BYTES 64u
#define MIB (1024u * 1024)
#define LARGEST_BYTES (64u * MIB)
#define WINDOW 8u
#define CONNECTIONS 8u
#define ROUNDS_MAX 99u
#define SAMPLES_MAX (1u << 20)

enum pinning {
	PIN_SAME,  /* client and servers on one CPU */
	PIN_SPLIT, /* client on one, servers on another */
	PIN_NONE,
};

struct bench {
	struct ours ours;
	struct raw_tls tls;
	struct raw_server raw;
	SSL_CTX *psk_server, *psk_client;
	pid_t raw_pid, ours_pid;
	char directory[64];
	unsigned char *payload; /* LARGEST_BYTES */
	uint32_t *samples;	/* SAMPLES_MAX, nanoseconds */
	int64_t round_ns;	/* how long one side of a round runs */
	unsigned rounds;
	enum pinning pinning;
	const char *only; /* part of a test's name, or NULL */
};

/* What one side of one round came to. */
struct result {
	double p50_us, p99_us;
	double per_sec; /* calls */
};

struct test {
	const char *name;
	int (*raw)(struct bench *b, const struct test *t, struct result *ret_result);
	int (*own)(struct bench *b, const struct test *t, struct result *ret_result);
	enum raw_kind raw_kind;
	enum ours_kind own_kind;
	bool threaded; /* own server: one thread per connection */
	uint64_t bytes;
	struct result raw_rounds[ROUNDS_MAX], own_rounds[ROUNDS_MAX];
	unsigned rounds;
};

static int64_t now_ns(void)
{
	return gx_env_now_ns(gx_env_posix());
}

/* -- samples ------------------------------------------------------------------------ */

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

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
	while (r == 0 && last < end && count < SAMPLES_MAX) {
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

/* -- one call at a time ---------------------------------------------------------------- */

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

static int raw_caller_open(struct bench *b, const struct test *t, struct raw_caller *ret_caller)
{
	struct raw_hello hello = {t->bytes, t->bytes == SMALL_BYTES ? t->bytes : RAW_ACK_BYTES};

	*ret_caller = (struct raw_caller){.request = b->payload,
					  .request_bytes = hello.request_bytes,
					  .reply_bytes = hello.reply_bytes};
	return raw_open(&b->raw, t->raw_kind, &hello, &ret_caller->conn);
}

static int raw_calls(struct bench *b, const struct test *t, struct result *ret_result)
{
	struct raw_caller caller;
	int r = raw_caller_open(b, t, &caller);

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

static const struct rpc_endpoint *own_endpoint(struct bench *b, const struct test *t)
{
	return t->threaded ? &b->ours.threads[t->own_kind] : &b->ours.loop[t->own_kind];
}

static int own_caller_open(struct bench *b, const struct test *t, struct own_caller *ret_caller)
{
	*ret_caller = (struct own_caller){.payload = {b->payload, t->bytes},
					  .echo = PB_ECHO__ECHO_REQUEST__INIT,
					  .sink = PB_ECHO__SINK_REQUEST__INIT};
	ret_caller->echo.data = (ProtobufCBinaryData){SMALL_BYTES, b->payload};
	return ours_client_new(&b->ours, own_endpoint(b, t), &ret_caller->client);
}

static int own_calls(struct bench *b, const struct test *t, struct result *ret_result)
{
	struct own_caller caller;
	int r = own_caller_open(b, t, &caller);

	if (r < 0)
		return r;
	r = run_calls(b, t->bytes == SMALL_BYTES ? own_echo_once : own_sink_once, &caller,
		      ret_result);
	rpc_client_free(caller.client);
	return r;
}

/* -- several in flight on one connection --------------------------------------------------- */

/* Keeps WINDOW messages under way: as many are sent as replies have come, each with one write. */
static int raw_window(struct bench *b, const struct test *t, struct result *ret_result)
{
	unsigned char replies[WINDOW * SMALL_BYTES];
	struct raw_caller caller;
	uint64_t got_bytes = 0;
	int64_t start, now;
	unsigned due = WINDOW;
	int r = raw_caller_open(b, t, &caller);

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
	*ret_result = (struct result){
		.per_sec = (double)(got_bytes / SMALL_BYTES) / ((double)(now - start) / 1e9)};
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

static int own_window(struct bench *b, const struct test *t, struct result *ret_result)
{
	struct own_caller caller;
	struct rpc_request request = {.method = rpc_method_get(RPC_INDEX_ECHO)};
	struct rpc_chan *chan;
	uint64_t calls[WINDOW];
	uint64_t sent = 0, done = 0;
	int64_t start, now;
	int r = own_caller_open(b, t, &caller);

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

/* -- several connections, a client thread each ----------------------------------------------- */

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

static int raw_crowd(struct bench *b, const struct test *t, struct result *ret_result)
{
	struct raw_caller callers[CONNECTIONS];
	unsigned count = 0;
	int r = 0;

	while (r == 0 && count < CONNECTIONS) {
		r = raw_caller_open(b, t, &callers[count]);
		if (r == 0)
			count++;
	}
	if (r == 0)
		r = run_crowd(b, raw_call_once, callers, sizeof(callers[0]), ret_result);
	while (count > 0)
		raw_close(&callers[--count].conn);
	return r;
}

static int own_crowd(struct bench *b, const struct test *t, struct result *ret_result)
{
	struct own_caller callers[CONNECTIONS];
	unsigned count = 0;
	int r = 0;

	while (r == 0 && count < CONNECTIONS) {
		r = own_caller_open(b, t, &callers[count]);
		if (r == 0)
			count++;
	}
	if (r == 0)
		r = run_crowd(b, own_echo_once, callers, sizeof(callers[0]), ret_result);
	while (count > 0)
		rpc_client_free(callers[--count].client);
	return r;
}

/* -- handshakes ------------------------------------------------------------------------------ */

struct opener {
	struct bench *b;
	const struct test *test;
	struct rpc_tls_ctx *tls;
};

/* Connect, TLS handshake, one small exchange, so that the server is done, too; close. */
static int raw_open_once(void *arg)
{
	struct opener *o = arg;
	struct raw_caller caller;
	int r = raw_caller_open(o->b, o->test, &caller);

	if (r < 0)
		return r;
	r = raw_call_once(&caller);
	raw_close(&caller.conn);
	return r;
}

static int raw_opens(struct bench *b, const struct test *t, struct result *ret_result)
{
	struct opener opener = {.b = b, .test = t};

	return run_calls(b, raw_open_once, &opener, ret_result);
}

/* The same with our handshake as the exchange. */
static int own_open_once(void *arg)
{
	struct opener *o = arg;
	struct ours *ours = &o->b->ours;
	struct rpc_chan_options options = {
		.env = ours->env,
		.endpoint = own_endpoint(o->b, o->test),
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

static int own_opens(struct bench *b, const struct test *t, struct result *ret_result)
{
	struct opener opener = {.b = b, .test = t};
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

static int raw_shakes(struct bench *b, const struct test *t GX_UNUSED, struct result *ret_result)
{
	struct shaker shaker = {b->tls.server, b->tls.client};

	return run_calls(b, shake_call, &shaker, ret_result);
}

static int own_shakes(struct bench *b, const struct test *t GX_UNUSED, struct result *ret_result)
{
	struct shaker shaker = {b->psk_server, b->psk_client};

	return run_calls(b, shake_call, &shaker, ret_result);
}

/* -- what is measured --------------------------------------------------------------------------- */

enum {
	TEST_TCP,
	TEST_TLS,
	TEST_UNIX,
	TEST_TCP_WINDOW,
	TEST_TLS_WINDOW,
	TEST_CROWD,
	TEST_TCP_1M,
	TEST_TLS_1M,
	TEST_TCP_1M_THREAD,
	TEST_TLS_1M_THREAD,
	TEST_TCP_64M,
	TEST_TLS_64M,
	TEST_OPEN_TLS,
	TEST_SHAKE,
	TEST_OPEN_TCP,
	TEST_COUNT
};

static struct test tests[TEST_COUNT] = {
	[TEST_TCP] = {"call tcp", raw_calls, own_calls, RAW_TCP, OURS_TCP, false, SMALL_BYTES},
	[TEST_TLS] = {"call tls", raw_calls, own_calls, RAW_TLS, OURS_TLS, false, SMALL_BYTES},
	[TEST_UNIX] = {"call unix", raw_calls, own_calls, RAW_UNIX, OURS_UNIX, false, SMALL_BYTES},
	[TEST_TCP_WINDOW] = {"window tcp", raw_window, own_window, RAW_TCP, OURS_TCP, false,
			     SMALL_BYTES},
	[TEST_TLS_WINDOW] = {"window tls", raw_window, own_window, RAW_TLS, OURS_TLS, false,
			     SMALL_BYTES},
	[TEST_CROWD] = {"crowd tcp", raw_crowd, own_crowd, RAW_EPOLL, OURS_TCP, false, SMALL_BYTES},
	[TEST_TCP_1M] = {"1m tcp loop", raw_calls, own_calls, RAW_TCP, OURS_TCP, false, MIB},
	[TEST_TLS_1M] = {"1m tls loop", raw_calls, own_calls, RAW_TLS, OURS_TLS, false, MIB},
	[TEST_TCP_1M_THREAD] = {"1m tcp thread", raw_calls, own_calls, RAW_TCP, OURS_TCP, true,
				MIB},
	[TEST_TLS_1M_THREAD] = {"1m tls thread", raw_calls, own_calls, RAW_TLS, OURS_TLS, true,
				MIB},
	[TEST_TCP_64M] = {"64m tcp thread", raw_calls, own_calls, RAW_TCP, OURS_TCP, true,
			  LARGEST_BYTES},
	[TEST_TLS_64M] = {"64m tls thread", raw_calls, own_calls, RAW_TLS, OURS_TLS, true,
			  LARGEST_BYTES},
	[TEST_OPEN_TLS] = {"open tls", raw_opens, own_opens, RAW_TLS, OURS_TLS, false, SMALL_BYTES},
	[TEST_SHAKE] = {"shake", raw_shakes, own_shakes, RAW_TLS, OURS_TLS, false, SMALL_BYTES},
	[TEST_OPEN_TCP] = {"open tcp", raw_opens, own_opens, RAW_TCP, OURS_TCP, false, SMALL_BYTES},
};

enum measure { P50_US, P99_US, PER_SEC, MB_PER_SEC };

/* A line of the table. Targets: ratio 0 means none; at most for times, at least for rates. */
static const struct row {
	int test;
	enum measure measure;
	const char *name;
	double ratio_target;
	double floor; /* least value, whatever the ratio */
} rows[] = {
	{TEST_TCP, P50_US, "64 B call, tcp, p50", 1.5, 0},
	{TEST_TCP, P99_US, "64 B call, tcp, p99", 0, 0},
	{TEST_TCP, PER_SEC, "64 B call, tcp", 0.65, 0},
	{TEST_TLS, P50_US, "64 B call, tls, p50", 1.5, 0},
	{TEST_TLS, P99_US, "64 B call, tls, p99", 0, 0},
	{TEST_TLS, PER_SEC, "64 B call, tls", 0.65, 0},
	{TEST_UNIX, P50_US, "64 B call, unix, p50", 1.5, 0},
	{TEST_UNIX, P99_US, "64 B call, unix, p99", 0, 0},
	{TEST_UNIX, PER_SEC, "64 B call, unix", 0.65, 0},
	{TEST_TCP_WINDOW, PER_SEC, "8 in flight, tcp", 0, 60000},
	{TEST_TLS_WINDOW, PER_SEC, "8 in flight, tls", 0, 0},
	{TEST_CROWD, PER_SEC, "8 connections, tcp (raw: epoll)", 0.6, 0},
	{TEST_TCP_1M, MB_PER_SEC, "1 MiB, tcp, loop server", 0.8, 0},
	{TEST_TLS_1M, MB_PER_SEC, "1 MiB, tls, loop server", 0.85, 0},
	{TEST_TCP_1M_THREAD, MB_PER_SEC, "1 MiB, tcp, threaded server", 0.8, 0},
	{TEST_TLS_1M_THREAD, MB_PER_SEC, "1 MiB, tls, threaded server", 0.85, 0},
	{TEST_TCP_64M, MB_PER_SEC, "64 MiB, tcp, threaded server", 0.9, 0},
	{TEST_TLS_64M, MB_PER_SEC, "64 MiB, tls, threaded server", 0.9, 0},
	{TEST_OPEN_TLS, P50_US, "connect, tls (raw: certificate)", 0.5, 0},
	{TEST_SHAKE, P50_US, "TLS handshake alone, PSK (raw: cert.)", 0.5, 0},
	{TEST_OPEN_TCP, P50_US, "connect, tcp with HMAC (raw: none)", 0, 0},
};

static bool is_time(enum measure measure)
{
	return measure == P50_US || measure == P99_US;
}

static const char *unit_of(enum measure measure)
{
	static const char *const units[] = {
		[P50_US] = "us", [P99_US] = "us", [PER_SEC] = "/s", [MB_PER_SEC] = "MB/s"};

	return units[measure];
}

static double value_of(const struct row *row, const struct result *result)
{
	switch (row->measure) {
	case P50_US:
		return result->p50_us;
	case P99_US:
		return result->p99_us;
	case PER_SEC:
		return result->per_sec;
	case MB_PER_SEC:
		return result->per_sec * (double)tests[row->test].bytes / 1e6;
	}
	return 0;
}

static double median(double *values, unsigned count)
{
	qsort(values, count, sizeof(*values), compare_double);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

struct line {
	double raw, own, ratio;
	bool has_target, met;
};

static struct line line_of(const struct row *row)
{
	const struct test *t = &tests[row->test];
	double raw[ROUNDS_MAX], own[ROUNDS_MAX], ratio[ROUNDS_MAX];
	struct line line;

	for (unsigned i = 0; i < t->rounds; i++) {
		raw[i] = value_of(row, &t->raw_rounds[i]);
		own[i] = value_of(row, &t->own_rounds[i]);
		ratio[i] = own[i] / raw[i];
	}
	line = (struct line){median(raw, t->rounds), median(own, t->rounds),
			     median(ratio, t->rounds), row->ratio_target > 0 || row->floor > 0,
			     true};
	if (row->ratio_target > 0)
		line.met = is_time(row->measure) ? line.ratio <= row->ratio_target
						 : line.ratio >= row->ratio_target;
	if (row->floor > 0 && line.own < row->floor)
		line.met = false;
	return line;
}

/* -- output ----------------------------------------------------------------------------------- */

static void cpu_model(char *text, size_t bytes)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[512];

	GX_IGNORE(gx_strcpy(text, bytes, "unknown"));
	while (f && fgets(line, sizeof(line), f)) {
		char *colon = strchr(line, ':');

		if (!colon || strncmp(line, "model name", 10) != 0)
			continue;
		colon[strcspn(colon, "\n")] = '\0';
		GX_IGNORE(gx_format(text, bytes, "%s", colon + 2));
		break;
	}
	if (f)
		fclose(f);
}

static const char *pinning_text(enum pinning pinning)
{
	switch (pinning) {
	case PIN_SPLIT:
		return "client on one CPU, servers on another";
	case PIN_SAME:
		return "client and servers on one CPU";
	case PIN_NONE:
		return "not pinned";
	}
	return "?";
}

static void print_header(const struct bench *b)
{
	struct utsname host;
	char model[128];

	cpu_model(model, sizeof(model));
	uname(&host);
	printf("wire: %s, %ld CPUs; %s %s; %s; checksums %s\n", model,
	       sysconf(_SC_NPROCESSORS_ONLN), host.sysname, host.release,
	       OpenSSL_version(OPENSSL_VERSION_STRING), gx_sum_variant());
	printf("wire: %u rounds, raw and ours in turn; %s\n\n", b->rounds,
	       pinning_text(b->pinning));
	printf("%-38s %5s %10s %10s %7s %9s\n", "", "", "raw", "ours", "ratio", "target");
}

static void target_text(const struct row *row, char text[16])
{
	text[0] = '\0';
	if (row->ratio_target > 0)
		gx_format(text, 16, "%s %.2f", is_time(row->measure) ? "<=" : ">=",
			  row->ratio_target);
	else if (row->floor > 0)
		gx_format(text, 16, ">= %.0f", row->floor);
}

static void print_line(const struct row *row, const struct line *line)
{
	char target[16];
	int digits = is_time(row->measure) ? 1 : 0;

	target_text(row, target);
	printf("%-38s %5s %10.*f %10.*f %7.2f %9s %s\n", row->name, unit_of(row->measure), digits,
	       line->raw, digits, line->own, line->ratio, target,
	       !line->has_target ? "" : (line->met ? "ok" : "MISS"));
	fflush(stdout);
}

static int write_json(const struct bench *b, const char *path)
{
	FILE *f = fopen(path, "we");
	struct utsname host;
	const char *comma = "";
	char model[128];

	if (!f)
		return gx_errno();
	cpu_model(model, sizeof(model));
	uname(&host);
	fprintf(f,
		"{\n\"cpu\": \"%s\", \"cpus\": %ld, \"kernel\": \"%s\", \"openssl\": \"%s\",\n"
		"\"checksum\": \"%s\", \"rounds\": %u, \"pinning\": \"%s\",\n\"figures\": [",
		model, sysconf(_SC_NPROCESSORS_ONLN), host.release,
		OpenSSL_version(OPENSSL_VERSION_STRING), gx_sum_variant(), b->rounds,
		pinning_text(b->pinning));
	for (size_t i = 0; i < GX_COUNT_OF(rows); i++) {
		struct line line;

		if (tests[rows[i].test].rounds == 0)
			continue;
		line = line_of(&rows[i]);
		fprintf(f,
			"%s\n{\"name\": \"%s\", \"unit\": \"%s\", \"raw\": %.2f, \"ours\": %.2f, "
			"\"ratio\": %.3f, \"ratio_target\": %.2f, \"floor\": %.0f, \"met\": %s}",
			comma, rows[i].name, unit_of(rows[i].measure), line.raw, line.own,
			line.ratio, rows[i].ratio_target, rows[i].floor,
			line.has_target ? (line.met ? "true" : "false") : "null");
		comma = ",";
	}
	fprintf(f, "\n]}\n");
	return fclose(f) == 0 ? 0 : gx_errno();
}

/* -- running ----------------------------------------------------------------------------------- */

static int run_test(struct bench *b, struct test *t)
{
	for (unsigned i = 0; i < b->rounds; i++) {
		bool raw_first = i % 2 == 0;
		int r;

		r = raw_first ? t->raw(b, t, &t->raw_rounds[i]) : t->own(b, t, &t->own_rounds[i]);
		if (r == 0)
			r = raw_first ? t->own(b, t, &t->own_rounds[i])
				      : t->raw(b, t, &t->raw_rounds[i]);
		if (r < 0) {
			fprintf(stderr, "wire: %s: %s\n", t->name, gx_strerror(r));
			return r;
		}
	}
	t->rounds = b->rounds;
	return 0;
}

static int run_all(struct bench *b)
{
	unsigned targets = 0, met = 0;

	print_header(b);
	for (int id = 0; id < TEST_COUNT; id++) {
		int r;

		if (b->only && !strstr(tests[id].name, b->only))
			continue;
		r = run_test(b, &tests[id]);
		if (r < 0)
			return r;
		for (size_t i = 0; i < GX_COUNT_OF(rows); i++) {
			struct line line;

			if (rows[i].test != id)
				continue;
			line = line_of(&rows[i]);
			print_line(&rows[i], &line);
			targets += line.has_target;
			met += line.has_target && line.met;
		}
	}
	printf("\nwire: %u of %u targets met\n", met, targets);
	return 0;
}

static void pin(unsigned cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	/* A machine with one CPU, or a container that forbids it: the figures are noisier. */
	GX_IGNORE(sched_setaffinity(0, sizeof(set), &set));
}

/* In a new child: dies with its parent, runs where servers run. */
static void become_server(const struct bench *b)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (b->pinning != PIN_NONE)
		pin(0);
}

static int start_servers(struct bench *b)
{
	int ready[2];
	int r;

	fflush(NULL);
	b->raw_pid = fork();
	if (b->raw_pid == 0) {
		become_server(b);
		raw_server_run(&b->raw);
	}
	if (b->raw_pid < 0 || pipe2(ready, O_CLOEXEC) < 0)
		return gx_errno();
	b->ours_pid = fork();
	if (b->ours_pid == 0) {
		become_server(b);
		ours_server_run(&b->ours, ready[1]);
	}
	close(ready[1]);
	r = b->ours_pid < 0 ? gx_errno() : ours_take_endpoints(&b->ours, ready[0]);
	close(ready[0]);
	return r;
}

static int bench_init(struct bench *b)
{
	int r;

	if (gx_strcpy(b->directory, sizeof(b->directory), "/tmp/wire.XXXXXX") < 0 ||
	    !mkdtemp(b->directory))
		return gx_errno();
	b->payload = malloc(LARGEST_BYTES);
	b->samples = malloc(SAMPLES_MAX * sizeof(*b->samples));
	if (!b->payload || !b->samples)
		return -ENOMEM;
	memset(b->payload, 7, LARGEST_BYTES);
	memset(b->samples, 0, SAMPLES_MAX * sizeof(*b->samples));
	r = raw_tls_init(&b->tls);
	if (r == 0)
		r = shake_psk_init("X25519", &b->psk_server, &b->psk_client);
	if (r == 0) {
		char path[sizeof(b->directory) + 8];

		gx_format(path, sizeof(path), "%s/raw", b->directory);
		r = raw_server_init(&b->raw, &b->tls, path);
	}
	if (r == 0)
		r = ours_init(&b->ours, gx_env_posix(), b->directory);
	if (r == 0)
		r = start_servers(b);
	if (r == 0 && b->pinning != PIN_NONE)
		pin(b->pinning == PIN_SPLIT ? 1 : 0);
	return r;
}

static void bench_fini(struct bench *b)
{
	static const char *const files[] = {"raw", "ours"};
	pid_t servers[] = {b->raw_pid, b->ours_pid};

	for (size_t i = 0; i < GX_COUNT_OF(servers); i++) {
		if (servers[i] > 0) {
			kill(servers[i], SIGKILL);
			waitpid(servers[i], NULL, 0);
		}
	}
	for (size_t i = 0; i < GX_COUNT_OF(files); i++) {
		char path[sizeof(b->directory) + 8];

		gx_format(path, sizeof(path), "%s/%s", b->directory, files[i]);
		unlink(path);
	}
	rmdir(b->directory);
	raw_server_fini(&b->raw);
	raw_tls_fini(&b->tls);
	SSL_CTX_free(b->psk_server);
	SSL_CTX_free(b->psk_client);
	rpc_key_clear(&b->ours.key);
	free(b->payload);
	free(b->samples);
}

static int usage(void)
{
	fputs("usage: wire [--quick] [--json FILE] [--rounds N] [--round-ms N]\n"
	      "            [--pin split|same|none] [--only PART-OF-A-TEST]\n",
	      stderr);
	return 2;
}

static int parse_options(struct bench *b, int argc, char **argv, const char **ret_json)
{
	static const struct option options[] = {
		{"quick", no_argument, NULL, 'q'},	{"json", required_argument, NULL, 'j'},
		{"rounds", required_argument, NULL, 'r'}, {"round-ms", required_argument, NULL, 'm'},
		{"pin", required_argument, NULL, 'p'},	{"only", required_argument, NULL, 'o'},
		{NULL, 0, NULL, 0}};
	uint64_t number;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'q':
			b->rounds = 3;
			b->round_ns = 100 * GX_NSEC_PER_MSEC;
			break;
		case 'j':
			*ret_json = optarg;
			break;
		case 'r':
			if (gx_parse_u64(optarg, &number) < 0 || number < 1 || number > ROUNDS_MAX)
				return -EINVAL;
			b->rounds = (unsigned)number;
			break;
		case 'm':
			if (gx_parse_u64(optarg, &number) < 0 || number < 1 || number > 60000)
				return -EINVAL;
			b->round_ns = (int64_t)number * GX_NSEC_PER_MSEC;
			break;
		case 'p':
			if (strcmp(optarg, "split") == 0)
				b->pinning = PIN_SPLIT;
			else if (strcmp(optarg, "same") == 0)
				b->pinning = PIN_SAME;
			else if (strcmp(optarg, "none") == 0)
				b->pinning = PIN_NONE;
			else
				return -EINVAL;
			break;
		case 'o':
			b->only = optarg;
			break;
		default:
			return -EINVAL;
		}
	}
	return optind == argc ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
	static struct bench b = {.rounds = 9,
				 .round_ns = 200 * GX_NSEC_PER_MSEC,
				 .pinning = PIN_SAME};
	const char *json = NULL;
	int r;

	if (parse_options(&b, argc, argv, &json) < 0)
		return usage();
	/* A connection that the peer closed is an error code here, not the end. */
	sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
	r = bench_init(&b);
	if (r == 0)
		r = run_all(&b);
	if (r == 0 && json)
		r = write_json(&b, json);
	if (r < 0)
		fprintf(stderr, "wire: %s\n", gx_strerror(r));
	bench_fini(&b);
	return r < 0 ? 1 : 0;
}
