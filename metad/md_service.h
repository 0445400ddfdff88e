/*
 * md_service.h - the table of metad's handlers (idl/methods.def, service meta); their data is the
 * struct md_server.
 */
#ifndef MD_SERVICE_H
#define MD_SERVICE_H

#include "rpc/rpc_dispatch.h"

extern const struct rpc_service md_service_table;

#endif
