#include "rpc/rpc_out.h"

#define BLOCK_BYTES ((size_t)16384)
#define FLUSH_IOVS 16

struct rpc_out_block {
	struct rpc_out_block *next;
	struct rpc_call *call;     /* payload block: whose; NULL: bytes are in data[] */
	const unsigned char *from; /* next byte to send */
	size_t left;               /* bytes to send */
	size_t used, capacity;     /* of data[] */
	unsigned char data[];
};

void rpc_out_init(struct rpc_out *out, void (*release)(struct rpc_call *call))
{
	*out = (struct rpc_out){.release = release};
}

static void block_free(struct rpc_out *out, struct rpc_out_block *block)
{
	if (block->call)
		out->release(block->call);
	if (!block->call && !out->spare && block->capacity == BLOCK_BYTES)
		out->spare = block;
	else
		free(block);
}

void rpc_out_fini(struct rpc_out *out)
{
	while (out->head) {
		struct rpc_out_block *block = out->head;

		out->head = block->next;
		block_free(out, block);
	}
	free(out->spare);
	out->tail = out->spare = NULL;
	out->bytes = 0;
}

static struct rpc_out_block *block_add(struct rpc_out *out, size_t capacity)
{
	struct rpc_out_block *block;

	if (capacity == BLOCK_BYTES && out->spare)
		block = GX_TAKE(out->spare);
	else
		block = malloc(sizeof(*block) + capacity);
	if (!block)
		return NULL;
	block->next = NULL;
	block->call = NULL;
	block->from = block->data;
	block->left = 0;
	block->used = 0;
	block->capacity = capacity;
	if (out->tail)
		out->tail->next = block;
	else
		out->head = block;
	out->tail = block;
	return block;
}

int rpc_out_append(struct rpc_out *out, const void *data, size_t bytes)
{
	struct rpc_out_block *block = out->tail;

	if (bytes == 0)
		return 0;
	if (!block || block->call || bytes > block->capacity - block->used) {
		block = block_add(out, GX_MAX(bytes, BLOCK_BYTES));
		if (!block)
			return -ENOMEM;
	}
	memcpy(block->data + block->used, data, bytes);
	block->used += bytes;
	block->left += bytes;
	out->bytes += bytes;
	return 0;
}

int rpc_out_payload(struct rpc_out *out, struct rpc_call *call)
{
	struct rpc_out_block *block = block_add(out, 0);

	if (!block)
		return -ENOMEM;
	block->call = call;
	block->from = call->reply_payload;
	block->left = call->reply_payload_bytes;
	out->bytes += block->left;
	return 0;
}

static void advance(struct rpc_out *out, size_t bytes)
{
	out->bytes -= bytes;
	while (out->head && bytes >= out->head->left) {
		struct rpc_out_block *block = out->head;

		bytes -= block->left;
		out->head = block->next;
		if (!out->head)
			out->tail = NULL;
		block_free(out, block);
	}
	if (out->head) {
		out->head->from += bytes;
		out->head->left -= bytes;
	}
}

int rpc_out_flush(struct rpc_out *out, struct rpc_stream *stream)
{
	while (out->head) {
		struct iovec iov[FLUSH_IOVS];
		int count = 0;
		ssize_t n;

		for (struct rpc_out_block *b = out->head; b && count < FLUSH_IOVS; b = b->next)
			iov[count++] = (struct iovec){(void *)b->from, b->left};
		n = rpc_stream_writev(stream, iov, count, GX_NOWAIT);
		if (n < 0)
			return (int)n;
		advance(out, (size_t)n);
	}
	return 0;
}
