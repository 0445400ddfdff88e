/*
 * What is to be done: copies that lack or are too many, objects to delete, files without writer.
 *
 * Everything starts from a record of the state: U says that an inode is not as wanted, T that an
 * object is to go. Pages of them are read as long as there is room in the queues. An inode for
 * which nothing can be done now (no node is free, no source is up) is passed over; when something
 * has changed, or after a while, all are looked at again. So an inode is never forgotten, and never
 * waited for.
 */
#define GX_LOG_COMPONENT "metad.jobs"
#include "common/gx_log.h"
#include "metad/md_jobs_impl.h"

#define PAGE 32u
#define LOOKS_PER_TURN 32u
/* Steps of one inode at a time: each is a command, or a job. */
#define STEPS_MAX 8u
#define DELETES_QUEUED 64u
/* News come with every unlink: they are dealt with together. */
#define NEWS_NS (20 * GX_NSEC_PER_MSEC)
/* What was missed is tried again after this, or longer if looking takes long: 2 % of the time. */
#define MISSED_NS (5 * GX_NSEC_PER_SEC)
#define MISSED_PART 50

/* -- one inode -------------------------------------------------------------------------------- */

/* What is known about an inode that is not as wanted. */
struct plan {
	struct md_jobs *jobs;
	struct md_inode inode;
	PbMeta__LayoutRecord *layout;
	const struct md_job_inode *job_inode; /* NULL: no jobs */
	unsigned wanted, count, count_up, coming;
	/* Hosts that have, or will have, a copy that counts; and nodes that are not to be taken. */
	const char *hosts[2 * MD_COPIES_MAX];
	size_t host_count;
	const char *avoid[3 * MD_COPIES_MAX];
	size_t avoid_count;
	bool full; /* a node was not taken because it has enough to do */
};

static const PbMeta__Node *node_of(const struct plan *plan, const char *name, bool *ret_up)
{
	*ret_up = false;
	return md_nodes_find(plan->jobs->md->nodes, name, ret_up);
}

static bool copy_counts(const struct plan *plan, const PbMeta__CopyRecord *copy)
{
	return md_copy_current(&plan->inode, plan->layout, copy) &&
	       !(copy->flags & (MD_COPY_CACHE | MD_COPY_BAD));
}

static void take_host(struct plan *plan, const char *name)
{
	bool up;
	const PbMeta__Node *node = node_of(plan, name, &up);

	if (node && plan->host_count < GX_COUNT_OF(plan->hosts))
		plan->hosts[plan->host_count++] = node->host;
}

static bool host_taken(const struct plan *plan, const PbMeta__Node *node)
{
	for (size_t i = 0; i < plan->host_count; i++)
		if (strcmp(plan->hosts[i], node->host) == 0)
			return true;
	return false;
}

static void avoid(struct plan *plan, const char *name)
{
	if (plan->avoid_count < GX_COUNT_OF(plan->avoid))
		plan->avoid[plan->avoid_count++] = name;
}

static const struct md_job *job_at(const struct plan *plan, const char *node)
{
	const struct md_job *job;

	if (!plan->job_inode)
		return NULL;
	DL_FOREACH2(plan->job_inode->jobs, job, ino_next)
	if (strcmp(job->worker->name, node) == 0)
		return job;
	return NULL;
}

/* False: there is nothing to do. */
static bool plan_begin(struct md_jobs *jobs, uint64_t ino, struct plan *plan)
{
	struct md_ctx ctx = md_jobs_ctx(jobs);
	const struct md_job *job;
	bool up;

	*plan = (struct plan){.jobs = jobs};
	if (md_file_get(&ctx, ino, &plan->inode, &plan->layout) < 0 || !plan->layout ||
	    md_layout_balanced(&plan->inode, plan->layout))
		return false;
	plan->wanted = md_ncopy(&plan->inode);
	plan->job_inode = md_job_inode_find(jobs, ino);
	for (size_t i = 0; i < plan->layout->n_copies; i++) {
		const PbMeta__CopyRecord *copy = plan->layout->copies[i];

		avoid(plan, copy->node);
		if (!copy_counts(plan, copy))
			continue;
		node_of(plan, copy->node, &up);
		plan->count++;
		plan->count_up += up;
		take_host(plan, copy->node);
	}
	if (plan->job_inode) {
		DL_FOREACH2(plan->job_inode->jobs, job, ino_next)
		{
			avoid(plan, job->worker->name);
			if (job->kind != MD_JOB_COPY || job->cache ||
			    job->generation != plan->inode.generation)
				continue;
			plan->coming++;
			take_host(plan, job->worker->name);
		}
	}
	return true;
}

/* A copy job; the node's queue may be full. */
static int plan_copy(struct plan *plan, const char *node)
{
	struct md_worker *worker;
	struct md_job *job;
	int r = md_worker_make(plan->jobs, node, &worker);

	if (r == 0 && worker->job_count >= MD_JOBS_PER_NODE_MAX)
		r = -ENOSPC;
	if (r == 0)
		r = md_job_new(plan->jobs, worker, MD_JOB_COPY, plan->inode.ino,
			       plan->inode.generation, &job);
	if (r < 0) {
		plan->full = true;
		return r;
	}
	plan->job_inode = job->inode;
	plan->coming++;
	take_host(plan, node);
	avoid(plan, node);
	md_nodes_expect(plan->jobs->md->nodes, node, plan->inode.size);
	return 0;
}

/* A node where the last try failed is taken only if there is no other. */
static bool has_failed(const struct plan *plan, const char *node)
{
	return plan->job_inode && plan->job_inode->fails > 0 &&
	       strcmp(plan->job_inode->failed_node, node) == 0;
}

/* A cache copy is as good as any, once it counts. *ret_changed: it does. */
static int promote(struct md_jobs *jobs, uint64_t ino, const PbMeta__CopyRecord *copy,
		   bool *ret_changed, uint64_t *need)
{
	return md_copy_change(jobs, copy->node, ino, copy->generation, copy->flags & ~MD_COPY_CACHE,
			      MD_COPY_IS_THERE, ret_changed, need);
}

static bool is_good_cache(const struct md_inode *inode, const PbMeta__LayoutRecord *layout,
			  const PbMeta__CopyRecord *copy)
{
	return (copy->flags & (MD_COPY_CACHE | MD_COPY_BAD)) == MD_COPY_CACHE &&
	       md_copy_current(inode, layout, copy);
}

/* True: one was promoted. */
static bool promote_cache(struct plan *plan)
{
	for (size_t i = 0; i < plan->layout->n_copies; i++) {
		const PbMeta__CopyRecord *copy = plan->layout->copies[i];
		bool changed = false, up;
		const PbMeta__Node *node = node_of(plan, copy->node, &up);
		uint64_t need = 0;

		if (!is_good_cache(&plan->inode, plan->layout, copy) || !node || !up ||
		    host_taken(plan, node))
			continue;
		if (promote(plan->jobs, plan->inode.ino, copy, &changed, &need) == 0 && changed)
			return true;
	}
	return false;
}

int md_plan_stand_in(struct md_jobs *jobs, const char *node, uint64_t ino, uint64_t *need)
{
	struct md_ctx ctx = md_jobs_ctx(jobs);
	const PbMeta__CopyRecord *best = NULL;
	PbMeta__LayoutRecord *layout;
	bool counts = false;
	struct md_inode inode;
	int r = 0;

	if (md_file_get(&ctx, ino, &inode, &layout) < 0)
		layout = NULL;
	for (size_t i = 0; layout && i < layout->n_copies; i++) {
		const PbMeta__CopyRecord *copy = layout->copies[i];

		if (strcmp(copy->node, node) == 0)
			continue;
		if (is_good_cache(&inode, layout, copy) &&
		    (!best || (copy->flags & ~best->flags & MD_COPY_STABLE)))
			best = copy;
		counts = counts || (md_copy_current(&inode, layout, copy) &&
				    !(copy->flags & (MD_COPY_CACHE | MD_COPY_BAD)));
	}
	if (best && !counts)
		r = promote(jobs, ino, best, NULL, need);
	rpc_arena_clear(&jobs->arena);
	return r;
}

/* Stale and damaged copies are brought up to date where they are (rule B9). */
static void catch_up(struct plan *plan, bool failed)
{
	struct md_ctx ctx = md_jobs_ctx(plan->jobs);

	for (size_t i = 0; i < plan->layout->n_copies; i++) {
		const PbMeta__CopyRecord *copy = plan->layout->copies[i];
		bool up;
		const PbMeta__Node *node = node_of(plan, copy->node, &up);

		if (plan->count + plan->coming >= plan->wanted)
			return;
		if (copy_counts(plan, copy) || !node || !up || host_taken(plan, node) ||
		    job_at(plan, copy->node) || has_failed(plan, copy->node) != failed)
			continue;
		/* What is current, and a cache copy, is promoted, not copied. */
		if ((copy->flags & (MD_COPY_CACHE | MD_COPY_BAD)) == MD_COPY_CACHE ||
		    md_layout_in_trash(&ctx, copy->node, plan->inode.ino, plan->inode.generation))
			continue;
		GX_IGNORE(plan_copy(plan, copy->node));
	}
}

/* Nodes that have nothing of it yet. */
static void place_new(struct plan *plan, bool failed)
{
	struct md_ctx ctx = md_jobs_ctx(plan->jobs);
	size_t kept_avoid = plan->avoid_count;

	if (!failed && plan->job_inode && plan->job_inode->fails > 0)
		avoid(plan, plan->job_inode->failed_node);
	while (plan->count + plan->coming < plan->wanted &&
	       plan->avoid_count < GX_COUNT_OF(plan->avoid)) {
		struct md_placement_request wanted = {
			.copies = 1,
			.bytes = plan->inode.size,
			.avoid = plan->avoid,
			.avoid_count = plan->avoid_count,
			.hosts = plan->hosts,
			.host_count = plan->host_count,
		};
		const char *name;

		if (plan->layout->n_copies + plan->coming >= MD_COPIES_MAX ||
		    md_placement_most_free.choose(plan->jobs->md->nodes, &wanted, &name, 1) == 0)
			break;
		/* What it is still to delete it cannot have (md_layout.h). */
		if (md_layout_in_trash(&ctx, name, plan->inode.ino, plan->inode.generation) ||
		    plan_copy(plan, name) < 0)
			avoid(plan, name);
	}
	if (!failed)
		plan->avoid_count = kept_avoid;
}

static bool has_source(const struct plan *plan)
{
	bool up;

	for (size_t i = 0; i < plan->layout->n_copies; i++) {
		const PbMeta__CopyRecord *copy = plan->layout->copies[i];

		if (md_copy_current(&plan->inode, plan->layout, copy) &&
		    node_of(plan, copy->node, &up) && up)
			return true;
	}
	return false;
}

/* Copies are missing. True: the state has changed, look again. */
static bool plan_more(struct plan *plan)
{
	struct md_jobs *jobs = plan->jobs;

	/* Nobody has the bytes, or who has them is away. */
	if (!has_source(plan)) {
		jobs->scan_missed = true;
		return false;
	}
	if (promote_cache(plan))
		return true;
	if (plan->job_inode && plan->job_inode->fails > 0 &&
	    gx_loop_now_ns(jobs->md->loop) < plan->job_inode->retry_ns)
		return false;
	for (unsigned failed = 0; failed < 2; failed++) {
		catch_up(plan, failed);
		place_new(plan, failed);
	}
	if (plan->count + plan->coming < plan->wanted)
		jobs->scan_missed = true;
	return false;
}

/* How gladly this copy is given up; 0: not at all. */
static unsigned surplus_score(const struct plan *plan, const PbMeta__CopyRecord *copy)
{
	unsigned score = 1;
	bool up, other_up;
	const PbMeta__Node *node = node_of(plan, copy->node, &up);

	/* Bytes that are on nodes which are there count more than those that are not. */
	if (!node || !up)
		score += 8;
	for (size_t i = 0; node && i < plan->layout->n_copies; i++) {
		const PbMeta__CopyRecord *other = plan->layout->copies[i];
		const PbMeta__Node *peer = node_of(plan, other->node, &other_up);

		if (other != copy && copy_counts(plan, other) && peer &&
		    strcmp(peer->host, node->host) == 0)
			score += 4;
	}
	if (!(copy->flags & MD_COPY_STABLE))
		score += 2;
	return score;
}

/* The copy that can best be spared, or NULL. */
static const PbMeta__CopyRecord *choose_surplus(const struct plan *plan)
{
	const PbMeta__CopyRecord *best = NULL;
	uint64_t best_free = 0;
	unsigned best_score = 0;

	for (size_t i = 0; i < plan->layout->n_copies; i++) {
		const PbMeta__CopyRecord *copy = plan->layout->copies[i];
		bool up;
		const PbMeta__Node *node = node_of(plan, copy->node, &up);
		uint64_t free_bytes = node ? node->free_bytes : 0;
		unsigned score;

		if (!copy_counts(plan, copy))
			continue;
		/* What is left must be there, not only in our records (rule N15). */
		if (plan->count_up - (up ? 1 : 0) < plan->wanted)
			continue;
		score = surplus_score(plan, copy);
		if (score > best_score || (score == best_score && free_bytes < best_free)) {
			best = copy;
			best_score = score;
			best_free = free_bytes;
		}
	}
	return best;
}

/* All that are wanted are there: the rest goes (rule B9). True: the state has changed. */
static bool plan_less(struct plan *plan)
{
	const PbMeta__CopyRecord *victim = NULL;
	bool changed = false;
	uint64_t need = 0;

	/* Copies that are on their way will be surplus; then they are looked at again. */
	if (plan->count_up < plan->wanted || plan->coming > 0) {
		plan->jobs->scan_missed = true;
		return false;
	}
	for (size_t i = 0; i < plan->layout->n_copies && !victim; i++) {
		const PbMeta__CopyRecord *copy = plan->layout->copies[i];

		if ((!md_copy_current(&plan->inode, plan->layout, copy) ||
		     (copy->flags & MD_COPY_BAD)) &&
		    !job_at(plan, copy->node))
			victim = copy;
	}
	if (!victim && plan->count > plan->wanted)
		victim = choose_surplus(plan);
	if (!victim) {
		plan->jobs->scan_missed = true;
		return false;
	}
	gx_log(INFO, "a copy is not needed any more", GX_KU("ino", plan->inode.ino),
	       GX_KS("node", victim->node), GX_KU("generation", victim->generation));
	if (md_copy_change(plan->jobs, victim->node, plan->inode.ino, victim->generation, 0,
			   MD_COPY_TO_DELETE, &changed, &need) < 0 ||
	    !changed) {
		plan->jobs->scan_missed = true;
		return false;
	}
	return true;
}

static void look(struct md_jobs *jobs, uint64_t ino)
{
	bool again = true;

	for (unsigned step = 0; again && step < STEPS_MAX; step++) {
		struct plan plan;

		again = plan_begin(jobs, ino, &plan) &&
			(plan.count < plan.wanted ? plan_more(&plan) : plan_less(&plan));
		rpc_arena_clear(&jobs->arena);
	}
}

bool md_plan_wants(struct md_jobs *jobs, const struct md_job *job, struct md_inode *ret_inode,
		   PbMeta__LayoutRecord **ret_layout)
{
	struct md_ctx ctx = md_jobs_ctx(jobs);
	const PbMeta__CopyRecord *copy;

	if (md_file_get(&ctx, job->inode->ino, ret_inode, ret_layout) < 0 || !*ret_layout ||
	    (*ret_layout)->writing != 0 || ret_inode->generation != job->generation)
		return false;
	copy = md_layout_find(*ret_layout, job->worker->name);
	/* A cache copy is for a node that has none. */
	if (job->cache)
		return (!copy && (*ret_layout)->n_copies < MD_COPIES_MAX) ||
		       (copy && !md_copy_current(ret_inode, *ret_layout, copy));
	if (copy && md_copy_current(ret_inode, *ret_layout, copy) && !(copy->flags & MD_COPY_BAD))
		return false;
	return md_layout_count(ret_inode, *ret_layout) < md_ncopy(ret_inode);
}

bool md_plan_wants_recovery(struct md_jobs *jobs, const struct md_job *job)
{
	struct md_ctx ctx = md_jobs_ctx(jobs);
	PbMeta__LayoutRecord *layout;
	bool wants;

	wants = md_layout_get(&ctx, job->inode->ino, &layout) == 0 && layout &&
		layout->writing == job->generation &&
		strcmp(layout->primary, job->worker->name) == 0;
	rpc_arena_clear(&jobs->arena);
	return wants;
}

void md_plan_discard(struct md_jobs *jobs, const struct md_job *job)
{
	struct md_ctx ctx = md_jobs_ctx(jobs);
	PbMeta__LayoutRecord *layout;
	uint64_t need = 0;
	bool listed;

	listed = md_layout_get(&ctx, job->inode->ino, &layout) < 0 ||
		 (layout && md_layout_find(layout, job->worker->name));
	rpc_arena_clear(&jobs->arena);
	/* The next inventory finds what is left by a full log. */
	if (!listed)
		GX_IGNORE(md_copy_change(jobs, job->worker->name, job->inode->ino, job->generation,
					 0, MD_COPY_TO_DELETE, NULL, &need));
}

/* -- all of them ------------------------------------------------------------------------------ */

void md_jobs_look(struct md_jobs *jobs, uint64_t ino)
{
	struct md_look *look;
	bool gx_hash_failed = false;

	HASH_FIND(hh, jobs->looks, &ino, sizeof(ino), look);
	if (look || jobs->stopped)
		return;
	look = HASH_COUNT(jobs->looks) < MD_JOBS_LOOKS_MAX ? calloc(1, sizeof(*look)) : NULL;
	if (look) {
		look->ino = ino;
		HASH_ADD(hh, jobs->looks, ino, sizeof(look->ino), look);
		if (gx_hash_failed) {
			free(look);
			look = NULL;
		}
	}
	if (!look)
		jobs->scan_wanted = true;
	md_more_work(jobs->md);
}

void md_jobs_news(struct md_jobs *jobs)
{
	struct md_worker *worker, *tmp;

	HASH_ITER (hh, jobs->workers, worker, tmp)
		worker->trash_news = true;
	jobs->scan_wanted = true;
}

static void looks_work(struct md_jobs *jobs)
{
	for (unsigned i = 0; i < LOOKS_PER_TURN && jobs->looks; i++) {
		struct md_look *first = jobs->looks;
		uint64_t ino = first->ino;

		HASH_DEL(jobs->looks, first);
		free(first);
		look(jobs, ino);
	}
}

/* Begins a look at all that is not as wanted, if there is a reason and it is time. */
static void scan_begin(struct md_jobs *jobs, int64_t now)
{
	bool missed = jobs->scan_missed && now >= jobs->missed_ns;

	if (jobs->scanning || now < jobs->scan_after_ns || (!jobs->scan_wanted && !missed))
		return;
	jobs->scanning = true;
	jobs->scan_wanted = jobs->scan_missed = false;
	jobs->scan_next = 0;
	jobs->scan_begun_ns = now;
}

static void scan_end(struct md_jobs *jobs, int64_t now)
{
	int64_t took = now - jobs->scan_begun_ns;

	jobs->scanning = false;
	jobs->scan_after_ns = now + GX_MAX(took * 2, NEWS_NS);
	jobs->missed_ns = now + GX_MAX(took * MISSED_PART, MISSED_NS);
}

static void scan_work(struct md_jobs *jobs)
{
	int64_t now = gx_env_now_ns(jobs->md->env);
	struct md_ctx ctx = md_jobs_ctx(jobs);
	uint64_t inos[PAGE];
	size_t count;
	int r;

	scan_begin(jobs, now);
	if (!jobs->scanning)
		return;
	r = md_layout_each_unbalanced(&ctx, jobs->scan_next, PAGE, inos, &count, &jobs->scan_next);
	rpc_arena_clear(&jobs->arena);
	if (r < 0) {
		gx_log(ERR, "cannot read which files lack copies", GX_KE(r));
		jobs->scan_missed = true;
		count = 0;
		jobs->scan_next = 0;
	}
	for (size_t i = 0; i < count; i++)
		look(jobs, inos[i]);
	if (jobs->scan_next == 0)
		scan_end(jobs, now);
}

/* -- trash ------------------------------------------------------------------------------------ */

static bool is_deleting(struct md_jobs *jobs, const struct md_worker *worker,
			const struct md_trash *trash)
{
	const struct md_job_inode *inode = md_job_inode_find(jobs, trash->ino);
	const struct md_job *job;

	if (!inode)
		return false;
	DL_FOREACH2(inode->jobs, job, ino_next)
	if (job->worker == worker && job->kind == MD_JOB_DELETE &&
	    job->generation == trash->generation)
		return true;
	return false;
}

/* A page of what the node is to delete becomes jobs. */
static void trash_page(struct md_jobs *jobs, struct md_worker *worker, int64_t now)
{
	struct md_ctx ctx = md_jobs_ctx(jobs);
	struct md_trash trash[PAGE];
	struct md_job *job;
	size_t count;
	int r;

	if (worker->trash_next.ino == 0)
		worker->trash_news = false; /* what comes from now on is news */
	r = md_layout_each_trash(&ctx, worker->name, &worker->trash_next, PAGE, trash, &count,
				 &worker->trash_next);
	rpc_arena_clear(&jobs->arena);
	if (r < 0) {
		gx_log(ERR, "cannot read what a node is to delete", GX_KS("node", worker->name),
		       GX_KE(r));
		worker->trash_next = (struct md_trash){0, 0};
		count = 0;
	}
	for (size_t i = 0; i < count; i++) {
		if (is_deleting(jobs, worker, &trash[i]))
			continue;
		if (md_job_new(jobs, worker, MD_JOB_DELETE, trash[i].ino, trash[i].generation,
			       &job) < 0)
			worker->trash_news = true;
	}
	if (worker->trash_next.ino == 0)
		worker->trash_after_ns = now + (r < 0 ? MISSED_NS : NEWS_NS);
}

/* True: there is more. */
static bool trash_work(struct md_jobs *jobs)
{
	int64_t now = gx_loop_now_ns(jobs->md->loop);
	struct md_worker *worker, *tmp;
	bool more = false;

	HASH_ITER (hh, jobs->workers, worker, tmp) {
		unsigned deletes = worker->job_count - worker->copy_count;
		bool up = false;

		if ((!worker->trash_news && worker->trash_next.ino == 0) ||
		    now < worker->trash_after_ns || deletes >= DELETES_QUEUED ||
		    !md_nodes_find(jobs->md->nodes, worker->name, &up) || !up)
			continue;
		trash_page(jobs, worker, now);
		more |= worker->trash_next.ino != 0;
	}
	return more;
}

/* -- files whose writer is gone --------------------------------------------------------------- */

/*
 * A writer whose session ends is noticed (md_recall.c), but one may have vanished while metad was
 * down, and what could not be queued is not remembered. So all layouts are looked at once after a
 * start, when everybody has had the time to come back (rule N4).
 */
static void abandoned_work(struct md_jobs *jobs)
{
	struct md_ctx ctx = md_jobs_ctx(jobs);
	uint64_t inos[PAGE];
	size_t count = 0;
	int r;

	if (jobs->abandoned_wanted && !jobs->abandoned_scan && !jobs->md->recovering &&
	    jobs->recovers < MD_JOBS_RECOVER_MAX / 2) {
		jobs->abandoned_wanted = false;
		jobs->abandoned_scan = true;
		jobs->abandoned_next = 0;
	}
	if (!jobs->abandoned_scan)
		return;
	r = md_layout_each_written(&ctx, jobs->abandoned_next, PAGE, inos, &count,
				   &jobs->abandoned_next);
	rpc_arena_clear(&jobs->arena);
	if (r < 0)
		gx_log(ERR, "cannot read which files were being written", GX_KE(r));
	for (size_t i = 0; r == 0 && i < count; i++)
		md_recover(jobs->md, inos[i]); /* if it has no writer */
	jobs->abandoned_scan = r == 0 && jobs->abandoned_next != 0;
}

/* -- turns ------------------------------------------------------------------------------------ */

bool md_plan_work(struct md_jobs *jobs)
{
	bool more;

	/* Everything here may wait for the database. */
	if (!md_kv_room(jobs->md->kv) || md_log_busy(jobs->md->log))
		return false;
	looks_work(jobs);
	scan_work(jobs);
	abandoned_work(jobs);
	more = trash_work(jobs);
	more |= md_evict_work(jobs);
	return more || jobs->looks || jobs->scanning || jobs->abandoned_scan;
}

void md_plan_free(struct md_jobs *jobs)
{
	struct md_look *look, *tmp;

	HASH_ITER (hh, jobs->looks, look, tmp) {
		HASH_DEL(jobs->looks, look);
		free(look);
	}
}
