/*
 * The steps of a worker: each is foretold by the model, done, and compared.
 */
#include "tests/lib/sim_meta_work.h"
#include "include/gfs.h"
#include <stdarg.h>
#include <stdio.h>

void work_wrong(struct work *work, const char *fmt, ...)
{
	va_list args;

	if (work->wrong[0] != '\0')
		return;
	va_start(args, fmt);
	vsnprintf(work->wrong, sizeof(work->wrong), fmt, args);
	va_end(args);
	sim_meta_say(&work->meta, "WRONG %s", work->wrong);
}

uint64_t work_random(struct work *work, uint64_t bound)
{
	return gx_sim_random_below(work->meta.sim, bound);
}

bool work_weak(const struct work_worker *worker)
{
	const struct work *work = worker->work;

	return work->cuts > 0 &&
	       (worker->lost || work->clients[worker->client].dead || (work->faults & WORK_LONG));
}

void work_own_name(unsigned i, char name[8])
{
	snprintf(name, 8, "n%u", i);
}

void work_failed(struct work_worker *worker, const char *what, int r, int expected)
{
	if (worker->work->faults & WORK_LONG)
		worker->lost = true;
	else
		work_wrong(worker->work, "worker %u: %s: %s, expected %s", worker->number, what,
			   r < 0 ? gx_strerror(r) : "success",
			   expected < 0 ? gx_strerror(expected) : "success");
}

/* The outcome of a change that the model foretold; true: it went well. */
static bool as_told(struct work_worker *worker, const char *what, int r, int expected)
{
	if (r != expected) {
		work_failed(worker, what, r, expected);
		return false;
	}
	worker->work->counts.changes++;
	if (r < 0)
		return false;
	sim_meta_say(&worker->work->meta, "worker %u: %s makes state %u", worker->number, what,
		     worker->model.started);
	model_end(&worker->model);
	return true;
}

/* -- looking ---------------------------------------------------------------------------------- */

static void looked(struct work_worker *reader, struct work_worker *owner, const char *how,
		   const struct model_look *look)
{
	int k = model_look_end(&owner->model, look, reader != owner && work_weak(owner));
	char text[200];

	reader->work->counts.looks++;
	if (k < 0) {
		model_look_text(&owner->model, look, text, sizeof(text));
		work_wrong(reader->work, "worker %u sees of worker %u by %s: %s", reader->number,
			   owner->number, how, text);
	} else if (reader->client != owner->client && (unsigned)k > owner->model.seen) {
		owner->model.seen = (unsigned)k;
		sim_meta_say(&reader->work->meta, "worker %u sees %d of worker %u by %s",
			     reader->number, k, owner->number, how);
	}
}

/* A look that failed: with a reason that names an absence, or it should not have. */
static bool look_failed(struct work_worker *reader, const char *how, int r)
{
	if (r >= 0)
		return false;
	work_failed(reader, how, r, 0);
	return true;
}

static void look_up(struct work_worker *reader, struct gfc *gfc, struct work_worker *owner)
{
	struct model_look look, attr_look;
	struct gfc_attr attr;
	char name[8];
	unsigned dir = (unsigned)work_random(reader->work, MODEL_DIRS);
	unsigned n = (unsigned)work_random(reader->work, MODEL_NAMES);
	int r;

	model_look_begin(&owner->model, &look);
	attr_look = look;
	work_own_name(n, name);
	r = gfc_lookup(gfc, owner->dirs[dir], name, &attr);
	if (r != -ENOENT && look_failed(reader, "lookup", r))
		return;
	look.by_name = true;
	look.dir = dir;
	look.name = n;
	look.found = r == 0;
	look.ino = r == 0 ? attr.ref.ino : 0;
	looked(reader, owner, "lookup", &look);
	if (r < 0)
		return;
	attr_look.has_attr = true;
	attr_look.ino = attr.ref.ino;
	attr_look.attr = attr;
	looked(reader, owner, "lookup", &attr_look);
}

static void get_attr(struct work_worker *reader, struct gfc *gfc, struct work_worker *owner)
{
	const struct model_state *state = model_now(&owner->model);
	struct model_look look;
	unsigned i;

	if (state->inode_count == 0)
		return;
	i = (unsigned)work_random(reader->work, state->inode_count);
	model_look_begin(&owner->model, &look);
	look.has_attr = true;
	look.ino = state->inodes[i].ino;
	look.attr_err = gfc_getattr(gfc, (struct gfc_ref){look.ino, owner->caps[i]}, &look.attr);
	if (look.attr_err == -ENOENT || look.attr_err == -ESTALE || look.attr_err == 0)
		looked(reader, owner, "getattr", &look);
	else
		work_failed(reader, "getattr", look.attr_err, 0);
}

static int list_entry(void *arg, const struct gfc_dirent *entry)
{
	struct model_look *look = arg;

	if (entry->name[0] != 'n' || entry->name[1] < '0' ||
	    (unsigned)(entry->name[1] - '0') >= MODEL_NAMES || entry->name[2] != '\0')
		look->unknown_name = true;
	else
		look->list[entry->name[1] - '0'] = entry->ino;
	return 0;
}

static void list(struct work_worker *reader, struct gfc *gfc, struct work_worker *owner)
{
	char after[GFS_NAME_MAX + 1] = "";
	struct model_look look;
	int r;

	model_look_begin(&owner->model, &look);
	look.has_list = true;
	look.dir = (unsigned)work_random(reader->work, MODEL_DIRS);
	r = gfc_readdir(gfc, owner->dirs[look.dir], after, work_random(reader->work, 2) == 0,
			list_entry, &look);
	if (!look_failed(reader, "readdir", r))
		looked(reader, owner, "readdir", &look);
}

static bool read_open(struct work_worker *reader, struct gfc *gfc, struct work_worker *owner,
		      struct gfc_open *open)
{
	struct model_look look;
	ssize_t r;

	model_look_begin(&owner->model, &look);
	look.has_content = true;
	look.ino = gfc_open_ref(open).ino;
	r = gfc_read(gfc, open, look.tokens, sizeof(look.tokens), 0, NULL);
	if (look_failed(reader, "read", (int)r))
		return false;
	look.bytes = (size_t)r;
	looked(reader, owner, "read", &look);
	return true;
}

static void read_file(struct work_worker *reader, struct gfc *gfc, struct work_worker *owner)
{
	struct model_look look;
	struct gfc_open *open;
	struct gfc_attr attr;
	char name[8];
	int r;

	model_look_begin(&owner->model, &look);
	look.by_name = true;
	look.dir = (unsigned)work_random(reader->work, MODEL_DIRS);
	look.name = (unsigned)work_random(reader->work, MODEL_NAMES);
	work_own_name(look.name, name);
	r = gfc_open(gfc, owner->dirs[look.dir], name, GFC_OPEN_READ, 0, &attr, &open);
	if (r == -EISDIR)
		return;
	if (r == 0) {
		look.found = true;
		look.ino = attr.ref.ino;
	} else if (r != -ENOENT && look_failed(reader, "open to read", r)) {
		return;
	}
	looked(reader, owner, "open", &look);
	if (r < 0)
		return;
	/* A directory can be opened, but has no bytes. */
	if (!S_ISDIR(attr.mode)) {
		read_open(reader, gfc, owner, open);
		if (work_random(reader->work, 2) == 0)
			read_open(reader, gfc, owner, open);
	}
	r = gfc_close(gfc, open);
	GX_IGNORE(look_failed(reader, "close", r));
}

static void look_at(struct work_worker *reader, struct gfc *gfc, struct work_worker *owner)
{
	switch (work_random(reader->work, 8)) {
	case 0:
	case 1:
	case 2:
		look_up(reader, gfc, owner);
		break;
	case 3:
	case 4:
		get_attr(reader, gfc, owner);
		break;
	case 5:
	case 6:
		list(reader, gfc, owner);
		break;
	default:
		read_file(reader, gfc, owner);
		break;
	}
}

/* -- changing ---------------------------------------------------------------------------------- */

/* A place in the worker's directories. */
struct place {
	unsigned dir, name;
	char text[8];
	int inode; /* there now; -1: none */
};

static struct place pick(struct work_worker *worker)
{
	struct place p = {.dir = (unsigned)work_random(worker->work, MODEL_DIRS),
			  .name = (unsigned)work_random(worker->work, MODEL_NAMES)};

	work_own_name(p.name, p.text);
	p.inode = model_now(&worker->model)->names[p.dir][p.name];
	return p;
}

static bool is_dir(struct work_worker *worker, int inode)
{
	return S_ISDIR(model_now(&worker->model)->inodes[inode].mode);
}

static uint64_t new_token(struct work_worker *worker)
{
	return (uint64_t)(worker->number + 1) << 32 | ++worker->token;
}

/* The newest inode of the newest state was made by this answer. */
static void learn_made(struct work_worker *worker, const struct gfc_attr *attr)
{
	struct model_state *state = model_now(&worker->model);
	unsigned last = state->inode_count - 1;

	/* Rule N3. */
	for (unsigned w = 0; w < worker->work->worker_count; w++) {
		const struct model_state *s = model_now(&worker->work->workers[w].model);

		for (unsigned i = 0; i < s->inode_count; i++)
			if (s->inodes[i].ino == attr->ref.ino)
				work_wrong(worker->work, "inode number %llu was given twice",
					   (unsigned long long)attr->ref.ino);
	}
	state->inodes[last].ino = attr->ref.ino;
	worker->caps[last] = attr->ref.cap;
	if (attr->mode != state->inodes[last].mode)
		work_wrong(worker->work, "worker %u: made with mode %o instead of %o",
			   worker->number, attr->mode, state->inodes[last].mode);
}

static void write_open(struct work_worker *worker, struct gfc *gfc, struct gfc_open *open,
		       unsigned inode, bool close)
{
	struct model_inode *now = &model_now(&worker->model)->inodes[inode], *next;
	uint64_t token = new_token(worker), offset = 0, expected = 0;
	struct gfc_write write = {.data = &token, .bytes = sizeof(token), .close = close};
	struct gfc_attr attr;
	int r;

	if (now->token_count < MODEL_TOKENS && work_random(worker->work, 3) > 0)
		write.append = true;
	else
		write.truncate = true;
	next = &model_begin(&worker->model)->inodes[inode];
	if (write.append)
		expected = 8 * next->token_count;
	else
		next->token_count = 0;
	next->tokens[next->token_count++] = token;
	r = gfc_write(gfc, open, &write, &offset, &attr);
	if (!as_told(worker, "write", r, 0))
		return;
	if (offset != expected || attr.size != 8 * next->token_count)
		work_wrong(worker->work, "worker %u: a token went to %llu of %llu, expected %llu",
			   worker->number, (unsigned long long)offset,
			   (unsigned long long)attr.size, (unsigned long long)expected);
}

/* Keeps it open, writes, or closes. */
static void use_open(struct work_worker *worker, struct gfc *gfc, struct gfc_open *open,
		     unsigned inode, bool writes)
{
	struct work_held *held = NULL;
	int r;

	for (unsigned i = 0; i < WORK_HELD; i++)
		if (worker->held[i].open == NULL)
			held = &worker->held[i];
	if (held != NULL && work_random(worker->work, 2) == 0) {
		*held = (struct work_held){open, inode, writes};
		return;
	}
	if (writes && !model_full(&worker->model)) {
		bool close = work_random(worker->work, 2) == 0;

		write_open(worker, gfc, open, inode, close);
		if (close)
			return;
	}
	r = gfc_close(gfc, open);
	if (r < 0)
		work_failed(worker, "close", r, 0);
}

static void create(struct work_worker *worker, struct gfc *gfc)
{
	struct place p = pick(worker);
	unsigned flags = GFC_OPEN_CREATE | GFC_OPEN_EXCL | GFC_OPEN_READ | GFC_OPEN_WRITE;
	struct gfc_open *open;
	struct gfc_attr attr;
	int inode = -1, r;

	if (p.inode < 0)
		inode = model_make(model_begin(&worker->model), p.dir, p.name, S_IFREG | 0644);
	r = gfc_open(gfc, worker->dirs[p.dir], p.text, flags, 0644, &attr, &open);
	if (!as_told(worker, "create", r, p.inode < 0 ? 0 : -EEXIST))
		return;
	learn_made(worker, &attr);
	use_open(worker, gfc, open, (unsigned)inode, true);
}

static void open_existing(struct work_worker *worker, struct gfc *gfc)
{
	struct place p = pick(worker);
	bool writes = work_random(worker->work, 3) > 0;
	unsigned flags = GFC_OPEN_READ | (writes ? GFC_OPEN_WRITE : 0);
	struct gfc_open *open;
	struct gfc_attr attr;
	int r;

	if (p.inode < 0 || is_dir(worker, p.inode))
		return;
	if (writes && work_random(worker->work, 3) == 0)
		flags |= GFC_OPEN_TRUNC;
	if (flags & GFC_OPEN_TRUNC)
		model_begin(&worker->model)->inodes[p.inode].token_count = 0;
	r = gfc_open(gfc, worker->dirs[p.dir], p.text, flags, 0, &attr, &open);
	if (r < 0) {
		work_failed(worker, "open", r, 0);
		return;
	}
	if (flags & GFC_OPEN_TRUNC)
		model_end(&worker->model);
	use_open(worker, gfc, open, (unsigned)p.inode, writes);
}

static void make_dir(struct work_worker *worker, struct gfc *gfc)
{
	struct place p = pick(worker);
	struct gfc_attr attr;
	int r;

	if (p.inode < 0)
		model_make(model_begin(&worker->model), p.dir, p.name, S_IFDIR | 0755);
	r = gfc_make(gfc, worker->dirs[p.dir], p.text, S_IFDIR | 0755, 0, NULL, &attr);
	if (as_told(worker, "mkdir", r, p.inode < 0 ? 0 : -EEXIST))
		learn_made(worker, &attr);
}

static void remove_name(struct work_worker *worker, struct gfc *gfc)
{
	struct place p = pick(worker);
	bool directory = work_random(worker->work, 8) == 0;
	int expected = 0;

	if (p.inode < 0)
		expected = -ENOENT;
	else if (work_random(worker->work, 8) > 0)
		directory = is_dir(worker, p.inode);
	if (p.inode >= 0 && directory != is_dir(worker, p.inode))
		expected = directory ? -ENOTDIR : -EISDIR;
	if (expected == 0)
		model_drop_name(model_begin(&worker->model), p.dir, p.name);
	as_told(worker, directory ? "rmdir" : "unlink",
		gfc_unlink(gfc, worker->dirs[p.dir], p.text, directory), expected);
}

static void move(struct work_worker *worker, struct gfc *gfc)
{
	static const unsigned kinds[] = {0, 0, 0, GFS_RENAME_EXCHANGE, GFS_RENAME_NOREPLACE};
	struct place from = pick(worker), to = pick(worker);
	unsigned flags = kinds[work_random(worker->work, GX_COUNT_OF(kinds))];
	struct model_state *next = model_begin(&worker->model);
	int expected = model_rename(next, from.dir, from.name, to.dir, to.name, flags);

	if (expected < 0)
		worker->model.started = worker->model.answered;
	as_told(worker, "rename",
		gfc_rename(gfc, worker->dirs[from.dir], from.text, worker->dirs[to.dir], to.text,
			   flags),
		expected);
}

static void link_name(struct work_worker *worker, struct gfc *gfc)
{
	struct place from = pick(worker), to = pick(worker);
	struct model_state *next;
	struct gfc_attr attr;
	struct gfc_ref ref;
	int r;

	if (from.inode < 0 || is_dir(worker, from.inode))
		return;
	if (to.inode < 0) {
		next = model_begin(&worker->model);
		next->names[to.dir][to.name] = from.inode;
		next->inodes[from.inode].nlink++;
	}
	ref = (struct gfc_ref){model_now(&worker->model)->inodes[from.inode].ino,
			       worker->caps[from.inode]};
	r = gfc_link(gfc, ref, worker->dirs[to.dir], to.text, &attr);
	if (as_told(worker, "link", r, to.inode < 0 ? 0 : -EEXIST) &&
	    attr.nlink != model_now(&worker->model)->inodes[from.inode].nlink)
		work_wrong(worker->work, "worker %u: %u links after link, expected %u",
			   worker->number, attr.nlink,
			   model_now(&worker->model)->inodes[from.inode].nlink);
}

static void set_attr(struct work_worker *worker, struct gfc *gfc)
{
	struct place p = pick(worker);
	struct gfc_change change = {0};
	struct model_inode *next;
	struct gfc_attr attr;
	struct gfc_ref ref;

	if (p.inode < 0 || is_dir(worker, p.inode))
		return;
	next = &model_begin(&worker->model)->inodes[p.inode];
	if (work_random(worker->work, 2) == 0) {
		change.mask = GFC_SET_MODE;
		change.mode = 0600 | (uint32_t)work_random(worker->work, 0100);
		next->mode = S_IFREG | change.mode;
	} else {
		change.mask = GFC_SET_SIZE;
		next->token_count = (unsigned)work_random(worker->work, next->token_count + 1);
		change.size = 8 * next->token_count;
	}
	ref = (struct gfc_ref){next->ino, worker->caps[p.inode]};
	as_told(worker, "setattr", gfc_setattr(gfc, ref, NULL, &change, &attr), 0);
}

/* -- files held open ------------------------------------------------------------------------------
 */

static void use_held(struct work_worker *worker, struct gfc *gfc)
{
	struct work_held *held = &worker->held[work_random(worker->work, WORK_HELD)];
	struct gfc_open *open = held->open;
	int r;

	if (open == NULL)
		return;
	switch (work_random(worker->work, 4)) {
	case 0:
		held->open = NULL;
		r = gfc_close(gfc, open);
		if (r < 0)
			work_failed(worker, "close", r, 0);
		break;
	case 1:
		if (held->writes)
			write_open(worker, gfc, open, held->inode, false);
		break;
	default:
		/* Also if it has lost its last name. */
		read_open(worker, gfc, worker, open);
		break;
	}
}

void work_close_all(struct work_worker *worker, struct gfc *gfc)
{
	for (unsigned i = 0; i < WORK_HELD; i++) {
		struct gfc_open *open = GX_TAKE(worker->held[i].open);
		int r = 0;

		if (open == NULL)
			continue;
		if (!worker->lost)
			read_open(worker, gfc, worker, open);
		r = gfc_close(gfc, open);
		if (r < 0 && !worker->lost)
			work_failed(worker, "close", r, 0);
	}
}

static void sync_all(struct work_worker *worker, struct gfc *gfc)
{
	unsigned k = worker->model.answered, appends = worker->append_count;
	int r = gfc_sync(gfc);

	if (r < 0) {
		work_failed(worker, "sync", r, 0);
		return;
	}
	worker->model.synced = k;
	worker->append_synced = appends;
}

static void change_own(struct work_worker *worker, struct gfc *gfc)
{
	if (model_full(&worker->model))
		return;
	switch (work_random(worker->work, 10)) {
	case 0:
	case 1:
		create(worker, gfc);
		break;
	case 2:
		open_existing(worker, gfc);
		break;
	case 3:
		make_dir(worker, gfc);
		break;
	case 4:
	case 5:
		remove_name(worker, gfc);
		break;
	case 6:
	case 7:
		move(worker, gfc);
		break;
	case 8:
		link_name(worker, gfc);
		break;
	default:
		set_attr(worker, gfc);
		break;
	}
}

void work_step(struct work_worker *worker, struct gfc *gfc)
{
	struct work *work = worker->work;

	switch (work_random(work, 20)) {
	case 0:
		sync_all(worker, gfc);
		break;
	case 1:
	case 2:
		work_step_lock(worker, gfc);
		break;
	case 3:
	case 4:
		work_step_append(worker, gfc);
		break;
	case 5:
	case 6:
		work_step_mix(worker, gfc);
		break;
	case 7:
	case 8:
		if (!model_full(&worker->model))
			use_held(worker, gfc);
		break;
	case 9:
		look_at(worker, gfc, worker);
		break;
	case 10:
	case 11:
	case 12:
	case 13:
		look_at(worker, gfc, &work->workers[work_random(work, work->worker_count)]);
		break;
	default:
		change_own(worker, gfc);
		break;
	}
}
