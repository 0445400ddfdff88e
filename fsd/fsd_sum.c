#include "fsd/fsd_sum.h"
#include "common/gx_num.h"
#include <fcntl.h>
#include "common/gx_sum.h"

#define GROUP_BYTES (FSD_SUM_PAGE_BYTES + (uint64_t)FSD_SUM_MARKS * FSD_REGION_BLOCKS * 8)
#define GROUP_BLOCKS ((uint64_t)FSD_SUM_MARKS * FSD_REGION_BLOCKS)

static const uint8_t magic[8] = {'G', 'S', 'F', 'S', 'D', 'S', 'U', 'M'};
static const uint8_t mark_set[8] = {'G', 'S', 'D', 'I', 'R', 'T', 'Y', '\n'};

uint64_t fsd_sum_block(const void *block)
{
	return gx_block_sum(block);
}

/* A constant, so that two machines, and two versions, can never disagree about it. */
uint64_t fsd_sum_zeros(void)
{
	return GX_BLOCK_ZEROS;
}

/* -- header -------------------------------------------------------------------- */

void fsd_sum_header_encode(const struct fsd_sum_header *header, void *ret_bytes)
{
	uint8_t *p = ret_bytes;

	memset(p, 0, FSD_SUM_HEADER_BYTES);
	memcpy(p, magic, sizeof(magic));
	gx_put_le32(p + 8, FSD_SUM_VERSION);
	gx_put_le32(p + 12, FSD_SUM_HEADER_BYTES);
	gx_put_le64(p + 16, header->ino);
	gx_put_le64(p + 24, header->generation);
	gx_put_le64(p + 32, header->settled_bytes);
	gx_put_le32(p + 40, FSD_BLOCK_BYTES);
	gx_put_le32(p + 44, FSD_REGION_BYTES);
	gx_put_le64(p + 56, gx_sum64(p, 56));
}

int fsd_sum_header_decode(const void *data, size_t bytes, struct fsd_sum_header *ret_header)
{
	const uint8_t *p = data;

	if (bytes < FSD_SUM_HEADER_BYTES || memcmp(p, magic, sizeof(magic)) != 0 ||
	    gx_get_le64(p + 56) != gx_sum64(p, 56))
		return -EBADMSG;
	if (gx_get_le32(p + 8) > FSD_SUM_VERSION)
		return -EPROTONOSUPPORT;
	if (gx_get_le32(p + 8) != FSD_SUM_VERSION || gx_get_le32(p + 12) != FSD_SUM_HEADER_BYTES ||
	    gx_get_le32(p + 40) != FSD_BLOCK_BYTES || gx_get_le32(p + 44) != FSD_REGION_BYTES ||
	    gx_get_le64(p + 32) > FSD_OBJECT_BYTES_MAX)
		return -EBADMSG;
	ret_header->ino = gx_get_le64(p + 16);
	ret_header->generation = gx_get_le64(p + 24);
	ret_header->settled_bytes = gx_get_le64(p + 32);
	return 0;
}

/* -- checksums ----------------------------------------------------------------- */

static uint64_t sum_offset(uint64_t block)
{
	return block / GROUP_BLOCKS * GROUP_BYTES + FSD_SUM_PAGE_BYTES + block % GROUP_BLOCKS * 8;
}

uint64_t fsd_sum_file_bytes(uint64_t blocks)
{
	return blocks == 0 ? FSD_SUM_PAGE_BYTES : sum_offset(blocks - 1) + 8;
}

/* How many of `count` blocks from `first` on lie side by side. */
static size_t run_of(uint64_t first, size_t count)
{
	return (size_t)GX_MIN((uint64_t)count, GROUP_BLOCKS - first % GROUP_BLOCKS);
}

int fsd_sum_load(struct gx_env *env, int fd, uint64_t first, size_t count, uint64_t *ret_sums)
{
	uint64_t zeros = fsd_sum_zeros();

	while (count > 0) {
		size_t run = run_of(first, count);
		ssize_t n = gx_env_pread(env, fd, ret_sums, run * 8, sum_offset(first));

		if (n < 0)
			return (int)n;
		memset((uint8_t *)ret_sums + n, 0, run * 8 - (size_t)n);
		for (size_t i = 0; i < run; i++)
			ret_sums[i] = gx_get_le64(&ret_sums[i]) ^ zeros;
		ret_sums += run;
		first += run;
		count -= run;
	}
	return 0;
}

int fsd_sum_store(struct gx_env *env, int fd, uint64_t first, size_t count, const uint64_t *sums)
{
	uint64_t encoded[FSD_SUM_BATCH];
	uint64_t zeros = fsd_sum_zeros();

	while (count > 0) {
		size_t run = GX_MIN(run_of(first, count), GX_COUNT_OF(encoded));
		int r;

		for (size_t i = 0; i < run; i++)
			gx_put_le64(&encoded[i], sums[i] ^ zeros);
		r = gx_env_pwrite(env, fd, encoded, run * 8, sum_offset(first));
		if (r < 0)
			return r;
		sums += run;
		first += run;
		count -= run;
	}
	return 0;
}

int fsd_sum_room(struct gx_env *env, int fd, uint64_t first, uint64_t count)
{
	while (count > 0) {
		uint64_t run = GX_MIN(count, GROUP_BLOCKS - first % GROUP_BLOCKS);
		int r = gx_env_fallocate(env, fd, FALLOC_FL_KEEP_SIZE,
					 first / GROUP_BLOCKS * GROUP_BYTES, FSD_SUM_PAGE_BYTES);

		if (r == 0)
			r = gx_env_fallocate(env, fd, FALLOC_FL_KEEP_SIZE, sum_offset(first),
					     run * 8);
		if (r < 0)
			return r;
		first += run;
		count -= run;
	}
	return 0;
}

/* -- marks --------------------------------------------------------------------- */

int fsd_sum_mark(struct gx_env *env, int fd, uint64_t region, bool set)
{
	static const uint8_t clear[sizeof(mark_set)];
	uint64_t offset = region / FSD_SUM_MARKS * GROUP_BYTES + FSD_SUM_HEADER_BYTES +
			  region % FSD_SUM_MARKS * 8;

	return gx_env_pwrite(env, fd, set ? mark_set : clear, sizeof(mark_set), offset);
}

static int page_marks(const uint8_t *page, uint64_t group, fsd_sum_mark_fn fn, void *arg)
{
	for (size_t i = 0; i < FSD_SUM_MARKS; i++) {
		const uint8_t *mark = page + FSD_SUM_HEADER_BYTES + i * 8;
		int r;

		if (gx_get_le64(mark) == 0)
			continue;
		if (memcmp(mark, mark_set, sizeof(mark_set)) != 0)
			return -EBADMSG;
		r = fn(arg, group * FSD_SUM_MARKS + i);
		if (r < 0)
			return r;
	}
	return 0;
}

int fsd_sum_each_mark(struct gx_env *env, int fd, fsd_sum_mark_fn fn, void *arg)
{
	uint8_t page[FSD_SUM_PAGE_BYTES];

	for (uint64_t group = 0;; group++) {
		ssize_t n = gx_env_pread(env, fd, page, sizeof(page), group * GROUP_BYTES);
		int r;

		if (n <= 0)
			return (int)n;
		memset(page + n, 0, sizeof(page) - (size_t)n);
		r = page_marks(page, group, fn, arg);
		if (r < 0)
			return r;
	}
}
