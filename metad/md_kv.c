/*
 * md_kv.c - layers, cache and store as one; the writer thread.
 *
 * A frozen layer goes through three hands. The loop freezes it (nobody changes
 * it any more, so both threads may read it without a lock) and, once the log
 * is on disk that far, gives it to the writer as `job`. The writer makes a
 * batch of it and sets `finished`. The loop, between two commands, retires it:
 * from then on the store answers for it, and the layer stays as `clean`, a part
 * of the cache, until the next one takes its place.
 *
 * Why the cache is never stale: a key that is put leaves the cache in the same
 * call, and while it is in a layer nobody asks the cache, so nothing older can
 * come in behind it. A store read that runs beside the writer's batch concerns
 * a key that is in no layer, hence not in the batch.
 *
 * Why a scan is right while the store changes: whatever the writer is storing is
 * also in frozen, and frozen wins. When a layer is frozen or retired in the
 * middle of a scan (`generation` moves), the scan forgets what it has read
 * ahead and finds its place again by key.
 */
#include "metad/md_kv.h"
#include "common/gx_broken.h"
#include "common/gx_num.h"
#include "common/gx_sum.h"
#include "metad/md_cache.h"
#include "metad/md_skip.h"
#include <stdatomic.h>
#include <unistd.h>

#define GX_LOG_COMPONENT "metad.kv"
#include "common/gx_log.h"

#define INDEX_KEY "\0index"
#define INDEX_KEY_BYTES 6u
/* What an entry of a layer takes, when the size of its table is chosen. */
#define ENTRY_BYTES_GUESS 128u
/* A scan reads ahead from the store this much: little at first, since many stop early. */
#define AHEAD_FIRST_COUNT 8u
#define AHEAD_COUNT_MAX 256u
#define AHEAD_BYTES_MAX (64u * 1024)

enum { WRITER_BEHIND, WRITER_NEVER, WRITER_EACH_COMMAND };

struct md_kv {
	struct md_kv_options options;
	struct md_skip *active;
	struct md_skip *frozen; /* NULL: none */
	struct md_skip *clean;  /* the last one that was stored, or NULL */
	struct md_cache cache;
	size_t clean_bytes_max;
	struct gx_buf values[2]; /* values from the store; in turn, so that the last one stays */
	unsigned value_turn;
	uint64_t hash_seed;
	uint64_t generation; /* counts freezes and retirements */

	uint64_t applied, durable, stored;
	uint64_t frozen_index;
	bool dirty;    /* changes since `applied`: a command is under way */
	bool handed;   /* frozen is with the writer */
	int sick;      /* the store failed */
	uint64_t told; /* stored_fn knows this much */
	bool told_sick;
	uint64_t hits, misses, batches;

	struct gx_task task; /* posted by the writer */
	struct gx_thread thread;
	atomic_bool finished; /* the writer is done with the job; set under the lock */
	struct gx_mutex lock; /* the rest */
	struct gx_cond cond;
	struct md_skip *doomed; /* freeing megabytes takes a while, so the writer does it (N17) */
	struct md_skip *spare;  /* the next layer: mapping its table takes a while, too */
	const struct md_skip *job;
	uint64_t job_index;
	int job_result;
	bool stopping;
};

GX_NORETURN static void fatal(struct md_kv *kv, int err)
{
	if (kv->options.fatal_fn != NULL)
		kv->options.fatal_fn(kv->options.arg, err);
	gx_log(ERR, "the state cannot be read or changed; ending, the next start replays the log",
	       GX_KE(err));
	_exit(1);
}

static uint32_t hash_of(const struct md_kv *kv, const void *key, size_t key_bytes)
{
	gx_assert(key_bytes > 0 && key_bytes <= MD_KEY_MAX && *(const unsigned char *)key != 0);
	return (uint32_t)gx_sum64_seed(key, key_bytes, kv->hash_seed);
}

/* -- the writer's thread ------------------------------------------------------------------- */

static int fill_batch(struct md_store_batch *batch, const struct md_skip *layer, uint64_t index)
{
	const struct md_skip_node *node = md_skip_before(layer, "", 0);
	unsigned char number[8];
	int r = 0;

	while (r == 0 && (node = md_skip_next(node)) != NULL) {
		const unsigned char *key = md_skip_key(node);

		if (node->value_bytes == MD_SKIP_DELETED)
			r = md_store_batch_delete(batch, key, node->key_bytes);
		else
			r = md_store_batch_put(batch, key, node->key_bytes, node->value,
					       node->value_bytes);
	}
	gx_put_le64(number, index);
	if (r == 0)
		r = md_store_batch_put(batch, INDEX_KEY, INDEX_KEY_BYTES, number, sizeof(number));
	return r;
}

static int store_layer(struct md_store *store, const struct md_skip *layer, uint64_t index)
{
	struct md_store_batch batch;
	int r;

	/* A node takes more than its change does in a batch, so this is enough. */
	md_store_batch_init(&batch, md_skip_bytes(layer) + 64);
	r = fill_batch(&batch, layer, index);
	if (r == 0)
		r = store->ops->write(store, &batch);
	md_store_batch_fini(&batch);
	return r;
}

static int make_layer(const struct md_kv *kv, uint64_t generation, struct md_skip **ret_layer)
{
	/*
	 * While the writer is behind a layer grows beyond layer_bytes. Its table has room for that
	 * from the start: growing it moves all entries in one turn (rule N17).
	 */
	return md_skip_new(kv->options.overlay_bytes_max / ENTRY_BYTES_GUESS,
			   kv->hash_seed ^ (generation * UINT64_C(0x9e3779b97f4a7c15)), ret_layer);
}

static void writer_main(void *arg)
{
	struct md_kv *kv = arg;
	struct gx_env *env = kv->options.env;
	bool starved = false;

	gx_env_mutex_lock(env, &kv->lock);
	for (;;) {
		const struct md_skip *job = kv->job;
		uint64_t index = kv->job_index;
		int r;

		if (kv->doomed != NULL) {
			struct md_skip *doomed = GX_TAKE(kv->doomed);

			gx_env_mutex_unlock(env, &kv->lock);
			md_skip_free(doomed);
			gx_env_mutex_lock(env, &kv->lock);
			continue;
		}
		if (job == NULL && kv->stopping)
			break;
		if (job == NULL && kv->spare == NULL && !starved) {
			struct md_skip *spare = NULL;

			gx_env_mutex_unlock(env, &kv->lock);
			/* No memory now: the loop tries again when it needs one. */
			starved = make_layer(kv, index, &spare) < 0;
			gx_env_mutex_lock(env, &kv->lock);
			kv->spare = spare;
			continue;
		}
		if (job == NULL) {
			(void)gx_env_cond_wait(env, &kv->cond, &kv->lock, GX_FOREVER);
			continue;
		}
		gx_env_mutex_unlock(env, &kv->lock);
		r = store_layer(kv->options.store, job, index);
		gx_env_mutex_lock(env, &kv->lock);
		starved = false;
		kv->job = NULL;
		kv->job_result = r;
		atomic_store_explicit(&kv->finished, true, memory_order_release);
		gx_env_cond_broadcast(env, &kv->cond);
		gx_loop_post(kv->options.loop, &kv->task);
	}
	gx_env_mutex_unlock(env, &kv->lock);
}

/* -- freeze, hand over, retire --------------------------------------------------------------- */

static int new_layer(struct md_kv *kv, struct md_skip **ret_layer)
{
	struct gx_env *env = kv->options.env;

	gx_env_mutex_lock(env, &kv->lock);
	*ret_layer = GX_TAKE(kv->spare);
	gx_env_mutex_unlock(env, &kv->lock);
	return *ret_layer != NULL ? 0 : make_layer(kv, kv->generation, ret_layer);
}

static bool time_to_freeze(const struct md_kv *kv)
{
	if (kv->frozen != NULL || kv->dirty || kv->sick < 0 || md_skip_count(kv->active) == 0)
		return false;
	switch (kv->options.test_writer) {
	case WRITER_NEVER:
		return false;
	case WRITER_EACH_COMMAND:
		return true;
	default:
		return md_skip_bytes(kv->active) >= kv->options.layer_bytes;
	}
}

/* Freezes if it is time, and hands the frozen layer over if the log is far enough (N1). */
static void advance(struct md_kv *kv)
{
	struct gx_env *env = kv->options.env;

	if (time_to_freeze(kv)) {
		struct md_skip *fresh;
		int r = new_layer(kv, &fresh);

		if (r < 0)
			fatal(kv, r);
		kv->frozen = kv->active;
		kv->frozen_index = kv->applied;
		kv->active = fresh;
		kv->generation++;
	}
	if (kv->frozen == NULL || kv->handed || kv->sick < 0 || kv->frozen_index > kv->durable)
		return;
	kv->handed = true;
	gx_env_mutex_lock(env, &kv->lock);
	kv->job = kv->frozen;
	kv->job_index = kv->frozen_index;
	gx_env_cond_broadcast(env, &kv->cond);
	gx_env_mutex_unlock(env, &kv->lock);
}

/* The writer takes at most one at a time; it has just finished, so it comes soon. */
static void free_layer(struct md_kv *kv, struct md_skip *layer)
{
	struct gx_env *env = kv->options.env;
	struct md_skip *before;

	gx_env_mutex_lock(env, &kv->lock);
	before = kv->doomed;
	kv->doomed = layer;
	gx_env_cond_broadcast(env, &kv->cond);
	gx_env_mutex_unlock(env, &kv->lock);
	md_skip_free(before);
}

/* Takes back what the writer has finished. */
static void retire(struct md_kv *kv)
{
	struct gx_env *env = kv->options.env;
	int r;

	if (!atomic_load_explicit(&kv->finished, memory_order_acquire))
		return;
	gx_env_mutex_lock(env, &kv->lock);
	r = kv->job_result;
	atomic_store_explicit(&kv->finished, false, memory_order_relaxed);
	gx_env_mutex_unlock(env, &kv->lock);
	kv->handed = false;
	if (r < 0) {
		/* The layer stays: the store does not have it, so it must be read from here. */
		kv->sick = r;
		return;
	}
	kv->stored = kv->frozen_index;
	kv->batches++;
	kv->generation++;
	if (kv->clean != NULL)
		free_layer(kv, GX_TAKE(kv->clean));
	if (md_skip_bytes(kv->frozen) <= kv->clean_bytes_max)
		kv->clean = GX_TAKE(kv->frozen);
	else
		free_layer(kv, GX_TAKE(kv->frozen));
}

static void writer_done(struct gx_task *task)
{
	struct md_kv *kv = GX_CONTAINER_OF(task, struct md_kv, task);

	retire(kv);
	advance(kv);
	if (kv->stored > kv->told) {
		kv->told = kv->stored;
		kv->options.stored_fn(kv->options.arg, kv->stored, 0);
	}
	if (kv->sick < 0 && !kv->told_sick) {
		kv->told_sick = true;
		kv->options.stored_fn(kv->options.arg, kv->stored, kv->sick);
	}
}

void md_kv_applied(struct md_kv *kv, uint64_t index)
{
	gx_assert(index > kv->applied);
	kv->applied = index;
	kv->dirty = false;
	retire(kv);
	advance(kv);
}

static void wait_for_writer(struct md_kv *kv)
{
	struct gx_env *env = kv->options.env;

	gx_env_mutex_lock(env, &kv->lock);
	while (!atomic_load_explicit(&kv->finished, memory_order_relaxed))
		(void)gx_env_cond_wait(env, &kv->cond, &kv->lock, GX_FOREVER);
	gx_env_mutex_unlock(env, &kv->lock);
}

void md_kv_durable(struct md_kv *kv, uint64_t index)
{
	kv->durable = GX_MAX(kv->durable, index);
	retire(kv);
	advance(kv);
	while (kv->options.test_writer == WRITER_EACH_COMMAND && kv->handed) {
		wait_for_writer(kv);
		retire(kv);
		advance(kv);
	}
}

/* Is the overlay smaller than so many fourths of its maximum? */
static bool overlay_below(const struct md_kv *kv, unsigned fourths)
{
	size_t bytes = md_skip_bytes(kv->active);

	if (kv->options.test_writer == WRITER_NEVER)
		return true;
	if (kv->frozen != NULL)
		bytes += md_skip_bytes(kv->frozen);
	return bytes < kv->options.overlay_bytes_max / 4 * fourths;
}

bool md_kv_room(const struct md_kv *kv)
{
	return overlay_below(kv, 4);
}

bool md_kv_pressed(const struct md_kv *kv)
{
	return !overlay_below(kv, 3);
}

/* -- open and close -------------------------------------------------------------------------- */

static int read_index(struct md_kv *kv)
{
	struct md_store *store = kv->options.store;
	struct gx_buf *value = &kv->values[0];
	int r = store->ops->get(store, INDEX_KEY, INDEX_KEY_BYTES, value);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	if (value->bytes != 8)
		return -EBADMSG;
	kv->stored = gx_get_le64(value->data);
	kv->applied = kv->stored;
	kv->durable = kv->stored;
	kv->told = kv->stored;
	return 0;
}

static void kv_free(struct md_kv *kv)
{
	md_skip_free(kv->active);
	md_skip_free(kv->frozen);
	md_skip_free(kv->clean);
	md_skip_free(kv->doomed);
	md_skip_free(kv->spare);
	md_cache_fini(&kv->cache);
	gx_buf_fini(&kv->values[0]);
	gx_buf_fini(&kv->values[1]);
	kv->options.store->ops->close(kv->options.store);
	free(kv);
}

static int start_writer(struct md_kv *kv)
{
	struct gx_env *env = kv->options.env;
	int r = gx_env_mutex_init(env, &kv->lock);

	if (r < 0)
		return r;
	r = gx_env_cond_init(env, &kv->cond);
	if (r < 0) {
		gx_env_mutex_fini(env, &kv->lock);
		return r;
	}
	kv->task.fn = writer_done;
	r = gx_env_thread_start(env, &kv->thread, "store", writer_main, kv);
	if (r < 0) {
		gx_env_cond_fini(env, &kv->cond);
		gx_env_mutex_fini(env, &kv->lock);
	}
	return r;
}

int md_kv_open(const struct md_kv_options *options, struct md_kv **ret_kv,
	       uint64_t *ret_stored_index)
{
	struct md_kv *kv = calloc(1, sizeof(*kv));
	int r;

	gx_assert(options->loop != NULL && options->stored_fn != NULL);
	if (kv == NULL) {
		options->store->ops->close(options->store);
		return -ENOMEM;
	}
	kv->options = *options;
	gx_buf_init(&kv->values[0], MD_VALUE_MAX);
	gx_buf_init(&kv->values[1], MD_VALUE_MAX);
	/* The layer that was just stored has its place in the cache's bytes. */
	kv->clean_bytes_max = GX_MIN(2 * options->layer_bytes, options->cache_bytes / 2);
	r = md_cache_init(&kv->cache, options->cache_bytes - kv->clean_bytes_max);
	if (r == 0)
		r = gx_env_random(options->env, &kv->hash_seed, sizeof(kv->hash_seed));
	if (r == 0)
		r = make_layer(kv, 0, &kv->active);
	if (r == 0)
		r = read_index(kv);
	if (r == 0)
		r = start_writer(kv);
	if (r < 0) {
		kv_free(kv);
		return r;
	}
	*ret_kv = kv;
	*ret_stored_index = kv->stored;
	return 0;
}

void md_kv_close(struct md_kv *kv)
{
	struct gx_env *env;

	if (kv == NULL)
		return;
	env = kv->options.env;
	gx_env_mutex_lock(env, &kv->lock);
	kv->stopping = true;
	gx_env_cond_broadcast(env, &kv->cond);
	gx_env_mutex_unlock(env, &kv->lock);
	gx_env_thread_join(env, &kv->thread);
	gx_loop_unpost(kv->options.loop, &kv->task);
	gx_env_cond_fini(env, &kv->cond);
	gx_env_mutex_fini(env, &kv->lock);
	kv_free(kv);
}

/* -- one key ----------------------------------------------------------------------------------- */

static const struct md_skip_node *find_in(const struct md_skip *layer, const void *key,
					  size_t key_bytes, uint32_t hash)
{
	return layer != NULL ? md_skip_find(layer, key, key_bytes, hash) : NULL;
}

/* The change that counts, if it is not in the store yet. */
static const struct md_skip_node *find_change(const struct md_kv *kv, const void *key,
					      size_t key_bytes, uint32_t hash)
{
	const struct md_skip_node *node = md_skip_find(kv->active, key, key_bytes, hash);

	return node != NULL || GX_BROKEN(8) ? node : find_in(kv->frozen, key, key_bytes, hash);
}

/* A tag matters until its command is on disk. */
static struct md_tag tag_of(const struct md_kv *kv, const struct md_skip_node *node)
{
	if (node == NULL || node->tag_index <= kv->durable)
		return (struct md_tag){0, 0};
	return (struct md_tag){node->tag_session, node->tag_index};
}

static int answer_node(const struct md_skip_node *node, const void **ret_value,
		       size_t *ret_value_bytes)
{
	if (node->value_bytes == MD_SKIP_DELETED)
		return -ENOENT;
	*ret_value = node->value;
	*ret_value_bytes = node->value_bytes;
	return 0;
}

static int get_stored(struct md_kv *kv, const void *key, size_t key_bytes, uint32_t hash,
		      const void **ret_value, size_t *ret_value_bytes)
{
	struct md_store *store = kv->options.store;
	const struct md_skip_node *node = find_in(kv->clean, key, key_bytes, hash);
	const struct md_cache_entry *entry = md_cache_find(&kv->cache, key, key_bytes, hash);
	struct gx_buf *value;
	int r;

	if (entry != NULL) {
		kv->hits++;
		if (entry->value_bytes == MD_CACHE_MISSING)
			return -ENOENT;
		*ret_value = md_cache_value(entry);
		*ret_value_bytes = entry->value_bytes;
		return 0;
	}
	if (node != NULL) {
		/* Asked for, so it shall outlive the layer. */
		bool deleted = node->value_bytes == MD_SKIP_DELETED;

		kv->hits++;
		md_cache_put(&kv->cache, key, key_bytes, hash, deleted ? NULL : node->value,
			     deleted ? 0 : node->value_bytes);
		return answer_node(node, ret_value, ret_value_bytes);
	}
	kv->misses++;
	kv->value_turn ^= 1;
	value = &kv->values[kv->value_turn];
	r = store->ops->get(store, key, key_bytes, value);
	if (r < 0 && r != -ENOENT)
		fatal(kv, r);
	/* An empty value has no bytes to point at, but is no NULL. */
	if (r == 0 && gx_buf_reserve(value, value->bytes == 0) < 0)
		fatal(kv, -ENOMEM);
	md_cache_put(&kv->cache, key, key_bytes, hash, r == 0 ? value->data : NULL,
		     r == 0 ? value->bytes : 0);
	if (r == 0) {
		*ret_value = value->data;
		*ret_value_bytes = value->bytes;
	}
	return r;
}

int md_kv_get(struct md_kv *kv, const void *key, size_t key_bytes, const void **ret_value,
	      size_t *ret_value_bytes, struct md_tag *ret_tag)
{
	uint32_t hash = hash_of(kv, key, key_bytes);
	const struct md_skip_node *node = find_change(kv, key, key_bytes, hash);
	int r;

	if (node != NULL) {
		kv->hits++;
		r = answer_node(node, ret_value, ret_value_bytes);
	} else {
		r = get_stored(kv, key, key_bytes, hash, ret_value, ret_value_bytes);
	}
	if (r == 0 && ret_tag != NULL)
		*ret_tag = tag_of(kv, node);
	return r;
}

void md_kv_tag(struct md_kv *kv, const void *key, size_t key_bytes, struct md_tag *ret_tag)
{
	*ret_tag = tag_of(kv, find_change(kv, key, key_bytes, hash_of(kv, key, key_bytes)));
}

static void change(struct md_kv *kv, const void *key, size_t key_bytes, const void *value,
		   size_t value_bytes, struct md_tag tag, bool keep_tag)
{
	uint32_t hash = hash_of(kv, key, key_bytes);
	struct md_skip_node *node;
	int r;

	gx_assert(value_bytes <= MD_VALUE_MAX);
	if (keep_tag)
		tag = tag_of(kv, find_change(kv, key, key_bytes, hash));
	r = md_skip_put(kv->active, key, key_bytes, hash, value, value_bytes, &node);
	if (r < 0)
		fatal(kv, r);
	node->tag_session = tag.session;
	node->tag_index = tag.index;
	kv->dirty = true;
	/* By the copy in the node: the caller's key may lie in the pair that goes. */
	md_cache_remove(&kv->cache, md_skip_key(node), key_bytes, hash);
}

void md_kv_put(struct md_kv *kv, const void *key, size_t key_bytes, const void *value,
	       size_t value_bytes, struct md_tag tag, bool keep_tag)
{
	change(kv, key, key_bytes, value_bytes > 0 ? value : "", value_bytes, tag, keep_tag);
}

void md_kv_delete(struct md_kv *kv, const void *key, size_t key_bytes, struct md_tag tag)
{
	change(kv, key, key_bytes, NULL, 0, tag, false);
}

/* -- scan ---------------------------------------------------------------------------------------
 */

struct scan {
	struct md_kv *kv;
	uint64_t generation;               /* of the places below */
	const struct md_skip_node *active; /* an entry before `at`, and not far */
	const struct md_skip_node *frozen; /* NULL: there is no such layer */
	struct md_store_batch ahead;       /* read from the store, in order */
	size_t ahead_at;                   /* bytes of it passed */
	size_t ahead_count;                /* how many to read next time */
	bool store_done;                   /* nothing behind `ahead` */
	unsigned char at[MD_KEY_MAX + 1];  /* go on with keys >= this */
	size_t at_bytes;
	unsigned char to[MD_KEY_MAX + 1];
	size_t to_bytes; /* 0: no end */
};

struct pair {
	const void *key, *value;
	size_t key_bytes, value_bytes;
};

static int take_pair(void *arg, const void *key, size_t key_bytes, const void *value,
		     size_t value_bytes)
{
	*(struct pair *)arg = (struct pair){key, value, key_bytes, value_bytes};
	return 1;
}

static bool before_end(const struct scan *scan, const void *key, size_t key_bytes)
{
	return scan->to_bytes == 0 || md_key_compare(key, key_bytes, scan->to, scan->to_bytes) < 0;
}

/* A piece of the store from `at` on; its iterator is closed before anything else happens. */
static int read_ahead(struct scan *scan)
{
	struct md_store *store = scan->kv->options.store;
	struct md_store_iter *iter;
	int r = store->ops->iter_open(store, scan->at, scan->at_bytes, &iter);

	md_store_batch_clear(&scan->ahead);
	scan->ahead_at = 0;
	if (r < 0)
		return r;
	while (scan->ahead.count < scan->ahead_count && scan->ahead.bytes.bytes < AHEAD_BYTES_MAX) {
		struct pair pair;

		r = store->ops->iter_next(iter, &pair.key, &pair.key_bytes, &pair.value,
					  &pair.value_bytes);
		if (r == 0 || (r == 1 && !before_end(scan, pair.key, pair.key_bytes))) {
			scan->store_done = true;
			r = 0;
			break;
		}
		if (r == 1)
			r = md_store_batch_put(&scan->ahead, pair.key, pair.key_bytes, pair.value,
					       pair.value_bytes);
		if (r < 0)
			break;
	}
	store->ops->iter_close(iter);
	scan->ahead_count = GX_MIN(2 * scan->ahead_count, AHEAD_COUNT_MAX);
	return r;
}

/* The store's next pair with a key >= at; false: none is left. */
static bool next_stored(struct scan *scan, struct pair *ret_pair)
{
	for (;;) {
		struct gx_buf *bytes = &scan->ahead.bytes;
		int r = md_store_batch_decode(bytes->data + scan->ahead_at,
					      bytes->bytes - scan->ahead_at, take_pair, ret_pair);

		if (r == 1 && md_key_compare(ret_pair->key, ret_pair->key_bytes, scan->at,
					     scan->at_bytes) >= 0)
			return true;
		gx_assert(r >= 0);
		if (r == 1) {
			scan->ahead_at = (size_t)((const unsigned char *)ret_pair->value +
						  ret_pair->value_bytes - bytes->data);
			continue;
		}
		if (scan->store_done)
			return false;
		r = read_ahead(scan);
		if (r < 0)
			fatal(scan->kv, r);
	}
}

static void find_places(struct scan *scan)
{
	struct md_kv *kv = scan->kv;

	scan->generation = kv->generation;
	scan->active = md_skip_before(kv->active, scan->at, scan->at_bytes);
	scan->frozen =
		kv->frozen != NULL ? md_skip_before(kv->frozen, scan->at, scan->at_bytes) : NULL;
	md_store_batch_clear(&scan->ahead);
	scan->ahead_at = 0;
	scan->store_done = false;
}

/*
 * The layer's first entry with a key >= at and before the end, or NULL. The place follows: what
 * fn has put behind the scan in the meantime is passed over.
 */
static const struct md_skip_node *next_in(const struct scan *scan,
					  const struct md_skip_node **place)
{
	const struct md_skip_node *node = *place != NULL ? md_skip_next(*place) : NULL;

	while (node != NULL &&
	       md_key_compare(md_skip_key(node), node->key_bytes, scan->at, scan->at_bytes) < 0) {
		*place = node;
		node = md_skip_next(node);
	}
	return node != NULL && before_end(scan, md_skip_key(node), node->key_bytes) ? node : NULL;
}

static int compare_nodes(const struct md_skip_node *a, const struct md_skip_node *b)
{
	return md_key_compare(md_skip_key(a), a->key_bytes, md_skip_key(b), b->key_bytes);
}

/*
 * One place: the smallest key of the three; the newest layer that has it answers. 1, 0 at the
 * end; a NULL value in the pair is a deletion.
 */
static int step(struct scan *scan, struct pair *ret_pair, struct md_tag *ret_tag)
{
	const struct md_skip_node *active = next_in(scan, &scan->active);
	const struct md_skip_node *frozen = next_in(scan, &scan->frozen);
	const struct md_skip_node *node = active;
	struct pair stored;
	bool in_store = next_stored(scan, &stored);
	int c;

	if (node == NULL || (frozen != NULL && compare_nodes(frozen, node) < 0))
		node = frozen;
	if (node == NULL && !in_store)
		return 0;
	c = node == NULL ? 1
	    : !in_store  ? -1
			 : md_key_compare(md_skip_key(node), node->key_bytes, stored.key,
					  stored.key_bytes);
	*ret_tag = tag_of(scan->kv, c <= 0 ? node : NULL);
	if (c > 0) {
		*ret_pair = stored;
		return 1;
	}
	*ret_pair = (struct pair){md_skip_key(node), NULL, node->key_bytes, 0};
	if (node->value_bytes != MD_SKIP_DELETED) {
		ret_pair->value = node->value;
		ret_pair->value_bytes = node->value_bytes;
	}
	return 1;
}

/* Past this key: the next one that can exist is the same with a zero byte behind it. */
static void move_past(struct scan *scan, const struct pair *pair)
{
	memcpy(scan->at, pair->key, pair->key_bytes);
	scan->at[pair->key_bytes] = 0;
	scan->at_bytes = pair->key_bytes + 1;
}

static int scan_steps(struct scan *scan, size_t steps_max, md_kv_scan_fn fn, void *arg)
{
	for (size_t i = 0; i < steps_max; i++) {
		struct pair pair;
		struct md_tag tag;
		int r;

		if (scan->generation != scan->kv->generation)
			find_places(scan);
		r = step(scan, &pair, &tag);
		if (r == 0)
			return 0;
		move_past(scan, &pair);
		if (pair.value != NULL) {
			r = fn(arg, pair.key, pair.key_bytes, pair.value, pair.value_bytes, &tag);
			if (r != 0)
				return r;
		}
	}
	return -EAGAIN;
}

static void scan_init(struct scan *scan, struct md_kv *kv, const void *from, size_t from_bytes,
		      const void *to, size_t to_bytes)
{
	gx_assert(from_bytes <= MD_KEY_MAX + 1 && to_bytes <= MD_KEY_MAX + 1);
	scan->kv = kv;
	scan->ahead_count = AHEAD_FIRST_COUNT;
	md_store_batch_init(&scan->ahead, AHEAD_BYTES_MAX + MD_KEY_MAX + MD_VALUE_MAX + 64);
	scan->at_bytes = from_bytes;
	if (from_bytes > 0)
		memcpy(scan->at, from, from_bytes);
	scan->to_bytes = to_bytes;
	if (to_bytes > 0)
		memcpy(scan->to, to, to_bytes);
	find_places(scan);
}

int md_kv_scan(struct md_kv *kv, const void *from, size_t from_bytes, const void *to,
	       size_t to_bytes, md_kv_scan_fn fn, void *arg)
{
	struct scan scan;
	int r;

	scan_init(&scan, kv, from, from_bytes, to, to_bytes);
	r = scan_steps(&scan, SIZE_MAX, fn, arg);
	md_store_batch_fini(&scan.ahead);
	return r;
}

int md_kv_scan_some(struct md_kv *kv, const void *from, size_t from_bytes, const void *to,
		    size_t to_bytes, size_t steps_max, md_kv_scan_fn fn, void *arg,
		    struct gx_buf *next)
{
	struct scan scan;
	int r;

	scan_init(&scan, kv, from, from_bytes, to, to_bytes);
	scan.ahead_count = GX_MAX(GX_MIN(steps_max, AHEAD_COUNT_MAX), AHEAD_FIRST_COUNT);
	r = scan_steps(&scan, steps_max, fn, arg);
	if (r == -EAGAIN) {
		gx_buf_clear(next);
		if (gx_buf_append(next, scan.at, scan.at_bytes) < 0)
			fatal(kv, -ENOMEM);
	}
	md_store_batch_fini(&scan.ahead);
	return r;
}

void md_kv_stats(const struct md_kv *kv, struct md_kv_stats *ret_stats)
{
	*ret_stats = (struct md_kv_stats){
		.cache_bytes = kv->cache.bytes,
		.active_bytes = md_skip_bytes(kv->active),
		.active_count = md_skip_count(kv->active),
		.hits = kv->hits,
		.misses = kv->misses,
		.batches = kv->batches,
	};
	if (kv->clean != NULL)
		ret_stats->cache_bytes += md_skip_bytes(kv->clean);
	if (kv->frozen != NULL)
		ret_stats->frozen_bytes = md_skip_bytes(kv->frozen);
}
