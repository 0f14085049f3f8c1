/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor: forks, signals, ends. It has one thread, no memory of its own, and makes system calls only once the program runs. */
#include "config.h"

#include "runtime/twin/supervisor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/twin/set.h"
#include "runtime/wire/failures.h"
#include "runtime/wire/segment.h"
#include "runtime/wire/twin_names.h"

/* How often it is looked whether there is a snapshot, for a twin to begin from; the pause before a twin that ended gets a successor, twice as long each time,
 * and how many there are. */
enum { LOOK_MS = 100, PAUSE_MS = 1000, TWINS_MAX = 3 };
/* How often the program is forked once more before it holds a snapshot. */
enum { TRIES_MAX = 3 };
/* As wait(2) has it: what was started on a spare node ended with a status of 1 before it was live. */
enum { STANDS_IN_STATUS = 1 << 8 };
/* One that was there for so long had nothing against it. */
#define LASTED_NS 600000000000ull
/* How often it is looked what another rank's supervisor has decided, and how long at all. */
#define DECIDES_NS 10000000ull
#define DECIDED_NS 60000000000ull

static struct tpck_twin_page *page;
static bool forks;
static struct {
	sigset_t mask;
	struct sigaction child;
} before TPCK_LARGE; /* as the process was started */
static pid_t living, own_group;
static struct {
	pid_t process;            /* 0: there is none */
	uint64_t since_ns;
} kept[TPCK_TWINS_MAX]; /* twins, by their places */
static struct tpck_twin_place *own_place; /* in a twin, and in what was one */
static bool told_to_end;      /* a signal that ends programs came */
static char living_folder[sizeof page->twin[0].folder] TPCK_LARGE; /* of the living one, while it was a twin */
static int status_before;     /* how the one ended in whose place the living one is; 0: nobody's */
static bool begins_again;     /* the program is to be forked once more */
static unsigned tries;        /* how often that may be done before a snapshot is held */
static unsigned twins_ended;  /* one behind the other, before any took over */
static uint64_t ended_ns;     /* when the program ended that ended last */
static uint64_t next_twin_ns; /* when there may be another one */

static unsigned twins;        /* so many there are to be */
/* Of several ranks. */
static uint32_t rank, world;
static struct tpck_twin_set *set; /* NULL: the program has held no snapshot yet */
static struct tpck_twin_set *old; /* that of the one in whose place the living one is, or NULL: some ranks may be further than others */
static const char *no_set;        /* why there is none, and will be none */
static uint32_t epoch;            /* of the twin that there is, or was */
static bool ended_here;           /* the program was ended by this supervisor, so that the twin can take over */
/* The program ended by itself, as it may where another rank was ended. */
static struct {
	bool waits, asked;
	int status;
	uint64_t until_ns;
} undecided;
static bool stall_asked; /* of the living one */

struct tpck_twin_page *tpck_twin_page(void)
{
	return page;
}

void tpck_supervisor_leaves(bool leaves)
{
	if (page && atomic_load(&page->living) == tpck_sys_getpid())
		atomic_store(&page->left, leaves);
}

struct tpck_twin_place *tpck_twin_own_place(void)
{
	return own_place;
}

struct tpck_twin_place *tpck_twin_nearest(void)
{
	struct tpck_twin_place *found = NULL;

	for (unsigned i = 0; page && i < TPCK_TWINS_MAX; i++) {
		struct tpck_twin_place *place = &page->twin[i];

		if (atomic_load(&place->process) && atomic_load(&place->follows) && (!found || atomic_load(&place->proven) > atomic_load(&found->proven)))
			found = place;
	}
	return found;
}

bool tpck_supervisor_forks(void)
{
	return forks;
}

void tpck_supervisor_excuse(enum tpck_twin_excuse excuse)
{
	if (page && atomic_load(&page->living) == tpck_sys_getpid() && atomic_load(&page->excuse) < excuse)
		atomic_store(&page->excuse, excuse);
}

bool tpck_supervisor_stands_in(void)
{
	return page && atomic_load(&page->stands_in);
}

bool tpck_supervisor_again(void)
{
	return page && atomic_load(&page->again) && atomic_load(&page->living) == tpck_sys_getpid();
}

void tpck_supervisor_spent(void)
{
	if (page && page->input_at < 0 && atomic_load(&page->living) == tpck_sys_getpid())
		atomic_store(&page->spent, 1);
}

void tpck_supervisor_stalls(void)
{
	if (!atomic_exchange(&page->stalls, 1))
		tpck_sys_kill(tpck_sys_getppid(), SIGCHLD);
}

void tpck_supervisor_follows(void)
{
	atomic_store(&own_place->follows, 1);
	if (!set)
		return;
	atomic_store(&set->seat[rank].follows, epoch);
	tpck_twin_set_say(set);
}

void tpck_supervisor_meet_at(const char *host)
{
	if (page)
		snprintf(page->host, sizeof page->host, "%s", host);
}

unsigned tpck_supervisor_port(void)
{
	return set ? atomic_load(&set->port) : 0;
}

/* ---- forks ------------------------------------------------------------------------------------------- */

static bool has_one_thread(void)
{
	int tasks = tpck_sys_openat(AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	char buffer[1024];
	ssize_t got;
	unsigned count = 0;

	while (tasks >= 0 && (got = tpck_sys_getdents(tasks, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen)
			count += ((struct dirent64 *)at)->d_name[0] != '.';
	if (tasks >= 0)
		tpck_sys_close(tasks);
	return count == 1;
}

/* The terminal, if this process has one; the caller closes it. */
static int terminal(void)
{
	return tpck_sys_openat(AT_FDCWD, "/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY, 0);
}

static bool has_terminal(pid_t group)
{
	int tty = terminal();
	bool has = tty >= 0 && tcgetpgrp(tty) == group;

	if (tty >= 0)
		tpck_sys_close(tty);
	return has;
}

/* All signals are blocked here, SIGTTOU too. */
static void give_terminal(pid_t group)
{
	int tty = terminal();

	if (tty < 0)
		return;
	(void)tcsetpgrp(tty, group);
	tpck_sys_close(tty);
}

/* A child as the process was when it came here; 0 in the child. It is in a group of its own, so that what is sent to the supervisor's reaches it once. */
static pid_t fork_one(void)
{
	pid_t parent = tpck_sys_getpid(), child;

	forks = true;
	child = fork();
	forks = false;
	if (child) {
		if (child > 0)
			(void)setpgid(child, child);
		return child;
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (tpck_sys_getppid() != parent)
		tpck_sys_exit_group(137);
	(void)setpgid(0, 0);
	sigaction(SIGCHLD, &before.child, NULL);
	sigprocmask(SIG_SETMASK, &before.mask, NULL);
	return 0;
}

/* ---- ends -------------------------------------------------------------------------------------------- */

/* Of the twin's folder: files, and folders with nothing but files in them. */
static void folder_remove(const char *path, int depth)
{
	int folder = *path ? tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0) : -1;
	char buffer[4096], below[600];
	ssize_t got;

	if (folder < 0)
		return;
	while ((got = tpck_sys_getdents(folder, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			const char *name = ((struct dirent64 *)at)->d_name;

			if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || !tpck_sys_unlinkat(folder, name, 0) || depth == 0 ||
			    snprintf(below, sizeof below, "%s/%s", path, name) >= (int)sizeof below)
				continue;
			folder_remove(below, depth - 1);
		}
	tpck_sys_close(folder);
	tpck_sys_unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* There is none at this place any more. */
static void place_clear(unsigned place)
{
	kept[place].process = 0;
	atomic_store(&page->twin[place].process, 0);
	atomic_store(&page->twin[place].follows, 0);
	page->twin[place].folder[0] = '\0';
}

static void end_twins(void)
{
	for (unsigned i = 0; i < TPCK_TWINS_MAX; i++) {
		pid_t twin = kept[i].process;

		if (!twin)
			continue;
		/* With what it has made. */
		tpck_sys_kill(-twin, SIGKILL);
		tpck_sys_kill(twin, SIGKILL);
		while (tpck_sys_wait4(twin, NULL, __WALL, NULL) < 0 && errno == EINTR)
			;
		folder_remove(page->twin[i].folder, 3);
		tpck_twin_names_remove(twin);
		place_clear(i);
	}
}

/* A place without a twin that is to have one, or TPCK_TWINS_MAX. Of several ranks the twins meet, and each has one. */
static unsigned free_place(void)
{
	for (unsigned i = 0; i < twins && (i == 0 || world <= 1); i++)
		if (!kept[i].process)
			return i;
	return TPCK_TWINS_MAX;
}

/* This rank's twin is none any more, and so no other's is. */
static void leave_epoch(void)
{
	if (!set)
		return;
	atomic_store(&set->seat[rank].epoch, 0);
	tpck_twin_set_over(set, epoch);
	tpck_twin_set_tell(set, rank);
}

/* As the program ended. */
static void __attribute__((noreturn)) end_as(int status)
{
	static const struct rlimit no_core;

	end_twins();
	if (set)
		atomic_store(&set->seat[rank].ended, 1);
	if (old)
		atomic_store(&old->seat[rank].ended, 1);
	leave_epoch();
	if (old)
		tpck_twin_set_tell(old, rank);
	if (has_terminal(living))
		give_terminal(own_group);
	folder_remove(living_folder, 3);
	if (WIFSIGNALED(status)) {
		int number = WTERMSIG(status);
		sigset_t only;

		/* The program's core is there, if there is to be one. */
		(void)setrlimit(RLIMIT_CORE, &no_core);
		signal(number, SIG_DFL);
		sigemptyset(&only);
		sigaddset(&only, number);
		tpck_sys_kill(tpck_sys_getpid(), number);
		sigprocmask(SIG_UNBLOCK, &only, NULL);
		tpck_sys_exit_group(128 + number);
	}
	tpck_sys_exit_group(WEXITSTATUS(status));
}

/* A signal by which somebody ends a program, or tells it something that it did not want to hear. */
static bool is_sent_to_end(int number)
{
	return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT || number == SIGUSR1 || number == SIGUSR2;
}

static const char *const excuses[] = {
	[TPCK_TWIN_BLAMED] = " as another rank's was ended", [TPCK_TWIN_COMMUNICATOR] = " behind an error of NCCL",
	[TPCK_TWIN_DEVICE] = " behind an error of the device", [TPCK_TWIN_ANY_STATUS] = "",
};

/* The next one's snapshots are in another session, where there is another set. */
static void leave_set(void)
{
	if (!set)
		return;
	if (old)
		tpck_twin_set_leave(old, rank);
	old = set;
	set = NULL;
	epoch = 0;
}

/* What is known of the living one goes: another process is about to be. */
static void page_clear(void)
{
	atomic_store(&page->held, 0);
	atomic_store(&page->excuse, TPCK_TWIN_BLAMED);
	atomic_store(&page->stalls, 0);
	atomic_store(&page->live, 0);
}

static void live_by(pid_t process, bool foreground)
{
	living = process;
	twins_ended = 0;
	next_twin_ns = 0;
	ended_here = undecided.waits = stall_asked = false;
	atomic_store(&page->living, living);
	if (old) {
		atomic_store(&old->seat[rank].living, living);
		atomic_store(&old->seat[rank].waits, 0);
	}
	if (foreground)
		give_terminal(living);
}

static enum tpck_failure failure_of(int status)
{
	static const enum tpck_failure by[] = {
		[TPCK_TWIN_BLAMED] = TPCK_FAILURE_RANK, [TPCK_TWIN_COMMUNICATOR] = TPCK_FAILURE_COMMUNICATOR,
		[TPCK_TWIN_DEVICE] = TPCK_FAILURE_DEVICE, [TPCK_TWIN_ANY_STATUS] = TPCK_FAILURE_STATUS,
	};

	if (ended_here)
		return atomic_load(&page->stalls) ? TPCK_FAILURE_STALL : TPCK_FAILURE_RANK;
	return WIFSIGNALED(status) ? TPCK_FAILURE_PROCESS : by[atomic_load(&page->excuse)];
}

/* failed: the living one was a twin that was to take over, and has ended before it was live. */
static void take_over(int status, bool failed)
{
	unsigned at = (unsigned)(tpck_twin_nearest() - page->twin);
	bool foreground = has_terminal(living);
	pid_t twin = kept[at].process;

	if (!failed) {
		atomic_store(&page->failure, failure_of(status));
		status_before = status;
	}
	atomic_store(&page->counts, !failed);
	if (failed)
		tpck_log_warn("process %d ended before it was live; the other twin, process %d, takes over", living, twin);
	else if (ended_here && atomic_load(&page->stalls))
		tpck_log_warn("process %d has ended no iteration for too long, and was ended; its twin, process %d, takes over", living, twin);
	else if (ended_here)
		tpck_log_info("process %d was ended as another rank's was; its twin, process %d, takes over", living, twin);
	else if (WIFSIGNALED(status))
		tpck_log_warn("process %d was ended by signal %d (%s); its twin, process %d, takes over", living, WTERMSIG(status),
			      strsignal(WTERMSIG(status)), twin);
	else
		tpck_log_warn("process %d ended with status %d%s; its twin, process %d, takes over", living, WEXITSTATUS(status),
			      excuses[atomic_load(&page->excuse)], twin);
	if (set)
		atomic_store(&set->seat[rank].changed, 1);
	leave_set();
	folder_remove(living_folder, 3);
	snprintf(living_folder, sizeof living_folder, "%s", page->twin[at].folder);
	place_clear(at);
	atomic_fetch_add(&page->takeovers, 1);
	tries = TRIES_MAX;
	atomic_store(&page->again, 0);
	page_clear();
	live_by(twin, foreground);
	atomic_store(&page->twin[at].word, TPCK_TWIN_TAKE_OVER);
	tpck_sys_futex(&page->twin[at].word, FUTEX_WAKE, 1, NULL, NULL, 0);
	/* Somebody may have stopped it. */
	tpck_sys_kill(-living, SIGCONT);
}

/* Somebody wanted it to end so. */
static bool is_wanted(int status)
{
	return told_to_end || (WIFSIGNALED(status) && is_sent_to_end(WTERMSIG(status)));
}

static bool is_sudden(int status)
{
	uint32_t excuse = atomic_load(&page->excuse);

	if (WIFSIGNALED(status))
		return true;
	/* What NCCL says may follow from another rank's end, which is judged by its own supervisor. */
	return WEXITSTATUS(status) && (excuse > TPCK_TWIN_COMMUNICATOR ||
				       (excuse == TPCK_TWIN_COMMUNICATOR && !(set && tpck_twin_set_is_undecided(set, rank, ended_ns))));
}

static bool is_to_take_over(int status, bool failed, bool sudden)
{
	if (is_wanted(status) || atomic_load(&page->left) || !tpck_twin_nearest() || (world > 1 && !set))
		return false;
	/* The takeover that was under way goes on with the other twin. */
	if (failed)
		return world <= 1 && !atomic_load(&page->last);
	if (set && atomic_load(&set->changes))
		return true;
	if (!sudden)
		return false;
	if (!set)
		return true;
	if (!tpck_twin_set_changes(set, epoch))
		return false;
	tpck_twin_set_tell(set, rank);
	return true;
}

/* ---- once more ----------------------------------------------------------------------------------------- */

/* Another rank's program was ended, and not all can be taken over. */
static bool is_due(void)
{
	return (set && tpck_twin_set_is_due(set, rank)) || (old && tpck_twin_set_is_due(old, rank));
}

/* What all ranks' supervisors share now: one whose program holds no snapshot yet has what the one before it shared. */
static struct tpck_twin_set *shared(void)
{
	return set && (!old || tpck_twin_set_is_whole(set)) ? set : old;
}

/* Whether there is something to go on from, and it was not tried too often. */
static bool may_begin_again(void)
{
	return !told_to_end && !atomic_load(&page->left) && !atomic_load(&page->last) && !atomic_load(&page->spent) &&
	       (atomic_load(&page->held) || (status_before && tries));
}

/* Has the other ranks begin again, too. One that was not live has not ended by itself, whatever it says. */
static bool asks_again(int status, bool sudden)
{
	bool failed = status_before && !atomic_load(&page->live);

	if (!status || !(failed || sudden) || !may_begin_again())
		return false;
	if (world <= 1)
		return true;
	if (!shared() || !tpck_twin_set_again(shared(), rank))
		return false;
	tpck_twin_set_tell(shared(), rank);
	return true;
}

/* The fork itself is made where no child is looked at. */
static void begin_again(int status)
{
	static const char what[] = "the program is forked once more in its place, and goes forward to its newest snapshot";
	bool failed = status_before && !atomic_load(&page->live);

	/* Where nobody goes on in the end, the program has ended as the first one did. */
	if (!failed) {
		status_before = status;
		atomic_store(&page->failure, failure_of(status));
	}
	begins_again = true;
	end_twins();
	leave_epoch();
	if (ended_here)
		tpck_log_info("process %d was ended as another rank's was: %s", living, what);
	else if (WIFSIGNALED(status))
		tpck_log_warn("process %d was ended by signal %d (%s) and has no twin that could take over: %s", living, WTERMSIG(status),
			      strsignal(WTERMSIG(status)), what);
	else if (failed)
		tpck_log_warn("process %d ended with status %d before it was live: %s", living, WEXITSTATUS(status), what);
	else
		tpck_log_warn("process %d ended with status %d%s and has no twin that could take over: %s", living, WEXITSTATUS(status),
			      excuses[atomic_load(&page->excuse)], what);
}

/* Returns true in the program. */
static bool fork_again(void)
{
	bool foreground = has_terminal(living);
	pid_t child;

	begins_again = false;
	atomic_store(&page->counts, atomic_load(&page->held) > 0);
	tries = atomic_load(&page->held) ? TRIES_MAX : tries - 1;
	/* A rank that the older set asks goes by that one: the newer set may not have all ranks. */
	if (set && old && tpck_twin_set_is_due(old, rank)) {
		tpck_twin_set_leave(set, rank);
		set = NULL;
		epoch = 0;
	}
	leave_set();
	if (old)
		atomic_store(&old->seat[rank].again, atomic_load(&old->again));
	folder_remove(living_folder, 3);
	living_folder[0] = '\0';
	if (page->input_at >= 0)
		(void)tpck_sys_lseek(STDIN_FILENO, page->input_at, SEEK_SET);
	atomic_store(&page->again, 1);
	page_clear();
	child = fork_one();
	if (!child) {
		atomic_store(&page->living, tpck_sys_getpid());
		return true;
	}
	if (child < 0)
		end_as(status_before);
	live_by(child, foreground);
	return false;
}

static void join_set(void)
{
	if (set || no_set || !atomic_load(&page->held))
		return;
	set = tpck_twin_set_join(page->session, rank, world, tpck_sys_getpid(), living, &no_set);
	if (no_set)
		tpck_log_warn("process %d has no twin: %s", living, no_set);
}

/* All were told to change over, and this rank's twin has ended before it could: the others wait for it. */
static bool is_left(void)
{
	return set && atomic_load(&set->changes) && !tpck_twin_nearest();
}

/* Where another node decides what all ranks do. One that was not live has not ended by itself, whatever it says. */
static void ask(int status, bool failed)
{
	if (!shared() || tpck_twin_set_decides(shared()) || !(failed || is_left() || is_sudden(status)))
		return;
	/* Once more, as one that has changed over. */
	if (is_left() && !tpck_twin_set_is_asking(set, rank) && !atomic_exchange(&set->seat[rank].changed, 1))
		undecided.asked = false;
	if (undecided.asked)
		return;
	undecided.asked = true;
	tpck_twin_set_ask(shared(), rank, may_begin_again());
}

static void living_ended(int status)
{
	bool failed = status_before && !atomic_load(&page->live), sudden;

	ended_ns = tpck_clock_monotonic_ns();
	if (world > 1)
		join_set();
	/* Asked once: another rank that ends at this moment may be decided about between two questions, of which the second one then has the program forked once more. */
	sudden = is_sudden(status);
	if (is_wanted(status)) {
		end_as(status);
	} else if (is_due() && may_begin_again()) {
		begin_again(status);
	} else if (is_to_take_over(status, failed, sudden)) {
		take_over(status, failed);
	} else if (asks_again(status, sudden || is_left())) {
		begin_again(status);
	} else if (shared() && status) {
		undecided = (typeof(undecided)){.waits = true, .status = failed ? status_before : status, .until_ns = ended_ns + DECIDED_NS};
		if (set)
			atomic_store(&set->seat[rank].waits, 1);
		if (old)
			atomic_store(&old->seat[rank].waits, 1);
		ask(status, failed);
	} else {
		/* A takeover that failed is no end of the program's own. */
		end_as(failed ? status_before : status);
	}
}

static void decide(void)
{
	/* What is decided between this question and the next one counts at the next look. */
	bool still = tpck_twin_set_is_undecided(shared(), rank, ended_ns);

	ask(undecided.status, false);
	if (is_due() && may_begin_again())
		begin_again(undecided.status);
	else if (is_to_take_over(undecided.status, false, is_sudden(undecided.status)))
		take_over(undecided.status, false);
	else if (is_left() && asks_again(undecided.status, true))
		begin_again(undecided.status);
	else if (told_to_end || tpck_clock_monotonic_ns() > undecided.until_ns ||
		 !(still || tpck_twin_set_is_asking(shared(), rank) || tpck_twin_set_is_undecided(shared(), rank, ended_ns)))
		end_as(undecided.status);
}

/* The next one begins from the record's base, and meets the same difference, if there is one. */
static void twin_ended(unsigned place)
{
	uint64_t now = tpck_clock_monotonic_ns();
	unsigned pause;

	twins_ended = kept[place].since_ns && now - kept[place].since_ns > LASTED_NS ? 0 : twins_ended;
	pause = PAUSE_MS << twins_ended;
	twins_ended++;
	leave_epoch();
	folder_remove(page->twin[place].folder, 3);
	if (kept[place].process)
		tpck_twin_names_remove(kept[place].process);
	place_clear(place);
	next_twin_ns = now + pause * 1000000ull;
	if (twins_ended == TWINS_MAX && rank == 0 && !tpck_twin_nearest())
		tpck_log_warn("process %d has no twin from here on: %d ended one behind the other", living, TWINS_MAX);
}

/* The program was stopped, by a terminal or by somebody: so is the job, for whoever started it. But the terminal that it wants to use is the job's: others of a
 * pipeline have it as long as the program does not ask. */
static void living_stopped(int number)
{
	if ((number == SIGTTIN || number == SIGTTOU) && has_terminal(own_group)) {
		give_terminal(living);
		tpck_sys_kill(-living, SIGCONT);
		return;
	}
	if (has_terminal(living))
		give_terminal(own_group);
	tpck_sys_kill(tpck_sys_getpid(), SIGSTOP);
	/* Somebody has it go on. */
	atomic_store(&page->continued_ns, tpck_clock_monotonic_ns());
	atomic_store(&page->stalls, 0);
	tpck_sys_kill(-living, SIGCONT);
}

/* The place of a twin, or TPCK_TWINS_MAX: it is none. */
static unsigned place_of(pid_t process)
{
	unsigned place = 0;

	while (place < TPCK_TWINS_MAX && kept[place].process != process)
		place++;
	return place;
}

/* 0, or a child that has ended or was stopped, and how. What a twin has made ends with it: its group keeps its number until the twin has been waited for. */
static pid_t next_child(int *status)
{
	siginfo_t info = {.si_pid = 0};

	if (tpck_sys_waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT | __WALL, NULL) || !info.si_pid)
		return 0;
	if (place_of(info.si_pid) < TPCK_TWINS_MAX && info.si_code != CLD_STOPPED && info.si_code != CLD_TRAPPED)
		tpck_sys_kill(-info.si_pid, SIGKILL);
	return tpck_sys_wait4(info.si_pid, status, WNOHANG | WUNTRACED | __WALL, NULL);
}

static void look_at_children(void)
{
	int status;
	pid_t child;

	while ((child = next_child(&status)) > 0)
		if (child == living && WIFSTOPPED(status))
			living_stopped(WSTOPSIG(status));
		else if (child == living)
			living_ended(status);
		else if (place_of(child) < TPCK_TWINS_MAX && !WIFSTOPPED(status))
			twin_ended(place_of(child));
}

static void pass_on(int number)
{
	if (number == SIGCHLD)
		return;
	told_to_end = told_to_end || is_sent_to_end(number);
	/* The number of a program that has ended may be another process's by now. */
	if (!undecided.waits)
		tpck_sys_kill(number == SIGCONT ? -living : living, number);
}

/* The living one is there, and does nothing. */
static void look_at_stall(void)
{
	if (!atomic_load(&page->stalls) || ended_here || told_to_end || !tpck_twin_nearest() || undecided.waits || (world > 1 && !set))
		return;
	if (set && !tpck_twin_set_changes(set, epoch)) {
		if (!stall_asked)
			tpck_twin_set_ask(set, rank, false);
		stall_asked = true;
		return;
	}
	if (set)
		tpck_twin_set_tell(set, rank);
	ended_here = true;
	tpck_sys_kill(living, SIGKILL);
}

/* ---- several ranks ------------------------------------------------------------------------------------- */

/* This node has not heard for too long from a majority of the job's agents: a spare node may be about to take its ranks over. */
static void look_at_lease(void)
{
	uint64_t until = shared() ? atomic_load(&shared()->lease_ns) : 0;

	if (!until || told_to_end || tpck_clock_monotonic_ns() < until)
		return;
	tpck_log_error("process %d is ended: this node does not hear a majority of the job's agents, and a spare node may go on with its ranks", living);
	told_to_end = true;
	end_twins();
	if (!undecided.waits)
		tpck_sys_kill(living, SIGKILL);
}

/* What others of the set have said. */
static void look_at_set(void)
{
	if (world <= 1)
		return;
	join_set();
	if (!shared())
		return;
	if (set && atomic_load(&page->left))
		atomic_store(&set->seat[rank].ended, 1);
	if (rank == 0 && set && tpck_twin_set_answer(set))
		tpck_twin_set_tell(set, rank);
	if (rank == 0 && old && tpck_twin_set_answer(old))
		tpck_twin_set_tell(old, rank);
	if (((set && atomic_load(&set->changes)) || is_due()) && !told_to_end && !undecided.waits && !ended_here && !begins_again) {
		ended_here = true;
		tpck_sys_kill(living, SIGKILL);
	} else if (set && kept[0].process && !atomic_load(&set->changes) && atomic_load(&set->over) >= epoch) {
		end_twins();
		twin_ended(0);
	}
	if (undecided.waits)
		decide();
}

/* Whether there are twins of an epoch of which there is none here. */
static bool epoch_begins(void)
{
	uint32_t newest;

	if (!set || atomic_load(&set->changes) || undecided.waits)
		return false;
	if (rank == 0 && tpck_clock_monotonic_ns() >= next_twin_ns && tpck_twin_set_is_free(set)) {
		tpck_twin_set_begin(set);
		tpck_twin_set_tell(set, rank);
	}
	newest = atomic_load(&set->epoch);
	if (newest <= epoch || atomic_load(&set->over) >= newest)
		return false;
	epoch = newest;
	atomic_store(&set->seat[rank].epoch, epoch);
	tpck_twin_set_say(set);
	return true;
}

static bool wants_twin(void)
{
	if (free_place() == TPCK_TWINS_MAX || atomic_load(&page->left) || twins_ended >= TWINS_MAX || !atomic_load(&page->held))
		return false;
	return world > 1 ? epoch_begins() : tpck_clock_monotonic_ns() >= next_twin_ns;
}

/* Returns in a twin, and in the program where it is forked once more. */
static enum tpck_twin_role supervise(void)
{
	const struct timespec look = {LOOK_MS / 1000, LOOK_MS % 1000 * 1000000}, soon = {0, DECIDES_NS};
	sigset_t all;

	sigfillset(&all);
	for (;;) {
		siginfo_t info;
		unsigned place;
		pid_t twin;
		/* Twins are there, or there is nothing to look at: only signals tell. */
		bool still = ((twins && free_place() == TPCK_TWINS_MAX) || twins_ended >= TWINS_MAX) && !(shared() && atomic_load(&shared()->voters));
		int number = tpck_sys_sigtimedwait(&all, &info, undecided.waits ? &soon : still ? NULL : &look, 8);

		if (number > 0)
			pass_on(number);
		look_at_children();
		look_at_stall();
		look_at_lease();
		look_at_set();
		if (set)
			tpck_twin_set_say(set);
		if (old)
			tpck_twin_set_say(old);
		if (begins_again && fork_again())
			return TPCK_TWIN_LIVING;
		if (!wants_twin())
			continue;
		place = free_place();
		place_clear(place);
		atomic_store(&page->twin[place].word, TPCK_TWIN_FOLLOW);
		atomic_store(&page->twin[place].proven, 0);
		kept[place].since_ns = tpck_clock_monotonic_ns();
		twin = fork_one();
		if (!twin) {
			own_place = &page->twin[place];
			return TPCK_TWIN_TWIN;
		}
		if (twin < 0) {
			twin_ended(place);
			continue;
		}
		kept[place].process = twin;
		atomic_store(&page->twin[place].process, twin);
	}
}

enum tpck_twin_role tpck_supervise(uint32_t own_rank, uint32_t ranks, const struct tpck_supervised *how, const char **why)
{
	const struct sigaction standard = {.sa_handler = SIG_DFL};
	sigset_t all;

	*why = NULL;
	if (!has_one_thread()) {
		*why = "a library of the program has started a thread before the program began";
		return TPCK_TWIN_ALONE;
	}
	page = tpck_sys_mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED) {
		page = NULL;
		*why = "there is no memory";
		return TPCK_TWIN_ALONE;
	}
	rank = own_rank;
	world = ranks;
	twins = how->twins;
	/* What was started on a spare node goes on as one that is forked once more does: where that fails it was no success. */
	atomic_store(&page->stands_in, how->stands_in);
	atomic_store(&page->again, how->stands_in);
	status_before = how->stands_in ? STANDS_IN_STATUS : 0;
	page->input_at = tpck_sys_lseek(STDIN_FILENO, 0, SEEK_CUR);
	own_group = getpgrp();
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before.mask);
	sigaction(SIGCHLD, &standard, &before.child);
	living = fork_one();
	if (!living)
		return TPCK_TWIN_LIVING;
	if (living < 0) {
		sigaction(SIGCHLD, &before.child, NULL);
		sigprocmask(SIG_SETMASK, &before.mask, NULL);
		tpck_sys_munmap(page, sizeof *page);
		page = NULL;
		*why = "no process can be made";
		return TPCK_TWIN_ALONE;
	}
	atomic_store(&page->living, living);
	return supervise();
}
