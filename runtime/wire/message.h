/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the preloaded library and the agent, over a SOCK_SEQPACKET UNIX socket
 * SHM/JOB/agent.sock (folder mode 0700; the agent checks SO_PEERCRED, and the library that the
 * folder is its user's). One packet is one message. The library's calls never block on them but
 * for HELLO at start, which is bounded in time. The same version rule as in wire/segment.h.
 */
#ifndef TPCK_RUNTIME_WIRE_MESSAGE_H
#define TPCK_RUNTIME_WIRE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TPCK_MESSAGE_MAGIC 0x6b637074u /* "tpck" */
enum { TPCK_MESSAGE_BYTES_MAX = 128 << 10 };

enum tpck_message_type {
	TPCK_MSG_HELLO = 1,  /* library -> agent: struct tpck_hello, then identity text */
	TPCK_MSG_WELCOME,    /* agent -> library: struct tpck_welcome */
	TPCK_MSG_PREPARE,    /* library -> agent: struct tpck_prepare; answered by READY */
	TPCK_MSG_READY,      /* agent -> library: struct tpck_prepare with what was granted (0 bytes: refused, reason follows) */
	TPCK_MSG_HELD,       /* library -> agent: struct tpck_held; image is HELD */
	TPCK_MSG_RESUMED,    /* library -> agent: went live at the offered step; older timelines are fenced */
	TPCK_MSG_DIVERGED,   /* library -> agent: struct tpck_diverged; the offer is no good, mark it, unless `again` */
	TPCK_MSG_ENDING,     /* library -> agent: struct tpck_ending; answered by BYE once what is owed is durable */
	TPCK_MSG_BYE,        /* agent -> library */
	TPCK_MSG_QUERY,      /* command -> agent: no payload; answered by ANSWER, JSON text */
	TPCK_MSG_ANSWER,
	TPCK_MSG_SURPRISE,   /* agent -> library: struct tpck_held; the copied bytes are not what the device had */
	TPCK_MSG_INJECTED,   /* library -> agent: control->injected was set; no payload */
	TPCK_MSG_DUE,        /* library -> agent: a snapshot is due; which boundary it is control->capture_step says; no payload */
	TPCK_MSG_FILES,      /* library -> agent: SHM/JOB/files/table is there (view/view.h); no payload, no answer */
	TPCK_MSG_LOOK,       /* library -> agent: a process begins, and will look at what was saved; no payload. Answered by LOOKED once
			      * what lost nodes owed is at its path, or cannot be for now */
	TPCK_MSG_LOOKED,     /* agent -> library */
	TPCK_MSG_MEET,       /* library -> agent: struct tpck_meet. Answered by MET once the agent knows those of the launch's other nodes and what
			      * they have, or cannot for now */
	TPCK_MSG_MET,        /* agent -> library */
	TPCK_MSG_ID,         /* library -> agent, and on to the other ranks of the launch, wherever they are: struct tpck_communicator_id. It may be
			      * lost: who lacks one asks again */
	TPCK_MSG_BEGUN,      /* library -> agent: struct tpck_begun; a process that has not gone on from a snapshot came to its first boundary */
	TPCK_MSG_SPARE,      /* command -> agent: struct tpck_spare; ranks of other nodes may be started here as long as the connection is there */
	TPCK_MSG_STAND,      /* agent -> command: struct tpck_stand; that rank is to be started here */
};

struct tpck_message {
	uint32_t magic;
	uint16_t version; /* TPCK_WIRE_VERSION */
	uint16_t type;    /* enum tpck_message_type */
	uint32_t bytes;   /* of the payload that follows */
	uint32_t reserved;
};

enum {
	TPCK_HELLO_RESUME = 1, /* an offer is wanted */
	TPCK_HELLO_ADOPT = 2,  /* `generation` is running and lost its agent: take its session over, offer nothing */
	TPCK_HELLO_LATE = 4,   /* the program runs already: an offer could not be taken, only told of */
	TPCK_HELLO_APART = 8,  /* some of the ranks are on other nodes */
	TPCK_HELLO_OWN = 256,  /* what there is to go on from is told of, kept, and not offered: the program begins as it would without the library */
	TPCK_HELLO_FORWARD = 512, /* it is offered, whatever the program's own checkpoint would cost */
	TPCK_HELLO_IN_PLACE = 2048, /* it was forked once more by its supervisor, in the place of one that has failed */
	TPCK_HELLO_STANDS_IN = 8192, /* it was started on a spare node, in the place of one whose node is lost */
	TPCK_HELLO_SUPERVISED = 4096, /* it has a supervisor, which looks for what those of the other ranks share (wire/twin_set.h) in its session */
	TPCK_HELLO_TAKES_OVER = 1024, /* a twin of who has died: what has been compared with the device's digests once is not compared again, as it does that while it copies */
};

/* The identity text is lines "key value\n" with keys in this order: user, job, rank, ordinal,
 * ranks, executable, executable-digest, folder, argument (one a line), environment-key (a digest of the user's
 * key), environment (NAME=DIGEST by that key, base/key.h, one a line, sorted, without those that cannot matter), library. Backslash, newline and non-printing
 * bytes of values are written \xHH. */
struct tpck_hello {
	int32_t pid;
	uint32_t flags;
	uint32_t rank, world, ordinal;
	uint32_t identity_bytes;
	uint32_t failure;       /* with TAKES_OVER or IN_PLACE: enum tpck_failure of the one before */
	uint32_t reserved;
	uint64_t generation;    /* with ADOPT */
	uint64_t resume_step;   /* UINT64_MAX: the newest */
	uint64_t launch;        /* digest of what the launcher told all ranks alike, and not those of another start; 0: nothing */
	uint64_t forward_max_ns; /* running forward may take so long; 0: as long as it takes */
	char master[256];       /* the host where the ranks meet (MASTER_ADDR), NUL-terminated; "": nobody says */
};

struct tpck_meet {
	uint32_t nodes;         /* of the launch; 0: nobody says */
	uint32_t reserved;
	char master[256];       /* as in struct tpck_hello */
};

/* By what the ranks of a communicator meet when it is made anew, or a question for that. */
struct tpck_communicator_id {
	uint64_t name;          /* the communicator's, the same in all its ranks */
	uint32_t known;         /* 0: whoever knows it is to say it; 1: `id` holds */
	uint32_t reserved;
	char id[128];           /* ncclUniqueId */
};

struct tpck_welcome {
	uint64_t generation;
	uint32_t images;
	uint16_t meeting_ports[2];    /* at which the ranks may meet now, and if they start over; 0: none is known */
	uint32_t kept;                /* 1: there is something to go on from that is not offered, for this start: it stays what it is */
	uint32_t offer;               /* 1: `offer_*` hold; the session folder has resume.image and log.* up to the cut */
	uint64_t offer_generation, offer_step;
	uint64_t log_sequence, log_offset; /* the cut */
	uint64_t tries;               /* starts that were on their way to the offered step and did not come to it */
	char session[256];            /* absolute path of the session folder */
	char notice[512];             /* a line for the user (why there is no offer, what differs), or "" */
	uint64_t expected_ns;         /* with an offer: from the start of the process until it is live, as measured before; 0: it was not */
	char meeting_host[64];        /* with an offer: where rank 0 is, if that is not where the launcher has said; or "" */
	char choice[400];             /* with an offer: what that takes, and what the program's own checkpoint would; or "" */
};

struct tpck_prepare {
	uint64_t bytes;  /* data bytes an image must hold */
	uint32_t images; /* wanted; READY says how many there are */
	uint32_t reserved;
	char reason[240];
};

struct tpck_held {
	uint32_t image;
	uint32_t reserved;
	uint64_t generation, step;
};

struct tpck_diverged {
	uint64_t generation, step; /* of the offer */
	uint64_t at;               /* iteration in which the difference was seen */
	uint32_t ends;             /* 1: the process ends; its next start must get no offer at all, unless `again` */
	uint32_t again;            /* 1: perhaps by chance, or another rank's death; the process begins anew and wants the same offer once more */
	char what[240];
};

enum { TPCK_BEGUN_LOADS = 16 };
struct tpck_begun {
	uint64_t took_ns;             /* since its start */
	uint32_t loads;               /* so many files that the job had saved were opened before, */
	uint32_t reserved;
	uint64_t load[TPCK_BEGUN_LOADS]; /* whose names have these patterns (view/view.h), each once */
};

struct tpck_spare {
	uint32_t ranks;         /* so many can be started */
	uint32_t reserved;
};

struct tpck_stand {
	uint64_t generation;    /* whose rank it was */
	uint32_t rank, world;
	char command[256];      /* file with the text of runtime/wire/command.h, which the command removes */
};

struct tpck_ending {
	int32_t status;
	uint32_t reserved;
};

/* Whether bytes that came are one message, whole: 0, -EPROTO, or -EPROTONOSUPPORT: of another version. */
int tpck_message_check(const void *packet, size_t size);
/* Whether the payload of such a message to the agent is what its type says: there is all of its structure, and texts in it have
 * an end. Behind it, in memory, is a NUL. */
bool tpck_message_is_sound(const struct tpck_message *head, const void *payload);

#endif
