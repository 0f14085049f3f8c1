/* SPDX-License-Identifier: Apache-2.0 */
/* The copier: captures, one after another, in a thread of ours. */
#include "config.h"

#include "runtime/capture/copier.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/replay/readback.h"
#include "runtime/track/threads.h"

enum { JOBS = 4, EVENTS = 128, IN_FLIGHT = 2, REGISTER_BYTES = 64 << 20 };

/* A mapping of one image file; replaced, never unmapped, when the image grows while it is in use. */
struct staging {
	struct tpck_image_header *header;
	uint64_t data_bytes;
};

struct job {
	struct tpck_capture capture;
	struct staging *staging;
	uint32_t image, fence;
	uint64_t readbacks;
	tpck_event_handle events[EVENTS];
	uint32_t made, recorded; /* events that exist; events of this job */
};

static const struct tpck_device *device;
static void *context;
static struct tpck_control *control;
static tpck_capture_held report_held;
static tpck_stream_handle stream;
static tpck_event_handle chunk_events[IN_FLIGHT];
static struct staging *_Atomic stagings[TPCK_IMAGES_MAX];
static _Atomic uint32_t image_count;
static _Atomic uint64_t room;
static uint64_t session_generation;

static struct job jobs[JOBS];
static _Atomic uint32_t jobs_begun, jobs_done; /* requests ever made and finished; also a futex */

static _Atomic uint32_t *flag;          /* grows to the fence whose capture has passed */
static uint64_t flag_address;
static _Atomic uint32_t fence_now;

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	struct timespec limit = {1, 0};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &limit, NULL, 0);
}

static char *data_of(const struct staging *staging)
{
	return (char *)staging->header + TPCK_IMAGE_DATA_AT;
}

static struct tpck_image_chunk *chunk_of(const struct staging *staging, uint32_t chunk)
{
	return (struct tpck_image_chunk *)((char *)staging->header + TPCK_IMAGE_CHUNKS_AT) + chunk;
}

/* Queues the copies of every piece of the plan's rows that lies in [from, to) of the data area;
 * *row is where the last call stopped. */
static int queue_range(const struct job *job, uint64_t from, uint64_t to, uint32_t *row)
{
	const struct tpck_plan *plan = job->capture.plan;

	for (; *row < plan->rows; ++*row) {
		const struct tpck_image_row *r = &plan->row[*row];
		uint64_t begin, end;
		int result;

		if (r->data_offset == UINT64_MAX)
			continue;
		begin = r->data_offset > from ? r->data_offset : from;
		end = r->data_offset + r->bytes < to ? r->data_offset + r->bytes : to;
		if (r->data_offset >= to)
			break;
		if (begin < end) {
			result = device->copy_from_device(data_of(job->staging) + begin,
							  r->address + (begin - r->data_offset),
							  end - begin, stream);
			if (result)
				return result;
		}
		if (r->data_offset + r->bytes > to)
			break;
	}
	return 0;
}

static void chunk_ready(const struct job *job, uint32_t chunk, uint64_t bytes)
{
	struct tpck_image_chunk *entry = chunk_of(job->staging, chunk);

	entry->bytes = bytes;
	atomic_store_explicit(&entry->ready, 1, memory_order_release);
}

static int copy_chunks(const struct job *job, uint32_t chunks)
{
	uint64_t total = job->capture.plan->data_bytes;
	uint32_t row = 0, done = 0;
	int result = 0;

	for (uint32_t c = 0; c < chunks && !result; c++) {
		uint64_t from = (uint64_t)c * TPCK_CHUNK_BYTES;
		uint64_t to = from + TPCK_CHUNK_BYTES < total ? from + TPCK_CHUNK_BYTES : total;

		if (c >= IN_FLIGHT) {
			result = device->event_synchronize(chunk_events[c % IN_FLIGHT]);
			if (!result)
				chunk_ready(job, done++, TPCK_CHUNK_BYTES);
		}
		if (!result)
			result = queue_range(job, from, to, &row);
		if (!result)
			result = device->event_record(chunk_events[c % IN_FLIGHT], stream);
	}
	if (!result)
		result = device->stream_write_flag(stream, flag_address, job->fence);
	for (; done < chunks && !result; done++) {
		uint64_t from = (uint64_t)done * TPCK_CHUNK_BYTES;

		result = device->event_synchronize(chunk_events[done % IN_FLIGHT]);
		if (!result)
			chunk_ready(job, done, total - from < TPCK_CHUNK_BYTES ? total - from : TPCK_CHUNK_BYTES);
	}
	if (!chunks && !result)
		result = device->stream_synchronize(stream);
	return result;
}

static void image_finish(const struct job *job, uint32_t chunks)
{
	struct tpck_image_header *header = job->staging->header;
	const struct tpck_plan *plan = job->capture.plan;
	struct tpck_image_row *rows = (struct tpck_image_row *)((char *)header + TPCK_IMAGE_INDEX_AT);

	memcpy(rows, plan->row, plan->rows * sizeof *rows);
	for (uint32_t i = 0; i < plan->rows; i++)
		rows[i].asof_step = job->capture.step;
	header->data_bytes = plan->data_bytes;
	header->chunks = chunks;
	header->rows = plan->rows;
	header->log_sequence = job->capture.log_sequence;
	header->log_offset = job->capture.log_offset;
	header->resumable = !job->capture.unresumable;
	snprintf(header->reason, sizeof header->reason, "%s",
		 job->capture.unresumable ? job->capture.unresumable : "");
	header->held_ns = tpck_clock_monotonic_ns();
	header->footer = tpck_image_footer(header);
	atomic_store_explicit(&header->state, TPCK_IMAGE_HELD, memory_order_release);
}

static void job_run(struct job *job)
{
	struct tpck_image_header *header = job->staging->header;
	uint32_t chunks = (uint32_t)((job->capture.plan->data_bytes + TPCK_CHUNK_BYTES - 1) / TPCK_CHUNK_BYTES);
	int result = 0;

	for (uint32_t c = 0; c < chunks; c++) {
		atomic_store(&chunk_of(job->staging, c)->ready, 0);
		atomic_store(&chunk_of(job->staging, c)->hashed, 0);
	}
	for (uint32_t i = 0; i < job->recorded && !result; i++)
		result = device->stream_wait_event(stream, job->events[i]);
	if (!result)
		result = copy_chunks(job, chunks);
	/* Whatever happened, nobody may wait for ever. */
	if (atomic_load(flag) < job->fence)
		atomic_store(flag, job->fence);
	if (!result) {
		tpck_readback_arrived(job->readbacks);
		image_finish(job, chunks);
		control->status.captured++;
		control->status.last_step = job->capture.step;
		report_held(job->image, job->capture.step);
	} else {
		atomic_store(&header->state, TPCK_IMAGE_ABANDONED);
		if (!control->status.abandoned++)
			tpck_log_warn("the snapshot of step %llu failed: %s; going on without it",
				      (unsigned long long)job->capture.step, strerror(-result));
	}
	__atomic_sub_fetch(&job->capture.plan->users, 1, __ATOMIC_RELEASE);
}

static void *copier_main(void *unused)
{
	(void)unused;
	tpck_thread_own();
	pthread_setname_np(pthread_self(), "tpck-copier");
	device->context_use(context);
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

int tpck_copier_start(const struct tpck_device *with, void *in_context, struct tpck_control *page,
		      tpck_capture_held held)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	void *host;
	int result;

	device = with;
	context = in_context;
	control = page;
	report_held = held;
	result = device->host_alloc(&host, &flag_address, 4096);
	if (result)
		return result;
	flag = host;
	atomic_store(flag, 0);
	result = device->stream_create(&stream);
	for (int i = 0; i < IN_FLIGHT && !result; i++)
		result = device->event_create(&chunk_events[i]);
	if (!result)
		result = device->stream_write_flag(stream, flag_address, 1);
	if (!result)
		result = device->stream_wait_flag(stream, flag_address, 1);
	if (!result)
		result = device->stream_synchronize(stream);
	if (result)
		return result;
	if (atomic_load(flag) != 1)
		return -ENOTSUP;
	atomic_store(&fence_now, 1);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 256 << 10);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	result = -pthread_create(&thread, &attributes, copier_main, NULL);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return result;
}

static void header_begin(struct tpck_image_header *header, uint32_t ordinal)
{
	if (header->magic == TPCK_IMAGE_MAGIC)
		return;
	header->magic = TPCK_IMAGE_MAGIC;
	header->version = TPCK_WIRE_VERSION;
	header->ordinal = ordinal;
	atomic_store(&header->state, TPCK_IMAGE_FREE);
}

int tpck_copier_images(const char *folder, uint64_t generation, uint32_t images, uint64_t data_bytes)
{
	session_generation = generation;
	device->context_use(context);
	for (uint32_t i = 0; i < images && i < TPCK_IMAGES_MAX; i++) {
		struct staging *made = calloc(1, sizeof *made);
		char path[320];
		void *at;
		int fd;

		if (!made)
			return -ENOMEM;
		snprintf(path, sizeof path, "%s/image.%u", folder, i);
		fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
		if (fd < 0) {
			free(made);
			return -errno;
		}
		at = mmap(NULL, TPCK_IMAGE_DATA_AT + data_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		syscall(SYS_close, fd);
		if (at == MAP_FAILED) {
			free(made);
			return -ENOMEM;
		}
		made->header = at;
		made->data_bytes = data_bytes;
		header_begin(made->header, i);
		/* Registered in pieces, so that no single call holds the driver for long. Where it is
		 * refused (locked memory is limited) copies still work, by way of the driver's own pages. */
		for (uint64_t from = 0; from < data_bytes; from += REGISTER_BYTES) {
			uint64_t bytes = data_bytes - from < REGISTER_BYTES ? data_bytes - from : REGISTER_BYTES;

			if (device->host_register(data_of(made) + from, bytes)) {
				tpck_log_info("image memory could not be pinned; copies are slower");
				break;
			}
		}
		atomic_store(&stagings[i], made);
	}
	atomic_store(&image_count, images < TPCK_IMAGES_MAX ? images : TPCK_IMAGES_MAX);
	atomic_store(&room, data_bytes);
	return 0;
}

uint64_t tpck_copier_room(void)
{
	return atomic_load(&room);
}

/* An image that nobody needs, now FILLING. */
static int image_take(uint32_t *image)
{
	uint32_t count = atomic_load(&image_count);

	for (uint32_t i = 0; i < count; i++) {
		struct tpck_image_header *header = atomic_load(&stagings[i])->header;
		uint32_t state = atomic_load(&header->state);

		if ((state == TPCK_IMAGE_FREE || state == TPCK_IMAGE_ABANDONED) && !atomic_load(&header->pins) &&
		    atomic_compare_exchange_strong(&header->state, &state, TPCK_IMAGE_FILLING)) {
			*image = i;
			return 0;
		}
	}
	return -EAGAIN;
}

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

int tpck_copier_request(const struct tpck_capture *capture)
{
	uint32_t begun = atomic_load(&jobs_begun);
	struct job *job = &jobs[begun % JOBS];
	struct tpck_image_header *header;
	int result;

	if (begun - atomic_load(&jobs_done) == JOBS)
		return -EAGAIN;
	result = image_take(&job->image);
	if (result)
		return result;
	job->staging = atomic_load(&stagings[job->image]);
	header = job->staging->header;
	result = record_streams(job);
	if (result) {
		atomic_store(&header->state, TPCK_IMAGE_ABANDONED);
		return result;
	}
	header->footer = 0;
	header->generation = session_generation;
	header->step = capture->step;
	header->begun_ns = tpck_clock_monotonic_ns();
	job->capture = *capture;
	job->readbacks = tpck_readback_mark();
	job->fence = atomic_fetch_add(&fence_now, 1) + 1;
	__atomic_add_fetch(&capture->plan->users, 1, __ATOMIC_ACQUIRE);
	atomic_store(&jobs_begun, begun + 1);
	futex_wake(&jobs_begun);
	return 0;
}

void tpck_copier_fence(struct tpck_stream *of, tpck_stream_handle handle)
{
	uint32_t fence = atomic_load_explicit(&fence_now, memory_order_acquire);

	if (__builtin_expect(atomic_load_explicit(&of->fence, memory_order_relaxed) == fence, 1) || !flag)
		return;
	atomic_store_explicit(&of->fence, fence, memory_order_relaxed);
	if (atomic_load_explicit(flag, memory_order_acquire) >= fence)
		return;
	if (device->stream_wait_flag(handle, flag_address, fence))
		device->stream_synchronize(stream);
}

bool tpck_copier_busy(void)
{
	return atomic_load(&jobs_begun) != atomic_load(&jobs_done);
}

void tpck_copier_drain(void)
{
	for (;;) {
		uint32_t done = atomic_load(&jobs_done);

		if (done == atomic_load(&jobs_begun))
			return;
		futex_wait(&jobs_done, done);
	}
}
