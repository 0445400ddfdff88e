/*
 * Scans of the records about objects, a page at a time (rule N17).
 */
#include "metad/md_layout.h"
#include "common/gx_num.h"

/* Places looked at for a page, with deleted ones that are still in the way. */
#define SCAN_STEPS_MAX 8192u
#define WRITTEN_STEPS_MAX 512u /* their values are read, too */

struct page {
	size_t prefix_bytes; /* of each key, before the inode number */
	size_t max, count;
	uint64_t *inos;         /* either … */
	struct md_trash *trash; /* … or */
	struct md_trash last;
	struct rpc_arena *arena; /* not NULL: layouts, and only those being written */
};

/* What cannot be read is left to those who want it. */
static bool is_written(struct page *page, const void *value, size_t value_bytes)
{
	PbMeta__LayoutRecord *layout;
	bool written = md_layout_decode(value, value_bytes, page->arena, &layout) == 0 &&
		       layout->writing != 0;

	rpc_arena_clear(page->arena);
	return written;
}

static int page_add(void *arg, const void *key, size_t key_bytes, const void *value,
		    size_t value_bytes, const struct md_tag *tag GX_UNUSED)
{
	const unsigned char *numbers = (const unsigned char *)key;
	struct page *page = arg;

	if (key_bytes != page->prefix_bytes + (page->trash ? 16 : 8))
		return -EBADMSG;
	if (page->arena && !is_written(page, value, value_bytes))
		return 0;
	if (page->count == page->max)
		return 1;
	numbers += page->prefix_bytes;
	page->last.ino = gx_get_be64(numbers);
	if (page->trash) {
		page->last.generation = gx_get_be64(numbers + 8);
		page->trash[page->count++] = page->last;
	} else {
		page->inos[page->count++] = page->last.ino;
	}
	return 0;
}

/* Fills the page from a key on. *ret_after: the last place looked at; ino 0: there is no more. */
static int fill_page(struct md_ctx *ctx, const struct md_key *prefix, const struct md_key *first,
		     struct page *page, struct md_trash *ret_after)
{
	struct md_key to;
	struct gx_buf next;
	int r;

	page->prefix_bytes = prefix->count;
	md_key_end(prefix, &to);
	gx_buf_init(&next, MD_KEY_MAX + 1);
	r = md_kv_scan_some(ctx->state->kv, first->bytes, first->count, to.bytes, to.count,
			    page->arena ? WRITTEN_STEPS_MAX : SCAN_STEPS_MAX, page_add, page,
			    &next);
	*ret_after = page->last;
	if (r == 0)
		*ret_after = (struct md_trash){0, 0};
	if (r == -EAGAIN) {
		const unsigned char *numbers = next.data + prefix->count;

		ret_after->ino = gx_get_be64(numbers);
		ret_after->generation = page->trash ? gx_get_be64(numbers + 8) : 0;
		r = 0;
	}
	gx_buf_fini(&next);
	return GX_MIN(r, 0);
}

static int each_ino(struct md_ctx *ctx, const struct md_key *prefix, const struct md_key *first,
		    struct rpc_arena *arena, size_t max, uint64_t *ret_inos, size_t *ret_count,
		    uint64_t *ret_next)
{
	struct page page = {.max = max, .inos = ret_inos, .arena = arena};
	struct md_trash after;
	int r;

	gx_assert(max > 0);
	r = fill_page(ctx, prefix, first, &page, &after);
	if (r < 0)
		return r;
	*ret_count = page.count;
	*ret_next = after.ino == 0 ? 0 : after.ino + 1;
	return 0;
}

int md_layout_each_copy(struct md_ctx *ctx, const char *node, uint64_t first, size_t max,
			uint64_t *ret_inos, size_t *ret_count, uint64_t *ret_next)
{
	struct md_key prefix, from;

	md_key_copies(&prefix, node);
	md_key_copy(&from, node, first);
	return each_ino(ctx, &prefix, &from, NULL, max, ret_inos, ret_count, ret_next);
}

int md_layout_each_unbalanced(struct md_ctx *ctx, uint64_t first, size_t max, uint64_t *ret_inos,
			      size_t *ret_count, uint64_t *ret_next)
{
	struct md_key prefix, from;

	md_key_unbalanced_all(&prefix);
	md_key_unbalanced(&from, first);
	return each_ino(ctx, &prefix, &from, NULL, max, ret_inos, ret_count, ret_next);
}

int md_layout_each_written(struct md_ctx *ctx, uint64_t first, size_t max, uint64_t *ret_inos,
			   size_t *ret_count, uint64_t *ret_next)
{
	struct md_key prefix, from;

	md_key_layouts(&prefix);
	md_key_layout(&from, first);
	return each_ino(ctx, &prefix, &from, ctx->arena, max, ret_inos, ret_count, ret_next);
}

int md_layout_each_trash(struct md_ctx *ctx, const char *node, const struct md_trash *first,
			 size_t max, struct md_trash *ret_trash, size_t *ret_count,
			 struct md_trash *ret_next)
{
	struct page page = {.max = max, .trash = ret_trash};
	struct md_key prefix, from;
	struct md_trash after;
	int r;

	gx_assert(max > 0);
	md_key_trash_all(&prefix, node);
	md_key_trash(&from, node, first->ino, first->generation);
	r = fill_page(ctx, &prefix, &from, &page, &after);
	if (r < 0)
		return r;
	*ret_count = page.count;
	*ret_next = after;
	if (after.ino != 0)
		ret_next->generation++;
	return 0;
}
