/*
 * The method table against protobuf-c's own descriptors.
 */
#include "core.pb-c.h"
#include "rpc/rpc_method.h"
#include <check.h>
#include <stdio.h>

#define DEPTH_MAX 16u

static const ProtobufCMethodDescriptor *rpc_of(const struct rpc_method *m)
{
	return protobuf_c_service_descriptor_get_method_by_name(m->service, m->proto_name);
}

START_TEST(each_row_agrees_with_the_service_descriptor)
{
	const struct rpc_method *m = rpc_method_get((size_t)_i);
	const ProtobufCMethodDescriptor *pb = rpc_of(m);
	char name[128], lower[64];
	size_t n = 0;

	ck_assert_ptr_nonnull(pb);
	ck_assert_ptr_eq(pb->input, m->request);
	ck_assert_ptr_eq(pb->output, m->reply);
	ck_assert_uint_eq(m->index, (unsigned)_i);
	ck_assert_uint_ge(m->since, 1);
	ck_assert_uint_gt(strlen(m->text), 0);

	/* "pb_echo.Echo" and "Tally" are "echo.tally". */
	for (const char *p = m->service->short_name; *p; p++)
		lower[n++] = (char)(*p | 0x20);
	lower[n++] = '.';
	for (const char *p = m->proto_name; *p && n < sizeof(lower) - 2; p++) {
		if (*p < 'a' && p > m->proto_name)
			lower[n++] = '_';
		lower[n++] = (char)(*p | 0x20);
	}
	lower[n] = '\0';
	ck_assert_str_eq(m->name, lower);
	ck_assert_int_eq(gx_format(name, sizeof(name), "%sRequest", m->proto_name), 0);
	ck_assert_str_eq(m->request->short_name, name);
	ck_assert_int_eq(gx_format(name, sizeof(name), "%sReply", m->proto_name), 0);
	ck_assert_str_eq(m->reply->short_name, name);
}
END_TEST

START_TEST(every_rpc_of_a_service_has_a_row)
{
	const ProtobufCServiceDescriptor *service = rpc_method_get((size_t)_i)->service;
	unsigned rows = 0;

	for (size_t i = 0; i < RPC_METHOD_COUNT; i++)
		rows += rpc_method_get(i)->service == service;
	ck_assert_uint_eq(rows, service->n_methods);
}
END_TEST

START_TEST(ids_are_unique_and_their_high_byte_is_the_service)
{
	for (size_t i = 0; i < RPC_METHOD_COUNT; i++) {
		const struct rpc_method *a = rpc_method_get(i);

		ck_assert_ptr_eq(rpc_method_find(a->id), a);
		for (size_t k = 0; k < i; k++) {
			const struct rpc_method *b = rpc_method_get(k);

			ck_assert_uint_ne(a->id, b->id);
			ck_assert_int_eq(a->id >> 8 == b->id >> 8, a->service == b->service);
		}
	}
}
END_TEST

START_TEST(flags_make_sense_together)
{
	const struct rpc_method *m = rpc_method_get((size_t)_i);

	/* Every method that can be retried says how: freely, or by its number. */
	ck_assert(!(m->flags & RPC_F_IDEMPOTENT) || !(m->flags & RPC_F_MUTATES));
	if (m->flags & RPC_F_PUSH)
		ck_assert_uint_eq(m->flags, RPC_F_PUSH);
	/* Who changes something has a session, except metad itself. */
	if (m->flags & RPC_F_MUTATES)
		ck_assert(m->flags & (RPC_F_SESSION | RPC_F_COMMAND));
}
END_TEST

START_TEST(unknown_ids_are_not_found)
{
	unsigned found = 0;

	for (uint32_t id = 0; id <= 0x1ffff; id++)
		found += rpc_method_find(id) != NULL;
	ck_assert_uint_eq(found, RPC_METHOD_COUNT);
	ck_assert_ptr_null(rpc_method_find(0));
	ck_assert_ptr_null(rpc_method_find(0xffff));
	ck_assert_ptr_null(rpc_method_find(0x10000 + RPC_PING));
	ck_assert_ptr_null(rpc_method_find(UINT32_MAX));
}
END_TEST

/* protobuf-c's unpack recurses without a limit, so the types may not. */
static void walk(const ProtobufCMessageDescriptor *type, const ProtobufCMessageDescriptor **path,
		 unsigned depth)
{
	ck_assert_uint_lt(depth, DEPTH_MAX);
	for (unsigned i = 0; i < depth; i++)
		ck_assert_msg(path[i] != type, "%s contains itself", type->name);
	path[depth] = type;
	for (unsigned i = 0; i < type->n_fields; i++)
		if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
			walk(type->fields[i].descriptor, path, depth + 1);
}

START_TEST(no_message_type_contains_itself)
{
	const ProtobufCMessageDescriptor *path[DEPTH_MAX];

	walk(rpc_method_get((size_t)_i)->request, path, 0);
	walk(rpc_method_get((size_t)_i)->reply, path, 0);
	walk(&pb_core__hello__descriptor, path, 0);
	walk(&pb_core__challenge__descriptor, path, 0);
	walk(&pb_core__proof__descriptor, path, 0);
	walk(&pb_core__welcome__descriptor, path, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_method");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, each_row_agrees_with_the_service_descriptor, 0, RPC_METHOD_COUNT);
	tcase_add_loop_test(tc, every_rpc_of_a_service_has_a_row, 0, RPC_METHOD_COUNT);
	tcase_add_test(tc, ids_are_unique_and_their_high_byte_is_the_service);
	tcase_add_loop_test(tc, flags_make_sense_together, 0, RPC_METHOD_COUNT);
	tcase_add_test(tc, unknown_ids_are_not_found);
	tcase_add_loop_test(tc, no_message_type_contains_itself, 0, RPC_METHOD_COUNT);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
