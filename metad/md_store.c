#include "metad/md_store.h"
#include "common/gx_num.h"

/* One change: key length, value length or DELETED, key, value. */
#define CHANGE_HEAD_BYTES 6u
#define DELETED UINT32_MAX

void md_store_batch_init(struct md_store_batch *batch, size_t bytes_max)
{
	gx_buf_init(&batch->bytes, bytes_max);
	batch->count = 0;
}

void md_store_batch_fini(struct md_store_batch *batch)
{
	gx_buf_fini(&batch->bytes);
	batch->count = 0;
}

void md_store_batch_clear(struct md_store_batch *batch)
{
	gx_buf_clear(&batch->bytes);
	batch->count = 0;
}

static int add_change(struct md_store_batch *batch, const void *key, size_t key_bytes,
		      const void *value, size_t value_bytes, uint32_t value_field)
{
	unsigned char *p;
	int r;

	gx_assert(key_bytes > 0 && key_bytes <= MD_KEY_MAX);
	gx_assert(value_bytes <= MD_VALUE_MAX);
	r = gx_buf_reserve(&batch->bytes, CHANGE_HEAD_BYTES + key_bytes + value_bytes);
	if (r < 0)
		return r;
	p = batch->bytes.data + batch->bytes.bytes;
	gx_put_le16(p, (uint16_t)key_bytes);
	gx_put_le32(p + 2, value_field);
	memcpy(p + CHANGE_HEAD_BYTES, key, key_bytes);
	if (value_bytes > 0)
		memcpy(p + CHANGE_HEAD_BYTES + key_bytes, value, value_bytes);
	batch->bytes.bytes += CHANGE_HEAD_BYTES + key_bytes + value_bytes;
	batch->count++;
	return 0;
}

int md_store_batch_put(struct md_store_batch *batch, const void *key, size_t key_bytes,
		       const void *value, size_t value_bytes)
{
	return add_change(batch, key, key_bytes, value, value_bytes, (uint32_t)value_bytes);
}

int md_store_batch_delete(struct md_store_batch *batch, const void *key, size_t key_bytes)
{
	return add_change(batch, key, key_bytes, NULL, 0, DELETED);
}

int md_store_batch_decode(const void *bytes, size_t byte_count, md_store_change_fn fn, void *arg)
{
	const unsigned char *p = bytes;
	const unsigned char *end = p + byte_count;

	while (p < end) {
		size_t key_bytes, value_bytes;
		uint32_t value_field;
		int r;

		if ((size_t)(end - p) < CHANGE_HEAD_BYTES)
			return -EBADMSG;
		key_bytes = gx_get_le16(p);
		value_field = gx_get_le32(p + 2);
		value_bytes = value_field == DELETED ? 0 : value_field;
		p += CHANGE_HEAD_BYTES;
		if (key_bytes == 0 || key_bytes > MD_KEY_MAX || value_bytes > MD_VALUE_MAX ||
		    (size_t)(end - p) < key_bytes + value_bytes)
			return -EBADMSG;
		r = fn(arg, p, key_bytes, value_field == DELETED ? NULL : p + key_bytes,
		       value_bytes);
		if (r != 0)
			return r;
		p += key_bytes + value_bytes;
	}
	return 0;
}

int md_store_batch_each(const struct md_store_batch *batch, md_store_change_fn fn, void *arg)
{
	return md_store_batch_decode(batch->bytes.data, batch->bytes.bytes, fn, arg);
}
