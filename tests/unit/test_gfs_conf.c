#include "tests/unit/gfs_fake.h"

#include <sys/stat.h>

static struct gx_env *env;
static struct gfs_conf conf;
static struct gx_buf errors;
static char dir[64], file[128];

static void write_text(const char *path, const char *text)
{
	FILE *out = fopen(path, "w");

	ck_assert_ptr_nonnull(out);
	ck_assert_int_ge(fputs(text, out), 0);
	ck_assert_int_eq(fclose(out), 0);
}

/* fake_setup() leaves a key in its directory; the connection itself is not needed here. */
static void setup(void)
{
	fake_setup();
	ck_assert_int_eq(gfs_disconnect(fs), 0);
	fs = NULL;
	env = gx_env_posix();
	gx_buf_init(&errors, 65536);
	memset(&conf, 0, sizeof(conf));
	ck_assert_int_eq(gx_strcpy(dir, sizeof(dir), fake_dir), 0);
	ck_assert_int_eq(gx_format(file, sizeof(file), "%s/gfs.conf", dir), 0);
	unsetenv("GFS_CONFIG");
	ck_assert_int_eq(setenv("HOME", dir, 1), 0);
}

static void teardown(void)
{
	char path[160];

	gfs_conf_fini(&conf);
	gx_buf_fini(&errors);
	unlink(file);
	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/.gridstage/gfs.conf", dir), 0);
	unlink(path);
	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/.gridstage", dir), 0);
	rmdir(path);
	fake_teardown();
}

static int load(const struct gfs_options *options)
{
	return gfs_conf_load(env, options, &conf, &errors);
}

static bool has_error(const char *text)
{
	return strstr(gx_buf_text(&errors), text) != NULL;
}

START_TEST(a_named_file_is_read_with_defaults_for_the_rest)
{
	struct gfs_options options = {.config = file};
	char key[160];

	write_text(file, "[gfs]\nmetad = 127.0.0.1:7000\n");
	ck_assert_int_eq(load(&options), 0);
	ck_assert_str_eq(conf.metad, "127.0.0.1:7000");
	ck_assert_int_eq(gx_format(key, sizeof(key), "%s/key", dir), 0);
	ck_assert_str_eq(conf.key_file, key);
	ck_assert_int_eq(conf.meta_timeout_ns, 30 * GX_NSEC_PER_SEC);
	ck_assert_uint_eq(conf.connections, 4);
	ck_assert_uint_eq(conf.cache_bytes, 32 << 20);
	ck_assert(!conf.insecure);
}
END_TEST

START_TEST(a_relative_key_starts_at_the_file)
{
	struct gfs_options options = {.config = file};
	char key[160];

	write_text(file, "[gfs]\nmetad = m:1\nkey_file = keys/ann\n");
	ck_assert_int_eq(load(&options), 0);
	ck_assert_int_eq(gx_format(key, sizeof(key), "%s/keys/ann", dir), 0);
	ck_assert_str_eq(conf.key_file, key);
}
END_TEST

START_TEST(options_win_over_the_file)
{
	struct gfs_options options = {.config = file,
				      .metad = "unix:/m",
				      .key_file = "k",
				      .meta_timeout_ms = -1,
				      .connections = 9,
				      .cache_bytes = -1};

	write_text(file, "[gfs]\nmetad = m:1\nkey_file = ann\ncache = 1MiB\nconnections = 2\n"
			 "meta_timeout = 5s\n");
	ck_assert_int_eq(load(&options), 0);
	ck_assert_str_eq(conf.metad, "unix:/m");
	ck_assert_str_eq(conf.key_file, "k");
	ck_assert_int_eq(conf.meta_timeout_ns, GX_FOREVER);
	ck_assert_uint_eq(conf.connections, 9);
	ck_assert_uint_eq(conf.cache_bytes, 0);
	gfs_conf_fini(&conf);
	options = (struct gfs_options){.config = file, .meta_timeout_ms = 1500, .cache_bytes = 77};
	ck_assert_int_eq(load(&options), 0);
	ck_assert_int_eq(conf.meta_timeout_ns, 1500 * GX_NSEC_PER_MSEC);
	ck_assert_uint_eq(conf.connections, 2);
	ck_assert_uint_eq(conf.cache_bytes, 77);
}
END_TEST

START_TEST(the_environment_comes_before_the_home_directory)
{
	char path[160];

	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/.gridstage", dir), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(gx_format(path, sizeof(path), "%s/.gridstage/gfs.conf", dir), 0);
	write_text(path, "[gfs]\nmetad = home:1\n");
	ck_assert_int_eq(load(NULL), 0);
	ck_assert_str_eq(conf.metad, "home:1");
	gfs_conf_fini(&conf);
	write_text(file, "[gfs]\nmetad = env:1\n");
	ck_assert_int_eq(setenv("GFS_CONFIG", file, 1), 0);
	ck_assert_int_eq(load(NULL), 0);
	ck_assert_str_eq(conf.metad, "env:1");
}
END_TEST

START_TEST(no_file_at_all_is_one_helpful_line)
{
	struct gfs *none;

	if (access(GX_SYSCONFDIR "/gridstage/gfs.conf", F_OK) == 0)
		return; /* this machine is part of a grid */
	ck_assert_int_eq(load(NULL), -ENOENT);
	ck_assert(has_error("$GFS_CONFIG"));
	ck_assert(has_error("~/.gridstage/gfs.conf"));
	ck_assert(has_error("/gridstage/gfs.conf;"));
	ck_assert(has_error("gfs up"));
	ck_assert_ptr_eq(strchr(gx_buf_text(&errors), '\n'),
			 (const char *)errors.data + errors.bytes - 1);
	ck_assert_int_eq(gfs_connect(NULL, &none), -ENOENT);
	ck_assert_int_eq(strncmp(gfs_error(), "no configuration found", 22), 0);
	ck_assert_ptr_null(strchr(gfs_error(), '\n'));
}
END_TEST

START_TEST(a_file_that_was_named_must_exist)
{
	struct gfs_options options = {.config = file, .metad = "m:1", .key_file = "k"};

	ck_assert_int_eq(load(&options), -ENOENT);
	ck_assert(has_error(file));
	gfs_conf_fini(&conf);
	gx_buf_clear(&errors);
	ck_assert_int_eq(setenv("GFS_CONFIG", file, 1), 0);
	ck_assert_int_eq(load(NULL), -ENOENT);
	ck_assert(has_error("$GFS_CONFIG: "));
}
END_TEST

START_TEST(address_and_key_are_enough)
{
	struct gfs_options options = {.metad = "127.0.0.1:1", .key_file = "k"};

	ck_assert_int_eq(load(&options), 0);
	ck_assert_str_eq(conf.metad, "127.0.0.1:1");
	ck_assert_uint_eq(errors.bytes, 0);
	gfs_conf_fini(&conf);
	options.key_file = NULL;
	ck_assert_int_eq(load(&options), -ENOENT);
}
END_TEST

static const struct {
	const char *text, *problem;
} mistakes[] = {
	{"[gfs]\nkey_file = k\n", "metad"},
	{"[gfs]\nmetad = m:1\nmeta_timeout = 0\n", "meta_timeout"},
	{"[gfs]\nmetad = m:1\nconnections = 65\n", "connections"},
	{"[gfs]\nmetad = m:1\nkeyfile = k\n", "key_file"},
	{"[grid]\nmetad = m:1\n", "gfs.conf:1"},
};

START_TEST(a_mistake_is_named)
{
	struct gfs_options options = {.config = file};

	write_text(file, mistakes[_i].text);
	ck_assert_int_eq(load(&options), -EINVAL);
	ck_assert_msg(has_error(mistakes[_i].problem), "%s", gx_buf_text(&errors));
}
END_TEST

START_TEST(everything_reaches_the_client)
{
	struct gfs_options options = {.config = file, .program = "prog/1"};

	write_text(file, "[gfs]\nmetad = 127.0.0.1:7000\ncache = 1MiB\nmeta_timeout = 5s\n");
	ck_assert_msg(gfs_connect(&options, &fs) == 0, "%s", gfs_error());
	ck_assert_str_eq(fake->identity, "user:ann");
	ck_assert_str_eq(fake->program, "prog/1");
	ck_assert_int_eq(fake->options.timeout_ns, 5 * GX_NSEC_PER_SEC);
	ck_assert_uint_eq(fake->options.cache_bytes, 1 << 20);
	ck_assert_uint_eq(fake->options.connections_max, 4);
	ck_assert(!fake->options.metad.tls);
}
END_TEST

START_TEST(a_key_others_can_read_is_refused)
{
	struct gfs_options options = {.config = file};
	char key[160];

	write_text(file, "[gfs]\nmetad = 127.0.0.1:7000\n");
	ck_assert_int_eq(gx_format(key, sizeof(key), "%s/key", dir), 0);
	ck_assert_int_eq(chmod(key, 0644), 0);
	ck_assert_int_eq(gfs_connect(&options, &fs), -EPERM);
	ck_assert_ptr_nonnull(strstr(gfs_error(), key));
	fs = NULL;
}
END_TEST

START_TEST(plain_connections_beyond_this_machine_need_a_word)
{
	struct gfs_options options = {.config = file};

	write_text(file, "[gfs]\nmetad = plain:192.0.2.1:7000\n");
	ck_assert_int_lt(gfs_connect(&options, &fs), 0);
	fs = NULL;
	write_text(file, "[gfs]\nmetad = 192.0.2.1:7000\n");
	ck_assert_int_eq(gfs_connect(&options, &fs), 0);
	ck_assert(fake->options.metad.tls);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gfs_conf");
	TCase *tcase = tcase_create("conf");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_named_file_is_read_with_defaults_for_the_rest);
	tcase_add_test(tcase, a_relative_key_starts_at_the_file);
	tcase_add_test(tcase, options_win_over_the_file);
	tcase_add_test(tcase, the_environment_comes_before_the_home_directory);
	tcase_add_test(tcase, no_file_at_all_is_one_helpful_line);
	tcase_add_test(tcase, a_file_that_was_named_must_exist);
	tcase_add_test(tcase, address_and_key_are_enough);
	tcase_add_loop_test(tcase, a_mistake_is_named, 0, (int)GX_COUNT_OF(mistakes));
	tcase_add_test(tcase, everything_reaches_the_client);
	tcase_add_test(tcase, a_key_others_can_read_is_refused);
	tcase_add_test(tcase, plain_connections_beyond_this_machine_need_a_word);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
