/* SPDX-License-Identifier: Apache-2.0 */
/* What memory control groups leave for spares and kept copies. */
#include "config.h"

#include "agent/files/publisher_private.h"
#include "runtime/base/clock.h"
#include "runtime/base/lock_order.h"

/* For how long an answer is good for files so small. */
#define LATELY_NS 20000000ull
enum { SMALL_BYTES = 1 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, lately_lock = PTHREAD_MUTEX_INITIALIZER;

static struct tpck_cgroup_room groups_room(void)
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

/* Some ten files of the kernel's are read for it. */
struct tpck_cgroup_room files_groups_room(uint64_t bytes)
{
	static struct tpck_cgroup_room lately;
	static uint64_t lately_ns;
	uint64_t now = tpck_clock_monotonic_ns();
	struct tpck_cgroup_room room;

	pthread_mutex_lock(&lately_lock);
	room = lately;
	if (lately_ns && now - lately_ns < LATELY_NS && bytes < SMALL_BYTES) {
		pthread_mutex_unlock(&lately_lock);
		return room;
	}
	pthread_mutex_unlock(&lately_lock);
	room = groups_room();
	pthread_mutex_lock(&lately_lock);
	lately = room;
	lately_ns = now;
	pthread_mutex_unlock(&lately_lock);
	return room;
}

bool files_relieve(void)
{
	struct tpck_cgroup_room room;

	files_yield(0);
	room = groups_room();
	while (!tpck_cgroup_has(&room, 0) && files_spare_drop())
		room = groups_room();
	return room.bytes / 4 < room.reserve && (files_kept() || files_spares());
}
