/*
 * The checker finds each kind of damage, and nothing where there is none.
 */
#include "md_state_fixture.h"

static struct world *w;
static uint64_t dir, sub, file, orphan;

static void setup(void)
{
	w = world_new(0);
	ck_assert_int_eq(do_mkdir(w, &root, MD_ROOT_INO, "dir", 0755), 0);
	dir = w->attr.ino;
	ck_assert_int_eq(do_mkdir(w, &root, dir, "sub", 0755), 0);
	sub = w->attr.ino;
	ck_assert_int_eq(do_create(w, &root, dir, "file", 0644), 0);
	file = w->attr.ino;
	ck_assert_int_eq(do_link(w, &root, file, sub, "file"), 0);
	ck_assert_int_eq(do_write(w, &root, file, 0, "abc", 3, 0), 0);
	ck_assert_int_eq(do_setxattr(w, &root, file, "user.a", "1", 1, 0), 0);
	ck_assert_int_eq(do_create(w, &root, dir, "orphan", 0644), 0);
	orphan = w->attr.ino;
	w->open[orphan] = 1;
	ck_assert_int_eq(do_unlink(w, &root, dir, "orphan"), 0);
}

static void teardown(void)
{
	world_free(w);
}

static void put(const struct md_key *key, const void *value, size_t bytes)
{
	md_kv_put(w->kv, key->bytes, key->count, value, bytes, (struct md_tag){0, 0}, true);
}

static void drop(const struct md_key *key)
{
	md_kv_delete(w->kv, key->bytes, key->count, (struct md_tag){0, 0});
}

static struct md_inode inode_of(uint64_t ino)
{
	struct md_inode inode;
	struct md_key key;
	const void *value;
	size_t bytes;

	md_key_inode(&key, ino);
	ck_assert_int_eq(md_kv_get(w->kv, key.bytes, key.count, &value, &bytes, NULL), 0);
	ck_assert_int_eq(md_inode_decode(value, bytes, &inode), 0);
	return inode;
}

static void put_inode(const struct md_inode *inode)
{
	unsigned char bytes[MD_INODE_BYTES_MAX];
	struct md_key key;

	md_key_inode(&key, inode->ino);
	put(&key, bytes, md_inode_encode(inode, bytes));
}

static void put_entry(uint64_t parent, const char *name, uint64_t ino, uint32_t mode)
{
	unsigned char bytes[MD_ENTRY_BYTES];
	struct md_key key;

	md_entry_encode(ino, mode, bytes);
	md_key_entry(&key, parent, name, strlen(name));
	put(&key, bytes, sizeof(bytes));
}

static void damage(int which)
{
	struct md_inode inode;
	struct md_key key;

	switch (which) {
	case 0: /* an inode is gone */
		md_key_inode(&key, file);
		drop(&key);
		break;
	case 1: /* a name is gone */
		md_key_entry(&key, dir, "file", 4);
		drop(&key);
		break;
	case 2: /* a name too many, of something that exists */
		put_entry(sub, "more", file, S_IFREG);
		break;
	case 3: /* … or does not */
		put_entry(sub, "more", 9999, S_IFREG);
		break;
	case 4: /* a name in what is no directory */
		put_entry(file, "more", file, S_IFREG);
		break;
	case 5:
		put_entry(dir, "file", file, S_IFLNK);
		break;
	case 6:
		inode = inode_of(dir);
		inode.nlink++;
		put_inode(&inode);
		break;
	case 7:
		inode = inode_of(file);
		inode.nlink--;
		put_inode(&inode);
		break;
	case 8:
		inode = inode_of(dir);
		inode.size++;
		put_inode(&inode);
		break;
	case 9:
		inode = inode_of(sub);
		inode.parent = MD_ROOT_INO;
		put_inode(&inode);
		break;
	case 10: /* a ring that hangs nowhere; else all adds up */
		md_key_entry(&key, MD_ROOT_INO, "dir", 3);
		drop(&key);
		put_entry(sub, "dir", dir, S_IFDIR);
		inode = inode_of(dir);
		inode.parent = sub;
		put_inode(&inode);
		inode = inode_of(sub);
		inode.nlink++;
		inode.size++;
		put_inode(&inode);
		inode = inode_of(MD_ROOT_INO);
		inode.nlink--;
		inode.size--;
		put_inode(&inode);
		break;
	case 11: /* the mark of an orphan is gone */
		md_key_orphan(&key, orphan);
		drop(&key);
		break;
	case 12:
		md_key_orphan(&key, file);
		put(&key, "", 0);
		break;
	case 13:
		md_key_orphan(&key, 9999);
		put(&key, "", 0);
		break;
	case 14:
		md_key_content(&key, file);
		put(&key, "ab", 2);
		break;
	case 15:
		md_key_content(&key, 9999);
		put(&key, "ab", 2);
		break;
	case 16:
		md_key_xattr(&key, file, "user.a", 6);
		drop(&key);
		break;
	case 17:
		md_key_xattr(&key, 9999, "user.a", 6);
		put(&key, "", 0);
		break;
	case 18:
		md_key_counters(&key);
		put(&key, "\5\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0", 16);
		break;
	case 19:
		md_key_counters(&key);
		put(&key, "\4\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 16);
		break;
	case 20:
		md_key_inode(&key, file);
		put(&key, "rubbish", 7);
		break;
	case 21:
		md_key_entry(&key, dir, "file", 4);
		put(&key, "rubbish", 7);
		break;
	default:
		ck_abort_msg("no such damage");
	}
}
#define DAMAGE_COUNT 22

static void count_problem(void *arg, const char *text)
{
	ck_assert_uint_gt(strlen(text), 0);
	++*(int *)arg;
}

START_TEST(a_sound_state_has_no_problems)
{
	struct md_counters counters;

	check_world(w);
	md_state_counters(&w->state, &counters);
	ck_assert_uint_eq(counters.inodes, 5);
	ck_assert_uint_eq(counters.inline_bytes, 3);
}
END_TEST

START_TEST(each_damage_is_found)
{
	int told = 0, found;

	damage(_i);
	found = md_check(&w->state, count_problem, &told);
	ck_assert_int_gt(found, 0);
	ck_assert_int_eq(told, found);
	ck_assert_int_eq(md_check(&w->state, NULL, NULL), found);
}
END_TEST

START_TEST(an_empty_store_has_no_root)
{
	struct world *empty = world_new_empty(0, 1 << 14);

	ck_assert_int_gt(md_check(&empty->state, NULL, NULL), 0);
	world_free(empty);
}
END_TEST

/* Rule N18: what a newer metad has written is not guessed at. */
START_TEST(a_superblock_of_a_newer_version_is_refused)
{
	struct md_super super;
	unsigned char copy[64];
	const void *value;
	struct md_key key;
	size_t bytes;

	md_key_super(&key);
	ck_assert_int_eq(md_state_super(&w->state, &super), 0);
	ck_assert_int_eq(md_kv_get(w->kv, key.bytes, key.count, &value, &bytes, NULL), 0);
	ck_assert_uint_le(bytes, sizeof(copy));
	memcpy(copy, value, bytes);
	copy[0]++;
	put(&key, copy, bytes);
	ck_assert_int_eq(md_state_super(&w->state, &super), -EPROTONOSUPPORT);
	/* Whatever else it has become by then. */
	put(&key, copy, bytes - 1);
	ck_assert_int_eq(md_state_super(&w->state, &super), -EPROTONOSUPPORT);
	copy[0] = 0;
	put(&key, copy, bytes);
	ck_assert_int_eq(md_state_super(&w->state, &super), -EBADMSG);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_check");
	TCase *tc = tcase_create("check");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_sound_state_has_no_problems);
	tcase_add_loop_test(tc, each_damage_is_found, 0, DAMAGE_COUNT);
	tcase_add_test(tc, an_empty_store_has_no_root);
	tcase_add_test(tc, a_superblock_of_a_newer_version_is_refused);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
