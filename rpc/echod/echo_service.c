#include "rpc/echod/echo_service.h"
#include "common/gx_hash.h"
#include "common/gx_sum.h"
#include "echo.pb-c.h"

#define RPC_SERVICE_ECHO
#define RPC_HANDLER(lower) echo_op_##lower
#define RPC_TABLE echo_service_table
#include "rpc/rpc_service_def.h"

#define SINK_BYTES (256u * 1024)
#define EMIT_MAX 10000u
#define DELAY_MAX_MS 10000u /* a delayed call holds memory, even when its caller has gone */

int echo_service_init(struct echo_service *echo, struct gx_env *env)
{
	int r;

	memset(echo, 0, sizeof(*echo));
	r = gx_env_mutex_init(env, &echo->lock);
	/* Without env there is nothing for _fini to do. */
	if (r == 0)
		echo->env = env;
	return r;
}

int echo_op_echo(struct rpc_call *call, const PbEcho__EchoRequest *request,
		 PbEcho__EchoReply *reply)
{
	reply->data = request->data;
	call->reply_payload = call->payload;
	call->reply_payload_bytes = call->payload_bytes;
	/* In a thread the payload is still on the stream: it would have to be stored first. */
	if (call->payload_bytes > 0 && !call->payload)
		return rpc_call_fail(call, -EOPNOTSUPP, "echo with payload is for loop servers");
	return 0;
}

int echo_op_sink(struct rpc_call *call, const PbEcho__SinkRequest *request,
		 PbEcho__SinkReply *reply)
{
	unsigned char *space = NULL;
	uint64_t sum = 0;
	int r = 0;

	reply->bytes = call->payload_bytes;
	if (call->payload) {
		reply->sum = request->checksum ? gx_sum64(call->payload, call->payload_bytes) : 0;
		return 0;
	}
	/* Streamed: the sum is of the pieces' sums, each over SINK_BYTES. */
	space = gx_alloc_pages(SINK_BYTES);
	if (!space)
		return -ENOMEM;
	for (uint64_t left = call->payload_bytes; left > 0;) {
		size_t want = (size_t)GX_MIN(left, (uint64_t)SINK_BYTES);
		size_t have = 0;

		while (have < want) {
			ssize_t n = rpc_call_read_payload(call, space + have, want - have);

			if (n <= 0) {
				r = n < 0 ? (int)n : -EPROTO;
				goto out;
			}
			have += (size_t)n;
		}
		left -= want;
		if (request->checksum)
			sum = gx_sum64_seed(space, want, sum);
	}
	reply->sum = sum;
out:
	free(space);
	return r;
}

static int source_make(struct echo_service *echo)
{
	int r = 0;

	gx_env_mutex_lock(echo->env, &echo->lock);
	if (!echo->source_data) {
		echo->source_data = gx_alloc_pages(ECHO_SOURCE_MAX);
		if (echo->source_data) {
			/* A pattern in which every 8-byte word differs. */
			for (uint64_t i = 0; i < ECHO_SOURCE_MAX / 8; i++) {
				uint64_t word = i * UINT64_C(0x9e3779b97f4a7c15);

				memcpy(echo->source_data + 8 * i, &word, 8);
			}
		} else {
			r = -ENOMEM;
		}
	}
	gx_env_mutex_unlock(echo->env, &echo->lock);
	return r;
}

int echo_op_source(struct rpc_call *call, const PbEcho__SourceRequest *request,
		   PbEcho__SourceReply *reply)
{
	struct echo_service *echo = call->data;
	int r;

	if (request->bytes > ECHO_SOURCE_MAX)
		return rpc_call_fail(call, -E2BIG, "at most %u bytes", ECHO_SOURCE_MAX);
	r = source_make(echo);
	if (r < 0)
		return r;
	reply->bytes = request->bytes;
	call->reply_payload = echo->source_data;
	call->reply_payload_bytes = request->bytes;
	return 0;
}

/* -- tally -------------------------------------------------------------------------- */

struct echo_delay {
	struct echo_delay *prev, *next;
	struct echo_service *echo;
	struct rpc_call *call;
	struct gx_timer timer;
};

static void delay_end(struct echo_delay *delay, int err)
{
	struct rpc_call *call = delay->call;

	DL_DELETE(delay->echo->delays, delay);
	gx_timer_stop(&delay->timer);
	free(delay);
	rpc_call_finish(call, err);
}

static void on_delay(struct gx_timer *timer)
{
	delay_end(GX_CONTAINER_OF(timer, struct echo_delay, timer), 0);
}

static int delay_start(struct echo_service *echo, struct rpc_call *call, uint32_t delay_ms)
{
	struct echo_delay *delay = calloc(1, sizeof(*delay));
	int r;

	if (!delay)
		return -ENOMEM;
	delay->echo = echo;
	delay->call = call;
	r = gx_timer_start(echo->loop, &delay->timer, gx_env_deadline_ms(call->env, delay_ms),
			   on_delay);
	if (r < 0) {
		free(delay);
		return r;
	}
	DL_APPEND(echo->delays, delay);
	return RPC_DEFERRED;
}

int echo_op_tally(struct rpc_call *call, const PbEcho__TallyRequest *request,
		  PbEcho__TallyReply *reply)
{
	struct echo_service *echo = call->data;
	int r = 0;

	if (request->delay_ms > DELAY_MAX_MS)
		return rpc_call_fail(call, -E2BIG, "at most %u ms of delay", DELAY_MAX_MS);
	if (request->delay_ms > 0) {
		if (!echo->loop)
			return rpc_call_fail(call, -EOPNOTSUPP, "delays need a loop server");
		r = delay_start(echo, call, request->delay_ms);
		if (r < 0)
			return r;
	}
	/* Nothing after this may fail: it is done. Other connections may have threads of their own.
	 */
	gx_env_mutex_lock(echo->env, &echo->lock);
	if (__builtin_add_overflow(echo->tally, request->add, &echo->tally))
		echo->tally = 0;
	echo->tally_calls++;
	reply->value = echo->tally;
	gx_env_mutex_unlock(echo->env, &echo->lock);
	return r;
}

void echo_service_fini(struct echo_service *echo)
{
	while (echo->delays)
		delay_end(echo->delays, -ECANCELED);
	if (echo->env)
		gx_env_mutex_fini(echo->env, &echo->lock);
	free(echo->source_data);
	echo->source_data = NULL;
	echo->env = NULL;
}

/* -- push --------------------------------------------------------------------------------- */

struct emit {
	struct rpc_call *call;
	uint32_t waiting; /* pushes not answered yet, plus one while they are being sent */
	uint32_t acknowledged;
	int err;
};

static void emit_count(struct emit *emit)
{
	if (--emit->waiting > 0)
		return;
	((PbEcho__EmitReply *)emit->call->reply)->acknowledged = emit->acknowledged;
	rpc_call_finish(emit->call, emit->err);
	free(emit);
}

static void on_tick_ack(void *arg, int err)
{
	struct emit *emit = arg;

	if (err == 0)
		emit->acknowledged++;
	else
		emit->err = err == -ECONNRESET ? -ENOTCONN : err;
	emit_count(emit);
}

int echo_op_emit(struct rpc_call *call, const PbEcho__EmitRequest *request,
		 PbEcho__EmitReply *reply GX_UNUSED)
{
	struct echo_service *echo = call->data;
	struct emit *emit;

	if (!echo->server)
		return rpc_call_fail(call, -EOPNOTSUPP, "pushes need a loop server");
	if (request->count > EMIT_MAX)
		return rpc_call_fail(call, -E2BIG, "at most %u ticks", EMIT_MAX);
	emit = calloc(1, sizeof(*emit));
	if (!emit)
		return -ENOMEM;
	emit->call = call;
	emit->waiting = 1;
	for (uint32_t i = 0; i < request->count && emit->err == 0; i++) {
		PbEcho__TickRequest tick = PB_ECHO__TICK_REQUEST__INIT;
		int r;

		tick.number = i + 1;
		r = rpc_server_push(echo->server, call->session, RPC_TICK, &tick.base, on_tick_ack,
				    emit);
		if (r < 0)
			emit->err = r;
		else
			emit->waiting++;
	}
	/* Pushes already sent still answer; the last one ends the call. */
	emit_count(emit);
	return RPC_DEFERRED;
}
