/*
 * meta_fixture.h - a real metad for tests: md_server on a loop in a thread of its own, over LevelDB
 * in a scratch directory, listening on a unix socket.
 *
 * Its users are alice, bob, carol (in bob's group `staff`), and root; each has a key. What goes
 * wrong inside the fixture aborts the program with a message.
 */
#ifndef META_FIXTURE_H
#define META_FIXTURE_H

#include "client/fs/gfc.h"
#include "metad/md_server.h"

enum meta_who {
	META_ROOT,   /* 0, 0; administrator */
	META_ALICE,  /* 1000, 1000 */
	META_BOB,    /* 1001, 1001, and 50 (staff) */
	META_CAROL,  /* 1002, 50 (staff) */
	META_HOST,   /* host:fsd1: no user */
	META_HOST2,  /* host:fsd2 */
	META_HOST3,  /* host:fsd3 */
	META_NOBODY, /* user:dave: has a key but is not in the table of users */
	META_WHO_COUNT
};

struct meta_fixture;

/* options: what a test wants different from MD_SERVER_OPTIONS_INIT (loop, dir, auth and users
 * are the fixture's, env too unless it is set); may be NULL. */
struct meta_fixture *meta_fixture_start(const struct md_server_options *options);
void meta_fixture_stop(struct meta_fixture *fixture);
/* As kill -9: nothing more is answered. */
void meta_fixture_down(struct meta_fixture *fixture);
void meta_fixture_up(struct meta_fixture *fixture);

const char *meta_fixture_identity(enum meta_who who);
/* The caller frees it. */
struct rpc_client *meta_fixture_client(struct meta_fixture *fixture, enum meta_who who);
/* `cache_bytes` 0: no cache. */
struct gfc *meta_fixture_gfc(struct meta_fixture *fixture, enum meta_who who, size_t cache_bytes);

/* The library by paths; no storage node is there, so files stay small. */
struct gfs;
struct gfs *meta_fixture_gfs(struct meta_fixture *fixture, enum meta_who who);

typedef void (*meta_fixture_fn)(struct md_server *server, void *arg);
/* Runs fn on the loop's thread and waits until it has returned. */
void meta_fixture_run(struct meta_fixture *fixture, meta_fixture_fn fn, void *arg);
/* Reads all of the state and compares (md_check.h); aborts with the problems if there are any. */
void meta_fixture_check(struct meta_fixture *fixture);
const char *meta_fixture_dir(const struct meta_fixture *fixture);

#endif
