/*
 * gfs_tool.h - what the commands of `gfs` share.
 *
 * A command parses its own options, prints results to standard output and
 * problems to standard error, one line each, and returns the exit code:
 * GFS_EXIT_*. A problem with one argument does not stop work on the others.
 *
 * The commands for files keep a struct gfs_tool: it parses what is common to
 * them (--help, --config), connects, remembers whether anything failed, and
 * shows progress. A command has one thread (but see gfs_pipe.h).
 */
#ifndef GFS_TOOL_H
#define GFS_TOOL_H

#include "common/gx_env.h"
#include <getopt.h>
#include <stdio.h>

/* How the names of files begin that are not complete yet. */
#define GFS_TEMP_PREFIX ".gfs-tmp-"

#define GFS_EXIT_OK 0
#define GFS_EXIT_FAILED 1 /* it was tried and did not work */
#define GFS_EXIT_USAGE 2  /* the command line makes no sense */

struct gfs;
struct gx_buf;

struct gfs_command {
	const char *name;
	const char *summary; /* for `gfs --help` */
	int (*run)(struct gx_env *env, int argc, char **argv);
};

/*
 * "gfs NAME: text" on standard error; evaluates to the exit code. On a terminal, control
 * characters in the text are shown as '?'.
 */
int gfs_fail(const char *command, int exit_code, const char *fmt, ...) GX_PRINTF(3, 4);
/* The lines of an errors buffer, each behind "gfs NAME: "; or, if it is empty, the errno's text. */
int gfs_fail_buf(const char *command, struct gx_buf *errors, int err);
/*
 * Prints a JSON string with quotes and escapes. A byte that is not part of UTF-8 becomes the lone
 * surrogate \udc80 to \udcff (its low eight bits are the byte), so that any name can be had back.
 */
void gfs_json_string(FILE *out, const char *text);

/* -- the commands that work on files ----------------------------------------------------------- */

/* A line on standard error, if that is a terminal, for work that takes more than a second. */
struct gfs_progress {
	const char *verb; /* "removed"; NULL: no progress is shown */
	uint64_t count;
	int64_t next_ns; /* when to show it again */
	bool shown;
};

struct gfs_tool {
	struct gx_env *env;
	const char *command; /* "ls" */
	const char *help;    /* the whole text */
	const char *config;  /* --config; NULL: the environment and the library decide */
	struct gfs *fs;
	mode_t umask;
	bool out_tty, err_tty;
	bool one_dash;         /* find: long options may have a single dash */
	bool walks;            /* a tree, or many bytes: worth a cache and its leases */
	bool failed;           /* the exit code will be GFS_EXIT_FAILED */
	uint64_t write_behind; /* bytes of a file; 0: as configured */
	struct gfs_progress progress;
};

/* Values of options without a letter start here; the first are gfs_tool_getopt()'s own. */
#define GFS_OPT_CONFIG 256
#define GFS_OPT_HELP 257
#define GFS_OPT_OWN 258
/* For the end of a table of long options, before its all-zero row. */
#define GFS_COMMON_OPTIONS                                                                         \
	{"config", required_argument, NULL, GFS_OPT_CONFIG},                                       \
	{                                                                                          \
		"help", no_argument, NULL, GFS_OPT_HELP                                            \
	}
/* And for the end of a help text. */
#define GFS_COMMON_HELP                                                                            \
	"      --config FILE  which grid; default: the environment's GFS_CONFIG\n"                 \
	"      --help         print this text\n"

/* And of one whose command prints names as JSON. */
#define GFS_JSON_HELP                                                                              \
	"\nIn JSON, a byte of a name that is not UTF-8 is the lone surrogate \\udc80 to \\udcff\n" \
	"with the byte in its low half; Python's os.fsencode() turns it back.\n"

void gfs_tool_init(struct gfs_tool *tool, struct gx_env *env, const char *command,
		   const char *help);
/*
 * As getopt_long(): the next option, -1 behind the last. Deals with --config and --help (which
 * prints and ends the program); '?' for an option that does not exist, which has been reported.
 */
int gfs_tool_getopt(struct gfs_tool *tool, int argc, char **argv, const char *shorts,
		    const struct option *longs);
/* Reports wrong usage; evaluates to the exit code. */
int gfs_tool_usage(const struct gfs_tool *tool, const char *fmt, ...) GX_PRINTF(2, 3);
/* 0, or the exit code after a report. */
GX_MUST_CHECK int gfs_tool_connect(struct gfs_tool *tool);
/* Disconnects, which waits for the disk, and gives the exit code of the whole command. */
GX_MUST_CHECK int gfs_tool_finish(struct gfs_tool *tool);

/* "gfs ls: PATH: what err means", and the command will have failed. Evaluates to err. */
int gfs_tool_error(struct gfs_tool *tool, const char *path, int err);
/* The same with other words. */
void gfs_tool_problem(struct gfs_tool *tool, const char *fmt, ...) GX_PRINTF(2, 3);
/* A name to standard output, with control characters as '?' on a terminal. */
void gfs_tool_print(const struct gfs_tool *tool, const char *name);
/* Asks on standard error; true if the answer on standard input starts with y or Y. */
bool gfs_tool_ask(struct gfs_tool *tool, const char *question, const char *path);
/* One more is done. */
void gfs_tool_step(struct gfs_tool *tool);
/* Removes the line that shows progress, if there is one: something else is to be written there. */
void gfs_tool_clear_progress(struct gfs_tool *tool);
/*
 * From now on SIGINT, SIGTERM and SIGHUP only make gfs_tool_interrupted() true, so that what is
 * half done can be removed; a second one ends the program. gfs_tool_finish() then ends it by
 * the signal.
 */
void gfs_tool_catch_signals(void);
bool gfs_tool_interrupted(void);

int gfs_cat_main(struct gx_env *env, int argc, char **argv);
int gfs_chmod_main(struct gx_env *env, int argc, char **argv);
int gfs_chown_main(struct gx_env *env, int argc, char **argv);
int gfs_cp_main(struct gx_env *env, int argc, char **argv);
int gfs_df_main(struct gx_env *env, int argc, char **argv);
int gfs_down_main(struct gx_env *env, int argc, char **argv);
int gfs_du_main(struct gx_env *env, int argc, char **argv);
int gfs_find_main(struct gx_env *env, int argc, char **argv);
int gfs_get_main(struct gx_env *env, int argc, char **argv);
int gfs_key_main(struct gx_env *env, int argc, char **argv);
int gfs_ln_main(struct gx_env *env, int argc, char **argv);
int gfs_ls_main(struct gx_env *env, int argc, char **argv);
int gfs_mkdir_main(struct gx_env *env, int argc, char **argv);
int gfs_mv_main(struct gx_env *env, int argc, char **argv);
int gfs_ping_main(struct gx_env *env, int argc, char **argv);
int gfs_put_main(struct gx_env *env, int argc, char **argv);
int gfs_rep_main(struct gx_env *env, int argc, char **argv);
int gfs_rm_main(struct gx_env *env, int argc, char **argv);
int gfs_stat_main(struct gx_env *env, int argc, char **argv);
int gfs_status_main(struct gx_env *env, int argc, char **argv);
int gfs_touch_main(struct gx_env *env, int argc, char **argv);
int gfs_up_main(struct gx_env *env, int argc, char **argv);
int gfs_where_main(struct gx_env *env, int argc, char **argv);

/* True if it was one of the options that print the table of the configuration; done then. */
bool gfs_config_print(const char *option, int *ret_code);

#endif
