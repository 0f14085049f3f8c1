/* SPDX-License-Identifier: Apache-2.0 */
/* What memory control groups leave for spares and kept copies. */
#include "config.h"

#include "tools/agent/files/private.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct tpck_cgroup_room files_groups_room(void)
{
	/* The groups of who wrote last, which may have ended: its pages are there, and others of its groups. */
	static struct tpck_cgroup writer;
	static int32_t of;
	struct tpck_cgroup_room room, theirs;
	struct tpck_cgroup own, now;
	int32_t pid = files.view->writer;

	pthread_mutex_lock(&lock);
	if (pid && pid != of && tpck_cgroup_of("", pid, &now)) {
		writer = now;
		of = pid;
	}
	theirs = tpck_cgroup_room("", &writer);
	pthread_mutex_unlock(&lock);
	(void)tpck_cgroup_of("", 0, &own);
	room = tpck_cgroup_room("", &own);
	return tpck_cgroup_tighter(&theirs, &room) ? theirs : room;
}

bool files_relieve(void)
{
	struct tpck_cgroup_room room;

	files_yield(0);
	room = files_groups_room();
	while (!tpck_cgroup_has(&room, 0) && files_spare_drop())
		room = files_groups_room();
	return room.bytes / 4 < room.reserve && (files_kept() || files_spares());
}
