/* SPDX-License-Identifier: Apache-2.0 */
/* What a process has open, as older and newer kernels say it: folders that look like those of /proc, and this process's own. */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/view/opened.h"
#include "tests/unit/store_tap.h"

#define check(good, what) tap_ok(good, what, NULL)
#define SERIAL 0x4622416d00000001ull
#define NAME "4622416d00000001"
#define RING "anon_inode:[io_uring]"
#define FILES "UserFiles:\t2\n    0: /work/other\n    1: /"
#define HEAD "pos:\t0\nflags:\t02000002\n"

static const char *put(const char *folder, const char *name, const char *text)
{
	static char path[256];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	file = fopen(path, "w");
	fputs(text, file);
	fclose(file);
	return path;
}

/* A process with one descriptor that leads there, what is said of that, and its mappings. */
static char *process_with(const char *link, const char *about, const char *maps)
{
	char *folder = tap_folder("/tmp"), path[256];

	snprintf(path, sizeof path, "%s/fd", folder);
	mkdir(path, 0700);
	snprintf(path, sizeof path, "%s/fdinfo", folder);
	mkdir(path, 0700);
	snprintf(path, sizeof path, "%s/fd/5", folder);
	if (symlink(link, path))
		exit(99);
	put(folder, "fdinfo/5", about);
	put(folder, "maps", maps);
	return folder;
}

static void clear(const char *folder)
{
	static const char *const names[] = {"fd/5", "fdinfo/5", "maps"};
	char path[256];

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, names[i]);
		unlink(path);
	}
	snprintf(path, sizeof path, "%s/fd", folder);
	rmdir(path);
	snprintf(path, sizeof path, "%s/fdinfo", folder);
	rmdir(path);
	rmdir(folder);
}

/* Of the bits "ouRrk": open, registered, something is unknown, there is a ring, what it has is unknown. */
static void holds(const char *what, const char *link, const char *about, const char *maps, const char *expected)
{
	struct tpck_opened one = {.serial = SERIAL};
	struct tpck_opening all = {0};
	char *folder = process_with(link, about, maps), got[8];

	tpck_opened_descriptors(folder, &one, 1, &all);
	if (*maps)
		tpck_opened_mappings(folder, &one, 1, &all);
	snprintf(got, sizeof got, "%s%s%s%s%s", one.open ? "o" : "", one.registered ? "R" : "", all.unknown ? "u" : "", all.ring ? "r" : "",
		 all.rings_unknown ? "k" : "");
	tap_ok(strcmp(got, expected) == 0, what, got);
	clear(folder);
}

static void processes(void)
{
	struct tpck_opened one = {.serial = SERIAL};
	struct tpck_opening all = {0};
	siginfo_t died;
	pid_t child = fork();

	if (child == 0)
		for (;;)
			pause();
	check(tpck_opened_goes_on(child), "a process goes on");
	kill(child, SIGKILL);
	waitid(P_PID, (id_t)child, &died, WEXITED | WNOWAIT);
	check(!tpck_opened_goes_on(child), "one that is dead does not");
	waitpid(child, NULL, 0);
	check(!tpck_opened_goes_on(child), "nor one that is not there");
	tpck_opened_descriptors("/proc/self", &one, 1, &all);
	check(!one.open && !all.unknown, "this one has no such file");
	tpck_opened_descriptors("/nowhere", &one, 1, &all);
	check(!one.open && all.unknown, "of one that cannot be looked at nothing is known");
}

int main(void)
{
	static char many[8192];

	holds("a part", "/work/.tpck-" NAME ".part", "", "", "o");
	holds("one that was removed", "/work/.tpck-" NAME ".part (deleted)", "", "", "o");
	holds("one in memory", "/dev/shm/j/files/" NAME, "", "", "o");
	holds("another one", "/dev/shm/j/files/4622416d00000002", "", "", "");
	holds("a longer name", "/dev/shm/j/files/" NAME "0", "", "", "");
	holds("a shorter one", "/dev/shm/j/files/4622416d", "", "", "");
	holds("a socket", "socket:[7]", "", "", "");
	holds("a ring that has it, by its path", RING, HEAD "UserFiles:\t1\n    0: /work/.tpck-" NAME ".part\nUserBufs:\t0\n", "", "Rr");
	holds("by its name alone, behind an empty place", RING, HEAD "UserFiles:\t2\n    0: <none>\n    1: .tpck-" NAME ".part\nUserBufs:\t0\n", "", "Rr");
	holds("a ring that has another one", RING, HEAD "UserFiles:\t1\n    0: /work/other\nUserBufs:\t0\n", "", "r");
	holds("a ring that has none", RING, HEAD "UserFiles:\t0\nUserBufs:\t0\n", "", "r");
	holds("empty places alone", RING, HEAD "UserFiles:\t2\n    0: <none>\n    1: <none>\nUserBufs:\t0\n", "", "r");
	holds("what comes behind the files is none", RING, HEAD "UserFiles:\t1\n    0: /work/other\nUserBufs:\t1\n    0: 4096/1\nX: " NAME "\n", "", "r");
	holds("a ring that was busy", RING, HEAD, "", "rk");
	holds("one whose files have no names", RING, HEAD "UserFiles:\t3\nUserBufs:\t0\n", "", "rk");
	memset(many, 'x', sizeof many - 1);
	memcpy(many, FILES, sizeof FILES - 1);
	holds("a line that is too long", RING, many, "", "rk");
	holds("a mapping", "/dev/null", "", "7f00-7f01 rw-s 00000000 00:19 7 /work/.tpck-" NAME ".part\n", "o");
	holds("a mapping of another", "/dev/null", "", "7f00-7f01 rw-s 00000000 00:19 7 /work/other\n7f01-7f02 rw-p 00000000 00:00 0 \n", "");
	holds("a ring that is only mapped", "/dev/null", "", "7f00-7f01 rw-s 00000000 00:0e 7 " RING "\n", "rk");
	holds("a ring that is mapped", RING, HEAD "UserFiles:\t0\n", "7f00-7f01 rw-s 00000000 00:0e 7 " RING "\n", "r");
	processes();
	return tap_done();
}
