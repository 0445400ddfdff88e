/*
 * fsd_broken.h - steps of rule B6 left out on purpose, to see the tests fail (gx_broken.h).
 *
 * tests/sim/test_sim_fsd_object.c does so with each of them and the object engine alone,
 * tests/sim/test_sim_broken_data.c with some in a whole grid.
 */
#ifndef FSD_BROKEN_H
#define FSD_BROKEN_H

#include "common/gx_broken.h"

enum fsd_step {
	FSD_STEP_NONE,
	FSD_STEP_MARK,           /* a region is marked before a settled block changes */
	FSD_STEP_MARK_SYNC,      /* ... and the mark is on disk */
	FSD_STEP_SYNC_DATA,      /* sync: the bytes are on disk */
	FSD_STEP_SYNC_SUMS,      /* sync: the checksums are on disk */
	FSD_STEP_SYNC_NAME,      /* the first sync: the names are on disk */
	FSD_STEP_NEW_NAME,       /* a sum file is `.new` until it is on disk */
	FSD_STEP_SETTLE_LATE,    /* marks go and the settled size grows after the sync only */
	FSD_STEP_TRUNCATE_LOWER, /* the settled size is lowered before the file is cut */
	FSD_STEP_TRUNCATE_SYNC,  /* ... and that is on disk */
	FSD_STEP_REHASH_MARKED,  /* after a crash marked regions are hashed anew */
	FSD_STEP_REHASH_TAIL,    /* after a crash the blocks behind the settled size are */
	FSD_STEP_CUT_SUMS,       /* no checksums stay behind the end */
	FSD_STEP_ADVANCE_FINISH, /* a sum file left under the old generation is found */
	FSD_STEP_ADVANCE_SYNC,   /* the new names are on disk when advance returns */
	FSD_STEP_ADVANCE_OPEN,   /* ... and when an open finds that it was interrupted */
	FSD_STEP_COUNT
};

/* Their numbers among the rules. */
#define FSD_BROKEN_RULE(step) (1000u + (unsigned)(step))
#define FSD_BROKEN(step) GX_BROKEN(FSD_BROKEN_RULE(step))

#endif
