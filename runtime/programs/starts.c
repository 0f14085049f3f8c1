/* SPDX-License-Identifier: Apache-2.0 */
/* What is started while running forward, and by what. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/base/readable.h"
#include "runtime/base/text.h"
#include "runtime/base/unsignalled.h"
#include "runtime/follow/caches.h"
#include "runtime/follow/follow.h"
#include "runtime/programs/programs_private.h"
#include "runtime/track/threads.h"
#include "runtime/wire/segment.h"

/* What has run for so long will go on running. */
#define SERVICE_NS 30000000000ull
/* OTHER_NUMBER: no thread of a forked child starts so many programs. */
enum { NAMES = TPCK_PROGRAM_NAMES, OTHER_NUMBER = 1 << 20 };
static bool forwarding;
static struct tpck_standin_page *page;
static char session[300] TPCK_LARGE, standin[300] TPCK_LARGE;
static char difference[200];
/* Where the thread stands that makes a child. */
static __thread enum tpck_forward stands __attribute__((tls_model("initial-exec"))) = TPCK_FORWARD_FOREIGN;
/* The program that a thread is about to start goes on with this program's work. */
static __thread bool starts_worker __attribute__((tls_model("initial-exec")));
static char *nothing[1];
static _Atomic bool abandoned;
static const char *own_library;
static uint64_t roots_boundary_ns; /* of a program that was started */
/* A thread without a place at the boundary, a forked child, or a program that was started goes at a pace of its own: what the record has of it is not done again,
 * whether the process with the log is live by then or not. So it is of a process that has run forward, or was made by one that did. */
static bool trails;
static _Atomic uint32_t paused; /* calls of system() that wait for this process to be live */

/* ---- running forward -------------------------------------------------------------------------------- */

/* In a program that was started: what waited for its root goes on, and what is there belongs to the record. */
static void go_live(void)
{
	uint32_t used = tpck_children_used();

	for (uint32_t i = 0; i < used; i++) {
		struct tpck_child *at = &tpck_children[i];
		const struct tpck_known *of = atomic_load(&at->pid) ? tpck_known_of(at->thread, at->ordinal) : NULL;
		uint32_t waits = TPCK_DOING_WAITS;

		if (!at->ahead)
			atomic_store(&at->noted, !of ? 0 : TPCK_NOTED_START | (of->ended ? TPCK_NOTED_END : 0));
		(void)atomic_compare_exchange_strong(&at->doing, &waits, TPCK_DOING_PROGRAM);
	}
	if (*tpck_children_again())
		tpck_log_warn("what some programs said or wrote the first time that a worker or service starts is not known, and they were started again: %s",
			      tpck_children_again());
}

bool tpck_programs_forwarding(void)
{
	/* A forked child goes live with the process that runs forward. */
	if (forwarding && tpck_child_nested() && page && atomic_load(&page->live)) {
		forwarding = false;
		if (roots_boundary_ns)
			go_live();
	}
	return forwarding;
}

bool tpck_starts_follow(void)
{
	return tpck_programs_forwarding() || trails;
}

_Atomic uint32_t tpck_programs_output;

void tpck_starts_output(unsigned descriptors)
{
	atomic_store(&tpck_programs_output, tpck_programs_forwarding() ? descriptors : 0);
}

bool tpck_programs_drops_slow(int fd)
{
	int saved = errno;

	(void)tpck_undecided_look();
	if (!tpck_programs_forwarding())
		atomic_store(&tpck_programs_output, 0);
	errno = saved;
	return (fd == 1 || fd == 2) && atomic_load(&tpck_programs_output) & 1u << fd;
}

/* Beside the library when it is installed, or where both were built. */
static bool find_standin(const char *library)
{
	const char *slash = strrchr(library, '/');
	int length = slash ? (int)(slash - library) : 1;

	snprintf(standin, sizeof standin, "%.*s/transpckpt/standin", length, slash ? library : ".");
	if (!tpck_sys_faccessat(AT_FDCWD, standin, X_OK))
		return true;
	snprintf(standin, sizeof standin, "%.*s/../tools/standin/standin", length, slash ? library : ".");
	return !tpck_sys_faccessat(AT_FDCWD, standin, X_OK);
}

/* is_new: else it is its root's. */
static int open_page(bool is_new)
{
	struct tpck_unsignalled signals;
	char path[340];
	int fd;

	snprintf(path, sizeof path, "%s/" TPCK_STANDIN_CONTROL, session);
	if (is_new)
		tpck_sys_unlinkat(AT_FDCWD, path, 0);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDWR | (is_new ? O_CREAT | O_EXCL : 0) | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	tpck_unsignalled_begin(&signals);
	page = is_new && tpck_sys_ftruncate(fd, sizeof *page) ? MAP_FAILED : tpck_sys_mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	tpck_unsignalled_end(&signals);
	tpck_sys_close(fd);
	if (page == MAP_FAILED) {
		page = NULL;
		return -ENOMEM;
	}
	return 0;
}

bool tpck_starts_learn(const char *folder, struct tpck_log_position cut)
{
	const struct tpck_record *record;
	struct tpck_log_reader *reader;

	if (tpck_log_open(&reader, folder, cut))
		return false;
	while ((record = tpck_log_next(reader)))
		if (record->type == TPCK_RECORD_PROGRAM)
			tpck_programs_learn(record);
	return true;
}

/* A twin's record is the living one's. */
static bool learn_roots(const struct tpck_root *root)
{
	return atomic_load(&page->follows) ? tpck_undecided_learn() : tpck_starts_learn(session, root->cut);
}

/* In a program that was started while its root ran forward: what it starts is stood in for as there. The records stay mapped. */
static void follow(const struct tpck_root *root)
{
	snprintf(session, sizeof session, "%s", root->session);
	if (strlen(root->session) >= sizeof session || !find_standin(own_library) || open_page(false) || !learn_roots(root)) {
		tpck_log_warn("what this program starts, and the first run had started, is started again: what stands in for it, or the record in %s, cannot be used",
			      root->session);
		return;
	}
	roots_boundary_ns = root->boundary_ns;
	trails = true;
	if (!root->forwards)
		return;
	forwarding = true;
	tpck_starts_output(tpck_written_outputs());
	tpck_follow_see(session);
	tpck_undecided_started();
}

int tpck_programs_forward(const char *folder, const char *library)
{
	int result = 0;

	snprintf(session, sizeof session, "%s", folder);
	if (strlen(folder) >= sizeof session)
		result = -ENAMETOOLONG;
	else if (!find_standin(library))
		result = -ENOENT;
	else
		result = open_page(true);
	forwarding = trails = !result;
	/* A twin gives and inherits when it takes over. */
	if (!tpck_forward_follows())
		tpck_programs_give();
	tpck_follow_show(session);
	if (!tpck_forward_follows())
		tpck_unwritten_inherit();
	return result;
}

/* Who was started before knows the former one. */
void tpck_starts_move(const char *to)
{
	char old[340], new[340];

	if (!page)
		return;
	snprintf(old, sizeof old, "%s/" TPCK_STANDIN_CONTROL, session);
	snprintf(new, sizeof new, "%s/" TPCK_STANDIN_CONTROL, to);
	(void)tpck_sys_linkat(AT_FDCWD, old, AT_FDCWD, new, 0);
	tpck_follow_show_too(session, to);
	snprintf(session, sizeof session, "%s", to);
}

TPCK_AT_START void tpck_programs_started(void (*how)(void), const char *library)
{
	own_library = library;
	tpck_written_started(how);
}

void tpck_programs_belongs(const struct tpck_root *root)
{
	int saved = errno;

	tpck_written_belongs(root);
	tpck_child_belongs(root);
	if (root)
		tpck_unwritten_belongs(root);
	if (root && root->follows && own_library)
		follow(root);
	errno = saved;
}

/* Whether the log has the end of what the thread starts next. */
static bool has_end(const void *of)
{
	const struct tpck_thread *self = of;
	const struct tpck_known *next = tpck_known_of(self->id, self->programs);

	return next && __atomic_load_n(&next->ended, __ATOMIC_ACQUIRE);
}

/* The same, or that a child which the thread makes next goes on in the same program, and has changed no file that others know: the thread itself has gone on behind that. */
static bool may_fork(const void *of)
{
	const struct tpck_thread *self = of;

	return has_end(of) || (tpck_known_goes_on(self->id, self->programs) && tpck_forward_goes_on(self));
}

/* A twin does nothing that the run before it has not done: what is still at work there is waited for, as long as it takes. */
static void await_that(bool (*what)(const void *of), struct tpck_thread *self)
{
	if (!forwarding || tpck_child_nested())
		return;
	tpck_forward_await_that(what, self);
	stands = tpck_forward_stands(self);
}

void tpck_starts_thread(struct tpck_thread *self)
{
	await_that(starts_worker ? may_fork : has_end, self);
}

void tpck_starts_fork(struct tpck_thread *self)
{
	await_that(may_fork, self);
}

const char *tpck_starts_folder(void)
{
	return session;
}

struct tpck_standin_page *tpck_starts_page(void)
{
	return page;
}

bool tpck_starts_forked(int place)
{
	const struct tpck_known *of = trails ? tpck_known_of(tpck_children[place].thread, tpck_children[place].ordinal) : NULL;

	/* Of one that stays the record has no word. */
	if (!forwarding && !of)
		trails = trails && tpck_children[place].nested && !tpck_child_has_passed(place);
	/* One that had ended is on its way; of one that had not nobody knows how far it had come. */
	if (trails)
		stands = of && of->ended && !of->lost ? TPCK_FORWARD_SAME : TPCK_FORWARD_FOREIGN;
	return of && of->ended && !of->lost;
}

void tpck_programs_hide(void)
{
	int place = tpck_child_here();
	const struct tpck_known *of = forwarding && place >= 0 ? tpck_known_of(tpck_children[place].thread, tpck_children[place].ordinal) : NULL;

	for (const struct tpck_known_made *made = of ? of->made : NULL; made; made = made->next)
		tpck_follow_hide(made->path);
}

static void end_page(uint32_t live)
{
	if (!page)
		return;
	atomic_store(&page->live_ns, tpck_clock_monotonic_ns());
	atomic_store(&page->live, live);
}

static void say_behind(uint64_t step, bool tried, const char *who)
{
	unsigned count;
	const char *names = tpck_known_behind(tried, &count);

	if (count)
		tpck_log_warn("what comes behind step %llu is done again, with what it starts; %s started %u programs there: %s", (unsigned long long)step, who, count, names);
}

void tpck_programs_live(uint64_t step)
{
	uint32_t used = tpck_children_used();
	char names[NAMES] = "", services[NAMES] = "", unseen[NAMES] = "", files[NAMES] = "", ahead[NAMES] = "";
	unsigned count = 0;

	for (uint32_t i = 0; forwarding && i < used; i++) {
		struct tpck_child *at = &tpck_children[i];
		const struct tpck_known *of = atomic_load(&at->pid) ? tpck_known_of(at->thread, at->ordinal) : NULL;

		if (!of && !at->ahead)
			atomic_store(&at->noted, 0);
		if (of) {
			atomic_store(&at->noted, TPCK_NOTED_START | (of->ended ? TPCK_NOTED_END : 0));
			if (!of->lost && !of->ended && atomic_load(&at->doing) == TPCK_DOING_PROGRAM)
				tpck_child_name_add(tpck_unseen(atomic_load(&at->pid), files) ? unseen : services, at->name);
		} else if (atomic_load(&at->pid) > 0 && at->nested && atomic_load(&at->doing) == TPCK_DOING_PROGRAM) {
			tpck_child_name_add(ahead, at->name);
		}
		if (atomic_load(&at->pid) && atomic_load(&at->doing) == TPCK_DOING_WAITS) {
			atomic_store(&at->doing, TPCK_DOING_PROGRAM);
			count += of != NULL;
			if (of)
				tpck_child_name_add(names, at->name);
		}
	}
	if (*tpck_children_again())
		tpck_log_warn("what some programs said or wrote the first time is not known, and they were started again on the way to step %llu: %s",
			      (unsigned long long)step, tpck_children_again());
	if (ahead[0])
		tpck_log_info("forked children were ahead of step %llu, with what they started: %s", (unsigned long long)step, ahead);
	if (services[0])
		tpck_log_info("programs that had run for long, or are spoken with, were started again on the way to step %llu: %s", (unsigned long long)step,
			      services);
	if (unseen[0])
		tpck_log_warn("services that this library is not in (linked statically, or started with another environment) were started again on the way to "
			      "step %llu, and may have sent and written once more what they had: %s%s%s", (unsigned long long)step, unseen,
			      files[0] ? "; open to write: " : "", files);
	if (count)
		tpck_log_warn("%u programs that the first run had started were not at their end at step %llu, and are started anew: %s", count,
			      (unsigned long long)step, names);
	say_behind(step, false, "the first run");
	say_behind(step, true, "starts that left no snapshot");
	tpck_child_mail_learnt();
	forwarding = false;
	end_page(1);
}

void tpck_programs_abandon(void)
{
	atomic_store(&abandoned, true);
	forwarding = false;
	end_page(2);
}

const char *tpck_programs_difference(void)
{
	uint32_t used = tpck_children_used();

	for (uint32_t i = 0; forwarding && !difference[0] && i < used; i++)
		if (atomic_load(&tpck_children[i].noted) & TPCK_NOTED_UNKNOWN && atomic_load(&tpck_children[i].pid))
			snprintf(difference, sizeof difference,
				 atomic_load(&tpck_children[i].noted) & TPCK_NOTED_NO_END
					 ? "a program is waited for whose end is not in the record: %s"
					 : "a program is started that the first run did not start there: %s", tpck_children[i].name);
	return difference[0] ? difference : NULL;
}

enum tpck_programs_stop tpck_programs_stops(uint32_t *polls)
{
	uint32_t used = tpck_children_used();
	enum tpck_programs_stop stop = forwarding && atomic_load(&paused) ? TPCK_PROGRAMS_MAY_STOP : TPCK_PROGRAMS_GO;

	*polls = 0;
	for (uint32_t i = 0; forwarding && i < used; i++) {
		const struct tpck_child *at = &tpck_children[i];

		/* What system() starts has no number here. */
		if (!atomic_load(&at->pid))
			continue;
		if (atomic_load(&at->noted) & TPCK_NOTED_AWAITED)
			return TPCK_PROGRAMS_STOP;
		if (atomic_load(&at->doing) == TPCK_DOING_WAITS) {
			stop = TPCK_PROGRAMS_MAY_STOP;
			*polls += atomic_load(&at->polls);
		}
	}
	return stop;
}

/* ---- which ones are started ------------------------------------------------------------------------- */

/* How programs begin that go on with their parent's work: an argument that contains this. */
static const char *const workers[] = {
	"from multiprocessing.", "--multiprocessing-fork", "loky.backend", "torch/_inductor/compile_worker", "torch._inductor.compile_worker",
	"concurrent.futures.process",
};

TPCK_AT_START bool tpck_programs_is_worker(char *const arguments[])
{
	for (size_t i = 0; arguments && arguments[0] && i < 12 && arguments[i]; i++)
		for (size_t w = 0; w < sizeof workers / sizeof *workers; w++)
			if (strstr(arguments[i], workers[w]))
				return true;
	return false;
}

/* Whether the name is one of these, maybe with a target before it or a version behind it: x86_64-linux-gnu-gcc-12. */
static bool is_compiler(const char *path)
{
	static const char *const names[] = {"gcc", "g++", "cc", "c++", "clang", "clang++", "ld", "as", "ar", "nvcc", "ptxas", "cicc", "nvlink", "fatbinary",
					    "cuobjdump", "nvdisasm", "ninja", "make", "cmake"};
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *found = strstr(name, names[i]), *end = found ? found + strlen(names[i]) : NULL;

		if (found && (found == name || found[-1] == '-') && (!*end || (*end == '-' && end[1] >= '0' && end[1] <= '9')))
			return true;
	}
	return false;
}

static bool is_scratch(const char *path)
{
	return path[0] == '/' && strlen(path) < 4096 && (tpck_follow_scratch(path) || tpck_caches_hold(path));
}

/* Whether an argument is, or ends in, a path that only this run has, as of the file in which a service says its port. */
static bool names_scratch(char *const arguments[])
{
	for (size_t i = 1; arguments && arguments[0] && arguments[i]; i++) {
		const char *path = strchr(arguments[i], '/');

		if (path && is_scratch(path))
			return true;
	}
	return false;
}

/* A program that is asked for its version does nothing else. A pool of threads that compile asks by whichever has something to do. */
static bool tells_version(char *const arguments[])
{
	return arguments && arguments[0] && arguments[1] && !arguments[2] && (strcmp(arguments[1], "--version") == 0 || strcmp(arguments[1], "-V") == 0);
}

/* A compiler that works on what only this run has, or on nothing. */
static bool compiles(const char *path, char *const arguments[])
{
	char folder[4096];
	long got;

	if (!is_compiler(path))
		return false;
	if (tells_version(arguments) || names_scratch(arguments))
		return true;
	got = tpck_sys_getcwd(folder, sizeof folder);
	return got > 0 && is_scratch(folder);
}

/* One that is spoken with, or that has run for long by the boundary, as wandb's and Ray's do, is waited for before the program goes on. After the
 * machine was started again its age is not known. */
static bool is_service(const struct tpck_known *of)
{
	uint64_t then = roots_boundary_ns ? roots_boundary_ns : tpck_forward_boundary_ns();

	return of->started->flags & TPCK_PROGRAM_TALKS || then < of->started->made_ns || then - of->started->made_ns > SERVICE_NS;
}

static uint64_t digest_of(char *const arguments[])
{
	uint64_t digest = 0;

	for (size_t i = 0; arguments && arguments[i]; i++)
		digest = tpck_digest64(arguments[i], strlen(arguments[i]) + 1, digest);
	return digest;
}

/* What the log has of the program at the place. Forked children that share work, as a pool's, may have it otherwise than in the first run: which
 * program is which follows from what it is given. */
static const struct tpck_known *record_for(int place, uint64_t path)
{
	struct tpck_child *at = &tpck_children[place];
	struct tpck_known *own = tpck_known_of(at->thread, at->ordinal), *other;

	if (!at->nested || (tpck_known_is(own, path) && own->started->arguments == at->arguments && tpck_known_take(own, page)))
		return own;
	do {
		other = forwarding || !tpck_child_has_passed(place) ? tpck_known_alike(path, at->arguments, page) : NULL;
	} while (other && !tpck_known_take(other, page));
	if (!other)
		/* Of a child that had ended all is known, in its order; of another one this may be another program of the same name. */
		return stands == TPCK_FORWARD_SAME ? own : NULL;
	at->thread = other->started->thread;
	at->ordinal = other->started->ordinal;
	return other;
}

/* The record does not have the place's program. It gets it under a number that it has no other one by. */
static void is_new(int place)
{
	struct tpck_child *at = &tpck_children[place];

	while (tpck_known_of(at->thread, at->ordinal))
		at->ordinal += OTHER_NUMBER;
	at->ahead = forwarding;
	if (!forwarding)
		tpck_child_passes(place);
}

/* The process with the log is live, and this one has not come so far yet. *of: what the record has of the place's program, which becomes NULL where that is
 * another one. */
static enum tpck_doing decide_behind(int place, char *const arguments[], const struct tpck_known **of)
{
	struct tpck_child *at = &tpck_children[place];

	if (*of && ((*of)->forked || (*of)->started->path != at->path))
		*of = NULL;
	if (*of && tpck_clock_monotonic_ns() - atomic_load(&page->live_ns) > TPCK_BEHIND_NS) {
		tpck_log_warn("who is not as far as in the first run a minute after the program was live starts again what that had started: %s", (*of)->name);
		*of = NULL;
	}
	if (!*of) {
		is_new(place);
		return TPCK_DOING_PROGRAM;
	}
	if ((*of)->lost || (*of)->ended)
		atomic_store(&at->noted, TPCK_NOTED_START | ((*of)->ended ? TPCK_NOTED_END : 0));
	if ((*of)->lost)
		tpck_log_warn("what a program said or wrote the first time is not known, and it is started again by a process that was behind: %s", (*of)->name);
	else if (!(*of)->ended)
		/* What it says goes into the record once more, behind this start. */
		tpck_log_warn("a program that the first run had started was not at its end, and is started anew by a process that was behind: %s", (*of)->name);
	if ((*of)->lost)
		return TPCK_DOING_PROGRAM;
	if ((*of)->ended)
		return TPCK_DOING_STANDIN;
	return is_service(*of) || names_scratch(arguments) ? TPCK_DOING_PROGRAM : TPCK_DOING_WAITS;
}

static enum tpck_doing decide(int place, const char *path, char *const arguments[], const struct tpck_known **of)
{
	struct tpck_child *at = &tpck_children[place];
	char buffer[TPCK_PROGRAM_PATH];
	const char *program = tpck_child_program(path, buffer, sizeof buffer);

	*of = NULL;
	at->arguments = digest_of(arguments);
	if (tpck_programs_is_worker(arguments))
		return TPCK_DOING_WORKER;
	if (!tpck_starts_follow() || compiles(path, arguments))
		return TPCK_DOING_PROGRAM;
	at->path = tpck_digest64(program, strlen(program), 0);
	tpck_undecided_await(at);
	*of = record_for(place, at->path);
	if (!forwarding)
		return decide_behind(place, arguments, of);
	if (!*of) {
		/* A forked child that goes on may be ahead, and its parent may wait for what it does. */
		if (at->nested && stands != TPCK_FORWARD_SAME) {
			is_new(place);
			return TPCK_DOING_PROGRAM;
		}
		if (stands == TPCK_FORWARD_SAME)
			atomic_store(&at->noted, TPCK_NOTED_UNKNOWN);
		else if (stands == TPCK_FORWARD_END)
			atomic_store(&at->noted, TPCK_NOTED_AWAITED);
		return TPCK_DOING_WAITS;
	}
	if ((*of)->forked || (*of)->started->path != at->path) {
		atomic_store(&at->noted, TPCK_NOTED_UNKNOWN);
		return TPCK_DOING_WAITS;
	}
	if ((*of)->lost) {
		tpck_child_again((*of)->name);
		return TPCK_DOING_PROGRAM;
	}
	if ((*of)->ended)
		return TPCK_DOING_STANDIN;
	return is_service(*of) || names_scratch(arguments) ? TPCK_DOING_PROGRAM : TPCK_DOING_WAITS;
}

/* ---- plans -------------------------------------------------------------------------------------------- */

struct out {
	int fd;
	bool bad;
	size_t used;
	char bytes[1024];
};

static void out_flush(struct out *out)
{
	if (out->used && tpck_sys_write(out->fd, out->bytes, out->used) != (long)out->used)
		out->bad = true;
	out->used = 0;
}

static void out_put(struct out *out, const void *bytes, size_t count)
{
	if (out->used + count > sizeof out->bytes)
		out_flush(out);
	if (count > sizeof out->bytes) {
		if (tpck_sys_write(out->fd, bytes, count) != (long)count)
			out->bad = true;
		return;
	}
	memcpy(out->bytes + out->used, bytes, count);
	out->used += count;
}

static void out_text(struct out *out, const char *text)
{
	out_put(out, text, strlen(text) + 1);
}

static uint32_t count_of(char *const list[])
{
	uint32_t count = 0;

	while (list && list[count])
		count++;
	return count;
}

static uint32_t closes(const struct tpck_known *of, int stream)
{
	return of && of->closed & 1u << stream ? TPCK_STANDIN_CLOSES(stream) : 0;
}

/* Whether the program at the place is played, or started later; then *instead is executed. */
static bool stood_in(int place, enum tpck_doing doing, const struct tpck_known *of, const char *path, char *const arguments[],
		     char *const variables[], struct tpck_programs_instead *instead)
{
	struct tpck_standin_plan plan = {
		.magic = TPCK_STANDIN_MAGIC, .version = TPCK_WIRE_VERSION, .place = (uint32_t)place,
		.flags = doing == TPCK_DOING_WAITS ? TPCK_STANDIN_STARTS | closes(of, 1) | closes(of, 2) : 0, .status = of ? of->status : 0,
		.arguments = count_of(arguments), .variables = count_of(variables),
	};
	struct out out = {.bad = false};

	if (doing != TPCK_DOING_STANDIN && doing != TPCK_DOING_WAITS)
		return false;
	for (const struct tpck_known_said *said = of ? of->said : NULL; said; said = said->next)
		plan.output += sizeof(struct tpck_standin_piece) + said->bytes;
	/* Places of others' stand-ins are counted from the other end. */
	if (roots_boundary_ns)
		tpck_children[place].seat = plan.place = TPCK_STANDIN_PLACES - 1 - atomic_fetch_add(&page->others, 1) % (TPCK_STANDIN_PLACES / 2);
	snprintf(plan.control, sizeof plan.control, "%s/" TPCK_STANDIN_CONTROL, session);
	snprintf(instead->plan, sizeof instead->plan, "%s/" TPCK_STANDIN_PLAN ".%u.%u.%d", session, tpck_children[place].thread,
		 tpck_children[place].ordinal, (int)plan.place);
	atomic_store(&page->finish[plan.place], 0);
	tpck_sys_unlinkat(AT_FDCWD, instead->plan, 0);
	out.fd = tpck_sys_openat(AT_FDCWD, instead->plan, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out.fd < 0) {
		atomic_store(&tpck_children[place].noted, TPCK_NOTED_UNKNOWN);
		return false;
	}
	out_put(&out, &plan, sizeof plan);
	for (const struct tpck_known_said *said = of ? of->said : NULL; said; said = said->next) {
		struct tpck_standin_piece piece = {said->record->stream, said->bytes};

		out_put(&out, &piece, sizeof piece);
		out_put(&out, said->record + 1, said->bytes);
	}
	out_text(&out, path);
	for (uint32_t i = 0; i < plan.arguments; i++)
		out_text(&out, arguments[i]);
	for (uint32_t i = 0; i < plan.variables; i++)
		out_text(&out, variables[i]);
	out_flush(&out);
	tpck_sys_close(out.fd);
	if (out.bad)
		atomic_store(&tpck_children[place].noted, TPCK_NOTED_UNKNOWN);
	instead->path = standin;
	instead->plays = doing == TPCK_DOING_STANDIN;
	instead->arguments[0] = (char *)"transpckpt-standin";
	instead->arguments[1] = instead->plan;
	instead->arguments[2] = NULL;
	instead->variables[0] = nothing[0];
	return true;
}

/* A thread waits for the end of a program that begins only once this process is live. One that stands at the boundary goes no further; of one that
 * does not, the log would have that end. */
static void await(struct tpck_child *at, enum tpck_forward where, bool known)
{
	if (where == TPCK_FORWARD_END)
		atomic_fetch_or(&at->noted, TPCK_NOTED_AWAITED);
	else if (where == TPCK_FORWARD_SAME)
		atomic_fetch_or(&at->noted, TPCK_NOTED_UNKNOWN | (known ? TPCK_NOTED_NO_END : 0));
}

/* ---- starting ----------------------------------------------------------------------------------------- */

bool tpck_programs_execute(const char *path, char *const arguments[], char *const variables[], struct tpck_programs_instead *instead)
{
	const struct tpck_known *of = NULL;
	int saved = errno, place;
	enum tpck_doing doing;
	bool other = false;

	starts_worker = tpck_readable_list(arguments) && tpck_programs_is_worker(arguments);
	place = tpck_child_here();
	/* The search along PATH comes by with files that are not there. */
	if (place >= 0 && tpck_readable_list(arguments) && tpck_readable_list(variables) && !tpck_sys_faccessat(AT_FDCWD, path, X_OK)) {
		doing = decide(place, path, arguments, &of);
		tpck_child_executes(place, path, doing, (const int[3]){0, 1, 2});
		/* The parent may have begun to wait before it was known what the child is. */
		if (doing == TPCK_DOING_WAITS && atomic_load(&tpck_children[place].waited))
			await(&tpck_children[place], (enum tpck_forward)(atomic_load(&tpck_children[place].waited) - 1), of != NULL);
		/* A child that shares this memory tells the log itself; that of a fork leaves it to its parent. */
		if ((!forwarding || tpck_children[place].ahead) && (tpck_child_shares() || tpck_children[place].nested))
			tpck_child_note(place);
		if (doing != TPCK_DOING_STANDIN) {
			tpck_unwritten_of(tpck_programs_number(place));
			(void)tpck_follow_output_give();
		}
		other = stood_in(place, doing, of, path, arguments, variables, instead);
	}
	errno = saved;
	return other;
}

void tpck_programs_failed(void)
{
	int saved = errno, place = tpck_child_here();

	if (place >= 0)
		atomic_store(&tpck_children[place].doing, TPCK_DOING_NOTHING);
	errno = saved;
}

bool tpck_programs_followed(void)
{
	return tpck_programs_own() && (tpck_programs_recording() || tpck_programs_forwarding());
}

static int place_for(void)
{
	struct tpck_thread *self = tpck_thread_self();

	if (!self || self->ours || self->elsewhere || !tpck_programs_own() || !(tpck_programs_recording() || tpck_programs_forwarding()))
		return -1;
	tpck_starts_thread(self);
	return tpck_child_take(self, -1);
}

bool tpck_programs_spawn(const char *path, char *const arguments[], char *const variables[], const int fds[3], struct tpck_programs_instead *instead, int *place)
{
	const struct tpck_known *of = NULL;
	enum tpck_doing doing;

	starts_worker = tpck_readable_list(arguments) && tpck_programs_is_worker(arguments);
	*place = tpck_readable_list(arguments) && tpck_readable_list(variables) ? place_for() : -1;
	if (*place < 0)
		return false;
	doing = decide(*place, path, arguments, &of);
	tpck_child_executes(*place, path, doing, fds);
	if (doing != TPCK_DOING_STANDIN)
		tpck_unwritten_of(tpck_programs_number(*place));
	return stood_in(*place, doing, of, path, arguments, variables, instead);
}

void tpck_programs_spawned(int place, pid_t child, bool own)
{
	int saved = errno;

	if (place >= 0 && child > 0) {
		tpck_child_spawned(place, child, own);
		if (!forwarding || tpck_children[place].ahead)
			tpck_child_note(place);
	} else {
		tpck_child_free(place);
	}
	errno = saved;
}

/* The program is done for real: it goes into the log at once, unless that has it. */
static bool system_begins(int place)
{
	if (!forwarding || tpck_children[place].ahead)
		tpck_child_note(place);
	return false;
}

bool tpck_programs_system(const char *command, int *status, int *place)
{
	struct timespec pause = {0, 1000000};
	const struct tpck_known *of;
	struct tpck_child *at;

	starts_worker = false;
	*place = place_for();
	if (*place < 0)
		return false;
	at = &tpck_children[*place];
	tpck_child_executes(*place, "/bin/sh", TPCK_DOING_PROGRAM, NULL);
	at->arguments = tpck_readable_path(command) ? tpck_digest64(command, strlen(command), 1) : 0;
	if (!tpck_starts_follow())
		return system_begins(*place);
	tpck_undecided_await(at);
	of = record_for(*place, at->path);
	if (!forwarding && decide_behind(*place, NULL, &of) != TPCK_DOING_STANDIN) {
		tpck_unwritten_of(tpck_programs_number(*place));
		return system_begins(*place);
	}
	if (!of || !of->ended || of->lost)
		tpck_unwritten_of(tpck_programs_number(*place));
	if (of && of->ended && of->lost) {
		tpck_child_again(of->name);
		return false;
	}
	if (of && of->ended) {
		*status = of->status;
		atomic_store(&at->doing, TPCK_DOING_STANDIN);
		tpck_child_ended(*place, of->status);
		return true;
	}
	if (!of && at->nested && stands != TPCK_FORWARD_SAME) {
		is_new(*place);
		return system_begins(*place);
	}
	await(at, stands, of != NULL);
	atomic_fetch_add(&paused, 1);
	/* A program that begins anew goes from here. */
	while (tpck_programs_forwarding() || atomic_load(&abandoned))
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	atomic_fetch_sub(&paused, 1);
	return false;
}

void tpck_programs_system_ended(int place, int status)
{
	if (place >= 0)
		tpck_child_ended(place, status);
}

/* ---- waiting ------------------------------------------------------------------------------------------ */

uint32_t tpck_starts_ended_as(int place)
{
	const struct tpck_known *of = tpck_known_of(tpck_children[place].thread, tpck_children[place].ordinal);

	return of && of->ended && !of->lost ? of->ended_as : 0;
}

enum tpck_programs_wait tpck_starts_wait(int place, bool polls)
{
	struct tpck_child *at = &tpck_children[place];
	const struct tpck_known *of = tpck_known_of(at->thread, at->ordinal);
	struct tpck_thread *self = tpck_child_nested() ? NULL : tpck_thread_peek();
	enum tpck_forward where = self ? tpck_forward_stands(self) : TPCK_FORWARD_FOREIGN;
	uint32_t doing;

	/* The child looks behind its own mark, this thread behind this one: one of them sees the other's. */
	if (!polls)
		atomic_store(&at->waited, 1 + (uint32_t)where);
	doing = atomic_load(&at->doing);
	if (doing == TPCK_DOING_WAITS) {
		/* Such questions were asked in the first run, too: the next one that is run forward is told the same. */
		atomic_fetch_add(&at->polls, polls);
		if (!polls)
			await(at, where, of != NULL);
		return polls ? TPCK_PROGRAMS_NOT_YET : TPCK_PROGRAMS_ASK;
	}
	/* A forked child may wait for its parent to tell it to end, who asks once more than in the first run, as that depends on time: nobody is made to wait. */
	if (doing == TPCK_DOING_NOTHING && of && of->forked && polls) {
		if (atomic_load(&at->polls) >= of->polls)
			return TPCK_PROGRAMS_ASK;
		atomic_fetch_add(&at->polls, 1);
		return TPCK_PROGRAMS_NOT_YET;
	}
	if (doing != TPCK_DOING_STANDIN || !of)
		return TPCK_PROGRAMS_ASK;
	if (polls && atomic_load(&at->polls) < of->polls) {
		atomic_fetch_add(&at->polls, 1);
		return TPCK_PROGRAMS_NOT_YET;
	}
	atomic_store(&page->finish[at->seat], 1);
	return TPCK_PROGRAMS_ENDS;
}

void tpck_starts_boundary(void)
{
	uint32_t count = page ? atomic_exchange(&page->twice, 0) : 0;

	if (count)
		tpck_log_warn("%u programs that were started anew say once more what they had said, as there was no process or descriptor for what drops it: %.39s", count,
			      page->twice_name);
}

void tpck_starts_finish(int place)
{
	if (atomic_load(&tpck_children[place].doing) == TPCK_DOING_STANDIN)
		atomic_store(&page->finish[tpck_children[place].seat], 1);
}

void tpck_starts_finish_all(void)
{
	uint32_t used = tpck_children_used();

	for (uint32_t i = 0; i < used; i++)
		if (tpck_child_own((int)i))
			tpck_starts_finish((int)i);
}
