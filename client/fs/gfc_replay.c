#include "client/fs/gfc_replay.h"
#include "common/gx_broken.h"
#include "rpc/rpc_status.h"

/* Replays in flight: enough to hide the way there and back, few enough for one connection. */
#define PIPELINE 64u
#define SLOTS GX_UNSYNCED_PER_SESSION_MAX

int gfc_unsynced_new(const struct rpc_method *method, const ProtobufCMessage *request,
		     const struct iovec *payload, struct gfc_unsynced **ret_unsynced)
{
	size_t request_bytes = protobuf_c_message_get_packed_size(request);
	size_t payload_bytes = payload ? payload->iov_len : 0;
	struct gfc_unsynced *u;

	if (request_bytes > GX_MESSAGE_MAX || payload_bytes > GX_PAYLOAD_LOOP_MAX)
		return -E2BIG;
	u = malloc(sizeof(*u) + request_bytes + payload_bytes);
	if (!u)
		return -ENOMEM;
	*u = (struct gfc_unsynced){
		.method = method, .request_bytes = request_bytes, .payload_bytes = payload_bytes};
	protobuf_c_message_pack(request, u->bytes);
	if (payload_bytes > 0)
		memcpy(u->bytes + request_bytes, payload->iov_base, payload_bytes);
	*ret_unsynced = u;
	return 0;
}

static size_t charge(const struct gfc_unsynced *u)
{
	return sizeof(*u) + u->request_bytes + u->payload_bytes;
}

/* -- life ------------------------------------------------------------------------------------ */

int gfc_replay_init(struct gfc_replay *replay, struct gx_env *env)
{
	*replay = (struct gfc_replay){.env = env, .lowest = 1};
	return gx_env_mutex_init(env, &replay->lock);
}

void gfc_replay_fini(struct gfc_replay *replay)
{
	for (size_t i = 0; i < SLOTS; i++)
		free(replay->slots[i]);
	gx_env_mutex_fini(replay->env, &replay->lock);
}

static void lock(struct gfc_replay *replay)
{
	gx_env_mutex_lock(replay->env, &replay->lock);
}

static void unlock(struct gfc_replay *replay)
{
	gx_env_mutex_unlock(replay->env, &replay->lock);
}

/* -- slots (under the lock) ------------------------------------------------------------------ */

static struct gfc_unsynced **slot_of(struct gfc_replay *replay, uint64_t seq)
{
	return &replay->slots[seq % SLOTS];
}

/* The first with this number or a higher one, or NULL. */
static struct gfc_unsynced *next_from(struct gfc_replay *replay, uint64_t seq)
{
	for (seq = GX_MAX(seq, replay->lowest); seq <= replay->highest; seq++)
		if (*slot_of(replay, seq))
			return *slot_of(replay, seq);
	return NULL;
}

static void slot_free(struct gfc_replay *replay, uint64_t seq)
{
	struct gfc_unsynced **slot = slot_of(replay, seq);

	replay->count--;
	replay->bytes -= charge(*slot);
	free(GX_TAKE(*slot));
	while (replay->lowest <= replay->highest && !*slot_of(replay, replay->lowest))
		replay->lowest++;
	rpc_client_release(replay->client, seq);
}

/* Frees what is on disk; not while it is being sent. */
static void free_durable(struct gfc_replay *replay)
{
	struct gfc_unsynced *u;

	if (replay->sending)
		return;
	for (u = next_from(replay, 0); u;) {
		uint64_t seq = u->seq;

		if (u->index <= replay->durable)
			slot_free(replay, seq);
		u = next_from(replay, seq + 1);
	}
}

void gfc_replay_add_take(struct gfc_replay *replay, uint64_t seq, struct gfc_unsynced *u,
			 const PbMeta__Done *done)
{
	u->seq = seq;
	u->index = u->order = done->index;
	u->time_ns = done->time_ns;
	u->new_ino = done->new_ino;
	u->receipt = done->receipt;
	lock(replay);
	/* Numbers taken lie within mutations_max of each other, so the slot is free. */
	gx_assert(!*slot_of(replay, seq));
	if (replay->count == 0) {
		replay->lowest = replay->highest = seq;
	} else {
		replay->lowest = GX_MIN(replay->lowest, seq);
		replay->highest = GX_MAX(replay->highest, seq);
	}
	*slot_of(replay, seq) = u;
	replay->count++;
	replay->bytes += charge(u);
	unlock(replay);
}

void gfc_replay_durable(struct gfc_replay *replay, uint64_t index)
{
	lock(replay);
	replay->durable = GX_MAX(replay->durable, index);
	free_durable(replay);
	unlock(replay);
}

uint64_t gfc_replay_drop(struct gfc_replay *replay)
{
	uint64_t count;
	struct gfc_unsynced *u;

	lock(replay);
	count = replay->count;
	while ((u = next_from(replay, 0)))
		slot_free(replay, u->seq);
	replay->durable = 0;
	unlock(replay);
	return count;
}

/* -- sending again ---------------------------------------------------------------------------- */

/* One that is on its way. */
struct flight {
	struct gfc_unsynced *unsynced;
	uint64_t call;
	struct iovec payload; /* must stay until the reply is there */
};

struct resend {
	struct gfc_replay *replay;
	struct rpc_chan *chan;
	int64_t deadline_ns;
	gfc_replay_lost_fn lost_fn;
	void *arg;
	struct flight flights[PIPELINE];
	uint64_t sent, waited; /* flights so far */
};

static int send_one(struct resend *rs, struct gfc_unsynced *u)
{
	struct flight *f = &rs->flights[rs->sent % PIPELINE];
	PbMeta__ReplayRequest message = PB_META__REPLAY_REQUEST__INIT;
	PbMeta__Done done = PB_META__DONE__INIT;
	struct rpc_request request = {.method = rpc_method_get(RPC_INDEX_REPLAY),
				      .message = &message.base,
				      .deadline_ns = rs->deadline_ns,
				      .trace = u->seq,
				      .seq = u->seq};
	int r;

	done.index = u->index;
	done.time_ns = u->time_ns;
	done.new_ino = u->new_ino;
	done.receipt = u->receipt;
	message.method = u->method->id;
	message.request.data = u->bytes;
	message.request.len = u->request_bytes;
	message.done = &done;
	request.window = rpc_client_window(rs->replay->client, u->seq);
	f->unsynced = u;
	f->payload = (struct iovec){u->bytes + u->request_bytes, u->payload_bytes};
	if (u->payload_bytes > 0) {
		request.payload_out = &f->payload;
		request.payload_out_count = 1;
	}
	r = rpc_chan_submit(rs->chan, &request, &f->call, NULL);
	if (r == 0)
		rs->sent++;
	return r;
}

/* metad has decided about the oldest in flight. */
static int take_answer(struct resend *rs, struct gfc_unsynced *u, const struct rpc_reply *reply)
{
	const PbMeta__ReplayReply *answer = (const PbMeta__ReplayReply *)reply->message;
	struct gfc_replay *replay = rs->replay;

	if (rpc_status_retryable(reply->status))
		return -EAGAIN;
	if (reply->status != RPC_STATUS_OK) {
		rs->lost_fn(rs->arg, u, rpc_status_to_errno(reply->status), reply->detail);
		lock(replay);
		slot_free(replay, u->seq);
		unlock(replay);
		return 0;
	}
	lock(replay);
	if (answer->again) {
		u->index = answer->index;
		replay->replayed++;
	}
	unlock(replay);
	return 0;
}

/* Waits for the oldest; after a failure only so that the channel lets go of it. */
static int wait_one(struct resend *rs, bool failed)
{
	struct flight *f = &rs->flights[rs->waited++ % PIPELINE];
	struct rpc_reply reply;
	int r;

	rpc_reply_init(&reply);
	r = rpc_chan_wait(rs->chan, f->call, &reply);
	if (r == 0 && !failed)
		r = take_answer(rs, f->unsynced, &reply);
	rpc_reply_fini(&reply);
	return r;
}

static int by_order(const void *a, const void *b)
{
	const struct gfc_unsynced *const *x = a, *const *y = b;

	return ((*x)->order > (*y)->order) - ((*x)->order < (*y)->order);
}

/* All there are, in the order they were done; nothing comes or goes but by us. */
static int sorted(struct gfc_replay *replay, struct gfc_unsynced ***ret_list, size_t *ret_count)
{
	struct gfc_unsynced **list, *u;
	size_t count = 0;

	list = malloc((replay->count + 1) * sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (u = next_from(replay, 0); u; u = next_from(replay, u->seq + 1))
		list[count++] = u;
	qsort(list, count, sizeof(*list), by_order);
	*ret_list = list;
	*ret_count = count;
	return 0;
}

static int resend_all(struct resend *rs, struct gfc_unsynced **list, size_t count)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < count; i++) {
		if (rs->sent - rs->waited == PIPELINE)
			r = wait_one(rs, false);
		if (r == 0)
			r = send_one(rs, list[i]);
	}
	while (r == 0 && rs->waited < rs->sent)
		r = wait_one(rs, false);
	if (r < 0)
		rpc_chan_abort(rs->chan);
	while (rs->waited < rs->sent)
		GX_IGNORE(wait_one(rs, true)); /* the first failure counts */
	return r;
}

int gfc_replay_resend(struct gfc_replay *replay, struct rpc_chan *chan, int64_t deadline_ns,
		      gfc_replay_lost_fn fn, void *arg)
{
	struct resend rs = {.replay = replay,
			    .chan = chan,
			    .deadline_ns = deadline_ns,
			    .lost_fn = fn,
			    .arg = arg};
	GX_AUTOFREE struct gfc_unsynced **list = NULL;
	struct gfc_unsynced *u;
	size_t count = 0;
	int r;

	lock(replay);
	gx_assert(!replay->sending);
	replay->sending = true;
	r = sorted(replay, &list, &count);
	unlock(replay);
	if (r == 0 && !GX_BROKEN(104))
		r = resend_all(&rs, list, count);
	lock(replay);
	replay->sending = false;
	/* Not after a part of them: some have numbers of the new log then, some of the old. */
	for (u = next_from(replay, 0); r == 0 && u; u = next_from(replay, u->seq + 1))
		u->order = u->index;
	free_durable(replay);
	unlock(replay);
	return r;
}

/* -- looking ------------------------------------------------------------------------------------
 */

uint64_t gfc_replay_count(struct gfc_replay *replay)
{
	uint64_t count;

	lock(replay);
	count = replay->count;
	unlock(replay);
	return count;
}

size_t gfc_replay_bytes(struct gfc_replay *replay)
{
	size_t bytes;

	lock(replay);
	bytes = replay->bytes;
	unlock(replay);
	return bytes;
}

uint64_t gfc_replay_replayed(struct gfc_replay *replay)
{
	uint64_t count;

	lock(replay);
	count = replay->replayed;
	unlock(replay);
	return count;
}
