/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the text of a PTX kernel into instructions with places for operands. What is not known is said by name. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/ptx.h"

/* A name of the body: registers "%r<n>" with a place each, memory, or a label. */
enum name_kind { NAME_REGISTERS, NAME_MEMORY, NAME_LABEL };
struct name {
	const char *text;
	size_t length;
	enum name_kind kind;
	enum ptx_type type;        /* of registers */
	uint32_t first, count;     /* of registers: the first place, and how many (0: one without a number) */
	enum sim_ptx_space space;  /* of memory */
	uint64_t offset;
	uint32_t scope, insn;      /* of a label */
};

struct fixup {
	uint32_t insn, scope;
	const char *text;
	size_t length;
};

struct decoder {
	struct ptx_module *module;
	struct ptx_code *code;
	struct name *name;
	uint32_t n_names, names_room;
	struct fixup *fixup;
	uint32_t n_fixups;
	uint32_t *parent; /* of each scope */
	uint32_t scope, n_scopes, depth;
	struct name *label;
	uint32_t n_labels;
	bool failed;
};

#define DEPTH_MAX 16
#define PARTS 12
struct opcode {
	char text[160];
	char *part[PARTS];
	int n;
};

enum operand_kind { OP_NONE, OP_REGISTER, OP_NUMBER, OP_ADDRESS, OP_SYMBOL, OP_SPECIAL };
struct operand {
	enum operand_kind kind;
	bool inverted, real, sink;
	uint32_t at;
	enum ptx_type type; /* of a register */
	int64_t value;      /* number, offset */
	uint64_t bits;      /* of a 0f or 0d number */
	int digits;         /* 8 or 16 of such a number */
	bool memory; /* a name of the body that is memory, in `space` at `offset` */
	enum sim_ptx_space space;
	uint64_t offset;
	int32_t variable; /* of the module, or -1 */
	const char *text;
	size_t length;
	struct operand *list; /* of { } */
	int n;
};

static void unknown(struct decoder *d, const char *format, ...)
{
	va_list va;

	if (d->failed)
		return;
	d->failed = true;
	va_start(va, format);
	vsnprintf(d->code->unknown, sizeof d->code->unknown, format, va);
	va_end(va);
}

static bool same(const char *a, size_t n, const char *b)
{
	return strlen(b) == n && !memcmp(a, b, n);
}

static void *grown(void *list, uint32_t n, size_t bytes)
{
	void *r = n & (n - 1) ? list : realloc(list, (n ? 2 * (size_t)n : 1) * bytes);

	if (!r)
		abort();
	return r;
}

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

static enum ptx_type type_named(const char *text, size_t n)
{
	for (size_t k = 0; k < sizeof types / sizeof *types; k++)
		if (same(text, n, types[k].name))
			return types[k].type;
	return PTX_NONE;
}

static bool is_wide(enum ptx_type t)
{
	return t >= PTX_B64;
}

static uint32_t new_place(struct decoder *d, enum ptx_type t, uint32_t count)
{
	uint32_t at = d->code->frame_bytes;

	d->code->frame_bytes += count * (t == PTX_PRED ? 8 : is_wide(t) ? 256 : 128);
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
	c->given = grown(c->given, c->n_given, sizeof *c->given);
	c->given[c->n_given] = (struct ptx_given){ .at = new_place(d, wide ? PTX_B64 : PTX_B32, 1), .wide = wide, .kind = kind, .value = value };
	return c->given[c->n_given++].at;
}

/* ---- names ---- */
static struct name *add_name(struct decoder *d, const char *text, size_t n, enum name_kind kind)
{
	d->name = grown(d->name, d->n_names, sizeof *d->name);
	d->name[d->n_names] = (struct name){ .text = text, .length = n, .kind = kind };
	return &d->name[d->n_names++];
}

/* The innermost one; of numbered registers also the place. */
static const struct name *find_name(const struct decoder *d, const char *text, size_t n, uint32_t *at)
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
		*at = x->first + number * (x->type == PTX_PRED ? 8 : is_wide(x->type) ? 256 : 128);
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
	if (same(o->text, o->length, "_")) {
		o->kind = OP_REGISTER;
		o->sink = true;
		o->at = PTX_SINK;
		o->type = PTX_B64;
		return;
	}
	const struct name *x = find_name(d, o->text, o->length, &o->at);
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
	if (same(o->text, o->length, "WARP_SZ")) {
		o->kind = OP_NUMBER;
		o->value = PTX_LANES;
		return;
	}
	for (size_t k = 0; k < sizeof specials / sizeof *specials; k++)
		if (same(o->text, o->length, specials[k].name)) {
			o->kind = OP_SPECIAL;
			o->value = specials[k].special;
			return;
		}
	for (uint32_t k = 0; k < d->module->text.n_variables; k++)
		if (same(o->text, o->length, d->module->text.variable[k].name))
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

#define OPERANDS_MAX 8

/* Separated by commas, or a '|' between a result and its predicate. Ends at ';'. */
static int operands(struct decoder *d, const char **from, struct operand *o)
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

static void operands_free(struct operand *o, int n)
{
	for (int k = 0; k < n; k++) {
		if (o[k].list)
			operands_free(o[k].list, o[k].n);
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
	if (o->digits == 16 && !is_wide(t)) {
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
		if (same(o->text, o->length, l->symbol[k].name)) {
			*at = given(d, PTX_GIVEN_PARAM, l->symbol[k].offset, wide);
			return true;
		}
	return false;
}

/* Puts operand `o`, used as type `t`, at index `k`. A number gets a place of that width. */
static bool put(struct decoder *d, struct ptx_insn *i, int k, const struct operand *o, enum ptx_type t)
{
	bool wide = is_wide(t);

	if (k >= PTX_OPERANDS || o->list)
		return false;
	switch (o->kind) {
	case OP_REGISTER:
		i->at[k] = o->at;
		wide = is_wide(o->type);
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
static bool put_address(struct decoder *d, struct ptx_insn *i, int k, const struct operand *o)
{
	if (o->kind != OP_ADDRESS)
		return false;
	i->imm += o->value;
	return put(d, i, k, &o->list[0], o->list[0].kind == OP_REGISTER ? o->list[0].type : PTX_U64);
}

/* Elements of a vector, or the one there is, from index `k`. */
static int put_list(struct decoder *d, struct ptx_insn *i, int k, const struct operand *o, enum ptx_type t)
{
	if (!o->list)
		return put(d, i, k, o, t) ? 1 : 0;
	for (int j = 0; j < o->n; j++)
		if (!put(d, i, k + j, &o->list[j], t))
			return 0;
	return o->n;
}

/* ---- opcodes ---- */
static bool has(const struct opcode *p, const char *part)
{
	for (int k = 1; k < p->n; k++)
		if (!strcmp(p->part[k], part))
			return true;
	return false;
}

static enum ptx_type last_type(const struct opcode *p, int from_end)
{
	int k = p->n - 1 - from_end;

	return k > 0 ? type_named(p->part[k], strlen(p->part[k])) : PTX_NONE;
}

static bool round_named(const char *part, uint8_t *round)
{
	static const char *const names[] = { "rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi" };

	for (size_t k = 0; k < sizeof names / sizeof *names; k++)
		if (!strcmp(part, names[k])) {
			*round = (uint8_t)k;
			return true;
		}
	return false;
}

/* Index of `part` among `names`, which end with NULL, or -1. */
static int among(const char *part, const char *const *names)
{
	for (int k = 0; names[k]; k++)
		if (!strcmp(part, names[k]))
			return k;
	return -1;
}

/* Whether all parts from `first` up to the last `types` ones are among what changes nothing here. */
static bool only(const struct opcode *p, int types_at_end, const char *const *names)
{
	for (int k = 1; k < p->n - types_at_end; k++)
		if (among(p->part[k], names) < 0 && strncmp(p->part[k], "L1::", 4) && strncmp(p->part[k], "L2::", 4))
			return false;
	return true;
}

static bool decode_row(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	char key[128] = "";
	const struct ptx_row *row;
	size_t used = 0;
	bool directed = false;

	for (int k = 0; k < p->n; k++) {
		const char *part = p->part[k];

		if (k && round_named(part, &i->round)) {
			directed |= i->round != PTX_RN;
			continue;
		}
		if (k && !strcmp(part, "sat")) {
			i->sat = true;
			continue;
		}
		if (k && (!strcmp(part, "approx") || !strcmp(part, "full") || !strcmp(part, "noftz")))
			continue;
		i->ftz |= k && !strcmp(part, "ftz");
		i->extra |= k && !strcmp(part, "cc");
		used += (size_t)snprintf(key + used, used < sizeof key ? sizeof key - used : 0, "%s%s", k ? "." : "", part);
		if (used >= sizeof key)
			return false;
	}
	row = ptx_row_find(key);
	if (!row || (int)strlen(row->operands) != n)
		return false;
	i->type = row->type;
	i->how = row->how;
	i->run = row->run;
	if (directed || i->sat) {
		if (!row->careful)
			return false;
		i->run = row->careful;
	}
	for (int k = 0; k < n; k++) {
		char c = row->operands[k];
		enum ptx_type t = c == 'p' ? PTX_PRED : c == 'h' ? PTX_B16 : c == 'w' ? PTX_B32 : c == 'd' ? PTX_B64 : row->type;

		if (!put(d, i, k, &o[k], t) || i->invert || (t != PTX_PRED && !o[k].sink && is_wide(t) != (i->wide >> k & 1)))
			return false;
	}
	return true;
}

static const char *const comparisons[] = { "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan", "lo", "ls", "hi", "hs", NULL };

static bool decode_compare(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const joins[] = { "", "and", "or", "xor", NULL };
	bool numbers = !strcmp(p->part[0], "set");
	int how = p->n > 2 ? among(p->part[1], comparisons) : -1, k = 2;

	if (how < 0)
		return false;
	i->how = (uint8_t)(how >= 14 ? how - 12 : how); /* lo, ls, hi, hs are lt, le, gt, ge of unsigned numbers */
	if (k < p->n && among(p->part[k], joins) > 0)
		i->and_or = (uint8_t)among(p->part[k++], joins);
	if (k < p->n && !strcmp(p->part[k], "ftz")) {
		i->ftz = true;
		k++;
	}
	i->type = (uint8_t)last_type(p, 0);
	i->run = ptx_compare(i, numbers);
	if (!i->run || k + 1 + numbers != p->n)
		return false;
	if (numbers) {
		i->from = (uint8_t)last_type(p, 1);
		return n == 3 && !i->and_or && !is_wide(i->from) && put(d, i, 0, &o[0], i->from) && put(d, i, 1, &o[1], i->type) && put(d, i, 2, &o[2], i->type);
	}
	int first = n - (i->and_or ? 3 : 2);
	if (first < 1 || first > 2 || !put(d, i, 0, &o[0], PTX_PRED) || (first == 2 && !put(d, i, 1, &o[1], PTX_PRED)))
		return false;
	if (i->and_or && !put(d, i, 4, &o[first + 2], PTX_PRED))
		return false;
	return put(d, i, 2, &o[first], i->type) && put(d, i, 3, &o[first + 1], i->type);
}

static bool decode_cvt(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	i->type = (uint8_t)last_type(p, 1);
	i->from = (uint8_t)last_type(p, 0);
	if (!i->type || !i->from)
		return false;
	for (int k = 1; k < p->n - 2; k++)
		if (!strcmp(p->part[k], "ftz"))
			i->ftz = true;
		else if (!strcmp(p->part[k], "sat"))
			i->sat = true;
		else if (!strcmp(p->part[k], "relu"))
			i->extra = true;
		else if (!round_named(p->part[k], &i->round))
			return false;
	bool pair = i->type == PTX_F16X2 || i->type == PTX_BF16X2;
	if (n != 2 + pair || !put(d, i, 0, &o[0], i->type) || !put(d, i, 1, &o[1], i->from) || (pair && !put(d, i, 2, &o[2], i->from)))
		return false;
	i->run = ptx_convert(i);
	return i->run;
}

/* ---- moves that pack and unpack ---- */
static int bytes_of(enum ptx_type t)
{
	return t <= PTX_S8 ? 1 : t <= PTX_BF16 ? 2 : t <= PTX_S16X2 ? 4 : 8;
}

/* Operands: d, the parts; and the other way. */
static void pack(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	int size = bytes_of((enum ptx_type)i->type) / i->n;

	PTX_EACH(mask, uint64_t v = 0; for (int k = 0; k < i->n; k++) {
		uint64_t part = i->wide >> (k + 1) & 1 ? PTX_AT(k + 1, uint64_t)[l] : PTX_AT(k + 1, uint32_t)[l];

		v |= (size < 8 ? part & (((uint64_t)1 << 8 * size) - 1) : part) << 8 * size * k;
	} if (i->wide & 1) PTX_AT(0, uint64_t)[l] = v; else PTX_AT(0, uint32_t)[l] = (uint32_t)v);
}

static void unpack(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	int size = bytes_of((enum ptx_type)i->type) / i->n;

	PTX_EACH(mask, uint64_t v = i->wide & 1 ? PTX_AT(0, uint64_t)[l] : PTX_AT(0, uint32_t)[l]; for (int k = 0; k < i->n; k++) {
		uint64_t part = v >> 8 * size * k & (size < 8 ? ((uint64_t)1 << 8 * size) - 1 : ~(uint64_t)0);

		if (i->wide >> (k + 1) & 1)
			PTX_AT(k + 1, uint64_t)[l] = part;
		else
			PTX_AT(k + 1, uint32_t)[l] = (uint32_t)part;
	});
}

static bool decode_mov(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	if (n != 2 || (!o[0].list && !o[1].list))
		return decode_row(d, p, i, o, n);
	i->type = (uint8_t)last_type(p, 0);
	if (p->n != 2 || !i->type || (o[0].list && o[1].list))
		return false;
	const struct operand *whole = o[0].list ? &o[1] : &o[0], *parts = o[0].list ? &o[0] : &o[1];
	i->n = (uint8_t)parts->n;
	if (parts->n != 2 && parts->n != 4)
		return false;
	i->run = o[0].list ? unpack : pack;
	static const enum ptx_type halves[] = { [1] = PTX_B8, [2] = PTX_B16, [4] = PTX_B32 };
	int size = bytes_of((enum ptx_type)i->type) / parts->n;
	return size && put(d, i, 0, whole, i->type) && put_list(d, i, 1, parts, halves[size]);
}

/* ---- memory ---- */
static bool space_of(const struct opcode *p, uint8_t *space)
{
	for (int k = 1; k < p->n; k++) {
		const char *s = p->part[k];

		if (!strcmp(s, "global") || !strcmp(s, "const"))
			*space = SIM_PTX_GLOBAL;
		else if (!strcmp(s, "shared") || !strcmp(s, "shared::cta"))
			*space = SIM_PTX_SHARED;
		else if (!strcmp(s, "local"))
			*space = SIM_PTX_LOCAL;
		else if (!strcmp(s, "param") || !strcmp(s, "param::entry") || !strcmp(s, "param::func"))
			*space = SIM_PTX_PARAM;
	}
	return true;
}

static const char *const memory_parts[] = {
	"global", "const", "shared", "shared::cta", "local", "param", "param::entry", "param::func", "v2", "v4", "v8", "ca", "cg", "cs", "lu", "cv", "wb", "wt",
	"nc", "weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "gpu", "cta", "sys", "cluster", "sync", "noftz", "mmio", NULL,
};

static bool decode_memory(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	bool load = p->part[0][0] == 'l';
	const struct operand *where = &o[load ? 1 : 0], *what = &o[load ? 0 : 1];

	i->type = (uint8_t)last_type(p, 0);
	if (n < 2 || n > 3 || (n == 3 && !has(p, "L2::cache_hint")) || i->type < PTX_B8 || !only(p, 1, memory_parts))
		return false;
	space_of(p, &i->space);
	if (!put_address(d, i, 0, where))
		return false;
	i->n = (uint8_t)put_list(d, i, 1, what, i->type);
	i->run = load ? ptx_load : ptx_store;
	int vector = has(p, "v8") ? 8 : has(p, "v4") ? 4 : has(p, "v2") ? 2 : 1;
	return i->n == vector;
}

static bool decode_atomic(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const names[] = { "add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec", NULL };
	bool result = !strcmp(p->part[0], "atom");
	int how = -1, v = 1;

	i->type = (uint8_t)last_type(p, 0);
	for (int k = 1; k < p->n - 1; k++)
		if (among(p->part[k], names) >= 0)
			how = among(p->part[k], names);
		else if (among(p->part[k], memory_parts) < 0 && strncmp(p->part[k], "L2::", 4))
			return false;
	space_of(p, &i->space);
	if (how < 0 || !i->type)
		return false;
	n -= has(p, "L2::cache_hint");
	if (n != result + 2 + (how == PTX_CAS))
		return false;
	i->how = (uint8_t)how;
	if (!put_address(d, i, 0, &o[result]))
		return false;
	const struct operand *b = &o[result + 1];
	v = b->list ? b->n : 1;
	i->n = (uint8_t)v;
	if (v > 8 || (result && put_list(d, i, 1, &o[0], i->type) != v) || put_list(d, i, 1 + v, b, i->type) != v)
		return false;
	i->run = ptx_atomic;
	return how != PTX_CAS || put(d, i, 2 + v, &o[result + 2], i->type);
}

static bool decode_cvta(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	bool to = has(p, "to");
	static const char *const parts[] = { "to", "global", "const", "shared", "shared::cta", "local", "param", NULL };
	enum ptx_type t = last_type(p, 0);

	space_of(p, &i->space);
	if (n != 2 || !only(p, 1, parts) || (t != PTX_U64 && t != PTX_U32) || !put(d, i, 0, &o[0], t))
		return false;
	i->run = i->space == SIM_PTX_SHARED ? (to ? ptx_to_shared : ptx_from_shared) : ptx_row_find("mov.u64")->run;
	return put(d, i, 1, &o[1], t) && i->wide & 1;
}

static bool decode_copy_async(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const parts[] = { "async", "ca", "cg", "shared", "shared::cta", "global", "commit_group", "wait_group", "wait_all", NULL };

	if (p->n < 2 || strcmp(p->part[1], "async") || !only(p, 0, parts))
		return false;
	if (has(p, "commit_group") || has(p, "wait_group") || has(p, "wait_all"))
		return true; /* it was copied at once */
	n -= has(p, "L2::cache_hint");
	if (n < 3 || n > 4 || o[2].kind != OP_NUMBER || o[1].kind != OP_ADDRESS || !put_address(d, i, 0, &o[0]))
		return false;
	i->n = (uint8_t)o[2].value;
	i->target = (uint32_t)(int32_t)o[1].value;
	i->run = ptx_copy_async;
	return put(d, i, 1, &o[1].list[0], PTX_U64) && i->wide & 2 && (n < 4 || put(d, i, 2, &o[3], PTX_U32));
}

static bool decode_matrix(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const parts[] = { "sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", NULL };
	bool load = p->part[0][0] == 'l';

	if (n != 2 || !only(p, 1, parts) || last_type(p, 0) != PTX_B16 || !put_address(d, i, 0, &o[!!load]))
		return false;
	i->extra = has(p, "trans");
	i->space = SIM_PTX_SHARED;
	i->flow = PTX_FLOW_WARP;
	i->n = (uint8_t)put_list(d, i, 1, &o[!load], PTX_B32);
	i->run = load ? ptx_load_matrix : ptx_store_matrix;
	return i->n == (has(p, "x4") ? 4 : has(p, "x2") ? 2 : 1);
}

/* ---- between lanes ---- */
static bool decode_shuffle(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const names[] = { "up", "down", "bfly", "idx", NULL };
	bool predicate = n == 6;
	int how = p->n == 4 && !strcmp(p->part[1], "sync") ? among(p->part[2], names) : -1;

	if (how < 0 || n < 5 || n > 6 || last_type(p, 0) != PTX_B32)
		return false;
	i->how = (uint8_t)how;
	i->flow = PTX_FLOW_WARP;
	i->mask = 5;
	i->run = ptx_shuffle;
	for (int k = 0; k < 4; k++)
		if (!put(d, i, k + 2, &o[k + 1 + predicate], PTX_B32))
			return false;
	return put(d, i, 0, &o[0], PTX_B32) && (!predicate || put(d, i, 1, &o[1], PTX_PRED));
}

static bool decode_vote(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const names[] = { "all", "any", "uni", "ballot", NULL };
	int how = p->n == 4 && !strcmp(p->part[1], "sync") ? among(p->part[2], names) : -1;

	if (how < 0 || n != 3)
		return false;
	i->how = (uint8_t)how;
	i->flow = PTX_FLOW_WARP;
	i->mask = 2;
	i->run = ptx_vote;
	return put(d, i, 0, &o[0], how == PTX_BALLOT ? PTX_B32 : PTX_PRED) && put(d, i, 1, &o[1], PTX_PRED) && put(d, i, 2, &o[2], PTX_B32);
}

static bool decode_reduce(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const names[] = { "add", "min", "max", "and", "or", "xor", NULL };
	int how = p->n == 4 && !strcmp(p->part[1], "sync") ? among(p->part[2], names) : -1;

	i->type = (uint8_t)last_type(p, 0);
	if (how < 0 || n != 3 || is_wide(i->type) || i->type == PTX_F32)
		return false;
	i->how = (uint8_t)how;
	i->flow = PTX_FLOW_WARP;
	i->mask = 2;
	i->run = ptx_reduce;
	return put(d, i, 0, &o[0], i->type) && put(d, i, 1, &o[1], i->type) && put(d, i, 2, &o[2], PTX_B32);
}

static bool decode_match(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	bool predicate = n == 4;

	i->type = (uint8_t)last_type(p, 0);
	i->extra = has(p, "all");
	if (p->n != 4 || strcmp(p->part[2], "sync") || n < 3 || n > 4 || (!i->extra && strcmp(p->part[1], "any")))
		return false;
	i->flow = PTX_FLOW_WARP;
	i->mask = 3;
	i->run = ptx_match;
	return put(d, i, 0, &o[0], PTX_B32) && (!predicate || put(d, i, 1, &o[1], PTX_PRED)) && put(d, i, 2, &o[1 + predicate], i->type) &&
	       put(d, i, 3, &o[2 + predicate], PTX_B32);
}

static bool decode_elect(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	if (p->n != 2 || n != 3)
		return false;
	i->flow = PTX_FLOW_WARP;
	i->mask = 2;
	i->run = ptx_elect;
	return put(d, i, 0, &o[0], PTX_B32) && put(d, i, 1, &o[1], PTX_PRED) && put(d, i, 2, &o[2], PTX_B32);
}

static bool decode_active_mask(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	i->run = ptx_active_mask;
	return p->n == 2 && n == 1 && put(d, i, 0, &o[0], PTX_B32);
}

static bool decode_barrier(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const parts[] = { "sync", "arrive", "cta", "aligned", NULL };

	if (p->n > 1 && !strcmp(p->part[1], "warp")) {
		i->flow = PTX_FLOW_WARP;
		i->mask = 1;
		return n == 1 && put(d, i, 1, &o[0], PTX_B32);
	}
	if (!only(p, 0, parts) || n < 1 || n > 2 || o[0].kind != OP_NUMBER)
		return false;
	i->flow = PTX_FLOW_BARRIER;
	i->n = !has(p, "arrive");
	i->imm = o[0].value;
	return i->imm >= 0 && i->imm < 16 && (n < 2 || put(d, i, 0, &o[1], PTX_B32));
}

/* ---- control ---- */
static struct ptx_insn *new_insn(struct decoder *d)
{
	d->code->insn = grown(d->code->insn, d->code->n, sizeof *d->code->insn);
	d->code->insn[d->code->n] = (struct ptx_insn){ 0 };
	return &d->code->insn[d->code->n++];
}

static void jump_to(struct decoder *d, uint32_t insn, const char *text, size_t n)
{
	d->fixup = grown(d->fixup, d->n_fixups, sizeof *d->fixup);
	d->fixup[d->n_fixups++] = (struct fixup){ insn, d->scope, text, n };
}

static bool decode_branch(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const parts[] = { "uni", NULL };

	i->flow = PTX_FLOW_BRANCH;
	if (n != 1 || !o[0].text || !only(p, 0, parts))
		return false;
	jump_to(d, (uint32_t)(i - d->code->insn), o[0].text, o[0].length);
	return true;
}

static bool decode_exit(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const parts[] = { "uni", NULL };

	(void)d, (void)o;
	i->flow = PTX_FLOW_EXIT;
	return !n && only(p, 0, parts);
}

static bool decode_trap(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	(void)d, (void)o, (void)n;
	i->run = ptx_trap;
	return p->n == 1;
}

/* What has no effect that could be seen here: blocks take turns, and there are no caches. */
static bool decode_nothing(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	(void)d, (void)p, (void)i, (void)o, (void)n;
	return true;
}

/* A cache policy is a number that loads and stores take and do not look at. */
static bool decode_policy(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	struct operand zero = { .kind = OP_NUMBER, .variable = -1 };

	(void)p;
	i->run = ptx_row_find("mov.u64")->run;
	return n > 0 && put(d, i, 0, &o[0], PTX_B64) && put(d, i, 1, &zero, PTX_B64);
}

static const struct {
	const char *name;
	bool (*decode)(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n);
} operations[] = {
	{ "mov", decode_mov },          { "setp", decode_compare },     { "set", decode_compare },       { "cvt", decode_cvt },
	{ "ld", decode_memory },        { "ldu", decode_memory },       { "st", decode_memory },         { "atom", decode_atomic },
	{ "red", decode_atomic },       { "cvta", decode_cvta },        { "cp", decode_copy_async },     { "ldmatrix", decode_matrix },
	{ "stmatrix", decode_matrix },  { "shfl", decode_shuffle },     { "vote", decode_vote },         { "redux", decode_reduce },
	{ "match", decode_match },      { "elect", decode_elect },      { "activemask", decode_active_mask }, { "bar", decode_barrier },
	{ "barrier", decode_barrier },  { "bra", decode_branch },       { "ret", decode_exit },          { "exit", decode_exit },
	{ "trap", decode_trap },        { "membar", decode_nothing },   { "fence", decode_nothing },     { "prefetch", decode_nothing },
	{ "prefetchu", decode_nothing }, { "nanosleep", decode_nothing }, { "discard", decode_nothing }, { "applypriority", decode_nothing },
	{ "griddepcontrol", decode_nothing }, { "createpolicy", decode_policy }, { "pmevent", decode_nothing },
};

static void split(struct opcode *p, const char *text, size_t n)
{
	p->n = 0;
	if (n >= sizeof p->text)
		n = sizeof p->text - 1;
	memcpy(p->text, text, n);
	p->text[n] = 0;
	for (char *save = NULL, *w = strtok_r(p->text, ".", &save); w && p->n < PARTS; w = strtok_r(NULL, ".", &save))
		p->part[p->n++] = w;
}

static bool body(struct decoder *d, const char *at, const char *end, uint32_t leave);

/* ---- calls: the function's body is put in place, with the memory of its caller's arguments under its parameters' names ---- */
static bool bind_list(struct decoder *d, const struct sim_ptx_list *l, const struct operand *o)
{
	for (uint32_t k = 0; k < l->n; k++) {
		const struct operand *a = o && (int)k < o->n ? &o->list[k] : NULL;

		if (!a || a->kind != OP_SYMBOL || !a->memory)
			return false;
		struct name *x = add_name(d, l->symbol[k].name, strlen(l->symbol[k].name), NAME_MEMORY);
		x->space = a->space;
		x->offset = a->offset;
	}
	return true;
}

static bool assertion(struct decoder *d, struct ptx_insn *i, const struct operand *list)
{
	if (list->n < 4)
		return false;
	i->run = ptx_assert_failed;
	for (int k = 0; k < 4; k++)
		if (!put(d, i, k, &list->list[k], PTX_U64))
			return false;
	return true;
}

static bool call(struct decoder *d, struct ptx_insn *i, const struct operand *o, int n)
{
	const struct operand *result = n && o[0].list ? &o[0] : NULL, *name = result ? &o[1] : &o[0], *list = n > (result ? 2 : 1) ? &o[result ? 2 : 1] : NULL;
	uint32_t guard = i->guard;

	if (n < 1 || !name->text)
		return false;
	if (same(name->text, name->length, "__assertfail") && list)
		return assertion(d, i, list);
	for (uint32_t k = 0; k < d->module->text.n_functions; k++) {
		const struct sim_ptx_kernel *f = &d->module->text.function[k];
		uint32_t names = d->n_names, scope = d->scope, start = d->code->n - 1;

		if (!same(name->text, name->length, f->name) || d->depth == DEPTH_MAX)
			continue;
		if (!bind_list(d, &f->result, result) || !bind_list(d, &f->param, list))
			return false;
		/* Lanes that do not call jump over it. */
		i->flow = PTX_FLOW_BRANCH;
		i->negate = !i->negate;
		if (!guard)
			i->flow = PTX_FLOW_NEXT;
		d->depth++;
		d->parent = grown(d->parent, d->n_scopes, sizeof *d->parent);
		d->parent[d->n_scopes] = ~0u;
		d->scope = d->n_scopes++;
		bool good = body(d, f->body, f->end, start + 1);
		d->depth--;
		d->scope = scope;
		d->n_names = names;
		d->code->insn[start].target = d->code->n;
		return good;
	}
	return false;
}

/* ---- the body ---- */
/* "%r<5>" or a name alone, more of them behind commas. */
static void registers(struct decoder *d, const char **from, enum ptx_type t)
{
	const char *at = *from;

	do {
		char *end;

		at = sim_ptx_skip(at + (*at == ','));
		size_t n = sim_ptx_word(at);
		struct name *x = add_name(d, at, n, NAME_REGISTERS);
		at = sim_ptx_skip(at + n);
		if (*at == '<') {
			x->count = (uint32_t)strtoul(at + 1, &end, 10);
			at = sim_ptx_skip(end + 1);
		}
		x->type = t;
		x->first = new_place(d, t, x->count ? x->count : 1);
	} while (*at == ',');
	*from = at;
}

static bool declare(struct decoder *d, const char **from)
{
	const char *at = *from;
	size_t n = sim_ptx_word(at);
	bool good = true;

	if (same(at, n, ".reg")) {
		at = sim_ptx_skip(at + n);
		n = sim_ptx_word(at);
		enum ptx_type t = *at == '.' ? type_named(at + 1, n - 1) : PTX_NONE;
		if (t == PTX_NONE) {
			unknown(d, ".reg %.*s", (int)n, at);
			return false;
		}
		at = sim_ptx_skip(at + n);
		registers(d, &at, t);
	} else if (same(at, n, ".local") || same(at, n, ".shared") || same(at, n, ".param")) {
		bool shared = at[1] == 's';

		at += n;
		do {
			struct sim_ptx_symbol s = { 0 };

			at += *at == ',';
			good = sim_ptx_symbol(&at, &s);
			if (!good)
				break;
			uint32_t *used = shared ? &d->code->shared_bytes : &d->code->local_bytes;
			*used = (*used + s.align - 1) / s.align * s.align;
			/* The name lives as long as the module. */
			struct name *x = add_name(d, s.name, strlen(s.name), NAME_MEMORY);
			x->space = shared ? SIM_PTX_SHARED : SIM_PTX_LOCAL;
			x->offset = *used;
			*used += (uint32_t)s.bytes;
		} while (*at == ',');
	} else if (same(at, n, ".loc") || same(at, n, ".file")) {
		*from = at + strcspn(at, "\n");
		return true;
	} else if (!same(at, n, ".pragma")) {
		unknown(d, "%.*s", (int)n, at);
		return false;
	}
	at += strcspn(at, ";");
	*from = at + (*at == ';');
	return good;
}

static bool instruction(struct decoder *d, const char **from, uint32_t leave)
{
	struct operand o[OPERANDS_MAX] = { 0 };
	const char *at = *from, *start = at;
	uint32_t guard = 0;
	bool negate = false, good = false;
	struct opcode p;

	if (*at == '@') {
		at++;
		negate = *at == '!';
		at += negate;
		size_t n = sim_ptx_word(at);
		const struct name *x = find_name(d, at, n, &guard);
		if (!x || x->type != PTX_PRED)
			return false;
		at = sim_ptx_skip(at + n);
	}
	size_t n = sim_ptx_word(at);
	split(&p, at, n);
	at += n;
	int count = operands(d, &at, o);
	uint32_t index = d->code->n;
	struct ptx_insn *i = new_insn(d);
	i->guard = guard;
	i->negate = negate;
	if (count >= 0 && p.n && !strcmp(p.part[0], "call")) {
		good = call(d, i, o, count);
	} else if (count >= 0 && p.n) {
		size_t k = 0;

		while (k < sizeof operations / sizeof *operations && strcmp(operations[k].name, p.part[0]))
			k++;
		good = k < sizeof operations / sizeof *operations ? operations[k].decode(d, &p, i, o, count) : decode_row(d, &p, i, o, count);
		/* The end of a function that was put in place is a jump behind it. */
		if (good && i->flow == PTX_FLOW_EXIT && !strcmp(p.part[0], "ret") && leave) {
			i = &d->code->insn[index];
			i->flow = PTX_FLOW_BRANCH;
			jump_to(d, index, NULL, leave);
		}
	}
	if (count > 0)
		operands_free(o, count);
	at += strcspn(at, ";");
	*from = at + (*at == ';');
	if (!good)
		unknown(d, "%.*s", (int)(*from - start < 150 ? *from - start : 150), start);
	return good;
}

/* From `at` to `end`; `leave`: of a function that was put in place, where it begins. */
static bool body(struct decoder *d, const char *at, const char *end, uint32_t leave)
{
	uint32_t first_fixup = d->n_fixups, names[64], outer[64], depth = 0;

	for (at = sim_ptx_skip(at); at < end; at = sim_ptx_skip(at)) {
		if (*at == '{') {
			if (depth == 64)
				return false;
			names[depth] = d->n_names;
			outer[depth++] = d->scope;
			d->parent = grown(d->parent, d->n_scopes, sizeof *d->parent);
			d->parent[d->n_scopes] = d->scope;
			d->scope = d->n_scopes++;
			at++;
			continue;
		}
		if (*at == '}') {
			if (!depth)
				return false;
			d->n_names = names[--depth];
			d->scope = outer[depth];
			at++;
			continue;
		}
		if (*at == ';') {
			at++;
			continue;
		}
		if (*at == '.') {
			if (!declare(d, &at))
				return false;
			continue;
		}
		size_t n = sim_ptx_word(at);
		const char *behind = sim_ptx_skip(at + n);
		if (n && *behind == ':') {
			d->label = grown(d->label, d->n_labels, sizeof *d->label);
			d->label[d->n_labels++] = (struct name){ .text = at, .length = n, .kind = NAME_LABEL, .scope = d->scope, .insn = d->code->n };
			at = behind + 1;
			continue;
		}
		if (!instruction(d, &at, leave))
			return false;
	}
	/* Jumps out of this body are now known. */
	for (uint32_t k = first_fixup; k < d->n_fixups; k++)
		if (!d->fixup[k].text && leave && d->fixup[k].length == leave) {
			d->code->insn[d->fixup[k].insn].target = d->code->n;
			d->fixup[k].length = 0;
		}
	return true;
}

static bool join_labels(struct decoder *d)
{
	for (uint32_t k = 0; k < d->n_fixups; k++) {
		const struct fixup *f = &d->fixup[k];
		bool found = !f->text;

		for (uint32_t s = f->scope; !found && s != ~0u; s = d->parent[s])
			for (uint32_t j = 0; j < d->n_labels && !found; j++)
				if (d->label[j].scope == s && d->label[j].length == f->length && !memcmp(d->label[j].text, f->text, f->length)) {
					d->code->insn[f->insn].target = d->label[j].insn;
					found = true;
				}
		if (!found) {
			unknown(d, "bra %.*s", (int)f->length, f->text);
			return false;
		}
	}
	return true;
}

int ptx_decode(struct ptx_module *m, struct ptx_code *c, const struct sim_ptx_kernel *k)
{
	struct decoder d = { .module = m, .code = c };
	uint32_t root = ~0u;

	c->kernel = k;
	c->frame_bytes = PTX_FRAME_FIRST;
	/* Shared variables of the module come first, those that are as large as the launch says behind all others. */
	for (uint32_t v = 0; v < m->text.n_variables; v++)
		if (m->text.variable[v].space == SIM_PTX_SHARED && m->text.variable[v].bytes)
			c->shared_bytes = (uint32_t)(m->text.variable[v].offset + m->text.variable[v].bytes);
	d.parent = grown(NULL, 0, sizeof *d.parent);
	d.parent[0] = root;
	d.n_scopes = 1;
	bool good = body(&d, k->body, k->end, 0) && join_labels(&d);
	if (good)
		new_insn(&d)->flow = PTX_FLOW_EXIT;
	else
		unknown(&d, "(the text of it)");
	free(d.name);
	free(d.fixup);
	free(d.parent);
	free(d.label);
	return good ? 0 : -EINVAL;
}
