/* SPDX-License-Identifier: Apache-2.0 */
/* What happens at an operation: live it is recorded and shown to inference, forward it is compared. The hot path. */
#include "config.h"

#include "runtime/base/digest.h"
#include "runtime/capture/fences.h"
#include "runtime/capture/readback.h"
#include "runtime/engine/engine_private.h"
#include "runtime/infer/roles.h"
#include "runtime/track/host_memory.h"
#include "runtime/track/mappings.h"
#include "runtime/track/settle.h"

enum { CONTENT_WHOLE = 64 << 10, CONTENT_SAMPLE = 4096 };
/* How long a launching thread waits for another one to rest: in the program's own time, and in ours. */
enum { SETTLE_NS = 1000000, SETTLE_FORWARD_NS = 20000000 };

static struct tpck_engine *const engine = &tpck_engine;

static uint32_t token_digest(const struct tpck_token *token, uint64_t numbers)
{
	uint64_t h = token->func ^ ((uint64_t)token->op << 56) ^ token->stream * 0x9e3779b97f4a7c15ull;

	h = (h ^ ((uint64_t)token->grid[0] << 32 | token->grid[1])) * 0xff51afd7ed558ccdull;
	h = (h ^ h >> 33 ^ ((uint64_t)token->grid[2] << 32 | token->block[0])) * 0xc4ceb9fe1a85ec53ull;
	h = (h ^ h >> 29 ^ ((uint64_t)token->block[1] << 32 | token->block[2])) * 0xff51afd7ed558ccdull;
	h = (h ^ h >> 32 ^ token->bytes ^ numbers) * 0xc4ceb9fe1a85ec53ull;
	return (uint32_t)(h >> 32) ^ (uint32_t)h;
}

/* Digest of uploaded bytes: small ones whole, large ones by samples. Never 0. */
static uint32_t content_digest(const void *content, uint64_t bytes)
{
	uint64_t digest;

	if (bytes <= CONTENT_WHOLE) {
		digest = tpck_digest64(content, bytes, 0);
	} else {
		uint64_t stride = (bytes - CONTENT_SAMPLE) / 15;

		digest = bytes;
		for (int i = 0; i < 16; i++)
			digest = tpck_digest64((const char *)content + stride * (uint64_t)i, CONTENT_SAMPLE, digest);
	}
	return (uint32_t)digest ? (uint32_t)digest : 1;
}

static void copied(struct tpck_thread *self, enum tpck_op op)
{
	if (op == TPCK_OP_H2D || op == TPCK_OP_D2H)
		engine->copies++;
	if (op == TPCK_OP_H2D && self->launched) {
		self->launched = false;
		self->at_upload = true;
		engine->turns++;
		if (__builtin_expect(engine->turns >= TPCK_WITNESS_TURNS && !engine->bounded, 0))
			tpck_witness_begin(self);
	}
}

/* The order in which threads come by here is the order of operations that inference sees. Whoever is inside the gate
 * while it feeds has its operation, too, on the side of a boundary on which inference has it. Where the lock is lost there
 * are no boundaries any more. */
static unsigned feed(struct tpck_thread *self, const struct tpck_call *call)
{
	unsigned verdict;

	if (call->orders)
		return TPCK_V_NONE;
	if (call->token.op == TPCK_OP_KERNEL || call->token.op == TPCK_OP_GRAPH)
		self->launches = self->launched = true;
	else
		copied(self, call->token.op);
	/* A thread that only copies (a loader) is not in step with the iterations. */
	if (!self->launches && call->token.thread != 1)
		return TPCK_V_NONE;
	if (!tpck_bias_lock(&engine->infer_lock, self))
		return TPCK_V_NONE;
	verdict = tpck_infer_feed(engine->infer, &call->token);
	tpck_bias_unlock(&engine->infer_lock, self);
	return verdict;
}

void tpck_engine_graph_node(uint64_t graph, const struct tpck_token *node)
{
	if (!engine->infer)
		return;
	if (!tpck_bias_lock(&engine->infer_lock, tpck_thread_self()))
		return;
	tpck_infer_graph_node(engine->infer, graph, node);
	tpck_bias_unlock(&engine->infer_lock, tpck_thread_self());
}

static struct {
	_Atomic uint32_t kernels, bare, parameters, compared;
} launched;

void tpck_engine_kernel(bool bare, uint32_t parameters, uint32_t compared)
{
	atomic_fetch_add(&launched.kernels, 1);
	atomic_fetch_add(&launched.bare, bare);
	atomic_fetch_add(&launched.parameters, parameters);
	atomic_fetch_add(&launched.compared, compared);
}

void tpck_operation_tell(struct tpck_ways *ways)
{
	ways->kernels = launched.kernels;
	ways->kernels_bare = launched.bare;
	ways->parameters = launched.parameters;
	ways->parameters_compared = launched.compared;
}

/* Adds where an operation reads and writes to its thread's digest. Addresses that are not ours to give may differ. */
static void place(struct tpck_thread *self, const struct tpck_call *call)
{
	if (call->addresses)
		self->places = (self->places ^ call->addresses) * 0x9e3779b97f4a7c15ull ^ self->places >> 32;
	for (int i = 0; i < 2; i++)
		if (call->places[i] && (tpck_engine_is_device_memory(call->places[i]) || tpck_mappings_range(call->places[i])))
			self->places = (self->places ^ call->places[i]) * 0x9e3779b97f4a7c15ull ^ self->places >> 32;
}

/* While running forward: the operation is compared and not made. False: the thread went live, or never ran forward. */
static bool answered(struct tpck_thread *self, struct tpck_call *call, uint32_t token)
{
	uint32_t content = call->content ? content_digest(call->content, call->token.bytes) : 0;

	place(self, call);
	if (tpck_resume_operation(self, call, token, content) != TPCK_GO_ANSWERED) {
		self->places = 0;
		return false;
	}
	feed(self, call);
	self->at_upload = false;
	return true;
}

/* What the verdict asks for before the operation; boundaries are not inside the gate. */
static enum tpck_go act(struct tpck_thread *self, unsigned verdict)
{
	enum tpck_go go = verdict & TPCK_V_LISTS ? TPCK_GO_READ : TPCK_GO_RUN;

	if (!(verdict & (TPCK_V_BOUNDARY_BEFORE | TPCK_V_OPT_BEGIN | TPCK_V_LOOK)))
		return go;
	tpck_gate_leave(self);
	if (verdict & TPCK_V_BOUNDARY_BEFORE)
		tpck_boundary(self);
	if (verdict & TPCK_V_OPT_BEGIN)
		tpck_boundary_phase(self);
	if (verdict & TPCK_V_LOOK)
		tpck_witness_look(self);
	tpck_gate_enter(self);
	return go;
}

/* The operation is the program's next: its fence, its place in the log. Inside the gate. */
static inline void admit(struct tpck_thread *self, struct tpck_call *call, struct tpck_stream *stream, unsigned verdict,
			 uint32_t token, uint32_t content)
{
	call->boundary_after = verdict & TPCK_V_BOUNDARY_AFTER;
	call->gated = true;
	if (stream) {
		tpck_fence(stream, call->stream);
		if (!atomic_load_explicit(&stream->dirty, memory_order_relaxed))
			atomic_store_explicit(&stream->dirty, 1, memory_order_relaxed);
	}
	tpck_record_operation(self, token, content, call->content != NULL);
	if (call->places[0] | call->places[1] | call->addresses)
		place(self, call);
}

/* What inference finds goes before. */
static unsigned uploads(struct tpck_thread *self, const struct tpck_call *call, unsigned verdict)
{
	if (verdict & (TPCK_V_BOUNDARY_BEFORE | TPCK_V_BOUNDARY_AFTER)) {
		tpck_uploads_end();
		return verdict;
	}
	return tpck_uploads_boundary(self, call) ? verdict | TPCK_V_BOUNDARY_BEFORE : verdict;
}

enum tpck_go tpck_engine_before(struct tpck_thread *self, struct tpck_call *call)
{
	struct tpck_stream *stream = tpck_stream_of(call->stream, self);
	uint32_t token, content = 0, mode;
	unsigned verdict;

	call->gated = call->boundary_after = false;
	if (__builtin_expect(engine->stream_captures > 0, 0) && engine->device && engine->device->is_capturing(call->stream))
		return TPCK_GO_RUN; /* goes into a graph, which is launched later */
	call->token.stream = stream ? stream->ordinal : 0;
	call->token.thread = self->id;
	token = token_digest(&call->token, call->numbers);
	mode = tpck_engine_mode();
	if (__builtin_expect(atomic_load_explicit(&tpck_host_memory_shown_anew, memory_order_relaxed), 0))
		tpck_host_memory_keep();
	if (self->launches)
		tpck_settle(self, mode == TPCK_MODE_FORWARD ? SETTLE_FORWARD_NS : SETTLE_NS, mode == TPCK_MODE_FORWARD);
	if (__builtin_expect(mode != TPCK_MODE_LIVE, 0)) {
		if (mode == TPCK_MODE_FORWARD && answered(self, call, token))
			return TPCK_GO_ANSWERED;
		if (tpck_engine_mode() != TPCK_MODE_LIVE)
			return TPCK_GO_RUN;
	}
	if (call->content && !tpck_readback_touches(call->content, call->token.bytes))
		content = content_digest(call->content, call->token.bytes);
	tpck_gate_enter(self);
	verdict = feed(self, call);
	if (__builtin_expect(atomic_load_explicit(&engine->uploads, memory_order_relaxed), 0))
		verdict = uploads(self, call, verdict);
	if (__builtin_expect(verdict & (TPCK_V_BOUNDARY_BEFORE | TPCK_V_OPT_BEGIN | TPCK_V_LISTS | TPCK_V_LOOK), 0)) {
		enum tpck_go go = act(self, verdict);

		admit(self, call, stream, verdict, token, content);
		return go;
	}
	admit(self, call, stream, verdict, token, content);
	return TPCK_GO_RUN;
}

void tpck_engine_parameters(const struct tpck_call *call, const struct tpck_layout *layout, void *const *parameters)
{
	if (layout)
		tpck_roles_launch(layout, parameters, call->token.grid);
	else
		tpck_roles_unknown();
}

void tpck_engine_after(struct tpck_thread *self, struct tpck_call *call)
{
	if (__builtin_expect(!call->gated, 0))
		return;
	if (!call->orders)
		tpck_memory_queued(self);
	tpck_gate_leave(self);
	if (__builtin_expect(call->boundary_after, 0))
		tpck_boundary(self);
}
