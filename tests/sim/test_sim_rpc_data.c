/*
 * Calls of the data path in the simulation: several in flight from one thread, given up at any
 * moment while another thread reads from the same connection; and servers that are slow, stopped or
 * cut off (rule B10).
 *
 * SIM_SEEDS=n runs more moments; each failure names its moment.
 */
#include "echo.pb-c.h"
#include "tests/lib/held_serve.h"
#include "tests/lib/sim_alloc.h"
#include "tests/lib/sim_grid.h"
#include <check.h>
#include <stdio.h>

#define FILE_BYTES 400000u
#define POISON 0x5c
#define CALLS 4u

struct world {
	struct gx_sim *sim;
	struct gx_sim_host *server_host, *client_host;
	struct gx_sim_proc *server, *user;
	int64_t release_ns; /* deferred calls stay so long */
	bool ending;
	size_t server_blocks, user_blocks;
};

static void server_main(struct gx_env *env, void *arg)
{
	struct world *w = arg;
	struct held_serve *held;

	ck_assert_int_eq(held_serve_start(env, SIM_GRID_ADDRESS, "/", FILE_BYTES, &held), 0);
	while (!w->ending) {
		gx_env_sleep_until(env, gx_env_now_ns(env) + w->release_ns);
		while (held_serve_deferred(held) > 0)
			held_serve_release(held);
	}
	held_serve_stop(held);
	w->server_blocks = sim_alloc_blocks(gx_sim_current());
}

static void world_start(struct world *w, uint64_t seed,
			void (*user_main)(struct gx_env *env, void *arg), void *arg)
{
	struct gx_sim_options options = GX_SIM_OPTIONS_INIT;

	options.seed = seed;
	ck_assert_int_eq(gx_sim_new(&options, &w->sim), 0);
	ck_assert_int_eq(gx_sim_host_new(w->sim, "server", &w->server_host), 0);
	ck_assert_int_eq(gx_sim_host_new(w->sim, "client", &w->client_host), 0);
	ck_assert_int_eq(gx_sim_spawn(w->server_host, "server", server_main, w, &w->server), 0);
	ck_assert_int_eq(gx_sim_spawn(w->client_host, "user", user_main, arg, &w->user), 0);
}

static void world_end(struct world *w, const char *name)
{
	ck_assert_msg(gx_sim_run(w->sim, w->user) == 0, "%s: the client hangs", name);
	w->ending = true;
	ck_assert_msg(gx_sim_run(w->sim, w->server) == 0, "%s: the server hangs", name);
	ck_assert_msg(w->user_blocks == 0, "%s: the client leaks", name);
	ck_assert_msg(w->server_blocks == 0, "%s: the server leaks", name);
	gx_sim_free(w->sim);
}

static void client_new(struct gx_env *env, unsigned connections_max, struct rpc_client **ret_client)
{
	struct rpc_client_options options;
	struct rpc_endpoint endpoint;

	ck_assert_int_eq(rpc_endpoint_parse(env, SIM_GRID_ADDRESS, false, &endpoint, NULL), 0);
	held_client_options(env, &endpoint, &options);
	options.timeout_ns = 60 * GX_NSEC_PER_SEC;
	options.connections_max = connections_max;
	ck_assert_int_eq(rpc_client_new(&options, ret_client), 0);
}

/* -- one call --------------------------------------------------------------------------------- */

struct call {
	struct held_order order;
	PbEcho__EchoRequest message;
	struct rpc_call_options options;
	struct iovec out;
	unsigned char *space;
	struct rpc_started *started;
	bool cancelled;
};

static void call_start(struct call *c, struct rpc_client *client, uint64_t flags, uint64_t offset,
		       uint64_t bytes, size_t payload_bytes, int64_t silent_ns)
{
	*c = (struct call){.order = {flags, offset, bytes}};
	pb_echo__echo_request__init(&c->message);
	c->message.data = (ProtobufCBinaryData){sizeof(c->order), (uint8_t *)&c->order};
	c->space = calloc(1, bytes + payload_bytes + 1);
	ck_assert_ptr_nonnull(c->space);
	c->out = (struct iovec){c->space + bytes, payload_bytes};
	c->options = (struct rpc_call_options){.payload_out = &c->out,
					       .payload_out_count = payload_bytes > 0,
					       .payload_in = c->space,
					       .payload_in_bytes = bytes,
					       .silent_ns = silent_ns};
	ck_assert_int_eq(rpc_client_start(client, rpc_method_get(RPC_INDEX_ECHO), &c->message.base,
					  &c->options, &c->started),
			 0);
}

static void call_cancel(struct call *c)
{
	rpc_client_cancel(GX_TAKE(c->started));
	memset(c->space, POISON, c->order.bytes);
	c->cancelled = true;
}

static bool is_right(const struct call *c)
{
	unsigned char *want = malloc(c->order.bytes + 1);
	bool right;

	ck_assert_ptr_nonnull(want);
	if (c->cancelled)
		memset(want, POISON, c->order.bytes);
	else
		held_pattern(want, c->order.offset, c->order.bytes);
	right = memcmp(want, c->space, c->order.bytes) == 0;
	free(want);
	return right;
}

static int call_finish(struct call *c)
{
	struct rpc_reply reply;
	int r = rpc_client_finish(GX_TAKE(c->started), &reply);

	rpc_reply_fini(&reply);
	return r;
}

/* -- giving up -------------------------------------------------------------------------------- */

struct quitter {
	struct world world;
	int64_t after_ns; /* when to give up, from the start */
	unsigned which;   /* bits: these calls */
	unsigned connections_max;
	char wrong[96];
	unsigned whole; /* calls that were over before they could be given up */

	struct gx_env *env;
	struct rpc_client *client;
	bool ending;
};

/* Another thread that always reads. */
static void busy_fiber(void *arg)
{
	struct quitter *q = arg;

	for (unsigned i = 0; !q->ending; i++) {
		struct call c;
		int r;

		call_start(&c, q->client, HELD_FILE, i, 30000 + i, 0, 0);
		r = call_finish(&c);
		if (r < 0 || !is_right(&c))
			snprintf(q->wrong, sizeof(q->wrong), "the other thread: %s",
				 gx_strerror(r));
		free(c.space);
	}
}

static void start_calls(struct quitter *q, struct call calls[CALLS])
{
	call_start(&calls[0], q->client, HELD_DEFER | HELD_MEMORY, 1, 20000, 0, 0);
	call_start(&calls[1], q->client, HELD_FILE, 3, 200000, 0, 0);
	call_start(&calls[2], q->client, HELD_EAT | HELD_FILE, 0, 10000, 150000, 0);
	call_start(&calls[3], q->client, HELD_DEFER | HELD_EAT_HALF | HELD_FILE, 7, 50000, 60000,
		   0);
}

static void quitter_main(struct gx_env *env, void *arg)
{
	struct quitter *q = arg;
	int64_t begin_ns = gx_env_now_ns(env);
	struct call calls[CALLS];
	struct gx_thread thread;

	q->env = env;
	client_new(env, q->connections_max, &q->client);
	ck_assert_int_eq(gx_env_thread_start(env, &thread, "busy", busy_fiber, q), 0);
	start_calls(q, calls);
	gx_env_sleep_until(env, begin_ns + q->after_ns);
	for (unsigned i = 0; i < CALLS; i++) {
		if (!(q->which & 1u << i))
			continue;
		q->whole += rpc_client_started_done(calls[i].started);
		call_cancel(&calls[i]);
	}
	for (unsigned i = 0; i < CALLS; i++) {
		int r = calls[i].cancelled ? 0 : call_finish(&calls[i]);

		if (r < 0)
			snprintf(q->wrong, sizeof(q->wrong), "call %u: %s", i, gx_strerror(r));
	}
	q->ending = true;
	gx_env_thread_join(env, &thread);
	/* Only now: what was given up must not have been written to by anything since. */
	for (unsigned i = 0; i < CALLS; i++) {
		if (!is_right(&calls[i]))
			snprintf(q->wrong, sizeof(q->wrong), "call %u: wrong bytes", i);
		free(calls[i].space);
	}
	rpc_client_free(q->client);
	q->world.user_blocks = sim_alloc_blocks(gx_sim_current());
}

/* The loop index: how many connections the two threads have. */
START_TEST(calls_can_be_given_up_at_every_moment)
{
	unsigned moments = (unsigned)sim_seeds(700);
	unsigned whole = 0, given_up = 0;

	for (unsigned i = 0; i < moments; i++) {
		struct quitter q = {.world = {.release_ns = 3 * GX_NSEC_PER_MSEC},
				    .after_ns = (int64_t)i * 12007, /* to 8 ms */
				    .which = 1 + i % 15,
				    .connections_max = 1 + (unsigned)_i};
		char name[64];

		snprintf(name, sizeof(name), "moment %u", i);
		world_start(&q.world, 1 + i, quitter_main, &q);
		world_end(&q.world, name);
		ck_assert_msg(q.wrong[0] == '\0', "%s: %s", name, q.wrong);
		whole += q.whole;
		given_up += (unsigned)__builtin_popcount(q.which);
	}
	printf("%u calls given up, %u of them answered already\n", given_up, whole);
	/* Both must have been met often. */
	ck_assert_uint_gt(whole, given_up / 20);
	ck_assert_uint_lt(whole, given_up - given_up / 20);
}
END_TEST

/* -- silence ---------------------------------------------------------------------------------- */

#define SILENT_NS GX_NSEC_PER_SEC

enum loss { LOSS_STOP, LOSS_PARTITION, LOSS_COUNT };

struct patient {
	struct world world;
	enum loss loss;
	uint64_t flags;
	uint64_t bytes;
	size_t payload_bytes;
	int64_t lost_ns;  /* when the server is lost; 0: never */
	int64_t ended_ns; /* of the last call */
	int result;
	unsigned done;
};

static void patient_main(struct gx_env *env, void *arg)
{
	struct patient *p = arg;
	struct rpc_client *client;

	client_new(env, 1, &client);
	/* One call after the other, so that the loss finds them at all stages. */
	for (unsigned i = 0; i < 40 && p->result == 0; i++) {
		struct call c;

		call_start(&c, client, p->flags, 0, p->bytes, p->payload_bytes, SILENT_NS);
		p->result = call_finish(&c);
		p->done += p->result == 0;
		free(c.space);
	}
	p->ended_ns = gx_sim_now_ns(p->world.sim);
	rpc_client_free(client);
	p->world.user_blocks = sim_alloc_blocks(gx_sim_current());
}

static void loss_main(struct gx_env *env, void *arg)
{
	struct patient *p = arg;

	gx_env_sleep_until(env, gx_env_now_ns(env) + p->lost_ns);
	p->lost_ns = gx_sim_now_ns(p->world.sim);
	if (p->loss == LOSS_STOP)
		gx_sim_stop(p->world.server);
	else
		gx_sim_partition(p->world.server_host, p->world.client_host, true);
}

/* Large reads, large writes, deferred calls: the loop index. */
START_TEST(a_server_that_falls_silent_is_given_up_in_time)
{
	static const struct {
		uint64_t flags, bytes;
		size_t payload_bytes;
	} kinds[] = {{HELD_FILE, 300000, 0}, {HELD_EAT, 0, 3000000}, {HELD_DEFER, 0, 1000}};
	unsigned given_up = 0;

	for (unsigned i = 0; i < sim_seeds(150); i++) {
		struct patient p = {.world = {.release_ns = 2 * GX_NSEC_PER_MSEC},
				    .loss = i % LOSS_COUNT,
				    .flags = kinds[_i].flags,
				    .bytes = kinds[_i].bytes,
				    .payload_bytes = kinds[_i].payload_bytes,
				    .lost_ns = 2000000 + (int64_t)i * 203017};
		char name[64];

		snprintf(name, sizeof(name), "moment %u", i);
		world_start(&p.world, 1 + i, patient_main, &p);
		ck_assert_int_eq(gx_sim_spawn(p.world.client_host, "loss", loss_main, &p, NULL), 0);
		ck_assert_msg(gx_sim_run(p.world.sim, p.world.user) == 0, "%s: hangs", name);
		if (p.result != 0) {
			ck_assert_msg(p.result == -EHOSTDOWN, "%s: %s", name,
				      gx_strerror(p.result));
			/* What was on its way at the loss may still be heard a little later. */
			ck_assert_msg(p.ended_ns - p.lost_ns <= SILENT_NS + SILENT_NS / 4,
				      "%s: %lld ms", name,
				      (long long)((p.ended_ns - p.lost_ns) / GX_NSEC_PER_MSEC));
			given_up++;
		}
		ck_assert_uint_eq(p.world.user_blocks, 0);
		gx_sim_free(p.world.sim);
	}
	ck_assert_uint_gt(given_up, 20);
}
END_TEST

/* For a second and a half each, without anything but PROGRESS frames. */
START_TEST(a_slow_server_is_waited_for)
{
	for (unsigned i = 0; i < sim_seeds(5); i++) {
		struct patient p = {.world = {.release_ns = 3 * SILENT_NS / 2},
				    .flags = HELD_DEFER};
		char name[64];

		snprintf(name, sizeof(name), "seed %u", i + 1);
		world_start(&p.world, 1 + i, patient_main, &p);
		world_end(&p.world, name);
		ck_assert_msg(p.result == 0 && p.done == 40, "%s: %s after %u", name,
			      gx_strerror(p.result), p.done);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_rpc_data");
	TCase *tc = tcase_create("sim_rpc_data");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 600);
	tcase_add_loop_test(tc, calls_can_be_given_up_at_every_moment, 0, 3);
	tcase_add_loop_test(tc, a_server_that_falls_silent_is_given_up_in_time, 0, 3);
	tcase_add_test(tc, a_slow_server_is_waited_for);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
