/*
 * Rule N4: on which change of another session, not yet on disk, does an answer depend?
 */
#include "md_state_fixture.h"

#define ROOT MD_ROOT_INO

static struct world *w;
static uint64_t dir, file;
/* bob's other program. */
static const struct who bob2 = {5, {101, 101, 1, project}};

static void setup(void)
{
	w = world_new(0);
	ck_assert_int_eq(do_chmod(w, &root, ROOT, 0777), 0);
	ck_assert_int_eq(do_mkdir(w, &ann, ROOT, "dir", 0777), 0);
	dir = w->attr.ino;
	ck_assert_int_eq(do_create(w, &ann, dir, "file", 0666), 0);
	file = w->attr.ino;
	world_sync(w);
}

static void teardown(void)
{
	world_free(w);
}

/* What a reply has to wait for; 0: nothing. */
static uint64_t waits(void)
{
	return w->depends > w->durable ? w->depends : 0;
}

START_TEST(what_is_on_disk_makes_nobody_wait)
{
	PbMeta__ReaddirReply list;

	ck_assert_int_eq(do_lookup(w, &bob, dir, "file"), 0);
	ck_assert_uint_eq(waits(), 0);
	ck_assert_int_eq(do_readdir(w, &bob, dir, "", 0, true, &list), 0);
	ck_assert_uint_eq(waits(), 0);
	ck_assert_int_eq(do_write(w, &bob, file, 0, "x", 1, 0), 0);
	ck_assert_uint_eq(waits(), 0);
}
END_TEST

START_TEST(a_foreign_creation_is_waited_for_and_an_own_one_is_not)
{
	PbMeta__ReaddirReply list;
	uint64_t made, index;

	ck_assert_int_eq(do_create(w, &ann, dir, "new", 0666), 0);
	ck_assert_uint_eq(waits(), 0);
	made = w->attr.ino;
	index = w->index;
	ck_assert_int_eq(do_lookup(w, &ann, dir, "new"), 0);
	ck_assert_uint_eq(waits(), 0);
	ck_assert_int_eq(do_readdir(w, &ann, dir, "", 0, true, &list), 0);
	ck_assert_uint_eq(waits(), 0);
	ck_assert_int_eq(do_lookup(w, &bob, dir, "new"), 0);
	ck_assert_uint_eq(waits(), index);
	ck_assert_int_eq(do_getattr(w, &bob, made), 0);
	ck_assert_uint_eq(waits(), index);
	ck_assert_int_eq(do_readdir(w, &bob, dir, "", 0, false, &list), 0);
	ck_assert_uint_eq(waits(), index);
	/* A refusal tells of it as well. */
	ck_assert_int_eq(do_create(w, &bob, dir, "new", 0666), -EEXIST);
	ck_assert_uint_eq(waits(), index);
	ck_assert_int_eq(do_link(w, &bob, made, dir, "second"), 0);
	ck_assert_uint_eq(waits(), index);
	world_sync(w);
	ck_assert_int_eq(do_lookup(w, &bob2, dir, "new"), 0);
	ck_assert_uint_eq(waits(), 0);
}
END_TEST

START_TEST(two_sessions_of_one_user_are_foreign_to_each_other)
{
	ck_assert_int_eq(do_create(w, &bob, dir, "new", 0666), 0);
	ck_assert_int_eq(do_lookup(w, &bob2, dir, "new"), 0);
	ck_assert_uint_eq(waits(), w->index);
}
END_TEST

START_TEST(the_times_and_counters_of_a_parent_do_not_count)
{
	for (unsigned i = 0; i < 3; i++) {
		char name[16];

		snprintf(name, sizeof(name), "a%u", i);
		ck_assert_int_eq(do_create(w, &ann, dir, name, 0666), 0);
		ck_assert_uint_eq(waits(), 0);
		name[0] = 'b';
		ck_assert_int_eq(do_create(w, &bob, dir, name, 0666), 0);
		ck_assert_uint_eq(waits(), 0);
		name[0] = 'd';
		ck_assert_int_eq(do_mkdir(w, &ann, dir, name, 0777), 0);
		ck_assert_uint_eq(waits(), 0);
	}
	ck_assert_int_eq(do_unlink(w, &bob, dir, "b0"), 0);
	ck_assert_uint_eq(waits(), 0);
	ck_assert_int_eq(do_rename(w, &bob, dir, "b1", dir, "c1", 0), 0);
	ck_assert_uint_eq(waits(), 0);
	ck_assert_int_eq(do_getattr(w, &eve, dir), 0);
	ck_assert_uint_eq(waits(), 0);
	ck_assert_int_eq(do_lookup(w, &eve, dir, "file"), 0);
	ck_assert_uint_eq(waits(), 0);
}
END_TEST

START_TEST(a_directory_that_another_made_or_changed_is_waited_for)
{
	uint64_t sub, index;

	ck_assert_int_eq(do_mkdir(w, &ann, dir, "sub", 0777), 0);
	sub = w->attr.ino;
	index = w->index;
	/* A name put into it does not hide who made it. */
	ck_assert_int_eq(do_create(w, &bob, sub, "x", 0666), 0);
	ck_assert_uint_eq(waits(), index);
	ck_assert_int_eq(do_create(w, &eve, sub, "y", 0666), 0);
	ck_assert_uint_eq(waits(), index);
	world_sync(w);
	ck_assert_int_eq(do_chmod(w, &ann, sub, 0770), 0);
	index = w->index;
	ck_assert_int_eq(do_create(w, &eve, sub, "z", 0666), -EACCES);
	ck_assert_uint_eq(waits(), index);
}
END_TEST

START_TEST(a_removed_name_is_waited_for)
{
	PbMeta__ReaddirReply list;
	uint64_t index;

	ck_assert_int_eq(do_unlink(w, &ann, dir, "file"), 0);
	index = w->index;
	ck_assert_int_eq(do_lookup(w, &bob, dir, "file"), -ENOENT);
	ck_assert_uint_eq(waits(), index);
	ck_assert_int_eq(do_getattr(w, &bob, file), -ESTALE);
	ck_assert_uint_eq(waits(), index);
	ck_assert_int_eq(do_readdir(w, &bob, dir, "", 0, false, &list), 0);
	ck_assert_uint_eq(list.n_entries, 0);
	ck_assert_uint_eq(waits(), index);
	ck_assert_int_eq(do_lookup(w, &ann, dir, "file"), -ENOENT);
	ck_assert_uint_eq(waits(), 0);
	ck_assert_int_eq(do_create(w, &bob, dir, "file", 0666), 0);
	ck_assert_uint_eq(waits(), index);
}
END_TEST

START_TEST(removing_a_directory_waits_for_who_emptied_it)
{
	uint64_t index;

	ck_assert_int_eq(do_unlink(w, &ann, dir, "file"), 0);
	world_sync(w);
	ck_assert_int_eq(do_create(w, &ann, dir, "file", 0666), 0);
	ck_assert_int_eq(do_rmdir(w, &bob, ROOT, "dir"), -ENOTEMPTY);
	ck_assert_uint_eq(waits(), w->index);
	ck_assert_int_eq(do_unlink(w, &ann, dir, "file"), 0);
	index = w->index;
	ck_assert_int_eq(do_mkdir(w, &bob, ROOT, "other", 0777), 0);
	ck_assert_uint_eq(waits(), 0);
	ck_assert_int_eq(do_rename(w, &bob, ROOT, "other", ROOT, "dir", 0), 0);
	ck_assert_uint_eq(waits(), index);
}
END_TEST

START_TEST(own_changes_between_foreign_ones_do_not_hide_them)
{
	PbMeta__ReaddirReply list;
	uint64_t index;

	ck_assert_int_eq(do_unlink(w, &ann, dir, "file"), 0);
	index = w->index;
	ck_assert_int_eq(do_create(w, &bob, dir, "b", 0666), 0);
	ck_assert_int_eq(do_create(w, &bob, dir, "c", 0666), 0);
	ck_assert_int_eq(do_readdir(w, &bob, dir, "", 0, false, &list), 0);
	ck_assert_uint_eq(waits(), index);
	ck_assert_int_eq(do_readdir(w, &eve, dir, "", 0, false, &list), 0);
	ck_assert_uint_eq(waits(), w->index);
	ck_assert_int_eq(do_unlink(w, &bob, dir, "b"), 0);
	ck_assert_int_eq(do_unlink(w, &bob, dir, "c"), 0);
	ck_assert_int_eq(do_rmdir(w, &bob, ROOT, "dir"), 0);
	ck_assert_uint_eq(waits(), index);
}
END_TEST

START_TEST(content_attributes_and_rename_are_waited_for)
{
	ProtobufCBinaryData value;
	PbMeta__ListxattrReply names;
	const void *data;
	size_t bytes;

	ck_assert_int_eq(do_write(w, &ann, file, 0, "x", 1, 0), 0);
	ck_assert_int_eq(do_read(w, &bob, file, 0, 1, &data, &bytes), 0);
	ck_assert_uint_eq(waits(), w->index);
	ck_assert_int_eq(do_write(w, &bob, file, UINT64_MAX, "y", 1, 0), 0);
	ck_assert_uint_eq(waits(), w->index - 1);
	world_sync(w);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.a", "1", 1, 0), 0);
	ck_assert_int_eq(do_getxattr(w, &bob, file, "user.a", &value), 0);
	ck_assert_uint_eq(waits(), w->index);
	ck_assert_int_eq(do_setxattr(w, &ann, file, "user.a", "", 0, 4), 0);
	ck_assert_int_eq(do_getxattr(w, &bob, file, "user.a", &value), -ENODATA);
	ck_assert_uint_eq(waits(), w->index);
	ck_assert_int_eq(do_listxattr(w, &bob, file, &names), 0);
	ck_assert_uint_eq(waits(), w->index);
	world_sync(w);
	ck_assert_int_eq(do_rename(w, &ann, dir, "file", dir, "moved", 0), 0);
	ck_assert_int_eq(do_lookup(w, &bob, dir, "file"), -ENOENT);
	ck_assert_uint_eq(waits(), w->index);
	ck_assert_int_eq(do_lookup(w, &bob, dir, "moved"), 0);
	ck_assert_uint_eq(waits(), w->index);
}
END_TEST

START_TEST(the_newest_foreign_change_counts)
{
	uint64_t index;

	ck_assert_int_eq(do_chmod(w, &ann, file, 0644), 0);
	ck_assert_int_eq(do_rename(w, &ann, dir, "file", dir, "moved", 0), 0);
	ck_assert_int_eq(do_chmod(w, &ann, file, 0600), 0);
	index = w->index;
	ck_assert_int_eq(do_create(w, &ann, dir, "unrelated", 0600), 0);
	ck_assert_int_eq(do_lookup(w, &bob, dir, "moved"), 0);
	ck_assert_uint_eq(waits(), index);
	w->durable = index;
	md_kv_durable(w->kv, index);
	ck_assert_int_eq(do_lookup(w, &bob, dir, "moved"), 0);
	ck_assert_uint_eq(waits(), 0);
	ck_assert_int_eq(do_lookup(w, &bob, dir, "unrelated"), 0);
	ck_assert_uint_eq(waits(), index + 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_depends");
	TCase *tc = tcase_create("depends");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, what_is_on_disk_makes_nobody_wait);
	tcase_add_test(tc, a_foreign_creation_is_waited_for_and_an_own_one_is_not);
	tcase_add_test(tc, two_sessions_of_one_user_are_foreign_to_each_other);
	tcase_add_test(tc, the_times_and_counters_of_a_parent_do_not_count);
	tcase_add_test(tc, a_directory_that_another_made_or_changed_is_waited_for);
	tcase_add_test(tc, a_removed_name_is_waited_for);
	tcase_add_test(tc, removing_a_directory_waits_for_who_emptied_it);
	tcase_add_test(tc, own_changes_between_foreign_ones_do_not_hide_them);
	tcase_add_test(tc, content_attributes_and_rename_are_waited_for);
	tcase_add_test(tc, the_newest_foreign_change_counts);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
