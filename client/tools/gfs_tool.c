#include "client/tools/gfs_tool.h"
#include "client/tools/gfs_print.h"
#include "common/gx_buf.h"
#include "include/gfs.h"
#include <stdarg.h>
#include <unistd.h>

/* Work shorter than this shows no progress, and between two lines of it passes this much. */
#define PROGRESS_AFTER_NS (1 * GX_NSEC_PER_SEC)
#define PROGRESS_EVERY_NS (200 * GX_NSEC_PER_MSEC)

/* The signal that came, or 0; a handler can reach nothing but a global. */
static volatile sig_atomic_t caught_signal;

/* -- messages -----------------------------------------------------------------------------------
 */

static void fail_line(const char *command, const char *fmt, va_list args)
{
	GX_AUTOFREE char *text = NULL;

	if (vasprintf(&text, fmt, args) < 0)
		text = NULL;
	fprintf(stderr, "gfs %s: ", command);
	gfs_print_name(stderr, text ? text : "out of memory", isatty(STDERR_FILENO) == 1);
	fputc('\n', stderr);
}

int gfs_fail(const char *command, int exit_code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fail_line(command, fmt, args);
	va_end(args);
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

void gfs_tool_clear_progress(struct gfs_tool *tool)
{
	if (tool->progress.shown)
		fputs("\r\033[K", stderr);
	tool->progress.shown = false;
}

void gfs_tool_problem(struct gfs_tool *tool, const char *fmt, ...)
{
	va_list args;

	/* What was printed before the problem also comes before it. */
	fflush(stdout);
	gfs_tool_clear_progress(tool);
	va_start(args, fmt);
	fail_line(tool->command, fmt, args);
	va_end(args);
	tool->failed = true;
}

/* Errors of the connection and the session, where the library knows more than the number says. */
static bool has_story(int err)
{
	switch (-err) {
	case EACCES: /* perhaps metad does not know the user */
	case ETIMEDOUT:
	case ENOTRECOVERABLE:
	case EKEYREJECTED:
	case ECONNREFUSED:
	case EHOSTUNREACH:
	case EPROTO:
	case EREMCHG:
	case EIO:
	case ENOSPC:
		return true;
	default:
		return false;
	}
}

/* The story may be about a temporary file, whose name says nothing to the user. */
static const char *without_temp(const char *story)
{
	const char *temp = strstr(story, "/" GFS_TEMP_PREFIX);
	const char *what = temp ? strstr(temp, ": ") : NULL;

	return what ? what + 2 : story;
}

int gfs_tool_error(struct gfs_tool *tool, const char *path, int err)
{
	const char *story = has_story(err) ? without_temp(gfs_error()) : "";
	size_t bytes = strlen(path);
	bool named = strncmp(story, path, bytes) == 0 && story[bytes] == ':';

	/* A local file may be denied as well, and the library's last words are about another. */
	if (err == -EACCES && !named)
		story = "";
	if (named)
		gfs_tool_problem(tool, "%s", story);
	else
		gfs_tool_problem(tool, "%s: %s", path, *story ? story : gx_strerror(err));
	return err;
}

int gfs_tool_usage(const struct gfs_tool *tool, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fail_line(tool->command, fmt, args);
	va_end(args);
	fprintf(stderr, "Try: gfs %s --help\n", tool->command);
	return GFS_EXIT_USAGE;
}

void gfs_tool_print(const struct gfs_tool *tool, const char *name)
{
	gfs_print_name(stdout, name, tool->out_tty);
}

bool gfs_tool_ask(struct gfs_tool *tool, const char *question, const char *path)
{
	int first, c;

	gfs_tool_clear_progress(tool);
	fprintf(stderr, "gfs %s: %s ", tool->command, question);
	gfs_print_name(stderr, path, tool->err_tty);
	fputs("? ", stderr);
	fflush(stderr);
	first = c = getchar();
	while (c != '\n' && c != EOF)
		c = getchar();
	return first == 'y' || first == 'Y';
}

void gfs_tool_step(struct gfs_tool *tool)
{
	struct gfs_progress *p = &tool->progress;
	int64_t now_ns;

	p->count++;
	if (!p->verb || !tool->err_tty)
		return;
	now_ns = gx_env_now_ns(tool->env);
	if (now_ns < p->next_ns)
		return;
	fprintf(stderr, "\r%llu %s\033[K", (unsigned long long)p->count, p->verb);
	fflush(stderr);
	p->shown = true;
	p->next_ns = now_ns + PROGRESS_EVERY_NS;
}

/* -- life -------------------------------------------------------------------------------------- */

void gfs_tool_init(struct gfs_tool *tool, struct gx_env *env, const char *command, const char *help)
{
	*tool = (struct gfs_tool){.env = env, .command = command, .help = help};
	tool->umask = umask(0);
	umask(tool->umask);
	tool->out_tty = isatty(STDOUT_FILENO) == 1;
	tool->err_tty = isatty(STDERR_FILENO) == 1;
	optind = 0; /* getopt starts anew */
}

int gfs_tool_getopt(struct gfs_tool *tool, int argc, char **argv, const char *shorts,
		    const struct option *longs)
{
	for (;;) {
		int c = tool->one_dash ? getopt_long_only(argc, argv, shorts, longs, NULL)
				       : getopt_long(argc, argv, shorts, longs, NULL);

		switch (c) {
		case GFS_OPT_CONFIG:
			tool->config = optarg;
			continue;
		case GFS_OPT_HELP:
			fputs(tool->help, stdout);
			exit(GFS_EXIT_OK);
		case '?':
			fprintf(stderr, "Try: gfs %s --help\n", tool->command);
			return '?';
		default:
			return c;
		}
	}
}

int gfs_tool_connect(struct gfs_tool *tool)
{
	char program[64];
	struct gfs_options options = {
		.config = tool->config,
		.program = program,
		.cache_bytes = tool->walks ? 0 : -1,
		.write_behind = tool->write_behind,
	};
	int r;

	(void)gx_format(program, sizeof(program), "gfs-%s/%s", tool->command, GX_VERSION);
	r = gfs_connect(&options, &tool->fs);
	if (r < 0) {
		const char *story = gfs_error();

		return gfs_fail(tool->command, GFS_EXIT_FAILED, "%s",
				*story ? story : gx_strerror(r));
	}
	tool->progress.next_ns = gx_env_now_ns(tool->env) + PROGRESS_AFTER_NS;
	return 0;
}

/* So that a shell sees what ended us. */
static void die_of_signal(int number)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, number);
	sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	raise(number);
}

int gfs_tool_finish(struct gfs_tool *tool)
{
	int r;

	gfs_tool_clear_progress(tool);
	/* A full disk behind standard output must not look like success. */
	if (fflush(stdout) != 0 || ferror(stdout))
		gfs_tool_problem(tool, "standard output: %s", gx_strerror(gx_errno()));
	r = gfs_disconnect(GX_TAKE(tool->fs));
	if (r < 0) {
		const char *story = gfs_error();

		gfs_tool_problem(tool, "%s", *story ? story : gx_strerror(r));
	}
	if (caught_signal)
		die_of_signal(caught_signal);
	return tool->failed ? GFS_EXIT_FAILED : GFS_EXIT_OK;
}

/* -- signals ----------------------------------------------------------------------------------- */

static void on_signal(int number)
{
	caught_signal = number;
}

void gfs_tool_catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

	for (size_t i = 0; i < GX_COUNT_OF(numbers); i++) {
		struct sigaction old;

		/* What nohup or a shell made us ignore stays ignored. */
		if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
	}
}

bool gfs_tool_interrupted(void)
{
	return caught_signal != 0;
}
