/*
 * gfs_copy_part.h - files that are half copied: how they are called, found and gone on with.
 *
 * A copy of a file of more than GFS_PART_MIN bytes is written under the name
 *
 *	.gfs-tmp-<destination>-<source>-<random>
 *
 * beside its destination, where <destination> is a sum of its name and <source> one of what says
 * that the content is the same (size, time of change, inode …). Two copies at a time never meet,
 * because of the random part. If one is cut, another with --resume takes the longest that there is
 * for the same two, looks whether what is there is what the source has, and goes on.
 *
 * Looks: not at all of it, which would take as long as a new copy. Writing is from front to back.
 * What is in a file of the grid is on a disk but for the last GFS_PART_WRITE_BEHIND bytes, whatever
 * was cut; a local file is what was written to it as long as the machine runs, and <source> has the
 * number of its boot. So the end is compared with the source, GFS_PART_CHECK bytes of it, and where
 * it differs the copy goes on. A file with holes is compared from the beginning.
 */
#ifndef GFS_COPY_PART_H
#define GFS_COPY_PART_H

#include "client/tools/gfs_copy.h"

#define GFS_PART_MIN (1024u * 1024)
#define GFS_PART_WRITE_BEHIND (64u * 1024 * 1024)
#define GFS_PART_CHECK (2 * (uint64_t)GFS_PART_WRITE_BEHIND)
#define GFS_PART_OLD_SEC 3600 /* nobody is at work on it any more */

/* Worth keeping if it is cut. */
bool gfs_part_wanted(const struct gfs_copy_source *source);
/* Cut, and not wrong: a copy that fails so can go on later. */
bool gfs_part_is_cut(int err);
/* The copy to `to` has ended so, which is told. */
bool gfs_part_kept(struct gfs_copy *copy, const char *to, int err);

struct gfs_part_names {
	char of_dest[64];   /* how the names of all parts for this destination begin */
	char of_source[64]; /* of those with the same content */
};
void gfs_part_names(struct gfs_copy *copy, const struct gfs_copy_source *source, const char *to,
		    struct gfs_part_names *ret_names);
/* A new one. */
GX_MUST_CHECK int gfs_part_path(struct gfs_copy *copy, const struct gfs_copy_source *source,
				const char *to, char **ret_path);

/* What a directory has; `ours`: a file of the user, that nobody else may write. */
struct gfs_part_seen {
	const char *name;
	bool ours;
	uint64_t size;
	struct timespec mtime;
};
struct gfs_part_search {
	struct gfs_part_names names;
	struct timespec now;
	char *best; /* name; owned; NULL: none */
	uint64_t best_size;
};
enum gfs_part_fate { GFS_PART_STAYS, GFS_PART_TAKEN, GFS_PART_GOES, GFS_PART_FATE_COUNT };
/* Goes: a part of ours that nobody can go on with any more. Taken: the best so far. */
GX_MUST_CHECK int gfs_part_look(struct gfs_part_search *search, const struct gfs_part_seen *seen,
				enum gfs_part_fate *ret_fate);

/* The directory that `to` is in, with its '/' at the end; "" if `to` has none. NULL: no memory. */
GX_MUST_CHECK char *gfs_part_dir(const char *to);

/* From where the sink, which has `size` bytes, is to be written. -EINTR, -ENOMEM, -EALREADY. */
GX_MUST_CHECK int gfs_part_check(struct gfs_copy *copy, const struct gfs_copy_source *source,
				 const struct gfs_copy_sink *sink, uint64_t size,
				 uint64_t *ret_from);

#endif
