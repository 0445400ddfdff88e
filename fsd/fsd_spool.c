/*
 * fsd_spool.c - a spool: the file that names it, and the names of objects.
 *
 * An object lies in one of 65536 directories. 256 inodes in a row share one: files made together
 * are synced together, and one directory's sync serves them.
 *
 * A directory that was just made is synced upwards, but only once per life: a bit tells.
 */
#include "fsd/fsd_object_impl.h"
#include "common/gx_num.h"
#include "common/gx_sum.h"
#include <fcntl.h>

#define SPOOL_BYTES 64u
#define SPOOL_FILE "spool"
#define SPOOL_UNFINISHED "spool.tmp"
#define ID_DIGITS 16u
#define ID_TEXT (2 * ID_DIGITS + 1) /* <ino>.<generation> */

static const uint8_t spool_magic[8] = {'G', 'S', 'S', 'P', 'O', 'O', 'L', '\n'};

/* -- names --------------------------------------------------------------------- */

static unsigned dir_number(uint64_t ino)
{
	return (unsigned)(ino >> 8 & (FSD_DIRS - 1));
}

int fsd_spool_dir_path(const struct fsd_spool *spool, uint64_t ino, char ret_path[PATH_MAX])
{
	unsigned number = dir_number(ino);

	return gx_format(ret_path, PATH_MAX, "%s/objects/%02x/%02x", spool->dir, number >> 8,
			 number & 0xff);
}

int fsd_spool_object_path(const struct fsd_spool *spool, const struct fsd_object_id *id,
			  const char *suffix, char ret_path[PATH_MAX])
{
	unsigned number = dir_number(id->ino);

	return gx_format(ret_path, PATH_MAX, "%s/objects/%02x/%02x/%016llx.%016llx%s", spool->dir,
			 number >> 8, number & 0xff, (unsigned long long)id->ino,
			 (unsigned long long)id->generation, suffix);
}

static int parse_id_number(const char *text, uint64_t *ret_value)
{
	char digits[ID_DIGITS + 1];
	uint8_t bytes[8];

	memcpy(digits, text, ID_DIGITS);
	digits[ID_DIGITS] = '\0';
	if (gx_hex_decode(digits, bytes, sizeof(bytes)) < 0)
		return -EINVAL;
	*ret_value = gx_get_be64(bytes);
	return 0;
}

int fsd_spool_name_parse(const char *name, struct fsd_object_id *ret_id, const char **ret_suffix)
{
	struct fsd_object_id id;

	if (strlen(name) < ID_TEXT || name[ID_DIGITS] != '.' ||
	    parse_id_number(name, &id.ino) < 0 ||
	    parse_id_number(name + ID_DIGITS + 1, &id.generation) < 0)
		return -EINVAL;
	*ret_id = id;
	*ret_suffix = name + ID_TEXT;
	return 0;
}

static int make_dir(struct gx_env *env, const char *path)
{
	int r = gx_env_mkdir(env, path, 0700);

	return r == -EEXIST ? 0 : r;
}

int fsd_spool_make_dirs(struct fsd_spool *spool, uint64_t ino)
{
	char path[PATH_MAX];
	char *last;
	int r = fsd_spool_dir_path(spool, ino, path);

	if (r < 0)
		return r;
	last = strrchr(path, '/');
	*last = '\0';
	r = make_dir(spool->env, path);
	*last = '/';
	return r < 0 ? r : make_dir(spool->env, path);
}

int fsd_spool_sync_dirs(struct fsd_spool *spool, uint64_t ino)
{
	unsigned number = dir_number(ino);
	uint8_t bit = (uint8_t)(1u << number % 8);
	char path[PATH_MAX];
	bool known;
	int r = fsd_spool_dir_path(spool, ino, path);

	if (r < 0)
		return r;
	gx_env_mutex_lock(spool->env, &spool->lock);
	known = (spool->dirs_synced[number / 8] & bit) != 0;
	gx_env_mutex_unlock(spool->env, &spool->lock);
	r = gx_env_sync_dir(spool->env, path);
	for (unsigned up = 0; r == 0 && !known && up < 2; up++) {
		*strrchr(path, '/') = '\0';
		r = gx_env_sync_dir(spool->env, path);
	}
	if (r < 0)
		return r;
	gx_env_mutex_lock(spool->env, &spool->lock);
	spool->dirs_synced[number / 8] |= bit;
	gx_env_mutex_unlock(spool->env, &spool->lock);
	return 0;
}

/* -- all objects ---------------------------------------------------------------- */

struct walk {
	struct fsd_spool *spool;
	fsd_object_fn fn;
	void *arg;
	char path[PATH_MAX];
	size_t bytes; /* of the path of the directory being listed */
	unsigned depth;
};

static int walk_object(struct walk *walk, const char *name)
{
	struct fsd_object_id id;
	const char *suffix;
	struct stat st;
	int r;

	if (fsd_spool_name_parse(name, &id, &suffix) < 0 || *suffix != '\0')
		return 0;
	r = gx_env_stat(walk->spool->env, walk->path, &st);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return walk->fn(walk->arg, &id, (uint64_t)st.st_size);
}

/* Recursion of depth two, into directories that have one byte as their name. */
static int walk_entry(void *arg, const char *name)
{
	struct walk *walk = arg;
	size_t bytes = walk->bytes;
	uint8_t byte;
	int r = gx_format(walk->path + bytes, sizeof(walk->path) - bytes, "/%s", name);

	if (r == 0 && walk->depth == 2) {
		r = walk_object(walk, name);
	} else if (r == 0 && gx_hex_decode(name, &byte, 1) == 0) {
		walk->bytes = bytes + strlen(name) + 1;
		walk->depth++;
		r = gx_env_list_dir(walk->spool->env, walk->path, walk_entry, walk);
		walk->depth--;
		walk->bytes = bytes;
	}
	walk->path[bytes] = '\0';
	return r;
}

int fsd_spool_each(struct fsd_spool *spool, fsd_object_fn fn, void *arg)
{
	struct walk walk = {.spool = spool, .fn = fn, .arg = arg};
	int r = gx_format(walk.path, sizeof(walk.path), "%s/objects", spool->dir);

	if (r < 0)
		return r;
	walk.bytes = strlen(walk.path);
	return gx_env_list_dir(spool->env, walk.path, walk_entry, &walk);
}

struct inode_walk {
	uint64_t ino;
	fsd_generation_fn fn;
	void *arg;
};

static int walk_inode(void *arg, const char *name)
{
	struct inode_walk *walk = arg;
	struct fsd_object_id id;
	const char *suffix;

	if (fsd_spool_name_parse(name, &id, &suffix) < 0 || *suffix != '\0' || id.ino != walk->ino)
		return 0;
	return walk->fn(walk->arg, &id);
}

int fsd_spool_generations(struct fsd_spool *spool, uint64_t ino, fsd_generation_fn fn, void *arg)
{
	struct inode_walk walk = {.ino = ino, .fn = fn, .arg = arg};
	char path[PATH_MAX];
	int r = fsd_spool_dir_path(spool, ino, path);

	if (r == 0)
		r = gx_env_list_dir(spool->env, path, walk_inode, &walk);
	return r == -ENOENT ? 0 : r;
}

/* -- quarantine ------------------------------------------------------------------ */

static int move_aside(struct fsd_spool *spool, const struct fsd_object_id *id, const char *suffix,
		      uint64_t now_sec)
{
	char from[PATH_MAX];
	char to[PATH_MAX];
	int r = fsd_spool_object_path(spool, id, suffix, from);

	if (r == 0)
		r = gx_format(to, sizeof(to), "%s/quarantine/%016llx.%016llx.%llu%s", spool->dir,
			      (unsigned long long)id->ino, (unsigned long long)id->generation,
			      (unsigned long long)now_sec, suffix);
	return r < 0 ? r : gx_env_rename(spool->env, from, to);
}

static bool is_open(struct fsd_spool *spool, const struct fsd_object_id *id)
{
	struct fsd_object *object;

	gx_env_mutex_lock(spool->env, &spool->lock);
	HASH_FIND(hh, spool->objects, id, sizeof(*id), object);
	gx_env_mutex_unlock(spool->env, &spool->lock);
	return object != NULL;
}

int fsd_spool_quarantine(struct fsd_spool *spool, const struct fsd_object_id *id)
{
	static const char *const suffixes[] = {"", FSD_SUFFIX_SUM, FSD_SUFFIX_NEW};
	uint64_t now_sec = (uint64_t)gx_env_wall_ns(spool->env) / GX_NSEC_PER_SEC;
	char path[PATH_MAX];
	int r;

	if (is_open(spool, id))
		return -EBUSY;
	/* The bytes first: without their name the object is gone from here. */
	for (size_t i = 0; i < GX_COUNT_OF(suffixes); i++) {
		r = move_aside(spool, id, suffixes[i], now_sec);
		if (r < 0 && (i == 0 || r != -ENOENT))
			return r;
	}
	r = gx_format(path, sizeof(path), "%s/quarantine", spool->dir);
	if (r == 0)
		r = gx_env_sync_dir(spool->env, path);
	return r < 0 ? r : fsd_spool_sync_dirs(spool, id->ino);
}

struct expiry {
	struct fsd_spool *spool;
	uint64_t before_sec;
};

/* "<ino>.<generation>.<seconds>", perhaps with a suffix; others are not ours to delete. */
static int expire_one(void *arg, const char *name)
{
	struct expiry *expiry = arg;
	struct fsd_object_id id;
	char digits[ID_DIGITS + 1];
	char path[PATH_MAX];
	const char *rest;
	uint64_t sec;
	size_t n;
	int r;

	if (fsd_spool_name_parse(name, &id, &rest) < 0 || *rest++ != '.')
		return 0;
	n = strspn(rest, "0123456789");
	if (n == 0 || n > ID_DIGITS)
		return 0;
	memcpy(digits, rest, n);
	digits[n] = '\0';
	if (gx_parse_u64(digits, &sec) < 0 || sec >= expiry->before_sec)
		return 0;
	r = gx_format(path, sizeof(path), "%s/quarantine/%s", expiry->spool->dir, name);
	if (r == 0)
		r = gx_env_unlink(expiry->spool->env, path);
	return r == -ENOENT ? 0 : r;
}

int fsd_spool_expire(struct fsd_spool *spool, int64_t before_ns)
{
	struct expiry expiry = {.spool = spool};
	char path[PATH_MAX];
	int r = gx_format(path, sizeof(path), "%s/quarantine", spool->dir);

	if (r < 0 || before_ns <= 0)
		return r;
	expiry.before_sec = (uint64_t)before_ns / GX_NSEC_PER_SEC;
	return gx_env_list_dir(spool->env, path, expire_one, &expiry);
}

/* -- making and opening ----------------------------------------------------------- */

/* As the sum file's header: size and the places of magic, version and checksum are for ever. */
static void spool_encode(const struct fsd_spool *spool, uint64_t epoch, uint8_t bytes[SPOOL_BYTES])
{
	memset(bytes, 0, SPOOL_BYTES);
	memcpy(bytes, spool_magic, sizeof(spool_magic));
	gx_put_le32(bytes + 8, FSD_SPOOL_VERSION);
	gx_put_le32(bytes + 12, SPOOL_BYTES);
	memcpy(bytes + 16, spool->uuid, FSD_UUID_BYTES);
	gx_put_le64(bytes + 32, epoch);
	gx_put_le64(bytes + 40, spool->lives);
	gx_put_le64(bytes + 56, gx_sum64(bytes, 56));
}

static int spool_decode(struct fsd_spool *spool, const uint8_t *bytes, size_t count)
{
	if (count != SPOOL_BYTES || memcmp(bytes, spool_magic, sizeof(spool_magic)) != 0 ||
	    gx_get_le64(bytes + 56) != gx_sum64(bytes, 56))
		return -EBADMSG;
	if (gx_get_le32(bytes + 8) > FSD_SPOOL_VERSION)
		return -EPROTONOSUPPORT;
	if (gx_get_le32(bytes + 8) == 0 || gx_get_le32(bytes + 12) != SPOOL_BYTES)
		return -EBADMSG;
	memcpy(spool->uuid, bytes + 16, FSD_UUID_BYTES);
	/* Version 1 had zeros here; its file becomes one of version 2 with the first epoch. */
	spool->epoch = gx_get_le64(bytes + 32);
	spool->lives = gx_get_le64(bytes + 40);
	return 0;
}

static int find_foreign(void *arg GX_UNUSED, const char *name)
{
	static const char *const ours[] = {"objects", "quarantine", SPOOL_UNFINISHED, "lost+found"};

	for (size_t i = 0; i < GX_COUNT_OF(ours); i++)
		if (strcmp(name, ours[i]) == 0)
			return 0;
	return -ENOTEMPTY;
}

static int find_any(void *arg GX_UNUSED, const char *name GX_UNUSED)
{
	return -ENOTEMPTY;
}

/* What an interrupted making leaves may be there, objects not. */
static int check_empty(struct fsd_spool *spool)
{
	char path[PATH_MAX];
	int r = gx_env_list_dir(spool->env, spool->dir, find_foreign, NULL);

	if (r == 0)
		r = gx_format(path, sizeof(path), "%s/objects", spool->dir);
	if (r == 0)
		r = gx_env_list_dir(spool->env, path, find_any, NULL);
	return r == -ENOENT ? 0 : r;
}

static int lock_spool(struct fsd_spool *spool)
{
	int r = gx_env_lock_file(spool->env, spool->fd);

	return r == -EAGAIN ? -EBUSY : r;
}

/* The file gets its name when all else is on disk. */
static int spool_make(struct fsd_spool *spool)
{
	static const char *const dirs[] = {"objects", "quarantine"};
	struct gx_env *env = spool->env;
	uint8_t bytes[SPOOL_BYTES];
	char unfinished[PATH_MAX];
	char path[PATH_MAX];
	int r = check_empty(spool);

	for (size_t i = 0; r == 0 && i < GX_COUNT_OF(dirs); i++) {
		r = gx_format(path, sizeof(path), "%s/%s", spool->dir, dirs[i]);
		if (r == 0)
			r = make_dir(env, path);
	}
	if (r == 0)
		r = gx_format(unfinished, sizeof(unfinished), "%s/" SPOOL_UNFINISHED, spool->dir);
	if (r == 0)
		r = gx_format(path, sizeof(path), "%s/" SPOOL_FILE, spool->dir);
	if (r == 0)
		r = gx_env_random(env, spool->uuid, sizeof(spool->uuid));
	if (r < 0)
		return r;
	spool->fd = gx_env_open(env, unfinished, O_RDWR | O_CREAT, 0600);
	if (spool->fd < 0)
		return spool->fd;
	spool_encode(spool, 0, bytes);
	r = lock_spool(spool);
	if (r == 0)
		r = gx_env_pwrite(env, spool->fd, bytes, sizeof(bytes), 0);
	if (r == 0)
		r = gx_env_fsync(env, spool->fd);
	if (r == 0)
		r = gx_env_sync_dir(env, spool->dir);
	if (r == 0)
		r = gx_env_rename(env, unfinished, path);
	return r < 0 ? r : gx_env_sync_dir(env, spool->dir);
}

static int spool_load(struct fsd_spool *spool, bool make)
{
	uint8_t bytes[SPOOL_BYTES + 1]; /* one more: a longer file is not ours */
	char path[PATH_MAX];
	ssize_t n;
	int r = gx_format(path, sizeof(path), "%s/" SPOOL_FILE, spool->dir);

	if (r < 0)
		return r;
	spool->fd = gx_env_open(spool->env, path, O_RDWR, 0);
	if (spool->fd == -ENOENT)
		return make ? spool_make(spool) : -ENODEV;
	if (spool->fd < 0)
		return spool->fd;
	r = lock_spool(spool);
	if (r < 0)
		return r;
	n = gx_env_pread(spool->env, spool->fd, bytes, sizeof(bytes), 0);
	return n < 0 ? (int)n : spool_decode(spool, bytes, (size_t)n);
}

/* A hash that has somebody needs no memory to let one go and take it again: see claim_id(). */
static int drop_anchor(struct fsd_spool *spool)
{
	bool gx_hash_failed = false;
	struct fsd_object *anchor = calloc(1, sizeof(*anchor));

	if (anchor == NULL)
		return -ENOMEM;
	anchor->id = (struct fsd_object_id){.ino = UINT64_MAX, .generation = UINT64_MAX};
	HASH_ADD(hh, spool->objects, id, sizeof(anchor->id), anchor);
	if (gx_hash_failed) {
		free(anchor);
		return -ENOMEM;
	}
	spool->anchor = anchor;
	return 0;
}

int fsd_spool_open(struct gx_env *env, const char *dir, bool make, struct fsd_spool **ret_spool)
{
	struct fsd_spool *spool = calloc(1, sizeof(*spool));
	int r;

	if (spool == NULL)
		return -ENOMEM;
	spool->env = env;
	spool->fd = -1;
	spool->dir = strdup(dir);
	r = spool->dir != NULL ? gx_env_mutex_init(env, &spool->lock) : -ENOMEM;
	spool->lock_ready = r == 0;
	if (r == 0)
		r = gx_env_cond_init(env, &spool->changed);
	spool->changed_ready = spool->lock_ready && r == 0;
	if (r == 0)
		r = drop_anchor(spool);
	if (r == 0)
		r = spool_load(spool, make);
	if (r < 0) {
		fsd_spool_close(spool);
		return r;
	}
	*ret_spool = spool;
	return 0;
}

void fsd_spool_uuid(const struct fsd_spool *spool, uint8_t ret_uuid[16])
{
	memcpy(ret_uuid, spool->uuid, FSD_UUID_BYTES);
}

uint64_t fsd_spool_epoch(struct fsd_spool *spool)
{
	uint64_t epoch;

	gx_env_mutex_lock(spool->env, &spool->lock);
	epoch = spool->epoch;
	gx_env_mutex_unlock(spool->env, &spool->lock);
	return epoch;
}

/* In place: the file carries the lock, and 64 bytes are written whole or not at all. */
static int spool_store(struct fsd_spool *spool, uint64_t epoch)
{
	uint8_t bytes[SPOOL_BYTES];
	int r;

	spool_encode(spool, epoch, bytes);
	r = gx_env_pwrite(spool->env, spool->fd, bytes, sizeof(bytes), 0);
	return r < 0 ? r : gx_env_fdatasync(spool->env, spool->fd);
}

uint64_t fsd_spool_lives(const struct fsd_spool *spool)
{
	return spool->lives;
}

int fsd_spool_begin_life(struct fsd_spool *spool)
{
	int r;

	spool->lives++;
	r = spool_store(spool, fsd_spool_epoch(spool));
	if (r < 0)
		spool->lives--;
	return r;
}

int fsd_spool_set_epoch(struct fsd_spool *spool, uint64_t epoch)
{
	uint64_t known = fsd_spool_epoch(spool);
	int r;

	if (epoch <= known)
		return epoch < known ? -ESTALE : 0;
	r = spool_store(spool, epoch);
	if (r < 0)
		return r;
	gx_env_mutex_lock(spool->env, &spool->lock);
	spool->epoch = epoch;
	gx_env_mutex_unlock(spool->env, &spool->lock);
	return 0;
}

int fsd_spool_space(struct fsd_spool *spool, uint64_t *ret_bytes, uint64_t *ret_free)
{
	return gx_env_space(spool->env, spool->dir, ret_bytes, ret_free);
}

void fsd_spool_close(struct fsd_spool *spool)
{
	struct fsd_object *object;
	struct fsd_object *tmp;

	if (spool == NULL)
		return;
	if (spool->anchor != NULL) {
		HASH_DEL(spool->objects, spool->anchor);
		free(spool->anchor);
	}
	/* Only sick ones are left, closed by all. */
	HASH_ITER (hh, spool->objects, object, tmp) {
		gx_assert(object->refs == 0);
		HASH_DEL(spool->objects, object);
		fsd_object_free(object);
	}
	if (spool->fd >= 0)
		gx_env_close(spool->env, spool->fd);
	if (spool->changed_ready)
		gx_env_cond_fini(spool->env, &spool->changed);
	if (spool->lock_ready)
		gx_env_mutex_fini(spool->env, &spool->lock);
	free(spool->dir);
	free(spool);
}
