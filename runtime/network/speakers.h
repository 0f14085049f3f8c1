/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who else speaks for the process that has the log, which is called the root here: its forked children, and programs that it has started and that have the
 * library, too. What all of them have to know lies in memory that they share: before the root has a session only with forked children, from then on in a
 * file of the session's folder, beside their mail (replay/mail.h). Of a program that was started the root notes the number that it has in each run.
 * Whoever is in it may be killed at any time.
 */
#ifndef TPCK_RUNTIME_NETWORK_SPEAKERS_H
#define TPCK_RUNTIME_NETWORK_SPEAKERS_H

#include "runtime/network/network_private.h"
#include "runtime/replay/mail.h"
#include "runtime/replay/record_log.h"

/* Until the root's next boundary. */
enum { TPCK_SPEAKERS_MAIL = 1 << 20 };
#define TPCK_SPEAKERS "speakers"

enum {
	TPCK_SPEAKER_GUESS = 1,   /* the number is none that the log has */
	TPCK_SPEAKER_FORWARD = 2, /* the root ran forward when the program was started: it does once more what it did in the first run */
};
/* In place of a process's number: the shell that it runs by system(), which libc makes by itself. */
#define TPCK_SPEAKER_SHELL(pid) (-(pid))
struct tpck_speakers {
	_Atomic uint64_t magic;    /* 0: the root is still filling it in */
	uint32_t version;          /* TPCK_WIRE_VERSION */
	_Atomic bool forwards;     /* the root runs forward */
	_Atomic bool released;     /* the others wait no more */
	int32_t root;              /* its process */
	_Atomic uint32_t waiting;  /* their threads; one that is killed meanwhile stays in it */
	struct tpck_log_position cut; /* of the log that the root is run forward by */
	_Atomic uint64_t live_ns;  /* when the root became live, or 0 */
	uint64_t boundary_ns;      /* when the first run came to where that ends */
	/* 1: what follows is being written, 2: it is there */
	_Atomic int sent, other, differs;
	struct tpck_record_peer sent_to, other_to;
	char difference[200];
	_Atomic uint32_t boundaries; /* that the root has come to */
	_Atomic bool mail_moved;   /* from memory to this file of the session's folder, where it outlives them */
	char mail[320];
	_Atomic uint32_t started;  /* programs, as many as there were; of the last of them: the process, and its number in the lower half */
	_Atomic uint64_t program[1024];
	_Atomic uint8_t flags[1024];   /* TPCK_SPEAKER_* */
};

/* What a process shares with others, and their mail; NULL, NULL: nothing. */
struct tpck_speakers_of {
	struct tpck_speakers *state;
	struct tpck_mail *mail;
	bool follows; /* in a forked child: its mail has moved */
};

/* In the session's folder, or, with NULL, for forked children alone. Others cannot open it yet. False: there is no memory. */
bool tpck_speakers_new(struct tpck_speakers_of *of, const char *session);
/* The files go from one session to another: others find them there. */
void tpck_speakers_rename(const char *from, const char *to);
/* Forked children that have what they say in the one go on with the mail of the other, which is in the session's folder. */
void tpck_speakers_move(struct tpck_speakers *from, const char *session);
/* In such a child: whether it may do so now. All that it has said is in the log, so its records stay in order. */
bool tpck_speakers_moved(const struct tpck_speakers_of *of);
void tpck_speakers_follow(struct tpck_speakers_of *of);
/* What it says is true from here on: others may open it. */
void tpck_speakers_ready(struct tpck_speakers *of);
/* What the root with this session has made. 0, EAGAIN: the root is still at it, or EINVAL: it cannot be shared; then there is nothing in *of. */
int tpck_speakers_open(struct tpck_speakers_of *of, const char *session);
/* This process executes the program of that number from here on; flags: TPCK_SPEAKER_*. */
void tpck_speakers_add(struct tpck_speakers *of, int pid, uint32_t number, unsigned flags);
/* TPCK_SPEAKER_*; 0: it is none of them. */
unsigned tpck_speakers_flags(const struct tpck_speakers *of, int pid);
/* 0: it is none of them. */
uint32_t tpck_speakers_number(const struct tpck_speakers *of, int pid);
/* The same, and 0 of a guess. */
uint32_t tpck_speakers_known(const struct tpck_speakers *of, int pid);
/* No program has been started yet. */
void tpck_speakers_clear(struct tpck_speakers *of);
/* What the programs of one are known by in the other, too. */
void tpck_speakers_copy(struct tpck_speakers *to, const struct tpck_speakers *from);
/* Whether a process is there by that number. */
bool tpck_speakers_has(const struct tpck_speakers *of, uint32_t number);

#endif
