/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the blocks of a PTX kernel one after the other, their warps in turns between barriers. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/ptx.h"
#include "device/state.h"

#define WARPS_MAX 32
#define BARRIERS 16
#define NOWHERE UINT32_MAX

/* A lane that is neither ready nor at a barrier waits for other lanes of its warp. */
struct warp {
	struct ptx_warp seen; /* by instructions */
	uint32_t alive, ready, at_barrier;
	uint32_t pc[PTX_LANES]; /* of lanes that do not run now */
	uint8_t barrier[PTX_LANES];
};

/* One block runs at a time, on one thread of the device process. */
static struct {
	struct warp warp[WARPS_MAX];
	uint32_t n_warps, threads;
	uint32_t arrived[BARRIERS], wanted[BARRIERS]; /* `wanted` 0: every thread that is still there */
	char *frames, *shared, *local;
	size_t frames_room, shared_room, local_room;
} blk;

_Noreturn void ptx_fault(void)
{
	raise(SIGSEGV);
	abort();
}

__attribute__((visibility("default"))) void simgpu_trap(const char *what);

void ptx_trap(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	(void)w, (void)i, (void)mask;
	simgpu_trap("trap");
}

/* Operands: where a lane's arguments lie: message, file, line, function. */
void ptx_assert_failed(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	int l = __builtin_ctz(mask);
	const char *text[4];

	for (int k = 0; k < 4; k++)
		memcpy(&text[k], (const void *)(uintptr_t)PTX_AT(k, uint64_t)[l], k == 2 ? 4 : 8);
	fprintf(stderr, "%s:%u: %s: Assertion `%s` failed.\n", text[1], (unsigned)(uintptr_t)text[2], text[3], text[0]);
	simgpu_trap("assert");
}

/* ---- modules ---- */
static void tell(struct ptx_code *c)
{
	if (!c->told)
		fprintf(stderr, "simgpu: kernel %s has an instruction that is not known here: %s\n", c->kernel->name, c->unknown);
	c->told = true;
}

int ptx_module_new(const char *text, size_t bytes, struct ptx_module **out)
{
	struct ptx_module *m = calloc(1, sizeof *m);
	const char *list = getenv("SIMGPU_UNKNOWN");
	uint64_t used = 0;

	if (!m)
		return -ENOMEM;
	if (sim_ptx_read(&m->text, text, bytes)) {
		sim_ptx_text_free(&m->text);
		free(m);
		return -ENOEXEC;
	}
	for (uint32_t k = 0; k < m->text.n_variables; k++) {
		struct sim_ptx_symbol *s = &m->text.variable[k];

		if (s->space != SIM_PTX_SHARED)
			continue;
		used = (used + s->align - 1) / s->align * s->align;
		s->offset = used;
		used += s->bytes;
	}
	m->address = calloc(m->text.n_variables + 1, sizeof *m->address);
	m->code = calloc(m->text.n_kernels + 1, sizeof *m->code);
	if (!m->address || !m->code)
		abort();
	for (uint32_t k = 0; k < m->text.n_kernels; k++)
		if (ptx_decode(m, &m->code[k], &m->text.kernel[k]) && list && !strcmp(list, "list"))
			tell(&m->code[k]);
	*out = m;
	return 0;
}

static int variable(const struct ptx_module *m, const char *name, size_t n)
{
	for (uint32_t k = 0; k < m->text.n_variables; k++)
		if (strlen(m->text.variable[k].name) == n && !memcmp(m->text.variable[k].name, name, n))
			return (int)k;
	return -1;
}

int ptx_module_bind(struct ptx_module *m, const char *name, uint64_t address)
{
	int k = variable(m, name, strlen(name));

	if (k < 0)
		return -ENOENT;
	m->address[k] = address;
	return 0;
}

/* One number of an initialiser, or an address: "name", "generic(name)+8". */
static uint64_t initial(const struct ptx_module *m, const char **from)
{
	const char *at = *from;
	uint64_t v = 0;
	char *end;

	if (*at == '0' && (at[1] == 'f' || at[1] == 'F' || at[1] == 'd' || at[1] == 'D')) {
		v = strtoull(at + 2, &end, 16);
	} else if (*at == '-' || (*at >= '0' && *at <= '9')) {
		v = (uint64_t)strtoll(at, &end, 0);
		if (*at != '-')
			v = strtoull(at, &end, 0);
	} else {
		size_t n = sim_ptx_word(at);

		if (n == 7 && !memcmp(at, "generic", 7)) {
			at = sim_ptx_skip(at + n + 1);
			n = sim_ptx_word(at);
		}
		int k = n ? variable(m, at, n) : -1;
		v = k >= 0 ? m->address[k] : 0;
		at = sim_ptx_skip(at + (n ? n : 1));
		if (*at == ')')
			at = sim_ptx_skip(at + 1);
		end = (char *)(uintptr_t)at;
		if (*at == '+')
			v += strtoull(at + 1, &end, 0);
	}
	*from = end + strspn(end, "UuLl");
	return v;
}

/* Flat, as the vendor's compilers write it: what is left out is zero. */
int ptx_module_fill(struct ptx_module *m, const char *name, uint64_t address, size_t bytes)
{
	int k = variable(m, name, strlen(name));
	char *to = (char *)(uintptr_t)address;

	if (k < 0)
		return -ENOENT;
	const struct sim_ptx_symbol *s = &m->text.variable[k];
	memset(to, 0, bytes);
	if (!s->init)
		return 0;
	const char *at = s->init;
	int depth = 0;
	for (size_t used = 0; *at;) {
		at = sim_ptx_skip(at);
		depth += *at == '{';
		depth -= *at == '}';
		if (*at == '{' || *at == '}' || *at == ',') {
			at++;
			if (depth <= 0)
				break;
			continue;
		}
		uint64_t v = initial(m, &at);
		if (used + s->element > bytes)
			return -EINVAL;
		memcpy(to + used, &v, s->element < 8 ? s->element : 8);
		used += s->element;
		if (!depth)
			break;
	}
	return 0;
}

/* ---- a block ---- */
static bool reserve(char **at, size_t *room, size_t bytes)
{
	if (bytes <= *room)
		return true;
	free(*at);
	*at = aligned_alloc(256, (bytes + 255) / 256 * 256);
	*room = *at ? bytes : 0;
	return *at;
}

static uint64_t special(const struct ptx_code *c, const struct sim_launch_request *q, uint64_t which, uint32_t thread, const uint32_t block[3])
{
	uint32_t lane = thread % PTX_LANES;

	switch ((enum ptx_special)which) {
	case PTX_TID_X: return thread % q->block[0];
	case PTX_TID_Y: return thread / q->block[0] % q->block[1];
	case PTX_TID_Z: return thread / q->block[0] / q->block[1];
	case PTX_NTID_X: case PTX_NTID_Y: case PTX_NTID_Z: return q->block[which - PTX_NTID_X];
	case PTX_CTAID_X: case PTX_CTAID_Y: case PTX_CTAID_Z: return block[which - PTX_CTAID_X];
	case PTX_NCTAID_X: case PTX_NCTAID_Y: case PTX_NCTAID_Z: return q->grid[which - PTX_NCTAID_X];
	case PTX_LANEID: return lane;
	case PTX_WARPID: return thread / PTX_LANES;
	case PTX_NWARPID: return blk.n_warps;
	case PTX_NSMID: return 1;
	case PTX_LANEMASK_EQ: return 1u << lane;
	case PTX_LANEMASK_LE: return (2u << lane) - 1;
	case PTX_LANEMASK_LT: return (1u << lane) - 1;
	case PTX_LANEMASK_GE: return (uint32_t)-(1u << lane);
	case PTX_LANEMASK_GT: return (uint32_t)-(2u << lane);
	case PTX_DYNAMIC_SMEM: return q->shared_bytes;
	case PTX_TOTAL_SMEM: return c->shared_bytes + q->shared_bytes;
	case PTX_DYNAMIC_SHARED: return (c->shared_bytes + 127u) / 128 * 128;
	default: return 0;
	}
}

/* What instructions find in the frame of one warp; of a later block only what differs. */
static void give(const struct ptx_module *m, const struct ptx_code *c, const struct sim_launch_request *q, const char *params, uint32_t number,
		 const uint32_t block[3], bool first)
{
	char *frame = blk.warp[number].seen.frame;

	for (uint32_t k = 0; k < c->n_given; k++) {
		const struct ptx_given *g = &c->given[k];
		bool of_block = g->kind == PTX_GIVEN_SPECIAL && g->value >= PTX_CTAID_X && g->value <= PTX_CTAID_Z;

		if (!first && !of_block)
			continue;
		for (uint32_t l = 0; l < PTX_LANES; l++) {
			uint32_t thread = number * PTX_LANES + l;
			uint64_t v = g->kind == PTX_GIVEN_VARIABLE ? m->address[g->value] :
				     g->kind == PTX_GIVEN_LOCAL	   ? (uint64_t)(uintptr_t)blk.local + (uint64_t)thread * c->local_bytes + g->value :
				     g->kind == PTX_GIVEN_PARAM	   ? (uint64_t)(uintptr_t)params + g->value :
				     g->kind == PTX_GIVEN_SPECIAL  ? special(c, q, g->value, thread, block) :
								     g->value;

			if (g->wide)
				((uint64_t *)(void *)(frame + g->at))[l] = v;
			else
				((uint32_t *)(void *)(frame + g->at))[l] = (uint32_t)v;
		}
	}
}

static void start_block(void)
{
	memset(blk.arrived, 0, sizeof blk.arrived);
	memset(blk.wanted, 0, sizeof blk.wanted);
	for (uint32_t k = 0; k < blk.n_warps; k++) {
		struct warp *w = &blk.warp[k];
		uint32_t left = blk.threads - k * PTX_LANES;

		w->alive = w->ready = left >= PTX_LANES ? ~0u : (1u << left) - 1;
		w->at_barrier = 0;
		memset(w->pc, 0, sizeof w->pc);
	}
}

/* The lanes to go on with: those that stand first in the text, so that ways that parted meet again as soon as they can. */
static uint32_t choose(struct warp *w, uint32_t *pc, uint32_t *join)
{
	uint32_t waiting = w->alive & ~w->ready & ~w->at_barrier, from = w->ready ? w->ready : waiting, mask = 0;

	*pc = *join = NOWHERE;
	for (uint32_t rest = from; rest; rest &= rest - 1)
		if (w->pc[__builtin_ctz(rest)] < *pc)
			*pc = w->pc[__builtin_ctz(rest)];
	for (uint32_t rest = w->ready | waiting; rest; rest &= rest - 1) {
		int l = __builtin_ctz(rest);

		if (w->pc[l] == *pc)
			mask |= 1u << l;
		else if (w->ready >> l & 1 && w->pc[l] < *join)
			*join = w->pc[l];
	}
	w->ready |= mask;
	return mask;
}

static void leave_at(struct warp *w, uint32_t mask, uint32_t pc)
{
	for (; mask; mask &= mask - 1)
		w->pc[__builtin_ctz(mask)] = pc;
}

/* Whether the lanes that an instruction is for are all here. */
static bool together(const struct warp *w, const struct ptx_insn *i, uint32_t mask)
{
	uint32_t wanted = ~0u;

	if (i->mask)
		wanted = ((const uint32_t *)(const void *)(w->seen.frame + i->at[i->mask]))[__builtin_ctz(mask)];
	return !(wanted & w->alive & ~mask);
}

static void arrive(struct warp *w, const struct ptx_insn *i, uint32_t mask, uint32_t pc)
{
	blk.arrived[i->imm] += (uint32_t)__builtin_popcount(mask);
	if (i->at[0])
		blk.wanted[i->imm] = ((const uint32_t *)(const void *)(w->seen.frame + i->at[0]))[__builtin_ctz(mask)];
	if (!i->n)
		return;
	w->at_barrier |= mask;
	w->ready &= ~mask;
	for (uint32_t rest = mask; rest; rest &= rest - 1)
		w->barrier[__builtin_ctz(rest)] = (uint8_t)i->imm;
	leave_at(w, mask, pc + 1);
}

/* Until no lane can go on: all have left or wait at a barrier. False if lanes wait for others that never come. */
static bool run_warp(struct warp *w, const struct ptx_insn *code)
{
	uint32_t pc, join, mask = choose(w, &pc, &join);
	bool stuck = false;

	while (mask) {
		const struct ptx_insn *i = &code[pc];
		uint32_t active = mask;

		if (pc >= join) {
			leave_at(w, mask, pc);
			mask = choose(w, &pc, &join);
			continue;
		}
		if (i->guard) {
			uint32_t p = *(const uint32_t *)(const void *)(w->seen.frame + i->guard);

			active &= i->negate ? ~p : p;
			if (!active) {
				pc++;
				continue;
			}
		}
		switch ((enum ptx_flow)i->flow) {
		case PTX_FLOW_NEXT:
			if (i->run)
				i->run(&w->seen, i, active);
			pc++;
			continue;
		case PTX_FLOW_BRANCH:
			if (active == mask) {
				pc = i->target;
				continue;
			}
			leave_at(w, mask & ~active, pc + 1);
			leave_at(w, active, i->target);
			break;
		case PTX_FLOW_EXIT:
			w->alive &= ~active;
			w->ready &= ~active;
			leave_at(w, mask & ~active, pc + 1);
			break;
		case PTX_FLOW_BARRIER:
			leave_at(w, mask & ~active, pc + 1);
			if (!i->n)
				leave_at(w, active, pc + 1);
			arrive(w, i, active, pc);
			break;
		case PTX_FLOW_WARP:
			if (together(w, i, active)) {
				if (i->run)
					i->run(&w->seen, i, active);
				stuck = false;
				pc++;
				continue;
			}
			leave_at(w, mask & ~active, pc + 1);
			leave_at(w, active, pc);
			w->ready &= ~active;
			if (!w->ready && stuck)
				return false;
			stuck = !w->ready;
			break;
		}
		mask = choose(w, &pc, &join);
	}
	return true;
}

/* Lets those go on whose barrier is full. False if there is none. */
static bool release(void)
{
	uint32_t alive = 0;
	bool any = false;

	for (uint32_t k = 0; k < blk.n_warps; k++)
		alive += (uint32_t)__builtin_popcount(blk.warp[k].alive);
	for (uint32_t b = 0; b < BARRIERS; b++) {
		if (!blk.arrived[b] || blk.arrived[b] < (blk.wanted[b] && blk.wanted[b] < alive ? blk.wanted[b] : alive))
			continue;
		blk.arrived[b] = blk.wanted[b] = 0;
		any = true;
		for (uint32_t k = 0; k < blk.n_warps; k++) {
			struct warp *w = &blk.warp[k];

			for (uint32_t rest = w->at_barrier; rest; rest &= rest - 1)
				if (w->barrier[__builtin_ctz(rest)] == b) {
					w->at_barrier &= ~(rest & -rest);
					w->ready |= rest & -rest;
				}
		}
	}
	return any;
}

static bool run_block(const struct ptx_code *c)
{
	for (;;) {
		bool alive = false;

		for (uint32_t k = 0; k < blk.n_warps; k++) {
			if (!run_warp(&blk.warp[k], c->insn))
				return false;
			alive |= blk.warp[k].alive != 0;
		}
		if (!alive)
			return true;
		if (!release())
			return false;
	}
}

static void trace(const struct ptx_code *c, const struct sim_launch_request *q)
{
	static int tracing = -1;

	if (tracing < 0)
		tracing = getenv("SIMGPU_TRACE") ? atoi(getenv("SIMGPU_TRACE")) : 0;
	if (tracing > 0)
		fprintf(stderr, "simgpu: PTX %s grid %u,%u,%u block %u,%u,%u\n", c->kernel->name, q->grid[0], q->grid[1], q->grid[2], q->block[0],
			q->block[1], q->block[2]);
}

uint32_t ptx_module_launch(struct ptx_module *m, uint32_t kernel, const struct sim_launch_request *q, const char *params)
{
	struct ptx_code *c = &m->code[kernel];
	size_t shared = (c->shared_bytes + 127u) / 128 * 128 + q->shared_bytes;
	uint32_t at[3];

	if (c->unknown[0]) {
		tell(c);
		return SIM_LAUNCH_ILLEGAL_INSTRUCTION;
	}
	trace(c, q);
	blk.threads = q->block[0] * q->block[1] * q->block[2];
	blk.n_warps = (blk.threads + PTX_LANES - 1) / PTX_LANES;
	if (!reserve(&blk.frames, &blk.frames_room, (size_t)blk.n_warps * c->frame_bytes) || !reserve(&blk.shared, &blk.shared_room, shared + 1) ||
	    !reserve(&blk.local, &blk.local_room, (size_t)blk.n_warps * PTX_LANES * c->local_bytes + 1))
		return SIM_LAUNCH_NO_KERNEL;
	for (uint32_t k = 0; k < blk.n_warps; k++)
		blk.warp[k].seen = (struct ptx_warp){ .frame = blk.frames + (size_t)k * c->frame_bytes, .shared = blk.shared, .shared_bytes = shared };
	for (at[2] = 0; at[2] < q->grid[2]; at[2]++)
		for (at[1] = 0; at[1] < q->grid[1]; at[1]++)
			for (at[0] = 0; at[0] < q->grid[0]; at[0]++) {
				for (uint32_t k = 0; k < blk.n_warps; k++)
					give(m, c, q, params, k, at, !at[0] && !at[1] && !at[2]);
				start_block();
				if (!run_block(c))
					return SIM_LAUNCH_DEADLOCK;
			}
	return SIM_LAUNCH_OK;
}
