/*
 * A call's time is up in the very instant in which the rest of its payload arrives, while another
 * thread of the same connection reads: the data may still be copied after the call has given up,
 * and then it must not have returned yet, because the memory is the caller's again.
 *
 * The instant is found by a first run with time to spare; the same seed makes the second one
 * alike up to there. Which of the two threads runs first then is up to the seed.
 */
#include "echo.pb-c.h"
#include "tests/lib/sim_grid.h"
#include <check.h>
#include <stdio.h>

#define RPC_SERVICE_ECHO
#include "rpc/rpc_stub.h"

#define PAYLOAD_BYTES 20000u /* many times the socket buffer: the end comes by itself */
#define SEEDS 10u
#define EARLY_NS_MAX 1000
#define EARLY_NS_STEP 20

struct pair {
	struct gx_env *env;
	struct rpc_client *client;
	int64_t deadline_ns; /* of the echo */
	int result, other_result;
	int64_t ended_ns;
	bool touched; /* the echo's memory, after it has returned */
	struct gx_sim_proc *proc;
};

/* Starts first and is answered last, so this thread reads for both. */
static void reader_fiber(void *arg)
{
	struct pair *p = arg;
	int64_t value;

	p->other_result = sim_tally(p->client, 1, 500, gx_env_deadline_ms(p->env, 60000), &value);
}

static void echo_fiber(void *arg)
{
	struct pair *p = arg;
	PbEcho__EchoRequest request = PB_ECHO__ECHO_REQUEST__INIT;
	unsigned char *out = calloc(1, PAYLOAD_BYTES), *in = malloc(PAYLOAD_BYTES);
	struct iovec iov = {out, PAYLOAD_BYTES};
	struct rpc_call_options options = {.deadline_ns = p->deadline_ns,
					   .payload_out = &iov,
					   .payload_out_count = 1,
					   .payload_in = in,
					   .payload_in_bytes = PAYLOAD_BYTES};
	const PbEcho__EchoReply *answer;
	struct rpc_reply reply;

	ck_assert(out != NULL && in != NULL);
	gx_env_sleep_until(p->env, gx_env_deadline_ms(p->env, 100));
	p->result = echo_call_echo(p->client, &request, &options, &reply, &answer);
	p->ended_ns = gx_env_now_ns(p->env);
	memset(in, 0xee, PAYLOAD_BYTES);
	rpc_reply_fini(&reply);
	gx_env_sleep_until(p->env, gx_env_deadline_ms(p->env, 50));
	for (size_t i = 0; i < PAYLOAD_BYTES; i++)
		p->touched |= in[i] != 0xee;
	free(out);
	free(in);
}

static void pair_main(struct gx_env *env, void *arg)
{
	struct pair *p = arg;
	struct rpc_client_options options;
	struct gx_thread reader, echo;

	p->env = env;
	sim_grid_client_options(env, &options);
	options.connections_max = 1;
	ck_assert_int_eq(rpc_client_new(&options, &p->client), 0);
	ck_assert_int_eq(gx_env_thread_start(env, &reader, "reader", reader_fiber, p), 0);
	ck_assert_int_eq(gx_env_thread_start(env, &echo, "echo", echo_fiber, p), 0);
	gx_env_thread_join(env, &reader);
	gx_env_thread_join(env, &echo);
	rpc_client_free(p->client);
}

static void run_pair(uint64_t seed, int64_t deadline_ns, struct pair *ret_pair)
{
	struct sim_grid grid;
	struct pair p = {.deadline_ns = deadline_ns};

	sim_grid_init(&grid, seed);
	grid.options.socket_buffer_bytes = 2000;
	grid.options.switch_percent = 50;
	sim_grid_start(&grid);
	ck_assert_int_eq(gx_sim_spawn(grid.client_host, "pair", pair_main, &p, &p.proc), 0);
	ck_assert_int_eq(gx_sim_run(grid.sim, p.proc), 0);
	sim_grid_free(&grid);
	*ret_pair = p;
}

START_TEST(a_call_whose_time_ends_as_its_payload_arrives_returns_after_the_copy)
{
	unsigned in_time = 0, too_late = 0;

	for (uint64_t seed = 1; seed <= sim_seeds(SEEDS); seed++) {
		struct pair easy, tight = {.result = 0};

		run_pair(seed, GX_FOREVER, &easy);
		ck_assert_int_eq(easy.result, 0);
		/* From the copy to the return it takes a few calls, and each takes its time. */
		for (int64_t early_ns = 0; early_ns <= EARLY_NS_MAX; early_ns += EARLY_NS_STEP) {
			run_pair(seed, easy.ended_ns - early_ns, &tight);
			ck_assert_msg(!tight.touched, "seed %llu: written to after the return",
				      (unsigned long long)seed);
			ck_assert_msg(tight.other_result == 0, "seed %llu: the other call gives %d",
				      (unsigned long long)seed, tight.other_result);
			ck_assert(tight.result == 0 || tight.result == -ETIMEDOUT);
			in_time += tight.result == 0;
			too_late += tight.result != 0;
		}
	}
	printf("in the last instant: %u in time, %u too late\n", in_time, too_late);
	ck_assert_uint_gt(too_late, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_rpc_memory");
	TCase *tc = tcase_create("sim_rpc_memory");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_call_whose_time_ends_as_its_payload_arrives_returns_after_the_copy);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
