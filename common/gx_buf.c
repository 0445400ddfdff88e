#include "common/gx_buf.h"
#include "common/gx_secret.h"
#include <stdio.h>

#define GX_BUF_FIRST_BYTES 64u

void gx_buf_init(struct gx_buf *buf, size_t bytes_max)
{
	*buf = (struct gx_buf){.bytes_max = bytes_max};
}

void gx_buf_fini(struct gx_buf *buf)
{
	free(buf->data);
	buf->data = NULL;
	buf->bytes = 0;
	buf->capacity = 0;
}

void gx_buf_wipe(struct gx_buf *buf)
{
	/* All of the memory, not only the bytes in use: a _clear or _consume leaves old ones. */
	if (buf->data != NULL)
		gx_wipe(buf->data, buf->capacity);
	gx_buf_fini(buf);
}

/* Doubles until `capacity` fits, so that n appends cost O(n); one extra byte is for a NUL. */
static int grow_to(struct gx_buf *buf, size_t capacity)
{
	size_t wanted = GX_MAX(buf->capacity, GX_BUF_FIRST_BYTES);
	unsigned char *data;

	if (capacity <= buf->capacity)
		return 0;
	while (wanted < capacity && wanted <= SIZE_MAX / 2)
		wanted *= 2;
	if (wanted > buf->bytes_max)
		wanted = GX_MAX(buf->bytes_max, capacity);
	wanted = GX_MAX(wanted, capacity);
	data = realloc(buf->data, wanted);
	if (data == NULL)
		return -ENOMEM;
	buf->data = data;
	buf->capacity = wanted;
	return 0;
}

int gx_buf_reserve(struct gx_buf *buf, size_t bytes)
{
	gx_assert(buf->bytes <= buf->bytes_max);
	if (bytes > buf->bytes_max - buf->bytes)
		return -E2BIG;
	return grow_to(buf, buf->bytes + bytes);
}

int gx_buf_append(struct gx_buf *buf, const void *data, size_t bytes)
{
	int r = gx_buf_reserve(buf, bytes);

	if (r < 0)
		return r;
	if (bytes > 0)
		memcpy(buf->data + buf->bytes, data, bytes);
	buf->bytes += bytes;
	return 0;
}

int gx_buf_append_format(struct gx_buf *buf, const char *fmt, ...)
{
	va_list args;
	size_t room = buf->capacity - buf->bytes;
	int n, r;

	/* Most texts fit into what is there; otherwise the first try has told the length. */
	va_start(args, fmt);
	n = vsnprintf(room > 0 ? (char *)buf->data + buf->bytes : NULL, room, fmt, args);
	va_end(args);
	if (n < 0)
		return -EINVAL;
	if ((size_t)n > buf->bytes_max - buf->bytes)
		return -E2BIG;
	if ((size_t)n >= room) {
		r = grow_to(buf, buf->bytes + (size_t)n + 1);
		if (r < 0)
			return r;
		va_start(args, fmt);
		n = vsnprintf((char *)buf->data + buf->bytes, (size_t)n + 1, fmt, args);
		va_end(args);
	}
	buf->bytes += (size_t)n;
	return 0;
}

void gx_buf_consume(struct gx_buf *buf, size_t bytes)
{
	gx_assert(bytes <= buf->bytes);
	if (bytes == 0)
		return;
	buf->bytes -= bytes;
	memmove(buf->data, buf->data + bytes, buf->bytes);
}

const char *gx_buf_text(struct gx_buf *buf)
{
	if (grow_to(buf, buf->bytes + 1) < 0)
		return NULL;
	buf->data[buf->bytes] = '\0';
	return (const char *)buf->data;
}
