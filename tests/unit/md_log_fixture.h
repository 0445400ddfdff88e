/*
 * md_log_fixture.h - what the tests of the log share: a directory, an env with a fault point, a
 * replay that notes what it is shown, segment files as bytes.
 */
#ifndef MD_LOG_FIXTURE_H
#define MD_LOG_FIXTURE_H

#include "common/gx_num.h"
#include "metad/md_log_impl.h"
#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <unistd.h>

#define SMALL_SEGMENT 4096u
#define SEEN_MAX 4096u

static char dir[64];
static struct gx_env env; /* the posix one, with a fault */
static struct gx_fault fault;

/* What a replay has shown. */
struct seen {
	size_t count;
	uint64_t index[SEEN_MAX];
	uint64_t epoch[SEEN_MAX];
	char text[SEEN_MAX][24];
	size_t bytes[SEEN_MAX];
	int stop_with;
};
static struct seen seen;

static inline void setup(void)
{
	memcpy(dir, "/tmp/test_md_log.XXXXXX", sizeof("/tmp/test_md_log.XXXXXX"));
	ck_assert_ptr_nonnull(mkdtemp(dir));
	memset(&fault, 0, sizeof(fault));
	env = *gx_env_posix();
	env.fault = &fault;
}

static inline int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static inline void teardown(void)
{
	nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static inline int see(void *arg, uint64_t index, uint64_t epoch, const void *data, size_t bytes)
{
	struct seen *s = arg;

	if (s->stop_with != 0)
		return s->stop_with;
	ck_assert_uint_lt(s->count, SEEN_MAX);
	s->index[s->count] = index;
	s->epoch[s->count] = epoch;
	s->bytes[s->count] = bytes;
	memset(s->text[s->count], 0, sizeof(s->text[0]));
	memcpy(s->text[s->count], data, GX_MIN(bytes, sizeof(s->text[0]) - 1));
	s->count++;
	return 0;
}

static inline int try_open(uint64_t after, struct gx_loop *loop, struct md_log **ret_log)
{
	struct md_log_options options = {
		.env = &env, .loop = loop, .dir = dir, .segment_bytes = SMALL_SEGMENT};

	seen.count = 0;
	return md_log_open(&options, after, see, &seen, ret_log);
}

static inline struct md_log *open_after(uint64_t after)
{
	struct md_log *log;

	ck_assert_int_eq(try_open(after, NULL, &log), 0);
	return log;
}

static inline int open_fails(uint64_t after)
{
	struct md_log *log;

	return try_open(after, NULL, &log);
}

static inline uint64_t add(struct md_log *log, const char *text)
{
	uint64_t index;

	ck_assert_int_eq(md_log_append(log, text, strlen(text), &index), 0);
	return index;
}

/* `count` records of `bytes`, each committed; the last index. */
static inline uint64_t add_many(struct md_log *log, unsigned count, size_t bytes)
{
	char data[2048];
	uint64_t index = 0;

	ck_assert_uint_le(bytes, sizeof(data));
	memset(data, 'x', sizeof(data));
	for (unsigned i = 0; i < count; i++) {
		ck_assert_int_eq(md_log_append(log, data, bytes, &index), 0);
		ck_assert_int_eq(md_log_commit(log), 0);
	}
	return index;
}

static inline const char *segment(uint64_t first)
{
	static char path[128];

	gx_format(path, sizeof(path), "%s/%016llx.log", dir, (unsigned long long)first);
	return path;
}

struct segments {
	size_t count;
	uint64_t first[64];
};

static inline int note_segment(void *arg, const char *name)
{
	struct segments *s = arg;
	uint64_t first;

	if (md_log_segment_name_parse(name, &first) == 0)
		s->first[s->count++] = first;
	return 0;
}

static inline int compare_u64(const void *a, const void *b)
{
	const uint64_t *x = a;
	const uint64_t *y = b;

	return *x < *y ? -1 : *x > *y;
}

static inline struct segments list_segments(void)
{
	struct segments s = {0};

	ck_assert_int_eq(gx_env_list_dir(gx_env_posix(), dir, note_segment, &s), 0);
	qsort(s.first, s.count, sizeof(s.first[0]), compare_u64);
	return s;
}

static inline size_t load(const char *path, void *buf, size_t bytes_max)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	ck_assert_int_ge(fd, 0);
	n = read(fd, buf, bytes_max);
	close(fd);
	ck_assert_int_ge(n, 0);
	return (size_t)n;
}

static inline void store(const char *path, const void *buf, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, buf, bytes), (ssize_t)bytes);
	close(fd);
}

static inline void flip(const char *path, off_t at, uint8_t mask)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
	byte ^= mask;
	ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

#endif
