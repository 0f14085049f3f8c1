/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHM/JOB/nodes: the addresses of nodes whose agents are peers of this one's. The agent writes it, and the library knows by it which connections
 * are between the job's own ranks. An address stays for as long as the agent does: a node that is lost was the job's own, too.
 */
#ifndef TPCK_RUNTIME_WIRE_NODES_H
#define TPCK_RUNTIME_WIRE_NODES_H

#include <stddef.h>
#include <stdint.h>

#define TPCK_NODES_MAGIC 0x73656e6f6e6b6370ull
#define TPCK_NODES_NAME "nodes"
enum { TPCK_NODES_ADDRESS = 16, TPCK_NODES_MOST = 65536 };

/* So many addresses follow, in no order, as IPv6 has them, those of IPv4 as ::ffff:10.0.0.1 (RFC 4291, 2.5.5.2). */
struct tpck_nodes_head {
	uint64_t magic;
	uint32_t version; /* TPCK_WIRE_VERSION */
	uint32_t count;
};

enum tpck_nodes_has {
	TPCK_NODES_UNKNOWN, /* there is no such file, or no address in it: no other agent has been met */
	TPCK_NODES_NO,
	TPCK_NODES_YES,
};
/* By system calls of its own, and without memory. */
enum tpck_nodes_has tpck_nodes_find(const char *path, const uint8_t address[TPCK_NODES_ADDRESS]);
/* Of an address of IPv4 (4 bytes) or IPv6 (16): how the file has it. */
void tpck_nodes_address(const void *address, size_t bytes, uint8_t made[TPCK_NODES_ADDRESS]);

#endif
