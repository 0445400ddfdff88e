/*
 * md_jobs.h - work for storage nodes: copies to make, objects to delete, writers to recover.
 *
 * What is to be done stands in the state (md_layout.h: T and U records); this is the part of it
 * that is under way. Queues are bounded and filled by scans, a page at a time (rule N17), that go
 * on whenever something may have changed, so nothing need be told here in full and nothing is lost
 * with a restart. A node asks (NodeWork) and gets up to MD_JOBS_GIVEN_MAX jobs at a time; one it
 * does not report is given again after MD_JOB_NS, or when it registers anew. Every job can be done
 * twice.
 *
 * No job is given before the commands it rests on are on disk (rule N2).
 *
 * Threads: the loop's.
 */
#ifndef MD_JOBS_H
#define MD_JOBS_H

#include "common/gx_env.h"

#define MD_JOBS_GIVEN_MAX 16u
#define MD_JOBS_PER_NODE_MAX 256u
#define MD_JOB_NS (30 * GX_NSEC_PER_SEC)
#define MD_NODE_WORK_NS GX_NSEC_PER_SEC /* a node without work waits so long for an answer */

struct md_jobs;
struct md_server;
struct rpc_call;

GX_MUST_CHECK int md_jobs_new(struct md_server *md, struct md_jobs **ret_jobs);
/* Nodes that wait get no answer any more. */
void md_jobs_free(struct md_jobs *jobs);
/* Nodes that wait are answered. */
void md_jobs_stop(struct md_jobs *jobs);

/* There may be new trash, or inodes with too few copies. */
void md_jobs_news(struct md_jobs *jobs);
/* This inode may want copies: soon. */
void md_jobs_look(struct md_jobs *jobs, uint64_t ino);
/* The primary is to move an object on from a writer that has vanished and to tell its size. */
void md_jobs_recover(struct md_jobs *jobs, const char *node, uint64_t ino, uint64_t generation,
		     uint64_t from_generation);
bool md_jobs_is_recovering(const struct md_jobs *jobs, uint64_t ino);
/* A cache copy of this generation on this node (rule B11). -ENOSPC: it has enough to do. */
GX_MUST_CHECK int md_jobs_cache(struct md_jobs *jobs, const char *node, uint64_t ino,
				uint64_t generation);
/*
 * Rule B3: a storage node is about to register with this boot id of its machine. If that is another
 * one than before, its copies that it had not reported as stable are judged first: stale, or, where
 * there is no other, named in the log. 0: it may register. RPC_DEFERRED: the call runs again when
 * all have been judged and that is on disk. Negative.
 */
GX_MUST_CHECK int md_jobs_reboot(struct md_jobs *jobs, struct rpc_call *call, const char *node,
				 uint64_t boot);
/* It has registered: what it was given it is given again. */
void md_jobs_registered(struct md_jobs *jobs, const char *node);
/* A writer of this inode was given an object, or has said something about it. */
void md_jobs_written(struct md_jobs *jobs, uint64_t ino);

void md_jobs_durable(struct md_jobs *jobs);
void md_jobs_work(struct md_jobs *jobs);
void md_jobs_tick(struct md_jobs *jobs, int64_t now);

#endif
