/* SPDX-License-Identifier: Apache-2.0 */
/* What libnccl's stand-in and the driver's exchange engine share: the kernels' parameter, and the memory through which ranks meet. */
#ifndef TESTS_SIM_EXCHANGE_H
#define TESTS_SIM_EXCHANGE_H

#include <stdatomic.h>
#include <stdint.h>

#define SIM_EXCHANGE_RANKS 64
#define SIM_EXCHANGE_ARGS 4096
#define SIM_EXCHANGE_MAGIC 0x4558494du
/* The length of a slot is a multiple of every element's, so that none lies in two. */
#define SIM_SLOT_BYTES (32u << 10)
#define SIM_SLOTS 4u

enum sim_exchange_kind {
	SIM_EXCHANGE_ALL_REDUCE,
	SIM_EXCHANGE_REDUCE,
	SIM_EXCHANGE_REDUCE_SCATTER,
	SIM_EXCHANGE_BROADCAST,
	SIM_EXCHANGE_ALL_GATHER,
	SIM_EXCHANGE_SEND_RECV,
};

/* ncclDataType_t and ncclRedOp_t by value; the last two of these are the reductions that scale. */
enum sim_exchange_type {
	SIM_EXCHANGE_I8, SIM_EXCHANGE_U8, SIM_EXCHANGE_I32, SIM_EXCHANGE_U32, SIM_EXCHANGE_I64, SIM_EXCHANGE_U64, SIM_EXCHANGE_F16,
	SIM_EXCHANGE_F32, SIM_EXCHANGE_F64, SIM_EXCHANGE_BF16, SIM_EXCHANGE_E4M3, SIM_EXCHANGE_E5M2, SIM_EXCHANGE_TYPES,
};
enum sim_exchange_op { SIM_EXCHANGE_SUM, SIM_EXCHANGE_PROD, SIM_EXCHANGE_MAX, SIM_EXCHANGE_MIN, SIM_EXCHANGE_AVG, SIM_EXCHANGE_PREMUL };

static inline uint32_t sim_exchange_type_bytes(uint32_t type)
{
	static const uint8_t bytes[SIM_EXCHANGE_TYPES] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

	return type < SIM_EXCHANGE_TYPES ? bytes[type] : 0;
}

/* One direction between two ranks. `filled` is the sender's, `emptied` the receiver's; both only grow. */
struct sim_exchange_ring {
	_Alignas(64) _Atomic uint32_t filled;
	_Alignas(64) _Atomic uint32_t emptied;
	struct {
		uint32_t bytes;
		uint32_t tag; /* what the sender takes part in: a receiver that is at something else says so */
	} slot[SIM_SLOTS];
	_Alignas(64) char data[SIM_SLOTS][SIM_SLOT_BYTES];
};

/* Shared by all ranks of a communicator; zeros at first. */
struct sim_exchange_shared {
	uint32_t ranks;
	struct {
		_Atomic uint32_t left; /* has ended its part by itself */
	} rank[SIM_EXCHANGE_RANKS];
	/* What each rank says at its nth split, and the first of a colour's ranks to the others. */
	struct {
		_Atomic uint32_t said; /* two a turn: has said, has read the others */
		_Atomic uint32_t told; /* the turn that `id` is of */
		int32_t color, key;
		char id[128];
	} split[SIM_EXCHANGE_RANKS];
	struct sim_exchange_ring ring[]; /* from * ranks + to */
};

/* One rank's end, in host memory. It stays when the communicator goes: an executable graph may still name it. */
struct sim_exchange_port {
	_Atomic uint32_t stop;      /* what runs ends at once, and so does what comes later */
	_Atomic uint32_t running;   /* exchanges that may be touching `shared` */
	_Atomic uint32_t mismatched;
	_Atomic uint32_t failed;    /* a fault that was asked for: an error of the network */
	int32_t rank, ranks;
	int32_t job_rank;           /* in the communicator that this one was split from, first of all */
	struct sim_exchange_shared *shared;
};

/* What a kernel finds behind its communicator's pointer, in device memory: a pointer that only this process understands. */
struct sim_exchange_device_comm {
	uint32_t magic;
	int32_t rank, ranks;
	uint32_t reserved;
	uint64_t port;
};

struct sim_exchange_transfer {
	uint64_t address, bytes;
	int32_t peer;
	uint32_t receive;
};

#define SIM_EXCHANGE_TRANSFERS 160

/* The kernels' one parameter, of the size that NCCL's have. */
struct sim_exchange_args {
	uint64_t comm; /* struct sim_exchange_device_comm */
	uint32_t kind, type, op;
	int32_t root;
	uint64_t send, recv, count;
	uint64_t scalar; /* of SIM_EXCHANGE_PREMUL: the number itself, or its address */
	uint32_t scalar_in_memory;
	uint32_t n;
	struct sim_exchange_transfer transfer[SIM_EXCHANGE_TRANSFERS];
	char padding[SIM_EXCHANGE_ARGS - 64 - SIM_EXCHANGE_TRANSFERS * sizeof(struct sim_exchange_transfer)];
};
_Static_assert(sizeof(struct sim_exchange_args) == SIM_EXCHANGE_ARGS, "the kernels' parameter");

#endif
