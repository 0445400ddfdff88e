#include "common/gx_conf.h"
#include "common/gx_limits.h"
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct config {
	char *listen;
	char *key_file;
	char *peers;
	bool verbose;
	uint64_t port;
	uint64_t cache_bytes;
	int64_t timeout_ns;
	int mode;
	char *secret;
};

static const char *const modes[] = {"fast", "safe", "strict", NULL};

static const struct gx_conf_row rows[] = {
	{"net", "listen", GX_CONF_STRING, offsetof(struct config, listen), "127.0.0.1:7000", NULL,
	 NULL, NULL, GX_CONF_REQUIRED, "Where to listen. It may be a unix socket."},
	{"net", "peers", GX_CONF_LIST, offsetof(struct config, peers), NULL, NULL, NULL, NULL,
	 GX_CONF_RELOAD, "Other servers."},
	{"net", "port", GX_CONF_U64, offsetof(struct config, port), "70", "1", "65535", NULL, 0,
	 ".A help text that starts with a dot and has a \\ in it."},
	{"net", "timeout", GX_CONF_DURATION, offsetof(struct config, timeout_ns), "30s", "10ms",
	 NULL, NULL, GX_CONF_RELOAD, "How long to wait."},
	{"cache", "size", GX_CONF_SIZE, offsetof(struct config, cache_bytes), "64MiB", "1MiB",
	 "1GiB", NULL, GX_CONF_RELOAD, "Memory for the cache."},
	{"cache", "mode", GX_CONF_ENUM, offsetof(struct config, mode), "safe", NULL, NULL, modes, 0,
	 "How careful to be."},
	{"cache", "verbose", GX_CONF_BOOL, offsetof(struct config, verbose), "no", NULL, NULL, NULL,
	 GX_CONF_HIDDEN, "For tests."},
	{"auth", "key_file", GX_CONF_PATH, offsetof(struct config, key_file), NULL, NULL, NULL,
	 NULL, 0, "A path."},
	{"auth", "secret", GX_CONF_PATH, offsetof(struct config, secret), NULL, NULL, NULL, NULL,
	 GX_CONF_SECRET, "A secret path."},
};

static const struct gx_conf_table table = {"gfs-test", rows, GX_COUNT_OF(rows),
					   sizeof(struct config)};

static struct config config;
static struct gx_buf errors;

static void setup(void)
{
	gx_buf_init(&errors, 65536);
	ck_assert_int_eq(gx_conf_init(&table, &config), 0);
}

static void teardown(void)
{
	gx_conf_fini(&table, &config);
	gx_buf_fini(&errors);
}

static int parse(const char *text)
{
	return gx_conf_parse(&table, &config, "metad.conf", text, strlen(text), &errors);
}

START_TEST(defaults_are_in_force_before_any_file)
{
	ck_assert_str_eq(config.listen, "127.0.0.1:7000");
	ck_assert_ptr_null(config.peers);
	ck_assert_ptr_null(config.key_file);
	ck_assert_uint_eq(config.port, 70);
	ck_assert_uint_eq(config.cache_bytes, 64 << 20);
	ck_assert_int_eq(config.timeout_ns, 30 * GX_NSEC_PER_SEC);
	ck_assert_int_eq(config.mode, 1);
	ck_assert(!config.verbose);
}
END_TEST

START_TEST(every_type_is_read)
{
	ck_assert_int_eq(parse("\xef\xbb\xbf# comment\r\n"
			       "[net]\r\n"
			       "listen =  \"quotes are not special\"  \r\n"
			       "peers = a:1 ,b:2,\tc:3\n"
			       "  port=65535\n"
			       "timeout = 1.5s\n"
			       "\n"
			       "   # indented comment\n"
			       "[ cache ]\n"
			       "size = 1GiB\n"
			       "mode = strict\n"
			       "verbose = ON\n"
			       "[auth]\n"
			       "key_file = /etc/a=b#c"),
			 0);
	ck_assert_uint_eq(errors.bytes, 0);
	ck_assert_str_eq(config.listen, "\"quotes are not special\"");
	ck_assert_str_eq(config.peers, "a:1,b:2,c:3");
	ck_assert_uint_eq(config.port, 65535);
	ck_assert_int_eq(config.timeout_ns, 1500 * GX_NSEC_PER_MSEC);
	ck_assert_uint_eq(config.cache_bytes, 1 << 30);
	ck_assert_int_eq(config.mode, 2);
	ck_assert(config.verbose);
	ck_assert_str_eq(config.key_file, "/etc/a=b#c");
}
END_TEST

static const struct {
	const char *text;
	const char *message;
} mistakes[] = {
	{"[net]\nlisen = x\n",
	 "metad.conf:2: unknown key \"lisen\" in [net], did you mean \"listen\"?\n"},
	{"[net]\nzzzzzz = x\n", "metad.conf:2: unknown key \"zzzzzz\" in [net]\n"},
	{"[net]\nmode = x\n",
	 "metad.conf:2: unknown key \"mode\" in [net], it belongs in [cache]\n"},
	{"[cach]\nsize = x\nwhatever = y\n",
	 "metad.conf:1: unknown section [cach], did you mean [cache]?\n"},
	{"[qqqqqq]\n", "metad.conf:1: unknown section [qqqqqq]\n"},
	{"[]\n", "metad.conf:1: unknown section []\n"},
	{"\n\n[cache]\nsize = 12\n",
	 "metad.conf:4: [cache] size: \"12\" is below the minimum 1MiB\n"},
	{"[cache]\nsize = 2GiB\n",
	 "metad.conf:2: [cache] size: \"2GiB\" is above the maximum 1GiB\n"},
	{"[cache]\nsize = 2 GiB\n",
	 "metad.conf:2: [cache] size: \"2 GiB\" is not a size such as 64MiB\n"},
	{"[cache]\nsize = 99EiB\n", "metad.conf:2: [cache] size: \"99EiB\" is too large\n"},
	{"[cache]\nsize =\n", "metad.conf:2: [cache] size: the value is missing\n"},
	{"[cache]\nmode = quick\n",
	 "metad.conf:2: [cache] mode: \"quick\" is not one of fast, safe, strict\n"},
	{"[cache]\nverbose = perhaps\n",
	 "metad.conf:2: [cache] verbose: \"perhaps\" is not yes or no\n"},
	{"[net]\nport = 0\n", "metad.conf:2: [net] port: \"0\" is below the minimum 1\n"},
	{"[net]\nport = 0x50\n", "metad.conf:2: [net] port: \"0x50\" is not a whole number\n"},
	{"[net]\ntimeout = 30\n",
	 "metad.conf:2: [net] timeout: \"30\" is not a duration such as 30s\n"},
	{"[net]\ntimeout = 1ms\n",
	 "metad.conf:2: [net] timeout: \"1ms\" is below the minimum 10ms\n"},
	{"[net]\npeers = a,,b\n", "metad.conf:2: [net] peers: \"a,,b\" has an empty item\n"},
	{"[net]\npeers = a,\n", "metad.conf:2: [net] peers: \"a,\" has an empty item\n"},
	{"[net]\nport = 1\nport = 2\n", "metad.conf:3: [net] port is set twice, first at line 2\n"},
	{"[net]\nport = 1\n[cache]\n[net]\nport = 1\n",
	 "metad.conf:5: [net] port is set twice, first at line 2\n"},
	{"port = 1\n", "metad.conf:1: \"port\" is set before the first [section]\n"},
	{"[net]\nport\n",
	 "metad.conf:2: expected \"key = value\" or \"[section]\", found \"port\"\n"},
	{"[net]\n= 1\n",
	 "metad.conf:2: expected \"key = value\" or \"[section]\", found \"= 1\"\n"},
	{"[net]\n; no\n",
	 "metad.conf:2: expected \"key = value\" or \"[section]\", found \"; no\"\n"},
	{"[net\nport = 1\n", "metad.conf:1: missing \"]\" behind the section name\n"},
	{"[net] # x\n", "metad.conf:1: unexpected text behind \"]\": \" # x\"\n"},
	{"[net]\nlisten = \xff\n", "metad.conf:2: the line is not valid UTF-8\n"},
	{"[net]\nlisten = a\x01z\n", "metad.conf:2: the line contains a control character\n"},
	{"[net]\nlisten = a\rb\n", "metad.conf:2: the line contains a control character\n"},
};

START_TEST(a_mistake_is_named_exactly)
{
	ck_assert_int_eq(parse(mistakes[_i].text), -EINVAL);
	ck_assert_str_eq(gx_buf_text(&errors), mistakes[_i].message);
}
END_TEST

START_TEST(all_problems_are_reported_in_one_run)
{
	ck_assert_int_eq(parse("[nett]\nx = 1\n[net]\nport = x\nlisen = y\n[cache]\nsize = 1\n"),
			 -EINVAL);
	ck_assert_str_eq(gx_buf_text(&errors),
			 "metad.conf:1: unknown section [nett], did you mean [net]?\n"
			 "metad.conf:4: [net] port: \"x\" is not a whole number\n"
			 "metad.conf:5: unknown key \"lisen\" in [net], did you mean \"listen\"?\n"
			 "metad.conf:7: [cache] size: \"1\" is below the minimum 1MiB\n");
}
END_TEST

START_TEST(nul_bytes_and_long_lines_are_errors)
{
	static const char nul[] = "[net]\nlisten = a\0b\nport = 5\n";
	static char text[2 * GX_CONF_LINE_MAX];
	size_t longest = GX_CONF_LINE_MAX - strlen("listen=");

	ck_assert_int_eq(gx_conf_parse(&table, &config, "f", nul, sizeof(nul) - 1, &errors),
			 -EINVAL);
	ck_assert_str_eq(gx_buf_text(&errors), "f:2: the line contains a NUL byte\n");
	gx_buf_clear(&errors);
	/* A value of exactly the maximum is kept whole; one byte more is refused. */
	ck_assert_int_eq(gx_format(text, sizeof(text), "[net]\nlisten=%0*d\n", (int)longest, 7), 0);
	ck_assert_int_eq(parse(text), 0);
	ck_assert_uint_eq(strlen(config.listen), longest);
	ck_assert_int_eq(gx_format(text, sizeof(text), "[net]\nlisten=%0*d\nport = 6\n",
				   (int)longest + 1, 7),
			 0);
	ck_assert_int_eq(parse(text), -EINVAL);
	ck_assert_str_eq(gx_buf_text(&errors),
			 "metad.conf:2: the line is longer than 4096 bytes\n");
}
END_TEST

START_TEST(a_full_error_buffer_still_fails)
{
	struct gx_buf small;

	gx_buf_init(&small, 10);
	ck_assert_int_eq(gx_conf_parse(&table, &config, "f", "[x]\n", 4, &small), -EINVAL);
	ck_assert_uint_eq(small.bytes, 0);
	gx_buf_fini(&small);
}
END_TEST

START_TEST(an_empty_value_unsets_a_text)
{
	ck_assert_int_eq(parse("[net]\nlisten =\npeers=\n[auth]\nkey_file =  \n"), 0);
	ck_assert_str_eq(config.listen, "");
	ck_assert_str_eq(config.peers, "");
	ck_assert_str_eq(config.key_file, "");
	ck_assert_int_eq(gx_conf_validate(&table, &config, &errors), -EINVAL);
	ck_assert_str_eq(gx_buf_text(&errors), "gfs-test: [net] listen must be set\n");
}
END_TEST

START_TEST(relative_paths_start_at_the_file)
{
	static const char text[] = "[auth]\nkey_file = keys/a\n";
	char cwd[GX_PATH_MAX], expected[2 * GX_PATH_MAX];

	ck_assert_int_eq(
		gx_conf_parse(&table, &config, "/etc/x/m.conf", text, strlen(text), &errors), 0);
	ck_assert_str_eq(config.key_file, "/etc/x/keys/a");
	ck_assert_int_eq(gx_conf_parse(&table, &config, "/m.conf", text, strlen(text), &errors), 0);
	ck_assert_str_eq(config.key_file, "/keys/a");
	ck_assert_ptr_nonnull(getcwd(cwd, sizeof(cwd)));
	ck_assert_int_eq(gx_conf_parse(&table, &config, "sub/m.conf", text, strlen(text), &errors),
			 0);
	ck_assert_int_eq(gx_format(expected, sizeof(expected), "%s/sub/keys/a",
				   strcmp(cwd, "/") == 0 ? "" : cwd),
			 0);
	ck_assert_str_eq(config.key_file, expected);
	ck_assert_int_eq(gx_conf_set(&table, &config, "auth.key_file=k", &errors), 0);
	ck_assert_int_eq(
		gx_format(expected, sizeof(expected), "%s/k", strcmp(cwd, "/") == 0 ? "" : cwd), 0);
	ck_assert_str_eq(config.key_file, expected);
}
END_TEST

static const struct {
	const char *assignment;
	const char *message; /* NULL: fine */
} sets[] = {
	{"net.port=81", NULL},
	{" net . port = 81 ", NULL},
	{"net.port=x", "--set: [net] port: \"x\" is not a whole number\n"},
	{"net.prt=81", "--set: unknown key \"prt\" in [net], did you mean \"port\"?\n"},
	{"nett.port=81", "--set: unknown section [nett], did you mean [net]?\n"},
	{"net.port", "--set: expected \"section.key=value\", found \"net.port\"\n"},
	{"port=81", "--set: expected \"section.key=value\", found \"port=81\"\n"},
	{"net=a.b", "--set: expected \"section.key=value\", found \"net=a.b\"\n"},
	{"net.listen=a\nb", "--set: the option's value contains a control character\n"},
	{"", "--set: expected \"section.key=value\", found \"\"\n"},
};

START_TEST(set_changes_one_value_or_says_why_not)
{
	int r = gx_conf_set(&table, &config, sets[_i].assignment, &errors);

	ck_assert_int_eq(r, sets[_i].message == NULL ? 0 : -EINVAL);
	ck_assert_str_eq(gx_buf_text(&errors), sets[_i].message == NULL ? "" : sets[_i].message);
	ck_assert_uint_eq(config.port, sets[_i].message == NULL ? 81 : 70);
}
END_TEST

START_TEST(a_dump_parses_back_to_the_same_dump)
{
	struct gx_buf first, second;
	struct config again;

	gx_buf_init(&first, 65536);
	gx_buf_init(&second, 65536);
	ck_assert_int_eq(parse("[net]\nlisten = # x = [y]\npeers = a, b\ntimeout = 12345678ns\n"
			       "[cache]\nsize = 1500000\nmode=fast\nverbose=1\n"
			       "[auth]\nkey_file =\n"),
			 0);
	ck_assert_int_eq(gx_conf_dump(&table, &config, &first), 0);
	ck_assert_str_eq(gx_buf_text(&first),
			 "[net]\nlisten = # x = [y]\npeers = a,b\nport = 70\n"
			 "timeout = 12345678ns\n\n[cache]\nsize = 1500000\nmode = fast\n"
			 "verbose = yes\n\n[auth]\nkey_file =\n#secret =\n");
	ck_assert_int_eq(gx_conf_init(&table, &again), 0);
	ck_assert_int_eq(
		gx_conf_parse(&table, &again, "dump", (char *)first.data, first.bytes, &errors), 0);
	ck_assert_int_eq(gx_conf_dump(&table, &again, &second), 0);
	ck_assert_str_eq(gx_buf_text(&second), gx_buf_text(&first));
	gx_conf_fini(&table, &again);
	gx_buf_fini(&first);
	gx_buf_fini(&second);
}
END_TEST

START_TEST(a_sample_is_a_valid_file_with_and_without_its_comment_signs)
{
	struct gx_buf sample;
	char *text;

	gx_buf_init(&sample, 65536);
	ck_assert_int_eq(gx_conf_sample(&table, &sample), 0);
	ck_assert_ptr_nonnull(gx_buf_text(&sample));
	text = (char *)sample.data;
	ck_assert_int_eq(parse(text), 0);
	ck_assert_ptr_nonnull(strstr(text, "\n#listen = 127.0.0.1:7000\n"));
	ck_assert_ptr_nonnull(
		strstr(text, "# (size, 1MiB to 1GiB, default 64MiB, reloaded on SIGHUP)\n"));
	ck_assert_ptr_nonnull(strstr(text, "fast | safe | strict"));
	ck_assert_ptr_null(strstr(text, "verbose")); /* hidden */
	for (char *p = text; (p = strstr(p, "\n#")) != NULL; p++) {
		if (p[2] != ' ')
			p[1] = ' ';
	}
	ck_assert_int_eq(parse(text), 0);
	ck_assert_uint_eq(config.cache_bytes, 64 << 20);
	gx_buf_fini(&sample);
}
END_TEST

START_TEST(mdoc_lists_every_visible_key_and_disarms_control_lines)
{
	struct gx_buf out;
	const char *text;

	gx_buf_init(&out, 65536);
	ck_assert_int_eq(gx_conf_mdoc(&table, &out), 0);
	text = gx_buf_text(&out);
	ck_assert_ptr_nonnull(strstr(text, ".Ss [net]\n.Bl -tag -width Ds\n.It Ic listen\n"
					   "Where to listen.\nIt may be a unix socket.\n"));
	ck_assert_ptr_nonnull(
		strstr(text, "\n\\&.A help text that starts with a dot and has a \\e"));
	ck_assert_ptr_nonnull(strstr(text, "\n.El\n.Ss [cache]\n"));
	ck_assert_ptr_null(strstr(text, "verbose"));
	ck_assert_str_eq(text + strlen(text) - 5, "\n.El\n");
	gx_buf_fini(&out);
}
END_TEST

START_TEST(reload_takes_reloadable_rows_and_names_the_others)
{
	static const char text[] = "[net]\nlisten = new\npeers = p\nport = 9\ntimeout = 1s\n";
	struct config fresh;
	struct gx_buf notes;

	gx_buf_init(&notes, 4096);
	ck_assert_int_eq(gx_conf_init(&table, &fresh), 0);
	ck_assert_int_eq(gx_conf_parse(&table, &fresh, "f", text, strlen(text), &errors), 0);
	ck_assert_int_eq(gx_conf_reload(&table, &config, &fresh, &notes), 0);
	ck_assert_str_eq(config.peers, "p");
	ck_assert_int_eq(config.timeout_ns, GX_NSEC_PER_SEC);
	ck_assert_str_eq(config.listen, "127.0.0.1:7000");
	ck_assert_uint_eq(config.port, 70);
	ck_assert_ptr_null(fresh.peers);
	ck_assert_str_eq(gx_buf_text(&notes), "[net] listen has changed and needs a restart\n"
					      "[net] port has changed and needs a restart\n");
	gx_conf_fini(&table, &fresh);
	gx_buf_fini(&notes);
}
END_TEST

/* -- files ---------------------------------------------------------------- */

static char dir[64];

static void setup_dir(void)
{
	setup();
	ck_assert_int_eq(gx_format(dir, sizeof(dir), "/tmp/test_gx_conf.XXXXXX"), 0);
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static int forget(void *arg, const char *name)
{
	char path[2 * GX_PATH_MAX];

	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/%s", (const char *)arg, name), 0);
	if (unlink(path) < 0) {
		(void)gx_env_list_dir(gx_env_posix(), path, forget, path);
		(void)rmdir(path);
	}
	return 0;
}

static void teardown_dir(void)
{
	(void)gx_env_list_dir(gx_env_posix(), dir, forget, dir);
	ck_assert_int_eq(rmdir(dir), 0);
	teardown();
}

static const char *in_dir(const char *name)
{
	static char paths[4][GX_PATH_MAX];
	static unsigned next;
	char *path = paths[next++ % 4];

	ck_assert_int_eq(gx_format(path, GX_PATH_MAX, "%s/%s", dir, name), 0);
	return path;
}

static void put_file(const char *name, const char *text, size_t bytes, mode_t mode)
{
	int fd = open(in_dir(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, bytes), (ssize_t)bytes);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

static void put_text(const char *name, const char *text)
{
	put_file(name, text, strlen(text), 0600);
}

static int load(bool must_exist)
{
	return gx_conf_load(&table, &config, gx_env_posix(), in_dir("m.conf"), must_exist, &errors);
}

START_TEST(drop_ins_win_over_the_file_in_order_of_their_names)
{
	ck_assert_int_eq(mkdir(in_dir("m.conf.d"), 0700), 0);
	put_text("m.conf", "[net]\nport = 1\nlisten = a\n[cache]\nmode = fast\n");
	put_text("m.conf.d/20-b.conf", "[net]\nport = 3\n");
	put_text("m.conf.d/10-a.conf", "[net]\nport = 2\nlisten = b\n[auth]\nkey_file = k\n");
	put_text("m.conf.d/30.conf.old", "not read");
	put_text("m.conf.d/.hidden.conf", "not read");
	put_text("m.conf.d/.conf", "not read");
	ck_assert_int_eq(load(true), 0);
	ck_assert_uint_eq(config.port, 3);
	ck_assert_str_eq(config.listen, "b");
	ck_assert_int_eq(config.mode, 0);
	ck_assert_str_eq(config.key_file, in_dir("m.conf.d/k"));
}
END_TEST

START_TEST(problems_of_the_file_and_all_drop_ins_are_reported)
{
	const char *text;

	ck_assert_int_eq(mkdir(in_dir("m.conf.d"), 0700), 0);
	put_text("m.conf", "[net]\nport = x\n");
	put_text("m.conf.d/1.conf", "[net]\nport = y\n");
	ck_assert_int_eq(mkdir(in_dir("m.conf.d/2.conf"), 0700), 0);
	put_text("m.conf.d/3.conf", "[net]\nport = z\n");
	ck_assert_int_eq(load(true), -EINVAL);
	text = gx_buf_text(&errors);
	ck_assert_ptr_nonnull(strstr(text, "m.conf:2: [net] port: \"x\""));
	ck_assert_ptr_nonnull(strstr(text, "1.conf:2: [net] port: \"y\""));
	ck_assert_ptr_nonnull(strstr(text, "2.conf: Is a directory\n"));
	ck_assert_ptr_nonnull(strstr(text, "3.conf:2: [net] port: \"z\""));
}
END_TEST

START_TEST(an_absent_file_is_fine_only_if_it_may_be_absent)
{
	ck_assert_int_eq(load(false), 0);
	ck_assert_uint_eq(errors.bytes, 0);
	ck_assert_int_eq(load(true), -ENOENT);
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), "m.conf: No such file or directory\n"));
	ck_assert_int_eq(mkdir(in_dir("m.conf.d"), 0700), 0);
	put_text("m.conf.d/1.conf", "[net]\nport = 5\n");
	ck_assert_int_eq(load(false), 0);
	ck_assert_uint_eq(config.port, 5);
}
END_TEST

START_TEST(a_file_over_the_maximum_is_refused)
{
	char *big = malloc(GX_CONF_FILE_MAX + 1);

	ck_assert_ptr_nonnull(big);
	memset(big, '\n', GX_CONF_FILE_MAX + 1);
	put_file("m.conf", big, GX_CONF_FILE_MAX, 0600);
	ck_assert_int_eq(load(true), 0);
	put_file("m.conf", big, GX_CONF_FILE_MAX + 1, 0600);
	ck_assert_int_eq(load(true), -EFBIG);
	free(big);
}
END_TEST

START_TEST(every_failing_call_is_an_error_and_not_a_crash)
{
	struct gx_env env = *gx_env_posix();
	bool fired = true;

	ck_assert_int_eq(mkdir(in_dir("m.conf.d"), 0700), 0);
	put_text("m.conf", "[net]\nport = 1\n");
	put_text("m.conf.d/1.conf", "[net]\nport = 2\n");
	for (uint64_t nth = 1; fired; nth++) {
		struct gx_fault fault = {.kinds = ~UINT64_C(0), .nth = nth};
		int r;

		env.fault = &fault;
		gx_buf_clear(&errors);
		r = gx_conf_load(&table, &config, &env, in_dir("m.conf"), true, &errors);
		fired = atomic_load(&fault.fired) > 0;
		/* A close of a file that was only read may fail unnoticed. */
		if (fired && atomic_load(&fault.last_kind) != GX_FAULT_CLOSE) {
			ck_assert_int_lt(r, 0);
			ck_assert_uint_gt(errors.bytes, 0);
		} else {
			ck_assert_int_eq(r, 0);
		}
		ck_assert_uint_lt(nth, 100);
	}
}
END_TEST

START_TEST(a_secret_that_others_can_reach_is_refused)
{
	struct gx_env *env = gx_env_posix();

	put_file("key", "k", 1, 0600);
	ck_assert_int_eq(gx_conf_check_secret(env, in_dir("key"), &errors), 0);
	ck_assert_int_eq(gx_conf_check_secret(env, in_dir("key"), NULL), 0);
	ck_assert_int_eq(chmod(in_dir("key"), 0640), 0);
	ck_assert_int_eq(gx_conf_check_secret(env, in_dir("key"), NULL), -EPERM);
	ck_assert_int_eq(gx_conf_check_secret(env, in_dir("key"), &errors), -EPERM);
	ck_assert_ptr_nonnull(strstr(gx_buf_text(&errors), "key: others can reach this secret"));
	ck_assert_int_eq(chmod(in_dir("key"), 0604), 0);
	ck_assert_int_eq(gx_conf_check_secret(env, in_dir("key"), NULL), -EPERM);
	ck_assert_int_eq(gx_conf_check_secret(env, dir, NULL), -EPERM);
	ck_assert_int_eq(gx_conf_check_secret(env, in_dir("none"), NULL), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gx_conf");
	TCase *text = tcase_create("text");
	TCase *files = tcase_create("files");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(text, setup, teardown);
	tcase_add_test(text, defaults_are_in_force_before_any_file);
	tcase_add_test(text, every_type_is_read);
	tcase_add_loop_test(text, a_mistake_is_named_exactly, 0, (int)GX_COUNT_OF(mistakes));
	tcase_add_test(text, all_problems_are_reported_in_one_run);
	tcase_add_test(text, nul_bytes_and_long_lines_are_errors);
	tcase_add_test(text, a_full_error_buffer_still_fails);
	tcase_add_test(text, an_empty_value_unsets_a_text);
	tcase_add_test(text, relative_paths_start_at_the_file);
	tcase_add_loop_test(text, set_changes_one_value_or_says_why_not, 0, (int)GX_COUNT_OF(sets));
	tcase_add_test(text, a_dump_parses_back_to_the_same_dump);
	tcase_add_test(text, a_sample_is_a_valid_file_with_and_without_its_comment_signs);
	tcase_add_test(text, mdoc_lists_every_visible_key_and_disarms_control_lines);
	tcase_add_test(text, reload_takes_reloadable_rows_and_names_the_others);
	suite_add_tcase(suite, text);
	tcase_add_checked_fixture(files, setup_dir, teardown_dir);
	tcase_add_test(files, drop_ins_win_over_the_file_in_order_of_their_names);
	tcase_add_test(files, problems_of_the_file_and_all_drop_ins_are_reported);
	tcase_add_test(files, an_absent_file_is_fine_only_if_it_may_be_absent);
	tcase_add_test(files, a_file_over_the_maximum_is_refused);
	tcase_add_test(files, every_failing_call_is_an_error_and_not_a_crash);
	tcase_add_test(files, a_secret_that_others_can_reach_is_refused);
	suite_add_tcase(suite, files);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
