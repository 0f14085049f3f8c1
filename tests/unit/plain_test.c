/* SPDX-License-Identifier: Apache-2.0 */
/* What another user has written into a name or a manifest gives a terminal no orders. */
#include "config.h"

#include <string.h>

#include "tests/unit/store_tap.h"
#include "tools/cli/plain.h"

static void becomes(const char *what, const char *text, const char *want)
{
	char out[4 * 64 + 1];

	out[plain_text(text, strlen(text), out)] = '\0';
	tap_ok(strcmp(out, want) == 0, what, out);
}

int main(void)
{
	becomes("text, tabs and line ends", "step 12\tgood\n", "step 12\tgood\n");
	becomes("orders of a terminal", "\033]0;title\a\033[2J\r\b", "\\x1b]0;title\\x07\\x1b[2J\\x0d\\x08");
	becomes("orders of two bytes in UTF-8", "\302\233" "31m", "\\u009b31m");
	becomes("letters of other scripts", "gr\303\274n \302\265 \342\202\254", "gr\303\274n \302\265 \342\202\254");
	becomes("half a letter", "\302", "\302");
	return tap_done();
}
