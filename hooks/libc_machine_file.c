/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of /proc and /sys that tell of the machine and of the process. A descriptor is the kernel's own while recording, and what is read of it
 * by read() is noted; while running forward it is one of a file in memory, and read() tells what the first run was told. A stream is read by
 * libc inside: it gets a file in memory that holds what the file held when it was opened.
 */
#include "config.h"

#include "hooks/libc_machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hooks/libc.h"
#include "hooks/libc_random.h"
#include "runtime/base/layout.h"
#include "runtime/engine/engine.h"

/* Of a read so much is asked of the kernel at once, and of a stream's file so much is kept. */
enum { DESCRIPTORS = 1024, READ_BYTES = 16 << 10, STREAM_BYTES = 256 << 10, NAME = 192, STATUS_BYTES = 4096 };

/* Descriptors that were given. One that is another file by now is none any more. */
static struct given {
	_Atomic uint32_t key;  /* 0: none */
	bool instead;          /* a file in memory stands for it */
	dev_t device;
	ino_t inode;
	char *path;            /* of such a one: what to open once the program is live */
} given[DESCRIPTORS] TPCK_LARGE;

/* ---- which ---- */

static bool begins(const char **at, const char *with)
{
	size_t length = strlen(with);

	if (strncmp(*at, with, length) != 0)
		return false;
	*at += length;
	return true;
}

/* Of this process, by its number or not. */
static bool own_process(const char **at)
{
	char number[24];

	if (begins(at, "/proc/self/") || begins(at, "/proc/thread-self/"))
		return true;
	snprintf(number, sizeof number, "/proc/%d/", getpid());
	return begins(at, number);
}

/* The file's name without what is another one in each run: the process's number, and its control group's. NULL: it is no such file. */
static const char *name_of(const char *path, char name[NAME])
{
	static const char *const single[] = {"stat", "meminfo", "loadavg", "uptime", "vmstat", "diskstats", "cpuinfo", "schedstat", "zoneinfo", "buddyinfo", "swaps", "interrupts", "softirqs", "net/dev"};
	static const char *const of_process[] = {"stat", "statm", "status", "io", "sched", "schedstat", "smaps_rollup", "oom_score", "net/dev"};
	static const char *const folders[] = {
		"/proc/pressure/", "/proc/sys/kernel/random/", "/sys/devices/system/cpu/", "/sys/devices/system/node/", "/sys/class/thermal/", "/sys/class/hwmon/",
	};
	const char *at = path;

	if (strlen(path) >= NAME - 16)
		return NULL;
	if (own_process(&at)) {
		for (size_t i = 0; i < sizeof of_process / sizeof *of_process; i++)
			if (strcmp(at, of_process[i]) == 0)
				return strcat(strcpy(name, "self/"), at);
		return NULL;
	}
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
		if (begins(&at, folders[i]))
			return path;
	if (begins(&at, "/sys/fs/cgroup/"))
		return strcat(strcpy(name, "cgroup/"), strrchr(path, '/') + 1);
	if (!begins(&at, "/proc/"))
		return NULL;
	for (size_t i = 0; i < sizeof single / sizeof *single; i++)
		if (strcmp(at, single[i]) == 0)
			return path;
	return NULL;
}

/* ---- who the process is: that is this run's, whatever else the first run was told ---- */

static const char *line_end(const char *at, const char *end)
{
	const char *found = memchr(at, '\n', (size_t)(end - at));

	return found ? found + 1 : end;
}

static bool of_identity(const char *line, size_t length)
{
	static const char *const names[] = {"Tgid:", "Ngid:", "Pid:", "PPid:", "TracerPid:", "NStgid:", "NSpid:", "NSpgid:", "NSsid:"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (length > strlen(names[i]) && strncmp(line, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

/* The line of the same name. */
static const char *same_line(const char *line, const char *text, const char *end)
{
	size_t name = strcspn(line, ":");

	while (text < end && !((size_t)(end - text) > name && strncmp(text, line, name + 1) == 0))
		text = line_end(text, end);
	return text < end ? text : NULL;
}

static size_t status_of(const char *then, size_t count, const char *now, size_t size, char *out, size_t room)
{
	const char *end = then + count;
	size_t used = 0;

	for (const char *next; then < end; then = next) {
		const char *from = then, *other;
		size_t length;

		next = line_end(then, end);
		length = (size_t)(next - then);
		other = of_identity(then, length) ? same_line(then, now, now + size) : NULL;
		if (other) {
			from = other;
			length = (size_t)(line_end(other, now + size) - other);
		}
		if (used + length > room)
			return 0;
		memcpy(out + used, from, length);
		used += length;
	}
	return used;
}

/* Of the words of /proc/PID/stat, counted from 1 behind the program's name: parent, group, session, terminal, its group; and when it began. */
static bool identity_word(unsigned word)
{
	return (word >= 2 && word <= 6) || word == 20;
}

static size_t stat_of(const char *then, size_t count, const char *now, size_t size, char *out, size_t room)
{
	const char *behind = memrchr(then, ')', count), *end = then + count;
	const char *behind_now = memrchr(now, ')', size), *end_now = now + size;
	const char *bracket = memchr(now, '(', size);
	size_t used;

	if (!behind || !behind_now || !bracket || count + size > room)
		return 0;
	used = (size_t)(bracket - now);
	memcpy(out, now, used);
	bracket = memchr(then, '(', count);
	if (!bracket || bracket > behind)
		return 0;
	memcpy(out + used, bracket, (size_t)(behind + 1 - bracket));
	used += (size_t)(behind + 1 - bracket);
	behind++;
	behind_now++;
	for (unsigned word = 1; behind < end; word++) {
		const char *a = behind, *b = behind_now;
		size_t length;

		/* The blank before it, and the word. */
		for (behind++; behind < end && *behind != ' '; behind++)
			;
		for (behind_now += behind_now < end_now; behind_now < end_now && *behind_now != ' '; behind_now++)
			;
		length = identity_word(word) && b < end_now ? (size_t)(behind_now - b) : (size_t)(behind - a);
		memcpy(out + used, identity_word(word) && b < end_now ? b : a, length);
		used += length;
	}
	return used;
}

/* What the first run was told, with this process's numbers in it. 0: as it is. */
static size_t with_identity(const char *name, const char *then, size_t count, char *out, size_t room)
{
	bool status = strcmp(name, "self/status") == 0;
	char now[STATUS_BYTES];
	int fd = status || strcmp(name, "self/stat") == 0 ? (int)syscall(SYS_openat, AT_FDCWD, status ? "/proc/self/status" : "/proc/self/stat", O_RDONLY | O_CLOEXEC, 0) : -1;
	ssize_t size = fd >= 0 ? syscall(SYS_read, fd, now, sizeof now) : 0;

	if (fd >= 0)
		syscall(SYS_close, fd);
	if (size <= 0)
		return 0;
	return (status ? status_of : stat_of)(then, count, now, (size_t)size, out, room);
}

/* ---- descriptors ---- */

static uint32_t key_at(uint32_t key, off_t at)
{
	return key + (uint32_t)at * 2654435761u + 1;
}

static int memory_file(const char *bytes, size_t count)
{
	int fd = (int)syscall(SYS_memfd_create, "machine", MFD_CLOEXEC);

	for (size_t done = 0; fd >= 0 && done < count;) {
		ssize_t wrote = syscall(SYS_write, fd, bytes + done, count - done);

		if (wrote <= 0) {
			syscall(SYS_close, fd);
			return -1;
		}
		done += (size_t)wrote;
	}
	if (fd >= 0)
		syscall(SYS_lseek, fd, 0, SEEK_SET);
	return fd;
}

static void give(int fd, uint32_t key, const char *path)
{
	struct given *to = &given[fd];
	struct stat found;

	if (syscall(SYS_newfstatat, fd, "", &found, 0x1000 /* AT_EMPTY_PATH */))
		return;
	to->instead = path;
	to->device = found.st_dev;
	to->inode = found.st_ino;
	if (path) {
		free(to->path);
		to->path = strdup(path);
	}
	atomic_store(&to->key, key);
	tpck_random_look(fd);
}

/* Below /proc or /sys. */
static bool may_be(const char *path)
{
	return path[0] == '/' && (path[1] == 'p' || path[1] == 's');
}

/* Not inlined, as what follows it here: threads' stacks may be small. */
static __attribute__((noinline)) bool open_one(const char *path, int flags, const void *caller, int *fd)
{
	struct tpck_thread *self;
	char buffer[NAME], text[READ_BYTES];
	const char *name;
	const int32_t *then;
	const char *bytes;
	uint32_t key, size;
	size_t count;
	int32_t error;

	name = name_of(path, buffer);
	self = name ? tpck_machine_enter(caller) : NULL;
	if (!self)
		return false;
	key = tpck_machine_key("file", name);
	then = tpck_engine_reading_answer(self, key, &size);
	if (then && size == sizeof error) {
		error = *then;
		bytes = error ? NULL : tpck_engine_reading_ahead(self, key_at(key, 0), &size);
		*fd = -1;
		if (bytes && size >= sizeof error) {
			count = with_identity(name, bytes + sizeof error, size - sizeof error, text, sizeof text);
			*fd = count ? memory_file(text, count) : memory_file(bytes + sizeof error, size - sizeof error);
			if (*fd >= 0 && !(flags & O_CLOEXEC))
				syscall(SYS_fcntl, *fd, F_SETFD, 0);
			if (*fd >= DESCRIPTORS) {
				/* There would be nobody to give it the real one back. */
				syscall(SYS_close, *fd);
				*fd = -1;
			} else if (*fd >= 0) {
				give(*fd, key, path);
			}
		}
		/* Nothing was read of it by read(). */
		if (*fd < 0 && !error)
			*fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
		else
			errno = *fd < 0 ? error : errno;
	} else {
		*fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
		error = *fd < 0 ? errno : 0;
		tpck_engine_reading_note(self, key, &error, sizeof error);
		if (*fd >= 0 && *fd < DESCRIPTORS)
			give(*fd, key, NULL);
	}
	tpck_engine_leave(self);
	return true;
}

bool tpck_machine_open(const char *path, int flags, const void *caller, int *fd)
{
	return may_be(path) && tpck_engine_clocks() && (flags & (O_ACCMODE | O_PATH | O_DIRECTORY)) == O_RDONLY && open_one(path, flags, caller, fd);
}

/* The program is live, or is in no record: the kernel's own file in the place of the one in memory. */
static void become_real(int fd, struct given *of)
{
	int kept = errno, flags = (int)syscall(SYS_fcntl, fd, F_GETFD), real;
	off_t at = syscall(SYS_lseek, fd, 0, SEEK_CUR);
	struct stat found;

	of->instead = false;
	real = of->path ? (int)syscall(SYS_openat, AT_FDCWD, of->path, O_RDONLY | O_CLOEXEC, 0) : -1;
	if (real >= 0 && !syscall(SYS_newfstatat, real, "", &found, 0x1000 /* AT_EMPTY_PATH */)) {
		if (at > 0)
			syscall(SYS_lseek, real, at, SEEK_SET);
		syscall(SYS_dup3, real, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
		of->device = found.st_dev;
		of->inode = found.st_ino;
	}
	if (real >= 0)
		syscall(SYS_close, real);
	errno = kept;
}

static bool is_given(int fd, const struct given *of)
{
	struct stat found;
	int kept = errno;
	bool same = !syscall(SYS_newfstatat, fd, "", &found, 0x1000 /* AT_EMPTY_PATH */) && found.st_dev == of->device && found.st_ino == of->inode;

	errno = kept;
	return same;
}

struct was_read {
	int32_t error;
	char bytes[READ_BYTES];
};

static __attribute__((noinline)) ssize_t first_run(int fd, struct given *of, const struct was_read *then, size_t count, void *buffer, size_t bytes)
{
	char text[READ_BYTES];
	bool start = syscall(SYS_lseek, fd, 0, SEEK_CUR) == 0;
	size_t other = 0;
	char buffer_name[NAME];
	const char *name = of->path && start ? name_of(of->path, buffer_name) : NULL;

	if (then->error) {
		errno = then->error;
		return -1;
	}
	if (name)
		other = with_identity(name, then->bytes, count, text, sizeof text);
	if (other && other <= bytes)
		memcpy(buffer, text, other);
	else
		memcpy(buffer, then->bytes, count < bytes ? count : bytes);
	syscall(SYS_lseek, fd, (off_t)count, SEEK_CUR);
	return (ssize_t)(other && other <= bytes ? other : count < bytes ? count : bytes);
}

static __attribute__((noinline)) bool read_one(int fd, struct given *of, uint32_t key, void *buffer, size_t bytes, const void *caller, ssize_t *got)
{
	struct tpck_thread *self;
	struct was_read now;
	const void *then;
	uint32_t size;

	if (!is_given(fd, of)) {
		atomic_store(&of->key, 0);
		return false;
	}
	self = tpck_machine_enter(caller);
	if (of->instead && !(self && tpck_engine_forward() && tpck_readable(buffer, bytes)))
		become_real(fd, of);
	if (!self)
		return false;
	key = key_at(key, syscall(SYS_lseek, fd, 0, SEEK_CUR));
	then = of->instead ? tpck_engine_reading_answer(self, key, &size) : NULL;
	if (then && size >= sizeof now.error) {
		*got = first_run(fd, of, then, size - sizeof now.error, buffer, bytes);
	} else {
		if (of->instead)
			become_real(fd, of);
		/* A reader of such files goes on until it gets nothing. */
		*got = syscall(SYS_read, fd, buffer, bytes < READ_BYTES ? bytes : READ_BYTES);
		now.error = *got < 0 ? errno : 0;
		if (*got > 0)
			memcpy(now.bytes, buffer, (size_t)*got);
		if (now.error != EFAULT)
			tpck_engine_reading_note(self, key, &now, (uint32_t)(sizeof now.error + (*got > 0 ? (size_t)*got : 0)));
	}
	tpck_engine_leave(self);
	return true;
}

bool tpck_machine_read(int fd, void *buffer, size_t bytes, const void *caller, ssize_t *got)
{
	struct given *of = fd >= 0 && fd < DESCRIPTORS ? &given[fd] : NULL;
	uint32_t key = of ? atomic_load_explicit(&of->key, memory_order_relaxed) : 0;

	return key && read_one(fd, of, key, buffer, bytes, caller, got);
}

/* ---- streams ---- */

/* All that the file holds, from `room` on; as errno says where it cannot be read or is too long. */
static ssize_t whole(const char *path, char *room)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), kept;
	ssize_t got = 1;
	size_t count = 0;

	if (fd < 0)
		return -1;
	while (got > 0 && count < STREAM_BYTES) {
		got = syscall(SYS_read, fd, room + count, STREAM_BYTES - count);
		count += got > 0 ? (size_t)got : 0;
	}
	kept = errno;
	syscall(SYS_close, fd);
	errno = got > 0 ? EFBIG : kept;
	return got ? -1 : (ssize_t)count;
}

bool tpck_machine_stream(const char *path, const char *mode, const void *caller, FILE **stream)
{
	struct tpck_thread *self;
	char buffer[NAME], *room;
	const char *name, *then;
	uint32_t key, size;
	ssize_t count;
	size_t other;
	int32_t error;
	int fd = -1;

	if (!may_be(path) || mode[0] != 'r' || strchr(mode, '+') || strchr(mode, ','))
		return false;
	name = name_of(path, buffer);
	self = name ? tpck_machine_enter(caller) : NULL;
	if (!self)
		return false;
	room = mmap(NULL, STREAM_BYTES + STATUS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		goto real;
	key = tpck_machine_key("stream", name);
	then = tpck_engine_reading_answer(self, key, &size);
	if (then && size >= sizeof error) {
		memcpy(&error, then, sizeof error);
		other = with_identity(name, then + sizeof error, size - sizeof error, room, STREAM_BYTES);
		if (!error)
			fd = other ? memory_file(room, other) : memory_file(then + sizeof error, size - sizeof error);
	} else {
		count = whole(path, room + sizeof error);
		error = count < 0 ? errno : 0;
		if (error && error != ENOENT && error != EACCES) {
			/* libc's, which reads what can be read. */
			munmap(room, STREAM_BYTES + STATUS_BYTES);
			goto real;
		}
		memcpy(room, &error, sizeof error);
		tpck_engine_reading_note(self, key, room, (uint32_t)(sizeof error + (error ? 0 : (size_t)count)));
		if (!error)
			fd = memory_file(room + sizeof error, (size_t)count);
	}
	munmap(room, STREAM_BYTES + STATUS_BYTES);
	if (fd < 0 && !error)
		goto real;
	if (fd >= 0 && !strchr(mode, 'e'))
		syscall(SYS_fcntl, fd, F_SETFD, 0);
	tpck_engine_leave(self);
	*stream = fd < 0 ? NULL : fdopen(fd, mode);
	if (fd >= 0 && !*stream)
		syscall(SYS_close, fd);
	if (fd < 0)
		errno = error;
	return true;
real:
	tpck_engine_leave(self);
	return false;
}
