/*
 * A storage node and its metad (a fake one, tests/lib/fake_metad.h): registration, inventory,
 * heartbeats, jobs and their results, notes; metad away, restarted, older than before.
 */
#include "common/gx_log.h"
#include "fsd/fsd_server_impl.h"
#include "rpc/rpc_status.h"
#include "tests/lib/fake_metad.h"
#include <check.h>
#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

#define BOOT UINT64_C(0xb007)

static char dir[128];
static struct fake_metad *metad;
static struct fsd_server server; /* as much of one as the agent needs */
static const char *spools[1] = {dir};

/* -- fixture ----------------------------------------------------------------------------------- */

static void ignore_log(void *arg GX_UNUSED, enum gx_log_level level GX_UNUSED,
		       const char *line GX_UNUSED)
{
}

static void open_table(struct gx_env *env)
{
	struct fsd_server_options options = FSD_SERVER_OPTIONS_INIT;

	memset(&server, 0, sizeof(server));
	options.env = server.env = env;
	options.name = "fsd7";
	options.host = "rack3";
	options.group = "blue";
	options.spools = spools;
	options.spool_count = 1;
	options.make_spools = true;
	options.reserved_bytes = 0;
	options.jobs_max = 2;
	options.key = fake_metad_key(metad);
	options.metad = *fake_metad_endpoint(metad);
	server.options = options;
	server.boot = BOOT;
	rpc_dispatcher_init(&server.dispatcher, server.env, "fsd7", "test");
	gx_buf_init(&server.addresses, 4096);
	ck_assert_int_eq(
		gx_buf_append_format(&server.addresses, "unix:/run/fsd7\n%s\n", "127.0.0.1:7777"),
		0);
	ck_assert_int_eq(fsd_table_new(&server, &server.table), 0);
}

static void close_table(void)
{
	struct fsd_ref refs[16];
	size_t count;

	/* What the syncer would have taken. */
	while ((count = fsd_table_dirty(server.table, 0, refs, GX_COUNT_OF(refs))) > 0)
		for (size_t i = 0; i < count; i++)
			fsd_table_put(server.table, &refs[i]);
	fsd_table_free(server.table);
	gx_buf_fini(&server.addresses);
}

static void start_agent(void)
{
	ck_assert_int_eq(fsd_agent_new(&server, &server.agent), 0);
	ck_assert_int_eq(fsd_agent_start(server.agent), 0);
}

static void stop_agent(void)
{
	fsd_agent_free(server.agent);
	server.agent = NULL;
}

static void setup(void)
{
	const char *tmp = getenv("TMPDIR");

	gx_log_to_callback(ignore_log, NULL);
	ck_assert_int_eq(
		gx_format(dir, sizeof(dir), "%s/test_fsd_agent.XXXXXX", tmp != NULL ? tmp : "/tmp"),
		0);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	metad = fake_metad_start("fsd7");
	open_table(gx_env_posix());
}

static int remove_one(const char *path, const struct stat *st GX_UNUSED, int flag GX_UNUSED,
		      struct FTW *ftw GX_UNUSED)
{
	return remove(path);
}

static void teardown(void)
{
	stop_agent();
	close_table();
	fake_metad_stop(metad);
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_object(uint64_t ino, uint64_t generation, const char *text)
{
	struct fsd_object_id id = {.ino = ino, .generation = generation};
	struct fsd_ref ref;

	ck_assert_int_eq(fsd_table_get_id(server.table, &id, true, &ref), 0);
	ck_assert_int_eq(fsd_object_write(ref.object, text, strlen(text), 0), 0);
	ck_assert_int_eq(fsd_object_sync(ref.object), 0);
	fsd_table_put(server.table, &ref);
}

static bool has_object(uint64_t ino, uint64_t generation)
{
	struct fsd_object_id id = {.ino = ino, .generation = generation};
	struct fsd_ref ref;
	int r = fsd_table_get_id(server.table, &id, false, &ref);

	if (r == 0)
		fsd_table_put(server.table, &ref);
	else
		ck_assert_int_eq(r, -ENOENT);
	return r == 0;
}

static void give(uint64_t id, uint32_t kind, uint64_t ino, uint64_t generation, uint64_t from)
{
	PbMeta__Job job = PB_META__JOB__INIT;

	job.id = id;
	job.kind = kind;
	job.ino = ino;
	job.generation = generation;
	job.from_generation = from;
	fake_metad_give(metad, &job);
}

/* -- what to wait for -------------------------------------------------------------------------- */

static bool heard_beats(const struct fake_metad_seen *seen, void *arg)
{
	return seen->heartbeats >= *(unsigned *)arg;
}

static bool has_registered(const struct fake_metad_seen *seen, void *arg)
{
	return seen->registrations >= *(unsigned *)arg && seen->inventory_over;
}

static bool has_done(const struct fake_metad_seen *seen, void *arg)
{
	return seen->done_count >= *(size_t *)arg;
}

static bool has_notes(const struct fake_metad_seen *seen, void *arg)
{
	return seen->note_count >= *(size_t *)arg;
}

static void wait_beats(unsigned count)
{
	ck_assert(fake_metad_wait(metad, heard_beats, &count));
}

static void wait_registered(unsigned count)
{
	ck_assert(fake_metad_wait(metad, has_registered, &count));
}

static void wait_done(size_t count)
{
	ck_assert(fake_metad_wait(metad, has_done, &count));
}

/* Two beats more: whatever was under way has come. */
static void wait_two_beats(void)
{
	struct fake_metad_seen *seen = fake_metad_seen(metad);
	unsigned count = seen->heartbeats + 2;

	free(seen);
	wait_beats(count);
}

/* -- registration ------------------------------------------------------------------------------ */

START_TEST(a_node_tells_who_it_is_and_then_that_it_is_there)
{
	struct fake_metad_seen *seen;

	ck_assert(!fsd_agent_known(server.agent));
	start_agent();
	wait_beats(3);
	ck_assert(fsd_agent_known(server.agent));
	seen = fake_metad_seen(metad);
	ck_assert_uint_eq(seen->registrations, 1);
	ck_assert_str_eq(seen->name, "fsd7");
	ck_assert_str_eq(seen->kind, "fsd");
	ck_assert_str_eq(seen->host, "rack3");
	ck_assert_str_eq(seen->group, "blue");
	ck_assert_uint_eq(seen->address_count, 2);
	ck_assert_str_eq(seen->addresses[0], "unix:/run/fsd7");
	ck_assert_str_eq(seen->addresses[1], "127.0.0.1:7777");
	ck_assert_uint_eq(seen->boot, BOOT);
	ck_assert_uint_gt(seen->capacity_bytes, 0);
	ck_assert_uint_gt(seen->free_bytes, 0);
	ck_assert(seen->inventory_over);
	free(seen);
	stop_agent();
	seen = fake_metad_seen(metad);
	ck_assert_uint_eq(seen->leaves, 1);
	free(seen);
}
END_TEST

START_TEST(a_node_that_was_forgotten_registers_again)
{
	start_agent();
	wait_registered(1);
	fake_metad_forget(metad);
	wait_registered(2);
	wait_two_beats();
}
END_TEST

START_TEST(a_restarted_metad_is_told_anew_and_hears_that_the_session_goes_on)
{
	struct fake_metad_seen *seen;

	start_agent();
	wait_beats(1);
	fake_metad_down(metad);
	fake_metad_up(metad, 2);
	wait_registered(2);
	wait_two_beats();
	seen = fake_metad_seen(metad);
	ck_assert_uint_ge(seen->resumes, 1);
	free(seen);
}
END_TEST

START_TEST(a_node_that_starts_before_metad_gets_known_later)
{
	fake_metad_down(metad);
	start_agent();
	ck_assert(!fsd_agent_known(server.agent));
	fake_metad_up(metad, 1);
	wait_registered(1);
	wait_beats(1);
	ck_assert(fsd_agent_known(server.agent));
}
END_TEST

START_TEST(an_agent_ends_soon_whether_or_not_metad_is_there)
{
	int64_t begin;

	fake_metad_down(metad);
	start_agent();
	begin = gx_env_now_ns(server.env);
	stop_agent();
	ck_assert_int_lt(gx_env_now_ns(server.env) - begin, 5 * GX_NSEC_PER_SEC);
	fake_metad_up(metad, 1);
}
END_TEST

/* -- inventory --------------------------------------------------------------------------------- */

START_TEST(objects_that_metad_does_not_know_are_put_aside)
{
	struct fake_metad_seen *seen;
	struct fsd_object_id known = {.ino = 5, .generation = 2};

	make_object(5, 2, "known");
	make_object(6, 1, "unknown");
	fake_metad_know(metad, &known);
	start_agent();
	wait_beats(1);
	seen = fake_metad_seen(metad);
	ck_assert_uint_eq(seen->listed_count, 2);
	ck_assert_uint_eq(seen->listed[0].ino, 5);
	ck_assert_uint_eq(seen->listed[1].ino, 6);
	free(seen);
	ck_assert(has_object(5, 2));
	ck_assert(!has_object(6, 1));
}
END_TEST

START_TEST(all_of_many_objects_are_told_page_by_page)
{
	enum { COUNT = 2500 };
	struct fake_metad_seen *seen;

	for (uint64_t i = 0; i < COUNT; i++) {
		struct fsd_object_id id = {.ino = 10 + i, .generation = 1};
		struct fsd_ref ref;

		ck_assert_int_eq(fsd_table_get_id(server.table, &id, true, &ref), 0);
		fsd_table_put(server.table, &ref);
		fake_metad_know(metad, &id);
	}
	start_agent();
	wait_registered(1);
	seen = fake_metad_seen(metad);
	ck_assert_uint_ge(seen->inventories, 2);
	ck_assert_uint_eq(seen->listed_count, COUNT);
	for (uint64_t i = 0; i < COUNT; i++)
		ck_assert_uint_eq(seen->listed[i].ino, 10 + i);
	free(seen);
}
END_TEST

START_TEST(a_metad_older_than_one_seen_before_is_not_believed)
{
	make_object(6, 1, "unknown to the old one");
	ck_assert_int_eq(fsd_table_epoch(server.table, 9), 0);
	start_agent();
	wait_beats(1);
	ck_assert(has_object(6, 1));
	/* The right one is. */
	fake_metad_down(metad);
	fake_metad_up(metad, 10);
	wait_registered(2);
	wait_two_beats();
	ck_assert(!has_object(6, 1));
}
END_TEST

START_TEST(half_a_copy_is_removed_at_the_start_and_not_told)
{
	struct fake_metad_seen *seen;

	make_object(6, FSD_COPY_GENERATION, "half");
	start_agent();
	wait_beats(1);
	seen = fake_metad_seen(metad);
	ck_assert_uint_eq(seen->listed_count, 0);
	free(seen);
	ck_assert(!has_object(6, FSD_COPY_GENERATION));
}
END_TEST

/* -- jobs -------------------------------------------------------------------------------------- */

START_TEST(a_deleted_object_is_gone_and_so_is_one_that_never_was)
{
	struct fsd_object_id known = {.ino = 5, .generation = 2};
	struct fake_metad_seen *seen;

	make_object(5, 2, "bytes");
	fake_metad_know(metad, &known);
	start_agent();
	wait_registered(1);
	give(1, 2, 5, 2, 0);
	give(2, 2, 99, 1, 0);
	wait_done(2);
	ck_assert(!has_object(5, 2));
	seen = fake_metad_seen(metad);
	ck_assert_uint_eq(seen->done_count, 2);
	for (size_t i = 0; i < 2; i++)
		ck_assert_uint_eq(seen->done[i].status, RPC_STATUS_OK);
	ck_assert_uint_eq(seen->done[0].id + seen->done[1].id, 3);
	free(seen);
}
END_TEST

START_TEST(a_recovered_object_moves_on_and_tells_its_size)
{
	/* Generation here, and what metad believes it to be. */
	static const uint64_t here[] = {3, 2}, base = 3;
	struct fsd_object_id known = {.ino = 5, .generation = here[_i]};
	struct fake_metad_seen *seen;

	make_object(5, here[_i], "all that was written");
	fake_metad_know(metad, &known);
	start_agent();
	wait_registered(1);
	give(1, 3, 5, 4, base);
	wait_done(1);
	seen = fake_metad_seen(metad);
	ck_assert_uint_eq(seen->done[0].status, RPC_STATUS_OK);
	ck_assert_uint_eq(seen->done[0].size, strlen("all that was written"));
	ck_assert(seen->done[0].stable);
	free(seen);
	ck_assert(!has_object(5, here[_i]));
	ck_assert(has_object(5, 4));
	/* Given again by somebody who has not heard of it. */
	give(2, 3, 5, 4, base);
	wait_done(2);
	seen = fake_metad_seen(metad);
	ck_assert_uint_eq(seen->done[1].status, RPC_STATUS_OK);
	ck_assert_uint_eq(seen->done[1].size, strlen("all that was written"));
	free(seen);
}
END_TEST

START_TEST(recovering_what_is_not_here_is_stale_and_a_strange_job_is_refused)
{
	struct fake_metad_seen *seen;

	start_agent();
	wait_registered(1);
	give(1, 3, 5, 4, 3);
	wait_done(1);
	give(2, 77, 5, 4, 3);
	wait_done(2);
	give(3, 1, 5, 4, 3); /* a copy from nowhere */
	wait_done(3);
	seen = fake_metad_seen(metad);
	ck_assert_uint_eq(seen->done[0].status, RPC_STATUS_STALE);
	ck_assert_uint_eq(seen->done[1].status, RPC_STATUS_NOSYS);
	ck_assert_uint_eq(seen->done[2].status, RPC_STATUS_HOSTUNREACH);
	free(seen);
	ck_assert(!has_object(5, FSD_COPY_GENERATION));
}
END_TEST

START_TEST(results_wait_for_metad_and_are_told_once)
{
	struct fake_metad_seen *seen;

	start_agent();
	wait_registered(1);
	give(1, 2, 50, 1, 0);
	give(2, 2, 51, 1, 0);
	wait_done(2);
	wait_two_beats();
	seen = fake_metad_seen(metad);
	ck_assert_uint_eq(seen->done_count, 2);
	free(seen);
}
END_TEST

/* The worker is stopped in the middle of its job by holding what it needs. */
struct gate {
	struct gx_mutex lock;
	struct gx_cond changed;
	bool waiting, open;
};
static struct gate gate;

static int gated_unlink(struct gx_env *env, const char *path)
{
	struct gx_env *posix = gx_env_posix();

	gx_env_mutex_lock(posix, &gate.lock);
	gate.waiting = true;
	gx_env_cond_broadcast(posix, &gate.changed);
	while (!gate.open)
		GX_IGNORE(gx_env_cond_wait(posix, &gate.changed, &gate.lock, GX_FOREVER));
	gx_env_mutex_unlock(posix, &gate.lock);
	return posix->ops->unlink(env, path);
}

static void gate_wait(void)
{
	struct gx_env *posix = gx_env_posix();

	gx_env_mutex_lock(posix, &gate.lock);
	while (!gate.waiting)
		GX_IGNORE(gx_env_cond_wait(posix, &gate.changed, &gate.lock, GX_FOREVER));
	gx_env_mutex_unlock(posix, &gate.lock);
}

static void gate_open(void)
{
	struct gx_env *posix = gx_env_posix();

	gx_env_mutex_lock(posix, &gate.lock);
	gate.open = true;
	gx_env_cond_broadcast(posix, &gate.changed);
	gx_env_mutex_unlock(posix, &gate.lock);
}

/* The table again, over an environment in which removing files waits for the gate. */
static void use_gate(void)
{
	static struct gx_env_ops ops;
	static struct gx_env env;

	memset(&gate, 0, sizeof(gate));
	ck_assert_int_eq(gx_env_mutex_init(gx_env_posix(), &gate.lock), 0);
	ck_assert_int_eq(gx_env_cond_init(gx_env_posix(), &gate.changed), 0);
	ops = *gx_env_posix()->ops;
	ops.unlink = gated_unlink;
	env = *gx_env_posix();
	env.ops = &ops;
	close_table();
	open_table(&env);
}

START_TEST(a_job_given_again_while_in_work_is_done_once)
{
	struct fsd_object_id known = {.ino = 5, .generation = 2};
	struct fake_metad_seen *seen;

	make_object(5, 2, "bytes");
	fake_metad_know(metad, &known);
	use_gate();
	start_agent();
	wait_registered(1);
	give(1, 2, 5, 2, 0);
	gate_wait();
	give(1, 2, 5, 2, 0);
	give(1, 2, 5, 2, 0);
	wait_two_beats();
	wait_two_beats();
	gate_open();
	wait_done(1);
	wait_two_beats();
	seen = fake_metad_seen(metad);
	ck_assert_uint_eq(seen->done_count, 1);
	free(seen);
}
END_TEST

START_TEST(the_result_of_a_job_is_told_when_the_connection_is_back)
{
	struct fsd_object_id known = {.ino = 5, .generation = 2};
	struct fake_metad_seen *seen;

	make_object(5, 2, "bytes");
	fake_metad_know(metad, &known);
	use_gate();
	start_agent();
	wait_registered(1);
	give(1, 2, 5, 2, 0);
	gate_wait();
	fake_metad_cut(metad);
	gate_open();
	fake_metad_mend(metad);
	wait_done(1);
	seen = fake_metad_seen(metad);
	ck_assert_uint_eq(seen->done[0].id, 1);
	ck_assert_uint_eq(seen->registrations, 1);
	free(seen);
	ck_assert(!has_object(5, 2));
}
END_TEST

START_TEST(a_result_is_kept_while_metad_answers_with_errors)
{
	struct fsd_object_id known = {.ino = 5, .generation = 2};

	make_object(5, 2, "bytes");
	fake_metad_know(metad, &known);
	use_gate();
	start_agent();
	wait_registered(1);
	give(1, 2, 5, 2, 0);
	gate_wait();
	fake_metad_refuse_work(metad, true);
	gate_open();
	wait_two_beats();
	fake_metad_refuse_work(metad, false);
	wait_done(1);
}
END_TEST

START_TEST(a_result_is_not_told_to_another_life_of_metad)
{
	struct fsd_object_id known = {.ino = 5, .generation = 2};
	struct fake_metad_seen *seen;

	make_object(5, 2, "bytes");
	fake_metad_know(metad, &known);
	use_gate();
	start_agent();
	wait_registered(1);
	give(1, 2, 5, 2, 0);
	gate_wait();
	fake_metad_down(metad);
	fake_metad_up(metad, 2);
	wait_registered(2);
	/* The number means something else now, and is not in work. */
	give(1, 3, 77, 4, 3);
	wait_done(1);
	gate_open();
	wait_two_beats();
	wait_two_beats();
	seen = fake_metad_seen(metad);
	ck_assert_uint_eq(seen->done_count, 1);
	ck_assert_uint_eq(seen->done[0].status, RPC_STATUS_STALE);
	free(seen);
}
END_TEST

/* -- notes ------------------------------------------------------------------------------------- */

START_TEST(notes_are_kept_until_metad_has_heard_them)
{
	struct fsd_object_id part = {.ino = 8, .generation = FSD_COPY_GENERATION};
	struct fake_metad_seen *seen;
	size_t count = 3;

	start_agent();
	wait_registered(1);
	fake_metad_down(metad);
	for (uint64_t i = 0; i < count; i++) {
		struct fsd_object_id id = {.ino = 5 + i, .generation = 2};

		fsd_agent_note(server.agent, &id, FSD_NOTE_STABLE + (unsigned)i, 7);
	}
	fsd_agent_note(server.agent, &part, FSD_NOTE_STABLE, 7); /* no business of metad's */
	fake_metad_up(metad, 2);
	ck_assert(fake_metad_wait(metad, has_notes, &count));
	wait_two_beats();
	seen = fake_metad_seen(metad);
	ck_assert_uint_eq(seen->note_count, count);
	for (uint64_t i = 0; i < count; i++) {
		ck_assert_uint_eq(seen->notes[i].ino, 5 + i);
		ck_assert_uint_eq(seen->notes[i].what, FSD_NOTE_STABLE + i);
	}
	free(seen);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fsd_agent");
	SRunner *runner = srunner_create(suite);
	TCase *tc = tcase_create("fsd_agent");
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_node_tells_who_it_is_and_then_that_it_is_there);
	tcase_add_test(tc, a_node_that_was_forgotten_registers_again);
	tcase_add_test(tc, a_restarted_metad_is_told_anew_and_hears_that_the_session_goes_on);
	tcase_add_test(tc, a_node_that_starts_before_metad_gets_known_later);
	tcase_add_test(tc, an_agent_ends_soon_whether_or_not_metad_is_there);
	tcase_add_test(tc, objects_that_metad_does_not_know_are_put_aside);
	tcase_add_test(tc, all_of_many_objects_are_told_page_by_page);
	tcase_add_test(tc, a_metad_older_than_one_seen_before_is_not_believed);
	tcase_add_test(tc, half_a_copy_is_removed_at_the_start_and_not_told);
	tcase_add_test(tc, a_deleted_object_is_gone_and_so_is_one_that_never_was);
	tcase_add_loop_test(tc, a_recovered_object_moves_on_and_tells_its_size, 0, 2);
	tcase_add_test(tc, recovering_what_is_not_here_is_stale_and_a_strange_job_is_refused);
	tcase_add_test(tc, results_wait_for_metad_and_are_told_once);
	tcase_add_test(tc, a_job_given_again_while_in_work_is_done_once);
	tcase_add_test(tc, the_result_of_a_job_is_told_when_the_connection_is_back);
	tcase_add_test(tc, a_result_is_kept_while_metad_answers_with_errors);
	tcase_add_test(tc, a_result_is_not_told_to_another_life_of_metad);
	tcase_add_test(tc, notes_are_kept_until_metad_has_heard_them);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
