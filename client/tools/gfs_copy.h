/*
 * gfs_copy.h - what gfs put, get and cp share: copies of files and trees into and out of the grid.
 *
 * A file is written under a temporary name beside its destination and renamed when it is complete,
 * so others see the old file or the whole new one, and a copy that fails leaves nothing behind.
 * Only a larger one that is cut (by a signal, or because a daemon is away) leaves what it has:
 * --resume goes on from there, see gfs_copy_part.h. A destination that is a symbolic link to a file
 * stays that link; its target is replaced.
 *
 * Holes of the source are holes in the copy.
 *
 * Everything here reports its own problems through the tool. Functions return 0 or, for what ends
 * the whole command, a negative errno: -EINTR after a signal, -ENOMEM.
 */
#ifndef GFS_COPY_H
#define GFS_COPY_H

#include "client/tools/gfs_bar.h"
#include "client/tools/gfs_walk.h"

#define GFS_COPY_BUF_BYTES (1024u * 1024)

struct gfs_copy_dest;

struct gfs_copy {
	struct gfs_tool *tool;
	const struct gfs_copy_dest *dest;
	bool recursive, force, no_clobber, preserve, verbose, resume;
	char *buf;              /* GFS_COPY_BUF_BYTES */
	uint64_t dest_root_ino; /* of the tree being written, if it is in the grid; else 0 */
	bool cut;               /* the source of the last file went away in the middle */
	struct gfs_bar bar;
};

/* Permissions and times of what is copied. */
struct gfs_copy_attr {
	uint32_t mode;
	struct timespec times[2]; /* of access, of modification */
	uint64_t ino;             /* if it is in the grid; else 0 */
	uint64_t size;            /* UINT64_MAX: not known */
};

/* A file that is being read. */
struct gfs_copy_source {
	const char *name; /* for messages */
	bool local;
	struct gfs_copy_attr attr;
	uint64_t identity; /* the same if the content is; 0: not known */
	/* 0: the end. */
	ssize_t (*read)(void *arg, void *buf, size_t bytes, uint64_t offset);
	/* As lseek() with SEEK_DATA, SEEK_HOLE and SEEK_END. NULL: only to be read in order. */
	int64_t (*seek)(void *arg, int64_t offset, int whence);
	void *arg;
	/* A local file, which stays open until the copy is closed; NULL: none. */
	const int *fd;
};

/* A file that is being written, from front to back. */
struct gfs_copy_sink {
	int (*write)(void *arg, const void *buf, size_t bytes, uint64_t offset);
	/*
	 * The same offset of a local file, GFS_COPY_BUF_BYTES; what it lacks meanwhile becomes
	 * zeros. -EOPNOTSUPP: in the ordinary way. May be NULL.
	 */
	int (*write_file)(void *arg, int fd, uint64_t offset);
	/* NULL: nothing may be left out, and there is no going back. */
	int (*set_size)(void *arg, uint64_t size);
	ssize_t (*read)(void *arg, void *buf, size_t bytes, uint64_t offset); /* may be NULL */
	void *arg;
};

/* Where copies go. Each returns a negative errno, not yet reported; -EALREADY: left as it is. */
struct gfs_copy_dest {
	/* What exists as a directory is fine. `top`: a link to a directory is fine, too. */
	int (*make_dir)(struct gfs_copy *copy, const char *to, const struct gfs_copy_attr *attr,
			bool top);
	/* When all in it is done: the final permissions, and times with -p. */
	int (*finish_dir)(struct gfs_copy *copy, const char *to, const struct gfs_copy_attr *attr);
	int (*make_link)(struct gfs_copy *copy, const char *target, const char *to,
			 const struct gfs_copy_attr *attr);
	/* Reports by itself what goes wrong with the source, and returns -EALREADY then. */
	int (*write_file)(struct gfs_copy *copy, const struct gfs_copy_source *source,
			  const char *to);
	bool local;
};
extern const struct gfs_copy_dest gfs_copy_dest_grid;
extern const struct gfs_copy_dest gfs_copy_dest_local;

/* -r -f -n -p -v --resume --progress, and connects. 0, or the exit code and nothing to finish. */
GX_MUST_CHECK int gfs_copy_init(struct gfs_copy *copy, struct gfs_tool *tool, int argc, char **argv,
				const struct gfs_copy_dest *dest);
/* Gives the exit code. `r`: what the last function returned. */
GX_MUST_CHECK int gfs_copy_finish(struct gfs_copy *copy, int r);

/* The options for the help texts. */
#define GFS_COPY_HELP                                                                              \
	"  -f, --force        replace a destination even if it may not be written\n"               \
	"  -n, --no-clobber   leave what is at the destination as it is\n"                         \
	"  -p, --preserve     keep permissions and times\n"                                        \
	"      --progress WHEN  show a line about long transfers: auto (on a terminal),\n"         \
	"                     always or never\n"                                                   \
	"  -r, -R, --recursive  directories with all in them\n"                                    \
	"      --resume       go on where a copy of the same file was cut\n"                       \
	"  -v, --verbose      say what was copied\n"

/* TO, or TO/last-part-of-FROM if `into`. NULL without memory. */
GX_MUST_CHECK char *gfs_copy_target(const char *from, const char *to, bool into);
/* A file, or with -r a tree, of the grid to `to`. */
GX_MUST_CHECK int gfs_copy_from_grid(struct gfs_copy *copy, const char *from, const char *to);
/* One step of any copy is done, or failed: tells, and gives what to return. */
GX_MUST_CHECK int gfs_copy_done(struct gfs_copy *copy, const char *from, const char *to, int r);
/* A source in the grid. */
GX_MUST_CHECK int gfs_copy_open(struct gfs_copy *copy, const char *from, struct gfs_file **ret_file,
				struct gfs_copy_source *ret_source);

/*
 * All of the source from that offset on into the sink, with the line about it; -EALREADY after a
 * reported problem of the source.
 */
GX_MUST_CHECK int gfs_copy_bytes(struct gfs_copy *copy, const struct gfs_copy_source *source,
				 const struct gfs_copy_sink *sink, uint64_t from);

/* Reading it failed: told, and what to return. */
GX_MUST_CHECK int gfs_copy_source_problem(struct gfs_copy *copy,
					  const struct gfs_copy_source *source, int r);

/* A name beside `path` that nobody else uses. */
GX_MUST_CHECK int gfs_temp_path(struct gx_env *env, const char *path, char **ret_temp);

#endif
