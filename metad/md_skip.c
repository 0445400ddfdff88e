#include "metad/md_skip.h"

#define BLOCK_FIRST_BYTES 4096u
#define BLOCK_MAX_BYTES (256u * 1024)
#define BUCKETS_MIN 16u

struct block {
	struct block *next;
	size_t capacity; /* of data */
	size_t used;
	_Alignas(16) unsigned char data[];
};

struct md_skip {
	struct block *blocks; /* newest first; only that one has room */
	struct md_skip_node **buckets;
	size_t bucket_count; /* a power of two */
	size_t count;
	size_t bytes;
	uint64_t random;
	struct md_skip_node *head; /* before all; of full height */
	unsigned height;           /* of the tallest node */
};

/* -- memory ------------------------------------------------------------------------------- */

static void *take_bytes(struct md_skip *skip, size_t bytes)
{
	struct block *block = skip->blocks;
	size_t capacity;
	void *p;

	bytes = (bytes + 7) & ~(size_t)7;
	if (block == NULL || block->capacity - block->used < bytes) {
		/* Blocks double, so that a small map is small and a large one has few. */
		capacity = block == NULL ? BLOCK_FIRST_BYTES : 2 * block->capacity;
		capacity = GX_MAX(GX_MIN(capacity, BLOCK_MAX_BYTES), bytes);
		block = malloc(sizeof(*block) + capacity);
		if (block == NULL)
			return NULL;
		block->capacity = capacity;
		block->used = 0;
		block->next = skip->blocks;
		skip->blocks = block;
	}
	p = block->data + block->used;
	block->used += bytes;
	skip->bytes += bytes;
	return p;
}

static struct md_skip_node *new_node(struct md_skip *skip, unsigned height, size_t key_bytes,
				     size_t value_bytes)
{
	size_t fixed = sizeof(struct md_skip_node) + height * sizeof(struct md_skip_node *);
	struct md_skip_node *node = take_bytes(skip, fixed + key_bytes + value_bytes);

	if (node == NULL)
		return NULL;
	memset(node, 0, fixed);
	node->height = (uint16_t)height;
	node->key_bytes = (uint16_t)key_bytes;
	node->value = (unsigned char *)&node->next[height] + key_bytes;
	node->value_capacity = (uint32_t)value_bytes;
	return node;
}

int md_skip_new(size_t expected, uint64_t seed, struct md_skip **ret_skip)
{
	GX_CLEANUP(md_skip_freep) struct md_skip *skip = calloc(1, sizeof(*skip));

	if (skip == NULL)
		return -ENOMEM;
	skip->bucket_count = BUCKETS_MIN;
	while (skip->bucket_count < expected)
		skip->bucket_count *= 2;
	skip->buckets = gx_calloc_mapped(skip->bucket_count, sizeof(struct md_skip_node *));
	if (skip->buckets == NULL)
		return -ENOMEM;
	skip->random = seed | 1;
	skip->height = 1;
	skip->head = new_node(skip, MD_SKIP_HEIGHT_MAX, 0, 0);
	if (skip->head == NULL)
		return -ENOMEM;
	*ret_skip = GX_TAKE(skip);
	return 0;
}

void md_skip_free(struct md_skip *skip)
{
	if (skip == NULL)
		return;
	while (skip->blocks != NULL) {
		struct block *block = skip->blocks;

		skip->blocks = block->next;
		free(block);
	}
	free(skip->buckets);
	free(skip);
}

/* -- the hash table ----------------------------------------------------------------------- */

struct md_skip_node *md_skip_find(const struct md_skip *skip, const void *key, size_t key_bytes,
				  uint32_t hash)
{
	struct md_skip_node *node = skip->buckets[hash & (skip->bucket_count - 1)];

	while (node != NULL && (node->hash != hash || node->key_bytes != key_bytes ||
				memcmp(md_skip_key(node), key, key_bytes) != 0))
		node = node->chain;
	return node;
}

/* No memory for a larger table: longer chains will do. */
static void grow_buckets(struct md_skip *skip)
{
	size_t bucket_count = 2 * skip->bucket_count;
	struct md_skip_node **buckets =
		gx_calloc_mapped(bucket_count, sizeof(struct md_skip_node *));

	if (buckets == NULL)
		return;
	for (size_t i = 0; i < skip->bucket_count; i++) {
		struct md_skip_node *node = skip->buckets[i];

		while (node != NULL) {
			struct md_skip_node *chain = node->chain;
			struct md_skip_node **slot = &buckets[node->hash & (bucket_count - 1)];

			node->chain = *slot;
			*slot = node;
			node = chain;
		}
	}
	free(skip->buckets);
	skip->buckets = buckets;
	skip->bucket_count = bucket_count;
}

/* -- order ---------------------------------------------------------------------------------- */

/* Each level holds a quarter of the one below. */
static unsigned random_height(struct md_skip *skip)
{
	unsigned height = 1;
	uint64_t x = skip->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	skip->random = x;
	for (x >>= 8; (x & 3) == 0 && height < MD_SKIP_HEIGHT_MAX; x >>= 2)
		height++;
	return height;
}

/* On each level the last node before `key`. */
static struct md_skip_node *search(const struct md_skip *skip, const void *key, size_t key_bytes,
				   struct md_skip_node **before)
{
	struct md_skip_node *at = skip->head;
	const struct md_skip_node *refused = NULL; /* known not to be before key */

	for (unsigned level = skip->height; level-- > 0;) {
		struct md_skip_node *next = at->next[level];

		while (next != NULL && next != refused &&
		       md_key_compare(md_skip_key(next), next->key_bytes, key, key_bytes) < 0) {
			at = next;
			next = at->next[level];
		}
		refused = next;
		if (before != NULL)
			before[level] = at;
	}
	return at;
}

const struct md_skip_node *md_skip_before(const struct md_skip *skip, const void *key,
					  size_t key_bytes)
{
	return search(skip, key, key_bytes, NULL);
}

/* -- change --------------------------------------------------------------------------------- */

static int set_value(struct md_skip *skip, struct md_skip_node *node, const void *value,
		     size_t value_bytes)
{
	if (value == NULL) {
		node->value_bytes = MD_SKIP_DELETED;
		return 0;
	}
	if (value_bytes > node->value_capacity) {
		unsigned char *place = take_bytes(skip, value_bytes);

		if (place == NULL)
			return -ENOMEM;
		node->value = place;
		node->value_capacity = (uint32_t)value_bytes;
	}
	if (value_bytes > 0)
		memmove(node->value, value, value_bytes);
	node->value_bytes = (uint32_t)value_bytes;
	return 0;
}

int md_skip_put(struct md_skip *skip, const void *key, size_t key_bytes, uint32_t hash,
		const void *value, size_t value_bytes, struct md_skip_node **ret_node)
{
	struct md_skip_node *node = md_skip_find(skip, key, key_bytes, hash);
	struct md_skip_node *before[MD_SKIP_HEIGHT_MAX];
	struct md_skip_node **bucket;
	unsigned height;
	int r;

	gx_assert(key_bytes > 0 && key_bytes <= UINT16_MAX && value_bytes < MD_SKIP_DELETED);
	if (node != NULL) {
		r = set_value(skip, node, value, value_bytes);
		if (r == 0)
			*ret_node = node;
		return r;
	}
	height = random_height(skip);
	node = new_node(skip, height, key_bytes, value != NULL ? value_bytes : 0);
	if (node == NULL)
		return -ENOMEM;
	memcpy(&node->next[height], key, key_bytes);
	node->hash = hash;
	r = set_value(skip, node, value, value_bytes);
	gx_assert(r == 0); /* the node was made with room for it */

	for (; skip->height < height; skip->height++)
		skip->head->next[skip->height] = NULL;
	(void)search(skip, key, key_bytes, before);
	for (unsigned level = 0; level < height; level++) {
		node->next[level] = before[level]->next[level];
		before[level]->next[level] = node;
	}
	if (skip->count >= skip->bucket_count)
		grow_buckets(skip);
	bucket = &skip->buckets[hash & (skip->bucket_count - 1)];
	node->chain = *bucket;
	*bucket = node;
	skip->count++;
	*ret_node = node;
	return 0;
}

size_t md_skip_count(const struct md_skip *skip)
{
	return skip->count;
}

size_t md_skip_bytes(const struct md_skip *skip)
{
	return skip->bytes + skip->bucket_count * sizeof(struct md_skip_node *);
}
