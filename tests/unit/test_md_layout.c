/*
 * Objects in the state: where copies are and which count, through all commands that change them.
 * Every test ends with a state that holds together, and replaying its commands gives the same.
 */
#include "md_state_fixture.h"
#include "metad/md_layout.h"
#include "metad/md_state_impl.h"

#define IS_THERE 1u
#define IS_STALE 2u
#define IS_GONE 3u
#define TO_DELETE 4u

static const struct who metad = {0, {0, 0, 0, NULL}};
static struct world *w;
static uint64_t file;

static void setup(void)
{
	w = world_new(0);
	ck_assert_int_eq(do_create(w, &root, MD_ROOT_INO, "file", 0644), 0);
	file = w->attr.ino;
}

static void teardown(void)
{
	struct world *again;

	check_world(w);
	world_sync(w);
	again = world_replay(w, 1);
	assert_same_state(w, again);
	world_free(again);
	world_free(w);
}

/* -- commands --------------------------------------------------------------------------------- */

static PbMeta__WriteBeginReply begun;

static int write_begin(const char *primary)
{
	PbMeta__WriteBeginRequest request = PB_META__WRITE_BEGIN_REQUEST__INIT;

	pb_meta__write_begin_reply__init(&begun);
	request.ino = file;
	request.primary = (char *)(uintptr_t)primary;
	return apply(w, &metad, RPC_WRITE_BEGIN, &request.base, &begun.base);
}

/* clock 0: without a size. `settles`: nobody else writes. */
static int report_as(const struct who *who, uint64_t generation, uint64_t size, uint64_t clock,
		     bool grown, bool settles)
{
	PbMeta__ReportRequest request = PB_META__REPORT_REQUEST__INIT;
	PbMeta__ReportReply reply = PB_META__REPORT_REPLY__INIT;
	struct md_command command = {.method = rpc_method_find(RPC_REPORT),
				     .request = &request.base,
				     .flags = settles ? MD_COMMAND_SETTLE : 0};
	int r;

	request.ino = file;
	request.generation = generation;
	request.has_size = clock > 0;
	request.size = size;
	request.clock = clock;
	request.grown = grown;
	r = apply_with(w, who, &command, &reply.base);
	return take_attr(w, r, reply.attr);
}

static int report(uint64_t generation, uint64_t size, uint64_t clock, bool settles)
{
	return report_as(&root, generation, size, clock, false, settles);
}

static PbMeta__WriteRecoverReply recovered;

static int write_recover(bool settle, uint64_t size)
{
	PbMeta__WriteRecoverRequest request = PB_META__WRITE_RECOVER_REQUEST__INIT;

	pb_meta__write_recover_reply__init(&recovered);
	request.ino = file;
	request.settle = settle;
	request.size = size;
	return apply(w, &metad, RPC_WRITE_RECOVER, &request.base, &recovered.base);
}

/* Did the command still apply? */
static bool change(const char *node, uint64_t generation, uint32_t flags, uint32_t what)
{
	PbMeta__CopyChangeRequest request = PB_META__COPY_CHANGE_REQUEST__INIT;
	PbMeta__CopyChangeReply reply = PB_META__COPY_CHANGE_REPLY__INIT;

	request.ino = file;
	request.node = (char *)(uintptr_t)node;
	request.generation = generation;
	request.flags = flags;
	request.what = what;
	ck_assert_int_eq(apply(w, &metad, RPC_COPY_CHANGE, &request.base, &reply.base), 0);
	return reply.changed;
}

static void trash_done(const char *node, uint64_t generation)
{
	PbMeta__TrashDoneRequest request = PB_META__TRASH_DONE_REQUEST__INIT;
	PbMeta__TrashDoneReply reply = PB_META__TRASH_DONE_REPLY__INIT;

	request.node = (char *)(uintptr_t)node;
	request.ino = file;
	request.generation = generation;
	ck_assert_int_eq(apply(w, &metad, RPC_TRASH_DONE, &request.base, &reply.base), 0);
}

static void set_ncopy(const char *text)
{
	ck_assert_int_eq(do_setxattr(w, &root, file, "gfs.ncopy", text, strlen(text), 0), 0);
}

static int truncate_file(void)
{
	PbMeta__OpenRequest request = PB_META__OPEN_REQUEST__INIT;
	PbMeta__OpenReply reply = PB_META__OPEN_REPLY__INIT;

	request.ino = file;
	request.flags = 2 | 16;
	return apply(w, &root, RPC_OPEN, &request.base, &reply.base);
}

/* A settled object of this size on node a; its generation. */
static uint64_t grow(uint64_t size)
{
	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert_int_eq(report_as(&root, begun.generation, size, 1, true, true), 0);
	return begun.generation;
}

/* -- what there is ---------------------------------------------------------------------------- */

static struct md_inode inode;

static PbMeta__LayoutRecord *layout_now(void)
{
	struct md_ctx ctx = ctx_of(w, &root);
	PbMeta__LayoutRecord *layout;

	ck_assert_int_eq(md_get_inode(&ctx, file, &inode), 0);
	ck_assert_int_eq(md_layout_get(&ctx, file, &layout), 0);
	return layout;
}

static const PbMeta__CopyRecord *copy_on(const char *node)
{
	return md_layout_find(layout_now(), node);
}

static bool is_current(const char *node)
{
	const PbMeta__LayoutRecord *layout = layout_now();
	const PbMeta__CopyRecord *copy = md_layout_find(layout, node);

	ck_assert_ptr_nonnull(copy);
	return md_copy_current(&inode, layout, copy);
}

static unsigned counted(void)
{
	const PbMeta__LayoutRecord *layout = layout_now();

	return md_layout_count(&inode, layout);
}

static bool in_trash(const char *node, uint64_t generation)
{
	struct md_ctx ctx = ctx_of(w, &root);

	return md_layout_in_trash(&ctx, node, file, generation);
}

/* All the trash of a node, a page of one at a time. */
static size_t trash_count(const char *node)
{
	struct md_ctx ctx = ctx_of(w, &root);
	struct md_trash at = {0, 0}, found;
	size_t total = 0, count;

	do {
		ck_assert_int_eq(md_layout_each_trash(&ctx, node, &at, 1, &found, &count, &at), 0);
		total += count;
	} while (at.ino != 0);
	return total;
}

static bool is_unbalanced(void)
{
	struct md_ctx ctx = ctx_of(w, &root);
	uint64_t ino, next = 0;
	size_t count;

	ck_assert_int_eq(md_layout_each_unbalanced(&ctx, 0, 1, &ino, &count, &next), 0);
	ck_assert(count == 0 || ino == file);
	return count == 1;
}

static bool is_indexed(const char *node)
{
	struct md_ctx ctx = ctx_of(w, &root);
	uint64_t ino, next = 0;
	size_t count;

	ck_assert_int_eq(md_layout_each_copy(&ctx, node, 0, 1, &ino, &count, &next), 0);
	ck_assert(count == 0 || ino == file);
	return count == 1;
}

/* -- growing out of metad --------------------------------------------------------------------- */

START_TEST(inline_content_is_the_truth_until_the_object_has_grown)
{
	const void *data;
	size_t bytes;

	ck_assert_int_eq(do_write(w, &root, file, 0, "small", 5, 0), 0);
	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert(begun.growing);
	ck_assert_uint_gt(begun.generation, 0);
	ck_assert_uint_eq(begun.from_generation, 0);
	/* What the object is like is nobody's business yet (rule N10). */
	ck_assert_int_eq(report(begun.generation, 70000, 1, false), 0);
	ck_assert_uint_eq(w->attr.size, 5);
	ck_assert_int_eq(do_read(w, &root, file, 0, 10, &data, &bytes), 0);
	ck_assert_uint_eq(bytes, 5);
	ck_assert_uint_eq(layout_now()->n_copies, 0);
	check_world(w);

	ck_assert_int_eq(report_as(&root, begun.generation, 70000, 2, true, false), 0);
	ck_assert_uint_eq(w->attr.size, 70000);
	ck_assert_uint_eq(copy_on("a")->generation, begun.generation);
	ck_assert(is_indexed("a"));
	ck_assert_uint_eq(layout_now()->writing, begun.generation);
	/* While it is written there is nothing to be balanced. */
	set_ncopy("2");
	ck_assert(!is_unbalanced());
	ck_assert_int_eq(report(begun.generation, 70000, 3, true), 0);
	ck_assert(is_unbalanced());
}
END_TEST

START_TEST(an_object_that_did_not_become_the_content_is_trash)
{
	uint64_t first;

	ck_assert_int_eq(do_write(w, &root, file, 0, "small", 5, 0), 0);
	ck_assert_int_eq(write_begin("a"), 0);
	first = begun.generation;
	ck_assert_int_eq(write_recover(true, 0), 0);
	ck_assert(in_trash("a", first));
	ck_assert_ptr_null(layout_now());
	ck_assert_uint_eq(inode.size, 5);
	/* Its generation is never given again. */
	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert_uint_gt(begun.generation, first);
	ck_assert_int_eq(report(begun.generation, 0, 0, true), 0);
	ck_assert(in_trash("a", begun.generation));
	ck_assert_uint_eq(trash_count("a"), 2);
}
END_TEST

START_TEST(one_writing_at_a_time)
{
	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert_int_eq(write_begin("a"), -EBUSY);
	ck_assert_int_eq(report_as(&root, begun.generation + 1, 0, 1, true, true), -ESTALE);
	ck_assert_int_eq(write_recover(false, 0), -EINVAL); /* it is growing */
	ck_assert_int_eq(write_recover(true, MD_OBJECT_BYTES_MAX + 1), -EFBIG);
	ck_assert_int_eq(write_recover(true, 0), 0);
	ck_assert_int_eq(write_recover(true, 0), -ESTALE);
}
END_TEST

/* -- generations (rule B1) -------------------------------------------------------------------- */

START_TEST(the_generation_moves_before_the_first_byte_changes)
{
	uint64_t g = grow(10000);

	ck_assert_int_eq(write_begin("b"), -EINVAL); /* it has nothing */
	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert_uint_eq(begun.generation, g + 1);
	ck_assert_uint_eq(begun.from_generation, g);
	ck_assert_uint_eq(copy_on("a")->generation, g + 1);
	ck_assert_uint_eq(inode.generation, g + 1);
	/* The primary may have either. */
	ck_assert_uint_eq(md_copy_base(layout_now(), copy_on("a")), g);
	/* A size is the primary's word: it has been there. */
	ck_assert_int_eq(report(g + 1, 11000, 1, false), 0);
	ck_assert_uint_eq(layout_now()->from_generation, 0);
	ck_assert_int_eq(report(g + 1, 12000, 2, true), 0);
	ck_assert_uint_eq(layout_now()->writing, 0);
	ck_assert_str_eq(layout_now()->primary, "");
	ck_assert_uint_eq(inode.size, 12000);
}
END_TEST

START_TEST(a_writer_that_wrote_nothing_leaves_the_base_open)
{
	uint64_t g = grow(10000);

	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert_int_eq(report(g + 1, 0, 0, true), 0);
	/* Settled, but nobody knows whether the node has moved on. */
	ck_assert_uint_eq(layout_now()->from_generation, g);
	ck_assert_str_eq(layout_now()->primary, "a");
	/* So it need not move again. */
	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert_uint_eq(begun.generation, g + 1);
	ck_assert_uint_eq(begun.from_generation, g);
	ck_assert_int_eq(report(g + 1, 0, 0, true), 0);
	/* Both may be there: both are trash. */
	ck_assert_int_eq(do_unlink(w, &root, MD_ROOT_INO, "file"), 0);
	ck_assert(in_trash("a", g) && in_trash("a", g + 1));
	ck_assert_uint_eq(trash_count("a"), 2);
}
END_TEST

START_TEST(a_note_of_the_primary_closes_the_base)
{
	uint64_t g = grow(10000);

	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert_int_eq(report(g + 1, 0, 0, true), 0);
	ck_assert(change("a", g + 1, MD_COPY_STABLE, IS_THERE));
	ck_assert_uint_eq(layout_now()->from_generation, 0);
	ck_assert_str_eq(layout_now()->primary, "");
	/* Now it moves again. */
	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert_uint_eq(begun.generation, g + 2);
	ck_assert_int_eq(report(g + 2, 1, 1, true), 0);
}
END_TEST

START_TEST(reports_that_overtake_each_other_do_not_turn_the_size_back)
{
	uint64_t g = grow(10000);

	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert_int_eq(report(g + 1, 30000, 7, false), 0);
	ck_assert_int_eq(report(g + 1, 20000, 5, false), 0);
	ck_assert_uint_eq(w->attr.size, 30000);
	ck_assert_int_eq(report(g + 1, 20000, 8, true), 0);
	ck_assert_uint_eq(w->attr.size, 20000);
	ck_assert_int_eq(report(g + 1, 5, 9, false), -ESTALE); /* it is over */
}
END_TEST

START_TEST(a_report_of_another_user_takes_set_id_bits)
{
	ck_assert_int_eq(do_chmod(w, &root, file, 04777), 0);
	grow(10000);
	ck_assert_int_eq(do_chmod(w, &root, file, 04777), 0);
	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert_int_eq(report_as(&ann, begun.generation, 20000, 1, false, true), 0);
	ck_assert_uint_eq(w->attr.mode & 07777, 0777);
}
END_TEST

/* -- writers that vanish (rule B2) ------------------------------------------------------------ */

START_TEST(recovery_moves_the_generation_and_takes_the_primarys_size)
{
	uint64_t g = grow(10000);

	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert_int_eq(report(g + 1, 20000, 1, false), 0);
	ck_assert_int_eq(write_recover(false, 0), 0);
	ck_assert_uint_eq(recovered.generation, g + 2);
	ck_assert_uint_eq(recovered.from_generation, g + 1);
	/* What the old writer still says is refused. */
	ck_assert_int_eq(report(g + 1, 90000, 9, false), -ESTALE);
	/* A second time: the base stays, the fence moves. */
	ck_assert_int_eq(write_recover(false, 0), 0);
	ck_assert_uint_eq(recovered.generation, g + 3);
	ck_assert_uint_eq(recovered.from_generation, g + 1);
	check_world(w);
	ck_assert_int_eq(write_recover(true, 17000), 0);
	ck_assert_uint_eq(layout_now()->writing, 0);
	ck_assert_uint_eq(inode.size, 17000);
	ck_assert_uint_eq(inode.generation, g + 3);
	ck_assert(is_current("a"));
}
END_TEST

/* -- copies ----------------------------------------------------------------------------------- */

START_TEST(copies_count_when_they_have_the_generation)
{
	uint64_t g = grow(10000);

	ck_assert(!is_unbalanced());
	set_ncopy("3");
	ck_assert(is_unbalanced());
	ck_assert(change("b", g, MD_COPY_STABLE, IS_THERE));
	ck_assert_uint_eq(counted(), 2);
	ck_assert(is_unbalanced() && is_indexed("b"));
	ck_assert(change("c", g, MD_COPY_STABLE, IS_THERE));
	ck_assert_uint_eq(counted(), 3);
	ck_assert(!is_unbalanced());
	/* A cache copy counts towards nothing (rule B11). */
	ck_assert(change("d", g, MD_COPY_CACHE, IS_THERE));
	ck_assert_uint_eq(counted(), 3);
	ck_assert(!is_unbalanced());
	/* Nor does a damaged one. */
	ck_assert(change("c", g, MD_COPY_BAD, IS_THERE));
	ck_assert_uint_eq(counted(), 2);
	ck_assert(is_unbalanced());
	/* A generation that nobody has given is not believed. */
	ck_assert(!change("e", g + 1, 0, IS_THERE));
	ck_assert_ptr_null(copy_on("e"));
	set_ncopy("1");
	ck_assert(is_unbalanced());
}
END_TEST

START_TEST(writing_makes_the_others_stale_and_ends_caches)
{
	uint64_t g = grow(10000);

	set_ncopy("2");
	ck_assert(change("b", g, MD_COPY_STABLE, IS_THERE));
	ck_assert(change("c", g, MD_COPY_CACHE, IS_THERE));
	ck_assert_int_eq(write_begin("b"), 0);
	ck_assert(is_current("b") && !is_current("a"));
	ck_assert_ptr_null(copy_on("c"));
	ck_assert(in_trash("c", g) && !is_indexed("c"));
	/* Nothing is stable that is being written (rule B3). */
	ck_assert_uint_eq(copy_on("b")->flags, 0);
	ck_assert(change("b", g + 1, MD_COPY_STABLE, IS_THERE));
	ck_assert_uint_eq(copy_on("b")->flags, 0);
	/* A copy of the generation being written cannot be. */
	ck_assert(!change("a", g + 1, 0, IS_THERE));
	ck_assert(!is_unbalanced());
	ck_assert_int_eq(report(g + 1, 20000, 1, true), 0);
	ck_assert(is_unbalanced());
	/* The stale one is worth something until it has been brought up (rule B9). */
	ck_assert(!change("a", g, 0, TO_DELETE));
	ck_assert(change("a", g + 1, MD_COPY_STABLE, IS_THERE));
	ck_assert(!is_unbalanced() && !in_trash("a", g));
	/* A cache copy that comes too late goes. */
	ck_assert(!change("c", g, MD_COPY_CACHE, IS_THERE));
	ck_assert(in_trash("c", g));
}
END_TEST

START_TEST(the_last_copy_is_never_deleted)
{
	uint64_t g = grow(10000);

	ck_assert(!change("a", g, 0, TO_DELETE));
	ck_assert(!change("a", g, 0, IS_STALE));
	ck_assert(is_current("a"));
	ck_assert(change("b", g, MD_COPY_STABLE, IS_THERE));
	ck_assert(change("a", g, 0, TO_DELETE));
	ck_assert(in_trash("a", g) && !is_indexed("a"));
	ck_assert(!change("b", g, 0, TO_DELETE));
	/* What is to be deleted cannot become a copy before it has been. */
	ck_assert(!change("a", g, 0, IS_THERE));
	trash_done("a", g);
	ck_assert(!in_trash("a", g));
	trash_done("a", g); /* told twice */
	ck_assert(change("a", g, 0, IS_THERE));
	ck_assert_uint_eq(counted(), 2);
	/* Loss is no question of being allowed to. */
	ck_assert(change("a", g, 0, IS_GONE));
	ck_assert(change("b", g, 0, IS_GONE));
	ck_assert_uint_eq(counted(), 0);
	ck_assert(!in_trash("a", g) && !in_trash("b", g));
	ck_assert(is_unbalanced());
}
END_TEST

START_TEST(what_was_not_stable_becomes_stale_if_there_is_another)
{
	uint64_t g = grow(10000);

	set_ncopy("2");
	ck_assert(change("b", g, MD_COPY_STABLE, IS_THERE));
	ck_assert(change("a", g, 0, IS_STALE)); /* rule B3 */
	ck_assert(!is_current("a"));
	ck_assert_uint_eq(counted(), 1);
	ck_assert(is_unbalanced());
	ck_assert(change("a", g, 0, IS_STALE)); /* twice */
	/* The job that compared it with the other says that it is right. */
	ck_assert(change("a", g, MD_COPY_STABLE, IS_THERE));
	ck_assert(is_current("a") && !is_unbalanced());
	/* A cache copy in doubt just goes. */
	ck_assert(change("c", g, MD_COPY_CACHE, IS_THERE));
	ck_assert(change("c", g, 0, IS_STALE));
	ck_assert_ptr_null(copy_on("c"));
	ck_assert(in_trash("c", g));
}
END_TEST

START_TEST(the_primary_cannot_go_while_it_is_written)
{
	uint64_t g = grow(10000);

	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert(!change("a", g + 1, 0, IS_GONE));
	ck_assert(!change("a", g + 1, 0, TO_DELETE));
	ck_assert(!change("a", g + 1, 0, IS_STALE));
	ck_assert_int_eq(write_recover(true, 0), 0);
	ck_assert(change("a", g + 1, 0, IS_GONE));
}
END_TEST

START_TEST(what_is_not_listed_can_be_deleted_but_not_from_a_later_life)
{
	uint64_t g = grow(10000);

	ck_assert(change("b", g, 0, TO_DELETE));
	ck_assert(in_trash("b", g));
	ck_assert(!change("b", g + 1, 0, TO_DELETE)); /* rule N9 */
	ck_assert(!in_trash("b", g + 1));
	/* What the primary may have is its copy. */
	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert(!change("a", g, 0, TO_DELETE));
	ck_assert(!in_trash("a", g));
	ck_assert_int_eq(report(g + 1, 1, 1, true), 0);
	/* Of a file that is gone everything may go. */
	ck_assert_int_eq(do_unlink(w, &root, MD_ROOT_INO, "file"), 0);
	ck_assert(change("c", g, 0, TO_DELETE));
	ck_assert(in_trash("c", g));
	ck_assert(!change("c", g, 0, IS_THERE));
}
END_TEST

START_TEST(an_inode_has_a_bounded_number_of_copies)
{
	uint64_t g = grow(10000);
	char name[16];

	for (unsigned i = 1; i < MD_COPIES_MAX; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		ck_assert(change(name, g, 0, IS_THERE));
	}
	ck_assert(!change("more", g, 0, IS_THERE));
	ck_assert_uint_eq(layout_now()->n_copies, MD_COPIES_MAX);
}
END_TEST

START_TEST(deleting_and_truncating_make_trash_of_all_copies)
{
	uint64_t g = grow(10000);

	set_ncopy("2");
	ck_assert(change("b", g, MD_COPY_STABLE, IS_THERE));
	ck_assert_int_eq(truncate_file(), 0);
	ck_assert_ptr_null(layout_now());
	ck_assert(inode.flags & MD_INODE_INLINE);
	ck_assert(in_trash("a", g) && in_trash("b", g));
	ck_assert(!is_unbalanced() && !is_indexed("a") && !is_indexed("b"));
	/* The next object has a generation that no node has seen. */
	ck_assert_int_eq(write_begin("a"), 0);
	ck_assert_uint_gt(begun.generation, g);
	ck_assert_int_eq(do_unlink(w, &root, MD_ROOT_INO, "file"), 0);
	ck_assert(in_trash("a", begun.generation));
}
END_TEST

START_TEST(commands_that_make_no_sense_are_refused)
{
	PbMeta__CopyChangeRequest request = PB_META__COPY_CHANGE_REQUEST__INIT;
	PbMeta__CopyChangeReply reply = PB_META__COPY_CHANGE_REPLY__INIT;
	static const struct {
		const char *node;
		uint64_t generation;
		uint32_t flags, what;
	} rows[] = {{"", 1, 0, 1},   {"a", 0, 0, 1}, {"a", 1, 8, 1},
		    {"a", 1, 32, 1}, {"a", 1, 0, 0}, {"a", 1, 0, 5}};

	grow(10000);
	for (size_t i = 0; i < GX_COUNT_OF(rows); i++) {
		request.ino = file;
		request.node = (char *)(uintptr_t)rows[i].node;
		request.generation = rows[i].generation;
		request.flags = rows[i].flags;
		request.what = rows[i].what;
		ck_assert_int_eq(apply(w, &metad, RPC_COPY_CHANGE, &request.base, &reply.base),
				 -EINVAL);
	}
	request = (PbMeta__CopyChangeRequest)PB_META__COPY_CHANGE_REQUEST__INIT;
	request.ino = MD_ROOT_INO;
	request.node = (char *)(uintptr_t) "a";
	request.generation = request.what = 1;
	ck_assert_int_eq(apply(w, &metad, RPC_COPY_CHANGE, &request.base, &reply.base), -EINVAL);
}
END_TEST

START_TEST(the_boot_id_of_a_node_is_kept)
{
	PbMeta__NodeBootRequest request = PB_META__NODE_BOOT_REQUEST__INIT;
	PbMeta__NodeBootReply reply = PB_META__NODE_BOOT_REPLY__INIT;

	ck_assert_uint_eq(md_layout_boot(&w->state, "a"), 0);
	request.node = (char *)(uintptr_t) "a";
	ck_assert_int_eq(apply(w, &metad, RPC_NODE_BOOT, &request.base, &reply.base), -EINVAL);
	request.boot = UINT64_MAX - 1;
	ck_assert_int_eq(apply(w, &metad, RPC_NODE_BOOT, &request.base, &reply.base), 0);
	ck_assert_uint_eq(md_layout_boot(&w->state, "a"), UINT64_MAX - 1);
	request.boot = 7;
	ck_assert_int_eq(apply(w, &metad, RPC_NODE_BOOT, &request.base, &reply.base), 0);
	ck_assert_uint_eq(md_layout_boot(&w->state, "a"), 7);
	ck_assert_uint_eq(md_layout_boot(&w->state, "ab"), 0);
}
END_TEST

/* -- scans ------------------------------------------------------------------------------------ */

START_TEST(scans_go_on_where_a_page_ended)
{
	uint64_t inos[3], next = 0, files[10];
	size_t total = 0, written = 0, count;
	char name[16];

	for (unsigned i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		ck_assert_int_eq(do_create(w, &root, MD_ROOT_INO, name, 0644), 0);
		files[i] = file = w->attr.ino;
		grow(10000);
		if (i % 3 == 0)
			ck_assert_int_eq(write_begin("a"), 0);
	}
	/* Another node whose name begins alike is not in the way. */
	ck_assert(change("ab", begun.generation - 1, 0, IS_THERE));
	do {
		struct md_ctx ctx = ctx_of(w, &root);

		ck_assert_int_eq(md_layout_each_copy(&ctx, "a", next, 3, inos, &count, &next), 0);
		for (size_t i = 0; i < count; i++)
			ck_assert_uint_eq(inos[i], files[total++]);
	} while (next != 0);
	ck_assert_uint_eq(total, 10);
	do {
		struct md_ctx ctx = ctx_of(w, &root);

		ck_assert_int_eq(md_layout_each_written(&ctx, next, 3, inos, &count, &next), 0);
		for (size_t i = 0; i < count; i++)
			ck_assert_uint_eq(inos[i], files[3 * written++]);
	} while (next != 0);
	ck_assert_uint_eq(written, 4);
}
END_TEST

/* -- the checker finds what is wrong ---------------------------------------------------------- */

static void put(const struct md_key *key, const void *value, size_t bytes)
{
	md_kv_put(w->kv, key->bytes, key->count, value, bytes, (struct md_tag){0, 0}, true);
}

static void drop(const struct md_key *key)
{
	md_kv_delete(w->kv, key->bytes, key->count, (struct md_tag){0, 0});
}

static void put_layout(const PbMeta__LayoutRecord *layout)
{
	unsigned char bytes[4096];
	struct md_key key;

	md_key_layout(&key, file);
	put(&key, bytes, pb_meta__layout_record__pack(layout, bytes));
}

static void damage(int which, uint64_t g)
{
	PbMeta__LayoutRecord *layout = layout_now();
	struct md_key key;

	switch (which) {
	case 0: /* a copy that its node does not know of */
		md_key_copy(&key, "b", file);
		drop(&key);
		break;
	case 1: /* a node with a copy that is none */
		md_key_copy(&key, "z", file);
		put(&key, "", 0);
		break;
	case 2: /* a copy that is to be deleted */
		md_key_trash(&key, "b", file, g);
		put(&key, "", 0);
		break;
	case 3: /* not as wanted, and nobody knows */
		md_key_unbalanced(&key, file);
		drop(&key);
		break;
	case 4: /* no layout */
		md_key_layout(&key, file);
		drop(&key);
		break;
	case 5: /* one that nobody can read */
		md_key_layout(&key, file);
		put(&key, "\xff", 1);
		break;
	case 6: /* a layout of nobody */
		md_key_layout(&key, 4711);
		put(&key, "", 0);
		break;
	case 7: /* written, says one, settled the other */
		layout->writing = g;
		layout->primary = (char *)(uintptr_t) "a";
		put_layout(layout);
		break;
	case 8: /* a higher generation was given */
		layout->last_generation = g + 1;
		put_layout(layout);
		break;
	case 9: /* a copy more than the index has */
		layout->copies[1]->node = (char *)(uintptr_t) "c";
		put_layout(layout);
		break;
	case 10: /* trash that cannot be read */
		md_key_trash_all(&key, "b");
		put(&key, "", 0);
		break;
	case 11: /* a boot that is none */
		md_key_node(&key, "b");
		put(&key, "\0\0\0\0\0\0\0", 8);
		break;
	default:
		ck_abort();
	}
}

START_TEST(the_checker_finds_every_damage)
{
	uint64_t g;

	setup();
	g = grow(10000);
	set_ncopy("3");
	ck_assert(change("b", g, MD_COPY_STABLE, IS_THERE));
	check_world(w);
	damage(_i, g);
	ck_assert_int_gt(md_check(&w->state, NULL, NULL), 0);
	world_free(w);
}
END_TEST

/* -- any order -------------------------------------------------------------------------------- */

/* Commands at random, many of them no longer true: the state holds together after each. */
START_TEST(any_order_of_commands_leaves_a_sound_state)
{
	static const char *const names[] = {"a", "b", "c", "d"};
	unsigned seed = (unsigned)_i + 1;
	uint64_t g = 0;

	for (unsigned step = 0; step < 400; step++) {
		unsigned dice = (unsigned)rand_r(&seed) % 12;
		const char *node = names[(unsigned)rand_r(&seed) % 4];
		unsigned back = (unsigned)rand_r(&seed) % 3;
		int r = 0;

		if (do_getattr(w, &root, file) < 0)
			break;
		g = GX_MAX(g, GX_MAX(begun.generation, recovered.generation));
		if (dice < 2)
			r = write_begin(node);
		else if (dice == 2)
			r = report_as(&root, g, 9000 + step, step + 1, back == 0, back == 1);
		else if (dice == 3)
			r = report(g, step, step + 1, back == 0);
		else if (dice == 4)
			r = write_recover(back == 0, step);
		else if (dice < 10)
			GX_IGNORE(change(node, g > back ? g - back : 1,
					 (uint32_t)rand_r(&seed) & MD_COPY_FLAGS & ~8u,
					 1 + (unsigned)rand_r(&seed) % 4));
		else if (dice == 10)
			trash_done(node, g > back ? g - back : 1);
		else if (step % 50 == 49)
			r = truncate_file();
		ck_assert(r == 0 || r == -EBUSY || r == -EINVAL || r == -ESTALE);
		ck_assert_int_eq(md_check(&w->state, say_problem, NULL), 0);
	}
}
END_TEST

static Suite *layout_suite(void)
{
	Suite *s = suite_create("md_layout");
	TCase *tc = tcase_create("commands");
	TCase *damaged = tcase_create("damage");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, inline_content_is_the_truth_until_the_object_has_grown);
	tcase_add_test(tc, an_object_that_did_not_become_the_content_is_trash);
	tcase_add_test(tc, one_writing_at_a_time);
	tcase_add_test(tc, the_generation_moves_before_the_first_byte_changes);
	tcase_add_test(tc, a_writer_that_wrote_nothing_leaves_the_base_open);
	tcase_add_test(tc, a_note_of_the_primary_closes_the_base);
	tcase_add_test(tc, reports_that_overtake_each_other_do_not_turn_the_size_back);
	tcase_add_test(tc, a_report_of_another_user_takes_set_id_bits);
	tcase_add_test(tc, recovery_moves_the_generation_and_takes_the_primarys_size);
	tcase_add_test(tc, copies_count_when_they_have_the_generation);
	tcase_add_test(tc, writing_makes_the_others_stale_and_ends_caches);
	tcase_add_test(tc, the_last_copy_is_never_deleted);
	tcase_add_test(tc, what_was_not_stable_becomes_stale_if_there_is_another);
	tcase_add_test(tc, the_primary_cannot_go_while_it_is_written);
	tcase_add_test(tc, what_is_not_listed_can_be_deleted_but_not_from_a_later_life);
	tcase_add_test(tc, an_inode_has_a_bounded_number_of_copies);
	tcase_add_test(tc, deleting_and_truncating_make_trash_of_all_copies);
	tcase_add_test(tc, commands_that_make_no_sense_are_refused);
	tcase_add_test(tc, the_boot_id_of_a_node_is_kept);
	tcase_add_test(tc, scans_go_on_where_a_page_ended);
	tcase_add_loop_test(tc, any_order_of_commands_leaves_a_sound_state, 0, 40);
	suite_add_tcase(s, tc);
	tcase_add_loop_test(damaged, the_checker_finds_every_damage, 0, 12);
	suite_add_tcase(s, damaged);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(layout_suite());
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
