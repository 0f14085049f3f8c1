/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a pull share: a snapshot that a start gets from peers. All is the thread's but where a line says else. */
#ifndef TPCK_AGENT_COPIES_PULLING_H
#define TPCK_AGENT_COPIES_PULLING_H

#include "agent/copies/copies_private.h"

#define SEC 1000000000ull
/* Chunks that one of several that have the whole is asked for at least. */
enum { TARGET_LEAST = 2 };

enum source_state { SOURCE_IDLE, SOURCE_ASKED, SOURCE_READY, SOURCE_OUT };
struct source {
	enum source_state state;
	uint64_t serial;           /* or ASK_HERE: */
	struct copy *copy;         /* a fragment that is here, pinned */
	unsigned slot;
	struct tpck_fragment fragment;
	char host[TPCK_PEER_NAME];
	uint64_t number;           /* of the transfer */
	char *text;                /* of its manifest, until one is chosen */
	size_t size;
	uint64_t moved_ns, bytes;
	unsigned asked, target;    /* chunks */
	bool gave;                 /* something that was good */
	struct tpck_peer_want *batch;
	size_t batch_count, batch_room;
};

/* Bytes of a chunk, or of a fragment of it, that come from one source, a piece at a time. */
struct part {
	struct pull *pull;         /* NULL: nobody waits for them */
	struct row *row;
	struct source *source;
	uint8_t *bytes;            /* NULL: none has come. Of the whole: their place in the copy */
	size_t length, arrived;
	unsigned coming;           /* pieces */
	uint64_t begun_ns;
	uint8_t digest[16];
	bool good;
	struct part *next;         /* of the row */
	struct part *next_placed;  /* of all that have bytes */
};

/* A chunk that is on its way. */
struct row {
	size_t number;             /* of `want` */
	struct part *parts;
	unsigned good, pending, extra;
	uint8_t tried[(ASK_ANSWERS + 7) / 8];
	struct row *next;
};

struct pull {
	struct errand begin, go, more, full; /* of the start's */
	const char *identity;
	uint32_t rank, ordinal;
	struct tpck_point point;
	struct tpck_fragment code; /* data 0: the whole */
	unsigned needed;           /* sources of a chunk */
	struct source source[ASK_ANSWERS];
	unsigned sources;
	/* Under the lock. */
	struct source *offered;    /* whose text is there */
	bool preparing, over;
	int rc;
	char why[200], host[TPCK_PEER_NAME]; /* host: of whom, of a source */
	/* What the start makes, and the thread fills. */
	struct copy *copy;
	struct tpck_peer_want *want;
	size_t count;
	uint64_t found;            /* bytes that ranks here had */
	int prepared;              /* 0, or why there is none */
	char said[200];
	_Atomic size_t reserved;   /* of `want`, from its beginning: they have memory */
	_Atomic int no_room;       /* why the next has not */
	_Atomic bool told, enough; /* told: `more` is on its way; enough: nothing more is to be reserved */
	/* The thread's. */
	bool ready, ending, reserving;
	uint8_t *taken;            /* by number: on its way, or here */
	size_t next, done;
	struct row *rows;
	unsigned started, direct;  /* direct: pieces that are written right to the copy */
	uint64_t begun_ns, offered_ns, ready_ns, damaged;
	struct pull *following;
};

/* All, and those parts that have bytes. */
extern struct pull *pulls;
extern struct part *pull_placed;

static inline const struct tpck_chunk *pull_chunk(const struct pull *p, const struct row *row)
{
	const struct tpck_peer_want *at = &p->want[row->number];

	return &p->copy->replica->coming->members[at->member].objects[at->object].chunks[at->chunk];
}

static inline bool pull_in_use(const struct source *s)
{
	return s->state == SOURCE_ASKED || s->state == SOURCE_READY;
}

/* sources, and what comes of them (pulling_sources.c) */
struct row *pull_row_new(struct pull *p, size_t number);
void pull_row_free(struct pull *p, struct row *row);
struct part *pull_part_new(struct pull *p, struct row *row, struct source *source);
void pull_part_unplace(struct part *part);
/* What lacks of this part is not waited for any more. False: of a whole chunk somebody writes to its place still. */
bool pull_part_release(struct part *part);
/* The next chunk that nobody was asked for and that has memory; `count`: there is none. */
size_t pull_next_free(struct pull *p);
/* Asks it what it offers. */
void pull_source_ask(struct pull *p, struct source *s);
/* The source gives nothing more; with `say` it is told. */
void pull_source_out(struct pull *p, struct source *s, const char *why, bool say);
/* Asks some until so many are in use; how many are. Of fragments those of other indexes. */
unsigned pull_use_sources(struct pull *p, unsigned most);
/* The source is to give this chunk, as the next pull_send_wants() tells it. */
bool pull_want(struct source *s, const struct tpck_peer_want *at);
void pull_send_wants(struct pull *p);
/* Nothing of the pull may be looked at behind these two. */
void pull_end(struct pull *p, int rc, const char *why);
void pull_try_close(struct pull *p);

/* chunks (pulling_chunks.c): asks for what lacks, and ends the pull when nothing does, or cannot be had */
void pull_advance_whole(struct pull *p);
void pull_advance_fragments(struct pull *p);
void pull_whole_arrived(struct pull *p, struct part *part);
void pull_fragment_arrived(struct pull *p, struct part *part);

#endif
