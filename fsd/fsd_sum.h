/*
 * fsd_sum.h - the bytes of a sum file: header, marks, checksums.
 *
 * A sum file is a row of groups. A group is a page (4 KiB) and then the checksums of FSD_SUM_MARKS
 * regions, 8 bytes per block. The page has 64 bytes for the header (in the first group; zeros in
 * the others) and one word of 8 bytes per region, its mark. All numbers are little-endian.
 *
 *   header, 64 bytes			mark, 8 bytes
 *    0  magic "GSFSDSUM"		zero: clear; "GSDIRTY\n": set; else damaged
 *    8  version, 4 bytes
 *   12  header bytes, 4 bytes	checksum, 8 bytes
 *   16  ino				XXH3-64 of the block, which ends in zeros where the
 *   24  generation			content ends, XORed with that of a block of zeros: so a
 *   32  settled size in bytes	hole in the data may be a hole in here, too
 *   40  bytes per block, 4 bytes
 *   44  bytes per region, 4 bytes
 *   48  zeros
 *   56  XXH3-64 of the 56 before
 *
 * Marks lie apart from the checksums so that opening reads one page per 504 MiB, not 0.2 % of the
 * content; and a small object has a sum file of two filesystem blocks. Each word lies in one
 * sector, which a disk writes whole or not at all. The header keeps its size and the places of
 * magic, version and checksum in every version.
 */
#ifndef FSD_SUM_H
#define FSD_SUM_H

#include "fsd/fsd_object.h"

#define FSD_SUM_HEADER_BYTES 64u
#define FSD_SUM_PAGE_BYTES 4096u
#define FSD_SUM_MARKS ((FSD_SUM_PAGE_BYTES - FSD_SUM_HEADER_BYTES) / 8u) /* regions per group */
#define FSD_REGION_BLOCKS (FSD_REGION_BYTES / FSD_BLOCK_BYTES)
/* How many checksums are moved at once: what fits on a stack. */
#define FSD_SUM_BATCH 512u

struct fsd_sum_header {
	uint64_t ino;
	uint64_t generation;
	uint64_t settled_bytes;
};

/* The checksum of one whole block. */
uint64_t fsd_sum_block(const void *block);
/* That of a block of zeros. */
uint64_t fsd_sum_zeros(void);

void fsd_sum_header_encode(const struct fsd_sum_header *header, void *ret_bytes);
/* -EBADMSG: not a header; -EPROTONOSUPPORT: one of a newer version. */
GX_MUST_CHECK int fsd_sum_header_decode(const void *data, size_t bytes,
					struct fsd_sum_header *ret_header);

/* Bytes of a sum file for so many blocks. */
uint64_t fsd_sum_file_bytes(uint64_t blocks);
/* Checksums of blocks [first, first + count); what the file does not have is that of zeros. */
GX_MUST_CHECK int fsd_sum_load(struct gx_env *env, int fd, uint64_t first, size_t count,
			       uint64_t *ret_sums);
GX_MUST_CHECK int fsd_sum_store(struct gx_env *env, int fd, uint64_t first, size_t count,
				const uint64_t *sums);
/* Room for the checksums of these blocks and the marks of their regions, without changing any. */
GX_MUST_CHECK int fsd_sum_room(struct gx_env *env, int fd, uint64_t first, uint64_t count);
GX_MUST_CHECK int fsd_sum_mark(struct gx_env *env, int fd, uint64_t region, bool set);

/* Called for each region marked; an error stops and is returned. */
typedef int (*fsd_sum_mark_fn)(void *arg, uint64_t region);
/* All groups up to the end of the file. -EBADMSG: a mark is damaged. */
GX_MUST_CHECK int fsd_sum_each_mark(struct gx_env *env, int fd, fsd_sum_mark_fn fn, void *arg);

#endif
