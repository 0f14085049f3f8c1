/* SPDX-License-Identifier: Apache-2.0 */
/* Which program this is: what must be the same for a snapshot to be resumed by it (doc/architecture.md, "A resume"). */
#ifndef TPCK_RUNTIME_ENGINE_IDENTITY_H
#define TPCK_RUNTIME_ENGINE_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/key.h"
#include "runtime/base/settings.h"

enum { TPCK_IDENTITY_MAX = 64 << 10, TPCK_JOB_MAX = 128 };

/* The folder that the process was started in, asked for at the first call; "": it is not known. */
const char *tpck_identity_folder(void);
/* The job's name. 0 or -errno. */
int tpck_identity_job(const struct tpck_settings *settings, char job[TPCK_JOB_MAX]);
/* Writes the identity text (wire/message.h), with values of variables as digests by the key, after the job's name was asked for. A NUL ends it. Returns its length, or -errno. */
long tpck_identity_make(const char *job, uint32_t rank, uint32_t world, char *const *arguments, char *const *environment, const uint8_t key[TPCK_KEY_BYTES],
			char *text, size_t size);

#endif
