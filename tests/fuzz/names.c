/* SPDX-License-Identifier: Apache-2.0 */
/* Names in the memory tier and in the store, which who lists them meets, and lines of a job's record. An input is names, a
 * line each; all of it is a record. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/peer/owed.h"
#include "runtime/peer/replica.h"
#include "runtime/store/chunk.h"
#include "runtime/store/file_names.h"
#include "runtime/store/manifest_text.h"
#include "tools/spank/line.h"

static void look_at(const char *name)
{
	struct tpck_session_name session;
	struct tpck_fragment fragment;
	enum tpck_object_kind kind;
	struct tpck_point point;
	char again[64];

	if (tpck_session_name_parse(name, &session) == 0) {
		tpck_session_name_format(&session, again, sizeof again);
		FUZZ_HOLDS(strcmp(again, name) == 0);
	}
	if (tpck_checkpoint_name_parse(name, &point) == 0) {
		tpck_checkpoint_name_format(&point, again, sizeof again);
		FUZZ_HOLDS(strcmp(again, name) == 0);
	}
	if (tpck_object_kind_parse(name, &kind) == 0)
		FUZZ_HOLDS(strcmp(tpck_object_kind_name(kind), name) == 0);
	if (tpck_replica_is_folder(name, &session, &fragment) && fragment.data)
		FUZZ_HOLDS(tpck_fragment_is_valid(&fragment));
	(void)tpck_job_name_valid(name);
	(void)tpck_container_path_valid(name);
	(void)tpck_stash_is_name(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	char *name, *record = fuzz_text(&input, size), *rest = record;
	struct record_line line;

	while (record_line_parse(&rest, &line))
		FUZZ_HOLDS(*line.folder && strlen(line.folder) < sizeof line.folder && rest > record);
	free(record);
	input = (struct fuzz_input){data, size};

	while ((name = fuzz_line(&input, '\n'))) {
		look_at(name);
		free(name);
	}
	return 0;
}
