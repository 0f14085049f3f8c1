/* SPDX-License-Identifier: Apache-2.0 */
/* The copier: captures and probes, one after another. One thread submits what the device has to do for each, all at once; another one waits for it, and
 * finishes images. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/capture/copier.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/capture/digests.h"
#include "runtime/capture/fences.h"
#include "runtime/capture/pieces.h"
#include "runtime/capture/readback.h"
#include "runtime/track/threads.h"

enum { JOBS = TPCK_FENCES, EVENTS = 128, GIVEN_UP_MANY = 16 };
#define SECOND_NS 1000000000ull
#define CATCH_UP_NS 50000000ull

struct job {
	enum tpck_copier_job kind;
	struct tpck_capture capture;
	struct tpck_staging *staging;
	uint32_t image, fence;
	uint64_t readbacks;
	tpck_event_handle events[EVENTS];
	uint32_t made, recorded; /* events that exist; events of this job */
	tpck_event_handle begin; /* behind them */
	struct tpck_pieces pieces;
	bool digested;           /* digests are on their way */
	int result;              /* of what was submitted */
};

static struct tpck_copier_options options;
static const struct tpck_device *device;
static struct tpck_control *control;
static tpck_stream_handle stream, late_stream; /* what is behind the fences is none of the first one's */

static struct job jobs[JOBS] TPCK_LARGE;
static _Atomic uint32_t jobs_begun, jobs_submitted, jobs_done; /* requests ever; also futexes */

static void futex_wake(_Atomic uint32_t *word)
{
	tpck_sys_futex(word, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
	struct timespec limit = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
	int saved = errno;

	tpck_sys_futex(word, FUTEX_WAIT_PRIVATE, value, &limit, NULL, 0);
	errno = saved;
}

/* ---- copying --------------------------------------------------------------------------------------- */

/* How long the device held the application up for this capture: until the early part was copied, and
 * by what the rest took longer than an iteration runs before its optimizer phase. The latter is an
 * estimate from iterations in which nothing was copied; before there is one, all of the copy counts. */
static void wait_note(uint64_t classes, uint64_t early, uint64_t all)
{
	static uint64_t waited_classes;
	struct tpck_status *status = &control->status;
	uint64_t window = status->free_iteration_ns, wait = early;

	if (status->period > status->optimizer_operations)
		window = window / status->period * (status->period - status->optimizer_operations);
	if (all > window && all > early)
		wait += all - window < all - early ? all - window : all - early;
	status->wait_ns_sum += wait;
	/* What was waited for before the classes were these tells nothing of now. */
	if (waited_classes != classes)
		status->wait_ns_mean = 0;
	waited_classes = classes;
	status->wait_ns_mean = status->wait_ns_mean ? status->wait_ns_mean - status->wait_ns_mean / 8 + wait / 8 : wait;
}

static uint64_t index_bytes(const struct job *job, const struct tpck_roles *roles)
{
	struct tpck_index_counts counts = {job->capture.plan->rows, roles->tensors, roles->optimizers,
					   job->capture.communicators.communicators, job->capture.communicators.peers};

	return tpck_index_bytes(&counts);
}

/* Behind the first part, when the program goes on: what the optimizer's launches named. Without memory nothing. */
static void roles_resolve(const struct job *job, struct tpck_roles *roles)
{
	const struct tpck_plan *plan = job->capture.plan;

	if (tpck_roles_resolve(job->capture.gathered, plan->row, plan->rows, roles) ||
	    index_bytes(job, roles) > TPCK_IMAGE_DATA_AT - TPCK_IMAGE_INDEX_AT)
		tpck_roles_free(roles);
}

/* Everything that streams will wait for. */
static int submit_image(struct job *job)
{
	const struct tpck_plan *plan = job->capture.plan;
	struct tpck_pieces *p = &job->pieces;
	bool known;
	int result = device->event_record(job->begin, stream);

	*p = (struct tpck_pieces){.plan = plan, .staging = job->staging, .fence = job->fence, .stream = stream};
	if (result)
		return result;
	job->digested = tpck_digests_ready() && !tpck_digests_queue(plan, job->fence, stream);
	tpck_fences_progress();
	known = tpck_pieces_knows(p);
	/* An image that lacks the constant rows gets everything before the next iteration begins: what is
	 * called constant may yet be written in it. Digests would tell, and the image would be lost. */
	result = tpck_pieces_copy(p, known ? plan->early_bytes : plan->data_bytes);
	if (!result)
		result = tpck_fences_submitted(job->fence, TPCK_PART_EARLY, stream);
	if (!result)
		result = tpck_pieces_copy(p, known && job->digested ? plan->lazy_bytes : plan->data_bytes);
	if (!result)
		result = tpck_fences_submitted(job->fence, TPCK_PART_ALL, stream);
	return result;
}

/* What was submitted has its end, and what the image needs besides. */
static int finish_image(struct job *job, const uint64_t **digests, struct tpck_roles *roles)
{
	const struct tpck_plan *plan = job->capture.plan;
	struct tpck_pieces *p = &job->pieces;
	uint64_t early, all;
	int result = job->result ? job->result : tpck_fences_pass(job->fence, TPCK_PART_EARLY);

	*digests = NULL;
	if (!result) {
		roles_resolve(job, roles);
		result = tpck_fences_pass(job->fence, TPCK_PART_ALL);
	}
	if (!result)
		tpck_pieces_gaps(p);
	/* Copies into the image that have no fence behind them. */
	if (result && device->stream_synchronize(stream))
		result = -EIO;
	if (!result && !tpck_fences_wanted(job->fence))
		result = -ECANCELED;
	if (result)
		return result;
	early = tpck_fences_took(job->fence, TPCK_PART_EARLY, job->begin);
	all = tpck_fences_took(job->fence, TPCK_PART_ALL, job->begin);
	tpck_pieces_learn(p->queued, all);
	if (job->digested) {
		*digests = tpck_digests_get(plan, job->fence);
		result = tpck_pieces_constants(p, *digests, job->capture.step, late_stream);
	} else {
		job->staging->constants_of = 0;
	}
	if (!result) {
		tpck_pieces_ready(p);
		wait_note(plan->classes, early, all);
	}
	return result;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Whether the index can be written: it is a hole of the image's file, and storing where the memory tier has no page left
 * would be the end of the program. Before Linux 5.14 that cannot be asked. */
static bool index_has_room(struct tpck_image_header *header, uint64_t bytes)
{
	bytes = (bytes + 4095) / 4096 * 4096;
	return bytes == 0 || madvise((char *)header + TPCK_IMAGE_INDEX_AT, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
}

/* Tensors, optimizers and communicators into the index, behind the rows. */
static void image_roles(struct tpck_image_header *header, const struct tpck_roles *roles, const struct tpck_communicators *all)
{
	char *at = (char *)header + TPCK_IMAGE_INDEX_AT + header->rows * sizeof(struct tpck_image_row);

	tpck_roles_read_scalars(roles, (const struct tpck_image_row *)((char *)header + TPCK_IMAGE_INDEX_AT), header->rows,
				(const char *)header + TPCK_IMAGE_DATA_AT);
	header->tensors = roles->tensors;
	header->optimizers = roles->optimizers;
	if (roles->tensors)
		memcpy(at, roles->tensor, roles->tensors * sizeof *roles->tensor);
	if (roles->optimizers)
		memcpy(at + roles->tensors * sizeof *roles->tensor, roles->optimizer, roles->optimizers * sizeof *roles->optimizer);
	at += roles->tensors * sizeof *roles->tensor + roles->optimizers * sizeof *roles->optimizer;
	header->communicators = all->communicators;
	header->peers = all->peers;
	if (all->communicators)
		memcpy(at, all->communicator, all->communicators * sizeof *all->communicator);
	if (all->peers)
		memcpy(at + all->communicators * sizeof *all->communicator, all->peer, all->peers * sizeof *all->peer);
}

static void chunks_begin(const struct job *job)
{
	uint64_t chunks = (job->capture.plan->data_bytes + TPCK_CHUNK_BYTES - 1) / TPCK_CHUNK_BYTES;

	for (uint32_t c = 0; c < chunks; c++) {
		atomic_store(&tpck_staging_chunk(job->staging, c)->ready, 0);
		atomic_store(&tpck_staging_chunk(job->staging, c)->hashed, 0);
	}
}

static void image_finish(const struct job *job, uint32_t chunks, const uint64_t *digests, const struct tpck_roles *roles)
{
	struct tpck_image_header *header = job->staging->header;
	const struct tpck_plan *plan = job->capture.plan;
	struct tpck_image_row *rows = (struct tpck_image_row *)((char *)header + TPCK_IMAGE_INDEX_AT);

	memcpy(rows, plan->row, plan->rows * sizeof *rows);
	for (uint32_t i = 0; i < plan->rows; i++) {
		rows[i].asof_step = rows[i].class_ == TPCK_CLASS_CONSTANT && digests ? job->staging->constants_step
										     : job->capture.step;
		rows[i].device_digest = digests ? digests[i] : 0;
	}
	header->data_bytes = plan->data_bytes;
	header->chunks = chunks;
	header->rows = plan->rows;
	image_roles(header, roles, &job->capture.communicators);
	header->log_sequence = job->capture.log_sequence;
	header->log_offset = job->capture.log_offset;
	header->resumable = !job->capture.unresumable;
	snprintf(header->reason, sizeof header->reason, "%s",
		 job->capture.unresumable ? job->capture.unresumable : "");
	header->held_ns = tpck_clock_monotonic_ns();
	header->footer = tpck_image_footer(header);
	atomic_store_explicit(&header->state, TPCK_IMAGE_HELD, memory_order_release);
}

/* A snapshot that is not to be had. */
static void drop(const struct job *job, int result)
{
	static uint32_t given_up;

	job->staging->constants_of = 0;
	atomic_store(&job->staging->header->state, TPCK_IMAGE_ABANDONED);
	if (result == -ECANCELED || result == -ESTALE) {
		__atomic_fetch_add(&control->status.skipped, 1, __ATOMIC_RELAXED);
		tpck_log_debug("step %llu is not captured: %s", (unsigned long long)job->capture.step,
			       result == -ECANCELED ? "its copies were not queued in time, and the program went on" : "memory that did not change does");
		if (result == -ECANCELED && ++given_up == GIVEN_UP_MANY)
			tpck_log_warn("%d snapshots could not be queued in time, and were given up: the driver lets two threads wait for each other, or the "
				      "processors are busy; going on with those that can", GIVEN_UP_MANY);
	} else if (!control->status.abandoned++) {
		tpck_log_warn("the snapshot of step %llu failed: %s; going on without it", (unsigned long long)job->capture.step, strerror(-result));
	}
}

static void capture_finish(struct job *job)
{
	struct tpck_image_header *header = job->staging->header;
	uint32_t chunks = (uint32_t)((job->capture.plan->data_bytes + TPCK_CHUNK_BYTES - 1) / TPCK_CHUNK_BYTES);
	struct tpck_roles roles = {0};
	const uint64_t *digests;
	int result = finish_image(job, &digests, &roles);

	if (!result && !index_has_room(header, index_bytes(job, &roles))) {
		tpck_roles_free(&roles);
		if (!index_has_room(header, index_bytes(job, &roles)))
			result = -ENOSPC;
	}
	if (!result) {
		tpck_readback_arrived(job->readbacks);
		image_finish(job, chunks, digests, &roles);
	}
	tpck_roles_free(&roles);
	if (result) {
		drop(job, result);
		return;
	}
	control->status.captured++;
	control->status.last_step = job->capture.step;
	options.held(job->image, job->capture.step);
	if (digests)
		options.digests(job->capture.plan, digests, job->capture.step, TPCK_JOB_CAPTURE);
}

static int submit_probe(struct job *job)
{
	int result = tpck_digests_queue(job->capture.plan, job->fence, stream);

	tpck_fences_progress();
	for (int part = 0; part < TPCK_PARTS && !result; part++)
		result = tpck_fences_submitted(job->fence, part, stream);
	return result;
}

static void probe_finish(const struct job *job)
{
	if (!job->result && !tpck_fences_pass(job->fence, TPCK_PART_EARLY) && !tpck_fences_pass(job->fence, TPCK_PART_ALL) &&
	    tpck_fences_wanted(job->fence))
		options.digests(job->capture.plan, tpck_digests_get(job->capture.plan, job->fence), job->capture.step, job->kind);
}

static void job_submit(struct job *job)
{
	int result = 0;

	if (job->kind == TPCK_JOB_CAPTURE)
		chunks_begin(job);
	for (uint32_t i = 0; i < job->recorded && !result; i++)
		result = device->stream_wait_event(stream, job->events[i]);
	if (!result)
		result = job->kind == TPCK_JOB_CAPTURE ? submit_image(job) : submit_probe(job);
	job->result = result;
	tpck_fences_settle(job->fence);
}

static void job_finish(struct job *job)
{
	if (job->kind == TPCK_JOB_CAPTURE)
		capture_finish(job);
	else
		probe_finish(job);
	tpck_roles_give_back(job->capture.gathered);
	tpck_communicators_free(&job->capture.communicators);
	__atomic_sub_fetch(&job->capture.plan->users, 1, __ATOMIC_RELEASE);
}

/* Takes each job once it has got so far, and lets it go a step further. */
static void serve(void (*work)(struct job *), _Atomic uint32_t *from, _Atomic uint32_t *to)
{
	for (;;) {
		uint32_t done = atomic_load(to), there = atomic_load(from);

		if (done == there) {
			futex_wait(from, there, SECOND_NS);
			continue;
		}
		work(&jobs[done % JOBS]);
		atomic_store(to, done + 1);
		futex_wake(to);
	}
}

static void *finisher_main(void *unused)
{
	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-images");
	device->context_use(options.context);
	serve(job_finish, &jobs_submitted, &jobs_done);
	return NULL;
}

static void *copier_main(void *unused)
{
	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-copier");
	device->context_use(options.context);
	serve(job_submit, &jobs_begun, &jobs_submitted);
	return NULL;
}

/* Loading a kernel waits for all that the device has to do, and holds up the program's calls meanwhile. A stream of the program's that waits for one of
 * its threads would then wait for ever: so it is done before the program has anything under way. */
static void open_digests(void)
{
	int result = tpck_digests_open(device, options.library, options.kernels, stream);

	control->status.ways.digests = !result ? TPCK_DIGESTS_DEVICE : result == -EILSEQ ? TPCK_DIGESTS_OTHER : TPCK_DIGESTS_NO_KERNEL;
	if (result == -EILSEQ)
		tpck_log_warn("this device computes other digests than the processor; snapshots are taken without: they are copied as a whole, and not "
			      "compared with what the device has");
	else if (!result)
		tpck_log_debug("digests are taken on the device");
}

int tpck_copier_start(const struct tpck_copier_options *with)
{
	int result;

	options = *with;
	device = with->device;
	control = with->control;
	tpck_pieces_open(device);
	result = device->stream_create(&stream);
	if (!result)
		result = device->stream_create(&late_stream);
	for (int i = 0; i < JOBS && !result; i++)
		result = device->event_create(&jobs[i].begin, true);
	if (!result)
		result = tpck_fences_open(device);
	if (result)
		return result;
	open_digests();
	result = tpck_thread_start(finisher_main);
	return result ? result : tpck_thread_start(copier_main);
}

/* ---- requests: by the application's thread, gate closed ------------------------------------------------ */

static int record_streams(struct job *job)
{
	struct tpck_stream *all;
	uint32_t count;

	job->recorded = 0;
	all = tpck_streams(&count);
	for (uint32_t i = 0; i < count; i++) {
		/* A per-thread default stream can be named by its own thread only; the legacy stream waits
		 * for it. */
		tpck_stream_handle handle = all[i].owner ? TPCK_STREAM_LEGACY : all[i].handle;
		int result;

		if (!atomic_load(&all[i].alive) || !atomic_exchange(&all[i].dirty, 0))
			continue;
		if (job->recorded == EVENTS)
			return device->synchronize();
		if (job->recorded == job->made) {
			result = device->event_create(&job->events[job->made], false);
			if (result)
				return result;
			job->made++;
		}
		result = device->event_record(job->events[job->recorded], handle);
		if (result)
			return result;
		job->recorded++;
	}
	return 0;
}

static struct job *job_next(void)
{
	uint32_t begun = atomic_load(&jobs_begun);

	return begun - atomic_load(&jobs_done) == JOBS ? NULL : &jobs[begun % JOBS];
}

static void job_go(struct job *job)
{
	__atomic_add_fetch(&job->capture.plan->users, 1, __ATOMIC_ACQUIRE);
	/* A probe holds everything up until it has passed. */
	job->fence = tpck_fences_begin(job->kind != TPCK_JOB_CAPTURE);
	atomic_fetch_add(&jobs_begun, 1);
	futex_wake(&jobs_begun);
}

int tpck_copier_request(const struct tpck_capture *capture)
{
	struct job *job = device ? job_next() : NULL;
	struct tpck_image_header *header;
	int result;

	if (!job)
		return -EAGAIN;
	result = tpck_images_take(&job->image, &job->staging);
	if (result)
		return result;
	header = job->staging->header;
	result = record_streams(job);
	if (result) {
		atomic_store(&header->state, TPCK_IMAGE_ABANDONED);
		return result;
	}
	header->footer = 0;
	header->generation = capture->generation;
	header->step = capture->step;
	header->begun_ns = tpck_clock_monotonic_ns();
	job->kind = TPCK_JOB_CAPTURE;
	job->capture = *capture;
	job->readbacks = tpck_readback_mark();
	job_go(job);
	return 0;
}

int tpck_copier_probe(enum tpck_copier_job kind, struct tpck_plan *plan, uint64_t step)
{
	struct job *job = job_next();
	int result;

	if (!tpck_digests_ready())
		return -ENOTSUP;
	if (!job)
		return -EAGAIN;
	result = record_streams(job);
	if (result)
		return result;
	job->kind = kind;
	job->capture = (struct tpck_capture){.step = step, .plan = plan};
	job_go(job);
	return 0;
}

bool tpck_copier_digests(void)
{
	return tpck_digests_ready();
}

bool tpck_copier_busy(void)
{
	return atomic_load(&jobs_begun) != atomic_load(&jobs_done);
}

void tpck_copier_catch_up(void)
{
	uint64_t limit = 0;

	for (;;) {
		uint32_t done = atomic_load(&jobs_done);
		uint64_t now;

		if (__builtin_expect(done == atomic_load(&jobs_submitted), 1) || !tpck_fences_over(jobs[done % JOBS].fence, TPCK_PART_ALL))
			return;
		now = tpck_clock_monotonic_ns();
		limit = limit ? limit : now + CATCH_UP_NS;
		if (now >= limit)
			return;
		futex_wait(&jobs_done, done, limit - now);
	}
}

void tpck_copier_close(void)
{
	tpck_fences_close();
}

void tpck_copier_drain(double seconds)
{
	uint64_t limit = tpck_clock_monotonic_ns() + (uint64_t)(seconds * 1e9);

	for (;;) {
		uint32_t done = atomic_load(&jobs_done);

		if (done == atomic_load(&jobs_begun) || tpck_clock_monotonic_ns() > limit)
			return;
		futex_wait(&jobs_done, done, SECOND_NS);
	}
}
