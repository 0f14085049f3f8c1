/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as one sentence. */
#include "config.h"

#include "runtime/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int tpck_error_set(struct tpck_error *err, int code, const char *format, ...)
{
	int saved = errno;

	if (err) {
		va_list args;
		size_t used;

		va_start(args, format);
		vsnprintf(err->text, sizeof err->text, format, args);
		va_end(args);
		used = strlen(err->text);
		if (code) {
			char reason[96];

			snprintf(err->text + used, sizeof err->text - used, ": %s",
				 strerror_r(code, reason, sizeof reason));
		}
		err->code = code ? code : EINVAL;
	}
	errno = saved;
	return code ? -code : -EINVAL;
}
