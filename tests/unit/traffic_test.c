/* SPDX-License-Identifier: Apache-2.0 */
/* What others send, told from what is ours, in counters of a folder that stands for the root. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "runtime/policy/traffic.h"
#include "tests/unit/store_tap.h"

#define check(good, what) tap_ok(good, what, NULL)

enum { MIB = 1 << 20 };
static char root[] = "/tmp/tpck-traffic.XXXXXX";
static struct tpck_traffic traffic;
static uint64_t now = 1000000000, eth, bond, port;

/* The files stay the same ones: they are open. */
static void write_counters(void)
{
	char path[200];
	FILE *file;

	snprintf(path, sizeof path, "%s/proc/net/dev", root);
	file = fopen(path, "r+");
	if (!file)
		file = fopen(path, "w");
	if (!file || fprintf(file,
			     "Inter-|   Receive                |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets\n"
				   "    lo: 1 2 3 4 5 6 7 8 %llu 10 0 0 0 0 0 0\n"
				   "  eth0:99999999 2 3 4 5 6 7 8 %llu 10 0 0 0 0 0 0\n"
				   " bond0: 1 2 3 4 5 6 7 8 %llu 10 0 0 0 0 0 0\n",
			     (unsigned long long)now, (unsigned long long)eth, (unsigned long long)bond) < 0 || fclose(file))
		abort();
	snprintf(path, sizeof path, "%s/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", root);
	file = fopen(path, "r+");
	if (!file)
		file = fopen(path, "w");
	if (!file || fprintf(file, "%llu\n", (unsigned long long)port) < 0 || fclose(file))
		abort();
}

static uint64_t look(uint64_t later_ns)
{
	now += later_ns;
	write_counters();
	return tpck_traffic_look(&traffic, now);
}

int main(void)
{
	char command[300];
	uint64_t found = 0;

	if (!mkdtemp(root))
		abort();
	snprintf(command, sizeof command, "mkdir -p %s/proc/net %s/sys/class/infiniband/mlx5_0/ports/1/counters", root, root);
	if (system(command))
		abort();
	eth = 5000000000, bond = 7000000000, port = 1000000000;
	write_counters();
	tpck_traffic_begin(&traffic, root);
	check(look(2000000) == 0, "the first look knows of nothing");
	check(look(2000000) == 0, "nothing goes");
	eth += MIB;
	check(look(2000000) == MIB, "what goes over a network device is others'");
	port += MIB / 4;
	check(look(2000000) == MIB, "or over a port, in words of four bytes");
	check(look(2000000) == 0, "the loopback device is none");

	/* Our own, with headers, and counted by two devices of which one lies on the other. */
	for (int i = 0; i < 100; i++) {
		tpck_traffic_ours(&traffic, now, MIB / 4);
		eth += MIB / 4 * 21 / 20;
		bond += MIB / 4 * 21 / 20;
		found += look(3000000);
	}
	check(found == 0, "what is ours is not others'");
	/* What is handed over is counted a look later. */
	tpck_traffic_ours(&traffic, now, MIB / 4);
	found = look(1000000);
	eth += MIB / 4;
	check(found + look(2000000) == 0, "nor is what is on its way for a while");
	tpck_traffic_ours(&traffic, now, MIB / 4);
	eth += MIB / 4 + MIB;
	found = look(2000000);
	check(found > MIB * 9 / 10 && found <= MIB, "others' beside ours");

	/* Ours go over eth0, and others' over a port: it does not owe what it never gets. */
	for (int i = 0; i < 100; i++) {
		tpck_traffic_ours(&traffic, now, MIB / 4);
		eth += MIB / 4;
		look(1000000);
	}
	port += 8ull * MIB / 4;
	check(look(1000000) >= 6 * MIB, "others' on a link that ours do not take, while ours go");
	(void)look(20000000);
	(void)look(1000000);
	port += MIB / 8 / 4;
	check(look(1000000) == MIB / 8, "and all of it, once ours are gone");

	/* A device that was made anew. */
	eth = 0;
	check(look(2000000) == 0, "a counter that begins again");
	eth += MIB;
	check(look(2000000) == MIB, "is looked at from there");
	tpck_traffic_end(&traffic);
	snprintf(command, sizeof command, "rm -r %s", root);
	if (system(command))
		abort();
	tpck_traffic_begin(&traffic, root);
	check(tpck_traffic_look(&traffic, now) == 0 && tpck_traffic_look(&traffic, now + 1) == 0, "where there is nothing to read there is no traffic");
	return tap_done();
}
