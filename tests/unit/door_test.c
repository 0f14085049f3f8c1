/* SPDX-License-Identifier: Apache-2.0 */
/* The one door to folders of ours, and what is some names below one: links and folders of others' kinds are refused wherever they are. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/door.h"
#include "tests/unit/store_tap.h"

static char *top;

static const char *in(const char *name)
{
	static char path[4][300];
	static int turn;

	snprintf(path[turn = (turn + 1) % 4], sizeof path[0], "%s/%s", top, name);
	return path[turn];
}

static int closed(int fd)
{
	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static int folder(const char *name, unsigned names, int flags)
{
	return closed(tpck_door_folder(in(name), names, flags));
}

static int file(const char *name, unsigned names, int flags)
{
	return closed(tpck_door_file(in(name), names, flags, 0600));
}

static bool is_there(const char *name)
{
	struct stat found;

	return !lstat(in(name), &found);
}

/* Puts another thing at a name, whose own is away meanwhile. */
static void swap(const char *name, const char *target)
{
	char away[300];

	snprintf(away, sizeof away, "%s.away", in(name));
	(void)!rename(in(name), away);
	(void)!symlink(target, in(name));
}

static void swap_back(const char *name)
{
	char away[300];

	snprintf(away, sizeof away, "%s.away", in(name));
	unlink(in(name));
	(void)!rename(away, in(name));
}

int main(void)
{
	static const char *const links[] = {"store/job", "store/job/keep", "store/job/keep/id"};
	struct tpck_error err = {0};
	int refused = 0, fd;

	top = tap_folder("/tmp");
	ok(folder("store/job/keep/id", 2, TPCK_DOOR_MAKE) == -ENOENT && !is_there("store"), "the folder that is looked at is made by others");
	(void)!mkdir(in("store"), 0777);
	(void)!mkdir(in("store/job"), 0700);
	(void)!mkdir(in("elsewhere"), 0700);
	(void)!mkdir(in("elsewhere/keep"), 0700);
	(void)!mkdir(in("elsewhere/keep/id"), 0700);
	ok(folder("store/job/keep/id", 2, 0) == -ENOENT, "what is below is not made for who does not ask");
	ok(folder("store/job/keep/id", 2, TPCK_DOOR_MAKE) == 0 && is_there("store/job/keep/id"), "and is made for who does");
	ok(file("store/job/keep/id/file", 3, O_WRONLY | O_CREAT | O_EXCL) == 0 && is_there("store/job/keep/id/file"), "a file is made below it");
	ok(file("store/job/keep/id/file", 3, O_RDONLY) == 0 && file("store/job/keep/id/other", 3, O_RDONLY) == -ENOENT, "and read");
	errno = 5;
	(void)folder("store/nothing/keep/id", 2, 0);
	(void)file("store/nothing/keep/id/file", 3, 0);
	ok(errno == 5, "errno stays");
	for (size_t i = 0; i < 3; i++) {
		swap(links[i], i == 0 ? in("elsewhere") : i == 1 ? in("elsewhere/keep") : in("elsewhere/keep/id"));
		refused += folder("store/job/keep/id", 2, TPCK_DOOR_MAKE) == -EPERM && file("store/job/keep/id/file", 3, O_WRONLY | O_CREAT) == -EPERM &&
			   tpck_door_remove(in("store/job/keep/id/file"), 3) == -EPERM && !is_there("elsewhere/keep/id/file");
		swap_back(links[i]);
	}
	ok(refused == 3, "a link is not followed, wherever it is");
	(void)!symlink(in("elsewhere/keep/id/precious"), in("store/job/keep/id/link"));
	ok(file("store/job/keep/id/link", 3, O_WRONLY | O_CREAT) == -ELOOP && !is_there("elsewhere/keep/id/precious"), "nor one in the file's place");
	(void)!mkfifo(in("store/job/keep/id/fifo"), 0600);
	fd = tpck_door_file(in("store/job/keep/id/fifo"), 3, TPCK_DOOR_READ, 0);
	ok(fd >= 0, "a FIFO lets nobody wait");
	close(fd);
	(void)!chmod(in("store/job"), 0770);
	ok(folder("store/job/keep/id", 2, 0) == -EPERM, "a folder that others may write to is refused");
	(void)!chmod(in("store/job"), 0700);
	(void)!chmod(in("store/job/keep"), 0707);
	ok(folder("store/job/keep/id", 2, 0) == -EPERM, "so is one below it");
	(void)!chmod(in("store/job/keep"), 0700);
	if (geteuid() == 0) {
		(void)!chown(in("store/job"), 12345, 12345);
		ok(folder("store/job/keep/id", 2, 0) == -EPERM && file("store/job/keep/id/file", 3, O_RDONLY) == -EPERM, "and another user's");
		(void)!chown(in("store/job"), 0, 0);
	}
	ok(folder("", 2, 0) == -EINVAL || folder("", 9, 0) == -EINVAL, "a path with fewer names is none");
	ok(closed(tpck_door_folder("keep/id", 2, 0)) == -EINVAL && closed(tpck_door_file("file", 3, O_RDONLY, 0)) == -EINVAL, "nor is one without a folder above");
	ok(tpck_door_remove(in("store/job/keep/id/file"), 3) == 0 && !is_there("store/job/keep/id/file"), "a file is removed");
	return tap_done();
}
