/* SPDX-License-Identifier: Apache-2.0 */
/* What is done for a job's user by root's part of the plugin: in a process of its own that is the user and has no rights but the user's. */
#ifndef TPCK_TOOLS_SPANK_USER_H
#define TPCK_TOOLS_SPANK_USER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <slurm/spank.h>

struct user {
	uid_t uid;
	gid_t gid;
	const gid_t *groups; /* Slurm's, or NULL */
	int count;
};

/* Of the step. 0 or -errno. */
int user_of(spank_t spank, struct user *user);
/* Becomes that user for good, in a child: 0 or -errno. The process keeps its capabilities where the user is root. */
int user_become(const struct user *user);

/* Fills in the answer: 0 or a descriptor that is passed on, or -errno. */
typedef int user_work(void *argument, void *answer);
/* Calls `work` in a child that is the user, without capabilities, which the user can stop or kill and not trace. It is killed after so many
 * milliseconds. What it returned (a descriptor is then this process's), with *answer filled in where that is not an error; -ETIMEDOUT
 * and -EPIPE: it did not answer. What the answer has is the user's word, and for the caller to check. */
int user_run(const struct user *user, user_work *work, void *argument, void *answer, size_t size, unsigned limit_ms);

/* Ends a child, which may be the user's, and waits for no longer than a second. */
void user_end(pid_t child);

uint64_t user_now_ms(void);

#endif
