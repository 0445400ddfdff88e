/*
 * rpc_arena.h - a bounded bump allocator for one call.
 *
 * Unpacking a protobuf message can blow it up many times over (unknown
 * fields), so unpacking always allocates here: the arena refuses once the
 * call's maximum is reached, and everything is freed at once when the call
 * ends. The first bytes come from inside the struct, so a small call does not
 * touch malloc at all.
 */
#ifndef RPC_ARENA_H
#define RPC_ARENA_H

#include "common/gx_base.h"
#include <protobuf-c/protobuf-c.h>

#define RPC_ARENA_INLINE_BYTES 1536

struct rpc_arena_block;

struct rpc_arena {
	size_t used;  /* of the current block (inline or the newest) */
	size_t size;  /* of the current block */
	size_t total; /* bytes handed out and block overhead, against bytes_max */
	size_t bytes_max;
	int refused; /* -E2BIG or -ENOMEM once an allocation was refused */
	unsigned char *current;
	struct rpc_arena_block *blocks; /* newest first */
	ProtobufCAllocator allocator;   /* for protobuf-c; free is a no-op */
	_Alignas(16) unsigned char first[RPC_ARENA_INLINE_BYTES];
};

void rpc_arena_init(struct rpc_arena *arena, size_t bytes_max);
/* Frees all blocks; the arena is empty and may be used again. */
void rpc_arena_clear(struct rpc_arena *arena);

/* 16-byte aligned, uninitialised; NULL at the maximum or out of memory. */
void *rpc_arena_alloc(struct rpc_arena *arena, size_t bytes);
/* Copy of a string or bytes; NULL as above. */
char *rpc_arena_strdup(struct rpc_arena *arena, const char *text);

/*
 * Unpacks into the arena. -EPROTO when the bytes are no such message, -E2BIG
 * when they unpack to too much, -ENOMEM.
 */
GX_MUST_CHECK int rpc_arena_unpack(struct rpc_arena *arena, const ProtobufCMessageDescriptor *type,
				   const void *data, size_t bytes, ProtobufCMessage **ret_message);

/*
 * For protobuf-c, of messages that outlive their call: malloc() and free() as our own code calls
 * them, which tests see, instead of the library's.
 */
ProtobufCAllocator *rpc_heap(void);

#endif
