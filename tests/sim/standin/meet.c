/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting of ranks: a socket without a file, or between nodes with one that goes when they have met, and memory without a name. */
#define _GNU_SOURCE
#include "standin/meet.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "standin/comm.h"

#define NAME "simgpu-nccl-"
/* The memory, and a pidfd of each other process. */
#define MOST_FDS (SIM_EXCHANGE_RANKS + 1)

/* A pidfd comes with it: the number alone says which ranks are in one process, not who that is. */
struct hello {
	int32_t rank, ranks;
	uint64_t numbered_by; /* the namespace that the number is of */
	int32_t pid, reserved;
};

struct welcome {
	int32_t result;
	int32_t of[SIM_EXCHANGE_RANKS]; /* as in struct meet_peers */
};

union fds {
	struct cmsghdr header;
	char space[CMSG_SPACE(MOST_FDS * sizeof(int))];
};

uint64_t meet_bytes(int ranks)
{
	return sizeof(struct sim_exchange_shared) + (uint64_t)ranks * (uint64_t)ranks * sizeof(struct sim_exchange_ring);
}

static bool give(int to, const void *bytes, size_t size, const int *fd, int n)
{
	union fds control = { .space = "" };
	struct iovec iov = { .iov_base = (void *)bytes, .iov_len = size };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t sent;

	if (n) {
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE((size_t)n * sizeof *fd);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN((size_t)n * sizeof *fd);
		memcpy(CMSG_DATA(&control.header), fd, (size_t)n * sizeof *fd);
	}
	/* There may be no more descriptors on the way than one may have open. */
	while ((sent = sendmsg(to, &m, MSG_NOSIGNAL)) < 0 && (errno == EINTR || errno == ETOOMANYREFS))
		usleep(1000);
	return sent == (ssize_t)size;
}

/* How many descriptors came, or -1 if what was to come with them did not. */
static int take(int from, void *bytes, size_t size, int fd[MOST_FDS])
{
	union fds control;
	struct iovec iov = { .iov_base = bytes, .iov_len = size };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	ssize_t got;
	int n = 0;

	do
		got = recvmsg(from, &m, MSG_CMSG_CLOEXEC | MSG_WAITALL);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof *fd);
			memcpy(fd, CMSG_DATA(c), (size_t)n * sizeof *fd);
		}
	if (got == (ssize_t)size && !(m.msg_flags & MSG_CTRUNC))
		return n;
	while (n)
		close(fd[--n]);
	return -1;
}

struct meeting {
	int listener;
	int ranks, n;
	char path[sizeof((struct sockaddr_un *)0)->sun_path]; /* of a fabric's socket, or "" */
	struct hello hello[SIM_EXCHANGE_RANKS];
	int fd[SIM_EXCHANGE_RANKS];
	int pidfd[SIM_EXCHANGE_RANKS];
};

static void welcome(struct meeting *m, int fd)
{
	struct welcome no = { .result = ncclInvalidArgument };
	struct hello h;
	struct ucred who;
	socklen_t size = sizeof who;
	int came[MOST_FDS], n = take(fd, &h, sizeof h, came);

	if (n == 1 && h.ranks >= 1 && h.ranks <= SIM_EXCHANGE_RANKS && h.rank >= 0 && h.rank < h.ranks &&
	    !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) && who.uid == geteuid()) {
		if (!m->ranks)
			m->ranks = h.ranks;
		if (h.ranks == m->ranks && m->fd[h.rank] < 0) {
			m->hello[h.rank] = h;
			m->fd[h.rank] = fd;
			m->pidfd[h.rank] = *came;
			m->n++;
			return;
		}
		give(fd, &no, sizeof no, NULL, 0);
	}
	while (n > 0)
		close(came[--n]);
	close(fd);
}

/* A rank that has gone while it waited may come again. */
static void miss(struct meeting *m, int rank)
{
	close(m->fd[rank]);
	close(m->pidfd[rank]);
	m->fd[rank] = -1;
	m->n--;
}

static bool one_process(const struct meeting *m, int a, int b)
{
	return m->hello[a].pid == m->hello[b].pid && m->hello[a].numbered_by == m->hello[b].numbered_by;
}

/* What a rank gets: the memory, and of each process but its own the pidfd that the first rank there brought. */
static void let_in(const struct meeting *m, int rank, int memory)
{
	struct welcome w = { .result = ncclSuccess };
	int fd[MOST_FDS] = { memory }, n = 1;

	for (int i = 0; i < m->ranks; i++) {
		int first = 0;

		while (!one_process(m, first, i))
			first++;
		if (one_process(m, i, rank)) {
			w.of[i] = -1;
		} else if (first < i) {
			w.of[i] = w.of[first];
		} else {
			w.of[i] = n - 1;
			fd[n++] = m->pidfd[i];
		}
	}
	give(m->fd[rank], &w, sizeof w, fd, n);
}

static void finish(struct meeting *m)
{
	struct welcome no = { .result = ncclSystemError };
	uint64_t bytes = meet_bytes(m->ranks);
	int memory = memfd_create("simgpu-nccl", MFD_CLOEXEC);
	struct sim_exchange_shared *s = MAP_FAILED;

	if (memory >= 0 && !ftruncate(memory, (off_t)bytes))
		s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (s != MAP_FAILED) {
		s->ranks = (uint32_t)m->ranks;
		munmap(s, sizeof *s);
	}
	for (int i = 0; i < m->ranks; i++) {
		if (s != MAP_FAILED)
			let_in(m, i, memory);
		else
			give(m->fd[i], &no, sizeof no, NULL, 0);
	}
	for (int i = 0; i < m->ranks; i++) {
		close(m->fd[i]);
		close(m->pidfd[i]);
	}
	if (memory >= 0)
		close(memory);
}

/* No file of the program's: what goes on between devices is none of its system calls. */
static void forget(const char *path)
{
	syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

static void *meeting_main(void *arg)
{
	struct meeting *m = arg;
	struct pollfd p[SIM_EXCHANGE_RANKS + 1];

	while (!m->ranks || m->n < m->ranks) {
		p[0] = (struct pollfd){ .fd = m->listener, .events = POLLIN };
		for (int i = 0; i < SIM_EXCHANGE_RANKS; i++)
			p[i + 1] = (struct pollfd){ .fd = m->fd[i], .events = POLLIN };
		if (poll(p, SIM_EXCHANGE_RANKS + 1, -1) < 0)
			continue;
		for (int i = 0; i < SIM_EXCHANGE_RANKS; i++)
			if (p[i + 1].revents && m->fd[i] >= 0)
				miss(m, i);
		int fd = p[0].revents ? accept4(m->listener, NULL, NULL, SOCK_CLOEXEC) : -1;
		if (fd >= 0)
			welcome(m, fd);
	}
	/* Whoever comes from here on finds nobody, before anyone can tell that all have met. */
	close(m->listener);
	if (*m->path)
		forget(m->path);
	finish(m);
	free(m);
	return NULL;
}

/* An id that begins as a path is one; any other is the name of a socket without a file, which is seen in its own network only. */
static socklen_t address_of(const ncclUniqueId *id, struct sockaddr_un *a)
{
	size_t n = strnlen(id->internal, sizeof a->sun_path - 1), at = *id->internal != '/';

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(a->sun_path + at, id->internal, n);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static int open_listener(const ncclUniqueId *id)
{
	struct sockaddr_un a;
	socklen_t n = address_of(id, &a);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && (bind(fd, (struct sockaddr *)&a, n) || listen(fd, SIM_EXCHANGE_RANKS))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Sockets of processes that ended before their ranks had met: nobody listens. */
static void sweep(const char *folder)
{
	DIR *d = opendir(folder);
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	for (struct dirent *e; d && (e = readdir(d));) {
		if (strncmp(e->d_name, NAME, sizeof NAME - 1) ||
		    snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", folder, e->d_name) >= (int)sizeof a.sun_path)
			continue;
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) && errno == ECONNREFUSED)
			forget(a.sun_path);
		if (fd >= 0)
			close(fd);
	}
	if (d)
		closedir(d);
}

/* SIMGPU_FABRIC: a folder that all nodes see stands for what joins their devices, whatever networks they are on. */
static int open_fabric(const char *folder, const char *name, ncclUniqueId *id)
{
	int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	size_t most = sizeof((struct sockaddr_un *)0)->sun_path;
	int n = snprintf(id->internal, sizeof id->internal, "%s/%s", folder, name);

	/* One at a time: a socket that nobody listens at yet is not to be swept away. */
	if (dir >= 0 && *folder == '/' && n < (int)most && !flock(dir, LOCK_EX)) {
		sweep(folder);
		fd = open_listener(id);
		flock(dir, LOCK_UN);
	}
	if (fd < 0)
		comm_fail(NULL, ncclSystemError, "SIMGPU_FABRIC: no socket in %s", folder);
	if (dir >= 0)
		close(dir);
	return fd;
}

ncclResult_t meet_open(ncclUniqueId *id)
{
	struct meeting *m = calloc(1, sizeof *m);
	const char *fabric = getenv("SIMGPU_FABRIC");
	uint64_t random[2];
	char name[64];
	sigset_t all, old;
	pthread_t t;

	memset(id, 0, sizeof *id);
	if (!m || getrandom(random, sizeof random, 0) != sizeof random) {
		free(m);
		return ncclSystemError;
	}
	snprintf(name, sizeof name, NAME "%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
	for (int i = 0; i < SIM_EXCHANGE_RANKS; i++)
		m->fd[i] = -1;
	if (fabric && *fabric) {
		m->listener = open_fabric(fabric, name, id);
		memcpy(m->path, id->internal, sizeof m->path - 1);
	} else {
		memcpy(id->internal, name, sizeof name);
		m->listener = open_listener(id);
	}
	int e = m->listener < 0;
	if (!e) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		e = pthread_create(&t, NULL, meeting_main, m);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	if (e) {
		if (m->listener >= 0)
			close(m->listener);
		if (*m->path)
			forget(m->path);
		free(m);
		return ncclSystemError;
	}
	pthread_detach(t);
	return ncclSuccess;
}

ncclResult_t meet_join(const ncclUniqueId *id, int rank, int ranks, int *out)
{
	struct hello h = { .rank = rank, .ranks = ranks, .pid = getpid() };
	struct sockaddr_un a;
	socklen_t n = address_of(id, &a);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), self = (int)syscall(SYS_pidfd_open, h.pid, 0), e = -1;
	struct stat s;

	if (!stat("/proc/self/ns/pid", &s))
		h.numbered_by = s.st_ino;
	if (fd >= 0 && self >= 0)
		do
			e = connect(fd, (struct sockaddr *)&a, n);
		while (e && errno == EINTR);
	ncclResult_t r = e ? ncclSystemError : give(fd, &h, sizeof h, &self, 1) ? ncclSuccess : ncclRemoteError;
	if (self >= 0)
		close(self);
	if (r == ncclSuccess)
		*out = fd;
	else if (fd >= 0)
		close(fd);
	return r;
}

ncclResult_t meet_wait(int fd, int ranks, struct sim_exchange_shared **out, struct meet_peers *peers)
{
	struct welcome w;
	int came[MOST_FDS], n = take(fd, &w, sizeof w, came);
	void *s = MAP_FAILED;

	close(fd);
	if (n < 0)
		return ncclRemoteError;
	if (!n)
		return (ncclResult_t)w.result;
	s = mmap(NULL, meet_bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, came[0], 0);
	close(came[0]);
	peers->n = n - 1;
	memcpy(peers->fd, came + 1, (size_t)peers->n * sizeof *came);
	memcpy(peers->of, w.of, sizeof peers->of);
	if (s == MAP_FAILED) {
		while (peers->n)
			close(peers->fd[--peers->n]);
		return ncclSystemError;
	}
	*out = s;
	return ncclSuccess;
}
