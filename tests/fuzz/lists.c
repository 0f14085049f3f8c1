/* SPDX-License-Identifier: Apache-2.0 */
/* Lists that are kept beside the versions of files. An input is such a list: entries, each with its NUL. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/follow/follow.h"
#include "runtime/follow/follow_private.h"

static const char *begin, *end;

static int look_at(const char *entry)
{
	struct tpck_record_file version;
	struct tpck_leftover leftover;
	char target[TPCK_FOLLOW_PATH];
	const char *path;

	FUZZ_HOLDS(entry >= begin && entry < end);
	path = tpck_lists_parse_changed(entry, &version);
	FUZZ_HOLDS(!path || (*path == '/' && path > entry && path + strlen(path) < end));
	path = tpck_lists_parse_relinked(entry, target, sizeof target);
	FUZZ_HOLDS(!path || (*path && path > entry && path + strlen(path) < end && strlen(target) < sizeof target));
	path = tpck_leftovers_parse(entry, &leftover);
	FUZZ_HOLDS(!path || (path > entry && path + strlen(path) < end));
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	begin = (const char *)data;
	end = begin + size;
	FUZZ_HOLDS(tpck_lists_parse(begin, size, look_at) == 0);
	return 0;
}
