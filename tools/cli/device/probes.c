/* SPDX-License-Identifier: Apache-2.0 */
/* The table of probes, in the order in which a library that is loaded comes to what they try. */
#include "config.h"

#include "tools/cli/device/probes.h"

#include "tools/cli/device/probe.h"

#define NO_SNAPSHOTS "The library does the same when it is loaded: there are no snapshots with this driver"
#define WOULD_HANG "A program would hang in the same way while a snapshot is copied: please report it, and until then set TRANSPCKPT_DISABLE=1"

const struct probe probes[] = {
	{"driver", probe_driver_run, 1, false, BAD, "See whether nvidia-smi answers, and whether the machine has to be restarted"},
	{"calls", probe_calls_run, 1, false, BAD, "The driver's library cannot be looked at"},
	{"doors", probe_doors_run, 1, false, BAD, "The library cannot come between a program and the driver"},
	{"address range", probe_address_run, 3, true, BAD, NO_SNAPSHOTS},
	{"mapped memory", probe_mapped_run, 1, true, BAD, NO_SNAPSHOTS},
	{"pinned images", probe_image_run, 1, true, BAD, NO_SNAPSHOTS},
	{"names of kernels", probe_names_run, 1, true, BAD, NO_SNAPSHOTS},
	{"digest kernel", probe_digest_run, 1, true, BAD, NO_SNAPSHOTS ". TRANSPCKPT_KERNELS can name another file of the kernel"},
	{"waits for events", probe_events_run, 1, true, BAD, WOULD_HANG},
	{"first launch", probe_first_launch_run, 1, true, BAD, WOULD_HANG ", or CUDA_MODULE_LOADING=EAGER"},
	{"many launches", probe_many_launches_run, 1, true, BAD, WOULD_HANG},
	{"pageable copies", probe_pageable_run, 1, true, BAD, WOULD_HANG},
	{"memory calls", probe_memory_calls_run, 1, true, BAD, WOULD_HANG},
	{"waiting", probe_waiting_run, 1, true, BAD, WOULD_HANG},
	{"waits on memory", probe_waits_on_memory_run, 1, true, NOTE,
	 "Only programs that call cuStreamWaitValue32 themselves are affected; these should set TRANSPCKPT_DISABLE=1"},
	{0},
};
