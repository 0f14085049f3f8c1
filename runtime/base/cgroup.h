/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the memory control groups of a process, and the machine, leave it. Pages of a tmpfs count in the group of whoever touched them
 * first, and cannot be taken back as the page cache can: where a group or the machine is full, the kernel ends a process. Versions
 * 1 and 2, by the kernel's Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst; MemAvailable by proc(5). By system
 * calls, without memory of its own.
 */
#ifndef TPCK_RUNTIME_BASE_CGROUP_H
#define TPCK_RUNTIME_BASE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

enum { TPCK_CGROUP_PATH = 512 };

/* Where the groups of a process are, below the mount of each version; "" where there is none. */
struct tpck_cgroup {
	char v1[TPCK_CGROUP_PATH], v2[TPCK_CGROUP_PATH];
};

struct tpck_cgroup_room {
	uint64_t bytes;   /* limit less use, not counting page cache. UINT64_MAX: nobody says */
	uint64_t reserve; /* of those what others should find free: an eighth of the limit, 16 GiB at most of a machine's memory */
};

/* pid 0: this process. False: there is none, or no /proc. `root` is "" but in tests. */
bool tpck_cgroup_of(const char *root, int pid, struct tpck_cgroup *group);
/* Of the group, those above, and the machine, that which leaves least behind its reserve. */
struct tpck_cgroup_room tpck_cgroup_room(const char *root, const struct tpck_cgroup *group);

/* Whether the kernel ends all processes of the group, or of one above, together where its memory is full (memory.oom.group); then which of them. */
bool tpck_cgroup_ends_together(const char *root, const struct tpck_cgroup *group, char which[TPCK_CGROUP_PATH]);

/* Whether a leaves less than b behind its reserve. */
static inline bool tpck_cgroup_tighter(const struct tpck_cgroup_room *a, const struct tpck_cgroup_room *b)
{
	if (a->bytes == UINT64_MAX || b->bytes == UINT64_MAX)
		return a->bytes < b->bytes;
	return (int64_t)(a->bytes - a->reserve) < (int64_t)(b->bytes - b->reserve);
}

/* Whether so many bytes more leave the reserve. */
static inline bool tpck_cgroup_has(const struct tpck_cgroup_room *room, uint64_t bytes)
{
	return room->bytes == UINT64_MAX || (room->bytes >= room->reserve && room->bytes - room->reserve >= bytes);
}

#endif
