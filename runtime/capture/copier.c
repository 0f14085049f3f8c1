/* SPDX-License-Identifier: Apache-2.0 */
/* The copier: captures and probes, one after another, in a thread of ours. */
#include "config.h"

#include "runtime/capture/copier.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/capture/digests.h"
#include "runtime/capture/pieces.h"
#include "runtime/capture/readback.h"
#include "runtime/track/threads.h"

enum { JOBS = 6, EVENTS = 128 };

struct job {
	enum tpck_copier_job kind;
	struct tpck_capture capture;
	struct tpck_staging *staging;
	uint32_t image, fence;
	uint64_t readbacks;
	tpck_event_handle events[EVENTS];
	uint32_t made, recorded; /* events that exist; events of this job */
};

static struct tpck_copier_options options;
static const struct tpck_device *device;
static struct tpck_control *control;
static tpck_stream_handle stream;
static tpck_event_handle begin_event, early_event;

static struct job jobs[JOBS] TPCK_LARGE;
static _Atomic uint32_t jobs_begun, jobs_done; /* requests ever made and finished; also a futex */

/* Two flags in memory that the device sees: the fences whose early part, and whose whole, has passed. */
enum { FLAG_EARLY, FLAG_ALL = 16, FLAGS = 32 };
static _Atomic uint32_t *flags;
static uint64_t flags_address;
struct tpck_fences tpck_copier_fences;
static struct tpck_fences *const fences = &tpck_copier_fences;

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	struct timespec limit = {1, 0};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &limit, NULL, 0);
}

/* ---- copying --------------------------------------------------------------------------------------- */

static int flag_raise(const struct job *job, uint32_t which)
{
	return device->stream_write_flag(stream, flags_address + which * sizeof *flags, job->fence);
}

/* How long the device held the application up for this capture: until the early part was copied, and
 * by what the rest took longer than an iteration runs before its optimizer phase. The latter is an
 * estimate from iterations in which nothing was copied; before there is one, all of the copy counts. */
static void wait_note(uint64_t classes, uint64_t begun, uint64_t early, uint64_t all)
{
	static uint64_t waited_classes;
	struct tpck_status *status = &control->status;
	uint64_t window = status->free_iteration_ns, wait = early - begun;

	if (status->period > status->optimizer_operations)
		window = window / status->period * (status->period - status->optimizer_operations);
	if (all - begun > window && all > early)
		wait += all - begun - window < all - early ? all - begun - window : all - early;
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

static int copy_image(const struct job *job, const uint64_t **digests, struct tpck_roles *roles)
{
	const struct tpck_plan *plan = job->capture.plan;
	struct tpck_pieces p = {.plan = plan, .staging = job->staging};
	uint64_t begun = 0, early = 0;
	bool taken;
	int result = device->event_record(begin_event, stream);

	*digests = NULL;
	if (!result)
		result = device->event_synchronize(begin_event);
	begun = tpck_clock_monotonic_ns();
	taken = tpck_digests_ready() && !tpck_digests_queue(plan, stream);
	if (result)
		return result;
	/* An image that lacks the constant rows gets everything before the next iteration begins: what is
	 * called constant may yet be written in it. Digests would tell, and the image would be lost. */
	result = tpck_pieces_copy(&p, job->staging->constants_of == plan->serial ? plan->early_bytes : plan->data_bytes);
	if (!result)
		result = flag_raise(job, FLAG_EARLY);
	if (!result)
		result = device->event_record(early_event, stream);
	if (!result)
		result = device->event_synchronize(early_event);
	early = tpck_clock_monotonic_ns();
	roles_resolve(job, roles);
	tpck_pieces_gaps(&p);
	if (!result)
		result = tpck_pieces_copy(&p, plan->lazy_bytes);
	if (!result && taken) {
		*digests = tpck_digests_wait(plan, stream);
		if (!*digests)
			result = -EIO;
	}
	if (!result)
		result = tpck_pieces_constants(&p, *digests, job->capture.step);
	if (!result)
		result = tpck_pieces_finish(&p);
	if (!result)
		wait_note(plan->classes, begun, early, tpck_clock_monotonic_ns());
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

/* Whatever happened, nobody may wait for ever. */
static void flags_settle(const struct job *job)
{
	if (atomic_load(&flags[FLAG_EARLY]) < job->fence)
		atomic_store(&flags[FLAG_EARLY], job->fence);
	if (atomic_load(&flags[FLAG_ALL]) < job->fence)
		atomic_store(&flags[FLAG_ALL], job->fence);
}

static void capture_run(const struct job *job)
{
	struct tpck_image_header *header = job->staging->header;
	uint32_t chunks = (uint32_t)((job->capture.plan->data_bytes + TPCK_CHUNK_BYTES - 1) / TPCK_CHUNK_BYTES);
	struct tpck_roles roles = {0};
	const uint64_t *digests;
	int result;

	for (uint32_t c = 0; c < chunks; c++) {
		atomic_store(&tpck_staging_chunk(job->staging, c)->ready, 0);
		atomic_store(&tpck_staging_chunk(job->staging, c)->hashed, 0);
	}
	result = copy_image(job, &digests, &roles);
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
	/* The next optimizer phase waits for this: when it runs, the image is held, so that a kill never
	 * costs more than the iteration under way and the one being copied. */
	flags_settle(job);
	if (!result) {
		control->status.captured++;
		control->status.last_step = job->capture.step;
		options.held(job->image, job->capture.step);
		if (digests)
			options.digests(job->capture.plan, digests, job->capture.step, false);
	} else {
		job->staging->constants_of = 0;
		atomic_store(&header->state, TPCK_IMAGE_ABANDONED);
		if (!control->status.abandoned++)
			tpck_log_warn("the snapshot of step %llu failed: %s; going on without it",
				      (unsigned long long)job->capture.step, strerror(-result));
	}
}

static void probe_run(const struct job *job)
{
	const uint64_t *digests = NULL;

	if (!tpck_digests_queue(job->capture.plan, stream) && !flag_raise(job, FLAG_EARLY) &&
	    !flag_raise(job, FLAG_ALL))
		digests = tpck_digests_wait(job->capture.plan, stream);
	flags_settle(job);
	if (digests)
		options.digests(job->capture.plan, digests, job->capture.step, job->kind == TPCK_JOB_PROBE_PHASE);
}

static void job_run(struct job *job)
{
	int result = 0;

	for (uint32_t i = 0; i < job->recorded && !result; i++)
		result = device->stream_wait_event(stream, job->events[i]);
	if (job->kind == TPCK_JOB_CAPTURE)
		capture_run(job);
	else
		probe_run(job);
	tpck_roles_give_back(job->capture.gathered);
	tpck_communicators_free(&job->capture.communicators);
	__atomic_sub_fetch(&job->capture.plan->users, 1, __ATOMIC_RELEASE);
}

static void *copier_main(void *unused)
{
	int result;

	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-copier");
	device->context_use(options.context);
	result = tpck_digests_open(device, options.library, options.kernels, stream);
	if (result == -EILSEQ)
		tpck_log_warn("this device computes other digests than the processor; snapshots are taken without: they are copied as a whole, and not "
			      "compared with what the device has");
	else if (!result)
		tpck_log_debug("digests are taken on the device");
	for (;;) {
		uint32_t done = atomic_load(&jobs_done), begun = atomic_load(&jobs_begun);

		if (done == begun) {
			futex_wait(&jobs_begun, begun);
			continue;
		}
		job_run(&jobs[done % JOBS]);
		atomic_store(&jobs_done, done + 1);
		futex_wake(&jobs_done);
	}
	return NULL;
}

/* Flags in memory must work before anything relies on them. */
static int flags_try(void)
{
	int result = device->stream_write_flag(stream, flags_address, 1);

	if (!result)
		result = device->stream_wait_flag(stream, flags_address, 1);
	if (!result)
		result = device->stream_synchronize(stream);
	if (!result && atomic_load(&flags[FLAG_EARLY]) != 1)
		result = -ENOTSUP;
	if (!result)
		atomic_store(&flags[FLAG_ALL], 1);
	return result;
}

int tpck_copier_start(const struct tpck_copier_options *with)
{
	void *host;
	int result;

	options = *with;
	device = with->device;
	control = with->control;
	result = device->host_alloc(&host, &flags_address, 4096);
	if (result)
		return result;
	memset(host, 0, FLAGS * sizeof *flags);
	result = device->stream_create(&stream);
	if (!result)
		result = tpck_pieces_open(device, stream);
	if (!result)
		result = device->event_create(&begin_event);
	if (!result)
		result = device->event_create(&early_event);
	flags = host;
	if (!result)
		result = flags_try();
	if (result) {
		flags = NULL;
		return result;
	}
	atomic_store(&fences->all, 1);
	atomic_store(&fences->early, 1);
	return tpck_thread_start(copier_main);
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
			result = device->event_create(&job->events[job->made]);
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
	job->fence = atomic_load(&fences->early) + 1;
	__atomic_add_fetch(&job->capture.plan->users, 1, __ATOMIC_ACQUIRE);
	/* A probe holds everything up until it has passed. */
	if (job->kind != TPCK_JOB_CAPTURE)
		atomic_store(&fences->all, job->fence);
	atomic_store(&fences->early, job->fence);
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

void tpck_copier_fence_all(void)
{
	atomic_store(&fences->all, atomic_load(&fences->early));
}

static void fence(_Atomic uint32_t *seen, uint32_t now, uint32_t which, tpck_stream_handle handle)
{
	if (__builtin_expect(atomic_load_explicit(seen, memory_order_relaxed) == now, 1))
		return;
	atomic_store_explicit(seen, now, memory_order_relaxed);
	if (atomic_load_explicit(&flags[which], memory_order_acquire) >= now)
		return;
	if (device->stream_wait_flag(handle, flags_address + which * sizeof *flags, now))
		device->stream_synchronize(stream);
}

void tpck_copier_fence_put(struct tpck_stream *of, tpck_stream_handle handle)
{
	if (!flags)
		return;
	fence(&of->fence, atomic_load_explicit(&fences->early, memory_order_acquire), FLAG_EARLY, handle);
	fence(&of->fence_all, atomic_load_explicit(&fences->all, memory_order_acquire), FLAG_ALL, handle);
}

bool tpck_copier_busy(void)
{
	return atomic_load(&jobs_begun) != atomic_load(&jobs_done);
}

void tpck_copier_close(void)
{
	flags = NULL;
}

void tpck_copier_drain(double seconds)
{
	uint64_t limit = tpck_clock_monotonic_ns() + (uint64_t)(seconds * 1e9);

	for (;;) {
		uint32_t done = atomic_load(&jobs_done);

		if (done == atomic_load(&jobs_begun) || tpck_clock_monotonic_ns() > limit)
			return;
		futex_wait(&jobs_done, done);
	}
}
