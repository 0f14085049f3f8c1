/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a program's own checkpoints, and what both ways to go on would take. */
#include "config.h"

#include <fcntl.h>
#include <json-c/json.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/store/file.h"
#include "runtime/store/own.h"
#include "runtime/store/program.h"
#include "tests/unit/store_tap.h"

static struct tpck_error err;
static char *folder;
static struct tpck_own *own;

/* A file of so many bytes, as it is saved; pattern 1: checkpoints, 2: something else. */
static struct tpck_own_save save(const char *name, uint64_t pattern, uint64_t generation, uint64_t timeline, uint64_t step)
{
	static char path[512];
	struct tpck_own_save made;
	struct stat put;
	int fd;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, name, strlen(name)) < 0 || fstat(fd, &put))
		perror(path);
	close(fd);
	made = (struct tpck_own_save){path, pattern, put.st_ino, (uint64_t)put.st_size, (uint64_t)put.st_mtim.tv_sec, (uint64_t)put.st_mtim.tv_nsec, generation, timeline, step};
	tpck_own_saved(own, &made);
	return made;
}

static bool finds(const char *name, bool loads, struct tpck_own_choice *choice)
{
	*choice = (struct tpck_own_choice){0};
	tpck_own_find(own, choice);
	if (!name)
		return !choice->saved && !choice->loads;
	return choice->saved && choice->loads == loads && strcmp(strrchr(choice->path, '/') + 1, name) == 0;
}

static bool is(double a, double b)
{
	return fabs(a - b) < 1e-6;
}

static void check_saves(void)
{
	struct tpck_own_choice choice;
	struct tpck_own_save one;
	char before[512], last[512];
	uint64_t pattern[] = {1, 2};

	ok(finds(NULL, false, &choice), "nothing is known at first");
	save("data.npz", 2, 1, 1, 0);
	ok(finds(NULL, false, &choice), "what is saved before the first iteration is no checkpoint");
	ok(!tpck_own_began(own, 2, 3, &pattern[1], 1, false) && !own->load_count, "nor is it one if it is loaded");
	save("a-10", 1, 1, 1, 10);
	one = save("a-20", 1, 1, 1, 20);
	ok(finds("a-20", false, &choice) && choice.step == 20, "the newest that was saved");
	ok(!tpck_own_began(own, 1, 3, pattern, 2, false), "by this very start: it has loaded nothing that an earlier one saved");
	ok(tpck_own_began(own, 2, 5, pattern, 2, false) && own->load_count == 1 && is(own->load_sec, 5), "the next one has, and of that name");
	save("best", 3, 1, 1, 25);
	ok(finds("a-20", true, &choice), "what was never loaded counts less");
	/* The same file by another name. */
	snprintf(last, sizeof last, "%s/last", folder);
	snprintf(before, sizeof before, "%s/a-20", folder);
	ok(rename(before, last) == 0, "it gets another name");
	one.path = last;
	one.generation = one.timeline = one.step = 0;
	tpck_own_saved(own, &one);
	ok(finds("last", true, &choice) && choice.step == 20, "one that has another name now is what it was");
	ok(truncate(last, 1) == 0, "and is changed");
	ok(finds("a-10", true, &choice), "one that somebody has changed is not: the one before is the newest");
	ok(tpck_own_loads(own, 1) && !tpck_own_loads(own, 2), "names that are loaded");
	for (uint64_t i = 0; i < 2 * TPCK_OWN_SAVES; i++)
		save("same", 1, 1, 1, 30 + i);
	ok(own->saves < 10 && finds("same", true, &choice), "a file that is saved over is one");
	ok(!tpck_own_began(own, 9, 1, NULL, 0, true) && !own->load_count, "a start that passes it over takes that back");
}

static void check_weighing(void)
{
	struct tpck_own_choice choice;
	struct tpck_point point = {2, 100};
	uint64_t pattern = 1;

	tpck_own_free(own);
	memset(own, 0, sizeof *own);
	save("c-40", 1, 1, 1, 40);
	tpck_own_began(own, 2, 7, &pattern, 1, false);
	finds("c-40", true, &choice);
	tpck_own_weigh(own, &point, &choice);
	ok(is(choice.forward_sec, 0) && is(choice.own_sec, 0), "as long as no iteration was measured nothing is said");
	own->iteration_sec = 2;
	tpck_own_weigh(own, &point, &choice);
	ok(is(choice.forward_sec, 7 + 99 * 2) && !choice.measured, "forward takes what the first run took");
	ok(is(choice.own_sec, 7 + 99 * 2), "what was saved before this timeline began loses all of it");
	own->forward = (struct tpck_own_forward){.staged_sec = 1, .first_sec = 3, .iteration_sec = 0.5, .inject_sec = 4, .measured = true};
	tpck_own_weigh(own, &point, &choice);
	ok(choice.measured && is(choice.forward_sec, 1 + 3 + 99 * 0.5 + 4), "once it was measured, what that says");
	/* Generation 3 went on from generation 2 at a snapshot: one timeline. */
	tpck_own_resumed(own, 3, 2);
	save("c-90", 1, 3, 2, 90);
	finds("c-90", true, &choice);
	point.generation = 3;
	tpck_own_weigh(own, &point, &choice);
	ok(is(choice.own_sec, 7 + (10 - 1) * 2), "what was saved in it loses what came behind");
	/* Generation 4 began with that. */
	tpck_own_began(own, 4, 7, &pattern, 1, false);
	save("c-95", 1, 4, 4, 5);
	finds("c-95", true, &choice);
	tpck_own_weigh(own, &point, &choice);
	ok(is(choice.own_sec, 7 + (5 - 1) * 2), "a later timeline counts from what it began with");
	save("c-200", 1, 4, 4, 110);
	finds("c-200", true, &choice);
	tpck_own_weigh(own, &point, &choice);
	ok(choice.own_sec > 0 && choice.own_sec < choice.forward_sec, "one that is newer than the snapshot spares what comes behind that");
}

static void check_text(void)
{
	char *memory = tap_folder("/dev/shm");
	struct tpck_program *program = NULL, *again = NULL;
	struct tpck_own_choice choice = {0}, same = {0};
	struct tpck_point point = {4, 10};

	ok(!tpck_program_load(&program, memory, NULL, "id\n", &err), "a program");
	tpck_own_parse(tpck_program_own(program), tpck_own_json(own));
	tpck_program_own_done(program);
	ok(!tpck_program_save(program, memory, NULL, &err) && !tpck_program_load(&again, memory, NULL, "id\n", &err), "is kept");
	tpck_own_find(own, &choice);
	tpck_own_weigh(own, &point, &choice);
	tpck_own_find(&again->own, &same);
	tpck_own_weigh(&again->own, &point, &same);
	ok(again->own.saves == own->saves && strcmp(choice.path, same.path) == 0 && is(choice.own_sec, same.own_sec) && is(choice.forward_sec, same.forward_sec) &&
		   same.measured, "with all that is known of its own way");
	tpck_program_ended(again, 9);
	ok(again->own.saves == own->saves, "which stays when a run has ended well");
	tpck_own_parse(&again->own, json_tokener_parse("{\"saves\":[1,[2],[3,4,5,6,7,8,9,1,2],[\"x\",1,1,1,1,1,1,1,1]],\"loads\":7,\"forward\":[],\"load_sec\":-3}"));
	ok(!again->own.saves && !again->own.load_count && !again->own.forward.measured && is(again->own.load_sec, 0), "a text that is none says nothing");
	tpck_program_free(program);
	tpck_program_free(again);
	tpck_folder_remove(memory);
}

int main(void)
{
	folder = tap_folder(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	own = calloc(1, sizeof *own);
	check_saves();
	check_weighing();
	check_text();
	tpck_own_free(own);
	free(own);
	tpck_folder_remove(folder);
	return tap_done();
}
