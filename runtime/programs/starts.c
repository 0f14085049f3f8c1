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

#include "runtime/base/digest.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/base/readable.h"
#include "runtime/base/text.h"
#include "runtime/follow/caches.h"
#include "runtime/follow/follow.h"
#include "runtime/programs/programs_private.h"
#include "runtime/track/threads.h"
#include "runtime/wire/segment.h"

/* What the log says of a program. */
struct learnt {
	const struct tpck_record_program *started;
	const char *name;
	int32_t status;
	uint32_t polls;
	bool ended, lost, forked;
	uint32_t ended_as; /* the how-manieth end this is, from 1 */
	bool taken; /* by a child of another number than in the first run */
	struct said {
		const struct tpck_record_program *record;
		uint32_t bytes;
		struct said *next;
	} *said, **said_end;
	struct made {
		const char *path;
		struct made *next;
	} *made; /* by a forked child, where nothing was */
	struct learnt *next;
};

/* What has run for so long will go on running. */
#define SERVICE_NS 30000000000ull
enum { BUCKETS = 1024, NAMES = TPCK_PROGRAM_NAMES };
static struct learnt *learnt[BUCKETS] TPCK_LARGE;
static char behind[NAMES];
static unsigned behind_count;
static uint32_t ends;
static bool forwarding;
static struct tpck_standin_page *page;
static char session[300] TPCK_LARGE, standin[300] TPCK_LARGE;
static char difference[200];
/* Where the thread stands that makes a child. */
static __thread enum tpck_forward stands __attribute__((tls_model("initial-exec"))) = TPCK_FORWARD_FOREIGN;
static char *nothing[1];
static _Atomic bool abandoned;
static _Atomic uint32_t paused; /* calls of system() that wait for this process to be live */

/* ---- what the log says ------------------------------------------------------------------------------ */

static struct learnt *learnt_of(uint32_t thread, uint32_t ordinal)
{
	struct learnt *found = learnt[(thread * 31 + ordinal) % BUCKETS];

	while (found && (found->started->thread != thread || found->started->ordinal != ordinal))
		found = found->next;
	return found;
}

static bool names_one(const struct tpck_record *record)
{
	const char *payload = (const char *)(record + 1);

	return record->bytes > sizeof(struct tpck_record_program) && !payload[record->bytes - 1];
}

static struct learnt *learnt_new(const struct tpck_record_program *program)
{
	struct learnt **bucket = &learnt[(program->thread * 31 + program->ordinal) % BUCKETS], *of = calloc(1, sizeof *of);

	if (of) {
		of->started = program;
		of->said_end = &of->said;
		of->next = *bucket;
		*bucket = of;
	}
	return of;
}

void tpck_programs_learn(const struct tpck_record *record)
{
	const struct tpck_record_program *program = (const void *)(record + 1);
	struct learnt *of = record->bytes >= sizeof *program ? learnt_of(program->thread, program->ordinal) : NULL;
	struct said *said;

	if (record->type != TPCK_RECORD_PROGRAM || record->bytes < sizeof *program)
		return;
	if (record->detail == TPCK_PROGRAM_STARTED && of && names_one(record)) {
		/* A thread of its own pace had started fewer when the run was gone on from: what it started last by that number counts. */
		*of = (struct learnt){.started = program, .name = (const char *)(program + 1), .said_end = &of->said, .made = of->made, .next = of->next};
	} else if (record->detail == TPCK_PROGRAM_STARTED && names_one(record)) {
		of = learnt_new(program);
		if (of)
			of->name = (const char *)(program + 1);
	} else if (record->detail == TPCK_PROGRAM_FORKED) {
		if (!of)
			of = learnt_new(program);
		if (!of)
			return;
		of->name = "";
		of->forked = of->ended = true;
		of->ended_as = ++ends;
		of->status = program->status;
		of->polls = program->polls;
		of->lost = program->flags & TPCK_PROGRAM_UNSURE;
	} else if (record->detail == TPCK_PROGRAM_MADE && names_one(record)) {
		struct made *made = calloc(1, sizeof *made);

		if (!of)
			of = learnt_new(program);
		if (!of || !made) {
			free(made);
			return;
		}
		of->name = of->name ? of->name : "";
		*made = (struct made){(const char *)(program + 1), of->made};
		of->made = made;
	} else if (of && record->detail == TPCK_PROGRAM_ENDED) {
		of->ended = true;
		of->ended_as = ++ends;
		of->status = program->status;
		of->polls = program->polls;
	} else if (of && record->detail == TPCK_PROGRAM_LOST) {
		of->lost = true;
	} else if (of && record->detail == TPCK_PROGRAM_SAID) {
		said = calloc(1, sizeof *said);
		if (!said)
			return;
		said->record = program;
		said->bytes = record->bytes - (uint32_t)sizeof *program;
		*of->said_end = said;
		of->said_end = &said->next;
	}
}

static void add_name(char names[NAMES], const char *name)
{
	size_t used = strlen(names);

	snprintf(names + used, NAMES - used, "%s%.40s", used ? ", " : "", name);
}

void tpck_programs_learn_behind(const struct tpck_record *record)
{
	if (record->type != TPCK_RECORD_PROGRAM || record->detail != TPCK_PROGRAM_STARTED || !names_one(record))
		return;
	behind_count++;
	add_name(behind, (const char *)(record + 1) + sizeof(struct tpck_record_program));
}

void tpck_programs_unlearn(void)
{
	memset(learnt, 0, sizeof learnt);
	behind[0] = '\0';
	behind_count = 0;
}

/* ---- running forward -------------------------------------------------------------------------------- */

bool tpck_programs_forwarding(void)
{
	/* A forked child goes live with the process that runs forward. */
	if (forwarding && tpck_child_nested() && page && atomic_load(&page->live))
		forwarding = false;
	return forwarding;
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

static int open_page(void)
{
	char path[340];
	int fd;

	snprintf(path, sizeof path, "%s/" TPCK_STANDIN_CONTROL, session);
	tpck_sys_unlinkat(AT_FDCWD, path, 0);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	page = tpck_sys_ftruncate(fd, sizeof *page) ? MAP_FAILED : tpck_sys_mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	tpck_sys_close(fd);
	if (page == MAP_FAILED) {
		page = NULL;
		return -ENOMEM;
	}
	return 0;
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
		result = open_page();
	forwarding = !result;
	return result;
}

void tpck_starts_thread(struct tpck_thread *self)
{
	if (forwarding && !tpck_child_nested())
		stands = tpck_forward_stands(self);
}

bool tpck_starts_forked(int place)
{
	const struct learnt *of = forwarding ? learnt_of(tpck_children[place].thread, tpck_children[place].ordinal) : NULL;

	/* One that had ended is on its way; of one that had not nobody knows how far it had come. */
	if (forwarding)
		stands = of && of->ended && !of->lost ? TPCK_FORWARD_SAME : TPCK_FORWARD_FOREIGN;
	return of && of->ended && !of->lost;
}

void tpck_programs_hide(void)
{
	int place = tpck_child_here();
	const struct learnt *of = forwarding && place >= 0 ? learnt_of(tpck_children[place].thread, tpck_children[place].ordinal) : NULL;

	for (const struct made *made = of ? of->made : NULL; made; made = made->next)
		tpck_follow_hide(made->path);
}

void tpck_programs_live(uint64_t step)
{
	uint32_t used = tpck_children_used();
	char names[NAMES] = "", services[NAMES] = "", ahead[NAMES] = "";
	unsigned count = 0;

	for (uint32_t i = 0; forwarding && i < used; i++) {
		struct tpck_child *at = &tpck_children[i];
		const struct learnt *of = atomic_load(&at->pid) ? learnt_of(at->thread, at->ordinal) : NULL;

		if (!of)
			atomic_store(&at->noted, 0);
		if (of) {
			atomic_store(&at->noted, TPCK_NOTED_START | (of->ended ? TPCK_NOTED_END : 0));
			if (!of->lost && !of->ended && atomic_load(&at->doing) == TPCK_DOING_PROGRAM)
				add_name(services, at->name);
		} else if (atomic_load(&at->pid) > 0 && at->nested && atomic_load(&at->doing) == TPCK_DOING_PROGRAM) {
			add_name(ahead, at->name);
		}
		if (atomic_load(&at->pid) && atomic_load(&at->doing) == TPCK_DOING_WAITS) {
			atomic_store(&at->doing, TPCK_DOING_PROGRAM);
			count += of != NULL;
			if (of)
				add_name(names, at->name);
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
	if (count)
		tpck_log_warn("%u programs that the first run had started were not at their end at step %llu, and are started anew: %s", count,
			      (unsigned long long)step, names);
	if (behind_count)
		tpck_log_warn("what comes behind step %llu is done again, with what it starts; the first run started %u programs there: %s",
			      (unsigned long long)step, behind_count, behind);
	forwarding = false;
	if (page)
		atomic_store(&page->live, 1);
}

void tpck_programs_abandon(void)
{
	atomic_store(&abandoned, true);
	forwarding = false;
	if (page)
		atomic_store(&page->live, 2);
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

bool tpck_programs_is_worker(char *const arguments[])
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
static bool is_service(const struct learnt *of)
{
	uint64_t then = tpck_forward_boundary_ns();

	return of->started->flags & TPCK_PROGRAM_TALKS || then < of->started->made_ns || then - of->started->made_ns > SERVICE_NS;
}

static uint64_t digest_of(char *const arguments[])
{
	uint64_t digest = 0;

	for (size_t i = 0; arguments && arguments[i]; i++)
		digest = tpck_digest64(arguments[i], strlen(arguments[i]) + 1, digest);
	return digest;
}

static bool is_program(const struct learnt *of, uint64_t path)
{
	return of && !of->forked && of->started->path == path;
}

/* What the log has of the program at the place. Forked children that share work, as a pool's, may have it otherwise than in the first run: which
 * program is which follows from what it is given. */
static const struct learnt *record_for(int place, uint64_t path)
{
	struct tpck_child *at = &tpck_children[place];
	struct learnt *own = learnt_of(at->thread, at->ordinal), *other = NULL;

	if (!at->nested || (is_program(own, path) && own->started->arguments == at->arguments && !own->taken))
		return own;
	for (size_t b = 0; b < BUCKETS; b++)
		for (struct learnt *of = learnt[b]; of; of = of->next)
			if (is_program(of, path) && of->started->flags & TPCK_PROGRAM_NESTED && of->started->arguments == at->arguments && !of->taken &&
			    (!other || of->started->made_ns < other->started->made_ns))
				other = of;
	if (!other)
		/* Of a child that had ended all is known, in its order; of another one this may be another program of the same name. */
		return stands == TPCK_FORWARD_SAME ? own : NULL;
	other->taken = true;
	at->thread = other->started->thread;
	at->ordinal = other->started->ordinal;
	return other;
}

static enum tpck_doing decide(int place, const char *path, char *const arguments[], const struct learnt **of)
{
	struct tpck_child *at = &tpck_children[place];
	char buffer[TPCK_PROGRAM_PATH];
	const char *program = tpck_child_program(path, buffer, sizeof buffer);

	*of = NULL;
	at->arguments = digest_of(arguments);
	if (tpck_programs_is_worker(arguments))
		return TPCK_DOING_WORKER;
	if (!tpck_programs_forwarding() || compiles(path, arguments))
		return TPCK_DOING_PROGRAM;
	*of = record_for(place, tpck_digest64(program, strlen(program), 0));
	if (!*of) {
		/* A forked child that goes on may be ahead, and its parent may wait for what it does. */
		if (at->nested && stands != TPCK_FORWARD_SAME)
			return TPCK_DOING_PROGRAM;
		if (stands == TPCK_FORWARD_SAME)
			atomic_store(&at->noted, TPCK_NOTED_UNKNOWN);
		else if (stands == TPCK_FORWARD_END)
			atomic_store(&at->noted, TPCK_NOTED_AWAITED);
		return TPCK_DOING_WAITS;
	}
	if ((*of)->forked || (*of)->started->path != tpck_digest64(program, strlen(program), 0)) {
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

/* Whether the program at the place is played, or started later; then *instead is executed. */
static bool stood_in(int place, enum tpck_doing doing, const struct learnt *of, const char *path, char *const arguments[],
		     char *const variables[], struct tpck_programs_instead *instead)
{
	struct tpck_standin_plan plan = {
		.magic = TPCK_STANDIN_MAGIC, .version = TPCK_WIRE_VERSION, .place = (uint32_t)place,
		.flags = doing == TPCK_DOING_WAITS ? TPCK_STANDIN_STARTS : 0, .status = of ? of->status : 0,
		.arguments = count_of(arguments), .variables = count_of(variables),
	};
	struct out out = {.bad = false};

	if (doing != TPCK_DOING_STANDIN && doing != TPCK_DOING_WAITS)
		return false;
	for (const struct said *said = of ? of->said : NULL; said; said = said->next)
		plan.output += sizeof(struct tpck_standin_piece) + said->bytes;
	snprintf(plan.control, sizeof plan.control, "%s/" TPCK_STANDIN_CONTROL, session);
	snprintf(instead->plan, sizeof instead->plan, "%s/" TPCK_STANDIN_PLAN ".%u.%u.%d", session, tpck_children[place].thread,
		 tpck_children[place].ordinal, place);
	atomic_store(&page->finish[place], 0);
	tpck_sys_unlinkat(AT_FDCWD, instead->plan, 0);
	out.fd = tpck_sys_openat(AT_FDCWD, instead->plan, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out.fd < 0) {
		atomic_store(&tpck_children[place].noted, TPCK_NOTED_UNKNOWN);
		return false;
	}
	out_put(&out, &plan, sizeof plan);
	for (const struct said *said = of ? of->said : NULL; said; said = said->next) {
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
	int saved = errno, place = tpck_child_here();
	const struct learnt *of = NULL;
	enum tpck_doing doing;
	bool other = false;

	/* The search along PATH comes by with files that are not there. */
	if (place >= 0 && tpck_readable_list(arguments) && tpck_readable_list(variables) && !tpck_sys_faccessat(AT_FDCWD, path, X_OK)) {
		doing = decide(place, path, arguments, &of);
		tpck_child_executes(place, path, doing, (const int[3]){0, 1, 2});
		/* The parent may have begun to wait before it was known what the child is. */
		if (doing == TPCK_DOING_WAITS && atomic_load(&tpck_children[place].waited))
			await(&tpck_children[place], (enum tpck_forward)(atomic_load(&tpck_children[place].waited) - 1), of != NULL);
		/* A child that shares this memory tells the log itself; that of a fork leaves it to its parent. */
		if (!forwarding && (tpck_child_shares() || tpck_children[place].nested))
			tpck_child_note(place);
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
	const struct learnt *of = NULL;
	enum tpck_doing doing;

	*place = tpck_readable_list(arguments) && tpck_readable_list(variables) ? place_for() : -1;
	if (*place < 0)
		return false;
	doing = decide(*place, path, arguments, &of);
	tpck_child_executes(*place, path, doing, fds);
	return stood_in(*place, doing, of, path, arguments, variables, instead);
}

void tpck_programs_spawned(int place, pid_t child, bool own)
{
	int saved = errno;

	if (place >= 0 && child > 0) {
		tpck_child_spawned(place, child, own);
		if (!forwarding)
			tpck_child_note(place);
	} else {
		tpck_child_free(place);
	}
	errno = saved;
}

bool tpck_programs_system(const char *command, int *status, int *place)
{
	struct timespec pause = {0, 1000000};
	const struct learnt *of;

	*place = place_for();
	if (*place < 0)
		return false;
	tpck_child_executes(*place, "/bin/sh", TPCK_DOING_PROGRAM, NULL);
	tpck_children[*place].arguments = tpck_readable_path(command) ? tpck_digest64(command, strlen(command), 1) : 0;
	of = forwarding ? record_for(*place, tpck_children[*place].path) : NULL;
	if (!forwarding) {
		tpck_child_note(*place);
		return false;
	}
	if (of && of->ended && of->lost) {
		tpck_child_again(of->name);
		return false;
	}
	if (of && of->ended) {
		*status = of->status;
		tpck_child_ended(*place, of->status);
		return true;
	}
	if (!of && tpck_children[*place].nested && stands != TPCK_FORWARD_SAME)
		return false;
	await(&tpck_children[*place], stands, of != NULL);
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
	const struct learnt *of = learnt_of(tpck_children[place].thread, tpck_children[place].ordinal);

	return of && of->ended && !of->lost ? of->ended_as : 0;
}

enum tpck_programs_wait tpck_starts_wait(int place, bool polls)
{
	struct tpck_child *at = &tpck_children[place];
	const struct learnt *of = learnt_of(at->thread, at->ordinal);
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
	atomic_store(&page->finish[place], 1);
	return TPCK_PROGRAMS_ENDS;
}

void tpck_starts_finish_all(void)
{
	uint32_t used = tpck_children_used();

	for (uint32_t i = 0; i < used; i++)
		if (tpck_child_own((int)i) && atomic_load(&tpck_children[i].doing) == TPCK_DOING_STANDIN)
			atomic_store(&page->finish[i], 1);
}
