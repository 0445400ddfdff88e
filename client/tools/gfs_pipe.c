#include "client/tools/gfs_pipe.h"

struct piece {
	char *buf;
	size_t bytes;
	uint64_t offset;
};

struct pipe {
	struct gx_env *env;
	const struct gfs_pipe_ends *ends;
	uint64_t from, end;
	struct piece pieces[GFS_PIPE_PIECES];
	struct gx_mutex lock; /* all below */
	struct gx_cond changed;
	uint64_t filled, emptied; /* pieces, since the beginning */
	bool full_stop;           /* no more will be filled */
	bool broken;              /* no more will be emptied */
	struct gfs_pipe_result result;
	bool enough; /* the caller has said so */
};

/* -- the ring ---------------------------------------------------------------------------------- */

/* A piece to fill; NULL: nobody wants it. */
static struct piece *take_empty(struct pipe *pipe)
{
	struct piece *piece = NULL;

	gx_env_mutex_lock(pipe->env, &pipe->lock);
	while (!pipe->broken && pipe->filled - pipe->emptied == GFS_PIPE_PIECES)
		GX_IGNORE(gx_env_cond_wait(pipe->env, &pipe->changed, &pipe->lock, GX_FOREVER));
	if (!pipe->broken)
		piece = &pipe->pieces[pipe->filled % GFS_PIPE_PIECES];
	gx_env_mutex_unlock(pipe->env, &pipe->lock);
	return piece;
}

/* A piece to empty; NULL: that was the last. */
static struct piece *take_full(struct pipe *pipe)
{
	struct piece *piece = NULL;

	gx_env_mutex_lock(pipe->env, &pipe->lock);
	while (!pipe->full_stop && pipe->filled == pipe->emptied)
		GX_IGNORE(gx_env_cond_wait(pipe->env, &pipe->changed, &pipe->lock, GX_FOREVER));
	if (pipe->filled > pipe->emptied)
		piece = &pipe->pieces[pipe->emptied % GFS_PIPE_PIECES];
	gx_env_mutex_unlock(pipe->env, &pipe->lock);
	return piece;
}

static void tell(struct pipe *pipe, uint64_t *counter, bool *flag)
{
	gx_env_mutex_lock(pipe->env, &pipe->lock);
	if (counter)
		(*counter)++;
	if (flag)
		*flag = true;
	gx_env_cond_signal(pipe->env, &pipe->changed);
	gx_env_mutex_unlock(pipe->env, &pipe->lock);
}

/* -- the two sides ----------------------------------------------------------------------------- */

/* In the caller's thread. */
static bool is_enough(struct pipe *pipe, bool here, uint64_t at)
{
	const struct gfs_pipe_ends *ends = pipe->ends;

	if (here && ends->step(ends->step_arg, at))
		pipe->enough = true;
	return here && pipe->enough;
}

static void fill(void *arg)
{
	struct pipe *pipe = arg;
	const struct gfs_pipe_ends *ends = pipe->ends;
	uint64_t at = pipe->from;
	struct piece *piece;

	while (at < pipe->end && (piece = take_empty(pipe))) {
		size_t wanted = (size_t)GX_MIN((uint64_t)GFS_PIPE_PIECE, pipe->end - at);
		ssize_t n = ends->read(ends->read_arg, piece->buf, wanted, at);

		if (n <= 0) {
			pipe->result.read_err = (int)n;
			pipe->result.ended = n == 0;
			break;
		}
		piece->offset = at;
		piece->bytes = (size_t)n;
		at += (uint64_t)n;
		tell(pipe, &pipe->filled, NULL);
		if (is_enough(pipe, ends->read_here, at))
			break;
	}
	tell(pipe, NULL, &pipe->full_stop);
}

static void empty(void *arg)
{
	struct pipe *pipe = arg;
	const struct gfs_pipe_ends *ends = pipe->ends;
	struct piece *piece;

	while ((piece = take_full(pipe))) {
		int r = ends->write(ends->write_arg, piece->buf, piece->bytes, piece->offset);

		if (r < 0) {
			pipe->result.write_err = r;
			break;
		}
		pipe->result.at = piece->offset + piece->bytes;
		tell(pipe, &pipe->emptied, NULL);
		if (is_enough(pipe, !ends->read_here, pipe->result.at))
			break;
	}
	tell(pipe, NULL, &pipe->broken);
}

/* -- life -------------------------------------------------------------------------------------- */

static int run(struct pipe *pipe)
{
	bool read_here = pipe->ends->read_here;
	struct gx_thread thread;
	int r = gx_env_thread_start(pipe->env, &thread, "copy", read_here ? empty : fill, pipe);

	if (r < 0)
		return r;
	if (read_here)
		fill(pipe);
	else
		empty(pipe);
	r = gx_env_thread_join(pipe->env, &thread);
	return r < 0 ? r : pipe->enough ? -EINTR : 0;
}

int gfs_pipe_run(struct gx_env *env, const struct gfs_pipe_ends *ends, uint64_t from, uint64_t end,
		 struct gfs_pipe_result *ret_result)
{
	GX_AUTOFREE char *memory = gx_alloc_pages((size_t)GFS_PIPE_PIECES * GFS_PIPE_PIECE);
	struct pipe pipe = {.env = env, .ends = ends, .from = from, .end = end};
	int r;

	if (!memory)
		return -ENOMEM;
	for (size_t i = 0; i < GFS_PIPE_PIECES; i++)
		pipe.pieces[i].buf = memory + i * GFS_PIPE_PIECE;
	pipe.result.at = from;
	r = gx_env_mutex_init(env, &pipe.lock);
	if (r < 0)
		return r;
	r = gx_env_cond_init(env, &pipe.changed);
	if (r == 0) {
		r = run(&pipe);
		gx_env_cond_fini(env, &pipe.changed);
	}
	gx_env_mutex_fini(env, &pipe.lock);
	*ret_result = pipe.result;
	return r;
}
