/*
 * The inodes that the kernel knows: its right to ask for them, our right to name them to metad.
 *
 * The kernel decides how many there are, and forgets them when memory is short; so an entry is
 * small (32 bytes in a table that is at most half full) and nothing hangs on it: no descriptor, no
 * lease. Several tables by number, each with a lock of its own, so that handlers rarely meet.
 */
#include "fuse/gfuse.h"

#define SHARDS 16u
#define ROOM_MIN 64u
#define MARK_NONE 0u  /* no pages */
#define MARK_DOUBT 1u /* perhaps, but of old content */

struct entry {
	uint64_t ino; /* 0: free */
	uint64_t cap;
	uint64_t mark; /* MARK_, or of what content the kernel may have pages */
	uint64_t count;
};

struct shard {
	struct gx_mutex lock;
	struct entry *entries;
	size_t room, used; /* room: a power of two */
};

struct gfuse_inodes {
	struct gx_env *env;
	struct shard shards[SHARDS];
};

static uint64_t mix(uint64_t ino)
{
	return ino * UINT64_C(0x9e3779b97f4a7c15);
}

static struct shard *shard_of(struct gfuse_inodes *inodes, uint64_t ino)
{
	return &inodes->shards[mix(ino) >> 60];
}

static size_t place_of(const struct shard *shard, uint64_t ino)
{
	return (size_t)(mix(ino) >> 16) & (shard->room - 1);
}

/* Where it is, or where it would go. */
static struct entry *find(struct shard *shard, uint64_t ino)
{
	size_t i = place_of(shard, ino);

	while (shard->entries[i].ino != 0 && shard->entries[i].ino != ino)
		i = (i + 1) & (shard->room - 1);
	return &shard->entries[i];
}

static int resize(struct shard *shard, size_t room)
{
	struct entry *entries = calloc(room, sizeof(*entries)), *old = shard->entries;
	size_t old_room = shard->room;

	if (!entries)
		return -ENOMEM;
	shard->entries = entries;
	shard->room = room;
	for (size_t i = 0; i < old_room; i++)
		if (old[i].ino != 0)
			*find(shard, old[i].ino) = old[i];
	free(old);
	return 0;
}

/* Those behind it that would not be found over a gap move up. */
static void erase(struct shard *shard, struct entry *entry)
{
	size_t mask = shard->room - 1, gap = (size_t)(entry - shard->entries), i = gap;

	for (;;) {
		size_t home;

		i = (i + 1) & mask;
		if (shard->entries[i].ino == 0)
			break;
		home = place_of(shard, shard->entries[i].ino);
		if (((i - home) & mask) >= ((i - gap) & mask)) {
			shard->entries[gap] = shard->entries[i];
			gap = i;
		}
	}
	shard->entries[gap] = (struct entry){0};
	shard->used--;
	/* Memory goes back after a peak; if there is none for a smaller table, later. */
	if (shard->room > ROOM_MIN && shard->used < shard->room / 16)
		GX_IGNORE(resize(shard, shard->room / 4));
}

int gfuse_inodes_new(struct gx_env *env, struct gfuse_inodes **ret_inodes)
{
	struct gfuse_inodes *inodes = calloc(1, sizeof(*inodes));
	int r = inodes ? 0 : -ENOMEM;

	if (inodes)
		inodes->env = env;
	for (size_t i = 0; r == 0 && i < SHARDS; i++) {
		r = resize(&inodes->shards[i], ROOM_MIN);
		if (r == 0)
			r = gx_env_mutex_init(env, &inodes->shards[i].lock);
	}
	if (r < 0) {
		for (size_t i = 0; inodes && i < SHARDS; i++)
			free(inodes->shards[i].entries);
		free(inodes);
		return r;
	}
	*ret_inodes = inodes;
	return 0;
}

void gfuse_inodes_free(struct gfuse_inodes *inodes)
{
	if (!inodes)
		return;
	for (size_t i = 0; i < SHARDS; i++) {
		gx_env_mutex_fini(inodes->env, &inodes->shards[i].lock);
		free(inodes->shards[i].entries);
	}
	free(inodes);
}

int gfuse_inodes_add(struct gfuse_inodes *inodes, struct gfc_ref ref)
{
	struct shard *shard = shard_of(inodes, ref.ino);
	struct entry *entry;
	int r = 0;

	gx_env_mutex_lock(inodes->env, &shard->lock);
	if (shard->used >= shard->room / 2)
		r = resize(shard, shard->room * 2);
	if (r == 0) {
		entry = find(shard, ref.ino);
		if (entry->ino == 0) {
			*entry = (struct entry){.ino = ref.ino};
			shard->used++;
		}
		entry->cap = ref.cap;
		entry->count++;
	}
	gx_env_mutex_unlock(inodes->env, &shard->lock);
	return r;
}

void gfuse_inodes_forget(struct gfuse_inodes *inodes, uint64_t ino, uint64_t count)
{
	struct shard *shard = shard_of(inodes, ino);
	struct entry *entry;

	gx_env_mutex_lock(inodes->env, &shard->lock);
	entry = find(shard, ino);
	if (entry->ino != 0) {
		entry->count -= GX_MIN(count, entry->count);
		if (entry->count == 0)
			erase(shard, entry);
	}
	gx_env_mutex_unlock(inodes->env, &shard->lock);
}

int gfuse_inodes_find(struct gfuse_inodes *inodes, uint64_t ino, struct gfc_ref *ret_ref)
{
	struct shard *shard = shard_of(inodes, ino);
	struct entry *entry;
	int r = -ESTALE;

	gx_env_mutex_lock(inodes->env, &shard->lock);
	entry = find(shard, ino);
	if (entry->ino != 0) {
		*ret_ref = (struct gfc_ref){ino, entry->cap};
		r = 0;
	}
	gx_env_mutex_unlock(inodes->env, &shard->lock);
	return r;
}

size_t gfuse_inodes_count(struct gfuse_inodes *inodes)
{
	size_t count = 0;

	for (size_t i = 0; i < SHARDS; i++) {
		gx_env_mutex_lock(inodes->env, &inodes->shards[i].lock);
		count += inodes->shards[i].used;
		gx_env_mutex_unlock(inodes->env, &inodes->shards[i].lock);
	}
	return count;
}

bool gfuse_inodes_pages(struct gfuse_inodes *inodes, uint64_t ino, uint64_t mark)
{
	struct shard *shard = shard_of(inodes, ino);
	struct entry *entry;
	bool same = false;

	mark = GX_MAX(mark, (uint64_t)MARK_DOUBT + 1);
	gx_env_mutex_lock(inodes->env, &shard->lock);
	entry = find(shard, ino);
	if (entry->ino != 0) {
		same = entry->mark == mark;
		entry->mark = mark;
	}
	gx_env_mutex_unlock(inodes->env, &shard->lock);
	return same;
}

bool gfuse_inodes_doubt(struct gfuse_inodes *inodes, uint64_t ino)
{
	struct shard *shard = shard_of(inodes, ino);
	struct entry *entry;
	bool pages = false;

	gx_env_mutex_lock(inodes->env, &shard->lock);
	entry = find(shard, ino);
	if (entry->ino != 0 && entry->mark != MARK_NONE) {
		entry->mark = MARK_DOUBT;
		pages = true;
	}
	gx_env_mutex_unlock(inodes->env, &shard->lock);
	return pages;
}

/* Of one table; NULL, *ret_count 0: none, or no memory to say which (their marks have gone). */
static uint64_t *doubt_shard(struct gfuse_inodes *inodes, struct shard *shard, size_t *ret_count)
{
	uint64_t *list = NULL;
	size_t count = 0, i;

	gx_env_mutex_lock(inodes->env, &shard->lock);
	for (i = 0; i < shard->room; i++)
		count += shard->entries[i].mark != MARK_NONE;
	list = count > 0 ? calloc(count, sizeof(*list)) : NULL;
	count = 0;
	for (i = 0; i < shard->room; i++) {
		if (shard->entries[i].mark == MARK_NONE)
			continue;
		shard->entries[i].mark = MARK_DOUBT;
		if (list)
			list[count++] = shard->entries[i].ino;
	}
	gx_env_mutex_unlock(inodes->env, &shard->lock);
	*ret_count = count;
	return list;
}

void gfuse_inodes_doubt_all(struct gfuse_inodes *inodes, void (*fn)(void *arg, uint64_t ino),
			    void *arg)
{
	for (size_t i = 0; i < SHARDS; i++) {
		size_t count;
		GX_AUTOFREE uint64_t *list = doubt_shard(inodes, &inodes->shards[i], &count);

		for (size_t k = 0; k < count; k++)
			fn(arg, list[k]);
	}
}

int gfuse_ref(struct gfuse *g, fuse_ino_t ino, struct gfc_ref *ret_ref)
{
	if (ino == FUSE_ROOT_ID) {
		*ret_ref = g->root;
		return 0;
	}
	return gfuse_inodes_find(g->inodes, ino, ret_ref);
}

fuse_ino_t gfuse_node(const struct gfuse *g, uint64_t ino)
{
	return ino == g->root.ino ? FUSE_ROOT_ID : ino;
}
