#define GX_LOG_COMPONENT "rpc.dispatch"
#include "rpc/rpc_dispatch.h"
#include "common/gx_log.h"
#include "common/gx_sum.h"
#include "core.pb-c.h"
#include "rpc/rpc_core.h"
#include "rpc/rpc_status.h"
#include <stdarg.h>
#include <stdio.h>

enum { CALL_NEW, CALL_DECODED, CALL_RUNNING, CALL_DONE };

void rpc_dispatcher_init(struct rpc_dispatcher *d, struct gx_env *env, const char *server_name,
			 const char *program)
{
	memset(d, 0, sizeof(*d));
	d->env = env;
	d->server_name = server_name;
	d->program = program;
	d->started_ns = gx_env_now_ns(env);
	rpc_stats_init(&d->stats);
	rpc_dispatcher_add(d, &rpc_core_service, d);
}

void rpc_dispatcher_add(struct rpc_dispatcher *d, const struct rpc_service *service, void *data)
{
	for (size_t i = 0; i < service->row_count; i++) {
		const struct rpc_method *method = rpc_method_find(service->rows[i].method);

		gx_assert(method && !d->handlers[method->index].thunk);
		d->handlers[method->index].thunk = service->rows[i].thunk;
		d->handlers[method->index].data = data;
	}
}

void rpc_dispatcher_lock(struct rpc_dispatcher *d)
{
	if (d->stats_lock)
		gx_env_mutex_lock(d->env, d->stats_lock);
}

void rpc_dispatcher_unlock(struct rpc_dispatcher *d)
{
	if (d->stats_lock)
		gx_env_mutex_unlock(d->env, d->stats_lock);
}

void rpc_call_init(struct rpc_call *call, struct rpc_dispatcher *d, const struct rpc_call_ops *ops,
		   void *conn)
{
	memset(call, 0, offsetof(struct rpc_call, arena));
	call->env = d->env;
	call->dispatcher = d;
	call->ops = ops;
	call->conn = conn;
	call->state = CALL_NEW;
	call->reply_file = -1;
	call->reply_descriptor = -1;
	rpc_arena_init(&call->arena, GX_UNPACK_MAX);
}

void rpc_call_clear(struct rpc_call *call)
{
	void (*done)(struct rpc_call *) = GX_TAKE(call->reply_done);

	if (done)
		done(call);
	rpc_arena_clear(&call->arena);
	call->state = CALL_NEW;
}

int rpc_call_fail(struct rpc_call *call, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(call->detail, sizeof(call->detail), fmt, args);
	va_end(args);
	return err;
}

/* -- begin ------------------------------------------------------------------------ */

static int check_rights(struct rpc_call *call)
{
	const struct rpc_method *m = call->method;

	if ((m->flags & RPC_F_HOST) && call->peer->kind != RPC_IDENTITY_HOST)
		return rpc_call_fail(call, -EPERM, "%s is for daemons only", m->name);
	if ((m->flags & RPC_F_ADMIN) && !call->peer->admin)
		return rpc_call_fail(call, -EPERM, "%s is for administrators only", m->name);
	if ((m->flags & RPC_F_SESSION) && call->session == 0)
		return rpc_call_fail(call, -ENOTCONN, "%s needs a session", m->name);
	if (call->payload_bytes > 0 && !(m->flags & RPC_F_BULK_IN))
		return rpc_call_fail(call, -EPROTO, "%s takes no payload", m->name);
	if ((m->flags & RPC_F_MUTATES) && call->frame.seq == 0)
		return rpc_call_fail(call, -EPROTO, "%s needs a sequence number", m->name);
	return 0;
}

static int find_method(struct rpc_call *call)
{
	struct rpc_dispatcher *d = call->dispatcher;
	const struct rpc_method *m = rpc_method_find(call->frame.code);

	if (!m || m->since > call->version || !d->handlers[m->index].thunk) {
		rpc_dispatcher_lock(d);
		d->stats.unknown++;
		rpc_dispatcher_unlock(d);
		return rpc_call_fail(call, -ENOSYS, "method 0x%04x is not known here",
				     call->frame.code);
	}
	call->method = m;
	call->data = d->handlers[m->index].data;
	return 0;
}

int rpc_dispatch_begin(struct rpc_call *call, const struct rpc_frame *frame, const void *message)
{
	struct rpc_dispatcher *d = call->dispatcher;
	int r;

	gx_assert(call->state == CALL_NEW);
	call->frame = *frame;
	call->payload_bytes = frame->payload_bytes;
	call->start_ns = gx_env_now_ns(call->env);
	call->deadline_ns = GX_FOREVER;
	if (frame->time_ms > 0)
		call->deadline_ns = call->start_ns + (int64_t)frame->time_ms * GX_NSEC_PER_MSEC;
	call->state = CALL_DECODED;
	if (d->draining) {
		call->retry_after_ms = 100;
		return -ESHUTDOWN;
	}
	r = find_method(call);
	if (r == 0)
		r = check_rights(call);
	if (r == 0 && (call->method->flags & RPC_F_MUTATES))
		call->request_check = gx_sum64_seed(message, frame->message_bytes, frame->code);
	if (r < 0)
		return r;
	r = rpc_arena_unpack(&call->arena, call->method->request, message, frame->message_bytes,
			     &call->request);
	if (r < 0)
		return rpc_call_fail(call, r, "%s: %s", call->method->name,
				     r == -EPROTO ? "malformed request" : "request too large");
	call->reply = rpc_arena_alloc(&call->arena, call->method->reply->sizeof_message);
	if (!call->reply)
		return -ENOMEM;
	protobuf_c_message_init(call->method->reply, call->reply);
	return 0;
}

/* -- run and finish ------------------------------------------------------------------ */

static int run_handler(struct rpc_call *call)
{
	struct rpc_dispatcher *d = call->dispatcher;
	int r;

	if (call->method->flags & RPC_F_MUTATES) {
		if (!d->replay)
			return rpc_call_fail(call, -EOPNOTSUPP, "no replay table here");
		r = d->replay->ops->begin(d->replay, call);
		if (r != 0)
			return r;
	}
	call->state = CALL_RUNNING;
	return d->handlers[call->method->index].thunk(call, call->request, call->reply);
}

void rpc_dispatch_run(struct rpc_call *call)
{
	uint64_t outer = gx_log_request();
	int r;

	gx_assert(call->state == CALL_DECODED);
	gx_log_set_request(call->frame.trace);
	r = run_handler(call);
	/* With RPC_ANSWERED or RPC_DEFERRED the call may be gone already. */
	if (r == RPC_DEFERRED)
		;
	else if (r != RPC_ANSWERED)
		rpc_call_finish(call, r);
	gx_log_set_request(outer);
}

void rpc_call_run_again(struct rpc_call *call)
{
	uint64_t outer = gx_log_request();
	int r;

	gx_assert(call->state == CALL_RUNNING);
	gx_log_set_request(call->frame.trace);
	r = call->dispatcher->handlers[call->method->index].thunk(call, call->request, call->reply);
	if (r != RPC_DEFERRED)
		rpc_call_finish(call, r);
	gx_log_set_request(outer);
}

static void send_reply(struct rpc_call *call, uint16_t status, const void *message, uint32_t bytes)
{
	bool with_descriptor = status == RPC_STATUS_OK && call->reply_descriptor >= 0;
	struct rpc_frame frame = {
		.type = RPC_FRAME_REPLY,
		.flags = with_descriptor ? RPC_FRAME_DESCRIPTOR : 0,
		.code = status,
		.message_bytes = bytes,
		.payload_bytes = call->reply_payload_bytes,
		.id = call->frame.id,
		.trace = call->frame.trace,
		.time_ms = call->retry_after_ms,
		.seq = call->frame.seq,
	};
	struct rpc_dispatcher *d = call->dispatcher;
	bool ran = call->state == CALL_RUNNING;

	gx_assert(call->state != CALL_DONE && call->state != CALL_NEW);
	call->state = CALL_DONE;
	rpc_dispatcher_lock(d);
	if (call->method)
		rpc_stats_call(&d->stats, call->method, status != RPC_STATUS_OK,
			       call->frame.message_bytes + call->frame.payload_bytes,
			       bytes + call->reply_payload_bytes,
			       gx_env_now_ns(call->env) - call->start_ns);
	rpc_dispatcher_unlock(d);
	if (ran && (call->method->flags & RPC_F_MUTATES))
		d->replay->ops->finish(d->replay, call, &frame, message);
	call->ops->reply(call, &frame, message);
}

void rpc_call_answer(struct rpc_call *call, uint16_t status, const void *message, uint32_t bytes)
{
	rpc_dispatcher_lock(call->dispatcher);
	call->dispatcher->stats.replayed++;
	rpc_dispatcher_unlock(call->dispatcher);
	call->state = CALL_DECODED; /* not running: the table must not remember it again */
	send_reply(call, status, message, bytes);
}

/* The reply message, packed into the call's arena; NULL when it cannot be. */
static const void *pack_reply(struct rpc_call *call, uint32_t *ret_bytes)
{
	size_t bytes;
	void *packed;

	if (call->packed) {
		*ret_bytes = call->packed_bytes;
		return call->packed;
	}
	bytes = protobuf_c_message_get_packed_size(call->reply);
	if (bytes > GX_MESSAGE_MAX)
		return NULL;
	packed = rpc_arena_alloc(&call->arena, bytes);
	if (!packed)
		return NULL;
	*ret_bytes = (uint32_t)protobuf_c_message_pack(call->reply, packed);
	return packed;
}

/* The handler succeeded but its reply cannot be sent. */
static int pack_failed(struct rpc_call *call)
{
	if (call->method->flags & RPC_F_MUTATES)
		return rpc_call_fail(call, -ENOTRECOVERABLE, "done, but the reply is lost");
	if (call->arena.refused == -ENOMEM)
		return -ENOMEM;
	return rpc_call_fail(call, -E2BIG, "the reply is too large");
}

void rpc_call_finish(struct rpc_call *call, int err)
{
	const void *message = NULL;
	uint32_t bytes = 0;
	bool exact = true;
	enum rpc_status status;

	gx_assert(err <= 0);
	if (err == 0 && call->reply_descriptor >= 0 && !call->passes_descriptors)
		err = rpc_call_fail(call, -EOPNOTSUPP, "descriptors go over unix sockets only");
	/* The request did not arrive whole: its sender, if it lives, sends it again. */
	if (err < 0 && err == call->payload_err)
		err = -EAGAIN;
	if (err == 0) {
		message = pack_reply(call, &bytes);
		if (!message)
			err = pack_failed(call);
	}
	/*
	 * Out of memory before the handler ran: nothing was done by this try, and an earlier one
	 * may have been, so the answer is "again" and not "failed".
	 */
	if (err == -ENOMEM && call->state == CALL_DECODED)
		err = -EAGAIN;
	status = rpc_status_from_errno(err, &exact);
	if (!exact)
		gx_log(WARNING, "an error without a wire status became IO",
		       GX_KS("method", call->method ? call->method->name : "?"), GX_KE(err));
	if (status != RPC_STATUS_OK) {
		message = call->detail;
		bytes = (uint32_t)strlen(call->detail);
		call->reply_payload = NULL;
		call->reply_payload_bytes = 0;
	}
	send_reply(call, (uint16_t)status, message, bytes);
}

ssize_t rpc_call_read_payload(struct rpc_call *call, void *buf, size_t bytes)
{
	uint64_t left;

	if (call->ops->read_payload) {
		ssize_t n = call->ops->read_payload(call, buf, bytes);

		if (n < 0)
			call->payload_err = (int)n;
		return n;
	}
	left = call->payload_left;
	bytes = (size_t)GX_MIN((uint64_t)bytes, left);
	memcpy(buf, call->payload + (call->payload_bytes - left), bytes);
	call->payload_left -= bytes;
	return (ssize_t)bytes;
}
