/*
 * metad through the wire: what single calls promise. What many of them promise under faults is in
 * tests/sim and tests/integ.
 */
#include "metad/md_server_impl.h"
#include "tests/lib/meta_fixture.h"
#include <check.h>
#include <stdlib.h>

#define RPC_SERVICE_META
#include "rpc/rpc_stub.h"

static struct meta_fixture *f;
static struct gfc *a, *b;

static void setup(void)
{
	f = meta_fixture_start(NULL);
	a = meta_fixture_gfc(f, META_ROOT, 0);
	b = meta_fixture_gfc(f, META_ROOT, 1 << 20);
}

static void teardown(void)
{
	if (a)
		ck_assert_int_eq(gfc_free(a), 0);
	if (b)
		ck_assert_int_eq(gfc_free(b), 0);
	if (f)
		meta_fixture_check(f);
	meta_fixture_stop(f);
	a = b = NULL;
	f = NULL;
}

static struct gfc_attr make_file(struct gfc *gfc, const char *name, const char *text)
{
	struct gfc_write write = {.data = text, .bytes = strlen(text), .close = true};
	struct gfc_open *open;
	struct gfc_attr attr;

	ck_assert_int_eq(
		gfc_open(gfc, GFC_ROOT, name, GFC_OPEN_WRITE | GFC_OPEN_CREATE, 0644, &attr, &open),
		0);
	ck_assert_int_eq(gfc_write(gfc, open, &write, NULL, &attr), 0);
	return attr;
}

static void assert_content(struct gfc *gfc, struct gfc_open *open, const char *want)
{
	char text[64];
	ssize_t got = gfc_read(gfc, open, text, sizeof(text), 0, NULL);

	ck_assert_int_eq(got, (ssize_t)strlen(want));
	ck_assert_mem_eq(text, want, strlen(want));
}

START_TEST(what_is_acknowledged_is_there_after_a_crash)
{
	struct gfc_attr made = make_file(a, "file", "content"), found;
	struct gfc_open *open;

	meta_fixture_down(f);
	meta_fixture_up(f);
	ck_assert_int_eq(gfc_lookup(a, GFC_ROOT, "file", &found), 0);
	ck_assert_uint_eq(found.ref.ino, made.ref.ino);
	ck_assert_uint_eq(found.ref.cap, made.ref.cap);
	ck_assert_uint_eq(found.version, made.version);
	ck_assert_int_eq(gfc_open(a, GFC_ROOT, "file", GFC_OPEN_READ, 0, &found, &open), 0);
	assert_content(a, open, "content");
	ck_assert_int_eq(gfc_close(a, open), 0);
}
END_TEST

START_TEST(an_open_file_survives_a_restart_even_without_a_name)
{
	struct gfc_open *reader, *writer;
	struct gfc_write write = {.data = "more", .bytes = 4, .append = true};
	struct gfc_attr attr;

	make_file(a, "file", "text");
	ck_assert_int_eq(gfc_open(a, GFC_ROOT, "file", GFC_OPEN_READ, 0, &attr, &reader), 0);
	ck_assert_int_eq(gfc_open(a, GFC_ROOT, "file", GFC_OPEN_WRITE, 0, &attr, &writer), 0);
	ck_assert_int_eq(gfc_unlink(b, GFC_ROOT, "file", false), 0);
	for (unsigned i = 0; i < 3; i++) {
		meta_fixture_down(f);
		meta_fixture_up(f);
		/* Both clients report, else the recovery lasts its full time. */
		ck_assert_int_eq(gfc_lookup(b, GFC_ROOT, "file", &attr), -ENOENT);
		assert_content(a, reader, "text");
	}
	ck_assert_int_eq(gfc_write(a, writer, &write, NULL, NULL), 0);
	assert_content(a, reader, "textmore");
	ck_assert_int_eq(gfc_close(a, reader), 0);
	ck_assert_int_eq(gfc_close(a, writer), 0);
	ck_assert_int_eq(gfc_getattr(a, attr.ref, &attr), -ESTALE);
}
END_TEST

static void count_inodes(struct md_server *server, void *arg)
{
	struct md_counters counters;

	md_state_counters(md_server_state(server), &counters);
	*(uint64_t *)arg = counters.inodes;
}

START_TEST(an_orphan_goes_with_its_last_handle)
{
	uint64_t inodes = 0;
	struct gfc_open *open;
	struct gfc_attr attr;

	make_file(a, "file", "text");
	ck_assert_int_eq(gfc_open(a, GFC_ROOT, "file", GFC_OPEN_READ, 0, &attr, &open), 0);
	ck_assert_int_eq(gfc_unlink(a, GFC_ROOT, "file", false), 0);
	meta_fixture_run(f, count_inodes, &inodes);
	ck_assert_uint_eq(inodes, 2);
	ck_assert_int_eq(gfc_close(a, open), 0);
	meta_fixture_run(f, count_inodes, &inodes);
	ck_assert_uint_eq(inodes, 1);
}
END_TEST

START_TEST(a_second_client_never_sees_an_old_name)
{
	struct gfc_attr attr, seen;

	for (unsigned i = 0; i < 200; i++) {
		ck_assert_int_eq(gfc_lookup(b, GFC_ROOT, "name", &seen), -ENOENT);
		attr = make_file(a, "name", "x");
		ck_assert_int_eq(gfc_lookup(b, GFC_ROOT, "name", &seen), 0);
		ck_assert_uint_eq(seen.ref.ino, attr.ref.ino);
		ck_assert_uint_eq(seen.size, 1);
		ck_assert_int_eq(gfc_rename(a, GFC_ROOT, "name", GFC_ROOT, "other", 0), 0);
		ck_assert_int_eq(gfc_lookup(b, GFC_ROOT, "name", &seen), -ENOENT);
		ck_assert_int_eq(gfc_lookup(b, GFC_ROOT, "other", &seen), 0);
		ck_assert_int_eq(gfc_unlink(a, GFC_ROOT, "other", false), 0);
		ck_assert_int_eq(gfc_lookup(b, GFC_ROOT, "other", &seen), -ENOENT);
	}
}
END_TEST

START_TEST(a_cache_answers_without_asking)
{
	struct gfc_stats before, after;
	struct gfc_attr attr;

	make_file(a, "name", "x");
	/* The push channel comes by itself; until then nothing is cached. */
	do {
		gfc_stats(b, &before);
		ck_assert_int_eq(gfc_lookup(b, GFC_ROOT, "name", &attr), 0);
		gfc_stats(b, &after);
	} while (after.cache_hits == before.cache_hits);
	ck_assert_uint_eq(after.calls, before.calls);
}
END_TEST

START_TEST(rights_taken_from_a_directory_count_for_what_is_cached)
{
	struct gfc *alice = meta_fixture_gfc(f, META_ALICE, 1 << 20);
	struct gfc_change change = {.mask = GFC_SET_MODE, .mode = 0700};
	struct gfc_stats before, after;
	struct gfc_attr dir, attr;

	ck_assert_int_eq(gfc_make(a, GFC_ROOT, "dir", S_IFDIR | 0755, 0, NULL, &dir), 0);
	ck_assert_int_eq(gfc_make(a, dir.ref, "sub", S_IFDIR | 0755, 0, NULL, &attr), 0);
	do {
		gfc_stats(alice, &before);
		ck_assert_int_eq(gfc_lookup(alice, dir.ref, "sub", &attr), 0);
		gfc_stats(alice, &after);
	} while (after.cache_hits == before.cache_hits);
	ck_assert_int_eq(gfc_setattr(a, dir.ref, NULL, &change, &dir), 0);
	ck_assert_int_eq(gfc_lookup(alice, dir.ref, "sub", &attr), -EACCES);
	ck_assert_int_eq(gfc_free(alice), 0);
}
END_TEST

START_TEST(an_idle_client_without_a_cache_comes_back_by_itself)
{
	int64_t begin_ns = gx_env_now_ns(gx_env_posix());
	struct gfc_attr attr;

	/* `a` does nothing; until it has reported, nobody else is answered. */
	make_file(a, "file", "text");
	meta_fixture_down(f);
	meta_fixture_up(f);
	ck_assert_int_eq(gfc_lookup(b, GFC_ROOT, "file", &attr), 0);
	ck_assert_int_lt(gx_env_now_ns(gx_env_posix()) - begin_ns, 8 * GX_NSEC_PER_SEC);
}
END_TEST

START_TEST(a_name_that_was_never_looked_up_cannot_be_guessed)
{
	struct gfc_attr attr = make_file(a, "file", "secret"), out;
	struct gfc_ref wrong = {attr.ref.ino, attr.ref.cap ^ 1};
	struct gfc_change change = {.mask = GFC_SET_MODE, .mode = 0777};

	ck_assert_int_eq(gfc_getattr(a, wrong, &out), -ESTALE);
	wrong.cap = 0;
	ck_assert_int_eq(gfc_getattr(a, wrong, &out), -ESTALE);
	ck_assert_int_eq(gfc_setattr(a, wrong, NULL, &change, &out), -ESTALE);
	ck_assert_int_eq(gfc_link(a, wrong, GFC_ROOT, "mine", &out), -ESTALE);
	ck_assert_int_eq(gfc_getattr(a, attr.ref, &out), 0);
}
END_TEST

START_TEST(who_is_not_in_the_table_of_users_gets_nothing)
{
	static const enum meta_who nobodies[] = {META_HOST, META_NOBODY};
	PbMeta__GetattrRequest request = PB_META__GETATTR_REQUEST__INIT;
	struct rpc_client *client = meta_fixture_client(f, nobodies[_i]);
	const PbMeta__GetattrReply *answer;
	struct rpc_reply reply;

	request.ino = 1;
	ck_assert_int_eq(meta_call_getattr(client, &request, NULL, &reply, &answer), -EACCES);
	ck_assert_ptr_nonnull(strstr(reply.detail, "table of users"));
	rpc_reply_fini(&reply);
	rpc_client_free(client);
}
END_TEST

static int call_replay(struct rpc_client *client, const PbMeta__Done *done, const char *name,
		       PbMeta__ReplayReply *ret_reply)
{
	PbMeta__ReplayRequest request = PB_META__REPLAY_REQUEST__INIT;
	PbMeta__MakeRequest inner = PB_META__MAKE_REQUEST__INIT;
	const PbMeta__ReplayReply *answer;
	unsigned char packed[256];
	struct rpc_reply reply;
	int r;

	inner.parent = 1;
	inner.name = (char *)(uintptr_t)name;
	inner.mode = S_IFDIR | 0755;
	request.method = RPC_MAKE;
	request.request.len = protobuf_c_message_pack(&inner.base, packed);
	request.request.data = packed;
	request.done = (PbMeta__Done *)(uintptr_t)done;
	r = meta_call_replay(client, &request, NULL, &reply, &answer);
	if (r == 0)
		*ret_reply = *answer;
	rpc_reply_fini(&reply);
	return r;
}

START_TEST(a_replay_with_a_forged_receipt_is_refused)
{
	struct rpc_client *client = meta_fixture_client(f, META_ROOT);
	PbMeta__Done done = PB_META__DONE__INIT;
	PbMeta__ReplayReply reply;
	struct gfc_attr attr;

	done.index = 1000;
	done.time_ns = 1;
	done.new_ino = 12345;
	done.receipt = UINT64_C(0x123456789);
	ck_assert_int_eq(call_replay(client, &done, "forged", &reply), -EPERM);
	ck_assert_int_eq(gfc_lookup(a, GFC_ROOT, "forged", &attr), -ENOENT);
	rpc_client_free(client);
}
END_TEST

START_TEST(status_tells_how_it_is)
{
	PbMeta__StatusRequest request = PB_META__STATUS_REQUEST__INIT;
	struct rpc_client *client = meta_fixture_client(f, META_ALICE);
	const PbMeta__StatusReply *answer;
	struct rpc_reply reply;

	make_file(a, "file", "12345");
	ck_assert_int_eq(meta_call_status(client, &request, NULL, &reply, &answer), 0);
	ck_assert_uint_eq(answer->inodes, 2);
	ck_assert_uint_eq(answer->inline_bytes, 5);
	ck_assert_uint_ge(answer->epoch, 1);
	ck_assert(!answer->recovering);
	ck_assert_str_eq(answer->problem, "");
	ck_assert_uint_ge(answer->log_written, answer->log_durable);
	rpc_reply_fini(&reply);
	request.sessions = true;
	ck_assert_int_eq(meta_call_status(client, &request, NULL, &reply, &answer), -EPERM);
	rpc_reply_fini(&reply);
	rpc_client_free(client);
}
END_TEST

START_TEST(two_on_one_directory_are_refused)
{
	struct md_server_options options = MD_SERVER_OPTIONS_INIT;
	struct md_server *second = NULL;
	struct gx_loop *loop;

	ck_assert_int_eq(gx_loop_new(gx_env_posix(), &loop), 0);
	options.env = gx_env_posix();
	options.loop = loop;
	options.dir = meta_fixture_dir(f);
	ck_assert_int_eq(md_users_parse("users", "user root 0 0\n", 14, NULL, &options.users), 0);
	ck_assert_int_eq(md_server_new(&options, &second), -EBUSY);
	gx_loop_free(loop);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("md_server");
	TCase *t = tcase_create("wire");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, what_is_acknowledged_is_there_after_a_crash);
	tcase_add_test(t, an_open_file_survives_a_restart_even_without_a_name);
	tcase_add_test(t, an_orphan_goes_with_its_last_handle);
	tcase_add_test(t, a_second_client_never_sees_an_old_name);
	tcase_add_test(t, a_cache_answers_without_asking);
	tcase_add_test(t, rights_taken_from_a_directory_count_for_what_is_cached);
	tcase_add_test(t, an_idle_client_without_a_cache_comes_back_by_itself);
	tcase_add_test(t, a_name_that_was_never_looked_up_cannot_be_guessed);
	tcase_add_loop_test(t, who_is_not_in_the_table_of_users_gets_nothing, 0, 2);
	tcase_add_test(t, a_replay_with_a_forged_receipt_is_refused);
	tcase_add_test(t, status_tells_how_it_is);
	tcase_add_test(t, two_on_one_directory_are_refused);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(suite());
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
