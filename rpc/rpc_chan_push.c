/*
 * The client's end of a push channel.
 */
#include "rpc/rpc_chan_impl.h"

void rpc_push_message_init(struct rpc_push_message *push)
{
	memset(push, 0, offsetof(struct rpc_push_message, arena));
	rpc_arena_init(&push->arena, GX_UNPACK_MAX);
}

void rpc_push_message_fini(struct rpc_push_message *push)
{
	rpc_arena_clear(&push->arena);
}

static int take_push(struct rpc_chan *chan, const struct rpc_frame *frame, const void *message,
		     struct rpc_push_message *push)
{
	const struct rpc_method *method = rpc_method_find(frame->code);
	int r;

	if (frame->type == RPC_FRAME_GOAWAY)
		return -ESHUTDOWN;
	if (frame->type != RPC_FRAME_PUSH || frame->payload_bytes > 0)
		return -EPROTO;
	/* A missing number means a missed invalidation: the caller must forget all it knows. */
	if (frame->seq != chan->push_seq + 1)
		return -EPROTO;
	chan->push_seq = frame->seq;
	if (!method || !(method->flags & RPC_F_PUSH))
		return -ENOSYS;
	rpc_arena_clear(&push->arena);
	r = rpc_arena_unpack(&push->arena, method->request, message, frame->message_bytes,
			     &push->message);
	if (r < 0)
		return r;
	push->seq = frame->seq;
	push->method = method;
	return 0;
}

int rpc_chan_receive(struct rpc_chan *chan, int64_t deadline_ns, struct rpc_push_message *ret_push)
{
	for (;;) {
		const unsigned char *message;
		struct rpc_frame frame;
		size_t direct;
		int r = rpc_chan_next_frame(chan, &frame, &message);

		if (r == 1)
			return take_push(chan, &frame, message, ret_push);
		if (r == 0) {
			rpc_chan_compact(chan);
			r = rpc_chan_read_some(chan, deadline_ns, &direct);
		}
		if (r < 0)
			return r;
	}
}

int rpc_chan_ack(struct rpc_chan *chan, uint64_t seq, int64_t deadline_ns)
{
	struct rpc_frame frame = {.type = RPC_FRAME_PUSH_ACK, .seq = seq};
	struct rpc_request request = {.deadline_ns = deadline_ns};
	bool sent;

	return rpc_chan_send_frame(chan, &frame, NULL, &request, &sent);
}
