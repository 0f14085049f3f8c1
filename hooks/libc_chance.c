/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of what seeds a program: random bytes. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hooks/libc.h"
#include "runtime/engine/engine.h"
#include "shim/driver.h"

TPCK_EXPORT ssize_t getrandom(void *buffer, size_t bytes, unsigned int flags)
{
	struct tpck_thread *self = tpck_engine_enter();
	ssize_t got;

	if (self && buffer && (!tpck_engine_forward() || tpck_readable(buffer, bytes)) && tpck_engine_chance_answer(self, buffer, bytes)) {
		tpck_engine_leave(self);
		return (ssize_t)bytes;
	}
	got = syscall(SYS_getrandom, buffer, bytes, flags);
	if (self) {
		/* What is drawn in part (a signal, GRND_NONBLOCK) is drawn again by the caller. */
		if (got == (ssize_t)bytes)
			tpck_engine_chance_note(self, buffer, bytes);
		tpck_engine_leave(self);
	}
	return got;
}

TPCK_EXPORT int getentropy(void *buffer, size_t bytes)
{
	uintptr_t at = (uintptr_t)buffer, end = at + bytes;

	if (bytes > 256) {
		errno = EIO;
		return -1;
	}
	/* As glibc compares them, whatever that means of a buffer that wraps around. */
	while (at < end) {
		ssize_t got = getrandom((void *)at, end - at, 0);

		if (got < 0 && errno != EINTR)
			return -1;
		at += got > 0 ? (uintptr_t)got : 0;
	}
	return 0;
}

/* libc's own generators (glibc 2.36), which ask the kernel past any hook. */
static void drawn(void *bytes, size_t count, void (*draw)(void *bytes, size_t count))
{
	struct tpck_thread *self = tpck_engine_enter();

	if (self && (!tpck_engine_forward() || tpck_readable(bytes, count)) && tpck_engine_chance_answer(self, bytes, count)) {
		tpck_engine_leave(self);
		return;
	}
	draw(bytes, count);
	if (self) {
		tpck_engine_chance_note(self, bytes, count);
		tpck_engine_leave(self);
	}
}

/* A libc without them has no program that calls them, but one that asks whether they are there. */
static void draw_bytes(void *bytes, size_t count)
{
	static void (*real)(void *, size_t);

	if (!real)
		real = (void (*)(void *, size_t))tpck_real_dlsym(RTLD_NEXT, "arc4random_buf");
	if (real)
		real(bytes, count);
	else
		for (size_t at = 0; at < count;) {
			ssize_t got = syscall(SYS_getrandom, (char *)bytes + at, count - at, 0);

			at += got > 0 ? (size_t)got : 0;
		}
}

void arc4random_buf(void *bytes, size_t count);
TPCK_EXPORT void arc4random_buf(void *bytes, size_t count)
{
	drawn(bytes, count, draw_bytes);
}

uint32_t arc4random(void);
TPCK_EXPORT uint32_t arc4random(void)
{
	uint32_t value;

	drawn(&value, sizeof value, draw_bytes);
	return value;
}

/* Without a bias: of values below the greatest multiple of it. */
uint32_t arc4random_uniform(uint32_t below);
TPCK_EXPORT uint32_t arc4random_uniform(uint32_t below)
{
	uint32_t value, few = below ? -below % below : 0;

	if (below < 2)
		return 0;
	do
		value = arc4random();
	while (value < few);
	return value % below;
}

/* std::random_device::_M_getval(): RDRAND, no system call. The real one is looked for in libstdc++
 * itself, which is often outside the global scope. */
unsigned int _ZNSt13random_device9_M_getvalEv(void *device);

TPCK_EXPORT unsigned int _ZNSt13random_device9_M_getvalEv(void *device)
{
	static unsigned int (*real)(void *);
	struct tpck_thread *self = tpck_engine_enter();
	unsigned int value = 0;

	if (self && tpck_engine_chance_answer(self, &value, sizeof value)) {
		tpck_engine_leave(self);
		return value;
	}
	if (!real) {
		void *library = tpck_real_dlopen("libstdc++.so.6", RTLD_NOW | RTLD_NOLOAD);

		if (library)
			real = (unsigned int (*)(void *))tpck_real_dlsym(library, "_ZNSt13random_device9_M_getvalEv");
	}
	if (real)
		value = real(device);
	else
		(void)!syscall(SYS_getrandom, &value, sizeof value, 0);
	if (self) {
		tpck_engine_chance_note(self, &value, sizeof value);
		tpck_engine_leave(self);
	}
	return value;
}
