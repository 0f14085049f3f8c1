/* SPDX-License-Identifier: Apache-2.0 */
/* The device process: maps device memory where the driver says, runs kernels, ends with the process that started it. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/fiber.h"
#include "device/module.h"
#include "device/protocol.h"
#include "device/pseudo.h"
#include "device/ptx.h"
#include "device/state.h"

__attribute__((visibility("default"))) __thread struct simgpu_thread_state simgpu_state;

#define SPINS 200

static struct sim_mailbox *mailbox;
static sigjmp_buf fault_exit;
static volatile sig_atomic_t in_kernel;
static volatile sig_atomic_t asserted;
static void *dynamic_shared;
static uint32_t dynamic_shared_bytes;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)context;
	if (!in_kernel) {
		signal(sig, SIG_DFL);
		raise(sig);
		return;
	}
	mailbox->fault_address = (uint64_t)(uintptr_t)info->si_addr;
	switch (sig) {
	case SIGSEGV:
	case SIGBUS:
		mailbox->status = SIM_LAUNCH_ILLEGAL_ADDRESS;
		break;
	case SIGABRT:
		mailbox->status = SIM_LAUNCH_ASSERT;
		break;
	default:
		mailbox->status = asserted ? SIM_LAUNCH_ASSERT : SIM_LAUNCH_ILLEGAL_INSTRUCTION;
		break;
	}
	siglongjmp(fault_exit, 1);
}

__attribute__((visibility("default"))) void simgpu_trap(const char *what)
{
	asserted = what[0] == 'a';
	__builtin_trap();
}

static const char *parameters(const struct sim_launch_request *m)
{
	return m->param_bytes > SIM_LAUNCH_SMALL ? mailbox->large : m->params;
}

static void run_grid(void (*entry)(void), const struct sim_launch_request *m)
{
	simgpu_state.grid_dim = (struct sim_uint3){ m->grid[0], m->grid[1], m->grid[2] };
	simgpu_state.block_dim = (struct sim_uint3){ m->block[0], m->block[1], m->block[2] };
	simgpu_state.parameters = parameters(m);
	simgpu_state.dynamic_shared = dynamic_shared;
	for (uint32_t z = 0; z < m->grid[2]; z++)
		for (uint32_t y = 0; y < m->grid[1]; y++)
			for (uint32_t x = 0; x < m->grid[0]; x++) {
				simgpu_state.block = (struct sim_uint3){ x, y, z };
				if (sim_block_run(entry)) {
					mailbox->status = SIM_LAUNCH_DEADLOCK;
					return;
				}
			}
}

static void launch(const struct sim_launch_request *m)
{
	struct sim_code code;
	bool known = sim_module_kernel(m->module, m->kernel, &code);

	if (mailbox->status != SIM_LAUNCH_OK)
		return;
	if (!known) {
		mailbox->status = SIM_LAUNCH_NO_KERNEL;
		return;
	}
	if (code.entry && m->shared_bytes > dynamic_shared_bytes) {
		free(dynamic_shared);
		dynamic_shared = aligned_alloc(256, (m->shared_bytes + 255u) / 256 * 256);
		dynamic_shared_bytes = dynamic_shared ? m->shared_bytes : 0;
	}
	asserted = 0;
	if (sigsetjmp(fault_exit, 1) == 0) {
		in_kernel = 1;
		if (code.entry)
			run_grid(code.entry, m);
		else if (code.ptx)
			mailbox->status = ptx_module_launch(code.ptx, m->kernel, m, parameters(m));
		else
			sim_pseudo_launch(code.described, m, parameters(m));
		in_kernel = 0;
	} else {
		in_kernel = 0;
		sim_block_abandon();
	}
	fflush(stdout);
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
	syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void *launch_main(void *unused)
{
	static char signal_stack[65536];
	stack_t ss = { .ss_sp = signal_stack, .ss_size = sizeof signal_stack };
	uint32_t seen = 0;

	(void)unused;
	sigaltstack(&ss, NULL);
	for (;;) {
		uint32_t now;
		int spin = 0;

		while ((now = atomic_load(&mailbox->request)) == seen)
			if (spin++ < SPINS) {
				__builtin_ia32_pause();
			} else {
				atomic_store(&mailbox->device_sleeps, 1);
				futex_wait(&mailbox->request, seen);
				atomic_store(&mailbox->device_sleeps, 0);
			}
		while (seen != now) {
			seen++;
			launch(&mailbox->entry[seen % SIM_LAUNCH_RING]);
			atomic_store(&mailbox->done, seen);
		}
		if (atomic_load(&mailbox->driver_sleeps))
			futex_wake(&mailbox->done);
	}
	return NULL;
}

static int map(uint64_t address, uint64_t bytes, uint64_t offset, int prot, int fd)
{
	void *at = mmap((void *)(uintptr_t)address, bytes, prot, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, (off_t)offset);

	if (at == MAP_FAILED)
		return errno;
	if ((uint64_t)(uintptr_t)at != address) {
		munmap(at, bytes);
		return EEXIST;
	}
	return 0;
}

static void serve(const struct sim_control_request *q, int fd, struct sim_control_reply *reply)
{
	switch (q->op) {
	case SIM_CONTROL_MAP_VRAM:
		reply->error = map(q->arg[0], q->arg[1], q->arg[2], (int)q->arg[3], SIM_DEVICE_VRAM_FD);
		break;
	case SIM_CONTROL_MAP_FILE:
		reply->error = map(q->arg[0], q->arg[1], q->arg[2], (int)q->arg[3], fd);
		break;
	case SIM_CONTROL_UNMAP:
		reply->error = munmap((void *)(uintptr_t)q->arg[0], q->arg[1]) ? errno : 0;
		break;
	case SIM_CONTROL_LOAD:
		reply->error = -sim_module_load(fd, q->arg[0], &reply->value);
		break;
	case SIM_CONTROL_DESCRIBE:
		reply->error = -sim_module_describe(fd, q->arg[0], q->arg[1] != 0, &reply->value);
		break;
	case SIM_CONTROL_UNLOAD:
		reply->error = -sim_module_unload(q->arg[0]);
		break;
	case SIM_CONTROL_BIND:
		reply->error = -sim_module_bind(q->arg[0], q->name, q->arg[1]);
		break;
	case SIM_CONTROL_FILL:
		reply->error = -sim_module_fill(q->arg[0], q->name, q->arg[1], q->arg[2]);
		break;
	default:
		reply->error = EINVAL;
		break;
	}
}

static int receive(struct sim_control_request *q, int *fd)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = q, .iov_len = sizeof *q };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	ssize_t n = recvmsg(SIM_DEVICE_SOCKET_FD, &m, MSG_CMSG_CLOEXEC);

	*fd = -1;
	if (n <= 0)
		return n < 0 && errno == EINTR ? 0 : -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(fd, CMSG_DATA(c), sizeof *fd);
	return 1;
}

/* A forked child of the host may keep the socket open, so its end is not enough: the process itself is watched as well. */
static void control_main(pid_t host)
{
	struct pollfd p[2] = { { .fd = SIM_DEVICE_SOCKET_FD, .events = POLLIN }, { .fd = -1, .events = POLLIN } };

	p[1].fd = (int)syscall(SYS_pidfd_open, host, 0);
	for (;;) {
		struct sim_control_request q;
		struct sim_control_reply reply = { 0 };
		int fd, n = poll(p, 2, p[1].fd < 0 ? 200 : -1);

		if (n < 0 && errno != EINTR)
			_exit(1);
		if ((p[1].fd >= 0 && p[1].revents) || (p[1].fd < 0 && kill(host, 0) && errno == ESRCH))
			_exit(0);
		if (n <= 0 || !p[0].revents)
			continue;
		n = receive(&q, &fd);
		if (n < 0)
			_exit(0);
		if (n == 0)
			continue;
		serve(&q, fd, &reply);
		if (fd >= 0)
			close(fd);
		if (send(SIM_DEVICE_SOCKET_FD, &reply, sizeof reply, MSG_NOSIGNAL) < 0)
			_exit(0);
	}
}

int main(int argc, char **argv)
{
	static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP };
	struct sigaction act = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };
	pthread_attr_t attr;
	pthread_t thread;

	if (argc != 2) {
		fprintf(stderr, "simgpu-device is started by simgpu's libcuda.so.1\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
		sigaction(signals[i], &act, NULL);
	mailbox = mmap(NULL, sizeof *mailbox, PROT_READ | PROT_WRITE, MAP_SHARED, SIM_DEVICE_MAILBOX_FD, 0);
	if (mailbox == MAP_FAILED) {
		perror("simgpu-device: mailbox");
		return 1;
	}
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 8u << 20);
	if (pthread_create(&thread, &attr, launch_main, NULL)) {
		perror("simgpu-device: thread");
		return 1;
	}
	control_main((pid_t)atoi(argv[1]));
	return 0;
}
