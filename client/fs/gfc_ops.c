/*
 * Names and attributes: from the cache, or one call; changes are told to the cache.
 */
#include "client/fs/gfc_impl.h"

/* Entries of one page of a directory. */
#define PAGE_ENTRIES 1000u

/* -- attributes ------------------------------------------------------------------------------- */

int gfc_attr_from(const PbMeta__Attr *pb, struct gfc_attr *ret_attr)
{
	if (!pb || pb->ino == 0)
		return -EPROTO;
	*ret_attr = (struct gfc_attr){
		.ref = {pb->ino, pb->cap},
		.mode = pb->mode,
		.nlink = pb->nlink,
		.uid = pb->uid,
		.gid = pb->gid,
		.flags = pb->flags,
		.size = pb->size,
		.rdev = pb->rdev,
		.atime_ns = pb->atime_ns,
		.mtime_ns = pb->mtime_ns,
		.ctime_ns = pb->ctime_ns,
		.btime_ns = pb->btime_ns,
		.generation = pb->generation,
		.version = pb->version,
	};
	return 0;
}

int gfc_learn(struct gfc_call *call, const PbMeta__Attr *pb, struct gfc_attr *ret_attr)
{
	int r = gfc_attr_from(pb, ret_attr);

	if (r == 0 && call->gfc->cache)
		gfc_cache_put_attr(call->gfc->cache, call->clock, ret_attr);
	return r;
}

void gfc_touch(struct gfc_call *call, struct gfc_cache_change *change)
{
	if (call->gfc->cache)
		call->clock = gfc_cache_touch(call->gfc->cache, change);
}

void gfc_changed(struct gfc_call *call, int r, struct gfc_cache_change *change)
{
	if (!call->gfc->cache)
		return;
	if (r < 0) {
		for (unsigned i = 0; i < change->name_count; i++)
			change->names[i].known = false;
		change->attr = NULL;
		/* metad says that nothing was done, so what a name stands for is unchanged. */
		change->guess = change->guess && !gfc_call_answered(call);
	}
	/*
	 * A directory known without asking has metad's times and counters but not its version: for
	 * a layer above that looks at it before each change and shows nobody versions, a kernel.
	 */
	if (!call->gfc->predicts)
		change->time_ns = 0;
	gfc_cache_changed(call->gfc->cache, call->clock, change);
	/* It may still be done later, and nobody would tell us: a change of our own. */
	if (r == -ETIMEDOUT || r == -ENOTRECOVERABLE)
		gfc_push_reset(call->gfc);
}

/* -- asking ------------------------------------------------------------------------------------ */

static void learn_name(struct gfc_call *call, uint64_t dir, const char *name, uint64_t ino)
{
	if (call->gfc->cache)
		gfc_cache_put_name(call->gfc->cache, call->clock, dir, name, ino);
}

int gfc_lookup(struct gfc *gfc, struct gfc_ref parent, const char *name, struct gfc_attr *ret_attr)
{
	PbMeta__LookupRequest request = PB_META__LOOKUP_REQUEST__INIT;
	const PbMeta__LookupReply *answer;
	struct gfc_call call;
	int r;

	if (gfc->cache) {
		r = gfc_cache_find_name(gfc->cache, parent.ino, name, ret_attr);
		if (r == -ENOENT)
			return gfc_fail(r, "%s", gx_strerror(r));
		if (r == 0)
			return 0;
	}
	gfc_call_init(&call, gfc);
	request.parent = parent.ino;
	request.cap = parent.cap;
	request.name = (char *)name;
	r = meta_call_lookup(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		r = gfc_learn(&call, answer->attr, ret_attr);
	if (r == 0)
		learn_name(&call, parent.ino, name, ret_attr->ref.ino);
	else if (r == -ENOENT && gfc_call_answered(&call))
		learn_name(&call, parent.ino, name, 0);
	return gfc_call_end(&call, r);
}

int gfc_lookup_ref(struct gfc *gfc, struct gfc_ref parent, const char *name,
		   struct gfc_ref *ret_ref, uint32_t *ret_type)
{
	struct gfc_attr attr;
	int r = gfc->cache ? gfc_cache_find_ref(gfc->cache, parent.ino, name, ret_ref, ret_type)
			   : -EAGAIN;

	if (r == -ENOENT)
		return gfc_fail(r, "%s", gx_strerror(r));
	if (r == 0)
		return 0;
	r = gfc_lookup(gfc, parent, name, &attr);
	if (r == 0) {
		*ret_ref = attr.ref;
		*ret_type = attr.mode & S_IFMT;
	}
	return r;
}

/* By capability, or by `handle` of an open file. */
static int ask_attr(struct gfc *gfc, struct gfc_ref ref, uint64_t handle, struct gfc_attr *ret_attr)
{
	PbMeta__GetattrRequest request = PB_META__GETATTR_REQUEST__INIT;
	const PbMeta__GetattrReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	request.ino = ref.ino;
	request.cap = ref.cap;
	request.handle = handle;
	r = meta_call_getattr(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		r = gfc_learn(&call, answer->attr, ret_attr);
	return gfc_call_end(&call, r);
}

/* Who names an inode by another capability than metad gave us shall hear metad's opinion. */
static bool cached_attr(struct gfc *gfc, struct gfc_ref ref, struct gfc_attr *ret_attr)
{
	return gfc->cache && gfc_cache_find_attr(gfc->cache, ref.ino, ret_attr) == 0 &&
	       (ref.ino == GFC_ROOT.ino || ret_attr->ref.cap == ref.cap);
}

int gfc_getattr(struct gfc *gfc, struct gfc_ref ref, struct gfc_attr *ret_attr)
{
	if (cached_attr(gfc, ref, ret_attr))
		return 0;
	return ask_attr(gfc, ref, 0, ret_attr);
}

int gfc_open_getattr(struct gfc *gfc, struct gfc_open *open, struct gfc_attr *ret_attr)
{
	if (cached_attr(gfc, open->ref, ret_attr))
		return 0;
	return ask_attr(gfc, open->ref, open->handle, ret_attr);
}

int gfc_readlink(struct gfc *gfc, struct gfc_ref ref, char buf[GX_PATH_MAX])
{
	PbMeta__ReadlinkRequest request = PB_META__READLINK_REQUEST__INIT;
	const PbMeta__ReadlinkReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	request.ino = ref.ino;
	request.cap = ref.cap;
	r = meta_call_readlink(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		r = gx_strcpy(buf, GX_PATH_MAX, answer->target);
	return gfc_call_end(&call, r);
}

int gfc_getxattr(struct gfc *gfc, struct gfc_ref ref, const char *name, struct gx_buf *value)
{
	PbMeta__GetxattrRequest request = PB_META__GETXATTR_REQUEST__INIT;
	const PbMeta__GetxattrReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	request.ino = ref.ino;
	request.cap = ref.cap;
	request.name = (char *)name;
	r = meta_call_getxattr(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		r = gx_buf_append(value, answer->value.data, answer->value.len);
	return gfc_call_end(&call, r);
}

int gfc_listxattr(struct gfc *gfc, struct gfc_ref ref, struct gx_buf *names)
{
	PbMeta__ListxattrRequest request = PB_META__LISTXATTR_REQUEST__INIT;
	const PbMeta__ListxattrReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	request.ino = ref.ino;
	request.cap = ref.cap;
	r = meta_call_listxattr(gfc->client, &request, &call.options, &call.reply, &answer);
	for (size_t i = 0; r == 0 && i < answer->n_names; i++)
		r = gx_buf_append(names, answer->names[i], strlen(answer->names[i]) + 1);
	return gfc_call_end(&call, r);
}

int gfc_statfs(struct gfc *gfc, uint64_t *ret_inodes, uint64_t *ret_inline_bytes,
	       uint32_t *ret_name_max)
{
	PbMeta__StatfsRequest request = PB_META__STATFS_REQUEST__INIT;
	const PbMeta__StatfsReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	r = meta_call_statfs(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0) {
		*ret_inodes = answer->inodes;
		*ret_inline_bytes = answer->inline_bytes;
		*ret_name_max = answer->name_max;
	}
	return gfc_call_end(&call, r);
}

/* -- directories ---------------------------------------------------------------------------------
 */

static int take_entry(struct gfc_call *call, uint64_t dir, const PbMeta__DirEntry *pb,
		      gfc_dirent_fn fn, void *arg)
{
	struct gfc_dirent entry = {.name = pb->name, .ino = pb->ino, .type = pb->type};

	if (pb->attr) {
		int r = gfc_learn(call, pb->attr, &entry.attr);

		if (r < 0)
			return r;
		entry.has_attr = true;
		learn_name(call, dir, pb->name, pb->ino);
	}
	return fn(arg, &entry);
}

int gfc_readdir(struct gfc *gfc, struct gfc_ref dir, char *after, bool plus, gfc_dirent_fn fn,
		void *arg)
{
	PbMeta__ReaddirRequest request = PB_META__READDIR_REQUEST__INIT;
	const PbMeta__ReaddirReply *answer;
	struct gfc_call call;
	bool end = false;
	int r;

	gfc_call_init(&call, gfc);
	request.ino = dir.ino;
	request.cap = dir.cap;
	request.after = after;
	request.entries_max = PAGE_ENTRIES;
	request.plus = plus;
	r = meta_call_readdir(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r < 0)
		return gfc_call_end(&call, r);
	for (size_t i = 0; r == 0 && i < answer->n_entries; i++) {
		r = take_entry(&call, dir.ino, answer->entries[i], fn, arg);
		if (r == 0)
			r = gx_strcpy(after, GFS_NAME_MAX + 1, answer->entries[i]->name);
	}
	if (r == 0) {
		end = answer->end;
		if (!end)
			r = gx_strcpy(after, GFS_NAME_MAX + 1, answer->after);
	}
	r = gfc_call_end(&call, r);
	return r == 0 && end ? 1 : r;
}

static int64_t time_of(const PbMeta__Done *done)
{
	return done ? done->time_ns : 0;
}

/* -- changes --------------------------------------------------------------------------------------
 */

int gfc_make(struct gfc *gfc, struct gfc_ref parent, const char *name, uint32_t mode, uint64_t rdev,
	     const char *target, struct gfc_attr *ret_attr)
{
	return gfc_make_masked(gfc, parent, name, mode, 0, rdev, target, ret_attr);
}

int gfc_make_masked(struct gfc *gfc, struct gfc_ref parent, const char *name, uint32_t mode,
		    uint32_t umask, uint64_t rdev, const char *target, struct gfc_attr *ret_attr)
{
	struct gfc_cache_change change = {
		.names = {{parent.ino, name, true, 0, 1, S_ISDIR(mode) ? 1 : 0}}, .name_count = 1};
	PbMeta__MakeRequest request = PB_META__MAKE_REQUEST__INIT;
	const PbMeta__MakeReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	request.parent = parent.ino;
	request.cap = parent.cap;
	request.name = (char *)name;
	request.mode = mode;
	request.umask = umask;
	request.rdev = rdev;
	request.target = (char *)(target ? target : "");
	gfc_touch(&call, &change);
	r = gfc_call_mutates(&call, RPC_INDEX_MAKE, &request.base,
			     offsetof(PbMeta__MakeReply, done));
	if (r == 0)
		r = meta_call_make(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		r = gfc_attr_from(answer->attr, ret_attr);
	change.names[0].ino = r == 0 ? ret_attr->ref.ino : 0;
	change.time_ns = r == 0 ? time_of(answer->done) : 0;
	change.attr = ret_attr;
	gfc_changed(&call, r, &change);
	return gfc_call_end(&call, r);
}

int gfc_link(struct gfc *gfc, struct gfc_ref ref, struct gfc_ref parent, const char *name,
	     struct gfc_attr *ret_attr)
{
	struct gfc_cache_change change = {.names = {{parent.ino, name, true, ref.ino, 1, 0}},
					  .name_count = 1,
					  .inos = {ref.ino}};
	PbMeta__LinkRequest request = PB_META__LINK_REQUEST__INIT;
	const PbMeta__LinkReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	request.ino = ref.ino;
	request.cap = ref.cap;
	request.parent = parent.ino;
	request.parent_cap = parent.cap;
	request.name = (char *)name;
	gfc_touch(&call, &change);
	r = gfc_call_mutates(&call, RPC_INDEX_LINK, &request.base,
			     offsetof(PbMeta__LinkReply, done));
	if (r == 0)
		r = meta_call_link(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		r = gfc_attr_from(answer->attr, ret_attr);
	change.time_ns = r == 0 ? time_of(answer->done) : 0;
	change.attr = ret_attr;
	gfc_changed(&call, r, &change);
	return gfc_call_end(&call, r);
}

int gfc_unlink(struct gfc *gfc, struct gfc_ref parent, const char *name, bool directory)
{
	struct gfc_cache_change change = {
		.names = {{parent.ino, name, true, 0, -1, directory ? -1 : 0}}, .name_count = 1};
	PbMeta__UnlinkRequest request = PB_META__UNLINK_REQUEST__INIT;
	const PbMeta__UnlinkReply *answer;
	struct gfc_call call;
	uint64_t gone = 0;
	int r;

	gfc_call_init(&call, gfc);
	request.parent = parent.ino;
	request.cap = parent.cap;
	request.name = (char *)name;
	request.directory = directory;
	gfc_touch(&call, &change);
	r = gfc_call_mutates(&call, RPC_INDEX_UNLINK, &request.base,
			     offsetof(PbMeta__UnlinkReply, done));
	if (r == 0)
		r = meta_call_unlink(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0) {
		change.inos[0] = gone = answer->ino;
		change.time_ns = time_of(answer->done);
	} else {
		change.guess = true; /* which inode lost a name is not known */
	}
	gfc_changed(&call, r, &change);
	if (directory && gone && gfc->cache)
		gfc_cache_forget(gfc->cache, gone, GFC_FORGET_NAMES, "");
	return gfc_call_end(&call, r);
}

/* Is it known what a rename does to its directories: one name more or less, or just a change? */
static bool rename_steps(struct gfc *gfc, struct gfc_cache_change *change)
{
	struct gfc_cache_name *from = &change->names[0], *to = &change->names[1];
	struct gfc_ref ref;
	uint32_t type;

	if (!gfc->cache || !from->known ||
	    gfc_cache_find_ref(gfc->cache, to->dir, to->name, &ref, &type) != -ENOENT ||
	    gfc_cache_find_ref(gfc->cache, from->dir, from->name, &ref, &type) != 0)
		return false;
	if (from->dir != to->dir) {
		from->entries = -1;
		to->entries = 1;
		from->links = S_ISDIR(type) ? -1 : 0;
		to->links = -from->links;
	}
	return true;
}

int gfc_rename(struct gfc *gfc, struct gfc_ref from_parent, const char *from_name,
	       struct gfc_ref to_parent, const char *to_name, unsigned flags)
{
	struct gfc_cache_change change = {.names = {{.dir = from_parent.ino,
						     .name = from_name,
						     .known = !(flags & GFS_RENAME_EXCHANGE)},
						    {.dir = to_parent.ino, .name = to_name}},
					  .name_count = 2,
					  .guess = true};
	PbMeta__RenameRequest request = PB_META__RENAME_REQUEST__INIT;
	const PbMeta__RenameReply *answer;
	bool steps = rename_steps(gfc, &change);
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	request.from_parent = from_parent.ino;
	request.from_cap = from_parent.cap;
	request.from_name = (char *)from_name;
	request.to_parent = to_parent.ino;
	request.to_cap = to_parent.cap;
	request.to_name = (char *)to_name;
	request.flags = flags;
	gfc_touch(&call, &change);
	r = gfc_call_mutates(&call, RPC_INDEX_RENAME, &request.base,
			     offsetof(PbMeta__RenameReply, done));
	if (r == 0)
		r = meta_call_rename(gfc->client, &request, &call.options, &call.reply, &answer);
	/* Nothing was logged: both are names of one inode, and both stay (POSIX). */
	if (r == 0 && (!answer->done || answer->done->index == 0))
		change.names[0].known = false;
	else if (r == 0 && steps)
		change.time_ns = answer->done->time_ns;
	gfc_changed(&call, r, &change);
	return gfc_call_end(&call, r);
}

int gfc_setattr(struct gfc *gfc, struct gfc_ref ref, struct gfc_open *open,
		const struct gfc_change *set, struct gfc_attr *ret_attr)
{
	struct gfc_cache_change change = {.inos = {ref.ino}};
	PbMeta__SetattrRequest request = PB_META__SETATTR_REQUEST__INIT;
	const PbMeta__SetattrReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	request.ino = ref.ino;
	request.cap = ref.cap;
	request.handle = open ? open->handle : 0;
	request.mask = set->mask;
	request.mode = set->mode;
	request.uid = set->uid;
	request.gid = set->gid;
	request.size = set->size;
	request.atime_ns = set->atime_ns;
	request.mtime_ns = set->mtime_ns;
	gfc_touch(&call, &change);
	r = gfc_call_mutates(&call, RPC_INDEX_SETATTR, &request.base,
			     offsetof(PbMeta__SetattrReply, done));
	if (r == 0)
		r = meta_call_setattr(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		r = gfc_attr_from(answer->attr, ret_attr);
	change.attr = ret_attr;
	gfc_changed(&call, r, &change);
	/* Of a directory: names in it may not be ours to look up any more. */
	if (gfc->cache && (set->mask & (GFC_SET_MODE | GFC_SET_UID | GFC_SET_GID)))
		gfc_cache_forget(gfc->cache, ref.ino, GFC_FORGET_NAMES, "");
	return gfc_call_end(&call, r);
}

int gfc_setxattr(struct gfc *gfc, struct gfc_ref ref, const char *name, const void *value,
		 size_t bytes, unsigned flags)
{
	struct gfc_cache_change change = {.inos = {ref.ino}};
	PbMeta__SetxattrRequest request = PB_META__SETXATTR_REQUEST__INIT;
	const PbMeta__SetxattrReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	request.ino = ref.ino;
	request.cap = ref.cap;
	request.name = (char *)name;
	request.value = (ProtobufCBinaryData){bytes, (uint8_t *)value};
	request.flags = flags;
	gfc_touch(&call, &change);
	r = gfc_call_mutates(&call, RPC_INDEX_SETXATTR, &request.base,
			     offsetof(PbMeta__SetxattrReply, done));
	if (r == 0)
		r = meta_call_setxattr(gfc->client, &request, &call.options, &call.reply, &answer);
	gfc_changed(&call, r, &change);
	/* As chmod of a directory: names in it may not be ours to look up any more. */
	if (gfc->cache && strncmp(name, "system.posix_acl_", 17) == 0)
		gfc_cache_forget(gfc->cache, ref.ino, GFC_FORGET_NAMES, "");
	return gfc_call_end(&call, r);
}
