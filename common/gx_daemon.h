/*
 * gx_daemon.h - what every daemon does the same way: options, config, pid
 * file, background, privileges, signals, readiness.
 *
 * main() of a daemon is:
 *
 *	static const struct gx_daemon_spec spec = { … };
 *	int main(int argc, char **argv) { return gx_daemon_main(&spec, argc, argv); }
 *
 * and `spec.start` builds the daemon's objects on the loop it is given.
 * Order: parse options → load and validate the config (and stop there for
 * --check-config, --dump-config) → lock the pid file → go to the background
 * if asked → start() binds and opens → drop privileges → ready → loop →
 * SIGTERM/SIGINT calls stop(), a second one exits at once → SIGHUP reloads.
 * The parent of a background start returns only when the daemon is ready, and
 * with its exit status if it never got so far.
 *
 * A background daemon speaks on the starter's stderr until it is ready; from
 * then on, without log_file, the log goes to syslog. It keeps its working
 * directory, so that relative paths in --set mean the same on SIGHUP.
 *
 * Core dumps are switched off, because memory holds keys (rule S3); the
 * environment variable GX_COREDUMP=1 keeps them, for debugging.
 */
#ifndef GX_DAEMON_H
#define GX_DAEMON_H

#include "common/gx_conf.h"
#include "common/gx_loop.h"

struct gx_daemon;

/* Rows and struct that every daemon's config starts with: section [daemon]. */
struct gx_daemon_conf {
	char *pid_file;
	char *log_file; /* empty: stderr */
	bool log_syslog;
	char *log_level; /* reloadable */
	char *user;      /* switch to this user after start(); empty: stay */
};
/* Expands to the rows; `outer` is the program's struct, `field` its struct gx_daemon_conf. */
/* clang-format off */
#define GX_DAEMON_CONF_ROWS(outer, field)                                                          \
	{"daemon", "pid_file", GX_CONF_PATH, offsetof(outer, field.pid_file), NULL, NULL, NULL,    \
	 NULL, 0, "File that holds the process id while the daemon runs, and its lock."},          \
	{"daemon", "log_file", GX_CONF_PATH, offsetof(outer, field.log_file), NULL, NULL, NULL,    \
	 NULL, 0, "Append the log to this file (reopened on SIGHUP). Default: standard error."},   \
	{"daemon", "log_syslog", GX_CONF_BOOL, offsetof(outer, field.log_syslog), "no", NULL,      \
	 NULL, NULL, 0, "Send the log to syslog instead."},                                        \
	{"daemon", "log_level", GX_CONF_STRING, offsetof(outer, field.log_level), "info", NULL,    \
	 NULL, NULL, GX_CONF_RELOAD,                                                               \
	 "err, warning, notice, info or debug; per component as in info,rpc=debug."},              \
	{"daemon", "user", GX_CONF_STRING, offsetof(outer, field.user), NULL, NULL, NULL, NULL, 0, \
	 "Run as this user once ports and files are open. Only root can switch."}
/* clang-format on */

struct gx_daemon_spec {
	const char *program;      /* "gfs-echod" */
	const char *synopsis;     /* one line for --help */
	const char *default_conf; /* relative to SYSCONFDIR, "gridstage/echod.conf" */
	const struct gx_conf_table *table;
	void *config;                       /* the program's struct, zeroed */
	struct gx_daemon_conf *daemon_conf; /* inside config */

	/* Semantic checks beyond the table; adds lines to errors and returns -EINVAL. May be NULL.
	 */
	int (*check)(const void *config, struct gx_env *env, struct gx_buf *errors);
	/* Builds everything on d->loop; negative errno (already logged) ends the program. */
	int (*start)(struct gx_daemon *d);
	/* A graceful stop begins; the daemon calls gx_loop_stop() itself when it is done. NULL: at
	 * once. */
	void (*stop)(struct gx_daemon *d);
	/* After the loop ended: free everything. Also after a failed start. May be NULL. */
	void (*finish)(struct gx_daemon *d);
	/* Reloadable rows have new values. May be NULL. */
	void (*reloaded)(struct gx_daemon *d);
};

struct gx_daemon {
	const struct gx_daemon_spec *spec;
	struct gx_env *env;
	struct gx_loop *loop;
	void *data;    /* the daemon's own state */
	int exit_code; /* what main returns; set to 1 before gx_loop_stop() to end as failed */
};

/*
 * Options: -c/--config FILE, --set SECTION.KEY=VALUE, -f/--foreground (default),
 * -b/--background, --check-config, --dump-config, --sample-config, --mdoc-config (hidden),
 * --ready-fd N (writes "READY\n" there), --version, -h/--help. Exit codes: 0 fine, 1 failed,
 * 2 bad usage or configuration. NOTIFY_SOCKET (systemd) gets READY=1, RELOADING=1, STOPPING=1.
 */
int gx_daemon_main(const struct gx_daemon_spec *spec, int argc, char **argv);

/* Project version, from the Makefile. */
#ifndef GX_VERSION
#define GX_VERSION "unknown"
#endif

#endif
