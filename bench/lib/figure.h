/*
 * figure.h - lines of a table: raw and ours measured in turn, medians over the rounds, a target.
 *
 * Each round measures raw and ours right after each other, in turns first, so that whatever else
 * the machine does hits both alike. Printed are the medians and, as ratio, the median of the
 * rounds' ratios (so it may differ a little from the quotient of the two columns).
 */
#ifndef BENCH_FIGURE_H
#define BENCH_FIGURE_H

#include "common/gx_base.h"
#include <stdio.h>

#define FIGURE_ROUNDS_MAX 99u

struct figure {
	const char *name;
	const char *unit;
	bool is_cost;  /* less is better */
	double target; /* of the ratio; without a raw side, of the value; 0: none */
};

/* Measures once. */
typedef int (*figure_fn)(void *arg, double *ret_value);

/* The table, and what it came to so far. */
struct figure_sheet {
	const char *program; /* for the last line */
	const char *only;    /* NULL; else only lines whose names have this in them */
	FILE *json;          /* may be NULL */
	unsigned rounds;
	unsigned targets, met;
	bool has_line; /* in the JSON file */
};

/* The file is the sheet's own; NULL: none. */
GX_MUST_CHECK int figure_sheet_open(struct figure_sheet *sheet, const char *json);
/* Prints how many targets were met if `whole`; closes the file. */
void figure_sheet_close(struct figure_sheet *sheet, bool whole);

bool figure_wanted(const struct figure_sheet *sheet, const struct figure *figure);
void figure_print_head(void);
/* raw may be NULL: there is nothing to compare with. */
GX_MUST_CHECK int figure_run(struct figure_sheet *sheet, const struct figure *figure, figure_fn raw,
			     figure_fn own, void *arg);
/* Sorts them. */
double figure_median(double *values, unsigned count);

#endif
