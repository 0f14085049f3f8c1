/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the publisher share. Lanes put what was closed at its path, each on another disk at a time (publisher.c, lane.c),
 * small files together (group.c); the first one also copies what is being written (ahead.c), and makes memory for what comes next
 * (spare.c); what was published is kept in memory while there is room (kept.c, second.c); syncers do what somebody waits for in
 * fsync() (sync.c). What is owed is told to those who have copies of it sent to other nodes (debts.c). */
#ifndef TPCK_AGENT_FILES_PUBLISHER_PRIVATE_H
#define TPCK_AGENT_FILES_PUBLISHER_PRIVATE_H

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "agent/files/publisher.h"
#include "agent/home/home.h"
#include "runtime/base/cgroup.h"
#include "runtime/store/replace.h"
#include "runtime/view/view.h"

struct tpck_sums;

/* From how many small files on that are owed to one file system they are published as a group, and how many at most: each has two
 * descriptors of the agent meanwhile. */
enum { FILES_GROUP_LEAST = 8, FILES_GROUP = 1024 };
enum { FILES_PREPARED = 64, FILES_SYNCED = 64, FILES_SPARES = 64, FILES_IDLE_MS = 1000, FILES_LIMITED_MS = 100 };
/* A disk that hangs has one lane at most and so many syncers, which begin when they are needed: it holds up those alone that write to
 * it, as long as there are a lane and a syncer left. */
enum { FILES_DISKS = 64, FILES_LANES = FILES_DISKS, FILES_DISK_SYNCERS = 3, FILES_SYNCERS = 64 };

/* What the agent leaves free of the tmpfs. */
#define FILES_FREE_BYTES (512ull << 20)

/* An entry as it was when it was chosen. */
struct chosen {
	uint32_t index;
	enum tpck_view_kind kind;
	uint64_t serial, order, synced, pattern;
	struct tpck_view_folder folder, part_folder;
	char name[TPCK_VIEW_NAME], part[64], bytes[TPCK_VIEW_PATH + 80];
	uint32_t changed;
	uint64_t inode;
	bool mapped, linked, suspect; /* suspect: the disk may have lost of it */
	uint64_t generation, timeline, step; /* when it was made */
	struct tpck_view_there there;
	bool until_sync, goes_on;
	enum tpck_view_orphan orphan;
	char own_name[TPCK_VIEW_NAME]; /* of an orphan that has another one */
	int64_t sync_seconds;
	uint32_t sync_nanoseconds;
	uint64_t sync_bytes;
};

/* A part that a sync has made, and what it is a copy of. */
struct prepared {
	uint64_t serial, bytes;
	struct timespec changed;
	uint32_t changes;
	struct tpck_sums *sums; /* the one who puts it at its path takes them */
};

/* A folder as it was when it was synced last. */
struct synced {
	uint64_t device, inode;
	struct timespec changed;
};

/* One that does what somebody waits for in fsync(): a disk that hangs holds up those who write to it alone. */
struct syncer {
	pthread_t thread;
	_Atomic bool running;
	uint64_t serial; /* what it is at; 0: nothing. Under the view's lock */
	struct chosen chosen;
	char said[sizeof ((struct tpck_error *)0)->text];
};

/* How putting files on a file system goes. Under the view's lock, but for what it waits for, which is the lane's at it. */
struct disk {
	uint64_t device, used_ns;
	uint64_t retry_ns; /* not before */
	uint64_t put_ns;   /* when a lane was at it last */
	double backoff_sec; /* 0: the last attempt worked */
	char said[sizeof ((struct tpck_error *)0)->text];
	uint64_t waiting_serial, waiting_ns; /* the entry that somebody still may write, since when it has not changed */
	struct stat waiting;
};

/* One that puts files at their paths. A lane looks for work when all those before it have been at something for a while. */
struct lane {
	pthread_t thread;
	_Atomic bool running;
	_Atomic uint64_t busy_ns; /* since when it is at something; 0: it waits for work */
	_Atomic bool asleep;
	_Atomic uint32_t turn;    /* futex: the one before has become busy */
	uint64_t serial, device; /* what it is at, and where; 0: nothing. Under the view's lock, as a syncer's */
	bool gathers;             /* it is one of which more may come in a moment */
	unsigned grouped;         /* how many it is at together, the first one among them. Under the view's lock, as what they are */
	uint64_t group[FILES_GROUP];
	struct disk *disk;
	bool lost;                /* what the disk has lost of it is nowhere else */
	struct chosen chosen;
	struct synced synced[FILES_SYNCED];
};

struct files {
	uint64_t (*taken_over)(uint32_t table); /* NULL: none is */
	struct tpck_view *view;
	bool running;
	bool left;             /* behind the end: something is still owed */
	_Atomic bool stop, failing;
	_Atomic uint32_t seen; /* the news that were looked at */
	struct lane lane[FILES_LANES];
	struct disk disk[FILES_DISKS];
	struct syncer syncer[FILES_SYNCERS];
	pthread_mutex_t prepared_lock, spare_lock;
	/* What is copied before it is closed, by the first lane. */
	pthread_mutex_t ahead_lock;
	struct {
		uint64_t serial, failed; /* whose; with whom it did not work */
		int folder;
		char name[64];
		struct tpck_ahead part;
	} ahead;
	_Atomic uint64_t swept_ns;
	struct prepared prepared[FILES_PREPARED];
	unsigned prepared_next;
	uint64_t spare[FILES_SPARES]; /* patterns that are to get one */
	unsigned spares;
};
extern struct files files;

/* The view's lock is held in these. */
void files_choose(const struct tpck_view_entry *entry, struct chosen *chosen);
/* A part is about to be made in the folder: should the agent be killed, its next one clears up there. */
void files_makes_part(const char *folder);
bool files_is_syncing(uint64_t serial);
/* The lane has done with its group, or with the one file that it had chosen: syncs of them may begin. */
void files_let_go(struct lane *lane, bool group);
bool files_is_publishing(uint64_t serial);
/* Whether the first lane may copy to this file system what is not closed yet: nobody is at it, and it does not fail. */
bool files_may_go_ahead(uint64_t device);
/* What the lane is at may not come to an end: the next one looks after the rest. */
void files_is_busy(struct lane *lane);
/* What processes have closed by calls that the library does not see is whole; every lane may come by. */
void files_look_at_open(struct lane *lane);
/* The entry if it is still what was chosen. */
struct tpck_view_entry *files_still(const struct chosen *chosen);

/* What the program did in the folder comes to the disk before what is owed to it; and: the folder is as it is on the disk. */
void files_sync_before(struct lane *lane, int folder);
void files_sync_note(struct lane *lane, int folder);
/* A sync of its part has failed, or none has by now: 0. */
void files_note_suspect(const struct chosen *chosen, int error);
/* What is at its path is as `put` says: whoever looks for the newest checkpoint hears of it before nothing is owed to that path any more. */
void files_tell_put(const struct chosen *chosen, const struct stat *put);
/* What is at its path is as `put` says; takes the digests, NULL: they are taken later. */
void files_note_sums(const struct chosen *chosen, const struct stat *put, struct tpck_sums *sums);
/* Of many small files that are owed to the lane's file system those that are plain, from the one that it has chosen on. *put: so many
 * are at their paths; 0 and no error: it is to be published alone. An error is that of the lane's chosen file, which is another one
 * then. */
int files_publish_group(struct lane *lane, unsigned *put, struct tpck_error *err);
/* Puts what the lane has chosen at its path, or takes it from there. -EAGAIN: somebody still writes, or it has changed meanwhile. */
int files_publish(struct lane *lane, struct tpck_error *err);
/* Removes the part of one that is not in the table any more. */
void files_clear_part(const struct chosen *chosen, int folder);

/* The folder, open. -EAGAIN: it has been renamed, and the table knows by now where it is; what was chosen before does not. */
int files_folder(const struct tpck_view_folder *folder, struct tpck_error *err);
/* Whether it has been removed, of one that could not be opened, and has not only gone with its file system: what was to be in it has
 * gone too. One that was renamed just now is in the table by its new name soon. */
bool files_folder_gone(const struct tpck_view_folder *folder);

/* Makes the part of `bytes` beside its target, and syncs it; `ahead`: what there is of it, or NULL. */
int files_copy(const struct chosen *chosen, int bytes, int folder, struct tpck_ahead *ahead, struct tpck_error *err);
/* The same, not synced: *part is to be, and closed; -1: a sync has made it. -EEXIST: it has been made, and not of what there is
 * now. The digests are the caller's. `share`: it may have blocks of the save before. */
int files_copy_unsynced(const struct chosen *chosen, int bytes, int folder, bool share, int *part, struct tpck_sums **sums,
			struct tpck_error *err);
/* The digests of the part; the caller's from here on. */
struct tpck_sums *files_prepared_sums(const struct chosen *chosen);
/* False: there is nothing to sync. */
bool files_sync_one(struct syncer *syncer);
/* One more syncer, if there is one to be had. */
void files_sync_begin(void);
/* None begins behind this; ends those that there are. */
void files_sync_end(void);

/* What of it is beside its target already is the caller's from here on. False: nothing is. */
bool files_ahead_take(const struct chosen *chosen, int folder, struct tpck_ahead *part);
/* Drops what somebody has removed. */
void files_ahead_check(void);
/* Copies some of one that is being written, so that the disk has work. True: there may be more. */
bool files_go_ahead(struct lane *lane);

/* Published: its bytes stay in memory for who reads it and finds the file bad, where there is room; or are removed. */
void files_keep(const struct chosen *chosen);
/* What was never in memory gets a copy there when there is time and room; any thread. */
void files_keep_later(const struct chosen *chosen, const struct stat *put);
/* The first lane makes one, unless `busy` says meanwhile that there is something else to do: it stays then. False: there is none,
 * or it stays. */
bool files_keep_one(bool (*busy)(void));
/* For that: the folder, open; whether there is room for so many bytes more that nobody needs, for a file of this time; the copy, in
 * the folder, becomes the kept one of this file, which is open, if that is anywhere still. */
int files_keep_folder(void);
bool files_keep_wants(uint64_t bytes, uint64_t pattern, struct timespec since);
void files_keep_put(const char *made, uint64_t id, uint64_t pattern, const struct stat *file, int fd);
/* By what kept copies know a path. */
uint64_t files_path_id(const struct chosen *chosen);
/* What had this path is not there any more. */
void files_forget(const struct chosen *chosen);
/* Kept copies make way, the oldest first, for what is pending, for spares, and for so many bytes more. */
void files_yield(uint64_t bytes);
/* Those that an agent left that died. */
void files_adopt_kept(void);
/* What the control groups of the agent, and of who wrote last, leave: the tighter of them. For so many bytes: where they are few the
 * answer may be that of a moment ago. */
struct tpck_cgroup_room files_groups_room(uint64_t bytes);
/* Kept copies and spares make way for what the program needs itself. True: there are some, and they may have to soon. */
bool files_relieve(void);
/* What all spares in the list take; `oldest` gets the name of the one that has waited longest. */
uint64_t files_spare_bytes(DIR *list, char oldest[64]);

/* The pages of this file are to be the next spare's. */
void files_spare_give(const char *path, uint64_t pattern);
/* A file of this pattern has been published: when there is nothing else to do the next one's is made. */
void files_want_spare(uint64_t pattern);
/* False: there is none to be made. */
bool files_make_spare(void);
bool files_spares(void);
/* The one that has waited longest goes; false: there is none. */
bool files_spare_drop(void);

#endif
