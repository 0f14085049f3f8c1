/* SPDX-License-Identifier: Apache-2.0 */
/* Who gives what a start gets, what is on its way from them, and how it ends. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/copies/pulling.h"
#include "agent/loop/trouble.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"

struct pull *pulls;
struct part *pull_placed;

/* ---- parts -------------------------------------------------------------------------------- */

struct part *pull_part_new(struct pull *p, struct row *row, struct source *source)
{
	struct part *part = calloc(1, sizeof *part);

	if (!part)
		return NULL;
	*part = (struct part){.pull = p, .row = row, .source = source, .begun_ns = tpck_clock_monotonic_ns(), .next = row->parts};
	row->parts = part;
	row->tried[(source - p->source) / 8] |= (uint8_t)(1 << (source - p->source) % 8);
	return part;
}

void pull_part_unplace(struct part *part)
{
	for (struct part **place = &pull_placed; *place; place = &(*place)->next_placed)
		if (*place == part) {
			*place = part->next_placed;
			break;
		}
}

static void part_unlink(struct part *part)
{
	for (struct part **place = &part->row->parts; *place; place = &(*place)->next)
		if (*place == part) {
			*place = part->next;
			break;
		}
	part->row = NULL;
}

void pull_row_free(struct pull *p, struct row *row)
{
	for (struct row **place = &p->rows; *place; place = &(*place)->next)
		if (*place == row) {
			*place = row->next;
			break;
		}
	p->started--;
	free(row);
}

bool pull_part_release(struct part *part)
{
	struct pull *p = part->pull;
	struct row *row = part->row;

	if (!p->code.data && part->coming)
		return false;
	if (!part->good) {
		row->pending--;
		part->source->asked -= part->source->asked > 0;
	}
	part_unlink(part);
	if (!p->code.data) {
		if (part->bytes) {
			pull_part_unplace(part);
			(void)tpck_replica_take(p->copy->replica, &p->want[row->number], part->bytes, false, NULL, NULL);
		}
		free(part);
		p->taken[row->number] = 0;
		p->next = row->number < p->next ? row->number : p->next;
		pull_row_free(p, row);
		return true;
	}
	part->pull = NULL;
	if (part->coming)
		return true;
	if (part->bytes)
		pull_part_unplace(part);
	free(part->bytes);
	free(part);
	return true;
}

static void release_all(struct pull *p, const struct source *of)
{
	struct row *next_row;

	for (struct row *row = p->rows; row; row = next_row) {
		struct part *next;

		next_row = row->next;
		for (struct part *part = row->parts; part; part = next) {
			next = part->next;
			if (!of || (part->source == of && !part->good))
				(void)pull_part_release(part);
			/* Of a whole chunk there is one part, and the row goes with it. */
			if (!p->code.data)
				break;
		}
		if (!of && p->code.data)
			pull_row_free(p, row);
	}
}

/* ---- the end ------------------------------------------------------------------------------ */

static void tell_sources(struct pull *p)
{
	struct tpck_peer_message head;

	for (struct source *s = p->source; s < p->source + p->sources; s++) {
		struct peer *peer = s->state == SOURCE_READY && s->serial != ASK_HERE ? peer_of_serial(s->serial) : NULL;

		head = peer_about(s->number, &p->point);
		if (peer && p->rc)
			peer_say_failed(peer, s->number, p->why);
		else if (peer)
			(void)peer_send(peer, TPCK_PEER_HAVE, &head, NULL, 0, NULL);
	}
}

static void tell(const struct pull *p)
{
	const struct tpck_replica *replica = p->copy->replica;
	unsigned gave = 0;
	char hosts[300] = "";

	for (const struct source *s = p->source; s < p->source + p->sources; s++) {
		if (!s->gave)
			continue;
		gave++;
		if (p->code.data && s->serial != ASK_HERE)
			tpck_log_info("got fragment %u of %u+%u of step %" PRIu64 " of generation %" PRIu64 " from %s", s->fragment.index, s->fragment.data,
				      s->fragment.parity, p->point.step, p->point.generation, s->host);
		if (s->state != SOURCE_OUT)
			snprintf(hosts + strlen(hosts), sizeof hosts - strlen(hosts), "%s%.60s", hosts[0] ? ", " : "", s->host);
	}
	tpck_log_debug("a copy of step %" PRIu64 " of generation %" PRIu64 " of %s is here: %.1f MiB came in %.3f s; ranks here had %.1f, and %.1f had come before",
		       p->point.step, p->point.generation, p->copy->owner, (double)replica->received / (1 << 20),
		       (double)(tpck_clock_monotonic_ns() - p->begun_ns) / 1e9, (double)p->found / (1 << 20), (double)replica->kept / (1 << 20));
	tpck_log_debug("of that it took %.3f s until somebody offered it, and %.3f s to make the place", (double)(p->offered_ns - p->begun_ns) / 1e9,
		       (double)(p->ready_ns - p->offered_ns) / 1e9);
	if (p->code.data)
		tpck_log_info("step %" PRIu64 " of generation %" PRIu64 " is put together of %u fragments of %u+%u, %" PRIu64 " of whose chunks were damaged",
			      p->point.step, p->point.generation, gave, p->code.data, p->code.parity, p->damaged);
	else
		tpck_log_info("got a copy of step %" PRIu64 " of generation %" PRIu64 " from %s", p->point.step, p->point.generation, hosts);
}

/* Nobody writes to it any more. The start goes on, and with it goes what is here. */
static void close_pull(struct pull *p)
{
	struct tpck_error err = {0};

	if (p->ready) {
		if (!p->rc && (p->rc = tpck_replica_finish(p->copy->replica, &err))) {
			trouble_complain(&err);
			snprintf(p->why, sizeof p->why, "%.190s", err.text);
		} else if (p->rc) {
			tpck_replica_abort(p->copy->replica);
		}
		if (!p->rc)
			tell(p);
		copy_filled(p->copy, !p->rc);
	}
	tell_sources(p);
	for (struct pull **place = &pulls; *place; place = &(*place)->following)
		if (*place == p) {
			*place = p->following;
			break;
		}
	pthread_mutex_lock(&peers.lock);
	p->over = true;
	pthread_cond_broadcast(&peers.changed);
	pthread_mutex_unlock(&peers.lock);
}

void pull_try_close(struct pull *p)
{
	bool preparing;

	pthread_mutex_lock(&peers.lock);
	preparing = p->preparing;
	pthread_mutex_unlock(&peers.lock);
	if (!p->direct && !preparing && !p->reserving)
		close_pull(p);
}

void pull_end(struct pull *p, int rc, const char *why)
{
	p->enough = true;
	p->ending = true;
	p->rc = rc;
	if (why != p->why) {
		snprintf(p->why, sizeof p->why, "%.190s", why);
		if (rc && !p->code.data)
			tpck_log_warn("the copy of step %" PRIu64 " of generation %" PRIu64 " cannot be had: %s", p->point.step, p->point.generation, p->why);
	}
	release_all(p, NULL);
	pull_try_close(p);
}

/* ---- sources ------------------------------------------------------------------------------ */

void pull_source_out(struct pull *p, struct source *s, const char *why, bool say)
{
	struct peer *peer = say && s->state == SOURCE_READY ? peer_of_serial(s->serial) : NULL;

	if (s->state == SOURCE_OUT)
		return;
	s->state = SOURCE_OUT;
	if (peer)
		peer_say_failed(peer, s->number, why);
	if (why != p->why)
		snprintf(p->why, sizeof p->why, "%.190s", why);
	memcpy(p->host, s->host, sizeof p->host);
	if (s->fragment.data)
		tpck_log_warn("fragment %u of %u+%u of step %" PRIu64 " of generation %" PRIu64 " that %s has cannot be had: %s; %.1f MiB of it have come",
			      s->fragment.index, s->fragment.data, s->fragment.parity, p->point.step, p->point.generation, s->host, why,
			      (double)s->bytes / (1 << 20));
	else
		tpck_log_warn("the copy of step %" PRIu64 " of generation %" PRIu64 " that %s has cannot be had: %s; %.1f MiB of it have come", p->point.step,
			      p->point.generation, s->host, why, (double)s->bytes / (1 << 20));
	if (!p->ready)
		return;
	release_all(p, s);
}

void pull_source_ask(struct pull *p, struct source *s)
{
	struct peer *peer = peer_of_serial(s->serial);
	struct tpck_peer_message head = {
		.transfer = s->number, .generation = p->point.generation, .step = p->point.step, .rank = p->rank, .ordinal = p->ordinal,
		.fragment = s->fragment,
	};

	s->moved_ns = tpck_clock_monotonic_ns();
	s->target = TARGET_LEAST;
	if (peer && peer_send_text(peer, TPCK_PEER_GET, &head, p->identity, strlen(p->identity) + 1) == 0)
		s->state = SOURCE_ASKED;
	else
		pull_source_out(p, s, "it is gone", false);
}

unsigned pull_use_sources(struct pull *p, unsigned most)
{
	uint32_t used = 0;
	unsigned count = 0;

	for (const struct source *s = p->source; s < p->source + p->sources; s++)
		if (pull_in_use(s)) {
			used |= 1u << s->fragment.index;
			count++;
		}
	for (struct source *s = p->source; s < p->source + p->sources && count < most; s++) {
		if (s->state != SOURCE_IDLE || (p->code.data && (used >> s->fragment.index & 1)))
			continue;
		if (s->serial == ASK_HERE)
			s->state = SOURCE_READY;
		else
			pull_source_ask(p, s);
		if (pull_in_use(s)) {
			used |= 1u << s->fragment.index;
			count++;
		}
	}
	return count;
}

bool pull_want(struct source *s, const struct tpck_peer_want *at)
{
	struct tpck_peer_want *grown = s->batch;

	if (s->batch_count == s->batch_room)
		grown = reallocarray(s->batch, s->batch_room = 2 * s->batch_room + 16, sizeof *grown);
	if (!grown)
		return false;
	s->batch = grown;
	s->batch[s->batch_count++] = *at;
	if (!s->asked++)
		s->moved_ns = tpck_clock_monotonic_ns();
	return true;
}

void pull_send_wants(struct pull *p)
{
	for (struct source *s = p->source; s < p->source + p->sources; s++) {
		struct tpck_peer_message head = peer_about(s->number, NULL);
		struct peer *peer = s->batch_count ? peer_of_serial(s->serial) : NULL;

		if (peer && s->state == SOURCE_READY)
			(void)peer_send_text(peer, TPCK_PEER_WANT, &head, (char *)s->batch, s->batch_count * sizeof *s->batch);
		s->batch_count = 0;
	}
}

struct row *pull_row_new(struct pull *p, size_t number)
{
	struct row *row = calloc(1, sizeof *row), **last = &p->rows;

	if (!row)
		return NULL;
	row->number = number;
	/* Chunks come in the order in which they are asked for. */
	while (*last)
		last = &(*last)->next;
	*last = row;
	p->started++;
	p->taken[number] = 1;
	return row;
}

size_t pull_next_free(struct pull *p)
{
	while (p->next < p->count && p->taken[p->next])
		p->next++;
	return p->next < p->reserved ? p->next : p->count;
}
