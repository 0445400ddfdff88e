/*
 * mdload_model.h - what one client's directory must look like: a model of some names.
 *
 * A directory that only one client changes holds up to MODEL_DIRS directories "d0" …, files "f0" …
 * beside them and "g0" … in each. model_apply() foretells what an operation returns and does it to
 * the model. The client asks it before it believes metad, and so does the verifier, who reads the
 * same operations from a journal.
 */
#ifndef MDLOAD_MODEL_H
#define MDLOAD_MODEL_H

#include "common/gx_base.h"
#include <stdio.h>

#define MODEL_DIRS 4u
#define MODEL_TOPS 8u  /* files beside the directories */
#define MODEL_INNER 4u /* files in each directory */
#define MODEL_SLOTS (MODEL_TOPS + MODEL_DIRS * MODEL_INNER)
#define MODEL_HELD 3u /* files kept open */
#define MODEL_OBJECTS (MODEL_SLOTS + MODEL_HELD)
#define MODEL_BYTES 512u
#define MODEL_MODE 0644u

/* code, what it does. a and b: slots, unless said otherwise. */
#define MODEL_CREATE 'C'   /* exclusively */
#define MODEL_APPEND 'A'   /* text */
#define MODEL_WRITE 'W'    /* text at the beginning */
#define MODEL_TRUNCATE 'T' /* to b bytes */
#define MODEL_CHMOD 'S'    /* to b */
#define MODEL_MKDIR 'M'    /* a: directory */
#define MODEL_RMDIR 'D'    /* a: directory */
#define MODEL_MOVEDIR 'N'  /* directory a to directory b */
#define MODEL_RENAME 'R'
#define MODEL_EXCHANGE 'E'
#define MODEL_LINK 'L'
#define MODEL_UNLINK 'U'
#define MODEL_HOLD 'H'   /* opens slot a and keeps it as b */
#define MODEL_HWRITE 'V' /* appends text to the file held as b */
#define MODEL_CLOSE 'K'  /* the file held as b */

struct model_op {
	char code;
	unsigned a, b;
	char text[32];
};

struct model_object {
	bool used;
	unsigned nlink, holders;
	uint32_t mode;
	size_t bytes;
	char data[MODEL_BYTES];
};

struct model {
	bool dirs[MODEL_DIRS];
	struct model_object *slots[MODEL_SLOTS];
	struct model_object *held[MODEL_HELD];
	struct model_object objects[MODEL_OBJECTS];
};

/* A copy that points into itself. */
static void model_copy(struct model *to, const struct model *from)
{
	*to = *from;
	for (unsigned i = 0; i < MODEL_SLOTS; i++)
		if (from->slots[i])
			to->slots[i] = &to->objects[from->slots[i] - from->objects];
	for (unsigned i = 0; i < MODEL_HELD; i++)
		if (from->held[i])
			to->held[i] = &to->objects[from->held[i] - from->objects];
}

static bool model_in_dir(unsigned slot, unsigned *ret_dir)
{
	if (slot < MODEL_TOPS)
		return false;
	*ret_dir = (slot - MODEL_TOPS) / MODEL_INNER;
	return true;
}

static void model_slot_name(unsigned slot, char name[16])
{
	unsigned dir;

	if (model_in_dir(slot, &dir))
		snprintf(name, 16, "d%u/g%u", dir % MODEL_DIRS, slot % MODEL_INNER);
	else
		snprintf(name, 16, "f%u", slot % MODEL_TOPS);
}

static bool model_has_parent(const struct model *model, unsigned slot)
{
	unsigned dir;

	return !model_in_dir(slot, &dir) || model->dirs[dir];
}

static unsigned model_dir_count(const struct model *model, unsigned dir)
{
	unsigned count = 0;

	for (unsigned i = 0; i < MODEL_INNER; i++)
		count += model->slots[MODEL_TOPS + dir * MODEL_INNER + i] != NULL;
	return count;
}

static void model_drop(struct model_object *object)
{
	object->used = object->nlink > 0 || object->holders > 0;
}

static void model_clear_slot(struct model *model, unsigned slot)
{
	struct model_object *object = model->slots[slot];

	if (!object)
		return;
	model->slots[slot] = NULL;
	object->nlink--;
	model_drop(object);
}

static int model_create(struct model *model, unsigned slot)
{
	struct model_object *object = model->objects;

	if (model->slots[slot])
		return -EEXIST;
	while (object->used)
		object++; /* there is one more for each name and each holder */
	*object = (struct model_object){.used = true, .nlink = 1, .mode = MODEL_MODE};
	model->slots[slot] = object;
	return 0;
}

static void model_put(struct model_object *object, size_t offset, const char *text)
{
	size_t bytes = strlen(text);

	gx_assert(offset + bytes <= MODEL_BYTES);
	memcpy(object->data + offset, text, bytes);
	object->bytes = GX_MAX(object->bytes, offset + bytes);
}

static void model_truncate(struct model_object *object, size_t bytes)
{
	if (bytes > object->bytes)
		memset(object->data + object->bytes, 0, bytes - object->bytes);
	object->bytes = bytes;
}

static int model_move_dir(struct model *model, unsigned from, unsigned to)
{
	if (!model->dirs[from])
		return -ENOENT;
	if (from == to)
		return 0;
	if (model->dirs[to] && model_dir_count(model, to) > 0)
		return -ENOTEMPTY;
	model->dirs[from] = false;
	model->dirs[to] = true;
	for (unsigned i = 0; i < MODEL_INNER; i++) {
		struct model_object **slots = &model->slots[MODEL_TOPS + i];

		slots[to * MODEL_INNER] = slots[from * MODEL_INNER];
		slots[from * MODEL_INNER] = NULL;
	}
	return 0;
}

static int model_rename(struct model *model, unsigned from, unsigned to, bool exchange)
{
	struct model_object *object = model->slots[from], *other = model->slots[to];

	if (!object || !model_has_parent(model, to) || (exchange && !other))
		return -ENOENT;
	if (object == other)
		return 0;
	if (exchange) {
		model->slots[from] = other;
	} else {
		model_clear_slot(model, to);
		model->slots[from] = NULL;
	}
	model->slots[to] = object;
	return 0;
}

static int model_link(struct model *model, unsigned from, unsigned to)
{
	if (!model->slots[from] || !model_has_parent(model, to))
		return -ENOENT;
	if (model->slots[to])
		return -EEXIST;
	model->slots[to] = model->slots[from];
	model->slots[to]->nlink++;
	return 0;
}

static int model_close(struct model *model, unsigned held)
{
	struct model_object *object = model->held[held];

	if (object) {
		model->held[held] = NULL;
		object->holders--;
		model_drop(object);
	}
	return 0;
}

/* Does an operation that is about one existing file; -ENOENT. */
static int model_change(struct model *model, const struct model_op *op)
{
	struct model_object *object = model->slots[op->a];

	if (!object)
		return -ENOENT;
	switch (op->code) {
	case MODEL_APPEND:
		model_put(object, object->bytes, op->text);
		break;
	case MODEL_WRITE:
		model_put(object, 0, op->text);
		break;
	case MODEL_TRUNCATE:
		model_truncate(object, op->b);
		break;
	case MODEL_CHMOD:
		object->mode = op->b;
		break;
	case MODEL_UNLINK:
		model_clear_slot(model, op->a);
		break;
	case MODEL_HOLD:
		model_close(model, op->b);
		model->held[op->b] = object;
		object->holders++;
		break;
	default:
		gx_assert(false);
	}
	return 0;
}

/* What it returns; done to the model if that is 0. */
static int model_apply(struct model *model, const struct model_op *op)
{
	switch (op->code) {
	case MODEL_CREATE:
		return model_has_parent(model, op->a) ? model_create(model, op->a) : -ENOENT;
	case MODEL_MKDIR:
		if (model->dirs[op->a])
			return -EEXIST;
		model->dirs[op->a] = true;
		return 0;
	case MODEL_RMDIR:
		if (!model->dirs[op->a])
			return -ENOENT;
		if (model_dir_count(model, op->a) > 0)
			return -ENOTEMPTY;
		model->dirs[op->a] = false;
		return 0;
	case MODEL_MOVEDIR:
		return model_move_dir(model, op->a, op->b);
	case MODEL_RENAME:
	case MODEL_EXCHANGE:
		return model_rename(model, op->a, op->b, op->code == MODEL_EXCHANGE);
	case MODEL_LINK:
		return model_link(model, op->a, op->b);
	case MODEL_HWRITE:
		model_put(model->held[op->b], model->held[op->b]->bytes, op->text);
		return 0;
	case MODEL_CLOSE:
		return model_close(model, op->b);
	default:
		return model_change(model, op);
	}
}

/* It was refused for want of space, whatever it was. A held file that cannot be written is closed.
 */
static void model_refuse(struct model *model, const struct model_op *op)
{
	if (op->code == MODEL_HWRITE)
		model_close(model, op->b);
}

#endif
