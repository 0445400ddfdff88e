#include "client/tools/gfs_copy_part.h"
#include "common/gx_num.h"
#include "common/gx_sum.h"
#include <fcntl.h>
#include <unistd.h>

#define BOOT_FILE "/proc/sys/kernel/random/boot_id"
#define BOOT_TEXT_BYTES 36u
#define ALIGN_BYTES UINT64_C(4096) /* a copy that goes on does so at a block */

/* -- names ------------------------------------------------------------------------------------- */

bool gfs_part_wanted(const struct gfs_copy_source *source)
{
	return source->identity != 0 && source->seek && source->attr.size != UINT64_MAX &&
	       source->attr.size > GFS_PART_MIN;
}

bool gfs_part_is_cut(int err)
{
	switch (-err) {
	case EINTR:
	case EHOSTUNREACH:
	case ETIMEDOUT:
	case ENOTRECOVERABLE:
	case ECONNRESET:
	case ECONNREFUSED:
	case EPIPE:
		return true;
	default:
		return false;
	}
}

bool gfs_part_kept(struct gfs_copy *copy, const char *to, int err)
{
	if (!gfs_part_is_cut(err) && !(err == -EALREADY && copy->cut))
		return false;
	gfs_tool_problem(copy->tool, "%s: cut; the same command with --resume goes on from there",
			 to);
	return true;
}

/* What is in the page cache is there as long as the machine runs. 0: not known. */
static uint64_t boot_of_machine(struct gx_env *env)
{
	char text[BOOT_TEXT_BYTES];
	int fd = gx_env_open(env, BOOT_FILE, O_RDONLY, 0);
	ssize_t n;

	if (fd < 0)
		return 0;
	n = gx_env_pread(env, fd, text, sizeof(text), 0);
	GX_IGNORE(gx_env_close(env, fd));
	return n == (ssize_t)sizeof(text) ? gx_sum64(text, sizeof(text)) : 0;
}

static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

char *gfs_part_dir(const char *to)
{
	return strndup(to, (size_t)(last_name(to) - to));
}

void gfs_part_names(struct gfs_copy *copy, const struct gfs_copy_source *source, const char *to,
		    struct gfs_part_names *ret_names)
{
	const char *name = last_name(to);
	uint64_t said[2] = {source->identity,
			    copy->dest->local ? boot_of_machine(copy->tool->env) : 0};
	unsigned long long dest = gx_sum64(name, strlen(name));

	/* Both fit. */
	GX_IGNORE(gx_format(ret_names->of_dest, sizeof(ret_names->of_dest),
			    GFS_TEMP_PREFIX "%016llx-", dest));
	GX_IGNORE(gx_format(ret_names->of_source, sizeof(ret_names->of_source),
			    GFS_TEMP_PREFIX "%016llx-%016llx-", dest,
			    (unsigned long long)gx_sum64(said, sizeof(said))));
}

int gfs_part_path(struct gfs_copy *copy, const struct gfs_copy_source *source, const char *to,
		  char **ret_path)
{
	GX_AUTOFREE char *dir = gfs_part_dir(to);
	struct gfs_part_names names;
	unsigned char random[4];
	char hex[2 * sizeof(random) + 1];
	int r = gx_env_random(copy->tool->env, random, sizeof(random));

	if (r < 0 || !dir)
		return r < 0 ? r : -ENOMEM;
	gfs_part_names(copy, source, to, &names);
	gx_hex_encode(random, sizeof(random), hex);
	return asprintf(ret_path, "%s%s%s", dir, names.of_source, hex) < 0 ? -ENOMEM : 0;
}

/* -- finding ----------------------------------------------------------------------------------- */

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

int gfs_part_look(struct gfs_part_search *search, const struct gfs_part_seen *seen,
		  enum gfs_part_fate *ret_fate)
{
	char *name;

	*ret_fate = GFS_PART_STAYS;
	if (!seen->ours || !begins(seen->name, search->names.of_dest))
		return 0;
	if (!begins(seen->name, search->names.of_source)) {
		/* The source has changed since. But another copy may be at work. */
		if (seen->mtime.tv_sec < search->now.tv_sec - GFS_PART_OLD_SEC)
			*ret_fate = GFS_PART_GOES;
		return 0;
	}
	if (search->best && seen->size <= search->best_size)
		return 0;
	name = strdup(seen->name);
	if (!name)
		return -ENOMEM;
	free(search->best);
	search->best = name;
	search->best_size = seen->size;
	*ret_fate = GFS_PART_TAKEN;
	return 0;
}

/* -- checking ---------------------------------------------------------------------------------- */

/* Bytes of the piece at `at` that both have; less than `bytes`: there they differ. */
static ssize_t compare_piece(struct gfs_copy *copy, const struct gfs_copy_source *source,
			     const struct gfs_copy_sink *sink, char *other, size_t bytes,
			     uint64_t at)
{
	ssize_t ours = sink->read(sink->arg, other, bytes, at);
	ssize_t theirs = source->read(source->arg, copy->buf, bytes, at);
	size_t same = 0, both;

	if (theirs < 0)
		return theirs;
	/* What cannot be read is copied again. */
	both = (size_t)GX_MIN(GX_MAX(ours, 0), theirs);
	if (memcmp(other, copy->buf, both) == 0)
		return (ssize_t)both;
	while (other[same] == copy->buf[same])
		same++;
	return (ssize_t)same;
}

/* How far both have the same, from `at` on. */
static int compare(struct gfs_copy *copy, const struct gfs_copy_source *source,
		   const struct gfs_copy_sink *sink, uint64_t at, uint64_t end, uint64_t *ret_same)
{
	GX_AUTOFREE char *other = gx_alloc_pages(GFS_COPY_BUF_BYTES);

	if (!other)
		return -ENOMEM;
	while (at < end) {
		size_t bytes = (size_t)GX_MIN((uint64_t)GFS_COPY_BUF_BYTES, end - at);
		ssize_t n = compare_piece(copy, source, sink, other, bytes, at);

		if (gfs_tool_interrupted())
			return -EINTR;
		if (n < 0)
			return gfs_copy_source_problem(copy, source, (int)n);
		at += (uint64_t)n;
		if ((size_t)n < bytes)
			break;
	}
	*ret_same = at;
	return 0;
}

int gfs_part_check(struct gfs_copy *copy, const struct gfs_copy_source *source,
		   const struct gfs_copy_sink *sink, uint64_t size, uint64_t *ret_from)
{
	uint64_t end = GX_MIN(size, source->attr.size), from = 0, same = 0;
	int64_t hole = source->seek(source->arg, 0, SEEK_HOLE);
	int r;

	/* Writes that were skipped for a hole say nothing about how far the others came. */
	if (hole >= 0 && (uint64_t)hole >= end && end > GFS_PART_CHECK)
		from = (end - GFS_PART_CHECK) & ~(ALIGN_BYTES - 1);
	r = compare(copy, source, sink, from, end, &same);
	if (r < 0)
		return r;
	/* Not even the first block of it is right: then what is before it may not be, either. */
	if (same < from + ALIGN_BYTES && same < end)
		same = 0;
	*ret_from = same & ~(ALIGN_BYTES - 1);
	return 0;
}
