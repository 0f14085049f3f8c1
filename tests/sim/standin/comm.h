/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator of the stand-in, and the driver's functions that it is made of. */
#ifndef TESTS_SIM_STANDIN_COMM_H
#define TESTS_SIM_STANDIN_COMM_H

#include <pthread.h>
#include <stdbool.h>

#include "exchange.h"
#include "standin/meet.h"
#include "standin/nccl.h"

/*
 * As NCCL's own NCCL_API: what a program calls is weak, and a strong pnccl* names the same code, so that a profiler that is
 * linked in has its nccl* called and calls pnccl*.
 */
#define NCCL_API __attribute__((visibility("default"), weak))
#define PROFILED(result, name, params) result p##name params __attribute__((alias(#name), visibility("default")))

#define COMM_MAGIC 0x4d4d4f43u
#define COMM_OPS 64

struct ncclComm {
	uint32_t magic;
	int rank, ranks;
	CUdevice device;
	CUcontext ctx;
	struct sim_exchange_port *port;
	struct sim_exchange_shared *shared;
	CUdeviceptr device_comm;
	struct meet_peers peers;
	pthread_mutex_t lock;
	CUstream last; /* where its last kernel went */
	bool used;
	CUevent event;
	uint32_t splits;
	struct {
		bool taken, in_memory;
		uint32_t type;
		uint64_t scalar;
	} op[COMM_OPS];
	char said[256];
};

struct nccl_driver {
	CUresult (*init)(unsigned);
	CUresult (*primary)(CUcontext *, CUdevice);
	CUresult (*current)(CUcontext *);
	CUresult (*set)(CUcontext);
	CUresult (*push)(CUcontext);
	CUresult (*pop)(CUcontext *);
	CUresult (*device)(CUdevice *);
	CUresult (*alloc)(CUdeviceptr *, size_t);
	CUresult (*free)(CUdeviceptr);
	CUresult (*upload)(CUdeviceptr, const void *, size_t);
	CUresult (*launch)(const CUlaunchConfig *, CUfunction, void **, void **);
	CUresult (*event)(CUevent *, unsigned);
	CUresult (*event_free)(CUevent);
	CUresult (*record)(CUevent, CUstream);
	CUresult (*event_wait)(CUevent);
	CUresult (*wait)(CUstream, CUevent, unsigned);
	CUresult (*capturing)(CUstream, CUstreamCaptureStatus *);
};

/* NULL: there is no driver. */
const struct nccl_driver *nccl_driver(void);
bool comm_check(ncclComm_t c);
/* Keeps the line for ncclGetLastError() and returns `r`. `c` may be NULL. */
ncclResult_t comm_fail(ncclComm_t c, ncclResult_t r, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool comm_peer_died(ncclComm_t c);
/* In a group things are put off until its end. */
bool group_open(void);

/* A communicator that is to be made; in a group several are, each step for all of them before the next. */
struct comm_birth {
	ncclComm_t *out;
	ncclUniqueId id;
	int rank, ranks;
	CUcontext ctx; /* of the device that it is for */
	ncclComm_t parent;
	int color, key;
	int fd;
	ncclResult_t result;
};
void comm_make(struct comm_birth *b, int n);

/* A collective, or transfers to and from peers, on one stream. */
struct comm_work {
	ncclComm_t comm;
	CUstream stream;
	struct sim_exchange_args args;
};
/* In order of the calls. */
ncclResult_t comm_launch(struct comm_work **work, int n);
ncclResult_t comm_enqueue(const struct comm_work *w);

#endif
