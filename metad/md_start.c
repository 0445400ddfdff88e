/*
 * How metad starts: the lock, the database, the log behind it, the commands of earlier lives, and
 * numbers that none of them can have given.
 */
#define GX_LOG_COMPONENT "metad"
#include "common/gx_broken.h"
#include "common/gx_limits.h"
#include "common/gx_log.h"
#include "common/gx_num.h"
#include "metad/md_server_impl.h"
#include <fcntl.h>

static void on_kv_fatal(void *arg, int err)
{
	md_fatal(arg, err);
}

static int sub_path(const struct md_server *md, const char *name, char path[GX_PATH_MAX])
{
	return gx_format(path, GX_PATH_MAX, "%s/%s", md->options.dir, name);
}

static int lock_dir(struct md_server *md)
{
	char path[GX_PATH_MAX];
	int r = sub_path(md, "lock", path);

	if (r < 0)
		return r;
	r = gx_env_open(md->env, path, O_RDWR | O_CREAT, 0600);
	if (r < 0)
		return gx_log_errno(ERR, r, "cannot open the lock", GX_KS("path", path));
	md->lock_fd = r;
	r = gx_env_lock_file(md->env, md->lock_fd);
	if (r == -EAGAIN || r == -EACCES || r == -EBUSY || r == -EWOULDBLOCK)
		return gx_log_errno(ERR, -EBUSY, "another metad runs on this directory",
				    GX_KS("dir", md->options.dir));
	return r;
}

static int make_dir(struct md_server *md, const char *name, char path[GX_PATH_MAX])
{
	int r = sub_path(md, name, path);

	if (r == 0)
		r = gx_env_mkdir(md->env, path, 0700);
	if (r == -EEXIST)
		return 0;
	if (r == 0)
		r = gx_env_sync_dir(md->env, md->options.dir);
	return r < 0 ? gx_log_errno(ERR, r, "cannot make a directory", GX_KS("path", path)) : 0;
}

static int open_store(struct md_server *md)
{
	struct md_kv_options kv = {
		.env = md->env,
		.loop = md->loop,
		.cache_bytes = md->options.cache_bytes,
		.layer_bytes = md->options.layer_bytes,
		.overlay_bytes_max = md->options.overlay_bytes_max,
		.stored_fn = md_on_stored,
		.fatal_fn = on_kv_fatal,
		.arg = md,
		.test_writer = md->options.test_writer,
	};
	char path[GX_PATH_MAX];
	int r;

	if (md->options.memory_store) {
		r = sub_path(md, "store", path);
		if (r == 0)
			r = md_store_open_mem(md->env, path, &kv.store);
	} else {
		r = make_dir(md, "db", path);
		if (r == 0)
			r = md_store_open_leveldb(md->env, path, md->options.store_cache_bytes,
						  &kv.store);
	}
	if (r == 0)
		r = md_kv_open(&kv, &md->kv, &md->stored);
	if (r < 0)
		return gx_log_errno(ERR, r, "cannot open the database", GX_KS("path", path));
	md->state.kv = md->kv;
	return 0;
}

static int load_secret(struct md_server *md)
{
	struct md_super super;
	int r = md_state_super(&md->state, &super);

	if (r < 0 || md->cap)
		return r;
	return md_cap_new(super.secret, &md->cap);
}

/* A command of an earlier life. It succeeded then, so it does now, or something is very wrong. */
static int on_replay(void *arg, uint64_t index, uint64_t epoch GX_UNUSED, const void *data,
		     size_t bytes)
{
	struct md_server *md = arg;
	struct md_ctx ctx = {.state = &md->state, .arena = &md->arena, .index = index};
	unsigned char packed[MD_RESULT_MAX];
	ProtobufCMessage *reply = NULL;
	struct md_command command;
	PbMeta__Done done;
	int r;

	r = md_command_decode(data, bytes, &md->arena, &command);
	if (r == 0) {
		reply = rpc_arena_alloc(&md->arena, command.method->reply->sizeof_message);
		r = reply ? 0 : -ENOMEM;
	}
	if (r == 0) {
		protobuf_c_message_init(command.method->reply, reply);
		r = md_state_apply(&ctx, &command, false, reply);
	}
	if (r == 0 && command.method->id == RPC_FORMAT)
		r = load_secret(md);
	if (r == 0 && command.seq != 0)
		md_complete(md, &ctx, &command, reply, &done, packed);
	rpc_arena_clear(&md->arena);
	if (r < 0)
		return gx_log_errno(ERR, r == -ENOMEM ? r : -EBADMSG,
				    "a command in the log does not apply", GX_KU("index", index));
	md->time_ns = GX_MAX(md->time_ns, command.time_ns);
	md_kv_applied(md->kv, index);
	return 0;
}

static int open_log(struct md_server *md)
{
	struct md_log_options log = {
		.env = md->env,
		.loop = md->loop,
		.segment_bytes = md->options.segment_bytes,
		.durable_fn = md_on_durable,
		.arg = md,
	};
	char path[GX_PATH_MAX];
	int r;

	r = load_secret(md);
	if (r < 0 && r != -ENOENT)
		return gx_log_errno(ERR, r, "the database is not one of ours");
	r = make_dir(md, "log", path);
	if (r < 0)
		return r;
	log.dir = path;
	r = md_log_open(&log, md->stored, on_replay, md, &md->log);
	if (r < 0)
		return gx_log_errno(ERR, r, "cannot open the log", GX_KS("path", path));
	md_kv_durable(md->kv, md_log_durable(md->log));
	return 0;
}

static int format(struct md_server *md)
{
	PbMeta__FormatRequest request = PB_META__FORMAT_REQUEST__INIT;
	PbMeta__FormatReply reply = PB_META__FORMAT_REPLY__INIT;
	unsigned char secret[MD_SECRET_BYTES];
	uint8_t uuid[MD_LOG_UUID_BYTES];
	int r;

	r = gx_env_random(md->env, secret, sizeof(secret));
	if (r < 0)
		return r;
	md_log_uuid(md->log, uuid);
	request.uuid_low = gx_get_le64(uuid);
	request.uuid_high = gx_get_le64(uuid + 8);
	request.secret = (ProtobufCBinaryData){sizeof(secret), secret};
	request.root_uid = md->options.root_uid;
	request.root_gid = md->options.root_gid;
	request.root_mode = md->options.root_mode;
	r = md_own_command(md, RPC_INDEX_FORMAT, 0, &request.base, &reply.base, NULL);
	if (r == 0)
		gx_log(NOTICE, "a new grid has been made", GX_KS("dir", md->options.dir));
	return r < 0 ? r : load_secret(md);
}

static int check_uuid(struct md_server *md)
{
	uint8_t uuid[MD_LOG_UUID_BYTES];
	struct md_super super;
	int r = md_state_super(&md->state, &super);

	if (r == -ENOENT)
		return format(md);
	md_log_uuid(md->log, uuid);
	if (r == 0 && memcmp(uuid, super.uuid, sizeof(uuid)) != 0)
		r = gx_log_errno(ERR, -EBADMSG, "log and database belong to different grids");
	return r;
}

/* Whatever the last life had reserved may have been given: this one starts behind it. */
static int start_ids(struct md_server *md)
{
	struct md_ids ids;
	int r;

	md_state_ids(&md->state, &ids);
	md->next_ino = md->ino_limit = ids.ino_limit;
	md->next_session = md->session_limit = ids.session_limit;
	md->lock_epoch = ids.lock_epoch;
	if (GX_BROKEN(3) && md->next_ino > MD_INO_RANGE)
		md->next_ino -= MD_INO_RANGE;
	md_reserve_ids(md);
	if (md->reserve_index == 0)
		return 0; /* the log is full: no changes, but reads */
	r = md_log_commit(md->log);
	if (r == 0 && !GX_BROKEN(2))
		r = md_log_sync(md->log);
	if (r == 0) {
		md_ids_reserved(md);
		md_kv_durable(md->kv, md_log_durable(md->log));
	}
	return r;
}

int md_start_state(struct md_server *md)
{
	int r = lock_dir(md);

	if (r == 0)
		r = open_store(md);
	if (r == 0)
		r = open_log(md);
	if (r == 0)
		r = check_uuid(md);
	return r < 0 ? r : start_ids(md);
}
