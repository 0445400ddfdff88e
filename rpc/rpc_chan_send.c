/*
 * The client's end of a connection: sending requests.
 *
 * Several calls may be under way, and a server reads no request while it writes a reply that we do
 * not read. So who cannot go on writing reads, unless another thread does; otherwise two calls of
 * one thread, a large read and a large write, would wait for each other for ever.
 */
#include "rpc/rpc_chan_impl.h"

/* Requests up to this size are packed on the stack. */
#define SMALL_BYTES 1024u
#define PAYLOAD_IOVS 32
#define COPY_BYTES (64u * 1024)
/* Another thread reads, and may stop: how soon we notice that nobody does any more. */
#define READER_NS (20 * GX_NSEC_PER_MSEC)

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
 * own deadline. *ret_alone: until we have written, no reply to any call can be under way.
 */
static int write_begin(struct rpc_chan *chan, int64_t deadline_ns, bool *ret_alone)
{
	int r = 0;

	gx_env_mutex_lock(chan->env, &chan->lock);
	chan->write_waiters++;
	while (r == 0 && chan->writing)
		r = gx_env_cond_wait(chan->env, &chan->writable, &chan->lock, deadline_ns);
	chan->write_waiters--;
	if (r == 0)
		r = chan->failed;
	*ret_alone = chan->load <= 1;
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

/* When a write that cannot go on is given up. `alive_ns`: when the server last did anything. */
static int64_t write_until(const struct rpc_request *request, int64_t alive_ns)
{
	if (request->silent_ns > 0 && request->deadline_ns - alive_ns > request->silent_ns)
		return alive_ns + request->silent_ns;
	return request->deadline_ns;
}

/* Becomes the reader if nobody reads; 0 or 1, or the error of a connection that has failed. */
static int read_begin(struct rpc_chan *chan)
{
	int r;

	gx_env_mutex_lock(chan->env, &chan->lock);
	r = chan->failed;
	if (r == 0 && !chan->reading) {
		chan->reading = true;
		r = 1;
	}
	gx_env_mutex_unlock(chan->env, &chan->lock);
	return r;
}

/* Takes what has come if there is anything, lets others read, and tells when anybody heard. */
static int64_t read_end(struct rpc_chan *chan, bool is_reader, bool readable)
{
	int64_t heard_ns;

	gx_env_mutex_lock(chan->env, &chan->lock);
	if (is_reader && readable && chan->failed == 0)
		GX_IGNORE(rpc_chan_look(chan, gx_env_now_ns(chan->env)));
	if (is_reader)
		rpc_chan_pass_reading(chan);
	heard_ns = chan->heard_ns;
	gx_env_mutex_unlock(chan->env, &chan->lock);
	return heard_ns;
}

/*
 * The socket takes nothing: waits until it does, or until something has been read. -ETIMEDOUT: the
 * time is up; -EHOSTDOWN: there was silence for too long.
 */
static int wait_room(struct rpc_chan *chan, const struct rpc_request *request, int64_t *alive_ns)
{
	struct gx_pollfd pfd = {.fd = chan->stream.fd, .events = GX_WRITABLE};
	int64_t until_ns = write_until(request, *alive_ns);
	int64_t now = gx_env_now_ns(chan->env);
	int is_reader = read_begin(chan);
	bool readable = false;
	int r = 0;

	if (is_reader < 0)
		return is_reader;
	if (is_reader) {
		pfd.events |= GX_READABLE;
		readable = rpc_stream_pending(&chan->stream);
	} else {
		until_ns = GX_MIN(until_ns, now + READER_NS);
	}
	if (!readable) {
		r = gx_env_poll(chan->env, &pfd, 1, until_ns);
		readable = r > 0 && (pfd.revents & GX_READABLE);
	}
	*alive_ns = GX_MAX(*alive_ns, read_end(chan, is_reader, readable));
	if (r < 0)
		return r;
	now = gx_env_now_ns(chan->env);
	if (r > 0 || readable || now < write_until(request, *alive_ns))
		return 0;
	return now < request->deadline_ns ? -EHOSTDOWN : -ETIMEDOUT;
}

static int write_reading(struct rpc_chan *chan, struct iovec *iov, int iov_count,
			 const struct rpc_request *request)
{
	int64_t alive_ns = gx_env_now_ns(chan->env);

	iov_count = rpc_iov_advance(&iov, iov_count, 0);
	while (iov_count > 0) {
		int64_t now = gx_env_now_ns(chan->env);
		/* Not GX_NOWAIT, which leaves a mark in the stream that the reader leaves too. */
		ssize_t n = rpc_stream_writev(&chan->stream, iov, iov_count, now);

		if (n == -ETIMEDOUT) {
			n = wait_room(chan, request, &alive_ns);
			if (n == 0)
				continue;
			return (int)n;
		}
		if (n < 0)
			return n == -EHOSTDOWN ? -EHOSTUNREACH : (int)n; /* not our word for it */
		alive_ns = now;
		iov_count = rpc_iov_advance(&iov, iov_count, (size_t)n);
	}
	return 0;
}

/* Through memory: a socket that could block must not be given more than it takes. */
static int copy_file(struct rpc_chan *chan, const struct rpc_payload_file *file,
		     const struct rpc_request *request)
{
	unsigned char space[COPY_BYTES];
	uint64_t done = 0;
	int r = 0;

	while (r == 0 && done < file->bytes) {
		size_t part = (size_t)GX_MIN(file->bytes - done, (uint64_t)sizeof(space));
		struct iovec iov = {space, part};
		ssize_t n = gx_env_pread(chan->env, file->fd, space, part, file->offset + done);

		if (n < 0)
			return (int)n;
		memset(space + n, 0, part - (size_t)n);
		r = write_reading(chan, &iov, 1, request);
		done += part;
	}
	return r;
}

static int send_file(struct rpc_chan *chan, const struct rpc_request *request, bool alone)
{
	struct rpc_payload_file left = *request->payload_file;

	while (alone && left.bytes > 0) {
		ssize_t n = rpc_stream_send_file(&chan->stream, left.fd, left.offset, left.bytes,
						 request->deadline_ns);

		if (n < 0)
			return (int)n;
		left.offset += (uint64_t)n;
		left.bytes -= (uint64_t)n;
		alone = n > 0;
	}
	return copy_file(chan, &left, request);
}

int rpc_chan_send_frame(struct rpc_chan *chan, const struct rpc_frame *frame, const void *message,
			const struct rpc_request *request, bool *ret_sent)
{
	unsigned char header[RPC_FRAME_HEADER_BYTES];
	struct iovec iov[2 + PAYLOAD_IOVS];
	bool alone = false;
	int count = 2;
	int r;

	rpc_frame_encode(frame, message, chan->secret, header);
	iov[0] = (struct iovec){header, sizeof(header)};
	iov[1] = (struct iovec){(void *)message, frame->message_bytes};
	for (int i = 0; i < request->payload_out_count; i++)
		iov[count++] = request->payload_out[i];
	r = write_begin(chan, request->deadline_ns, &alone);
	if (r < 0)
		return r;
	*ret_sent = true;
	if (alone && request->silent_ns == 0)
		r = rpc_stream_write_all(&chan->stream, iov, count, request->deadline_ns);
	else
		r = write_reading(chan, iov, count, request);
	if (r == 0 && request->payload_file)
		r = send_file(chan, request, alone && request->silent_ns == 0);
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
	if (request->payload_file)
		payload_bytes += request->payload_file->bytes;
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
	slot = rpc_chan_slot_take(chan);
	if (!slot) {
		/* Perhaps all are waiting for late replies: let the pool open another connection.
		 */
		chan->leaving = true;
		return -EBUSY;
	}
	if (!slot->has_wake) {
		r = gx_env_cond_init(chan->env, &slot->wake);
		if (r < 0) {
			rpc_chan_slot_give(chan, slot);
			return r;
		}
		slot->has_wake = true;
	}
	slot->state = SLOT_WAITING;
	slot->err = 0;
	slot->deadline_ns = request->deadline_ns;
	slot->silent_ns = request->silent_ns;
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
		slot = rpc_chan_slot(chan, call);
		/* To the other calls our time is nothing but a broken connection. */
		if (sent || chan->payload_slot == slot) {
			rpc_chan_fail(chan, r == -ETIMEDOUT || r == -EHOSTDOWN ? -ECONNRESET : r);
			gx_env_shutdown(chan->env, chan->stream.fd);
		}
		rpc_chan_slot_settle(chan, slot);
		rpc_chan_slot_give(chan, slot);
		gx_env_mutex_unlock(chan->env, &chan->lock);
		goto out;
	}
	*ret_call = call;
out:
	if (ret_sent)
		*ret_sent = sent;
	return r;
}
