/*
 * rpc_chan_impl.h - what the files of a client connection share.
 */
#ifndef RPC_CHAN_IMPL_H
#define RPC_CHAN_IMPL_H

#include "rpc/rpc_chan.h"

/*
 * rpc_chan.c       slots; receiving
 * rpc_chan_send.c  sending
 * rpc_chan_open.c  opening, closing
 * rpc_chan_push.c  push channels
 */
#define SLOTS GX_INFLIGHT_PER_CONN_MAX
/* A read brings one at most, and the frame of the one before is whole by then. */
#define PASSED_MAX 2u

enum slot_state {
	SLOT_FREE,
	SLOT_WAITING,   /* sent, or being sent */
	SLOT_DONE,      /* the reply is in *reply */
	SLOT_ABANDONED, /* nobody waits any more; the late reply is thrown away */
};

struct slot {
	enum slot_state state;
	uint64_t call; /* number of the call it serves */
	int err;       /* DONE without a reply */
	int64_t deadline_ns;
	int64_t silent_ns; /* 0: off */
	int64_t since_ns;  /* when the wait began: silence counts from there */
	const struct rpc_method *method;
	struct rpc_reply *reply; /* of the waiting thread; NULL until it waits */
	unsigned char *held;     /* message that came before anyone waited */
	struct rpc_frame frame;  /* header of the held reply */
	int descriptor;          /* that came with it; -1: none */
	void *payload_in;
	size_t payload_in_bytes;
	struct gx_cond wake;
	bool has_wake;
	bool asleep; /* waits on `wake` while another thread reads */
};

struct rpc_chan {
	struct gx_env *env;
	struct rpc_stream stream;
	uint64_t secret;
	struct rpc_chan_info info;
	char server[GX_NAME_USER_MAX + 1];
	char remote[GX_ADDR_TEXT_MAX];

	struct gx_mutex lock; /* all below; never held while blocking */
	bool writing;         /* some thread writes: one request at a time */
	unsigned write_waiters;
	struct gx_cond writable;
	int failed;        /* negative errno: the channel is dead */
	bool leaving;      /* GOAWAY received */
	bool reading;      /* some thread reads */
	unsigned load;     /* slots in use */
	unsigned sleepers; /* slots whose caller waits for another thread's reading */
	uint64_t next_call;
	int64_t used_ns;  /* when it was last taken for a call, or looked at */
	int64_t heard_ns; /* when bytes came last */
	struct slot slots[SLOTS];

	/* The reader's: whoever has set `reading`. */
	size_t in_begin, in_end; /* unread part of in[] */
	size_t in_size;
	unsigned char *in;
	int passed[PASSED_MAX]; /* descriptors whose frames are not whole yet, oldest first */
	unsigned passed_count;
	unsigned char *payload; /* where the payload being read goes; NULL: thrown away */
	uint64_t payload_left;
	struct slot *payload_slot; /* whose it is, until all of it is there */
	struct slot *direct_slot;  /* under lock: its memory is being read into right now */
	uint64_t push_seq;         /* push channels: last number seen */
};

/* -- slots, all under the lock (rpc_chan.c) -- */

/* The slot of a call, or NULL. */
struct slot *rpc_chan_slot(struct rpc_chan *chan, uint64_t call);
/* A free one, or NULL. */
struct slot *rpc_chan_slot_take(struct rpc_chan *chan);
void rpc_chan_slot_give(struct rpc_chan *chan, struct slot *slot);
/*
 * The stream has failed while another thread reads into this slot's memory: the caller may have
 * it back only when that read has returned, which the shut-down makes it do.
 */
void rpc_chan_slot_settle(struct rpc_chan *chan, struct slot *slot);
/* Ends all calls. */
void rpc_chan_fail(struct rpc_chan *chan, int err);
/* Gives the reading on to one of those who wait; one that is done already would not take it. */
void rpc_chan_pass_reading(struct rpc_chan *chan);
/*
 * One step of reading without waiting: by the reader, or by anyone while nobody reads. 0: something
 * came, and what is whole has been dealt with; -EAGAIN: nothing; else the channel has failed.
 */
int rpc_chan_look(struct rpc_chan *chan, int64_t now);

/* -- frames -- */

/*
 * Writes one frame; `request` gives the deadline and the payload. *ret_sent: bytes may have left,
 * so that after an error the stream is of no more use.
 */
GX_MUST_CHECK int rpc_chan_send_frame(struct rpc_chan *chan, const struct rpc_frame *frame,
				      const void *message, const struct rpc_request *request,
				      bool *ret_sent);
/* The frame at the start of in[] if it is whole: 1, 0 if not yet, or an error. */
GX_MUST_CHECK int rpc_chan_next_frame(struct rpc_chan *chan, struct rpc_frame *ret_frame,
				      const unsigned char **ret_message);
/* Moves what is left of in[] to its start, so that there is room behind it. */
void rpc_chan_compact(struct rpc_chan *chan);
/*
 * One read from the stream, by the reader, without the lock: payload straight
 * to its place, the rest into in[]. The count of payload bytes in *ret_direct.
 */
GX_MUST_CHECK int rpc_chan_read_some(struct rpc_chan *chan, int64_t deadline_ns,
				     size_t *ret_direct);

#endif
