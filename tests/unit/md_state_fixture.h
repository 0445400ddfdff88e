/*
 * A state machine on a scratch store, users, and calls that read like the system calls they stand
 * for. Commands that succeed are recorded as a log would, so that a test can replay them.
 */
#ifndef TEST_MD_STATE_FIXTURE_H
#define TEST_MD_STATE_FIXTURE_H

#include "common/gx_limits.h"
#include "common/gx_num.h"
#include "metad/md_check.h"
#include "metad/md_state.h"
#include <check.h>
#include <stdio.h>
#include <unistd.h>

#define INODES_MAX 100000u

struct who {
	uint64_t session;
	struct md_cred cred;
};

static const uint32_t project[] = {200};
static const struct who root = {1, {0, 0, 0, NULL}};
static const struct who ann = {2, {100, 100, 1, project}};
static const struct who bob = {3, {101, 101, 1, project}};
static const struct who eve = {4, {102, 102, 0, NULL}};

struct world {
	char dir[64];
	struct gx_loop *loop;
	struct md_kv *kv;
	struct md_state state;
	struct rpc_arena arena;
	struct gx_buf log; /* length and command, or a zero and the inode that was reaped */
	uint64_t index, durable;
	uint64_t next_ino;
	int64_t time_ns;
	uint64_t depends;  /* of the last call */
	PbMeta__Attr attr; /* of the last call that gives one */
	uint64_t offset;   /* of the last write */
	bool record;
	unsigned char open[INODES_MAX]; /* how often */
};

GX_UNUSED static bool world_is_open(void *arg, uint64_t ino)
{
	return ((struct world *)arg)->open[ino] > 0;
}

GX_UNUSED static void world_stored(void *arg, uint64_t index, int err)
{
	(void)arg;
	(void)index;
	ck_assert_int_eq(err, 0);
}

/* writer: md_kv_options.test_writer. Not formatted. */
GX_UNUSED static struct world *world_new_empty(int writer, size_t layer_bytes)
{
	struct world *w = calloc(1, sizeof(*w));
	struct md_kv_options options = {
		.env = gx_env_posix(),
		.cache_bytes = 1 << 20,
		.layer_bytes = layer_bytes,
		.overlay_bytes_max = 4 * layer_bytes,
		.stored_fn = world_stored,
		.arg = w,
		.test_writer = writer,
	};
	char path[96];
	uint64_t stored;

	memcpy(w->dir, "/tmp/md_state.XXXXXX", 21);
	ck_assert_ptr_nonnull(mkdtemp(w->dir));
	snprintf(path, sizeof(path), "%s/store", w->dir);
	ck_assert_int_eq(gx_loop_new(gx_env_posix(), &w->loop), 0);
	options.loop = w->loop;
	ck_assert_int_eq(md_store_open_mem(gx_env_posix(), path, &options.store), 0);
	ck_assert_int_eq(md_kv_open(&options, &w->kv, &stored), 0);
	w->state = (struct md_state){.kv = w->kv, .is_open = world_is_open, .arg = w};
	rpc_arena_init(&w->arena, GX_UNPACK_MAX);
	gx_buf_init(&w->log, 1u << 30);
	w->next_ino = 2;
	w->time_ns = 1000;
	w->record = true;
	return w;
}

GX_UNUSED static void world_sync(struct world *w)
{
	w->durable = w->index;
	md_kv_durable(w->kv, w->durable);
}

GX_UNUSED static void world_format(struct world *w)
{
	struct md_super super;
	ck_assert_int_eq(md_state_super(&w->state, &super), -ENOENT);
	md_state_format(&w->state, ++w->index, 1000);
	md_kv_applied(w->kv, w->index);
	world_sync(w);
	ck_assert_int_eq(md_state_super(&w->state, &super), 0);
}

GX_UNUSED static struct world *world_new(int writer)
{
	struct world *w = world_new_empty(writer, 1 << 16);

	world_format(w);
	return w;
}

GX_UNUSED static void world_free(struct world *w)
{
	char path[96];

	md_kv_close(w->kv);
	gx_loop_free(w->loop);
	rpc_arena_clear(&w->arena);
	gx_buf_fini(&w->log);
	snprintf(path, sizeof(path), "%s/store", w->dir);
	unlink(path);
	ck_assert_int_eq(rmdir(w->dir), 0);
	free(w);
}

GX_UNUSED static void say_problem(void *arg, const char *text)
{
	(void)arg;
	fprintf(stderr, "%s\n", text);
}

GX_UNUSED static void check_world(struct world *w)
{
	ck_assert_int_eq(md_check(&w->state, say_problem, NULL), 0);
}

/* -- commands --------------------------------------------------------------------------- */

GX_UNUSED static void world_record(struct world *w, const struct md_command *command)
{
	size_t at = w->log.bytes;

	ck_assert_int_eq(gx_buf_append(&w->log, "\0\0\0\0", 4), 0);
	ck_assert_int_eq(md_command_encode(command, &w->log), 0);
	gx_put_le32(w->log.data + at, (uint32_t)(w->log.bytes - at - 4));
}

GX_UNUSED static struct md_ctx ctx_of(struct world *w, const struct who *who)
{
	rpc_arena_clear(&w->arena);
	return (struct md_ctx){
		.state = &w->state,
		.cred = &who->cred,
		.arena = &w->arena,
		.session = who->session,
		.index = w->index + 1,
		.time_ns = w->time_ns,
	};
}

GX_UNUSED static int apply_with(struct world *w, const struct who *who, struct md_command *command,
				ProtobufCMessage *reply)
{
	struct md_ctx ctx = ctx_of(w, who);
	int r;

	w->time_ns += 10;
	command->time_ns = w->time_ns;
	command->session = who->session;
	command->cred = who->cred;
	command->new_ino = w->next_ino;
	r = md_state_apply(&ctx, command, true, reply);
	w->depends = ctx.depends;
	if (r < 0)
		return r;
	if (w->record)
		world_record(w, command);
	md_kv_applied(w->kv, ++w->index);
	return 0;
}

GX_UNUSED static int apply(struct world *w, const struct who *who, uint16_t method,
			   ProtobufCMessage *request, ProtobufCMessage *reply)
{
	struct md_command command = {.method = rpc_method_find(method), .request = request};

	return apply_with(w, who, &command, reply);
}

GX_UNUSED static int take_attr(struct world *w, int r, const PbMeta__Attr *attr)
{
	if (r == 0)
		w->attr = *attr;
	return r;
}

GX_UNUSED static int do_make_full(struct world *w, const struct who *who,
				  const PbMeta__MakeRequest *given)
{
	PbMeta__MakeRequest request = *given;
	PbMeta__MakeReply reply = PB_META__MAKE_REPLY__INIT;
	int r = apply(w, who, RPC_MAKE, &request.base, &reply.base);

	w->next_ino += r == 0;
	return take_attr(w, r, reply.attr);
}

GX_UNUSED static int do_make(struct world *w, const struct who *who, uint64_t parent,
			     const char *name, uint32_t mode)
{
	PbMeta__MakeRequest request = PB_META__MAKE_REQUEST__INIT;

	request.parent = parent;
	request.name = (char *)(uintptr_t)name;
	request.mode = mode;
	return do_make_full(w, who, &request);
}

GX_UNUSED static int do_mkdir(struct world *w, const struct who *who, uint64_t parent,
			      const char *name, uint32_t mode)
{
	return do_make(w, who, parent, name, S_IFDIR | mode);
}

GX_UNUSED static int do_symlink(struct world *w, const struct who *who, uint64_t parent,
				const char *name, const char *target)
{
	PbMeta__MakeRequest request = PB_META__MAKE_REQUEST__INIT;

	request.parent = parent;
	request.name = (char *)(uintptr_t)name;
	request.mode = S_IFLNK;
	request.target = (char *)(uintptr_t)target;
	return do_make_full(w, who, &request);
}

GX_UNUSED static int do_create(struct world *w, const struct who *who, uint64_t parent,
			       const char *name, uint32_t mode)
{
	PbMeta__OpenRequest request = PB_META__OPEN_REQUEST__INIT;
	PbMeta__OpenReply reply = PB_META__OPEN_REPLY__INIT;
	int r;

	request.parent = parent;
	request.name = (char *)(uintptr_t)name;
	request.mode = mode;
	request.flags = 2 | 4;
	r = apply(w, who, RPC_OPEN, &request.base, &reply.base);
	w->next_ino += r == 0;
	return take_attr(w, r, reply.attr);
}

GX_UNUSED static int do_link(struct world *w, const struct who *who, uint64_t ino, uint64_t parent,
			     const char *name)
{
	PbMeta__LinkRequest request = PB_META__LINK_REQUEST__INIT;
	PbMeta__LinkReply reply = PB_META__LINK_REPLY__INIT;
	int r;

	request.ino = ino;
	request.parent = parent;
	request.name = (char *)(uintptr_t)name;
	r = apply(w, who, RPC_LINK, &request.base, &reply.base);
	return take_attr(w, r, reply.attr);
}

GX_UNUSED static int do_remove(struct world *w, const struct who *who, uint64_t parent,
			       const char *name, bool directory)
{
	PbMeta__UnlinkRequest request = PB_META__UNLINK_REQUEST__INIT;
	PbMeta__UnlinkReply reply = PB_META__UNLINK_REPLY__INIT;

	request.parent = parent;
	request.name = (char *)(uintptr_t)name;
	request.directory = directory;
	return apply(w, who, RPC_UNLINK, &request.base, &reply.base);
}

GX_UNUSED static int do_unlink(struct world *w, const struct who *who, uint64_t parent,
			       const char *name)
{
	return do_remove(w, who, parent, name, false);
}

GX_UNUSED static int do_rmdir(struct world *w, const struct who *who, uint64_t parent,
			      const char *name)
{
	return do_remove(w, who, parent, name, true);
}

GX_UNUSED static int do_rename(struct world *w, const struct who *who, uint64_t from_parent,
			       const char *from, uint64_t to_parent, const char *to, uint32_t flags)
{
	PbMeta__RenameRequest request = PB_META__RENAME_REQUEST__INIT;
	PbMeta__RenameReply reply = PB_META__RENAME_REPLY__INIT;

	request.from_parent = from_parent;
	request.from_name = (char *)(uintptr_t)from;
	request.to_parent = to_parent;
	request.to_name = (char *)(uintptr_t)to;
	request.flags = flags;
	return apply(w, who, RPC_RENAME, &request.base, &reply.base);
}

enum {
	MODE = 1,
	UID = 2,
	GID = 4,
	SIZE = 8,
	ATIME = 16,
	MTIME = 32,
	ATIME_NOW = 64,
	MTIME_NOW = 128
};

GX_UNUSED static int do_setattr(struct world *w, const struct who *who, uint64_t ino, uint32_t mask,
				uint64_t value, unsigned flags)
{
	PbMeta__SetattrRequest request = PB_META__SETATTR_REQUEST__INIT;
	PbMeta__SetattrReply reply = PB_META__SETATTR_REPLY__INIT;
	struct md_command command = {
		.method = rpc_method_find(RPC_SETATTR), .request = &request.base, .flags = flags};
	int r;

	request.ino = ino;
	request.mask = mask;
	request.mode = request.uid = request.gid = (uint32_t)value;
	request.size = value;
	request.atime_ns = request.mtime_ns = (int64_t)value;
	r = apply_with(w, who, &command, &reply.base);
	return take_attr(w, r, reply.attr);
}

GX_UNUSED static int do_chmod(struct world *w, const struct who *who, uint64_t ino, uint32_t mode)
{
	return do_setattr(w, who, ino, MODE, mode, 0);
}

/* offset UINT64_MAX appends. */
GX_UNUSED static int do_write_as(struct world *w, const struct who *who, uint64_t ino,
				 uint64_t offset, const void *data, size_t bytes, unsigned flags,
				 bool within)
{
	PbMeta__WriteRequest request = PB_META__WRITE_REQUEST__INIT;
	PbMeta__WriteReply reply = PB_META__WRITE_REPLY__INIT;
	struct md_command command = {
		.method = rpc_method_find(RPC_WRITE),
		.request = &request.base,
		.payload = data,
		.payload_bytes = (uint32_t)bytes,
		.flags = flags,
	};
	int r;

	request.ino = ino;
	request.append = offset == UINT64_MAX;
	request.offset = request.append ? 0 : offset;
	request.within = within;
	r = apply_with(w, who, &command, &reply.base);
	if (r == 0)
		w->offset = reply.offset;
	return take_attr(w, r, reply.attr);
}

GX_UNUSED static int do_write(struct world *w, const struct who *who, uint64_t ino, uint64_t offset,
			      const void *data, size_t bytes, unsigned flags)
{
	return do_write_as(w, who, ino, offset, data, bytes, flags, false);
}

GX_UNUSED static int do_setxattr(struct world *w, const struct who *who, uint64_t ino,
				 const char *name, const void *value, size_t bytes, uint32_t flags)
{
	PbMeta__SetxattrRequest request = PB_META__SETXATTR_REQUEST__INIT;
	PbMeta__SetxattrReply reply = PB_META__SETXATTR_REPLY__INIT;

	request.ino = ino;
	request.name = (char *)(uintptr_t)name;
	request.value.data = (uint8_t *)(uintptr_t)value;
	request.value.len = bytes;
	request.flags = flags;
	return apply(w, who, RPC_SETXATTR, &request.base, &reply.base);
}

GX_UNUSED static void do_reap(struct world *w, uint64_t ino)
{
	static const struct who metad = {0, {0, 0, 0, NULL}};
	struct md_ctx ctx = ctx_of(w, &metad);
	unsigned char bytes[12] = {0};

	gx_put_le64(bytes + 4, ino);
	ck_assert_int_eq(gx_buf_append(&w->log, bytes, sizeof(bytes)), 0);
	ck_assert_int_eq(md_state_reap(&ctx, ino), 0);
	md_kv_applied(w->kv, ++w->index);
}

/* -- queries ---------------------------------------------------------------------------- */

GX_UNUSED static int do_lookup(struct world *w, const struct who *who, uint64_t parent,
			       const char *name)
{
	PbMeta__LookupRequest request = PB_META__LOOKUP_REQUEST__INIT;
	PbMeta__LookupReply reply = PB_META__LOOKUP_REPLY__INIT;
	struct md_ctx ctx = ctx_of(w, who);
	int r;

	request.parent = parent;
	request.name = (char *)(uintptr_t)name;
	r = md_state_lookup(&ctx, &request, &reply);
	w->depends = ctx.depends;
	return take_attr(w, r, reply.attr);
}

GX_UNUSED static int do_getattr(struct world *w, const struct who *who, uint64_t ino)
{
	PbMeta__GetattrRequest request = PB_META__GETATTR_REQUEST__INIT;
	PbMeta__GetattrReply reply = PB_META__GETATTR_REPLY__INIT;
	struct md_ctx ctx = ctx_of(w, who);
	int r;

	request.ino = ino;
	r = md_state_getattr(&ctx, &request, &reply);
	w->depends = ctx.depends;
	return take_attr(w, r, reply.attr);
}

GX_UNUSED static int do_may_open(struct world *w, const struct who *who, uint64_t ino,
				 uint32_t flags)
{
	struct md_ctx ctx = ctx_of(w, who);

	return md_state_may_open(&ctx, ino, flags, &w->attr);
}

/* Borrowed until the next call. */
GX_UNUSED static int do_read(struct world *w, const struct who *who, uint64_t ino, uint64_t offset,
			     uint32_t bytes, const void **ret_data, size_t *ret_bytes)
{
	PbMeta__ReadReply reply = PB_META__READ_REPLY__INIT;
	struct md_ctx ctx = ctx_of(w, who);
	int r = md_state_read(&ctx, ino, offset, bytes, &reply, ret_data, ret_bytes);

	w->depends = ctx.depends;
	return take_attr(w, r, reply.attr);
}

GX_UNUSED static int do_readdir(struct world *w, const struct who *who, uint64_t ino,
				const char *after, uint32_t max, bool plus,
				PbMeta__ReaddirReply *reply)
{
	PbMeta__ReaddirRequest request = PB_META__READDIR_REQUEST__INIT;
	struct md_ctx ctx = ctx_of(w, who);
	int r;

	pb_meta__readdir_reply__init(reply);
	request.ino = ino;
	request.after = (char *)(uintptr_t)after;
	request.entries_max = max;
	request.plus = plus;
	r = md_state_readdir(&ctx, &request, reply);
	w->depends = ctx.depends;
	return r;
}

GX_UNUSED static int do_getxattr(struct world *w, const struct who *who, uint64_t ino,
				 const char *name, ProtobufCBinaryData *ret_value)
{
	PbMeta__GetxattrRequest request = PB_META__GETXATTR_REQUEST__INIT;
	PbMeta__GetxattrReply reply = PB_META__GETXATTR_REPLY__INIT;
	struct md_ctx ctx = ctx_of(w, who);
	int r;

	request.ino = ino;
	request.name = (char *)(uintptr_t)name;
	r = md_state_getxattr(&ctx, &request, &reply);
	w->depends = ctx.depends;
	*ret_value = reply.value;
	return r;
}

GX_UNUSED static int do_listxattr(struct world *w, const struct who *who, uint64_t ino,
				  PbMeta__ListxattrReply *reply)
{
	PbMeta__ListxattrRequest request = PB_META__LISTXATTR_REQUEST__INIT;
	struct md_ctx ctx = ctx_of(w, who);
	int r;

	pb_meta__listxattr_reply__init(reply);
	request.ino = ino;
	r = md_state_listxattr(&ctx, &request, reply);
	w->depends = ctx.depends;
	return r;
}

/* -- replay and comparison -------------------------------------------------------------- */

/* Applies what `from` has recorded to a new world with another writer. */
GX_UNUSED static struct world *world_replay(const struct world *from, int writer)
{
	struct world *w = world_new_empty(writer, 1 << 14);
	size_t at = 0;

	world_format(w);
	while (at < from->log.bytes) {
		uint32_t bytes = gx_get_le32(from->log.data + at);
		struct md_command command;
		struct md_ctx ctx = ctx_of(w, &root);
		union {
			ProtobufCMessage base;
			unsigned char bytes[256];
		} reply;

		at += 4;
		if (bytes == 0) {
			uint64_t ino = gx_get_le64(from->log.data + at);

			at += 8;
			ctx.session = 0;
			ck_assert_int_eq(md_state_reap(&ctx, ino), 0);
		} else {
			ck_assert_int_eq(
				md_command_decode(from->log.data + at, bytes, &w->arena, &command),
				0);
			protobuf_c_message_init(command.method->reply, &reply);
			ck_assert_int_eq(md_state_apply(&ctx, &command, false, &reply.base), 0);
			at += bytes;
		}
		md_kv_applied(w->kv, ++w->index);
		if (w->index % 16 == 0)
			world_sync(w);
	}
	return w;
}

GX_UNUSED static int dump_one(void *arg, const void *key, size_t key_bytes, const void *value,
			      size_t value_bytes, const struct md_tag *tag)
{
	struct gx_buf *buf = arg;
	unsigned char lengths[8];

	(void)tag;
	gx_put_le32(lengths, (uint32_t)key_bytes);
	gx_put_le32(lengths + 4, (uint32_t)value_bytes);
	ck_assert_int_eq(gx_buf_append(buf, lengths, sizeof(lengths)), 0);
	ck_assert_int_eq(gx_buf_append(buf, key, key_bytes), 0);
	ck_assert_int_eq(gx_buf_append(buf, value, value_bytes), 0);
	return 0;
}

GX_UNUSED static void assert_same_state(struct world *a, struct world *b)
{
	struct gx_buf dumps[2];
	struct world *worlds[] = {a, b};

	for (int i = 0; i < 2; i++) {
		gx_buf_init(&dumps[i], 1u << 30);
		ck_assert_int_eq(md_kv_scan(worlds[i]->kv, "\1", 1, NULL, 0, dump_one, &dumps[i]),
				 0);
	}
	ck_assert_uint_gt(dumps[0].bytes, 0);
	ck_assert_uint_eq(dumps[0].bytes, dumps[1].bytes);
	ck_assert_mem_eq(dumps[0].data, dumps[1].data, dumps[0].bytes);
	gx_buf_fini(&dumps[0]);
	gx_buf_fini(&dumps[1]);
}

#endif
