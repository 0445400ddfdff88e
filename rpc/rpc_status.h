/*
 * rpc_status.h - wire status codes and their errno; the only map (idl/status.def).
 */
#ifndef RPC_STATUS_H
#define RPC_STATUS_H

#include "common/gx_base.h"
#include "common/gx_limits.h"

enum rpc_status {
#define RPC_STATUS(number, name, err, retryable, text) RPC_STATUS_##name = number,
#include "idl/status.def"
};

/* The status for a negative errno (0 is OK). *ret_exact (may be NULL) is false if it became IO. */
enum rpc_status rpc_status_from_errno(int err, bool *ret_exact);
/* The negative errno for a wire number; -EPROTO for a number we do not know. */
int rpc_status_to_errno(uint32_t number);
/* "NOENT"; NULL for an unknown number. */
const char *rpc_status_name(uint32_t number);
/* "no such file or directory"; never NULL. */
const char *rpc_status_text(uint32_t number);
/* The server did nothing and the same request may be sent again. */
bool rpc_status_retryable(uint32_t number);

/*
 * Takes over the text behind an error status, cut to its maximum. It comes from a peer that may not
 * even be authenticated and ends on somebody's terminal: control characters become '?'.
 */
void rpc_detail_copy(const void *message, size_t bytes, char ret_detail[GX_DETAIL_MAX + 1]);

#endif
