/*
 * The queues of work for storage nodes.
 *
 * A job is a hint: what it is about stands in the state, so it may be dropped before it has been
 * given, is looked at again when it is given, and its result is judged against the state as it is
 * then. A job that has been given is kept until the node has reported it, or has registered anew:
 * its result may be an object that nobody else would know of. A node that is silent keeps what it
 * was given, too (rule N15); only what it has not been given is dropped, so that others get it.
 */
#define GX_LOG_COMPONENT "metad.jobs"
#include "metad/md_jobs.h"
#include "common/gx_log.h"
#include "metad/md_jobs_impl.h"
#include "rpc/rpc_file_ticket.h"

#define SOURCES_MAX 8u
/* No source is up, or another job of the inode is under way at this node: look again. */
#define WAIT_NS GX_NSEC_PER_SEC

/* -- nodes ------------------------------------------------------------------------------------ */

struct md_worker *md_worker_find(struct md_jobs *jobs, const char *node)
{
	struct md_worker *worker;

	HASH_FIND_STR(jobs->workers, node, worker);
	return worker;
}

int md_worker_make(struct md_jobs *jobs, const char *node, struct md_worker **ret_worker)
{
	struct md_worker *worker = md_worker_find(jobs, node);
	bool gx_hash_failed = false;

	if (!worker) {
		worker = calloc(1, sizeof(*worker));
		if (!worker || gx_strcpy(worker->name, sizeof(worker->name), node) < 0) {
			free(worker);
			return -ENOMEM;
		}
		HASH_ADD_STR(jobs->workers, name, worker);
		if (gx_hash_failed) {
			free(worker);
			return -ENOMEM;
		}
		worker->trash_news = true;
	}
	*ret_worker = worker;
	return 0;
}

static bool is_up(struct md_jobs *jobs, const char *node)
{
	bool up = false;

	return md_nodes_find(jobs->md->nodes, node, &up) && up;
}

/* -- jobs ------------------------------------------------------------------------------------- */

struct md_job_inode *md_job_inode_find(struct md_jobs *jobs, uint64_t ino)
{
	struct md_job_inode *inode;

	HASH_FIND(hh, jobs->inodes, &ino, sizeof(ino), inode);
	return inode;
}

static struct md_job_inode *job_inode_make(struct md_jobs *jobs, uint64_t ino)
{
	struct md_job_inode *inode = md_job_inode_find(jobs, ino);
	bool gx_hash_failed = false;

	if (inode)
		return inode;
	inode = calloc(1, sizeof(*inode));
	if (!inode)
		return NULL;
	inode->ino = ino;
	HASH_ADD(hh, jobs->inodes, ino, sizeof(inode->ino), inode);
	if (!gx_hash_failed)
		return inode;
	free(inode);
	return NULL;
}

static void job_inode_check(struct md_jobs *jobs, struct md_job_inode *inode)
{
	if (inode->jobs || inode->fails > 0)
		return;
	HASH_DEL(jobs->inodes, inode);
	free(inode);
}

int md_job_new(struct md_jobs *jobs, struct md_worker *worker, unsigned kind, uint64_t ino,
	       uint64_t generation, struct md_job **ret_job)
{
	struct md_job_inode *inode = job_inode_make(jobs, ino);
	struct md_job *job = inode ? calloc(1, sizeof(*job)) : NULL;
	bool gx_hash_failed = false;

	if (!job) {
		if (inode)
			job_inode_check(jobs, inode);
		return -ENOMEM;
	}
	*job = (struct md_job){.worker = worker,
			       .inode = inode,
			       .id = ++jobs->last_id,
			       .kind = kind,
			       .generation = generation,
			       .need = md_log_next(jobs->md->log) - 1};
	HASH_ADD(hh, jobs->jobs, id, sizeof(job->id), job);
	if (gx_hash_failed) {
		free(job);
		job_inode_check(jobs, inode);
		return -ENOMEM;
	}
	DL_APPEND2(inode->jobs, job, ino_prev, ino_next);
	/* Somebody waits for a recovery. */
	if (kind == MD_JOB_RECOVER)
		DL_PREPEND(worker->jobs, job);
	else
		DL_APPEND(worker->jobs, job);
	jobs->recovers += kind == MD_JOB_RECOVER;
	worker->job_count += kind != MD_JOB_RECOVER;
	worker->copy_count += kind == MD_JOB_COPY;
	*ret_job = job;
	return 0;
}

void md_job_free(struct md_jobs *jobs, struct md_job *job)
{
	struct md_worker *worker = job->worker;
	struct md_job_inode *inode = job->inode;

	HASH_DEL(jobs->jobs, job);
	DL_DELETE(worker->jobs, job);
	DL_DELETE2(inode->jobs, job, ino_prev, ino_next);
	jobs->recovers -= job->kind == MD_JOB_RECOVER;
	worker->job_count -= job->kind != MD_JOB_RECOVER;
	worker->copy_count -= job->kind == MD_JOB_COPY;
	free(job);
	job_inode_check(jobs, inode);
}

struct md_job *md_job_find(struct md_jobs *jobs, const struct md_worker *worker, uint64_t id)
{
	struct md_job *job;

	HASH_FIND(hh, jobs->jobs, &id, sizeof(id), job);
	return job && job->worker == worker ? job : NULL;
}

void md_job_failed(struct md_jobs *jobs, struct md_job *job, int err)
{
	struct md_job_inode *inode = job->inode;
	int64_t pause = MD_JOBS_RETRY_NS << GX_MIN(inode->fails, 6u);

	gx_log(WARNING, "a storage node could not do its job", GX_KS("node", job->worker->name),
	       GX_KU("kind", job->kind), GX_KU("ino", inode->ino),
	       GX_KU("generation", job->generation), GX_KE(err));
	if (inode->fails == 0 && jobs->failed >= MD_JOBS_FAILED_MAX) {
		jobs->scan_missed = true; /* then it is found with the others */
		return;
	}
	jobs->failed += inode->fails == 0;
	inode->fails++;
	inode->looked = false;
	inode->retry_ns = gx_loop_now_ns(jobs->md->loop) + GX_MIN(pause, MD_JOBS_RETRY_MAX_NS);
	GX_IGNORE(gx_strcpy(inode->failed_node, sizeof(inode->failed_node), job->worker->name));
}

void md_job_forgive(struct md_jobs *jobs, struct md_job_inode *inode)
{
	jobs->failed -= inode->fails > 0;
	inode->fails = 0;
	job_inode_check(jobs, inode);
}

static int copy_change(struct md_jobs *jobs, const char *node, uint64_t ino, uint64_t generation,
		       uint32_t flags, uint64_t clock, unsigned what, bool *ret_changed,
		       uint64_t *need)
{
	PbMeta__CopyChangeRequest request = PB_META__COPY_CHANGE_REQUEST__INIT;
	PbMeta__CopyChangeReply reply = PB_META__COPY_CHANGE_REPLY__INIT;
	uint64_t index = 0;
	int r;

	request.ino = ino;
	request.node = (char *)(uintptr_t)node;
	request.generation = generation;
	request.flags = flags;
	request.what = what;
	request.clock = clock;
	r = md_own_command(jobs->md, RPC_INDEX_COPY_CHANGE, 0, &request.base, &reply.base, &index);
	if (r < 0)
		return r;
	if (ret_changed)
		*ret_changed = reply.changed;
	*need = GX_MAX(*need, index);
	if (index != 0)
		md_inode_news(jobs->md, ino);
	return 0;
}

int md_copy_change(struct md_jobs *jobs, const char *node, uint64_t ino, uint64_t generation,
		   uint32_t flags, unsigned what, bool *ret_changed, uint64_t *need)
{
	return copy_change(jobs, node, ino, generation, flags, 0, what, ret_changed, need);
}

int md_copy_stable(struct md_jobs *jobs, const char *node, uint64_t ino, uint64_t generation,
		   uint32_t flags, uint64_t clock, uint64_t *need)
{
	return copy_change(jobs, node, ino, generation, flags | MD_COPY_STABLE, clock,
			   MD_COPY_IS_THERE, NULL, need);
}

/* -- giving ----------------------------------------------------------------------------------- */

/* What the node does with one inode it does one after the other. */
static bool is_in_way(const struct md_job *job)
{
	const struct md_job *other;

	DL_FOREACH2(job->inode->jobs, other, ino_next)
	{
		if (other != job && other->worker == job->worker && other->given_ns != 0 &&
		    !(other->kind == MD_JOB_DELETE && job->kind == MD_JOB_DELETE))
			return true;
	}
	return false;
}

static unsigned copies_given(const struct md_worker *worker)
{
	const struct md_job *job;
	unsigned count = 0;

	DL_FOREACH (worker->jobs, job)
		count += job->kind == MD_JOB_COPY && job->given_ns != 0;
	return count;
}

/* May it be given now, as far as the job itself tells? Rule N2. */
static bool is_due(struct md_jobs *jobs, const struct md_job *job, int64_t now)
{
	if (job->need > md_log_durable(jobs->md->log) || now < job->after_ns)
		return false;
	if (job->given_ns != 0)
		return job->again || now - job->given_ns >= MD_JOB_NS;
	return !is_in_way(job);
}

/* One who has the bytes. 1: added, 0: not usable, -EAGAIN: no memory. */
static int add_source(struct md_jobs *jobs, struct rpc_call *call, const struct md_job *job,
		      const PbMeta__LayoutRecord *layout, const PbMeta__CopyRecord *copy,
		      PbMeta__Job *out)
{
	PbMeta__Place *place;
	int r;

	if (strcmp(copy->node, job->worker->name) == 0 || !is_up(jobs, copy->node))
		return 0;
	place = md_place_new(jobs->md, call, copy->node);
	if (!place)
		return -EAGAIN;
	place->generation = copy->generation;
	place->flags = copy->flags;
	r = md_place_ticket(jobs->md, call, place, job->inode->ino, job->generation,
			    md_copy_base(layout, copy), RPC_FILE_READ);
	if (r == 0)
		r = md_place_session(jobs->md, call, place);
	if (r == -ENOKEY)
		return 0;
	if (r < 0)
		return r;
	out->sources[out->n_sources++] = place;
	return 1;
}

/* The current copies; damaged ones last, since all but some blocks may still come from there. */
static int add_sources(struct md_jobs *jobs, struct rpc_call *call, const struct md_job *job,
		       const struct md_inode *inode, const PbMeta__LayoutRecord *layout,
		       PbMeta__Job *out)
{
	out->sources = rpc_call_alloc(call, SOURCES_MAX * sizeof(void *));
	if (!out->sources)
		return -EAGAIN;
	for (unsigned pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < layout->n_copies && out->n_sources < SOURCES_MAX; i++) {
			const PbMeta__CopyRecord *copy = layout->copies[i];
			bool bad = copy->flags & MD_COPY_BAD;
			int r;

			if (!md_copy_current(inode, layout, copy) || bad != (pass == 1))
				continue;
			r = add_source(jobs, call, job, layout, copy, out);
			if (r < 0)
				return r;
		}
	}
	return out->n_sources > 0 ? 0 : -EHOSTUNREACH;
}

/* 0; -EHOSTUNREACH: not now; -ESTALE: not wanted any more; -EAGAIN: no memory. */
static int fill_copy(struct md_jobs *jobs, struct rpc_call *call, const struct md_job *job,
		     PbMeta__Job *out)
{
	PbMeta__LayoutRecord *layout;
	const PbMeta__CopyRecord *base;
	struct md_inode inode;
	int r;

	if (!md_plan_wants(jobs, job, &inode, &layout)) {
		rpc_arena_clear(&jobs->arena);
		return -ESTALE;
	}
	base = md_layout_find(layout, job->worker->name);
	out->from_generation = base ? base->generation : 0;
	r = add_sources(jobs, call, job, &inode, layout, out);
	rpc_arena_clear(&jobs->arena);
	return r;
}

/* As above; the reply has room for one more. */
static int give(struct md_jobs *jobs, struct rpc_call *call, struct md_job *job,
		PbMeta__NodeWorkReply *reply)
{
	PbMeta__Job *out = rpc_call_alloc(call, sizeof(*out));
	int r = 0;

	if (!out)
		return -EAGAIN;
	pb_meta__job__init(out);
	out->id = job->id;
	out->kind = job->kind;
	out->ino = job->inode->ino;
	out->generation = job->generation;
	out->from_generation = job->from_generation;
	if (job->kind == MD_JOB_COPY)
		r = fill_copy(jobs, call, job, out);
	if (job->kind == MD_JOB_RECOVER && !md_plan_wants_recovery(jobs, job))
		r = -ESTALE;
	if (r == 0)
		reply->jobs[reply->n_jobs++] = out;
	return r;
}

/* It is not wanted (-ESTALE), or cannot be done now: drops it if it can be. */
static void not_given(struct md_jobs *jobs, struct md_job *job, int err, int64_t now)
{
	if (job->kind == MD_JOB_RECOVER) {
		md_job_free(jobs, job); /* its result would mean nothing */
	} else if (err == -ESTALE && job->given_ns == 0) {
		if (job->was_given)
			md_plan_discard(jobs, job);
		md_jobs_look(jobs, job->inode->ino); /* something else may be wanted */
		md_job_free(jobs, job);
	} else if (!job->was_given) {
		jobs->scan_missed = true; /* when its source is back it is planned again */
		md_job_free(jobs, job);
	} else {
		job->after_ns = now + WAIT_NS;
	}
}

/* Puts into the reply what is due. */
static void give_some(struct md_jobs *jobs, struct md_worker *worker, struct rpc_call *call)
{
	PbMeta__NodeWorkReply *reply = (PbMeta__NodeWorkReply *)call->reply;
	int64_t now = gx_loop_now_ns(jobs->md->loop);
	unsigned copies = copies_given(worker);
	struct md_job *job, *tmp;
	int r;

	if (!reply->jobs)
		reply->jobs = rpc_call_alloc(call, MD_JOBS_GIVEN_MAX * sizeof(void *));
	if (!reply->jobs)
		return;
	DL_FOREACH_SAFE (worker->jobs, job, tmp) {
		bool anew = job->given_ns == 0;

		if (reply->n_jobs == MD_JOBS_GIVEN_MAX)
			return;
		if (!is_due(jobs, job, now) ||
		    (anew && job->kind == MD_JOB_COPY && copies >= MD_JOBS_GIVEN_MAX))
			continue;
		r = give(jobs, call, job, reply);
		if (r == -EAGAIN)
			return;
		if (r < 0) {
			not_given(jobs, job, r, now);
			continue;
		}
		copies += anew && job->kind == MD_JOB_COPY;
		job->given_ns = now;
		job->was_given = true;
		job->again = false;
	}
}

static bool has_due(struct md_jobs *jobs, const struct md_worker *worker)
{
	int64_t now = gx_loop_now_ns(jobs->md->loop);
	const struct md_job *job;

	DL_FOREACH (worker->jobs, job)
		if (is_due(jobs, job, now))
			return true;
	return false;
}

static void finish_wait(struct md_worker *worker, struct md_work_wait *wait, int err)
{
	struct rpc_call *call = wait->call;

	DL_DELETE(worker->waits, wait);
	worker->wait_count--;
	rpc_call_finish(call, err);
}

void md_worker_serve(struct md_jobs *jobs, struct md_worker *worker)
{
	int64_t now = gx_loop_now_ns(jobs->md->loop);
	struct md_work_wait *wait, *tmp;

	DL_FOREACH_SAFE (worker->waits, wait, tmp) {
		PbMeta__NodeWorkReply *reply = (PbMeta__NodeWorkReply *)wait->call->reply;

		if (wait->need > md_log_durable(jobs->md->log))
			continue;
		if (has_due(jobs, worker))
			give_some(jobs, worker, wait->call);
		if (reply->n_jobs > 0 || now >= wait->until_ns)
			finish_wait(worker, wait, 0);
	}
}

void md_worker_again(struct md_worker *worker)
{
	struct md_job *job;

	/* Who asked may be an earlier life: what it is given nobody would do. */
	while (worker->waits)
		finish_wait(worker, worker->waits, -EAGAIN);
	DL_FOREACH (worker->jobs, job)
		job->given_ns = job->after_ns = 0;
}

void md_worker_repeat(struct md_worker *worker)
{
	struct md_job *job;

	DL_FOREACH (worker->jobs, job)
		job->again = job->given_ns != 0;
}

int md_jobs_wait(struct md_jobs *jobs, struct md_worker *worker, struct rpc_call *call, bool told,
		 uint64_t need)
{
	struct md_work_wait *wait = rpc_call_alloc(call, sizeof(*wait));
	int64_t now = gx_loop_now_ns(jobs->md->loop);

	if (!wait)
		return -EAGAIN;
	if (jobs->stopped)
		return -ESHUTDOWN;
	/* Older ones may be of a connection that the node has given up. */
	if (worker->wait_count >= MD_JOBS_WAITS_MAX)
		finish_wait(worker, worker->waits, -EAGAIN);
	*wait = (struct md_work_wait){
		.call = call,
		.until_ns = told ? now : GX_MIN(now + MD_NODE_WORK_NS, call->deadline_ns),
		.need = need,
	};
	DL_APPEND(worker->waits, wait);
	worker->wait_count++;
	/* The call is deferred first: whoever finishes it may be any of the following turns. */
	md_more_work(jobs->md);
	return RPC_DEFERRED;
}

/* -- what others want ------------------------------------------------------------------------- */

void md_jobs_recover(struct md_jobs *jobs, const char *node, uint64_t ino, uint64_t generation,
		     uint64_t from_generation)
{
	struct md_worker *worker;
	struct md_job *job;

	/* It is found again later, or by whoever asks for the inode. */
	if (jobs->recovers >= MD_JOBS_RECOVER_MAX || md_worker_make(jobs, node, &worker) < 0 ||
	    md_job_new(jobs, worker, MD_JOB_RECOVER, ino, generation, &job) < 0) {
		gx_log(WARNING, "too many writers have vanished", GX_KU("ino", ino));
		jobs->abandoned_wanted = true;
		return;
	}
	job->from_generation = from_generation;
}

bool md_jobs_is_recovering(const struct md_jobs *jobs, uint64_t ino)
{
	const struct md_job_inode *inode;
	const struct md_job *job;

	HASH_FIND(hh, jobs->inodes, &ino, sizeof(ino), inode);
	if (!inode)
		return false;
	DL_FOREACH2(inode->jobs, job, ino_next)
	if (job->kind == MD_JOB_RECOVER)
		return true;
	return false;
}

int md_jobs_cache(struct md_jobs *jobs, const char *node, uint64_t ino, uint64_t generation)
{
	const struct md_job_inode *inode = md_job_inode_find(jobs, ino);
	const struct md_job *other;
	struct md_worker *worker;
	struct md_job *job;

	/* One that is under way will do, whatever it is for. */
	if (inode)
		DL_FOREACH2(inode->jobs, other, ino_next)
	if (other->kind == MD_JOB_COPY && strcmp(other->worker->name, node) == 0)
		return 0;
	if (!md_evict_has_room(jobs, node) || md_worker_make(jobs, node, &worker) < 0)
		return -ENOSPC;
	/* Copies that are wanted go first, so they keep half of the queue for themselves. */
	if (worker->job_count >= MD_JOBS_PER_NODE_MAX / 2 ||
	    md_job_new(jobs, worker, MD_JOB_COPY, ino, generation, &job) < 0)
		return -ENOSPC;
	job->cache = true;
	md_more_work(jobs->md);
	return 0;
}

/* -- life ------------------------------------------------------------------------------------- */

int md_jobs_new(struct md_server *md, struct md_jobs **ret_jobs)
{
	struct md_jobs *jobs = calloc(1, sizeof(*jobs));

	if (!jobs)
		return -ENOMEM;
	jobs->md = md;
	rpc_arena_init(&jobs->arena, GX_UNPACK_MAX);
	jobs->scan_wanted = jobs->abandoned_wanted = true;
	*ret_jobs = jobs;
	return 0;
}

void md_jobs_free(struct md_jobs *jobs)
{
	struct md_job_inode *inode, *inode_tmp;
	struct md_worker *worker, *worker_tmp;

	if (!jobs)
		return;
	HASH_ITER (hh, jobs->workers, worker, worker_tmp) {
		while (worker->jobs)
			md_job_free(jobs, worker->jobs);
	}
	HASH_ITER (hh, jobs->inodes, inode, inode_tmp) {
		HASH_DEL(jobs->inodes, inode);
		free(inode);
	}
	md_plan_free(jobs);
	HASH_ITER (hh, jobs->workers, worker, worker_tmp) {
		HASH_DEL(jobs->workers, worker);
		free(worker->eviction);
		free(worker);
	}
	rpc_arena_clear(&jobs->arena);
	free(jobs);
}

void md_jobs_stop(struct md_jobs *jobs)
{
	struct md_worker *worker, *tmp;

	if (!jobs)
		return;
	jobs->stopped = true;
	HASH_ITER (hh, jobs->workers, worker, tmp) {
		while (worker->waits)
			finish_wait(worker, worker->waits, -ESHUTDOWN);
	}
	md_told_stop(jobs);
}

static void serve_all(struct md_jobs *jobs)
{
	struct md_worker *worker, *tmp;

	HASH_ITER (hh, jobs->workers, worker, tmp) {
		if (worker->waits)
			md_worker_serve(jobs, worker);
	}
}

/* Commands have left something to do. */
static void take_state_news(struct md_jobs *jobs)
{
	struct md_object_news *news = &jobs->md->state.news;
	struct md_worker *worker, *tmp;

	if (news->trash) {
		HASH_ITER (hh, jobs->workers, worker, tmp)
			worker->trash_news = true;
	}
	for (unsigned i = 0; i < news->count; i++)
		md_jobs_look(jobs, news->inos[i]);
	jobs->scan_wanted = jobs->scan_wanted || news->many;
	if (news->trash || news->many)
		md_more_work(jobs->md);
	*news = (struct md_object_news){.count = 0};
}

void md_jobs_durable(struct md_jobs *jobs)
{
	if (jobs->stopped)
		return;
	take_state_news(jobs);
	md_told_durable(jobs);
	serve_all(jobs);
}

void md_jobs_work(struct md_jobs *jobs)
{
	bool more;

	if (jobs->stopped)
		return;
	more = md_told_work(jobs);
	more |= md_plan_work(jobs);
	serve_all(jobs);
	if (more)
		md_more_work(jobs->md);
}

/* Others get what a node that is down was to do and does not know of. */
static void drop_ungiven(struct md_jobs *jobs, struct md_worker *worker)
{
	struct md_job *job, *tmp;

	DL_FOREACH_SAFE (worker->jobs, job, tmp) {
		if (job->kind == MD_JOB_COPY && !job->was_given)
			md_job_free(jobs, job);
	}
}

/* Pauses that are over; and failures so old that they say nothing any more. */
static void retries_tick(struct md_jobs *jobs, int64_t now)
{
	struct md_job_inode *inode, *tmp;

	if (jobs->failed == 0 || now < jobs->retries_ns)
		return;
	jobs->retries_ns = now + MD_JOBS_RETRY_NS / 4;
	HASH_ITER (hh, jobs->inodes, inode, tmp) {
		if (inode->fails == 0 || now < inode->retry_ns)
			continue;
		if (!inode->looked) {
			inode->looked = true;
			md_jobs_look(jobs, inode->ino);
		} else if (now >= inode->retry_ns + 2 * MD_JOBS_RETRY_MAX_NS) {
			md_job_forgive(jobs, inode);
		}
	}
}

void md_jobs_tick(struct md_jobs *jobs, int64_t now)
{
	struct md_worker *worker, *tmp;

	if (jobs->stopped)
		return;
	HASH_ITER (hh, jobs->workers, worker, tmp) {
		if (worker->copy_count > 0 && !is_up(jobs, worker->name))
			drop_ungiven(jobs, worker);
	}
	retries_tick(jobs, now);
	md_evict_tick(jobs, now);
	md_jobs_work(jobs);
}
