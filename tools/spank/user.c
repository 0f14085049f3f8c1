/* SPDX-License-Identifier: Apache-2.0 */
/* Work as the user, with a deadline that the user cannot move: who is stopped is killed. */
#include "config.h"

#include "tools/spank/user.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/capability.h>

#include "runtime/base/clock.h"
#include "runtime/reach/reach.h"

enum { ANSWER_MAX = 32 << 10, REAP_MS = 1000 };

uint64_t user_now_ms(void)
{
	return tpck_clock_monotonic_ns() / 1000000;
}

int user_of(spank_t spank, struct user *user)
{
	gid_t *groups = NULL;
	int count = 0;

	*user = (struct user){0};
	if (spank_get_item(spank, S_JOB_UID, &user->uid) != ESPANK_SUCCESS || spank_get_item(spank, S_JOB_GID, &user->gid) != ESPANK_SUCCESS)
		return -EINVAL;
	if (spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &groups, &count) == ESPANK_SUCCESS && groups && count > 0) {
		user->groups = groups;
		user->count = count;
	}
	return 0;
}

int user_become(const struct user *user)
{
	/* In a step this process may have the user's rights already, and root's to come back to. */
	if (seteuid(0) || setegid(0) || setgroups((size_t)user->count, user->groups) || setresgid(user->gid, user->gid, user->gid) ||
	    setresuid(user->uid, user->uid, user->uid))
		return -errno;
	return 0;
}

/* Memory of root's that is the child's now is nobody's to read. */
static int shed_rights(void)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (syscall(SYS_capset, &head, none) || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return 0;
}

/* ---- what is said ------------------------------------------------------------------------- */

struct parcel {
	int rc; /* 0 or -errno; 1: a descriptor comes with it */
	char answer[ANSWER_MAX];
};

union control {
	struct cmsghdr head; /* aligns it */
	char bytes[CMSG_SPACE(sizeof(int))];
};

static void say(int to, const struct parcel *parcel, size_t size, int fd)
{
	struct iovec part = {(void *)parcel, offsetof(struct parcel, answer) + size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	union control control = {0};

	if (parcel->rc == 1) {
		struct cmsghdr *head;

		message.msg_control = &control;
		message.msg_controllen = sizeof control.bytes;
		head = CMSG_FIRSTHDR(&message);
		*head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(head), &fd, sizeof fd);
	}
	(void)!sendmsg(to, &message, MSG_NOSIGNAL);
}

static int hear(int from, struct parcel *parcel, size_t size)
{
	struct iovec part = {parcel, sizeof *parcel};
	union control control = {0};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.bytes};
	ssize_t got = recvmsg(from, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *head = got < 0 ? NULL : CMSG_FIRSTHDR(&message);
	int fd = -1;

	if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof fd))
		memcpy(&fd, CMSG_DATA(head), sizeof fd);
	if (got == (ssize_t)(offsetof(struct parcel, answer) + size) && (fd >= 0) == (parcel->rc == 1) && parcel->rc <= 1)
		return fd >= 0 ? fd : parcel->rc;
	if (fd >= 0)
		close(fd);
	return -EPIPE;
}

/* ---- the child ---------------------------------------------------------------------------- */

static void work_as(const struct user *user, user_work *work, void *argument, struct parcel *parcel, size_t size, int to)
{
	int rc = user_become(user);

	if (!rc)
		rc = shed_rights();
	/* Behind the change of user, which takes it back. */
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (!rc)
		rc = work(argument, parcel->answer);
	parcel->rc = rc > 0 ? 1 : rc;
	say(to, parcel, size, rc);
	_exit(0);
}

void user_end(pid_t child)
{
	uint64_t until = user_now_ms() + REAP_MS;

	/* A child that has ended keeps its number until it has been waited for. */
	(void)kill(child, SIGKILL);
	while (waitpid(child, NULL, WNOHANG) == 0 && user_now_ms() < until)
		tpck_reach_pause(1);
}

int user_run(const struct user *user, user_work *work, void *argument, void *answer, size_t size, unsigned limit_ms)
{
	struct parcel *parcel = size <= ANSWER_MAX ? calloc(1, sizeof *parcel) : NULL;
	uint64_t until = user_now_ms() + limit_ms, now;
	struct pollfd wait = {.events = POLLIN};
	int ends[2], rc = 0;
	bool heard = false;
	pid_t child;

	if (!parcel)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
		free(parcel);
		return -errno;
	}
	child = fork();
	if (child == 0)
		work_as(user, work, argument, parcel, size, ends[1]);
	rc = child < 0 ? -errno : -ETIMEDOUT;
	close(ends[1]);
	wait.fd = ends[0];
	for (now = user_now_ms(); child > 0 && !heard && now < until; now = user_now_ms()) {
		heard = poll(&wait, 1, (int)(until - now)) > 0;
		if (heard)
			rc = hear(ends[0], parcel, size);
	}
	if (child > 0)
		user_end(child);
	close(ends[0]);
	if (rc >= 0 && size)
		memcpy(answer, parcel->answer, size);
	free(parcel);
	return rc;
}
