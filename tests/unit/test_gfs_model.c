/*
 * Long random sequences of calls of libgfs, against a real metad and against a model (gfs_model.h):
 * every result and, right away or some calls later, all attributes and contents must be the same.
 * With and without a cache, as root and as somebody with few rights, with metad restarted on the
 * way, and with calls that make no sense.
 *
 * GFS_MODEL_SEED=N starts with another seed, GFS_MODEL_RUNS=N makes N runs of each kind,
 * GFS_MODEL_TRACE=1 prints the calls.
 */
#include "client/fs/gfs_impl.h"
#include "common/gx_num.h"
#include "gfs_model_compare.h"
#include "tests/lib/meta_fixture.h"
#include <stdarg.h>
#include <unistd.h>

#define CACHE (256 * 1024)
#define STEPS 1200u
#define ALIVE_MAX 60u

static struct meta_fixture *fixture;
static bool nested; /* in a step of a step */

/* -- paths to try ---------------------------------------------------------------------------- */

static unsigned pick_dir(void)
{
	unsigned found = MODEL_ROOT, count = 0;

	for (unsigned i = 1; i < model.node_next; i++)
		if (model.nodes[i].alive && S_ISDIR(model.nodes[i].mode) &&
		    model.nodes[i].names > 0 && below(++count) == 0)
			found = i;
	return found;
}

static const struct model_entry *pick_entry(void)
{
	const struct model_entry *found = NULL;
	unsigned count = 0;

	for (unsigned i = 0; i < MODEL_ENTRIES_MAX; i++)
		if (model.entries[i].dir != 0 && below(++count) == 0)
			found = &model.entries[i];
	return found;
}

/* The old path may be among the arguments. */
static void GX_PRINTF(2, 3) put(char path[PATH_BYTES], const char *fmt, ...)
{
	char text[PATH_BYTES];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	ck_assert_int_eq(gx_strcpy(path, PATH_BYTES, text), 0);
}

/* The same path otherwise, or another one that makes less sense. */
static void spoil(char *path)
{
	char name[GFS_NAME_MAX + 2];

	switch (below(12)) {
	case 0:
	case 1:
		put(path, "%s/", path);
		break;
	case 2:
		put(path, "//./%s", path);
		break;
	case 3:
		put(path, "gfs:%s", path);
		break;
	case 4:
		put(path, "%s", path + 1);
		break;
	case 5:
		put(path, "%s/.", path);
		break;
	case 6:
		put(path, "%s/..", path);
		break;
	case 7:
		memset(name, 'x', sizeof(name) - 1);
		name[sizeof(name) - 1] = '\0';
		put(path, "%s/%s", path, name);
		break;
	case 8:
		put(path, "%s/%s", path, names[below(NAMES_COUNT)]);
		break;
	case 9:
		put(path, "%s/../%s", path, names[below(NAMES_COUNT)]);
		break;
	case 10:
		put(path, "%s", below(2) ? "/" : "");
		break;
	default:
		put(path, "%s/%s/.", path, names[below(NAMES_COUNT)]);
		break;
	}
}

/* A name in some directory; in `existing` of 100 cases one that exists. */
static void pick_path(char path[PATH_BYTES], unsigned existing)
{
	const struct model_entry *e = below(100) < existing ? pick_entry() : NULL;
	unsigned dir = e ? e->dir : pick_dir();

	put(path, "%s/%s", dir == MODEL_ROOT ? "" : path_of(dir),
	    e ? e->name : names[below(NAMES_COUNT)]);
	if (below(12) == 0)
		spoil(path);
}

static uint32_t pick_perm(void)
{
	static const uint32_t perms[] = {0777,  0755,  0700,  0666, 0644,  0600, 01777,
					 02775, 06755, 04711, 0500, 02644, 0444, 0};

	return perms[below(below(4) ? 3 : GX_COUNT_OF(perms))];
}

/* -- steps by path --------------------------------------------------------------------------- */

static unsigned alive_count(void)
{
	unsigned count = 0;

	for (unsigned i = 1; i < model.node_next; i++)
		count += model.nodes[i].alive;
	return count;
}

static void step_remove(void)
{
	char path[PATH_BYTES];
	unsigned node;
	bool as_dir;

	pick_path(path, 85);
	as_dir = model_find(path, false, &node) == 0 && below(10) ? S_ISDIR(model.nodes[node].mode)
								  : below(2);
	CALL("%s %s", as_dir ? "rmdir" : "unlink", show(path));
	SAME(as_dir ? gfs_rmdir(fs, path) : gfs_unlink(fs, path), model_remove(path, as_dir));
}

static void step_symlink(void)
{
	char path[PATH_BYTES], target[PATH_BYTES];

	pick_path(path, 15);
	pick_path(target, 70);
	/* To a name beside it, or above, or from the root. */
	if (below(3) == 0)
		put(target, "%s%s", below(3) ? "" : "../", names[below(NAMES_COUNT)]);
	if (target[0] == '\0' || strlen(target) >= GFS_PATH_MAX)
		return;
	CALL("symlink %s to %s", show(path), show(target));
	SAME(gfs_symlink(fs, target, path), model_make(path, S_IFLNK | 0777, 0, target));
}

static void step_make(void)
{
	static const uint32_t types[] = {S_IFDIR, S_IFDIR, S_IFDIR, S_IFREG,
					 S_IFIFO, S_IFCHR, S_IFSOCK};
	uint32_t type = types[below(GX_COUNT_OF(types))], perm = pick_perm();
	char path[PATH_BYTES];

	if (alive_count() > ALIVE_MAX) {
		step_remove();
		return;
	}
	if (below(5) == 0) {
		step_symlink();
		return;
	}
	pick_path(path, 15);
	CALL("make %s with mode %o", show(path), type | perm);
	if (type == S_IFDIR)
		SAME(gfs_mkdir(fs, path, perm), model_make(path, type | perm, 0, NULL));
	else
		SAME(gfs_mknod(fs, path, type | perm, 0x105),
		     model_make(path, type | perm, 0x105, NULL));
}

static void step_link(void)
{
	char from[PATH_BYTES], to[PATH_BYTES];

	pick_path(from, 95);
	pick_path(to, 15);
	CALL("link %s to %s", show(from), show(to));
	SAME(gfs_link(fs, from, to), model_link(from, to));
}

static void step_rename(void)
{
	unsigned flags = below(2) ? 0 : below(20) ? below(3) : 3;
	char from[PATH_BYTES], to[PATH_BYTES];

	pick_path(from, 90);
	pick_path(to, 50);
	if (below(10) == 0) /* into itself, if it is a directory */
		put(to, "%s/%s", from, names[below(NAMES_COUNT)]);
	if (below(20) == 0)
		put(to, "%s", from);
	CALL("rename %s to %s, flags %u", show(from), show(to), flags);
	SAME(gfs_rename(fs, from, to, flags), model_rename(from, to, flags));
}

static void step_attributes(void)
{
	static const uint32_t ids[] = {UINT32_MAX, 0, 50, 1000, 1001, 1001};
	uint32_t uid = ids[below(GX_COUNT_OF(ids))], gid = ids[below(GX_COUNT_OF(ids))];
	struct timespec times[2] = {{below(2000000000), below(1000000000)},
				    {(time_t)below(1000) - 500, 5}};
	uint32_t perm = pick_perm();
	bool follow = below(2);
	char path[PATH_BYTES];
	uint64_t size = below(4) ? below(700) : below(9000);

	pick_path(path, 90);
	switch (below(4)) {
	case 0:
		CALL("chmod %o %s", perm, show(path));
		SAME(gfs_chmod(fs, path, perm), model_chmod(path, perm));
		break;
	case 1:
		CALL("chown %d:%d %s, follow %d", (int)uid, (int)gid, show(path), follow);
		SAME(gfs_chown(fs, path, uid, gid, follow), model_chown(path, uid, gid, follow));
		break;
	case 2:
		for (unsigned i = 0; i < 2; i++)
			times[i].tv_nsec = below(3)   ? times[i].tv_nsec
					   : below(2) ? UTIME_NOW
						      : UTIME_OMIT;
		CALL("utimens %s, follow %d", show(path), follow);
		SAME(gfs_utimens(fs, path, times, follow), model_utimens(path, times, follow));
		break;
	default:
		CALL("truncate %s to %llu", show(path), (unsigned long long)size);
		SAME(gfs_truncate(fs, path, size), model_truncate(path, size));
		break;
	}
}

static void step_xattr(void)
{
	static const unsigned char value[200];
	unsigned which = below(MODEL_XATTRS), flags = below(2) ? 0 : below(3);
	const char *name = model_xattr_names[which];
	int bytes = below(4) ? (int)below(sizeof(value)) : -1;
	char path[PATH_BYTES], got[sizeof(value)];
	bool follow = below(2);

	pick_path(path, 90);
	CALL("setxattr %s %s, %d bytes, flags %u, follow %d", show(path), name, bytes, flags,
	     follow);
	if (bytes < 0)
		SAME(gfs_removexattr(fs, path, name, follow),
		     model_setxattr(path, which, -1, 0, follow));
	else
		SAME(gfs_setxattr(fs, path, name, value, (size_t)bytes, flags, follow),
		     model_setxattr(path, which, bytes, flags, follow));
	CALL("getxattr %s %s, follow %d", show(path), name, follow);
	SAME(gfs_getxattr(fs, path, name, got, sizeof(got), follow),
	     model_getxattr(path, which, follow));
}

static void step_look(void)
{
	struct gfs_stat st;
	char path[PATH_BYTES], target[GFS_PATH_MAX];
	bool follow = below(2);
	unsigned node = 0;
	int want, r;

	pick_path(path, 80);
	want = model_find(path, follow, &node);
	CALL("%s %s", follow ? "stat" : "lstat", show(path));
	r = follow ? gfs_stat(fs, path, &st) : gfs_lstat(fs, path, &st);
	SAME(r, want);
	if (r == 0)
		compare_stat(node, &st);
	CALL("readlink %s", show(path));
	want = model_find(path, false, &node);
	if (want == 0)
		want = S_ISLNK(model_get(node)->mode) ? (int)model_get(node)->size : -EINVAL;
	SAME(gfs_readlink(fs, path, target, sizeof(target)), want);
}

/* -- steps by handle ------------------------------------------------------------------------- */

static void close_handle(struct handle *h)
{
	struct model_node *n = model_get(h->node);

	CALL("close node %u", h->node);
	SAME(gfs_close(h->file), 0);
	h->file = NULL;
	n->open--;
	model_note(h->node);
	model_let_go(n);
}

static void step_open(void)
{
	struct handle *h = &handles[below(HANDLES_MAX)];
	unsigned flags = below(256);
	uint32_t perm = pick_perm();
	char path[PATH_BYTES];
	int r;

	if (h->file)
		close_handle(h);
	if (alive_count() > ALIVE_MAX)
		flags &= ~GFS_O_CREATE;
	/* Waiting for the disk takes its time. */
	if (below(8))
		flags &= ~GFS_O_SYNC;
	if (below(4))
		flags |= GFS_O_READ | GFS_O_WRITE;
	pick_path(path, 80);
	CALL("open %s, flags %u", show(path), flags);
	r = gfs_open(fs, path, flags, perm, &h->file);
	h->flags = flags;
	h->position = 0;
	SAME(r, model_open(path, flags, perm, &h->node));
	if (r < 0)
		h->file = NULL;
}

static void step_write(struct handle *h)
{
	static unsigned char data[MODEL_INLINE_MAX];
	struct model_node *n = model_get(h->node);
	bool here = below(2), append = here && (h->flags & GFS_O_APPEND);
	unsigned bytes = below(8) ? below(200) : below(sizeof(data));
	uint64_t offset = append     ? n->size
			  : here     ? h->position
			  : below(4) ? below(600)
				     : below(9000);
	bool allowed = h->flags & GFS_O_WRITE;
	ssize_t r;

	/* Such errors come late if they are held back, from one of several calls. */
	if (!S_ISREG(n->mode) || (append && offset + bytes > MODEL_INLINE_MAX))
		return;
	memset(data, (int)below(256), bytes);
	CALL("%s %u bytes at %llu of node %u", here ? "write" : "pwrite", bytes,
	     (unsigned long long)offset, h->node);
	r = here ? gfs_write(h->file, data, bytes) : gfs_pwrite(h->file, data, bytes, offset);
	SAME(r, allowed ? model_write(n, offset, data, bytes) : -EBADF);
	if (here && r > 0)
		h->position = offset + bytes;
}

static void step_read(struct handle *h)
{
	static unsigned char data[MODEL_INLINE_MAX];
	const struct model_node *n = model_get(h->node);
	unsigned bytes = below(sizeof(data));
	bool here = below(2);
	uint64_t offset = here ? h->position : below(9000);
	ssize_t r;

	CALL("%s %u bytes at %llu of node %u", here ? "read" : "pread", bytes,
	     (unsigned long long)offset, h->node);
	r = here ? gfs_read(h->file, data, bytes) : gfs_pread(h->file, data, bytes, offset);
	if (!(h->flags & GFS_O_READ))
		SAME(r, -EBADF);
	else if (!S_ISREG(n->mode))
		SAME(r, bytes == 0 ? 0 : -EINVAL);
	else
		compare_bytes(data, r, n, offset, bytes);
	if (here && r > 0)
		h->position += (uint64_t)r;
}

static void step_seek(struct handle *h)
{
	int whence = (int)below(3);
	int64_t offset = (int64_t)below(1200) - 200;
	int64_t want = offset;

	want += whence == SEEK_CUR   ? (int64_t)h->position
		: whence == SEEK_END ? (int64_t)model_get(h->node)->size
				     : 0;
	CALL("lseek %lld from %d of node %u", (long long)offset, whence, h->node);
	SAME(gfs_lseek(h->file, offset, whence), want < 0 ? -EINVAL : want);
	if (want >= 0)
		h->position = (uint64_t)want;
}

static void step_handle(void)
{
	struct handle *h = &handles[below(HANDLES_MAX)];
	struct gfs_stat st;
	struct model_node *n;
	uint64_t size = below(9000);

	if (!h->file) {
		step_open();
		return;
	}
	n = model_get(h->node);
	model_note(h->node);
	switch (below(12)) {
	case 0:
		CALL("ftruncate node %u to %llu", h->node, (unsigned long long)size);
		SAME(gfs_ftruncate(h->file, size), !(h->flags & GFS_O_WRITE) || !S_ISREG(n->mode)
							   ? -EINVAL
							   : model_resize(n, size));
		break;
	case 1:
		CALL("fstat node %u", h->node);
		SAME(gfs_fstat(h->file, &st), 0);
		compare_stat(h->node, &st);
		break;
	case 2:
		CALL("fsync node %u", h->node);
		SAME(below(4) ? 0 : gfs_fsync(h->file), 0);
		break;
	case 3:
		step_seek(h);
		break;
	case 4:
	case 5:
	case 6:
		step_read(h);
		break;
	case 7:
		close_handle(h);
		break;
	default:
		step_write(h);
		break;
	}
}

/* -- listing, with changes between pages ----------------------------------------------------- */

static void step(void);

/* Some entries, then other calls, then the rest from there as it is by then. */
static void list_in_two(unsigned dir, struct gfs_dir *handle)
{
	static const struct model_entry *list[MODEL_ENTRIES_MAX];
	unsigned count = list_of(dir, "", list);
	unsigned first = below(count + 1);
	char after[GFS_NAME_MAX + 1] = "";
	struct gfs_dirent entry;
	struct model_node *n;

	for (unsigned i = 0; i < first; i++) {
		SAME(gfs_readdir(handle, &entry), 1);
		compare_entry(dir, &entry, list[i]);
		ck_assert_int_eq(gx_strcpy(after, sizeof(after), entry.name), 0);
	}
	nested = true;
	for (unsigned i = below(4); i > 0; i--)
		step();
	nested = false;
	if (below(4) == 0)
		ck_assert_int_eq(gx_strcpy(after, sizeof(after), names[below(NAMES_COUNT)]), 0);
	CALL("going on in directory %u behind %s", dir, show(after));
	SAME(gfs_seekdir(handle, after), 0);
	n = &model.nodes[dir];
	if (!n->alive)
		SAME(gfs_readdir(handle, &entry), -ENOENT);
	else if (!model_may(n, 4))
		SAME(gfs_readdir(handle, &entry), -EACCES);
	else
		compare_rest(dir, handle, after);
}

static void step_list(void)
{
	char path[PATH_BYTES];
	struct gfs_dir *handle;
	unsigned dir = 0;
	int want, r;

	if (below(2))
		put(path, "%s", path_of(pick_dir()));
	else
		pick_path(path, 80);
	want = model_find(path, true, &dir);
	if (want == 0 && !S_ISDIR(model_get(dir)->mode))
		want = -ENOTDIR;
	if (want == 0 && !model_may(model_get(dir), 4))
		want = -EACCES;
	CALL("list %s", show(path));
	r = gfs_opendir(fs, path, &handle);
	SAME(r, want);
	if (r < 0)
		return;
	list_in_two(dir, handle);
	gfs_closedir(handle);
}

/* -- runs ------------------------------------------------------------------------------------ */

static void step(void)
{
	step_number++;
	model.touched_count = 0;
	switch (below(20)) {
	case 0:
	case 1:
	case 2:
		step_make();
		break;
	case 3:
		step_link();
		break;
	case 4:
	case 5:
		step_remove();
		break;
	case 6:
	case 7:
		step_rename();
		break;
	case 8:
	case 9:
		step_attributes();
		break;
	case 10:
		step_xattr();
		break;
	case 11:
	case 12:
		step_look();
		break;
	case 13:
	case 14:
		step_open();
		break;
	case 15:
		if (!nested)
			step_list();
		break;
	default:
		step_handle();
		break;
	}
}

static struct gfs *connect_as(enum meta_who who, size_t cache_bytes)
{
	/* There is no storage node: what metad cannot take is refused, at once. */
	struct gfd_options options = GFD_OPTIONS_INIT;
	struct gfs *new = calloc(1, sizeof(*new));

	gx_assert(new);
	options.data_timeout_ns = GX_NSEC_PER_MSEC;
	new->gfc = meta_fixture_gfc(fixture, who, cache_bytes);
	ck_assert_int_eq(gfd_new(new->gfc, &options, &new->gfd), 0);
	new->env = gfc_env(new->gfc);
	ck_assert_int_eq(gx_env_mutex_init(new->env, &new->lock), 0);
	return new;
}

static void begin(enum meta_who who, size_t cache_bytes, int run)
{
	struct md_server_options options = MD_SERVER_OPTIONS_INIT;

	seed = seed_first + (uint64_t)run;
	random_state = UINT64_C(0x9e3779b97f4a7c15) * seed;
	step_number = 0;
	memset(handles, 0, sizeof(handles));
	make_names();
	if (who == META_ROOT)
		model_init(0, 0, 0);
	else
		model_init(1001, 1001, 50);
	options.start_wait_ns = 0; /* there are no storage nodes to wait for */
	fixture = meta_fixture_start(&options);
	fs = connect_as(META_ROOT, 0);
	ck_assert_int_eq(gfs_chmod(fs, "/", 0777), 0);
	ck_assert_int_eq(gfs_disconnect(fs), 0);
	fs = connect_as(who, cache_bytes);
	CALL("start as %s", meta_fixture_identity(who));
	compare_node(MODEL_ROOT);
}

static void end(void)
{
	for (unsigned i = 0; i < HANDLES_MAX; i++)
		if (handles[i].file && below(2))
			close_handle(&handles[i]);
	CALL("sync%s", "");
	SAME(gfs_sync(fs), 0);
	SAME(gfs_disconnect(fs), 0);
	for (unsigned i = 0; i < HANDLES_MAX; i++)
		handles[i].file = NULL;
	fs = connect_as(META_ROOT, 0);
	compare_tree();
	ck_assert_int_eq(gfs_disconnect(fs), 0);
	meta_fixture_check(fixture);
	meta_fixture_stop(fixture);
	model_fini();
}

/* `eager`: all a call concerned is looked at after it; else only now and then. */
static void run(unsigned restart_every)
{
	bool eager = below(2);

	for (unsigned i = 1; i <= STEPS; i++) {
		step();
		for (unsigned k = 0; (eager || below(4) == 0) && k < model.touched_count; k++)
			compare_node(model.touched[k]);
		if (restart_every > 0 && below(restart_every) == 0) {
			meta_fixture_down(fixture);
			meta_fixture_up(fixture);
		}
	}
}

START_TEST(without_a_cache_all_calls_agree_with_the_model)
{
	begin(_i % 2 ? META_ROOT : META_BOB, 0, _i);
	run(0);
	end();
}
END_TEST

START_TEST(with_a_cache_all_calls_agree_with_the_model)
{
	begin(_i % 2 ? META_ROOT : META_BOB, CACHE, _i);
	run(0);
	end();
}
END_TEST

START_TEST(restarts_of_metad_are_not_noticed)
{
	begin(_i % 2 ? META_ROOT : META_BOB, _i / 2 % 2 ? CACHE : 0, _i);
	run(300);
	end();
}
END_TEST

static int env_number(const char *name, uint64_t *number)
{
	const char *text = getenv(name);

	return text ? gx_parse_u64(text, number) : 0;
}

int main(void)
{
	Suite *suite = suite_create("gfs_model");
	TCase *tc = tcase_create("model");
	SRunner *runner = srunner_create(suite);
	uint64_t runs = 4, tracing = 0;
	int failed;

	if (env_number("GFS_MODEL_RUNS", &runs) < 0 ||
	    env_number("GFS_MODEL_SEED", &seed_first) < 0 ||
	    env_number("GFS_MODEL_TRACE", &tracing) < 0)
		return 2;
	trace = tracing > 0;
	printf("seeds %llu to %llu\n", (unsigned long long)seed_first,
	       (unsigned long long)(seed_first + runs - 1));
	fflush(stdout);
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, without_a_cache_all_calls_agree_with_the_model, 0, (int)runs);
	tcase_add_loop_test(tc, with_a_cache_all_calls_agree_with_the_model, 0, (int)runs);
	tcase_add_loop_test(tc, restarts_of_metad_are_not_noticed, 0, (int)runs);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
