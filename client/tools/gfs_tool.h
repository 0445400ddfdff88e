/*
 * gfs_tool.h - what the commands of `gfs` share.
 *
 * A command parses its own options with getopt_long, prints results to
 * standard output and problems to standard error, one line each, and returns
 * the exit code: GFS_EXIT_*.
 */
#ifndef GFS_TOOL_H
#define GFS_TOOL_H

#include "common/gx_env.h"
#include <stdio.h>

#define GFS_EXIT_OK 0
#define GFS_EXIT_FAILED 1 /* it was tried and did not work */
#define GFS_EXIT_USAGE 2  /* the command line makes no sense */

struct gfs_command {
	const char *name;
	const char *summary; /* for `gfs --help` */
	int (*run)(struct gx_env *env, int argc, char **argv);
};

/* "gfs NAME: text" on standard error; evaluates to the exit code. */
int gfs_fail(const char *command, int exit_code, const char *fmt, ...) GX_PRINTF(3, 4);
/* The lines of an errors buffer, each behind "gfs NAME: "; or, if it is empty, the errno's text. */
struct gx_buf;
int gfs_fail_buf(const char *command, struct gx_buf *errors, int err);
/* Prints a JSON string with quotes and escapes. */
void gfs_json_string(FILE *out, const char *text);

int gfs_key_main(struct gx_env *env, int argc, char **argv);
int gfs_ping_main(struct gx_env *env, int argc, char **argv);

#endif
