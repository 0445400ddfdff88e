/*
 * Copies into the grid: the destination of gfs put and gfs cp.
 */
#include "client/fs/gfs_impl.h"
#include "client/tools/gfs_copy_part.h"

/* Of something new: what the source has, with -p all of it. */
static mode_t wanted_mode(const struct gfs_copy *copy, const struct gfs_copy_attr *attr)
{
	return copy->preserve ? attr->mode & 07777 : attr->mode & 0777 & ~copy->tool->umask;
}

/* While it is filled: ours to write into. */
static mode_t filling_mode(const struct gfs_copy *copy, const struct gfs_copy_attr *attr)
{
	return copy->preserve ? 0700 : wanted_mode(copy, attr) | 0700;
}

static int grid_make_dir(struct gfs_copy *copy, const char *to, const struct gfs_copy_attr *attr,
			 bool top)
{
	struct gfs *fs = copy->tool->fs;
	int r = gfs_mkdir(fs, to, filling_mode(copy, attr));
	struct gfs_stat st;

	if (r != -EEXIST)
		return r;
	r = top ? gfs_stat(fs, to, &st) : gfs_lstat(fs, to, &st);
	if (r < 0)
		return r;
	return S_ISDIR(st.mode) ? 0 : -ENOTDIR;
}

static int grid_finish_dir(struct gfs_copy *copy, const char *to, const struct gfs_copy_attr *attr)
{
	mode_t mode = wanted_mode(copy, attr);
	struct gfs_stat st;
	int r = 0;

	if (mode != filling_mode(copy, attr)) {
		r = gfs_stat(copy->tool->fs, to, &st);
		/* Without -p a directory that was there before keeps its mode. */
		if (r == 0 && (copy->preserve || (st.mode & 07777) == filling_mode(copy, attr)))
			r = gfs_chmod(copy->tool->fs, to, mode);
	}
	if (r == 0 && copy->preserve)
		r = gfs_utimens(copy->tool->fs, to, attr->times, true);
	return r;
}

/* Puts what is complete at `temp` in its place, or removes it, unless it is to be kept. */
static int grid_commit(struct gfs_copy *copy, const char *temp, const char *to, bool keep, int r)
{
	struct gfs *fs = copy->tool->fs;

	if (r == 0)
		r = gfs_rename(fs, temp, to, copy->no_clobber ? GFS_RENAME_NOREPLACE : 0);
	if (r < 0 && !(keep && gfs_part_kept(copy, to, r)))
		GX_IGNORE(gfs_unlink(fs, temp)); /* r says what went wrong */
	/* It came while we copied: with -n as good as there before. */
	return r == -EEXIST && copy->no_clobber ? -EALREADY : r;
}

static int grid_make_link(struct gfs_copy *copy, const char *target, const char *to,
			  const struct gfs_copy_attr *attr)
{
	GX_AUTOFREE char *temp = NULL;
	struct gfs *fs = copy->tool->fs;
	struct gfs_stat st;
	int r = gfs_lstat(fs, to, &st);

	if (r == 0 && (copy->no_clobber || (attr->ino && st.ino == attr->ino)))
		return -EALREADY;
	if (r == 0 && S_ISDIR(st.mode))
		return -EISDIR;
	if (r < 0 && r != -ENOENT)
		return r;
	r = gfs_temp_path(copy->tool->env, to, &temp);
	if (r == 0)
		r = gfs_symlink(fs, target, temp);
	if (r < 0)
		return r;
	if (copy->preserve)
		r = gfs_utimens(fs, temp, attr->times, false);
	return grid_commit(copy, temp, to, false, r);
}

/* The file that a symbolic link leads to, through more links if need be. */
static int follow_link(struct gfs *fs, const char *link, char **ret_path)
{
	GX_AUTOFREE char *path = strdup(link);

	for (int i = 0; path && i < 40; i++) {
		char target[GFS_PATH_MAX];
		GX_AUTOFREE char *parent = NULL;
		int r = gfs_link_target(fs, path, target);

		if (r == -EINVAL) {
			*ret_path = GX_TAKE(path);
			return 0;
		}
		if (r < 0)
			return r;
		parent = gfs_path_parent(path);
		free(path);
		path = !parent          ? NULL
		       : *target == '/' ? strdup(target)
					: gfs_path_join(parent, target);
	}
	return path ? -ELOOP : -ENOMEM;
}

/* What is at the destination already decides on the name and mode, or forbids it. */
static int check_old(struct gfs_copy *copy, const struct gfs_copy_source *source, const char *to,
		     char **ret_to, mode_t *mode)
{
	struct gfs *fs = copy->tool->fs;
	struct gfs_stat st;
	int r = gfs_lstat(fs, to, &st);
	bool link = r == 0 && S_ISLNK(st.mode);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	if (copy->no_clobber)
		return -EALREADY;
	/* A link that leads nowhere is reported, not replaced. */
	if (link)
		r = gfs_stat(fs, to, &st);
	if (r == 0 && S_ISDIR(st.mode))
		r = -EISDIR;
	if (r == 0 && st.ino == source->attr.ino) {
		gfs_tool_problem(copy->tool, "%s and %s are the same file", source->name, to);
		return -EALREADY;
	}
	if (r == 0 && !copy->force)
		r = gfs_access(fs, to, W_OK);
	if (r == 0 && link)
		r = follow_link(fs, to, ret_to);
	if (r == 0 && !copy->preserve && S_ISREG(st.mode))
		*mode = st.mode & 07777;
	return r;
}

static int write_grid(void *arg, const void *buf, size_t bytes, uint64_t offset)
{
	const char *p = buf;

	while (bytes > 0) {
		ssize_t n = gfs_pwrite(arg, p, bytes, offset);

		if (n < 0)
			return (int)n;
		if (n == 0)
			return -EIO;
		p += n;
		offset += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

static int lend_grid(void *arg, int fd, uint64_t offset)
{
	return gfs_pwrite_file(arg, fd, offset, GFS_COPY_BUF_BYTES, offset);
}

static int resize_grid(void *arg, uint64_t size)
{
	return gfs_ftruncate(arg, size);
}

static ssize_t read_grid(void *arg, void *buf, size_t bytes, uint64_t offset)
{
	return gfs_pread(arg, buf, bytes, offset);
}

/* -- what a cut copy has left ------------------------------------------------------------------ */

static bool is_ours(const struct gfs_stat *st, uid_t me)
{
	return S_ISREG(st->mode) && st->uid == me && st->nlink == 1 && (st->mode & 022) == 0;
}

static int look_at(struct gfs_copy *copy, struct gfs_part_search *search, const char *dir,
		   const struct gfs_dirent *entry, uid_t me)
{
	struct gfs_part_seen seen = {
		.name = entry->name,
		.ours = entry->has_stat && is_ours(&entry->st, me),
		.size = entry->st.size,
		.mtime = entry->st.mtime,
	};
	GX_AUTOFREE char *path = gfs_path_join(dir, entry->name);
	enum gfs_part_fate fate;
	int r = path ? gfs_part_look(search, &seen, &fate) : -ENOMEM;

	if (r == 0 && fate == GFS_PART_GOES)
		GX_IGNORE(gfs_unlink(copy->tool->fs, path)); /* then it stays for another time */
	return r;
}

/* The part to go on with; *ret_temp stays NULL if there is none. */
static int find_part(struct gfs_copy *copy, const struct gfs_copy_source *source, const char *to,
		     char **ret_temp)
{
	GX_AUTOFREE char *dir = gfs_path_parent(to);
	struct gfs_part_search search = {.best = NULL};
	struct gfs *fs = copy->tool->fs;
	struct gfs_dirent entry;
	struct gfs_dir *list;
	uid_t me;
	int r = dir ? gfs_whoami(fs, &me, NULL, NULL, 0) : -ENOMEM;

	if (r == 0)
		r = gfs_opendir(fs, dir, &list);
	if (r < 0)
		return r;
	gfs_part_names(copy, source, to, &search.names);
	clock_gettime(CLOCK_REALTIME, &search.now);
	/* In the order of names: those that begin so stand behind what they begin with. */
	r = gfs_seekdir(list, search.names.of_dest);
	while (r >= 0 && (r = gfs_readdir(list, &entry)) > 0 &&
	       strncmp(entry.name, search.names.of_dest, strlen(search.names.of_dest)) == 0)
		r = look_at(copy, &search, dir, &entry, me);
	gfs_closedir(list);
	if (r >= 0 && search.best) {
		*ret_temp = gfs_path_join(dir, search.best);
		r = *ret_temp ? 0 : -ENOMEM;
	}
	free(search.best);
	return GX_MIN(r, 0);
}

/* -- files ------------------------------------------------------------------------------------- */

/* How much of what is there counts; the rest is cut off. */
static int go_on(struct gfs_copy *copy, const struct gfs_copy_source *source,
		 const struct gfs_copy_sink *sink, struct gfs_file *file, uint64_t *ret_from)
{
	struct gfs_stat st;
	uid_t me;
	int r = gfs_fstat(file, &st);

	if (r == 0)
		r = gfs_whoami(copy->tool->fs, &me, NULL, NULL, 0);
	if (r == 0 && !is_ours(&st, me))
		r = -EPERM;
	if (r == 0)
		r = gfs_part_check(copy, source, sink, st.size, ret_from);
	if (r == 0 && st.size > *ret_from)
		r = gfs_ftruncate(file, *ret_from);
	return r;
}

/* Opens it: a new one, or the one to go on with. */
static int open_temp(struct gfs_copy *copy, const char *temp, bool resumed, mode_t mode,
		     struct gfs_file **ret_file)
{
	unsigned flags = resumed ? GFS_O_READ | GFS_O_WRITE | GFS_O_NOFOLLOW
				 : GFS_O_WRITE | GFS_O_CREATE | GFS_O_EXCL;

	return gfs_open(copy->tool->fs, temp, flags, mode, ret_file);
}

static int write_temp(struct gfs_copy *copy, const struct gfs_copy_source *source, const char *temp,
		      bool resumed, mode_t mode)
{
	/* What is kept must be ours to open again, and nobody else's to change. */
	mode_t first = gfs_part_wanted(source) ? (mode | 0600) & ~(mode_t)022 : mode;
	struct gfs_copy_sink sink = {.write = write_grid,
				     .write_file = lend_grid,
				     .set_size = resize_grid,
				     .read = read_grid};
	struct gfs *fs = copy->tool->fs;
	struct gfs_file *file;
	uint64_t from = 0;
	int r, closed;

	r = open_temp(copy, temp, resumed, first, &file);
	if (r < 0)
		return r;
	sink.arg = file;
	if (resumed)
		r = go_on(copy, source, &sink, file, &from);
	if (r == 0)
		r = gfs_copy_bytes(copy, source, &sink, from);
	/* Writes that were held back come to light here. */
	closed = gfs_close(file);
	r = r < 0 ? r : closed;
	/* Writing takes set-id bits away. */
	if (r == 0 && (resumed || first != mode || (mode & (S_ISUID | S_ISGID))))
		r = gfs_chmod(fs, temp, mode);
	if (r == 0 && copy->preserve)
		r = gfs_utimens(fs, temp, source->attr.times, true);
	return r;
}

static int grid_write_file(struct gfs_copy *copy, const struct gfs_copy_source *source,
			   const char *to)
{
	GX_AUTOFREE char *resolved = NULL;
	GX_AUTOFREE char *temp = NULL;
	mode_t mode = wanted_mode(copy, &source->attr);
	bool keep = gfs_part_wanted(source), resumed;
	int r;

	r = check_old(copy, source, to, &resolved, &mode);
	if (r < 0)
		return r;
	to = resolved ? resolved : to;
	if (keep && copy->resume)
		r = find_part(copy, source, to, &temp);
	resumed = temp != NULL;
	if (r == 0 && !temp)
		r = keep ? gfs_part_path(copy, source, to, &temp)
			 : gfs_temp_path(copy->tool->env, to, &temp);
	if (r < 0)
		return r;
	r = write_temp(copy, source, temp, resumed, mode);
	return grid_commit(copy, temp, to, keep, r);
}

const struct gfs_copy_dest gfs_copy_dest_grid = {
	.make_dir = grid_make_dir,
	.finish_dir = grid_finish_dir,
	.make_link = grid_make_link,
	.write_file = grid_write_file,
};
