/*
 * Bucket layout: values 0..7 have a bucket each; from 2^3 on every power of two
 * is cut into 8 equal parts, found from the top bit and the 3 bits behind it.
 * 8 + 60 * 8 = 488 buckets reach 2^63 - 1; larger values land in the last.
 *
 * Fields are read and written with relaxed atomics (plain moves on our CPUs),
 * so a reader in another thread is not a data race.
 */
#include "common/gx_hist.h"

#define SUB_BITS 3
#define SUB_COUNT (1u << SUB_BITS)
#define VALUE_MAX ((uint64_t)INT64_MAX)

#define GET(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define PUT(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

static unsigned bucket_of(uint64_t ns)
{
	unsigned top, sub;

	if (ns < SUB_COUNT)
		return (unsigned)ns;
	if (ns > VALUE_MAX)
		ns = VALUE_MAX;
	top = 63u - (unsigned)__builtin_clzll(ns);
	sub = (unsigned)(ns >> (top - SUB_BITS)) & (SUB_COUNT - 1);
	return (top - SUB_BITS + 1) * SUB_COUNT + sub;
}

/* The largest value of a bucket. */
static uint64_t bucket_end(unsigned bucket)
{
	unsigned shift;

	if (bucket < SUB_COUNT)
		return bucket;
	shift = bucket / SUB_COUNT - 1;
	return ((uint64_t)(SUB_COUNT + bucket % SUB_COUNT + 1) << shift) - 1;
}

void gx_hist_init(struct gx_hist *hist)
{
	*hist = (struct gx_hist){.min_ns = UINT64_MAX};
}

/* A bucket stays at its maximum rather than starting again from 0. */
static void bucket_add(uint32_t *bucket, uint32_t n)
{
	uint32_t old = *bucket;

	PUT(*bucket, n > UINT32_MAX - old ? UINT32_MAX : old + n);
}

void gx_hist_add(struct gx_hist *hist, uint64_t ns)
{
	bucket_add(&hist->buckets[bucket_of(ns)], 1);
	PUT(hist->sum_ns, hist->sum_ns + ns);
	if (hist->count == 0 || ns < hist->min_ns)
		PUT(hist->min_ns, ns);
	if (ns > hist->max_ns)
		PUT(hist->max_ns, ns);
	PUT(hist->count, hist->count + 1);
}

void gx_hist_merge(struct gx_hist *hist, const struct gx_hist *from)
{
	uint64_t count = GET(from->count);
	uint64_t min_ns = GET(from->min_ns);
	uint64_t max_ns = GET(from->max_ns);

	if (count == 0)
		return;
	for (unsigned i = 0; i < GX_HIST_BUCKETS; i++)
		bucket_add(&hist->buckets[i], GET(from->buckets[i]));
	PUT(hist->sum_ns, hist->sum_ns + GET(from->sum_ns));
	if (hist->count == 0 || min_ns < hist->min_ns)
		PUT(hist->min_ns, min_ns);
	if (max_ns > hist->max_ns)
		PUT(hist->max_ns, max_ns);
	PUT(hist->count, hist->count + count);
}

uint64_t gx_hist_quantile_ns(const struct gx_hist *hist, double quantile)
{
	uint64_t total = 0, seen = 0, rank;
	uint64_t max_ns = GET(hist->max_ns);

	/* Summed here: `count` may be ahead of the buckets that a reader sees. */
	for (unsigned i = 0; i < GX_HIST_BUCKETS; i++)
		total += GET(hist->buckets[i]);
	if (total == 0)
		return 0;
	quantile = GX_MIN(GX_MAX(quantile, 0.0), 1.0);
	rank = (uint64_t)(quantile * (double)total);
	if ((double)rank < quantile * (double)total)
		rank++;
	rank = GX_MAX(GX_MIN(rank, total), 1u);
	for (unsigned i = 0; i < GX_HIST_BUCKETS; i++) {
		seen += GET(hist->buckets[i]);
		if (seen >= rank)
			return GX_MIN(bucket_end(i), max_ns);
	}
	return max_ns;
}

double gx_hist_mean_ns(const struct gx_hist *hist)
{
	uint64_t count = GET(hist->count);

	return count == 0 ? 0.0 : (double)GET(hist->sum_ns) / (double)count;
}
