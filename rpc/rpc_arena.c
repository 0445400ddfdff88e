#include "rpc/rpc_arena.h"

struct rpc_arena_block {
	struct rpc_arena_block *next;
	size_t bytes;
	_Alignas(16) unsigned char data[];
};

#define BLOCK_BYTES_MIN 16384u

static void *pb_alloc(void *arena, size_t bytes)
{
	return rpc_arena_alloc(arena, bytes);
}

static void pb_free(void *arena GX_UNUSED, void *memory GX_UNUSED)
{
	/* Everything goes at once in rpc_arena_clear(). */
}

void rpc_arena_init(struct rpc_arena *arena, size_t bytes_max)
{
	arena->used = 0;
	arena->size = sizeof(arena->first);
	arena->total = 0;
	arena->bytes_max = bytes_max;
	arena->refused = 0;
	arena->current = arena->first;
	arena->blocks = NULL;
	arena->allocator = (ProtobufCAllocator){pb_alloc, pb_free, arena};
}

void rpc_arena_clear(struct rpc_arena *arena)
{
	while (arena->blocks) {
		struct rpc_arena_block *block = arena->blocks;

		arena->blocks = block->next;
		free(block);
	}
	arena->used = 0;
	arena->size = sizeof(arena->first);
	arena->total = 0;
	arena->refused = 0;
	arena->current = arena->first;
}

static int arena_grow(struct rpc_arena *arena, size_t bytes)
{
	size_t block_bytes = GX_MAX(bytes, (size_t)BLOCK_BYTES_MIN);
	struct rpc_arena_block *block;

	if (arena->total + bytes > arena->bytes_max) {
		arena->refused = -E2BIG;
		return -E2BIG;
	}
	block = malloc(sizeof(*block) + block_bytes);
	if (!block) {
		arena->refused = -ENOMEM;
		return -ENOMEM;
	}
	block->next = arena->blocks;
	block->bytes = block_bytes;
	arena->blocks = block;
	arena->current = block->data;
	arena->size = block_bytes;
	arena->used = 0;
	return 0;
}

void *rpc_arena_alloc(struct rpc_arena *arena, size_t bytes)
{
	void *memory;

	if (bytes > arena->bytes_max) {
		arena->refused = -E2BIG;
		return NULL;
	}
	bytes = (GX_MAX(bytes, (size_t)1) + 15) & ~(size_t)15;
	if (bytes > arena->size - arena->used && arena_grow(arena, bytes) < 0)
		return NULL;
	if (arena->total + bytes > arena->bytes_max) {
		arena->refused = -E2BIG;
		return NULL;
	}
	memory = arena->current + arena->used;
	arena->used += bytes;
	arena->total += bytes;
	return memory;
}

char *rpc_arena_strdup(struct rpc_arena *arena, const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = rpc_arena_alloc(arena, bytes);

	if (copy)
		memcpy(copy, text, bytes);
	return copy;
}

int rpc_arena_unpack(struct rpc_arena *arena, const ProtobufCMessageDescriptor *type,
		     const void *data, size_t bytes, ProtobufCMessage **ret_message)
{
	ProtobufCMessage *message;

	message = protobuf_c_message_unpack(type, &arena->allocator, bytes, data);
	if (!message) {
		/* protobuf-c does not say why; an arena that could not serve is the other cause. */
		return arena->refused < 0 ? arena->refused : -EPROTO;
	}
	*ret_message = message;
	return 0;
}

static void *heap_alloc(void *arg GX_UNUSED, size_t bytes)
{
	return malloc(bytes);
}

static void heap_free(void *arg GX_UNUSED, void *memory)
{
	free(memory);
}

ProtobufCAllocator *rpc_heap(void)
{
	static ProtobufCAllocator heap = {heap_alloc, heap_free, NULL};

	return &heap;
}
