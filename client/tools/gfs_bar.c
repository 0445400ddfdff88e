#include "client/tools/gfs_bar.h"
#include "client/tools/gfs_print.h"
#include "common/gx_num.h"
#include <sys/ioctl.h>
#include <unistd.h>

#define SHOW_AFTER_NS (1 * GX_NSEC_PER_SEC)
#define SHOW_EVERY_NS (200 * GX_NSEC_PER_MSEC)
#define COLUMNS_DEFAULT 80u
#define COLUMNS_MAX 200u
#define NAME_COLUMNS_MIN 8u

/* -- the text ---------------------------------------------------------------------------------- */

/* As gfs_print_name() for people, in at most so many columns; what is cut off ends with "~". */
static void append_name(char *text, size_t room, const char *name, unsigned columns)
{
	size_t bytes = strlen(name), used = strlen(text), shown = 0;
	bool cut = gfs_name_columns(name) > columns;

	for (size_t at = 0; at < bytes && shown + cut < columns; shown++) {
		size_t n = gx_utf8_char(name + at, bytes - at);
		bool plain =
			n > 1 || (n == 1 && (unsigned char)name[at] >= 0x20 && name[at] != 0x7f);

		if (used + n + 2 >= room)
			break;
		if (plain) {
			memcpy(text + used, name + at, n);
			used += n;
		} else {
			text[used++] = '?';
		}
		at += n ? n : 1;
	}
	if (cut)
		text[used++] = '~';
	text[used] = '\0';
}

static void time_text(uint64_t sec, char text[32])
{
	unsigned long long h = sec / 3600, m = sec / 60 % 60, s = sec % 60;

	/* All fit. */
	if (h > 99)
		GX_IGNORE(gx_format(text, 32, "%llu h", h));
	else if (h > 0)
		GX_IGNORE(gx_format(text, 32, "%llu:%02llu:%02llu", h, m, s));
	else
		GX_IGNORE(gx_format(text, 32, "%llu:%02llu", m, s));
}

static uint64_t rate_of(const struct gfs_bar *bar, int64_t now_ns)
{
	int64_t elapsed_ns = now_ns - bar->begin_ns;

	if (elapsed_ns <= 0 || bar->done <= bar->from)
		return 0;
	return (uint64_t)((double)(bar->done - bar->from) * 1e9 / (double)elapsed_ns);
}

/* "  45%  460M of 1.0G  98M/s  0:06 left" */
static void numbers_text(const struct gfs_bar *bar, int64_t now_ns, char text[128])
{
	bool known = bar->total != UINT64_MAX && bar->total >= bar->done;
	char done[16], total[16], rate[16], left[32];
	uint64_t per_sec = rate_of(bar, now_ns);

	gfs_size_text(bar->done, done);
	gfs_size_text(per_sec, rate);
	if (!known) {
		GX_IGNORE(gx_format(text, 128, "  %s  %s/s", done, rate)); /* fits */
		return;
	}
	gfs_size_text(bar->total, total);
	if (per_sec > 0)
		time_text((bar->total - bar->done + per_sec - 1) / per_sec, left);
	else
		GX_IGNORE(gx_strcpy(left, sizeof(left), "-:--"));
	GX_IGNORE(gx_format(
		text, 128, "  %3u%%  %s of %s  %s/s  %s left", /* fits */
		bar->total == 0 ? 100u : (unsigned)((double)bar->done * 100 / (double)bar->total),
		done, total, rate, left));
}

void gfs_bar_text(const struct gfs_bar *bar, int64_t now_ns, unsigned columns,
		  char text[GFS_BAR_TEXT])
{
	char numbers[128];
	size_t width;

	columns = GX_MIN(columns, COLUMNS_MAX);
	numbers_text(bar, now_ns, numbers);
	width = strlen(numbers);
	text[0] = '\0';
	/* On a narrow terminal the numbers are worth more than the name. */
	if (columns >= width + NAME_COLUMNS_MIN)
		append_name(text, GFS_BAR_TEXT - sizeof(numbers), bar->name,
			    (unsigned)(columns - width));
	numbers[GX_MIN(width, (size_t)columns)] = '\0';
	GX_IGNORE(gx_format(text + strlen(text), sizeof(numbers), "%s", numbers)); /* fits */
}

/* -- when -------------------------------------------------------------------------------------- */

int gfs_bar_parse(const char *text, enum gfs_bar_when *ret_when)
{
	static const char *const words[GFS_BAR_WHEN_COUNT] = {"auto", "always", "never"};

	for (unsigned i = 0; i < GFS_BAR_WHEN_COUNT; i++) {
		if (strcmp(text, words[i]) == 0) {
			*ret_when = (enum gfs_bar_when)i;
			return 0;
		}
	}
	return -EINVAL;
}

static unsigned terminal_columns(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
		return COLUMNS_DEFAULT;
	return size.ws_col;
}

static void show(struct gfs_bar *bar, struct gfs_tool *tool, int64_t now_ns)
{
	char text[GFS_BAR_TEXT];

	/* The last column stays free: writing there makes some terminals begin a new line. */
	gfs_bar_text(bar, now_ns, terminal_columns() - 1, text);
	fprintf(stderr, "\r%s%s", text, tool->err_tty ? "\033[K" : "");
	fflush(stderr);
	bar->shown = tool->progress.shown = true;
	bar->next_ns = now_ns + SHOW_EVERY_NS;
}

void gfs_bar_begin(struct gfs_bar *bar, struct gfs_tool *tool, const char *name, uint64_t total,
		   uint64_t from)
{
	bar->name = name;
	bar->total = total;
	bar->from = bar->done = from;
	bar->begin_ns = gx_env_now_ns(tool->env);
	bar->next_ns = bar->begin_ns + (bar->when == GFS_BAR_ALWAYS ? 0 : SHOW_AFTER_NS);
	bar->shown = false;
}

void gfs_bar_step(struct gfs_bar *bar, struct gfs_tool *tool, uint64_t done)
{
	int64_t now_ns;

	bar->done = done;
	if (bar->when == GFS_BAR_NEVER || (bar->when == GFS_BAR_AUTO && !tool->err_tty))
		return;
	now_ns = gx_env_now_ns(tool->env);
	if (now_ns >= bar->next_ns)
		show(bar, tool, now_ns);
}

void gfs_bar_end(struct gfs_bar *bar, struct gfs_tool *tool)
{
	if (bar->when == GFS_BAR_ALWAYS) {
		show(bar, tool, gx_env_now_ns(tool->env));
		fputc('\n', stderr);
		tool->progress.shown = false;
	} else if (bar->shown) {
		gfs_tool_clear_progress(tool);
	}
	bar->shown = false;
}
