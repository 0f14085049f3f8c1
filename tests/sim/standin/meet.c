/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting of ranks: a socket without a file and memory without a name, so that nothing stays behind however a process ends. */
#define _GNU_SOURCE
#include "standin/meet.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct hello {
	int32_t rank, ranks;
};

uint64_t meet_bytes(int ranks)
{
	return sizeof(struct sim_exchange_shared) + (uint64_t)ranks * (uint64_t)ranks * sizeof(struct sim_exchange_ring);
}

static void give(int to, int fd, int32_t answer)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} c;
	struct iovec iov = { .iov_base = &answer, .iov_len = sizeof answer };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		memset(&c, 0, sizeof c);
		m.msg_control = &c;
		m.msg_controllen = sizeof c;
		c.header.cmsg_level = SOL_SOCKET;
		c.header.cmsg_type = SCM_RIGHTS;
		c.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&c.header), &fd, sizeof fd);
	}
	sendmsg(to, &m, MSG_NOSIGNAL);
}

struct meeting {
	int listener;
	int ranks, n;
	int fd[SIM_EXCHANGE_RANKS];
	pid_t pid[SIM_EXCHANGE_RANKS];
};

static void welcome(struct meeting *m, int fd)
{
	struct hello h;
	struct ucred who;
	socklen_t n = sizeof who;

	if (recv(fd, &h, sizeof h, MSG_WAITALL) != sizeof h || h.ranks < 1 || h.ranks > SIM_EXCHANGE_RANKS || h.rank < 0 || h.rank >= h.ranks ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) || who.uid != geteuid()) {
		close(fd);
		return;
	}
	if (!m->ranks)
		m->ranks = h.ranks;
	if (h.ranks != m->ranks || m->fd[h.rank] >= 0) {
		give(fd, -1, ncclInvalidArgument);
		close(fd);
		return;
	}
	m->fd[h.rank] = fd;
	m->pid[h.rank] = who.pid;
	m->n++;
}

/* A rank that has gone while it waited may come again. */
static void miss(struct meeting *m, int rank)
{
	close(m->fd[rank]);
	m->fd[rank] = -1;
	m->n--;
}

static void finish(struct meeting *m)
{
	uint64_t bytes = meet_bytes(m->ranks);
	int memory = memfd_create("simgpu-nccl", MFD_CLOEXEC);
	struct sim_exchange_shared *s = MAP_FAILED;

	if (memory >= 0 && !ftruncate(memory, (off_t)bytes))
		s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (s != MAP_FAILED) {
		s->ranks = (uint32_t)m->ranks;
		for (int i = 0; i < m->ranks; i++)
			s->rank[i].pid = m->pid[i];
		munmap(s, sizeof *s);
	}
	for (int i = 0; i < m->ranks; i++) {
		give(m->fd[i], s == MAP_FAILED ? -1 : memory, s == MAP_FAILED ? ncclSystemError : ncclSuccess);
		close(m->fd[i]);
	}
	if (memory >= 0)
		close(memory);
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
	finish(m);
	close(m->listener);
	free(m);
	return NULL;
}

static socklen_t address_of(const ncclUniqueId *id, struct sockaddr_un *a)
{
	size_t n = strnlen(id->internal, sizeof a->sun_path - 1);

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(a->sun_path + 1, id->internal, n);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

ncclResult_t meet_open(ncclUniqueId *id)
{
	struct meeting *m = calloc(1, sizeof *m);
	struct sockaddr_un a;
	uint64_t random[2];
	sigset_t all, old;
	pthread_t t;

	memset(id, 0, sizeof *id);
	if (!m || getrandom(random, sizeof random, 0) != sizeof random) {
		free(m);
		return ncclSystemError;
	}
	snprintf(id->internal, sizeof id->internal, "simgpu-nccl-%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
	for (int i = 0; i < SIM_EXCHANGE_RANKS; i++)
		m->fd[i] = -1;
	m->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t n = address_of(id, &a);
	int e = m->listener < 0 || bind(m->listener, (struct sockaddr *)&a, n) || listen(m->listener, SIM_EXCHANGE_RANKS);
	if (!e) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		e = pthread_create(&t, NULL, meeting_main, m);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	if (e) {
		if (m->listener >= 0)
			close(m->listener);
		free(m);
		return ncclSystemError;
	}
	pthread_detach(t);
	return ncclSuccess;
}

ncclResult_t meet_join(const ncclUniqueId *id, int rank, int ranks, int *out)
{
	struct hello h = { .rank = rank, .ranks = ranks };
	struct sockaddr_un a;
	socklen_t n = address_of(id, &a);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), e;

	if (fd < 0)
		return ncclSystemError;
	do
		e = connect(fd, (struct sockaddr *)&a, n);
	while (e && errno == EINTR);
	if (e || send(fd, &h, sizeof h, MSG_NOSIGNAL) != sizeof h) {
		close(fd);
		return e ? ncclSystemError : ncclRemoteError;
	}
	*out = fd;
	return ncclSuccess;
}

ncclResult_t meet_wait(int fd, int ranks, struct sim_exchange_shared **out)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	int32_t answer = ncclRemoteError;
	struct iovec iov = { .iov_base = &answer, .iov_len = sizeof answer };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	int memory = -1;
	ssize_t n;

	do
		n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	close(fd);
	if (n != sizeof answer)
		return ncclRemoteError;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(&memory, CMSG_DATA(c), sizeof memory);
	if (answer != ncclSuccess || memory < 0)
		return answer == ncclSuccess ? ncclSystemError : (ncclResult_t)answer;
	void *s = mmap(NULL, meet_bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	close(memory);
	if (s == MAP_FAILED)
		return ncclSystemError;
	*out = s;
	return ncclSuccess;
}
