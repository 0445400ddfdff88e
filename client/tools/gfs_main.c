/*
 * gfs - the command line of the grid: one program, a command per task.
 */
#include "client/tools/gfs_tool.h"
#include "common/gx_buf.h"
#include "common/gx_daemon_os.h"
#include <stdarg.h>

static const struct gfs_command gfs_commands[] = {
	{"key", "make keys and key tables", gfs_key_main},
	{"ping", "measure round trips to any daemon", gfs_ping_main},
	{NULL, NULL, NULL},
};

int gfs_fail(const char *command, int exit_code, const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "gfs %s: ", command);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	return exit_code;
}

int gfs_fail_buf(const char *command, struct gx_buf *errors, int err)
{
	const char *text = errors->bytes > 0 ? gx_buf_text(errors) : NULL;

	if (!text)
		return gfs_fail(command, GFS_EXIT_FAILED, "%s", gx_strerror(err));
	while (*text) {
		int bytes = (int)strcspn(text, "\n");

		gfs_fail(command, 0, "%.*s", bytes, text);
		text += bytes + (text[bytes] == '\n');
	}
	return GFS_EXIT_FAILED;
}

void gfs_json_string(FILE *out, const char *text)
{
	fputc('"', out);
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p == '"' || *p == '\\')
			fprintf(out, "\\%c", *p);
		else if (*p < 0x20 || *p == 0x7f)
			fprintf(out, "\\u%04x", *p);
		else
			fputc(*p, out);
	}
	fputc('"', out);
}

static void print_help(void)
{
	printf("Usage: gfs COMMAND [ARGUMENT]...\n"
	       "The command line of the Gridstage grid filesystem.\n\n"
	       "Commands:\n");
	for (const struct gfs_command *c = gfs_commands; c->name; c++)
		printf("  %-8s %s\n", c->name, c->summary);
	printf("\nOptions:\n"
	       "      --version  print the version\n"
	       "  -h, --help     print this text; after a command, about that command\n\n"
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

int main(int argc, char **argv)
{
	struct gx_env *env = gx_env_posix();
	const char *guess;

	gx_forbid_core_dumps();
	if (argc < 2) {
		fprintf(stderr, "gfs: which command? Try: gfs --help\n");
		return GFS_EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0) {
		print_help();
		return GFS_EXIT_OK;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("gfs %s\n", GX_VERSION);
		return GFS_EXIT_OK;
	}
	for (const struct gfs_command *c = gfs_commands; c->name; c++)
		if (strcmp(c->name, argv[1]) == 0)
			return c->run(env, argc - 1, argv + 1);
	guess = nearest(argv[1]);
	fprintf(stderr, "gfs: there is no command \"%s\"%s%s%s Try: gfs --help\n", argv[1],
		guess ? "; did you mean " : ".", guess ? guess : "", guess ? "?" : "");
	return GFS_EXIT_USAGE;
}
