/* SPDX-License-Identifier: Apache-2.0 */
/* A program that closes and writes its files by io_uring, and by system calls of its own, as it is told: a line of standard input is a
 * step, each is answered by a line. Nothing of that is a call of libc's, but for what says so. Status 77: there is no io_uring here. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIP = 77, SLOTS = 8, PIECE = 4096, NR_CLOSE_RANGE = 436, CLOSE_UNSHARE = 2, REGISTER_RING_FDS = 20, REGISTERED_RING = 1 << 4 };

static int ring = -1, entering;
static struct io_uring_params params;
static unsigned char *queue;
static struct io_uring_sqe *entries;
static char **arguments;

static long bare(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return result;
}

static long set_up(void)
{
	size_t bytes;
	void *at;

	ring = (int)bare(SYS_io_uring_setup, SLOTS, (long)&params, 0, 0, 0, 0);
	if (ring < 0)
		exit(SKIP);
	bytes = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
	if (bytes < params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe))
		bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
	at = (void *)bare(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	queue = at;
	at = (void *)bare(SYS_mmap, 0, params.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	entries = at;
	entering = ring;
	return ring;
}

static uint32_t *at(uint32_t offset)
{
	return (uint32_t *)(void *)(queue + offset);
}

/* The entry's result. */
static long submit(const struct io_uring_sqe *entry)
{
	uint32_t tail = *at(params.sq_off.tail), index = tail & *at(params.sq_off.ring_mask), head;
	const struct io_uring_cqe *done;
	long result;

	entries[index] = *entry;
	at(params.sq_off.array)[index] = index;
	__atomic_store_n(at(params.sq_off.tail), tail + 1, __ATOMIC_RELEASE);
	result = bare(SYS_io_uring_enter, entering, 1, 1, IORING_ENTER_GETEVENTS | (entering == ring ? 0 : REGISTERED_RING), 0, 0);
	if (result < 0)
		return result;
	head = *at(params.cq_off.head);
	done = (const struct io_uring_cqe *)(void *)(queue + params.cq_off.cqes) + (head & *at(params.cq_off.ring_mask));
	result = done->res;
	__atomic_store_n(at(params.cq_off.head), head + 1, __ATOMIC_RELEASE);
	return result;
}

/* The ring is left without a descriptor: the kernel knows it by a number that was registered. */
static long hide(void)
{
	struct { uint32_t offset, reserved; uint64_t data; } what = {UINT32_MAX, 0, (uint64_t)ring};
	long result = bare(SYS_io_uring_register, ring, REGISTER_RING_FDS, (long)&what, 1, 0, 0);

	if (result < 0)
		return result;
	entering = (int)what.offset;
	bare(SYS_close, ring, 0, 0, 0, 0, 0);
	ring = -1;
	return 0;
}

/* So many pieces of one letter, from `from` on: by the ring to what is registered, or by write(). */
static long put(int fd, int fixed, long pieces, char letter, long from)
{
	char piece[PIECE];
	struct io_uring_sqe entry = {
		.opcode = IORING_OP_WRITE, .flags = fixed ? IOSQE_FIXED_FILE : 0, .fd = fixed ? 0 : fd, .addr = (uint64_t)(uintptr_t)piece, .len = PIECE,
	};
	long done = 0;

	memset(piece, letter, sizeof piece);
	for (long i = 0; i < pieces; i++) {
		entry.off = (uint64_t)(from + i * PIECE);
		done = fd < 0 || fixed ? submit(&entry) : write(fd, piece, sizeof piece);
		if (done < 0)
			break;
	}
	return done;
}

static void *steps(void *unused);

static long in_child(int fd, int vforks)
{
	pid_t child = vforks ? vfork() : fork();

	if (child)
		return vforks ? waitpid(child, NULL, 0) : child;
	if (vforks) {
		close(fd);
		_exit(0);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(0);
	close(1);
	for (;;)
		pause();
}

static long pass_on(int fd)
{
	char byte = 'x', space[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return -errno;
	*head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(head), &fd, sizeof fd);
	return sendmsg(pair[0], &message, 0) < 0 ? -errno : 0;
}

/* The program's end takes long, by what it has to give back and by how little of processor `cpu` it gets. */
static long heavy(long mib, int cpu)
{
	struct sched_param none = {0};
	cpu_set_t one;
	int fd = memfd_create("heavy", MFD_CLOEXEC);

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (fd < 0 || fallocate(fd, 0, 0, mib << 20) || sched_setaffinity(0, sizeof one, &one) || sched_setscheduler(0, SCHED_IDLE, &none))
		return -errno;
	return 0;
}

static long step(const char *what, const char *name, long a, long b, long c)
{
	struct io_uring_sqe ending = {.opcode = IORING_OP_CLOSE, .fd = (int)a};
	int fd = (int)a;

	if (strcmp(what, "ring") == 0)
		return set_up();
	if (strcmp(what, "open") == 0)
		return open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
	if (strcmp(what, "read") == 0)
		return open(name, O_RDONLY | O_CLOEXEC);
	if (strcmp(what, "write") == 0)
		return put(fd, 0, b, (char)c, 0);
	if (strcmp(what, "close") == 0)
		return close(fd);
	if (strcmp(what, "bare") == 0)
		return bare(SYS_close, fd, 0, 0, 0, 0, 0);
	if (strcmp(what, "ends") == 0)
		return submit(&ending);
	if (strcmp(what, "register") == 0)
		return bare(SYS_io_uring_register, ring, IORING_REGISTER_FILES, (long)&fd, 1, 0, 0);
	if (strcmp(what, "sparse") == 0) {
		int files[SLOTS];

		memset(files, -1, sizeof files);
		return bare(SYS_io_uring_register, ring, IORING_REGISTER_FILES, (long)files, SLOTS, 0, 0);
	}
	if (strcmp(what, "unregister") == 0)
		return bare(SYS_io_uring_register, ring, IORING_UNREGISTER_FILES, 0, 0, 0, 0);
	if (strcmp(what, "hide") == 0)
		return hide();
	if (strcmp(what, "put") == 0)
		return put(-1, 1, a, (char)b, c);
	if (strcmp(what, "range") == 0)
		return bare(NR_CLOSE_RANGE, fd, fd, b, 0, 0, 0);
	if (strcmp(what, "libcrange") == 0)
		return syscall(NR_CLOSE_RANGE, fd, fd, b);
	if (strcmp(what, "vfork") == 0)
		return in_child(fd, 1);
	if (strcmp(what, "fork") == 0)
		return in_child(fd, 0);
	if (strcmp(what, "pass") == 0)
		return pass_on(fd);
	if (strcmp(what, "map") == 0)
		return mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -errno : 0;
	if (strcmp(what, "lock") == 0) {
		struct flock lock = {.l_type = F_WRLCK, .l_len = 1};

		return fcntl(fd, F_SETLK, &lock);
	}
	if (strcmp(what, "heavy") == 0)
		return heavy(a, (int)b);
	if (strcmp(what, "dup2") == 0)
		return dup2(fd, (int)b);
	if (strcmp(what, "thread") == 0) {
		pthread_t thread;

		pthread_create(&thread, NULL, steps, NULL);
		puts("thread 0");
		fflush(stdout);
		pthread_exit(NULL);
	}
	if (strcmp(what, "exec") == 0)
		execv("/proc/self/exe", arguments);
	return -ENOSYS;
}

static void *steps(void *unused)
{
	char line[512], what[32], name[256];
	long result, a = 0, b = 0, c = 0;

	(void)unused;
	while (fgets(line, sizeof line, stdin)) {
		int words = sscanf(line, "%31s %255s %ld %ld", what, name, &b, &c);

		a = words > 1 ? strtol(name, NULL, 10) : 0;
		result = step(what, name, a, words > 2 ? b : 0, words > 3 ? c : 0);
		printf("%s %ld\n", what, result < 0 && result != -1 ? result : result == -1 ? -errno : result);
		fflush(stdout);
	}
	exit(0);
}

int main(int argc, char **argv)
{
	(void)argc;
	arguments = argv;
	setvbuf(stdin, NULL, _IONBF, 0);
	steps(NULL);
	return 0;
}
