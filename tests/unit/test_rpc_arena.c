/*
 * The bounded allocator behind every unpacked message.
 */
#include "core.pb-c.h"
#include "echo.pb-c.h"
#include "common/gx_limits.h"
#include "rpc/rpc_arena.h"
#include "rpc/rpc_method.h"
#include <check.h>

static struct rpc_arena arena;

static void setup(void)
{
	rpc_arena_init(&arena, GX_UNPACK_MAX);
}

static void teardown(void)
{
	rpc_arena_clear(&arena);
}

START_TEST(everything_is_aligned_and_nothing_overlaps)
{
	unsigned char *last = NULL;
	size_t last_bytes = 0;

	for (size_t bytes = 0; bytes < 3000; bytes += 7) {
		unsigned char *p = rpc_arena_alloc(&arena, bytes);

		ck_assert_ptr_nonnull(p);
		ck_assert_uint_eq((uintptr_t)p % 16, 0);
		ck_assert(p >= last + last_bytes || p + bytes <= last);
		memset(p, 0xee, bytes);
		last = p;
		last_bytes = bytes;
	}
}
END_TEST

START_TEST(small_calls_do_not_touch_malloc)
{
	for (unsigned i = 0; i < RPC_ARENA_INLINE_BYTES / 16; i++)
		ck_assert_ptr_nonnull(rpc_arena_alloc(&arena, 16));
	ck_assert_ptr_null(arena.blocks);
	ck_assert_ptr_nonnull(rpc_arena_alloc(&arena, 1));
	ck_assert_ptr_nonnull(arena.blocks);
}
END_TEST

START_TEST(the_maximum_is_never_passed)
{
	static const size_t steps[] = {1, 16, 100, 1536, 4096, 16384, 100000, 1000000};

	for (size_t i = 0; i < GX_COUNT_OF(steps); i++) {
		size_t got = 0;

		while (rpc_arena_alloc(&arena, steps[i]))
			got += steps[i];
		ck_assert_uint_le(got, GX_UNPACK_MAX);
		ck_assert_uint_le(arena.total, GX_UNPACK_MAX);
		ck_assert_int_eq(arena.refused, -E2BIG);
		/* Once refused it says so until it is cleared; then it serves again. */
		rpc_arena_clear(&arena);
		ck_assert_int_eq(arena.refused, 0);
	}
}
END_TEST

START_TEST(absurd_sizes_are_refused)
{
	static const size_t sizes[] = {GX_UNPACK_MAX + 1, SIZE_MAX / 2, SIZE_MAX - 15, SIZE_MAX - 1,
				       SIZE_MAX};

	for (size_t i = 0; i < GX_COUNT_OF(sizes); i++) {
		ck_assert_ptr_null(rpc_arena_alloc(&arena, sizes[i]));
		ck_assert_int_eq(arena.refused, -E2BIG);
	}
	ck_assert_ptr_nonnull(rpc_arena_alloc(&arena, 1));
}
END_TEST

START_TEST(exactly_the_maximum_fits)
{
	ck_assert_ptr_nonnull(rpc_arena_alloc(&arena, GX_UNPACK_MAX));
	ck_assert_ptr_null(rpc_arena_alloc(&arena, 1));
}
END_TEST

START_TEST(a_string_is_copied)
{
	const char *text = "some text";
	char *copy = rpc_arena_strdup(&arena, text);

	ck_assert_str_eq(copy, text);
	ck_assert_ptr_ne(copy, text);
}
END_TEST

/* -- unpacking ---------------------------------------------------------------------- */

START_TEST(a_message_of_unknown_fields_fails_with_e2big_within_the_maximum)
{
	const struct rpc_method *m = rpc_method_get((size_t)_i);
	unsigned char *bytes = malloc(GX_MESSAGE_MAX);
	ProtobufCMessage *message = NULL;

	/* Field 15, varint, value 0: two bytes that cost protobuf-c about forty-four times that. */
	for (size_t i = 0; i < GX_MESSAGE_MAX; i += 2) {
		bytes[i] = 15 << 3;
		bytes[i + 1] = 0;
	}
	ck_assert_int_eq(rpc_arena_unpack(&arena, m->request, bytes, GX_MESSAGE_MAX, &message),
			 -E2BIG);
	ck_assert_ptr_null(message);
	ck_assert_uint_le(arena.total, GX_UNPACK_MAX);
	rpc_arena_clear(&arena);
	/* A few of them are what a newer peer may send. */
	ck_assert_int_eq(rpc_arena_unpack(&arena, m->request, bytes, 200, &message), 0);
	ck_assert_uint_eq(message->n_unknown_fields, 100);
	free(bytes);
}
END_TEST

START_TEST(many_small_parts_fail_with_e2big)
{
	unsigned char *bytes = malloc(GX_MESSAGE_MAX);
	ProtobufCMessage *message = NULL;

	/* StatsReply.methods = 1, each empty: two bytes for a whole struct. */
	for (size_t i = 0; i < GX_MESSAGE_MAX; i += 2) {
		bytes[i] = 1 << 3 | 2;
		bytes[i + 1] = 0;
	}
	ck_assert_int_eq(rpc_arena_unpack(&arena, &pb_core__stats_reply__descriptor, bytes,
					  GX_MESSAGE_MAX, &message),
			 -E2BIG);
	ck_assert_uint_le(arena.total, GX_UNPACK_MAX);
	free(bytes);
}
END_TEST

START_TEST(bytes_that_are_no_message_are_eproto)
{
	static const char *const bad[] = {
		"\x0a\x05"
		"ab",                               /* cut short */
		"\x0a\xff\xff\xff\xff\x0f",         /* a length of 4 GiB */
		"\x0a\xff\xff\xff\xff\xff\xff\xff", /* a length that never ends */
		"\x0b\x01",                         /* a group, which we do not have */
		"\xff\xff\xff\xff\xff\xff",         /* a tag that never ends */
		"\x08\x01",                         /* the right field with the wrong type */
	};

	for (size_t i = 0; i < GX_COUNT_OF(bad); i++) {
		ProtobufCMessage *message = NULL;

		ck_assert_int_eq(rpc_arena_unpack(&arena, &pb_echo__echo_request__descriptor,
						  bad[i], strlen(bad[i]), &message),
				 -EPROTO);
		ck_assert_ptr_null(message);
	}
}
END_TEST

START_TEST(a_good_message_unpacks_into_the_arena)
{
	PbEcho__EchoRequest request = PB_ECHO__ECHO_REQUEST__INIT;
	ProtobufCMessage *message = NULL;
	unsigned char packed[64];
	size_t bytes;

	request.data = (ProtobufCBinaryData){5, (uint8_t *)"bytes"};
	bytes = pb_echo__echo_request__pack(&request, packed);
	ck_assert_int_eq(rpc_arena_unpack(&arena, &pb_echo__echo_request__descriptor, packed, bytes,
					  &message),
			 0);
	ck_assert_uint_eq(((PbEcho__EchoRequest *)message)->data.len, 5);
	ck_assert_mem_eq(((PbEcho__EchoRequest *)message)->data.data, "bytes", 5);
	ck_assert_ptr_null(arena.blocks);
	/* Nothing at all is an empty message. */
	ck_assert_int_eq(
		rpc_arena_unpack(&arena, &pb_echo__echo_request__descriptor, "", 0, &message), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_arena");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, everything_is_aligned_and_nothing_overlaps);
	tcase_add_test(tc, small_calls_do_not_touch_malloc);
	tcase_add_test(tc, the_maximum_is_never_passed);
	tcase_add_test(tc, absurd_sizes_are_refused);
	tcase_add_test(tc, exactly_the_maximum_fits);
	tcase_add_test(tc, a_string_is_copied);
	tcase_add_loop_test(tc, a_message_of_unknown_fields_fails_with_e2big_within_the_maximum, 0,
			    RPC_METHOD_COUNT);
	tcase_add_test(tc, many_small_parts_fail_with_e2big);
	tcase_add_test(tc, bytes_that_are_no_message_are_eproto);
	tcase_add_test(tc, a_good_message_unpacks_into_the_arena);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
