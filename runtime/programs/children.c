/* SPDX-License-Identifier: Apache-2.0 */
/* Children of this process, and what the log gets of those that execute a program. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/follow/follow.h"
#include "runtime/programs/programs_private.h"
#include "runtime/track/threads.h"

/* More output of one program is not kept, nor more of all before there is a device: the log is in private memory then. */
enum { SAID_MOST = 4 << 20, SAID_EARLY = 1 << 20, PLACES = TPCK_STANDIN_PLACES, FRESH = 64 };
#define FORGOTTEN_NS 10000000000ull

struct tpck_child *tpck_children;
_Atomic uint32_t tpck_programs_places;
static struct tpck_log *journal;
static _Atomic uint32_t early_said;
static int32_t home;          /* this process */
static int forked_place = -1; /* in the child of a fork: its place */
static __thread int forking __attribute__((tls_model("initial-exec"))) = -1;
static tpck_spin lock;

bool tpck_programs_recording(void)
{
	return journal && !tpck_log_failed(journal);
}

bool tpck_programs_own(void)
{
	return journal && home == (int32_t)syscall(SYS_getpid);
}

void tpck_programs_record(struct tpck_log *log)
{
	journal = log;
	home = (int32_t)syscall(SYS_getpid);
}

/* ---- places ------------------------------------------------------------------------------------- */

static bool is_gone(struct tpck_child *place, uint64_t now)
{
	int32_t pid = atomic_load(&place->pid);

	return pid == -1 ? now - place->made_ns > FORGOTTEN_NS : pid > 0 && syscall(SYS_kill, pid, 0) && errno == ESRCH;
}

static struct tpck_child *table(void)
{
	if (!tpck_children) {
		void *at = mmap(NULL, PLACES * sizeof *tpck_children, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (at == MAP_FAILED)
			return NULL;
		tpck_children = at;
	}
	return tpck_children;
}

int tpck_child_take(struct tpck_thread *self, int32_t pid)
{
	uint32_t ordinal = self->programs++;
	uint64_t now = tpck_clock_monotonic_ns();
	int saved = errno, found = -1;
	uint32_t used;

	tpck_spin_lock(&lock);
	used = atomic_load(&tpck_programs_places);
	/* One that has been waited for may have left something in a pipe: the one that was left longest ago is taken. */
	for (uint32_t i = 0; i < used && used >= FRESH && table(); i++)
		if (!atomic_load(&tpck_children[i].pid) && (found < 0 || tpck_children[i].made_ns < tpck_children[found].made_ns))
			found = (int)i;
	if (found < 0 && used < PLACES && table())
		found = (int)used;
	for (uint32_t i = 0; i < used && found < 0 && tpck_children; i++)
		if (is_gone(&tpck_children[i], now))
			found = (int)i;
	if (found >= 0) {
		memset(&tpck_children[found], 0, sizeof *tpck_children);
		tpck_children[found].thread = self->id;
		tpck_children[found].ordinal = ordinal;
		tpck_children[found].made_ns = now;
		atomic_store(&tpck_children[found].pid, pid);
		if ((uint32_t)found == used)
			atomic_store(&tpck_programs_places, used + 1);
	}
	tpck_spin_unlock(&lock);
	if (found < 0 && journal)
		tpck_log_fail(journal, "too many children are there at once to tell what each of them does");
	errno = saved;
	return found;
}

void tpck_child_free(int place)
{
	if (place >= 0)
		atomic_store(&tpck_children[place].pid, 0);
}

int tpck_child_of(pid_t child)
{
	uint32_t used = atomic_load(&tpck_programs_places);

	for (uint32_t i = 0; child > 0 && i < used; i++)
		if (atomic_load(&tpck_children[i].pid) == child)
			return (int)i;
	return -1;
}

/* A pipe or socket, told from others; 0: it is none. `folder` and `name`: of the link to it in /proc, or a descriptor and "". */
static uint64_t told_from_others(const struct stat *found)
{
	return (uint64_t)found->st_ino ^ ((uint64_t)found->st_dev << 40);
}

static uint64_t pipe_at(int folder, const char *name, int flags)
{
	struct stat found;

	if (syscall(SYS_newfstatat, folder, name, &found, flags) || (!S_ISFIFO(found.st_mode) && !S_ISSOCK(found.st_mode)))
		return 0;
	return told_from_others(&found);
}

static uint64_t file_at(int folder, const char *name, int flags)
{
	struct stat found;

	return syscall(SYS_newfstatat, folder, name, &found, flags) || !S_ISREG(found.st_mode) ? 0 : told_from_others(&found);
}

/* Where this child's output goes, if that is a file that is not its parent's own output. */
static void look_at_file(struct tpck_child *at, int fd)
{
	struct tpck_child_file *out = &at->files[fd];
	uint64_t file = file_at(fd, "", AT_EMPTY_PATH);
	char link[40];
	long got;

	out->file = 0;
	for (int other = 1; file && other <= 2; other++) {
		snprintf(link, sizeof link, "/proc/%d/fd/%d", home, other);
		if (file == file_at(AT_FDCWD, link, 0))
			return;
	}
	if (!file || (fd == 2 && at->files[1].file == file))
		return;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = syscall(SYS_readlink, link, out->path, sizeof out->path);
	out->from = syscall(SYS_lseek, fd, 0, syscall(SYS_fcntl, fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR);
	if (got <= 0 || got >= (long)sizeof out->path || out->from < 0) {
		at->lost = true;
		return;
	}
	out->path[got] = '\0';
	out->file = file;
}

void tpck_child_executes(int place, const char *path, enum tpck_doing doing, bool own)
{
	struct tpck_child *at = &tpck_children[place];
	const char *name = strrchr(path, '/');
	char parents[40];

	at->path = tpck_digest64(path, strlen(path), 0);
	snprintf(at->name, sizeof at->name, "%s", name ? name + 1 : path);
	at->flags = 0;
	if (own) {
		uint64_t input = pipe_at(0, "", AT_EMPTY_PATH);

		snprintf(parents, sizeof parents, "/proc/%d/fd/0", home);
		if (input && input != pipe_at(AT_FDCWD, parents, 0))
			at->flags = TPCK_PROGRAM_TALKS;
		at->pipes[1] = pipe_at(1, "", AT_EMPTY_PATH);
		at->pipes[2] = pipe_at(2, "", AT_EMPTY_PATH);
		look_at_file(at, 1);
		look_at_file(at, 2);
	}
	atomic_store(&at->doing, doing);
}

void tpck_child_spawned(int place, pid_t child, bool own)
{
	struct tpck_child *at = &tpck_children[place];
	char path[40];
	struct stat found;
	uint64_t input;
	int folder;

	atomic_store(&at->pid, child);
	if (!own)
		return;
	snprintf(path, sizeof path, "/proc/%d/fd", child);
	folder = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	input = pipe_at(folder, "0", 0);
	if (input && input != pipe_at(0, "", AT_EMPTY_PATH))
		at->flags = TPCK_PROGRAM_TALKS;
	at->pipes[1] = pipe_at(folder, "1", 0);
	at->pipes[2] = pipe_at(folder, "2", 0);
	/* What it has written to a file of its own is not known, nor what one that has ended has said: it shows nothing. */
	for (int fd = 1; fd <= 2; fd++) {
		uint64_t file;

		snprintf(path, sizeof path, "%d", fd);
		file = file_at(folder, path, 0);
		at->lost = at->lost || (file && file != file_at(1, "", AT_EMPTY_PATH) && file != file_at(2, "", AT_EMPTY_PATH));
	}
	at->lost = at->lost || folder < 0 || (syscall(SYS_newfstatat, folder, "0", &found, 0) && syscall(SYS_newfstatat, folder, "1", &found, 0) &&
				  syscall(SYS_newfstatat, folder, "2", &found, 0));
	if (folder >= 0)
		syscall(SYS_close, folder);
}

/* ---- the log ------------------------------------------------------------------------------------ */

static void note(struct tpck_child *at, uint16_t detail, uint32_t stream, const void *bytes, size_t count)
{
	struct tpck_record_program record = {
		.thread = at->thread, .ordinal = at->ordinal, .flags = at->flags, .polls = atomic_load(&at->polls), .stream = stream, .path = at->path,
		.made_ns = at->made_ns,
	};
	char *payload;

	if (detail == TPCK_PROGRAM_ENDED)
		memcpy(&record.status, bytes, sizeof record.status);
	payload = tpck_log_append(journal, TPCK_RECORD_PROGRAM, detail, 0, 0, NULL, sizeof record + (detail == TPCK_PROGRAM_ENDED ? 0 : count));
	if (!payload)
		return;
	memcpy(payload, &record, sizeof record);
	if (detail != TPCK_PROGRAM_ENDED && count)
		memcpy(payload + sizeof record, bytes, count);
}

static void note_start(struct tpck_child *at)
{
	uint32_t doing = atomic_load(&at->doing);

	if (doing == TPCK_DOING_NOTHING || doing == TPCK_DOING_WORKER || atomic_fetch_or(&at->noted, TPCK_NOTED_START) & TPCK_NOTED_START)
		return;
	note(at, TPCK_PROGRAM_STARTED, 0, at->name, strnlen(at->name, sizeof at->name - 1) + 1);
	if (at->lost)
		note(at, TPCK_PROGRAM_LOST, 0, NULL, 0);
}

/* What it has written to a file, as if it had been read from a pipe. */
static void note_file(struct tpck_child *at, uint32_t stream)
{
	const struct tpck_child_file *out = &at->files[stream];
	char bytes[4096];
	long got = 1;
	int fd;

	if (!out->file || at->lost)
		return;
	fd = (int)syscall(SYS_openat, AT_FDCWD, out->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
	if (fd < 0 || file_at(fd, "", AT_EMPTY_PATH) != out->file)
		at->lost = true;
	for (int64_t from = out->from; got > 0 && !at->lost; from += got) {
		got = syscall(SYS_pread64, fd, bytes, sizeof bytes, from);
		at->lost = got < 0 || at->said + (uint64_t)(got > 0 ? got : 0) > SAID_MOST;
		if (got > 0 && !at->lost) {
			note(at, TPCK_PROGRAM_SAID, stream, bytes, (size_t)got);
			at->said += (uint32_t)got;
		}
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
	if (at->lost)
		note(at, TPCK_PROGRAM_LOST, 0, NULL, 0);
}

static void note_end(struct tpck_child *at, int status)
{
	note_start(at);
	if (atomic_load(&at->noted) == TPCK_NOTED_START) {
		note_file(at, 1);
		note_file(at, 2);
	}
	if (atomic_load(&at->noted) & TPCK_NOTED_START && !(atomic_fetch_or(&at->noted, TPCK_NOTED_END) & TPCK_NOTED_END))
		note(at, TPCK_PROGRAM_ENDED, 0, &status, sizeof status);
}

void tpck_child_note(int place)
{
	if (tpck_programs_recording())
		note_start(&tpck_children[place]);
}

void tpck_child_ended(int place, int status)
{
	uint32_t doing = atomic_load(&tpck_children[place].doing);

	if (doing != TPCK_DOING_NOTHING && doing != TPCK_DOING_WORKER)
		tpck_follow_others_ran();
	if (tpck_programs_recording() && !tpck_programs_forwarding())
		note_end(&tpck_children[place], status);
	tpck_child_free(place);
}

static int status_of(const siginfo_t *info)
{
	return info->si_code == CLD_EXITED ? info->si_status << 8 : info->si_status | (info->si_code == CLD_DUMPED ? 0x80 : 0);
}

void tpck_programs_boundary(void)
{
	uint32_t used = atomic_load(&tpck_programs_places);
	int saved = errno;

	for (uint32_t i = 0; i < used && tpck_programs_recording(); i++) {
		struct tpck_child *at = &tpck_children[i];
		int32_t pid = atomic_load(&at->pid);
		siginfo_t info = {.si_pid = 0};

		if (pid <= 0 || atomic_load(&at->noted) & TPCK_NOTED_END)
			continue;
		note_start(at);
		/* A child may have ended without having been waited for. */
		if (atomic_load(&at->noted) & TPCK_NOTED_START && !syscall(SYS_waitid, P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT, NULL) && info.si_pid == pid)
			note_end(at, status_of(&info));
	}
	errno = saved;
}

void tpck_programs_read_slow(int fd, const void *bytes, size_t count)
{
	uint32_t used = atomic_load(&tpck_programs_places);
	int saved = errno;
	uint64_t pipe;

	if (!tpck_programs_recording() || tpck_programs_forwarding() || home != (int32_t)syscall(SYS_getpid)) {
		errno = saved;
		return;
	}
	pipe = pipe_at(fd, "", AT_EMPTY_PATH);
	for (uint32_t i = 0; pipe && i < used; i++) {
		struct tpck_child *at = &tpck_children[i];
		uint32_t doing = atomic_load(&at->doing), stream = at->pipes[1] == pipe ? 1 : 2;
		bool early = !tpck_log_attached(journal);

		/* One that has been waited for may still have something to say, until its place is another's. */
		if (doing == TPCK_DOING_NOTHING || doing == TPCK_DOING_WORKER || (at->pipes[1] != pipe && at->pipes[2] != pipe) || at->lost)
			continue;
		note_start(at);
		at->lost = at->said + count > SAID_MOST || (early && atomic_load(&early_said) + count > SAID_EARLY);
		note(at, at->lost ? TPCK_PROGRAM_LOST : TPCK_PROGRAM_SAID, stream, bytes, at->lost ? 0 : count);
		at->said += (uint32_t)count;
		if (early)
			atomic_fetch_add(&early_said, (uint32_t)count);
		break;
	}
	errno = saved;
}

/* ---- forks -------------------------------------------------------------------------------------- */

void tpck_programs_forking(void)
{
	struct tpck_thread *self = journal ? tpck_thread_self() : NULL;

	forking = -1;
	if (!self || self->ours || self->elsewhere || home != (int32_t)syscall(SYS_getpid))
		return;
	tpck_starts_thread(self);
	forking = tpck_child_take(self, -1);
}

void tpck_programs_forked_child(void)
{
	forked_place = forking;
	if (forked_place >= 0)
		atomic_store(&tpck_children[forked_place].pid, (int32_t)syscall(SYS_getpid));
}

int tpck_child_here(void)
{
	int32_t pid = (int32_t)syscall(SYS_getpid);
	struct tpck_thread *self;
	int place;

	if (!journal || pid == home)
		return -1;
	if (forked_place >= 0)
		return atomic_load(&tpck_children[forked_place].pid) == pid ? forked_place : -1;
	/* A child that shares this memory, with the thread that made it waiting. */
	place = tpck_child_of(pid);
	if (place >= 0)
		return place;
	self = tpck_thread_peek();
	if (!self || self->ours || self->elsewhere || (int32_t)syscall(SYS_getppid) != home)
		return -1;
	tpck_starts_thread(self);
	return tpck_child_take(self, pid);
}

bool tpck_child_shares(void)
{
	return forked_place < 0 && home != (int32_t)syscall(SYS_getpid);
}

/* ---- waiting ------------------------------------------------------------------------------------ */

enum tpck_programs_wait tpck_programs_waits(pid_t child, bool polls)
{
	int place;

	if (!atomic_load(&tpck_programs_places) || !tpck_programs_forwarding())
		return TPCK_PROGRAMS_ASK;
	if (child <= 0) {
		tpck_starts_finish_all();
		return TPCK_PROGRAMS_ASK;
	}
	place = tpck_child_of(child);
	return place < 0 ? TPCK_PROGRAMS_ASK : tpck_starts_wait(place, polls);
}

void tpck_programs_waited(pid_t asked, bool polls, pid_t child, int status)
{
	int place = tpck_child_of(child ? child : asked), saved = errno;

	if (place < 0 || home != (int32_t)syscall(SYS_getpid))
		return;
	if (!child) {
		if (polls && !tpck_programs_forwarding())
			atomic_fetch_add(&tpck_children[place].polls, 1);
	} else if (WIFEXITED(status) || WIFSIGNALED(status)) {
		tpck_child_ended(place, status);
	}
	errno = saved;
}
