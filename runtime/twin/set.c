/* SPDX-License-Identifier: Apache-2.0 */
/* The set of a job's twins, in memory that their supervisors share. */
#include "config.h"

#include "runtime/twin/set.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "runtime/base/clock.h"
#include "runtime/base/free_port.h"
#include "runtime/base/kernel.h"
#include "runtime/base/shared_file.h"
#include "runtime/wire/segment.h"

/* News of another node's rank take so long at most. */
#define NEWS_NS 2000000000ull
/* And so long, where a spare node may take over from a node that is lost, until the agent says that it does not hear one. */
#define NEWS_OF_NODES_NS 4000000000ull

static uint64_t name_space(void)
{
	struct stat found = {0};

	return tpck_sys_fstatat(AT_FDCWD, "/proc/self/ns/pid", &found, 0) ? 0 : found.st_ino;
}

struct tpck_twin_set *tpck_twin_set_join(const char *session, uint32_t rank, uint32_t world, int32_t supervisor, int32_t living, const char **why)
{
	uint64_t own = name_space(), processes = 0;
	struct tpck_twin_set *set;
	char path[400];

	*why = NULL;
	if (rank >= world || snprintf(path, sizeof path, "%s/" TPCK_TWIN_SET_FILE, session) >= (int)sizeof path) {
		*why = "its session has another name than ranks' have";
		return NULL;
	}
	set = tpck_shared_file_open(path, tpck_twin_set_bytes(world));
	if (!set)
		return NULL;
	if (set->magic != TPCK_TWIN_SET_MAGIC) {
		tpck_sys_munmap(set, tpck_twin_set_bytes(world));
		return NULL;
	}
	atomic_thread_fence(memory_order_acquire);
	(void)atomic_compare_exchange_strong(&set->processes, &processes, own);
	if (set->world != world || set->version != TPCK_WIRE_VERSION)
		*why = "the agent has another version";
	else if (atomic_load(&set->processes) != own)
		*why = "the ranks of this node do not see each other's processes";
	if (*why) {
		tpck_sys_munmap(set, tpck_twin_set_bytes(world));
		return NULL;
	}
	atomic_store(&set->seat[rank].living, living);
	atomic_store(&set->seat[rank].supervisor, supervisor);
	tpck_twin_set_say(set);
	return set;
}

void tpck_twin_set_leave(struct tpck_twin_set *set, uint32_t rank)
{
	atomic_store(&set->seat[rank].supervisor, 0);
	tpck_twin_set_say(set);
	tpck_sys_munmap(set, tpck_twin_set_bytes(set->world));
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
	if (!epoch || atomic_load(&set->over) >= epoch || !tpck_twin_set_decides(set))
		return false;
	for (uint32_t i = 0; i < set->world; i++)
		if (atomic_load(&set->seat[i].ended) || atomic_load(&set->seat[i].follows) != epoch)
			return false;
	atomic_store(&set->changes, 1);
	return true;
}

bool tpck_twin_set_is_due(const struct tpck_twin_set *set, uint32_t rank)
{
	return atomic_load(&set->again) > atomic_load(&set->seat[rank].again);
}

bool tpck_twin_set_again(struct tpck_twin_set *set, uint32_t rank)
{
	uint32_t before = atomic_load(&set->seat[rank].again);

	if (!tpck_twin_set_decides(set))
		return tpck_twin_set_is_due(set, rank);
	if (!tpck_twin_set_is_whole(set))
		return false;
	for (uint32_t i = 0; i < set->world; i++)
		if (atomic_load(&set->seat[i].ended))
			return false;
	/* Another rank may have said so meanwhile. */
	(void)atomic_compare_exchange_strong(&set->again, &before, before + 1);
	return true;
}

void tpck_twin_set_say(struct tpck_twin_set *set)
{
	if (!set->apart)
		return;
	atomic_fetch_add(&set->said, 1);
	tpck_sys_futex(&set->said, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void tpck_twin_set_tell(struct tpck_twin_set *set, uint32_t rank)
{
	tpck_twin_set_signal(set, rank);
	tpck_twin_set_say(set);
}

/* ---- where another node decides ------------------------------------------------------------------------- */

void tpck_twin_set_ask(struct tpck_twin_set *set, uint32_t rank, bool may)
{
	struct tpck_twin_seat *seat = &set->seat[rank];

	if (tpck_twin_set_decides(set) || tpck_twin_set_is_asking(set, rank))
		return;
	atomic_store(&seat->may, may);
	atomic_fetch_add(&seat->asks, 1);
	tpck_twin_set_say(set);
}

bool tpck_twin_set_is_asking(const struct tpck_twin_set *set, uint32_t rank)
{
	return atomic_load(&set->seat[rank].asks) != atomic_load(&set->seat[rank].answered);
}

bool tpck_twin_set_answer(struct tpck_twin_set *set)
{
	bool any = false;

	for (uint32_t i = 0; set->apart && i < set->world; i++) {
		struct tpck_twin_seat *seat = &set->seat[i];
		uint32_t asks = atomic_load(&seat->asks);

		if (asks == atomic_load(&seat->answered))
			continue;
		/* Whoever has changed over already does not do so once more in this set. */
		if ((atomic_load(&seat->changed) || !tpck_twin_set_changes(set, atomic_load(&set->epoch))) && atomic_load(&seat->may))
			(void)tpck_twin_set_again(set, i);
		atomic_store(&seat->answered, asks);
		any = true;
	}
	return any;
}

bool tpck_twin_set_is_undecided(const struct tpck_twin_set *set, uint32_t rank, uint64_t since_ns)
{
	bool news = tpck_clock_monotonic_ns() < since_ns + (atomic_load(&set->voters) ? NEWS_OF_NODES_NS : NEWS_NS);

	/* What follows from that is not for a rank to say. */
	if (atomic_load(&set->away))
		return true;
	for (uint32_t i = 0; i < set->world; i++) {
		const struct tpck_twin_seat *seat = &set->seat[i];
		int32_t living = atomic_load(&seat->living), supervisor = atomic_load(&seat->supervisor);

		if (i == rank || !supervisor || atomic_load(&seat->ended) || atomic_load(&seat->waits))
			continue;
		if (supervisor > 0 ? living > 0 && tpck_twin_set_is_ending(living) : news || atomic_load(&seat->ending))
			return true;
	}
	return !tpck_twin_set_decides(set) && (atomic_load(&set->all_ending) || (news && atomic_load(&set->all_running)));
}
