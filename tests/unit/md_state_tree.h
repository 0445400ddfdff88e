/*
 * A small tree that the tests of the state machine start from. Afterwards the whole state is
 * checked, and replaying what was recorded must give the same bytes.
 */
#ifndef TEST_MD_STATE_TREE_H
#define TEST_MD_STATE_TREE_H

#include "md_state_fixture.h"

#define ROOT MD_ROOT_INO

static const uint64_t no_such_inode = 99999;
static struct world *w;
/* ann's: home (0755), home/file (0644), home/empty (0755), home/full (0755) with a file x. */
static uint64_t home, file, empty, full, full_x;

static void setup(void)
{
	w = world_new(0);
	ck_assert_int_eq(do_chmod(w, &root, ROOT, 0777), 0);
	ck_assert_int_eq(do_mkdir(w, &ann, ROOT, "home", 0755), 0);
	home = w->attr.ino;
	ck_assert_int_eq(do_create(w, &ann, home, "file", 0644), 0);
	file = w->attr.ino;
	ck_assert_int_eq(do_mkdir(w, &ann, home, "empty", 0755), 0);
	empty = w->attr.ino;
	ck_assert_int_eq(do_mkdir(w, &ann, home, "full", 0755), 0);
	full = w->attr.ino;
	ck_assert_int_eq(do_create(w, &ann, full, "x", 0644), 0);
	full_x = w->attr.ino;
	world_sync(w);
}

static void teardown(void)
{
	struct world *replayed;

	check_world(w);
	replayed = world_replay(w, 1);
	assert_same_state(w, replayed);
	world_free(replayed);
	world_free(w);
}

GX_UNUSED static PbMeta__Attr attr_of(uint64_t ino)
{
	ck_assert_int_eq(do_getattr(w, &root, ino), 0);
	return w->attr;
}

GX_UNUSED static uint64_t ino_of(uint64_t parent, const char *name)
{
	ck_assert_int_eq(do_lookup(w, &root, parent, name), 0);
	return w->attr.ino;
}

#endif
