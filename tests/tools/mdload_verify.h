/*
 * mdload_verify.h - is what the clients of mdload were told true? Journals against the grid.
 *
 * The format of a journal is mdload.c's: a line "NUMBER CODE A B" before each operation, and
 * "NUMBER = RESULT" after it.
 */
#ifndef MDLOAD_VERIFY_H
#define MDLOAD_VERIFY_H

#include "common/gx_num.h"
#include "include/gfs.h"
#include "tests/tools/mdload_model.h"
#include <stdarg.h>
#include <stdlib.h>

#define CLIENTS_MAX 16u
#define SHARED_MAX 1000000u /* operations on shared files, of all journals */
#define LINE_BYTES 128u

/* Codes of what is not the model's. */
#define CODE_EPOCH '@' /* makes the a-th directory of its own */
#define CODE_EXCL 'x'  /* creates x<a> */
#define CODE_SIGN 'z'  /* writes its name into it */
#define CODE_TOKEN 'q' /* makes t<a> */
#define CODE_TAKE 'v'  /* renames t<a> */
#define CODE_LOG 'p'   /* appends to log<a> */
#define CODE_LEFT '.'  /* has disconnected */

static unsigned problems;

GX_PRINTF(1, 2) static void problem(const char *fmt, ...)
{
	va_list args;

	problems++;
	fputs("mdload: ", stdout);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

/* Neither done nor refused: nobody can say. */
static bool is_unknown(int result)
{
	return result != 0 && result != -ENOENT && result != -EEXIST && result != -ENOTEMPTY &&
	       result != -ENOSPC;
}

/* The text of an operation follows from its number, so that the verifier knows it too. */
static void op_text(char text[32], unsigned client, uint64_t number)
{
	snprintf(text, 32, "%u.%llu;", client, (unsigned long long)number);
}

/* -- comparing a directory with its model ------------------------------------------------------ */

static void slot_path(char path[64], const char *top, unsigned slot)
{
	char name[16];

	model_slot_name(slot, name);
	snprintf(path, 64, "%s/%s", top, name);
}

/* Bytes read, or the error. */
static ssize_t read_file(struct gfs *fs, const char *path, char *buf, size_t bytes)
{
	struct gfs_file *file;
	ssize_t n;
	int r = gfs_open(fs, path, GFS_O_READ, 0, &file);

	if (r < 0)
		return r;
	n = gfs_pread(file, buf, bytes, 0);
	r = gfs_close(file);
	return r < 0 ? r : n;
}

/* Each returns true, or says what differs in `why`. */
#define DIFFERS(...) (snprintf(why, LINE_BYTES, __VA_ARGS__), false)

static bool compare_file(struct gfs *fs, const char *path, const struct model_object *object,
			 uint64_t *ret_ino, char why[LINE_BYTES])
{
	char data[MODEL_BYTES + 1];
	struct gfs_stat st;
	ssize_t bytes;
	int r = gfs_lstat(fs, path, &st);

	*ret_ino = 0;
	if (!object)
		return r == -ENOENT || DIFFERS("%s is there (%d)", path, r);
	if (r < 0)
		return DIFFERS("%s is missing (%d)", path, r);
	*ret_ino = st.ino;
	if (st.nlink != object->nlink || st.size != object->bytes ||
	    st.mode != (S_IFREG | object->mode))
		return DIFFERS("%s: links %u, bytes %llu, mode %o, not %u, %zu, %o", path, st.nlink,
			       (unsigned long long)st.size, st.mode, object->nlink, object->bytes,
			       S_IFREG | object->mode);
	bytes = read_file(fs, path, data, sizeof(data));
	if (bytes < 0 || (size_t)bytes != object->bytes ||
	    memcmp(data, object->data, object->bytes) != 0)
		return DIFFERS("%s: %zd bytes \"%.*s\"", path, bytes, (int)GX_MAX(bytes, 0), data);
	return true;
}

static bool compare_dir(struct gfs *fs, const char *path, unsigned expected, char why[LINE_BYTES])
{
	struct gfs_dirent entry;
	struct gfs_dir *dir;
	unsigned count = 0;
	int r = gfs_opendir(fs, path, &dir);

	if (r < 0)
		return DIFFERS("%s: opendir says %d", path, r);
	while ((r = gfs_readdir(dir, &entry)) == 1)
		count++;
	gfs_closedir(dir);
	return (r == 0 && count == expected) ||
	       DIFFERS("%s has %u entries, not %u (%d)", path, count, expected, r);
}

static bool compare_dirs(struct gfs *fs, const char *top, const struct model *model,
			 char why[LINE_BYTES])
{
	unsigned count = 0;

	for (unsigned i = 0; i < MODEL_DIRS; i++) {
		char path[64];
		struct gfs_stat st;

		snprintf(path, sizeof(path), "%s/d%u", top, i);
		count += model->dirs[i];
		if (!model->dirs[i] && gfs_lstat(fs, path, &st) != -ENOENT)
			return DIFFERS("%s is there", path);
		if (model->dirs[i] && !compare_dir(fs, path, model_dir_count(model, i), why))
			return false;
	}
	for (unsigned i = 0; i < MODEL_TOPS; i++)
		count += model->slots[i] != NULL;
	return compare_dir(fs, top, count, why);
}

static bool compare(struct gfs *fs, const char *top, const struct model *model,
		    char why[LINE_BYTES])
{
	uint64_t inos[MODEL_SLOTS];
	char path[64];

	for (unsigned i = 0; i < MODEL_SLOTS; i++) {
		slot_path(path, top, i);
		if (!compare_file(fs, path, model->slots[i], &inos[i], why))
			return false;
		for (unsigned j = 0; j < i; j++)
			if (model->slots[i] && model->slots[j] &&
			    (inos[i] == inos[j]) != (model->slots[i] == model->slots[j]))
				return DIFFERS("%s: inode %llu", path, (unsigned long long)inos[i]);
	}
	return compare_dirs(fs, top, model, why);
}

/* -- the verifier ------------------------------------------------------------------------------ */

/* What a client did to a shared file. */
struct deed {
	char code;
	unsigned n, client;
	uint64_t number;
	int result;
};
static struct deed *deeds;
static size_t deed_count;

struct journal {
	FILE *file;
	unsigned client, epoch;
	uint64_t number, unknown;
	bool left;
	struct model before, after; /* the last operation */
};

/* 1 and an operation with its result (-EINPROGRESS: none), 0 at the end. */
static int next_line(struct journal *j, struct model_op *op, int *ret_result)
{
	unsigned long long number, again;
	char line[LINE_BYTES];

	if (!fgets(line, sizeof(line), j->file) ||
	    sscanf(line, "%llu %c %u %u", &number, &op->code, &op->a, &op->b) != 4)
		return 0;
	j->number = number;
	op_text(op->text, j->client, number);
	*ret_result = -EINPROGRESS;
	if (!fgets(line, sizeof(line), j->file))
		return 1;
	if (sscanf(line, "%llu = %d", &again, ret_result) != 2 || again != number)
		problem("client %u: journal is damaged at %llu", j->client, number);
	return 1;
}

static void check_epoch(struct journal *j, struct gfs *fs)
{
	char top[32], why[LINE_BYTES] = "", why_not[LINE_BYTES] = "";

	if (j->epoch == 0)
		return;
	snprintf(top, sizeof(top), "/c%u.%u", j->client, j->epoch);
	if (!compare(fs, top, &j->after, why) && !compare(fs, top, &j->before, why_not))
		problem("client %u, operation %llu: %s; %s", j->client,
			(unsigned long long)j->number, why, why_not);
}

static void check_own(struct journal *j, const struct model_op *op, int result)
{
	int expected;

	if (result == -ENOSPC) {
		model_refuse(&j->after, op);
		model_copy(&j->before, &j->after);
		return;
	}
	model_copy(&j->before, &j->after);
	expected = model_apply(&j->after, op);
	if (is_unknown(result)) {
		j->unknown++;
		return; /* before or after; a new directory or the end of the journal follows */
	}
	if (result != expected)
		problem("client %u: operation %llu (%c %u %u) said %d, not %d", j->client,
			(unsigned long long)j->number, op->code, op->a, op->b, result, expected);
	model_copy(&j->before, &j->after);
}

static void check_line(struct journal *j, struct gfs *fs, const struct model_op *op, int result)
{
	switch (op->code) {
	case CODE_EPOCH:
		check_epoch(j, fs);
		memset(&j->before, 0, sizeof(j->before));
		memset(&j->after, 0, sizeof(j->after));
		j->epoch = is_unknown(result) ? 0 : op->a;
		if (result != 0)
			problem("client %u: mkdir of directory %u said %d", j->client, op->a,
				result);
		break;
	case CODE_LEFT:
		j->left = result == 0;
		break;
	case CODE_EXCL:
	case CODE_SIGN:
	case CODE_TOKEN:
	case CODE_TAKE:
	case CODE_LOG:
		gx_assert(deed_count < SHARED_MAX);
		deeds[deed_count++] = (struct deed){op->code, op->a, j->client, j->number, result};
		j->unknown += is_unknown(result);
		break;
	default:
		check_own(j, op, result);
		break;
	}
}

static void check_journal(struct gfs *fs, const char *path)
{
	static struct journal j;
	struct model_op op;
	uint64_t client;
	int result;

	j = (struct journal){.file = fopen(path, "re")};
	if (!j.file || !strrchr(path, '.') || gx_parse_u64(strrchr(path, '.') + 1, &client) < 0) {
		problem("%s is no journal", path);
		return;
	}
	j.client = (unsigned)client;
	while (next_line(&j, &op, &result) == 1)
		check_line(&j, fs, &op, result);
	fclose(j.file);
	check_epoch(&j, fs);
	printf("client %u: %llu operations, %llu unknown, %s\n", j.client,
	       (unsigned long long)j.number, (unsigned long long)j.unknown,
	       j.left ? "left" : "did not leave");
}

static bool is_there(struct gfs *fs, const char *path)
{
	struct gfs_stat st;

	return gfs_lstat(fs, path, &st) == 0;
}

/* How the deeds of one kind and number came out. */
struct tally {
	unsigned done, unknown, exists, missing;
	const struct deed *winner;
};

static struct tally tally_of(char code, const struct deed *group, size_t count)
{
	struct tally tally = {0};

	for (size_t i = 0; i < count; i++) {
		if (group[i].code != code)
			continue;
		tally.done += group[i].result == 0;
		tally.unknown += is_unknown(group[i].result);
		tally.exists += group[i].result == -EEXIST;
		tally.missing += group[i].result == -ENOENT;
		if (group[i].result == 0)
			tally.winner = &group[i];
	}
	return tally;
}

static void check_excl(struct gfs *fs, const struct deed *group, size_t count)
{
	struct tally made = tally_of(CODE_EXCL, group, count);
	struct tally sign = tally_of(CODE_SIGN, group, count);
	char path[64], text[32] = "", data[MODEL_BYTES];
	unsigned n = group[0].n;
	ssize_t bytes;

	snprintf(path, sizeof(path), "/shared/x%u", n);
	if (made.done > 1)
		problem("%s was created %u times", path, made.done);
	if (made.done == 0 && made.unknown == 0 && made.exists > 0)
		problem("%s existed although nobody created it", path);
	bytes = read_file(fs, path, data, sizeof(data));
	if (made.done == 1 ? bytes < 0 : made.unknown == 0 && bytes != -ENOENT)
		problem("%s: created %u times, and reading says %zd", path, made.done, bytes);
	if (sign.done == 1)
		op_text(text, sign.winner->client, sign.winner->number);
	if (bytes >= 0 && sign.unknown == 0 &&
	    ((size_t)bytes != strlen(text) || memcmp(data, text, (size_t)bytes) != 0))
		problem("%s has \"%.*s\", not \"%s\"", path, (int)bytes, data, text);
}

static void check_token(struct gfs *fs, const struct deed *group, size_t count)
{
	struct tally made = tally_of(CODE_TOKEN, group, count);
	struct tally taken = tally_of(CODE_TAKE, group, count);
	unsigned n = group[0].n, there = 0;
	char path[64];

	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		snprintf(path, sizeof(path), "/shared/t%u.%u", n, i);
		if (!is_there(fs, path))
			continue;
		there++;
		if (taken.unknown == 0 && (!taken.winner || taken.winner->client != i))
			problem("%s is there, but that client did not rename it", path);
	}
	snprintf(path, sizeof(path), "/shared/t%u", n);
	if (made.exists > 0 || made.done > 1)
		problem("%s was there before it was made", path);
	if (taken.done > 1 || (taken.done > 0 && made.done + made.unknown == 0))
		problem("%s was renamed %u times, made %u times", path, taken.done, made.done);
	there += is_there(fs, path);
	if (made.done == 1 ? there != 1 : there > made.unknown)
		problem("%s was made %u times and is there %u times", path, made.done, there);
	if (taken.done == 1 && is_there(fs, path))
		problem("%s was renamed and is still there", path);
}

static unsigned occurrences(const char *data, const char *text)
{
	unsigned count = 0;

	/* "1.2;" is also the end of "11.2;". */
	for (const char *at = data; (at = strstr(at, text)) != NULL; at++)
		count += at == data || at[-1] == ';';
	return count;
}

static void check_log(struct gfs *fs, const struct deed *group, size_t count)
{
	char path[64], text[32], data[8193];
	size_t expected = 0;
	bool done = false;
	ssize_t bytes;

	snprintf(path, sizeof(path), "/shared/log%u", group[0].n);
	bytes = read_file(fs, path, data, sizeof(data) - 1);
	data[GX_MAX(bytes, 0)] = '\0';
	for (size_t i = 0; i < count; i++) {
		unsigned found;

		op_text(text, group[i].client, group[i].number);
		found = occurrences(data, text);
		expected += strlen(text) * found;
		done |= group[i].result == 0;
		if (is_unknown(group[i].result) ? found > 1 : found != (group[i].result == 0))
			problem("%s: \"%s\" is there %u times, its result was %d", path, text,
				found, group[i].result);
	}
	if ((bytes < 0 && (done || bytes != -ENOENT)) || (bytes >= 0 && (size_t)bytes != expected))
		problem("%s has %zd bytes, not %zu", path, bytes, expected);
}

/* Excl and sign, token and take: two kinds about one file. */
static int kind_of(const struct deed *deed)
{
	switch (deed->code) {
	case CODE_EXCL:
	case CODE_SIGN:
		return 0;
	case CODE_TOKEN:
	case CODE_TAKE:
		return 1;
	default:
		return 2;
	}
}

static int by_file(const void *a, const void *b)
{
	const struct deed *left = a, *right = b;
	int kinds = kind_of(left) - kind_of(right);

	return kinds ? kinds : (left->n > right->n) - (left->n < right->n);
}

static void check_shared(struct gfs *fs)
{
	static void (*const checks[])(struct gfs *, const struct deed *,
				      size_t) = {check_excl, check_token, check_log};
	size_t count;

	qsort(deeds, deed_count, sizeof(*deeds), by_file);
	for (size_t i = 0; i < deed_count; i += count) {
		count = 1;
		while (i + count < deed_count && by_file(&deeds[i], &deeds[i + count]) == 0)
			count++;
		checks[kind_of(&deeds[i])](fs, &deeds[i], count);
	}
	printf("shared: %zu operations\n", deed_count);
}

#endif
