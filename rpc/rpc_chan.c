#include "rpc/rpc_chan.h"
#include "rpc/rpc_chan_impl.h"
#include "rpc/rpc_status.h"

/* A connection not used for this long is looked at before it is used again. */
#define IDLE_NS (5 * GX_NSEC_PER_MSEC)
#define BEHIND_BYTES 4096u /* read behind a payload: the next header, and checksums of a MiB */
#define LOOKS_MAX 64       /* a server that never stops sending does not keep us */

void rpc_reply_init(struct rpc_reply *reply)
{
	memset(reply, 0, offsetof(struct rpc_reply, arena));
	rpc_arena_init(&reply->arena, GX_UNPACK_MAX);
	reply->descriptor = -1;
	reply->used = true;
}

void rpc_reply_fini(struct rpc_reply *reply)
{
	if (reply->used) {
		rpc_arena_clear(&reply->arena);
		if (reply->descriptor >= 0)
			gx_env_close(reply->env, reply->descriptor);
	}
	reply->descriptor = -1;
	reply->used = false;
}

/* -- slots (all under chan->lock) ------------------------------------------------------- */

struct slot *rpc_chan_slot(struct rpc_chan *chan, uint64_t call)
{
	struct slot *slot = &chan->slots[call % SLOTS];

	return slot->state != SLOT_FREE && slot->call == call ? slot : NULL;
}

struct slot *rpc_chan_slot_take(struct rpc_chan *chan)
{
	/* Numbers are given so that a number's slot is free; skip those still in use. */
	for (unsigned i = 0; i < SLOTS; i++) {
		uint64_t call = chan->next_call++;
		struct slot *slot = &chan->slots[call % SLOTS];

		if (slot->state == SLOT_FREE) {
			slot->call = call;
			slot->descriptor = -1;
			chan->load++;
			chan->used_ns = gx_env_now_ns(chan->env);
			return slot;
		}
	}
	return NULL;
}

void rpc_chan_slot_give(struct rpc_chan *chan, struct slot *slot)
{
	free(slot->held);
	slot->held = NULL;
	if (slot->descriptor >= 0)
		gx_env_close(chan->env, slot->descriptor);
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

void rpc_chan_fail(struct rpc_chan *chan, int err)
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

void rpc_chan_pass_reading(struct rpc_chan *chan)
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
	rpc_chan_fail(chan, -ECANCELED);
	gx_env_mutex_unlock(chan->env, &chan->lock);
	gx_env_shutdown(chan->env, chan->stream.fd);
}

void rpc_chan_slot_settle(struct rpc_chan *chan, struct slot *slot)
{
	while (chan->direct_slot == slot)
		slot_sleep(chan, slot, GX_FOREVER);
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
		rpc_chan_slot_give(chan, slot);
		return;
	}
	slot->state = SLOT_DONE;
	slot->err = err;
	slot_wake(chan, slot);
}

/* The descriptor of a frame that says it has one. */
static int passed_take(struct rpc_chan *chan, int *ret_fd)
{
	if (chan->passed_count == 0)
		return -EPROTO;
	*ret_fd = chan->passed[0];
	chan->passed[0] = chan->passed[1];
	chan->passed_count--;
	return 0;
}

static void give_descriptor(struct rpc_chan *chan, struct slot *slot, int fd)
{
	if (slot->reply) {
		slot->reply->descriptor = fd;
		slot->reply->env = chan->env;
	} else {
		slot->descriptor = fd; /* for who waits later; else it goes with the slot */
	}
}

/* A reply's header and message are there; its payload may follow. Under the lock. */
static int take_reply(struct rpc_chan *chan, const struct rpc_frame *frame, const void *message)
{
	struct slot *slot = rpc_chan_slot(chan, frame->id);
	int r = 0;

	if (!slot || slot->state == SLOT_DONE)
		return -EPROTO; /* a reply to nothing */
	if (frame->flags & RPC_FRAME_DESCRIPTOR) {
		int fd;

		r = passed_take(chan, &fd);
		if (r < 0)
			return r;
		give_descriptor(chan, slot, fd);
	}
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
	/* A descriptor comes with the first byte of its frame: nobody has asked for this one. */
	return chan->in_end == 0 && chan->passed_count > 0 ? -EPROTO : 0;
}

int rpc_chan_read_some(struct rpc_chan *chan, int64_t deadline_ns, size_t *ret_direct)
{
	struct iovec iov[2];
	size_t direct = 0, room = chan->in_size - chan->in_end;
	int count = 0;
	int passed;
	ssize_t n;

	if (chan->payload && chan->payload_left > 0) {
		direct = chan->payload_left;
		iov[count++] = (struct iovec){chan->payload, direct};
		/* What of the next payload comes with it is copied twice. */
		room = GX_MIN(room, BEHIND_BYTES);
	}
	iov[count++] = (struct iovec){chan->in + chan->in_end, room};
	n = rpc_stream_readv_fd(&chan->stream, iov, count, &passed, deadline_ns);
	if (n <= 0)
		return n == 0 ? -ECONNRESET : n == -EHOSTDOWN ? -EHOSTUNREACH : (int)n;
	if (passed >= 0) {
		if (chan->passed_count == PASSED_MAX) {
			gx_env_close(chan->env, passed);
			return -EPROTO;
		}
		chan->passed[chan->passed_count++] = passed;
	}
	direct = GX_MIN(direct, (size_t)n);
	chan->in_end += (size_t)n - direct;
	*ret_direct = direct;
	return 0;
}

int rpc_chan_look(struct rpc_chan *chan, int64_t now)
{
	size_t direct = 0;
	int r;

	chan->used_ns = now;
	r = rpc_chan_read_some(chan, GX_NOWAIT, &direct);
	if (r == 0) {
		chan->heard_ns = now;
		if (direct > 0)
			payload_progress(chan, direct);
		r = take_buffered(chan);
	}
	if (r < 0 && r != -EAGAIN)
		rpc_chan_fail(chan, r);
	return r;
}

/*
 * Nobody has read from an idle connection: a GOAWAY, or its end, may lie in the socket since long.
 * To learn of it only after the next request was sent would leave that one's outcome in doubt. One
 * read may end in the middle of a frame.
 */
bool rpc_chan_usable(struct rpc_chan *chan)
{
	int64_t now = gx_env_now_ns(chan->env);
	bool usable;

	gx_env_mutex_lock(chan->env, &chan->lock);
	if (chan->failed == 0 && !chan->reading && now - chan->used_ns > IDLE_NS) {
		for (int i = 0; i < LOOKS_MAX && rpc_chan_look(chan, now) == 0; i++)
			;
	}
	usable = chan->failed == 0 && !chan->leaving;
	gx_env_mutex_unlock(chan->env, &chan->lock);
	return usable;
}

/* How long to wait at first: to the deadline, or as long as the call bears silence. */
static int64_t slot_until(const struct rpc_chan *chan, const struct slot *slot)
{
	int64_t from;

	if (slot->silent_ns == 0)
		return slot->deadline_ns;
	from = GX_MAX(slot->since_ns, chan->heard_ns);
	return slot->deadline_ns - from > slot->silent_ns ? from + slot->silent_ns
							  : slot->deadline_ns;
}

/*
 * Reads for everybody until `slot` has its reply or its time is up. Called and
 * returns under the lock.
 */
static void read_for_all(struct rpc_chan *chan, struct slot *slot)
{
	chan->reading = true;
	while (slot->state == SLOT_WAITING && chan->failed == 0) {
		int64_t until_ns = slot_until(chan, slot);
		size_t direct = 0;
		int r;

		chan->direct_slot = chan->payload ? chan->payload_slot : NULL;
		gx_env_mutex_unlock(chan->env, &chan->lock);
		r = rpc_chan_read_some(chan, until_ns, &direct);
		gx_env_mutex_lock(chan->env, &chan->lock);
		if (chan->direct_slot) {
			struct slot *other = chan->direct_slot;

			chan->direct_slot = NULL;
			if (chan->failed != 0)
				slot_wake(chan, other); /* it waits to have its memory back */
		}
		if (chan->failed != 0 || r == -ETIMEDOUT)
			break;
		if (r == 0)
			chan->heard_ns = gx_env_now_ns(chan->env);
		if (r == 0 && direct > 0)
			payload_progress(chan, direct);
		if (r == 0)
			r = take_buffered(chan);
		if (r < 0)
			rpc_chan_fail(chan, r);
	}
	rpc_chan_pass_reading(chan);
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
		rpc_chan_fail(chan, -ECONNRESET);
		gx_env_shutdown(chan->env, chan->stream.fd);
		rpc_chan_slot_settle(chan, slot);
		rpc_chan_slot_give(chan, slot);
		return;
	}
	slot->state = SLOT_ABANDONED;
	if (chan->payload_slot == slot)
		chan->payload = NULL;
}

/* The server has said nothing for too long: nobody will get anything from it. */
static void give_up(struct rpc_chan *chan, struct slot *slot)
{
	rpc_chan_fail(chan, -ECONNRESET);
	gx_env_shutdown(chan->env, chan->stream.fd);
	rpc_chan_slot_settle(chan, slot);
	rpc_chan_slot_give(chan, slot);
}

/*
 * Waits for the reply, reading or letting another thread read. -ETIMEDOUT: the time is up;
 * -EHOSTDOWN: there was silence for too long.
 */
static int slot_wait(struct rpc_chan *chan, struct slot *slot)
{
	int r = 0;

	while (r == 0 && slot->state == SLOT_WAITING) {
		int64_t now;

		if (!chan->reading)
			read_for_all(chan, slot);
		else if (slot_sleep(chan, slot, slot_until(chan, slot)) == 0)
			continue;
		if (slot->state != SLOT_WAITING)
			break;
		now = gx_env_now_ns(chan->env);
		/* While we slept the reader may have heard something. */
		if (slot_until(chan, slot) > now)
			continue;
		r = now < slot->deadline_ns ? -EHOSTDOWN : -ETIMEDOUT;
	}
	/*
	 * The reading may have been passed to us, and meanwhile somebody who only looked has found
	 * our reply, or our time is up: another must take it.
	 */
	if (!chan->reading)
		rpc_chan_pass_reading(chan);
	return r;
}

int rpc_chan_wait(struct rpc_chan *chan, uint64_t call, struct rpc_reply *ret_reply)
{
	struct slot *slot;
	int r;

	gx_env_mutex_lock(chan->env, &chan->lock);
	slot = rpc_chan_slot(chan, call);
	gx_assert(slot && !slot->reply);
	slot->reply = ret_reply;
	if (slot->held) {
		r = reply_fill(slot, &slot->frame, slot->held);
		if (slot->err == 0)
			slot->err = r;
	}
	if (slot->descriptor >= 0)
		give_descriptor(chan, slot, slot->descriptor);
	slot->descriptor = -1;
	if (slot->silent_ns > 0)
		slot->since_ns = gx_env_now_ns(chan->env);
	r = slot_wait(chan, slot);
	if (r == -EHOSTDOWN) {
		give_up(chan, slot);
	} else if (r < 0) {
		slot_expire(chan, slot);
	} else {
		rpc_chan_slot_settle(chan, slot);
		r = slot->err;
		rpc_chan_slot_give(chan, slot);
	}
	gx_env_mutex_unlock(chan->env, &chan->lock);
	return r;
}

bool rpc_chan_arrived(struct rpc_chan *chan, uint64_t call)
{
	struct slot *slot;
	bool arrived;

	gx_env_mutex_lock(chan->env, &chan->lock);
	slot = rpc_chan_slot(chan, call);
	gx_assert(slot && !slot->reply);
	while (slot->state == SLOT_WAITING && chan->failed == 0 && !chan->reading &&
	       rpc_chan_look(chan, gx_env_now_ns(chan->env)) == 0)
		;
	arrived = slot->state != SLOT_WAITING;
	gx_env_mutex_unlock(chan->env, &chan->lock);
	return arrived;
}

bool rpc_chan_redirect(struct rpc_chan *chan, uint64_t call, void *payload_in)
{
	struct slot *slot;
	bool possible;

	gx_env_mutex_lock(chan->env, &chan->lock);
	slot = rpc_chan_slot(chan, call);
	gx_assert(slot && !slot->reply);
	possible = slot->state == SLOT_WAITING && chan->direct_slot != slot;
	if (possible && chan->payload_slot == slot) {
		/* Its beginning came with the end of another reply. */
		size_t begun = slot->frame.payload_bytes - chan->payload_left;

		possible = chan->payload != NULL;
		if (possible) {
			memcpy(payload_in, slot->payload_in, begun);
			chan->payload = (unsigned char *)payload_in + begun;
		}
	}
	if (possible)
		slot->payload_in = payload_in;
	gx_env_mutex_unlock(chan->env, &chan->lock);
	return possible;
}

void rpc_chan_cancel(struct rpc_chan *chan, uint64_t call)
{
	struct slot *slot;

	gx_env_mutex_lock(chan->env, &chan->lock);
	slot = rpc_chan_slot(chan, call);
	gx_assert(slot && !slot->reply);
	if (slot->state == SLOT_WAITING) {
		slot_expire(chan, slot);
	} else {
		rpc_chan_slot_settle(chan, slot);
		rpc_chan_slot_give(chan, slot);
	}
	gx_env_mutex_unlock(chan->env, &chan->lock);
}
