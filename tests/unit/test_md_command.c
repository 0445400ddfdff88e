/*
 * A command in the log: it comes back as it was, and anything else is refused.
 */
#include "metad/md_command.h"
#include "common/gx_limits.h"
#include "common/gx_num.h"
#include "meta.pb-c.h"
#include <check.h>

static struct gx_buf buf;
static struct rpc_arena arena;

static void setup(void)
{
	gx_buf_init(&buf, 1 << 20);
	rpc_arena_init(&arena, GX_UNPACK_MAX);
}

static void teardown(void)
{
	gx_buf_fini(&buf);
	rpc_arena_clear(&arena);
}

/* The mutating methods of the namespace; every field of each request gets a value of its own. */
static const uint16_t methods[] = {
	RPC_SETATTR,       RPC_MAKE,        RPC_LINK,       RPC_UNLINK,   RPC_RENAME,
	RPC_OPEN,          RPC_WRITE,       RPC_SETXATTR,   RPC_FORMAT,   RPC_RESERVE,
	RPC_SESSION_OPEN,  RPC_SESSION_END, RPC_REAP,       RPC_REPORT,   RPC_WRITE_BEGIN,
	RPC_WRITE_RECOVER, RPC_COPY_CHANGE, RPC_TRASH_DONE, RPC_NODE_BOOT};

START_TEST(all_mutating_methods_are_tested_here)
{
	unsigned count = 0;

	for (size_t i = 0; i < RPC_METHOD_COUNT; i++) {
		const struct rpc_method *m = rpc_method_get(i);

		/* A replay is in the log as what it repeats; locks are not in it. */
		count += m->id >> 8 == 3 && (m->flags & RPC_F_MUTATES) && m->id != RPC_REPLAY &&
			 m->id != RPC_LOCK;
	}
	ck_assert_uint_eq(count, GX_COUNT_OF(methods));
}
END_TEST

union request {
	ProtobufCMessage base;
	unsigned char bytes[256];
};

static void fill(const ProtobufCMessageDescriptor *type, union request *request)
{
	static char texts[16][16];

	protobuf_c_message_init(type, request);
	for (unsigned i = 0; i < type->n_fields; i++) {
		void *field = request->bytes + type->fields[i].offset;

		switch (type->fields[i].type) {
		case PROTOBUF_C_TYPE_UINT64:
		case PROTOBUF_C_TYPE_SINT64:
		case PROTOBUF_C_TYPE_FIXED64:
			*(uint64_t *)field = UINT64_C(0xfedcba9876543200) + i;
			break;
		case PROTOBUF_C_TYPE_UINT32:
			*(uint32_t *)field = 0x87654320u + i;
			break;
		case PROTOBUF_C_TYPE_BOOL:
			*(protobuf_c_boolean *)field = 1;
			break;
		case PROTOBUF_C_TYPE_STRING:
			ck_assert_int_eq(gx_format(texts[i], sizeof(texts[i]), "text \xff %u", i),
					 0);
			*(char **)field = texts[i];
			break;
		case PROTOBUF_C_TYPE_BYTES:
			*(ProtobufCBinaryData *)field =
				(ProtobufCBinaryData){5, (uint8_t *)(uintptr_t) "by\0te"};
			break;
		default:
			ck_abort_msg("a type this test does not know");
		}
	}
}

static const uint32_t groups[] = {4, 0, UINT32_MAX};

static struct md_command command_of(uint16_t method, union request *request)
{
	struct md_command c = {
		.method = rpc_method_find(method),
		.flags = MD_COMMAND_BUSY | MD_COMMAND_HANDLE | MD_COMMAND_SETTLE,
		.time_ns = -123456789,
		.session = UINT64_MAX,
		.seq = 77,
		.check = 12,
		.new_ino = UINT64_C(1) << 50,
		.cred = {UINT32_MAX - 1, 3, GX_COUNT_OF(groups), groups},
		.request = &request->base,
		.payload = "pay\0load",
		.payload_bytes = 8,
	};

	fill(c.method->request, request);
	return c;
}

static void assert_same_request(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
	static unsigned char bytes[2][4096];

	ck_assert_ptr_eq(a->descriptor, b->descriptor);
	ck_assert_uint_eq(protobuf_c_message_get_packed_size(a),
			  protobuf_c_message_get_packed_size(b));
	ck_assert_uint_eq(protobuf_c_message_pack(a, bytes[0]),
			  protobuf_c_message_pack(b, bytes[1]));
	ck_assert_mem_eq(bytes[0], bytes[1], protobuf_c_message_get_packed_size(a));
}

START_TEST(a_command_comes_back_as_it_was)
{
	union request request;
	struct md_command in = command_of(methods[_i], &request), out;

	ck_assert_int_eq(gx_buf_append(&buf, "before", 6), 0);
	ck_assert_int_eq(md_command_encode(&in, &buf), 0);
	ck_assert_mem_eq(buf.data, "before", 6);
	ck_assert_int_eq(md_command_decode(buf.data + 6, buf.bytes - 6, &arena, &out), 0);
	ck_assert_ptr_eq(out.method, in.method);
	ck_assert_uint_eq(out.flags, in.flags);
	ck_assert_int_eq(out.time_ns, in.time_ns);
	ck_assert_uint_eq(out.session, in.session);
	ck_assert_uint_eq(out.seq, in.seq);
	ck_assert_uint_eq(out.check, in.check);
	ck_assert_uint_eq(out.new_ino, in.new_ino);
	ck_assert_uint_eq(out.cred.uid, in.cred.uid);
	ck_assert_uint_eq(out.cred.gid, in.cred.gid);
	ck_assert_uint_eq(out.cred.group_count, in.cred.group_count);
	ck_assert_mem_eq(out.cred.groups, groups, sizeof(groups));
	ck_assert_uint_eq(out.payload_bytes, in.payload_bytes);
	ck_assert_mem_eq(out.payload, in.payload, in.payload_bytes);
	assert_same_request(in.request, out.request);
}
END_TEST

START_TEST(a_command_without_groups_and_payload_is_fine)
{
	union request request;
	struct md_command in = command_of(methods[_i], &request), out;

	in.cred.group_count = 0;
	in.cred.groups = NULL;
	in.payload = NULL;
	in.payload_bytes = 0;
	protobuf_c_message_init(in.method->request, &request);
	ck_assert_int_eq(md_command_encode(&in, &buf), 0);
	ck_assert_int_eq(md_command_decode(buf.data, buf.bytes, &arena, &out), 0);
	assert_same_request(in.request, out.request);
}
END_TEST

START_TEST(a_command_cut_anywhere_or_with_more_behind_it_is_refused)
{
	union request request;
	struct md_command in = command_of(methods[_i], &request), out;

	ck_assert_int_eq(md_command_encode(&in, &buf), 0);
	for (size_t n = 0; n < buf.bytes; n++) {
		/* A copy of exactly that size, so that reading past it shows. */
		unsigned char *cut = malloc(GX_MAX(n, (size_t)1));

		memcpy(cut, buf.data, n);
		ck_assert_int_eq(md_command_decode(cut, n, &arena, &out), -EBADMSG);
		free(cut);
		rpc_arena_clear(&arena);
	}
	ck_assert_int_eq(gx_buf_append(&buf, "x", 1), 0);
	ck_assert_int_eq(md_command_decode(buf.data, buf.bytes, &arena, &out), -EBADMSG);
}
END_TEST

START_TEST(damage_in_the_header_is_refused)
{
	union request request;
	struct md_command in = command_of(RPC_MAKE, &request), out;
	static const struct {
		size_t offset;
		unsigned char byte;
		int want;
	} rows[] = {
		{0, 0, -EBADMSG},     {0, 3, -EPROTONOSUPPORT}, {1, 8, -EBADMSG},
		{1, 0x80, -EBADMSG},  {2, 0xff, -EBADMSG},      {2, 0x01, -EBADMSG}, /* lookup */
		{7, 0x80, -EBADMSG},  {11, 0x80, -EBADMSG},     {22, 1, -EBADMSG},
		{23, 0x80, -EBADMSG},
	};

	for (size_t i = 0; i < GX_COUNT_OF(rows); i++) {
		gx_buf_clear(&buf);
		ck_assert_int_eq(md_command_encode(&in, &buf), 0);
		buf.data[rows[i].offset] = rows[i].byte;
		ck_assert_int_eq(md_command_decode(buf.data, buf.bytes, &arena, &out),
				 rows[i].want);
	}
}
END_TEST

START_TEST(garbage_never_does_harm)
{
	uint64_t random = 88172645463325252u + (uint64_t)_i;
	unsigned char bytes[300];

	for (unsigned round = 0; round < 20000; round++) {
		struct md_command out;
		size_t count;
		int r;

		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		count = random % sizeof(bytes);
		for (size_t i = 0; i < count; i++)
			bytes[i] = (unsigned char)((random >> (i % 57)) * (i + 13));
		if (count >= 64 && round % 2) {
			/* Plausible up to the request. */
			memset(bytes, 0, 64);
			bytes[0] = 1;
			gx_put_le16(bytes + 2, methods[round % GX_COUNT_OF(methods)]);
			gx_put_le32(bytes + 4, (uint32_t)(count - 64));
		}
		r = md_command_decode(bytes, count, &arena, &out);
		ck_assert(r == 0 || r == -EBADMSG || r == -EPROTONOSUPPORT);
		rpc_arena_clear(&arena);
	}
}
END_TEST

START_TEST(fields_nobody_knows_are_not_logged)
{
	static uint8_t ballast[1000];
	ProtobufCMessageUnknownField field = {99, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
					      sizeof(ballast), ballast};
	union request request;
	struct md_command in = command_of(RPC_RENAME, &request), out;
	size_t plain;

	ck_assert_int_eq(md_command_encode(&in, &buf), 0);
	plain = buf.bytes;
	gx_buf_clear(&buf);
	request.base.n_unknown_fields = 1;
	request.base.unknown_fields = &field;
	ck_assert_int_eq(md_command_encode(&in, &buf), 0);
	ck_assert_uint_eq(buf.bytes, plain);
	ck_assert_uint_eq(request.base.n_unknown_fields, 1);
	ck_assert_int_eq(md_command_decode(buf.data, buf.bytes, &arena, &out), 0);
}
END_TEST

START_TEST(the_largest_command_fits_and_more_is_refused)
{
	static uint8_t value[64 * 1024 + 16 * 1024];
	static uint32_t many[MD_GROUPS_MAX];
	union request request;
	struct md_command in = command_of(RPC_SETXATTR, &request), out;
	PbMeta__SetxattrRequest *r = (PbMeta__SetxattrRequest *)&request;

	in.cred.group_count = MD_GROUPS_MAX;
	in.cred.groups = many;
	r->value = (ProtobufCBinaryData){64 * 1024, value};
	ck_assert_int_eq(md_command_encode(&in, &buf), 0);
	ck_assert_int_eq(md_command_decode(buf.data, buf.bytes, &arena, &out), 0);
	ck_assert_uint_eq(out.cred.group_count, MD_GROUPS_MAX);
	gx_buf_clear(&buf);
	r->value.len = sizeof(value);
	ck_assert_int_eq(md_command_encode(&in, &buf), -E2BIG);
	ck_assert_uint_eq(buf.bytes, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_command");
	TCase *tc = tcase_create("command");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, all_mutating_methods_are_tested_here);
	tcase_add_loop_test(tc, a_command_comes_back_as_it_was, 0, (int)GX_COUNT_OF(methods));
	tcase_add_loop_test(tc, a_command_without_groups_and_payload_is_fine, 0,
			    (int)GX_COUNT_OF(methods));
	tcase_add_loop_test(tc, a_command_cut_anywhere_or_with_more_behind_it_is_refused, 0,
			    (int)GX_COUNT_OF(methods));
	tcase_add_test(tc, damage_in_the_header_is_refused);
	tcase_add_loop_test(tc, garbage_never_does_harm, 0, 4);
	tcase_add_test(tc, fields_nobody_knows_are_not_logged);
	tcase_add_test(tc, the_largest_command_fits_and_more_is_refused);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
