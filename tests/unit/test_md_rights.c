/*
 * Alice cannot read, list, change or delete Bob's private file or directory through any method.
 *
 * The table below has a row for each method of the namespace; a method without one fails the test,
 * so a new method cannot be forgotten.
 */
#include "common/gx_limits.h"
#include "tests/lib/meta_fixture.h"
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>

#define RPC_SERVICE_META
#include "rpc/rpc_stub.h"

static struct meta_fixture *f;
static struct gfc *root, *alice, *bob;
static struct rpc_client *raw; /* alice, without a library that means well */

/* What Bob has: /bob (0700) with `inner` (0644) in it, and /file (0600), both seen by all. */
static struct gfc_attr bob_dir, bob_file, inner;
static struct gfc_attr alice_dir, alice_file;
static struct gfc_open *bob_open;

static struct gfc_attr make_dir(struct gfc *gfc, struct gfc_ref parent, const char *name,
				uint32_t mode)
{
	struct gfc_attr attr;

	ck_assert_int_eq(gfc_make(gfc, parent, name, S_IFDIR | mode, 0, NULL, &attr), 0);
	return attr;
}

static struct gfc_attr make_file(struct gfc *gfc, struct gfc_ref parent, const char *name,
				 uint32_t mode)
{
	struct gfc_write write = {.data = "secret", .bytes = 6, .close = true};
	struct gfc_open *open;
	struct gfc_attr attr;

	ck_assert_int_eq(
		gfc_open(gfc, parent, name, GFC_OPEN_WRITE | GFC_OPEN_CREATE, mode, &attr, &open),
		0);
	ck_assert_int_eq(gfc_write(gfc, open, &write, NULL, &attr), 0);
	return attr;
}

static void setup(void)
{
	struct gfc_change change = {.mask = GFC_SET_MODE, .mode = 01777};
	struct gfc_attr attr;

	f = meta_fixture_start(NULL);
	root = meta_fixture_gfc(f, META_ROOT, 0);
	alice = meta_fixture_gfc(f, META_ALICE, 0);
	bob = meta_fixture_gfc(f, META_BOB, 0);
	raw = meta_fixture_client(f, META_ALICE);
	ck_assert_int_eq(gfc_setattr(root, GFC_ROOT, NULL, &change, &attr), 0);
	bob_dir = make_dir(bob, GFC_ROOT, "bob", 0700);
	inner = make_file(bob, bob_dir.ref, "inner", 0644);
	bob_file = make_file(bob, GFC_ROOT, "file", 0600);
	ck_assert_int_eq(gfc_setxattr(bob, bob_file.ref, "user.x", "secret", 6, 0), 0);
	alice_dir = make_dir(alice, GFC_ROOT, "alice", 0755);
	alice_file = make_file(alice, GFC_ROOT, "mine", 0644);
	ck_assert_int_eq(gfc_open(bob, GFC_ROOT, "file", GFC_OPEN_READ | GFC_OPEN_WRITE, 0, &attr,
				  &bob_open),
			 0);
}

static void teardown(void)
{
	ck_assert_int_eq(gfc_close(bob, bob_open), 0);
	rpc_client_free(raw);
	ck_assert_int_eq(gfc_free(root), 0);
	ck_assert_int_eq(gfc_free(alice), 0);
	ck_assert_int_eq(gfc_free(bob), 0);
	meta_fixture_check(f);
	meta_fixture_stop(f);
}

/* Nothing of Bob's has changed. */
static void assert_untouched(void)
{
	struct gfc_attr attr;
	char text[16];

	ck_assert_int_eq(gfc_lookup(bob, GFC_ROOT, "bob", &attr), 0);
	ck_assert_uint_eq(attr.version, bob_dir.version + 1); /* `inner` was made in it */
	ck_assert_int_eq(gfc_lookup(bob, bob_dir.ref, "inner", &attr), 0);
	ck_assert_uint_eq(attr.version, inner.version);
	ck_assert_int_eq(gfc_lookup(bob, GFC_ROOT, "file", &attr), 0);
	ck_assert_uint_eq(attr.version, bob_file.version + 1); /* its xattr */
	ck_assert_int_eq(gfc_read(bob, bob_open, text, sizeof(text), 0, NULL), 6);
	ck_assert_mem_eq(text, "secret", 6);
}

/* -- a method each ------------------------------------------------------------------------------
 */

static int no_entry(void *arg GX_UNUSED, const struct gfc_dirent *entry)
{
	ck_abort_msg("saw %s", entry->name);
}

static void try_lookup(void)
{
	struct gfc_attr attr;

	ck_assert_int_eq(gfc_lookup(alice, bob_dir.ref, "inner", &attr), -EACCES);
	/* Not even whether it is there. */
	ck_assert_int_eq(gfc_lookup(alice, bob_dir.ref, "missing", &attr), -EACCES);
}

static void try_getattr(void)
{
	struct gfc_ref guessed = {inner.ref.ino, 0};
	struct gfc_attr attr;

	/* What stat shows of a name in a public directory is no secret; what is inside is. */
	ck_assert_int_eq(gfc_getattr(alice, bob_file.ref, &attr), 0);
	for (unsigned i = 0; i < 64; i++) {
		guessed.cap = inner.ref.cap ^ (UINT64_C(1) << i);
		ck_assert_int_eq(gfc_getattr(alice, guessed, &attr), -ESTALE);
	}
}

static void try_setattr(void)
{
	struct gfc_change changes[] = {
		{.mask = GFC_SET_MODE, .mode = 0777},
		{.mask = GFC_SET_UID, .uid = 1000},
		{.mask = GFC_SET_GID, .gid = 1000},
		{.mask = GFC_SET_SIZE, .size = 0},
		{.mask = GFC_SET_ATIME, .atime_ns = 1},
		{.mask = GFC_SET_MTIME, .mtime_ns = 1},
		{.mask = GFC_SET_ATIME_NOW},
		{.mask = GFC_SET_MTIME_NOW},
	};
	struct gfc_attr attr;

	for (size_t i = 0; i < GX_COUNT_OF(changes); i++) {
		int r = gfc_setattr(alice, bob_file.ref, NULL, &changes[i], &attr);

		ck_assert_msg(r == -EPERM || r == -EACCES, "change %zu: %d", i, r);
		r = gfc_setattr(alice, bob_dir.ref, NULL, &changes[i], &attr);
		ck_assert_msg(r == -EPERM || r == -EACCES || r == -EISDIR, "dir %zu: %d", i, r);
	}
}

static void try_make(void)
{
	struct gfc_attr attr;

	ck_assert_int_eq(gfc_make(alice, bob_dir.ref, "new", S_IFDIR | 0755, 0, NULL, &attr),
			 -EACCES);
	ck_assert_int_eq(gfc_make(alice, bob_dir.ref, "new", S_IFLNK | 0777, 0, "x", &attr),
			 -EACCES);
	/* Device nodes are root's. */
	ck_assert_int_eq(gfc_make(alice, alice_dir.ref, "dev", S_IFCHR | 0666, 0x103, NULL, &attr),
			 -EPERM);
}

static void try_readlink(void)
{
	char target[GX_PATH_MAX];
	struct gfc_attr attr;
	struct gfc_ref guessed;

	ck_assert_int_eq(
		gfc_make(bob, bob_dir.ref, "link", S_IFLNK | 0777, 0, "secret-place", &attr), 0);
	guessed = (struct gfc_ref){attr.ref.ino, attr.ref.cap + 1};
	ck_assert_int_eq(gfc_readlink(alice, guessed, target), -ESTALE);
	ck_assert_int_eq(gfc_unlink(bob, bob_dir.ref, "link", false), 0);
	bob_dir.version += 2;
}

static void try_link(void)
{
	struct gfc_attr attr;

	ck_assert_int_eq(gfc_link(alice, bob_file.ref, alice_dir.ref, "mine", &attr), -EPERM);
	ck_assert_int_eq(gfc_link(alice, alice_file.ref, bob_dir.ref, "new", &attr), -EACCES);
}

static void try_unlink(void)
{
	ck_assert_int_eq(gfc_unlink(alice, bob_dir.ref, "inner", false), -EACCES);
	ck_assert_int_eq(gfc_unlink(alice, GFC_ROOT, "file", false), -EPERM); /* sticky */
	ck_assert_int_eq(gfc_unlink(alice, GFC_ROOT, "bob", true), -EPERM);
}

static void try_rename(void)
{
	ck_assert_int_eq(gfc_rename(alice, bob_dir.ref, "inner", alice_dir.ref, "x", 0), -EACCES);
	ck_assert_int_eq(gfc_rename(alice, GFC_ROOT, "file", alice_dir.ref, "x", 0), -EPERM);
	ck_assert_int_eq(gfc_rename(alice, GFC_ROOT, "mine", GFC_ROOT, "file", 0), -EPERM);
	ck_assert_int_eq(gfc_rename(alice, GFC_ROOT, "mine", bob_dir.ref, "inner", 0), -EACCES);
	ck_assert_int_eq(gfc_rename(alice, GFC_ROOT, "mine", GFC_ROOT, "file", 2), -EPERM);
}

static void try_open(void)
{
	static const unsigned flags[] = {
		GFC_OPEN_READ, GFC_OPEN_WRITE, GFC_OPEN_READ | GFC_OPEN_WRITE,
		GFC_OPEN_WRITE | GFC_OPEN_TRUNC, GFC_OPEN_WRITE | GFC_OPEN_CREATE | GFC_OPEN_TRUNC};
	struct gfc_open *open;
	struct gfc_attr attr;

	for (size_t i = 0; i < GX_COUNT_OF(flags); i++) {
		ck_assert_int_eq(gfc_open(alice, GFC_ROOT, "file", flags[i], 0644, &attr, &open),
				 -EACCES);
		ck_assert_int_eq(gfc_open(alice, bob_file.ref, NULL, flags[i], 0, &attr, &open),
				 -EACCES);
		ck_assert_int_eq(
			gfc_open(alice, bob_dir.ref, "inner", flags[i], 0644, &attr, &open),
			-EACCES);
	}
	ck_assert_int_eq(gfc_open(alice, bob_dir.ref, "new", GFC_OPEN_WRITE | GFC_OPEN_CREATE, 0644,
				  &attr, &open),
			 -EACCES);
}

/* Handles belong to a session: Bob's mean nothing in hers, whatever number she tries. */
static void try_handles(void)
{
	char text[16];

	for (uint64_t handle = 1; handle < 100; handle++) {
		PbMeta__ReadRequest read = PB_META__READ_REQUEST__INIT;
		PbMeta__WriteRequest write = PB_META__WRITE_REQUEST__INIT;
		PbMeta__GetattrRequest getattr = PB_META__GETATTR_REQUEST__INIT;
		PbMeta__SetattrRequest setattr = PB_META__SETATTR_REQUEST__INIT;
		struct iovec payload = {text, sizeof(text)};
		struct rpc_call_options options = {.payload_in = text,
						   .payload_in_bytes = sizeof(text)};
		const PbMeta__ReadReply *got;
		const PbMeta__WriteReply *wrote;
		const PbMeta__GetattrReply *seen;
		const PbMeta__SetattrReply *set;
		struct rpc_reply reply;

		read.handle = write.handle = getattr.handle = setattr.handle = handle;
		read.bytes = sizeof(text);
		write.ino = getattr.ino = setattr.ino = bob_file.ref.ino;
		ck_assert_int_eq(meta_call_read(raw, &read, &options, &reply, &got), -EBADF);
		rpc_reply_fini(&reply);
		options =
			(struct rpc_call_options){.payload_out = &payload, .payload_out_count = 1};
		ck_assert_int_eq(meta_call_write(raw, &write, &options, &reply, &wrote), -EBADF);
		rpc_reply_fini(&reply);
		ck_assert_int_eq(meta_call_getattr(raw, &getattr, NULL, &reply, &seen), -EBADF);
		rpc_reply_fini(&reply);
		setattr.mask = GFC_SET_SIZE;
		ck_assert_int_eq(meta_call_setattr(raw, &setattr, NULL, &reply, &set), -EBADF);
		rpc_reply_fini(&reply);
	}
}

static void try_close(void)
{
	PbMeta__CloseRequest request = PB_META__CLOSE_REQUEST__INIT;
	const PbMeta__CloseReply *answer;
	struct rpc_reply reply;

	/* Closing what is not hers closes nothing: Bob reads on in assert_untouched(). */
	for (request.handle = 1; request.handle < 100; request.handle++) {
		ck_assert_int_eq(meta_call_close(raw, &request, NULL, &reply, &answer), 0);
		rpc_reply_fini(&reply);
	}
}

static void try_readdir(void)
{
	char after[256] = "";

	ck_assert_int_eq(gfc_readdir(alice, bob_dir.ref, after, false, no_entry, NULL), -EACCES);
	ck_assert_int_eq(gfc_readdir(alice, bob_dir.ref, after, true, no_entry, NULL), -EACCES);
}

static void try_getxattr(void)
{
	struct gx_buf value;

	gx_buf_init(&value, 1024);
	ck_assert_int_eq(gfc_getxattr(alice, bob_file.ref, "user.x", &value), -EACCES);
	gx_buf_fini(&value);
}

static void try_setxattr(void)
{
	ck_assert_int_eq(gfc_setxattr(alice, bob_file.ref, "user.y", "v", 1, 0), -EACCES);
	ck_assert_int_eq(gfc_setxattr(alice, bob_file.ref, "user.x", NULL, 0, 4), -EACCES);
	ck_assert_int_eq(gfc_setxattr(alice, bob_file.ref, "gfs.ncopy", "2", 1, 0), -EPERM);
	ck_assert_int_eq(gfc_setxattr(alice, bob_dir.ref, "user.y", "v", 1, 0), -EACCES);
}

static void try_listxattr(void)
{
	struct gfc_ref guessed = {inner.ref.ino, ~inner.ref.cap};
	struct gx_buf names;

	gx_buf_init(&names, 1024);
	ck_assert_int_eq(gfc_listxattr(alice, guessed, &names), -ESTALE);
	gx_buf_fini(&names);
}

/* A file that was never opened by her cannot be declared open. */
static void try_resume(void)
{
	PbMeta__ResumeRequest request = PB_META__RESUME_REQUEST__INIT;
	PbMeta__OpenFile file = PB_META__OPEN_FILE__INIT, *files = &file;
	PbMeta__ReadRequest read = PB_META__READ_REQUEST__INIT;
	const PbMeta__ResumeReply *answer;
	const PbMeta__ReadReply *got;
	struct rpc_reply reply;

	file.handle = 77;
	file.ino = bob_file.ref.ino;
	file.flags = 3;
	request.files = &files;
	request.n_files = 1;
	for (file.token = 0; file.token < 32; file.token++) {
		ck_assert_int_eq(meta_call_resume(raw, &request, NULL, &reply, &answer), 0);
		ck_assert_uint_eq(answer->n_lost, 1);
		rpc_reply_fini(&reply);
	}
	read.handle = 77;
	ck_assert_int_eq(meta_call_read(raw, &read, NULL, &reply, &got), -EBADF);
	rpc_reply_fini(&reply);
}

/* Nor can she say that something was answered that was not. */
static void try_replay(void)
{
	PbMeta__ReplayRequest request = PB_META__REPLAY_REQUEST__INIT;
	PbMeta__UnlinkRequest unlink = PB_META__UNLINK_REQUEST__INIT;
	PbMeta__Done done = PB_META__DONE__INIT;
	const PbMeta__ReplayReply *answer;
	unsigned char packed[128];
	struct rpc_reply reply;

	unlink.parent = bob_dir.ref.ino;
	unlink.name = (char *)(uintptr_t) "inner";
	request.method = RPC_UNLINK;
	request.request.len = protobuf_c_message_pack(&unlink.base, packed);
	request.request.data = packed;
	done.index = 1;
	request.done = &done;
	for (done.receipt = 0; done.receipt < 32; done.receipt++) {
		ck_assert_int_eq(meta_call_replay(raw, &request, NULL, &reply, &answer), -EPERM);
		rpc_reply_fini(&reply);
	}
}

/* -- large files ----------------------------------------------------------------------------------
 */

static int call_lease(uint64_t handle, bool write)
{
	PbMeta__LeaseRequest request = PB_META__LEASE_REQUEST__INIT;
	const PbMeta__LeaseReply *answer;
	struct rpc_reply reply;
	int r;

	request.handle = handle;
	request.ino = bob_file.ref.ino;
	request.write = write;
	r = meta_call_lease(raw, &request, NULL, &reply, &answer);
	rpc_reply_fini(&reply);
	return r;
}

/* A lease is of an open file, so there is none without the right to open it. */
static void try_lease(void)
{
	PbMeta__OpenRequest open = PB_META__OPEN_REQUEST__INIT;
	const PbMeta__OpenReply *opened = NULL;
	struct rpc_reply reply;
	uint64_t handle;

	for (handle = 0; handle < 64; handle++) {
		ck_assert_int_eq(call_lease(handle, false), -EBADF);
		ck_assert_int_eq(call_lease(handle, true), -EBADF);
	}
	/* Nor with a handle of another file. */
	open.ino = alice_file.ref.ino;
	open.cap = alice_file.ref.cap;
	open.flags = 3;
	ck_assert_int_eq(meta_call_open(raw, &open, NULL, &reply, &opened), 0);
	handle = opened->handle;
	rpc_reply_fini(&reply);
	ck_assert_int_eq(call_lease(handle, false), -EBADF);
	ck_assert_int_eq(call_lease(handle, true), -EBADF);
}

static int call_lock(uint64_t handle, unsigned kind, unsigned type, bool test)
{
	PbMeta__LockRequest request = PB_META__LOCK_REQUEST__INIT;
	const PbMeta__LockReply *answer;
	struct rpc_reply reply;
	int r;

	request.handle = handle;
	request.ino = bob_file.ref.ino;
	request.kind = kind;
	request.type = type;
	request.end = INT64_MAX;
	request.test = test;
	r = meta_call_lock(raw, &request, NULL, &reply, &answer);
	rpc_reply_fini(&reply);
	return r;
}

static void try_lock(void)
{
	struct gfc_lock lock = {.kind = GFC_LOCK_POSIX, .type = GFC_LOCK_WRITE, .end = 9};
	struct gfc_open *open;
	struct gfc_attr attr;

	ck_assert_int_eq(gfc_open(bob, GFC_ROOT, "file", GFC_OPEN_WRITE, 0, &attr, &open), 0);
	ck_assert_int_eq(gfc_lock(bob, open, &lock, 0, NULL), 0);
	for (uint64_t handle = 0; handle < 64; handle++)
		for (unsigned kind = 1; kind <= 2; kind++) {
			ck_assert_int_eq(call_lock(handle, kind, GFC_LOCK_READ, false), -EBADF);
			ck_assert_int_eq(call_lock(handle, kind, GFC_LOCK_WRITE, false), -EBADF);
			ck_assert_int_eq(call_lock(handle, kind, GFC_LOCK_READ, true), -EBADF);
		}
	/* To end locks needs no handle, but they must be one's own. */
	ck_assert_int_eq(call_lock(0, GFC_LOCK_POSIX, GFC_LOCK_NONE, false), 0);
	lock.owner = 1;
	ck_assert_int_eq(gfc_lock(bob, open, &lock, 0, NULL), -EAGAIN);
	ck_assert_int_eq(gfc_close(bob, open), 0);
}

static void try_report(void)
{
	PbMeta__ReportRequest request = PB_META__REPORT_REQUEST__INIT;
	const PbMeta__ReportReply *answer;
	struct rpc_reply reply;

	request.ino = bob_file.ref.ino;
	request.generation = bob_file.generation;
	request.has_size = request.changed = request.grown = true;
	request.size = 1;
	request.clock = 1000;
	for (request.mode = 0; request.mode <= 3; request.mode++) {
		ck_assert_int_eq(meta_call_report(raw, &request, NULL, &reply, &answer), -ESTALE);
		rpc_reply_fini(&reply);
	}
}

static void try_where(void)
{
	struct gfc_ref guessed = {inner.ref.ino, 0};
	struct gfc_place places[4];
	struct gfc_attr attr;
	unsigned wanted;

	ck_assert_int_eq(gfc_where(alice, bob_file.ref, false, &attr, places, 4, &wanted), -EACCES);
	ck_assert_int_eq(gfc_where(alice, guessed, false, &attr, places, 4, &wanted), -ESTALE);
	ck_assert_int_eq(gfc_where(bob, bob_file.ref, false, &attr, places, 4, &wanted), 0);
}

static void try_cache(void)
{
	struct gfc_ref guessed = {inner.ref.ino, 0};

	ck_assert_int_eq(gfc_ask_copy(alice, bob_file.ref, "here"), -EACCES);
	ck_assert_int_eq(gfc_ask_copy(alice, guessed, "here"), -ESTALE);
	ck_assert_int_eq(gfc_ask_copy(bob, bob_file.ref, "here"), 0);
}

/* Only daemons speak for nodes. */
static void try_node_work(void)
{
	PbMeta__NodeWorkRequest work = PB_META__NODE_WORK_REQUEST__INIT;
	PbMeta__NodeInventoryRequest inventory = PB_META__NODE_INVENTORY_REQUEST__INIT;
	const PbMeta__NodeWorkReply *worked;
	const PbMeta__NodeInventoryReply *listed;
	struct rpc_reply reply;

	work.name = inventory.name = (char *)(uintptr_t) "fsd1";
	ck_assert_int_eq(meta_call_node_work(raw, &work, NULL, &reply, &worked), -EPERM);
	rpc_reply_fini(&reply);
	ck_assert_int_eq(meta_call_node_inventory(raw, &inventory, NULL, &reply, &listed), -EPERM);
	rpc_reply_fini(&reply);
}

/* -- all of them ----------------------------------------------------------------------------------
 */

static const struct {
	uint16_t method;
	void (*fn)(void); /* NULL: it says and changes nothing about anybody's files */
} rows[] = {
	{RPC_LOOKUP, try_lookup},
	{RPC_GETATTR, try_getattr},
	{RPC_SETATTR, try_setattr},
	{RPC_MAKE, try_make},
	{RPC_READLINK, try_readlink},
	{RPC_LINK, try_link},
	{RPC_UNLINK, try_unlink},
	{RPC_RENAME, try_rename},
	{RPC_OPEN, try_open},
	{RPC_CLOSE, try_close},
	{RPC_READ, try_handles},
	{RPC_WRITE, try_handles},
	{RPC_READDIR, try_readdir},
	{RPC_GETXATTR, try_getxattr},
	{RPC_SETXATTR, try_setxattr},
	{RPC_LISTXATTR, try_listxattr},
	{RPC_STATFS, NULL},
	{RPC_SYNC, NULL},
	{RPC_RENEW, NULL},
	{RPC_LEAVE, NULL},
	{RPC_RESUME, try_resume},
	{RPC_REPLAY, try_replay},
	{RPC_FORGET, NULL},
	{RPC_IDS, NULL},
	{RPC_STATUS, NULL},
	{RPC_NODE_REGISTER, NULL},
	{RPC_NODE_HEARTBEAT, NULL},
	{RPC_ATTACH, NULL}, /* the way to a node; what it does there needs file tickets */
	{RPC_LEASE, try_lease},
	{RPC_REPORT, try_report},
	{RPC_WHERE, try_where},
	{RPC_CACHE, try_cache},
	{RPC_NODE_WORK, try_node_work},
	{RPC_NODE_INVENTORY, try_node_work},
	{RPC_LOCK, try_lock},
	{RPC_LOCK_WAIT, NULL}, /* about one's own places in queues */
};

START_TEST(alice_cannot_touch_what_is_bobs)
{
	if (rows[_i].fn)
		rows[_i].fn();
	assert_untouched();
}
END_TEST

START_TEST(no_method_is_forgotten)
{
	for (size_t i = 0; i < RPC_METHOD_COUNT; i++) {
		const struct rpc_method *m = rpc_method_get(i);
		bool found = false;

		if (m->id >> 8 != RPC_LOOKUP >> 8 || (m->flags & RPC_F_COMMAND))
			continue;
		for (size_t k = 0; k < GX_COUNT_OF(rows); k++)
			found = found || rows[k].method == m->id;
		ck_assert_msg(found, "%s has no row", m->name);
	}
}
END_TEST

START_TEST(the_owner_the_group_and_root_may)
{
	struct gfc *carol = meta_fixture_gfc(f, META_CAROL, 0);
	struct gfc_change change = {.mask = GFC_SET_MODE | GFC_SET_GID, .mode = 0640, .gid = 50};
	struct gfc_open *open;
	struct gfc_attr attr;

	ck_assert_int_eq(gfc_open(root, GFC_ROOT, "file", GFC_OPEN_READ, 0, &attr, &open), 0);
	ck_assert_int_eq(gfc_close(root, open), 0);
	ck_assert_int_eq(gfc_open(carol, GFC_ROOT, "file", GFC_OPEN_READ, 0, &attr, &open),
			 -EACCES);
	/* Bob is in staff by metad's table, not by what his client says (rule N16). */
	ck_assert_int_eq(gfc_setattr(bob, bob_file.ref, NULL, &change, &attr), 0);
	ck_assert_int_eq(gfc_open(carol, GFC_ROOT, "file", GFC_OPEN_READ, 0, &attr, &open), 0);
	ck_assert_int_eq(gfc_close(carol, open), 0);
	ck_assert_int_eq(gfc_open(carol, GFC_ROOT, "file", GFC_OPEN_WRITE, 0, &attr, &open),
			 -EACCES);
	ck_assert_int_eq(gfc_free(carol), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("md_rights");
	TCase *t = tcase_create("rights");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, alice_cannot_touch_what_is_bobs, 0, GX_COUNT_OF(rows));
	tcase_add_test(t, no_method_is_forgotten);
	tcase_add_test(t, the_owner_the_group_and_root_may);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(suite());
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
