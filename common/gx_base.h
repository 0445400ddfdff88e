/*
 * gx_base.h - the few words every file uses: assertions, cleanup, containers.
 *
 * Include this (directly or through another common header) before any system
 * header is used for string work: it also bans the calls that STYLE forbids.
 */
#ifndef GX_BASE_H
#define GX_BASE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define GX_PRINTF(fmt_index, args_index) __attribute__((format(printf, fmt_index, args_index)))
#define GX_MUST_CHECK __attribute__((warn_unused_result))
#define GX_NORETURN __attribute__((noreturn))
#define GX_UNUSED __attribute__((unused))

/* A result that really does not matter here, against GX_MUST_CHECK. Say why beside it. */
#define GX_IGNORE(expr)                                                                            \
	do {                                                                                       \
		if (expr) {                                                                        \
		}                                                                                  \
	} while (0)

#define GX_LIKELY(x) __builtin_expect(!!(x), 1)
#define GX_UNLIKELY(x) __builtin_expect(!!(x), 0)

#define GX_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define GX_CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define GX_MIN(a, b) ((a) < (b) ? (a) : (b))
#define GX_MAX(a, b) ((a) > (b) ? (a) : (b))

#define GX_NSEC_PER_SEC 1000000000LL
#define GX_NSEC_PER_MSEC 1000000LL
#define GX_NSEC_PER_USEC 1000LL

/*
 * GX_CLEANUP(fn): call fn(&var) when var leaves scope.
 * GX_TAKE(p): move the pointer out of a GX_CLEANUP variable.
 */
#define GX_CLEANUP(fn) __attribute__((cleanup(fn)))
#define GX_TAKE(p)                                                                                 \
	({                                                                                         \
		__typeof__(p) gx_taken_ = (p);                                                     \
		(p) = NULL;                                                                        \
		gx_taken_;                                                                         \
	})

/* Defines `<fn>p`, the cleanup form of a destructor that accepts NULL. */
#define GX_DEFINE_CLEANUP(type, fn)                                                                \
	static inline void fn##p(type *p)                                                          \
	{                                                                                          \
		fn(*p);                                                                            \
	}

static inline void gx_freep(void *p)
{
	void *held;

	memcpy(&held, p, sizeof(held));
	free(held);
}
#define GX_AUTOFREE GX_CLEANUP(gx_freep)

/*
 * Memory for bulk bytes that come from the kernel; free() it. It begins with a page: large blocks
 * of malloc() begin 16 bytes behind one, and to copy there from a page takes some CPUs ten times as
 * long.
 */
static inline void *gx_alloc_pages(size_t bytes)
{
	const size_t page = 4096;

	if (bytes > SIZE_MAX - page)
		return NULL;
	return aligned_alloc(page, (bytes + page - 1) & ~(page - 1));
}

/*
 * Zeros, for a table that is looked into at random. calloc() leaves a large one unmapped; a page
 * that is read first and written later is mapped twice, and the second time all other CPUs that
 * run this process are waited for: milliseconds where one of them is virtual and not running.
 */
void *gx_calloc_mapped(size_t count, size_t item_bytes);

/*
 * A programming mistake: stays on in release builds. Never for input from
 * disk, wire or user; that is validated and rejected.
 */
#define gx_assert(cond)                                                                            \
	do {                                                                                       \
		if (GX_UNLIKELY(!(cond)))                                                          \
			gx_assert_failed(#cond, __FILE__, __LINE__, __func__);                     \
	} while (0)

GX_NORETURN void gx_assert_failed(const char *cond, const char *file, int line, const char *func);

/* -errno of the libc call that just failed; never 0. */
static inline int gx_errno(void)
{
	return errno > 0 ? -errno : -EIO;
}

/* Thread-safe strerror for a negative (or positive) errno; borrowed, static or thread-local. */
const char *gx_strerror(int err);

/* Bounded copy that always terminates; -E2BIG (and an empty dst) when src does not fit. */
GX_MUST_CHECK int gx_strcpy(char *dst, size_t dst_bytes, const char *src);

/* snprintf that reports truncation: 0, or -E2BIG when the text was cut (and terminated). */
int gx_format(char *dst, size_t dst_bytes, const char *fmt, ...) GX_PRINTF(3, 4);

#include "common/gx_banned.h"

#endif
