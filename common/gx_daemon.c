/*
 * The order of steps is fixed in gx_daemon.h. Two points of it are easy to get wrong:
 *
 * The pid file is locked before the fork, so that "already running" is said by the process the
 * user started; the lock belongs to the open file and passes to the child. Who removes the file
 * holds its lock, and who locks it then checks that the name still leads to it: otherwise two
 * daemons could hold locks on two files of the same name.
 *
 * A background daemon tells its starter over a pipe how it went: one byte, the exit code. An end
 * of file without a byte means that it died.
 */
#define GX_LOG_COMPONENT "daemon"
#include "common/gx_daemon.h"
#include "common/gx_daemon_os.h"
#include "common/gx_log.h"
#include "common/gx_num.h"
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef GX_SYSCONFDIR
#define GX_SYSCONFDIR "/etc"
#endif

#define EXIT_FINE 0
#define EXIT_FAILED 1
#define EXIT_USAGE 2
#define TEXT_MAX (4u * GX_CONF_FILE_MAX) /* what a dump or a list of errors may grow to */

enum mode { MODE_RUN, MODE_CHECK, MODE_DUMP, MODE_SAMPLE, MODE_MDOC, MODE_DONE, MODE_COUNT };

/* One running daemon; `d` is what the program sees of it. */
struct state {
	struct gx_daemon d;
	enum mode mode;
	char config_path[GX_PATH_MAX];
	bool config_given;
	const char **sets; /* borrowed from argv */
	size_t set_count;
	bool background;
	int ready_fd;  /* -1: none */
	int status_fd; /* pipe to the starter of a background daemon; -1: none */
	int pid_fd;    /* locked; -1: none */
	bool stopping;
	struct gx_signal on_term;
	struct gx_signal on_int;
	struct gx_signal on_hup;
};

/* -- options -------------------------------------------------------------- */

#define SHORT_OPTIONS ":c:fbh"
enum { OPT_SET = 256, OPT_CHECK, OPT_DUMP, OPT_SAMPLE, OPT_MDOC, OPT_READY_FD, OPT_VERSION };

static const struct option long_options[] = {
	{"config", required_argument, NULL, 'c'},
	{"set", required_argument, NULL, OPT_SET},
	{"foreground", no_argument, NULL, 'f'},
	{"background", no_argument, NULL, 'b'},
	{"check-config", no_argument, NULL, OPT_CHECK},
	{"dump-config", no_argument, NULL, OPT_DUMP},
	{"sample-config", no_argument, NULL, OPT_SAMPLE},
	{"mdoc-config", no_argument, NULL, OPT_MDOC},
	{"ready-fd", required_argument, NULL, OPT_READY_FD},
	{"version", no_argument, NULL, OPT_VERSION},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static void print_help(const struct gx_daemon_spec *spec)
{
	printf("Usage: %s [OPTION]...\n"
	       "%s\n\n"
	       "  -c, --config FILE            read this configuration (default: %s/%s)\n"
	       "      --set SECTION.KEY=VALUE  change one value; may be given several times\n"
	       "  -f, --foreground             stay in the foreground (the default)\n"
	       "  -b, --background             return when the daemon is ready\n"
	       "      --check-config           only check the configuration\n"
	       "      --dump-config            print the values in force\n"
	       "      --sample-config          print a commented sample\n"
	       "      --ready-fd N             write READY to this descriptor when ready\n"
	       "      --version                print the version\n"
	       "  -h, --help                   print this text\n\n"
	       "Signals: TERM and INT stop (twice: at once), HUP reloads the configuration.\n",
	       spec->program, spec->synopsis, GX_SYSCONFDIR, spec->default_conf);
}

static int usage_error(const struct state *s, const char *text, const char *what)
{
	fprintf(stderr, "%s: %s \"%s\"; try --help\n", s->d.spec->program, text, what);
	return -EINVAL;
}

static int set_ready_fd(struct state *s, const char *text)
{
	uint64_t fd;

	if (gx_parse_u64(text, &fd) < 0 || fd > INT32_MAX || fcntl((int)fd, F_GETFD) < 0)
		return usage_error(s, "--ready-fd needs an open descriptor, not", text);
	/* Programs the daemon starts must not hold it open. */
	(void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
	s->ready_fd = (int)fd;
	return 0;
}

static int set_config_path(struct state *s, const char *path)
{
	if (path[0] == '\0' || gx_strcpy(s->config_path, sizeof(s->config_path), path) < 0)
		return usage_error(s, "not a usable path:", path);
	s->config_given = true;
	return 0;
}

static int take_option(struct state *s, int option, char **argv)
{
	char letter[] = "-x";

	switch (option) {
	case 'c':
		return set_config_path(s, optarg);
	case OPT_SET:
		s->sets[s->set_count++] = optarg;
		return 0;
	case 'f':
	case 'b':
		s->background = option == 'b';
		return 0;
	case OPT_CHECK:
		s->mode = MODE_CHECK;
		return 0;
	case OPT_DUMP:
		s->mode = MODE_DUMP;
		return 0;
	case OPT_SAMPLE:
		s->mode = MODE_SAMPLE;
		return 0;
	case OPT_MDOC:
		s->mode = MODE_MDOC;
		return 0;
	case OPT_READY_FD:
		return set_ready_fd(s, optarg);
	case OPT_VERSION:
		printf("%s (Gridstage) %s\n", s->d.spec->program, GX_VERSION);
		s->mode = MODE_DONE;
		return 0;
	case 'h':
		print_help(s->d.spec);
		s->mode = MODE_DONE;
		return 0;
	case ':':
		return usage_error(s, "a value is missing behind", argv[optind - 1]);
	default:
		break;
	}
	/*
	 * '?' with a letter or number that we know means "--background=yes"; with another letter,
	 * which may stand inside a group such as -fx, an unknown one; with 0 an unknown long one.
	 */
	if (optopt >= 256 || (optopt > 0 && strchr(SHORT_OPTIONS, optopt) != NULL))
		return usage_error(s, "no value belongs behind", argv[optind - 1]);
	letter[1] = (char)optopt;
	return usage_error(s, "unknown option", optopt == 0 ? argv[optind - 1] : letter);
}

static int parse_options(struct state *s, int argc, char **argv)
{
	int option, r;

	optind = 0; /* glibc: start afresh, also when called a second time */
	opterr = 0;
	while (s->mode != MODE_DONE &&
	       (option = getopt_long(argc, argv, SHORT_OPTIONS, long_options, NULL)) != -1) {
		r = take_option(s, option, argv);
		if (r < 0)
			return r;
	}
	if (s->mode != MODE_DONE && optind < argc)
		return usage_error(s, "unexpected argument", argv[optind]);
	return 0;
}

/* -- configuration -------------------------------------------------------- */

/* The [daemon] part of a config that is not spec->config. */
static const struct gx_daemon_conf *daemon_conf_of(const struct gx_daemon_spec *spec,
						   const void *config)
{
	ptrdiff_t offset = (const char *)spec->daemon_conf - (const char *)spec->config;

	return (const struct gx_daemon_conf *)(const void *)((const char *)config + offset);
}

static bool is_set(const char *text)
{
	return text != NULL && text[0] != '\0';
}

static int check_secrets(struct state *s, const void *config, struct gx_buf *errors)
{
	const struct gx_conf_table *table = s->d.spec->table;
	int result = 0;

	for (size_t i = 0; i < table->row_count; i++) {
		const char *path;
		int r;

		if (!(table->rows[i].flags & GX_CONF_SECRET))
			continue;
		path = *(char *const *)gx_conf_field_const(&table->rows[i], config);
		r = is_set(path) ? gx_conf_check_secret(s->d.env, path, errors) : 0;
		result = result < 0 ? result : r;
	}
	return result;
}

/* Every source and every check, so that all problems are in `errors` after one run. */
static int load_config(struct state *s, void *config, struct gx_buf *errors)
{
	const struct gx_daemon_spec *spec = s->d.spec;
	int result = gx_conf_init(spec->table, config);
	const char *log_level;
	int r;

	if (result < 0)
		return result;
	result = gx_conf_load(spec->table, config, s->d.env, s->config_path, s->config_given,
			      errors);
	for (size_t i = 0; i < s->set_count; i++) {
		r = gx_conf_set(spec->table, config, s->sets[i], errors);
		result = result < 0 ? result : r;
	}
	/* What follows judges values; after a syntax error they are not the ones meant. */
	if (result < 0)
		return result;
	result = gx_conf_validate(spec->table, config, errors);
	r = check_secrets(s, config, errors);
	result = result < 0 ? result : r;
	log_level = daemon_conf_of(spec, config)->log_level;
	if (is_set(log_level) && gx_log_check_levels(log_level) < 0) {
		r = gx_buf_append_format(errors,
					 "%s: [daemon] log_level: \"%s\" is not like info or "
					 "info,rpc=debug\n",
					 s->config_path, log_level);
		result = result < 0 ? result : r < 0 ? r : -EINVAL;
	}
	if (result == 0 && spec->check != NULL)
		result = spec->check(config, s->d.env, errors);
	return result;
}

static int load_first_config(struct state *s)
{
	struct gx_buf errors;
	int r;

	gx_buf_init(&errors, TEXT_MAX);
	r = load_config(s, s->d.spec->config, &errors);
	if (r < 0 && errors.bytes == 0)
		fprintf(stderr, "%s: cannot load the configuration: %s\n", s->d.spec->program,
			gx_strerror(r));
	else if (errors.bytes > 0)
		(void)!fwrite(errors.data, 1, errors.bytes, stderr);
	gx_buf_fini(&errors);
	return r;
}

/* --dump-config, --sample-config, --mdoc-config */
static int print_config(struct state *s)
{
	const struct gx_daemon_spec *spec = s->d.spec;
	struct gx_buf out;
	int r;

	gx_buf_init(&out, TEXT_MAX);
	if (s->mode == MODE_DUMP)
		r = gx_conf_dump(spec->table, spec->config, &out);
	else if (s->mode == MODE_SAMPLE)
		r = gx_conf_sample(spec->table, &out);
	else
		r = gx_conf_mdoc(spec->table, &out);
	if (r == 0 && (fwrite(out.data, 1, out.bytes, stdout) != out.bytes || fflush(stdout) != 0))
		r = gx_errno();
	gx_buf_fini(&out);
	if (r < 0)
		fprintf(stderr, "%s: cannot print: %s\n", spec->program, gx_strerror(r));
	return r;
}

/* Every line of a text as one log line of its own. */
static void log_lines(struct gx_buf *text, bool as_error)
{
	char *rest = text->bytes == 0 ? NULL : (char *)text->data, *line;

	if (rest == NULL || gx_buf_text(text) == NULL)
		return;
	rest = (char *)text->data;
	while ((line = strsep(&rest, "\n")) != NULL) {
		if (line[0] == '\0')
			continue;
		if (as_error)
			gx_log(ERR, "configuration problem", GX_KS("problem", line));
		else
			gx_log(WARNING, "configuration change ignored", GX_KS("reason", line));
	}
}

static int apply_log_level(const struct gx_daemon_spec *spec)
{
	return gx_log_set_levels(is_set(spec->daemon_conf->log_level) ? spec->daemon_conf->log_level
								      : "info");
}

static int reload_config(struct state *s)
{
	const struct gx_daemon_spec *spec = s->d.spec;
	struct gx_buf errors, notes;
	void *fresh = calloc(1, spec->table->struct_bytes);
	int r;

	if (fresh == NULL)
		return -ENOMEM;
	gx_buf_init(&errors, TEXT_MAX);
	gx_buf_init(&notes, TEXT_MAX);
	r = load_config(s, fresh, &errors);
	if (r == 0)
		r = gx_conf_reload(spec->table, spec->config, fresh, &notes);
	if (r == 0)
		r = apply_log_level(spec);
	log_lines(&errors, true);
	log_lines(&notes, false);
	gx_buf_fini(&errors);
	gx_buf_fini(&notes);
	gx_conf_fini(spec->table, fresh);
	free(fresh);
	return r;
}

/* -- signals -------------------------------------------------------------- */

static void remove_pid_file(struct state *s)
{
	if (s->pid_fd < 0)
		return;
	/* After a switch of users the directory may be closed to us: then at least no pid in it. */
	if (gx_env_unlink(s->d.env, s->d.spec->daemon_conf->pid_file) < 0)
		(void)!gx_env_ftruncate(s->d.env, s->pid_fd, 0);
	(void)gx_env_close(s->d.env, s->pid_fd);
	s->pid_fd = -1;
}

static void handle_stop(struct state *s, int signo)
{
	if (s->stopping) {
		gx_log(WARNING, "second signal, exiting at once", GX_KI("signal", signo));
		remove_pid_file(s);
		_exit(EXIT_FAILED);
	}
	s->stopping = true;
	gx_log(NOTICE, "stopping", GX_KI("signal", signo));
	gx_daemon_notify("STOPPING=1");
	if (s->d.spec->stop != NULL)
		s->d.spec->stop(&s->d);
	else
		gx_loop_stop(s->d.loop);
}

static void on_term_signal(struct gx_signal *sig, int signo)
{
	handle_stop(GX_CONTAINER_OF(sig, struct state, on_term), signo);
}

static void on_int_signal(struct gx_signal *sig, int signo)
{
	handle_stop(GX_CONTAINER_OF(sig, struct state, on_int), signo);
}

static void on_hup_signal(struct gx_signal *sig, int signo)
{
	struct state *s = GX_CONTAINER_OF(sig, struct state, on_hup);
	char text[64];
	int r;

	(void)signo;
	/* systemd wants the time on its own monotonic clock, to tell two reloads apart. */
	(void)gx_format(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%lld",
			(long long)(gx_env_now_ns(s->d.env) / GX_NSEC_PER_USEC));
	gx_daemon_notify(text);
	r = gx_log_reopen();
	if (r < 0)
		gx_log_errno(ERR, r, "cannot reopen the log file, keeping the old one");
	r = reload_config(s);
	if (r < 0) {
		gx_log_errno(ERR, r, "configuration not reloaded, keeping the old values");
	} else {
		gx_log(NOTICE, "configuration reloaded");
		if (s->d.spec->reloaded != NULL)
			s->d.spec->reloaded(&s->d);
	}
	gx_daemon_notify("READY=1");
}

static int start_signals(struct state *s)
{
	int r = gx_signal_start(s->d.loop, &s->on_term, SIGTERM, on_term_signal);

	if (r == 0)
		r = gx_signal_start(s->d.loop, &s->on_int, SIGINT, on_int_signal);
	if (r == 0)
		r = gx_signal_start(s->d.loop, &s->on_hup, SIGHUP, on_hup_signal);
	return r;
}

/* -- pid file ------------------------------------------------------------- */

static void already_running(struct state *s, int fd)
{
	const char *path = s->d.spec->daemon_conf->pid_file;
	char text[32] = "";
	uint64_t pid;
	ssize_t n = gx_env_pread(s->d.env, fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (gx_parse_u64(text, &pid) == 0)
		fprintf(stderr, "%s: already running as process %llu (pid file %s)\n",
			s->d.spec->program, (unsigned long long)pid, path);
	else
		fprintf(stderr, "%s: already being started or stopped (pid file %s)\n",
			s->d.spec->program, path);
}

/* 1: locked and still the file of that name; 0: it was just removed, try again. */
static int try_pid_lock(struct state *s, const char *path)
{
	struct stat held, named;
	int fd = gx_env_open(s->d.env, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0644);
	int r;

	if (fd < 0)
		return fd;
	r = gx_env_lock_file(s->d.env, fd);
	if (r == -EAGAIN)
		already_running(s, fd);
	if (r == 0)
		r = gx_env_fstat(s->d.env, fd, &held);
	if (r == 0)
		r = gx_env_stat(s->d.env, path, &named);
	if (r == 0 && held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
		s->pid_fd = fd;
		return 1;
	}
	(void)gx_env_close(s->d.env, fd);
	return r == -ENOENT ? 0 : r;
}

static int lock_pid_file(struct state *s)
{
	const char *path = s->d.spec->daemon_conf->pid_file;
	int r;

	if (!is_set(path))
		return 0;
	do {
		r = try_pid_lock(s, path);
	} while (r == 0);
	if (r < 0 && r != -EAGAIN)
		fprintf(stderr, "%s: cannot lock the pid file %s: %s\n", s->d.spec->program, path,
			gx_strerror(r));
	return r < 0 ? r : 0;
}

static int write_pid(struct state *s)
{
	char text[32];
	int r;

	if (s->pid_fd < 0)
		return 0;
	(void)gx_format(text, sizeof(text), "%lld\n", (long long)getpid());
	r = gx_env_ftruncate(s->d.env, s->pid_fd, 0);
	if (r == 0)
		r = gx_env_pwrite(s->d.env, s->pid_fd, text, strlen(text), 0);
	if (r < 0)
		return gx_log_errno(ERR, r, "cannot write the pid file",
				    GX_KS("path", s->d.spec->daemon_conf->pid_file));
	return 0;
}

/* -- running -------------------------------------------------------------- */

static int open_log(struct state *s)
{
	const struct gx_daemon_conf *conf = s->d.spec->daemon_conf;
	int r = apply_log_level(s->d.spec);

	if (r == 0 && conf->log_syslog)
		gx_log_to_syslog(s->d.spec->program);
	else if (r == 0 && is_set(conf->log_file))
		r = gx_log_open_file(conf->log_file);
	if (r < 0)
		fprintf(stderr, "%s: cannot open the log %s: %s\n", s->d.spec->program,
			is_set(conf->log_file) ? conf->log_file : "", gx_strerror(r));
	return r;
}

static int drop_privileges(struct state *s)
{
	const struct gx_daemon_conf *conf = s->d.spec->daemon_conf;
	const char *log_file = is_set(conf->log_file) && !conf->log_syslog ? conf->log_file : NULL;
	int r;

	if (!is_set(conf->user))
		return 0;
	r = gx_daemon_become(conf->user, log_file);
	if (r == -EPERM && geteuid() != 0)
		return gx_log_errno(ERR, r, "only root can switch users",
				    GX_KS("user", conf->user));
	if (r == -ENOENT)
		return gx_log_errno(ERR, r, "no such user", GX_KS("user", conf->user));
	if (r < 0)
		return gx_log_errno(ERR, r, "cannot switch users", GX_KS("user", conf->user));
	return 0;
}

static void tell_starter(struct state *s, int code)
{
	unsigned char byte = (unsigned char)code;

	if (s->status_fd < 0)
		return;
	(void)!write(s->status_fd, &byte, 1); /* a starter that is gone does not matter */
	close(s->status_fd);
	s->status_fd = -1;
}

static void become_ready(struct state *s)
{
	const struct gx_daemon_conf *conf = s->d.spec->daemon_conf;
	char text[64];

	gx_log(NOTICE, "ready", GX_KS("version", GX_VERSION), GX_KI("pid", getpid()));
	(void)gx_format(text, sizeof(text), "READY=1\nMAINPID=%lld", (long long)getpid());
	gx_daemon_notify(text);
	if (s->background) {
		if (!conf->log_syslog && !is_set(conf->log_file))
			gx_log_to_syslog(s->d.spec->program);
		gx_daemon_null_stdio();
	}
	if (s->ready_fd >= 0) {
		(void)!write(s->ready_fd, "READY\n", 6);
		close(s->ready_fd);
		s->ready_fd = -1;
	}
	tell_starter(s, EXIT_FINE);
}

/* From here on there is a pid file to remove and a starter to tell. */
static int run_locked(struct state *s)
{
	const struct gx_daemon_spec *spec = s->d.spec;
	int r = open_log(s);

	if (r == 0)
		r = write_pid(s);
	if (r < 0)
		return r;
	r = gx_loop_new(s->d.env, &s->d.loop);
	if (r == 0)
		r = start_signals(s);
	if (r < 0)
		gx_log_errno(ERR, r, "cannot make the event loop");
	if (r == 0) {
		r = spec->start(&s->d);
		if (r == 0)
			r = drop_privileges(s);
		if (r == 0) {
			become_ready(s);
			r = gx_loop_run(s->d.loop);
			if (r < 0)
				gx_log_errno(ERR, r, "the event loop failed");
			else
				gx_log(NOTICE, "stopped");
		}
		if (spec->finish != NULL)
			spec->finish(&s->d);
	}
	gx_signal_stop(&s->on_term);
	gx_signal_stop(&s->on_int);
	gx_signal_stop(&s->on_hup);
	gx_loop_free(s->d.loop);
	return r;
}

static int run(struct state *s)
{
	int code = EXIT_FINE;
	int r;

	gx_daemon_harden();
	r = lock_pid_file(s);
	if (r < 0)
		return EXIT_FAILED;
	if (s->background) {
		r = gx_daemon_fork(s->d.spec->program, false, &s->status_fd, &code);
		if (r < 0) {
			remove_pid_file(s);
			return EXIT_FAILED;
		}
		if (r > 0) { /* the starter; the child keeps the lock */
			if (s->pid_fd >= 0)
				(void)gx_env_close(s->d.env, s->pid_fd);
			return code;
		}
	}
	r = run_locked(s);
	code = r < 0 ? EXIT_FAILED : s->d.exit_code;
	remove_pid_file(s);
	tell_starter(s, code);
	gx_log_to_stderr(); /* closes the log file */
	return code;
}

int gx_daemon_main(const struct gx_daemon_spec *spec, int argc, char **argv)
{
	GX_AUTOFREE const char **sets = calloc((size_t)argc + 1, sizeof(*sets));
	struct state s = {.d = {.spec = spec, .env = gx_env_posix()},
			  .sets = sets,
			  .ready_fd = -1,
			  .status_fd = -1,
			  .pid_fd = -1};
	int code = EXIT_FINE;
	int r = sets == NULL ? -ENOMEM
			     : gx_format(s.config_path, sizeof(s.config_path), "%s/%s",
					 GX_SYSCONFDIR, spec->default_conf);

	if (r < 0) {
		fprintf(stderr, "%s: cannot start: %s\n", spec->program, gx_strerror(r));
		return EXIT_FAILED;
	}
	if (parse_options(&s, argc, argv) < 0)
		return EXIT_USAGE;
	if (s.mode == MODE_DONE)
		return fflush(stdout) == 0 ? EXIT_FINE : EXIT_FAILED;
	if (s.mode == MODE_SAMPLE || s.mode == MODE_MDOC)
		return print_config(&s) < 0 ? EXIT_FAILED : EXIT_FINE;
	if (load_first_config(&s) < 0)
		code = EXIT_USAGE;
	else if (s.mode == MODE_DUMP)
		code = print_config(&s) < 0 ? EXIT_FAILED : EXIT_FINE;
	else if (s.mode == MODE_RUN)
		code = run(&s);
	gx_conf_fini(spec->table, spec->config);
	return code;
}
