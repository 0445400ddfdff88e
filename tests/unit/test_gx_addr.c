#include "common/gx_env.h"
#include <check.h>
#include <netinet/in.h>
#include <sys/un.h>

#define A50 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static struct gx_addr parsed(const char *text)
{
	struct gx_addr addr;
	enum gx_addr_security security;

	ck_assert_msg(gx_addr_parse(gx_env_posix(), text, &addr, &security) == 0, "%s", text);
	return addr;
}

static const struct {
	const char *text;
	const char *formatted;
	enum gx_addr_security security;
	bool local;
} good_rows[] = {
	{"127.0.0.1:70", "127.0.0.1:70", GX_SECURITY_AUTO, true},
	{"127.255.3.4:0", "127.255.3.4:0", GX_SECURITY_AUTO, true},
	{"10.1.2.3:65535", "10.1.2.3:65535", GX_SECURITY_AUTO, false},
	{"128.0.0.1:1", "128.0.0.1:1", GX_SECURITY_AUTO, false},
	{"0.0.0.0:70", "0.0.0.0:70", GX_SECURITY_AUTO, false},
	{"tls:10.1.2.3:70", "10.1.2.3:70", GX_SECURITY_TLS, false},
	{"plain:10.1.2.3:70", "10.1.2.3:70", GX_SECURITY_PLAIN, false},
	{"localhost:70", "127.0.0.1:70", GX_SECURITY_AUTO, true},
	{"[::1]:70", "[::1]:70", GX_SECURITY_AUTO, true},
	{"[::]:70", "[::]:70", GX_SECURITY_AUTO, false},
	{"tls:[2001:db8::5]:70", "[2001:db8::5]:70", GX_SECURITY_TLS, false},
	{"[::ffff:127.0.0.1]:70", "[::ffff:127.0.0.1]:70", GX_SECURITY_AUTO, true},
	{"[::ffff:10.0.0.1]:70", "[::ffff:10.0.0.1]:70", GX_SECURITY_AUTO, false},
	{"[fe80::1%1]:70", "[fe80::1%1]:70", GX_SECURITY_AUTO, false},
	{"unix:/run/x.sock", "unix:/run/x.sock", GX_SECURITY_AUTO, true},
	{"plain:unix:/run/a:b", "unix:/run/a:b", GX_SECURITY_PLAIN, true},
	{"mem:metad:70", "mem:metad:70", GX_SECURITY_AUTO, true},
};

START_TEST(good_text_parses_and_formats)
{
	char text[GX_ADDR_TEXT_MAX];
	enum gx_addr_security security = GX_SECURITY_COUNT;
	struct gx_addr addr;

	ck_assert_int_eq(gx_addr_parse(gx_env_posix(), good_rows[_i].text, &addr, &security), 0);
	gx_addr_format(&addr, text);
	ck_assert_str_eq(text, good_rows[_i].formatted);
	ck_assert_int_eq(security, good_rows[_i].security);
	ck_assert_int_eq(gx_addr_is_local(&addr), good_rows[_i].local);
}
END_TEST

static const struct {
	const char *text;
	int err;
} bad_rows[] = {
	{"", -EINVAL},
	{":", -EINVAL},
	{":70", -EINVAL},
	{"host", -EINVAL},
	{"127.0.0.1:", -EINVAL},
	{"127.0.0.1:65536", -EINVAL},
	{"127.0.0.1:99999999999", -EINVAL},
	{"127.0.0.1:-1", -EINVAL},
	{"127.0.0.1:+1", -EINVAL},
	{"127.0.0.1: 1", -EINVAL},
	{"127.0.0.1:070", -EINVAL},
	{"127.0.0.1:http", -EINVAL},
	{" 127.0.0.1:70", -EINVAL},
	{"127.0.0.1 :70", -EINVAL},
	{"127.0.0.1:70x", -EINVAL},
	{"127.1:70", -EINVAL},
	{"1:70", -EINVAL},
	{"0x7f000001:70", -EINVAL},
	{"127.0.0.256:70", -EINVAL},
	{"127.0.0.1.:70", -EINVAL},
	{"-host:70", -EINVAL},
	{"ho..st:70", -EINVAL},
	{"ho/st:70", -EINVAL},
	{"::1:70", -EINVAL},
	{"[::1]", -EINVAL},
	{"[::1]70", -EINVAL},
	{"[::1:70", -EINVAL},
	{"[]:70", -EINVAL},
	{"[::1%]:70", -EINVAL},
	{"[::1%a b]:70", -EINVAL},
	{"[127.0.0.1]:70", -EINVAL},
	{"[localhost]:70", -EINVAL},
	{"tls:", -EINVAL},
	{"tls:plain:127.0.0.1:70", -EINVAL},
	{"TLS:127.0.0.1:70", -EINVAL},
	{"unix:", -EINVAL},
	{"unix:relative", -EINVAL},
	{"unix:@abstract", -EINVAL},
	{"unix:/" A50 A50 "1234567", -E2BIG},
	{"mem:", -EINVAL},
	{"mem:" A50 A50, -E2BIG},
	{A50 A50 A50 A50 A50 A50 ":70", -EINVAL},
	{"no-such-host.invalid:70", -EHOSTUNREACH},
};

START_TEST(bad_text_is_refused_and_nothing_is_written)
{
	enum gx_addr_security security = GX_SECURITY_COUNT;
	struct gx_addr addr = {.kind = GX_ADDR_COUNT};

	ck_assert_msg(gx_addr_parse(gx_env_posix(), bad_rows[_i].text, &addr, &security) ==
			      bad_rows[_i].err,
		      "\"%s\"", bad_rows[_i].text);
	ck_assert_int_eq(addr.kind, GX_ADDR_COUNT);
	ck_assert_int_eq(security, GX_SECURITY_COUNT);
}
END_TEST

START_TEST(a_prefix_is_refused_where_no_security_is_asked_for)
{
	struct gx_addr addr;

	ck_assert_int_eq(gx_addr_parse(gx_env_posix(), "tls:127.0.0.1:70", &addr, NULL), -EINVAL);
	ck_assert_int_eq(gx_addr_parse(gx_env_posix(), "127.0.0.1:70", &addr, NULL), 0);
}
END_TEST

START_TEST(the_longest_unix_path_fits)
{
	struct gx_addr addr = parsed("unix:/" A50 A50 "123456");

	ck_assert_uint_eq(strlen(((struct sockaddr_un *)&addr.sa)->sun_path), 107);
}
END_TEST

START_TEST(a_failing_name_service_is_passed_on)
{
	struct gx_fault fault = {.kinds = UINT64_C(1) << GX_FAULT_RESOLVE, .nth = 1};
	struct gx_env env = {.ops = gx_env_posix()->ops, .fault = &fault};
	struct gx_addr addr;

	ck_assert_int_eq(gx_addr_parse(&env, "127.0.0.1:70", &addr, NULL), -EHOSTUNREACH);
}
END_TEST

START_TEST(equality_looks_at_kind_host_and_port)
{
	const char *texts[] = {"127.0.0.1:70", "127.0.0.1:71", "127.0.0.2:70",
			       "[::1]:70",     "[::1]:71",     "unix:/a",
			       "unix:/ab",     "mem:a",        "mem:b"};

	for (size_t i = 0; i < GX_COUNT_OF(texts); i++) {
		for (size_t j = 0; j < GX_COUNT_OF(texts); j++) {
			struct gx_addr a = parsed(texts[i]), b = parsed(texts[j]);

			ck_assert_int_eq(gx_addr_equal(&a, &b), i == j);
		}
	}
}
END_TEST

START_TEST(equality_does_not_look_at_padding)
{
	struct gx_addr a = parsed("unix:/a"), b = parsed("unix:/a");

	((struct sockaddr_un *)&b.sa)->sun_path[50] = 'x';
	b.sa_bytes = sizeof(struct sockaddr_un);
	ck_assert(gx_addr_equal(&a, &b));
	a = parsed("127.0.0.1:70");
	b = a;
	((struct sockaddr_in *)&b.sa)->sin_zero[3] = 1;
	ck_assert(gx_addr_equal(&a, &b));
}
END_TEST

START_TEST(an_unnamed_unix_socket_formats_as_empty_path)
{
	struct gx_addr addr = {.kind = GX_ADDR_UNIX, .sa_bytes = sizeof(sa_family_t)};
	char text[GX_ADDR_TEXT_MAX];

	addr.sa.ss_family = AF_UNIX;
	gx_addr_format(&addr, text);
	ck_assert_str_eq(text, "unix:");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gx_addr");
	TCase *tc = tcase_create("core");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_loop_test(tc, good_text_parses_and_formats, 0, GX_COUNT_OF(good_rows));
	tcase_add_loop_test(tc, bad_text_is_refused_and_nothing_is_written, 0,
			    GX_COUNT_OF(bad_rows));
	tcase_add_test(tc, a_prefix_is_refused_where_no_security_is_asked_for);
	tcase_add_test(tc, the_longest_unix_path_fits);
	tcase_add_test(tc, a_failing_name_service_is_passed_on);
	tcase_add_test(tc, equality_looks_at_kind_host_and_port);
	tcase_add_test(tc, equality_does_not_look_at_padding);
	tcase_add_test(tc, an_unnamed_unix_socket_formats_as_empty_path);
	tcase_set_timeout(tc, 20); /* the unknown name may ask a slow name service */
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
