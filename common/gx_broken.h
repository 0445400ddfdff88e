/*
 * gx_broken.h - rules broken on purpose, to see the tests fail.
 *
 * Built with -DGX_BREAKABLE (tests/sim/test_sim_broken.c, test_sim_broken_data.c and what they
 *link; tests/sim/test_sim_fsd_object.c), a test sets gx_broken to a number and the one place that
 *keeps the rule leaves it out. In every other build the condition is the constant false.
 *
 *	1 ...     rules of names: N1 is 1
 *	101 ...   the client's part of them
 *	201 ...   rules of bytes, in metad and fsd: B1 is 201
 *	301 ...   the client's part of them
 *	1001 ...  steps of rule B6 inside the object engine (fsd/fsd_broken.h)
 *
 * What keeps another part of the same rule has a number that is 20 higher, and so on.
 */
#ifndef GX_BROKEN_H
#define GX_BROKEN_H

#include <stdbool.h>

#ifdef GX_BREAKABLE
extern unsigned gx_broken;
#define GX_BROKEN(rule) (gx_broken == (rule))
#else
#define GX_BROKEN(rule) false
#endif

#endif
