#include "client/fs/gfc_cache.h"
#include "common/gx_broken.h"
#include "common/gx_hash.h"
#include "common/gx_sum.h"
#include "include/gfs.h"

#define STAMPS 4096u /* a power of two */

enum kind { KIND_NAME, KIND_ATTR };

/* Head of both kinds of entries. */
struct item {
	struct item *prev, *next; /* by last use, newest first */
	UT_hash_handle hh;
	enum kind kind;
	uint32_t bytes; /* charged */
};

struct attr_item {
	struct item item;
	uint64_t ino; /* the key */
	bool old;     /* only capability and type count: they never change */
	struct gfc_attr attr;
};

struct name_item {
	struct item item;
	uint64_t ino;   /* 0: there is no such name */
	uint64_t since; /* clock when stored; older than dir_stamps: all names were forgotten */
	size_t key_bytes;
	/* The key: */
	uint64_t dir;
	char name[];
};

struct name_key {
	uint64_t dir;
	char name[GFS_NAME_MAX];
};

struct gfc_cache {
	struct gx_env *env;
	size_t bytes_max;

	struct gx_mutex lock; /* all below */
	bool on;
	int64_t answered_ns;         /* trust counts from here; 0: none */
	uint64_t clock;              /* of stamps; > 0 */
	uint64_t all_stamp;          /* everything was forgotten */
	uint64_t stamps[STAMPS];     /* by inode: last change or forgetting of anything about it */
	uint32_t changing[STAMPS];   /* by inode: changes of our own that are on their way */
	uint64_t dir_stamps[STAMPS]; /* by inode: last forgetting of all its names */
	struct item *names, *attrs;  /* tables */
	struct item *used;           /* all items */
	size_t bytes;
	uint64_t count, hits, misses;
};

/* -- life ---------------------------------------------------------------------------------- */

int gfc_cache_new(struct gx_env *env, size_t bytes_max, struct gfc_cache **ret_cache)
{
	struct gfc_cache *cache = calloc(1, sizeof(*cache));
	int r;

	if (!cache)
		return -ENOMEM;
	cache->env = env;
	cache->bytes_max = bytes_max;
	cache->clock = 1;
	r = gx_env_mutex_init(env, &cache->lock);
	if (r < 0) {
		free(cache);
		return r;
	}
	*ret_cache = cache;
	return 0;
}

/* All below: under the lock. */

static void item_drop(struct gfc_cache *cache, struct item *item)
{
	if (item->kind == KIND_NAME)
		HASH_DEL(cache->names, item);
	else
		HASH_DEL(cache->attrs, item);
	DL_DELETE(cache->used, item);
	cache->bytes -= item->bytes;
	cache->count--;
	free(item);
}

static uint64_t tick(struct gfc_cache *cache)
{
	return ++cache->clock;
}

static void empty(struct gfc_cache *cache)
{
	cache->all_stamp = tick(cache);
	/* The tables first, at once: one by one each removal would look into its chain. */
	HASH_CLEAR(hh, cache->names);
	HASH_CLEAR(hh, cache->attrs);
	while (cache->used) {
		struct item *item = cache->used;

		DL_DELETE(cache->used, item);
		free(item);
	}
	cache->bytes = 0;
	cache->count = 0;
}

void gfc_cache_free(struct gfc_cache *cache)
{
	if (!cache)
		return;
	empty(cache);
	gx_env_mutex_fini(cache->env, &cache->lock);
	free(cache);
}

static void lock(struct gfc_cache *cache)
{
	gx_env_mutex_lock(cache->env, &cache->lock);
}

static void unlock(struct gfc_cache *cache)
{
	gx_env_mutex_unlock(cache->env, &cache->lock);
}

/* -- leases -------------------------------------------------------------------------------- */

void gfc_cache_start(struct gfc_cache *cache)
{
	lock(cache);
	empty(cache);
	cache->on = true;
	cache->answered_ns = 0;
	unlock(cache);
}

static void off(struct gfc_cache *cache)
{
	empty(cache);
	cache->on = false;
	cache->answered_ns = 0;
}

void gfc_cache_stop(struct gfc_cache *cache)
{
	lock(cache);
	off(cache);
	unlock(cache);
}

static bool trusted(const struct gfc_cache *cache, int64_t now)
{
	return cache->answered_ns > 0 &&
	       (now - cache->answered_ns < GFC_TRUST_NS || GX_BROKEN(113));
}

bool gfc_cache_answered(struct gfc_cache *cache, int64_t sent_ns)
{
	int64_t now = gx_env_now_ns(cache->env);
	bool late;

	lock(cache);
	late = cache->on && cache->answered_ns > 0 && !trusted(cache, now);
	if (late)
		off(cache);
	else if (cache->on)
		cache->answered_ns = GX_MAX(cache->answered_ns, sent_ns);
	unlock(cache);
	return !late;
}

int64_t gfc_cache_answered_ns(struct gfc_cache *cache)
{
	int64_t ns;

	lock(cache);
	ns = cache->answered_ns;
	unlock(cache);
	return ns;
}

bool gfc_cache_trusted(struct gfc_cache *cache)
{
	bool yes;

	lock(cache);
	yes = cache->on && trusted(cache, gx_env_now_ns(cache->env));
	unlock(cache);
	return yes;
}

/* -- items ----------------------------------------------------------------------------------- */

static size_t stamp_place(uint64_t ino)
{
	/* Inode numbers come in sequence; neighbours get different places as they are. */
	return ino & (STAMPS - 1);
}

static bool untouched_since(const struct gfc_cache *cache, uint64_t clock, uint64_t ino)
{
	return cache->on && cache->all_stamp <= clock && cache->stamps[stamp_place(ino)] <= clock;
}

static void stamp(struct gfc_cache *cache, uint64_t ino)
{
	cache->stamps[stamp_place(ino)] = tick(cache);
}

/* False: this name is not kept here. */
static bool name_key(struct name_key *key, uint64_t dir, const char *name, size_t *ret_bytes,
		     unsigned *ret_hash)
{
	size_t bytes = strlen(name);

	if (bytes == 0 || bytes > GFS_NAME_MAX)
		return false;
	/* ".." changes when another directory's entry does. */
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return false;
	key->dir = dir;
	memcpy(key->name, name, bytes);
	*ret_bytes = sizeof(key->dir) + bytes;
	*ret_hash = (unsigned)gx_sum64(key, *ret_bytes);
	return true;
}

static struct item *name_find(struct gfc_cache *cache, uint64_t dir, const char *name)
{
	struct name_key key;
	struct item *item = NULL;
	struct name_item *found;
	size_t bytes;
	unsigned hash;

	if (!name_key(&key, dir, name, &bytes, &hash))
		return NULL;
	HASH_FIND_BYHASHVALUE(hh, cache->names, &key, bytes, hash, item);
	if (!item)
		return NULL;
	found = GX_CONTAINER_OF(item, struct name_item, item);
	if (found->since < cache->dir_stamps[stamp_place(dir)]) {
		item_drop(cache, item);
		return NULL;
	}
	return item;
}

static unsigned attr_hash(uint64_t ino)
{
	return (unsigned)(ino * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static struct item *attr_find(struct gfc_cache *cache, uint64_t ino)
{
	struct item *item = NULL;

	HASH_FIND_BYHASHVALUE(hh, cache->attrs, &ino, sizeof(ino), attr_hash(ino), item);
	return item;
}

static struct attr_item *attr_item(struct item *item)
{
	return GX_CONTAINER_OF(item, struct attr_item, item);
}

static uint64_t item_ino(const struct item *item)
{
	return GX_CONTAINER_OF(item, struct name_item, item)->ino;
}

static void item_used(struct gfc_cache *cache, struct item *item)
{
	if (cache->used == item)
		return;
	DL_DELETE(cache->used, item);
	DL_PREPEND(cache->used, item);
}

/* It has its place in a table: counts it, and makes room. */
static void item_added(struct gfc_cache *cache, struct item *item)
{
	DL_PREPEND(cache->used, item);
	cache->bytes += item->bytes;
	cache->count++;
	while (cache->bytes > cache->bytes_max && cache->used->prev != item)
		item_drop(cache, cache->used->prev);
}

/*
 * Of a file that is being written the attributes are good for this answer only: its writer knows
 * better from now on and tells metad when asked (rule N12). So are those of a directory that a
 * change of our own is on its way to: whether it is in them already is not known, so it cannot be
 * counted on from there.
 */
static void put_attr(struct gfc_cache *cache, const struct gfc_attr *attr)
{
	uint64_t ino = attr->ref.ino;
	bool old = (attr->flags & GFC_ATTR_WRITING) || cache->changing[stamp_place(ino)] != 0;
	bool gx_hash_failed = false;
	struct item *item = attr_find(cache, ino);
	struct attr_item *added;

	if (item) {
		struct attr_item *found = attr_item(item);

		if (found->old || found->attr.version <= attr->version) {
			found->attr = *attr;
			found->old = old;
		}
		item_used(cache, item);
		return;
	}
	added = malloc(sizeof(*added));
	if (!added)
		return; /* a cache may be without it */
	*added = (struct attr_item){.item = {.kind = KIND_ATTR, .bytes = sizeof(*added)},
				    .ino = ino,
				    .old = old,
				    .attr = *attr};
	item = &added->item;
	HASH_ADD_KEYPTR_BYHASHVALUE(hh, cache->attrs, &added->ino, sizeof(added->ino),
				    attr_hash(ino), item);
	if (gx_hash_failed)
		free(added);
	else
		item_added(cache, item);
}

static void put_name(struct gfc_cache *cache, uint64_t dir, const char *name, uint64_t ino)
{
	bool gx_hash_failed = false;
	struct item *item = name_find(cache, dir, name);
	struct name_item *added;
	struct name_key key;
	size_t bytes;
	unsigned hash;

	if (item) {
		GX_CONTAINER_OF(item, struct name_item, item)->ino = ino;
		item_used(cache, item);
		return;
	}
	if (!name_key(&key, dir, name, &bytes, &hash))
		return;
	added = malloc(sizeof(*added) + bytes - sizeof(key.dir));
	if (!added)
		return;
	*added = (struct name_item){
		.item = {.kind = KIND_NAME, .bytes = (uint32_t)(sizeof(*added) + bytes)},
		.ino = ino,
		.since = cache->clock,
		.key_bytes = bytes,
		.dir = dir};
	memcpy(added->name, key.name, bytes - sizeof(key.dir));
	item = &added->item;
	HASH_ADD_KEYPTR_BYHASHVALUE(hh, cache->names, &added->dir, bytes, hash, item);
	if (gx_hash_failed)
		free(added);
	else
		item_added(cache, item);
}

static void drop_attr(struct gfc_cache *cache, uint64_t ino)
{
	struct item *item = attr_find(cache, ino);

	if (item)
		item_drop(cache, item);
}

/* Of a directory that we changed: the way through it must not be asked for again each time. */
static void age_attr(struct gfc_cache *cache, uint64_t ino)
{
	struct item *item = attr_find(cache, ino);

	if (item)
		attr_item(item)->old = true;
}

/* The same if all that happened to it is known. Its version stays: metad's next word is newer. */
static void step_attr(struct gfc_cache *cache, const struct gfc_cache_name *name, int64_t time_ns)
{
	struct item *item = attr_find(cache, name->dir);
	struct gfc_attr *attr;

	if (!item)
		return;
	attr = &attr_item(item)->attr;
	attr->size = (uint64_t)((int64_t)attr->size + name->entries);
	attr->nlink = (uint32_t)((int64_t)attr->nlink + name->links);
	attr->mtime_ns = attr->ctime_ns = time_ns;
}

static void drop_name(struct gfc_cache *cache, uint64_t dir, const char *name)
{
	struct item *item = name_find(cache, dir, name);

	if (item)
		item_drop(cache, item);
}

/* -- use --------------------------------------------------------------------------------------- */

static int find_attr(struct gfc_cache *cache, uint64_t ino, bool old_too, struct gfc_attr *ret_attr)
{
	struct item *item = attr_find(cache, ino);

	if (!old_too && cache->changing[stamp_place(ino)] != 0)
		return -EAGAIN;
	if (!item || (attr_item(item)->old && !old_too))
		return -EAGAIN;
	item_used(cache, item);
	*ret_attr = attr_item(item)->attr;
	return 0;
}

static int find_name(struct gfc_cache *cache, uint64_t dir, const char *name, bool old_too,
		     struct gfc_attr *ret_attr)
{
	struct item *item = name_find(cache, dir, name);

	if (!item)
		return -EAGAIN;
	item_used(cache, item);
	if (item_ino(item) == 0)
		return -ENOENT;
	return find_attr(cache, item_ino(item), old_too, ret_attr);
}

/* By name, or (NULL) by inode. */
/*
 * While a change of our own is on its way others may have seen it done already: what is here must
 * not be used until we know.
 */
static bool usable(const struct gfc_cache *cache, uint64_t ino, int64_t now)
{
	return cache->on && trusted(cache, now) && cache->changing[stamp_place(ino)] == 0;
}

static int find(struct gfc_cache *cache, uint64_t ino, const char *name, bool old_too,
		struct gfc_attr *ret_attr)
{
	int64_t now = gx_env_now_ns(cache->env);
	int r = -EAGAIN;

	lock(cache);
	if (usable(cache, ino, now))
		r = name ? find_name(cache, ino, name, old_too, ret_attr)
			 : find_attr(cache, ino, old_too, ret_attr);
	if (r == -EAGAIN)
		cache->misses++;
	else
		cache->hits++;
	unlock(cache);
	return r;
}

int gfc_cache_find_name(struct gfc_cache *cache, uint64_t dir, const char *name,
			struct gfc_attr *ret_attr)
{
	return find(cache, dir, name, false, ret_attr);
}

int gfc_cache_find_ref(struct gfc_cache *cache, uint64_t dir, const char *name,
		       struct gfc_ref *ret_ref, uint32_t *ret_type)
{
	struct gfc_attr attr;
	int r = find(cache, dir, name, true, &attr);

	if (r == 0) {
		*ret_ref = attr.ref;
		*ret_type = attr.mode & S_IFMT;
	}
	return r;
}

int gfc_cache_find_attr(struct gfc_cache *cache, uint64_t ino, struct gfc_attr *ret_attr)
{
	return find(cache, ino, NULL, false, ret_attr);
}

/* Under the lock: until trust ends, if nothing is in the way. */
static int64_t keep_ns(const struct gfc_cache *cache, uint64_t ino)
{
	int64_t now = gx_env_now_ns(cache->env);

	return usable(cache, ino, now) ? cache->answered_ns + GFC_TRUST_NS - now : 0;
}

int64_t gfc_cache_keep_name(struct gfc_cache *cache, uint64_t dir, const char *name, uint64_t ino)
{
	struct item *item;
	int64_t ns;

	lock(cache);
	ns = keep_ns(cache, dir);
	item = ns > 0 ? name_find(cache, dir, name) : NULL;
	if (!item || item_ino(item) != ino)
		ns = 0;
	unlock(cache);
	return ns;
}

int64_t gfc_cache_keep_attr(struct gfc_cache *cache, uint64_t ino, uint64_t version)
{
	struct item *item;
	int64_t ns;

	lock(cache);
	ns = keep_ns(cache, ino);
	item = ns > 0 ? attr_find(cache, ino) : NULL;
	if (!item || attr_item(item)->old || attr_item(item)->attr.version != version)
		ns = 0;
	unlock(cache);
	return ns;
}

uint64_t gfc_cache_clock(struct gfc_cache *cache)
{
	uint64_t clock;

	lock(cache);
	clock = cache->clock;
	unlock(cache);
	return clock;
}

/* What was seen newer once must not be shown older: it is not known to be newest, so it goes. */
static void drop_older(struct gfc_cache *cache, const struct gfc_attr *attr)
{
	struct item *item = attr_find(cache, attr->ref.ino);

	if (item && attr_item(item)->attr.version < attr->version)
		item_drop(cache, item);
}

void gfc_cache_put_attr(struct gfc_cache *cache, uint64_t clock, const struct gfc_attr *attr)
{
	lock(cache);
	if (untouched_since(cache, clock, attr->ref.ino))
		put_attr(cache, attr);
	else
		drop_older(cache, attr);
	unlock(cache);
}

void gfc_cache_put_name(struct gfc_cache *cache, uint64_t clock, uint64_t dir, const char *name,
			uint64_t ino)
{
	lock(cache);
	if (untouched_since(cache, clock, dir))
		put_name(cache, dir, name, ino);
	else
		drop_name(cache, dir, name);
	unlock(cache);
}

/* -- changes of our own --------------------------------------------------------------------------
 */

static void changing(struct gfc_cache *cache, struct gfc_cache_change *change, uint64_t ino)
{
	size_t place = stamp_place(ino);

	stamp(cache, ino);
	cache->changing[place]++;
	change->places[change->place_count++] = (uint16_t)place;
}

uint64_t gfc_cache_touch(struct gfc_cache *cache, struct gfc_cache_change *change)
{
	uint64_t clock;

	lock(cache);
	change->place_count = 0;
	for (unsigned i = 0; i < change->name_count; i++)
		changing(cache, change, change->names[i].dir);
	for (unsigned i = 0; i < GX_COUNT_OF(change->inos); i++)
		if (change->inos[i])
			changing(cache, change, change->inos[i]);
	clock = cache->clock;
	unlock(cache);
	return clock;
}

/* What a name stands for changes; false: nobody here knows what that is. */
static bool drop_meaning(struct gfc_cache *cache, const struct gfc_cache_name *name)
{
	struct item *item = name_find(cache, name->dir, name->name);
	uint64_t ino;

	if (!item)
		return false;
	ino = item_ino(item);
	if (ino) {
		drop_attr(cache, ino);
		stamp(cache, ino);
	}
	return true;
}

static void change_names(struct gfc_cache *cache, uint64_t clock,
			 const struct gfc_cache_change *change)
{
	bool may[GX_COUNT_OF(change->names)], step[GX_COUNT_OF(change->names)];

	/*
	 * A name that is here shows that we have a lease on the names of its directory. Who makes
	 * a name without having looked gets none from metad, and would not be told of its end.
	 */
	for (unsigned i = 0; i < change->name_count; i++) {
		const struct gfc_cache_name *name = &change->names[i];

		step[i] = untouched_since(cache, clock, name->dir);
		may[i] = name->known && step[i] && name_find(cache, name->dir, name->name);
		step[i] = step[i] && change->time_ns != 0;
	}
	for (unsigned i = 0; i < change->name_count; i++) {
		const struct gfc_cache_name *name = &change->names[i];

		stamp(cache, name->dir);
		if (step[i])
			step_attr(cache, name, change->time_ns);
		else
			age_attr(cache, name->dir);
		drop_name(cache, name->dir, name->name);
	}
	for (unsigned i = 0; i < change->name_count; i++) {
		const struct gfc_cache_name *name = &change->names[i];

		if (may[i])
			put_name(cache, name->dir, name->name, name->ino);
	}
}

void gfc_cache_changed(struct gfc_cache *cache, uint64_t clock,
		       const struct gfc_cache_change *change)
{
	const struct gfc_attr *attr = change->attr;
	bool fresh;

	lock(cache);
	for (unsigned i = 0; i < change->place_count; i++)
		cache->changing[change->places[i]]--;
	for (unsigned i = 0; change->guess && i < change->name_count; i++)
		if (!drop_meaning(cache, &change->names[i])) {
			empty(cache);
			break;
		}
	fresh = attr && untouched_since(cache, clock, attr->ref.ino);
	change_names(cache, clock, change);
	for (unsigned i = 0; i < GX_COUNT_OF(change->inos); i++) {
		if (change->inos[i]) {
			stamp(cache, change->inos[i]);
			drop_attr(cache, change->inos[i]);
		}
	}
	if (attr) {
		stamp(cache, attr->ref.ino);
		if (fresh)
			put_attr(cache, attr);
		else
			drop_attr(cache, attr->ref.ino);
	}
	unlock(cache);
}

/* -- pushes
 * ---------------------------------------------------------------------------------------- */

void gfc_cache_forget(struct gfc_cache *cache, uint64_t ino, uint32_t what, const char *name)
{
	lock(cache);
	stamp(cache, ino);
	if (what & GFC_FORGET_ATTR)
		drop_attr(cache, ino);
	if (what & GFC_FORGET_NAME)
		drop_name(cache, ino, name);
	if (what & GFC_FORGET_NAMES)
		cache->dir_stamps[stamp_place(ino)] = cache->clock;
	unlock(cache);
}

void gfc_cache_forget_all(struct gfc_cache *cache)
{
	lock(cache);
	empty(cache);
	unlock(cache);
}

void gfc_cache_stats(struct gfc_cache *cache, struct gfc_cache_stats *ret_stats)
{
	lock(cache);
	*ret_stats = (struct gfc_cache_stats){.hits = cache->hits,
					      .misses = cache->misses,
					      .count = cache->count,
					      .bytes = cache->bytes};
	unlock(cache);
}
