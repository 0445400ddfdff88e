/*
 * sim_data_model.h - what a read of a file may return, whoever wrote to it and whatever happened.
 *
 * Files of cells. A cell is 512 bytes, one sector: a power cut leaves old or new cells, never half
 * of one. Every write covers whole cells and its number is in each byte of them, so a cell that was
 * read tells which write it is from; one that fits no write was written by nobody (rule B8).
 *
 * Everything runs in one real thread, so "before" has a meaning across processes: events are
 * numbered (ticks). Each write has the tick of its beginning and, for each cell, the tick from
 * which on it is *firm*: it was answered, or somebody has seen it. A read that began at tick s may
 * return v, unless there is another write w of that cell that began when v was firm, and was
 * itself firm before s: then v had been overwritten (CONSISTENCY.md: B reads after A's write has
 * returned and gets A's bytes). Truncating and punching are writes of nothing; a cell that is
 * zeros, or behind the end, is from one of those, or from the beginning.
 *
 * A write that was answered can be lost, and so is not firm any more, when
 *
 *	its writer dies, or is told of an error by write, fsync or close, before a fsync or close
 *	that went well: then it is *loose*, and what a reader sees is what became of it;
 *	its writer may have lost its lease, or the node's machine has lost its power: then it is
 *	*doubtful* until the writer has a fsync or close that goes well (it is firm again, rule
 *	B3: the writer has sent it again) or is told (loose).
 *
 * Lost is lost: once somebody else has written the same cell, and has begun after the first write
 * was answered, that does not come back, whoever wakes up and sends it late (rules B2, B5).
 *
 * A file of at most 8 KiB lives in metad, and its writer may hold a write back until it closes it
 *or calls fsync: such a write is firm for its own process at once, and for others then.
 *
 * After fsync it is *durable*, and nothing makes it doubtful any more (rules B2, B3).
 *
 * Logs are files of records that are only appended: whole, each once, in the order of real time,
 * and none that is firm is missing. Where a write was loose there may be anything in between.
 */
#ifndef SIM_DATA_MODEL_H
#define SIM_DATA_MODEL_H

#include "common/gx_base.h"

#define CELL_BYTES 512u
#define CELLS_PER_BLOCK 8u
#define HIST_CELLS 96u
#define HIST_WRITES 320u
#define RECORD_BYTES_MIN 40u
#define RECORD_BYTES_MAX 3000u
#define TICK_NEVER UINT32_MAX

enum hist_risk { HIST_SURE, HIST_DOUBTFUL, HIST_LOOSE };

/* Some cells, or (in logs) a record. */
struct hist_write {
	unsigned client;
	unsigned handle; /* it was written through; what is held back is held there */
	unsigned lo, hi; /* cells lo to hi - 1 */
	unsigned bytes;  /* of a record */
	bool erase;      /* zeros */
	bool truncate;   /* the file ends at lo */
	bool may_hold;   /* see above */
	bool durable;
	bool closed; /* since closed_ns */
	bool failed; /* it was not answered, or with an error */
	enum hist_risk risk;
	int64_t closed_ns;
	uint32_t start, end;
	uint32_t cut;              /* when a node lost its power with it; 0: never */
	uint32_t own;              /* firm for its own process */
	uint32_t firm;             /* of all cells */
	uint32_t seen[HIST_CELLS]; /* of one: firm because somebody has seen it */
};

struct hist_file {
	unsigned number;
	bool log;
	uint32_t *tick; /* the clock of all files */
	unsigned write_count;
	struct hist_write writes[HIST_WRITES];
	char wrong[240]; /* the first thing that was */
};

void hist_file_init(struct hist_file *file, unsigned number, bool log, uint32_t *tick);
bool hist_file_full(const struct hist_file *file);
/* Where the cell is: some at the beginning, some around the end of the first MiB. */
uint64_t hist_cell_offset(unsigned cell);
/* Cells of [0, HIST_CELLS) before this one are in one piece with it. */
unsigned hist_piece_begin(unsigned cell);
unsigned hist_piece_end(unsigned cell);
/* Has the file outgrown metad, for all to see? */
bool hist_is_large(const struct hist_file *file);
#define HIST_INLINE_BYTES 8192u /* of a file that lives in metad */
/* How many cells begin before this size. */
unsigned hist_cells_below(uint64_t size);

/* -- writing ----------------------------------------------------------------------------------- */

/* Begins; fill in what it is. The number of the write is its index. */
struct hist_write *hist_write_begin(struct hist_file *file, unsigned client, unsigned handle);
/* It was answered. doubtful: its writer may have lost its lease. */
void hist_write_end(struct hist_file *file, struct hist_write *write, bool doubtful);
/* The bytes of one cell of a write; of a record. */
void hist_cell_fill(const struct hist_file *file, const struct hist_write *write, unsigned cell,
		    unsigned char bytes[CELL_BYTES]);
void hist_record_fill(const struct hist_file *file, const struct hist_write *write,
		      unsigned char *bytes);

/*
 * A fsync (durable) or close of a handle of this client that began at `since` went well. A fsync is
 * about all the client's handles.
 */
void hist_synced(struct hist_file *file, unsigned client, unsigned handle, uint32_t since,
		 bool durable, int64_t now_ns);
/* The client was told of an error, or died: what is neither durable nor (unless `all`) closed. */
void hist_loose(struct hist_file *file, unsigned client, bool all);
/* The client may have lost its lease. True: it has writes that this concerns. */
bool hist_doubt(struct hist_file *file, unsigned client);
/*
 * A node has lost its power. What was closed longer ago than settle_ns is on its disk. Returns the
 * clients, as bits, that have to hear of it or to repair it.
 */
unsigned hist_power_cut(struct hist_file *file, int64_t now_ns, int64_t settle_ns);

/* -- reading ----------------------------------------------------------------------------------- */

struct hist_reader {
	unsigned client; /* HIST_NOBODY: none of the writers */
	uint32_t since;  /* tick of its beginning */
	unsigned alive;  /* clients, as bits, that may still repair what is doubtful */
	bool pieces;     /* in several calls: a block may have been read half by half */
};
#define HIST_NOBODY UINT32_MAX

/*
 * What a read returned for the cells [lo, hi) of one piece; `got` bytes of it, the rest is behind
 * the end. False: file->wrong says what is.
 */
bool hist_read_cells(struct hist_file *file, unsigned lo, unsigned hi,
		     const struct hist_reader *reader, const unsigned char *bytes, size_t got);
/* The whole of a log. */
bool hist_read_log(struct hist_file *file, const struct hist_reader *reader,
		   const unsigned char *bytes, size_t got);
/* May a power cut have taken all of it, with the object's name? */
bool hist_may_be_gone(const struct hist_file *file);
/* Is there a write of which nobody knows what became of it? */
bool hist_has_loose(const struct hist_file *file);
/*
 * The size that a file must have whose writes all came one after the other and are firm; false:
 * that is not known.
 */
bool hist_size(const struct hist_file *file, uint64_t *ret_size);

#endif
