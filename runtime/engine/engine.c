/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: one state machine, from the start of the process to its end. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/identity_names.h"
#include "runtime/base/kernel.h"
#include "runtime/base/key.h"
#include "runtime/base/layout.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/base/tier_settings.h"
#include "runtime/capture/copier.h"
#include "runtime/engine/adopt.h"
#include "runtime/engine/engine_private.h"
#include "runtime/engine/following.h"
#include "runtime/engine/identity.h"
#include "runtime/engine/agent_link.h"
#include "runtime/engine/marker.h"
#include "runtime/engine/meet.h"
#include "runtime/engine/place.h"
#include "runtime/files/files.h"
#include "runtime/follow/caches.h"
#include "runtime/follow/contents.h"
#include "runtime/follow/follow.h"
#include "runtime/network/network.h"
#include "runtime/programs/programs.h"
#include "runtime/replay/restart.h"
#include "runtime/track/barrier.h"
#include "runtime/twin/supervisor.h"
#include "runtime/view/rules.h"

#define WITHIN_CALL_SEC 1
#define UNRESUMABLE "snapshots from here on cannot be resumed: %s"
#define UNCAPTURED "no snapshots from here on: %s"

_Atomic uint32_t tpck_engine_mode_now; /* also a futex for threads that wait for LIVE */
struct tpck_engine tpck_engine TPCK_LARGE_USED = {.allocation = PTHREAD_MUTEX_INITIALIZER};
static struct tpck_engine *const engine = &tpck_engine;
extern char **environ;

TPCK_AT_START void tpck_engine_mode_set(enum tpck_mode mode)
{
	atomic_store(&tpck_engine_mode_now, mode);
	/* Nobody waits for the begin. */
	if (mode != TPCK_MODE_EARLY)
		tpck_sys_futex(&tpck_engine_mode_now, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

void tpck_engine_reason(const char *format, ...)
{
	va_list args;

	if (!engine->control)
		return;
	va_start(args, format);
	vsnprintf(engine->control->status.reason, sizeof engine->control->status.reason, format, args);
	va_end(args);
}

bool tpck_engine_forward(void)
{
	return tpck_engine_mode() == TPCK_MODE_FORWARD;
}

/* ---- life ------------------------------------------------------------------------------------- */

static void meet_others(void)
{
	const struct tpck_reach how = {
		.settings = &engine->settings, .environment = environ, .job = engine->job, .library = engine->library,
		.start_folder = engine->start_folder,
	};

	tpck_meet(&how, &engine->ranks);
}

/* Which program this is, for all that asks for it later. */
static TPCK_AT_START uint64_t know(char *identity, size_t bytes)
{
	char store[TPCK_SETTING_TEXT_MAX];
	uint64_t digest = tpck_digest64(identity, bytes, 0);

	engine->identity = identity;
	engine->identity_bytes = (uint32_t)bytes;
	tpck_settings_store(&engine->settings, store, sizeof store);
	tpck_marker_path(engine->keep, sizeof engine->keep, store, engine->job, TPCK_STASH_STORE, digest);
	return digest;
}

/* Whether there is something to go on from, by this node's key or by another one's. */
static TPCK_AT_START enum tpck_marker look(char *identity, uint64_t digest)
{
	char where[TPCK_SETTING_TEXT_MAX + 256];
	enum tpck_marker marker = tpck_marker_look(&engine->settings, engine->job, digest, tpck_identity_names(identity), where, sizeof where);

	if (marker != TPCK_MARKER_NAMES)
		return marker;
	if (!tpck_adopt(where, identity, TPCK_IDENTITY_MAX))
		return TPCK_MARKER_ABSENT;
	know(identity, strlen(identity));
	return TPCK_MARKER_PRESENT;
}

static TPCK_AT_START bool is_pipe(int fd)
{
	struct stat found;

	return !tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) && (S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode));
}

/* A shell that a launcher starts, and a program that hands on what it is told, are no ranks themselves. */
static bool is_tool(void)
{
	char path[512];
	ssize_t got = tpck_sys_readlink("/proc/self/exe", path, sizeof path - 1);

	path[got > 0 ? got : 0] = '\0';
	return tpck_rules_tool(path);
}

/* Whether transpckpt run has started this very process, or a launcher has as a rank, and not a program that has a twin itself. The first variable is another
 * one in each start, and no part of what the program is known by. */
static bool is_to_have_twin(void)
{
	const char *process = getenv(TPCK_TWIN_PROCESS);
	bool is_this = process && atoi(process) == tpck_sys_getpid(), tool;
	struct tpck_ranks ranks;

	tpck_ranks_find(&ranks);
	tool = (is_this || ranks.world > 1) && is_tool();
	/* What a shell executes in its place is what was started. */
	if (process && !(is_this && tool))
		unsetenv(TPCK_TWIN_PROCESS);
	return !tool && (is_this || (ranks.world > 1 && !getenv(TPCK_TWIN_BELOW)));
}

static TPCK_AT_START bool has_supervisors(void)
{
	return strcmp(engine->settings.twin, "off") != 0;
}

static bool no_twin_said;

static void say_no_twin(const char *why)
{
	no_twin_said = true;
	tpck_log_warn("the program has no twin: %s", why);
}

/* 0: the program is started once more in its place, at best. */
static unsigned twins_wanted(void)
{
	return strcmp(engine->settings.twin, "spare") == 0 ? 0 : (unsigned)(engine->settings.twin[0] - '0');
}

/* The process that goes on from here may be another one. */
static enum tpck_twin_role take_place(struct tpck_thread *self)
{
	struct tpck_supervised how = {.twins = twins_wanted(), .stands_in = getenv(TPCK_TWIN_STANDS_IN) != NULL};
	enum tpck_twin_role role = TPCK_TWIN_ALONE;
	struct tpck_ranks ranks = {0};
	const char *why = NULL;

	unsetenv(TPCK_TWIN_STANDS_IN);
	tpck_ranks_find(&ranks);
	if (ranks.world > 1)
		setenv(TPCK_TWIN_BELOW, "1", 1);
	if (ranks.elsewhere && !engine->settings.peers.count)
		why = "some of its ranks are on other nodes, and TRANSPCKPT_PEERS is 0";
	/* Twins would meet where the program's ranks do, and speak with those. */
	else if (ranks.world > 1 && !getenv("MASTER_PORT"))
		why = "its ranks are not told by MASTER_PORT where they meet";
	else if (strcmp(engine->settings.resume, "auto") != 0 && strcmp(engine->settings.resume, "must") != 0 && strcmp(engine->settings.resume, "forward") != 0)
		why = "TRANSPCKPT_RESUME is none of auto, forward and must";
	else
		role = tpck_supervise(ranks.rank, ranks.world, &how, &why);
	if (why)
		say_no_twin(why);
	engine->pid = getpid();
	self->tid = tpck_sys_gettid();
	return role;
}

TPCK_AT_START void tpck_engine_start(const char *library_path, char *const *arguments)
{
	static char identity[TPCK_IDENTITY_MAX] TPCK_LARGE_USED;
	char state[TPCK_SETTING_TEXT_MAX];
	uint8_t key[TPCK_KEY_BYTES];
	struct tpck_thread *self = tpck_thread_self();
	enum tpck_marker marker = TPCK_MARKER_ABSENT;
	enum tpck_twin_role role = TPCK_TWIN_ALONE;
	uint64_t digest;
	bool serves, works, again;
	long bytes;

	self->depth++;
	engine->start_ns = tpck_clock_once_ns();
	engine->pid = getpid();
	/* A program that uses no device has nothing to do with wrong settings: see tpck_engine_device(). */
	tpck_log_hold(1);
	engine->complaints = tpck_settings_read_first(&engine->settings, environ);
	tpck_log_hold(0);
	tpck_caches_inherit();
	engine->start_folder = tpck_identity_folder();
	if (engine->settings.disable)
		goto out;
	engine->library = library_path;
	if (has_supervisors() && is_to_have_twin())
		role = take_place(self);
	if (tpck_identity_job(&engine->settings, engine->job))
		goto out;
	tpck_files_start(&engine->settings, engine->job, engine->library, engine->start_folder);
	tpck_started_then(tpck_programs_belongs);
	/* A tool has no state on a device, and what it was told is nothing that a later start would need: there is no record. One that is told by a pipe what to
	 * write, as a service, may be told all of it again. */
	if (tpck_files_of_tool()) {
		if (is_pipe(0)) {
			tpck_started_may_be(true);
			tpck_programs_started(tpck_started_asks, NULL);
		}
		goto out;
	}
	tpck_ranks_find(&engine->ranks);
	/* Snapshots of several ranks are worth something only if all take the same step: agents see to that. */
	if (engine->ranks.elsewhere && !engine->settings.peers.count) {
		tpck_log_info("some of the %u ranks are on other nodes: the device's state is not checkpointed unless TRANSPCKPT_PEERS is 1 or more",
			      engine->ranks.world);
		goto out;
	}
	if (engine->settings.allocator[0] == 'a')
		setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync", 0);
	if (engine->ranks.world > 1)
		tpck_place_note(environ);
	tpck_settings_state(state, sizeof state);
	(void)tpck_key_of(state, key);
	bytes = tpck_identity_make(engine->job, engine->ranks.rank, engine->ranks.world, arguments, environ, key, identity, sizeof identity);
	engine->log = tpck_log_new(engine->settings.log_bytes);
	if (bytes < 0 || !engine->log)
		goto out;
	digest = know(identity, (size_t)bytes);
	tpck_follow_record(engine->log, "", 0);
	tpck_programs_record(engine->log, &engine->settings);
	tpck_network_record(engine->log, engine->settings.log_bytes / 4, engine->settings.network_real, engine->ranks.elsewhere ? engine->settings.shm : NULL,
			    engine->job);
	/* What a worker or service starts has to be followed from the first one on. It has the environment of a rank if it is one's. */
	serves = tpck_contents_note_input();
	works = tpck_programs_is_worker(arguments);
	tpck_started_may_be(serves || works || engine->ranks.world <= 1);
	if (serves || works || engine->ranks.world <= 1)
		tpck_programs_started(tpck_started_asks, engine->library);
	if (works)
		tpck_started_asks();
	else if (serves)
		tpck_started_asks_once();
	tpck_engine_mode_set(TPCK_MODE_EARLY);
	if (role == TPCK_TWIN_TWIN) {
		tpck_following_begin();
		goto out;
	}
	again = role == TPCK_TWIN_LIVING && tpck_supervisor_again();
	if (again) {
		engine->start_ns = tpck_clock_monotonic_ns();
		tpck_following_again();
	}
	if (strcmp(engine->settings.resume, "never") != 0)
		marker = look(identity, digest);
	if (engine->ranks.elsewhere && strcmp(engine->settings.resume, "never") != 0 && marker == TPCK_MARKER_ABSENT) {
		meet_others();
		marker = look(identity, digest);
	}
	engine->unanswered = marker == TPCK_MARKER_UNKNOWN;
	/* Verifying would ask the store whenever the program opens a file. */
	if (engine->unanswered)
		strcpy(engine->settings.files_verify, "off");
	if (marker == TPCK_MARKER_PRESENT) {
		tpck_attach_own_keep();
		tpck_restart_remember(environ);
		tpck_resume_begin();
	} else {
		if (again)
			tpck_following_refuse("nobody knows of a snapshot of it");
		tpck_follow_early(engine->pid);
	}
out:
	self->depth--;
}

static struct tpck_infer *infer_new(void)
{
	struct tpck_infer_options options = {
		.use_names = strcmp(engine->settings.infer, "pattern") != 0 && strcmp(engine->settings.infer, "memory") != 0,
		.use_pattern = strcmp(engine->settings.infer, "names") != 0,
	};

	return tpck_infer_new(&options);
}

/* How long the end waits for the copies, and for the agent. Where the handler of a signal ends the program, this thread may stand in a call of
 * the driver's that has its lock: the threads that copy and that hear the agent then wait for the driver for ever. */
static double end_waits(const struct tpck_thread *self)
{
	double seconds = engine->settings.exit_wait_sec;

	return self && self->depth && seconds > WITHIN_CALL_SEC ? WITHIN_CALL_SEC : seconds;
}

/* Registered when the device is there, and so run before the runtime's own end takes it away. */
static void finish_copies(int status, void *unused)
{
	(void)status;
	(void)unused;
	if (tpck_engine_mode() == TPCK_MODE_LIVE && getpid() == engine->pid)
		tpck_copier_drain(end_waits(tpck_thread_self()));
}

void tpck_engine_device(const struct tpck_device *device)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	static _Atomic bool met;

	/* A thread that comes by meanwhile waits: what it does next would be on the device and not in the record. */
	if (met || tpck_engine_mode() == TPCK_MODE_OFF)
		return;
	pthread_mutex_lock(&once);
	if (!engine->device && tpck_engine_mode() != TPCK_MODE_OFF) {
		struct tpck_settings again;

		struct tpck_error err;

		if (engine->complaints)
			tpck_settings_read(&again, environ);
		if (tpck_network_real_check(engine->settings.network_real, &err))
			tpck_log_warn("TRANSPCKPT_NETWORK_REAL: %s", err.text);
		engine->infer = infer_new();
		if (engine->unanswered) {
			/* A snapshot of this run would be newer than what may be there. */
			tpck_log_warn("no checkpoints in this run: the store did not answer when it began, and what may be there to go on from is for the next one");
			tpck_engine_mode_set(TPCK_MODE_OFF);
		} else if (!engine->infer || device->context_save(&engine->context)) {
			tpck_log_warn("no memory to begin with; no checkpoints in this run");
			tpck_engine_mode_set(TPCK_MODE_OFF);
		} else {
			tpck_follow_device();
			if (tpck_engine_mode() == TPCK_MODE_EARLY && !tpck_attach(false)) {
				tpck_engine_mode_set(TPCK_MODE_LIVE);
				if (has_supervisors() && !tpck_twin_page() && !no_twin_said)
					say_no_twin("neither transpckpt run --twin nor a launcher of ranks has started this very process");
				if (engine->uncaptured && engine->uncaptured_why)
					tpck_log_warn(UNCAPTURED, engine->uncaptured_why);
				else if (engine->unresumable)
					tpck_log_warn(UNRESUMABLE, engine->unresumable);
			}
			if (tpck_engine_mode() == TPCK_MODE_EARLY)
				tpck_engine_mode_set(TPCK_MODE_OFF);
			engine->device = device;
			if (tpck_engine_mode() != TPCK_MODE_OFF) {
				if (!tpck_barrier_open())
					tpck_log_info("the kernel refuses membarrier(): calls cost a little more");
				tpck_memory_open();
				tpck_attach_threads();
				on_exit(finish_copies, NULL);
			}
		}
	}
	met = true;
	pthread_mutex_unlock(&once);
}

TPCK_AT_START void tpck_engine_end(int status)
{
	struct tpck_thread *self = tpck_thread_self();
	uint32_t mode = tpck_engine_mode();
	double seconds;
	bool within;

	tpck_files_end(status, engine->settings.exit_wait_sec);
	/* A child made past our atfork handler (clone, vfork) is not the program. */
	if (!self || mode == TPCK_MODE_OFF || mode == TPCK_MODE_EARLY || !engine->control || getpid() != engine->pid)
		return;
	within = self->depth;
	/* Who goes on has all of it in memory. */
	seconds = mode == TPCK_MODE_LIVE && status && tpck_following_excuses() ? 0 : end_waits(self);
	self->depth++;
	/* A program that was killed behind its last operation has nothing more to do on the device: it ends live, as it would have. */
	if (mode == TPCK_MODE_FORWARD && !status && !within && tpck_forward_complete()) {
		tpck_resume_at_boundary(self);
		mode = tpck_engine_mode();
	}
	if (mode == TPCK_MODE_FORWARD && status && engine->ranks.world > 1) {
		/* Not the log's fault, as far as can be seen from here: what it had of the others, or of the network, has failed. The
		 * state says that it died on its way, which is counted. */
		tpck_log_warn("the program ended with status %d on its way to step %llu, as it may when another rank or the network fails; its "
			      "next start goes there again", status, (unsigned long long)engine->welcome.offer_step);
		/* That, too, went to where this way's output goes. */
		tpck_follow_say_error();
		seconds = 0;
	} else if (mode == TPCK_MODE_FORWARD) {
		/* The first run went on from here; this one ends: it is not repeating itself. */
		char what[100];

		snprintf(what, sizeof what, "the program ended with status %d, which it did not the first time", status);
		tpck_follow_say_error();
		if (status)
			tpck_resume_missed(what);
		else
			tpck_resume_diverged(what);
	} else {
		tpck_copier_drain(seconds);
		engine->control->status.state = TPCK_ENGINE_ENDED;
	}
	if (!tpck_agent_end(status, seconds) && seconds > 0)
		tpck_log_info("the agent did not say that everything is durable");
	tpck_engine_mode_set(TPCK_MODE_OFF);
	self->depth--;
}

static void child_stays(void)
{
	atomic_store(&tpck_engine_mode_now, TPCK_MODE_CHILD);
	tpck_programs_hide();
}

void tpck_engine_forked(void)
{
	bool done = tpck_programs_forked_child(child_stays) && tpck_engine_mode() == TPCK_MODE_FORWARD;

	tpck_forward_forked();
	tpck_files_forked();
	tpck_network_forked(tpck_programs_child());
	if (done || tpck_follow_held()) {
		tpck_threads_forked();
		tpck_follow_forked();
	}
	atomic_store(&tpck_engine_mode_now, TPCK_MODE_OFF);
	if (done)
		child_stays();
}

void tpck_engine_unresumable(const char *why)
{
	if (engine->unresumable || engine->uncaptured || tpck_engine_mode() == TPCK_MODE_OFF)
		return;
	engine->unresumable = why;
	if (tpck_engine_mode() == TPCK_MODE_LIVE)
		tpck_log_warn(UNRESUMABLE, why);
}

void tpck_engine_uncaptured(const char *why)
{
	if (engine->uncaptured || tpck_engine_mode() == TPCK_MODE_OFF)
		return;
	engine->uncaptured_why = why;
	engine->uncaptured = true;
	if (tpck_engine_mode() == TPCK_MODE_LIVE)
		tpck_log_warn(UNCAPTURED, why);
}

void tpck_engine_memory_on(int device)
{
	if (device >= 0 && device != engine->ordinal)
		tpck_engine_uncaptured("the program uses the memory of several devices");
}

void tpck_engine_stream_capture(int change)
{
	atomic_fetch_add(&engine->stream_captures, change);
}

/* More room than is needed now, so that a little growth needs no new images. */
void tpck_engine_ask_for_room(uint64_t bytes)
{
	struct tpck_prepare prepare = {.bytes = bytes + bytes / 8, .images = TPCK_IMAGES_WANTED};

	prepare.bytes = (prepare.bytes + TPCK_CHUNK_BYTES - 1) / TPCK_CHUNK_BYTES * TPCK_CHUNK_BYTES;
	if (atomic_load(&engine->asked_room) >= prepare.bytes)
		return;
	/* Before it is sent: on_again() sends it if the agent is gone by then. */
	atomic_store(&engine->asked_room, prepare.bytes);
	tpck_agent_send(TPCK_MSG_PREPARE, &prepare, sizeof prepare);
}
