/* SPDX-License-Identifier: Apache-2.0 */
/* Caches of compilers: which folders they are, and what of them a resumed program, and what it starts, sees. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/follow/caches.h"
#include "tests/unit/store_tap.h"

static char root[200];

static const char *in(const char *name)
{
	static char paths[4][300];
	static unsigned turn;
	char *path = paths[turn++ % 4];

	snprintf(path, sizeof paths[0], "%s/%s", root, name);
	return path;
}

static void put(const char *name)
{
	int fd = open(in(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (fd >= 0)
		close(fd);
}

static size_t variables(void)
{
	size_t count = 0;

	while (environ[count])
		count++;
	return count;
}

/* Longer than a file system's clock stands still. */
static uint64_t later(void)
{
	nanosleep(&(struct timespec){0, 30000000}, NULL);
	return tpck_clock_coarse_ns();
}

static bool refused(const char *name)
{
	bool result;

	errno = 77;
	result = tpck_caches_refuse(AT_FDCWD, in(name), 0);
	tap_ok(errno == (result ? ENOENT : 77), "errno says so too", name);
	return result;
}

static int remove_one(const char *path, const struct stat *found, int flag, struct FTW *at)
{
	(void)found;
	(void)flag;
	(void)at;
	return remove(path);
}

static void which(void)
{
	static const struct {
		const char *path;
		bool held;
	} cases[] = {
		{"/tmp/torchinductor_user/fxgraph/a", true}, {"/tmp/torchinductor_user", true}, {"/var/tmp/torchinductor_x/y", true},
		{"/tmp/torch", false}, {"/data/torchinductor_user/a", false}, {"/home/u/.triton/cache/x", true},
		{"/home/u/.triton/cachette", false}, {"/home/u/.triton/dump", false}, {"/home/u/.cupy/kernel_cache/k.cubin", true},
		{"/other/u/.triton/cache/x", false}, {"/scratch/inductor", true}, {"/scratch/inductor/a/b.py", true},
		{"/scratch/inductor2/a", false}, {"/quick/t/k.json", true}, {"/quick", false}, {"/own/.triton/cache/k", true},
		{"/mine/torchinductor_u/k", true}, {"/gpu/k", true}, {"/model.pt", false},
	};

	setenv("HOME", "/home/u", 1);
	setenv("TORCHINDUCTOR_CACHE_DIR", "/scratch/inductor//", 1);
	setenv("TRITON_CACHE_DIR", "/quick/t", 1);
	setenv("TRITON_HOME", "/own", 1);
	setenv("CUPY_CACHE_DIR", "/gpu", 1);
	setenv("TMPDIR", "/mine/", 1);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		tap_ok(tpck_caches_hold(cases[i].path) == cases[i].held, cases[i].path,
		       cases[i].held ? "is in a cache" : "is in none");
	setenv("TRITON_CACHE_DIR", "", 1);
	setenv("CUPY_CACHE_DIR", "relative", 1);
	tap_ok(!tpck_caches_hold("/model.pt"), "an empty variable names no folder", NULL);
	tap_ok(!tpck_caches_hold("relative/k"), "nor does one that is no absolute path", NULL);
}

static void hidden(void)
{
	char *const *told;
	size_t room, before;
	uint64_t from, to;
	int status, fd;
	pid_t child;

	mkdir(in("cache"), 0755);
	setenv("TRITON_CACHE_DIR", in("cache"), 1);
	put("cache/before");
	from = later();
	put("cache/first");
	put("cache/again");
	put("cache/moved");
	put("own");
	mkdir(in("cache/folder"), 0755);
	tap_ok(!refused("cache/first"), "a first start hides nothing", NULL);
	to = later();
	tpck_caches_hide(from, to);
	put("cache/after");

	tap_ok(!refused("cache/before"), "what was there before the first start is seen", NULL);
	tap_ok(refused("cache/first"), "what the first run made is not", NULL);
	tap_ok(!refused("cache/after"), "what was made since is", NULL);
	tap_ok(!refused("cache/folder"), "folders are", NULL);
	tap_ok(!refused("own"), "what is in no cache is", NULL);
	tap_ok(!refused("cache/none"), "of what is not there the system says so", NULL);

	fd = open(in("cache"), O_RDONLY | O_DIRECTORY);
	tap_ok(tpck_caches_refuse(fd, "first", 0), "the same by the folder's descriptor", NULL);
	close(fd);

	tap_ok(!tpck_caches_refuse(AT_FDCWD, in("cache/again"), O_WRONLY | O_CREAT | O_EXCL) &&
		       access(in("cache/again"), F_OK) < 0,
	       "what is made anew is not in its own way", NULL);
	put("cache/again");
	tap_ok(!refused("cache/again"), "and is seen then", NULL);
	put("cache/new");
	rename(in("cache/new"), in("cache/moved"));
	tap_ok(!refused("cache/moved"), "what is renamed over it is seen", NULL);

	child = fork();
	if (!child) {
		atomic_store(&tpck_caches_hiding_now, false);
		before = variables();
		setenv("_TRANSPCKPT_CACHES_HIDDEN", "nonsense", 1);
		tpck_caches_inherit();
		_exit(atomic_load(&tpck_caches_hiding_now) || variables() != before);
	}
	waitpid(child, &status, 0);
	tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "what says nothing hides nothing", NULL);
	room = tpck_caches_room_slow(environ);
	told = room == variables() + 2 ? tpck_caches_told(environ, calloc(room, sizeof *told), room) : environ;
	tap_ok(told != environ && !told[room - 1] && !getenv("_TRANSPCKPT_CACHES_HIDDEN") && tpck_caches_room_slow(told) == 0,
	       "a program that is started is told so once, and this one's environment is what it was", NULL);
	tap_ok(!tpck_caches_room_slow(NULL), "who has no environment is told nothing", NULL);
	before = variables();
	environ = (char **)(uintptr_t)told;
	atomic_store(&tpck_caches_hiding_now, false);
	tpck_caches_inherit();
	tap_ok(refused("cache/first") && !refused("cache/after"), "a process that it starts sees the same", NULL);
	tap_ok(variables() == before && !getenv("_TRANSPCKPT_CACHES_HIDDEN"), "and finds no variable more", NULL);
}

int main(void)
{
	snprintf(root, sizeof root, "/tmp/tpck-caches.XXXXXX");
	if (!mkdtemp(root))
		return 99;
	which();
	setenv("TMPDIR", "/tmp", 1);
	hidden();
	nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return tap_done();
}
