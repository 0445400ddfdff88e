/*
 * md_party.h - a client of metad, bare: raw channels, so that a test chooses numbers, windows and
 * the moment at which a channel breaks. `f` is the metad it talks to.
 */
#ifndef MD_PARTY_H
#define MD_PARTY_H

#include "metad/md_server_impl.h"
#include "rpc/rpc_chan.h"
#include "rpc/rpc_status.h"
#include "tests/lib/meta_fixture.h"
#include <check.h>
#include <sys/uio.h>

#define WAIT_NS (20 * GX_NSEC_PER_SEC)
#define RING GX_UNSYNCED_PER_SESSION_MAX

/* A client, bare. */
struct party {
	enum meta_who who;
	uint64_t session;
	struct rpc_chan *calls;
	struct rpc_chan *push;  /* may be NULL */
	struct rpc_reply reply; /* the last one */
};

static struct meta_fixture *f;

static int64_t now_ns(void)
{
	return gx_env_now_ns(gx_env_posix());
}

/* -- parties ---------------------------------------------------------------------------------- */

/* True: metad knew the session. */
static bool chan_open(struct party *party, enum rpc_channel channel, struct rpc_chan **ret_chan)
{
	/* The fixture's keys. */
	static const unsigned char seeds[META_WHO_COUNT] = {
		[META_ROOT] = 0x40, [META_ALICE] = 0xa1, [META_BOB] = 0xb0};
	unsigned char key[RPC_KEY_BYTES];
	char text[GX_ADDR_TEXT_MAX];
	struct rpc_endpoint endpoint;
	struct rpc_chan_info info;
	struct rpc_chan_options options = {
		.env = gx_env_posix(),
		.endpoint = &endpoint,
		.identity = meta_fixture_identity(party->who),
		.key = key,
		.program = "hostile/1",
		.session = party->session,
		.channel = channel,
		.deadline_ns = now_ns() + WAIT_NS,
	};

	memset(key, seeds[party->who], sizeof(key));
	ck_assert_int_eq(gx_format(text, sizeof(text), "unix:%s/sock", meta_fixture_dir(f)), 0);
	ck_assert_int_eq(rpc_endpoint_parse(gx_env_posix(), text, false, &endpoint, NULL), 0);
	ck_assert_int_eq(rpc_chan_open(&options, ret_chan), 0);
	rpc_chan_info(*ret_chan, &info);
	party->session = info.session;
	return info.session_known;
}

static void party_open(struct party *party, enum meta_who who, bool push)
{
	*party = (struct party){.who = who};
	rpc_reply_init(&party->reply);
	chan_open(party, RPC_CHANNEL_CALLS, &party->calls);
	if (push)
		ck_assert(chan_open(party, RPC_CHANNEL_PUSH, &party->push));
}

static void party_close(struct party *party)
{
	if (party->push)
		rpc_chan_close(party->push);
	if (party->calls) {
		rpc_chan_close(party->calls);
		rpc_reply_fini(&party->reply);
	}
	party->push = party->calls = NULL;
}

/* -- calls ------------------------------------------------------------------------------------ */

static uint64_t submit(struct party *party, enum rpc_method_index method, const void *message,
		       uint64_t seq, uint32_t window, const char *payload)
{
	struct iovec iov = {(void *)(uintptr_t)payload, payload ? strlen(payload) : 0};
	struct rpc_request request = {
		.method = rpc_method_get(method),
		.message = message,
		.payload_out = payload ? &iov : NULL,
		.payload_out_count = payload ? 1 : 0,
		.deadline_ns = now_ns() + WAIT_NS,
		.seq = seq,
		.window = window,
	};
	uint64_t call;

	ck_assert_int_eq(rpc_chan_submit(party->calls, &request, &call, NULL), 0);
	return call;
}

static int wait_for(struct party *party, uint64_t call)
{
	int r;

	rpc_reply_fini(&party->reply);
	rpc_reply_init(&party->reply);
	r = rpc_chan_wait(party->calls, call, &party->reply);
	return r < 0 ? r : rpc_status_to_errno(party->reply.status);
}

/* What does not change anything. */
static int look(struct party *party, enum rpc_method_index method, const void *message)
{
	return wait_for(party, submit(party, method, message, 0, 0, NULL));
}

/* A mutation; all that the ring has room for stays unacknowledged. */
static int change(struct party *party, enum rpc_method_index method, const void *message,
		  uint64_t seq)
{
	return wait_for(party,
			submit(party, method, message, seq, (uint32_t)GX_MIN(seq, RING), NULL));
}

GX_UNUSED static int renew(struct party *party)
{
	PbMeta__RenewRequest request = PB_META__RENEW_REQUEST__INIT;

	return look(party, RPC_INDEX_RENEW, &request);
}

/* Opens or makes a name in the root directory; the handle is seq. */
GX_UNUSED static PbMeta__Attr open_file(struct party *party, const char *name, uint32_t mode,
					uint64_t seq)
{
	PbMeta__OpenRequest request = PB_META__OPEN_REQUEST__INIT;

	request.parent = 1;
	request.name = (char *)(uintptr_t)name;
	request.flags = MD_OPEN_READ | MD_OPEN_WRITE | MD_OPEN_CREATE;
	request.mode = mode;
	ck_assert_int_eq(change(party, RPC_INDEX_OPEN, &request, seq), 0);
	return *((PbMeta__OpenReply *)party->reply.message)->attr;
}

GX_UNUSED static PbMeta__SetattrRequest set_mode(const PbMeta__Attr *attr, uint32_t mode)
{
	PbMeta__SetattrRequest request = PB_META__SETATTR_REQUEST__INIT;

	request.ino = attr->ino;
	request.cap = attr->cap;
	request.mask = 1;
	request.mode = mode;
	return request;
}

static PbMeta__SetattrRequest set_size(const PbMeta__Attr *attr, uint64_t size)
{
	PbMeta__SetattrRequest request = PB_META__SETATTR_REQUEST__INIT;

	request.ino = attr->ino;
	request.cap = attr->cap;
	request.mask = 8;
	request.size = size;
	return request;
}

static PbMeta__GetattrRequest get_attr(const PbMeta__Attr *attr)
{
	PbMeta__GetattrRequest request = PB_META__GETATTR_REQUEST__INIT;

	request.ino = attr->ino;
	request.cap = attr->cap;
	return request;
}

GX_UNUSED static int lookup(struct party *party, const char *name)
{
	PbMeta__LookupRequest request = PB_META__LOOKUP_REQUEST__INIT;

	request.parent = 1;
	request.name = (char *)(uintptr_t)name;
	return look(party, RPC_INDEX_LOOKUP, &request);
}

static uint64_t size_of(struct party *party, const PbMeta__Attr *attr)
{
	PbMeta__GetattrRequest request = get_attr(attr);

	ck_assert_int_eq(look(party, RPC_INDEX_GETATTR, &request), 0);
	return ((PbMeta__GetattrReply *)party->reply.message)->attr->size;
}

static int replay(struct party *party, enum rpc_method_index method, const void *message,
		  const PbMeta__Done *done, uint64_t seq, const char *payload)
{
	PbMeta__ReplayRequest request = PB_META__REPLAY_REQUEST__INIT;
	unsigned char packed[512];

	ck_assert_uint_le(protobuf_c_message_get_packed_size(message), sizeof(packed));
	request.method = rpc_method_get(method)->id;
	request.request.data = packed;
	request.request.len = protobuf_c_message_pack(message, packed);
	request.done = (PbMeta__Done *)(uintptr_t)done;
	return wait_for(party, submit(party, RPC_INDEX_REPLAY, &request, seq, 1, payload));
}

static bool was_done_again(const struct party *party)
{
	return ((const PbMeta__ReplayReply *)party->reply.message)->again;
}

#endif
