/* SPDX-License-Identifier: Apache-2.0 */
/* What supervisors of several ranks tell one another by the memory that they share. */
#include "config.h"

#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>

#include "runtime/base/error.h"
#include "runtime/twin/set.h"
#include "tests/unit/store_tap.h"

enum { WORLD = 3 };

static struct tpck_error err;
static struct tpck_twin_set *set[WORLD];
static char session[WORLD][200];

static void names(void)
{
	const char *root = tap_folder("/tmp");

	for (unsigned i = 0; i < WORLD; i++) {
		snprintf(session[i], sizeof session[i], "%s/g7.r%u.o0", root, i);
		(void)mkdir(session[i], 0700);
	}
}

static struct tpck_twin_set *join(uint32_t rank, const char **why)
{
	/* Of processes only their numbers matter here; nobody is told anything. */
	return tpck_twin_set_join(session[rank], rank, WORLD, 0x7ffffff0 + (int)rank, getpid(), why);
}

static void joining(void)
{
	const char *why;

	ok(!join(1, &why) && !why, "a rank comes before rank 0: it comes again later");
	set[0] = join(0, &why);
	set[2] = join(2, &why);
	if (!ok(set[0] && set[2], "ranks come"))
		exit(tap_done());
	ok(!tpck_twin_set_is_free(set[0]), "no twins before all are there");
	set[1] = join(1, &why);
	ok(set[1] && tpck_twin_set_is_free(set[0]), "all are there");
	ok(!tpck_twin_set_join("/nowhere/name", 1, WORLD, 1, 1, &why) && why, "a session of another name, and it is said why");
	ok(!tpck_twin_set_join(session[1], 1, WORLD + 1, 1, 1, &why), "another number of ranks");
}

static void follows(uint32_t epoch)
{
	for (unsigned i = 0; i < WORLD; i++) {
		atomic_store(&set[i]->seat[i].epoch, epoch);
		atomic_store(&set[i]->seat[i].follows, epoch);
	}
}

static void epochs(void)
{
	uint32_t epoch, port;

	tpck_twin_set_begin(set[0]);
	epoch = atomic_load(&set[2]->epoch);
	port = atomic_load(&set[2]->port);
	ok(epoch == 1 && port, "an epoch has a port");
	ok(!tpck_twin_set_changes(set[1], epoch), "nobody changes over to a twin that is not there");
	follows(epoch);
	atomic_store(&set[2]->seat[2].follows, 0);
	ok(!tpck_twin_set_changes(set[1], epoch), "nor while one does not follow yet");
	follows(epoch);
	tpck_twin_set_over(set[2], epoch);
	ok(!tpck_twin_set_changes(set[1], epoch), "nor where one has ended");
	ok(!tpck_twin_set_is_free(set[0]), "the next twins wait until all have ended");
	for (unsigned i = 0; i < WORLD; i++)
		atomic_store(&set[i]->seat[i].epoch, 0);
	ok(tpck_twin_set_is_free(set[0]), "and begin then");
	tpck_twin_set_begin(set[0]);
	epoch = atomic_load(&set[1]->epoch);
	ok(epoch == 2, "as another epoch");
	tpck_twin_set_over(set[2], 1);
	follows(epoch);
	ok(tpck_twin_set_changes(set[1], epoch) && tpck_twin_set_changes(set[2], 0), "all change over, one behind the other");
	ok(!tpck_twin_set_is_free(set[0]), "then there are no new twins in this set");
}

static void undecided(void)
{
	pid_t child = fork();

	if (child == 0)
		for (;;)
			pause();
	atomic_store(&set[2]->seat[2].living, child);
	ok(!tpck_twin_set_is_undecided(set[1], 1), "all programs are there");
	kill(child, SIGKILL);
	/* Nobody waits for the process yet, as if its supervisor had not looked. */
	while (waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED | WNOWAIT))
		;
	ok(tpck_twin_set_is_undecided(set[1], 1), "one has ended, and its supervisor has not looked");
	ok(!tpck_twin_set_is_undecided(set[2], 2), "which is no matter of its own rank");
	waitpid(child, NULL, 0);
	ok(tpck_twin_set_is_undecided(set[1], 1), "its supervisor has looked, and has not said anything yet");
	atomic_store(&set[2]->seat[2].ended, 1);
	ok(!tpck_twin_set_is_undecided(set[1], 1), "its supervisor has said that it has ended");
}

static void once_more(void)
{
	atomic_store(&set[2]->seat[2].ended, 0);
	ok(!tpck_twin_set_is_due(set[0], 0), "nobody is to begin again");
	ok(tpck_twin_set_again(set[1], 1) && tpck_twin_set_is_due(set[0], 0) && tpck_twin_set_is_due(set[1], 1), "one asks: all are to");
	ok(tpck_twin_set_again(set[2], 2) && atomic_load(&set[0]->again) == 1, "another one that asks at the same time means the same");
	for (unsigned i = 0; i < WORLD; i++)
		atomic_store(&set[i]->seat[i].again, 1);
	ok(!tpck_twin_set_is_due(set[0], 0) && tpck_twin_set_again(set[0], 0) && tpck_twin_set_is_due(set[2], 2), "all have, and are asked once more");
	atomic_store(&set[1]->seat[1].ended, 1);
	ok(!tpck_twin_set_again(set[2], 2), "not where one has ended");
	atomic_store(&set[1]->seat[1].ended, 0);
	atomic_store(&set[1]->seat[1].supervisor, 0);
	ok(!tpck_twin_set_is_whole(set[0]) && !tpck_twin_set_again(set[2], 2), "nor where one has not come yet");
}

int main(void)
{
	names();
	joining();
	epochs();
	undecided();
	once_more();
	return tap_done();
}
