/* SPDX-License-Identifier: Apache-2.0 */
/* What happens at a boundary between iterations: a snapshot where one is due, and what show says. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/capture/copier.h"
#include "runtime/capture/fences.h"
#include "runtime/engine/engine_private.h"
#include "runtime/engine/agent_link.h"
#include "runtime/infer/classes.h"
#include "runtime/infer/roles.h"
#include "runtime/network/network.h"
#include "runtime/programs/programs.h"
#include "runtime/replay/looks.h"
#include "runtime/replay/readings.h"
#include "runtime/track/communicators.h"

#define GATE_LIMIT_NS 100000u
/* A boundary that takes longer is told of. */
#define LONG_NS 1000000u

static struct tpck_engine *const engine = &tpck_engine;
static uint64_t plan_ns; /* at this boundary */

/* So many iterations have been measured before their pace decides how far ahead a step is named: what was first taken for one may have been a part of
 * one, some thousand times shorter, and a step that was named by it would be some thousand away. */
#define PACE_KNOWN 3
static unsigned measured;

/* A job that has just begun would lose most of what it has: for so long snapshots are no further apart than this, or so many times what one makes the device wait. */
#define FIRST_NS 60000000000ull
#define FIRST_APART_NS 2e9
#define FIRST_TIMES 10

static double least_apart_ns(uint64_t now)
{
	/* What a capture makes the device wait, spread over the time until the next. */
	double share = engine->settings.overhead > 0 ? engine->settings.overhead / 100 : 0.0001, wait = (double)engine->control->status.wait_ns_mean;
	double first = FIRST_TIMES * wait > FIRST_APART_NS ? FIRST_TIMES * wait : FIRST_APART_NS;
	static uint64_t begun_ns;

	begun_ns = begun_ns ? begun_ns : now;
	return now - begun_ns < FIRST_NS && wait / share > first ? first : wait / share;
}

/* By this process's own clock. */
static bool due_by_time(uint64_t now)
{
	const struct tpck_interval *interval = &engine->settings.interval;

	if (interval->unit == TPCK_INTERVAL_SECONDS)
		return now - engine->last_capture_ns >= (uint64_t)(interval->count * 1e9);
	if (engine->settings.overhead < 100) {
		/* Classes that were just learnt change what the device waits for: it is measured anew. */
		bool learning = tpck_classes_learning(), learnt = engine->learning && !learning;

		engine->learning = learning;
		return learnt || (double)(now - engine->last_capture_ns) >= least_apart_ns(now);
	}
	return true;
}

/* Ranks capture the same steps: by their number, or where clocks decide, those that the agent names ahead to all of them
 * once one says that a snapshot is due. */
static bool capture_due(uint64_t now)
{
	const struct tpck_interval *interval = &engine->settings.interval;
	uint64_t named = atomic_load_explicit(&engine->control->capture_step, memory_order_relaxed);

	if (interval->unit == TPCK_INTERVAL_ITERATIONS)
		return interval->count <= 1 || engine->step % (uint64_t)interval->count == 0;
	if (engine->ranks.world == 1)
		return due_by_time(now);
	if (named == engine->step)
		return true;
	if (named < engine->step && engine->step > engine->asked_step && measured >= PACE_KNOWN && due_by_time(now)) {
		/* An answer takes some iterations; one that got lost is asked for again. */
		engine->asked_step = engine->step + 16;
		tpck_agent_send(TPCK_MSG_DUE, NULL, 0);
	}
	return false;
}

/* Once a plan: of thousands of blocks it takes most of a millisecond. */
static void status_classes(const struct tpck_plan *plan)
{
	static uint64_t summed;
	static const void *page;
	struct tpck_status *status = &engine->control->status;
	uint64_t blocks[TPCK_CLASSES] = {0}, bytes[TPCK_CLASSES] = {0};

	if (plan->serial == summed && page == status)
		return;
	summed = plan->serial;
	page = status;
	for (uint32_t i = 0; i < plan->rows; i++) {
		blocks[plan->row[i].class_]++;
		bytes[plan->row[i].class_] += plan->row[i].bytes;
	}
	memcpy(status->class_blocks, blocks, sizeof blocks);
	memcpy(status->class_bytes, bytes, sizeof bytes);
}

/* What the optimizer was told in the iteration that ends, if it is not what the log says last. */
static void mark_scalars(void)
{
	enum { MOST = 256 };
	static struct tpck_roles_scalar told[2][MOST] TPCK_LARGE;
	static size_t count;
	static int last;
	size_t now = tpck_roles_scalars(told[!last], MOST);

	if (now == 0 || (now == count && memcmp(told[0], told[1], now * sizeof told[0][0]) == 0))
		return;
	last = !last;
	count = now;
	tpck_log_append(engine->log, TPCK_RECORD_SCALARS, 0, 0, (uint32_t)engine->step, told[last], now * sizeof told[0][0]);
}

static void mark(struct tpck_log_position *cut, uint64_t now)
{
	struct tpck_record_boundary record = {engine->step, engine->allocations, now, tpck_clocks_shown_ns()};
	uint32_t count;
	struct tpck_thread *threads = tpck_threads(&count);

	for (uint32_t i = 0; i < count; i++) {
		if (threads[i].pending || threads[i].not_ready)
			tpck_record_mark(&threads[i]);
		if (tpck_looks_pending(&threads[i]))
			tpck_looks_flush(&threads[i], engine->log);
		if (tpck_readings_pending(&threads[i]))
			tpck_readings_flush(&threads[i], engine->log);
	}
	if (engine->bounded)
		mark_scalars();
	tpck_record_communicators();
	tpck_programs_boundary();
	tpck_network_boundary();
	tpck_log_append(engine->log, TPCK_RECORD_BOUNDARY, !tpck_uploads_on() ? 0 : tpck_uploads_any() ? TPCK_BOUNDARY_COPY : TPCK_BOUNDARY_UPLOAD, 0, (uint32_t)engine->step, &record, sizeof record);
	tpck_network_bounded();
	*cut = tpck_log_end(engine->log);
}

static struct tpck_plan *plan_now(void)
{
	uint64_t begun = tpck_clock_monotonic_ns();
	struct tpck_plan *plan = tpck_memory_plan();

	plan_ns += tpck_clock_monotonic_ns() - begun;
	return plan;
}

/* Whether a snapshot was begun. The gate is closed. */
static bool capture_begin(const struct tpck_log_position *cut, uint64_t now)
{
	struct tpck_capture capture = {engine->welcome.generation, engine->step, cut->sequence, cut->offset, .plan = NULL};
	int result;

	/* A plan of thousands of blocks takes most of a millisecond, and the first images are on their way. */
	if (!tpck_images_room() && atomic_load(&engine->asked_room))
		return false;
	capture.plan = plan_now();
	if (!capture.plan)
		return false;
	if (capture.plan->data_bytes > tpck_images_room()) {
		tpck_engine_ask_for_room(capture.plan->data_bytes);
		return false;
	}
	capture.unresumable = tpck_log_failed(engine->log) ? tpck_log_failed(engine->log) : engine->unresumable;
	if (capture.unresumable && !engine->control->status.unresumable_from) {
		snprintf(engine->control->status.unresumable, sizeof engine->control->status.unresumable, "%s", capture.unresumable);
		engine->control->status.unresumable_from = engine->step;
	}
	/* Of the first iteration that is known to end it is not known where it began: there may be several phases in it. */
	capture.gathered = engine->bounded ? tpck_roles_take() : NULL;
	result = tpck_communicators_take(&capture.communicators);
	if (!result)
		result = tpck_copier_request(&capture);
	if (result) {
		tpck_communicators_free(&capture.communicators);
		tpck_roles_give_back(capture.gathered);
		tpck_log_debug("step %llu is not captured: %s", (unsigned long long)engine->step,
			       result == -EAGAIN ? "no image is free" : strerror(-result));
		return false;
	}
	engine->free_since = false;
	status_classes(capture.plan);
	engine->control->status.state = TPCK_ENGINE_CAPTURING;
	engine->last_capture_ns = now;
	engine->last_capture_step = engine->last_digest_step = engine->step;
	return true;
}

/* Room takes some iterations, and a snapshot that is due goes without where there is none: the first may be due in a thousand. The gate is
 * closed. */
static void ask_ahead(void)
{
	const struct tpck_plan *plan = atomic_load(&engine->asked_room) ? NULL : plan_now();

	if (plan)
		tpck_engine_ask_for_room(plan->data_bytes);
}

/* Classes are learnt by digests alone where no snapshot is due. The gate is closed. */
static void probe(void)
{
	struct tpck_plan *plan = engine->last_capture_step && tpck_classes_learning() ? plan_now() : NULL;

	if (!plan || tpck_copier_probe(TPCK_JOB_PROBE_BOUNDARY, plan, engine->step))
		return;
	engine->free_since = false;
	engine->last_digest_step = engine->step;
}

static void status_inference(struct tpck_thread *self, uint64_t now)
{
	struct tpck_status *status = &engine->control->status;
	struct tpck_infer_summary summary;

	status->boundaries = engine->step;
	atomic_store(&engine->control->alive_ns, now);
	tpck_begun_boundary(now);
	if (engine->last_boundary_ns) {
		uint64_t took = now - engine->last_boundary_ns;

		if (measured < PACE_KNOWN) {
			measured++;
			if (took > status->iteration_ns)
				status->iteration_ns = took;
		} else {
			status->iteration_ns = status->iteration_ns - status->iteration_ns / 16 + took / 16;
		}
		/* An iteration that no copy could have held up tells how long they really are. */
		if (engine->free_since && !tpck_copier_busy())
			status->free_iteration_ns = status->free_iteration_ns
							    ? status->free_iteration_ns - status->free_iteration_ns / 8 + took / 8
							    : took;
	}
	engine->last_boundary_ns = now;
	engine->free_since = !tpck_copier_busy();
	status->submit_ns_max = atomic_load(&tpck_submit_waits.ns_max);
	status->submit_ns_sum = atomic_load(&tpck_submit_waits.ns_sum);
	status->submit_count = atomic_load(&tpck_submit_waits.count);
	status->ways.refused_waits = atomic_load(&tpck_submit_waits.refused);
	status->ways.pinned = tpck_images_pinned(&status->ways.images);
	status->ways.arena = engine->arena != NULL;
	tpck_operation_tell(&status->ways);
	status->by_uploads = tpck_uploads_on();
	if (engine->step % 16 != 1 && status->period)
		return;
	if (!tpck_bias_lock(&engine->infer_lock, self))
		return;
	tpck_infer_summary(engine->infer, &summary);
	tpck_bias_unlock(&engine->infer_lock, self);
	status->period = summary.period;
	status->optimizer_operations = summary.optimizer_ops;
	status->sure_by_names = (summary.witnesses & TPCK_W_NAMES) != 0;
	status->sure_by_pattern = (summary.witnesses & TPCK_W_PATTERN) != 0;
	status->reason[0] = '\0';
}

/* `closed`: when the gate was; `marked`: when the log had the boundary. */
static void status_stall(uint64_t begun, uint64_t cpu_begun, uint64_t closed, uint64_t marked)
{
	struct tpck_status *status = &engine->control->status;
	uint64_t took = tpck_clock_monotonic_ns() - begun, cpu = tpck_clock_thread_cpu_ns() - cpu_begun;

	if (took > LONG_NS)
		tpck_log_debug("the boundary of step %llu took %.2f ms, %.2f of them of the processor: %.2f until no other thread was in a call, %.2f for the log, "
			       "%.2f for the plan", (unsigned long long)engine->step, (double)took * 1e-6, (double)cpu * 1e-6, (double)(closed - begun) * 1e-6,
			       (double)(marked - closed) * 1e-6, (double)plan_ns * 1e-6);

	status->stall_ns_sum += took;
	status->stall_cpu_ns_sum += cpu;
	if (cpu > status->stall_cpu_ns_max)
		status->stall_cpu_ns_max = cpu;
	status->stall_count++;
	if (took > status->stall_ns_max)
		status->stall_ns_max = took;
}

void tpck_boundary(struct tpck_thread *self)
{
	uint64_t now = tpck_clock_monotonic_ns(), cpu = tpck_clock_thread_cpu_ns(), closed, marked;
	struct tpck_log_position cut;

	if (atomic_exchange(&engine->boundary_busy, 1))
		return;
	engine->step++;
	if (!engine->phase_seen && engine->last_capture_step)
		tpck_log_debug("iteration %llu ended without an optimizer phase that was seen to begin",
			       (unsigned long long)engine->step);
	engine->phase_seen = false;
	tpck_log_debug("an iteration ended: step %llu", (unsigned long long)engine->step);
	status_inference(self, now);
	tpck_host_memory_look(true);
	if (engine->settings.backpressure[1] == 't' && tpck_images_room())
		tpck_copier_drain(60);
	if (engine->stream_captures > 0 || !tpck_gate_close(self, GATE_LIMIT_NS)) {
		tpck_log_debug("step %llu is not captured: another thread is in a call", (unsigned long long)engine->step);
		__atomic_fetch_add(&engine->control->status.skipped, 1, __ATOMIC_RELAXED);
	} else {
		closed = tpck_clock_monotonic_ns();
		mark(&cut, now);
		marked = tpck_clock_monotonic_ns();
		plan_ns = 0;
		if (engine->uncaptured) {
			;
		} else if (!capture_due(now)) {
			ask_ahead();
			probe();
		} else if (!capture_begin(&cut, now)) {
			__atomic_fetch_add(&engine->control->status.skipped, 1, __ATOMIC_RELAXED);
		}
		tpck_gate_open();
		status_stall(now, cpu, closed, marked);
	}
	tpck_roles_forget();
	engine->bounded = true;
	atomic_store(&engine->boundary_busy, 0);
}

void tpck_engine_device_waited(void)
{
	if (tpck_engine_mode() != TPCK_MODE_LIVE)
		return;
	tpck_host_memory_look(false);
	if (!engine->stream_captures)
		tpck_copier_catch_up();
}

void tpck_boundary_phase(const struct tpck_thread *self)
{
	tpck_engine_device_waited();
	tpck_fences_all();
	engine->phase_seen = true;
	if (!engine->plan || engine->uncaptured || engine->last_digest_step != engine->step || !tpck_classes_learning() ||
	    !tpck_copier_digests() || atomic_exchange(&engine->boundary_busy, 1))
		return;
	if (engine->stream_captures == 0 && tpck_gate_close(self, GATE_LIMIT_NS)) {
		(void)tpck_copier_probe(TPCK_JOB_PROBE_PHASE, engine->plan, engine->step);
		tpck_gate_open();
	}
	atomic_store(&engine->boundary_busy, 0);
}
