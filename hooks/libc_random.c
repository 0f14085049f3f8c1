/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of reading, for the bytes of /dev/urandom and /dev/random, which seed programs. */
#include "config.h"

#include "hooks/libc_random.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "hooks/libc.h"
#include "hooks/libc_machine.h"
#include "runtime/engine/engine.h"
#include "runtime/network/network.h"
#include "runtime/programs/programs.h"
#include "runtime/replay/restart.h"
#include "runtime/twin/supervisor.h"
#include "shim/driver.h"

#undef fread_unlocked /* a macro where the compiler optimizes */

/* More at once than a buffer (8191 bytes of a C++ stream, 8192 in Python) is not logged: it is data. */
enum { RANDOM_DESCRIPTORS = 1024, RANDOM_LOGGED = 16 << 10, STREAMS = 16 };

/* What is known of descriptors by their number. Closing is not hooked: that one is a random device is looked
 * at again before it counts, and that one is not may be stale where neither opening was by a hook. */
static _Atomic uint64_t known_descriptors[RANDOM_DESCRIPTORS / 64], random_descriptors[RANDOM_DESCRIPTORS / 64];

void tpck_random_note(int fd, bool random)
{
	uint64_t bit = 1ull << (fd & 63);

	if (fd < 0 || fd >= RANDOM_DESCRIPTORS)
		return;
	if (random)
		atomic_fetch_or(&random_descriptors[fd / 64], bit);
	else if (atomic_load(&random_descriptors[fd / 64]) & bit)
		atomic_fetch_and(&random_descriptors[fd / 64], ~bit);
	if (!(atomic_load(&known_descriptors[fd / 64]) & bit))
		atomic_fetch_or(&known_descriptors[fd / 64], bit);
}

void tpck_random_look(int fd)
{
	tpck_random_note(fd, true);
}

/* One that is not known was inherited, duplicated, or opened by a call that is not hooked. */
static bool random_descriptor(int fd)
{
	struct stat found;
	int saved = errno;
	bool random;

	random = !syscall(SYS_newfstatat, fd, "", &found, 0x1000 /* AT_EMPTY_PATH */) && S_ISCHR(found.st_mode) &&
		 major(found.st_rdev) == 1 && (minor(found.st_rdev) == 8 || minor(found.st_rdev) == 9);
	errno = saved;
	tpck_random_note(fd, random);
	return random;
}

static bool is_plain(int fd)
{
	uint64_t bit = 1ull << (fd & 63);

	return fd < 0 || fd >= RANDOM_DESCRIPTORS ||
	       (atomic_load_explicit(&known_descriptors[fd / 64], memory_order_relaxed) & bit &&
		!(atomic_load_explicit(&random_descriptors[fd / 64], memory_order_relaxed) & bit));
}

/* Bytes of a random device, from the log or into it. */
static ssize_t random_read(struct tpck_thread *self, int fd, void *buffer, size_t bytes)
{
	ssize_t got;

	if (bytes <= RANDOM_LOGGED && (!tpck_engine_forward() || tpck_readable(buffer, bytes)) &&
	    tpck_engine_chance_answer(self, buffer, bytes))
		return (ssize_t)bytes;
	got = syscall(SYS_read, fd, buffer, bytes);
	if (got == (ssize_t)bytes && bytes <= RANDOM_LOGGED)
		tpck_engine_chance_note(self, buffer, bytes);
	return got;
}

TPCK_EXPORT ssize_t read(int fd, void *buffer, size_t bytes)
{
	static ssize_t (*real)(int, void *, size_t); /* not a bare system call: reading may be cancelled */
	struct tpck_thread *self;
	ssize_t got;

	if (__builtin_expect(!real, 0))
		real = (ssize_t(*)(int, void *, size_t))tpck_real_dlsym(RTLD_NEXT, "read");
	if (__builtin_expect(!is_plain(fd), 0) && tpck_machine_read(fd, buffer, bytes, __builtin_return_address(0), &got))
		return got;
	if (__builtin_expect(is_plain(fd), 1) || !random_descriptor(fd)) {
		got = real(fd, buffer, bytes);
		tpck_programs_read(fd, buffer, bytes ? got : -1);
		tpck_started_told(got);
		if (bytes)
			tpck_network_read(fd, buffer, got);
		if (fd == STDIN_FILENO && got > 0) {
			tpck_restart_input_taken();
			tpck_supervisor_spent();
		}
		return got;
	}
	self = tpck_engine_enter();
	if (!self)
		return syscall(SYS_read, fd, buffer, bytes);
	got = random_read(self, fd, buffer, bytes);
	tpck_engine_leave(self);
	return got;
}

ssize_t __read_chk(int fd, void *buffer, size_t bytes, size_t room);
TPCK_EXPORT ssize_t __read_chk(int fd, void *buffer, size_t bytes, size_t room)
{
	static ssize_t (*real)(int, void *, size_t, size_t);

	if (bytes <= room)
		return read(fd, buffer, bytes);
	real = (ssize_t(*)(int, void *, size_t, size_t))tpck_real_dlsym(RTLD_NEXT, "__read_chk");
	return real(fd, buffer, bytes, room);
}

/* ---- C streams ---------------------------------------------------------------------------------------- */

/* Those that were opened on a random device. Closing is not hooked: the address may be another stream's by
 * now, so its descriptor is looked at. */
static FILE *_Atomic streams[STREAMS];
static _Atomic unsigned streams_count;

void tpck_random_stream_note(FILE *stream)
{
	for (unsigned i = 0; i < STREAMS; i++) {
		FILE *none = NULL;

		if (atomic_load(&streams[i]) == stream)
			return;
		if (atomic_compare_exchange_strong(&streams[i], &none, stream)) {
			atomic_fetch_add(&streams_count, 1);
			return;
		}
	}
}

static bool is_random_stream(FILE *stream)
{
	for (unsigned i = 0; i < STREAMS; i++) {
		FILE *same = stream;

		if (atomic_load(&streams[i]) != stream)
			continue;
		if (random_descriptor(fileno_unlocked(stream)))
			return true;
		if (atomic_compare_exchange_strong(&streams[i], &same, NULL))
			atomic_fetch_sub(&streams_count, 1);
		return false;
	}
	return false;
}

typedef size_t (*fread_type)(void *, size_t, size_t, FILE *);

static size_t stream_read(void *buffer, size_t size, size_t count, FILE *stream, fread_type real)
{
	struct tpck_thread *self;
	size_t got, bytes;

	if (__builtin_expect(!atomic_load_explicit(&streams_count, memory_order_relaxed), 1) || !is_random_stream(stream) ||
	    __builtin_mul_overflow(size, count, &bytes) || !bytes || bytes > RANDOM_LOGGED)
		return real(buffer, size, count, stream);
	self = tpck_engine_enter();
	if (!self)
		return real(buffer, size, count, stream);
	if (tpck_engine_chance_answer(self, buffer, bytes)) {
		got = count;
	} else {
		got = real(buffer, size, count, stream);
		if (got == count)
			tpck_engine_chance_note(self, buffer, bytes);
	}
	tpck_engine_leave(self);
	return got;
}

static int stream_getc(FILE *stream, fread_type read_stream, int (*real)(FILE *))
{
	unsigned char byte;

	if (__builtin_expect(!atomic_load_explicit(&streams_count, memory_order_relaxed), 1) || !is_random_stream(stream))
		return real(stream);
	return read_stream(&byte, 1, 1, stream) == 1 ? byte : EOF;
}

#define REAL(name, type)                                              \
	static __typeof__(type) real;                                 \
	if (__builtin_expect(!real, 0))                               \
	real = (type)tpck_real_dlsym(RTLD_NEXT, name)

TPCK_EXPORT size_t fread(void *restrict buffer, size_t size, size_t count, FILE *restrict stream)
{
	REAL("fread", fread_type);
	return stream_read(buffer, size, count, stream, real);
}

TPCK_EXPORT size_t fread_unlocked(void *restrict buffer, size_t size, size_t count, FILE *restrict stream)
{
	REAL("fread_unlocked", fread_type);
	return stream_read(buffer, size, count, stream, real);
}

typedef size_t (*fread_chk_type)(void *, size_t, size_t, size_t, FILE *);

/* As it is called with _FORTIFY_SOURCE. More than there is room for is libc's, which ends the program. */
size_t __fread_chk(void *buffer, size_t room, size_t size, size_t count, FILE *stream);
TPCK_EXPORT size_t __fread_chk(void *buffer, size_t room, size_t size, size_t count, FILE *stream)
{
	size_t bytes;

	REAL("__fread_chk", fread_chk_type);
	if (__builtin_mul_overflow(size, count, &bytes) || bytes > room)
		return real(buffer, room, size, count, stream);
	return fread(buffer, size, count, stream);
}

TPCK_EXPORT int fgetc(FILE *stream)
{
	REAL("fgetc", int (*)(FILE *));
	return stream_getc(stream, fread, real);
}

TPCK_EXPORT int getc(FILE *stream)
{
	REAL("getc", int (*)(FILE *));
	return stream_getc(stream, fread, real);
}
