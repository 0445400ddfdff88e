/*
 * Which addresses are plain, which are TLS, and which are refused.
 */
#include "rpc/rpc_endpoint.h"
#include <check.h>

static const struct policy {
	const char *text;
	bool insecure; /* the configuration allows plain anywhere */
	int result;    /* of the parse */
	bool tls;
	bool warned;      /* marked as insecure */
	const char *back; /* how it prints again */
	const char *transport;
} policies[] = {
	/* Inside the machine: plain unless TLS is asked for. */
	{"127.0.0.1:7000", false, 0, false, false, "127.0.0.1:7000", "tcp"},
	{"127.9.9.9:7000", false, 0, false, false, "127.9.9.9:7000", "tcp"},
	{"[::1]:7000", false, 0, false, false, "[::1]:7000", "tcp"},
	{"plain:127.0.0.1:7000", false, 0, false, false, "127.0.0.1:7000", "tcp"},
	{"tls:127.0.0.1:7000", false, 0, true, false, "tls:127.0.0.1:7000", "tls"},
	{"unix:/run/x", false, 0, false, false, "unix:/run/x", "unix"},
	{"plain:unix:/run/x", false, 0, false, false, "unix:/run/x", "unix"},
	{"tls:unix:/run/x", false, 0, true, false, "tls:unix:/run/x", "tls+unix"},
	/* Beyond it: TLS, and plain only when the configuration insists. */
	{"10.1.1.1:7000", false, 0, true, false, "tls:10.1.1.1:7000", "tls"},
	{"tls:10.1.1.1:7000", false, 0, true, false, "tls:10.1.1.1:7000", "tls"},
	{"0.0.0.0:7000", false, 0, true, false, "tls:0.0.0.0:7000", "tls"},
	{"[::]:7000", false, 0, true, false, "tls:[::]:7000", "tls"},
	{"[2001:db8::1]:7000", false, 0, true, false, "tls:[2001:db8::1]:7000", "tls"},
	{"plain:10.1.1.1:7000", false, -EPERM, false, false, NULL, NULL},
	{"plain:0.0.0.0:7000", false, -EPERM, false, false, NULL, NULL},
	{"plain:[::]:7000", false, -EPERM, false, false, NULL, NULL},
	{"plain:[::ffff:10.1.1.1]:7000", false, -EPERM, false, false, NULL, NULL},
	{"plain:10.1.1.1:7000", true, 0, false, true, NULL, "tcp"},
	{"tls:10.1.1.1:7000", true, 0, true, false, "tls:10.1.1.1:7000", "tls"},
	{"127.0.0.1:7000", true, 0, false, false, "127.0.0.1:7000", "tcp"},
	{"tls:10.1.1.1:7000", true, 0, true, false, "tls:10.1.1.1:7000", "tls"},
	/* Nonsense. */
	{"", false, -EINVAL, false, false, NULL, NULL},
	{"tls:", false, -EINVAL, false, false, NULL, NULL},
	{"tls:plain:127.0.0.1:1", false, -EINVAL, false, false, NULL, NULL},
	{"127.0.0.1", false, -EINVAL, false, false, NULL, NULL},
	{"127.0.0.1:65536", false, -EINVAL, false, false, NULL, NULL},
	{"unix:relative", false, -EINVAL, false, false, NULL, NULL},
};

START_TEST(the_address_decides_unless_told_otherwise)
{
	const struct policy *p = &policies[_i];
	struct rpc_endpoint endpoint, again;
	char text[GX_ADDR_TEXT_MAX];
	struct gx_buf errors;
	int r;

	gx_buf_init(&errors, 4096);
	r = rpc_endpoint_parse(gx_env_posix(), p->text, p->insecure, &endpoint, &errors);
	ck_assert_msg(r == p->result, "%s gave %d", p->text, r);
	ck_assert_int_eq(errors.bytes > 0, r < 0);
	gx_buf_fini(&errors);
	/* Without a place for messages the verdict is the same. */
	ck_assert_int_eq(rpc_endpoint_parse(gx_env_posix(), p->text, p->insecure, &endpoint, NULL),
			 r);
	if (r < 0)
		return;
	ck_assert_msg(endpoint.tls == p->tls, "%s", p->text);
	ck_assert_msg(endpoint.insecure == p->warned, "%s", p->text);
	ck_assert_str_eq(rpc_endpoint_transport(&endpoint), p->transport);
	if (!p->back)
		return;
	rpc_endpoint_format(&endpoint, text);
	ck_assert_str_eq(text, p->back);
	ck_assert_int_eq(rpc_endpoint_parse(gx_env_posix(), text, false, &again, NULL), 0);
	ck_assert(again.tls == endpoint.tls && gx_addr_equal(&again.addr, &endpoint.addr));
}
END_TEST

START_TEST(the_refusal_of_plain_names_address_and_way_out)
{
	struct rpc_endpoint endpoint;
	struct gx_buf errors;

	gx_buf_init(&errors, 4096);
	ck_assert_int_eq(rpc_endpoint_parse(gx_env_posix(), "plain:10.1.1.1:7000", false, &endpoint,
					    &errors),
			 -EPERM);
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), "10.1.1.1:7000"));
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), "insecure"));
	gx_buf_fini(&errors);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_endpoint");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, the_address_decides_unless_told_otherwise, 0,
			    (int)GX_COUNT_OF(policies));
	tcase_add_test(tc, the_refusal_of_plain_names_address_and_way_out);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
