/*
 * gfs put - local files into the grid.
 *
 * Local files are read with read(2), not through gx_env: pipes and standard input are read alike.
 */
#include "client/tools/gfs_copy.h"
#include "common/gx_sum.h"
#include <fcntl.h>
#include <fts.h>
#include <unistd.h>

static const char help[] =
	"Usage: gfs put [OPTION]... LOCAL REMOTE\n"
	"       gfs put [OPTION]... LOCAL... DIRECTORY\n"
	"Copies local files into the grid; LOCAL \"-\" is standard input. A file appears at\n"
	"its destination when it is complete.\n\n"
	"Options:\n" GFS_COPY_HELP GFS_COMMON_HELP;

/* Pipes and the like. */
static ssize_t read_stream(void *arg, void *buf, size_t bytes, uint64_t offset GX_UNUSED)
{
	const int *fd = arg;
	ssize_t n;

	do
		n = read(*fd, buf, bytes);
	while (n < 0 && errno == EINTR && !gfs_tool_interrupted());
	return n < 0 ? gx_errno() : n;
}

static ssize_t read_file(void *arg, void *buf, size_t bytes, uint64_t offset)
{
	const int *fd = arg;
	ssize_t n;

	do
		n = pread(*fd, buf, bytes, (off_t)offset);
	while (n < 0 && errno == EINTR && !gfs_tool_interrupted());
	return n < 0 ? gx_errno() : n;
}

static int64_t seek_file(void *arg, int64_t offset, int whence)
{
	const int *fd = arg;
	off_t position = lseek(*fd, offset, whence);

	return position < 0 ? gx_errno() : position;
}

static uint64_t identity_of(const struct stat *st)
{
	uint64_t said[] = {st->st_dev, st->st_ino, (uint64_t)st->st_size,
			   (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec};

	return gx_sum64(said, sizeof(said)) | 1;
}

static void local_problem(struct gfs_copy *copy, const char *path, int err)
{
	gfs_tool_problem(copy->tool, "%s: %s", path, gx_strerror(err));
}

static struct gfs_copy_attr attr_of(const struct stat *st)
{
	return (struct gfs_copy_attr){
		.mode = st->st_mode,
		.times = {st->st_atim, st->st_mtim},
		.size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : UINT64_MAX,
	};
}

static int put_fd(struct gfs_copy *copy, const char *from, int fd, const char *to)
{
	struct gfs_copy_source source = {
		.name = from, .local = true, .read = read_stream, .arg = &fd};
	struct stat st;
	int r = gx_env_fstat(copy->tool->env, fd, &st);

	if (r < 0) {
		local_problem(copy, from, r);
		return 0;
	}
	if (S_ISDIR(st.st_mode)) {
		gfs_tool_problem(copy->tool, "%s: is a directory (see -r)", from);
		return 0;
	}
	source.attr = attr_of(&st);
	if (!S_ISREG(st.st_mode)) {
		/* The mode of a pipe says nothing about a file made from it. */
		source.attr.mode = 0666;
	} else if (fd != STDIN_FILENO) {
		/* Standard input may have been read in part: it goes on from there. */
		source.identity = identity_of(&st);
		source.read = read_file;
		source.seek = seek_file;
		source.fd = &fd;
	}
	return gfs_copy_done(copy, from, to, copy->dest->write_file(copy, &source, to));
}

static int put_file(struct gfs_copy *copy, const char *from, const char *to)
{
	int fd = gx_env_open(copy->tool->env, from, O_RDONLY, 0);
	int r;

	if (fd < 0) {
		local_problem(copy, from, fd);
		return 0;
	}
	r = put_fd(copy, from, fd, to);
	gx_env_close(copy->tool->env, fd);
	return r;
}

/* -- trees ------------------------------------------------------------------------------------- */

static int put_link(struct gfs_copy *copy, const char *from, const struct stat *st, const char *to)
{
	struct gfs_copy_attr attr = attr_of(st);
	char target[GFS_PATH_MAX];
	ssize_t n = readlink(from, target, sizeof(target));

	if (n < 0 || (size_t)n >= sizeof(target)) {
		local_problem(copy, from, n < 0 ? gx_errno() : -ENAMETOOLONG);
		return 0;
	}
	target[n] = '\0';
	return gfs_copy_done(copy, from, to, copy->dest->make_link(copy, target, to, &attr));
}

/* One station of the local walk; `to` belongs to it. */
static int put_entry(struct gfs_copy *copy, FTS *fts, FTSENT *entry, const char *to)
{
	struct gfs_copy_attr attr;
	int r;

	switch (entry->fts_info) {
	case FTS_D:
		attr = attr_of(entry->fts_statp);
		r = copy->dest->make_dir(copy, to, &attr, entry->fts_level == FTS_ROOTLEVEL);
		if (r == 0)
			return 0;
		/* Its LEAVE would set the mode of something that is not ours. */
		fts_set(fts, entry, FTS_SKIP);
		entry->fts_number = 1;
		return gfs_copy_done(copy, entry->fts_path, to, r);
	case FTS_DP:
		if (entry->fts_number)
			return 0;
		attr = attr_of(entry->fts_statp);
		return gfs_copy_done(copy, entry->fts_path, to,
				     copy->dest->finish_dir(copy, to, &attr));
	case FTS_F:
		return put_file(copy, entry->fts_accpath, to);
	case FTS_SL:
	case FTS_SLNONE:
		return put_link(copy, entry->fts_accpath, entry->fts_statp, to);
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		local_problem(copy, entry->fts_path, entry->fts_errno);
		return 0;
	default:
		gfs_tool_problem(copy->tool, "%s: left out: not a file, directory or link",
				 entry->fts_path);
		return 0;
	}
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int put_tree(struct gfs_copy *copy, char *from, const char *to)
{
	char *roots[] = {from, NULL};
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
	size_t from_bytes = strlen(from);
	FTSENT *entry;
	int r = 0;

	if (!fts)
		return gx_errno();
	while (r == 0 && (entry = fts_read(fts))) {
		const char *below = entry->fts_path + from_bytes;
		GX_AUTOFREE char *target = NULL;

		below += strspn(below, "/");
		target = *below ? gfs_path_join(to, below) : strdup(to);
		r = target ? put_entry(copy, fts, entry, target) : -ENOMEM;
		if (r == 0 && gfs_tool_interrupted())
			r = -EINTR;
	}
	fts_close(fts);
	return r;
}

/* -- the command line -------------------------------------------------------------------------- */

static int put_one(struct gfs_copy *copy, char *from, const char *to)
{
	if (strcmp(from, "-") == 0)
		return put_fd(copy, "standard input", STDIN_FILENO, to);
	return copy->recursive ? put_tree(copy, from, to) : put_file(copy, from, to);
}

static int put_all(struct gfs_copy *copy, int count, char **from, char *to)
{
	struct gfs_stat st;
	bool into = gfs_stat(copy->tool->fs, to, &st) == 0 && S_ISDIR(st.mode);
	int r = 0;

	if (!into && (count > 1 || (gfs_path_wants_dir(to) && !copy->recursive))) {
		gfs_tool_error(copy->tool, to, -ENOTDIR);
		return 0;
	}
	gfs_path_cut_slash(to);
	for (int i = 0; r == 0 && i < count; i++) {
		bool has_name = strcmp(from[i], "-") != 0;
		GX_AUTOFREE char *target = gfs_copy_target(from[i], to, into && has_name);

		r = target ? put_one(copy, from[i], target) : -ENOMEM;
	}
	return r;
}

int gfs_put_main(struct gx_env *env, int argc, char **argv)
{
	GX_AUTOFREE char *to = NULL;
	struct gfs_tool tool;
	struct gfs_copy copy;
	int code, r;

	gfs_tool_init(&tool, env, "put", help);
	code = gfs_copy_init(&copy, &tool, argc, argv, &gfs_copy_dest_grid);
	if (code)
		return code;
	to = gfs_path_clean(argv[argc - 1]);
	r = to ? put_all(&copy, argc - optind - 1, argv + optind, to) : -ENOMEM;
	return gfs_copy_finish(&copy, r);
}
