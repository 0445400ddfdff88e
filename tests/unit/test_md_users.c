/*
 * The table of users and groups: what is read, what is refused, and that all of it is told at once.
 */
#include "metad/md_users.h"
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static struct md_users *users;
static struct gx_buf errors;
static char dir[64], path[128];

static void setup(void)
{
	const char *tmp = getenv("TMPDIR");

	users = NULL;
	gx_buf_init(&errors, 16384);
	ck_assert_int_eq(gx_format(dir, sizeof(dir), "%s/mdusers.XXXXXX",
				   tmp && strlen(tmp) < 40 ? tmp : "/tmp"),
			 0);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/users", dir), 0);
}

static void teardown(void)
{
	md_users_free(users);
	gx_buf_fini(&errors);
	rmdir(path);
	unlink(path);
	rmdir(dir);
}

static int parse(const char *text)
{
	md_users_free(users);
	users = NULL;
	gx_buf_clear(&errors);
	return md_users_parse("file", text, strlen(text), &errors, &users);
}

static void write_path(const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

static int load(void)
{
	gx_buf_clear(&errors);
	return md_users_load(gx_env_posix(), path, &errors, &users);
}

/* -- what is read -------------------------------------------------------------------- */

START_TEST(users_and_groups_are_found_by_name_and_number)
{
	const struct md_user *user;

	ck_assert_int_eq(parse("# who is who\n\n"
			       "user  alice 1000 100 20,30\n"
			       "\tuser bob\t0 0 \r\n"
			       "  # indented\n"
			       "group staff 100\n"
			       "group alice 4294967294\n"
			       "user last@x 4294967294 4294967294"),
			 0);
	ck_assert_uint_eq(errors.bytes, 0);
	user = md_users_by_name(users, "alice");
	ck_assert_ptr_nonnull(user);
	ck_assert_ptr_eq(user, md_users_by_uid(users, 1000));
	ck_assert_str_eq(user->name, "alice");
	ck_assert_uint_eq(user->cred.uid, 1000);
	ck_assert_uint_eq(user->cred.gid, 100);
	ck_assert_uint_eq(user->cred.group_count, 2);
	ck_assert_uint_eq(user->cred.groups[0], 20);
	ck_assert_uint_eq(user->cred.groups[1], 30);
	ck_assert_uint_eq(md_users_by_name(users, "bob")->cred.group_count, 0);
	ck_assert_uint_eq(md_users_by_name(users, "last@x")->cred.gid, 4294967294u);
	ck_assert_uint_eq(md_groups_by_name(users, "staff")->gid, 100);
	ck_assert_str_eq(md_groups_by_gid(users, 4294967294u)->name, "alice");
}
END_TEST

START_TEST(who_is_not_in_the_table_is_nobody)
{
	ck_assert_int_eq(parse("user alice 1000 100 20\ngroup staff 100\n"), 0);
	ck_assert_ptr_null(md_users_by_name(users, "staff"));
	ck_assert_ptr_null(md_users_by_name(users, ""));
	ck_assert_ptr_null(md_users_by_name(users, "alic"));
	ck_assert_ptr_null(md_users_by_uid(users, 100));
	ck_assert_ptr_null(md_groups_by_name(users, "alice"));
	/* A group somebody is in need not have a name. */
	ck_assert_ptr_null(md_groups_by_gid(users, 20));
	ck_assert_int_eq(parse(""), 0);
	ck_assert_ptr_null(md_users_by_name(users, "root"));
}
END_TEST

START_TEST(without_a_file_there_is_root)
{
	const struct md_user *root;

	ck_assert_int_eq(md_users_load(gx_env_posix(), NULL, &errors, &users), 0);
	root = md_users_by_name(users, "root");
	ck_assert_ptr_nonnull(root);
	ck_assert_ptr_eq(root, md_users_by_uid(users, 0));
	ck_assert_uint_eq(root->cred.gid, 0);
	ck_assert_uint_eq(root->cred.group_count, 0);
	ck_assert_ptr_null(md_groups_by_gid(users, 0));
}
END_TEST

START_TEST(a_user_has_as_many_groups_as_a_command_can_carry)
{
	static char line[MD_GROUPS_MAX * 5 + 64];
	size_t at = (size_t)snprintf(line, sizeof(line), "user u 1 1 1");

	for (unsigned i = 1; i < MD_GROUPS_MAX; i++)
		at += (size_t)snprintf(line + at, sizeof(line) - at, ",%u", i + 1);
	ck_assert_int_eq(parse(line), 0);
	ck_assert_uint_eq(md_users_by_uid(users, 1)->cred.group_count, MD_GROUPS_MAX);
	ck_assert_uint_eq(md_users_by_uid(users, 1)->cred.groups[MD_GROUPS_MAX - 1], MD_GROUPS_MAX);
	snprintf(line + at, sizeof(line) - at, ",7");
	ck_assert_int_eq(parse(line), -EINVAL);
	ck_assert_str_eq(gx_buf_text(&errors), "file:1: more than 1024 further groups\n");
}
END_TEST

START_TEST(thousands_of_users_are_all_found)
{
	static char text[20000 * 32];
	char name[16];
	size_t at = 0;

	for (unsigned i = 0; i < 20000; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "user u%u %u 1\n", i, i + 5);
	ck_assert_int_eq(parse(text), 0);
	for (unsigned i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "u%u", i);
		ck_assert_ptr_nonnull(md_users_by_name(users, name));
		ck_assert_ptr_eq(md_users_by_name(users, name), md_users_by_uid(users, i + 5));
	}
}
END_TEST

/* -- what is refused ----------------------------------------------------------------- */

static const char *const bad_lines[] = {
	"alice 1000 100",
	"User alice 1000 100",
	"user",
	"user alice",
	"user alice 1000",
	"user alice 1000 100 20 30",
	"user alice 1000 100 20, 30",
	"user alice 1000 100 # first",
	"user .alice 1000 100",
	"user al/ice 1000 100",
	"user \xc3\xa4 1000 100",
	"user aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 7 7",
	"user alice -1 100",
	"user alice 4294967295 100",
	"user alice 1000 4294967295",
	"user alice 1000 99999999999999999999",
	"user alice 0x10 100",
	"user alice 1000 100 20,,30",
	"user alice 1000 100 20,",
	"user alice 1000 100 ,",
	"user alice 1000 100 4294967295",
	"group",
	"group staff",
	"group staff x",
	"group staff 4294967295",
	"group staff 100 alice",
	"group -staff 100",
};

START_TEST(a_bad_line_is_refused_with_its_number)
{
	char text[256];

	snprintf(text, sizeof(text), "# one\nuser ok 1 1\n%s\ngroup ok 1\n", bad_lines[_i]);
	ck_assert_msg(parse(text) == -EINVAL, "%s", bad_lines[_i]);
	ck_assert_ptr_null(users);
	ck_assert_msg(strncmp(gx_buf_text(&errors), "file:3: ", 8) == 0, "%s",
		      gx_buf_text(&errors));
	ck_assert_ptr_eq(strchr((char *)errors.data, '\n'), errors.data + errors.bytes - 1);
}
END_TEST

START_TEST(a_nul_byte_is_refused)
{
	static const char text[] = "user a 1 1\0 2\nuser b 2 2\n";

	ck_assert_int_eq(md_users_parse("file", text, sizeof(text) - 1, &errors, &users), -EINVAL);
	ck_assert_str_eq(gx_buf_text(&errors), "file:1: a NUL byte\n");
}
END_TEST

START_TEST(all_problems_are_told_in_one_go)
{
	ck_assert_int_eq(parse("user a/b x y z\n"
			       "user alice 1000 100\n"
			       "nonsense\n"
			       "user alice 1000 100\n"
			       "user half 2000 -\n"
			       "user half 2001 1\n"
			       "user other 2000 1\n"
			       "group g 5\n"
			       "group g 5\n"
			       "group 1000 1000\n"),
			 -EINVAL);
	ck_assert_str_eq(
		gx_buf_text(&errors),
		"file:1: a name has 1 to 64 letters, digits, '.', '_', '-', '@', no '.' or '-' "
		"first\n"
		"file:1: uid wants a number from 0 to 4294967294\n"
		"file:1: gid wants a number from 0 to 4294967294\n"
		"file:1: each further gid wants a number from 0 to 4294967294, commas and no "
		"blanks between\n"
		"file:3: a line starts with user, group or #\n"
		"file:4: user alice is in line 2 already\n"
		"file:4: uid 1000 is in line 2 already\n"
		"file:5: gid wants a number from 0 to 4294967294\n"
		"file:6: user half is in line 5 already\n"
		"file:7: uid 2000 is in line 5 already\n"
		"file:9: group g is in line 8 already\n"
		"file:9: gid 5 is in line 8 already\n");
}
END_TEST

START_TEST(problems_without_a_place_to_tell_them_still_refuse_the_file)
{
	/* The third problem would fit behind the first, but would hide that there is a second. */
	static const char text[] = "x\ny\n\0\n";
	struct gx_buf small;

	ck_assert_int_eq(md_users_parse("f", text, strlen(text), NULL, &users), -EINVAL);
	gx_buf_init(&small, 60);
	ck_assert_int_eq(md_users_parse("f", text, sizeof(text) - 1, &small, &users), -EINVAL);
	ck_assert_str_eq(gx_buf_text(&small), "f:1: a line starts with user, group or #\n");
	gx_buf_fini(&small);
	ck_assert_ptr_null(users);
}
END_TEST

/* -- the file ------------------------------------------------------------------------ */

START_TEST(a_file_is_read)
{
	write_path("user alice 1000 100\n", 0644);
	ck_assert_int_eq(load(), 0);
	ck_assert_ptr_nonnull(md_users_by_name(users, "alice"));
	md_users_free(users);
	users = NULL;
	write_path("", 0600);
	ck_assert_int_eq(load(), 0);
	ck_assert_ptr_null(md_users_by_uid(users, 1000));
}
END_TEST

START_TEST(problems_of_a_file_name_it)
{
	char wanted[256];

	write_path("user alice 1000 100\nuser\n", 0600);
	ck_assert_int_eq(load(), -EINVAL);
	snprintf(wanted, sizeof(wanted), "%s:2: a user's line is: user NAME UID GID [GID,GID...]\n",
		 path);
	ck_assert_str_eq(gx_buf_text(&errors), wanted);
	unlink(path);
	ck_assert_int_eq(load(), -ENOENT);
	snprintf(wanted, sizeof(wanted), "%s: No such file or directory\n", path);
	ck_assert_str_eq(gx_buf_text(&errors), wanted);
}
END_TEST

START_TEST(a_file_that_others_can_write_is_refused)
{
	static const mode_t modes[] = {0620, 0602, 0666};

	for (size_t i = 0; i < GX_COUNT_OF(modes); i++) {
		write_path("user alice 1000 100\n", modes[i]);
		ck_assert_int_eq(load(), -EPERM);
		ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), "can be written by others"));
		ck_assert_ptr_null(users);
	}
	ck_assert_int_eq(md_users_load(gx_env_posix(), path, NULL, &users), -EPERM);
}
END_TEST

START_TEST(a_file_of_another_user_is_refused)
{
	write_path("user alice 1000 100\n", 0600);
	/* Only root can give a file away; everybody else has nothing to test here. */
	if (geteuid() != 0)
		return;
	ck_assert_int_eq(chown(path, 12345, (gid_t)-1), 0);
	ck_assert_int_eq(load(), -EPERM);
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), "belongs to another user"));
}
END_TEST

START_TEST(what_is_no_regular_file_is_refused_without_waiting)
{
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(load(), -EPERM);
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(load(), -EPERM);
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), "must be a regular file"));
}
END_TEST

START_TEST(a_file_that_is_too_long_is_refused)
{
	write_path("# long\n", 0600);
	ck_assert_int_eq(truncate(path, (off_t)MD_USERS_FILE_MAX + 1), 0);
	ck_assert_int_eq(load(), -E2BIG);
	ck_assert_uint_gt(errors.bytes, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_users");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, users_and_groups_are_found_by_name_and_number);
	tcase_add_test(tc, who_is_not_in_the_table_is_nobody);
	tcase_add_test(tc, without_a_file_there_is_root);
	tcase_add_test(tc, a_user_has_as_many_groups_as_a_command_can_carry);
	tcase_add_test(tc, thousands_of_users_are_all_found);
	tcase_add_loop_test(tc, a_bad_line_is_refused_with_its_number, 0,
			    (int)GX_COUNT_OF(bad_lines));
	tcase_add_test(tc, a_nul_byte_is_refused);
	tcase_add_test(tc, all_problems_are_told_in_one_go);
	tcase_add_test(tc, problems_without_a_place_to_tell_them_still_refuse_the_file);
	tcase_add_test(tc, a_file_is_read);
	tcase_add_test(tc, problems_of_a_file_name_it);
	tcase_add_test(tc, a_file_that_others_can_write_is_refused);
	tcase_add_test(tc, a_file_of_another_user_is_refused);
	tcase_add_test(tc, what_is_no_regular_file_is_refused_without_waiting);
	tcase_add_test(tc, a_file_that_is_too_long_is_refused);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
