/*
 * Locks in the simulation: owners in several clients set, upgrade, downgrade and end locks on
 * random ranges of one file, try and wait, while metad is killed or loses its power, links break
 * and clients are killed, stopped and cut off.
 *
 * What is seen: never two who have what excludes each other, where to have it means that the file
 * can still be used: a client that lost its locks because it was silent must find its file lost.
 * Nobody who was not away loses anything. Everybody gets to his end.
 *
 * SIM_SEEDS=n runs more seeds, SIM_SEED=n one of them, SIM_LOG=info shows what happens.
 */
#include "common/gx_num.h"
#include "tests/lib/sim_grid.h"
#include "tests/lib/sim_meta.h"
#include <check.h>
#include <stdarg.h>
#include <stdio.h>

#define CLIENTS 3u
#define OWNERS 2u /* threads of a client */
#define BYTES 8u
#define STEPS 80u
#define ACTS 10u
#define TIMEOUT_NS (300 * GX_NSEC_PER_SEC)
#define FAILURES_MAX 5u

struct owner {
	unsigned char type[BYTES]; /* what it has, as far as it knows */
	bool revoked;              /* another has got what this one has: its file must be lost */
	bool away;                 /* its client was silent for long since it opened the file */
	struct gfc_open *open;
	uint64_t session; /* in which it was opened */
};

struct client;
struct thread_arg {
	struct client *client;
	unsigned number;
};

struct client {
	unsigned number;
	struct thread_arg args[OWNERS];
	struct gx_sim_proc *proc;
	struct gfc *gfc;
	struct owner owners[OWNERS];
	struct gfc_lock_cancel cancel;
};

static struct {
	struct sim_meta meta;
	struct client clients[CLIENTS];
	char wrong[200];
	struct {
		uint64_t got, refused, deadlocks, cancelled, revoked, reopened, kills, lives;
	} counts;
} world;

static void wrong(const char *fmt, ...) GX_PRINTF(1, 2);
static void wrong(const char *fmt, ...)
{
	va_list args;

	if (world.wrong[0])
		return;
	va_start(args, fmt);
	vsnprintf(world.wrong, sizeof(world.wrong), fmt, args);
	va_end(args);
	sim_meta_say(&world.meta, "WRONG %s", world.wrong);
}

static uint64_t below(uint64_t n)
{
	return gx_sim_random_below(world.meta.sim, n);
}

static void sleep_ms(struct gx_env *env, uint64_t ms)
{
	gx_env_sleep_until(env, gx_env_deadline_ms(env, ms));
}

/* -- what everybody has -------------------------------------------------------------------------
 */

static void set_bytes(struct owner *owner, const struct gfc_lock *lock, unsigned type)
{
	memset(&owner->type[lock->start], (int)type, lock->end - lock->start + 1);
}

static bool conflicts(const struct owner *owner, const struct gfc_lock *lock)
{
	for (uint64_t b = lock->start; b <= lock->end; b++)
		if (owner->type[b] != GFC_LOCK_NONE &&
		    (owner->type[b] == GFC_LOCK_WRITE || lock->type == GFC_LOCK_WRITE))
			return true;
	return false;
}

/* Somebody has what `client` has, too: all its locks on the file are gone, or something is wrong.
 */
static void take_away(struct client *client, unsigned number, const struct gfc_lock *lock)
{
	sim_meta_say(&world.meta, "%u/%u has lost its locks", client->number, number);
	if (!client->owners[number].away)
		wrong("%u/%u has lost its lock [%llu, %llu] and was not away", client->number,
		      number, (unsigned long long)lock->start, (unsigned long long)lock->end);
	world.counts.revoked++;
	for (unsigned i = 0; i < OWNERS; i++) {
		struct owner *owner = &client->owners[i];

		/* Who has opened the file again since has another session. */
		if (owner->session != client->owners[number].session)
			continue;
		owner->revoked = owner->revoked || owner->away;
		memset(owner->type, 0, BYTES);
	}
}

static void check_alone(const struct owner *self, const struct gfc_lock *lock)
{
	for (unsigned c = 0; c < CLIENTS; c++)
		for (unsigned o = 0; o < OWNERS; o++)
			if (&world.clients[c].owners[o] != self &&
			    conflicts(&world.clients[c].owners[o], lock))
				take_away(&world.clients[c], o, lock);
}

/* -- clients ------------------------------------------------------------------------------------
 */

/* The locks of a file are as good as the file. */
static bool is_usable(struct client *client, struct owner *owner)
{
	struct gfc_write write = {.data = "x", .bytes = 1};

	return gfc_write(client->gfc, owner->open, &write, NULL, NULL) == 0;
}

static void reopen(struct client *client, struct owner *owner)
{
	struct gfc_attr attr;
	int r;

	memset(owner->type, 0, BYTES);
	if (owner->open) {
		GX_IGNORE(gfc_close(client->gfc, owner->open)); /* it was lost */
		world.counts.reopened++;
	}
	owner->open = NULL;
	owner->away = owner->revoked = false;
	/* The session may have ended under it. */
	do {
		r = gfc_open(client->gfc, GFC_ROOT, "f",
			     GFC_OPEN_READ | GFC_OPEN_WRITE | GFC_OPEN_CREATE, 0666, &attr,
			     &owner->open);
	} while (r == -ENOTRECOVERABLE);
	if (r < 0)
		wrong("open: %s", gfc_error());
	owner->session = gfc_session(client->gfc);
}

static struct gfc_lock random_lock(unsigned number)
{
	struct gfc_lock lock = {.owner = number, .kind = GFC_LOCK_POSIX};

	lock.type = (unsigned)below(3);
	lock.start = below(BYTES);
	lock.end = lock.start + below(BYTES - lock.start);
	return lock;
}

/* metad says that it is ours. */
static void got(struct client *client, struct owner *owner, const struct gfc_lock *lock)
{
	world.counts.got++;
	/* The answer may be old. */
	if (owner->away && !is_usable(client, owner)) {
		reopen(client, owner);
		return;
	}
	if (lock->type != GFC_LOCK_NONE)
		check_alone(owner, lock);
	set_bytes(owner, lock, lock->type);
}

static void step(struct client *client, unsigned number)
{
	struct owner *owner = &client->owners[number];
	struct gfc_lock lock = random_lock(number);
	unsigned char before[BYTES];
	bool wait = below(2) == 0;
	int r;

	if (owner->revoked) {
		if (is_usable(client, owner))
			wrong("%u/%u uses a file whose lock another has", client->number, number);
		reopen(client, owner);
		return;
	}
	memcpy(before, owner->type, BYTES);
	/* While it is asked for, what it has is the weaker. */
	for (uint64_t b = lock.start; b <= lock.end; b++)
		owner->type[b] = GX_MIN(owner->type[b], (unsigned char)lock.type);
	r = gfc_lock(client->gfc, owner->open, &lock, wait ? GX_FOREVER : 0,
		     wait && number == 0 ? &client->cancel : NULL);
	client->cancel.cancelled = client->cancel.cancelled && number != 0;
	sim_meta_say(&world.meta, "%u/%u %s %u [%llu, %llu]: %d%s", client->number, number,
		     wait ? "lock" : "try", lock.type, (unsigned long long)lock.start,
		     (unsigned long long)lock.end, r, owner->away ? ", was away" : "");
	if (r == -ESTALE || (r < 0 && owner->revoked)) {
		reopen(client, owner);
	} else if (r == 0) {
		got(client, owner, &lock);
	} else if (r == -EAGAIN || r == -EDEADLK || r == -EINTR) {
		world.counts.refused += r == -EAGAIN;
		world.counts.deadlocks += r == -EDEADLK;
		world.counts.cancelled += r == -EINTR;
		/* It may have been lost meanwhile: then its cells are not its own any more. */
		if (!owner->revoked && !owner->away)
			memcpy(owner->type, before, BYTES);
	} else {
		wrong("%u/%u: %s (%d)", client->number, number, gfc_error(), r);
	}
}

static void owner_main(void *arg)
{
	struct client *client = ((struct thread_arg *)arg)->client;
	unsigned number = ((struct thread_arg *)arg)->number;
	struct owner *owner = &client->owners[number];
	struct gx_env *env = gfc_env(client->gfc);
	struct gfc_lock all = {.owner = number, .kind = GFC_LOCK_POSIX, .end = BYTES - 1};

	reopen(client, owner);
	for (unsigned i = 0; i < STEPS && !world.wrong[0]; i++) {
		step(client, number);
		if (below(3) == 0)
			sleep_ms(env, below(200));
		/* Nobody keeps what others wait for for ever. */
		if (owner->open && below(4) == 0) {
			memset(owner->type, 0, BYTES);
			GX_IGNORE(
				gfc_unlock_owner(client->gfc, owner->open, GFC_LOCK_POSIX, number));
		}
	}
	memset(owner->type, 0, BYTES);
	if (!owner->open)
		return;
	if (below(2) == 0 && gfc_lock(client->gfc, owner->open, &all, 0, NULL) < 0)
		sim_meta_say(&world.meta, "the last unlock: %s", gfc_error());
	GX_IGNORE(gfc_close(client->gfc, owner->open)); /* may have been lost */
	owner->open = NULL;
}

static void client_main(struct gx_env *env, void *arg)
{
	struct client *client = arg;
	struct gx_thread threads[OWNERS];

	memset(client->owners, 0, sizeof(client->owners));
	if (sim_meta_connect(&world.meta, env, client->number < 2 ? 65536 : 0, TIMEOUT_NS,
			     &client->gfc) < 0) {
		wrong("connect: %s", gfc_error());
		return;
	}
	for (unsigned i = 0; i < OWNERS; i++) {
		client->args[i] = (struct thread_arg){client, i};
		gx_assert(gx_env_thread_start(env, &threads[i], "owner", owner_main,
					      &client->args[i]) == 0);
	}
	for (unsigned i = 0; i < OWNERS; i++)
		gx_env_thread_join(env, &threads[i]);
	GX_IGNORE(gfc_free(client->gfc)); /* EIO of what was lost */
	client->gfc = NULL;
}

/* -- weather ------------------------------------------------------------------------------------
 */

static void set_away(struct client *client)
{
	for (unsigned i = 0; i < OWNERS; i++)
		client->owners[i].away = true;
}

static void kill_client(struct client *client)
{
	gx_sim_kill(client->proc);
	world.counts.kills++;
	memset(client->owners, 0, sizeof(client->owners));
	gx_assert(gx_sim_spawn(world.meta.client_hosts[client->number], "client", client_main,
			       client, &client->proc) == 0);
}

/* Silent for a while, the one way or the other. */
static void silence(struct gx_env *env, struct client *client, bool cut)
{
	struct gx_sim_host *host = world.meta.client_hosts[client->number];
	uint64_t ms = below(4) == 0 ? below(15000) : below(1000);

	if (ms > 500)
		set_away(client);
	if (cut)
		gx_sim_partition(world.meta.metad_host, host, true);
	else
		gx_sim_stop(client->proc);
	sleep_ms(env, ms);
	if (ms > 500)
		set_away(client);
	if (cut)
		gx_sim_partition(world.meta.metad_host, host, false);
	else
		gx_sim_continue(client->proc);
}

static void restart(struct gx_env *env, bool power)
{
	if (power)
		gx_sim_power_cut(world.meta.metad_host);
	else
		gx_sim_kill(world.meta.metad);
	sleep_ms(env, below(500));
	sim_meta_up(&world.meta);
	world.counts.lives++;
	if (!power)
		return;
	sleep_ms(env, 500); /* TCP's keepalive */
	for (unsigned c = 0; c < CLIENTS; c++)
		gx_sim_reset_links(world.meta.metad_host, world.meta.client_hosts[c]);
}

static void act(struct gx_env *env)
{
	struct client *client = &world.clients[below(CLIENTS)];

	sim_meta_say(&world.meta, "weather at client %u", client->number);
	switch (below(8)) {
	case 0:
	case 1:
		restart(env, below(2) == 0);
		break;
	case 2:
		gx_sim_reset_links(world.meta.metad_host, world.meta.client_hosts[client->number]);
		break;
	case 3:
		if (!gx_sim_proc_ended(client->proc))
			kill_client(client);
		break;
	case 4:
	case 5:
		if (!gx_sim_proc_ended(client->proc))
			silence(env, client, below(2) == 0);
		break;
	default:
		if (client->gfc && !gx_sim_proc_ended(client->proc)) {
			/* Its own mutex would have to be taken in its own process. */
			client->cancel.cancelled = true;
		}
	}
}

static void weather_main(struct gx_env *env, void *arg GX_UNUSED)
{
	for (unsigned i = 0; i < ACTS; i++) {
		sleep_ms(env, below(1500));
		act(env);
	}
}

static const char *run(uint64_t seed, uint64_t *ret_trace)
{
	struct gx_sim_proc *weather;
	int r = 0;

	memset(world.clients, 0, sizeof(world.clients));
	world.wrong[0] = '\0';
	sim_meta_init(&world.meta, seed);
	world.meta.options.partition_reset_ns = GX_NSEC_PER_SEC;
	world.meta.options.latency_max_ns = 2 * GX_NSEC_PER_MSEC;
	sim_meta_start(&world.meta);
	for (unsigned c = 0; c < CLIENTS; c++) {
		world.clients[c].number = c;
		gx_assert(gx_sim_spawn(world.meta.client_hosts[c], "client", client_main,
				       &world.clients[c], &world.clients[c].proc) == 0);
	}
	gx_assert(gx_sim_spawn(world.meta.other_host, "weather", weather_main, NULL, &weather) ==
		  0);
	r = gx_sim_run(world.meta.sim, weather);
	for (unsigned c = 0; r == 0 && c < CLIENTS; c++)
		r = gx_sim_run(world.meta.sim, world.clients[c].proc);
	if (r < 0)
		wrong("it does not end: %s", gx_strerror(r));
	if (world.meta.fatals > 0)
		wrong("metad ended itself");
	if (gx_sim_now_ns(world.meta.sim) > 600 * GX_NSEC_PER_SEC)
		wrong("it took too long");
	*ret_trace = gx_sim_trace(world.meta.sim);
	sim_meta_check(&world.meta);
	if (world.meta.wrong[0])
		wrong("%s", world.meta.wrong);
	sim_meta_free(&world.meta);
	return world.wrong;
}

START_TEST(locks_exclude_each_other_in_any_weather)
{
	const char *one = getenv("SIM_SEED");
	unsigned failed = 0;
	uint64_t trace, seed;

	if (one != NULL && gx_parse_u64(one, &seed) == 0) {
		ck_assert_str_eq(run(seed, &trace), "");
		return;
	}
	for (seed = 1; seed <= sim_seeds(300) && failed < FAILURES_MAX; seed++) {
		const char *what = run(seed, &trace);

		if (!what[0])
			continue;
		printf("seed %llu: %s\n", (unsigned long long)seed, what);
		failed++;
	}
	printf("%llu locked, %llu refused, %llu deadlocks, %llu called off, %llu taken from silent "
	       "clients, %llu files lost, %llu clients killed, %llu lives of metad\n",
	       (unsigned long long)world.counts.got, (unsigned long long)world.counts.refused,
	       (unsigned long long)world.counts.deadlocks,
	       (unsigned long long)world.counts.cancelled, (unsigned long long)world.counts.revoked,
	       (unsigned long long)world.counts.reopened, (unsigned long long)world.counts.kills,
	       (unsigned long long)world.counts.lives);
	ck_assert_msg(failed == 0, "%u seeds failed, see above", failed);
	/* The weather was bad enough to mean something. */
	ck_assert_uint_gt(world.counts.got, 0);
	ck_assert_uint_gt(world.counts.deadlocks, 0);
	ck_assert_uint_gt(world.counts.revoked, 0);
	ck_assert_uint_gt(world.counts.reopened, 0);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_run)
{
	for (uint64_t seed = 1; seed <= 5; seed++) {
		uint64_t first, second;

		ck_assert_str_eq(run(seed, &first), "");
		ck_assert_str_eq(run(seed, &second), "");
		ck_assert_msg(first == second, "seed %llu", (unsigned long long)seed);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_locks");
	TCase *tc = tcase_create("sim_locks");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 3600);
	tcase_add_test(tc, locks_exclude_each_other_in_any_weather);
	tcase_add_test(tc, the_same_seed_gives_the_same_run);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
