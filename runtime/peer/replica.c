/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of another node's snapshots. */
#include "config.h"

#include "runtime/peer/replica.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/store/file.h"
#include "runtime/store/stage.h"

static void slot_path(const struct tpck_replica *r, const char *what, unsigned slot, char *path, size_t size)
{
	snprintf(path, size, "%s/%s.%u", r->path, what, slot);
}

static const struct tpck_member *member_of(const struct tpck_manifest *manifest)
{
	return &manifest->members[0];
}

/* Whether a manifest is one of this session's, and of a shape that an image and a log can be made of. */
static int check(const struct tpck_replica *r, const struct tpck_manifest *m, struct tpck_error *err)
{
	if (m->member_count != 1 || m->point.generation != r->name.generation || member_of(m)->rank != r->name.rank ||
	    member_of(m)->ordinal != r->name.ordinal)
		return tpck_error_set(err, EBADMSG, "using a copy's manifest of another session");
	return tpck_stage_check(member_of(m), err);
}

/* ---- opening ------------------------------------------------------------------------------ */

static void forget_slot(struct tpck_replica *r, unsigned slot)
{
	char path[TPCK_PATH_MAX];

	slot_path(r, "whole", slot, path, sizeof path);
	unlink(path);
	tpck_manifest_free(r->slot[slot]);
	free(r->text[slot]);
	r->slot[slot] = NULL;
	r->text[slot] = NULL;
}

static void find_slot(struct tpck_replica *r, unsigned slot)
{
	char path[TPCK_PATH_MAX];
	struct tpck_image image = {0};
	struct tpck_cut cut;

	slot_path(r, "whole", slot, path, sizeof path);
	if (tpck_file_read(path, TPCK_PEER_TEXT_MAX, &r->text[slot], &r->text_size[slot], NULL))
		return;
	if (tpck_manifest_parse(&r->slot[slot], r->text[slot], r->text_size[slot], path, NULL) ||
	    check(r, r->slot[slot], NULL)) {
		forget_slot(r, slot);
		return;
	}
	cut = member_of(r->slot[slot])->cut;
	slot_path(r, "image", slot, path, sizeof path);
	if (tpck_image_open(&image, path, false, NULL) || tpck_image_check(&image, path, NULL) ||
	    tpck_log_check(r->path, &cut, NULL))
		forget_slot(r, slot);
	tpck_image_close(&image);
}

int tpck_replica_open(struct tpck_replica **out, const char *job_folder, const struct tpck_session_name *name,
		      struct tpck_error *err)
{
	struct tpck_replica *r = calloc(1, sizeof *r);
	char text[64], folder[80];

	if (!r)
		return tpck_error_set(err, ENOMEM, "keeping a peer's copy");
	r->name = *name;
	tpck_session_name_format(name, text, sizeof text);
	snprintf(folder, sizeof folder, TPCK_REPLICA_PREFIX "%s", text);
	if (tpck_path_join(r->path, sizeof r->path, job_folder, folder)) {
		free(r);
		return tpck_error_set(err, ENAMETOOLONG, "keeping a peer's copy in %s", job_folder);
	}
	if (mkdir(r->path, 0700) && errno != EEXIST) {
		tpck_error_set(err, errno, "making %s", r->path);
		free(r);
		return -err->code;
	}
	for (unsigned slot = 0; slot < TPCK_REPLICA_SLOTS; slot++)
		find_slot(r, slot);
	*out = r;
	return 0;
}

void tpck_replica_close(struct tpck_replica *r)
{
	if (!r)
		return;
	tpck_replica_abort(r);
	for (unsigned slot = 0; slot < TPCK_REPLICA_SLOTS; slot++) {
		tpck_manifest_free(r->slot[slot]);
		free(r->text[slot]);
	}
	free(r);
}

void tpck_replica_remove(struct tpck_replica *r)
{
	(void)tpck_folder_remove(r->path);
	tpck_replica_close(r);
}

int tpck_replica_newest(const struct tpck_replica *r)
{
	int newest = -1;

	for (int slot = 0; slot < TPCK_REPLICA_SLOTS; slot++)
		if (r->slot[slot] && (newest < 0 || r->slot[slot]->point.step > r->slot[newest]->point.step))
			newest = slot;
	return newest;
}

/* ---- what lacks --------------------------------------------------------------------------- */

uint64_t tpck_replica_needs(const struct tpck_replica *r, const struct tpck_manifest *m)
{
	const struct tpck_member *member = member_of(m);
	uint64_t bytes = 0, has = tpck_folder_memory(r->path);

	/* Both images, from the beginning: room that is there only at times is none. */
	for (size_t i = 0; i < member->object_count; i++)
		bytes += member->objects[i].kind == TPCK_OBJECT_LOG ? member->objects[i].bytes : 0;
	bytes += TPCK_REPLICA_SLOTS * tpck_image_memory(member->data_bytes);
	return bytes > has ? bytes - has : 0;
}

static int reserve(const char *path, uint64_t bytes, struct tpck_error *err)
{
	int fd = open(path, O_RDWR | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return tpck_error_set(err, errno, "opening %s", path);
	/* A store to what a full tmpfs has no memory for is SIGBUS. */
	if (bytes && (errno = posix_fallocate(fd, (off_t)TPCK_IMAGE_INDEX_AT, (off_t)bytes)))
		rc = tpck_error_set(err, errno, "reserving memory for %s", path);
	close(fd);
	return rc;
}

static int open_slot(struct tpck_replica *r, struct tpck_error *err)
{
	const struct tpck_member *member = member_of(r->coming);
	char path[TPCK_PATH_MAX];
	int rc;

	slot_path(r, "image", r->to, path, sizeof path);
	rc = tpck_image_allocate(path, r->to, member->data_bytes, err);
	if (!rc)
		rc = reserve(path, member->objects[0].bytes, err);
	if (!rc)
		rc = tpck_image_open(&r->image, path, true, err);
	if (!rc)
		r->image.header->footer = 0;
	return rc;
}

/* Segments that are not there yet, without their records. What is there of one stays: it only grows. */
static int open_logs(struct tpck_replica *r, struct tpck_error *err)
{
	const struct tpck_member *member = member_of(r->coming);

	for (size_t i = 2; i < member->object_count; i++) {
		const struct tpck_object *object = &member->objects[i];
		char path[TPCK_PATH_MAX];
		int fd;

		if (object->segment_bytes < sizeof(struct tpck_log_header) + object->bytes || object->segment_bytes > (1ull << 40))
			return tpck_error_set(err, EBADMSG, "using %s, which is larger than its segment", object->name);
		tpck_log_path(r->path, i - 2, path, sizeof path);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0 || ftruncate(fd, (off_t)object->segment_bytes)) {
			tpck_error_set(err, errno, "making log segment %s", path);
			if (fd >= 0)
				close(fd);
			return -err->code;
		}
		close(fd);
	}
	return 0;
}

static uint8_t *image_place(const struct tpck_replica *r, const struct tpck_image *image, size_t object, size_t chunk)
{
	(void)r;
	return (object == 0 ? (uint8_t *)tpck_image_rows(image) : tpck_image_data(image)) + chunk * TPCK_CHUNK_BYTES;
}

/* Whether a whole copy has these very bytes at the same place. */
static bool same_in(const struct tpck_manifest *whole, const struct tpck_object *object, size_t i)
{
	const struct tpck_chunk *old =
		whole ? tpck_object_chunk(member_of(whole)->objects, member_of(whole)->object_count, object->name, i) : NULL;

	return old && old->length == object->chunks[i].length &&
	       memcmp(old->digest, object->chunks[i].digest, sizeof old->digest) == 0;
}

/* What the slot's older copy has is there already; what the other one has is copied, and compared as if it had come. */
static int compare(struct tpck_replica *r, struct tpck_manifest *before, const struct tpck_manifest *other,
		   struct tpck_error *err)
{
	const struct tpck_member *member = member_of(r->coming);
	struct tpck_image from = {0};
	char path[TPCK_PATH_MAX];

	slot_path(r, "image", 1 - r->to, path, sizeof path);
	if (other && tpck_image_open(&from, path, false, NULL))
		other = NULL;
	r->lacking = calloc(member->object_count, sizeof *r->lacking);
	for (size_t o = 0; r->lacking && o < member->object_count; o++) {
		const struct tpck_object *object = &member->objects[o];

		r->lacking[o] = calloc(object->count ? object->count : 1, 1);
		for (size_t i = 0; r->lacking[o] && i < object->count; i++) {
			uint8_t digest[16], *to = image_place(r, &r->image, o, i);
			bool here = same_in(before, object, i);

			if (object->kind == TPCK_OBJECT_LOG) {
				here = here || same_in(other, object, i);
			} else if (!here && same_in(other, object, i)) {
				memcpy(to, image_place(r, &from, o, i), object->chunks[i].length);
				tpck_digest128(to, object->chunks[i].length, digest);
				here = memcmp(digest, object->chunks[i].digest, sizeof digest) == 0;
			}
			r->lacking[o][i] = !here;
			r->lacks += !here;
		}
	}
	tpck_image_close(&from);
	if (!r->lacking || (member->object_count && !r->lacking[member->object_count - 1]))
		return tpck_error_set(err, ENOMEM, "keeping a peer's copy");
	return 0;
}

static int list_lacking(const struct tpck_replica *r, struct tpck_peer_want **want, struct tpck_error *err)
{
	const struct tpck_member *member = member_of(r->coming);
	struct tpck_peer_want *list = calloc(r->lacks + 1, sizeof *list);
	size_t count = 0;

	if (!list)
		return tpck_error_set(err, ENOMEM, "keeping a peer's copy");
	for (size_t o = 0; o < member->object_count; o++)
		for (size_t i = 0; i < member->objects[o].count; i++)
			if (r->lacking[o][i])
				list[count++] = (struct tpck_peer_want){(uint32_t)o, (uint32_t)i};
	*want = list;
	return 0;
}

/* What is coming is no longer this one's. */
static void leave(struct tpck_replica *r)
{
	for (size_t o = 0; r->lacking && r->coming && o < member_of(r->coming)->object_count; o++)
		free(r->lacking[o]);
	free(r->lacking);
	r->lacking = NULL;
	tpck_image_close(&r->image);
	r->coming = NULL;
	r->coming_text = NULL;
}

int tpck_replica_begin(struct tpck_replica *r, struct tpck_manifest *manifest, char *text, size_t size,
		       struct tpck_peer_want **want, size_t *count, struct tpck_error *err)
{
	struct tpck_manifest *before;
	int newest = tpck_replica_newest(r), rc = check(r, manifest, err);

	if (rc)
		return rc;
	for (int slot = 0; slot < TPCK_REPLICA_SLOTS; slot++)
		if (r->slot[slot] && r->slot[slot]->point.step == manifest->point.step)
			return -EALREADY;
	if (newest >= 0 && r->slot[newest]->point.step > manifest->point.step)
		return tpck_error_set(err, ESTALE, "keeping a copy of step %" PRIu64 ", where there is a newer one",
				      manifest->point.step);
	r->to = newest < 0 ? 0 : 1 - (unsigned)newest;
	/* From here on the older copy is none. What it had is known until the end of this call only: when this attempt
	 * fails, nothing is known of that image. */
	before = r->slot[r->to];
	r->slot[r->to] = NULL;
	forget_slot(r, r->to);
	r->coming = manifest;
	r->coming_text = text;
	r->coming_size = size;
	r->lacks = 0;
	r->received = 0;
	rc = open_slot(r, err);
	if (!rc)
		rc = open_logs(r, err);
	if (!rc)
		rc = compare(r, before, newest < 0 ? NULL : r->slot[newest], err);
	if (!rc)
		rc = list_lacking(r, want, err);
	tpck_manifest_free(before);
	if (rc) {
		leave(r);
		return rc;
	}
	*count = r->lacks;
	return 0;
}

/* ---- chunks ------------------------------------------------------------------------------- */

static const struct tpck_chunk *chunk_of(const struct tpck_replica *r, uint32_t object, uint32_t chunk)
{
	const struct tpck_member *member;

	if (!r->coming)
		return NULL;
	member = member_of(r->coming);
	if (object >= member->object_count || chunk >= member->objects[object].count || !r->lacking[object][chunk])
		return NULL;
	return &member->objects[object].chunks[chunk];
}

void *tpck_replica_place(struct tpck_replica *r, uint32_t object, uint32_t chunk, size_t bytes)
{
	const struct tpck_chunk *wanted = chunk_of(r, object, chunk);

	if (!wanted || wanted->length != bytes)
		return NULL;
	return object < 2 ? image_place(r, &r->image, object, chunk) : malloc(bytes);
}

static int write_log(const struct tpck_replica *r, uint32_t object, uint32_t chunk, const uint8_t *bytes, size_t length,
		     struct tpck_error *err)
{
	uint64_t at = sizeof(struct tpck_log_header) + (uint64_t)chunk * TPCK_CHUNK_BYTES;
	char path[TPCK_PATH_MAX];
	int fd, rc = 0;

	tpck_log_path(r->path, object - 2, path, sizeof path);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return tpck_error_set(err, errno, "opening log segment %s", path);
	if (pwrite(fd, bytes, length, (off_t)at) != (ssize_t)length)
		rc = tpck_error_set(err, errno ? errno : ENOSPC, "writing log segment %s", path);
	close(fd);
	return rc;
}

int tpck_replica_take(struct tpck_replica *r, uint32_t object, uint32_t chunk, void *bytes, bool whole,
		      struct tpck_error *err)
{
	const struct tpck_chunk *wanted = chunk_of(r, object, chunk);
	uint8_t digest[16];
	int rc = 0;

	if (wanted && whole) {
		tpck_digest128(bytes, wanted->length, digest);
		if (memcmp(digest, wanted->digest, sizeof digest) != 0)
			rc = tpck_error_set(err, EBADMSG, "chunk %u of %s is not what its digest says", chunk,
					    member_of(r->coming)->objects[object].name);
		else if (object >= 2)
			rc = write_log(r, object, chunk, bytes, wanted->length, err);
		if (!rc) {
			r->lacking[object][chunk] = 0;
			r->lacks--;
			r->received += wanted->length;
		}
	}
	if (object >= 2)
		free(bytes);
	return rc;
}

/* ---- the end ------------------------------------------------------------------------------ */

/* Headers last: what is said there is there. */
static int seal_logs(const struct tpck_replica *r, struct tpck_error *err)
{
	const struct tpck_member *member = member_of(r->coming);

	for (size_t i = 2; i < member->object_count; i++) {
		const struct tpck_object *object = &member->objects[i];
		struct tpck_log_header header = {
			.magic = TPCK_LOG_MAGIC, .version = member->image_version, .sealed = i + 1 < member->object_count,
			.generation = object->segment_generation, .sequence = i - 2, .bytes = object->segment_bytes,
			.used = sizeof header + object->bytes,
		};
		char path[TPCK_PATH_MAX];
		ssize_t wrote = -1;
		int fd;

		tpck_log_path(r->path, i - 2, path, sizeof path);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd >= 0) {
			wrote = pwrite(fd, &header, sizeof header, 0);
			close(fd);
		}
		if (wrote != sizeof header)
			return tpck_error_set(err, errno ? errno : ENOSPC, "writing log segment %s", path);
	}
	return 0;
}

int tpck_replica_finish(struct tpck_replica *r, struct tpck_error *err)
{
	char path[TPCK_PATH_MAX];
	struct tpck_cut cut;
	int rc;

	if (!r->coming || r->lacks)
		return tpck_error_set(err, EINVAL, "finishing a copy that is not whole");
	cut = member_of(r->coming)->cut;
	rc = seal_logs(r, err);
	if (!rc)
		rc = tpck_log_check(r->path, &cut, err);
	if (!rc) {
		slot_path(r, "image", r->to, path, sizeof path);
		tpck_stage_header(&r->image, r->coming, member_of(r->coming));
		rc = tpck_image_check(&r->image, path, err);
	}
	slot_path(r, "whole", r->to, path, sizeof path);
	if (!rc)
		rc = tpck_file_write(path, r->coming_text, r->coming_size, 0, err);
	if (rc) {
		tpck_replica_abort(r);
		return rc;
	}
	r->slot[r->to] = r->coming;
	r->text[r->to] = r->coming_text;
	r->text_size[r->to] = r->coming_size;
	leave(r);
	return 0;
}

void tpck_replica_abort(struct tpck_replica *r)
{
	struct tpck_manifest *manifest = r->coming;
	char *text = r->coming_text;

	leave(r);
	tpck_manifest_free(manifest);
	free(text);
}
