/*
 * rpc_stub.h - typed client calls of one service, derived from methods.def.
 * No include guard:
 *
 *	#define RPC_SERVICE_ECHO
 *	#include "rpc/rpc_stub.h"
 *
 * gives, for each method, for example
 *
 *	int echo_call_tally(struct rpc_client *client, const PbEcho__TallyRequest *request,
 *			    const struct rpc_call_options *options, struct rpc_reply *reply,
 *			    const PbEcho__TallyReply **ret_message);
 *
 * ret_message points into `reply`, which the caller ends with rpc_reply_fini().
 */
#include "rpc/rpc_client.h"

#define RPC_PUSH(...)
#define RPC_METHOD(svc, Svc, id, UPPER, lower, Camel, flags, since, text)                          \
	GX_MUST_CHECK GX_UNUSED static inline int svc##_call_##lower(                              \
		struct rpc_client *client, const Pb##Svc##__##Camel##Request *request,             \
		const struct rpc_call_options *options, struct rpc_reply *reply,                   \
		const Pb##Svc##__##Camel##Reply **ret_message)                                     \
	{                                                                                          \
		int r = rpc_client_call(client, rpc_method_get(RPC_INDEX_##UPPER), &request->base, \
					options, reply);                                           \
		if (r == 0)                                                                        \
			*ret_message = (const Pb##Svc##__##Camel##Reply *)reply->message;          \
		return r;                                                                          \
	}
#include "idl/methods.def"
