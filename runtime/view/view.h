/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The view (doc/files.md): what the processes of a job have done to the trainer's files and the agent has not yet made
 * real. One table of a job and node, SHM/JOB/files/table, mapped by every preloaded process of the job that takes
 * part and by the agent. Everything but `used`, `filter` and the futexes is read and written under the lock, which
 * is held for moments only and survives the death of its holder.
 *
 * A file is known by its folder (device and inode) and its name there, so that no path has to be made canonical. An
 * entry is one version of it; a later version of the same name has a higher serial and is what is seen. An entry
 * is claimed by its state, stored last; what dies half way leaves an entry that was never there.
 */
#ifndef TPCK_RUNTIME_VIEW_VIEW_H
#define TPCK_RUNTIME_VIEW_VIEW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TPCK_VIEW_MAGIC 0x776569766b637074ull /* "tpckview" */
#define TPCK_VIEW_FOLDER "files"              /* below SHM/JOB */
#define TPCK_VIEW_TABLE "table"
/* A file that is being written or published lies beside its target under such a name. */
#define TPCK_VIEW_PART ".tpck-"
enum { TPCK_VIEW_MAKING = 32 };

enum {
	TPCK_VIEW_ENTRIES = 1 << 15,
	TPCK_VIEW_BUCKETS = 1 << 14,
	TPCK_VIEW_FOLDERS = 2048,
	TPCK_VIEW_FILTER = 1 << 13,
	TPCK_VIEW_SIZES = 1024,
	TPCK_VIEW_LEARNT = 256,
	TPCK_VIEW_HOLDERS = 4,
	TPCK_VIEW_NAME = 256,
	TPCK_VIEW_PATH = 4096,
	TPCK_VIEW_SPARE_LEAST = 64 << 10, /* files of this size on may find memory that is ready */
};

enum tpck_view_state {
	TPCK_VIEW_FREE,
	TPCK_VIEW_OPEN,       /* somebody writes */
	TPCK_VIEW_CLOSED,     /* whole; owed to its path */
	TPCK_VIEW_COMMITTING, /* the agent is at the rename, or the removal, right now */
};

enum tpck_view_kind {
	TPCK_VIEW_MEMORY,  /* its bytes are SHM/JOB/files/SERIAL */
	TPCK_VIEW_DIRECT,  /* its bytes are in its target's folder, in a part */
	TPCK_VIEW_REMOVED, /* the name is to go */
	TPCK_VIEW_PLAIN,   /* it is at its path already, by a rename that nobody saw, and owed to the disk; nobody looks it up:
			    * its key has no name, the other key has the one that it had last */
};

/* A file that was synced, and whose writer was killed before it closed it. */
enum tpck_view_orphan {
	TPCK_ORPHAN_NOT,
	TPCK_ORPHAN_HERE,  /* nothing was at its path: it appears as far as it came */
	TPCK_ORPHAN_ASIDE, /* something was: it has another name, the other key has its own */
};
#define TPCK_VIEW_ASIDE ".tpck-synced" /* behind its own name */
#define TPCK_VIEW_UNSYNCED UINT64_MAX /* sync_bytes: it has been written since, or may have been */

/* What was at a path when the program looked. */
enum { TPCK_THERE_UNKNOWN, TPCK_THERE_NOTHING, TPCK_THERE_FILE };
struct tpck_view_there {
	uint32_t kind;
	uint32_t nanoseconds; /* of its last change */
	int64_t seconds;
	uint64_t inode, bytes;
};

/* A process that has the file open for writing. */
struct tpck_view_holder {
	int32_t pid;       /* 0: unused */
	uint32_t count;    /* descriptors, and mappings */
	uint64_t started;  /* of the process, as the kernel counts it: pids come again */
	uint32_t ending;   /* it is at its normal end: what it leaves is whole */
	uint32_t opening;  /* so many are counted, and not there yet */
	uint32_t turns;    /* so often has one come */
	uint32_t lingers;  /* 1: none is left, but a ring (io_uring) of the process may write the file still */
};

struct tpck_view_key {
	uint32_t folder;   /* index */
	char name[TPCK_VIEW_NAME];
};

struct tpck_view_entry {
	_Atomic uint32_t state;  /* enum tpck_view_state */
	uint32_t kind;           /* enum tpck_view_kind */
	_Atomic uint32_t which;  /* the key that holds; a rename fills in the other one first */
	uint32_t next;           /* in its bucket: index + 1 */
	uint32_t part_folder;    /* DIRECT: where the part lies */
	int32_t error;           /* errno of the last attempt to publish it */
	uint64_t serial;         /* names its bytes */
	uint64_t seen;           /* of several versions of a name, the one with the highest is seen */
	uint64_t pattern;        /* of its name when it was opened */
	uint64_t order;          /* of closing, or of the rename behind it */
	uint64_t bytes;          /* MEMORY: counted against the budget */
	uint64_t synced;         /* the sync of it that is wanted; done once sync_done is as much */
	uint64_t sync_done;
	int32_t sync_error;      /* DIRECT: a sync of its part has failed: the disk may have lost of it, and not tell again */
	uint32_t mapped;         /* 1: it has been mapped for writing: its times do not tell whether it changed */
	uint32_t changed;        /* so often by its path */
	uint32_t linked;         /* DIRECT: its part is another name of a file that was whole already */
	uint64_t inode;          /* PLAIN */
	uint32_t at_close;       /* 1: a sync of it is done once it is closed and has copies on other nodes */
	uint32_t until_sync;     /* DIRECT, 1: only its folder, or a glob that has every name, says that it is a checkpoint: it is taken
				  * until it is synced */
	uint32_t goes_on;        /* 1: it is to be at its path as it is, and its writer goes on with it there as with any file */
	uint32_t remote;         /* 1: several nodes have its file system mounted: to ask that for more than has to be may take long */
	uint32_t over;           /* 1: something was at its path when it was opened */
	uint32_t durable;        /* 1: a sync of it has succeeded: what was synced stays, whatever becomes of its writer */
	uint32_t orphan;         /* enum tpck_view_orphan */
	uint32_t sync_nanoseconds; /* of the last change that the last sync found, */
	int64_t sync_seconds;
	uint64_t sync_bytes;       /* and how long the file was; or TPCK_VIEW_UNSYNCED */
	struct tpck_view_there there; /* what it replaces, or removes */
	uint64_t generation, timeline, step; /* of the process that made it, and the last iteration that had ended then; 0: not known */
	struct tpck_view_holder holder[TPCK_VIEW_HOLDERS];
	struct tpck_view_key key[2];
};

struct tpck_view_folder {
	uint64_t device, inode;
	uint64_t since_ns;       /* CLOCK_REALTIME: it was there then; another one that gets its number is younger */
	uint32_t used;           /* entries that name it */
	uint32_t reserved;
	char path[TPCK_VIEW_PATH];
};

struct tpck_view_size {
	uint64_t pattern, bytes; /* what files of this name, but for digits, had last */
};

/* A pattern of names of which a file turned out to be a checkpoint (runtime/view/learnt_names.h). Written once, under the lock, before
 * it is counted; read without it. */
struct tpck_view_learnt {
	uint64_t pattern;
	uint32_t name;           /* tpck_learnt_name() */
	uint32_t rule;           /* enum tpck_rule: what it turned out to be */
};

/* How often a process that has no table looks for one that another process has made. */
#define TPCK_VIEW_LOOK_NS 500000

struct tpck_view {
	uint64_t magic;
	uint32_t version;        /* TPCK_WIRE_VERSION */
	_Atomic uint32_t ended;  /* the agent has left and taken the table along: there will be another one */
	pthread_mutex_t lock;    /* robust, shared */
	_Atomic uint32_t used;   /* entries that are not free */
	_Atomic uint32_t news;   /* futex: something for the agent to do */
	_Atomic uint32_t done;   /* futex: the agent has done something */
	_Atomic int32_t agent;   /* its pid; 0: there is none yet */
	_Atomic int32_t writer;  /* who took one into memory last: its pages count in that process's control groups */
	_Atomic uint32_t syncs;  /* futex: somebody waits for a sync */
	_Atomic uint32_t failing; /* 1: the last attempt to put one at its path, or to sync it, failed */
	uint64_t serial, order;  /* the last ones given out */
	uint64_t memory_bytes;   /* of all MEMORY entries */
	uint64_t published, published_bytes, shared_bytes; /* since the table was made */
	_Atomic uint16_t filter[TPCK_VIEW_FILTER]; /* how many entries have a name of this hash */
	uint32_t bucket[TPCK_VIEW_BUCKETS];        /* index + 1 of the first entry */
	struct tpck_view_size size[TPCK_VIEW_SIZES];
	uint32_t first_free;     /* no free entry is below */
	_Atomic uint32_t said;   /* 1: that there are no peers for TRANSPCKPT_FSYNC=replicated */
	_Atomic uint32_t learnt; /* how many of these there are */
	struct tpck_view_learnt pattern[TPCK_VIEW_LEARNT];
	_Atomic uint32_t replicates; /* 1: what is owed is to have copies on other nodes (TRANSPCKPT_FSYNC=replicated) */
	_Atomic uint32_t copies;     /* how many peers take copies, and one more; 0: that is not known yet */
	_Atomic uint64_t replicated; /* what is owed up to this order has its copies */
	_Atomic int32_t ring;        /* a process that had files open for writing and had a ring (io_uring), the last one that was seen */
	_Atomic uint64_t awaited;    /* somebody waits, or has waited, for what is owed up to this order */
	_Atomic uint32_t made;       /* [agent] parts have been made in so many folders, the last ones of which are in `making` */
	uint64_t root_device, root_inode; /* the root folder of who made the table, in which all paths here are names; 0: not known */
	/* The first unused one is taken: behind one that never was (no inode, no serial) there is none, nor are there pages of memory. */
	struct tpck_view_folder folder[TPCK_VIEW_FOLDERS];
	struct tpck_view_entry entry[TPCK_VIEW_ENTRIES];
	/* [agent] Where the agent makes parts, by number modulo TPCK_VIEW_MAKING: its next one looks there for those that no entry names. */
	char making[TPCK_VIEW_MAKING][TPCK_VIEW_PATH];
};

/* Maps SHM/JOB/files/table, made where `make`. 0, -ENOENT where it is not there, or -errno. */
int tpck_view_map(const char *job_folder, bool make, struct tpck_view **view);
/* Whether there is no table yet, in a folder of the job that is there by now, and ours: making one takes a millisecond. */
bool tpck_view_missing(const char *job_folder);
void tpck_view_unmap(struct tpck_view *view);
/* Whether this process has the root folder that paths in the table are names in. */
bool tpck_view_has_root(const struct tpck_view *view);

/* False: the table cannot be used any more, or this thread has it locked and is in a signal's handler. Waits for whoever has it, even if that one is stopped: what is
 * at a path is not known without the table, nor may a close be forgotten. The wait is the kernel's: where several want the table, looking again and again
 * takes ten times as long. */
bool tpck_view_lock(struct tpck_view *view);
/* tpck_view_lock(), and false where somebody else has held it for a second: a process that was stopped then holds it until it goes on. From there on nobody
 * here waits for it so until it has been free. *held: that is why it is false. */
bool tpck_view_lock_soon(struct tpck_view *view, bool *held);
void tpck_view_unlock(struct tpck_view *view);

/* ---- without the lock ---- */
uint32_t tpck_view_name_hash(const char *name, size_t length);
/* Whether an entry may have this name. */
static inline bool tpck_view_may_have(const struct tpck_view *view, uint32_t hash)
{
	return atomic_load_explicit(&view->filter[hash % TPCK_VIEW_FILTER], memory_order_acquire) != 0;
}
/* Looks at who holds OPEN entries: what processes had whole when they ended is closed, so is, as an orphan, what they had synced; else
 * what they had not closed is removed, with its bytes. True: there was one, and there may be more; its path is in `lost`, of
 * TPCK_VIEW_PATH + TPCK_VIEW_NAME bytes, if it is removed, else that is empty. */
bool tpck_view_sweep(struct tpck_view *view, const char *job_folder, char *lost);
/* The name that an orphan gets beside what was at its path. */
void tpck_view_aside_name(char aside[TPCK_VIEW_NAME], const char *name);
/* Wakes the agent, or those that wait for it. */
void tpck_view_tell(_Atomic uint32_t *futex);
/* Somebody waits for what is owed up to this order: the agent is not to gather it. */
void tpck_view_await(struct tpck_view *view, uint64_t order);
/* Waits until *futex is not `seen` any more, at most so long. */
void tpck_view_wait(_Atomic uint32_t *futex, uint32_t seen, long ms);
/* SHM/JOB/files/SERIAL. */
void tpck_view_memory_name(char *path, size_t size, const char *job_folder, uint64_t serial);
void tpck_view_part_name(char name[64], uint64_t serial);
/* The table that an entry of this serial is, or was, in: no two have the same. */
static inline uint32_t tpck_view_table_of(uint64_t serial)
{
	return (uint32_t)(serial >> 32);
}
/* A name's pattern: its hash, with runs of digits counted as one. The folder's own name counts too. */
uint64_t tpck_view_pattern(const char *folder, const char *name);
/* When the process began, in the kernel's ticks and two more; 0: there is none. TPCK_VIEW_STARTED_UNKNOWN: there is one, and /proc
 * does not say: it is not mounted, hides others' processes, or the caller is out of descriptors. */
#define TPCK_VIEW_STARTED_UNKNOWN 1u
uint64_t tpck_view_process_started(int32_t pid);
/* Whether an agent's process goes on. One that was killed may be there for long, as a thread of it waits for a disk: its first thread,
 * which never ends before the others by itself, has ended then. */
bool tpck_view_agent_serves(int32_t pid);

/* ---- with it ---- */
static inline const struct tpck_view_key *tpck_view_key_of(const struct tpck_view_entry *entry)
{
	return &entry->key[entry->which & 1];
}
static inline const char *tpck_view_name_of(const struct tpck_view_entry *entry)
{
	return entry->kind == TPCK_VIEW_PLAIN ? entry->key[1].name : tpck_view_key_of(entry)->name;
}
/* The file system that it is owed to. */
static inline uint64_t tpck_view_device_of(const struct tpck_view *view, const struct tpck_view_entry *entry)
{
	return view->folder[tpck_view_key_of(entry)->folder].device;
}
/* Whether its turn comes when all that closed before it is there, on whatever file system: a pointer, a removal. The turn of
 * any other comes when what closed before it on its own file system is there. */
bool tpck_view_after_all(const struct tpck_view_entry *entry);
/* The newest entry of this name, or NULL. */
struct tpck_view_entry *tpck_view_find(struct tpck_view *view, uint64_t device, uint64_t inode, const char *name);
/* How many it has. */
unsigned tpck_view_versions(const struct tpck_view *view, uint64_t device, uint64_t inode, const char *name);
struct tpck_view_entry *tpck_view_by_serial(struct tpck_view *view, uint32_t index, uint64_t serial);
/* A new entry, state OPEN, its serial and fields set but for kind and holders; NULL: no room. */
struct tpck_view_entry *tpck_view_add(struct tpck_view *view, uint64_t device, uint64_t inode, const char *path,
				      const char *name, enum tpck_view_kind kind);
/* An entry gets another name, of which it is the newest version then. False: no room. */
bool tpck_view_move(struct tpck_view *view, struct tpck_view_entry *entry, uint64_t device, uint64_t inode,
		    const char *path, const char *name);
void tpck_view_remove(struct tpck_view *view, struct tpck_view_entry *entry);
/* What was found at a path; NULL: nothing. */
struct stat;
struct tpck_view_there tpck_view_there_of(const struct stat *found);
/* The same with its bytes, wherever they are; gives the lock back. */
void tpck_view_discard(struct tpck_view *view, struct tpck_view_entry *entry, const char *job_folder);
/* A file of this inode was put at its path past the job: it is to be synced in its turn. NULL: no room. */
struct tpck_view_entry *tpck_view_plain(struct tpck_view *view, uint64_t device, uint64_t folder_inode, const char *path, const char *name,
					uint64_t inode);
/* The file is whole: it gets its place in the order. */
void tpck_view_close(struct tpck_view *view, struct tpck_view_entry *entry);
/* A sync of it has succeeded, whose bytes were as `found` says; NULL: nobody can tell later whether they still are. */
void tpck_view_synced(struct tpck_view_entry *entry, const struct stat *found);
/* Whether a process has it open for writing. */
bool tpck_view_held(const struct tpck_view_entry *entry);
/* Where its bytes are, or are to be. */
void tpck_view_bytes(const struct tpck_view *view, const struct tpck_view_entry *entry, const char *job_folder, char *path,
		     size_t size);
/* The holder of this process; `started` not 0: made where there is none. NULL: there is none, or no room. */
struct tpck_view_holder *tpck_view_holder_of(struct tpck_view_entry *entry, int32_t pid, uint64_t started);
/* One descriptor more of it is about to be opened; is there, or not after all. */
void tpck_view_opening(struct tpck_view_holder *holder);
void tpck_view_opened(struct tpck_view *view, uint32_t index, uint64_t serial, int32_t pid);
uint64_t tpck_view_size_of(const struct tpck_view *view, uint64_t pattern);
void tpck_view_size_note(struct tpck_view *view, uint64_t pattern, uint64_t bytes);

#endif
