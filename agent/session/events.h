/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent puts into the job's history (runtime/store/history.h). All of it belongs to the event loop's thread; what
 * goes to a durable tier is written by a thread of that tier's, and kept while the tier cannot be written. */
#ifndef TPCK_AGENT_SESSION_EVENTS_H
#define TPCK_AGENT_SESSION_EVENTS_H

#include "agent/session/sessions.h"

extern const struct loop_part history_loop;

/* The session is an earlier agent's. */
void history_taken_over(const struct live *live);
/* live->offered_from says where its offer lies, if it got one. */
void history_started(const struct live *live);
void history_resumed(const struct live *live);
void history_diverged(const struct live *live, const struct tpck_diverged *diverged);
void history_died(const struct live *live, enum tpck_death death);
void history_ended(const struct live *live);
/* The checkpoint is published and read back; both times in nanoseconds. */
void history_durable(const struct live *live, const struct tpck_manifest *manifest, uint64_t write_ns,
		     uint64_t verify_ns);
/* The same of a process whose node is lost. */
void history_salvaged(const struct tpck_program *program, const struct tpck_manifest *manifest, uint64_t took_ns);
void history_copied(size_t tier, const struct tpck_point *point, uint64_t bytes, uint64_t took_ns);
/* What a tier's interval comes from: failures are counted here, what writing costs is said by who writes. */
struct tpck_interval_history *history_interval(size_t tier);
struct json_object;
/* What QUERY is told: the last write into the first tier, and how often each is written and why. */
void history_answer(struct json_object *answer);
/* `why` NULL: it works again. */
/* Nobody goes on in the place of who has failed, since something does not hold that must (invariants.h). */
void history_stopped(const struct tpck_point *point, const char *why);
void history_store(size_t tier, const char *why);

#endif
