/* SPDX-License-Identifier: Apache-2.0 */
/* Meeting the agent: hello, the session, and the threads that work behind the program's back. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/door.h"
#include "runtime/base/kernel.h"
#include "runtime/base/log.h"
#include "runtime/capture/copier.h"
#include "runtime/capture/readback.h"
#include "runtime/replay/stash.h"
#include "runtime/engine/engine_private.h"
#include "runtime/engine/agent_link.h"
#include "runtime/engine/following.h"
#include "runtime/engine/offered.h"
#include "runtime/engine/place.h"
#include "runtime/files/files.h"
#include "runtime/infer/classes.h"
#include "runtime/follow/contents.h"
#include "runtime/follow/follow.h"
#include "runtime/network/network.h"
#include "runtime/programs/programs.h"
#include "runtime/track/communicators.h"
#include "runtime/twin/supervisor.h"

static struct tpck_engine *const engine = &tpck_engine;
extern char **environ;

/* Every missing folder of a path, private to the user. */
static void make_folders(const char *path)
{
	char part[1300];

	snprintf(part, sizeof part, "%s", path);
	for (char *p = part + 1; *p; p++)
		if (*p == '/') {
			*p = '\0';
			tpck_sys_mkdirat(AT_FDCWD, part, 0700);
			*p = '/';
		}
	tpck_sys_mkdirat(AT_FDCWD, part, 0700);
}

/* STORE/JOB of STORE/JOB/keep/ID. */
static void job_folder_of(const char *keep, char path[sizeof engine->keep])
{
	char *end;

	snprintf(path, sizeof engine->keep, "%s", keep);
	for (int i = 0; i < 2 && (end = strrchr(path, '/')); i++)
		*end = '\0';
}

/* Below STORE/JOB: who may rename that would else lead to another folder of the user's. */
enum { KEEP_NAMES = 2 };

static void make_keep(void)
{
	char job_folder[sizeof engine->keep];
	int folder;

	job_folder_of(engine->keep, job_folder);
	make_folders(job_folder);
	folder = tpck_door_folder(engine->keep, KEEP_NAMES, TPCK_DOOR_MAKE);
	if (folder >= 0)
		tpck_sys_close(folder);
}

/* A new timeline: what was kept for an older one is of no use. */
static void clear_keep(void)
{
	int folder = tpck_door_file(engine->keep, KEEP_NAMES, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	char buffer[8192];
	ssize_t got;

	if (folder < 0)
		return;
	while ((got = tpck_sys_getdents(folder, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen)
			tpck_sys_unlinkat(folder, ((struct dirent64 *)at)->d_name, 0);
	tpck_sys_close(folder);
}

void tpck_attach_own_keep(void)
{
	char job_folder[sizeof engine->keep];
	struct stat found;
	int folder;

	job_folder_of(engine->keep, job_folder);
	folder = tpck_door_open(AT_FDCWD, job_folder, 0);
	/* Below a file there is nothing that could be another user's. */
	if (folder == -EPERM && !tpck_sys_fstatat(AT_FDCWD, job_folder, &found, AT_SYMLINK_NOFOLLOW))
		engine->keep[0] = '\0';
	if (folder >= 0)
		tpck_sys_close(folder);
}

void tpck_attach_stashes(void)
{
	char memory[sizeof engine->keep];
	const char *session = engine->welcome.session, *end = strrchr(session, '/'), *program = strrchr(engine->keep, '/');

	/* SHM/JOB/stash/ID; a store that is another user's is none. */
	if (!end || !program || snprintf(memory, sizeof memory, "%.*s/" TPCK_STASH_FOLDER "%s", (int)(end - session), session, program) >= (int)sizeof memory)
		return;
	tpck_stash_folders(memory, engine->keep);
}

/* Who says where to go on is not asked whether that is the cheaper way. */
static uint32_t way_of(const char *setting)
{
	if (strcmp(setting, "auto") == 0 && !tpck_supervisor_again())
		return 0;
	return strcmp(setting, "own") == 0 ? TPCK_HELLO_OWN : TPCK_HELLO_FORWARD;
}

int tpck_attach_hello(bool resume)
{
	const char *setting = engine->settings.resume;
	struct tpck_agent_options options = {
		.settings = &engine->settings, .environment = environ, .job = engine->job,
		.identity = engine->identity, .identity_bytes = engine->identity_bytes,
		.library = engine->library, .start_folder = engine->start_folder, .ranks = &engine->ranks,
		.resume = strcmp(setting, "never") != 0, .late = !resume, .resume_step = UINT64_MAX,
		.control_at = engine->control,
		.flags = (tpck_following() ? TPCK_HELLO_FORWARD | TPCK_HELLO_TAKES_OVER : way_of(setting)) | (tpck_supervisor_again() ? TPCK_HELLO_IN_PLACE : 0) |
			 (tpck_supervisor_stands_in() ? TPCK_HELLO_STANDS_IN : 0),
		.failure = tpck_twin_page() ? atomic_load(&tpck_twin_page()->failure) : 0, .forward_max_ns = tpck_begun_limit_ns(),
	};
	struct tpck_error err = {0};
	int result;

	if (*setting >= '0' && *setting <= '9')
		options.resume_step = strtoull(setting, NULL, 10);
	result = tpck_agent_hello(&options, &engine->welcome, &engine->control, &err);
	if (result) {
		tpck_log_warn("%s; no checkpoints in this run", err.text);
		return result;
	}
	tpck_communicators_show(engine->control->communicator);
	if (engine->welcome.notice[0])
		tpck_log_warn("%s", engine->welcome.notice);
	return 0;
}

int tpck_attach(bool resume)
{
	int result = tpck_attach_hello(resume);

	if (result) {
		tpck_following_refuse("the agent cannot be asked for a snapshot");
		return result;
	}
	/* An offer that nobody asked for in time cannot be taken: the process has begun on its own. */
	if (engine->welcome.offer && resume)
		return 0;
	tpck_following_refuse("the agent has no snapshot to go on from");
	if (strcmp(engine->settings.resume, "must") == 0)
		tpck_log_warn("TRANSPCKPT_RESUME=must, but there is nothing to resume from; running from the beginning");
	return tpck_attach_fresh();
}

int tpck_attach_fresh(void)
{
	/* What there is to go on from, and is not, stays that. */
	bool kept = engine->welcome.offer || engine->welcome.kept;
	int result;

	tpck_attach_own_keep();
	if (engine->keep[0]) {
		make_keep();
		if (!kept)
			clear_keep();
	} else {
		tpck_engine_unresumable("files that a resume needs have no place in another user's store");
	}
	tpck_attach_stashes();
	if (!kept)
		tpck_stash_clear();
	tpck_stash_begin(engine->welcome.generation);
	tpck_follow_record(engine->log, engine->keep, engine->welcome.generation);
	tpck_files_dated(engine->welcome.generation, engine->welcome.generation, &engine->step);
	tpck_place_record(engine->log);
	result = tpck_log_attach(engine->log, engine->welcome.session, engine->welcome.generation, NULL);
	if (result) {
		errno = -result;
		tpck_log_warn("cannot keep the record in %s: %m; no checkpoints in this run", engine->welcome.session);
	} else if (tpck_programs_session(engine->welcome.session)) {
		tpck_engine_unresumable(TPCK_UNNOTED);
	}
	if (!result)
		tpck_network_session(engine->welcome.session, NULL);
	return result;
}

static void on_held(uint32_t image, uint64_t step)
{
	struct tpck_held held = {image, 0, engine->welcome.generation, step};

	tpck_agent_send(TPCK_MSG_HELD, &held, sizeof held);
	tpck_following_held(engine->welcome.session);
}

static void on_digests(const struct tpck_plan *plan, const uint64_t *digests, uint64_t step, enum tpck_copier_job kind)
{
	if (kind == TPCK_JOB_PROBE_WITNESS)
		tpck_witness_digests(plan->rows, digests, step);
	else if (kind == TPCK_JOB_PROBE_PHASE)
		tpck_classes_optimizer(plan->row, plan->rows, digests, step);
	else
		tpck_classes_boundary(plan->row, plan->rows, digests, step);
}

static void on_ready(const struct tpck_prepare *granted)
{
	int result;

	engine->answered_room = granted->bytes;
	engine->answered_images = granted->images;
	if (atomic_load(&engine->context_ended))
		return;
	if (!granted->bytes) {
		tpck_log_warn("no snapshots: %.240s", granted->reason);
		tpck_engine_reason("%.180s", granted->reason);
		return;
	}
	engine->device->context_use(engine->context);
	result = tpck_images_map(engine->device, engine->welcome.session, granted->images, granted->bytes);
	if (result) {
		errno = -result;
		tpck_log_warn("no snapshots: cannot map the images in %s: %m", engine->welcome.session);
	}
}

/* What the agent that died had been asked for it may have taken with it. */
static void on_again(void)
{
	struct tpck_prepare prepare = {.bytes = atomic_load(&engine->asked_room), .images = TPCK_IMAGES_WANTED};

	if (prepare.bytes > engine->answered_room || (prepare.bytes && engine->answered_images < prepare.images))
		tpck_agent_send(TPCK_MSG_PREPARE, &prepare, sizeof prepare);
}

static void on_surprise(const struct tpck_held *what)
{
	engine->control->status.abandoned++;
	tpck_classes_forget();
	tpck_log_warn("the snapshot of step %llu does not hold what the device had; it was dropped",
		      (unsigned long long)what->step);
}

/* A job of which no iteration is found is not protected, and its user may not know. One that uploads little may be at something else than training. */
enum { UPLOADS_OF_TRAINING = 200 };

static void unprotected_note(const struct tpck_infer_summary *summary)
{
	static uint64_t begun;
	static bool said;
	uint64_t now = tpck_clock_monotonic_ns();
	double seconds = engine->settings.stall_sec / 2;

	if (!summary->ops || engine->uncaptured || seconds <= 0)
		return;
	begun = begun ? begun : now;
	if (said || engine->copies < UPLOADS_OF_TRAINING || (double)(now - begun) < seconds * 1e9 || tpck_uploads_watch(summary->reason) ||
	    summary->uploads < UPLOADS_OF_TRAINING)
		return;
	said = true;
	tpck_log_warn("no checkpoints so far: in %llu operations on the device no iteration of a training loop is found (%s). If this is training, it is not "
		      "protected: keep the program's own checkpoints, and see transpckpt show", (unsigned long long)summary->ops, summary->reason);
}

/* While no boundary has been seen, `show` says what inference is missing. */
static void reason_note(void)
{
	struct tpck_thread *self = tpck_thread_self();
	struct tpck_infer_summary summary;

	if (engine->step || tpck_engine_mode() != TPCK_MODE_LIVE)
		return;
	if (!self || !tpck_bias_lock(&engine->infer_lock, self))
		return;
	tpck_infer_summary(engine->infer, &summary);
	tpck_bias_unlock(&engine->infer_lock, self);
	if (!engine->step) {
		tpck_engine_reason("%.190s", summary.reason);
		unprotected_note(&summary);
	}
	engine->control->status.operations = summary.ops;
}

/* A boundary asks modules for variables, and the program would wait there for them to be loaded. Whether there may be more soon. */
static bool on_look(void)
{
	bool more = false;

	if (tpck_engine_mode() != TPCK_MODE_LIVE)
		return false;
	atomic_store(&engine->link_asks, true);
	if (!atomic_load(&engine->context_ended) && !engine->stream_captures) {
		engine->device->context_use(engine->context);
		more = engine->device->variables_ahead();
	}
	atomic_store(&engine->link_asks, false);
	return more;
}

/* What is packed goes from memory, and what the record takes is shown. */
static void record_note(void)
{
	struct tpck_control *control = engine->control;

	tpck_log_give_back(engine->log, atomic_load(&control->log_looked));
	if (atomic_load(&control->log_packed_bytes) > engine->settings.log_store)
		tpck_log_fail(engine->log, "the packed record has reached TRANSPCKPT_LOG_STORE; a larger limit or a restart from the program's own checkpoint helps");
	atomic_store(&control->status.log_bytes, tpck_log_bytes(engine->log));
	atomic_store(&control->status.log_memory, tpck_log_memory(engine->log));
}

static void on_tick(void)
{
	if (tpck_engine_mode() == TPCK_MODE_FORWARD)
		tpck_stillness_look();
	tpck_log_prepare(engine->log);
	record_note();
	if (tpck_engine_mode() == TPCK_MODE_LIVE) {
		tpck_contents_take(engine->log);
		tpck_following_tell();
	}
	reason_note();
}

void tpck_attach_link(bool room)
{
	static const struct tpck_agent_events events = {on_ready, on_surprise, tpck_communicators_heard, on_again, on_tick, on_look};
	int result;

	/* A resume knows what the next snapshots need. */
	if (tpck_engine_mode() == TPCK_MODE_FORWARD) {
		tpck_offered_pin(engine->device, engine->context);
		if (room)
			tpck_engine_ask_for_room(tpck_resume_bytes());
	}
	result = tpck_agent_start(&events);
	if (result) {
		errno = -result;
		tpck_log_warn("cannot start a thread: %m; no checkpoints in this run");
	}
}

void tpck_attach_threads(void)
{
	const struct tpck_copier_options copier = {
		.device = engine->device, .context = engine->context, .control = engine->control, .held = on_held,
		.digests = on_digests, .library = engine->library, .kernels = engine->settings.kernels,
	};
	struct tpck_ways *ways = &engine->control->status.ways;
	int result = tpck_readback_open(engine->device);

	engine->device->driver(ways->driver, sizeof ways->driver, &ways->driver_version);
	tpck_images_share(engine->ranks.world > 1);
	if (!result)
		result = tpck_copier_start(&copier);
	if (result) {
		errno = -result;
		tpck_log_warn("this device does not allow snapshots behind the program's back: %m");
		tpck_engine_reason("the device lacks what snapshots need: %s", strerror(-result));
		engine->uncaptured = true;
	}
	/* A twin meets the agent when it takes over. */
	if (!tpck_following())
		tpck_attach_link(true);
	engine->control->status.state = tpck_engine_mode() == TPCK_MODE_FORWARD ? TPCK_ENGINE_FORWARD
										: TPCK_ENGINE_LEARNING;
}
