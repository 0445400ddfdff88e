#include "tests/lib/sim_data_model.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Cells of the first piece; the second lies around 1 MiB, where pieces and regions end. */
#define FIRST_CELLS 48u
#define SECOND_OFFSET (1024u * 1024 - 12 * 1024)
#define RECORD_MAGIC UINT64_C(0x7ec0bd5e1d10af3c)

static void wrong(struct hist_file *file, const char *fmt, ...) GX_PRINTF(2, 3);
static void wrong(struct hist_file *file, const char *fmt, ...)
{
	va_list args;

	if (file->wrong[0] != '\0')
		return;
	va_start(args, fmt);
	vsnprintf(file->wrong, sizeof(file->wrong), fmt, args);
	va_end(args);
}

void hist_file_init(struct hist_file *file, unsigned number, bool log, uint32_t *tick)
{
	file->number = number;
	file->log = log;
	file->tick = tick;
	file->write_count = 0;
	file->wrong[0] = '\0';
}

bool hist_file_full(const struct hist_file *file)
{
	return file->write_count + 8 >= HIST_WRITES; /* others may be on their way to one */
}

uint64_t hist_cell_offset(unsigned cell)
{
	return cell < FIRST_CELLS ? (uint64_t)cell * CELL_BYTES
				  : SECOND_OFFSET + (uint64_t)(cell - FIRST_CELLS) * CELL_BYTES;
}

unsigned hist_piece_begin(unsigned cell)
{
	return cell < FIRST_CELLS ? 0 : FIRST_CELLS;
}

unsigned hist_piece_end(unsigned cell)
{
	return cell < FIRST_CELLS ? FIRST_CELLS : HIST_CELLS;
}

unsigned hist_cells_below(uint64_t size)
{
	unsigned cell = 0;

	while (cell < HIST_CELLS && hist_cell_offset(cell) < size)
		cell++;
	return cell;
}

/* -- bytes ------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* The first word of a cell: who, where, which; and half of it proves the other. */
static uint64_t cell_word(unsigned file, unsigned cell, unsigned number)
{
	uint64_t low = (uint64_t)(file + 1) << 24 | (uint64_t)cell << 16 | number;

	return mix(low) << 32 | low;
}

static void fill_words(uint64_t first, unsigned char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i += 8) {
		uint64_t word = i == 0 ? first : mix(first + i);

		memcpy(bytes + i, &word, GX_MIN(count - i, (size_t)8));
	}
}

static unsigned number_of(const struct hist_file *file, const struct hist_write *write)
{
	return (unsigned)(write - file->writes);
}

void hist_cell_fill(const struct hist_file *file, const struct hist_write *write, unsigned cell,
		    unsigned char bytes[CELL_BYTES])
{
	fill_words(cell_word(file->number, cell, number_of(file, write)), bytes, CELL_BYTES);
}

/* Magic, number, then bytes. */
void hist_record_fill(const struct hist_file *file, const struct hist_write *write,
		      unsigned char *bytes)
{
	uint64_t head[2] = {RECORD_MAGIC ^ file->number, number_of(file, write)};

	memcpy(bytes, head, sizeof(head));
	fill_words(mix(head[0] + head[1]), bytes + sizeof(head), write->bytes - sizeof(head));
}

/* -- writing ----------------------------------------------------------------------------------- */

struct hist_write *hist_write_begin(struct hist_file *file, unsigned client, unsigned handle)
{
	struct hist_write *write = &file->writes[file->write_count++];

	gx_assert(file->write_count < HIST_WRITES);
	memset(write, 0, sizeof(*write));
	write->client = client;
	write->handle = handle;
	write->start = ++*file->tick;
	write->end = write->own = write->firm = TICK_NEVER;
	for (unsigned i = 0; i < HIST_CELLS; i++)
		write->seen[i] = TICK_NEVER;
	return write;
}

static uint64_t end_of(const struct hist_write *w)
{
	return hist_cell_offset(w->hi - 1) + CELL_BYTES;
}

bool hist_is_large(const struct hist_file *file)
{
	uint64_t size = 0;

	for (unsigned i = 0; i < file->write_count; i++) {
		const struct hist_write *w = &file->writes[i];

		if (w->truncate)
			size = 0;
		else if (w->firm != TICK_NEVER && !w->erase)
			size = file->log ? size + w->bytes : GX_MAX(size, end_of(w));
	}
	return size > HIST_INLINE_BYTES;
}

void hist_write_end(struct hist_file *file, struct hist_write *write, bool doubtful)
{
	write->end = ++*file->tick;
	if (doubtful)
		write->risk = HIST_DOUBTFUL;
	if (write->risk != HIST_SURE)
		return;
	write->own = write->end;
	if (!write->may_hold)
		write->firm = write->end;
}

void hist_synced(struct hist_file *file, unsigned client, unsigned handle, uint32_t since,
		 bool durable, int64_t now_ns)
{
	uint32_t now = ++*file->tick;

	for (unsigned i = 0; i < file->write_count; i++) {
		struct hist_write *w = &file->writes[i];

		if (w->client != client || w->end >= since || w->failed || w->risk == HIST_LOOSE)
			continue;
		if (!durable && w->handle != handle && w->may_hold)
			continue;
		/* As if the power had been cut just after it: the node had been heard of. */
		if (!durable && w->cut > since) {
			w->risk = HIST_LOOSE;
			w->closed = true;
			w->closed_ns = now_ns;
			continue;
		}
		if (w->firm == TICK_NEVER)
			w->firm = w->own = now;
		w->risk = HIST_SURE;
		w->durable = w->durable || durable;
		if (!w->closed) {
			w->closed = true;
			w->closed_ns = now_ns;
		}
	}
}

/* It may be lost; what was seen of it is still there if `seen`. */
static void unfirm(struct hist_write *w, enum hist_risk risk, bool seen)
{
	w->risk = GX_MAX(risk, w->risk);
	w->firm = w->own = TICK_NEVER;
	for (unsigned c = 0; !seen && c < HIST_CELLS; c++)
		w->seen[c] = TICK_NEVER;
}

void hist_loose(struct hist_file *file, unsigned client, bool all)
{
	for (unsigned i = 0; i < file->write_count; i++) {
		struct hist_write *w = &file->writes[i];

		if (w->client == client && !w->durable && (all || !w->closed))
			unfirm(w, HIST_LOOSE, true);
	}
}

bool hist_doubt(struct hist_file *file, unsigned client)
{
	bool any = false;

	for (unsigned i = 0; i < file->write_count; i++) {
		struct hist_write *w = &file->writes[i];

		if (w->client != client || w->closed)
			continue;
		unfirm(w, HIST_DOUBTFUL, true);
		any = true;
	}
	return any;
}

unsigned hist_power_cut(struct hist_file *file, int64_t now_ns, int64_t settle_ns)
{
	unsigned clients = 0;

	++*file->tick;
	for (unsigned i = 0; i < file->write_count; i++) {
		struct hist_write *w = &file->writes[i];

		if (w->closed && now_ns - w->closed_ns >= settle_ns)
			w->durable = w->risk == HIST_SURE || w->durable;
		if (w->durable)
			continue;
		unfirm(w, w->closed ? HIST_LOOSE : HIST_DOUBTFUL, false);
		w->cut = *file->tick;
		/* Also what was closed: the client may have another handle. */
		clients |= 1u << w->client;
	}
	return clients;
}

/* -- reading ----------------------------------------------------------------------------------- */

/* From when on the write counts at this cell, for this reader. */
static uint32_t firm_at(const struct hist_write *w, unsigned cell, unsigned client)
{
	uint32_t firm = GX_MIN(w->firm, w->seen[cell]);

	return w->client == client ? GX_MIN(firm, w->own) : firm;
}

static bool covers(const struct hist_write *w, unsigned cell)
{
	return cell >= w->lo && cell < w->hi;
}

/*
 * From when on v is over for w, a write of the same cell: v may be lost afterwards, but it does not
 * come back behind one of another client. Who has lost his lease is shut out (rules B2, B5).
 */
static uint32_t over_at(const struct hist_write *v, unsigned cell, const struct hist_write *w)
{
	uint32_t firm = firm_at(v, cell, w->client);

	return v->client == w->client || v->may_hold ? firm : GX_MIN(firm, v->end);
}

/*
 * Has v (NULL: the beginning) been overwritten before the reader began? By which, or NULL. What is
 * held back may come later than it was written, but not for its own process.
 */
static const struct hist_write *overwritten(const struct hist_file *file, unsigned cell,
					    const struct hist_write *v,
					    const struct hist_reader *reader)
{
	for (unsigned i = file->write_count; i-- > 0;) {
		const struct hist_write *w = &file->writes[i];

		if (covers(w, cell) && (v == NULL || over_at(v, cell, w) < w->start) &&
		    firm_at(w, cell, reader->client) < reader->since)
			return w;
	}
	return NULL;
}

static void describe(struct hist_file *file, unsigned cell, const char *what,
		     const struct hist_write *by)
{
	wrong(file, "cell %u is %s, but write %u of client %u (%u to %u%s%s) was there", cell, what,
	      number_of(file, by), by->client, by->start, by->end, by->durable ? ", durable" : "",
	      by->erase ? ", erases" : "");
}

/* Somebody has seen it: it is there. */
static void saw(struct hist_file *file, struct hist_write *w, unsigned cell,
		const struct hist_reader *reader)
{
	if (w->risk == HIST_DOUBTFUL && (reader->alive >> w->client & 1))
		return; /* its writer may send older ones again */
	/*
	 * It may have seen it in its own memory, or in an object that is not the content yet and
	 * goes with it (N10).
	 */
	if (w->client == reader->client)
		return;
	if (w->cut > reader->since)
		return; /* it may have seen it before */
	w->seen[cell] = GX_MIN(w->seen[cell], *file->tick);
}

static bool read_zeros(struct hist_file *file, unsigned cell, const struct hist_reader *reader)
{
	const struct hist_write *by = overwritten(file, cell, NULL, reader);

	if (by == NULL)
		return true;
	for (unsigned i = 0; i < file->write_count; i++) {
		const struct hist_write *w = &file->writes[i];

		if (w->erase && covers(w, cell) && overwritten(file, cell, w, reader) == NULL)
			return true;
	}
	describe(file, cell, "empty", by);
	return false;
}

static bool read_cell(struct hist_file *file, unsigned cell, const struct hist_reader *reader,
		      const unsigned char *bytes, struct hist_write **ret_write)
{
	static const unsigned char zeros[CELL_BYTES];
	unsigned char expected[CELL_BYTES];
	const struct hist_write *by;
	struct hist_write *w;
	uint64_t word;
	char text[64];
	unsigned number;

	*ret_write = NULL;
	if (memcmp(bytes, zeros, CELL_BYTES) == 0)
		return read_zeros(file, cell, reader);
	memcpy(&word, bytes, sizeof(word));
	number = (unsigned)(word & 0xffff);
	if (number >= file->write_count || word != cell_word(file->number, cell, number) ||
	    !covers(&file->writes[number], cell) || file->writes[number].erase) {
		wrong(file, "cell %u has bytes that nobody wrote there: %016llx", cell,
		      (unsigned long long)word);
		return false;
	}
	w = &file->writes[number];
	hist_cell_fill(file, w, cell, expected);
	if (memcmp(bytes, expected, CELL_BYTES) != 0) {
		wrong(file, "cell %u has only a part of write %u", cell, number);
		return false;
	}
	by = overwritten(file, cell, w, reader);
	if (by != NULL) {
		snprintf(text, sizeof(text), "from write %u of client %u (%u to %u)", number,
			 w->client, w->start, w->end);
		describe(file, cell, text, by);
		return false;
	}
	saw(file, w, cell, reader);
	*ret_write = w;
	return true;
}

/* A block is as it was between two writes: no cell is older than a write that another is from. */
static bool check_block(struct hist_file *file, unsigned lo, struct hist_write **got,
			unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		for (unsigned k = 0; k < count; k++) {
			const struct hist_write *a = got[i], *b = got[k];

			if (a == NULL || b == NULL || a->risk != HIST_SURE ||
			    b->risk != HIST_SURE || a->failed || b->failed || !covers(a, lo + k) ||
			    GX_MIN(b->firm, b->seen[lo + k]) >= a->start)
				continue;
			wrong(file,
			      "cells %u and %u of one block are from writes %u and %u: a mixture",
			      lo + i, lo + k, number_of(file, a), number_of(file, b));
			return false;
		}
	}
	return true;
}

bool hist_read_cells(struct hist_file *file, unsigned lo, unsigned hi,
		     const struct hist_reader *reader, const unsigned char *bytes, size_t got)
{
	struct hist_write *writes[CELLS_PER_BLOCK];
	unsigned char cell[CELL_BYTES];
	unsigned first = lo, count = 0;

	++*file->tick;
	for (unsigned c = lo; c < hi; c++) {
		size_t at = (size_t)(c - lo) * CELL_BYTES;
		size_t here = got > at ? GX_MIN(got - at, (size_t)CELL_BYTES) : 0;

		memset(cell, 0, sizeof(cell));
		memcpy(cell, bytes + at, here);
		if (!read_cell(file, c, reader, cell, &writes[count]))
			return false;
		count++;
		if ((c + 1) % CELLS_PER_BLOCK == 0 || c + 1 == hi) {
			if (!reader->pieces && !check_block(file, first, writes, count))
				return false;
			first = c + 1;
			count = 0;
		}
	}
	return true;
}

/* -- logs -------------------------------------------------------------------------------------- */

/* The write whose record begins here; NULL: none does. */
static struct hist_write *record_at(struct hist_file *file, const unsigned char *bytes, size_t left)
{
	unsigned char expected[RECORD_BYTES_MAX];
	struct hist_write *w;
	uint64_t head[2];

	if (left < sizeof(head))
		return NULL;
	memcpy(head, bytes, sizeof(head));
	if (head[0] != (RECORD_MAGIC ^ file->number) || head[1] >= file->write_count)
		return NULL;
	w = &file->writes[head[1]];
	if (w->bytes > left)
		return NULL;
	hist_record_fill(file, w, expected);
	return memcmp(bytes, expected, w->bytes) == 0 ? w : NULL;
}

bool hist_has_loose(const struct hist_file *file)
{
	for (unsigned i = 0; i < file->write_count; i++) {
		const struct hist_write *w = &file->writes[i];

		if (w->risk != HIST_SURE || w->failed)
			return true;
	}
	return false;
}

/*
 * Objects exist for bytes. A file that was empty when it outgrew metad had nothing that could have
 * been synced (rule N10: "synced, if the inline content had been"), so its object need not have
 * been on disk, whatever was synced of the emptiness before.
 */
static bool makes_bytes(const struct hist_write *w)
{
	return !w->erase || (w->truncate && w->lo > 0);
}

bool hist_may_be_gone(const struct hist_file *file)
{
	bool cut = false, sure = false, bytes = false;

	for (unsigned i = 0; i < file->write_count; i++) {
		const struct hist_write *w = &file->writes[i];

		/* A new object, if it was answered: one that is gone cannot be cut. */
		if (w->truncate && w->lo == 0 && w->end != TICK_NEVER && !w->failed)
			cut = sure = bytes = false;
		bytes = bytes || (makes_bytes(w) && w->firm != TICK_NEVER);
		sure = sure || (w->durable && (bytes || makes_bytes(w)));
		cut = cut || w->cut > 0;
	}
	return cut && !sure;
}

struct log_place {
	struct hist_write *write;
	size_t offset;
};

static bool check_order(struct hist_file *file, const struct log_place *places, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		for (unsigned k = 0; k < i; k++) {
			const struct hist_write *a = places[k].write, *b = places[i].write;

			if (a == b)
				wrong(file, "record %u is at %zu and at %zu", number_of(file, a),
				      places[k].offset, places[i].offset);
			else if (GX_MIN(b->firm, a->client == b->client ? b->end : b->firm) <
				 a->start)
				wrong(file, "record %u is before %u, which was written earlier",
				      number_of(file, a), number_of(file, b));
		}
	}
	return file->wrong[0] == '\0';
}

static bool check_missing(struct hist_file *file, const struct hist_reader *reader,
			  const struct log_place *places, unsigned count)
{
	for (unsigned i = 0; i < file->write_count; i++) {
		const struct hist_write *w = &file->writes[i];
		bool found = false;

		for (unsigned k = 0; k < count; k++)
			found = found || places[k].write == w;
		if (found || firm_at(w, 0, reader->client) >= reader->since)
			continue;
		wrong(file, "record %u of client %u (%u to %u%s) is not in the log", i, w->client,
		      w->start, w->end, w->durable ? ", durable" : "");
		return false;
	}
	return true;
}

bool hist_read_log(struct hist_file *file, const struct hist_reader *reader,
		   const unsigned char *bytes, size_t got)
{
	static struct log_place places[HIST_WRITES];
	bool loose = hist_has_loose(file);
	unsigned count = 0;

	++*file->tick;
	for (size_t at = 0; at < got;) {
		struct hist_write *w = record_at(file, bytes + at, got - at);

		if (w == NULL && !loose) {
			wrong(file, "no record begins at %zu of %zu", at, got);
			return false;
		}
		if (w != NULL && count < HIST_WRITES)
			places[count++] = (struct log_place){w, at};
		at += w != NULL ? w->bytes : 1;
	}
	if (!check_order(file, places, count) || !check_missing(file, reader, places, count))
		return false;
	for (unsigned i = 0; i < count; i++)
		saw(file, places[i].write, 0, reader);
	return true;
}

bool hist_size(const struct hist_file *file, uint64_t *ret_size)
{
	uint64_t size = 0;
	uint32_t over = 0;

	for (unsigned i = 0; i < file->write_count; i++) {
		const struct hist_write *w = &file->writes[i];

		/* What was held back may have come at any time until it was firm. */
		if (w->firm == TICK_NEVER || w->failed || over > w->start)
			return false;
		over = GX_MAX(over, GX_MAX(w->end, w->firm));
		if (file->log)
			size += w->bytes;
		else if (w->truncate)
			size = hist_cell_offset(w->lo);
		else if (!w->erase)
			size = GX_MAX(size, end_of(w));
	}
	*ret_size = size;
	return true;
}
