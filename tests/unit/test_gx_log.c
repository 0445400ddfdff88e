#define GX_LOG_COMPONENT "rpc.server"
#include "common/gx_log.h"
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char lines[64][GX_LOG_LINE_MAX];
static int line_count;
static enum gx_log_level last_level;
static int64_t clock_ns;

static void keep_line(void *arg, enum gx_log_level level, const char *line)
{
	(void)arg;
	last_level = level;
	ck_assert_int_eq(gx_strcpy(lines[line_count++ % 64], GX_LOG_LINE_MAX, line), 0);
}

static int64_t test_clock(void)
{
	return clock_ns;
}

static const char *last_line(void)
{
	ck_assert_int_gt(line_count, 0);
	return lines[(line_count - 1) % 64];
}

static void setup(void)
{
	line_count = 0;
	clock_ns = INT64_C(1794830400123456789); /* 2026-11-16T12:00:00.123456789Z */
	gx_log_set_clock(test_clock);
	gx_log_set_request(0);
	gx_log_to_callback(keep_line, NULL);
	ck_assert_int_eq(gx_log_set_levels("info"), 0);
}

static void teardown(void)
{
	gx_log_to_stderr();
	gx_log_set_clock(NULL);
}

START_TEST(a_line_has_time_level_component_request_message_and_pairs)
{
	gx_log_set_request(255);
	ck_assert_uint_eq(gx_log_request(), 255);
	gx_log(WARNING, "handshake refused", GX_KS("peer", "127.0.0.1:5"),
	       GX_KS("reason", "wrong key"));
	ck_assert_str_eq(last_line(), "2026-11-16T12:00:00.123456Z warning rpc.server "
				      "req=00000000000000ff handshake refused peer=127.0.0.1:5 "
				      "reason=\"wrong key\"");
	ck_assert_int_eq(last_level, GX_LOG_WARNING);
	gx_log_set_request(0);
	gx_log(ERR, "x");
	ck_assert_str_eq(last_line(), "2026-11-16T12:00:00.123456Z err rpc.server x");
}
END_TEST

START_TEST(numbers_and_errors_are_printed_by_type)
{
	errno = EAGAIN;
	gx_log(INFO, "n", GX_KI("i", -5), GX_KU("u", UINT64_MAX), GX_KX("x", 0xabc), GX_KE(-ENOENT),
	       GX_KS("none", NULL));
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_ptr_nonnull(strstr(last_line(), "n i=-5 u=18446744073709551615 "
						  "x=0000000000000abc "
						  "error=\"No such file or directory\" none=-"));
}
END_TEST

START_TEST(log_errno_gives_its_error_back)
{
	int r = gx_log_errno(ERR, -EIO, "cannot read", GX_KS("path", "/x"));

	ck_assert_int_eq(r, -EIO);
	ck_assert_ptr_nonnull(strstr(last_line(), "error=\"Input/output error\" path=/x"));
}
END_TEST

static const struct {
	const char *value;
	const char *shown;
} escapes[] = {
	{"plain_./:@+-09AZaz", "v=plain_./:@+-09AZaz"},
	{"", "v=\"\""},
	{"-", "v=\"-\""},
	{"two words", "v=\"two words\""},
	{"a=b", "v=\"a=b\""},
	{"say \"hi\"", "v=\"say \\\"hi\\\"\""},
	{"back\\slash", "v=\"back\\\\slash\""},
	{"x\n2026-11-16T12:00:00Z err forged", "v=\"x\\x0a2026-11-16T12:00:00Z err forged\""},
	{"\x1b[31mred\x7f", "v=\"\\x1b[31mred\\x7f\""},
	{"gr\xc3\xbc\xc3\x9f", "v=\"gr\xc3\xbc\xc3\x9f\""},
	{"\xff\xfe", "v=\"\\xff\\xfe\""},
	{"cut\xe2\x80", "v=\"cut\\xe2\\x80\""},
	{"c1\xc2\x9b", "v=\"c1\\xc2\\x9b\""},
	{"rlo\xe2\x80\xae", "v=\"rlo\\xe2\\x80\\xae\""},
	{"sep\xe2\x80\xa8", "v=\"sep\\xe2\\x80\\xa8\""},
};

START_TEST(values_from_outside_are_escaped)
{
	gx_log(INFO, "m", GX_KS("v", escapes[_i].value));
	ck_assert_str_eq(strstr(last_line(), "v="), escapes[_i].shown);
}
END_TEST

START_TEST(a_newline_in_a_message_cannot_start_a_line)
{
	gx_log(INFO, "one\ntwo");
	ck_assert_ptr_nonnull(strstr(last_line(), "one\\x0atwo"));
}
END_TEST

START_TEST(a_long_value_is_cut_with_an_ellipsis)
{
	char value[3000];

	memset(value, 'a', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	gx_log(INFO, "m", GX_KS("v", value), GX_KS("after", "yes"));
	ck_assert_ptr_nonnull(strstr(last_line(), "aaa\xe2\x80\xa6 after=yes"));
	value[0] = ' ';
	gx_log(INFO, "m", GX_KS("v", value), GX_KS("after", "yes"));
	ck_assert_ptr_nonnull(strstr(last_line(), "aaa\xe2\x80\xa6\" after=yes"));
}
END_TEST

START_TEST(a_long_line_is_cut_at_a_character_and_stays_within_its_maximum)
{
	char value[600];

	/* Two-byte characters, shifted by 0 to 7 bytes, so that the cut falls on every place. */
	for (int shift = 0; shift < 8; shift++) {
		const char *end;
		size_t bytes;

		memset(value, 'x', sizeof(value));
		for (size_t i = (size_t)shift; i + 1 < 490; i += 2) {
			value[i] = '\xc3';
			value[i + 1] = '\xbc';
		}
		value[490] = '\0';
		gx_log(ERR, "m", GX_KS("a", value), GX_KS("b", value), GX_KS("c", value),
		       GX_KS("d", value), GX_KS("e", value));
		bytes = strlen(last_line());
		ck_assert_uint_lt(bytes, GX_LOG_LINE_MAX);
		ck_assert_uint_gt(bytes, GX_LOG_LINE_MAX - 16);
		end = last_line() + bytes - 4;
		ck_assert_str_eq(end, "\xe2\x80\xa6\"");
		ck_assert(end[-1] == '\xbc' || end[-1] == 'x');
	}
}
END_TEST

START_TEST(every_length_of_values_makes_a_whole_line)
{
	char value[520];

	for (size_t bytes = 0; bytes < sizeof(value) - 1; bytes++) {
		memset(value, ' ', bytes);
		value[bytes] = '\0';
		gx_log(ERR, "m", GX_KS("a", value), GX_KS("b", value), GX_KS("c", value),
		       GX_KS("d", value), GX_KU("n", 123456789));
		ck_assert_uint_lt(strlen(last_line()), GX_LOG_LINE_MAX);
		/* Quotes are balanced, whatever was cut. */
		size_t quotes = 0;
		for (const char *p = last_line(); *p != '\0'; p++)
			quotes += *p == '"';
		ck_assert_uint_eq(quotes % 2, 0);
	}
}
END_TEST

static int evaluated;
static const char *evaluate(void)
{
	evaluated++;
	return "value";
}

/* One call site for all steps, so that its cached level has to follow. */
static void debug_site(void)
{
	gx_log(DEBUG, "details", GX_KS("v", evaluate()));
}

START_TEST(levels_follow_the_longest_component_and_change_at_run_time)
{
	static const struct {
		const char *spec;
		bool printed;
	} steps[] = {{"info", false},
		     {"debug", true},
		     {"err,rpc=debug", true},
		     {"debug,rpc=info", false},
		     {"info,rpc=info,rpc.server=debug", true},
		     {"info,rpc.server=debug,rpc=info", true},
		     {"info,rp=debug", false},
		     {"info,rpc.serve=debug", false},
		     {"info,rpc.server.x=debug", false},
		     {"rpc=debug", true},
		     {"7", true},
		     {"6", false},
		     {" info , rpc=debug ", true}};

	for (size_t i = 0; i < GX_COUNT_OF(steps); i++) {
		int before = line_count, evaluated_before = evaluated;

		clock_ns += GX_NSEC_PER_SEC;
		ck_assert_int_eq(gx_log_set_levels(steps[i].spec), 0);
		debug_site();
		ck_assert_msg((line_count > before) == steps[i].printed, "%s", steps[i].spec);
		ck_assert_int_eq(evaluated - evaluated_before, steps[i].printed);
	}
}
END_TEST

START_TEST(bad_levels_are_refused_and_change_nothing)
{
	static const char *const bad[] = {
		"",  "loud",     "info,",       ",info", "rpc=",   "=debug",        "2",
		"8", "rpc=loud", "info,,debug", "INFO",  "rpc =x", "info;rpc=debug"};
	char many[2000] = "info";
	enum gx_log_level level;

	ck_assert_int_eq(gx_log_set_levels("debug"), 0);
	for (size_t i = 0; i < GX_COUNT_OF(bad); i++) {
		ck_assert_int_eq(gx_log_set_levels(bad[i]), -EINVAL);
		ck_assert_int_eq(gx_log_check_levels(bad[i]), -EINVAL);
		ck_assert_int_eq(gx_log_parse_level(bad[i], &level), -EINVAL);
	}
	for (size_t i = 0; i <= GX_LOG_RULES_MAX; i++)
		ck_assert_int_eq(gx_format(many + strlen(many), sizeof(many) - strlen(many),
					   ",c%zu=debug", i),
				 0);
	ck_assert_int_eq(gx_log_set_levels(many), -E2BIG);
	debug_site();
	ck_assert_int_eq(line_count, 1);
	ck_assert_int_eq(gx_log_parse_level("notice", &level), 0);
	ck_assert_int_eq(level, GX_LOG_NOTICE);
}
END_TEST

static void chatty_site(void)
{
	gx_log(INFO, "chatter", GX_KS("k", "v"));
}

START_TEST(a_site_that_repeats_itself_is_limited_and_says_so)
{
	for (int i = 0; i < 100; i++)
		chatty_site();
	ck_assert_int_eq(line_count, (int)GX_LOG_SITE_RATE);
	ck_assert_ptr_null(strstr(last_line(), "suppressed"));
	clock_ns += GX_NSEC_PER_SEC;
	chatty_site();
	ck_assert_ptr_nonnull(strstr(last_line(), "chatter suppressed=90 k=v"));
	chatty_site();
	ck_assert_ptr_null(strstr(last_line(), "suppressed"));
	/* A clock that jumps back must not silence a site. */
	for (int i = 0; i < 100; i++)
		chatty_site();
	line_count = 0;
	clock_ns -= 3600 * GX_NSEC_PER_SEC;
	chatty_site();
	ck_assert_int_eq(line_count, 1);
}
END_TEST

START_TEST(errors_are_never_suppressed)
{
	for (int i = 0; i < 40; i++)
		gx_log(ERR, "broken");
	ck_assert_int_eq(line_count, 40);
}
END_TEST

static void make_dir(char dir[64])
{
	ck_assert_int_eq(gx_format(dir, 64, "/tmp/test_gx_log.XXXXXX"), 0);
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static size_t read_whole(const char *path, char *text, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	ck_assert_int_ge(fd, 0);
	n = read(fd, text, bytes - 1);
	ck_assert_int_ge(n, 0);
	close(fd);
	text[n] = '\0';
	return (size_t)n;
}

START_TEST(a_log_file_is_appended_to_and_reopened_after_rotation)
{
	char dir[64], path[96], old[96], text[4096];

	make_dir(dir);
	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/log", dir), 0);
	ck_assert_int_eq(gx_format(old, sizeof(old), "%s/log.1", dir), 0);
	ck_assert_int_eq(gx_log_open_file(path), 0);
	gx_log(INFO, "first");
	ck_assert_int_eq(gx_log_open_file(path), 0);
	gx_log(INFO, "second");
	ck_assert_int_eq(rename(path, old), 0);
	gx_log(INFO, "third");
	ck_assert_int_eq(gx_log_reopen(), 0);
	gx_log(INFO, "fourth");
	read_whole(old, text, sizeof(text));
	ck_assert_str_eq(text, "2026-11-16T12:00:00.123456Z info rpc.server first\n"
			       "2026-11-16T12:00:00.123456Z info rpc.server second\n"
			       "2026-11-16T12:00:00.123456Z info rpc.server third\n");
	read_whole(path, text, sizeof(text));
	ck_assert_str_eq(text, "2026-11-16T12:00:00.123456Z info rpc.server fourth\n");
	/* A directory in the way: the old file stays in use. */
	ck_assert_int_eq(unlink(old), 0);
	ck_assert_int_eq(rename(path, old), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(gx_log_reopen(), -EISDIR);
	gx_log(INFO, "fifth");
	read_whole(old, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "fifth"));
	ck_assert_int_eq(gx_log_open_file("/nonexistent/dir/log"), -ENOENT);
	gx_log_to_stderr();
	ck_assert_int_eq(gx_log_reopen(), 0);
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(unlink(old), 0);
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

/* Points stderr at a pipe, logs one line, and returns what came out. */
static void line_on_stderr(const char *journal, char *text, size_t bytes)
{
	int saved = dup(STDERR_FILENO), fds[2];
	struct stat st;
	char stream[64];
	ssize_t n;

	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_ge(dup2(fds[1], STDERR_FILENO), 0);
	ck_assert_int_eq(fstat(fds[1], &st), 0);
	ck_assert_int_eq(gx_format(stream, sizeof(stream), "%llu:%llu",
				   (unsigned long long)st.st_dev, (unsigned long long)st.st_ino),
			 0);
	setenv("JOURNAL_STREAM", journal != NULL ? journal : stream, 1);
	gx_log_to_stderr();
	gx_log(WARNING, "hello");
	unsetenv("JOURNAL_STREAM");
	dup2(saved, STDERR_FILENO);
	close(saved);
	n = read(fds[0], text, bytes - 1);
	ck_assert_int_gt(n, 0);
	text[n] = '\0';
	close(fds[0]);
	close(fds[1]);
}

START_TEST(the_journal_gets_the_level_as_a_prefix)
{
	char text[256];

	line_on_stderr(NULL, text, sizeof(text));
	ck_assert_str_eq(text, "<4>2026-11-16T12:00:00.123456Z warning rpc.server hello\n");
	line_on_stderr("1:1", text, sizeof(text));
	ck_assert_str_eq(text, "2026-11-16T12:00:00.123456Z warning rpc.server hello\n");
}
END_TEST

static void *log_many(void *arg)
{
	gx_log_set_request((uint64_t)(uintptr_t)arg);
	for (int i = 0; i < 500; i++) {
		gx_log(ERR, "from a thread", GX_KU("i", (uint64_t)i));
		gx_log(INFO, "limited");
		if (i % 100 == 0)
			ck_assert_int_eq(gx_log_set_levels(i % 200 ? "info" : "debug"), 0);
	}
	return NULL;
}

START_TEST(lines_of_several_threads_do_not_mix)
{
	char dir[64], path[96];
	static char text[1 << 20];
	pthread_t threads[4];
	int errors = 0;

	make_dir(dir);
	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/log", dir), 0);
	ck_assert_int_eq(gx_log_open_file(path), 0);
	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, log_many, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	gx_log_to_stderr();
	read_whole(path, text, sizeof(text));
	for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL && line[0] != '\0';) {
		ck_assert_int_eq(strncmp(line, "2026-11-16T12:00:00.123456Z ", 28), 0);
		errors += strstr(line, "from a thread i=") != NULL;
		ck_assert_ptr_null(strstr(line + 1, "2026"));
	}
	ck_assert_int_eq(errors, 2000);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gx_log");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 20);
	tcase_add_test(tc, a_line_has_time_level_component_request_message_and_pairs);
	tcase_add_test(tc, numbers_and_errors_are_printed_by_type);
	tcase_add_test(tc, log_errno_gives_its_error_back);
	tcase_add_loop_test(tc, values_from_outside_are_escaped, 0, (int)GX_COUNT_OF(escapes));
	tcase_add_test(tc, a_newline_in_a_message_cannot_start_a_line);
	tcase_add_test(tc, a_long_value_is_cut_with_an_ellipsis);
	tcase_add_test(tc, a_long_line_is_cut_at_a_character_and_stays_within_its_maximum);
	tcase_add_test(tc, every_length_of_values_makes_a_whole_line);
	tcase_add_test(tc, levels_follow_the_longest_component_and_change_at_run_time);
	tcase_add_test(tc, bad_levels_are_refused_and_change_nothing);
	tcase_add_test(tc, a_site_that_repeats_itself_is_limited_and_says_so);
	tcase_add_test(tc, errors_are_never_suppressed);
	tcase_add_test(tc, a_log_file_is_appended_to_and_reopened_after_rotation);
	tcase_add_test(tc, the_journal_gets_the_level_as_a_prefix);
	tcase_add_test(tc, lines_of_several_threads_do_not_mix);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
