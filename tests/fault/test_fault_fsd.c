/*
 * A storage node while each of its calls, and each allocation, fails once: it starts or says no,
 * and works on; what it has acknowledged is there afterwards, in this life and in the next one, and
 * no failure ever looks like damage.
 */
#include "common/gx_log.h"
#include "tests/fault/fault_run.h"
#include "tests/lib/fake_metad.h"
#include "tests/lib/fsd_fixture.h"

#define REGION 300000u /* apart, so that one that failed says nothing about the others */
#define PART 70001u
#define REGIONS 4u
#define TRIES 3u /* the fault fires once */

static struct fsd_fixture node;
static struct gx_env env; /* the node's */
static _Atomic bool armed;

static bool is_armed(void)
{
	return armed;
}

static void ignore_log(void *arg GX_UNUSED, enum gx_log_level level GX_UNUSED,
		       const char *line GX_UNUSED)
{
}

static void begin(struct gx_fault *fault)
{
	armed = true;
	env.fault = fault;
}

static void end(void)
{
	armed = false;
	env.fault = NULL;
}

static void setup(void)
{
	gx_log_to_callback(ignore_log, NULL);
	fault_alloc_filter(is_armed);
	env = *gx_env_posix();
}

static void make_node(void)
{
	fsd_fixture_init(&node, "fsd7");
	node.options.env = &env;
	node.options.sync_after_ns = 5 * GX_NSEC_PER_SEC;
}

/* -- work -------------------------------------------------------------------------------------- */

static unsigned char byte_of(unsigned region, size_t at)
{
	return (unsigned char)(region * 50 + at % 251 + 1);
}

struct work {
	struct rpc_client *client;
	struct fsd_sealed sealed;
	bool acked[REGIONS];
	bool synced;
};

static int write_region(struct work *work, unsigned region)
{
	static unsigned char part[PART];

	for (size_t i = 0; i < PART; i++)
		part[i] = byte_of(region, i);
	return fsd_call_write(work->client, work->sealed.data, part, PART, region * REGION);
}

/* All of it may fail; what does not is remembered. */
static void do_work(struct work *work)
{
	static unsigned char buf[2 * REGION];
	PbData__DataStatReply stat;
	uint64_t number, sums[4];
	size_t count;
	int r;

	for (unsigned i = 0; i < REGIONS; i++)
		work->acked[i] = write_region(work, i) == 0;
	work->synced = fsd_call_sync(work->client, work->sealed.data) == 0;
	/* Over what is settled now: the second of them for another time. */
	work->acked[1] = write_region(work, 1) == 0;
	r = (int)fsd_call_read(work->client, work->sealed.data, buf, 290816, 0, false);
	fault_must(r != -EBADMSG && r != -EILSEQ, "a read: %d", r);
	r = (int)fsd_call_read(work->client, work->sealed.data, buf, 290816, 0, true);
	fault_must(r != -EBADMSG && r != -EILSEQ, "a proof: %d", r);
	GX_IGNORE(fsd_call_append(work->client, work->sealed.data, "end", 3, &number));
	GX_IGNORE(fsd_call_room(work->client, work->sealed.data, 1, PART + 10, 100000));
	GX_IGNORE(fsd_call_room(work->client, work->sealed.data, 2, REGIONS * REGION, 10));
	GX_IGNORE(fsd_call_truncate(work->client, work->sealed.data, REGIONS * REGION + 77));
	GX_IGNORE(fsd_call_seek(work->client, work->sealed.data, 0, true, &number));
	GX_IGNORE(fsd_call_sums(work->client, work->sealed.data, 0, 4, sums, &count));
	GX_IGNORE(fsd_call_stat(work->client, work->sealed.data, &stat));
	r = fsd_call_descriptor(work->client, work->sealed.data);
	if (r >= 0)
		close(r);
	GX_IGNORE(fsd_call_sync(work->client, work->sealed.data));
}

static void connect_to(struct work *work, uint64_t generation, uint64_t base)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, 5, generation, base);

	work->client = fsd_fixture_client(&node, FSD_FIXTURE_UNIX, FSD_FIXTURE_SESSION);
	fsd_fixture_seal(&node, &ticket, &work->sealed);
}

static void verify(struct work *work)
{
	static unsigned char buf[73728];

	for (unsigned region = 0; region < REGIONS; region++) {
		uint64_t offset = region * REGION / FSD_BLOCK_BYTES * FSD_BLOCK_BYTES;
		size_t skip = region * REGION - offset;
		ssize_t n;

		if (!work->acked[region])
			continue;
		n = fsd_call_read(work->client, work->sealed.data, buf, sizeof(buf), offset, true);
		fault_must(n >= (ssize_t)(skip + PART), "region %u has %zd bytes", region, n);
		for (size_t i = 0; i < PART; i++)
			fault_must(buf[skip + i] == byte_of(region, i), "region %u, byte %zu",
				   region, i);
	}
}

static void scenario_work(struct gx_fault *fault)
{
	struct work work = {.client = NULL};
	uint64_t generation;

	make_node();
	fsd_fixture_up(&node);
	connect_to(&work, 1, 0);
	begin(fault);
	do_work(&work);
	end();
	verify(&work);
	rpc_client_free(work.client);
	/* Its next life has all of it, and finds it in order; another generation has it, too. */
	fsd_fixture_down(&node);
	fsd_fixture_up(&node);
	connect_to(&work, 1, 0);
	verify(&work);
	rpc_client_free(work.client);
	connect_to(&work, 2, 1);
	begin(fault);
	/* What failed before its time may have been done: one that asks again gets it. */
	for (generation = 0; generation < TRIES; generation++) {
		PbData__DataStatReply stat;

		if (fsd_call_stat(work.client, work.sealed.data, &stat) == 0)
			break;
	}
	end();
	rpc_client_free(work.client);
	fsd_fixture_down(&node);
	fsd_fixture_up(&node);
	connect_to(&work, 2, 1);
	verify(&work);
	rpc_client_free(work.client);
	fsd_fixture_fini(&node);
}

START_TEST(what_is_acknowledged_survives_each_failed_call)
{
	fault_run_kinds("work", scenario_work,
			FAULT_BIT(OPEN) | FAULT_BIT(WRITE) | FAULT_BIT(SYNC) | FAULT_BIT(READ) |
				FAULT_BIT(SEND) | FAULT_BIT(RECV) | FAULT_BIT(RENAME),
			true);
}
END_TEST

START_TEST(what_is_acknowledged_survives_each_failed_allocation)
{
	fault_run_allocs("work", scenario_work, true);
}
END_TEST

/* -- starting ---------------------------------------------------------------------------------- */

/* New directories, half of them used before. */
static void scenario_start(struct gx_fault *fault)
{
	struct rpc_endpoint endpoint, bound;
	struct fsd_server *server = NULL;
	struct work work = {.client = NULL};
	struct gx_loop *loop;
	int r;

	make_node();
	fsd_fixture_up(&node);
	connect_to(&work, 1, 0);
	work.acked[0] = write_region(&work, 0) == 0;
	fault_must(work.acked[0], "a write without a fault");
	rpc_client_free(work.client);
	fsd_fixture_down(&node);
	node.options.spool_count = 2;

	fault_must(rpc_endpoint_parse(&env, "127.0.0.1:0", false, &endpoint, NULL) == 0, "parse");
	fault_must(gx_loop_new(&env, &loop) == 0, "loop");
	node.options.loop = loop;
	begin(fault);
	r = fsd_server_new(&node.options, &server);
	if (r == 0)
		r = fsd_server_listen(server, &endpoint, &bound);
	if (r == 0)
		r = fsd_server_start(server);
	if (server)
		fsd_server_free(server);
	end();
	gx_loop_free(loop);

	fsd_fixture_up(&node);
	connect_to(&work, 1, 0);
	verify(&work);
	rpc_client_free(work.client);
	fsd_fixture_fini(&node);
}

START_TEST(a_node_that_could_not_start_can_start_again)
{
	if (_i == 0)
		fault_run_allocs("start", scenario_start, true);
	else
		fault_run_kinds("start", scenario_start,
				FAULT_BIT(OPEN) | FAULT_BIT(LOCK) | FAULT_BIT(THREAD) |
					FAULT_BIT(RANDOM) | FAULT_BIT(SYNC),
				true);
}
END_TEST

/* -- metad ------------------------------------------------------------------------------------- */

static bool has_beat(const struct fake_metad_seen *seen, void *arg GX_UNUSED)
{
	return seen->inventory_over && seen->heartbeats > 0;
}

/* The fake metad is not under test, so allocations do not fail here. */
static void scenario_register(struct gx_fault *fault)
{
	struct fake_metad *metad = fake_metad_start("fsd7");

	make_node();
	fsd_fixture_use_metad(&node, metad);
	fsd_fixture_up(&node);
	begin(fault);
	fault_must(fake_metad_wait(metad, has_beat, NULL), "it does not register");
	fake_metad_down(metad);
	fake_metad_up(metad, 2);
	fault_must(fake_metad_wait(metad, has_beat, NULL), "it does not register again");
	end();
	fsd_fixture_fini(&node);
	fake_metad_stop(metad);
}

START_TEST(a_node_registers_whatever_failed_once)
{
	fault_run_kinds("register", scenario_register, FAULT_BIT(SEND) | FAULT_BIT(RECV), false);
}
END_TEST

int main(void)
{
#ifdef __SANITIZE_THREAD__
	/* Faults begin while the node's threads run, by a plain pointer that they look at. */
	puts("faults are hung on a running node, which the thread sanitizer takes for a race");
	return 77;
#endif
	Suite *suite = suite_create("fault_fsd");
	SRunner *runner = srunner_create(suite);
	TCase *tc = tcase_create("fault_fsd");
	int failed;

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 170);
	tcase_add_test(tc, what_is_acknowledged_survives_each_failed_call);
	tcase_add_test(tc, what_is_acknowledged_survives_each_failed_allocation);
	tcase_add_loop_test(tc, a_node_that_could_not_start_can_start_again, 0, 2);
	tcase_add_test(tc, a_node_registers_whatever_failed_once);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
