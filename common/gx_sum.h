/*
 * gx_sum.h - checksums (XXH3, 64 bit), with the widest vector unit of this CPU.
 *
 * The same bytes give the same sum on every machine; only the speed differs.
 * Short inputs (headers, small messages) are hashed inline-fast by the caller's
 * copy; long ones go through a pointer chosen once at start.
 */
#ifndef GX_SUM_H
#define GX_SUM_H

#include "common/gx_base.h"

uint64_t gx_sum64(const void *data, size_t bytes);
uint64_t gx_sum64_seed(const void *data, size_t bytes, uint64_t seed);

/* "avx512", "avx2", "sse2", "generic": for `gfs --version` and bench headers. */
const char *gx_sum_variant(void);
/* For tests: the same sum through one variant; -ENOSYS if this CPU lacks it. */
int gx_sum64_variant(const char *variant, const void *data, size_t bytes, uint64_t seed,
		     uint64_t *ret_sum);

#endif
