/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned host memory that the program has of the driver, and which of it kernels may write to: that whose device address was asked for, and that
 * which a kernel was given an address of. A kernel's
 * stores there are in no record. Where nothing changes there is nothing to miss: a library may have such memory for errors of its kernels, which never come.
 * Small memory of that kind is watched: its bytes are kept as they are before the next operation of the device, and compared.
 *
 * Thread-safe. No driver call is made here. Memory that the program registers is not read, and so not watched: it may be unmapped at any time.
 */
#ifndef TPCK_RUNTIME_TRACK_HOST_MEMORY_H
#define TPCK_RUNTIME_TRACK_HOST_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Bytes of one allocation, and of all together, that are watched at most. */
#define TPCK_WATCH_ONE (4u << 20)
#define TPCK_WATCH_ALL (8u << 20)

/* Where pinned memory lies: all of it between these two addresses; the first is 0 where there is none. */
extern _Atomic uintptr_t tpck_host_memory_from __attribute__((visibility("hidden")));
extern _Atomic uintptr_t tpck_host_memory_to __attribute__((visibility("hidden")));

static inline bool tpck_host_memory_any(void)
{
	return atomic_load_explicit(&tpck_host_memory_from, memory_order_relaxed) != 0;
}
/* False: no address of it. */
static inline bool tpck_host_memory_maybe(uint64_t address)
{
	return address >= atomic_load_explicit(&tpck_host_memory_from, memory_order_relaxed) &&
	       address < atomic_load_explicit(&tpck_host_memory_to, memory_order_relaxed);
}

/* Whether bytes are to be kept before the next operation; see tpck_host_memory_keep(). */
extern _Atomic bool tpck_host_memory_shown_anew __attribute__((visibility("hidden")));

void tpck_host_memory_add(const void *host, uint64_t bytes);
void tpck_host_memory_register(const void *host, uint64_t bytes);
/* Called before the driver frees it: nothing of it is read behind that. */
void tpck_host_memory_drop(const void *host);
/* Kernels know this address within it. 0, or -ENOENT (it is not known), -EFBIG (it is not watched), -ENOMEM. */
int tpck_host_memory_shown(const void *host);
/* Keeps what has been shown since the last call. */
void tpck_host_memory_keep(void);
/* Whether watched memory is not what was kept, or is gone with a context; of allocations up to `largest` bytes only. */
bool tpck_host_memory_changed(uint64_t largest);

#endif
