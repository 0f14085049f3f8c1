/* SPDX-License-Identifier: Apache-2.0 */
/* Files that other nodes owe, kept here: between those who take them (held_files.c) and who puts them at their paths (takeover.c). */
#ifndef TPCK_AGENT_COPIES_HELD_FILES_H
#define TPCK_AGENT_COPIES_HELD_FILES_H

#include "agent/copies/copies_private.h"
#include "runtime/peer/owed.h"

struct held_file {
	struct tpck_owed owed; /* points into the record */
	void *record;
	size_t size;
};

/* What an owner, or this node, has put at a path. */
struct held_lawful {
	uint64_t folder_inode, name; /* hash */
	struct tpck_view_there there;
};

/* All that is kept of one table. */
struct held_table {
	uint32_t table;
	char host[TPCK_PEER_NAME];
	uint64_t peer;         /* the owner's connection; 0: it is gone */
	uint64_t gone_ns;      /* since then */
	bool taking;           /* somebody is putting them at their paths: nothing is changed but by him */
	uint64_t retry_ns;     /* that failed: not before */
	double backoff_sec;
	struct held_file *file; /* by order */
	size_t count, room;
	struct held_lawful *lawful;
	size_t lawful_count;
	/* What is coming: pieces, and the record, in any order. */
	uint64_t serial, version, bytes_count, chunks;
	uint32_t attempt;      /* each is of a higher one than that before */
	int fd;                /* -1: nothing */
	bool refused;
	void *record;          /* that waits for pieces, `wanted` in all; NULL: it has not come yet */
	size_t record_size;
	uint64_t wanted;
	struct held_table *next;
};

extern struct held {
	pthread_mutex_t lock;      /* all that follows */
	pthread_cond_t changed;
	struct held_table *tables;
	bool running, stop;
	pthread_t thread;
	/* the one question that is asked of others at a time */
	uint64_t number;
	struct held_answer {
		uint64_t peer;
		bool answered;
		uint64_t value;
	} answer[256];
	unsigned asked;
	/* LOOKs of processes here: up to this number they have come, and been answered */
	uint64_t looks, answered;
	_Atomic unsigned writers;  /* processes here that write files. The event loop's */
	/* and of peers */
	struct held_take {
		uint64_t peer, number;
		uint32_t table;
	} take[64];
	unsigned takes;
} held;

void held_folder(uint32_t table, char path[TPCK_PATH_MAX]);
void held_bytes_path(const struct tpck_owed *owed, char path[TPCK_PATH_MAX]);
/* Under the lock: the lock is held. */
struct held_table *held_table_of(uint32_t table);
void held_lawful_add(struct held_table *table, const struct tpck_owed *owed, const struct tpck_view_there *there);
/* Forgets the files up to this order, with what is in memory of them; and the table, if nothing is left and its owner is gone. */
void held_drop(struct held_table *table, uint64_t order);
/* The thread of takeover.c. */
void *takeover_main(void *unused);

#endif
