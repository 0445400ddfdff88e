/*
 * Locks of open files. An owner is a struct gfs_file, so its address is its name in our session.
 */
#include "client/fs/gfs_impl.h"
#include <assert.h>
#include <unistd.h>

static_assert(GFS_LOCK_NONE == GFC_LOCK_NONE && GFS_LOCK_READ == GFC_LOCK_READ &&
		      GFS_LOCK_WRITE == GFC_LOCK_WRITE,
	      "types are passed on as they are");

static int fill(struct gfs_file *file, unsigned kind, unsigned type, uint64_t offset,
		uint64_t bytes, struct gfc_lock *ret_lock)
{
	*ret_lock = (struct gfc_lock){.owner = (uint64_t)(uintptr_t)file,
				      .kind = kind,
				      .type = type,
				      .start = offset,
				      .end = GFC_LOCK_END,
				      .pid = (uint32_t)getpid()};
	if (type > GFS_LOCK_WRITE || offset > GFC_LOCK_END)
		return gfc_fail(-EINVAL, "not a lock that can be");
	if (bytes == 0)
		return 0;
	if (bytes - 1 > GFC_LOCK_END - offset)
		return gfc_fail(-EOVERFLOW, "the range ends behind any file");
	ret_lock->end = offset + bytes - 1;
	return 0;
}

static int64_t deadline(struct gfs *fs, int64_t wait_ms)
{
	if (wait_ms == 0)
		return 0;
	return wait_ms < 0 ? GX_FOREVER : gx_env_deadline_ms(fs->env, (uint64_t)wait_ms);
}

static int set(struct gfs_file *file, unsigned kind, unsigned type, uint64_t offset, uint64_t bytes,
	       int64_t wait_ms)
{
	struct gfc_open *open;
	struct gfc_lock lock;
	const char *path;
	struct gfs *fs;
	int sent, r;

	gfs_file_parts(file, &fs, &open, &path);
	r = fill(file, kind, type, offset, bytes, &lock);
	if (r < 0)
		return (int)gfs_result(r, path);
	sent = gfs_file_settle(file);
	r = gfc_lock(fs->gfc, open, &lock, deadline(fs, wait_ms), NULL);
	/* Nobody is kept out because a write failed; that is told all the same. */
	return (int)gfs_result(r < 0 ? r : sent, path);
}

int gfs_lock(struct gfs_file *file, unsigned type, uint64_t offset, uint64_t bytes, int64_t wait_ms)
{
	return set(file, GFC_LOCK_POSIX, type, offset, bytes, wait_ms);
}

int gfs_unlock(struct gfs_file *file, uint64_t offset, uint64_t bytes)
{
	return set(file, GFC_LOCK_POSIX, GFS_LOCK_NONE, offset, bytes, 0);
}

int gfs_flock(struct gfs_file *file, unsigned type, int64_t wait_ms)
{
	return set(file, GFC_LOCK_FLOCK, type, 0, 0, wait_ms);
}

int gfs_getlock(struct gfs_file *file, unsigned type, uint64_t offset, uint64_t bytes,
		struct gfs_lock_info *ret_info)
{
	struct gfc_open *open;
	struct gfc_lock lock;
	const char *path;
	struct gfs *fs;
	int r;

	gfs_file_parts(file, &fs, &open, &path);
	r = fill(file, GFC_LOCK_POSIX, type, offset, bytes, &lock);
	if (r == 0)
		r = gfc_getlock(fs->gfc, open, &lock);
	if (r < 0)
		return (int)gfs_result(r, path);
	*ret_info = (struct gfs_lock_info){
		.type = lock.type,
		.offset = lock.start,
		.bytes = lock.end == GFC_LOCK_END ? 0 : lock.end - lock.start + 1,
		.pid = lock.own ? (pid_t)lock.pid : 0,
	};
	return 0;
}
