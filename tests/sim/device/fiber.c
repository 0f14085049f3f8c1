/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers for the threads of a block, with block and warp barriers; a thread that never waits costs no switch. */
#define _GNU_SOURCE
#include "device/fiber.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/state.h"

#define STACK_BYTES (128u << 10)
#define WARP 32u
#define THREADS_MAX 1024u

enum wait_kind { WAIT_NONE, WAIT_BLOCK, WAIT_WARP };

struct fiber {
	void *sp;
	char *stack;
	enum wait_kind wait;
	uint32_t epoch;
	uint32_t thread; /* the linear index of the thread that is parked here */
	uint32_t lane;
	struct sim_uint3 index;
	struct fiber *next;
};

struct warp {
	uint32_t alive;
	uint32_t arrived;
	uint32_t wanted;
	uint32_t epoch;
	uint32_t done; /* lanes that have left the kernel */
	uint64_t slot[2][WARP];
};

/* One block runs at a time, on one thread of the device process. */
static struct {
	void (*entry)(void);
	uint32_t threads;
	uint32_t next;
	uint32_t alive;
	uint32_t arrived;
	uint32_t epoch;
	uint32_t sum[3];
	uint32_t current;
	struct sim_uint3 index; /* of the next thread to start */
	int waited;             /* somebody has called a barrier; until then nothing is counted */
	void *scheduler;
	struct fiber *running;
	struct fiber *parked, **parked_tail;
	struct fiber *idle;
	struct warp warp[THREADS_MAX / WARP];
} blk;

void sim_fiber_switch(void **save, void *load);
__asm__(".text\n"
	".globl sim_fiber_switch\n"
	".hidden sim_fiber_switch\n"
	".type sim_fiber_switch, @function\n"
	"sim_fiber_switch:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size sim_fiber_switch, .-sim_fiber_switch\n");

static void set_thread(uint32_t t)
{
	blk.current = t;
	/* Each member is read by itself: a read of two at once waits until the processor has written the one that was just counted up. */
	simgpu_state.thread.x = *(volatile uint32_t *)&blk.index.x;
	simgpu_state.thread.y = *(volatile uint32_t *)&blk.index.y;
	simgpu_state.thread.z = *(volatile uint32_t *)&blk.index.z;
	simgpu_state.lane = t % WARP;
	if (++blk.index.x == simgpu_state.block_dim.x) {
		blk.index.x = 0;
		if (++blk.index.y == simgpu_state.block_dim.y) {
			blk.index.y = 0;
			blk.index.z++;
		}
	}
}

/* At the first barrier of a block: the threads before this one have all left, the rest is to come. */
static void start_counting(void)
{
	uint32_t n = blk.threads, left = blk.current;

	blk.waited = 1;
	blk.alive = n - left;
	blk.arrived = blk.epoch = 0;
	memset(blk.sum, 0, sizeof blk.sum);
	for (uint32_t i = 0; i < (n + WARP - 1) / WARP; i++) {
		struct warp *w = &blk.warp[i];

		w->alive = n - i * WARP >= WARP ? ~0u : (1u << (n - i * WARP)) - 1;
		w->arrived = w->epoch = 0;
		w->wanted = w->alive;
		w->done = ~w->alive;
		if (left >= (i + 1) * WARP)
			w->done = ~0u;
		else if (left > i * WARP)
			w->done |= (1u << (left - i * WARP)) - 1;
	}
}

static void check_warp(struct warp *w)
{
	uint32_t want = w->wanted & ~w->done;

	if (w->arrived && (w->arrived & want) == want) {
		w->arrived = 0;
		w->epoch++;
	}
}

static void check_block(void)
{
	if (blk.arrived && blk.arrived == blk.alive) {
		blk.arrived = 0;
		blk.epoch++;
		/* The slot of the round after next is cleared while nobody can be in it. */
		blk.sum[(blk.epoch + 1) % 3] = 0;
	}
}

static void thread_left(uint32_t t)
{
	struct warp *w = &blk.warp[t / WARP];

	blk.alive--;
	w->done |= 1u << (t % WARP);
	check_warp(w);
	check_block();
}

static void fiber_main(void)
{
	for (;;) {
		while (blk.next < blk.threads) {
			uint32_t t = blk.next++;

			set_thread(t);
			blk.entry();
			if (blk.waited)
				thread_left(t);
		}
		struct fiber *self = blk.running;
		self->next = blk.idle;
		blk.idle = self;
		self->wait = WAIT_NONE;
		sim_fiber_switch(&self->sp, blk.scheduler);
	}
}

static struct fiber *fiber_new(void)
{
	struct fiber *f = blk.idle;

	if (f) {
		blk.idle = f->next;
		return f;
	}
	f = calloc(1, sizeof *f);
	if (!f)
		return NULL;
	f->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (f->stack == MAP_FAILED) {
		free(f);
		return NULL;
	}
	/* A guard page turns an overflow into a fault of the kernel. */
	mprotect(f->stack, 4096, PROT_NONE);
	uint64_t *top = (uint64_t *)(f->stack + STACK_BYTES);
	*--top = 0; /* where a call would have left its return address, so that frames are aligned */
	*--top = (uint64_t)(uintptr_t)fiber_main;
	top -= 6;
	memset(top, 0, 6 * sizeof *top);
	f->sp = top;
	return f;
}

static void resume(struct fiber *f)
{
	blk.running = f;
	sim_fiber_switch(&blk.scheduler, f->sp);
}

static int ready(const struct fiber *f)
{
	if (f->wait == WAIT_BLOCK)
		return f->epoch != blk.epoch;
	return f->epoch != blk.warp[f->thread / WARP].epoch;
}

int sim_block_run(void (*entry)(void))
{
	uint32_t n = simgpu_state.block_dim.x * simgpu_state.block_dim.y * simgpu_state.block_dim.z;

	blk.entry = entry;
	blk.threads = n;
	blk.next = 0;
	blk.waited = 0;
	blk.index = (struct sim_uint3){ 0, 0, 0 };
	blk.parked = NULL;
	blk.parked_tail = &blk.parked;
	while (blk.next < blk.threads) {
		struct fiber *f = fiber_new();

		if (!f)
			return -1;
		resume(f);
	}
	while (blk.parked) {
		struct fiber *list = blk.parked;
		int progress = 0;

		blk.parked = NULL;
		blk.parked_tail = &blk.parked;
		while (list) {
			struct fiber *f = list;

			list = f->next;
			f->next = NULL;
			if (!ready(f)) {
				*blk.parked_tail = f;
				blk.parked_tail = &f->next;
				continue;
			}
			progress = 1;
			blk.current = f->thread;
			simgpu_state.thread = f->index;
			simgpu_state.lane = f->lane;
			resume(f);
		}
		if (!progress)
			return -1;
	}
	return 0;
}

void sim_block_abandon(void)
{
	/* Stacks in the middle of a call cannot be reused; they are few, a fault ends the context. */
	blk.idle = NULL;
	blk.parked = NULL;
}

static void park(enum wait_kind kind, uint32_t epoch)
{
	struct fiber *f = blk.running;

	f->wait = kind;
	f->epoch = epoch;
	f->thread = blk.current;
	f->index = simgpu_state.thread;
	f->lane = simgpu_state.lane;
	f->next = NULL;
	*blk.parked_tail = f;
	blk.parked_tail = &f->next;
	sim_fiber_switch(&f->sp, blk.scheduler);
}

__attribute__((visibility("default"))) void simgpu_block_barrier(void)
{
	if (!blk.waited)
		start_counting();
	uint32_t epoch = blk.epoch;

	blk.arrived++;
	check_block();
	if (blk.epoch == epoch)
		park(WAIT_BLOCK, epoch);
}

__attribute__((visibility("default"))) int simgpu_block_reduce(int value, int kind)
{
	if (!blk.waited)
		start_counting();
	uint32_t epoch = blk.epoch;

	(void)kind;
	blk.sum[epoch % 3] += (uint32_t)value;
	simgpu_block_barrier();
	return (int)blk.sum[epoch % 3];
}

__attribute__((visibility("default"))) void simgpu_warp_barrier(unsigned mask)
{
	if (!blk.waited)
		start_counting();
	struct warp *w = &blk.warp[blk.current / WARP];
	uint32_t epoch = w->epoch;

	w->wanted = mask;
	w->arrived |= 1u << simgpu_state.lane;
	check_warp(w);
	if (w->epoch == epoch)
		park(WAIT_WARP, epoch);
}

/* Two slots in turn: a lane can be one barrier ahead of the slowest, never two. */
__attribute__((visibility("default"))) uint64_t simgpu_warp_exchange(unsigned mask, uint64_t value, int source)
{
	if (!blk.waited)
		start_counting();
	struct warp *w = &blk.warp[blk.current / WARP];
	uint32_t parity = w->epoch & 1;

	w->slot[parity][simgpu_state.lane] = value;
	simgpu_warp_barrier(mask);
	return w->slot[parity][(unsigned)source % WARP];
}

__attribute__((visibility("default"))) unsigned simgpu_warp_ballot(unsigned mask, int value)
{
	if (!blk.waited)
		start_counting();
	struct warp *w = &blk.warp[blk.current / WARP];
	uint32_t parity = w->epoch & 1, bits = 0;
	uint32_t lanes = mask & w->alive & ~w->done;

	w->slot[parity][simgpu_state.lane] = value != 0;
	simgpu_warp_barrier(mask);
	for (uint32_t i = 0; i < WARP; i++)
		if ((lanes >> i & 1) && w->slot[parity][i])
			bits |= 1u << i;
	return bits;
}
