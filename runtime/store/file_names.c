/* SPDX-License-Identifier: Apache-2.0 */
/* Names of sessions, checkpoints and programs. */
#include "config.h"

#include "runtime/store/file_names.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/digest.h"

void tpck_session_name_format(const struct tpck_session_name *name, char *text, size_t size)
{
	snprintf(text, size, "g%" PRIu64 ".r%u.o%u", name->generation, name->rank, name->ordinal);
}

int tpck_session_name_parse(const char *text, struct tpck_session_name *name)
{
	struct tpck_session_name parsed;
	char again[64];

	if (sscanf(text, "g%" SCNu64 ".r%u.o%u", &parsed.generation, &parsed.rank, &parsed.ordinal) != 3)
		return -EINVAL;
	tpck_session_name_format(&parsed, again, sizeof again);
	if (strcmp(again, text) != 0)
		return -EINVAL;
	*name = parsed;
	return 0;
}

int tpck_point_compare(const struct tpck_point *a, const struct tpck_point *b)
{
	if (a->generation != b->generation)
		return a->generation < b->generation ? -1 : 1;
	if (a->step != b->step)
		return a->step < b->step ? -1 : 1;
	return 0;
}

void tpck_checkpoint_name_format(const struct tpck_point *point, char *text, size_t size)
{
	snprintf(text, size, "step-%012" PRIu64 ".g%" PRIu64, point->step, point->generation);
}

int tpck_checkpoint_name_parse(const char *text, struct tpck_point *point)
{
	struct tpck_point parsed;
	char again[64];

	if (sscanf(text, "step-%" SCNu64 ".g%" SCNu64, &parsed.step, &parsed.generation) != 2)
		return -EINVAL;
	tpck_checkpoint_name_format(&parsed, again, sizeof again);
	if (strcmp(again, text) != 0)
		return -EINVAL;
	*point = parsed;
	return 0;
}

bool tpck_job_name_valid(const char *text)
{
	size_t length = strlen(text);

	if (length == 0 || length > 200 || text[0] == '.')
		return false;
	for (const char *c = text; *c; c++)
		if (*c == '/' || !isprint((unsigned char)*c))
			return false;
	return true;
}

void tpck_program_id(const char *identity, char id[TPCK_PROGRAM_ID])
{
	snprintf(id, TPCK_PROGRAM_ID, "%016" PRIx64, tpck_digest64(identity, strlen(identity), 0));
}

void tpck_identity_key(const char *identity, struct tpck_identity_key *key)
{
	size_t length = strlen(identity);

	tpck_digest128(identity, length, key->digest);
	key->program = tpck_digest64(identity, length, 0);
}

int tpck_path_join(char *path, size_t size, const char *folder, const char *name)
{
	int length = snprintf(path, size, "%s/%s", folder, name);

	return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}
