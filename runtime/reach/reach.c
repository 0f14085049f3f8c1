/* SPDX-License-Identifier: Apache-2.0 */
/* Reaching the agent: connecting to it, and starting it where none answers. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/tier_settings.h"
#include "runtime/reach/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/door.h"
#include "runtime/wire/message.h"
#include "runtime/wire/segment.h"

enum { START_MS = 5000, GIVE_UP_MS = 300, QUEUE_MS = 2000 };
/* An agent that is started listens after some 3 ms, which many programs' first save waits for: it is looked for often for so long, then
 * at leisure. */
enum { SOON_MS = 20, SOON_US = 250, LATER_US = 2000 };

static void find_agent(const struct tpck_reach *who, char *path, size_t size)
{
	const char *slash = strrchr(who->library, '/');

	if (who->settings->agent[0]) {
		snprintf(path, size, "%s", who->settings->agent);
		return;
	}
	/* LIBDIR/libtranspckpt.so goes with LIBDIR/../bin/transpckptd. */
	snprintf(path, size, "%.*s/../bin/transpckptd", slash ? (int)(slash - who->library) : 1,
		 slash ? who->library : ".");
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
	tpck_sys_sigprocmask(SIG_SETMASK, &none, NULL, 8);
	tpck_sys_execve(spawn->argv[0], spawn->argv, spawn->environment);
	spawn->error = errno;
	tpck_sys_exit(127);
	return 127;
}

/* The first child, with descriptors of its own. It does not execute: an execve would make its end a
 * SIGCHLD for the program. */
static int spawn_between(void *argument)
{
	struct spawn *spawn = argument;
	int null = tpck_sys_openat(AT_FDCWD, "/dev/null", O_RDWR, 0);

	/* Settings may have paths from the folder that the program was started in. */
	if (spawn->folder[0])
		tpck_sys_chdir(spawn->folder);
	tpck_sys_dup2(spawn->alive, 3);
	if (null >= 0)
		for (int fd = 0; fd < 3; fd++)
			tpck_sys_dup2(null, fd);
	tpck_sys_close_range(4, ~0u, 0);
	if (clone(spawn_agent, spawn->stack, CLONE_VM | CLONE_VFORK, spawn) < 0)
		spawn->error = errno;
	tpck_sys_exit(0);
	return 0;
}

char *const *tpck_reach_environment(char *const *environment)
{
	size_t count = 0, bytes = 0;
	char **copy, *at;

	/* A program may have none. */
	for (; environment && environment[count]; count++)
		bytes += strlen(environment[count]) + 1;
	copy = tpck_sys_mmap(NULL, (count + 1) * sizeof *copy + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return environment;
	at = (char *)(copy + count + 1);
	for (size_t i = 0; i < count; i++) {
		copy[i] = at;
		at = stpcpy(at, environment[i]) + 1;
	}
	return copy;
}

/* Starts the agent, which detaches itself. No signal reaches the program, and no wait() of the program's
 * sees a child. *alive is the end of a pipe that is at its end when the agent has gone into the
 * background, or has given up. */
static int start_agent(const struct tpck_reach *who, const char *path, int *alive, struct tpck_error *err)
{
	enum { STACK = 32 << 10 };
	char *argv[] = {(char *)path, (char *)"--job", (char *)who->job, NULL};
	const char **environment;
	struct spawn spawn = {.argv = argv};
	size_t count = 0, list_bytes;
	sigset_t all, before;
	int pipe_ends[2], pid;
	char *stacks;

	for (char *const *e = who->environment; e && *e; e++)
		count++;
	list_bytes = (count + 1) * sizeof *environment;
	if (tpck_sys_pipe2(pipe_ends, O_CLOEXEC))
		return tpck_error_set(err, errno, "starting the agent");
	stacks = tpck_sys_mmap(NULL, 2 * STACK + list_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stacks == MAP_FAILED) {
		tpck_sys_close(pipe_ends[0]);
		tpck_sys_close(pipe_ends[1]);
		return tpck_error_set(err, ENOMEM, "starting the agent");
	}
	environment = (const char **)(void *)(stacks + 2 * STACK);
	count = 0;
	for (char *const *e = who->environment; e && *e; e++)
		if (strncmp(*e, "LD_PRELOAD=", 11) != 0 && strncmp(*e, "LD_LIBRARY_PATH=", 16) != 0)
			environment[count++] = *e;
	environment[count] = NULL;
	spawn.environment = (char *const *)environment;
	spawn.stack = stacks + STACK;
	spawn.folder = who->start_folder;
	spawn.alive = pipe_ends[1];
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = clone(spawn_between, stacks + 2 * STACK, CLONE_VM | CLONE_VFORK, &spawn);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (pid > 0)
		while (tpck_sys_wait4(pid, NULL, 0x80000000 /* __WCLONE */, NULL) < 0 && errno == EINTR)
			;
	tpck_sys_munmap(stacks, 2 * STACK + list_bytes);
	tpck_sys_close(pipe_ends[1]);
	if (pid < 0 || spawn.error) {
		tpck_sys_close(pipe_ends[0]);
		return tpck_error_set(err, pid < 0 ? errno : spawn.error, "starting the agent %s", path);
	}
	*alive = tpck_sys_high(pipe_ends[0]);
	return 0;
}

enum { SOCKET_BYTES = sizeof ((struct tpck_reach *)0)->socket };

/* SHM and JOB of SHM/JOB/agent.sock: 0, or -errno. -EPERM: `folder` gets the one that is not the user's own. */
static int look_at_tier(const char *socket_path, char folder[SOCKET_BYTES])
{
	static const int flags[] = {TPCK_DOOR_STICKY, 0};

	for (int i = 0; i < 2; i++) {
		int fd;

		if (snprintf(folder, SOCKET_BYTES, "%s", socket_path) >= SOCKET_BYTES)
			return -ENAMETOOLONG;
		for (int up = i; up < 2; up++) {
			char *slash = strrchr(folder, '/');

			if (!slash || slash == folder)
				return 0;
			*slash = '\0';
		}
		fd = tpck_door_open(AT_FDCWD, folder, flags[i]);
		if (fd < 0)
			return fd;
		tpck_sys_close(fd);
	}
	return 0;
}

/* A queue that is full is waited for, since many ranks may begin at once, and no longer: an agent that is stopped empties it never. 0 or an errno. */
static int connect_soon(int fd, const struct sockaddr_un *address)
{
	uint64_t until = tpck_clock_monotonic_ns() + QUEUE_MS * 1000000ull;
	long flags;

	while (tpck_sys_connect(fd, (const struct sockaddr *)address, sizeof *address)) {
		if (errno != EAGAIN && errno != EINTR)
			return errno;
		if (tpck_clock_monotonic_ns() > until)
			return ETIMEDOUT;
		tpck_reach_pause(2);
	}
	flags = tpck_sys_fcntl(fd, F_GETFL, 0);
	if (flags >= 0)
		(void)tpck_sys_fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
	return 0;
}

int tpck_reach_connect(const char *socket_path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct ucred peer;
	socklen_t length = sizeof peer;
	int fd;

	char tier[SOCKET_BYTES];
	int code, folder = -1;

	/* Another user's is not waited for at all. */
	code = look_at_tier(socket_path, tier);
	if (code)
		return code;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	fd = tpck_sys_high(fd);
	if (strlen(socket_path) < sizeof address.sun_path) {
		strcpy(address.sun_path, socket_path);
	} else {
		/* Too long for an address: by way of its folder. */
		char parent[sizeof ((struct tpck_reach *)0)->socket];

		snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(socket_path, '/') - socket_path), socket_path);
		folder = tpck_sys_openat(AT_FDCWD, parent, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
		snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/agent.sock", folder);
	}
	code = connect_soon(fd, &address);
	if (folder >= 0)
		tpck_sys_close(folder);
	if (code) {
		tpck_sys_close(fd);
		return -code;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) || peer.uid != geteuid()) {
		tpck_sys_close(fd);
		return -EACCES;
	}
	return fd;
}

void tpck_reach_pause(long ms)
{
	struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

	tpck_sys_nanosleep(&pause, NULL);
}

int tpck_reach_ask(int fd, unsigned type, const void *payload, size_t bytes, unsigned answer, unsigned limit_ms)
{
	struct tpck_message head = {TPCK_MESSAGE_MAGIC, TPCK_WIRE_VERSION, (uint16_t)type, (uint32_t)bytes, 0};
	struct iovec parts[] = {{&head, sizeof head}, {(void *)payload, bytes}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	uint64_t until = tpck_clock_monotonic_ns() + limit_ms * 1000000ull, now;
	int got = 0;

	if (tpck_sys_sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)(sizeof head + bytes))
		return -errno;
	while (got <= 0 && (now = tpck_clock_monotonic_ns()) < until) {
		got = poll(&wait, 1, (int)((until - now) / 1000000 + 1));
		if (got < 0 && errno != EINTR)
			return -errno;
	}
	if (got <= 0)
		return -ETIMEDOUT;
	return tpck_sys_recvfrom(fd, &head, sizeof head, MSG_DONTWAIT, NULL, NULL) == sizeof head && head.type == answer ? 0 : -EPROTO;
}

/* At most size - 1 bytes of a file; false: none can be read. */
static bool read_text(const char *path, char *text, size_t size)
{
	int fd = tpck_door_read(AT_FDCWD, path);
	long got;

	if (fd < 0)
		return false;
	got = tpck_sys_read(fd, text, size - 1);
	tpck_sys_close(fd);
	text[got > 0 ? got : 0] = '\0';
	return got > 0;
}

/* Whether an agent has the job, though it does not listen yet: it may have much to take over. */
static bool is_coming(const struct tpck_reach *who)
{
	char path[sizeof who->socket + 16], text[32];
	const char *digit = text;
	long pid = 0;

	snprintf(path, sizeof path, "%.*s/agent.lock", (int)(strrchr(who->socket, '/') - who->socket), who->socket);
	if (!read_text(path, text, sizeof text))
		return false;
	while (*digit >= '0' && *digit <= '9' && pid < 100000000)
		pid = 10 * pid + (*digit++ - '0');
	snprintf(path, sizeof path, "/proc/%ld/comm", pid);
	return pid > 0 && read_text(path, text, sizeof text) && strncmp(text, "transpckptd", 11) == 0;
}

static __attribute__((noinline)) int refused(const char *socket_path, struct tpck_error *err)
{
	char tier[SOCKET_BYTES];

	(void)look_at_tier(socket_path, tier);
	return tpck_door_refused(tier, -EPERM, "TRANSPCKPT_SHM", err);
}

static int look_for(struct tpck_reach *who)
{
	char shm[TPCK_SETTING_TEXT_MAX + 16];

	if (!who->socket[0]) {
		tpck_settings_shm(who->settings, shm, sizeof shm);
		snprintf(who->socket, sizeof who->socket, "%s/%s/agent.sock", shm, who->job);
	}
	return tpck_reach_connect(who->socket);
}

static void pause_us(long us)
{
	struct timespec pause = {0, us * 1000};

	tpck_sys_nanosleep(&pause, NULL);
}

void tpck_reach_ahead(struct tpck_reach *who)
{
	struct tpck_error unsaid = {0};
	int fd = who->ahead ? -EALREADY : look_for(who), alive;
	char path[1024];

	if (fd >= 0)
		tpck_sys_close(fd);
	if (fd != -ENOENT && fd != -ECONNREFUSED)
		return;
	find_agent(who, path, sizeof path);
	if (!start_agent(who, path, &alive, &unsaid))
		who->ahead = alive + 1;
}

int tpck_reach(struct tpck_reach *who, struct tpck_error *err)
{
	uint64_t begun = tpck_clock_monotonic_ns(), gone = 0;
	struct pollfd wait = {.fd = who->ahead - 1, .events = POLLIN};
	char agent_path[1024];
	bool again = false;
	int fd, result = 0;

	who->ahead = 0;
	fd = look_for(who);
	if (wait.fd >= 0 && fd != -ENOENT && fd != -ECONNREFUSED)
		tpck_sys_close(wait.fd);
	if (fd >= 0)
		return fd;
	if (fd == -EPERM)
		return refused(who->socket, err);
	if (fd != -ENOENT && fd != -ECONNREFUSED)
		return tpck_error_set(err, -fd, "reaching the agent at %s", who->socket);
	find_agent(who, agent_path, sizeof agent_path);
	if (wait.fd < 0)
		result = start_agent(who, agent_path, &wait.fd, err);
	if (result)
		return result;
	while ((fd = tpck_reach_connect(who->socket)) < 0) {
		uint64_t now = tpck_clock_monotonic_ns();

		/* An agent goes into the background once it listens: one that has ended otherwise never will. */
		if (!gone && poll(&wait, 1, 0) == 1)
			gone = now;
		if (gone && now - gone > GIVE_UP_MS * 1000000ull && is_coming(who))
			gone = now;
		if (gone && now - gone > GIVE_UP_MS * 1000000ull && !again) {
			/* The agent left because there was another one, which was about to leave. */
			again = true;
			gone = 0;
			tpck_sys_close(wait.fd);
			wait.fd = -1;
			result = start_agent(who, agent_path, &wait.fd, err);
			if (result)
				return result;
			continue;
		}
		if (gone && now - gone > GIVE_UP_MS * 1000000ull) {
			result = tpck_error_set(err, 0, "the agent ended at once and does not answer at %s: '%s --job %s --foreground' says why",
						who->socket, agent_path, who->job);
			break;
		}
		if (now - begun > START_MS * 1000000ull) {
			result = tpck_error_set(err, -fd, "the agent %s does not answer at %s", agent_path, who->socket);
			break;
		}
		pause_us(now - begun < SOON_MS * 1000000ull ? SOON_US : LATER_US);
	}
	tpck_sys_close(wait.fd);
	return result ? result : fd;
}
