/*
 * Keys and records of the state: order, round trip, damage.
 */
#include "metad/md_inode.h"
#include "common/gx_num.h"
#include "metad/md_skip.h"
#include <check.h>

static int compare(const struct md_key *a, const struct md_key *b)
{
	return md_key_compare(a->bytes, a->count, b->bytes, b->count);
}

static const uint64_t numbers[] = {
	1, 2, 255, 256, 65535, 65536, UINT32_MAX, UINT64_C(1) << 40, UINT64_MAX - 1, UINT64_MAX};

START_TEST(keys_sort_by_number_and_then_by_name)
{
	struct md_key a, b, end;

	for (size_t i = 0; i + 1 < GX_COUNT_OF(numbers); i++) {
		md_key_inode(&a, numbers[i]);
		md_key_inode(&b, numbers[i + 1]);
		ck_assert_int_lt(compare(&a, &b), 0);
		/* Whatever the name, it stays between its directory's bounds. */
		md_key_entry(&a, numbers[i], "\xff\xff", 2);
		md_key_entry(&b, numbers[i + 1], "\1", 1);
		ck_assert_int_lt(compare(&a, &b), 0);
		md_key_entry(&b, numbers[i], NULL, 0);
		md_key_end(&b, &end);
		ck_assert_int_gt(compare(&a, &b), 0);
		ck_assert_int_lt(compare(&a, &end), 0);
		md_key_entry(&b, numbers[i + 1], NULL, 0);
		ck_assert_int_le(compare(&end, &b), 0);
	}
	md_key_entry(&a, 7, "a", 1);
	md_key_entry(&b, 7, "aa", 2);
	ck_assert_int_lt(compare(&a, &b), 0);
	md_key_entry(&a, UINT64_MAX, "z", 1);
	md_key_entry(&b, UINT64_MAX, NULL, 0);
	md_key_end(&b, &end);
	ck_assert_int_lt(compare(&a, &end), 0);
}
END_TEST

START_TEST(keys_of_different_kinds_never_meet)
{
	struct md_key keys[16];
	size_t n = 0;

	md_key_inode(&keys[n++], 1);
	md_key_entry(&keys[n++], 1, "Iaaaaaaaa", 9);
	md_key_xattr(&keys[n++], 1, "user.a", 6);
	md_key_content(&keys[n++], 1);
	md_key_orphan(&keys[n++], 1);
	md_key_session(&keys[n++], 1);
	md_key_replay(&keys[n++], 1, 2);
	md_key_counters(&keys[n++]);
	md_key_super(&keys[n++]);
	md_key_layout(&keys[n++], 1);
	md_key_unbalanced(&keys[n++], 1);
	md_key_copy(&keys[n++], "a", 1);
	md_key_copy(&keys[n++], "aa", 1);
	md_key_trash(&keys[n++], "a", 1, 1);
	for (size_t i = 0; i < n; i++) {
		ck_assert_uint_ne(keys[i].bytes[0], 0);
		ck_assert_uint_le(keys[i].count, MD_KEY_MAX);
		for (size_t k = 0; k < n; k++)
			ck_assert_int_eq(compare(&keys[i], &keys[k]) == 0, i == k);
	}
}
END_TEST

static struct md_inode sample(void)
{
	return (struct md_inode){
		.ino = UINT64_C(0x0102030405060708),
		.mode = S_IFREG | 04751,
		.nlink = 3,
		.uid = 0xfffffffe,
		.gid = 7,
		.flags = MD_INODE_INLINE,
		.xattrs = MD_XATTRS_PER_INODE_MAX,
		.size = MD_INLINE_MAX,
		.rdev = 0x1122334455,
		.atime_ns = -1,
		.mtime_ns = INT64_MAX,
		.ctime_ns = INT64_MIN,
		.btime_ns = 4,
		.generation = 5,
		.version = UINT64_MAX,
	};
}

static struct md_inode round_trip(const struct md_inode *inode)
{
	unsigned char bytes[MD_INODE_BYTES_MAX];
	size_t count = md_inode_encode(inode, bytes);
	struct md_inode back;

	ck_assert_uint_le(count, sizeof(bytes));
	ck_assert_int_eq(md_inode_decode(bytes, count, &back), 0);
	return back;
}

START_TEST(an_inode_comes_back_as_it_was)
{
	struct md_inode in = sample(), back = round_trip(&in);

	ck_assert_uint_eq(back.ino, in.ino);
	ck_assert_uint_eq(back.mode, in.mode);
	ck_assert_uint_eq(back.nlink, in.nlink);
	ck_assert_uint_eq(back.uid, in.uid);
	ck_assert_uint_eq(back.gid, in.gid);
	ck_assert_uint_eq(back.flags, in.flags);
	ck_assert_uint_eq(back.xattrs, in.xattrs);
	ck_assert_uint_eq(back.size, in.size);
	ck_assert_uint_eq(back.rdev, in.rdev);
	ck_assert_uint_eq(back.parent, 0);
	ck_assert_int_eq(back.atime_ns, in.atime_ns);
	ck_assert_int_eq(back.mtime_ns, in.mtime_ns);
	ck_assert_int_eq(back.ctime_ns, in.ctime_ns);
	ck_assert_int_eq(back.btime_ns, in.btime_ns);
	ck_assert_uint_eq(back.generation, in.generation);
	ck_assert_uint_eq(back.version, in.version);
	in.mode = S_IFDIR | 01777;
	in.flags = 0;
	in.parent = 12;
	ck_assert_uint_eq(round_trip(&in).parent, 12);
}
END_TEST

START_TEST(any_four_times_come_back)
{
	static const int64_t times[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX};
	const size_t n = GX_COUNT_OF(times);

	for (size_t i = 0; i < n * n * n * n; i++) {
		struct md_inode in = sample(), back;

		in.atime_ns = times[i % n];
		in.mtime_ns = times[i / n % n];
		in.ctime_ns = times[i / n / n % n];
		in.btime_ns = times[i / n / n / n];
		back = round_trip(&in);
		ck_assert_int_eq(back.atime_ns, in.atime_ns);
		ck_assert_int_eq(back.mtime_ns, in.mtime_ns);
		ck_assert_int_eq(back.ctime_ns, in.ctime_ns);
		ck_assert_int_eq(back.btime_ns, in.btime_ns);
	}
}
END_TEST

/* A new file as it is on disk: version, mask, ino, mode, nlink, uid, gid, flags, birth, version. */
static const unsigned char new_file[] = {0x01, 0x3f, 0x84, 0x80, 0xad, 0xe2, 0x04, 0xa4, 0x83,
					 0x02, 0x01, 0xe8, 0x07, 0xe9, 0x07, 0x01, 0x80, 0x80,
					 0xc0, 0x91, 0xe4, 0xa5, 0xcf, 0xa5, 0x31, 0x01};

START_TEST(a_new_file_has_these_bytes)
{
	unsigned char bytes[MD_INODE_BYTES_MAX];
	struct md_inode inode = {
		.ino = 10000000,
		.mode = S_IFREG | 0644,
		.nlink = 1,
		.uid = 1000,
		.gid = 1001,
		.flags = MD_INODE_INLINE,
		.atime_ns = INT64_C(1776000000000000000),
		.mtime_ns = INT64_C(1776000000000000000),
		.ctime_ns = INT64_C(1776000000000000000),
		.btime_ns = INT64_C(1776000000000000000),
		.version = 1,
	};
	struct md_inode back;

	ck_assert_uint_eq(md_inode_encode(&inode, bytes), sizeof(new_file));
	ck_assert_mem_eq(bytes, new_file, sizeof(new_file));
	ck_assert_int_eq(md_inode_decode(new_file, sizeof(new_file), &back), 0);
	ck_assert_uint_eq(back.ino, inode.ino);
	ck_assert_int_eq(back.ctime_ns, inode.ctime_ns);
}
END_TEST

/* Whatever is accepted is what encoding writes: each inode has one form. */
static void accept_only_the_one_form(const unsigned char *bytes, size_t count)
{
	unsigned char again[MD_INODE_BYTES_MAX];
	struct md_inode inode;

	if (md_inode_decode(bytes, count, &inode) < 0)
		return;
	ck_assert_uint_eq(md_inode_encode(&inode, again), count);
	ck_assert_mem_eq(again, bytes, count);
}

START_TEST(an_inode_has_one_form)
{
	unsigned char good[MD_INODE_BYTES_MAX], bytes[MD_INODE_BYTES_MAX + 1];
	struct md_inode in = sample(), out = {.ino = 77};
	size_t count = md_inode_encode(&in, good);

	for (size_t at = 0; at < count; at++)
		for (unsigned byte = 0; byte < 256; byte++) {
			memcpy(bytes, good, count);
			bytes[at] = (unsigned char)byte;
			accept_only_the_one_form(bytes, count);
			/* Two at once: a field left out or added, and its bit. */
			for (unsigned bit = 0; bit < MD_INODE_FIELDS; bit++) {
				bytes[1 + bit / 8] ^= (unsigned char)(1u << bit % 8);
				accept_only_the_one_form(bytes, count);
				bytes[1 + bit / 8] ^= (unsigned char)(1u << bit % 8);
			}
		}
	memcpy(bytes, good, count);
	bytes[count] = 0;
	for (size_t n = 0; n <= count + 1; n++)
		if (n != count)
			ck_assert_int_eq(md_inode_decode(bytes, n, &out), -EBADMSG);
	ck_assert_uint_eq(out.ino, 77); /* written on success only */
}
END_TEST

/* Records spelled by hand, after "version, mask": what encoding would not write. */
static const struct {
	const char *bytes;
	size_t count;
	int want;
} records[] = {
#define RECORD(text, want)                                                                         \
	{                                                                                          \
		text, sizeof(text) - 1, want                                                       \
	}
	/* ino 5, mode 0100644, nlink 1: the least there is */
	RECORD("\1\x07\0\5\xa4\x83\2\1", 0),
	RECORD("\0\x07\0\5\xa4\x83\2\1", -EBADMSG),
	RECORD("\3\x07\0\5\xa4\x83\2\1", -EPROTONOSUPPORT),
	/* version 2: two wanted copies; 16; 17; of a directory; of a link; a zero; in version 1 */
	RECORD("\2\x07\0\1\5\xa4\x83\2\1\2", 0),
	RECORD("\2\x07\0\1\5\xa4\x83\2\1\x10", 0),
	RECORD("\2\x07\0\1\5\xa4\x83\2\1\x11", -EBADMSG),
	RECORD("\2\x07\2\1\5\xed\x83\1\2\1\2", 0),
	RECORD("\2\x07\0\1\5\xa4\xc3\2\1\2", -EBADMSG),
	RECORD("\2\x07\0\1\5\xa4\x83\2\1\0", -EBADMSG),
	RECORD("\2\x07\0\0\5\xa4\x83\2\1", -EBADMSG),
	RECORD("\2\x07\0\2\5\xa4\x83\2\1\2", -EBADMSG),
	RECORD("\2\x07\0", -EBADMSG),
	/* being written: a file, inline or not; a link */
	RECORD("\1\x27\0\5\xa4\x83\2\1\2", 0),
	RECORD("\1\x27\0\5\xa4\x83\2\1\3", 0),
	RECORD("\1\x27\0\5\xa4\xc3\2\1\2", -EBADMSG),
	/* nothing; no ino; no mode; a field too few, a byte too many */
	RECORD("\1\0\0", -EBADMSG),
	RECORD("\1\x06\0\xa4\x83\2\1", -EBADMSG),
	RECORD("\1\x05\0\5\1", -EBADMSG),
	RECORD("\1\x0f\0\5\xa4\x83\2\1", -EBADMSG),
	RECORD("\1\x07\0\5\xa4\x83\2\1\1", -EBADMSG),
	/* a zero that is written; longer than it needs to be; zero the long way */
	RECORD("\1\x0f\0\5\xa4\x83\2\1\0", -EBADMSG),
	RECORD("\1\x07\0\x85\0\xa4\x83\2\1", -EBADMSG),
	RECORD("\1\x0f\0\5\xa4\x83\2\1\x80\0", -EBADMSG),
	/* size of 64 bits; of more, twice; without an end */
	RECORD("\1\x87\0\5\xa4\x83\2\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", 0),
	RECORD("\1\x87\0\5\xa4\x83\2\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\2", -EBADMSG),
	RECORD("\1\x87\0\5\xa4\x83\2\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\x81\1", -EBADMSG),
	RECORD("\1\x87\0\5\xa4\x83\2\1\xff\xff\xff", -EBADMSG),
	/* uid of 32 bits; of 33 */
	RECORD("\1\x0f\0\5\xa4\x83\2\1\xff\xff\xff\xff\x0f", 0),
	RECORD("\1\x0f\0\5\xa4\x83\2\1\x80\x80\x80\x80\x10", -EBADMSG),
	/* mode without a type, of an unknown one, above 16 bits, valid again when cut to 32 */
	RECORD("\1\x07\0\5\xa4\x03\1", -EBADMSG),
	RECORD("\1\x07\0\5\xa4\xa3\2\1", -EBADMSG),
	RECORD("\1\x07\0\5\xa4\x83\6\1", -EBADMSG),
	RECORD("\1\x07\0\5\xa4\x83\x82\x80\x10\1", -EBADMSG),
	/* 65001 links; an unknown flag; 65 extended attributes */
	RECORD("\1\x07\0\5\xa4\x83\2\xe8\xfb\3", 0),
	RECORD("\1\x07\0\5\xa4\x83\2\xe9\xfb\3", -EBADMSG),
	RECORD("\1\x27\0\5\xa4\x83\2\1\x10", -EBADMSG),
	RECORD("\1\x47\0\5\xa4\x83\2\1\x40", 0),
	RECORD("\1\x47\0\5\xa4\x83\2\1\x41", -EBADMSG),
	/* inline: 8192 bytes, one more, a directory */
	RECORD("\1\xa7\0\5\xa4\x83\2\1\1\x80\x40", 0),
	RECORD("\1\xa7\0\5\xa4\x83\2\1\1\x81\x40", -EBADMSG),
	RECORD("\1\x27\2\5\xed\x83\1\2\1\1", -EBADMSG),
	/* a directory with a parent, without; a file with one */
	RECORD("\1\x07\2\5\xed\x83\1\2\1", 0),
	RECORD("\1\x07\0\5\xed\x83\1\2", -EBADMSG),
	RECORD("\1\x07\2\5\xa4\x83\2\1\1", -EBADMSG),
#undef RECORD
};

START_TEST(a_damaged_inode_is_refused)
{
	struct md_inode out = {.ino = 77};

	ck_assert_int_eq(md_inode_decode(records[_i].bytes, records[_i].count, &out),
			 records[_i].want);
	ck_assert_uint_eq(out.ino, records[_i].want == 0 ? 5 : 77);
}
END_TEST

START_TEST(an_entry_comes_back_and_damage_is_refused)
{
	static const uint32_t types[] = {S_IFREG,  S_IFDIR, S_IFLNK, S_IFIFO,
					 S_IFSOCK, S_IFCHR, S_IFBLK};
	unsigned char bytes[MD_ENTRY_BYTES + 1] = {0};
	uint64_t ino;
	uint32_t type;

	for (size_t i = 0; i < GX_COUNT_OF(types); i++) {
		md_entry_encode(UINT64_MAX - i, types[i] | 0777, bytes);
		ck_assert_int_eq(md_entry_decode(bytes, MD_ENTRY_BYTES, &ino, &type), 0);
		ck_assert_uint_eq(ino, UINT64_MAX - i);
		ck_assert_uint_eq(type, types[i]);
	}
	for (size_t n = 0; n <= MD_ENTRY_BYTES + 1; n++)
		if (n != MD_ENTRY_BYTES)
			ck_assert_int_eq(md_entry_decode(bytes, n, &ino, &type), -EBADMSG);
	for (unsigned t = 0; t < 256; t++) {
		bool valid = false;

		for (size_t i = 0; i < GX_COUNT_OF(types); i++)
			valid |= t == types[i] >> 12;
		bytes[8] = (unsigned char)t;
		ck_assert_int_eq(md_entry_decode(bytes, MD_ENTRY_BYTES, &ino, &type),
				 valid ? 0 : -EBADMSG);
	}
	memset(bytes, 0, 8);
	bytes[8] = 8;
	ck_assert_int_eq(md_entry_decode(bytes, MD_ENTRY_BYTES, &ino, &type), -EBADMSG);
}
END_TEST

START_TEST(names_are_checked_in_one_place)
{
	char name[MD_NAME_MAX + 2];

	memset(name, 'n', sizeof(name));
	name[MD_NAME_MAX + 1] = '\0';
	ck_assert_int_eq(md_name_check(name), -ENAMETOOLONG);
	name[MD_NAME_MAX] = '\0';
	ck_assert_int_eq(md_name_check(name), 0);
	name[100] = '/';
	ck_assert_int_eq(md_name_check(name), -EINVAL);
	ck_assert_int_eq(md_name_check(""), -EINVAL);
	ck_assert_int_eq(md_name_check("."), -EINVAL);
	ck_assert_int_eq(md_name_check(".."), -EINVAL);
	ck_assert_int_eq(md_name_check("/"), -EINVAL);
	ck_assert_int_eq(md_name_check("a/"), -EINVAL);
	ck_assert_int_eq(md_name_check("..."), 0);
	ck_assert_int_eq(md_name_check(".a"), 0);
	ck_assert_int_eq(md_name_check("\xff\x01 \n"), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_inode");
	TCase *tc = tcase_create("records");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tc, keys_sort_by_number_and_then_by_name);
	tcase_add_test(tc, keys_of_different_kinds_never_meet);
	tcase_add_test(tc, an_inode_comes_back_as_it_was);
	tcase_add_test(tc, any_four_times_come_back);
	tcase_add_test(tc, a_new_file_has_these_bytes);
	tcase_add_test(tc, an_inode_has_one_form);
	tcase_add_loop_test(tc, a_damaged_inode_is_refused, 0, (int)GX_COUNT_OF(records));
	tcase_add_test(tc, an_entry_comes_back_and_damage_is_refused);
	tcase_add_test(tc, names_are_checked_in_one_place);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
