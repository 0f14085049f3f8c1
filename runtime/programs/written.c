/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process writes to files (writings.h), if the program has made it: a forked child, which shares its parent's memory of that, or a program that was
 * started. Whose such a program is becomes known some time behind its first entry: until then it keeps what it notes.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/programs/programs_private.h"
#include "runtime/programs/writings.h"
#include "runtime/view/view.h"
#include "runtime/wire/segment.h"

enum { OPEN = 32, RECENT = 16, PATH = sizeof ((struct tpck_writing *)0)->path };
/* Descriptors that this process appends by. A write looks there without the lock: it may come from a signal's handler. */
static struct open {
	_Atomic int number;   /* 1 + the descriptor; 0: there is none */
	struct tpck_writing *_Atomic entry;
	_Atomic uint64_t when_ns; /* the entry's: it may be another one's by now */
} opened[OPEN] TPCK_LARGE;
static _Atomic uint32_t opened_most; /* places that were used */
/* Files that it has appended to, each with an entry. */
static struct tpck_writing *recent[RECENT];
static uint32_t recent_count;
static struct tpck_writings *to; /* NULL: this is no such process, or has written nothing yet */
static uint32_t writer, family;
static bool is_part; /* it is made again whenever others of its family are, though it may have ended */
static uint64_t made_ns;
static _Atomic uint64_t started;  /* when this process did, as tpck_view_process_started() says; 0: nobody has looked */
static tpck_spin lock;           /* of what changes all above */
static int home;                 /* this process; a child may share its memory */
/* Of a program that was started: it is not known yet whose it is. */
static _Atomic bool is_unsure;
static void (*asks)(void);
static int root;                 /* 0: not known */
/* Descriptors that were written by and are not in the table above: what they are was looked at. */
enum { LOOKED = 1024 };
static _Atomic uint64_t looked[LOOKED / 64];

_Atomic uint32_t tpck_programs_child_writes;

void tpck_written_forked(struct tpck_writings *writings, uint64_t when_ns, uint32_t number, uint32_t of)
{
	lock = 0;
	home = tpck_sys_getpid();
	memset(looked, 0, sizeof looked);
	made_ns = when_ns;
	started = 0;
	recent_count = 0;
	/* What a program that was started has made is made again with it. */
	is_part = root || atomic_load(&is_unsure) || number != of;
	if (!root) {
		to = writings;
		writer = number;
		family = atomic_load(&is_unsure) ? 0 : of;
	}
	atomic_store(&is_unsure, false);
	/* What is open was opened by who made this process: both write to it, and one entry has what both have written. */
	atomic_store(&tpck_programs_child_writes, to ? TPCK_CHILD_NOTES : TPCK_CHILD_NONE);
}

/* ---- a program that was started ------------------------------------------------------------------- */

TPCK_AT_START void tpck_written_started(void (*how)(void))
{
	asks = how;
	home = tpck_sys_getpid();
	made_ns = tpck_clock_monotonic_ns();
	atomic_store(&is_unsure, true);
	atomic_store(&tpck_programs_child_writes, TPCK_CHILD_UNSURE);
}

/* Who is killed leaves processes, which may write on while it is started again. */
static void look_when_begun(void)
{
	if (!started)
		started = tpck_view_process_started(home);
}

/* Whether there is something that this process is to note in. */
static bool is_ready(void)
{
	if (!to && atomic_load(&is_unsure)) {
		void *own = tpck_sys_mmap(NULL, sizeof *to, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		tpck_spin_lock(&lock);
		if (!to && own != MAP_FAILED) {
			to = own;
			own = MAP_FAILED;
			atomic_store(&tpck_programs_child_writes, TPCK_CHILD_NOTES);
		}
		tpck_spin_unlock(&lock);
		if (own != MAP_FAILED)
			tpck_sys_munmap(own, sizeof *to);
		asks();
	}
	if (to)
		look_when_begun();
	return to != NULL;
}

static bool is_home(void)
{
	return tpck_sys_getpid() == home;
}

/* Whether that is where the output of the process with the log goes, whose memory this is. */
static bool is_output(const struct tpck_writings *of, uint64_t device, uint64_t inode)
{
	bool is = false;

	for (int which = 1; which <= 2 && of; which++)
		is = is || (of->head.output[which].inode == inode && of->head.output[which].device == device && inode);
	return is;
}

unsigned tpck_written_outputs(void)
{
	unsigned outputs = 0;
	struct stat found;

	for (int fd = 1; fd <= 2; fd++)
		if (!tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) && is_output(to, found.st_dev, found.st_ino))
			outputs |= 1u << fd;
	return outputs;
}

/* The lock is held. An entry of this process's own goes to its root's; NULL: to nobody. */
static struct tpck_writing *moved(struct tpck_writings *there, const struct tpck_writing *from)
{
	struct tpck_writing *entry;

	if (!there || is_output(there, from->device, from->inode))
		return NULL;
	entry = tpck_writings_take(there);
	memcpy((char *)entry + sizeof entry->kind, (const char *)from + sizeof from->kind, sizeof *entry - sizeof entry->kind);
	entry->writer = entry->family = writer;
	atomic_store(&entry->kind, atomic_load(&from->kind));
	return entry;
}

void tpck_written_belongs(const struct tpck_root *to_root)
{
	const char *session = to_root ? to_root->session : NULL;
	uint32_t number = to_root ? to_root->through : 0;
	struct tpck_writings *there = NULL, *own = NULL;
	int saved = errno;

	if (session && (!atomic_load(&is_unsure) || !number))
		return;
	if (session && !(there = tpck_writings_open(session, TPCK_WRITTEN)))
		tpck_log_warn("what this program writes to files cannot be noted in %s: a resume may write it twice", session);
	tpck_spin_lock(&lock);
	if (atomic_exchange(&is_unsure, false))
		own = to;
	root = to_root ? to_root->process : 0;
	writer = family = number;
	for (uint32_t i = 0, count = own ? tpck_writings_count(own) : 0; i < count; i++) {
		struct tpck_writing *at = &own->entry[i], *is = atomic_load(&at->kind) ? moved(there, at) : NULL;

		for (uint32_t j = 0; j < OPEN; j++)
			if (atomic_load(&opened[j].entry) == at && is) /* whose when_ns is the same */
				atomic_store(&opened[j].entry, is);
			else if (atomic_load(&opened[j].entry) == at)
				atomic_store(&opened[j].number, 0);
	}
	if (own && there && tpck_writings_lacking(own))
		tpck_writings_lack(there, made_ns, number);
	recent_count = 0;
	to = there;
	for (uint32_t j = 0; j < OPEN && !there; j++)
		atomic_store(&opened[j].number, 0);
	atomic_store(&tpck_programs_child_writes, there ? TPCK_CHILD_NOTES : TPCK_CHILD_NONE);
	tpck_spin_unlock(&lock);
	/* This process's own memory stays: another thread may be counting there. */
	errno = saved;
}

/* ---- what it writes ------------------------------------------------------------------------------- */

/* What this process writes to the path has no entry. */
static void miss(const char *path, int why)
{
	int none = 0;

	tpck_spin_lock(&lock);
	if (to) {
		tpck_writings_lack(to, made_ns, writer);
		if (atomic_compare_exchange_strong(&to->head.missed_error, &none, -1)) {
			snprintf(to->head.missed_path, sizeof to->head.missed_path, "%s", path);
			atomic_store(&to->head.missed_error, why);
		}
	}
	tpck_spin_unlock(&lock);
}

static bool path_of(int fd, char path[PATH])
{
	char link[40];
	long got;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(link, path, PATH - 1);
	if (got > 0 && got < PATH - 1)
		path[got] = '\0';
	return got > 0 && got < PATH - 1 && path[0] == '/';
}

/* What shm_open() makes is memory that processes share: nothing of it is there for another run. A loader's workers make one for each batch. */
static bool is_shared_memory(const char *path)
{
	return strncmp(path, "/dev/shm/", 9) == 0 && !strchr(path + 9, '/');
}

/* Whether the file was made since this process was. */
static bool is_new(int fd)
{
	struct statx found;
	uint64_t born, began;

	if (tpck_sys_statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &found) || !(found.stx_mask & STATX_BTIME))
		return false;
	born = (uint64_t)found.stx_btime.tv_sec * 1000000000u + found.stx_btime.tv_nsec;
	began = tpck_clock_realtime_ns() - (tpck_clock_monotonic_ns() - made_ns);
	return born >= began;
}

/* The lock is held. */
static struct tpck_writing *known(const struct stat *found)
{
	for (uint32_t i = 0; i < recent_count && i < RECENT; i++)
		if (recent[i]->device == found->st_dev && recent[i]->inode == found->st_ino && atomic_load(&recent[i]->kind) == TPCK_WRITING_APPENDED &&
		    (recent[i]->writer == writer || atomic_load(&recent[i]->process) == home))
			return recent[i];
	return NULL;
}

static struct open *open_at(int fd)
{
	uint32_t most = atomic_load(&opened_most);

	for (uint32_t i = 0; i < most; i++)
		if (atomic_load(&opened[i].number) == fd + 1)
			return &opened[i];
	return NULL;
}

/* The lock is held. Where there is no room for it, what is written by it is not counted, and cannot be taken back. */
static void remember(int fd, struct tpck_writing *entry)
{
	struct open *at = open_at(fd);

	for (uint32_t i = 0; i < OPEN && !at; i++)
		if (!atomic_load(&opened[i].number)) {
			at = &opened[i];
			if (i >= atomic_load(&opened_most))
				atomic_store(&opened_most, i + 1);
		}
	if (!at)
		return;
	atomic_store(&at->entry, entry);
	atomic_store(&at->when_ns, entry->when_ns);
	atomic_store(&at->number, fd + 1);
}

/* The lock is held. */
static struct tpck_writing *note(uint32_t kind, const struct stat *found, const char *path, bool fresh)
{
	struct tpck_writing *entry = tpck_writings_take(to);

	entry->writer = writer;
	entry->family = family;
	entry->when_ns = tpck_clock_monotonic_ns();
	entry->made_ns = made_ns;
	entry->started = started;
	atomic_store(&entry->process, home);
	entry->device = found->st_dev;
	entry->inode = found->st_ino;
	entry->before = found->st_size;
	entry->mtime_s = found->st_mtim.tv_sec;
	entry->mtime_ns = found->st_mtim.tv_nsec;
	entry->is_new = fresh;
	snprintf(entry->path, sizeof entry->path, "%s", path);
	atomic_store(&entry->kind, kind);
	return entry;
}

static bool has_ended(const struct tpck_writing *entry)
{
	int32_t process = atomic_load(&entry->process);

	return process > 0 && entry->started && entry->started != TPCK_VIEW_STARTED_UNKNOWN && !tpck_former_lives(entry);
}

/* The lock is held. What one of the family has noted of the file that has ended: this process goes on there. So processes that append a row each, one behind the other,
 * need one entry. NULL: there is none. */
static struct tpck_writing *joined(const struct stat *found, const char *path)
{
	uint32_t count = is_part ? tpck_writings_count(to) : 0;
	int64_t wrote = 0, before = found->st_size, doing;
	struct tpck_writing *entry = NULL;
	int32_t process;

	for (uint32_t i = 0; i < count; i++) {
		struct tpck_writing *at = &to->entry[i];

		if (atomic_load(&at->kind) != TPCK_WRITING_APPENDED || at->device != found->st_dev || at->inode != found->st_ino || atomic_load(&at->inherited))
			continue;
		wrote += atomic_load(&at->own) + atomic_load(&at->doing);
		before = at->before < before ? at->before : before;
		if (at->family == family && (!entry || atomic_load(&entry->doing)) && strcmp(at->path, path) == 0 && has_ended(at))
			entry = at;
	}
	doing = entry ? atomic_load(&entry->doing) : 0;
	process = entry ? atomic_load(&entry->process) : 0;
	/* What it was about to write when it ended is there if the file has all that is noted of it. */
	if (!entry || process <= 0 || (doing && found->st_size - before != wrote) || !atomic_compare_exchange_strong(&entry->process, &process, -1))
		return NULL;
	atomic_fetch_add(&entry->own, doing);
	atomic_fetch_sub(&entry->doing, doing);
	entry->started = started;
	atomic_store(&entry->process, home);
	return entry;
}

/* The descriptor's file is as it was found, and gets more behind that. */
static void appends(int fd, const struct stat *found)
{
	struct tpck_writing *entry = NULL;
	bool fresh = !found->st_size && is_new(fd), named;
	char path[PATH];

	named = path_of(fd, path);
	if (named && is_shared_memory(path))
		return;
	tpck_spin_lock(&lock);
	if (to)
		entry = known(found);
	if (to && !entry && named && (entry = joined(found, path)))
		recent[recent_count++ % RECENT] = entry;
	if (to && !entry && named) {
		entry = note(TPCK_WRITING_APPENDED, found, path, fresh);
		recent[recent_count++ % RECENT] = entry;
	}
	if (entry)
		remember(fd, entry);
	tpck_spin_unlock(&lock);
	if (!entry && !named)
		miss("a path of that length", ENAMETOOLONG);
}

/* The descriptor may be another file from here on. */
static void look_again(int fd)
{
	if (fd >= 0 && fd < LOOKED)
		atomic_fetch_and(&looked[fd / 64], ~(1ull << (fd & 63)));
}

/* The descriptor's file is this process's own. */
static void look_never(int fd)
{
	if (fd >= 0 && fd < LOOKED)
		atomic_fetch_or(&looked[fd / 64], 1ull << (fd & 63));
}

static bool is_looked_at(int fd)
{
	return fd < 0 || fd >= LOOKED || atomic_load(&looked[fd / 64]) >> (fd & 63) & 1;
}

void tpck_written_opened(int fd, int flags)
{
	char path[PATH];
	struct stat found;
	bool created = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL), named;

	/* What is cut to nothing will be so once more; and was not given to this process. No system call is made for it. */
	if (!created && flags & O_TRUNC) {
		look_never(fd);
		return;
	}
	if (!is_home() || tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) || !S_ISREG(found.st_mode) || !is_ready())
		return;
	named = path_of(fd, path);
	if (named && is_shared_memory(path)) {
		look_never(fd);
		return;
	}
	if (!created && (flags & O_APPEND || !found.st_size)) {
		appends(fd, &found);
		return;
	}
	if (!named) {
		miss("a path of that length", ENAMETOOLONG);
		return;
	}
	tpck_spin_lock(&lock);
	if (to)
		(void)note(created ? TPCK_WRITING_CREATED : TPCK_WRITING_CHANGED, &found, path, created);
	tpck_spin_unlock(&lock);
	if (created)
		tpck_child_made(path);
}

/* What is written to, and was not opened here, was given to this process: a file that is not where the output of those goes that it comes from. */
static void look_at(int fd)
{
	uint64_t bit = 1ull << (fd & 63);
	struct stat found;

	if (fd < 0 || fd >= LOOKED || atomic_fetch_or(&looked[fd / 64], bit) & bit || tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) ||
	    !S_ISREG(found.st_mode) || !is_ready() || is_output(to, found.st_dev, found.st_ino))
		return;
	appends(fd, &found);
}

bool tpck_programs_child_counts(int fd)
{
	return (open_at(fd) || !is_looked_at(fd)) && is_home();
}

void tpck_programs_child_writes_slow(int fd, size_t bytes, ssize_t done, bool before)
{
	struct tpck_writing *entry;
	int saved = errno;
	struct open *at = open_at(fd);

	if ((!at && (!before || is_looked_at(fd))) || !is_home())
		return;
	if (!at) {
		look_at(fd);
		at = open_at(fd);
	}
	entry = at ? atomic_load(&at->entry) : NULL;
	if (entry && entry->when_ns != atomic_load(&at->when_ns)) {
		struct tpck_writings *of = to;

		if (of && before)
			tpck_writings_lack(of, made_ns, writer);
	} else if (entry) {
		/* At each instant both together are no less than what the file has got. */
		if (before) {
			atomic_fetch_add(&entry->doing, (int64_t)bytes);
		} else {
			atomic_fetch_add(&entry->own, done > 0 ? (int64_t)done : 0);
			atomic_fetch_sub(&entry->doing, (int64_t)bytes);
		}
	}
	errno = saved;
}

void tpck_programs_child_copies_slow(int from, int fd)
{
	struct open *at;

	if (!is_home())
		return;
	look_again(fd);
	tpck_spin_lock(&lock);
	at = from != fd ? open_at(from) : NULL;
	if (at)
		remember(fd, atomic_load(&at->entry));
	tpck_spin_unlock(&lock);
}

void tpck_programs_child_closes_slow(int fd)
{
	int saved = errno;
	struct open *at;

	if (!open_at(fd)) {
		look_again(fd);
		return;
	}
	if (!is_home())
		return;
	tpck_spin_lock(&lock);
	at = open_at(fd);
	if (at)
		atomic_store(&at->number, 0);
	tpck_spin_unlock(&lock);
	errno = saved;
}

void tpck_programs_child_closed_range_slow(unsigned first, unsigned last)
{
	if (!is_home())
		return;
	for (unsigned fd = first; fd <= last && fd < LOOKED; fd++)
		look_again((int)fd);
	tpck_spin_lock(&lock);
	for (uint32_t i = 0; i < OPEN; i++)
		if (atomic_load(&opened[i].number) && (unsigned)atomic_load(&opened[i].number) - 1 >= first && (unsigned)atomic_load(&opened[i].number) - 1 <= last)
			atomic_store(&opened[i].number, 0);
	tpck_spin_unlock(&lock);
}

void tpck_programs_child_made_slow(int folder, const char *path)
{
	char absolute[PATH];
	/* Of a program that has made nothing else it is not asked whose it is: many make folders. */
	int saved = errno, fd = to && is_home() ? tpck_sys_openat(folder, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0) : -1;
	struct stat found;

	if (fd < 0 ? to && (errno == EMFILE || errno == ENFILE || errno == ENOMEM) : !path_of(fd, absolute)) {
		miss(path, fd < 0 ? errno : ENAMETOOLONG);
	} else if (fd >= 0 && !tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH)) {
		look_when_begun();
		tpck_spin_lock(&lock);
		if (to)
			(void)note(TPCK_WRITING_FOLDER, &found, absolute, true);
		tpck_spin_unlock(&lock);
		tpck_child_made(absolute);
	}
	if (fd >= 0)
		tpck_sys_close(fd);
	errno = saved;
}

bool tpck_programs_child_made_before_slow(int folder, const char *path)
{
	struct stat found;
	int saved = errno;
	bool made = false;

	if (to && is_home() && atomic_load(&to->head.inherited) && !tpck_sys_fstatat(folder, path, &found, AT_SYMLINK_NOFOLLOW) && S_ISDIR(found.st_mode))
		for (uint32_t i = 0, count = tpck_writings_count(to); i < count && !made; i++)
			made = to->entry[i].writer == writer && tpck_written_is(&to->entry[i], TPCK_WRITING_FOLDER, &found) && tpck_written_settles(to, &to->entry[i]);
	errno = saved;
	if (made)
		tpck_programs_child_made_slow(folder, path);
	return made;
}
