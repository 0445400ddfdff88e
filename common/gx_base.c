#include "common/gx_base.h"
#include "common/gx_log.h"
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void gx_assert_failed(const char *cond, const char *file, int line, const char *func)
{
	char text[512];

	/* A cut text is still worth printing; nothing here may allocate or lock. */
	(void)gx_format(text, sizeof(text), "assertion failed: %s at %s:%d in %s()\n", cond, file,
			line, func);
	gx_log_last_words(text);
	abort();
}

void *gx_calloc_mapped(size_t count, size_t item_bytes)
{
	volatile unsigned char *p = calloc(count, item_bytes);
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);

	for (size_t at = 0; p != NULL && at < count * item_bytes; at += page_bytes)
		p[at] = 0;
	return (void *)p;
}

const char *gx_strerror(int err)
{
	static _Thread_local char unknown[32];
	int positive = err == INT32_MIN ? INT32_MAX : abs(err);
	const char *text = strerrordesc_np(positive);

	if (text != NULL)
		return text;
	(void)gx_format(unknown, sizeof(unknown), "Unknown error %d", positive);
	return unknown;
}

int gx_strcpy(char *dst, size_t dst_bytes, const char *src)
{
	size_t bytes = strlen(src) + 1;

	gx_assert(dst_bytes > 0);
	if (bytes > dst_bytes) {
		dst[0] = '\0';
		return -E2BIG;
	}
	memcpy(dst, src, bytes);
	return 0;
}

int gx_format(char *dst, size_t dst_bytes, const char *fmt, ...)
{
	va_list args;
	int n;

	gx_assert(dst_bytes > 0);
	va_start(args, fmt);
	n = vsnprintf(dst, dst_bytes, fmt, args);
	va_end(args);
	if (n < 0) {
		dst[0] = '\0';
		return -EINVAL;
	}
	return (size_t)n < dst_bytes ? 0 : -E2BIG;
}
