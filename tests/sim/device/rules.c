/* SPDX-License-Identifier: Apache-2.0 */
/* Reads kernels.rules and evaluates its rows for one launch. */
#define _GNU_SOURCE
#include "device/rules.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/gathers.h"

static struct sim_rule *rules;
static size_t n_rules;

static const char *const hows[] = { "mix", "fill", "copy", "scale", "where", "mask", "equal", "order", "or",
				    "and", "not",  "abs",  "sum", "add", "unscale", "amp_update", "fused" };

static char *trim(char *s)
{
	while (isspace((unsigned char)*s))
		s++;
	for (char *end = s + strlen(s); end > s && isspace((unsigned char)end[-1]);)
		*--end = 0;
	return s;
}

static void items(char *text, char **to)
{
	char *save = NULL;
	int n = 0;

	for (char *w = strtok_r(text, " \t", &save); w && n < SIM_ITEMS; w = strtok_r(NULL, " \t", &save))
		to[n++] = strdup(w);
}

static void complain(int line, const char *what, const char *text)
{
	fprintf(stderr, "simgpu: kernels.rules:%d: %s '%s'\n", line, what, text);
}

static bool known_layout(const char *name)
{
	if (!strcmp(name, "params"))
		return true;
	for (const struct sim_gather *g = sim_gathers; g->name; g++)
		if (!strcmp(g->name, name))
			return true;
	for (const struct sim_layout *l = sim_layouts; l->name; l++)
		if (!strcmp(l->name, name))
			return true;
	return false;
}

static void add(char *line, int number)
{
	struct sim_rule r = { .line = number };
	char *column[6] = { NULL };
	int n = 0;

	for (char *at = line; at && n < 6; n++) {
		char *bar = strchr(at, '|');

		if (bar)
			*bar++ = 0;
		column[n] = trim(at);
		at = bar;
	}
	r.pattern = strdup(column[0]);
	r.layout = strdup(n > 1 && *column[1] ? column[1] : "params");
	if (!known_layout(r.layout)) {
		complain(number, "no layout", r.layout);
		return;
	}
	if (n > 2 && *column[2]) {
		size_t i = 0;

		while (i < sizeof hows / sizeof *hows && strcmp(hows[i], column[2]))
			i++;
		if (i == sizeof hows / sizeof *hows) {
			complain(number, "no such way", column[2]);
			return;
		}
		r.how = (enum sim_how)i;
	}
	if (n > 3)
		items(column[3], r.out);
	if (n > 4)
		items(column[4], r.in);
	if (n > 5)
		items(column[5], r.scalar);
	if (r.out[0] && r.out[0][0] == ':')
		r.out_type = r.out[0];
	if (r.in[0] && r.in[0][0] == ':')
		r.in_type = r.in[0];
	if (r.out[0] && !strcmp(r.out[0], "+"))
		r.positive = true;
	struct sim_rule *grown = realloc(rules, (n_rules + 1) * sizeof *grown);
	if (!grown)
		return;
	rules = grown;
	rules[n_rules++] = r;
}

static void read_rules(void)
{
	char path[4096] = "", *line = NULL;
	size_t room = 0;
	int number = 0;
	const char *own = getenv("SIMGPU_RULES");

	if (own) {
		snprintf(path, sizeof path, "%s", own);
	} else {
		ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
		char *slash = n > 0 ? strrchr(path, '/') : NULL;

		if (slash)
			strcpy(slash + 1, "kernels.rules");
	}
	FILE *f = fopen(path, "re");
	if (!f) {
		fprintf(stderr, "simgpu: cannot read %s: %m\n", path);
		return;
	}
	while (getline(&line, &room, f) > 0) {
		char *text = trim(line);

		number++;
		if (*text && *text != '#')
			add(text, number);
	}
	free(line);
	fclose(f);
}

static bool fits(const char *pattern, const char *name)
{
	char piece[512];

	for (const char *at = pattern; *at;) {
		size_t n = strcspn(at, "*");

		if (n >= sizeof piece)
			return false;
		memcpy(piece, at, n);
		piece[n] = 0;
		name = strstr(name, piece);
		if (!name)
			return false;
		name += n;
		at += n + (at[n] == '*');
	}
	return true;
}

const struct sim_rule *sim_rule_find(const char *name)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_rules);
	for (size_t i = 0; i < n_rules; i++)
		if (fits(rules[i].pattern, name))
			return &rules[i];
	return NULL;
}

/* ---- expressions: integers, pK[.offset][l], gx gy gz bx by bz, tK, + - * / ( ) ---- */
struct reader {
	const struct sim_plan *plan;
	const struct sim_rule *rule;
	const char *at;
	bool bad;
};

static int64_t sum(struct reader *r);

static int64_t number(struct reader *r)
{
	char *end;
	int64_t v = strtoll(r->at, &end, 10);

	if (end == r->at)
		r->bad = true;
	r->at = end;
	return v;
}

static const char *last_piece(const char *pattern)
{
	const char *star = strrchr(pattern, '*');

	return star && star[1] ? star + 1 : star ? pattern : pattern;
}

static int64_t parameter(struct reader *r)
{
	uint32_t i = (uint32_t)number(r), offset = 0, size;

	if (r->bad || i >= r->plan->kernel->n_params) {
		r->bad = true;
		return 0;
	}
	size = sim_param_size(r->plan, i);
	if (*r->at == '.') {
		r->at++;
		offset = (uint32_t)number(r);
		size = 4;
	}
	if (*r->at == 'l') {
		r->at++;
		size = 8;
	} else if (*r->at == 'c') {
		r->at++;
		return *(const int8_t *)sim_param(r->plan, i, offset);
	}
	if (size >= 8)
		return (int64_t)sim_param_word(r->plan, i, offset);
	return sim_param_int(r->plan, i, offset);
}

static int64_t atom(struct reader *r)
{
	static const char axis[] = "xyz";
	const char *a;
	char c = *r->at;

	if (isdigit((unsigned char)c) || c == '-')
		return number(r);
	r->at += c != 0;
	if (c == '(') {
		int64_t v = sum(r);

		r->bad |= *r->at != ')';
		r->at += *r->at == ')';
		return v;
	}
	if (c == 'p')
		return parameter(r);
	if ((c == 'g' || c == 'b') && (a = strchr(axis, *r->at)) && *a) {
		r->at++;
		return c == 'g' ? r->plan->launch->grid[a - axis] : r->plan->launch->block[a - axis];
	}
	if (c == 't') {
		size_t n;
		const char *text = sim_template_argument(r->plan->kernel->name, last_piece(r->rule->pattern), (int)number(r), &n);

		if (text && *text == '(') /* "(int)4", "(unsigned int)4" */
			text = memchr(text, ')', n) ? (const char *)memchr(text, ')', n) + 1 : NULL;
		if (text)
			return strtoll(text, NULL, 10);
	}
	r->bad = true;
	return 0;
}

static int64_t product(struct reader *r)
{
	int64_t v = atom(r);

	while (!r->bad && (*r->at == '*' || *r->at == '/')) {
		char c = *r->at++;
		int64_t w = atom(r);

		if (c == '*')
			v *= w;
		else if (w)
			v /= w;
		else
			r->bad = true;
	}
	return v;
}

static int64_t sum(struct reader *r)
{
	int64_t v = product(r);

	while (!r->bad && (*r->at == '+' || *r->at == '-')) {
		char c = *r->at++;
		int64_t w = product(r);

		v = c == '+' ? v + w : v - w;
	}
	return v;
}

/* The dtype that AT_DISPATCH_ALL_TYPES_AND(Half, BFloat16) chose, from the number of its closure. */
static enum sim_type dispatched(const char *name)
{
	static const enum sim_type order[] = { SIM_TYPE_I8, SIM_TYPE_I8, SIM_TYPE_I32, SIM_TYPE_I64, SIM_TYPE_I16,
					       SIM_TYPE_F64, SIM_TYPE_F32, SIM_TYPE_F16, SIM_TYPE_BF16 };
	const char *last = NULL;

	for (const char *at = name; (at = strstr(at, "{lambda()#")); at++)
		last = at;
	size_t i = last ? (size_t)atoi(last + strlen("{lambda()#")) - 1 : sizeof order;
	return i < sizeof order / sizeof *order ? order[i] : SIM_TYPE_NONE;
}

enum sim_type sim_rule_type(const struct sim_plan *p, const struct sim_rule *r, const char *text)
{
	size_t n = strcspn(text + 1, "[{+"), m;

	if (text[1] == '@' || text[1] == 't') {
		const char *a = sim_template_argument(p->kernel->name, last_piece(r->pattern), atoi(text + 2), &m);

		return a ? sim_type_named(a, m) : SIM_TYPE_NONE;
	}
	if (n == 8 && !memcmp(text + 1, "dispatch", n))
		return dispatched(p->kernel->name);
	if (n == 5 && !memcmp(text + 1, "named", n)) /* fmha_cutlassF_bf16_aligned... */
		return strstr(p->kernel->name, "_bf16_") ? SIM_TYPE_BF16 : strstr(p->kernel->name, "_f16_") ? SIM_TYPE_F16 : SIM_TYPE_F32;
	return sim_type_named(text + 1, n);
}

static enum sim_type pointee(const char *type)
{
	char t[256];
	size_t n;

	snprintf(t, sizeof t, "%s", type);
	for (char *at; (at = strstr(t, " const")) || (at = strstr(t, " volatile"));)
		memmove(at, at + (at[1] == 'c' ? 6 : 9), strlen(at) - (at[1] == 'c' ? 6 : 9) + 1);
	n = strlen(t);
	return n && t[n - 1] == '*' ? sim_type_named(t, n - 1) : SIM_TYPE_NONE;
}

/* {size,stride;size,stride...}, the first fastest, strides in elements. */
static void shape(struct reader *r, struct sim_range *x)
{
	uint64_t bytes = sim_type_bytes(x->type);

	x->n = 1;
	do {
		r->at++;
		int64_t size = sum(r);
		if (*r->at != ',' || size < 0) {
			r->bad = true;
			return;
		}
		r->at++;
		int64_t stride = sum(r);
		x->n *= (uint64_t)size;
		if (size != 1) {
			x->size[x->dims] = (uint32_t)size;
			x->stride[x->dims++] = (uint32_t)((uint64_t)stride * bytes);
		}
	} while (!r->bad && *r->at == ';' && x->dims < SIM_DIMS);
	r->bad |= *r->at != '}';
	r->at += *r->at == '}';
}

/* pK[.offset][:type][[count] or {shape}][+] */
static bool item(struct sim_plan *p, const struct sim_rule *rule, const char *text, bool output)
{
	struct reader r = { .plan = p, .rule = rule, .at = text + 1 };
	uint32_t i = (uint32_t)number(&r), offset = 0;
	int64_t n = 1;
	enum sim_type t;
	struct sim_range shaped = { 0 };

	if (*text != 'p' || r.bad || i >= p->kernel->n_params)
		return false;
	if (*r.at == '.') {
		r.at++;
		offset = (uint32_t)number(&r);
	}
	if (*r.at == ':') {
		t = sim_rule_type(p, rule, r.at);
		r.at += strcspn(r.at, "[{+");
	} else {
		t = pointee(p->kernel->type[i]);
	}
	if (*r.at == '{') {
		shaped.type = t;
		shape(&r, &shaped);
		n = (int64_t)shaped.n;
	} else if (*r.at == '[') {
		r.at++;
		n = sum(&r);
		if (*r.at++ != ']')
			r.bad = true;
	}
	if (r.bad || t == SIM_TYPE_NONE || n < 0 || offset + 8 > sim_param_size(p, i))
		return false;
	const void *at = (const void *)(uintptr_t)sim_param_word(p, i, offset);
	if (at && n) {
		struct sim_range *x = output ? sim_plan_out(p, at, (uint64_t)n, t) : sim_plan_in(p, at, (uint64_t)n, t);

		memcpy(x->size, shaped.size, sizeof x->size);
		memcpy(x->stride, shaped.stride, sizeof x->stride);
		x->dims = shaped.dims;
		x->positive = *r.at == '+';
	}
	return true;
}

/* at::PhiloxCudaState: seed and offset, or where they lie in a graph; the offset within it; which of the two. */
static void philox(struct sim_plan *p, const char *at)
{
	uint64_t w[3];

	memcpy(w, at, sizeof w);
	if (at[24]) {
		sim_plan_in(p, (const void *)(uintptr_t)w[0], 1, SIM_TYPE_I64);
		sim_plan_in(p, (const void *)(uintptr_t)w[1], 1, SIM_TYPE_I64);
		sim_plan_scalar(p, &w[2], sizeof w[2]);
	} else {
		sim_plan_scalar(p, w, 16);
	}
}

/* pK or pK.offset+bytes; xK[.offset]: a generator's state; nothing but "none": no scalars; no items: every parameter of an arithmetic type. */
static bool scalar(struct sim_plan *p, const struct sim_rule *rule, const char *text)
{
	struct reader r = { .plan = p, .rule = rule, .at = text + 1 };
	uint32_t i = (uint32_t)number(&r), offset = 0, n;

	if (!strcmp(text, "none"))
		return true;
	if ((*text != 'p' && *text != 'x') || r.bad || i >= p->kernel->n_params)
		return false;
	n = sim_param_size(p, i);
	if (*text == 'x') {
		offset = *r.at == '.' ? (r.at++, (uint32_t)number(&r)) : 0;
		if (r.bad || offset + 25 > n)
			return false;
		philox(p, sim_param(p, i, offset));
		return true;
	}
	if (*r.at == '.') {
		r.at++;
		offset = (uint32_t)number(&r);
		r.at += *r.at == '+';
		n = (uint32_t)number(&r);
	}
	if (r.bad || offset + n > sim_param_size(p, i))
		return false;
	sim_plan_scalar(p, sim_param(p, i, offset), n);
	return true;
}

static void arithmetic(struct sim_plan *p)
{
	for (uint32_t i = 0; i < p->kernel->n_params; i++) {
		const char *t = p->kernel->type[i];

		if (sim_type_named(t, strlen(t)) != SIM_TYPE_NONE)
			sim_plan_scalar(p, sim_param(p, i, 0), sim_param_size(p, i));
		else if (!strcmp(t, "at::PhiloxCudaState") && sim_param_size(p, i) >= 25)
			philox(p, sim_param(p, i, 0));
	}
}

bool sim_rule_plan(struct sim_plan *p, const struct sim_rule *r)
{
	for (int i = 0; i < SIM_ITEMS && r->out[i]; i++)
		if (!item(p, r, r->out[i], true)) {
			complain(r->line, "does not fit", r->out[i]);
			return false;
		}
	for (int i = 0; i < SIM_ITEMS && r->in[i]; i++)
		if (!item(p, r, r->in[i], false)) {
			complain(r->line, "does not fit", r->in[i]);
			return false;
		}
	for (int i = 0; i < SIM_ITEMS && r->scalar[i]; i++)
		if (!scalar(p, r, r->scalar[i])) {
			complain(r->line, "does not fit", r->scalar[i]);
			return false;
		}
	if (!r->scalar[0])
		arithmetic(p);
	return true;
}
