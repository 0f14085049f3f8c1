/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot that a start gets from peers: from all at once that have it whole, where it is large, or put together of fragments, chunk by chunk as those of a chunk
 * have come. Who is lost, or gives what is bad, is replaced by the next one, which is asked for what lacks.
 *
 * The start waits in pull_snapshot(), and makes the place for it; all else is the thread's.
 */
#include "config.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/copies/pulling.h"
#include "runtime/base/clock.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"

/* How long one that is asked may give nothing. */
#define STILL_NS (30 * SEC)
/* As long as a copy that is on its way may take, and how often that is looked at. */
#define BUSY_NS (60 * SEC)
#define LOOK_NS (SEC / 20)

static void advance(struct pull *p)
{
	if (p->ending)
		pull_try_close(p);
	else if (p->ready && p->code.data)
		pull_advance_fragments(p);
	else if (p->ready)
		pull_advance_whole(p);
}

/* ---- what is heard ------------------------------------------------------------------------ */

/* Whose offer is taken first says what it is. Sources that can be asked, or have been, are left; else it is over. */
static void consider_offers(struct pull *p)
{
	struct source *offered = NULL;
	bool preparing;

	for (struct source *s = p->source; s < p->source + p->sources && !offered; s++)
		if (s->state == SOURCE_READY && s->text)
			offered = s;
	pthread_mutex_lock(&peers.lock);
	preparing = p->preparing;
	if (!preparing)
		p->offered = offered;
	if (offered) {
		p->offered_ns = tpck_clock_monotonic_ns();
		pthread_cond_broadcast(&peers.changed);
	}
	pthread_mutex_unlock(&peers.lock);
	if (!preparing && !offered && pull_use_sources(p, p->needed) < p->needed)
		pull_end(p, -EIO, p->code.data && !p->why[0] ? "too few of its fragments can be had" : p->why);
}

static struct pull *pull_of(const struct peer *peer, uint64_t number, struct source **source)
{
	for (struct pull *p = pulls; p; p = p->following)
		for (struct source *s = p->source; s < p->source + p->sources; s++)
			if (s->serial == peer->serial && s->number == number && pull_in_use(s)) {
				*source = s;
				return p;
			}
	return NULL;
}

/* Something was heard of a source, or it is lost. */
static void heard(struct pull *p)
{
	if (p->ready || p->ending)
		advance(p);
	else
		consider_offers(p);
}

bool pulling_offer(struct peer *peer, const struct tpck_peer_message *head, const char *text, size_t count)
{
	struct tpck_peer_message none = peer_about(head->transfer, NULL);
	struct source *s;
	struct pull *p = pull_of(peer, head->transfer, &s);

	if (!p && !(head->transfer >> 63))
		return false;
	/* The transfer is not waited for any more. */
	if (!p || p->ending) {
		(void)peer_send(peer, TPCK_PEER_HAVE, &none, NULL, 0, NULL);
		return true;
	}
	if (s->state != SOURCE_ASKED)
		return true;
	s->state = SOURCE_READY;
	s->moved_ns = tpck_clock_monotonic_ns();
	if (memcmp(&head->fragment, &s->fragment, sizeof s->fragment) != 0)
		pull_source_out(p, s, "it offers what was not asked for", true);
	else if (!p->ready && (s->text = malloc(count + 1))) {
		memcpy(s->text, text, count);
		s->text[count] = '\0';
		s->size = count;
	}
	heard(p);
	return true;
}

bool pulling_fail(const struct peer *peer, uint64_t number, const char *why)
{
	struct source *s;
	struct pull *p = pull_of(peer, number, &s);

	if (!p)
		return number >> 63;
	pull_source_out(p, s, why, false);
	heard(p);
	return true;
}

void pulling_gone(const struct peer *peer)
{
	struct pull *next;

	for (struct pull *p = pulls; p; p = next) {
		bool lost = false;

		next = p->following;
		for (struct source *s = p->source; s < p->source + p->sources; s++)
			if (s->serial == peer->serial && s->state != SOURCE_OUT) {
				lost = lost || pull_in_use(s);
				if (pull_in_use(s))
					pull_source_out(p, s, "it is gone", false);
				s->state = SOURCE_OUT;
			}
		if (lost)
			heard(p);
	}
}

void pulling_tick(uint64_t now)
{
	struct pull *next;

	for (struct pull *p = pulls; p; p = next) {
		bool lost = false;

		next = p->following;
		for (struct source *s = p->source; s < p->source + p->sources; s++)
			if (s->serial != ASK_HERE && (s->state == SOURCE_ASKED || (s->state == SOURCE_READY && p->ready && s->asked)) &&
			    now > s->moved_ns + STILL_NS) {
				pull_source_out(p, s, "it does not go on", true);
				lost = true;
			}
		/* Who has given all that it was asked for may take over from one that is slow. */
		if (lost || (p->ready && !p->ending))
			heard(p);
	}
}

static struct part *part_at(const struct pull *p, const struct source *s, const struct tpck_peer_message *head)
{
	for (struct row *row = p->rows; row; row = row->next) {
		const struct tpck_peer_want *at = &p->want[row->number];

		if (at->member != head->member || at->object != head->object || at->chunk != head->chunk)
			continue;
		for (struct part *part = row->parts; part; part = part->next)
			if (part->source == s && !part->good)
				return part;
		return NULL;
	}
	return NULL;
}

bool pulling_place(struct peer *peer, const struct tpck_peer_message *head, size_t bytes, void **place)
{
	struct source *s;
	struct pull *p = pull_of(peer, head->transfer, &s);
	struct part *part = p && p->ready && !p->ending ? part_at(p, s, head) : NULL;
	size_t length;

	*place = NULL;
	if (!part)
		return head->transfer >> 63;
	length = pull_chunk(p, part->row)->length;
	if (p->code.data)
		length = tpck_fragment_bytes(&p->code, length);
	if (head->value != length || head->offset > length || bytes > length - head->offset)
		return true;
	if (!part->bytes) {
		part->bytes = p->code.data ? malloc(length + 1) : tpck_replica_place(p->copy->replica, &p->want[part->row->number], length);
		if (!part->bytes)
			return true;
		part->length = length;
		part->next_placed = pull_placed;
		pull_placed = part;
	}
	memcpy(part->digest, head->digest, sizeof part->digest);
	part->coming++;
	p->direct += !p->code.data;
	*place = part->bytes + head->offset;
	return true;
}

static void orphan_arrived(struct part *part)
{
	if (part->coming)
		return;
	pull_part_unplace(part);
	free(part->bytes);
	free(part);
}

bool pulling_arrived(struct peer *peer, void *bytes, size_t count, bool whole)
{
	struct part *part = pull_placed;
	struct source *s;
	struct pull *p;

	while (part && !((uint8_t *)bytes >= part->bytes && (uint8_t *)bytes < part->bytes + part->length))
		part = part->next_placed;
	if (!part)
		return false;
	if (peer)
		peer->heard_ns = tpck_clock_monotonic_ns();
	part->coming--;
	p = part->pull;
	if (!p) {
		orphan_arrived(part);
		return true;
	}
	s = part->source;
	p->direct -= !p->code.data;
	part->arrived += count;
	s->moved_ns = tpck_clock_monotonic_ns();
	s->bytes += whole ? count : 0;
	if (p->ending || s->state == SOURCE_OUT) {
		if (!part->coming)
			(void)pull_part_release(part);
	} else if (!whole) {
		pull_source_out(p, s, "the connection broke", true);
	} else if (copy_is_detached(p->copy)) {
		pull_end(p, -EIO, "it is not needed any more");
		return true;
	} else if (!part->coming && part->arrived >= part->length) {
		if (p->code.data) {
			part->row->pending--;
			s->asked--;
			pull_fragment_arrived(p, part);
		} else {
			pull_whole_arrived(p, part);
		}
	}
	advance(p);
	return true;
}

/* ---- the start's part --------------------------------------------------------------------- */

static void begin_run(struct errand *errand)
{
	struct pull *p = (struct pull *)((char *)errand - offsetof(struct pull, begin));

	p->following = pulls;
	pulls = p;
	p->begun_ns = tpck_clock_monotonic_ns();
	(void)pull_use_sources(p, p->needed);
	consider_offers(p);
}

static void go_run(struct errand *errand)
{
	struct pull *p = (struct pull *)((char *)errand - offsetof(struct pull, go));
	struct source *offered = p->offered;

	pthread_mutex_lock(&peers.lock);
	p->preparing = false;
	p->offered = NULL;
	pthread_mutex_unlock(&peers.lock);
	if (p->prepared == -EBADMSG) {
		/* Another one may say something else of it. */
		free(offered->text);
		offered->text = NULL;
		pull_source_out(p, offered, p->said, true);
		if (p->ending)
			pull_try_close(p);
		else
			consider_offers(p);
		return;
	}
	p->ready = p->prepared == 0 && p->copy;
	p->ready_ns = tpck_clock_monotonic_ns();
	p->reserving = p->ready;
	if (p->ready && !p->ending)
		p->taken = calloc(p->count + 1, 1);
	if (p->ending)
		pull_try_close(p);
	else if (p->ready && !p->taken)
		pull_end(p, -ENOMEM, "out of memory");
	else if (!p->ready)
		pull_end(p, p->prepared == -EALREADY ? 0 : p->prepared, p->prepared == -EALREADY ? "" : p->said);
	else
		advance(p);
}

static void more_run(struct errand *errand)
{
	struct pull *p = (struct pull *)((char *)errand - offsetof(struct pull, more));

	p->told = false;
	if (p->ready && !p->ending)
		advance(p);
}

static void full_run(struct errand *errand)
{
	struct pull *p = (struct pull *)((char *)errand - offsetof(struct pull, full));

	p->reserving = false;
	if (p->no_room && !p->ending)
		pull_end(p, p->no_room, p->said);
	else
		advance(p);
}

/* Memory that is got for the first time takes the system as long as the network takes to bring what it is for: that is done at the same time. */
static void reserve_all(struct pull *p)
{
	struct tpck_error err = {0};

	for (size_t i = 0; i < p->count && !p->enough; i++) {
		int rc = tpck_replica_reserve(p->copy->replica, &p->want[i], &err);

		if (rc) {
			snprintf(p->said, sizeof p->said, "%.190s", err.text);
			p->no_room = rc;
			break;
		}
		p->reserved = i + 1;
		if (!atomic_exchange(&p->told, true))
			peers_errand(&p->more);
	}
	/* The last that is said of it: behind that it may be over. */
	peers_errand(&p->full);
}

/* One attempt to make the place for it. -EBADMSG: the text is no good; -EBUSY: there may be one later. The manifest is the replica's behind 0. */
static int prepare_once(struct pull *p, struct tpck_manifest *manifest, const char *text, size_t size, struct tpck_error *err)
{
	char reason[200], *own;
	struct copy *copy = NULL;
	const char *owner = p->offered->copy ? p->offered->copy->owner : p->offered->host;
	int rc = copy_for(manifest, &(struct tpck_fragment){0}, owner, 0, true, &copy, err);

	if (rc)
		return rc;
	own = malloc(size + 1);
	if (!own)
		rc = tpck_error_set(err, ENOMEM, "keeping a peer's copy");
	else if (!copy_room(copy, manifest, 1, reason, sizeof reason))
		rc = tpck_error_set(err, 0, "no room for a copy of a peer's snapshot: %s", reason) | -ENOSPC;
	if (!rc) {
		memcpy(own, text, size);
		own[size] = '\0';
		copy->replica->late = true;
		rc = tpck_replica_begin(copy->replica, manifest, own, size, copy->to, &p->want, &p->count, err);
	}
	if (rc) {
		free(own);
		copy_filled(copy, rc == -EALREADY);
		return rc == -EBADMSG ? -EIO : rc;
	}
	p->count = sending_twins(copy->replica, p->want, p->count, &p->found);
	p->copy = copy;
	return 0;
}

/* Where it is to be there may be a copy on its way already, mostly this very one: who has it sends it by himself, too. That is no fault of the copy's, and is waited for. */
static int prepare(struct pull *p)
{
	uint64_t until = tpck_clock_monotonic_ns() + BUSY_NS;
	struct tpck_manifest *manifest = NULL;
	struct tpck_error err = {0};
	int rc = tpck_manifest_parse(&manifest, p->offered->text, p->offered->size, "of a peer", &err);

	if (rc || manifest->member_count == 0 || tpck_point_compare(&p->point, &manifest->point) != 0) {
		snprintf(p->said, sizeof p->said, "%.190s", rc ? err.text : "it is not the snapshot that was asked for");
		tpck_manifest_free(manifest);
		return -EBADMSG;
	}
	while ((rc = prepare_once(p, manifest, p->offered->text, p->offered->size, &err)) == -EBUSY && tpck_clock_monotonic_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = (long)LOOK_NS}, NULL);
	if (rc)
		tpck_manifest_free(manifest);
	if (rc && rc != -EALREADY)
		snprintf(p->said, sizeof p->said, "%.190s", err.text);
	return rc;
}

static bool add_source(struct pull *p, const struct ask_answer *answer)
{
	struct source *s = &p->source[p->sources];

	if (p->sources == ASK_ANSWERS)
		return false;
	*s = (struct source){.serial = answer->serial, .fragment = answer->fragment, .number = ask_number()};
	memcpy(s->host, answer->host, sizeof s->host);
	if (answer->serial == ASK_HERE) {
		const struct tpck_replica *replica;

		s->copy = copy_pin_fragment(p->identity, p->rank, p->ordinal, &p->point, &answer->fragment, &s->slot);
		if (!s->copy)
			return false;
		replica = s->copy->replica;
		s->text = strdup(replica->text[s->slot]);
		s->size = replica->text_size[s->slot];
	}
	p->sources++;
	return true;
}

static void pull_free(struct pull *p)
{
	for (struct source *s = p->source; s < p->source + p->sources; s++) {
		if (s->copy)
			copy_unpin(s->copy, s->slot);
		free(s->text);
		free(s->batch);
	}
	free(p->taken);
	free(p->want);
	free(p);
}

int pull_snapshot(struct ask *ask, const struct ask_answer *answers, unsigned count)
{
	struct pull *p = calloc(1, sizeof *p);
	bool over, reserve;
	int rc = -EIO;

	snprintf(ask->why, sizeof ask->why, "%s", p ? "it is gone" : "out of memory");
	memcpy(ask->why_host, answers[0].host, sizeof ask->why_host);
	if (!p || !count) {
		free(p);
		return p ? -EIO : -ENOMEM;
	}
	p->begin.run = begin_run;
	p->go.run = go_run;
	p->more.run = more_run;
	p->full.run = full_run;
	p->identity = ask->identity;
	p->rank = ask->rank;
	p->ordinal = ask->ordinal;
	p->point = answers[0].point;
	p->code = answers[0].fragment;
	p->needed = p->code.data ? p->code.data : 1;
	for (unsigned i = 0; i < count; i++)
		(void)add_source(p, &answers[i]);
	peers_errand(&p->begin);
	pthread_mutex_lock(&peers.lock);
	while (!p->over && !peers.ended) {
		if (!p->offered || p->preparing) {
			pthread_cond_wait(&peers.changed, &peers.lock);
			continue;
		}
		p->preparing = true;
		pthread_mutex_unlock(&peers.lock);
		p->prepared = prepare(p);
		reserve = !p->prepared;
		peers_errand(&p->go);
		if (reserve)
			reserve_all(p);
		pthread_mutex_lock(&peers.lock);
	}
	/* What the thread has left as it was is nobody's any more. */
	if (p->over) {
		rc = p->rc;
		if (p->why[0])
			memcpy(ask->why, p->why, sizeof ask->why);
		if (p->host[0])
			memcpy(ask->why_host, p->host, sizeof ask->why_host);
	}
	over = p->over;
	pthread_mutex_unlock(&peers.lock);
	if (over)
		pull_free(p);
	return rc;
}
