#include "bench/lib/figure.h"

/* -- medians ----------------------------------------------------------------------------------- */

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double figure_median(double *values, unsigned count)
{
	qsort(values, count, sizeof(*values), compare_double);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* -- output ------------------------------------------------------------------------------------ */

int figure_sheet_open(struct figure_sheet *sheet, const char *json)
{
	sheet->json = json ? fopen(json, "we") : NULL;
	if (json && !sheet->json)
		return gx_errno();
	if (sheet->json)
		fprintf(sheet->json, "{\"figures\": [");
	return 0;
}

void figure_sheet_close(struct figure_sheet *sheet, bool whole)
{
	if (whole)
		printf("\n%s: %u of %u targets met\n", sheet->program, sheet->met, sheet->targets);
	if (!sheet->json)
		return;
	fprintf(sheet->json, "\n], \"met\": %u, \"of\": %u}\n", sheet->met, sheet->targets);
	fclose(GX_TAKE(sheet->json));
}

void figure_print_head(void)
{
	printf("%-44s %5s %10s %10s %7s %9s\n", "", "", "raw", "ours", "ratio", "target");
}

/* What a line came to; without a raw side `raw` and `ratio` mean nothing. */
struct line {
	double raw, own, ratio;
	bool has_raw, met;
};

static int digits_of(double value)
{
	return value < 10 ? 2 : value < 1000 ? 1 : 0;
}

static void print_line(const struct figure *figure, const struct line *line)
{
	char target[24] = "";
	const char *verdict = figure->target == 0 ? "" : line->met ? "ok" : "MISS";

	if (figure->target > 0)
		GX_IGNORE(gx_format(target, sizeof(target), "%s %.*f",
				    figure->is_cost ? "<=" : ">=", figure->target < 100 ? 2 : 0,
				    figure->target));
	printf("%-44s %5s", figure->name, figure->unit);
	if (line->has_raw)
		printf(" %10.*f %10.*f %7.2f", digits_of(line->raw), line->raw,
		       digits_of(line->own), line->own, line->ratio);
	else
		printf(" %10s %10.*f %7s", "", digits_of(line->own), line->own, "");
	printf(" %9s %s\n", target, verdict);
	fflush(stdout);
}

static void write_line(struct figure_sheet *sheet, const struct figure *figure,
		       const struct line *line)
{
	const char *met = figure->target == 0 ? "null" : line->met ? "true" : "false";

	if (!sheet->json)
		return;
	fprintf(sheet->json, "%s\n{\"name\": \"%s\", \"unit\": \"%s\", \"ours\": %.4f",
		sheet->has_line ? "," : "", figure->name, figure->unit, line->own);
	if (line->has_raw)
		fprintf(sheet->json, ", \"raw\": %.4f, \"ratio\": %.4f", line->raw, line->ratio);
	fprintf(sheet->json, ", \"target\": %.2f, \"met\": %s}", figure->target, met);
	fflush(sheet->json);
	sheet->has_line = true;
}

/* -- running ----------------------------------------------------------------------------------- */

bool figure_wanted(const struct figure_sheet *sheet, const struct figure *figure)
{
	return !sheet->only || strstr(figure->name, sheet->only);
}

static int run_round(unsigned round, figure_fn raw, figure_fn own, void *arg, double *ret_raw,
		     double *ret_own)
{
	bool own_first = !raw || round % 2 == 1;
	int r = own_first ? own(arg, ret_own) : raw(arg, ret_raw);

	if (r < 0 || !raw)
		return r;
	return own_first ? raw(arg, ret_raw) : own(arg, ret_own);
}

int figure_run(struct figure_sheet *sheet, const struct figure *figure, figure_fn raw,
	       figure_fn own, void *arg)
{
	double raws[FIGURE_ROUNDS_MAX] = {0}, owns[FIGURE_ROUNDS_MAX];
	double ratios[FIGURE_ROUNDS_MAX];
	struct line line = {.has_raw = raw != NULL};
	double value;

	for (unsigned i = 0; i < sheet->rounds; i++) {
		int r = run_round(i, raw, own, arg, &raws[i], &owns[i]);

		if (r < 0)
			return r;
		ratios[i] = raw ? owns[i] / raws[i] : 0;
	}
	line.raw = figure_median(raws, sheet->rounds);
	line.own = figure_median(owns, sheet->rounds);
	line.ratio = figure_median(ratios, sheet->rounds);
	value = raw ? line.ratio : line.own;
	line.met = figure->is_cost ? value <= figure->target : value >= figure->target;
	if (figure->target > 0) {
		sheet->targets++;
		sheet->met += line.met;
	}
	print_line(figure, &line);
	write_line(sheet, figure, &line);
	return 0;
}
