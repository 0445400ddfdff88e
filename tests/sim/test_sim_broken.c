/*
 * Each rule of names is broken on purpose (common/gx_broken.h), and the checks of
 * sim_meta_work.h have to notice it within some seeds; unbroken they notice nothing.
 *
 * From 101 on it is the client that breaks its part of the rule.
 *
 * Not here: what needs a storage daemon, which is N10's growing out of inline content, N12 (size
 * while writing) and N9's quarantine: test_sim_broken_data.c.
 */
#include "common/gx_broken.h"
#include "tests/lib/sim_grid.h"
#include "tests/lib/sim_meta_work.h"
#include <check.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

unsigned gx_broken;

/* The weather in which a rule matters, and the seeds in which it must show. */
static const struct {
	unsigned rule;
	unsigned faults;
	unsigned seeds;
	bool caches; /* all clients have one that holds everything */
	const char *text;
} rules[] = {
	{1, WORK_CUTS | WORK_SLOW_DISK, 200, false, "write ahead"},
	{2, WORK_CUTS | WORK_SLOW_DISK, 4000, false, "nothing irreversible early"},
	{3, WORK_KILLS, 50, false, "ids are never given twice"},
	{4, WORK_CUTS | WORK_CLIENT_KILLS | WORK_SLOW_DISK, 200, false, "sessions are independent"},
	{5, WORK_RESETS, 100, false, "exactly once"},
	{6, WORK_CUTS | WORK_CLIENT_KILLS | WORK_SLOW_DISK, 100, false, "leaving waits"},
	{7, WORK_CUTS | WORK_BAD_DISK | WORK_SLOW_DISK, 1000, false, "a sick log stops metad"},
	{8, 0, 50, false, "one view"},
	{9, WORK_CUTS | WORK_SLOW_DISK, 1000, false, "deletion by absence is slow"},
	{11, 0, 50, true, "caches are leases"},
	{104, WORK_CUTS | WORK_SLOW_DISK, 200, false, "what was lost is said again"},
	{111, 0, 50, true, "a client forgets what it is told to"},
	{113, WORK_STOPS, 1000, true, "trust ends by the client's own clock"},
};

static struct work work;

/* The seed in which something was wrong; 0: nothing was. */
static unsigned look_for(size_t i, uint64_t seeds)
{
	unsigned faults = rules[i].faults;

	for (unsigned seed = 1; seed <= seeds; seed++) {
		work_init(&work, seed);
		work.faults = faults;
		for (unsigned c = 0; rules[i].caches && c < work.client_count; c++)
			work.clients[c].cache_bytes = 1 << 20;
		work.meta.options.sync_max_ns =
			faults & WORK_SLOW_DISK ? 300 * GX_NSEC_PER_MSEC : GX_NSEC_PER_MSEC / 2;
		work.meta.session_timeout_ns = 60 * GX_NSEC_PER_SEC;
		if (work_run(&work)[0] != '\0')
			return seed;
	}
	return 0;
}

/* In a process of its own: what metad finds out itself may end in an assertion. */
static bool is_caught(size_t i)
{
	unsigned seed;
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		gx_broken = rules[i].rule;
		seed = look_for(i, rules[i].seeds);
		printf("N%u, %s: seed %u: %s\n", rules[i].rule, rules[i].text, seed, work.wrong);
		fflush(NULL);
		_exit(seed != 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		printf("N%u, %s: an assertion\n", rules[i].rule, rules[i].text);
	return WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : WEXITSTATUS(status) == 1;
}

START_TEST(a_broken_rule_is_noticed)
{
	ck_assert_msg(is_caught((size_t)_i), "rule N%u, %s, was broken and nobody noticed",
		      rules[_i].rule, rules[_i].text);
}
END_TEST

START_TEST(in_the_same_weather_unbroken_rules_show_nothing_wrong)
{
	unsigned seed;

	gx_broken = 0;
	seed = look_for((size_t)_i, sim_seeds(100));
	ck_assert_msg(seed == 0, "faults %u, seed %u: %s", rules[_i].faults, seed, work.wrong);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_broken");
	TCase *tc = tcase_create("sim_broken");
	int count = (int)GX_COUNT_OF(rules);
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 600);
	tcase_add_loop_test(tc, a_broken_rule_is_noticed, 0, count);
	tcase_add_loop_test(tc, in_the_same_weather_unbroken_rules_show_nothing_wrong, 0, count);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
