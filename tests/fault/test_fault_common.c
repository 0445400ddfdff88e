/*
 * Every fallible call of common/, and of what rpc/ does with files, fails once.
 */
#define GX_LOG_COMPONENT "tests.fault"
#include "common/gx_addr.h"
#include "common/gx_conf.h"
#include "common/gx_log.h"
#include "common/gx_loop.h"
#include "rpc/rpc_endpoint.h"
#include "rpc/rpc_key.h"
#include "tests/fault/fault_run.h"
#include <fcntl.h>
#include <sys/stat.h>

static char dir[64];
static char path[128];

static void setup(void)
{
	snprintf(dir, sizeof(dir), "/tmp/fault.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static int remove_entry(void *arg GX_UNUSED, const char *name)
{
	char full[512];

	snprintf(full, sizeof(full), "%s/%s", dir, name);
	if (unlink(full) < 0)
		rmdir(full);
	return 0;
}

static void teardown(void)
{
	char sub[128];
	char parent[64];

	memcpy(parent, dir, sizeof(parent));
	snprintf(sub, sizeof(sub), "%s/a.conf.d", dir);
	memcpy(dir, sub, sizeof(dir));
	gx_env_list_dir(gx_env_posix(), sub, remove_entry, NULL);
	memcpy(dir, parent, sizeof(dir));
	gx_env_list_dir(gx_env_posix(), dir, remove_entry, NULL);
	rmdir(dir);
}

static void write_file(const char *name, const char *text)
{
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

/* -- buffers ------------------------------------------------------------------------------- */

static void buf_scenario(struct gx_fault *fault GX_UNUSED)
{
	static const char block[3000];
	struct gx_buf buf;

	gx_buf_init(&buf, 100000);
	for (int i = 0; i < 20; i++) {
		size_t before = buf.bytes;
		int r = i % 2 ? gx_buf_append(&buf, block, sizeof(block))
			      : gx_buf_append_format(&buf, "%d %s %2000d", i, "text", 5);

		/* What cannot be appended changes nothing. */
		fault_must(r < 0 ? buf.bytes == before : buf.bytes > before, "half an append");
	}
	if (gx_buf_text(&buf) != NULL)
		gx_buf_consume(&buf, buf.bytes / 2);
	gx_buf_wipe(&buf);
}

START_TEST(every_allocation_of_a_buffer_may_fail)
{
	fault_run_allocs("buf", buf_scenario, true);
}
END_TEST

/* -- configuration --------------------------------------------------------------------------------
 */

struct config {
	char *listen, *key_file, *peers, *secret;
	uint64_t cache_bytes;
	int64_t timeout_ns;
};

static const struct gx_conf_row rows[] = {
	{"net", "listen", GX_CONF_STRING, offsetof(struct config, listen), "127.0.0.1:7000", NULL,
	 NULL, NULL, GX_CONF_REQUIRED, "Where to listen."},
	{"net", "peers", GX_CONF_LIST, offsetof(struct config, peers), NULL, NULL, NULL, NULL,
	 GX_CONF_RELOAD, "Other servers."},
	{"net", "timeout", GX_CONF_DURATION, offsetof(struct config, timeout_ns), "30s", "10ms",
	 NULL, NULL, GX_CONF_RELOAD, "How long to wait."},
	{"cache", "size", GX_CONF_SIZE, offsetof(struct config, cache_bytes), "64MiB", "1MiB",
	 "1GiB", NULL, GX_CONF_RELOAD, "Memory for the cache."},
	{"auth", "key_file", GX_CONF_PATH, offsetof(struct config, key_file), NULL, NULL, NULL,
	 NULL, 0, "A path."},
	{"auth", "secret", GX_CONF_PATH, offsetof(struct config, secret), NULL, NULL, NULL, NULL,
	 GX_CONF_SECRET, "A secret path."},
};
static const struct gx_conf_table table = {"gfs-test", rows, GX_COUNT_OF(rows),
					   sizeof(struct config)};

static int conf_load(struct gx_env *env, struct config *config, struct gx_buf *errors)
{
	int r = gx_conf_init(&table, config);

	if (r == 0)
		r = gx_conf_load(&table, config, env, path, true, errors);
	if (r == 0)
		r = gx_conf_set(&table, config, "net.peers=a:1, b:2", errors);
	if (r == 0)
		r = gx_conf_validate(&table, config, errors);
	return r;
}

static void conf_scenario(struct gx_fault *fault)
{
	struct gx_env env = *gx_env_posix();
	struct config config = {0}, fresh = {0};
	struct gx_buf errors, out;
	int r;

	env.fault = fault;
	gx_buf_init(&errors, 10000);
	gx_buf_init(&out, 100000);
	r = conf_load(&env, &config, &errors);
	if (r == 0) {
		fault_must(strcmp(config.listen, "10.0.0.1:5") == 0 &&
				   config.cache_bytes == 3 << 20 &&
				   strcmp(config.peers, "a:1,b:2") == 0,
			   "success with other values");
		r = conf_load(&env, &fresh, &errors);
	}
	if (r == 0)
		r = gx_conf_reload(&table, &config, &fresh, &errors);
	if (r == 0)
		r = gx_conf_dump(&table, &config, &out);
	if (r == 0)
		r = gx_conf_sample(&table, &out);
	if (r == 0)
		r = gx_conf_mdoc(&table, &out);
	if (r == 0 && config.secret != NULL)
		r = gx_conf_check_secret(&env, config.secret, &errors);
	gx_conf_fini(&table, &config);
	gx_conf_fini(&table, &fresh);
	gx_buf_fini(&errors);
	gx_buf_fini(&out);
}

static void mistakes_scenario(struct gx_fault *fault GX_UNUSED)
{
	static const char text[] = "[net]\nlisen = x\ntimeout = 1y\npeers = a,,b\n[cach]\n[cache]\n"
				   "size = 5GiB\nno equals sign\n";
	struct config config = {0};
	struct gx_buf errors;
	int r;

	gx_buf_init(&errors, 10000);
	r = gx_conf_init(&table, &config);
	if (r == 0) {
		r = gx_conf_parse(&table, &config, "a.conf", text, sizeof(text) - 1, &errors);
		/* Whatever fails besides, a wrong file is never taken for a right one. */
		fault_must(r < 0, "mistakes were accepted");
	}
	gx_conf_fini(&table, &config);
	gx_buf_fini(&errors);
}

START_TEST(every_call_of_the_configuration_may_fail)
{
	char text[256];
	char sub[128];

	setup();
	snprintf(sub, sizeof(sub), "%s/a.conf.d", dir);
	ck_assert_int_eq(mkdir(sub, 0700), 0);
	write_file("a.conf.d/10-size.conf", "[cache]\nsize = 3MiB\n");
	write_file("a.conf.d/20-time.conf", "[net]\ntimeout = 5s\n");
	write_file("secret", "x\n");
	ck_assert_int_eq(chmod(path, 0600), 0);
	snprintf(text, sizeof(text),
		 "[net]\nlisten = 10.0.0.1:5\n[auth]\nkey_file = relative\nsecret = secret\n");
	write_file("a.conf", text);
	fault_run_allocs("conf", conf_scenario, true);
	fault_run_kinds("conf", conf_scenario,
			FAULT_BIT(OPEN) | FAULT_BIT(READ) | FAULT_BIT(STAT) | FAULT_BIT(LIST),
			true);
	fault_run_allocs("conf mistakes", mistakes_scenario, true);
	teardown();
}
END_TEST

/* -- log
 * ------------------------------------------------------------------------------------------------
 */

static void log_scenario(struct gx_fault *fault GX_UNUSED)
{
	int r = gx_log_open_file(path);

	if (r == 0)
		r = gx_log_set_levels("info,rpc=debug,common.conf=err");
	gx_log(NOTICE, "a line", GX_KS("key", "value\nwith a line break"), GX_KE(-EIO));
	if (r == 0)
		r = gx_log_reopen();
	gx_log_to_stderr();
}

/* Who logs because memory is short must not need any. */
START_TEST(the_log_allocates_nothing)
{
	setup();
	snprintf(path, sizeof(path), "%s/log", dir);
	snprintf(fault_run_name, sizeof(fault_run_name), "log");
	fault_alloc_set(1);
	fault_run_once(log_scenario, NULL, true);
	ck_assert(!fault_alloc_fired());
	fault_alloc_set(0);
	teardown();
}
END_TEST

/* A full disk loses lines and nothing else: not the process, not errno, not the lines after it. */
START_TEST(a_log_on_a_full_disk_only_loses_lines)
{
	static char text[2048];
	FILE *f;

	if (access("/dev/full", W_OK) < 0)
		return;
	setup();
	snprintf(path, sizeof(path), "%s/log", dir);
	ck_assert_int_eq(symlink("/dev/full", path), 0);
	ck_assert_int_eq(gx_log_open_file(path), 0);
	errno = EXDEV;
	gx_log(ERR, "lost");
	gx_log(ERR, "lost", GX_KE(-ENOSPC));
	ck_assert_int_eq(errno, EXDEV);
	/* There is room again: what rotates logs makes a new file. */
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(gx_log_reopen(), 0);
	gx_log(ERR, "kept");
	gx_log_to_stderr();
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	fclose(f);
	ck_assert_ptr_nonnull(strstr(text, " err tests.fault kept\n"));
	ck_assert_ptr_null(strstr(text, "lost"));
	teardown();
}
END_TEST

static char heard[256];

static void hear(void *arg GX_UNUSED, enum gx_log_level level GX_UNUSED, const char *line)
{
	snprintf(heard, sizeof(heard), "%s", line);
}

START_TEST(a_log_file_that_cannot_be_opened_leaves_the_old_sink)
{
	static char long_path[GX_PATH_MAX + 1];

	setup();
	memset(long_path, 'x', sizeof(long_path) - 1);
	gx_log_to_callback(hear, NULL);
	snprintf(path, sizeof(path), "%s/missing/log", dir);
	ck_assert_int_eq(gx_log_open_file(path), -ENOENT);
	ck_assert_int_eq(gx_log_open_file(dir), -EISDIR);
	ck_assert_int_eq(gx_log_open_file(long_path), -E2BIG);
	ck_assert_int_eq(gx_log_reopen(), 0);
	gx_log(ERR, "still heard");
	ck_assert_ptr_nonnull(strstr(heard, "still heard"));
	gx_log_to_stderr();
	teardown();
}
END_TEST

/* Whether a syslog daemon runs here or not; the switch back must not lose the next sink. */
START_TEST(the_syslog_may_be_there_or_not)
{
	for (int i = 0; i < 3; i++) {
		int before = dup(STDERR_FILENO), after;

		close(before);
		gx_log_to_syslog("test_fault_common");
		gx_log(NOTICE, "a line for syslog", GX_KS("percent", "%n%s"), GX_KE(-EIO));
		ck_assert_int_eq(gx_log_reopen(), 0);
		gx_log_to_syslog("test_fault_common");
		gx_log(DEBUG, "one that is switched off");
		gx_log_to_callback(hear, NULL);
		gx_log(ERR, "heard again");
		ck_assert_ptr_nonnull(strstr(heard, "heard again"));
		after = dup(STDERR_FILENO);
		close(after);
		ck_assert_int_eq(after, before); /* syslog's socket is closed */
		gx_log_to_stderr();
	}
}
END_TEST

/* -- loops
 * ---------------------------------------------------------------------------------------------------
 */

struct turn {
	struct gx_env *env;
	struct gx_loop *loop;
	struct gx_io io[20];
	int fd[20];
	struct gx_timer timers[40], last;
	struct gx_task task;
	struct gx_hook hook;
	struct gx_signal sig;
	unsigned posts_run;
};

static void on_event(struct gx_io *io, unsigned events GX_UNUSED)
{
	gx_env_event_clear(gx_loop_env(io->loop), io->fd);
	GX_IGNORE(gx_io_set(io, 0));
}

static void on_timer(struct gx_timer *timer GX_UNUSED)
{
}

static void on_last(struct gx_timer *timer)
{
	gx_loop_stop(timer->loop);
}

static void on_post(struct gx_task *task)
{
	struct turn *t = GX_CONTAINER_OF(task, struct turn, task);

	t->posts_run++;
}

static void on_hook(struct gx_hook *hook GX_UNUSED)
{
}

static void on_signal(struct gx_signal *sig GX_UNUSED, int signo GX_UNUSED)
{
}

static bool poll_loop;

static int turn_fill(struct turn *t)
{
	int64_t now = gx_env_now_ns(t->env);
	int r = 0;

	for (size_t i = 0; r == 0 && i < GX_COUNT_OF(t->io); i++) {
		t->fd[i] = gx_env_event_open(t->env);
		r = t->fd[i] < 0 ? t->fd[i]
				 : gx_io_start(t->loop, &t->io[i], t->fd[i], GX_READABLE, on_event);
		if (r == 0)
			gx_env_event_set(t->env, t->fd[i]);
	}
	for (size_t i = 0; r == 0 && i < GX_COUNT_OF(t->timers); i++)
		r = gx_timer_start(t->loop, &t->timers[i], now + (int64_t)i, on_timer);
	if (r == 0)
		r = gx_timer_start(t->loop, &t->last, now + GX_NSEC_PER_MSEC, on_last);
	if (r == 0) {
		r = gx_signal_start(t->loop, &t->sig, SIGUSR1, on_signal);
		r = r == -ENOSYS ? 0 : r;
	}
	gx_hook_start(t->loop, &t->hook, 1, on_hook);
	gx_loop_post(t->loop, &t->task);
	return r;
}

static void loop_scenario(struct gx_fault *fault)
{
	struct gx_env env = *gx_env_posix();
	struct turn t = {.env = &env, .task = {.fn = on_post}};
	int r;

	env.fault = fault;
	memset(t.fd, -1, sizeof(t.fd));
	r = poll_loop ? gx_loop_new_poll(&env, &t.loop) : gx_loop_new(&env, &t.loop);
	if (r < 0)
		return;
	r = turn_fill(&t);
	if (r == 0)
		r = gx_loop_run(t.loop);
	if (r == 0)
		fault_must(t.posts_run == 1, "the post ran %u times", t.posts_run);
	gx_loop_unpost(t.loop, &t.task);
	for (size_t i = 0; i < GX_COUNT_OF(t.io); i++)
		gx_io_stop(&t.io[i]);
	gx_loop_free(t.loop);
	for (size_t i = 0; i < GX_COUNT_OF(t.fd); i++)
		if (t.fd[i] >= 0)
			gx_env_close(&env, t.fd[i]);
}

START_TEST(every_call_of_a_loop_may_fail)
{
	const char *name = _i ? "poll loop" : "libuv loop";

	poll_loop = _i != 0;
	fault_run_allocs(name, loop_scenario, true);
	fault_run_kinds(name, loop_scenario,
			FAULT_BIT(LOOP) | FAULT_BIT(EVENT) | FAULT_BIT(MUTEX) |
				(poll_loop ? FAULT_BIT(POLL) : 0),
			true);
}
END_TEST

/* -- addresses
 * ---------------------------------------------------------------------------------------------- */

static void addr_scenario(struct gx_fault *fault)
{
	static const char *const texts[] = {"localhost:70", "127.0.0.1:70", "[::1]:70",
					    "unix:/tmp/x", "tls:127.0.0.1:5"};
	struct gx_env env = *gx_env_posix();
	struct rpc_endpoint endpoint;
	struct gx_buf errors;

	env.fault = fault;
	gx_buf_init(&errors, 1000);
	for (size_t i = 0; i < GX_COUNT_OF(texts); i++)
		GX_IGNORE(rpc_endpoint_parse(&env, texts[i], false, &endpoint, &errors));
	/* Refused, with a line for a person. */
	fault_must(rpc_endpoint_parse(&env, "plain:192.0.2.1:70", false, &endpoint, &errors) < 0,
		   "plain beyond the machine");
	gx_buf_fini(&errors);
}

START_TEST(every_call_behind_an_address_may_fail)
{
	fault_run_allocs("addr", addr_scenario, true);
	fault_run_kinds("addr", addr_scenario, FAULT_BIT(RESOLVE), true);
}
END_TEST

/* -- keys
 * ------------------------------------------------------------------------------------------------------
 */

static size_t keys_in_file(void)
{
	struct rpc_keytab *tab;
	size_t count = 0;

	if (rpc_keytab_new(&tab) < 0)
		return SIZE_MAX;
	if (rpc_keytab_load(tab, gx_env_posix(), path, NULL) == 0)
		count = rpc_keytab_count(tab);
	else
		count = SIZE_MAX;
	rpc_keytab_free(tab);
	return count;
}

static int save_keys(struct gx_env *env, unsigned count)
{
	struct rpc_keytab *tab;
	struct rpc_key key;
	int r = rpc_keytab_new(&tab);

	if (r < 0)
		return r;
	for (unsigned i = 0; r == 0 && i < count; i++) {
		char identity[32];

		snprintf(identity, sizeof(identity), "user:u%u", i);
		r = rpc_key_make(env, identity, 0, i == 0, &key);
		if (r == 0)
			r = rpc_keytab_put(tab, &key, false);
	}
	if (r == 0)
		r = rpc_keytab_save(tab, env, path);
	rpc_keytab_free(tab);
	return r;
}

/* A table of one key is replaced by one of forty: there is always one or the other, whole. */
static void key_scenario(struct gx_fault *fault)
{
	struct gx_env env = *gx_env_posix();
	struct rpc_keytab *tab;
	struct gx_buf errors;
	struct rpc_key one;
	struct stat st;
	char fresh[256];
	int r;

	env.fault = fault;
	r = save_keys(&env, 1);
	if (r == 0) {
		gx_buf_init(&errors, 1000);
		if (rpc_key_load(&env, path, &one, &errors) == 0)
			rpc_key_clear(&one);
		r = save_keys(&env, 40);
		if (rpc_keytab_new(&tab) == 0) {
			if (rpc_keytab_load(tab, &env, path, &errors) == 0)
				fault_must(rpc_keytab_count(tab) == 40 || r < 0, "%zu keys loaded",
					   rpc_keytab_count(tab));
			rpc_keytab_free(tab);
		}
		gx_buf_fini(&errors);
		/* A failed save means that the fault has struck and does not meet this look. */
		if (r < 0) {
			size_t count = keys_in_file();

			fault_must(count == 1 || count == 40, "%zu keys are left", count);
		}
	}
	snprintf(fresh, sizeof(fresh), "%s.new", path);
	if (fault == NULL || !(fault->kinds & FAULT_BIT(UNLINK)))
		fault_must(stat(fresh, &st) < 0, "a half-written table lies about");
	unlink(path);
	unlink(fresh);
}

START_TEST(every_call_behind_key_files_may_fail_and_a_table_stays_whole)
{
	setup();
	snprintf(path, sizeof(path), "%s/keys", dir);
	fault_run_allocs("keys", key_scenario, true);
	fault_run_kinds("keys", key_scenario,
			FAULT_BIT(RANDOM) | FAULT_BIT(OPEN) | FAULT_BIT(CLOSE) | FAULT_BIT(READ) |
				FAULT_BIT(WRITE) | FAULT_BIT(SYNC) | FAULT_BIT(STAT) |
				FAULT_BIT(RENAME) | FAULT_BIT(UNLINK),
			true);
	teardown();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_common");
	TCase *tc = tcase_create("fault_common");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, every_allocation_of_a_buffer_may_fail);
	tcase_add_test(tc, every_call_of_the_configuration_may_fail);
	tcase_add_test(tc, the_log_allocates_nothing);
	tcase_add_test(tc, a_log_on_a_full_disk_only_loses_lines);
	tcase_add_test(tc, a_log_file_that_cannot_be_opened_leaves_the_old_sink);
	tcase_add_test(tc, the_syslog_may_be_there_or_not);
	tcase_add_loop_test(tc, every_call_of_a_loop_may_fail, 0, 2);
	tcase_add_test(tc, every_call_behind_an_address_may_fail);
	tcase_add_test(tc, every_call_behind_key_files_may_fail_and_a_table_stays_whole);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
