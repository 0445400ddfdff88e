/*
 * Copies onto this machine: the destination of gfs get.
 *
 * What gx_env has goes through it; links, permissions and times of local files it does not have.
 */
#include "client/tools/gfs_copy_part.h"
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

static int local_lstat(const char *path, struct stat *ret_st)
{
	return lstat(path, ret_st) < 0 ? gx_errno() : 0;
}

/* As in gfs_copy_grid.c, but set-id bits of the grid mean nothing here: its users are others. */
static mode_t wanted_mode(const struct gfs_copy *copy, const struct gfs_copy_attr *attr)
{
	return copy->preserve ? attr->mode & 01777 : attr->mode & 0777 & ~copy->tool->umask;
}

static mode_t filling_mode(const struct gfs_copy *copy, const struct gfs_copy_attr *attr)
{
	return copy->preserve ? 0700 : wanted_mode(copy, attr) | 0700;
}

static int local_make_dir(struct gfs_copy *copy, const char *to, const struct gfs_copy_attr *attr,
			  bool top)
{
	int r = gx_env_mkdir(copy->tool->env, to, filling_mode(copy, attr));
	struct stat st;

	if (r != -EEXIST)
		return r;
	/*
	 * Below the top a link is not followed: the grid could have made it a link in an earlier
	 * copy and a directory now, and so write where the user never meant.
	 */
	r = top ? gx_env_stat(copy->tool->env, to, &st) : local_lstat(to, &st);
	if (r < 0)
		return r;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

static int local_finish_dir(struct gfs_copy *copy, const char *to, const struct gfs_copy_attr *attr)
{
	mode_t mode = wanted_mode(copy, attr);
	struct stat st;
	int r = 0;

	if (mode != filling_mode(copy, attr)) {
		r = gx_env_stat(copy->tool->env, to, &st);
		if (r == 0 &&
		    (copy->preserve || (st.st_mode & 07777) == filling_mode(copy, attr)) &&
		    chmod(to, mode) < 0)
			r = gx_errno();
	}
	if (r == 0 && copy->preserve && utimensat(AT_FDCWD, to, attr->times, 0) < 0)
		r = gx_errno();
	return r;
}

static int local_commit(struct gfs_copy *copy, const char *temp, const char *to, bool keep, int r)
{
	if (r == 0)
		r = gx_env_rename(copy->tool->env, temp, to);
	if (r < 0 && !(keep && gfs_part_kept(copy, to, r)))
		GX_IGNORE(gx_env_unlink(copy->tool->env, temp)); /* r says what went wrong */
	return r;
}

static int local_make_link(struct gfs_copy *copy, const char *target, const char *to,
			   const struct gfs_copy_attr *attr)
{
	GX_AUTOFREE char *temp = NULL;
	struct stat st;
	int r = local_lstat(to, &st);

	if (r == 0 && copy->no_clobber)
		return -EALREADY;
	if (r == 0 && S_ISDIR(st.st_mode))
		return -EISDIR;
	if (r < 0 && r != -ENOENT)
		return r;
	r = gfs_temp_path(copy->tool->env, to, &temp);
	if (r < 0)
		return r;
	if (symlink(target, temp) < 0)
		return gx_errno();
	if (copy->preserve && utimensat(AT_FDCWD, temp, attr->times, AT_SYMLINK_NOFOLLOW) < 0)
		r = gx_errno();
	return local_commit(copy, temp, to, false, r);
}

/* As in gfs_copy_grid.c. */
static int check_old(struct gfs_copy *copy, const char *to, char **ret_to, mode_t *mode)
{
	struct stat st;
	int r = local_lstat(to, &st);
	bool link = r == 0 && S_ISLNK(st.st_mode);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	if (copy->no_clobber)
		return -EALREADY;
	if (link)
		r = gx_env_stat(copy->tool->env, to, &st);
	if (r == 0 && S_ISDIR(st.st_mode))
		r = -EISDIR;
	if (r == 0 && !copy->force && access(to, W_OK) < 0)
		r = gx_errno();
	if (r == 0 && link) {
		*ret_to = realpath(to, NULL);
		r = *ret_to ? 0 : gx_errno();
	}
	if (r == 0 && !copy->preserve && S_ISREG(st.st_mode))
		*mode = st.st_mode & 07777;
	return r;
}

struct local_file {
	struct gx_env *env;
	int fd;
};

static int write_local(void *arg, const void *buf, size_t bytes, uint64_t offset)
{
	struct local_file *file = arg;

	return gx_env_pwrite(file->env, file->fd, buf, bytes, offset);
}

static int resize_local(void *arg, uint64_t size)
{
	struct local_file *file = arg;

	return gx_env_ftruncate(file->env, file->fd, size);
}

static ssize_t read_local(void *arg, void *buf, size_t bytes, uint64_t offset)
{
	struct local_file *file = arg;

	return gx_env_pread(file->env, file->fd, buf, bytes, offset);
}

/* -- what a cut copy has left ------------------------------------------------------------------ */

static bool is_ours(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid() && st->st_nlink == 1 &&
	       (st->st_mode & 022) == 0;
}

static int look_at(DIR *dir, const char *name, struct gfs_part_search *search)
{
	struct gfs_part_seen seen = {.name = name};
	enum gfs_part_fate fate;
	struct stat st;
	int r;

	if (strncmp(name, search->names.of_dest, strlen(search->names.of_dest)) != 0 ||
	    fstatat(dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	seen.ours = is_ours(&st);
	seen.size = (uint64_t)st.st_size;
	seen.mtime = st.st_mtim;
	r = gfs_part_look(search, &seen, &fate);
	if (r == 0 && fate == GFS_PART_GOES)
		GX_IGNORE(unlinkat(dirfd(dir), name, 0)); /* then it stays for another time */
	return r;
}

/* The part to go on with; *ret_temp stays NULL if there is none. */
static int find_part(struct gfs_copy *copy, const struct gfs_copy_source *source, const char *to,
		     char **ret_temp)
{
	GX_AUTOFREE char *dir = gfs_part_dir(to);
	struct gfs_part_search search = {.best = NULL};
	struct dirent *entry;
	DIR *list;
	int r = 0;

	if (!dir)
		return -ENOMEM;
	list = opendir(*dir ? dir : ".");
	if (!list)
		return gx_errno();
	gfs_part_names(copy, source, to, &search.names);
	clock_gettime(CLOCK_REALTIME, &search.now);
	while (r == 0 && (entry = readdir(list)))
		r = look_at(list, entry->d_name, &search);
	closedir(list);
	if (r == 0 && search.best && asprintf(ret_temp, "%s%s", dir, search.best) < 0) {
		*ret_temp = NULL;
		r = -ENOMEM;
	}
	free(search.best);
	return r;
}

/* -- files ------------------------------------------------------------------------------------- */

/* How much of what is there counts; the rest is cut off. */
static int go_on(struct gfs_copy *copy, const struct gfs_copy_source *source,
		 const struct gfs_copy_sink *sink, struct local_file *file, uint64_t *ret_from)
{
	struct stat st;
	int r = gx_env_fstat(file->env, file->fd, &st);

	if (r == 0 && !is_ours(&st))
		r = -EPERM;
	if (r == 0)
		r = gfs_part_check(copy, source, sink, (uint64_t)st.st_size, ret_from);
	if (r == 0 && (uint64_t)st.st_size > *ret_from)
		r = resize_local(file, *ret_from);
	return r;
}

static int write_temp(struct gfs_copy *copy, const struct gfs_copy_source *source, const char *temp,
		      bool resumed, mode_t mode)
{
	struct local_file file = {.env = copy->tool->env};
	struct gfs_copy_sink sink = {
		.write = write_local, .set_size = resize_local, .read = read_local, .arg = &file};
	int flags = resumed ? O_RDWR | O_NOFOLLOW : O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
	uint64_t from = 0;
	int r = 0;

	/* Nobody else may read it before it has its final mode. */
	file.fd = gx_env_open(file.env, temp, flags, 0600);
	if (file.fd < 0)
		return file.fd;
	if (resumed)
		r = go_on(copy, source, &sink, &file, &from);
	if (r == 0)
		r = gfs_copy_bytes(copy, source, &sink, from);
	if (r == 0 && fchmod(file.fd, mode) < 0)
		r = gx_errno();
	if (r == 0 && copy->preserve && futimens(file.fd, source->attr.times) < 0)
		r = gx_errno();
	/* A network filesystem may keep its bad news for this. */
	if (r == 0)
		r = gx_env_close(file.env, file.fd);
	else
		gx_env_close(file.env, file.fd);
	return r;
}

static int write_stream(void *arg, const void *buf, size_t bytes, uint64_t offset GX_UNUSED)
{
	return fwrite(buf, 1, bytes, arg) == bytes ? 0 : gx_errno();
}

/* A pipe or a device is written to, never replaced. */
static int write_special(struct gfs_copy *copy, const struct gfs_copy_source *source,
			 const char *to)
{
	struct gfs_copy_sink sink = {.write = write_stream};
	FILE *out = fopen(to, "we");
	int r;

	if (!out)
		return gx_errno();
	sink.arg = out;
	r = gfs_copy_bytes(copy, source, &sink, 0);
	if (fclose(out) != 0 && r == 0)
		r = gx_errno();
	return r;
}

static int local_write_file(struct gfs_copy *copy, const struct gfs_copy_source *source,
			    const char *to)
{
	GX_AUTOFREE char *resolved = NULL;
	GX_AUTOFREE char *temp = NULL;
	mode_t mode = wanted_mode(copy, &source->attr);
	bool keep = gfs_part_wanted(source), resumed;
	struct stat st;
	int r = check_old(copy, to, &resolved, &mode);

	if (r < 0)
		return r;
	to = resolved ? resolved : to;
	if (local_lstat(to, &st) == 0 && !S_ISREG(st.st_mode))
		return write_special(copy, source, to);
	if (keep && copy->resume)
		r = find_part(copy, source, to, &temp);
	resumed = temp != NULL;
	if (r == 0 && !temp)
		r = keep ? gfs_part_path(copy, source, to, &temp)
			 : gfs_temp_path(copy->tool->env, to, &temp);
	if (r < 0)
		return r;
	r = write_temp(copy, source, temp, resumed, mode);
	return local_commit(copy, temp, to, keep, r);
}

const struct gfs_copy_dest gfs_copy_dest_local = {
	.make_dir = local_make_dir,
	.finish_dir = local_finish_dir,
	.make_link = local_make_link,
	.write_file = local_write_file,
	.local = true,
};
