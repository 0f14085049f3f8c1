/* SPDX-License-Identifier: Apache-2.0 */
/* Whether what a program points at can be read. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/readable.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "runtime/base/layout.h"

/* The smallest page there is; the kernel maps nothing at addresses so low that a pointer near NULL may reach. */
enum { PAGE = 4096, SIGNALS_BYTES = 8, TEXT_MOST = 32 * PAGE /* of an argument, for the kernel */ };
/* No mapping that the kernel places comes so near to the main thread's stack. */
#define STACK_NEAR (8u << 20)

extern void *__curbrk; /* libc's: the break, up to which the heap is mapped */
static uintptr_t stack_end, heap_from;

TPCK_AT_START void tpck_readable_start(void)
{
	/* The program's name is the last thing on the stack. */
	uintptr_t name = getauxval(AT_EXECFN);

	stack_end = name ? (name | (PAGE - 1)) + 1 : 0;
	/* What libc does not know yet it asks for once. */
	heap_from = (uintptr_t)sbrk(0);
}

/* What is above the frame of who asks, on the main thread's stack. */
static inline bool on_stack(uintptr_t at)
{
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0);

	return at >= frame && at < stack_end && stack_end - frame < STACK_NEAR;
}

static inline bool on_heap(uintptr_t at)
{
	return heap_from && at >= heap_from && at < (uintptr_t)__curbrk;
}

/* There is no way -1 to change the signals that are blocked: EINVAL, once the kernel has read which; EFAULT if it cannot. Who
 * forbids the call says something else. */
static __attribute__((noinline)) bool kernel_reads(uintptr_t at)
{
	int saved = errno;
	bool readable = at >= PAGE && (tpck_sys_sigprocmask(-1, (const void *)(at & ~(uintptr_t)(SIGNALS_BYTES - 1)), NULL, SIGNALS_BYTES) == 0 ||
				       errno != EFAULT);

	errno = saved;
	return readable;
}

static inline bool page_readable(uintptr_t at)
{
	return on_stack(at) || on_heap(at) || kernel_reads(at);
}

bool tpck_readable(const void *at, size_t bytes)
{
	uintptr_t from = (uintptr_t)at, end = from + bytes;

	if (end < from)
		return false;
	for (; from < end; from = (from | (PAGE - 1)) + 1)
		if (!page_readable(from))
			return false;
	return true;
}

static bool text_readable(const char *text, size_t most)
{
	uintptr_t from = (uintptr_t)text, end = from + most;

	while (from < end) {
		uintptr_t next = (from | (PAGE - 1)) + 1;

		if (!page_readable(from))
			return false;
		if (next > end || next < from)
			next = end;
		if (memchr((const void *)from, '\0', next - from))
			return true;
		from = next;
	}
	return false;
}

bool tpck_readable_path(const char *path)
{
	return text_readable(path, PATH_MAX);
}

bool tpck_readable_list(char *const list[])
{
	for (char *const *at = list; at; at++) {
		if (!tpck_readable(at, sizeof *at))
			return false;
		if (!*at)
			return true;
		if (!text_readable(*at, TEXT_MOST))
			return false;
	}
	return true;
}
