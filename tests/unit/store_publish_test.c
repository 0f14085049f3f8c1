/* SPDX-License-Identifier: Apache-2.0 */
/* Publishing and staging: byte for byte, references, retention along their closure, changed images. store_objects_test is the same in a tier that is no folder. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/store/file.h"
#include "runtime/store/program.h"
#include "runtime/store/publish.h"
#include "runtime/store/retention.h"
#include "runtime/store/stage.h"
#include "runtime/store/sums.h"
#include "runtime/store/verify.h"
#include "runtime/wire/segment.h"
#include "tests/unit/object_tier.h"
#include "tests/unit/shm_room.h"
#include "tests/unit/store_tap.h"

#ifndef OBJECTS
#define OBJECTS 0
#endif

enum { CHUNKS = 4, BYTES = 3 * TPCK_CHUNK_BYTES + 5000, LOG_BYTES = 1 << 20 };
static struct tpck_error err;
static char *memory, *disk;
static struct tpck_session *session;
static struct tpck_image image;
static char image_path[512];
static struct tpck_tier *tier;
static struct tpck_manifest *base;

/* Which chunks differ from step to step: bit i of `changes`. */
static void fill(uint64_t step, unsigned changes)
{
	struct tpck_image_header *h = image.header;
	char path[512];
	struct tpck_log_header log = {.magic = TPCK_LOG_MAGIC, .version = TPCK_WIRE_VERSION, .generation = 1, .bytes = LOG_BYTES};
	int fd;

	for (unsigned i = 0; i < CHUNKS; i++) {
		if (changes & (1u << i))
			memset(tpck_image_data(&image) + (size_t)i * TPCK_CHUNK_BYTES, (int)(step * 7 + i),
			       i == 3 ? 5000 : TPCK_CHUNK_BYTES);
		tpck_image_chunks(&image)[i].ready = 1;
		tpck_image_chunks(&image)[i].hashed = 0;
	}
	h->generation = 1;
	h->step = step;
	h->data_bytes = BYTES;
	h->chunks = CHUNKS;
	h->rows = 1;
	h->tensors = 2;
	h->optimizers = 1;
	h->communicators = 2;
	h->peers = 1;
	tpck_image_rows(&image)[0] = (struct tpck_image_row){.bytes = BYTES};
	tpck_image_tensors(&image)[0] = (struct tpck_image_tensor){.address = 64, .elements = 4, .role = TPCK_TENSOR_PARAMETER};
	tpck_image_tensors(&image)[1] = (struct tpck_image_tensor){.address = 128, .elements = 9, .position = (uint32_t)step};
	tpck_image_optimizers(&image)[0] = (struct tpck_image_optimizer){.family = "adam", .scalar = {[TPCK_SCALAR_LR] = 0.5}};
	tpck_image_communicators(&image)[0] = (struct tpck_image_communicator){
		.id = 0xfedcba9876543210, .size = 3, .rank = 2, .device = -1, .collectives = step, .order = UINT64_MAX - step};
	tpck_image_communicators(&image)[1] = (struct tpck_image_communicator){.id = 5, .index = 4, .size = 2, .rank = 1};
	tpck_image_peers(&image)[0] = (struct tpck_image_peer){1, 0, step, 3};
	h->log_sequence = 0;
	h->log_offset = sizeof log + 100 * step;
	h->resumable = 1;
	h->footer = tpck_image_footer(h);
	h->state = TPCK_IMAGE_COMMITTED;
	snprintf(path, sizeof path, "%s/log.000000", session->path);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	log.used = h->log_offset + 50;
	if (ftruncate(fd, LOG_BYTES) || pwrite(fd, &log, sizeof log, 0) != sizeof log)
		abort();
	for (uint64_t i = 0; i < log.used - sizeof log; i++) {
		char byte = (char)(i * 7);

		if (pwrite(fd, &byte, 1, (off_t)(sizeof log + i)) != 1)
			abort();
	}
	close(fd);
}

static bool refuse(void *context, const struct tpck_point *point)
{
	(void)context;
	(void)point;
	return false;
}

static int publish(bool permitted, struct tpck_manifest **out)
{
	struct tpck_share share = {
		.session_path = session->path, .image_path = image_path, .image = image, .identity = session->identity,
	};
	struct tpck_publication p = {
		.tier = tier, .shares = &share, .share_count = 1, .world = 1, .base = base,
		.permitted = permitted ? NULL : refuse,
	};

	return tpck_publish(&p, out, &err);
}

static int publish_step(uint64_t step, unsigned changes)
{
	struct tpck_manifest *manifest = NULL;
	int rc;

	fill(step, changes);
	rc = publish(true, &manifest);
	if (!rc) {
		tpck_manifest_free(base);
		base = manifest;
	}
	return rc;
}

static bool exists(const char *name)
{
	char path[512];

	if (OBJECTS)
		return object_tier_has(tier, name);
	snprintf(path, sizeof path, "%s/j/%s", disk, name);
	return access(path, F_OK) == 0;
}

static void check_stage(uint64_t step)
{
	struct tpck_point point = {1, step};
	struct tpck_session_name name = {step + 100, 0, 0};
	struct tpck_manifest *manifest = NULL;
	struct tpck_session *to = NULL;
	struct tpck_image loaded = {0};
	char path[512], *log = NULL;
	size_t size = 0;
	bool good = true;

	ok(tpck_session_create(&to, memory, &name, "x\n", &err) == 0, "a session to stage in");
	ok(tpck_manifest_load(&manifest, tier, &point, &err) == 0, "manifest loads");
	ok(manifest->members[0].communicators == 2 && manifest->members[0].peers == 1 &&
		   memcmp(manifest->members[0].communicator, tpck_image_communicators(&image), 2 * sizeof(struct tpck_image_communicator)) == 0,
	   "its text has the communicators");
	ok(tpck_stage_durable(tier, manifest, &manifest->members[0], to->path, &err) == 0, "staged from the store");
	snprintf(path, sizeof path, "%s/resume.image", to->path);
	ok(tpck_image_open(&loaded, path, false, &err) == 0 && tpck_image_check(&loaded, path, &err) == 0 &&
		   tpck_image_check_chunks(&loaded, path, false, &err) == 0,
	   "the image is whole");
	ok(memcmp(tpck_image_data(&loaded), tpck_image_data(&image), BYTES) == 0 &&
		   loaded.header->rows == 1 && loaded.header->tensors == 2 && loaded.header->optimizers == 1 &&
		   memcmp(tpck_image_rows(&loaded), tpck_image_rows(&image), tpck_image_index_bytes(image.header)) == 0,
	   "byte for byte");
	snprintf(path, sizeof path, "%s/log.000000", to->path);
	if (tpck_file_read(path, 1 << 30, &log, &size, &err) == 0) {
		const struct tpck_log_header *h = (void *)log;

		good = size == LOG_BYTES && h->used == image.header->log_offset && !h->sealed && h->bytes == LOG_BYTES;
		for (uint64_t i = 0; i < h->used - sizeof *h; i++)
			good = good && log[sizeof *h + i] == (char)(i * 7);
		for (uint64_t i = h->used; i < size; i++)
			good = good && !log[i];
	}
	ok(log && good, "the log ends at the cut");
	free(log);
	tpck_image_close(&loaded);
	tpck_manifest_free(manifest);
	tpck_session_remove(to->path);
	tpck_session_close(to);
}

static void check_memory_stage(void)
{
	struct tpck_session_name name = {200, 0, 0};
	struct tpck_cut cut = {0, image.header->log_offset};
	struct tpck_session *to = NULL;
	struct stat a, b;
	char path[512];

	tpck_session_create(&to, memory, &name, "x\n", &err);
	ok(tpck_stage_memory(session->path, image_path, &cut, to->path, &err) == 0, "staged from memory");
	snprintf(path, sizeof path, "%s/resume.image", to->path);
	ok(stat(path, &a) == 0 && stat(image_path, &b) == 0 && a.st_ino == b.st_ino, "the image is a link");
	snprintf(path, sizeof path, "%s/log.000000", to->path);
	ok(tpck_log_check(to->path, &cut, &err) == 0 && stat(path, &a) == 0 && a.st_nlink == 1,
	   "the segment of the cut is a copy");
	tpck_session_remove(to->path);
	tpck_session_close(to);
}

static void check_retention(void)
{
	struct tpck_retention rules = {.keep = 1, .milestone = 20};
	struct tpck_catalog catalog;
	struct tpck_point point = {1, 15};
	size_t unreadable;

	/* 10 wrote all; 15 and 20 changed chunk 0, 25 chunk 0 and 1. */
	publish_step(15, 1);
	publish_step(20, 1);
	publish_step(25, 3);
	ok(tpck_retention_remove(tier, &point, false, &err) == 0 && !exists("step-000000000015.g1"), "rm of one in between");
	point.step = 25;
	ok(tpck_retention_remove(tier, &point, false, &err) == -EPERM, "not of the newest");
	ok(tpck_retention_apply(tier, &rules, &err) == 0, "retention");
	ok(tpck_catalog_load(&catalog, tier, &unreadable, NULL, NULL, &err) == 0 && catalog.count == 2 &&
		   catalog.manifests[0]->point.step == 20 && catalog.manifests[1]->point.step == 25,
	   "the milestone and the newest stay");
	ok(exists("step-000000000010.g1/data.0") && !exists("step-000000000010.g1/MANIFEST"),
	   "and the container that they refer to");
	ok(tpck_verify(tier, catalog.manifests[0], &err) == 0 && tpck_verify(tier, catalog.manifests[1], &err) == 0,
	   "both verify");
	tpck_catalog_free(&catalog);
	/* All data rewritten: the index alone does not keep the first container alive. */
	publish_step(26, 15);
	publish_step(27, 1);
	rules.milestone = 0;
	ok(tpck_retention_apply(tier, &rules, &err) == 0 && !exists("step-000000000010.g1") &&
		   !exists("step-000000000020.g1") && !exists("step-000000000026.g1/MANIFEST") &&
		   exists("step-000000000026.g1/data.0") && exists("step-000000000027.g1/MANIFEST"),
	   "what nothing refers to goes");
}

static void check_refusals(void)
{
	struct tpck_manifest *manifest = NULL;

	fill(30, 1);
	ok(publish(false, &manifest) == -ECANCELED && !exists("step-000000000030.g1"),
	   "a fenced timeline is not published and leaves nothing");
	fill(31, 1);
	memset(tpck_image_chunks(&image)[2].digest, 1, 16);
	tpck_image_chunks(&image)[2].hashed = 1;
	ok(publish(true, &manifest) == -EBADMSG && strstr(err.text, "chunk 2") && !exists("step-000000000031.g1"),
	   "nor an image that is not what was hashed");
	fill(32, 1);
	image.header->step = 33;
	ok(publish(true, &manifest) == -EBADMSG && strstr(err.text, "footer"), "nor one whose footer does not match");
	fill(34, 1);
	image.header->log_offset = sizeof(struct tpck_log_header) + 100000;
	image.header->footer = tpck_image_footer(image.header);
	ok(publish(true, &manifest) == -EBADMSG && strstr(err.text, "log"), "nor one whose log is not whole");
	fill(35, 1);
	image.header->state = TPCK_IMAGE_FILLING;
	ok(publish(true, &manifest) == -EBADMSG && !exists("step-000000000035.g1"), "nor one that is being filled");
	fill(36, 1);
	tpck_image_tensors(&image)[1].row = 1;
	ok(publish(true, &manifest) == -EBADMSG && strstr(err.text, "tensor 1") && !exists("step-000000000036.g1"),
	   "nor one with a tensor in a block that is not there");
	fill(37, 1);
	tpck_image_peers(&image)[0].peer = 2;
	ok(publish(true, &manifest) == -EBADMSG && strstr(err.text, "peer 0") && !exists("step-000000000037.g1"),
	   "nor one with a peer that its communicator does not have");
	fill(27, 1);
	ok(publish(true, &manifest) == -EEXIST, "a step that is there is not written again");
	ok(exists("step-000000000027.g1/MANIFEST"), "and stays");
}

/* Ranks whose bytes are equal, as replicas' are, have them once in the store, and each gets its own back. */
static void check_ranks(void)
{
	struct tpck_session_name name = {1, 1, 0}, staged = {300, 1, 0};
	struct tpck_session *other = NULL, *to = NULL;
	struct tpck_manifest *manifest = NULL;
	struct tpck_share shares[2];
	struct tpck_publication p = {.tier = tier, .shares = shares, .share_count = 2, .world = 2};
	struct tpck_image twin = {0}, loaded = {0};
	char twin_path[512], path[512], from[512];

	fill(40, 15);
	ok(tpck_session_create(&other, memory, &name, "executable b\n", &err) == 0, "another rank's session");
	snprintf(twin_path, sizeof twin_path, "%s/image.0", other->path);
	ok(tpck_image_allocate(twin_path, 0, BYTES, &err) == 0 && tpck_image_open(&twin, twin_path, true, &err) == 0, "its image");
	memcpy(twin.header, image.header, TPCK_IMAGE_DATA_AT + BYTES);
	tpck_image_data(&twin)[TPCK_CHUNK_BYTES + 9] ^= 1;
	snprintf(from, sizeof from, "%s/log.000000", session->path);
	snprintf(path, sizeof path, "%s/log.000000", other->path);
	ok(link(from, path) == 0, "its log");
	shares[0] = (struct tpck_share){.session_path = session->path, .image_path = image_path, .image = image, .identity = session->identity};
	shares[1] = (struct tpck_share){.session_path = other->path, .image_path = twin_path, .image = twin, .identity = other->identity, .rank = 1};
	ok(tpck_publish(&p, &manifest, &err) == 0 && manifest->member_count == 2 && manifest->container_count == 1, "two ranks in one container");
	ok(manifest && manifest->stored_bytes < (CHUNKS + 2) * (uint64_t)TPCK_CHUNK_BYTES, "what is equal is stored once");
	ok(manifest && tpck_verify(tier, manifest, &err) == 0, "it verifies");
	ok(tpck_session_create(&to, memory, &staged, "x\n", &err) == 0 && manifest &&
		   tpck_stage_durable(tier, manifest, tpck_manifest_member(manifest, 1, 0), to->path, &err) == 0,
	   "the second rank's is staged");
	snprintf(path, sizeof path, "%s/resume.image", to->path);
	ok(tpck_image_open(&loaded, path, false, &err) == 0 && memcmp(tpck_image_data(&loaded), tpck_image_data(&twin), BYTES) == 0,
	   "byte for byte its own");
	tpck_image_close(&loaded);
	tpck_image_close(&twin);
	tpck_manifest_free(manifest);
	tpck_session_remove(to->path);
	tpck_session_close(to);
	tpck_session_remove(other->path);
	tpck_session_close(other);
}

static int count_sums(void *context, struct tpck_sums *sums)
{
	(void)sums;
	++*(int *)context;
	return 0;
}

/* What is no checkpoint: stashes of a program, and digests of its files. */
static void check_stashed(void)
{
	uint64_t one = 0, both;
	char path[512], *log = NULL;
	struct tpck_sums *sums = tpck_sums_new(0);
	struct stat here;
	size_t size;
	int count = 0;

	ok(tpck_program_stashed(tier, "p") == 0, "nothing is stashed");
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, TPCK_STASH_STORE "/p/1.%d", i);
		if (tier->operations->mark(tier, path, "bytes", &err))
			abort();
	}
	tier->operations->mark(tier, TPCK_STASH_STORE "/p/other", "bytes", &err);
	tier->operations->size(tier, path, &one, &err);
	both = tpck_program_stashed(tier, "p");
	ok(one && both == 2 * one && tier->operations->remove(tier, path, &err) == 0 && tpck_program_stashed(tier, "p") == one, "two stashes, and one");
	tier->operations->remove(tier, TPCK_STASH_STORE, &err);
	ok(tpck_sums_each(tier, count_sums, &count, &err) == 0 && count == 0, "no digests of files");
	snprintf(path, sizeof path, "%s/files.sums", memory);
	if (!sums || stat(image_path, &here) || !tpck_sums_settle(sums, image_path, &here) || tpck_sums_append(path, sums, &err) ||
	    tpck_file_read(path, 1 << 20, &log, &size, &err) || tier->operations->commit_if_absent(tier, TPCK_SUMS_LOG, log, size, &err))
		abort();
	free(log);
	tpck_sums_free(sums);
	ok(tpck_sums_each(tier, count_sums, &count, &err) == 0 && count == 1, "those of one, by the tier");
	tier->operations->remove(tier, TPCK_SUMS_LOG, &err);
	unlink(path);
}

int main(void)
{
	struct tpck_session_name name = {1, 0, 0};
	uint64_t taken = 0;

	tap_need_shm(640);
	memory = tap_folder("/dev/shm");
	disk = tap_folder(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	ok(tpck_session_create(&session, memory, &name, "executable a\n", &err) == 0, "a session");
	snprintf(image_path, sizeof image_path, "%s/image.0", session->path);
	ok(tpck_image_allocate(image_path, 0, BYTES, &err) == 0 && tpck_image_prefault(image_path, &err) == 0 &&
		   tpck_image_open(&image, image_path, true, &err) == 0,
	   "an image");
	ok((OBJECTS ? object_tier_open(&tier) : tpck_durable_tier_open(&tier, disk, "j", TPCK_WRITER_AUTO, &err)) == 0 && tpck_tier_check(tier, &err) == 0,
	   "a store");
	ok(publish_step(10, 15) == 0, "published");
	ok(base && base->container_count == 1, "in one container");
	ok(base && tier->operations->size(tier, base->containers[0].path, &taken, &err) == 0 && taken >= base->containers[0].bytes &&
		   tier->operations->size(tier, "step-000000000010.g1/none", &taken, &err) == -ENOENT,
	   "whose size is known");
	check_stashed();
	check_stage(10);
	check_memory_stage();
	ok(publish_step(11, 2) == 0 && base->container_count == 2 && base->stored_bytes < 2 * TPCK_CHUNK_BYTES,
	   "what did not change is a reference");
	check_stage(11);
	check_retention();
	check_refusals();
	check_ranks();
	tpck_manifest_free(base);
	tpck_image_close(&image);
	tpck_session_close(session);
	tpck_tier_close(tier);
	tpck_folder_remove(memory);
	tpck_folder_remove(disk);
	return tap_done();
}
