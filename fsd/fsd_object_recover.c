/*
 * fsd_object_recover.c - opening an object: what an earlier life, or a power cut, left.
 *
 * Names. The data file's name says that an object exists. The sum file is made before the data file
 * and removed after it, so a data file without one is damage. Two more states are honest:
 *
 *   .new		the object was never synced: nothing in the sum file is believed
 *   .sum or .new	of a lower generation that has no data file: an advance was
 *			interrupted between its two renames; the second one is done now
 *
 * Content. Blocks behind the settled size and those of marked regions are hashed anew from what is
 * on disk; all others keep the checksums they have. The bytes hashed are also written again, the
 * same to the same place: if the earlier life ended because an fdatasync failed, the kernel may
 *take pages for clean that it could not write, and a sync alone would mean nothing.
 */
#include "fsd/fsd_object_impl.h"
#include <fcntl.h>

/* -- names --------------------------------------------------------------------- */

struct search {
	struct fsd_object *object;
	struct fsd_object_id best;
	bool found;
	bool young;
	int err;
};

static int object_exists(struct fsd_object *object, const struct fsd_object_id *id)
{
	char path[PATH_MAX];
	struct stat st;
	int r = fsd_spool_object_path(object->spool, id, "", path);

	if (r == 0)
		r = gx_env_stat(object->env, path, &st);
	return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

static int look_at(void *arg, const char *name)
{
	struct search *search = arg;
	struct fsd_object_id id;
	const char *suffix;
	bool young;
	int r;

	if (fsd_spool_name_parse(name, &id, &suffix) < 0 || id.ino != search->object->id.ino ||
	    id.generation >= search->object->id.generation)
		return 0;
	young = strcmp(suffix, FSD_SUFFIX_NEW) == 0;
	if (!young && strcmp(suffix, FSD_SUFFIX_SUM) != 0)
		return 0;
	if (search->found && (id.generation < search->best.generation ||
			      (id.generation == search->best.generation && young)))
		return 0;
	r = object_exists(search->object, &id);
	if (r != 0)
		return r < 0 ? r : 0;
	search->best = id;
	search->young = young;
	search->found = true;
	return 0;
}

/* Finishes an advance; -EBADMSG: there is no sum file anywhere. */
static int finish_advance(struct fsd_object *object)
{
	struct search search = {.object = object};
	const char *suffix;
	char from[PATH_MAX];
	char to[PATH_MAX];
	int r = fsd_spool_dir_path(object->spool, object->id.ino, from);

	if (r == 0 && !FSD_BROKEN(FSD_STEP_ADVANCE_FINISH))
		r = gx_env_list_dir(object->env, from, look_at, &search);
	if (r == 0 && !search.found)
		r = -EBADMSG;
	suffix = search.young ? FSD_SUFFIX_NEW : FSD_SUFFIX_SUM;
	if (r == 0)
		r = fsd_spool_object_path(object->spool, &search.best, suffix, from);
	if (r == 0)
		r = fsd_spool_object_path(object->spool, &object->id, suffix, to);
	return r < 0 ? r : gx_env_rename(object->env, from, to);
}

static int open_one(struct fsd_object *object, const char *suffix)
{
	char path[PATH_MAX];
	int r = fsd_spool_object_path(object->spool, &object->id, suffix, path);

	return r < 0 ? r : gx_env_open(object->env, path, O_RDWR, 0);
}

static int open_sum(struct fsd_object *object)
{
	object->sum_fd = open_one(object, FSD_SUFFIX_SUM);
	if (object->sum_fd == -ENOENT) {
		object->sum_fd = open_one(object, FSD_SUFFIX_NEW);
		object->young = object->sum_fd >= 0;
	}
	return object->sum_fd < 0 ? object->sum_fd : 0;
}

static int open_files(struct fsd_object *object)
{
	int r;

	object->data_fd = open_one(object, "");
	if (object->data_fd < 0)
		return object->data_fd;
	r = open_sum(object);
	if (r != -ENOENT)
		return r;
	r = finish_advance(object);
	return r < 0 ? r : open_sum(object);
}

/* -- what is settled ------------------------------------------------------------- */

static int note_mark(void *arg, uint64_t number)
{
	struct fsd_object *object = arg;
	struct fsd_region *region;

	/* Behind the settled size all is dirty; a mark left there would only stay. */
	if (number * FSD_REGION_BYTES >= object->settled_bytes)
		return fsd_sum_mark(object->env, object->sum_fd, number, false);
	region = fsd_region_get(object, number);
	if (region == NULL)
		return -ENOMEM;
	region->marked = true;
	region->dirty = true;
	return 0;
}

static int read_header(struct fsd_object *object)
{
	struct fsd_sum_header header;
	uint8_t bytes[FSD_SUM_HEADER_BYTES];
	ssize_t n = gx_env_pread(object->env, object->sum_fd, bytes, sizeof(bytes), 0);
	int r = n < 0 ? (int)n : fsd_sum_header_decode(bytes, (size_t)n, &header);

	if (r < 0)
		return r;
	/* An advance brings its header up to date last. */
	if (header.ino != object->id.ino || header.generation > object->id.generation ||
	    header.settled_bytes > object->size_bytes)
		return -EBADMSG;
	object->settled_bytes = header.settled_bytes;
	object->synced_bytes = header.settled_bytes;
	object->header_generation = header.generation;
	/* Both are written after the names were synced. */
	object->named = header.settled_bytes > 0 && header.generation == object->id.generation;
	return 0;
}

/* No checksum of an earlier life stays where a hole may be, or where the file may grow. */
static int cut_sums(struct fsd_object *object)
{
	uint64_t wanted = fsd_sum_file_bytes(fsd_blocks(object->settled_bytes));
	struct stat st;
	int r = gx_env_fstat(object->env, object->sum_fd, &st);

	if (r < 0 || (uint64_t)st.st_size <= wanted)
		return r;
	return gx_env_ftruncate(object->env, object->sum_fd, wanted);
}

/* The header of one that was never synced is asked for nothing but its generation. */
static int start_over(struct fsd_object *object)
{
	struct fsd_sum_header header;
	uint8_t bytes[FSD_SUM_HEADER_BYTES];
	ssize_t n = gx_env_pread(object->env, object->sum_fd, bytes, sizeof(bytes), 0);
	int r = n < 0 ? (int)n : gx_env_ftruncate(object->env, object->sum_fd, 0);

	if (r < 0)
		return r;
	if (fsd_sum_header_decode(bytes, (size_t)n, &header) == 0)
		object->header_generation = header.generation;
	return fsd_object_put_header(object);
}

/*
 * An advance was interrupted by a kill: its names are seen, but may not be on disk. They are before
 * anybody is told that the object has this generation.
 */
static int sync_generation(struct fsd_object *object)
{
	int r;

	if (object->header_generation == object->id.generation || FSD_BROKEN(FSD_STEP_ADVANCE_OPEN))
		return 0;
	r = fsd_spool_sync_dirs(object->spool, object->id.ino);
	if (r < 0)
		return r;
	object->header_generation = object->id.generation;
	return fsd_object_put_header(object);
}

static int read_state(struct fsd_object *object)
{
	struct stat st;
	int r = gx_env_fstat(object->env, object->data_fd, &st);

	if (r < 0)
		return r;
	object->size_bytes = (uint64_t)st.st_size;
	if (object->young)
		return start_over(object);
	r = read_header(object);
	if (r == 0)
		r = fsd_sum_each_mark(object->env, object->sum_fd, note_mark, object);
	return r < 0 ? r : cut_sums(object);
}

/* -- hashing anew ---------------------------------------------------------------- */

/* Blocks [first, end) of one region; `buf` has room for a region. */
static int rehash(struct fsd_object *object, uint64_t first, uint64_t end, uint8_t *buf)
{
	uint64_t sums[FSD_REGION_BLOCKS];
	size_t count = (size_t)(end - first);
	size_t bytes = count * FSD_BLOCK_BYTES;
	ssize_t n = gx_env_pread(object->env, object->data_fd, buf, bytes, first * FSD_BLOCK_BYTES);
	int r = 0;

	if (n < 0)
		return (int)n;
	memset(buf + n, 0, bytes - (size_t)n);
	for (size_t i = 0; i < count; i++)
		sums[i] = fsd_sum_block(buf + i * FSD_BLOCK_BYTES);
	for (size_t i = 0; r == 0 && i * FSD_BLOCK_BYTES < (size_t)n; i++) {
		size_t at = i * FSD_BLOCK_BYTES;

		if (sums[i] != fsd_sum_zeros()) /* holes stay holes */
			r = gx_env_pwrite(object->env, object->data_fd, buf + at,
					  GX_MIN((size_t)n - at, FSD_BLOCK_BYTES),
					  first * FSD_BLOCK_BYTES + at);
	}
	return r < 0 ? r : fsd_sum_store(object->env, object->sum_fd, first, count, sums);
}

static int rehash_marked(struct fsd_object *object, uint8_t *buf)
{
	uint64_t blocks = fsd_blocks(object->settled_bytes);
	struct fsd_region *region;
	struct fsd_region *tmp;

	if (FSD_BROKEN(FSD_STEP_REHASH_MARKED))
		return 0;
	HASH_ITER (hh, object->regions, region, tmp) {
		uint64_t first = region->number * FSD_REGION_BLOCKS;
		int r = rehash(object, first, GX_MIN(first + FSD_REGION_BLOCKS, blocks), buf);

		if (r < 0)
			return r;
	}
	return 0;
}

/* Behind the settled size, where there is data. */
static int rehash_tail(struct fsd_object *object, uint8_t *buf)
{
	uint64_t block = fsd_blocks(object->settled_bytes);
	uint64_t end = fsd_blocks(object->size_bytes);

	if (FSD_BROKEN(FSD_STEP_REHASH_TAIL))
		return 0;
	while (block < end) {
		struct fsd_region *region;
		uint64_t region_end;
		uint64_t offset;
		int r = gx_env_seek(object->env, object->data_fd, block * FSD_BLOCK_BYTES, false,
				    &offset);

		if (r == -ENXIO) /* a hole up to the end */
			return 0;
		if (r < 0)
			return r;
		block = offset / FSD_BLOCK_BYTES;
		region = fsd_region_get(object, block / FSD_REGION_BLOCKS);
		if (region == NULL)
			return -ENOMEM;
		region->dirty = true;
		region_end = (block / FSD_REGION_BLOCKS + 1) * FSD_REGION_BLOCKS;
		r = rehash(object, block, GX_MIN(region_end, end), buf);
		if (r < 0)
			return r;
		block = region_end;
	}
	return 0;
}

int fsd_object_recover(struct fsd_object *object)
{
	GX_AUTOFREE uint8_t *buf = NULL;
	int r = open_files(object);

	if (r == 0)
		r = read_state(object);
	if (r == 0)
		r = sync_generation(object);
	if (r < 0)
		return r;
	object->resized = object->size_bytes != object->settled_bytes;
	if (object->regions == NULL && !object->resized)
		return 0;
	buf = gx_alloc_pages(FSD_REGION_BYTES);
	if (buf == NULL)
		return -ENOMEM;
	r = rehash_marked(object, buf);
	return r < 0 ? r : rehash_tail(object, buf);
}
