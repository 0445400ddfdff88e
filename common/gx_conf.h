/*
 * gx_conf.h - configuration: one table per program says everything.
 *
 * A row gives section, key, type, place in the program's struct, default,
 * range, flags and help text. From the same rows we parse files, reject
 * unknown keys (with file:line and the nearest match), print --dump-config,
 * write the samples in conf/ and the OPTIONS part of the man page.
 *
 * Files are INI: `[section]`, `key = value`, `#` comments on their own line.
 * Order, later wins: built-in < file < its drop-ins (files named *.conf in the
 * directory <file>.d, sorted by name) < --set.
 *
 * Values are trimmed; quotes mean nothing; an empty value is "" for texts and
 * an error for numbers. A key set twice in one file is an error. Control
 * characters are refused everywhere, so whatever was accepted dumps and parses
 * back.
 *
 * Strings are owned by the configuration and freed by gx_conf_fini().
 */
#ifndef GX_CONF_H
#define GX_CONF_H

#include "common/gx_base.h"
#include "common/gx_buf.h"
#include "common/gx_env.h"

enum gx_conf_type {
	GX_CONF_STRING,   /* char *      */
	GX_CONF_PATH,     /* char *, absolute after loading: relative to the file's directory */
	GX_CONF_BOOL,     /* bool        */
	GX_CONF_U64,      /* uint64_t    */
	GX_CONF_SIZE,     /* uint64_t, bytes, "64MiB" */
	GX_CONF_DURATION, /* int64_t, nanoseconds, "30s" */
	GX_CONF_ENUM,     /* int, index into `choices` */
	GX_CONF_LIST,     /* char *, "a,b": no empty item, blanks around items removed */
	GX_CONF_TYPE_COUNT
};

#define GX_CONF_REQUIRED 1u /* must be set somewhere: a text not empty, a number not 0 */
#define GX_CONF_RELOAD 2u   /* SIGHUP may change it */
#define GX_CONF_SECRET 4u   /* a path to a secret: see gx_conf_check_secret */
#define GX_CONF_HIDDEN 8u   /* for tests: not in samples and man pages */

struct gx_conf_row {
	const char *section;
	const char *key;
	enum gx_conf_type type;
	size_t offset;            /* of the field in the program's struct */
	const char *default_text; /* parsed like a file value; NULL: zero/NULL */
	const char *min_text;     /* NULL: no bound; same syntax as the value */
	const char *max_text;
	const char *const *choices; /* ENUM: NULL-terminated */
	unsigned flags;
	const char *help; /* one or two sentences */
};

struct gx_conf_table {
	const char *program; /* "gfs-metad" */
	const struct gx_conf_row *rows;
	size_t row_count;
	size_t struct_bytes; /* sizeof the program's struct */
};

/* Where the value of a row lies in a program's struct. */
static inline void *gx_conf_field(const struct gx_conf_row *row, void *config)
{
	return (char *)config + row->offset;
}
static inline const void *gx_conf_field_const(const struct gx_conf_row *row, const void *config)
{
	return (const char *)config + row->offset;
}

/*
 * Where a value is wrong: one line per problem, "file:line: message", appended
 * to `errors`. All problems of all files are reported, not only the first; lines
 * that `errors` has no room for are dropped, the return value stays.
 * After a failure the config holds some of the values: only gx_conf_fini() is useful.
 */

/* Sets all fields to their defaults. `config` points to the program's zeroed struct. */
GX_MUST_CHECK int gx_conf_init(const struct gx_conf_table *table, void *config);
void gx_conf_fini(const struct gx_conf_table *table, void *config);

/* Parses text as if it were the file `name`; -EINVAL when `errors` got lines. */
GX_MUST_CHECK int gx_conf_parse(const struct gx_conf_table *table, void *config, const char *name,
				const char *text, size_t bytes, struct gx_buf *errors);
/*
 * Reads a file and its drop-ins. -ENOENT if the file is absent and `must_exist`. What cannot be
 * read is a line in `errors` too, and its errno is returned.
 */
GX_MUST_CHECK int gx_conf_load(const struct gx_conf_table *table, void *config, struct gx_env *env,
			       const char *path, bool must_exist, struct gx_buf *errors);
/* One "section.key=value", as from --set. A relative path starts at the current directory. */
GX_MUST_CHECK int gx_conf_set(const struct gx_conf_table *table, void *config,
			      const char *assignment, struct gx_buf *errors);
/* After all sources: required rows are set. -EINVAL with lines in errors. */
GX_MUST_CHECK int gx_conf_validate(const struct gx_conf_table *table, const void *config,
				   struct gx_buf *errors);

/*
 * Swaps the reloadable rows of `fresh` and `config`; the caller still frees both.
 * Rows that differ but are not reloadable are named in `notes` ("needs a restart").
 * On -ENOMEM nothing was changed.
 */
GX_MUST_CHECK int gx_conf_reload(const struct gx_conf_table *table, void *config, void *fresh,
				 struct gx_buf *notes);

/* `--dump-config`: the values in force, as a file that parses back to the same. */
GX_MUST_CHECK int gx_conf_dump(const struct gx_conf_table *table, const void *config,
			       struct gx_buf *out);
/* A commented sample with defaults, ranges and help. */
GX_MUST_CHECK int gx_conf_sample(const struct gx_conf_table *table, struct gx_buf *out);
/* mdoc(7) list of all keys, for man pages. */
GX_MUST_CHECK int gx_conf_mdoc(const struct gx_conf_table *table, struct gx_buf *out);

/*
 * A secret file must be a regular file, owned by us or root, with no bits for group and others.
 * -EPERM (and a line in `errors`, which may be NULL) if not.
 */
GX_MUST_CHECK int gx_conf_check_secret(struct gx_env *env, const char *path, struct gx_buf *errors);

#endif
