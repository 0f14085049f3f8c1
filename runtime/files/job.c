/* SPDX-License-Identifier: Apache-2.0 */
/* The job's table and its agent, from the start of the process to its end. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/door.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/base/tier_settings.h"
#include "runtime/files/files_private.h"
#include "runtime/wire/message.h"
#include "runtime/reach/reach.h"
#include "runtime/wire/segment.h"

/* Programs that a program starts see its files too. */
#define VARIABLE "_TRANSPCKPT_JOB"
/* How long something that cannot be published is waited for; how often a waiting thread looks. */
#define GIVE_UP_NS 10000000000ull
#define SERVED_NS 10000000u
enum { LOOK_MS = 50, SAY_MS = 2000 };

struct tpck_view *_Atomic tpck_files_view;
const struct tpck_settings *tpck_files_settings;
char tpck_files_folder[TPCK_VIEW_PATH / 2] TPCK_LARGE_USED;
static struct tpck_reach who TPCK_LARGE_USED;
_Atomic bool tpck_files_away;
static _Atomic bool paused, off = true, complained, takes_none;
static bool learns;
static _Atomic bool took; /* this process has something pending, or had */
static int32_t home; /* the process */
static _Atomic uint64_t started, looked_ns, served_ns;
static _Atomic int agent_socket = -1;
static pthread_mutex_t joining = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP; /* a signal's handler may come by */
extern char **environ;

/* As setenv() does it, but for a short program, which may never allocate: what that costs at the first time is more than all else
 * here. An array of somebody else's is what libc expects of `environ`, and copies when it has to. */
static TPCK_AT_START void tell_children(const char *job)
{
	static char text[256] TPCK_LARGE_USED;
	static char *few[256] TPCK_LARGE_USED;
	struct tpck_text pair = tpck_text_in(text, sizeof text);
	size_t count = 0;

	while (environ && environ[count])
		count++;
	tpck_text_add(&pair, VARIABLE "=");
	tpck_text_add(&pair, job);
	if (count + 2 > sizeof few / sizeof *few || getenv(VARIABLE) || pair.cut) {
		setenv(VARIABLE, job, 1);
		return;
	}
	memcpy(few, environ, count * sizeof *few);
	few[count] = text;
	environ = few;
}

/* The job whose files this process sees: that of the program that started it, unless the settings name another. */
static TPCK_AT_START const char *job_of(const char *job)
{
	const char *inherited = getenv(VARIABLE);

	if (tpck_files_settings->job[0])
		return job;
	if (inherited && *inherited && *inherited != '.' && !strchr(inherited, '/'))
		return inherited;
	tell_children(job);
	return job;
}

static __attribute__((noinline)) void sweep(struct tpck_view *view)
{
	char lost[TPCK_VIEW_PATH + TPCK_VIEW_NAME];

	while (tpck_view_sweep(view, tpck_files_folder, lost))
		;
	tpck_files_revive();
}

/* Who began with another root than the job's first process has, as a child of chroot(1), or a container that shares the memory tier. */
static TPCK_AT_START bool has_another_root(struct tpck_view *view)
{
	if (tpck_view_has_root(view))
		return false;
	tpck_files_leave_root();
	tpck_log_info("this process has another root folder than job %s began with: its files are written as ever", who.job);
	return true;
}

TPCK_AT_START void tpck_files_start(const struct tpck_settings *settings, const char *job, const char *library, const char *start_folder)
{
	char shm[TPCK_SETTING_TEXT_MAX + 16];
	struct tpck_view *view = NULL;
	struct tpck_text folder;
	ssize_t got;

	tpck_files_settings = settings;
	got = tpck_sys_readlink("/proc/self/exe", shm, sizeof shm - 1);
	shm[got > 0 ? got : 0] = '\0';
	tpck_files_tool = tpck_rules_tool(shm);
	if (strcmp(settings->files, "none") == 0)
		return;
	job = job_of(job);
	tpck_settings_shm(settings, shm, sizeof shm);
	folder = tpck_text_in(tpck_files_folder, sizeof tpck_files_folder);
	tpck_text_add(&folder, shm);
	tpck_text_add(&folder, "/");
	tpck_text_bytes(&folder, job, strnlen(job, 200));
	who = (struct tpck_reach){
		.settings = settings, .environment = environ, .job = job, .library = library, .start_folder = start_folder,
	};
	home = tpck_sys_getpid();
	learns = tpck_rules_auto(settings) && !tpck_files_tool;
	tpck_files_verify_start(job, start_folder);
	off = false;
	tpck_files_ask_for_lost(&who);
	/* What others of the job have pending is seen from the first call on. */
	if (tpck_view_map(tpck_files_folder, false, &view))
		return;
	if (has_another_root(view)) {
		tpck_view_unmap(view);
		return;
	}
	atomic_store(&tpck_files_view, view);
	if (!tpck_files_idle())
		sweep(view);
}

TPCK_AT_START bool tpck_files_of_tool(void)
{
	return tpck_files_tool;
}

int32_t tpck_files_pid(void)
{
	return home;
}

uint64_t tpck_files_started(void)
{
	if (!started || started == TPCK_VIEW_STARTED_UNKNOWN)
		started = tpck_view_process_started(home);
	return started;
}

void tpck_files_pause(bool pause)
{
	paused = pause;
}

void tpck_files_leave_root(void)
{
	tpck_files_away = true;
}

bool tpck_files_may_take(void)
{
	return !off && !paused && !tpck_files_away && !takes_none;
}

void tpck_files_take_none(void)
{
	takes_none = true;
}

bool tpck_files_learns(void)
{
	return learns;
}

bool tpck_files_on(void)
{
	return !off && !tpck_files_away;
}

/* ---- the agent -------------------------------------------------------------------------------- */

static void complain(const char *why)
{
	if (!atomic_exchange(&complained, true))
		tpck_log_warn("%s; the program's files are written as ever", why);
}

/* Held as long as the process lives: the agent stays. */
static int connect_agent(struct tpck_error *err)
{
	struct tpck_message head = {TPCK_MESSAGE_MAGIC, TPCK_WIRE_VERSION, TPCK_MSG_FILES, 0, 0};
	int fd, old;

	who.environment = environ;
	fd = tpck_reach(&who, err);
	if (fd < 0)
		return fd;
	if (tpck_sys_sendto(fd, &head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0) != sizeof head) {
		tpck_sys_close(fd);
		return tpck_error_set(err, errno, "speaking to the agent at %s", who.socket);
	}
	old = atomic_exchange(&agent_socket, fd);
	if (old >= 0)
		tpck_sys_close(old);
	return 0;
}

/* The end of the connection is the end of the agent, even of one that nobody has waited for. */
static bool served(const struct tpck_view *view)
{
	int fd = agent_socket, agent = view->agent;
	char byte;
	bool is;

	if (fd < 0 || !agent)
		return agent && tpck_view_agent_serves(agent);
	is = tpck_sys_recvfrom(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) < 0 && errno == EAGAIN;
	atomic_store_explicit(&served_ns, is ? tpck_clock_tick_ns() : 0, memory_order_relaxed);
	return is;
}

/* One that was there a moment ago is taken to be: of one that has ended since, the next call, or the program's end, starts another. */
static bool served_lately(const struct tpck_view *view)
{
	return (agent_socket >= 0 && view->agent &&
		tpck_clock_tick_ns() - atomic_load_explicit(&served_ns, memory_order_relaxed) < SERVED_NS) || served(view);
}

static bool join(struct tpck_view *view, struct tpck_error *err)
{
	bool good = true;

	if (pthread_mutex_lock(&joining))
		return false;
	if (agent_socket < 0 || !served(view))
		good = !connect_agent(err);
	pthread_mutex_unlock(&joining);
	return good;
}

void tpck_files_revive(void)
{
	struct tpck_view *view = atomic_load(&tpck_files_view);
	struct tpck_error err = {0};
	int saved = errno;

	if (view && !served(view) && !join(view, &err) && err.text[0])
		complain(err.text);
	errno = saved;
}

void tpck_files_revive_soon(void)
{
	struct tpck_view *view = atomic_load(&tpck_files_view);

	if (view && !served_lately(view))
		tpck_files_revive();
}

void tpck_files_breathe(void)
{
	tpck_reach_pause(1);
	tpck_files_revive();
}

/* Another process of the job may have made one. It is looked for at most every TPCK_VIEW_LOOK_NS; who makes it does nothing else for
 * twice that time, so that whoever hears of its files finds it. */
bool tpck_files_no_table(void)
{
	char table[TPCK_VIEW_PATH / 2 + 64];
	struct tpck_view *view = NULL, *old;
	uint64_t now;
	int saved = errno;

	if (off || tpck_files_away)
		return true;
	now = tpck_clock_monotonic_ns();
	if (now - atomic_load_explicit(&looked_ns, memory_order_relaxed) < TPCK_VIEW_LOOK_NS)
		return true;
	atomic_store_explicit(&looked_ns, now, memory_order_relaxed);
	snprintf(table, sizeof table, "%s/" TPCK_VIEW_FOLDER "/" TPCK_VIEW_TABLE, tpck_files_folder);
	if (!tpck_sys_faccessat(AT_FDCWD, table, F_OK) && !pthread_mutex_lock(&joining)) {
		old = atomic_load(&tpck_files_view);
		if ((!old || old->ended) && !tpck_view_map(tpck_files_folder, false, &view)) {
			if (view->ended || has_another_root(view))
				tpck_view_unmap(view);
			else
				atomic_store(&tpck_files_view, view); /* others may be looking into the old one */
		}
		pthread_mutex_unlock(&joining);
	}
	errno = saved;
	view = atomic_load(&tpck_files_view);
	return !view || view->ended || !view->used;
}

static __attribute__((noinline)) void refused(struct tpck_error *err)
{
	char shm[TPCK_SETTING_TEXT_MAX + 16];
	int tier;

	tpck_settings_shm(tpck_files_settings, shm, sizeof shm);
	tier = tpck_door_open(AT_FDCWD, shm, TPCK_DOOR_STICKY | TPCK_DOOR_ABOVE);
	tpck_door_refused(tier < 0 ? shm : tpck_files_folder, -EPERM, "TRANSPCKPT_SHM", err);
	if (tier >= 0)
		tpck_sys_close(tier);
}

/* `learning`: nothing of the program's depends on it; where there is none nothing is learnt, and nothing said. */
static struct tpck_view *ready(bool learning)
{
	struct tpck_view *view = atomic_load(&tpck_files_view), *mapped = NULL;
	struct tpck_error err = {0};
	int saved = errno, rc = 0;

	took = took || !learning;
	if (view && !view->ended && agent_socket >= 0 && served_lately(view))
		return view;
	if (!view || view->ended) {
		if (pthread_mutex_lock(&joining))
			return NULL;
		view = atomic_load(&tpck_files_view);
		if (!view || view->ended) {
			/* The agent begins while the table is made; where that cannot be, or another root's is there, none begins. */
			who.environment = environ;
			if (!learning && tpck_view_missing(tpck_files_folder))
				tpck_reach_ahead(&who);
			/* Others may be looking into the old one: it stays mapped. */
			rc = tpck_view_map(tpck_files_folder, true, &mapped);
			if (!rc && has_another_root(mapped)) {
				tpck_view_unmap(mapped);
				mapped = NULL;
			}
			if (!rc && mapped)
				atomic_store(&tpck_files_view, mapped);
			view = mapped;
		}
		pthread_mutex_unlock(&joining);
		if (!rc && !view) {
			errno = saved;
			return NULL;
		}
	}
	if (rc == -EPERM)
		refused(&err);
	else if (rc)
		tpck_error_set(&err, -rc, "cannot use %s/" TPCK_VIEW_FOLDER, tpck_files_folder);
	if (rc || !join(view, &err))
		view = NULL;
	if (!view && err.text[0] && learning) {
		learns = false;
	} else if (!view && err.text[0]) {
		complain(err.text);
		off = true;
	}
	errno = saved;
	return view;
}

struct tpck_view *tpck_files_ready(void)
{
	return ready(false);
}

struct tpck_view *tpck_files_ready_to_learn(void)
{
	return ready(true);
}

struct tpck_view *tpck_files_lock(void)
{
	struct tpck_view *view = atomic_load(&tpck_files_view);

	for (int tries = 0; view && tries < 3; tries++) {
		if (!tpck_view_lock(view))
			return NULL;
		if (!view->ended)
			return view;
		tpck_view_unlock(view);
		view = tpck_files_ready();
	}
	return NULL;
}

/* ---- waiting for the agent -------------------------------------------------------------------- */

/* What is owed to a file system up to this order may wait for what is owed to others: up to where. */
static uint64_t order_of_all(const struct tpck_view *view, uint64_t order, uint64_t device)
{
	uint32_t left = view->used;
	uint64_t all = 0;

	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		const struct tpck_view_entry *entry = &view->entry[i];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (entry->state != TPCK_VIEW_OPEN && entry->order > all && entry->order <= order &&
		    tpck_view_device_of(view, entry) == device && tpck_view_after_all(entry))
			all = entry->order;
	}
	return all;
}

/* The first errno that keeps an entry up to this order, 0 if only time does, -1: none is left. */
static int owed(const struct tpck_view *view, uint64_t order, uint64_t device)
{
	uint64_t all = device ? order_of_all(view, order, device) : order;
	uint32_t left = view->used;
	int error = -1;

	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		const struct tpck_view_entry *entry = &view->entry[i];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (entry->state != TPCK_VIEW_OPEN && error <= 0 &&
		    (entry->order <= all || (entry->order <= order && tpck_view_device_of(view, entry) == device)))
			error = entry->error;
		/* Nothing has one, and of thousands the first says that something is left. */
		if (!error && !view->failing)
			break;
	}
	return error;
}

int tpck_files_await(uint64_t order, uint64_t device)
{
	uint64_t failing_ns = 0, now;
	int saved = errno, error = EIO;
	struct tpck_view *view;

	while ((view = tpck_files_lock())) {
		uint32_t seen = view->done;

		error = owed(view, order, device);
		tpck_view_unlock(view);
		if (error < 0)
			break;
		now = tpck_clock_monotonic_ns();
		if (!error)
			failing_ns = 0;
		else if (!failing_ns)
			failing_ns = now;
		else if (now - failing_ns > GIVE_UP_NS)
			break;
		tpck_view_await(view, order);
		tpck_view_tell(&view->news);
		tpck_files_revive();
		tpck_view_wait(&view->done, seen, LOOK_MS);
	}
	errno = saved;
	return error < 0 ? 0 : error;
}

bool tpck_files_settle(void)
{
	struct tpck_view *view;
	uint64_t order;

	if (tpck_files_idle() || !(view = tpck_files_lock()))
		return true;
	order = view->order;
	tpck_view_unlock(view);
	return tpck_files_await(order, 0) == 0;
}

static TPCK_FILES_SLOW bool seen_settle_at(int folder, const char *path)
{
	char parent[TPCK_FILES_PATH];
	struct tpck_view *view;
	struct stat found;
	const char *name;
	uint64_t order;

	/* One that ends in a slash, or in dots: a folder. */
	if (!tpck_files_split(path, parent, &name))
		snprintf(parent, sizeof parent, "%s", path);
	if (tpck_sys_fstatat(folder, parent, &found, 0))
		return tpck_files_settle();
	view = tpck_files_lock();
	if (!view)
		return true;
	order = view->order;
	tpck_view_unlock(view);
	return tpck_files_await(order, found.st_dev) == 0;
}

bool tpck_files_settle_at(int folder, const char *path)
{
	int saved = errno;
	bool good;

	if (tpck_files_idle())
		return true;
	good = path ? seen_settle_at(folder, path) : tpck_files_settle();
	errno = saved;
	return good;
}

static TPCK_FILES_SLOW void seen_settle(const char *path)
{
	struct tpck_pending pending;

	if (tpck_files_look(AT_FDCWD, path, true, &pending) != TPCK_SEEN_REAL)
		(void)tpck_files_settle_at(AT_FDCWD, path);
}

void tpck_files_settle_path(const char *path)
{
	if (!tpck_files_idle())
		seen_settle(path);
}

/* ---- fork and end ----------------------------------------------------------------------------- */

void tpck_files_forked(void)
{
	tpck_files_descriptors_forked();
	tpck_files_verify_forked();
	took = false;
	joining = (pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
	home = tpck_sys_getpid();
	started = 0;
}

static void at_its_end(struct tpck_view *view, int32_t pid)
{
	uint32_t left = view->used;

	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		struct tpck_view_holder *holder;

		if (view->entry[i].state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (view->entry[i].state == TPCK_VIEW_OPEN && (holder = tpck_view_holder_of(&view->entry[i], pid, 0)))
			holder->ending = 1;
	}
}

static TPCK_AT_START void wait_for_owed(double seconds)
{
	int saved = errno, error = -1;
	struct tpck_view *view;
	uint64_t order = 0, until, say;
	bool said = false;

	/* A child that shares this memory (vfork) is not the program. */
	if (off || !atomic_load(&tpck_files_view) || home != tpck_sys_getpid() || (!tpck_files_away && tpck_files_idle()))
		return;
	tpck_files_release_unseen();
	if (!(view = tpck_files_lock()))
		return;
	at_its_end(view, home);
	order = view->order;
	tpck_view_unlock(view);
	if (!took)
		return;
	until = tpck_clock_monotonic_ns() + (uint64_t)(seconds * 1e9);
	say = tpck_clock_monotonic_ns() + SAY_MS * 1000000ull;
	while (tpck_clock_monotonic_ns() < until && (view = tpck_files_lock())) {
		uint32_t seen = view->done;

		error = owed(view, order, 0);
		tpck_view_unlock(view);
		if (error)
			break;
		if (!said && isatty(2) && tpck_clock_monotonic_ns() > say) {
			tpck_log_warn("waiting until the program's files are durable (TRANSPCKPT_EXIT_WAIT_SEC=%.0f)", seconds);
			said = true;
		}
		tpck_view_await(view, order);
		tpck_view_tell(&view->news);
		tpck_files_revive();
		tpck_view_wait(&view->done, seen, LOOK_MS);
	}
	if (error >= 0)
		tpck_log_warn("some of the program's files are not durable yet%s%s; the agent goes on", error ? ": " : "",
			      error ? strerror(error) : "");
	errno = saved;
}

/* Without it the agent takes the end of the connection for a death, and keeps the copies in memory for the next start. */
static TPCK_AT_START void say_end(int status)
{
	struct {
		struct tpck_message head;
		struct tpck_ending ending;
	} packet = {{TPCK_MESSAGE_MAGIC, TPCK_WIRE_VERSION, TPCK_MSG_ENDING, sizeof packet.ending, 0}, {.status = status}};
	int fd = agent_socket, saved = errno;

	if (fd >= 0 && home == tpck_sys_getpid())
		(void)!tpck_sys_sendto(fd, &packet, sizeof packet, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0);
	errno = saved;
}

TPCK_AT_START void tpck_files_end(int status, double seconds)
{
	wait_for_owed(seconds);
	say_end(status);
}
