/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing between a snapshot and the program's own way to go on. */
#include "config.h"

#include "agent/session/own_start.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/files/publisher.h"
#include "runtime/base/log.h"

/* Of a path its end is what tells. */
enum { PATH_SHOWN = 100, LOOKS = 3 };

/* What is owed to a path is newer than all that is there. */
struct owed {
	const struct tpck_own *known;
	struct tpck_own_choice *choice;
	uint64_t order;
};

static void take_owed(void *context, const char *path, uint64_t pattern, uint64_t order, uint64_t timeline, uint64_t step)
{
	struct owed *owed = context;

	if (!step || order < owed->order || !tpck_own_loads(owed->known, pattern))
		return;
	owed->order = order;
	owed->choice->saved = owed->choice->loads = true;
	owed->choice->step = step;
	owed->choice->timeline = timeline;
	snprintf(owed->choice->path, sizeof owed->choice->path, "%s", path);
}

struct own_start own_start_of(const struct tpck_hello *hello, struct tpck_program *program)
{
	struct own_start own = {.flags = hello->flags, .limit_ns = hello->forward_max_ns, .program = program};

	/* A save that is put at its path between these looks is in none of them; in the next ones it is known. */
	for (int look = 0; look < LOOKS && program && !own.choice.saved; look++) {
		struct tpck_own *known = tpck_program_own_copy(program);
		struct owed owed = {.known = known, .choice = &own.choice};

		if (!known)
			break;
		tpck_own_find(known, &own.choice);
		files_each_owed(take_owed, &owed);
		tpck_own_free(known);
		free(known);
	}
	return own;
}

static const char *span(double seconds, char text[32])
{
	if (seconds < 10)
		snprintf(text, 32, "%.1f s", seconds);
	else if (seconds < 120)
		snprintf(text, 32, "%.0f s", seconds);
	else if (seconds < 7200)
		snprintf(text, 32, "%.0f min", seconds / 60);
	else
		snprintf(text, 32, "%.1f h", seconds / 3600);
	return text;
}

static const char *shown(const char *path, char text[PATH_SHOWN + 4])
{
	size_t length = strlen(path);

	snprintf(text, PATH_SHOWN + 4, "%s%.*s", length > PATH_SHOWN ? "..." : "", PATH_SHOWN, length > PATH_SHOWN ? path + length - PATH_SHOWN : path);
	return text;
}

static void say_told(struct own_start *own, const struct tpck_point *point)
{
	char path[PATH_SHOWN + 4], end[PATH_SHOWN + 80] = "";

	if (own->choice.saved)
		snprintf(end, sizeof end, "; its newest checkpoint is that of step %" PRIu64 " (%s)", own->choice.step, shown(own->choice.path, path));
	snprintf(own->said, sizeof own->said,
		 "not resuming at step %" PRIu64 " of generation %" PRIu64 " (TRANSPCKPT_RESUME=own): the program begins as it would without the library%s", point->step,
		 point->generation, end);
}

static void say_own(struct own_start *own, const struct tpck_point *point, bool too_long)
{
	char path[PATH_SHOWN + 4], forward[32], begins[32], limit[64] = "";

	if (too_long)
		snprintf(limit, sizeof limit, ", and TRANSPCKPT_FORWARD_MAX_SEC is %.3g", (double)own->limit_ns / 1e9);
	snprintf(own->said, sizeof own->said,
		 "not resuming at step %" PRIu64 " of generation %" PRIu64 ": going forward takes some %s%s; the program begins with its own checkpoint of step %" PRIu64
		 " (%s), which takes some %s", point->step, point->generation, span(own->choice.forward_sec, forward), limit, own->choice.step,
		 shown(own->choice.path, path), span(own->choice.own_sec, begins));
}

static void say_forward(struct own_start *own)
{
	char path[PATH_SHOWN + 4], forward[32], begins[32];

	snprintf(own->said, sizeof own->said, ": going forward takes some %s; the program's own checkpoint of step %" PRIu64 " (%s) would take some %s",
		 span(own->choice.forward_sec, forward), own->choice.step, shown(own->choice.path, path), span(own->choice.own_sec, begins));
}

bool own_start_is_chosen(struct own_start *own, const struct tpck_point *point)
{
	struct tpck_own_choice *choice = &own->choice;
	bool both, too_long;

	own->said[0] = '\0';
	own->expected_ns = 0;
	if (own->program) {
		tpck_own_weigh(tpck_program_own(own->program), point, choice);
		tpck_program_own_done(own->program);
	}
	both = choice->loads && !choice->fails && choice->own_sec > 0 && choice->forward_sec > 0;
	too_long = own->limit_ns && choice->forward_sec * 1e9 > (double)own->limit_ns;
	own->chosen = own->flags & TPCK_HELLO_OWN || (both && !(own->flags & TPCK_HELLO_FORWARD) && (too_long || choice->own_sec < choice->forward_sec));
	if (own->flags & TPCK_HELLO_OWN)
		say_told(own, point);
	else if (own->chosen)
		say_own(own, point, too_long);
	else if (both)
		say_forward(own);
	if (!own->chosen && choice->measured)
		own->expected_ns = (uint64_t)(choice->forward_sec * 1e9);
	if (own->chosen)
		tpck_log_info("%s", own->said);
	return own->chosen;
}
