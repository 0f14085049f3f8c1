/* SPDX-License-Identifier: Apache-2.0 */
/* How much the memory tier may still grow. */
#include "config.h"

#include "agent/home/headroom.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "agent/home/home.h"
#include "runtime/base/cgroup.h"
#include "runtime/store/memory_tier.h"

uint64_t room_of_groups(void)
{
	struct tpck_cgroup group;
	struct tpck_cgroup_room room;

	(void)tpck_cgroup_of("", 0, &group);
	room = tpck_cgroup_room("", &group);
	if (room.bytes == UINT64_MAX)
		return UINT64_MAX;
	return room.bytes > room.reserve ? room.bytes - room.reserve : 0;
}

uint64_t room_taken(void)
{
	DIR *folder = opendir(home.folder);
	struct tpck_session_name name;
	struct dirent *entry;
	uint64_t bytes = 0;

	while (folder && (entry = readdir(folder))) {
		char path[TPCK_PATH_MAX];

		/* Copies of other nodes' snapshots count too (runtime/peer/replica.h), and of what they owe. */
		if ((tpck_session_name_parse(entry->d_name, &name) == 0 || strncmp(entry->d_name, "copy.", 5) == 0 ||
		     strncmp(entry->d_name, "fragment.", 9) == 0 || strncmp(entry->d_name, "owed.", 5) == 0) &&
		    tpck_path_join(path, sizeof path, home.folder, entry->d_name) == 0)
			bytes += tpck_folder_memory(path);
	}
	if (folder)
		closedir(folder);
	return bytes;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

bool room_for(uint64_t bytes, char *reason, size_t size)
{
	uint64_t used = room_taken(), by_tmpfs = UINT64_MAX, room;
	uint64_t by_setting = home.settings.memory > used ? home.settings.memory - used : 0;
	struct statvfs status;

	if (statvfs(home.folder, &status) == 0)
		by_tmpfs = (uint64_t)status.f_bavail * status.f_frsize;
	by_tmpfs = by_tmpfs > ROOM_SPARE ? by_tmpfs - ROOM_SPARE : 0;
	room = less(by_setting, less(by_tmpfs, room_of_groups()));
	if (room < bytes)
		snprintf(reason, size, "it needs %.1f MiB, and %s allows %.1f MiB", (double)bytes / (1 << 20),
			 room == by_setting  ? "TRANSPCKPT_MEMORY"
			 : room == by_tmpfs  ? "free space of the memory tier's tmpfs"
					    : "the memory that the machine or a control group has left",
			 (double)room / (1 << 20));
	return room >= bytes;
}
