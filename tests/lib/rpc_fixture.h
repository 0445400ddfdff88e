/*
 * rpc_fixture.h - a real server for tests: the echo service on a loop in a thread of its own.
 *
 * It listens on free ports of 127.0.0.1 and on a unix socket in a scratch directory, knows the
 * identities below, and catches the log. One at a time per process (the log is global). Anything
 * that goes wrong inside the fixture itself aborts the program with a message: tests need not
 * check it.
 *
 * All functions are for the test's threads; only what rpc_fixture_run() calls is on the loop.
 */
#ifndef RPC_FIXTURE_H
#define RPC_FIXTURE_H

#include "rpc/echod/echo_service.h"
#include "rpc/rpc_client.h"
#include "rpc/rpc_server.h"

enum rpc_fixture_kind {
	RPC_FIXTURE_PLAIN,        /* loop server, tcp */
	RPC_FIXTURE_TLS,          /* loop server, tls over tcp */
	RPC_FIXTURE_UNIX,         /* loop server, unix socket */
	RPC_FIXTURE_TLS_UNIX,     /* loop server, tls over a unix socket */
	RPC_FIXTURE_THREAD_PLAIN, /* a thread per connection, tcp */
	RPC_FIXTURE_THREAD_TLS,   /* a thread per connection, tls over tcp */
	RPC_FIXTURE_COUNT
};
#define RPC_FIXTURE_LOOP_COUNT RPC_FIXTURE_THREAD_PLAIN /* kinds below are loop servers */

enum rpc_fixture_who {
	RPC_FIXTURE_ALICE,    /* user:alice */
	RPC_FIXTURE_BOB,      /* user:bob */
	RPC_FIXTURE_ROOT,     /* user:root, admin */
	RPC_FIXTURE_HOST,     /* host:fsd1 */
	RPC_FIXTURE_EXPIRED,  /* user:late, whose key is in the table but over */
	RPC_FIXTURE_STRANGER, /* user:mallory, not in the table */
	RPC_FIXTURE_IMPOSTOR, /* user:alice with a wrong key */
	RPC_FIXTURE_WHO_COUNT
};

struct rpc_fixture_options {
	bool poll_loop; /* the plain poll loop instead of libuv */
	unsigned connections_max;
	unsigned half_open_max;
	int64_t handshake_ns;
	int64_t linger_ns; /* of sessions */
	uint64_t payload_pool_bytes;
	const char *log_levels;
};
#define RPC_FIXTURE_OPTIONS_INIT                                                                   \
	{                                                                                          \
		.connections_max = 256, .half_open_max = 64, .handshake_ns = 10 * GX_NSEC_PER_SEC, \
		.linger_ns = 60 * GX_NSEC_PER_SEC, .payload_pool_bytes = 32u * 1024 * 1024,        \
		.log_levels = "debug"                                                              \
	}

struct rpc_fixture;

/* options may be NULL. */
struct rpc_fixture *rpc_fixture_start(const struct rpc_fixture_options *options);
/* Clients and channels must be gone. NULL is fine. */
void rpc_fixture_stop(struct rpc_fixture *fixture);

/* Ends the server at once, as a crash would: nothing more is answered, sessions are lost. */
void rpc_fixture_down(struct rpc_fixture *fixture);
/* A new server with the same keys on the same addresses, and another boot number. */
void rpc_fixture_up(struct rpc_fixture *fixture);

/* Breaks all connections of the loop server; sessions and listeners stay. */
void rpc_fixture_cut(struct rpc_fixture *fixture);

/* -- reaching it ------------------------------------------------------------------ */

struct gx_env *rpc_fixture_env(struct rpc_fixture *fixture);
const struct rpc_endpoint *rpc_fixture_endpoint(struct rpc_fixture *fixture,
						enum rpc_fixture_kind kind);
const char *rpc_fixture_identity(enum rpc_fixture_who who);
/* Borrowed; RPC_KEY_BYTES. */
const unsigned char *rpc_fixture_key(enum rpc_fixture_who who);
/* Ready to fill: endpoint, identity, key, 10 s of time-out. */
void rpc_fixture_client_options(struct rpc_fixture *fixture, enum rpc_fixture_kind kind,
				enum rpc_fixture_who who, struct rpc_client_options *ret_options);
/* A pool of at most `connections_max` (0: the default); the caller frees it. */
struct rpc_client *rpc_fixture_client(struct rpc_fixture *fixture, enum rpc_fixture_kind kind,
				      enum rpc_fixture_who who, unsigned connections_max);
/* A bare TCP or unix connection to the address, for hostile bytes; close with gx_env_close(). */
int rpc_fixture_connect(struct rpc_fixture *fixture, enum rpc_fixture_kind kind);
/* A deadline `ms` from now. */
int64_t rpc_fixture_in_ms(struct rpc_fixture *fixture, uint64_t ms);

/* -- looking inside ----------------------------------------------------------------- */

typedef void (*rpc_fixture_fn)(struct rpc_fixture *fixture, void *arg);
/* Runs fn on the loop's thread and waits until it has returned. */
void rpc_fixture_run(struct rpc_fixture *fixture, rpc_fixture_fn fn, void *arg);

/* For fn above only: the objects behind the loop and the threaded server. */
struct rpc_server *rpc_fixture_server(struct rpc_fixture *fixture);
struct rpc_sessions *rpc_fixture_sessions(struct rpc_fixture *fixture);
struct echo_service *rpc_fixture_service(struct rpc_fixture *fixture);
struct rpc_dispatcher *rpc_fixture_dispatcher(struct rpc_fixture *fixture, bool threaded);

/* A copy of the counters. */
void rpc_fixture_stats(struct rpc_fixture *fixture, bool threaded, struct rpc_stats *ret_stats);
/* How often tally's handler really ran. */
uint64_t rpc_fixture_tally_calls(struct rpc_fixture *fixture);
/* Returns once it has run that often: a request sent by another thread has arrived. */
void rpc_fixture_wait_tally(struct rpc_fixture *fixture, uint64_t calls);

/* Starts the graceful end of the loop server. */
void rpc_fixture_drain(struct rpc_fixture *fixture, uint64_t deadline_ms);
/* The same for the threaded server. One drain per server and test. */
void rpc_fixture_drain_threads(struct rpc_fixture *fixture, uint64_t deadline_ms);
/* Waits for the end of a drain; false if it has not come after `timeout_ms`. */
bool rpc_fixture_wait_drained(struct rpc_fixture *fixture, uint64_t timeout_ms);

/* -- the log ------------------------------------------------------------------------ */

/* Is there a line that holds both texts (the second may be NULL)? */
bool rpc_fixture_log_has(struct rpc_fixture *fixture, const char *text, const char *also);
/* The same, waiting up to 10 s for the line to come. */
bool rpc_fixture_log_wait(struct rpc_fixture *fixture, const char *text, const char *also);
void rpc_fixture_log_clear(struct rpc_fixture *fixture);
/* Everything so far to stderr, for a test that is about to fail. */
void rpc_fixture_log_print(struct rpc_fixture *fixture);

#endif
