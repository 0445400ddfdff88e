/*
 * Large files at metad: leases, recalls, reports, what becomes of a writer that has vanished, and
 * what clients that only look see meanwhile (rules B1, B2, B4, N2, N4, N10, N12, S1).
 */
#include "md_large.h"
#include "metad/md_layout.h"
#include "rpc/rpc_ticket.h"

/* -- tickets ------------------------------------------------------------------------------------
 */

START_TEST(a_new_file_gets_a_place_and_a_ticket_of_its_own)
{
	struct file file = open_rw(&alice, "new");
	const PbMeta__LeaseReply *reply = lease(&alice, &file, true);
	struct rpc_file_ticket ticket;

	ck_assert_uint_eq(reply->mode, MODE_EXCLUSIVE);
	ck_assert(reply->growing);
	ck_assert_uint_gt(reply->generation, file.attr.generation);
	ck_assert_uint_eq(reply->n_places, 1);
	ck_assert_str_eq(reply->places[0]->node, "fsd1");
	ck_assert_str_eq(reply->places[0]->host, "h1");
	ck_assert_uint_eq(reply->places[0]->flags, 8);
	ck_assert(reply->places[0]->up);
	ck_assert_uint_gt(reply->size_max, 0);
	ck_assert_uint_eq(reply->report_ms, 50);
	ticket = ticket_of(reply->places[0]);
	ck_assert_uint_eq(ticket.ino, file.attr.ino);
	ck_assert_uint_eq(ticket.generation, reply->generation);
	ck_assert_uint_eq(ticket.base, 0);
	ck_assert_uint_eq(ticket.session, alice.party.session);
	ck_assert_uint_eq(ticket.rights, RPC_FILE_READ | RPC_FILE_WRITE);
	ck_assert_uint_eq(ticket.size_max, reply->size_max);
	ck_assert_uint_eq(ticket.epoch, 1);
	ck_assert_int_gt(ticket.expires_ns, gx_env_wall_ns(gx_env_posix()));
}
END_TEST

START_TEST(who_reads_gets_no_right_to_write_and_a_ticket_for_himself)
{
	uint64_t generation = make_large(&alice, "large", 100000);
	struct file file = open_as(&bob, "large", MD_OPEN_READ);
	const PbMeta__LeaseReply *reply = lease(&bob, &file, false);
	struct rpc_file_ticket ticket;

	ck_assert_uint_eq(reply->mode, MODE_READ);
	ck_assert_uint_eq(reply->generation, generation);
	ck_assert_uint_eq(reply->attr->size, 100000);
	ck_assert_uint_eq(reply->n_places, 1);
	ticket = ticket_of(reply->places[0]);
	ck_assert_uint_eq(ticket.rights, RPC_FILE_READ);
	ck_assert_uint_eq(ticket.session, bob.party.session);
	ck_assert_uint_eq(ticket.generation, generation);
	/* Opened for reading is not opened for writing. */
	ck_assert_int_eq(wait_for(&bob.party, begin_lease(&bob, &file, true)), -EBADF);
}
END_TEST

/* A box that others may throw things into. */
START_TEST(who_may_only_write_gets_no_right_to_read)
{
	struct file file = open_rw(&alice, "box"), other;
	PbMeta__SetattrRequest request = set_mode(&file.attr, 0622);
	uint64_t generation = make_large(&alice, "box", 100000);
	const PbMeta__LeaseReply *reply;

	ck_assert_int_eq(do_change(&alice, RPC_INDEX_SETATTR, &request), 0);
	other = open_as(&bob, "box", MD_OPEN_WRITE);
	ck_assert_int_eq(wait_for(&bob.party, begin_lease(&bob, &other, false)), -EACCES);
	ck_assert_uint_gt(lease_told(&bob, &other, &alice), generation);
	reply = reply_of(&bob);
	ck_assert_uint_eq(ticket_of(reply->places[0]).rights, RPC_FILE_WRITE);
}
END_TEST

START_TEST(the_way_to_a_node_is_a_ticket_of_the_session_and_its_key)
{
	PbMeta__AttachRequest request = PB_META__ATTACH_REQUEST__INIT;
	unsigned char host_key[RPC_KEY_BYTES], node_key[RPC_KEY_BYTES], key[RPC_KEY_BYTES];
	const PbMeta__AttachReply *reply;
	struct rpc_ticket ticket;

	request.node = (char *)(uintptr_t) "fsd1";
	ck_assert_int_eq(look(&alice.party, RPC_INDEX_ATTACH, &request), 0);
	reply = reply_of(&alice);
	ck_assert_int_eq(rpc_ticket_parse(reply->ticket, &ticket), 0);
	ck_assert_str_eq(ticket.identity, "user:alice");
	ck_assert_str_eq(ticket.node, "fsd1");
	ck_assert_uint_eq(ticket.session, alice.party.session);
	memset(host_key, 0xfd, sizeof(host_key));
	ck_assert_int_eq(rpc_node_key(host_key, node_key), 0);
	ck_assert_int_eq(rpc_ticket_key(reply->ticket, node_key, key), 0);
	ck_assert_uint_eq(reply->key.len, RPC_KEY_BYTES);
	ck_assert_mem_eq(reply->key.data, key, RPC_KEY_BYTES);
	ck_assert_str_eq(reply->place->addresses[0], "unix:/nowhere");
	request.node = (char *)(uintptr_t) "fsd9";
	ck_assert_int_eq(look(&alice.party, RPC_INDEX_ATTACH, &request), -ENOENT);
}
END_TEST

START_TEST(an_inline_file_needs_no_lease_to_be_read)
{
	struct file file = open_rw(&alice, "small");
	const PbMeta__LeaseReply *reply;

	ck_assert_int_eq(write_inline(&alice, &file, "hello"), 0);
	reply = lease(&alice, &file, false);
	ck_assert_uint_eq(reply->mode, 0);
	ck_assert_uint_eq(reply->n_places, 0);
	ck_assert_uint_eq(reply->attr->size, 5);
}
END_TEST

static void started_earlier(struct md_server *md, void *arg)
{
	md->started_ns -= *(int64_t *)arg;
}

static void lose_node(struct md_server *md, void *arg GX_UNUSED)
{
	md_nodes_gone(md->nodes, "fsd1");
}

START_TEST(without_a_node_there_is_no_room)
{
	struct file file = open_rw(&alice, "new");
	PbMeta__LeaseRequest request = PB_META__LEASE_REQUEST__INIT;
	int64_t earlier = 10 * GX_NSEC_PER_SEC;

	meta_fixture_run(f, started_earlier, &earlier);
	meta_fixture_run(f, lose_node, NULL);
	request.handle = file.handle;
	request.ino = file.attr.ino;
	request.write = true;
	ck_assert_int_eq(look(&alice.party, RPC_INDEX_LEASE, &request), -EHOSTUNREACH);
	/* One that comes while somebody waits is taken. */
	node_start(1);
	ck_assert_int_eq(look(&alice.party, RPC_INDEX_LEASE, &request), 0);
	ck_assert_str_eq(((PbMeta__LeaseReply *)reply_of(&alice))->places[0]->node, "fsd2");
}
END_TEST

/* Reads inline content; what comes is put into `text`. */
static uint64_t begin_read(struct client *client, const struct file *file, char text[16])
{
	PbMeta__ReadRequest read = PB_META__READ_REQUEST__INIT;
	struct rpc_request request = {.method = rpc_method_get(RPC_INDEX_READ),
				      .message = &read.base,
				      .payload_in = text,
				      .payload_in_bytes = 16,
				      .deadline_ns = now_ns() + WAIT_NS};
	uint64_t call;

	read.handle = file->handle;
	read.bytes = 16;
	ck_assert_int_eq(rpc_chan_submit(client->party.calls, &request, &call, NULL), 0);
	return call;
}

/* -- growing out of metad (rule N10) --------------------------------------------------------------
 */

START_TEST(inline_content_is_the_truth_until_the_object_has_all)
{
	struct file file = open_rw(&alice, "grows"), other;
	uint64_t generation, call;
	char text[16];

	ck_assert_int_eq(write_inline(&alice, &file, "inline"), 0);
	other = open_as(&bob, "grows", MD_OPEN_READ);
	generation = lease_told(&alice, &file, &bob);
	/* Sizes of what is not the content yet are nobody's business. */
	ck_assert_int_eq(report(&alice, &file, generation, KEEP, 50000, 1), 0);
	ck_assert_uint_eq(((PbMeta__ReportReply *)reply_of(&alice))->attr->size, 6);
	call = begin_read(&bob, &other, text);
	told(&alice, file.attr.ino, TELL_RECALL);
	assert_waits(&bob, call);
	/* She gives way before the object is complete: it never was. */
	ck_assert_int_eq(report(&alice, &file, generation, MODE_SHARED, 0, 0), 0);
	ck_assert_int_eq(wait_for(&bob.party, call), 0);
	ck_assert_uint_eq(bob.party.reply.payload_bytes, 6);
	ck_assert_mem_eq(text, "inline", 6);
	/* And what she was allowed to do is over. */
	ck_assert_int_eq(report_grown(&alice, &file, generation, KEEP, 50000), -ESTALE);
	ck_assert_uint_gt(lease(&alice, &file, true)->generation, generation);
}
END_TEST

START_TEST(once_it_has_grown_the_bytes_are_elsewhere)
{
	struct file file = open_rw(&alice, "grows"), other;
	const PbMeta__LeaseReply *reply;
	uint64_t generation, call;
	char text[16];

	ck_assert_int_eq(write_inline(&alice, &file, "inline"), 0);
	other = open_rw(&bob, "grows");
	generation = lease_told(&alice, &file, &bob);
	call = begin_read(&bob, &other, text);
	told(&alice, file.attr.ino, TELL_RECALL);
	ck_assert_int_eq(report_grown(&alice, &file, generation, MODE_SHARED, 50000), 0);
	ck_assert_int_eq(wait_for(&bob.party, call), -EFBIG);
	reply = lease(&bob, &other, false);
	ck_assert_uint_eq(reply->mode, MODE_SHARED);
	ck_assert_uint_eq(reply->generation, generation);
	ck_assert_uint_eq(reply->attr->size, 50000);
	ck_assert_int_eq(write_inline(&bob, &other, "x"), -EFBIG);
}
END_TEST

static PbMeta__SetattrRequest cut(const struct file *file, uint64_t size)
{
	PbMeta__SetattrRequest request = set_size(&file->attr, size);

	return request;
}

/* All that would change the inline content behind the back of who takes it out of metad. */
START_TEST(inline_changes_wait_for_who_is_growing_it)
{
	struct file file = open_rw(&alice, "grows"), other;
	PbMeta__SetattrRequest setattr;
	PbMeta__OpenRequest truncate = open_request("grows", 2 | 16);
	uint64_t generation, call = 0;

	ck_assert_int_eq(write_inline(&alice, &file, "inline"), 0);
	other = open_rw(&bob, "grows");
	setattr = cut(&other, 3);
	generation = lease_told(&alice, &file, &bob);
	switch (_i) {
	case 0:
		call = begin_change(&bob, RPC_INDEX_SETATTR, &setattr, NULL);
		break;
	case 1: {
		PbMeta__WriteRequest write = PB_META__WRITE_REQUEST__INIT;

		write.handle = other.handle;
		write.ino = other.attr.ino;
		call = begin_change(&bob, RPC_INDEX_WRITE, &write, "xyz");
		break;
	}
	default:
		call = begin_change(&bob, RPC_INDEX_OPEN, &truncate, NULL);
		break;
	}
	told(&alice, file.attr.ino, TELL_RECALL);
	assert_waits(&bob, call);
	ck_assert_int_eq(report(&alice, &file, generation, MODE_SHARED, 0, 0), 0);
	told(&alice, file.attr.ino, TELL_FORGET);
	ck_assert_int_eq(wait_for(&bob.party, call), 0);
	ck_assert_uint_eq(size_of(&bob.party, &other.attr), _i == 0 ? 3 : _i == 1 ? 6 : 0);
}
END_TEST

START_TEST(a_place_that_cannot_be_reached_is_changed_while_growing)
{
	struct file file = open_rw(&alice, "grows");
	PbMeta__LeaseRequest request = PB_META__LEASE_REQUEST__INIT;
	char *avoid[] = {(char *)(uintptr_t) "fsd1"};
	uint64_t generation = lease(&alice, &file, true)->generation;
	const PbMeta__LeaseReply *reply;

	node_start(1);
	request.handle = file.handle;
	request.ino = file.attr.ino;
	request.write = true;
	request.avoid = avoid;
	request.n_avoid = 1;
	request.unreached = generation;
	ck_assert_int_eq(look(&alice.party, RPC_INDEX_LEASE, &request), 0);
	reply = reply_of(&alice);
	ck_assert_str_eq(reply->places[0]->node, "fsd2");
	ck_assert_uint_gt(reply->generation, generation);
	ck_assert(reply->growing);
	/* What may have got to the first node is deleted there. */
	ck_assert_uint_eq(node_job(0, 2, file.attr.ino).generation, generation);
}
END_TEST

/* Its connection broke while it waited for a node: the client sends it again, and both run. */
START_TEST(a_request_from_before_the_lease_does_not_take_it_away)
{
	struct file file = open_rw(&alice, "grows");
	PbMeta__LeaseRequest request = PB_META__LEASE_REQUEST__INIT;
	char *avoid[] = {(char *)(uintptr_t) "fsd1"};
	uint64_t generation = lease(&alice, &file, true)->generation;
	const PbMeta__LeaseReply *reply;

	node_start(1);
	request.handle = file.handle;
	request.ino = file.attr.ino;
	request.write = true;
	request.avoid = avoid;
	request.n_avoid = 1;
	for (unsigned i = 0; i < 2; i++) {
		request.unreached = i == 0 ? 0 : generation - 1;
		ck_assert_int_eq(look(&alice.party, RPC_INDEX_LEASE, &request), 0);
		reply = reply_of(&alice);
		ck_assert_str_eq(reply->places[0]->node, "fsd1");
		ck_assert_uint_eq(reply->generation, generation);
	}
	ck_assert_int_eq(report_grown(&alice, &file, generation, KEEP, 20000), 0);
}
END_TEST

START_TEST(a_place_that_could_not_be_reached_is_better_than_none)
{
	struct file file = open_rw(&alice, "grows");
	PbMeta__LeaseRequest request = PB_META__LEASE_REQUEST__INIT;
	char *avoid[] = {(char *)(uintptr_t) "fsd1"};
	const PbMeta__LeaseReply *reply;

	request.handle = file.handle;
	request.ino = file.attr.ino;
	request.write = true;
	request.avoid = avoid;
	request.n_avoid = 1;
	ck_assert_int_eq(look(&alice.party, RPC_INDEX_LEASE, &request), 0);
	reply = reply_of(&alice);
	ck_assert_str_eq(reply->places[0]->node, "fsd1");
}
END_TEST

/* -- recalls (rule B4) ----------------------------------------------------------------------------
 */

/* Alice has it alone, grown, with so many bytes reported. */
static struct file written_by_alice(const char *name, uint64_t size, uint64_t *ret_generation)
{
	struct file file = open_rw(&alice, name);
	const PbMeta__LeaseReply *reply = lease(&alice, &file, true);

	*ret_generation = reply->generation;
	ck_assert_int_eq(report_grown(&alice, &file, *ret_generation, KEEP, size), 0);
	return file;
}

START_TEST(an_exclusive_lease_is_recalled_and_both_share)
{
	uint64_t generation, call;
	struct file file = written_by_alice("both", 20000, &generation), other;
	const PbMeta__LeaseReply *reply;

	other = open_rw(&bob, "both");
	call = begin_lease(&bob, &other, _i != 0);
	told(&alice, file.attr.ino, TELL_RECALL);
	assert_waits(&bob, call);
	/* She goes on reporting while she flushes; that is not the answer yet. */
	ck_assert_int_eq(report(&alice, &file, generation, KEEP, 25000, 2), 0);
	assert_waits(&bob, call);
	ck_assert_int_eq(report(&alice, &file, generation, MODE_SHARED, 30000, 3), 0);
	reply = leased(&bob, call);
	ck_assert_uint_eq(reply->mode, MODE_SHARED);
	ck_assert_uint_eq(reply->generation, generation);
	ck_assert_uint_eq(reply->attr->size, 30000);
	ck_assert_uint_eq(reply->n_places, 1);
	ck_assert_uint_eq(reply->places[0]->flags, 8);
	ck_assert_uint_eq(ticket_of(reply->places[0]).rights,
			  _i != 0 ? RPC_FILE_READ | RPC_FILE_WRITE : RPC_FILE_READ);
	/* Hers is shared, too. */
	ck_assert_uint_eq(lease(&alice, &file, true)->mode, MODE_SHARED);
}
END_TEST

static void see_no_recall(struct md_server *md, void *arg GX_UNUSED)
{
	ck_assert_ptr_null(md_access_first_recalled(md->access));
}

/* She has no push channel: she was not told, and must not lose it for that. */
START_TEST(who_shares_is_in_nobodys_way_once_the_file_has_grown)
{
	const PbMeta__LeaseReply *reply;
	struct file file, other;
	uint64_t generation, call;

	part(&alice);
	join(&alice, META_ALICE, false);
	file = open_rw(&alice, "both");
	reply = lease(&alice, &file, true);
	ck_assert_uint_eq(reply->mode, MODE_SHARED);
	generation = reply->generation;
	other = open_rw(&bob, "both");
	call = begin_lease(&bob, &other, true);
	assert_waits(&bob, call);
	ck_assert_int_eq(report_grown(&alice, &file, generation, KEEP, 20000), 0);
	ck_assert_uint_eq(leased(&bob, call)->mode, MODE_SHARED);
	meta_fixture_run(f, see_no_recall, NULL);
}
END_TEST

START_TEST(readers_give_way_to_a_writer)
{
	uint64_t generation = make_large(&alice, "large", 100000), call;
	struct file mine = open_rw(&alice, "large"), other = open_as(&bob, "large", MD_OPEN_READ);
	const PbMeta__LeaseReply *reply;

	ck_assert_uint_eq(lease(&bob, &other, false)->mode, MODE_READ);
	call = begin_lease(&alice, &mine, true);
	told(&bob, other.attr.ino, TELL_RECALL);
	assert_waits(&alice, call);
	ck_assert_int_eq(report(&bob, &other, generation, _i == 0 ? MODE_SHARED : BACK, 0, 0), 0);
	/* His attributes are old from now on (rule N12). */
	told(&bob, other.attr.ino, TELL_FORGET);
	reply = leased(&alice, call);
	/* Either way he has it no more: the next primary may be another node. */
	ck_assert_uint_eq(reply->mode, MODE_EXCLUSIVE);
	/* Rule B1: it moved, and the node may have the old one still. */
	ck_assert_uint_gt(reply->generation, generation);
	ck_assert_uint_eq(ticket_of(reply->places[0]).base, generation);
	ck_assert_int_eq(report(&bob, &other, generation, KEEP, 0, 0), -ESTALE);
}
END_TEST

START_TEST(a_reader_without_a_push_channel_is_not_waited_for)
{
	uint64_t generation = make_large(&alice, "large", 100000);
	struct file mine = open_rw(&alice, "large"), other = open_as(&root, "large", MD_OPEN_READ);

	ck_assert_uint_eq(lease(&root, &other, false)->mode, MODE_READ);
	ck_assert_uint_gt(lease(&alice, &mine, true)->generation, generation);
}
END_TEST

START_TEST(a_writer_without_a_push_channel_never_has_it_alone)
{
	struct file file = open_rw(&root, "file"), other;
	const PbMeta__LeaseReply *reply = lease(&root, &file, true);
	uint64_t generation = reply->generation;

	ck_assert_uint_eq(reply->mode, MODE_SHARED);
	ck_assert_int_eq(report_grown(&root, &file, generation, KEEP, 9000), 0);
	other = open_as(&bob, "file", MD_OPEN_READ);
	reply = lease(&bob, &other, false);
	ck_assert_uint_eq(reply->mode, MODE_SHARED);
	ck_assert_uint_eq(reply->attr->size, 9000);
}
END_TEST

START_TEST(a_recall_is_told_again_on_a_new_push_channel)
{
	uint64_t generation, call;
	struct file file = written_by_alice("both", 20000, &generation);
	struct file other = open_rw(&bob, "both");

	call = begin_lease(&bob, &other, true);
	told(&alice, file.attr.ino, TELL_RECALL);
	rpc_chan_close(alice.party.push);
	rpc_chan_close(alice.party.calls);
	ck_assert(chan_open(&alice.party, RPC_CHANNEL_CALLS, &alice.party.calls));
	ck_assert(chan_open(&alice.party, RPC_CHANNEL_PUSH, &alice.party.push));
	told(&alice, file.attr.ino, TELL_RECALL);
	ck_assert_int_eq(report(&alice, &file, generation, MODE_SHARED, 20000, 1), 0);
	ck_assert_uint_eq(leased(&bob, call)->mode, MODE_SHARED);
}
END_TEST

/* -- reports --------------------------------------------------------------------------------------
 */

START_TEST(an_older_word_about_the_size_does_not_count)
{
	uint64_t generation;
	struct file file = written_by_alice("file", 20000, &generation);

	ck_assert_int_eq(report(&alice, &file, generation, KEEP, 50000, 7), 0);
	ck_assert_int_eq(report(&alice, &file, generation, KEEP, 40000, 6), 0);
	ck_assert_uint_eq(((PbMeta__ReportReply *)reply_of(&alice))->attr->size, 50000);
	ck_assert_int_eq(report(&alice, &file, generation, KEEP, 10, 8), 0);
	ck_assert_uint_eq(((PbMeta__ReportReply *)reply_of(&alice))->attr->size, 10);
}
END_TEST

START_TEST(only_who_may_write_may_report)
{
	uint64_t generation;
	struct file file = written_by_alice("file", 20000, &generation);
	struct file other = open_rw(&bob, "file");
	uint64_t call;

	ck_assert_int_eq(report(&bob, &other, generation, KEEP, 1, 100), -ESTALE);
	call = begin_lease(&bob, &other, false);
	told(&alice, file.attr.ino, TELL_RECALL);
	ck_assert_int_eq(report(&alice, &file, generation, MODE_SHARED, 20000, 1), 0);
	leased(&bob, call);
	ck_assert_int_eq(report(&bob, &other, generation, KEEP, 1, 100), -EACCES);
	ck_assert_int_eq(report(&alice, &file, generation + 1, KEEP, 1, 100), -ESTALE);
	ck_assert_int_eq(report(&alice, &file, generation - 1, KEEP, 1, 100), -ESTALE);
	ck_assert_int_eq(report(&alice, &file, generation, 2, 1, 100), -EINVAL);
	ck_assert_int_eq(report(&alice, &file, generation, KEEP, UINT64_MAX, 100), -EFBIG);
	ck_assert_uint_eq(size_of(&alice.party, &file.attr), 20000);
}
END_TEST

START_TEST(the_last_writer_settles_it)
{
	uint64_t generation, call;
	struct file file = written_by_alice("file", 20000, &generation);
	struct file other = open_rw(&bob, "file");
	const PbMeta__WhereReply *where;
	PbMeta__WhereRequest request = PB_META__WHERE_REQUEST__INIT;

	call = begin_lease(&bob, &other, true);
	told(&alice, file.attr.ino, TELL_RECALL);
	ck_assert_int_eq(report(&alice, &file, generation, MODE_SHARED, 20000, 1), 0);
	leased(&bob, call);
	request.ino = file.attr.ino;
	request.cap = file.attr.cap;
	ck_assert_int_eq(report(&alice, &file, generation, BACK, 20000, 2), 0);
	ck_assert_int_eq(look(&root.party, RPC_INDEX_WHERE, &request), 0);
	where = reply_of(&root);
	ck_assert(where->writing);
	ck_assert_uint_eq(where->n_places, 1);
	ck_assert_uint_eq(where->places[0]->flags & 8, 8);
	ck_assert_int_eq(report(&bob, &other, generation, BACK, 30000, 3), 0);
	ck_assert_int_eq(look(&root.party, RPC_INDEX_WHERE, &request), 0);
	where = reply_of(&root);
	ck_assert(!where->writing);
	ck_assert_uint_eq(where->wanted, 1);
	ck_assert_uint_eq(where->attr->size, 30000);
	ck_assert_uint_eq(where->places[0]->generation, generation);
	/* It did not move: the primary was there with this one. */
	ck_assert_uint_eq(where->attr->generation, generation);
}
END_TEST

/* -- writers that vanish (rule B2)
 * ------------------------------------------------------------------ */

START_TEST(a_silent_writer_loses_its_lease_and_the_generation_moves)
{
	uint64_t generation, next, call;
	struct file file = written_by_alice("lost", 20000, &generation);
	struct file other = open_as(&bob, "lost", MD_OPEN_READ);
	const PbMeta__LeaseReply *reply;

	call = begin_lease(&bob, &other, false);
	told(&alice, file.attr.ino, TELL_RECALL);
	is_silent(&alice, MD_LEASE_NS);
	/* Before anybody reads, the primary has moved on and told the size. */
	next = node_recovers(0, file.attr.ino, generation, 26000);
	reply = leased(&bob, call);
	ck_assert_uint_eq(reply->mode, MODE_READ);
	ck_assert_uint_eq(reply->generation, next);
	ck_assert_uint_eq(reply->attr->size, 26000);
	/* She is told, and can have it again under the new generation. */
	ck_assert_int_eq(report(&alice, &file, generation, KEEP, 90000, 100), -ESTALE);
	ck_assert_uint_eq(size_of(&bob.party, &file.attr), 26000);
}
END_TEST

struct gone {
	uint64_t session;
	bool is;
};

static void look_if_gone(struct md_server *md, void *arg)
{
	struct gone *gone = arg;
	const struct md_session *session = md_session_get(md, gone->session);

	gone->is = session->connections == 0 && !session->distrusted;
}

/* Its process has ended, and that is some time ago. */
static void is_killed(struct client *client)
{
	struct gone gone = {.session = client->party.session};

	party_close(&client->party);
	is_silent(client, 2 * MD_LEASE_NS);
	while (!gone.is) {
		meta_fixture_run(f, look_if_gone, &gone);
		gx_env_sleep_until(gx_env_posix(), now_ns() + 10 * GX_NSEC_PER_MSEC);
	}
}

/* Its caches are over, so nobody waits for its answer; its lease must not outlive them. */
START_TEST(a_writer_that_was_killed_some_time_ago_is_not_waited_for)
{
	int64_t begin_ns = now_ns();
	uint64_t generation, call;
	struct file file = written_by_alice("killed", 20000, &generation);
	struct file other = open_as(&bob, "killed", MD_OPEN_READ);

	is_killed(&alice);
	call = begin_lease(&bob, &other, false);
	node_recovers(0, file.attr.ino, generation, 26000);
	ck_assert_uint_eq(leased(&bob, call)->mode, MODE_READ);
	ck_assert_int_lt(now_ns() - begin_ns, 8 * GX_NSEC_PER_SEC);
}
END_TEST

START_TEST(a_shared_writer_that_was_killed_is_recovered_when_somebody_asks)
{
	struct file file = open_rw(&root, "file"), other;
	uint64_t generation = lease(&root, &file, true)->generation, call;

	ck_assert_int_eq(report_grown(&root, &file, generation, KEEP, 9000), 0);
	other = open_as(&bob, "file", MD_OPEN_READ);
	is_killed(&root);
	call = begin_lease(&bob, &other, false);
	node_recovers(0, file.attr.ino, generation, 26000);
	ck_assert_uint_eq(leased(&bob, call)->mode, MODE_READ);
	ck_assert_uint_eq(size_of(&bob.party, &file.attr), 26000);
}
END_TEST

START_TEST(one_who_is_there_but_slow_has_ten_seconds)
{
	uint64_t generation, next, call;
	struct file file = written_by_alice("slow", 20000, &generation);
	struct file other = open_rw(&bob, "slow");
	const PbMeta__LeaseReply *reply;

	call = begin_lease(&bob, &other, true);
	told(&alice, file.attr.ino, TELL_RECALL);
	is_slow(&alice, file.attr.ino, 9 * GX_NSEC_PER_SEC);
	ck_assert_int_eq(report(&alice, &file, generation, KEEP, 20000, 2), 0);
	assert_waits(&bob, call);
	is_slow(&alice, file.attr.ino, GX_NSEC_PER_SEC);
	next = node_recovers(0, file.attr.ino, generation, 20000);
	told(&alice, file.attr.ino, TELL_FORGET);
	reply = leased(&bob, call);
	ck_assert_uint_eq(reply->mode, MODE_EXCLUSIVE);
	ck_assert_uint_gt(reply->generation, next);
	ck_assert_int_eq(report(&alice, &file, generation, MODE_SHARED, 20000, 3), -ESTALE);
}
END_TEST

START_TEST(a_session_that_ends_or_closes_without_a_word_is_recovered)
{
	uint64_t generation, next;
	struct file file = written_by_alice("left", 20000, &generation);
	struct file other = open_as(&bob, "left", MD_OPEN_READ);
	PbMeta__LeaveRequest leave = PB_META__LEAVE_REQUEST__INIT;

	if (_i == 0)
		ck_assert_int_eq(look(&alice.party, RPC_INDEX_LEAVE, &leave), 0);
	else
		close_file(&alice, &file);
	/* Nobody need ask for it. */
	next = node_recovers(0, file.attr.ino, generation, 21000);
	ck_assert_uint_eq(lease(&bob, &other, false)->generation, next);
	ck_assert_uint_eq(size_of(&bob.party, &file.attr), 21000);
}
END_TEST

START_TEST(a_writer_lost_while_growing_leaves_the_inline_content)
{
	struct file file = open_rw(&alice, "grows"), other;
	PbMeta__LeaveRequest leave = PB_META__LEAVE_REQUEST__INIT;
	uint64_t generation;

	ck_assert_int_eq(write_inline(&alice, &file, "inline"), 0);
	generation = lease(&alice, &file, true)->generation;
	ck_assert_int_eq(look(&alice.party, RPC_INDEX_LEAVE, &leave), 0);
	other = open_rw(&bob, "grows");
	ck_assert_uint_eq(other.attr.size, 6);
	ck_assert_uint_eq(lease(&bob, &other, false)->mode, 0);
	ck_assert_uint_eq(node_job(0, 2, file.attr.ino).generation, generation);
}
END_TEST

/* Of two writers one vanishes: the other goes on, and its end moves the generation. */
START_TEST(a_shared_writer_that_vanishes_is_shut_out_with_the_last_one)
{
	uint64_t generation, next, call;
	struct file file = written_by_alice("both", 20000, &generation);
	struct file other = open_rw(&bob, "both"), third;
	PbMeta__LeaveRequest leave = PB_META__LEAVE_REQUEST__INIT;

	call = begin_lease(&bob, &other, true);
	told(&alice, file.attr.ino, TELL_RECALL);
	ck_assert_int_eq(report(&alice, &file, generation, MODE_SHARED, 20000, 1), 0);
	leased(&bob, call);
	ck_assert_int_eq(look(&alice.party, RPC_INDEX_LEAVE, &leave), 0);
	ck_assert_int_eq(report(&bob, &other, generation, KEEP, 30000, 2), 0);
	ck_assert_uint_eq(lease(&bob, &other, true)->mode, MODE_SHARED);
	ck_assert_int_eq(report(&bob, &other, generation, BACK, 30000, 3), 0);
	next = node_recovers(0, file.attr.ino, generation, 30000);
	third = open_as(&root, "both", MD_OPEN_READ);
	ck_assert_uint_eq(lease(&root, &third, false)->generation, next);
}
END_TEST

START_TEST(a_primary_that_does_not_answer_is_no_route)
{
	uint64_t generation;
	struct file file = written_by_alice("lost", 20000, &generation);
	struct file other = open_as(&bob, "lost", MD_OPEN_READ);
	PbMeta__LeaseRequest request = PB_META__LEASE_REQUEST__INIT;
	struct rpc_request call;
	uint64_t id;

	close_file(&alice, &file);
	request.handle = other.handle;
	request.ino = other.attr.ino;
	call = (struct rpc_request){.method = rpc_method_get(RPC_INDEX_LEASE),
				    .message = &request.base,
				    .deadline_ns = now_ns() + GX_NSEC_PER_SEC};
	ck_assert_int_eq(rpc_chan_submit(bob.party.calls, &call, &id, NULL), 0);
	ck_assert_int_lt(wait_for(&bob.party, id), 0);
	/* It can be asked for again, and is there as soon as the node is. */
	node_recovers(0, file.attr.ino, generation, 20000);
	ck_assert_uint_eq(lease(&bob, &other, false)->mode, MODE_READ);
}
END_TEST

/* -- a restart (rule N4)
 * ---------------------------------------------------------------------------- */

static void back(struct client *client, const struct file *file, uint32_t mode, bool write,
		 uint64_t generation)
{
	PbMeta__ResumeRequest request = PB_META__RESUME_REQUEST__INIT;
	PbMeta__OpenFile open = PB_META__OPEN_FILE__INIT, *opens = &open;
	bool push = client->party.who != META_ROOT;

	ck_assert(chan_open(&client->party, RPC_CHANNEL_CALLS, &client->party.calls));
	rpc_reply_init(&client->party.reply);
	if (push)
		ck_assert(chan_open(&client->party, RPC_CHANNEL_PUSH, &client->party.push));
	if (file) {
		open.handle = file->handle;
		open.ino = file->attr.ino;
		open.flags = file->flags;
		open.token = file->token;
		open.lease = mode;
		open.lease_write = write;
		open.lease_generation = generation;
		request.files = &opens;
		request.n_files = 1;
	}
	request.last = true;
	request.next_seq = client->seq + 1;
	ck_assert_int_eq(look(&client->party, RPC_INDEX_RESUME, &request), 0);
	ck_assert_uint_eq(((PbMeta__ResumeReply *)reply_of(client))->n_lost, 0);
}

static void restart(void)
{
	part(&alice);
	part(&bob);
	part(&root);
	meta_fixture_down(f);
	meta_fixture_up(f);
}

static void assert_recovered(struct md_server *md, void *arg GX_UNUSED)
{
	ck_assert(!md_server_recovering(md));
}

START_TEST(leases_survive_a_restart)
{
	uint64_t generation, call;
	struct file file = written_by_alice("file", 20000, &generation);
	struct file other = open_rw(&bob, "file");
	const PbMeta__LeaseReply *reply;

	restart();
	back(&alice, &file, MODE_EXCLUSIVE, true, generation);
	back(&bob, &other, 0, false, 0);
	back(&root, NULL, 0, false, 0);
	/* All users are there; daemons are not waited for. */
	meta_fixture_run(f, assert_recovered, NULL);
	node_start(0);
	ck_assert_int_eq(report(&alice, &file, generation, KEEP, 21000, 2), 0);
	call = begin_lease(&bob, &other, true);
	told(&alice, file.attr.ino, TELL_RECALL);
	ck_assert_int_eq(report(&alice, &file, generation, MODE_SHARED, 22000, 3), 0);
	reply = leased(&bob, call);
	ck_assert_uint_eq(reply->mode, MODE_SHARED);
	ck_assert_uint_eq(reply->generation, generation);
	ck_assert_uint_eq(reply->attr->size, 22000);
	ck_assert_uint_eq(ticket_of(reply->places[0]).epoch, 2);
}
END_TEST

START_TEST(a_writer_that_does_not_come_back_is_recovered)
{
	uint64_t generation, call, next;
	struct file file = written_by_alice("file", 20000, &generation);
	struct file other = open_rw(&bob, "file");

	restart();
	/* She is there, but her client has lost all it knew. */
	back(&alice, NULL, 0, false, 0);
	back(&bob, &other, 0, false, 0);
	back(&root, NULL, 0, false, 0);
	node_start(0);
	call = begin_lease(&bob, &other, false);
	next = node_recovers(0, file.attr.ino, generation, 20500);
	ck_assert_uint_eq(leased(&bob, call)->generation, next);
}
END_TEST

/*
 * Of two writers one does not come back, and metad, which had all that in memory, cannot know that
 * there was one: what he wrote and had not told is found when the other one ends.
 */
START_TEST(a_shared_writer_that_does_not_come_back_is_recovered_with_the_last_one)
{
	uint64_t generation, next, call;
	struct file file = written_by_alice("both", 20000, &generation);
	struct file other = open_rw(&bob, "both"), third;

	call = begin_lease(&bob, &other, true);
	told(&alice, file.attr.ino, TELL_RECALL);
	ck_assert_int_eq(report(&alice, &file, generation, MODE_SHARED, 20000, 1), 0);
	leased(&bob, call);
	restart();
	back(&alice, NULL, 0, false, 0);
	back(&bob, &other, MODE_SHARED, true, generation);
	back(&root, NULL, 0, false, 0);
	node_start(0);
	ck_assert_uint_eq(lease(&bob, &other, true)->mode, MODE_SHARED);
	ck_assert_int_eq(report(&bob, &other, generation, BACK, 20000, 1), 0);
	third = open_as(&root, "both", MD_OPEN_READ);
	call = begin_lease(&root, &third, false);
	next = node_recovers(0, file.attr.ino, generation, 30000);
	ck_assert_uint_eq(leased(&root, call)->generation, next);
	ck_assert_uint_eq(size_of(&root.party, &file.attr), 30000);
}
END_TEST

START_TEST(a_lease_that_was_taken_away_does_not_come_back)
{
	uint64_t generation, next, call;
	struct file file = written_by_alice("file", 20000, &generation);
	struct file other = open_as(&bob, "file", MD_OPEN_READ);

	call = begin_lease(&bob, &other, false);
	told(&alice, file.attr.ino, TELL_RECALL);
	is_silent(&alice, MD_LEASE_NS);
	next = node_recovers(0, file.attr.ino, generation, 20000);
	leased(&bob, call);
	restart();
	back(&alice, &file, MODE_EXCLUSIVE, true, generation);
	back(&bob, &other, MODE_READ, false, next);
	back(&root, NULL, 0, false, 0);
	node_start(0);
	ck_assert_int_eq(report(&alice, &file, generation, KEEP, 90000, 9), -ESTALE);
	/* Nor does saying the right number make a writer of who has none. */
	restart();
	back(&alice, &file, MODE_EXCLUSIVE, true, next);
	back(&bob, &other, MODE_READ, false, next);
	back(&root, NULL, 0, false, 0);
	node_start(0);
	ck_assert_int_eq(report(&alice, &file, next, KEEP, 90000, 9), -ESTALE);
	ck_assert_uint_eq(lease(&bob, &other, false)->mode, MODE_READ);
}
END_TEST

START_TEST(of_two_who_say_they_have_it_alone_the_second_has_lost)
{
	uint64_t generation, next;
	struct file file = written_by_alice("file", 20000, &generation);
	struct file other = open_rw(&bob, "file"), third;

	restart();
	back(&alice, &file, MODE_EXCLUSIVE, true, generation);
	back(&bob, &other, MODE_EXCLUSIVE, true, generation);
	back(&root, NULL, 0, false, 0);
	node_start(0);
	ck_assert_int_eq(report(&bob, &other, generation, KEEP, 1, 9), -ESTALE);
	ck_assert_int_eq(report(&alice, &file, generation, BACK, 21000, 2), 0);
	/* Whatever he may still do, it ends with this. */
	next = node_recovers(0, file.attr.ino, generation, 21000);
	third = open_as(&root, "file", MD_OPEN_READ);
	ck_assert_uint_eq(lease(&root, &third, false)->generation, next);
}
END_TEST

/* metad had heard that she gives way, and had told him, but not her. */
START_TEST(who_has_given_way_when_metad_ended_keeps_its_lease)
{
	bool he_writes = _i & 1, she_is_first = _i & 2;
	uint64_t generation, call;
	struct file file = written_by_alice("file", 20000, &generation);
	struct file other = open_rw(&bob, "file");
	const PbMeta__LeaseReply *reply;

	call = begin_lease(&bob, &other, he_writes);
	told(&alice, file.attr.ino, TELL_RECALL);
	ck_assert_int_eq(report(&alice, &file, generation, MODE_SHARED, 21000, 2), 0);
	ck_assert_uint_eq(leased(&bob, call)->mode, MODE_SHARED);
	restart();
	if (she_is_first)
		back(&alice, &file, MODE_EXCLUSIVE, true, generation);
	back(&bob, &other, MODE_SHARED, he_writes, generation);
	if (!she_is_first)
		back(&alice, &file, MODE_EXCLUSIVE, true, generation);
	back(&root, NULL, 0, false, 0);
	node_start(0);
	/* She is asked once more, in case she does not come by herself. */
	told(&alice, file.attr.ino, TELL_RECALL);
	ck_assert_int_eq(report(&alice, &file, generation, MODE_SHARED, 22000, 3), 0);
	if (he_writes)
		ck_assert_int_eq(report(&bob, &other, generation, KEEP, 23000, 4), 0);
	reply = lease(&bob, &other, true);
	ck_assert_uint_eq(reply->mode, MODE_SHARED);
	ck_assert_uint_eq(reply->generation, generation);
	ck_assert_int_eq(report(&alice, &file, generation, KEEP, 24000, 5), 0);
}
END_TEST

/* He could not be told that she writes, and her generation is one that he has seen. */
START_TEST(who_only_read_does_not_take_the_writers_place)
{
	uint64_t generation;
	struct file file = written_by_alice("file", 20000, &generation);
	struct file other = open_rw(&bob, "file");

	restart();
	back(&bob, &other, MODE_READ, false, generation);
	back(&alice, &file, MODE_EXCLUSIVE, true, generation);
	back(&root, NULL, 0, false, 0);
	node_start(0);
	ck_assert_int_eq(report(&alice, &file, generation, KEEP, 21000, 2), 0);
	ck_assert_int_eq(report(&bob, &other, generation, KEEP, 0, 0), -ESTALE);
}
END_TEST

START_TEST(a_report_that_was_lost_is_made_again)
{
	uint64_t generation;
	struct file file = written_by_alice("file", 20000, &generation);
	PbMeta__ReportRequest request = report_of(&file, generation, KEEP);
	PbMeta__Done done;

	request.has_size = request.changed = true;
	request.size = 33000;
	request.clock = 5;
	ck_assert_int_eq(do_change(&alice, RPC_INDEX_REPORT, &request), 0);
	done = *((PbMeta__ReportReply *)reply_of(&alice))->done;
	ck_assert_uint_gt(done.index, 0);
	ck_assert_int_eq(replay(&alice.party, RPC_INDEX_REPORT, &request, &done, alice.seq, NULL),
			 0);
	ck_assert(!was_done_again(&alice.party));
	ck_assert_uint_eq(size_of(&bob.party, &file.attr), 33000);
}
END_TEST

/* -- sizes (rule N12)
 * -------------------------------------------------------------------------------- */

static int report_asked(struct client *client, const struct file *file, uint64_t generation,
			uint64_t size, uint64_t clock, uint64_t asked)
{
	PbMeta__ReportRequest request = report_of(file, generation, KEEP);

	request.has_size = request.changed = true;
	request.size = size;
	request.clock = clock;
	request.asked = asked;
	return do_change(client, RPC_INDEX_REPORT, &request);
}

/* Who looks waits as long as it takes. */
static void be_patient(struct md_server *md, void *arg GX_UNUSED)
{
	md->ask_ns = WAIT_NS;
}

/* Bob begins to look at the file in one of the ways there are. */
static uint64_t begin_look(const struct file *file, const char *name, int how)
{
	PbMeta__GetattrRequest getattr = PB_META__GETATTR_REQUEST__INIT;
	PbMeta__LookupRequest lookup = PB_META__LOOKUP_REQUEST__INIT;
	PbMeta__ReaddirRequest readdir = PB_META__READDIR_REQUEST__INIT;

	lookup.parent = readdir.ino = 1;
	lookup.name = (char *)(uintptr_t)name;
	readdir.plus = true;
	if (file)
		getattr = get_attr(&file->attr);
	if (how == 0)
		return submit(&bob.party, RPC_INDEX_GETATTR, &getattr, 0, 0, NULL);
	if (how == 1)
		return submit(&bob.party, RPC_INDEX_LOOKUP, &lookup, 0, 0, NULL);
	return submit(&bob.party, RPC_INDEX_READDIR, &readdir, 0, 0, NULL);
}

static uint64_t size_seen(int how)
{
	if (how == 0)
		return ((PbMeta__GetattrReply *)reply_of(&bob))->attr->size;
	if (how == 1)
		return ((PbMeta__LookupReply *)reply_of(&bob))->attr->size;
	ck_assert_uint_eq(((PbMeta__ReaddirReply *)reply_of(&bob))->n_entries, 1);
	return ((PbMeta__ReaddirReply *)reply_of(&bob))->entries[0]->attr->size;
}

START_TEST(the_writer_is_asked_for_the_size_first)
{
	uint64_t generation, call, ask;
	struct file file = written_by_alice("file", 20000, &generation);

	meta_fixture_run(f, be_patient, NULL);
	call = begin_look(&file, "file", _i);
	ask = told(&alice, file.attr.ino, TELL_SIZE);
	assert_waits(&bob, call);
	/* This was on its way before she was asked: it is not the answer. */
	ck_assert_int_eq(report(&alice, &file, generation, KEEP, 21000, 2), 0);
	assert_waits(&bob, call);
	ck_assert_int_eq(report_asked(&alice, &file, generation, 22000, 3, ask), 0);
	ck_assert_int_eq(wait_for(&bob.party, call), 0);
	ck_assert_uint_eq(size_seen(_i), 22000);
	/* She herself knows. */
	ck_assert_uint_eq(size_of(&alice.party, &file.attr), 22000);
}
END_TEST

START_TEST(after_a_second_the_last_report_has_to_do)
{
	uint64_t generation, call;
	struct file file = written_by_alice("file", 20000, &generation);
	int64_t began = now_ns();

	call = begin_look(&file, "file", _i);
	told(&alice, file.attr.ino, TELL_SIZE);
	ck_assert_int_eq(wait_for(&bob.party, call), 0);
	ck_assert_uint_eq(size_seen(_i), 20000);
	ck_assert_int_ge(now_ns() - began, GX_NSEC_PER_SEC);
}
END_TEST

START_TEST(who_looks_while_a_question_is_open_asks_his_own)
{
	uint64_t generation, first, second, ask;
	struct file file = written_by_alice("file", 20000, &generation);
	PbMeta__GetattrRequest getattr = get_attr(&file.attr);

	meta_fixture_run(f, be_patient, NULL);
	first = begin_look(&file, "file", 0);
	ask = told(&alice, file.attr.ino, TELL_SIZE);
	second = submit(&root.party, RPC_INDEX_GETATTR, &getattr, 0, 0, NULL);
	assert_waits(&root, second);
	ck_assert_int_eq(report_asked(&alice, &file, generation, 22000, 3, ask), 0);
	ck_assert_int_eq(wait_for(&bob.party, first), 0);
	ck_assert_uint_eq(size_seen(0), 22000);
	ck_assert_uint_gt(told(&alice, file.attr.ino, TELL_SIZE), ask);
	assert_waits(&root, second);
	ck_assert_int_eq(report_asked(&alice, &file, generation, 23000, 4, ask + 1), 0);
	ck_assert_int_eq(wait_for(&root.party, second), 0);
	ck_assert_uint_eq(((PbMeta__GetattrReply *)reply_of(&root))->attr->size, 23000);
}
END_TEST

/* A page with many files that are being written asks for all of them at once. */
START_TEST(a_page_waits_for_all_its_writers)
{
	uint64_t generations[20], asks[20], call;
	PbMeta__ReaddirReply *reply;
	struct file files[20];
	char name[16];

	meta_fixture_run(f, be_patient, NULL);
	for (unsigned i = 0; i < 20; i++) {
		ck_assert_int_eq(gx_format(name, sizeof(name), "file%02u", i), 0);
		files[i] = written_by_alice(name, 20000, &generations[i]);
	}
	call = begin_look(NULL, NULL, 2);
	for (unsigned i = 0; i < 20; i++)
		asks[i] = told(&alice, files[i].attr.ino, TELL_SIZE);
	for (unsigned i = 0; i < 20; i++) {
		assert_waits(&bob, call);
		ck_assert_int_eq(
			report_asked(&alice, &files[i], generations[i], 30000 + i, 2, asks[i]), 0);
	}
	ck_assert_int_eq(wait_for(&bob.party, call), 0);
	reply = reply_of(&bob);
	ck_assert_uint_eq(reply->n_entries, 20);
	for (unsigned i = 0; i < 20; i++)
		ck_assert_uint_eq(reply->entries[i]->attr->size, 30000 + i);
}
END_TEST

START_TEST(what_somebody_writes_is_in_nobodys_cache)
{
	uint64_t generation = make_large(&alice, "large", 100000), call;
	struct file mine = open_rw(&alice, "large");

	/* Bob may have the attributes in his cache. */
	ck_assert_uint_eq(size_of(&bob.party, &mine.attr), 100000);
	call = begin_lease(&alice, &mine, true);
	assert_waits(&alice, call);
	told(&bob, mine.attr.ino, TELL_FORGET);
	ck_assert_uint_gt(leased(&alice, call)->generation, generation);
	ck_assert_uint_eq(((PbMeta__LeaseReply *)reply_of(&alice))->attr->flags & 2, 2);
}
END_TEST

/* -- the end of content (rules N2, N9)
 * ---------------------------------------------------------------- */

START_TEST(truncating_by_open_leaves_trash_and_an_inline_file)
{
	uint64_t generation = make_large(&alice, "large", 100000);
	struct file file;
	PbMeta__OpenRequest request = open_request("large", 2 | 16);
	const PbMeta__OpenReply *reply;
	PbMeta__Job job;

	ck_assert_int_eq(do_change(&alice, RPC_INDEX_OPEN, &request), 0);
	reply = reply_of(&alice);
	ck_assert(!reply->truncate_later);
	file = opened(&alice, 2);
	ck_assert_uint_eq(file.attr.size, 0);
	ck_assert_uint_eq(file.attr.flags, 1);
	ck_assert_uint_gt(file.attr.generation, generation);
	job = node_job(0, 2, file.attr.ino);
	ck_assert_uint_eq(job.generation, generation);
	/* A new object is not taken for the old one. */
	ck_assert_uint_gt(lease(&alice, &file, true)->generation, generation);
}
END_TEST

START_TEST(what_others_use_is_cut_by_the_primary)
{
	uint64_t generation = make_large(&alice, "large", 100000), call;
	struct file mine, other = open_as(&bob, "large", MD_OPEN_READ);
	PbMeta__OpenRequest request = open_request("large", 2 | 16);

	lease(&bob, &other, false);
	ck_assert_int_eq(do_change(&alice, RPC_INDEX_OPEN, &request), 0);
	ck_assert(((PbMeta__OpenReply *)reply_of(&alice))->truncate_later);
	mine = opened(&alice, 2);
	ck_assert_uint_eq(mine.attr.size, 100000);
	call = begin_lease(&alice, &mine, true);
	told(&bob, other.attr.ino, TELL_RECALL);
	ck_assert_int_eq(report(&bob, &other, generation, MODE_SHARED, 0, 0), 0);
	told(&bob, other.attr.ino, TELL_FORGET);
	generation = leased(&alice, call)->generation;
	ck_assert_int_eq(report(&alice, &mine, generation, KEEP, 0, 1), 0);
	ck_assert_uint_eq(size_of(&root.party, &mine.attr), 0);
	/* By size it is never metad's to do. */
	{
		PbMeta__SetattrRequest setattr = cut(&mine, 10);

		ck_assert_int_eq(do_change(&root, RPC_INDEX_SETATTR, &setattr), -EFBIG);
	}
}
END_TEST

static int unlink_name(struct client *client, const char *name)
{
	PbMeta__UnlinkRequest request = PB_META__UNLINK_REQUEST__INIT;

	request.parent = 1;
	request.name = (char *)(uintptr_t)name;
	return do_change(client, RPC_INDEX_UNLINK, &request);
}

static int rename_to(struct client *client, const char *from, const char *to)
{
	PbMeta__RenameRequest request = PB_META__RENAME_REQUEST__INIT;

	request.from_parent = request.to_parent = 1;
	request.from_name = (char *)(uintptr_t)from;
	request.to_name = (char *)(uintptr_t)to;
	return do_change(client, RPC_INDEX_RENAME, &request);
}

/* unlink, rename over it; and both while it is open: then the object goes with the last handle. */
START_TEST(an_object_goes_with_the_last_name_and_handle)
{
	uint64_t generation = make_large(&alice, "large", 100000);
	struct file file = open_rw(&alice, "large");
	PbMeta__Job job;

	if (_i & 1) {
		close_file(&alice, &file);
	} else {
		lease(&alice, &file, false);
	}
	if (_i & 2) {
		struct file small = open_rw(&alice, "small");

		close_file(&alice, &small);
		ck_assert_int_eq(rename_to(&alice, "small", "large"), 0);
	} else {
		ck_assert_int_eq(unlink_name(&alice, "large"), 0);
	}
	if (!(_i & 1)) {
		/* Still there for who has it open. */
		ck_assert_uint_eq(lease(&alice, &file, false)->generation, generation);
		close_file(&alice, &file);
	}
	job = node_job(0, 2, file.attr.ino);
	ck_assert_uint_eq(job.generation, generation);
	node_did(0, &job, 0);
}
END_TEST

/* -- what the inode says
 * ------------------------------------------------------------------------------ */

START_TEST(copies_wanted_are_an_attribute)
{
	PbMeta__SetxattrRequest set = PB_META__SETXATTR_REQUEST__INIT;
	PbMeta__WhereRequest where = PB_META__WHERE_REQUEST__INIT;
	PbMeta__GetxattrRequest get = PB_META__GETXATTR_REQUEST__INIT;
	struct file file;

	node_start(1);
	make_large(&alice, "large", 100000);
	file = open_rw(&alice, "large");
	set.ino = get.ino = where.ino = file.attr.ino;
	set.cap = get.cap = where.cap = file.attr.cap;
	set.name = get.name = (char *)(uintptr_t) "gfs.ncopy";
	set.value = (ProtobufCBinaryData){1, (uint8_t *)(uintptr_t) "2"};
	ck_assert_int_eq(do_change(&bob, RPC_INDEX_SETXATTR, &set), -EPERM);
	ck_assert_int_eq(do_change(&alice, RPC_INDEX_SETXATTR, &set), 0);
	ck_assert_int_eq(look(&bob.party, RPC_INDEX_GETXATTR, &get), 0);
	ck_assert_mem_eq(((PbMeta__GetxattrReply *)reply_of(&bob))->value.data, "2", 1);
	ck_assert_int_eq(look(&bob.party, RPC_INDEX_WHERE, &where), 0);
	ck_assert_uint_eq(((PbMeta__WhereReply *)reply_of(&bob))->wanted, 2);
	ck_assert_uint_eq(((PbMeta__WhereReply *)reply_of(&bob))->n_places, 1);
}
END_TEST

START_TEST(where_waits_for_the_copies)
{
	PbMeta__SetxattrRequest set = PB_META__SETXATTR_REQUEST__INIT;
	PbMeta__WhereRequest where = PB_META__WHERE_REQUEST__INIT;
	uint64_t generation, call;
	struct file file;
	PbMeta__Job job;

	node_start(1);
	generation = make_large(&alice, "large", 100000);
	file = open_rw(&alice, "large");
	set.ino = where.ino = file.attr.ino;
	set.cap = where.cap = file.attr.cap;
	set.name = (char *)(uintptr_t) "gfs.ncopy";
	set.value = (ProtobufCBinaryData){1, (uint8_t *)(uintptr_t) "2"};
	ck_assert_int_eq(do_change(&alice, RPC_INDEX_SETXATTR, &set), 0);
	where.wait = true;
	call = submit(&bob.party, RPC_INDEX_WHERE, &where, 0, 0, NULL);
	job = node_job(1, 1, file.attr.ino);
	ck_assert_uint_eq(job.generation, generation);
	assert_waits(&bob, call);
	node_did(1, &job, 100000);
	ck_assert_int_eq(wait_for(&bob.party, call), 0);
	ck_assert_uint_eq(((PbMeta__WhereReply *)reply_of(&bob))->n_places, 2);
	/* Who reads may choose. */
	ck_assert_uint_eq(lease(&alice, &file, false)->n_places, 2);
}
END_TEST

START_TEST(statfs_knows_the_nodes)
{
	PbMeta__StatfsRequest request = PB_META__STATFS_REQUEST__INIT;
	const PbMeta__StatfsReply *reply;

	ck_assert_int_eq(look(&alice.party, RPC_INDEX_STATFS, &request), 0);
	reply = reply_of(&alice);
	ck_assert_uint_eq(reply->capacity_bytes, UINT64_C(1) << 40);
	ck_assert_uint_eq(reply->free_bytes, UINT64_C(1) << 39);
}
END_TEST

static TCase *tcase(Suite *suite, const char *name)
{
	TCase *t = tcase_create(name);

	tcase_add_checked_fixture(t, large_setup, large_teardown);
	tcase_set_timeout(t, 60);
	suite_add_tcase(suite, t);
	return t;
}

int main(void)
{
	Suite *suite = suite_create("md_data");
	TCase *t = tcase(suite, "tickets");
	SRunner *runner;
	int failed;

	tcase_add_test(t, a_new_file_gets_a_place_and_a_ticket_of_its_own);
	tcase_add_test(t, who_reads_gets_no_right_to_write_and_a_ticket_for_himself);
	tcase_add_test(t, who_may_only_write_gets_no_right_to_read);
	tcase_add_test(t, the_way_to_a_node_is_a_ticket_of_the_session_and_its_key);
	tcase_add_test(t, an_inline_file_needs_no_lease_to_be_read);
	tcase_add_test(t, without_a_node_there_is_no_room);
	t = tcase(suite, "growing");
	tcase_add_test(t, inline_content_is_the_truth_until_the_object_has_all);
	tcase_add_test(t, once_it_has_grown_the_bytes_are_elsewhere);
	tcase_add_loop_test(t, inline_changes_wait_for_who_is_growing_it, 0, 3);
	tcase_add_test(t, a_place_that_cannot_be_reached_is_changed_while_growing);
	tcase_add_test(t, a_request_from_before_the_lease_does_not_take_it_away);
	tcase_add_test(t, a_place_that_could_not_be_reached_is_better_than_none);
	t = tcase(suite, "recalls");
	tcase_add_loop_test(t, an_exclusive_lease_is_recalled_and_both_share, 0, 2);
	tcase_add_test(t, who_shares_is_in_nobodys_way_once_the_file_has_grown);
	tcase_add_loop_test(t, readers_give_way_to_a_writer, 0, 2);
	tcase_add_test(t, a_reader_without_a_push_channel_is_not_waited_for);
	tcase_add_test(t, a_writer_without_a_push_channel_never_has_it_alone);
	tcase_add_test(t, a_recall_is_told_again_on_a_new_push_channel);
	t = tcase(suite, "reports");
	tcase_add_test(t, an_older_word_about_the_size_does_not_count);
	tcase_add_test(t, only_who_may_write_may_report);
	tcase_add_test(t, the_last_writer_settles_it);
	t = tcase(suite, "lost");
	tcase_add_test(t, a_silent_writer_loses_its_lease_and_the_generation_moves);
	tcase_add_test(t, a_writer_that_was_killed_some_time_ago_is_not_waited_for);
	tcase_add_test(t, a_shared_writer_that_was_killed_is_recovered_when_somebody_asks);
	tcase_add_test(t, one_who_is_there_but_slow_has_ten_seconds);
	tcase_add_loop_test(t, a_session_that_ends_or_closes_without_a_word_is_recovered, 0, 2);
	tcase_add_test(t, a_writer_lost_while_growing_leaves_the_inline_content);
	tcase_add_test(t, a_shared_writer_that_vanishes_is_shut_out_with_the_last_one);
	tcase_add_test(t, a_primary_that_does_not_answer_is_no_route);
	t = tcase(suite, "restart");
	tcase_add_test(t, leases_survive_a_restart);
	tcase_add_test(t, a_writer_that_does_not_come_back_is_recovered);
	tcase_add_test(t, a_shared_writer_that_does_not_come_back_is_recovered_with_the_last_one);
	tcase_add_test(t, a_lease_that_was_taken_away_does_not_come_back);
	tcase_add_test(t, of_two_who_say_they_have_it_alone_the_second_has_lost);
	tcase_add_loop_test(t, who_has_given_way_when_metad_ended_keeps_its_lease, 0, 4);
	tcase_add_test(t, who_only_read_does_not_take_the_writers_place);
	tcase_add_test(t, a_report_that_was_lost_is_made_again);
	t = tcase(suite, "sizes");
	tcase_add_loop_test(t, the_writer_is_asked_for_the_size_first, 0, 3);
	tcase_add_loop_test(t, after_a_second_the_last_report_has_to_do, 0, 3);
	tcase_add_test(t, who_looks_while_a_question_is_open_asks_his_own);
	tcase_add_test(t, a_page_waits_for_all_its_writers);
	tcase_add_test(t, what_somebody_writes_is_in_nobodys_cache);
	t = tcase(suite, "ends");
	tcase_add_test(t, truncating_by_open_leaves_trash_and_an_inline_file);
	tcase_add_test(t, what_others_use_is_cut_by_the_primary);
	tcase_add_loop_test(t, an_object_goes_with_the_last_name_and_handle, 0, 4);
	t = tcase(suite, "attributes");
	tcase_add_test(t, copies_wanted_are_an_attribute);
	tcase_add_test(t, where_waits_for_the_copies);
	tcase_add_test(t, statfs_knows_the_nodes);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
