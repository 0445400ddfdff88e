/*
 * The data path with every call failing once: replies from files, deferred calls, descriptors and
 * calls in two halves, on the real machine. What is promised: a run ends, frees everything, and a
 * call that succeeds has the right bytes.
 */
#include "common/gx_log.h"
#include "echo.pb-c.h"
#include "tests/fault/fault_run.h"
#include "tests/lib/held_serve.h"
#include <dirent.h>
#include <sys/stat.h>

#define FILE_BYTES 300000u
#define CALLS 5u

static struct {
	const char *name;
	const char *address; /* NULL: a unix socket */
} modes[] = {{"data, plain", "plain:127.0.0.1:0"},
	     {"data, tls", "tls:127.0.0.1:0"},
	     {"data, unix", NULL}};
static int mode; /* of the scenario that runs */
static char dir[64];
static uint64_t call_ms;    /* short where calls must fail */
static unsigned last_right; /* calls of the last run that succeeded */

struct call {
	struct held_order order;
	size_t payload_bytes;
	PbEcho__EchoRequest message;
	struct iovec out;
	unsigned char *space;
	struct rpc_started *started;
};

static const struct {
	struct held_order order;
	size_t payload_bytes;
} orders[CALLS] = {
	{{HELD_FILE, 5, 3000}, 0},
	{{HELD_DEFER | HELD_MEMORY, 0, 50000}, 0},
	{{HELD_FILE, 7, 200000}, 0},
	{{HELD_EAT, 0, 0}, 100000},
	{{HELD_DEFER | HELD_DESCRIPTOR, 0, 0}, 0},
};

static void no_log(void *arg GX_UNUSED, enum gx_log_level level GX_UNUSED,
		   const char *line GX_UNUSED)
{
}

static int call_begin(struct call *c, struct gx_env *env, struct rpc_client *client, unsigned i)
{
	struct rpc_call_options options;

	c->order = orders[i].order;
	c->payload_bytes = orders[i].payload_bytes;
	if (c->order.flags & HELD_DESCRIPTOR && modes[mode].address != NULL)
		c->order.flags = HELD_DEFER;
	pb_echo__echo_request__init(&c->message);
	c->message.data = (ProtobufCBinaryData){sizeof(c->order), (uint8_t *)&c->order};
	c->space = calloc(1, c->order.bytes + c->payload_bytes + 1);
	if (c->space == NULL)
		return -ENOMEM;
	c->out = (struct iovec){c->space, c->payload_bytes};
	options = (struct rpc_call_options){.deadline_ns = gx_env_deadline_ms(env, call_ms),
					    .silent_ns = (int64_t)call_ms * GX_NSEC_PER_MSEC / 2,
					    .payload_out = &c->out,
					    .payload_out_count = c->payload_bytes > 0,
					    .payload_in = c->space,
					    .payload_in_bytes = c->order.bytes};
	return rpc_client_start(client, rpc_method_get(RPC_INDEX_ECHO), &c->message.base, &options,
				&c->started);
}

static int call_end(struct call *c)
{
	struct rpc_reply reply;
	unsigned char want[64];
	int r;

	if (c->started == NULL)
		return -ECANCELED;
	r = rpc_client_finish(GX_TAKE(c->started), &reply);
	if (r == 0 && c->order.bytes > 0) {
		fault_must(reply.payload_bytes == c->order.bytes, "a short payload");
		held_pattern(want, c->order.offset + c->order.bytes - sizeof(want), sizeof(want));
		fault_must(memcmp(want, c->space + c->order.bytes - sizeof(want), sizeof(want)) ==
				   0,
			   "wrong bytes");
	}
	if (r == 0)
		fault_must((reply.descriptor >= 0) == !!(c->order.flags & HELD_DESCRIPTOR),
			   "descriptor %d", reply.descriptor);
	rpc_reply_fini(&reply);
	return r;
}

/* All in flight at once; one is given up. */
/* Lets deferred calls go until so many have gone; they may come late, or never. */
static void release(struct gx_env *env, struct held_serve *held, unsigned *released, unsigned want)
{
	int64_t until_ns = gx_env_deadline_ms(env, GX_MIN(call_ms / 2, 1000));

	while (*released < want && gx_env_now_ns(env) < until_ns) {
		if (held_serve_deferred(held) == 0) {
			gx_env_sleep_until(env, gx_env_now_ns(env) + 200000);
			continue;
		}
		held_serve_release(held);
		++*released;
	}
}

static void make_calls(struct gx_env *env, struct rpc_client *client, struct held_serve *held)
{
	struct call calls[CALLS] = {{.started = NULL}};
	unsigned released = 0, want = 0;
	int r = 0;

	for (unsigned i = 0; i < CALLS && r == 0; i++)
		r = call_begin(&calls[i], env, client, i);
	if (mode % 2 == 1)
		rpc_client_cancel(GX_TAKE(calls[2].started));
	/* The server may be stuck in one reply until it is read, and comes to the next call then.
	 */
	for (unsigned i = 0; i < CALLS; i++) {
		want += orders[i].order.flags & HELD_DEFER ? 1 : 0;
		if (r == 0)
			release(env, held, &released, want);
		last_right += call_end(&calls[i]) == 0;
	}
	while (held_serve_deferred(held) > 0)
		held_serve_release(held);
	for (unsigned i = 0; i < CALLS; i++)
		free(calls[i].space);
}

static void data_scenario(struct gx_fault *fault)
{
	struct gx_env env = *gx_env_posix();
	struct rpc_client_options options;
	struct rpc_client *client = NULL;
	struct held_serve *held;
	char address[128];

	last_right = 0;
	gx_log_to_callback(no_log, NULL);
	env.fault = fault;
	snprintf(address, sizeof(address), "unix:%s/s", dir);
	if (held_serve_start(&env, modes[mode].address ? modes[mode].address : address, dir,
			     FILE_BYTES, &held) < 0)
		return;
	held_serve_client_options(held, &options);
	options.connections_max = 1;
	if (rpc_client_new(&options, &client) == 0)
		make_calls(&env, client, held);
	rpc_client_free(client);
	held_serve_stop(held);
}

/* Without a fault all of it works. */
static void all_right(struct gx_fault *fault)
{
	call_ms = 10000;
	data_scenario(fault);
	ck_assert_uint_eq(last_right, mode % 2 == 1 ? CALLS - 1 : CALLS);
	call_ms = 100;
}

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

static void setup(void)
{
	ck_assert_int_eq(sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL), 0);
	snprintf(dir, sizeof(dir), "/tmp/faultdata.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void teardown(void)
{
	char path[128];

	/* What a failed unlink has left. */
	snprintf(path, sizeof(path), "%s/held", dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/s", dir);
	unlink(path);
	ck_assert_int_eq(rmdir(dir), 0);
}

START_TEST(every_allocation_of_the_data_path_may_fail)
{
	int fds;

	mode = _i;
	all_right(NULL);
	fds = count_fds();
	fault_run_allocs(modes[mode].name, data_scenario, true);
	ck_assert_int_eq(count_fds(), fds);
}
END_TEST

START_TEST(every_env_call_of_the_data_path_may_fail)
{
	int fds;

	mode = _i;
	all_right(NULL);
	fds = count_fds();
	fault_run_kinds(
		modes[mode].name, data_scenario,
		FAULT_BIT(THREAD) | FAULT_BIT(MUTEX) | FAULT_BIT(READ) |
			(mode % 2 == 0 ? FAULT_BIT(RECV) | FAULT_BIT(SEND) : FAULT_BIT(TLS)),
		true);
	ck_assert_int_eq(count_fds(), fds);
}
END_TEST

START_TEST(short_reads_and_writes_only_make_it_slower)
{
	struct gx_fault fault = {.kinds = 0, .short_bytes = 1000};

	mode = _i;
	snprintf(fault_run_name, sizeof(fault_run_name), "%s: short", modes[mode].name);
	all_right(&fault);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_rpc_data");
	TCase *tc = tcase_create("fault_rpc_data");
	int mode_count = (int)GX_COUNT_OF(modes);
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 600);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, every_allocation_of_the_data_path_may_fail, 0, mode_count);
	tcase_add_loop_test(tc, every_env_call_of_the_data_path_may_fail, 0, mode_count);
	tcase_add_loop_test(tc, short_reads_and_writes_only_make_it_slower, 0, mode_count);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
