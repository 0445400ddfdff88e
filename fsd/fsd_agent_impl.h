/*
 * fsd_agent_impl.h - what the two files of the agent share.
 *
 * fsd_agent.c   the way to metad: lines, registration, inventory, heartbeats
 * fsd_jobs.c    what metad wants done, what it is told
 */
#ifndef FSD_AGENT_IMPL_H
#define FSD_AGENT_IMPL_H

#include "fsd/fsd_server_impl.h"
#include "rpc/rpc_client.h"

#define FSD_AGENT_PAUSE_MIN_NS (20 * GX_NSEC_PER_MSEC)
#define FSD_AGENT_ADDRESSES_MAX 8u /* of a node: metad takes no more */
#define FSD_AGENT_WORKERS_MAX 64u

enum fsd_job_state { FSD_JOB_WAITING, FSD_JOB_WORKING, FSD_JOB_DONE, FSD_JOB_COUNT };

struct fsd_job {
	struct fsd_job *prev, *next;
	uint64_t life;     /* of metad, that gave it */
	PbMeta__Job *told; /* a copy */
	enum fsd_job_state state;
	bool telling; /* its result is in a request under way */
	uint32_t status;
	uint64_t size_bytes;
	bool stable;
};

struct fsd_note {
	struct fsd_note *prev, *next;
	struct fsd_object_id id;
	unsigned what;
	uint64_t clock;
	bool telling;
};

struct fsd_line {
	struct fsd_agent *agent;
	struct gx_thread thread;
	bool started;
	struct rpc_chan *chan; /* in a call; under the lock */
	int64_t pause_ns;
};

struct fsd_agent {
	struct fsd_server *server;
	struct gx_env *env;
	struct rpc_client *client;
	char *address_text; /* server->addresses, a NUL behind each */
	char *addresses[FSD_AGENT_ADDRESSES_MAX];
	size_t address_count;
	struct fsd_line control, poll, tell;
	struct gx_thread workers[FSD_AGENT_WORKERS_MAX];
	unsigned worker_count; /* that have been started */
	_Atomic bool known;

	/* Of `control` alone. */
	bool swept; /* what an earlier life of this node left half copied is gone */
	uint64_t epoch;
	int64_t beat_ns;
	uint64_t busy_ns, busy_at_ns; /* of the handlers, and when that was */

	struct gx_mutex lock; /* all below */
	struct gx_cond changed;
	bool lock_ready, changed_ready;
	bool stopping;
	bool settled;  /* registered with `life`, which has seen the inventory */
	uint64_t life; /* of metad; 0: none yet */
	struct fsd_job *jobs;
	size_t job_count;
	struct fsd_note *notes;
	size_t note_count, notes_dropped;
	unsigned working; /* jobs */
	/* NodeWorks whose answer did not arrive, and how many of them metad has heard of. */
	uint64_t lost_answers, lost_told;
	int64_t complained_ns;
	bool away; /* and the log has said so */
};

static inline void fsd_agent_lock(struct fsd_agent *agent)
{
	gx_env_mutex_lock(agent->env, &agent->lock);
}

static inline void fsd_agent_unlock(struct fsd_agent *agent)
{
	gx_env_mutex_unlock(agent->env, &agent->lock);
}

/* -- fsd_agent.c ------------------------------------------------------------------------------- */

/* Under the lock: the life we have registered with is not the one that answers, or forgot us. */
void fsd_agent_unsettle(struct fsd_agent *agent);
/* A connection for one call, until fsd_line_end(); *ret_life says to whom. */
GX_MUST_CHECK int fsd_line_begin(struct fsd_line *line, uint64_t *ret_life);
void fsd_line_end(struct fsd_line *line);
/* One call on a line that has begun. The caller ends with rpc_reply_fini(). */
GX_MUST_CHECK int fsd_line_call(struct fsd_line *line, enum rpc_method_index method,
				const ProtobufCMessage *message, struct rpc_reply *ret_reply);
/* Waits before the next try, longer each time; the end of the agent cuts it short. */
void fsd_line_pause(struct fsd_line *line);

/* -- fsd_jobs.c -------------------------------------------------------------------------------- */

/* Threads: of a line each, and of the agent. */
void fsd_poll_main(void *line);
void fsd_tell_main(void *line);
void fsd_worker_main(void *agent);
/* Under the lock: is there something that metad has not answered? */
bool fsd_jobs_untold(const struct fsd_agent *agent);
/* Forgets all jobs and notes. No thread is left. */
void fsd_jobs_fini(struct fsd_agent *agent);

#endif
