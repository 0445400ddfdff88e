/*
 * fake_metad.h - what a storage node sees of metad, for tests of the node: registration, inventory,
 * heartbeats and NodeWork on a loop in a thread of its own, with a memory of what was said.
 *
 * It knows the objects it is told of and says "unknown" of all others. What goes wrong inside the
 * fixture aborts the program with a message.
 */
#ifndef FAKE_METAD_H
#define FAKE_METAD_H

#include "fsd/fsd_object.h"
#include "meta.pb-c.h"
#include "rpc/rpc_endpoint.h"
#include "rpc/rpc_key.h"

#define FAKE_METAD_MAX 4096u /* of everything it remembers */

struct fake_metad;

/* Counters since the start, and what came last. */
struct fake_metad_seen {
	unsigned registrations, heartbeats, inventories, resumes, leaves;
	char name[64], kind[16], host[64], group[64];
	char addresses[8][GX_ADDR_TEXT_MAX];
	size_t address_count;
	uint64_t boot, capacity_bytes, free_bytes;
	struct fsd_object_id listed[FAKE_METAD_MAX]; /* of the last inventory */
	size_t listed_count;
	bool inventory_over; /* a page reached the highest inode number */
	PbMeta__JobDone done[FAKE_METAD_MAX];
	size_t done_count;
	PbMeta__ObjectNote notes[FAKE_METAD_MAX];
	size_t note_count;
};

/* `node`: whose key it knows, host:NODE. */
struct fake_metad *fake_metad_start(const char *node);
void fake_metad_stop(struct fake_metad *metad);
const struct rpc_endpoint *fake_metad_endpoint(const struct fake_metad *metad);
const struct rpc_key *fake_metad_key(const struct fake_metad *metad);

/* As kill -9. Sessions are remembered, registrations are not. */
void fake_metad_down(struct fake_metad *metad);
void fake_metad_up(struct fake_metad *metad, uint64_t epoch);
/* All connections are away until it is up again, but it is the same life afterwards. */
void fake_metad_cut(struct fake_metad *metad);
void fake_metad_mend(struct fake_metad *metad);
/* Forgets the node: NOT_FOUND. */
void fake_metad_forget(struct fake_metad *metad);
/* NodeWork is not answered (heartbeats are) until it is called with false. */
void fake_metad_refuse_work(struct fake_metad *metad, bool refuse);

void fake_metad_know(struct fake_metad *metad, const struct fsd_object_id *id);
/* Handed out once, by the next NodeWork. */
void fake_metad_give(struct fake_metad *metad, const PbMeta__Job *job);

typedef bool (*fake_metad_fn)(const struct fake_metad_seen *seen, void *arg);
/* Waits until fn says yes; false after 10 s. fn runs under the fixture's lock. */
bool fake_metad_wait(struct fake_metad *metad, fake_metad_fn fn, void *arg);
/* A copy; the caller frees it. */
struct fake_metad_seen *fake_metad_seen(struct fake_metad *metad);

#endif
