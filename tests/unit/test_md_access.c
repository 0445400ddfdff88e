/*
 * The table of leases on objects: who is in whose way, what a session gets, what is remembered of
 * one that has vanished; and the same answers as a plain array gives (rules B2, B4, N10).
 */
#include "metad/md_access.h"
#include <check.h>
#include <stdlib.h>

static struct md_access *table;

static void setup(void)
{
	ck_assert_int_eq(md_access_new(&table), 0);
}

static void teardown(void)
{
	md_access_free(table);
}

static struct md_grant *give(uint64_t session, uint64_t ino, unsigned mode, bool write)
{
	struct md_grant *grant;

	ck_assert_int_eq(md_access_give(table, session, ino, mode, write, &grant), 0);
	return grant;
}

START_TEST(nobody_there_gives_read_or_exclusive)
{
	ck_assert_uint_eq(md_access_mode(table, 1, 7, false, true), MD_ACCESS_READ);
	ck_assert_uint_eq(md_access_mode(table, 1, 7, true, true), MD_ACCESS_EXCLUSIVE);
	/* Who cannot be asked to give way must not hold anything back. */
	ck_assert_uint_eq(md_access_mode(table, 1, 7, true, false), MD_ACCESS_SHARED);
	ck_assert_uint_eq(md_access_mode(table, 1, 7, false, false), MD_ACCESS_READ);
	ck_assert_ptr_null(md_access_find(table, 1, 7));
	ck_assert_ptr_null(md_access_first(table, 7));
	ck_assert_ptr_null(md_access_first_of(table, 1));
	ck_assert_uint_eq(md_access_count(table), 0);
}
END_TEST

START_TEST(with_others_a_writer_makes_it_shared)
{
	give(1, 7, MD_ACCESS_READ, false);
	ck_assert_uint_eq(md_access_mode(table, 2, 7, false, true), MD_ACCESS_READ);
	ck_assert_uint_eq(md_access_mode(table, 2, 7, true, true), MD_ACCESS_SHARED);
	/* The one who is there may become the only writer. */
	ck_assert_uint_eq(md_access_mode(table, 1, 7, true, true), MD_ACCESS_EXCLUSIVE);
	give(1, 7, MD_ACCESS_EXCLUSIVE, true);
	ck_assert_uint_eq(md_access_mode(table, 2, 7, false, true), MD_ACCESS_SHARED);
	/* A writer that asks to read is still one. */
	ck_assert_uint_eq(md_access_mode(table, 1, 7, false, true), MD_ACCESS_EXCLUSIVE);
	ck_assert_uint_eq(md_access_mode(table, 1, 8, false, true), MD_ACCESS_READ);
	/* What it holds back is not there yet: nobody takes it for shared before it has told. */
	ck_assert_uint_eq(md_access_mode(table, 1, 7, true, false), MD_ACCESS_EXCLUSIVE);
	md_access_share(table, md_access_find(table, 1, 7));
	ck_assert_uint_eq(md_access_mode(table, 1, 7, true, false), MD_ACCESS_SHARED);
}
END_TEST

START_TEST(who_is_in_the_way)
{
	const struct {
		unsigned mode;
		bool holder_writes, write, growing, in_way;
	} rows[] = {
		{MD_ACCESS_READ, false, false, false, false},
		{MD_ACCESS_READ, false, true, false, true},
		{MD_ACCESS_EXCLUSIVE, true, false, false, true},
		{MD_ACCESS_EXCLUSIVE, true, true, false, true},
		{MD_ACCESS_SHARED, false, false, false, false},
		{MD_ACCESS_SHARED, false, true, false, false},
		{MD_ACCESS_SHARED, true, false, false, false},
		{MD_ACCESS_SHARED, true, true, false, false},
		/* The inline content is copied by one alone (rule N10). */
		{MD_ACCESS_EXCLUSIVE, true, false, true, true},
		{MD_ACCESS_EXCLUSIVE, true, true, true, true},
		{MD_ACCESS_SHARED, true, true, true, true},
		{MD_ACCESS_SHARED, true, false, true, false},
		{MD_ACCESS_READ, false, true, true, false},
	};

	for (size_t i = 0; i < GX_COUNT_OF(rows); i++) {
		struct md_grant *grant = give(1, i + 1, rows[i].mode, rows[i].holder_writes);

		ck_assert_msg(md_access_in_way(grant, rows[i].write, rows[i].growing) ==
				      rows[i].in_way,
			      "row %zu", i);
	}
}
END_TEST

START_TEST(the_right_to_write_is_added_and_never_taken)
{
	struct md_grant *grant = give(1, 7, MD_ACCESS_READ, false);

	ck_assert(!md_access_has_writer(table, 0, 7));
	ck_assert_ptr_eq(give(1, 7, MD_ACCESS_EXCLUSIVE, true), grant);
	ck_assert_ptr_eq(give(1, 7, MD_ACCESS_SHARED, false), grant);
	ck_assert(grant->write);
	ck_assert_uint_eq(grant->mode, MD_ACCESS_SHARED);
	ck_assert(md_access_has_writer(table, 0, 7));
	ck_assert(md_access_has_writer(table, 2, 7));
	ck_assert(!md_access_has_writer(table, 1, 7));
	ck_assert_uint_eq(md_access_count(table), 1);
}
END_TEST

START_TEST(a_recall_lasts_until_the_holder_gives_way_or_goes)
{
	struct md_grant *a = give(1, 7, MD_ACCESS_EXCLUSIVE, true);
	struct md_grant *b = give(2, 8, MD_ACCESS_EXCLUSIVE, true);

	md_access_recall(table, a, 100);
	md_access_recall(table, b, 200);
	md_access_recall(table, a, 300); /* it has been asked before */
	ck_assert_int_eq(a->recalled_ns, 100);
	ck_assert_ptr_eq(md_access_first_recalled(table), a);
	md_access_forgive(table, 50);
	ck_assert_int_eq(a->recalled_ns, 150);
	ck_assert_int_eq(b->recalled_ns, 250);
	md_access_share(table, a);
	ck_assert(!a->recalled && a->write);
	ck_assert_uint_eq(a->mode, MD_ACCESS_SHARED);
	ck_assert_ptr_eq(md_access_first_recalled(table), b);
	md_access_drop(table, b);
	ck_assert_ptr_null(md_access_first_recalled(table));
	ck_assert_uint_eq(md_access_count(table), 1);
}
END_TEST

/* Its ticket may still be believed by the primary: nobody may hold anything back (rule B2). */
START_TEST(a_writer_that_vanished_leaves_it_shared_until_the_generation_moves)
{
	give(1, 7, MD_ACCESS_SHARED, true);
	give(2, 7, MD_ACCESS_SHARED, true);
	md_access_lose(table, md_access_find(table, 1, 7));
	ck_assert(md_access_is_tainted(table, 7));
	ck_assert_uint_eq(md_access_mode(table, 2, 7, true, true), MD_ACCESS_SHARED);
	md_access_clean(table, 7);
	ck_assert(!md_access_is_tainted(table, 7));
	ck_assert_uint_eq(md_access_mode(table, 2, 7, true, true), MD_ACCESS_EXCLUSIVE);
	/* With the last one nothing is left to remember: the generation has to move then. */
	md_access_lose(table, md_access_find(table, 2, 7));
	ck_assert(!md_access_is_tainted(table, 7));
	ck_assert_ptr_null(md_access_first(table, 7));
}
END_TEST

START_TEST(a_reader_that_vanished_leaves_nothing)
{
	give(1, 7, MD_ACCESS_SHARED, false);
	give(2, 7, MD_ACCESS_SHARED, true);
	md_access_lose(table, md_access_find(table, 1, 7));
	ck_assert(!md_access_is_tainted(table, 7));
	ck_assert_uint_eq(md_access_mode(table, 2, 7, true, true), MD_ACCESS_EXCLUSIVE);
}
END_TEST

#define SESSIONS 9u
#define INODES 11u

struct cell {
	bool there, write, recalled;
	unsigned mode;
};

static void compare(struct cell model[SESSIONS][INODES])
{
	size_t count = 0, recalled = 0, listed = 0;

	for (uint64_t s = 0; s < SESSIONS; s++) {
		size_t of = 0, of_model = 0;

		for (uint64_t i = 0; i < INODES; i++) {
			const struct md_grant *grant = md_access_find(table, s + 1, i + 1);
			const struct cell *cell = &model[s][i];

			ck_assert(cell->there == (grant != NULL));
			of_model += cell->there;
			if (!grant)
				continue;
			recalled += cell->recalled;
			ck_assert(grant->write == cell->write && grant->mode == cell->mode &&
				  grant->recalled == cell->recalled);
		}
		for (struct md_grant *g = md_access_first_of(table, s + 1); g; g = g->of_next)
			of++;
		ck_assert_uint_eq(of, of_model);
		count += of;
	}
	for (uint64_t i = 0; i < INODES; i++)
		for (struct md_grant *g = md_access_first(table, i + 1); g; g = g->next)
			listed++;
	for (struct md_grant *g = md_access_first_recalled(table); g; g = g->way_next)
		recalled--;
	ck_assert_uint_eq(recalled, 0);
	ck_assert_uint_eq(listed, count);
	ck_assert_uint_eq(md_access_count(table), count);
}

START_TEST(it_answers_like_a_plain_array)
{
	struct cell model[SESSIONS][INODES] = {0};

	srandom(20);
	for (unsigned step = 0; step < 3000; step++) {
		uint64_t s = (uint64_t)random() % SESSIONS, i = (uint64_t)random() % INODES;
		struct md_grant *grant = md_access_find(table, s + 1, i + 1);
		struct cell *cell = &model[s][i];
		unsigned mode = 1 + (unsigned)random() % 3;
		bool write = random() % 2;

		switch (random() % 5) {
		case 0:
		case 1:
			give(s + 1, i + 1, mode, write);
			cell->write = cell->there ? cell->write || write : write;
			cell->recalled = cell->there && cell->recalled;
			cell->mode = mode;
			cell->there = true;
			break;
		case 2:
			if (grant && random() % 2)
				md_access_drop(table, grant);
			else if (grant)
				md_access_lose(table, grant);
			cell->there = false;
			break;
		case 3:
			if (grant)
				md_access_recall(table, grant, step);
			cell->recalled = cell->there;
			break;
		default:
			if (grant)
				md_access_share(table, grant);
			cell->recalled = false;
			cell->mode = MD_ACCESS_SHARED;
			break;
		}
		if (step % 50 == 0)
			compare(model);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_access");
	TCase *t = tcase_create("access");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, nobody_there_gives_read_or_exclusive);
	tcase_add_test(t, with_others_a_writer_makes_it_shared);
	tcase_add_test(t, who_is_in_the_way);
	tcase_add_test(t, the_right_to_write_is_added_and_never_taken);
	tcase_add_test(t, a_recall_lasts_until_the_holder_gives_way_or_goes);
	tcase_add_test(t, a_writer_that_vanished_leaves_it_shared_until_the_generation_moves);
	tcase_add_test(t, a_reader_that_vanished_leaves_nothing);
	tcase_add_test(t, it_answers_like_a_plain_array);
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
