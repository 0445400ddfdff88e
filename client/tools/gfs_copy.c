#include "client/tools/gfs_copy.h"
#include "client/tools/gfs_copy_part.h"
#include "client/tools/gfs_pipe.h"
#include "common/gx_num.h"
#include "common/gx_sum.h"
#include <unistd.h>

/* -- life -------------------------------------------------------------------------------------- */

#define PIPED_MIN (4u * 1024 * 1024)

enum { OPT_RESUME = GFS_OPT_OWN, OPT_PROGRESS };

static int parse_options(struct gfs_copy *copy, struct gfs_tool *tool, int argc, char **argv)
{
	static const struct option longs[] = {{"force", no_argument, NULL, 'f'},
					      {"no-clobber", no_argument, NULL, 'n'},
					      {"preserve", no_argument, NULL, 'p'},
					      {"progress", required_argument, NULL, OPT_PROGRESS},
					      {"recursive", no_argument, NULL, 'r'},
					      {"resume", no_argument, NULL, OPT_RESUME},
					      {"verbose", no_argument, NULL, 'v'},
					      GFS_COMMON_OPTIONS,
					      {NULL, 0, NULL, 0}};
	int c;

	while ((c = gfs_tool_getopt(tool, argc, argv, "fnprRv", longs)) != -1) {
		switch (c) {
		case 'f':
			copy->force = true;
			break;
		case 'n':
			copy->no_clobber = true;
			break;
		case 'p':
			copy->preserve = true;
			break;
		case 'r':
		case 'R':
			copy->recursive = true;
			break;
		case 'v':
			copy->verbose = true;
			break;
		case OPT_RESUME:
			copy->resume = true;
			break;
		case OPT_PROGRESS:
			if (gfs_bar_parse(optarg, &copy->bar.when) < 0)
				return gfs_tool_usage(
					tool, "--progress %s: wants auto, always or never", optarg);
			break;
		default:
			return GFS_EXIT_USAGE;
		}
	}
	return 0;
}

int gfs_copy_init(struct gfs_copy *copy, struct gfs_tool *tool, int argc, char **argv,
		  const struct gfs_copy_dest *dest)
{
	int code;

	*copy = (struct gfs_copy){.tool = tool, .dest = dest};
	code = parse_options(copy, tool, argc, argv);
	if (code)
		return code;
	if (argc - optind < 2)
		return gfs_tool_usage(tool, "wants at least one source and a destination");
	copy->buf = gx_alloc_pages(GFS_COPY_BUF_BYTES);
	if (!copy->buf)
		return gfs_fail(tool->command, GFS_EXIT_FAILED, "out of memory");
	tool->progress.verb = "copied";
	tool->walks = true;
	tool->write_behind = GFS_PART_WRITE_BEHIND;
	gfs_tool_catch_signals();
	code = gfs_tool_connect(tool);
	if (code)
		free(GX_TAKE(copy->buf));
	return code;
}

int gfs_copy_finish(struct gfs_copy *copy, int r)
{
	if (r < 0 && r != -EINTR)
		gfs_tool_problem(copy->tool, "%s", gx_strerror(r));
	free(copy->buf);
	return gfs_tool_finish(copy->tool);
}

/* -- names ------------------------------------------------------------------------------------- */

/* The name has nothing of the destination's, which may be as long as a name can be. */
int gfs_temp_path(struct gx_env *env, const char *path, char **ret_temp)
{
	const char *slash = strrchr(path, '/');
	unsigned char random[8];
	char hex[2 * sizeof(random) + 1];
	int r = gx_env_random(env, random, sizeof(random));

	if (r < 0)
		return r;
	gx_hex_encode(random, sizeof(random), hex);
	if (asprintf(ret_temp, "%.*s" GFS_TEMP_PREFIX "%s", slash ? (int)(slash - path + 1) : 0,
		     path, hex) < 0)
		return -ENOMEM;
	return 0;
}

char *gfs_copy_target(const char *from, const char *to, bool into)
{
	GX_AUTOFREE char *copy = strdup(from);
	size_t bytes;
	const char *last;

	if (!copy)
		return NULL;
	bytes = strlen(copy);
	while (bytes > 1 && copy[bytes - 1] == '/')
		copy[--bytes] = '\0';
	last = strrchr(copy, '/');
	last = last ? last + 1 : copy;
	/* What has no name of its own is copied as the destination itself. */
	if (!into || !*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
		return strdup(to);
	return gfs_path_join(to, last);
}

/* -- work -------------------------------------------------------------------------------------- */

int gfs_copy_done(struct gfs_copy *copy, const char *from, const char *to, int r)
{
	if (r == -EINTR || r == -ENOMEM)
		return r;
	if (r == -EALREADY)
		return 0;
	if (r < 0 && copy->dest->local)
		gfs_tool_problem(copy->tool, "%s: %s", to, gx_strerror(r));
	else if (r < 0)
		gfs_tool_error(copy->tool, to, r);
	if (r < 0)
		return 0;
	gfs_tool_step(copy->tool);
	if (copy->verbose) {
		gfs_tool_print(copy->tool, from);
		fputs(" -> ", stdout);
		gfs_tool_print(copy->tool, to);
		putchar('\n');
	}
	return 0;
}

int gfs_copy_source_problem(struct gfs_copy *copy, const struct gfs_copy_source *source, int r)
{
	copy->cut = gfs_part_is_cut(r);
	if (r == -EINTR)
		return r;
	/* What the library says about its last failure is not about a local file. */
	if (source->local)
		gfs_tool_problem(copy->tool, "%s: %s", source->name, gx_strerror(r));
	else
		gfs_tool_error(copy->tool, source->name, r);
	return -EALREADY;
}

/* Without looking at the bytes; -EOPNOTSUPP: this part must be read. */
static int lend_part(const struct gfs_copy_source *source, const struct gfs_copy_sink *sink,
		     uint64_t at, size_t bytes)
{
	if (!source->fd || !sink->write_file || bytes != GFS_COPY_BUF_BYTES)
		return -EOPNOTSUPP;
	return sink->write_file(sink->arg, *source->fd, at);
}

/* Bytes; 0: the source has ended. */
static ssize_t copy_part(struct gfs_copy *copy, const struct gfs_copy_source *source,
			 const struct gfs_copy_sink *sink, uint64_t at, size_t bytes)
{
	ssize_t n = source->read(source->arg, copy->buf, bytes, at);
	int r;

	if (gfs_tool_interrupted())
		return -EINTR;
	if (n < 0)
		return gfs_copy_source_problem(copy, source, (int)n);
	if (n == 0)
		return 0;
	r = sink->write(sink->arg, copy->buf, (size_t)n, at);
	return r < 0 ? r : n;
}

/* From *at on, to `end` or the end of the source: 1, if that came first. Its parts end where
 * pieces do. */
static int copy_plain(struct gfs_copy *copy, const struct gfs_copy_source *source,
		      const struct gfs_copy_sink *sink, uint64_t *at, uint64_t end)
{
	while (*at < end) {
		size_t bytes =
			(size_t)GX_MIN(GFS_COPY_BUF_BYTES - *at % GFS_COPY_BUF_BYTES, end - *at);
		ssize_t n = end == UINT64_MAX ? -EOPNOTSUPP : lend_part(source, sink, *at, bytes);

		if (gfs_tool_interrupted())
			return -EINTR;
		if (n == 0)
			n = (ssize_t)bytes;
		else if (n == -EOPNOTSUPP)
			n = copy_part(copy, source, sink, *at, bytes);
		if (n <= 0)
			return n < 0 ? (int)n : 1;
		*at += (uint64_t)n;
		gfs_bar_step(&copy->bar, copy->tool, *at);
	}
	return 0;
}

static bool pipe_step(void *arg, uint64_t at)
{
	struct gfs_copy *copy = arg;

	gfs_bar_step(&copy->bar, copy->tool, at);
	return gfs_tool_interrupted();
}

/* The same, with reading and writing at the same time. -EAGAIN: that cannot be done. */
static int copy_piped(struct gfs_copy *copy, const struct gfs_copy_source *source,
		      const struct gfs_copy_sink *sink, uint64_t *at, uint64_t end)
{
	struct gfs_pipe_ends ends = {
		.read = source->read,
		.read_arg = source->arg,
		.write = sink->write,
		.write_arg = sink->arg,
		.read_here = !source->local,
		.step = pipe_step,
		.step_arg = copy,
	};
	struct gfs_pipe_result result;
	int r = gfs_pipe_run(copy->tool->env, &ends, *at, end, &result);

	if (r < 0 && r != -EINTR)
		return -EAGAIN;
	*at = result.at;
	if (r == 0)
		r = result.write_err;
	if (r == 0 && result.read_err < 0)
		r = gfs_copy_source_problem(copy, source, result.read_err);
	return r < 0 ? r : result.ended;
}

static int copy_range(struct gfs_copy *copy, const struct gfs_copy_source *source,
		      const struct gfs_copy_sink *sink, uint64_t *at, uint64_t end)
{
	/* One side must be local (gfs_pipe.h), and the rest worth a thread; lending needs none. */
	bool lent = source->fd && sink->write_file;
	bool piped = !lent && source->local != copy->dest->local &&
		     source->attr.size != UINT64_MAX && source->attr.size > *at &&
		     source->attr.size - *at >= PIPED_MIN && end - *at >= PIPED_MIN;
	int r = piped ? copy_piped(copy, source, sink, at, end) : -EAGAIN;

	return r == -EAGAIN ? copy_plain(copy, source, sink, at, end) : r;
}

/* Data by data; what is between is left out. */
static int copy_sparse(struct gfs_copy *copy, const struct gfs_copy_source *source,
		       const struct gfs_copy_sink *sink, uint64_t at)
{
	int64_t end, now, hole_end = -1;
	int r = 0;

	do {
		int64_t data, hole;

		/* First the end: behind the last data is a hole up to here, whatever is added now.
		 */
		end = source->seek(source->arg, 0, SEEK_END);
		data = end < 0 ? end : source->seek(source->arg, (int64_t)at, SEEK_DATA);
		/* A hole, or cut in between? What is a hole is the same when asked again. */
		if (data == -ENXIO && (end <= (int64_t)at || end == hole_end))
			break;
		hole_end = data == -ENXIO ? end : -1;
		if (data == -ENXIO)
			continue;
		hole = data < 0 ? data : source->seek(source->arg, data, SEEK_HOLE);
		if (hole < 0)
			return gfs_copy_source_problem(copy, source, (int)hole);
		at = (uint64_t)data;
		r = copy_range(copy, source, sink, &at, (uint64_t)hole);
	} while (r == 0);
	if (r < 0)
		return r;
	/* It may have been cut meanwhile. */
	now = source->seek(source->arg, 0, SEEK_END);
	if (now < 0)
		return gfs_copy_source_problem(copy, source, (int)now);
	end = r > 0 || (uint64_t)now < at ? GX_MIN(now, (int64_t)at) : end;
	return (uint64_t)end != at ? sink->set_size(sink->arg, (uint64_t)end) : 0;
}

int gfs_copy_bytes(struct gfs_copy *copy, const struct gfs_copy_source *source,
		   const struct gfs_copy_sink *sink, uint64_t from)
{
	uint64_t at = from;
	int r;

	copy->cut = false;
	gfs_bar_begin(&copy->bar, copy->tool, source->name, source->attr.size, from);
	/* A small file is inline: asking for its holes would cost more than it could save. */
	if (source->seek && sink->set_size && source->attr.size > GX_INLINE_MAX)
		r = copy_sparse(copy, source, sink, from);
	else
		r = copy_range(copy, source, sink, &at, UINT64_MAX);
	gfs_bar_end(&copy->bar, copy->tool);
	return r < 0 ? r : 0;
}

/* -- from the grid ----------------------------------------------------------------------------- */

static struct gfs_copy_attr attr_of(const struct gfs_stat *st)
{
	return (struct gfs_copy_attr){
		.mode = st->mode,
		.times = {st->atime, st->mtime},
		.ino = st->ino,
		.size = st->size,
	};
}

static ssize_t read_grid(void *arg, void *buf, size_t bytes, uint64_t offset)
{
	return gfs_pread(arg, buf, bytes, offset);
}

static int64_t seek_grid(void *arg, int64_t offset, int whence)
{
	return gfs_lseek(arg, offset, whence);
}

/* Not the generation: it may move without a change, after a writer that has vanished. */
static uint64_t identity_of(const struct gfs_stat *st)
{
	uint64_t said[] = {st->ino, st->size, (uint64_t)st->mtime.tv_sec,
			   (uint64_t)st->mtime.tv_nsec};

	return gx_sum64(said, sizeof(said)) | 1;
}

int gfs_copy_open(struct gfs_copy *copy, const char *from, struct gfs_file **ret_file,
		  struct gfs_copy_source *ret_source)
{
	struct gfs_file *file;
	struct gfs_stat st;
	int r = gfs_open(copy->tool->fs, from, GFS_O_READ, 0, &file);

	if (r == 0) {
		r = gfs_fstat(file, &st);
		if (r < 0)
			GX_IGNORE(gfs_close(file)); /* nothing was written */
	}
	if (r < 0)
		return gfs_tool_error(copy->tool, from, r);
	*ret_source = (struct gfs_copy_source){.name = from,
					       .attr = attr_of(&st),
					       .identity = identity_of(&st),
					       .read = read_grid,
					       .seek = seek_grid,
					       .arg = file};
	*ret_file = file;
	return 0;
}

static int copy_file(struct gfs_copy *copy, const char *from, const char *to)
{
	struct gfs_copy_source source;
	struct gfs_file *file;
	int r;

	if (gfs_copy_open(copy, from, &file, &source) < 0)
		return 0;
	r = copy->dest->write_file(copy, &source, to);
	GX_IGNORE(gfs_close(file)); /* nothing was written */
	return gfs_copy_done(copy, from, to, r);
}

static int copy_link(struct gfs_copy *copy, const struct gfs_walk_item *item, const char *to)
{
	struct gfs_copy_attr attr = attr_of(item->st);
	char target[GFS_PATH_MAX];
	int r = gfs_link_target(copy->tool->fs, item->path, target);

	if (r < 0) {
		gfs_tool_error(copy->tool, item->path, r);
		return 0;
	}
	return gfs_copy_done(copy, item->path, to, copy->dest->make_link(copy, target, to, &attr));
}

struct tree {
	struct gfs_copy *copy;
	const char *to;
};

static int enter_dir(struct gfs_copy *copy, const struct gfs_walk_item *item, const char *to)
{
	struct gfs_copy_attr attr = attr_of(item->st);
	struct gfs_stat st;
	int r;

	/* The copy itself, seen on the way: without this it would never end. */
	if (item->st->ino == copy->dest_root_ino && item->depth > 0) {
		gfs_tool_problem(copy->tool, "%s: left out: it is the copy", item->path);
		return GFS_WALK_SKIP;
	}
	r = copy->dest->make_dir(copy, to, &attr, item->depth == 0);
	if (r == 0 && item->depth == 0 && !copy->dest->local) {
		r = gfs_stat(copy->tool->fs, to, &st);
		copy->dest_root_ino = r == 0 ? st.ino : 0;
		if (r == 0 && st.ino == item->st->ino) {
			gfs_tool_problem(copy->tool, "%s and %s are the same", item->path, to);
			return GFS_WALK_SKIP;
		}
	}
	if (r == 0)
		return 0;
	r = gfs_copy_done(copy, item->path, to, r);
	return r < 0 ? r : GFS_WALK_SKIP;
}

static int tree_visit(void *arg, enum gfs_visit visit, const struct gfs_walk_item *item)
{
	struct tree *tree = arg;
	struct gfs_copy *copy = tree->copy;
	struct gfs_copy_attr attr = attr_of(item->st);
	GX_AUTOFREE char *to =
		*item->below ? gfs_path_join(tree->to, item->below) : strdup(tree->to);

	if (!to)
		return -ENOMEM;
	if (visit == GFS_VISIT_ENTER)
		return enter_dir(copy, item, to);
	if (visit == GFS_VISIT_LEAVE)
		return gfs_copy_done(copy, item->path, to, copy->dest->finish_dir(copy, to, &attr));
	if (S_ISLNK(item->st->mode))
		return copy_link(copy, item, to);
	if (S_ISREG(item->st->mode))
		return copy_file(copy, item->path, to);
	gfs_tool_problem(copy->tool, "%s: left out: not a file, directory or link", item->path);
	return 0;
}

int gfs_copy_from_grid(struct gfs_copy *copy, const char *from, const char *to)
{
	struct tree tree = {.copy = copy, .to = to};
	struct gfs_stat st;
	int r;

	if (copy->recursive) {
		copy->dest_root_ino = 0;
		return gfs_walk(copy->tool, from, false, tree_visit, &tree);
	}
	r = gfs_stat(copy->tool->fs, from, &st);
	if (r < 0) {
		gfs_tool_error(copy->tool, from, r);
		return 0;
	}
	if (S_ISREG(st.mode))
		return copy_file(copy, from, to);
	gfs_tool_problem(copy->tool, "%s: %s", from,
			 S_ISDIR(st.mode) ? "is a directory (see -r)" : "is not a file");
	return 0;
}
