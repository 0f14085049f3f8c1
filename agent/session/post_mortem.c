/* SPDX-License-Identifier: Apache-2.0 */
/* What is done with a session whose process is gone, and with those that an earlier agent left. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/publisher.h"
#include "agent/programs/met_programs.h"
#include "agent/session/clerk.h"
#include "agent/session/events.h"
#include "agent/session/own_known.h"
#include "agent/session/prepare.h"
#include "agent/session/sessions.h"
#include "agent/session/watermark.h"
#include "agent/session/welcome.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/store/file.h"
#include "runtime/store/stage.h"
#include "runtime/wire/twin.h"

static void drop_image(struct live *live, unsigned i)
{
	atomic_store(&live->images[i].map.header->state, TPCK_IMAGE_ABANDONED);
	unlink(live->images[i].path);
}

/* Takes back the memory of what cannot be offered. The files' numbers stay, so that an index means
 * the same image as before. */
static void drop_useless_images(struct live *live)
{
	char path[TPCK_PATH_MAX];

	for (unsigned i = 0; i < live->image_count; i++) {
		struct tpck_image_header *header = live->images[i].map.header;
		uint32_t state = atomic_load(&header->state);

		if (state != TPCK_IMAGE_COMMITTED && atomic_load(&header->pins) == 0)
			drop_image(live, i);
	}
	snprintf(path, sizeof path, "%s/resume.image", live->session->path);
	unlink(path);
}

/* How far beyond where it resumed, or was to, the process had come. */
static enum tpck_death how_it_died(const struct live *live)
{
	const struct tpck_control *control = live->session->control;
	uint32_t state = atomic_load(&control->status.state);
	uint64_t reached = control->status.boundaries;

	if (live->newest >= 0 && live->newest_step > reached)
		reached = live->newest_step;
	if (!control->parent_generation)
		return live->newest < 0 ? TPCK_DEATH_NEAR : TPCK_DEATH_FAR;
	/* An adopted session has no news of its beginning; what the library wrote says it too. */
	if (!live->resumed && (state == TPCK_ENGINE_OFF || state == TPCK_ENGINE_FORWARD))
		return TPCK_DEATH_STARTING;
	return reached <= control->resume_step + 1 ? TPCK_DEATH_NEAR : TPCK_DEATH_FAR;
}

/* For the line of a next start that finds nothing to go on from. */
static struct tpck_program_last what_is_left(const struct live *live)
{
	const struct tpck_status *status = &live->session->control->status;
	struct tpck_program_last last = {
		.generation = live->session->name.generation, .iterations = status->boundaries,
		.kept = live->newest >= 0, .kept_step = live->newest_step,
	};

	if (!last.kept && status->reason[0])
		snprintf(last.why, sizeof last.why, "%.*s", (int)sizeof status->reason - 1, status->reason);
	else if (!last.kept && last.iterations)
		snprintf(last.why, sizeof last.why, "%s", status->captured ? "its first was not whole yet" : "its first had not been taken yet");
	return last;
}

/* Nobody goes on from a run that ended well, nor from what came before it; one that began since is its own. */
void live_release_all(struct agent *agent, struct launch *launch)
{
	struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at))) {
		struct tpck_point all;

		tpck_log_info("process %d ended with status 0; its snapshots are released", (int)live->session->control->pid);
		all = (struct tpck_point){live->session->name.generation, 0};
		clerk_tell(live, NEWS_ENDED, &all, TPCK_DEATH_FAR);
		session_beyond->ended(live->session->identity, live->session->name.generation);
		if (live->session->name.rank == 0)
			history_ended(live);
		for (struct live *other = agent->lives; other; other = other->next)
			if (other == live || (other->life == LIFE_DEAD && other->program == live->program &&
					      other->session->name.generation <= live->session->name.generation))
				live_retire(other);
	}
}

/* A run without a snapshot is as if it had never been, but for what it did outside of itself. */
static void hand_back(const struct live *live)
{
	const struct tpck_session_name *own = &live->session->name;
	const struct tpck_control *control = live->session->control;
	struct tpck_session_name name = {control->parent_generation, own->rank, own->ordinal};
	struct tpck_cut cut = {control->resume_sequence, control->resume_offset};
	char text[64], path[TPCK_PATH_MAX];

	if (!name.generation)
		return;
	tpck_session_name_format(&name, text, sizeof text);
	if (!tpck_path_join(path, sizeof path, home.folder, text))
		tpck_stage_hand_back(live->session->path, own->generation, &cut, path);
}

void live_settle_launch(struct launch *launch)
{
	struct live *live;
	uint64_t step;
	uint32_t at = 0;

	/* Other nodes may still need what is held here. */
	if (!launch_is_dead(launch) || launch->apart)
		return;
	while ((live = launch_next(launch, &at))) {
		if (live->life != LIFE_DEAD)
			continue;
		if (launch_newest(launch, &step)) {
			drop_useless_images(live);
		} else {
			hand_back(live);
			live_retire(live);
		}
	}
}

void live_settle(struct agent *agent, struct live *live)
{
	const struct tpck_control *control = live->session->control;
	struct tpck_point from = {control->parent_generation, control->resume_step};
	struct tpck_program_last last;

	for (unsigned i = 0; i < live->image_count; i++)
		/* What is given up meanwhile is nobody's concern. */
		if (live->images[i].checking && atomic_load(&live->images[i].map.header->state) == TPCK_IMAGE_HELD)
			return;
	if (live->preparing)
		return;
	live->died_ns = tpck_clock_monotonic_ns();
	live->life = LIFE_DEAD;
	if (live->end_known && live->status == 0) {
		live->ended_well = true;
		if (live->launch->apart)
			launch_apart->ended(agent, live);
		else if (launch_is_dead(live->launch) && launch_ended_well(live->launch))
			live_release_all(agent, live->launch);
		else
			live_settle_launch(live->launch);
		return;
	}
	if (live->newest >= 0)
		tpck_log_warn("process %d of generation %" PRIu64 " %s; its snapshot of step %" PRIu64 " is kept",
			      (int)control->pid, live->session->name.generation,
			      live->end_known ? "failed" : "was killed", live->newest_step);
	else
		tpck_log_info("process %d of generation %" PRIu64 " is gone and left no snapshot", (int)control->pid,
			      live->session->name.generation);
	/* In the history the first rank speaks for all. */
	if (live->session->name.rank == 0)
		history_died(live, how_it_died(live));
	own_died(live);
	live->launch->died_any = true;
	last = what_is_left(live);
	if (live->program)
		clerk_tell_death(live, &from, how_it_died(live), &last);
	/* A rank without a snapshot leaves nothing to the others of its launch either, which may be on other nodes and go on elsewhere. */
	if (live->launch->apart && live->newest < 0)
		hand_back(live);
	if (live->launch->apart)
		launch_apart->ended(agent, live);
	else
		live_settle_launch(live->launch);
}

/* Who is about to take over from it. */
static pid_t twin_of(const struct live *live)
{
	struct tpck_twin_says says = {0};
	char path[TPCK_PATH_MAX];
	size_t size = 0;
	char *bytes;

	snprintf(path, sizeof path, "%s/" TPCK_TWIN_FILE, live->session->path);
	if (tpck_file_read(path, 1 << 16, &bytes, &size, NULL))
		return 0;
	if (size >= sizeof says)
		memcpy(&says, bytes, sizeof says);
	free(bytes);
	return says.magic == TPCK_TWIN_MAGIC && says.version == TPCK_WIRE_VERSION ? says.process : 0;
}

void live_died(struct agent *agent, struct live *live)
{
	uint64_t said = atomic_load(&live->session->control->exit_status);

	if (live->life != LIFE_RUNNING)
		return;
	/* The news of its death may overtake them. */
	if (live->client)
		client_last_words(agent, live->client);
	live->life = LIFE_SETTLING;
	live->twin = said ? 0 : twin_of(live);
	live->launch->closed = true;
	if (said && !live->end_known) {
		live->end_known = true;
		live->status = (int32_t)(said - 1);
	}
	if (live->pid_watch.fd >= 0) {
		loop_unwatch(&live->pid_watch);
		close(live->pid_watch.fd);
		live->pid_watch.fd = -1;
	}
	if (live->client) {
		live->client->live = NULL;
		live->client = NULL;
	}
	for (unsigned i = 0; i < live->image_count; i++) {
		uint32_t filling = TPCK_IMAGE_FILLING;

		atomic_compare_exchange_strong(&live->images[i].map.header->state, &filling, TPCK_IMAGE_ABANDONED);
		live_held(live, i);
	}
	live_settle(agent, live);
}

/* ---- adoption ----------------------------------------------------------------------------- */

/* Whether the process of a session is still the one that maps it, or is about to: numbers are used again. */
static bool still_mapped(const struct tpck_session *session)
{
	const struct tpck_control *control = session->control;
	/* The process may have been welcomed just before the last agent died. */
	const char *wanted = atomic_load(&control->status.state) == TPCK_ENGINE_OFF ? "/libtranspckpt.so" : session->path;
	pid_t pid = control->pid;
	char path[64], line[4096];
	bool found = false;
	FILE *maps;

	if (pid <= 0 || kill(pid, 0))
		return false;
	snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	if (!maps)
		return false;
	while (!found && fgets(line, sizeof line, maps))
		found = strstr(line, session->path) || strstr(line, wanted);
	fclose(maps);
	return found;
}

/* An agent that died has removed images that were of no use, and may have left the one that is behind them: nobody
 * knows them by their numbers any more. */
static void close_gaps(const char *session_path)
{
	char from[TPCK_PATH_MAX], to[TPCK_PATH_MAX];
	unsigned free_number = 0;

	for (unsigned i = 0; i < TPCK_IMAGES_MAX; i++) {
		snprintf(from, sizeof from, "%s/image.%u", session_path, i);
		snprintf(to, sizeof to, "%s/image.%u", session_path, free_number);
		if (access(from, F_OK) == 0 && (i == free_number || rename(from, to) == 0))
			free_number++;
	}
}

/* Folders that nobody needs, on their way to be removed: their names are free at once. */
static const char discarded[] = ".discarded.";

/* The folder of a twin that its supervisor has not removed: both were killed. */
static bool is_left_by_twin(const char *name)
{
	size_t length = strlen(TPCK_TWIN_FOLDER);
	pid_t process = strncmp(name, TPCK_TWIN_FOLDER, length) == 0 ? atoi(name + length) : 0;

	return process > 0 && kill(process, 0) && errno == ESRCH;
}

static void remove_discarded(const char *name)
{
	char path[TPCK_PATH_MAX];

	if (tpck_path_join(path, sizeof path, home.folder, name) == 0)
		prepare_remove(path);
}

static void discard(const char *name)
{
	char path[TPCK_PATH_MAX], away[TPCK_PATH_MAX], as[TPCK_NAME_MAX + sizeof discarded];

	snprintf(as, sizeof as, "%s%.255s", discarded, name);
	if (tpck_path_join(path, sizeof path, home.folder, name) || tpck_path_join(away, sizeof away, home.folder, as))
		return;
	remove_discarded(rename(path, away) == 0 ? as : name);
}

static void adopt(struct agent *agent, const char *name)
{
	struct tpck_session *session;
	struct tpck_error err = {0};
	struct launch *launch;
	struct rank_here *row;
	struct live *live;
	uint32_t world;
	pid_t pid;

	if (tpck_session_open(&session, home.folder, name, true, &err)) {
		/* Another version's files are left alone. One made by halves was never welcomed: the
		 * control page's magic comes last. */
		if (err.code == EPROTO)
			tpck_log_warn("%s", err.text);
		else
			discard(name);
		return;
	}
	/* The session was being made ready: nobody of its generation was welcomed, and whoever waits for that says HELLO again. */
	if (!session->control->pid && !welcome_complete(session)) {
		tpck_log_info("session %s was not begun; it is removed", name);
		welcome_note_missed(session);
		tpck_session_close(session);
		discard(name);
		return;
	}
	pid = still_mapped(session) ? session->control->pid : 0;
	world = session->control->world ? session->control->world : 1;
	launch = session->name.rank < world
			 ? launch_adopt(agent, session->control->launch, session->name.generation, world, session->control->apart) : NULL;
	row = launch ? ranks_here_add(&launch->here, session->name.rank) : NULL;
	if (!row || row->live) {
		tpck_log_warn("session %s does not fit the others of its generation; it is left alone", name);
		tpck_session_close(session);
		return;
	}
	live = live_new(agent, session, pid);
	if (!live) {
		tpck_session_close(session);
		return;
	}
	row->live = live;
	live->launch = launch;
	live->adopted = true;
	if (!pid)
		close_gaps(session->path);
	live_open_images(live);
	/* Pins were the dead agent's. */
	for (unsigned i = 0; i < live->image_count; i++)
		atomic_store(&live->images[i].map.header->pins, 0);
	if (atomic_load(&session->control->durable_step)) {
		launch->durable_any = true;
		launch->durable_step = atomic_load(&session->control->durable_step);
		watermark_durable(agent, launch, launch->durable_step);
	}
	live->program = program_of(session->identity, &err);
	if (!live->program)
		tpck_log_warn("%s", err.text);
	own_belongs(live);
	tpck_log_info("adopted session %s (process %d %s)", name, (int)session->control->pid,
		      pid ? "is running" : "is gone");
	if (session->name.rank == 0)
		history_taken_over(live);
}

static void adopt_all(struct agent *agent)
{
	struct tpck_session_name name;
	struct dirent *entry;
	DIR *folder = opendir(home.folder);

	if (!folder)
		return;
	while ((entry = readdir(folder)))
		if (tpck_session_name_parse(entry->d_name, &name) == 0)
			adopt(agent, entry->d_name);
		else if (strncmp(entry->d_name, discarded, strlen(discarded)) == 0 || is_left_by_twin(entry->d_name))
			remove_discarded(entry->d_name);
	closedir(folder);
	launch_settle_adopted(agent);
	/* Only now, when all ranks of each launch are here. */
	for (struct live *live = agent->lives; live; live = live->next) {
		if (live->pid <= 0)
			live_died(agent, live);
		for (unsigned i = 0; live->life == LIFE_RUNNING && i < live->image_count; i++)
			live_held(live, i);
	}
}

/* All that it may have to do with has begun. */
static int begin(struct agent *agent, struct tpck_error *err)
{
	(void)err;
	adopt_all(agent);
	agent->served = agent->lives != NULL || files_owed(agent->stopping);
	return 0;
}

const struct loop_part adoption_loop = {.begin = begin};
