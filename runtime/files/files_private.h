/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of the file path: job.c (the table, the agent, start and end), wanted.c (which files), look.c (what
 * is at a path), peers.c (copies on other nodes), take.c (opening), verified.c (reading what was published), grow.c (writing more than there is room for),
 * learn.c (what turned out to be a checkpoint), rings.c (io_uring), in_place.c (what is changed in place), numbered.c (paths of descriptors), exchange.c (two that change names), pending_layer.c, linking.c,
 * removing.c and renaming.c (the other calls on paths), pending_names.c (for those on names), real_layer.c (the real calls), descriptors.c, syncing.c, listing.c. */
#ifndef TPCK_RUNTIME_FILES_FILES_PRIVATE_H
#define TPCK_RUNTIME_FILES_FILES_PRIVATE_H

#include "runtime/files/files.h"
#include "runtime/reach/reach.h"
#include "runtime/view/rules.h"
#include "runtime/view/view.h"

struct tpck_at;

/* Functions with paths on their stack, which is not spent where nothing is pending: threads' stacks may be small. */
#define TPCK_FILES_SLOW __attribute__((noinline))

/* ---- job.c ---- */
extern struct tpck_view *_Atomic tpck_files_view __attribute__((visibility("hidden"))); /* NULL: no process of the job has one */
extern const struct tpck_settings *tpck_files_settings __attribute__((visibility("hidden")));
extern char tpck_files_folder[TPCK_VIEW_PATH / 2] __attribute__((visibility("hidden"))); /* SHM/JOB */
/* This process has another root than it began with: its paths are no names for the agent, nor the agent's for it. */
extern _Atomic bool tpck_files_away __attribute__((visibility("hidden")));
/* Whether there is still no table of the job, or nothing in it. */
bool tpck_files_no_table(void);
/* Nothing is pending: every call is the real one. */
static inline bool tpck_files_idle(void)
{
	struct tpck_view *view = atomic_load_explicit(&tpck_files_view, memory_order_acquire);

	if (__builtin_expect(!view || atomic_load_explicit(&tpck_files_away, memory_order_relaxed) ||
				     atomic_load_explicit(&view->ended, memory_order_acquire), 0))
		return tpck_files_no_table();
	return !atomic_load_explicit(&view->used, memory_order_acquire);
}
/* Whether this process may do so now: it may have become another user's since it took its files. False: errno says why not. */
bool tpck_files_may(const char *path, int mode);
/* This process, as holders are known. */
int32_t tpck_files_pid(void);
uint64_t tpck_files_started(void);
bool tpck_files_may_take(void);
/* The process takes no more files from here on. */
void tpck_files_take_none(void);
/* Whether files are recognised by more than globs that the user gave. */
bool tpck_files_learns(void);
/* The file path is on in this process. */
bool tpck_files_on(void);
/* The table, with an agent that serves it; NULL: there is none, which has been said. */
struct tpck_view *tpck_files_ready(void);
/* The same, for what the program can do without: where there is none nothing is said. */
struct tpck_view *tpck_files_ready_to_learn(void);
/* The table locked, and not one that was left behind; NULL: there is none. */
struct tpck_view *tpck_files_lock(void);
/* Has the agent started again if it died. */
void tpck_files_revive(void);
/* The same, unless it was there within the last 10 ms. */
void tpck_files_revive_soon(void);
/* Waits a moment for what the agent is at; one that died at it is started again, or it would never be done. */
void tpck_files_breathe(void);
/* Waits until no entry up to this order is left, of those that are owed to this file system and of what these wait for; 0: of all.
 * 0, or the errno that keeps one. */
int tpck_files_await(uint64_t order, uint64_t device);

/* ---- wanted.c ---- */
/* This process copies, packs, builds, edits or starts what others have made (runtime/view/rules.h): nothing is recognised here. */
/* same.c: in a program that compares what it looks at with what it opens, a file that is whole comes to its path first. errno stays. */
void tpck_files_stays(int folder, const char *path, bool follow);
extern bool tpck_files_tool __attribute__((visibility("hidden")));
enum tpck_wanted {
	TPCK_WANTED_NOT,
	TPCK_WANTED_UNSURE, /* only its folder, or a glob that has every name, says so */
	TPCK_WANTED,
};
enum tpck_wanted tpck_files_wanted(const struct tpck_at *at);

/* ---- look.c ---- */
enum tpck_seen { TPCK_SEEN_REAL, TPCK_SEEN_PENDING, TPCK_SEEN_REMOVED };
struct tpck_pending {
	uint32_t index;
	enum tpck_view_kind kind;
	uint64_t serial;
	uint64_t device, inode; /* of the folder */
	char name[TPCK_VIEW_NAME];
	char path[TPCK_FILES_PATH]; /* where its bytes are; scratch before */
};
enum tpck_seen tpck_files_look(int folder, const char *path, bool follow, struct tpck_pending *pending);
bool tpck_files_is_pending(int folder, const char *path, bool follow);
/* What the kernel says of a path that leads through a name which is pending, or about to go, is what it says of the job's. */
static inline int tpck_files_verdict(int result, int folder, const char *path)
{
	if (__builtin_expect(result < 0, 0))
		tpck_files_through(folder, path, TPCK_THROUGH_PATH);
	return result;
}
/* The folder of a path: its text in `parent`, of TPCK_FILES_PATH bytes, and the last part. False: there is none. */
bool tpck_files_split(const char *path, char *parent, const char **name);

/* ---- room.c ---- */
/* Whether so many bytes more may be kept in memory: as TRANSPCKPT_MEMORY says, half of it for files, and as there is on the tmpfs
 * and in this process's control groups; `ready` bytes of it have their pages. The lock is held. */
bool tpck_files_room_for(const struct tpck_view *view, uint64_t device, uint64_t bytes, uint64_t ready);
/* Whether files could not be put on this disk at the last attempt. The lock is held. */
bool tpck_files_failing(const struct tpck_view *view, uint64_t device);
/* A tmpfs that can never have room is said once. */
void tpck_files_say_small(void);

/* ---- take.c ---- */
/* Of the layer (layer.h). */
int tpck_pending_open(const struct tpck_at *at, int flags, mode_t mode);
bool tpck_pending_redirects(const struct tpck_at *at, int flags);
void tpck_files_keep_attributes(const char *from, int fd);

/* ---- loaded.c ---- */
/* When an entry was made. The table's lock is held. */
void tpck_files_date(struct tpck_view_entry *entry);
/* Whether what is read is noted. */
bool tpck_files_notes_loads(void);
/* A descriptor of a file that the job has published; and one that is pending: this process reads them. */
void tpck_files_note_load(int fd);
void tpck_files_note_pending_load(const struct tpck_pending *pending);

/* ---- verified.c ---- */
/* At load; the job's name, and where the process began. */
void tpck_files_verify_start(const char *job, const char *start_folder);
void tpck_files_verify_forked(void);
/* Whether files that are opened so are compared with their digests. */
bool tpck_files_verifies(int flags);
/* The descriptor that open() gave is one of what was saved: it may be of another copy by now. -1 with EIO: there is none. */
int tpck_files_verified(int fd, int folder, const char *path, int flags);
/* Whether it would be compared. */
bool tpck_files_to_verify(const char *path);

/* ---- peers.c ---- */
/* Before the process looks at anything: what lost nodes of the job owed is at its path, or cannot be for now. */
void tpck_files_ask_for_lost(const struct tpck_reach *who);
/* The level is `replicated`, and what is owed up to this order, 0: what is owed at all, has as many copies on other nodes as
 * there can be, once this returns. False: it is another level, or there is nobody to have copies, which has been said. */
bool tpck_files_replicated(uint64_t order);

/* ---- grow.c ---- */
/* How long a file may get of which so many bytes are accounted for. */
static inline uint64_t tpck_files_limit(uint64_t bytes)
{
	return bytes + bytes / 4 + (256 << 10);
}
/* The file goes on beside its target, in the inode that it will have there, if it can. */
void tpck_files_to_disk(uint64_t what);
void tpck_files_gate_enter(void);
void tpck_files_gate_leave(void);
void tpck_files_gate_forked(void);
uint32_t tpck_files_forks(void);

/* ---- descriptors.c ---- */
enum { TPCK_FILES_DESCRIPTORS = 1 << 16 };
/* This descriptor writes this entry, up to `limit` without being asked; the holder counts it already. False: it has no place
 * in the table. */
bool tpck_files_writes(int fd, uint32_t index, uint64_t serial, uint64_t limit);
/* The file is one that will be renamed past us: its closing is where that is noticed. */
void tpck_files_past(int fd);
void tpck_files_descriptors_forked(void);
/* What a descriptor writes, as one number; 0: nothing that is pending. TPCK_FILES_PAST is no entry's: a file of the program's own that will be renamed past us. */
#define TPCK_FILES_PAST UINT32_MAX
uint64_t tpck_files_what(int fd);
/* What the next descriptor behind *fd writes that writes something pending; *fd becomes that one. 0: there is no more. */
uint64_t tpck_files_next(int *fd);
/* Whether there are such descriptors, and they are this process's: a child that shares its memory and not the descriptors (vfork, clone) closes its own. */
bool tpck_files_own(void);
/* No descriptor of the process is that entry's any more. */
void tpck_files_forget(uint64_t what);
/* Whether such files are mapped in this process. */
bool tpck_files_mapped_some(void);
/* What is mapped somewhere in there; 0: nothing that is ours. `from`: the first of the mappings that is looked at, and then the next one. */
uint64_t tpck_files_mapped_in(const void *address, size_t bytes, unsigned *from);
uint64_t tpck_files_pack(uint32_t index, uint64_t serial);
struct tpck_view_entry *tpck_files_unpack(struct tpck_view *view, uint64_t what);
uint64_t tpck_files_limit_of(int fd);
void tpck_files_set_limit(uint64_t what, uint64_t limit);
/* All descriptors of it; 0: too many, or there was a fork behind one of them. */
unsigned tpck_files_descriptors_of(uint64_t what, uint32_t forks, int *fd, unsigned room);
/* The kernel has just given this number to another file: what it was has been closed by a call that nobody saw. */
void tpck_files_seen_again(int fd);
static inline void tpck_files_number(int fd)
{
	if (__builtin_expect(tpck_files_what(fd) != 0, 0))
		tpck_files_seen_again(fd);
}
/* All that has been closed so, in no order that is known. */
void tpck_files_release_unseen(void);
/* One descriptor less. */
void tpck_files_release(uint32_t index, uint64_t serial, bool whole);

/* ---- syncing.c ---- */
/* A file that is taken until it is synced is owed to its path as it is from here on, and is the program's own there. `wait`: until it
 * is there, and on the disk. 0, an errno that keeps it, or -1: it is no such file. */
int tpck_files_let_be(uint64_t what, bool wait);

/* ---- rings.c ---- */
/* Whether this process has a ring (io_uring), which may have files open of which no descriptor is left. `unsure`: the kernel does not
 * say whether somebody has. */
bool tpck_files_has_ring(bool unsure);
/* Whether a ring may write this file, of which there are descriptors. */
bool tpck_files_in_ring(uint64_t serial);
/* One more file is taken. */
void tpck_files_taken(struct tpck_view *view);

/* ---- pending_names.c ---- */
/* What the job sees by this name, whether or not a slash behind it says that a folder is meant. */
enum tpck_seen tpck_files_look_at_name(int folder, const char *path, struct tpck_pending *pending);
/* Whether the name of something that is to be made is one of a file that the job sees: errno is EEXIST then. A name that is to go goes first. */
bool tpck_files_name_taken(int folder, const char *path);
/* A folder's own name as the agent opens it, in TPCK_FILES_PATH bytes. False: it is none. */
bool tpck_files_own_name(int fd, char *path);
/* The folder of a path: what names it, and its own name as the agent can open it, in TPCK_FILES_PATH bytes. False: there is none. */
bool tpck_files_folder_of(int folder, const char *path, struct stat *found, char *absolute, const char **name);
/* Whether something that closed later than `order` is still owed: what is done now is done behind it. The lock is held. */
bool tpck_files_owed_behind(struct tpck_view *view, uint64_t order);
/* The name goes once what is owed before is there. False: it cannot. The lock is held. */
bool tpck_files_remove_later(struct tpck_view *view, const struct stat *parent, const char *path, const char *name, const struct stat *there);
/* Whether this process may make and remove names in the folder. */
bool tpck_files_may_change(const char *folder);
/* Whether it is another user's, in a folder that guards what is others' (its sticky bit). */
bool tpck_files_guarded(const struct stat *parent, const struct stat *there);
/* As renameat2(), of what is at its path, which may be a folder with files in it that are being written. */
int tpck_files_rename_real(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);

/* ---- linking.c ---- */
/* A file that is at its path gets this name, too, once what is owed before is there, or, `renames`, in place of its own. 0, -1 with errno, or -2: it is the
 * file system's. */
int tpck_files_link_later(int from_folder, const char *from, int to_folder, const char *to, int flags, bool renames, bool replaces, enum tpck_wanted wanted);
/* Of the layer. */
int tpck_pending_link(const struct tpck_at *from, const struct tpck_at *to, int flags);
int tpck_pending_symlink(const char *target, const struct tpck_at *at);

/* ---- removing.c ---- */
/* Whether the job sees something pending in a folder. *owed: something of it is, seen or not. */
bool tpck_files_holds_pending(int folder, const char *path, bool *owed);
/* Of the layer. */
int tpck_pending_unlink(const struct tpck_at *at, int flags);

/* ---- renaming.c ---- */
/* Of the layer. */
int tpck_pending_rename(const struct tpck_at *from, const struct tpck_at *to, unsigned flags);

/* ---- exchange.c ---- */
/* Two names exchange what they have, one of which is being written still: 0, or -1 with errno. 1: the kernel is to be asked; -2: what is
 * owed is to be at its path first. */
int tpck_files_exchange(int from_folder, const char *from, int to_folder, const char *to);

/* ---- numbered.c ---- */
/* The descriptor that a path names (/proc/self/fd/7), if it writes a pending file; -1: it is no such path. */
int tpck_files_numbered(const char *path);
/* Such a path opened for writing: one descriptor more of the file. */
int tpck_files_open_numbered(int fd, const char *path, int flags);
/* As readlink(): where the file will be. -2: the kernel knows. */
ssize_t tpck_files_name_of(int fd, char *target, size_t size);

/* ---- learn.c ---- */
/* Not 0: this descriptor writes a file that was empty, and nothing of ours. */
extern _Atomic uint8_t tpck_files_fresh[TPCK_FILES_DESCRIPTORS] __attribute__((visibility("hidden")));
/* Such a one is about to be closed. */
void tpck_files_turned_out(int fd);
void tpck_files_fresh_copied(int from, int to);
void tpck_files_fresh_closed(unsigned first, unsigned last);
/* This descriptor is one of in_place.c, until it is closed. */
void tpck_files_fresh_in_place(int fd);
/* Whether a name that no rule takes was learnt. */
bool tpck_files_learnt(int folder, const char *path);

/* ---- in_place.c ---- */
/* Whether this process changes a file in place in this folder: nothing new is taken there. */
bool tpck_files_in_place_in(const struct stat *folder);
/* A descriptor was opened, of a file that is pending, or not (NULL). Whether it is such a file's. */
bool tpck_files_in_place_opened(int fd, int flags, const struct tpck_pending *pending);
/* Byte ranges of it are locked. */
void tpck_files_in_place_locked(int fd);
void tpck_files_in_place_copied(int from, int to);
void tpck_files_in_place_closed(int fd);

#endif
