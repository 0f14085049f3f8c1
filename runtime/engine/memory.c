/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: allocation calls in order, module variables, and the plan of a capture. */
#include "config.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/asks.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/capture/copier.h"
#include "runtime/capture/readback.h"
#include "runtime/engine/engine_private.h"
#include "runtime/engine/partial_blocks.h"
#include "runtime/engine/place.h"
#include "runtime/infer/classes.h"
#include "runtime/track/handed.h"
#include "runtime/track/mappings.h"

/* Memory that freeing leaves mapped for no block, so that small ones come and go without the device. What is beyond goes
 * back when a free waits for the device anyway; all of it before the program is told that memory is out. To the program it
 * is free memory: cuMemGetInfo says so, and its allocations get it. What it cannot have is up to so much of it for what the
 * driver allocates by itself (code, its own pools, graphs), and other processes likewise. */
#define IDLE_BYTES (64ull << 20)

#define ASKS_NS 1000000000u
enum { VARIABLES = 4096 };
/* As long a copy that is under way may take when its context is to end. */
enum { CONTEXT_SEC = 600 };

static struct tpck_engine *const engine = &tpck_engine;
static struct variable {
	char symbol[104];
	uint64_t address, bytes;
} variables[VARIABLES] TPCK_LARGE; /* engine->variables_count of them are in use */

/* By owner: with which devices its memory is shared, as bits. The program may say so before anything is mapped. */
static uint64_t shared[TPCK_ARENA_DEVICES] TPCK_LARGE;

static void share_arena(void)
{
	for (int with = 0; with < TPCK_ARENA_DEVICES && engine->arena && engine->ordinal >= 0 && engine->ordinal < TPCK_ARENA_DEVICES; with++)
		if (shared[engine->ordinal] >> with & 1)
			tpck_arena_share(engine->arena, with);
}

_Atomic uint64_t tpck_engine_arena_bytes;

void tpck_memory_open(void)
{
	char why[240];
	int result;

	engine->ordinal = engine->device->current();
	if (tpck_engine_mode() == TPCK_MODE_LIVE)
		tpck_place_record_device(engine->log, engine->device, engine->ordinal);
	else if (tpck_place_compare(engine->device, engine->ordinal, why, sizeof why))
		tpck_resume_diverged(why);
	result = tpck_arena_open(&engine->arena, engine->device, engine->ordinal, TPCK_ARENA_BASE, TPCK_ARENA_BYTES);

	atomic_store_explicit(&tpck_engine_arena_bytes, result ? 0 : TPCK_ARENA_BYTES, memory_order_relaxed);
	if (result) {
		engine->arena = NULL;
		tpck_engine_unresumable("the driver does not give the address range that a resumed process would need again");
		tpck_log_info("reserving the arena at %#llx: %s", TPCK_ARENA_BASE, strerror(-result));
	}
	pthread_mutex_lock(&engine->allocation);
	share_arena();
	pthread_mutex_unlock(&engine->allocation);
}

/* One allocation call after another, in the logged order while running forward. */
void tpck_memory_order_begin(struct tpck_thread *self)
{
	if (tpck_engine_mode() == TPCK_MODE_FORWARD)
		tpck_resume_turn(self);
	pthread_mutex_lock(&engine->allocation);
	if (tpck_engine_mode() == TPCK_MODE_LIVE && engine->last_allocator != self->id) {
		engine->last_allocator = self->id;
		tpck_log_append(engine->log, TPCK_RECORD_TURN, 0, self->id, 0, &engine->allocations,
				sizeof engine->allocations);
	}
	engine->allocations++;
}

void tpck_memory_order_end(struct tpck_thread *self)
{
	self->arena_call = tpck_arena_calls(engine->arena);
	pthread_mutex_unlock(&engine->allocation);
	if (tpck_engine_mode() == TPCK_MODE_FORWARD) {
		atomic_fetch_add(&engine->futex_turn, 1);
		tpck_sys_futex(&engine->futex_turn, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
	}
}

/* Makes `stream` (or the host, for memory for use from anywhere) wait for another stream's work. */
static void wait_for(uint32_t freed_on, tpck_stream_handle stream, bool ordered)
{
	struct tpck_stream *other = freed_on == TPCK_STREAM_MANY ? NULL : tpck_stream_by_ordinal(freed_on);
	tpck_event_handle event = NULL;

	if (!other || !ordered || engine->device->event_create(&event, false)) {
		engine->device->synchronize();
		return;
	}
	if (engine->device->event_record(event, other->owner ? TPCK_STREAM_LEGACY : other->handle) ||
	    engine->device->stream_wait_event(stream, event))
		engine->device->synchronize();
	engine->device->event_destroy(event);
}

/* Whether there is no context of ours any more. Most programs that end theirs end as well: it is said of those that go on. */
static bool is_without_context(void)
{
	static _Atomic bool said;

	if (!atomic_load(&engine->context_ended))
		return false;
	if (!atomic_exchange(&said, true))
		tpck_log_warn("the program ended the context that its memory was in, and goes on: no snapshots from here on");
	return true;
}

int tpck_engine_allocate(struct tpck_thread *self, uint64_t bytes, tpck_stream_handle handle, bool ordered,
			 uint64_t *address)
{
	struct tpck_stream *stream = ordered ? tpck_stream_of(handle, self) : NULL;
	uint32_t freed_on = TPCK_STREAM_NONE;
	int device, result;

	if (!engine->arena || is_without_context() || (ordered && !stream))
		return -ENOTSUP;
	if (ordered && engine->stream_captures > 0 && engine->device->is_capturing(handle)) {
		tpck_engine_unresumable("a graph of the program owns memory");
		return -ENOTSUP;
	}
	device = engine->device->current();
	if (device != engine->ordinal) {
		if (device < 0)
			return -ENOTSUP; /* no context, or a device that failed: the driver says what it says */
		tpck_engine_memory_on(device);
		return -ENOTSUP;
	}
	tpck_memory_order_begin(self);
	result = tpck_arena_allocate(engine->arena, bytes, stream ? stream->ordinal : TPCK_STREAM_NONE, address,
				     &freed_on);
	if (!result && freed_on != TPCK_STREAM_NONE)
		wait_for(freed_on, handle, ordered);
	tpck_memory_order_end(self);
	return result;
}

void tpck_engine_queued(void)
{
	atomic_store(&engine->queued, TPCK_QUEUED);
}

/* Waits for all that was queued before, as the driver's own free does. Each wait leaves a number of its own in `queued`
 * before it begins, and clears it afterwards only if nobody has changed it: an operation that was queued meanwhile, or
 * another wait that began later and may owe something to it, is left standing. An operation whose thread found the mark
 * before the barrier was queued before the wait begins; one whose thread looks later puts the mark back. */
bool tpck_engine_free_wait(const struct tpck_thread *self)
{
	static _Atomic uint64_t waits = TPCK_WAITS_FROM;
	uint64_t number;

	if (!atomic_load_explicit(&engine->queued, memory_order_acquire))
		return true;
	number = atomic_fetch_add(&waits, 1);
	atomic_exchange(&engine->queued, number);
	if (!tpck_threads_barrier(self))
		atomic_store(&engine->queued, TPCK_QUEUED);
	engine->device->synchronize();
	atomic_compare_exchange_strong(&engine->queued, &number, TPCK_NOTHING_QUEUED);
	return true;
}

int tpck_engine_free(struct tpck_thread *self, uint64_t address, tpck_stream_handle handle, bool ordered)
{
	struct tpck_stream *stream = ordered ? tpck_stream_of(handle, self) : NULL;
	int result;

	if (!engine->arena || !tpck_arena_contains(engine->arena, address))
		return -ENOENT;
	tpck_memory_order_begin(self);
	/* The wait was for all that was queued before this thread's last call, and so for what any thread queued before a
	 * call that came before that one. Which calls those are is the same in every run; what the wait was for besides
	 * is not. */
	if (!ordered)
		tpck_arena_done(engine->arena, self->arena_call);
	result = tpck_arena_free(engine->arena, address,
				 !ordered ? TPCK_STREAM_NONE : stream ? stream->ordinal : TPCK_STREAM_MANY);
	if (!ordered)
		tpck_arena_trim(engine->arena, IDLE_BYTES);
	tpck_memory_order_end(self);
	return result;
}

static bool find_block(uint64_t address, bool ordered_too, uint64_t *base, uint64_t *bytes)
{
	struct tpck_block *block;

	if (!engine->arena || !tpck_arena_contains(engine->arena, address))
		return false;
	pthread_mutex_lock(&engine->allocation);
	block = tpck_arena_find(engine->arena, address);
	if (block && block->ordered && !ordered_too)
		block = NULL;
	if (block) {
		*base = block->address;
		*bytes = block->bytes;
	}
	pthread_mutex_unlock(&engine->allocation);
	return block != NULL;
}

bool tpck_engine_block(uint64_t address, uint64_t *base, uint64_t *bytes)
{
	return find_block(address, true, base, bytes);
}

bool tpck_engine_block_of_its_own(uint64_t address, uint64_t *base, uint64_t *bytes)
{
	return find_block(address, false, base, bytes);
}

bool tpck_engine_mapping(uint64_t address, uint64_t *start, uint64_t *bytes)
{
	bool mapped;

	if (!engine->arena)
		return false;
	pthread_mutex_lock(&engine->allocation);
	mapped = tpck_arena_mapping(engine->arena, address, start, bytes);
	pthread_mutex_unlock(&engine->allocation);
	return mapped;
}

uint64_t tpck_engine_idle_memory(void)
{
	uint64_t idle;

	if (!engine->arena)
		return 0;
	pthread_mutex_lock(&engine->allocation);
	idle = tpck_arena_idle(engine->arena);
	pthread_mutex_unlock(&engine->allocation);
	return idle;
}

bool tpck_engine_give_back(void)
{
	bool given = false;

	if (!engine->arena)
		return false;
	pthread_mutex_lock(&engine->allocation);
	if (tpck_arena_idle(engine->arena))
		given = tpck_arena_give_back(engine->arena);
	pthread_mutex_unlock(&engine->allocation);
	return given;
}

void tpck_engine_share_memory(int of, int with)
{
	if (with < 0 || with >= TPCK_ARENA_DEVICES || of >= TPCK_ARENA_DEVICES)
		return;
	pthread_mutex_lock(&engine->allocation);
	for (int owner = 0; owner < TPCK_ARENA_DEVICES; owner++)
		if (of < 0 || of == owner)
			shared[owner] |= 1ull << with;
	share_arena();
	pthread_mutex_unlock(&engine->allocation);
}

void tpck_engine_context_settle(const void *context)
{
	if (!engine->device || context != engine->context || tpck_engine_mode() != TPCK_MODE_LIVE || atomic_load(&engine->context_ended))
		return;
	tpck_copier_drain(CONTEXT_SEC);
	if (!engine->device->synchronize())
		tpck_readback_arrived(tpck_readback_mark());
}

void tpck_engine_context_ends(const void *context)
{
	if (!engine->device || context != engine->context || tpck_engine_mode() == TPCK_MODE_OFF ||
	    atomic_exchange(&engine->context_ended, true))
		return;
	if (tpck_engine_mode() == TPCK_MODE_FORWARD)
		tpck_resume_diverged("the program ends its context, which it did not the first time");
	engine->uncaptured = true;
	/* One that another thread is at: it had begun before. */
	while (atomic_load(&engine->boundary_busy))
		sched_yield();
	/* Another one of ours that does not go on asks nothing either. */
	for (uint64_t begun = tpck_clock_monotonic_ns(); atomic_load(&engine->link_asks) && tpck_clock_monotonic_ns() - begun < ASKS_NS;)
		sched_yield();
	tpck_copier_drain(CONTEXT_SEC);
	tpck_copier_close();
	tpck_readback_close();
	pthread_mutex_lock(&engine->allocation);
	engine->device->synchronize();
	if (engine->arena)
		tpck_arena_reset(engine->arena);
	tpck_mappings_reset();
	pthread_mutex_unlock(&engine->allocation);
	tpck_engine_reason("the program ended the context that its memory was in");
}

/* What a row of an image calls a variable: its name, a long one shortened; and where several have that name, which of them. Those that are registered have
 * a rank, whenever they are asked for. Of others, which are learnt as the program loads their module, it is the order of that, which the program repeats. */
static void variable_name(char *out, size_t room, const char *symbol, uint32_t rank, uint32_t count)
{
	size_t length = strlen(symbol), kept = room - 1 - strlen("#0123456789abcdef~4294967295");
	uint32_t same = 1;

	if (length <= kept)
		snprintf(out, room, "%s", symbol);
	else
		snprintf(out, room, "%.*s#%016llx", (int)kept, symbol, (unsigned long long)tpck_digest64(symbol, length, 0));
	length = strlen(out);
	for (uint32_t i = 0; i < count && !rank; i++)
		same += strncmp(variables[i].symbol, out, length) == 0 && variables[i].symbol[length] == '^';
	if (!rank)
		snprintf(out + length, room - length, "^%u", same);
	else if (rank > 1)
		snprintf(out + length, room - length, "~%u", rank);
}

void tpck_engine_module_variable(const char *symbol, uint32_t rank, uint64_t address, uint64_t bytes)
{
	struct variable *variable;
	uint32_t count;

	pthread_mutex_lock(&engine->allocation);
	count = atomic_load(&engine->variables_count);
	for (uint32_t i = 0; i < count; i++)
		if (variables[i].address == address) {
			pthread_mutex_unlock(&engine->allocation);
			return;
		}
	if (count == VARIABLES) {
		pthread_mutex_unlock(&engine->allocation);
		tpck_engine_unresumable("the program has more variables on the device than can be followed");
		return;
	}
	variable = &variables[count];
	variable_name(variable->symbol, sizeof variable->symbol, symbol, rank, count);
	variable->address = address;
	variable->bytes = bytes;
	atomic_store(&engine->variables_count, count + 1);
	pthread_mutex_unlock(&engine->allocation);
}

uint64_t tpck_memory_variable(const char *symbol, uint64_t bytes)
{
	uint32_t count = atomic_load(&engine->variables_count);

	for (uint32_t i = 0; i < count; i++)
		if (variables[i].bytes == bytes && strcmp(variables[i].symbol, symbol) == 0)
			return variables[i].address;
	return 0;
}

/* Plans that captures under way still read. */
static struct tpck_plan *retired[8];

static void plan_retire(struct tpck_plan *plan)
{
	for (size_t i = 0; i < sizeof retired / sizeof *retired; i++)
		if (retired[i] && !__atomic_load_n(&retired[i]->users, __ATOMIC_ACQUIRE)) {
			tpck_plan_free(retired[i]);
			retired[i] = NULL;
		}
	for (size_t i = 0; i < sizeof retired / sizeof *retired; i++)
		if (!retired[i]) {
			retired[i] = plan;
			return;
		}
	/* More plans than jobs can be under way cannot be in use. */
}

void tpck_engine_handed(uint64_t address, int64_t bytes)
{
	if (tpck_engine_mode() == TPCK_MODE_OFF)
		return;
	if (engine->settings.unused[0] == 'c')
		tpck_handed_distrust();
	if (bytes > 0)
		tpck_handed_out(address, (uint64_t)bytes, engine->arena ? tpck_arena_orders(engine->arena) : 0);
	else
		tpck_handed_back(address);
}

void tpck_engine_graphs(void)
{
	tpck_handed_distrust();
}

static struct tpck_plan *plan_make(void)
{
	uint64_t classes = tpck_classes_version();
	uint32_t known = atomic_load(&engine->variables_count), at = 0, parts = tpck_parts_begin(engine->arena, engine->step);
	uint64_t blocks = 0, bytes = 0, backed = 0;
	struct tpck_plan *plan;

	if (engine->arena)
		tpck_arena_totals(engine->arena, &blocks, &bytes, &backed);
	/* A part may reach over several blocks, and of each there is a row in front of it and behind it. */
	plan = tpck_plan_new((uint32_t)blocks * (parts ? 3 : 1) + known + parts);
	if (!plan)
		return NULL;
	for (uint32_t i = 0; i < known; i++) {
		struct tpck_image_row *row = &plan->row[at++];

		row->address = variables[i].address;
		row->bytes = variables[i].bytes;
		row->kind = TPCK_MEMORY_MODULE_VARIABLE;
		row->order = UINT64_MAX;
		row->class_ = tpck_copier_digests() ? tpck_classes_of(row->order, row->address) : TPCK_CLASS_UNKNOWN;
		strcpy(row->symbol, variables[i].symbol);
	}
	for (const struct tpck_block *block = engine->arena ? tpck_arena_first(engine->arena) : NULL; block;
	     block = block->next) {
		uint32_t count = tpck_parts_rows(block, &plan->row[at]);

		for (struct tpck_image_row *row = &plan->row[at]; count--; row++, at++)
			if (row->class_ != TPCK_CLASS_DEAD && tpck_copier_digests())
				row->class_ = tpck_classes_of(row->order, row->address);
	}
	tpck_parts_end();
	plan->rows = at;
	plan->version = engine->arena ? tpck_arena_version(engine->arena) : 0;
	plan->classes = classes;
	engine->variables_planned = known;
	tpck_plan_place(plan);
	return plan;
}

static struct tpck_plan *plan_now(void)
{
	struct tpck_plan *made;

	if (engine->plan && engine->variables_planned == atomic_load(&engine->variables_count) &&
	    engine->plan->classes == tpck_classes_version() && engine->digests == tpck_copier_digests() &&
	    (!engine->arena || engine->plan->version == tpck_arena_version(engine->arena)) && tpck_parts_hold(engine->arena, engine->step))
		return engine->plan;
	made = plan_make();
	if (!made)
		return NULL;
	if (engine->plan)
		plan_retire(engine->plan);
	engine->digests = tpck_copier_digests();
	engine->plan = made;
	return made;
}

struct tpck_plan *tpck_memory_plan(void)
{
	struct tpck_plan *plan;

	/* Modules are still being loaded, or another thread allocates, which may take long: not at this boundary. */
	if (!engine->device->variables(false))
		return NULL;
	if (pthread_mutex_trylock(&engine->allocation))
		return NULL;
	plan = plan_now();
	pthread_mutex_unlock(&engine->allocation);
	return plan;
}

const char *tpck_memory_compare(const struct tpck_image_row *rows, uint32_t count, char *buffer, size_t size)
{
	const struct tpck_block *block = engine->arena ? tpck_arena_first(engine->arena) : NULL;
	uint64_t bytes;
	uint32_t first;

	(void)engine->device->variables(true);
	for (uint32_t i = 0; i < count; i++) {
		if (rows[i].kind == TPCK_MEMORY_MODULE_VARIABLE) {
			if (!tpck_memory_variable(rows[i].symbol, rows[i].bytes)) {
				snprintf(buffer, size, "the device variable %s is not there", rows[i].symbol);
				return buffer;
			}
			continue;
		}
		bytes = rows[i].bytes;
		/* The parts of a block that was handed out in parts follow each other. */
		for (first = i; i + 1 < count && rows[i + 1].kind == TPCK_MEMORY_ARENA && rows[i + 1].order == rows[first].order &&
				rows[i + 1].address == rows[first].address + bytes;)
			bytes += rows[++i].bytes;
		if (!block || block->address != rows[first].address || block->bytes != bytes) {
			snprintf(buffer, size, "memory block %u of the snapshot is %llu bytes at %#llx, here it is %llu at %#llx",
				 first, (unsigned long long)bytes, (unsigned long long)rows[first].address,
				 block ? (unsigned long long)block->bytes : 0,
				 block ? (unsigned long long)block->address : 0);
			return buffer;
		}
		block = block->next;
	}
	if (block) {
		snprintf(buffer, size, "there is more memory than in the snapshot, first %llu bytes at %#llx",
			 (unsigned long long)block->bytes, (unsigned long long)block->address);
		return buffer;
	}
	return NULL;
}
