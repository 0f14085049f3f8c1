/* SPDX-License-Identifier: Apache-2.0 */
/* What supervisors of several ranks tell one another by the memory that they share. */
#include "config.h"

#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/shared_file.h"
#include "runtime/twin/set.h"
#include "runtime/wire/segment.h"
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

/* As the agent does. */
static void make(bool apart)
{
	char path[WORLD][400];
	struct tpck_twin_set *made;

	for (unsigned i = 0; i < WORLD; i++)
		if (snprintf(path[i], sizeof path[i], "%s/" TPCK_TWIN_SET_FILE, session[i]) >= (int)sizeof path[i])
			exit(99);
	made = tpck_shared_file_new(path[0], tpck_twin_set_bytes(WORLD));
	if (!made)
		exit(99);
	made->version = TPCK_WIRE_VERSION;
	made->world = WORLD;
	made->apart = apart;
	made->magic = TPCK_TWIN_SET_MAGIC;
	munmap(made, tpck_twin_set_bytes(WORLD));
	for (unsigned i = 1; i < WORLD; i++) {
		unlink(path[i]);
		if (link(path[0], path[i]))
			exit(99);
	}
}

static struct tpck_twin_set *join(uint32_t rank, const char **why)
{
	/* Of processes only their numbers matter here; nobody is told anything. */
	struct tpck_twin_set *joined = tpck_twin_set_join(session[rank], rank, WORLD, 0x7ffffff0 + (int)rank, getpid(), why);

	/* The agent says so before. */
	if (joined)
		atomic_store(&joined->seat[rank].here, 1);
	return joined;
}

static void joining(void)
{
	const char *why;

	ok(!join(1, &why) && !why, "the agent has not made it yet: the rank comes again later");
	make(false);
	set[0] = join(0, &why);
	set[2] = join(2, &why);
	if (!ok(set[0] && set[2], "ranks come"))
		exit(tap_done());
	ok(!tpck_twin_set_is_free(set[0]), "no twins before all are there");
	set[1] = join(1, &why);
	ok(set[1] && tpck_twin_set_is_free(set[0]), "all are there");
	ok(!tpck_twin_set_join("/nowhere/name", 1, WORLD, 1, 1, &why) && !why, "a session that is not there");
	ok(!tpck_twin_set_join(session[1], 1, WORLD + 1, 1, 1, &why), "another number of ranks");
	ok(!tpck_twin_set_join(session[1], 1, WORLD - 1, 1, 1, &why) && why, "which is said");
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
	ok(!tpck_twin_set_is_undecided(set[1], 1, 0), "all programs are there");
	kill(child, SIGKILL);
	/* Nobody waits for the process yet, as if its supervisor had not looked. */
	while (waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED | WNOWAIT))
		;
	ok(tpck_twin_set_is_undecided(set[1], 1, 0), "one has ended, and its supervisor has not looked");
	ok(!tpck_twin_set_is_undecided(set[2], 2, 0), "which is no matter of its own rank");
	waitpid(child, NULL, 0);
	ok(tpck_twin_set_is_undecided(set[1], 1, 0), "its supervisor has looked, and has not said anything yet");
	atomic_store(&set[2]->seat[2].ended, 1);
	ok(!tpck_twin_set_is_undecided(set[1], 1, 0), "its supervisor has said that it has ended");
	atomic_store(&set[0]->away, 1);
	ok(tpck_twin_set_is_undecided(set[1], 1, 0), "a node is lost, whose ranks a spare one may take over");
	atomic_store(&set[0]->away, 0);
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

/* Of three ranks the last is on another node. What that one's agent tells the other is done here. */
static void apart(void)
{
	struct tpck_twin_set *here, *there;
	uint64_t long_ago = 1, now = tpck_clock_monotonic_ns();
	const char *why;

	for (unsigned i = 0; i < WORLD; i++)
		tpck_twin_set_leave(set[i], i);
	make(true);
	here = join(0, &why);
	(void)join(1, &why);
	atomic_store(&here->seat[2].supervisor, -1);
	ok(tpck_twin_set_decides(here) && tpck_twin_set_is_free(here), "rank 0's node decides once all are there");
	tpck_twin_set_begin(here);
	for (unsigned i = 0; i < WORLD; i++)
		atomic_store(&here->seat[i].follows, 1);
	atomic_store(&here->seat[2].waits, 1);
	atomic_store(&here->seat[2].asks, 1);
	ok(tpck_twin_set_answer(here) && atomic_load(&here->changes) && atomic_load(&here->seat[2].answered) == 1, "the other node asks: all change over");
	ok(!tpck_twin_set_answer(here), "once");
	atomic_store(&here->seat[2].asks, 2);
	atomic_store(&here->seat[2].may, 1);
	ok(tpck_twin_set_answer(here) && !atomic_load(&here->again), "it asks before it has heard so: that is what is to follow");
	atomic_store(&here->seat[2].changed, 1);
	atomic_store(&here->seat[2].asks, 3);
	ok(tpck_twin_set_answer(here) && atomic_load(&here->again) == 1, "and behind that all are forked once more");
	atomic_store(&here->again, 0);
	atomic_store(&here->changes, 0);
	atomic_store(&here->seat[2].changed, 0);
	atomic_store(&here->seat[2].may, 0);
	atomic_store(&here->seat[2].follows, 0);
	atomic_store(&here->seat[2].asks, 4);
	ok(tpck_twin_set_answer(here) && !atomic_load(&here->changes) && !atomic_load(&here->again), "where not all have twins it is told no");
	atomic_store(&here->seat[2].asks, 5);
	atomic_store(&here->seat[2].may, 1);
	ok(tpck_twin_set_answer(here) && atomic_load(&here->again) == 1, "or all are forked once more, if it may be");
	atomic_store(&here->seat[2].waits, 0);
	ok(tpck_twin_set_is_undecided(here, 0, now) && !tpck_twin_set_is_undecided(here, 0, long_ago), "news of the other node are waited for, for a while");
	atomic_store(&here->seat[2].ending, 1);
	ok(tpck_twin_set_is_undecided(here, 0, long_ago), "and longer where its rank is about to end");

	make(true);
	there = join(2, &why);
	ok(!tpck_twin_set_decides(there) && !tpck_twin_set_is_whole(there), "the other node does not decide");
	atomic_store(&there->all_whole, 1);
	atomic_store(&there->epoch, 1);
	for (unsigned i = 0; i < WORLD; i++)
		atomic_store(&there->seat[i].follows, 1);
	ok(tpck_twin_set_is_whole(there) && !tpck_twin_set_changes(there, 1) && !tpck_twin_set_again(there, 2), "whatever it knows");
	tpck_twin_set_ask(there, 2, true);
	tpck_twin_set_ask(there, 2, false);
	ok(tpck_twin_set_is_asking(there, 2) && atomic_load(&there->seat[2].asks) == 1 && atomic_load(&there->seat[2].may), "it asks, once");
	atomic_store(&there->again, 1);
	atomic_store(&there->seat[2].answered, 1);
	ok(!tpck_twin_set_is_asking(there, 2) && tpck_twin_set_again(there, 2) && tpck_twin_set_is_due(there, 2), "and does as it is told");
	atomic_store(&there->all_running, 1);
	ok(tpck_twin_set_is_undecided(there, 2, now) && !tpck_twin_set_is_undecided(there, 2, long_ago), "it waits for news where others go on");
	atomic_store(&there->all_ending, 1);
	ok(tpck_twin_set_is_undecided(there, 2, long_ago), "and longer where one is about to end");
}

int main(void)
{
	names();
	joining();
	epochs();
	undecided();
	once_more();
	apart();
	return tap_done();
}
