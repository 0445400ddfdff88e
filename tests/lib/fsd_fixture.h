/*
 * fsd_fixture.h - a real fsd in the test's process: spools in a scratch directory, a loop in a
 * thread of its own, a unix socket and a free port of 127.0.0.1.
 *
 * The test is its metad: it has the node's key and makes tickets. What goes wrong inside the
 * fixture aborts the program with a message. Clients must be gone before the node is.
 */
#ifndef FSD_FIXTURE_H
#define FSD_FIXTURE_H

#include "fsd/fsd_server_impl.h"
#define RPC_SERVICE_DATA
#include "rpc/rpc_stub.h"

#define FSD_FIXTURE_BOOT UINT64_C(0xb001)
#define FSD_FIXTURE_SESSION UINT64_C(7)

enum fsd_fixture_kind { FSD_FIXTURE_UNIX, FSD_FIXTURE_TCP, FSD_FIXTURE_TLS, FSD_FIXTURE_COUNT };

struct fsd_fixture {
	struct gx_env *env;
	char dir[128];
	char spools[2][160];
	const char *spool_list[2];
	struct rpc_key key;
	unsigned char node_key[RPC_KEY_BYTES];
	struct fsd_server_options options; /* may be changed while the node is down */
	struct fsd_server *server;         /* NULL: down */
	struct gx_loop *loop;
	struct gx_thread thread;
	struct rpc_endpoint endpoints[FSD_FIXTURE_COUNT];
};

/* Makes directories and key; `name` is the node's. Nothing runs yet. */
void fsd_fixture_init(struct fsd_fixture *fixture, const char *name);
/* It registers there, with the key that this metad knows. While it is down. */
struct fake_metad;
void fsd_fixture_use_metad(struct fsd_fixture *fixture, struct fake_metad *metad);
/* Removes all; the node goes down if it is up. */
void fsd_fixture_fini(struct fsd_fixture *fixture);
void fsd_fixture_up(struct fsd_fixture *fixture);
/* The same, but tells what fsd_server_new() said. */
GX_MUST_CHECK int fsd_fixture_try(struct fsd_fixture *fixture);
/* At once, as SIGKILL: what is not synced is in the page cache. */
void fsd_fixture_down(struct fsd_fixture *fixture);
/* As SIGTERM. */
void fsd_fixture_drain(struct fsd_fixture *fixture);

/* A client of this session with a ticket for this node, as metad makes them; to be freed. */
struct rpc_client *fsd_fixture_client(struct fsd_fixture *fixture, enum fsd_fixture_kind kind,
				      uint64_t session);
void fsd_fixture_session(struct fsd_fixture *fixture, uint64_t session, int64_t expires_ns,
			 char text[GX_IDENTITY_MAX], unsigned char ret_key[RPC_KEY_BYTES]);

/* A ticket of FSD_FIXTURE_SESSION to read and write this, for an hour; to be sealed. */
struct rpc_file_ticket fsd_fixture_ticket(struct fsd_fixture *fixture, uint64_t ino,
					  uint64_t generation, uint64_t base);

struct fsd_sealed {
	unsigned char bytes[RPC_FILE_TICKET_BYTES];
	ProtobufCBinaryData data; /* of these */
};
/* Borrowed until the next call with the same `sealed`. */
ProtobufCBinaryData fsd_fixture_seal(struct fsd_fixture *fixture,
				     const struct rpc_file_ticket *ticket,
				     struct fsd_sealed *sealed);

/* Where the object's bytes are; aborts if it is nowhere. */
void fsd_fixture_path(struct fsd_fixture *fixture, uint64_t ino, uint64_t generation,
		      char path[GX_PATH_MAX]);
bool fsd_fixture_has(struct fsd_fixture *fixture, uint64_t ino, uint64_t generation);
/* Changes one bit of the bytes, behind everybody's back. */
void fsd_fixture_flip(struct fsd_fixture *fixture, uint64_t ino, uint64_t generation,
		      uint64_t offset);

/* -- a machine that can be told to wait -------------------------------------------------------
 *
 * Syncs (fdatasync) or writes (pwrite) of files arrive at a gate, and stay there while it is
 * closed. Free space may be what the test likes. One at a time per process.
 */
void fsd_gate_init(void);
void fsd_gate_fini(void);
/* For fsd_fixture.options.env. */
struct gx_env *fsd_gate_env(void);
void fsd_gate_close(bool syncs, bool writes);
void fsd_gate_open(void);
/* Until so many wait there. */
void fsd_gate_wait(unsigned count);
/* What space is said to be free; 0: what really is. */
void fsd_gate_space(uint64_t free_bytes);
/* Bytes that went from files to sockets without a copy, so far. */
uint64_t fsd_gate_sent(void);

/* -- calls, each with a ticket ------------------------------------------------------------------
 */

int fsd_call_write(struct rpc_client *client, ProtobufCBinaryData ticket, const void *data,
		   size_t bytes, uint64_t offset);
int fsd_call_append(struct rpc_client *client, ProtobufCBinaryData ticket, const void *data,
		    size_t bytes, uint64_t *ret_offset);
/* How many bytes; they are verified, -EILSEQ if they do not fit. */
ssize_t fsd_call_read(struct rpc_client *client, ProtobufCBinaryData ticket, void *buf,
		      size_t bytes, uint64_t offset, bool prove);
int fsd_call_sync(struct rpc_client *client, ProtobufCBinaryData ticket);
int fsd_call_truncate(struct rpc_client *client, ProtobufCBinaryData ticket, uint64_t size);
int fsd_call_room(struct rpc_client *client, ProtobufCBinaryData ticket, uint32_t kind,
		  uint64_t offset, uint64_t bytes);
int fsd_call_seek(struct rpc_client *client, ProtobufCBinaryData ticket, uint64_t offset, bool hole,
		  uint64_t *ret_offset);
int fsd_call_stat(struct rpc_client *client, ProtobufCBinaryData ticket,
		  PbData__DataStatReply *ret_stat);
int fsd_call_sums(struct rpc_client *client, ProtobufCBinaryData ticket, uint64_t first,
		  uint32_t count, uint64_t *ret_sums, size_t *ret_count);
/* The descriptor. */
int fsd_call_descriptor(struct rpc_client *client, ProtobufCBinaryData ticket);

#endif
