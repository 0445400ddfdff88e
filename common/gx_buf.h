/*
 * gx_buf.h - a growing byte buffer that knows its maximum.
 *
 * The maximum is given at init and never exceeded: an append that would pass
 * it returns -E2BIG and changes nothing. Not thread-safe.
 */
#ifndef GX_BUF_H
#define GX_BUF_H

#include "common/gx_base.h"
#include <stdarg.h>

struct gx_buf {
	unsigned char *data;
	size_t bytes;     /* in use */
	size_t capacity;  /* allocated */
	size_t bytes_max; /* never grows past this */
};

void gx_buf_init(struct gx_buf *buf, size_t bytes_max);
/* Frees the memory; the buffer may be used again (empty, same maximum). */
void gx_buf_fini(struct gx_buf *buf);
/* Empties it and keeps the memory. */
static inline void gx_buf_clear(struct gx_buf *buf)
{
	buf->bytes = 0;
}

/* Makes room for `bytes` more, uninitialised; -E2BIG or -ENOMEM. */
GX_MUST_CHECK int gx_buf_reserve(struct gx_buf *buf, size_t bytes);
GX_MUST_CHECK int gx_buf_append(struct gx_buf *buf, const void *data, size_t bytes);
GX_MUST_CHECK int gx_buf_append_format(struct gx_buf *buf, const char *fmt, ...) GX_PRINTF(2, 3);
/* Removes bytes from the front (moves the rest). */
void gx_buf_consume(struct gx_buf *buf, size_t bytes);
/*
 * Terminates with NUL (not counted, and allowed even at the maximum) and returns the text;
 * NULL when out of memory.
 */
const char *gx_buf_text(struct gx_buf *buf);
/*
 * Overwrites the memory before freeing: for secrets. Reserve the full size before the first
 * append, since growing leaves old copies behind.
 */
void gx_buf_wipe(struct gx_buf *buf);

#endif
