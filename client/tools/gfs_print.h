/*
 * gfs_print.h - how `gfs` shows names, modes, sizes and times to people and programs.
 *
 * gfs_json_string() is in gfs_tool.h, with what commands without files use as well.
 */
#ifndef GFS_PRINT_H
#define GFS_PRINT_H

#include "common/gx_base.h"
#include <stdio.h>

struct gfs;
struct gfs_stat;

/* As it is; for people with '?' for control characters and for what is not UTF-8. */
void gfs_print_name(FILE *out, const char *name, bool for_people);
/* Columns that gfs_print_name(…, true) takes: one per character. */
size_t gfs_name_columns(const char *name);

/* "-rw-r--r--", "drwxrwxrwt". */
void gfs_mode_text(uint32_t mode, char text[11]);
/* "regular file", "directory": for sentences. One word, "file", "dir", "link", for JSON. */
const char *gfs_type_text(uint32_t mode);
const char *gfs_type_word(uint32_t mode);
/* As ls -h: "123", "1.5K", "20M"; rounded up. */
void gfs_size_text(uint64_t bytes, char text[16]);
/* As ls -l, in the local time zone: with the year when half a year or more away from now. */
void gfs_time_short(const struct timespec *ts, int64_t now_ns, char text[32]);
/* As stat: "2026-11-16 12:00:00.000000000 +0100". */
void gfs_time_long(const struct timespec *ts, char text[64]);

/* Names of users and groups: the few that were asked for last are kept. */
#define GFS_OWNERS_KEPT 32u
#define GFS_OWNER_TEXT 72u
struct gfs_owner {
	bool known, group;
	uint32_t id;
	char text[GFS_OWNER_TEXT];
};
struct gfs_owners {
	struct gfs *fs;
	struct gfs_owner kept[GFS_OWNERS_KEPT];
};
/* The name, or the number if it has none. Valid until the next call. */
const char *gfs_owner_text(struct gfs_owners *owners, uint32_t id, bool group);

/*
 * One JSON object, without a newline: path, name, type, mode, size, nlink, uid, gid, user, group,
 * ino, generation, version, atime, mtime, ctime, btime, and target if that is not NULL. Without
 * `st` only path, name and type, which is taken from `type` (S_IFMT bits).
 */
void gfs_json_file(FILE *out, struct gfs_owners *owners, const char *path, uint32_t type,
		   const struct gfs_stat *st, const char *target);

#endif
