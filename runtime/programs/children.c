/* SPDX-License-Identifier: Apache-2.0 */
/* Children of this process, and what the log gets of those that execute a program. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/base/shared_lock.h"
#include "runtime/follow/follow.h"
#include "runtime/programs/programs_private.h"
#include "runtime/replay/mail.h"
#include "runtime/track/threads.h"
#include "runtime/wire/segment.h"

/* More output of one program is not kept, nor more of all before there is a device: the log is in private memory then. */
enum { SAID_MOST = 4 << 20, SAID_EARLY = 1 << 20, PLACES = TPCK_STANDIN_PLACES, FRESH = 64, PASSED = 64 };
#define FORGOTTEN_NS 10000000000ull
#define ENDS_NS 200000ull

/* Once there is a session, mail lies in a file of its folder, where it outlives them. A twin has two sessions, one after the other. */
enum { MAIL_BYTES = 256 << 10, MAILS = 3, MAIL_PATH = 320 };
/* Of this process and those that it forks. */
struct shared {
	tpck_shared_lock lock;   /* of the places */
	_Atomic uint32_t used;   /* places */
	_Atomic bool unplaced;   /* a forked child has a child that has no place */
	_Atomic uint32_t passed[PASSED]; /* threads of forked children, by their numbers, that have come to where their record ends; the last one of each place counts */
	_Atomic bool more_again; /* one that is not named below, as another process did not let go of the lock */
	char again[TPCK_PROGRAM_NAMES]; /* programs that had ended, and are started again nevertheless; guarded by `lock` */
	_Atomic uint32_t moves;         /* how often mail has moved to a file */
	char mail[MAIL_PATH];           /* which one; guarded by `lock` */
	struct tpck_child child[PLACES];
};

struct tpck_child *tpck_children;
_Atomic uint32_t tpck_programs_places;
static struct shared *shared;
static struct tpck_mail *mail; /* of forked children, for the log, or of a root's */
static struct tpck_mail *own_mail;
static struct tpck_mail *older[MAILS]; /* which children may still use that have not noticed yet that it has moved */
static uint32_t moves;        /* where own_mail is */
static bool mail_lost;        /* something of what this process had before mail moved */
static bool forks;            /* this process has, or is about to */
static char session[300] TPCK_LARGE;
static struct tpck_log *journal;
static _Atomic uint32_t early_said;
static int32_t home;          /* this process */
static uint32_t nest;         /* in the child of a fork: what its children's numbers are mixed with */
static uint32_t family;       /* in such a child: what that was in the child of the process with the log that it comes from */
static int forked_place = -1; /* in the child of a fork: its place */
static __thread int forking __attribute__((tls_model("initial-exec"))) = -1;
static tpck_spin lock;        /* of what this process alone has */

bool tpck_programs_recording(void)
{
	return journal && !tpck_log_failed(journal);
}

bool tpck_programs_own(void)
{
	return journal && home == tpck_sys_getpid();
}

TPCK_AT_START void tpck_programs_record(struct tpck_log *log, const struct tpck_settings *with)
{
	tpck_unwritten_with(with);
	journal = log;
	home = tpck_sys_getpid();
}

void tpck_child_belongs(const struct tpck_root *root)
{
	if (forked_place >= 0)
		return;
	tpck_spin_lock(&lock);
	mail = root ? root->mail : own_mail;
	nest = root && journal ? root->number : 0;
	tpck_spin_unlock(&lock);
}

/* ---- mail --------------------------------------------------------------------------------------- */

/* The lock of this process is held. 0, or errno: it stays where it is. */
static int move_mail(void)
{
	struct tpck_mail *to;
	char path[MAIL_PATH];
	int result = 0;

	snprintf(path, sizeof path, "%s/" TPCK_STARTED, session);
	if (moves == MAILS || !tpck_shared_lock_take(&shared->lock))
		return EBUSY;
	to = tpck_mail_new(MAIL_BYTES, path);
	if (to) {
		older[moves++] = own_mail;
		own_mail = mail = to;
		snprintf(shared->mail, sizeof shared->mail, "%s", path);
		atomic_store(&shared->moves, moves);
	} else {
		result = errno;
	}
	tpck_shared_lock_free(&shared->lock);
	return result;
}

static void say_unmoved(int why)
{
	errno = why;
	tpck_log_warn("what forked children start is in no file of %s, and is not known to a start after a kill: %m", session);
}

void tpck_child_session(const char *folder)
{
	int why = 0;

	tpck_spin_lock(&lock);
	if (strcmp(folder, session) != 0) {
		snprintf(session, sizeof session, "%s", folder);
		why = forks && shared ? move_mail() : 0;
	}
	tpck_spin_unlock(&lock);
	if (why)
		say_unmoved(why);
}

static void begin_mail(void)
{
	int why = 0, saved = errno;

	tpck_spin_lock(&lock);
	if (!forks && shared) {
		forks = true;
		why = session[0] ? move_mail() : 0;
	}
	tpck_spin_unlock(&lock);
	if (why)
		say_unmoved(why);
	errno = saved;
}

/* In a forked child: what it had for its parent so far is in the log, what comes now goes where mail lies by now. So its records stay in order. */
static void follow_mail(void)
{
	char path[MAIL_PATH];
	struct tpck_mail *to;

	if (mail != own_mail || atomic_load(&shared->moves) == moves || !tpck_mail_is_empty(mail))
		return;
	tpck_spin_lock(&lock);
	if (atomic_load(&shared->moves) != moves && tpck_shared_lock_take(&shared->lock)) {
		memcpy(path, shared->mail, sizeof path);
		moves = atomic_load(&shared->moves);
		tpck_shared_lock_free(&shared->lock);
		to = tpck_mail_open(path, MAIL_BYTES);
		mail_lost = mail_lost || tpck_mail_lost(mail);
		if (to)
			own_mail = mail = to;
	}
	tpck_spin_unlock(&lock);
}

/* What came from forked children goes before what this process has to say, which may be about their ends. */
static void take_mail(void)
{
	if (!mail || nest)
		return;
	for (uint32_t i = 0; i < moves; i++)
		tpck_mail_take(older[i], journal);
	tpck_mail_take(mail, journal);
}

static bool has_lost_mail(void)
{
	bool lost = mail_lost || tpck_mail_lost(mail);

	for (uint32_t i = 0; i < moves && !nest; i++)
		lost = lost || tpck_mail_lost(older[i]);
	return lost;
}

void tpck_programs_left(const char *folder, void (*call)(const struct tpck_record *record))
{
	char path[MAIL_PATH];

	snprintf(path, sizeof path, "%s/" TPCK_STARTED_BEHIND, folder);
	tpck_mail_left(path, call);
}

void tpck_child_mail_learnt(void)
{
	char path[MAIL_PATH];

	snprintf(path, sizeof path, "%s/" TPCK_STARTED_BEHIND, session);
	if (session[0])
		tpck_sys_unlinkat(AT_FDCWD, path, 0);
}

/* ---- places ------------------------------------------------------------------------------------- */

uint32_t tpck_children_used(void)
{
	return shared ? atomic_load(&shared->used) : 0;
}

void tpck_child_again(const char *name)
{
	size_t used;

	if (!shared)
		return;
	if (!tpck_shared_lock_take(&shared->lock)) {
		atomic_store(&shared->more_again, true);
		return;
	}
	used = strlen(shared->again);
	snprintf(shared->again + used, sizeof shared->again - used, "%s%.40s", used ? ", " : "", name);
	tpck_shared_lock_free(&shared->lock);
}

const char *tpck_children_again(void)
{
	if (!shared)
		return "";
	return !shared->again[0] && atomic_load(&shared->more_again) ? "some whose names are not known" : shared->again;
}

void tpck_child_passes(int place)
{
	atomic_store(&shared->passed[tpck_children[place].thread % PASSED], tpck_children[place].thread);
}

bool tpck_child_has_passed(int place)
{
	return atomic_load(&shared->passed[tpck_children[place].thread % PASSED]) == tpck_children[place].thread;
}

bool tpck_child_own(int place)
{
	return tpck_children[place].parent == home;
}

bool tpck_child_nested(void)
{
	return nest != 0;
}

static bool is_gone(struct tpck_child *place, uint64_t now)
{
	int32_t pid = atomic_load(&place->pid);

	return pid == -1 ? now - place->made_ns > FORGOTTEN_NS : pid > 0 && tpck_sys_kill(pid, 0) && errno == ESRCH;
}

static bool table(void)
{
	if (!shared) {
		void *at = tpck_sys_mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (at == MAP_FAILED)
			return false;
		own_mail = tpck_mail_new(MAIL_BYTES, NULL);
		if (!own_mail) {
			tpck_sys_munmap(at, sizeof *shared);
			return false;
		}
		mail = mail ? mail : own_mail;
		shared = at;
		tpck_children = shared->child;
	}
	return true;
}

/* The lock is held. */
static int find_place(uint64_t now)
{
	uint32_t used = tpck_children_used();
	int found = -1;

	/* One that has been waited for may have left something in a pipe: the one that was left longest ago is taken. */
	for (uint32_t i = 0; i < used && used >= FRESH; i++)
		if (!atomic_load(&tpck_children[i].pid) && (found < 0 || tpck_children[i].made_ns < tpck_children[found].made_ns))
			found = (int)i;
	if (found < 0 && used < PLACES)
		found = (int)used;
	for (uint32_t i = 0; i < used && found < 0; i++)
		if (is_gone(&tpck_children[i], now))
			found = (int)i;
	return found;
}

int tpck_child_take(struct tpck_thread *self, int32_t pid)
{
	uint32_t ordinal = self->programs++;
	uint64_t now = tpck_clock_monotonic_ns();
	int saved = errno, found = -1;

	tpck_spin_lock(&lock);
	if (table() && tpck_shared_lock_take(&shared->lock)) {
		found = find_place(now);
		if (found >= 0) {
			memset(&tpck_children[found], 0, sizeof *tpck_children);
			tpck_children[found].parent = home;
			tpck_children[found].thread = nest ? tpck_digest_pair(nest, self->id) : self->id;
			tpck_children[found].ordinal = ordinal;
			tpck_children[found].nested = nest != 0;
			tpck_children[found].made_ns = now;
			tpck_children[found].seat = (uint32_t)found;
			atomic_store(&tpck_children[found].pid, pid);
			if ((uint32_t)found == tpck_children_used())
				atomic_store(&shared->used, (uint32_t)found + 1);
		}
		tpck_shared_lock_free(&shared->lock);
		atomic_store(&tpck_programs_places, 1);
	}
	tpck_spin_unlock(&lock);
	if (found < 0 && nest)
		atomic_store(&shared->unplaced, true);
	else if (found < 0 && journal)
		tpck_log_fail(journal, "too many children are there at once to tell what each of them does");
	errno = saved;
	return found;
}

void tpck_child_free(int place)
{
	if (place >= 0)
		atomic_store(&tpck_children[place].pid, 0);
}

int tpck_child_of(pid_t child)
{
	uint32_t used = tpck_children_used();

	for (uint32_t i = 0; child > 0 && i < used; i++)
		if (atomic_load(&tpck_children[i].pid) == child && tpck_child_own((int)i))
			return (int)i;
	return -1;
}

/* A pipe or socket, told from others; 0: it is none. `folder` and `name`: of the link to it in /proc, or a descriptor and "". */
static uint64_t told_from_others(const struct stat *found)
{
	return (uint64_t)found->st_ino ^ ((uint64_t)found->st_dev << 40);
}

static uint64_t pipe_at(int folder, const char *name, int flags)
{
	struct stat found;

	if (tpck_sys_fstatat(folder, name, &found, flags) || (!S_ISFIFO(found.st_mode) && !S_ISSOCK(found.st_mode)))
		return 0;
	return told_from_others(&found);
}

static uint64_t file_at(int folder, const char *name, int flags)
{
	struct stat found;

	return tpck_sys_fstatat(folder, name, &found, flags) || !S_ISREG(found.st_mode) ? 0 : told_from_others(&found);
}

/* Where this child's output goes, if that is a file that is not its parent's own output. */
static void look_at_file(struct tpck_child *at, int stream, int fd)
{
	struct tpck_child_file *out = &at->files[stream];
	uint64_t file = fd < 0 ? 0 : file_at(fd, "", AT_EMPTY_PATH);
	char link[40];
	long got;

	out->file = 0;
	for (int other = 1; file && other <= 2; other++) {
		snprintf(link, sizeof link, "/proc/%d/fd/%d", at->parent, other);
		if (file == file_at(AT_FDCWD, link, 0))
			return;
	}
	if (!file || (stream == 2 && at->files[1].file == file))
		return;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(link, out->path, sizeof out->path);
	out->from = tpck_sys_lseek(fd, 0, tpck_sys_fcntl(fd, F_GETFL, 0) & O_APPEND ? SEEK_END : SEEK_CUR);
	if (got <= 0 || got >= (long)sizeof out->path || out->from < 0) {
		at->lost = true;
		return;
	}
	out->path[got] = '\0';
	out->file = file;
}

const char *tpck_child_program(const char *path, char *name, size_t size)
{
	ssize_t got = strncmp(path, "/proc/self/fd/", 14) == 0 ? tpck_sys_readlink(path, name, size - 1) : 0;

	if (got <= 0)
		return path;
	name[got] = '\0';
	return name;
}

void tpck_child_executes(int place, const char *path, enum tpck_doing doing, const int fds[3])
{
	struct tpck_child *at = &tpck_children[place];
	char parents[40], buffer[TPCK_PROGRAM_PATH];
	const char *name;

	path = tpck_child_program(path, buffer, sizeof buffer);
	name = strrchr(path, '/');
	at->path = tpck_digest64(path, strlen(path), 0);
	snprintf(at->name, sizeof at->name, "%s", name ? name + 1 : path);
	at->flags = 0;
	if (fds) {
		uint64_t input = fds[0] < 0 ? 0 : pipe_at(fds[0], "", AT_EMPTY_PATH);

		snprintf(parents, sizeof parents, "/proc/%d/fd/0", at->parent);
		if (input && input != pipe_at(AT_FDCWD, parents, 0))
			at->flags = TPCK_PROGRAM_TALKS;
		for (int stream = 1; stream <= 2; stream++) {
			at->pipes[stream] = fds[stream] < 0 ? 0 : pipe_at(fds[stream], "", AT_EMPTY_PATH);
			look_at_file(at, stream, fds[stream]);
		}
	}
	atomic_store(&at->doing, doing);
}

void tpck_child_spawned(int place, pid_t child, bool own)
{
	struct tpck_child *at = &tpck_children[place];
	char path[40];
	struct stat found;
	uint64_t input;
	int folder;

	atomic_store(&at->pid, child);
	if (!own)
		return;
	snprintf(path, sizeof path, "/proc/%d/fd", child);
	folder = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	input = pipe_at(folder, "0", 0);
	if (input && input != pipe_at(0, "", AT_EMPTY_PATH))
		at->flags = TPCK_PROGRAM_TALKS;
	at->pipes[1] = pipe_at(folder, "1", 0);
	at->pipes[2] = pipe_at(folder, "2", 0);
	/* What it has written to a file of its own is not known, nor what one that has ended has said: it shows nothing. */
	for (int fd = 1; fd <= 2; fd++) {
		uint64_t file;

		snprintf(path, sizeof path, "%d", fd);
		file = file_at(folder, path, 0);
		at->lost = at->lost || (file && file != file_at(1, "", AT_EMPTY_PATH) && file != file_at(2, "", AT_EMPTY_PATH));
	}
	at->lost = at->lost || folder < 0 || (tpck_sys_fstatat(folder, "0", &found, 0) && tpck_sys_fstatat(folder, "1", &found, 0) &&
				  tpck_sys_fstatat(folder, "2", &found, 0));
	if (folder >= 0)
		tpck_sys_close(folder);
}

/* ---- the log ------------------------------------------------------------------------------------ */

static void append(uint32_t detail, const struct tpck_record_program *record, const void *bytes, size_t count)
{
	char *payload = tpck_log_append(journal, TPCK_RECORD_PROGRAM, (uint16_t)detail, 0, 0, NULL, sizeof *record + count);

	if (!payload)
		return;
	memcpy(payload, record, sizeof *record);
	if (count)
		memcpy(payload + sizeof *record, bytes, count);
}

static void note(struct tpck_child *at, uint16_t detail, uint32_t stream, const void *bytes, size_t count)
{
	struct tpck_record_program record = {
		.thread = at->thread, .ordinal = at->ordinal, .flags = at->flags | (at->nested ? TPCK_PROGRAM_NESTED : 0), .arguments = at->arguments, .polls = atomic_load(&at->polls), .stream = stream, .path = at->path,
		.made_ns = at->made_ns,
	};

	if (detail == TPCK_PROGRAM_ENDED || detail == TPCK_PROGRAM_FORKED) {
		memcpy(&record.status, bytes, sizeof record.status);
		count = 0;
	}
	if (nest) {
		follow_mail();
		/* Where what it said is not all there it shows nothing. */
		if (!tpck_mail_send(mail, TPCK_RECORD_PROGRAM, detail, &record, sizeof record, bytes, count))
			at->lost = true;
		return;
	}
	take_mail();
	append(detail, &record, bytes, count);
}

void tpck_child_made(const char *path)
{
	if (forked_place >= 0 && tpck_programs_recording())
		note(&tpck_children[forked_place], TPCK_PROGRAM_MADE, 0, path, strlen(path) + 1);
}

void tpck_child_wrote(uint32_t writer, const char *path)
{
	struct tpck_record_program record = {.thread = writer};

	append(TPCK_PROGRAM_WROTE, &record, path, strlen(path) + 1);
}

/* Programs of a forked child that have ended, by when they ran: what files were made or changed meanwhile may be theirs. The oldest goes first. */
enum { PRODUCTS = 32 };
#define TICK_NS 20000000u
static struct product {
	struct tpck_child of;
	uint64_t from_ns, to_ns; /* as file systems tell the time */
	bool taken;
} *products;
_Atomic uint32_t tpck_programs_products;
/* Files that this child has opened to write: they are no program's. */
enum { OWN_FILES = 256 };
static uint64_t own_files[OWN_FILES] TPCK_LARGE;

static void may_have_made(const struct tpck_child *at)
{
	uint64_t now = tpck_clock_realtime_ns(), ran = tpck_clock_monotonic_ns() - at->made_ns;
	struct product *to;

	if (!products)
		products = calloc(PRODUCTS, sizeof *products);
	if (!products)
		return;
	to = &products[atomic_fetch_add(&tpck_programs_products, 1) % PRODUCTS];
	*to = (struct product){.of = *at, .from_ns = now - ran - TICK_NS, .to_ns = now};
}

void tpck_programs_writes_slow(int fd, int flags)
{
	int saved = errno;
	uint64_t file = forked_place >= 0 || atomic_load(&tpck_programs_products) ? file_at(fd, "", AT_EMPTY_PATH) : 0;

	if (file)
		own_files[file % OWN_FILES] = file;
	if (atomic_load(&tpck_programs_child_writes))
		tpck_written_opened(fd, flags);
	errno = saved;
}

void tpck_programs_takes_slow(int folder, const char *path)
{
	struct stat found;
	int saved = errno;
	uint64_t changed;

	if (!tpck_sys_fstatat(folder, path, &found, AT_SYMLINK_NOFOLLOW) && S_ISREG(found.st_mode) &&
	    own_files[told_from_others(&found) % OWN_FILES] != told_from_others(&found)) {
		changed = (uint64_t)found.st_mtim.tv_sec * 1000000000u + (uint64_t)found.st_mtim.tv_nsec;
		for (unsigned i = 0; i < PRODUCTS; i++)
			if (products[i].to_ns && changed >= products[i].from_ns && changed <= products[i].to_ns && !products[i].taken) {
				products[i].taken = true;
				note(&products[i].of, TPCK_PROGRAM_LOST, 0, NULL, 0);
				if (forked_place >= 0)
					tpck_children[forked_place].lost = true;
			}
	}
	errno = saved;
}

static void note_start(struct tpck_child *at)
{
	uint32_t doing = atomic_load(&at->doing);

	if (doing == TPCK_DOING_NOTHING || doing == TPCK_DOING_WORKER || atomic_fetch_or(&at->noted, TPCK_NOTED_START) & TPCK_NOTED_START)
		return;
	note(at, TPCK_PROGRAM_STARTED, 0, at->name, strnlen(at->name, sizeof at->name - 1) + 1);
	if (at->lost)
		note(at, TPCK_PROGRAM_LOST, 0, NULL, 0);
}

/* What it has written to a file, as if it had been read from a pipe. */
static void note_file(struct tpck_child *at, uint32_t stream)
{
	const struct tpck_child_file *out = &at->files[stream];
	char bytes[4096];
	long got = 1;
	int fd;

	if (!out->file || at->lost)
		return;
	fd = tpck_sys_openat(AT_FDCWD, out->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
	if (fd < 0 || file_at(fd, "", AT_EMPTY_PATH) != out->file)
		at->lost = true;
	for (int64_t from = out->from; got > 0 && !at->lost; from += got) {
		got = tpck_sys_pread(fd, bytes, sizeof bytes, from);
		at->lost = got < 0 || at->said + (uint64_t)(got > 0 ? got : 0) > SAID_MOST;
		if (got > 0 && !at->lost) {
			note(at, TPCK_PROGRAM_SAID, stream, bytes, (size_t)got);
			at->said += (uint32_t)got;
		}
	}
	if (fd >= 0)
		tpck_sys_close(fd);
	if (at->lost)
		note(at, TPCK_PROGRAM_LOST, 0, NULL, 0);
}

static void note_program_end(struct tpck_child *at, int status)
{
	note(at, TPCK_PROGRAM_ENDED, 0, &status, sizeof status);
	if (!at->lost)
		tpck_unwritten_ended(tpck_digest_pair(at->thread, at->ordinal));
}

static void note_end(struct tpck_child *at, int status)
{
	if (atomic_load(&at->doing) == TPCK_DOING_NOTHING && !(atomic_fetch_or(&at->noted, TPCK_NOTED_END) & TPCK_NOTED_END)) {
		at->flags = at->lost || atomic_load(&shared->unplaced) || has_lost_mail() ? TPCK_PROGRAM_UNSURE : 0;
		note(at, TPCK_PROGRAM_FORKED, 0, &status, sizeof status);
		/* What a child of a child does is done again. */
		if (!at->flags && !nest)
			tpck_unwritten_ended(tpck_digest_pair(at->thread, at->ordinal));
		return;
	}
	note_start(at);
	if (atomic_load(&at->noted) == TPCK_NOTED_START) {
		note_file(at, 1);
		note_file(at, 2);
	}
	if (at->lost && nest)
		note(at, TPCK_PROGRAM_LOST, 0, NULL, 0);
	if (atomic_load(&at->noted) & TPCK_NOTED_START && !(atomic_fetch_or(&at->noted, TPCK_NOTED_END) & TPCK_NOTED_END))
		note_program_end(at, status);
	if (nest)
		may_have_made(at);
}

void tpck_child_note(int place)
{
	if (tpck_programs_recording())
		note_start(&tpck_children[place]);
}

void tpck_child_ended(int place, int status)
{
	uint32_t doing = atomic_load(&tpck_children[place].doing);

	if (doing != TPCK_DOING_WORKER)
		tpck_follow_others_ran();
	/* What a stand-in says and how it ends the record has. */
	if (tpck_programs_recording() && doing != TPCK_DOING_STANDIN && (tpck_children[place].ahead || !tpck_programs_forwarding()))
		note_end(&tpck_children[place], status);
	tpck_child_free(place);
}

static int status_of(const siginfo_t *info)
{
	return info->si_code == CLD_EXITED ? info->si_status << 8 : info->si_status | (info->si_code == CLD_DUMPED ? 0x80 : 0);
}

/* A process of which nothing runs, whether somebody has waited for it or not. */
static bool has_ended(int32_t pid)
{
	char path[40], target[8];

	snprintf(path, sizeof path, "/proc/%d/exe", pid);
	return tpck_sys_readlink(path, target, sizeof target) < 0 && (errno == ENOENT || errno == ESRCH);
}

/* A program whose parent, a forked child, has gone: nobody will say how it ended. */
static void look_at_orphan(struct tpck_child *at, int32_t pid)
{
	if (atomic_load(&at->noted) & TPCK_NOTED_START && has_ended(at->parent) && has_ended(pid)) {
		note_end(at, 0);
		atomic_store(&at->pid, 0);
	}
}

/* Whether it has ended, and how. Whoever has heard the end of what it says may be here before its end can be waited for, which is a matter of microseconds: once
 * it is looked for so long. */
static bool is_over(struct tpck_child *at, int32_t pid, siginfo_t *info)
{
	uint64_t until = 0;

	do {
		if (!tpck_sys_waitid(P_PID, pid, info, WEXITED | WNOHANG | WNOWAIT, NULL) && info->si_pid == pid)
			return true;
		if (!at->closed || (!until && at->looked) || !has_ended(pid))
			return false;
		at->looked = true;
		until = until ? until : tpck_clock_monotonic_ns() + ENDS_NS;
	} while (tpck_clock_monotonic_ns() < until);
	return false;
}

void tpck_programs_boundary(void)
{
	uint32_t used = tpck_children_used();
	int saved = errno;

	tpck_starts_boundary();
	if (tpck_programs_recording()) {
		tpck_unwritten_boundary();
		take_mail();
	}
	for (uint32_t i = 0; i < used && tpck_programs_recording(); i++) {
		struct tpck_child *at = &tpck_children[i];
		int32_t pid = atomic_load(&at->pid);
		siginfo_t info = {.si_pid = 0};

		if (pid <= 0 || atomic_load(&at->noted) & TPCK_NOTED_END)
			continue;
		if (!tpck_child_own((int)i)) {
			look_at_orphan(at, pid);
			continue;
		}
		note_start(at);
		/* A child may have ended without having been waited for. */
		if ((atomic_load(&at->noted) & TPCK_NOTED_START || atomic_load(&at->doing) == TPCK_DOING_NOTHING) && is_over(at, pid, &info))
			note_end(at, status_of(&info));
	}
	errno = saved;
}

/* Ends of socket pairs, as they are told from others; the oldest goes first. */
enum { PAIRS = 128 };
static struct {
	uint64_t one, other;
} pairs[PAIRS] TPCK_LARGE;
static uint32_t pairs_made;

void tpck_programs_paired(int one, int other)
{
	int saved = errno;
	uint64_t ends[2] = {pipe_at(one, "", AT_EMPTY_PATH), pipe_at(other, "", AT_EMPTY_PATH)};

	tpck_spin_lock(&lock);
	pairs[pairs_made % PAIRS].one = ends[0];
	pairs[pairs_made++ % PAIRS].other = ends[1];
	tpck_spin_unlock(&lock);
	errno = saved;
}

/* What is written into when this is read from: the same pipe, or the other socket of a pair. */
static uint64_t far_end(uint64_t pipe)
{
	uint64_t far = pipe;

	tpck_spin_lock(&lock);
	for (uint32_t i = 0; pipe && i < PAIRS; i++)
		if (pairs[i].one == pipe || pairs[i].other == pipe)
			far = pairs[i].one == pipe ? pairs[i].other : pairs[i].one;
	tpck_spin_unlock(&lock);
	return far;
}

/* What has ended says itself that there is no more. */
static void note_no_more(struct tpck_child *at, uint64_t pipe)
{
	for (uint32_t stream = 1; stream <= 2; stream++) {
		if (at->pipes[stream] != pipe || at->closed & 1u << stream || atomic_load(&at->noted) & TPCK_NOTED_END)
			continue;
		at->closed |= 1u << stream;
		note_start(at);
		note(at, TPCK_PROGRAM_SAID, stream, NULL, 0);
	}
}

bool tpck_programs_awaits(int fd, char name[40])
{
	uint32_t used = tpck_children_used();
	uint64_t pipe = used ? far_end(pipe_at(fd, "", AT_EMPTY_PATH)) : 0;

	for (uint32_t i = 0; pipe && i < used; i++) {
		const struct tpck_child *at = &tpck_children[i];

		if (atomic_load(&at->pid) <= 0 || atomic_load(&at->doing) != TPCK_DOING_WAITS || (at->pipes[1] != pipe && at->pipes[2] != pipe))
			continue;
		snprintf(name, 40, "%s", at->name);
		return true;
	}
	return false;
}

void tpck_programs_read_slow(int fd, const void *bytes, size_t count)
{
	uint32_t used = tpck_children_used();
	bool forwards = tpck_programs_forwarding();
	int saved = errno;
	uint64_t pipe;

	if (!tpck_programs_recording() || (forwards && !nest) || home != tpck_sys_getpid()) {
		errno = saved;
		return;
	}
	pipe = far_end(pipe_at(fd, "", AT_EMPTY_PATH));
	for (uint32_t i = 0; pipe && i < used; i++) {
		struct tpck_child *at = &tpck_children[i];
		uint32_t doing = atomic_load(&at->doing), stream = at->pipes[1] == pipe ? 1 : 2;
		bool early = !tpck_log_attached(journal);

		/* One that has been waited for may still have something to say, until its place is another's. */
		if (!tpck_child_own((int)i) || doing == TPCK_DOING_NOTHING || doing == TPCK_DOING_WORKER || doing == TPCK_DOING_STANDIN || (forwards && !at->ahead) || (at->pipes[1] != pipe && at->pipes[2] != pipe) || at->lost)
			continue;
		if (!count) {
			note_no_more(at, pipe);
			continue;
		}
		note_start(at);
		at->lost = at->said + count > SAID_MOST || (early && atomic_load(&early_said) + count > SAID_EARLY);
		note(at, at->lost ? TPCK_PROGRAM_LOST : TPCK_PROGRAM_SAID, stream, bytes, at->lost ? 0 : count);
		at->said += (uint32_t)count;
		if (early)
			atomic_fetch_add(&early_said, (uint32_t)count);
		break;
	}
	errno = saved;
}

/* ---- forks -------------------------------------------------------------------------------------- */

void tpck_programs_forking(void)
{
	struct tpck_thread *self = journal ? tpck_thread_self() : NULL;

	forking = -1;
	if (!self || self->ours || self->elsewhere || home != tpck_sys_getpid())
		return;
	tpck_starts_fork(self);
	(void)tpck_unwritten_all();
	forking = tpck_child_take(self, -1);
	begin_mail();
}

/* This child is made again: the outside becomes what it was when the first one was made. */
static void goes_on(void)
{
	tpck_unwritten_of(family);
	if (tpck_follow_keeps_any())
		tpck_starts_output(tpck_follow_output_give());
}

bool tpck_child_goes_on(void)
{
	struct tpck_child *at = &tpck_children[forked_place];
	bool is_kept;

	(void)tpck_programs_forwarding();
	is_kept = tpck_starts_forked(forked_place) && !at->nested;
	if (is_kept)
		tpck_written_forked(NULL, at->made_ns, nest, family);
	else
		goes_on();
	tpck_follow_output_leave();
	return is_kept;
}

/* From here on it is a process with children of its own. */
bool tpck_programs_forked_child(void (*stays)(void))
{
	struct tpck_thread *self = tpck_thread_peek();
	bool done, is_kept, waits;

	forked_place = forking;
	if (forked_place < 0 || !self)
		return false;
	home = tpck_sys_getpid();
	nest = tpck_digest_pair(tpck_children[forked_place].thread, tpck_children[forked_place].ordinal);
	lock = 0;
	self->programs = 0;
	if (!tpck_children[forked_place].nested || !family)
		family = nest;
	atomic_store(&tpck_children[forked_place].pid, home);
	done = tpck_starts_forked(forked_place);
	/* What one does that had ended stays in its memory, but for what a child of a child does. */
	is_kept = done && !tpck_children[forked_place].nested;
	waits = !is_kept && tpck_undecided_begins(stays);
	if (waits)
		tpck_starts_output(1u << 1 | 1u << 2);
	else if (!is_kept)
		goes_on();
	if (!is_kept && tpck_programs_forwarding())
		tpck_follow_see(NULL);
	if (!waits)
		tpck_follow_output_leave();
	tpck_written_forked(is_kept ? NULL : tpck_unwritten_all(), tpck_children[forked_place].made_ns, nest, family);
	return done;
}

uint32_t tpck_programs_child(void)
{
	return forked_place >= 0 ? nest : 0;
}

uint32_t tpck_programs_number(int place)
{
	return place >= 0 ? tpck_digest_pair(tpck_children[place].thread, tpck_children[place].ordinal) : 0;
}

uint32_t tpck_programs_here(void)
{
	int saved = errno, place = tpck_child_here();

	errno = saved;
	return tpck_programs_number(place);
}

int tpck_child_here(void)
{
	int32_t pid = tpck_sys_getpid();
	struct tpck_thread *self;
	int place;

	if (!journal)
		return -1;
	if (pid == home)
		return forked_place >= 0 && atomic_load(&tpck_children[forked_place].pid) == pid ? forked_place : -1;
	/* A child that shares this memory, with the thread that made it waiting. */
	place = tpck_child_of(pid);
	if (place >= 0)
		return place;
	self = tpck_thread_peek();
	if (!self || self->ours || self->elsewhere || tpck_sys_getppid() != home)
		return -1;
	tpck_starts_thread(self);
	return tpck_child_take(self, pid);
}

bool tpck_child_shares(void)
{
	return home != tpck_sys_getpid();
}

/* ---- waiting ------------------------------------------------------------------------------------ */

static bool one_is_made(void)
{
	uint32_t used = tpck_children_used();

	for (uint32_t i = 0; i < used; i++)
		if (atomic_load(&tpck_children[i].pid) == -1 && tpck_child_own((int)i))
			return true;
	return false;
}

/* The child of a fork says itself which it is, soon. */
static int place_soon(pid_t child)
{
	struct timespec pause = {0, 1000000};
	int place = tpck_child_of(child);

	for (unsigned tries = 0; place < 0 && tries < 200 && one_is_made(); tries++) {
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		place = tpck_child_of(child);
	}
	return place;
}

/* The place of the child whose end was the first one to be told of those that there are; -1: of none the record has an end. The child of a fork says itself
 * which it is, soon. */
static int next_to_end(void)
{
	struct timespec pause = {0, 1000000};
	uint32_t used = tpck_children_used(), first = 0;
	int found = -1;

	for (uint32_t i = 0; i < used; i++) {
		uint32_t ended_as = atomic_load(&tpck_children[i].pid) && tpck_child_own((int)i) ? tpck_starts_ended_as((int)i) : 0;

		if (ended_as && (!first || ended_as < first)) {
			first = ended_as;
			found = (int)i;
		}
	}
	for (unsigned tries = 0; found >= 0 && tries < 200 && atomic_load(&tpck_children[found].pid) == -1; tries++)
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	return found >= 0 && atomic_load(&tpck_children[found].pid) > 0 ? found : -1;
}

/* The place of the one child that this process has; -1: it has none, or several. */
static int only_child(void)
{
	uint32_t used = tpck_children_used();
	int found = -1;

	for (uint32_t i = 0; i < used; i++)
		if (atomic_load(&tpck_children[i].pid) && tpck_child_own((int)i)) {
			if (found >= 0)
				return -1;
			found = (int)i;
		}
	return found;
}

enum tpck_programs_wait tpck_programs_waits(pid_t *child, bool polls)
{
	int place, saved = errno;

	if (!atomic_load(&tpck_programs_places) || !tpck_starts_follow())
		return TPCK_PROGRAMS_ASK;
	if (!tpck_programs_forwarding()) {
		place = *child > 0 ? tpck_child_of(*child) : -1;
		if (place >= 0)
			tpck_starts_finish(place);
		else if (*child <= 0)
			tpck_starts_finish_all();
		errno = saved;
		return TPCK_PROGRAMS_ASK;
	}
	place = *child == -1 && !tpck_child_shares() ? next_to_end() : -1;
	if (place >= 0)
		*child = atomic_load(&tpck_children[place].pid);
	else if (*child <= 0)
		tpck_starts_finish_all();
	if (place < 0 && polls)
		place = *child > 0 ? tpck_child_of(*child) : -1;
	else if (place < 0)
		place = *child > 0 ? place_soon(*child) : only_child();
	errno = saved;
	return place < 0 ? TPCK_PROGRAMS_ASK : tpck_starts_wait(place, polls);
}

void tpck_programs_waited(pid_t asked, bool polls, pid_t child, int status)
{
	int place = tpck_child_of(child ? child : asked), saved = errno;

	if (place < 0 || home != tpck_sys_getpid())
		return;
	if (!child) {
		if (polls && !tpck_programs_forwarding())
			atomic_fetch_add(&tpck_children[place].polls, 1);
	} else if (WIFEXITED(status) || WIFSIGNALED(status)) {
		tpck_child_ended(place, status);
	}
	errno = saved;
}
