/*
 * Locks through the client, against a real metad: several clients, waiting, calling it off,
 * closing, a metad that is restarted, clients that vanish; and all of it at random.
 */
#include "tests/lib/meta_fixture.h"
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define CACHE (1024 * 1024)
#define BOTH (GFC_OPEN_READ | GFC_OPEN_WRITE)
#define READ GFC_LOCK_READ
#define WRITE GFC_LOCK_WRITE
#define NONE GFC_LOCK_NONE
#define CLIENTS 3u

#define RPC_SERVICE_META
#include "rpc/rpc_stub.h"

static struct meta_fixture *fixture;
static struct gfc *gfc[CLIENTS];
static struct gfc_open *file[CLIENTS];

static struct gfc_open *open_in(struct gfc *client, const char *name, unsigned flags)
{
	struct gfc_open *open;
	struct gfc_attr attr;

	ck_assert_int_eq(gfc_open(client, GFC_ROOT, name, flags, 0666, &attr, &open), 0);
	return open;
}

static void setup(void)
{
	struct md_server_options options = MD_SERVER_OPTIONS_INIT;

	options.root_mode = 0777;
	fixture = meta_fixture_start(&options);
	for (unsigned i = 0; i < CLIENTS; i++) {
		/* The last one has no cache, so no push channel. */
		gfc[i] = meta_fixture_gfc(fixture, META_ALICE, i < 2 ? CACHE : 0);
		file[i] = open_in(gfc[i], "f", BOTH | GFC_OPEN_CREATE);
	}
}

static void teardown(void)
{
	for (unsigned i = 0; i < CLIENTS; i++) {
		if (file[i])
			GX_IGNORE(gfc_close(gfc[i], file[i]));
		if (gfc[i])
			ck_assert_int_eq(gfc_free(gfc[i]), 0);
	}
	meta_fixture_check(fixture);
	meta_fixture_stop(fixture);
}

static int64_t now(void)
{
	return gx_env_now_ns(gfc_env(gfc[0]));
}

static struct gfc_lock posix(uint64_t owner, unsigned type, uint64_t start, uint64_t end)
{
	return (struct gfc_lock){.owner = owner,
				 .kind = GFC_LOCK_POSIX,
				 .type = type,
				 .start = start,
				 .end = end,
				 .pid = (uint32_t)(1000 + owner)};
}

static int try_lock(unsigned client, unsigned type, uint64_t start, uint64_t end)
{
	struct gfc_lock lock = posix(1, type, start, end);

	return gfc_lock(gfc[client], file[client], &lock, 0, NULL);
}

static int try_flock(unsigned client, unsigned type)
{
	struct gfc_lock lock = {.owner = 1, .kind = GFC_LOCK_FLOCK, .type = type};

	lock.end = GFC_LOCK_END;
	return gfc_lock(gfc[client], file[client], &lock, 0, NULL);
}

/* A request in a thread of its own. */
struct waiter {
	pthread_t thread;
	unsigned client;
	struct gfc_lock lock;
	int64_t deadline_ns;
	struct gfc_lock_cancel cancel;
	_Atomic int result; /* 1: not yet */
};

static void *waiter_main(void *arg)
{
	struct waiter *w = arg;

	w->result = gfc_lock(gfc[w->client], file[w->client], &w->lock, w->deadline_ns, &w->cancel);
	return NULL;
}

static uint64_t lock_waits(unsigned client)
{
	PbMeta__StatusRequest request = PB_META__STATUS_REQUEST__INIT;
	const PbMeta__StatusReply *status = NULL;
	struct rpc_reply reply;
	uint64_t waits;

	rpc_reply_init(&reply);
	ck_assert_int_eq(meta_call_status(gfc_rpc(gfc[client]), &request, NULL, &reply, &status),
			 0);
	waits = status->lock_waits;
	rpc_reply_fini(&reply);
	return waits;
}

static void nap(void)
{
	GX_IGNORE(poll(NULL, 0, 1));
}

static void wait_for_waits(uint64_t count)
{
	while (lock_waits(0) != count)
		nap();
}

/* It waits, in metad's queue, when this returns. */
static void waiter_start(struct waiter *w, unsigned client, unsigned type, uint64_t start,
			 uint64_t end)
{
	uint64_t before = lock_waits(0);

	*w = (struct waiter){.client = client,
			     .lock = posix(1, type, start, end),
			     .deadline_ns = now() + 60 * GX_NSEC_PER_SEC,
			     .result = 1};
	ck_assert_int_eq(pthread_create(&w->thread, NULL, waiter_main, w), 0);
	wait_for_waits(before + 1);
	ck_assert_int_eq(w->result, 1);
}

static int waiter_end(struct waiter *w)
{
	ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
	return w->result;
}

START_TEST(clients_exclude_each_other)
{
	struct gfc_lock asked = posix(7, WRITE, 5, 5);

	ck_assert_int_eq(try_lock(0, WRITE, 0, 9), 0);
	ck_assert_int_eq(try_lock(1, READ, 9, 20), -EAGAIN);
	ck_assert_int_eq(try_lock(1, READ, 10, 20), 0);
	ck_assert_int_eq(try_lock(2, READ, 15, GFC_LOCK_END), 0);
	ck_assert_int_eq(try_lock(1, WRITE, 10, 20), -EAGAIN);
	ck_assert_int_eq(gfc_getlock(gfc[1], file[1], &asked), 0);
	ck_assert_uint_eq(asked.type, WRITE);
	ck_assert_uint_eq(asked.start, 0);
	ck_assert_uint_eq(asked.end, 9);
	ck_assert_uint_eq(asked.pid, 1001);
	ck_assert(!asked.own);
	asked = posix(7, WRITE, 5, 5);
	ck_assert_int_eq(gfc_getlock(gfc[0], file[0], &asked), 0); /* another owner here */
	ck_assert(asked.own);
	asked = posix(1, WRITE, 5, 5);
	ck_assert_int_eq(gfc_getlock(gfc[0], file[0], &asked), 0); /* the same one */
	ck_assert_uint_eq(asked.type, NONE);
	ck_assert_int_eq(try_lock(0, NONE, 0, GFC_LOCK_END), 0);
	ck_assert_int_eq(try_lock(1, WRITE, 0, 9), 0);
	ck_assert_int_eq(try_flock(0, WRITE), 0);
	ck_assert_int_eq(try_flock(1, READ), -EAGAIN);
	ck_assert_int_eq(try_flock(0, READ), 0);
	ck_assert_int_eq(try_flock(1, READ), 0);
}
END_TEST

START_TEST(what_makes_no_sense_is_refused)
{
	struct gfc_open *readable = open_in(gfc[0], "f", GFC_OPEN_READ);
	struct gfc_lock lock = posix(1, WRITE, 0, 9);

	ck_assert_int_eq(gfc_lock(gfc[0], readable, &lock, 0, NULL), -EBADF);
	lock.type = READ;
	ck_assert_int_eq(gfc_lock(gfc[0], readable, &lock, 0, NULL), 0);
	lock.kind = 3;
	ck_assert_int_eq(gfc_lock(gfc[0], readable, &lock, 0, NULL), -EINVAL);
	lock = posix(1, 3, 0, 9);
	ck_assert_int_eq(gfc_lock(gfc[0], file[0], &lock, 0, NULL), -EINVAL);
	lock = posix(1, READ, 9, 8);
	ck_assert_int_eq(gfc_lock(gfc[0], file[0], &lock, 0, NULL), -EINVAL);
	lock = posix(1, READ, 0, UINT64_MAX);
	ck_assert_int_eq(gfc_lock(gfc[0], file[0], &lock, 0, NULL), -EINVAL);
	ck_assert_int_eq(gfc_close(gfc[0], readable), 0);
}
END_TEST

START_TEST(who_waits_gets_it_when_it_is_free)
{
	struct waiter a, b;

	ck_assert_int_eq(try_lock(0, WRITE, 0, 9), 0);
	waiter_start(&a, 1, WRITE, 0, 9);
	waiter_start(&b, 2, READ, 5, 5);
	ck_assert_int_eq(try_lock(0, NONE, 0, 9), 0);
	ck_assert_int_eq(waiter_end(&a), 0);
	ck_assert_int_eq(b.result, 1);
	ck_assert_int_eq(try_lock(1, NONE, 0, 9), 0);
	ck_assert_int_eq(waiter_end(&b), 0);
	ck_assert_int_eq(try_lock(0, WRITE, 5, 5), -EAGAIN);
	ck_assert_uint_eq(lock_waits(0), 0);
}
END_TEST

START_TEST(waiting_can_be_called_off_and_has_an_end)
{
	int64_t begin;
	struct waiter w;

	ck_assert_int_eq(try_lock(0, READ, 0, 9), 0);
	waiter_start(&w, 1, WRITE, 0, 9);
	begin = now();
	gfc_lock_cancel(gfc[1], &w.cancel);
	ck_assert_int_eq(waiter_end(&w), -EINTR);
	ck_assert_int_lt(now() - begin, GX_NSEC_PER_SEC);
	ck_assert_uint_eq(lock_waits(0), 0); /* nobody stands behind it any more */
	w.deadline_ns = now() + 50 * GX_NSEC_PER_MSEC;
	w.cancel.cancelled = false;
	ck_assert_int_eq(gfc_lock(gfc[1], file[1], &w.lock, w.deadline_ns, NULL), -ETIMEDOUT);
	ck_assert_uint_eq(lock_waits(0), 0);
	ck_assert_int_eq(try_lock(0, NONE, 0, 9), 0);
	ck_assert_int_eq(try_lock(2, WRITE, 0, 9), 0);
}
END_TEST

START_TEST(many_who_wait_keep_no_call_from_its_answer)
{
	static struct waiter waiters[300]; /* more than calls of one connection */
	struct gfc_attr attr;

	ck_assert_int_eq(try_lock(0, WRITE, 0, 999), 0);
	for (unsigned i = 0; i < GX_COUNT_OF(waiters); i++) {
		struct waiter *w = &waiters[i];

		*w = (struct waiter){.client = 1,
				     .lock = posix(100 + i, WRITE, i, i),
				     .deadline_ns = GX_FOREVER,
				     .result = 1};
		ck_assert_int_eq(pthread_create(&w->thread, NULL, waiter_main, w), 0);
	}
	wait_for_waits(GX_COUNT_OF(waiters));
	ck_assert_int_eq(gfc_open_getattr(gfc[1], file[1], &attr), 0);
	ck_assert_int_eq(try_lock(1, READ, 1000, 1000), 0);
	ck_assert_int_eq(try_lock(0, NONE, 0, 999), 0);
	for (unsigned i = 0; i < GX_COUNT_OF(waiters); i++)
		ck_assert_int_eq(waiter_end(&waiters[i]), 0);
}
END_TEST

START_TEST(a_deadlock_is_told_across_clients)
{
	struct waiter w;

	ck_assert_int_eq(try_lock(0, WRITE, 0, 0), 0);
	ck_assert_int_eq(try_lock(1, WRITE, 1, 1), 0);
	waiter_start(&w, 0, WRITE, 1, 1);
	w.lock = posix(1, WRITE, 0, 0);
	ck_assert_int_eq(gfc_lock(gfc[1], file[1], &w.lock, GX_FOREVER, NULL), -EDEADLK);
	ck_assert_int_eq(try_lock(1, NONE, 1, 1), 0);
	ck_assert_int_eq(waiter_end(&w), 0);
}
END_TEST

START_TEST(closing_ends_what_was_locked)
{
	struct gfc_write write = {.data = "x", .bytes = 1, .close = true};
	struct gfc_open *second = open_in(gfc[0], "f", BOTH);
	struct gfc_lock lock = posix(5, WRITE, 0, 9);
	struct gfc_stats stats;
	struct waiter w;

	/* By the owner: a process that closes one of its descriptors. */
	ck_assert_int_eq(try_lock(0, WRITE, 20, 29), 0);
	ck_assert_int_eq(gfc_lock(gfc[0], second, &lock, 0, NULL), 0);
	ck_assert_int_eq(gfc_unlock_owner(gfc[0], second, GFC_LOCK_POSIX, 5), 0);
	ck_assert_int_eq(try_lock(1, WRITE, 0, 9), 0);
	ck_assert_int_eq(try_lock(1, WRITE, 20, 20), -EAGAIN);
	ck_assert_int_eq(try_lock(1, NONE, 0, 9), 0);
	/* With the file it was set by. */
	ck_assert_int_eq(gfc_lock(gfc[0], second, &lock, 0, NULL), 0);
	waiter_start(&w, 1, READ, 0, 5);
	ck_assert_int_eq(gfc_close(gfc[0], second), 0);
	ck_assert_int_eq(waiter_end(&w), 0);
	ck_assert_int_eq(try_lock(1, READ, 20, 29), -EAGAIN);
	/* By the write that closes, too. */
	waiter_start(&w, 1, READ, 20, 29);
	ck_assert_int_eq(gfc_write(gfc[0], file[0], &write, NULL, NULL), 0);
	file[0] = NULL;
	ck_assert_int_eq(waiter_end(&w), 0);
	gfc_stats(gfc[0], &stats);
	ck_assert_uint_eq(stats.locks, 0);
}
END_TEST

START_TEST(leaving_ends_what_was_locked)
{
	struct waiter w;

	ck_assert_int_eq(try_lock(0, WRITE, 0, 9), 0);
	ck_assert_int_eq(try_lock(1, WRITE, 10, 19), 0);
	waiter_start(&w, 2, WRITE, 0, 9);
	file[0] = NULL;
	ck_assert_int_eq(gfc_free(gfc[0]), 0);
	gfc[0] = NULL;
	ck_assert_int_eq(waiter_end(&w), 0);
}
END_TEST

START_TEST(locks_stay_over_a_restart_and_who_waits_goes_on_waiting)
{
	struct gfc_lock asked = posix(9, WRITE, 0, GFC_LOCK_END);
	struct waiter w;

	ck_assert_int_eq(try_lock(0, WRITE, 0, 9), 0);
	ck_assert_int_eq(try_lock(0, READ, 4, 5), 0);
	ck_assert_int_eq(try_flock(2, WRITE), 0);
	waiter_start(&w, 1, WRITE, 5, 20);
	meta_fixture_down(fixture);
	meta_fixture_up(fixture);
	ck_assert_int_eq(try_lock(2, READ, 0, 3), -EAGAIN);
	ck_assert_int_eq(try_lock(2, READ, 4, 4), 0);
	ck_assert_int_eq(try_lock(2, NONE, 4, 4), 0);
	ck_assert_int_eq(try_lock(2, WRITE, 4, 5), -EAGAIN);
	ck_assert_int_eq(try_flock(0, READ), -EAGAIN);
	ck_assert_int_eq(gfc_getlock(gfc[2], file[2], &asked), 0);
	ck_assert_uint_eq(asked.end, 3);
	ck_assert_int_eq(w.result, 1);
	ck_assert_int_eq(try_lock(0, NONE, 0, GFC_LOCK_END), 0);
	ck_assert_int_eq(waiter_end(&w), 0);
	ck_assert_int_eq(try_lock(0, WRITE, 20, 20), -EAGAIN);
}
END_TEST

START_TEST(ending_a_lock_while_metad_is_away_is_not_forgotten)
{
	ck_assert_int_eq(try_lock(0, WRITE, 0, 9), 0);
	ck_assert_int_eq(try_lock(0, WRITE, 20, 29), 0);
	ck_assert_int_eq(try_lock(2, WRITE, 40, 49), 0);
	meta_fixture_down(fixture);
	/* A process has ended: nobody waits for a metad that is away. */
	ck_assert_int_eq(gfc_unlock_owner(gfc[0], file[0], GFC_LOCK_POSIX, 1), 0);
	ck_assert_int_eq(gfc_close(gfc[2], file[2]), 0);
	file[2] = NULL;
	meta_fixture_up(fixture);
	while (try_lock(1, WRITE, 0, 49) != 0)
		nap();
}
END_TEST

/* -- at random ------------------------------------------------------------------------------------
 */

#define BYTES 16u
#define THREADS 4u
#define ROUNDS 150u

static _Atomic int readers[BYTES], writers[BYTES];
static _Atomic unsigned wrong, got, refused, restarts, running;

static void mark(const struct gfc_lock *lock, int by)
{
	for (uint64_t i = lock->start; i <= lock->end; i++)
		atomic_fetch_add(lock->type == WRITE ? &writers[i] : &readers[i], by);
}

static void look(const struct gfc_lock *lock)
{
	for (uint64_t i = lock->start; i <= lock->end; i++) {
		int w = writers[i], r = readers[i];

		if (lock->type == WRITE ? w != 1 || r != 0 : w != 0)
			atomic_fetch_add(&wrong, 1);
	}
}

static unsigned below(unsigned *state, unsigned n)
{
	*state = *state * 1103515245 + 12345;
	return (*state >> 16) % n;
}

static void *torture_main(void *arg)
{
	unsigned number = (unsigned)(uintptr_t)arg, client = number % CLIENTS;
	unsigned state = number * 7919 + 1;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct gfc_lock lock = posix(number, READ, 0, 0);
		bool wait = below(&state, 2) == 0;
		int r;

		lock.start = below(&state, BYTES);
		lock.end = lock.start + below(&state, GX_MIN(8u, BYTES - (unsigned)lock.start));
		lock.type = below(&state, 2) == 0 ? WRITE : READ;
		r = gfc_lock(gfc[client], file[client], &lock, wait ? GX_FOREVER : 0, NULL);
		if (r == -EAGAIN && !wait) {
			atomic_fetch_add(&refused, 1);
			continue;
		}
		if (r != 0) {
			fprintf(stderr, "lock: %d %s\n", r, gfc_error());
			atomic_fetch_add(&wrong, 1);
			continue;
		}
		mark(&lock, 1);
		look(&lock);
		if (i % 8 == 0)
			nap();
		look(&lock);
		mark(&lock, -1);
		atomic_fetch_add(&got, 1);
		lock.type = NONE;
		if (gfc_lock(gfc[client], file[client], &lock, 0, NULL) != 0)
			atomic_fetch_add(&wrong, 1);
	}
	atomic_fetch_sub(&running, 1);
	return NULL;
}

START_TEST(never_two_holders_and_nobody_waits_for_ever)
{
	pthread_t threads[CLIENTS * THREADS];
	struct gfc_stats stats;

	running = GX_COUNT_OF(threads);
	for (unsigned i = 0; i < GX_COUNT_OF(threads); i++)
		ck_assert_int_eq(
			pthread_create(&threads[i], NULL, torture_main, (void *)(uintptr_t)(i + 1)),
			0);
	while (running > 0) {
		for (unsigned i = 0; i < 50 && running > 0; i++)
			nap();
		if (restarts < 4) {
			meta_fixture_down(fixture);
			meta_fixture_up(fixture);
			restarts++;
		}
	}
	for (unsigned i = 0; i < GX_COUNT_OF(threads); i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	printf("%u locked, %u refused, %u restarts\n", got, refused, restarts);
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_eq(lock_waits(0), 0);
	for (unsigned i = 0; i < CLIENTS; i++) {
		gfc_stats(gfc[i], &stats);
		ck_assert_uint_eq(stats.locks, 0);
		ck_assert_uint_eq(stats.lock_waits, 0);
	}
	ck_assert_int_eq(try_lock(0, WRITE, 0, GFC_LOCK_END), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gfc_lock");
	TCase *tc = tcase_create("gfc_lock");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, clients_exclude_each_other);
	tcase_add_test(tc, what_makes_no_sense_is_refused);
	tcase_add_test(tc, who_waits_gets_it_when_it_is_free);
	tcase_add_test(tc, waiting_can_be_called_off_and_has_an_end);
	tcase_add_test(tc, many_who_wait_keep_no_call_from_its_answer);
	tcase_add_test(tc, a_deadlock_is_told_across_clients);
	tcase_add_test(tc, closing_ends_what_was_locked);
	tcase_add_test(tc, leaving_ends_what_was_locked);
	tcase_add_test(tc, locks_stay_over_a_restart_and_who_waits_goes_on_waiting);
	tcase_add_test(tc, ending_a_lock_while_metad_is_away_is_not_forgotten);
	tcase_add_test(tc, never_two_holders_and_nobody_waits_for_ever);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
