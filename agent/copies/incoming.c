/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that peers send of themselves: made ready, asked for chunk by chunk, compared as they arrive. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/copies/copies_private.h"
#include "agent/loop/trouble.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

/* One copy that comes from one peer. */
struct incoming {
	uint64_t serial, transfer;
	struct copy *copy;
	unsigned placed;
	bool failed;
	uint64_t begun_ns, found;  /* found: bytes that ranks here had */
	struct incoming *next;
};

/* Room of a chunk that the transport writes to, a piece at a time. */
struct placed {
	uint8_t *bytes;
	size_t length, arrived;
	unsigned coming;           /* pieces */
	struct tpck_peer_want at;
	uint8_t digest[16];        /* of a fragment */
	struct incoming *incoming;
	struct placed *next;
};

static struct {
	struct incoming *list;
	struct placed *placed;
} incomings;

/* By the courier: the manifest is read, the copy made ready. */
struct receive_job {
	struct job job; /* first */
	struct errand errand;
	uint64_t serial, transfer, keep;
	struct tpck_fragment fragment;
	char owner[TPCK_PEER_NAME];
	char *text;
	size_t size;
	struct copy *copy;
	struct tpck_peer_want *want;
	size_t count;
	uint64_t found;            /* bytes that ranks here have, too */
	int rc;
	struct tpck_error error;
};

static void receive_run(struct job *base)
{
	struct receive_job *job = (struct receive_job *)base;
	struct tpck_manifest *manifest = NULL;
	char reason[200];

	job->rc = tpck_manifest_parse(&manifest, job->text, job->size, "of a peer", &job->error);
	if (!job->rc && manifest->member_count == 0)
		job->rc = tpck_error_set(&job->error, EBADMSG, "using a peer's manifest of no rank");
	if (!job->rc && job->fragment.data && !tpck_fragment_is_valid(&job->fragment))
		job->rc = tpck_error_set(&job->error, EBADMSG, "using a fragment of no code");
	if (!job->rc)
		job->rc = copy_for(manifest, &job->fragment, job->owner, job->keep, false, &job->copy, &job->error);
	if (!job->rc && !copy_room(job->copy, manifest, TPCK_REPLICA_SLOTS, reason, sizeof reason))
		job->rc = tpck_error_set(&job->error, 0, "no room for a copy of a peer's snapshot: %s", reason) | -ENOSPC;
	if (!job->rc) {
		struct tpck_replica *replica = job->copy->replica;
		struct tpck_point point = manifest->point;

		replica->late = false;
		job->rc = tpck_replica_begin(replica, manifest, job->text, job->size, job->copy->to, &job->want, &job->count,
					     &job->error);
		if (!job->rc) {
			manifest = NULL;
			job->text = NULL;
			job->count = sending_twins(replica, job->want, job->count, &job->found);
		} else if (job->rc != -EALREADY) {
			tpck_log_debug("step %" PRIu64 " of a peer is not taken: %s", point.step, job->error.text);
		}
	}
	tpck_manifest_free(manifest);
	if (job->rc && job->copy) {
		copy_filled(job->copy, job->rc == -EALREADY);
		job->copy = NULL;
	}
}

static void incoming_free(struct incoming *in, bool whole)
{
	for (struct incoming **place = &incomings.list; *place; place = &(*place)->next)
		if (*place == in) {
			*place = in->next;
			break;
		}
	copy_filled(in->copy, whole);
	free(in);
}

/* Chunks of which only some pieces have come. */
static void drop_placements(const struct incoming *in)
{
	for (struct placed **place = &incomings.placed; *place;) {
		struct placed *placed = *place;

		if (placed->incoming == in) {
			*place = placed->next;
			(void)tpck_replica_take(in->copy->replica, &placed->at, placed->bytes, false, NULL, NULL);
			free(placed);
		} else {
			place = &placed->next;
		}
	}
}

/* Nothing more is taken; the copy is left when nobody writes to it any more. */
static void fail(struct incoming *in, const char *why)
{
	struct peer *peer = peer_of_serial(in->serial);

	if (!in->failed) {
		in->failed = true;
		if (peer)
			peer_say_failed(peer, in->transfer, why);
	}
	if (!in->placed) {
		drop_placements(in);
		tpck_replica_abort(in->copy->replica);
		incoming_free(in, false);
	}
}

static void incoming_whole(struct incoming *in)
{
	struct tpck_replica *replica = in->copy->replica;
	struct peer *peer = peer_of_serial(in->serial);
	uint64_t received = replica->received, kept = replica->kept, transfer = in->transfer;
	struct tpck_error err = {0};
	struct tpck_peer_message head;
	struct tpck_point point;
	char what[40] = "a copy";

	if (copy_is_detached(in->copy))
		tpck_error_set(&err, 0, "it is not needed any more");
	if (err.text[0] || tpck_replica_finish(replica, &err)) {
		trouble_complain(&err);
		in->placed = 0;
		in->failed = true;
		if (peer)
			peer_say_failed(peer, transfer, err.text);
		incoming_free(in, false);
		return;
	}
	point = replica->slot[replica->to]->point;
	if (replica->fragment.data)
		snprintf(what, sizeof what, "fragment %u of %u+%u", replica->fragment.index, replica->fragment.data, replica->fragment.parity);
	tpck_log_debug("%s of step %" PRIu64 " of generation %" PRIu64 " of %s is here: %.1f MiB came in %.3f s; ranks here had %.1f, and %.1f had come before", what,
		       point.step, point.generation, in->copy->owner, (double)received / (1 << 20),
		       (double)(tpck_clock_monotonic_ns() - in->begun_ns) / 1e9, (double)in->found / (1 << 20), (double)kept / (1 << 20));
	incoming_free(in, true);
	head = peer_about(transfer, &point);
	if (peer)
		(void)peer_send(peer, TPCK_PEER_HAVE, &head, NULL, 0, NULL);
}

static void begun_run(struct errand *errand)
{
	struct receive_job *job = (struct receive_job *)((char *)errand - offsetof(struct receive_job, errand));
	struct peer *peer = peer_of_serial(job->serial);
	struct tpck_peer_message head = peer_about(job->transfer, NULL);
	struct incoming *in;

	if (job->rc) {
		if (peer && job->rc == -EALREADY)
			(void)peer_send(peer, TPCK_PEER_HAVE, &head, NULL, 0, NULL);
		else if (peer)
			peer_say_failed(peer, job->transfer, job->error.text);
		goto out;
	}
	in = calloc(1, sizeof *in);
	if (!in || !peer) {
		tpck_replica_abort(job->copy->replica);
		copy_filled(job->copy, false);
		free(in);
		goto out;
	}
	*in = (struct incoming){.serial = job->serial, .transfer = job->transfer, .copy = job->copy,
				.begun_ns = tpck_clock_monotonic_ns(), .found = job->found, .next = incomings.list};
	incomings.list = in;
	(void)peer_send_text(peer, TPCK_PEER_WANT, &head, (char *)job->want, job->count * sizeof *job->want);
	if (!in->copy->replica->lacks)
		incoming_whole(in);
out:
	free(job->text);
	free(job->want);
	free(job);
}

static void receive_done(struct agent *agent, struct job *base)
{
	struct receive_job *job = (struct receive_job *)base;

	(void)agent;
	loop.jobs--;
	job->errand.run = begun_run;
	peers_errand(&job->errand);
}

struct accept_errand {
	struct job job; /* first: to the event loop, which counts the courier's jobs */
	struct receive_job *receive;
};

static void accept_done(struct agent *agent, struct job *base)
{
	struct accept_errand *accept = (struct accept_errand *)base;

	(void)agent;
	loop.jobs++;
	worker_give(&peers.courier, &accept->receive->job);
	free(accept);
}

void incoming_offer(struct peer *peer, const struct tpck_peer_message *head, const char *text, size_t count)
{
	struct receive_job *job = calloc(1, sizeof *job);
	struct accept_errand *accept = calloc(1, sizeof *accept);
	char *copy = malloc(count + 1);

	if (!job || !accept || !copy) {
		free(job);
		free(accept);
		free(copy);
		return;
	}
	memcpy(copy, text, count);
	copy[count] = '\0';
	job->fragment = head->fragment;
	job->keep = head->value;
	job->job.run = receive_run;
	job->job.done = receive_done;
	job->serial = peer->serial;
	job->transfer = head->transfer;
	job->text = copy;
	job->size = count;
	snprintf(job->owner, sizeof job->owner, "%s", peer->other.host);
	accept->receive = job;
	accept->job.done = accept_done;
	outbox_post(&accept->job);
}

static struct incoming *incoming_of(uint64_t serial, uint64_t transfer)
{
	for (struct incoming *in = incomings.list; in; in = in->next)
		if (in->serial == serial && in->transfer == transfer && !in->failed)
			return in;
	return NULL;
}

static bool is_same(const struct tpck_peer_want *a, const struct tpck_peer_want *b)
{
	return a->member == b->member && a->object == b->object && a->chunk == b->chunk;
}

/* Where a chunk of this length goes, of which the first piece or another one comes. */
static struct placed *placed_for(struct incoming *in, const struct tpck_peer_want *at, uint64_t length)
{
	struct placed *placed = incomings.placed;

	while (placed && (placed->incoming != in || !is_same(&placed->at, at)))
		placed = placed->next;
	if (placed)
		return placed;
	placed = calloc(1, sizeof *placed);
	if (!placed)
		return NULL;
	*placed = (struct placed){.bytes = tpck_replica_place(in->copy->replica, at, length), .length = length, .at = *at, .incoming = in,
				  .next = incomings.placed};
	if (!placed->bytes) {
		free(placed);
		return NULL;
	}
	incomings.placed = placed;
	return placed;
}

void *incoming_place(struct peer *peer, const struct tpck_peer_message *head, size_t bytes)
{
	struct incoming *in = incoming_of(peer->serial, head->transfer);
	struct tpck_peer_want at = {head->member, head->object, head->chunk};
	struct placed *placed = in ? placed_for(in, &at, head->value) : NULL;

	if (!placed || head->offset > placed->length || bytes > placed->length - head->offset)
		return NULL;
	memcpy(placed->digest, head->digest, sizeof placed->digest);
	placed->coming++;
	in->placed++;
	return placed->bytes + head->offset;
}

/* The chunk that these bytes are a piece of; they are not coming any more. */
static struct placed *placed_at(const uint8_t *bytes)
{
	for (struct placed *placed = incomings.placed; placed; placed = placed->next)
		if (bytes >= placed->bytes && bytes < placed->bytes + placed->length) {
			placed->coming--;
			placed->incoming->placed--;
			return placed;
		}
	return NULL;
}

static int take_chunk(struct placed *placed, struct tpck_error *err)
{
	int rc = tpck_replica_take(placed->incoming->copy->replica, &placed->at, placed->bytes, true, placed->digest, err);

	for (struct placed **place = &incomings.placed; *place; place = &(*place)->next)
		if (*place == placed) {
			*place = placed->next;
			break;
		}
	free(placed);
	return rc;
}

void incoming_arrived(struct peer *peer, void *bytes, size_t count, bool whole)
{
	struct placed *placed = placed_at(bytes);
	struct incoming *in = placed ? placed->incoming : NULL;
	struct tpck_error err = {0};
	int rc = 0;

	if (!in)
		return;
	if (peer)
		peer->heard_ns = tpck_clock_monotonic_ns();
	whole = whole && !copy_is_detached(in->copy);
	placed->arrived += count;
	if (whole && !in->failed && !placed->coming && placed->arrived >= placed->length)
		rc = take_chunk(placed, &err);
	if (rc || in->failed || !whole) {
		if (rc)
			tpck_log_warn("a copy from %s is not taken: %s", peer ? peer->other.host : "a peer that is gone", err.text);
		fail(in, rc ? err.text : "the connection broke, or it is not needed any more");
		return;
	}
	if (!in->copy->replica->lacks && !in->placed)
		incoming_whole(in);
}

void incoming_fail(const struct peer *peer, uint64_t transfer, const char *why)
{
	struct incoming *in = incoming_of(peer->serial, transfer);

	if (in)
		fail(in, why);
}

void incoming_gone(const struct peer *peer)
{
	struct incoming *next;

	for (struct incoming *in = incomings.list; in; in = next) {
		next = in->next;
		if (in->serial == peer->serial)
			fail(in, "it is gone");
	}
}
