/*
 * gfs up - a whole grid on this machine in one directory (gfs_grid_dir.h): makes what is missing,
 * starts what does not run, and returns when all of it answers. Running it again does no harm.
 */
#include "client/tools/gfs_up.h"
#include "client/tools/gfs_tool.h"
#include "common/gx_num.h"

static void print_help(void)
{
	printf("Usage: gfs up [OPTION]...\n"
	       "Makes and starts a grid on this machine, in one directory, and returns when it is\n"
	       "ready. Run again, it starts what is missing; keys and data are kept.\n\n"
	       "Options:\n"
	       "  -d, --dir DIR   the directory; default: $GFS_GRID, else ~/.gridstage/grid\n"
	       "      --fsd N     storage daemons that shall run at least: those of the grid are\n"
	       "                  always started; in a new grid 1, and 0 means that only files of\n"
	       "                  up to 8 KiB can be stored\n"
	       "      --rpcd N    computing daemons to start (0: not there yet)\n"
	       "      --mount DIR mount the grid there as well\n"
	       "      --json      print what runs as one JSON object\n"
	       "  -h, --help      print this text\n\n"
	       "Then: . DIR/env.sh; gfs ls /. See also: gfs down, gfs status.\n");
}

static int parse_count(const char *option, const char *text, uint64_t *ret_count)
{
	if (gx_parse_u64(text, ret_count) < 0)
		return gfs_fail("up", GFS_EXIT_USAGE, "%s %s: wants a number", option, text);
	return 0;
}

static int parse_options(int argc, char **argv, struct gfs_up *up)
{
	static const struct option longs[] = {
		{"dir", required_argument, NULL, 'd'},
		{"fsd", required_argument, NULL, 'F'},
		{"rpcd", required_argument, NULL, 'R'},
		{"mount", required_argument, NULL, 'M'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c, code = 0;

	optind = 1;
	while (code == 0 && (c = getopt_long(argc, argv, "d:h", longs, NULL)) != -1) {
		switch (c) {
		case 'd':
			up->dir = optarg;
			break;
		case 'F':
			code = parse_count("--fsd", optarg, &up->fsd);
			up->fsd_given = true;
			break;
		case 'R':
			code = parse_count("--rpcd", optarg, &up->rpcd);
			break;
		case 'M':
			up->mount = optarg;
			break;
		case 'j':
			up->json = true;
			break;
		case 'h':
			print_help();
			exit(GFS_EXIT_OK);
		default:
			fprintf(stderr, "Try: gfs up --help\n");
			return GFS_EXIT_USAGE;
		}
	}
	if (code)
		return code;
	if (optind != argc)
		return gfs_fail("up", GFS_EXIT_USAGE, "wants no argument; the directory is --dir");
	if (up->dir && !up->dir[0])
		return gfs_fail("up", GFS_EXIT_USAGE, "--dir wants a directory");
	if (up->fsd > GFS_GRID_NODES_MAX)
		return gfs_fail("up", GFS_EXIT_USAGE, "--fsd: at most %u", GFS_GRID_NODES_MAX);
	if (up->rpcd > 0)
		return gfs_fail("up", GFS_EXIT_USAGE, "--rpcd: there are no computing daemons yet");
	if (up->mount && !up->mount[0])
		return gfs_fail("up", GFS_EXIT_USAGE, "--mount wants a directory");
	return 0;
}

/* -- what to tell --------------------------------------------------------- */

static void print_json_daemon(const struct gfs_up_daemon *daemon)
{
	const char *line = daemon->addresses, *comma = "";

	printf("{\"name\": ");
	gfs_json_string(stdout, daemon->name);
	printf(", \"pid\": %lld, \"started\": %s, \"addresses\": [", (long long)daemon->pid,
	       daemon->started ? "true" : "false");
	while (*line) {
		size_t bytes = strcspn(line, "\n");
		GX_AUTOFREE char *address = strndup(line, bytes);

		printf("%s", comma);
		gfs_json_string(stdout, address ? address : "");
		comma = ", ";
		line += bytes + (line[bytes] == '\n');
	}
	printf("]}");
}

static void print_json(const struct gfs_up *up)
{
	char path[GX_PATH_MAX + 16];

	printf("{\"dir\": ");
	gfs_json_string(stdout, up->grid.dir);
	(void)gx_format(path, sizeof(path), "%s/" GFS_GRID_CLIENT_CONF, up->grid.dir);
	printf(", \"config\": ");
	gfs_json_string(stdout, path);
	printf(", \"identity\": ");
	gfs_json_string(stdout, up->identity);
	printf(", \"daemons\": [");
	print_json_daemon(&up->metad);
	for (uint64_t i = 0; i < up->fsd; i++) {
		printf(", ");
		print_json_daemon(&up->nodes[i]);
	}
	if (up->mount) {
		printf(", ");
		print_json_daemon(&up->mount_daemon);
	}
	printf("]}\n");
}

static void print_daemon(const struct gfs_up_daemon *daemon)
{
	const char *line = daemon->addresses;

	printf("  %-5s  process %lld, %s\n", daemon->name, (long long)daemon->pid,
	       daemon->started ? "started" : "was running");
	while (*line) {
		size_t bytes = strcspn(line, "\n");

		printf("         %.*s\n", (int)bytes, line);
		line += bytes + (line[bytes] == '\n');
	}
}

static void print_summary(const struct gfs_up *up)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789_-./+,:@%";
	char path[GX_PATH_MAX + 16];
	struct gx_buf word;

	printf("The grid in %s is up; you are %s.\n", up->grid.dir, up->identity);
	print_daemon(&up->metad);
	for (uint64_t i = 0; i < up->fsd; i++)
		print_daemon(&up->nodes[i]);
	if (up->mount)
		print_daemon(&up->mount_daemon);
	(void)gx_format(path, sizeof(path), "%s/" GFS_GRID_ENV, up->grid.dir);
	gx_buf_init(&word, GFS_UP_TEXT_MAX);
	if (path[strspn(path, plain)] != '\0' && gfs_up_append_quoted(&word, path) == 0 &&
	    gx_buf_text(&word))
		printf("Use it:\n  . %s\n", gx_buf_text(&word));
	else
		printf("Use it:\n  . %s\n", path);
	gx_buf_fini(&word);
	printf("  gfs ls /\nStop it:\n  gfs down\n");
}

static int up_grid(struct gfs_up *up)
{
	struct gx_buf errors;
	int code = 0, r;

	gx_buf_init(&errors, 4096);
	r = gfs_up_count_nodes(up);
	if (r == 0)
		r = gfs_up_make(up, &errors);
	if (r < 0)
		code = gfs_fail_buf("up", &errors, r);
	gx_buf_fini(&errors);
	if (code == 0)
		code = gfs_up_run(up);
	if (code == 0 && up->mount)
		code = gfs_up_do_mount(up);
	if (code)
		return code;
	if (up->json)
		print_json(up);
	else
		print_summary(up);
	return GFS_EXIT_OK;
}

int gfs_up_main(struct gx_env *env, int argc, char **argv)
{
	/* Too large for a stack: an address list for each node there may be. */
	GX_AUTOFREE struct gfs_up *up = calloc(1, sizeof(*up));
	char path[GX_PATH_MAX];
	struct gx_buf errors;
	int code, r;

	if (!up)
		return gfs_fail("up", GFS_EXIT_FAILED, "out of memory");
	code = parse_options(argc, argv, up);
	if (code)
		return code;
	r = gfs_grid_default(up->dir, path);
	if (r < 0)
		return gfs_fail("up", GFS_EXIT_FAILED, "which directory? %s; see --dir",
				gx_strerror(r));
	umask(077);
	gx_buf_init(&errors, 8192);
	r = gfs_grid_open(&up->grid, env, path, true, &errors);
	code = r < 0 ? gfs_fail_buf("up", &errors, r) : up_grid(up);
	gx_buf_fini(&errors);
	gfs_grid_close(&up->grid);
	return code;
}
