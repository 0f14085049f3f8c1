/* SPDX-License-Identifier: Apache-2.0 */
/* The table of pending files when a process is killed that holds its lock: what is in it is seen all the while, by the others that
 * look for a name without the lock, and is as it was afterwards. */
#include "config.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/view/view.h"
#include "tests/unit/store_tap.h"

#define check(good, what) tap_ok(good, what, NULL)

enum { FILES = 200, DEATHS = 20, DEVICE = 7 };

static struct tpck_view *view;
static _Atomic bool over;
static _Atomic unsigned long looks, misses;

static const char *name_of(unsigned i, char name[32])
{
	snprintf(name, 32, "shard-%u.pt", i);
	return name;
}

static void *look(void *unused)
{
	uint32_t hash[FILES];
	char name[32];

	(void)unused;
	for (unsigned i = 0; i < FILES; i++)
		hash[i] = tpck_view_name_hash(name_of(i, name), strlen(name_of(i, name)));
	for (unsigned i = 0; !over; i++) {
		looks++;
		misses += !tpck_view_may_have(view, hash[i % FILES]);
	}
	return NULL;
}

/* Killed in the middle of what it does to the table. */
static bool die_holding_it(void)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		if (tpck_view_lock(view)) {
			view->filter[0] += 5;
			view->bucket[3] = 0;
			view->used += 2;
			raise(SIGKILL);
		}
		_exit(1);
	}
	return waitpid(child, &status, 0) == child && WIFSIGNALED(status);
}

static unsigned found(void)
{
	unsigned count = 0;
	char name[32];

	for (unsigned i = 0; i < FILES; i++)
		count += tpck_view_find(view, DEVICE, 1 + i % 2, name_of(i, name)) != NULL;
	return count;
}

static uint64_t soon_took(bool *got, bool *held)
{
	uint64_t begun = tpck_clock_monotonic_ns();

	*got = tpck_view_lock_soon(view, held);
	return tpck_clock_monotonic_ns() - begun;
}

/* Somebody holds it and does not go on: waited for once. This thread itself, in a signal's handler: not at all. */
static void held_by_others(void)
{
	uint64_t own, first, second;
	bool with_own, with_first, with_second, free_again, held_own, held;
	int ends[2];
	pid_t child;
	char byte;

	tpck_view_lock(view);
	own = soon_took(&with_own, &held_own);
	tpck_view_unlock(view);
	if (pipe(ends))
		return;
	child = fork();
	if (!child) {
		tpck_view_lock(view);
		(void)!write(ends[1], "h", 1);
		pause();
		_exit(1);
	}
	(void)!read(ends[0], &byte, 1);
	first = soon_took(&with_first, &held);
	second = soon_took(&with_second, &held);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	with_second |= !held;
	free_again = tpck_view_lock_soon(view, &held);
	if (free_again)
		tpck_view_unlock(view);
	close(ends[0]);
	close(ends[1]);
	check(!with_own && !held_own && own < first / 2, "this thread has it: not waited for");
	check(!with_first && !with_second && second < first / 2 && free_again, "another process has it: waited for once, and had when it is free");
}

/* Out of descriptors, one learns nothing from /proc of a process that writes. Then it dies. */
static void out_of_descriptors(const char *folder)
{
	char lost[TPCK_VIEW_PATH + TPCK_VIEW_NAME];
	struct rlimit limit, none = {0};
	struct tpck_view_entry *entry;
	bool kept, unknown, gone;
	pid_t child = fork();

	if (!child) {
		pause();
		_exit(1);
	}
	tpck_view_lock(view);
	entry = tpck_view_add(view, DEVICE, 1, "/even", "written.pt", TPCK_VIEW_DIRECT);
	tpck_view_holder_of(entry, child, tpck_view_process_started(child))->count = 1;
	tpck_view_unlock(view);
	getrlimit(RLIMIT_NOFILE, &limit);
	none.rlim_max = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &none);
	unknown = tpck_view_process_started(child) == TPCK_VIEW_STARTED_UNKNOWN;
	kept = !tpck_view_sweep(view, folder, lost) && entry->state == TPCK_VIEW_OPEN;
	setrlimit(RLIMIT_NOFILE, &limit);
	check(unknown && kept, "who is out of descriptors takes no process that writes for dead");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	gone = tpck_view_sweep(view, folder, lost) && strcmp(lost, "/even/written.pt") == 0;
	check(gone && !tpck_view_sweep(view, folder, lost), "one that has been killed is found dead, once");
}

int main(void)
{
	char tier[] = "/dev/shm/tpck-view.XXXXXX", folder[sizeof tier + 2] = "", path[64], name[32];
	unsigned died = 0, whole = 0;
	pthread_t looker;

	if (mkdtemp(tier))
		snprintf(folder, sizeof folder, "%s/j", tier);
	if (tpck_view_map(folder, true, &view)) {
		printf("1..0 # SKIP no table in /dev/shm\n");
		return 77;
	}
	tpck_view_lock(view);
	for (unsigned i = 0; i < FILES; i++) {
		struct tpck_view_entry *entry =
			tpck_view_add(view, DEVICE, 1 + i % 2, i % 2 ? "/odd" : "/even", name_of(i, name), TPCK_VIEW_MEMORY);

		entry->bytes = i;
		tpck_view_close(view, entry);
	}
	tpck_view_remove(view, tpck_view_find(view, DEVICE, 1 + 10 % 2, name_of(10, name)));
	tpck_view_unlock(view);
	/* Names that hash alike may stand for the one that has gone: it is there again. */
	tpck_view_lock(view);
	tpck_view_close(view, tpck_view_add(view, DEVICE, 1, "/even", name_of(10, name), TPCK_VIEW_REMOVED));
	view->memory_bytes = FILES * (FILES - 1) / 2 - 10;
	tpck_view_unlock(view);
	if (pthread_create(&looker, NULL, look, NULL))
		return 1;
	for (unsigned i = 0; i < DEATHS; i++) {
		died += die_holding_it();
		/* What it left half done is looked at before it is put right. */
		for (unsigned long from = looks; looks <= from + 1000 / DEATHS;)
			sched_yield();
		if (!tpck_view_lock(view))
			break;
		whole += found() == FILES && view->used == FILES && view->memory_bytes == FILES * (FILES - 1) / 2 - 10;
		tpck_view_unlock(view);
	}
	over = true;
	pthread_join(looker, NULL);
	printf("# %lu looks\n", looks);
	check(died == DEATHS && whole == DEATHS, "what a process leaves that is killed with the lock is put right");
	check(looks > 1000 && misses == 0, "who looks meanwhile finds what is there");
	out_of_descriptors(folder);
	held_by_others();
	for (unsigned i = 0; i < FILES; i++) {
		struct tpck_view_entry *entry;

		tpck_view_lock(view);
		entry = tpck_view_find(view, DEVICE, 1 + i % 2, name_of(i, name));
		if (entry)
			tpck_view_remove(view, entry);
		tpck_view_unlock(view);
	}
	for (unsigned i = 0, left = 0; i < FILES; i++) {
		left += tpck_view_may_have(view, tpck_view_name_hash(name_of(i, name), strlen(name_of(i, name))));
		if (i == FILES - 1)
			check(view->used == 0 && left == 0, "and nothing once all of it has gone");
	}
	snprintf(path, sizeof path, "%s/" TPCK_VIEW_FOLDER "/" TPCK_VIEW_TABLE, folder);
	unlink(path);
	snprintf(path, sizeof path, "%s/" TPCK_VIEW_FOLDER, folder);
	rmdir(path);
	rmdir(folder);
	rmdir(tier);
	return tap_done();
}
