/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing identity texts line by line. */
#include "config.h"

#include "agent/programs/identity_text.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/digest.h"

struct line {
	const char *key, *value;
	int key_length, value_length;
	int index; /* how many arguments came before it */
};

/* Takes the next line; false at the end. */
static bool next_line(const char **text, struct line *line)
{
	const char *begin = *text, *end, *space;
	const struct line before = *line;

	if (!*begin)
		return false;
	end = strchrnul(begin, '\n');
	space = memchr(begin, ' ', (size_t)(end - begin));
	line->key = begin;
	line->key_length = (int)((space ? space : end) - begin);
	line->value = space ? space + 1 : end;
	line->value_length = (int)(end - line->value);
	/* Lines about a script stand between arguments. */
	line->index = before.index + (before.key && before.key_length == 8 && memcmp(before.key, "argument", 8) == 0);
	*text = *end ? end + 1 : end;
	return true;
}

static bool is_key(const struct line *line, const char *key)
{
	return (size_t)line->key_length == strlen(key) && memcmp(line->key, key, strlen(key)) == 0;
}

/* As far as a variable's value, for lines that were made with different keys. */
static bool same_variable(const struct line *a, const struct line *b)
{
	size_t length = strcspn(a->value, a->value[0] == '(' ? ",\n" : "=\n");

	return is_key(a, "environment") && is_key(b, "environment") && (int)length < a->value_length && (int)length < b->value_length &&
	       memcmp(a->value, b->value, length + 1) == 0;
}

static bool same_value(const struct line *a, const struct line *b)
{
	return a->value_length == b->value_length && memcmp(a->value, b->value, (size_t)a->value_length) == 0;
}

/* A file that is there is a script or a program, not a number of epochs; "-m" names one too. An option of the module behind that names none: a
 * notebook's kernel is given a file that each start calls otherwise, and is the one that its user expects to go on. */
static bool names_program(const struct line *argument, const struct line *folder, const struct line *before, bool module)
{
	char path[4096];
	struct stat status;

	if (before->key && is_key(before, "argument") && before->value_length == 2 &&
	    memcmp(before->value, "-m", 2) == 0)
		return true;
	if (argument->value_length == 0 || argument->value[0] == '-')
		return false;
	if (module && is_key(before, "argument") && before->value_length && before->value[0] == '-')
		return false;
	if (argument->value[0] == '/')
		snprintf(path, sizeof path, "%.*s", argument->value_length, argument->value);
	else
		snprintf(path, sizeof path, "%.*s/%.*s", folder->value_length, folder->value ? folder->value : "",
			 argument->value_length, argument->value);
	return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* A value for a sentence: of one that is long, both ends. */
static void quote(const struct line *line, char *text, size_t size)
{
	enum { FIRST = 30, LAST = 50 };
	int length = line->value_length;

	if (length > FIRST + LAST)
		snprintf(text, size, "'%.*s...%.*s'", FIRST, line->value, LAST, line->value + length - LAST);
	else
		snprintf(text, size, "'%.*s'", length, line->value);
}

static void say(const struct line *now, const struct line *was, char *what, size_t size)
{
	char a[100], b[100];

	if (is_key(now, "environment") && is_key(was, "environment")) {
		int length_now = (int)strcspn(now->value, "=\n"), length_was = (int)strcspn(was->value, "=\n");
		int order = strncmp(now->value, was->value, (size_t)(length_now > length_was ? length_now : length_was));

		if (length_now == length_was && memcmp(now->value, was->value, (size_t)length_now) == 0)
			snprintf(what, size, "environment variable %.*s has another value than before", length_now, now->value);
		else if (order < 0)
			snprintf(what, size, "environment variable %.*s is set, was not", length_now, now->value);
		else
			snprintf(what, size, "environment variable %.*s is not set, was", length_was, was->value);
		return;
	}
	quote(now, a, sizeof a);
	quote(was, b, sizeof b);
	if (is_key(now, "argument") && !is_key(was, "argument"))
		snprintf(what, size, "argument %d is %s, was not given", now->index, a);
	else if (is_key(was, "argument") && !is_key(now, "argument"))
		snprintf(what, size, "argument %d is not given, was %s", was->index, b);
	else if (is_key(now, "argument"))
		snprintf(what, size, "argument %d is %s, was %s", now->index, a, b);
	else if (is_key(now, "ranks") && is_key(was, "ranks"))
		snprintf(what, size, "the number of ranks is %s, was %s", a, b);
	else if (is_key(now, "executable-digest") && is_key(was, "executable-digest"))
		snprintf(what, size, "the executable's content is another one than before");
	else if (is_key(now, "script-digest") && is_key(was, "script-digest"))
		snprintf(what, size, "the content of the script in argument %d is another one than before", now->index - 1);
	else if (now->key_length == was->key_length && memcmp(now->key, was->key, (size_t)now->key_length) == 0)
		snprintf(what, size, "%.*s is %s, was %s", now->key_length, now->key, a, b);
	else if (now->value_length || !was->key)
		snprintf(what, size, "%.*s %s was not there", now->key_length, now->key, a);
	else
		snprintf(what, size, "%.*s %s is missing", was->key_length, was->key, b);
}

enum identity_relation identity_compare(const char *now, const char *was, char *what, size_t size)
{
	struct line a = {0}, b = {0}, folder = {0}, before = {0};
	static const struct line none = {"", "", 0, 0, 0};
	bool other_key = false, module = false;

	for (;;) {
		bool more_a = next_line(&now, &a), more_b = next_line(&was, &b);

		if (!more_a && !more_b) {
			snprintf(what, size, "%s", other_key ? "values of environment variables cannot be compared: they were noted with another key" : "");
			return other_key ? IDENTITY_CHANGED : IDENTITY_SAME;
		}
		if (!more_a)
			a = none;
		if (!more_b)
			b = none;
		if (is_key(&a, "environment-key") && is_key(&b, "environment-key") && !same_value(&a, &b))
			other_key = true;
		else if (a.key_length != b.key_length || memcmp(a.key, b.key, (size_t)a.key_length) != 0 ||
			 !(same_value(&a, &b) || (other_key && same_variable(&a, &b))))
			break;
		if (is_key(&a, "folder"))
			folder = a;
		module = module || (is_key(&a, "argument") && a.value_length == 2 && memcmp(a.value, "-m", 2) == 0);
		before = a;
	}
	say(&a, &b, what, size);
	if (is_key(&a, "user") || is_key(&a, "job") || is_key(&a, "rank") || is_key(&a, "ordinal"))
		return IDENTITY_APART;
	if (is_key(&a, "executable"))
		return IDENTITY_OTHER;
	if (is_key(&a, "argument") && is_key(&b, "argument") &&
	    (names_program(&a, &folder, &before, module) || names_program(&b, &folder, &before, module)))
		return IDENTITY_OTHER;
	return IDENTITY_CHANGED;
}

void identity_form(const char *identity, char form[IDENTITY_FORM])
{
	const char *rank = strncmp(identity, "rank ", 5) == 0 ? identity : strstr(identity, "\nrank ");
	size_t before = rank ? (size_t)(rank - identity) : strlen(identity);
	const char *behind = rank ? strchrnul(rank + 1, '\n') : identity + before;
	uint8_t digest[2][16];

	tpck_digest128(identity, before, digest[0]);
	tpck_digest128(behind, strlen(behind), digest[1]);
	tpck_digest128(digest, sizeof digest, digest[0]);
	tpck_digest128_text(digest[0], form);
}

int identity_form_among(const char *identity, const char *forms, size_t size)
{
	char form[IDENTITY_FORM];

	identity_form(identity, form);
	for (size_t i = 0; i < size / IDENTITY_FORM; i++)
		if (memcmp(forms + i * IDENTITY_FORM, form, IDENTITY_FORM) == 0)
			return (int)i;
	return -1;
}
