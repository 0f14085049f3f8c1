/* SPDX-License-Identifier: Apache-2.0 */
/* What a program points at: what can be read is told from what cannot, wherever it lies, and errno stays. */
#define _GNU_SOURCE
#include "runtime/base/readable.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };
static int count, failed;

static void ok(bool good, const char *what)
{
	printf("%s %d - %s\n", good && errno == 5 ? "ok" : "not ok", ++count, what);
	failed |= !good || errno != 5;
	errno = 5;
}

static char *pages(unsigned number, int protection)
{
	return mmap(NULL, number * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* The stack of a thread lies between memory that can be read and memory that cannot. */
static void *on_a_thread(void *above)
{
	char here[] = "here";

	errno = 5;
	ok(tpck_readable_path(here), "a thread's own stack");
	ok(!tpck_readable(above, 1), "what is above a thread's stack is not of it");
	return NULL;
}

static void stacks(void)
{
	char here[] = "here", *stack = pages(17, PROT_READ | PROT_WRITE);
	extern char **environ;
	pthread_attr_t attributes;
	pthread_t thread;

	ok(tpck_readable_path(here), "the main thread's stack");
	ok(tpck_readable_path(environ[0] ? environ[0] : here), "a variable of the environment");
	mprotect(stack + 16 * PAGE, PAGE, PROT_NONE);
	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, stack, 16 * PAGE);
	errno = 5;
	if (!pthread_create(&thread, &attributes, on_a_thread, stack + 16 * PAGE))
		pthread_join(thread, NULL);
}

static void heap(void)
{
	char *end = sbrk(0), *more;

	end += -(uintptr_t)end & (PAGE - 1);
	errno = 5;
	ok(!tpck_readable(end + PAGE, 1), "beyond the break");
	more = sbrk(4 * PAGE);
	errno = 5;
	ok(more != (void *)-1 && tpck_readable(more, 3 * PAGE), "below it");
	(void)!brk(more);
	errno = 5;
	ok(!tpck_readable(end + 2 * PAGE, 1), "what the break has left");
}

static void mapped(void)
{
	char *at = pages(4, PROT_READ | PROT_WRITE), *cut = at + 2 * PAGE;

	memset(at, 'a', 2 * PAGE);
	mprotect(cut, PAGE, PROT_NONE);
	ok(tpck_readable(at, 2 * PAGE) && !tpck_readable(at, 2 * PAGE + 1), "pages, and one more that is none");
	ok(tpck_readable(cut - 1, 1) && !tpck_readable(cut - 1, 2), "the last byte");
	ok(!tpck_readable_path(cut - 10), "a path that is cut off");
	ok(!tpck_readable_path(at), "one that is too long");
	ok(!tpck_readable_path(cut - PATH_MAX), "one that is too long and ends where the page does");
	cut[-1] = '\0';
	ok(tpck_readable_path(cut - 10) && tpck_readable_path(cut - PATH_MAX) && !tpck_readable_path(cut - PATH_MAX - 1), "one that ends there");
	ok(tpck_readable(cut, 0), "nothing of what is none");
	ok(!tpck_readable_path(NULL) && !tpck_readable_path((char *)1) && !tpck_readable_path((char *)-1) && !tpck_readable((char *)-4, 8),
	   "what is no address");
	ok(!tpck_readable_path((char *)(uintptr_t)0xffff800000001000) && !tpck_readable_path((char *)(uintptr_t)0x8000000000000000),
	   "the kernel's, and one that no memory can have");
	munmap(at, PAGE);
	ok(!tpck_readable_path(at), "what is mapped no longer");
}

int main(void)
{
	errno = 5;
	mapped();
	tpck_readable_start();
	errno = 5;
	mapped();
	stacks();
	heap();
	printf("1..%d\n", count);
	return failed;
}
