/*
 * Messages of every type: the first byte picks one, the rest is unpacked into a bounded arena.
 * What unpacks packs again, and if that unpacks (protobuf-c takes an unknown field 0 in, but not
 * as it writes it), it is the same.
 */
#include "common/gx_limits.h"
#include "core.pb-c.h"
#include "rpc/rpc_arena.h"
#include "rpc/rpc_method.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define HANDSHAKE_TYPES 4u

static const ProtobufCMessageDescriptor *pick(unsigned number)
{
	static const ProtobufCMessageDescriptor *const handshake[HANDSHAKE_TYPES] = {
		&pb_core__hello__descriptor, &pb_core__challenge__descriptor,
		&pb_core__proof__descriptor, &pb_core__welcome__descriptor};
	const struct rpc_method *m;

	number %= HANDSHAKE_TYPES + 2 * RPC_METHOD_COUNT;
	if (number < HANDSHAKE_TYPES)
		return handshake[number];
	m = rpc_method_get((number - HANDSHAKE_TYPES) / 2);
	return number % 2 ? m->reply : m->request;
}

static void check_round_trip(const ProtobufCMessageDescriptor *type,
			     const ProtobufCMessage *message)
{
	size_t bytes = protobuf_c_message_get_packed_size(message);
	unsigned char *first = malloc(bytes + 1), *second = malloc(bytes + 1);
	struct rpc_arena arena;
	ProtobufCMessage *again;
	int r;

	gx_assert(first && second);
	gx_assert(protobuf_c_message_pack(message, first) == bytes);
	rpc_arena_init(&arena, 2 * GX_UNPACK_MAX);
	r = rpc_arena_unpack(&arena, type, first, bytes, &again);
	gx_assert(r == 0 || r == -EPROTO);
	if (r == 0) {
		gx_assert(protobuf_c_message_pack(again, second) == bytes);
		gx_assert(memcmp(first, second, bytes) == 0);
	}
	rpc_arena_clear(&arena);
	free(first);
	free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const ProtobufCMessageDescriptor *type;
	ProtobufCMessage *message = NULL;
	struct rpc_arena arena;
	int r;

	if (bytes < 1 || bytes > GX_MESSAGE_MAX)
		return 0;
	type = pick(data[0]);
	rpc_arena_init(&arena, GX_UNPACK_MAX);
	r = rpc_arena_unpack(&arena, type, data + 1, bytes - 1, &message);
	gx_assert(r == 0 || r == -EPROTO || r == -E2BIG);
	gx_assert(arena.total <= GX_UNPACK_MAX);
	if (r == 0)
		check_round_trip(type, message);
	rpc_arena_clear(&arena);
	return 0;
}
