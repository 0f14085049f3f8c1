/* SPDX-License-Identifier: Apache-2.0 */
/* Records of forked children, on their way to the log. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/shared_file.h"
#include "runtime/base/shared_lock.h"
#include "runtime/base/undumped.h"
#include "runtime/replay/mail.h"
#include "runtime/wire/segment.h"

struct tpck_mail {
	struct tpck_log_header segment; /* `bytes`: of all */
	tpck_shared_lock lock;
	_Atomic bool lost;
};
enum { ALIGN = 16, BEGINS = TPCK_MAIL_AT };
_Static_assert(sizeof(struct tpck_mail) <= BEGINS && BEGINS % ALIGN == 0, "the agent reads records from there");

struct tpck_mail *tpck_mail_new(size_t bytes, const char *path)
{
	struct tpck_mail *mail;

	if (path) {
		mail = tpck_shared_file_new(path, bytes);
	} else {
		void *at = tpck_undumped(tpck_sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), bytes);

		mail = at == MAP_FAILED ? NULL : at;
	}
	if (!mail)
		return NULL;
	mail->segment.magic = TPCK_LOG_MAGIC;
	mail->segment.version = TPCK_WIRE_VERSION;
	mail->segment.bytes = bytes;
	atomic_store(&mail->segment.used, BEGINS);
	return mail;
}

struct tpck_mail *tpck_mail_open(const char *path, size_t bytes)
{
	struct tpck_mail *mail = tpck_shared_file_open(path, bytes);

	if (mail && (mail->segment.magic != TPCK_LOG_MAGIC || mail->segment.version != TPCK_WIRE_VERSION || mail->segment.bytes != bytes ||
		     atomic_load(&mail->segment.used) < BEGINS || atomic_load(&mail->segment.used) > bytes)) {
		tpck_sys_munmap(mail, bytes);
		mail = NULL;
	}
	return mail;
}

bool tpck_mail_send(struct tpck_mail *mail, enum tpck_record_type type, uint16_t detail, const void *first, size_t first_bytes, const void *bytes, size_t count)
{
	struct tpck_record record = {(uint32_t)(first_bytes + count), (uint16_t)type, detail, 0, 0};
	size_t all = (sizeof record + first_bytes + count + ALIGN - 1) / ALIGN * ALIGN;
	uint64_t used;
	bool fits;
	char *at;

	if (!tpck_shared_lock_take(&mail->lock)) {
		atomic_store(&mail->lost, true);
		return false;
	}
	used = atomic_load(&mail->segment.used);
	fits = all <= mail->segment.bytes - used;
	if (fits) {
		at = (char *)mail + used;
		memcpy(at, &record, sizeof record);
		memcpy(at + sizeof record, first, first_bytes);
		if (count)
			memcpy(at + sizeof record + first_bytes, bytes, count);
		atomic_store(&mail->segment.used, used + all);
	} else {
		atomic_store(&mail->lost, true);
	}
	tpck_shared_lock_free(&mail->lock);
	return fits;
}

bool tpck_mail_is_empty(const struct tpck_mail *mail)
{
	return atomic_load(&mail->segment.used) == BEGINS;
}

bool tpck_mail_lost(const struct tpck_mail *mail)
{
	return atomic_load(&mail->lost);
}

/* Calls with each that has come, and empties the mail. */
static void empty(struct tpck_mail *from, void (*call)(const struct tpck_record *record, void *with), void *with)
{
	uint64_t end;

	if (tpck_mail_is_empty(from) || !tpck_shared_lock_take(&from->lock))
		return;
	end = atomic_load(&from->segment.used);
	for (uint64_t at = BEGINS; at < end;) {
		const struct tpck_record *record = (const void *)((const char *)from + at);

		call(record, with);
		at += (sizeof *record + record->bytes + ALIGN - 1) / ALIGN * ALIGN;
	}
	atomic_store(&from->segment.used, BEGINS);
	tpck_shared_lock_free(&from->lock);
}

static void append(const struct tpck_record *record, void *log)
{
	tpck_log_append(log, record->type, record->detail, 0, 0, record + 1, record->bytes);
}

void tpck_mail_take(struct tpck_mail *mail, struct tpck_log *log)
{
	empty(mail, append, log);
}

void tpck_mail_forward(struct tpck_mail *mail, void (*call)(const struct tpck_record *record, void *to), struct tpck_mail *to)
{
	empty(mail, call, to);
}

void tpck_mail_left(const char *path, void (*call)(const struct tpck_record *))
{
	(void)tpck_log_each_in(AT_FDCWD, path, 0, BEGINS, call);
}
