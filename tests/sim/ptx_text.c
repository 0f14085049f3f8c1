/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the declarations of a PTX text (the vendor's "Parallel Thread Execution ISA", chapters 4 and 5). */
#define _GNU_SOURCE
#include "ptx_text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool part_of_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.' || c == ':';
}

const char *sim_ptx_skip(const char *at)
{
	while (isspace((unsigned char)*at))
		at++;
	return at;
}

size_t sim_ptx_word(const char *at)
{
	size_t n = 0;

	/* A colon is part of "L2::cache_hint" and ends a label. */
	while (part_of_word(at[n]) && (at[n] != ':' || at[n + 1] == ':' || (n && at[n - 1] == ':')))
		n++;
	return n;
}

static bool is(const char *at, size_t n, const char *word)
{
	return strlen(word) == n && !memcmp(at, word, n);
}

uint32_t sim_ptx_type_bytes(const char *type, size_t n)
{
	static const struct {
		const char *name;
		uint32_t bytes;
	} types[] = {
		{ ".b8", 1 },  { ".u8", 1 },  { ".s8", 1 },  { ".b16", 2 },   { ".u16", 2 },  { ".s16", 2 },   { ".f16", 2 },    { ".bf16", 2 },
		{ ".b32", 4 }, { ".u32", 4 }, { ".s32", 4 }, { ".f16x2", 4 }, { ".f32", 4 },  { ".bf16x2", 4 }, { ".b64", 8 }, { ".u64", 8 },
		{ ".s64", 8 }, { ".f64", 8 }, { ".b128", 16 },
	};

	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (is(type, n, types[i].name))
			return types[i].bytes;
	return 0;
}

bool sim_ptx_looks(const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes;)
		if (isspace((unsigned char)text[i])) {
			i++;
		} else if (bytes - i > 2 && text[i] == '/' && text[i + 1] == '/') {
			while (i < bytes && text[i] != '\n')
				i++;
		} else {
			return bytes - i > 8 && !memcmp(text + i, ".version", 8);
		}
	return false;
}

static void blank_comments(char *at)
{
	while (*at)
		if (*at == '"') {
			for (at++; *at && *at != '"'; at++)
				if (*at == '\\' && at[1])
					at++;
			at += *at == '"';
		} else if (at[0] == '/' && at[1] == '/') {
			while (*at && *at != '\n')
				*at++ = ' ';
		} else if (at[0] == '/' && at[1] == '*') {
			while (*at && !(at[0] == '*' && at[1] == '/'))
				*at++ = ' ';
			for (int i = 0; i < 2 && *at; i++)
				*at++ = ' ';
		} else {
			at++;
		}
}

/* Behind the bracket that closes the one at `at`. */
static const char *closed(const char *at)
{
	int depth = 0;

	do {
		if (*at == '"')
			for (at++; *at && *at != '"'; at++)
				;
		depth += *at == '{' || *at == '(';
		depth -= *at == '}' || *at == ')';
	} while (*at && (at++, depth));
	return at;
}

static const char *line_end(const char *at)
{
	return at + strcspn(at, "\n");
}

bool sim_ptx_symbol(const char **from, struct sim_ptx_symbol *s)
{
	const char *at = sim_ptx_skip(*from);
	uint32_t vector = 1;
	char *end;

	s->align = 0;
	s->init = NULL;
	while (*at == '.') {
		size_t n = sim_ptx_word(at);
		uint32_t bytes = sim_ptx_type_bytes(at, n);

		if (bytes)
			s->element = bytes;
		else if (is(at, n, ".v2") || is(at, n, ".v4"))
			vector = (uint32_t)(at[2] - '0');
		at = sim_ptx_skip(at + n);
		if (*at == '(') /* .attribute(.managed) */
			at = sim_ptx_skip(closed(at));
		if (isdigit((unsigned char)*at)) {
			s->align = (uint32_t)strtoul(at, &end, 0);
			at = sim_ptx_skip(end);
		}
	}
	size_t n = sim_ptx_word(at);
	if (!n || !s->element)
		return false;
	s->name = strndup(at, n);
	s->bytes = (uint64_t)s->element * vector;
	if (!s->align)
		s->align = (uint32_t)s->bytes;
	for (at = sim_ptx_skip(at + n); *at == '['; at = sim_ptx_skip(at + (*at == ']'))) {
		s->bytes *= strtoull(at + 1, &end, 0);
		at = sim_ptx_skip(end);
	}
	if (*at == '=') {
		s->init = sim_ptx_skip(at + 1);
		at = *s->init == '{' ? closed(s->init) : s->init + strcspn(s->init, ",;");
	}
	*from = sim_ptx_skip(at);
	return true;
}

static void *grown(void *list, uint32_t n, size_t bytes)
{
	return n & (n - 1) ? list : realloc(list, (n ? 2 * n : 1) * bytes);
}

static bool variables(struct sim_ptx_text *t, const char **at, enum sim_ptx_space space, bool external)
{
	do {
		struct sim_ptx_symbol s = { .space = space, .external = external };
		struct sim_ptx_symbol *list = grown(t->variable, t->n_variables, sizeof *list);

		*at += **at == ',';
		if (!list || !sim_ptx_symbol(at, &s))
			return false;
		t->variable = list;
		list[t->n_variables++] = s;
	} while (**at == ',');
	*at += **at == ';';
	return true;
}

static bool parameters(struct sim_ptx_list *l, const char *at)
{
	for (at = sim_ptx_skip(at + 1); *at == '.' || *at == ','; at = sim_ptx_skip(at)) {
		struct sim_ptx_symbol s = { .space = SIM_PTX_PARAM };
		struct sim_ptx_symbol *list = grown(l->symbol, l->n, sizeof *list);

		at = sim_ptx_skip(at + (*at == ','));
		if (!list || !is(at, sim_ptx_word(at), ".param"))
			return false;
		l->symbol = list;
		at += strlen(".param");
		/* ".u64 .ptr .global .align 1 name": the alignment is that of what it points to. */
		bool pointer = memmem(at, strcspn(at, ",)"), ".ptr", 4);
		if (!sim_ptx_symbol(&at, &s))
			return false;
		if (pointer)
			s.align = (uint32_t)s.bytes;
		s.offset = (l->bytes + s.align - 1) / s.align * s.align;
		l->bytes = (uint32_t)(s.offset + s.bytes);
		list[l->n++] = s;
	}
	return true;
}

static void kernel_free(struct sim_ptx_kernel *k)
{
	for (uint32_t i = 0; i < k->param.n; i++)
		free(k->param.symbol[i].name);
	for (uint32_t i = 0; i < k->result.n; i++)
		free(k->result.symbol[i].name);
	free(k->param.symbol);
	free(k->result.symbol);
	free(k->name);
}

/* "[(results)] name [(parameters)] directives { body }"; what has no body is declared only. */
static bool kernel(struct sim_ptx_kernel **list, uint32_t *count, const char **from)
{
	struct sim_ptx_kernel k = { 0 }, *longer = grown(*list, *count, sizeof k);
	const char *at = sim_ptx_skip(*from);
	bool good = longer;

	if (good)
		*list = longer;
	if (*at == '(') {
		good &= parameters(&k.result, at);
		at = sim_ptx_skip(closed(at));
	}
	size_t n = sim_ptx_word(at);
	k.name = strndup(at, n);
	at = sim_ptx_skip(at + n);
	if (*at == '(') {
		good &= parameters(&k.param, at);
		at = closed(at);
	}
	at += strcspn(at, "{;");
	*from = *at == '{' ? closed(at) : at + (*at == ';');
	k.body = at + 1;
	k.end = *from - 1;
	if (*at == '{' && good && n)
		longer[(*count)++] = k;
	else
		kernel_free(&k);
	return good && n;
}

static bool directive(struct sim_ptx_text *t, const char **at, bool *external)
{
	static const struct {
		const char *name;
		enum sim_ptx_space space;
	} spaces[] = { { ".global", SIM_PTX_GLOBAL }, { ".const", SIM_PTX_CONST }, { ".shared", SIM_PTX_SHARED }, { ".local", SIM_PTX_LOCAL } };
	const char *word = *at;
	size_t n = sim_ptx_word(word);

	if (*word != '.' && *word != '@' && *word != ';')
		return false;
	*at += n ? n : 1;
	if (is(word, n, ".extern"))
		return *external = true;
	if (is(word, n, ".visible") || is(word, n, ".weak") || is(word, n, ".common"))
		return true;
	bool is_external = *external;
	*external = false;
	if (is(word, n, ".entry"))
		return kernel(&t->kernel, &t->n_kernels, at);
	if (is(word, n, ".func"))
		return kernel(&t->function, &t->n_functions, at);
	for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
		if (is(word, n, spaces[i].name))
			return variables(t, at, spaces[i].space, is_external);
	if (is(word, n, ".section")) {
		*at = closed(*at + strcspn(*at, "{"));
	} else if (is(word, n, ".pragma") || is(word, n, ".alias")) {
		*at += strcspn(*at, ";");
	} else {
		*at = line_end(*at); /* .version, .target, .address_size, .file, .loc */
	}
	return true;
}

static bool defined(const struct sim_ptx_text *t, const char *name)
{
	for (uint32_t i = 0; i < t->n_variables; i++)
		if (!t->variable[i].external && !strcmp(t->variable[i].name, name))
			return true;
	return false;
}

/* What one of several texts declares and another one has. */
static void drop_declarations(struct sim_ptx_text *t)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < t->n_variables; i++)
		if (t->variable[i].external && defined(t, t->variable[i].name))
			free(t->variable[i].name);
		else
			t->variable[kept++] = t->variable[i];
	t->n_variables = kept;
}

int sim_ptx_read(struct sim_ptx_text *t, const char *text, size_t bytes)
{
	bool external = false;

	memset(t, 0, sizeof *t);
	t->text = strndup(text, bytes);
	if (!t->text)
		return -ENOMEM;
	blank_comments(t->text);
	for (const char *at = sim_ptx_skip(t->text); *at; at = sim_ptx_skip(at)) {
		const char *start = at;

		if (directive(t, &at, &external))
			continue;
		snprintf(t->error, sizeof t->error, "cannot read '%.*s'", (int)(strcspn(start, "\n") < 100 ? strcspn(start, "\n") : 100), start);
		return -EINVAL;
	}
	drop_declarations(t);
	return 0;
}

void sim_ptx_text_free(struct sim_ptx_text *t)
{
	for (uint32_t i = 0; i < t->n_kernels; i++)
		kernel_free(&t->kernel[i]);
	for (uint32_t i = 0; i < t->n_functions; i++)
		kernel_free(&t->function[i]);
	for (uint32_t i = 0; i < t->n_variables; i++)
		free(t->variable[i].name);
	free(t->kernel);
	free(t->function);
	free(t->variable);
	free(t->text);
	memset(t, 0, sizeof *t);
}
