/*
 * Open files, and bytes that metad holds itself.
 */
#include "client/fs/gfc_impl.h"
#include "common/gx_hash.h"
#include "rpc/rpc_status.h"

/* Files told in one Resume. */
#define RESUME_FILES 1000u
#define RESUME_LOCKS 5000u

/* -- the table -------------------------------------------------------------------------------- */

void gfc_opens_add(struct gfc *gfc, struct gfc_open *open)
{
	gx_env_mutex_lock(gfc->env, &gfc->lock);
	DL_APPEND(gfc->opens, open);
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

void gfc_opens_remove(struct gfc *gfc, struct gfc_open *open)
{
	gx_env_mutex_lock(gfc->env, &gfc->lock);
	/* In a list of utlist's kind the first one's prev is the last, never NULL. */
	if (open->prev) {
		DL_DELETE(gfc->opens, open);
		open->prev = open->next = NULL;
	}
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

void gfc_opens_lose(struct gfc *gfc)
{
	struct gfc_open *open;

	gx_env_mutex_lock(gfc->env, &gfc->lock);
	DL_FOREACH (gfc->opens, open)
		open->lost = true;
	gfc_locks_lost(gfc);
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

static void lose_handles(struct gfc *gfc, const PbMeta__ResumeReply *answer)
{
	struct gfc_open *open;

	gx_env_mutex_lock(gfc->env, &gfc->lock);
	for (size_t i = 0; i < answer->n_lost; i++) {
		DL_FOREACH (gfc->opens, open)
			if (open->handle == answer->lost[i])
				open->lost = true;
	}
	if (answer->n_lost > 0)
		gfc_locks_lost(gfc);
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

/* All open files as they are now: what closes meanwhile will be closed again afterwards. */
static int copy_files(struct gfc *gfc, PbMeta__OpenFile **ret_files, PbMeta__OpenFile ***ret_list,
		      size_t *ret_count)
{
	GX_AUTOFREE PbMeta__OpenFile *files = NULL;
	PbMeta__OpenFile **list = NULL;
	struct gfc_open *open;
	size_t count = 0, i = 0;

	gx_env_mutex_lock(gfc->env, &gfc->lock);
	DL_FOREACH (gfc->opens, open)
		count += !open->lost;
	files = calloc(count + 1, sizeof(*files));
	list = calloc(count + 1, sizeof(PbMeta__OpenFile *));
	if (files && list) {
		DL_FOREACH (gfc->opens, open) {
			if (open->lost)
				continue;
			pb_meta__open_file__init(&files[i]);
			files[i].handle = open->handle;
			files[i].ino = open->ref.ino;
			files[i].flags = open->flags;
			files[i].token = open->token;
			list[i] = &files[i];
			i++;
		}
	}
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
	if (!files || !list) {
		free(list);
		return -ENOMEM;
	}
	*ret_files = GX_TAKE(files);
	*ret_list = list;
	*ret_count = count;
	return 0;
}

static void locks_confirmed(struct gfc *gfc, uint64_t epoch)
{
	gx_env_mutex_lock(gfc->env, &gfc->lock);
	gfc->locks.epoch = epoch;
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

static int resume_call(struct gfc *gfc, struct rpc_chan *chan, PbMeta__ResumeRequest *message,
		       int64_t deadline_ns)
{
	struct rpc_request request = {.method = rpc_method_get(RPC_INDEX_RESUME),
				      .message = &message->base,
				      .deadline_ns = deadline_ns};
	struct rpc_reply reply;
	uint64_t call;
	int r;

	rpc_reply_init(&reply);
	r = rpc_chan_submit(chan, &request, &call, NULL);
	if (r == 0)
		r = rpc_chan_wait(chan, call, &reply);
	if (r == 0)
		r = rpc_status_to_errno(reply.status);
	if (r == 0 && message->last)
		locks_confirmed(gfc, ((const PbMeta__ResumeReply *)reply.message)->epoch);
	if (r == 0)
		lose_handles(gfc, (const PbMeta__ResumeReply *)reply.message);
	rpc_reply_fini(&reply);
	return r;
}

/* What was locked, behind the files; `last` with the last of it. */
static int resume_locks(struct gfc *gfc, struct rpc_chan *chan, int64_t deadline_ns)
{
	GX_AUTOFREE PbMeta__HeldLock *locks = NULL;
	GX_AUTOFREE PbMeta__HeldLock **list = NULL;
	size_t count, told = 0;
	uint64_t epoch;
	int r = gfc_locks_copy(gfc, &locks, &list, &count, &epoch);

	if (r < 0)
		return r;
	do {
		PbMeta__ResumeRequest message = PB_META__RESUME_REQUEST__INIT;

		message.locks = list + told;
		message.n_locks = GX_MIN(count - told, RESUME_LOCKS);
		message.lock_epoch = epoch;
		told += message.n_locks;
		message.last = told == count;
		message.next_seq = rpc_client_next_seq(gfc->client);
		r = resume_call(gfc, chan, &message, deadline_ns);
	} while (r == 0 && told < count);
	return r;
}

int gfc_opens_resume(struct gfc *gfc, struct rpc_chan *chan, int64_t deadline_ns)
{
	GX_AUTOFREE PbMeta__OpenFile *files = NULL;
	GX_AUTOFREE PbMeta__OpenFile **list = NULL;
	size_t count, told = 0;
	int r;

	r = copy_files(gfc, &files, &list, &count);
	if (r < 0)
		return r;
	gfc_data_leases(gfc, files, count);
	while (r == 0 && told < count) {
		PbMeta__ResumeRequest message = PB_META__RESUME_REQUEST__INIT;

		message.files = list + told;
		message.n_files = GX_MIN(count - told, RESUME_FILES);
		told += message.n_files;
		r = resume_call(gfc, chan, &message, deadline_ns);
	}
	return r < 0 ? r : resume_locks(gfc, chan, deadline_ns);
}

/* -- opening and closing ------------------------------------------------------------------------
 */

struct gfc_ref gfc_open_ref(const struct gfc_open *open)
{
	return open->ref;
}

bool gfc_open_truncate_later(const struct gfc_open *open)
{
	return open->truncate_later;
}

uint32_t gfc_open_flags(const struct gfc_open *open)
{
	return open->flags;
}

bool gfc_open_lost(struct gfc *gfc, const struct gfc_open *open)
{
	bool lost;

	gx_env_mutex_lock(gfc->env, &gfc->lock);
	lost = open->lost;
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
	return lost;
}

static int stale(void)
{
	return gfc_fail(-ESTALE, "the open file was lost in a restart of metad");
}

/* What the answer says of names and attributes. */
static int opened(struct gfc_call *call, const PbMeta__OpenReply *answer, bool by_name,
		  struct gfc_cache_change *change, struct gfc_attr *ret_attr)
{
	int r = gfc_attr_from(answer->attr, ret_attr);

	if (r < 0)
		return r;
	change->attr = ret_attr;
	call->open->truncate_later = answer->truncate_later;
	if (by_name && answer->created) {
		change->names[0].known = true;
		change->names[0].ino = ret_attr->ref.ino;
		change->names[0].entries = 1;
		change->time_ns = answer->done ? answer->done->time_ns : 0;
	} else if (by_name) {
		/* The directory has not changed: as after a lookup. */
		change->name_count = 0;
		if (call->gfc->cache)
			gfc_cache_put_name(call->gfc->cache, call->clock, change->names[0].dir,
					   change->names[0].name, ret_attr->ref.ino);
	}
	return 0;
}

int gfc_open(struct gfc *gfc, struct gfc_ref ref, const char *name, unsigned flags, uint32_t mode,
	     struct gfc_attr *ret_attr, struct gfc_open **ret_open)
{
	return gfc_open_masked(gfc, ref, name, flags, mode, 0, ret_attr, ret_open);
}

int gfc_open_masked(struct gfc *gfc, struct gfc_ref ref, const char *name, unsigned flags,
		    uint32_t mode, uint32_t umask, struct gfc_attr *ret_attr,
		    struct gfc_open **ret_open)
{
	struct gfc_cache_change change = {.names = {{.dir = ref.ino, .name = name}},
					  .name_count = name ? 1 : 0,
					  .inos = {name ? 0 : ref.ino}};
	PbMeta__OpenRequest request = PB_META__OPEN_REQUEST__INIT;
	struct gfc_open *open = calloc(1, sizeof(*open));
	const PbMeta__OpenReply *answer;
	struct gfc_call call;
	int r;

	if (!open)
		return gfc_fail(-ENOMEM, "out of memory");
	open->flags = flags & (GFC_OPEN_READ | GFC_OPEN_WRITE);
	gfc_call_init(&call, gfc);
	call.open = open;
	*(name ? &request.parent : &request.ino) = ref.ino;
	request.cap = ref.cap;
	request.name = (char *)(name ? name : "");
	request.flags = flags;
	request.mode = mode;
	request.umask = umask;
	gfc_touch(&call, &change);
	r = gfc_call_mutates(&call, RPC_INDEX_OPEN, &request.base,
			     offsetof(PbMeta__OpenReply, done));
	if (r == 0)
		r = meta_call_open(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		r = opened(&call, answer, name != NULL, &change, ret_attr);
	gfc_changed(&call, r, &change);
	r = gfc_call_end(&call, r);
	if (r < 0) {
		gfc_opens_remove(gfc, open);
		free(open);
		return r;
	}
	*ret_open = open;
	return 0;
}

/* `patient`: waits for a metad that is away. */
static int send_close(struct gfc *gfc, uint64_t handle, bool patient)
{
	PbMeta__CloseRequest request = PB_META__CLOSE_REQUEST__INIT;
	const PbMeta__CloseReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	call.options.fail_fast = !patient;
	request.handle = handle;
	r = meta_call_close(gfc->client, &request, &call.options, &call.reply, &answer);
	return gfc_call_end(&call, r);
}

static void open_free(struct gfc *gfc, struct gfc_open *open)
{
	gfc_opens_remove(gfc, open);
	free(open);
}

/*
 * A file that was only read closes without metad, should it be away. It hears of it with the next
 * close; a metad that is restarted has forgotten the file by itself.
 */
static void close_later(struct gfc *gfc, struct gfc_open *open)
{
	gfc_opens_remove(gfc, open);
	gx_env_mutex_lock(gfc->env, &gfc->lock);
	LL_PREPEND(gfc->late, open);
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

static void close_late(struct gfc *gfc)
{
	struct gfc_open *open;

	for (;;) {
		gx_env_mutex_lock(gfc->env, &gfc->lock);
		open = gfc->late;
		if (open)
			LL_DELETE(gfc->late, open);
		gx_env_mutex_unlock(gfc->env, &gfc->lock);
		if (!open)
			return;
		if (send_close(gfc, open->handle, false) < 0) {
			close_later(gfc, open);
			return;
		}
		free(open);
	}
}

void gfc_opens_forget_late(struct gfc *gfc)
{
	struct gfc_open *open;

	gx_env_mutex_lock(gfc->env, &gfc->lock);
	while ((open = gfc->late)) {
		LL_DELETE(gfc->late, open);
		free(open);
	}
	gx_env_mutex_unlock(gfc->env, &gfc->lock);
}

/* Nothing of it can be lost, so nothing can go wrong. */
static void close_clean(struct gfc *gfc, struct gfc_open *open)
{
	if (gfc_open_lost(gfc, open)) {
		open_free(gfc, open);
	} else if (send_close(gfc, open->handle, false) < 0) {
		close_later(gfc, open);
	} else {
		open_free(gfc, open);
		close_late(gfc);
	}
}

static int close_written(struct gfc *gfc, struct gfc_open *open)
{
	int r;

	if (gfc_open_lost(gfc, open))
		r = gfc_fail(-EIO, "what was written may be lost: metad lost the open file");
	else
		r = send_close(gfc, open->handle, true);
	open_free(gfc, open);
	return r;
}

int gfc_close(struct gfc *gfc, struct gfc_open *open)
{
	int lost, r = 0;

	gfc_locks_closing(gfc, open);
	if (open->written)
		r = close_written(gfc, open);
	else
		close_clean(gfc, open);
	lost = gfc_take_lost(gfc);
	return lost < 0 ? lost : r;
}

/* -- bytes ----------------------------------------------------------------------------------------
 */

ssize_t gfc_read(struct gfc *gfc, struct gfc_open *open, void *buf, size_t bytes, uint64_t offset,
		 struct gfc_attr *ret_attr)
{
	PbMeta__ReadRequest request = PB_META__READ_REQUEST__INIT;
	const PbMeta__ReadReply *answer;
	struct gfc_attr attr;
	struct gfc_call call;
	ssize_t got = 0;
	int r;

	if (gfc_open_lost(gfc, open))
		return stale();
	gfc_call_init(&call, gfc);
	bytes = GX_MIN(bytes, (size_t)GX_PAYLOAD_LOOP_MAX);
	call.options.payload_in = buf;
	call.options.payload_in_bytes = bytes;
	request.handle = open->handle;
	request.offset = offset;
	request.bytes = (uint32_t)bytes;
	r = meta_call_read(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		r = gfc_learn(&call, answer->attr, &attr);
	if (r == 0) {
		got = (ssize_t)call.reply.payload_bytes;
		if (ret_attr)
			*ret_attr = attr;
	}
	r = gfc_call_end(&call, r);
	r = gfc_open_refused(gfc, open, GFC_OPEN_READ, r);
	return r < 0 ? r : got;
}

static int write_call(struct gfc *gfc, struct gfc_open *open, const struct gfc_write *write,
		      uint64_t *ret_offset, struct gfc_attr *ret_attr)
{
	struct gfc_cache_change change = {.inos = {open->ref.ino}, .attr = ret_attr};
	PbMeta__WriteRequest request = PB_META__WRITE_REQUEST__INIT;
	struct iovec payload = {(void *)write->data, write->bytes};
	const PbMeta__WriteReply *answer;
	struct gfc_call call;
	int r;

	gfc_call_init(&call, gfc);
	call.open = write->close ? open : NULL;
	call.options.payload_out = &payload;
	call.options.payload_out_count = write->bytes > 0 ? 1 : 0;
	request.handle = open->handle;
	request.ino =
		open->ref.ino; /* a metad that was restarted has no handle when it is replayed */
	request.offset = write->offset;
	request.append = write->append;
	request.truncate = write->truncate;
	request.within = write->within;
	request.close = write->close;
	gfc_touch(&call, &change);
	r = gfc_call_mutates(&call, RPC_INDEX_WRITE, &request.base,
			     offsetof(PbMeta__WriteReply, done));
	if (r == 0)
		r = meta_call_write(gfc->client, &request, &call.options, &call.reply, &answer);
	if (r == 0)
		r = gfc_attr_from(answer->attr, ret_attr);
	if (r == 0 && ret_offset)
		*ret_offset = answer->offset;
	gfc_changed(&call, r, &change);
	return gfc_call_end(&call, r);
}

int gfc_write(struct gfc *gfc, struct gfc_open *open, const struct gfc_write *write,
	      uint64_t *ret_offset, struct gfc_attr *ret_attr)
{
	uint64_t resumed = atomic_load(&gfc->resumed);
	struct gfc_attr attr;
	int lost, r;

	if (gfc_open_lost(gfc, open))
		r = stale();
	else
		r = write_call(gfc, open, write, ret_offset, ret_attr ? ret_attr : &attr);
	r = gfc_open_refused(gfc, open, GFC_OPEN_WRITE, r);
	open->written = true;
	/* The caller has another way to write, for which it needs the handle. */
	if (!write->close || r == -EFBIG)
		return r;
	gfc_locks_closing(gfc, open);
	/*
	 * A Write that failed did not close. One that was answered by a metad restarted meanwhile
	 * may have closed before the handle was declared open again.
	 */
	if (!gfc_open_lost(gfc, open) && (r < 0 || resumed != atomic_load(&gfc->resumed)))
		GX_IGNORE(
			send_close(gfc, open->handle, true)); /* its session's end closes it too */
	open_free(gfc, open);
	lost = gfc_take_lost(gfc);
	return lost < 0 ? lost : r;
}
