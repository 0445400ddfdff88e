/*
 * sim_meta_model.h - what the directories of a worker may look like at any moment.
 *
 * Each worker has two directories that only it changes, one change after the other, and that all
 * others read. So its history is a row of states: state k is after its k-th change. Everything runs
 * in one real thread, so "before" has a meaning across processes, and a look at a worker's
 * directories must fit one state between
 *
 *	lo  the changes answered when the look began (rules N4, N5, N11), and all that others
 *	    have seen before; of a worker that died, when metad lost its power, only what was
 *	    synced (N6) or seen by another session (N4)
 *	hi  the changes begun when the look ended.
 *
 * At the end all of it together must be one such state: changes are lost from the end only.
 */
#ifndef SIM_META_MODEL_H
#define SIM_META_MODEL_H

#include "client/fs/gfc.h"

#define MODEL_DIRS 2u
#define MODEL_NAMES 5u
#define MODEL_INODES 32u /* made by one worker, in all */
#define MODEL_TOKENS 6u  /* of 8 bytes, in a file */
#define MODEL_STATES 96u

struct model_inode {
	uint64_t ino; /* 0: being made, nobody knows yet */
	uint32_t mode;
	uint32_t nlink;
	unsigned token_count;
	uint64_t tokens[MODEL_TOKENS];
};

struct model_state {
	int names[MODEL_DIRS][MODEL_NAMES]; /* which inode; -1: none */
	unsigned inode_count;
	struct model_inode inodes[MODEL_INODES];
};

struct model {
	struct model_state states[MODEL_STATES];
	unsigned started, answered;
	unsigned synced; /* known to be on disk */
	unsigned seen;   /* by another session */
};

void model_init(struct model *model);
static inline struct model_state *model_now(struct model *model)
{
	return &model->states[model->answered];
}
static inline bool model_full(const struct model *model)
{
	return model->answered + 2 >= MODEL_STATES ||
	       model->states[model->answered].inode_count + 1 >= MODEL_INODES;
}
/* The state after the next change, to be filled in before it is sent. */
struct model_state *model_begin(struct model *model);
/* It was answered. */
void model_end(struct model *model);

/* -- what changes do ------------------------------------------------------------------------- */

/* A new inode under the name; its number in the model. */
int model_make(struct model_state *state, unsigned dir, unsigned name, uint32_t mode);
void model_drop_name(struct model_state *state, unsigned dir, unsigned name);
/*
 * What rename will answer: 0 or a negative errno; with 0 the state is changed. `state` may be one
 * that nobody keeps.
 */
int model_rename(struct model_state *state, unsigned from_dir, unsigned from, unsigned to_dir,
		 unsigned to, unsigned flags);

/* -- looking ------------------------------------------------------------------------------------
 */

/* What somebody saw. Parts that were not looked at are not compared. */
struct model_look {
	unsigned lo_answered, lo_synced, lo_seen; /* when it began */

	bool by_name;
	unsigned dir, name;
	bool found;
	uint64_t ino; /* of the name; or whose attributes these are */

	bool has_attr; /* of inode `ino` */
	int attr_err;  /* -ENOENT: it is not there */
	struct gfc_attr attr;

	bool has_content; /* of inode `ino` */
	size_t bytes;
	uint64_t tokens[MODEL_TOKENS + 1];

	bool has_list; /* of directory `dir` */
	bool unknown_name;
	uint64_t list[MODEL_NAMES]; /* inode, 0: not there */
};

void model_look_begin(const struct model *model, struct model_look *ret_look);
/*
 * Does it fit? Then which changes it proves, else -1. `weak`: answered changes may have been lost.
 */
int model_look_end(const struct model *model, const struct model_look *look, bool weak);
/* For messages. */
void model_look_text(const struct model *model, const struct model_look *look, char *text,
		     size_t bytes);

/* -- all of it -----------------------------------------------------------------------------------
 */

struct model_file {
	bool found;
	struct gfc_attr attr;
	size_t bytes;
	uint64_t tokens[MODEL_TOKENS + 1];
};
/* A state in [lo, hi] that is exactly this, or -1. */
int model_find(const struct model *model, unsigned lo,
	       struct model_file files[MODEL_DIRS][MODEL_NAMES]);

#endif
