/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the device process and talks to it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "device/protocol.h"
#include "driver/sim.h"

static pthread_mutex_t control_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t launch_lock = PTHREAD_MUTEX_INITIALIZER;
static int control_fd = -1;
static struct sim_mailbox *mailbox;
static atomic_bool lost;
extern char **environ;

struct spawn {
	const char *path;
	char pid[16];
	char **env;
	int fd[3];
	int error;
};

/* Runs in the address space of the host while its caller waits: only system calls. */
static int spawn_child(void *arg)
{
	struct spawn *s = arg;
	char *argv[] = { (char *)s->path, s->pid, NULL };
	sigset_t none;
	struct sigaction dfl = { .sa_handler = SIG_DFL };

	setsid();
	for (int sig = 1; sig < 65; sig++)
		if (sig != SIGKILL && sig != SIGSTOP && sig != 32 && sig != 33)
			sigaction(sig, &dfl, NULL);
	sigemptyset(&none);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, 8);
	/* Above everything first, so that no descriptor is overwritten before it was moved. */
	int high[3];
	for (int i = 0; i < 3; i++) {
		high[i] = fcntl(s->fd[i], F_DUPFD, 16);
		if (high[i] < 0)
			goto fail;
	}
	for (int i = 0; i < 3; i++)
		if (dup2(high[i], 3 + i) < 0)
			goto fail;
	syscall(SYS_close_range, 6, ~0u, 0);
	int null = open("/dev/null", O_RDONLY);
	if (null >= 0) {
		dup2(null, 0);
		close(null);
	}
	if (chdir("/"))
		goto fail;
	execve(s->path, argv, s->env);
fail:
	s->error = errno;
	_exit(127);
}

static char **device_environment(void)
{
	size_t n = 0, k = 0;

	while (environ[n])
		n++;
	char **env = calloc(n + 1, sizeof *env);
	for (size_t i = 0; env && i < n; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11) && strncmp(environ[i], "LD_AUDIT=", 9))
			env[k++] = environ[i];
	return env;
}

static int device_path(char *path, size_t n)
{
	Dl_info info;

	if (!dladdr((void *)(uintptr_t)sim_remote_start, &info) || !info.dli_fname)
		return -ENOENT;
	char *real = realpath(info.dli_fname, NULL);
	char *slash = real ? strrchr(real, '/') : NULL;
	if (slash)
		*slash = 0;
	snprintf(path, n, "%s/simgpu-device", slash ? real : ".");
	free(real);
	return 0;
}

/* execve gives a process the exit signal SIGCHLD, whatever clone said: only a grandchild is no child of the host. */
static int spawn_parent(void *arg)
{
	static char stack[65536] __attribute__((aligned(16)));
	struct spawn *s = arg;

	if (clone(spawn_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK, s) < 0)
		s->error = errno;
	_exit(0);
}

int sim_remote_start(int vram_fd)
{
	static char stack[65536] __attribute__((aligned(16)));
	char path[4096];
	struct spawn s = { .path = path };
	int pair[2] = { -1, -1 };
	sigset_t all, old;

	int box = memfd_create("simgpu-mailbox", MFD_CLOEXEC);
	if (box < 0 || ftruncate(box, sizeof *mailbox))
		return -errno;
	mailbox = mmap(NULL, sizeof *mailbox, PROT_READ | PROT_WRITE, MAP_SHARED, box, 0);
	if (mailbox == MAP_FAILED)
		return -errno;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	int e = device_path(path, sizeof path);
	if (e)
		return e;
	s.env = device_environment();
	snprintf(s.pid, sizeof s.pid, "%d", (int)getpid());
	s.fd[0] = pair[1];
	s.fd[1] = vram_fd;
	s.fd[2] = box;
	sigfillset(&all);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, 8);
	/* No exit signal: the host's wait() and its SIGCHLD handler see nothing. No fork(): no atfork handlers. */
	pid_t parent = clone(spawn_parent, stack + sizeof stack, CLONE_VM | CLONE_VFORK, &s);
	e = errno;
	if (parent > 0)
		waitpid(parent, NULL, __WCLONE);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, 8);
	free(s.env);
	close(pair[1]);
	close(box);
	if (parent < 0 || s.error) {
		fprintf(stderr, "simgpu: cannot start %s: %s\n", path, strerror(s.error ? s.error : e));
		return -(s.error ? s.error : e);
	}
	control_fd = pair[0];
	return 0;
}

/* The device goes when the host's driver does; a child left by fork has no part in it. */
void sim_remote_stop(void)
{
	if (control_fd < 0)
		return;
	shutdown(control_fd, SHUT_RDWR);
	atomic_store(&lost, true);
}

bool sim_remote_lost(void)
{
	return atomic_load(&lost);
}

static int control(struct sim_control_request *q, int fd, uint64_t *value)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} c;
	struct iovec iov = { .iov_base = q, .iov_len = offsetof(struct sim_control_request, name) + q->name_bytes };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct sim_control_reply reply;
	ssize_t n;

	if (fd >= 0) {
		memset(&c, 0, sizeof c);
		m.msg_control = &c;
		m.msg_controllen = sizeof c;
		c.header.cmsg_level = SOL_SOCKET;
		c.header.cmsg_type = SCM_RIGHTS;
		c.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&c.header), &fd, sizeof fd);
	}
	pthread_mutex_lock(&control_lock);
	do
		n = sendmsg(control_fd, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n >= 0)
		do
			n = recv(control_fd, &reply, sizeof reply, 0);
		while (n < 0 && errno == EINTR);
	pthread_mutex_unlock(&control_lock);
	if (n != (ssize_t)sizeof reply) {
		atomic_store(&lost, true);
		return -EIO;
	}
	if (value)
		*value = reply.value;
	return -reply.error;
}

int sim_remote_map_vram(uint64_t va, uint64_t bytes, uint64_t offset, int prot)
{
	struct sim_control_request q = { .op = SIM_CONTROL_MAP_VRAM, .arg = { va, bytes, offset, (uint64_t)prot } };

	return control(&q, -1, NULL);
}

int sim_remote_map_file(uint64_t va, uint64_t bytes, uint64_t offset, int prot, int fd)
{
	struct sim_control_request q = { .op = SIM_CONTROL_MAP_FILE, .arg = { va, bytes, offset, (uint64_t)prot } };

	return control(&q, fd, NULL);
}

int sim_remote_unmap(uint64_t va, uint64_t bytes)
{
	struct sim_control_request q = { .op = SIM_CONTROL_UNMAP, .arg = { va, bytes } };

	return control(&q, -1, NULL);
}

static int load(uint32_t op, const void *object, uint64_t bytes, uint64_t how, uint64_t *id)
{
	struct sim_control_request q = { .op = op, .arg = { bytes, how } };
	int fd = memfd_create("simgpu-code", MFD_CLOEXEC);
	int e = -ENOMEM;

	if (fd >= 0 && !ftruncate(fd, (off_t)bytes)) {
		void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		if (m != MAP_FAILED) {
			memcpy(m, object, bytes);
			munmap(m, bytes);
			e = control(&q, fd, id);
		}
	}
	if (fd >= 0)
		close(fd);
	return e;
}

int sim_remote_load(const void *object, uint64_t bytes, uint64_t *id)
{
	return load(SIM_CONTROL_LOAD, object, bytes, 0, id);
}

int sim_remote_describe(const void *image, uint64_t bytes, bool ruled, uint64_t *id)
{
	return load(SIM_CONTROL_DESCRIBE, image, bytes, ruled, id);
}

int sim_remote_unload(uint64_t id)
{
	struct sim_control_request q = { .op = SIM_CONTROL_UNLOAD, .arg = { id } };

	return control(&q, -1, NULL);
}

static int named(struct sim_control_request *q, const char *name)
{
	q->name_bytes = (uint32_t)strlen(name) + 1;
	if (q->name_bytes > sizeof q->name)
		return -ENAMETOOLONG;
	memcpy(q->name, name, q->name_bytes);
	return control(q, -1, NULL);
}

int sim_remote_bind(uint64_t id, const char *name, uint64_t va)
{
	struct sim_control_request q = { .op = SIM_CONTROL_BIND, .arg = { id, va } };

	return named(&q, name);
}

int sim_remote_fill(uint64_t id, const char *name, uint64_t va, uint64_t bytes)
{
	struct sim_control_request q = { .op = SIM_CONTROL_FILL, .arg = { id, va, bytes } };

	return named(&q, name);
}

/* Waits for the mailbox, looking now and then whether the device process is still there. */
static bool wait_done(uint32_t want)
{
	struct timespec t = { .tv_nsec = 50000000 };
	uint32_t seen;
	int spin = 0;

	while ((seen = atomic_load(&mailbox->done)) != want) {
		if (spin++ < 200) {
			__builtin_ia32_pause();
			continue;
		}
		atomic_store(&mailbox->driver_sleeps, 1);
		bool late = syscall(SYS_futex, &mailbox->done, FUTEX_WAIT, seen, &t, NULL, 0) && errno == ETIMEDOUT;
		atomic_store(&mailbox->driver_sleeps, 0);
		if (late) {
			char byte;
			ssize_t n = recv(control_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

			if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
				atomic_store(&lost, true);
				return false;
			}
		}
	}
	return true;
}

static CUresult result_of(uint32_t status)
{
	switch (status) {
	case SIM_LAUNCH_OK: return CUDA_SUCCESS;
	case SIM_LAUNCH_ILLEGAL_ADDRESS: return CUDA_ERROR_ILLEGAL_ADDRESS;
	case SIM_LAUNCH_ILLEGAL_INSTRUCTION: return CUDA_ERROR_ILLEGAL_INSTRUCTION;
	case SIM_LAUNCH_ASSERT: return CUDA_ERROR_ASSERT;
	case SIM_LAUNCH_DEADLOCK: return CUDA_ERROR_LAUNCH_TIMEOUT;
	default: return CUDA_ERROR_LAUNCH_FAILED;
	}
}

CUresult sim_remote_launch(const struct sim_launch *const *list, int n)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&launch_lock);
	if (atomic_load(&lost)) {
		pthread_mutex_unlock(&launch_lock);
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	}
	uint32_t last = atomic_load(&mailbox->request);
	for (int i = 0; i < n; i++) {
		const struct sim_launch *l = list[i];
		struct sim_launch_request *q = &mailbox->entry[++last % SIM_LAUNCH_RING];

		q->module = l->kernel->module->remote[l->device];
		q->kernel = l->kernel->index;
		q->shared_bytes = l->shared;
		memcpy(q->grid, l->grid, sizeof l->grid);
		memcpy(q->block, l->block, sizeof l->block);
		q->param_bytes = l->param_bytes;
		memcpy(l->param_bytes > SIM_LAUNCH_SMALL ? mailbox->large : q->params, l->params, l->param_bytes);
	}
	atomic_store(&mailbox->request, last);
	if (atomic_load(&mailbox->device_sleeps))
		syscall(SYS_futex, &mailbox->request, FUTEX_WAKE, 1, NULL, NULL, 0);
	r = wait_done(last) ? result_of(mailbox->status) : CUDA_ERROR_DEVICE_UNAVAILABLE;
	pthread_mutex_unlock(&launch_lock);
	return r;
}
