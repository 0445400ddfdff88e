/*
 * gx_hist.h - a latency histogram of fixed size: 8 buckets per power of two.
 *
 * Any value from 0 to 2^63 ns lands in a bucket at most 12.5 % wide, so a
 * percentile read from it is right to that. Adding is a few instructions and
 * no lock: one writer, readers may see counts a moment old.
 */
#ifndef GX_HIST_H
#define GX_HIST_H

#include "common/gx_base.h"

#define GX_HIST_BUCKETS 488

struct gx_hist {
	uint64_t count;
	uint64_t sum_ns;
	uint64_t min_ns; /* valid if count > 0 */
	uint64_t max_ns;
	uint32_t buckets[GX_HIST_BUCKETS];
};

void gx_hist_init(struct gx_hist *hist);
void gx_hist_add(struct gx_hist *hist, uint64_t ns);
/* Adds all of `from`. */
void gx_hist_merge(struct gx_hist *hist, const struct gx_hist *from);
/* Upper bound of the bucket holding the quantile (0.5 = median), never above max; 0 if empty. */
uint64_t gx_hist_quantile_ns(const struct gx_hist *hist, double quantile);
double gx_hist_mean_ns(const struct gx_hist *hist);

#endif
