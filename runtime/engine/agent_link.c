/* SPDX-License-Identifier: Apache-2.0 */
/* The link to the agent. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/engine/agent_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/track/threads.h"
#include "runtime/twin/supervisor.h"
#include "runtime/reach/reach.h"

/* Verifying what is offered takes its time; without an offer the answer comes at once. */
enum { TICK_MS = 100, TICK_SOON_MS = 2, WELCOME_MS = 10000, APART_MS = 30000, OFFER_MS = 900000, HELLO_AGAIN = 20, AGAIN_NS = 100000000 };
/* Of agents that end soon: how soon that is, how many are followed by another at once, and the pauses behind those. */
#define SOON_NS 10000000000ull
enum { SOON_AT_ONCE = 4, PAUSE_MS = 500, LONGEST_MS = 60000 };

static struct tpck_agent_options options;
static struct tpck_agent_events events;
static struct tpck_reach who TPCK_LARGE;
static _Atomic int socket_now = -1;
static uint64_t generation;
static struct tpck_control *page;
static char session[256] TPCK_LARGE;
static _Atomic bool ending, bye, seeking;
static uint64_t reached_ns; /* when an agent adopted the session last; who seeks has it */

static int send_message(int fd, enum tpck_message_type type, const void *payload, uint32_t bytes)
{
	struct tpck_message head = {TPCK_MESSAGE_MAGIC, TPCK_WIRE_VERSION, (uint16_t)type, bytes, 0};
	struct iovec parts[2] = {{&head, sizeof head}, {(void *)(uintptr_t)payload, bytes}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

	return tpck_sys_sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* Receives one message within limit_ms. Its type, 0 at the time limit, or -errno. */
static int receive(int fd, void *payload, size_t size, int limit_ms)
{
	struct tpck_message head;
	struct iovec parts[2] = {{&head, sizeof head}, {payload, size}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	ssize_t got;
	uint64_t until = tpck_clock_monotonic_ns() + (uint64_t)limit_ms * 1000000u, now;
	int ready = poll(&wait, 1, limit_ms);

	/* The program's own signals, its timers', come while it waits at its start. */
	while (ready < 0 && errno == EINTR && (now = tpck_clock_monotonic_ns()) < until)
		ready = poll(&wait, 1, (int)((until - now) / 1000000u + 1));
	if (ready <= 0)
		return ready < 0 && errno != EINTR ? -errno : 0;
	got = tpck_sys_recvmsg(fd, &message, MSG_DONTWAIT);
	if (got <= 0)
		return got < 0 ? -errno : -EPIPE;
	if ((size_t)got < sizeof head || head.magic != TPCK_MESSAGE_MAGIC)
		return -EPROTO;
	if (head.version != TPCK_WIRE_VERSION)
		return -EPROTONOSUPPORT;
	return head.type;
}

static int say_hello(int fd, uint32_t flags, struct tpck_welcome *welcome, struct tpck_error *err)
{
	struct tpck_hello hello = {
		.pid = getpid(), .flags = flags, .rank = options.ranks->rank, .world = options.ranks->world,
		.launch = options.ranks->launch, .identity_bytes = options.identity_bytes,
		.failure = options.failure, .generation = generation, .resume_step = options.resume_step, .forward_max_ns = options.forward_max_ns,
	};
	const char *master = getenv("MASTER_ADDR");
	char *packet = malloc(sizeof hello + options.identity_bytes);
	double late_ms = options.settings->start_wait_sec * 1e3;
	int result, wait_ms = flags & TPCK_HELLO_RESUME ? OFFER_MS : WELCOME_MS;

	if (!packet)
		return tpck_error_set(err, ENOMEM, "saying hello to the agent");
	/* A late process has nothing to get: what takes so long is a store. */
	if ((flags & TPCK_HELLO_LATE) && late_ms < wait_ms)
		wait_ms = late_ms > WELCOME_MS ? (int)late_ms : WELCOME_MS;
	/* Rank 0's node has a word in it. */
	if (options.ranks->elsewhere && !(flags & TPCK_HELLO_ADOPT)) {
		hello.flags |= TPCK_HELLO_APART;
		wait_ms = wait_ms < APART_MS ? APART_MS : wait_ms;
	}
	if (tpck_twin_page())
		hello.flags |= TPCK_HELLO_SUPERVISED;
	if (master && strlen(master) < sizeof hello.master)
		strcpy(hello.master, master);
	memcpy(packet, &hello, sizeof hello);
	memcpy(packet + sizeof hello, options.identity, options.identity_bytes);
	result = send_message(fd, TPCK_MSG_HELLO, packet, (uint32_t)sizeof hello + options.identity_bytes);
	free(packet);
	if (result)
		return tpck_error_set(err, -result, "saying hello to the agent");
	result = receive(fd, welcome, sizeof *welcome, wait_ms);
	if (result != TPCK_MSG_WELCOME)
		return tpck_error_set(err, result < 0 ? -result : ETIMEDOUT, "waiting for the agent's welcome");
	welcome->session[sizeof welcome->session - 1] = '\0';
	welcome->notice[sizeof welcome->notice - 1] = '\0';
	welcome->choice[sizeof welcome->choice - 1] = '\0';
	if (!welcome->session[0])
		return tpck_error_set(err, 0, "%s", welcome->notice);
	return 0;
}

static int map_control(struct tpck_error *err)
{
	char path[300];
	void *at;
	int fd;

	snprintf(path, sizeof path, "%s/control", session);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return tpck_error_set(err, errno, "opening %s", path);
	at = tpck_sys_mmap(options.control_at, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | (options.control_at ? MAP_FIXED : 0), fd, 0);
	tpck_sys_close(fd);
	if (at == MAP_FAILED)
		return tpck_error_set(err, errno, "mapping %s", path);
	page = at;
	if (page->magic != TPCK_CONTROL_MAGIC || page->version != TPCK_WIRE_VERSION) {
		tpck_sys_munmap(at, sizeof *page);
		page = NULL;
		return tpck_error_set(err, 0, "%s is of another version; agent and library must be of one installation", path);
	}
	return 0;
}

int tpck_agent_hello(const struct tpck_agent_options *with, struct tpck_welcome *welcome,
		     struct tpck_control **control, struct tpck_error *err)
{
	int fd, result, again = 0;

	options = *with;
	who = (struct tpck_reach){
		.settings = with->settings, .environment = tpck_reach_environment(with->environment), .job = with->job, .library = with->library,
		.start_folder = with->start_folder,
	};
	for (;;) {
		fd = tpck_reach(&who, err);
		if (fd < 0)
			return fd;
		result = say_hello(fd, (options.resume ? TPCK_HELLO_RESUME : 0) | (options.late ? TPCK_HELLO_LATE : 0) | options.flags, welcome, err);
		if ((result != -EPIPE && result != -ECONNRESET) || again++ == HELLO_AGAIN)
			break;
		/* The agent has ended without an answer, as one does that was told to: the next one gives it. Where mpirun starts agents there may be one more
		 * in between, and one that is ending may listen for another moment. */
		tpck_sys_close(fd);
		if (again > 1)
			tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, AGAIN_NS}, NULL);
	}
	if (!result) {
		generation = welcome->generation;
		snprintf(session, sizeof session, "%s", welcome->session);
		result = map_control(err);
	}
	if (result) {
		tpck_sys_close(fd);
		return result;
	}
	page->pid = getpid();
	*control = page;
	atomic_store(&socket_now, fd);
	return 0;
}

void tpck_agent_send(enum tpck_message_type type, const void *payload, uint32_t bytes)
{
	int fd = atomic_load(&socket_now);

	if (fd >= 0)
		(void)send_message(fd, type, payload, bytes);
}

bool tpck_agent_lost(void)
{
	int fd = atomic_load(&socket_now), before = errno;
	long got;
	char byte;

	got = fd >= 0 ? tpck_sys_recvfrom(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) : 0;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		got = 1;
	errno = before;
	return got <= 0;
}

static void wait_for(unsigned ms)
{
	uint64_t until = tpck_clock_monotonic_ns() + ms * 1000000ull;

	while (tpck_clock_monotonic_ns() < until && !atomic_load(&ending) && !atomic_load(&bye))
		tpck_reach_pause(20);
}

/* An agent that ends soon after it was reached, as one does that cannot bear what it finds, would be started for as long as the program runs: from the fifth on
 * the next one is waited for, twice as long each time. */
static void spare_host(void)
{
	static unsigned soon;
	unsigned more;

	soon = reached_ns && tpck_clock_monotonic_ns() - reached_ns < SOON_NS ? soon + 1 : 0;
	if (soon <= SOON_AT_ONCE)
		return;
	more = soon - SOON_AT_ONCE - 1;
	if (!more)
		tpck_log_warn("the agent ends right after it was started, again and again (its log is beside %s): the next ones are started after pauses of up to "
			      "%d s", who.socket, LONGEST_MS / 1000);
	wait_for(more < 7 ? PAUSE_MS << more : LONGEST_MS);
}

/* The agent died: another adopts the session. */
static void reconnect(void)
{
	struct tpck_welcome welcome;
	struct tpck_error err = {0};
	int old = atomic_exchange(&socket_now, -1), fd;
	static int complaints;

	if (old >= 0)
		tpck_sys_close(old);
	spare_host();
	fd = tpck_reach(&who, &err);
	if (fd >= 0 && say_hello(fd, TPCK_HELLO_ADOPT, &welcome, &err)) {
		tpck_sys_close(fd);
		fd = -1;
	}
	if (fd >= 0) {
		reached_ns = tpck_clock_monotonic_ns();
		atomic_store(&socket_now, fd);
		/* Nothing has been asked for before the link's thread runs. */
		if (events.again)
			events.again();
		return;
	}
	if (!complaints++)
		tpck_log_warn("%s; snapshots stay in memory until it does", err.text);
	tpck_reach_pause(1000);
}

/* Two threads may find that the agent behind this socket is gone. */
static void seek(int lost)
{
	if (atomic_exchange(&seeking, true)) {
		tpck_reach_pause(20);
		return;
	}
	if (atomic_load(&socket_now) == lost)
		reconnect();
	atomic_store(&seeking, false);
}

void tpck_agent_seek(void)
{
	int fd = atomic_load(&socket_now);

	if (tpck_agent_lost())
		seek(fd);
}

static void *link_main(void *unused)
{
	union {
		struct tpck_prepare prepare;
		struct tpck_held held;
		struct tpck_communicator_id id;
		char bytes[4096];
	} payload;
	int quick = 0;
	bool soon;

	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-link");
	events.tick();
	soon = events.look();
	while (!atomic_load(&bye)) {
		int fd = atomic_load(&socket_now), type;

		if (fd < 0) {
			if (atomic_load(&ending))
				break;
			seek(fd);
			continue;
		}
		type = receive(fd, &payload, sizeof payload, soon ? TICK_SOON_MS : TICK_MS);
		if (type == TPCK_MSG_READY)
			events.ready(&payload.prepare);
		else if (type == TPCK_MSG_SURPRISE)
			events.surprise(&payload.held);
		else if (type == TPCK_MSG_ID)
			events.id(&payload.id);
		else if (type == TPCK_MSG_BYE)
			atomic_store(&bye, true);
		else if (type < 0) {
			if (atomic_load(&ending)) {
				atomic_store(&bye, true);
				break;
			}
			seek(fd);
		}
		soon = events.look();
		if (soon && ++quick * TICK_SOON_MS < TICK_MS)
			continue;
		quick = 0;
		events.tick();
	}
	return NULL;
}

int tpck_agent_start(const struct tpck_agent_events *with)
{
	events = *with;
	return tpck_thread_start(link_main);
}

bool tpck_agent_end(int status, double seconds)
{
	struct tpck_ending message = {status, 0};
	uint64_t limit = tpck_clock_monotonic_ns() + (uint64_t)(seconds * 1e9);

	atomic_store(&ending, true);
	if (page)
		atomic_store(&page->exit_status, 1 + (uint64_t)(uint32_t)status);
	if (atomic_load(&socket_now) < 0)
		return false;
	tpck_agent_send(TPCK_MSG_ENDING, &message, sizeof message);
	while (!atomic_load(&bye) && tpck_clock_monotonic_ns() < limit)
		tpck_reach_pause(1);
	return atomic_load(&bye);
}
