/* SPDX-License-Identifier: Apache-2.0 */
/* Roles of tensors: what the launches that were gathered say. */
#include "config.h"

#include "runtime/infer/roles.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/infer/gathered.h"

enum { OPTIMIZERS = 64 };

/* ---- tensors found ------------------------------------------------------------------------------------------- */

struct finding {
	const struct tpck_image_row *rows;
	uint32_t *by_address; /* rows' numbers */
	uint32_t count;
	struct tpck_roles *roles;
	uint32_t room;
	bool failed;
	/* the list of parameters under way */
	struct tpck_gathered_launch last;
	uint32_t optimizer;
	uint64_t last_parameter;
};

static const struct tpck_image_row *sorted_rows; /* for qsort(), by the one thread that resolves */

static int by_address(const void *a, const void *b)
{
	uint64_t x = sorted_rows[*(const uint32_t *)a].address, y = sorted_rows[*(const uint32_t *)b].address;
	return x < y ? -1 : x > y;
}

/* The row that holds all of it, or UINT32_MAX. */
static uint32_t row_of(const struct finding *finding, uint64_t address, uint64_t elements, uint32_t element)
{
	uint32_t low = 0, high = finding->count, size = element >> 8;
	const struct tpck_image_row *row;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (finding->rows[finding->by_address[middle]].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0 || elements == 0 || size == 0)
		return UINT32_MAX;
	row = &finding->rows[finding->by_address[low - 1]];
	if (address - row->address >= row->bytes || elements > (row->bytes - (address - row->address)) / size)
		return UINT32_MAX;
	return finding->by_address[low - 1];
}

static void found(struct finding *finding, uint64_t address, uint64_t elements, uint32_t role, uint32_t element)
{
	uint32_t row = row_of(finding, address, elements, element);
	struct tpck_image_optimizer *optimizer = &finding->roles->optimizer[finding->optimizer];
	if (row == UINT32_MAX || role == TPCK_TENSOR_NONE)
		return;
	if (finding->roles->tensors == finding->room) {
		uint32_t room = finding->room ? finding->room * 2 : 256;
		void *grown = realloc(finding->roles->tensor, room * sizeof *finding->roles->tensor);
		if (!grown) {
			finding->failed = true;
			return;
		}
		finding->roles->tensor = grown;
		finding->room = room;
	}
	finding->roles->tensor[finding->roles->tensors++] = (struct tpck_image_tensor){
		.address = address, .elements = elements, .row = row, .role = role, .optimizer = finding->optimizer,
		.position = role < TPCK_TENSOR_STEP && optimizer->parameters ? optimizer->parameters - 1 : 0, .element = element,
	};
}

static void scalar_set(struct tpck_image_optimizer *optimizer, enum tpck_scalar which, double value)
{
	if (isnan(value))
		return;
	optimizer->known |= 1u << which;
	optimizer->scalar[which] = value;
}

/* Whether the launch has the scalars of the host's that the optimizer has. */
static bool same_scalars(const struct tpck_image_optimizer *optimizer, const struct tpck_gathered_launch *launch)
{
	for (uint32_t i = 0; i < launch->layout->scalars; i++)
		if (!launch->layout->scalar[i].on_device &&
		    memcmp(&optimizer->scalar[launch->layout->scalar[i].what], &launch->scalars[i], sizeof(double)) != 0)
			return false;
	return true;
}

/* The optimizer that the launch goes on with, or a new one. False: there are too many. */
static bool enter(struct finding *finding, const struct tpck_gathered_launch *launch, const char *suffix)
{
	struct tpck_roles *roles = finding->roles;
	struct tpck_image_optimizer *made;
	char family[sizeof made->family + 8];
	snprintf(family, sizeof family, "%.23s%s", launch->layout->family, suffix);
	family[sizeof made->family - 1] = '\0';
	if (launch->layout->listed) {
		if (finding->last.layout == launch->layout && (finding->last.lists == launch->lists || finding->last.full) &&
		    strcmp(roles->optimizer[finding->optimizer].family, family) == 0 &&
		    same_scalars(&roles->optimizer[finding->optimizer], launch)) {
			finding->last = *launch;
			return true;
		}
	} else {
		for (finding->optimizer = 0; finding->optimizer < roles->optimizers; finding->optimizer++)
			if (strcmp(roles->optimizer[finding->optimizer].family, family) == 0 &&
			    same_scalars(&roles->optimizer[finding->optimizer], launch)) {
				finding->last = *launch;
				return true;
			}
	}
	if (roles->optimizers == OPTIMIZERS) {
		finding->failed = true;
		return false;
	}
	finding->optimizer = roles->optimizers++;
	finding->last = *launch;
	finding->last_parameter = 0;
	made = &roles->optimizer[finding->optimizer];
	memset(made, 0, sizeof *made);
	memcpy(made->family, family, sizeof made->family);
	for (uint32_t i = 0; i < launch->layout->scalars; i++) {
		double value;
		memcpy(&value, &launch->scalars[i], sizeof value);
		if (!launch->layout->scalar[i].on_device)
			scalar_set(made, launch->layout->scalar[i].what, value);
	}
	return true;
}

/* The next parameter of the list; one that a launch had no room for comes again in the next. */
static void next_parameter(struct finding *finding, uint64_t address)
{
	if (address != finding->last_parameter)
		finding->roles->optimizer[finding->optimizer].parameters++;
	finding->last_parameter = address;
}

/* ---- kernels that make a whole step -------------------------------------------------------------------------- */

static void resolve_step(struct finding *finding, const struct tpck_gathered_launch *launch)
{
	const struct tpck_layout *layout = launch->layout;
	uint32_t n = launch->tensors, of = 0;
	for (uint32_t list = 0; list < layout->lists; list++) {
		if (layout->role[list] == TPCK_TENSOR_PARAMETER)
			of = list;
		for (uint32_t i = 0; i < n && layout->role[list] != TPCK_TENSOR_GRADIENT; i++)
			if (layout->role[list] != TPCK_TENSOR_NONE &&
			    row_of(finding, launch->lists[list * n + i], launch->elements[i], layout->element[list]) == UINT32_MAX)
				return; /* an address that is none: nothing of it is believed */
	}
	if (!enter(finding, launch, ""))
		return;
	for (uint32_t i = 0; i < n; i++) {
		next_parameter(finding, launch->lists[of * n + i]);
		for (uint32_t list = 0; list < layout->lists; list++)
			found(finding, launch->lists[list * n + i], launch->elements[i], layout->role[list], layout->element[list]);
		if (launch->steps)
			found(finding, launch->steps[i], 1, TPCK_TENSOR_STEP, 'f' | 4 << 8);
	}
	for (uint32_t i = 0; i < layout->scalars; i++)
		if (layout->scalar[i].on_device && launch->scalars[i])
			found(finding, launch->scalars[i], 1, layout->scalar[i].what, 'f' | 4 << 8);
}

/* ---- elementwise operations ---------------------------------------------------------------------------------- */

/* One of an operation's tensors. */
struct item {
	uint64_t key;     /* by which it is looked for */
	uint64_t a, b, c; /* as in enum tpck_layout_kind */
	uint64_t written;
	uint64_t elements;
	double value;
	uint32_t order, launch_at;
	uint32_t kind, element;
};

struct write {
	uint64_t address;
	uint32_t order;
};

struct items {
	struct item *item;
	struct write *written; /* sorted */
	uint32_t count;
};

static int by_kind_and_key(const void *a, const void *b)
{
	const struct item *x = a, *y = b;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

static int by_order(const void *a, const void *b)
{
	const struct item *x = *(const struct item *const *)a, *y = *(const struct item *const *)b;
	return x->order < y->order ? -1 : x->order > y->order;
}

static int by_write(const void *a, const void *b)
{
	const struct write *x = a, *y = b;
	if (x->address != y->address)
		return x->address < y->address ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

static struct item item_of(const struct tpck_gathered_launch *launch, uint32_t i)
{
	const struct tpck_layout *layout = launch->layout;
	uint64_t at[TPCK_LAYOUT_LISTS] = {0};
	struct item item = {.kind = layout->kind, .elements = launch->elements[i], .value = launch->value,
						.element = layout->element[0]};
	for (uint32_t list = 0; list < layout->lists; list++)
		at[list] = launch->lists[list * launch->tensors + i];
	item.written = at[layout->written];
	if (!layout->listed) { /* what is written, what is read in its place, the others */
		if (at[0] != at[1])
			item.kind = TPCK_LAYOUT_WRITE;
		at[1] = at[2];
		at[2] = at[3];
	}
	item.a = at[0];
	item.b = at[1];
	item.c = at[2];
	item.key = item.kind == TPCK_LAYOUT_ADDCMUL ? item.b : item.kind == TPCK_LAYOUT_SUM ? item.c : item.a;
	return item;
}

static int items_make(const struct tpck_gathered *gathered, struct items *items)
{
	struct tpck_gathered_launch launch;
	uint32_t total = 0;
	for (uint32_t at = 0; at < gathered->used;) {
		at = tpck_gathered_read(gathered, at, &launch);
		total += launch.layout->kind == TPCK_LAYOUT_STEP ? 0 : launch.tensors;
	}
	items->count = total;
	items->item = malloc((total ? total : 1) * sizeof *items->item);
	items->written = malloc((total ? total : 1) * sizeof *items->written);
	if (!items->item || !items->written)
		return -ENOMEM;
	total = 0;
	for (uint32_t at = 0, from = 0; at < gathered->used; from = at) {
		at = tpck_gathered_read(gathered, at, &launch);
		for (uint32_t i = 0; i < launch.tensors && launch.layout->kind != TPCK_LAYOUT_STEP; i++, total++) {
			items->item[total] = item_of(&launch, i);
			items->item[total].order = total;
			items->item[total].launch_at = from;
			items->written[total] = (struct write){items->item[total].written, total};
		}
	}
	qsort(items->item, total, sizeof *items->item, by_kind_and_key);
	qsort(items->written, total, sizeof *items->written, by_write);
	return 0;
}

/* The last operation of the kind with this key before `order`, or NULL. */
static const struct item *item_before(const struct items *items, uint32_t kind, uint64_t key, uint32_t order)
{
	struct item wanted = {.kind = kind, .key = key, .order = order};
	uint32_t low = 0, high = items->count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (by_kind_and_key(&items->item[middle], &wanted) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0 || items->item[low - 1].kind != kind || items->item[low - 1].key != key)
		return NULL;
	return &items->item[low - 1];
}

/* How often an address is written by the operations from..until, the latter not included. */
static uint32_t writes(const struct items *items, uint64_t address, uint32_t from, uint32_t until)
{
	struct write wanted = {address, from};
	uint32_t low = 0, high = items->count, count = 0;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (by_write(&items->written[middle], &wanted) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	while (low + count < items->count && items->written[low + count].address == address &&
	       items->written[low + count].order < until)
		count++;
	return count;
}

/* The gradient behind g as the operation `user` reads it, which may be g with the parameter's decay added; 0: it is not
 * known. A temporary tensor's memory may hold others before and after. */
static uint64_t gradient_behind(const struct items *items, uint64_t g, uint64_t parameter, const struct item *user)
{
	const struct item *sum = item_before(items, TPCK_LAYOUT_SUM, g, user->order);
	if (!sum)
		return writes(items, g, 0, user->order) == 0 ? g : 0;
	return sum->b == parameter && writes(items, g, sum->order + 1, user->order) == 0 && writes(items, sum->a, 0, user->order) == 0
		       ? sum->a
		       : 0;
}

struct parts {
	uint64_t gradient, moment1, moment2;
	const struct item *lerp, *square;
	const char *suffix;
};

/* p += value x / d: x is the first moment, or the gradient itself. */
static bool divided(const struct items *items, const struct item *item, struct parts *parts)
{
	uint64_t g = item->b;
	parts->lerp = item_before(items, TPCK_LAYOUT_LERP, item->b, item->order);
	if (parts->lerp) {
		parts->moment1 = item->b;
		g = parts->lerp->b;
	}
	parts->square = item_before(items, TPCK_LAYOUT_ADDCMUL, g, item->order);
	if (parts->square && parts->square->c != g)
		parts->square = NULL;
	if (!parts->lerp && !parts->square)
		return false;
	if (parts->square)
		parts->moment2 = parts->square->a;
	parts->gradient = gradient_behind(items, g, item->a, parts->lerp ? parts->lerp : parts->square);
	parts->suffix = parts->lerp && parts->square ? " adam" : "";
	return true;
}

/* p += value x: x is the gradient, or a momentum x = value x + g that nothing else writes. A parameter is written
 * once: an average that follows it is scaled before. */
static bool added(const struct items *items, const struct item *item, struct parts *parts)
{
	const struct item *momentum = item_before(items, TPCK_LAYOUT_ADD, item->b, item->order);
	if (writes(items, item->a, 0, items->count) != 1)
		return false;
	parts->suffix = " sgd";
	if (!momentum) {
		parts->gradient = gradient_behind(items, item->b, item->a, item);
		return parts->gradient != 0;
	}
	if (!item_before(items, TPCK_LAYOUT_SCALE, item->b, momentum->order) ||
	    writes(items, item->b, 0, item->order) != 2)
		return false;
	parts->moment1 = item->b;
	parts->gradient = gradient_behind(items, momentum->b, item->a, momentum);
	return parts->gradient != 0;
}

static void note_scalars(struct finding *finding, const struct items *items, const struct item *item, const struct parts *parts)
{
	struct tpck_image_optimizer *optimizer = &finding->roles->optimizer[finding->optimizer];
	const struct item *scale;
	if (item->kind == TPCK_LAYOUT_ADD) {
		scalar_set(optimizer, TPCK_SCALAR_LR, -item->value);
		scale = parts->moment1 ? item_before(items, TPCK_LAYOUT_SCALE, parts->moment1, item->order) : NULL;
		if (scale)
			scalar_set(optimizer, TPCK_SCALAR_MOMENTUM, scale->value);
		return;
	}
	scalar_set(optimizer, TPCK_SCALAR_STEP_SIZE, item->value);
	if (parts->lerp)
		scalar_set(optimizer, TPCK_SCALAR_BETA1, 1 - parts->lerp->value);
	scale = parts->square ? item_before(items, TPCK_LAYOUT_SCALE, parts->moment2, item->order) : NULL;
	if (scale)
		scalar_set(optimizer, TPCK_SCALAR_BETA2, scale->value);
}

static void resolve_item(struct finding *finding, const struct tpck_gathered *gathered, const struct items *items,
			 const struct item *item)
{
	struct parts parts = {0};
	struct tpck_gathered_launch launch;
	if (item->kind == TPCK_LAYOUT_ADDCDIV ? !divided(items, item, &parts)
					      : item->kind != TPCK_LAYOUT_ADD || gathered->unknown || !added(items, item, &parts))
		return;
	tpck_gathered_read(gathered, item->launch_at, &launch);
	if (row_of(finding, item->a, item->elements, item->element) == UINT32_MAX || !enter(finding, &launch, parts.suffix))
		return;
	next_parameter(finding, item->a);
	note_scalars(finding, items, item, &parts);
	found(finding, item->a, item->elements, TPCK_TENSOR_PARAMETER, item->element);
	found(finding, parts.gradient, item->elements, TPCK_TENSOR_GRADIENT, item->element);
	found(finding, parts.moment1, item->elements, TPCK_TENSOR_MOMENT1, item->element);
	found(finding, parts.moment2, item->elements, TPCK_TENSOR_MOMENT2, item->element);
}

static int resolve_items(struct finding *finding, const struct tpck_gathered *gathered)
{
	struct items items = {0};
	const struct item **in_order = NULL;
	int result = items_make(gathered, &items);
	if (!result) {
		in_order = malloc((items.count ? items.count : 1) * sizeof *in_order);
		result = in_order ? 0 : -ENOMEM;
	}
	if (!result) {
		for (uint32_t i = 0; i < items.count; i++)
			in_order[i] = &items.item[i];
		qsort(in_order, items.count, sizeof *in_order, by_order);
		for (uint32_t i = 0; i < items.count; i++)
			resolve_item(finding, gathered, &items, in_order[i]);
	}
	free(in_order);
	free(items.item);
	free(items.written);
	return result;
}

/* ---- what they all say --------------------------------------------------------------------------------------- */

static int tensor_by_address(const void *a, const void *b)
{
	const struct tpck_image_tensor *x = a, *y = b;
	if (x->address != y->address)
		return x->address < y->address ? -1 : 1;
	if (x->optimizer != y->optimizer)
		return x->optimizer < y->optimizer ? -1 : 1;
	return x->position < y->position ? -1 : x->position > y->position;
}

static uint64_t end_of(const struct tpck_image_tensor *tensor)
{
	return tensor->address + tensor->elements * (tensor->element >> 8);
}

/* One row for what was named several times in the same way; none for what was named in two, or overlaps. */
static void settle(struct tpck_roles *roles)
{
	uint32_t kept = 0;
	if (roles->tensors)
		qsort(roles->tensor, roles->tensors, sizeof *roles->tensor, tensor_by_address);
	for (uint32_t i = 0, next; i < roles->tensors; i = next) {
		struct tpck_image_tensor tensor = roles->tensor[i];
		uint64_t end = end_of(&tensor);
		bool agreed = true;
		for (next = i + 1; next < roles->tensors && roles->tensor[next].address < end; next++) {
			const struct tpck_image_tensor *other = &roles->tensor[next];
			agreed = agreed && other->address == tensor.address && other->role == tensor.role &&
				 other->elements == tensor.elements && other->element == tensor.element;
			if (end_of(other) > end)
				end = end_of(other);
		}
		if (agreed)
			roles->tensor[kept++] = tensor;
	}
	roles->tensors = kept;
}

int tpck_roles_resolve(const struct tpck_gathered *gathered, const struct tpck_image_row *rows, uint32_t count,
		       struct tpck_roles *roles)
{
	struct finding finding = {.rows = rows, .count = count, .roles = roles};
	struct tpck_gathered_launch launch;
	int result;
	*roles = (struct tpck_roles){0};
	if (!gathered || gathered->overflown || !gathered->used || !count)
		return 0;
	finding.by_address = malloc(count * sizeof *finding.by_address);
	roles->optimizer = calloc(OPTIMIZERS, sizeof *roles->optimizer);
	result = finding.by_address && roles->optimizer ? 0 : -ENOMEM;
	if (!result) {
		for (uint32_t i = 0; i < count; i++)
			finding.by_address[i] = i;
		sorted_rows = rows;
		qsort(finding.by_address, count, sizeof *finding.by_address, by_address);
		for (uint32_t at = 0; at < gathered->used;) {
			at = tpck_gathered_read(gathered, at, &launch);
			if (launch.layout->kind == TPCK_LAYOUT_STEP)
				resolve_step(&finding, &launch);
		}
		result = resolve_items(&finding, gathered);
	}
	free(finding.by_address);
	if (result || finding.failed) {
		tpck_roles_free(roles);
		return result;
	}
	settle(roles);
	return 0;
}

static enum tpck_scalar scalar_of(uint32_t role)
{
	switch (role) {
	case TPCK_TENSOR_STEP:
		return TPCK_SCALAR_STEP;
	case TPCK_TENSOR_LR:
		return TPCK_SCALAR_LR;
	case TPCK_TENSOR_GRAD_SCALE:
		return TPCK_SCALAR_GRAD_SCALE;
	case TPCK_TENSOR_FOUND_INF:
		return TPCK_SCALAR_FOUND_INF;
	default:
		return TPCK_SCALARS;
	}
}

void tpck_roles_read_scalars(const struct tpck_roles *roles, const struct tpck_image_row *rows, uint32_t count, const char *data)
{
	for (uint32_t i = 0; i < roles->tensors; i++) {
		const struct tpck_image_tensor *tensor = &roles->tensor[i];
		enum tpck_scalar scalar = scalar_of(tensor->role);
		const struct tpck_image_row *row = tensor->row < count ? &rows[tensor->row] : NULL;
		float value;

		if (scalar == TPCK_SCALARS || !row || row->data_offset == UINT64_MAX || tensor->element != ('f' | 4 << 8) ||
		    tensor->address < row->address || tensor->address - row->address + sizeof value > row->bytes)
			continue;
		memcpy(&value, data + row->data_offset + (tensor->address - row->address), sizeof value);
		/* A scaler serves every optimizer of a step, and its numbers are named by one. */
		for (uint32_t o = 0; o < roles->optimizers; o++)
			if ((o == tensor->optimizer || scalar >= TPCK_SCALAR_GRAD_SCALE) && !(roles->optimizer[o].known & 1u << scalar)) {
				roles->optimizer[o].scalar[scalar] = (double)value;
				roles->optimizer[o].known |= 1u << scalar;
			}
	}
}

void tpck_roles_free(struct tpck_roles *roles)
{
	free(roles->tensor);
	free(roles->optimizer);
	*roles = (struct tpck_roles){0};
}

const char *tpck_tensor_role_name(uint32_t role)
{
	static const char *const names[TPCK_TENSOR_ROLES] = {"",      "parameters", "gradients",  "first moments", "second moments",
							     "optimizer state", "steps", "lr", "grad_scale", "found_inf"};
	return role < TPCK_TENSOR_ROLES ? names[role] : "";
}
