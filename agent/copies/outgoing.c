/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots on their way to peers: offered, and sent chunk by chunk as they are asked for. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/copies/copies_private.h"
#include "agent/loop/trouble.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/log.h"
#include "runtime/peer/sealed.h"

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

static struct {
	struct outgoing *list;
	uint64_t numbers, turns; /* that were given last */
} outgoings;

static void fragment_unuse(struct fragment_sent *fragment)
{
	if (fragment && --fragment->users == 0)
		free(fragment);
}

static void outgoing_free(struct outgoing *out)
{
	for (struct outgoing **place = &outgoings.list; *place; place = &(*place)->next)
		if (*place == out) {
			*place = out->next;
			break;
		}
	if (--out->parcel->pending == 0)
		outbox_post(&out->parcel->job);
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

static void *read_log(const struct parcel_part *part, const struct tpck_object *object, uint64_t from, size_t length)
{
	char path[TPCK_PATH_MAX], *buffer = malloc(length);
	off_t at = (off_t)(sizeof(struct tpck_log_header) + from);
	int fd;

	snprintf(path, sizeof path, "%s/%s", part->log_folder, object->name);
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
		chunk = buffer = read_log(part, object, from, length);
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
		trouble_complain(&err);
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

/* The window grows twofold while its pieces arrive soon, and is halved by one of pieces that take long. */
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
	/* One piece is sealed while the one before it goes. */
	if (most > TPCK_SEALED_PIECE && out->peer->level != TPCK_SEAL_OFF)
		most = TPCK_SEALED_PIECE;
	if (most < WINDOW_LEAST)
		most = WINDOW_LEAST;
	return left < most ? left : most;
}

static bool is_in(const struct tpck_manifest *manifest, const struct tpck_peer_want *want)
{
	return want->member < manifest->member_count && want->object < manifest->members[want->member].object_count &&
	       want->chunk < manifest->members[want->member].objects[want->object].count;
}

/* The chunk's fragment, from which its pieces go. */
static int want_fragment(struct outgoing *out, const struct tpck_peer_want *want, uint64_t chunk, size_t bytes)
{
	if (out->parcel->damaged)
		return -EBADMSG;
	if (out->offset)
		return 0;
	fragment_unuse(out->fragment);
	out->fragment = NULL;
	return out->parcel->copy ? read_fragment(out, want, bytes) : make_fragment(out, want, chunk, bytes);
}

/* The bytes of the next piece, which stay until fragment and buffer of the piece go. NULL: they cannot be read. */
static const void *piece_of(const struct outgoing *out, const struct tpck_peer_want *want, struct piece *piece)
{
	const struct parcel_part *part = &out->parcel->part[want->member];
	uint64_t from = (uint64_t)want->chunk * TPCK_CHUNK_BYTES + out->offset;

	if (out->fragment) {
		piece->fragment = out->fragment;
		piece->fragment->users++;
		return out->fragment->bytes + out->offset;
	}
	if (want->object >= 2)
		return piece->buffer = read_log(part, &out->parcel->manifest->members[want->member].objects[want->object], from, piece->bytes);
	return (want->object ? tpck_image_data(&part->image) : (uint8_t *)tpck_image_rows(&part->image)) + from;
}

static void piece_free(struct piece *piece)
{
	piece->outgoing->in_flight--;
	piece->outgoing->under_way -= piece->bytes;
	fragment_unuse(piece->fragment);
	free(piece->buffer);
	free(piece);
}

/* The next piece of this chunk, or of its fragment. */
static int send_piece(struct outgoing *out, const struct tpck_peer_want *want)
{
	const struct tpck_manifest *manifest = out->parcel->manifest;
	const struct tpck_fragment *fragment = &out->parcel->fragment[out->target];
	struct tpck_peer_message head = peer_about(out->id, &manifest->point);
	struct piece *piece;
	uint64_t chunk;
	const void *bytes;
	size_t left, length;
	int rc = 0;

	if (!is_in(manifest, want))
		return -EINVAL;
	chunk = manifest->members[want->member].objects[want->object].chunks[want->chunk].length;
	head.value = fragment->data ? tpck_fragment_bytes(fragment, chunk) : chunk;
	if (fragment->data)
		rc = want_fragment(out, want, chunk, head.value);
	piece = rc ? NULL : calloc(1, sizeof *piece);
	if (!piece)
		return rc ? rc : -ENOMEM;
	left = head.value - out->offset;
	length = piece_bytes(out, left);
	*piece = (struct piece){.outgoing = out, .bytes = length, .begun_ns = tpck_clock_monotonic_ns()};
	head.offset = (uint32_t)out->offset;
	head.member = want->member;
	head.object = want->object;
	head.chunk = want->chunk;
	if (out->fragment) {
		head.fragment = *fragment;
		memcpy(head.digest, out->fragment->digest, sizeof head.digest);
	}
	out->in_flight++;
	out->under_way += length;
	bytes = piece_of(out, want, piece);
	/* The chunk may be sent at once, and the piece be gone then. */
	rc = bytes ? peer_send(out->peer, TPCK_PEER_CHUNK, &head, bytes, length, piece) : -EIO;
	if (rc) {
		piece_free(piece);
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
			peer_say_failed(out->peer, out->id, "what it promised cannot be read any more");
			pace_end(&out->pace, false);
			out->over = true;
		}
	}
	pumping = false;
	if (out->over && !out->in_flight)
		outgoing_free(out);
}

void outgoing_sent(void *token)
{
	struct piece *piece = token;
	struct outgoing *out = piece->outgoing;

	if (out->peer)
		learn(out->peer, piece);
	piece_free(piece);
	pump(out);
}

uint64_t outgoing_resume(void)
{
	for (;;) {
		struct outgoing *first = NULL;
		uint64_t now = tpck_clock_monotonic_ns(), soonest = UINT64_MAX;

		for (struct outgoing *out = outgoings.list; out; out = out->next) {
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
		first->turn = ++outgoings.turns;
		pump(first);
	}
}

void outgoing_hurry(void)
{
	for (struct outgoing *out = outgoings.list; out; out = out->next)
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
		struct tpck_peer_message head = peer_about(parcel->transfer ? parcel->transfer : ++outgoings.numbers, &parcel->manifest->point);
		struct peer *peer = peer_of_serial(parcel->target[i]);
		struct outgoing *out = peer && peer->state == PEER_KNOWN ? calloc(1, sizeof *out) : NULL;

		if (!out)
			continue;
		*out = (struct outgoing){.id = head.transfer, .parcel = parcel, .target = i, .peer = peer, .next = outgoings.list};
		outgoings.list = out;
		parcel->pending++;
		head.rank = parcel->manifest->members[0].rank;
		head.ordinal = parcel->manifest->members[0].ordinal;
		head.value = parcel->keep;
		head.fragment = parcel->fragment[i];
		if (peer_send(peer, TPCK_PEER_OFFER, &head, parcel->text, parcel->size, NULL))
			outgoing_end(out, false);
	}
	if (--parcel->pending == 0)
		outbox_post(&parcel->job);
}

void outgoing_send(struct parcel *parcel)
{
	struct send_errand *errand = calloc(1, sizeof *errand);

	if (!errand) {
		outbox_post(&parcel->job);
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
	for (struct outgoing *out = outgoings.list; out; out = out->next)
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

/* A chunk may be asked for again where it came otherwise than its digest says; who asks for ever is sent nothing more. */
static bool asks_too_often(const struct outgoing *out, size_t more)
{
	enum { TIMES = 4 };
	const struct tpck_manifest *manifest = out->parcel->manifest;
	uint64_t chunks = 0;

	for (size_t m = 0; m < manifest->member_count; m++)
		for (size_t o = 0; o < manifest->members[m].object_count; o++)
			chunks += manifest->members[m].objects[o].count;
	return out->count + more > TIMES * chunks;
}

void outgoing_want(const struct peer *peer, uint64_t transfer, const char *bytes, size_t count)
{
	struct outgoing *out = outgoing_of(peer, transfer);
	struct tpck_peer_want *grown;
	bool first = out && !out->want;

	/* Who asked for it asks for some chunks after others; what is sent to one who did not is all known at once. */
	if (!out || (!first && !out->parcel->transfer))
		return;
	if (asks_too_often(out, count / sizeof *grown)) {
		outgoing_end(out, false);
		return;
	}
	grown = realloc(out->want, out->count * sizeof *grown + count + 1);
	if (!grown) {
		outgoing_end(out, false);
		return;
	}
	memcpy(grown + out->count, bytes, count);
	out->want = grown;
	out->count += count / sizeof *grown;
	if (first)
		pace_begin(&out->pace, out->parcel, wanted_bytes(out));
	pump(out);
}

void outgoing_have(const struct peer *peer, uint64_t transfer)
{
	struct outgoing *out = outgoing_of(peer, transfer);

	if (out)
		outgoing_end(out, true);
}

bool outgoing_fail(const struct peer *peer, uint64_t transfer, const char *why)
{
	struct outgoing *out = outgoing_of(peer, transfer);
	struct tpck_error err = {0};

	if (!out)
		return false;
	tpck_error_set(&err, 0, "%.60s takes no copy: %.200s", peer->other.host, why);
	trouble_complain(&err);
	outgoing_end(out, false);
	return true;
}

void outgoing_gone(const struct peer *peer)
{
	struct outgoing *next;

	for (struct outgoing *out = outgoings.list; out; out = next) {
		next = out->next;
		if (out->peer != peer)
			continue;
		out->peer = NULL;
		outgoing_end(out, false);
	}
}
