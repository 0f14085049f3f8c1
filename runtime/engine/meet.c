/* SPDX-License-Identifier: Apache-2.0 */
/* Where each node has a store of its own, what the others have of a program is known here once the agents have met: a rank that is the
 * first on its node waits for that before it looks whether it is to go on. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/tier_settings.h"
#include "runtime/engine/meet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/wire/message.h"

/* In the environment of what a rank starts: where one has met the others, and for which launch. */
#define VARIABLE "_TRANSPCKPT_MET"
/* The agent answers sooner, whoever has come. */
enum { ANSWER_MS = 30000 };

/* A shell or a compiler that a rank starts looks like a rank, and has nobody to meet. */
static bool has_met(uint64_t launch)
{
	const char *met = getenv(VARIABLE);
	char now[sizeof((struct utsname *)0)->nodename + 32];
	struct utsname self;

	if (uname(&self))
		return true;
	snprintf(now, sizeof now, "%s %llx", self.nodename, (unsigned long long)launch);
	if (met && strcmp(met, now) == 0)
		return true;
	setenv(VARIABLE, now, 1);
	return false;
}

void tpck_meet(const struct tpck_reach *how, const struct tpck_ranks *ranks)
{
	struct tpck_meet meet = {.nodes = ranks->nodes};
	const char *master = getenv("MASTER_ADDR");
	struct tpck_reach reach = *how;
	struct tpck_error err = {0};
	int fd, rc;

	/* Where all nodes see the store it says what there is. */
	if (!tpck_settings_are_local(how->settings) || has_met(ranks->launch))
		return;
	if (master && strlen(master) < sizeof meet.master)
		strcpy(meet.master, master);
	/* A variable more may have moved all of them. */
	reach.environment = environ;
	fd = tpck_reach(&reach, &err);
	if (fd < 0) {
		tpck_log_info("%s; what other nodes have is not known", err.text);
		return;
	}
	rc = tpck_reach_ask(fd, TPCK_MSG_MEET, &meet, sizeof meet, TPCK_MSG_MET, ANSWER_MS);
	if (rc)
		tpck_log_info("the agent does not say what other nodes have");
	tpck_sys_close(fd);
}
