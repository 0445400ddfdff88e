/*
 * mdload load CONFIG DIR CLIENTS SEED	mixed random load until SIGTERM
 * mdload verify CONFIG JOURNAL...	is what they were told true?
 * mdload orphan CONFIG			opens a file, removes it, says "ready", waits to be killed
 *
 * Each client is a process with a connection of its own. It works in a directory of its own, where
 * a model (mdload_model.h) foretells each result, and, against the others, in a shared one:
 *
 *	/shared/x<n>	everybody tries to create it exclusively; the winner writes his name into it
 *	/shared/t<n>	made by one; everybody tries to rename it to t<n>.<client>
 *	/shared/log<n>	everybody appends lines
 *
 * Its journal, DIR/journal.<client>, has a line before each operation and one with the result after
 * it, both written before anything else happens. What came back as neither success nor a plain "no"
 * is unknown: both outcomes are right, and the client goes on in a new directory. The verifier
 * (mdload_verify.h) needs nothing but the journals: nothing acknowledged may be missing, nothing
 * done twice, nothing done that was refused. Problems are lines; the exit status is then 1.
 */
#include "tests/tools/mdload_verify.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOG_LINES 10u /* each client's share of one log file */
#define AUDIT_EVERY 60u

static struct gfs *connect_grid(const char *config, const char *program)
{
	struct gfs_options options = {.config = config, .program = program};
	struct gfs *fs;

	if (gfs_connect(&options, &fs) < 0) {
		problem("connect: %s", gfs_error());
		exit(1);
	}
	return fs;
}

/* -- a client ---------------------------------------------------------------------------------- */

struct client {
	struct gfs *fs;
	const char *config;
	unsigned id, count;
	uint64_t dice;
	int journal;
	uint64_t number; /* of the operation */
	unsigned epoch;
	char top[32];
	struct model model;
	struct gfs_file *held[MODEL_HELD];
	unsigned next_excl, next_token, next_take, logged;
	uint64_t audits, unknown;
};

static volatile sig_atomic_t stopped;
static pid_t clients[CLIENTS_MAX]; /* of the parent */
static volatile sig_atomic_t clients_started;

static void on_term(int signo)
{
	stopped = 1;
	for (int i = 0; i < clients_started; i++)
		kill(clients[i], signo);
}

static uint64_t roll(struct client *c, uint64_t bound)
{
	uint64_t z = (c->dice += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (z ^ (z >> 31)) % bound;
}

GX_PRINTF(2, 3) static void note(struct client *c, const char *fmt, ...)
{
	char line[LINE_BYTES];
	va_list args;
	int bytes;

	va_start(args, fmt);
	bytes = vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	if (write(c->journal, line, (size_t)bytes) != bytes)
		abort();
}

static void intend(struct client *c, char code, unsigned a, unsigned b)
{
	note(c, "%llu %c %u %u\n", (unsigned long long)++c->number, code, a, b);
}

static int told(struct client *c, int result)
{
	note(c, "%llu = %d\n", (unsigned long long)c->number, result);
	return result;
}

static void begin_epoch(struct client *c)
{
	int r;

	for (unsigned i = 0; i < MODEL_HELD; i++) {
		GX_IGNORE(gfs_close(c->held[i]));
		c->held[i] = NULL;
	}
	memset(&c->model, 0, sizeof(c->model));
	do {
		snprintf(c->top, sizeof(c->top), "/c%u.%u", c->id, ++c->epoch);
		intend(c, CODE_EPOCH, c->epoch, 0);
		r = told(c, gfs_mkdir(c->fs, c->top, 0755));
	} while (is_unknown(r) && !stopped);
}

/* Opens, writes and closes: one change for metad. */
static int put_text(struct gfs *fs, const char *path, unsigned flags, const char *text)
{
	struct gfs_file *file;
	ssize_t n;
	int r = gfs_open(fs, path, GFS_O_WRITE | flags, MODEL_MODE, &file);

	if (r < 0)
		return r;
	n = gfs_write(file, text, strlen(text));
	r = gfs_close(file);
	return n < 0 ? (int)n : r;
}

static int hold(struct client *c, const char *path, unsigned held)
{
	struct gfs_file *file;
	int r = gfs_open(c->fs, path, GFS_O_WRITE | GFS_O_APPEND, 0, &file);

	if (r < 0)
		return r;
	r = gfs_close(c->held[held]);
	c->held[held] = file;
	return r;
}

static int held_write(struct client *c, const struct model_op *op)
{
	ssize_t n = gfs_write(c->held[op->b], op->text, strlen(op->text));
	int r = n < 0 ? (int)n : gfs_fsync(c->held[op->b]);

	if (r < 0) { /* close says it once more */
		GX_IGNORE(gfs_close(c->held[op->b]));
		c->held[op->b] = NULL;
	}
	return r;
}

static int do_create(struct gfs *fs, const char *path)
{
	struct gfs_file *file;
	int r = gfs_open(fs, path, GFS_O_WRITE | GFS_O_CREATE | GFS_O_EXCL, MODEL_MODE, &file);

	return r < 0 ? r : gfs_close(file);
}

static int do_own(struct client *c, const struct model_op *op)
{
	bool dirs = op->code == MODEL_MKDIR || op->code == MODEL_RMDIR || op->code == MODEL_MOVEDIR;
	char from[64], to[64];
	int r;

	if (dirs) {
		snprintf(from, sizeof(from), "%s/d%u", c->top, op->a);
		snprintf(to, sizeof(to), "%s/d%u", c->top, op->b);
	} else {
		slot_path(from, c->top, op->a);
		slot_path(to, c->top, op->b);
	}
	switch (op->code) {
	case MODEL_CREATE:
		return do_create(c->fs, from);
	case MODEL_APPEND:
		return put_text(c->fs, from, GFS_O_APPEND, op->text);
	case MODEL_WRITE:
		return put_text(c->fs, from, 0, op->text);
	case MODEL_TRUNCATE:
		return gfs_truncate(c->fs, from, op->b);
	case MODEL_CHMOD:
		return gfs_chmod(c->fs, from, op->b);
	case MODEL_MKDIR:
		return gfs_mkdir(c->fs, from, 0755);
	case MODEL_RMDIR:
		return gfs_rmdir(c->fs, from);
	case MODEL_MOVEDIR:
	case MODEL_RENAME:
		return gfs_rename(c->fs, from, to, 0);
	case MODEL_EXCHANGE:
		return gfs_rename(c->fs, from, to, GFS_RENAME_EXCHANGE);
	case MODEL_LINK:
		return gfs_link(c->fs, from, to);
	case MODEL_UNLINK:
		return gfs_unlink(c->fs, from);
	case MODEL_HOLD:
		return hold(c, from, op->b);
	case MODEL_HWRITE:
		return held_write(c, op);
	case MODEL_CLOSE:
		r = gfs_close(c->held[op->b]);
		c->held[op->b] = NULL;
		return r;
	default:
		gx_assert(false);
		return -EINVAL;
	}
}

static int own(struct client *c, char code, unsigned a, unsigned b)
{
	struct model_op op = {.code = code, .a = a, .b = b};
	int r, expected;

	intend(c, code, a, b);
	op_text(op.text, c->id, c->number);
	r = told(c, do_own(c, &op));
	if (is_unknown(r)) {
		c->unknown++;
		fprintf(stderr, "mdload: client %u: operation %llu (%c): %s\n", c->id,
			(unsigned long long)c->number, code, gfs_error());
		begin_epoch(c);
		return r;
	}
	if (r == -ENOSPC) {
		model_refuse(&c->model, &op);
		return r;
	}
	expected = model_apply(&c->model, &op);
	if (r != expected)
		problem("client %u: operation %llu (%c %u %u) says %d, not %d", c->id,
			(unsigned long long)c->number, code, a, b, r, expected);
	return r;
}

static void own_text(struct client *c, char code, unsigned slot)
{
	const struct model_object *object = c->model.slots[slot];

	if (object && object->bytes + sizeof(((struct model_op *)0)->text) > MODEL_BYTES)
		own(c, MODEL_TRUNCATE, slot, (unsigned)roll(c, 64));
	else
		own(c, code, slot, 0);
}

static void held_text(struct client *c, unsigned held)
{
	const struct model_object *object = c->model.held[held];

	if (object && object->bytes + sizeof(((struct model_op *)0)->text) <= MODEL_BYTES)
		own(c, MODEL_HWRITE, 0, held);
	else if (object)
		own(c, MODEL_CLOSE, 0, held);
}

static void step_own(struct client *c)
{
	static const char two[] = {MODEL_RENAME, MODEL_EXCHANGE, MODEL_LINK, MODEL_LINK};
	static const char dirs[] = {MODEL_MKDIR, MODEL_MKDIR, MODEL_RMDIR, MODEL_MOVEDIR};
	unsigned a = (unsigned)roll(c, MODEL_SLOTS), b = (unsigned)roll(c, MODEL_SLOTS);
	unsigned held = (unsigned)roll(c, MODEL_HELD);

	switch (roll(c, 10)) {
	case 0:
	case 1:
		if (own(c, MODEL_CREATE, a, 0) == 0)
			own(c, MODEL_APPEND, a, 0);
		break;
	case 2:
	case 3:
		own_text(c, roll(c, 3) ? MODEL_APPEND : MODEL_WRITE, a);
		break;
	case 4:
		own(c, MODEL_CHMOD, a, 0600 + (unsigned)roll(c, 64));
		break;
	case 5:
		own(c, dirs[roll(c, 4)], a % MODEL_DIRS, b % MODEL_DIRS);
		break;
	case 6:
		own(c, two[roll(c, 4)], a, b);
		break;
	case 7:
		own(c, MODEL_UNLINK, a, 0);
		break;
	case 8: /* open, unlink, write, and close or keep */
		if (own(c, MODEL_HOLD, a, held) == 0 && own(c, MODEL_UNLINK, a, 0) == 0)
			held_text(c, held);
		if (c->model.held[held] && roll(c, 2))
			own(c, MODEL_CLOSE, 0, held);
		break;
	case 9:
		held_text(c, held);
		break;
	}
}

static int shared(struct client *c, char code, unsigned n)
{
	char path[64], other[64], text[32];

	intend(c, code, n, 0);
	op_text(text, c->id, c->number);
	switch (code) {
	case CODE_EXCL:
		snprintf(path, sizeof(path), "/shared/x%u", n);
		return told(c, do_create(c->fs, path));
	case CODE_SIGN:
		snprintf(path, sizeof(path), "/shared/x%u", n);
		return told(c, put_text(c->fs, path, 0, text));
	case CODE_TOKEN:
		snprintf(path, sizeof(path), "/shared/t%u", n);
		return told(c, do_create(c->fs, path));
	case CODE_TAKE:
		snprintf(path, sizeof(path), "/shared/t%u", n);
		snprintf(other, sizeof(other), "/shared/t%u.%u", n, c->id);
		return told(c, gfs_rename(c->fs, path, other, 0));
	default:
		snprintf(path, sizeof(path), "/shared/log%u", n);
		return told(c, put_text(c->fs, path, GFS_O_CREATE | GFS_O_APPEND, text));
	}
}

static void step_shared(struct client *c)
{
	unsigned n;

	switch (roll(c, 4)) {
	case 0:
		n = c->next_excl++;
		if (shared(c, CODE_EXCL, n) == 0)
			shared(c, CODE_SIGN, n);
		break;
	case 1: /* each makes its own share of the numbers */
		shared(c, CODE_TOKEN, c->count * c->next_token++ + c->id);
		break;
	case 2:
		shared(c, CODE_TAKE, c->next_take++);
		break;
	case 3:
		shared(c, CODE_LOG, c->logged++ / LOG_LINES);
		break;
	}
}

static void audit(struct client *c)
{
	char why[LINE_BYTES];

	if (!compare(c->fs, c->top, &c->model, why))
		problem("client %u after operation %llu: %s", c->id, (unsigned long long)c->number,
			why);
	c->audits++;
}

static int client_main(struct client *c, const char *dir)
{
	char path[4096];
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "%s/journal.%u", dir, c->id);
	c->journal = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
	if (c->journal < 0) {
		problem("%s: %s", path, gx_strerror(-errno));
		return 1;
	}
	c->fs = connect_grid(c->config, "mdload");
	r = gfs_mkdir(c->fs, "/shared", 0755);
	if (r < 0 && r != -EEXIST)
		problem("client %u: /shared: %s", c->id, gfs_error());
	begin_epoch(c);
	while (!stopped && problems == 0) {
		if (roll(c, 4) == 0)
			step_shared(c);
		else
			step_own(c);
		if (roll(c, AUDIT_EVERY) == 0)
			audit(c);
	}
	audit(c);
	intend(c, CODE_LEFT, 0, 0);
	r = told(c, gfs_disconnect(c->fs));
	if (r < 0)
		problem("client %u: disconnect: %s", c->id, gfs_error());
	printf("client %u: %llu operations, %llu audits, %llu unknown\n", c->id,
	       (unsigned long long)c->number, (unsigned long long)c->audits,
	       (unsigned long long)c->unknown);
	return problems > 0;
}

static int load(const char *config, const char *dir, unsigned count, uint64_t seed)
{
	struct sigaction action = {.sa_handler = on_term, .sa_flags = SA_RESTART};
	int status, failed = 0;

	for (unsigned i = 0; i < count; i++) {
		fflush(stdout);
		clients[i] = fork();
		if (clients[i] == 0) {
			static struct client c;

			sigaction(SIGTERM, &action, NULL);
			c = (struct client){.config = config,
					    .id = i,
					    .count = count,
					    .dice = seed * CLIENTS_MAX + i};
			exit(client_main(&c, dir));
		}
		printf("client %u is process %d\n", i, (int)clients[i]);
	}
	fflush(stdout);
	clients_started = (int)count;
	sigaction(SIGTERM, &action, NULL);
	for (unsigned i = 0; i < count; i++) {
		pid_t ended;

		/* The thread sanitizer holds a signal back during waitpid(), but not during poll().
		 */
		while ((ended = waitpid(clients[i], &status, WNOHANG)) == 0)
			poll(NULL, 0, 50);
		/* One that was killed has been killed by the test. */
		if (ended < 0 ||
		    !(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)))
			failed = 1;
	}
	return failed;
}

/* -- main -------------------------------------------------------------------------------------- */

static int verify(const char *config, char **journals)
{
	struct gfs *fs = connect_grid(config, "mdload-verify");

	deeds = calloc(SHARED_MAX, sizeof(*deeds));
	gx_assert(deeds);
	for (; *journals; journals++)
		check_journal(fs, *journals);
	check_shared(fs);
	free(deeds);
	if (gfs_disconnect(fs) < 0)
		problem("disconnect: %s", gfs_error());
	printf("%u problems\n", problems);
	return problems > 0;
}

static int make_orphan(const char *config)
{
	struct gfs *fs = connect_grid(config, "mdload-orphan");
	struct gfs_file *file;

	if (gfs_open(fs, "/orphan", GFS_O_WRITE | GFS_O_CREATE | GFS_O_EXCL, 0600, &file) < 0 ||
	    gfs_write(file, "orphan", 6) < 0 || gfs_fsync(file) < 0 ||
	    gfs_unlink(fs, "/orphan") < 0) {
		problem("%s", gfs_error());
		return 1;
	}
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	uint64_t count, seed;

	if (argc == 6 && strcmp(argv[1], "load") == 0 && gx_parse_u64(argv[4], &count) == 0 &&
	    gx_parse_u64(argv[5], &seed) == 0 && count > 0 && count <= CLIENTS_MAX)
		return load(argv[2], argv[3], (unsigned)count, seed);
	if (argc >= 4 && strcmp(argv[1], "verify") == 0)
		return verify(argv[2], argv + 3);
	if (argc == 3 && strcmp(argv[1], "orphan") == 0)
		return make_orphan(argv[2]);
	fputs("usage: mdload load CONFIG DIR CLIENTS SEED | verify CONFIG JOURNAL... | "
	      "orphan CONFIG\n",
	      stderr);
	return 2;
}
