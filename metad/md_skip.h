/*
 * md_skip.h - an ordered map of bytes that only grows: a skip list for order, a
 * hash table for single keys, both over nodes in one arena.
 *
 * A layer of changes (md_kv.h) fills up, is read by two threads, and goes as a
 * whole; so nothing is ever removed (a deletion is an entry), nodes never
 * move, and freeing the map is freeing a few large blocks. Overwriting reuses
 * the old place if the new value fits, else the old bytes are lost until then;
 * `bytes` counts them.
 *
 * Threads: one may change it while no other looks; any number may read it
 * while nobody changes it.
 */
#ifndef MD_SKIP_H
#define MD_SKIP_H

#include "common/gx_base.h"

#define MD_SKIP_DELETED UINT32_MAX
#define MD_SKIP_HEIGHT_MAX 12u /* 4^12 entries before searching slows down */

struct md_skip_node {
	struct md_skip_node *chain; /* same bucket */
	unsigned char *value;
	uint64_t tag_session, tag_index; /* for the owner; 0 in a new node */
	uint32_t hash;
	uint32_t value_bytes; /* MD_SKIP_DELETED: a deletion */
	uint32_t value_capacity;
	uint16_t key_bytes;
	uint16_t height;
	struct md_skip_node *next[]; /* `height` of them, then the key */
};

struct md_skip;

/* `expected` entries cost no rehash; the seed is for the shape only. */
GX_MUST_CHECK int md_skip_new(size_t expected, uint64_t seed, struct md_skip **ret_skip);
void md_skip_free(struct md_skip *skip);
GX_DEFINE_CLEANUP(struct md_skip *, md_skip_free)

static inline const unsigned char *md_skip_key(const struct md_skip_node *node)
{
	return (const unsigned char *)&node->next[node->height];
}

/* The caller hashes, since it asks several maps: any good hash, the same for one map's life. */
struct md_skip_node *md_skip_find(const struct md_skip *skip, const void *key, size_t key_bytes,
				  uint32_t hash);
/*
 * Puts a copy; a NULL value is a deletion. Key and value may lie in this map. The node, with the
 * tag it had. -ENOMEM leaves the map as it was.
 */
GX_MUST_CHECK int md_skip_put(struct md_skip *skip, const void *key, size_t key_bytes,
			      uint32_t hash, const void *value, size_t value_bytes,
			      struct md_skip_node **ret_node);

/*
 * Walking: the place before the first key >= `key`; from a place, the next entry or NULL. Places
 * stay valid while the map grows, and an entry put right behind one is met.
 */
const struct md_skip_node *md_skip_before(const struct md_skip *skip, const void *key,
					  size_t key_bytes);
static inline const struct md_skip_node *md_skip_next(const struct md_skip_node *place)
{
	return place->next[0];
}

size_t md_skip_count(const struct md_skip *skip);
/* All that the map takes: nodes, keys, values, lost values, buckets. */
size_t md_skip_bytes(const struct md_skip *skip);

/* memcmp, and the shorter first. */
static inline int md_key_compare(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
	size_t bytes = GX_MIN(a_bytes, b_bytes);
	int c = bytes > 0 ? memcmp(a, b, bytes) : 0;

	return c != 0 ? c : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

#endif
