#include "metad/md_cache.h"

/* What a pair is thought to take when the table's size is chosen. */
#define PAIR_BYTES_GUESS 128u
/* A pair may take this part of the cache, so that one large value does not sweep it. */
#define PAIR_SHARE 8u
/* What malloc adds: its own word, and rounding to 16. */
#define MALLOC_BYTES(n) (((n) + 8 + 15) & ~(size_t)15)

int md_cache_init(struct md_cache *cache, size_t bytes_max)
{
	*cache = (struct md_cache){.bytes_max = bytes_max};
	cache->ring.prev = &cache->ring;
	cache->ring.next = &cache->ring;
	if (bytes_max < PAIR_SHARE * PAIR_BYTES_GUESS)
		return 0;
	cache->bucket_count = 1;
	while (cache->bucket_count < bytes_max / PAIR_BYTES_GUESS)
		cache->bucket_count *= 2;
	cache->buckets = gx_calloc_mapped(cache->bucket_count, sizeof(struct md_cache_entry *));
	if (cache->buckets == NULL)
		return -ENOMEM;
	cache->bytes = cache->bucket_count * sizeof(struct md_cache_entry *);
	return 0;
}

static size_t size_of(const struct md_cache_entry *entry)
{
	size_t value_bytes = entry->value_bytes == MD_CACHE_MISSING ? 0 : entry->value_bytes;

	return MALLOC_BYTES(sizeof(*entry) + entry->key_bytes + value_bytes);
}

static void link_first(struct md_cache *cache, struct md_cache_entry *entry)
{
	entry->prev = &cache->ring;
	entry->next = cache->ring.next;
	entry->next->prev = entry;
	cache->ring.next = entry;
}

static void unlink_entry(struct md_cache_entry *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
}

/* Where the bucket's chain points to the entry, or to NULL at its end. */
static struct md_cache_entry **slot_of(struct md_cache *cache, const void *key, size_t key_bytes,
				       uint32_t hash)
{
	struct md_cache_entry **slot = &cache->buckets[hash & (cache->bucket_count - 1)];

	while (*slot != NULL && ((*slot)->hash != hash || (*slot)->key_bytes != key_bytes ||
				 memcmp((*slot)->bytes, key, key_bytes) != 0))
		slot = &(*slot)->chain;
	return slot;
}

static void drop_slot(struct md_cache *cache, struct md_cache_entry **slot)
{
	struct md_cache_entry *entry = *slot;

	*slot = entry->chain;
	unlink_entry(entry);
	cache->bytes -= size_of(entry);
	cache->count--;
	free(entry);
}

void md_cache_fini(struct md_cache *cache)
{
	for (struct md_cache_entry *entry = cache->ring.next, *next;
	     entry != NULL && entry != &cache->ring; entry = next) {
		next = entry->next;
		free(entry);
	}
	free(cache->buckets);
	*cache = (struct md_cache){0};
}

const struct md_cache_entry *md_cache_find(struct md_cache *cache, const void *key,
					   size_t key_bytes, uint32_t hash)
{
	struct md_cache_entry *entry;

	if (cache->bucket_count == 0)
		return NULL;
	entry = *slot_of(cache, key, key_bytes, hash);
	if (entry != NULL && cache->ring.next != entry) {
		unlink_entry(entry);
		link_first(cache, entry);
	}
	return entry;
}

void md_cache_put(struct md_cache *cache, const void *key, size_t key_bytes, uint32_t hash,
		  const void *value, size_t value_bytes)
{
	size_t stored_bytes = value != NULL ? value_bytes : 0;
	struct md_cache_entry *entry;
	struct md_cache_entry **slot;
	size_t bytes;

	if (cache->bucket_count == 0)
		return;
	bytes = MALLOC_BYTES(sizeof(*entry) + key_bytes + stored_bytes);
	entry = bytes <= cache->bytes_max / PAIR_SHARE
			? malloc(sizeof(*entry) + key_bytes + stored_bytes)
			: NULL;
	if (entry == NULL) {
		md_cache_remove(cache, key, key_bytes, hash);
		return;
	}
	entry->hash = hash;
	entry->key_bytes = (uint16_t)key_bytes;
	entry->value_bytes = value != NULL ? (uint32_t)value_bytes : MD_CACHE_MISSING;
	memcpy(entry->bytes, key, key_bytes);
	if (stored_bytes > 0)
		memcpy(entry->bytes + key_bytes, value, stored_bytes);
	/* Only now may pairs go: key and value might lie in one of them. */
	md_cache_remove(cache, entry->bytes, key_bytes, hash);
	while (cache->bytes + bytes > cache->bytes_max && cache->count > 0) {
		struct md_cache_entry *last = cache->ring.prev;

		drop_slot(cache, slot_of(cache, last->bytes, last->key_bytes, last->hash));
	}
	slot = &cache->buckets[hash & (cache->bucket_count - 1)];
	entry->chain = *slot;
	*slot = entry;
	link_first(cache, entry);
	cache->bytes += bytes;
	cache->count++;
}

void md_cache_remove(struct md_cache *cache, const void *key, size_t key_bytes, uint32_t hash)
{
	struct md_cache_entry **slot;

	if (cache->bucket_count == 0)
		return;
	slot = slot_of(cache, key, key_bytes, hash);
	if (*slot != NULL)
		drop_slot(cache, slot);
}
