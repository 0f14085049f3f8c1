/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver library and the device process say to each other: a control socket and one launch mailbox. */
#ifndef TESTS_SIM_DEVICE_PROTOCOL_H
#define TESTS_SIM_DEVICE_PROTOCOL_H

#include <stdint.h>

/* Descriptors the device process is started with. */
#define SIM_DEVICE_SOCKET_FD 3
#define SIM_DEVICE_VRAM_FD 4
#define SIM_DEVICE_MAILBOX_FD 5

enum sim_control {
	SIM_CONTROL_MAP_VRAM = 1, /* address, bytes, offset in VRAM, protection */
	SIM_CONTROL_MAP_FILE,     /* address, bytes, offset, protection; with a descriptor */
	SIM_CONTROL_UNMAP,        /* address, bytes */
	SIM_CONTROL_LOAD,         /* object bytes; with a descriptor; answers a module id */
	SIM_CONTROL_DESCRIBE,     /* image bytes, whether it must have a rule; with a descriptor of an image without code; answers a module id */
	SIM_CONTROL_UNLOAD,       /* module id */
	SIM_CONTROL_BIND,         /* module id, device address; name follows: let all references to a variable go there */
	SIM_CONTROL_FILL,         /* module id, device address, bytes; name follows: write its initial value, once all are bound */
};

struct sim_control_request {
	uint32_t op;
	uint32_t name_bytes;
	uint64_t arg[4];
	char name[1024];
};

struct sim_control_reply {
	int32_t error; /* errno of the device process, or 0 */
	uint32_t reserved;
	uint64_t value;
};

enum sim_launch_status {
	SIM_LAUNCH_OK = 0,
	SIM_LAUNCH_ILLEGAL_ADDRESS,
	SIM_LAUNCH_ILLEGAL_INSTRUCTION,
	SIM_LAUNCH_ASSERT,
	SIM_LAUNCH_DEADLOCK,
	SIM_LAUNCH_NO_KERNEL,
};

#define SIM_PARAM_BYTES_MAX 32768

#define SIM_LAUNCH_RING 32u
#define SIM_LAUNCH_SMALL 4096u

struct sim_launch_request {
	uint64_t module;
	uint32_t kernel;
	uint32_t shared_bytes;
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t param_bytes;
	uint32_t reserved;
	_Alignas(64) char params[SIM_LAUNCH_SMALL];
};

/*
 * Launch number n is in entry n % SIM_LAUNCH_RING. The driver raises `request` to the last one that is there, the device
 * raises `done` with each and wakes the driver when it has caught up. Both are futexes, and whoever sleeps on one says so beside it. A launch with more parameters than
 * fit an entry comes alone, with its parameters in `large`. The first failure stays in `status`; what follows is skipped.
 */
struct sim_mailbox {
	_Atomic uint32_t request;
	_Atomic uint32_t device_sleeps;
	_Alignas(64) _Atomic uint32_t done;
	_Atomic uint32_t driver_sleeps;
	uint32_t status;
	uint64_t fault_address;
	struct sim_launch_request entry[SIM_LAUNCH_RING];
	_Alignas(64) char large[SIM_PARAM_BYTES_MAX];
};

#endif
