#include "common/gx_sum_simd.h"

#if GX_SUM_SIMD
#ifndef __AVX2__
#error "common/build.mk must give this file its vector flags"
#endif
#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include <xxhash.h>

#if XXH_VECTOR != XXH_AVX2
#error "xxhash did not choose the vector unit this file is for"
#endif

uint64_t gx_sum64_avx2(const void *data, size_t bytes, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, bytes, seed);
}
#endif
