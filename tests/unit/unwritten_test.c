/* SPDX-License-Identifier: Apache-2.0 */
/* What the first run's processes wrote to files is taken back, whatever they and others do meanwhile: they write on, they stay, or somebody who is stopped holds the
 * lock. */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/programs/programs_private.h"
#include "runtime/view/view.h"
#include "runtime/wire/segment.h"
#include "tests/unit/store_tap.h"

static char *folder, detail[300];
static struct tpck_writings *first;

static const char *in(const char *name)
{
	static char path[2][300];
	static unsigned turn;
	char *at = path[turn++ % 2];

	snprintf(at, sizeof path[0], "%s/%s", folder, name);
	return at;
}

static long size_of(const char *name)
{
	struct stat found;

	return stat(in(name), &found) ? -1 : (long)found.st_size;
}

static void append(const char *name, int bytes)
{
	int fd = open(in(name), O_WRONLY | O_CREAT | O_APPEND, 0600);

	for (int i = 0; i < bytes; i++)
		(void)!write(fd, "x", 1);
	close(fd);
}

/* The first run's process has opened a file of so many bytes, and appended some. */
static struct tpck_writing *wrote(uint32_t writer, pid_t process, const char *name, int before, int bytes)
{
	struct tpck_writing *entry = tpck_writings_take(first);
	struct stat found;

	append(name, before + bytes);
	if (stat(in(name), &found))
		return entry;
	entry->writer = writer;
	entry->when_ns = entry->made_ns = tpck_clock_monotonic_ns();
	entry->device = found.st_dev;
	entry->inode = found.st_ino;
	entry->before = before;
	entry->started = tpck_view_process_started(process);
	atomic_store(&entry->process, process);
	atomic_store(&entry->own, bytes);
	snprintf(entry->path, sizeof entry->path, "%s", in(name));
	atomic_store(&entry->kind, TPCK_WRITING_APPENDED);
	return entry;
}

/* How many milliseconds that takes. */
static unsigned takes_back(uint32_t writer)
{
	uint64_t begun = tpck_clock_monotonic_ns();

	tpck_unwritten_of(writer);
	return (unsigned)((tpck_clock_monotonic_ns() - begun) / 1000000);
}

/* What a boundary says. */
static const char *said(void)
{
	static char text[2000];
	int old = dup(2), to = open(in("said"), O_RDWR | O_CREAT | O_TRUNC, 0600);
	ssize_t got;

	dup2(to, 2);
	tpck_unwritten_boundary();
	dup2(old, 2);
	close(old);
	got = pread(to, text, sizeof text - 1, 0);
	text[got > 0 ? got : 0] = '\0';
	close(to);
	return text;
}

/* A process that holds the lock, or does nothing. */
static pid_t child(tpck_shared_lock *lock)
{
	int tell[2];
	pid_t pid = pipe(tell) ? -1 : fork();
	char byte;

	if (!pid) {
		alarm(60);
		if (lock)
			(void)!tpck_shared_lock_take(lock);
		(void)!write(tell[1], "", 1);
		for (;;)
			pause();
	}
	(void)!read(tell[0], &byte, 1);
	close(tell[0]);
	close(tell[1]);
	return pid;
}

static void ends(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void writes_on(void)
{
	struct tpck_writing *early = wrote(1, 0, "on", 10, 5);

	tap_ok(!tpck_programs_session(folder), "a session", "");
	tpck_unwritten_inherit();
	append("on", 20);
	atomic_fetch_add(&early->own, 20);
	wrote(1, 0, "late", 0, 30);
	(void)takes_back(1);
	tap_ok(size_of("on") == 10 && size_of("late") == 0 && !*said(), "what came once the next start had begun is taken back, too", "");
	append("on", 7);
	(void)takes_back(1);
	tap_ok(size_of("on") == 17, "and once only", "");
}

static void stays(void)
{
	pid_t worker = child(NULL), other = child(NULL);
	char named[60];
	const char *line;
	unsigned took;

	wrote(2, worker, "stays", 10, 5);
	/* The number of a process that has ended is another one's by now. */
	wrote(3, other, "reused", 10, 5)->started++;
	took = takes_back(3);
	snprintf(detail, sizeof detail, "%u ms", took);
	tap_ok(size_of("reused") == 10 && took > 1500 && took < 20000, "a process that stays is waited for, but not for ever", detail);
	took = takes_back(2);
	line = said();
	snprintf(detail, sizeof detail, "%u ms: %.250s", took, line);
	snprintf(named, sizeof named, "started again: %d (stays)\n", worker);
	tap_ok(size_of("stays") == 10 && took < 1000 && strstr(line, named), "and once only, and a line names it, and no other", detail);
	tap_ok(!*said(), "once", "");
	ends(worker);
	ends(other);
}

/* A process that was sent much writes it down meanwhile, and ends. */
static void is_at_it(void)
{
	struct tpck_writing *entry = wrote(6, 0, "at it", 10, 5);
	pid_t worker;

	signal(SIGCHLD, SIG_IGN);
	worker = fork();
	for (int i = 0; !worker && i < 35; i++) {
		usleep(100000);
		atomic_fetch_add(&entry->own, 1);
		append("at it", 1);
	}
	if (!worker)
		_exit(0);
	entry->started = tpck_view_process_started(worker);
	atomic_store(&entry->process, worker);
	atomic_store(&tpck_unwritten_all()->head.patient_ns, 0);
	(void)takes_back(6);
	snprintf(detail, sizeof detail, "%ld", size_of("at it"));
	tap_ok(size_of("at it") == 10 && kill(worker, 0), "one that writes is waited for until it has ended", detail);
	signal(SIGCHLD, SIG_DFL);
}

static void held(void)
{
	pid_t holder = child(&tpck_unwritten_all()->head.lock);
	char named[60];
	const char *line;
	unsigned took, again;

	kill(holder, SIGSTOP);
	wrote(4, 0, "held", 10, 5);
	took = takes_back(4);
	again = takes_back(4);
	line = said();
	snprintf(named, sizeof named, "process %d holds the lock", holder);
	snprintf(detail, sizeof detail, "%u ms, %u ms: %.250s", took, again, line);
	tap_ok(size_of("held") == 15 && took < 20000 && again < 1000 && strstr(line, named), "where a stopped process has the lock a line says so, and nobody is blocked", detail);
	tap_ok(!*said(), "once", "");
	ends(holder);
	(void)takes_back(4);
	tap_ok(size_of("held") == 10, "it is taken back once that one has ended", "");
}

/* Who takes back much has the lock for a moment. */
static void waits(void)
{
	tpck_shared_lock *lock = &tpck_unwritten_all()->head.lock;
	pid_t holder;

	wrote(5, 0, "waits", 10, 5);
	holder = fork();
	if (!holder) {
		(void)!tpck_shared_lock_take(lock);
		usleep(300000);
		tpck_shared_lock_free(lock);
		_exit(0);
	}
	while (!atomic_load(lock))
		usleep(1000);
	(void)takes_back(5);
	tap_ok(size_of("waits") == 10 && !*said(), "one that has the lock for a moment is waited for", "");
	waitpid(holder, NULL, 0);
}

/* Before there is a session what children write is noted in a file without a name. */
static void may_not_get_so_large(void)
{
	struct rlimit before, limit;
	int fd = -1;
	const void *made;

	getrlimit(RLIMIT_FSIZE, &before);
	limit = before;
	limit.rlim_cur = 4096;
	setrlimit(RLIMIT_FSIZE, &limit);
	made = tpck_writings_unnamed("/dev/shm", &fd);
	setrlimit(RLIMIT_FSIZE, &before);
	tap_ok(!made && fd < 0, "where files may not get so large there is none, which ends no program", "");
}

/* Where there is no room for another entry one goes whose process the log has the end of; else one of the process that wants it. */
static void has_no_room(void)
{
	struct tpck_writings *to = tpck_writings_new(folder, "full");
	struct tpck_writing *taken = NULL;
	unsigned lost = 0;

	for (uint32_t i = 0; to && i < TPCK_WRITINGS_MOST; i++) {
		taken = tpck_writings_take(to);
		taken->writer = 1 + i % 3;
		taken->made_ns = 100;
		atomic_store(&taken->process, i % 3 ? 1 : getpid());
		atomic_store(&taken->kind, TPCK_WRITING_APPENDED);
	}
	if (!to)
		return;
	tpck_writings_ended(to, 2);
	for (uint32_t i = 0; i < TPCK_WRITINGS_MOST / 3; i++) {
		taken = tpck_writings_take(to);
		lost += taken->writer != 2;
		taken->writer = 4;
		atomic_store(&taken->process, 1);
		atomic_store(&taken->kind, TPCK_WRITING_APPENDED);
	}
	tap_ok(!lost && atomic_load(&to->head.passed_ns) && !atomic_load(&to->head.missed[1].made_ns), "entries of who has ended go first", "");
	for (uint32_t i = 0; i < 5; i++) {
		taken = tpck_writings_take(to);
		lost += taken->writer == 3 || taken->writer == 4;
	}
	tap_ok(!lost, "then the writer's own, and nobody else's", "");
	tap_ok(tpck_writings_lacking(to), "of which it is known that they lack", "");
	tpck_writings_close(to);
}

int main(void)
{
	may_not_get_so_large();
	folder = tap_folder("/tmp");
	first = tpck_writings_new(folder, TPCK_WRITTEN_BEHIND);
	if (!first)
		return 1;
	has_no_room();
	writes_on();
	stays();
	waits();
	is_at_it();
	held();
	return tap_done();
}
