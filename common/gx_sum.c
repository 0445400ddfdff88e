#include "common/gx_sum.h"
#include "common/gx_sum_simd.h"
#include <stdatomic.h>

#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Up to here XXH3 uses no vector unit (XXH3_MIDSIZE_MAX), so every variant is the same code. */
#define SHORT_MAX 240u

typedef uint64_t (*sum_fn)(const void *data, size_t bytes, uint64_t seed);

static uint64_t sum64_baseline(const void *data, size_t bytes, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, bytes, seed);
}

#if XXH_VECTOR == XXH_SSE2
#define BASELINE_NAME "sse2"
#else
#define BASELINE_NAME "generic"
#endif

#if GX_SUM_SIMD
static bool cpu_has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") != 0;
}

static bool cpu_has_avx2(void)
{
	return __builtin_cpu_supports("avx2") != 0;
}
#endif

static bool cpu_has_baseline(void)
{
	return true;
}

/* Best first. */
static const struct variant {
	const char *name;
	sum_fn fn;
	bool (*available)(void);
} variants[] = {
#if GX_SUM_SIMD
	{"avx512", gx_sum64_avx512, cpu_has_avx512},
	{"avx2", gx_sum64_avx2, cpu_has_avx2},
#endif
	{BASELINE_NAME, sum64_baseline, cpu_has_baseline},
};

static uint64_t sum64_first_call(const void *data, size_t bytes, uint64_t seed);

/* Starts at the chooser, which replaces itself; two threads that race store the same value. */
static _Atomic(sum_fn) sum64_long = sum64_first_call;

static const struct variant *best_variant(void)
{
	const struct variant *v = variants;

	while (!v->available())
		v++;
	return v;
}

static uint64_t sum64_first_call(const void *data, size_t bytes, uint64_t seed)
{
	sum_fn fn = best_variant()->fn;

	atomic_store_explicit(&sum64_long, fn, memory_order_relaxed);
	return fn(data, bytes, seed);
}

uint64_t gx_sum64_seed(const void *data, size_t bytes, uint64_t seed)
{
	if (bytes <= SHORT_MAX)
		return XXH3_64bits_withSeed(data, bytes, seed);
	return atomic_load_explicit(&sum64_long, memory_order_relaxed)(data, bytes, seed);
}

uint64_t gx_sum64(const void *data, size_t bytes)
{
	return gx_sum64_seed(data, bytes, 0);
}

uint64_t gx_block_sum(const void *block)
{
	return gx_sum64(block, GX_BLOCK_BYTES);
}

const char *gx_sum_variant(void)
{
	return best_variant()->name;
}

int gx_sum64_variant(const char *variant, const void *data, size_t bytes, uint64_t seed,
		     uint64_t *ret_sum)
{
	for (size_t i = 0; i < GX_COUNT_OF(variants); i++) {
		if (strcmp(variants[i].name, variant) != 0)
			continue;
		if (!variants[i].available())
			return -ENOSYS;
		*ret_sum = variants[i].fn(data, bytes, seed);
		return 0;
	}
	return -ENOSYS;
}
