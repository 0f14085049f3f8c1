/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of PTX instructions, the names in them, and their places in a frame. */
#define _GNU_SOURCE
#include "device/ptx_decode.h"

#include <ctype.h>
#include <stdlib.h>

/* ---- types and places ---- */
static const struct {
	const char *name;
	enum ptx_type type;
} types[] = {
	{ "pred", PTX_PRED }, { "b8", PTX_B8 },       { "u8", PTX_U8 },         { "s8", PTX_S8 },       { "b16", PTX_B16 },     { "u16", PTX_U16 },
	{ "s16", PTX_S16 },   { "f16", PTX_F16 },     { "bf16", PTX_BF16 },     { "b32", PTX_B32 },     { "u32", PTX_U32 },     { "s32", PTX_S32 },
	{ "f32", PTX_F32 },   { "tf32", PTX_TF32 },   { "f16x2", PTX_F16X2 },   { "bf16x2", PTX_BF16X2 }, { "u16x2", PTX_U16X2 }, { "s16x2", PTX_S16X2 },
	{ "b64", PTX_B64 },   { "u64", PTX_U64 },     { "s64", PTX_S64 },       { "f64", PTX_F64 },
};

enum ptx_type ptx_type_named(const char *text, size_t n)
{
	for (size_t k = 0; k < sizeof types / sizeof *types; k++)
		if (ptx_same(text, n, types[k].name))
			return types[k].type;
	return PTX_NONE;
}

uint32_t ptx_new_place(struct decoder *d, enum ptx_type t, uint32_t count)
{
	uint32_t at = d->code->frame_bytes;

	d->code->frame_bytes += count * (t == PTX_PRED ? 8 : ptx_is_wide(t) ? 256 : 128);
	d->code->frame_bytes = (d->code->frame_bytes + 63) / 64 * 64;
	return at;
}

static uint32_t given(struct decoder *d, enum ptx_given_kind kind, uint64_t value, bool wide)
{
	struct ptx_code *c = d->code;

	for (uint32_t k = 0; k < c->n_given; k++) {
		const struct ptx_given *g = &c->given[k];

		if (g->kind == kind && g->value == value && g->wide == wide)
			return g->at;
	}
	c->given = ptx_grown(c->given, c->n_given, sizeof *c->given);
	c->given[c->n_given] = (struct ptx_given){ .at = ptx_new_place(d, wide ? PTX_B64 : PTX_B32, 1), .wide = wide, .kind = kind, .value = value };
	return c->given[c->n_given++].at;
}

/* ---- names ---- */
struct name *ptx_add_name(struct decoder *d, const char *text, size_t n, enum name_kind kind)
{
	d->name = ptx_grown(d->name, d->n_names, sizeof *d->name);
	d->name[d->n_names] = (struct name){ .text = text, .length = n, .kind = kind };
	return &d->name[d->n_names++];
}

/* The innermost one; of numbered registers also the place. */
const struct name *ptx_find_name(const struct decoder *d, const char *text, size_t n, uint32_t *at)
{
	for (uint32_t k = d->n_names; k-- > 0;) {
		const struct name *x = &d->name[k];
		uint32_t number = 0;
		size_t p;

		if (n < x->length || memcmp(text, x->text, x->length))
			continue;
		if (!x->count) {
			if (n != x->length)
				continue;
			*at = x->first;
			return x;
		}
		for (p = x->length; p < n && isdigit((unsigned char)text[p]); p++)
			number = 10 * number + (uint32_t)(text[p] - '0');
		if (p != n || p == x->length || number >= x->count)
			continue;
		*at = x->first + number * (x->type == PTX_PRED ? 8 : ptx_is_wide(x->type) ? 256 : 128);
		return x;
	}
	return NULL;
}

static const struct {
	const char *name;
	enum ptx_special special;
} specials[] = {
	{ "%tid.x", PTX_TID_X }, { "%tid.y", PTX_TID_Y }, { "%tid.z", PTX_TID_Z }, { "%ntid.x", PTX_NTID_X }, { "%ntid.y", PTX_NTID_Y },
	{ "%ntid.z", PTX_NTID_Z }, { "%ctaid.x", PTX_CTAID_X }, { "%ctaid.y", PTX_CTAID_Y }, { "%ctaid.z", PTX_CTAID_Z },
	{ "%nctaid.x", PTX_NCTAID_X }, { "%nctaid.y", PTX_NCTAID_Y }, { "%nctaid.z", PTX_NCTAID_Z }, { "%laneid", PTX_LANEID },
	{ "%warpid", PTX_WARPID }, { "%nwarpid", PTX_NWARPID }, { "%smid", PTX_SMID }, { "%nsmid", PTX_NSMID },
	{ "%lanemask_eq", PTX_LANEMASK_EQ }, { "%lanemask_le", PTX_LANEMASK_LE }, { "%lanemask_lt", PTX_LANEMASK_LT },
	{ "%lanemask_ge", PTX_LANEMASK_GE }, { "%lanemask_gt", PTX_LANEMASK_GT }, { "%dynamic_smem_size", PTX_DYNAMIC_SMEM },
	{ "%total_smem_size", PTX_TOTAL_SMEM },
};

/* ---- operands ---- */
static bool read_number(const char **from, struct operand *o)
{
	const char *at = *from;
	char *end;
	bool negative = *at == '-';

	at += negative;
	if (!isdigit((unsigned char)*at))
		return false;
	o->kind = OP_NUMBER;
	if (at[0] == '0' && strchr("fFdD", at[1]) && at[1]) {
		o->real = true;
		o->digits = tolower((unsigned char)at[1]) == 'f' ? 8 : 16;
		o->bits = strtoull(at + 2, &end, 16);
	} else if (at[0] == '0' && tolower((unsigned char)at[1]) == 'b') {
		o->value = (int64_t)strtoull(at + 2, &end, 2);
	} else {
		o->value = (int64_t)strtoull(at, &end, 0);
		if (*end == '.' || ((*end == 'e' || *end == 'E') && at[1] != 'x')) {
			double v = strtod(at, &end);

			o->real = true;
			o->digits = 16;
			if (negative)
				v = -v;
			memcpy(&o->bits, &v, 8);
		}
	}
	if (negative && !o->real)
		o->value = -o->value;
	while (*end == 'U' || *end == 'u' || *end == 'l' || *end == 'L')
		end++;
	*from = end;
	return true;
}

static void resolve(struct decoder *d, struct operand *o)
{
	if (ptx_same(o->text, o->length, "_")) {
		o->kind = OP_REGISTER;
		o->sink = true;
		o->at = PTX_SINK;
		o->type = PTX_B64;
		return;
	}
	const struct name *x = ptx_find_name(d, o->text, o->length, &o->at);
	if (x && x->kind == NAME_REGISTERS) {
		o->kind = OP_REGISTER;
		o->type = x->type;
		return;
	}
	o->kind = OP_SYMBOL;
	if (x) {
		o->memory = true;
		o->space = x->space;
		o->offset = x->offset;
		return;
	}
	if (ptx_same(o->text, o->length, "WARP_SZ")) {
		o->kind = OP_NUMBER;
		o->value = PTX_LANES;
		return;
	}
	for (size_t k = 0; k < sizeof specials / sizeof *specials; k++)
		if (ptx_same(o->text, o->length, specials[k].name)) {
			o->kind = OP_SPECIAL;
			o->value = specials[k].special;
			return;
		}
	for (uint32_t k = 0; k < d->module->text.n_variables; k++)
		if (ptx_same(o->text, o->length, d->module->text.variable[k].name))
			o->variable = (int32_t)k;
}

static bool one_operand(struct decoder *d, const char **from, struct operand *o)
{
	const char *at = sim_ptx_skip(*from);

	*o = (struct operand){ .variable = -1 };
	if (*at == '!') {
		o->inverted = true;
		at = sim_ptx_skip(at + 1);
	}
	if (*at == '{' || *at == '(') {
		o->list = calloc(PTX_OPERANDS, sizeof *o->list);
		at = sim_ptx_skip(at + 1);
		while (o->list && *at && *at != '}' && *at != ')' && o->n < PTX_OPERANDS) {
			if (!one_operand(d, &at, &o->list[o->n++]))
				return false;
			at = sim_ptx_skip(at);
			if (*at == ',')
				at = sim_ptx_skip(at + 1);
		}
		if (*at != '}' && *at != ')')
			return false;
		*from = at + 1;
		return true;
	}
	if (*at == '[') {
		struct operand base, plus = { 0 };

		at = sim_ptx_skip(at + 1);
		if (!one_operand(d, &at, &base))
			return false;
		at = sim_ptx_skip(at);
		if (*at == '+' || *at == '-') {
			bool negative = *at == '-';

			at = sim_ptx_skip(at + 1);
			if (!read_number(&at, &plus))
				return false;
			if (negative)
				plus.value = -plus.value;
			at = sim_ptx_skip(at);
		}
		if (*at != ']')
			return false;
		*o = base;
		o->list = calloc(1, sizeof *o->list);
		if (!o->list)
			return false;
		o->list[0] = base;
		o->n = 1;
		o->kind = OP_ADDRESS;
		o->value = plus.value;
		*from = at + 1;
		return true;
	}
	if (!read_number(&at, o)) {
		o->text = at;
		o->length = sim_ptx_word(at);
		if (!o->length)
			return false;
		at += o->length;
		resolve(d, o);
	}
	*from = at;
	return true;
}

/* Separated by commas, or a '|' between a result and its predicate. Ends at ';'. */
int ptx_operands(struct decoder *d, const char **from, struct operand *o)
{
	const char *at = sim_ptx_skip(*from);
	int n = 0;

	while (*at && *at != ';') {
		if (n == OPERANDS_MAX || !one_operand(d, &at, &o[n]))
			return -1;
		n++;
		at = sim_ptx_skip(at);
		if (*at == ',' || *at == '|')
			at = sim_ptx_skip(at + 1);
		else if (*at != ';')
			return -1;
	}
	*from = at;
	return n;
}

void ptx_operands_free(struct operand *o, int n)
{
	for (int k = 0; k < n; k++) {
		if (o[k].list)
			ptx_operands_free(o[k].list, o[k].n);
		free(o[k].list);
	}
}

/* ---- an operand's place in an instruction ---- */
static uint64_t number_as(const struct operand *o, enum ptx_type t)
{
	double v;
	float f;

	if (!o->real) {
		if (t == PTX_F32) {
			f = (float)o->value;
			uint32_t bits;
			memcpy(&bits, &f, 4);
			return bits;
		}
		if (t == PTX_F64) {
			uint64_t bits;

			v = (double)o->value;
			memcpy(&bits, &v, 8);
			return bits;
		}
		return (uint64_t)o->value;
	}
	if (o->digits == 16 && !ptx_is_wide(t)) {
		uint32_t bits;

		memcpy(&v, &o->bits, 8);
		f = (float)v;
		memcpy(&bits, &f, 4);
		return bits;
	}
	if (o->digits == 8 && t == PTX_F64) {
		uint32_t low = (uint32_t)o->bits;
		uint64_t bits;

		memcpy(&f, &low, 4);
		v = (double)f;
		memcpy(&bits, &v, 8);
		return bits;
	}
	return o->bits;
}

/* The address that a symbol stands for: a variable's, in shared memory from 0, a thread's own memory, a parameter's. */
static bool symbol_place(struct decoder *d, const struct operand *o, bool wide, uint32_t *at)
{
	const struct sim_ptx_list *l = &d->code->kernel->param;

	if (o->variable >= 0) {
		const struct sim_ptx_symbol *s = &d->module->text.variable[o->variable];

		*at = s->space != SIM_PTX_SHARED ? given(d, PTX_GIVEN_VARIABLE, (uint64_t)o->variable, wide) :
		      s->bytes			 ? given(d, PTX_GIVEN_NUMBER, s->offset, wide) :
						   given(d, PTX_GIVEN_SPECIAL, PTX_DYNAMIC_SHARED, wide);
		return true;
	}
	if (o->memory) {
		*at = given(d, o->space == SIM_PTX_SHARED ? PTX_GIVEN_NUMBER : PTX_GIVEN_LOCAL, o->offset, wide);
		return true;
	}
	for (uint32_t k = 0; k < l->n; k++)
		if (ptx_same(o->text, o->length, l->symbol[k].name)) {
			*at = given(d, PTX_GIVEN_PARAM, l->symbol[k].offset, wide);
			return true;
		}
	return false;
}

/* Puts operand `o`, used as type `t`, at index `k`. A number gets a place of that width. */
bool ptx_put(struct decoder *d, struct ptx_insn *i, int k, const struct operand *o, enum ptx_type t)
{
	bool wide = ptx_is_wide(t);

	if (k >= PTX_OPERANDS || o->list)
		return false;
	switch (o->kind) {
	case OP_REGISTER:
		i->at[k] = o->at;
		wide = ptx_is_wide(o->type);
		if ((t == PTX_PRED) != (o->type == PTX_PRED) && !o->sink)
			return false;
		if (o->inverted)
			i->invert |= 1u << k;
		break;
	case OP_NUMBER:
		if (t == PTX_PRED)
			i->at[k] = given(d, PTX_GIVEN_NUMBER, o->value ? ~(uint64_t)0 : 0, false);
		else
			i->at[k] = given(d, PTX_GIVEN_NUMBER, number_as(o, t), wide);
		break;
	case OP_SPECIAL:
		i->at[k] = given(d, PTX_GIVEN_SPECIAL, (uint64_t)o->value, wide);
		break;
	case OP_SYMBOL:
		if (!symbol_place(d, o, wide, &i->at[k]))
			return false;
		break;
	default:
		return false;
	}
	if (wide)
		i->wide |= 1u << k;
	return true;
}

/* The address operand: a register, a symbol or a number, and an offset. */
bool ptx_put_address(struct decoder *d, struct ptx_insn *i, int k, const struct operand *o)
{
	if (o->kind != OP_ADDRESS)
		return false;
	i->imm += o->value;
	return ptx_put(d, i, k, &o->list[0], o->list[0].kind == OP_REGISTER ? o->list[0].type : PTX_U64);
}

/* Elements of a vector, or the one there is, from index `k`. */
int ptx_put_list(struct decoder *d, struct ptx_insn *i, int k, const struct operand *o, enum ptx_type t)
{
	if (!o->list)
		return ptx_put(d, i, k, o, t) ? 1 : 0;
	for (int j = 0; j < o->n; j++)
		if (!ptx_put(d, i, k + j, &o->list[j], t))
			return 0;
	return o->n;
}
