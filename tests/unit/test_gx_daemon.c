/*
 * A small daemon is run by the real gx_daemon_main() in child processes. It reports what it does
 * over a pipe, so that the tests wait for events and never for time.
 */
#define GX_LOG_COMPONENT "test.daemon"
#include "common/gx_daemon.h"
#include "common/gx_limits.h"
#include "common/gx_log.h"
#include "common/gx_num.h"
#include <check.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- the daemon ----------------------------------------------------------- */

struct config {
	struct gx_daemon_conf daemon;
	char *greeting;
	uint64_t report_fd;
	bool fail_start;
	bool slow_stop;
	bool probe; /* report whether we are dumpable, then exit */
	char *key_file;
};

static const struct gx_conf_row rows[] = {
	GX_DAEMON_CONF_ROWS(struct config, daemon),
	{"test", "greeting", GX_CONF_STRING, offsetof(struct config, greeting), "hello", NULL, NULL,
	 NULL, GX_CONF_RELOAD, "Reported after a reload."},
	{"test", "report_fd", GX_CONF_U64, offsetof(struct config, report_fd), "0", NULL, "1000",
	 NULL, 0, "Where to report."},
	{"test", "fail_start", GX_CONF_BOOL, offsetof(struct config, fail_start), "no", NULL, NULL,
	 NULL, 0, "Fail in start()."},
	{"test", "slow_stop", GX_CONF_BOOL, offsetof(struct config, slow_stop), "no", NULL, NULL,
	 NULL, 0, "Never finish stopping."},
	{"test", "probe", GX_CONF_BOOL, offsetof(struct config, probe), "no", NULL, NULL, NULL, 0,
	 "Report and exit."},
	{"test", "key_file", GX_CONF_PATH, offsetof(struct config, key_file), NULL, NULL, NULL,
	 NULL, GX_CONF_SECRET, "A secret."},
};

static const struct gx_conf_table table = {"gfs-testd", rows, GX_COUNT_OF(rows),
					   sizeof(struct config)};
static struct config config;

static void report(const char *what, const char *detail)
{
	char line[256];

	if (config.report_fd == 0)
		return;
	(void)gx_format(line, sizeof(line), "%s %s\n", what, detail);
	(void)!write((int)config.report_fd, line, strlen(line));
}

static int d_check(const void *checked, struct gx_env *env, struct gx_buf *errors)
{
	const struct config *c = checked;

	(void)env;
	if (strcmp(c->greeting, "rude") != 0)
		return 0;
	ck_assert_int_eq(gx_buf_append_format(errors, "testd: greeting is rude\n"), 0);
	return -EINVAL;
}

static int d_start(struct gx_daemon *d)
{
	(void)d;
	if (config.probe) {
		report("dumpable", prctl(PR_GET_DUMPABLE) == 0 ? "no" : "yes");
		_exit(0);
	}
	if (config.fail_start)
		return gx_log_errno(ERR, -EADDRINUSE, "cannot bind");
	report("started", config.greeting);
	return 0;
}

static void d_stop(struct gx_daemon *d)
{
	char uid[32];

	(void)gx_format(uid, sizeof(uid), "uid=%u", (unsigned)geteuid());
	report("stop", uid);
	if (!config.slow_stop)
		gx_loop_stop(d->loop);
}

static void d_finish(struct gx_daemon *d)
{
	(void)d;
	report("finish", "");
}

static void d_reloaded(struct gx_daemon *d)
{
	(void)d;
	report("reloaded", config.greeting);
}

static const struct gx_daemon_spec spec = {
	.program = "gfs-testd",
	.synopsis = "A daemon for tests.",
	.default_conf = "gridstage/does-not-exist.conf",
	.table = &table,
	.config = &config,
	.daemon_conf = &config.daemon,
	.check = d_check,
	.start = d_start,
	.stop = d_stop,
	.finish = d_finish,
	.reloaded = d_reloaded,
};

/* -- running it ----------------------------------------------------------- */

static char dir[64];
static char conf_path[128], pid_path[128], log_path[128];

struct child {
	pid_t pid;
	int out_fd;    /* its stdout and stderr */
	int report_fd; /* its reports */
};

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void setup(void)
{
	ck_assert_int_eq(gx_format(dir, sizeof(dir), "/tmp/test_gx_daemon.XXXXXX"), 0);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(gx_format(conf_path, sizeof(conf_path), "%s/d.conf", dir), 0);
	ck_assert_int_eq(gx_format(pid_path, sizeof(pid_path), "%s/d.pid", dir), 0);
	ck_assert_int_eq(gx_format(log_path, sizeof(log_path), "%s/d.log", dir), 0);
	write_file(conf_path, "[daemon]\npid_file = d.pid\n");
	/* A leak checker needs to look into the process; one test unsets this again. */
	setenv("GX_COREDUMP", "1", 1);
	unsetenv("NOTIFY_SOCKET");
}

static int remove_entry(void *arg, const char *name)
{
	char path[256];

	(void)arg;
	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/%s", dir, name), 0);
	return unlink(path);
}

static void teardown(void)
{
	(void)gx_env_list_dir(gx_env_posix(), dir, remove_entry, NULL);
	ck_assert_int_eq(rmdir(dir), 0);
}

/* Runs gx_daemon_main with these arguments (NULL-terminated) and -c conf_path. */
static struct child start(const char *const *args)
{
	char report_set[64];
	char *argv[24] = {(char *)(uintptr_t) "gfs-testd"};
	int argc = 1, out[2], reports[2];
	struct child child;

	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(reports, O_CLOEXEC), 0);
	ck_assert_int_eq(
		gx_format(report_set, sizeof(report_set), "--set=test.report_fd=%d", reports[1]),
		0);
	argv[argc++] = (char *)(uintptr_t) "-c";
	argv[argc++] = conf_path;
	argv[argc++] = report_set;
	for (; *args != NULL; args++)
		argv[argc++] = (char *)(uintptr_t)*args;
	fflush(NULL);
	child.pid = fork();
	ck_assert_int_ge(child.pid, 0);
	if (child.pid == 0) {
		close(reports[0]);
		close(out[0]);
		dup2(out[1], STDOUT_FILENO);
		dup2(out[1], STDERR_FILENO);
		close(out[1]);
		exit(gx_daemon_main(&spec, argc, argv));
	}
	close(out[1]);
	close(reports[1]);
	child.out_fd = out[0];
	child.report_fd = reports[0];
	return child;
}

#define START(...) start((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

/* The next line from a pipe, without its newline; "" at the end. */
static const char *next_line(int fd)
{
	static char line[4096];
	size_t bytes = 0;

	while (bytes < sizeof(line) - 1) {
		ssize_t n = read(fd, &line[bytes], 1);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || line[bytes] == '\n')
			break;
		bytes++;
	}
	line[bytes] = '\0';
	return line;
}

/* Reads lines until one holds `part`. */
static void await_line(int fd, const char *part)
{
	const char *line;

	do {
		line = next_line(fd);
		ck_assert_msg(line[0] != '\0', "the end came before \"%s\"", part);
	} while (strstr(line, part) == NULL);
}

/* Waits for the end and returns the exit code; `text` (may be NULL) gets the rest of the output. */
static int finish(struct child *child, char *text, size_t text_bytes)
{
	char spare[8192];
	size_t bytes = 0;
	ssize_t n;
	int status;

	if (text == NULL) {
		text = spare;
		text_bytes = sizeof(spare);
	}
	while ((n = read(child->out_fd, text + bytes, text_bytes - 1 - bytes)) > 0)
		bytes += (size_t)n;
	text[bytes] = '\0';
	ck_assert_int_eq(waitpid(child->pid, &status, 0), child->pid);
	close(child->out_fd);
	close(child->report_fd);
	ck_assert_msg(WIFEXITED(status), "killed by a signal, output: %s", text);
	return WEXITSTATUS(status);
}

static pid_t pid_in_file(void)
{
	int fd = open(pid_path, O_RDONLY | O_CLOEXEC);
	char text[32];
	uint64_t pid = 0;
	ssize_t n;

	ck_assert_int_ge(fd, 0);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	ck_assert_int_gt(n, 1);
	ck_assert_int_eq(text[n - 1], '\n');
	text[n - 1] = '\0';
	ck_assert_int_eq(gx_parse_u64(text, &pid), 0);
	return (pid_t)pid;
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static void read_log(char *text, size_t bytes)
{
	int fd = open(log_path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	ck_assert_int_ge(fd, 0);
	n = read(fd, text, bytes - 1);
	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	close(fd);
}

/* -- life ----------------------------------------------------------------- */

START_TEST(a_foreground_daemon_becomes_ready_and_stops_cleanly_on_sigterm)
{
	int ready[2];
	char option[32];
	struct child child;

	ck_assert_int_eq(pipe(ready), 0);
	ck_assert_int_eq(gx_format(option, sizeof(option), "--ready-fd=%d", ready[1]), 0);
	child = START(option);
	close(ready[1]);
	ck_assert_str_eq(next_line(ready[0]), "READY");
	ck_assert_str_eq(next_line(ready[0]), ""); /* and it was closed */
	close(ready[0]);
	ck_assert_int_eq(pid_in_file(), child.pid);
	ck_assert_str_eq(next_line(child.report_fd), "started hello");
	ck_assert_int_eq(kill(child.pid, SIGTERM), 0);
	ck_assert_int_eq(strncmp(next_line(child.report_fd), "stop", 4), 0);
	ck_assert_str_eq(next_line(child.report_fd), "finish ");
	ck_assert_int_eq(finish(&child, NULL, 0), 0);
	ck_assert(!exists(pid_path));
}
END_TEST

START_TEST(sigint_stops_it_too)
{
	struct child child = START(NULL);

	await_line(child.out_fd, " ready ");
	ck_assert_int_eq(kill(child.pid, SIGINT), 0);
	ck_assert_int_eq(finish(&child, NULL, 0), 0);
}
END_TEST

START_TEST(a_second_instance_is_told_the_first_ones_pid)
{
	struct child first = START(NULL), second;
	char text[1024], expected[256];

	await_line(first.out_fd, " ready ");
	second = START(NULL);
	ck_assert_int_eq(finish(&second, text, sizeof(text)), 1);
	ck_assert_int_eq(gx_format(expected, sizeof(expected),
				   "gfs-testd: already running as process %d (pid file %s)\n",
				   (int)first.pid, pid_path),
			 0);
	ck_assert_str_eq(text, expected);
	ck_assert_int_eq(pid_in_file(), first.pid);
	ck_assert_int_eq(kill(first.pid, SIGTERM), 0);
	ck_assert_int_eq(finish(&first, NULL, 0), 0);
	ck_assert(!exists(pid_path));
}
END_TEST

START_TEST(a_stale_pid_file_does_not_matter)
{
	struct child child;

	write_file(pid_path, "1\nold and longer than a pid\n");
	child = START(NULL);
	await_line(child.out_fd, " ready ");
	ck_assert_int_eq(pid_in_file(), child.pid);
	ck_assert_int_eq(kill(child.pid, SIGTERM), 0);
	ck_assert_int_eq(finish(&child, NULL, 0), 0);
}
END_TEST

START_TEST(a_second_sigterm_exits_at_once)
{
	struct child child = START("--set", "test.slow_stop=yes");

	await_line(child.out_fd, " ready ");
	ck_assert_int_eq(kill(child.pid, SIGTERM), 0);
	await_line(child.report_fd, "stop");
	ck_assert_int_eq(kill(child.pid, SIGTERM), 0);
	ck_assert_int_eq(finish(&child, NULL, 0), 1);
	ck_assert(!exists(pid_path));
}
END_TEST

START_TEST(a_failed_start_exits_with_1_and_cleans_up)
{
	struct child child = START("--set=test.fail_start=yes");
	char text[1024];

	ck_assert_str_eq(next_line(child.report_fd), "finish ");
	ck_assert_int_eq(finish(&child, text, sizeof(text)), 1);
	ck_assert_ptr_nonnull(strstr(text, "cannot bind error=\"Address already in use\""));
	ck_assert(!exists(pid_path));
}
END_TEST

START_TEST(core_dumps_are_off_unless_asked_for)
{
	struct child child = START("--set=test.probe=yes");

	ck_assert_str_eq(next_line(child.report_fd), "dumpable yes");
	ck_assert_int_eq(finish(&child, NULL, 0), 0);
	unsetenv("GX_COREDUMP");
	child = START("--set=test.probe=yes");
	ck_assert_str_eq(next_line(child.report_fd), "dumpable no");
	ck_assert_int_eq(finish(&child, NULL, 0), 0);
}
END_TEST

/* -- reload, service manager ---------------------------------------------- */

/* A NOTIFY_SOCKET of our own; name[0] == '@' makes it abstract. */
static int notify_open(const char *name)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gx_strcpy(addr.sun_path, sizeof(addr.sun_path), name), 0);
	if (name[0] == '@')
		addr.sun_path[0] = '\0';
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
			 0);
	setenv("NOTIFY_SOCKET", name, 1);
	return fd;
}

static void await_notice(int fd, const char *expected)
{
	char text[256];
	ssize_t n = recv(fd, text, sizeof(text) - 1, 0);

	ck_assert_int_gt(n, 0);
	text[n] = '\0';
	ck_assert_msg(strncmp(text, expected, strlen(expected)) == 0, "got %s, expected %s", text,
		      expected);
}

START_TEST(sighup_reloads_and_bad_values_change_nothing)
{
	static char text[16384];
	char name[128], log_set[160], rotated[160];
	struct child child;
	int fd;

	ck_assert_int_eq(gx_format(name, sizeof(name), "%s/notify", dir), 0);
	ck_assert_int_eq(gx_format(log_set, sizeof(log_set), "--set=daemon.log_file=%s", log_path),
			 0);
	ck_assert_int_eq(gx_format(rotated, sizeof(rotated), "%s.1", log_path), 0);
	fd = notify_open(name);
	child = START(log_set);
	await_notice(fd, "READY=1\nMAINPID=");
	ck_assert_str_eq(next_line(child.report_fd), "started hello");

	/* A reloadable row and one that needs a restart; the log file is rotated meanwhile. */
	write_file(conf_path, "[daemon]\npid_file = d.pid\nlog_level = debug\n"
			      "[test]\ngreeting = bye\nslow_stop = yes\n");
	ck_assert_int_eq(rename(log_path, rotated), 0);
	ck_assert_int_eq(kill(child.pid, SIGHUP), 0);
	await_notice(fd, "RELOADING=1\nMONOTONIC_USEC=");
	await_notice(fd, "READY=1");
	ck_assert_str_eq(next_line(child.report_fd), "reloaded bye");
	read_log(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "[test] slow_stop has changed and needs a restart"));
	ck_assert_ptr_nonnull(strstr(text, "configuration reloaded"));

	write_file(conf_path, "[daemon]\npid_file = d.pid\n[test]\ngreting = x\n");
	ck_assert_int_eq(kill(child.pid, SIGHUP), 0);
	await_notice(fd, "RELOADING=1");
	await_notice(fd, "READY=1");
	read_log(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "unknown key \\\"greting\\\" in [test], did you mean "
					   "\\\"greeting\\\"?"));
	ck_assert_ptr_nonnull(strstr(text, "keeping the old values"));

	write_file(conf_path, "[daemon]\npid_file = d.pid\n[test]\ngreeting = rude\n");
	ck_assert_int_eq(kill(child.pid, SIGHUP), 0);
	await_notice(fd, "RELOADING=1");
	await_notice(fd, "READY=1");

	ck_assert_int_eq(kill(child.pid, SIGTERM), 0);
	await_notice(fd, "STOPPING=1");
	/* No further "reloaded" came in between, and slow_stop did not take effect. */
	ck_assert_int_eq(strncmp(next_line(child.report_fd), "stop", 4), 0);
	ck_assert_int_eq(finish(&child, NULL, 0), 0);
	close(fd);
}
END_TEST

START_TEST(an_abstract_notify_socket_works)
{
	char name[64];
	struct child child;
	int fd;

	ck_assert_int_eq(gx_format(name, sizeof(name), "@test_gx_daemon-%d", (int)getpid()), 0);
	fd = notify_open(name);
	child = START(NULL);
	await_notice(fd, "READY=1");
	ck_assert_int_eq(kill(child.pid, SIGTERM), 0);
	await_notice(fd, "STOPPING=1");
	ck_assert_int_eq(finish(&child, NULL, 0), 0);
	close(fd);
}
END_TEST

/* -- background ----------------------------------------------------------- */

START_TEST(a_background_start_returns_when_the_daemon_is_ready)
{
	struct child child = START("-b");
	pid_t pid;
	int status;

	ck_assert_int_eq(waitpid(child.pid, &status, 0), child.pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	/* Ready means: everything is there already. */
	pid = pid_in_file();
	ck_assert_int_ne(pid, child.pid);
	ck_assert_int_eq(getsid(pid) == getsid(0), 0);
	ck_assert_str_eq(next_line(child.report_fd), "started hello");
	/* It let go of the starter's terminal: reading its output ends although it runs. */
	await_line(child.out_fd, " ready ");
	ck_assert_str_eq(next_line(child.out_fd), "");
	ck_assert_int_eq(kill(pid, SIGTERM), 0);
	ck_assert_int_eq(strncmp(next_line(child.report_fd), "stop", 4), 0);
	ck_assert_str_eq(next_line(child.report_fd), "finish ");
	ck_assert_str_eq(next_line(child.report_fd), ""); /* it has ended */
	ck_assert(!exists(pid_path));
	close(child.report_fd);
	close(child.out_fd);
}
END_TEST

START_TEST(a_background_start_that_fails_says_so_with_its_status)
{
	struct child child = START("-b", "--set=test.fail_start=yes");
	char text[2048];

	ck_assert_int_eq(finish(&child, text, sizeof(text)), 1);
	ck_assert_ptr_nonnull(strstr(text, "cannot bind"));
	ck_assert_ptr_nonnull(strstr(text, "gfs-testd: the daemon did not start\n"));
	child = START("-b", "--set=test.probe=yes"); /* exits without a word */
	ck_assert_int_eq(finish(&child, text, sizeof(text)), 1);
	ck_assert_ptr_nonnull(strstr(text, "died before it was ready"));
	child = START("-b", "--set=test.fail_start=perhaps");
	ck_assert_int_eq(finish(&child, text, sizeof(text)), 2);
	ck_assert_str_eq(text, "--set: [test] fail_start: \"perhaps\" is not yes or no\n");
}
END_TEST

START_TEST(a_background_daemon_refuses_a_second_one_before_forking)
{
	struct child first = START("-b"), second;
	char text[1024];
	int status;
	pid_t pid;

	ck_assert_int_eq(waitpid(first.pid, &status, 0), first.pid);
	pid = pid_in_file();
	second = START("-b");
	ck_assert_int_eq(finish(&second, text, sizeof(text)), 1);
	ck_assert_ptr_nonnull(strstr(text, "already running as process"));
	ck_assert_int_eq(kill(pid, SIGTERM), 0);
	await_line(first.report_fd, "finish");
	ck_assert_str_eq(next_line(first.report_fd), "");
	close(first.report_fd);
	close(first.out_fd);
}
END_TEST

/* -- users ---------------------------------------------------------------- */

START_TEST(an_unknown_user_ends_the_start)
{
	struct child child = START("--set=daemon.user=no-such-user-here");
	char text[2048];

	ck_assert_int_eq(finish(&child, text, sizeof(text)), 1);
	ck_assert_ptr_nonnull(strstr(text, "no such user"));
	ck_assert(!exists(pid_path));
}
END_TEST

START_TEST(only_root_can_switch_users)
{
	const struct passwd *nobody = getpwnam("nobody");
	struct child child;
	char text[2048], expected[32];

	if (nobody == NULL)
		return;
	child = START("--set=daemon.user=nobody");
	if (geteuid() != 0) {
		ck_assert_int_eq(finish(&child, text, sizeof(text)), 1);
		ck_assert_ptr_nonnull(strstr(text, "only root can switch users"));
		return;
	}
	ck_assert_int_eq(
		gx_format(expected, sizeof(expected), "stop uid=%u", (unsigned)nobody->pw_uid), 0);
	await_line(child.out_fd, " ready ");
	ck_assert_int_eq(kill(child.pid, SIGTERM), 0);
	await_line(child.report_fd, expected);
	ck_assert_int_eq(finish(&child, text, sizeof(text)), 0);
}
END_TEST

/* -- options -------------------------------------------------------------- */

static const struct {
	const char *args[3];
	int code;
	const char *text; /* must be the output, or part of it if `part` */
	bool part;
} options[] = {
	{{"--check-config"}, 0, "", false},
	{{"--check-config", "--set=test.greeting=rude"}, 2, "testd: greeting is rude\n", false},
	{{"--check-config", "--set=daemon.log_level=loud"},
	 2,
	 "[daemon] log_level: \"loud\"",
	 true},
	{{"--check-config", "--set=test.key_file=/nonexistent/key"},
	 2,
	 "/nonexistent/key: No such file or directory\n",
	 false},
	{{"-c", "/nonexistent/x.conf"},
	 2,
	 "/nonexistent/x.conf: No such file or directory\n",
	 false},
	{{"--dump-config"}, 0, "[test]\ngreeting = hello\n", true},
	{{"--dump-config", "--set=test.greeting=x y"}, 0, "\ngreeting = x y\n", true},
	{{"--sample-config"}, 0, "\n#greeting = hello\n", true},
	{{"--mdoc-config"}, 0, ".It Ic greeting\n", true},
	{{"--version"}, 0, "gfs-testd (Gridstage) " GX_VERSION "\n", false},
	{{"--help"}, 0, "gridstage/does-not-exist.conf", true},
	{{"-h"}, 0, "--check-config", true},
	{{"--nonsense"}, 2, "gfs-testd: unknown option \"--nonsense\"; try --help\n", false},
	{{"-x"}, 2, "gfs-testd: unknown option \"-x\"; try --help\n", false},
	{{"-fx"}, 2, "gfs-testd: unknown option \"-x\"; try --help\n", false},
	{{"--set"}, 2, "gfs-testd: a value is missing behind \"--set\"; try --help\n", false},
	{{"-c"}, 2, "gfs-testd: a value is missing behind \"-c\"; try --help\n", false},
	{{"--background=yes"},
	 2,
	 "gfs-testd: no value belongs behind \"--background=yes\"; try --help\n",
	 false},
	{{"stray"}, 2, "gfs-testd: unexpected argument \"stray\"; try --help\n", false},
	{{"--ready-fd=x"},
	 2,
	 "gfs-testd: --ready-fd needs an open descriptor, not \"x\"; try --help\n",
	 false},
	{{"--ready-fd=999"},
	 2,
	 "gfs-testd: --ready-fd needs an open descriptor, not \"999\"; try --help\n",
	 false},
};

START_TEST(each_option_answers_with_its_text_and_code)
{
	const char *args[] = {options[_i].args[0], options[_i].args[1], options[_i].args[2], NULL};
	struct child child = start(args);
	static char text[16384];
	int code = finish(&child, text, sizeof(text));

	ck_assert_msg(code == options[_i].code, "code %d, output: %s", code, text);
	if (options[_i].part)
		ck_assert_msg(strstr(text, options[_i].text) != NULL, "%s", text);
	else
		ck_assert_str_eq(text, options[_i].text);
	ck_assert(!exists(pid_path));
}
END_TEST

START_TEST(a_dump_is_a_configuration_that_dumps_the_same)
{
	static char first[16384], second[16384];
	struct child child = START("--dump-config", "--set=test.greeting=x");

	ck_assert_int_eq(finish(&child, first, sizeof(first)), 0);
	write_file(conf_path, first);
	/* finish() closed the first pipes, so report_fd gets the same number again. */
	child = START("--dump-config");
	ck_assert_int_eq(finish(&child, second, sizeof(second)), 0);
	ck_assert_str_eq(first, second);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gx_daemon");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, a_foreground_daemon_becomes_ready_and_stops_cleanly_on_sigterm);
	tcase_add_test(tc, sigint_stops_it_too);
	tcase_add_test(tc, a_second_instance_is_told_the_first_ones_pid);
	tcase_add_test(tc, a_stale_pid_file_does_not_matter);
	tcase_add_test(tc, a_second_sigterm_exits_at_once);
	tcase_add_test(tc, a_failed_start_exits_with_1_and_cleans_up);
	tcase_add_test(tc, core_dumps_are_off_unless_asked_for);
	tcase_add_test(tc, sighup_reloads_and_bad_values_change_nothing);
	tcase_add_test(tc, an_abstract_notify_socket_works);
	tcase_add_test(tc, a_background_start_returns_when_the_daemon_is_ready);
	tcase_add_test(tc, a_background_start_that_fails_says_so_with_its_status);
	tcase_add_test(tc, a_background_daemon_refuses_a_second_one_before_forking);
	tcase_add_test(tc, an_unknown_user_ends_the_start);
	tcase_add_test(tc, only_root_can_switch_users);
	tcase_add_loop_test(tc, each_option_answers_with_its_text_and_code, 0,
			    (int)GX_COUNT_OF(options));
	tcase_add_test(tc, a_dump_is_a_configuration_that_dumps_the_same);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
