/*
 * The buffer of unsynced mutations by itself, with the numbers of a real rpc_client; then what is
 * sent again, to the fake metad.
 */
#include "client/fs/gfc_replay.h"
#include "tests/unit/gfc_fake.h"

static struct gfc_replay replay;
static struct rpc_client *client;
static unsigned lost;

static void setup(void)
{
	static unsigned char key[RPC_KEY_BYTES];
	struct rpc_client_options options = RPC_CLIENT_OPTIONS_INIT;

	fake_start();
	memset(key, 0xa1, sizeof(key));
	options.env = fake->env;
	options.endpoint = fake->endpoint;
	options.identity = "user:alice";
	options.key = key;
	options.mutations_max = GX_UNSYNCED_PER_SESSION_MAX;
	options.timeout_ns = 10 * GX_NSEC_PER_SEC;
	ck_assert_int_eq(rpc_client_new(&options, &client), 0);
	ck_assert_int_eq(gfc_replay_init(&replay, fake->env), 0);
	replay.client = client;
	lost = 0;
}

static void teardown(void)
{
	gfc_replay_fini(&replay);
	rpc_client_free(client);
	fake_stop();
}

static bool keep(void *arg, uint64_t seq, const struct rpc_reply *reply)
{
	gfc_replay_add_take(&replay, seq, arg, ((const PbMeta__MakeReply *)reply->message)->done);
	return true;
}

/* Makes a name; it is kept. */
static void make(const char *name)
{
	PbMeta__MakeRequest request = PB_META__MAKE_REQUEST__INIT;
	struct rpc_call_options options = {.keep_fn = keep};
	struct gfc_unsynced *unsynced;
	struct rpc_reply reply;

	request.name = (char *)name;
	ck_assert_int_eq(
		gfc_unsynced_new(rpc_method_get(RPC_INDEX_MAKE), &request.base, NULL, &unsynced),
		0);
	options.keep_arg = unsynced;
	ck_assert_int_eq(rpc_client_call(client, rpc_method_get(RPC_INDEX_MAKE), &request.base,
					 &options, &reply),
			 0);
	rpc_reply_fini(&reply);
}

static void make_many(unsigned count)
{
	char name[32];

	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		make(name);
	}
}

static void on_lost(void *arg GX_UNUSED, const struct gfc_unsynced *unsynced, int err,
		    const char *detail)
{
	ck_assert_uint_eq(unsynced->method->id, RPC_MAKE);
	ck_assert_int_eq(err, -ENOENT);
	ck_assert_str_eq(detail, "its directory is gone");
	lost++;
}

/* On a connection to the life of the fake there is now; the pool may have old ones first. */
static int resend(void)
{
	int64_t deadline_ns = gx_env_deadline_ms(fake->env, FAKE_WAIT_MS);
	struct rpc_chan_info info = {.boot = 0};
	struct rpc_chan *chan;
	int r;

	for (;;) {
		ck_assert_int_eq(rpc_client_borrow(client, deadline_ns, NULL, &chan), 0);
		rpc_chan_info(chan, &info);
		if (info.boot == fake->boot)
			break;
		rpc_chan_abort(chan);
		rpc_client_return(client, chan);
	}
	r = gfc_replay_resend(&replay, chan, deadline_ns, on_lost, NULL);
	rpc_client_return(client, chan);
	return r;
}

START_TEST(what_is_on_disk_goes_and_its_numbers_are_free)
{
	make_many(10);
	ck_assert_uint_eq(gfc_replay_count(&replay), 10);
	ck_assert_uint_eq(rpc_client_outstanding(client), 10);
	gfc_replay_durable(&replay, 4);
	ck_assert_uint_eq(gfc_replay_count(&replay), 6);
	ck_assert_uint_eq(rpc_client_outstanding(client), 6);
	/* An older word about the disk changes nothing. */
	gfc_replay_durable(&replay, 2);
	ck_assert_uint_eq(gfc_replay_count(&replay), 6);
	gfc_replay_durable(&replay, 10);
	ck_assert_uint_eq(gfc_replay_count(&replay), 0);
	ck_assert_uint_eq(gfc_replay_bytes(&replay), 0);
	ck_assert_uint_eq(rpc_client_outstanding(client), 0);
	make("later");
	ck_assert_uint_eq(gfc_replay_count(&replay), 1);
}
END_TEST

START_TEST(a_lost_session_frees_everything)
{
	make_many(100);
	gfc_replay_durable(&replay, 50);
	ck_assert_uint_eq(gfc_replay_drop(&replay), 50);
	ck_assert_uint_eq(gfc_replay_count(&replay), 0);
	ck_assert_uint_eq(rpc_client_outstanding(client), 0);
	ck_assert_uint_eq(gfc_replay_drop(&replay), 0);
}
END_TEST

START_TEST(what_was_lost_is_done_again_in_order_with_the_same_ids)
{
	char line[64];
	int last = -1;

	make_many(200);
	gfc_replay_durable(&replay, 50);
	fake->durable = 150; /* metad kept more than we know of */
	fake_crash();
	fake_clear_events();
	fake_up();
	ck_assert_int_eq(resend(), 0);
	for (unsigned seq = 51; seq <= 200; seq++) {
		snprintf(line, sizeof(line), "replay %u window %u method 304 payload ", seq,
			 seq - 50);
		ck_assert_int_gt(fake_event(line), last);
		last = fake_event(line);
	}
	ck_assert_uint_eq(gfc_replay_replayed(&replay), 50);
	ck_assert_uint_eq(gfc_replay_count(&replay), 150);
	/* The fake checks the times and receipts; the inode is the one of the first time. */
	ck_assert_uint_eq(name_of("n199")->ino, 201);
	gfc_replay_durable(&replay, 200);
	ck_assert_uint_eq(gfc_replay_count(&replay), 0);
}
END_TEST

START_TEST(another_crash_after_that_loses_nothing_either)
{
	make_many(20);
	for (unsigned i = 0; i < 5; i++) {
		/* Each life has some of it on disk when it ends, at other places of its log. */
		fake->durable = fake->index / 2;
		fake_crash();
		fake->index += 7;
		fake->durable += 7;
		fake_up();
		ck_assert_int_eq(resend(), 0);
		gfc_replay_durable(&replay, fake->durable);
	}
	for (unsigned i = 0; i < 20; i++) {
		char name[32];

		snprintf(name, sizeof(name), "n%u", i);
		ck_assert_ptr_nonnull(name_of(name));
	}
}
END_TEST

START_TEST(what_does_not_apply_any_more_is_told_and_freed)
{
	make_many(3);
	fake_crash();
	fake->refuse_replays = true;
	fake_up();
	ck_assert_int_eq(resend(), 0);
	ck_assert_uint_eq(lost, 3);
	ck_assert_uint_eq(gfc_replay_count(&replay), 0);
	ck_assert_uint_eq(rpc_client_outstanding(client), 0);
}
END_TEST

static void drop_connections(void *arg GX_UNUSED)
{
	close_all();
}

START_TEST(a_connection_that_breaks_leaves_everything_for_the_next_try)
{
	struct rpc_chan *chan;
	int64_t deadline_ns = gx_env_deadline_ms(fake->env, FAKE_WAIT_MS);

	make_many(300);
	fake_crash();
	fake_up();
	ck_assert_int_eq(rpc_client_borrow(client, deadline_ns, NULL, &chan), 0);
	fake_run(drop_connections, NULL);
	ck_assert_int_lt(gfc_replay_resend(&replay, chan, deadline_ns, on_lost, NULL), 0);
	rpc_client_return(client, chan);
	ck_assert_uint_eq(gfc_replay_count(&replay), 300);
	ck_assert_int_eq(resend(), 0);
	ck_assert_uint_eq(gfc_replay_replayed(&replay), 300);
	ck_assert_uint_eq(lost, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gfc_replay");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, what_is_on_disk_goes_and_its_numbers_are_free);
	tcase_add_test(tc, a_lost_session_frees_everything);
	tcase_add_test(tc, what_was_lost_is_done_again_in_order_with_the_same_ids);
	tcase_add_test(tc, another_crash_after_that_loses_nothing_either);
	tcase_add_test(tc, what_does_not_apply_any_more_is_told_and_freed);
	tcase_add_test(tc, a_connection_that_breaks_leaves_everything_for_the_next_try);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
