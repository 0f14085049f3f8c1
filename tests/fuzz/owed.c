/* SPDX-License-Identifier: Apache-2.0 */
/* Records of files that a node owes, and lists of the folders that such files were in. An input is a record; the same bytes
 * are taken for a list and a folder. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/peer/owed.h"

static void read_record(const uint8_t *data, size_t size)
{
	struct tpck_owed owed, again;
	struct stat found = {0};
	size_t length;
	void *record;

	if (tpck_owed_read(data, size, &owed))
		return;
	FUZZ_HOLDS(owed.folder[0] == '/' && !strchr(owed.name, '/'));
	tpck_owed_give_attributes(&owed, -1);
	found.st_size = (off_t)owed.head.bytes;
	(void)tpck_owed_judge(&owed, 1, 0, NULL, 0, &found);
	(void)tpck_owed_judge(&owed, 1, 0, NULL, 0, NULL);
	record = tpck_owed_write(&owed, &length);
	if (!record)
		return;
	FUZZ_HOLDS(tpck_owed_read(record, length, &again) == 0 && strcmp(again.name, owed.name) == 0);
	free(record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	struct tpck_owed_head head;
	size_t got;
	char *bytes = fuzz_bytes(&input, size, &got), *list, *folder, *with;

	read_record(data, size);
	/* The same with a magic that is right, and a table that is the serial's. */
	if (size >= sizeof head) {
		memcpy(&head, bytes, sizeof head);
		head.magic = TPCK_OWED_MAGIC;
		head.table = tpck_view_table_of(head.serial);
		memcpy(bytes, &head, sizeof head);
		read_record((uint8_t *)bytes, got);
	}
	free(bytes);
	input = (struct fuzz_input){data, size};
	folder = fuzz_line(&input, '\n');
	list = fuzz_text(&input, input.left);
	if (folder) {
		(void)tpck_owed_folder_is_in(list, folder);
		with = tpck_owed_folders_with(list, folder);
		FUZZ_HOLDS(with);
		free(with);
	}
	free(list);
	free(folder);
	return 0;
}
