/*
 * gx_num.h - numbers, sizes, durations, times and bytes from and to text.
 *
 * Parsers take the whole string or nothing: -EINVAL for anything that is not
 * exactly one value, -ERANGE when it does not fit. No locale, no sign where
 * none makes sense, no leading blanks.
 */
#ifndef GX_NUM_H
#define GX_NUM_H

#include "common/gx_base.h"

GX_MUST_CHECK int gx_parse_u64(const char *text, uint64_t *ret_value);
GX_MUST_CHECK int gx_parse_i64(const char *text, int64_t *ret_value);
/* yes/no, true/false, on/off, 1/0, any case. */
GX_MUST_CHECK int gx_parse_bool(const char *text, bool *ret_value);
/*
 * "4096", "64KiB", "1.5GiB", "10MB" (decimal); a letter alone is binary ("64K" = 64 KiB). K to E.
 * A fraction needs a unit; what is left below one byte is dropped.
 */
GX_MUST_CHECK int gx_parse_size(const char *text, uint64_t *ret_bytes);
/* "250ms", "30s", "1.5h", "5m", "1d", "10us", "5ns"; a bare number other than 0 is -EINVAL. */
GX_MUST_CHECK int gx_parse_duration(const char *text, int64_t *ret_ns);
/* RFC 3339 UTC "2026-11-16T00:00:00[.5]Z" or a date "2026-11-16"; nanoseconds since 1970. */
GX_MUST_CHECK int gx_parse_time(const char *text, int64_t *ret_wall_ns);

/*
 * Whole number of the largest unit that is exact: "64KiB", "30s", "1500ms"; parses back to the
 * same value. A negative duration gets a '-', which only people read.
 */
void gx_format_size(uint64_t bytes, char text[32]);
void gx_format_duration(int64_t ns, char text[32]);
/* "2026-11-16T12:00:00Z", or with microseconds "2026-11-16T12:00:00.123456Z". */
void gx_format_time(int64_t wall_ns, bool micros, char text[40]);

/* Lower-case hex; text needs 2 * bytes + 1. */
void gx_hex_encode(const void *data, size_t bytes, char *text);
/* Exactly 2 * bytes hex digits or -EINVAL. */
GX_MUST_CHECK int gx_hex_decode(const char *text, void *data, size_t bytes);

/*
 * Length of the well-formed UTF-8 character at the front of `bytes` (> 0) bytes; 0 if there is
 * none (stray or cut sequence, over-long form, surrogate, past U+10FFFF).
 */
size_t gx_utf8_char(const void *data, size_t bytes);

/* Fixed-width little-endian fields, alignment-free. */
static inline void gx_put_le16(void *p, uint16_t v)
{
	memcpy(p, &v, sizeof(v));
}
static inline void gx_put_le32(void *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}
static inline void gx_put_le64(void *p, uint64_t v)
{
	memcpy(p, &v, sizeof(v));
}
static inline uint16_t gx_get_le16(const void *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}
static inline uint32_t gx_get_le32(const void *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}
static inline uint64_t gx_get_le64(const void *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}
/* Big-endian, for keys that must sort. */
static inline void gx_put_be64(void *p, uint64_t v)
{
	v = __builtin_bswap64(v);
	memcpy(p, &v, sizeof(v));
}
static inline uint64_t gx_get_be64(const void *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof(v));
	return __builtin_bswap64(v);
}

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the accessors above are written for little-endian hosts"
#endif

#endif
