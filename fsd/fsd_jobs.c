/*
 * fsd_jobs.c - metad's jobs for this node, their results, and notes about objects.
 *
 * A job stays in the list until metad has answered the NodeWork that told its result; given again
 * meanwhile it is not done again. A note likewise. See fsd_agent.c for which life of metad is told
 * what.
 */
#define GX_LOG_COMPONENT "fsd.jobs"
#include "common/gx_log.h"
#include "common/gx_secret.h"
#include "fsd/fsd_agent_impl.h"
#include "rpc/rpc_arena.h"
#include "rpc/rpc_status.h"
#include <utlist.h>

#define TELL_RESULTS_MAX 256u /* in one NodeWork */
#define TELL_NOTES_MAX 1024u
#define JOBS_QUEUE_MAX 1024u /* metad gives far fewer; the rest is given again */
#define NOTES_MAX 65536u     /* while metad is away; then the newest are dropped */

/* -- jobs and notes ---------------------------------------------------------------------------- */

static void job_free(struct fsd_job *job)
{
	if (!job)
		return;
	for (size_t i = 0; job->told && i < job->told->n_sources; i++)
		gx_wipe(job->told->sources[i]->session_key.data,
			job->told->sources[i]->session_key.len);
	pb_meta__job__free_unpacked(job->told, rpc_heap());
	free(job);
}

static int job_copy(const PbMeta__Job *from, PbMeta__Job **ret_copy)
{
	size_t bytes = pb_meta__job__get_packed_size(from);
	uint8_t *packed = malloc(bytes + 1);

	if (!packed)
		return -ENOMEM;
	pb_meta__job__pack(from, packed);
	*ret_copy = pb_meta__job__unpack(rpc_heap(), bytes, packed);
	gx_wipe(packed, bytes); /* keys of sessions */
	free(packed);
	return *ret_copy ? 0 : -ENOMEM;
}

/* Under the lock. */
static struct fsd_job *job_find(struct fsd_agent *agent, uint64_t life, uint64_t id)
{
	struct fsd_job *job;

	DL_FOREACH (agent->jobs, job) {
		if (job->life == life && job->told->id == id)
			return job;
	}
	return NULL;
}

/* Under the lock. */
static void job_forget(struct fsd_agent *agent, struct fsd_job *job)
{
	DL_DELETE(agent->jobs, job);
	agent->job_count--;
	job_free(job);
}

/* Under the lock. One we have already, in work or done, is not a new one. */
static void job_take(struct fsd_agent *agent, uint64_t life, const PbMeta__Job *told)
{
	struct fsd_job *job;

	if (job_find(agent, life, told->id) || agent->job_count >= JOBS_QUEUE_MAX)
		return;
	job = calloc(1, sizeof(*job));
	if (!job)
		return; /* it will be given again */
	job->life = life;
	if (job_copy(told, &job->told) < 0) {
		job_free(job);
		return;
	}
	DL_APPEND(agent->jobs, job);
	agent->job_count++;
	gx_env_cond_broadcast(agent->env, &agent->changed);
}

/* Under the lock: what was given by lives of metad that are over. */
static void drop_old_jobs(struct fsd_agent *agent)
{
	struct fsd_job *job, *tmp;

	DL_FOREACH_SAFE (agent->jobs, job, tmp) {
		if (job->life != agent->life && job->state != FSD_JOB_WORKING && !job->telling)
			job_forget(agent, job);
	}
}

void fsd_agent_note(struct fsd_agent *agent, const struct fsd_object_id *id, unsigned what,
		    uint64_t clock)
{
	struct fsd_note *note;

	if (!agent || id->generation == FSD_COPY_GENERATION)
		return;
	note = calloc(1, sizeof(*note));
	fsd_agent_lock(agent);
	if (note && agent->note_count < NOTES_MAX) {
		*note = (struct fsd_note){.id = *id, .what = what, .clock = clock};
		DL_APPEND(agent->notes, note);
		agent->note_count++;
		gx_env_cond_broadcast(agent->env, &agent->changed);
	} else {
		free(note);
		agent->notes_dropped++;
	}
	fsd_agent_unlock(agent);
}

/* -- doing jobs -------------------------------------------------------------------------------- */

/* Rule B2: from now on no other generation is served here, and what there is is on disk. */
static int recover(struct fsd_agent *agent, struct fsd_job *job)
{
	struct rpc_file_ticket ticket = {.rights = RPC_FILE_READ,
					 .ino = job->told->ino,
					 .generation = job->told->generation,
					 .base = job->told->from_generation,
					 .size_max = UINT64_MAX};
	struct fsd_table *table = agent->server->table;
	struct fsd_ref ref;
	int r = fsd_table_get(table, &ticket, &ref);

	/*
	 * metad has named this node, so what it has is what counts, whether or not the writer who
	 * vanished had got so far as to move it on.
	 */
	if (r == -ESTALE &&
	    fsd_table_below(table, ticket.ino, ticket.generation, &ticket.base) == 0)
		r = fsd_table_get(table, &ticket, &ref);
	if (r < 0)
		return r;
	r = fsd_object_sync_settled(ref.object);
	job->size_bytes = fsd_object_size(ref.object);
	job->stable = r == 0;
	fsd_table_put(table, &ref);
	return r;
}

static int work(struct fsd_agent *agent, struct fsd_job *job)
{
	struct fsd_object_id id = {.ino = job->told->ino, .generation = job->told->generation};
	int r;

	switch (job->told->kind) {
	case 1:
		r = fsd_copy_job(agent->server, job->told, &job->size_bytes);
		job->stable = r == 0;
		return r;
	case 2:
		return fsd_table_remove(agent->server->table, &id);
	case 3:
		return recover(agent, job);
	default:
		return -ENOSYS; /* of a newer metad */
	}
}

/* Under the lock. */
static struct fsd_job *next_job(struct fsd_agent *agent)
{
	struct fsd_job *job;

	DL_FOREACH (agent->jobs, job) {
		if (job->state == FSD_JOB_WAITING && job->life == agent->life)
			return job;
	}
	return NULL;
}

void fsd_worker_main(void *arg)
{
	struct fsd_agent *agent = arg;
	struct fsd_job *job;
	int r;

	fsd_agent_lock(agent);
	while (!agent->stopping) {
		job = next_job(agent);
		if (!job) {
			/* Woken or not, the list is looked at again. */
			GX_IGNORE(gx_env_cond_wait(agent->env, &agent->changed, &agent->lock,
						   GX_FOREVER));
			continue;
		}
		job->state = FSD_JOB_WORKING;
		fsd_agent_unlock(agent);
		r = work(agent, job);
		gx_log(INFO, "job done", GX_KU("kind", job->told->kind),
		       GX_KX("ino", job->told->ino), GX_KU("generation", job->told->generation),
		       GX_KU("size", job->size_bytes), GX_KE(r));
		fsd_agent_lock(agent);
		job->status = rpc_status_from_errno(r, NULL);
		job->state = FSD_JOB_DONE;
		gx_env_cond_broadcast(agent->env, &agent->changed);
	}
	fsd_agent_unlock(agent);
}

/* -- telling ----------------------------------------------------------------------------------- */

/* What one NodeWork says. The jobs and notes are marked, so nobody else says or frees them. */
struct news {
	PbMeta__NodeWorkRequest request;
	PbMeta__JobDone done[TELL_RESULTS_MAX], *done_list[TELL_RESULTS_MAX];
	PbMeta__ObjectNote notes[TELL_NOTES_MAX], *note_list[TELL_NOTES_MAX];
	uint64_t life;
	uint64_t lost_answers; /* when it was gathered */
};

/* Under the lock. */
static bool has_news(struct fsd_agent *agent)
{
	struct fsd_note *note;
	struct fsd_job *job;

	DL_FOREACH (agent->jobs, job) {
		if (job->state == FSD_JOB_DONE && !job->telling && job->life == agent->life)
			return true;
	}
	DL_FOREACH (agent->notes, note) {
		if (!note->telling)
			return true;
	}
	return false;
}

bool fsd_jobs_untold(const struct fsd_agent *agent)
{
	const struct fsd_job *job;

	DL_FOREACH (agent->jobs, job) {
		if (job->state == FSD_JOB_DONE && job->life == agent->life)
			return true;
	}
	return agent->notes != NULL;
}

static void news_gather(struct fsd_agent *agent, uint64_t life, struct news *news)
{
	PbMeta__NodeWorkRequest *request = &news->request;
	struct fsd_note *note;
	struct fsd_job *job;

	pb_meta__node_work_request__init(request);
	request->name = (char *)agent->server->options.name;
	request->boot = agent->server->boot;
	request->done = news->done_list;
	request->notes = news->note_list;
	news->life = life;
	fsd_agent_lock(agent);
	news->lost_answers = agent->lost_answers;
	request->again = agent->lost_answers != agent->lost_told;
	drop_old_jobs(agent);
	DL_FOREACH (agent->jobs, job) {
		PbMeta__JobDone *done = &news->done[request->n_done];

		if (job->state != FSD_JOB_DONE || job->telling || job->life != life)
			continue;
		if (request->n_done == TELL_RESULTS_MAX)
			break;
		pb_meta__job_done__init(done);
		done->id = job->told->id;
		done->status = job->status;
		done->size = job->size_bytes;
		done->stable = job->stable;
		job->telling = true;
		news->done_list[request->n_done++] = done;
	}
	DL_FOREACH (agent->notes, note) {
		PbMeta__ObjectNote *told = &news->notes[request->n_notes];

		if (request->n_notes == TELL_NOTES_MAX)
			break;
		if (note->telling)
			continue;
		pb_meta__object_note__init(told);
		told->ino = note->id.ino;
		told->generation = note->id.generation;
		told->what = note->what;
		told->clock = note->clock;
		note->telling = true;
		news->note_list[request->n_notes++] = told;
	}
	fsd_agent_unlock(agent);
}

/* Under the lock: notes this request has told, in the order of the list. */
static void notes_told(struct fsd_agent *agent, const struct news *news, bool taken)
{
	struct fsd_note *note, *tmp;
	size_t i = 0;

	DL_FOREACH_SAFE (agent->notes, note, tmp) {
		const PbMeta__ObjectNote *told = &news->notes[i];

		if (i == news->request.n_notes)
			return;
		if (!note->telling || note->id.ino != told->ino ||
		    note->id.generation != told->generation || note->what != told->what ||
		    note->clock != told->clock)
			continue;
		i++;
		note->telling = false;
		if (!taken)
			continue;
		DL_DELETE(agent->notes, note);
		agent->note_count--;
		free(note);
	}
}

/* metad has answered, or (not `taken`) nobody knows whether it has heard. */
static void news_told(struct fsd_agent *agent, const struct news *news, bool taken,
		      const PbMeta__NodeWorkReply *answer)
{
	struct fsd_job *job;
	size_t dropped;

	fsd_agent_lock(agent);
	for (size_t i = 0; i < news->request.n_done; i++) {
		job = job_find(agent, news->life, news->done[i].id);
		job->telling = false;
		if (taken)
			job_forget(agent, job);
	}
	notes_told(agent, news, taken);
	if (taken)
		agent->lost_told = GX_MAX(agent->lost_told, news->lost_answers);
	else
		agent->lost_answers++;
	for (size_t i = 0; answer && i < answer->n_jobs; i++)
		job_take(agent, news->life, answer->jobs[i]);
	dropped = taken ? agent->notes_dropped : 0;
	agent->notes_dropped -= dropped;
	gx_env_cond_broadcast(agent->env, &agent->changed);
	fsd_agent_unlock(agent);
	if (dropped > 0)
		gx_log(WARNING, "metad was away too long: it was not told all about the objects",
		       GX_KU("notes", dropped));
}

/* One NodeWork. */
static int node_work(struct fsd_line *line, struct news *news)
{
	struct fsd_agent *agent = line->agent;
	struct rpc_reply reply;
	bool settled;
	uint64_t life;
	int r;

	r = fsd_line_begin(line, &life);
	if (r < 0)
		return r;
	fsd_agent_lock(agent);
	settled = agent->settled && agent->life == life;
	fsd_agent_unlock(agent);
	if (!settled) {
		fsd_line_end(line);
		return -ENOENT;
	}
	news_gather(agent, life, news);
	r = fsd_line_call(line, RPC_INDEX_NODE_WORK, &news->request.base, &reply);
	news_told(agent, news, r == 0,
		  r == 0 ? (const PbMeta__NodeWorkReply *)reply.message : NULL);
	rpc_reply_fini(&reply);
	fsd_line_end(line);
	return r;
}

/* Waits until there is somebody to talk to (and `news`: something to say); false: the end. */
static bool wait_for_turn(struct fsd_agent *agent, bool news)
{
	bool go_on;

	fsd_agent_lock(agent);
	while (!agent->stopping && (!agent->settled || (news && !has_news(agent))))
		GX_IGNORE(gx_env_cond_wait(agent->env, &agent->changed, &agent->lock, GX_FOREVER));
	go_on = !agent->stopping;
	fsd_agent_unlock(agent);
	return go_on;
}

static void talk(struct fsd_line *line, bool news_only)
{
	struct fsd_agent *agent = line->agent;
	GX_AUTOFREE struct news *news = NULL;

	while (wait_for_turn(agent, news_only)) {
		int r = news || (news = malloc(sizeof(*news))) ? node_work(line, news) : -ENOMEM;

		if (r == 0) {
			line->pause_ns = FSD_AGENT_PAUSE_MIN_NS;
			continue;
		}
		if (r == -ENOENT) {
			fsd_agent_lock(agent);
			fsd_agent_unsettle(agent);
			fsd_agent_unlock(agent);
		}
		fsd_line_pause(line);
	}
}

void fsd_poll_main(void *arg)
{
	talk(arg, false);
}

void fsd_tell_main(void *arg)
{
	talk(arg, true);
}

void fsd_jobs_fini(struct fsd_agent *agent)
{
	struct fsd_note *note, *note_tmp;
	struct fsd_job *job, *job_tmp;

	DL_FOREACH_SAFE (agent->jobs, job, job_tmp)
		job_forget(agent, job);
	DL_FOREACH_SAFE (agent->notes, note, note_tmp) {
		DL_DELETE(agent->notes, note);
		free(note);
	}
}
