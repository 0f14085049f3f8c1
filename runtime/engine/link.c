/* SPDX-License-Identifier: Apache-2.0 */
/* The link to the agent. */
#include "config.h"

#include "runtime/engine/link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/track/threads.h"


/* Verifying what is offered takes its time; without an offer the answer comes at once. */
enum { TICK_MS = 100, START_MS = 5000, WELCOME_MS = 10000, OFFER_MS = 900000, GIVE_UP_MS = 300 };

static struct tpck_link_options options;
static struct tpck_link_events events;
static char agent_path[1024], socket_path[1200];
static _Atomic int socket_now = -1;
static uint64_t generation;
static struct tpck_control *page;
static char session[256];
static _Atomic bool ending, bye;

/* Descriptors of ours lie high, out of the way of the numbers that the program gets. */
static int move_high(int fd)
{
	struct rlimit limit;
	int moved;

	if (fd < 0)
		return fd;
	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > 4096)
		limit.rlim_cur = 1024;
	moved = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, (long)(limit.rlim_cur / 2));
	if (moved < 0)
		return fd;
	syscall(SYS_close, fd);
	return moved;
}

static void find_agent(void)
{
	const char *slash = strrchr(options.library, '/');

	if (options.settings->agent[0]) {
		snprintf(agent_path, sizeof agent_path, "%s", options.settings->agent);
		return;
	}
	/* LIBDIR/libtranspckpt.so goes with LIBDIR/../bin/transpckptd. */
	snprintf(agent_path, sizeof agent_path, "%.*s/../bin/transpckptd",
		 slash ? (int)(slash - options.library) : 1, slash ? options.library : ".");
}

struct spawn {
	char *const *argv, *const *environment;
	char *stack;  /* top of the second child's stack */
	const char *folder; /* of the program's start */
	int alive;    /* write end of a pipe that lives as long as the agent's foreground part */
	int error;
};

/* The second child. Shares memory with the trainer until it has executed: system calls only. */
static int spawn_agent(void *argument)
{
	struct spawn *spawn = argument;
	sigset_t none;

	sigemptyset(&none);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, 8);
	syscall(SYS_execve, spawn->argv[0], spawn->argv, spawn->environment);
	spawn->error = errno;
	syscall(SYS_exit, 127);
	return 127;
}

/* The first child, with descriptors of its own. It does not execute: an execve would make its end a
 * SIGCHLD for the program. */
static int spawn_between(void *argument)
{
	struct spawn *spawn = argument;
	int null = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);

	/* Settings may have paths from the folder that the program was started in. */
	if (spawn->folder[0])
		syscall(SYS_chdir, spawn->folder);
	syscall(SYS_dup2, spawn->alive, 3);
	if (null >= 0)
		for (int fd = 0; fd < 3; fd++)
			syscall(SYS_dup2, null, fd);
	syscall(SYS_close_range, 4, ~0u, 0);
	if (clone(spawn_agent, spawn->stack, CLONE_VM | CLONE_VFORK, spawn) < 0)
		spawn->error = errno;
	syscall(SYS_exit, 0);
	return 0;
}

/* Starts the agent, which detaches itself. No signal reaches the program, and no wait() of the program's
 * sees a child. *alive is the end of a pipe that is at its end when the agent has gone into the
 * background, or has given up. */
static int start_agent(int *alive, struct tpck_error *err)
{
	enum { STACK = 32 << 10 };
	char *argv[] = {agent_path, (char *)"--job", (char *)options.job, NULL};
	const char **environment;
	struct spawn spawn = {.argv = argv};
	size_t count = 0, list_bytes;
	sigset_t all, before;
	int pipe_ends[2], pid;
	char *stacks;

	for (char *const *e = options.environment; e && *e; e++)
		count++;
	list_bytes = (count + 1) * sizeof *environment;
	if (syscall(SYS_pipe2, pipe_ends, O_CLOEXEC))
		return tpck_error_set(err, errno, "starting the agent");
	stacks = mmap(NULL, 2 * STACK + list_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stacks == MAP_FAILED) {
		syscall(SYS_close, pipe_ends[0]);
		syscall(SYS_close, pipe_ends[1]);
		return tpck_error_set(err, ENOMEM, "starting the agent");
	}
	environment = (const char **)(void *)(stacks + 2 * STACK);
	count = 0;
	for (char *const *e = options.environment; e && *e; e++)
		if (strncmp(*e, "LD_PRELOAD=", 11) != 0 && strncmp(*e, "LD_LIBRARY_PATH=", 16) != 0)
			environment[count++] = *e;
	environment[count] = NULL;
	spawn.environment = (char *const *)environment;
	spawn.stack = stacks + STACK;
	spawn.folder = options.start_folder;
	spawn.alive = pipe_ends[1];
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = clone(spawn_between, stacks + 2 * STACK, CLONE_VM | CLONE_VFORK, &spawn);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (pid > 0)
		while (syscall(SYS_wait4, pid, NULL, 0x80000000 /* __WCLONE */, NULL) < 0 && errno == EINTR)
			;
	munmap(stacks, 2 * STACK + list_bytes);
	syscall(SYS_close, pipe_ends[1]);
	if (pid < 0 || spawn.error) {
		syscall(SYS_close, pipe_ends[0]);
		return tpck_error_set(err, pid < 0 ? errno : spawn.error, "starting the agent %s", agent_path);
	}
	*alive = move_high(pipe_ends[0]);
	return 0;
}

static int try_connect(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct ucred peer;
	socklen_t length = sizeof peer;
	int fd;

	int code, folder = -1;

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	fd = move_high(fd);
	if (strlen(socket_path) < sizeof address.sun_path) {
		strcpy(address.sun_path, socket_path);
	} else {
		/* Too long for an address: by way of its folder. */
		char parent[sizeof socket_path];

		snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(socket_path, '/') - socket_path), socket_path);
		folder = (int)syscall(SYS_openat, AT_FDCWD, parent, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
		snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/agent.sock", folder);
	}
	code = connect(fd, (struct sockaddr *)&address, sizeof address) ? errno : 0;
	if (folder >= 0)
		syscall(SYS_close, folder);
	if (code) {
		syscall(SYS_close, fd);
		return -code;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) || peer.uid != geteuid()) {
		syscall(SYS_close, fd);
		return -EACCES;
	}
	return fd;
}

static void pause_ms(long ms)
{
	struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

	syscall(SYS_nanosleep, &pause, NULL);
}

static int connect_or_start(struct tpck_error *err)
{
	uint64_t begun = tpck_clock_monotonic_ns(), gone = 0;
	struct pollfd wait = {.events = POLLIN};
	int fd = try_connect(), result;

	if (fd >= 0)
		return fd;
	if (fd != -ENOENT && fd != -ECONNREFUSED)
		return tpck_error_set(err, -fd, "reaching the agent at %s", socket_path);
	result = start_agent(&wait.fd, err);
	if (result)
		return result;
	while ((fd = try_connect()) < 0) {
		uint64_t now = tpck_clock_monotonic_ns();

		/* It goes into the background once it listens: one that has ended otherwise never will. */
		if (!gone && poll(&wait, 1, 0) == 1)
			gone = now;
		if (gone && now - gone > GIVE_UP_MS * 1000000ull) {
			result = tpck_error_set(err, 0, "the agent ended at once and does not answer at %s: '%s --job %s --foreground' says why",
						socket_path, agent_path, options.job);
			break;
		}
		if (now - begun > START_MS * 1000000ull) {
			result = tpck_error_set(err, -fd, "the agent %s does not answer at %s", agent_path, socket_path);
			break;
		}
		pause_ms(2);
	}
	syscall(SYS_close, wait.fd);
	return result ? result : fd;
}

static int send_message(int fd, enum tpck_message_type type, const void *payload, uint32_t bytes)
{
	struct tpck_message head = {TPCK_MESSAGE_MAGIC, TPCK_WIRE_VERSION, (uint16_t)type, bytes, 0};
	struct iovec parts[2] = {{&head, sizeof head}, {(void *)(uintptr_t)payload, bytes}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

	return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* Receives one message within limit_ms. Its type, 0 at the time limit, or -errno. */
static int receive(int fd, void *payload, size_t size, int limit_ms)
{
	struct tpck_message head;
	struct iovec parts[2] = {{&head, sizeof head}, {payload, size}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	ssize_t got;
	int ready = poll(&wait, 1, limit_ms);

	if (ready <= 0)
		return ready < 0 && errno != EINTR ? -errno : 0;
	got = recvmsg(fd, &message, MSG_DONTWAIT);
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
		.pid = getpid(), .flags = flags, .world = 1, .identity_bytes = options.identity_bytes,
		.generation = generation, .resume_step = options.resume_step,
	};
	char *packet = malloc(sizeof hello + options.identity_bytes);
	int result;

	if (!packet)
		return tpck_error_set(err, ENOMEM, "saying hello to the agent");
	memcpy(packet, &hello, sizeof hello);
	memcpy(packet + sizeof hello, options.identity, options.identity_bytes);
	result = send_message(fd, TPCK_MSG_HELLO, packet, (uint32_t)sizeof hello + options.identity_bytes);
	free(packet);
	if (result)
		return tpck_error_set(err, -result, "saying hello to the agent");
	result = receive(fd, welcome, sizeof *welcome, flags & TPCK_HELLO_RESUME ? OFFER_MS : WELCOME_MS);
	if (result != TPCK_MSG_WELCOME)
		return tpck_error_set(err, result < 0 ? -result : ETIMEDOUT, "waiting for the agent's welcome");
	welcome->session[sizeof welcome->session - 1] = '\0';
	welcome->notice[sizeof welcome->notice - 1] = '\0';
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
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return tpck_error_set(err, errno, "opening %s", path);
	at = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	syscall(SYS_close, fd);
	if (at == MAP_FAILED)
		return tpck_error_set(err, errno, "mapping %s", path);
	page = at;
	if (page->magic != TPCK_CONTROL_MAGIC || page->version != TPCK_WIRE_VERSION) {
		munmap(at, sizeof *page);
		page = NULL;
		return tpck_error_set(err, 0, "%s is of another version; agent and library must be of one installation", path);
	}
	return 0;
}

int tpck_link_hello(const struct tpck_link_options *with, struct tpck_welcome *welcome,
		    struct tpck_control **control, struct tpck_error *err)
{
	char shm[TPCK_SETTING_TEXT_MAX + 16];
	int fd, result;

	options = *with;
	tpck_settings_shm(options.settings, shm, sizeof shm);
	snprintf(socket_path, sizeof socket_path, "%s/%s/agent.sock", shm, options.job);
	find_agent();
	fd = connect_or_start(err);
	if (fd < 0)
		return fd;
	result = say_hello(fd, options.resume ? TPCK_HELLO_RESUME : 0, welcome, err);
	if (!result) {
		generation = welcome->generation;
		snprintf(session, sizeof session, "%s", welcome->session);
		result = map_control(err);
	}
	if (result) {
		syscall(SYS_close, fd);
		return result;
	}
	page->pid = getpid();
	*control = page;
	atomic_store(&socket_now, fd);
	return 0;
}

void tpck_link_send(enum tpck_message_type type, const void *payload, uint32_t bytes)
{
	int fd = atomic_load(&socket_now);

	if (fd >= 0)
		(void)send_message(fd, type, payload, bytes);
}

/* The agent died: another adopts the session. */
static void reconnect(void)
{
	struct tpck_welcome welcome;
	struct tpck_error err = {0};
	int old = atomic_exchange(&socket_now, -1), fd;
	static int complaints;

	if (old >= 0)
		syscall(SYS_close, old);
	fd = connect_or_start(&err);
	if (fd >= 0 && say_hello(fd, TPCK_HELLO_ADOPT, &welcome, &err)) {
		syscall(SYS_close, fd);
		fd = -1;
	}
	if (fd >= 0) {
		atomic_store(&socket_now, fd);
		return;
	}
	if (!complaints++)
		tpck_log_warn("%s; snapshots stay in memory until it does", err.text);
	pause_ms(1000);
}

static void *link_main(void *unused)
{
	union {
		struct tpck_prepare prepare;
		struct tpck_held held;
		char bytes[4096];
	} payload;

	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-link");
	events.tick();
	while (!atomic_load(&bye)) {
		int fd = atomic_load(&socket_now), type;

		if (fd < 0) {
			if (atomic_load(&ending))
				break;
			reconnect();
			continue;
		}
		type = receive(fd, &payload, sizeof payload, TICK_MS);
		if (type == TPCK_MSG_READY)
			events.ready(&payload.prepare);
		else if (type == TPCK_MSG_SURPRISE)
			events.surprise(&payload.held);
		else if (type == TPCK_MSG_BYE)
			atomic_store(&bye, true);
		else if (type < 0) {
			if (atomic_load(&ending)) {
				atomic_store(&bye, true);
				break;
			}
			reconnect();
		}
		events.tick();
	}
	return NULL;
}

int tpck_link_start(const struct tpck_link_events *with)
{
	events = *with;
	return tpck_thread_start(link_main);
}

bool tpck_link_end(int status, double seconds)
{
	struct tpck_ending message = {status, 0};
	uint64_t limit = tpck_clock_monotonic_ns() + (uint64_t)(seconds * 1e9);

	atomic_store(&ending, true);
	if (page)
		atomic_store(&page->exit_status, 1 + (uint64_t)(uint32_t)status);
	if (atomic_load(&socket_now) < 0)
		return false;
	tpck_link_send(TPCK_MSG_ENDING, &message, sizeof message);
	while (!atomic_load(&bye) && tpck_clock_monotonic_ns() < limit)
		pause_ms(1);
	return atomic_load(&bye);
}
