/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned host memory of the driver's, and what of it is watched. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/lock_order.h"
#include "runtime/track/host_memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/layout.h"

/* More are not known. */
enum { MOST = 4096, WATCHED_MOST = 64 };

static struct {
	uintptr_t host;
	uint64_t bytes;
	bool registered;
} known[MOST] TPCK_LARGE;
static struct {
	const void *host;
	uint64_t bytes;
	void *kept;
	bool filled;
} watched[WATCHED_MOST] TPCK_LARGE;
static unsigned known_count, watched_count;
static uint64_t watched_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
_Atomic bool tpck_host_memory_shown_anew;
_Atomic uintptr_t tpck_host_memory_from, tpck_host_memory_to;
static _Atomic bool any;

static void add(uintptr_t host, uint64_t bytes, bool registered)
{
	pthread_mutex_lock(&lock);
	if (known_count < MOST) {
		known[known_count].host = host;
		known[known_count].registered = registered;
		known[known_count++].bytes = bytes;
		if (!tpck_host_memory_from || host < tpck_host_memory_from)
			tpck_host_memory_from = host;
		if (host + bytes > tpck_host_memory_to)
			tpck_host_memory_to = host + bytes;
	}
	pthread_mutex_unlock(&lock);
}

void tpck_host_memory_add(const void *host, uint64_t bytes)
{
	add((uintptr_t)host, bytes, false);
}

void tpck_host_memory_register(const void *host, uint64_t bytes)
{
	add((uintptr_t)host, bytes, true);
}

static void unwatch(unsigned i)
{
	free(watched[i].kept);
	watched_bytes -= watched[i].bytes;
	watched[i] = watched[--watched_count];
}

void tpck_host_memory_drop(const void *host)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = known_count; i-- > 0;)
		if (known[i].host == (uintptr_t)host)
			known[i] = known[--known_count];
	for (unsigned i = watched_count; i-- > 0;)
		if (watched[i].host == host)
			unwatch(i);
	pthread_mutex_unlock(&lock);
}

/* The lock is held. */
static int watch(const void *host, uint64_t bytes)
{
	int saved = errno;
	void *kept;

	for (unsigned i = 0; i < watched_count; i++)
		if (watched[i].host == host)
			return 0;
	if (watched_count == WATCHED_MOST || bytes > TPCK_WATCH_ONE || watched_bytes + bytes > TPCK_WATCH_ALL)
		return -EFBIG;
	kept = malloc(bytes);
	errno = saved;
	if (!kept)
		return -ENOMEM;
	watched[watched_count].host = host;
	watched[watched_count].bytes = bytes;
	watched[watched_count].kept = kept;
	watched[watched_count++].filled = false;
	watched_bytes += bytes;
	atomic_store(&any, true);
	atomic_store(&tpck_host_memory_shown_anew, true);
	return 0;
}

int tpck_host_memory_shown(const void *host)
{
	uintptr_t at = (uintptr_t)host;
	int result = -ENOENT;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < known_count && result == -ENOENT; i++)
		if (at >= known[i].host && at - known[i].host < known[i].bytes)
			result = known[i].registered ? -EFBIG : watch((const void *)known[i].host, known[i].bytes); // NOLINT(performance-no-int-to-ptr)
	pthread_mutex_unlock(&lock);
	return result;
}

/* The end of a context takes its memory with it. Such pages cannot be read by process_vm_readv(2), which is why they are looked for first. */
static bool is_there(const void *host, uint64_t bytes)
{
	uintptr_t first = (uintptr_t)host & ~(uintptr_t)4095;
	int saved = errno;
	bool there = tpck_sys_msync((void *)first, (uintptr_t)host + bytes - first, MS_ASYNC) == 0;

	errno = saved;
	return there;
}

void tpck_host_memory_keep(void)
{
	pthread_mutex_lock(&lock);
	atomic_store(&tpck_host_memory_shown_anew, false);
	for (unsigned i = 0; i < watched_count; i++)
		if (!watched[i].filled && is_there(watched[i].host, watched[i].bytes)) {
			memcpy(watched[i].kept, watched[i].host, watched[i].bytes);
			watched[i].filled = true;
		}
	pthread_mutex_unlock(&lock);
}

bool tpck_host_memory_changed(uint64_t largest)
{
	bool changed = false;

	if (!atomic_load_explicit(&any, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < watched_count && !changed; i++)
		if (watched[i].filled && watched[i].bytes <= largest)
			changed = !is_there(watched[i].host, watched[i].bytes) || memcmp(watched[i].kept, watched[i].host, watched[i].bytes) != 0;
	pthread_mutex_unlock(&lock);
	return changed;
}
