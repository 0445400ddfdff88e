/*
 * What storage nodes tell metad: that they have lost power, which objects they have, what a writer
 * left that has vanished.
 */
#include "md_pretend.h"

static void setup(void)
{
	pretend_setup();
}

/* -- power cuts (rule B3) --------------------------------------------------------------------- */

START_TEST(after_a_power_cut_unsynced_copies_are_stale_if_there_are_others)
{
	struct file one, two, stable;
	struct job *job;

	start_grid(2);
	one = make_large("one", 10000);
	two = make_large("two", 10000);
	stable = make_large("stable", 10000);
	node_notes(&nodes[0], stable.ino, stable.generation, STABLE);
	set_ncopy(&two, "2");
	node_copies(&nodes[1], &two);
	set_ncopy(&stable, "2");
	node_copies(&nodes[1], &stable);
	/* The same machine, another process: nothing is lost. */
	node_register(&nodes[0]);
	ck_assert(copy_of(&two, &nodes[0]).current);
	/* metad may have been away as well. */
	if (_i == 1)
		restart();
	nodes[0].boot += 1000;
	node_register(&nodes[0]);
	ck_assert(copy_of(&stable, &nodes[0]).current);
	ck_assert(!copy_of(&two, &nodes[0]).current);
	ck_assert(copy_of(&one, &nodes[0]).current); /* there is no other; the log says so */
	if (_i == 1)
		node_register(&nodes[1]);
	/* What it has is compared with the other, and counts again. */
	job = node_job(&nodes[0], COPY, two.ino);
	ck_assert_uint_eq(job->from_generation, two.generation);
	ck_assert_str_eq(job->sources[0].node, "fsd2");
	node_did(&nodes[0], job);
	ck_assert(copy_of(&two, &nodes[0]).current);
	/* Registering once more is no other boot. */
	node_register(&nodes[0]);
	ck_assert(copy_of(&two, &nodes[0]).current);
}
END_TEST

START_TEST(a_copy_of_a_node_that_lost_its_power_meanwhile_is_a_base)
{
	struct file file;
	struct job job;

	start_grid(2);
	file = make_large("file", 10000);
	set_ncopy(&file, "2");
	job = *node_job(&nodes[1], COPY, file.ino);
	/* What the source has now may not be what is on its way. */
	nodes[0].boot += 1000;
	node_register(&nodes[0]);
	ck_assert(copy_of(&file, &nodes[0]).current);
	node_did(&nodes[1], &job);
	ck_assert(copy_of(&file, &nodes[1]).listed && !copy_of(&file, &nodes[1]).current);
	/* It is compared with what there is now, and counts then. */
	job = *node_job(&nodes[1], COPY, file.ino);
	ck_assert_uint_eq(job.from_generation, file.generation);
	node_did(&nodes[1], &job);
	ck_assert(copy_of(&file, &nodes[1]).current);
}
END_TEST

START_TEST(a_cache_copy_stands_in_for_what_a_power_cut_may_have_taken)
{
	struct file file;
	struct job *job;

	start_grid(2);
	file = make_large("file", 10000);
	ck_assert_int_eq(want_cache(&file, "h2"), 0);
	node_did(&nodes[1], node_job(&nodes[1], COPY, file.ino));
	ck_assert_uint_eq(copy_of(&file, &nodes[1]).flags, MD_COPY_CACHE | MD_COPY_STABLE);
	if (_i == 1)
		restart();
	nodes[0].boot += 1000;
	node_register(&nodes[0]);
	/* One generation must not have two contents. */
	ck_assert(copy_of(&file, &nodes[1]).current);
	ck_assert_uint_eq(copy_of(&file, &nodes[1]).flags, MD_COPY_STABLE);
	ck_assert(!copy_of(&file, &nodes[0]).current);
	if (_i == 1)
		node_register(&nodes[1]);
	/* One is enough; what was left goes. */
	job = node_job(&nodes[0], DELETE, file.ino);
	ck_assert_uint_eq(job->generation, file.generation);
}
END_TEST

START_TEST(a_power_cut_in_the_middle_of_writing_is_the_writers_business)
{
	struct file file, opened;

	start_grid(2);
	file = make_large("file", 10000);
	set_ncopy(&file, "2");
	node_copies(&nodes[1], &file);
	opened = open_file("file");
	ck_assert_int_eq(take_lease(&opened, true), 1);
	nodes[1].boot += 1000; /* the primary: it was the stable one */
	node_register(&nodes[1]);
	ck_assert(copy_of(&file, &nodes[1]).current);
	give_back(&opened, 20000, false);
	close_file(&opened);
	ck_assert(copy_of(&file, &nodes[1]).current);
	ck_assert(!copy_of(&file, &nodes[0]).current);
}
END_TEST

START_TEST(a_note_that_was_overtaken_by_its_writer_says_nothing)
{
	PbMeta__ObjectNote note = PB_META__OBJECT_NOTE__INIT;
	struct file file;

	start_grid(1);
	file = make_large("file", 10000); /* its last change has clock 1 */
	note.ino = file.ino;
	note.generation = file.generation;
	note.what = STABLE;
	ck_assert_int_eq(node_work(&nodes[0], NULL, &note), 0);
	ck_assert_uint_eq(copy_of(&file, &nodes[0]).flags, 0);
	note.clock = 1;
	ck_assert_int_eq(node_work(&nodes[0], NULL, &note), 0);
	ck_assert_uint_eq(copy_of(&file, &nodes[0]).flags, MD_COPY_STABLE);
}
END_TEST

/* The node tells once; who closes later has not written since. */
START_TEST(what_was_told_while_it_was_open_counts_when_it_is_closed)
{
	PbMeta__ObjectNote note = PB_META__OBJECT_NOTE__INIT;
	struct file file, opened;

	start_grid(1);
	file = make_large("file", 10000);
	opened = open_file("file");
	ck_assert_int_eq(take_lease(&opened, true), 1);
	note.ino = opened.ino;
	note.generation = opened.generation;
	note.what = STABLE;
	note.clock = (uint64_t)_i; /* the writer's report has clock 1 */
	ck_assert_int_eq(node_work(&nodes[0], NULL, &note), 0);
	ck_assert_uint_eq(copy_of(&file, &nodes[0]).flags & MD_COPY_STABLE, 0);
	give_back(&opened, 20000, false);
	close_file(&opened);
	/* With an older clock there was a change after it. */
	ck_assert_uint_eq(copy_of(&file, &nodes[0]).flags, _i == 0 ? 0 : MD_COPY_STABLE);
	/* The next writer begins anew. */
	opened = open_file("file");
	ck_assert_int_eq(take_lease(&opened, true), 1);
	give_back(&opened, 30000, false);
	close_file(&opened);
	ck_assert_uint_eq(copy_of(&file, &nodes[0]).flags, 0);
}
END_TEST

/* -- inventories ------------------------------------------------------------------------------ */

START_TEST(what_a_node_does_not_list_is_lost_and_what_metad_does_not_know_is_unknown)
{
	PbMeta__ObjectInfo objects[4];
	struct file kept, lost, grown, deleted;
	struct opinion opinion;

	start_grid(2);
	kept = make_large("kept", 10000);
	lost = make_large("lost", 10000);
	set_ncopy(&lost, "2");
	node_copies(&nodes[1], &lost);
	grown = open_file("grown"); /* and not reported yet */
	ck_assert_int_eq(take_lease(&grown, true), 1);
	deleted = make_large("deleted", 10000);
	unlink_file(&deleted);
	objects[0] = object(kept.ino, kept.generation);
	objects[1] = object(grown.ino, grown.generation);
	objects[2] = object(deleted.ino, deleted.generation);
	objects[3] = object(4711, 1);
	node_register(&nodes[0]);
	ck_assert_int_eq(node_inventory(&nodes[0], 0, UINT64_MAX, objects, 4, &opinion), 0);
	ck_assert_uint_eq(opinion.unknown_count, 1);
	ck_assert_uint_eq(opinion.unknown[0].ino, 4711);
	ck_assert_uint_eq(opinion.stale_count, 0);
	ck_assert(copy_of(&kept, &nodes[0]).current);
	ck_assert(!copy_of(&lost, &nodes[0]).listed);
	ck_assert(copy_of(&lost, &nodes[1]).current);
	/* It is made anew, and what is in the trash is still deleted. */
	node_did(&nodes[0], node_job(&nodes[0], DELETE, deleted.ino));
	node_copies(&nodes[0], &lost);
	give_back(&grown, 10000, true);
	ck_assert(copy_of(&grown, &nodes[0]).current);
}
END_TEST

/*
 * A node that was restarted syncs what metad names, and what is written then. A writer that had
 * sent all before, and only has to tell that its file has grown, sends nothing: its object must be
 * named although it is no copy yet, or it would never come to disk (rule B3).
 */
START_TEST(what_is_not_on_disk_is_named_also_while_it_grows)
{
	PbMeta__ObjectInfo objects[3];
	struct file synced, unsynced, grows;
	PbMeta__ObjectNote note = PB_META__OBJECT_NOTE__INIT;
	struct opinion opinion;

	start_grid(1);
	synced = make_large("synced", 10000);
	note.ino = synced.ino;
	note.generation = synced.generation;
	note.what = STABLE;
	note.clock = UINT64_MAX;
	ck_assert_int_eq(node_work(&nodes[0], NULL, &note), 0);
	unsynced = make_large("unsynced", 10000);
	grows = open_file("grows");
	ck_assert_int_eq(take_lease(&grows, true), 1);
	objects[0] = object(synced.ino, synced.generation);
	objects[1] = object(unsynced.ino, unsynced.generation);
	objects[2] = object(grows.ino, grows.generation);
	ck_assert_int_eq(node_inventory(&nodes[0], 0, UINT64_MAX, objects, 3, &opinion), 0);
	ck_assert_uint_eq(opinion.unknown_count, 0);
	ck_assert_uint_eq(opinion.unstable_count, 2);
	ck_assert_uint_eq(opinion.unstable[0].ino, unsynced.ino);
	ck_assert_uint_eq(opinion.unstable[1].ino, grows.ino);
	give_back(&grows, 10000, true);
	ck_assert(copy_of(&grows, &nodes[0]).current);
}
END_TEST

START_TEST(old_and_unreported_objects_are_bases)
{
	PbMeta__ObjectInfo objects[3];
	struct opinion opinion;
	struct file file;
	struct job *job;
	uint64_t old;

	start_grid(2);
	file = make_large("file", 10000);
	set_ncopy(&file, "2");
	old = file.generation;
	/* The copy was made, and the node died before it could say so. */
	node_job(&nodes[1], COPY, file.ino);
	node_register(&nodes[1]);
	objects[0] = object(file.ino, old);
	ck_assert_int_eq(node_inventory(&nodes[1], 0, UINT64_MAX, objects, 1, &opinion), 0);
	ck_assert_uint_eq(opinion.unknown_count, 0);
	ck_assert(copy_of(&file, &nodes[1]).listed && !copy_of(&file, &nodes[1]).current);
	job = node_job(&nodes[1], COPY, file.ino);
	ck_assert_uint_eq(job->from_generation, old);
	node_did(&nodes[1], job);
	ck_assert(copy_of(&file, &nodes[1]).current);
	/* Of several generations the newest is the base, and the others go. */
	write_again(&file, 20000);
	ck_assert_str_eq(file.primary, "fsd2");
	objects[0] = object(file.ino, old);
	objects[1] = object(file.ino, file.generation);
	objects[2] = object(file.ino, file.generation + 1);
	ck_assert_int_eq(node_inventory(&nodes[0], 0, UINT64_MAX, objects, 3, &opinion), 0);
	/* One from a later life than metad's is not for it to judge (rule N9). */
	ck_assert_uint_eq(opinion.unknown_count, 1);
	ck_assert_uint_eq(opinion.unknown[0].generation, file.generation + 1);
	ck_assert_uint_eq(copy_of(&file, &nodes[0]).generation, file.generation);
	ck_assert(!copy_of(&file, &nodes[0]).current);
	/* One after the other: what is copied may rest on what is deleted. */
	assert_no_job(&nodes[0], DELETE, 0);
	node_copies(&nodes[0], &file);
	ck_assert_uint_eq(node_job(&nodes[0], DELETE, file.ino)->generation, old);
}
END_TEST

START_TEST(an_inventory_comes_in_pages)
{
	struct file files[30];
	struct opinion opinion;
	char name[16];
	size_t unknown = 0;

	start_grid(1);
	for (unsigned i = 0; i < 30; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		files[i] = make_large(name, 10000);
	}
	node_register(&nodes[0]);
	for (unsigned i = 0; i < 30; i += 3) {
		PbMeta__ObjectInfo page[2] = {object(files[i].ino, files[i].generation),
					      object(files[i + 1].ino, 999)};
		uint64_t first = i == 0 ? 0 : files[i - 1].ino + 1;
		uint64_t last = i == 27 ? UINT64_MAX : files[i + 2].ino;

		ck_assert_int_eq(node_inventory(&nodes[0], first, last, page, 2, &opinion), 0);
		unknown += opinion.unknown_count;
	}
	ck_assert_uint_eq(unknown, 10);
	for (unsigned i = 0; i < 30; i++)
		ck_assert_int_eq(copy_of(&files[i], &nodes[0]).listed, i % 3 == 0);
}
END_TEST

START_TEST(an_emptied_spool_is_noticed_in_pieces)
{
	struct opinion opinion;
	struct file files[200];
	char name[16];

	start_grid(1);
	for (unsigned i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		files[i] = make_large(name, 10000);
	}
	node_register(&nodes[0]);
	ck_assert_int_eq(node_inventory(&nodes[0], 0, UINT64_MAX, NULL, 0, &opinion), 0);
	for (unsigned i = 0; i < 200; i++)
		ck_assert(!copy_of(&files[i], &nodes[0]).listed);
}
END_TEST

/* It was cut off after it had looked; its list arrives when an object has been made and closed. */
START_TEST(a_late_inventory_does_not_lose_what_was_made_since)
{
	struct opinion opinion;
	struct file before, since;

	start_grid(1);
	before = make_large("before", 10000);
	node_register(&nodes[0]);
	since = make_large("since", 10000);
	ck_assert_int_eq(node_inventory(&nodes[0], 0, UINT64_MAX, NULL, 0, &opinion), 0);
	ck_assert(!copy_of(&before, &nodes[0]).listed);
	ck_assert(copy_of(&since, &nodes[0]).current);
	/* The next one tells. */
	node_register(&nodes[0]);
	ck_assert_int_eq(node_inventory(&nodes[0], 0, UINT64_MAX, NULL, 0, &opinion), 0);
	ck_assert(!copy_of(&since, &nodes[0]).listed);
}
END_TEST

START_TEST(inventories_that_make_no_sense_are_refused)
{
	PbMeta__ObjectInfo objects[2] = {object(20, 1), object(10, 1)};
	struct opinion opinion;

	start_grid(1);
	ck_assert_int_eq(node_inventory(&nodes[0], 0, UINT64_MAX, objects, 2, &opinion), -EINVAL);
	ck_assert_int_eq(node_inventory(&nodes[0], 0, 15, objects, 1, &opinion), -EINVAL);
	ck_assert_int_eq(node_inventory(&nodes[0], 21, 30, objects, 1, &opinion), -EINVAL);
	ck_assert_int_eq(node_inventory(&nodes[0], 5, 4, NULL, 0, &opinion), -EINVAL);
	ck_assert_int_eq(node_inventory(&nodes[0], 20, 20, objects, 1, &opinion), 0);
	ck_assert_uint_eq(opinion.unknown_count, 1);
}
END_TEST

/* -- writers that vanish (rule B2) ------------------------------------------------------------ */

START_TEST(a_writer_that_vanished_with_metad_is_recovered_without_anybody_asking)
{
	struct file file, opened;
	struct job *job;

	start_grid(2);
	file = make_large("file", 10000);
	set_ncopy(&file, "2");
	node_copies(&nodes[1], &file);
	opened = open_file("file");
	ck_assert_int_eq(take_lease(&opened, true), 1);
	restart();
	node_register(&nodes[0]);
	node_register(&nodes[1]);
	job = node_job(&nodes[1], RECOVER, file.ino);
	ck_assert_uint_gt(job->generation, opened.generation);
	/* It cannot at first, and is asked again. */
	node_did_with(&nodes[1], job, -EIO, 0);
	ck_assert(copy_of(&file, &nodes[1]).writing);
	job = node_job(&nodes[1], RECOVER, file.ino);
	node_did_with(&nodes[1], job, 0, 12345);
	ck_assert(!copy_of(&file, &nodes[1]).writing);
	ck_assert(copy_of(&file, &nodes[1]).current);
	ck_assert_uint_eq(copy_of(&file, &nodes[1]).flags, MD_COPY_STABLE);
	/* And the other is brought up from it. */
	node_copies(&nodes[0], &file);
}
END_TEST

START_TEST(a_file_that_is_deleted_need_not_be_recovered)
{
	struct file file, opened;
	struct job job;

	start_grid(1);
	file = make_large("file", 10000);
	opened = open_file("file");
	ck_assert_int_eq(take_lease(&opened, true), 1);
	restart();
	node_register(&nodes[0]);
	job = *node_job(&nodes[0], RECOVER, file.ino);
	node_did_with(&nodes[0], &job, -EIO, 0); /* it will be asked again … */
	unlink_file(&file);
	/* … and is not; what there may be of it goes. */
	for (unsigned deletes = 0; deletes < 2; deletes++)
		node_did(&nodes[0], node_job(&nodes[0], DELETE, file.ino));
	ck_assert_ptr_null(node_job_if(&nodes[0], RECOVER, 0, 2));
}
END_TEST

START_TEST(an_object_that_went_with_its_disk_ends_the_writing)
{
	struct file file, opened;
	struct opinion opinion;

	start_grid(2);
	file = make_large("file", 10000);
	set_ncopy(&file, "2");
	node_copies(&nodes[1], &file);
	opened = open_file("file");
	ck_assert_int_eq(take_lease(&opened, true), 1);
	/* The writer is there: it is his to notice. */
	ck_assert_int_eq(node_inventory(&nodes[1], 0, UINT64_MAX, NULL, 0, &opinion), 0);
	ck_assert(copy_of(&file, &nodes[1]).writing);
	restart();
	node_register(&nodes[0]);
	node_register(&nodes[1]);
	node_job(&nodes[1], RECOVER, file.ino);
	ck_assert_int_eq(node_inventory(&nodes[1], 0, UINT64_MAX, NULL, 0, &opinion), 0);
	ck_assert(!copy_of(&file, &nodes[1]).listed);
	/* The older one is kept, and not served (rule B9). */
	ck_assert(copy_of(&file, &nodes[0]).listed && !copy_of(&file, &nodes[0]).writing);
	ck_assert(!copy_of(&file, &nodes[0]).current);
	assert_no_job(&nodes[0], DELETE, 0);
}
END_TEST

static Suite *told_suite(void)
{
	Suite *s = suite_create("md_jobs_told");
	TCase *tc = tcase_create("told");

	tcase_add_checked_fixture(tc, setup, pretend_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, after_a_power_cut_unsynced_copies_are_stale_if_there_are_others, 0,
			    2);
	tcase_add_test(tc, a_copy_of_a_node_that_lost_its_power_meanwhile_is_a_base);
	tcase_add_loop_test(tc, a_cache_copy_stands_in_for_what_a_power_cut_may_have_taken, 0, 2);
	tcase_add_test(tc, a_power_cut_in_the_middle_of_writing_is_the_writers_business);
	tcase_add_test(tc, a_note_that_was_overtaken_by_its_writer_says_nothing);
	tcase_add_loop_test(tc, what_was_told_while_it_was_open_counts_when_it_is_closed, 0, 2);
	tcase_add_test(tc,
		       what_a_node_does_not_list_is_lost_and_what_metad_does_not_know_is_unknown);
	tcase_add_test(tc, what_is_not_on_disk_is_named_also_while_it_grows);
	tcase_add_test(tc, old_and_unreported_objects_are_bases);
	tcase_add_test(tc, an_inventory_comes_in_pages);
	tcase_add_test(tc, an_emptied_spool_is_noticed_in_pieces);
	tcase_add_test(tc, a_late_inventory_does_not_lose_what_was_made_since);
	tcase_add_test(tc, inventories_that_make_no_sense_are_refused);
	tcase_add_test(tc, a_writer_that_vanished_with_metad_is_recovered_without_anybody_asking);
	tcase_add_test(tc, a_file_that_is_deleted_need_not_be_recovered);
	tcase_add_test(tc, an_object_that_went_with_its_disk_ends_the_writing);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(told_suite());
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
