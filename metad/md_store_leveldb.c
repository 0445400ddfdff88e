/*
 * md_store_leveldb.c - the store in production.
 *
 * Beside the caller's keys the database holds, under two zero bytes, its format
 * and a ring with the numbers of the last batches. The ring is for the opening
 * after a power cut: LevelDB's own log then often ends in a torn record, which
 * its paranoid mode calls corruption and refuses to open. The lenient mode drops
 * the record and goes on; but it would also drop a batch in the middle of that
 * log and apply those behind it. So: paranoid first; if that finds corruption,
 * lenient, and in any case the ring must then be without a gap. A batch that
 * was acknowledged and is missing at the end is not seen here; the command
 * log notices, since it starts behind what it was told to be stored (N1).
 *
 * The ring covers LevelDB's log as long as batches are larger, on average, than
 * the write buffer / RING_SLOTS = 64 KiB.
 *
 * LevelDB does its own I/O, beside gx_env; fault points stand before its calls.
 */
#include "metad/md_store.h"
#include "common/gx_num.h"
#include <leveldb/c.h>

#define GX_LOG_COMPONENT "metad.store"
#include "common/gx_log.h"

#define FORMAT_KEY "\0\0format"
#define FORMAT_KEY_BYTES 8u
#define RING_KEY "\0\0ring" /* and a byte: which slot */
#define RING_KEY_BYTES 7u
#define RING_SLOTS 256u

#define BLOOM_BITS 10
/*
 * Reading one of our small values checks and searches a whole block: at 1 KiB a look-up of entry
 * and inode takes a sixth less than with LevelDB's 4 KiB, for 3 % more space
 * (docs/PERFORMANCE.md).
 */
#define BLOCK_BYTES 1024u
#define TABLE_BYTES (8u * 1024 * 1024) /* fewer, larger files than LevelDB's 2 MiB */

#ifdef __SANITIZE_THREAD__
/* LevelDB is not built with TSan, which therefore cannot see how it orders its memory. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:libleveldb.so\ncalled_from_lib:libleveldb.so\n";
}
#endif

struct ldb {
	struct md_store base;
	leveldb_t *db;
	leveldb_options_t *options;
	leveldb_cache_t *cache;
	leveldb_filterpolicy_t *filter;
	leveldb_readoptions_t *reading;
	leveldb_writeoptions_t *writing;
	/* The writer's. */
	uint64_t sequence; /* of the last batch */
	int sick;          /* what the first failed write returned */
};

struct md_store_iter {
	leveldb_iterator_t *it;
	bool begun;
};

static struct ldb *ldb_of(struct md_store *store)
{
	return GX_CONTAINER_OF(store, struct ldb, base);
}

/* Takes LevelDB's text: logs it, here only, and turns it into an errno. */
static int take_error(const char *what, char *text)
{
	int r;

	if (text == NULL)
		return 0;
	r = strncmp(text, "Corruption", 10) == 0 ? -EBADMSG : -EIO;
	gx_log(ERR, "leveldb failed", GX_KS("call", what), GX_KS("text", text));
	leveldb_free(text);
	return r;
}

/* -- reading ---------------------------------------------------------------------------------- */

static int ldb_get(struct md_store *store, const void *key, size_t key_bytes, struct gx_buf *value)
{
	struct ldb *ldb = ldb_of(store);
	char *text = NULL;
	size_t bytes;
	char *data;
	int r = gx_fault_check(store->env, GX_FAULT_READ);

	if (r < 0)
		return r;
	data = leveldb_get(ldb->db, ldb->reading, key, key_bytes, &bytes, &text);
	r = take_error("get", text);
	if (r < 0)
		return r;
	if (data == NULL)
		return -ENOENT;
	gx_buf_clear(value);
	r = gx_buf_append(value, data, bytes);
	leveldb_free(data);
	return r == -E2BIG ? -EBADMSG : r;
}

static int ldb_iter_open(struct md_store *store, const void *from, size_t from_bytes,
			 struct md_store_iter **ret_iter)
{
	struct md_store_iter *iter;
	int r = gx_fault_check(store->env, GX_FAULT_READ);

	if (r < 0)
		return r;
	iter = calloc(1, sizeof(*iter));
	if (iter == NULL)
		return -ENOMEM;
	if (from_bytes == 0 || *(const unsigned char *)from == 0) {
		from = "\1";
		from_bytes = 1;
	}
	iter->it = leveldb_create_iterator(ldb_of(store)->db, ldb_of(store)->reading);
	leveldb_iter_seek(iter->it, from, from_bytes);
	*ret_iter = iter;
	return 0;
}

static int ldb_iter_next(struct md_store_iter *iter, const void **ret_key, size_t *ret_key_bytes,
			 const void **ret_value, size_t *ret_value_bytes)
{
	char *text = NULL;

	if (iter->begun && leveldb_iter_valid(iter->it))
		leveldb_iter_next(iter->it);
	iter->begun = true;
	if (!leveldb_iter_valid(iter->it)) {
		leveldb_iter_get_error(iter->it, &text);
		return take_error("iterate", text);
	}
	*ret_key = leveldb_iter_key(iter->it, ret_key_bytes);
	*ret_value = leveldb_iter_value(iter->it, ret_value_bytes);
	if (*ret_key_bytes > MD_KEY_MAX || *ret_value_bytes > MD_VALUE_MAX)
		return -EBADMSG;
	return 1;
}

static void ldb_iter_close(struct md_store_iter *iter)
{
	leveldb_iter_destroy(iter->it);
	free(iter);
}

/* -- writing ---------------------------------------------------------------------------------- */

static void ring_key(uint64_t sequence, unsigned char *key)
{
	memcpy(key, RING_KEY, RING_KEY_BYTES - 1);
	key[RING_KEY_BYTES - 1] = (unsigned char)(sequence % RING_SLOTS);
}

static int add_change(void *arg, const void *key, size_t key_bytes, const void *value,
		      size_t value_bytes)
{
	if (value != NULL)
		leveldb_writebatch_put(arg, key, key_bytes, value, value_bytes);
	else
		leveldb_writebatch_delete(arg, key, key_bytes);
	return 0;
}

static int write_batch(struct ldb *ldb, const struct md_store_batch *batch)
{
	unsigned char key[RING_KEY_BYTES];
	unsigned char number[8];
	leveldb_writebatch_t *out;
	char *text = NULL;
	int r = gx_fault_check(ldb->base.env, GX_FAULT_WRITE);

	if (r == 0)
		r = gx_fault_check(ldb->base.env, GX_FAULT_SYNC);
	if (r < 0)
		return r;
	out = leveldb_writebatch_create();
	r = md_store_batch_each(batch, add_change, out);
	gx_assert(r == 0);
	ring_key(ldb->sequence + 1, key);
	gx_put_le64(number, ldb->sequence + 1);
	leveldb_writebatch_put(out, (char *)key, sizeof(key), (char *)number, sizeof(number));
	leveldb_write(ldb->db, ldb->writing, out, &text);
	leveldb_writebatch_destroy(out);
	r = take_error("write", text);
	if (r == 0)
		ldb->sequence++;
	return r;
}

static int ldb_write(struct md_store *store, const struct md_store_batch *batch)
{
	struct ldb *ldb = ldb_of(store);

	if (ldb->sick == 0)
		ldb->sick = write_batch(ldb, batch);
	return ldb->sick;
}

/* -- opening ---------------------------------------------------------------------------------- */

static void ldb_close(struct md_store *store)
{
	struct ldb *ldb = ldb_of(store);

	if (ldb->db != NULL)
		leveldb_close(ldb->db);
	leveldb_options_destroy(ldb->options);
	leveldb_cache_destroy(ldb->cache);
	leveldb_filterpolicy_destroy(ldb->filter);
	leveldb_readoptions_destroy(ldb->reading);
	leveldb_writeoptions_destroy(ldb->writing);
	free(ldb);
}

static const struct md_store_ops ldb_ops = {
	.get = ldb_get,
	.iter_open = ldb_iter_open,
	.iter_next = ldb_iter_next,
	.iter_close = ldb_iter_close,
	.write = ldb_write,
	.close = ldb_close,
};

/* LevelDB's constructors do not fail: without memory C++ ends the process. */
static void make_options(struct ldb *ldb, size_t cache_bytes)
{
	ldb->cache = leveldb_cache_create_lru(cache_bytes);
	ldb->filter = leveldb_filterpolicy_create_bloom(BLOOM_BITS);
	ldb->options = leveldb_options_create();
	leveldb_options_set_create_if_missing(ldb->options, 1);
	leveldb_options_set_paranoid_checks(ldb->options, 1);
	leveldb_options_set_cache(ldb->options, ldb->cache);
	leveldb_options_set_filter_policy(ldb->options, ldb->filter);
	leveldb_options_set_write_buffer_size(ldb->options, MD_STORE_LEVELDB_BUFFER_BYTES);
	/* Tables would shrink by a quarter, but uncompressed blocks are read in place. */
	leveldb_options_set_compression(ldb->options, leveldb_no_compression);
	leveldb_options_set_block_size(ldb->options, BLOCK_BYTES);
	leveldb_options_set_max_file_size(ldb->options, TABLE_BYTES);
	ldb->reading = leveldb_readoptions_create();
	leveldb_readoptions_set_verify_checksums(ldb->reading, 1);
	ldb->writing = leveldb_writeoptions_create();
	leveldb_writeoptions_set_sync(ldb->writing, 1);
}

static int open_database(struct ldb *ldb, const char *dir)
{
	char *text = NULL;
	int r;

	ldb->db = leveldb_open(ldb->options, dir, &text);
	r = take_error("open", text);
	if (r != -EBADMSG)
		return r;
	gx_log(WARNING, "opening again without what may be the torn end of a log",
	       GX_KS("dir", dir));
	text = NULL;
	leveldb_options_set_paranoid_checks(ldb->options, 0);
	ldb->db = leveldb_open(ldb->options, dir, &text);
	r = take_error("open", text);
	if (r < 0)
		return r;
	/* What was torn is gone now; from here on nothing is to be overlooked. */
	leveldb_close(ldb->db);
	leveldb_options_set_paranoid_checks(ldb->options, 1);
	ldb->db = leveldb_open(ldb->options, dir, &text);
	return take_error("open", text);
}

static int is_empty(struct ldb *ldb, bool *ret_empty)
{
	leveldb_iterator_t *it = leveldb_create_iterator(ldb->db, ldb->reading);
	char *text = NULL;

	leveldb_iter_seek_to_first(it);
	*ret_empty = !leveldb_iter_valid(it);
	leveldb_iter_get_error(it, &text);
	leveldb_iter_destroy(it);
	return take_error("iterate", text);
}

static int put_format(struct ldb *ldb)
{
	unsigned char version[4];
	char *text = NULL;
	bool empty;
	int r = is_empty(ldb, &empty);

	if (r < 0)
		return r;
	if (!empty)
		return -EBADMSG; /* somebody else's database */
	gx_put_le32(version, MD_STORE_VERSION);
	leveldb_put(ldb->db, ldb->writing, FORMAT_KEY, FORMAT_KEY_BYTES, (char *)version,
		    sizeof(version), &text);
	return take_error("write", text);
}

static int check_format(struct ldb *ldb)
{
	struct gx_buf value;
	int r;

	gx_buf_init(&value, MD_VALUE_MAX);
	r = ldb_get(&ldb->base, FORMAT_KEY, FORMAT_KEY_BYTES, &value);
	if (r == -ENOENT)
		r = put_format(ldb);
	else if (r == 0 && (value.bytes != 4 || gx_get_le32(value.data) == 0))
		r = -EBADMSG;
	else if (r == 0 && gx_get_le32(value.data) > MD_STORE_VERSION)
		r = -EPROTONOSUPPORT;
	gx_buf_fini(&value);
	return r;
}

/* The numbers in the ring are the last ones, all of them. */
static int check_ring(struct ldb *ldb)
{
	uint64_t numbers[RING_SLOTS] = {0};
	unsigned char key[RING_KEY_BYTES];
	struct gx_buf value;
	int r = 0;

	gx_buf_init(&value, MD_VALUE_MAX);
	for (uint64_t slot = 0; slot < RING_SLOTS && r == 0; slot++) {
		ring_key(slot, key);
		r = ldb_get(&ldb->base, key, sizeof(key), &value);
		if (r == 0 && value.bytes == 8)
			numbers[slot] = gx_get_le64(value.data);
		else if (r == 0)
			r = -EBADMSG;
		else if (r == -ENOENT)
			r = 0;
		ldb->sequence = GX_MAX(ldb->sequence, numbers[slot]);
	}
	gx_buf_fini(&value);
	for (uint64_t n = ldb->sequence; r == 0 && n > 0 && ldb->sequence - n < RING_SLOTS; n--)
		if (numbers[n % RING_SLOTS] != n) {
			gx_log(ERR, "a batch is missing in the store", GX_KU("batch", n));
			r = -EBADMSG;
		}
	return r;
}

int md_store_open_leveldb(struct gx_env *env, const char *dir, size_t cache_bytes,
			  struct md_store **ret_store)
{
	struct ldb *ldb;
	int r = gx_fault_check(env, GX_FAULT_OPEN);

	if (r < 0)
		return r;
	ldb = calloc(1, sizeof(*ldb));
	if (ldb == NULL)
		return -ENOMEM;
	ldb->base = (struct md_store){.ops = &ldb_ops, .env = env};
	make_options(ldb, cache_bytes);
	r = open_database(ldb, dir);
	if (r == 0)
		r = check_format(ldb);
	if (r == 0)
		r = check_ring(ldb);
	if (r < 0) {
		ldb_close(&ldb->base);
		return r;
	}
	*ret_store = &ldb->base;
	return 0;
}
