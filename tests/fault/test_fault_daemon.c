/*
 * Daemons start, reload and stop while each of their calls fails once: a tiny one, and gfs-echod.
 *
 * gx_daemon_main() works on the env of the process, so each run is a process of its own, with the
 * fault in memory that it shares with the test: the daemon of a background start counts on where
 * its starter has left off. Whatever fails, a run ends, exits with a code of gx_daemon.h, says why,
 * keeps no block, no descriptor and no lock, and so the next one can start.
 */
#include "tests/lib/fault_alloc.h"
#include <check.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The daemon as it is, with its main() under another name, and not a copy of its start. */
int echod_main(int argc, char **argv);
#define main echod_main
#include "rpc/echod/echod_main.c"
#undef main
#include "common/gx_daemon_os.h"

#define RUN_SEC 30u
#define RUNS_MAX 10000u
#define TEXT_BYTES 32768u
#define FAULT_BIT(name) (UINT64_C(1) << GX_FAULT_##name)

/* -- the daemons ----------------------------------------------------------- */

struct tiny_conf {
	struct gx_daemon_conf daemon;
	char *greeting;
	char *secret;
};

static struct tiny_conf tiny;
static bool reload_first;

static const struct gx_conf_row tiny_rows[] = {
	GX_DAEMON_CONF_ROWS(struct tiny_conf, daemon),
	{"test", "greeting", GX_CONF_STRING, offsetof(struct tiny_conf, greeting), "hello", NULL,
	 NULL, NULL, GX_CONF_RELOAD, "A value."},
	{"test", "secret", GX_CONF_PATH, offsetof(struct tiny_conf, secret), NULL, NULL, NULL, NULL,
	 GX_CONF_SECRET, "A secret."},
};
static const struct gx_conf_table tiny_table = {"gfs-tinyd", tiny_rows, GX_COUNT_OF(tiny_rows),
						sizeof(struct tiny_conf)};

/* Runs in the first turn. One thread and no blocked signal: they arrive in this order. */
static void signal_itself(struct gx_task *task GX_UNUSED)
{
	if (reload_first)
		kill(getpid(), SIGHUP);
	kill(getpid(), SIGTERM);
}

static struct gx_task once_ready = {.fn = signal_itself};

static int tiny_start(struct gx_daemon *d)
{
	alarm(RUN_SEC); /* again: a background daemon has not inherited it */
	gx_loop_post(d->loop, &once_ready);
	return 0;
}

static const struct gx_daemon_spec tiny_spec = {
	.program = "gfs-tinyd",
	.synopsis = "A daemon for tests.",
	.default_conf = "gridstage/does-not-exist.conf",
	.table = &tiny_table,
	.config = &tiny,
	.daemon_conf = &tiny.daemon,
	.start = tiny_start,
};

static int echod_start_and_stop(struct gx_daemon *d)
{
	int r = echod_start(d);

	if (r == 0)
		r = tiny_start(d);
	return r;
}

static const struct gx_daemon_spec echod_spec = {
	.program = PROGRAM,
	.synopsis = "The echo daemon, which stops once it is ready.",
	.default_conf = "gridstage/does-not-exist.conf",
	.table = &table,
	.config = &conf,
	.daemon_conf = &conf.daemon,
	.check = echod_check,
	.start = echod_start_and_stop,
	.stop = echod_stop,
	.finish = echod_finish,
};

/* Shared by the test and the processes of a run. */
struct run {
	struct gx_fault fault;
	_Atomic bool alloc_fired;
	_Atomic int64_t blocks_leaked; /* by any of them */
	_Atomic int fds_leaked;
};

static struct run *run_shared;

/* -- files ----------------------------------------------------------------- */

static char dir[64];
static char conf_path[128], pid_path[128], log_path[128];

static void in_dir(char *ret_path, size_t bytes, const char *name)
{
	ck_assert_int_eq(gx_format(ret_path, bytes, "%s/%s", dir, name), 0);
}

static void write_file(const char *name, const char *text)
{
	char path[128];
	int fd;

	in_dir(path, sizeof(path), name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void write_keys(void)
{
	struct rpc_keytab *keys;
	struct rpc_key key;
	char path[128];

	in_dir(path, sizeof(path), "keys");
	ck_assert_int_eq(rpc_keytab_new(&keys), 0);
	for (int i = 0; i < 3; i++) {
		char identity[32];

		ck_assert_int_eq(gx_format(identity, sizeof(identity), "user:u%d", i), 0);
		ck_assert_int_eq(rpc_key_make(gx_env_posix(), identity, 0, i == 0, &key), 0);
		ck_assert_int_eq(rpc_keytab_put(keys, &key, false), 0);
	}
	ck_assert_int_eq(rpc_keytab_save(keys, gx_env_posix(), path), 0);
	rpc_keytab_free(keys);
}

static void setup(void)
{
	char text[1024], sub[128];

	ck_assert_int_eq(gx_format(dir, sizeof(dir), "/tmp/fault_daemon.XXXXXX"), 0);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	in_dir(conf_path, sizeof(conf_path), "tiny.conf");
	in_dir(pid_path, sizeof(pid_path), "d.pid");
	in_dir(log_path, sizeof(log_path), "d.log");
	in_dir(sub, sizeof(sub), "tiny.conf.d");
	ck_assert_int_eq(mkdir(sub, 0700), 0);
	write_file("secret", "x\n");
	write_file("tiny.conf.d/10.conf", "[test]\ngreeting = good morning\n");
	write_file("tiny.conf", "[daemon]\npid_file = d.pid\nlog_file = d.log\n"
				"log_level = info,rpc=err\n[test]\nsecret = secret\n");
	ck_assert_int_eq(gx_format(text, sizeof(text),
				   "[daemon]\npid_file = d.pid\nlog_file = d.log\n[echo]\n"
				   "listen = localhost:0, tls:127.0.0.1:0, unix:%s/socket\n"
				   "bulk_listen = 127.0.0.1:0, tls:127.0.0.1:0\n"
				   "address_file = addresses\nkeys = keys\n",
				   dir),
			 0);
	write_file("echod.conf", text);
	write_keys();
	/* A leak checker needs to look into the process. */
	setenv("GX_COREDUMP", "1", 1);
	unsetenv("NOTIFY_SOCKET");
	/* The daemon of a background start becomes ours to wait for. */
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	run_shared = mmap(NULL, sizeof(*run_shared), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(run_shared, MAP_FAILED);
}

static int remove_entry(void *arg, const char *name)
{
	char path[256];

	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/%s", (const char *)arg, name), 0);
	if (unlink(path) < 0)
		(void)rmdir(path);
	return 0;
}

static void teardown(void)
{
	char sub[128];

	in_dir(sub, sizeof(sub), "tiny.conf.d");
	(void)gx_env_list_dir(gx_env_posix(), sub, remove_entry, sub);
	(void)gx_env_list_dir(gx_env_posix(), dir, remove_entry, dir);
	ck_assert_int_eq(rmdir(dir), 0);
	munmap(run_shared, sizeof(*run_shared));
}

static bool exists_in_dir(const char *name)
{
	char path[128];

	in_dir(path, sizeof(path), name);
	return access(path, F_OK) == 0;
}

/* -- one run --------------------------------------------------------------- */

struct scenario {
	const char *name;
	const struct gx_daemon_spec *spec;
	const char *conf;
	const char *args[2];
	bool reload;
	uint64_t must; /* kinds that have to be hit, a bit each */
};

struct result {
	int code;
	char text[TEXT_BYTES]; /* output, then the log */
};

static char run_name[128];
/* Runs in the process before the daemon does; may be NULL. */
static void (*prepare)(void);

static int open_descriptors(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void on_no_signal(struct gx_signal *sig GX_UNUSED, int signo GX_UNUSED)
{
}

/* libuv keeps a pipe for signals once it has been used. */
static void warm_up(void)
{
	struct gx_signal sig = {0};
	struct gx_loop *loop;

	if (gx_loop_new(gx_env_posix(), &loop) < 0 ||
	    gx_signal_start(loop, &sig, SIGUSR1, on_no_signal) < 0)
		abort();
	gx_loop_free(loop);
}

static GX_NORETURN void child_main(const struct scenario *sc, uint64_t alloc_nth)
{
	char path[128];
	char *argv[] = {(char *)(uintptr_t)sc->spec->program,
			(char *)(uintptr_t) "-c",
			path,
			(char *)(uintptr_t) "--set=daemon.log_level=info",
			(char *)(uintptr_t)sc->args[0],
			(char *)(uintptr_t)sc->args[1],
			NULL};
	int argc = 4 + (sc->args[0] != NULL) + (sc->args[1] != NULL);
	int64_t blocks;
	int fds, code;

	in_dir(path, sizeof(path), sc->conf);
	reload_first = sc->reload;
	alarm(RUN_SEC); /* kills, and that is noticed */
	warm_up();
	if (prepare != NULL)
		prepare();
	fds = open_descriptors();
	blocks = fault_alloc_live();
	gx_env_posix()->fault = &run_shared->fault;
	fault_alloc_set(alloc_nth);
	code = gx_daemon_main(sc->spec, argc, argv);
	/* The starter and the daemon of a background start both come here. */
	if (fault_alloc_fired())
		run_shared->alloc_fired = true;
	fault_alloc_set(0);
	if (fault_alloc_live() != blocks)
		run_shared->blocks_leaked = fault_alloc_live() - blocks;
	if (open_descriptors() != fds)
		run_shared->fds_leaked = open_descriptors() - fds;
	exit(code);
}

static size_t read_all(int fd, char *text, size_t bytes_max)
{
	size_t bytes = 0;
	ssize_t n;

	while ((n = read(fd, text + bytes, bytes_max - bytes)) > 0)
		bytes += (size_t)n;
	return bytes;
}

/* Waits for all processes of the run; the code of the one the test has started. */
static int reap(pid_t child)
{
	int code = -1, status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, 0)) > 0) {
		ck_assert_msg(!WIFSIGNALED(status), "%s: ended by signal %d", run_name,
			      WTERMSIG(status));
		if (pid == child)
			code = WEXITSTATUS(status);
		else
			ck_assert_msg(WEXITSTATUS(status) <= 1, "%s: the daemon exits with %d",
				      run_name, WEXITSTATUS(status));
	}
	ck_assert_int_eq(errno, ECHILD);
	return code;
}

/* Free to lock, and no pid in it that is none. */
static void check_pid_file(void)
{
	int fd = open(pid_path, O_RDWR | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return;
	ck_assert_msg(flock(fd, LOCK_EX | LOCK_NB) == 0, "%s: the pid file is locked", run_name);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_msg(st.st_size == 0, "%s: a pid of nobody is left", run_name);
	close(fd);
}

static void run_once(const struct scenario *sc, uint64_t alloc_nth, struct result *result)
{
	size_t bytes;
	int out[2], fd;
	pid_t child;

	run_shared->alloc_fired = false;
	run_shared->blocks_leaked = 0;
	run_shared->fds_leaked = 0;
	unlink(log_path);
	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	fflush(NULL);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		dup2(out[1], STDOUT_FILENO);
		dup2(out[1], STDERR_FILENO);
		close(out[0]);
		close(out[1]);
		child_main(sc, alloc_nth);
	}
	close(out[1]);
	bytes = read_all(out[0], result->text, TEXT_BYTES / 2);
	close(out[0]);
	result->code = reap(child);
	fd = open(log_path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		bytes += read_all(fd, result->text + bytes, TEXT_BYTES - 1 - bytes);
		close(fd);
	}
	result->text[bytes] = '\0';
}

/* What holds after any run. */
static void check_result(const struct scenario *sc, const struct result *result, bool fired,
			 int err)
{
	size_t bytes = strlen(result->text);
	const char *text = result->text;

	ck_assert_msg(result->code >= 0 && result->code <= 2, "%s: exit code %d, output:\n%s",
		      run_name, result->code, text);
	ck_assert_msg(run_shared->blocks_leaked == 0, "%s: %lld blocks leaked", run_name,
		      (long long)run_shared->blocks_leaked);
	ck_assert_msg(run_shared->fds_leaked == 0, "%s: %d descriptors leaked", run_name,
		      run_shared->fds_leaked);
	ck_assert_msg(fired || result->code == 0, "%s: nothing failed, but:\n%s", run_name, text);
	ck_assert_msg(bytes == 0 || text[bytes - 1] == '\n', "%s: half a line:\n%s", run_name,
		      text);
	if (result->code != 0)
		ck_assert_msg(strstr(text, gx_strerror(-err)) != NULL ||
				      (err == EAGAIN && strstr(text, "already being started")),
			      "%s: does not say why:\n%s", run_name, text);
	if (sc->reload && result->code == 0)
		ck_assert_msg(strstr(text, fired && strstr(text, " err ")
						   ? "configuration not reloaded, keeping"
						   : "configuration reloaded"),
			      "%s: no word about the reload:\n%s", run_name, text);
	check_pid_file();
	if (!(run_shared->fault.kinds & FAULT_BIT(UNLINK)))
		ck_assert_msg(!exists_in_dir("addresses") && !exists_in_dir("addresses.new"),
			      "%s: an address file is left", run_name);
}

static uint64_t run_allocs(const struct scenario *sc)
{
	static struct result result;
	uint64_t n;

	run_shared->fault = (struct gx_fault){.kinds = 0};
	for (n = 1; n < RUNS_MAX; n++) {
		snprintf(run_name, sizeof(run_name), "%s: allocation %llu fails", sc->name,
			 (unsigned long long)n);
		run_once(sc, n, &result);
		check_result(sc, &result, run_shared->alloc_fired, ENOMEM);
		if (!run_shared->alloc_fired)
			break;
	}
	return n - 1;
}

/* err is 0 for what this kind of call fails with by itself. */
static uint64_t run_kind(const struct scenario *sc, enum gx_fault_kind kind, int err)
{
	static struct result result;
	uint64_t n;

	for (n = 1; n < RUNS_MAX; n++) {
		run_shared->fault =
			(struct gx_fault){.kinds = UINT64_C(1) << kind, .nth = n, .err = err};
		snprintf(run_name, sizeof(run_name), "%s: %s %llu fails", sc->name,
			 gx_fault_name(kind), (unsigned long long)n);
		run_once(sc, 0, &result);
		check_result(sc, &result, run_shared->fault.fired > 0, err);
		if (run_shared->fault.fired == 0)
			break;
	}
	return n - 1;
}

static const struct scenario scenarios[] = {
	{"foreground",
	 &tiny_spec,
	 "tiny.conf",
	 {NULL},
	 false,
	 FAULT_BIT(OPEN) | FAULT_BIT(CLOSE) | FAULT_BIT(READ) | FAULT_BIT(WRITE) |
		 FAULT_BIT(TRUNCATE) | FAULT_BIT(STAT) | FAULT_BIT(UNLINK) | FAULT_BIT(LIST) |
		 FAULT_BIT(LOCK) | FAULT_BIT(MUTEX) | FAULT_BIT(LOOP)},
	{"reload", &tiny_spec, "tiny.conf", {NULL}, true, FAULT_BIT(OPEN) | FAULT_BIT(READ)},
	{"background",
	 &tiny_spec,
	 "tiny.conf",
	 {"--background"},
	 false,
	 FAULT_BIT(LOCK) | FAULT_BIT(WRITE) | FAULT_BIT(LOOP)},
	{"check",
	 &tiny_spec,
	 "tiny.conf",
	 {"--check-config"},
	 false,
	 FAULT_BIT(OPEN) | FAULT_BIT(READ) | FAULT_BIT(STAT) | FAULT_BIT(LIST)},
	{"dump", &tiny_spec, "tiny.conf", {"--dump-config"}, false, FAULT_BIT(OPEN)},
	{"echod",
	 &echod_spec,
	 "echod.conf",
	 {NULL},
	 false,
	 FAULT_BIT(OPEN) | FAULT_BIT(READ) | FAULT_BIT(WRITE) | FAULT_BIT(RENAME) |
		 FAULT_BIT(UNLINK) | FAULT_BIT(RANDOM) | FAULT_BIT(LISTEN) | FAULT_BIT(NAME) |
		 FAULT_BIT(RESOLVE) | FAULT_BIT(MUTEX) | FAULT_BIT(LOOP) | FAULT_BIT(TLS)},
};

START_TEST(each_call_of_a_daemon_may_fail_and_the_next_start_works)
{
	const struct scenario *sc = &scenarios[_i];

	printf("%s: alloc %llu", sc->name, (unsigned long long)run_allocs(sc));
	for (int kind = 0; kind < GX_FAULT_COUNT; kind++) {
		/* An errno that nothing else gives; and for a lock the one that means "taken". */
		uint64_t points = run_kind(sc, (enum gx_fault_kind)kind, EDQUOT);

		if (kind == GX_FAULT_LOCK)
			ck_assert_uint_eq(run_kind(sc, GX_FAULT_LOCK, EAGAIN), points);
		if (points > 0)
			printf(" %s %llu", gx_fault_name((enum gx_fault_kind)kind),
			       (unsigned long long)points);
		ck_assert_msg(points > 0 || !(sc->must >> kind & 1), "%s: no %s was hit", sc->name,
			      gx_fault_name((enum gx_fault_kind)kind));
	}
	printf("\n");
}
END_TEST

/* -- refusals that no fault point makes ------------------------------------------------ */

static void leave_room_for_one_descriptor(void)
{
	struct rlimit limit = {0};
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	/* Enough for each file of the configuration and for the pid file, and no pipe beside it. */
	limit.rlim_cur = limit.rlim_max = (rlim_t)fd + 1;
	if (fd < 0 || setrlimit(RLIMIT_NOFILE, &limit) < 0)
		abort();
	close(fd);
}

START_TEST(a_background_start_that_cannot_fork_removes_its_pid_file)
{
	static const struct scenario sc = {"no descriptors", &tiny_spec, "tiny.conf",
					   {"-b"},           false,      0};
	static struct result result;

	prepare = leave_room_for_one_descriptor;
	run_once(&sc, 0, &result);
	ck_assert_int_eq(result.code, 1);
	ck_assert_str_eq(result.text, "gfs-tinyd: cannot make a pipe: Too many open files\n");
	ck_assert(!exists_in_dir("d.pid"));
}
END_TEST

static void become_nobody(void)
{
	const struct passwd *nobody = getpwnam("nobody");

	if (setgroups(0, NULL) < 0 || setresgid(nobody->pw_gid, nobody->pw_gid, nobody->pw_gid) ||
	    setresuid(nobody->pw_uid, nobody->pw_uid, nobody->pw_uid) < 0)
		abort();
	prctl(PR_SET_DUMPABLE, 1); /* the change has reset it, and leaks are to be found */
}

START_TEST(who_is_not_root_cannot_switch_users)
{
	static const struct scenario sc = {
		"not root", &tiny_spec, "tiny.conf", {"--set=daemon.user=root"}, false, 0};
	static const char *const given[] = {"", "tiny.conf", "tiny.conf.d", "tiny.conf.d/10.conf",
					    "secret"};
	const struct passwd *nobody = getpwnam("nobody");
	static struct result result;

	if (geteuid() == 0) {
		if (nobody == NULL)
			return;
		for (size_t i = 0; i < GX_COUNT_OF(given); i++) {
			char path[128];

			in_dir(path, sizeof(path), given[i]);
			ck_assert_int_eq(chown(path, nobody->pw_uid, nobody->pw_gid), 0);
		}
		prepare = become_nobody;
	}
	run_once(&sc, 0, &result);
	ck_assert_int_eq(result.code, 1);
	ck_assert_ptr_nonnull(strstr(result.text, " err daemon only root can switch users error="
						  "\"Operation not permitted\" user=root\n"));
	ck_assert_ptr_null(strstr(result.text, " ready "));
	ck_assert(!exists_in_dir("d.pid"));
	ck_assert_int_eq(run_shared->blocks_leaked, 0);
	ck_assert_int_eq(run_shared->fds_leaked, 0);
}
END_TEST

START_TEST(core_dumps_are_forbidden_unless_asked_for)
{
	for (int asked = 0; asked < 2; asked++) {
		pid_t child = fork();
		int status;

		ck_assert_int_ge(child, 0);
		if (child == 0) {
			struct rlimit limit;
			bool off;

			prctl(PR_SET_DUMPABLE, 1);
			if (!asked)
				unsetenv("GX_COREDUMP");
			getrlimit(RLIMIT_CORE, &limit);
			limit.rlim_cur = limit.rlim_max;
			setrlimit(RLIMIT_CORE, &limit);
			gx_forbid_core_dumps();
			getrlimit(RLIMIT_CORE, &limit);
			off = prctl(PR_GET_DUMPABLE) == 0 && limit.rlim_cur == 0;
			_exit(asked ? prctl(PR_GET_DUMPABLE) != 1 : !off);
		}
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_int_eq(status, 0);
	}
}
END_TEST

/* Two that share an address file by mistake, and a port: the second one does not get far. */
START_TEST(a_failed_start_leaves_the_address_file_of_another_alone)
{
	static const struct scenario sc = {"taken", &echod_spec, "echod.conf", {NULL}, false, 0};
	static struct result result;

	write_file("addresses", "127.0.0.1:1\n");
	run_shared->fault = (struct gx_fault){.kinds = FAULT_BIT(LISTEN), .nth = 1};
	run_once(&sc, 0, &result);
	ck_assert_int_eq(result.code, 1);
	ck_assert_ptr_nonnull(strstr(result.text, "cannot listen"));
	ck_assert(exists_in_dir("addresses"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_daemon");
	TCase *tc = tcase_create("fault_daemon");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, a_background_start_that_cannot_fork_removes_its_pid_file);
	tcase_add_test(tc, who_is_not_root_cannot_switch_users);
	tcase_add_test(tc, core_dumps_are_forbidden_unless_asked_for);
	tcase_add_test(tc, a_failed_start_leaves_the_address_file_of_another_alone);
	tcase_add_loop_test(tc, each_call_of_a_daemon_may_fail_and_the_next_start_works, 0,
			    (int)GX_COUNT_OF(scenarios));
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
