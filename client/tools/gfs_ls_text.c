#include "client/tools/gfs_ls_text.h"
#include "client/tools/gfs_tool.h"
#include "common/gx_num.h"
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define COLUMNS_DEFAULT 80u
#define COLUMNS_MAX 1000u
#define GAP 2u /* blanks between two columns */

static size_t terminal_columns(void)
{
	const char *wish = getenv("COLUMNS");
	struct winsize size;
	uint64_t columns;

	if (wish && gx_parse_u64(wish, &columns) == 0 && columns > 0)
		return GX_MIN(columns, COLUMNS_MAX);
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		return GX_MIN(size.ws_col, COLUMNS_MAX);
	return COLUMNS_DEFAULT;
}

void gfs_ls_text_init(struct gfs_ls_text *text, const struct gfs_tool *tool)
{
	*text = (struct gfs_ls_text){.tool = tool};
	text->columns = tool->out_tty ? terminal_columns() : 0;
	text->now_ns = gx_env_wall_ns(tool->env);
}

/* -- columns ----------------------------------------------------------------------------------- */

/* The width of each column if there are `rows`; the sum of all. */
static size_t measure(const struct gfs_ls_entry *entries, size_t count, size_t rows,
		      size_t *ret_widths)
{
	size_t sum = 0, column = 0;

	for (size_t first = 0; first < count; first += rows, column++) {
		size_t width = 0;

		for (size_t i = first; i < GX_MIN(first + rows, count); i++)
			width = GX_MAX(width, gfs_name_columns(entries[i].name));
		ret_widths[column] = width;
		sum += width + (first + rows < count ? GAP : 0);
		if (sum > COLUMNS_MAX)
			return sum;
	}
	return sum;
}

static void print_columns(const struct gfs_ls_text *text, const struct gfs_ls_entry *entries,
			  size_t count)
{
	size_t widths[COLUMNS_MAX + 1];
	size_t rows = count / GX_MAX(text->columns / (1 + GAP), 1) + 1;

	/* One row more until it fits; one name a line always does. */
	while (rows < count && measure(entries, count, rows, widths) > text->columns)
		rows++;
	if (rows >= count)
		measure(entries, count, rows, widths);
	for (size_t row = 0; row < rows; row++) {
		for (size_t i = row, column = 0; i < count; i += rows, column++) {
			size_t used = gfs_name_columns(entries[i].name);

			gfs_tool_print(text->tool, entries[i].name);
			if (i + rows < count)
				printf("%*s", (int)(widths[column] - used + GAP), "");
		}
		putchar('\n');
	}
}

/* -- details ----------------------------------------------------------------------------------- */

static void size_column(const struct gfs_ls_text *text, const struct gfs_stat *st, char out[32])
{
	if (S_ISBLK(st->mode) || S_ISCHR(st->mode))
		(void)gx_format(out, 32, "%u, %u", major(st->rdev), minor(st->rdev));
	else if (text->human)
		gfs_size_text(st->size, out);
	else
		(void)gx_format(out, 32, "%llu", (unsigned long long)st->size);
}

static void widen(int *width, const char *shown)
{
	*width = GX_MAX(*width, (int)strlen(shown));
}

static void measure_details(struct gfs_ls_text *text, const struct gfs_ls_entry *e)
{
	char shown[32];

	(void)gx_format(shown, sizeof(shown), "%u", (unsigned)e->st.nlink);
	widen(&text->nlink_width, shown);
	widen(&text->user_width, gfs_owner_text(&text->owners, e->st.uid, false));
	widen(&text->group_width, gfs_owner_text(&text->owners, e->st.gid, true));
	size_column(text, &e->st, shown);
	widen(&text->size_width, shown);
}

static void print_details(struct gfs_ls_text *text, const struct gfs_ls_entry *e)
{
	char mode[11], size[32], when[32];

	gfs_mode_text(e->has_stat ? e->st.mode : e->type, mode);
	if (e->has_stat) {
		size_column(text, &e->st, size);
		gfs_time_short(&e->st.mtime, text->now_ns, when);
		printf("%s %*u ", mode, text->nlink_width, (unsigned)e->st.nlink);
		/* One at a time: the two share their memory. */
		printf("%-*s ", text->user_width, gfs_owner_text(&text->owners, e->st.uid, false));
		printf("%-*s ", text->group_width, gfs_owner_text(&text->owners, e->st.gid, true));
		printf("%*s %s ", text->size_width, size, when);
	} else {
		/* The directory may be read but not searched. */
		printf("%c????????? %*s %-*s %-*s %*s %12s ", mode[0], text->nlink_width, "?",
		       text->user_width, "?", text->group_width, "?", text->size_width, "?", "?");
	}
	gfs_tool_print(text->tool, e->name);
	if (e->target) {
		fputs(" -> ", stdout);
		gfs_tool_print(text->tool, e->target);
	}
	putchar('\n');
}

void gfs_ls_print(struct gfs_ls_text *text, const struct gfs_ls_entry *entries, size_t count)
{
	if (text->details) {
		for (size_t i = 0; i < count; i++)
			measure_details(text, &entries[i]);
		for (size_t i = 0; i < count; i++)
			print_details(text, &entries[i]);
	} else if (text->columns > 0 && count > 0) {
		print_columns(text, entries, count);
	} else {
		for (size_t i = 0; i < count; i++) {
			gfs_tool_print(text->tool, entries[i].name);
			putchar('\n');
		}
	}
}
