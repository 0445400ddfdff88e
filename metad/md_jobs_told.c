/*
 * What storage nodes say: results of jobs, notes about objects, which objects they have, and that
 * they come back after a power cut.
 *
 * Their word is true for them alone: a node can lose or spoil its own copies, and that is all. What
 * it says about generations that metad has not given is not believed.
 *
 * Long answers are worked out in pieces (rule N17) and leave when what they rest on is on disk.
 */
#define GX_LOG_COMPONENT "metad.jobs"
#include "common/gx_broken.h"
#include "common/gx_log.h"
#include "metad/md_jobs_impl.h"
#include "rpc/rpc_status.h"

#define DONE_MAX 1024u
#define NOTES_MAX 4096u
#define OBJECTS_MAX 8192u
/* Inodes looked at in one piece. */
#define PIECE 64u

#define NOTE_STABLE 1u
#define NOTE_DAMAGED 2u
#define NOTE_GONE 3u

/* A storage node that we know. -EPERM, -ENOENT: it is to register (again). */
static int node_enter(struct md_jobs *jobs, struct rpc_call *call, const char *name, uint64_t boot,
		      struct md_worker **ret_worker)
{
	int r = md_nodes_heard(jobs->md->nodes, call->peer->identity, name, boot);

	if (r < 0)
		return r;
	*ret_worker = md_worker_find(jobs, name);
	return *ret_worker ? 0 : -ENOENT;
}

/* -- results of jobs -------------------------------------------------------------------------- */

static int copy_done(struct md_jobs *jobs, struct md_job *job, const PbMeta__JobDone *done,
		     uint64_t *need)
{
	uint32_t flags = (job->cache ? MD_COPY_CACHE : 0) | (done->stable ? MD_COPY_STABLE : 0);
	const char *node = job->worker->name;
	uint64_t ino = job->inode->ino;
	bool changed = false;
	int r;

	/* It may have bytes that its source has lost, or lack some: it is a base (rule B9). */
	if (job->doubted)
		flags = MD_COPY_STALE;
	r = md_copy_change(jobs, node, ino, job->generation, flags, MD_COPY_IS_THERE, &changed,
			   need);
	/* Not true any more: the file is gone, say. Then the object has to go, too. */
	if (r == 0 && !changed)
		r = md_copy_change(jobs, node, ino, job->generation, 0, MD_COPY_TO_DELETE, NULL,
				   need);
	return r;
}

static int delete_done(struct md_jobs *jobs, const struct md_job *job, uint64_t *need)
{
	PbMeta__TrashDoneRequest request = PB_META__TRASH_DONE_REQUEST__INIT;
	PbMeta__TrashDoneReply reply = PB_META__TRASH_DONE_REPLY__INIT;
	uint64_t index = 0;
	int r;

	request.node = job->worker->name;
	request.ino = job->inode->ino;
	request.generation = job->generation;
	r = md_own_command(jobs->md, RPC_INDEX_TRASH_DONE, 0, &request.base, &reply.base, &index);
	*need = GX_MAX(*need, index);
	return r;
}

/* Rule B2: the primary has the object under the new generation, on disk. */
static int recover_done(struct md_jobs *jobs, struct md_job *job, const PbMeta__JobDone *done,
			uint64_t *need)
{
	uint64_t ino = job->inode->ino, generation = job->generation;
	char node[MD_NODE_NAME_MAX + 1];

	GX_IGNORE(gx_strcpy(node, sizeof(node), job->worker->name));
	md_job_free(jobs, job);
	md_recovered(jobs->md, ino, generation, done->size);
	if (!done->stable)
		return 0;
	return md_note_copy(jobs, node, ino, generation, NOTE_STABLE, UINT64_MAX, need);
}

static int end_lost_writing(struct md_jobs *jobs, uint64_t ino, uint64_t size);

/* The primary has nothing of it: a power cut has taken the object before its first sync. */
static bool recover_lost(struct md_jobs *jobs, struct md_job *job)
{
	uint64_t ino = job->inode->ino, generation = job->generation, need = 0;
	struct md_ctx ctx = md_jobs_ctx(jobs);
	char node[MD_NODE_NAME_MAX + 1];
	PbMeta__LayoutRecord *layout;
	struct md_inode inode;
	int r = md_file_get(&ctx, ino, &inode, &layout);

	rpc_arena_clear(&jobs->arena);
	GX_IGNORE(gx_strcpy(node, sizeof(node), job->worker->name));
	if (r == 0)
		r = end_lost_writing(jobs, ino, inode.size); /* frees the job */
	if (r == 0)
		r = md_note_copy(jobs, node, ino, generation, NOTE_GONE, 0, &need);
	if (r < 0)
		return false;
	gx_log(WARNING, "what was written to a file is gone with its writer", GX_KU("ino", ino));
	md_inode_news(jobs->md, ino);
	return true;
}

/* The job could not be done: it, or another one instead, is tried later. */
static void job_failed(struct md_jobs *jobs, struct md_job *job, int err)
{
	int64_t now = gx_loop_now_ns(jobs->md->loop);

	md_job_failed(jobs, job, err);
	switch (job->kind) {
	case MD_JOB_RECOVER:
		if (err == -ESTALE && recover_lost(jobs, job))
			return;
		/* Nobody else can. */
		job->given_ns = 0;
		job->after_ns = GX_MAX(job->inode->retry_ns, now + MD_JOBS_RETRY_NS);
		return;
	case MD_JOB_DELETE:
		job->worker->trash_news = true;
		job->worker->trash_after_ns = now + MD_JOBS_RETRY_NS;
		break;
	default:
		break;
	}
	md_job_free(jobs, job);
}

static int job_done(struct md_jobs *jobs, struct md_worker *worker, const PbMeta__JobDone *done,
		    uint64_t *need)
{
	struct md_job *job = md_job_find(jobs, worker, done->id);
	int err = rpc_status_to_errno((uint16_t)GX_MIN(done->status, UINT16_MAX));
	uint64_t ino;
	int r;

	if (!job)
		return 0; /* told before, or given before it registered anew */
	ino = job->inode->ino;
	/* What is not there need not be deleted. */
	if (job->kind == MD_JOB_DELETE && err == -ENOENT)
		err = 0;
	if (err < 0) {
		job_failed(jobs, job, err);
		return 0;
	}
	if (job->kind == MD_JOB_RECOVER)
		return recover_done(jobs, job, done, need);
	r = job->kind == MD_JOB_COPY ? copy_done(jobs, job, done, need)
				     : delete_done(jobs, job, need);
	if (r < 0)
		return r; /* it is told again */
	if (job->kind == MD_JOB_COPY)
		md_job_forgive(jobs, job->inode);
	md_job_free(jobs, job);
	md_jobs_look(jobs, ino);
	return 0;
}

/* -- notes ------------------------------------------------------------------------------------ */

/* What metad knows of a copy that a node says something about. */
struct noted {
	uint32_t flags;
	unsigned others; /* that count */
	uint64_t clock;  /* of the newest change that its writer has reported */
};

/* False: the node has no copy of this generation. */
static bool listed_copy(struct md_jobs *jobs, const char *node, uint64_t ino, uint64_t generation,
			struct noted *ret_noted)
{
	struct md_ctx ctx = md_jobs_ctx(jobs);
	PbMeta__LayoutRecord *layout;
	const PbMeta__CopyRecord *copy = NULL;
	struct md_inode inode;

	if (md_file_get(&ctx, ino, &inode, &layout) == 0 && layout)
		copy = md_layout_find(layout, node);
	if (copy && copy->generation != generation)
		copy = NULL;
	if (copy) {
		bool counts = md_copy_current(&inode, layout, copy) &&
			      !(copy->flags & (MD_COPY_CACHE | MD_COPY_BAD));

		ret_noted->flags = copy->flags;
		ret_noted->others = md_layout_count(&inode, layout) - counts;
		ret_noted->clock = copy->generation == inode.generation ? layout->clock : 0;
	}
	rpc_arena_clear(&jobs->arena);
	return copy != NULL;
}

int md_note_copy(struct md_jobs *jobs, const char *node, uint64_t ino, uint64_t generation,
		 unsigned what, uint64_t clock, uint64_t *need)
{
	unsigned change = what == NOTE_GONE ? MD_COPY_IS_GONE : MD_COPY_IS_THERE;
	struct noted noted;
	int r;

	/* About what is not listed there is nothing to say; an inventory finds it. */
	if (!listed_copy(jobs, node, ino, generation, &noted))
		return 0;
	/* On disk is what was there before a later change: a note can be overtaken by its writer.
	 */
	if (what == NOTE_STABLE && clock < noted.clock)
		return 0;
	if ((what == NOTE_DAMAGED && !(noted.flags & MD_COPY_BAD)) || what == NOTE_GONE)
		gx_log(WARNING, what == NOTE_GONE ? "a copy is gone" : "a copy is damaged",
		       GX_KU("ino", ino), GX_KS("node", node), GX_KU("generation", generation),
		       GX_KU("others", noted.others));
	if (what == NOTE_DAMAGED)
		noted.flags |= MD_COPY_BAD;
	/* With no clock of its own it is about what has been reported. */
	if (what == NOTE_STABLE)
		r = md_copy_stable(jobs, node, ino, generation, noted.flags,
				   clock == UINT64_MAX ? noted.clock : clock, need);
	else
		r = md_copy_change(jobs, node, ino, generation, noted.flags, change, NULL, need);
	if (r == 0)
		md_jobs_look(jobs, ino);
	return r;
}

/* -- NodeWork --------------------------------------------------------------------------------- */

static int take_news(struct md_jobs *jobs, struct md_worker *worker,
		     const PbMeta__NodeWorkRequest *request, uint64_t *need)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < request->n_done; i++)
		r = job_done(jobs, worker, request->done[i], need);
	for (size_t i = 0; r == 0 && i < request->n_notes; i++) {
		const PbMeta__ObjectNote *note = request->notes[i];

		if (note->what >= NOTE_STABLE && note->what <= NOTE_GONE)
			r = md_note_copy(jobs, worker->name, note->ino, note->generation,
					 note->what, note->clock, need);
	}
	return r;
}

int md_op_node_work(struct rpc_call *call, const PbMeta__NodeWorkRequest *request,
		    PbMeta__NodeWorkReply *reply)
{
	struct md_server *md = call->data;
	struct md_session *session = md_session_get(md, call->session);
	bool told = request->n_done > 0 || request->n_notes > 0;
	struct md_worker *worker;
	uint64_t need = 0;
	int r;

	if (md->stopping)
		return -ESHUTDOWN;
	if (!session || session->ending)
		return rpc_call_fail(call, -ENOTRECOVERABLE, "the session is over");
	session->contact_ns = gx_loop_now_ns(md->loop);
	pb_meta__node_work_reply__init(reply); /* it may have been begun before */
	r = node_enter(md->jobs, call, request->name, request->boot, &worker);
	if (r < 0)
		return r;
	if (request->n_done > DONE_MAX || request->n_notes > NOTES_MAX)
		return rpc_call_fail(call, -E2BIG, "at most %u results and %u notes", DONE_MAX,
				     NOTES_MAX);
	if (told && (!md_kv_room(md->kv) || md_log_busy(md->log)))
		return md_park(md, call, true);
	r = take_news(md->jobs, worker, request, &need);
	if (r == 0 && request->again)
		md_worker_repeat(worker);
	return r < 0 ? r : md_jobs_wait(md->jobs, worker, call, told, need);
}

/* -- inventory -------------------------------------------------------------------------------- */

static bool in_range(const PbMeta__LayoutRecord *layout, const PbMeta__CopyRecord *copy,
		     uint64_t generation)
{
	uint64_t base = md_copy_base(layout, copy);

	return generation <= copy->generation && generation >= (base > 0 ? base : copy->generation);
}

static void add_to(PbMeta__ObjectInfo **list, size_t *count, const PbMeta__ObjectInfo *object)
{
	list[(*count)++] = (PbMeta__ObjectInfo *)(uintptr_t)object;
}

/* What metad says about an object that is not the node's copy. GROWS: it may be one soon. */
enum verdict { VERDICT_FINE, VERDICT_GROWS, VERDICT_UNKNOWN, VERDICT_LEFT_OVER };

static enum verdict judge(struct md_ctx *ctx, const char *node, const PbMeta__LayoutRecord *layout,
			  const PbMeta__ObjectInfo *object)
{
	if (md_layout_in_trash(ctx, node, object->ino, object->generation))
		return VERDICT_FINE; /* it is deleted soon */
	if (!layout || object->generation == 0 || object->generation > layout->last_generation)
		return VERDICT_UNKNOWN;
	if (layout->growing)
		return strcmp(layout->primary, node) == 0 && object->generation == layout->writing
			       ? VERDICT_GROWS
			       : VERDICT_UNKNOWN;
	return VERDICT_LEFT_OVER;
}

/*
 * Of a file that we know, but not listed: a copy that was finished and not reported, or what was
 * left by something that we did not hear of. It is no copy that counts, since the bytes of a
 * generation may have changed after it was made; but it may be a base (rule B9). An older one than
 * what the node has is of no use.
 */
static int take_left_over(struct md_jobs *jobs, struct md_worker *worker,
			  const PbMeta__ObjectInfo *object, PbMeta__NodeInventoryReply *reply)
{
	uint64_t *need = &worker->inventory.need;
	bool changed = false;
	int r;

	r = md_copy_change(jobs, worker->name, object->ino, object->generation, MD_COPY_STALE,
			   MD_COPY_IS_THERE, &changed, need);
	if (r == 0 && changed)
		add_to(reply->stale, &reply->n_stale, object);
	if (r == 0 && !changed)
		r = md_copy_change(jobs, worker->name, object->ino, object->generation, 0,
				   MD_COPY_TO_DELETE, NULL, need);
	return r;
}

/*
 * The object that was being written is gone with its disk, and so is its writer: the file is
 * settled as far as it goes. It has no copy that counts then, and says so to its readers.
 */
static int end_lost_writing(struct md_jobs *jobs, uint64_t ino, uint64_t size)
{
	PbMeta__WriteRecoverRequest request = PB_META__WRITE_RECOVER_REQUEST__INIT;
	PbMeta__WriteRecoverReply reply = PB_META__WRITE_RECOVER_REPLY__INIT;
	struct md_job_inode *inode = md_job_inode_find(jobs, ino);
	struct md_job *job, *tmp;

	/* A writer that is there notices by himself, and one that may come back is waited for. */
	if (jobs->md->recovering || md_access_has_writer(jobs->md->access, 0, ino))
		return 0;
	if (inode) {
		DL_FOREACH_SAFE2(inode->jobs, job, tmp, ino_next)
		{
			if (job->kind == MD_JOB_RECOVER) {
				md_job_free(jobs, job);
				break;
			}
		}
	}
	request.ino = ino;
	request.settle = true;
	request.size = size;
	return md_own_command(jobs->md, RPC_INDEX_WRITE_RECOVER, 0, &request.base, &reply.base,
			      NULL);
}

#define LEFT_OVER_MAX 4u /* of one inode; what is more is found by the next inventory */

/* One inode: what we think the node has of it, and what it says it has. */
struct compared {
	const PbMeta__ObjectInfo *left_over[LEFT_OVER_MAX];
	size_t left_count;
	uint64_t lost;    /* generation of a copy that the node does not have; 0: none */
	bool was_written; /* it was the one being written … */
	uint64_t size;    /* … of a file of this size */
};

static void add_left_over(struct compared *compared, const PbMeta__ObjectInfo *object)
{
	if (compared->left_count < LEFT_OVER_MAX)
		compared->left_over[compared->left_count++] = object;
}

/* Looks, and changes nothing. False: what cannot be read is not judged. */
static bool compare(struct md_jobs *jobs, struct md_worker *worker, uint64_t ino,
		    PbMeta__ObjectInfo *const *objects, size_t count,
		    PbMeta__NodeInventoryReply *reply, struct compared *ret)
{
	struct md_ctx ctx = md_jobs_ctx(jobs);
	const PbMeta__ObjectInfo *seen = NULL;
	PbMeta__LayoutRecord *layout = NULL;
	const PbMeta__CopyRecord *copy;
	struct md_inode inode;
	int r = md_file_get(&ctx, ino, &inode, &layout);

	if (r < 0 && r != -ESTALE && r != -EISDIR && r != -EINVAL)
		return false;
	*ret = (struct compared){.size = r == 0 ? inode.size : 0};
	copy = layout ? md_layout_find(layout, worker->name) : NULL;
	for (size_t i = 0; i < count; i++) {
		if (copy && in_range(layout, copy, objects[i]->generation)) {
			seen = objects[i];
			/* An earlier life of the node has written it and cannot sync it any more.
			 */
			if (!(copy->flags & MD_COPY_STABLE))
				add_to(reply->unstable, &reply->n_unstable, seen);
			continue;
		}
		switch (judge(&ctx, worker->name, layout, objects[i])) {
		case VERDICT_FINE:
			break;
		case VERDICT_GROWS: /* as above, if its writer has nothing more to send */
			add_to(reply->unstable, &reply->n_unstable, objects[i]);
			break;
		case VERDICT_UNKNOWN:
			add_to(reply->unknown, &reply->n_unknown, objects[i]);
			break;
		case VERDICT_LEFT_OVER:
			add_left_over(ret, objects[i]);
			break;
		}
	}
	if (copy && !seen) {
		ret->lost = copy->generation;
		ret->was_written =
			layout->writing != 0 && strcmp(layout->primary, worker->name) == 0;
	}
	/* A base may have become worse than one of the others. */
	if (seen && !md_copy_current(&inode, layout, copy)) {
		if (ret->left_count > 0)
			add_left_over(ret, seen);
		else
			add_to(reply->stale, &reply->n_stale, seen);
	}
	return true;
}

static const PbMeta__ObjectInfo *take_newest(struct compared *compared)
{
	const PbMeta__ObjectInfo *newest;
	size_t at = 0;

	for (size_t i = 1; i < compared->left_count; i++)
		if (compared->left_over[i]->generation > compared->left_over[at]->generation)
			at = i;
	newest = compared->left_over[at];
	compared->left_over[at] = compared->left_over[--compared->left_count];
	return newest;
}

/* Both about one inode. -ENOSPC. */
static int compare_one(struct md_jobs *jobs, struct md_worker *worker, uint64_t ino,
		       PbMeta__ObjectInfo *const *objects, size_t count,
		       PbMeta__NodeInventoryReply *reply)
{
	struct compared compared;
	bool judged = compare(jobs, worker, ino, objects, count, reply, &compared);
	int r = 0;

	rpc_arena_clear(&jobs->arena);
	if (!judged)
		return 0;
	/* Absent from a list that may be older than the object: the next one tells (rule N9). */
	if (jobs->written_ns[ino % MD_JOBS_WRITTEN_SLOTS] >= worker->registered_ns) {
		compared.was_written = false;
		compared.lost = 0;
	}
	if (compared.was_written)
		r = end_lost_writing(jobs, ino, compared.size);
	if (r == 0 && compared.lost != 0)
		r = md_note_copy(jobs, worker->name, ino, compared.lost, NOTE_GONE, 0,
				 &worker->inventory.need);
	/* The newest first: it may stay, and then the others go. */
	while (r == 0 && compared.left_count > 0)
		r = take_left_over(jobs, worker, take_newest(&compared), reply);
	return r;
}

/* The next inode in the list of objects, up to `last`; 0: none. */
static uint64_t next_object(const PbMeta__NodeInventoryRequest *request, size_t at, uint64_t last)
{
	if (at >= request->n_objects || request->objects[at]->ino > last)
		return 0;
	return request->objects[at]->ino;
}

static void inventory_end(struct md_worker *worker, int err)
{
	struct rpc_call *call = worker->inventory.call;

	worker->inventory = (struct md_sweep){.call = NULL};
	if (call)
		rpc_call_finish(call, err);
}

/*
 * One piece. Both lists are in order; the page of ours ends somewhere, and theirs is looked at up
 * to there.
 */
static int inventory_piece(struct md_jobs *jobs, struct md_worker *worker)
{
	struct rpc_call *call = worker->inventory.call;
	const PbMeta__NodeInventoryRequest *request =
		(const PbMeta__NodeInventoryRequest *)call->request;
	PbMeta__NodeInventoryReply *reply = (PbMeta__NodeInventoryReply *)call->reply;
	struct md_ctx ctx = md_jobs_ctx(jobs);
	uint64_t inos[PIECE], next, last, ino = 0;
	size_t count, i = 0, *at = &worker->inventory_at;
	unsigned steps = 0;
	int r;

	r = md_layout_each_copy(&ctx, worker->name, worker->inventory.next, PIECE, inos, &count,
				&next);
	rpc_arena_clear(&jobs->arena);
	if (r < 0)
		return r;
	last = next == 0 ? request->last : GX_MIN(request->last, next - 1);
	for (; r == 0; steps++) {
		uint64_t mine = i < count && inos[i] <= last ? inos[i] : 0;
		uint64_t theirs = next_object(request, *at, last);
		size_t first = *at;

		if ((mine == 0 && theirs == 0) || steps == 2 * PIECE)
			break;
		ino = mine == 0 || (theirs != 0 && theirs < mine) ? theirs : mine;
		while (next_object(request, *at, last) == ino)
			(*at)++;
		i += mine == ino;
		r = compare_one(jobs, worker, ino, request->objects + first, *at - first, reply);
	}
	if (steps == 2 * PIECE)
		last = ino;
	worker->inventory.next = last < request->last ? last + 1 : 0;
	worker->inventory.over = last >= request->last;
	return r;
}

static void inventory_work(struct md_jobs *jobs, struct md_worker *worker)
{
	int r = inventory_piece(jobs, worker);

	if (r < 0)
		inventory_end(worker, r);
	else if (worker->inventory.over && worker->inventory.need <= md_log_durable(jobs->md->log))
		inventory_end(worker, 0);
}

static int inventory_check(struct rpc_call *call, const PbMeta__NodeInventoryRequest *request)
{
	uint64_t before = request->first;

	if (request->first > request->last || request->n_objects > OBJECTS_MAX)
		return rpc_call_fail(call, -EINVAL, "an inventory has up to %u objects",
				     OBJECTS_MAX);
	for (size_t i = 0; i < request->n_objects; i++) {
		if (request->objects[i]->ino < before || request->objects[i]->ino > request->last)
			return rpc_call_fail(call, -EINVAL, "an inventory is in order");
		before = request->objects[i]->ino;
	}
	return 0;
}

int md_op_node_inventory(struct rpc_call *call, const PbMeta__NodeInventoryRequest *request,
			 PbMeta__NodeInventoryReply *reply)
{
	struct md_server *md = call->data;
	struct md_worker *worker;
	int r;

	if (md->stopping)
		return -ESHUTDOWN;
	r = node_enter(md->jobs, call, request->name, request->boot, &worker);
	if (r == 0)
		r = inventory_check(call, request);
	if (r < 0)
		return r;
	reply->unknown = rpc_call_alloc(call, (request->n_objects + 1) * sizeof(void *));
	reply->stale = rpc_call_alloc(call, (request->n_objects + 1) * sizeof(void *));
	reply->unstable = rpc_call_alloc(call, (request->n_objects + 1) * sizeof(void *));
	if (!reply->unknown || !reply->stale || !reply->unstable)
		return -EAGAIN;
	/* It has given the first one up, or it would not ask again. */
	inventory_end(worker, -EAGAIN);
	worker->inventory = (struct md_sweep){.call = call, .next = request->first};
	worker->inventory_at = 0;
	md_more_work(md);
	return RPC_DEFERRED;
}

/* -- after a power cut ------------------------------------------------------------------------ */

static int node_boot(struct md_jobs *jobs, struct md_worker *worker)
{
	PbMeta__NodeBootRequest request = PB_META__NODE_BOOT_REQUEST__INIT;
	PbMeta__NodeBootReply reply = PB_META__NODE_BOOT_REPLY__INIT;
	uint64_t index = 0;
	int r;

	request.node = worker->name;
	request.boot = worker->rebooting;
	r = md_own_command(jobs->md, RPC_INDEX_NODE_BOOT, 0, &request.base, &reply.base, &index);
	worker->reboot.need = GX_MAX(worker->reboot.need, index);
	return r;
}

/*
 * Copies that are being made of this generation may be of what the node had before its power was
 * cut, and the others of what it has now: one generation would have two contents.
 */
static void doubt_jobs(struct md_jobs *jobs, uint64_t ino, uint64_t generation)
{
	const struct md_job_inode *inode = md_job_inode_find(jobs, ino);
	struct md_job *job;

	if (!inode)
		return;
	DL_FOREACH2(inode->jobs, job, ino_next)
	if (job->kind == MD_JOB_COPY && job->was_given && job->generation == generation)
		job->doubted = true;
}

/* Rule B3, for one copy: what was not on disk may be gone. */
static int doubt(struct md_jobs *jobs, struct md_worker *worker, uint64_t ino)
{
	struct md_ctx ctx = md_jobs_ctx(jobs);
	PbMeta__LayoutRecord *layout;
	const PbMeta__CopyRecord *copy = NULL;
	struct md_inode inode;
	uint64_t generation = 0;
	bool changed = false, cache = false;
	int r = 0;

	if (md_file_get(&ctx, ino, &inode, &layout) == 0 && layout)
		copy = md_layout_find(layout, worker->name);
	/* A writer that is still there sends again what was not synced. */
	if (copy && !(copy->flags & MD_COPY_STABLE) && layout->writing == 0 &&
	    md_copy_current(&inode, layout, copy) && !GX_BROKEN(203))
		generation = copy->generation;
	cache = generation != 0 && (copy->flags & MD_COPY_CACHE);
	rpc_arena_clear(&jobs->arena);
	if (generation == 0)
		return 0;
	doubt_jobs(jobs, ino, generation);
	/* Beside what the node has left, a cache copy would be another content of the generation.
	 */
	if (!cache)
		r = md_plan_stand_in(jobs, worker->name, ino, &worker->reboot.need);
	if (r == 0)
		r = md_copy_change(jobs, worker->name, ino, generation, 0, MD_COPY_IS_STALE,
				   &changed, &worker->reboot.need);
	if (r == 0 && !changed)
		gx_log(WARNING,
		       "a node lost power before a file was on disk, and has the only copy",
		       GX_KS("node", worker->name), GX_KU("ino", ino),
		       GX_KU("generation", generation));
	md_jobs_look(jobs, ino);
	return r;
}

static void reboot_end(struct md_worker *worker, int err)
{
	struct rpc_call *call = worker->reboot.call;

	if (err == 0)
		worker->boot = worker->rebooting;
	worker->rebooting = 0;
	worker->reboot = (struct md_sweep){.call = NULL};
	if (!call)
		return;
	if (err < 0)
		rpc_call_finish(call, err);
	else
		rpc_call_run_again(call); /* NodeRegister */
}

static void reboot_work(struct md_jobs *jobs, struct md_worker *worker)
{
	struct md_ctx ctx = md_jobs_ctx(jobs);
	uint64_t inos[PIECE];
	size_t count = 0;
	int r;

	r = md_layout_each_copy(&ctx, worker->name, worker->reboot.next, PIECE, inos, &count,
				&worker->reboot.next);
	rpc_arena_clear(&jobs->arena);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = doubt(jobs, worker, inos[i]);
	if (r == 0 && worker->reboot.next == 0) {
		worker->reboot.over = true;
		r = node_boot(jobs, worker);
	}
	if (r < 0)
		reboot_end(worker, r);
	else if (worker->reboot.over && worker->reboot.need <= md_log_durable(jobs->md->log))
		reboot_end(worker, 0);
}

int md_jobs_reboot(struct md_jobs *jobs, struct rpc_call *call, const char *node, uint64_t boot)
{
	struct md_worker *worker;
	int r = md_worker_make(jobs, node, &worker);

	if (r < 0)
		return r;
	if (worker->boot == 0)
		worker->boot = md_layout_boot(&jobs->md->state, node);
	/* Nobody has a copy on a node that nobody has seen. */
	if (worker->boot == boot)
		return 0;
	if (worker->boot != 0)
		md_nodes_gone(jobs->md->nodes, node);
	if (worker->reboot.call)
		rpc_call_finish(GX_TAKE(worker->reboot.call), -EAGAIN);
	if (worker->rebooting != boot) {
		if (worker->boot != 0)
			gx_log(NOTICE,
			       "a storage node has booted: what it had not synced is in doubt",
			       GX_KS("node", node), GX_KX("boot", boot),
			       GX_KX("before", worker->boot));
		worker->rebooting = boot;
		worker->reboot = (struct md_sweep){.next = 0};
	}
	worker->reboot.call = call;
	md_more_work(jobs->md);
	return RPC_DEFERRED;
}

void md_jobs_registered(struct md_jobs *jobs, const char *node)
{
	struct md_worker *worker;

	if (md_worker_make(jobs, node, &worker) < 0)
		return; /* it cannot work before it registers again */
	md_worker_again(worker);
	worker->registered_ns = gx_loop_now_ns(jobs->md->loop);
	worker->trash_news = true;
	jobs->scan_wanted = true;
	md_more_work(jobs->md);
}

void md_jobs_written(struct md_jobs *jobs, uint64_t ino)
{
	jobs->written_ns[ino % MD_JOBS_WRITTEN_SLOTS] = gx_loop_now_ns(jobs->md->loop);
}

/* -- turns ------------------------------------------------------------------------------------ */

static bool is_pending(const struct md_sweep *sweep, bool active)
{
	return active && !sweep->over;
}

bool md_told_work(struct md_jobs *jobs)
{
	struct md_worker *worker, *tmp;
	bool more = false;

	if (!md_kv_room(jobs->md->kv) || md_log_busy(jobs->md->log))
		return false;
	HASH_ITER (hh, jobs->workers, worker, tmp) {
		if (is_pending(&worker->reboot, worker->rebooting != 0))
			reboot_work(jobs, worker);
		if (is_pending(&worker->inventory, worker->inventory.call != NULL))
			inventory_work(jobs, worker);
		more |= is_pending(&worker->reboot, worker->rebooting != 0) ||
			is_pending(&worker->inventory, worker->inventory.call != NULL);
	}
	return more;
}

void md_told_durable(struct md_jobs *jobs)
{
	uint64_t durable = md_log_durable(jobs->md->log);
	struct md_worker *worker, *tmp;

	HASH_ITER (hh, jobs->workers, worker, tmp) {
		if (worker->rebooting != 0 && worker->reboot.over && worker->reboot.need <= durable)
			reboot_end(worker, 0);
		if (worker->inventory.call && worker->inventory.over &&
		    worker->inventory.need <= durable)
			inventory_end(worker, 0);
	}
}

void md_told_stop(struct md_jobs *jobs)
{
	struct md_worker *worker, *tmp;

	HASH_ITER (hh, jobs->workers, worker, tmp) {
		reboot_end(worker, -ESHUTDOWN);
		inventory_end(worker, -ESHUTDOWN);
	}
}
