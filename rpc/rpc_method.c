#include "rpc/rpc_method.h"
#include "core.pb-c.h"
#include "data.pb-c.h"
#include "echo.pb-c.h"
#include "meta.pb-c.h"

static const struct rpc_method methods[] = {
#define RPC_METHOD(svc, Svc, id_, UPPER, lower, Camel, flags_, since_, text_)                      \
	[RPC_INDEX_##UPPER] = {.id = (id_),                                                        \
			       .index = RPC_INDEX_##UPPER,                                         \
			       .flags = (flags_),                                                  \
			       .since = (since_),                                                  \
			       .name = #svc "." #lower,                                            \
			       .text = (text_),                                                    \
			       .request = &pb_##svc##__##lower##_request__descriptor,              \
			       .reply = &pb_##svc##__##lower##_reply__descriptor,                  \
			       .service = &pb_##svc##__##svc##__descriptor,                        \
			       .proto_name = #Camel},
#define RPC_SERVICE_ALL
#include "idl/methods.def"
};

/* Direct look-up by service byte and number inside the service. */
#define SERVICES_MAX 16
#define NUMBERS_MAX 128
static uint8_t index_of[SERVICES_MAX][NUMBERS_MAX]; /* index + 1; 0: none */

__attribute__((constructor)) static void index_fill(void)
{
	_Static_assert(RPC_METHOD_COUNT < UINT8_MAX, "index_of holds bytes");
	for (size_t i = 0; i < RPC_METHOD_COUNT; i++) {
		unsigned service = methods[i].id >> 8;
		unsigned number = methods[i].id & 0xff;

		gx_assert(service < SERVICES_MAX && number < NUMBERS_MAX);
		gx_assert(index_of[service][number] == 0);
		index_of[service][number] = (uint8_t)(i + 1);
	}
}

const struct rpc_method *rpc_method_find(uint32_t id)
{
	uint32_t service = id >> 8;
	uint32_t number = id & 0xff;

	if (service >= SERVICES_MAX || number >= NUMBERS_MAX || index_of[service][number] == 0)
		return NULL;
	return &methods[index_of[service][number] - 1];
}

const struct rpc_method *rpc_method_get(size_t index)
{
	gx_assert(index < RPC_METHOD_COUNT);
	return &methods[index];
}
