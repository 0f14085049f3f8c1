/* SPDX-License-Identifier: Apache-2.0 */
/* What agents say to each other of sets of twins. An input is whether rank 0 is on this node; then, again and again, what happens: a node is met or lost, or
 * says something, of which follow what is wrong with it, and the seats. */
#include "config.h"

#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/session/launch.h"
#include "agent/session/sessions.h"
#include "agent/twins/twin_sets.h"
#include "runtime/base/kernel.h"
#include "runtime/base/log.h"
#include "runtime/base/shared_file.h"
#include "runtime/wire/twin_set.h"
#include "tests/fuzz/fuzz.h"

enum { WORLD = 4, GENERATION = 7, MOST = 64 };

static char folder[300];

static const char *begin(void)
{
	static const char *path;

	if (path)
		return path;
	(void)tpck_log_configure("none");
	snprintf(folder, sizeof folder, "%.200s/twins.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	path = mkdtemp(folder);
	FUZZ_HOLDS(path && outbox_make() >= 0);
	return path;
}

static void number(struct fuzz_input *input, uint32_t *field)
{
	*field = fuzz_byte(input);
}

static void say(struct agent *agent, struct fuzz_input *input, const char *node)
{
	struct {
		struct tpck_accord_twins head;
		struct tpck_accord_twin_seat seat[WORLD + 2];
		char behind;
	} *more = calloc(1, sizeof *more);
	struct tpck_accord_message message = {.kind = TPCK_ACCORD_TWINS, .world = WORLD, .generation = GENERATION};
	uint8_t wrong = fuzz_byte(input);
	size_t size, exact;
	char *text;

	FUZZ_HOLDS(more);
	message.world = wrong & 1 ? fuzz_byte(input) : WORLD;
	message.generation = wrong & 2 ? fuzz_byte(input) : GENERATION;
	more->head.decides = wrong & 4;
	more->head.seats = wrong & 8 ? fuzz_short(input) * 0x10001u : fuzz_byte(input) % (WORLD + 2);
	for (size_t i = 0; i < sizeof more->head / sizeof(uint32_t); i++)
		if (wrong & 16)
			number(input, &((uint32_t *)&more->head)[i]);
	for (unsigned i = 0; i < WORLD + 2; i++) {
		struct tpck_accord_twin_seat *seat = &more->seat[i];

		number(input, &seat->rank);
		number(input, &seat->there);
		number(input, &seat->asks);
		number(input, &seat->epoch);
	}
	exact = sizeof more->head + (size_t)more->head.seats * sizeof more->seat[0];
	size = wrong & 32 ? fuzz_short(input) : exact;
	size = size < sizeof *more ? size : sizeof *more;
	/* In memory of just that size, with a NUL behind it, as the agent has it. */
	text = malloc(size + 1);
	FUZZ_HOLDS(text);
	memcpy(text, more, size);
	text[size] = '\0';
	twins_hears.said(agent, node, "host", &message, text, size);
	free(text);
	free(more);
}

/* The mirror is dropped once nobody is left; its thread has ended then. */
static void end(struct agent *agent, struct live *live, struct tpck_twin_set *set)
{
	live->life = LIFE_GONE;
	atomic_store(&set->seat[live->session->name.rank].supervisor, 0);
	for (;;) {
		struct stat tasks;

		atomic_fetch_add(&set->said, 1);
		tpck_sys_futex(&set->said, FUTEX_WAKE, 8, NULL, NULL, 0);
		outbox_deliver(agent);
		if (!stat("/proc/self/task", &tasks) && tasks.st_nlink == 3)
			break;
		usleep(50);
	}
	outbox_deliver(agent);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	uint32_t rank = fuzz_byte(&input) & 1 ? 0 : 2;
	struct launch launch = {.world = WORLD, .apart = true, .generation = GENERATION};
	struct tpck_session session = {.name = {GENERATION, rank, 0}};
	struct live live = {.session = &session, .launch = &launch, .life = LIFE_RUNNING};
	struct agent agent = {.lives = &live, .launches = &launch};
	struct tpck_twin_set *set;
	char path[300];

	signal(SIGCHLD, SIG_IGN);
	snprintf(session.path, sizeof session.path, "%s", begin());
	snprintf(path, sizeof path, "%s/" TPCK_TWIN_SET_FILE, session.path);
	unlink(path);
	twins_seat(&agent, &live);
	set = tpck_shared_file_open(path, tpck_twin_set_bytes(WORLD));
	FUZZ_HOLDS(set);
	atomic_store(&set->seat[rank].here, 1);
	atomic_store(&set->seat[rank].living, getpid());
	atomic_store(&set->seat[rank].supervisor, getpid());
	for (int i = 0; input.left && i < MOST; i++) {
		uint8_t what = fuzz_byte(&input);
		const char *node = what & 64 ? "nodea" : "nodeb";

		if (what % 8 == 0)
			twins_hears.met(&agent, node);
		else if (what % 8 == 1)
			twins_hears.lost(&agent, node, "host");
		else
			say(&agent, &input, node);
		outbox_deliver(&agent);
		/* Of its own ranks nobody else says anything but what was decided. */
		FUZZ_HOLDS(atomic_load(&set->seat[rank].supervisor) == getpid() && atomic_load(&set->seat[rank].here) == 1);
		for (uint32_t other = 0; other < WORLD; other++)
			FUZZ_HOLDS(other == rank || atomic_load(&set->seat[other].supervisor) <= 0);
	}
	end(&agent, &live, set);
	munmap(set, tpck_twin_set_bytes(WORLD));
	unlink(path);
	return 0;
}
