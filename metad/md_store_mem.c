/*
 * md_store_mem.c - the store of the simulation and of crash tests: everything in
 * memory, every batch also in one file.
 *
 * The file is a header and records; a record is one batch. Writing appends a
 * record and syncs; only then does the table in memory change, so a reader
 * never sees what a power cut could take back. Opening reads all records and
 * syncs, too: what a killed process wrote may not be on disk yet, and from now
 * on it counts as stored.
 *
 * A batch is synced before the next begins, so only the last record can be
 * torn. One that does not parse is the end if no good record stands behind it,
 * and damage (-EBADMSG) if one does.
 *
 * When the file is mostly old values it is written anew beside itself and
 * renamed; the table is built anew with it, because it never frees either
 * (md_skip.h).
 *
 * An iterator reads the live table; a write that comes while some are open first
 * gives each a copy of what it has not read yet. Iterators are short, so this
 * is rare, and there are no versions to keep.
 */
#include "metad/md_store.h"
#include "common/gx_limits.h"
#include "common/gx_num.h"
#include "common/gx_sum.h"
#include "metad/md_skip.h"
#include <fcntl.h>

#define HEADER_BYTES 32u
#define HEADER_MAGIC "gs-store"
#define RECORD_HEAD_BYTES 24u
#define RECORD_MAGIC UINT32_C(0x7c5ba7c4)
#define RECORD_BYTES_MAX (1024u * 1024 * 1024) /* a batch; the writer's memory is less */
#define COMPACT_FROM_BYTES (8u * 1024) /* not worth it below; small, so that tests meet it */
#define COMPACT_RECORD_BYTES (1024u * 1024)

struct mem {
	struct md_store base;
	char path[GX_PATH_MAX];
	char new_path[GX_PATH_MAX]; /* where the file is written anew */
	char dir[GX_PATH_MAX];
	/* The writer's. */
	int fd;
	uint64_t file_bytes;
	uint64_t sequence; /* of the last record */
	int sick;          /* what the first failed write returned */

	struct gx_mutex lock; /* the rest */
	struct md_skip *table;
	size_t live_bytes; /* of keys and values that exist */
	struct md_store_iter *iters;
};

struct md_store_iter {
	struct mem *mem;
	struct md_store_iter *next;
	const struct md_skip_node *place; /* in the live table; NULL once there is a copy */
	struct md_store_batch copy;       /* what was not read when the table changed */
	size_t copy_at;
	struct gx_buf key, value; /* the pair handed out */
};

static struct mem *mem_of(struct md_store *store)
{
	return GX_CONTAINER_OF(store, struct mem, base);
}

static uint32_t hash_of(const void *key, size_t key_bytes)
{
	return (uint32_t)gx_sum64(key, key_bytes);
}

/* -- the table ---------------------------------------------------------------------------- */

static size_t live_of(const struct md_skip_node *node)
{
	return node == NULL || node->value_bytes == MD_SKIP_DELETED
		       ? 0
		       : (size_t)node->key_bytes + node->value_bytes;
}

static int table_change(void *arg, const void *key, size_t key_bytes, const void *value,
			size_t value_bytes)
{
	struct mem *mem = arg;
	uint32_t hash = hash_of(key, key_bytes);
	struct md_skip_node *node = md_skip_find(mem->table, key, key_bytes, hash);
	size_t before = live_of(node);
	int r;

	if (value == NULL && node == NULL)
		return 0;
	r = md_skip_put(mem->table, key, key_bytes, hash, value, value_bytes, &node);
	if (r == 0)
		mem->live_bytes += live_of(node) - before;
	return r;
}

/* -- records ------------------------------------------------------------------------------ */

static size_t padded(size_t bytes)
{
	return (bytes + 7) & ~(size_t)7;
}

/* The sum covers the head before it and the batch; the sequence makes each record its own. */
static uint64_t record_sum(const unsigned char *head, const void *batch, size_t bytes)
{
	return gx_sum64_seed(batch, bytes, gx_sum64(head, 16));
}

static int append_record(struct gx_env *env, int fd, uint64_t offset, uint64_t sequence,
			 const struct md_store_batch *batch)
{
	unsigned char head[RECORD_HEAD_BYTES];
	unsigned char zeros[8] = {0};
	size_t bytes = batch->bytes.bytes;
	struct iovec iov[3] = {
		{head, sizeof(head)}, {batch->bytes.data, bytes}, {zeros, padded(bytes) - bytes}};

	if (bytes > RECORD_BYTES_MAX)
		return -E2BIG;
	gx_put_le32(head, RECORD_MAGIC);
	gx_put_le32(head + 4, (uint32_t)bytes);
	gx_put_le64(head + 8, sequence);
	gx_put_le64(head + 16, record_sum(head, batch->bytes.data, bytes));
	return gx_env_pwritev(env, fd, iov, 3, offset);
}

/* Bytes of the good record at p, or 0. */
static size_t check_record(const unsigned char *p, size_t room, uint64_t *ret_sequence)
{
	size_t bytes;

	if (room < RECORD_HEAD_BYTES || gx_get_le32(p) != RECORD_MAGIC)
		return 0;
	bytes = gx_get_le32(p + 4);
	if (bytes > RECORD_BYTES_MAX || padded(bytes) > room - RECORD_HEAD_BYTES ||
	    record_sum(p, p + RECORD_HEAD_BYTES, bytes) != gx_get_le64(p + 16))
		return 0;
	*ret_sequence = gx_get_le64(p + 8);
	return RECORD_HEAD_BYTES + padded(bytes);
}

static void put_header(unsigned char *header)
{
	memset(header, 0, HEADER_BYTES);
	memcpy(header, HEADER_MAGIC, 8);
	gx_put_le32(header + 8, MD_STORE_VERSION);
	gx_put_le64(header + 24, gx_sum64(header, 24));
}

static int check_header(const unsigned char *header, size_t bytes)
{
	if (bytes < HEADER_BYTES || memcmp(header, HEADER_MAGIC, 8) != 0 ||
	    gx_get_le64(header + 24) != gx_sum64(header, 24))
		return -EBADMSG;
	return gx_get_le32(header + 8) > MD_STORE_VERSION ? -EPROTONOSUPPORT : 0;
}

/* -- writing the file anew ------------------------------------------------------------------ */

static int write_pairs(struct mem *mem, int fd, const struct md_skip *table, uint64_t *offset,
		       uint64_t *sequence)
{
	struct md_store_batch batch;
	const struct md_skip_node *node = md_skip_before(table, "", 0);
	int r = 0;

	md_store_batch_init(&batch, COMPACT_RECORD_BYTES + MD_KEY_MAX + MD_VALUE_MAX + 64);
	while (r == 0 && node != NULL) {
		node = md_skip_next(node);
		if (node != NULL && node->value_bytes != MD_SKIP_DELETED)
			r = md_store_batch_put(&batch, md_skip_key(node), node->key_bytes,
					       node->value, node->value_bytes);
		if (r == 0 && batch.count > 0 &&
		    (node == NULL || batch.bytes.bytes >= COMPACT_RECORD_BYTES)) {
			r = append_record(mem->base.env, fd, *offset, *sequence + 1, &batch);
			*offset += RECORD_HEAD_BYTES + padded(batch.bytes.bytes);
			*sequence += 1;
			md_store_batch_clear(&batch);
		}
	}
	md_store_batch_fini(&batch);
	return r;
}

/* A file with header and pairs, on disk under the store's name; becomes the one written to. */
static int replace_file(struct mem *mem, const struct md_skip *table)
{
	struct gx_env *env = mem->base.env;
	unsigned char header[HEADER_BYTES];
	uint64_t offset = HEADER_BYTES;
	uint64_t sequence = 0;
	int fd = gx_env_open(env, mem->new_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	int r;

	if (fd < 0)
		return fd;
	put_header(header);
	r = gx_env_pwrite(env, fd, header, sizeof(header), 0);
	if (r == 0)
		r = write_pairs(mem, fd, table, &offset, &sequence);
	if (r == 0)
		r = gx_env_fsync(env, fd);
	if (r == 0)
		r = gx_env_rename(env, mem->new_path, mem->path);
	if (r == 0)
		r = gx_env_sync_dir(env, mem->dir);
	if (r < 0) {
		gx_env_close(env, fd);
		return r;
	}
	if (mem->fd >= 0)
		gx_env_close(env, mem->fd);
	mem->fd = fd;
	mem->file_bytes = offset;
	mem->sequence = sequence;
	return 0;
}

/* The table without what is deleted or overwritten. */
static int copy_table(struct mem *mem, struct md_skip **ret_table)
{
	GX_CLEANUP(md_skip_freep) struct md_skip *table = NULL;
	const struct md_skip_node *node = md_skip_before(mem->table, "", 0);
	int r = md_skip_new(md_skip_count(mem->table), mem->sequence, &table);

	while (r == 0 && (node = md_skip_next(node)) != NULL) {
		struct md_skip_node *copy;

		if (node->value_bytes != MD_SKIP_DELETED)
			r = md_skip_put(table, md_skip_key(node), node->key_bytes, node->hash,
					node->value, node->value_bytes, &copy);
	}
	if (r == 0)
		*ret_table = GX_TAKE(table);
	return r;
}

/* -- iterators ------------------------------------------------------------------------------ */

static int iter_detach(struct md_store_iter *iter)
{
	const struct md_skip_node *node = iter->place;
	int r = 0;

	while (r == 0 && node != NULL && (node = md_skip_next(node)) != NULL)
		if (node->value_bytes != MD_SKIP_DELETED)
			r = md_store_batch_put(&iter->copy, md_skip_key(node), node->key_bytes,
					       node->value, node->value_bytes);
	if (r == 0)
		iter->place = NULL;
	return r;
}

static int detach_all(struct mem *mem)
{
	int r = 0;

	for (struct md_store_iter *iter = mem->iters; r == 0 && iter != NULL; iter = iter->next)
		r = iter_detach(iter);
	return r;
}

static int mem_iter_open(struct md_store *store, const void *from, size_t from_bytes,
			 struct md_store_iter **ret_iter)
{
	struct mem *mem = mem_of(store);
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
	iter->mem = mem;
	md_store_batch_init(&iter->copy, SIZE_MAX);
	gx_buf_init(&iter->key, MD_KEY_MAX);
	gx_buf_init(&iter->value, MD_VALUE_MAX);
	gx_env_mutex_lock(store->env, &mem->lock);
	iter->place = md_skip_before(mem->table, from, from_bytes);
	iter->next = mem->iters;
	mem->iters = iter;
	gx_env_mutex_unlock(store->env, &mem->lock);
	*ret_iter = iter;
	return 0;
}

/* Keeps the pair where no writer touches it. */
static int iter_keep(void *arg, const void *key, size_t key_bytes, const void *value,
		     size_t value_bytes)
{
	struct md_store_iter *iter = arg;
	int r;

	gx_buf_clear(&iter->key);
	gx_buf_clear(&iter->value);
	r = gx_buf_append(&iter->key, key, key_bytes);
	if (r == 0)
		r = gx_buf_append(&iter->value, value, value_bytes);
	return r < 0 ? r : 1;
}

static int iter_step(struct md_store_iter *iter)
{
	const struct md_skip_node *node = iter->place;
	int r;

	if (node == NULL) {
		r = md_store_batch_decode(iter->copy.bytes.data + iter->copy_at,
					  iter->copy.bytes.bytes - iter->copy_at, iter_keep, iter);
		/* As it was encoded: head, key, value. */
		if (r == 1)
			iter->copy_at += 6 + iter->key.bytes + iter->value.bytes;
		return r;
	}
	do
		node = md_skip_next(node);
	while (node != NULL && node->value_bytes == MD_SKIP_DELETED);
	if (node == NULL)
		return 0;
	iter->place = node;
	return iter_keep(iter, md_skip_key(node), node->key_bytes, node->value, node->value_bytes);
}

static int mem_iter_next(struct md_store_iter *iter, const void **ret_key, size_t *ret_key_bytes,
			 const void **ret_value, size_t *ret_value_bytes)
{
	struct mem *mem = iter->mem;
	int r;

	gx_env_mutex_lock(mem->base.env, &mem->lock);
	r = iter_step(iter);
	gx_env_mutex_unlock(mem->base.env, &mem->lock);
	if (r != 1)
		return r;
	*ret_key = iter->key.data;
	*ret_key_bytes = iter->key.bytes;
	*ret_value = iter->value.data;
	*ret_value_bytes = iter->value.bytes;
	return 1;
}

static void mem_iter_close(struct md_store_iter *iter)
{
	struct mem *mem = iter->mem;
	struct md_store_iter **slot = &mem->iters;

	gx_env_mutex_lock(mem->base.env, &mem->lock);
	while (*slot != iter)
		slot = &(*slot)->next;
	*slot = iter->next;
	gx_env_mutex_unlock(mem->base.env, &mem->lock);
	md_store_batch_fini(&iter->copy);
	gx_buf_fini(&iter->key);
	gx_buf_fini(&iter->value);
	free(iter);
}

/* -- get and write -------------------------------------------------------------------------- */

static int mem_get(struct md_store *store, const void *key, size_t key_bytes, struct gx_buf *value)
{
	struct mem *mem = mem_of(store);
	const struct md_skip_node *node;
	int r = gx_fault_check(store->env, GX_FAULT_READ);

	if (r < 0)
		return r;
	gx_env_mutex_lock(store->env, &mem->lock);
	node = md_skip_find(mem->table, key, key_bytes, hash_of(key, key_bytes));
	if (node == NULL || node->value_bytes == MD_SKIP_DELETED) {
		r = -ENOENT;
	} else {
		gx_buf_clear(value);
		r = gx_buf_append(value, node->value, node->value_bytes);
	}
	gx_env_mutex_unlock(store->env, &mem->lock);
	return r;
}

static bool worth_compacting(const struct mem *mem)
{
	return mem->file_bytes > COMPACT_FROM_BYTES && mem->file_bytes / 4 > mem->live_bytes;
}

/* Only this thread changes the table, so it may read it without the lock. */
static int compact(struct mem *mem)
{
	GX_CLEANUP(md_skip_freep) struct md_skip *table = NULL;
	struct md_skip *old = mem->table;
	int r = copy_table(mem, &table);

	if (r == 0)
		r = replace_file(mem, table);
	if (r < 0)
		return r;
	gx_env_mutex_lock(mem->base.env, &mem->lock);
	r = detach_all(mem);
	if (r == 0) {
		mem->table = table;
		table = old;
	}
	gx_env_mutex_unlock(mem->base.env, &mem->lock);
	return r;
}

static int write_batch(struct mem *mem, const struct md_store_batch *batch)
{
	struct gx_env *env = mem->base.env;
	int r = append_record(env, mem->fd, mem->file_bytes, mem->sequence + 1, batch);

	if (r == 0)
		r = gx_env_fdatasync(env, mem->fd);
	if (r < 0)
		return r;
	mem->file_bytes += RECORD_HEAD_BYTES + padded(batch->bytes.bytes);
	mem->sequence++;
	gx_env_mutex_lock(env, &mem->lock);
	r = detach_all(mem);
	if (r == 0)
		r = md_store_batch_each(batch, table_change, mem);
	gx_env_mutex_unlock(env, &mem->lock);
	if (r == 0 && worth_compacting(mem))
		r = compact(mem);
	return r;
}

static int mem_write(struct md_store *store, const struct md_store_batch *batch)
{
	struct mem *mem = mem_of(store);

	if (mem->sick == 0)
		mem->sick = write_batch(mem, batch);
	return mem->sick;
}

/* -- opening -------------------------------------------------------------------------------- */

static void mem_free(struct mem *mem)
{
	if (mem->fd >= 0)
		gx_env_close(mem->base.env, mem->fd);
	md_skip_free(mem->table);
	gx_env_mutex_fini(mem->base.env, &mem->lock);
	free(mem);
}

static void mem_close(struct md_store *store)
{
	struct mem *mem = mem_of(store);

	gx_assert(mem->iters == NULL);
	mem_free(mem);
}

static const struct md_store_ops mem_ops = {
	.get = mem_get,
	.iter_open = mem_iter_open,
	.iter_next = mem_iter_next,
	.iter_close = mem_iter_close,
	.write = mem_write,
	.close = mem_close,
};

/* Good records into the table; where they end. */
static int load_records(struct mem *mem, const unsigned char *data, size_t bytes)
{
	size_t at = HEADER_BYTES;
	uint64_t sequence;
	size_t record;

	while ((record = check_record(data + at, bytes - at, &sequence)) > 0 &&
	       sequence == mem->sequence + 1) {
		int r = md_store_batch_decode(data + at + RECORD_HEAD_BYTES,
					      gx_get_le32(data + at + 4), table_change, mem);

		if (r < 0)
			return r;
		mem->sequence = sequence;
		at += record;
	}
	mem->file_bytes = at;
	for (; at < bytes; at += 8)
		if (check_record(data + at, bytes - at, &sequence) > 0)
			return -EBADMSG;
	return 0;
}

static int read_file(struct mem *mem, unsigned char **ret_data, size_t *ret_bytes)
{
	GX_AUTOFREE unsigned char *data = NULL;
	struct stat st;
	ssize_t got;
	int r = gx_env_fstat(mem->base.env, mem->fd, &st);

	if (r < 0)
		return r;
	data = malloc((size_t)st.st_size + 1);
	if (data == NULL)
		return -ENOMEM;
	got = gx_env_pread(mem->base.env, mem->fd, data, (size_t)st.st_size, 0);
	if (got < 0)
		return (int)got;
	*ret_bytes = (size_t)got;
	*ret_data = GX_TAKE(data);
	return 0;
}

static int load(struct mem *mem)
{
	struct gx_env *env = mem->base.env;
	GX_AUTOFREE unsigned char *data = NULL;
	size_t bytes = 0;
	int r = read_file(mem, &data, &bytes);

	if (r == 0)
		r = check_header(data, bytes);
	if (r == 0)
		r = load_records(mem, data, bytes);
	if (r == 0 && mem->file_bytes < bytes)
		r = gx_env_ftruncate(env, mem->fd, mem->file_bytes);
	if (r == 0)
		r = gx_env_fsync(env, mem->fd);
	/* A rename of the life before may not be on disk either. */
	if (r == 0)
		r = gx_env_sync_dir(env, mem->dir);
	return r;
}

static int set_paths(struct mem *mem, const char *path)
{
	const char *slash = strrchr(path, '/');
	int r = gx_strcpy(mem->path, sizeof(mem->path), path);

	if (r == 0)
		r = gx_format(mem->new_path, sizeof(mem->new_path), "%s.new", path);
	if (r < 0)
		return r;
	if (slash == NULL)
		return gx_strcpy(mem->dir, sizeof(mem->dir), ".");
	return gx_format(mem->dir, sizeof(mem->dir), "%.*s",
			 slash == path ? 1 : (int)(slash - path), path);
}

int md_store_open_mem(struct gx_env *env, const char *path, struct md_store **ret_store)
{
	struct mem *mem = calloc(1, sizeof(*mem));
	int r;

	if (mem == NULL)
		return -ENOMEM;
	mem->base = (struct md_store){.ops = &mem_ops, .env = env};
	mem->fd = -1;
	r = gx_env_mutex_init(env, &mem->lock);
	if (r < 0) {
		free(mem);
		return r;
	}
	r = set_paths(mem, path);
	if (r == 0)
		r = md_skip_new(0, 1, &mem->table);
	if (r == 0) {
		mem->fd = gx_env_open(env, path, O_RDWR, 0);
		r = mem->fd >= 0 ? load(mem) : mem->fd;
		if (r == -ENOENT)
			r = replace_file(mem, mem->table);
	}
	if (r < 0) {
		mem_free(mem);
		return r;
	}
	*ret_store = &mem->base;
	return 0;
}
