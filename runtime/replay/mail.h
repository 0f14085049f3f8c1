/* SPDX-License-Identifier: Apache-2.0 */
/* Records that forked children, and programs that it has started, have for the log of the process that they come from. They lie in memory that all of them
 * share, as a segment of the log (wire/segment.h), until that process takes them. Whoever sends may be killed at any time. */
#ifndef TPCK_RUNTIME_REPLAY_MAIL_H
#define TPCK_RUNTIME_REPLAY_MAIL_H

#include "runtime/replay/record_log.h"

struct tpck_mail;

/* With so many bytes until they are taken, for this process and those that it forks from here on. path: of the file that the memory is, in a memory
 * tier, where what was not taken outlives them; NULL: of none. NULL: there is no memory. */
struct tpck_mail *tpck_mail_new(size_t bytes, const char *path);
/* One of so many bytes that another process has made. NULL: there is none. */
struct tpck_mail *tpck_mail_open(const char *path, size_t bytes);
/* A record whose payload is `first`, then `bytes`. False: it is lost, as there is no room, or who has the lock is stopped. */
bool tpck_mail_send(struct tpck_mail *mail, enum tpck_record_type type, uint16_t detail, const void *first, size_t first_bytes, const void *bytes, size_t count);
/* Whether all that has come was taken. */
bool tpck_mail_is_empty(const struct tpck_mail *mail);
/* Whether a record was lost. */
bool tpck_mail_lost(const struct tpck_mail *mail);
/* What has come goes into the log. */
void tpck_mail_take(struct tpck_mail *mail, struct tpck_log *log);
/* What has come goes to another mail instead, by `call`, which says how. */
void tpck_mail_forward(struct tpck_mail *mail, void (*call)(const struct tpck_record *record, void *to), struct tpck_mail *to);
/* Calls with each record of the file that was not taken, during the call only. */
void tpck_mail_left(const char *path, void (*call)(const struct tpck_record *));

#endif
