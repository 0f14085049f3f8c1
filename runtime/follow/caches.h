/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches of compilers. What they hold can always be made again, and is made by processes that the program starts, which
 * nobody records: so these folders are not followed as other files are (follow/follow.h), but real, while running forward
 * too. For a resumed program to do what it did the first time, compilers must find what they found then: of the files there
 * a resumed process, and what it starts, does not see those that came to be between the program's first start and its own.
 *
 * The folders: TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR, TRITON_HOME/.triton/cache, CUPY_CACHE_DIR, and where these are not
 * set ~/.triton/cache, ~/.cupy/kernel_cache, and torchinductor_* in TMPDIR, /tmp or /var/tmp.
 */
#ifndef TPCK_RUNTIME_FOLLOW_CACHES_H
#define TPCK_RUNTIME_FOLLOW_CACHES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether an absolute path is such a folder, or in one. */
bool tpck_caches_hold(const char *absolute);

extern _Atomic bool tpck_caches_hiding_now __attribute__((visibility("hidden")));

/* From here on, in this process and in those that it starts, files there that came to be in [from, to) are hidden
 * (nanoseconds since 1970, by tpck_clock_coarse_ns()). */
void tpck_caches_hide(uint64_t from_ns, uint64_t to_ns);
/* At the start of a process: as the one that started it does, which its environment says no more afterwards. */
void tpck_caches_inherit(void);
/* For the hooks that start programs: how many pointers the list takes with what is to be told, or 0: the list is given as it is; and that list, in so
 * much room of the caller's, as long as that is there. So the program's own environment is what it would be. */
size_t tpck_caches_room_slow(char *const variables[]);
char *const *tpck_caches_told(char *const variables[], char **in, size_t room);

/* For the hooks, of a path as a call names it; a forked child, whose hooks are off otherwise, asks too. True: the call
 * fails, with the errno that is set. With O_CREAT in `flags` what is hidden there goes, and the call is made. */
bool tpck_caches_refuse_slow(int folder, const char *path, int flags);
static inline bool tpck_caches_hiding(void)
{
	return __builtin_expect(atomic_load_explicit(&tpck_caches_hiding_now, memory_order_relaxed), 0);
}
static inline bool tpck_caches_refuse(int folder, const char *path, int flags)
{
	return tpck_caches_hiding() && tpck_caches_refuse_slow(folder, path, flags);
}

#endif
