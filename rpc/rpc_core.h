/*
 * rpc_core.h - the service every daemon has: ping and stats.
 */
#ifndef RPC_CORE_H
#define RPC_CORE_H

#include "rpc/rpc_dispatch.h"

/* Its data is the dispatcher itself. */
extern const struct rpc_service rpc_core_service;

#endif
