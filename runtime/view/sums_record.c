/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the log of published files. */
#include "config.h"

#include "runtime/view/sums_record.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/view/view.h"

/* No file is larger: what says so is no record. */
#define BYTES_MAX (1ull << 50)

size_t tpck_sums_record_length(const struct tpck_sums_record *head)
{
	if (head->magic != TPCK_SUMS_MAGIC || head->path_bytes > PATH_MAX || head->bytes > BYTES_MAX ||
	    head->count != tpck_sums_chunks(head->bytes))
		return 0;
	return sizeof *head + (size_t)head->path_bytes + (size_t)head->count * 16;
}

size_t tpck_sums_record_at(const void *text, size_t size, struct tpck_sums_record *head)
{
	const size_t before = offsetof(struct tpck_sums_record, inode);
	uint8_t digest[16];
	size_t length;

	if (size < sizeof *head)
		return 0;
	memcpy(head, text, sizeof *head);
	length = tpck_sums_record_length(head);
	if (!length || length > size)
		return 0;
	tpck_digest128((const uint8_t *)text + before, length - before, digest);
	return memcmp(digest, head->digest, sizeof digest) ? 0 : length;
}

void tpck_kept_name(char *path, size_t size, const char *job_folder, const struct stat *file)
{
	const uint64_t is[] = {file->st_ino, (uint64_t)file->st_size, (uint64_t)file->st_mtim.tv_sec, (uint64_t)file->st_mtim.tv_nsec};

	snprintf(path, size, "%s/" TPCK_VIEW_FOLDER "/" TPCK_KEPT "%016llx", job_folder,
		 (unsigned long long)tpck_digest64(is, sizeof is, 2));
}
