/*
 * md_cache.h - a bounded set of key-value pairs, the least recently used goes
 * first. A pair may say that the key does not exist.
 *
 * The bound covers everything: pairs with what malloc adds, and the hash
 * table, which has its full size from the start so that no call ever stops to
 * rehash (rule N17). A pair that does not fit, or for which there is no memory,
 * is simply not kept.
 *
 * Threads: one.
 */
#ifndef MD_CACHE_H
#define MD_CACHE_H

#include "common/gx_base.h"

#define MD_CACHE_MISSING UINT32_MAX

struct md_cache_entry {
	struct md_cache_entry *chain;       /* same bucket */
	struct md_cache_entry *prev, *next; /* by use; a ring with the cache's own entry */
	uint32_t hash;
	uint32_t value_bytes; /* MD_CACHE_MISSING: there is no such key */
	uint16_t key_bytes;
	unsigned char bytes[]; /* key, value */
};

struct md_cache {
	struct md_cache_entry ring; /* ring.next is the most recently used */
	struct md_cache_entry **buckets;
	size_t bucket_count; /* a power of two; 0: keeps nothing */
	size_t count;
	size_t bytes;
	size_t bytes_max;
};

/* -ENOMEM. */
GX_MUST_CHECK int md_cache_init(struct md_cache *cache, size_t bytes_max);
void md_cache_fini(struct md_cache *cache);

/* Borrowed until the next put or remove; counts as a use. The caller hashes. */
const struct md_cache_entry *md_cache_find(struct md_cache *cache, const void *key,
					   size_t key_bytes, uint32_t hash);
static inline const unsigned char *md_cache_value(const struct md_cache_entry *entry)
{
	return entry->bytes + entry->key_bytes;
}
/* Replaces what is there; a NULL value says that the key does not exist. Both may lie in it. */
void md_cache_put(struct md_cache *cache, const void *key, size_t key_bytes, uint32_t hash,
		  const void *value, size_t value_bytes);
void md_cache_remove(struct md_cache *cache, const void *key, size_t key_bytes, uint32_t hash);

#endif
