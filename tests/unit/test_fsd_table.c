/*
 * The table of open objects: references, generations, what waits for its sync, lists, room; and
 * many threads at once.
 */
#include "common/gx_log.h"
#include "fsd/fsd_table_impl.h"
#include "tests/lib/fsd_fixture.h"
#include <check.h>

#define SECOND GX_NSEC_PER_SEC

static struct fsd_fixture node; /* for its directories; it is never up */
static struct fsd_server server;
static struct fsd_table *table;

/* -- fixture ----------------------------------------------------------------------------------- */

static void ignore_log(void *arg GX_UNUSED, enum gx_log_level level GX_UNUSED,
		       const char *line GX_UNUSED)
{
}

static void open_table(void)
{
	memset(&server, 0, sizeof(server));
	server.env = node.options.env;
	server.options = node.options;
	server.boot = FSD_FIXTURE_BOOT;
	ck_assert_int_eq(fsd_table_new(&server, &table), 0);
	server.table = table;
}

static void close_table(void)
{
	struct fsd_ref refs[16];
	size_t count;

	/* What the syncer would have taken. */
	while ((count = fsd_table_dirty(table, 0, refs, GX_COUNT_OF(refs))) > 0)
		for (size_t i = 0; i < count; i++)
			fsd_table_put(table, &refs[i]);
	fsd_table_free(table);
}

static void setup(void)
{
	gx_log_to_callback(ignore_log, NULL);
	fsd_gate_init();
	fsd_fixture_init(&node, "fsd7");
	node.options.env = fsd_gate_env();
	node.options.spool_count = 2;
	open_table();
}

static void teardown(void)
{
	close_table();
	fsd_fixture_fini(&node);
	fsd_gate_fini();
}

static int get(uint64_t ino, uint64_t generation, uint64_t base, struct fsd_ref *ret_ref)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, ino, generation, base);

	return fsd_table_get(table, &ticket, ret_ref);
}

static int read_only(uint64_t ino, uint64_t generation)
{
	struct rpc_file_ticket ticket = fsd_fixture_ticket(&node, ino, generation, 0);
	struct fsd_ref ref;
	int r;

	ticket.rights = RPC_FILE_READ;
	r = fsd_table_get(table, &ticket, &ref);
	if (r == 0)
		fsd_table_put(table, &ref);
	return r;
}

static void make(uint64_t ino, uint64_t generation)
{
	struct fsd_object_id id = {.ino = ino, .generation = generation};
	struct fsd_ref ref;

	ck_assert_int_eq(fsd_table_get_id(table, &id, true, &ref), 0);
	fsd_table_put(table, &ref);
}

static void change(struct fsd_ref *ref)
{
	ck_assert_int_eq(fsd_table_begin(table, ref), 0);
	ck_assert_int_eq(fsd_object_write(ref->object, "x", 1, 0), 0);
	fsd_table_changed(table, ref);
	fsd_table_end(table, ref);
}

/* All that is dirty now; how many. */
static size_t sync_all(void)
{
	struct fsd_ref refs[8];
	size_t all = 0, count;

	while ((count = fsd_table_dirty(table, 0, refs, GX_COUNT_OF(refs))) > 0) {
		for (size_t i = 0; i < count; i++) {
			ck_assert_int_eq(fsd_object_sync(refs[i].object), 0);
			fsd_table_put(table, &refs[i]);
		}
		all += count;
	}
	return all;
}

/* -- references -------------------------------------------------------------------------------- */

START_TEST(an_object_is_open_once_however_many_use_it)
{
	struct fsd_ref first, second;

	ck_assert_int_eq(get(5, 1, 0, &first), 0);
	ck_assert_int_eq(get(5, 1, 0, &second), 0);
	ck_assert_ptr_eq(first.object, second.object);
	fsd_table_put(table, &first);
	ck_assert_ptr_null(first.entry);
	fsd_table_put(table, &first); /* nothing */
	change(&second);
	fsd_table_put(table, &second);
}
END_TEST

START_TEST(idle_objects_make_room_for_others_and_clocks_only_go_up)
{
	struct fsd_ref ref;
	uint64_t clock;

	table->open_max = 4;
	ck_assert_int_eq(get(1, 1, 0, &ref), 0);
	for (unsigned i = 0; i < 100; i++)
		clock = fsd_table_changed(table, &ref);
	fsd_table_put(table, &ref);
	for (uint64_t ino = 2; ino <= 50; ino++) {
		make(ino, 1);
		sync_all();
		ck_assert_uint_le(HASH_COUNT(table->entries), 5);
	}
	ck_assert_int_eq(get(1, 1, 0, &ref), 0);
	ck_assert_uint_gt(fsd_table_clock(table, &ref), clock);
	fsd_table_put(table, &ref);
}
END_TEST

START_TEST(a_removed_object_is_kept_by_those_who_have_it_open)
{
	struct fsd_object_id id = {.ino = 5, .generation = 1};
	struct fsd_ref ref;
	char byte;

	ck_assert_int_eq(get(5, 1, 0, &ref), 0);
	change(&ref);
	ck_assert_int_eq(fsd_table_remove(table, &id), 0);
	ck_assert_int_eq(fsd_table_remove(table, &id), 0);
	ck_assert_int_eq(read_only(5, 1), -ESTALE);
	ck_assert_int_eq(fsd_object_read(ref.object, &byte, 1, 0, NULL), 1);
	/* Nobody changes what is gone, and it waits for no sync. */
	ck_assert_int_eq(fsd_table_begin(table, &ref), -ESTALE);
	ck_assert_uint_eq(sync_all(), 0);
	fsd_table_put(table, &ref);
	ck_assert(!fsd_fixture_has(&node, 5, 1));
}
END_TEST

START_TEST(what_is_in_use_is_not_put_aside)
{
	struct fsd_object_id id = {.ino = 5, .generation = 1};
	struct fsd_ref ref;

	ck_assert_int_eq(fsd_table_quarantine(table, &id), -ENOENT);
	ck_assert_int_eq(get(5, 1, 0, &ref), 0);
	ck_assert_int_eq(fsd_table_quarantine(table, &id), -EBUSY);
	change(&ref);
	fsd_table_put(table, &ref);
	/* That it waits for its sync is no use. */
	ck_assert_int_eq(fsd_table_quarantine(table, &id), 0);
	ck_assert_int_eq(read_only(5, 1), -ESTALE);
	ck_assert_uint_eq(sync_all(), 0);
}
END_TEST

START_TEST(what_is_held_is_opened_by_no_ticket)
{
	struct fsd_object_id id = {.ino = 5, .generation = 3};
	struct fsd_ref ref, again;

	make(5, 3);
	ck_assert_int_eq(fsd_table_get_id(table, &id, false, &ref), 0);
	ck_assert_int_eq(fsd_table_hold(table, &ref), 0);
	ck_assert_int_eq(fsd_table_hold(table, &ref), -EBUSY);
	ck_assert_int_eq(get(5, 3, 0, &again), -ESTALE);
	ck_assert_int_eq(get(5, 4, 3, &again), -ESTALE);
	fsd_table_release(table, &ref);
	ck_assert_int_eq(get(5, 4, 3, &again), 0);
	fsd_table_put(table, &again);
	fsd_table_put(table, &ref);
}
END_TEST

/* -- generations ------------------------------------------------------------------------------- */

/* A file that is cut to nothing and grows anew, here, while a copy of what it was is under way. */
START_TEST(half_a_copy_is_not_in_the_way_of_a_new_object)
{
	struct fsd_object_id half = {.ino = 7, .generation = FSD_COPY_GENERATION};
	struct fsd_ref copy, ref;

	ck_assert_int_eq(fsd_table_get_id(table, &half, true, &copy), 0);
	ck_assert_int_eq(fsd_table_hold(table, &copy), 0);
	ck_assert_int_eq(get(7, 4, 0, &ref), 0);
	/* The copy of something older comes too late then. */
	ck_assert_int_eq(fsd_table_advance(table, &copy, 3), -ESTALE);
	fsd_table_put(table, &ref);
	fsd_table_release(table, &copy);
	fsd_table_put(table, &copy);
}
END_TEST

START_TEST(generations_only_go_up)
{
	struct fsd_object_id id = {.ino = 5, .generation = 3};
	struct fsd_ref ref;
	uint64_t lower;

	make(5, 3);
	make(5, 9);
	ck_assert_int_eq(fsd_table_below(table, 5, 9, &lower), 0);
	ck_assert_uint_eq(lower, 3);
	ck_assert_int_eq(fsd_table_below(table, 5, 3, &lower), -ENOENT);
	ck_assert_int_eq(fsd_table_below(table, 6, 3, &lower), -ENOENT);
	ck_assert_int_eq(fsd_table_get_id(table, &id, false, &ref), 0);
	ck_assert_int_eq(fsd_table_advance(table, &ref, 8), -ESTALE);
	ck_assert_int_eq(fsd_table_advance(table, &ref, 9), -ESTALE);
	ck_assert_int_eq(fsd_table_advance(table, &ref, 10), 0);
	ck_assert_uint_eq(ref.generation, 10);
	fsd_table_put(table, &ref);
	ck_assert_int_eq(read_only(5, 9), -ESTALE);
	ck_assert_int_eq(read_only(5, 10), 0);
}
END_TEST

START_TEST(a_base_of_which_a_higher_one_exists_does_not_move)
{
	struct fsd_ref ref;

	make(5, 3);
	make(5, 4);
	ck_assert_int_eq(get(5, 6, 3, &ref), -ESTALE);
	ck_assert_int_eq(get(5, 6, 4, &ref), 0);
	fsd_table_put(table, &ref);
	ck_assert(fsd_fixture_has(&node, 5, 3));
	ck_assert(fsd_fixture_has(&node, 5, 6));
}
END_TEST

START_TEST(who_had_it_open_before_a_move_cannot_change_it)
{
	struct fsd_ref old, new;

	ck_assert_int_eq(get(5, 1, 0, &old), 0);
	change(&old);
	ck_assert_int_eq(get(5, 2, 1, &new), 0);
	ck_assert_ptr_eq(old.object, new.object);
	ck_assert_int_eq(fsd_table_begin(table, &old), -ESTALE);
	change(&new);
	fsd_table_put(table, &old);
	fsd_table_put(table, &new);
}
END_TEST

/* -- what waits for its sync ------------------------------------------------------------------- */

static void count_wake(void *arg)
{
	++*(unsigned *)arg;
}

START_TEST(changed_objects_are_shown_once_when_they_are_idle)
{
	unsigned wakes = 0;
	struct fsd_ref ref, refs[4];

	fsd_table_set_waker(table, count_wake, &wakes);
	ck_assert_int_eq(fsd_table_due(table, SECOND), GX_FOREVER);
	ck_assert_int_eq(get(5, 1, 0, &ref), 0);
	ck_assert_uint_eq(sync_all(), 1); /* new ones are on no disk */
	wakes = 0;
	change(&ref);
	change(&ref);
	ck_assert_uint_eq(wakes, 1);
	ck_assert_int_le(fsd_table_due(table, SECOND), gx_env_now_ns(server.env) + SECOND);
	ck_assert_uint_eq(fsd_table_dirty(table, 3600 * SECOND, refs, 4), 0);
	ck_assert_uint_eq(fsd_table_dirty(table, 0, refs, 4), 1);
	ck_assert_ptr_eq(refs[0].object, ref.object);
	ck_assert_uint_eq(fsd_table_dirty(table, 0, &refs[1], 3), 0);
	ck_assert_int_eq(fsd_table_due(table, SECOND), GX_FOREVER);
	/* A change while it is being synced counts. */
	change(&ref);
	fsd_table_put(table, &refs[0]);
	ck_assert_uint_eq(sync_all(), 1);
	fsd_table_put(table, &ref);
	fsd_table_set_waker(table, NULL, NULL);
}
END_TEST

START_TEST(too_many_that_cannot_be_closed_do_not_wait)
{
	struct fsd_ref refs[4];

	table->open_max = 2;
	for (uint64_t ino = 1; ino <= 4; ino++)
		make(ino, 1);
	ck_assert_uint_eq(HASH_COUNT(table->entries), 4);
	ck_assert_int_le(fsd_table_due(table, 3600 * SECOND), gx_env_now_ns(server.env));
	ck_assert_uint_eq(fsd_table_dirty(table, 3600 * SECOND, refs, 4), 4);
	for (size_t i = 0; i < 4; i++)
		fsd_table_put(table, &refs[i]);
	ck_assert_uint_le(HASH_COUNT(table->entries), 3);
}
END_TEST

START_TEST(what_an_earlier_life_has_not_synced_is_dirty_when_it_is_opened)
{
	struct fsd_ref ref;

	ck_assert_int_eq(get(5, 1, 0, &ref), 0);
	change(&ref);
	fsd_table_put(table, &ref);
	close_table(); /* without a sync */
	open_table();
	ck_assert_int_eq(get(5, 1, 0, &ref), 0);
	ck_assert_uint_eq(sync_all(), 1);
	fsd_table_put(table, &ref);
	close_table();
	open_table();
	ck_assert_int_eq(get(5, 1, 0, &ref), 0);
	ck_assert_uint_eq(sync_all(), 0);
	fsd_table_put(table, &ref);
}
END_TEST

/* -- lists ------------------------------------------------------------------------------------- */

START_TEST(all_objects_are_listed_in_order_and_those_of_an_inode_together)
{
	PbMeta__ObjectInfo page[5];
	uint64_t first = 0, last_ino = 0, last_generation = 0;
	size_t count, all = 0;

	for (uint64_t ino = 30; ino > 0; ino--)
		for (uint64_t generation = 1; generation <= 1 + ino % 3; generation++)
			make(ino * 1000, generation);
	for (;;) {
		ck_assert_int_eq(fsd_table_list(table, first, 5, page, &count), 0);
		if (count == 0)
			break;
		ck_assert_uint_ge(page[0].ino, first);
		for (size_t i = 0; i < count; i++) {
			ck_assert(page[i].ino > last_ino ||
				  (page[i].ino == last_ino &&
				   page[i].generation == last_generation + 1));
			last_ino = page[i].ino;
			last_generation = page[i].generation;
		}
		ck_assert_uint_eq(last_generation, 1 + last_ino / 1000 % 3);
		all += count;
		first = last_ino + 1;
		/* What comes while it is being listed is listed, if it is not behind. */
		if (all < 10)
			make(last_ino + 500, 1);
		if (last_ino % 1000 == 500)
			last_generation = 1 + last_ino / 1000 % 3;
	}
	ck_assert_uint_ge(all, 60 + 1);
}
END_TEST

START_TEST(an_inode_with_more_generations_than_a_page_is_listed_all_the_same)
{
	PbMeta__ObjectInfo page[3];
	size_t count;

	for (uint64_t generation = 1; generation <= 7; generation++)
		make(5, generation);
	make(6, 1);
	ck_assert_int_eq(fsd_table_list(table, 0, 3, page, &count), 0);
	ck_assert_uint_eq(count, 3);
	ck_assert_uint_eq(page[0].ino, 5);
	ck_assert_int_eq(fsd_table_list(table, 6, 3, page, &count), 0);
	ck_assert_uint_eq(count, 1);
	ck_assert_uint_eq(page[0].ino, 6);
}
END_TEST

/* -- room and epochs --------------------------------------------------------------------------- */

START_TEST(room_is_what_is_free_less_what_is_reserved)
{
	uint64_t capacity, free_bytes;
	struct fsd_ref ref;

	ck_assert_int_eq(get(5, 1, 0, &ref), 0);
	server.options.reserved_bytes = 1000;
	fsd_gate_space(3000);
	fsd_table_space(table, &capacity, &free_bytes);
	ck_assert_uint_eq(free_bytes, 4000); /* two spools */
	ck_assert_int_eq(fsd_table_room(table, &ref, 2001), -ENOSPC);
	ck_assert_int_eq(fsd_table_room(table, &ref, 2000), 0);
	ck_assert_int_eq(fsd_table_room(table, &ref, UINT64_MAX), -ENOSPC);
	fsd_gate_space(999);
	fsd_table_space(table, &capacity, &free_bytes);
	ck_assert_uint_eq(free_bytes, 0);
	ck_assert_int_eq(fsd_table_room(table, &ref, 0), -ENOSPC);
	fsd_table_put(table, &ref);
	ck_assert_int_eq(get(6, 1, 0, &ref), -ENOSPC);
}
END_TEST

START_TEST(an_epoch_that_one_spool_has_seen_counts_for_all)
{
	ck_assert_int_eq(fsd_table_epoch(table, 3), 0);
	ck_assert_int_eq(fsd_table_epoch(table, 3), 0);
	ck_assert_int_eq(fsd_table_epoch(table, 2), -ESTALE);
	close_table();
	node.options.spool_count = 1;
	open_table();
	ck_assert_int_eq(fsd_table_epoch(table, 9), 0);
	close_table();
	node.options.spool_count = 2;
	open_table();
	ck_assert_int_eq(fsd_table_epoch(table, 8), -ESTALE);
	ck_assert_uint_eq(fsd_spool_epoch(table->homes[1].spool), 3);
	ck_assert_int_eq(fsd_table_epoch(table, 9), 0);
	ck_assert_uint_eq(fsd_spool_epoch(table->homes[1].spool), 9);
}
END_TEST

/* -- many at once ------------------------------------------------------------------------------ */

#define THREADS 4u
#define INODES 6u
#define ROUNDS 300u

static _Atomic uint64_t highest[INODES];

/* Each opens, changes and moves on what the others do. */
static void crowd_main(void *arg)
{
	unsigned seed = *(unsigned *)arg * 7919 + 1;

	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned slot = (seed = seed * 1103515245u + 12345u) >> 16;
		uint64_t ino = slot % INODES;
		uint64_t generation = highest[ino];
		bool moves = slot / INODES % 8 == 0;
		struct fsd_ref ref;
		int r = get(ino + 1, generation + moves, moves ? generation : 0, &ref);

		if (r < 0) {
			ck_assert_int_eq(r, -ESTALE);
			continue;
		}
		if (moves) {
			uint64_t before = generation;

			atomic_compare_exchange_strong(&highest[ino], &before, generation + 1);
		}
		r = fsd_table_begin(table, &ref);
		if (r == 0) {
			ck_assert_int_eq(fsd_object_write(ref.object, &slot, sizeof(slot),
							  slot % 64 * sizeof(slot)),
					 0);
			fsd_table_changed(table, &ref);
			fsd_table_end(table, &ref);
		} else {
			ck_assert_int_eq(r, -ESTALE);
		}
		fsd_table_put(table, &ref);
	}
}

START_TEST(many_threads_open_change_and_move_the_same_objects)
{
	struct gx_thread threads[THREADS];
	unsigned numbers[THREADS];
	PbMeta__ObjectInfo page[INODES + 1];
	size_t count;

	table->open_max = 2;
	for (uint64_t i = 0; i < INODES; i++) {
		highest[i] = 1;
		make(i + 1, 1);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		numbers[i] = i;
		ck_assert_int_eq(gx_env_thread_start(node.env, &threads[i], "crowd", crowd_main,
						     &numbers[i]),
				 0);
	}
	for (unsigned i = 0; i < ROUNDS / 4; i++)
		sync_all();
	for (unsigned i = 0; i < THREADS; i++)
		gx_env_thread_join(node.env, &threads[i]);
	/* Exactly one generation of each, the highest that anybody has made. */
	ck_assert_int_eq(fsd_table_list(table, 0, INODES + 1, page, &count), 0);
	ck_assert_uint_eq(count, INODES);
	for (uint64_t i = 0; i < INODES; i++) {
		ck_assert_uint_eq(page[i].ino, i + 1);
		ck_assert_uint_eq(page[i].generation, highest[i]);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fsd_table");
	SRunner *runner = srunner_create(suite);
	TCase *tc = tcase_create("fsd_table");
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, an_object_is_open_once_however_many_use_it);
	tcase_add_test(tc, idle_objects_make_room_for_others_and_clocks_only_go_up);
	tcase_add_test(tc, a_removed_object_is_kept_by_those_who_have_it_open);
	tcase_add_test(tc, what_is_in_use_is_not_put_aside);
	tcase_add_test(tc, what_is_held_is_opened_by_no_ticket);
	tcase_add_test(tc, half_a_copy_is_not_in_the_way_of_a_new_object);
	tcase_add_test(tc, generations_only_go_up);
	tcase_add_test(tc, a_base_of_which_a_higher_one_exists_does_not_move);
	tcase_add_test(tc, who_had_it_open_before_a_move_cannot_change_it);
	tcase_add_test(tc, changed_objects_are_shown_once_when_they_are_idle);
	tcase_add_test(tc, too_many_that_cannot_be_closed_do_not_wait);
	tcase_add_test(tc, what_an_earlier_life_has_not_synced_is_dirty_when_it_is_opened);
	tcase_add_test(tc, all_objects_are_listed_in_order_and_those_of_an_inode_together);
	tcase_add_test(tc, an_inode_with_more_generations_than_a_page_is_listed_all_the_same);
	tcase_add_test(tc, room_is_what_is_free_less_what_is_reserved);
	tcase_add_test(tc, an_epoch_that_one_spool_has_seen_counts_for_all);
	tcase_add_test(tc, many_threads_open_change_and_move_the_same_objects);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
