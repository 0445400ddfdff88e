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

/*
 * Content of files has a checksum per block, on the wire as it is here. On disk it is XORed with
 * that of a block of zeros, so that a hole in the content may be a hole among the checksums too.
 */
#define GX_BLOCK_BYTES 4096u
#define GX_BLOCK_ZEROS UINT64_C(0x93D76FE148C689BA) /* XXH3-64 of a block of zeros */
uint64_t gx_block_sum(const void *block);

/* "avx512", "avx2", "sse2", "generic": for `gfs --version` and bench headers. */
const char *gx_sum_variant(void);
/* For tests: the same sum through one variant; -ENOSYS if this CPU lacks it. */
int gx_sum64_variant(const char *variant, const void *data, size_t bytes, uint64_t seed,
		     uint64_t *ret_sum);

#endif
