/*
 * rpc_service_def.h - expands one service of methods.def into a dispatch table.
 * No include guard: each service's file includes it once, at its end or start.
 *
 *	#define RPC_SERVICE_ECHO                     which rows
 *	#define RPC_HANDLER(lower) echod_op_##lower  names of the handlers
 *	#define RPC_TABLE echod_service              name of the table
 *	#include "rpc/rpc_service_def.h"
 *
 * It declares every handler with its own message types, so that a handler with
 * a wrong signature does not compile and a missing one does not link.
 */
#include "rpc/rpc_dispatch.h"

#define RPC_PUSH(...)
#define RPC_METHOD(svc, Svc, id, UPPER, lower, Camel, flags, since, text)                          \
	int RPC_HANDLER(lower)(struct rpc_call * call, const Pb##Svc##__##Camel##Request *request, \
			       Pb##Svc##__##Camel##Reply *reply);                                  \
	static int thunk_##lower(struct rpc_call *call, const ProtobufCMessage *request,           \
				 ProtobufCMessage *reply)                                          \
	{                                                                                          \
		return RPC_HANDLER(lower)(call, (const Pb##Svc##__##Camel##Request *)request,      \
					  (Pb##Svc##__##Camel##Reply *)reply);                     \
	}
#include "idl/methods.def"

static const struct rpc_service_row service_rows[] = {
#define RPC_PUSH(...)
#define RPC_METHOD(svc, Svc, id, UPPER, lower, Camel, flags, since, text) {id, thunk_##lower},
#include "idl/methods.def"
};

extern const struct rpc_service RPC_TABLE;
const struct rpc_service RPC_TABLE = {service_rows, GX_COUNT_OF(service_rows)};
