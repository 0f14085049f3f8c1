/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that runs forward and waits for what does not come. The boundary of an iteration is behind its last launch, and the program is made live
 * at the first device operation that follows. On its way there it may start a program, or wait for one, that begins only once it is live.
 */
#include "config.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/log.h"
#include "runtime/base/readable.h"
#include "runtime/engine/engine_private.h"
#include "runtime/network/network.h"
#include "runtime/programs/programs.h"
#include "runtime/replay/forward.h"

/* How long the program may do nothing on the device, with something unknown to be started. */
#define DIFFERS_NS 10000000000ull
/* How long it may do nothing at all, with a thread that waits for an answer: such a thread may be there for good, as one that is told of events, and others
 * may wait for what comes from elsewhere. */
#define ANSWER_NS 600000000000ull
/* How long all threads may stand at the boundary without doing anything, with something to be started. */
#define STILL_NS 2000000000ull
/* How long one of them may wait for what a program says that begins behind it, or for what happens to files. */
#define OUTPUT_NS 4000000000ull
enum { POLLED_MOST = 64 };

/* How long nothing has been done on the device while something holds; 0 while it does not. */
struct idle {
	uint64_t operations, since;
};

static uint64_t idle_ns(struct idle *idle, bool holds)
{
	uint64_t now = tpck_clock_monotonic_ns(), sum = 0;
	uint32_t count;
	const struct tpck_thread *threads = tpck_threads(&count);

	for (uint32_t i = 0; holds && i < count; i++)
		sum += threads[i].operations;
	if (!holds || sum != idle->operations || !idle->since)
		idle->since = now;
	idle->operations = sum;
	return now - idle->since;
}

/* A program that waits to be started, since the log does not know it, may be waited for by who made it: then nothing moves any more. */
static void look_for_difference(void)
{
	static struct idle idle;
	bool at_once;
	const char *network = tpck_network_difference(&at_once), *difference = network ? network : tpck_programs_difference();
	uint64_t for_ns = idle_ns(&idle, difference != NULL);

	if (difference && (for_ns > DIFFERS_NS || (network && at_once)))
		tpck_resume_diverged(difference);
}

/* Forked children wait for the program to be live, and it may wait for them, as the pace of both is another one than in the first run. */
static void look_for_children(void)
{
	static struct idle idle;

	if (idle_ns(&idle, tpck_network_children_held()) > DIFFERS_NS)
		tpck_network_children_release();
}

/* The system call that a thread of this process is in, and its first two arguments; false where it is in none, or the kernel does not tell. */
static bool is_in(const struct tpck_thread *thread, long *call, long *first, long *second)
{
	char path[64], text[48], *end;
	long got = 0;
	int fd;

	snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread->tid);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd >= 0) {
		got = tpck_sys_read(fd, text, sizeof text - 1);
		tpck_sys_close(fd);
	}
	if (got <= 0)
		return false;
	text[got] = '\0';
	*call = strtol(text, &end, 10);
	*first = end != text ? strtol(end, &end, 16) : -1;
	*second = end != text ? strtol(end, NULL, 16) : -1;
	return true;
}

/* Whether a thread that stands at the boundary lets time pass of its own accord: its way is not at its end. */
static bool sleeps(void)
{
	uint32_t count;
	const struct tpck_thread *threads = tpck_threads(&count);

	for (uint32_t i = 0; i < count; i++) {
		long call, first, second;

		if (threads[i].ours || !atomic_load(&threads[i].alive) || !threads[i].operations)
			continue;
		/* Where the kernel does not tell, nothing is taken for granted. */
		if (!is_in(&threads[i], &call, &first, &second) || call == SYS_nanosleep || call == SYS_clock_nanosleep)
			return true;
	}
	return false;
}

static bool reads(long call)
{
	return call == SYS_read || call == SYS_recvfrom || call == SYS_recvmsg || call == SYS_readv;
}

/* Whether a thread reads from this descriptor, and waits. */
static bool is_read(int fd)
{
	uint32_t count;
	const struct tpck_thread *threads = tpck_threads(&count);

	for (uint32_t i = 0; i < count; i++) {
		long call, first, second;

		if (!threads[i].ours && atomic_load(&threads[i].alive) && is_in(&threads[i], &call, &first, &second) && first == fd &&
		    reads(call))
			return true;
	}
	return false;
}

/* Whether a thread that is on its way to the boundary waits for what a program says that begins once this process is live. In the first run it said that before
 * the boundary, in a way that is not in the record. */
static bool hears_nobody(char name[40])
{
	uint32_t count;
	const struct tpck_thread *threads = tpck_threads(&count);
	long call, first, second;
	bool hears = false;

	for (uint32_t i = 0; i < count && !hears; i++) {
		if (threads[i].ours || !atomic_load(&threads[i].alive) || !threads[i].operations || tpck_forward_at_end(&threads[i]) ||
		    !is_in(&threads[i], &call, &first, &second))
			continue;
		hears = reads(call) && tpck_programs_awaits((int)first, name);
		/* The list lies in memory of this process, and is there as long as the thread waits. */
		for (long k = 0; (call == SYS_poll || call == SYS_ppoll) && k < second && k < POLLED_MOST && !hears; k++) {
			const struct pollfd *polled = (const struct pollfd *)first + k;

			hears = tpck_readable(polled, sizeof *polled) && polled->events & POLLIN && tpck_programs_awaits(polled->fd, name);
		}
	}
	return hears;
}

static void look_for_output(void)
{
	static struct idle idle;
	char name[40] = "", text[120];

	if (idle_ns(&idle, hears_nobody(name)) <= OUTPUT_NS)
		return;
	snprintf(text, sizeof text, "what a program says is waited for, and neither that nor its end is in the record: %s", name);
	tpck_resume_diverged(text);
}

/* Whether this descriptor tells of what happens to files (inotify, fanotify). */
static bool is_watch(int fd)
{
	char path[40], kind[64];
	ssize_t got;

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(path, kind, sizeof kind - 1);
	kind[got > 0 ? got : 0] = '\0';
	return strncmp(kind, "anon_inode:", 11) == 0 && strstr(kind, "notify");
}

/* Of an epoll descriptor: whether one of those that it waits for tells of that. */
static bool is_watch_below(int epoll)
{
	char path[48], text[4096];
	ssize_t got;
	int fd;

	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epoll);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	got = fd >= 0 ? tpck_sys_read(fd, text, sizeof text - 1) : -1;
	if (fd >= 0)
		tpck_sys_close(fd);
	text[got > 0 ? got : 0] = '\0';
	for (const char *at = text; (at = strstr(at, "tfd:")); at += 4)
		if (is_watch(atoi(at + 4)))
			return true;
	return false;
}

/* Whether a thread that is on its way to the boundary waits for the kernel to tell of files. Of the program's own, which are in memory, it tells nothing. */
static bool watches_files(void)
{
	uint32_t count;
	const struct tpck_thread *threads = tpck_threads(&count);
	long call, first, second;
	bool watches = false;

	for (uint32_t i = 0; i < count && !watches; i++) {
		if (threads[i].ours || !atomic_load(&threads[i].alive) || !threads[i].operations || tpck_forward_at_end(&threads[i]) ||
		    !is_in(&threads[i], &call, &first, &second))
			continue;
		watches = (reads(call) && is_watch((int)first)) ||
			  ((call == SYS_epoll_wait || call == SYS_epoll_pwait || call == SYS_epoll_pwait2) && is_watch_below((int)first));
		for (long k = 0; (call == SYS_poll || call == SYS_ppoll) && k < second && k < POLLED_MOST && !watches; k++) {
			const struct pollfd *polled = (const struct pollfd *)first + k;

			watches = tpck_readable(polled, sizeof *polled) && polled->events & POLLIN && is_watch(polled->fd);
		}
		for (int fd = 0; (call == SYS_select || call == SYS_pselect6) && fd < first && fd < FD_SETSIZE && !watches; fd++)
			watches = tpck_readable((const void *)second, sizeof(fd_set)) && FD_ISSET(fd, (const fd_set *)second) && is_watch(fd);
	}
	return watches;
}

static void look_for_events(void)
{
	static struct idle idle;

	if (idle_ns(&idle, watches_files()) > OUTPUT_NS)
		tpck_resume_diverged("what happens to files is waited for (inotify), which is not told while the program's own files are in memory");
}

/* A thread may wait for an answer that the record does not have, and all others for that thread. */
static void look_for_answer(void)
{
	static uint64_t operations, since, used;
	uint64_t now = tpck_clock_monotonic_ns(), cpu = tpck_clock_process_cpu_ns(), sum = 0;
	char text[TPCK_NETWORK_TEXT];
	unsigned from = 0;
	bool waits = false;
	uint32_t count;
	const struct tpck_thread *threads = tpck_threads(&count);
	int fd;

	while (!waits && tpck_network_unanswered(&from, &fd, text))
		waits = is_read(fd);
	for (uint32_t i = 0; waits && i < count; i++)
		sum += threads[i].operations;
	if (!waits || sum != operations || !since || cpu - used > (now - since) / 10 + STILL_NS) {
		since = now;
		used = cpu;
	}
	operations = sum;
	if (waits && now - since > ANSWER_NS)
		tpck_resume_diverged(text);
}

/* Whether all threads have stood at the boundary for a while, and do nothing but ask whether a program has ended. */
static bool is_still(uint32_t polls)
{
	static uint64_t since, looked, used;
	static uint32_t asked;
	uint64_t now = tpck_clock_monotonic_ns(), cpu = tpck_clock_process_cpu_ns();
	bool moves = cpu - used > (now - looked) / 10;

	if (!since || now - looked > STILL_NS || (polls == asked && (moves || sleeps())))
		since = now;
	looked = now;
	used = cpu;
	asked = polls;
	return now - since >= STILL_NS;
}

/* Ranks may wait for one another there, and the link's thread has to go on meanwhile. */
static void *live_main(void *unused)
{
	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-live");
	tpck_resume_at_boundary(tpck_thread_self());
	return NULL;
}

void tpck_stillness_look(void)
{
	static bool going;
	uint32_t polls;
	enum tpck_programs_stop stop = tpck_programs_stops(&polls);
	enum tpck_network_stop connects = tpck_network_stops();

	look_for_difference();
	look_for_children();
	look_for_answer();
	look_for_output();
	look_for_events();
	if (going || (stop == TPCK_PROGRAMS_GO && connects == TPCK_NETWORK_GO) || !tpck_forward_complete())
		return;
	if (stop != TPCK_PROGRAMS_STOP && connects != TPCK_NETWORK_STOP && !is_still(polls))
		return;
	going = true;
	tpck_log_debug("the program waits at the boundary for what begins when it is live");
	if (tpck_thread_start(live_main))
		going = false;
}
