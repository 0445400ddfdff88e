/*
 * fsd_agent.c - this node in metad's eyes: registered, compared, heard of; its jobs and notes.
 *
 * Threads: `control` registers, tells which objects there are and then sends heartbeats; `poll`
 * sits in NodeWork, waiting for jobs; `tell` asks the same as soon as there is something to tell,
 * because the poll would tell it only when it returns; and the workers do jobs. Each of the first
 * three has a line to metad: a connection of the client's pool, borrowed for one call.
 *
 * The life of metad (boot number of the connection) decides what may be said. Job ids mean
 * something only to the life that gave them, so a job carries its life, and its result goes to that
 * life or nowhere: another one has the work in its own queues and gives it again, and what is done
 * already is done quickly. That is why calls go over borrowed connections and not through
 * rpc_client_call(), which would say the same words to whoever answers next. Notes are about
 * objects and outlive metad.
 *
 * metad away: this thread pauses, longer each time, and tries again; nothing here keeps the node
 * from serving.
 */
#define GX_LOG_COMPONENT "fsd.agent"
#include "common/gx_broken.h"
#include "common/gx_log.h"
#include "fsd/fsd_agent_impl.h"
#include "rpc/rpc_status.h"

/* A call that takes longer is tried again; metad answers NodeWork after a second at most. */
#define CALL_NS (5 * GX_NSEC_PER_SEC)
/* A connection. Not to be cut short, so this is how long an end takes while metad is away. */
#define REACH_NS (2 * GX_NSEC_PER_SEC)
/* Saying the last things, and goodbye. */
#define LEAVE_NS GX_NSEC_PER_SEC
#define PAUSE_MAX_NS (2 * GX_NSEC_PER_SEC)
#define BEAT_MIN_MS 10u
#define BEAT_MAX_MS 60000u
#define COMPLAIN_NS (60 * GX_NSEC_PER_SEC)
#define INVENTORY_PAGE 2048u /* objects in one NodeInventory */

/* -- calls to metad ---------------------------------------------------------------------------- */

void fsd_agent_unsettle(struct fsd_agent *agent)
{
	agent->settled = false;
	gx_env_cond_broadcast(agent->env, &agent->changed);
}

/*
 * An rpc_resume_fn: metad has been restarted and waits for the sessions it knows (rule N4). Ours
 * has no files and no mutations.
 */
static int on_resume(void *arg, struct rpc_chan *chan, const struct rpc_chan_info *info,
		     int64_t deadline_ns)
{
	PbMeta__ResumeRequest message = PB_META__RESUME_REQUEST__INIT;
	struct rpc_request request = {.method = rpc_method_get(RPC_INDEX_RESUME),
				      .message = &message.base,
				      .deadline_ns = deadline_ns};
	struct fsd_agent *agent = arg;
	struct rpc_reply reply;
	uint64_t call;
	int r;

	fsd_agent_lock(agent);
	fsd_agent_unsettle(agent);
	fsd_agent_unlock(agent);
	if (!info->session_known)
		return 0;
	message.last = true;
	message.next_seq = 1;
	rpc_reply_init(&reply);
	r = rpc_chan_submit(chan, &request, &call, NULL);
	if (r == 0)
		r = rpc_chan_wait(chan, call, &reply);
	/* Whatever metad says to it: what we want is asked next. */
	rpc_reply_fini(&reply);
	return r;
}

int fsd_line_begin(struct fsd_line *line, uint64_t *ret_life)
{
	struct fsd_agent *agent = line->agent;
	struct rpc_chan_info info;
	struct rpc_chan *chan;
	bool stopping;
	int r;

	r = rpc_client_borrow(agent->client, gx_env_now_ns(agent->env) + REACH_NS, NULL, &chan);
	if (r < 0)
		return r;
	rpc_chan_info(chan, &info);
	fsd_agent_lock(agent);
	stopping = agent->stopping;
	if (!stopping)
		line->chan = chan;
	fsd_agent_unlock(agent);
	if (stopping) {
		rpc_client_return(agent->client, chan);
		return -ECANCELED;
	}
	*ret_life = info.boot;
	return 0;
}

void fsd_line_end(struct fsd_line *line)
{
	struct fsd_agent *agent = line->agent;
	struct rpc_chan *chan;

	fsd_agent_lock(agent);
	chan = GX_TAKE(line->chan);
	fsd_agent_unlock(agent);
	rpc_client_return(agent->client, chan);
}

int fsd_line_call(struct fsd_line *line, enum rpc_method_index method,
		  const ProtobufCMessage *message, struct rpc_reply *reply)
{
	struct rpc_request request = {.method = rpc_method_get(method),
				      .message = message,
				      .deadline_ns = gx_env_now_ns(line->agent->env) + CALL_NS};
	uint64_t call;
	int r;

	rpc_reply_init(reply);
	r = rpc_chan_submit(line->chan, &request, &call, NULL);
	if (r == 0)
		r = rpc_chan_wait(line->chan, call, reply);
	return r < 0 ? r : rpc_status_to_errno(reply->status);
}

/* The first failure is told, and then one a minute. */
static void complain(struct fsd_agent *agent, int err, const char *detail)
{
	int64_t now = gx_env_now_ns(agent->env);
	bool tell;

	fsd_agent_lock(agent);
	tell = !agent->stopping && (!agent->away || now - agent->complained_ns >= COMPLAIN_NS);
	if (tell) {
		agent->away = true;
		agent->complained_ns = now;
	}
	fsd_agent_unlock(agent);
	if (tell)
		gx_log(WARNING, "metad does not take this node, trying again",
		       GX_KS("detail", detail), GX_KE(err));
}

void fsd_line_pause(struct fsd_line *line)
{
	struct fsd_agent *agent = line->agent;
	int64_t until = gx_env_now_ns(agent->env) + line->pause_ns;

	line->pause_ns = GX_MIN(2 * line->pause_ns, PAUSE_MAX_NS);
	fsd_agent_lock(agent);
	while (!agent->stopping &&
	       gx_env_cond_wait(agent->env, &agent->changed, &agent->lock, until) == 0)
		;
	fsd_agent_unlock(agent);
}

bool fsd_agent_stopping(struct fsd_agent *agent)
{
	bool stopping;

	if (!agent)
		return false;
	fsd_agent_lock(agent);
	stopping = agent->stopping;
	fsd_agent_unlock(agent);
	return stopping;
}

/* -- control: registering ---------------------------------------------------------------------- */

static int register_node(struct fsd_line *line)
{
	PbMeta__NodeRegisterRequest request = PB_META__NODE_REGISTER_REQUEST__INIT;
	PbMeta__Node node = PB_META__NODE__INIT;
	struct fsd_agent *agent = line->agent;
	struct fsd_server *server = agent->server;
	const PbMeta__NodeRegisterReply *answer;
	struct rpc_reply reply;
	uint32_t beat_ms;
	int r;

	node.name = (char *)server->options.name;
	node.kind = (char *)"fsd";
	node.addresses = agent->addresses;
	node.n_addresses = agent->address_count;
	node.host = (char *)server->options.host;
	node.group = (char *)(server->options.group ? server->options.group : "");
	node.boot = server->boot;
	fsd_table_space(server->table, &node.capacity_bytes, &node.free_bytes);
	request.node = &node;
	r = fsd_line_call(line, RPC_INDEX_NODE_REGISTER, &request.base, &reply);
	if (r == 0) {
		answer = (const PbMeta__NodeRegisterReply *)reply.message;
		beat_ms = GX_MIN(GX_MAX(answer->heartbeat_ms, BEAT_MIN_MS), BEAT_MAX_MS);
		agent->beat_ns = beat_ms * GX_NSEC_PER_MSEC;
		agent->epoch = answer->epoch;
	} else {
		complain(agent, r, reply.detail);
	}
	rpc_reply_fini(&reply);
	return r;
}

/* -- control: which objects there are (rule N9) ------------------------------------------------ */

static void put_aside(struct fsd_agent *agent, const PbMeta__ObjectInfo *info)
{
	struct fsd_object_id id = {.ino = info->ino, .generation = info->generation};
	int r = GX_BROKEN(29) ? fsd_table_remove(agent->server->table, &id)
			      : fsd_table_quarantine(agent->server->table, &id);

	if (r == -ENOENT)
		return;
	if (r < 0)
		gx_log(WARNING, "cannot put an object aside that metad does not know",
		       GX_KX("ino", id.ino), GX_KU("generation", id.generation), GX_KE(r));
	else
		gx_log(NOTICE, "an object that metad does not know is put aside",
		       GX_KX("ino", id.ino), GX_KU("generation", id.generation));
}

/* What a copy left when this node was ended in the middle of it. */
static void sweep(struct fsd_agent *agent, uint64_t ino)
{
	struct fsd_object_id id = {.ino = ino, .generation = FSD_COPY_GENERATION};
	int r;

	if (agent->swept)
		return;
	r = fsd_table_remove(agent->server->table, &id);
	if (r < 0)
		gx_log(WARNING, "cannot remove half a copy", GX_KX("ino", ino), GX_KE(r));
}

/* A page as metad gets it: without half copies. */
static size_t trim_page(struct fsd_agent *agent, PbMeta__ObjectInfo *page, size_t count,
			PbMeta__ObjectInfo **list)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		if (page[i].generation == FSD_COPY_GENERATION)
			sweep(agent, page[i].ino);
		else
			list[kept++] = &page[i];
	}
	return kept;
}

static int tell_page(struct fsd_line *line, uint64_t first, uint64_t last,
		     PbMeta__ObjectInfo **list, size_t count, bool believed)
{
	PbMeta__NodeInventoryRequest request = PB_META__NODE_INVENTORY_REQUEST__INIT;
	struct fsd_agent *agent = line->agent;
	const PbMeta__NodeInventoryReply *answer;
	struct rpc_reply reply;
	int r;

	request.name = (char *)agent->server->options.name;
	request.boot = agent->server->boot;
	request.first = first;
	request.last = last;
	request.objects = list;
	request.n_objects = count;
	r = fsd_line_call(line, RPC_INDEX_NODE_INVENTORY, &request.base, &reply);
	if (r == 0) {
		answer = (const PbMeta__NodeInventoryReply *)reply.message;
		for (size_t i = 0; believed && i < answer->n_unknown; i++)
			put_aside(agent, answer->unknown[i]);
		for (size_t i = 0; i < answer->n_unstable; i++)
			fsd_syncer_look(agent->server->syncer,
					&(struct fsd_object_id){
						.ino = answer->unstable[i]->ino,
						.generation = answer->unstable[i]->generation});
	} else {
		complain(agent, r, reply.detail);
	}
	rpc_reply_fini(&reply);
	return r;
}

static int take_inventory(struct fsd_line *line, bool believed)
{
	struct fsd_agent *agent = line->agent;
	GX_AUTOFREE PbMeta__ObjectInfo *page = calloc(INVENTORY_PAGE, sizeof(*page));
	GX_AUTOFREE PbMeta__ObjectInfo **list = calloc(INVENTORY_PAGE, sizeof(*list));
	uint64_t first = 0, last;
	size_t count;
	int r;

	if (!page || !list)
		return -ENOMEM;
	do {
		for (size_t i = 0; i < INVENTORY_PAGE; i++)
			pb_meta__object_info__init(&page[i]);
		r = fsd_table_list(agent->server->table, first, INVENTORY_PAGE, page, &count);
		if (r < 0)
			return gx_log_errno(WARNING, r, "cannot list the objects");
		last = count > 0 ? page[count - 1].ino : UINT64_MAX;
		count = trim_page(agent, page, count, list);
		r = tell_page(line, first, last, list, count, believed);
		if (r < 0)
			return r;
		first = last + 1;
	} while (last != UINT64_MAX && !fsd_agent_stopping(agent));
	agent->swept = true;
	return 0;
}

/* A metad that was restored from an old backup does not know what it is missing. */
static bool believe(struct fsd_agent *agent)
{
	int r = fsd_table_epoch(agent->server->table, agent->epoch);

	if (r == -ESTALE)
		gx_log(WARNING,
		       "metad is older than what this node has seen: unknown objects stay here",
		       GX_KU("epoch", agent->epoch));
	else if (r < 0)
		gx_log(WARNING, "cannot keep metad's epoch: unknown objects stay here", GX_KE(r));
	return r == 0 || GX_BROKEN(49);
}

/* Registers and compares, all with one life of metad. */
static int settle(struct fsd_line *line)
{
	struct fsd_agent *agent = line->agent;
	uint64_t life;
	int r;

	r = fsd_line_begin(line, &life);
	if (r < 0) {
		complain(agent, r, "");
		return r;
	}
	r = register_node(line);
	if (r == 0)
		r = take_inventory(line, believe(agent));
	fsd_line_end(line);
	if (r < 0)
		return r;
	fsd_agent_lock(agent);
	agent->settled = !agent->stopping;
	agent->life = life;
	agent->away = false;
	gx_env_cond_broadcast(agent->env, &agent->changed);
	fsd_agent_unlock(agent);
	atomic_store(&agent->known, true);
	gx_log(NOTICE, "registered with metad", GX_KS("name", agent->server->options.name),
	       GX_KU("epoch", agent->epoch));
	return 0;
}

/* -- control: heartbeats ----------------------------------------------------------------------- */

/*
 * How much of the time since the last beat a handler of the data service was at work, in percent of
 * one thread, 100 at most.
 */
static uint32_t load_percent(struct fsd_agent *agent)
{
	struct rpc_dispatcher *d = &agent->server->dispatcher;
	uint64_t now = (uint64_t)gx_env_now_ns(agent->env), busy = 0, percent;

	rpc_dispatcher_lock(d);
	for (size_t i = 0; i < RPC_METHOD_COUNT; i++)
		busy += d->stats.methods[i].latency.sum_ns;
	rpc_dispatcher_unlock(d);
	percent = agent->busy_at_ns > 0
			  ? 100 * (busy - agent->busy_ns) / GX_MAX(now - agent->busy_at_ns, 1u)
			  : 0;
	agent->busy_ns = busy;
	agent->busy_at_ns = now;
	return (uint32_t)GX_MIN(percent, 100u);
}

/* 0; -ENOENT: it is another life of metad, or it has forgotten us. */
static int beat(struct fsd_line *line)
{
	PbMeta__NodeHeartbeatRequest request = PB_META__NODE_HEARTBEAT_REQUEST__INIT;
	struct fsd_agent *agent = line->agent;
	const PbMeta__NodeHeartbeatReply *answer;
	struct rpc_reply reply;
	uint64_t life, capacity;
	int r;

	r = fsd_line_begin(line, &life);
	if (r < 0) {
		complain(agent, r, "");
		return r;
	}
	request.name = (char *)agent->server->options.name;
	request.boot = agent->server->boot;
	request.load_percent = load_percent(agent);
	fsd_table_space(agent->server->table, &capacity, &request.free_bytes);
	rpc_reply_init(&reply);
	r = life == agent->life
		    ? fsd_line_call(line, RPC_INDEX_NODE_HEARTBEAT, &request.base, &reply)
		    : -ENOENT;
	if (r == 0) {
		answer = (const PbMeta__NodeHeartbeatReply *)reply.message;
		r = answer->epoch == agent->epoch ? 0 : -ENOENT;
	} else if (r != -ENOENT) {
		complain(agent, r, reply.detail);
	}
	rpc_reply_fini(&reply);
	fsd_line_end(line);
	return r;
}

/* Waits until the next beat is due; false: there is to be none. */
static bool wait_for_beat(struct fsd_agent *agent)
{
	int64_t due = gx_env_now_ns(agent->env) + agent->beat_ns;
	bool go_on;

	fsd_agent_lock(agent);
	while (agent->settled && !agent->stopping &&
	       gx_env_cond_wait(agent->env, &agent->changed, &agent->lock, due) == 0)
		;
	go_on = agent->settled && !agent->stopping;
	fsd_agent_unlock(agent);
	return go_on;
}

static void send_beats(struct fsd_line *line)
{
	struct fsd_agent *agent = line->agent;
	int64_t warned_ns = gx_env_now_ns(agent->env);

	while (wait_for_beat(agent)) {
		int r = beat(line);

		if (r == 0) {
			line->pause_ns = FSD_AGENT_PAUSE_MIN_NS;
			fsd_agent_lock(agent);
			agent->away = false;
			fsd_agent_unlock(agent);
		} else if (r == -ENOENT) {
			fsd_agent_lock(agent);
			fsd_agent_unsettle(agent);
			fsd_agent_unlock(agent);
		} else {
			fsd_line_pause(line);
		}
		if (gx_env_now_ns(agent->env) - warned_ns >= COMPLAIN_NS) {
			warned_ns = gx_env_now_ns(agent->env);
			GX_IGNORE(believe(agent)); /* for the warning, each minute */
		}
	}
}

static void control_main(void *arg)
{
	struct fsd_line *line = arg;
	struct fsd_agent *agent = line->agent;

	while (!fsd_agent_stopping(agent)) {
		if (settle(line) < 0) {
			fsd_line_pause(line);
			continue;
		}
		line->pause_ns = FSD_AGENT_PAUSE_MIN_NS;
		send_beats(line);
	}
}

/* -- life -------------------------------------------------------------------------------------- */

static int make_client(struct fsd_agent *agent)
{
	const struct fsd_server_options *options = &agent->server->options;
	struct rpc_client_options o = RPC_CLIENT_OPTIONS_INIT;

	o.env = agent->env;
	o.endpoint = options->metad;
	o.identity = options->key->identity;
	o.key = options->key->secret;
	o.program = options->program;
	o.connections_max = 3; /* one for each line */
	o.resume_fn = on_resume;
	o.arg = agent;
	return rpc_client_new(&o, &agent->client);
}

int fsd_agent_new(struct fsd_server *server, struct fsd_agent **ret_agent)
{
	struct fsd_agent *agent = calloc(1, sizeof(*agent));
	struct fsd_line *lines[] = {&agent->control, &agent->poll, &agent->tell};
	int r;

	if (!agent)
		return -ENOMEM;
	agent->server = server;
	agent->env = server->env;
	for (size_t i = 0; i < GX_COUNT_OF(lines); i++)
		*lines[i] = (struct fsd_line){.agent = agent, .pause_ns = FSD_AGENT_PAUSE_MIN_NS};
	r = gx_env_mutex_init(agent->env, &agent->lock);
	agent->lock_ready = r == 0;
	if (r == 0) {
		r = gx_env_cond_init(agent->env, &agent->changed);
		agent->changed_ready = r == 0;
	}
	if (r == 0)
		r = make_client(agent);
	if (r < 0) {
		fsd_agent_free(agent);
		return r;
	}
	*ret_agent = agent;
	return 0;
}

static int copy_addresses(struct fsd_agent *agent)
{
	const char *text = gx_buf_text(&agent->server->addresses);
	char *at;

	agent->address_text = text ? strdup(text) : NULL;
	if (!agent->address_text)
		return -ENOMEM;
	for (at = agent->address_text; *at && agent->address_count < FSD_AGENT_ADDRESSES_MAX;) {
		size_t bytes = strcspn(at, "\n");
		bool more = at[bytes] == '\n';

		at[bytes] = '\0';
		if (bytes > 0)
			agent->addresses[agent->address_count++] = at;
		at += bytes + more;
	}
	return agent->address_count > 0 ? 0 : -EDESTADDRREQ;
}

static int line_start(struct fsd_line *line, const char *name, gx_thread_fn fn)
{
	int r = gx_env_thread_start(line->agent->env, &line->thread, name, fn, line);

	line->started = r == 0;
	return r;
}

int fsd_agent_start(struct fsd_agent *agent)
{
	unsigned workers =
		GX_MIN(GX_MAX(agent->server->options.jobs_max, 1u), FSD_AGENT_WORKERS_MAX);
	int r = copy_addresses(agent);

	if (r == 0)
		r = line_start(&agent->control, "fsd-control", control_main);
	if (r == 0)
		r = line_start(&agent->poll, "fsd-poll", fsd_poll_main);
	if (r == 0)
		r = line_start(&agent->tell, "fsd-tell", fsd_tell_main);
	while (r == 0 && agent->worker_count < workers) {
		r = gx_env_thread_start(agent->env, &agent->workers[agent->worker_count], "fsd-job",
					fsd_worker_main, agent);
		if (r == 0)
			agent->worker_count++;
	}
	return r; /* what has been started ends with the agent */
}

/* No thread is left. A session that has not left is waited for by a metad that is restarted. */
static void leave(struct fsd_agent *agent)
{
	PbMeta__LeaveRequest request = PB_META__LEAVE_REQUEST__INIT;
	struct rpc_call_options options = {.deadline_ns = gx_env_now_ns(agent->env) + LEAVE_NS,
					   .fail_fast = true};
	struct rpc_reply reply;

	if (!agent->settled)
		return;
	/* If metad does not hear it, the session ends by itself later. */
	GX_IGNORE(rpc_client_call(agent->client, rpc_method_get(RPC_INDEX_LEAVE), &request.base,
				  &options, &reply));
	rpc_reply_fini(&reply);
}

/* What was synced at the end counts after a reboot only if metad knows (rule B3). */
static void tell_last(struct fsd_agent *agent)
{
	int64_t until = gx_env_now_ns(agent->env) + LEAVE_NS;
	int r = 0;

	while (r == 0 && agent->settled && fsd_jobs_untold(agent))
		r = gx_env_cond_wait(agent->env, &agent->changed, &agent->lock, until);
}

void fsd_agent_stop(struct fsd_agent *agent)
{
	struct fsd_line *lines[] = {&agent->control, &agent->poll, &agent->tell};

	if (fsd_agent_stopping(agent))
		return;
	fsd_agent_lock(agent);
	tell_last(agent);
	agent->stopping = true;
	for (size_t i = 0; i < GX_COUNT_OF(lines); i++)
		if (lines[i]->chan)
			rpc_chan_abort(lines[i]->chan);
	gx_env_cond_broadcast(agent->env, &agent->changed);
	fsd_agent_unlock(agent);
	for (size_t i = 0; i < GX_COUNT_OF(lines); i++)
		if (lines[i]->started)
			gx_env_thread_join(agent->env, &lines[i]->thread);
	for (unsigned i = 0; i < agent->worker_count; i++)
		gx_env_thread_join(agent->env, &agent->workers[i]);
	leave(agent);
}

void fsd_agent_free(struct fsd_agent *agent)
{
	if (!agent)
		return;
	if (agent->client)
		fsd_agent_stop(agent);
	fsd_jobs_fini(agent);
	rpc_client_free(agent->client);
	if (agent->changed_ready)
		gx_env_cond_fini(agent->env, &agent->changed);
	if (agent->lock_ready)
		gx_env_mutex_fini(agent->env, &agent->lock);
	free(agent->address_text);
	free(agent);
}

bool fsd_agent_known(struct fsd_agent *agent)
{
	return agent && atomic_load(&agent->known);
}
