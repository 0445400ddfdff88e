/*
 * gx_fault.h - fault points: the n-th call of a kind fails.
 *
 * A test hangs a `struct gx_fault` on an env. Each env call, and each named
 * fault point in product code that guards a foreign library (OpenSSL, libuv),
 * asks gx_fault_check() first. The test runs its scenario with nth = 1, 2, 3 …
 * until a run ends without the fault having fired: then every point was hit.
 *
 * Thread-safe: the counter is atomic. Costs one load in production.
 */
#ifndef GX_FAULT_H
#define GX_FAULT_H

#include "common/gx_base.h"
#include <stdatomic.h>

struct gx_env;

/* kind, default errno. The name doubles as the log text. */
#define GX_FAULT_KINDS(X)                                                                          \
	X(RANDOM, EIO)                                                                             \
	X(OPEN, EMFILE)                                                                            \
	X(CLOSE, EIO)                                                                              \
	X(READ, EIO)                                                                               \
	X(WRITE, ENOSPC)                                                                           \
	X(SYNC, EIO)                                                                               \
	X(TRUNCATE, EIO)                                                                           \
	X(ALLOCATE, ENOSPC)                                                                        \
	X(STAT, EACCES)                                                                            \
	X(RENAME, EIO)                                                                             \
	X(UNLINK, EIO)                                                                             \
	X(MKDIR, ENOSPC)                                                                           \
	X(LIST, EIO)                                                                               \
	X(LOCK, EAGAIN)                                                                            \
	X(LISTEN, EADDRINUSE)                                                                      \
	X(ACCEPT, EMFILE)                                                                          \
	X(CONNECT, ECONNREFUSED)                                                                   \
	X(NAME, ENOTCONN)                                                                          \
	X(RECV, ECONNRESET)                                                                        \
	X(SEND, EPIPE)                                                                             \
	X(RESOLVE, EHOSTUNREACH)                                                                   \
	X(POLL, ENOMEM)                                                                            \
	X(EVENT, EMFILE)                                                                           \
	X(THREAD, EAGAIN)                                                                          \
	X(MUTEX, ENOMEM)                                                                           \
	X(LOOP, ENOMEM)                                                                            \
	X(TLS, EPROTO)                                                                             \
	X(CRYPTO, EIO)

enum gx_fault_kind {
#define X(name, err) GX_FAULT_##name,
	GX_FAULT_KINDS(X)
#undef X
		GX_FAULT_COUNT
};

struct gx_fault {
	uint64_t kinds;         /* bit per enum gx_fault_kind that counts; ~0 for all */
	uint64_t nth;           /* the call to fail, from 1; 0 never */
	uint64_t repeat;        /* how many calls in a row fail from there on; 0 means 1 */
	int err;                /* positive errno to fail with; 0: the kind's default */
	size_t short_bytes;     /* > 0: socket reads and writes move at most this much */
	_Atomic uint64_t count; /* counted calls so far */
	_Atomic uint64_t fired; /* how many were failed */
	_Atomic int last_kind;  /* the kind last failed, for messages */
};

/* 0, or the negative errno this call is to fail with. `env` may have no fault attached. */
int gx_fault_check_slow(struct gx_fault *fault, enum gx_fault_kind kind);

#define gx_fault_check(env, kind)                                                                  \
	(GX_LIKELY((env)->fault == NULL) ? 0 : gx_fault_check_slow((env)->fault, (kind)))

const char *gx_fault_name(enum gx_fault_kind kind);

#endif
