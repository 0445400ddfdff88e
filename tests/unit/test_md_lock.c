/*
 * The table of locks: splitting and joining, turns, deadlocks; and over random operations the same
 * answers as an array with a cell per byte and owner gives.
 */
#include "metad/md_lock.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#define POSIX MD_LOCK_POSIX
#define FLOCK MD_LOCK_FLOCK
#define NONE MD_LOCK_NONE
#define READ MD_LOCK_READ
#define WRITE MD_LOCK_WRITE
#define END MD_LOCK_END

static struct md_locks *table;
static uint64_t turns[64]; /* session * 1000 + id, in order */
static unsigned turn_count;

static void on_turn(void *arg GX_UNUSED, struct md_lock_wait *wait)
{
	if (turn_count < GX_COUNT_OF(turns))
		turns[turn_count] = wait->what.session * 1000 + wait->key.id;
	turn_count++;
}

static void make_table(size_t locks_max)
{
	struct md_locks_options options = {.locks_max = locks_max,
					   .locks_per_inode_max = locks_max,
					   .locks_per_session_max = locks_max,
					   .waits_max = 100,
					   .waits_per_session_max = 50,
					   .waits_per_inode_max = 60,
					   .turn_fn = on_turn};

	turn_count = 0;
	ck_assert_int_eq(md_locks_new(&options, &table), 0);
}

static void setup(void)
{
	make_table(1000);
}

static void teardown(void)
{
	md_locks_free(table);
}

static struct md_lock_what what(uint64_t session, uint64_t owner, unsigned type, uint64_t start,
				uint64_t end)
{
	return (struct md_lock_what){.ino = 7,
				     .session = session,
				     .owner = owner,
				     .kind = POSIX,
				     .type = type,
				     .start = start,
				     .end = end,
				     .pid = (uint32_t)(100 + owner)};
}

static int set_on(uint64_t ino, uint64_t session, unsigned type, uint64_t start, uint64_t end,
		  uint64_t wait)
{
	struct md_lock_what w = what(session, 1, type, start, end);

	w.ino = ino;
	return md_lock_set(table, &w, wait, NULL);
}

static int set(uint64_t session, unsigned type, uint64_t start, uint64_t end, uint64_t wait)
{
	return set_on(7, session, type, start, end, wait);
}

static int flock_as(uint64_t session, unsigned type, uint64_t wait)
{
	struct md_lock_what w = what(session, 1, type, 0, END);

	w.kind = FLOCK;
	return md_lock_set(table, &w, wait, NULL);
}

/* What is in the way of a stranger who wants this byte: "r", "w" or "-" for each. */
static const char *picture(uint64_t bytes)
{
	static char text[64];

	for (uint64_t i = 0; i < bytes; i++) {
		struct md_lock_what w = what(99, 1, WRITE, i, i), conflict;

		text[i] = '-';
		if (md_lock_test(table, &w, &conflict))
			text[i] = conflict.type == WRITE ? 'w' : 'r';
	}
	text[bytes] = '\0';
	return text;
}

START_TEST(ranges_split_join_and_change_their_type)
{
	ck_assert_int_eq(set(1, WRITE, 2, 5, 0), 0);
	ck_assert_int_eq(set(1, WRITE, 6, 7, 0), 0); /* touches: one lock */
	ck_assert_uint_eq(md_lock_count(table), 1);
	ck_assert_str_eq(picture(10), "--wwwwww--");
	ck_assert_int_eq(set(1, READ, 4, 5, 0), 0); /* downgrade in the middle */
	ck_assert_uint_eq(md_lock_count(table), 3);
	ck_assert_str_eq(picture(10), "--wwrrww--");
	ck_assert_int_eq(set(1, NONE, 3, 4, 0), 0);
	ck_assert_str_eq(picture(10), "--w--rww--");
	ck_assert_int_eq(set(1, WRITE, 0, 9, 0), 0); /* upgrade over all */
	ck_assert_uint_eq(md_lock_count(table), 1);
	ck_assert_int_eq(set(1, NONE, 4, 4, 0), 0);
	ck_assert_uint_eq(md_lock_count(table), 2);
	ck_assert_str_eq(picture(10), "wwww-wwwww");
	ck_assert_int_eq(set(1, NONE, 5, END, 0), 0);
	ck_assert_str_eq(picture(10), "wwww------");
	ck_assert_int_eq(set(1, NONE, 0, END, 0), 0);
	ck_assert_uint_eq(md_lock_count(table), 0);
	ck_assert_uint_eq(md_lock_count_of(table, 1), 0);
}
END_TEST

START_TEST(to_the_end_of_the_file_is_further_than_any_byte)
{
	struct md_lock_what conflict, w = what(2, 1, READ, END, END);

	ck_assert_int_eq(set(1, WRITE, 100, END, 0), 0);
	ck_assert_int_eq(set(2, WRITE, 0, 99, 0), 0);
	ck_assert(md_lock_test(table, &w, &conflict));
	ck_assert_uint_eq(conflict.start, 100);
	ck_assert_uint_eq(conflict.end, END);
	ck_assert_uint_eq(conflict.session, 1);
	ck_assert_uint_eq(conflict.pid, 101);
	ck_assert_int_eq(set(1, WRITE, 200, 300, 0), 0); /* within: still one */
	ck_assert_uint_eq(md_lock_count_of(table, 1), 1);
}
END_TEST

START_TEST(what_cannot_be_is_refused)
{
	struct md_lock_what w = what(1, 1, WRITE, 5, 4);

	ck_assert_int_eq(md_lock_check(&w), -EINVAL);
	w = what(1, 1, WRITE, 0, END + 1);
	ck_assert_int_eq(md_lock_check(&w), -EINVAL);
	w = what(1, 1, 3, 0, 4);
	ck_assert_int_eq(md_lock_check(&w), -EINVAL);
	w = what(1, 1, READ, 0, 4);
	ck_assert_int_eq(md_lock_check(&w), 0);
	w.kind = FLOCK;
	ck_assert_int_eq(md_lock_check(&w), -EINVAL);
	w.end = END;
	ck_assert_int_eq(md_lock_check(&w), 0);
	w.kind = 3;
	ck_assert_int_eq(md_lock_check(&w), -EINVAL);
	w.kind = 0;
	ck_assert_int_eq(md_lock_check(&w), -EINVAL);
}
END_TEST

START_TEST(readers_share_and_a_writer_is_alone)
{
	ck_assert_int_eq(set(1, READ, 0, 9, 0), 0);
	ck_assert_int_eq(set(2, READ, 5, 14, 0), 0);
	ck_assert_int_eq(set(3, WRITE, 9, 20, 0), -EAGAIN);
	ck_assert_int_eq(set(1, WRITE, 0, 4, 0), 0); /* upgrades what nobody shares */
	ck_assert_int_eq(set(1, WRITE, 0, 5, 0), -EAGAIN);
	ck_assert_str_eq(picture(16), "wwwwwrrrrrrrrrr-");
	ck_assert_uint_eq(turn_count, 0);
}
END_TEST

START_TEST(the_first_who_waits_gets_his_turn_first_and_readers_do_not_pass_a_writer)
{
	ck_assert_int_eq(set(1, READ, 0, 9, 0), 0);
	ck_assert_int_eq(set(2, WRITE, 0, 9, 1), -EAGAIN);
	ck_assert_int_eq(set(3, READ, 0, 9, 1), -EAGAIN);
	ck_assert_int_eq(set(4, READ, 0, 9, 1), -EAGAIN);
	ck_assert_int_eq(set(5, READ, 20, 29, 1), 0); /* in nobody's way */
	ck_assert_int_eq(set(6, READ, 0, 9, 0), 0);   /* a try minds no queue … */
	ck_assert_int_eq(set(6, NONE, 0, 9, 0), 0);
	ck_assert_uint_eq(turn_count, 0);
	ck_assert_int_eq(set(1, NONE, 0, 9, 0), 0);
	ck_assert_uint_eq(turn_count, 1);
	ck_assert_uint_eq(turns[0], 2001);
	ck_assert_int_eq(set(6, READ, 0, 9, 0), -EAGAIN); /* … but it minds a turn */
	ck_assert_int_eq(set(2, WRITE, 0, 9, 1), 0);
	ck_assert_uint_eq(md_lock_wait_count(table), 2);
	ck_assert_int_eq(set(2, NONE, 0, 9, 0), 0);
	ck_assert_uint_eq(turn_count, 3); /* both readers */
	ck_assert_int_eq(set(4, READ, 0, 9, 1), 0);
	ck_assert_int_eq(set(3, READ, 0, 9, 1), 0);
	ck_assert_uint_eq(md_lock_wait_count(table), 0);
}
END_TEST

START_TEST(asking_again_keeps_the_place_and_gives_nothing_twice)
{
	ck_assert_int_eq(set(1, WRITE, 0, 9, 0), 0);
	ck_assert_int_eq(set(2, WRITE, 0, 9, 1), -EAGAIN);
	ck_assert_int_eq(set(3, WRITE, 0, 9, 1), -EAGAIN);
	ck_assert_int_eq(set(2, WRITE, 0, 9, 1), -EAGAIN);
	ck_assert_uint_eq(md_lock_wait_count(table), 2);
	ck_assert_int_eq(set(1, NONE, 0, 9, 0), 0);
	ck_assert_uint_eq(turns[0], 2001);
	ck_assert_int_eq(set(2, WRITE, 0, 9, 1), 0);
	ck_assert_int_eq(set(2, WRITE, 0, 9, 1), 0); /* the answer got lost */
	ck_assert_uint_eq(md_lock_count(table), 1);
	ck_assert_uint_eq(md_lock_wait_count(table), 1);
}
END_TEST

START_TEST(a_place_that_is_given_up_lets_the_next_go)
{
	ck_assert_int_eq(set(1, READ, 0, 9, 0), 0);
	ck_assert_int_eq(set(2, WRITE, 0, 9, 1), -EAGAIN);
	ck_assert_int_eq(set(3, READ, 0, 9, 1), -EAGAIN);
	md_lock_wait_drop(table, md_lock_wait_find(table, 2, 1));
	ck_assert_uint_eq(turn_count, 1);
	ck_assert_uint_eq(turns[0], 3001);
	/* And a turn that nobody uses. */
	md_lock_wait_drop(table, md_lock_wait_find(table, 3, 1));
	ck_assert_uint_eq(md_lock_wait_count(table), 0);
	ck_assert_ptr_null(md_lock_wait_first(table, 3));
}
END_TEST

START_TEST(a_circle_of_waiting_owners_is_refused)
{
	ck_assert_int_eq(set_on(1, 1, WRITE, 0, 9, 0), 0);
	ck_assert_int_eq(set_on(2, 2, WRITE, 0, 9, 0), 0);
	ck_assert_int_eq(set_on(3, 3, WRITE, 0, 9, 0), 0);
	ck_assert_int_eq(set_on(2, 1, WRITE, 5, 5, 1), -EAGAIN);
	ck_assert_int_eq(set_on(3, 2, READ, 0, 0, 1), -EAGAIN);
	ck_assert_int_eq(set_on(1, 3, WRITE, 9, END, 1), -EDEADLK);
	ck_assert_uint_eq(md_lock_wait_count(table), 2);
	ck_assert_int_eq(set_on(1, 3, WRITE, 9, END, 0), -EAGAIN); /* a try waits for nobody */
	ck_assert_int_eq(set_on(3, 3, NONE, 0, END, 0), 0);
	ck_assert_uint_eq(turns[0], 2001);
	ck_assert_int_eq(set_on(1, 3, WRITE, 9, END, 1), -EAGAIN); /* holds nothing now */
}
END_TEST

START_TEST(two_readers_who_both_want_to_write_are_a_deadlock)
{
	ck_assert_int_eq(set(1, READ, 0, 9, 0), 0);
	ck_assert_int_eq(set(2, READ, 0, 9, 0), 0);
	ck_assert_int_eq(set(1, WRITE, 0, 9, 1), -EAGAIN);
	ck_assert_int_eq(set(2, WRITE, 0, 9, 1), -EDEADLK);
	ck_assert_int_eq(set(2, NONE, 0, 9, 0), 0);
	ck_assert_uint_eq(turns[0], 1001);
}
END_TEST

START_TEST(nobody_stands_behind_one_who_waits_for_him)
{
	/* Upgrade: 2 waits for 1's reading lock, so 1 does not wait behind 2. */
	ck_assert_int_eq(set(1, READ, 0, 9, 0), 0);
	ck_assert_int_eq(set(2, WRITE, 0, 9, 1), -EAGAIN);
	ck_assert_int_eq(set(1, WRITE, 0, 9, 1), 0);
	ck_assert_int_eq(set(1, READ, 0, 9, 0), 0);
	/* 3 waits behind 2, until 1, for whom 2 waits, waits for 3. */
	ck_assert_int_eq(set_on(8, 3, WRITE, 0, 9, 0), 0);
	ck_assert_int_eq(set(3, READ, 0, 9, 1), -EAGAIN);
	ck_assert_uint_eq(turn_count, 0);
	ck_assert_int_eq(set_on(8, 1, WRITE, 0, 9, 1), -EAGAIN);
	ck_assert_uint_eq(turn_count, 1);
	ck_assert_uint_eq(turns[0], 3001);
}
END_TEST

START_TEST(flocks_and_posix_locks_do_not_see_each_other)
{
	ck_assert_int_eq(set(1, WRITE, 0, END, 0), 0);
	ck_assert_int_eq(flock_as(2, WRITE, 0), 0);
	ck_assert_int_eq(flock_as(1, READ, 0), -EAGAIN);
	ck_assert_int_eq(set(2, READ, 0, 0, 0), -EAGAIN);
	ck_assert_int_eq(flock_as(2, NONE, 0), 0);
	ck_assert_int_eq(flock_as(1, READ, 0), 0);
}
END_TEST

START_TEST(a_flock_that_cannot_be_changed_is_lost)
{
	ck_assert_int_eq(flock_as(1, READ, 0), 0);
	ck_assert_int_eq(flock_as(2, READ, 0), 0);
	ck_assert_int_eq(flock_as(1, WRITE, 1), -EAGAIN); /* has none while it waits */
	ck_assert_uint_eq(md_lock_count_of(table, 1), 0);
	ck_assert_int_eq(flock_as(2, WRITE, 1), 0); /* the first waits for this one */
	ck_assert_uint_eq(turn_count, 0);
	ck_assert_int_eq(flock_as(3, READ, 1), -EAGAIN);
	ck_assert_int_eq(flock_as(2, READ, 0), 0); /* downgrade, at once */
	ck_assert_uint_eq(turn_count, 0);
	ck_assert_int_eq(flock_as(2, NONE, 0), 0);
	ck_assert_uint_eq(turn_count, 1);
	ck_assert_uint_eq(turns[0], 1001);
	ck_assert_int_eq(flock_as(1, WRITE, 1), 0);
}
END_TEST

START_TEST(a_session_that_ends_leaves_nothing)
{
	ck_assert_int_eq(set_on(1, 1, WRITE, 0, 9, 0), 0);
	ck_assert_int_eq(set_on(2, 1, READ, 0, 9, 0), 0);
	ck_assert_int_eq(flock_as(1, WRITE, 0), 0);
	ck_assert_int_eq(set_on(1, 2, READ, 0, 9, 1), -EAGAIN);
	ck_assert_int_eq(set_on(5, 3, WRITE, 0, 9, 0), 0);
	ck_assert_int_eq(set_on(5, 1, WRITE, 0, 9, 9), -EAGAIN);
	ck_assert(md_lock_has(table, 1, 1));
	ck_assert(!md_lock_has(table, 1, 99));
	md_lock_release_inode(table, 1, 1);
	ck_assert(!md_lock_has(table, 1, 1));
	ck_assert_uint_eq(turns[0], 2001);
	ck_assert(!md_lock_release_session(table, 1, 1));
	ck_assert(md_lock_release_session(table, 1, 10));
	ck_assert_uint_eq(md_lock_count_of(table, 1), 0);
	ck_assert_ptr_null(md_lock_wait_first(table, 1));
	ck_assert(md_lock_release_session(table, 1, 1));
	ck_assert_uint_eq(md_lock_count(table), 1);
}
END_TEST

START_TEST(there_are_so_many_and_no_more)
{
	md_locks_free(table);
	make_table(3);
	ck_assert_int_eq(set(1, WRITE, 0, 9, 0), 0);
	ck_assert_int_eq(set(1, WRITE, 20, 29, 0), 0);
	ck_assert_int_eq(set(1, WRITE, 40, 49, 0), 0);
	ck_assert_int_eq(set(1, WRITE, 60, 69, 0), -ENOLCK);
	ck_assert_int_eq(set(1, NONE, 5, 5, 0), -ENOLCK); /* would be four */
	ck_assert_str_eq(picture(12), "wwwwwwwwww--");
	ck_assert_int_eq(set(1, NONE, 0, 5, 0), 0);
	for (uint64_t i = 1; i <= 50; i++)
		ck_assert_int_eq(set(2, READ, 45, 45, i), -EAGAIN);
	ck_assert_int_eq(set(2, READ, 45, 45, 51), -ENOLCK);
	for (uint64_t i = 1; i <= 10; i++)
		ck_assert_int_eq(set(3, READ, 45, 45, i), -EAGAIN);
	ck_assert_int_eq(set(3, READ, 45, 45, 11), -ENOLCK); /* on this inode */
	ck_assert_uint_eq(md_lock_wait_count(table), 60);
}
END_TEST

static void note_blocker(void *arg, const struct md_lock_what *holder)
{
	uint64_t *sessions = arg;

	*sessions = *sessions * 10 + holder->session;
}

START_TEST(who_is_in_the_way_of_those_who_wait)
{
	uint64_t sessions = 0;

	ck_assert_int_eq(set_on(1, 1, WRITE, 0, 9, 0), 0);
	ck_assert_int_eq(set_on(2, 2, WRITE, 0, 9, 0), 0);
	ck_assert_int_eq(set_on(3, 3, WRITE, 0, 9, 0), 0);
	ck_assert_int_eq(set_on(1, 4, WRITE, 0, 9, 1), -EAGAIN);
	ck_assert_int_eq(set_on(2, 4, READ, 9, 20, 2), -EAGAIN);
	md_lock_each_blocker(table, note_blocker, &sessions);
	ck_assert_uint_eq(sessions, 12);
}
END_TEST

/* -- a model ------------------------------------------------------------------------------------
 */

#define BYTES 12u /* the last stands for all behind */
#define INODES 3u
#define OWNERS 9u /* three of each of three sessions */
#define SESSIONS 3u
#define MODEL_WAITS 64u

struct model_wait {
	bool used, turn;
	uint64_t order;
	unsigned owner, ino, kind, type, start, end;
	uint64_t id;
};

static unsigned char held[2][INODES][OWNERS][BYTES];
static struct model_wait waits[MODEL_WAITS];
static uint64_t orders, ids;
static uint64_t rng;
static struct {
	uint64_t got, blocked, deadlocks, turned, dropped;
} counts;

static unsigned below(unsigned n)
{
	rng = rng * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (unsigned)((rng >> 33) % n);
}

static uint64_t session_of(unsigned owner)
{
	return owner / 3 + 1;
}

static uint64_t byte_end(unsigned byte)
{
	return byte == BYTES - 1 ? END : byte;
}

static struct md_lock_what model_what(unsigned kind, unsigned ino, unsigned owner, unsigned type,
				      unsigned start, unsigned end)
{
	return (struct md_lock_what){.ino = ino + 1,
				     .session = session_of(owner),
				     .owner = owner,
				     .kind = kind + 1,
				     .type = type,
				     .start = start,
				     .end = byte_end(end)};
}

static bool against(unsigned a, unsigned b)
{
	return a != NONE && b != NONE && (a == WRITE || b == WRITE);
}

static bool in_way(unsigned other, unsigned owner, unsigned kind, unsigned ino, unsigned type,
		   unsigned start, unsigned end)
{
	if (other == owner)
		return false;
	for (unsigned b = start; b <= end; b++)
		if (against(held[kind][ino][other][b], type))
			return true;
	return false;
}

static bool held_against(unsigned owner, unsigned kind, unsigned ino, unsigned type, unsigned start,
			 unsigned end)
{
	for (unsigned o = 0; o < OWNERS; o++)
		if (in_way(o, owner, kind, ino, type, start, end))
			return true;
	return false;
}

static bool wait_against(const struct model_wait *w, unsigned owner, unsigned kind, unsigned ino,
			 unsigned type, unsigned start, unsigned end)
{
	return w->used && w->owner != owner && w->kind == kind && w->ino == ino &&
	       w->start <= end && w->end >= start && against(w->type, type);
}

static bool turn_against(unsigned owner, unsigned kind, unsigned ino, unsigned type, unsigned start,
			 unsigned end)
{
	for (unsigned i = 0; i < MODEL_WAITS; i++)
		if (waits[i].turn && wait_against(&waits[i], owner, kind, ino, type, start, end))
			return true;
	return false;
}

/* Waits `from` for `to` over any number of others? By locks, and by queues too if asked. */
static bool model_waits_for(unsigned from, unsigned to, unsigned kind, bool queues)
{
	bool edge[OWNERS][OWNERS] = {{false}};

	for (unsigned i = 0; i < MODEL_WAITS; i++) {
		const struct model_wait *w = &waits[i];

		if (!w->used || w->kind != kind)
			continue;
		for (unsigned o = 0; o < OWNERS; o++)
			if (in_way(o, w->owner, kind, w->ino, w->type, w->start, w->end))
				edge[w->owner][o] = true;
		for (unsigned j = 0; queues && j < MODEL_WAITS; j++)
			if (waits[j].order < w->order &&
			    wait_against(&waits[j], w->owner, kind, w->ino, w->type, w->start,
					 w->end))
				edge[w->owner][waits[j].owner] = true;
	}
	for (unsigned k = 0; k < OWNERS; k++)
		for (unsigned i = 0; i < OWNERS; i++)
			for (unsigned j = 0; j < OWNERS; j++)
				edge[i][j] = edge[i][j] || (edge[i][k] && edge[k][j]);
	return edge[from][to];
}

static bool model_deadlock(unsigned owner, unsigned kind, unsigned ino, unsigned type,
			   unsigned start, unsigned end)
{
	for (unsigned o = 0; o < OWNERS && kind == POSIX - 1; o++)
		if (in_way(o, owner, kind, ino, type, start, end) &&
		    model_waits_for(o, owner, kind, false))
			return true;
	return false;
}

/* Must it stand behind an earlier one? */
static bool queue_against(unsigned owner, unsigned kind, unsigned ino, unsigned type,
			  unsigned start, unsigned end, uint64_t order)
{
	for (unsigned i = 0; i < MODEL_WAITS; i++)
		if (waits[i].order < order &&
		    wait_against(&waits[i], owner, kind, ino, type, start, end) &&
		    !model_waits_for(waits[i].owner, owner, kind, true))
			return true;
	return false;
}

static void model_turn(void *arg GX_UNUSED, struct md_lock_wait *wait)
{
	struct model_wait *w = NULL;

	for (unsigned i = 0; i < MODEL_WAITS; i++)
		if (waits[i].used && waits[i].id == wait->key.id)
			w = &waits[i];
	/* One that is being put into the queue just now is not in the model yet. */
	if (w)
		w->turn = true;
	counts.turned++;
}

static void model_set(unsigned kind, unsigned ino, unsigned owner, unsigned type, unsigned start,
		      unsigned end)
{
	memset(&held[kind][ino][owner][start], (int)type, end - start + 1);
}

static struct model_wait *free_wait(void)
{
	for (unsigned i = 0; i < MODEL_WAITS; i++)
		if (!waits[i].used)
			return &waits[i];
	return NULL;
}

/* The same question to both. */
static void compare(void)
{
	struct md_lock_what conflict;

	for (unsigned kind = 0; kind < 2; kind++)
		for (unsigned ino = 0; ino < INODES; ino++)
			for (unsigned o = 0; o <= OWNERS; o++)
				for (unsigned b = 0; b < BYTES; b++)
					for (unsigned type = READ; type <= WRITE; type++) {
						struct md_lock_what w =
							model_what(kind, ino, o, type, b, b);
						bool mine =
							held_against(o, kind, ino, type, b, b) ||
							turn_against(o, kind, ino, type, b, b);

						w.session = o == OWNERS ? 99 : w.session;
						/* An assertion is a system call. */
						if (md_lock_test(table, &w, &conflict) != mine)
							ck_abort_msg("byte %u of %u for %u", b, ino,
								     o);
					}
}

/* Who waits has a reason to, and who has his turn can use it. */
static void check_waits(void)
{
	for (unsigned i = 0; i < MODEL_WAITS; i++) {
		const struct model_wait *w = &waits[i];
		bool by_lock;

		if (!w->used)
			continue;
		by_lock = held_against(w->owner, w->kind, w->ino, w->type, w->start, w->end);
		if (w->turn && by_lock)
			ck_abort_msg("a turn that cannot be used");
		if (w->turn || by_lock)
			continue;
		if (!turn_against(w->owner, w->kind, w->ino, w->type, w->start, w->end) &&
		    !queue_against(w->owner, w->kind, w->ino, w->type, w->start, w->end, w->order))
			ck_abort_msg("nobody is in the way of one who waits");
	}
}

static void request(unsigned kind, unsigned ino, unsigned owner, unsigned type, unsigned start,
		    unsigned end, bool wait)
{
	struct md_lock_what w = model_what(kind, ino, owner, type, start, end);
	struct model_wait *place = wait ? free_wait() : NULL;
	bool blocked, deadlock;
	int r;

	if (wait && !place)
		return;
	blocked = held_against(owner, kind, ino, type, start, end) ||
		  turn_against(owner, kind, ino, type, start, end) ||
		  (wait && queue_against(owner, kind, ino, type, start, end, UINT64_MAX));
	deadlock = wait && model_deadlock(owner, kind, ino, type, start, end);
	if (blocked && kind == FLOCK - 1)
		model_set(kind, ino, owner, NONE, 0, BYTES - 1);
	if (blocked && wait && !deadlock)
		*place = (struct model_wait){true, false, ++orders, owner, ino,
					     kind, type,  start,    end,   ++ids};
	if (!blocked)
		model_set(kind, ino, owner, type, start, end);
	r = md_lock_set(table, &w, wait ? (blocked && !deadlock ? ids : ++ids) : 0, NULL);
	ck_assert_int_eq(r, !blocked ? 0 : deadlock ? -EDEADLK : -EAGAIN);
	counts.got += !blocked;
	counts.blocked += r == -EAGAIN;
	counts.deadlocks += r == -EDEADLK;
}

static void use_turn(struct model_wait *w)
{
	struct md_lock_what what_w =
		model_what(w->kind, w->ino, w->owner, w->type, w->start, w->end);
	struct model_wait copy = *w;

	w->used = w->turn = false;
	model_set(copy.kind, copy.ino, copy.owner, copy.type, copy.start, copy.end);
	ck_assert_int_eq(md_lock_set(table, &what_w, copy.id, NULL), 0);
}

static void drop(struct model_wait *w)
{
	struct md_lock_wait *found = md_lock_wait_find(table, session_of(w->owner), w->id);

	ck_assert_ptr_nonnull(found);
	w->used = w->turn = false;
	counts.dropped++;
	md_lock_wait_drop(table, found);
}

static void forget_session(uint64_t session, unsigned ino)
{
	for (unsigned o = 0; o < OWNERS; o++) {
		if (session_of(o) != session)
			continue;
		for (unsigned kind = 0; kind < 2; kind++)
			for (unsigned i = 0; i < INODES; i++)
				if (ino == INODES || i == ino)
					memset(held[kind][i][o], NONE, BYTES);
	}
	for (unsigned i = 0; i < MODEL_WAITS; i++)
		if (waits[i].used && session_of(waits[i].owner) == session &&
		    (ino == INODES || waits[i].ino == ino))
			waits[i].used = waits[i].turn = false;
}

static void random_request(void)
{
	unsigned kind = below(4) == 0, start = 0, end = BYTES - 1;

	if (kind == POSIX - 1) {
		start = below(BYTES);
		end = start + below(BYTES - start);
	}
	request(kind, below(INODES), below(OWNERS), below(3), start, end, below(3) == 0);
}

static void step(void)
{
	struct model_wait *w = &waits[below(MODEL_WAITS)];
	unsigned session = 1 + below(SESSIONS), ino = below(INODES);

	switch (below(40)) {
	case 0:
		forget_session(session, ino);
		md_lock_release_inode(table, session, ino + 1);
		break;
	case 1:
		if (below(4) != 0)
			break;
		forget_session(session, INODES);
		ck_assert(md_lock_release_session(table, session, UINT32_MAX));
		break;
	case 2:
		if (w->used)
			drop(w);
		break;
	default:
		if (w->used && w->turn)
			use_turn(w);
		else
			random_request();
	}
}

/* Everybody lets go: all who wait get what they want, sooner or later. */
static void finish(void)
{
	for (unsigned rounds = 0; md_lock_wait_count(table) > 0; rounds++) {
		ck_assert_msg(rounds < 1000, "somebody waits for ever");
		for (unsigned i = 0; i < MODEL_WAITS; i++)
			if (waits[i].turn)
				use_turn(&waits[i]);
		for (unsigned kind = 0; kind < 2; kind++)
			for (unsigned ino = 0; ino < INODES; ino++)
				for (unsigned o = 0; o < OWNERS; o++)
					request(kind, ino, o, NONE, 0, BYTES - 1, false);
	}
	ck_assert_uint_eq(md_lock_count(table), 0);
}

START_TEST(random_operations_agree_with_a_model)
{
	struct md_locks_options options = {.locks_max = 10000,
					   .locks_per_inode_max = 10000,
					   .locks_per_session_max = 10000,
					   .waits_max = 1000,
					   .waits_per_session_max = 1000,
					   .waits_per_inode_max = 1000,
					   .turn_fn = model_turn};

	for (unsigned seed = 1; seed <= 60; seed++) {
		ck_assert_int_eq(md_locks_new(&options, &table), 0);
		memset(held, 0, sizeof(held));
		memset(waits, 0, sizeof(waits));
		rng = seed;
		for (unsigned i = 0; i < 600; i++) {
			step();
			if (i % 4 == 0)
				check_waits();
			if (i % 20 == 0)
				compare();
		}
		finish();
		md_locks_free(table);
	}
	printf("%llu got, %llu blocked, %llu deadlocks, %llu turns, %llu given up\n",
	       (unsigned long long)counts.got, (unsigned long long)counts.blocked,
	       (unsigned long long)counts.deadlocks, (unsigned long long)counts.turned,
	       (unsigned long long)counts.dropped);
	ck_assert_uint_gt(counts.deadlocks, 100);
	ck_assert_uint_gt(counts.turned, 1000);
	ck_assert_uint_gt(counts.dropped, 50);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_lock");
	TCase *tc = tcase_create("table"), *model = tcase_create("model");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, ranges_split_join_and_change_their_type);
	tcase_add_test(tc, to_the_end_of_the_file_is_further_than_any_byte);
	tcase_add_test(tc, what_cannot_be_is_refused);
	tcase_add_test(tc, readers_share_and_a_writer_is_alone);
	tcase_add_test(tc,
		       the_first_who_waits_gets_his_turn_first_and_readers_do_not_pass_a_writer);
	tcase_add_test(tc, asking_again_keeps_the_place_and_gives_nothing_twice);
	tcase_add_test(tc, a_place_that_is_given_up_lets_the_next_go);
	tcase_add_test(tc, a_circle_of_waiting_owners_is_refused);
	tcase_add_test(tc, two_readers_who_both_want_to_write_are_a_deadlock);
	tcase_add_test(tc, nobody_stands_behind_one_who_waits_for_him);
	tcase_add_test(tc, flocks_and_posix_locks_do_not_see_each_other);
	tcase_add_test(tc, a_flock_that_cannot_be_changed_is_lost);
	tcase_add_test(tc, a_session_that_ends_leaves_nothing);
	tcase_add_test(tc, there_are_so_many_and_no_more);
	tcase_add_test(tc, who_is_in_the_way_of_those_who_wait);
	suite_add_tcase(suite, tc);
	tcase_set_timeout(model, 120);
	tcase_add_test(model, random_operations_agree_with_a_model);
	suite_add_tcase(suite, model);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
