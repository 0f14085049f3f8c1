/* SPDX-License-Identifier: Apache-2.0 */
/* Staging an offer in a session folder. */
#include "config.h"

#include "runtime/store/stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/huge.h"
#include "runtime/base/log.h"
#include "runtime/store/container.h"
#include "runtime/store/file.h"
#include "runtime/store/packing.h"
#include "runtime/store/parallel.h"
#include "runtime/store/tried.h"
#include "runtime/store/verify.h"
#include "runtime/store/writer.h"
#include "runtime/wire/pack.h"


void tpck_stage_clear(const char *to_session)
{
	DIR *folder = opendir(to_session);
	struct dirent *entry;

	if (!folder)
		return;
	while ((entry = readdir(folder)))
		if (strcmp(entry->d_name, TPCK_RESUME_IMAGE) == 0 || strncmp(entry->d_name, "log.", 4) == 0 ||
		    strncmp(entry->d_name, TPCK_PACK_PREFIX, sizeof TPCK_PACK_PREFIX - 1) == 0 ||
		    strncmp(entry->d_name, TPCK_LOG_BEHIND, sizeof TPCK_LOG_BEHIND - 1) == 0)
			unlinkat(dirfd(folder), entry->d_name, 0);
	closedir(folder);
}

/* ---- from memory -------------------------------------------------------------------------- */

static int copy_bytes(int from, int to, uint64_t bytes)
{
	static const size_t PIECE = 1 << 20;
	char *buffer = malloc(PIECE);
	uint64_t at = 0;
	int rc = buffer ? 0 : -ENOMEM;

	while (!rc && at < bytes) {
		size_t length = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
		ssize_t got = pread(from, buffer, length, (off_t)at);

		if (got <= 0)
			rc = got ? -errno : -EBADMSG;
		else if (pwrite(to, buffer, (size_t)got, (off_t)at) != got)
			rc = errno ? -errno : -EIO;
		else
			at += (uint64_t)got;
	}
	free(buffer);
	return rc;
}

/* The new process appends to this one, so it is no link; the first run's records behind the cut
 * are not its own. */
static int copy_cut_segment(const char *from, const char *to, uint64_t offset, struct tpck_error *err)
{
	struct tpck_log_header header;
	int in = open(from, O_RDONLY | O_CLOEXEC), out = -1, rc = 0;

	if (in < 0 || pread(in, &header, sizeof header, 0) != sizeof header)
		rc = tpck_error_set(err, in < 0 ? errno : EBADMSG, "reading log segment %s", from);
	if (!rc) {
		out = open(to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (out < 0)
			rc = tpck_error_set(err, errno, "making log segment %s", to);
	}
	/* The whole file is allocated: the new process stores into it through a mapping. */
	if (!rc && (errno = posix_fallocate(out, 0, (off_t)header.bytes)))
		rc = tpck_error_set(err, errno, "making log segment %s", to);
	if (!rc) {
		int code = copy_bytes(in, out, offset);

		header.used = offset;
		header.sealed = 0;
		if (!code && pwrite(out, &header, sizeof header, 0) != sizeof header)
			code = -EIO;
		if (code)
			rc = tpck_error_set(err, -code, "copying log segment %s to %s", from, to);
	}
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
	return rc;
}

/* All of a session's files whose names begin so, into another session, with `instead` in place of that. `lacking`: whether it is an error that the other session is
 * not there. */
static void link_all(const char *from_session, const char *beginning, const char *to_session, const char *instead, bool lacking, const char *what)
{
	char from[TPCK_PATH_MAX], to[TPCK_PATH_MAX];
	DIR *folder = opendir(from_session);
	const struct dirent *entry;

	while (folder && (entry = readdir(folder))) {
		if (strncmp(entry->d_name, beginning, strlen(beginning)) != 0)
			continue;
		if (snprintf(from, sizeof from, "%s/%s", from_session, entry->d_name) >= (int)sizeof from ||
		    snprintf(to, sizeof to, "%s/%s%s", to_session, instead, entry->d_name + strlen(beginning)) >= (int)sizeof to)
			errno = ENAMETOOLONG;
		else if (!link(from, to) || errno == EEXIST || (errno == ENOENT && !lacking))
			continue;
		tpck_log_warn("%s: linking %s: %m", what, entry->d_name);
	}
	if (folder)
		closedir(folder);
}

void tpck_stage_hand_back(const char *session, uint64_t generation, const struct tpck_cut *cut, const char *to_session)
{
	char name[40], path[TPCK_PATH_MAX], what[80];
	struct tpck_error err = {0};
	int rc;

	/* Where nobody can go on from that session any more, it is not there. */
	snprintf(name, sizeof name, TPCK_WRITTEN TPCK_GENERATION "%" PRIu64, generation);
	snprintf(what, sizeof what, "what processes of generation %" PRIu64 " wrote to files may be there twice", generation);
	link_all(session, TPCK_WRITTEN, to_session, name, false, what);
	snprintf(name, sizeof name, TPCK_TRIED TPCK_GENERATION "%" PRIu64, generation);
	rc = tpck_path_join(path, sizeof path, to_session, name) ? -ENAMETOOLONG : tpck_tried_write(session, cut, generation, path, &err);
	if (rc && rc != -ENOENT)
		tpck_log_warn("what generation %" PRIu64 " started, and said to others, is done again without a line: %s", generation, err.text[0] ? err.text : strerror(-rc));
}

/* What the log has from the cut on is no part of what is resumed: it tells the program what will be done again. */
void tpck_stage_behind(const char *from_session, const struct tpck_cut *cut, const char *to_session)
{
	enum { MOST = 64 };
	static const struct {
		const char *name, *did;
	} mails[] = {{TPCK_SAID, "said to others"}, {TPCK_STARTED, "started"}};
	char from[TPCK_PATH_MAX], to[TPCK_PATH_MAX];

	for (uint64_t sequence = cut->sequence; sequence < cut->sequence + MOST; sequence++) {
		struct tpck_log_header header;

		snprintf(to, sizeof to, "%s/" TPCK_LOG_BEHIND "%06" PRIu64, to_session, sequence);
		if (!tpck_segment_find(from_session, sequence, from, sizeof from, &header))
			break;
		/* Of a snapshot that is older than the newest, which is damaged, or which another rank does not have. */
		if (header.sealed == TPCK_LOG_PACKED ? tpck_pack_check(from, sequence, to, NULL) : link(from, to))
			break;
	}
	for (size_t i = 0; i < sizeof mails / sizeof *mails; i++) {
		snprintf(from, sizeof from, "%s/%s", from_session, mails[i].name);
		snprintf(to, sizeof to, "%s/" TPCK_LOG_BEHIND "%s", to_session, mails[i].name);
		/* Where there were no children there is no such file. */
		if (link(from, to) && errno != ENOENT)
			tpck_log_warn("what forked children %s just before the end is not known to the start that goes on: linking %s: %m", mails[i].did, to);
	}
	/* A session that went no further than to its beginning has none. */
	link_all(from_session, TPCK_WRITTEN, to_session, TPCK_WRITTEN_BEHIND, true, "what processes wrote to files that are started again cannot be taken back");
	link_all(from_session, TPCK_TRIED, to_session, TPCK_TRIED_BEHIND, true, "what starts did that left no snapshot is done again without a line");
}

/* One that the process will only read. What it could not unpack is found out here, where there may be another way to go on. */
static int link_segment(const char *from_session, uint64_t sequence, const char *to_session, struct tpck_error *err)
{
	char from[TPCK_PATH_MAX], to[TPCK_PATH_MAX];
	struct tpck_log_header header;
	int rc = 0;

	if (!tpck_segment_find(from_session, sequence, from, sizeof from, &header))
		return tpck_error_set(err, ENOENT, "opening log segment %s", from);
	if (header.sealed == TPCK_LOG_PACKED) {
		tpck_pack_path(to_session, sequence, to, sizeof to);
		rc = tpck_pack_check(from, sequence, NULL, err);
	} else {
		tpck_log_path(to_session, sequence, to, sizeof to);
	}
	return rc ? rc : link(from, to) ? tpck_error_set(err, errno, "linking %s to %s", from, to) : 0;
}

int tpck_stage_memory(const char *from_session, const char *image_path, const struct tpck_cut *cut,
		      const char *to_session, struct tpck_error *err)
{
	char from[TPCK_PATH_MAX], to[TPCK_PATH_MAX];
	int rc = 0;

	tpck_stage_clear(to_session);
	snprintf(to, sizeof to, "%s/" TPCK_RESUME_IMAGE, to_session);
	if (link(image_path, to))
		return tpck_error_set(err, errno, "linking %s to %s", image_path, to);
	for (uint64_t sequence = 0; !rc && sequence <= cut->sequence; sequence++) {
		if (sequence == cut->sequence) {
			tpck_log_path(from_session, sequence, from, sizeof from);
			tpck_log_path(to_session, sequence, to, sizeof to);
			rc = copy_cut_segment(from, to, cut->offset, err);
		} else {
			rc = link_segment(from_session, sequence, to_session, err);
		}
	}
	if (!rc)
		tpck_stage_behind(from_session, cut, to_session);
	return rc;
}

/* ---- from the store ----------------------------------------------------------------------- */

static int map_new(const char *path, uint64_t size, uint8_t **base, struct tpck_error *err)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	void *mapped;

	if (fd < 0)
		return tpck_error_set(err, errno, "making %s", path);
	if (ftruncate(fd, (off_t)size)) {
		close(fd);
		return tpck_error_set(err, errno, "making %s", path);
	}
	mapped = tpck_huge_map(fd, size, PROT_READ | PROT_WRITE);
	close(fd);
	if (mapped == MAP_FAILED)
		return tpck_error_set(err, errno, "mapping %s", path);
	*base = mapped;
	return 0;
}

/* Memory for a range must be there before it is stored to: a full tmpfs answers a store by SIGBUS. */
static int reserve(const char *path, void *base, uint64_t at, uint64_t bytes, struct tpck_error *err)
{
	int fd = open(path, O_RDWR | O_CLOEXEC), rc;

	if (fd < 0)
		return tpck_error_set(err, errno, "opening %s", path);
	rc = tpck_huge_reserve(fd, base, at, bytes);
	if (rc)
		tpck_error_set(err, -rc, "reserving %" PRIu64 " bytes of memory for %s", bytes, path);
	close(fd);
	return rc;
}

struct loading {
	struct tpck_tier *tier;
	const struct tpck_manifest *manifest;
	const struct tpck_object *object;
	uint8_t *to;
	const char *path;     /* NULL: the memory is there already; else it is got for each chunk, beside the others' reading */
	uint64_t at;
};

/* Through a buffer: chunks of logs lie behind a header, unaligned. */
static int load_chunk(void *context, size_t i, uint8_t *buffer, struct tpck_error *err)
{
	const struct loading *loading = context;
	int rc = tpck_verify_chunk(loading->tier, loading->manifest, loading->object, i, buffer, err);

	if (!rc)
		memcpy(loading->to + (uint64_t)i * TPCK_CHUNK_BYTES, buffer, loading->object->chunks[i].length);
	return rc;
}

/* Of what is aligned each chunk has memory for all of itself, and is read right to its place. */
static int load_whole_chunk(void *context, size_t i, uint8_t *buffer, struct tpck_error *err)
{
	const struct loading *loading = context;
	uint64_t from = (uint64_t)i * TPCK_CHUNK_BYTES, length = loading->object->chunks[i].length;
	int rc = reserve(loading->path, loading->to - loading->at, loading->at + from, TPCK_CHUNK_BYTES, err);

	(void)buffer;
	if (!rc)
		rc = tpck_verify_chunk(loading->tier, loading->manifest, loading->object, i, loading->to + from, err);
	/* Blocks are read whole. */
	if (!rc)
		memset(loading->to + from + length, 0, (TPCK_WRITER_ALIGN - length % TPCK_WRITER_ALIGN) % TPCK_WRITER_ALIGN);
	return rc;
}

static int load_object(struct tpck_tier *tier, const struct tpck_manifest *manifest,
		       const struct tpck_object *object, uint8_t *to, struct tpck_error *err)
{
	struct loading loading = {tier, manifest, object, to, NULL, 0};

	return tpck_parallel(object->count, load_chunk, &loading, err);
}

static bool is_pack(const struct tpck_object *object)
{
	return strncmp(object->name, TPCK_PACK_PREFIX, sizeof TPCK_PACK_PREFIX - 1) == 0;
}

static void segment_header(struct tpck_log_header *header, const struct tpck_member *member, const struct tpck_object *object, uint64_t sequence)
{
	*header = (struct tpck_log_header){
		.magic = TPCK_LOG_MAGIC, .version = member->image_version, .generation = object->segment_generation, .sequence = sequence,
		.bytes = object->segment_bytes, .used = sizeof *header + object->bytes,
		.sealed = is_pack(object) ? TPCK_LOG_PACKED : sequence != member->cut.sequence ? TPCK_LOG_SEALED : TPCK_LOG_OPEN,
	};
}

/* The last segment is written to: it is none that is packed. Of others the process unpacks what it reads. */
static int load_pack(struct tpck_tier *tier, const struct tpck_manifest *manifest, const struct tpck_member *member,
		     const struct tpck_object *object, uint64_t sequence, const char *to_session, struct tpck_error *err)
{
	uint64_t size = sizeof(struct tpck_log_header) + object->bytes, end = 0;
	bool last = sequence == member->cut.sequence;
	char path[TPCK_PATH_MAX];
	uint8_t *pack, *base = NULL;
	int rc;

	if (object->count > 1)
		return tpck_error_set(err, EBADMSG, "%s of the manifest is larger than any", object->name);
	pack = malloc(size);
	if (!pack)
		return tpck_error_set(err, ENOMEM, "loading %s", object->name);
	segment_header((struct tpck_log_header *)pack, member, object, sequence);
	rc = load_object(tier, manifest, object, pack + sizeof(struct tpck_log_header), err);
	if (!rc && !last) {
		tpck_pack_path(to_session, sequence, path, sizeof path);
		rc = tpck_file_write(path, pack, size, 0, err);
	} else if (!rc) {
		rc = tpck_pack_learn(pack, size, sequence, &end);
		if (rc || end != member->cut.offset)
			rc = tpck_error_set(err, rc ? -rc : EBADMSG, "unpacking %s of step %" PRIu64, object->name, manifest->point.step);
		tpck_log_path(to_session, sequence, path, sizeof path);
		if (!rc)
			rc = map_new(path, object->segment_bytes, &base, err);
		if (!rc)
			rc = reserve(path, base, 0, object->segment_bytes, err);
		if (!rc && (rc = tpck_pack_read(pack, size, sequence, base, end)))
			rc = tpck_error_set(err, -rc, "unpacking %s of step %" PRIu64, object->name, manifest->point.step);
		if (!rc)
			((struct tpck_log_header *)base)->sealed = TPCK_LOG_OPEN;
		if (base)
			munmap(base, object->segment_bytes);
	}
	free(pack);
	return rc;
}

static int load_log(struct tpck_tier *tier, const struct tpck_manifest *manifest,
		    const struct tpck_member *member, const struct tpck_object *object, const char *to_session,
		    struct tpck_error *err)
{
	uint64_t sequence = (uint64_t)(object - member->objects) - 2;
	uint64_t end = sizeof(struct tpck_log_header) + object->bytes;
	char path[TPCK_PATH_MAX];
	uint8_t *base = NULL;
	int rc;

	if (object->segment_bytes < end || object->segment_bytes > (1ull << 40))
		return tpck_error_set(err, EBADMSG, "%s of the manifest is larger than its segment", object->name);
	if (is_pack(object))
		return load_pack(tier, manifest, member, object, sequence, to_session, err);
	tpck_log_path(to_session, sequence, path, sizeof path);
	rc = map_new(path, object->segment_bytes, &base, err);
	if (!rc)
		rc = reserve(path, base, 0, sequence == member->cut.sequence ? object->segment_bytes : end, err);
	if (!rc)
		rc = load_object(tier, manifest, object, base + sizeof(struct tpck_log_header), err);
	if (!rc)
		segment_header((struct tpck_log_header *)base, member, object, sequence);
	if (base)
		munmap(base, object->segment_bytes);
	return rc;
}

static void fill_header(struct tpck_image *image, const struct tpck_manifest *manifest,
			const struct tpck_member *member, const struct tpck_object *data)
{
	struct tpck_image_header *h = image->header;

	h->magic = TPCK_IMAGE_MAGIC;
	h->version = member->image_version;
	h->generation = manifest->point.generation;
	h->step = manifest->point.step;
	h->data_bytes = member->data_bytes;
	h->chunks = (uint32_t)data->count;
	h->rows = (uint32_t)member->rows;
	h->tensors = (uint32_t)member->tensors;
	h->optimizers = (uint32_t)member->optimizers;
	h->communicators = (uint32_t)member->communicators;
	h->peers = (uint32_t)member->peers;
	h->log_sequence = member->cut.sequence;
	h->log_offset = member->cut.offset;
	h->resumable = member->resumable;
	snprintf(h->reason, sizeof h->reason, "%.127s", member->reason);
	for (uint32_t i = 0; i < h->chunks; i++) {
		struct tpck_image_chunk *chunk = &tpck_image_chunks(image)[i];

		chunk->bytes = data->chunks[i].length;
		memcpy(chunk->digest, data->chunks[i].digest, sizeof chunk->digest);
		atomic_store(&chunk->ready, 1);
		atomic_store(&chunk->hashed, 1);
	}
	h->footer = tpck_image_footer(h);
	atomic_store(&h->state, TPCK_IMAGE_COMMITTED);
}

static int load_image(struct tpck_tier *tier, const struct tpck_manifest *manifest,
		      const struct tpck_member *member, const char *to_session, struct tpck_error *err)
{
	const struct tpck_object *index = &member->objects[0], *data = &member->objects[1];
	uint64_t table = sizeof(struct tpck_image_chunk) * (data->count ? data->count : 1);
	uint64_t size = TPCK_IMAGE_DATA_AT + (data->count ? data->count : 1) * TPCK_CHUNK_BYTES;
	char path[TPCK_PATH_MAX];
	struct tpck_image image = {NULL, size};
	uint8_t *base = NULL;
	int rc;

	snprintf(path, sizeof path, "%s/" TPCK_RESUME_IMAGE, to_session);
	rc = map_new(path, size, &base, err);
	if (!rc)
		rc = reserve(path, base, 0, sizeof *image.header, err);
	if (!rc)
		rc = reserve(path, base, TPCK_IMAGE_CHUNKS_AT, table, err);
	if (!rc)
		rc = reserve(path, base, TPCK_IMAGE_INDEX_AT, index->bytes, err);
	if (!rc)
		rc = load_object(tier, manifest, index, base + TPCK_IMAGE_INDEX_AT, err);
	if (!rc)
		rc = tpck_parallel(data->count, load_whole_chunk,
				   &(struct loading){tier, manifest, data, base + TPCK_IMAGE_DATA_AT, path, TPCK_IMAGE_DATA_AT}, err);
	if (!rc) {
		image.header = (struct tpck_image_header *)base;
		fill_header(&image, manifest, member, data);
		rc = tpck_image_check(&image, path, err);
	}
	if (base)
		munmap(base, size);
	return rc;
}

/* The shape that this program writes: index, data, then the log's segments from 0 to the cut. */
static int check_shape(const struct tpck_member *member, struct tpck_error *err)
{
	const struct tpck_object *o = member->objects;

	if (member->image_version != TPCK_WIRE_VERSION)
		return tpck_error_set(err, EPROTO, "checkpoint has image version %u, this is %d",
				      member->image_version, TPCK_WIRE_VERSION);
	if (member->object_count < 3 || member->object_count - 3 != member->cut.sequence ||
	    o[0].kind != TPCK_OBJECT_INDEX || o[1].kind != TPCK_OBJECT_IMAGE || o[1].bytes != member->data_bytes ||
	    !tpck_member_index_fits(member) ||
	    o[0].bytes != tpck_member_index_bytes(member) ||
	    o[1].count > (TPCK_IMAGE_INDEX_AT - TPCK_IMAGE_CHUNKS_AT) / sizeof(struct tpck_image_chunk))
		return tpck_error_set(err, EBADMSG, "manifest does not describe an image and its log");
	for (size_t i = 2; i < member->object_count; i++) {
		char name[64];

		snprintf(name, sizeof name, "%s%06zu", is_pack(&o[i]) ? TPCK_PACK_PREFIX : "log.", i - 2);
		if (o[i].kind != TPCK_OBJECT_LOG || strcmp(o[i].name, name) != 0)
			return tpck_error_set(err, EBADMSG, "manifest does not describe an image and its log");
	}
	if (!is_pack(&o[member->object_count - 1]) && o[member->object_count - 1].bytes + sizeof(struct tpck_log_header) != member->cut.offset)
		return tpck_error_set(err, EBADMSG, "manifest's log does not end at its cut");
	return 0;
}

int tpck_stage_durable(struct tpck_tier *tier, const struct tpck_manifest *manifest,
		       const struct tpck_member *member, const char *to_session, struct tpck_error *err)
{
	int rc = check_shape(member, err);

	if (rc)
		return rc;
	tpck_stage_clear(to_session);
	rc = tpck_verify_member(tier, manifest, member, err);
	if (!rc)
		rc = load_image(tier, manifest, member, to_session, err);
	for (size_t i = 2; !rc && i < member->object_count; i++)
		rc = load_log(tier, manifest, member, &member->objects[i], to_session, err);
	return rc;
}

int tpck_stage_check(const struct tpck_member *member, struct tpck_error *err)
{
	return check_shape(member, err);
}

void tpck_stage_header(struct tpck_image *image, const struct tpck_manifest *manifest, const struct tpck_member *member)
{
	fill_header(image, manifest, member, &member->objects[1]);
}
