#include "rpc/rpc_chan.h"
#include "rpc/rpc_chan_impl.h"
#include "rpc/rpc_status.h"

/* Requests up to this size are packed on the stack. */
#define SMALL_BYTES 1024u
#define PAYLOAD_IOVS 32
/* A connection not used for this long is looked at before it is used again. */
#define IDLE_NS (5 * GX_NSEC_PER_MSEC)

void rpc_reply_init(struct rpc_reply *reply)
{
	memset(reply, 0, offsetof(struct rpc_reply, arena));
	rpc_arena_init(&reply->arena, GX_UNPACK_MAX);
	reply->used = true;
}

void rpc_reply_fini(struct rpc_reply *reply)
{
	if (reply->used)
		rpc_arena_clear(&reply->arena);
	reply->used = false;
}

/* -- slots (all under chan->lock) ------------------------------------------------------- */

static struct slot *slot_find(struct rpc_chan *chan, uint64_t call)
{
	struct slot *slot = &chan->slots[call % SLOTS];

	return slot->state != SLOT_FREE && slot->call == call ? slot : NULL;
}

static struct slot *slot_take(struct rpc_chan *chan)
{
	/* Numbers are given so that a number's slot is free; skip those still in use. */
	for (unsigned i = 0; i < SLOTS; i++) {
		uint64_t call = chan->next_call++;
		struct slot *slot = &chan->slots[call % SLOTS];

		if (slot->state == SLOT_FREE) {
			slot->call = call;
			chan->load++;
			chan->used_ns = gx_env_now_ns(chan->env);
			return slot;
		}
	}
	return NULL;
}

static void slot_give(struct rpc_chan *chan, struct slot *slot)
{
	free(slot->held);
	slot->held = NULL;
	slot->reply = NULL;
	slot->state = SLOT_FREE;
	chan->load--;
}

static int slot_sleep(struct rpc_chan *chan, struct slot *slot, int64_t deadline_ns)
{
	int r;

	slot->asleep = true;
	chan->sleepers++;
	r = gx_env_cond_wait(chan->env, &slot->wake, &chan->lock, deadline_ns);
	chan->sleepers--;
	slot->asleep = false;
	return r;
}

static void slot_wake(struct rpc_chan *chan, struct slot *slot)
{
	if (slot->asleep)
		gx_env_cond_signal(chan->env, &slot->wake);
}

static void chan_fail(struct rpc_chan *chan, int err)
{
	if (chan->failed == 0)
		chan->failed = err;
	for (size_t i = 0; i < SLOTS; i++) {
		struct slot *slot = &chan->slots[i];

		if (slot->state == SLOT_WAITING) {
			slot->state = SLOT_DONE;
			slot->err = chan->failed;
			slot_wake(chan, slot);
		}
	}
}

/* Gives the reading on to one of those who wait; one that is done already would not take it. */
static void pass_reading(struct rpc_chan *chan)
{
	chan->reading = false;
	/* A lone caller is the rule; it should not walk through all slots after each call. */
	for (size_t i = 0; chan->sleepers > 0 && i < SLOTS; i++) {
		if (chan->slots[i].asleep && chan->slots[i].state == SLOT_WAITING) {
			slot_wake(chan, &chan->slots[i]);
			return;
		}
	}
}

void rpc_chan_abort(struct rpc_chan *chan)
{
	gx_env_mutex_lock(chan->env, &chan->lock);
	chan_fail(chan, -ECANCELED);
	gx_env_mutex_unlock(chan->env, &chan->lock);
	gx_env_shutdown(chan->env, chan->stream.fd);
}

/*
 * The stream has failed while another thread reads into this slot's memory: the caller may have
 * it back only when that read has returned, which the shut-down makes it do.
 */
static void slot_settle(struct rpc_chan *chan, struct slot *slot)
{
	while (chan->direct_slot == slot)
		slot_sleep(chan, slot, GX_FOREVER);
}

/* -- sending ---------------------------------------------------------------------------- */

/* For the wire, where 0 means no deadline. -ETIMEDOUT: it has passed, so nothing is sent. */
static int remaining_ms(struct gx_env *env, int64_t deadline_ns, uint32_t *ret_ms)
{
	int64_t left_ns;

	*ret_ms = 0;
	if (deadline_ns == GX_FOREVER)
		return 0;
	left_ns = deadline_ns - gx_env_now_ns(env);
	if (left_ns <= 0)
		return -ETIMEDOUT;
	*ret_ms = (uint32_t)GX_MIN(left_ns / GX_NSEC_PER_MSEC + 1, (int64_t)UINT32_MAX);
	return 0;
}

/*
 * The right to write. No mutex: who waits for another's long write must not wait longer than its
 * own deadline.
 */
static int write_begin(struct rpc_chan *chan, int64_t deadline_ns)
{
	int r = 0;

	gx_env_mutex_lock(chan->env, &chan->lock);
	chan->write_waiters++;
	while (r == 0 && chan->writing)
		r = gx_env_cond_wait(chan->env, &chan->writable, &chan->lock, deadline_ns);
	chan->write_waiters--;
	if (r == 0)
		r = chan->failed;
	if (r == 0)
		chan->writing = true;
	else if (!chan->writing && chan->write_waiters > 0)
		gx_env_cond_signal(chan->env, &chan->writable);
	gx_env_mutex_unlock(chan->env, &chan->lock);
	return r;
}

static void write_end(struct rpc_chan *chan)
{
	gx_env_mutex_lock(chan->env, &chan->lock);
	chan->writing = false;
	if (chan->write_waiters > 0)
		gx_env_cond_signal(chan->env, &chan->writable);
	gx_env_mutex_unlock(chan->env, &chan->lock);
}

int rpc_chan_send_frame(struct rpc_chan *chan, const struct rpc_frame *frame, const void *message,
			const struct rpc_request *request, bool *ret_sent)
{
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	struct iovec iov[2 + PAYLOAD_IOVS];
	int count = 2;
	int r;

	rpc_frame_encode(frame, message, chan->secret, header);
	iov[0] = (struct iovec){header, sizeof(header)};
	iov[1] = (struct iovec){(void *)message, frame->message_bytes};
	for (int i = 0; i < request->payload_out_count; i++)
		iov[count++] = request->payload_out[i];
	r = write_begin(chan, request->deadline_ns);
	if (r < 0)
		return r;
	*ret_sent = true;
	r = rpc_stream_write_all(&chan->stream, iov, count, request->deadline_ns);
	write_end(chan);
	return r;
}

static int fill_frame(struct rpc_chan *chan, const struct rpc_request *request,
		      struct rpc_frame *ret_frame)
{
	size_t message_bytes = protobuf_c_message_get_packed_size(request->message);
	uint64_t payload_bytes = 0;

	if (request->payload_out_count > PAYLOAD_IOVS)
		return -EINVAL;
	for (int i = 0; i < request->payload_out_count; i++)
		payload_bytes += request->payload_out[i].iov_len;
	if (message_bytes > GX_MESSAGE_MAX || payload_bytes > GX_PAYLOAD_MAX)
		return -E2BIG;
	*ret_frame = (struct rpc_frame){
		.type = RPC_FRAME_REQUEST,
		.code = request->method->id,
		.message_bytes = (uint32_t)message_bytes,
		.payload_bytes = payload_bytes,
		.trace = request->trace,
		.window = request->window,
		.seq = request->seq,
	};
	return remaining_ms(chan->env, request->deadline_ns, &ret_frame->time_ms);
}

static int send_request(struct rpc_chan *chan, const struct rpc_request *request,
			struct rpc_frame *frame, bool *ret_sent)
{
	unsigned char small[SMALL_BYTES];
	GX_AUTOFREE unsigned char *large = NULL;
	unsigned char *packed = small;

	if (frame->message_bytes > sizeof(small)) {
		large = malloc(frame->message_bytes);
		if (!large)
			return -ENOMEM;
		packed = large;
	}
	protobuf_c_message_pack(request->message, packed);
	return rpc_chan_send_frame(chan, frame, packed, request, ret_sent);
}

static int slot_start(struct rpc_chan *chan, const struct rpc_request *request,
		      struct slot **ret_slot)
{
	struct slot *slot;
	int r;

	r = chan->failed;
	if (r == 0 && chan->leaving)
		r = -ESHUTDOWN;
	if (r < 0)
		return r;
	slot = slot_take(chan);
	if (!slot) {
		/* Perhaps all are waiting for late replies: let the pool open another connection.
		 */
		chan->leaving = true;
		return -EBUSY;
	}
	if (!slot->has_wake) {
		r = gx_env_cond_init(chan->env, &slot->wake);
		if (r < 0) {
			slot_give(chan, slot);
			return r;
		}
		slot->has_wake = true;
	}
	slot->state = SLOT_WAITING;
	slot->err = 0;
	slot->deadline_ns = request->deadline_ns;
	slot->method = request->method;
	slot->payload_in = request->payload_in;
	slot->payload_in_bytes = request->payload_in_bytes;
	*ret_slot = slot;
	return 0;
}

int rpc_chan_submit(struct rpc_chan *chan, const struct rpc_request *request, uint64_t *ret_call,
		    bool *ret_sent)
{
	struct rpc_frame frame;
	struct slot *slot;
	uint64_t call;
	bool sent = false;
	int r;

	r = fill_frame(chan, request, &frame);
	if (r < 0)
		goto out;
	gx_env_mutex_lock(chan->env, &chan->lock);
	r = slot_start(chan, request, &slot);
	call = r == 0 ? slot->call : 0;
	gx_env_mutex_unlock(chan->env, &chan->lock);
	if (r < 0)
		goto out;
	frame.id = call;
	r = send_request(chan, request, &frame, &sent);
	if (r < 0) {
		gx_env_mutex_lock(chan->env, &chan->lock);
		slot = slot_find(chan, call);
		/* To the other calls our deadline is nothing but a broken connection. */
		if (sent || chan->payload_slot == slot) {
			chan_fail(chan, r == -ETIMEDOUT ? -ECONNRESET : r);
			gx_env_shutdown(chan->env, chan->stream.fd);
		}
		slot_settle(chan, slot);
		slot_give(chan, slot);
		gx_env_mutex_unlock(chan->env, &chan->lock);
		goto out;
	}
	*ret_call = call;
out:
	if (ret_sent)
		*ret_sent = sent;
	return r;
}

/* -- receiving --------------------------------------------------------------------------- */

/* Turns a reply's bytes into the waiting thread's struct rpc_reply. */
static int reply_fill(struct slot *slot, const struct rpc_frame *frame, const void *message)
{
	struct rpc_reply *reply = slot->reply;

	reply->status = frame->code;
	reply->retry_after_ms = frame->time_ms;
	reply->payload_bytes = frame->payload_bytes;
	if (frame->code != RPC_STATUS_OK) {
		rpc_detail_copy(message, frame->message_bytes, reply->detail);
		return 0;
	}
	return rpc_arena_unpack(&reply->arena, slot->method->reply, message, frame->message_bytes,
				&reply->message);
}

static void slot_done(struct rpc_chan *chan, struct slot *slot, int err)
{
	if (slot->state == SLOT_ABANDONED) {
		slot_give(chan, slot);
		return;
	}
	slot->state = SLOT_DONE;
	slot->err = err;
	slot_wake(chan, slot);
}

/* A reply's header and message are there; its payload may follow. Under the lock. */
static int take_reply(struct rpc_chan *chan, const struct rpc_frame *frame, const void *message)
{
	struct slot *slot = slot_find(chan, frame->id);
	int r = 0;

	if (!slot || slot->state == SLOT_DONE)
		return -EPROTO; /* a reply to nothing */
	chan->payload_left = frame->payload_bytes;
	chan->payload = NULL;
	if (slot->state == SLOT_WAITING) {
		if (frame->payload_bytes > slot->payload_in_bytes)
			r = -E2BIG;
		else
			chan->payload = slot->payload_in;
		if (r == 0 && slot->reply) {
			r = reply_fill(slot, frame, message);
		} else if (r == 0) {
			/* Submitted, not waited for yet: keep the bytes. */
			slot->held = malloc(frame->message_bytes + 1);
			if (slot->held)
				memcpy(slot->held, message, frame->message_bytes);
			else
				r = -ENOMEM;
			slot->frame = *frame;
		}
		if (r < 0)
			chan->payload = NULL;
	}
	slot->err = r;
	if (chan->payload_left > 0)
		chan->payload_slot = slot;
	else
		slot_done(chan, slot, r);
	return 0;
}

static void payload_progress(struct rpc_chan *chan, size_t bytes)
{
	if (chan->payload)
		chan->payload += bytes;
	chan->payload_left -= bytes;
	if (chan->payload_left == 0 && chan->payload_slot) {
		struct slot *slot = chan->payload_slot;

		chan->payload_slot = NULL;
		slot_done(chan, slot, slot->err);
	}
}

static int take_frame(struct rpc_chan *chan, const struct rpc_frame *frame, const void *message)
{
	switch (frame->type) {
	case RPC_FRAME_REPLY:
		return take_reply(chan, frame, message);
	case RPC_FRAME_GOAWAY:
		chan->leaving = true;
		return 0;
	case RPC_FRAME_PROGRESS:
		return 0; /* it has been heard from: that is all */
	default:
		return -EPROTO;
	}
}

static const struct rpc_frame_limits reply_limits = {
	.types = UINT32_C(1) << RPC_FRAME_REPLY | UINT32_C(1) << RPC_FRAME_GOAWAY |
		 UINT32_C(1) << RPC_FRAME_PROGRESS | UINT32_C(1) << RPC_FRAME_PUSH,
	.message_max = GX_MESSAGE_MAX,
	.payload_max = GX_PAYLOAD_MAX,
};

int rpc_chan_next_frame(struct rpc_chan *chan, struct rpc_frame *ret_frame,
			const unsigned char **ret_message)
{
	const unsigned char *p = chan->in + chan->in_begin;
	size_t have = chan->in_end - chan->in_begin;
	size_t total;
	int r;

	if (have < RPC_FRAME_HEADER_BYTES)
		return 0;
	r = rpc_frame_decode(p, &reply_limits, ret_frame, NULL);
	if (r < 0)
		return r;
	total = RPC_FRAME_HEADER_BYTES + ret_frame->message_bytes;
	if (have < total) {
		if (total > chan->in_size) {
			unsigned char *bigger = malloc(total);

			if (!bigger)
				return -ENOMEM;
			memcpy(bigger, p, have);
			free(chan->in);
			chan->in = bigger;
			chan->in_size = total;
			chan->in_begin = 0;
			chan->in_end = have;
		}
		return 0;
	}
	r = rpc_frame_verify(p, p + RPC_FRAME_HEADER_BYTES, ret_frame->message_bytes, chan->secret);
	if (r < 0)
		return r;
	*ret_message = p + RPC_FRAME_HEADER_BYTES;
	chan->in_begin += total;
	return 1;
}

void rpc_chan_compact(struct rpc_chan *chan)
{
	size_t left = chan->in_end - chan->in_begin;

	if (chan->in_begin > 0 && left > 0)
		memmove(chan->in, chan->in + chan->in_begin, left);
	chan->in_begin = 0;
	chan->in_end = left;
}

/* Deals with all that is in in[]. Under the lock, by the reader. */
static int take_buffered(struct rpc_chan *chan)
{
	for (;;) {
		const unsigned char *message;
		struct rpc_frame frame;
		int r;

		if (chan->payload_left > 0) {
			size_t part = GX_MIN(chan->in_end - chan->in_begin, chan->payload_left);

			if (part == 0)
				break;
			if (chan->payload)
				memcpy(chan->payload, chan->in + chan->in_begin, part);
			chan->in_begin += part;
			payload_progress(chan, part);
			continue;
		}
		r = rpc_chan_next_frame(chan, &frame, &message);
		if (r == 0)
			break;
		if (r == 1)
			r = take_frame(chan, &frame, message);
		if (r < 0)
			return r;
	}
	rpc_chan_compact(chan);
	return 0;
}

int rpc_chan_read_some(struct rpc_chan *chan, int64_t deadline_ns, size_t *ret_direct)
{
	struct iovec iov[2];
	size_t direct = 0;
	int count = 0;
	ssize_t n;

	if (chan->payload && chan->payload_left > 0) {
		direct = chan->payload_left;
		iov[count++] = (struct iovec){chan->payload, direct};
	}
	iov[count++] = (struct iovec){chan->in + chan->in_end, chan->in_size - chan->in_end};
	n = rpc_stream_readv(&chan->stream, iov, count, deadline_ns);
	if (n <= 0)
		return n < 0 ? (int)n : -ECONNRESET;
	direct = GX_MIN(direct, (size_t)n);
	chan->in_end += (size_t)n - direct;
	*ret_direct = direct;
	return 0;
}

/*
 * Nobody has read from an idle connection: a GOAWAY, or its end, may lie in the socket since long.
 * To learn of it only after the next request was sent would leave that one's outcome in doubt.
 */
static void look(struct rpc_chan *chan, int64_t now)
{
	size_t direct;
	int r;

	chan->used_ns = now;
	r = rpc_chan_read_some(chan, GX_NOWAIT, &direct);
	if (r == 0)
		r = take_buffered(chan);
	if (r < 0 && r != -EAGAIN)
		chan_fail(chan, r);
}

bool rpc_chan_usable(struct rpc_chan *chan)
{
	int64_t now = gx_env_now_ns(chan->env);
	bool usable;

	gx_env_mutex_lock(chan->env, &chan->lock);
	if (chan->failed == 0 && !chan->reading && chan->load == 0 && now - chan->used_ns > IDLE_NS)
		look(chan, now);
	usable = chan->failed == 0 && !chan->leaving;
	gx_env_mutex_unlock(chan->env, &chan->lock);
	return usable;
}

/*
 * Reads for everybody until `slot` has its reply or its time is up. Called and
 * returns under the lock.
 */
static void read_for_all(struct rpc_chan *chan, struct slot *slot)
{
	chan->reading = true;
	while (slot->state == SLOT_WAITING && chan->failed == 0) {
		size_t direct = 0;
		int r;

		chan->direct_slot = chan->payload ? chan->payload_slot : NULL;
		gx_env_mutex_unlock(chan->env, &chan->lock);
		r = rpc_chan_read_some(chan, slot->deadline_ns, &direct);
		gx_env_mutex_lock(chan->env, &chan->lock);
		if (chan->direct_slot) {
			struct slot *other = chan->direct_slot;

			chan->direct_slot = NULL;
			if (chan->failed != 0)
				slot_wake(chan, other); /* it waits to have its memory back */
		}
		if (chan->failed != 0 || r == -ETIMEDOUT)
			break;
		if (r == 0 && direct > 0)
			payload_progress(chan, direct);
		if (r == 0)
			r = take_buffered(chan);
		if (r < 0)
			chan_fail(chan, r);
	}
	pass_reading(chan);
}

/*
 * The call's time is up. Its slot stays until the late reply comes, but the
 * caller's memory must not be touched any more. If another thread is reading
 * into it at this moment the only way to get it back is to end the stream.
 */
static void slot_expire(struct rpc_chan *chan, struct slot *slot)
{
	slot->reply = NULL;
	if (chan->direct_slot == slot) {
		slot->state = SLOT_DONE;
		chan_fail(chan, -ECONNRESET);
		gx_env_shutdown(chan->env, chan->stream.fd);
		slot_settle(chan, slot);
		slot_give(chan, slot);
		return;
	}
	slot->state = SLOT_ABANDONED;
	if (chan->payload_slot == slot)
		chan->payload = NULL;
}

/* Waits for the reply, reading or letting another thread read. False: the time is up. */
static bool slot_wait(struct rpc_chan *chan, struct slot *slot)
{
	while (slot->state == SLOT_WAITING) {
		int r = 0;

		if (!chan->reading) {
			read_for_all(chan, slot);
			if (slot->state == SLOT_WAITING)
				return false;
			continue;
		}
		r = slot_sleep(chan, slot, slot->deadline_ns);
		if (r == -ETIMEDOUT && slot->state == SLOT_WAITING) {
			/* The reading may just have been passed to us: somebody must take it. */
			if (!chan->reading)
				pass_reading(chan);
			return false;
		}
	}
	return true;
}

int rpc_chan_wait(struct rpc_chan *chan, uint64_t call, struct rpc_reply *ret_reply)
{
	struct slot *slot;
	int r;

	gx_env_mutex_lock(chan->env, &chan->lock);
	slot = slot_find(chan, call);
	gx_assert(slot && !slot->reply);
	slot->reply = ret_reply;
	if (slot->held) {
		r = reply_fill(slot, &slot->frame, slot->held);
		if (slot->err == 0)
			slot->err = r;
	}
	if (slot_wait(chan, slot)) {
		slot_settle(chan, slot);
		r = slot->err;
		slot_give(chan, slot);
	} else {
		r = -ETIMEDOUT;
		slot_expire(chan, slot);
	}
	gx_env_mutex_unlock(chan->env, &chan->lock);
	return r;
}
