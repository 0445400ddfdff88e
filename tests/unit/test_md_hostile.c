/*
 * metad and clients that do not play by the rules, or whose connections break at the worst moment:
 * raw channels with requests, numbers and windows that libgfs would not send.
 */
#include "md_party.h"
#include <stdio.h>
#include <stdlib.h>

static struct party alice, bob, root;

static void on_fatal(void *arg GX_UNUSED, int err)
{
	fprintf(stderr, "metad gave up: %s\n", gx_strerror(err));
	abort();
}

/* -- metad ------------------------------------------------------------------------------------ */

/* metad is killed and comes back; the party, the only one, reports. */
static void restart(struct party *party, uint64_t next_seq)
{
	PbMeta__ResumeRequest request = PB_META__RESUME_REQUEST__INIT;

	party_close(party);
	meta_fixture_down(f);
	meta_fixture_up(f);
	rpc_reply_init(&party->reply);
	ck_assert(chan_open(party, RPC_CHANNEL_CALLS, &party->calls));
	request.last = true;
	request.next_seq = next_seq;
	ck_assert_int_eq(look(party, RPC_INDEX_RESUME, &request), 0);
}

struct piece {
	uint64_t session;
	bool gone;
};

static void end_piece(struct md_server *server, void *arg)
{
	PbMeta__SessionEndRequest request = PB_META__SESSION_END_REQUEST__INIT;
	PbMeta__SessionEndReply reply = PB_META__SESSION_END_REPLY__INIT;
	struct piece *piece = arg;

	ck_assert_int_eq(md_own_command(server, RPC_INDEX_SESSION_END, piece->session,
					&request.base, &reply.base, NULL),
			 0);
	piece->gone = reply.gone;
}

/* As if metad had come back without what the session did last: the results are gone. */
static void lose_results(struct party *party)
{
	struct piece piece = {.session = party->session};

	meta_fixture_run(f, end_piece, &piece);
	ck_assert(piece.gone);
}

struct probe {
	uint64_t session;
	bool distrusted;
	unsigned parked;
	size_t parked_bytes; /* of this session */
	int64_t longer_ns;   /* distrust it for so much longer */
};

static void look_inside(struct md_server *server, void *arg)
{
	struct probe *probe = arg;
	struct md_session *session = md_session_get(server, probe->session);

	ck_assert_ptr_nonnull(session);
	session->trust_ns += probe->longer_ns;
	probe->distrusted = session->distrusted;
	probe->parked = server->parked_count;
	probe->parked_bytes = session->parked_bytes;
}

/* The push channel breaks, metad notices, and the party is there again with one for calls. */
static void break_push(struct party *party, int64_t longer_ns)
{
	struct probe probe = {.session = party->session};

	rpc_chan_close(party->push);
	party->push = NULL;
	while (!probe.distrusted)
		meta_fixture_run(f, look_inside, &probe);
	probe.longer_ns = longer_ns;
	meta_fixture_run(f, look_inside, &probe);
	rpc_chan_close(party->calls);
	ck_assert(chan_open(party, RPC_CHANNEL_CALLS, &party->calls));
}

static void wait_parked(struct party *party, unsigned count)
{
	struct probe probe = {.session = party->session};

	while (probe.parked < count)
		meta_fixture_run(f, look_inside, &probe);
	ck_assert_uint_eq(probe.parked, count);
}

static void setup(void)
{
	struct md_server_options options = MD_SERVER_OPTIONS_INIT;

	options.root_mode = 0777;
	options.fatal_fn = on_fatal;
	f = meta_fixture_start(&options);
}

static void teardown(void)
{
	party_close(&alice);
	party_close(&bob);
	party_close(&root);
	meta_fixture_check(f);
	meta_fixture_stop(f);
}

/* -- requests that are too large -------------------------------------------------------------- */

#define HUGE_BYTES 100000u
static unsigned char pad_bytes[HUGE_BYTES + 4];
static ProtobufCMessageUnknownField pad_field;
static char huge_name[HUGE_BYTES + 1];

/* A field of so many bytes that nobody knows; every message can carry one. */
static void pad(void *message, size_t bytes)
{
	ProtobufCMessage *base = message;

	pad_bytes[0] = (unsigned char)(0x80 | (bytes & 0x7f));
	pad_bytes[1] = (unsigned char)(0x80 | ((bytes >> 7) & 0x7f));
	pad_bytes[2] = (unsigned char)(bytes >> 14);
	pad_field = (ProtobufCMessageUnknownField){
		.tag = 1000,
		.wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
		.len = bytes + 3,
		.data = pad_bytes,
	};
	base->n_unknown_fields = 1;
	base->unknown_fields = &pad_field;
}

START_TEST(an_open_by_inode_with_a_huge_name_is_refused)
{
	PbMeta__OpenRequest request = PB_META__OPEN_REQUEST__INIT;
	PbMeta__SetattrRequest grow;
	PbMeta__Attr file;

	party_open(&alice, META_ALICE, false);
	file = open_file(&alice, "file", 0644, 1);
	grow = set_size(&file, 10);
	ck_assert_int_eq(change(&alice, RPC_INDEX_SETATTR, &grow, 2), 0);
	memset(huge_name, 'n', HUGE_BYTES);
	request.ino = file.ino;
	request.cap = file.cap;
	request.flags = MD_OPEN_WRITE | MD_OPEN_TRUNCATE;
	request.name = huge_name;
	ck_assert_int_eq(change(&alice, RPC_INDEX_OPEN, &request, 3), -EINVAL);
	ck_assert_uint_eq(size_of(&alice, &file), 10);
}
END_TEST

/* Each would be done but for its size. */
START_TEST(a_huge_change_of_any_kind_is_refused_and_not_made)
{
	PbMeta__SetattrRequest setattr;
	PbMeta__MakeRequest make = PB_META__MAKE_REQUEST__INIT;
	PbMeta__LinkRequest link = PB_META__LINK_REQUEST__INIT;
	PbMeta__UnlinkRequest unlink = PB_META__UNLINK_REQUEST__INIT;
	PbMeta__RenameRequest rename = PB_META__RENAME_REQUEST__INIT;
	PbMeta__OpenRequest create = PB_META__OPEN_REQUEST__INIT;
	PbMeta__OpenRequest truncate = PB_META__OPEN_REQUEST__INIT;
	PbMeta__WriteRequest write = PB_META__WRITE_REQUEST__INIT;
	PbMeta__SetxattrRequest setxattr = PB_META__SETXATTR_REQUEST__INIT;
	const struct {
		enum rpc_method_index method;
		void *message;
	} cases[] = {
		{RPC_INDEX_SETATTR, &setattr},   {RPC_INDEX_MAKE, &make},
		{RPC_INDEX_LINK, &link},         {RPC_INDEX_UNLINK, &unlink},
		{RPC_INDEX_RENAME, &rename},     {RPC_INDEX_OPEN, &create},
		{RPC_INDEX_OPEN, &truncate},     {RPC_INDEX_WRITE, &write},
		{RPC_INDEX_SETXATTR, &setxattr},
	};
	PbMeta__GetattrRequest getattr;
	PbMeta__Attr file;
	uint64_t version, seq = 3;

	party_open(&alice, META_ALICE, false);
	file = open_file(&alice, "file", 0644, 1);
	setattr = set_size(&file, 10);
	ck_assert_int_eq(change(&alice, RPC_INDEX_SETATTR, &setattr, 2), 0);
	version = ((PbMeta__SetattrReply *)alice.reply.message)->attr->version;
	setattr = set_size(&file, 0);
	make.parent = link.parent = unlink.parent = create.parent = truncate.parent = 1;
	rename.from_parent = rename.to_parent = 1;
	make.name = link.name = create.name = rename.to_name = "new";
	unlink.name = truncate.name = rename.from_name = "file";
	make.mode = S_IFDIR | 0755;
	link.ino = write.ino = setxattr.ino = file.ino;
	link.cap = setxattr.cap = file.cap;
	create.flags = MD_OPEN_WRITE | MD_OPEN_CREATE;
	truncate.flags = MD_OPEN_WRITE | MD_OPEN_TRUNCATE;
	write.handle = 1;
	setxattr.name = "user.x";
	for (size_t i = 0; i < GX_COUNT_OF(cases); i++) {
		uint64_t call;

		pad(cases[i].message, HUGE_BYTES);
		call = submit(&alice, cases[i].method, cases[i].message, seq, (uint32_t)seq,
			      cases[i].method == RPC_INDEX_WRITE ? "bytes" : NULL);
		ck_assert_msg(wait_for(&alice, call) == -E2BIG, "case %zu", i);
		seq++;
	}
	ck_assert_int_eq(lookup(&alice, "new"), -ENOENT);
	ck_assert_int_eq(lookup(&alice, "file"), 0);
	getattr = get_attr(&file);
	ck_assert_int_eq(look(&alice, RPC_INDEX_GETATTR, &getattr), 0);
	ck_assert_uint_eq(((PbMeta__GetattrReply *)alice.reply.message)->attr->version, version);
}
END_TEST

/* -- leaving ---------------------------------------------------------------------------------- */

struct leaving {
	PbMeta__Attr *own, *cached;
	uint64_t leave, change;
};

/*
 * On the loop's thread: metad finds all of this in one turn, in this order, and the disk has none
 * of it yet.
 */
static void leave_and_break(struct md_server *server GX_UNUSED, void *arg)
{
	PbMeta__LeaveRequest leave = PB_META__LEAVE_REQUEST__INIT;
	struct leaving *leaving = arg;
	PbMeta__SetattrRequest own = set_mode(leaving->own, 0600);
	PbMeta__SetxattrRequest cached = PB_META__SETXATTR_REQUEST__INIT;
	/* So large that its call's memory is not kept for the next: a use after free shows. */
	static uint8_t value[6000];

	cached.ino = leaving->cached->ino;
	cached.cap = leaving->cached->cap;
	cached.name = "user.large";
	cached.value = (ProtobufCBinaryData){sizeof(value), value};
	submit(&bob, RPC_INDEX_SETATTR, &own, 2, 2, NULL);
	leaving->leave = submit(&bob, RPC_INDEX_LEAVE, &leave, 0, 0, NULL);
	leaving->change = submit(&alice, RPC_INDEX_SETXATTR, &cached, 2, 2, NULL);
	rpc_chan_abort(bob.push);
}

/* The end of the leaver is what the change waits for: it ends in the midst of another's end. */
START_TEST(a_change_is_answered_when_who_must_forget_leaves_and_breaks)
{
	PbMeta__SyncRequest sync = PB_META__SYNC_REQUEST__INIT;
	PbMeta__LeaveRequest leave = PB_META__LEAVE_REQUEST__INIT;
	PbMeta__GetattrRequest getattr;
	PbMeta__Attr own, cached;
	struct leaving leaving = {.own = &own, .cached = &cached};
	uint64_t session;
	int r;

	party_open(&alice, META_ALICE, false);
	party_open(&bob, META_BOB, true);
	cached = open_file(&alice, "cached", 0644, 1);
	own = open_file(&bob, "own", 0644, 1);
	getattr = get_attr(&cached);
	ck_assert_int_eq(look(&bob, RPC_INDEX_GETATTR, &getattr), 0);
	ck_assert_int_eq(look(&alice, RPC_INDEX_SYNC, &sync), 0);
	ck_assert_int_eq(look(&bob, RPC_INDEX_SYNC, &sync), 0);
	session = bob.session;

	meta_fixture_run(f, leave_and_break, &leaving);
	ck_assert_int_eq(wait_for(&alice, leaving.change), 0);
	/* Who loses his push channel loses the others as well, and asks again. */
	r = wait_for(&bob, leaving.leave);
	ck_assert(r == 0 || r == -ECONNRESET);
	rpc_chan_close(bob.calls);
	ck_assert(!chan_open(&bob, RPC_CHANNEL_CALLS, &bob.calls));
	ck_assert_uint_ne(bob.session, session);
	ck_assert_int_eq(look(&bob, RPC_INDEX_LEAVE, &leave), 0);
}
END_TEST

/* -- replays ---------------------------------------------------------------------------------- */

START_TEST(a_replay_behind_a_newer_result_is_not_recoverable)
{
	PbMeta__SetattrRequest truncate, mode;
	PbMeta__Attr file;
	PbMeta__Done done;

	party_open(&alice, META_ALICE, false);
	file = open_file(&alice, "file", 0644, 1);
	truncate = set_size(&file, 0);
	ck_assert_int_eq(change(&alice, RPC_INDEX_SETATTR, &truncate, 2), 0);
	done = *((PbMeta__SetattrReply *)alice.reply.message)->done;
	mode = set_mode(&file, 0600);
	ck_assert_int_eq(change(&alice, RPC_INDEX_SETATTR, &mode, 2 + RING), 0);
	truncate.size = 10;
	ck_assert_int_eq(change(&alice, RPC_INDEX_SETATTR, &truncate, 3 + RING), 0);
	truncate.size = 0;
	ck_assert_int_eq(replay(&alice, RPC_INDEX_SETATTR, &truncate, &done, 2, NULL),
			 -ENOTRECOVERABLE);
	/* What was acknowledged is not remembered over a restart, but the ring is. */
	restart(&alice, 4 + RING);
	ck_assert_int_eq(replay(&alice, RPC_INDEX_SETATTR, &truncate, &done, 2, NULL),
			 -ENOTRECOVERABLE);
	ck_assert_uint_eq(size_of(&alice, &file), 10);
}
END_TEST

static PbMeta__SetxattrRequest set_xattr(const PbMeta__Attr *attr, const char *name, uint32_t flags)
{
	PbMeta__SetxattrRequest request = PB_META__SETXATTR_REQUEST__INIT;

	request.ino = attr->ino;
	request.cap = attr->cap;
	request.name = (char *)(uintptr_t)name;
	request.flags = flags;
	return request;
}

/* Only a full log is worth another try; what others have taken meanwhile does not come back. */
START_TEST(a_replay_for_which_others_left_no_room_is_lost_at_once)
{
	PbMeta__SetxattrRequest lost, other;
	char name[16];
	PbMeta__Attr file;
	PbMeta__Done done;

	party_open(&bob, META_BOB, false);
	party_open(&alice, META_ALICE, false);
	file = open_file(&bob, "file", 0666, 1);
	lost = set_xattr(&file, "user.lost", 0);
	ck_assert_int_eq(change(&alice, RPC_INDEX_SETXATTR, &lost, 1), 0);
	done = *((PbMeta__SetxattrReply *)alice.reply.message)->done;
	other = set_xattr(&file, "user.lost", 4);
	ck_assert_int_eq(change(&bob, RPC_INDEX_SETXATTR, &other, 2), 0);
	for (unsigned i = 0; i < MD_XATTRS_PER_INODE_MAX; i++) {
		snprintf(name, sizeof(name), "user.%u", i);
		other = set_xattr(&file, name, 0);
		ck_assert_int_eq(change(&bob, RPC_INDEX_SETXATTR, &other, 3 + i), 0);
	}
	lose_results(&alice);
	ck_assert_int_eq(replay(&alice, RPC_INDEX_SETXATTR, &lost, &done, 1, NULL), -ENOSPC);
}
END_TEST

START_TEST(a_replayed_truncate_needs_the_right_to_truncate)
{
	PbMeta__SetattrRequest truncate, mode, grow;
	PbMeta__Attr file;
	PbMeta__Done done;

	party_open(&bob, META_BOB, false);
	party_open(&alice, META_ALICE, false);
	file = open_file(&bob, "file", 0644, 1);
	mode = set_mode(&file, 0666);
	ck_assert_int_eq(change(&bob, RPC_INDEX_SETATTR, &mode, 2), 0);
	truncate = set_size(&file, 0);
	ck_assert_int_eq(change(&alice, RPC_INDEX_SETATTR, &truncate, 1), 0);
	done = *((PbMeta__SetattrReply *)alice.reply.message)->done;
	mode = set_mode(&file, 0600);
	grow = set_size(&file, 10);
	ck_assert_int_eq(change(&bob, RPC_INDEX_SETATTR, &mode, 3), 0);
	ck_assert_int_eq(change(&bob, RPC_INDEX_SETATTR, &grow, 4), 0);
	lose_results(&alice);
	ck_assert_int_eq(replay(&alice, RPC_INDEX_SETATTR, &truncate, &done, 1, NULL), -EACCES);
	ck_assert_uint_eq(size_of(&bob, &file), 10);
}
END_TEST

static int write_text(struct party *party, const PbMeta__Attr *file, uint64_t seq, const char *text)
{
	PbMeta__WriteRequest request = PB_META__WRITE_REQUEST__INIT;

	request.handle = 1;
	request.ino = file->ino;
	return wait_for(party, submit(party, RPC_INDEX_WRITE, &request, seq, 1, text));
}

static void assert_content(struct party *party, uint64_t handle, const char *want)
{
	PbMeta__ReadRequest message = PB_META__READ_REQUEST__INIT;
	char text[64];
	struct rpc_request request = {
		.method = rpc_method_get(RPC_INDEX_READ),
		.message = &message.base,
		.payload_in = text,
		.payload_in_bytes = sizeof(text),
		.deadline_ns = now_ns() + WAIT_NS,
	};
	uint64_t call;

	message.handle = handle;
	message.bytes = sizeof(text);
	ck_assert_int_eq(rpc_chan_submit(party->calls, &request, &call, NULL), 0);
	ck_assert_int_eq(wait_for(party, call), 0);
	ck_assert_uint_eq(party->reply.payload_bytes, strlen(want));
	ck_assert_mem_eq(text, want, strlen(want));
}

START_TEST(a_write_is_repeated_only_with_the_bytes_that_were_answered)
{
	PbMeta__WriteRequest write = PB_META__WRITE_REQUEST__INIT;
	PbMeta__Attr file;
	PbMeta__Done done;

	party_open(&alice, META_ALICE, false);
	file = open_file(&alice, "file", 0644, 1);
	ck_assert_int_eq(write_text(&alice, &file, 2, "first"), 0);
	done = *((PbMeta__WriteReply *)alice.reply.message)->done;
	/* As a duplicate, as a replay of what is known, and as one of what was lost. */
	ck_assert_int_eq(write_text(&alice, &file, 2, "other"), -EPROTO);
	ck_assert_int_eq(write_text(&alice, &file, 2, "first"), 0);
	write.handle = 1;
	write.ino = file.ino;
	ck_assert_int_eq(replay(&alice, RPC_INDEX_WRITE, &write, &done, 2, "other"), -EPERM);
	ck_assert_int_eq(replay(&alice, RPC_INDEX_WRITE, &write, &done, 2, "first"), 0);
	ck_assert(!was_done_again(&alice));
	lose_results(&alice);
	ck_assert_int_eq(replay(&alice, RPC_INDEX_WRITE, &write, &done, 2, "other"), -EPERM);
	ck_assert_int_eq(replay(&alice, RPC_INDEX_WRITE, &write, &done, 2, NULL), -EPERM);
	assert_content(&alice, 1, "first");
	ck_assert_int_eq(replay(&alice, RPC_INDEX_WRITE, &write, &done, 2, "first"), 0);
	ck_assert(was_done_again(&alice));
	assert_content(&alice, 1, "first");
}
END_TEST

START_TEST(a_replayed_create_does_not_bring_a_deleted_inode_back)
{
	PbMeta__MakeRequest make = PB_META__MAKE_REQUEST__INIT;
	PbMeta__UnlinkRequest unlink = PB_META__UNLINK_REQUEST__INIT;
	PbMeta__Done done;

	party_open(&alice, META_ALICE, false);
	make.parent = unlink.parent = 1;
	make.name = unlink.name = "dir";
	make.mode = S_IFDIR | 0755;
	unlink.directory = true;
	ck_assert_int_eq(change(&alice, RPC_INDEX_MAKE, &make, 1), 0);
	done = *((PbMeta__MakeReply *)alice.reply.message)->done;
	ck_assert_int_eq(change(&alice, RPC_INDEX_UNLINK, &unlink, 2), 0);
	/* Its result is still there: it was not lost. */
	ck_assert_int_eq(replay(&alice, RPC_INDEX_MAKE, &make, &done, 1, NULL), 0);
	ck_assert(!was_done_again(&alice));
	ck_assert_int_eq(lookup(&alice, "dir"), -ENOENT);
	/* Another has taken its place. */
	make.name = "other";
	ck_assert_int_eq(change(&alice, RPC_INDEX_MAKE, &make, 1 + RING), 0);
	restart(&alice, 2 + RING);
	make.name = "dir";
	ck_assert_int_eq(replay(&alice, RPC_INDEX_MAKE, &make, &done, 1, NULL), -ENOTRECOVERABLE);
	ck_assert_int_eq(lookup(&alice, "dir"), -ENOENT);
}
END_TEST

START_TEST(a_change_that_its_client_gave_up_is_not_made)
{
	PbMeta__UnlinkRequest unlink = PB_META__UNLINK_REQUEST__INIT;
	PbMeta__SetattrRequest mode;
	PbMeta__Attr file;
	uint64_t call;

	party_open(&alice, META_ALICE, false);
	party_open(&bob, META_BOB, false);
	unlink.parent = 1;
	unlink.name = "lock";
	/* What fails leaves no result behind that would tell the number is used. */
	ck_assert_int_eq(change(&alice, RPC_INDEX_UNLINK, &unlink, 1), -ENOENT);
	file = open_file(&alice, "file", 0644, 2);
	mode = set_mode(&file, 0600);
	call = submit(&alice, RPC_INDEX_SETATTR, &mode, 4, 2, NULL);
	ck_assert_int_eq(wait_for(&alice, call), 0);
	open_file(&bob, "lock", 0666, 1);
	ck_assert_int_eq(change(&alice, RPC_INDEX_UNLINK, &unlink, 1), -ENOTRECOVERABLE);
	ck_assert_int_eq(change(&alice, RPC_INDEX_UNLINK, &unlink, 2), -ENOTRECOVERABLE);
	ck_assert_int_eq(lookup(&bob, "lock"), 0);
	/* 3 is in the window: it may be on its way still. */
	ck_assert_int_eq(change(&alice, RPC_INDEX_UNLINK, &unlink, 3), 0);
	ck_assert_int_eq(lookup(&bob, "lock"), -ENOENT);
}
END_TEST

/* -- a broken push channel -------------------------------------------------------------------- */

/* Calls of every kind that a session sends while it is distrusted. */
struct unheard {
	PbMeta__SetattrRequest mode;
	uint64_t getattr, renew;
};

static struct unheard ask_distrusted(struct party *party, const PbMeta__Attr *file)
{
	PbMeta__RenewRequest renewal = PB_META__RENEW_REQUEST__INIT;
	PbMeta__GetattrRequest getattr = get_attr(file);
	struct unheard unheard = {.mode = set_mode(file, 0600)};

	unheard.getattr = submit(party, RPC_INDEX_GETATTR, &getattr, 0, 0, NULL);
	unheard.renew = submit(party, RPC_INDEX_RENEW, &renewal, 0, 0, NULL);
	/* "Again" renews nothing, and is all that a change gets: a duplicate, or a new one. */
	ck_assert_int_eq(change(party, RPC_INDEX_SETATTR, &unheard.mode, 2), -EAGAIN);
	ck_assert_int_eq(change(party, RPC_INDEX_SETATTR, &unheard.mode, 3), -EAGAIN);
	wait_parked(party, 2);
	return unheard;
}

static void assert_heard(struct party *party, const struct unheard *unheard)
{
	ck_assert_int_eq(wait_for(party, unheard->getattr), 0);
	ck_assert_int_eq(wait_for(party, unheard->renew), 0);
	ck_assert_int_eq(change(party, RPC_INDEX_SETATTR, &unheard->mode, 2), 0);
	ck_assert_int_eq(change(party, RPC_INDEX_SETATTR, &unheard->mode, 3), 0);
}

static PbMeta__Attr open_and_change(struct party *party)
{
	PbMeta__Attr file = open_file(party, "file", 0644, 1);
	PbMeta__SetattrRequest mode = set_mode(&file, 0600);

	ck_assert_int_eq(change(party, RPC_INDEX_SETATTR, &mode, 2), 0);
	return file;
}

START_TEST(without_its_push_channel_a_session_hears_nothing_until_its_trust_has_ended)
{
	struct unheard unheard;
	PbMeta__Attr file;
	int64_t begin_ns;

	party_open(&alice, META_ALICE, true);
	file = open_and_change(&alice);
	begin_ns = now_ns();
	ck_assert_int_eq(renew(&alice), 0);
	break_push(&alice, 0);
	unheard = ask_distrusted(&alice, &file);
	ck_assert_int_eq(wait_for(&alice, unheard.getattr), 0);
	/* The loop's clock may be some milliseconds old. */
	ck_assert_int_ge(now_ns() - begin_ns, MD_LEASE_NS - 50 * GX_NSEC_PER_MSEC);
	ck_assert_int_eq(wait_for(&alice, unheard.renew), 0);
	ck_assert_int_eq(change(&alice, RPC_INDEX_SETATTR, &unheard.mode, 2), 0);
}
END_TEST

START_TEST(with_a_new_push_channel_a_session_is_heard_at_once)
{
	struct unheard unheard;
	PbMeta__Attr file;

	party_open(&alice, META_ALICE, true);
	file = open_and_change(&alice);
	/* So much that a call ends before: it is not time that helps. */
	break_push(&alice, 10 * WAIT_NS);
	unheard = ask_distrusted(&alice, &file);
	ck_assert(chan_open(&alice, RPC_CHANNEL_PUSH, &alice.push));
	assert_heard(&alice, &unheard);
}
END_TEST

/* -- the end of a session --------------------------------------------------------------------- */

static void find_ring(struct md_server *server, void *arg)
{
	uint64_t session;

	*(bool *)arg = md_state_next_ring(md_server_state(server), 0, &session);
}

START_TEST(a_session_that_had_begun_to_end_is_gone_after_a_crash_with_all_its_results)
{
	struct piece piece;
	PbMeta__SetattrRequest mode;
	bool found = false;
	PbMeta__Attr file;

	party_open(&alice, META_ALICE, false);
	file = open_file(&alice, "file", 0644, 1);
	mode = set_mode(&file, 0600);
	for (uint64_t seq = 2; seq <= 1100; seq++)
		ck_assert_int_eq(change(&alice, RPC_INDEX_SETATTR, &mode, seq), 0);
	piece.session = alice.session;
	meta_fixture_run(f, end_piece, &piece);
	ck_assert(!piece.gone);
	meta_fixture_run(f, find_ring, &found);
	ck_assert(found);
	party_close(&alice);
	meta_fixture_down(f);
	meta_fixture_up(f);
	meta_fixture_run(f, find_ring, &found);
	ck_assert(!found);
	alice.session = piece.session;
	rpc_reply_init(&alice.reply);
	ck_assert(!chan_open(&alice, RPC_CHANNEL_CALLS, &alice.calls));
	/* Nobody is waited for. */
	ck_assert_int_eq(lookup(&alice, "file"), 0);
}
END_TEST

/* -- limits ----------------------------------------------------------------------------------- */

START_TEST(a_resume_of_more_than_1000_files_is_refused)
{
	PbMeta__ResumeRequest request = PB_META__RESUME_REQUEST__INIT;
	PbMeta__OpenFile file = PB_META__OPEN_FILE__INIT, *files[1001];

	for (size_t i = 0; i < GX_COUNT_OF(files); i++)
		files[i] = &file;
	party_open(&alice, META_ALICE, false);
	request.files = files;
	request.n_files = 1001;
	ck_assert_int_eq(look(&alice, RPC_INDEX_RESUME, &request), -E2BIG);
	request.n_files = 1000;
	ck_assert_int_eq(look(&alice, RPC_INDEX_RESUME, &request), 0);
	ck_assert_uint_eq(((PbMeta__ResumeReply *)alice.reply.message)->n_lost, 1000);
}
END_TEST

START_TEST(more_than_1000_ids_at_a_time_are_refused)
{
	PbMeta__IdsRequest request = PB_META__IDS_REQUEST__INIT;
	char *names[1000];
	uint32_t gid = 50;

	for (size_t i = 0; i < GX_COUNT_OF(names); i++)
		names[i] = "alice";
	party_open(&alice, META_ALICE, false);
	request.users = names;
	request.n_users = 1000;
	request.gids = &gid;
	request.n_gids = 1;
	ck_assert_int_eq(look(&alice, RPC_INDEX_IDS, &request), -E2BIG);
	request.n_gids = 0;
	ck_assert_int_eq(look(&alice, RPC_INDEX_IDS, &request), 0);
	ck_assert_uint_eq(((PbMeta__IdsReply *)alice.reply.message)->n_users, 1000);
}
END_TEST

#define FLOOD 12u

/* Sends calls of a megabyte each, the last of which is refused; returns how many are kept. */
static unsigned flood(struct party *party, uint64_t calls[FLOOD])
{
	PbMeta__LookupRequest request = PB_META__LOOKUP_REQUEST__INIT;
	struct probe probe = {.session = party->session};
	size_t bytes = 1000 * 1000;
	char *name = malloc(bytes + 1);

	ck_assert_ptr_nonnull(name);
	memset(name, 'n', bytes);
	name[bytes] = '\0';
	request.parent = 1;
	request.name = name;
	for (unsigned i = 0; i < FLOOD; i++)
		calls[i] = submit(party, RPC_INDEX_LOOKUP, &request, 0, 0, NULL);
	free(name);
	ck_assert_int_eq(wait_for(party, calls[FLOOD - 1]), -EAGAIN);
	meta_fixture_run(f, look_inside, &probe);
	ck_assert_uint_le(probe.parked_bytes, 8u * 1024 * 1024);
	return probe.parked;
}

START_TEST(one_session_cannot_make_metad_keep_more_than_its_share)
{
	uint64_t first[FLOOD], second[FLOOD], call;
	PbMeta__RenewRequest renewal = PB_META__RENEW_REQUEST__INIT;
	unsigned kept;

	party_open(&alice, META_ALICE, true);
	party_open(&bob, META_BOB, true);
	party_open(&root, META_ROOT, false);
	break_push(&alice, 10 * WAIT_NS);
	break_push(&bob, 10 * WAIT_NS);
	kept = flood(&alice, first);
	ck_assert_uint_ge(kept, 1);
	ck_assert_uint_le(kept, 8);
	/* Others are heard, and kept where that is due. */
	ck_assert_int_eq(lookup(&root, "file"), -ENOENT);
	call = submit(&bob, RPC_INDEX_RENEW, &renewal, 0, 0, NULL);
	wait_parked(&bob, kept + 1);
	/* That bob's call goes on makes no room for alice's: hers are kept still. */
	ck_assert(chan_open(&bob, RPC_CHANNEL_PUSH, &bob.push));
	ck_assert_int_eq(wait_for(&bob, call), 0);
	ck_assert_uint_eq(flood(&alice, second), kept);
	/* And then they are answered. */
	ck_assert(chan_open(&alice, RPC_CHANNEL_PUSH, &alice.push));
	for (unsigned i = 0; i < FLOOD - 1; i++) {
		ck_assert_int_eq(wait_for(&alice, first[i]), i < kept ? -ENAMETOOLONG : -EAGAIN);
		ck_assert_int_eq(wait_for(&alice, second[i]), -EAGAIN);
	}
}
END_TEST

struct crowd {
	uint64_t session, ino;
	unsigned wanted; /* files that the session has open then */
	unsigned others; /* beside them, of somebody else */
};

static void open_crowd(struct md_server *server, void *arg)
{
	struct crowd *crowd = arg;
	struct md_session *session = md_session_get(server, crowd->session);

	for (uint64_t i = HASH_COUNT(session->opens); i < crowd->wanted; i++)
		ck_assert_int_eq(
			md_open_add(server, session, 1000000 + i, crowd->ino, MD_OPEN_READ), 0);
	server->open_count += crowd->others;
}

static void end_crowd(struct md_server *server, void *arg)
{
	struct crowd *crowd = arg;

	server->open_count -= crowd->others;
}

static int open_one_more(struct party *party, uint64_t seq)
{
	PbMeta__OpenRequest request = PB_META__OPEN_REQUEST__INIT;

	request.parent = 1;
	request.name = (char *)(uintptr_t) "file";
	request.flags = MD_OPEN_READ;
	return change(party, RPC_INDEX_OPEN, &request, seq);
}

START_TEST(one_session_and_all_of_them_have_a_bounded_number_of_open_files)
{
	struct crowd crowd = {.others = MD_OPENS_MAX - 3};
	PbMeta__Attr file;

	party_open(&bob, META_BOB, false);
	party_open(&alice, META_ALICE, false);
	file = open_file(&bob, "file", 0644, 1);
	/* Others have nearly all: two are left. */
	crowd.session = bob.session;
	meta_fixture_run(f, open_crowd, &crowd);
	ck_assert_int_eq(open_one_more(&alice, 1), 0);
	ck_assert_int_eq(open_one_more(&bob, 2), 0);
	ck_assert_int_eq(open_one_more(&alice, 2), -EMFILE);
	meta_fixture_run(f, end_crowd, &crowd);
	ck_assert_int_eq(open_one_more(&alice, 3), 0);
	/* One session has all it may have, another is not hindered by that. */
	crowd = (struct crowd){
		.session = bob.session, .ino = file.ino, .wanted = MD_OPENS_PER_SESSION_MAX - 1};
	meta_fixture_run(f, open_crowd, &crowd);
	ck_assert_int_eq(open_one_more(&bob, 3), 0);
	ck_assert_int_eq(open_one_more(&bob, 4), -EMFILE);
	ck_assert_int_eq(open_one_more(&alice, 4), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("md_hostile");
	TCase *t = tcase_create("wire");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, an_open_by_inode_with_a_huge_name_is_refused);
	tcase_add_test(t, a_huge_change_of_any_kind_is_refused_and_not_made);
	tcase_add_test(t, a_change_is_answered_when_who_must_forget_leaves_and_breaks);
	tcase_add_test(t, a_replay_behind_a_newer_result_is_not_recoverable);
	tcase_add_test(t, a_replay_for_which_others_left_no_room_is_lost_at_once);
	tcase_add_test(t, a_replayed_truncate_needs_the_right_to_truncate);
	tcase_add_test(t, a_write_is_repeated_only_with_the_bytes_that_were_answered);
	tcase_add_test(t, a_replayed_create_does_not_bring_a_deleted_inode_back);
	tcase_add_test(t, a_change_that_its_client_gave_up_is_not_made);
	tcase_add_test(t,
		       without_its_push_channel_a_session_hears_nothing_until_its_trust_has_ended);
	tcase_add_test(t, with_a_new_push_channel_a_session_is_heard_at_once);
	tcase_add_test(t,
		       a_session_that_had_begun_to_end_is_gone_after_a_crash_with_all_its_results);
	tcase_add_test(t, a_resume_of_more_than_1000_files_is_refused);
	tcase_add_test(t, more_than_1000_ids_at_a_time_are_refused);
	tcase_add_test(t, one_session_cannot_make_metad_keep_more_than_its_share);
	tcase_add_test(t, one_session_and_all_of_them_have_a_bounded_number_of_open_files);
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
