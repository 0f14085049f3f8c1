/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: one state machine, and what happens at an operation and at a boundary. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/log.h"
#include "runtime/capture/copier.h"
#include "runtime/capture/readback.h"
#include "runtime/engine/engine_private.h"
#include "runtime/engine/identity.h"
#include "runtime/engine/link.h"
#include "runtime/infer/classes.h"
#include "runtime/replay/contents.h"
#include "runtime/replay/files.h"
#include "runtime/replay/restart.h"
#include "runtime/track/barrier.h"

#define GATE_LIMIT_NS 100000u
#define UNRESUMABLE "snapshots from here on cannot be resumed: %s"
enum { CONTENT_WHOLE = 64 << 10, CONTENT_SAMPLE = 4096 };

_Atomic uint32_t tpck_engine_mode_now; /* also a futex for threads that wait for LIVE */
struct tpck_engine tpck_engine = {.allocation = PTHREAD_MUTEX_INITIALIZER};
static struct tpck_engine *const engine = &tpck_engine;
extern char **environ;

void tpck_engine_mode_set(enum tpck_mode mode)
{
	atomic_store(&tpck_engine_mode_now, mode);
	syscall(SYS_futex, &tpck_engine_mode_now, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
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

const struct tpck_settings *tpck_engine_settings(void)
{
	return &engine->settings;
}

/* ---- life ------------------------------------------------------------------------------------- */

/* A resume may be on offer if a marker of this very program lies in the store. */
static bool marker_present(const char *store)
{
	char path[TPCK_SETTING_TEXT_MAX + 256], shm[TPCK_SETTING_TEXT_MAX];
	uint64_t digest = tpck_digest64(engine->identity, engine->identity_bytes, 0);

	snprintf(path, sizeof path, "%s/%s/programs/%016llx", store, engine->job, (unsigned long long)digest);
	if (!syscall(SYS_faccessat, AT_FDCWD, path, F_OK))
		return true;
	/* A store that cannot be written leaves the marker in the memory tier. */
	tpck_settings_shm(&engine->settings, shm, sizeof shm);
	snprintf(path, sizeof path, "%s/%s/programs/%016llx", shm, engine->job, (unsigned long long)digest);
	return !syscall(SYS_faccessat, AT_FDCWD, path, F_OK);
}

/* Snapshots of several ranks are worth something only if all take the same step, which nobody sees to
 * yet. */
static bool several_ranks(void)
{
	static const char *const names[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *ranks = getenv(names[i]);

		if (ranks && atoi(ranks) > 1) {
			tpck_log_info("%s=%s: jobs of several ranks are not checkpointed", names[i], ranks);
			return true;
		}
	}
	return false;
}

void tpck_engine_start(const char *library_path)
{
	static char identity[TPCK_IDENTITY_MAX];
	char store[TPCK_SETTING_TEXT_MAX];
	struct tpck_thread *self = tpck_thread_self();
	long bytes;

	self->depth++;
	engine->start_ns = tpck_clock_monotonic_ns();
	engine->pid = getpid();
	/* A program that uses no device has nothing to do with wrong settings: see tpck_engine_device(). */
	tpck_log_hold(1);
	engine->complaints = tpck_settings_read(&engine->settings, environ);
	tpck_log_hold(0);
	if (engine->settings.disable || several_ranks())
		goto out;
	if (engine->settings.allocator[0] == 'a')
		setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync", 0);
	bytes = tpck_identity_make(&engine->settings, environ, identity, sizeof identity, engine->job);
	engine->log = tpck_log_new(engine->settings.log_bytes);
	if (bytes < 0 || !engine->log)
		goto out;
	snprintf(engine->library, sizeof engine->library, "%s", library_path);
	syscall(SYS_getcwd, engine->start_folder, sizeof engine->start_folder);
	engine->identity = identity;
	engine->identity_bytes = (uint32_t)bytes;
	tpck_settings_store(&engine->settings, store, sizeof store);
	snprintf(engine->keep, sizeof engine->keep, "%s/%s/keep/%016llx", store, engine->job,
		 (unsigned long long)tpck_digest64(identity, (size_t)bytes, 0));
	tpck_attach_own_keep();
	tpck_files_record(engine->log, "", 0);
	tpck_contents_note_input();
	tpck_engine_mode_set(TPCK_MODE_EARLY);
	if (strcmp(engine->settings.resume, "never") != 0 && marker_present(store)) {
		tpck_restart_remember(environ);
		tpck_resume_begin();
	}
out:
	self->depth--;
}

static struct tpck_infer *infer_new(void)
{
	struct tpck_infer_options options = {
		.use_names = strcmp(engine->settings.infer, "pattern") != 0,
		.use_pattern = strcmp(engine->settings.infer, "names") != 0,
	};

	return tpck_infer_new(&options);
}

/* Registered when the device is there, and so run before the runtime's own end takes it away. */
static void finish_copies(int status, void *unused)
{
	(void)status;
	(void)unused;
	if (tpck_engine_mode() == TPCK_MODE_LIVE && getpid() == engine->pid)
		tpck_copier_drain(engine->settings.exit_wait_sec);
}

void tpck_engine_device(const struct tpck_device *device)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;

	if (engine->device || tpck_engine_mode() == TPCK_MODE_OFF)
		return;
	pthread_mutex_lock(&once);
	if (!engine->device && tpck_engine_mode() != TPCK_MODE_OFF) {
		struct tpck_settings again;

		if (engine->complaints)
			tpck_settings_read(&again, environ);
		engine->infer = infer_new();
		if (!engine->infer || device->context_save(&engine->context)) {
			tpck_log_warn("no memory to begin with; no checkpoints in this run");
			tpck_engine_mode_set(TPCK_MODE_OFF);
		} else {
			if (tpck_engine_mode() == TPCK_MODE_EARLY && !tpck_attach(false)) {
				tpck_engine_mode_set(TPCK_MODE_LIVE);
				if (engine->unresumable)
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
	pthread_mutex_unlock(&once);
}

void tpck_engine_end(int status)
{
	struct tpck_thread *self = tpck_thread_self();
	uint32_t mode = tpck_engine_mode();

	/* A child made past our atfork handler (clone, vfork) is not the program. */
	if (!self || getpid() != engine->pid || mode == TPCK_MODE_OFF || mode == TPCK_MODE_EARLY || !engine->control)
		return;
	self->depth++;
	if (mode == TPCK_MODE_FORWARD) {
		/* The first run went on from here; this one ends: it is not repeating itself. */
		char what[100];

		snprintf(what, sizeof what, "the program ended with status %d, which it did not the first time", status);
		tpck_files_say_error();
		tpck_resume_diverged(what);
	} else {
		tpck_copier_drain(engine->settings.exit_wait_sec);
	}
	engine->control->status.state = TPCK_ENGINE_ENDED;
	if (!tpck_link_end(status, engine->settings.exit_wait_sec) && engine->settings.exit_wait_sec > 0)
		tpck_log_info("the agent did not say that everything is durable");
	tpck_engine_mode_set(TPCK_MODE_OFF);
	self->depth--;
}

void tpck_engine_forked(void)
{
	atomic_store(&tpck_engine_mode_now, TPCK_MODE_OFF);
}

void tpck_engine_unresumable(const char *why)
{
	if (engine->unresumable || tpck_engine_mode() == TPCK_MODE_OFF)
		return;
	engine->unresumable = why;
	if (tpck_engine_mode() == TPCK_MODE_LIVE)
		tpck_log_warn(UNRESUMABLE, why);
}

void tpck_engine_stream_capture(int change)
{
	atomic_fetch_add(&engine->stream_captures, change);
}

/* ---- an operation ------------------------------------------------------------------------------ */

static uint32_t token_digest(const struct tpck_token *token)
{
	uint64_t h = token->func ^ ((uint64_t)token->op << 56) ^ token->stream * 0x9e3779b97f4a7c15ull;

	h = (h ^ ((uint64_t)token->grid[0] << 32 | token->grid[1])) * 0xff51afd7ed558ccdull;
	h = (h ^ h >> 33 ^ ((uint64_t)token->grid[2] << 32 | token->block[0])) * 0xc4ceb9fe1a85ec53ull;
	h = (h ^ h >> 29 ^ ((uint64_t)token->block[1] << 32 | token->block[2])) * 0xff51afd7ed558ccdull;
	h = (h ^ h >> 32 ^ token->bytes) * 0xc4ceb9fe1a85ec53ull;
	return (uint32_t)(h >> 32) ^ (uint32_t)h;
}

/* Digest of uploaded bytes: small ones whole, large ones by samples. Never 0. */
static uint32_t content_digest(const void *content, uint64_t bytes)
{
	uint64_t digest;

	if (bytes <= CONTENT_WHOLE) {
		digest = tpck_digest64(content, bytes, 0);
	} else {
		uint64_t stride = (bytes - CONTENT_SAMPLE) / 15;

		digest = bytes;
		for (int i = 0; i < 16; i++)
			digest = tpck_digest64((const char *)content + stride * (uint64_t)i, CONTENT_SAMPLE, digest);
	}
	return (uint32_t)digest ? (uint32_t)digest : 1;
}

static void boundary(struct tpck_thread *self);
static void optimizer_phase(const struct tpck_thread *self);

/* The order in which threads come by here is the order of operations that inference sees. Whoever is inside the gate
 * while it feeds has its operation, too, on the side of a boundary on which inference has it. Where the lock is lost there
 * are no boundaries any more. */
static unsigned feed(struct tpck_thread *self, const struct tpck_call *call)
{
	unsigned verdict;

	if (call->orders)
		return TPCK_V_NONE;
	if (call->token.op == TPCK_OP_KERNEL || call->token.op == TPCK_OP_GRAPH)
		self->launches = true;
	/* A thread that only copies (a loader) is not in step with the iterations. */
	if (!self->launches && call->token.thread != 1)
		return TPCK_V_NONE;
	if (!tpck_bias_lock(&engine->infer_lock, self))
		return TPCK_V_NONE;
	verdict = tpck_infer_feed(engine->infer, &call->token);
	tpck_bias_unlock(&engine->infer_lock, self);
	return verdict;
}

void tpck_engine_graph_node(uint64_t graph, const struct tpck_token *node)
{
	if (!engine->infer)
		return;
	if (!tpck_bias_lock(&engine->infer_lock, tpck_thread_self()))
		return;
	tpck_infer_graph_node(engine->infer, graph, node);
	tpck_bias_unlock(&engine->infer_lock, tpck_thread_self());
}

/* While running forward: the operation is compared and not made. False: the thread went live, or never ran forward. */
static bool answered(struct tpck_thread *self, struct tpck_call *call, uint32_t token)
{
	uint32_t content = call->content ? content_digest(call->content, call->token.bytes) : 0;

	if (tpck_resume_operation(self, call, token, content) != TPCK_GO_ANSWERED)
		return false;
	feed(self, call);
	return true;
}

/* What the verdict asks for before the operation; not inside the gate. */
static void act(struct tpck_thread *self, unsigned verdict)
{
	tpck_gate_leave(self);
	if (verdict & TPCK_V_BOUNDARY_BEFORE)
		boundary(self);
	if (verdict & TPCK_V_OPT_BEGIN)
		optimizer_phase(self);
	tpck_gate_enter(self);
}

enum tpck_go tpck_engine_before(struct tpck_thread *self, struct tpck_call *call)
{
	struct tpck_stream *stream = tpck_stream_of(call->stream, self);
	uint32_t token, content = 0, mode;
	unsigned verdict;

	call->gated = call->boundary_after = false;
	if (__builtin_expect(engine->stream_captures > 0, 0) && engine->device && engine->device->is_capturing(call->stream))
		return TPCK_GO_RUN; /* goes into a graph, which is launched later */
	call->token.stream = stream ? stream->ordinal : 0;
	call->token.thread = self->id;
	token = token_digest(&call->token);
	mode = tpck_engine_mode();
	if (__builtin_expect(mode != TPCK_MODE_LIVE, 0)) {
		if (mode == TPCK_MODE_FORWARD && answered(self, call, token))
			return TPCK_GO_ANSWERED;
		if (tpck_engine_mode() != TPCK_MODE_LIVE)
			return TPCK_GO_RUN;
	}
	if (call->content && !tpck_readback_touches(call->content, call->token.bytes))
		content = content_digest(call->content, call->token.bytes);
	tpck_gate_enter(self);
	verdict = feed(self, call);
	if (__builtin_expect(verdict & (TPCK_V_BOUNDARY_BEFORE | TPCK_V_OPT_BEGIN), 0))
		act(self, verdict);
	call->boundary_after = verdict & TPCK_V_BOUNDARY_AFTER;
	call->gated = true;
	if (stream) {
		tpck_copier_fence(stream, call->stream);
		if (!atomic_load_explicit(&stream->dirty, memory_order_relaxed))
			atomic_store_explicit(&stream->dirty, 1, memory_order_relaxed);
	}
	tpck_record_operation(self, token, content, call->content != NULL);
	return TPCK_GO_RUN;
}

void tpck_engine_after(struct tpck_thread *self, struct tpck_call *call)
{
	if (__builtin_expect(!call->gated, 0))
		return;
	if (!call->orders)
		tpck_memory_queued(self);
	tpck_gate_leave(self);
	if (__builtin_expect(call->boundary_after, 0))
		boundary(self);
}

/* ---- a boundary --------------------------------------------------------------------------------- */

static bool capture_due(uint64_t now)
{
	const struct tpck_interval *interval = &engine->settings.interval;

	if (interval->unit == TPCK_INTERVAL_SECONDS)
		return now - engine->last_capture_ns >= (uint64_t)(interval->count * 1e9);
	if (interval->unit == TPCK_INTERVAL_ITERATIONS && interval->count > 1)
		return engine->step % (uint64_t)interval->count == 0;
	if (interval->unit == TPCK_INTERVAL_AUTO && engine->settings.overhead < 100) {
		/* What a capture makes the device wait, spread over the time until the next. Classes that were
		 * just learnt change what it waits for: it is measured anew. */
		double share = engine->settings.overhead > 0 ? engine->settings.overhead / 100 : 0.0001;
		bool learning = tpck_classes_learning(), learnt = engine->learning && !learning;

		engine->learning = learning;
		return learnt || (double)(now - engine->last_capture_ns) >= (double)engine->control->status.wait_ns_mean / share;
	}
	return true;
}

static void status_classes(const struct tpck_plan *plan)
{
	struct tpck_status *status = &engine->control->status;
	uint64_t blocks[TPCK_CLASSES] = {0}, bytes[TPCK_CLASSES] = {0};

	for (uint32_t i = 0; i < plan->rows; i++) {
		blocks[plan->row[i].class_]++;
		bytes[plan->row[i].class_] += plan->row[i].bytes;
	}
	memcpy(status->class_blocks, blocks, sizeof blocks);
	memcpy(status->class_bytes, bytes, sizeof bytes);
}

/* More room than is needed now, so that a little growth needs no new images. */
void tpck_engine_ask_for_room(uint64_t bytes)
{
	struct tpck_prepare prepare = {.bytes = bytes + bytes / 8, .images = 3};

	prepare.bytes = (prepare.bytes + TPCK_CHUNK_BYTES - 1) / TPCK_CHUNK_BYTES * TPCK_CHUNK_BYTES;
	if (engine->asked_room >= prepare.bytes)
		return;
	engine->asked_room = prepare.bytes;
	tpck_link_send(TPCK_MSG_PREPARE, &prepare, sizeof prepare);
}

static void boundary_mark(struct tpck_log_position *cut, uint64_t now)
{
	struct tpck_record_boundary record = {engine->step, engine->allocations, now};
	uint32_t count;
	struct tpck_thread *threads = tpck_threads(&count);

	for (uint32_t i = 0; i < count; i++)
		if (threads[i].pending || threads[i].not_ready)
			tpck_record_mark(&threads[i]);
	tpck_log_append(engine->log, TPCK_RECORD_BOUNDARY, 0, 0, (uint32_t)engine->step, &record, sizeof record);
	*cut = tpck_log_end(engine->log);
}

/* Whether a snapshot was begun. The gate is closed. */
static bool boundary_capture(const struct tpck_log_position *cut, uint64_t now)
{
	struct tpck_capture capture = {engine->welcome.generation, engine->step, cut->sequence, cut->offset, NULL, NULL};
	int result;

	capture.plan = tpck_memory_plan();
	if (!capture.plan)
		return false;
	if (capture.plan->data_bytes > tpck_images_room()) {
		tpck_engine_ask_for_room(capture.plan->data_bytes);
		return false;
	}
	capture.unresumable = tpck_log_failed(engine->log) ? tpck_log_failed(engine->log) : engine->unresumable;
	result = tpck_copier_request(&capture);
	if (result) {
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

/* Classes are learnt by digests alone where no snapshot is due. The gate is closed. */
static void boundary_probe(void)
{
	struct tpck_plan *plan = engine->last_capture_step && tpck_classes_learning() ? tpck_memory_plan() : NULL;

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
	if (engine->last_boundary_ns) {
		uint64_t took = now - engine->last_boundary_ns;

		status->iteration_ns = status->iteration_ns ? status->iteration_ns - status->iteration_ns / 16 + took / 16
							    : took;
		/* An iteration that no copy could have held up tells how long they really are. */
		if (engine->free_since && !tpck_copier_busy())
			status->free_iteration_ns = status->free_iteration_ns
							    ? status->free_iteration_ns - status->free_iteration_ns / 8 + took / 8
							    : took;
	}
	engine->last_boundary_ns = now;
	engine->free_since = !tpck_copier_busy();
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

static void status_stall(uint64_t begun, uint64_t cpu_begun)
{
	struct tpck_status *status = &engine->control->status;
	uint64_t took = tpck_clock_monotonic_ns() - begun, cpu = tpck_clock_thread_cpu_ns() - cpu_begun;

	status->stall_ns_sum += took;
	status->stall_cpu_ns_sum += cpu;
	if (cpu > status->stall_cpu_ns_max)
		status->stall_cpu_ns_max = cpu;
	status->stall_count++;
	if (took > status->stall_ns_max)
		status->stall_ns_max = took;
}

static void boundary(struct tpck_thread *self)
{
	uint64_t now = tpck_clock_monotonic_ns(), cpu = tpck_clock_thread_cpu_ns();
	struct tpck_log_position cut;

	if (atomic_exchange(&engine->boundary_busy, 1))
		return;
	engine->step++;
	if (!engine->phase_seen && engine->last_capture_step)
		tpck_log_debug("iteration %llu ended without an optimizer phase that was seen to begin",
			       (unsigned long long)engine->step);
	engine->phase_seen = false;
	status_inference(self, now);
	if (engine->settings.backpressure[1] == 't' && tpck_images_room())
		tpck_copier_drain(60);
	if (engine->stream_captures > 0 || !tpck_gate_close(self, GATE_LIMIT_NS)) {
		tpck_log_debug("step %llu is not captured: another thread is in a call", (unsigned long long)engine->step);
		engine->control->status.skipped++;
	} else {
		boundary_mark(&cut, now);
		if (!capture_due(now))
			boundary_probe();
		else if (!boundary_capture(&cut, now))
			engine->control->status.skipped++;
		tpck_gate_open();
		status_stall(now, cpu);
	}
	atomic_store(&engine->boundary_busy, 0);
}

/* The optimizer is about to write what a capture may still be copying: from here on streams wait for
 * all of it. While classes are learnt, digests taken here tell what changed before. */
static void optimizer_phase(const struct tpck_thread *self)
{
	tpck_copier_fence_all();
	engine->phase_seen = true;
	if (!engine->plan || engine->last_digest_step != engine->step || !tpck_classes_learning() ||
	    !tpck_copier_digests() || atomic_exchange(&engine->boundary_busy, 1))
		return;
	if (engine->stream_captures == 0 && tpck_gate_close(self, GATE_LIMIT_NS)) {
		(void)tpck_copier_probe(TPCK_JOB_PROBE_PHASE, engine->plan, engine->step);
		tpck_gate_open();
	}
	atomic_store(&engine->boundary_busy, 0);
}
