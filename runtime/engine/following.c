/* SPDX-License-Identifier: Apache-2.0 */
/* A twin, from its start to the takeover. */
#include "config.h"

#include "runtime/engine/following.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/base/shared_file.h"
#include "runtime/engine/engine_private.h"
#include "runtime/engine/offered.h"
#include "runtime/engine/place.h"
#include "runtime/files/files.h"
#include "runtime/follow/caches.h"
#include "runtime/follow/contents.h"
#include "runtime/follow/follow.h"
#include "runtime/network/network.h"
#include "runtime/programs/programs.h"
#include "runtime/replay/restart.h"
#include "runtime/replay/spill.h"
#include "runtime/replay/stash.h"
#include "runtime/track/communicators.h"
#include "runtime/twin/habits.h"
#include "runtime/twin/manners.h"
#include "runtime/twin/supervisor.h"
#include "runtime/wire/twin.h"

/* How often it is looked how far the living one has come, how long for a first snapshot that is committed, and the status of a twin that ends by itself. */
#define LOOK_NS 5000000
#define FIRST_NS 30000000000ull
enum { ENDS_WITH = 125, LOOKS_A_SECOND = 200 };
/* How often it is said at most that a twin ends; how often, how far it has come; and how many deaths at one place are too many. */
#define ENDS_SAID_NS 3600000000000ull
#define PROVEN_SAID_NS 60000000000ull
enum { NEAR = 3, NEAR_PART = 20, DEATHS_MAX = 3 };
/* Of an iteration that takes long, so many are waited for. */
enum { STALLED_ITERATIONS = 10 };

static struct tpck_engine *const engine = &tpck_engine;
static _Atomic bool following;
static struct {
	char session[256];                 /* the living one's */
	const struct tpck_control *control;
	uint64_t generation, step;
	struct tpck_log_position cut;
	struct tpck_twin_says *says;       /* what others are told of this twin; NULL: nothing */
	uint64_t begun_ns;                 /* CLOCK_MONOTONIC: since when it runs forward */
	int input;                         /* the real standard input, or 0: it is in its place */
} living TPCK_LARGE;

bool tpck_following(void)
{
	return atomic_load_explicit(&following, memory_order_relaxed);
}

/* The third twin meets the same difference as the first, and so does one an hour later. */
static enum tpck_log_level how_loud(void)
{
	struct tpck_twin_page *page = tpck_twin_page();
	uint64_t now = tpck_clock_monotonic_ns();

	if (page->differed_ns && now - page->differed_ns < ENDS_SAID_NS)
		return TPCK_LOG_INFO;
	page->differed_ns = now;
	return TPCK_LOG_WARN;
}

void tpck_following_end(const char *why)
{
	const char *habit = tpck_habit(why);

	tpck_follow_abandon();
	tpck_programs_abandon();
	if (atomic_load(&tpck_twin_own_place()->word) == TPCK_TWIN_TAKE_OVER)
		tpck_log_warn("the twin cannot take over at step %llu: %s; the same command goes on when it is started again", (unsigned long long)living.step, why);
	else
		tpck_log(how_loud(), "the twin of process %d ends at step %llu: %s; the program is not touched by it%s%s%s", atomic_load(&tpck_twin_page()->living),
			 (unsigned long long)living.step, why, habit ? ". Likely behind it: " : "", habit ? habit : "", habit ? " (doc/limits.md)" : "");
	tpck_sys_exit_group(ENDS_WITH);
	__builtin_unreachable();
}

static void __attribute__((noreturn)) end_for(const char *what, int result)
{
	char why[240];

	snprintf(why, sizeof why, "%s: %s", what, strerror(-result));
	tpck_following_end(why);
}

/* ---- the living one ----------------------------------------------------------------------------------- */

void tpck_following_held(const char *session)
{
	struct tpck_twin_page *page = tpck_twin_page();

	if (!page || atomic_load(&page->living) != tpck_sys_getpid() || atomic_load(&page->left))
		return;
	if (!atomic_load(&page->held)) {
		const char *joined = tpck_restart_joined();

		/* A twin would have to join as well, and live at another number. */
		if (joined) {
			tpck_log_warn("the program has no twin: %s", joined);
			tpck_supervisor_leaves(true);
			return;
		}
		snprintf(page->session, sizeof page->session, "%s", session);
	}
	if (tpck_restart_input_gone())
		tpck_supervisor_spent();
	atomic_fetch_add(&page->held, 1);
}

bool tpck_following_excuses(void)
{
	struct tpck_twin_page *page = tpck_twin_page();
	const char *on = engine->settings.twin_on;

	if (!page || atomic_load(&page->living) != tpck_sys_getpid() || !tpck_twin_nearest())
		return false;
	if (strcmp(on, "status") == 0 || strcmp(on, "any") == 0)
		tpck_supervisor_excuse(TPCK_TWIN_ANY_STATUS);
	return atomic_load(&page->excuse) != TPCK_TWIN_BLAMED;
}

/* Once the twin has come as near as it does, and then each time that it has come twice as far. What it says itself goes nowhere. */
void tpck_following_tell(void)
{
	const struct tpck_twin_place *nearest = tpck_twin_nearest();
	static uint64_t said, said_ns;
	uint64_t proven, now;

	if (!nearest)
		return;
	proven = atomic_load(&nearest->proven);
	now = tpck_clock_monotonic_ns();
	if (!proven || proven + proven / NEAR_PART + NEAR < engine->step || (said && (proven < 2 * said || now - said_ns < PROVEN_SAID_NS)))
		return;
	tpck_log_info("process %d repeats itself: its twin, process %d, has repeated %llu iterations of it, each call as in its record", tpck_sys_getpid(),
		      atomic_load(&nearest->process), (unsigned long long)proven);
	said = proven;
	said_ns = now;
}

/* The newest snapshot that is committed, of several ranks by all. False: there is none yet. */
static bool newest(struct tpck_image_header *found)
{
	/* Committing may be undone until it is said here. */
	uint64_t limit = engine->ranks.world > 1 ? atomic_load(&living.control->committed_step) : UINT64_MAX;
	struct tpck_image_header header;
	bool any = false;

	for (unsigned i = 0; i < TPCK_IMAGES_MAX; i++) {
		char path[300];
		int fd;

		snprintf(path, sizeof path, "%s/image.%u", living.session, i);
		fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
		if (fd < 0)
			continue;
		if (tpck_sys_pread(fd, &header, sizeof header, 0) == (long)sizeof header && header.magic == TPCK_IMAGE_MAGIC &&
		    header.version == TPCK_WIRE_VERSION && header.state == TPCK_IMAGE_COMMITTED && header.footer == tpck_image_footer(&header) &&
		    header.resumable && header.generation == living.generation && header.step <= limit && (!any || header.step > found->step)) {
			memcpy(found, &header, sizeof header);
			any = true;
		}
		tpck_sys_close(fd);
	}
	return any;
}

/* Where it cannot be said, nobody is told. */
static struct tpck_twin_says *say_in(const char *session, const char *name)
{
	struct tpck_twin_says *says;
	char path[300];

	snprintf(path, sizeof path, "%s/%s", session, name);
	says = tpck_shared_file_new(path, sizeof *says);
	if (!says)
		return NULL;
	says->version = TPCK_WIRE_VERSION;
	says->takeovers = atomic_load(&tpck_twin_page()->takeovers);
	says->magic = TPCK_TWIN_MAGIC;
	return says;
}

/* What others are told of this twin. */
static void say_of_twin(void)
{
	if (living.says)
		tpck_sys_munmap(living.says, sizeof *living.says);
	living.says = say_in(living.session, tpck_twin_own_place() == tpck_twin_page()->twin ? TPCK_TWIN_FILE : TPCK_TWIN_SECOND_FILE);
	if (!living.says)
		return;
	living.says->begun_ns = living.begun_ns;
	atomic_store(&living.says->step, living.step);
	atomic_store(&living.says->process, tpck_sys_getpid());
}

static void goes_up_to(const struct tpck_image_header *image)
{
	living.step = image->step;
	living.cut = (struct tpck_log_position){image->log_sequence, image->log_offset};
	if (living.says)
		atomic_store(&living.says->step, image->step);
}

/* ---- following ------------------------------------------------------------------------------------------ */

/* Conversations are played from what there was at the start. */
static void learn_later(const struct tpck_record *record)
{
	if (tpck_network_converses(record))
		tpck_following_end("the program speaks with other machines behind its first snapshots");
	tpck_resume_learn(record);
}

static int learn_start(void)
{
	const struct tpck_record *record;
	struct tpck_log_reader *reader;
	int result = tpck_log_open(&reader, living.session, living.cut);

	if (result)
		return result;
	while ((record = tpck_log_next(reader)))
		tpck_resume_learn(record);
	/* The records stay mapped: the overlay reads from them. */
	return 0;
}

static void follow_further(struct tpck_log_position cut)
{
	int result = tpck_forward_extend(cut, learn_later);

	if (result)
		end_for("the record cannot be followed", result);
}

/* What others write to real files the twin must not touch: where the program writes to such a file as well, the two cannot be told apart. */
static void look_at_writers(void)
{
	const char *path = tpck_programs_share();
	char why[240];

	if (!path)
		return;
	snprintf(why, sizeof why, "another process that the program has made, and that goes on, writes to %.150s as well", path);
	tpck_following_end(why);
}

/* Files that the program writes lie in the twin's memory. */
static void look_at_memory(void)
{
	static unsigned looks;

	if (++looks % LOOKS_A_SECOND == 0 && tpck_follow_scratch_bytes() > engine->settings.twin_bytes)
		tpck_following_end("what the program has written takes more memory than TRANSPCKPT_TWIN_BYTES");
}

/* Whether it has taken over, and is live. */
static bool lives(void)
{
	struct tpck_twin_page *page = tpck_twin_page();

	return atomic_load(&page->living) == tpck_sys_getpid() && atomic_load(&page->live);
}

/* What the twin has behind it of the record is read seldom, and goes from memory as the living one's does, in a thread that may wait for the disk. What
 * cannot be put there stays. A program that is live does not depend on what becomes of that disk: all of it comes back. */
static void *spill_main(void *unused)
{
	char sessions[256];

	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-spill");
	snprintf(sessions, sizeof sessions, "%.*s", (int)(strrchr(living.session, '/') - living.session), living.session);
	tpck_spill_limit(engine->settings.log_store);
	while (!lives()) {
		struct timespec pause = {1, 0};

		while (tpck_following() && !tpck_spill_over() && (tpck_spill_nameless(sessions, "log.", engine->keep) || tpck_log_spill(engine->keep)))
			;
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	}
	tpck_spill_back();
	return NULL;
}

/* Whoever started it wants that. */
static void look_at_stall(void)
{
	uint64_t since = atomic_load(&living.control->alive_ns), continued = atomic_load(&tpck_twin_page()->continued_ns), now = tpck_clock_monotonic_ns();
	double limit = engine->settings.stall_sec * 1e9, iterations = STALLED_ITERATIONS * (double)living.control->status.iteration_ns;
	const char *on = engine->settings.twin_on;

	if (living.control->pid != atomic_load(&tpck_twin_page()->living))
		return;
	since = continued > since ? continued : since;
	if (limit > 0 && (strcmp(on, "stall") == 0 || strcmp(on, "any") == 0) && !living.control->exit_status && now > since &&
	    (double)(now - since) > limit && (double)(now - since) > iterations)
		tpck_supervisor_stalls();
}

/* ---- another one takes over ------------------------------------------------------------------------------ */

/* NULL, with errno. */
static const struct tpck_control *control_open(const char *session)
{
	char path[300];
	void *at;
	int fd;

	snprintf(path, sizeof path, "%s/control", session);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	at = fd < 0 ? MAP_FAILED : tpck_sys_mmap(NULL, sizeof *living.control, PROT_READ, MAP_SHARED, fd, 0);
	if (fd >= 0)
		tpck_sys_close(fd);
	return at == MAP_FAILED ? NULL : at;
}

static void control_close(const struct tpck_control *control)
{
	tpck_sys_munmap((void *)control, sizeof *control);
}

/* Whether that process's log has all that was followed: it went on from there, or from further on. */
static bool goes_on_from_here(const struct tpck_control *next)
{
	return next->parent_generation == living.generation && next->resume_step >= living.step &&
	       (next->resume_sequence > living.cut.sequence || (next->resume_sequence == living.cut.sequence && next->resume_offset >= living.cut.offset));
}

/* The other twin has taken over. Once that one has a snapshot this one follows it. */
static void look_who_lives(void)
{
	struct tpck_twin_page *page = tpck_twin_page();
	const struct tpck_control *next;
	int result;

	if (living.control->pid == atomic_load(&page->living) || !atomic_load(&page->held))
		return;
	next = control_open(page->session);
	if (!next)
		end_for("the session of the process that took over cannot be opened", -errno);
	if (next->pid != atomic_load(&page->living)) {
		control_close(next);
		return;
	}
	if (!goes_on_from_here(next))
		tpck_following_end("the process that took over has gone on from an older snapshot");
	result = tpck_forward_move(page->session);
	if (result)
		end_for("the record of the process that took over cannot be followed", result);
	control_close(living.control);
	living.control = next;
	living.generation = next->generation;
	snprintf(living.session, sizeof living.session, "%s", page->session);
	tpck_forward_living_group = next->pid;
	say_of_twin();
	tpck_programs_follow_to(living.session, living.cut, true);
}

static void look(void)
{
	struct tpck_image_header image;

	look_at_memory();
	look_who_lives();
	look_at_stall();
	atomic_store_explicit(&tpck_twin_own_place()->proven, tpck_forward_reached(), memory_order_relaxed);
	if (living.says)
		atomic_store_explicit(&living.says->proven, tpck_forward_reached(), memory_order_relaxed);
	if (living.control->status.last_step <= living.step || !newest(&image) || image.step <= living.step)
		return;
	follow_further((struct tpck_log_position){image.log_sequence, image.log_offset});
	look_at_writers();
	goes_up_to(&image);
	tpck_programs_follow_to(living.session, living.cut, true);
}

/* ---- the takeover --------------------------------------------------------------------------------------- */

static void own_input_back(void)
{
	if (living.input) {
		(void)tpck_sys_dup3(living.input, STDIN_FILENO, 0);
		tpck_sys_close(living.input);
	}
}

/* The one that has died was a twin before, and this one did not follow it yet. */
static bool goes_on_in_offer(void)
{
	const struct tpck_control *next = control_open(tpck_twin_page()->session);
	bool goes_on = next && next->generation == engine->welcome.offer_generation && goes_on_from_here(next) && !tpck_forward_move(engine->welcome.session);

	if (next)
		control_close(next);
	return goes_on;
}

static void agent_asked(void)
{
	struct tpck_ways ways = engine->control->status.ways;

	if (tpck_attach_hello(true))
		tpck_following_end("the agent cannot be asked for a snapshot");
	engine->control->status.ways = ways;
	if (!engine->welcome.offer)
		tpck_following_end("the agent has no snapshot to go on from");
	if (!(engine->welcome.offer_generation == living.generation ? engine->welcome.offer_step >= living.step : goes_on_in_offer()))
		tpck_following_end("the newest snapshot that is whole is older than what it has followed");
}

/* A program that dies again and again at one place would do so for ever. `at`: iterations that it had done. False: once more is too often. */
static bool count_death(uint64_t at, char why[160])
{
	struct tpck_twin_page *page = tpck_twin_page();

	page->deaths = page->deaths && at <= page->died_at + 1 && page->died_at <= at + 1 ? page->deaths + 1 : 1;
	page->died_at = at;
	if (page->deaths < DEATHS_MAX)
		return true;
	atomic_store(&page->last, 1);
	snprintf(why, 160, "the program has died %u times in a row within an iteration of step %llu", page->deaths, (unsigned long long)at);
	return false;
}

/* Of the one that has died, which this one may not have followed yet. */
static void look_at_deaths(void)
{
	struct tpck_twin_page *page = tpck_twin_page();
	const struct tpck_control *died = strcmp(page->session, living.session) ? control_open(page->session) : NULL;
	uint64_t at = (died ? died : living.control)->status.boundaries;
	char why[160];

	if (died)
		control_close(died);
	if (atomic_load(&page->counts) && !count_death(at, why))
		tpck_following_end(why);
}

/* The living one is gone. Threads wait at the end of what the log has for them. */
static void take_over(void)
{
	struct tpck_log_position cut;
	int result;

	tpck_manners_end();
	look_at_deaths();
	agent_asked();
	tpck_restart_meet(engine->welcome.meeting_ports[1]);
	cut = (struct tpck_log_position){engine->welcome.log_sequence, engine->welcome.log_offset};
	result = tpck_offered_open(engine->welcome.session, engine->welcome.offer_step, true);
	if (result)
		end_for("the snapshot cannot be mapped", result);
	if (!tpck_files_settle())
		tpck_log_warn("some files of the run before are not at their paths yet");
	own_input_back();
	tpck_resume_learn_behind(cut);
	if (tpck_programs_session(engine->welcome.session))
		tpck_engine_unresumable(TPCK_UNNOTED);
	follow_further(cut);
	look_at_writers();
	tpck_programs_give();
	tpck_shared_real();
	tpck_own_sockets_real();
	tpck_programs_follow_to(engine->welcome.session, cut, false);
	tpck_shared_real();
	if (!tpck_resume_watch_ranks())
		tpck_following_end("a thread that watches over the other ranks cannot be started");
	atomic_store(&following, false);
	engine->forward_ns = tpck_clock_monotonic_ns();
	if (engine->device)
		tpck_attach_link(false);
	/* From here on what differs ends as any resume does. */
	tpck_forward_last();
}

static void *following_main(void *unused)
{
	struct tpck_twin_page *page = tpck_twin_page();
	struct tpck_twin_place *own = tpck_twin_own_place();

	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-twin");
	while (atomic_load(&own->word) == TPCK_TWIN_FOLLOW) {
		struct timespec limit = {0, LOOK_NS};

		if (atomic_load(&page->left))
			tpck_following_end("the program has executed another one in its place");
		look();
		tpck_sys_futex(&own->word, FUTEX_WAIT, TPCK_TWIN_FOLLOW, &limit, NULL, 0);
	}
	take_over();
	return NULL;
}

void tpck_following_live(void)
{
	struct tpck_twin_page *page = tpck_twin_page();

	if (page && atomic_load(&page->living) == tpck_sys_getpid()) {
		snprintf(page->session, sizeof page->session, "%s", engine->welcome.session);
		atomic_store(&page->live, 1);
	}
	if (page && atomic_load(&page->takeovers))
		(void)say_in(engine->welcome.session, TPCK_TWIN_FILE);
}

/* ---- once more ------------------------------------------------------------------------------------------ */

void tpck_following_refuse(const char *why)
{
	if (!tpck_supervisor_again())
		return;
	atomic_store(&tpck_twin_page()->last, 1);
	tpck_log_warn("the program does not go on in its place: %s; the same command goes on when it is started again", why);
	tpck_sys_exit_group(ENDS_WITH);
}

void tpck_following_again(void)
{
	struct tpck_twin_page *page = tpck_twin_page();
	struct tpck_control *control;
	char path[300], why[160];
	bool may = true;

	if (!atomic_load(&page->counts))
		return;
	snprintf(path, sizeof path, "%s/control", page->session);
	control = tpck_shared_file_open(path, sizeof *control);
	if (!control)
		return;
	may = count_death(control->status.boundaries, why);
	tpck_sys_munmap(control, sizeof *control);
	if (!may)
		tpck_following_refuse(why);
}

/* ---- the begin ------------------------------------------------------------------------------------------ */

/* What the living one reads from standard input is not there for the twin: a file is read by a place of its own, and from a pipe there comes nothing. */
static void own_input(void)
{
	struct stat found;
	off_t at = tpck_twin_page()->input_at;
	int own;

	if (tpck_sys_fstatat(STDIN_FILENO, "", &found, AT_EMPTY_PATH))
		return;
	if (S_ISREG(found.st_mode)) {
		own = tpck_sys_openat(AT_FDCWD, "/proc/self/fd/0", O_RDONLY, 0);
		if (own < 0)
			end_for("standard input cannot be opened a second time", -errno);
		(void)tpck_sys_lseek(own, at, SEEK_SET);
	} else if (S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode)) {
		living.input = tpck_sys_high(tpck_sys_dup(STDIN_FILENO));
		own = tpck_sys_openat(AT_FDCWD, "/dev/null", O_RDONLY, 0);
		if (own < 0 || living.input < 0)
			end_for("standard input cannot be replaced", -errno);
	} else {
		return;
	}
	(void)tpck_sys_dup3(own, STDIN_FILENO, 0);
	tpck_sys_close(own);
}

static void find_living(void)
{
	uint64_t limit = tpck_clock_monotonic_ns() + FIRST_NS;
	struct tpck_image_header image;

	snprintf(living.session, sizeof living.session, "%s", tpck_twin_page()->session);
	living.control = control_open(living.session);
	if (!living.control)
		end_for("the living process's session cannot be opened", -errno);
	living.generation = living.control->generation;
	while (!newest(&image)) {
		if (tpck_clock_monotonic_ns() > limit)
			tpck_following_end("there is no snapshot that is committed");
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, LOOK_NS}, NULL);
	}
	goes_up_to(&image);
}

/* SHM/JOB/twin.PROCESS, beside the session. */
static void make_folder(char scratch[300])
{
	struct tpck_twin_place *own = tpck_twin_own_place();
	const char *end = strrchr(living.session, '/');

	snprintf(own->folder, sizeof own->folder, "%.*s/" TPCK_TWIN_FOLDER "%d", (int)(end - living.session), living.session, tpck_sys_getpid());
	snprintf(scratch, 300, "%s/forward", own->folder);
	if (tpck_sys_mkdirat(AT_FDCWD, own->folder, 0700) || tpck_sys_mkdirat(AT_FDCWD, scratch, 0700))
		end_for("its folder in memory cannot be made", -errno);
}

/* Until there is a session of its own. */
static void make_control(void)
{
	void *at = tpck_sys_mmap(NULL, sizeof *engine->control, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		tpck_following_end("there is no memory");
	engine->control = at;
	tpck_communicators_show(engine->control->communicator);
	memset(&engine->welcome, 0, sizeof engine->welcome);
	engine->welcome.offer = 1;
	engine->welcome.offer_generation = engine->welcome.generation = living.generation;
	engine->welcome.offer_step = living.step;
	snprintf(engine->welcome.session, sizeof engine->welcome.session, "%s", living.session);
}

/* The living ones are at the launcher's port, and their store remembers what they have said. */
static void meet_among_twins(void)
{
	char port[16];

	if (!tpck_supervisor_port() || !getenv("MASTER_PORT"))
		return;
	snprintf(port, sizeof port, "%u", tpck_supervisor_port());
	setenv("MASTER_PORT", port, 1);
	if (tpck_twin_page()->host[0] && getenv("MASTER_ADDR"))
		setenv("MASTER_ADDR", tpck_twin_page()->host, 1);
	if (getenv("TORCHELASTIC_USE_AGENT_STORE"))
		setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
}

void tpck_following_begin(void)
{
	char scratch[300], why[240] = "";
	int result;

	atomic_store(&following, true);
	tpck_manners_begin(engine->settings.twin_cgroup);
	tpck_attach_own_keep();
	tpck_restart_remember(environ);
	meet_among_twins();
	find_living();
	living.begun_ns = tpck_clock_monotonic_ns();
	say_of_twin();
	make_folder(scratch);
	make_control();
	own_input();
	tpck_attach_stashes();
	tpck_forward_living_group = atomic_load(&tpck_twin_page()->living);
	tpck_forward_follow();
	result = tpck_forward_open(living.session, living.cut);
	if (result)
		end_for("the record cannot be read", result);
	tpck_follow_record(engine->log, engine->keep, tpck_log_timeline(living.session));
	result = learn_start();
	if (result)
		end_for("the record cannot be read", result);
	look_at_writers();
	if (tpck_contents_compare(why, sizeof why) || tpck_place_return(why, sizeof why))
		tpck_following_end(why);
	result = tpck_follow_forward(scratch, false, false);
	if (result)
		end_for("its output cannot be held back", result);
	tpck_network_session(tpck_twin_own_place()->folder, &living.cut);
	if (tpck_programs_session(tpck_twin_own_place()->folder) || tpck_programs_forward(tpck_twin_own_place()->folder, engine->library))
		tpck_following_end("what stands in for programs that were started (standin, beside the library) cannot be used");
	tpck_programs_follow_to(living.session, living.cut, true);
	tpck_network_forward(tpck_resume_diverged);
	tpck_shared_begin();
	tpck_caches_hide(tpck_follow_begun_ns(), tpck_clock_coarse_ns());
	engine->forward_ns = tpck_clock_monotonic_ns();
	tpck_clocks_begin();
	tpck_engine_mode_set(TPCK_MODE_FORWARD);
	result = tpck_thread_start(following_main);
	if (result)
		end_for("a thread cannot be started", result);
	if (engine->keep[0])
		(void)tpck_thread_start(spill_main);
	tpck_supervisor_follows();
}
