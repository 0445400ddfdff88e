/*
 * Server push: numbered messages on a channel the client opened for them.
 */
#include "rpc/rpc_conn.h"

/* Takes the oldest waiting push off the list and tells its sender. */
static void push_end(struct rpc_conn *conn, int err)
{
	struct rpc_push *push = conn->pushes;

	DL_DELETE(conn->pushes, push);
	conn->push_count--;
	if (push->fn)
		push->fn(push->arg, err);
	free(push);
}

bool rpc_conn_push_ack(struct rpc_conn *conn, uint64_t seq)
{
	if (seq == 0 || seq > conn->push_seq)
		return false;
	while (conn->pushes && conn->pushes->seq <= seq)
		push_end(conn, 0);
	return true;
}

void rpc_conn_push_abort(struct rpc_conn *conn)
{
	while (conn->pushes)
		push_end(conn, -ECONNRESET);
}

int rpc_server_push(struct rpc_server *server, uint64_t session, enum rpc_method_id method,
		    const ProtobufCMessage *message, rpc_pushed_fn fn, void *arg)
{
	struct rpc_frame frame = {.type = RPC_FRAME_PUSH, .code = (uint16_t)method};
	size_t bytes = protobuf_c_message_get_packed_size(message);
	GX_AUTOFREE unsigned char *packed = NULL;
	struct rpc_conn *conn;
	struct rpc_push *push;

	HASH_FIND(hh, server->push_conns, &session, sizeof(session), conn);
	if (!conn)
		return -ENOTCONN;
	if (bytes > GX_MESSAGE_MAX)
		return -EMSGSIZE;
	if (conn->push_count >= GX_PUSH_QUEUE_PER_SESSION_MAX ||
	    conn->out.bytes >= GX_OUT_QUEUE_PER_CONN_MAX) {
		rpc_conn_close(conn, "too many pushes not acknowledged");
		return -E2BIG;
	}
	packed = malloc(bytes + 1);
	push = malloc(sizeof(*push));
	if (!packed || !push) {
		free(push);
		return -ENOMEM;
	}
	protobuf_c_message_pack(message, packed);
	*push = (struct rpc_push){.seq = ++conn->push_seq, .fn = fn, .arg = arg};
	DL_APPEND(conn->pushes, push);
	conn->push_count++;
	frame.seq = push->seq;
	frame.message_bytes = (uint32_t)bytes;
	rpc_conn_send(conn, &frame, packed);
	/* If even queuing failed the connection is dead and fn hears of it at the turn's end. */
	return 0;
}
