/*
 * fault_run.h - runs a scenario again and again, with another call failing each time.
 *
 * A scenario does its work through an env with the given fault attached, checks what must hold
 * even after a failure, cleans up, and returns. It is run with the 1st, 2nd, 3rd … allocation
 * failing, and with the 1st, 2nd, 3rd … env call of each kind failing, until a run ends in which
 * nothing fired: then every point has been hit. Each run must end (a watchdog names the run that
 * does not) and free what it took (counted here, and by the leak check of the ASan build).
 */
#ifndef FAULT_RUN_H
#define FAULT_RUN_H

#include "common/gx_env.h"
#include "tests/lib/fault_alloc.h"
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define FAULT_RUN_SEC 30
#define FAULT_RUNS_MAX 100000u

/* fault is NULL when an allocation is to fail. */
typedef void (*fault_scenario)(struct gx_fault *fault);

static char fault_run_name[128];

/* For scenarios, where ck_assert() would itself meet the failing allocation. */
#define fault_must(condition, ...)                                                                 \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, fault_run_name);        \
			fprintf(stderr, __VA_ARGS__);                                              \
			fprintf(stderr, "\n");                                                     \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static void fault_run_late(int signo GX_UNUSED)
{
	static const char text[] = ": does not end\n";

	GX_IGNORE((int)write(STDERR_FILENO, fault_run_name, strlen(fault_run_name)));
	GX_IGNORE((int)write(STDERR_FILENO, text, sizeof(text) - 1));
	abort();
}

static void fault_run_once(fault_scenario scenario, struct gx_fault *fault, bool count_blocks)
{
	struct sigaction action = {.sa_handler = fault_run_late};
	int64_t live = fault_alloc_live();

	sigaction(SIGALRM, &action, NULL);
	alarm(FAULT_RUN_SEC);
	scenario(fault);
	alarm(0);
	if (count_blocks)
		fault_must(fault_alloc_live() == live, "%lld blocks leaked",
			   (long long)(fault_alloc_live() - live));
}

/* The scenario with each allocation failing in turn; the number of points hit. */
static uint64_t fault_run_allocs(const char *name, fault_scenario scenario, bool count_blocks)
{
	uint64_t points = 0;
	bool fired = true;

	/* What is made once and kept is made here, so that it is no leak. */
	snprintf(fault_run_name, sizeof(fault_run_name), "%s: without a fault", name);
	fault_run_once(scenario, NULL, false);
	for (uint64_t n = 1; fired && n < FAULT_RUNS_MAX; n++) {
		snprintf(fault_run_name, sizeof(fault_run_name), "%s: allocation %llu fails", name,
			 (unsigned long long)n);
		fault_alloc_set(n);
		fault_run_once(scenario, NULL, count_blocks);
		fired = fault_alloc_fired();
		fault_alloc_set(0);
		points += fired;
	}
	printf("%s: alloc %llu\n", name, (unsigned long long)points);
	ck_assert_uint_gt(points, 0);
	return points;
}

/* The same for one kind of env call. */
static uint64_t fault_run_kind(const char *name, fault_scenario scenario, enum gx_fault_kind kind,
			       uint64_t repeat, size_t short_bytes, bool count_blocks)
{
	uint64_t points = 0;

	for (uint64_t n = 1; n < FAULT_RUNS_MAX; n++) {
		struct gx_fault fault = {.kinds = UINT64_C(1) << kind,
					 .nth = n,
					 .repeat = repeat,
					 .short_bytes = short_bytes};

		snprintf(fault_run_name, sizeof(fault_run_name), "%s: %s %llu fails", name,
			 gx_fault_name(kind), (unsigned long long)n);
		fault_run_once(scenario, &fault, count_blocks);
		if (fault.fired == 0)
			break;
		points++;
	}
	return points;
}

/* All kinds; those in `must` (a bit each) have to have been hit. */
GX_UNUSED static void fault_run_kinds(const char *name, fault_scenario scenario, uint64_t must,
				      bool count_blocks)
{
	printf("%s:", name);
	for (int kind = 0; kind < GX_FAULT_COUNT; kind++) {
		uint64_t points = fault_run_kind(name, scenario, (enum gx_fault_kind)kind, 1, 0,
						 count_blocks);

		if (points > 0)
			printf(" %s %llu", gx_fault_name((enum gx_fault_kind)kind),
			       (unsigned long long)points);
		ck_assert_msg(points > 0 || !(must >> kind & 1), "%s: no %s was hit", name,
			      gx_fault_name((enum gx_fault_kind)kind));
	}
	printf("\n");
}

#define FAULT_BIT(name) (UINT64_C(1) << GX_FAULT_##name)

#endif
