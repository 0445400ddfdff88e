/*
 * gx_sum_simd.h - XXH3 compiled once more per vector unit; only gx_sum.c calls these,
 * after asking the CPU. Without GX_SUM_SIMD the files behind it compile to nothing.
 */
#ifndef GX_SUM_SIMD_H
#define GX_SUM_SIMD_H

#include "common/gx_base.h"

#if defined(__x86_64__) && !defined(GX_SUM_PORTABLE)
#define GX_SUM_SIMD 1
uint64_t gx_sum64_avx2(const void *data, size_t bytes, uint64_t seed);
uint64_t gx_sum64_avx512(const void *data, size_t bytes, uint64_t seed);
#else
#define GX_SUM_SIMD 0
#endif

#endif
