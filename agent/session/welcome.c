/* SPDX-License-Identifier: Apache-2.0 */
/* Welcomes that outlive the agent that was giving them. */
#include "config.h"

#include "agent/session/welcome.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/store/file.h"

/* In a session's folder. */
struct noted {
	int64_t pid;
	struct tpck_welcome welcome;
};

/* Sessions that were made ready, as many as an agent finds at its start. */
struct missed {
	uint64_t launch;
	struct tpck_session_name name;
	struct missed *next;
};
static struct missed *missed;

static int noted_path(const struct tpck_session *session, char path[TPCK_PATH_MAX])
{
	return tpck_path_join(path, TPCK_PATH_MAX, session->path, "welcome");
}

void welcome_note(const struct tpck_session *session, pid_t pid, const struct tpck_welcome *welcome)
{
	struct noted noted = {.pid = pid, .welcome = *welcome};
	struct tpck_error err = {0};
	char path[TPCK_PATH_MAX];

	/* Without it nothing is lost but if this agent dies in the next moment. */
	if (noted_path(session, path) == 0 && tpck_file_write(path, &noted, sizeof noted, 0, &err))
		tpck_log_debug("%s", err.text);
}

/* False: there is none. */
static bool read_noted(const struct tpck_session *session, struct noted *noted)
{
	char path[TPCK_PATH_MAX], *bytes;
	size_t size;
	bool whole;

	if (noted_path(session, path) || tpck_file_read(path, sizeof *noted, &bytes, &size, NULL))
		return false;
	whole = size == sizeof *noted;
	if (whole)
		memcpy(noted, bytes, sizeof *noted);
	free(bytes);
	return whole && noted->pid > 0 && strcmp(noted->welcome.session, session->path) == 0;
}

/* Whether a session of this generation says whose it is: then all that its processes are told was noted before. */
static bool is_any_given(uint64_t generation)
{
	DIR *folder = opendir(home.folder);
	struct tpck_session_name name;
	struct tpck_session *session;
	struct dirent *entry;
	bool given = false;

	while (folder && !given && (entry = readdir(folder))) {
		if (tpck_session_name_parse(entry->d_name, &name) || name.generation != generation ||
		    tpck_session_open(&session, home.folder, entry->d_name, false, NULL))
			continue;
		given = session->control->pid != 0;
		tpck_session_close(session);
	}
	if (folder)
		closedir(folder);
	return given;
}

bool welcome_complete(struct tpck_session *session)
{
	struct noted noted;

	if (!read_noted(session, &noted) || !is_any_given(session->name.generation))
		return false;
	session->control->pid = (int32_t)noted.pid;
	return true;
}

uint64_t welcome_ports(const struct tpck_session *session)
{
	struct noted noted;

	return read_noted(session, &noted) ? (uint64_t)noted.welcome.meeting_ports[1] << 16 | noted.welcome.meeting_ports[0] : 0;
}

void welcome_note_missed(const struct tpck_session *session)
{
	struct missed *one = calloc(1, sizeof *one);

	if (!one)
		return;
	one->launch = session->control->launch;
	one->name = session->name;
	one->next = missed;
	missed = one;
}

uint64_t welcome_missed(uint64_t launch, uint32_t rank, uint32_t ordinal)
{
	uint64_t newest = 0;

	for (const struct missed *one = missed; one; one = one->next)
		if (one->launch == launch && one->name.rank == rank && one->name.ordinal == ordinal && one->name.generation > newest)
			newest = one->name.generation;
	return newest;
}

/* One that was welcomed says ADOPT; if it is another program text already, and so says HELLO, nothing has come into the session. */
static bool is_awaited(const struct live *live, const struct client *client, const struct tpck_hello *hello, const char *identity)
{
	const struct tpck_session_name *name = &live->session->name;

	return live->adopted && !live->client && live->life == LIFE_RUNNING && live->pid == client->pid && name->rank == hello->rank &&
	       name->ordinal == hello->ordinal && atomic_load(&live->session->control->status.state) == TPCK_ENGINE_OFF &&
	       strcmp(live->session->identity, identity) == 0;
}

bool welcome_again(struct agent *agent, struct client *client, const struct tpck_hello *hello, const char *identity)
{
	struct noted noted;

	for (struct live *live = agent->lives; live; live = live->next) {
		if (!is_awaited(live, client, hello, identity) || !read_noted(live->session, &noted) || noted.pid != client->pid)
			continue;
		live_attach(live, client);
		tpck_log_info("process %d is rank %u of generation %" PRIu64 ", as the last agent was about to tell it", (int)live->pid, hello->rank,
			      noted.welcome.generation);
		client_send(client, TPCK_MSG_WELCOME, &noted.welcome, sizeof noted.welcome);
		return true;
	}
	return false;
}
