/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of a start that left no snapshot. */
#include "config.h"

#include "runtime/store/tried.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/store/file.h"
#include "runtime/store/packing.h"
#include "runtime/wire/record.h"

/* A log that has more behind its cut is read up to there: the agent's loop waits for that. PAYLOAD: neither the name of a program nor who a connection goes to is longer. */
enum { ALIGN = 16, SEGMENTS = 16, PAYLOAD = 320 };

static uint64_t whole_of(uint32_t payload)
{
	return ((uint64_t)sizeof(struct tpck_record) + payload + ALIGN - 1) / ALIGN * ALIGN;
}

static bool keep(struct tpck_log_header *to, const struct tpck_record *record)
{
	struct tpck_record kept = *record;
	char *at = (char *)to + to->used;

	kept.bytes = kept.bytes < PAYLOAD ? kept.bytes : PAYLOAD;
	if (whole_of(kept.bytes) > TPCK_TRIED_MOST - to->used)
		return false;
	memset(at, 0, whole_of(kept.bytes));
	memcpy(at, &kept, sizeof kept);
	memcpy(at + sizeof kept, record + 1, kept.bytes);
	to->used += whole_of(kept.bytes);
	return true;
}

bool tpck_tried_add(struct tpck_log_header *to, const void *segment, uint64_t size, uint64_t at)
{
	const struct tpck_log_header *header = segment;
	uint64_t end = size >= sizeof *header ? atomic_load(&header->used) : 0;

	if (size < sizeof *header || header->magic != TPCK_LOG_MAGIC || header->version != TPCK_WIRE_VERSION || end > size || at < sizeof *header || at % ALIGN)
		return false;
	while (at < end) {
		const struct tpck_record *record = (const void *)((const char *)segment + at);

		if (end - at < sizeof *record || end - at - sizeof *record < record->bytes)
			return false;
		if ((record->type == TPCK_RECORD_PROGRAM || record->type == TPCK_RECORD_TALK) && !keep(to, record))
			return false;
		at += whole_of(record->bytes);
	}
	return true;
}

/* Of what was on its way to the log. */
static bool add_mail(struct tpck_log_header *to, const char *session, const char *name)
{
	char path[TPCK_PATH_MAX];
	void *mail = NULL;
	uint64_t size = 0;
	bool all;
	int rc;

	if (tpck_path_join(path, sizeof path, session, name))
		return false;
	rc = tpck_segment_map(path, &mail, &size, NULL);
	/* Where there were no children there is no such file. */
	if (rc)
		return rc == -ENOENT;
	all = tpck_tried_add(to, mail, size, TPCK_MAIL_AT);
	munmap(mail, size);
	return all;
}

static bool add_log(struct tpck_log_header *to, const char *session, const struct tpck_cut *cut)
{
	uint64_t sequence = cut->sequence, at = cut->offset;
	bool all = true;

	for (; all && sequence < cut->sequence + SEGMENTS; sequence++) {
		void *segment = NULL;
		uint64_t size = 0;
		int rc = tpck_segment_read(session, sequence, &segment, &size);

		if (rc)
			return rc == -ENOENT;
		all = tpck_tried_add(to, segment, size, at);
		munmap(segment, size);
		at = (sizeof(struct tpck_log_header) + ALIGN - 1) / ALIGN * ALIGN;
	}
	return all && sequence < cut->sequence + SEGMENTS;
}

int tpck_tried_write(const char *session, const struct tpck_cut *cut, uint64_t generation, const char *path, struct tpck_error *err)
{
	struct tpck_log_header *made = malloc(TPCK_TRIED_MOST);
	bool all;
	int rc = 0;

	if (!made)
		return tpck_error_set(err, ENOMEM, "making %s", path);
	*made = (struct tpck_log_header){.magic = TPCK_LOG_MAGIC, .version = TPCK_WIRE_VERSION, .generation = generation, .used = sizeof *made};
	_Static_assert(sizeof *made % ALIGN == 0, "the first record lies behind it");
	all = add_log(made, session, cut);
	all = add_mail(made, session, TPCK_SAID) && all;
	all = add_mail(made, session, TPCK_STARTED) && all;
	/* What is left out may be more of them. */
	made->sealed = all ? TPCK_LOG_SEALED : TPCK_LOG_OPEN;
	made->bytes = made->used;
	if (made->used > sizeof *made || !all)
		rc = tpck_file_write(path, made, made->used, 0, err);
	free(made);
	return rc;
}
