#include "tests/lib/sim_meta_model.h"
#include "include/gfs.h"
#include <stdio.h>

void model_init(struct model *model)
{
	model->started = model->answered = model->synced = model->seen = 0;
	model->states[0].inode_count = 0;
	for (unsigned d = 0; d < MODEL_DIRS; d++)
		for (unsigned n = 0; n < MODEL_NAMES; n++)
			model->states[0].names[d][n] = -1;
}

struct model_state *model_begin(struct model *model)
{
	gx_assert(model->answered + 1 < MODEL_STATES);
	model->states[model->answered + 1] = model->states[model->answered];
	model->started = model->answered + 1;
	return &model->states[model->started];
}

void model_end(struct model *model)
{
	model->answered = model->started;
}

/* -- changes ------------------------------------------------------------------------------------
 */

int model_make(struct model_state *state, unsigned dir, unsigned name, uint32_t mode)
{
	int i = (int)state->inode_count++;

	state->inodes[i] = (struct model_inode){.mode = mode, .nlink = S_ISDIR(mode) ? 2 : 1};
	state->names[dir][name] = i;
	return i;
}

static void drop_link(struct model_inode *inode)
{
	if (S_ISDIR(inode->mode))
		inode->nlink = 0;
	else
		inode->nlink--;
}

void model_drop_name(struct model_state *state, unsigned dir, unsigned name)
{
	drop_link(&state->inodes[state->names[dir][name]]);
	state->names[dir][name] = -1;
}

int model_rename(struct model_state *state, unsigned from_dir, unsigned from, unsigned to_dir,
		 unsigned to, unsigned flags)
{
	int *f = &state->names[from_dir][from], *t = &state->names[to_dir][to];
	int moved = *f;

	if (*f < 0)
		return -ENOENT;
	if (flags == GFS_RENAME_EXCHANGE) {
		if (*t < 0)
			return -ENOENT;
		*f = *t;
		*t = moved;
		return 0;
	}
	if (*t >= 0 && flags == GFS_RENAME_NOREPLACE)
		return -EEXIST;
	if (*t == *f)
		return 0;
	if (*t >= 0) {
		bool f_dir = S_ISDIR(state->inodes[*f].mode),
		     t_dir = S_ISDIR(state->inodes[*t].mode);

		if (f_dir != t_dir)
			return t_dir ? -EISDIR : -ENOTDIR;
		drop_link(&state->inodes[*t]);
	}
	*f = -1;
	*t = moved;
	return 0;
}

/* -- looking --------------------------------------------------------------------------------------
 */

void model_look_begin(const struct model *model, struct model_look *ret_look)
{
	*ret_look = (struct model_look){
		.lo_answered = model->answered, .lo_synced = model->synced, .lo_seen = model->seen};
}

static const struct model_inode *inode_of(const struct model_state *state, uint64_t ino)
{
	for (unsigned i = 0; i < state->inode_count; i++)
		if (state->inodes[i].ino == ino)
			return &state->inodes[i];
	/* It may be the one that is being made. */
	if (state->inode_count > 0 && state->inodes[state->inode_count - 1].ino == 0)
		return &state->inodes[state->inode_count - 1];
	return NULL;
}

static bool fits_ino(const struct model_state *state, int i, uint64_t ino)
{
	if (i < 0)
		return ino == 0;
	return ino != 0 && (state->inodes[i].ino == ino || state->inodes[i].ino == 0);
}

static bool fits_attr(const struct model_inode *inode, const struct gfc_attr *attr)
{
	if (inode->mode != attr->mode)
		return false;
	return S_ISDIR(inode->mode) ||
	       (inode->nlink == attr->nlink && 8 * inode->token_count == attr->size);
}

static bool fits_content(const struct model_inode *inode, size_t bytes, const uint64_t *tokens)
{
	return bytes == 8 * inode->token_count && memcmp(inode->tokens, tokens, bytes) == 0;
}

static bool fits(const struct model_state *state, const struct model_look *look)
{
	const struct model_inode *inode = inode_of(state, look->ino);

	if (look->by_name &&
	    !fits_ino(state, state->names[look->dir][look->name], look->found ? look->ino : 0))
		return false;
	if (look->has_attr && look->attr_err == 0 && (!inode || !fits_attr(inode, &look->attr)))
		return false;
	if (look->has_attr && look->attr_err < 0 && inode && inode->ino == look->ino &&
	    inode->nlink > 0)
		return false;
	if (look->has_content && (!inode || !fits_content(inode, look->bytes, look->tokens)))
		return false;
	for (unsigned n = 0; look->has_list && n < MODEL_NAMES; n++)
		if (!fits_ino(state, state->names[look->dir][n], look->list[n]))
			return false;
	return !look->has_list || !look->unknown_name;
}

/* The first state from `lo` on that it fits, or -1. */
static int first_fit(const struct model *model, const struct model_look *look, unsigned lo)
{
	for (unsigned k = lo; k <= model->started; k++)
		if (fits(&model->states[k], look))
			return (int)k;
	return -1;
}

int model_look_end(const struct model *model, const struct model_look *look, bool weak)
{
	unsigned lo = weak ? look->lo_synced : look->lo_answered;

	if (first_fit(model, look, GX_MAX(lo, look->lo_seen)) < 0)
		return -1;
	/* It may have looked the same some changes ago. */
	return first_fit(model, look, look->lo_seen);
}

void model_look_text(const struct model *model, const struct model_look *look, char *text,
		     size_t bytes)
{
	int last = -1, n = 0;

	for (unsigned k = 0; k <= model->started; k++)
		if (fits(&model->states[k], look))
			last = (int)k;
	if (look->by_name)
		n = snprintf(text, bytes, "d%u/n%u is %llu", look->dir, look->name,
			     look->found ? (unsigned long long)look->ino : 0);
	else if (look->has_list)
		n = snprintf(text, bytes, "d%u has %llu %llu %llu %llu %llu", look->dir,
			     (unsigned long long)look->list[0], (unsigned long long)look->list[1],
			     (unsigned long long)look->list[2], (unsigned long long)look->list[3],
			     (unsigned long long)look->list[4]);
	else
		n = snprintf(
			text, bytes, "inode %llu: %s nlink %u mode %o size %llu",
			(unsigned long long)look->ino,
			look->attr_err < 0  ? "gone"
			: look->has_content ? "content"
					    : "attr",
			look->attr.nlink, look->attr.mode,
			(unsigned long long)(look->has_content ? look->bytes : look->attr.size));
	if (n > 0 && (size_t)n < bytes)
		snprintf(text + n, bytes - (size_t)n,
			 "; fits state %d; answered %u synced %u seen %u begun %u", last,
			 look->lo_answered, look->lo_synced, look->lo_seen, model->started);
}

/* -- all ------------------------------------------------------------------------------------------
 */

static bool fits_file(const struct model_state *state, int i, const struct model_file *file)
{
	if (!fits_ino(state, i, file->found ? file->attr.ref.ino : 0))
		return false;
	if (i < 0)
		return true;
	if (!fits_attr(&state->inodes[i], &file->attr))
		return false;
	return S_ISDIR(state->inodes[i].mode) ||
	       fits_content(&state->inodes[i], file->bytes, file->tokens);
}

static bool fits_all(const struct model_state *state,
		     struct model_file files[MODEL_DIRS][MODEL_NAMES])
{
	for (unsigned d = 0; d < MODEL_DIRS; d++)
		for (unsigned n = 0; n < MODEL_NAMES; n++)
			if (!fits_file(state, state->names[d][n], &files[d][n]))
				return false;
	return true;
}

int model_find(const struct model *model, unsigned lo,
	       struct model_file files[MODEL_DIRS][MODEL_NAMES])
{
	for (unsigned k = lo; k <= model->started; k++)
		if (fits_all(&model->states[k], files))
			return (int)k;
	return -1;
}
