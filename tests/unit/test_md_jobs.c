/*
 * metad's work for storage nodes: a real metad, and nodes that the test plays.
 */
#include "md_pretend.h"

static void setup(void)
{
	pretend_setup();
}

/* -- copies that lack ------------------------------------------------------------------------- */

START_TEST(a_copy_is_made_where_there_is_most_room)
{
	struct file file;
	struct job *job;

	start_grid(3);
	file = make_large("file", 10000);
	ck_assert_str_eq(file.primary, "fsd1");
	assert_no_job(&nodes[1], COPY, 0);
	set_ncopy(&file, "2");
	job = node_job(&nodes[1], COPY, file.ino);
	ck_assert_uint_eq(job->generation, file.generation);
	ck_assert_uint_eq(job->from_generation, 0);
	ck_assert_uint_eq(job->source_count, 1);
	ck_assert_str_eq(job->sources[0].node, "fsd1");
	ck_assert(job->sources[0].has_session);
	ck_assert_uint_eq(job->sources[0].ticket.ino, file.ino);
	ck_assert_uint_eq(job->sources[0].ticket.generation, file.generation);
	ck_assert_uint_eq(job->sources[0].ticket.rights, RPC_FILE_READ);
	/* It counts when the node says so, and not before. */
	ck_assert(!copy_of(&file, &nodes[1]).listed);
	node_did(&nodes[1], job);
	ck_assert(copy_of(&file, &nodes[1]).current);
	ck_assert_uint_eq(copy_of(&file, &nodes[1]).flags, MD_COPY_STABLE);
	assert_no_job(&nodes[2], COPY, 0);
}
END_TEST

START_TEST(no_two_copies_are_on_one_host)
{
	struct file file;

	nodes[1].host = "h1"; /* as the first */
	start_grid(3);
	file = make_large("file", 10000);
	set_ncopy(&file, "3");
	node_copies(&nodes[2], &file);
	/* Two hosts, three copies wanted: one stays away. */
	assert_no_job(&nodes[1], COPY, 0);
	nodes[1].host = "h2";
	node_register(&nodes[1]);
	node_copies(&nodes[1], &file);
}
END_TEST

START_TEST(a_node_without_room_gets_no_copy)
{
	struct file file;

	nodes[1].free_bytes = 5000;
	start_grid(2);
	file = make_large("file", 10000);
	set_ncopy(&file, "2");
	assert_no_job(&nodes[1], COPY, 0);
	nodes[1].free_bytes = GIB;
	node_register(&nodes[1]);
	node_copies(&nodes[1], &file);
}
END_TEST

/*
 * A fsync is content with one copy on disk. Were the next writer given another one, which is not,
 * the synced bytes would be in a stale copy only, and a power cut would take them (rule B2).
 */
START_TEST(writing_goes_on_where_the_bytes_are_on_disk_not_where_the_writer_is)
{
	struct file file, opened;

	start_grid(2);
	file = make_large("file", 10000);
	ck_assert_str_eq(file.primary, "fsd1");
	set_ncopy(&file, "2");
	node_copies(&nodes[1], &file);
	ck_assert_uint_eq(copy_of(&file, &nodes[0]).flags & MD_COPY_STABLE, 0);
	ck_assert_uint_ne(copy_of(&file, &nodes[1]).flags & MD_COPY_STABLE, 0);
	opened = open_file("file");
	/* Reading it there does no harm. */
	ck_assert_int_eq(take_lease_at(&opened, false, nodes[0].host), 2);
	ck_assert_str_eq(opened.primary, "fsd1");
	ck_assert_int_eq(take_lease_at(&opened, true, nodes[0].host), 1);
	ck_assert_str_eq(opened.primary, "fsd2");
	give_back(&opened, 20000, false);
	close_file(&opened);
}
END_TEST

START_TEST(a_stale_copy_is_caught_up_before_anything_is_deleted)
{
	struct file file;
	struct job *job;
	uint64_t old;

	start_grid(3);
	file = make_large("file", 10000);
	set_ncopy(&file, "2");
	node_copies(&nodes[1], &file);
	old = file.generation;
	write_again(&file, 20000);
	ck_assert_uint_gt(file.generation, old);
	ck_assert_str_eq(file.primary, "fsd2"); /* stable, so it is the safest */
	/* Rule B9: it has a base. */
	job = node_job(&nodes[0], COPY, file.ino);
	ck_assert_uint_eq(job->from_generation, old);
	ck_assert_uint_eq(job->generation, file.generation);
	ck_assert_str_eq(job->sources[0].node, "fsd2");
	ck_assert_uint_eq(job->sources[0].ticket.generation, file.generation);
	ck_assert(!copy_of(&file, &nodes[0]).current);
	node_did(&nodes[0], job);
	ck_assert(copy_of(&file, &nodes[0]).current);
	assert_no_job(&nodes[0], DELETE, 0);
	assert_no_job(&nodes[2], COPY, 0);
}
END_TEST

START_TEST(stale_copies_go_when_all_wanted_ones_are_there)
{
	struct file file;
	struct job *job;
	uint64_t old;

	start_grid(2);
	file = make_large("file", 10000);
	set_ncopy(&file, "2");
	node_copies(&nodes[1], &file);
	old = file.generation;
	set_ncopy(&file, "1");
	/* One of the two is too many: the one that is not known to be on disk. */
	job = node_job(&nodes[0], DELETE, file.ino);
	ck_assert_uint_eq(job->generation, old);
	ck_assert(!copy_of(&file, &nodes[0]).listed);
	ck_assert(copy_of(&file, &nodes[1]).current);
	node_did(&nodes[0], job);
	assert_no_job(&nodes[1], DELETE, 0);
	assert_no_job(&nodes[0], DELETE, 0);
}
END_TEST

START_TEST(a_stale_copy_stays_as_long_as_the_current_one_is_away)
{
	struct file file;

	start_grid(2);
	file = make_large("file", 10000);
	set_ncopy(&file, "2");
	node_copies(&nodes[1], &file);
	file = open_file("file");
	ck_assert_int_eq(take_lease(&file, true), 1);
	ck_assert_str_eq(file.primary, "fsd2");
	set_ncopy(&file, "1"); /* nothing is to be done while it is written */
	fall_silent(&nodes[1]);
	give_back(&file, 20000, false);
	assert_no_job(&nodes[0], DELETE, 0);
	ck_assert(copy_of(&file, &nodes[0]).listed);
	ck_assert_int_eq(node_work(&nodes[1], NULL, NULL), 0); /* it is heard again */
	node_job(&nodes[0], DELETE, file.ino);
}
END_TEST

START_TEST(a_damaged_copy_is_replaced)
{
	struct file file;
	struct job *job;

	start_grid(2);
	file = make_large("file", 10000);
	set_ncopy(&file, "2");
	node_copies(&nodes[1], &file);
	node_notes(&nodes[0], file.ino, file.generation, DAMAGED);
	ck_assert_uint_eq(copy_of(&file, &nodes[0]).flags & MD_COPY_BAD, MD_COPY_BAD);
	/* It is mended where it is, from the other one. */
	job = node_job(&nodes[0], COPY, file.ino);
	ck_assert_uint_eq(job->generation, file.generation);
	ck_assert_uint_eq(job->from_generation, file.generation);
	ck_assert_uint_eq(job->source_count, 1);
	ck_assert_str_eq(job->sources[0].node, "fsd2");
	node_did(&nodes[0], job);
	ck_assert_uint_eq(copy_of(&file, &nodes[0]).flags, MD_COPY_STABLE);
}
END_TEST

START_TEST(a_copy_that_cannot_be_mended_is_made_elsewhere)
{
	struct file file;

	start_grid(3);
	file = make_large("file", 10000);
	set_ncopy(&file, "2");
	node_copies(&nodes[1], &file);
	node_notes(&nodes[0], file.ino, file.generation, DAMAGED);
	node_did_with(&nodes[0], node_job(&nodes[0], COPY, file.ino), -EIO, 0);
	node_copies(&nodes[2], &file);
	/* Rule B9: now there are two, and the bad one goes. */
	node_did(&nodes[0], node_job(&nodes[0], DELETE, file.ino));
	ck_assert(!copy_of(&file, &nodes[0]).listed);
}
END_TEST

START_TEST(a_copy_that_is_gone_is_made_anew)
{
	struct file file;

	start_grid(3);
	file = make_large("file", 10000);
	set_ncopy(&file, "2");
	node_copies(&nodes[1], &file);
	node_notes(&nodes[1], file.ino, file.generation, GONE);
	ck_assert(!copy_of(&file, &nodes[1]).listed);
	node_copies(&nodes[1], &file);
}
END_TEST

START_TEST(what_a_node_says_of_others_or_of_nothing_changes_nothing)
{
	struct job foreign = {.id = 1, .kind = COPY};
	struct file file;

	start_grid(2);
	file = make_large("file", 10000);
	node_notes(&nodes[1], file.ino, file.generation, GONE);
	node_notes(&nodes[1], file.ino, file.generation, DAMAGED);
	node_notes(&nodes[1], file.ino, file.generation, STABLE);
	node_notes(&nodes[0], file.ino, file.generation + 1, GONE);
	node_notes(&nodes[0], 4711, 1, GONE);
	node_notes(&nodes[0], 1, 1, STABLE);
	node_notes(&nodes[0], file.ino, file.generation, 17);
	ck_assert(copy_of(&file, &nodes[0]).current);
	ck_assert_uint_eq(copy_of(&file, &nodes[0]).flags, 0);
	ck_assert(!copy_of(&file, &nodes[1]).listed);
	/* Somebody else's job. */
	set_ncopy(&file, "2");
	foreign.id = node_job(&nodes[1], COPY, file.ino)->id;
	node_did(&nodes[0], &foreign);
	ck_assert(!copy_of(&file, &nodes[1]).listed);
	node_did(&nodes[1], &foreign);
	ck_assert(copy_of(&file, &nodes[1]).current);
}
END_TEST

START_TEST(a_copy_that_comes_too_late_is_a_base_or_goes)
{
	struct job file_job, other_job;
	struct file file, other;
	uint64_t old;

	start_grid(2);
	file = make_large("file", 10000);
	other = make_large("other", 10000);
	old = file.generation;
	set_ncopy(&file, "2");
	set_ncopy(&other, "2");
	file_job = *node_job(&nodes[1], COPY, file.ino);
	other_job = *node_job(&nodes[1], COPY, other.ino);
	/* While they are made one file changes and the other goes. */
	write_again(&file, 20000);
	unlink_file(&other);
	node_did(&nodes[1], &file_job);
	node_did(&nodes[1], &other_job);
	ck_assert(copy_of(&file, &nodes[1]).listed && !copy_of(&file, &nodes[1]).current);
	ck_assert_uint_eq(node_job(&nodes[1], DELETE, other.ino)->generation, other.generation);
	ck_assert_uint_eq(node_job(&nodes[1], COPY, file.ino)->from_generation, old);
}
END_TEST

/* -- giving ----------------------------------------------------------------------------------- */

START_TEST(a_job_that_is_not_reported_is_given_again)
{
	struct file file;
	uint64_t id;

	start_grid(2);
	file = make_large("file", 10000);
	set_ncopy(&file, "2");
	id = node_job(&nodes[1], COPY, file.ino)->id;
	assert_no_job(&nodes[1], COPY, 0);
	pass_time(MD_JOB_NS);
	ck_assert_uint_eq(node_job(&nodes[1], COPY, file.ino)->id, id);
	assert_no_job(&nodes[1], COPY, 0);
	node_register(&nodes[1]);
	ck_assert_uint_eq(node_job(&nodes[1], COPY, file.ino)->id, id);
	/* At once if the node says that an answer did not arrive. */
	nodes[1].missed = true;
	ck_assert_uint_eq(node_job(&nodes[1], COPY, file.ino)->id, id);
	assert_no_job(&nodes[1], COPY, 0);
	node_did(&nodes[1], &nodes[1].found);
	ck_assert(copy_of(&file, &nodes[1]).current);
}
END_TEST

START_TEST(a_node_that_fell_silent_loses_nothing)
{
	struct file file;
	struct job *job, kept;

	start_grid(2);
	file = make_large("file", 10000);
	set_ncopy(&file, "2");
	job = node_job(&nodes[1], COPY, file.ino);
	kept = *job;
	fall_silent(&nodes[1]);
	/* Its result counts when it comes (rule N15). */
	node_did(&nodes[1], &kept);
	ck_assert(copy_of(&file, &nodes[1]).current);
	/* One of two is wanted, but what remains must be there: nothing is deleted meanwhile. */
	fall_silent(&nodes[1]);
	set_ncopy(&file, "1");
	assert_no_job(&nodes[0], DELETE, 0);
	ck_assert(copy_of(&file, &nodes[0]).listed);
}
END_TEST

START_TEST(what_a_silent_node_was_not_given_goes_to_another)
{
	struct file file;

	start_grid(3);
	file = make_large("file", 10000);
	fall_silent(&nodes[1]);
	set_ncopy(&file, "2");
	node_copies(&nodes[2], &file);
	/* The silent one comes back: it has nothing to do. */
	assert_no_job(&nodes[1], COPY, 0);
}
END_TEST

START_TEST(a_copy_waits_for_its_source_without_keeping_others_waiting)
{
	struct file file;

	start_grid(2);
	file = make_large("file", 10000);
	fall_silent(&nodes[0]);
	set_ncopy(&file, "2");
	assert_no_job(&nodes[1], COPY, 0);
	ck_assert_int_eq(node_work(&nodes[0], NULL, NULL), 0); /* it is heard again */
	node_copies(&nodes[1], &file);
}
END_TEST

START_TEST(a_node_is_given_a_bounded_number_of_copies_at_a_time)
{
	struct file files[40];
	unsigned copies;
	char name[16];

	start_grid(2);
	for (unsigned i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		files[i] = make_large(name, 10000);
		set_ncopy(&files[i], "2");
	}
	node_job(&nodes[1], COPY, 0);
	assert_no_job(&nodes[1], DELETE, 0);
	/* The rest waits until these are done. */
	ck_assert_uint_eq(nodes[1].job_count + 1, MD_JOBS_GIVEN_MAX);
	node_did(&nodes[1], &nodes[1].found);
	for (copies = 1; copies < 40; copies++)
		node_did(&nodes[1], node_job(&nodes[1], COPY, 0));
	for (unsigned i = 0; i < 40; i++)
		ck_assert(copy_of(&files[i], &nodes[1]).current);
}
END_TEST

START_TEST(nodes_say_who_they_are)
{
	struct pretended other = nodes[1];
	struct opinion opinion;

	start_grid(1);
	ck_assert_int_eq(node_work(&nodes[1], NULL, NULL), -ENOENT); /* not registered */
	ck_assert_int_eq(node_inventory(&nodes[1], 0, UINT64_MAX, NULL, 0, &opinion), -ENOENT);
	ck_assert_int_eq(node_register_with(&nodes[1], "fsd1"), -EPERM);
	other = nodes[0];
	other.boot++; /* another life */
	ck_assert_int_eq(node_work(&other, NULL, NULL), -ENOENT);
	other = nodes[0];
	other.client = nodes[1].client; /* in another's name */
	ck_assert_int_eq(node_work(&other, NULL, NULL), -EPERM);
	ck_assert_int_eq(node_inventory(&other, 0, UINT64_MAX, NULL, 0, &opinion), -EPERM);
	other.client = user;
	ck_assert_int_lt(node_work(&other, NULL, NULL), 0);
}
END_TEST

/* -- trash ------------------------------------------------------------------------------------ */

START_TEST(an_object_is_deleted_until_the_node_has_said_so)
{
	struct file file;

	start_grid(1);
	file = make_large("file", 10000);
	unlink_file(&file);
	ck_assert_uint_eq(node_job(&nodes[0], DELETE, file.ino)->generation, file.generation);
	restart();
	node_register(&nodes[0]);
	/* Another life of metad has it in its own books. */
	node_did_with(&nodes[0], node_job(&nodes[0], DELETE, file.ino), -EIO, 0);
	node_did(&nodes[0], node_job(&nodes[0], DELETE, file.ino));
	assert_no_job(&nodes[0], DELETE, 0);
	restart();
	node_register(&nodes[0]);
	assert_no_job(&nodes[0], DELETE, 0);
}
END_TEST

/* The env's fdatasync() that a test can hold up. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool held;
} syncs = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};

static int slow_fdatasync(struct gx_env *env GX_UNUSED, int fd)
{
	pthread_mutex_lock(&syncs.lock);
	while (syncs.held)
		pthread_cond_wait(&syncs.changed, &syncs.lock);
	pthread_mutex_unlock(&syncs.lock);
	return gx_env_fdatasync(gx_env_posix(), fd);
}

static void hold_syncs(bool held)
{
	pthread_mutex_lock(&syncs.lock);
	syncs.held = held;
	pthread_cond_broadcast(&syncs.changed);
	pthread_mutex_unlock(&syncs.lock);
}

START_TEST(nothing_is_deleted_before_the_command_is_on_disk)
{
	static struct gx_env_ops ops;
	static struct gx_env env;
	struct file file;

	ops = *gx_env_posix()->ops;
	ops.fdatasync = slow_fdatasync;
	env = *gx_env_posix();
	env.ops = &ops;
	options.env = &env;
	start_grid(1);
	file = make_large("file", 10000);
	ck_assert_int_eq(node_work(&nodes[0], NULL, NULL), 0);
	hold_syncs(true);
	unlink_file(&file);       /* answered: its own session may know */
	node_register(&nodes[0]); /* metad looks what there is to do for it */
	ck_assert_ptr_null(node_job_if(&nodes[0], DELETE, 0, 2)); /* rule N2 */
	hold_syncs(false);
	node_job(&nodes[0], DELETE, file.ino);
}
END_TEST

/* -- caches (rule B11) ------------------------------------------------------------------------ */

static struct file make_cached(const char *name)
{
	struct file file = make_large(name, GIB);
	struct job *job;

	node_notes(&nodes[0], file.ino, file.generation, STABLE);
	ck_assert_int_eq(want_cache(&file, "h2"), 0);
	ck_assert_int_eq(want_cache(&file, "h2"), 0); /* once is enough */
	job = node_job(&nodes[1], COPY, file.ino);
	ck_assert_uint_eq(nodes[1].job_count, 0);
	node_did(&nodes[1], job);
	ck_assert_uint_eq(copy_of(&file, &nodes[1]).flags, MD_COPY_CACHE | MD_COPY_STABLE);
	return file;
}

START_TEST(a_cache_copy_counts_towards_nothing_and_dies_with_its_generation)
{
	struct file file;
	uint64_t old;

	start_grid(2);
	file = make_cached("file");
	ck_assert(copy_of(&file, &nodes[1]).current);
	old = file.generation;
	write_again(&file, 20000);
	ck_assert_uint_eq(node_job(&nodes[1], DELETE, file.ino)->generation, old);
	ck_assert(!copy_of(&file, &nodes[1]).listed);
}
END_TEST

START_TEST(a_cache_copy_becomes_one_that_counts)
{
	struct file file;

	start_grid(2);
	file = make_cached("file");
	set_ncopy(&file, "2");
	assert_no_job(&nodes[1], COPY, 0);
	ck_assert_uint_eq(copy_of(&file, &nodes[1]).flags, MD_COPY_STABLE);
}
END_TEST

START_TEST(the_oldest_caches_make_room)
{
	struct file first, second;

	nodes[1].capacity_bytes = 100 * GIB;
	nodes[1].free_bytes = 50 * GIB;
	start_grid(2);
	first = make_cached("first");
	second = make_cached("second");
	/* Under a tenth caches go until there are 15 %; here one is enough. */
	nodes[1].capacity_bytes = 16 * GIB;
	nodes[1].free_bytes = GIB + GIB / 2;
	node_register(&nodes[1]);
	node_did(&nodes[1], node_job(&nodes[1], DELETE, first.ino));
	ck_assert(!copy_of(&first, &nodes[1]).listed);
	ck_assert(copy_of(&second, &nodes[1]).listed);
	/* There is no new one where there is so little room. */
	ck_assert_int_lt(want_cache(&first, "h2"), 0);
	/* The room has come. */
	nodes[1].free_bytes = 3 * GIB;
	node_beat(&nodes[1]);
	assert_no_job(&nodes[1], DELETE, 0);
}
END_TEST

START_TEST(old_caches_go)
{
	struct file file;

	options.cache_age_ns = GX_NSEC_PER_SEC;
	start_grid(2);
	file = make_cached("file");
	node_did(&nodes[1], node_job(&nodes[1], DELETE, file.ino));
	ck_assert(!copy_of(&file, &nodes[1]).listed);
	ck_assert(copy_of(&file, &nodes[0]).current);
}
END_TEST

/* -- life ------------------------------------------------------------------------------------- */

static void ask_waiting(struct md_server *md, void *arg)
{
	const struct md_worker *worker = md_worker_find(md->jobs, nodes[0].name);

	*(unsigned *)arg = worker ? worker->wait_count : 0;
}

static void *work_in_thread(void *arg)
{
	*(int *)arg = node_work(&nodes[0], NULL, NULL);
	return NULL;
}

START_TEST(metad_ends_while_a_node_waits)
{
	unsigned waiting = 0;
	pthread_t thread;
	int r = 0;

	start_grid(1);
	make_large("file", 10000);
	ck_assert_int_eq(pthread_create(&thread, NULL, work_in_thread, &r), 0);
	while (waiting == 0)
		meta_fixture_run(f, ask_waiting, &waiting);
	meta_fixture_down(f); /* nothing hangs, nothing leaks */
	meta_fixture_up(f);
	pthread_join(thread, NULL);
	ck_assert_int_eq(r, -ENOENT); /* it was asked again, and a new metad does not know it */
}
END_TEST

static Suite *jobs_suite(void)
{
	Suite *s = suite_create("md_jobs");
	TCase *tc = tcase_create("jobs");

	tcase_add_checked_fixture(tc, setup, pretend_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_copy_is_made_where_there_is_most_room);
	tcase_add_test(tc, no_two_copies_are_on_one_host);
	tcase_add_test(tc, a_node_without_room_gets_no_copy);
	tcase_add_test(tc, writing_goes_on_where_the_bytes_are_on_disk_not_where_the_writer_is);
	tcase_add_test(tc, a_stale_copy_is_caught_up_before_anything_is_deleted);
	tcase_add_test(tc, stale_copies_go_when_all_wanted_ones_are_there);
	tcase_add_test(tc, a_stale_copy_stays_as_long_as_the_current_one_is_away);
	tcase_add_test(tc, a_damaged_copy_is_replaced);
	tcase_add_test(tc, a_copy_that_cannot_be_mended_is_made_elsewhere);
	tcase_add_test(tc, a_copy_that_is_gone_is_made_anew);
	tcase_add_test(tc, what_a_node_says_of_others_or_of_nothing_changes_nothing);
	tcase_add_test(tc, a_copy_that_comes_too_late_is_a_base_or_goes);
	tcase_add_test(tc, a_job_that_is_not_reported_is_given_again);
	tcase_add_test(tc, a_node_that_fell_silent_loses_nothing);
	tcase_add_test(tc, what_a_silent_node_was_not_given_goes_to_another);
	tcase_add_test(tc, a_copy_waits_for_its_source_without_keeping_others_waiting);
	tcase_add_test(tc, a_node_is_given_a_bounded_number_of_copies_at_a_time);
	tcase_add_test(tc, nodes_say_who_they_are);
	tcase_add_test(tc, an_object_is_deleted_until_the_node_has_said_so);
	tcase_add_test(tc, nothing_is_deleted_before_the_command_is_on_disk);
	tcase_add_test(tc, a_cache_copy_counts_towards_nothing_and_dies_with_its_generation);
	tcase_add_test(tc, a_cache_copy_becomes_one_that_counts);
	tcase_add_test(tc, the_oldest_caches_make_room);
	tcase_add_test(tc, old_caches_go);
	tcase_add_test(tc, metad_ends_while_a_node_waits);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(jobs_suite());
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
