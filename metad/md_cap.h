/*
 * md_cap.h - numbers by which metad knows its own words again.
 *
 * A capability lets a client name an inode, a token proves that it had a file open, a receipt that
 * a mutation was answered so and not otherwise (meta.proto). Each is a MAC, cut to 64 bits, over
 * five or fewer numbers and its kind, under a secret that is made with the grid and kept in the
 * state: AES-128 in CBC mode over a fixed 48 bytes, which is a MAC for messages of one length.
 * An attacker can only try against metad, at its speed: 2^63 tries.
 *
 * Threads: one at a time.
 */
#ifndef MD_CAP_H
#define MD_CAP_H

#include "common/gx_base.h"

#define MD_CAP_SECRET_BYTES 16u

struct md_cap;

/* -EIO: the library failed, -ENOMEM. */
GX_MUST_CHECK int md_cap_new(const unsigned char secret[MD_CAP_SECRET_BYTES],
			     struct md_cap **ret_cap);
void md_cap_free(struct md_cap *cap);

/* None of them is ever 0. */
uint64_t md_cap_inode(struct md_cap *cap, uint64_t ino);
uint64_t md_cap_token(struct md_cap *cap, uint64_t session, uint64_t handle, uint64_t ino,
		      uint32_t flags);
/* `check`: hash of method and request, as the dispatcher makes it (rpc_call.request_check). */
uint64_t md_cap_receipt(struct md_cap *cap, uint64_t session, uint64_t seq, uint64_t check,
			uint64_t new_ino, int64_t time_ns);

/* In constant time. */
static inline bool md_cap_same(uint64_t a, uint64_t b)
{
	volatile uint64_t difference = a ^ b;

	return difference == 0;
}

#endif
