/* SPDX-License-Identifier: Apache-2.0 */
/* What the command prints, without what a terminal would take for orders. */
#ifndef TPCK_TOOLS_CLI_PLAIN_H
#define TPCK_TOOLS_CLI_PLAIN_H

#include <stddef.h>
#include <stdio.h>

/* Names, manifests and logs may be another user's. stdout and stderr get streams that write control characters as \xHH, those of two
 * bytes in UTF-8 as \u00HH; line ends and tabs stay. Where there is no memory the streams stay as they are. */
void plain_streams(void);
/* `out` has room for four times `size`. Returns how much of it is used. */
size_t plain_text(const char *text, size_t size, char *out);

#endif
