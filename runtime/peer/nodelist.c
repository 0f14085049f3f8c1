/* SPDX-License-Identifier: Apache-2.0 */
/* Expanding Slurm's lists of nodes. The text is another program's: nothing in it makes this take long or much. */
#include "config.h"

#include "runtime/peer/nodelist.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Brackets in one name: Slurm's own limit is 5 dimensions. */
enum { GROUPS = 5, DIGITS = 18 };

struct range {
	long long first, last;
	int width;
};

struct walk {
	size_t most, visited;
	void (*visit)(void *context, const char *name);
	void *context;
	char name[TPCK_NODELIST_NAME];
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* What may stand outside of brackets: what may be in a host's name. */
static bool is_name(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
}

static bool take_number(const char **at, long long *value, int *width)
{
	*value = 0;
	for (*width = 0; is_digit(**at); ++*width, ++*at) {
		if (*width == DIGITS)
			return false;
		*value = *value * 10 + (**at - '0');
	}
	return *width > 0;
}

/* "3" or "01-20"; goes on behind it. */
static bool take_range(const char **at, struct range *range)
{
	int width;

	if (!take_number(at, &range->first, &range->width))
		return false;
	range->last = range->first;
	if (**at != '-')
		return true;
	++*at;
	return take_number(at, &range->last, &width) && range->last >= range->first;
}

/* One entry's size in names, 0 or less: it is none. Goes on behind it. */
static long long measure(const char **at)
{
	long long names = 1;
	int groups = 0;
	size_t length = 0;

	for (; **at && **at != ','; length++) {
		long long inside = 0;

		if (**at != '[') {
			if (!is_name(*(*at)++))
				return -EINVAL;
			continue;
		}
		if (++groups > GROUPS)
			return -EINVAL;
		do {
			struct range range;

			++*at;
			if (!take_range(at, &range) || __builtin_add_overflow(inside, range.last - range.first + 1, &inside))
				return -EINVAL;
		} while (**at == ',');
		if (*(*at)++ != ']')
			return -EINVAL;
		if (__builtin_mul_overflow(names, inside, &names))
			names = LLONG_MAX;
		length += DIGITS;
	}
	return length > 0 && length < TPCK_NODELIST_NAME ? names : -EINVAL;
}

/* The entry at `at`, whose name begins with `used` bytes of the walk's. Every call ends in a visit, and there are no more than
 * `most` of these. */
static void expand(struct walk *walk, const char *at, size_t used)
{
	for (; *at && *at != ',' && *at != '['; at++)
		walk->name[used++] = *at;
	if (*at != '[') {
		walk->name[used] = '\0';
		walk->visited++;
		walk->visit(walk->context, walk->name);
		return;
	}
	do {
		const char *behind = strchr(at, ']') + 1;
		struct range range;

		at++;
		(void)take_range(&at, &range);
		for (long long n = range.first; n <= range.last && walk->visited < walk->most; n++) {
			int digits = snprintf(walk->name + used, sizeof walk->name - used, "%0*lld", range.width, n);

			expand(walk, behind, used + (size_t)digits);
		}
	} while (*at == ',');
}

long long tpck_nodelist_each(const char *list, size_t most, void (*visit)(void *context, const char *name), void *context)
{
	struct walk walk = {.most = most, .visit = visit, .context = context};
	long long count = 0;

	for (const char *at = list;; at++) {
		long long names = measure(&at);

		if (names <= 0)
			return -EINVAL;
		if (__builtin_add_overflow(count, names, &count))
			count = LLONG_MAX;
		if (!*at)
			break;
	}
	for (const char *at = list; visit && walk.visited < most; at++) {
		expand(&walk, at, 0);
		(void)measure(&at);
		if (!*at)
			break;
	}
	return count;
}
