/* SPDX-License-Identifier: Apache-2.0 */
/* SIMGPU_RECORD: the device operations of a process in the order of the calls that enqueued them, as `transpckpt infer` reads them. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver/sim.h"

static FILE *to;
static pid_t owner;
static uint64_t calls;
static struct {
	pid_t tid[64];
	int n;
} threads;

void sim_record_start(const char *path)
{
	to = path && *path ? fopen(path, "w") : NULL;
	owner = getpid();
	if (path && *path && !to)
		fprintf(stderr, "simgpu: cannot write SIMGPU_RECORD=%s\n", path);
	/* Into a pipe lines go at once, between those that others write there. */
	if (to && fseek(to, 0, SEEK_CUR))
		setvbuf(to, NULL, _IOLBF, 0);
	if (to)
		fputs("# columns: kind name grid block smem stream tid bytes dir host_us api device (host_us counts calls)\n", to);
}

static int thread_ordinal(void)
{
	pid_t tid = (pid_t)syscall(SYS_gettid);
	int i = 0;

	while (i < threads.n && threads.tid[i] != tid)
		i++;
	if (i == threads.n && threads.n < 64)
		threads.tid[threads.n++] = tid;
	return i;
}

static const char *direction(const struct sim_rect *r)
{
	return r->dst_kind != SIM_DEVICE ? "DtoH" : r->src_kind != SIM_DEVICE ? "HtoD" : "DtoD";
}

static void write_line(const struct sim_work *w, uint64_t stream, const char *api)
{
	const struct sim_launch *l = &w->u.launch;
	const struct sim_rect *r = &w->u.copy.rect;

	switch (w->kind) {
	case SIM_WORK_KERNEL:
		fprintf(to, "kernel\t%s\t%u,%u,%u\t%u,%u,%u\t%u\t%" PRIu64 "\t%d\t0\t-\t%" PRIu64 "\t%s\t0\n", l->kernel->name, l->grid[0],
			l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], l->shared, stream, thread_ordinal(), calls,
			api ? api : "cuLaunchKernel");
		break;
	case SIM_WORK_COPY:
		fprintf(to, "memcpy\tcopy\t-\t-\t-\t%" PRIu64 "\t%d\t%" PRIu64 "\t%s\t%" PRIu64 "\t%s\t0\n", stream, thread_ordinal(),
			r->width * r->height * r->depth, direction(r), calls, api ? api : "cuMemcpyAsync");
		break;
	case SIM_WORK_MEMSET:
		fprintf(to, "memset\tset\t-\t-\t-\t%" PRIu64 "\t%d\t%" PRIu64 "\t-\t%" PRIu64 "\t%s\t0\n", stream, thread_ordinal(),
			w->u.set.width * w->u.set.height * w->u.set.element, calls, api ? api : "cuMemsetAsync");
		break;
	case SIM_WORK_CHILD:
		for (int i = 0; i < w->u.child->n_node; i++)
			write_line(&w->u.child->node[i]->work, stream, api);
		break;
	default:
		break;
	}
}

void sim_record(const struct sim_work *w, uint64_t stream)
{
	if (!to || getpid() != owner)
		return;
	write_line(w, stream, NULL);
	calls++;
}

void sim_record_graph(const struct sim_graph *g, uint64_t stream)
{
	if (!to || getpid() != owner)
		return;
	for (int i = 0; i < g->n_node; i++)
		write_line(&g->node[i]->work, stream, "cuGraphLaunch");
	calls++;
}

/* What the program says of itself, as a comment between its operations. Not of CUDA: found by dlsym(). */
SIM_API void simgpu_mark(const char *text)
{
	pthread_mutex_lock(&sim_lock);
	if (to && getpid() == owner)
		fprintf(to, "# %s\n", text);
	pthread_mutex_unlock(&sim_lock);
}
