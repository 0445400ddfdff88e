/*
 * The table of cache leases: who is told what, what goes when it is full, and the same answers as a
 * plain list gives.
 */
#include "metad/md_lease.h"
#include <check.h>

#define TOLD_MAX 4096u
#define BOTH (MD_LEASE_ATTR | MD_LEASE_NAMES)

/* For what is asked a million times: each ck_assert is a write to check's parent process. */
#define REQUIRE(cond)                                                                              \
	do {                                                                                       \
		if (!(cond))                                                                       \
			ck_abort_msg("%s", #cond);                                                 \
	} while (0)

struct told {
	uint64_t session, ino;
	unsigned what;
	bool all;
};

static struct md_leases *leases;
static struct told told[TOLD_MAX], evicted[TOLD_MAX];
static size_t told_count, evicted_count;

static void on_told(void *arg, uint64_t session, uint64_t ino, unsigned what, bool all)
{
	REQUIRE(arg == told);
	REQUIRE(told_count < TOLD_MAX);
	told[told_count++] = (struct told){session, ino, what, all};
}

static void on_evicted(void *arg, uint64_t session, uint64_t ino, unsigned what)
{
	REQUIRE(arg == evicted);
	REQUIRE(evicted_count < TOLD_MAX);
	evicted[evicted_count++] = (struct told){session, ino, what, false};
}

static void make(size_t leases_max)
{
	md_leases_free(leases);
	leases = NULL;
	told_count = evicted_count = 0;
	ck_assert_int_eq(md_leases_new(leases_max, on_evicted, evicted, &leases), 0);
}

static void setup(void)
{
	make(100);
}

static void teardown(void)
{
	md_leases_free(leases);
	leases = NULL;
}

static void give(uint64_t session, uint64_t ino, unsigned what)
{
	REQUIRE(md_lease_give(leases, session, ino, what) == 0);
}

/* Returns how many were told. */
static size_t break_lease(uint64_t by, uint64_t ino, unsigned what)
{
	told_count = 0;
	md_lease_break(leases, by, ino, what, on_told, told);
	return told_count;
}

static bool was_told(uint64_t session, bool all)
{
	for (size_t i = 0; i < told_count; i++)
		if (told[i].session == session && told[i].all == all)
			return true;
	return false;
}

START_TEST(everybody_else_is_told_once_and_the_changer_keeps_his_lease)
{
	give(1, 10, MD_LEASE_ATTR);
	give(2, 10, MD_LEASE_ATTR);
	give(3, 10, BOTH);
	give(3, 11, MD_LEASE_ATTR);
	ck_assert_uint_eq(break_lease(2, 10, MD_LEASE_ATTR), 2);
	ck_assert(was_told(1, false) && was_told(3, false));
	for (size_t i = 0; i < told_count; i++)
		ck_assert(told[i].ino == 10 && told[i].what == MD_LEASE_ATTR);
	ck_assert_uint_eq(md_lease_count(leases), 3);
	ck_assert_uint_eq(md_lease_count_of(leases, 1), 0);
	ck_assert_uint_eq(md_lease_count_of(leases, 2), 1);
	ck_assert_uint_eq(md_lease_count_of(leases, 3), 2);
	/* Who has been told has nothing left to be told about. */
	ck_assert_uint_eq(break_lease(2, 10, MD_LEASE_ATTR), 0);
	ck_assert_uint_eq(break_lease(0, 10, MD_LEASE_ATTR), 1);
	ck_assert(was_told(2, false));
}
END_TEST

START_TEST(nobody_is_told_of_what_nobody_has)
{
	give(1, 10, MD_LEASE_NAMES);
	ck_assert_uint_eq(break_lease(2, 10, MD_LEASE_ATTR), 0);
	ck_assert_uint_eq(break_lease(2, 11, MD_LEASE_NAMES), 0);
	ck_assert_uint_eq(break_lease(1, 10, MD_LEASE_NAMES), 0);
	ck_assert_uint_eq(md_lease_count(leases), 1);
}
END_TEST

START_TEST(names_are_told_one_by_one_and_then_all_at_once)
{
	give(1, 10, BOTH);
	for (unsigned i = 0; i < MD_LEASE_NAMES_MAX; i++) {
		ck_assert_uint_eq(break_lease(2, 10, MD_LEASE_NAMES), 1);
		ck_assert(told[0].what == MD_LEASE_NAMES && !told[0].all);
	}
	ck_assert_uint_eq(break_lease(2, 10, MD_LEASE_NAMES), 1);
	ck_assert(told[0].what == MD_LEASE_NAMES && told[0].all);
	ck_assert_uint_eq(break_lease(2, 10, MD_LEASE_NAMES), 0);
	/* The attributes are another matter. */
	ck_assert_uint_eq(md_lease_count_of(leases, 1), 1);
	ck_assert_uint_eq(break_lease(2, 10, MD_LEASE_ATTR), 1);
	ck_assert_uint_eq(md_lease_count(leases), 0);
	/* A new lease starts to count from nothing. */
	give(1, 10, MD_LEASE_NAMES);
	ck_assert_uint_eq(break_lease(2, 10, MD_LEASE_NAMES), 1);
	ck_assert(!told[0].all);
}
END_TEST

START_TEST(a_session_that_looks_keeps_being_told_single_names)
{
	give(1, 10, MD_LEASE_NAMES);
	for (unsigned i = 0; i < 5 * MD_LEASE_NAMES_MAX; i++) {
		ck_assert_uint_eq(break_lease(2, 10, MD_LEASE_NAMES), 1);
		ck_assert(!told[0].all);
		if (i % MD_LEASE_NAMES_MAX == 0)
			give(1, 10, MD_LEASE_NAMES);
	}
}
END_TEST

START_TEST(asking_for_attributes_is_no_look_at_the_names)
{
	give(1, 10, MD_LEASE_NAMES);
	for (unsigned i = 0; i < MD_LEASE_NAMES_MAX; i++) {
		ck_assert_uint_eq(break_lease(2, 10, MD_LEASE_NAMES), 1);
		give(1, 10, MD_LEASE_ATTR);
	}
	ck_assert_uint_eq(break_lease(2, 10, MD_LEASE_NAMES), 1);
	ck_assert(told[0].all);
}
END_TEST

START_TEST(a_full_table_lets_the_oldest_go_and_says_so)
{
	make(3);
	give(1, 10, MD_LEASE_ATTR);
	give(1, 11, BOTH);
	give(2, 10, MD_LEASE_ATTR);
	give(1, 10, MD_LEASE_NAMES); /* now the newest */
	ck_assert_uint_eq(evicted_count, 0);
	give(3, 12, MD_LEASE_ATTR);
	ck_assert_uint_eq(evicted_count, 1);
	ck_assert(evicted[0].session == 1 && evicted[0].ino == 11 && evicted[0].what == BOTH);
	ck_assert_uint_eq(md_lease_count(leases), 3);
	ck_assert_uint_eq(break_lease(0, 11, MD_LEASE_ATTR), 0);
	give(3, 13, MD_LEASE_ATTR);
	ck_assert(evicted[1].session == 2 && evicted[1].ino == 10);
	ck_assert_uint_eq(md_lease_count_of(leases, 2), 0);
	ck_assert_uint_eq(break_lease(0, 10, MD_LEASE_ATTR), 1);
	ck_assert(was_told(1, false));
}
END_TEST

START_TEST(a_session_may_push_out_its_own_only_lease)
{
	make(1);
	for (uint64_t ino = 10; ino < 20; ino++) {
		give(7, ino, MD_LEASE_ATTR);
		ck_assert_uint_eq(md_lease_count(leases), 1);
		ck_assert_uint_eq(md_lease_count_of(leases, 7), 1);
		ck_assert_uint_eq(evicted_count, ino - 10);
	}
	ck_assert_uint_eq(break_lease(0, 19, MD_LEASE_ATTR), 1);
	ck_assert_uint_eq(md_lease_count_of(leases, 7), 0);
}
END_TEST

START_TEST(a_session_is_dropped_in_steps_and_nobody_is_told)
{
	for (uint64_t ino = 1; ino <= 10; ino++) {
		give(1, ino, BOTH);
		give(2, ino, BOTH);
	}
	ck_assert(!md_lease_drop_session(leases, 1, 4));
	ck_assert_uint_eq(md_lease_count_of(leases, 1), 6);
	ck_assert(!md_lease_drop_session(leases, 1, 0));
	ck_assert(!md_lease_drop_session(leases, 1, 5));
	ck_assert(md_lease_drop_session(leases, 1, 1));
	ck_assert(md_lease_drop_session(leases, 1, 1));
	ck_assert(md_lease_drop_session(leases, 99, 0));
	ck_assert_uint_eq(md_lease_count_of(leases, 1), 0);
	ck_assert_uint_eq(md_lease_count_of(leases, 2), 10);
	ck_assert_uint_eq(evicted_count, 0);
	for (uint64_t ino = 1; ino <= 10; ino++)
		ck_assert_uint_eq(break_lease(0, ino, MD_LEASE_ATTR), 1);
}
END_TEST

START_TEST(a_size_that_makes_no_sense_is_refused)
{
	struct md_leases *none = NULL;

	ck_assert_int_eq(md_leases_new(0, on_evicted, evicted, &none), -EINVAL);
	ck_assert_int_eq(md_leases_new(UINT32_MAX, on_evicted, evicted, &none), -EINVAL);
	ck_assert_ptr_null(none);
	md_leases_free(NULL);
}
END_TEST

/* -- against a plain list ------------------------------------------------------------ */

#define INOS 12u
#define SESSIONS 7u

struct model_lease {
	uint64_t session, ino;
	unsigned what, names;
};
/* Oldest first. */
static struct model_lease model[INOS * SESSIONS];
static size_t model_count, model_max;

static uint64_t state;
static uint64_t next_random(uint64_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state >> 33) % below;
}

static void model_remove(size_t at)
{
	memmove(&model[at], &model[at + 1], (--model_count - at) * sizeof(model[0]));
}

static void model_give(uint64_t session, uint64_t ino, unsigned what)
{
	struct model_lease lease = {session, ino, 0, 0};
	size_t at = 0;

	while (at < model_count && (model[at].session != session || model[at].ino != ino))
		at++;
	if (at < model_count) {
		lease = model[at];
		model_remove(at);
	} else if (model_count == model_max) {
		REQUIRE(evicted_count == 1);
		REQUIRE(evicted[0].session == model[0].session);
		REQUIRE(evicted[0].ino == model[0].ino);
		REQUIRE(evicted[0].what == model[0].what);
		evicted_count = 0;
		model_remove(0);
	}
	REQUIRE(evicted_count == 0);
	lease.what |= what;
	lease.names = what & MD_LEASE_NAMES ? 0 : lease.names;
	model[model_count++] = lease;
}

/* Takes the line for this session out of what was told: each must be there exactly once. */
static void expect_told(const struct model_lease *lease, unsigned what, bool all)
{
	for (size_t i = 0; i < told_count; i++) {
		if (told[i].session != lease->session)
			continue;
		REQUIRE(told[i].ino == lease->ino);
		REQUIRE(told[i].what == what);
		REQUIRE(told[i].all == all);
		told[i] = told[--told_count];
		return;
	}
	ck_abort_msg("session %lu was not told", (unsigned long)lease->session);
}

static void model_break(uint64_t by, uint64_t ino, unsigned what)
{
	for (size_t i = 0; i < model_count;) {
		struct model_lease *lease = &model[i];
		bool all = what == MD_LEASE_NAMES && lease->names == MD_LEASE_NAMES_MAX;

		i++;
		if (lease->ino != ino || lease->session == by || !(lease->what & what))
			continue;
		expect_told(lease, what, all);
		if (what == MD_LEASE_NAMES && !all) {
			lease->names++;
			continue;
		}
		lease->what &= ~what;
		if (what == MD_LEASE_NAMES)
			lease->names = 0;
		if (lease->what == 0)
			model_remove(--i);
	}
	REQUIRE(told_count == 0);
}

static size_t model_count_of(uint64_t session)
{
	size_t count = 0;

	for (size_t i = 0; i < model_count; i++)
		count += model[i].session == session;
	return count;
}

/* Which of them go first is not told, so all of them. */
static void both_drop(uint64_t session)
{
	size_t left = model_count_of(session);

	for (; left > 3; left -= 3)
		REQUIRE(!md_lease_drop_session(leases, session, 3));
	REQUIRE(md_lease_drop_session(leases, session, 3));
	for (size_t i = model_count; i-- > 0;)
		if (model[i].session == session)
			model_remove(i);
}

static void random_step(void)
{
	uint64_t session = 1 + next_random(SESSIONS), ino = next_random(INOS);
	unsigned what = 1 + (unsigned)next_random(3), one = 1 + (unsigned)next_random(2);
	uint64_t kind = next_random(100);

	if (kind < 50) {
		give(session, ino, what);
		model_give(session, ino, what);
	} else if (kind < 98) {
		/* Mostly names of few directories, so that the count of names is reached. */
		ino = kind < 90 ? ino % 3 : ino;
		one = kind < 90 ? MD_LEASE_NAMES : one;
		(void)break_lease(session, ino, one);
		model_break(session, ino, one);
	} else {
		both_drop(session);
	}
}

START_TEST(random_operations_give_the_answers_of_a_plain_list)
{
	static const size_t maxima[] = {1, 2, 5, 16, 33, INOS * SESSIONS};
	size_t case_count = GX_COUNT_OF(maxima);

	state = (uint64_t)_i * 7919 + 1;
	model_max = maxima[(size_t)_i % case_count];
	model_count = 0;
	make(model_max);
	for (unsigned i = 0; i < 20000; i++) {
		random_step();
		REQUIRE(md_lease_count(leases) == model_count);
		for (uint64_t session = 1; session <= SESSIONS; session++)
			REQUIRE(md_lease_count_of(leases, session) == model_count_of(session));
	}
}
END_TEST

/* -- what it costs ------------------------------------------------------------------- */

static void count_only(void *arg, uint64_t session GX_UNUSED, uint64_t ino GX_UNUSED,
		       unsigned what GX_UNUSED, bool all GX_UNUSED)
{
	++*(size_t *)arg;
}

/*
 * With a walk over the leases of the root this would be 2 * 10^10 steps, and the test would end by
 * its time limit.
 */
START_TEST(a_directory_everybody_has_looked_at_slows_nobody_down)
{
	const uint64_t sessions = 200000;
	size_t count = 0;

	make(500000);
	for (uint64_t session = 1; session <= sessions; session++) {
		give(session, 1, BOTH);
		give(session, 1000 + session, BOTH);
		give(session, 1, BOTH);
	}
	for (uint64_t session = 1; session <= sessions; session++)
		md_lease_break(leases, 0, 1000 + session, MD_LEASE_ATTR, count_only, &count);
	REQUIRE(count == sessions);
	md_lease_break(leases, 1, 1, MD_LEASE_ATTR, count_only, &count);
	REQUIRE(count == 2 * sessions - 1);
	REQUIRE(md_lease_count(leases) == 2 * sessions);
	for (uint64_t session = 1; session <= sessions; session++)
		REQUIRE(md_lease_drop_session(leases, session, 2));
	REQUIRE(md_lease_count(leases) == 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_lease");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, everybody_else_is_told_once_and_the_changer_keeps_his_lease);
	tcase_add_test(tc, nobody_is_told_of_what_nobody_has);
	tcase_add_test(tc, names_are_told_one_by_one_and_then_all_at_once);
	tcase_add_test(tc, a_session_that_looks_keeps_being_told_single_names);
	tcase_add_test(tc, asking_for_attributes_is_no_look_at_the_names);
	tcase_add_test(tc, a_full_table_lets_the_oldest_go_and_says_so);
	tcase_add_test(tc, a_session_may_push_out_its_own_only_lease);
	tcase_add_test(tc, a_session_is_dropped_in_steps_and_nobody_is_told);
	tcase_add_test(tc, a_size_that_makes_no_sense_is_refused);
	tcase_add_loop_test(tc, random_operations_give_the_answers_of_a_plain_list, 0, 24);
	tcase_add_test(tc, a_directory_everybody_has_looked_at_slows_nobody_down);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
