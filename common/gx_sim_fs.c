/*
 * gx_sim_fs.c - files and directories as the env shows them; gx_sim_disk.c tells what a disk is.
 */
#include "common/gx_sim_disk.h"
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

/* -- paths ------------------------------------------------------------------------------ */

/*
 * Walks to the directory of the last component, which is copied to `name`; name is
 * empty when the path is the root. -ENOENT, -ENOTDIR, -ENAMETOOLONG.
 */
static int path_walk(struct sim_disk *disk, const char *path, struct sim_inode **ret_dir,
		     char name[NAME_MAX + 1])
{
	struct sim_inode *dir = disk->root;

	name[0] = '\0';
	if (path[0] == '\0')
		return -ENOENT;
	for (;;) {
		size_t bytes;

		path += strspn(path, "/");
		bytes = strcspn(path, "/");
		if (bytes == 0)
			break;
		if (bytes > NAME_MAX)
			return -ENAMETOOLONG;
		if (name[0] != '\0') {
			struct sim_entry *entry = sim_entry_find(dir->live, name);

			if (entry == NULL)
				return -ENOENT;
			if (!S_ISDIR(entry->inode->mode))
				return -ENOTDIR;
			dir = entry->inode;
			name[0] = '\0';
		}
		if (bytes == 2 && memcmp(path, "..", 2) == 0) {
			dir = dir->parent != NULL ? dir->parent : dir;
		} else if (bytes != 1 || path[0] != '.') {
			memcpy(name, path, bytes);
			name[bytes] = '\0';
		}
		path += bytes;
	}
	*ret_dir = dir;
	return 0;
}

static int path_find(struct sim_disk *disk, const char *path, struct sim_inode **ret_inode)
{
	char name[NAME_MAX + 1];
	struct sim_inode *dir;
	struct sim_entry *entry;
	int r = path_walk(disk, path, &dir, name);

	if (r < 0)
		return r;
	if (name[0] == '\0') {
		*ret_inode = dir;
		return 0;
	}
	entry = sim_entry_find(dir->live, name);
	if (entry == NULL)
		return -ENOENT;
	*ret_inode = entry->inode;
	return 0;
}

int gx_sim_flip_bit(struct gx_sim_host *host, const char *path, uint64_t bit)
{
	struct sim_inode *inode;
	struct sim_block *block;
	size_t at = bit / 8 % BLOCK_BYTES;
	uint8_t mask = (uint8_t)(1u << (bit % 8));
	int r = path_find(host->disk, path, &inode);

	if (r < 0)
		return r;
	if (S_ISDIR(inode->mode) || bit / 8 >= inode->live_bytes)
		return -ENOENT;
	block = sim_block_get(inode, bit / 8 / BLOCK_BYTES);
	if (block->live == NULL || block->live != block->durable) {
		if (block->durable != NULL)
			block->durable[at] ^= mask;
		sim_block_own(block)[at] ^= mask;
		/* A flip in a hole must survive as the bytes around it do. */
		sim_block_mark(inode, block, sim_sectors_of(at, 1));
	} else {
		block->live[at] ^= mask;
	}
	return 0;
}

/* -- open files ------------------------------------------------------------------------- */

static void inode_truncate(struct sim_inode *inode, uint64_t bytes)
{
	if (bytes < inode->live_bytes) {
		sim_zero_range(inode, bytes, UINT64_MAX);
		inode->truncated_bytes =
			inode->truncated ? GX_MIN(inode->truncated_bytes, bytes) : bytes;
		inode->truncated = true;
	}
	inode->live_bytes = bytes;
	inode->change_ns = inode->disk->sim->now_ns;
}

int sim_op_open(struct gx_env *env, const char *path, int flags, mode_t mode)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_disk *disk = proc->host->disk;
	char name[NAME_MAX + 1];
	struct sim_inode *dir;
	struct sim_inode *inode;
	struct sim_file *file;
	int r;

	if ((flags & O_TMPFILE) == O_TMPFILE)
		return -EOPNOTSUPP;
	r = path_find(disk, path, &inode);
	if (r == -ENOENT && (flags & O_CREAT) != 0) {
		r = path_walk(disk, path, &dir, name);
		if (r < 0)
			return r;
		inode = sim_inode_new(disk, S_IFREG | (mode & 07777));
		sim_names_change(NULL, NULL, dir, name, inode);
		sim_inode_unref(inode);
	} else if (r < 0) {
		return r;
	} else if ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) {
		return -EEXIST;
	} else if (S_ISDIR(inode->mode) && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT))) {
		return -EISDIR;
	} else if (!S_ISDIR(inode->mode) && (flags & O_DIRECTORY) != 0) {
		return -ENOTDIR;
	}
	if ((flags & O_TRUNC) != 0 && (flags & O_ACCMODE) != O_RDONLY)
		inode_truncate(inode, 0);
	file = sim_alloc(sizeof(*file));
	sim_obj_init(&file->obj, proc, SIM_FILE);
	file->inode = sim_inode_ref(inode);
	file->flags = flags;
	r = sim_fd_install(proc, &file->obj);
	if (r < 0)
		sim_obj_unref(&file->obj);
	return r;
}

void sim_file_destroy(struct sim_obj *obj)
{
	struct sim_file *file = GX_CONTAINER_OF(obj, struct sim_file, obj);

	if (file->inode->lock == file)
		file->inode->lock = NULL;
	sim_inode_unref(file->inode);
	sim_free(file);
}

static int file_find(struct gx_sim_proc *proc, int fd, bool to_write, struct sim_inode **ret_inode)
{
	struct sim_obj *obj = sim_fd_find(proc, fd);
	struct sim_file *file;

	if (obj == NULL)
		return -EBADF;
	if (obj->kind != SIM_FILE)
		return -ESPIPE;
	file = GX_CONTAINER_OF(obj, struct sim_file, obj);
	if (S_ISDIR(file->inode->mode) && to_write)
		return -EISDIR;
	if ((file->flags & O_ACCMODE) == (to_write ? O_RDONLY : O_WRONLY))
		return -EBADF;
	*ret_inode = file->inode;
	return 0;
}

ssize_t sim_op_pread(struct gx_env *env, int fd, void *buf, size_t bytes, uint64_t offset)
{
	struct sim_inode *inode;
	size_t done = 0;
	int r = file_find(sim_enter(env), fd, false, &inode);

	if (r < 0)
		return r;
	if (S_ISDIR(inode->mode))
		return -EISDIR;
	if (offset >= inode->live_bytes)
		return 0;
	bytes = GX_MIN(bytes, inode->live_bytes - offset);
	while (done < bytes) {
		struct sim_block *block = sim_block_find(inode, (offset + done) / BLOCK_BYTES);
		size_t at = (offset + done) % BLOCK_BYTES;
		size_t n = GX_MIN(bytes - done, BLOCK_BYTES - at);

		if (block != NULL && block->live != NULL)
			memcpy((char *)buf + done, block->live + at, n);
		else
			memset((char *)buf + done, 0, n);
		done += n;
	}
	return (ssize_t)done;
}

/* Returns how much found space. */
static size_t write_bytes(struct sim_inode *inode, const uint8_t *data, size_t bytes,
			  uint64_t offset)
{
	size_t done = 0;

	while (done < bytes) {
		struct sim_block *block = sim_block_get(inode, (offset + done) / BLOCK_BYTES);
		size_t at = (offset + done) % BLOCK_BYTES;
		size_t n = GX_MIN(bytes - done, BLOCK_BYTES - at);

		if (sim_block_allocate(inode, block) < 0) {
			if (block->live == NULL && block->durable == NULL && !block->listed)
				sim_block_free(inode, block);
			break;
		}
		memcpy(sim_block_own(block) + at, data + done, n);
		sim_block_mark(inode, block, sim_sectors_of(at, n));
		done += n;
	}
	if (done > 0) {
		inode->live_bytes = GX_MAX(inode->live_bytes, offset + done);
		inode->change_ns = inode->disk->sim->now_ns;
	}
	return done;
}

ssize_t sim_op_pwritev(struct gx_env *env, int fd, const struct iovec *iov, int iov_count,
		       uint64_t offset)
{
	struct sim_inode *inode;
	size_t done = 0;
	size_t wanted = 0;
	int r = file_find(sim_enter(env), fd, true, &inode);

	if (r < 0)
		return r;
	for (int i = 0; i < iov_count; i++)
		wanted += iov[i].iov_len;
	if (offset > FILE_BYTES_MAX || wanted > FILE_BYTES_MAX - offset)
		return -EFBIG;
	for (int i = 0; i < iov_count; i++) {
		size_t n = write_bytes(inode, iov[i].iov_base, iov[i].iov_len, offset + done);

		done += n;
		if (n < iov[i].iov_len)
			break;
	}
	return done == 0 && wanted > 0 ? -ENOSPC : (ssize_t)done;
}

/* The disk is busy. Outside fibers time does not pass. */
static void sync_takes_time(struct gx_sim_proc *proc)
{
	struct gx_sim *sim = proc->sim;
	int64_t ns;

	if (sim->options.sync_max_ns <= 0 || sim_fiber_current() == NULL)
		return;
	ns = 1 + (int64_t)sim_rng_below(&sim->rng, (uint64_t)sim->options.sync_max_ns);
	(void)sim_pause(proc, ns, GX_FOREVER, "disk sync");
}

static void sync_now(struct sim_inode *inode)
{
	if (S_ISDIR(inode->mode))
		sim_journal_commit(inode->disk, inode);
	else
		sim_inode_sync(inode);
}

int sim_op_fsync(struct gx_env *env, int fd)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_obj *obj = sim_fd_find(proc, fd);
	struct sim_inode *inode;
	bool late;

	if (obj == NULL)
		return -EBADF;
	if (obj->kind != SIM_FILE)
		return -EINVAL;
	inode = GX_CONTAINER_OF(obj, struct sim_file, obj)->inode;
	late = sim_chance(proc->sim, 50);
	obj->refs++;
	if (!late)
		sync_now(inode);
	sync_takes_time(proc);
	if (late)
		sync_now(inode);
	sim_obj_unref(obj);
	return 0;
}

int sim_op_ftruncate(struct gx_env *env, int fd, uint64_t bytes)
{
	struct sim_inode *inode;
	int r = file_find(sim_enter(env), fd, true, &inode);

	if (r < 0)
		return r;
	if (bytes > FILE_BYTES_MAX)
		return -EFBIG;
	inode_truncate(inode, bytes);
	return 0;
}

int sim_op_fallocate(struct gx_env *env, int fd, int mode, uint64_t offset, uint64_t bytes)
{
	struct sim_inode *inode;
	bool keep_size = (mode & FALLOC_FL_KEEP_SIZE) != 0;
	bool zero = (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0;
	bool punch = (mode & FALLOC_FL_PUNCH_HOLE) != 0;
	int r = file_find(sim_enter(env), fd, true, &inode);

	if (r < 0)
		return r;
	if (bytes == 0 || (punch && !keep_size))
		return -EINVAL;
	if (offset > FILE_BYTES_MAX || bytes > FILE_BYTES_MAX - offset)
		return -EFBIG;
	if ((mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0)
		return -EOPNOTSUPP;
	if (zero)
		sim_zero_range(inode, offset, offset + bytes);
	if (punch)
		return 0;
	for (uint64_t n = offset / BLOCK_BYTES; n <= (offset + bytes - 1) / BLOCK_BYTES; n++) {
		struct sim_block *block = sim_block_get(inode, n);

		r = sim_block_allocate(inode, block);
		if (r < 0)
			return r;
	}
	if (!keep_size)
		inode->live_bytes = GX_MAX(inode->live_bytes, offset + bytes);
	return 0;
}

static bool has_data(struct sim_inode *inode, uint64_t number)
{
	const struct sim_block *block = sim_block_find(inode, number);

	return block != NULL && (block->allocated || block->live != NULL);
}

int sim_op_seek(struct gx_env *env, int fd, uint64_t offset, bool hole, uint64_t *ret_offset)
{
	struct sim_inode *inode;
	uint64_t number = offset / BLOCK_BYTES;
	uint64_t last;
	int r = file_find(sim_enter(env), fd, false, &inode);

	if (r < 0)
		return r;
	if (offset >= inode->live_bytes)
		return -ENXIO;
	last = (inode->live_bytes - 1) / BLOCK_BYTES;
	while (number <= last && has_data(inode, number) == hole)
		number++;
	if (number > last && !hole)
		return -ENXIO;
	*ret_offset = GX_MIN(GX_MAX(offset, number * BLOCK_BYTES), inode->live_bytes);
	return 0;
}

/* A disk without a limit has 2^50 bytes. */
int sim_op_space(struct gx_env *env, const char *path, uint64_t *ret_bytes, uint64_t *ret_free)
{
	const struct sim_disk *disk = sim_enter(env)->host->disk;
	uint64_t blocks = disk->limit_blocks > 0 ? disk->limit_blocks : UINT64_C(1) << 38;
	struct stat st;
	int r = sim_op_stat(env, path, &st);

	if (r < 0)
		return r;
	*ret_bytes = blocks * BLOCK_BYTES;
	*ret_free = (blocks - GX_MIN(blocks, (uint64_t)disk->used_blocks)) * BLOCK_BYTES;
	return 0;
}

int sim_op_lock_file(struct gx_env *env, int fd)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_obj *obj = sim_fd_find(proc, fd);
	struct sim_file *file;

	if (obj == NULL || obj->kind != SIM_FILE)
		return -EBADF;
	file = GX_CONTAINER_OF(obj, struct sim_file, obj);
	if (file->inode->lock != NULL && file->inode->lock != file)
		return -EAGAIN;
	file->inode->lock = file;
	return 0;
}

/* -- names ---------------------------------------------------------------------------------- */

static void fill_stat(struct gx_sim_proc *proc, const struct sim_inode *inode, struct stat *ret_st)
{
	int64_t wall_ns =
		SIM_WALL_START_NS + inode->change_ns - SIM_START_NS + proc->host->ahead_ns;

	memset(ret_st, 0, sizeof(*ret_st));
	ret_st->st_dev = proc->host->number;
	ret_st->st_ino = inode->number;
	ret_st->st_mode = inode->mode;
	ret_st->st_nlink = 1;
	ret_st->st_uid = getuid();
	ret_st->st_gid = getgid();
	ret_st->st_size = (off_t)inode->live_bytes;
	ret_st->st_blksize = BLOCK_BYTES;
	ret_st->st_blocks = (blkcnt_t)(inode->allocated_blocks * SECTORS_PER_BLOCK);
	ret_st->st_mtim.tv_sec = wall_ns / GX_NSEC_PER_SEC;
	ret_st->st_mtim.tv_nsec = wall_ns % GX_NSEC_PER_SEC;
	ret_st->st_ctim = ret_st->st_mtim;
}

int sim_op_fstat(struct gx_env *env, int fd, struct stat *ret_st)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_obj *obj = sim_fd_find(proc, fd);

	if (obj == NULL || obj->kind != SIM_FILE)
		return -EBADF;
	fill_stat(proc, GX_CONTAINER_OF(obj, struct sim_file, obj)->inode, ret_st);
	return 0;
}

int sim_op_stat(struct gx_env *env, const char *path, struct stat *ret_st)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_inode *inode;
	int r = path_find(proc->host->disk, path, &inode);

	if (r < 0)
		return r;
	fill_stat(proc, inode, ret_st);
	return 0;
}

static bool dir_is_below(const struct sim_inode *dir, const struct sim_inode *ancestor)
{
	for (; dir != NULL; dir = dir->parent)
		if (dir == ancestor)
			return true;
	return false;
}

/* May `inode` take the place of `old`? */
static int check_replace(const struct sim_inode *inode, const struct sim_inode *old)
{
	if (S_ISDIR(old->mode) && !S_ISDIR(inode->mode))
		return -EISDIR;
	if (!S_ISDIR(old->mode) && S_ISDIR(inode->mode))
		return -ENOTDIR;
	return S_ISDIR(old->mode) && old->live != NULL ? -ENOTEMPTY : 0;
}

int sim_op_rename(struct gx_env *env, const char *from, const char *to)
{
	struct sim_disk *disk = sim_enter(env)->host->disk;
	char from_name[NAME_MAX + 1];
	char to_name[NAME_MAX + 1];
	struct sim_inode *from_dir;
	struct sim_inode *to_dir;
	struct sim_entry *source;
	struct sim_entry *target;
	int r = path_walk(disk, from, &from_dir, from_name);

	if (r == 0)
		r = path_walk(disk, to, &to_dir, to_name);
	if (r < 0)
		return r;
	if (from_name[0] == '\0' || to_name[0] == '\0')
		return -EBUSY;
	source = sim_entry_find(from_dir->live, from_name);
	if (source == NULL)
		return -ENOENT;
	if (dir_is_below(to_dir, source->inode))
		return -EINVAL;
	target = sim_entry_find(to_dir->live, to_name);
	if (target != NULL && target->inode == source->inode)
		return 0;
	r = target != NULL ? check_replace(source->inode, target->inode) : 0;
	if (r < 0)
		return r;
	sim_names_change(from_dir, from_name, to_dir, to_name, source->inode);
	return 0;
}

static int remove_name(struct gx_env *env, const char *path, bool is_dir)
{
	struct sim_disk *disk = sim_enter(env)->host->disk;
	char name[NAME_MAX + 1];
	struct sim_inode *dir;
	struct sim_entry *entry;
	int r = path_walk(disk, path, &dir, name);

	if (r < 0)
		return r;
	if (name[0] == '\0')
		return -EBUSY;
	entry = sim_entry_find(dir->live, name);
	if (entry == NULL)
		return -ENOENT;
	if (is_dir && !S_ISDIR(entry->inode->mode))
		return -ENOTDIR;
	if (!is_dir && S_ISDIR(entry->inode->mode))
		return -EISDIR;
	if (is_dir && entry->inode->live != NULL)
		return -ENOTEMPTY;
	sim_names_change(dir, name, NULL, NULL, NULL);
	return 0;
}

int sim_op_unlink(struct gx_env *env, const char *path)
{
	return remove_name(env, path, false);
}

int sim_op_rmdir(struct gx_env *env, const char *path)
{
	return remove_name(env, path, true);
}

int sim_op_mkdir(struct gx_env *env, const char *path, mode_t mode)
{
	struct sim_disk *disk = sim_enter(env)->host->disk;
	char name[NAME_MAX + 1];
	struct sim_inode *dir;
	struct sim_inode *inode;
	int r = path_walk(disk, path, &dir, name);

	if (r < 0)
		return r;
	if (name[0] == '\0' || sim_entry_find(dir->live, name) != NULL)
		return -EEXIST;
	inode = sim_inode_new(disk, S_IFDIR | (mode & 07777));
	sim_names_change(NULL, NULL, dir, name, inode);
	sim_inode_unref(inode);
	return 0;
}

int sim_op_sync_dir(struct gx_env *env, const char *path)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_disk *disk = proc->host->disk;
	struct sim_inode *dir;
	bool late = sim_chance(proc->sim, 50);
	int r = path_find(disk, path, &dir);

	if (r < 0)
		return r;
	if (!S_ISDIR(dir->mode))
		return -ENOTDIR;
	if (!late)
		sync_now(dir);
	sync_takes_time(proc);
	/* Looked up again: it may have been removed meanwhile, and then there is nothing to keep.
	 */
	if (late && path_find(disk, path, &dir) == 0 && S_ISDIR(dir->mode))
		sync_now(dir);
	return 0;
}

/* A copy is walked, since fn may change the directory; it is the process's memory, like fn's. */
int sim_op_list_dir(struct gx_env *env, const char *path, gx_dirent_fn fn, void *arg)
{
	struct gx_sim_proc *proc = sim_enter(env);
	struct sim_inode *inode;
	struct sim_entry *entry;
	struct sim_entry *tmp;
	GX_AUTOFREE char *names = NULL;
	size_t bytes = 0;
	int r = path_find(proc->host->disk, path, &inode);

	if (r < 0)
		return r;
	if (!S_ISDIR(inode->mode))
		return -ENOTDIR;
	HASH_ITER (hh, inode->live, entry, tmp) {
		bytes += strlen(entry->name) + 1;
	}
	names = malloc(bytes + 1);
	if (names == NULL)
		return -ENOMEM;
	bytes = 0;
	HASH_ITER (hh, inode->live, entry, tmp) {
		size_t n = strlen(entry->name) + 1;

		memcpy(names + bytes, entry->name, n);
		bytes += n;
	}
	for (size_t at = 0; at < bytes && r == 0; at += strlen(names + at) + 1)
		r = fn(arg, names + at);
	return r;
}
