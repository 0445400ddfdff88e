#include "tests/unit/gfs_fake.h"

#define RW (GFS_O_READ | GFS_O_WRITE)
#define NEW (RW | GFS_O_CREATE)

static unsigned char block[3 * FAKE_BYTES];

static void setup(void)
{
	fake_setup();
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (unsigned char)(i * 7 + 1);
}

static struct gfs_file *open_file(const char *path, unsigned flags)
{
	struct gfs_file *file = NULL;
	int r = gfs_open(fs, path, flags, 0644, &file);

	ck_assert_msg(r == 0, "%s", gfs_error());
	return file;
}

static void put(struct gfs_file *file, const char *text)
{
	ck_assert_int_eq(gfs_write(file, text, strlen(text)), (ssize_t)strlen(text));
}

/* What metad has, by another handle. */
static void assert_content(const char *path, const char *text)
{
	struct gfs_file *file = open_file(path, GFS_O_READ);
	char buf[256] = "";

	ck_assert_int_eq(gfs_read(file, buf, sizeof(buf) - 1), (ssize_t)strlen(text));
	ck_assert_str_eq(buf, text);
	ck_assert_int_eq(gfs_close(file), 0);
	gx_buf_clear(&fake->diary);
}

START_TEST(create_write_close_is_two_calls)
{
	struct gfs_file *file = open_file("/a", NEW | GFS_O_TRUNC);

	ck_assert_int_eq(gfs_write(file, block, 4096), 4096);
	ck_assert_int_eq(gfs_close(file), 0);
	assert_diary("open a 23; write 0+4096 close; ");
	ck_assert_int_eq(memcmp(fake->nodes[2].data, block, 4096), 0);
}
END_TEST

START_TEST(pieces_travel_together_up_to_8_kib)
{
	struct gfs_file *file = open_file("/a", NEW);

	gx_buf_clear(&fake->diary);
	for (size_t i = 0; i < 8192; i += 512)
		ck_assert_int_eq(gfs_write(file, block + i, 512), 512);
	assert_diary("");
	/* One byte more does not fit into metad. */
	ck_assert_int_eq(gfs_write(file, "x", 1), 1);
	assert_diary("write 0+8192; write 8192+1; data write 8192+1; ");
	ck_assert_int_eq(gfs_close(file), 0);
	assert_diary("report 8193; close; ");
	ck_assert_int_eq(memcmp(fake->nodes[2].data, block, 8192), 0);
	ck_assert_int_eq(fake->nodes[2].data[8192], 'x');
}
END_TEST

START_TEST(a_write_beyond_all_offsets_is_refused_at_once)
{
	struct gfs_file *file = open_file("/a", NEW);

	put(file, "abc");
	ck_assert_int_eq(gfs_pwrite(file, block, 1, UINT64_MAX), -EFBIG);
	ck_assert_int_eq(gfs_pwrite(file, block, SIZE_MAX, 0), -EFBIG);
	ck_assert_int_eq(gfs_lseek(file, 0, SEEK_CUR), 3);
	ck_assert_int_eq(gfs_close(file), 0);
	assert_content("/a", "abc");
}
END_TEST

START_TEST(overlapping_writes_merge_and_others_are_sent_in_order)
{
	struct gfs_file *file = open_file("/a", NEW);

	gx_buf_clear(&fake->diary);
	ck_assert_int_eq(gfs_pwrite(file, "bbbb", 4, 2), 4);
	ck_assert_int_eq(gfs_pwrite(file, "cc", 2, 3), 2);  /* inside */
	ck_assert_int_eq(gfs_pwrite(file, "ddd", 3, 5), 3); /* over the end */
	ck_assert_int_eq(gfs_pwrite(file, "e", 1, 8), 1);   /* behind it */
	assert_diary("");
	ck_assert_int_eq(gfs_pwrite(file, "aa", 2, 0), 2); /* before it */
	assert_diary("write 2+7; ");
	ck_assert_int_eq(gfs_pwrite(file, "z", 1, 100), 1); /* a gap */
	assert_diary("write 0+2; ");
	ck_assert_int_eq(gfs_ftruncate(file, 9), 0);
	assert_diary("write 100+1; setattr 8 open; ");
	ck_assert_int_eq(gfs_lseek(file, 0, SEEK_CUR), 0);
	ck_assert_int_eq(gfs_close(file), 0);
	assert_content("/a", "aabccddde");
}
END_TEST

START_TEST(a_file_reads_what_it_wrote)
{
	struct gfs_file *file = open_file("/a", NEW);
	struct gfs_stat st;
	char buf[16] = "";

	put(file, "hello");
	ck_assert_int_eq(gfs_read(file, buf, sizeof(buf)), 0);
	assert_diary("open a 7; write 0+5; read 5; ");
	ck_assert_int_eq(gfs_lseek(file, 1, SEEK_SET), 1);
	ck_assert_int_eq(gfs_read(file, buf, 3), 3);
	ck_assert_str_eq(buf, "ell");
	put(file, "p!");
	ck_assert_int_eq(gfs_fstat(file, &st), 0);
	ck_assert_uint_eq(st.size, 6);
	ck_assert_int_eq(gfs_pread(file, buf, sizeof(buf), 0), 6);
	ck_assert_int_eq(memcmp(buf, "hellp!", 6), 0);
	put(file, "?");
	ck_assert_int_eq(gfs_lseek(file, -2, SEEK_END), 5);
	ck_assert_int_eq(gfs_lseek(file, -1, SEEK_CUR), 4);
	ck_assert_int_eq(gfs_lseek(file, -5, SEEK_CUR), -EINVAL);
	ck_assert_int_eq(gfs_lseek(file, 0, 99), -EINVAL);
	ck_assert_int_eq(gfs_lseek(file, INT64_MAX, SEEK_CUR), -EOVERFLOW);
	ck_assert_int_eq(gfs_lseek(file, 0, SEEK_CUR), 4);
	ck_assert_int_eq(gfs_close(file), 0);
}
END_TEST

START_TEST(other_ways_of_this_process_see_it_too)
{
	struct gfs_file *file = open_file("/a", NEW), *other;
	struct gfs_stat st;

	put(file, "one");
	ck_assert_int_eq(gfs_stat(fs, "/a", &st), 0);
	ck_assert_uint_eq(st.size, 3);
	put(file, "two");
	assert_content("/a", "onetwo");
	put(file, "three");
	ck_assert_int_eq(gfs_truncate(fs, "/a", 7), 0);
	assert_content("/a", "onetwot");
	/* What is truncated does not come back when it is sent later. */
	ck_assert_int_eq(gfs_pwrite(file, "old", 3, 0), 3);
	other = open_file("/a", GFS_O_WRITE | GFS_O_TRUNC);
	put(other, "x");
	ck_assert_int_eq(gfs_close(other), 0);
	ck_assert_int_eq(gfs_close(file), 0);
	assert_content("/a", "x");
	ck_assert_uint_eq(atomic_load(&fs->holding), 0);
}
END_TEST

START_TEST(other_open_files_of_this_process_see_it_too)
{
	struct gfs_file *file = open_file("/a", NEW), *other = open_file("/a", RW);
	struct gfs_file *end = open_file("/a", RW | GFS_O_APPEND);
	struct gfs_dir *dir;
	struct gfs_dirent entry;
	struct gfs_stat st;
	char buf[16] = "";

	put(file, "one");
	ck_assert_int_eq(gfs_read(other, buf, sizeof(buf)), 3);
	ck_assert_str_eq(buf, "one");
	put(file, "two");
	ck_assert_int_eq(gfs_fstat(other, &st), 0);
	ck_assert_uint_eq(st.size, 6);
	put(file, "three");
	ck_assert_int_eq(gfs_lseek(other, 0, SEEK_END), 11);
	put(file, "!");
	ck_assert_int_eq(gfs_ftruncate(other, 2), 0);
	/* The later write wins, whoever is sent first. */
	ck_assert_int_eq(gfs_pwrite(file, "AAA", 3, 0), 3);
	ck_assert_int_eq(gfs_pwrite(other, "BB", 2, 0), 2);
	put(end, "C");
	ck_assert_int_eq(gfs_pwrite(file, "D", 1, 4), 1);
	ck_assert_int_eq(gfs_opendir(fs, "/", &dir), 0);
	ck_assert_int_eq(gfs_readdir(dir, &entry), 1);
	ck_assert_uint_eq(entry.st.size, 5);
	gfs_closedir(dir);
	ck_assert_int_eq(gfs_close(end), 0);
	ck_assert_int_eq(gfs_close(other), 0);
	ck_assert_int_eq(gfs_close(file), 0);
	assert_content("/a", "BBACD");
}
END_TEST

START_TEST(a_file_held_back_elsewhere_is_left_alone)
{
	struct gfs_file *file = open_file("/a", NEW), *other;
	struct gfs_stat st;

	put(file, "one");
	other = open_file("/b", NEW | GFS_O_TRUNC);
	put(other, "two");
	ck_assert_int_eq(gfs_stat(fs, "/", &st), 0);
	ck_assert_int_eq(gfs_close(other), 0);
	assert_diary("open a 7; open b 23; write 0+3 close; ");
	ck_assert_int_eq(gfs_close(file), 0);
}
END_TEST

START_TEST(appends_go_to_the_end_wherever_that_is)
{
	struct gfs_file *file = open_file("/a", NEW | GFS_O_APPEND);

	put(file, "ab");
	/* Another client writes meanwhile. */
	fake->nodes[2].size = 5;
	memcpy(fake->nodes[2].data, "12345", 5);
	put(file, "cd");
	ck_assert_int_eq(gfs_lseek(file, 0, SEEK_CUR), 9);
	put(file, "e");
	/* A place of its own is honoured, as POSIX wants. */
	ck_assert_int_eq(gfs_pwrite(file, "X", 1, 0), 1);
	put(file, "f");
	assert_diary("open a 7; write end 5+4; write end 9+1; write 0+1; ");
	ck_assert_int_eq(gfs_close(file), 0);
	assert_content("/a", "X2345abcdef");
}
END_TEST

START_TEST(a_synced_file_holds_nothing_back)
{
	struct gfs_file *file = open_file("/a", NEW | GFS_O_SYNC);

	put(file, "ab");
	put(file, "c");
	ck_assert_int_eq(gfs_close(file), 0);
	assert_diary("open a 7; write 0+2; sync; write 2+1; sync; close; ");
}
END_TEST

START_TEST(fsync_and_sync_send_first)
{
	struct gfs_file *file = open_file("/a", NEW), *other = open_file("/b", NEW);

	gx_buf_clear(&fake->diary);
	put(file, "a");
	put(other, "b");
	ck_assert_int_eq(gfs_fsync(file), 0);
	assert_diary("write 0+1; sync; ");
	put(file, "c");
	ck_assert_int_eq(gfs_sync(fs), 0);
	assert_diary("write 0+1; write 1+1; sync; ");
	ck_assert_int_eq(gfs_close(file), 0);
	ck_assert_int_eq(gfs_close(other), 0);
}
END_TEST

START_TEST(an_error_comes_from_close_if_close_sends)
{
	struct gfs_file *file = open_file("/a", NEW);

	put(file, "a");
	fake_fail("write", -ENOSPC);
	ck_assert_int_eq(gfs_close(file), -ENOSPC);
	ck_assert_str_eq(gfs_error(), "/a: write: told to fail");
	file = open_file("/a", NEW);
	fake_fail("close", -EIO);
	ck_assert_int_eq(gfs_close(file), -EIO);
}
END_TEST

START_TEST(an_error_is_told_again_by_fsync_once)
{
	struct gfs_file *file = open_file("/a", NEW);
	char c;

	put(file, "a");
	fake_fail("write", -EDQUOT);
	ck_assert_int_eq(gfs_pread(file, &c, 1, 0), -EDQUOT);
	ck_assert_int_eq(gfs_pread(file, &c, 1, 0), 0); /* what failed is gone, not sent again */
	ck_assert_int_eq(gfs_fsync(file), -EDQUOT);
	ck_assert_int_eq(gfs_fsync(file), 0);
	ck_assert_int_eq(gfs_close(file), 0);
}
END_TEST

/* A fsync that goes well says that all is on disk that this process had written. */
START_TEST(an_error_of_another_handle_is_told_by_fsync_too)
{
	struct gfs_file *file = open_file("/a", NEW), *other, *late = NULL;
	char c;

	other = open_file("/a", GFS_O_READ | GFS_O_WRITE);
	put(file, "a");
	fake_fail("write", -ESTALE);
	if (_i == 0) /* sent by who opens it, by who reads, by fsync itself */
		late = open_file("/a", GFS_O_READ | GFS_O_WRITE);
	else if (_i == 1)
		ck_assert_int_eq(gfs_pread(other, &c, 1, 0), 0);
	ck_assert_int_eq(gfs_fsync(_i == 0 ? late : other), -ESTALE);
	ck_assert_int_eq(gfs_fsync(other), 0);
	if (_i == 0)
		ck_assert_int_eq(gfs_close(late), 0);
	ck_assert_int_eq(gfs_close(other), 0);
	ck_assert_int_eq(gfs_open(fs, "/none", GFS_O_READ, 0, &late), -ENOENT);
	ck_assert_int_eq(gfs_close(file), -ESTALE);
	ck_assert_str_eq(gfs_error(), "/a: a write that was held back failed: Stale file handle");
}
END_TEST

START_TEST(an_error_is_told_again_by_close)
{
	struct gfs_file *file = open_file("/a", NEW);
	struct gfs_stat st;

	put(file, "a");
	fake_fail("write", -EIO);
	ck_assert_int_eq(gfs_stat(fs, "/a", &st), 0);
	put(file, "b");
	ck_assert_int_eq(gfs_close(file), -EIO);
	ck_assert_uint_eq(fake->opens, 0);
	file = open_file("/b", NEW);
	put(file, "b");
	fake_fail("write", -EIO);
	ck_assert_int_eq(gfs_sync(fs), -EIO);
	ck_assert_int_eq(strncmp(gfs_error(), "/b: ", 4), 0);
	ck_assert_int_eq(gfs_close(file), -EIO);
}
END_TEST

START_TEST(an_unsynced_session_is_an_error_of_fsync)
{
	struct gfs_file *file = open_file("/a", NEW);

	put(file, "a");
	fake_fail("sync", -EIO);
	ck_assert_int_eq(gfs_fsync(file), -EIO);
	ck_assert_int_eq(gfs_close(file), 0);
}
END_TEST

START_TEST(leaving_closes_what_is_open_and_tells_what_was_lost)
{
	struct gfs_file *file = open_file("/a", NEW);

	put(file, "a");
	put(open_file("/b", NEW), "b");
	fake_fail("write", -ENOSPC);
	ck_assert_int_eq(gfs_disconnect(fs), -ENOSPC);
	fs = NULL;
	ck_assert_ptr_null(fake);
}
END_TEST

START_TEST(rights_of_the_handle_count)
{
	struct gfs_file *file = open_file("/a", GFS_O_WRITE | GFS_O_CREATE);
	char c = 'x';

	ck_assert_int_eq(gfs_read(file, &c, 1), -EBADF);
	ck_assert_int_eq(gfs_pread(file, &c, 1, 0), -EBADF);
	ck_assert_int_eq(gfs_close(file), 0);
	file = open_file("/a", GFS_O_READ);
	ck_assert_int_eq(gfs_write(file, &c, 1), -EBADF);
	ck_assert_int_eq(gfs_pwrite(file, &c, 1, 0), -EBADF);
	ck_assert_int_eq(gfs_ftruncate(file, 0), -EINVAL);
	ck_assert_int_eq(gfs_close(file), 0);
	ck_assert_int_eq(gfs_close(NULL), 0);
}
END_TEST

static const unsigned nonsense[] = {0, GFS_O_CREATE, GFS_O_READ | GFS_O_TRUNC, GFS_O_READ | 256,
				    GFS_O_SYNC | GFS_O_APPEND};

START_TEST(flags_without_meaning_are_refused)
{
	struct gfs_file *file;

	ck_assert_int_eq(gfs_open(fs, "/a", nonsense[_i], 0644, &file), -EINVAL);
	assert_diary("");
}
END_TEST

/* -- files that outgrow metad -------------------------------------------------------------------
 */

START_TEST(a_large_file_is_held_by_nobody_here)
{
	struct gfs_file *file = open_file("/a", NEW);
	struct gfs_stat st;
	char buf[16];

	put(file, "head");
	ck_assert_int_eq(gfs_pwrite(file, block, 9000, 4), 9000);
	assert_diary("open a 7; write 0+4; write 4+9000; data write 4+9000; ");
	put(file, "neck");
	assert_diary("data write 4+4; ");
	/* metad knows nothing of its size yet; this process does, by file and by path. */
	ck_assert_uint_eq(fake->nodes[2].size, 4);
	ck_assert_int_eq(gfs_fstat(file, &st), 0);
	ck_assert_uint_eq(st.size, 9004);
	ck_assert_int_eq(gfs_stat(fs, "/a", &st), 0);
	ck_assert_uint_eq(st.size, 9004);
	ck_assert_int_eq(gfs_lseek(file, 0, SEEK_END), 9004);
	ck_assert_int_eq(gfs_pread(file, buf, 8, 0), 8);
	ck_assert_int_eq(memcmp(buf, "headneck", 8), 0);
	assert_diary("data read 0; ");
	ck_assert_int_eq(gfs_fsync(file), 0);
	assert_diary("data sync; report 9004; sync; ");
	ck_assert_int_eq(gfs_close(file), 0);
	assert_diary("close; ");
}
END_TEST

START_TEST(the_directory_shows_the_size_being_written)
{
	struct gfs_file *file = open_file("/a", NEW);
	struct gfs_dirent entry;
	struct gfs_dir *dir;

	ck_assert_int_eq(gfs_write(file, block, 9000), 9000);
	ck_assert_int_eq(gfs_opendir(fs, "/", &dir), 0);
	ck_assert_int_eq(gfs_readdir(dir, &entry), 1);
	ck_assert_uint_eq(entry.st.size, 9000);
	gfs_closedir(dir);
	ck_assert_int_eq(gfs_close(file), 0);
}
END_TEST

/* 6000 bytes are there; 4000 more are held and sent with the close, which metad refuses. */
START_TEST(an_append_that_outgrows_metad_at_close_arrives)
{
	struct gfs_file *file = open_file("/a", NEW);

	ck_assert_int_eq(gfs_write(file, block, 6000), 6000);
	ck_assert_int_eq(gfs_close(file), 0);
	file = open_file("/a", GFS_O_WRITE | GFS_O_APPEND);
	ck_assert_int_eq(gfs_write(file, block + 6000, 4000), 4000);
	gx_buf_clear(&fake->diary);
	ck_assert_int_eq(gfs_close(file), 0);
	assert_diary("write end 6000+4000 close; write end 6000+4000; data write end 6000+4000; "
		     "report 10000; close; ");
	ck_assert_int_eq(memcmp(fake->nodes[2].data, block, 10000), 0);
}
END_TEST

START_TEST(a_file_that_somebody_else_made_large_takes_what_was_held)
{
	struct gfs_file *file = open_file("/a", NEW);

	put(file, "small");
	fake->nodes[2].object = true;
	fake->nodes[2].size = 20000;
	ck_assert_int_eq(gfs_close(file), 0);
	ck_assert_int_eq(memcmp(fake->nodes[2].data, "small", 5), 0);
	ck_assert_uint_eq(fake->nodes[2].size, 20000);
	ck_assert_uint_eq(fake->opens, 0);
}
END_TEST

START_TEST(an_error_of_the_outgrown_close_is_told)
{
	struct gfs_file *file = open_file("/a", NEW);

	put(file, "small");
	fake->nodes[2].object = true;
	fake_fail("data", -ENOSPC);
	ck_assert_int_eq(gfs_close(file), -ENOSPC);
	ck_assert_uint_eq(fake->opens, 0);
	file = open_file("/a", GFS_O_WRITE);
	ck_assert_int_eq(gfs_write(file, block, 9000), 9000);
	fake_fail("dclose", -EIO);
	ck_assert_int_eq(gfs_close(file), -EIO);
	ck_assert_uint_eq(fake->opens, 0);
}
END_TEST

START_TEST(nothing_is_held_beside_a_file_that_grows)
{
	struct gfs_file *small = open_file("/a", NEW);
	struct gfs_file *large = open_file("/a", RW);

	put(small, "one");
	ck_assert_int_eq(gfs_pwrite(large, block, 9000, 100), 9000);
	gx_buf_clear(&fake->diary);
	ck_assert_int_eq(gfs_pwrite(small, "two", 3, 0), 3);
	assert_diary("data write 0+3; ");
	ck_assert_int_eq(gfs_close(small), 0);
	assert_diary("report 9100; close; ");
	ck_assert_int_eq(gfs_close(large), 0);
	ck_assert_int_eq(memcmp(fake->nodes[2].data, "two", 3), 0);
}
END_TEST

START_TEST(truncation_takes_the_way_the_bytes_are_on)
{
	struct gfs_file *file = open_file("/a", NEW);

	put(file, "abc");
	gx_buf_clear(&fake->diary);
	ck_assert_int_eq(gfs_truncate(fs, "/a", 2), 0);
	assert_diary("write 0+3; setattr 8; ");
	ck_assert_int_eq(gfs_truncate(fs, "/a", 20000), 0);
	assert_diary(
		"open by number 2; setattr 8 open; data truncate 20000; report 20000; close; ");
	ck_assert_int_eq(gfs_ftruncate(file, 10), 0);
	assert_diary("data truncate 10; ");
	ck_assert_int_eq(gfs_truncate(fs, "/a", 1), 0);
	assert_diary("report 10; open by number 2; data truncate 1; report 1; close; ");
	ck_assert_int_eq(gfs_truncate(fs, "/a", UINT64_MAX), -EFBIG);
	ck_assert_int_eq(gfs_ftruncate(file, UINT64_MAX), -EFBIG);
	ck_assert_int_eq(gfs_close(file), 0);
}
END_TEST

START_TEST(opening_with_truncation_is_in_order_with_our_own_writes)
{
	struct gfs_file *file = open_file("/a", NEW), *again;

	ck_assert_int_eq(gfs_write(file, block, 9000), 9000);
	gx_buf_clear(&fake->diary);
	again = open_file("/a", GFS_O_WRITE | GFS_O_TRUNC);
	assert_diary("open a 2; data truncate 0; ");
	ck_assert_int_eq(gfs_close(again), 0);
	ck_assert_int_eq(gfs_close(file), 0);
	ck_assert_uint_eq(fake->nodes[2].size, 0);
}
END_TEST

START_TEST(truncation_that_metad_leaves_to_us_is_done)
{
	struct gfs_file *file = open_file("/a", NEW);

	ck_assert_int_eq(gfs_write(file, block, 9000), 9000);
	ck_assert_int_eq(gfs_close(file), 0);
	fake->shared = true;
	gx_buf_clear(&fake->diary);
	file = open_file("/a", GFS_O_WRITE | GFS_O_TRUNC);
	assert_diary("open a 18; data truncate 0; ");
	ck_assert_int_eq(gfs_close(file), 0);
	ck_assert_uint_eq(fake->nodes[2].size, 0);
}
END_TEST

START_TEST(holes_and_room)
{
	struct gfs_file *file = open_file("/a", NEW);

	ck_assert_int_eq(gfs_pwrite(file, block, 4096, 16384), 4096);
	ck_assert_int_eq(gfs_lseek(file, 0, SEEK_DATA), 16384);
	ck_assert_int_eq(gfs_lseek(file, 0, SEEK_CUR), 16384);
	ck_assert_int_eq(gfs_lseek(file, 16384, SEEK_HOLE), 20480);
	ck_assert_int_eq(gfs_lseek(file, 20480, SEEK_DATA), -ENXIO);
	ck_assert_int_eq(gfs_lseek(file, -1, SEEK_DATA), -ENXIO);
	ck_assert_int_eq(gfs_punch(file, 16384, 4096), 0);
	ck_assert_int_eq(gfs_lseek(file, 0, SEEK_DATA), -ENXIO);
	gx_buf_clear(&fake->diary);
	ck_assert_int_eq(gfs_allocate(file, 0, 30000, true), 0);
	ck_assert_int_eq(gfs_lseek(file, 0, SEEK_END), 20480);
	ck_assert_int_eq(gfs_allocate(file, 0, 30000, false), 0);
	ck_assert_int_eq(gfs_lseek(file, 0, SEEK_END), 30000);
	assert_diary("data allocate 0+30000 keep; data allocate 0+30000; ");
	ck_assert_int_eq(gfs_punch(file, 0, 0), -EINVAL);
	ck_assert_int_eq(gfs_punch(file, UINT64_MAX, 2), -EFBIG);
	ck_assert_int_eq(gfs_close(file), 0);
	file = open_file("/a", GFS_O_READ);
	ck_assert_int_eq(gfs_punch(file, 0, 1), -EINVAL);
	ck_assert_int_eq(gfs_allocate(file, 0, 1, true), -EINVAL);
	ck_assert_int_eq(gfs_close(file), 0);
}
END_TEST

START_TEST(sync_and_change_of_times_send_large_files_too)
{
	struct gfs_file *file = open_file("/a", NEW);

	ck_assert_int_eq(gfs_write(file, block, 9000), 9000);
	gx_buf_clear(&fake->diary);
	ck_assert_int_eq(gfs_sync(fs), 0);
	assert_diary("data sync; report 9000; sync; sync; ");
	ck_assert_int_eq(gfs_write(file, block, 9000), 9000);
	gx_buf_clear(&fake->diary);
	ck_assert_int_eq(gfs_utimens(fs, "/a", NULL, true), 0);
	assert_diary("report 18000; setattr c0; ");
	fake_fail("dsync", -EIO);
	ck_assert_int_eq(gfs_sync(fs), -EIO);
	ck_assert_int_eq(gfs_close(file), 0);
}
END_TEST

START_TEST(copies_are_told_wanted_and_waited_for)
{
	struct gfs_place places[4];
	struct gfs_file *file = open_file("/a", NEW);
	unsigned wanted = 0;

	ck_assert_int_eq(gfs_where(fs, "/a", places, 4, &wanted), 0);
	ck_assert_int_eq(gfs_wait_copies(fs, "/a", 0), 0);
	ck_assert_int_eq(gfs_write(file, block, 9000), 9000);
	ck_assert_int_eq(gfs_close(file), 0);
	ck_assert_int_eq(gfs_where(fs, "/a", places, 4, &wanted), 1);
	ck_assert_uint_eq(wanted, 1);
	ck_assert_str_eq(places[0].node, "fsd1");
	ck_assert_str_eq(places[0].host, "host1");
	ck_assert(places[0].up && places[0].current && !places[0].cache);
	ck_assert_uint_eq(places[0].generation, 7);
	ck_assert_int_eq(gfs_set_copies(fs, "/a", 2), 0);
	ck_assert_str_eq(fake->xattr_name, "gfs.ncopy");
	/* The first look finds one copy, and that makes the second. */
	ck_assert_int_eq(gfs_wait_copies(fs, "/a", 0), -ETIMEDOUT);
	ck_assert_int_eq(gfs_wait_copies(fs, "/a", -1), 0);
	ck_assert_int_eq(gfs_where(fs, "/a", places, 1, NULL), 2);
	ck_assert_int_eq(gfs_set_copies(fs, "/a", 0), -EINVAL);
	ck_assert_int_eq(gfs_set_copies(fs, "/a", GFS_COPIES_MAX + 1), -EINVAL);
	ck_assert_int_eq(gfs_where(fs, "/", places, 4, NULL), -EISDIR);
	ck_assert_int_eq(gfs_where(fs, "/none", places, 4, NULL), -ENOENT);
}
END_TEST

/* -- threads
 * --------------------------------------------------------------------------------------- */

#define ROUNDS 200

static struct gfs_file *shared;

static void write_and_read(void *arg)
{
	const unsigned char *mine = arg;

	for (int i = 0; i < ROUNDS; i++) {
		if (gfs_pwrite(shared, mine, 1, *mine) != 1 || gfs_write(shared, mine, 0) != 0 ||
		    gfs_lseek(shared, 0, SEEK_CUR) != 0)
			abort();
		if (i % 16 == 0 && (gfs_files_flush(fs, 0) < 0 || gfs_fsync(shared) < 0))
			abort();
	}
}

START_TEST(threads_may_share_a_file)
{
	struct gx_env *env = gx_env_posix();
	static const unsigned char marks[] = {10, 11, 12};
	struct gx_thread threads[GX_COUNT_OF(marks)];

	shared = open_file("/a", NEW);
	for (size_t i = 0; i < GX_COUNT_OF(marks); i++)
		ck_assert_int_eq(gx_env_thread_start(env, &threads[i], "writer", write_and_read,
						     (void *)&marks[i]),
				 0);
	for (size_t i = 0; i < GX_COUNT_OF(marks); i++)
		ck_assert_int_eq(gx_env_thread_join(env, &threads[i]), 0);
	ck_assert_int_eq(gfs_close(shared), 0);
	ck_assert_int_eq(memcmp(fake->nodes[2].data + 10, marks, sizeof(marks)), 0);
	ck_assert_uint_eq(atomic_load(&fs->holding), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gfs_file");
	TCase *tcase = tcase_create("files");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tcase, setup, fake_teardown);
	tcase_add_test(tcase, create_write_close_is_two_calls);
	tcase_add_test(tcase, pieces_travel_together_up_to_8_kib);
	tcase_add_test(tcase, a_write_beyond_all_offsets_is_refused_at_once);
	tcase_add_test(tcase, overlapping_writes_merge_and_others_are_sent_in_order);
	tcase_add_test(tcase, a_file_reads_what_it_wrote);
	tcase_add_test(tcase, other_ways_of_this_process_see_it_too);
	tcase_add_test(tcase, other_open_files_of_this_process_see_it_too);
	tcase_add_test(tcase, a_file_held_back_elsewhere_is_left_alone);
	tcase_add_test(tcase, appends_go_to_the_end_wherever_that_is);
	tcase_add_test(tcase, a_synced_file_holds_nothing_back);
	tcase_add_test(tcase, fsync_and_sync_send_first);
	tcase_add_test(tcase, an_error_comes_from_close_if_close_sends);
	tcase_add_test(tcase, an_error_is_told_again_by_fsync_once);
	tcase_add_loop_test(tcase, an_error_of_another_handle_is_told_by_fsync_too, 0, 3);
	tcase_add_test(tcase, an_error_is_told_again_by_close);
	tcase_add_test(tcase, an_unsynced_session_is_an_error_of_fsync);
	tcase_add_test(tcase, leaving_closes_what_is_open_and_tells_what_was_lost);
	tcase_add_test(tcase, rights_of_the_handle_count);
	tcase_add_loop_test(tcase, flags_without_meaning_are_refused, 0,
			    (int)GX_COUNT_OF(nonsense));
	tcase_add_test(tcase, a_large_file_is_held_by_nobody_here);
	tcase_add_test(tcase, the_directory_shows_the_size_being_written);
	tcase_add_test(tcase, an_append_that_outgrows_metad_at_close_arrives);
	tcase_add_test(tcase, a_file_that_somebody_else_made_large_takes_what_was_held);
	tcase_add_test(tcase, an_error_of_the_outgrown_close_is_told);
	tcase_add_test(tcase, nothing_is_held_beside_a_file_that_grows);
	tcase_add_test(tcase, truncation_takes_the_way_the_bytes_are_on);
	tcase_add_test(tcase, opening_with_truncation_is_in_order_with_our_own_writes);
	tcase_add_test(tcase, truncation_that_metad_leaves_to_us_is_done);
	tcase_add_test(tcase, holes_and_room);
	tcase_add_test(tcase, sync_and_change_of_times_send_large_files_too);
	tcase_add_test(tcase, copies_are_told_wanted_and_waited_for);
	tcase_add_test(tcase, threads_may_share_a_file);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
