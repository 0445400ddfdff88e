/*
 * Cache copies make room (rule B11): those older than a day go, and the oldest of a node whose
 * space gets short.
 *
 * No index knows the cache copies of a node: they are found by a pass over all its copies, a page
 * per turn. Passes are rare: one an hour for the age, and with little space one after the other,
 * but never more than a small part of the time. A pass for room keeps the oldest EVICT_MAX that it
 * has met, and they go at its end, as many as are needed.
 */
#define GX_LOG_COMPONENT "metad.jobs"
#include "common/gx_log.h"
#include "metad/md_jobs_impl.h"

#define CACHE_AGE_NS (24 * 3600 * GX_NSEC_PER_SEC)
#define AGE_PASSES 24 /* in that time */
#define EVICT_MAX 256u
#define PAGE 64u
/* Shares of a node's space, in percent: below the first caches go, until there is the second. */
#define LOW_PERCENT 10u
#define ENOUGH_PERCENT 15u
/* Between two passes for room: the next heartbeat tells what the last has brought. */
#define PASS_NS (4 * GX_NSEC_PER_SEC)
#define PASS_PART 20

struct md_evictable {
	uint64_t ino, generation, since_ns, bytes;
};

struct md_eviction {
	bool for_room;
	uint64_t next; /* inode */
	int64_t begun_ns;
	size_t count;
	struct md_evictable oldest[EVICT_MAX]; /* in order */
};

static const PbMeta__Node *node_up(struct md_jobs *jobs, const struct md_worker *worker)
{
	bool up = false;
	const PbMeta__Node *node = md_nodes_find(jobs->md->nodes, worker->name, &up);

	return up ? node : NULL;
}

static uint64_t percent_of(uint64_t bytes, unsigned percent)
{
	return bytes / 100 * percent;
}

static int64_t age_ns(const struct md_jobs *jobs)
{
	int64_t age = jobs->md->options.cache_age_ns;

	return age > 0 ? age : CACHE_AGE_NS;
}

/* -- a pass ----------------------------------------------------------------------------------- */

static void evict(struct md_jobs *jobs, struct md_worker *worker, const struct md_evictable *copy)
{
	uint64_t need = 0;

	gx_log(INFO, "a cache copy makes room", GX_KS("node", worker->name),
	       GX_KU("ino", copy->ino), GX_KU("bytes", copy->bytes));
	/* With a full log the next pass tries again. */
	GX_IGNORE(md_copy_change(jobs, worker->name, copy->ino, copy->generation, 0,
				 MD_COPY_TO_DELETE, NULL, &need));
}

static void keep_oldest(struct md_eviction *pass, const struct md_evictable *copy)
{
	size_t at = pass->count;

	if (at == EVICT_MAX) {
		if (copy->since_ns >= pass->oldest[at - 1].since_ns)
			return;
		at--;
	} else {
		pass->count++;
	}
	for (; at > 0 && pass->oldest[at - 1].since_ns > copy->since_ns; at--)
		pass->oldest[at] = pass->oldest[at - 1];
	pass->oldest[at] = *copy;
}

static bool cache_copy(struct md_jobs *jobs, const struct md_worker *worker, uint64_t ino,
		       struct md_evictable *ret_copy)
{
	struct md_ctx ctx = md_jobs_ctx(jobs);
	PbMeta__LayoutRecord *layout;
	const PbMeta__CopyRecord *copy = NULL;
	struct md_inode inode;

	if (md_file_get(&ctx, ino, &inode, &layout) == 0 && layout)
		copy = md_layout_find(layout, worker->name);
	if (copy && !(copy->flags & MD_COPY_CACHE))
		copy = NULL;
	if (copy)
		*ret_copy = (struct md_evictable){.ino = ino,
						  .generation = copy->generation,
						  .since_ns = copy->since_ns,
						  .bytes = inode.size};
	rpc_arena_clear(&jobs->arena);
	return copy != NULL;
}

static void meet(struct md_jobs *jobs, struct md_worker *worker, uint64_t ino)
{
	struct md_evictable copy;

	if (!cache_copy(jobs, worker, ino, &copy))
		return;
	if (md_time(jobs->md) - (int64_t)copy.since_ns >= age_ns(jobs))
		evict(jobs, worker, &copy);
	else if (worker->eviction->for_room)
		keep_oldest(worker->eviction, &copy);
}

static void make_room(struct md_jobs *jobs, struct md_worker *worker)
{
	const PbMeta__Node *node = node_up(jobs, worker);
	uint64_t enough = node ? percent_of(node->capacity_bytes, ENOUGH_PERCENT) : 0;
	uint64_t bytes = node ? node->free_bytes : 0;

	for (size_t i = 0; i < worker->eviction->count && bytes < enough; i++) {
		bytes += worker->eviction->oldest[i].bytes;
		evict(jobs, worker, &worker->eviction->oldest[i]);
	}
}

static void pass_page(struct md_jobs *jobs, struct md_worker *worker)
{
	struct md_eviction *pass = worker->eviction;
	int64_t now = gx_env_now_ns(jobs->md->env);
	struct md_ctx ctx = md_jobs_ctx(jobs);
	uint64_t inos[PAGE];
	size_t count = 0;
	int r;

	r = md_layout_each_copy(&ctx, worker->name, pass->next, PAGE, inos, &count, &pass->next);
	rpc_arena_clear(&jobs->arena);
	for (size_t i = 0; r == 0 && i < count; i++)
		meet(jobs, worker, inos[i]);
	if (r == 0 && pass->next != 0)
		return;
	if (r == 0 && pass->for_room)
		make_room(jobs, worker);
	worker->evict_after_ns = now + GX_MAX((now - pass->begun_ns) * PASS_PART, PASS_NS);
	worker->evict_age_ns = now + age_ns(jobs) / AGE_PASSES;
	free(GX_TAKE(worker->eviction));
}

/* -- when ------------------------------------------------------------------------------------- */

static void pass_begin(struct md_jobs *jobs, struct md_worker *worker, int64_t now)
{
	const PbMeta__Node *node = node_up(jobs, worker);
	bool low = node && node->free_bytes < percent_of(node->capacity_bytes, LOW_PERCENT);

	if (worker->evict_age_ns == 0)
		worker->evict_age_ns = now + age_ns(jobs) / AGE_PASSES;
	low = low && now >= worker->evict_after_ns;
	if (!node || (!low && now < worker->evict_age_ns))
		return;
	worker->eviction = calloc(1, sizeof(*worker->eviction));
	if (!worker->eviction)
		return; /* with the next tick */
	worker->eviction->for_room = low;
	worker->eviction->begun_ns = now;
}

void md_evict_tick(struct md_jobs *jobs, int64_t now)
{
	struct md_worker *worker, *tmp;

	HASH_ITER (hh, jobs->workers, worker, tmp) {
		if (!worker->eviction)
			pass_begin(jobs, worker, now);
	}
}

bool md_evict_work(struct md_jobs *jobs)
{
	struct md_worker *worker, *tmp;
	bool more = false;

	HASH_ITER (hh, jobs->workers, worker, tmp) {
		/* One page of one node per turn. */
		if (worker->eviction && !more)
			pass_page(jobs, worker);
		more |= worker->eviction != NULL;
	}
	return more;
}

bool md_evict_has_room(struct md_jobs *jobs, const char *node)
{
	bool up = false;
	const PbMeta__Node *info = md_nodes_find(jobs->md->nodes, node, &up);

	return info && up && info->free_bytes >= percent_of(info->capacity_bytes, ENOUGH_PERCENT);
}
