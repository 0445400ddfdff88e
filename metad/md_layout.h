/*
 * md_layout.h - objects in the state: where the copies of a file are, and which count.
 *
 * Records (docs/STORAGE.md):
 *	L<ino>                     PbMeta__LayoutRecord: copies, and whether one is being written
 *	R<node>\0<ino>             index: this node has a copy of this inode (empty value)
 *	T<node>\0<ino><generation> trash: the node is to delete this object (empty value)
 *	N<node>\0                  boot id of the node's machine (rule B3), 8 bytes
 *	U<ino>                     the inode has fewer or more copies than wanted (empty value)
 *
 * An inode that is not inline has an L record. Its content is the copies whose generation is the
 * inode's; others are stale. While `writing` only the primary counts. The inode's generation moves
 * when writing begins (rule B1), except while the file grows out of metad: then `writing` is the
 * coming generation, and the inline content is the truth until Report says grown (rule N10).
 *
 * Wanted copies are md_inode.ncopy (0: one), inherited from the directory at creation, seen and set
 * as the extended attribute gfs.ncopy.
 *
 * The generation moves in metad before it does at the node. Until a report (with a size), a note or
 * a finished job has shown that the primary was there with the new one, `primary` and
 * `from_generation` stay in the record, also when writing is over: it may have any generation from
 * there on (md_copy_base). Writing that begins again meanwhile goes on with the same generation.
 *
 * What a change makes unnecessary becomes trash in the same command; the nodes are told only when
 * that command is on disk (rule N2), which is the server's business.
 */
#ifndef MD_LAYOUT_H
#define MD_LAYOUT_H

#include "metad/md_state.h"

#define MD_COPIES_MAX 32u /* of one inode, with stale and cache copies */
#define MD_OBJECT_BYTES_MAX (UINT64_C(1) << 50)

#define MD_COPY_CACHE 1u
#define MD_COPY_STABLE 2u
#define MD_COPY_BAD 4u
#define MD_COPY_STALE 16u /* of this generation, but not to be believed (B3) */
#define MD_COPY_FLAGS 23u /* all there are */

/* The bytes of an L record. -EBADMSG, -EPROTONOSUPPORT (newer), -ENOMEM. */
GX_MUST_CHECK int md_layout_decode(const void *bytes, size_t byte_count, struct rpc_arena *arena,
				   PbMeta__LayoutRecord **ret_layout);
/* The layout of an inode, in the arena. *ret is NULL if it has none. -EBADMSG, -ENOMEM. */
GX_MUST_CHECK int md_layout_get(struct md_ctx *ctx, uint64_t ino, PbMeta__LayoutRecord **ret);
/* Does this copy count? */
bool md_copy_current(const struct md_inode *inode, const PbMeta__LayoutRecord *layout,
		     const PbMeta__CopyRecord *copy);
/*
 * The node of this copy may still have an older generation, from this one on: nobody has told that
 * it was there since the generation moved. It is the base of tickets and jobs; 0: it has exactly
 * what the copy says.
 */
uint64_t md_copy_base(const PbMeta__LayoutRecord *layout, const PbMeta__CopyRecord *copy);
/* Copies that count towards the wanted number: current, no cache, not damaged. */
unsigned md_layout_count(const struct md_inode *inode, const PbMeta__LayoutRecord *layout);
unsigned md_ncopy(const struct md_inode *inode);
/* The copy on a node, or NULL. */
PbMeta__CopyRecord *md_layout_find(const PbMeta__LayoutRecord *layout, const char *node);
/* Is the node about to delete this object? Then it cannot become a copy. */
bool md_layout_in_trash(struct md_ctx *ctx, const char *node, uint64_t ino, uint64_t generation);
/* The boot id that a node's machine had when its copies were judged last; 0: never (rule B3). */
uint64_t md_layout_boot(struct md_state *state, const char *node);
/*
 * Is everything as wanted? If not the inode has a U record: it is settled, and the number of copies
 * that count is not the wanted one, or there are stale or damaged ones to be cleaned up. While it
 * is being written nothing is to be done.
 */
bool md_layout_balanced(const struct md_inode *inode, const PbMeta__LayoutRecord *layout);

/* -- scans, a page at a time (rule N17): at most `max`; *ret_next: where to go on, 0: the end ----
 * A page may have fewer, or none, before the end. -EBADMSG, -ENOMEM.
 */

GX_MUST_CHECK int md_layout_each_copy(struct md_ctx *ctx, const char *node, uint64_t first,
				      size_t max, uint64_t *ret_inos, size_t *ret_count,
				      uint64_t *ret_next);
struct md_trash {
	uint64_t ino, generation;
};
/* One inode may have any number of generations in the trash: so it goes on at both. ino 0: end. */
GX_MUST_CHECK int md_layout_each_trash(struct md_ctx *ctx, const char *node,
				       const struct md_trash *first, size_t max,
				       struct md_trash *ret_trash, size_t *ret_count,
				       struct md_trash *ret_next);
GX_MUST_CHECK int md_layout_each_unbalanced(struct md_ctx *ctx, uint64_t first, size_t max,
					    uint64_t *ret_inos, size_t *ret_count,
					    uint64_t *ret_next);
/* Inodes with an object that is being written. */
GX_MUST_CHECK int md_layout_each_written(struct md_ctx *ctx, uint64_t first, size_t max,
					 uint64_t *ret_inos, size_t *ret_count, uint64_t *ret_next);

#endif
