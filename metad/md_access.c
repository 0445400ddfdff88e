/*
 * md_access.c - grants in two hash tables of lists: by inode, which answers who is in the way, and
 * by session, which answers what goes with it. Lists are short: an inode is seldom open in many
 * sessions, and those many are readers whom nobody looks through one by one.
 */
#include "metad/md_access.h"

struct md_access_inode {
	uint64_t ino;
	struct md_grant *grants;
	bool tainted;
	UT_hash_handle hh;
};

struct md_access_session {
	uint64_t id;
	struct md_grant *grants;
	UT_hash_handle hh;
};

struct md_access {
	struct md_access_inode *inodes;
	struct md_access_session *sessions;
	struct md_grant *recalled;
	size_t count;
};

int md_access_new(struct md_access **ret_access)
{
	struct md_access *access = calloc(1, sizeof(*access));

	if (!access)
		return -ENOMEM;
	*ret_access = access;
	return 0;
}

void md_access_free(struct md_access *access)
{
	if (!access)
		return;
	while (access->inodes)
		md_access_drop(access, access->inodes->grants);
	free(access);
}

/* -- query ----------------------------------------------------------------------------------------
 */

static struct md_access_inode *find_inode(struct md_access *access, uint64_t ino)
{
	struct md_access_inode *inode;

	HASH_FIND(hh, access->inodes, &ino, sizeof(ino), inode);
	return inode;
}

static struct md_access_session *find_session(struct md_access *access, uint64_t id)
{
	struct md_access_session *session;

	HASH_FIND(hh, access->sessions, &id, sizeof(id), session);
	return session;
}

struct md_grant *md_access_find(struct md_access *access, uint64_t session, uint64_t ino)
{
	struct md_grant *grant = md_access_first(access, ino);

	while (grant && grant->session != session)
		grant = grant->next;
	return grant;
}

struct md_grant *md_access_first(struct md_access *access, uint64_t ino)
{
	struct md_access_inode *inode = find_inode(access, ino);

	return inode ? inode->grants : NULL;
}

struct md_grant *md_access_first_of(struct md_access *access, uint64_t id)
{
	struct md_access_session *session = find_session(access, id);

	return session ? session->grants : NULL;
}

struct md_grant *md_access_first_recalled(struct md_access *access)
{
	return access->recalled;
}

size_t md_access_count(const struct md_access *access)
{
	return access->count;
}

bool md_access_has_writer(struct md_access *access, uint64_t session, uint64_t ino)
{
	struct md_grant *grant;

	for (grant = md_access_first(access, ino); grant; grant = grant->next)
		if (grant->write && grant->session != session)
			return true;
	return false;
}

bool md_access_is_tainted(struct md_access *access, uint64_t ino)
{
	const struct md_access_inode *inode = find_inode(access, ino);

	return inode && inode->tainted;
}

bool md_access_in_way(const struct md_grant *grant, bool write, bool growing)
{
	if (growing)
		return grant->write && (write || grant->mode == MD_ACCESS_EXCLUSIVE);
	return write ? grant->mode != MD_ACCESS_SHARED : grant->mode == MD_ACCESS_EXCLUSIVE;
}

unsigned md_access_mode(struct md_access *access, uint64_t session, uint64_t ino, bool write,
			bool recallable)
{
	bool others = false;

	for (struct md_grant *g = md_access_first(access, ino); g; g = g->next) {
		/* It may hold something back: what it has alone it shares only when it was
		 * recalled. */
		if (g->session == session && g->mode == MD_ACCESS_EXCLUSIVE)
			return MD_ACCESS_EXCLUSIVE;
		write = write || g->write;
		others = others || g->session != session;
	}
	if (!write)
		return MD_ACCESS_READ;
	return others || !recallable || md_access_is_tainted(access, ino) ? MD_ACCESS_SHARED
									  : MD_ACCESS_EXCLUSIVE;
}

/* -- change ---------------------------------------------------------------------------------------
 */

static struct md_access_inode *need_inode(struct md_access *access, uint64_t ino)
{
	struct md_access_inode *inode = find_inode(access, ino);
	bool gx_hash_failed = false;

	if (inode)
		return inode;
	inode = calloc(1, sizeof(*inode));
	if (!inode)
		return NULL;
	inode->ino = ino;
	HASH_ADD(hh, access->inodes, ino, sizeof(inode->ino), inode);
	if (!gx_hash_failed)
		return inode;
	free(inode);
	return NULL;
}

static struct md_access_session *need_session(struct md_access *access, uint64_t id)
{
	struct md_access_session *session = find_session(access, id);
	bool gx_hash_failed = false;

	if (session)
		return session;
	session = calloc(1, sizeof(*session));
	if (!session)
		return NULL;
	session->id = id;
	HASH_ADD(hh, access->sessions, id, sizeof(session->id), session);
	if (!gx_hash_failed)
		return session;
	free(session);
	return NULL;
}

static void trim(struct md_access *access, struct md_access_inode *inode,
		 struct md_access_session *session)
{
	if (inode && !inode->grants) {
		HASH_DEL(access->inodes, inode);
		free(inode);
	}
	if (session && !session->grants) {
		HASH_DEL(access->sessions, session);
		free(session);
	}
}

static int make(struct md_access *access, uint64_t session, uint64_t ino,
		struct md_grant **ret_grant)
{
	struct md_access_session *of = need_session(access, session);
	struct md_access_inode *inode = need_inode(access, ino);
	struct md_grant *grant = calloc(1, sizeof(*grant));

	if (!of || !inode || !grant) {
		trim(access, inode, of);
		free(grant);
		return -ENOMEM;
	}
	grant->session = session;
	grant->ino = ino;
	grant->inode = inode;
	grant->of = of;
	DL_APPEND(inode->grants, grant);
	DL_APPEND2(of->grants, grant, of_prev, of_next);
	access->count++;
	*ret_grant = grant;
	return 0;
}

static void unrecall(struct md_access *access, struct md_grant *grant)
{
	if (grant->recalled)
		DL_DELETE2(access->recalled, grant, way_prev, way_next);
	grant->recalled = false;
}

int md_access_give(struct md_access *access, uint64_t session, uint64_t ino, unsigned mode,
		   bool write, struct md_grant **ret_grant)
{
	struct md_grant *grant = md_access_find(access, session, ino);
	int r = grant ? 0 : make(access, session, ino, &grant);

	if (r < 0)
		return r;
	grant->mode = mode;
	grant->write = grant->write || write;
	if (ret_grant)
		*ret_grant = grant;
	return 0;
}

void md_access_drop(struct md_access *access, struct md_grant *grant)
{
	struct md_access_session *of = grant->of;
	struct md_access_inode *inode = grant->inode;

	unrecall(access, grant);
	DL_DELETE(inode->grants, grant);
	DL_DELETE2(of->grants, grant, of_prev, of_next);
	free(grant);
	access->count--;
	trim(access, inode, of);
}

void md_access_taint(struct md_grant *grant)
{
	grant->inode->tainted = true;
}

void md_access_lose(struct md_access *access, struct md_grant *grant)
{
	if (grant->write)
		md_access_taint(grant);
	md_access_drop(access, grant);
}

void md_access_recall(struct md_access *access, struct md_grant *grant, int64_t now_ns)
{
	if (grant->recalled)
		return;
	grant->recalled = true;
	grant->recalled_ns = now_ns;
	DL_APPEND2(access->recalled, grant, way_prev, way_next);
}

void md_access_share(struct md_access *access, struct md_grant *grant)
{
	unrecall(access, grant);
	grant->mode = MD_ACCESS_SHARED;
}

void md_access_clean(struct md_access *access, uint64_t ino)
{
	struct md_access_inode *inode = find_inode(access, ino);

	if (inode)
		inode->tainted = false;
}

void md_access_forgive(struct md_access *access, int64_t gap_ns)
{
	struct md_grant *grant;

	DL_FOREACH2(access->recalled, grant, way_next)
	grant->recalled_ns += gap_ns;
}
