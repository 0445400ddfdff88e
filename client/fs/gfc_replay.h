/*
 * gfc_replay.h - mutations that metad has answered but may not have on disk yet.
 *
 * Each is kept, as it was sent and with what the answer said of it, until metad's log is on disk
 * beyond it; its number stays taken so long (rpc_client.h), so metad remembers the result and there
 * are never more than GX_UNSYNCED_PER_SESSION_MAX. A metad that comes back without some of them
 * gets them again, with the same ids and times (rules N4, N5), in the order in which they were
 * done: two threads' mutations may have been done in another order than that of their numbers.
 *
 * A mutation is copied before it is sent, because when the answer is there it is too late to
 * find that memory is missing.
 *
 * Thread-safe. Above rpc_client's lock.
 */
#ifndef GFC_REPLAY_H
#define GFC_REPLAY_H

#include "meta.pb-c.h"
#include "rpc/rpc_client.h"

/* More bytes than this wait for the disk. */
#define GFC_REPLAY_BYTES_MAX (32u * 1024 * 1024)

/* One mutation. */
struct gfc_unsynced {
	uint64_t seq;
	const struct rpc_method *method;
	uint64_t index; /* of its command in metad's log; another one after it was done again */
	uint64_t order; /* among all: the index, as it was when all were last in the log together */
	int64_t time_ns;
	uint64_t new_ino;
	uint64_t receipt;
	size_t request_bytes, payload_bytes;
	unsigned char bytes[]; /* the packed request, then the payload */
};

/* A copy of what is about to be sent; free() it if it need not be kept. */
GX_MUST_CHECK int gfc_unsynced_new(const struct rpc_method *method, const ProtobufCMessage *request,
				   const struct iovec *payload, struct gfc_unsynced **ret_unsynced);

struct gfc_replay {
	struct gx_env *env;
	struct rpc_client *client; /* whose numbers these are; set before the first add */

	struct gx_mutex lock;                                    /* all below */
	struct gfc_unsynced *slots[GX_UNSYNCED_PER_SESSION_MAX]; /* by number */
	uint64_t lowest,
		highest; /* numbers of the slots in use lie between; lowest > highest: none */
	uint64_t count;
	size_t bytes;
	uint64_t durable;  /* index up to which metad's log is on disk, as far as we know */
	bool sending;      /* somebody sends again: nothing is freed */
	uint64_t replayed; /* sent again because metad had lost them */
};

GX_MUST_CHECK int gfc_replay_init(struct gfc_replay *replay, struct gx_env *env);
/* Frees what is left, without releasing the numbers. */
void gfc_replay_fini(struct gfc_replay *replay);

/* Takes one that has been answered with this `done` (index > 0). */
void gfc_replay_add_take(struct gfc_replay *replay, uint64_t seq, struct gfc_unsynced *unsynced,
			 const PbMeta__Done *done);
/* metad's log is on disk up to `index`: what is below goes, its numbers are released. */
void gfc_replay_durable(struct gfc_replay *replay, uint64_t index);
/* The session is lost: forgets all, releases the numbers; how many there were. */
uint64_t gfc_replay_drop(struct gfc_replay *replay);

/* One could not be done again: metad said why. */
typedef void (*gfc_replay_lost_fn)(void *arg, const struct gfc_unsynced *unsynced, int err,
				   const char *detail);
/* Sends all again over a connection nobody else uses. An error of the connection, or -EAGAIN. */
GX_MUST_CHECK int gfc_replay_resend(struct gfc_replay *replay, struct rpc_chan *chan,
				    int64_t deadline_ns, gfc_replay_lost_fn fn, void *arg);

uint64_t gfc_replay_count(struct gfc_replay *replay);
size_t gfc_replay_bytes(struct gfc_replay *replay);
uint64_t gfc_replay_replayed(struct gfc_replay *replay);

#endif
