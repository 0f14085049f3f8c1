/* SPDX-License-Identifier: Apache-2.0 */
/* Room in /dev/shm for a unit test that needs much. config.h comes before. */
#ifndef TPCK_TESTS_UNIT_SHM_ROOM_H
#define TPCK_TESTS_UNIT_SHM_ROOM_H

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

/* Skips the test where /dev/shm has less than that free: containers have 64 MiB unless they are told otherwise. Where mounts
 * are allowed the process gets a tmpfs of its own there. For the beginning, while there is one thread. */
static inline void tap_need_shm(unsigned mib)
{
	struct statvfs shm = {0};
	uint64_t free_mib = statvfs("/dev/shm", &shm) ? 0 : (uint64_t)shm.f_bavail * shm.f_frsize >> 20;
	char size[32];

	snprintf(size, sizeof size, "size=%um", mib);
	if (free_mib >= mib || (!unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
				!mount("tmpfs", "/dev/shm", "tmpfs", 0, size)))
		return;
	printf("1..0 # SKIP needs %u MiB free in /dev/shm, which has %u (docker run --shm-size=2g)\n", mib, (unsigned)free_mib);
	exit(77);
}

#endif
