/* SPDX-License-Identifier: Apache-2.0 */
/* A resume: the offer, running forward, putting the state in place, going live or starting over. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
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
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/engine/engine_private.h"
#include "runtime/engine/agent_link.h"
#include "runtime/engine/following.h"
#include "runtime/engine/offered.h"
#include "runtime/engine/place.h"
#include "runtime/files/files.h"
#include "runtime/follow/caches.h"
#include "runtime/follow/contents.h"
#include "runtime/follow/follow.h"
#include "runtime/network/network.h"
#include "runtime/programs/programs.h"
#include "runtime/replay/restart.h"
#include "runtime/replay/stash.h"
#include "runtime/twin/supervisor.h"

/* How long a thread waits for others while the process does nothing, and at all. */
#define IDLE_LIMIT_NS 8000000000ull
#define WAIT_LIMIT_NS 120000000000ull

/* Starts that may miss a step by chance before it is given up. */
enum { TRIES = 3 };

static struct tpck_engine *const engine = &tpck_engine;
static pthread_mutex_t injecting = PTHREAD_MUTEX_INITIALIZER;

/* What the first run did behind the step is not known. */
static bool is_lost_behind;

static void begin_anew(const char *what, bool by_chance);

/* ---- the offer ---------------------------------------------------------------------------------- */

uint64_t tpck_resume_bytes(void)
{
	return tpck_offered() ? tpck_offered()->data_bytes : 0;
}

static void learn_behind(const struct tpck_record *record)
{
	tpck_programs_learn_behind(record);
	tpck_network_learn_behind(record);
	tpck_network_learn_sent(record);
}

static void learn_tried(const struct tpck_record *record)
{
	tpck_programs_learn_tried(record);
	tpck_network_learn_tried(record);
}

void tpck_resume_learn_behind(struct tpck_log_position cut)
{
	is_lost_behind = !tpck_log_behind(engine->welcome.session, cut, learn_behind);
	tpck_network_session(engine->welcome.session, &cut);
	tpck_network_left(learn_behind);
	tpck_programs_left(engine->welcome.session, learn_behind);
	if (!tpck_log_tried(engine->welcome.session, learn_tried))
		tpck_log_warn("starts that had gone on from this step, and left no snapshot, did more behind it than is known: what of it is done again is not all named");
}

void tpck_resume_learn(const struct tpck_record *record)
{
	if (record->type == TPCK_RECORD_FILE)
		tpck_follow_learn(record);
	else if (record->type == TPCK_RECORD_PROGRAM)
		tpck_programs_learn(record);
	else if (record->type == TPCK_RECORD_TALK)
		tpck_network_learn(record);
	else
		tpck_place_learn(record);
}

static int learn_start(struct tpck_log_position cut)
{
	const struct tpck_record *record;
	struct tpck_log_reader *reader;
	int result = tpck_log_open(&reader, engine->welcome.session, cut);

	if (result)
		return result;
	while ((record = tpck_log_next(reader)))
		tpck_resume_learn(record);
	tpck_resume_learn_behind(cut);
	/* The records stay mapped: the overlay reads from them. */
	return 0;
}

/* The offer is not taken: nothing of the program has run yet, so this start is simply a fresh one. */
static void decline(const char *why)
{
	char path[300];

	tpck_following_refuse(why);
	/* The others are on their way there: all begin anew. */
	if (engine->ranks.world > 1)
		tpck_resume_diverged(why);
	tpck_log_warn("not resuming at step %llu: %s", (unsigned long long)engine->welcome.offer_step, why);
	tpck_forward_close();
	tpck_follow_unlearn();
	tpck_programs_unlearn();
	tpck_network_unlearn();
	tpck_offered_close();
	snprintf(path, sizeof path, "%s/resume.image", engine->welcome.session);
	tpck_sys_unlinkat(AT_FDCWD, path, 0);
	engine->control->parent_generation = engine->control->resume_step = 0;
	tpck_engine_mode_set(tpck_attach_fresh() ? TPCK_MODE_OFF : TPCK_MODE_LIVE);
}

/* How long ranks of several nodes wait for this one's next agent, which hears from the others whether they have gone live. */
#define NEXT_AGENT_NS 60000000000ull

/* Whether nobody will say any more what becomes of this start. *since: when the agent was missed first, 0 at first. */
static bool left_alone(uint64_t *since)
{
	uint64_t now = tpck_clock_monotonic_ns();

	if (!tpck_agent_lost()) {
		*since = 0;
		return false;
	}
	if (!*since)
		*since = now;
	return !engine->ranks.elsewhere || now >= *since + NEXT_AGENT_NS;
}

/* Another rank may give up while this one computes, or waits for it in a call of its own: so a thread looks. */
static void *ranks_main(void *unused)
{
	uint64_t since = 0;

	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-ranks");
	while (tpck_engine_mode() == TPCK_MODE_EARLY || tpck_engine_mode() == TPCK_MODE_FORWARD) {
		struct timespec pause = {0, 20000000};
		uint32_t go = atomic_load(&engine->control->go);

		if (go == TPCK_GO_OVER || go == TPCK_GO_AGAIN)
			begin_anew("another rank does not resume", go == TPCK_GO_AGAIN);
		/* This rank would wait for word of the others for as long as it may. */
		if (go == TPCK_GO_WAIT && left_alone(&since) && atomic_load(&engine->control->go) == TPCK_GO_WAIT)
			begin_anew("the agent is gone", true);
		/* Ranks that wait for one another in a call of their own do not come to where the link's thread begins. */
		if (since)
			tpck_agent_seek();
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	}
	return NULL;
}

bool tpck_resume_watch_ranks(void)
{
	return engine->ranks.world <= 1 || !tpck_thread_start(ranks_main);
}

/*
 * torchrun keeps one store for all restarts of its workers (seen in torch 2.15): a rank that comes first finds there what
 * the last attempt's said, such as its NCCL id, and goes by that. Before the program reads its environment, ranks that
 * were restarted are told to meet at a port of their own. Where there are several nodes none knows whether another's torchrun
 * has restarted, so all that resume do so. Starting over takes yet another.
 */
static void meet_anew(void)
{
	const char *store = getenv("TORCHELASTIC_USE_AGENT_STORE"), *restarts = getenv("TORCHELASTIC_RESTART_COUNT");
	const uint16_t *ports = engine->welcome.meeting_ports;
	bool shared = store && strcmp(store, "True") == 0, restarted = engine->ranks.elsewhere || (restarts && atoi(restarts) > 0);
	char port[16];

	tpck_restart_meet(ports[1]);
	if (engine->welcome.meeting_host[0]) {
		tpck_supervisor_meet_at(engine->welcome.meeting_host);
		if (getenv("MASTER_ADDR"))
			setenv("MASTER_ADDR", engine->welcome.meeting_host, 1);
	}
	/* A process that a supervisor has forked once more may still meet other ranks' old ones. */
	if (!ports[0] || !getenv("MASTER_PORT") || !(tpck_supervisor_again() || (shared && restarted)))
		return;
	snprintf(port, sizeof port, "%u", ports[0]);
	setenv("MASTER_PORT", port, 1);
	if (store)
		setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
}

void tpck_resume_begin(void)
{
	struct tpck_log_position cut;
	char scratch[300], why[240];
	int result;

	if (tpck_attach(true)) {
		tpck_engine_mode_set(TPCK_MODE_OFF);
		return;
	}
	if (!engine->welcome.offer) {
		tpck_engine_mode_set(TPCK_MODE_LIVE);
		return;
	}
	meet_anew();
	cut = (struct tpck_log_position){engine->welcome.log_sequence, engine->welcome.log_offset};
	snprintf(scratch, sizeof scratch, "%s/forward", engine->welcome.session);
	tpck_sys_mkdirat(AT_FDCWD, scratch, 0700);
	tpck_attach_stashes();
	if (engine->settings.record_full[0] == 'f')
		tpck_stash_forgive();
	result = tpck_offered_open(engine->welcome.session, engine->welcome.offer_step, false);
	if (!result)
		result = tpck_forward_open(engine->welcome.session, cut);
	if (!result && tpck_begun_is_long(why, sizeof why)) {
		decline(why);
		return;
	}
	tpck_follow_record(engine->log, engine->keep, tpck_log_timeline(engine->welcome.session));
	tpck_files_dated(engine->welcome.generation, tpck_log_timeline(engine->welcome.session), &engine->step);
	if (!result)
		result = learn_start(cut);
	if (!result && tpck_contents_compare(why, sizeof why)) {
		decline(why);
		return;
	}
	why[0] = '\0';
	if (!result && tpck_place_return(why, sizeof why)) {
		decline(why);
		return;
	}
	if (!result)
		tpck_log_warn("resuming at step %llu of generation %llu%s", (unsigned long long)engine->welcome.offer_step,
			      (unsigned long long)engine->welcome.offer_generation, engine->welcome.choice);
	if (!result && tpck_stash_forgotten())
		tpck_log_warn("%.1f MiB of what the first run read back from the device count as zeros (TRANSPCKPT_RECORD_FULL=forget): a program that "
			      "did more with them than save them goes on otherwise", (double)tpck_stash_forgotten() / (1 << 20));
	if (!result)
		result = tpck_follow_forward(scratch, strcmp(engine->settings.output, "again") == 0, true);
	if (tpck_programs_session(engine->welcome.session))
		tpck_engine_unresumable(TPCK_UNNOTED);
	if (!result && tpck_programs_forward(engine->welcome.session, engine->library))
		tpck_log_warn("programs that the first run started are started again on the way to step %llu: what stands in for them "
			      "(standin, beside %s) cannot be used", (unsigned long long)engine->welcome.offer_step, engine->library);
	if (result) {
		snprintf(why, sizeof why, "what step %llu needs cannot be read: %s",
			 (unsigned long long)engine->welcome.offer_step,
			 result == -ENODATA ? "what the first run read back from the device is neither in memory nor in the store" : strerror(-result));
		tpck_resume_diverged(why);
		return;
	}
	if (!tpck_resume_watch_ranks()) {
		tpck_resume_diverged("a thread that watches over the other ranks cannot be started");
		return;
	}
	tpck_network_forward(tpck_resume_diverged);
	tpck_caches_hide(tpck_follow_begun_ns(), tpck_clock_coarse_ns());
	engine->forward_ns = tpck_clock_monotonic_ns();
	tpck_clocks_begin();
	tpck_engine_mode_set(TPCK_MODE_FORWARD);
}

/* ---- starting over ------------------------------------------------------------------------------- */

static void begin_anew(const char *what, bool by_chance)
{
	/* What a rank does may follow from another one's death, which nobody here has heard of yet: that is no fault of the log's. */
	bool maybe_another = engine->ranks.world > 1 && !engine->welcome.tries;
	struct tpck_diverged message = {
		.generation = engine->welcome.offer_generation, .step = engine->welcome.offer_step,
		.again = maybe_another || (by_chance && engine->welcome.tries + 1 < TRIES),
	};
	struct tpck_thread *self = tpck_thread_peek();
	const char *obstacle;

	if (tpck_following())
		tpck_following_end(what);
	pthread_mutex_lock(&injecting); /* one thread only; never unlocked: the process image goes */
	message.at = self && self->expected ? tpck_forward_iteration(self) : 0;
	snprintf(message.what, sizeof message.what, "%s", what);
	tpck_follow_abandon();
	tpck_programs_abandon();
	obstacle = tpck_restart_obstacle();
	message.ends = obstacle != NULL;
	if (obstacle && !maybe_another)
		message.again = false;
	tpck_log_warn("cannot resume at step %llu: %s; %s%s", (unsigned long long)engine->welcome.offer_step, what,
		      obstacle ? obstacle : message.again ? "trying once more" : "starting the program again from its beginning",
		      !obstacle       ? ""
		      : message.again ? ", so it ends here; its next start tries once more"
				      : ", so it ends here; its next start is from the beginning");
	tpck_agent_send(TPCK_MSG_DIVERGED, &message, sizeof message);
	/* One that took over, and begins again, ends as it will end, and not as the one before it. */
	if (!obstacle)
		tpck_following_live();
	if (!obstacle)
		tpck_log_error("starting the program again failed: %s",
			       strerror(-tpck_restart(engine->control ? atomic_load(&engine->control->agent_pid) : 0,
						      message.again)));
	/* Neither forward nor live is possible: a state that is mixed must not go on. The device calls were
	 * never made, so the program would compute on nothing. doc/record.md names this one exception. */
	tpck_sys_exit_group(125); /* not _exit(), which is a hook that would come here again */
}

void tpck_resume_diverged(const char *what)
{
	begin_anew(what, false);
}

void tpck_resume_missed(const char *what)
{
	begin_anew(what, true);
}

/* ---- putting the state in place --------------------------------------------------------------------- */

/* Copies one row, in as many pieces as the image gives it. */
static int row_inject(const struct tpck_image_row *row, uint64_t address, char *why, size_t size)
{
	const char *data = (const char *)tpck_offered() + TPCK_IMAGE_DATA_AT + row->data_offset;
	int result = 0;

	for (uint64_t at = 0, bytes; at < row->bytes && !result; at += bytes) {
		result = tpck_offered_ready(row->data_offset + at, row->bytes - at, &bytes, why, size);
		if (result)
			return result;
		result = engine->device->copy_to_device(address + at, data + at, bytes);
	}
	if (result)
		snprintf(why, size, "copying %llu bytes to the device at %#llx: %s", (unsigned long long)row->bytes,
			 (unsigned long long)address, strerror(-result));
	return result;
}

static int memory_inject(bool *by_chance, char *why, size_t size)
{
	const struct tpck_image_header *image = tpck_offered();
	const struct tpck_image_row *rows = (const void *)((const char *)image + TPCK_IMAGE_INDEX_AT);
	int result = 0;

	*by_chance = false;
	if (tpck_offered_communicators(why, size))
		return -EBADMSG;
	*by_chance = tpck_memory_compare(rows, image->rows, why, size) != NULL;
	if (*by_chance)
		return -EBADMSG;
	for (uint32_t i = 0; i < image->rows && !result; i++)
		if (rows[i].data_offset != UINT64_MAX)
			result = row_inject(&rows[i],
					    rows[i].kind == TPCK_MEMORY_MODULE_VARIABLE
						    ? tpck_memory_variable(rows[i].symbol, rows[i].bytes)
						    : rows[i].address,
					    why, size);
	if (!result) {
		result = tpck_offered_compared(why, size);
		/* The agent finds it out, too, and offers what there was before. */
		*by_chance = result != 0;
	}
	return result;
}

/* How long a rank that is ready waits for the others. */
#define RANKS_LIMIT_NS 900000000000ull
/* And how often it says so. */
#define SAY_NS 1000000000ull

/* Nobody goes live alone: false, with why, where another rank does not resume. */
static bool ranks_agree(bool *by_chance, char *why, size_t size)
{
	uint64_t limit = tpck_clock_monotonic_ns() + RANKS_LIMIT_NS, say = tpck_clock_monotonic_ns() + SAY_NS, since = 0;
	uint32_t go;

	if (engine->ranks.world == 1)
		return true;
	atomic_store(&engine->control->injected, 1);
	tpck_agent_send(TPCK_MSG_INJECTED, NULL, 0);
	tpck_log_debug("ready to go live at step %llu, and waits for the other ranks", (unsigned long long)engine->welcome.offer_step);
	while ((go = atomic_load(&engine->control->go)) == TPCK_GO_WAIT && tpck_clock_monotonic_ns() < limit) {
		struct timespec pause = {0, 1000000};

		/* Nobody says anything any more. What it said last is in the page. */
		if (left_alone(&since)) {
			go = atomic_load(&engine->control->go);
			break;
		}
		/* That this rank is ready may have been said to an agent that is gone. */
		if (tpck_clock_monotonic_ns() >= say) {
			tpck_agent_send(TPCK_MSG_INJECTED, NULL, 0);
			say = tpck_clock_monotonic_ns() + SAY_NS;
		}
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	}
	if (go == TPCK_GO_LIVE)
		return true;
	/* That one of them died is no fault of the log's. */
	*by_chance = go != TPCK_GO_OVER;
	snprintf(why, size, go == TPCK_GO_WAIT ? "the other ranks did not come to this step" : "another rank does not resume");
	return false;
}

static void go_live(void)
{
	struct tpck_log_position cut = {engine->welcome.log_sequence, engine->welcome.log_offset};
	struct tpck_status *status = &engine->control->status;
	uint64_t begun = tpck_clock_monotonic_ns();
	char why[240] = "";
	bool by_chance = false, borrowed = false, gone = false;
	void *own = NULL;
	int result;

	tpck_network_settle();
	if (!engine->device) {
		snprintf(why, sizeof why, "the device was never initialised");
		result = -ENODEV;
	} else {
		/* The thread that comes to the boundary last may be one that has nothing to do with the device; and where nothing came behind the
		 * boundary that may be when the process ends. Then there is no device any more, nor anything that would use its memory. */
		gone = engine->device->context_save(&own) && !(borrowed = !engine->device->context_use(engine->context));
		result = gone ? 0 : engine->device->synchronize();
		if (result)
			snprintf(why, sizeof why, "the device cannot be waited for: %s", strerror(-result));
		if (!result && !gone)
			result = memory_inject(&by_chance, why, sizeof why);
		if (!result && !gone)
			result = tpck_communicators_check(why, sizeof why);
		if (!result)
			result = tpck_log_attach(engine->log, engine->welcome.session, engine->welcome.generation, &cut);
		if (!result)
			result = tpck_follow_inject(engine->welcome.offer_step, why, sizeof why);
	}
	if (!result && !tpck_follow_difference() && !ranks_agree(&by_chance, why, sizeof why))
		result = -ECANCELED;
	if (!result)
		tpck_follow_injected();
	if (!result && tpck_follow_difference()) {
		snprintf(why, sizeof why, "%.230s", tpck_follow_difference());
		result = -EBADMSG;
	}
	if (result) {
		if (!why[0])
			snprintf(why, sizeof why, "%s", strerror(-result));
		pthread_mutex_unlock(&injecting);
		begin_anew(why, by_chance);
	}
	tpck_programs_unwrite(engine->welcome.offer_step);
	tpck_stash_begin(engine->welcome.generation);
	tpck_stash_settle();
	if (tpck_forward_by_uploads())
		tpck_uploads_go_on(tpck_forward_by_uploads() == TPCK_BOUNDARY_COPY);
	engine->step = tpck_offered()->step;
	status->forward_to = engine->step;
	status->start_ns = engine->forward_ns - engine->start_ns;
	status->forward_ns = begun - engine->forward_ns;
	status->forward_first_ns = engine->first_forward_ns ? engine->first_forward_ns - engine->forward_ns : 0;
	status->inject_ns = tpck_clock_monotonic_ns() - begun;
	status->boundaries = engine->step;
	status->state = TPCK_ENGINE_LEARNING;
	tpck_offered_close();
	tpck_agent_send(TPCK_MSG_RESUMED, NULL, 0);
	tpck_log_info("live at step %llu after %.3f s forward and %.3f s inject", (unsigned long long)engine->step,
		      (double)status->forward_ns / 1e9, (double)status->inject_ns / 1e9);
	/* No rank takes back that it is live. One whose device is gone makes nothing more. */
	if (!gone)
		tpck_communicators_anew();
	if (borrowed)
		(void)engine->device->context_use(NULL);
	tpck_clocks_live();
	tpck_engine_mode_set(TPCK_MODE_LIVE);
	tpck_programs_live(engine->step);
	tpck_network_live(engine->step);
	if (is_lost_behind && (tpck_programs_any() || tpck_network_says_any()))
		tpck_log_warn("what comes behind step %llu is done again, and what the first run started or sent there is not known: it went with the memory of its node",
			      (unsigned long long)engine->step);
	tpck_following_live();
}

/* Whether what a thread waits for may still come: another one computes (it compiles, it loads data). */
struct patience {
	uint64_t begun_ns, busy_ns, looked_ns, cpu_ns;
};

static bool patient(struct patience *patience)
{
	uint64_t now = tpck_clock_monotonic_ns(), cpu;

	if (!patience->begun_ns)
		patience->begun_ns = patience->busy_ns = now;
	if (now - patience->looked_ns > 1000000000ull) {
		cpu = tpck_clock_process_cpu_ns();
		/* Waiting takes some time itself. */
		if (cpu - patience->cpu_ns > (now - patience->looked_ns) / 10)
			patience->busy_ns = now;
		patience->cpu_ns = cpu;
		patience->looked_ns = now;
	}
	return now - patience->busy_ns < IDLE_LIMIT_NS && now - patience->begun_ns < WAIT_LIMIT_NS;
}

void tpck_resume_at_boundary(struct tpck_thread *self)
{
	struct patience patience = {0};

	while (tpck_engine_mode() == TPCK_MODE_FORWARD) {
		struct timespec pause = {0, 1000000};

		if (tpck_forward_complete()) {
			pthread_mutex_lock(&injecting);
			if (tpck_engine_mode() == TPCK_MODE_FORWARD)
				go_live();
			pthread_mutex_unlock(&injecting);
			break;
		}
		if (!patient(&patience)) {
			char what[120];

			snprintf(what, sizeof what, "thread %u did not come to where it stood in the first run", tpck_forward_late());
			tpck_resume_missed(what);
			break;
		}
		tpck_sys_futex(&tpck_engine_mode_now, FUTEX_WAIT_PRIVATE, TPCK_MODE_FORWARD, &pause, NULL, 0);
	}
	self->expected = NULL;
	self->not_ready = 0;
}

/* ---- answering -------------------------------------------------------------------------------------- */

/* What is called in place of what the log has. */
static void name_call(const struct tpck_token *token, char *text, size_t size)
{
	static const char *const kinds[] = {[TPCK_OP_KERNEL] = "a launch of ", [TPCK_OP_H2D] = "a copy to the device", [TPCK_OP_D2H] = "a copy to the host",
					    [TPCK_OP_D2D] = "a copy on the device", [TPCK_OP_MEMSET] = "a set of memory", [TPCK_OP_GRAPH] = "a launch of a graph",
					    [TPCK_OP_COLLECTIVE] = "a collective operation"};

	snprintf(text, size, "%s%s, %llu bytes, grid %u x %u x %u, on stream %u", kinds[token->op],
		 token->op != TPCK_OP_KERNEL ? "" : token->name ? token->name : "a function without a name", (unsigned long long)token->bytes, token->grid[0], token->grid[1],
		 token->grid[2], token->stream);
}

/* "iteration 7, device operation 3 of thread 1: another call than in the first run", with the call in front of the colon. */
static void differs_at(const struct tpck_thread *self, const struct tpck_token *token)
{
	const char *difference = tpck_forward_difference(), *what = strrchr(difference, ':');
	char call[300], text[600];

	name_call(token, call, sizeof call);
	tpck_log_info("thread %u calls for %s", self->id, call);
	if (tpck_following()) {
		snprintf(text, sizeof text, "%.*s (%s)%s", what ? (int)(what - difference) : 0, difference, call, what ? what : "");
		tpck_following_end(text);
	}
	begin_anew(difference, tpck_forward_by_chance());
}

enum tpck_go tpck_resume_operation(struct tpck_thread *self, struct tpck_call *call, uint32_t token, uint32_t content)
{
	if (tpck_follow_difference()) {
		tpck_resume_diverged(tpck_follow_difference());
		return TPCK_GO_RUN;
	}
	switch (tpck_forward_operation(self, token, call->content ? content : 0)) {
	case TPCK_FORWARD_SAME:
		self->operations++;
		if (__builtin_expect(!engine->first_forward_ns, 0))
			tpck_begun_forward(self);
		return TPCK_GO_ANSWERED;
	case TPCK_FORWARD_DIFFERS:
		differs_at(self, &call->token);
		return TPCK_GO_RUN;
	default:
		break;
	}
	tpck_resume_at_boundary(self);
	return TPCK_GO_RUN;
}

const struct tpck_record *tpck_resume_record(struct tpck_thread *self, enum tpck_record_type type)
{
	const struct tpck_record *record = NULL;

	switch (tpck_forward_record(self, type, &record)) {
	case TPCK_FORWARD_SAME:
		return record;
	case TPCK_FORWARD_END:
		tpck_resume_at_boundary(self);
		return NULL;
	default:
		return NULL;
	}
}

const struct tpck_record *tpck_resume_draw(struct tpck_thread *self, enum tpck_record_type type, bool *again)
{
	const struct tpck_record *record = NULL;

	*again = false;
	switch (tpck_forward_draw(self, type, &record)) {
	case TPCK_FORWARD_SAME:
		return record;
	case TPCK_FORWARD_MORE:
		*again = true;
		return record;
	case TPCK_FORWARD_END:
		tpck_resume_at_boundary(self);
		return NULL;
	default:
		return NULL;
	}
}

void tpck_resume_turn(struct tpck_thread *self)
{
	struct patience patience = {0};

	while (tpck_engine_mode() == TPCK_MODE_FORWARD && !tpck_forward_turn(self, engine->allocations)) {
		struct timespec pause = {0, 1000000};
		uint32_t turn = atomic_load(&engine->futex_turn);

		if (tpck_forward_turn(self, engine->allocations))
			break;
		if (tpck_forward_follows())
			patience = (struct patience){0};
		if (!patient(&patience)) {
			tpck_resume_missed("threads allocate memory in another order than in the first run");
			break;
		}
		tpck_sys_futex(&engine->futex_turn, FUTEX_WAIT_PRIVATE, turn, &pause, NULL, 0);
	}
}
