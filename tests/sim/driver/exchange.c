/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that exchange data with other ranks: rings in shared memory, one for each direction of each pair, never waited for here. */
#include "exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/sim.h"

/* A range that is sent to one rank, or received from one. */
struct lane {
	struct sim_exchange_ring *ring;
	uint64_t address, bytes, done;
};

struct sim_exchange {
	struct sim_exchange_args args;
	struct sim_exchange_port *port;
	struct lane *send, *recv;
	int n_send, n_recv;
	uint32_t tag;
	bool reduces;
	uint64_t local, out, bytes, done; /* of the reduction: this rank's part of it, and where it goes */
	uint64_t scalar;
	struct lane lane[];
};

static struct sim_exchange_ring *ring(const struct sim_exchange_port *p, int from, int to)
{
	return &p->shared->ring[from * p->ranks + to];
}

static void add_send(struct sim_exchange *x, int to, uint64_t address, uint64_t bytes)
{
	x->send[x->n_send++] = (struct lane){ .ring = ring(x->port, x->port->rank, to), .address = address, .bytes = bytes };
}

static void add_recv(struct sim_exchange *x, int from, uint64_t address, uint64_t bytes)
{
	x->recv[x->n_recv++] = (struct lane){ .ring = ring(x->port, from, x->port->rank), .address = address, .bytes = bytes };
}

static void reduce_here(struct sim_exchange *x, uint64_t local, uint64_t bytes)
{
	x->reduces = true;
	x->local = local;
	x->out = x->args.recv;
	x->bytes = bytes;
}

/* Every collective is ranges to send, ranges to receive, and at most one reduction of what all ranks send. */
static void plan(struct sim_exchange *x)
{
	const struct sim_exchange_args *a = &x->args;
	int me = x->port->rank, ranks = x->port->ranks;
	uint64_t bytes = a->count * sim_exchange_type_bytes(a->type);

	switch (a->kind) {
	case SIM_EXCHANGE_ALL_REDUCE:
		for (int r = 0; r < ranks; r++)
			if (r != me)
				add_send(x, r, a->send, bytes);
		reduce_here(x, a->send, bytes);
		break;
	case SIM_EXCHANGE_REDUCE:
		if (me == a->root)
			reduce_here(x, a->send, bytes);
		else
			add_send(x, a->root, a->send, bytes);
		break;
	case SIM_EXCHANGE_REDUCE_SCATTER:
		for (int r = 0; r < ranks; r++)
			if (r != me)
				add_send(x, r, a->send + (uint64_t)r * bytes, bytes);
		reduce_here(x, a->send + (uint64_t)me * bytes, bytes);
		break;
	case SIM_EXCHANGE_BROADCAST:
		for (int r = 0; me == a->root && r < ranks; r++)
			if (r != me || a->send != a->recv)
				add_send(x, r, a->send, bytes);
		if (me != a->root || a->send != a->recv)
			add_recv(x, a->root, a->recv, bytes);
		break;
	case SIM_EXCHANGE_ALL_GATHER:
		for (int r = 0; r < ranks; r++) {
			uint64_t to = a->recv + (uint64_t)r * bytes;

			if (r == me && to == a->send)
				continue;
			add_send(x, r, a->send, bytes);
			add_recv(x, r, to, bytes);
		}
		break;
	default:
		for (uint32_t i = 0; i < a->n; i++)
			(a->transfer[i].receive ? add_recv : add_send)(x, a->transfer[i].peer, a->transfer[i].address,
								       a->transfer[i].bytes);
		break;
	}
}

/* Kernels reach device memory and page-locked memory; anything else is a wild address. */
static bool reachable(uint64_t va, uint64_t bytes)
{
	return !bytes || sim_is_device_va(va) || sim_is_pinned((void *)(uintptr_t)va, bytes);
}

static bool all_reachable(const struct sim_exchange *x)
{
	for (int i = 0; i < x->n_send; i++)
		if (!reachable(x->send[i].address, x->send[i].bytes))
			return false;
	for (int i = 0; i < x->n_recv; i++)
		if (!reachable(x->recv[i].address, x->recv[i].bytes))
			return false;
	return !x->reduces || (reachable(x->local, x->bytes) && reachable(x->out, x->bytes));
}

static bool set_scalar(struct sim_exchange *x)
{
	const struct sim_exchange_args *a = &x->args;

	x->scalar = a->scalar;
	if (a->op == SIM_EXCHANGE_AVG)
		x->scalar = sim_reduce_share(a->type, (uint32_t)x->port->ranks);
	if (a->op != SIM_EXCHANGE_PREMUL || !a->scalar_in_memory)
		return true;
	x->scalar = 0;
	return reachable(a->scalar, 8) && sim_device_read(&x->scalar, a->scalar, sim_exchange_type_bytes(a->type));
}

struct sim_exchange *sim_exchange_begin(const struct sim_launch *l, CUresult *r)
{
	const struct sim_exchange_args *a = (const void *)l->params;
	struct sim_exchange_device_comm comm;

	*r = CUDA_ERROR_ILLEGAL_ADDRESS;
	if (l->param_bytes != sizeof *a || !sim_is_device_va(a->comm) || !sim_device_read(&comm, a->comm, sizeof comm) ||
	    comm.magic != SIM_EXCHANGE_MAGIC)
		return NULL;
	struct sim_exchange_port *port = (struct sim_exchange_port *)(uintptr_t)comm.port;
	size_t lanes = 2 * ((size_t)port->ranks + a->n);
	struct sim_exchange *x = calloc(1, sizeof *x + lanes * sizeof *x->lane);
	if (!x)
		abort();
	memcpy(&x->args, a, sizeof x->args);
	x->port = port;
	x->send = x->lane;
	x->recv = x->lane + lanes / 2;
	x->tag = a->kind == SIM_EXCHANGE_SEND_RECV ? a->kind : a->kind | a->type << 8 | a->op << 16 | (uint32_t)a->root << 24;
	atomic_fetch_add(&port->running, 1);
	*r = CUDA_SUCCESS;
	if (atomic_load(&port->stop))
		return x;
	plan(x);
	if (!all_reachable(x) || !set_scalar(x))
		*r = CUDA_ERROR_ILLEGAL_ADDRESS;
	return x;
}

const void *sim_exchange_port(const struct sim_exchange *x)
{
	return x ? x->port : NULL;
}

int sim_exchange_job_rank(const struct sim_exchange *x)
{
	return x->port->job_rank;
}

void sim_exchange_fail(struct sim_exchange *x)
{
	atomic_store(&x->port->failed, 1);
}

bool sim_exchange_stopped(const struct sim_exchange *x)
{
	return atomic_load(&x->port->stop);
}

void sim_exchange_end(struct sim_exchange *x)
{
	if (x)
		atomic_fetch_sub(&x->port->running, 1);
	free(x);
}

/* The ring's next slot to empty, if it holds what is expected; what does not stays for ever, as a hung kernel does. */
static char *arrived(struct sim_exchange *x, struct sim_exchange_ring *g, uint64_t bytes)
{
	uint32_t at = atomic_load(&g->emptied);

	if (atomic_load(&g->filled) == at)
		return NULL;
	at %= SIM_SLOTS;
	if (g->slot[at].bytes == bytes && g->slot[at].tag == x->tag)
		return g->data[at];
	if (!atomic_exchange(&x->port->mismatched, 1))
		fprintf(stderr, "simgpu: rank %d of %d expects %llu bytes of exchange %x and gets %u of %x\n", x->port->rank,
			x->port->ranks, (unsigned long long)bytes, x->tag, g->slot[at].bytes, g->slot[at].tag);
	return NULL;
}

static uint64_t piece(uint64_t bytes, uint64_t done)
{
	return bytes - done < SIM_SLOT_BYTES ? bytes - done : SIM_SLOT_BYTES;
}

/* Transfers between the same two ranks keep their order. */
static bool has_turn(const struct lane *first, const struct lane *l)
{
	for (; first < l; first++)
		if (first->ring == l->ring && first->done < first->bytes)
			return false;
	return true;
}

static CUresult send_step(struct sim_exchange *x, struct lane *l, bool *moved)
{
	while (l->done < l->bytes) {
		uint32_t at = atomic_load(&l->ring->filled), s = at % SIM_SLOTS;
		uint64_t n = piece(l->bytes, l->done);

		if (at - atomic_load(&l->ring->emptied) == SIM_SLOTS)
			break;
		if (!sim_device_read(l->ring->data[s], l->address + l->done, n))
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		l->ring->slot[s].bytes = (uint32_t)n;
		l->ring->slot[s].tag = x->tag;
		atomic_store(&l->ring->filled, at + 1);
		l->done += n;
		*moved = true;
	}
	return CUDA_SUCCESS;
}

static CUresult recv_step(struct sim_exchange *x, struct lane *l, bool *moved)
{
	while (l->done < l->bytes) {
		uint64_t n = piece(l->bytes, l->done);
		const char *data = arrived(x, l->ring, n);

		if (!data)
			break;
		if (!sim_device_write(l->address + l->done, data, n))
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		atomic_fetch_add(&l->ring->emptied, 1);
		l->done += n;
		*moved = true;
	}
	return CUDA_SUCCESS;
}

/* In order of rank, so that all get the same bits. The result may lie on the input: a piece of that goes out first. */
static CUresult reduce_step(struct sim_exchange *x, bool *moved)
{
	static char acc[SIM_SLOT_BYTES], own[SIM_SLOT_BYTES];
	int me = x->port->rank, ranks = x->port->ranks;
	uint32_t type = x->args.type, op = x->args.op;

	while (x->done < x->bytes) {
		uint64_t n = piece(x->bytes, x->done);

		for (int i = 0; i < x->n_send; i++)
			if (x->args.kind == SIM_EXCHANGE_ALL_REDUCE && x->send[i].done < x->done + n)
				return CUDA_SUCCESS;
		for (int r = 0; r < ranks; r++)
			if (r != me && !arrived(x, ring(x->port, r, me), n))
				return CUDA_SUCCESS;
		if (!sim_device_read(own, x->local + x->done, n))
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		for (int r = 0; r < ranks; r++) {
			struct sim_exchange_ring *g = ring(x->port, r, me);
			const char *from = r == me ? own : g->data[atomic_load(&g->emptied) % SIM_SLOTS];

			(r ? sim_reduce_next : sim_reduce_first)(acc, from, n, type, op, x->scalar);
			if (r != me)
				atomic_fetch_add(&g->emptied, 1);
		}
		sim_reduce_last(acc, n, type, op, (uint32_t)ranks);
		if (!sim_device_write(x->out + x->done, acc, n))
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		x->done += n;
		*moved = true;
	}
	return CUDA_SUCCESS;
}

bool sim_exchange_step(struct sim_exchange *x, bool *moved, CUresult *r)
{
	bool over = !x->reduces || x->done == x->bytes;

	if (atomic_load(&x->port->stop))
		return true;
	for (int i = 0; i < x->n_send && *r == CUDA_SUCCESS; i++)
		if (has_turn(x->send, &x->send[i]))
			*r = send_step(x, &x->send[i], moved);
	for (int i = 0; i < x->n_recv && *r == CUDA_SUCCESS; i++)
		if (has_turn(x->recv, &x->recv[i]))
			*r = recv_step(x, &x->recv[i], moved);
	if (x->reduces && *r == CUDA_SUCCESS) {
		*r = reduce_step(x, moved);
		over = x->done == x->bytes;
	}
	for (int i = 0; i < x->n_send; i++)
		over = over && x->send[i].done == x->send[i].bytes;
	for (int i = 0; i < x->n_recv; i++)
		over = over && x->recv[i].done == x->recv[i].bytes;
	return over || *r != CUDA_SUCCESS;
}
