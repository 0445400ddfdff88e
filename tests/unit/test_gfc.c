/*
 * The client of metad against a fake one: restarts, lost sessions, pushes, leases.
 */
#include "tests/unit/gfc_fake.h"

#define CACHE (1024 * 1024)

static struct gfc *gfc;

static void setup(void)
{
	fake_start();
}

static void teardown(void)
{
	if (gfc)
		ck_assert_int_eq(gfc_free(gfc), 0);
	gfc = NULL;
	fake_stop();
}

static void use(size_t cache_bytes)
{
	struct gfc_options options;

	fake_options(&options, cache_bytes);
	ck_assert_int_eq(gfc_new(&options, &gfc), 0);
}

static int make(const char *name)
{
	struct gfc_attr attr;

	return gfc_make(gfc, GFC_ROOT, name, 0100644, 0, NULL, &attr);
}

static struct gfc_stats stats(void)
{
	struct gfc_stats s;

	gfc_stats(gfc, &s);
	return s;
}

/* -- unsynced changes ------------------------------------------------------------------------- */

START_TEST(changes_are_kept_until_they_are_on_disk)
{
	struct gfc_attr attr;

	use(0);
	ck_assert_int_eq(make("a"), 0);
	ck_assert_int_eq(make("b"), 0);
	ck_assert_int_eq(make("b"), -EEXIST);
	ck_assert_uint_eq(stats().unsynced, 2);
	ck_assert_int_eq(gfc_sync(gfc), 0);
	ck_assert_uint_eq(stats().unsynced, 0);
	/* Number 1 was released: the window is the number alone. */
	ck_assert_int_eq(make("c"), 0);
	ck_assert_int_ge(fake_event("make c seq 4 window 1"), 0);
	ck_assert_int_eq(gfc_unlink(gfc, GFC_ROOT, "c", false), 0);
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "c", &attr), -ENOENT);
	ck_assert_str_eq(gfc_error(), "No such file or directory");
	ck_assert_uint_eq(stats().unsynced, 2);
}
END_TEST

START_TEST(many_changes_ask_for_the_disk_and_never_pass_the_limit)
{
	char name[32];

	use(0);
	for (unsigned i = 0; i < GX_UNSYNCED_PER_SESSION_MAX + 100; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		ck_assert_int_eq(make(name), 0);
		ck_assert_uint_le(stats().unsynced, GX_UNSYNCED_PER_SESSION_MAX);
	}
	/* The disk was asked first in passing; when nothing had come of it, once with waiting. */
	ck_assert_int_ge(fake_event("sync nowait"), 0);
	ck_assert_int_gt(fake_event("sync wait"), fake_event("sync nowait"));
	ck_assert_uint_le(fake_count(RPC_INDEX_SYNC), 8);
	ck_assert_uint_eq(stats().unsynced, 100);
}
END_TEST

START_TEST(failures_between_kept_changes_do_not_use_up_the_numbers)
{
	use(0);
	ck_assert_int_eq(make("a"), 0);
	for (unsigned i = 0; i < 2 * GX_UNSYNCED_PER_SESSION_MAX; i++)
		ck_assert_int_eq(make("a"), -EEXIST);
	ck_assert_int_eq(make("b"), 0);
}
END_TEST

/* -- restarts ---------------------------------------------------------------------------------- */

START_TEST(after_a_restart_lost_changes_are_sent_again_first_then_open_files)
{
	struct gfc_write write = {.data = "hello", .bytes = 5};
	struct gfc_open *first, *second;
	struct gfc_attr attr;
	int replayed, resumed;

	use(0);
	ck_assert_int_eq(make("a"), 0);
	ck_assert_int_eq(gfc_sync(gfc), 0);
	ck_assert_int_eq(make("b"), 0);
	ck_assert_int_eq(gfc_open(gfc, GFC_ROOT, "b", GFC_OPEN_WRITE, 0, &attr, &first), 0);
	ck_assert_int_eq(gfc_open(gfc, GFC_ROOT, "b", GFC_OPEN_READ, 0, &attr, &second), 0);
	ck_assert_int_eq(gfc_write(gfc, first, &write, NULL, &attr), 0);
	ck_assert_int_eq(make("c"), 0);
	fake_crash();
	fake_clear_events();
	fake_up();
	ck_assert_int_eq(make("d"), 0);
	replayed = fake_event("replay 2 window 1 method 304 payload ");
	ck_assert_int_ge(replayed, 0);
	ck_assert_int_gt(fake_event("replay 5 window 4 method 30c payload hello"), replayed);
	ck_assert_int_gt(fake_event("replay 6 window 5 method 304 payload "),
			 fake_event("replay 5 window 4 method 30c payload hello"));
	resumed = fake_event("resume file 3 flags 2");
	ck_assert_int_gt(resumed, fake_event("replay 6 window 5 method 304 payload "));
	ck_assert_int_gt(fake_event("resume file 4 flags 1"), resumed);
	/* The call that met the new metad has its number already. */
	ck_assert_int_gt(fake_event("resume next 8"), resumed);
	ck_assert_int_gt(fake_event("make d seq 7 window 6"), fake_event("resume next 8"));
	ck_assert_uint_eq(stats().replayed, 3);
	ck_assert_uint_eq(stats().resumed, 1);
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "c", &attr), 0);
	ck_assert_int_eq(gfc_close(gfc, second), 0);
	ck_assert_int_eq(gfc_close(gfc, first), 0);
	ck_assert_int_ge(fake_event("close 3"), 0);
	ck_assert_int_eq(gfc_sync(gfc), 0);
	ck_assert_uint_eq(stats().unsynced, 0);
}
END_TEST

START_TEST(a_restart_that_lost_nothing_does_nothing_twice)
{
	use(0);
	ck_assert_int_eq(make("a"), 0);
	fake_down();
	fake_up();
	ck_assert_int_eq(make("b"), 0);
	ck_assert_uint_eq(fake_count(RPC_INDEX_REPLAY), 1);
	ck_assert_uint_eq(stats().replayed, 0);
	ck_assert_int_eq(gfc_sync(gfc), 0);
	/* Nothing is buffered or open: metad still hears that we have reported. */
	fake_down();
	fake_clear_events();
	fake_up();
	ck_assert_int_eq(make("c"), 0);
	ck_assert_int_ge(fake_event("resume next 4"), 0);
	ck_assert_uint_eq(fake_count(RPC_INDEX_REPLAY), 1);
}
END_TEST

START_TEST(thousands_of_lost_changes_are_sent_again)
{
	char name[32];

	use(0);
	for (unsigned i = 0; i < 1900; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		ck_assert_int_eq(make(name), 0);
	}
	fake_crash();
	fake_up();
	ck_assert_int_eq(gfc_sync(gfc), 0);
	ck_assert_uint_eq(stats().replayed, 1900);
	ck_assert_uint_eq(stats().unsynced, 0);
	ck_assert_int_eq(make("n0"), -EEXIST);
	ck_assert_int_eq(make("n1899"), -EEXIST);
}
END_TEST

START_TEST(a_change_that_cannot_be_done_again_is_told_once_by_sync)
{
	use(0);
	ck_assert_int_eq(make("a"), 0);
	fake_crash();
	fake->refuse_replays = true;
	fake_up();
	ck_assert_int_eq(gfc_sync(gfc), -EIO);
	ck_assert_ptr_nonnull(strstr(gfc_error(), "its directory is gone"));
	ck_assert_int_eq(gfc_sync(gfc), 0);
	ck_assert_uint_eq(stats().unsynced, 0);
	/* Its number is free. */
	ck_assert_int_eq(make("b"), 0);
	ck_assert_int_ge(fake_event("make b seq 2 window 1"), 0);
}
END_TEST

START_TEST(a_file_that_metad_cannot_open_again_is_stale)
{
	struct gfc_write write = {.data = "x", .bytes = 1};
	struct gfc_open *lost, *kept;
	struct gfc_attr attr;
	char byte;

	use(0);
	ck_assert_int_eq(gfc_open(gfc, GFC_ROOT, "a", GFC_OPEN_WRITE, 0, &attr, &lost), 0);
	ck_assert_int_eq(gfc_open(gfc, GFC_ROOT, "a", GFC_OPEN_WRITE, 0, &attr, &kept), 0);
	ck_assert_int_eq(gfc_write(gfc, lost, &write, NULL, &attr), 0);
	fake_down();
	fake->lose_handle = 1;
	fake_up();
	ck_assert_int_eq(make("b"), 0);
	ck_assert_int_eq(gfc_read(gfc, lost, &byte, 1, 0, NULL), -ESTALE);
	ck_assert_int_eq(gfc_write(gfc, lost, &write, NULL, &attr), -ESTALE);
	ck_assert_int_eq(gfc_write(gfc, kept, &write, NULL, &attr), 0);
	ck_assert_int_eq(gfc_close(gfc, lost), -EIO);
	ck_assert_int_eq(gfc_close(gfc, kept), 0);
}
END_TEST

START_TEST(a_lost_session_is_told_once_and_a_fresh_one_goes_on)
{
	struct gfc_open *open;
	struct gfc_attr attr;
	uint64_t session;

	use(0);
	ck_assert_int_eq(gfc_open(gfc, GFC_ROOT, "f", GFC_OPEN_READ, 0, &attr, &open), 0);
	ck_assert_int_eq(make("a"), 0);
	session = rpc_client_session(gfc_rpc(gfc));
	fake_down();
	fake->session = 0;
	fake_up();
	/* A change sent on the old connection would have an unknown outcome. */
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "a", &attr), 0);
	ck_assert_int_eq(make("b"), 0);
	ck_assert_uint_ne(rpc_client_session(gfc_rpc(gfc)), session);
	ck_assert_uint_eq(fake_count(RPC_INDEX_REPLAY), 0);
	ck_assert_uint_eq(fake_count(RPC_INDEX_RESUME), 0);
	ck_assert_int_eq(gfc_read(gfc, open, &session, 1, 0, NULL), -ESTALE);
	ck_assert_int_eq(gfc_sync(gfc), -EIO);
	ck_assert_ptr_nonnull(strstr(gfc_error(), "session lost"));
	ck_assert_int_eq(gfc_sync(gfc), 0);
	ck_assert_int_eq(gfc_close(gfc, open), 0);
}
END_TEST

START_TEST(closing_with_the_last_write_is_one_call)
{
	struct gfc_write write = {.data = "all", .bytes = 3, .truncate = true, .close = true};
	struct gfc_open *open;
	struct gfc_attr attr;

	use(0);
	ck_assert_int_eq(gfc_open(gfc, GFC_ROOT, "f", GFC_OPEN_WRITE, 0, &attr, &open), 0);
	ck_assert_int_eq(gfc_write(gfc, open, &write, NULL, &attr), 0);
	ck_assert_uint_eq(attr.size, 3);
	ck_assert_uint_eq(fake_count(RPC_INDEX_CLOSE), 0);
	/* It is not told to a new metad. */
	fake_down();
	fake_clear_events();
	fake_up();
	ck_assert_int_eq(make("b"), 0);
	ck_assert_int_eq(fake_event("resume file 1 flags 2"), -1);
}
END_TEST

START_TEST(a_file_that_was_only_read_closes_without_metad)
{
	struct gfc_open *open, *other;
	struct gfc_attr attr;
	int64_t begin_ns;

	use(0);
	ck_assert_int_eq(gfc_open(gfc, GFC_ROOT, "f", GFC_OPEN_READ, 0, &attr, &open), 0);
	ck_assert_int_eq(gfc_open(gfc, GFC_ROOT, "f", GFC_OPEN_READ, 0, &attr, &other), 0);
	fake_down();
	begin_ns = gx_env_now_ns(fake->env);
	ck_assert_int_eq(gfc_close(gfc, open), 0);
	ck_assert_int_lt(gx_env_now_ns(fake->env) - begin_ns, 5 * GX_NSEC_PER_SEC);
	fake_clear_events();
	fake->boot--; /* the same life: it still has the file open */
	fake_up();
	ck_assert_int_eq(gfc_close(gfc, other), 0);
	ck_assert_int_ge(fake_event("close 2"), 0);
	ck_assert_int_gt(fake_event("close 1"), fake_event("close 2"));
}
END_TEST

START_TEST(leaving_waits_for_the_disk_and_tells_what_was_lost)
{
	use(0);
	ck_assert_int_eq(make("a"), 0);
	fake_crash();
	fake->refuse_replays = true;
	fake_up();
	ck_assert_int_eq(gfc_free(gfc), -EIO);
	gfc = NULL;
	ck_assert_int_ge(fake_event("leave"), 0);
}
END_TEST

/* Several threads make names while metad loses its memory again and again. */
struct maker {
	struct gx_thread thread;
	unsigned number;
	unsigned failed;
};

static void maker_main(void *arg)
{
	struct maker *m = arg;
	char name[32];

	for (unsigned i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "m%u.%u", m->number, i);
		m->failed += make(name) != 0;
	}
}

START_TEST(nothing_that_was_answered_is_lost_by_crashes_under_load)
{
	struct maker makers[4] = {{.number = 0}, {.number = 1}, {.number = 2}, {.number = 3}};
	struct gfc_attr attr;
	char name[32];

	use(0);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(gx_env_thread_start(fake->env, &makers[i].thread, "maker",
						     maker_main, &makers[i]),
				 0);
	for (unsigned i = 1; i <= 5; i++) {
		fake_wait_count(RPC_INDEX_MAKE, i * 200);
		fake_crash();
		fake_up();
	}
	for (unsigned i = 0; i < 4; i++)
		gx_env_thread_join(fake->env, &makers[i].thread);
	ck_assert_int_eq(gfc_sync(gfc), 0);
	for (unsigned i = 0; i < 4; i++) {
		/* The fake has no replay table: a call sent twice may be EEXIST, no more. */
		ck_assert_uint_le(makers[i].failed, 5);
		for (unsigned k = 0; k < 300; k++) {
			snprintf(name, sizeof(name), "m%u.%u", i, k);
			ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, name, &attr), 0);
		}
	}
	ck_assert_uint_ge(stats().resumed, 1);
}
END_TEST

/* -- the cache ------------------------------------------------------------------------------------
 */

/* Looks a name up until it comes from the cache: the push channel is open. */
static void warm(const char *name)
{
	int64_t deadline_ns = gx_env_deadline_ms(fake->env, FAKE_WAIT_MS);
	uint64_t hits = stats().cache_hits;
	struct gfc_attr attr;

	while (stats().cache_hits == hits) {
		int r = gfc_lookup(gfc, GFC_ROOT, name, &attr);

		ck_assert(r == 0 || r == -ENOENT);
		ck_assert_int_lt(gx_env_now_ns(fake->env), deadline_ns);
	}
}

START_TEST(names_and_attributes_come_from_the_cache)
{
	struct gfc_attr attr;
	uint64_t lookups;

	use(CACHE);
	warm("none");
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "a", &attr), -ENOENT);
	lookups = fake_count(RPC_INDEX_LOOKUP);
	ck_assert_int_eq(make("a"), 0);
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "a", &attr), 0);
	ck_assert_int_eq(gfc_getattr(gfc, attr.ref, &attr), 0);
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "none", &attr), -ENOENT);
	ck_assert_int_eq(gfc_unlink(gfc, GFC_ROOT, "a", false), 0);
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "a", &attr), -ENOENT);
	ck_assert_uint_eq(fake_count(RPC_INDEX_LOOKUP), lookups);
	ck_assert_uint_eq(fake_count(RPC_INDEX_GETATTR), 0);
	/* A capability metad did not give is metad's business. */
	ck_assert_int_eq(make("b"), 0);
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "b", &attr), 0);
	attr.ref.cap++;
	ck_assert_int_eq(gfc_getattr(gfc, attr.ref, &attr), 0);
	ck_assert_uint_eq(fake_count(RPC_INDEX_GETATTR), 1);
}
END_TEST

START_TEST(without_a_cache_there_is_no_push_channel_and_each_lookup_asks)
{
	struct gfc_attr attr;

	use(0);
	ck_assert_int_eq(make("a"), 0);
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "a", &attr), 0);
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "a", &attr), 0);
	ck_assert_uint_eq(fake_count(RPC_INDEX_LOOKUP), 2);
	ck_assert_uint_eq(fake->sessions, 1);
	fake_lock();
	ck_assert_int_eq(memcmp(fake->events.data, "connection of 1001\nmake a", 25), 0);
	fake_unlock();
}
END_TEST

/* One who cannot be recalled would get no more than a shared lease. */
START_TEST(a_lease_is_asked_for_when_it_can_be_recalled)
{
	struct gfc_lease *lease = malloc(sizeof(*lease));
	struct gfc_open *open;
	struct gfc_attr attr;

	use(_i ? CACHE : 0);
	ck_assert_int_eq(
		gfc_open(gfc, GFC_ROOT, "a", GFC_OPEN_CREATE | GFC_OPEN_WRITE, 0644, &attr, &open),
		0);
	ck_assert_int_eq(gfc_lease(gfc, open, &(struct gfc_wish){.write = true}, lease),
			 -EHOSTUNREACH);
	ck_assert_int_ge(fake_event(_i ? "lease with push channel" : "lease without push channel"),
			 0);
	ck_assert_int_eq(gfc_close(gfc, open), 0);
	free(lease);
}
END_TEST

/* Another client changes a name: pushes, and notes when the push was acknowledged. */
struct push {
	uint64_t ino;
	uint32_t what;
	char *name;
};

static void on_pushed(void *arg GX_UNUSED, int err)
{
	fake_lock();
	event("acknowledged %d", err);
	fake_unlock();
}

static void push_now(void *arg)
{
	struct push *p = arg;
	PbMeta__ForgetRequest request = PB_META__FORGET_REQUEST__INIT;
	PbMeta__Forget item = PB_META__FORGET__INIT, *items = &item;

	item.ino = p->ino;
	item.what = p->what;
	item.name = p->name;
	request.items = &items;
	request.n_items = 1;
	ck_assert_int_eq(rpc_server_push(fake->server, fake->session, RPC_FORGET, &request.base,
					 on_pushed, NULL),
			 0);
}

START_TEST(a_push_is_obeyed_before_it_is_acknowledged)
{
	struct push push = {.ino = 1, .what = 2, .name = "a"};
	struct gfc_attr attr;
	uint64_t lookups;

	use(CACHE);
	ck_assert_int_eq(make("a"), 0);
	warm("a");
	for (unsigned i = 0; i < 50; i++) {
		lookups = fake_count(RPC_INDEX_LOOKUP);
		fake_clear_events();
		fake_run(push_now, &push);
		fake_wait_event("acknowledged 0");
		ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "a", &attr), 0);
		ck_assert_uint_eq(fake_count(RPC_INDEX_LOOKUP), lookups + 1);
		ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "a", &attr), 0);
		ck_assert_uint_eq(fake_count(RPC_INDEX_LOOKUP), lookups + 1);
	}
	ck_assert_uint_eq(stats().forgotten, 50);
}
END_TEST

struct looker {
	struct gx_thread thread;
	struct gfc_attr attr;
	int err;
};

static void looker_main(void *arg)
{
	struct looker *l = arg;

	l->err = gfc_lookup(gfc, GFC_ROOT, "b", &l->attr);
}

static void release_held(void *arg GX_UNUSED)
{
	answer_held();
}

START_TEST(an_answer_overtaken_by_a_push_is_used_but_not_kept)
{
	struct push push = {.ino = 1, .what = 2, .name = "b"};
	struct looker looker;
	struct gfc_attr attr;
	uint64_t lookups;

	use(CACHE);
	ck_assert_int_eq(make("a"), 0);
	warm("a");
	fake_lock();
	name_add("b", 0);
	fake->hold_lookups = true;
	lookups = fake->counts[RPC_INDEX_LOOKUP];
	fake_unlock();
	ck_assert_int_eq(
		gx_env_thread_start(fake->env, &looker.thread, "looker", looker_main, &looker), 0);
	fake_wait_count(RPC_INDEX_LOOKUP, lookups + 1);
	fake_run(push_now, &push);
	fake_wait_event("acknowledged 0");
	fake->hold_lookups = false;
	fake_run(release_held, NULL);
	gx_env_thread_join(fake->env, &looker.thread);
	ck_assert_int_eq(looker.err, 0);
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "b", &attr), 0);
	ck_assert_uint_eq(fake_count(RPC_INDEX_LOOKUP), lookups + 2);
}
END_TEST

START_TEST(a_quiet_client_renews_its_lease)
{
	struct gfc_attr attr;
	uint64_t renewals;
	uint64_t lookups;

	use(CACHE);
	ck_assert_int_eq(make("a"), 0);
	warm("a");
	lookups = fake_count(RPC_INDEX_LOOKUP);
	renewals = fake_count(RPC_INDEX_RENEW);
	/* 500 ms each: trust would be over without them. */
	fake_wait_count(RPC_INDEX_RENEW, renewals + 4);
	ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "a", &attr), 0);
	ck_assert_uint_eq(fake_count(RPC_INDEX_LOOKUP), lookups);
}
END_TEST

START_TEST(trust_ends_when_metad_does_not_answer)
{
	int64_t begin_ns, last_ns, hit_ns = 0;
	struct gfc_attr attr;
	uint64_t lookups;

	use(CACHE);
	ck_assert_int_eq(make("a"), 0);
	warm("a");
	fake_lock();
	fake->mute = true;
	last_ns = fake->last_answer_ns;
	lookups = fake->counts[RPC_INDEX_LOOKUP];
	fake_unlock();
	for (;;) {
		begin_ns = gx_env_now_ns(fake->env);
		ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "a", &attr), 0);
		if (fake_count(RPC_INDEX_LOOKUP) > lookups)
			break;
		hit_ns = begin_ns;
		gx_env_sleep_until(fake->env, begin_ns + GX_NSEC_PER_MSEC);
	}
	ck_assert_int_gt(hit_ns, 0);
	ck_assert_int_lt(hit_ns - last_ns, 1500 * GX_NSEC_PER_MSEC);
	fake_lock();
	fake->mute = false;
	fake_unlock();
	fake_run(release_held, NULL);
	warm("a");
}
END_TEST

static void cut(void *arg GX_UNUSED)
{
	close_all();
}

START_TEST(a_broken_push_channel_empties_the_cache_and_is_opened_again)
{
	struct push push = {.ino = 1, .what = 2, .name = "a"};
	int64_t deadline_ns = gx_env_deadline_ms(fake->env, FAKE_WAIT_MS);
	struct gfc_attr attr = {.version = 0};

	use(CACHE);
	ck_assert_int_eq(make("a"), 0);
	warm("a");
	/* As metad does with a client that does not acknowledge; then the name changes. */
	fake_run(cut, NULL);
	fake_lock();
	name_of("a")->version += 100;
	fake_unlock();
	while (attr.version < 100) {
		ck_assert_int_eq(gfc_lookup(gfc, GFC_ROOT, "a", &attr), 0);
		ck_assert_int_lt(gx_env_now_ns(fake->env), deadline_ns);
	}
	warm("a");
	fake_run(push_now, &push);
	fake_wait_event("acknowledged 0");
}
END_TEST

START_TEST(after_a_restart_the_cache_is_empty_and_pushes_work_again)
{
	struct push push = {.ino = 1, .what = 2, .name = "a"};

	use(CACHE);
	ck_assert_int_eq(make("a"), 0);
	warm("a");
	fake_crash();
	fake_up();
	/* Until the first answer, or 1.5 s, the cache may still be used. */
	ck_assert_int_eq(make("b"), 0);
	warm("a");
	ck_assert_uint_eq(stats().resumed, 1);
	fake_run(push_now, &push);
	fake_wait_event("acknowledged 0");
}
END_TEST

/* -- life
 * ------------------------------------------------------------------------------------------- */

START_TEST(a_wrong_key_and_a_missing_metad_are_explained)
{
	struct gfc_options options;
	unsigned char wrong[RPC_KEY_BYTES] = {1};

	fake_options(&options, CACHE);
	options.key = wrong;
	ck_assert_int_eq(gfc_new(&options, &gfc), -EKEYREJECTED);
	ck_assert_ptr_nonnull(strstr(gfc_error(), "127.0.0.1"));
	fake_down();
	fake_options(&options, CACHE);
	options.timeout_ns = 50 * GX_NSEC_PER_MSEC;
	ck_assert_int_eq(gfc_new(&options, &gfc), -ECONNREFUSED);
	ck_assert_ptr_nonnull(strstr(gfc_error(), "cannot connect"));
	gfc = NULL;
}
END_TEST

static TCase *cases(void)
{
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 40);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, changes_are_kept_until_they_are_on_disk);
	tcase_add_test(tc, many_changes_ask_for_the_disk_and_never_pass_the_limit);
	tcase_add_test(tc, failures_between_kept_changes_do_not_use_up_the_numbers);
	tcase_add_test(tc, after_a_restart_lost_changes_are_sent_again_first_then_open_files);
	tcase_add_test(tc, a_restart_that_lost_nothing_does_nothing_twice);
	tcase_add_test(tc, thousands_of_lost_changes_are_sent_again);
	tcase_add_test(tc, a_change_that_cannot_be_done_again_is_told_once_by_sync);
	tcase_add_test(tc, a_file_that_metad_cannot_open_again_is_stale);
	tcase_add_test(tc, a_lost_session_is_told_once_and_a_fresh_one_goes_on);
	tcase_add_test(tc, closing_with_the_last_write_is_one_call);
	tcase_add_test(tc, a_file_that_was_only_read_closes_without_metad);
	tcase_add_test(tc, leaving_waits_for_the_disk_and_tells_what_was_lost);
	tcase_add_test(tc, nothing_that_was_answered_is_lost_by_crashes_under_load);
	tcase_add_test(tc, names_and_attributes_come_from_the_cache);
	tcase_add_test(tc, without_a_cache_there_is_no_push_channel_and_each_lookup_asks);
	tcase_add_loop_test(tc, a_lease_is_asked_for_when_it_can_be_recalled, 0, 2);
	tcase_add_test(tc, a_push_is_obeyed_before_it_is_acknowledged);
	tcase_add_test(tc, an_answer_overtaken_by_a_push_is_used_but_not_kept);
	tcase_add_test(tc, a_quiet_client_renews_its_lease);
	tcase_add_test(tc, trust_ends_when_metad_does_not_answer);
	tcase_add_test(tc, a_broken_push_channel_empties_the_cache_and_is_opened_again);
	tcase_add_test(tc, after_a_restart_the_cache_is_empty_and_pushes_work_again);
	tcase_add_test(tc, a_wrong_key_and_a_missing_metad_are_explained);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("gfc");
	SRunner *runner;
	int failed;

	suite_add_tcase(suite, cases());
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
