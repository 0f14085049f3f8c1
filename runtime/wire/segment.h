/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory between the preloaded library and the agent: the control page, snapshot images
 * and the log. All are files of the memory tier (tmpfs), mapped by both; both sides may die at any
 * instruction, and the files alone must say what is whole.
 *
 * A process of a job that uses a device has one session folder there,
 *     SHM/JOB/g<generation>.r<rank>.o<ordinal>/
 * with `control`, `image.0` ... `image.<n-1>`, and `log.<%06u sequence>`.
 *
 * TPCK_WIRE_VERSION must be raised whenever a structure here changes its layout or meaning. A side
 * that meets another version says so in one line and leaves the files alone.
 *
 * Integers are little endian. Fields marked [shim] are written by the library, [agent] by the
 * agent; state words change by atomic compare-and-swap or store with release order.
 */
#ifndef TPCK_RUNTIME_WIRE_SEGMENT_H
#define TPCK_RUNTIME_WIRE_SEGMENT_H

#include <stdatomic.h>
#include <stdint.h>

enum {
	TPCK_WIRE_VERSION = 41,
	TPCK_CHUNK_BYTES = 4 << 20,
	TPCK_IMAGES_MAX = 4,
	TPCK_CLASSES = 6,
	TPCK_MARKS_MAX = 64,
};
#define TPCK_CONTROL_MAGIC 0x6c7274636b637074ull /* "tpckctrl" */
#define TPCK_IMAGE_MAGIC 0x67616d696b637074ull   /* "tpckimag" */
/* "SESSION/behind.NNNNNN": segments of the run that is resumed, from the one with the cut on. */
#define TPCK_LOG_BEHIND "behind."
/* "JOB/twin.PROCESS": a folder of a twin's own (runtime/engine/following.c). */
#define TPCK_TWIN_FOLDER "twin."
/* "JOB/twin.PROCESS/socket.DIGEST": a Unix socket of a twin's (runtime/programs/own_sockets.c); beside it "socket.DIGEST.name", a symbolic link to its path. */
#define TPCK_TWIN_SOCKET "socket."
#define TPCK_TWIN_SOCKET_NAME ".name"
/* "SESSION/written": what forked children write to files (runtime/programs/written.c); the same of the run that is resumed. */
#define TPCK_WRITTEN "written"
#define TPCK_SEEN "overlay"
#define TPCK_WRITTEN_BEHIND TPCK_LOG_BEHIND "written"
/* "SESSION/written.gNNN": the same of generation NNN, which went on from a snapshot of this session and left none. */
#define TPCK_GENERATION ".g"
/* "SESSION/said": what forked children said to others, and is not in the log yet: a segment (runtime/network/descendants.c); of the run that is resumed. */
#define TPCK_SAID "said"
#define TPCK_SAID_BEHIND TPCK_LOG_BEHIND "said"
/* "SESSION/started": what forked children started, and is not in the log yet: a segment (runtime/programs/children.c); of the run that is resumed. */
#define TPCK_STARTED "started"
#define TPCK_STARTED_BEHIND TPCK_LOG_BEHIND "started"
/* Where the first record of those two is. */
enum { TPCK_MAIL_AT = 64 };
/* "SESSION/tried.gNNN": what generation NNN, which went on from a snapshot of this session and left none, started and said to others behind that, or what is
 * known of it: a segment whose records are cut short (runtime/store/tried.h); of the run that is resumed. */
#define TPCK_TRIED "tried"
#define TPCK_TRIED_BEHIND TPCK_LOG_BEHIND TPCK_TRIED
#define TPCK_LOG_MAGIC 0x20676f6c6b637074ull     /* "tpcklog " */
#define TPCK_STASH_MAGIC 0x747361736b637074ull   /* "tpcksast" */

/* ---- image ------------------------------------------------------------------------------- */

/* An image file is sparse: header at 0, chunk table, index, then data, each at a fixed offset, so
 * that data can grow (ftruncate) without anything moving. The index is rows, then tensors, then
 * optimizers, then communicators, then peers, without gaps. */
#define TPCK_IMAGE_CHUNKS_AT (64ull << 10)
#define TPCK_IMAGE_INDEX_AT (32ull << 20)
#define TPCK_IMAGE_DATA_AT (256ull << 20)

enum tpck_image_state {
	TPCK_IMAGE_FREE,      /* nobody needs it; its bytes may still equal an older snapshot */
	TPCK_IMAGE_FILLING,   /* the shim is writing it */
	TPCK_IMAGE_HELD,      /* whole on this rank: data, index, footer fields are final */
	TPCK_IMAGE_COMMITTED, /* held by all ranks with the copies asked for; set by the agent */
	TPCK_IMAGE_ABANDONED, /* given up; the agent (or the shim that fills next) makes it free */
};

struct tpck_image_header {
	uint64_t magic;
	uint32_t version;
	uint32_t ordinal;              /* which image of the session this is */
	_Atomic uint32_t state;        /* enum tpck_image_state */
	_Atomic uint32_t pins;         /* [agent] users that read it: flush, transfer; never freed while > 0 */
	uint64_t generation, step;     /* [shim] identity; step = iterations finished at the boundary */
	uint64_t data_bytes;           /* [shim] data area in use, from TPCK_IMAGE_DATA_AT */
	uint32_t chunks, rows;         /* [shim] chunk = TPCK_CHUNK_BYTES of the data area; the last may be shorter */
	uint64_t log_sequence;         /* [shim] the log's cut: records before byte log_offset of segment log_sequence belong */
	uint64_t log_offset;
	uint32_t resumable;            /* [shim] 0: state is whole but the log cannot be run forward; why in `reason` */
	uint32_t tensors, optimizers;  /* [shim] in the index, behind the rows; 0: none is known */
	uint32_t communicators, peers; /* [shim] behind the optimizers */
	uint32_t reserved0;
	char reason[128];
	uint64_t begun_ns, held_ns;    /* CLOCK_MONOTONIC */
	uint64_t footer;               /* [shim] written last: tpck_image_footer() of the fields above */
};

/* One a chunk, at TPCK_IMAGE_CHUNKS_AT + 64 * i. */
struct tpck_image_chunk {
	_Atomic uint32_t ready;        /* [shim] 1: bytes are final for this filling, may be hashed and sent */
	_Atomic uint32_t hashed;       /* [agent] 1: digest is that of the bytes of this filling */
	uint64_t bytes;
	uint8_t digest[16];            /* [agent] XXH3-128, canonical (big endian) form */
	uint32_t unchanged;            /* [shim] 1: no byte was rewritten since the previous filling of this image */
	uint32_t reserved[7];
};

enum tpck_class {
	TPCK_CLASS_UNKNOWN,   /* captured, nothing promised */
	TPCK_CLASS_CONSTANT,  /* C: content did not change while watched */
	TPCK_CLASS_OPTIMIZER, /* O: written in the optimizer phase only */
	TPCK_CLASS_EARLY,     /* E: written before it */
	TPCK_CLASS_DEAD,      /* T: proven not to be read after the boundary; no data */
};
enum tpck_memory_kind { TPCK_MEMORY_ARENA, TPCK_MEMORY_MODULE_VARIABLE, TPCK_MEMORY_HOST_MAPPED };

/* One a block, at TPCK_IMAGE_INDEX_AT + sizeof * i, by ascending allocation order. */
struct tpck_image_row {
	uint64_t address, bytes;       /* device address (module variable: address in the capturing process) */
	uint64_t data_offset;          /* in the data area; UINT64_MAX: no data (dead) */
	uint64_t order;                /* how many allocations came before it */
	uint64_t site;                 /* signature of the allocating call site; 0 unknown */
	uint64_t asof_step;            /* the step whose content this is (constant blocks: earlier than the image's) */
	uint64_t device_digest;        /* tpck_digest64 taken on the device at the boundary; 0 not taken */
	uint32_t device, kind;         /* enum tpck_memory_kind */
	uint32_t class_;               /* enum tpck_class */
	uint32_t reserved;
	char symbol[104];              /* module variables: name; else "" */
};

/* What a tensor is to the optimizer, as its launches said. */
enum tpck_tensor_role {
	TPCK_TENSOR_NONE,
	TPCK_TENSOR_PARAMETER,
	TPCK_TENSOR_GRADIENT,
	TPCK_TENSOR_MOMENT1,     /* momentum or first moment */
	TPCK_TENSOR_MOMENT2,     /* second moment */
	TPCK_TENSOR_STATE,       /* written by the optimizer; which of these it is was not said */
	TPCK_TENSOR_STEP,        /* these four are single floats on the device */
	TPCK_TENSOR_LR,
	TPCK_TENSOR_GRAD_SCALE,
	TPCK_TENSOR_FOUND_INF,
	TPCK_TENSOR_ROLES,
};

/* One a tensor that the last optimizer phase before the boundary named, by ascending address. A block
 * holds any number of them; its bytes lie at the row's data_offset + address - the row's address. */
struct tpck_image_tensor {
	uint64_t address, elements;
	uint32_t row;                  /* of the block that it lies in */
	uint32_t role;                 /* enum tpck_tensor_role */
	uint32_t optimizer, position;  /* it belongs to the position-th parameter of this optimizer's list */
	uint32_t element;              /* type: in the low byte 'f' float, 'b' bfloat16; its size in the next */
	uint32_t reserved;
};

enum tpck_scalar {
	TPCK_SCALAR_LR,
	TPCK_SCALAR_BETA1,
	TPCK_SCALAR_BETA2,
	TPCK_SCALAR_EPS,
	TPCK_SCALAR_WEIGHT_DECAY,
	TPCK_SCALAR_MOMENTUM,
	TPCK_SCALAR_STEP,
	TPCK_SCALAR_STEP_SIZE,   /* the factor of the update: lr and its corrections in one, as launched */
	TPCK_SCALAR_GRAD_SCALE,  /* the gradient scaler's: what gradients are divided by, and whether one was not finite */
	TPCK_SCALAR_FOUND_INF,
	TPCK_SCALARS,
};

/* One for each list of parameters that was updated together, with the scalars of its last launches; those that lie on the
 * device are as they were at the boundary. */
struct tpck_image_optimizer {
	char family[24];
	uint32_t parameters;           /* how many it has */
	uint32_t known;                /* bits 1 << enum tpck_scalar */
	double scalar[TPCK_SCALARS];
};

/* One a communicator that the process had at the boundary, in order of creation. What is counted was queued before it. */
struct tpck_image_communicator {
	uint64_t id;                   /* the same in all its ranks, and in a run that goes on from here */
	uint32_t index;                /* which one of its process, the same in every run */
	uint32_t size, rank;           /* how many ranks it has; which this one is */
	int32_t device;                /* -1: not known */
	uint64_t collectives;          /* how many */
	uint64_t order;                /* digest of what they were, in order: the same in all ranks */
};

/* One a peer that something was sent to or received from, by communicator and peer. */
struct tpck_image_peer {
	uint32_t communicator;         /* which of the image's, from 0 */
	uint32_t peer;                 /* its rank there */
	uint64_t sends, receives;
};

/* How many of each the index holds, in this order. */
struct tpck_index_counts {
	uint64_t rows, tensors, optimizers, communicators, peers;
};

static inline uint64_t tpck_index_bytes(const struct tpck_index_counts *counts)
{
	return counts->rows * sizeof(struct tpck_image_row) + counts->tensors * sizeof(struct tpck_image_tensor) +
	       counts->optimizers * sizeof(struct tpck_image_optimizer) +
	       counts->communicators * sizeof(struct tpck_image_communicator) + counts->peers * sizeof(struct tpck_image_peer);
}

static inline struct tpck_index_counts tpck_image_counts(const struct tpck_image_header *header)
{
	return (struct tpck_index_counts){header->rows, header->tensors, header->optimizers, header->communicators, header->peers};
}

static inline uint64_t tpck_image_index_bytes(const struct tpck_image_header *header)
{
	struct tpck_index_counts counts = tpck_image_counts(header);

	return tpck_index_bytes(&counts);
}

/* ---- log --------------------------------------------------------------------------------- */

/* Segments are appended in order, each TPCK_LOG_SEGMENT_BYTES or larger where one record is; a
 * record never spans two. A restarted process goes on in the same log, cut where its image says. */
#define TPCK_LOG_SEGMENT_BYTES (16ull << 20)
/* What `sealed` says. */
enum { TPCK_LOG_OPEN, TPCK_LOG_SEALED, TPCK_LOG_PACKED /* a file of another name: wire/pack.h */ };

struct tpck_log_header {
	uint64_t magic;
	uint32_t version;
	uint32_t sealed;               /* [shim] not 0: no more records will come into this segment */
	uint64_t generation;           /* that wrote the segment first */
	uint64_t sequence;             /* from 0 */
	uint64_t bytes;                /* size of the segment's file */
	_Atomic uint64_t used;         /* [shim] end of the last whole record, from the file's start */
};

/* ---- stashes ----------------------------------------------------------------------------- */

/* What a program reads back from the device is kept beside the log where it is much: in files SHM/JOB/stash/PROGRAM/GENERATION.NUMBER, both decimal, which the agent
 * puts into the store (STORE/JOB/keep/PROGRAM, by the same name), and takes away from memory once they are whole there. The log's record
 * says in which file, and where in it. Pieces lie behind one another from TPCK_STASH_AT on, each aligned to 64 bytes. */
enum { TPCK_STASH_AT = 4096 };
#define TPCK_STASH_FOLDER "stash"
#define TPCK_STASH_STORE "keep"
enum tpck_stash_state { TPCK_STASH_OPEN, TPCK_STASH_FULL /* no more pieces will come */ };

struct tpck_stash_header {
	uint64_t magic;                /* TPCK_STASH_MAGIC; written last */
	uint32_t version;
	_Atomic uint32_t state;        /* enum tpck_stash_state. [shim] */
	_Atomic uint32_t awaited;      /* pieces whose bytes have not come yet. [shim] */
	uint32_t reserved;
	uint64_t generation, number;   /* as its name says */
	_Atomic uint64_t used;         /* end of the last piece, from the file's start. [shim] */
	uint64_t digest;               /* in the store: of [TPCK_STASH_AT, used) */
};

/* The digest of a stash's bytes is that of pieces of so many bytes, each with the last one's as its seed; the first seed is its number. */
enum { TPCK_STASH_PIECE = 1 << 20 };

/* Whether a name in such a folder is a stash's: two numbers with a dot between them. */
static inline int tpck_stash_is_name(const char *name)
{
	int parts = 0;

	for (;; name++) {
		const char *first = name;

		while (*name >= '0' && *name <= '9')
			name++;
		if (name == first || ++parts > 2 || *name != '.')
			return parts == 2 && !*name && name != first;
	}
}

/* ---- control ----------------------------------------------------------------------------- */

enum tpck_engine_state { TPCK_ENGINE_OFF, TPCK_ENGINE_LEARNING, TPCK_ENGINE_CAPTURING, TPCK_ENGINE_FORWARD, TPCK_ENGINE_ENDED };

/* Who takes the digests of what the device has. */
enum tpck_digest_way { TPCK_DIGESTS_UNKNOWN, TPCK_DIGESTS_DEVICE, TPCK_DIGESTS_NO_KERNEL, TPCK_DIGESTS_OTHER /* it computes others */ };

/* In which of several ways things are done with this driver and device. [shim] */
struct tpck_ways {
	char driver[256];              /* path of its library, or "" */
	uint32_t driver_version;       /* of CUDA, as the driver counts: 13000; 0: not known */
	uint32_t digests;              /* enum tpck_digest_way */
	uint32_t pinned, images;       /* of those that are mapped, and how many those are */
	uint32_t arena;                /* 1: memory is served from the arena; 0: by the driver, at any address */
	uint32_t reserved;
	uint64_t refused_waits;        /* for a copy, by the device: threads of the program waited instead */
	uint32_t kernels, kernels_bare; /* that were launched; those of which the driver does not tell the parameters: compared without */
	uint32_t parameters, parameters_compared; /* of the others; those that are compared: numbers, and pointers to memory that is followed */
};

/* What `transpckpt show` prints; counters only grow. All [shim] unless marked. */
struct tpck_status {
	_Atomic uint32_t state;        /* enum tpck_engine_state */
	uint32_t reserved;
	char reason[192];              /* why nothing is captured, or "" */
	uint64_t boundaries;           /* iterations seen to end */
	uint64_t period;               /* device operations an iteration */
	uint64_t optimizer_operations;
	uint32_t sure_by_names, sure_by_pattern;
	uint32_t by_uploads, reserved_too; /* 1: no iteration is found, boundaries are before uploads */
	uint64_t captured, skipped, abandoned;
	uint64_t operations;
	uint64_t class_blocks[TPCK_CLASSES], class_bytes[TPCK_CLASSES]; /* by enum tpck_class */
	uint64_t stall_ns_max, stall_ns_sum, stall_count; /* time inside our hooks at boundaries, by the clock */
	uint64_t stall_cpu_ns_max, stall_cpu_ns_sum;      /* and the processor's */
	uint64_t submit_ns_max, submit_ns_sum, submit_count; /* waits of the program's threads for copies to be submitted */
	uint64_t wait_ns_sum, wait_ns_mean; /* how long the device held the program up for copies; all, and of late */
	uint64_t iteration_ns;         /* running mean between boundaries */
	uint64_t free_iteration_ns;    /* the same of iterations in which nothing was copied; 0 none yet */
	uint64_t forward_from, forward_to, forward_ns, start_ns, inject_ns; /* of the resume, if any */
	uint64_t last_step;            /* newest image held */
	char trouble[192];             /* the last error of NCCL's, or "" */
	struct tpck_ways ways;
	_Atomic uint64_t log_bytes, log_memory; /* of the record: all of it, and what of it is in memory, not packed and in the store */
	uint64_t unresumable_from;     /* first step whose snapshot cannot be resumed, for `unresumable`; 0: none */
	char unresumable[128];
	uint64_t lived_iterations, lived_ns; /* that ended in this process behind its first boundary, and how long they took together */
	uint64_t forward_first_ns;     /* of forward_ns: until the first two iterations were through; 0: there were no more */
};

/* Calls of NCCL's that ranks make together. */
enum tpck_collective {
	TPCK_ALL_REDUCE, TPCK_REDUCE, TPCK_REDUCE_SCATTER, TPCK_BROADCAST, TPCK_BCAST, TPCK_ALL_GATHER, TPCK_ALL_TO_ALL,
	TPCK_GATHER, TPCK_SCATTER, TPCK_SEND, TPCK_RECV,
};

/* How far the process has come on a communicator, at any time: what was queued last, and how many collectives before it
 * and with it. Words of one mark may be of two neighbouring calls. [shim] */
struct tpck_communicator_mark {
	_Atomic uint64_t id;           /* 0: none */
	_Atomic uint32_t index, size, rank;
	_Atomic uint32_t last;         /* enum tpck_collective */
	_Atomic uint64_t collectives;
	_Atomic uint64_t elements;     /* of the last */
	_Atomic uint64_t last_ns;      /* CLOCK_MONOTONIC; 0: nothing yet */
};

/* Ranks go live together, or start over together: from the beginning, or to try once more. */
enum tpck_go_live { TPCK_GO_WAIT, TPCK_GO_LIVE, TPCK_GO_OVER, TPCK_GO_AGAIN };

struct tpck_control {
	uint64_t magic;
	uint32_t version;
	uint32_t images;               /* [agent] how many image files there are */
	uint64_t generation;           /* [agent] */
	uint64_t parent_generation, resume_step; /* [agent] of the offer; 0, 0 without */
	uint64_t resume_sequence, resume_offset; /* [agent] and its log's cut */
	int32_t pid;                   /* [shim] */
	_Atomic int32_t agent_pid;     /* [agent] */
	_Atomic uint64_t image_bytes;  /* [agent] data bytes that every image file is prefaulted for */
	_Atomic uint64_t exit_status;  /* [shim] 0 while running; 1 + status once it ended by itself */
	_Atomic uint64_t durable_step; /* [agent] newest step published by this generation */
	_Atomic uint64_t committed_step; /* [agent] newest that all ranks have; 0: none */
	_Atomic uint64_t alive_ns;     /* [shim] CLOCK_MONOTONIC of the last boundary */
	_Atomic uint64_t log_looked;   /* [agent] segments of the log below this one have been packed, where that makes them smaller */
	_Atomic uint64_t log_packed_raw, log_packed_bytes; /* [agent] what those that were packed had been, and what they are */
	uint32_t world, apart;         /* [agent] ranks of the launch; 1: some of them are on other nodes */
	uint64_t launch;               /* [agent] see struct tpck_hello */
	_Atomic uint64_t capture_step; /* [agent] the boundary that all ranks capture next, if it is not passed yet */
	_Atomic uint32_t injected;     /* [shim] 1: the state is in place, and the process waits for `go` */
	_Atomic uint32_t go;           /* [agent] enum tpck_go_live */
	char waiting[448];             /* [agent] what all ranks have been waiting for, or "" */
	struct tpck_communicator_mark communicator[TPCK_MARKS_MAX]; /* the first so many that the process has */
	struct tpck_status status;
};

/* "ncclAllReduce" */
const char *tpck_collective_name(uint32_t collective);
uint64_t tpck_image_footer(const struct tpck_image_header *header);

#endif
