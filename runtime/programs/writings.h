/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes that the program has made write to files, in memory that all of them share: "SESSION/written", a file that is there as long as
 * the memory tier is, and "SESSION/written.PID" of what was written by children of a program before that knew whose it is. A process that is made again on a resume writes all of it a second time: what the first one wrote is taken back before that. Before the
 * program has a session the file has no name. Whoever writes an entry may be killed at any time.
 */
#ifndef TPCK_RUNTIME_PROGRAMS_WRITINGS_H
#define TPCK_RUNTIME_PROGRAMS_WRITINGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/shared_lock.h"

enum tpck_writing_kind {
	TPCK_WRITING_NONE,
	TPCK_WRITING_APPENDED,
	TPCK_WRITING_CREATED, /* it must not have been there (O_EXCL) */
	TPCK_WRITING_FOLDER,
	TPCK_WRITING_CHANGED, /* in place */
	TPCK_WRITING_BEGUN,   /* it is being filled in */
};

/* What one process has done to one file, or several of a family, one behind the other. All is in bytes, times are tpck_clock_monotonic_ns() but for the file's own. */
struct tpck_writing {
	_Atomic uint32_t kind;
	uint32_t writer;           /* the number that the process is known by in each run, or that of the program that started it */
	uint64_t when_ns;          /* when it was opened first */
	uint64_t made_ns;          /* when the process was made */
	uint64_t device, inode;
	int64_t before;            /* the file's size then */
	_Atomic int64_t own;       /* what the process has written since by calls that were seen */
	_Atomic int64_t doing;     /* more, at most, which it is writing */
	int64_t mtime_s, mtime_ns; /* the file's, before */
	uint64_t started;          /* when the process began, as tpck_view_process_started() says */
	_Atomic int32_t process;   /* its id; 0: it has ended */
	uint16_t former;           /* of one that is inherited: where it was read from (former.c); 0: nowhere */
	bool is_new;               /* there was no such file before the process was made */
	_Atomic bool inherited;    /* by the run that was gone on from */
	_Atomic uint64_t ended_ns; /* the log has the process's end since then; 0: it has not */
	uint32_t family;           /* what is made again together with the process has the same number here */
	bool told;                 /* to the log */
	char path[400];
};

enum { TPCK_WRITINGS_MOST = 1022, TPCK_WRITINGS_MISSED = 16 };
struct tpck_writings {
	struct tpck_writings_head {
		uint64_t magic;
		uint32_t version;           /* TPCK_WIRE_VERSION */
		tpck_shared_lock lock;      /* of what is taken back */
		_Atomic uint32_t taken;     /* entries, as many as there were: those are overwritten that are needed least */
		_Atomic uint32_t inherited; /* entries */
		/* Processes that have written what no entry tells, or whose entry is overwritten, by their numbers: when the youngest was made that has this one, 0: there
		 * is none. All that have no place here are one of the number 0. */
		struct {
			_Atomic uint32_t writer;
			_Atomic uint64_t made_ns;
		} missed[TPCK_WRITINGS_MISSED];
		_Atomic uint64_t passed_ns; /* of the others whose entries are overwritten: the log has all of their ends since then */
		_Atomic uint32_t writer;    /* of all entries, where it is not 0: of a program whose children wrote before it knew whose it is */
		_Atomic int missed_error;   /* of the first of those: errno, or 0, and -1 while the path is written; the process with the log says a line of it */
		char missed_path[150];
		/* Files that the standard output and error of the process with the log are, at [1] and [2]; 0, 0: not known. */
		struct {
			uint64_t device, inode;
		} output[3];
		_Atomic uint64_t patient_ns;   /* until then it is waited for processes of the run that was gone on from; 0: nobody has waited yet */
		_Atomic uint64_t impatient_ns; /* not for longer, whatever they note */
		_Atomic uint64_t patient_sum;  /* of what they have noted, when it was looked at last */
		/* Names of files that could not be put back, and processes that had not ended by then; guarded by the lock, and said by the process with the log. */
		_Atomic bool has_left, has_outlived;
		_Atomic int32_t stuck; /* the process for whose lock somebody has waited in vain, or 0 */
		char left[150], outlived[80];
	} head;
	char pad[1024 - sizeof(struct tpck_writings_head)];
	struct tpck_writing entry[TPCK_WRITINGS_MOST];
};

/* Without a name, on the file system of this folder; *fd: by which it gets one. NULL: it cannot be, with errno. */
struct tpck_writings *tpck_writings_unnamed(const char *folder, int *fd);
/* A file of this name in the session's folder, in place of one that is there. NULL: it cannot be, with errno. */
struct tpck_writings *tpck_writings_new(const char *session, const char *name);
/* One that is there. NULL: it is not, with errno ENOENT, or cannot be read. */
struct tpck_writings *tpck_writings_open(const char *session, const char *name);
/* The one without a name gets this one. 0, or -errno. */
int tpck_writings_name(int fd, const char *session, const char *name);
void tpck_writings_close(struct tpck_writings *writings);
/* An entry of kind BEGUN for this process, to be filled in and given its kind. */
struct tpck_writing *tpck_writings_take(struct tpck_writings *writings);
/* What a process made then has written is in no entry. */
void tpck_writings_lack(struct tpck_writings *writings, uint64_t made_ns, uint32_t writer);
/* Whether there was such a process. */
bool tpck_writings_lacking(const struct tpck_writings *writings);
/* The log has the end of the process of that number. */
void tpck_writings_ended(struct tpck_writings *writings, uint32_t writer);
/* How many entries there are, of which some may be of kind NONE or BEGUN. */
uint32_t tpck_writings_count(const struct tpck_writings *writings);

#endif
