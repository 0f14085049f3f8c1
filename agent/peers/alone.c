/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent that works alone, where mpirun is to have one. With ULFM mpirun goes on without an agent that has died, and starts no other one there: that node's
 * next one, the library's, leaves a mark where all nodes see it, agents/HOST.alone, and then those that mpirun has started end together, so that
 * mpirun does, and is called again. Where nobody has anything of the job there is no mark, and they go on. So it is where the node is gone.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/peers/agents_folder.h"
#include "agent/peers/peers.h"
#include "agent/peers/peers_private.h"
#include "runtime/base/log.h"

static bool marked;

static int mark_path(const char *host, char path[TPCK_PATH_MAX])
{
	int size = snprintf(path, TPCK_PATH_MAX, "%s/%s.alone", peers.folder, host);

	return !peers.folder[0] || size >= TPCK_PATH_MAX || strchr(host, '/') ? -1 : 0;
}

void alone_say(void)
{
	char path[TPCK_PATH_MAX], text[32];
	struct tpck_error err = {0};
	int rc = tpck_tier_check(home_shared_tier(), &err);

	snprintf(text, sizeof text, "%d\n", (int)getpid());
	if (rc || mark_path(peers.host, path) || shared_write(path, text, 0, &err))
		tpck_log_warn("agents of other nodes are not told that this one works alone: %s", err.text);
	else
		marked = true;
}

void alone_end(void)
{
	if (marked)
		alone_clear();
	marked = false;
}

void alone_clear(void)
{
	char path[TPCK_PATH_MAX];

	if (!mark_path(peers.host, path))
		shared_remove(path);
}

bool alone_is(const char *host)
{
	char path[TPCK_PATH_MAX];

	return !mark_path(host, path) && shared_look(path) == 0;
}
