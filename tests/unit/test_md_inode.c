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
	struct md_key keys[12];
	size_t n = 0;

	md_key_inode(&keys[n++], 1);
	md_key_entry(&keys[n++], 1, "Iaaaaaaaa", 9);
	md_key_xattr(&keys[n++], 1, "user.a", 6);
	md_key_content(&keys[n++], 1);
	md_key_orphan(&keys[n++], 1);
	md_key_open(&keys[n++], 1, 2);
	md_key_session(&keys[n++], 1);
	md_key_replay(&keys[n++], 1, 2);
	md_key_counters(&keys[n++]);
	md_key_super(&keys[n++]);
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
	unsigned char bytes[MD_INODE_BYTES];
	struct md_inode back;

	md_inode_encode(inode, bytes);
	ck_assert_int_eq(md_inode_decode(bytes, sizeof(bytes), &back), 0);
	return back;
}

START_TEST(an_inode_comes_back_as_it_was)
{
	struct md_inode in = sample(), back = round_trip(&in);
	unsigned char a[MD_INODE_BYTES], b[MD_INODE_BYTES];

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
	md_inode_encode(&in, a);
	md_inode_encode(&back, b);
	ck_assert_mem_eq(a, b, sizeof(a));
	in.mode = S_IFDIR | 01777;
	in.flags = 0;
	in.parent = 12;
	ck_assert_uint_eq(round_trip(&in).parent, 12);
}
END_TEST

START_TEST(a_damaged_inode_is_refused)
{
	/* offset, byte, result; damage that makes another valid inode is not told apart here. */
	static const struct {
		size_t offset;
		unsigned char byte;
		int want;
	} damages[] = {
		{0, 0, -EBADMSG},    {0, 2, -EPROTONOSUPPORT}, {1, 1, -EBADMSG},
		{3, 1, -EBADMSG},    {5, 0x00, -EBADMSG},      {5, 0x90, -EBADMSG},
		{5, 0x41, -EBADMSG}, {6, 1, -EBADMSG},         {19, 1, -EBADMSG},
		{28, 2, -EBADMSG},   {31, 0x80, -EBADMSG},     {32, 65, -EBADMSG},
		{36, 1, -EBADMSG},   {41, 0x21, -EBADMSG},     {47, 1, -EBADMSG},
		{56, 1, -EBADMSG},   {112, 1, -EBADMSG},       {127, 1, -EBADMSG},
	};
	unsigned char bytes[MD_INODE_BYTES + 1] = {0};
	struct md_inode in = sample(), out = {.ino = 77};

	md_inode_encode(&in, bytes);
	bytes[damages[_i].offset] = damages[_i].byte;
	ck_assert_int_eq(md_inode_decode(bytes, MD_INODE_BYTES, &out), damages[_i].want);
	md_inode_encode(&in, bytes);
	memset(bytes + 8, 0, 8);
	ck_assert_int_eq(md_inode_decode(bytes, MD_INODE_BYTES, &out), -EBADMSG);
	md_inode_encode(&in, bytes);
	for (size_t n = 0; n <= MD_INODE_BYTES + 1; n++)
		if (n != MD_INODE_BYTES)
			ck_assert_int_eq(md_inode_decode(bytes, n, &out), -EBADMSG);
	ck_assert_uint_eq(out.ino, 77); /* written on success only */
}
END_TEST
#define DAMAGE_COUNT 18

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
	tcase_add_loop_test(tc, a_damaged_inode_is_refused, 0, DAMAGE_COUNT);
	tcase_add_test(tc, an_entry_comes_back_and_damage_is_refused);
	tcase_add_test(tc, names_are_checked_in_one_place);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
