/*
 * gfs key - keys and key tables. The secret itself is never printed.
 */
#include "client/tools/gfs_tool.h"
#include "common/gx_num.h"
#include "rpc/rpc_key.h"
#include <getopt.h>

static void print_help(void)
{
	printf("Usage: gfs key new IDENTITY -o FILE [--expires TIME] [--admin]\n"
	       "       gfs key add TABLE FILE... [--replace]\n"
	       "       gfs key remove TABLE IDENTITY...\n"
	       "       gfs key list FILE [--json]\n\n"
	       "Makes keys and key tables. A key belongs to one identity, user:NAME or host:NAME.\n"
	       "The file made by \"new\" goes to its owner; \"add\" puts a copy into the table of\n"
	       "the daemon. Both are mode 0600.\n\n"
	       "Options:\n"
	       "  -o, --output FILE   where to write the new key; must not exist\n"
	       "      --expires TIME  a duration (30d) or a date (2027-01-31); default: never\n"
	       "      --admin         the identity may use administrative calls\n"
	       "      --replace       an identity that is in the table gets the new key\n"
	       "      --json          print the list as JSON\n"
	       "  -h, --help          print this text\n");
}

struct options {
	const char *output;
	const char *expires;
	bool admin, replace, json;
};

static int parse_options(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{"output", required_argument, NULL, 'o'},
		{"expires", required_argument, NULL, 'e'},
		{"admin", no_argument, NULL, 'a'},
		{"replace", no_argument, NULL, 'r'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	optind = 1;
	while ((c = getopt_long(argc, argv, "o:h", longs, NULL)) != -1) {
		switch (c) {
		case 'o':
			o->output = optarg;
			break;
		case 'e':
			o->expires = optarg;
			break;
		case 'a':
			o->admin = true;
			break;
		case 'r':
			o->replace = true;
			break;
		case 'j':
			o->json = true;
			break;
		case 'h':
			print_help();
			exit(GFS_EXIT_OK);
		default:
			fprintf(stderr, "Try: gfs key --help\n");
			return GFS_EXIT_USAGE;
		}
	}
	return 0;
}

static int parse_lifetime(struct gx_env *env, const char *text, int64_t *ret_ns)
{
	int64_t at_ns;

	if (!text || strcmp(text, "never") == 0) {
		*ret_ns = 0;
		return 0;
	}
	if (gx_parse_duration(text, ret_ns) == 0)
		return *ret_ns > 0 ? 0 : -EINVAL;
	if (gx_parse_time(text, &at_ns) < 0)
		return -EINVAL;
	*ret_ns = at_ns - gx_env_wall_ns(env);
	return *ret_ns > 0 ? 0 : -EINVAL;
}

static void print_key(const struct rpc_key *key, const char *verb)
{
	char print[RPC_FINGERPRINT_TEXT];

	rpc_key_fingerprint(key, print);
	printf("%s %s fingerprint %s\n", verb, key->identity, print);
}

static int key_new(struct gx_env *env, const struct options *o, int argc, char **argv)
{
	GX_CLEANUP(rpc_keytab_freep) struct rpc_keytab *tab = NULL;
	struct rpc_key key;
	struct stat st;
	int64_t lifetime_ns;
	int r;

	if (argc != 1 || !o->output)
		return gfs_fail("key new", GFS_EXIT_USAGE,
				"wants one IDENTITY and -o FILE. Try: gfs key --help");
	if (parse_lifetime(env, o->expires, &lifetime_ns) < 0)
		return gfs_fail("key new", GFS_EXIT_USAGE,
				"--expires %s: wants a time to come, as 30d or 2027-01-31",
				o->expires);
	if (gx_env_stat(env, o->output, &st) == 0)
		return gfs_fail("key new", GFS_EXIT_FAILED, "%s exists already", o->output);
	r = rpc_key_make(env, argv[0], lifetime_ns, o->admin, &key);
	if (r == -EINVAL)
		return gfs_fail("key new", GFS_EXIT_USAGE,
				"\"%s\" is no identity: wants user:NAME or host:NAME", argv[0]);
	if (r == 0)
		r = rpc_keytab_new(&tab);
	if (r == 0)
		r = rpc_keytab_put(tab, &key, false);
	if (r == 0)
		r = rpc_keytab_save(tab, env, o->output);
	if (r == 0)
		print_key(&key, "made");
	rpc_key_clear(&key);
	return r < 0 ? gfs_fail("key new", GFS_EXIT_FAILED, "%s: %s", o->output, gx_strerror(r))
		     : GFS_EXIT_OK;
}

static int load(struct gx_env *env, const char *command, const char *path, bool may_be_absent,
		struct rpc_keytab *tab)
{
	struct gx_buf errors;
	int exit_code = 0;
	int r;

	gx_buf_init(&errors, 4096);
	r = rpc_keytab_load(tab, env, path, &errors);
	if (r < 0 && !(r == -ENOENT && may_be_absent))
		exit_code = gfs_fail_buf(command, &errors, r);
	gx_buf_fini(&errors);
	return exit_code;
}

static int add_all(struct rpc_keytab *table, const struct rpc_keytab *from, bool replace)
{
	for (size_t i = 0; i < rpc_keytab_count(from); i++) {
		const struct rpc_key *key = rpc_keytab_get(from, i);
		int r = rpc_keytab_put(table, key, replace);

		if (r < 0)
			return gfs_fail("key add", GFS_EXIT_FAILED, "%s: %s", key->identity,
					r == -EEXIST ? "has a key already (see --replace)"
						     : gx_strerror(r));
		print_key(key, "added");
	}
	return 0;
}

static int save(struct gx_env *env, const char *command, const struct rpc_keytab *tab,
		const char *path)
{
	int r = rpc_keytab_save(tab, env, path);

	return r < 0 ? gfs_fail(command, GFS_EXIT_FAILED, "%s: %s", path, gx_strerror(r)) : 0;
}

static int key_add(struct gx_env *env, const struct options *o, int argc, char **argv)
{
	GX_CLEANUP(rpc_keytab_freep) struct rpc_keytab *table = NULL;
	int code = 0;

	if (argc < 2)
		return gfs_fail("key add", GFS_EXIT_USAGE, "wants TABLE and one or more FILEs");
	if (rpc_keytab_new(&table) < 0)
		return gfs_fail("key add", GFS_EXIT_FAILED, "out of memory");
	code = load(env, "key add", argv[0], true, table);
	for (int i = 1; code == 0 && i < argc; i++) {
		GX_CLEANUP(rpc_keytab_freep) struct rpc_keytab *from = NULL;

		if (rpc_keytab_new(&from) < 0)
			return gfs_fail("key add", GFS_EXIT_FAILED, "out of memory");
		code = load(env, "key add", argv[i], false, from);
		if (code == 0)
			code = add_all(table, from, o->replace);
	}
	return code ? code : save(env, "key add", table, argv[0]);
}

static int key_remove(struct gx_env *env, const struct options *o GX_UNUSED, int argc, char **argv)
{
	GX_CLEANUP(rpc_keytab_freep) struct rpc_keytab *table = NULL;
	int code;

	if (argc < 2)
		return gfs_fail("key remove", GFS_EXIT_USAGE, "wants TABLE and an IDENTITY");
	if (rpc_keytab_new(&table) < 0)
		return gfs_fail("key remove", GFS_EXIT_FAILED, "out of memory");
	code = load(env, "key remove", argv[0], false, table);
	for (int i = 1; code == 0 && i < argc; i++) {
		if (rpc_keytab_remove(table, argv[i]) < 0)
			code = gfs_fail("key remove", GFS_EXIT_FAILED, "%s is not in %s", argv[i],
					argv[0]);
	}
	return code ? code : save(env, "key remove", table, argv[0]);
}

static void list_one(const struct rpc_key *key, bool json, int64_t now_ns)
{
	char print[RPC_FINGERPRINT_TEXT];
	char created[40], expires[40] = "never";
	bool over = key->expires_ns && key->expires_ns < now_ns;

	rpc_key_fingerprint(key, print);
	gx_format_time(key->created_ns, false, created);
	if (key->expires_ns)
		gx_format_time(key->expires_ns, false, expires);
	if (json)
		printf("{\"identity\": \"%s\", \"fingerprint\": \"%s\", \"created\": \"%s\", "
		       "\"expires\": \"%s\", \"expired\": %s, \"admin\": %s}",
		       key->identity, print, created, expires, over ? "true" : "false",
		       key->admin ? "true" : "false");
	else
		printf("%-24s %s  %s  %s%s%s\n", key->identity, print, created, expires,
		       over ? " EXPIRED" : "", key->admin ? " admin" : "");
}

static int key_list(struct gx_env *env, const struct options *o, int argc, char **argv)
{
	GX_CLEANUP(rpc_keytab_freep) struct rpc_keytab *table = NULL;
	int64_t now_ns = gx_env_wall_ns(env);
	int code;

	if (argc != 1)
		return gfs_fail("key list", GFS_EXIT_USAGE, "wants one FILE");
	if (rpc_keytab_new(&table) < 0)
		return gfs_fail("key list", GFS_EXIT_FAILED, "out of memory");
	code = load(env, "key list", argv[0], false, table);
	if (code)
		return code;
	if (o->json)
		printf("[");
	for (size_t i = 0; i < rpc_keytab_count(table); i++) {
		if (o->json && i > 0)
			printf(",\n ");
		list_one(rpc_keytab_get(table, i), o->json, now_ns);
	}
	if (o->json)
		printf("]\n");
	return GFS_EXIT_OK;
}

int gfs_key_main(struct gx_env *env, int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(struct gx_env *, const struct options *, int, char **);
	} actions[] = {
		{"new", key_new}, {"add", key_add}, {"remove", key_remove}, {"list", key_list}};
	struct options o = {0};
	int code = parse_options(argc, argv, &o);

	if (code)
		return code;
	if (optind >= argc)
		return gfs_fail("key", GFS_EXIT_USAGE,
				"new, add, remove or list? Try: gfs key --help");
	for (size_t i = 0; i < GX_COUNT_OF(actions); i++)
		if (strcmp(actions[i].name, argv[optind]) == 0)
			return actions[i].run(env, &o, argc - optind - 1, argv + optind + 1);
	return gfs_fail("key", GFS_EXIT_USAGE, "there is no \"key %s\". Try: gfs key --help",
			argv[optind]);
}
