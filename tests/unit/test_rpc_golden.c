/*
 * One stored request and reply of each method, and the four handshake messages: what today's code
 * packs must be those bytes. A difference is a change of the protocol.
 *
 * GX_GOLDEN_WRITE=1 writes the files anew (after a deliberate change); run from the top directory.
 */
#include "common/gx_num.h"
#include "core.pb-c.h"
#include "rpc/rpc_arena.h"
#include "rpc/rpc_method.h"
#include <check.h>
#include <stdio.h>

#define BYTES_MAX 4096u
#define DEPTH_MAX 4u

static const ProtobufCMessageDescriptor *const handshake[] = {
	&pb_core__hello__descriptor,
	&pb_core__challenge__descriptor,
	&pb_core__proof__descriptor,
	&pb_core__welcome__descriptor,
};

/* Each scalar field gets a value made from its number, so that no two look alike. */
static void fill_scalar(const ProtobufCFieldDescriptor *field, void *place)
{
	uint64_t value = UINT64_C(0x0102030405060708) * field->id;
	uint32_t value32 = 1000 * field->id + 7;
	bool yes = true;

	switch (field->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_ENUM:
		memcpy(place, &value32, sizeof(value32));
		break;
	case PROTOBUF_C_TYPE_SINT64:
		value = (uint64_t) - (int64_t)value; /* a negative one, for the zigzag */
		memcpy(place, &value, sizeof(value));
		break;
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		memcpy(place, &value, sizeof(value));
		break;
	case PROTOBUF_C_TYPE_BOOL: {
		protobuf_c_boolean flag = yes;

		memcpy(place, &flag, sizeof(flag));
		break;
	}
	default:
		ck_abort_msg("%s: a type this test does not know yet", field->name);
	}
}

static ProtobufCMessage *make(struct rpc_arena *arena, const ProtobufCMessageDescriptor *type,
			      unsigned depth);

static void fill_field(struct rpc_arena *arena, const ProtobufCFieldDescriptor *field,
		       ProtobufCMessage *message, unsigned depth)
{
	char *place = (char *)message + field->offset;

	if (field->type == PROTOBUF_C_TYPE_STRING && field->label == PROTOBUF_C_LABEL_REPEATED) {
		char **list = rpc_arena_alloc(arena, 2 * sizeof(*list));
		size_t count = 2;

		list[0] = rpc_arena_strdup(arena, field->name);
		list[1] = rpc_arena_strdup(arena, "");
		memcpy(place, &list, sizeof(list));
		memcpy((char *)message + field->quantifier_offset, &count, sizeof(count));
	} else if (field->type == PROTOBUF_C_TYPE_STRING) {
		const char *text = rpc_arena_strdup(arena, field->name);

		memcpy(place, &text, sizeof(text));
	} else if (field->type == PROTOBUF_C_TYPE_BYTES) {
		ProtobufCBinaryData data = {strlen(field->name),
					    (uint8_t *)rpc_arena_strdup(arena, field->name)};

		ck_assert_int_ne(field->label, PROTOBUF_C_LABEL_REPEATED);
		memcpy(place, &data, sizeof(data));
	} else if (field->type == PROTOBUF_C_TYPE_MESSAGE &&
		   field->label == PROTOBUF_C_LABEL_REPEATED) {
		ProtobufCMessage **list = rpc_arena_alloc(arena, 2 * sizeof(*list));
		size_t count = 2;

		list[0] = make(arena, field->descriptor, depth + 1);
		list[1] = make(arena, field->descriptor, depth + 1);
		memcpy(place, &list, sizeof(list));
		memcpy((char *)message + field->quantifier_offset, &count, sizeof(count));
	} else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
		ProtobufCMessage *child = make(arena, field->descriptor, depth + 1);

		memcpy(place, &child, sizeof(child));
	} else if (field->label == PROTOBUF_C_LABEL_REPEATED) {
		bool wide = field->type == PROTOBUF_C_TYPE_UINT64;
		char *list = rpc_arena_alloc(arena, 2 * sizeof(uint64_t));
		size_t count = 2;

		ck_assert(wide || field->type == PROTOBUF_C_TYPE_UINT32);
		fill_scalar(field, list);
		fill_scalar(field, list + (wide ? sizeof(uint64_t) : sizeof(uint32_t)));
		memcpy(place, &list, sizeof(list));
		memcpy((char *)message + field->quantifier_offset, &count, sizeof(count));
	} else {
		fill_scalar(field, place);
	}
}

static ProtobufCMessage *make(struct rpc_arena *arena, const ProtobufCMessageDescriptor *type,
			      unsigned depth)
{
	ProtobufCMessage *message = rpc_arena_alloc(arena, type->sizeof_message);

	ck_assert_uint_lt(depth, DEPTH_MAX);
	ck_assert_ptr_nonnull(message);
	protobuf_c_message_init(type, message);
	for (unsigned i = 0; i < type->n_fields; i++)
		fill_field(arena, &type->fields[i], message, depth);
	return message;
}

/* Tests run from the top directory. */
static void golden_path(const char *name, const char *what, char path[256])
{
	ck_assert_int_eq(gx_format(path, 256, "tests/golden/%s.%s.hex", name, what), 0);
}

static void write_golden(const char *path, const char *hex)
{
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_gt(fprintf(file, "%s\n", hex), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static void compare(const char *name, const char *what, const ProtobufCMessageDescriptor *type)
{
	unsigned char packed[BYTES_MAX], again[BYTES_MAX];
	char hex[2 * BYTES_MAX + 2], stored[2 * BYTES_MAX + 2] = "";
	char path[256];
	struct rpc_arena arena;
	ProtobufCMessage *message;
	size_t bytes;
	FILE *file;

	rpc_arena_init(&arena, 1 << 20);
	message = make(&arena, type, 0);
	ck_assert_uint_le(protobuf_c_message_get_packed_size(message), BYTES_MAX);
	bytes = protobuf_c_message_pack(message, packed);
	gx_hex_encode(packed, bytes, hex);
	golden_path(name, what, path);
	if (getenv("GX_GOLDEN_WRITE"))
		write_golden(path, hex);
	file = fopen(path, "re");
	ck_assert_msg(file != NULL, "%s is missing: every method has its golden bytes", path);
	if (fgets(stored, sizeof(stored), file))
		stored[strcspn(stored, "\n")] = '\0';
	fclose(file);
	ck_assert_msg(strcmp(hex, stored) == 0, "%s changed:\nstored %s\ntoday  %s", path, stored,
		      hex);
	/* And what is stored unpacks and packs to the same. */
	ck_assert_int_eq(rpc_arena_unpack(&arena, type, packed, bytes, &message), 0);
	ck_assert_uint_eq(message->n_unknown_fields, 0);
	ck_assert_uint_eq(protobuf_c_message_pack(message, again), bytes);
	ck_assert_mem_eq(packed, again, bytes);
	rpc_arena_clear(&arena);
}

START_TEST(each_method_packs_to_its_golden_bytes)
{
	const struct rpc_method *m = rpc_method_get((size_t)_i);

	compare(m->name, "request", m->request);
	compare(m->name, "reply", m->reply);
}
END_TEST

START_TEST(each_handshake_message_packs_to_its_golden_bytes)
{
	compare("handshake", handshake[_i]->short_name, handshake[_i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rpc_golden");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, each_method_packs_to_its_golden_bytes, 0, RPC_METHOD_COUNT);
	tcase_add_loop_test(tc, each_handshake_message_packs_to_its_golden_bytes, 0,
			    (int)GX_COUNT_OF(handshake));
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
