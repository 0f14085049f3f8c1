/* SPDX-License-Identifier: Apache-2.0 */
/* What may be kept in memory. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "runtime/base/cgroup.h"
#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/log.h"
#include "runtime/files/files_private.h"

/* What is left free on the tmpfs, and what a file may turn out larger than the last one of its name. */
#define SPARE_BYTES (256ull << 20)
/* What is known of the control groups, and of the tmpfs, is that old at most, for files that are small. */
#define KNOWN_NS 100000000ull
#define SMALL_BYTES (16ull << 20)

bool tpck_files_failing(const struct tpck_view *view, uint64_t device)
{
	uint32_t left = view->failing ? view->used : 0;

	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		if (view->entry[i].state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (view->entry[i].error && tpck_view_device_of(view, &view->entry[i]) == device)
			return true;
	}
	return false;
}

/* What files that are being written were promised, and have not touched yet. */
static uint64_t promised(const struct tpck_view *view)
{
	uint64_t bytes = 0, touched;
	uint32_t left = view->used;
	char path[TPCK_FILES_PATH];
	struct stat found;

	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		const struct tpck_view_entry *entry = &view->entry[i];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (entry->state != TPCK_VIEW_OPEN || entry->kind != TPCK_VIEW_MEMORY)
			continue;
		tpck_view_bytes(view, entry, tpck_files_folder, path, sizeof path);
		touched = tpck_sys_fstatat(AT_FDCWD, path, &found, 0) ? 0 : (uint64_t)found.st_blocks * 512;
		bytes += entry->bytes > touched ? entry->bytes - touched : 0;
	}
	return bytes;
}

/* The lock is held, which also keeps what is static here. */
static bool groups_have(const struct tpck_view *view, uint64_t bytes)
{
	static struct tpck_cgroup_room room = {UINT64_MAX, 0};
	static uint64_t known_ns;
	uint64_t now = tpck_clock_monotonic_ns();
	struct tpck_cgroup group;

	if (!known_ns || bytes >= SMALL_BYTES || now - known_ns > KNOWN_NS) {
		known_ns = now;
		(void)tpck_cgroup_of("", 0, &group);
		room = tpck_cgroup_room("", &group);
	}
	/* Where all that is pending would fit again nobody needs to look at each. */
	return tpck_cgroup_has(&room, bytes + view->memory_bytes) || tpck_cgroup_has(&room, bytes + promised(view));
}

/* Whether the tmpfs has so many bytes. Where it had many times what is small a moment ago it is not asked again. The lock is held, which
 * also keeps what is static here. */
static bool tmpfs_has(uint64_t bytes)
{
	static uint64_t room, known_ns;
	uint64_t now = tpck_clock_monotonic_ns();
	struct statfs shm;

	if (known_ns && now - known_ns < KNOWN_NS && bytes < SMALL_BYTES && room / 4 > SMALL_BYTES + SPARE_BYTES)
		return true;
	if (tpck_sys_statfs(tpck_files_folder, &shm))
		return false;
	known_ns = now;
	room = (uint64_t)shm.f_bavail * (uint64_t)shm.f_frsize;
	return room > bytes + SPARE_BYTES;
}

bool tpck_files_room_for(const struct tpck_view *view, uint64_t device, uint64_t bytes, uint64_t ready)
{
	uint64_t limit = tpck_files_settings->memory / 2, more = bytes > ready ? bytes - ready : 0;

	return !tpck_files_failing(view, device) && view->memory_bytes + bytes <= limit && tmpfs_has(more + bytes / 4) && groups_have(view, more);
}

/* Containers have 64 MiB unless they are told otherwise. */
void tpck_files_say_small(void)
{
	static _Atomic bool said;
	struct statfs shm;
	uint64_t bytes;

	if (said || tpck_sys_statfs(tpck_files_folder, &shm))
		return;
	bytes = (uint64_t)shm.f_blocks * (uint64_t)shm.f_frsize;
	if (bytes <= SPARE_BYTES && !atomic_exchange(&said, true))
		tpck_log_warn("%s has %llu MiB, of which %llu stay free: the program's files are written beside their targets, at the disk's speed",
			      tpck_files_folder, (unsigned long long)(bytes >> 20), (unsigned long long)(SPARE_BYTES >> 20));
}
