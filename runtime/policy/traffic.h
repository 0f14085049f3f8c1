/* SPDX-License-Identifier: Apache-2.0 */
/* What others than this process send over the node's network links, by the counters that the kernel keeps: proc(5) /proc/net/dev, and
 * sysfs' infiniband/.../counters/port_xmit_data, which counts words of four bytes. Collectives are most of it while a program trains. */
#ifndef TPCK_RUNTIME_POLICY_TRAFFIC_H
#define TPCK_RUNTIME_POLICY_TRAFFIC_H

#include <stdint.h>

#define TPCK_TRAFFIC_LINKS 32

struct tpck_traffic {
	int net;                   /* of /proc/net/dev, or -1 */
	int port[TPCK_TRAFFIC_LINKS]; /* of ports of InfiniBand */
	unsigned ports;
	uint64_t ours, ours_at_ns; /* all that this process has sent, and when it last did */
	struct tpck_traffic_link {
		uint64_t name;         /* digest of its name; 0: unused */
		uint64_t sent, ours;   /* bytes as of the last look; what of ours it has, or may have, not sent yet */
	} link[TPCK_TRAFFIC_LINKS];
	uint64_t looked_ns, seen_ours;
};

/* `root` is put before all paths: "" but in tests. Where there is nothing to read there is no traffic. */
void tpck_traffic_begin(struct tpck_traffic *traffic, const char *root);
void tpck_traffic_end(struct tpck_traffic *traffic);
/* This process hands over so many bytes; which link takes them need not be known. */
void tpck_traffic_ours(struct tpck_traffic *traffic, uint64_t now_ns, uint64_t bytes);
/* Bytes that others have sent since the last look, over the link with the most of them. They are counted too low by what of ours may
 * have been under way, a MiB at most; 0 in the first look. */
uint64_t tpck_traffic_look(struct tpck_traffic *traffic, uint64_t now_ns);

#endif
