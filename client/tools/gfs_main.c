/*
 * gfs - the command line of the grid: one program, a command per task.
 */
#include "client/tools/gfs_tool.h"
#include "common/gx_daemon_os.h"

/* In the order of the alphabet. */
static const struct gfs_command gfs_commands[] = {
	{"cat", "write files to standard output", gfs_cat_main},
	{"chmod", "change permissions", gfs_chmod_main},
	{"chown", "change owner and group", gfs_chown_main},
	{"cp", "copy files within the grid", gfs_cp_main},
	{"df", "show how much room there is", gfs_df_main},
	{"down", "stop the grid on this machine", gfs_down_main},
	{"du", "add up sizes", gfs_du_main},
	{"find", "search a tree for files", gfs_find_main},
	{"get", "copy files from the grid", gfs_get_main},
	{"key", "make keys and key tables", gfs_key_main},
	{"ln", "make hard and symbolic links", gfs_ln_main},
	{"ls", "list directories", gfs_ls_main},
	{"mkdir", "make directories", gfs_mkdir_main},
	{"mv", "rename files", gfs_mv_main},
	{"ping", "measure round trips to any daemon", gfs_ping_main},
	{"put", "copy files into the grid", gfs_put_main},
	{"rep", "say how many copies files shall have", gfs_rep_main},
	{"rm", "remove files and trees", gfs_rm_main},
	{"stat", "show all that is known about a file", gfs_stat_main},
	{"status", "tell whether the grid is healthy", gfs_status_main},
	{"touch", "make files, change their times", gfs_touch_main},
	{"up", "start a grid on this machine", gfs_up_main},
	{"where", "tell where the copies of files are", gfs_where_main},
	{NULL, NULL, NULL},
};

static void print_help(void)
{
	printf("Usage: gfs [-c FILE] COMMAND [ARGUMENT]...\n"
	       "The command line of the Gridstage grid filesystem.\n\n"
	       "Commands:\n");
	for (const struct gfs_command *c = gfs_commands; c->name; c++)
		printf("  %-8s %s\n", c->name, c->summary);
	printf("\nOptions:\n"
	       "  -c, --config FILE  which grid; default: the environment's GFS_CONFIG\n"
	       "      --version      print the version\n"
	       "  -h, --help         print this text; after a command, about that command\n\n"
	       "Exit status: 0 done, 1 failed, 2 wrong usage. See gfs(1).\n");
}

/* A command that starts alike: for "did you mean". */
static const char *nearest(const char *word)
{
	for (const struct gfs_command *c = gfs_commands; c->name; c++)
		if (c->name[0] == word[0])
			return c->name;
	return NULL;
}

static int run_command(struct gx_env *env, int argc, char **argv)
{
	static char name[32]; /* as getopt says it in front of its complaints */
	const char *guess;

	for (const struct gfs_command *c = gfs_commands; c->name; c++) {
		if (strcmp(c->name, argv[0]) != 0)
			continue;
		if (gx_format(name, sizeof(name), "gfs %s", c->name) == 0)
			argv[0] = name;
		return c->run(env, argc, argv);
	}
	guess = nearest(argv[0]);
	fprintf(stderr, "gfs: there is no command \"%s\"%s%s%s Try: gfs --help\n", argv[0],
		guess ? "; did you mean " : ".", guess ? guess : "", guess ? "?" : "");
	return GFS_EXIT_USAGE;
}

/* Said here: later it would look as if the environment had named it. */
static bool is_there(const char *config, int *ret_code)
{
	struct stat st;
	int r = gx_env_stat(gx_env_posix(), config, &st);

	if (r == 0)
		return true;
	fprintf(stderr, "gfs: --config %s: %s\n", config, gx_strerror(r));
	*ret_code = GFS_EXIT_FAILED;
	return false;
}

/*
 * The options before the command, by hand: getopt keeps a state that the command's own parsing
 * would inherit. The index of the command, or -1 and the exit code.
 */
static int parse_front(int argc, char **argv, int *ret_code)
{
	int i;

	for (i = 1; i < argc && argv[i][0] == '-'; i++) {
		const char *config = NULL;

		*ret_code = GFS_EXIT_OK;
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			print_help();
			return -1;
		}
		if (strcmp(argv[i], "--version") == 0) {
			printf("gfs %s\n", GX_VERSION);
			return -1;
		}
		if (gfs_config_print(argv[i], ret_code))
			return -1;
		if (strncmp(argv[i], "--config=", 9) == 0)
			config = argv[i] + 9;
		else if (strcmp(argv[i], "-c") == 0 || strcmp(argv[i], "--config") == 0)
			config = argv[++i]; /* NULL at the end */
		*ret_code = GFS_EXIT_USAGE;
		if (!config) {
			fprintf(stderr, "gfs: %s? Try: gfs --help\n",
				argv[i] ? argv[i] : "-c what");
			return -1;
		}
		/* In the environment every command finds it, and so does what it starts. */
		if (!is_there(config, ret_code) || setenv("GFS_CONFIG", config, 1) < 0)
			return -1;
	}
	return i;
}

int main(int argc, char **argv)
{
	int code = GFS_EXIT_OK;
	int first;

	gx_forbid_core_dumps();
	first = parse_front(argc, argv, &code);
	if (first < 0)
		return code;
	if (first >= argc) {
		fprintf(stderr, "gfs: which command? Try: gfs --help\n");
		return GFS_EXIT_USAGE;
	}
	if (strcmp(argv[first], "help") == 0) {
		print_help();
		return GFS_EXIT_OK;
	}
	return run_command(gx_env_posix(), argc - first, argv + first);
}
