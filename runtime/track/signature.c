/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures in names. Types are told apart and passed over; nothing is looked up but the arguments of the function's own template. */
#include "config.h"

#include "runtime/track/signature.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { DEPTH = 64, ARGUMENTS = 64 };

struct reader {
	const char *at;
	unsigned depth;
	bool bad;
	/* Arguments of the template that is the function's last part. */
	const char *argument[ARGUMENTS];
	int arguments;
};

static void type(struct reader *r);
static void argument(struct reader *r);

static bool next(struct reader *r, char c)
{
	if (*r->at != c)
		return false;
	r->at++;
	return true;
}

static void fail(struct reader *r)
{
	r->bad = true;
	r->at = "";
}

/* One of these letters is a type of its own. */
static bool is_builtin(char c)
{
	return c && strchr("vwbcahstijlmxynofdegz", c) != NULL;
}

/* std::array<T *, N>, of a T with a letter of its own. */
static uint8_t array_of(const char *at)
{
	static const char begin[] = "St5arrayIP";
	uint8_t count = 0;

	if (strncmp(at, begin, strlen(begin)) != 0)
		return 0;
	at += strlen(begin);
	at += *at == 'K';
	if (!is_builtin(*at) || at[1] != 'L' || at[2] != 'm')
		return 0;
	for (at += 3; isdigit((unsigned char)*at) && count < 16; at++)
		count = (uint8_t)(count * 10 + (*at - '0'));
	return *at == 'E' && count && count < 16 ? TPCK_POINTERS + count : 0;
}

/* The size of a type that is a number, as the devices have it, or of which kind this pointer is; else 0. */
static uint8_t number_of(const char *at)
{
	switch (*at) {
	/* A type that was there before in the name: of a kernel's parameters most often a pointer. Whoever compares it looks whether it is one. */
	case 'S':
		return at[1] == '_' || isdigit((unsigned char)at[1]) || isupper((unsigned char)at[1]) ? TPCK_IS_POINTER : array_of(at);
	case 'P':
		return at[1] == 'K' ? TPCK_READS_THERE : TPCK_IS_POINTER;
	case 'b': case 'c': case 'a': case 'h':
		return 1;
	case 's': case 't':
		return 2;
	case 'i': case 'j': case 'f':
		return 4;
	case 'l': case 'm': case 'x': case 'y':
		return 8 | TPCK_NUMBER_ADDRESS;
	case 'd':
		return 8;
	default:
		return 0;
	}
}

/* A name with its length before it. */
static void source_name(struct reader *r)
{
	size_t length = 0;

	while (isdigit((unsigned char)*r->at) && length < 1u << 20)
		length = length * 10 + (size_t)(*r->at++ - '0');
	if (!length || strnlen(r->at, length) < length) {
		fail(r);
		return;
	}
	r->at += length;
}

/* What follows S or T: a number in base 36, which may be absent, and an underscore. Its value. */
static int sequence(struct reader *r)
{
	int value = -1;

	if (next(r, '_'))
		return 0;
	while (isdigit((unsigned char)*r->at) || isupper((unsigned char)*r->at)) {
		value = value < 0 ? 0 : value;
		value = value * 36 + (isdigit((unsigned char)*r->at) ? *r->at - '0' : *r->at - 'A' + 10);
		r->at++;
		if (value > ARGUMENTS)
			break;
	}
	if (value < 0 || !next(r, '_'))
		fail(r);
	return value + 1;
}

static void template_arguments(struct reader *r, bool keep)
{
	if (keep)
		r->arguments = 0;
	while (*r->at && *r->at != 'E') {
		if (keep && r->arguments < ARGUMENTS)
			r->argument[r->arguments++] = r->at;
		argument(r);
	}
	if (!next(r, 'E'))
		fail(r);
}

static void substitution(struct reader *r)
{
	if (*r->at && strchr("tabsiod", *r->at))
		r->at++;
	else
		(void)sequence(r);
}

/* The parts of a nested name, behind its N. */
static void nested_name(struct reader *r, bool keep)
{
	while (*r->at && strchr("rVKRO", *r->at))
		r->at++;
	if (keep)
		r->arguments = -1;
	while (*r->at && *r->at != 'E') {
		bool arguments = false;

		if (isdigit((unsigned char)*r->at)) {
			source_name(r);
		} else if (next(r, 'S')) {
			substitution(r);
		} else if (next(r, 'T')) {
			(void)sequence(r);
		} else if (next(r, 'I')) {
			template_arguments(r, keep);
			arguments = true;
		} else if (!next(r, 'L')) {
			fail(r);
			return;
		}
		if (keep && !arguments)
			r->arguments = -1;
	}
	if (!next(r, 'E'))
		fail(r);
}

/* The number or the function that a template's argument is, behind its L. */
static void literal(struct reader *r)
{
	if (r->at[0] == '_' && r->at[1] == 'Z') {
		fail(r);
		return;
	}
	type(r);
	while (*r->at && *r->at != 'E')
		r->at++;
	if (!next(r, 'E'))
		fail(r);
}

static void argument(struct reader *r)
{
	if (++r->depth > DEPTH)
		fail(r);
	if (next(r, 'L')) {
		literal(r);
	} else if (next(r, 'J')) {
		while (*r->at && *r->at != 'E')
			argument(r);
		if (!next(r, 'E'))
			fail(r);
	} else {
		type(r);
	}
	r->depth--;
}

static void type(struct reader *r)
{
	if (++r->depth > DEPTH)
		fail(r);
	while (*r->at && strchr("rVKPRO", *r->at))
		r->at++;
	if (is_builtin(*r->at)) {
		r->at++;
	} else if (isdigit((unsigned char)*r->at)) {
		source_name(r);
		if (next(r, 'I'))
			template_arguments(r, false);
	} else if (next(r, 'N')) {
		nested_name(r, false);
	} else if (next(r, 'S')) {
		bool standard = *r->at == 't';

		substitution(r);
		if (standard)
			source_name(r);
		if (next(r, 'I'))
			template_arguments(r, false);
	} else if (next(r, 'T')) {
		(void)sequence(r);
		if (next(r, 'I'))
			template_arguments(r, false);
	} else if (next(r, 'F')) {
		while (*r->at && *r->at != 'E')
			type(r);
		if (!next(r, 'E'))
			fail(r);
	} else if (next(r, 'A')) {
		while (isdigit((unsigned char)*r->at))
			r->at++;
		if (!next(r, '_'))
			fail(r);
		type(r);
	} else if (r->at[0] == 'D' && r->at[1] && strchr("hnisua", r->at[1])) {
		r->at += 2;
	} else {
		fail(r);
	}
	r->depth--;
}

/* The size of the number that stands there, which may be an argument of the template. */
static uint8_t number_at(const struct reader *r, const char *at)
{
	struct reader place = {.at = at};
	int i;

	while (*place.at == 'K' || *place.at == 'V')
		place.at++;
	if (*place.at != 'T')
		return number_of(place.at);
	place.at++;
	i = sequence(&place);
	return place.bad || i >= r->arguments ? 0 : number_of(r->argument[i]);
}

/* Parameters that are a pack: those that the template's argument holds. The count with them. */
static int pack(struct reader *r, uint8_t *bytes, int count)
{
	struct reader place = *r;
	int i = next(r, 'T') ? sequence(r) : -1;

	if (i < 0 || r->bad || i >= r->arguments || *r->argument[i] != 'J') {
		fail(r);
		return count;
	}
	place.at = r->argument[i] + 1;
	while (*place.at && *place.at != 'E' && count < TPCK_SIGNATURE_MAX) {
		bytes[count++] = number_of(place.at);
		argument(&place);
	}
	if (place.bad)
		fail(r);
	return count;
}

int tpck_signature_numbers(const char *name, uint8_t bytes[TPCK_SIGNATURE_MAX])
{
	struct reader r = {.at = name, .arguments = -1};
	int count = 0;

	if (!next(&r, '_') || !next(&r, 'Z'))
		return -1;
	if (next(&r, 'N')) {
		nested_name(&r, true);
	} else {
		if (r.at[0] == 'S' && r.at[1] == 't')
			r.at += 2;
		(void)next(&r, 'L');
		source_name(&r);
		if (next(&r, 'I'))
			template_arguments(&r, true);
	}
	/* A template's name is followed by what it returns. */
	if (r.arguments >= 0)
		type(&r);
	if (!*r.at)
		return -1;
	while (*r.at && *r.at != '.' && count < TPCK_SIGNATURE_MAX) {
		if (r.at[0] == 'D' && r.at[1] == 'p') {
			r.at += 2;
			count = pack(&r, bytes, count);
			continue;
		}
		bytes[count] = number_at(&r, r.at);
		if (*r.at == 'v')
			count--;
		type(&r);
		count++;
	}
	return r.bad ? -1 : count;
}
