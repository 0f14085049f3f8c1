/* SPDX-License-Identifier: Apache-2.0 */
/* The set of a job's twins, in memory that their supervisors share. */
#include "config.h"

#include "runtime/twin/set.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "runtime/base/free_port.h"
#include "runtime/base/kernel.h"
#include "runtime/base/shared_file.h"
#include "runtime/wire/segment.h"

/* The kernel's marks of a process that is ending (PF_EXITING and PF_SIGNALED of include/linux/sched.h), in proc(5)'s field of flags. */
enum { EXITING = 0x4, SIGNALED = 0x400 };
/* Fields of /proc/PID/stat, counted from the one behind the name. */
enum { FIELD_STATE = 0, FIELD_FLAGS = 6 };

static size_t bytes_of(uint32_t world)
{
	return sizeof(struct tpck_twin_set) + world * sizeof(struct tpck_twin_seat);
}

/* SHM/JOB/gGENERATION.r0.oORDINAL/twins, of any rank's session. False: that is no session's name. */
static bool path_of(const char *session, char path[400])
{
	const char *name = strrchr(session, '/'), *rank = name ? strstr(name, ".r") : NULL, *end = rank ? strchr(rank + 2, '.') : NULL;
	int length;

	if (!end)
		return false;
	length = snprintf(path, 400, "%.*s.r0%s/" TPCK_TWIN_SET_FILE, (int)(rank - session), session, end);
	return length > 0 && length < 400;
}

static uint64_t name_space(void)
{
	struct stat found = {0};

	return tpck_sys_fstatat(AT_FDCWD, "/proc/self/ns/pid", &found, 0) ? 0 : found.st_ino;
}

struct tpck_twin_set *tpck_twin_set_join(const char *session, uint32_t rank, uint32_t world, int32_t supervisor, int32_t living, const char **why)
{
	struct tpck_twin_set *set;
	char path[400];

	*why = NULL;
	if (rank >= world || !path_of(session, path)) {
		*why = "its session has another name than ranks' have";
		return NULL;
	}
	set = rank ? tpck_shared_file_open(path, bytes_of(world)) : tpck_shared_file_new(path, bytes_of(world));
	if (!set) {
		*why = rank ? NULL : "what the ranks' supervisors share has no room in memory";
		return NULL;
	}
	if (!rank) {
		set->version = TPCK_WIRE_VERSION;
		set->world = world;
		set->processes = name_space();
		atomic_thread_fence(memory_order_release);
		set->magic = TPCK_TWIN_SET_MAGIC;
	} else if (set->magic != TPCK_TWIN_SET_MAGIC) {
		tpck_twin_set_leave(set);
		return NULL;
	}
	if (set->world != world || set->version != TPCK_WIRE_VERSION || set->processes != name_space()) {
		*why = set->processes != name_space() ? "the ranks of this node do not see each other's processes" : "rank 0 has another version";
		tpck_sys_munmap(set, bytes_of(world));
		return NULL;
	}
	atomic_store(&set->seat[rank].living, living);
	atomic_store(&set->seat[rank].supervisor, supervisor);
	return set;
}

void tpck_twin_set_leave(struct tpck_twin_set *set)
{
	tpck_sys_munmap(set, bytes_of(set->world));
}

bool tpck_twin_set_is_free(const struct tpck_twin_set *set)
{
	for (uint32_t i = 0; i < set->world; i++)
		if (!atomic_load(&set->seat[i].supervisor) || atomic_load(&set->seat[i].ended) || atomic_load(&set->seat[i].epoch))
			return false;
	return !atomic_load(&set->changes) && atomic_load(&set->over) == atomic_load(&set->epoch);
}

void tpck_twin_set_begin(struct tpck_twin_set *set)
{
	uint16_t port = 0;
	int fd = tpck_free_port(&port);

	/* Later, perhaps: at the launcher's port they would meet the program's ranks. */
	if (fd < 0)
		return;
	tpck_sys_close(fd);
	atomic_store(&set->port, port);
	atomic_fetch_add(&set->epoch, 1);
}

void tpck_twin_set_over(struct tpck_twin_set *set, uint32_t epoch)
{
	uint32_t over = atomic_load(&set->over);

	while (over < epoch && !atomic_compare_exchange_weak(&set->over, &over, epoch))
		;
}

bool tpck_twin_set_changes(struct tpck_twin_set *set, uint32_t epoch)
{
	if (atomic_load(&set->changes))
		return true;
	if (!epoch || atomic_load(&set->over) >= epoch)
		return false;
	for (uint32_t i = 0; i < set->world; i++)
		if (atomic_load(&set->seat[i].ended) || atomic_load(&set->seat[i].follows) != epoch)
			return false;
	atomic_store(&set->changes, 1);
	return true;
}

bool tpck_twin_set_is_whole(const struct tpck_twin_set *set)
{
	for (uint32_t i = 0; i < set->world; i++)
		if (!atomic_load(&set->seat[i].supervisor))
			return false;
	return true;
}

bool tpck_twin_set_is_due(const struct tpck_twin_set *set, uint32_t rank)
{
	return atomic_load(&set->again) > atomic_load(&set->seat[rank].again);
}

bool tpck_twin_set_again(struct tpck_twin_set *set, uint32_t rank)
{
	uint32_t before = atomic_load(&set->seat[rank].again);

	if (!tpck_twin_set_is_whole(set))
		return false;
	for (uint32_t i = 0; i < set->world; i++)
		if (atomic_load(&set->seat[i].ended))
			return false;
	/* Another rank may have said so meanwhile. */
	(void)atomic_compare_exchange_strong(&set->again, &before, before + 1);
	return true;
}

void tpck_twin_set_tell(const struct tpck_twin_set *set, uint32_t rank)
{
	for (uint32_t i = 0; i < set->world; i++) {
		int32_t supervisor = atomic_load(&set->seat[i].supervisor);

		if (i != rank && supervisor > 0)
			tpck_sys_kill(supervisor, SIGCHLD);
	}
}

/* "pid (name) state ...": the name may hold anything. */
static bool is_ending(int32_t process)
{
	char path[40], text[600], *at;
	ssize_t got;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/stat", process);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	got = fd < 0 ? -1 : tpck_sys_read(fd, text, sizeof text - 1);
	if (fd >= 0)
		tpck_sys_close(fd);
	if (got <= 0)
		return true;
	text[got] = '\0';
	at = strrchr(text, ')');
	for (int field = FIELD_STATE; at && field <= FIELD_FLAGS; field++) {
		at = strchr(at + 1, ' ');
		if (at && field == FIELD_STATE && (at[1] == 'Z' || at[1] == 'X'))
			return true;
	}
	return at && strtoul(at + 1, NULL, 10) & (EXITING | SIGNALED);
}

bool tpck_twin_set_is_undecided(const struct tpck_twin_set *set, uint32_t rank)
{
	for (uint32_t i = 0; i < set->world; i++) {
		int32_t living = atomic_load(&set->seat[i].living);

		if (i != rank && living > 0 && !atomic_load(&set->seat[i].ended) && !atomic_load(&set->seat[i].waits) && is_ending(living))
			return true;
	}
	return false;
}
