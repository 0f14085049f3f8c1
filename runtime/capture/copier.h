/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copier: threads of ours that bring memory into staging images behind the application's
 * back (doc/snapshots.md, "Fences"). A capture is requested at a boundary, under the closed gate; the copier's
 * stream waits for what the application had queued by then, and streams that go on wait, on the
 * device, until the copy has passed (runtime/capture/fences.h): the host waits for its submission at most.
 */
#ifndef TPCK_RUNTIME_CAPTURE_COPIER_H
#define TPCK_RUNTIME_CAPTURE_COPIER_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/capture/images.h"
#include "runtime/capture/plan.h"
#include "runtime/infer/roles.h"
#include "runtime/track/communicators.h"
#include "runtime/track/device.h"
#include "runtime/track/streams.h"

struct tpck_capture {
	uint64_t generation, step;
	uint64_t log_sequence, log_offset; /* the log's cut */
	const char *unresumable;           /* NULL, or why the log cannot be run forward to here */
	struct tpck_plan *plan;
	struct tpck_communicators communicators; /* of the process; the copier's, once it took the job */
	struct tpck_gathered *gathered;    /* what the optimizer's launches named, or NULL; the copier's, once it took the job */
};

/* A probe takes digests alone: at a boundary, where an optimizer phase begins, or where the memory witness looks. */
enum tpck_copier_job { TPCK_JOB_CAPTURE, TPCK_JOB_PROBE_BOUNDARY, TPCK_JOB_PROBE_PHASE, TPCK_JOB_PROBE_WITNESS };

/* Called by the copier's thread when an image became HELD. */
typedef void (*tpck_capture_held)(uint32_t image, uint64_t step);

/* Digests of a plan's rows, in their order, as the device had them: those of a capture, of the boundary that ended `step`, or those of a probe.
 * Called by the copier's thread. */
typedef void (*tpck_capture_digests)(const struct tpck_plan *plan, const uint64_t *digests, uint64_t step, enum tpck_copier_job kind);

struct tpck_copier_options {
	const struct tpck_device *device;
	void *context;
	struct tpck_control *control;
	tpck_capture_held held;
	tpck_capture_digests digests;
	const char *library, *kernels; /* where the device code is looked for */
};

/* Before the program's first operation, its context current: readies digests and starts the threads. 0 or -errno. */
int tpck_copier_start(const struct tpck_copier_options *options);
/* At a boundary, gate closed: queues a capture. -EAGAIN: no image is free or too many are under way. */
int tpck_copier_request(const struct tpck_capture *capture);
/* Gate closed: queues the digests of a plan. -EAGAIN, -ENOTSUP. */
int tpck_copier_probe(enum tpck_copier_job kind, struct tpck_plan *plan, uint64_t step);
/* Whether digests can be taken on this device. */
bool tpck_copier_digests(void);
/* Waits until nothing is under way, at most so many seconds (a device that hangs never ends). */
void tpck_copier_drain(double seconds);
bool tpck_copier_busy(void);
/* By a thread of the program that has waited for the device: if the device has passed a whole capture, waits for its image to be held, which is a matter
 * of microseconds unless the processors are busy; 50 ms at most. So no thread that shows what the device did is further ahead of the snapshots than
 * the device is: a kill never costs more than the iteration under way and the one being copied. */
void tpck_copier_catch_up(void);
/* The context ends, in which nothing is under way any more, and nobody begins anything. */
void tpck_copier_close(void);

#endif
