/* SPDX-License-Identifier: Apache-2.0 */
/* The SIMGPU_ environment: size, clock model and faults of the device. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "driver/sim.h"

/*
 * SIMGPU_MEMORY=bytes[K|M|G]     memory of each device, 4 GiB
 * SIMGPU_DEVICES=n               how many devices there are, 1; CUDA_VISIBLE_DEVICES says which are seen, by number
 * SIMGPU_COPY_GBPS=x             each direction of host copies, in 1e9 bytes/s; as fast as it goes
 * SIMGPU_COPY_SLICE_US=x         after which a copy engine turns to another stream's copy, 2000; 0: when one is over
 * SIMGPU_LOAD_US=x               the first launch of a module's kernels loads it, which takes that long; 500
 * SIMGPU_ASK_US=x                the first question for a module's variable loads what it has of them, which takes that long; 500
 * SIMGPU_KERNEL_US=x             a kernel takes at least that long
 * SIMGPU_KERNEL_US_<part>=x      the same for kernels whose name contains part
 * SIMGPU_TOGETHER_US=x           kernels of a stream that take no longer than that in all may begin and end as one, which costs less; 0
 * SIMGPU_EXECUTE=0               kernels take their time and do nothing
 * SIMGPU_RECORD=FILE            writes there what is enqueued, and what the program says by simgpu_mark()
 * SIMGPU_HELPFUL=n[,n...]        what real drivers do that helps nobody is left out: all, or
 *   straddle       copies to or from page-locked memory of two registrations, or registered in part, are carried out
 *   loading        the first launch of a kernel, or question for a module's variables, does not wait for the device, nor other threads' calls for it
 *   queues         who waits at a full queue lets other threads' calls through
 *   pageable       so does who waits in a copy to or from ordinary memory; only the latter waits for what is there already
 *   channels       streams share no channels
 *   memory         who waits for the device to give memory back lets other threads' calls through
 * CUDA_DEVICE_MAX_CONNECTIONS=n  channels of a kind that streams share, 1 to 32; 8
 * SIMGPU_ALLOCATIONS=wait        what makes or registers memory waits for the device, and other threads' calls for that
 * SIMGPU_FRESH=n                 new memory is filled with that byte
 * SIMGPU_QUEUE=n                 a stream takes n operations before a call for it waits, 1024
 * SIMGPU_WAITS=FILE              at its end the process appends how often each thread's waits, by name, would spin and would block
 * SIMGPU_FAULT=f[,f...]          counts start at 1 and count calls of this process
 *   oom@N          the Nth allocation fails with CUDA_ERROR_OUT_OF_MEMORY
 *   oom_thread@T   allocations and registrations by threads whose names begin so fail so, all of them
 *   launch@N       the Nth launch is refused with CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
 *   sticky@N       the Nth kernel hits an illegal address: every later call fails with it
 *   lost@N         the device is gone at the Nth kernel
 *   stall@N[:ms]   the Nth kernel takes ms longer; without ms it never ends
 *   drop@N         the Nth kernel does nothing, and nobody is told
 *   nccl_stall@N[:ms][/R]  the Nth kernel of NCCL, of rank R of the job or of each, begins ms later; without ms never
 *   nccl_error@N[/R]       an error of the network at the Nth such kernel: it never ends, ncclCommGetAsyncError() says so
 *   no_memops      memory operations on streams are refused, and the device says that it has none
 *   dead_memops    a wait for a value in mapped memory (cuMemMap) never ends
 *   pageable_access  the device says that kernels can use ordinary memory
 *   no_param_info  the driver does not tell the parameters of functions
 *   refuse_hint    a reservation at a fixed address fails
 *   move_hint      a reservation at a fixed address is made elsewhere
 */
struct sim_settings sim_settings;
static atomic_uint_fast64_t allocs, launches, nccl_stalls, nccl_errors;
extern char **environ;

static uint64_t size_of(const char *s)
{
	char *end;
	double v = strtod(s, &end);

	switch (*end) {
	case 'k': case 'K': return (uint64_t)(v * 1024);
	case 'm': case 'M': return (uint64_t)(v * 1048576);
	case 'g': case 'G': return (uint64_t)(v * 1073741824);
	default: return (uint64_t)v;
	}
}

static void read_fault(char *f)
{
	char *at = strchr(f, '@'), *colon = at ? strchr(at, ':') : NULL, *slash = at ? strchr(at, '/') : NULL;
	int rank = slash ? atoi(slash + 1) : -1;
	uint64_t n = at ? strtoull(at + 1, NULL, 10) : 0;

	if (at)
		*at = 0;
	if (!strcmp(f, "oom"))
		sim_settings.oom_at = n;
	else if (!strcmp(f, "oom_thread"))
		snprintf(sim_settings.oom_thread, sizeof sim_settings.oom_thread, "%s", at ? at + 1 : "");
	else if (!strcmp(f, "launch"))
		sim_settings.launch_at = n;
	else if (!strcmp(f, "sticky"))
		sim_settings.sticky_at = n;
	else if (!strcmp(f, "lost"))
		sim_settings.lost_at = n;
	else if (!strcmp(f, "drop"))
		sim_settings.drop_at = n;
	else if (!strcmp(f, "stall")) {
		sim_settings.stall_at = n;
		sim_settings.stall_ns = colon ? strtoull(colon + 1, NULL, 10) * 1000000ull : UINT64_MAX;
	} else if (!strcmp(f, "nccl_stall")) {
		sim_settings.nccl_stall_at = n;
		sim_settings.nccl_stall_ns = colon ? strtoull(colon + 1, NULL, 10) * 1000000ull : UINT64_MAX;
		sim_settings.nccl_stall_rank = rank;
	} else if (!strcmp(f, "nccl_error")) {
		sim_settings.nccl_error_at = n;
		sim_settings.nccl_error_rank = rank;
	} else if (!strcmp(f, "no_memops"))
		sim_settings.no_memops = true;
	else if (!strcmp(f, "dead_memops"))
		sim_settings.dead_memops = true;
	else if (!strcmp(f, "pageable_access"))
		sim_settings.pageable_access = true;
	else if (!strcmp(f, "no_param_info"))
		sim_settings.no_param_info = true;
	else if (!strcmp(f, "refuse_hint"))
		sim_settings.refuse_hint = true;
	else if (!strcmp(f, "move_hint"))
		sim_settings.move_hint = true;
	else
		fprintf(stderr, "simgpu: unknown fault '%s' in SIMGPU_FAULT\n", f);
}

static void read_helpful(char *name)
{
	bool all = !strcmp(name, "all"), known = all;

	if (all || !strcmp(name, "straddle"))
		known = sim_settings.helpful_straddle = true;
	if (all || !strcmp(name, "loading"))
		known = sim_settings.helpful_loading = true;
	if (all || !strcmp(name, "queues"))
		known = sim_settings.helpful_queues = true;
	if (all || !strcmp(name, "pageable"))
		known = sim_settings.helpful_pageable = true;
	if (all || !strcmp(name, "channels"))
		known = sim_settings.helpful_channels = true;
	if (all || !strcmp(name, "memory"))
		known = sim_settings.helpful_memory = true;
	if (all || !strcmp(name, "hints"))
		known = sim_settings.helpful_hints = true;
	if (!known)
		fprintf(stderr, "simgpu: unknown behaviour '%s' in SIMGPU_HELPFUL\n", name);
}

/* As documented: what comes behind a number that is none of a device is not looked at. */
static void read_devices(struct sim_settings *s)
{
	const char *v = getenv("SIMGPU_DEVICES"), *visible = getenv("CUDA_VISIBLE_DEVICES");
	int n = v ? atoi(v) : 1;

	n = n < 1 ? 1 : n > SIM_DEVICES ? SIM_DEVICES : n;
	for (int i = 0; i < n && !visible; i++)
		s->physical[s->devices++] = i;
	while (visible && *visible && s->devices < n) {
		char *end;
		long i = strtol(visible, &end, 10);

		if (end == visible || i < 0 || i >= n)
			break;
		for (int k = 0; k < s->devices; k++)
			if (s->physical[k] == i) {
				s->devices = 0;
				return;
			}
		s->physical[s->devices++] = (int)i;
		visible = *end == ',' ? end + 1 : "";
	}
}

static void read_list(const char *name, void (*read)(char *one))
{
	const char *v = getenv(name);
	char *copy = v ? strdup(v) : NULL, *save = NULL;

	for (char *one = copy ? strtok_r(copy, ", ", &save) : NULL; one; one = strtok_r(NULL, ", ", &save))
		read(one);
	free(copy);
}

void sim_settings_read(void)
{
	struct sim_settings *s = &sim_settings;
	const char *v = getenv("SIMGPU_MEMORY");

	read_devices(s);

	s->memory = v ? size_of(v) : 4ull << 30;
	s->memory = (s->memory + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
	v = getenv("CUDA_MODULE_LOADING");
	s->eager = v && !strcmp(v, "EAGER");
	v = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	s->connections = v && atoi(v) > 0 ? (unsigned)atoi(v) : 8;
	s->connections = s->connections > SIM_CHANNELS ? SIM_CHANNELS : s->connections;
	v = getenv("SIMGPU_ALLOCATIONS");
	s->waiting_allocations = v && !strcmp(v, "wait");
	v = getenv("SIMGPU_FRESH");
	s->fresh = v ? atoi(v) & 255 : -1;
	v = getenv("SIMGPU_QUEUE");
	s->queue = v && atoi(v) > 0 ? atoi(v) : 1024;
	v = getenv("SIMGPU_COPY_GBPS");
	s->copy_bytes_per_ns = v ? strtod(v, NULL) : 0;
	v = getenv("SIMGPU_COPY_SLICE_US");
	s->slice_ns = (uint64_t)((v ? strtod(v, NULL) : 2000) * 1000);
	v = getenv("SIMGPU_WAITS");
	s->waits = v ? strdup(v) : NULL;
	v = getenv("SIMGPU_LOAD_US");
	s->load_ns = (uint64_t)((v ? strtod(v, NULL) : 500) * 1000);
	v = getenv("SIMGPU_ASK_US");
	s->ask_ns = (uint64_t)((v ? strtod(v, NULL) : 500) * 1000);
	v = getenv("SIMGPU_KERNEL_US");
	s->kernel_ns = v ? (uint64_t)(strtod(v, NULL) * 1000) : 0;
	v = getenv("SIMGPU_TOGETHER_US");
	s->together_ns = v ? (uint64_t)(strtod(v, NULL) * 1000) : 0;
	v = getenv("SIMGPU_EXECUTE");
	s->execute = !v || strcmp(v, "0");
	for (char **e = environ; *e && s->n_overrides < 16; e++) {
		static const char prefix[] = "SIMGPU_KERNEL_US_";
		const char *eq = strchr(*e, '=');

		if (!eq || strncmp(*e, prefix, sizeof prefix - 1))
			continue;
		struct sim_override *o = &s->kernel_override[s->n_overrides++];
		snprintf(o->part, sizeof o->part, "%.*s", (int)(eq - *e - (long)sizeof prefix + 1), *e + sizeof prefix - 1);
		o->ns = (uint64_t)(strtod(eq + 1, NULL) * 1000);
	}
	sim_record_start(getenv("SIMGPU_RECORD"));
	read_list("SIMGPU_HELPFUL", read_helpful);
	read_list("SIMGPU_FAULT", read_fault);
}

bool sim_fault_thread(void)
{
	char name[16] = "";

	return sim_settings.oom_thread[0] && !prctl(PR_GET_NAME, name) && !strncmp(name, sim_settings.oom_thread, strlen(sim_settings.oom_thread));
}

bool sim_fault_alloc(void)
{
	return atomic_fetch_add(&allocs, 1) + 1 == sim_settings.oom_at || sim_fault_thread();
}

enum sim_fault sim_fault_launch(void)
{
	uint64_t n = atomic_fetch_add(&launches, 1) + 1;

	if (n == sim_settings.sticky_at)
		return SIM_FAULT_STICKY;
	if (n == sim_settings.lost_at)
		return SIM_FAULT_LOST;
	if (n == sim_settings.drop_at)
		return SIM_FAULT_DROP;
	return n == sim_settings.stall_at ? SIM_FAULT_STALL : SIM_FAULT_NONE;
}

enum sim_fault sim_fault_exchange(int rank)
{
	const struct sim_settings *s = &sim_settings;

	/* A process may have several ranks: those that are not meant do not count. */
	if (s->nccl_error_at && (s->nccl_error_rank < 0 || s->nccl_error_rank == rank) &&
	    atomic_fetch_add(&nccl_errors, 1) + 1 == s->nccl_error_at)
		return SIM_FAULT_ERROR;
	if (s->nccl_stall_at && (s->nccl_stall_rank < 0 || s->nccl_stall_rank == rank) &&
	    atomic_fetch_add(&nccl_stalls, 1) + 1 == s->nccl_stall_at)
		return SIM_FAULT_STALL;
	return SIM_FAULT_NONE;
}

uint64_t sim_kernel_ns(const char *name)
{
	for (int i = 0; i < sim_settings.n_overrides; i++)
		if (strstr(name, sim_settings.kernel_override[i].part))
			return sim_settings.kernel_override[i].ns;
	return sim_settings.kernel_ns;
}

static struct {
	char name[16];
	uint64_t spins, blocks;
} waits[64];

void sim_note_wait(bool blocks)
{
	char name[16] = "";
	size_t i = 0;

	if (!sim_settings.waits || prctl(PR_GET_NAME, name))
		return;
	while (i < sizeof waits / sizeof *waits - 1 && waits[i].name[0] && strcmp(waits[i].name, name))
		i++;
	memcpy(waits[i].name, name, sizeof name);
	if (blocks)
		waits[i].blocks++;
	else
		waits[i].spins++;
}

void sim_settings_end(void)
{
	FILE *f = sim_settings.waits ? fopen(sim_settings.waits, "ae") : NULL;

	for (size_t i = 0; f && i < sizeof waits / sizeof *waits && waits[i].name[0]; i++)
		fprintf(f, "%s spins %llu blocks %llu\n", waits[i].name, (unsigned long long)waits[i].spins, (unsigned long long)waits[i].blocks);
	if (f)
		fclose(f);
}

/* glibc's clock_gettime is what the trainers' own hooks may sit on; the driver of a real device has its own clock. */
uint64_t sim_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}
