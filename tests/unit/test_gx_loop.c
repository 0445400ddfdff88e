/* Every case runs on both loops: libuv (_i = 0) and poll (_i = 1), on the real machine's env. */
#include "common/gx_loop.h"
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static struct gx_env *env;
static struct gx_loop *loop;
static char story[64]; /* one letter per callback */

static void set_up(void)
{
	env = gx_env_posix();
	story[0] = '\0';
}

static int new_loop(struct gx_env *e, int kind, struct gx_loop **ret_loop)
{
	return kind == 0 ? gx_loop_new(e, ret_loop) : gx_loop_new_poll(e, ret_loop);
}

static void open_loop(int kind)
{
	ck_assert_int_eq(new_loop(env, kind, &loop), 0);
}

static void tell(char letter)
{
	size_t bytes = strlen(story);

	ck_assert_uint_lt(bytes + 1, sizeof(story));
	story[bytes] = letter;
	story[bytes + 1] = '\0';
}

static int64_t in_ms(uint64_t ms)
{
	return gx_env_deadline_ms(env, ms);
}

static void open_pair(int fds[2])
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
}

static void close_pair(int fds[2])
{
	close(fds[0]);
	close(fds[1]);
}

static void put_byte(int fd)
{
	ck_assert_int_eq(write(fd, "x", 1), 1);
}

static void tell_io(struct gx_io *io GX_UNUSED, unsigned events)
{
	tell(events == GX_READABLE ? 'r' : events == GX_WRITABLE ? 'w' : 'b');
}

static void tell_io_and_stop_it(struct gx_io *io, unsigned events)
{
	tell_io(io, events);
	gx_io_stop(io);
}

static void tell_timer(struct gx_timer *timer GX_UNUSED)
{
	tell('t');
}

static void stop_by_timer(struct gx_timer *timer)
{
	tell('s');
	gx_loop_stop(timer->loop);
}

static void tell_task(struct gx_task *task GX_UNUSED)
{
	tell('p');
}

static void stop_by_task(struct gx_task *task GX_UNUSED)
{
	gx_loop_stop(loop);
}

static void tell_hook(struct gx_hook *hook)
{
	tell((char)('0' + hook->level));
}

/* Runs until a timer says stop. */
static void run_for_ms(uint64_t ms)
{
	struct gx_timer timer = {0};

	ck_assert_int_eq(gx_timer_start(loop, &timer, in_ms(ms), stop_by_timer), 0);
	ck_assert_int_eq(gx_loop_run(loop), 0);
}

/* One turn that does not wait. */
static void run_turn(void)
{
	gx_loop_stop(loop);
	ck_assert_int_eq(gx_loop_run(loop), 0);
}

START_TEST(a_turn_goes_timers_io_posts_hooks_by_level)
{
	struct gx_io io = {0};
	struct gx_timer timer = {0};
	struct gx_task task = {.fn = tell_task};
	struct gx_hook low = {0}, high = {0}, high2 = {0};
	int fds[2];

	open_loop(_i);
	open_pair(fds);
	gx_hook_start(loop, &high, 5, tell_hook);
	gx_hook_start(loop, &low, 1, tell_hook);
	gx_hook_start(loop, &high2, 6, tell_hook);
	gx_loop_post(loop, &task);
	put_byte(fds[1]);
	ck_assert_int_eq(gx_io_start(loop, &io, fds[0], GX_READABLE, tell_io), 0);
	ck_assert_int_eq(gx_timer_start(loop, &timer, 1, tell_timer), 0);
	run_turn();
	ck_assert_str_eq(story, "trp156");
	gx_io_stop(&io);
	gx_hook_stop(&low);
	gx_hook_stop(&low);
	run_turn();
	ck_assert_str_eq(story, "trp15656");
	gx_loop_free(loop);
	ck_assert_ptr_null(high.loop);
	close_pair(fds);
}
END_TEST

START_TEST(hooks_follow_a_timer_before_the_next_wait)
{
	struct gx_timer first = {0}, last = {0};
	struct gx_hook hook = {0};

	open_loop(_i);
	gx_hook_start(loop, &hook, 1, tell_hook);
	ck_assert_int_eq(gx_timer_start(loop, &first, in_ms(20), tell_timer), 0);
	ck_assert_int_eq(gx_timer_start(loop, &last, in_ms(60), stop_by_timer), 0);
	ck_assert_int_eq(gx_loop_run(loop), 0);
	/* Idle turns may add hooks, so look only at what follows the timer. */
	ck_assert_ptr_nonnull(strstr(story, "t1"));
	ck_assert_ptr_nonnull(strstr(story, "s1"));
	gx_loop_free(loop);
}
END_TEST

START_TEST(timers_run_in_order_and_never_early)
{
	struct gx_timer timers[20] = {0};
	int64_t start_ns = gx_env_now_ns(env);

	open_loop(_i);
	for (size_t i = 0; i < 20; i++)
		ck_assert_int_eq(
			gx_timer_start(loop, &timers[i],
				       start_ns + (int64_t)(i * 7 % 20) * 500000 + GX_NSEC_PER_MSEC,
				       tell_timer),
			0);
	gx_timer_stop(&timers[3]);
	gx_timer_stop(&timers[3]);
	ck_assert_int_eq(
		gx_timer_start(loop, &timers[5], start_ns + 30 * GX_NSEC_PER_MSEC, stop_by_timer),
		0);
	ck_assert_int_eq(gx_loop_run(loop), 0);
	ck_assert_int_ge(gx_env_now_ns(env) - start_ns, 30 * GX_NSEC_PER_MSEC);
	ck_assert_int_lt(gx_env_now_ns(env) - start_ns, 200 * GX_NSEC_PER_MSEC);
	ck_assert_str_eq(story, "tttttttttttttttttts");
	gx_loop_free(loop);
}
END_TEST

struct ordered_timer {
	struct gx_timer timer;
	char letter;
};

static void tell_letter(struct gx_timer *timer)
{
	tell(GX_CONTAINER_OF(timer, struct ordered_timer, timer)->letter);
}

START_TEST(equal_deadlines_run_in_the_order_of_starting)
{
	struct ordered_timer timers[12] = {0};

	open_loop(_i);
	for (size_t i = 0; i < 12; i++) {
		timers[i].letter = (char)('a' + i);
		ck_assert_int_eq(gx_timer_start(loop, &timers[i].timer, 5, tell_letter), 0);
	}
	gx_timer_stop(&timers[1].timer);
	run_turn();
	ck_assert_str_eq(story, "acdefghijkl");
	gx_loop_free(loop);
}
END_TEST

static void restart_in_the_past(struct gx_timer *timer)
{
	tell('t');
	ck_assert_int_eq(gx_timer_start(timer->loop, timer, 1, restart_in_the_past), 0);
}

START_TEST(a_timer_restarted_in_the_past_waits_for_the_next_turn)
{
	struct gx_timer timer = {0};
	struct gx_hook hook = {0};

	open_loop(_i);
	gx_hook_start(loop, &hook, 1, tell_hook);
	ck_assert_int_eq(gx_timer_start(loop, &timer, 1, restart_in_the_past), 0);
	run_turn();
	run_turn();
	ck_assert_str_eq(story, "t1t1");
	gx_loop_free(loop);
	ck_assert_ptr_null(timer.impl);
}
END_TEST

START_TEST(a_stopped_watcher_is_free_for_reuse_at_once)
{
	struct gx_io *io = calloc(1, sizeof(*io));
	int fds[2], again[2];

	open_loop(_i);
	open_pair(fds);
	put_byte(fds[1]);
	ck_assert_int_eq(gx_io_start(loop, io, fds[0], GX_READABLE, tell_io), 0);
	gx_io_stop(io);
	gx_io_stop(io);
	close_pair(fds);
	/* The same numbers come back as other sockets, the memory as another watcher. */
	open_pair(again);
	ck_assert_int_eq(again[0], fds[0]);
	ck_assert_int_eq(gx_io_start(loop, io, again[0], GX_READABLE, tell_io), 0);
	run_turn();
	ck_assert_str_eq(story, "");
	put_byte(again[1]);
	run_turn();
	ck_assert_str_eq(story, "r");
	gx_io_stop(io);
	free(io);
	run_turn();
	close_pair(again);
	gx_loop_free(loop);
}
END_TEST

static struct gx_io ios[2];

static void stop_the_other(struct gx_io *io, unsigned events)
{
	tell_io(io, events);
	gx_io_stop(&ios[io == &ios[0] ? 1 : 0]);
	memset(&ios[io == &ios[0] ? 1 : 0], 0xee, sizeof(*io));
	gx_loop_stop(io->loop);
}

START_TEST(a_watcher_stopped_in_the_same_turn_is_not_called)
{
	int a[2], b[2];

	open_loop(_i);
	open_pair(a);
	open_pair(b);
	memset(ios, 0, sizeof(ios));
	put_byte(a[1]);
	put_byte(b[1]);
	ck_assert_int_eq(gx_io_start(loop, &ios[0], a[0], GX_READABLE, stop_the_other), 0);
	ck_assert_int_eq(gx_io_start(loop, &ios[1], b[0], GX_READABLE, stop_the_other), 0);
	ck_assert_int_eq(gx_loop_run(loop), 0);
	ck_assert_str_eq(story, "r");
	gx_loop_free(loop);
	close_pair(a);
	close_pair(b);
}
END_TEST

static void pause_the_other(struct gx_io *io, unsigned events)
{
	tell_io(io, events);
	ck_assert_int_eq(gx_io_set(&ios[io == &ios[0] ? 1 : 0], 0), 0);
}

START_TEST(a_watcher_paused_in_the_same_turn_is_not_called)
{
	int a[2], b[2];

	open_loop(_i);
	open_pair(a);
	open_pair(b);
	memset(ios, 0, sizeof(ios));
	put_byte(a[1]);
	put_byte(b[1]);
	ck_assert_int_eq(gx_io_start(loop, &ios[0], a[0], GX_READABLE, pause_the_other), 0);
	ck_assert_int_eq(gx_io_start(loop, &ios[1], b[0], GX_READABLE, pause_the_other), 0);
	run_turn();
	ck_assert_str_eq(story, "r");
	gx_loop_free(loop);
	close_pair(a);
	close_pair(b);
}
END_TEST

START_TEST(events_can_be_changed_paused_and_resumed)
{
	struct gx_io io = {0};
	int fds[2];

	open_loop(_i);
	open_pair(fds);
	put_byte(fds[1]);
	ck_assert_int_eq(gx_io_start(loop, &io, fds[0], 0, tell_io), 0);
	run_turn();
	ck_assert_str_eq(story, "");
	ck_assert_int_eq(gx_io_set(&io, GX_WRITABLE), 0);
	run_turn();
	ck_assert_int_eq(gx_io_set(&io, GX_WRITABLE | GX_READABLE), 0);
	ck_assert_int_eq(gx_io_set(&io, GX_WRITABLE | GX_READABLE), 0);
	run_turn();
	ck_assert_int_eq(gx_io_set(&io, 0), 0);
	run_turn();
	ck_assert_int_eq(gx_io_set(&io, GX_READABLE), 0);
	run_turn();
	run_turn(); /* level-triggered: still there, reported again */
	ck_assert_str_eq(story, "wbrr");
	gx_loop_free(loop);
	ck_assert_ptr_null(io.impl);
	close_pair(fds);
}
END_TEST

START_TEST(a_reset_connection_is_reported_readable_until_stopped)
{
	struct linger hard = {.l_onoff = 1};
	struct gx_addr addr;
	struct gx_io io = {0};
	int listener, client, server;

	open_loop(_i);
	ck_assert_int_eq(gx_addr_parse(env, "127.0.0.1:0", &addr, NULL), 0);
	listener = gx_env_listen(env, &addr, 1);
	ck_assert_int_eq(gx_env_sock_name(env, listener, &addr), 0);
	client = gx_env_connect(env, &addr, in_ms(1000));
	server = gx_env_accept(env, listener);
	ck_assert_int_ge(server, 0);
	ck_assert_int_eq(gx_io_start(loop, &io, client, GX_READABLE, tell_io), 0);
	run_turn();
	ck_assert_str_eq(story, "");
	setsockopt(server, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(server); /* sends a reset */
	run_turn();
	run_turn();
	ck_assert_str_eq(story, "rr");
	ck_assert_int_eq(gx_io_set(&io, 0), 0);
	run_turn();
	ck_assert_str_eq(story, "rr");
	gx_io_stop(&io);
	gx_loop_free(loop);
	close(client);
	close(listener);
}
END_TEST

START_TEST(one_descriptor_has_one_watcher)
{
	struct gx_io a = {0}, b = {0};
	int fds[2];

	open_loop(_i);
	open_pair(fds);
	ck_assert_int_eq(gx_io_start(loop, &a, fds[0], GX_READABLE, tell_io), 0);
	ck_assert_int_eq(gx_io_start(loop, &b, fds[0], GX_READABLE, tell_io), -EEXIST);
	ck_assert_ptr_null(b.impl);
	gx_loop_free(loop);
	close_pair(fds);
}
END_TEST

START_TEST(many_watchers_are_all_called)
{
	enum { COUNT = 40 };
	struct gx_io many[COUNT] = {0};
	int fds[COUNT][2];

	open_loop(_i);
	for (size_t i = 0; i < COUNT; i++) {
		open_pair(fds[i]);
		put_byte(fds[i][1]);
		ck_assert_int_eq(
			gx_io_start(loop, &many[i], fds[i][0], GX_READABLE, tell_io_and_stop_it),
			0);
	}
	run_turn();
	run_turn();
	ck_assert_uint_eq(strlen(story), COUNT);
	gx_loop_free(loop);
	for (size_t i = 0; i < COUNT; i++)
		close_pair(fds[i]);
}
END_TEST

static void post_itself(struct gx_task *task)
{
	tell('p');
	gx_loop_post(loop, task);
}

START_TEST(a_task_is_queued_once_and_may_post_itself_again)
{
	struct gx_task task = {.fn = post_itself};

	open_loop(_i);
	gx_loop_post(loop, &task);
	gx_loop_post(loop, &task);
	run_turn();
	ck_assert_str_eq(story, "p");
	run_turn();
	ck_assert_str_eq(story, "pp");
	gx_loop_free(loop);
}
END_TEST

static struct gx_task posted_by_hook = {.fn = stop_by_task};

static void post_from_hook(struct gx_hook *hook GX_UNUSED)
{
	gx_loop_post(loop, &posted_by_hook);
}

START_TEST(a_post_from_a_hook_is_run_without_waiting)
{
	struct gx_hook hook = {0};
	struct gx_timer safety = {0};

	open_loop(_i);
	gx_hook_start(loop, &hook, 1, post_from_hook);
	ck_assert_int_eq(gx_timer_start(loop, &safety, in_ms(1), tell_timer), 0);
	ck_assert_int_eq(gx_loop_run(loop), 0);
	ck_assert_str_eq(story, "t");
	gx_loop_free(loop);
}
END_TEST

enum { POSTERS = 3, POSTS = 2000 };

struct poster {
	struct gx_thread thread;
	struct gx_task tasks[POSTS];
};

static unsigned posts_run;

static void count_post(struct gx_task *task GX_UNUSED)
{
	if (++posts_run == POSTERS * POSTS)
		gx_loop_stop(loop);
}

static void post_all(void *arg)
{
	struct poster *poster = arg;

	for (size_t i = 0; i < POSTS; i++) {
		poster->tasks[i].fn = count_post;
		gx_loop_post(loop, &poster->tasks[i]);
	}
}

START_TEST(posts_from_several_threads_all_arrive)
{
	struct poster *posters = calloc(POSTERS, sizeof(*posters));

	open_loop(_i);
	posts_run = 0;
	for (size_t i = 0; i < POSTERS; i++)
		ck_assert_int_eq(gx_env_thread_start(env, &posters[i].thread, "poster", post_all,
						     &posters[i]),
				 0);
	ck_assert_int_eq(gx_loop_run(loop), 0);
	for (size_t i = 0; i < POSTERS; i++)
		gx_env_thread_join(env, &posters[i].thread);
	ck_assert_uint_eq(posts_run, POSTERS * POSTS);
	gx_loop_free(loop);
	free(posters);
}
END_TEST

/* One task at a time back and forth: each post meets a loop about to sleep. */
struct ping {
	struct gx_task task;
	int event;
	unsigned left;
};

static void answer_ping(struct gx_task *task)
{
	struct ping *ping = GX_CONTAINER_OF(task, struct ping, task);

	if (ping->left == 0)
		gx_loop_stop(loop);
	gx_env_event_set(env, ping->event);
}

static void send_pings(void *arg)
{
	struct ping *ping = arg;
	struct gx_pollfd pfd = {.fd = ping->event, .events = GX_READABLE};

	for (int i = 0; i < 1000; i++) {
		ping->left = 999u - (unsigned)i;
		gx_loop_post(loop, &ping->task);
		if (gx_env_poll(env, &pfd, 1, GX_FOREVER) < 0)
			abort();
		gx_env_event_clear(env, ping->event);
	}
}

START_TEST(no_wake_up_is_lost)
{
	struct ping ping = {.task.fn = answer_ping, .event = gx_env_event_open(env)};
	struct gx_thread thread;

	open_loop(_i);
	ck_assert_int_eq(gx_env_thread_start(env, &thread, "pinger", send_pings, &ping), 0);
	ck_assert_int_eq(gx_loop_run(loop), 0);
	gx_env_thread_join(env, &thread);
	gx_env_close(env, ping.event);
	gx_loop_free(loop);
}
END_TEST

static void stop_from_thread(void *arg GX_UNUSED)
{
	gx_loop_stop(loop);
}

START_TEST(stop_works_from_another_thread_and_the_loop_can_run_again)
{
	struct gx_thread thread;

	open_loop(_i);
	ck_assert_int_eq(gx_env_thread_start(env, &thread, "stopper", stop_from_thread, NULL), 0);
	ck_assert_int_eq(gx_loop_run(loop), 0);
	gx_env_thread_join(env, &thread);
	run_for_ms(5);
	ck_assert_str_eq(story, "s");
	gx_loop_free(loop);
}
END_TEST

START_TEST(a_post_before_an_early_stop_still_runs)
{
	struct gx_task task = {.fn = tell_task};

	open_loop(_i);
	gx_loop_post(loop, &task);
	gx_loop_stop(loop);
	ck_assert_int_eq(gx_loop_run(loop), 0);
	ck_assert_str_eq(story, "p");
	gx_loop_free(loop);
}
END_TEST

static struct gx_hook hooks[3];

static void stop_all_hooks(struct gx_hook *hook)
{
	tell_hook(hook);
	for (size_t i = 0; i < 3; i++)
		gx_hook_stop(&hooks[i]);
}

START_TEST(a_hook_may_stop_all_hooks)
{
	open_loop(_i);
	memset(hooks, 0, sizeof(hooks));
	gx_hook_start(loop, &hooks[0], 1, tell_hook);
	gx_hook_start(loop, &hooks[1], 2, stop_all_hooks);
	gx_hook_start(loop, &hooks[2], 3, tell_hook);
	run_turn();
	run_turn();
	ck_assert_str_eq(story, "12");
	gx_loop_free(loop);
}
END_TEST

static void work_20_ms(struct gx_timer *timer)
{
	gx_env_sleep_until(env, in_ms(20));
	ck_assert_int_le(gx_loop_now_ns(timer->loop), gx_env_now_ns(env) - 20 * GX_NSEC_PER_MSEC);
}

START_TEST(the_longest_turn_counts_callbacks_and_not_waiting)
{
	struct gx_timer timer = {0};

	open_loop(_i);
	ck_assert_ptr_eq(gx_loop_env(loop), env);
	run_for_ms(100);
	ck_assert_int_lt(gx_loop_longest_turn_ns(loop), 90 * GX_NSEC_PER_MSEC);
	ck_assert_int_eq(gx_timer_start(loop, &timer, 1, work_20_ms), 0);
	run_turn();
	ck_assert_int_ge(gx_loop_longest_turn_ns(loop), 20 * GX_NSEC_PER_MSEC);
	gx_loop_free(loop);
}
END_TEST

static void burn_20_ms(struct gx_timer *timer GX_UNUSED)
{
	int64_t end_ns = gx_env_cpu_ns(env) + 20 * GX_NSEC_PER_MSEC;

	while (gx_env_cpu_ns(env) < end_ns)
		;
}

START_TEST(the_longest_work_counts_the_cpu_and_not_sleep)
{
	struct gx_timer timer = {0};

	open_loop(_i);
	run_for_ms(10);
	ck_assert_int_eq(gx_timer_start(loop, &timer, 1, work_20_ms), 0);
	run_turn();
	ck_assert_int_lt(gx_loop_longest_work_ns(loop), 15 * GX_NSEC_PER_MSEC);
	ck_assert_int_eq(gx_timer_start(loop, &timer, 1, burn_20_ms), 0);
	run_turn();
	ck_assert_int_ge(gx_loop_longest_work_ns(loop), 20 * GX_NSEC_PER_MSEC);
	ck_assert_int_le(gx_loop_longest_work_ns(loop), gx_loop_longest_turn_ns(loop));
	gx_loop_free(loop);
}
END_TEST

static void tell_signal(struct gx_signal *sig, int signo)
{
	ck_assert_int_eq(signo, SIGUSR1);
	tell('g');
	gx_signal_stop(sig);
	gx_loop_stop(sig->loop);
}

START_TEST(signals_arrive_on_the_real_loop_only)
{
	struct gx_signal sig = {0};

	open_loop(_i);
	if (_i == 1) {
		ck_assert_int_eq(gx_signal_start(loop, &sig, SIGUSR1, tell_signal), -ENOSYS);
	} else {
		ck_assert_int_eq(gx_signal_start(loop, &sig, SIGUSR1, tell_signal), 0);
		raise(SIGUSR1);
		ck_assert_int_eq(gx_loop_run(loop), 0);
		ck_assert_str_eq(story, "g");
		ck_assert_int_eq(gx_signal_start(loop, &sig, SIGUSR1, tell_signal), 0);
	}
	gx_loop_free(loop);
	ck_assert_ptr_null(sig.impl);
}
END_TEST

/* Makes a loop with one watcher of each sort and runs a turn; an error ends it cleanly. */
static int use_a_loop(struct gx_env *e, int kind, int fd)
{
	GX_CLEANUP(gx_loop_freep) struct gx_loop *mine = NULL;
	struct gx_signal sig = {0};
	struct gx_timer timer = {0};
	struct gx_io io = {0};
	int r = new_loop(e, kind, &mine);

	if (r == 0)
		r = gx_io_start(mine, &io, fd, GX_WRITABLE, tell_io);
	if (r == 0)
		r = gx_io_set(&io, GX_READABLE | GX_WRITABLE);
	if (r == 0)
		r = gx_timer_start(mine, &timer, 1, tell_timer);
	if (r == 0 && kind == 0)
		r = gx_signal_start(mine, &sig, SIGUSR1, tell_signal);
	if (r == 0) {
		gx_loop_stop(mine);
		r = gx_loop_run(mine);
	}
	return r;
}

static int open_descriptors(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

START_TEST(each_fault_is_returned_and_leaks_nothing)
{
	int fds[2], before, r;
	uint64_t nth;

	open_pair(fds);
	/* libuv keeps a pipe for signals once it has been used. */
	ck_assert_int_eq(use_a_loop(env, _i, fds[0]), 0);
	before = open_descriptors();
	for (nth = 1;; nth++) {
		struct gx_fault fault = {.nth = nth, .err = EXDEV};
		struct gx_env faulty = {.ops = env->ops, .fault = &fault};

		/* A failing close is not the loop's to report. */
		fault.kinds = ~(UINT64_C(1) << GX_FAULT_CLOSE);
		r = use_a_loop(&faulty, _i, fds[0]);
		ck_assert_int_eq(open_descriptors(), before);
		if (fault.fired == 0)
			break;
		ck_assert_int_eq(r, -EXDEV);
	}
	ck_assert_int_eq(r, 0);
	ck_assert_uint_ge(nth, 6);
	close_pair(fds);
}
END_TEST

START_TEST(a_bad_descriptor_is_refused_or_ends_the_run)
{
	struct gx_io io = {0};
	int r;

	open_loop(_i);
	r = gx_io_start(loop, &io, 250, GX_READABLE, tell_io);
	if (_i == 0)
		ck_assert_int_eq(r, -EBADF);
	else
		ck_assert_int_eq(gx_loop_run(loop), -EBADF);
	gx_loop_free(loop);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gx_loop");
	TCase *tc = tcase_create("both loops");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_loop_test(tc, a_turn_goes_timers_io_posts_hooks_by_level, 0, 2);
	tcase_add_loop_test(tc, hooks_follow_a_timer_before_the_next_wait, 0, 2);
	tcase_add_loop_test(tc, timers_run_in_order_and_never_early, 0, 2);
	tcase_add_loop_test(tc, equal_deadlines_run_in_the_order_of_starting, 0, 2);
	tcase_add_loop_test(tc, a_timer_restarted_in_the_past_waits_for_the_next_turn, 0, 2);
	tcase_add_loop_test(tc, a_stopped_watcher_is_free_for_reuse_at_once, 0, 2);
	tcase_add_loop_test(tc, a_watcher_stopped_in_the_same_turn_is_not_called, 0, 2);
	tcase_add_loop_test(tc, a_watcher_paused_in_the_same_turn_is_not_called, 0, 2);
	tcase_add_loop_test(tc, events_can_be_changed_paused_and_resumed, 0, 2);
	tcase_add_loop_test(tc, a_reset_connection_is_reported_readable_until_stopped, 0, 2);
	tcase_add_loop_test(tc, one_descriptor_has_one_watcher, 0, 2);
	tcase_add_loop_test(tc, many_watchers_are_all_called, 0, 2);
	tcase_add_loop_test(tc, a_task_is_queued_once_and_may_post_itself_again, 0, 2);
	tcase_add_loop_test(tc, a_post_from_a_hook_is_run_without_waiting, 0, 2);
	tcase_add_loop_test(tc, posts_from_several_threads_all_arrive, 0, 2);
	tcase_add_loop_test(tc, no_wake_up_is_lost, 0, 2);
	tcase_add_loop_test(tc, stop_works_from_another_thread_and_the_loop_can_run_again, 0, 2);
	tcase_add_loop_test(tc, a_post_before_an_early_stop_still_runs, 0, 2);
	tcase_add_loop_test(tc, a_hook_may_stop_all_hooks, 0, 2);
	tcase_add_loop_test(tc, the_longest_turn_counts_callbacks_and_not_waiting, 0, 2);
	tcase_add_loop_test(tc, the_longest_work_counts_the_cpu_and_not_sleep, 0, 2);
	tcase_add_loop_test(tc, signals_arrive_on_the_real_loop_only, 0, 2);
	tcase_add_loop_test(tc, each_fault_is_returned_and_leaks_nothing, 0, 2);
	tcase_add_loop_test(tc, a_bad_descriptor_is_refused_or_ends_the_run, 0, 2);
	tcase_set_timeout(tc, 20);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
