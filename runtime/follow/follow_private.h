/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the parts of following files: follow_layer.c (the calls), top_layer.c (what is in front of it), paths.c, record.c and lists.c (while recording), early.c (before a
 * device is met), overlay.c
 * (running forward), held.c (processes that a twin has made), learnt.c (what the log says of paths), folders.c (descriptors and names of folders), temporary.c,
 * output.c (standard output and error), and reconcile.c (the real files become what the overlay says).
 */
#ifndef TPCK_RUNTIME_FOLLOW_FOLLOW_PRIVATE_H
#define TPCK_RUNTIME_FOLLOW_FOLLOW_PRIVATE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "runtime/files/layer.h"
#include "runtime/follow/follow.h"

/* Names below STORE/JOB, for tpck_door_folder() and tpck_door_file(): the folder of versions and lists, one of these, and a list beside the folder. */
enum { TPCK_KEEP_NAMES = 2, TPCK_KEPT_NAMES = 3, TPCK_BESIDE_NAMES = 2 };
enum { TPCK_FOLLOW_FOLDER = 1200, TPCK_FOLLOW_PATH = 4096, TPCK_OVERLAY_REAL = -2 };
#define TPCK_SCRATCH_NAME "tpck-scratch"

/* ---- paths.c ---- */
bool tpck_follow_absolute(int folder, const char *path, char *out, size_t size);
uint64_t tpck_follow_digest(const char *absolute);
/* A path's file, by the one name that it has. */
struct tpck_name {
	uint64_t digest;
	bool absent;  /* as tpck_names_canonical() says */
	bool literal; /* it is the path itself, made absolute */
	char path[TPCK_FOLLOW_PATH];
};
/* Whether the path's file is followed, and by which name. Where it is not there is a name, or "", but no digest.
 * `follow`: the call goes where the path's last part leads, if that is a symbolic link. */
bool tpck_follow_resolve(const struct tpck_at *at, bool follow, struct tpck_name *name);
/* What a look at a path itself has said just now, which need not be asked again. */
enum tpck_last {
	TPCK_LAST_UNKNOWN,
	TPCK_LAST_ABSENT,  /* the job sees nothing by that name, not even a link */
	TPCK_LAST_NO_LINK, /* something is there, and it is no symbolic link */
};
/* The same where that is known. */
bool tpck_follow_resolve_last(const struct tpck_at *at, bool follow, enum tpck_last last, struct tpck_name *name);
static inline bool tpck_follow_writes(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC;
}
/* Whether the path is an interface of the kernel's, not a file. */
bool tpck_follow_outside(const char *absolute);
/* Where the symbolic link of this canonical name leads, in the run that counts: the length, with room for one byte more
 * and no NUL behind it, or <= 0: it is none. */
ssize_t tpck_follow_link_at(const char *absolute, char *target, size_t size);

/* ---- held.c ---- */
enum tpck_held_change {
	TPCK_HELD_READS,
	TPCK_HELD_MAKES,   /* what it names, where there is nothing */
	TPCK_HELD_CHANGES,
	TPCK_HELD_REMOVES,
};
/* Such a process is about to do that at the path: returns once it may. */
void tpck_held_changes_slow(const struct tpck_at *at, enum tpck_held_change change);
static inline void tpck_held_changes(const struct tpck_at *at, enum tpck_held_change change)
{
	if (tpck_follow_held())
		tpck_held_changes_slow(at, change);
}
/* Whether what it changes stays in its memory. */
bool tpck_held_kept(void);

/* ---- early.c: looks that wait until there is a device ---- */
enum tpck_look {
	TPCK_LOOK_SEEN,   /* what is there */
	TPCK_LOOK_READ,   /* a regular file that was opened for reading */
	TPCK_LOOK_LISTED, /* a folder */
};
/* Whether a look at this path may wait: there is no device yet, and the path says where it is without a descriptor. */
bool tpck_early_defers(int folder, const char *path);
/* One that may, and was made: what the program was told is there, of where links lead if `follow`; NULL: nothing. False: it is
 * to be gone into at once. */
bool tpck_early_look(const char *path, bool follow, enum tpck_look kind, const struct stat *found);
/* Whether this very look was noted a moment ago, and nothing is new. */
bool tpck_early_knows(const char *path, bool follow, enum tpck_look kind);
/* Before the program changes where paths lead: all are gone into. */
void tpck_early_settle(void);
/* Before it makes something at this path: listings of its folder are. */
void tpck_early_makes(const struct tpck_at *at);
/* Before it changes, renames or removes what is at this path: those are that this makes a difference to. What is there by then. */
enum tpck_last tpck_early_changes(const struct tpck_at *at, bool follow);
/* The program's folder, without a NUL behind it, as it was 50 ms ago at most. False: it is to be asked for. */
bool tpck_early_base(char *out, size_t size, size_t *length);

/* ---- record.c: what the program is about to do, while recording ---- */
bool tpck_follow_recording(void);
extern char tpck_follow_keep[TPCK_FOLLOW_FOLDER] __attribute__((visibility("hidden"))); /* versions are kept here; "": none */
/* `gone`: the name goes, the inode stays. */
void tpck_follow_about(const char *absolute, uint64_t digest, bool reads, bool destroys, bool gone);
/* `absent`: the kernel had nothing by that name a moment ago. */
void tpck_follow_opens(const char *absolute, uint64_t digest, int flags, bool absent);
/* This process goes on where the one before ended: from here on its number may be in the names of files. */
void tpck_follow_goes_on(void);
/* The program has just looked at the path itself, and has seen this; NULL: nothing is there. */
void tpck_follow_seen(const char *absolute, uint64_t digest, const struct stat *found);
/* The program has opened the path for reading, and has this now. */
void tpck_follow_has_opened(const char *absolute, uint64_t digest, const struct stat *found);
/* Whether nothing is new about this very path, which was looked at, or opened for reading, a moment ago: links are taken to be
 * what they were then. Only absolute paths are known. */
bool tpck_follow_lately(const char *path, bool read);
void tpck_follow_lately_note(const char *path, bool read);
void tpck_follow_lists(const char *absolute, uint64_t digest);
void tpck_follow_makes(const char *absolute);
/* Buffers of TPCK_FOLLOW_PATH bytes, which are what they were afterwards. */
void tpck_follow_moves(char *from, char *to);
int tpck_follow_copy(int from, int to, uint64_t bytes);
/* A path that the log knows: it has been touched, and may have been read; `noted`: it says what was read; `file`: there was
 * a regular file or a symbolic link at first. */
void tpck_follow_known(uint64_t digest, bool noted, bool file);
void tpck_follow_forget(void);
void tpck_follow_version_name(char *path, size_t size, uint64_t digest, uint64_t bytes, int64_t s, int64_t ns);

/* ---- lists.c ---- */
void tpck_lists_of(uint64_t timeline);
uint64_t tpck_lists_timeline(void);
void tpck_lists_add(const char *list, const char *entry);
/* A path that the program made before it has met a device, when nobody knows yet where lists are: it is held until then, as long
 * as there is room. Then all of them come into the list of what was made, or are dropped. */
void tpck_lists_wait(const char *path);
void tpck_lists_waited(bool wanted);
/* Each entry, the latest first, until a call does not return 0, which is the result; -ENOMEM. */
int tpck_lists_each(const char *list, int (*call)(const char *entry));
/* The same for a list that is the file `path`. */
void tpck_lists_add_to(const char *path, unsigned names, const char *entry);
int tpck_lists_each_in(const char *path, unsigned names, int (*call)(const char *entry));
/* The same for the bytes of such a file. */
int tpck_lists_parse(const char *text, size_t size, int (*call)(const char *entry));
/* The path in an entry of "changed", and what was there; NULL: it is none. */
const char *tpck_lists_parse_changed(const char *entry, struct tpck_record_file *version);
/* The path in one of "relinked", and where the link led. */
const char *tpck_lists_parse_relinked(const char *entry, char *target, size_t size);
/* The paths that the run that is resumed made come to be, the latest first, some more than once. */
void tpck_follow_each_created(void (*call)(const char *path, uint64_t digest));
/* Whether this is one of them; one more. */
bool tpck_follow_created(const char *path);
void tpck_follow_creates(const char *path);
/* Those that were there at their first touch, and that it changed since: what they were then. Ends with the first call
 * that does not return 0. */
int tpck_follow_each_changed(int (*call)(const char *path, uint64_t digest, const struct tpck_record_file *version));
/* Symbolic links that were there, and that it changed since: where they led. */
bool tpck_follow_relinked(const char *path);
int tpck_follow_each_relinked(int (*call)(const char *path, uint64_t digest, const char *target));

/* ---- leftovers.c ----
 * What is in a folder that the program made after the boundary, and that goes. A temporary file that a library renamed by a
 * system call of its own is known by its inode only. */
/* While recording: the program has made this file, and has it open. */
void tpck_leftovers_made(int fd);
/* A file or folder, whatever its name is by now. Inodes are used again: the time of birth tells one from the next, where the
 * file system knows it. */
struct tpck_leftover {
	unsigned long long inode;
	long long born_s;
	unsigned born_ns;
};
/* What an entry of "made" or "leaving" names, and what stands behind that: a path, or nothing. NULL: it is no entry. */
const char *tpck_leftovers_parse(const char *entry, struct tpck_leftover *leftover);
/* From here to the end: folders go for the boundary of this step. */
void tpck_leftovers_begin(uint64_t step);
/* The folder goes, with such files in it; one in which other ranks have something goes with the last of that. */
void tpck_leftovers_folder(const char *path);
/* This process has removed what it made after the boundary: those that others could not remove for it go. */
void tpck_leftovers_of_others(void);
/* All ranks have. */
void tpck_leftovers_end(void);

/* ---- services.c ---- */
/* While running forward: the program makes this folder, which is there from the first run. */
void tpck_services_folder(const char *path);
/* The process is live; the resume is given up. */
void tpck_services_live(void);
void tpck_services_abandon(void);

/* ---- names.c ---- */
/* An absolute path in a buffer of TPCK_FOLLOW_PATH bytes becomes the one name of its file: without "." and "..", and
 * without links; where !follow, the last part may be one. *absent: the kernel has nothing by that name, which was found out on the way.
 * False: too long, or links that go round. */
bool tpck_names_canonical(char *path, bool follow, bool *absent);
/* The program has made a file by this canonical name: as long as names of folders are known it is no link. */
void tpck_names_made(const char *canonical);
/* The program has changed links or folders; when it did so last, by tpck_clock_monotonic_ns(). */
void tpck_names_changed(void);
uint64_t tpck_names_changed_ns(void);

/* ---- learnt.c ---- */
const struct tpck_record_file *tpck_learnt_first(uint64_t digest);
/* A path that the log does not know, and that has this process's number in it: what it says of the same path with the number of a
 * process that the program was before counts for this one. */
void tpck_learnt_numbered(const char *path, uint64_t digest);
/* A name out of a listing, as it is called in this run, in `path` if it is another: the program has made that. */
const char *tpck_learnt_renumbered(const char *folder, const char *name, char *path, size_t size);
/* Where the content of a path that the overlay has no entry for comes from. */
enum tpck_source { TPCK_SOURCE_ABSENT, TPCK_SOURCE_REAL, TPCK_SOURCE_VERSION, TPCK_SOURCE_LOST };
enum tpck_source tpck_learnt_source(const char *path, uint64_t digest, char *version, size_t size);
/* What the first run found at a path that others had made or changed since it began; NULL: nothing. */
const struct tpck_record_file *tpck_learnt_of_others(uint64_t digest);
/* Whether running forward would read at this path what was there at first, which is what `read` says, and
 * that is neither there by its size and time nor kept. */
bool tpck_learnt_needs(const char *path, const struct tpck_record_file *read);
/* Whether that version of the path was kept, and has not changed since; its name. */
/* Of a version, by its path: 0 or -errno. */
int tpck_kept_stat(const char *kept, struct stat *found);
bool tpck_learnt_kept(const struct tpck_record_file *version, char *name, size_t size);
/* Where the symbolic link led that was there at first; NULL: there was none. */
const char *tpck_learnt_link(uint64_t digest);
/* Whether all of them lead there still, but for those that the run changed itself; else `why` names one. */
bool tpck_learnt_links_lead(char *why, size_t size);
/* What is at the path now counts as what was there at first. */
void tpck_learnt_accept(uint64_t digest);
/* The next listing of the folder, or NULL. */
const struct tpck_record_file *tpck_learnt_listing(const char *path, uint64_t digest);

/* ---- folders.c ---- */
/* What the kernel calls a descriptor's file. */
bool tpck_folders_link(int fd, char *link, size_t size);
/* A folder was opened by this absolute path: calls relative to the descriptor, and to copies of it, go by it from here on,
 * whatever symbolic links it went through. Any descriptor may come. */
void tpck_folders_opened(int fd, const char *path);
/* The path by which a folder was opened that the kernel calls `link`. False: by that one. */
bool tpck_folders_named(const char *link, char *path, size_t size);
void tpck_folders_forward(const char *scratch);
/* A folder that stands for one of the overlay that is not there, or NULL. */
const char *tpck_folders_standin(const char *path);
/* The program has removed it, or renamed it. */
void tpck_folders_gone(const char *path);
/* Whether the kernel's name of a descriptor is that of a stand-in or a listing. */
bool tpck_folders_is_ours(const char *link);
bool tpck_folders_is_standin(const char *link);
/* A folder of empty files with the names of the listing of a folder, in its order, or NULL. */
const char *tpck_folders_list(const struct tpck_record_file *listing, const char *of);

/* ---- temporary.c ----
 * While running forward, what the program makes for itself alone in a folder for temporary files (mkdtemp, mkstemp: of mode
 * 0700 or 0600, by a name that was not there) is made for real: programs that it starts read and write there, compilers
 * above all, and nobody misses what is in it. */
/* A file or folder that is about to be made: whether it is such; `wanted` is the mode that makes it one. */
bool tpck_temporary_begins(const char *path, mode_t mode, mode_t wanted);
/* The same of a file of any mode whose path the first run never came to: its name has a time, or something else that is another in each run. */
bool tpck_temporary_named(const char *path);
/* Whether the path is such, or in one. */
bool tpck_temporary(const char *path);
/* The program begins anew: they go. */
void tpck_temporary_abandon(void);
/* From the boundary on they are like all others. */
void tpck_temporary_forget(void);

struct tpck_overlay_entry;

/* ---- standstill.c ---- */
/* No call of another thread's changes a file from here on until the end. */
void tpck_standstill_begin(void);
void tpck_standstill_end(void);

/* ---- still_open.c ---- */
/* All entries of the overlay; the real files are what they say already. 0 or -errno and why. */
int tpck_still_open_settle(struct tpck_overlay_entry **entries, uint32_t count, char *why, size_t size);

/* ---- seen.c ---- */
enum tpck_seen_kind {
	TPCK_SEEN_REAL,   /* what is at the path counts */
	TPCK_SEEN_FILE,   /* the scratch file */
	TPCK_SEEN_ABSENT,
	TPCK_SEEN_GHOST,  /* there is nothing any more; who opens it has the scratch file */
};
/* The path is this from here on. */
void tpck_seen_put(uint64_t digest, enum tpck_seen_kind kind, int fd, ino_t inode);
/* The scratch file's path is removed. True: the descriptor is kept for others. */
bool tpck_seen_keeps(uint64_t digest, int fd, ino_t inode);
/* Where the program gives a descriptor of the file to another process, which writes by it too: its own are the real file's, as that process's cannot be changed
 * once this one is live. Else, and where it cannot be, the entry stays as it is. */
void tpck_seen_give(struct tpck_overlay_entry *entry);
/* The real files are as the overlay says. */
void tpck_seen_end(void);
/* In a process that sees it. True: the call is answered, with errno; false: it is the kernel's. */
bool tpck_seen_open(const struct tpck_at *at, int flags, int *fd);
bool tpck_seen_stat(const struct tpck_at *at, struct stat *found, int *result);
/* Whether opening it may be. */
bool tpck_seen_redirects(const struct tpck_at *at, int flags);

/* ---- follow_layer.c ---- */
/* 0, or -1 with EFAULT. */
int tpck_follow_to_statx(const struct stat *from, struct statx *to);

/* ---- reconcile.c ---- */
/* The real file is as the scratch file, from here on. 0, or -errno. */
int tpck_reconcile_file(struct tpck_overlay_entry *entry);

/* ---- output.c ---- */
int tpck_output_divert(void);
void tpck_output_flush(void);
void tpck_output_back(void);

/* ---- overlay.c ---- */
enum tpck_overlay_kind { TPCK_KIND_ABSENT, TPCK_KIND_FILE, TPCK_KIND_FOLDER, TPCK_KIND_LINK, TPCK_KIND_SOCKET };

/* What the overlay knows of a path. */
struct tpck_overlay_entry {
	uint64_t digest;
	enum tpck_overlay_kind kind;
	int fd;           /* KIND_FILE: its scratch */
	ino_t inode;      /* of the scratch */
	mode_t mode;      /* KIND_FOLDER made by the program */
	char *target;     /* KIND_LINK; KIND_SOCKET: where it really is */
	bool changed;     /* by the program itself, not merely seen to be absent */
	struct timespec when; /* the last change while running forward; 0: none. KIND_FILE: once it is settled */
	struct timespec stays; /* KIND_FILE, once it is settled: that of the real file, which had what it should have; 0: it had not */
	bool linked;      /* its scratch file may have other names */
	bool given;       /* KIND_FILE: `fd` is the real file, which other processes write to as well */
	struct tpck_overlay_entry *next;
	char path[];
};

/* When it began to run forward, in CLOCK_REALTIME: what is older is nothing that it has written meanwhile. */
uint64_t tpck_follow_forward_ns(void);
bool tpck_overlay_active(void);
/* A socket is at the path, which is really at `target`. -1 with errno. */
int tpck_overlay_socket(const char *target, const char *path, uint64_t digest);
/* No more answers: the process is live, or begins anew. */
void tpck_overlay_end(void);
mode_t tpck_overlay_mask(void);
/* How many names a scratch file has in the overlay; 0 for other files. */
nlink_t tpck_overlay_names(dev_t device, ino_t inode);
struct tpck_overlay_entry *tpck_overlay_find(uint64_t digest);
/* All of them by path, parents first; NULL where there is no memory. The caller frees the list. */
struct tpck_overlay_entry **tpck_overlay_sorted(uint32_t *count);
/* The first difference is kept, for tpck_follow_difference(). */
void tpck_overlay_differs(const char *what, const char *path);

/* As the call of that name, with errno; on a path that only the real world knows they make the real
 * call, but those that change something do it in the overlay. */
int tpck_overlay_open(const char *path, uint64_t digest, int flags, mode_t mode);
int tpck_overlay_rename(const char *from, uint64_t from_digest, const char *to, uint64_t to_digest);
/* A file that is real, temporary or a compiler's, is renamed to be one of those that are not. */
int tpck_overlay_take(const char *from, const char *to, uint64_t to_digest);
/* The other way round. */
int tpck_overlay_give(const char *from, uint64_t from_digest, const char *to);
int tpck_overlay_unlink(const char *path, uint64_t digest, int flags);
/* A file beside a path, open for writing, of a name that nothing has; -1 with errno. */
int tpck_overlay_beside(const char *path, char *beside, size_t size);
int tpck_overlay_mkdir(const char *path, uint64_t digest, mode_t mode);
int tpck_overlay_symlink(const char *target, const char *path, uint64_t digest);
int tpck_overlay_link(const char *from, uint64_t from_digest, const char *to, uint64_t to_digest);
int tpck_overlay_chmod(const char *path, uint64_t digest, mode_t mode);
int tpck_overlay_times(const char *path, uint64_t digest, const struct timespec times[2]);
/* `path`, a buffer of TPCK_FOLLOW_PATH bytes, becomes where its file's attributes are. NULL with errno. */
const char *tpck_overlay_place(char *path, uint64_t digest, bool changes);
/* 0, -1 with errno, or TPCK_OVERLAY_REAL: ask the real path. */
int tpck_overlay_stat(const char *path, uint64_t digest, struct stat *found);
/* As readlink(); REAL as above. */
ssize_t tpck_overlay_readlink(const char *path, uint64_t digest, char *target, size_t size);

/* For tpck_follow_forked(). */
void tpck_overlay_forked(void);
void tpck_learnt_forked(void);
void tpck_early_forked(void);
void tpck_temporary_forked(void);
void tpck_names_forked(void);
void tpck_folders_forked(void);
void tpck_record_forked(void);

#endif
