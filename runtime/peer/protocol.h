/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What agents say to each other. A message is struct tpck_peer_message and the bytes behind it, which mean by type what
 * is said there. TPCK_PEER_VERSION must be raised whenever something here, the manifest's format or TPCK_WIRE_VERSION
 * changes its layout or meaning; agents of different versions say so in one line and leave each other alone.
 *
 * One that connects sends GREET; the other answers ANSWER, with its proof; then comes PROOF, which is sealed already, as all that follows
 * is (seal.h), unless both sides are content without. Before it is proven who somebody is nothing else is listened to. Integers are little
 * endian.
 */
#ifndef TPCK_RUNTIME_PEER_PROTOCOL_H
#define TPCK_RUNTIME_PEER_PROTOCOL_H

#include <stdint.h>

#include "runtime/peer/erasure.h"
#include "runtime/peer/seal.h"
#include "runtime/peer/secret.h"
#include "runtime/wire/segment.h"
#include "runtime/view/view.h"

#define TPCK_PEER_MAGIC 0x72656570u /* "peer" */
enum { TPCK_PEER_VERSION = 100 * TPCK_WIRE_VERSION + 19 };
/* Of texts: identities, reasons, manifests. */
enum { TPCK_PEER_TEXT_MAX = 256 << 20, TPCK_PEER_NAME = 128 };

enum tpck_peer_type {
	TPCK_PEER_GREET = 1, /* struct tpck_greeting; its proof is empty */
	TPCK_PEER_ANSWER,    /* struct tpck_greeting */
	TPCK_PEER_PROOF,     /* struct tpck_greeting */
	TPCK_PEER_REFUSE,    /* a text: why there is no talk with this one */
	TPCK_PEER_PING,      /* value: 1 where programs are served */
	TPCK_PEER_OFFER,     /* a manifest's text: what the sender would give, or this fragment of. transfer is the sender's number of it; value
			      * one more than the step that is to stay meanwhile, or 0: the newest */
	TPCK_PEER_WANT,      /* to an OFFER: struct tpck_peer_want, one for each chunk that lacks; to one that answers a GET several times, of some chunks
			      * each */
	TPCK_PEER_CHUNK,     /* member, object, chunk: a piece of its bytes, or of its fragment's, from offset on; value: how many there are; digest: of
			      * the fragment */
	TPCK_PEER_HAVE,      /* to an OFFER: all is there, compared with its digests, and kept */
	TPCK_PEER_FAIL,      /* to an OFFER or a GET: a text, why not */
	TPCK_PEER_DROP,      /* an identity's text: copies of it up to `generation` are not needed any more; value 1: it ended */
	TPCK_PEER_MARK,      /* an identity's text: a start of this program may find something with peers */
	TPCK_PEER_ASK,       /* an identity's text, rank, ordinal: what is there of it? transfer is the asker's number. Of
			      * several ranks the first one stands for all */
	TPCK_PEER_TELL,      /* to an ASK: value 0: nothing; 1: a copy of generation and step; 2: only one of the program as it
			      * was with other arguments, variables or ranks, and its identity's text. With 0 and 1: struct tpck_peer_told, one for
			      * each fragment, or part of a launch on several nodes */
	TPCK_PEER_GET,       /* an identity's text, rank, ordinal, generation, step: is answered by an OFFER of what is there of this
			      * launch and exactly this step, to which this rank belongs: the whole, or this fragment */
	TPCK_PEER_ACCORD,    /* struct tpck_accord_message (accord.h) and what goes with it */
	/* Files that a node owes to their paths (owed.h). `generation` is the table that they are in. From the owner: */
	TPCK_PEER_FILE_BEGIN, /* what is kept of this table? */
	TPCK_PEER_FILE_BYTES, /* of serial `step` and version `transfer`, from `value` MiB on: their digest, and up to a MiB of them;
			       * rank: how many MiB the file has; offset: the number of the attempt to send it */
	TPCK_PEER_FILE_RECORD, /* struct tpck_owed_head and what is behind it: it is closed, in place of what had its serial; value:
				* how many BYTES there are for it, which may come later, 0: it has been sent; offset: as there */
	TPCK_PEER_FILE_GONE, /* struct tpck_peer_gone: they are not owed any more */
	/* To the owner: */
	TPCK_PEER_FILE_HAS,  /* to a BEGIN: struct tpck_peer_file of each */
	TPCK_PEER_FILE_KEPT, /* to the RECORD of serial `step`: it is kept */
	TPCK_PEER_FILE_FULL, /* to the BYTES or the RECORD of serial `step`: a text, why it is not */
	/* Between all: */
	TPCK_PEER_FILE_LOOK, /* is this table yours, or have you files of it? transfer is the asker's number */
	TPCK_PEER_FILE_LOOKED, /* value: enum tpck_peer_looked */
	TPCK_PEER_FILE_TAKE, /* put at their paths what you have of this table, unless its owner is there */
	TPCK_PEER_FILE_TOOK, /* to a TAKE: that has been done, or cannot be for now */
	TPCK_PEER_FILE_TAKEN, /* what this table owed up to order `step` is at its paths: it is not to be kept any longer */
	/* Where all that nodes know of each other is the one at which the ranks meet: */
	TPCK_PEER_WHERE,     /* the sender's addresses, a line each */
	TPCK_PEER_MASTER,    /* a host: the ranks of a start meet there; value: when it was, CLOCK_REALTIME */
	TPCK_PEER_THERE,     /* another one's node, and its addresses, a line each */
	/* Once each knows the other: */
	TPCK_PEER_NODE,      /* all addresses of the sender's node that others can reach, a line each; ports mean nothing */
};

enum tpck_peer_looked {
	TPCK_PEER_FILE_NOTHING,
	TPCK_PEER_FILE_OWNS,  /* it is mine */
	TPCK_PEER_FILE_HOLDS, /* I have files of it */
	TPCK_PEER_FILE_LEFT,  /* it is mine, and no process that writes files is left here, but files are that it owed */
};

struct tpck_peer_file {
	uint64_t serial, order, version;
};

struct tpck_peer_gone {
	uint64_t serial, order;
	struct tpck_view_there put; /* what the owner put at its path; unknown: nothing */
};

struct tpck_peer_message {
	uint32_t magic;
	uint16_t version, type;
	uint64_t transfer;
	uint64_t generation, step;
	uint32_t rank, ordinal;
	uint32_t member, object, chunk; /* of the manifest's members */
	uint32_t offset;
	uint64_t value;
	struct tpck_fragment fragment;
	uint8_t digest[16];
};

struct tpck_peer_want {
	uint32_t member, object, chunk;
};

struct tpck_peer_told {
	uint64_t generation, step;
	struct tpck_fragment fragment;
	uint32_t part; /* 1: the launch's other ranks were on other nodes */
	uint32_t reserved;
};

/* By which secret one is known: that of the job's store, or of TRANSPCKPT_SECRET; and the user's, where Slurm says who there is. */
enum { TPCK_SECRET_JOB, TPCK_SECRET_USER, TPCK_SECRETS };

/*
 * Names are NUL-terminated. Who connects says which secret it is, how strict it is (enum tpck_seal_level) and which ciphers it has; the other
 * one answers by the same secret, with the stricter level of both, and with the one cipher that is used. The proof of an ANSWER is of "answer",
 * the GREET as it came and the ANSWER; that of a PROOF of "proof", the ANSWER and the GREET, each without its proof: neither can be sent back as
 * the other, and both have seen the same, so that nobody between them makes them less strict. Of GREET and ANSWER are the keys, too.
 */
struct tpck_greeting {
	uint8_t nonce[TPCK_NONCE_BYTES];
	uint8_t proof[TPCK_PROOF_BYTES];
	uint32_t by;
	uint16_t level, ciphers;
	char job[TPCK_PEER_NAME], node[TPCK_PEER_NAME], host[TPCK_PEER_NAME], domain[TPCK_PEER_NAME];
};

#endif
