/* SPDX-License-Identifier: Apache-2.0 */
/* What each PTX instruction means: which function runs it, on which operands. */
#define _GNU_SOURCE
#include "device/ptx_decode.h"

#include <stdio.h>
#include <stdlib.h>

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

	return k > 0 ? ptx_type_named(p->part[k], strlen(p->part[k])) : PTX_NONE;
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

		if (!ptx_put(d, i, k, &o[k], t) || i->invert || (t != PTX_PRED && !o[k].sink && ptx_is_wide(t) != (i->wide >> k & 1)))
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
		return n == 3 && !i->and_or && !ptx_is_wide(i->from) && ptx_put(d, i, 0, &o[0], i->from) && ptx_put(d, i, 1, &o[1], i->type) && ptx_put(d, i, 2, &o[2], i->type);
	}
	int first = n - (i->and_or ? 3 : 2);
	if (first < 1 || first > 2 || !ptx_put(d, i, 0, &o[0], PTX_PRED) || (first == 2 && !ptx_put(d, i, 1, &o[1], PTX_PRED)))
		return false;
	if (i->and_or && !ptx_put(d, i, 4, &o[first + 2], PTX_PRED))
		return false;
	return ptx_put(d, i, 2, &o[first], i->type) && ptx_put(d, i, 3, &o[first + 1], i->type);
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
	if (n != 2 + pair || !ptx_put(d, i, 0, &o[0], i->type) || !ptx_put(d, i, 1, &o[1], i->from) || (pair && !ptx_put(d, i, 2, &o[2], i->from)))
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
	return size && ptx_put(d, i, 0, whole, i->type) && ptx_put_list(d, i, 1, parts, halves[size]);
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
	if (!ptx_put_address(d, i, 0, where))
		return false;
	i->n = (uint8_t)ptx_put_list(d, i, 1, what, i->type);
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
	if (!ptx_put_address(d, i, 0, &o[result]))
		return false;
	const struct operand *b = &o[result + 1];
	v = b->list ? b->n : 1;
	i->n = (uint8_t)v;
	if (v > 8 || (result && ptx_put_list(d, i, 1, &o[0], i->type) != v) || ptx_put_list(d, i, 1 + v, b, i->type) != v)
		return false;
	i->run = ptx_atomic;
	return how != PTX_CAS || ptx_put(d, i, 2 + v, &o[result + 2], i->type);
}

static bool decode_cvta(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	bool to = has(p, "to");
	static const char *const parts[] = { "to", "global", "const", "shared", "shared::cta", "local", "param", NULL };
	enum ptx_type t = last_type(p, 0);

	space_of(p, &i->space);
	if (n != 2 || !only(p, 1, parts) || (t != PTX_U64 && t != PTX_U32) || !ptx_put(d, i, 0, &o[0], t))
		return false;
	i->run = i->space == SIM_PTX_SHARED ? (to ? ptx_to_shared : ptx_from_shared) : ptx_row_find("mov.u64")->run;
	return ptx_put(d, i, 1, &o[1], t) && i->wide & 1;
}

static bool decode_copy_async(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const parts[] = { "async", "ca", "cg", "shared", "shared::cta", "global", "commit_group", "wait_group", "wait_all", NULL };

	if (p->n < 2 || strcmp(p->part[1], "async") || !only(p, 0, parts))
		return false;
	if (has(p, "commit_group") || has(p, "wait_group") || has(p, "wait_all"))
		return true; /* it was copied at once */
	n -= has(p, "L2::cache_hint");
	if (n < 3 || n > 4 || o[2].kind != OP_NUMBER || o[1].kind != OP_ADDRESS || !ptx_put_address(d, i, 0, &o[0]))
		return false;
	i->n = (uint8_t)o[2].value;
	i->target = (uint32_t)(int32_t)o[1].value;
	i->run = ptx_copy_async;
	return ptx_put(d, i, 1, &o[1].list[0], PTX_U64) && i->wide & 2 && (n < 4 || ptx_put(d, i, 2, &o[3], PTX_U32));
}

static bool decode_matrix(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const parts[] = { "sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", NULL };
	bool load = p->part[0][0] == 'l';

	if (n != 2 || !only(p, 1, parts) || last_type(p, 0) != PTX_B16 || !ptx_put_address(d, i, 0, &o[!!load]))
		return false;
	i->extra = has(p, "trans");
	i->space = SIM_PTX_SHARED;
	i->flow = PTX_FLOW_WARP;
	i->n = (uint8_t)ptx_put_list(d, i, 1, &o[!load], PTX_B32);
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
		if (!ptx_put(d, i, k + 2, &o[k + 1 + predicate], PTX_B32))
			return false;
	return ptx_put(d, i, 0, &o[0], PTX_B32) && (!predicate || ptx_put(d, i, 1, &o[1], PTX_PRED));
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
	return ptx_put(d, i, 0, &o[0], how == PTX_BALLOT ? PTX_B32 : PTX_PRED) && ptx_put(d, i, 1, &o[1], PTX_PRED) && ptx_put(d, i, 2, &o[2], PTX_B32);
}

static bool decode_reduce(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const names[] = { "add", "min", "max", "and", "or", "xor", NULL };
	int how = p->n == 4 && !strcmp(p->part[1], "sync") ? among(p->part[2], names) : -1;

	i->type = (uint8_t)last_type(p, 0);
	if (how < 0 || n != 3 || ptx_is_wide(i->type) || i->type == PTX_F32)
		return false;
	i->how = (uint8_t)how;
	i->flow = PTX_FLOW_WARP;
	i->mask = 2;
	i->run = ptx_reduce;
	return ptx_put(d, i, 0, &o[0], i->type) && ptx_put(d, i, 1, &o[1], i->type) && ptx_put(d, i, 2, &o[2], PTX_B32);
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
	return ptx_put(d, i, 0, &o[0], PTX_B32) && (!predicate || ptx_put(d, i, 1, &o[1], PTX_PRED)) && ptx_put(d, i, 2, &o[1 + predicate], i->type) &&
	       ptx_put(d, i, 3, &o[2 + predicate], PTX_B32);
}

static bool decode_elect(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	if (p->n != 2 || n != 3)
		return false;
	i->flow = PTX_FLOW_WARP;
	i->mask = 2;
	i->run = ptx_elect;
	return ptx_put(d, i, 0, &o[0], PTX_B32) && ptx_put(d, i, 1, &o[1], PTX_PRED) && ptx_put(d, i, 2, &o[2], PTX_B32);
}

static bool decode_active_mask(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	i->run = ptx_active_mask;
	return p->n == 2 && n == 1 && ptx_put(d, i, 0, &o[0], PTX_B32);
}

static bool decode_barrier(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const parts[] = { "sync", "arrive", "cta", "aligned", NULL };

	if (p->n > 1 && !strcmp(p->part[1], "warp")) {
		i->flow = PTX_FLOW_WARP;
		i->mask = 1;
		return n == 1 && ptx_put(d, i, 1, &o[0], PTX_B32);
	}
	if (!only(p, 0, parts) || n < 1 || n > 2 || o[0].kind != OP_NUMBER)
		return false;
	i->flow = PTX_FLOW_BARRIER;
	i->n = !has(p, "arrive");
	i->imm = o[0].value;
	return i->imm >= 0 && i->imm < 16 && (n < 2 || ptx_put(d, i, 0, &o[1], PTX_B32));
}

/* ---- control ---- */
static bool decode_branch(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	static const char *const parts[] = { "uni", NULL };

	i->flow = PTX_FLOW_BRANCH;
	if (n != 1 || !o[0].text || !only(p, 0, parts))
		return false;
	ptx_jump_to(d, (uint32_t)(i - d->code->insn), o[0].text, o[0].length);
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
	return n > 0 && ptx_put(d, i, 0, &o[0], PTX_B64) && ptx_put(d, i, 1, &zero, PTX_B64);
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

bool ptx_operation(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n)
{
	for (size_t k = 0; k < sizeof operations / sizeof *operations; k++)
		if (!strcmp(operations[k].name, p->part[0]))
			return operations[k].decode(d, p, i, o, n);
	return decode_row(d, p, i, o, n);
}
