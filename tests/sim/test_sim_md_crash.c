/*
 * metad dies at every point of every short sequence of operations.
 *
 * A client does one to three operations of the alphabet below; metad dies in the n-th call it makes
 * to disk or network from then on, for each n. Two things are owed. If the client dies too: the
 * tree afterwards is the one after some number of operations, at least those answered (kill) or
 * synced (power cut); none is there by half. If the client lives: every operation has the result it
 * would have had without the crash, and the tree is the same too, so all was done exactly once.
 *
 * What is right is taken from runs without a crash. CRASH_ONE="ab" runs one sequence alone.
 */
#include "tests/sim/md_life.h"

#define LETTERS 10u
#define LENGTH_MAX 3u
#define SEQUENCES (1 + LETTERS + LETTERS * LETTERS + LETTERS * LETTERS * LETTERS)
#define SETTLE_NS (20 * GX_NSEC_PER_MSEC)

/* What a sequence ends with when nothing goes wrong. */
struct expected {
	bool known;
	int results[LENGTH_MAX];
	char tree[768];
};
static struct expected expected[SEQUENCES];

struct sequence {
	unsigned length;
	unsigned letters[LENGTH_MAX];
};

static struct run {
	struct sequence sequence;
	int results[LENGTH_MAX];
	unsigned begun, answered, synced;
	int end_err; /* of sync, close and leaving, in a client that lives */
	uint64_t crash_at;
} run;

/* -- the alphabet ------------------------------------------------------------------------------ */

struct client {
	struct gfc *gfc;
	struct gfc_ref file; /* "f" */
	struct gfc_ref dir;  /* "d" */
	struct gfc_open *file_open, *doomed_open;
};

static int do_mkdir(struct client *c)
{
	struct gfc_attr attr;

	return gfc_make(c->gfc, GFC_ROOT, "new", S_IFDIR | 0755, 0, NULL, &attr);
}

static int do_create(struct client *c)
{
	struct gfc_open *open;
	struct gfc_attr attr;
	int r = gfc_open(c->gfc, c->dir, "made", GFC_OPEN_WRITE | GFC_OPEN_CREATE | GFC_OPEN_EXCL,
			 0640, &attr, &open);

	/* It stays open: closing is no change, and the session's end does it too. */
	return r;
}

static int append(struct gfc *gfc, struct gfc_open *open, const char *text)
{
	struct gfc_write write = {.data = text, .bytes = strlen(text), .append = true};
	struct gfc_attr attr;
	uint64_t offset;

	return gfc_write(gfc, open, &write, &offset, &attr);
}

static int do_append(struct client *c)
{
	return append(c->gfc, c->file_open, "+");
}

static int do_rename_over(struct client *c)
{
	return gfc_rename(c->gfc, GFC_ROOT, "p", c->dir, "q", 0);
}

static int do_exchange(struct client *c)
{
	return gfc_rename(c->gfc, GFC_ROOT, "f", c->dir, "g", 2);
}

static int do_link(struct client *c)
{
	struct gfc_attr attr;

	return gfc_link(c->gfc, c->file, c->dir, "link", &attr);
}

static int do_unlink_open(struct client *c)
{
	int r = gfc_unlink(c->gfc, GFC_ROOT, "doomed", false);

	/* It can be written as long as it is open, also after a restart. */
	return r < 0 ? r : append(c->gfc, c->doomed_open, "!");
}

static int do_setattr(struct client *c)
{
	struct gfc_change change = {.mask = GFC_SET_MODE | GFC_SET_SIZE, .mode = 0600, .size = 2};
	struct gfc_attr attr;

	return gfc_setattr(c->gfc, c->file, NULL, &change, &attr);
}

static int do_setxattr(struct client *c)
{
	return gfc_setxattr(c->gfc, c->file, "user.x", "1", 1, 1);
}

static int do_sync(struct client *c)
{
	return gfc_sync(c->gfc);
}

static int (*const alphabet[LETTERS])(struct client *) = {
	do_mkdir, do_create,      do_append,  do_rename_over, do_exchange,
	do_link,  do_unlink_open, do_setattr, do_setxattr,    do_sync,
};
#define LETTER_SYNC 9u

/* -- the client -------------------------------------------------------------------------------- */

static void make_file(struct client *c, struct gfc_ref parent, const char *name,
		      struct gfc_ref *ret_ref, struct gfc_open **ret_open)
{
	struct gfc_attr attr;

	ck_assert_int_eq(gfc_open(c->gfc, parent, name,
				  GFC_OPEN_WRITE | GFC_OPEN_CREATE | GFC_OPEN_EXCL, 0644, &attr,
				  ret_open),
			 0);
	ck_assert_int_eq(append(c->gfc, *ret_open, name), 0);
	*ret_ref = attr.ref;
}

static void set_up(struct client *c)
{
	struct gfc_open *open;
	struct gfc_attr attr;
	struct gfc_ref ref;

	ck_assert_int_eq(gfc_make(c->gfc, GFC_ROOT, "d", S_IFDIR | 0755, 0, NULL, &attr), 0);
	c->dir = attr.ref;
	make_file(c, GFC_ROOT, "f", &c->file, &c->file_open);
	make_file(c, GFC_ROOT, "doomed", &ref, &c->doomed_open);
	make_file(c, GFC_ROOT, "p", &ref, &open);
	make_file(c, c->dir, "q", &ref, &open);
	make_file(c, c->dir, "g", &ref, &open);
	ck_assert_int_eq(gfc_sync(c->gfc), 0);
}

static void client_main(struct gx_env *env, void *arg GX_UNUSED)
{
	struct client c = {.gfc = world_connect(env, 0)};

	set_up(&c);
	w.counting = true;
	for (unsigned i = 0; i < run.sequence.length; i++) {
		run.begun++;
		run.results[i] = alphabet[run.sequence.letters[i]](&c);
		run.answered++;
		if (run.sequence.letters[i] == LETTER_SYNC && run.results[i] == 0)
			run.synced = run.answered;
	}
	/* What metad does behind our back is to be struck too. */
	gx_env_sleep_until(env, gx_env_now_ns(env) + SETTLE_NS);
	if (!w.client_dies)
		run.end_err = gfc_free(c.gfc);
	world_client_done();
}

/* -- one run ----------------------------------------------------------------------------------- */

static unsigned sequence_index(const struct sequence *sequence, unsigned length)
{
	unsigned index = 0;

	for (unsigned i = 0; i < length; i++)
		index = index * LETTERS + sequence->letters[i] + 1;
	return index;
}

static const char *describe(void)
{
	static char text[64];
	char letters[LENGTH_MAX + 1] = "";

	for (unsigned i = 0; i < run.sequence.length; i++)
		letters[i] = (char)('a' + run.sequence.letters[i]);
	snprintf(text, sizeof(text), "sequence %s, %s in call %llu, client %s", letters,
		 w.crash == LIFE_POWER ? "power cut" : "kill", (unsigned long long)run.crash_at,
		 w.client_dies ? "dies" : "lives");
	return text;
}

/* False: metad did not make so many calls. */
static bool run_once(const struct sequence *sequence, enum life_crash crash, bool client_dies,
		     int test_writer, uint64_t crash_at)
{
	bool reached;

	run = (struct run){.sequence = *sequence, .crash_at = crash_at};
	world_new(sequence_index(sequence, sequence->length) + 1);
	w.options.test_writer = test_writer;
	w.crash = crash;
	w.client_dies = client_dies;
	w.crash_at = crash_at;
	/* Every second time the next life dies too, early on. */
	w.crash_again = crash_at % 2 ? 0 : 1 + gx_sim_random_below(w.sim, 40);
	world_metad();
	world_client(client_main, NULL);
	world_run();
	reached = w.crashes > 0;
	if (!reached)
		w.crash_at = 0;
	world_look();
	ck_assert_msg(w.wrong_count == 0, "%s: %s", describe(), w.wrong);
	ck_assert_msg(w.fatals == 0, "%s: metad gave up", describe());
	world_free();
	return reached;
}

/* The tree after the first `length` operations, without a crash. */
static const struct expected *expect(const struct sequence *sequence, unsigned length)
{
	struct expected *e = &expected[sequence_index(sequence, length)];
	struct sequence part = *sequence;
	struct run kept = run;

	if (e->known)
		return e;
	part.length = length;
	run_once(&part, LIFE_NONE, true, 0, 0);
	ck_assert_uint_lt(strlen(w.tree), sizeof(e->tree));
	memcpy(e->tree, w.tree, strlen(w.tree) + 1);
	memcpy(e->results, run.results, sizeof(e->results));
	e->known = true;
	run = kept;
	return e;
}

static void check_dead(const struct sequence *sequence, enum life_crash crash)
{
	unsigned least = crash == LIFE_POWER ? run.synced : run.answered;
	char found[LIFE_TEXT_MAX];
	unsigned begun = run.begun;

	memcpy(found, w.tree, sizeof(found));
	for (unsigned i = least; i <= begun; i++)
		if (strcmp(expect(sequence, i)->tree, found) == 0)
			return;
	ck_abort_msg("%s: %u begun, at least %u owed, but the tree is\n%sand not\n%s", describe(),
		     begun, least, found, expect(sequence, least)->tree);
}

static void check_alive(const struct sequence *sequence)
{
	const struct expected *e;

	for (unsigned i = 0; i < sequence->length; i++)
		ck_assert_msg(
			run.results[i] ==
				expected[sequence_index(sequence, sequence->length)].results[i],
			"%s: operation %u says %s", describe(), i, gx_strerror(run.results[i]));
	ck_assert_msg(run.end_err == 0, "%s: leaving says %s", describe(),
		      gx_strerror(run.end_err));
	e = &expected[sequence_index(sequence, sequence->length)];
	ck_assert_msg(strcmp(e->tree, w.tree) == 0, "%s: the tree is\n%sand not\n%s", describe(),
		      w.tree, e->tree);
}

static uint64_t crash_everywhere(const struct sequence *sequence, enum life_crash crash,
				 bool client_dies, int test_writer)
{
	uint64_t nth = 1;

	for (unsigned i = 0; i <= sequence->length; i++)
		expect(sequence, i);
	while (run_once(sequence, crash, client_dies, test_writer, nth)) {
		if (client_dies)
			check_dead(sequence, crash);
		else
			check_alive(sequence);
		nth++;
	}
	return nth - 1;
}

/* -- which sequences --------------------------------------------------------------------------- */

static bool chosen(const struct sequence *sequence)
{
	const char *one = getenv("CRASH_ONE");

	if (!one)
		return true;
	for (unsigned i = 0; i < sequence->length; i++)
		if (one[i] != (char)('a' + sequence->letters[i]))
			return false;
	return one[sequence->length] == '\0';
}

/* All sequences of a length whose number is `first` modulo `step`. */
static void crash_all(const char *name, unsigned length, unsigned first, unsigned step,
		      enum life_crash crash, bool client_dies)
{
	unsigned count = 1, tried = 0;
	uint64_t points = 0;

	for (unsigned i = 0; i < length; i++)
		count *= LETTERS;
	for (unsigned n = first; n < count; n += step) {
		struct sequence sequence = {.length = length};

		for (unsigned i = 0, rest = n; i < length; i++, rest /= LETTERS)
			sequence.letters[i] = rest % LETTERS;
		if (!chosen(&sequence))
			continue;
		tried++;
		points += crash_everywhere(&sequence, crash, client_dies, 2);
		if (length == 1)
			points += crash_everywhere(&sequence, crash, client_dies, 1);
	}
	printf("%s: length %u: %u sequences, %llu points\n", name, length, tried,
	       (unsigned long long)points);
	ck_assert(points > 0 || getenv("CRASH_ONE"));
}

static void crash_lengths(const char *name, enum life_crash crash, bool client_dies)
{
	bool soak = getenv("GX_SOAK") != NULL;

	crash_all(name, 1, 0, 1, crash, client_dies);
	crash_all(name, 2, 0, 1, crash, client_dies);
	/* A prime: every letter comes at every place. */
	crash_all(name, 3, 0, soak ? 1 : 89, crash, client_dies);
}

START_TEST(after_a_kill_all_answered_is_there_and_nothing_by_half)
{
	crash_lengths("kill, client dies", LIFE_KILL, true);
}
END_TEST

START_TEST(after_a_power_cut_all_synced_is_there_and_nothing_by_half)
{
	crash_lengths("power cut, client dies", LIFE_POWER, true);
}
END_TEST

START_TEST(a_living_client_sees_no_difference_after_a_kill)
{
	crash_lengths("kill, client lives", LIFE_KILL, false);
}
END_TEST

START_TEST(a_living_client_sees_no_difference_after_a_power_cut)
{
	crash_lengths("power cut, client lives", LIFE_POWER, false);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("md_crash");
	TCase *tc = tcase_create("crash");
	SRunner *runner;
	int failed;

	setvbuf(stdout, NULL, _IOLBF, 0);
	tcase_set_timeout(tc, 3600);
	tcase_add_test(tc, after_a_kill_all_answered_is_there_and_nothing_by_half);
	tcase_add_test(tc, after_a_power_cut_all_synced_is_there_and_nothing_by_half);
	tcase_add_test(tc, a_living_client_sees_no_difference_after_a_kill);
	tcase_add_test(tc, a_living_client_sees_no_difference_after_a_power_cut);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
