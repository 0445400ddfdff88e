/*
 * md_lease.c - one node per lease, in four orders at once.
 *
 * A node is found by (inode, session) when a lease is given, by its inode when something changes,
 * by its session when that ends, and by age when the table is full. The inode's table holds only
 * one node per inode, its head; the others hang on a ring behind it. So a break touches the leases
 * of that inode and nothing else, and a directory that everybody has looked at does not slow down
 * the inodes that share its bucket, nor a session that looks at it once more.
 *
 * Nodes and tables have their full size from the start, so no call ever stops to rehash (rule N17);
 * memory that was never used is never touched. Links are numbers of nodes: half the size of
 * pointers.
 */
#include "metad/md_lease.h"
#include "common/gx_hash.h"
#include "common/gx_sum.h"

#define NONE 0u /* node 0 is not used: its links are the ends of the list by age */

struct lease_session {
	uint64_t id;
	size_t count;   /* its leases; it goes with the last one */
	uint32_t first; /* of its list */
	UT_hash_handle hh;
};

struct lease {
	uint64_t ino;
	struct lease_session *session;
	uint32_t pair_next;                  /* same bucket of `pairs`; of a free node: next free */
	uint32_t ino_next, ino_prev;         /* ring of the leases on this inode */
	uint32_t head_next;                  /* same bucket of `heads`; only if is_head */
	uint32_t session_next, session_prev; /* list of the session's leases */
	uint32_t newer, older;               /* ring by age, with node 0 */
	uint8_t what;
	uint8_t names; /* single names broken since the session looked */
	bool is_head;
};
_Static_assert(sizeof(struct lease) <= 64, "millions of them");

struct md_leases {
	struct lease *nodes;
	uint32_t *pairs;      /* by inode and session */
	uint32_t *heads;      /* by inode */
	uint64_t bucket_mask; /* of both */
	uint32_t nodes_max;   /* highest number of a node */
	uint32_t nodes_used;  /* highest number that was ever used */
	uint32_t first_free;  /* among the used */
	size_t count;
	struct lease_session *sessions;
	md_lease_evict_fn evict_fn;
	void *arg;
};

int md_leases_new(size_t leases_max, md_lease_evict_fn evict_fn, void *arg,
		  struct md_leases **ret_leases)
{
	struct md_leases *leases;
	size_t buckets = 1;

	if (leases_max == 0 || leases_max >= UINT32_MAX)
		return -EINVAL;
	leases = calloc(1, sizeof(*leases));
	if (leases == NULL)
		return -ENOMEM;
	while (buckets <= leases_max / 2)
		buckets *= 2;
	leases->nodes = calloc(leases_max + 1, sizeof(struct lease));
	leases->pairs = calloc(buckets, sizeof(uint32_t));
	leases->heads = calloc(buckets, sizeof(uint32_t));
	if (leases->nodes == NULL || leases->pairs == NULL || leases->heads == NULL) {
		md_leases_free(leases);
		return -ENOMEM;
	}
	leases->bucket_mask = buckets - 1;
	leases->nodes_max = (uint32_t)leases_max;
	leases->evict_fn = evict_fn;
	leases->arg = arg;
	*ret_leases = leases;
	return 0;
}

void md_leases_free(struct md_leases *leases)
{
	struct lease_session *session, *tmp;

	if (leases == NULL)
		return;
	HASH_ITER (hh, leases->sessions, session, tmp) {
		HASH_DEL(leases->sessions, session);
		free(session);
	}
	free(leases->nodes);
	free(leases->pairs);
	free(leases->heads);
	free(leases);
}

/* -- sessions ------------------------------------------------------------------------ */

static struct lease_session *session_find(const struct md_leases *leases, uint64_t id)
{
	struct lease_session *session = NULL;

	HASH_FIND(hh, leases->sessions, &id, sizeof(id), session);
	return session;
}

static struct lease_session *session_find_or_add(struct md_leases *leases, uint64_t id)
{
	struct lease_session *session = session_find(leases, id);
	bool gx_hash_failed = false;

	if (session != NULL)
		return session;
	session = calloc(1, sizeof(*session));
	if (session == NULL)
		return NULL;
	session->id = id;
	HASH_ADD(hh, leases->sessions, id, sizeof(id), session);
	if (gx_hash_failed) {
		free(session);
		return NULL;
	}
	return session;
}

static void session_release(struct md_leases *leases, struct lease_session *session)
{
	if (--session->count > 0)
		return;
	HASH_DEL(leases->sessions, session);
	free(session);
}

/* -- the four orders ----------------------------------------------------------------- */

static uint32_t *pair_bucket(const struct md_leases *leases, uint64_t ino, uint64_t session)
{
	return &leases->pairs[gx_sum64_seed(&ino, sizeof(ino), session) & leases->bucket_mask];
}

static uint32_t *head_bucket(const struct md_leases *leases, uint64_t ino)
{
	return &leases->heads[gx_sum64(&ino, sizeof(ino)) & leases->bucket_mask];
}

/* The number that leads to the inode's head, in its bucket or in another head. */
static uint32_t *head_slot(const struct md_leases *leases, uint64_t ino)
{
	uint32_t *slot = head_bucket(leases, ino);

	while (*slot != NONE && leases->nodes[*slot].ino != ino)
		slot = &leases->nodes[*slot].head_next;
	return slot;
}

static void pair_link(struct md_leases *leases, uint32_t n)
{
	struct lease *lease = &leases->nodes[n];
	uint32_t *bucket = pair_bucket(leases, lease->ino, lease->session->id);

	lease->pair_next = *bucket;
	*bucket = n;
}

static void pair_unlink(struct md_leases *leases, uint32_t n)
{
	const struct lease *lease = &leases->nodes[n];
	uint32_t *slot = pair_bucket(leases, lease->ino, lease->session->id);

	while (*slot != n)
		slot = &leases->nodes[*slot].pair_next;
	*slot = lease->pair_next;
}

static void ino_link(struct md_leases *leases, uint32_t n)
{
	struct lease *lease = &leases->nodes[n];
	uint32_t *slot = head_slot(leases, lease->ino);
	struct lease *head = &leases->nodes[*slot];

	lease->is_head = *slot == NONE;
	if (lease->is_head) {
		lease->ino_next = lease->ino_prev = n;
		lease->head_next = NONE;
		*slot = n;
		return;
	}
	lease->ino_next = *slot;
	lease->ino_prev = head->ino_prev;
	leases->nodes[head->ino_prev].ino_next = n;
	head->ino_prev = n;
}

static void ino_unlink(struct md_leases *leases, uint32_t n)
{
	struct lease *lease = &leases->nodes[n];
	struct lease *next = &leases->nodes[lease->ino_next];

	if (lease->is_head) {
		uint32_t *slot = head_slot(leases, lease->ino);

		gx_assert(*slot == n);
		*slot = lease->head_next;
		if (next != lease) {
			next->is_head = true;
			next->head_next = *slot;
			*slot = lease->ino_next;
		}
	}
	next->ino_prev = lease->ino_prev;
	leases->nodes[lease->ino_prev].ino_next = lease->ino_next;
}

static void session_link(struct md_leases *leases, uint32_t n)
{
	struct lease *lease = &leases->nodes[n];

	lease->session_prev = NONE;
	lease->session_next = lease->session->first;
	if (lease->session_next != NONE)
		leases->nodes[lease->session_next].session_prev = n;
	lease->session->first = n;
}

static void session_unlink(struct md_leases *leases, uint32_t n)
{
	struct lease *lease = &leases->nodes[n];

	if (lease->session_next != NONE)
		leases->nodes[lease->session_next].session_prev = lease->session_prev;
	if (lease->session_prev != NONE)
		leases->nodes[lease->session_prev].session_next = lease->session_next;
	else
		lease->session->first = lease->session_next;
}

/* Node 0 stands between the newest (its `older`) and the oldest (its `newer`). */
static void age_link(struct md_leases *leases, uint32_t n)
{
	struct lease *nodes = leases->nodes;

	nodes[n].newer = 0;
	nodes[n].older = nodes[0].older;
	nodes[nodes[0].older].newer = n;
	nodes[0].older = n;
}

static void age_unlink(struct md_leases *leases, uint32_t n)
{
	struct lease *nodes = leases->nodes;

	nodes[nodes[n].newer].older = nodes[n].older;
	nodes[nodes[n].older].newer = nodes[n].newer;
}

/* -- leases -------------------------------------------------------------------------- */

static uint32_t lease_find(const struct md_leases *leases, uint64_t ino, uint64_t session)
{
	uint32_t n = *pair_bucket(leases, ino, session);

	while (n != NONE &&
	       (leases->nodes[n].ino != ino || leases->nodes[n].session->id != session))
		n = leases->nodes[n].pair_next;
	return n;
}

static void lease_remove(struct md_leases *leases, uint32_t n)
{
	struct lease *lease = &leases->nodes[n];

	pair_unlink(leases, n);
	ino_unlink(leases, n);
	session_unlink(leases, n);
	age_unlink(leases, n);
	session_release(leases, lease->session);
	lease->session = NULL;
	lease->pair_next = leases->first_free;
	leases->first_free = n;
	leases->count--;
}

static void evict_oldest(struct md_leases *leases)
{
	uint32_t n = leases->nodes[0].newer;
	const struct lease *lease = &leases->nodes[n];
	uint64_t session, ino = lease->ino;
	unsigned what = lease->what;

	gx_assert(n != NONE);
	session = lease->session->id;
	lease_remove(leases, n);
	leases->evict_fn(leases->arg, session, ino, what);
}

static uint32_t take_node(struct md_leases *leases)
{
	uint32_t n = leases->first_free;

	if (n == NONE) {
		gx_assert(leases->nodes_used < leases->nodes_max);
		return ++leases->nodes_used;
	}
	leases->first_free = leases->nodes[n].pair_next;
	return n;
}

static int lease_add(struct md_leases *leases, uint64_t session_id, uint64_t ino, unsigned what)
{
	struct lease_session *session = session_find_or_add(leases, session_id);
	uint32_t n;

	if (session == NULL)
		return -ENOMEM;
	/* Counted first: the oldest lease may be the only other one of this very session. */
	session->count++;
	if (leases->count == leases->nodes_max)
		evict_oldest(leases);
	n = take_node(leases);
	leases->nodes[n] = (struct lease){.ino = ino, .session = session, .what = (uint8_t)what};
	pair_link(leases, n);
	ino_link(leases, n);
	session_link(leases, n);
	age_link(leases, n);
	leases->count++;
	return 0;
}

int md_lease_give(struct md_leases *leases, uint64_t session, uint64_t ino, unsigned what)
{
	uint32_t n = lease_find(leases, ino, session);
	struct lease *lease = &leases->nodes[n];

	gx_assert(session != 0);
	gx_assert(what != 0 && (what & ~(MD_LEASE_ATTR | MD_LEASE_NAMES)) == 0);
	if (n == NONE)
		return lease_add(leases, session, ino, what);
	lease->what |= (uint8_t)what;
	if (what & MD_LEASE_NAMES)
		lease->names = 0;
	age_unlink(leases, n);
	age_link(leases, n);
	return 0;
}

/* Takes `what`, or one name of it, from a lease that has it, and tells. */
static void lease_break(struct md_leases *leases, uint32_t n, unsigned what, md_lease_fn fn,
			void *arg)
{
	struct lease *lease = &leases->nodes[n];
	uint64_t session = lease->session->id;
	uint64_t ino = lease->ino;
	bool all = false;

	if (what == MD_LEASE_ALL_NAMES ||
	    (what == MD_LEASE_NAMES && lease->names == MD_LEASE_NAMES_MAX)) {
		what = MD_LEASE_NAMES;
		all = true;
	}
	if (what == MD_LEASE_NAMES && !all) {
		lease->names++;
	} else {
		lease->what &= (uint8_t)~what;
		if (lease->what == 0)
			lease_remove(leases, n);
	}
	fn(arg, session, ino, what, all);
}

void md_lease_break(struct md_leases *leases, uint64_t by, uint64_t ino, unsigned what,
		    md_lease_fn fn, void *arg)
{
	uint32_t n = *head_slot(leases, ino);
	uint32_t last, next;

	unsigned has = what == MD_LEASE_ALL_NAMES ? MD_LEASE_NAMES : what;

	gx_assert(has == MD_LEASE_ATTR || has == MD_LEASE_NAMES);
	if (n == NONE)
		return;
	last = leases->nodes[n].ino_prev;
	for (bool end = false; !end; n = next) {
		/* Read before the node may go. */
		next = leases->nodes[n].ino_next;
		end = n == last;
		if ((leases->nodes[n].what & has) != 0 && leases->nodes[n].session->id != by)
			lease_break(leases, n, what, fn, arg);
	}
}

bool md_lease_drop_session(struct md_leases *leases, uint64_t id, size_t steps_max)
{
	const struct lease_session *session = session_find(leases, id);
	size_t left = session != NULL ? session->count : 0;

	/* With its last lease the session goes, so it is not looked at after that. */
	for (; left > 0 && steps_max > 0; left--, steps_max--)
		lease_remove(leases, session->first);
	return left == 0;
}

size_t md_lease_count(const struct md_leases *leases)
{
	return leases->count;
}

size_t md_lease_count_of(const struct md_leases *leases, uint64_t session)
{
	const struct lease_session *found = session_find(leases, session);

	return found != NULL ? found->count : 0;
}
