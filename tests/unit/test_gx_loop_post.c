/*
 * Posted tasks and taking them back. Every case runs on both loops: libuv (_i = 0) and poll
 * (_i = 1), on the real machine's env.
 */
#include "common/gx_loop.h"
#include <check.h>
#include <stdio.h>

static struct gx_env *env;
static struct gx_loop *loop;
static char story[64]; /* one letter per callback */

struct lettered {
	struct gx_task task;
	char letter;
	struct gx_task *take_back[3]; /* NULL: none */
	struct gx_task *post;         /* NULL: none */
};

static void set_up(void)
{
	env = gx_env_posix();
	story[0] = '\0';
}

static void open_loop(int kind)
{
	ck_assert_int_eq(kind == 0 ? gx_loop_new(env, &loop) : gx_loop_new_poll(env, &loop), 0);
}

static void tell(char letter)
{
	size_t bytes = strlen(story);

	ck_assert_uint_lt(bytes + 1, sizeof(story));
	story[bytes] = letter;
	story[bytes + 1] = '\0';
}

static void run_lettered(struct gx_task *task)
{
	struct lettered *l = GX_CONTAINER_OF(task, struct lettered, task);

	tell(l->letter);
	if (l->post != NULL)
		gx_loop_post(loop, l->post);
	for (size_t i = 0; i < GX_COUNT_OF(l->take_back); i++)
		if (l->take_back[i] != NULL)
			gx_loop_unpost(loop, l->take_back[i]);
}

static void name_all(struct lettered *tasks, size_t count)
{
	memset(tasks, 0, count * sizeof(*tasks));
	for (size_t i = 0; i < count; i++) {
		tasks[i].task.fn = run_lettered;
		tasks[i].letter = (char)('a' + i);
	}
}

static void post_each(struct lettered *tasks, size_t count)
{
	for (size_t i = 0; i < count; i++)
		gx_loop_post(loop, &tasks[i].task);
}

/* One turn that does not wait. */
static void run_turn(void)
{
	gx_loop_stop(loop);
	ck_assert_int_eq(gx_loop_run(loop), 0);
}

START_TEST(a_queued_task_taken_back_does_not_run_and_the_others_do)
{
	/* First, middle, last, all: each end of the list has its own pointer. */
	static const struct {
		const char *taken, *rest;
	} cases[] = {{"a", "bcd"}, {"b", "acd"}, {"d", "abc"}, {"cd", "ab"}, {"abcd", ""}};
	struct lettered tasks[4];

	open_loop(_i);
	for (size_t c = 0; c < GX_COUNT_OF(cases); c++) {
		char expected[8];

		story[0] = '\0';
		name_all(tasks, 4);
		post_each(tasks, 4);
		for (const char *p = cases[c].taken; *p != '\0'; p++) {
			gx_loop_unpost(loop, &tasks[*p - 'a'].task);
			memset(&tasks[*p - 'a'], 0xee, sizeof(tasks[0]));
		}
		/* The end of the list is still its end. */
		name_all(&tasks[cases[c].taken[0] - 'a'], 1);
		tasks[cases[c].taken[0] - 'a'].letter = 'z';
		gx_loop_post(loop, &tasks[cases[c].taken[0] - 'a'].task);
		run_turn();
		ck_assert_int_eq(snprintf(expected, sizeof(expected), "%sz", cases[c].rest),
				 (int)strlen(cases[c].rest) + 1);
		ck_assert_str_eq(story, expected);
	}
	gx_loop_free(loop);
}
END_TEST

START_TEST(taking_back_an_idle_task_does_nothing)
{
	struct lettered tasks[2];

	open_loop(_i);
	name_all(tasks, 2);
	gx_loop_unpost(loop, &tasks[0].task); /* never posted */
	gx_loop_post(loop, &tasks[1].task);
	gx_loop_unpost(loop, &tasks[0].task);
	run_turn();
	ck_assert_str_eq(story, "b");
	gx_loop_unpost(loop, &tasks[1].task); /* has run */
	gx_loop_post(loop, &tasks[1].task);
	gx_loop_unpost(loop, &tasks[1].task);
	gx_loop_unpost(loop, &tasks[1].task); /* twice */
	run_turn();
	ck_assert_str_eq(story, "b");
	gx_loop_free(loop);
}
END_TEST

START_TEST(a_task_takes_back_others_of_the_batch_being_run)
{
	struct lettered tasks[5];

	open_loop(_i);
	name_all(tasks, 5);
	tasks[1].take_back[0] = &tasks[2].task; /* the next one */
	tasks[1].take_back[1] = &tasks[4].task; /* the last one */
	tasks[1].take_back[2] = &tasks[0].task; /* one that has run */
	post_each(tasks, 5);
	run_turn();
	ck_assert_str_eq(story, "abd");
	run_turn();
	ck_assert_str_eq(story, "abd");
	post_each(tasks, 1);
	run_turn();
	ck_assert_str_eq(story, "abda");
	gx_loop_free(loop);
}
END_TEST

START_TEST(a_task_takes_back_what_it_has_posted_for_the_next_turn)
{
	struct lettered tasks[4];

	open_loop(_i);
	name_all(tasks, 4);
	tasks[0].post = &tasks[3].task;
	tasks[1].take_back[0] = &tasks[3].task;
	tasks[2].post = &tasks[2].task; /* itself … */
	tasks[2].take_back[0] = &tasks[2].task;
	post_each(tasks, 3);
	run_turn();
	run_turn();
	ck_assert_str_eq(story, "abc");
	/* The queue's end is where it belongs after it became empty in this way. */
	tasks[0].post = NULL;
	gx_loop_post(loop, &tasks[3].task);
	gx_loop_post(loop, &tasks[0].task);
	run_turn();
	ck_assert_str_eq(story, "abcda");
	gx_loop_free(loop);
}
END_TEST

static struct lettered of_timer;

static void take_back_by_timer(struct gx_timer *timer GX_UNUSED)
{
	tell('t');
	gx_loop_unpost(loop, &of_timer.task);
}

START_TEST(a_timer_takes_back_a_task_of_its_turn)
{
	struct gx_timer timer = {0};

	open_loop(_i);
	name_all(&of_timer, 1);
	gx_loop_post(loop, &of_timer.task);
	ck_assert_int_eq(gx_timer_start(loop, &timer, 1, take_back_by_timer), 0);
	run_turn();
	run_turn();
	ck_assert_str_eq(story, "t");
	gx_loop_free(loop);
}
END_TEST

/* -- with a thread that posts ------------------------------------------------ */

enum { POSTS = 3000 };

static struct counted {
	struct gx_task task;
	unsigned runs;
	bool taken; /* perhaps too late */
} * counted;
static size_t next_taken;
static _Atomic bool poster_done;
static struct gx_task wake_up;

static void count_run(struct gx_task *task)
{
	GX_CONTAINER_OF(task, struct counted, task)->runs++;
}

static void do_nothing(struct gx_task *task GX_UNUSED)
{
}

static void post_many(void *arg GX_UNUSED)
{
	for (size_t i = 0; i < POSTS; i++)
		gx_loop_post(loop, &counted[i].task);
	poster_done = true;
	gx_loop_post(loop, &wake_up);
}

/* Takes back a few in each turn, whether they are posted, not yet or no longer. */
static void take_some_back(struct gx_hook *hook)
{
	for (int i = 0; i < 5 && next_taken < POSTS; i++, next_taken += 3) {
		counted[next_taken].taken = true;
		gx_loop_unpost(loop, &counted[next_taken].task);
	}
	if (poster_done)
		gx_loop_stop(hook->loop);
	else
		gx_loop_post(hook->loop, &wake_up); /* no waiting: another turn */
}

START_TEST(taking_back_while_a_thread_posts_loses_no_other_task)
{
	struct gx_thread thread;
	struct gx_hook hook = {0};

	open_loop(_i);
	counted = calloc(POSTS, sizeof(*counted));
	ck_assert_ptr_nonnull(counted);
	for (size_t i = 0; i < POSTS; i++)
		counted[i].task.fn = count_run;
	wake_up = (struct gx_task){.fn = do_nothing};
	next_taken = 0;
	poster_done = false;
	gx_hook_start(loop, &hook, 1, take_some_back);
	ck_assert_int_eq(gx_env_thread_start(env, &thread, "poster", post_many, NULL), 0);
	ck_assert_int_eq(gx_loop_run(loop), 0);
	gx_env_thread_join(env, &thread);
	gx_hook_stop(&hook);
	run_turn(); /* what came in the last turn, after its posts */
	for (size_t i = 0; i < POSTS; i++) {
		ck_assert_uint_le(counted[i].runs, 1);
		ck_assert(counted[i].taken || counted[i].runs == 1);
		ck_assert(!counted[i].task.queued);
	}
	gx_loop_free(loop);
	free(counted);
}
END_TEST

/* The use it was made for: the owner ends while another thread still asks for it. */
static struct gx_task *asked;

static void ask_again_and_again(void *arg GX_UNUSED)
{
	for (int i = 0; i < POSTS; i++)
		gx_loop_post(loop, asked);
}

START_TEST(after_the_poster_has_ended_a_task_taken_back_may_be_freed)
{
	struct gx_thread thread;

	open_loop(_i);
	for (int round = 0; round < 20; round++) {
		asked = calloc(1, sizeof(*asked));
		ck_assert_ptr_nonnull(asked);
		asked->fn = do_nothing;
		ck_assert_int_eq(
			gx_env_thread_start(env, &thread, "asker", ask_again_and_again, NULL), 0);
		for (int turn = 0; turn < 20; turn++)
			run_turn();
		gx_env_thread_join(env, &thread);
		gx_loop_unpost(loop, asked);
		free(asked);
		run_turn();
	}
	gx_loop_free(loop);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gx_loop_post");
	TCase *tc = tcase_create("both loops");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_loop_test(tc, a_queued_task_taken_back_does_not_run_and_the_others_do, 0, 2);
	tcase_add_loop_test(tc, taking_back_an_idle_task_does_nothing, 0, 2);
	tcase_add_loop_test(tc, a_task_takes_back_others_of_the_batch_being_run, 0, 2);
	tcase_add_loop_test(tc, a_task_takes_back_what_it_has_posted_for_the_next_turn, 0, 2);
	tcase_add_loop_test(tc, a_timer_takes_back_a_task_of_its_turn, 0, 2);
	tcase_add_loop_test(tc, taking_back_while_a_thread_posts_loses_no_other_task, 0, 2);
	tcase_add_loop_test(tc, after_the_poster_has_ended_a_task_taken_back_may_be_freed, 0, 2);
	tcase_set_timeout(tc, 20);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
