/*
 * Keys, key files and key tables: what is read, what is refused, what is never told.
 */
#include "common/gx_num.h"
#include "rpc/rpc_key.h"
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define SECRET_HEX "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define OTHER_HEX "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff"
#define GOOD_LINE "user:alice key=" SECRET_HEX " created=2026-11-16T09:00:00Z expires=never\n"

static struct gx_env *env;
static struct rpc_keytab *tab;
static struct gx_buf errors;
static char dir[64], path[128];

static void setup(void)
{
	const char *tmp = getenv("TMPDIR");

	env = gx_env_posix();
	ck_assert_int_eq(rpc_keytab_new(&tab), 0);
	gx_buf_init(&errors, 4096);
	ck_assert_int_eq(gx_format(dir, sizeof(dir), "%s/rpckey.XXXXXX",
				   tmp && strlen(tmp) < 40 ? tmp : "/tmp"),
			 0);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/keys", dir), 0);
}

static void teardown(void)
{
	char beside[160];

	rpc_keytab_free(tab);
	gx_buf_fini(&errors);
	ck_assert_int_eq(gx_format(beside, sizeof(beside), "%s.new", path), 0);
	unlink(beside);
	rmdir(path);
	unlink(path);
	rmdir(dir);
}

static int parse(const char *text)
{
	return rpc_keytab_parse(tab, "file", text, strlen(text), &errors);
}

static void write_path(const char *name, const char *text, mode_t mode)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

static int load(void)
{
	return rpc_keytab_load(tab, env, path, &errors);
}

/* -- identities ---------------------------------------------------------------------- */

START_TEST(identities_are_strict)
{
	static const char *const good[] = {"user:a", "host:fsd1", "user:A.b_c-d@E9", "user:@x"};
	static const char *const bad[] = {"",         "user",      "user:",    "User:a",
					  "user:a b", "user:a/b",  "user:.a",  "user:-a",
					  "host:",    "ticket:00", "user:a\n", "user:\xc3\xa4",
					  " user:a",  "group:a",   "user:a:b", "user:a%s"};
	enum rpc_identity_kind kind;
	char longest[128] = "user:";

	for (size_t i = 0; i < GX_COUNT_OF(good); i++)
		ck_assert_int_eq(rpc_identity_parse(good[i], &kind), 0);
	for (size_t i = 0; i < GX_COUNT_OF(bad); i++)
		ck_assert_msg(rpc_identity_parse(bad[i], &kind) == -EINVAL, "%s", bad[i]);
	memset(longest + 5, 'x', GX_NAME_USER_MAX);
	ck_assert_int_eq(rpc_identity_parse(longest, &kind), 0);
	longest[5 + GX_NAME_USER_MAX] = 'x';
	ck_assert_int_eq(rpc_identity_parse(longest, &kind), -EINVAL);
	ck_assert_str_eq(rpc_identity_name("user:alice"), "alice");
}
END_TEST

/* -- making -------------------------------------------------------------------------- */

START_TEST(made_keys_differ_and_last_as_long_as_asked)
{
	struct rpc_key a, b;

	ck_assert_int_eq(rpc_key_make(env, "user:a", 0, false, &a), 0);
	ck_assert_int_eq(rpc_key_make(env, "user:a", 10 * GX_NSEC_PER_SEC, true, &b), 0);
	ck_assert_mem_ne(a.secret, b.secret, RPC_KEY_BYTES);
	ck_assert_int_eq(a.expires_ns, 0);
	ck_assert_int_ge(b.expires_ns, b.created_ns + 9 * GX_NSEC_PER_SEC);
	ck_assert(b.admin && !a.admin);
	ck_assert_int_eq(rpc_key_make(env, "nobody", 0, false, &a), -EINVAL);
	ck_assert_int_eq(rpc_key_make(env, "user:a", -1, false, &a), -ERANGE);
	ck_assert_int_eq(rpc_key_make(env, "user:a", INT64_MAX, false, &a), -ERANGE);
}
END_TEST

START_TEST(a_fingerprint_is_stable_and_shows_no_key_byte)
{
	struct rpc_key key = {.kind = RPC_IDENTITY_USER};
	char text[RPC_FINGERPRINT_TEXT], again[RPC_FINGERPRINT_TEXT];

	ck_assert_int_eq(gx_hex_decode(SECRET_HEX, key.secret, RPC_KEY_BYTES), 0);
	rpc_key_fingerprint(&key, text);
	rpc_key_fingerprint(&key, again);
	ck_assert_str_eq(text, again);
	/* People have written these down: they must not change between releases. */
	ck_assert_str_eq(text, "28f6-135c-abce-010a");
	ck_assert_uint_eq(strlen(text), RPC_FINGERPRINT_TEXT - 1);
	for (size_t i = 0; i + 4 <= 2 * RPC_KEY_BYTES; i += 2) {
		char piece[5] = {0};

		memcpy(piece, SECRET_HEX + i, 4);
		ck_assert_ptr_null(strstr(text, piece));
	}
	key.secret[31] ^= 1;
	rpc_key_fingerprint(&key, again);
	ck_assert_str_ne(text, again);
}
END_TEST

/* -- text ------------------------------------------------------------------------------ */

START_TEST(a_table_is_read_in_order)
{
	const struct rpc_key *key;

	ck_assert_int_eq(parse("# who may come in\n\n" GOOD_LINE "  host:fsd1 \t key=" OTHER_HEX
			       " expires=2030-01-01 admin\r\n"
			       "user:last key=" OTHER_HEX),
			 0);
	ck_assert_uint_eq(rpc_keytab_count(tab), 3);
	ck_assert_str_eq(rpc_keytab_get(tab, 0)->identity, "user:alice");
	ck_assert_str_eq(rpc_keytab_get(tab, 2)->identity, "user:last");
	key = rpc_keytab_find(tab, "host:fsd1");
	ck_assert_ptr_eq(key, rpc_keytab_get(tab, 1));
	ck_assert_int_eq(key->kind, RPC_IDENTITY_HOST);
	ck_assert(key->admin);
	ck_assert_uint_eq(key->secret[0], 0xff);
	ck_assert_int_eq(key->expires_ns, INT64_C(1893456000) * GX_NSEC_PER_SEC);
	ck_assert_ptr_null(rpc_keytab_find(tab, "user:nobody"));
	ck_assert_uint_eq(errors.bytes, 0);
}
END_TEST

static const struct {
	const char *line;
	int result;
	const char *message;
} bad_lines[] = {
	{"alice key=" SECRET_HEX, -EINVAL, "must start with user:NAME"},
	{"user: key=" SECRET_HEX, -EINVAL, "must start with user:NAME"},
	{"key=" SECRET_HEX " user:alice", -EINVAL, "must start with user:NAME"},
	{"user:alice", -EINVAL, "key= is missing"},
	{"user:alice key=", -EINVAL, "64 hex digits"},
	{"user:alice key=" SECRET_HEX "00", -EINVAL, "64 hex digits"},
	{"user:alice key=0" SECRET_HEX, -EINVAL, "64 hex digits"},
	{"user:alice key=xx0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", -EINVAL,
	 "64 hex digits"},
	{"user:alice " SECRET_HEX, -EINVAL, "unknown word"},
	{"user:alice key=" SECRET_HEX " admn", -EINVAL, "unknown word"},
	{"user:alice key=" SECRET_HEX " key=" SECRET_HEX, -EINVAL, "twice"},
	{"user:alice key=" SECRET_HEX " created=yesterday", -EINVAL, "created= wants"},
	{"user:alice key=" SECRET_HEX " expires=", -EINVAL, "expires= wants"},
	{"user:alice key=" SECRET_HEX " expires=tomorrow", -EINVAL, "expires= wants"},
	/* The number 0 means never: a date that reads as 0 must not. */
	{"user:alice key=" SECRET_HEX " expires=1970-01-01", -EINVAL, "expires= wants"},
	{"user:bob key=" SECRET_HEX "\nuser:bob key=" SECRET_HEX, -EEXIST, "has a key already"},
};

START_TEST(a_bad_line_is_named_and_its_secret_never_shown)
{
	char text[1024];

	ck_assert_int_eq(gx_format(text, sizeof(text), "# one\n# two\n%s\n", bad_lines[_i].line),
			 0);
	ck_assert_int_eq(parse(text), bad_lines[_i].result);
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), bad_lines[_i].message));
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors),
				     bad_lines[_i].result == -EEXIST ? "file:4: " : "file:3: "));
	ck_assert_ptr_null(strstr(gx_buf_text(&errors), "0102030405"));
	ck_assert_ptr_null(strstr(gx_buf_text(&errors), "1c1d1e"));
	/* Without a place for messages the verdict is the same. */
	rpc_keytab_free(tab);
	ck_assert_int_eq(rpc_keytab_new(&tab), 0);
	ck_assert_int_eq(rpc_keytab_parse(tab, "file", text, strlen(text), NULL),
			 bad_lines[_i].result);
}
END_TEST

START_TEST(long_and_binary_lines_are_refused)
{
	char text[2048];

	memset(text, ' ', sizeof(text));
	ck_assert_int_eq(rpc_keytab_parse(tab, "file", text, sizeof(text), &errors), -EINVAL);
	ck_assert_int_eq(rpc_keytab_parse(tab, "file", "user:a\0", 7, &errors), -EINVAL);
	ck_assert_int_eq(rpc_keytab_parse(tab, "file", "", 0, &errors), 0);
	ck_assert_int_eq(rpc_keytab_parse(tab, "file", NULL, 0, &errors), 0);
}
END_TEST

START_TEST(put_replaces_only_when_told)
{
	struct rpc_key key;

	ck_assert_int_eq(rpc_key_make(env, "user:a", 0, false, &key), 0);
	ck_assert_int_eq(rpc_keytab_put(tab, &key, false), 0);
	ck_assert_int_eq(rpc_keytab_put(tab, &key, false), -EEXIST);
	key.admin = true;
	ck_assert_int_eq(rpc_keytab_put(tab, &key, true), 0);
	ck_assert(rpc_keytab_find(tab, "user:a")->admin);
	ck_assert_uint_eq(rpc_keytab_count(tab), 1);
	ck_assert_int_eq(rpc_keytab_remove(tab, "user:a"), 0);
	ck_assert_int_eq(rpc_keytab_remove(tab, "user:a"), -ENOENT);
	ck_assert_uint_eq(rpc_keytab_count(tab), 0);
}
END_TEST

/* -- files ------------------------------------------------------------------------------ */

START_TEST(a_saved_table_reads_back_the_same)
{
	struct rpc_keytab *again;
	struct stat st;

	for (unsigned i = 0; i < 300; i++) {
		struct rpc_key key;
		char identity[64];

		ck_assert_int_eq(gx_format(identity, sizeof(identity), "user:u%u", i), 0);
		ck_assert_int_eq(
			rpc_key_make(env, identity, i % 3 * GX_NSEC_PER_SEC, i % 2 == 0, &key), 0);
		ck_assert_int_eq(rpc_keytab_put(tab, &key, false), 0);
	}
	umask(0);
	ck_assert_int_eq(rpc_keytab_save(tab, env, path), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(rpc_keytab_new(&again), 0);
	ck_assert_int_eq(rpc_keytab_load(again, env, path, &errors), 0);
	ck_assert_uint_eq(rpc_keytab_count(again), 300);
	for (size_t i = 0; i < 300; i++) {
		const struct rpc_key *a = rpc_keytab_get(tab, i), *b = rpc_keytab_get(again, i);

		ck_assert_str_eq(a->identity, b->identity);
		ck_assert_mem_eq(a->secret, b->secret, RPC_KEY_BYTES);
		ck_assert_int_eq(a->created_ns, b->created_ns);
		ck_assert_int_eq(a->expires_ns, b->expires_ns);
		ck_assert_int_eq(a->admin, b->admin);
	}
	rpc_keytab_free(again);
}
END_TEST

START_TEST(a_leftover_of_an_earlier_save_does_not_matter)
{
	char beside[160];
	struct stat st;

	ck_assert_int_eq(gx_format(beside, sizeof(beside), "%s.new", path), 0);
	write_path(beside, "half a line", 0644);
	ck_assert_int_eq(parse(GOOD_LINE), 0);
	ck_assert_int_eq(rpc_keytab_save(tab, env, path), 0);
	ck_assert_int_eq(stat(beside, &st), -1);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
}
END_TEST

START_TEST(a_failed_save_leaves_the_old_file_whole)
{
	struct gx_env failing = *env;
	struct rpc_keytab *again;
	unsigned failures = 0;

	write_path(path, "user:old key=" SECRET_HEX "\n", 0600);
	ck_assert_int_eq(parse(GOOD_LINE), 0);
	for (uint64_t nth = 1;; nth++) {
		struct gx_fault fault = {.kinds = ~UINT64_C(0), .nth = nth};
		int r;

		failing.fault = &fault;
		r = rpc_keytab_save(tab, &failing, path);
		if (fault.fired == 0) {
			ck_assert_int_eq(r, 0);
			break;
		}
		ck_assert_int_lt(r, 0);
		failures++;
		/* Old or new, but always one of them and always complete. */
		ck_assert_int_eq(rpc_keytab_new(&again), 0);
		ck_assert_int_eq(rpc_keytab_load(again, env, path, &errors), 0);
		ck_assert_uint_eq(rpc_keytab_count(again), 1);
		rpc_keytab_free(again);
	}
	ck_assert_uint_ge(failures, 5);
}
END_TEST

static const mode_t open_modes[] = {0644, 0640, 0660, 0604, 0610, 0601, 0620, 0602, 0666, 0777};

START_TEST(a_file_open_to_others_is_refused)
{
	write_path(path, GOOD_LINE, open_modes[_i]);
	ck_assert_int_eq(load(), -EPERM);
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), "chmod 600"));
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), path));
	ck_assert_uint_eq(rpc_keytab_count(tab), 0);
}
END_TEST

START_TEST(a_private_file_is_taken)
{
	write_path(path, GOOD_LINE, _i == 0 ? 0600 : 0400);
	ck_assert_int_eq(load(), 0);
	ck_assert_uint_eq(rpc_keytab_count(tab), 1);
}
END_TEST

START_TEST(a_file_of_another_user_is_refused)
{
	if (geteuid() != 0)
		return; /* only root can give a file away */
	write_path(path, GOOD_LINE, 0600);
	ck_assert_int_eq(chown(path, 12345, (gid_t)-1), 0);
	ck_assert_int_eq(load(), -EPERM);
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), "another user"));
}
END_TEST

START_TEST(what_is_no_regular_file_is_refused_without_hanging)
{
	if (_i == 0)
		ck_assert_int_eq(mkdir(path, 0700), 0);
	else
		ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(load(), -EPERM);
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), "regular file"));
}
END_TEST

START_TEST(a_missing_file_is_named)
{
	ck_assert_int_eq(load(), -ENOENT);
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), path));
}
END_TEST

START_TEST(a_file_over_the_maximum_is_refused)
{
	write_path(path, GOOD_LINE, 0600);
	ck_assert_int_eq(truncate(path, (off_t)GX_KEYTAB_BYTES_MAX + 1), 0);
	ck_assert_int_eq(load(), -E2BIG);
	ck_assert_uint_eq(rpc_keytab_count(tab), 0);
}
END_TEST

START_TEST(a_key_file_holds_exactly_one_key)
{
	struct rpc_key key;

	write_path(path, GOOD_LINE, 0600);
	ck_assert_int_eq(rpc_key_load(env, path, &key, &errors), 0);
	ck_assert_str_eq(key.identity, "user:alice");
	rpc_key_clear(&key);
	ck_assert_uint_eq(key.secret[31], 0);
	write_path(path, GOOD_LINE "user:b key=" SECRET_HEX "\n", 0600);
	ck_assert_int_eq(rpc_key_load(env, path, &key, &errors), -EINVAL);
	write_path(path, "# nothing\n", 0600);
	ck_assert_int_eq(rpc_key_load(env, path, &key, &errors), -EINVAL);
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), "exactly one key"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_key");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, identities_are_strict);
	tcase_add_test(tc, made_keys_differ_and_last_as_long_as_asked);
	tcase_add_test(tc, a_fingerprint_is_stable_and_shows_no_key_byte);
	tcase_add_test(tc, a_table_is_read_in_order);
	tcase_add_loop_test(tc, a_bad_line_is_named_and_its_secret_never_shown, 0,
			    (int)GX_COUNT_OF(bad_lines));
	tcase_add_test(tc, long_and_binary_lines_are_refused);
	tcase_add_test(tc, put_replaces_only_when_told);
	tcase_add_test(tc, a_saved_table_reads_back_the_same);
	tcase_add_test(tc, a_leftover_of_an_earlier_save_does_not_matter);
	tcase_add_test(tc, a_failed_save_leaves_the_old_file_whole);
	tcase_add_loop_test(tc, a_file_open_to_others_is_refused, 0, (int)GX_COUNT_OF(open_modes));
	tcase_add_loop_test(tc, a_private_file_is_taken, 0, 2);
	tcase_add_test(tc, a_file_of_another_user_is_refused);
	tcase_add_loop_test(tc, what_is_no_regular_file_is_refused_without_hanging, 0, 2);
	tcase_add_test(tc, a_missing_file_is_named);
	tcase_add_test(tc, a_file_over_the_maximum_is_refused);
	tcase_add_test(tc, a_key_file_holds_exactly_one_key);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
