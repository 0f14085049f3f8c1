/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the text of a PTX kernel into instructions. What is not known is said by name. */
#define _GNU_SOURCE
#include "device/ptx_decode.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void ptx_unknown(struct decoder *d, const char *format, ...)
{
	va_list va;

	if (d->failed)
		return;
	d->failed = true;
	va_start(va, format);
	vsnprintf(d->code->unknown, sizeof d->code->unknown, format, va);
	va_end(va);
}

void *ptx_grown(void *list, uint32_t n, size_t bytes)
{
	void *r = n & (n - 1) ? list : realloc(list, (n ? 2 * (size_t)n : 1) * bytes);

	if (!r)
		abort();
	return r;
}

struct ptx_insn *ptx_new_insn(struct decoder *d)
{
	d->code->insn = ptx_grown(d->code->insn, d->code->n, sizeof *d->code->insn);
	d->code->insn[d->code->n] = (struct ptx_insn){ 0 };
	return &d->code->insn[d->code->n++];
}

void ptx_jump_to(struct decoder *d, uint32_t insn, const char *text, size_t n)
{
	d->fixup = ptx_grown(d->fixup, d->n_fixups, sizeof *d->fixup);
	d->fixup[d->n_fixups++] = (struct fixup){ insn, d->scope, text, n };
}

void ptx_split(struct opcode *p, const char *text, size_t n)
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
		struct name *x = ptx_add_name(d, l->symbol[k].name, strlen(l->symbol[k].name), NAME_MEMORY);
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
		if (!ptx_put(d, i, k, &list->list[k], PTX_U64))
			return false;
	return true;
}

static bool call(struct decoder *d, struct ptx_insn *i, const struct operand *o, int n)
{
	const struct operand *result = n && o[0].list ? &o[0] : NULL, *name = result ? &o[1] : &o[0], *list = n > (result ? 2 : 1) ? &o[result ? 2 : 1] : NULL;
	uint32_t guard = i->guard;

	if (n < 1 || !name->text)
		return false;
	if (ptx_same(name->text, name->length, "__assertfail") && list)
		return assertion(d, i, list);
	for (uint32_t k = 0; k < d->module->text.n_functions; k++) {
		const struct sim_ptx_kernel *f = &d->module->text.function[k];
		uint32_t names = d->n_names, scope = d->scope, start = d->code->n - 1;

		if (!ptx_same(name->text, name->length, f->name) || d->depth == DEPTH_MAX)
			continue;
		if (!bind_list(d, &f->result, result) || !bind_list(d, &f->param, list))
			return false;
		/* Lanes that do not call jump over it. */
		i->flow = PTX_FLOW_BRANCH;
		i->negate = !i->negate;
		if (!guard)
			i->flow = PTX_FLOW_NEXT;
		d->depth++;
		d->parent = ptx_grown(d->parent, d->n_scopes, sizeof *d->parent);
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
		struct name *x = ptx_add_name(d, at, n, NAME_REGISTERS);
		at = sim_ptx_skip(at + n);
		if (*at == '<') {
			x->count = (uint32_t)strtoul(at + 1, &end, 10);
			at = sim_ptx_skip(end + 1);
		}
		x->type = t;
		x->first = ptx_new_place(d, t, x->count ? x->count : 1);
	} while (*at == ',');
	*from = at;
}

static bool declare(struct decoder *d, const char **from)
{
	const char *at = *from;
	size_t n = sim_ptx_word(at);
	bool good = true;

	if (ptx_same(at, n, ".reg")) {
		at = sim_ptx_skip(at + n);
		n = sim_ptx_word(at);
		enum ptx_type t = *at == '.' ? ptx_type_named(at + 1, n - 1) : PTX_NONE;
		if (t == PTX_NONE) {
			ptx_unknown(d, ".reg %.*s", (int)n, at);
			return false;
		}
		at = sim_ptx_skip(at + n);
		registers(d, &at, t);
	} else if (ptx_same(at, n, ".local") || ptx_same(at, n, ".shared") || ptx_same(at, n, ".param")) {
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
			struct name *x = ptx_add_name(d, s.name, strlen(s.name), NAME_MEMORY);
			x->space = shared ? SIM_PTX_SHARED : SIM_PTX_LOCAL;
			x->offset = *used;
			*used += (uint32_t)s.bytes;
		} while (*at == ',');
	} else if (ptx_same(at, n, ".loc") || ptx_same(at, n, ".file")) {
		*from = at + strcspn(at, "\n");
		return true;
	} else if (!ptx_same(at, n, ".pragma")) {
		ptx_unknown(d, "%.*s", (int)n, at);
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
		const struct name *x = ptx_find_name(d, at, n, &guard);
		if (!x || x->type != PTX_PRED)
			return false;
		at = sim_ptx_skip(at + n);
	}
	size_t n = sim_ptx_word(at);
	ptx_split(&p, at, n);
	at += n;
	int count = ptx_operands(d, &at, o);
	uint32_t index = d->code->n;
	struct ptx_insn *i = ptx_new_insn(d);
	i->guard = guard;
	i->negate = negate;
	if (count >= 0 && p.n && !strcmp(p.part[0], "call")) {
		good = call(d, i, o, count);
	} else if (count >= 0 && p.n) {
		good = ptx_operation(d, &p, i, o, count);
		/* The end of a function that was put in place is a jump behind it. */
		if (good && i->flow == PTX_FLOW_EXIT && !strcmp(p.part[0], "ret") && leave) {
			i = &d->code->insn[index];
			i->flow = PTX_FLOW_BRANCH;
			ptx_jump_to(d, index, NULL, leave);
		}
	}
	if (count > 0)
		ptx_operands_free(o, count);
	at += strcspn(at, ";");
	*from = at + (*at == ';');
	if (!good)
		ptx_unknown(d, "%.*s", (int)(*from - start < 150 ? *from - start : 150), start);
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
			d->parent = ptx_grown(d->parent, d->n_scopes, sizeof *d->parent);
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
			d->label = ptx_grown(d->label, d->n_labels, sizeof *d->label);
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
			ptx_unknown(d, "bra %.*s", (int)f->length, f->text);
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
	d.parent = ptx_grown(NULL, 0, sizeof *d.parent);
	d.parent[0] = root;
	d.n_scopes = 1;
	bool good = body(&d, k->body, k->end, 0) && join_labels(&d);
	if (good)
		ptx_new_insn(&d)->flow = PTX_FLOW_EXIT;
	else
		ptx_unknown(&d, "(the text of it)");
	free(d.name);
	free(d.fixup);
	free(d.parent);
	free(d.label);
	return good ? 0 : -EINVAL;
}
