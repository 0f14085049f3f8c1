/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of the parameters of optimizer kernels, by name and checked against the function's own description. */
#include "config.h"

#include "runtime/infer/layouts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/infer/kernel_names.h"

#define ELEMENT(letter, bytes) ((uint32_t)(letter) | (uint32_t)(bytes) << 8)
#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* What the letters mean says optimizers.def. */
enum list_form { LISTS, LISTS_WITH_STEPS, LISTS_WITH_SCALARS };

static const struct list_row {
	const char *functor;
	enum list_form form;
	uint32_t lists;
	const char *roles;
	const char *letters;
	uint32_t real_bytes;
	char types;
	const char *family;
} list_rows[] = {
#define TPCK_LIST_LAYOUT(...) {__VA_ARGS__},
#include "runtime/infer/optimizers.def"
};

static const struct functor_row {
	const char *functor;
	enum list_form form;
	const char *letters;
} functor_rows[] = {
#define TPCK_LIST_OPERATION(...) {__VA_ARGS__},
#include "runtime/infer/optimizers.def"
};

static const struct operation_row {
	const char *functor, *arguments, *operation;
	enum tpck_layout_kind kind;
} operation_rows[] = {
#define TPCK_LIST_MEANING(functor, arguments, operation, kind) {functor, arguments, operation, TPCK_LAYOUT_##kind},
#include "runtime/infer/optimizers.def"
};

static const struct tensor_row {
	const char *begin, *end; /* of the mangled name */
	const char *letters;
	const char *family;
} tensor_rows[] = {
#define TPCK_TENSOR_LAYOUT(...) {__VA_ARGS__},
#include "runtime/infer/optimizers.def"
};

static const struct elementwise_row {
	const char *part;
	uint32_t pointers;
	enum tpck_layout_kind kind;
} elementwise_rows[] = {
#define TPCK_ELEMENTWISE(part, pointers, kind) {part, pointers, TPCK_LAYOUT_##kind},
#include "runtime/infer/optimizers.def"
};

/* ---- types --------------------------------------------------------------------------------------------------- */

/* The type that a mangled name has at `text`, and in *length how long it is there; both 0: none that is known. */
static uint32_t element_at(const char *text, size_t *length)
{
	static const struct {
		const char *mangled;
		uint32_t element;
	} types[] = {
		{"f", ELEMENT('f', 4)},  {"d", ELEMENT('f', 8)}, {"N3c108BFloat16E", ELEMENT('b', 2)}, {"N3c104HalfE", ELEMENT('f', 2)},
		{"13__nv_bfloat16", ELEMENT('b', 2)}, {"6__half", ELEMENT('f', 2)},
	};
	for (size_t i = 0; i < LENGTH(types); i++) {
		*length = strlen(types[i].mangled);
		if (strncmp(text, types[i].mangled, *length) == 0)
			return types[i].element;
	}
	*length = 0;
	return 0;
}

static uint32_t role_of(char letter)
{
	switch (letter) {
	case 'p':
		return TPCK_TENSOR_PARAMETER;
	case 'g':
		return TPCK_TENSOR_GRADIENT;
	case 'm':
		return TPCK_TENSOR_MOMENT1;
	case 'v':
		return TPCK_TENSOR_MOMENT2;
	case 'x':
	case 'o':
		return TPCK_TENSOR_STATE;
	default:
		return TPCK_TENSOR_NONE;
	}
}

/* ---- structures of lists ------------------------------------------------------------------------------------- */

/* How many tensors and thread blocks there are for each number of lists: since CUDA 12.1's 32764 bytes of parameters,
 * and before, where everybody else's kernels still are. */
static const uint32_t wide_room[] = {770, 448, 336, 252, 0}, wide_steps_room[] = {0, 0, 336, 252, 210},
		      wide_scalars_room[] = {672, 448, 336, 252, 0},
		      narrow_room[] = {110, 64, 48, 36, 30}, narrow_scalars_room[] = {96, 64, 48, 36, 0};

static uint32_t align_to(uint32_t at, uint32_t to)
{
	return (at + to - 1) / to * to;
}

/* The structure of so many lists, and its bytes. */
static uint32_t list_structure(struct tpck_layout *layout, enum list_form form, bool wide, uint32_t numel_bytes,
			       uint32_t scalar_bytes)
{
	uint32_t d = layout->lists - 1, at;
	const uint32_t *rooms = form == LISTS_WITH_SCALARS ? (wide ? wide_scalars_room : narrow_scalars_room)
				: !wide                    ? narrow_room
				: form == LISTS_WITH_STEPS ? wide_steps_room
							   : wide_room;
	layout->room = rooms[d];
	layout->blocks = wide ? 2240 : 320;
	layout->numel_bytes = numel_bytes;
	layout->numels_at = layout->lists * layout->room * 8;
	at = layout->numels_at + layout->room * numel_bytes;
	layout->steps_at = layout->values_at = 0;
	if (form == LISTS_WITH_STEPS) {
		layout->steps_at = at;
		at += layout->room * 8;
	} else if (form == LISTS_WITH_SCALARS) {
		layout->values_at = at;
		at += layout->room * scalar_bytes;
	}
	layout->block_tensors_at = at;
	layout->block_tensor_bytes = wide ? 2 : 1;
	at = align_to(at + layout->blocks * layout->block_tensor_bytes, 4) + layout->blocks * 4;
	if (form != LISTS_WITH_SCALARS)
		at += 4; /* where in the lists this launch begins */
	return align_to(at, 8);
}

/* Finds the form in which the structure has exactly the bytes that the parameter has. */
static bool list_form(struct tpck_layout *layout, enum list_form form, uint32_t bytes)
{
	uint32_t scalar_bytes = layout->element[0] == ELEMENT('f', 8) ? 8 : 4;
	for (int wide = 1; wide >= 0; wide--)
		for (uint32_t numel_bytes = 8; numel_bytes >= 4; numel_bytes -= 4)
			if (!(wide && numel_bytes == 4) && list_structure(layout, form, wide, numel_bytes, scalar_bytes) == bytes)
				return layout->room != 0;
	return false;
}

/* ---- parameters, a letter each ------------------------------------------------------------------------------- */

struct reading {
	struct tpck_layout *layout;
	const struct tpck_parameter *parameters;
	uint32_t real_bytes, value_bytes;
	enum list_form form;
};

static void add_scalar(struct tpck_layout *layout, uint32_t parameter, uint32_t bytes, uint32_t what, bool on_device,
		       bool integer)
{
	if (layout->scalars < TPCK_LAYOUT_SCALARS)
		layout->scalar[layout->scalars++] =
			(struct tpck_layout_scalar){(uint8_t)parameter, (uint8_t)bytes, (uint8_t)what, on_device, integer};
}

/* Takes in parameter i as the letter says. The bytes that it must have; 0: anything from 4 to 8 that is no odd number. */
static uint32_t read_letter(struct reading *r, char letter, uint32_t i)
{
	struct tpck_layout *layout = r->layout;
	switch (letter) {
	case 'T':
		layout->listed = true;
		layout->parameter = i;
		return list_form(layout, r->form, r->parameters[i].size) ? r->parameters[i].size : UINT32_MAX;
	case '#':
		layout->count = i;
		layout->count_bytes = r->parameters[i].size;
		return r->parameters[i].size == 4 || r->parameters[i].size == 8 ? r->parameters[i].size : UINT32_MAX;
	case 'A':
		add_scalar(layout, i, r->real_bytes, TPCK_SCALAR_LR, false, false);
		return r->real_bytes;
	case '1':
		add_scalar(layout, i, r->real_bytes, TPCK_SCALAR_BETA1, false, false);
		return r->real_bytes;
	case '2':
		add_scalar(layout, i, r->real_bytes, TPCK_SCALAR_BETA2, false, false);
		return r->real_bytes;
	case 'E':
		add_scalar(layout, i, r->real_bytes, TPCK_SCALAR_EPS, false, false);
		return r->real_bytes;
	case 'W':
		add_scalar(layout, i, r->real_bytes, TPCK_SCALAR_WEIGHT_DECAY, false, false);
		return r->real_bytes;
	case 'M':
		add_scalar(layout, i, r->real_bytes, TPCK_SCALAR_MOMENTUM, false, false);
		return r->real_bytes;
	case 'S':
		add_scalar(layout, i, 4, TPCK_SCALAR_STEP, false, true);
		return 4;
	case '.':
		return r->real_bytes;
	case 'L':
		add_scalar(layout, i, 8, TPCK_TENSOR_LR, true, false);
		return 8;
	case 'G':
		add_scalar(layout, i, 8, TPCK_TENSOR_GRAD_SCALE, true, false);
		return 8;
	case 'I':
		add_scalar(layout, i, 8, TPCK_TENSOR_FOUND_INF, true, false);
		return 8;
	case 'a':
		layout->value = i;
		layout->value_bytes = r->value_bytes;
		return r->value_bytes;
	case 'F':
	case 'b':
		return 1;
	case 'i':
		return 4;
	case 'q':
		return 8;
	default: /* a tensor */
		if (layout->lists == TPCK_LAYOUT_LISTS)
			return UINT32_MAX;
		layout->pointer[layout->lists] = i;
		layout->role[layout->lists++] = role_of(letter);
		return 8;
	}
}

/* Whether the function's parameters are what the letters say, to the byte. */
static bool read_letters(struct reading *r, const char *letters, uint32_t count)
{
	uint32_t at = 0;
	if (strlen(letters) != count)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t bytes = read_letter(r, letters[i], i);
		if (bytes != r->parameters[i].size)
			return false;
		at = align_to(at, bytes >= 8 ? 8 : bytes >= 4 ? 4 : 1);
		if (r->parameters[i].offset != at)
			return false;
		at += bytes;
	}
	return true;
}

/* ---- kernels that get lists ---------------------------------------------------------------------------------- */

/* The number of lists in "TensorListMetadataILi4E", "FusedOptimizerTensorListMetadataILi4E", "TensorListScalarListMetadata
 * IfLi3E"; 0: not of this form. */
static uint32_t depth_of(const char *name, enum list_form form)
{
	static const char *const parts[] = {"18TensorListMetadataILi", "32FusedOptimizerTensorListMetadataILi",
					    "28TensorListScalarListMetadataI"};
	const char *at = strstr(name, parts[form]);
	size_t length;
	if (!at)
		return 0;
	at += strlen(parts[form]);
	if (form == LISTS_WITH_SCALARS) {
		if (!element_at(at, &length) || strncmp(at + length, "Li", 2) != 0)
			return 0;
		at += length + 2;
	}
	return isdigit((unsigned char)at[0]) && at[1] == 'E' ? (uint32_t)(at[0] - '0') : 0;
}

/* The types of the lists from the functor's template arguments. */
static bool list_types(struct tpck_layout *layout, char types, const char *arguments)
{
	size_t length;
	uint32_t first = element_at(arguments, &length);
	for (uint32_t i = 0; i < layout->lists; i++)
		layout->element[i] = first;
	if (types == 'M') {
		for (uint32_t i = 0; i < layout->lists; i++)
			layout->element[i] = i < 2 ? ELEMENT('f', 4) : ELEMENT('b', 2);
		return true;
	}
	if (!first || types == '0')
		return first != 0;
	/* DeepSpeed: <T, index>, Apex: <T, float, index>, TransformerEngine: <parameter, gradient, moments, index>, which is
     * taken where all are float. */
	arguments += length;
	if (first == ELEMENT('f', 4) && strncmp(arguments, "ff", 2) == 0)
		arguments += 2;
	else if (*arguments == 'f')
		arguments++;
	return first && (*arguments == 'i' || *arguments == 'l') && arguments[1] == 'E';
}

static bool find_step(const char *name, const struct tpck_parameter *parameters, uint32_t count, struct tpck_layout *layout)
{
	for (size_t i = 0; i < LENGTH(list_rows); i++) {
		const struct list_row *row = &list_rows[i];
		const char *functor = strstr(name, row->functor);
		struct reading reading = {layout, parameters, row->real_bytes, 0, row->form};
		if (!functor || depth_of(name, row->form) != row->lists)
			continue;
		*layout = (struct tpck_layout){.kind = TPCK_LAYOUT_STEP, .lists = row->lists};
		for (uint32_t list = 0; list < row->lists; list++)
			layout->role[list] = role_of(row->roles[list]);
		snprintf(layout->family, sizeof layout->family, "%s", row->family);
		if (list_types(layout, row->types, functor + strlen(row->functor)) && read_letters(&reading, row->letters, count))
			return true;
	}
	return false;
}

/* "Li3ELi2ELi2E": how many lists there are, and which is written. */
static bool list_digits(const char *text, uint32_t *lists, uint32_t *written)
{
	for (int i = 0; i < 3; i++)
		if (strncmp(text + 4 * i, "Li", 2) != 0 || !isdigit((unsigned char)text[4 * i + 2]) || text[4 * i + 3] != 'E')
			return false;
	*lists = (uint32_t)(text[2] - '0');
	*written = (uint32_t)(text[10] - '0');
	return *lists >= 1 && *lists < TPCK_LAYOUT_LISTS && *written < *lists;
}

static enum tpck_layout_kind operation_of(const char *functor, const char *arguments)
{
	for (size_t i = 0; i < LENGTH(operation_rows); i++) {
		const struct operation_row *row = &operation_rows[i];
		if (strcmp(functor, row->functor) == 0 && strncmp(arguments, row->arguments, strlen(row->arguments)) == 0 &&
		    strstr(arguments, row->operation))
			return row->kind;
	}
	return TPCK_LAYOUT_WRITE;
}

static bool find_operation(const char *name, const struct tpck_parameter *parameters, uint32_t count, struct tpck_layout *layout)
{
	for (size_t i = 0; i < LENGTH(functor_rows); i++) {
		const struct functor_row *row = &functor_rows[i];
		const char *arguments = strstr(name, row->functor);
		struct reading reading = {layout, parameters, 8, 4, row->form};
		uint32_t element, lists, written;
		size_t length, second;
		if (!arguments)
			continue;
		arguments += strlen(row->functor);
		element = element_at(arguments, &length);
		if (!element)
			continue;
		arguments += length;
		if (element_at(arguments, &second)) /* a copy into another type */
			arguments += second;
		if (!list_digits(arguments, &lists, &written) || depth_of(name, row->form) != lists)
			continue;
		*layout = (struct tpck_layout){.kind = operation_of(row->functor, arguments), .lists = lists, .written = written};
		for (uint32_t list = 0; list < lists; list++)
			layout->element[list] = element;
		snprintf(layout->family, sizeof layout->family, "torch foreach");
		reading.value_bytes = element == ELEMENT('f', 8) ? 8 : 4;
		if (read_letters(&reading, row->letters, count))
			return true;
	}
	return false;
}

/* ---- kernels with a launch for each tensor ------------------------------------------------------------------- */

/* Two template arguments of adamw_kernel3<Tp, Tg>, one of bitsandbytes'. */
static bool tensor_types(struct tpck_layout *layout, const char *name, const struct tensor_row *row)
{
	size_t length, begin = strlen(row->begin), end = strlen(name) - strlen(row->end);
	uint32_t parameter = ELEMENT('f', 4), gradient;
	if (row->begin[begin - 1] != 'I') {
		gradient = parameter;
		if (begin != end)
			return false;
	} else {
		parameter = gradient = element_at(name + begin, &length);
		begin += length;
		if (parameter && begin < end && strncmp(name + begin, "S0_", 3) == 0) {
			begin += 3;
		} else if (parameter && begin < end) {
			gradient = element_at(name + begin, &length);
			begin += length;
		}
		if (!parameter || !gradient || begin != end)
			return false;
	}
	for (uint32_t i = 0; i < layout->lists; i++)
		layout->element[i] = layout->role[i] == TPCK_TENSOR_PARAMETER  ? parameter
				     : layout->role[i] == TPCK_TENSOR_GRADIENT ? gradient
									       : ELEMENT('f', 4);
	return true;
}

static bool find_tensor(const char *name, const struct tpck_parameter *parameters, uint32_t count, struct tpck_layout *layout)
{
	for (size_t i = 0; i < LENGTH(tensor_rows); i++) {
		const struct tensor_row *row = &tensor_rows[i];
		struct reading reading = {layout, parameters, 4, 0, LISTS};
		size_t length = strlen(name), begin = strlen(row->begin), end = strlen(row->end);
		if (length < begin + end || strncmp(name, row->begin, begin) != 0 || strcmp(name + length - end, row->end) != 0)
			continue;
		*layout = (struct tpck_layout){.kind = TPCK_LAYOUT_STEP, .whole_grid = true};
		snprintf(layout->family, sizeof layout->family, "%s", row->family);
		if (read_letters(&reading, row->letters, count) && tensor_types(layout, name, row))
			return true;
	}
	return false;
}

static bool find_elementwise(const char *name, const struct tpck_parameter *parameters, uint32_t count,
			     struct tpck_layout *layout)
{
	const char *lambda = strstr(name, "EUl"), *array = strstr(name, "St5arrayIPcLm");
	for (size_t i = 0; i < LENGTH(elementwise_rows) && lambda && array; i++) {
		const struct elementwise_row *row = &elementwise_rows[i];
		size_t length;
		uint32_t element;
		while (strstr(lambda + 1, "EUl"))
			lambda = strstr(lambda + 1, "EUl");
		element = element_at(lambda + 3, &length);
		/* With floats only: of other types it is not known how large the operation is. */
		if (!strstr(name, row->part) || element != ELEMENT('f', 4) || count != 3 || parameters[0].offset ||
		    parameters[0].size != 4 || parameters[1].offset != 8 || parameters[1].size != 16 || parameters[2].offset != 24 ||
		    parameters[2].size != row->pointers * 8 || array[strlen("St5arrayIPcLm")] != (char)('0' + row->pointers))
			continue;
		/* The first pointer is what is written, the second what is read in its place. */
		*layout = (struct tpck_layout){.kind = row->kind, .lists = row->pointers, .count = 0, .count_bytes = 4};
		snprintf(layout->family, sizeof layout->family, "torch for-loop");
		for (uint32_t list = 0; list < row->pointers; list++) {
			layout->element[list] = element;
			layout->pointer[list] = 2;
			layout->pointer_at[list] = list * 8;
		}
		return true;
	}
	return false;
}

/* ---- kernels that are an optimizer's by a word of their name ------------------------------------------------- */

/* Reads "Pf", "PKf", "S_" of parameters of an extern function: how many characters it takes, and whether what it points
 * to is constant. Substitutions are counted as the ABI says: each pointer, and each constant type, is one. */
static size_t pointer_at(const char *text, bool *constant, char kinds[8], int *count)
{
	if (text[0] == 'P' && text[1] == 'f') {
		if (*count < 8)
			kinds[(*count)++] = 'p';
		*constant = false;
		return 2;
	}
	if (strncmp(text, "PKf", 3) == 0) {
		if (*count < 7) {
			kinds[(*count)++] = 'K';
			kinds[(*count)++] = 'c';
		}
		*constant = true;
		return 3;
	}
	if (text[0] == 'S' && (text[1] == '_' || (isdigit((unsigned char)text[1]) && text[2] == '_'))) {
		int which = text[1] == '_' ? 0 : text[1] - '0' + 1;
		if (which >= *count || kinds[which] == 'K')
			return 0;
		*constant = kinds[which] == 'c';
		return text[1] == '_' ? 2 : 3;
	}
	return 0;
}

/* step_kernel(float *, const float *, float *, ..., int n, ...): what is constant is the gradient; which of the others is
 * what nothing says. */
static bool find_word(const char *name, const struct tpck_parameter *parameters, uint32_t count, struct tpck_layout *layout)
{
	struct tpck_named_kernel named = tpck_name_kernel(name, 0);
	const char *at = name + 2;
	uint32_t i = 0, gradients = 0;
	size_t length;
	char kinds[8], *end;
	bool constant;
	int substitutions = 0;
	if (strncmp(name, "_Z", 2) != 0 || named.role != TPCK_ROLE_OPTIMIZER || !isdigit((unsigned char)*at))
		return false;
	length = strtoul(at, &end, 10);
	if (strlen(end) < length)
		return false;
	at = end + length;
	*layout = (struct tpck_layout){.kind = TPCK_LAYOUT_STEP, .whole_grid = true};
	snprintf(layout->family, sizeof layout->family, "%.*s", (int)(length < 23 ? length : 23), end);
	while ((length = pointer_at(at, &constant, kinds, &substitutions)) > 0) {
		if (i == count || i == TPCK_LAYOUT_LISTS || parameters[i].size != 8 || parameters[i].offset != i * 8)
			return false;
		layout->pointer[i] = i;
		layout->role[i] = constant ? TPCK_TENSOR_GRADIENT : TPCK_TENSOR_STATE;
		layout->element[i] = ELEMENT('f', 4);
		gradients += constant;
		i++;
		at += length;
	}
	layout->lists = i;
	layout->count = i;
	layout->count_bytes = *at == 'i' || *at == 'j' ? 4 : *at == 'l' || *at == 'm' ? 8 : 0;
	return i >= 2 && gradients == 1 && layout->count_bytes && i < count && parameters[i].size == layout->count_bytes &&
	       parameters[i].offset == i * 8;
}

bool tpck_layout_find(const char *name, const struct tpck_parameter *parameters, uint32_t count, struct tpck_layout *layout)
{
	if (!name || count == 0 || count > TPCK_LAYOUT_PARAMETERS)
		return false;
	if (strstr(name, "multi_tensor_apply_kernel"))
		return find_step(name, parameters, count, layout) || find_operation(name, parameters, count, layout);
	if (strstr(name, "elementwise_kernel"))
		return find_elementwise(name, parameters, count, layout);
	return find_tensor(name, parameters, count, layout) || find_word(name, parameters, count, layout);
}
