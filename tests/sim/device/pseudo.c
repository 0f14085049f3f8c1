/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudo-execution of one launch: its rule says what it reads and writes, and a digest of all that decides the results. */
#define _GNU_SOURCE
#include "device/pseudo.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/gathers.h"
#include "device/rules.h"

/* Of the C++ library. */
char *__cxa_demangle(const char *mangled, char *buffer, size_t *length, int *status);

struct sim_range *sim_plan_in(struct sim_plan *p, const void *at, uint64_t n, enum sim_type t)
{
	if (p->n_in == p->cap_in) {
		p->cap_in = p->cap_in ? 2 * p->cap_in : 16;
		p->in = realloc(p->in, (size_t)p->cap_in * sizeof *p->in);
		if (!p->in)
			abort();
	}
	struct sim_range *r = &p->in[p->n_in++];
	*r = (struct sim_range){ .at = (char *)(uintptr_t)at, .n = n, .type = t };
	return r;
}

struct sim_range *sim_plan_out(struct sim_plan *p, const void *at, uint64_t n, enum sim_type t)
{
	if (p->n_out == p->cap_out) {
		p->cap_out = p->cap_out ? 2 * p->cap_out : 16;
		p->out = realloc(p->out, (size_t)p->cap_out * sizeof *p->out);
		if (!p->out)
			abort();
	}
	struct sim_range *r = &p->out[p->n_out++];
	*r = (struct sim_range){ .at = (char *)(uintptr_t)at, .n = n, .type = t };
	return r;
}

void sim_plan_scalar(struct sim_plan *p, const void *at, size_t n)
{
	p->scalars = sim_mix_bytes(p->scalars, at, n);
}

const char *sim_param(const struct sim_plan *p, uint32_t i, uint32_t offset)
{
	return p->params + p->kernel->param[i].offset + offset;
}

uint32_t sim_param_size(const struct sim_plan *p, uint32_t i)
{
	return i < p->kernel->n_params ? p->kernel->param[i].size : 0;
}

uint64_t sim_param_word(const struct sim_plan *p, uint32_t i, uint32_t offset)
{
	uint64_t v;

	memcpy(&v, sim_param(p, i, offset), 8);
	return v;
}

int32_t sim_param_int(const struct sim_plan *p, uint32_t i, uint32_t offset)
{
	int32_t v = 0;

	memcpy(&v, sim_param(p, i, offset), sim_param_size(p, i) < 4 ? sim_param_size(p, i) : 4);
	return v;
}

const char *sim_template_argument(const char *text, const char *part, int i, size_t *n)
{
	const char *at = strstr(text, part);
	int depth = 0;

	at = at ? at + strlen(part) : NULL;
	if (at && at > text && at[-1] == '<')
		at--;
	if (!at || *at++ != '<')
		return NULL;
	for (const char *start = at;; at++) {
		if (strchr("<({[", *at) && *at) {
			depth++;
		} else if (depth && strchr(">)}]", *at) && *at) {
			depth--;
		} else if (!*at || (!depth && (*at == ',' || *at == '>'))) {
			if (!i--) {
				*n = (size_t)(at - start);
				return start;
			}
			if (*at != ',')
				return NULL;
			start = at + 1 + (at[1] == ' ');
		}
	}
}

/* Splits "name(type, type)" in place; what is not a signature is all name. */
static void split(struct sim_described *k, char *text)
{
	char *open = text + strlen(text), *close = open;
	uint32_t n = 0;
	int depth = 0;

	k->name = text;
	while (close > text && close[-1] != ')')
		close--;
	for (open = close; open > text; open--)
		if (open[-1] == ')')
			depth++;
		else if (open[-1] == '(' && !--depth)
			break;
	if (open <= text + 1)
		return;
	open[-1] = 0;
	close[-1] = 0;
	depth = 0;
	for (char *at = open, *start = open; n < k->n_params; at++) {
		if (strchr("<({[", *at) && *at) {
			depth++;
		} else if (strchr(">)}]", *at) && *at) {
			depth--;
		} else if (!*at || (!depth && *at == ',')) {
			char c = *at;

			*at = 0;
			k->type[n++] = start;
			if (!c)
				break;
			start = at + 1 + (at[1] == ' ');
		}
	}
}

static const char *setting(const char *name)
{
	const char *v = getenv(name);

	return v ? v : "";
}

/* Whether any of its kernels has a rule. */
static bool any_rule(const char *image, const struct sim_image_header *h)
{
	const struct sim_image_kernel *k = (const void *)(image + h->kernels);
	bool found = false;

	for (uint32_t i = 0; i < h->n_kernels && !found; i++) {
		const char *mangled = image + h->strings + k[i].name;
		int status;
		char *text = __cxa_demangle(mangled, NULL, NULL, &status);

		found = sim_rule_find(text ? text : mangled);
		free(text);
	}
	if (!found && h->n_kernels && !strcmp(setting("SIMGPU_UNKNOWN"), "list"))
		fprintf(stderr, "simgpu: no rule for a module's kernels: %s...\n", image + h->strings + k[0].name);
	return found;
}

int sim_describe(const char *image, size_t bytes, bool ruled, struct sim_described **out, uint32_t *n)
{
	const struct sim_image_header *h = (const void *)image;
	const struct sim_image_kernel *k = (const void *)(image + h->kernels);
	const struct sim_image_param *p = (const void *)(image + h->params);

	if (bytes < sizeof *h || h->total_bytes > bytes)
		return -ENOEXEC;
	if (ruled && !any_rule(image, h))
		return -ENOENT;
	*n = h->n_kernels;
	*out = calloc(h->n_kernels + 1, sizeof **out);
	if (!*out)
		return -ENOMEM;
	for (uint32_t i = 0; i < h->n_kernels; i++) {
		struct sim_described *d = *out + i;

		d->mangled = strdup(image + h->strings + k[i].name);
		d->n_params = k[i].n_params;
		d->param = malloc((d->n_params + 1) * sizeof *d->param);
		d->type = malloc((d->n_params + 1) * sizeof *d->type);
		if (!d->mangled || !d->param || !d->type)
			return -ENOMEM;
		memcpy(d->param, p + k[i].first_param, d->n_params * sizeof *d->param);
	}
	return 0;
}

static void no_rule(const struct sim_described *k)
{
	static bool said;

	if (!strcmp(setting("SIMGPU_UNKNOWN"), "list"))
		fprintf(stderr, "simgpu: no rule for kernel %s\n", k->name);
	else if (!said)
		fprintf(stderr, "simgpu: a kernel has no rule and changes one element of each output (SIMGPU_UNKNOWN=list)\n");
	said = true;
}

/* Names come by the thousand and few are launched: demangled when first used. */
static void resolve(struct sim_described *k)
{
	static char empty[1];
	int status;
	char *text = __cxa_demangle(k->mangled, NULL, NULL, &status);

	for (uint32_t i = 0; i < k->n_params; i++)
		k->type[i] = empty;
	if (text)
		split(k, text);
	else
		k->name = k->mangled;
	k->rule = sim_rule_find(k->name);
	k->resolved = true;
	if (!k->rule)
		no_rule(k);
}

/* Without a rule: what a pointer to something not constant leads to is an output, one element of it. */
static void plan_signature(struct sim_plan *p)
{
	const struct sim_described *k = p->kernel;

	for (uint32_t i = 0; i < k->n_params; i++) {
		const char *t = k->type[i];
		size_t n = strlen(t);
		bool constant = strstr(t, " const*");

		if (!n || sim_param_size(p, i) > 8)
			continue;
		if (t[n - 1] != '*') {
			if (sim_type_named(t, n) != SIM_TYPE_NONE)
				sim_plan_scalar(p, sim_param(p, i, 0), sim_param_size(p, i));
			continue;
		}
		enum sim_type type = sim_type_named(t, n - 1 - (constant ? strlen(" const") : 0));
		const void *at = (const void *)(uintptr_t)sim_param_word(p, i, 0);
		if (type == SIM_TYPE_NONE || !at)
			continue;
		if (constant)
			sim_plan_in(p, at, 1, type);
		else
			sim_plan_out(p, at, 1, type);
	}
}

static bool plan(struct sim_plan *p)
{
	const struct sim_rule *r = p->kernel->rule;

	if (!strcmp(r->layout, "params"))
		return sim_rule_plan(p, r);
	for (const struct sim_layout *l = sim_layouts; l->name; l++)
		if (!strcmp(l->name, r->layout))
			return l->plan(p, r);
	return false;
}

static bool gather(const struct sim_plan *p)
{
	for (const struct sim_gather *g = sim_gathers; g->name; g++)
		if (!strcmp(g->name, p->kernel->rule->layout))
			return g->run(p, sim_mix_bytes(0, p->kernel->mangled, strlen(p->kernel->mangled)));
	return false;
}

static void trace(const struct sim_plan *p, uint64_t h)
{
	static uint64_t count;

	fprintf(stderr, "simgpu: %llu %.300s grid %u,%u,%u digest %016llx scalars %016llx", (unsigned long long)count++, p->kernel->name,
		p->launch->grid[0], p->launch->grid[1], p->launch->grid[2], (unsigned long long)h, (unsigned long long)p->scalars);
	for (int i = 0; i < p->n_out; i++)
		fprintf(stderr, " out %p*%llu:%d", (void *)p->out[i].at, (unsigned long long)p->out[i].n, p->out[i].type);
	for (int i = 0; i < p->n_in; i++)
		fprintf(stderr, " in %p*%llu:%d=%08x", (void *)p->in[i].at, (unsigned long long)p->in[i].n, p->in[i].type,
			(unsigned)sim_mix_range(0, &p->in[i]));
	fprintf(stderr, "\n");
}

static void dump(const struct sim_plan *p)
{
	for (uint32_t i = 0; i < p->kernel->n_params; i++) {
		fprintf(stderr, "  p%u %u bytes %.200s\n", i, sim_param_size(p, i), p->kernel->type[i]);
		for (uint32_t o = 0; o + 4 <= sim_param_size(p, i) && o < 1200; o += 4)
			fprintf(stderr, "%s%08x", o % 64 ? " " : o ? "\n    " : "    ", (unsigned)sim_param_int(p, i, o));
		fprintf(stderr, "\n");
	}
}

/* The gradient scaler: finite or not by one digest in sixteen, so that a program sees both. */
static void unscale(const struct sim_plan *p, uint64_t h)
{
	if (h % 16 == 0 && p->found_inf)
		*p->found_inf = 1;
}

static void amp_update(const struct sim_plan *p)
{
	float *scale = (float *)(void *)p->out[0].at;
	int *growth = (int *)(void *)p->out[1].at;
	const float *found = (const float *)(const void *)p->in[0].at;
	double up, down;
	int interval;

	memcpy(&up, sim_param(p, 3, 0), sizeof up);
	memcpy(&down, sim_param(p, 4, 0), sizeof down);
	memcpy(&interval, sim_param(p, 5, 0), sizeof interval);
	if (*found > 0) {
		*scale = (float)((double)*scale * down);
		*growth = 0;
	} else if (++*growth == interval) {
		float next = (float)((double)*scale * up);

		if (next <= 3.4e38f)
			*scale = next;
		*growth = 0;
	}
}

/* A product with a number, which a unary functor has in its second half: a loss over two stays a loss. */
static void scale(const struct sim_plan *p)
{
	uint32_t half = p->functor_bytes / 2;
	double by = 1;
	float f;

	if (half == 8) {
		memcpy(&by, p->functor + half, sizeof by);
	} else if (half == 4) {
		memcpy(&f, p->functor + half, sizeof f);
		by = (double)f;
	}
	if (p->n_out && p->n_in)
		sim_mix_scale(&p->out[0], &p->in[0], by);
}

/* One value for every index. */
static struct sim_range everywhere(const char *at, enum sim_type t)
{
	struct sim_range r = { .n = 1, .type = t, .dims = 1, .size = { 1 } };

	memcpy(&r.at, &at, sizeof at);
	return r;
}

/*
 * at::native's functors begin with the relation: EQ, NE of CompareEqFunctor, GE, GT, LE, LT of CompareFunctor and compare_scalar_kernel's
 * closure. With one operand the other is a number of the type that is computed in.
 */
static bool compare(const struct sim_plan *p, enum sim_how how)
{
	static const enum sim_relation of_equal[] = { SIM_EQ, SIM_NE }, of_order[] = { SIM_GE, SIM_GT, SIM_LE, SIM_LT };
	const char *name = p->kernel->name;
	struct sim_range number, *b = &number;
	unsigned relation;

	if (p->n_out != 1 || p->n_in < 1 || p->n_in > 2 || p->out[0].type != SIM_TYPE_BOOL || p->functor_bytes < sizeof relation)
		return false;
	memcpy(&relation, p->functor, sizeof relation);
	if (relation > (how == SIM_HOW_EQUAL ? SIM_NE : 3u))
		return false;
	if (p->n_in == 2) {
		b = &p->in[1];
	} else {
		size_t n = 0;
		bool equal = how == SIM_HOW_EQUAL;
		const char *text = sim_template_argument(name, equal ? "CompareEqFunctor<" : "compare_scalar_kernel<", 0, &n);
		enum sim_type t = text ? sim_type_named(text, n) : SIM_TYPE_NONE;
		uint64_t bytes;

		bytes = sim_type_bytes(t);
		if (t == SIM_TYPE_NONE || (bytes < 4 ? 4 : bytes) + bytes > p->functor_bytes)
			return false;
		number = everywhere(p->functor + (bytes < 4 ? 4 : bytes), t);
	}
	sim_mix_compare(&p->out[0], &p->in[0], b, how == SIM_HOW_EQUAL ? of_equal[relation] : of_order[relation]);
	return true;
}

/* at::native::CUDAFunctor_add<long>, with a number and the factor of the second, or the factor alone: self + factor * other. */
static bool add(const struct sim_plan *p)
{
	bool alone = p->n_in == 1, self = strstr(p->kernel->name, "OnSelf_add<");
	struct sim_range number;
	int64_t times;

	if (p->n_out != 1 || !p->n_in || p->n_in > 2 || p->functor_bytes < (alone ? 16 : 8))
		return false;
	memcpy(&times, p->functor + (alone ? 8 : 0), sizeof times);
	number = everywhere(p->functor, SIM_TYPE_I64);
	sim_mix_add(&p->out[0], alone && !self ? &number : &p->in[0], !alone ? &p->in[1] : self ? &number : &p->in[0], times);
	return true;
}

/* What decides about other values is no number to be made up: a program that looks for what is not finite would find it everywhere. */
static bool decide(const struct sim_plan *p, enum sim_how how)
{
	struct sim_range value;

	switch (how) {
	case SIM_HOW_EQUAL:
	case SIM_HOW_ORDER:
		return compare(p, how);
	case SIM_HOW_OR:
	case SIM_HOW_AND:
		if (!p->n_out || p->n_in != 2)
			return false;
		sim_mix_logic(&p->out[0], &p->in[0], &p->in[1], how == SIM_HOW_AND);
		return true;
	case SIM_HOW_ABS:
		if (!p->n_out || p->n_in != 1)
			return false;
		sim_mix_abs(&p->out[0], &p->in[0]);
		return true;
	case SIM_HOW_ADD:
		return add(p);
	case SIM_HOW_SUM:
		if (p->n_out != 1 || !p->n_in)
			return false;
		sim_mix_sum(&p->out[0], &p->in[0], p->n_in > 1 ? &p->in[1] : NULL);
		return true;
	case SIM_HOW_NOT:
		if (!p->n_out || p->n_in != 1)
			return false;
		sim_mix_logic(&p->out[0], &p->in[0], NULL, false);
		return true;
	case SIM_HOW_MASK: /* self, mask; the value is the closure's first */
		if (!p->n_out || p->n_in != 2 || !p->functor || p->functor_bytes < sim_type_bytes(p->out[0].type))
			return false;
		value = everywhere(p->functor, p->out[0].type);
		sim_mix_where(&p->out[0], &p->in[1], &value, &p->in[0]);
		return true;
	default:
		return false;
	}
}

static void carry_out(struct sim_plan *p, enum sim_how how, uint64_t h)
{
	switch (how) {
	case SIM_HOW_FILL:
		if (!p->functor)
			return;
		for (int i = 0; i < p->n_out; i++)
			sim_mix_fill(&p->out[i], p->functor);
		return;
	case SIM_HOW_COPY:
		for (int i = 0; i < p->n_out && i < p->n_in; i++)
			sim_mix_copy(&p->out[i], &p->in[i]);
		return;
	case SIM_HOW_WHERE:
		if (p->n_out && p->n_in == 3)
			sim_mix_where(&p->out[0], &p->in[0], &p->in[1], &p->in[2]);
		return;
	case SIM_HOW_SCALE:
		scale(p);
		return;
	case SIM_HOW_AMP_UPDATE:
		if (p->n_out > 1 && p->n_in)
			amp_update(p);
		return;
	case SIM_HOW_MASK:
	case SIM_HOW_EQUAL:
	case SIM_HOW_ORDER:
	case SIM_HOW_OR:
	case SIM_HOW_AND:
	case SIM_HOW_NOT:
	case SIM_HOW_ABS:
	case SIM_HOW_SUM:
	case SIM_HOW_ADD:
		if (decide(p, how))
			return;
		break;
	case SIM_HOW_FUSED:
		if (p->found_inf && *p->found_inf == 1)
			return;
		break;
	case SIM_HOW_UNSCALE:
		unscale(p, h);
		break;
	default:
		break;
	}
	for (int i = 0; i < p->n_out; i++)
		sim_mix_write(&p->out[i], sim_mix_word(h, (uint64_t)i));
}

void sim_pseudo_launch(struct sim_described *k, const struct sim_launch_request *m, const char *params)
{
	static int tracing = -1;
	static struct sim_plan p;
	uint64_t h;

	if (!k->resolved)
		resolve(k);
	if (tracing < 0)
		tracing = atoi(setting("SIMGPU_TRACE"));
	p.kernel = k;
	p.launch = m;
	p.params = params;
	p.n_in = p.n_out = 0;
	p.scalars = 0;
	p.found_inf = NULL;
	p.functor = NULL;
	p.functor_bytes = 0;
	if (k->rule && gather(&p))
		return;
	if (k->rule && !plan(&p)) {
		fprintf(stderr, "simgpu: kernels.rules:%d does not fit kernel %s\n", k->rule->line, k->name);
		k->rule = NULL;
	}
	if (!k->rule)
		plan_signature(&p);
	h = sim_mix_bytes(p.scalars, k->mangled, strlen(k->mangled));
	for (int i = 0; i < p.n_in; i++)
		h = sim_mix_range(h, &p.in[i]);
	if (tracing > 0)
		trace(&p, h);
	if (tracing > 1 || (tracing && !k->rule))
		dump(&p);
	carry_out(&p, k->rule ? k->rule->how : SIM_HOW_MIX, h);
}
