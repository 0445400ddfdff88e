/*
 * gfc_cache.h - names and attributes a client may use without asking (rule N11).
 *
 * Three things decide whether an entry may be stored or used.
 *
 * On or off: metad grants leases only to a session with a push channel. Whoever owns that channel
 * calls _start once it is open and _stop when it is not any more; _stop empties the cache.
 *
 * Trust: entries are used only until GFC_TRUST_NS behind the sending time of the newest request
 * that was answered. An answer that comes when trust has already ended proves nothing about the
 * time between: metad may have let others change things without telling us, and have given up the
 * push channel. The cache is off then, as after _stop.
 *
 * Stamps: a reply may be older than a push, or than a change of our own, that was dealt with while
 * it was on its way. A logical clock ticks with each of these, and a small table tells by inode
 * when it last did. Read the clock before sending (_clock, or _touch for a change of our own);
 * what a reply says about an inode is stored only if that inode has not been touched since. So
 * one number is enough for all inodes a reply may bring, known before or not. Inodes that share a
 * place in the table cost a miss, never an error.
 *
 * Memory is bounded by bytes; what was not used for longest goes first. Thread-safe, a lock of its
 * own, held shortly; O(1) each.
 */
#ifndef GFC_CACHE_H
#define GFC_CACHE_H

#include "client/fs/gfc.h"

/* metad counts 2 s from the last contact; the holder stops earlier (rule N13). */
#define GFC_TRUST_NS (1500 * GX_NSEC_PER_MSEC)

struct gfc_cache;

GX_MUST_CHECK int gfc_cache_new(struct gx_env *env, size_t bytes_max, struct gfc_cache **ret_cache);
void gfc_cache_free(struct gfc_cache *cache);

/* -- leases -------------------------------------------------------------------------------- */

/* A push channel is open; trust begins with the next answer. */
void gfc_cache_start(struct gfc_cache *cache);
/* No push channel. */
void gfc_cache_stop(struct gfc_cache *cache);
/* A request that was sent at sent_ns has been answered. False: too late, the cache is off. */
bool gfc_cache_answered(struct gfc_cache *cache, int64_t sent_ns);
/* Sending time of the newest such request since _start; 0: none. */
int64_t gfc_cache_answered_ns(struct gfc_cache *cache);
/* May entries be used now? */
bool gfc_cache_trusted(struct gfc_cache *cache);

/* -- use ----------------------------------------------------------------------------------- */

/* 0 with its attributes; -ENOENT: the name is known not to exist; -EAGAIN: ask metad. */
GX_MUST_CHECK int gfc_cache_find_name(struct gfc_cache *cache, uint64_t dir, const char *name,
				      struct gfc_attr *ret_attr);
/* The same, of what never changes: known longer than the rest (a directory we made names in). */
GX_MUST_CHECK int gfc_cache_find_ref(struct gfc_cache *cache, uint64_t dir, const char *name,
				     struct gfc_ref *ret_ref, uint32_t *ret_type);
/* 0, or -EAGAIN. */
GX_MUST_CHECK int gfc_cache_find_attr(struct gfc_cache *cache, uint64_t ino,
				      struct gfc_attr *ret_attr);

/*
 * For a cache above this one, which is told of changes but not asked by the clock: for how long, in
 * ns, may it keep that this name stands for `ino` (0: for nothing), or that the attributes are of
 * `version`? 0: not at all; it is not here, or not any more.
 */
int64_t gfc_cache_keep_name(struct gfc_cache *cache, uint64_t dir, const char *name, uint64_t ino);
int64_t gfc_cache_keep_attr(struct gfc_cache *cache, uint64_t ino, uint64_t version);

/* The clock, before something is asked for. */
uint64_t gfc_cache_clock(struct gfc_cache *cache);
/* What a reply to a question asked at `clock` said. The newer version of attributes stays. */
void gfc_cache_put_attr(struct gfc_cache *cache, uint64_t clock, const struct gfc_attr *attr);
/* ino 0: there is no such name. */
void gfc_cache_put_name(struct gfc_cache *cache, uint64_t clock, uint64_t dir, const char *name,
			uint64_t ino);

/* -- changes of our own --------------------------------------------------------------------- */

/* Told by nobody but us: what a mutation of this session changes. */
struct gfc_cache_change {
	struct gfc_cache_name {
		uint64_t dir; /* its own attributes change too */
		const char *name;
		bool known;   /* it stands for `ino` afterwards (0: nothing); kept if it was here */
		uint64_t ino; /* if known */
		int entries, links; /* that the directory gained by it; with time_ns */
	} names[2];
	unsigned name_count;
	uint64_t inos[2];            /* others whose attributes change; 0: none */
	const struct gfc_attr *attr; /* as the reply gave them; NULL: none */
	/*
	 * When metad did it; 0: not known, or not what it did to the directories. As long as only
	 * we change one, this tells its attributes without asking.
	 */
	int64_t time_ns;
	bool guess; /* what a name stood for changes too, whatever that is (rename) */
	/* The cache's own, between _touch and _changed: what must not be used meanwhile. */
	unsigned place_count;
	uint16_t places[4];
};
/* Before it is sent; the clock for gfc_cache_changed(), which must follow, once. */
uint64_t gfc_cache_touch(struct gfc_cache *cache, struct gfc_cache_change *change);
/*
 * It was answered: drops what it made wrong and stores what the reply tells. For one that failed:
 * no name known, no attr.
 */
void gfc_cache_changed(struct gfc_cache *cache, uint64_t clock,
		       const struct gfc_cache_change *change);

/* -- pushes ----------------------------------------------------------------------------------- */

#define GFC_FORGET_ATTR 1u
#define GFC_FORGET_NAME 2u
#define GFC_FORGET_NAMES 4u
/* `what` and name as in meta.proto's Forget. */
void gfc_cache_forget(struct gfc_cache *cache, uint64_t ino, uint32_t what, const char *name);
void gfc_cache_forget_all(struct gfc_cache *cache);

struct gfc_cache_stats {
	uint64_t hits, misses, count, bytes;
};
void gfc_cache_stats(struct gfc_cache *cache, struct gfc_cache_stats *ret_stats);

#endif
