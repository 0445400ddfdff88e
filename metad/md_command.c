#include "metad/md_command.h"
#include "common/gx_num.h"

/* Version 2 is version 1 with more flags and methods. */
#define COMMAND_VERSION 2
#define HEADER_BYTES 64u
/* Room for the struct of any request; none has messages inside. */
#define REQUEST_STRUCT_MAX 256u

union request_copy {
	ProtobufCMessage base;
	unsigned char bytes[REQUEST_STRUCT_MAX];
};

/* The same request without the fields we do not know. */
static void copy_request(const ProtobufCMessage *request, union request_copy *ret_copy)
{
	size_t bytes = request->descriptor->sizeof_message;

	gx_assert(bytes <= sizeof(*ret_copy));
	memcpy(ret_copy->bytes, request, bytes);
	ret_copy->base.n_unknown_fields = 0;
	ret_copy->base.unknown_fields = NULL;
}

int md_command_encode(const struct md_command *c, struct gx_buf *out)
{
	union request_copy request;
	size_t request_bytes, total;
	unsigned char *p;
	int r;

	gx_assert(c->cred.group_count <= MD_GROUPS_MAX);
	gx_assert((c->flags & ~(unsigned)MD_COMMAND_FLAGS) == 0);
	gx_assert((c->method->flags & RPC_F_MUTATES) &&
		  c->request->descriptor == c->method->request);
	copy_request(c->request, &request);
	request_bytes = protobuf_c_message_get_packed_size(&request.base);
	total = HEADER_BYTES + 4 * (size_t)c->cred.group_count + request_bytes + c->payload_bytes;
	if (total > MD_COMMAND_BYTES_MAX)
		return -E2BIG;
	r = gx_buf_reserve(out, total);
	if (r < 0)
		return r;
	p = out->data + out->bytes;
	memset(p, 0, HEADER_BYTES);
	p[0] = COMMAND_VERSION;
	p[1] = (unsigned char)c->flags;
	gx_put_le16(p + 2, c->method->id);
	gx_put_le32(p + 4, (uint32_t)request_bytes);
	gx_put_le32(p + 8, c->payload_bytes);
	gx_put_le32(p + 12, c->cred.uid);
	gx_put_le32(p + 16, c->cred.gid);
	gx_put_le32(p + 20, c->cred.group_count);
	gx_put_le64(p + 24, (uint64_t)c->time_ns);
	gx_put_le64(p + 32, c->session);
	gx_put_le64(p + 40, c->seq);
	gx_put_le64(p + 48, c->new_ino);
	gx_put_le64(p + 56, c->check);
	p += HEADER_BYTES;
	for (uint32_t i = 0; i < c->cred.group_count; i++, p += 4)
		gx_put_le32(p, c->cred.groups[i]);
	p += protobuf_c_message_pack(&request.base, p);
	if (c->payload_bytes > 0)
		memcpy(p, c->payload, c->payload_bytes);
	out->bytes += total;
	return 0;
}

static int decode_groups(const unsigned char *p, uint32_t count, struct rpc_arena *arena,
			 const uint32_t **ret_groups)
{
	uint32_t *groups = rpc_arena_alloc(arena, 4 * (size_t)count);

	if (!groups)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		groups[i] = gx_get_le32(p + 4 * (size_t)i);
	*ret_groups = groups;
	return 0;
}

int md_command_decode(const void *data, size_t bytes, struct rpc_arena *arena,
		      struct md_command *ret_command)
{
	const unsigned char *p = data;
	struct md_command c = {0};
	ProtobufCMessage *request;
	uint64_t request_bytes;
	int r;

	if (bytes < HEADER_BYTES || p[0] == 0)
		return -EBADMSG;
	if (p[0] > COMMAND_VERSION)
		return -EPROTONOSUPPORT;
	c.flags = p[1];
	c.method = rpc_method_find(gx_get_le16(p + 2));
	request_bytes = gx_get_le32(p + 4);
	c.payload_bytes = gx_get_le32(p + 8);
	c.cred.uid = gx_get_le32(p + 12);
	c.cred.gid = gx_get_le32(p + 16);
	c.cred.group_count = gx_get_le32(p + 20);
	c.time_ns = (int64_t)gx_get_le64(p + 24);
	c.session = gx_get_le64(p + 32);
	c.seq = gx_get_le64(p + 40);
	c.new_ino = gx_get_le64(p + 48);
	c.check = gx_get_le64(p + 56);
	if (!c.method || !(c.method->flags & RPC_F_MUTATES) ||
	    (c.flags & ~(unsigned)MD_COMMAND_FLAGS) || c.cred.group_count > MD_GROUPS_MAX ||
	    bytes > MD_COMMAND_BYTES_MAX ||
	    HEADER_BYTES + 4 * (uint64_t)c.cred.group_count + request_bytes + c.payload_bytes !=
		    bytes)
		return -EBADMSG;
	p += HEADER_BYTES;
	r = decode_groups(p, c.cred.group_count, arena, &c.cred.groups);
	if (r < 0)
		return r;
	p += 4 * (size_t)c.cred.group_count;
	r = rpc_arena_unpack(arena, c.method->request, p, (size_t)request_bytes, &request);
	if (r < 0)
		return r == -EPROTO ? -EBADMSG : r;
	c.request = request;
	c.payload = p + request_bytes;
	*ret_command = c;
	return 0;
}
