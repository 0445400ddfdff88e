/*
 * Pushes, payloads and blocked writers in the simulation.
 *
 * Pushes: ticks arrive in order and without a gap, or the receiver gets an error and knows that
 * it missed something; an emit that was answered has been received in full.
 *
 * SIM_SEEDS=n runs more seeds; each failure names its seed and the cut.
 */
#include "common/gx_sum.h"
#include "echo.pb-c.h"
#include "tests/lib/sim_alloc.h"
#include "tests/lib/sim_grid.h"
#include <check.h>
#include <stdio.h>

#define RPC_SERVICE_ECHO
#include "rpc/rpc_stub.h"

/* -- push --------------------------------------------------------------------------------- */

#define TICKS 5u
#define EMITS 3u

struct listener {
	struct gx_env *env;
	struct rpc_client *client;
	struct rpc_chan *chan; /* the open push channel, or NULL */
	bool ending;
	unsigned rounds;   /* emits received in full */
	unsigned channels; /* opened */
	unsigned errors;   /* the receiver was told that it may have missed something */
	char wrong[96];    /* what broke the promise */

	unsigned answered;       /* emits answered with all ticks acknowledged */
	unsigned answered_short; /* answered without having been received */
	int result;
	size_t blocks;
	struct gx_sim_proc *proc;
};

/* Reads one channel until it fails. */
static void listen_on(struct listener *l, struct rpc_chan *chan)
{
	struct rpc_push_message push;
	uint32_t last = 0;
	int r = 0;

	rpc_push_message_init(&push);
	while (r == 0) {
		r = rpc_chan_receive(chan, GX_FOREVER, &push);
		if (r == 0) {
			uint32_t number = ((const PbEcho__TickRequest *)push.message)->number;

			/* After the last of one emit comes the first of the next. */
			if (number != last % TICKS + 1)
				snprintf(l->wrong, sizeof(l->wrong), "tick %u after %u", number,
					 last);
			last = number;
			l->rounds += number == TICKS;
			r = rpc_chan_ack(chan, push.seq, gx_env_deadline_ms(l->env, 1000));
		}
	}
	rpc_push_message_fini(&push);
	l->errors++;
}

static void listen_fiber(void *arg)
{
	struct listener *l = arg;

	while (!l->ending) {
		struct rpc_chan *chan;
		int r = rpc_client_open_push(l->client, gx_env_deadline_ms(l->env, 5000), NULL,
					     &chan);

		if (r < 0) {
			gx_env_sleep_until(l->env, gx_env_deadline_ms(l->env, 5));
			continue;
		}
		l->chan = chan;
		l->channels++;
		if (!l->ending)
			listen_on(l, chan);
		l->chan = NULL;
		rpc_chan_close(chan);
	}
}

/* Until it is answered: without a push channel (yet, or any more) emit says ENOTCONN. */
static int emit(struct listener *l)
{
	PbEcho__EmitRequest request = PB_ECHO__EMIT_REQUEST__INIT;
	const PbEcho__EmitReply *answer;
	int64_t deadline_ns = gx_env_deadline_ms(l->env, 30000);
	int r;

	request.count = TICKS;
	do {
		struct rpc_call_options options = {.deadline_ns = deadline_ns};
		unsigned rounds = l->rounds;
		struct rpc_reply reply;

		r = echo_call_emit(l->client, &request, &options, &reply, &answer);
		if (r == 0) {
			l->answered++;
			l->answered_short += l->rounds == rounds || answer->acknowledged != TICKS;
		}
		rpc_reply_fini(&reply);
		if (r == -ENOTCONN)
			gx_env_sleep_until(l->env, gx_env_deadline_ms(l->env, 3));
	} while (r == -ENOTCONN && gx_env_now_ns(l->env) < deadline_ns);
	return r;
}

static void listener_main(struct gx_env *env, void *arg)
{
	struct listener *l = arg;
	struct rpc_client_options options;
	struct gx_thread thread;

	l->env = env;
	sim_grid_client_options(env, &options);
	ck_assert_int_eq(rpc_client_new(&options, &l->client), 0);
	ck_assert_int_eq(gx_env_thread_start(env, &thread, "listen", listen_fiber, l), 0);
	for (unsigned i = 0; i < EMITS && l->result == 0; i++)
		l->result = emit(l);
	l->ending = true;
	if (l->chan != NULL)
		rpc_chan_abort(l->chan);
	gx_env_thread_join(env, &thread);
	rpc_client_free(l->client);
	l->blocks = sim_alloc_blocks(gx_sim_current());
}

struct push_cut {
	unsigned connection; /* the push channel and the call's race for being first */
	enum gx_sim_direction direction;
	uint64_t bytes;
};

static void push_run(uint64_t seed, const struct push_cut *cut,
		     uint64_t ret_bytes[GX_SIM_DIRECTION_COUNT], unsigned *channels)
{
	struct listener l = {0};
	struct sim_grid grid;
	char name[96] = "no cut";

	if (cut != NULL)
		snprintf(name, sizeof(name), "connection %u cut at byte %llu in direction %u",
			 cut->connection, (unsigned long long)cut->bytes, cut->direction);
	sim_grid_init(&grid, seed);
	sim_grid_start(&grid);
	for (unsigned d = 0; cut != NULL && d < GX_SIM_DIRECTION_COUNT; d++) {
		if (cut->connection > 0)
			gx_sim_cut_after(grid.sim, d, UINT64_MAX);
		gx_sim_cut_after(grid.sim, d, cut->direction == d ? cut->bytes : UINT64_MAX);
	}
	ck_assert_int_eq(gx_sim_spawn(grid.client_host, "listener", listener_main, &l, &l.proc), 0);
	ck_assert_msg(gx_sim_run(grid.sim, l.proc) == 0, "seed %llu, %s", (unsigned long long)seed,
		      name);
	ck_assert_msg(l.wrong[0] == '\0', "seed %llu, %s: %s", (unsigned long long)seed, name,
		      l.wrong);
	ck_assert_msg(l.result == 0 && l.answered == EMITS && l.answered_short == 0,
		      "seed %llu, %s: result %s, %u answered, %u of them not received",
		      (unsigned long long)seed, name, gx_strerror(l.result), l.answered,
		      l.answered_short);
	/* Every channel that ended was told so, the last one by its own end. */
	ck_assert_uint_eq(l.errors, l.channels);
	ck_assert_uint_eq(l.blocks, 0);
	*channels += l.channels;
	for (unsigned d = 0; ret_bytes != NULL && d < GX_SIM_DIRECTION_COUNT; d++)
		ret_bytes[d] = gx_sim_bytes(grid.sim, d);
	sim_grid_free(&grid);
}

START_TEST(no_push_is_missed_silently_whatever_byte_a_connection_is_cut_at)
{
	uint64_t total[GX_SIM_DIRECTION_COUNT];
	unsigned channels = 0, runs = 0;

	push_run(1, NULL, total, &channels);
	ck_assert_uint_eq(channels, 1);
	for (unsigned c = 0; c < 2; c++)
		for (unsigned d = 0; d < GX_SIM_DIRECTION_COUNT; d++)
			for (uint64_t at = 0; at <= total[d]; at += 1 + c % 2) {
				struct push_cut cut = {c, d, at};

				push_run(1 + at, &cut, NULL, &channels);
				runs++;
			}
	printf("push: %u points of loss, %u channels opened\n", runs, channels - 1);
	/* The cuts must have hit push channels. */
	ck_assert_uint_gt(channels, runs + 100);
}
END_TEST

/* -- payloads ------------------------------------------------------------------------------- */

#define PAYLOAD_BYTES 200000u

struct carrier {
	int echoed, sunk;
	size_t blocks;
	struct gx_sim_proc *proc;
};

static int carry_echo(struct rpc_client *client, unsigned char *out, unsigned char *in)
{
	PbEcho__EchoRequest request = PB_ECHO__ECHO_REQUEST__INIT;
	struct iovec iov = {out, PAYLOAD_BYTES};
	struct rpc_call_options options = {.payload_out = &iov,
					   .payload_out_count = 1,
					   .payload_in = in,
					   .payload_in_bytes = PAYLOAD_BYTES};
	const PbEcho__EchoReply *answer;
	struct rpc_reply reply;
	int r;

	request.data.data = out;
	request.data.len = 100;
	memset(in, 0, PAYLOAD_BYTES);
	r = echo_call_echo(client, &request, &options, &reply, &answer);
	if (r == 0 && (reply.payload_bytes != PAYLOAD_BYTES || answer->data.len != 100 ||
		       memcmp(out, in, PAYLOAD_BYTES) != 0))
		r = -EBADMSG;
	rpc_reply_fini(&reply);
	return r;
}

static int carry_sink(struct rpc_client *client, unsigned char *out)
{
	PbEcho__SinkRequest request = PB_ECHO__SINK_REQUEST__INIT;
	struct iovec iov[2] = {{out, 1000}, {out + 1000, PAYLOAD_BYTES - 1000}};
	struct rpc_call_options options = {.payload_out = iov, .payload_out_count = 2};
	const PbEcho__SinkReply *answer;
	struct rpc_reply reply;
	int r;

	request.checksum = true;
	r = echo_call_sink(client, &request, &options, &reply, &answer);
	if (r == 0 &&
	    (answer->bytes != PAYLOAD_BYTES || answer->sum != gx_sum64(out, PAYLOAD_BYTES)))
		r = -EBADMSG;
	rpc_reply_fini(&reply);
	return r;
}

static void carrier_main(struct gx_env *env, void *arg)
{
	struct carrier *c = arg;
	struct rpc_client_options options;
	struct rpc_client *client;
	unsigned char *out = malloc(PAYLOAD_BYTES), *in = malloc(PAYLOAD_BYTES);

	for (size_t i = 0; i < PAYLOAD_BYTES; i++)
		out[i] = (unsigned char)(i * 7 + i / 251);
	sim_grid_client_options(env, &options);
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
	c->echoed = carry_echo(client, out, in);
	c->sunk = carry_sink(client, out);
	rpc_client_free(client);
	free(out);
	free(in);
	c->blocks = sim_alloc_blocks(gx_sim_current());
}

START_TEST(payloads_arrive_whole_through_cuts_and_small_buffers)
{
	for (uint64_t seed = 1; seed <= sim_seeds(300); seed++) {
		struct carrier c = {0};
		struct sim_grid grid;

		sim_grid_init(&grid, seed);
		grid.options.socket_buffer_bytes = 1000 + seed * 97 % 60000;
		grid.options.short_io_percent = (unsigned)(seed % 60);
		sim_grid_start(&grid);
		for (unsigned i = 0; i < 3; i++)
			gx_sim_cut_after(grid.sim, (seed + i) % 2,
					 gx_sim_random_below(grid.sim, 2 * PAYLOAD_BYTES));
		ck_assert_int_eq(
			gx_sim_spawn(grid.client_host, "carrier", carrier_main, &c, &c.proc), 0);
		ck_assert_int_eq(gx_sim_run(grid.sim, c.proc), 0);
		ck_assert_msg(c.echoed == 0 && c.sunk == 0 && c.blocks == 0,
			      "seed %llu: echo %d, sink %d, %zu blocks", (unsigned long long)seed,
			      c.echoed, c.sunk, c.blocks);
		sim_grid_free(&grid);
	}
}
END_TEST

/* -- a writer that blocks ------------------------------------------------------------------------
 */

struct blocked {
	struct sim_grid *grid;
	struct gx_env *env;
	struct rpc_client *client;
	size_t bytes[2];     /* payloads of the two calls */
	uint64_t time_ms[2]; /* and how long they may take */
	int result[2];
	int64_t late_ns[2];
	struct gx_sim_proc *proc;
};

static int sink_until(struct blocked *b, int64_t deadline_ns, size_t bytes, int64_t *ret_late_ns)
{
	PbEcho__SinkRequest request = PB_ECHO__SINK_REQUEST__INIT;
	unsigned char *data = calloc(1, bytes);
	struct iovec iov = {data, bytes};
	struct rpc_call_options options = {
		.payload_out = &iov, .payload_out_count = 1, .deadline_ns = deadline_ns};
	const PbEcho__SinkReply *answer;
	struct rpc_reply reply;
	int r = echo_call_sink(b->client, &request, &options, &reply, &answer);

	*ret_late_ns = gx_env_now_ns(b->env) - deadline_ns;
	rpc_reply_fini(&reply);
	free(data);
	return r;
}

static void second_sink(void *arg)
{
	struct blocked *b = arg;

	gx_env_sleep_until(b->env, gx_env_deadline_ms(b->env, 10));
	b->result[1] = sink_until(b, gx_env_deadline_ms(b->env, b->time_ms[1]), b->bytes[1],
				  &b->late_ns[1]);
}

static void blocked_main(struct gx_env *env, void *arg)
{
	struct blocked *b = arg;
	struct rpc_client_options options;
	struct gx_thread thread;
	int64_t late_ns;

	b->env = env;
	sim_grid_client_options(env, &options);
	options.connections_max = 1;
	ck_assert_int_eq(rpc_client_new(&options, &b->client), 0);
	ck_assert_int_eq(sink_until(b, gx_env_deadline_ms(env, 1000), 10, &late_ns), 0);
	gx_sim_stop(b->grid->server);
	ck_assert_int_eq(gx_env_thread_start(env, &thread, "second", second_sink, b), 0);
	b->result[0] =
		sink_until(b, gx_env_deadline_ms(env, b->time_ms[0]), b->bytes[0], &b->late_ns[0]);
	gx_env_thread_join(env, &thread);
	rpc_client_free(b->client);
}

/* A stopped server takes nothing: the first call fills the socket, the second waits behind it. */
START_TEST(a_call_behind_a_blocked_write_still_ends_at_its_own_deadline)
{
	struct sim_grid grid;
	struct blocked b = {.grid = &grid, .bytes = {500000, 10}, .time_ms = {20000, 500}};

	sim_grid_init(&grid, 1);
	sim_grid_start(&grid);
	ck_assert_int_eq(gx_sim_spawn(grid.client_host, "blocked", blocked_main, &b, &b.proc), 0);
	ck_assert_int_eq(gx_sim_run(grid.sim, b.proc), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(b.result[i], -ETIMEDOUT);
		ck_assert_int_ge(b.late_ns[i], 0);
		ck_assert_int_lt(b.late_ns[i], 100000);
	}
	sim_grid_free(&grid);
}
END_TEST

/*
 * The first call waits for its reply while the second fills the socket and times out in the
 * middle: that breaks the connection, but the first has time to try again on another.
 */
static void impatient_main(struct gx_env *env, void *arg)
{
	struct blocked *b = arg;

	gx_env_sleep_until(env, gx_env_deadline_ms(env, 5000));
	gx_sim_continue(b->grid->server);
}

START_TEST(a_call_that_times_out_does_not_time_out_others_on_its_connection)
{
	struct sim_grid grid;
	struct blocked b = {.grid = &grid, .bytes = {10, 500000}, .time_ms = {20000, 500}};

	sim_grid_init(&grid, 1);
	sim_grid_start(&grid);
	ck_assert_int_eq(gx_sim_spawn(grid.client_host, "blocked", blocked_main, &b, &b.proc), 0);
	ck_assert_int_eq(gx_sim_spawn(grid.other_host, "impatient", impatient_main, &b, NULL), 0);
	ck_assert_int_eq(gx_sim_run(grid.sim, b.proc), 0);
	ck_assert_int_eq(b.result[0], 0);
	ck_assert_int_eq(b.result[1], -ETIMEDOUT);
	sim_grid_free(&grid);
}
END_TEST

/* -- whose memory --------------------------------------------------------------------------------
 */

#define CROWD_BYTES 60000u
#define CROWD 4u

struct crowd {
	struct sim_grid *grid;
	struct gx_env *env;
	struct rpc_client *client;
	unsigned ok, failed, touched;
	struct gx_sim_proc *proc;
};

/* After a call has returned, its payload memory is the caller's: nobody writes there any more. */
static void crowd_call(struct crowd *c, unsigned char *out, unsigned char *in)
{
	PbEcho__EchoRequest request = PB_ECHO__ECHO_REQUEST__INIT;
	struct iovec iov = {out, CROWD_BYTES};
	struct rpc_call_options options = {.payload_out = &iov,
					   .payload_out_count = 1,
					   .payload_in = in,
					   .payload_in_bytes = CROWD_BYTES};
	const PbEcho__EchoReply *answer;
	struct rpc_reply reply;
	int r;

	options.deadline_ns =
		gx_env_now_ns(c->env) +
		(int64_t)gx_sim_random_below(c->grid->sim, 80 * (uint64_t)GX_NSEC_PER_MSEC) + 1;
	r = echo_call_echo(c->client, &request, &options, &reply, &answer);
	rpc_reply_fini(&reply);
	if (r == 0)
		c->ok++;
	else
		c->failed++;
	memset(in, 0xee, CROWD_BYTES);
	gx_env_sleep_until(c->env, gx_env_deadline_ms(c->env, 20));
	for (size_t i = 0; i < CROWD_BYTES; i++)
		if (in[i] != 0xee) {
			c->touched++;
			break;
		}
}

static void crowd_fiber(void *arg)
{
	struct crowd *c = arg;
	unsigned char *out = calloc(1, CROWD_BYTES), *in = malloc(CROWD_BYTES);

	for (int i = 0; i < 4; i++)
		crowd_call(c, out, in);
	free(out);
	free(in);
}

/* Its answers come late, so it is mostly this call's thread that reads for all. */
static void reader_fiber(void *arg)
{
	struct crowd *c = arg;
	int64_t value;

	for (int i = 0; i < 4; i++)
		if (sim_tally(c->client, 1, 100, gx_env_deadline_ms(c->env, 60000), &value) < 0)
			c->touched++;
}

static void crowd_main(struct gx_env *env, void *arg)
{
	struct crowd *c = arg;
	struct rpc_client_options options;
	struct gx_thread threads[CROWD];

	c->env = env;
	sim_grid_client_options(env, &options);
	options.connections_max = 1;
	ck_assert_int_eq(rpc_client_new(&options, &c->client), 0);
	for (unsigned i = 0; i < CROWD; i++)
		ck_assert_int_eq(gx_env_thread_start(env, &threads[i], "crowd",
						     i == 0 ? reader_fiber : crowd_fiber, c),
				 0);
	for (unsigned i = 0; i < CROWD; i++)
		gx_env_thread_join(env, &threads[i]);
	rpc_client_free(c->client);
}

START_TEST(a_call_that_has_returned_leaves_its_payload_memory_alone)
{
	unsigned ok = 0, failed = 0;

	for (uint64_t seed = 1; seed <= sim_seeds(200); seed++) {
		struct sim_grid grid;
		struct crowd c = {.grid = &grid};

		sim_grid_init(&grid, seed);
		grid.options.socket_buffer_bytes = 2000;
		grid.options.switch_percent = 50;
		sim_grid_start(&grid);
		ck_assert_int_eq(gx_sim_spawn(grid.client_host, "crowd", crowd_main, &c, &c.proc),
				 0);
		ck_assert_int_eq(gx_sim_run(grid.sim, c.proc), 0);
		ck_assert_msg(c.touched == 0, "seed %llu: %u times", (unsigned long long)seed,
			      c.touched);
		ok += c.ok;
		failed += c.failed;
		sim_grid_free(&grid);
	}
	ck_assert_uint_gt(ok, 0);
	ck_assert_uint_gt(failed, 0);
	printf("payload memory: %u calls ok, %u timed out\n", ok, failed);
}
END_TEST

/* -- ends ----------------------------------------------------------------------------------------
 */

/* The server ends at any moment of an exchange with pushes and calls in work: nothing stays. */
START_TEST(a_server_that_ends_at_any_moment_frees_everything)
{
	for (uint64_t us = 100; us < 8000; us += 20) {
		struct listener l = {0};
		struct sim_adder adder;
		struct sim_grid grid;

		sim_grid_init(&grid, us);
		grid.stop_after_ns = (int64_t)us * 1000;
		sim_grid_start(&grid);
		sim_adder_init(&adder, 4, 8);
		adder.delay_ms = us % 3 == 0 ? 2 : 0;
		sim_adder_start(&adder, &grid);
		ck_assert_int_eq(
			gx_sim_spawn(grid.client_host, "listener", listener_main, &l, &l.proc), 0);
		ck_assert_msg(gx_sim_run(grid.sim, grid.server) == 0, "stop after %llu us",
			      (unsigned long long)us);
		ck_assert_int_eq(grid.server_err, 0);
		ck_assert_uint_eq(grid.server_blocks, 0);
		sim_grid_free(&grid);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_rpc_bulk");
	TCase *tc = tcase_create("sim_rpc_bulk");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, no_push_is_missed_silently_whatever_byte_a_connection_is_cut_at);
	tcase_add_test(tc, payloads_arrive_whole_through_cuts_and_small_buffers);
	tcase_add_test(tc, a_call_behind_a_blocked_write_still_ends_at_its_own_deadline);
	tcase_add_test(tc, a_call_that_times_out_does_not_time_out_others_on_its_connection);
	tcase_add_test(tc, a_call_that_has_returned_leaves_its_payload_memory_alone);
	tcase_add_test(tc, a_server_that_ends_at_any_moment_frees_everything);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
