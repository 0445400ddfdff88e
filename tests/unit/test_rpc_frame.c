/*
 * The frame header: what is written is read, what is changed is noticed.
 */
#include "common/gx_num.h"
#include "rpc/rpc_frame.h"
#include <check.h>

#define ALL_TYPES UINT32_MAX
#define SECRET UINT64_C(0x5ec2e7)

static const struct rpc_frame_limits wide = {ALL_TYPES, GX_MESSAGE_MAX, GX_PAYLOAD_MAX};

static const struct rpc_frame sample = {
	.type = RPC_FRAME_REQUEST,
	.code = 0x0204,
	.message_bytes = 5,
	.payload_bytes = 0x12345678,
	.id = UINT64_C(0x1112131415161718),
	.trace = UINT64_C(0x2122232425262728),
	.time_ms = 0x31323334,
	.window = 0x41424344,
	.seq = UINT64_C(0x5152535455565758),
};
static const char message[] = "hello";

START_TEST(every_field_survives_the_way)
{
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	const char *reason = NULL;
	struct rpc_frame got;

	rpc_frame_encode(&sample, message, SECRET, header);
	ck_assert_int_eq(rpc_frame_decode(header, &wide, &got, &reason), 0);
	ck_assert_int_eq(rpc_frame_verify(header, message, 5, SECRET), 0);
	ck_assert_int_eq(got.type, sample.type);
	ck_assert_uint_eq(got.flags, 0);
	ck_assert_uint_eq(got.code, sample.code);
	ck_assert_uint_eq(got.message_bytes, sample.message_bytes);
	ck_assert_uint_eq(got.payload_bytes, sample.payload_bytes);
	ck_assert_uint_eq(got.id, sample.id);
	ck_assert_uint_eq(got.trace, sample.trace);
	ck_assert_uint_eq(got.time_ms, sample.time_ms);
	ck_assert_uint_eq(got.window, sample.window);
	ck_assert_uint_eq(got.seq, sample.seq);
	ck_assert_uint_eq(got.check, gx_get_le64(header + 56));
}
END_TEST

START_TEST(the_bytes_are_those_of_the_protocol)
{
	/* A change here is a change of the protocol. */
	static const char golden[] = "47535831" /* magic */
				     "01"       /* version */
				     "10"       /* REQUEST */
				     "0000"     /* flags */
				     "0402"     /* code */
				     "0000"     /* reserved */
				     "05000000"
				     "7856341200000000"
				     "1817161514131211"
				     "2827262524232221"
				     "34333231"
				     "44434241"
				     "5857565554535251";
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	char hex[2 * 56 + 1];

	rpc_frame_encode(&sample, message, SECRET, header);
	gx_hex_encode(header, 56, hex);
	ck_assert_str_eq(hex, golden);
	gx_hex_encode(header + 56, 8, hex);
	ck_assert_str_eq(hex, "faed79e552f800c4");
}
END_TEST

static int judge(const unsigned char *header, const void *text)
{
	struct rpc_frame got;
	int r = rpc_frame_decode(header, &wide, &got, NULL);

	if (r < 0)
		return r;
	return got.message_bytes != 5 ? -EPROTO : rpc_frame_verify(header, text, 5, SECRET);
}

START_TEST(every_flipped_bit_is_noticed)
{
	unsigned char bytes[RPC_FRAME_HEADER_BYTES + 5];

	rpc_frame_encode(&sample, message, SECRET, bytes);
	memcpy(bytes + RPC_FRAME_HEADER_BYTES, message, 5);
	ck_assert_int_eq(judge(bytes, bytes + RPC_FRAME_HEADER_BYTES), 0);
	for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
		bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
		ck_assert_msg(judge(bytes, bytes + RPC_FRAME_HEADER_BYTES) < 0, "bit %zu", bit);
		bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
}
END_TEST

START_TEST(the_secret_is_part_of_the_check)
{
	unsigned char header[RPC_FRAME_HEADER_BYTES];

	rpc_frame_encode(&sample, message, SECRET, header);
	ck_assert_int_eq(rpc_frame_verify(header, message, 5, SECRET + 1), -EBADMSG);
	ck_assert_int_eq(rpc_frame_verify(header, message, 5, 0), -EBADMSG);
	ck_assert_int_eq(rpc_frame_verify(header, message, 4, SECRET), -EBADMSG);
}
END_TEST

START_TEST(an_empty_message_has_a_check_too)
{
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	struct rpc_frame frame = {.type = RPC_FRAME_GOAWAY};

	rpc_frame_encode(&frame, NULL, SECRET, header);
	ck_assert_int_eq(rpc_frame_verify(header, NULL, 0, SECRET), 0);
	ck_assert_int_eq(rpc_frame_verify(header, NULL, 0, SECRET ^ 1), -EBADMSG);
}
END_TEST

static const struct {
	uint32_t message_bytes;
	uint64_t payload_bytes;
	const char *reason;
} long_ones[] = {
	{GX_MESSAGE_MAX + 1, 0, "message too long"},
	{UINT32_C(1) << 31, 0, "message too long"},
	{UINT32_MAX, 0, "message too long"},
	{0, (uint64_t)GX_PAYLOAD_MAX + 1, "payload too long"},
	{0, UINT64_C(1) << 31, "payload too long"},
	{0, UINT64_C(1) << 32, "payload too long"},
	{0, UINT64_C(1) << 63, "payload too long"},
	{0, UINT64_MAX, "payload too long"},
	{UINT32_MAX, UINT64_MAX, "message too long"},
};

START_TEST(lengths_over_the_maximum_are_refused_from_the_header_alone)
{
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	const char *reason = NULL;
	struct rpc_frame got;

	rpc_frame_encode(&sample, message, SECRET, header);
	gx_put_le32(header + 12, long_ones[_i].message_bytes);
	gx_put_le64(header + 16, long_ones[_i].payload_bytes);
	ck_assert_int_eq(rpc_frame_decode(header, &wide, &got, &reason), -E2BIG);
	ck_assert_str_eq(reason, long_ones[_i].reason);
}
END_TEST

START_TEST(the_receivers_own_limits_count)
{
	struct rpc_frame_limits narrow = {UINT32_C(1) << RPC_FRAME_HELLO, 5, 0};
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	struct rpc_frame frame = {.type = RPC_FRAME_HELLO, .message_bytes = 5};
	const char *reason = NULL;
	struct rpc_frame got;

	rpc_frame_encode(&frame, message, 0, header);
	ck_assert_int_eq(rpc_frame_decode(header, &narrow, &got, NULL), 0);
	narrow.message_max = 4;
	ck_assert_int_eq(rpc_frame_decode(header, &narrow, &got, NULL), -E2BIG);
	narrow.message_max = 5;
	gx_put_le64(header + 16, 1);
	ck_assert_int_eq(rpc_frame_decode(header, &narrow, &got, NULL), -E2BIG);
	gx_put_le64(header + 16, 0);
	for (unsigned type = 0; type < 256; type++) {
		int want = type == RPC_FRAME_HELLO ? 0 : -EPROTO;

		header[5] = (unsigned char)type;
		ck_assert_int_eq(rpc_frame_decode(header, &narrow, &got, &reason), want);
	}
	ck_assert_str_eq(reason, "frame type not allowed here");
}
END_TEST

static const struct {
	unsigned offset;
	unsigned char value;
	int result;
	const char *reason;
} broken[] = {
	{0, 'X', -EPROTO, "not a frame (bad magic)"},
	{4, 0, -EPROTONOSUPPORT, "unknown frame version"},
	{4, 2, -EPROTONOSUPPORT, "unknown frame version"},
	{6, 1, -EPROTO, "reserved bits set"},
	{7, 0x80, -EPROTO, "reserved bits set"},
	{10, 1, -EPROTO, "reserved bits set"},
	{11, 1, -EPROTO, "reserved bits set"},
};

START_TEST(a_broken_header_is_named)
{
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	const char *reason = NULL;
	struct rpc_frame got;

	rpc_frame_encode(&sample, message, SECRET, header);
	header[broken[_i].offset] = broken[_i].value;
	ck_assert_int_eq(rpc_frame_decode(header, &wide, &got, &reason), broken[_i].result);
	ck_assert_str_eq(reason, broken[_i].reason);
	ck_assert_int_eq(rpc_frame_decode(header, &wide, &got, NULL), broken[_i].result);
}
END_TEST

START_TEST(tls_bytes_are_recognised)
{
	static const unsigned char first[][3] = {{0x16, 3, 1}, {0x16, 3, 3}, {0x15, 3, 3}};

	for (size_t i = 0; i < GX_COUNT_OF(first); i++) {
		unsigned char header[RPC_FRAME_HEADER_BYTES] = {0};
		const char *reason = NULL;
		struct rpc_frame got;

		memcpy(header, first[i], 3);
		ck_assert_int_eq(rpc_frame_decode(header, &wide, &got, &reason), -EPROTO);
		ck_assert_ptr_nonnull(strstr(reason, "TLS"));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_frame");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, every_field_survives_the_way);
	tcase_add_test(tc, the_bytes_are_those_of_the_protocol);
	tcase_add_test(tc, every_flipped_bit_is_noticed);
	tcase_add_test(tc, the_secret_is_part_of_the_check);
	tcase_add_test(tc, an_empty_message_has_a_check_too);
	tcase_add_loop_test(tc, lengths_over_the_maximum_are_refused_from_the_header_alone, 0,
			    (int)GX_COUNT_OF(long_ones));
	tcase_add_test(tc, the_receivers_own_limits_count);
	tcase_add_loop_test(tc, a_broken_header_is_named, 0, (int)GX_COUNT_OF(broken));
	tcase_add_test(tc, tls_bytes_are_recognised);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
