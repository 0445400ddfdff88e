/*
 * Open files. The bytes are gfd.h's work, wherever they are. What is done here is for small files:
 * a program that writes one does so in several pieces and then closes it; sent one by one, each
 * piece is a round trip and a command in metad's log. So a file holds writes back while they make
 * one range in the first 8 KiB, and the close carries them: create, write, close are two calls. The
 * price is that an error may come late, from whoever sends the range, and then once more from the
 * next fsync or close, which no careful program leaves out. A fsync through another file of the
 * inode tells it, too.
 *
 * What this process does later by this file, or by path, sees what it wrote before: the range goes
 * out first. It is not kept for ever either: gfs_sync() and gfs_disconnect() send it.
 *
 * Only metad's own bytes may be written behind gfd's back, by the write that also closes. So
 * nothing is held while this process has a lease on the inode, and if the file has outgrown metad
 * meanwhile, metad refuses that write and gfd does it.
 */
#include "client/fs/gfs_impl.h"
#include "client/fs/gfs_path.h"
#include <assert.h>
#include <unistd.h>

#define HELD_MAX GX_INLINE_MAX /* bytes held back, and the highest offset they reach */

static_assert(GFS_O_READ == GFC_OPEN_READ && GFS_O_WRITE == GFC_OPEN_WRITE &&
		      GFS_O_CREATE == GFC_OPEN_CREATE && GFS_O_EXCL == GFC_OPEN_EXCL &&
		      GFS_O_TRUNC == GFC_OPEN_TRUNC,
	      "flags are passed on as they are");
#define GFC_OPEN_FLAGS (GFS_O_READ | GFS_O_WRITE | GFS_O_CREATE | GFS_O_EXCL | GFS_O_TRUNC)
#define ALL_FLAGS (GFC_OPEN_FLAGS | GFS_O_APPEND | GFS_O_SYNC | GFS_O_NOFOLLOW)

struct gfs_file {
	struct gfs *fs;
	struct gfs_file *prev, *next; /* fs->lock */
	struct gfc_open *open;
	struct gfd_file *content;
	uint64_t ino;
	unsigned flags;       /* GFS_O_ */
	struct gx_mutex lock; /* all below but path */
	uint64_t position;
	bool large;         /* more than metad's bytes: nothing is held, counted in fs->large */
	struct gx_buf held; /* written and not sent */
	bool held_append;   /* it goes to the end of the file, wherever that is then */
	uint64_t held_offset;
	int error;   /* of a held write, until fsync or close has told it … */
	bool spread; /* … which fsync of another file of this inode has done, too */
	char path[]; /* for messages */
};

/* -- held writes (the file's lock is held) ------------------------------------------------------
 */

static void held_clear(struct gfs_file *file)
{
	if (file->held.bytes == 0)
		return;
	gx_buf_clear(&file->held);
	atomic_fetch_sub(&file->fs->holding, 1);
}

static void set_large(struct gfs_file *file)
{
	if (file->large)
		return;
	file->large = true;
	atomic_fetch_add(&file->fs->large, 1);
}

/* gfd is at work on this inode, through any file of this process. */
static bool is_leased(const struct gfs_file *file)
{
	bool write;

	return gfd_lease_of(file->fs->gfd, file->ino, &write, NULL) != 0;
}

/* The error is not kept yet. */
static int held_send(struct gfs_file *file)
{
	uint64_t offset;
	int r = gfd_write(file->content, file->open, file->held.data, file->held.bytes,
			  file->held_offset, file->held_append, &offset);

	if (r == 0 && file->held_append)
		file->position = offset + file->held.bytes;
	/* It has outgrown metad: from now on others see at once what is written. */
	if (r == 0 && is_leased(file))
		set_large(file);
	/* After an error too: sent again later it could overwrite what others wrote meanwhile. */
	held_clear(file);
	return r;
}

static int flush(struct gfs_file *file)
{
	int r;

	if (file->held.bytes == 0)
		return 0;
	r = held_send(file);
	if (r < 0 && file->error == 0) {
		file->error = r;
		file->spread = false;
		atomic_store(&file->fs->had_errors, true);
	}
	return r;
}

/* An error that was kept: the text that there is by now is about something else. */
static int fail_late(int err)
{
	return gfc_fail(err, "a write that was held back failed: %s", gx_strerror(err));
}

/* Does it join what is held, or may it start a new range? */
static bool can_hold(const struct gfs_file *file, size_t bytes, uint64_t offset, bool append)
{
	if ((file->flags & GFS_O_SYNC) || bytes > HELD_MAX || file->large || is_leased(file))
		return false;
	if (file->held.bytes > 0 && file->held_append != append)
		return false;
	if (append)
		return file->held.bytes + bytes <= HELD_MAX;
	/* Beyond that it is not metad's. */
	if (offset > HELD_MAX - bytes)
		return false;
	return file->held.bytes == 0 ||
	       (offset >= file->held_offset && offset <= file->held_offset + file->held.bytes);
}

static int hold(struct gfs_file *file, const void *data, size_t bytes, uint64_t offset, bool append)
{
	struct gx_buf *held = &file->held;
	bool first = held->bytes == 0;
	size_t at, over;
	int r;

	at = first ? 0 : append ? held->bytes : (size_t)(offset - file->held_offset);
	over = GX_MIN(bytes, held->bytes - at);
	r = gx_buf_append(held, (const char *)data + over, bytes - over);
	if (r < 0)
		return r;
	memcpy(held->data + at, data, over);
	if (first) {
		file->held_append = append;
		file->held_offset = offset;
		atomic_fetch_add(&file->fs->holding, 1);
	}
	return 0;
}

static int send_now(struct gfs_file *file, const void *data, size_t bytes, uint64_t offset,
		    bool append, uint64_t *ret_offset)
{
	int r;

	set_large(file);
	r = gfd_write(file->content, file->open, data, bytes, offset, append, ret_offset);
	if (r == 0 && (file->flags & GFS_O_SYNC))
		r = gfd_sync(file->content, file->open);
	return r;
}

/* ret_offset: where it went; as given if that is not known yet. */
static ssize_t write_at(struct gfs_file *file, const void *data, size_t bytes, uint64_t offset,
			bool append, uint64_t *ret_offset)
{
	int r = 0;

	if (!(file->flags & GFS_O_WRITE))
		return -EBADF;
	if (bytes > INT64_MAX || offset > INT64_MAX - bytes)
		return -EFBIG;
	*ret_offset = offset;
	if (append)
		bytes = GX_MIN(bytes, GFD_APPEND_MAX);
	if (bytes == 0)
		return 0;
	if (!can_hold(file, bytes, offset, append))
		r = flush(file);
	if (r == 0 && can_hold(file, bytes, offset, append))
		r = hold(file, data, bytes, offset, append);
	else if (r == 0)
		r = send_now(file, data, bytes, offset, append, ret_offset);
	return r < 0 ? r : (ssize_t)bytes;
}

static void file_lock(struct gfs_file *file)
{
	gx_env_mutex_lock(file->fs->env, &file->lock);
}

static void file_unlock(struct gfs_file *file)
{
	gx_env_mutex_unlock(file->fs->env, &file->lock);
}

/* -- the list of open files ----------------------------------------------------------------------
 */

static void list_add(struct gfs *fs, struct gfs_file *file)
{
	gx_env_mutex_lock(fs->env, &fs->lock);
	file->next = fs->files;
	if (fs->files)
		fs->files->prev = file;
	fs->files = file;
	gx_env_mutex_unlock(fs->env, &fs->lock);
}

static void list_remove(struct gfs *fs, struct gfs_file *file)
{
	gx_env_mutex_lock(fs->env, &fs->lock);
	if (file->prev)
		file->prev->next = file->next;
	else
		fs->files = file->next;
	if (file->next)
		file->next->prev = file->prev;
	gx_env_mutex_unlock(fs->env, &fs->lock);
}

/*
 * The lock of the list is held while metad is asked, so that no file can be closed under our feet.
 * Others wait to open and close meanwhile; that is rare and short compared to counting users.
 */
static int flush_files(struct gfs *fs, uint64_t ino, const struct gfs_file *except)
{
	int result = 0;

	if (atomic_load(&fs->holding) == 0)
		return 0;
	gx_env_mutex_lock(fs->env, &fs->lock);
	for (struct gfs_file *file = fs->files; file; file = file->next) {
		int r;

		if (file == except || (ino != 0 && file->ino != ino))
			continue;
		file_lock(file);
		r = flush(file);
		file_unlock(file);
		if (r < 0 && result == 0)
			result = (int)gfs_result(r, file->path);
	}
	gx_env_mutex_unlock(fs->env, &fs->lock);
	return result;
}

int gfs_files_flush(struct gfs *fs, uint64_t ino)
{
	return flush_files(fs, ino, NULL);
}

/* The lease that was taken through one file of this inode stays with the others. */
static void spread_large(struct gfs *fs, uint64_t ino)
{
	gx_env_mutex_lock(fs->env, &fs->lock);
	for (struct gfs_file *file = fs->files; file; file = file->next) {
		if (file->ino != ino)
			continue;
		file_lock(file);
		set_large(file);
		file_unlock(file);
	}
	gx_env_mutex_unlock(fs->env, &fs->lock);
}

/* As in flush_files(), the list stays as it is meanwhile. */
int gfs_files_sync(struct gfs *fs)
{
	int result = flush_files(fs, 0, NULL);

	if (atomic_load(&fs->large) == 0)
		return result;
	gx_env_mutex_lock(fs->env, &fs->lock);
	for (struct gfs_file *file = fs->files; file; file = file->next) {
		bool large;
		int r;

		file_lock(file);
		large = file->large && file->content;
		r = large ? gfd_sync(file->content, file->open) : 0;
		file_unlock(file);
		if (r < 0 && result == 0)
			result = (int)gfs_result(r, file->path);
	}
	gx_env_mutex_unlock(fs->env, &fs->lock);
	return result;
}

/*
 * file_lock() for who reads or changes the content: what other open files of this inode hold back
 * was written before and goes out first. So only one of them holds anything at a time, and the
 * order of writes is kept. Who writes one file after the other, as most do, does not search.
 */
static void file_lock_alone(struct gfs_file *file)
{
	unsigned own;

	file_lock(file);
	own = file->held.bytes > 0;
	if (atomic_load(&file->fs->holding) == own)
		return;
	/* The list's lock comes first. */
	file_unlock(file);
	GX_IGNORE(flush_files(file->fs, file->ino, file)); /* its file keeps the error */
	file_lock(file);
}

int gfs_files_close(struct gfs *fs)
{
	int result = 0;

	while (fs->files) {
		int r = gfs_close(fs->files);

		if (r < 0 && result == 0)
			result = r;
	}
	return result;
}

/* -- open and close ------------------------------------------------------------------------------
 */

static void file_free(struct gfs_file *file)
{
	gx_buf_fini(&file->held);
	free(file);
}

static int file_new(struct gfs *fs, const char *path, unsigned flags, struct gfs_file **ret_file)
{
	size_t path_bytes = strlen(path) + 1;
	struct gfs_file *file = calloc(1, sizeof(*file) + path_bytes);
	int r;

	if (!file)
		return -ENOMEM;
	file->fs = fs;
	file->flags = flags;
	memcpy(file->path, path, path_bytes);
	gx_buf_init(&file->held, HELD_MAX);
	r = gx_env_mutex_init(fs->env, &file->lock);
	if (r < 0) {
		file_free(file);
		return r;
	}
	*ret_file = file;
	return 0;
}

/* A slash behind the last name: it must be a directory, and those are not opened here. */
static int slash_problem(struct gfs_walk *walk, unsigned flags)
{
	struct gfc_attr attr;
	int r;

	if (flags & GFS_O_CREATE)
		return -EISDIR;
	r = gfc_lookup(walk->gfc, walk->dir, walk->name, &attr);
	if (r < 0)
		return r;
	if (S_ISLNK(attr.mode)) {
		r = gfs_walk_follow(walk, attr.ref);
		return r < 0 ? r : 1;
	}
	return S_ISDIR(attr.mode) ? -EISDIR : -ENOTDIR;
}

/* What an opening needs and finds. */
struct opening {
	struct gfs *fs;
	unsigned flags;
	mode_t mode;
	bool truncate; /* has still to be done, by gfd */
	struct gfc_attr attr;
	struct gfc_open *open;
};

/*
 * Truncating throws away what was written before, also what another file of this process still
 * holds back; sent later, it would come back to life. If gfd writes to the inode, the truncation
 * has its place among those writes. Nobody holding anything costs nothing.
 */
static void before_truncate(struct opening *opening, struct gfs_walk *walk)
{
	struct gfs *fs = opening->fs;
	struct gfc_attr attr;
	bool write;

	if (atomic_load(&fs->holding) == 0 && atomic_load(&fs->large) == 0)
		return;
	if (gfc_lookup(fs->gfc, walk->dir, walk->name, &attr) < 0 || !S_ISREG(attr.mode))
		return;
	GX_IGNORE(gfs_files_flush(fs, attr.ref.ino)); /* its file keeps the error */
	opening->truncate = gfd_lease_of(fs->gfd, attr.ref.ino, &write, NULL) != 0;
}

static int open_name(struct opening *opening, struct gfs_walk *walk)
{
	unsigned flags = opening->flags & GFC_OPEN_FLAGS;

	if (opening->truncate)
		flags &= ~GFS_O_TRUNC;
	return gfc_open(opening->fs->gfc, walk->dir, walk->name, flags, opening->mode & 07777,
			&opening->attr, &opening->open);
}

/* One try at the last name. 1: it was a link, which the walk now follows. */
static int open_last(struct opening *opening, struct gfs_walk *walk)
{
	unsigned flags = opening->flags;
	int r;

	if (walk->last != GFS_LAST_NAME)
		return (flags & GFS_O_CREATE) && (flags & GFS_O_EXCL) ? -EEXIST : -EISDIR;
	if (walk->slash)
		return slash_problem(walk, flags);
	if (flags & GFS_O_TRUNC)
		before_truncate(opening, walk);
	/* Not looked up before: metad says -ELOOP if it is a link, and we save a call if not. */
	r = open_name(opening, walk);
	if (r != -ELOOP || (flags & GFS_O_NOFOLLOW))
		return r;
	r = gfc_lookup(walk->gfc, walk->dir, walk->name, &opening->attr);
	if (r < 0)
		return r;
	if (!S_ISLNK(opening->attr.mode)) /* just replaced by something else */
		return open_name(opening, walk);
	r = gfs_walk_follow(walk, opening->attr.ref);
	return r < 0 ? r : 1;
}

static int open_path(struct opening *opening, const char *path)
{
	struct gfs *fs = opening->fs;
	struct gfs_walk walk;
	int r = gfs_walk_init(&walk, fs->gfc, path);

	if (r == 0) {
		do {
			r = gfs_walk_parent(&walk);
			if (r == 0)
				r = open_last(opening, &walk);
		} while (r > 0);
	}
	gfs_walk_fini(&walk);
	/* metad opens a directory for reading; here that is gfs_opendir()'s work. */
	if (r == 0 && S_ISDIR(opening->attr.mode)) {
		GX_IGNORE(gfc_close(fs->gfc, opening->open)); /* nothing was written */
		r = -EISDIR;
	}
	return r;
}

/* The content behind what was opened. */
static int open_content(struct gfs_file *file, struct opening *opening)
{
	struct gfs *fs = file->fs;
	int r;

	file->open = opening->open;
	file->ino = opening->attr.ref.ino;
	GX_IGNORE(gfs_files_flush(fs, file->ino)); /* as in stat: what we wrote counts */
	r = gfd_open(fs->gfd, file->open, &opening->attr, &file->content);
	if (r == 0 && (opening->truncate || gfc_open_truncate_later(file->open))) {
		r = gfd_truncate(file->content, file->open, 0);
		if (r < 0)
			GX_IGNORE(gfd_close(file->content, file->open)); /* r says more */
	}
	if (r < 0)
		GX_IGNORE(gfc_close(fs->gfc, file->open)); /* nothing was written */
	else if (S_ISREG(opening->attr.mode) && !(opening->attr.flags & GFC_ATTR_INLINE))
		set_large(file);
	return r;
}

static bool flags_make_sense(unsigned flags)
{
	if ((flags & ~ALL_FLAGS) || !(flags & (GFS_O_READ | GFS_O_WRITE)))
		return false;
	return !(flags & GFS_O_TRUNC) || (flags & GFS_O_WRITE);
}

int gfs_open(struct gfs *fs, const char *path, unsigned flags, mode_t mode,
	     struct gfs_file **ret_file)
{
	struct opening opening = {.fs = fs, .flags = flags, .mode = mode};
	struct gfs_file *file;
	int r;

	if (!flags_make_sense(flags))
		return (int)gfs_path_result(-EINVAL, path);
	r = file_new(fs, path, flags, &file);
	if (r < 0)
		return (int)gfs_path_result(r, path);
	r = open_path(&opening, path);
	if (r == 0)
		r = open_content(file, &opening);
	if (r < 0) {
		gx_env_mutex_fini(fs->env, &file->lock);
		file_free(file);
		return (int)gfs_path_result(r, path);
	}
	list_add(fs, file);
	*ret_file = file;
	return 0;
}

/* The file has outgrown metad: what is held takes the way of large files, then it is closed. */
static int close_outgrown(struct gfs_file *file)
{
	struct gfs *fs = file->fs;
	struct gfc_attr attr;
	int closed, r = gfc_open_getattr(fs->gfc, file->open, &attr);

	if (r == 0)
		r = gfd_open(fs->gfd, file->open, &attr, &file->content);
	if (r == 0) {
		r = held_send(file);
		closed = gfd_close(file->content, file->open);
		r = r < 0 ? r : closed;
	}
	closed = gfc_close(fs->gfc, file->open);
	return r < 0 ? r : closed;
}

/* What is held and the close in one call to metad. */
static int close_with_held(struct gfs_file *file)
{
	struct gfc_write write = {
		.data = file->held.data,
		.bytes = file->held.bytes,
		.offset = file->held_offset,
		.append = file->held_append,
		.close = true,
	};
	int r = gfc_write(file->fs->gfc, file->open, &write, NULL, NULL);

	return r == -EFBIG ? close_outgrown(file) : r;
}

static int close_content(struct gfs_file *file)
{
	bool with_held = file->held.bytes > 0 && !file->large && !is_leased(file);
	int sent = 0, closed, r;

	if (!with_held && file->held.bytes > 0)
		sent = held_send(file);
	closed = gfd_close(file->content, file->open);
	r = with_held ? close_with_held(file) : gfc_close(file->fs->gfc, file->open);
	file->content = NULL;
	held_clear(file);
	if (file->error < 0)
		return fail_late(file->error);
	return sent < 0 ? sent : closed < 0 ? closed : r;
}

int gfs_close(struct gfs_file *file)
{
	struct gfs *fs;
	bool large;
	int r;

	if (!file)
		return 0;
	fs = file->fs;
	/* On the list until metad has it: who opens the file meanwhile waits for what is held. */
	file_lock(file);
	r = close_content(file);
	large = file->large;
	file_unlock(file);
	if (large)
		spread_large(fs, file->ino);
	list_remove(fs, file);
	if (large)
		atomic_fetch_sub(&fs->large, 1);
	r = (int)gfs_result(r, file->path);
	gx_env_mutex_fini(fs->env, &file->lock);
	file_free(file);
	return r;
}

/* -- reading and writing -------------------------------------------------------------------------
 */

static ssize_t read_at(struct gfs_file *file, void *buf, size_t bytes, uint64_t offset)
{
	if (bytes == 0)
		return 0;
	return gfd_read(file->content, file->open, buf, GX_MIN(bytes, (size_t)SSIZE_MAX), offset);
}

static int before_read(struct gfs_file *file)
{
	return file->flags & GFS_O_READ ? flush(file) : -EBADF;
}

ssize_t gfs_read(struct gfs_file *file, void *buf, size_t bytes)
{
	ssize_t n;

	file_lock_alone(file);
	n = before_read(file);
	if (n == 0)
		n = read_at(file, buf, bytes, file->position);
	if (n > 0)
		file->position += (uint64_t)n;
	file_unlock(file);
	return gfs_result(n, file->path);
}

ssize_t gfs_pread(struct gfs_file *file, void *buf, size_t bytes, uint64_t offset)
{
	ssize_t n;

	file_lock_alone(file);
	n = before_read(file);
	file_unlock(file); /* several threads may read at the same time */
	if (n == 0)
		n = read_at(file, buf, bytes, offset);
	return gfs_result(n, file->path);
}

ssize_t gfs_write(struct gfs_file *file, const void *buf, size_t bytes)
{
	uint64_t offset;
	ssize_t n;

	file_lock_alone(file);
	n = write_at(file, buf, bytes, file->position, file->flags & GFS_O_APPEND, &offset);
	if (n > 0)
		file->position = offset + (uint64_t)n;
	file_unlock(file);
	return gfs_result(n, file->path);
}

int gfs_pwrite_file(struct gfs_file *file, int fd, uint64_t from, size_t bytes, uint64_t offset)
{
	int r = -EOPNOTSUPP;

	file_lock_alone(file);
	if (file->flags & GFS_O_WRITE && !(file->flags & GFS_O_SYNC) && file->held.bytes == 0)
		r = gfd_write_file(file->content, file->open, fd, from, bytes, offset);
	file_unlock(file);
	return r == -EOPNOTSUPP ? r : (int)gfs_result(r, file->path);
}

ssize_t gfs_pwrite(struct gfs_file *file, const void *buf, size_t bytes, uint64_t offset)
{
	uint64_t where;
	ssize_t n;

	file_lock_alone(file);
	n = write_at(file, buf, bytes, offset, false, &where);
	file_unlock(file);
	return gfs_result(n, file->path);
}

/* Where SEEK_CUR and SEEK_END count from. */
static int seek_base(struct gfs_file *file, int whence, uint64_t *ret_base)
{
	struct gfc_attr attr;
	int r = 0;

	/* An append that has not happened yet moves the position when it does. */
	if (whence == SEEK_END || file->held_append)
		r = flush(file);
	if (r < 0)
		return r;
	*ret_base = whence == SEEK_CUR ? file->position : 0;
	if (whence != SEEK_END)
		return whence == SEEK_SET || whence == SEEK_CUR ? 0 : -EINVAL;
	r = gfd_getattr(file->content, file->open, &attr);
	if (r == 0)
		*ret_base = attr.size;
	return r;
}

static int seek_to(struct gfs_file *file, int64_t offset, int whence, int64_t *ret_position)
{
	uint64_t base;
	int r = seek_base(file, whence, &base);

	if (r == 0 && __builtin_add_overflow(offset, base, ret_position))
		r = -EOVERFLOW;
	if (r == 0 && *ret_position < 0)
		r = -EINVAL;
	return r;
}

static int seek_data(struct gfs_file *file, int64_t offset, bool hole, int64_t *ret_position)
{
	uint64_t found;
	int r = offset < 0 ? -ENXIO : flush(file);

	if (r == 0)
		r = gfd_seek(file->content, file->open, (uint64_t)offset, hole, &found);
	if (r == 0)
		*ret_position = (int64_t)found;
	return r;
}

int64_t gfs_lseek(struct gfs_file *file, int64_t offset, int whence)
{
	int64_t position = 0;
	int r;

	file_lock_alone(file);
	if (whence == SEEK_DATA || whence == SEEK_HOLE)
		r = seek_data(file, offset, whence == SEEK_HOLE, &position);
	else
		r = seek_to(file, offset, whence, &position);
	if (r == 0)
		file->position = (uint64_t)position;
	file_unlock(file);
	return r < 0 ? gfs_result(r, file->path) : position;
}

/* Before the content changes in another way than by a write; the lock is held then. */
static int before_change(struct gfs_file *file, uint64_t end)
{
	file_lock_alone(file);
	if (!(file->flags & GFS_O_WRITE))
		return -EINVAL;
	if (end > INT64_MAX)
		return -EFBIG;
	if (end > HELD_MAX)
		set_large(file);
	return flush(file);
}

int gfs_ftruncate(struct gfs_file *file, uint64_t size)
{
	int r = before_change(file, size);

	if (r == 0)
		r = gfd_truncate(file->content, file->open, size);
	file_unlock(file);
	return (int)gfs_result(r, file->path);
}

static uint64_t end_of(uint64_t offset, uint64_t bytes)
{
	uint64_t end;

	return __builtin_add_overflow(offset, bytes, &end) ? UINT64_MAX : end;
}

int gfs_punch(struct gfs_file *file, uint64_t offset, uint64_t bytes)
{
	int r = before_change(file, end_of(offset, bytes));

	if (r == 0 && bytes == 0)
		r = -EINVAL;
	if (r == 0)
		r = gfd_punch(file->content, file->open, offset, bytes);
	file_unlock(file);
	return (int)gfs_result(r, file->path);
}

int gfs_allocate(struct gfs_file *file, uint64_t offset, uint64_t bytes, bool keep_size)
{
	int r = before_change(file, end_of(offset, bytes));

	if (r == 0 && bytes == 0)
		r = -EINVAL;
	if (r == 0)
		r = gfd_allocate(file->content, file->open, offset, bytes, keep_size);
	file_unlock(file);
	return (int)gfs_result(r, file->path);
}

int gfs_fstat(struct gfs_file *file, struct gfs_stat *ret_st)
{
	struct gfc_attr attr;
	int r;

	file_lock_alone(file);
	r = flush(file);
	file_unlock(file);
	if (r == 0)
		r = gfd_getattr(file->content, file->open, &attr);
	if (r == 0)
		gfs_stat_of(&attr, ret_st);
	return (int)gfs_result(r, file->path);
}

/*
 * fsync is about the file, through whichever handle it was written: what another one held back and
 * lost is told here as well, once. Its own tells it again.
 */
static int error_of_others(const struct gfs_file *file)
{
	struct gfs *fs = file->fs;
	int error = 0;

	if (!atomic_load(&fs->had_errors))
		return 0;
	gx_env_mutex_lock(fs->env, &fs->lock);
	for (struct gfs_file *other = fs->files; other; other = other->next) {
		if (other == file || other->ino != file->ino)
			continue;
		file_lock(other);
		if (other->error < 0 && !other->spread) {
			error = error < 0 ? error : other->error;
			other->spread = true;
		}
		file_unlock(other);
	}
	gx_env_mutex_unlock(fs->env, &fs->lock);
	return error;
}

int gfs_fsync(struct gfs_file *file)
{
	int kept, others, r;

	file_lock_alone(file);
	GX_IGNORE(flush(file)); /* its error is in file->error, behind an older one */
	kept = file->error;
	file->error = 0;
	file_unlock(file);
	others = error_of_others(file);
	kept = kept < 0 ? kept : others;
	r = gfd_sync(file->content, file->open);
	return (int)gfs_result(kept < 0 ? fail_late(kept) : r, file->path);
}

int gfs_file_settle(struct gfs_file *file)
{
	int r;

	file_lock_alone(file);
	r = flush(file);
	file_unlock(file);
	return r;
}

void gfs_file_parts(struct gfs_file *file, struct gfs **ret_fs, struct gfc_open **ret_open,
		    const char **ret_path)
{
	*ret_fs = file->fs;
	*ret_open = file->open;
	*ret_path = file->path;
}

/* -- by path ------------------------------------------------------------------------------------
 */

int gfs_content_truncate(struct gfs *fs, struct gfc_ref ref, uint64_t size)
{
	struct gfd_file *content;
	struct gfc_attr attr;
	struct gfc_open *open;
	int closed, r = gfc_open(fs->gfc, ref, NULL, GFC_OPEN_WRITE, 0, &attr, &open);

	if (r < 0)
		return r;
	spread_large(fs, ref.ino);
	r = gfd_open(fs->gfd, open, &attr, &content);
	if (r == 0) {
		r = gfd_truncate(content, open, size);
		closed = gfd_close(content, open);
		r = r < 0 ? r : closed;
	}
	closed = gfc_close(fs->gfc, open);
	return r < 0 ? r : closed;
}
