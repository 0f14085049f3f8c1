/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots on their way: offered, asked for chunk by chunk, compared where they arrive. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/log.h"
#include "tools/agent/peers/private.h"

/* What is held back goes in pieces of a chunk, which leave others their turn. */
enum { PIECE_BYTES = 256 << 10 };
/*
 * Bytes under way to one peer, and how long they may be. All messages to it go through one connection, and somebody who is asked whether he is
 * there cannot be heard before what he has sent: so on a link that is slow, or loses much, little is under way, in small pieces, and a piece
 * that arrives is a sign of life as well.
 */
enum { WINDOW_LEAST = 32 << 10, WINDOW_FIRST = 128 << 10, WINDOW_MOST = 20 << 20 };
#define QUICK_NS 500000000ull
#define LATE_NS 1000000000ull

/* One parcel to one peer. */
struct outgoing {
	uint64_t id;
	struct parcel *parcel;
	unsigned target;
	struct peer *peer;         /* NULL: gone */
	struct tpck_peer_want *want;
	size_t count, at, offset;  /* of that one so much has gone */
	unsigned in_flight;        /* pieces */
	size_t under_way;          /* their bytes */
	struct fragment_sent *fragment; /* that is being sent, or NULL */
	bool over, held;           /* nothing more goes; not before pace_next() */
	struct pace pace;
	uint64_t turn;             /* when it was last its turn */
	struct outgoing *next;
};

struct piece {
	struct outgoing *outgoing;
	size_t bytes;
	uint64_t begun_ns;
	void *buffer;              /* of a log's */
	struct fragment_sent *fragment; /* or it is one of this */
};

/* A chunk's fragment, as long as pieces of it are under way. */
struct fragment_sent {
	unsigned users;
	uint8_t digest[16];
	uint8_t bytes[];
};

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

static struct outgoing *outgoings;
static struct incoming *incomings;
static struct placed *placements;
static uint64_t numbers, turns;

static struct tpck_peer_message about(uint64_t transfer, const struct tpck_point *point)
{
	return (struct tpck_peer_message){
		.transfer = transfer, .generation = point ? point->generation : 0, .step = point ? point->step : 0,
	};
}

static void say_failed(struct peer *peer, uint64_t transfer, const char *why)
{
	struct tpck_peer_message head = about(transfer, NULL);

	(void)peer_send_text(peer, TPCK_PEER_FAIL, &head, why, strlen(why) + 1);
}

/* ---- going out ---------------------------------------------------------------------------- */

static void fragment_unuse(struct fragment_sent *fragment)
{
	if (fragment && --fragment->users == 0)
		free(fragment);
}

static void outgoing_free(struct outgoing *out)
{
	for (struct outgoing **place = &outgoings; *place; place = &(*place)->next)
		if (*place == out) {
			*place = out->next;
			break;
		}
	if (--out->parcel->pending == 0)
		outbox_post(&out->parcel->agent->outbox, &out->parcel->job);
	fragment_unuse(out->fragment);
	free(out->want);
	free(out);
}

/* Nothing more is sent; freed when nothing of it is under way. */
static void outgoing_end(struct outgoing *out, bool has)
{
	if (!out->over)
		pace_end(&out->pace, has);
	out->over = true;
	if (has)
		out->parcel->has[out->target] = true;
	if (!out->in_flight)
		outgoing_free(out);
}

static void *read_log(const struct parcel_part *part, size_t object, uint64_t from, size_t length)
{
	char path[TPCK_PATH_MAX], *buffer = malloc(length);
	off_t at = (off_t)(sizeof(struct tpck_log_header) + from);
	int fd;

	tpck_log_path(part->log_folder, object - 2, path, sizeof path);
	fd = buffer ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0 || pread(fd, buffer, length, at) != (ssize_t)length) {
		free(buffer);
		buffer = NULL;
	}
	if (fd >= 0)
		close(fd);
	return buffer;
}

/*
 * The chunk's fragment is made anew for each peer, which takes less than sending it. Its receiver cannot compare it with the chunk's digest: that is
 * done here, once, by the first of them. What is read wrong would otherwise be found out when it is needed.
 */
static int make_fragment(struct outgoing *out, const struct tpck_peer_want *want, size_t length, size_t bytes)
{
	const struct tpck_fragment *fragment = &out->parcel->fragment[out->target];
	const struct tpck_object *object = &out->parcel->manifest->members[want->member].objects[want->object];
	const struct parcel_part *part = &out->parcel->part[want->member];
	struct fragment_sent *made = malloc(sizeof *made + bytes);
	uint64_t from = (uint64_t)want->chunk * TPCK_CHUNK_BYTES;
	uint8_t digest[16];
	void *buffer = NULL;
	const void *chunk;
	int rc = 0;

	if (!made)
		return -ENOMEM;
	made->users = 1;
	if (want->object >= 2)
		chunk = buffer = read_log(part, want->object, from, length);
	else
		chunk = (want->object ? tpck_image_data(&part->image) : (uint8_t *)tpck_image_rows(&part->image)) + from;
	if (!chunk)
		rc = -EIO;
	if (!rc && fragment->index == 0) {
		tpck_digest128(chunk, length, digest);
		rc = memcmp(digest, object->chunks[want->chunk].digest, sizeof digest) == 0 ? 0 : -EBADMSG;
		out->parcel->damaged = out->parcel->damaged || rc;
	}
	if (!rc)
		rc = tpck_erasure_cut(fragment, chunk, length, made->bytes);
	free(buffer);
	if (rc) {
		free(made);
		return rc;
	}
	tpck_digest128(made->bytes, bytes, made->digest);
	out->fragment = made;
	return 0;
}

/* Of a fragment that is held for others, as it is: who gets it compares. */
static int read_fragment(struct outgoing *out, const struct tpck_peer_want *want, size_t bytes)
{
	const struct parcel *parcel = out->parcel;
	struct fragment_sent *read = malloc(sizeof *read + bytes);
	struct tpck_error err = {0};
	int rc;

	if (!read)
		return -ENOMEM;
	read->users = 1;
	rc = tpck_replica_fragment(parcel->copy->replica, parcel->slot, want, read->bytes, read->digest, &err);
	if (rc) {
		agent_complain(&err);
		free(read);
		return rc;
	}
	out->fragment = read;
	return 0;
}

static size_t window_of(const struct peer *peer)
{
	return peer->window ? peer->window : WINDOW_FIRST;
}

/* It grows twofold while a window's pieces arrive soon, and is halved by one of pieces that take long. */
static void learn(struct peer *peer, const struct piece *piece)
{
	uint64_t took = tpck_clock_monotonic_ns() - piece->begun_ns;
	size_t window = window_of(peer);

	if (took < QUICK_NS)
		window = window + piece->bytes < WINDOW_MOST ? window + piece->bytes : WINDOW_MOST;
	else if (took > LATE_NS)
		window = window > WINDOW_LEAST + piece->bytes / 2 ? window - piece->bytes / 2 : WINDOW_LEAST;
	peer->window = window;
}

/* How much of what is left of a chunk goes next. */
static size_t piece_bytes(const struct outgoing *out, size_t left)
{
	size_t most = window_of(out->peer) / 4;

	if (most > PIECE_BYTES && pace_is_held_back(&out->pace))
		most = PIECE_BYTES;
	if (most < WINDOW_LEAST)
		most = WINDOW_LEAST;
	return left < most ? left : most;
}

/* The next piece of this chunk's fragment. */
static int send_fragment(struct outgoing *out, const struct tpck_peer_want *want)
{
	const struct tpck_chunk *chunk = &out->parcel->manifest->members[want->member].objects[want->object].chunks[want->chunk];
	const struct tpck_fragment *fragment = &out->parcel->fragment[out->target];
	struct tpck_peer_message head = about(out->id, &out->parcel->manifest->point);
	size_t bytes = tpck_fragment_bytes(fragment, chunk->length), left = bytes - out->offset, length = piece_bytes(out, left);
	struct piece *piece;
	int rc;

	if (out->parcel->damaged)
		return -EBADMSG;
	if (!out->offset) {
		fragment_unuse(out->fragment);
		out->fragment = NULL;
		rc = out->parcel->copy ? read_fragment(out, want, bytes) : make_fragment(out, want, chunk->length, bytes);
		if (rc)
			return rc;
	}
	piece = calloc(1, sizeof *piece);
	if (!piece)
		return -ENOMEM;
	head.value = bytes;
	head.offset = (uint32_t)out->offset;
	head.member = want->member;
	head.object = want->object;
	head.chunk = want->chunk;
	head.fragment = *fragment;
	memcpy(head.digest, out->fragment->digest, sizeof head.digest);
	piece->outgoing = out;
	piece->bytes = length;
	piece->begun_ns = tpck_clock_monotonic_ns();
	piece->fragment = out->fragment;
	out->fragment->users++;
	out->in_flight++;
	out->under_way += length;
	rc = peer_send(out->peer, TPCK_PEER_CHUNK, &head, out->fragment->bytes + out->offset, length, piece);
	if (rc) {
		out->in_flight--;
		out->under_way -= length;
		fragment_unuse(piece->fragment);
		free(piece);
		return rc;
	}
	out->offset = length < left ? out->offset + length : 0;
	out->at += length == left;
	out->parcel->sent_bytes += length;
	pace_sent(&out->pace, tpck_clock_monotonic_ns(), length);
	return 0;
}

static bool is_in(const struct tpck_manifest *manifest, const struct tpck_peer_want *want)
{
	return want->member < manifest->member_count && want->object < manifest->members[want->member].object_count &&
	       want->chunk < manifest->members[want->member].objects[want->object].count;
}

/* The next piece of this chunk. */
static int send_piece(struct outgoing *out, const struct tpck_peer_want *want)
{
	const struct tpck_manifest *manifest = out->parcel->manifest;
	const struct tpck_member *member = want->member < manifest->member_count ? &manifest->members[want->member] : NULL;
	const struct parcel_part *part = &out->parcel->part[member ? want->member : 0];
	struct tpck_peer_message head = about(out->id, &manifest->point);
	struct piece *piece = calloc(1, sizeof *piece);
	uint64_t from = (uint64_t)want->chunk * TPCK_CHUNK_BYTES + out->offset;
	const void *bytes;
	size_t length, left;
	int rc;

	if (is_in(manifest, want) && out->parcel->fragment[out->target].data) {
		free(piece);
		return send_fragment(out, want);
	}
	if (!piece || !member || want->object >= member->object_count || want->chunk >= member->objects[want->object].count) {
		free(piece);
		return -EINVAL;
	}
	head.value = member->objects[want->object].chunks[want->chunk].length;
	left = head.value - out->offset;
	length = piece_bytes(out, left);
	if (want->object >= 2)
		bytes = piece->buffer = read_log(part, want->object, from, length);
	else
		bytes = (want->object ? tpck_image_data(&part->image) : (uint8_t *)tpck_image_rows(&part->image)) + from;
	head.offset = (uint32_t)out->offset;
	head.member = want->member;
	head.object = want->object;
	head.chunk = want->chunk;
	piece->outgoing = out;
	piece->bytes = length;
	piece->begun_ns = tpck_clock_monotonic_ns();
	out->in_flight++;
	out->under_way += length;
	rc = bytes ? peer_send(out->peer, TPCK_PEER_CHUNK, &head, bytes, length, piece) : -EIO;
	if (rc) {
		out->in_flight--;
		out->under_way -= length;
		free(piece->buffer);
		free(piece);
		return rc;
	}
	out->offset = length < left ? out->offset + length : 0;
	out->at += length == left;
	out->parcel->sent_bytes += length;
	pace_sent(&out->pace, tpck_clock_monotonic_ns(), length);
	return 0;
}

static void pump(struct outgoing *out)
{
	static bool pumping;

	/* What is sent at once comes back here. */
	if (pumping)
		return;
	pumping = true;
	out->held = false;
	while (!out->over && out->peer && out->at < out->count && out->under_way < window_of(out->peer)) {
		if (!pace_may(&out->pace, tpck_clock_monotonic_ns())) {
			out->held = true;
			break;
		}
		if (send_piece(out, &out->want[out->at])) {
			say_failed(out->peer, out->id, "what it promised cannot be read any more");
			pace_end(&out->pace, false);
			out->over = true;
		}
	}
	pumping = false;
	if (out->over && !out->in_flight)
		outgoing_free(out);
}

void transfer_sent(void *token)
{
	struct piece *piece = token;
	struct outgoing *out = piece->outgoing;

	out->in_flight--;
	out->under_way -= piece->bytes;
	if (out->peer)
		learn(out->peer, piece);
	fragment_unuse(piece->fragment);
	free(piece->buffer);
	free(piece);
	pump(out);
}

uint64_t transfer_resume(void)
{
	for (;;) {
		struct outgoing *first = NULL;
		uint64_t now = tpck_clock_monotonic_ns(), soonest = UINT64_MAX;

		for (struct outgoing *out = outgoings; out; out = out->next) {
			uint64_t next;

			if (!out->held || out->over)
				continue;
			next = pace_next(&out->pace);
			soonest = next < soonest ? next : soonest;
			if (next <= now && (!first || out->turn < first->turn))
				first = out;
		}
		if (!first)
			return soonest;
		first->turn = ++turns;
		pump(first);
	}
}

/* Somebody looks for what is on its way, or waits for the link. */
static void hurry_all(void)
{
	for (struct outgoing *out = outgoings; out; out = out->next)
		out->parcel->hurry = true;
}

struct send_errand {
	struct errand errand; /* first */
	struct parcel *parcel;
};

static void send_run(struct errand *errand)
{
	struct parcel *parcel = ((struct send_errand *)errand)->parcel;
	unsigned targets = parcel->targets;

	free(errand);
	parcel->pending = 1; /* this call */
	parcel->begun_ns = tpck_clock_monotonic_ns();
	for (unsigned i = 0; i < targets; i++) {
		struct tpck_peer_message head = about(parcel->transfer ? parcel->transfer : ++numbers, &parcel->manifest->point);
		struct peer *peer = peer_of_serial(parcel->target[i]);
		struct outgoing *out = peer && peer->state == PEER_KNOWN ? calloc(1, sizeof *out) : NULL;

		if (!out)
			continue;
		*out = (struct outgoing){.id = head.transfer, .parcel = parcel, .target = i, .peer = peer, .next = outgoings};
		outgoings = out;
		parcel->pending++;
		head.rank = parcel->manifest->members[0].rank;
		head.ordinal = parcel->manifest->members[0].ordinal;
		head.value = parcel->keep;
		head.fragment = parcel->fragment[i];
		if (peer_send(peer, TPCK_PEER_OFFER, &head, parcel->text, parcel->size, NULL))
			outgoing_end(out, false);
	}
	if (--parcel->pending == 0)
		outbox_post(&parcel->agent->outbox, &parcel->job);
}

void transfer_send(struct parcel *parcel)
{
	struct send_errand *errand = calloc(1, sizeof *errand);

	if (!errand) {
		outbox_post(&parcel->agent->outbox, &parcel->job);
		return;
	}
	errand->errand.run = send_run;
	errand->parcel = parcel;
	peers_errand(&errand->errand);
}

void parcel_free(struct parcel *parcel)
{
	if (parcel->copy)
		copy_unpin(parcel->copy, parcel->slot);
	for (uint32_t i = 0; i < parcel->parts; i++)
		if (!parcel->part[i].live)
			tpck_image_close(&parcel->part[i].image);
	free(parcel->part);
	tpck_manifest_free(parcel->manifest);
	free(parcel->publication.shares);
	free(parcel->text);
	free(parcel);
}

static struct outgoing *outgoing_of(const struct peer *peer, uint64_t id)
{
	for (struct outgoing *out = outgoings; out; out = out->next)
		if (out->peer == peer && out->id == id && !out->over)
			return out;
	return NULL;
}

static uint64_t wanted_bytes(const struct outgoing *out)
{
	const struct tpck_manifest *manifest = out->parcel->manifest;
	uint64_t bytes = 0;

	for (size_t i = 0; i < out->count; i++) {
		const struct tpck_peer_want *want = &out->want[i];
		const struct tpck_fragment *fragment = &out->parcel->fragment[out->target];
		uint64_t length;

		if (!is_in(manifest, want))
			continue;
		length = manifest->members[want->member].objects[want->object].chunks[want->chunk].length;
		bytes += fragment->data ? tpck_fragment_bytes(fragment, length) : length;
	}
	return bytes;
}

static void take_want(struct outgoing *out, const char *bytes, size_t count)
{
	if (!out || out->want)
		return;
	out->want = malloc(count + 1);
	if (!out->want) {
		outgoing_end(out, false);
		return;
	}
	memcpy(out->want, bytes, count);
	out->count = count / sizeof *out->want;
	pace_begin(&out->pace, out->parcel, wanted_bytes(out));
	pump(out);
}

/* ---- coming in ---------------------------------------------------------------------------- */

/* By the courier: the manifest is read, the copy made ready. */
struct receive_job {
	struct job job; /* first */
	struct errand errand;
	uint64_t serial, transfer, keep;
	struct tpck_point wanted;  /* what this node asked for; generation 0: nothing */
	struct tpck_fragment wanted_fragment, fragment;
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

static struct ask *ask_of(uint64_t number)
{
	for (struct ask *ask = peers.asks; ask; ask = ask->next)
		if (ask->number == number)
			return ask;
	return NULL;
}

/* Something of a GET moved, or it is over. */
static void tell_ask(uint64_t transfer, uint64_t serial, bool over, int rc, const char *why)
{
	struct ask *ask;

	pthread_mutex_lock(&peers.lock);
	ask = ask_of(transfer);
	if (ask && ask->getting && ask->from == serial) {
		ask->moved_ns = tpck_clock_monotonic_ns();
		if (over) {
			ask->got = true;
			ask->rc = rc;
			snprintf(ask->why, sizeof ask->why, "%s", why);
			pthread_cond_broadcast(&peers.changed);
		}
	}
	pthread_mutex_unlock(&peers.lock);
}

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
	if (!job->rc && job->wanted.generation &&
	    (tpck_point_compare(&job->wanted, &manifest->point) != 0 || memcmp(&job->wanted_fragment, &job->fragment, sizeof job->fragment) != 0))
		job->rc = tpck_error_set(&job->error, EBADMSG, "using what is not the snapshot that was asked for");
	if (!job->rc)
		job->rc = copy_for(manifest, &job->fragment, job->owner, job->keep, job->wanted.generation != 0, &job->copy, &job->error);
	if (!job->rc && !prepare_room(peers.agent,
				      tpck_replica_needs(job->copy->replica, manifest, job->copy->gathered ? 1 : TPCK_REPLICA_SLOTS), reason,
				      sizeof reason))
		job->rc = tpck_error_set(&job->error, 0, "no room for a copy of a peer's snapshot: %s", reason) | -ENOSPC;
	if (!job->rc) {
		struct tpck_replica *replica = job->copy->replica;
		struct tpck_point point = manifest->point;

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
	for (struct incoming **place = &incomings; *place; place = &(*place)->next)
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
	for (struct placed **place = &placements; *place;) {
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
static void incoming_fail(struct incoming *in, const char *why)
{
	struct peer *peer = peer_of_serial(in->serial);

	if (!in->failed) {
		in->failed = true;
		if (peer)
			say_failed(peer, in->transfer, why);
		tell_ask(in->transfer, in->serial, true, -EIO, why);
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
	uint64_t received = replica->received, serial = in->serial, transfer = in->transfer;
	struct tpck_error err = {0};
	struct tpck_peer_message head;
	struct tpck_point point;
	char what[40] = "a copy";

	if (copy_is_detached(in->copy))
		tpck_error_set(&err, 0, "it is not needed any more");
	if (err.text[0] || tpck_replica_finish(replica, &err)) {
		agent_complain(&err);
		in->placed = 0;
		in->failed = true;
		if (peer)
			say_failed(peer, transfer, err.text);
		tell_ask(transfer, serial, true, -EIO, err.text);
		incoming_free(in, false);
		return;
	}
	point = replica->slot[replica->to]->point;
	if (replica->fragment.data)
		snprintf(what, sizeof what, "fragment %u of %u+%u", replica->fragment.index, replica->fragment.data, replica->fragment.parity);
	tpck_log_debug("%s of step %" PRIu64 " of generation %" PRIu64 " of %s is here: %.1f MiB came in %.3f s; ranks here had %.1f", what,
		       point.step, point.generation, in->copy->owner, (double)received / (1 << 20),
		       (double)(tpck_clock_monotonic_ns() - in->begun_ns) / 1e9, (double)in->found / (1 << 20));
	incoming_free(in, true);
	head = about(transfer, &point);
	if (peer)
		(void)peer_send(peer, TPCK_PEER_HAVE, &head, NULL, 0, NULL);
	tell_ask(transfer, serial, true, 0, "");
}

static void begun_run(struct errand *errand)
{
	struct receive_job *job = (struct receive_job *)((char *)errand - offsetof(struct receive_job, errand));
	struct peer *peer = peer_of_serial(job->serial);
	struct tpck_peer_message head = about(job->transfer, NULL);
	struct incoming *in;

	if (job->rc) {
		if (peer && job->rc == -EALREADY)
			(void)peer_send(peer, TPCK_PEER_HAVE, &head, NULL, 0, NULL);
		else if (peer)
			say_failed(peer, job->transfer, job->error.text);
		tell_ask(job->transfer, job->serial, true, job->rc == -EALREADY ? 0 : job->rc, job->error.text);
		goto out;
	}
	in = calloc(1, sizeof *in);
	if (!in || !peer) {
		tell_ask(job->transfer, job->serial, true, -EIO, "it is gone");
		tpck_replica_abort(job->copy->replica);
		copy_filled(job->copy, false);
		free(in);
		goto out;
	}
	*in = (struct incoming){.serial = job->serial, .transfer = job->transfer, .copy = job->copy,
				.begun_ns = tpck_clock_monotonic_ns(), .found = job->found, .next = incomings};
	incomings = in;
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

	agent->jobs--;
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

	agent->jobs++;
	worker_give(&peers.courier, &accept->receive->job);
	free(accept);
}

/* What this offer answers, if this node asked for it. */
static struct tpck_point wanted_of(const struct peer *peer, uint64_t transfer, struct tpck_fragment *fragment)
{
	struct tpck_point wanted = {0};
	struct ask *ask;

	pthread_mutex_lock(&peers.lock);
	ask = ask_of(transfer);
	if (ask && ask->getting && ask->from == peer->serial)
		wanted = ask->wanted;
	if (wanted.generation)
		*fragment = ask->wanted_fragment;
	pthread_mutex_unlock(&peers.lock);
	return wanted;
}

static void take_offer(struct peer *peer, const struct tpck_peer_message *head, const char *text, size_t count)
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
	job->wanted = wanted_of(peer, head->transfer, &job->wanted_fragment);
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
	outbox_post(&peers.agent->outbox, &accept->job);
}

static struct incoming *incoming_of(uint64_t serial, uint64_t transfer)
{
	for (struct incoming *in = incomings; in; in = in->next)
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
	struct placed *placed = placements;

	while (placed && (placed->incoming != in || !is_same(&placed->at, at)))
		placed = placed->next;
	if (placed)
		return placed;
	placed = calloc(1, sizeof *placed);
	if (!placed)
		return NULL;
	*placed = (struct placed){.bytes = tpck_replica_place(in->copy->replica, at, length), .length = length, .at = *at, .incoming = in,
				  .next = placements};
	if (!placed->bytes) {
		free(placed);
		return NULL;
	}
	placements = placed;
	return placed;
}

void *transfer_place(struct peer *peer, const struct tpck_peer_message *head, size_t bytes)
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
	for (struct placed *placed = placements; placed; placed = placed->next)
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

	for (struct placed **place = &placements; *place; place = &(*place)->next)
		if (*place == placed) {
			*place = placed->next;
			break;
		}
	free(placed);
	return rc;
}

void transfer_arrived(struct peer *peer, void *bytes, size_t count, bool whole)
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
		incoming_fail(in, rc ? err.text : "the connection broke, or it is not needed any more");
		return;
	}
	tell_ask(in->transfer, in->serial, false, 0, "");
	if (!in->copy->replica->lacks && !in->placed)
		incoming_whole(in);
}

/* ---- asking ------------------------------------------------------------------------------- */

static void take_ask(struct peer *peer, const struct tpck_peer_message *head, const char *identity)
{
	struct tpck_peer_message answer = {.transfer = head->transfer};
	struct tpck_point point;
	unsigned slot;
	struct copy *copy = copy_pin(identity, head->rank, head->ordinal, NULL, &slot);
	size_t count = 0, size;
	struct tpck_peer_told *fragments = copies_here_fragments(identity, head->rank, head->ordinal, &count);
	char *other = (char *)fragments;

	size = count * sizeof *fragments;
	hurry_all();
	if (copy) {
		answer.value = 1;
		point = copy->slot[slot].point;
		copy_unpin(copy, slot);
	} else if (!size) {
		free(other);
		other = copies_here_other(identity, head->rank, &point);
		answer.value = other ? 2 : 0;
		size = other ? strlen(other) + 1 : 0;
	}
	if (answer.value) {
		answer.generation = point.generation;
		answer.step = point.step;
	}
	peers_inquire(peer, head, &answer, identity, other, size, false);
}

/* Somebody has the program only as it was started otherwise: the newest is what the user is told of. */
static void note_other(struct ask *ask, const struct tpck_peer_message *head, const char *identity)
{
	struct tpck_point point = {head->generation, head->step};

	if (!identity[0] || (ask->other_identity && tpck_point_compare(&point, &ask->other_point) <= 0))
		return;
	free(ask->other_identity);
	ask->other_identity = strdup(identity);
	ask->other_point = point;
}

static void add_answer(struct ask *ask, const struct peer *peer, const struct tpck_peer_told *told)
{
	struct ask_answer *answer = &ask->answers[ask->count];

	if (ask->count == ASK_ANSWERS)
		return;
	if (told->generation > peers.generation)
		peers.generation = told->generation;
	ask->count++;
	*answer = (struct ask_answer){.serial = peer->serial, .point = {told->generation, told->step}, .fragment = told->fragment, .part = told->part};
	memcpy(answer->host, peer->other.host, sizeof answer->host);
}

static void take_tell(struct peer *peer, const struct tpck_peer_message *head, const char *text, size_t count)
{
	struct ask *ask;

	pthread_mutex_lock(&peers.lock);
	ask = ask_of(head->transfer);
	if (ask) {
		ask->answered++;
		if (head->value && head->generation > peers.generation)
			peers.generation = head->generation;
		if (head->value == 2)
			note_other(ask, head, count ? text : "");
		if (head->value == 1)
			add_answer(ask, peer, &(struct tpck_peer_told){.generation = head->generation, .step = head->step});
		for (size_t i = 0; head->value != 2 && i < count / sizeof(struct tpck_peer_told); i++) {
			struct tpck_peer_told told;

			memcpy(&told, text + i * sizeof told, sizeof told);
			if (tpck_fragment_is_valid(&told.fragment))
				add_answer(ask, peer, &told);
		}
		pthread_cond_broadcast(&peers.changed);
	}
	pthread_mutex_unlock(&peers.lock);
}

static void get_done(struct agent *agent, struct job *base)
{
	struct parcel *parcel = (struct parcel *)base;

	(void)agent;
	tpck_log_info("%s of step %" PRIu64 " of generation %" PRIu64 " was %s: %.1f MiB in %.3f s",
		      parcel->fragment[0].data ? "a fragment" : "a copy", parcel->manifest->point.step, parcel->manifest->point.generation, parcel->has[0] ? "given to a peer" : "asked for, but not taken",
		      (double)parcel->sent_bytes / (1 << 20), (double)(tpck_clock_monotonic_ns() - parcel->begun_ns) / 1e9);
	parcel_free(parcel);
}

/* The images of a copy, to be sent. */
static int open_parts(struct parcel *parcel, struct tpck_error *err)
{
	const struct tpck_replica *replica = parcel->copy->replica;
	char path[TPCK_PATH_MAX];

	parcel->part = calloc(parcel->manifest->member_count, sizeof *parcel->part);
	if (!parcel->part)
		return tpck_error_set(err, ENOMEM, "reading a copy");
	/* Fragments are read as they are sent. */
	if (parcel->fragment[0].data)
		return 0;
	parcel->parts = (uint32_t)parcel->manifest->member_count;
	for (uint32_t m = 0; m < parcel->parts; m++) {
		const struct tpck_member *member = &parcel->manifest->members[m];

		tpck_replica_path(replica, member, parcel->part[m].log_folder, sizeof parcel->part[m].log_folder);
		tpck_replica_image_path(replica, member, parcel->slot, path, sizeof path);
		if (tpck_image_open(&parcel->part[m].image, path, false, err))
			return -err->code;
	}
	return 0;
}

static void take_get(struct peer *peer, const struct tpck_peer_message *head, const char *identity)
{
	struct parcel *parcel = calloc(1, sizeof *parcel);
	struct tpck_point point = {head->generation, head->step};
	struct tpck_error err = {0};

	if (head->fragment.data && !tpck_fragment_is_valid(&head->fragment)) {
		free(parcel);
		say_failed(peer, head->transfer, "there is no such fragment");
		return;
	}
	hurry_all();
	if (parcel) {
		parcel->fragment[0] = head->fragment;
		parcel->copy = copy_pin_fragment(identity, head->rank, head->ordinal, &point, &head->fragment, &parcel->slot);
	}
	if (!parcel || !parcel->copy) {
		if (parcel)
			parcel_free(parcel);
		peers_inquire(peer, head, NULL, identity, NULL, 0, true);
		return;
	}
	parcel->job.done = get_done;
	parcel->agent = peers.agent;
	parcel->transfer = head->transfer;
	parcel->size = parcel->copy->replica->text_size[parcel->slot];
	parcel->text = strdup(parcel->copy->replica->text[parcel->slot]);
	parcel->targets = 1;
	parcel->target[0] = peer->serial;
	if (!parcel->text || tpck_manifest_parse(&parcel->manifest, parcel->text, parcel->size, "of a copy", &err) ||
	    open_parts(parcel, &err)) {
		agent_complain(&err);
		say_failed(peer, head->transfer, err.text);
		parcel_free(parcel);
		return;
	}
	transfer_send(parcel);
}

/* One answer is enough from one that there are two connections to. */
static bool is_asked(const struct peer *peer)
{
	for (struct peer *other = peers.list; other && other != peer; other = other->next)
		if (other->state == PEER_KNOWN && strcmp(other->other.node, peer->other.node) == 0)
			return true;
	return false;
}

void transfer_greet(struct peer *peer)
{
	for (struct ask *ask = peers.asks; ask; ask = ask->next) {
		struct tpck_peer_message head = {.transfer = ask->number, .rank = ask->rank, .ordinal = ask->ordinal};

		if (!ask->posted || is_asked(peer))
			continue;
		if (peer_send_text(peer, TPCK_PEER_ASK, &head, ask->identity, strlen(ask->identity) + 1) == 0)
			ask->asked++;
	}
}

/* ---- messages ----------------------------------------------------------------------------- */

static void take_fail(struct peer *peer, const struct tpck_peer_message *head, const char *why)
{
	struct outgoing *out = outgoing_of(peer, head->transfer);
	struct tpck_error err = {0};

	if (!out) {
		struct incoming *in = incoming_of(peer->serial, head->transfer);

		tell_ask(head->transfer, peer->serial, true, -EIO, why);
		if (in)
			incoming_fail(in, why);
		return;
	}
	tpck_error_set(&err, 0, "%.60s takes no copy: %.200s", peer->other.host, why);
	agent_complain(&err);
	outgoing_end(out, false);
}

/* What a start looks for before it asks its agent: in the memory tier, since no folder may be shared. */
static void mark(const char *identity, bool present)
{
	struct tpck_program *program;
	struct tpck_error err = {0};

	if (tpck_program_load(&program, peers.agent->folder, NULL, identity, &err) == 0) {
		if (tpck_program_mark(program, peers.agent->folder, NULL, present, &err))
			agent_complain(&err);
		tpck_program_free(program);
	} else {
		agent_complain(&err);
	}
}

void transfer_message(struct peer *peer, const struct tpck_peer_message *head, char *text, size_t count)
{
	struct outgoing *out;

	if (!text)
		count = 0;
	switch (head->type) {
	case TPCK_PEER_OFFER:
		if (count)
			take_offer(peer, head, text, count);
		break;
	case TPCK_PEER_WANT:
		take_want(outgoing_of(peer, head->transfer), text, count);
		break;
	case TPCK_PEER_HAVE:
		out = outgoing_of(peer, head->transfer);
		if (out)
			outgoing_end(out, true);
		break;
	case TPCK_PEER_FAIL:
		take_fail(peer, head, count ? text : "");
		break;
	case TPCK_PEER_DROP:
		if (count)
			copies_here_drop(text, head->generation);
		if (count && head->value)
			mark(text, false);
		break;
	case TPCK_PEER_MARK:
		if (count)
			mark(text, true);
		break;
	case TPCK_PEER_ASK:
		take_ask(peer, head, count ? text : "");
		break;
	case TPCK_PEER_TELL:
		take_tell(peer, head, text, count);
		break;
	case TPCK_PEER_GET:
		take_get(peer, head, count ? text : "");
		break;
	default:
		tpck_log_debug("%s sends a message of type %u", peer->other.host, head->type);
	}
}

void transfer_gone(struct peer *peer)
{
	struct outgoing *next_out;
	struct incoming *next_in;

	for (struct outgoing *out = outgoings; out; out = next_out) {
		next_out = out->next;
		if (out->peer != peer)
			continue;
		out->peer = NULL;
		outgoing_end(out, false);
	}
	for (struct incoming *in = incomings; in; in = next_in) {
		next_in = in->next;
		if (in->serial == peer->serial)
			incoming_fail(in, "it is gone");
	}
	pthread_mutex_lock(&peers.lock);
	for (struct ask *ask = peers.asks; ask; ask = ask->next)
		if (ask->getting && ask->from == peer->serial && !ask->got) {
			ask->got = true;
			ask->rc = -EIO;
			snprintf(ask->why, sizeof ask->why, "it is gone");
		}
	pthread_cond_broadcast(&peers.changed);
	pthread_mutex_unlock(&peers.lock);
}
