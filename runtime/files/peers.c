/* SPDX-License-Identifier: Apache-2.0 */
/* TRANSPCKPT_FSYNC=replicated: what is owed has copies in the memory of other nodes' agents, and what a lost node owed is put
 * at its path before a new start looks there. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/base/tier_settings.h"
#include "runtime/files/files_private.h"
#include "runtime/wire/message.h"

/* In the environment of what a program starts: who has asked where, and when, "NODE SECONDS". */
#define VARIABLE "_TRANSPCKPT_LOOKED"
enum { ASKED_SEC = 5 };
/* The agent answers sooner, whatever it finds; and says within so long whether there is anybody. */
enum { ANSWER_MS = 90000, LOOK_MS = 50 };
#define UNKNOWN_NS 20000000000ull

static bool is_level(void)
{
	return tpck_files_settings && strcmp(tpck_files_settings->fsync, "replicated") == 0;
}

/* ---- at the start ----------------------------------------------------------------------------- */

static void ask(int fd)
{
	if (tpck_reach_ask(fd, TPCK_MSG_LOOK, NULL, 0, TPCK_MSG_LOOKED, ANSWER_MS))
		tpck_log_warn("the agent does not say whether nodes that are lost owed files: what they owed may come later");
}

/* Whether a program that started this one has asked just now, on this node: an environment may come from another one. */
static bool has_asked(void)
{
	const char *asked = getenv(VARIABLE);
	char now[sizeof((struct utsname *)0)->nodename + 32];
	struct utsname self;
	size_t length;
	bool has;

	if (uname(&self))
		return false;
	length = strlen(self.nodename);
	has = asked && strncmp(asked, self.nodename, length) == 0 && asked[length] == ' ' &&
	      strtoull(asked + length, NULL, 10) + ASKED_SEC > tpck_clock_monotonic_ns() / 1000000000;
	if (!has) {
		snprintf(now, sizeof now, "%s %llu", self.nodename, (unsigned long long)(tpck_clock_monotonic_ns() / 1000000000));
		setenv(VARIABLE, now, 1);
	}
	return has;
}

TPCK_AT_START void tpck_files_ask_for_lost(const struct tpck_reach *who)
{
	struct tpck_reach reach = *who;
	struct tpck_error err = {0};
	char shm[TPCK_SETTING_TEXT_MAX + 16];
	int saved = errno, fd;

	if (!is_level() || !tpck_files_settings->peers.count)
		return;
	/* No agent is started for each of what a program starts. */
	if (has_asked()) {
		tpck_settings_shm(who->settings, shm, sizeof shm);
		snprintf(reach.socket, sizeof reach.socket, "%s/%s/agent.sock", shm, who->job);
		fd = tpck_reach_connect(reach.socket);
	} else {
		fd = tpck_reach(&reach, &err);
		if (fd < 0)
			tpck_log_warn("%s; what lost nodes owed may come later", err.text);
	}
	if (fd >= 0) {
		ask(fd);
		tpck_sys_close(fd);
	}
	errno = saved;
}

/* ---- fsync ------------------------------------------------------------------------------------ */

/* Once a job. */
static void say_no_peers(struct tpck_view *view)
{
	if (!atomic_exchange(&view->said, 1))
		tpck_log_warn("TRANSPCKPT_FSYNC=replicated: %s; fsync waits for the disk, as with durable",
			      tpck_files_settings->peers.count ? "no peer has room for copies of files, or none is there" : "there are no peers");
}

bool tpck_files_replicated(uint64_t order)
{
	uint64_t begun = tpck_clock_monotonic_ns();
	struct tpck_view *view;

	if (!is_level())
		return false;
	while ((view = tpck_files_lock())) {
		uint32_t seen = view->done, copies = tpck_files_settings->peers.count ? view->copies : 1;
		bool done = view->replicated >= order;

		tpck_view_unlock(view);
		if (copies == 1 || (!copies && tpck_clock_monotonic_ns() - begun > UNKNOWN_NS)) {
			say_no_peers(view);
			return false;
		}
		if (copies && done)
			return true;
		tpck_view_tell(&view->news);
		tpck_files_revive();
		tpck_view_wait(&view->done, seen, LOOK_MS);
	}
	return false;
}
