/*
 * rpc_method.h - what is known about each method, from idl/methods.def.
 */
#ifndef RPC_METHOD_H
#define RPC_METHOD_H

#include "common/gx_base.h"
#include <protobuf-c/protobuf-c.h>

#define RPC_F_IDEMPOTENT 0x01u
#define RPC_F_MUTATES 0x02u
#define RPC_F_SESSION 0x04u
#define RPC_F_ADMIN 0x08u
#define RPC_F_HOST 0x10u
#define RPC_F_BULK_IN 0x20u
#define RPC_F_BULK_OUT 0x40u
#define RPC_F_PUSH 0x80u
#define RPC_F_COMMAND 0x100u

enum rpc_method_id {
#define RPC_METHOD(svc, Svc, id, UPPER, lower, Camel, flags, since, text) RPC_##UPPER = id,
#define RPC_SERVICE_ALL
#include "idl/methods.def"
};

/* Dense numbers 0…RPC_METHOD_COUNT-1 in the order of the file: index of counters. */
enum rpc_method_index {
#define RPC_METHOD(svc, Svc, id, UPPER, lower, Camel, flags, since, text) RPC_INDEX_##UPPER,
#define RPC_SERVICE_ALL
#include "idl/methods.def"
	RPC_METHOD_COUNT
};

struct rpc_method {
	uint16_t id;
	uint16_t index;   /* enum rpc_method_index */
	unsigned flags;   /* RPC_F_* */
	unsigned since;   /* protocol version */
	const char *name; /* "echo.tally" */
	const char *text;
	const ProtobufCMessageDescriptor *request;
	const ProtobufCMessageDescriptor *reply;
	const ProtobufCServiceDescriptor *service; /* for the test that compares */
	const char *proto_name;                    /* name of the rpc in the service: "Tally" */
};

/* NULL for an id nobody declared. */
const struct rpc_method *rpc_method_find(uint32_t id);
/* index < RPC_METHOD_COUNT. */
const struct rpc_method *rpc_method_get(size_t index);

#endif
