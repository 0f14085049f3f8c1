/* SPDX-License-Identifier: Apache-2.0 */
/* Gathering the launches of an optimizer phase, as they are made. */
#include "config.h"

#include "runtime/base/lock_order.h"
#include "runtime/infer/gathered.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
	ROOM_FIRST = 8 << 10, ROOM_MOST = 1 << 20, /* words gathered in an iteration: 8 MiB */
};

static struct tpck_gathered *now;
static _Atomic(struct tpck_gathered *) spare;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct tpck_gathered *begin(void)
{
	struct tpck_gathered *fresh = __atomic_exchange_n((struct tpck_gathered **)&spare, NULL, __ATOMIC_ACQ_REL);
	if (!fresh) {
		fresh = malloc(sizeof *fresh + ROOM_FIRST * sizeof *fresh->word);
		if (fresh)
			fresh->room = ROOM_FIRST;
	}
	if (fresh) {
		fresh->used = 0;
		fresh->overflown = fresh->unknown = false;
	}
	return fresh;
}

/* Room for so many words, or NULL. */
static uint64_t *words(uint32_t count)
{
	struct tpck_gathered *grown;
	if (!now)
		now = begin();
	if (!now || now->overflown)
		return NULL;
	if (now->room - now->used < count) {
		uint32_t room = now->room;
		while (room - now->used < count && room < ROOM_MOST)
			room *= 2;
		grown = room - now->used < count ? NULL : realloc(now, sizeof *now + room * sizeof *now->word);
		if (!grown) {
			now->overflown = true;
			return NULL;
		}
		now = grown;
		now->room = room;
	}
	now->used += count;
	return &now->word[now->used - count];
}

static uint64_t real_at(const void *at, uint32_t bytes)
{
	double value = NAN;
	float single;
	uint64_t word;
	if (bytes == 4) {
		memcpy(&single, at, sizeof single);
		value = single;
	} else if (bytes == 8) {
		memcpy(&value, at, sizeof value);
	}
	memcpy(&word, &value, sizeof word);
	return word;
}

static uint64_t integer_at(const void *at, uint32_t bytes)
{
	uint64_t wide = 0;
	uint32_t narrow;
	if (bytes == 8) {
		memcpy(&wide, at, sizeof wide);
	} else {
		memcpy(&narrow, at, sizeof narrow);
		wide = narrow;
	}
	return wide;
}

static uint64_t scalar_at(const struct tpck_layout_scalar *scalar, const void *at)
{
	double value;
	uint64_t word;
	if (scalar->on_device)
		return integer_at(at, 8);
	if (!scalar->integer)
		return real_at(at, scalar->bytes);
	value = (double)(int32_t)integer_at(at, 4);
	memcpy(&word, &value, sizeof word);
	return word;
}

/* How many tensors the launch works on; 0: it is not as the layout has it. */
static uint32_t launch_tensors(const struct tpck_layout *layout, void *const *parameters, const uint32_t grid[3])
{
	const uint8_t *lists, *blocks;
	uint32_t last;
	if (grid[1] != 1 || grid[2] != 1)
		return 0;
	if (!layout->listed)
		return 1;
	if (grid[0] == 0 || grid[0] > layout->blocks)
		return 0;
	lists = parameters[layout->parameter];
	blocks = lists + layout->block_tensors_at;
	last = layout->block_tensor_bytes == 2 ? (uint32_t)(blocks[2 * (grid[0] - 1)] | blocks[2 * (grid[0] - 1) + 1] << 8)
					       : blocks[grid[0] - 1];
	return last < layout->room ? last + 1 : 0;
}

static void gather_lists(const struct tpck_layout *layout, const uint8_t *lists, uint32_t tensors, uint64_t *out)
{
	for (uint32_t list = 0; list < layout->lists; list++, out += tensors)
		memcpy(out, lists + (size_t)list * layout->room * 8, tensors * sizeof *out);
	for (uint32_t i = 0; i < tensors; i++)
		*out++ = integer_at(lists + layout->numels_at + (size_t)i * layout->numel_bytes, layout->numel_bytes);
	if (layout->steps_at)
		memcpy(out, lists + layout->steps_at, tensors * sizeof *out);
}

void tpck_roles_launch(const struct tpck_layout *layout, void *const *parameters, const uint32_t grid[3])
{
	uint32_t tensors = parameters ? launch_tensors(layout, parameters, grid) : 0;
	uint64_t *out;
	pthread_mutex_lock(&lock);
	out = tensors ? words(TPCK_GATHERED_HEAD + layout->scalars + tensors * (layout->lists + 1 + (layout->steps_at != 0))) : NULL;
	if (!out) {
		if (now)
			now->unknown = true;
		pthread_mutex_unlock(&lock);
		return;
	}
	*out++ = (uintptr_t)layout;
	*out++ = tensors | (uint64_t)(tensors == layout->room || grid[0] == layout->blocks) << 32;
	if (layout->value_bytes)
		*out++ = real_at((const char *)parameters[layout->value] + layout->value_at, layout->value_bytes);
	else if (layout->values_at)
		*out++ = real_at((const char *)parameters[layout->parameter] + layout->values_at,
				 layout->element[0] == ('f' | 8 << 8) ? 8 : 4);
	else
		*out++ = real_at(NULL, 0);
	for (uint32_t i = 0; i < layout->scalars; i++)
		*out++ = scalar_at(&layout->scalar[i], parameters[layout->scalar[i].parameter]);
	if (layout->listed) {
		gather_lists(layout, parameters[layout->parameter], tensors, out);
	} else {
		for (uint32_t list = 0; list < layout->lists; list++)
			*out++ = integer_at((const char *)parameters[layout->pointer[list]] + layout->pointer_at[list], 8);
		*out = integer_at(parameters[layout->count], layout->count_bytes);
	}
	pthread_mutex_unlock(&lock);
}

void tpck_roles_unknown(void)
{
	pthread_mutex_lock(&lock);
	if (!now)
		now = begin();
	if (now)
		now->unknown = true;
	pthread_mutex_unlock(&lock);
}

static bool told_the_same(const struct tpck_gathered_launch *launch, const struct tpck_gathered_launch *before)
{
	return before->layout == launch->layout && memcmp(&before->value, &launch->value, sizeof launch->value) == 0 &&
	       memcmp(before->scalars, launch->scalars, launch->layout->scalars * sizeof *launch->scalars) == 0;
}

size_t tpck_roles_scalars(struct tpck_roles_scalar *scalars, size_t room)
{
	struct tpck_gathered_launch launch, before = {0};
	size_t count = 0;
	pthread_mutex_lock(&lock);
	for (uint32_t at = 0, number = 0; now && !now->overflown && at < now->used; number++, before = launch) {
		at = tpck_gathered_read(now, at, &launch);
		if (told_the_same(&launch, &before))
			continue;
		if (!isnan(launch.value) && count < room)
			scalars[count++] = (struct tpck_roles_scalar){number, TPCK_SCALARS, launch.value};
		for (uint32_t i = 0; i < launch.layout->scalars && count < room; i++) {
			double value;
			if (launch.layout->scalar[i].on_device)
				continue;
			memcpy(&value, &launch.scalars[i], sizeof value);
			scalars[count++] = (struct tpck_roles_scalar){number, launch.layout->scalar[i].what, value};
		}
	}
	pthread_mutex_unlock(&lock);
	return count;
}

struct tpck_gathered *tpck_roles_take(void)
{
	struct tpck_gathered *taken;
	pthread_mutex_lock(&lock);
	taken = now;
	now = NULL;
	pthread_mutex_unlock(&lock);
	return taken;
}

void tpck_roles_forget(void)
{
	pthread_mutex_lock(&lock);
	if (now) {
		now->used = 0;
		now->overflown = now->unknown = false;
	}
	pthread_mutex_unlock(&lock);
}

void tpck_roles_give_back(struct tpck_gathered *gathered)
{
	if (gathered)
		free(__atomic_exchange_n((struct tpck_gathered **)&spare, gathered, __ATOMIC_ACQ_REL));
}
