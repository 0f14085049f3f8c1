/* SPDX-License-Identifier: Apache-2.0 */
/* The arena: same requests, same addresses. Segregated free lists with boundary coalescing. */
#include "config.h"

#include "runtime/track/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	ALIGN = 512,
	BINS = 256,     /* four a power of two */
	HASH_BITS = 14,
};


struct tpck_arena {
	const struct tpck_device *device;
	int ordinal;
	uint64_t base, bytes;
	uint64_t top;                 /* nothing at or above it was ever handed out */
	uint64_t orders, version;
	uint64_t calls, done;         /* calls up to now; number up to which frees are known to be done */
	uint64_t live_blocks, live_bytes, backed_bytes;
	uint64_t live_room;           /* what live blocks occupy */
	uint64_t trimmed;             /* calls up to the last time that memory was looked for to give back */
	uint64_t shared;              /* a bit a device that may use all of it, beside its own */
	bool unjoined;                /* free neighbours of different streams were left apart */
	struct tpck_block *highest;   /* block just below top */
	struct tpck_block *bins[BINS];
	uint64_t bins_used[BINS / 64];
	struct tpck_block *live_first, *live_last;
	struct tpck_block *hash[1 << HASH_BITS];
	struct tpck_block *spare;     /* unused descriptors, by ->next */
	uint8_t *begins;              /* a bit a granule: a mapping begins here; only whole ones can be given back */
	uint8_t backed[];             /* a bit a granule */
};

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static unsigned bin_of(uint64_t room)
{
	unsigned log2 = 63u - (unsigned)__builtin_clzll(room | ALIGN);

	return (log2 - 9) * 4 + (unsigned)((room >> (log2 - 2)) & 3);
}

static struct tpck_block **slot(const struct tpck_arena *arena, uint64_t address)
{
	uint64_t key = (address / ALIGN) * 0x9e3779b97f4a7c15ull;

	return (struct tpck_block **)&arena->hash[key >> (64 - HASH_BITS)];
}

static struct tpck_block *descriptor_new(struct tpck_arena *arena)
{
	struct tpck_block *block = arena->spare;

	if (block)
		arena->spare = block->next;
	else
		block = malloc(sizeof *block);
	if (block)
		memset(block, 0, sizeof *block);
	return block;
}

static void descriptor_drop(struct tpck_arena *arena, struct tpck_block *block)
{
	block->next = arena->spare;
	arena->spare = block;
}

static void bin_insert(struct tpck_arena *arena, struct tpck_block *block)
{
	unsigned bin = bin_of(block->room);

	block->previous = NULL;
	block->next = arena->bins[bin];
	if (block->next)
		block->next->previous = block;
	arena->bins[bin] = block;
	arena->bins_used[bin / 64] |= 1ull << (bin % 64);
}

static void bin_remove(struct tpck_arena *arena, struct tpck_block *block)
{
	unsigned bin = bin_of(block->room);

	if (block->previous)
		block->previous->next = block->next;
	else
		arena->bins[bin] = block->next;
	if (block->next)
		block->next->previous = block->previous;
	if (!arena->bins[bin])
		arena->bins_used[bin / 64] &= ~(1ull << (bin % 64));
}

static void live_insert(struct tpck_arena *arena, struct tpck_block *block)
{
	block->previous = arena->live_last;
	block->next = NULL;
	if (arena->live_last)
		arena->live_last->next = block;
	else
		arena->live_first = block;
	arena->live_last = block;
	block->chain = *slot(arena, block->address);
	*slot(arena, block->address) = block;
	arena->live_blocks++;
	arena->live_bytes += block->bytes;
	arena->live_room += block->room;
	arena->version++;
}

static void live_remove(struct tpck_arena *arena, struct tpck_block *block)
{
	struct tpck_block **link = slot(arena, block->address);

	while (*link != block)
		link = &(*link)->chain;
	*link = block->chain;
	if (block->previous)
		block->previous->next = block->next;
	else
		arena->live_first = block->next;
	if (block->next)
		block->next->previous = block->previous;
	else
		arena->live_last = block->previous;
	arena->live_blocks--;
	arena->live_bytes -= block->bytes;
	arena->live_room -= block->room;
	arena->version++;
}

int tpck_arena_open(struct tpck_arena **arena, const struct tpck_device *device, int ordinal,
		    uint64_t base, uint64_t bytes)
{
	uint64_t granules = bytes / device->granule;
	struct tpck_arena *made = calloc(1, sizeof *made + 2 * (granules / 8 + 1));
	int result;

	if (!made)
		return -ENOMEM;
	result = device->reserve(ordinal, base, granules * device->granule);
	if (result) {
		free(made);
		return result;
	}
	made->begins = made->backed + granules / 8 + 1;
	made->device = device;
	made->ordinal = ordinal;
	made->base = base;
	made->bytes = granules * device->granule;
	*arena = made;
	return 0;
}

static bool bit(const uint8_t *bits, uint64_t granule)
{
	return bits[granule / 8] >> (granule % 8) & 1;
}

static void bit_set(uint8_t *bits, uint64_t granule, bool to)
{
	if (to)
		bits[granule / 8] |= (uint8_t)(1u << (granule % 8));
	else
		bits[granule / 8] &= (uint8_t)~(1u << (granule % 8));
}

/* A mapping of its own over [first, end), or none any more. */
static void granules_mark(struct tpck_arena *arena, uint64_t first, uint64_t end, bool backed)
{
	for (uint64_t g = first; g < end; g++) {
		bit_set(arena->backed, g, backed);
		bit_set(arena->begins, g, backed && g == first);
	}
	if (backed)
		arena->backed_bytes += (end - first) * arena->device->granule;
	else
		arena->backed_bytes -= (end - first) * arena->device->granule;
}

/* The stream whose work a free block still waits for. */
static uint32_t held_by(const struct tpck_arena *arena, const struct tpck_block *block)
{
	return block->freed <= arena->done ? TPCK_STREAM_NONE : block->freed_on;
}

/* Granules [first, end) of addresses that nobody uses; and of a mapping among them. */
struct span {
	uint64_t first, end;
};

/* The span of adjacent free blocks at or below `block`, which moves to the one below them; empty if `block` is live. With
 * `all` also those that a stream may still use. */
static struct span free_span(const struct tpck_arena *arena, struct tpck_block **block, bool all)
{
	uint64_t unit = arena->device->granule, top = (*block)->address + (*block)->room;
	struct tpck_block *at = *block;
	uint64_t from = top;

	while (at && !at->live && (all || held_by(arena, at) == TPCK_STREAM_NONE)) {
		from = at->address;
		at = at->lower;
	}
	*block = at == *block ? at->lower : at;
	return (struct span){(round_up(from, unit) - arena->base) / unit, (top - arena->base) / unit};
}

/* The next mapping that lies in the span as a whole; the span then begins behind it. */
static bool next_mapping(const struct tpck_arena *arena, struct span *span, struct span *mapping)
{
	uint64_t granules = arena->bytes / arena->device->granule;

	for (uint64_t g = span->first; g < span->end; g++) {
		uint64_t end = g + 1;

		if (!bit(arena->begins, g))
			continue;
		while (end < granules && bit(arena->backed, end) && !bit(arena->begins, end))
			end++;
		span->first = end;
		*mapping = (struct span){g, end};
		return end <= span->end;
	}
	return false;
}

uint64_t tpck_arena_idle(const struct tpck_arena *arena)
{
	struct tpck_block *block = arena->highest;
	uint64_t granules = 0;

	while (block) {
		struct span span = free_span(arena, &block, true), mapping;

		while (next_mapping(arena, &span, &mapping))
			granules += mapping.end - mapping.first;
	}
	return granules * arena->device->granule;
}

/* Gives back, from the highest address down, what free blocks hold; with `all` also what a stream may still use. */
static void give_back(struct tpck_arena *arena, uint64_t keep, bool all)
{
	uint64_t unit = arena->device->granule, idle = tpck_arena_idle(arena);
	struct tpck_block *block = arena->highest;

	while (block && idle > keep) {
		struct span span = free_span(arena, &block, all), mapping;

		while (idle > keep && next_mapping(arena, &span, &mapping)) {
			uint64_t bytes = (mapping.end - mapping.first) * unit;

			if (arena->device->unback(arena->ordinal, arena->base + mapping.first * unit, bytes))
				continue;
			granules_mark(arena, mapping.first, mapping.end, false);
			idle -= bytes;
		}
	}
}

void tpck_arena_trim(struct tpck_arena *arena, uint64_t keep)
{
	/* Looking through all blocks pays for itself if there were as many calls since the last time. */
	if (arena->backed_bytes - arena->live_room <= keep || arena->calls - arena->trimmed < arena->live_blocks)
		return;
	arena->trimmed = arena->calls;
	give_back(arena, keep, false);
}

bool tpck_arena_give_back(struct tpck_arena *arena)
{
	uint64_t backed = arena->backed_bytes;

	/* These blocks are free, so nothing new is queued on them; what was queued before must not lose its memory. */
	arena->device->synchronize();
	give_back(arena, 0, true);
	return arena->backed_bytes < backed;
}

/* Backs what of [address, address + room) is not backed yet, each gap with one handle. */
static int back(struct tpck_arena *arena, uint64_t address, uint64_t room)
{
	uint64_t unit = arena->device->granule;
	uint64_t first = (address - arena->base) / unit;
	uint64_t end = (address + room - 1 - arena->base) / unit + 1;

	for (uint64_t g = first; g < end;) {
		uint64_t run = g;
		int result;

		while (run < end && !bit(arena->backed, run))
			run++;
		if (run == g) {
			g++;
			continue;
		}
		result = arena->device->back(arena->ordinal, arena->base + g * unit, (run - g) * unit);
		if (result)
			return result;
		granules_mark(arena, g, run, true);
		for (int with = 0; with < TPCK_ARENA_DEVICES && arena->shared >> with; with++)
			if (arena->shared >> with & 1)
				(void)arena->device->share(with, arena->base + g * unit, (run - g) * unit);
		g = run;
	}
	return 0;
}

static bool fits(const struct tpck_block *block, uint64_t room, uint64_t align, uint64_t *lead)
{
	*lead = round_up(block->address, align) - block->address;
	return block->room >= room + *lead;
}

/* The first free block of the smallest bins that fits; `anyone` also takes those freed on other streams. */
static struct tpck_block *search(const struct tpck_arena *arena, uint64_t room, uint64_t align,
				 uint32_t stream, bool anyone, uint64_t *lead)
{
	unsigned bin = bin_of(room);

	for (unsigned word = bin / 64; word < BINS / 64; word++) {
		uint64_t used = arena->bins_used[word];

		if (word == bin / 64)
			used &= ~0ull << (bin % 64);
		for (; used; used &= used - 1) {
			struct tpck_block *block =
				arena->bins[word * 64 + (unsigned)__builtin_ctzll(used)];

			for (; block; block = block->next) {
				uint32_t held = held_by(arena, block);

				if (!anyone && held != TPCK_STREAM_NONE && held != stream)
					continue;
				if (fits(block, room, align, lead))
					return block;
			}
		}
	}
	return NULL;
}

/* Cuts off the lower `lead` bytes of a free block (not in a bin) as a free block of their own. */
static struct tpck_block *split(struct tpck_arena *arena, struct tpck_block *block, uint64_t room)
{
	struct tpck_block *rest = descriptor_new(arena);

	if (!rest)
		return NULL;
	rest->address = block->address + room;
	rest->room = block->room - room;
	rest->freed_on = block->freed_on;
	rest->freed = block->freed;
	rest->lower = block;
	rest->higher = block->higher;
	if (rest->higher)
		rest->higher->lower = rest;
	else
		arena->highest = rest;
	block->higher = rest;
	block->room = room;
	return rest;
}

static struct tpck_block *grow(struct tpck_arena *arena, uint64_t room, uint64_t align)
{
	uint64_t start = arena->base + arena->top;
	uint64_t lead = round_up(start, align) - start;
	struct tpck_block *block;

	if (arena->top + lead + room > arena->bytes)
		return NULL;
	block = descriptor_new(arena);
	if (!block)
		return NULL;
	block->address = start;
	block->room = lead + room;
	block->lower = arena->highest;
	if (arena->highest)
		arena->highest->higher = block;
	arena->highest = block;
	arena->top += lead + room;
	return block;
}

static uint32_t join_streams(uint32_t a, uint32_t b)
{
	if (a == b || b == TPCK_STREAM_NONE)
		return a;
	return a == TPCK_STREAM_NONE ? b : TPCK_STREAM_MANY;
}

/* Joins a free block (in no bin) with its higher neighbour if that is free too. Blocks that different streams still use
 * stay apart, or what is anybody's would become one stream's; with `any` they wait for both. */
static bool absorb_higher(struct tpck_arena *arena, struct tpck_block *block, bool any)
{
	struct tpck_block *higher = block->higher;
	uint32_t held = held_by(arena, block), held_higher;

	if (!higher || higher->live)
		return false;
	held_higher = held_by(arena, higher);
	if (held != held_higher && !any) {
		arena->unjoined = true;
		return false;
	}
	bin_remove(arena, higher);
	block->room += higher->room;
	block->freed_on = join_streams(held, held_higher);
	block->freed = block->freed > higher->freed ? block->freed : higher->freed;
	block->higher = higher->higher;
	if (block->higher)
		block->higher->lower = block;
	else
		arena->highest = block;
	descriptor_drop(arena, higher);
	return true;
}

/* Joins neighbours that were left apart and need not be any more; with `any` all. */
static void join_all(struct tpck_arena *arena, bool any)
{
	if (!arena->unjoined)
		return;
	arena->unjoined = false;
	for (struct tpck_block *block = arena->highest; block; block = block->lower) {
		if (block->live || !block->higher || block->higher->live)
			continue;
		bin_remove(arena, block);
		absorb_higher(arena, block, any);
		bin_insert(arena, block);
	}
}

/* The block that a request gets, out of its bin, and how much of its lower end is to be cut off. */
static struct tpck_block *find_block(struct tpck_arena *arena, uint64_t room, uint64_t align, uint32_t stream, uint64_t *lead)
{
	uint64_t unit = arena->device->granule;
	struct tpck_block *block = search(arena, room, align, stream, false, lead);

	if (!block && arena->unjoined) {
		join_all(arena, false);
		block = search(arena, room, align, stream, false, lead);
	}
	if (!block) {
		/* Small requests open a whole granule, so that they share it. */
		block = grow(arena, room < unit ? unit : room, room < unit ? unit : align);
		if (block) {
			*lead = round_up(block->address, align) - block->address;
			return block;
		}
		join_all(arena, true);
		block = search(arena, room, align, stream, true, lead);
	}
	if (block)
		bin_remove(arena, block);
	return block;
}

int tpck_arena_allocate(struct tpck_arena *arena, uint64_t bytes, uint32_t stream,
			uint64_t *address, uint32_t *wait_for)
{
	uint64_t unit = arena->device->granule;
	uint64_t room = round_up(bytes ? bytes : 1, ALIGN), align = ALIGN, lead = 0;
	struct tpck_block *block, *rest;
	uint32_t held;
	int result;

	arena->calls++;
	if (bytes > arena->bytes || room > arena->bytes)
		return -ENOMEM;
	if (room >= unit) {
		room = round_up(room, unit);
		align = unit;
	}
	block = find_block(arena, room, align, stream, &lead);
	if (!block)
		return -ENOMEM;
	if (lead) {
		rest = split(arena, block, lead);
		if (!rest) {
			bin_insert(arena, block);
			return -ENOMEM;
		}
		bin_insert(arena, block);
		block = rest;
	}
	if (block->room > room) {
		rest = split(arena, block, room);
		if (rest)
			bin_insert(arena, rest);
	}
	result = back(arena, block->address, block->room);
	if (result == -ENOMEM) {
		bin_insert(arena, block);
		tpck_arena_give_back(arena);
		bin_remove(arena, block);
		result = back(arena, block->address, block->room);
	}
	if (result) {
		bin_insert(arena, block);
		return result;
	}
	held = held_by(arena, block);
	*wait_for = held == stream ? TPCK_STREAM_NONE : held;
	block->live = true;
	block->bytes = bytes ? bytes : 1;
	block->ordered = stream != TPCK_STREAM_NONE;
	block->handed = false;
	block->order = arena->orders++;
	block->freed_on = TPCK_STREAM_NONE;
	block->freed = 0;
	live_insert(arena, block);
	*address = block->address;
	return 0;
}

int tpck_arena_free(struct tpck_arena *arena, uint64_t address, uint32_t stream)
{
	struct tpck_block *block = tpck_arena_find(arena, address), *lower;

	arena->calls++;
	if (!block || block->address != address)
		return -ENOENT;
	live_remove(arena, block);
	block->live = false;
	block->freed_on = stream;
	block->freed = stream == TPCK_STREAM_NONE ? 0 : arena->calls;
	absorb_higher(arena, block, false);
	bin_insert(arena, block);
	lower = block->lower;
	if (lower && !lower->live) {
		bin_remove(arena, lower);
		absorb_higher(arena, lower, false);
		bin_insert(arena, lower);
	}
	return 0;
}

int tpck_arena_adopt(struct tpck_arena *arena, uint64_t address, uint64_t bytes)
{
	struct tpck_block *block = descriptor_new(arena);

	if (!block)
		return -ENOMEM;
	block->address = address;
	block->bytes = bytes;
	block->live = true;
	block->order = arena->orders++;
	live_insert(arena, block);
	return 0;
}

void tpck_arena_disown(struct tpck_arena *arena, uint64_t address)
{
	struct tpck_block *block = *slot(arena, address);

	while (block && (block->address != address || block->room))
		block = block->chain;
	if (!block)
		return;
	live_remove(arena, block);
	descriptor_drop(arena, block);
}

uint64_t tpck_arena_orders(const struct tpck_arena *arena)
{
	return __atomic_load_n(&arena->orders, __ATOMIC_RELAXED);
}

uint64_t tpck_arena_calls(const struct tpck_arena *arena)
{
	return arena->calls;
}

void tpck_arena_done(struct tpck_arena *arena, uint64_t call)
{
	if (call > arena->done)
		arena->done = call;
}

struct tpck_block *tpck_arena_find(const struct tpck_arena *arena, uint64_t address)
{
	if (!tpck_arena_contains(arena, address))
		return NULL;
	for (struct tpck_block *block = *slot(arena, address); block; block = block->chain)
		if (block->address == address)
			return block;
	/* An interior address: rare (attribute look-ups), so a walk will do. */
	for (struct tpck_block *block = arena->live_first; block; block = block->next)
		if (address >= block->address && address - block->address < block->bytes)
			return block;
	return NULL;
}

bool tpck_arena_mapping(const struct tpck_arena *arena, uint64_t address, uint64_t *start, uint64_t *bytes)
{
	uint64_t unit = arena->device->granule, granules = arena->bytes / unit, first, end;

	if (!tpck_arena_contains(arena, address))
		return false;
	first = (address - arena->base) / unit;
	if (!bit(arena->backed, first))
		return false;
	end = first + 1;
	while (!bit(arena->begins, first))
		first--;
	while (end < granules && bit(arena->backed, end) && !bit(arena->begins, end))
		end++;
	*start = arena->base + first * unit;
	*bytes = (end - first) * unit;
	return true;
}

bool tpck_arena_contains(const struct tpck_arena *arena, uint64_t address)
{
	return address >= arena->base && address - arena->base < arena->bytes;
}

struct tpck_block *tpck_arena_first(const struct tpck_arena *arena)
{
	return arena->live_first;
}

uint64_t tpck_arena_version(const struct tpck_arena *arena)
{
	return arena->version;
}

void tpck_arena_totals(const struct tpck_arena *arena, uint64_t *blocks, uint64_t *bytes, uint64_t *backed)
{
	*blocks = arena->live_blocks;
	*bytes = arena->live_bytes;
	*backed = arena->backed_bytes;
}

void tpck_arena_share(struct tpck_arena *arena, int with)
{
	uint64_t unit = arena->device->granule;
	struct span all = {0, arena->bytes / unit}, mapping;

	if (with < 0 || with >= TPCK_ARENA_DEVICES || with == arena->ordinal || arena->shared >> with & 1)
		return;
	arena->shared |= 1ull << with;
	while (next_mapping(arena, &all, &mapping))
		(void)arena->device->share(with, arena->base + mapping.first * unit, (mapping.end - mapping.first) * unit);
}

/* Each mapping, whatever lies in it. */
static void unback_all(const struct tpck_arena *arena)
{
	uint64_t unit = arena->device->granule;
	struct span all = {0, arena->bytes / unit}, mapping;

	while (next_mapping(arena, &all, &mapping))
		arena->device->unback(arena->ordinal, arena->base + mapping.first * unit, (mapping.end - mapping.first) * unit);
}

void tpck_arena_reset(struct tpck_arena *arena)
{
	struct tpck_block *block = arena->live_first;

	unback_all(arena);
	while (block) {
		struct tpck_block *after = block->next;

		if (!block->room)
			free(block);
		block = after;
	}
	block = arena->highest;
	while (block) {
		struct tpck_block *lower = block->lower;

		free(block);
		block = lower;
	}
	while (arena->spare) {
		block = arena->spare;
		arena->spare = block->next;
		free(block);
	}
	arena->highest = arena->live_first = arena->live_last = NULL;
	memset(arena->bins, 0, sizeof arena->bins);
	memset(arena->bins_used, 0, sizeof arena->bins_used);
	memset(arena->hash, 0, sizeof arena->hash);
	memset(arena->backed, 0, 2 * (arena->bytes / arena->device->granule / 8 + 1));
	arena->top = arena->live_blocks = arena->live_bytes = arena->backed_bytes = 0;
	arena->live_room = 0;
	arena->unjoined = false;
	arena->orders = 0;
	arena->version++;
}
