/* SPDX-License-Identifier: Apache-2.0 */
/* needs: cores=0.9 about=9s */
/* Parts of several nodes become one checkpoint, or none: what is joined is what one publication of all ranks is, whoever
 * fails, races or is killed on the way. Built once more as store_parts_objects_test, on a tier that is no folder. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/store/copy.h"
#include "runtime/store/file.h"
#include "runtime/store/parts.h"
#include "runtime/store/publish.h"
#include "runtime/store/retention.h"
#include "runtime/store/stage.h"
#include "runtime/store/verify.h"
#include "tests/unit/object_tier.h"
#include "tests/unit/shm_room.h"
#include "tests/unit/store_tap.h"

#ifndef OBJECTS
#define OBJECTS 0
#endif

enum { WORLD = 4, CHUNKS = 2, BYTES = TPCK_CHUNK_BYTES + 5000, LOG_BYTES = 1 << 16 };

/* A rank's process: its session, image and log. */
struct process {
	struct tpck_session *session;
	struct tpck_image image;
	char image_path[512];
};

static struct tpck_error err;
static char *memory, *disk;
static struct process process[WORLD];
static struct tpck_tier *tier, *alone; /* of the parts, and of who publishes all ranks at once */

/* Ranks first to last are on one node. */
struct node {
	uint32_t first, last;
};
static const struct node three[] = {{0, 0}, {1, 2}, {3, 3}}, other_three[] = {{0, 1}, {2, 2}, {3, 3}};

/* ---- what is published --------------------------------------------------------------------- */

static void make_process(uint32_t rank)
{
	struct tpck_session_name name = {1, rank, 0};
	struct process *p = &process[rank];
	char identity[5000];

	/* As long as one is, so that a mark is more than its head. */
	snprintf(identity, sizeof identity, "executable a\nrank %u\nvariable %04500d\n", rank, 0);
	if (tpck_session_create(&p->session, memory, &name, identity, &err))
		abort();
	snprintf(p->image_path, sizeof p->image_path, "%s/image.0", p->session->path);
	if (tpck_image_allocate(p->image_path, 0, BYTES, &err) || tpck_image_prefault(p->image_path, &err) ||
	    tpck_image_open(&p->image, p->image_path, true, &err))
		abort();
}

/* The snapshot of a step; which chunks are others than before: bit i of `changes`. */
static void fill(uint64_t generation, uint64_t step, unsigned changes)
{
	for (uint32_t r = 0; r < WORLD; r++) {
		struct tpck_image *image = &process[r].image;
		struct tpck_image_header *h = image->header;
		struct tpck_log_header log = {.magic = TPCK_LOG_MAGIC, .version = TPCK_WIRE_VERSION, .generation = 1, .bytes = LOG_BYTES};
		char path[512], bytes[2000];
		int fd;

		for (unsigned i = 0; i < CHUNKS; i++) {
			if (changes & (1u << i))
				memset(tpck_image_data(image) + (size_t)i * TPCK_CHUNK_BYTES, (int)(step * 16 + r * 4 + i),
				       i == CHUNKS - 1 ? BYTES % TPCK_CHUNK_BYTES : TPCK_CHUNK_BYTES);
			tpck_image_chunks(image)[i].ready = 1;
			tpck_image_chunks(image)[i].hashed = 0;
		}
		h->generation = generation;
		h->step = step;
		h->data_bytes = BYTES;
		h->chunks = CHUNKS;
		h->rows = 1;
		tpck_image_rows(image)[0] = (struct tpck_image_row){.bytes = BYTES, .address = 4096 * (r + 1)};
		h->log_sequence = 0;
		h->log_offset = sizeof log + 10 * step + r;
		h->resumable = 1;
		h->footer = tpck_image_footer(h);
		h->state = TPCK_IMAGE_COMMITTED;
		log.used = h->log_offset;
		memset(bytes, (int)(r + 1), sizeof bytes);
		snprintf(path, sizeof path, "%s/log.000000", process[r].session->path);
		fd = open(path, O_RDWR | O_CREAT, 0600);
		if (ftruncate(fd, LOG_BYTES) || pwrite(fd, &log, sizeof log, 0) != sizeof log ||
		    pwrite(fd, bytes, sizeof bytes, sizeof log) != sizeof bytes)
			abort();
		close(fd);
	}
}

static bool open_tier(struct tpck_tier **opened, const char *job)
{
	int rc = OBJECTS ? object_tier_open(opened) : tpck_durable_tier_open(opened, disk, job, TPCK_WRITER_AUTO, &err);

	return rc == 0 && tpck_tier_check(*opened, &err) == 0;
}

static bool fenced;

static bool permitted(void *context, const struct tpck_point *point)
{
	(void)context;
	(void)point;
	return !fenced;
}

static void publication(struct tpck_publication *p, struct tpck_share shares[WORLD], struct node node, const struct tpck_manifest *base)
{
	memset(p, 0, sizeof *p);
	for (uint32_t r = node.first; r <= node.last; r++)
		shares[r - node.first] = (struct tpck_share){
			.session_path = process[r].session->path, .image_path = process[r].image_path, .image = process[r].image,
			.identity = process[r].session->identity, .rank = r,
		};
	p->tier = tier;
	p->shares = shares;
	p->share_count = node.last - node.first + 1;
	p->world = WORLD;
	p->parent = (struct tpck_point){1, 5};
	p->base = base;
	p->permitted = permitted;
}

/* As an agent does, with what its ranks have of the base. */
static int part(struct node node, struct tpck_manifest *base)
{
	struct tpck_share shares[WORLD];
	struct tpck_manifest *manifest = NULL;
	struct tpck_publication p;
	int rc;

	for (uint32_t r = node.first; base && r <= node.last; r++)
		if (tpck_manifest_need(base, tier, r, &err))
			return -EPROTO;
	publication(&p, shares, node, base);
	rc = tpck_publish_part(&p, &manifest, &err);
	if (!rc && (!manifest->part || manifest->member_count != p.share_count))
		rc = -EPROTO;
	tpck_manifest_free(manifest);
	return rc;
}

static bool parts(const struct node *nodes, size_t count, struct tpck_manifest *base)
{
	bool good = true;

	/* In no order. */
	for (size_t i = count; i-- > 0;)
		good = part(nodes[i], base) == 0 && good;
	return good;
}

static int join(uint64_t generation, uint64_t step, struct tpck_manifest **out)
{
	struct tpck_point point = {generation, step};
	struct tpck_manifest *manifest = NULL;
	int rc;

	memset(&err, 0, sizeof err);
	rc = tpck_publish_join(tier, &point, WORLD, permitted, NULL, &manifest, &err);
	if (!rc && out)
		*out = manifest;
	else
		tpck_manifest_free(manifest);
	return rc;
}

/* ---- what is there ------------------------------------------------------------------------- */

static const char *path_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *path_of(const char *format, ...)
{
	static char path[512];
	int used = snprintf(path, sizeof path, "%s/j/", disk);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(path + used, sizeof path - (size_t)used, format, arguments);
	va_end(arguments);
	return path;
}

static bool exists(const char *name)
{
	return OBJECTS ? object_tier_has(tier, name) : access(path_of("%s", name), F_OK) == 0;
}

static void flip(const char *name, size_t at)
{
	size_t *size;
	uint8_t *bytes;
	char byte;
	int fd;

	if (OBJECTS) {
		bytes = object_tier_bytes(tier, name, &size);
		if (!bytes || at >= *size)
			abort();
		bytes[at] ^= 1;
		return;
	}
	fd = open(path_of("%s", name), O_RDWR);
	if (fd < 0 || pread(fd, &byte, 1, (off_t)at) != 1)
		abort();
	byte ^= 1;
	if (pwrite(fd, &byte, 1, (off_t)at) != 1)
		abort();
	close(fd);
}

static void cut(const char *name, size_t most)
{
	size_t *size;

	if (!OBJECTS && truncate(path_of("%s", name), (off_t)most))
		abort();
	if (OBJECTS && object_tier_bytes(tier, name, &size))
		*size = most;
}

/* A file, or all of a step. */
static void take_away(const char *name)
{
	if (tier->operations->remove(tier, name, &err))
		abort();
}

/* What changes when a file is written again. */
static uint64_t written(const char *name)
{
	struct stat file;

	if (OBJECTS)
		return object_tier_writes(tier, name);
	return stat(path_of("%s", name), &file) ? 0 : (uint64_t)file.st_ino * 31 + (uint64_t)file.st_mtim.tv_sec * 1000000000 + (uint64_t)file.st_mtim.tv_nsec;
}

/* For what goes into a step's folder past the verbs that make it. */
static void make_folder(const char *name)
{
	if (!OBJECTS)
		mkdir(path_of("%s", name), 0700);
}

static char *text_of(const char *name, size_t *size)
{
	char *text;

	if (tier->operations->get_text(tier, name, 1 << 30, &text, size, &err))
		abort();
	return text;
}

static void put_text(const char *name, const char *text)
{
	if (tier->operations->mark(tier, name, text, &err))
		abort();
}

static bool same_in(struct tpck_tier *a, struct tpck_tier *b, const char *name)
{
	char *text[2] = {NULL, NULL};
	size_t size[2] = {0, 0};
	bool same = a->operations->get_text(a, name, 1 << 30, &text[0], &size[0], &err) == 0 &&
		    b->operations->get_text(b, name, 1 << 30, &text[1], &size[1], &err) == 0 && size[0] == size[1] && memcmp(text[0], text[1], size[0]) == 0;

	free(text[0]);
	free(text[1]);
	return same;
}

static bool same_file(const char *a, const char *b, const char *name)
{
	char path[600], *text[2] = {NULL, NULL};
	size_t size[2] = {0, 0};
	bool same;

	snprintf(path, sizeof path, "%s/%s", a, name);
	same = tpck_file_read(path, 1 << 30, &text[0], &size[0], &err) == 0;
	snprintf(path, sizeof path, "%s/%s", b, name);
	same = same && tpck_file_read(path, 1 << 30, &text[1], &size[1], &err) == 0 && size[0] == size[1] &&
	       memcmp(text[0], text[1], size[0]) == 0;
	free(text[0]);
	free(text[1]);
	return same;
}

/* Whether every rank gets the same from both manifests, and what its image holds now. */
static bool stages_alike(struct tpck_manifest *joined, const struct tpck_manifest *whole)
{
	bool good = joined && whole;

	for (uint32_t r = 0; good && r < WORLD; r++) {
		struct tpck_session_name names[2] = {{100, r, 0}, {101, r, 0}};
		struct tpck_session *to[2] = {NULL, NULL};
		struct tpck_image loaded = {0};
		char path[512];

		good = tpck_session_create(&to[0], memory, &names[0], "x\n", &err) == 0 &&
		       tpck_session_create(&to[1], memory, &names[1], "x\n", &err) == 0 &&
		       tpck_manifest_need(joined, tier, r, &err) == 0 &&
		       tpck_stage_durable(tier, joined, tpck_manifest_member(joined, r, 0), to[0]->path, &err) == 0 &&
		       tpck_stage_durable(alone, whole, tpck_manifest_member(whole, r, 0), to[1]->path, &err) == 0 &&
		       same_file(to[0]->path, to[1]->path, "resume.image") && same_file(to[0]->path, to[1]->path, "log.000000");
		if (good) {
			snprintf(path, sizeof path, "%s/resume.image", to[0]->path);
			good = tpck_image_open(&loaded, path, false, &err) == 0 &&
			       memcmp(tpck_image_data(&loaded), tpck_image_data(&process[r].image), BYTES) == 0;
			tpck_image_close(&loaded);
		}
		for (int i = 0; i < 2; i++)
			if (to[i]) {
				tpck_session_remove(to[i]->path);
				tpck_session_close(to[i]);
			}
	}
	return good;
}

static struct tpck_manifest *publish_alone(const struct tpck_manifest *base)
{
	struct tpck_share shares[WORLD];
	struct tpck_manifest *manifest = NULL;
	struct tpck_publication p;

	publication(&p, shares, (struct node){0, WORLD - 1}, base);
	p.tier = alone;
	return tpck_publish(&p, &manifest, &err) ? NULL : manifest;
}

/* ---- the tests ----------------------------------------------------------------------------- */

static struct tpck_manifest *joined; /* the newest */

static void check_join(void)
{
	struct tpck_manifest *whole, *next = NULL, *whole_next, *again = NULL;
	struct tpck_point point = {7, 10};
	struct tpck_catalog catalog;
	char *text = NULL;
	bool own = false, older = false;

	fill(7, 10, 3);
	ok(part(three[0], NULL) == 0 && part(three[2], NULL) == 0, "the parts of two nodes of three");
	ok(join(7, 10, NULL) == -EAGAIN && strstr(err.text, "ranks 1-2 of 4"), "are no checkpoint, and who is missing is named");
	ok(!exists("step-000000000010.g7/MANIFEST") && !exists("LAST_GOOD"), "nothing is to be seen");
	ok(tpck_catalog_load(&catalog, tier, NULL, NULL, NULL, &err) == 0 && catalog.count == 0, "nor to be loaded");
	tpck_catalog_free(&catalog);
	ok(part(three[1], NULL) == 0, "the third one's");
	ok(join(7, 10, &joined) == 0 && joined->part_count == 3 && joined->container_count == 3 && !joined->part,
	   "with all of them there is one");
	ok(joined && tpck_verify(tier, joined, &err) == 0, "that verifies");
	ok(tpck_manifest_load(&again, tier, &point, &err) == 0 && again->part_count == 3 && again->member_count == 0 &&
		   tpck_manifest_resumable(again) && tpck_manifest_is_of(again, 2, 0, process[2].session->identity) &&
		   !tpck_manifest_is_of(again, 2, 0, process[1].session->identity) && tpck_manifest_bytes(again) == tpck_manifest_bytes(joined),
	   "and loads, without what is in marks");
	ok(again && tpck_manifest_need(again, tier, 2, &err) == 0 && again->member_count == 2 && tpck_manifest_member(again, 2, 0) &&
		   !tpck_manifest_member(again, 3, 0) && tpck_manifest_need(again, tier, 1, &err) == 0 && again->member_count == 2,
	   "a rank's part is got once, and no other");
	ok(tier->operations->get_text(tier, "LAST_GOOD", 100, &text, NULL, &err) == 0 && strcmp(text, "step-000000000010.g7\n") == 0,
	   "and is the last good one");
	free(text);
	ok(join(7, 10, NULL) == -EEXIST && part(three[1], NULL) == -EEXIST, "it is not published again");
	whole = publish_alone(NULL);
	ok(whole && tpck_manifest_bytes(joined) == tpck_manifest_bytes(whole), "it has as many bytes as one that all ranks publish");
	ok(whole && stages_alike(joined, whole), "each rank gets what it gets from a publication of all ranks");
	ok(whole && joined->parent.step == 5 && joined->stored_bytes + 4096 >= whole->stored_bytes, "bytes are added up");

	/* Other nodes have the ranks now; one chunk of each is as before. */
	fill(7, 20, 2);
	ok(parts(other_three, 3, joined) && join(7, 20, &next) == 0, "the next one, by other nodes");
	for (size_t c = 0; next && c < next->container_count; c++) {
		own = own || strcmp(next->containers[c].path, "step-000000000020.g7/data.2") == 0;
		older = older || strcmp(next->containers[c].path, "step-000000000010.g7/data.1") == 0;
	}
	ok(next && next->container_count == 6 && own && older && next->stored_bytes < TPCK_CHUNK_BYTES,
	   "refers to what any node has stored of the one before");
	ok(next && tpck_manifest_owns(next, 0) && tpck_manifest_owns(next, 2) && !tpck_manifest_owns(next, 3),
	   "its own containers come first");
	whole_next = publish_alone(whole);
	ok(whole_next && stages_alike(next, whole_next), "and gives each rank the same as one of all ranks");
	tpck_manifest_free(whole);
	tpck_manifest_free(whole_next);
	tpck_manifest_free(again);
	tpck_manifest_free(joined);
	joined = next;
}

static void check_copy(void)
{
	struct tpck_manifest *loaded = NULL, *next = NULL;
	struct tpck_tier *slower = NULL;
	struct tpck_copy copy = {.from = tier, .manifest = joined};
	bool bad;

	ok(open_tier(&slower, "slower"), "a slower tier");
	copy.to = slower;
	ok(tpck_copy(&copy, &bad, &err) == 0 && tpck_copy(&copy, &bad, &err) == -EEXIST, "gets it, once");
	ok(tpck_retention_clear(slower, &err) == 0 && tpck_manifest_load(&loaded, slower, &joined->point, &err) == 0 &&
		   tpck_verify(slower, loaded, &err) == 0,
	   "with the containers of all nodes");
	tpck_manifest_free(loaded);
	loaded = NULL;
	ok(same_in(tier, slower, "step-000000000020.g7/mark.r0.o0") && same_in(tier, slower, "step-000000000020.g7/mark.r2.o0") &&
		   same_in(tier, slower, "step-000000000020.g7/" TPCK_MANIFEST),
	   "the same marks, and the same manifest");

	/* The next one, of whose chunks but a few are there: the bad one of its own container is found. */
	fill(7, 21, 1);
	ok(parts(three, 3, joined) && join(7, 21, &next) == 0, "a next one");
	copy.manifest = next;
	flip("step-000000000021.g7/mark.r1.o0", 4800);
	ok(tpck_copy(&copy, &bad, &err) == -EBADMSG && bad && strstr(err.text, "mark.r1.o0") && tpck_manifest_load(&loaded, slower, &next->point, &err) == -ENOENT,
	   "is not copied with a bad mark, and known to be bad");
	flip("step-000000000021.g7/mark.r1.o0", 4800);
	ok(tpck_copy(&copy, &bad, &err) == 0 && copy.copied_bytes < WORLD * (TPCK_CHUNK_BYTES + (64 << 10)) &&
		   tpck_manifest_load(&loaded, slower, &next->point, &err) == 0 && tpck_verify(slower, loaded, &err) == 0,
	   "nor is anything that is there copied again");
	tpck_manifest_free(loaded);
	tpck_manifest_free(next);
	take_away("step-000000000021.g7");
	tpck_tier_close(slower);
}

static void check_misfits(void)
{
	static const struct node doubled[] = {{0, 1}, {2, 3}};
	struct tpck_point point = {7, 30}, later = {7, 31};
	struct tpck_manifest *manifest = NULL;
	char *text, *mark;
	size_t size;

	fill(7, 30, 3);
	ok(parts(doubled, 2, NULL) && part((struct node){1, 1}, NULL) == 0, "a rank on two nodes");
	ok(join(7, 30, NULL) == -EBADMSG && strstr(err.text, "rank 1") && !exists("step-000000000030.g7/MANIFEST"), "is not joined");
	take_away("step-000000000030.g7/mark.r1.o0");
	ok(tpck_publish_join(tier, &point, 8, NULL, NULL, &manifest, &err) == -EBADMSG && strstr(err.text, "of 4 ranks, not of 8"),
	   "nor what is of another number of ranks");
	mark = text_of("step-000000000030.g7/mark.r2.o0", &size);
	flip("step-000000000030.g7/mark.r2.o0", 300);
	ok(join(7, 30, NULL) == -EBADMSG && strstr(err.text, "mark.r2.o0"), "nor what a damaged mark says");
	ok(part(doubled[1], NULL) == 0 && join(7, 30, &manifest) == 0, "a part that is written again is");

	/* A part's text in the manifest's place, and a manifest of some of the ranks. */
	make_folder("step-000000000031.g7");
	tier->operations->commit_if_absent(tier, "step-000000000031.g7/MANIFEST", mark, size, &err);
	free(mark);
	ok(tpck_manifest_load(&joined, tier, &later, &err) == -EBADMSG && strstr(err.text, "no manifest"),
	   "a part is never taken for a checkpoint");
	take_away("step-000000000031.g7");
	make_folder("step-000000000031.g7");
	if (manifest) {
		manifest->point = later;
		manifest->part_count = 1;
		tpck_manifest_format(manifest, &text, &size, &err);
		tier->operations->commit_if_absent(tier, "step-000000000031.g7/MANIFEST", text, size, &err);
		free(text);
		manifest->part_count = 2;
		manifest->point = point;
	}
	tpck_manifest_free(joined);
	joined = NULL;
	ok(tpck_manifest_load(&joined, tier, &later, &err) == -EBADMSG && strstr(err.text, "lacks ranks 2-3 of 4"),
	   "nor is one that lacks ranks, which are named");
	take_away("step-000000000031.g7");
	joined = manifest;
}

static void count_fault(void *context, const struct tpck_error *fault)
{
	char *said = context;

	snprintf(said + strlen(said), 2000 - strlen(said), "%s\n", fault->text);
}

static void check_damage(void)
{
	struct tpck_manifest *manifest = NULL;
	struct tpck_session_name name = {102, 0, 0};
	struct tpck_session *to = NULL;
	char said[2000] = "";
	uint64_t before;

	fill(7, 40, 3);
	ok(parts(three, 3, NULL), "parts");
	cut("step-000000000040.g7/data.1", 8192);
	ok(join(7, 40, NULL) == -EBADMSG && strstr(err.text, "data.1") && !exists("step-000000000040.g7/MANIFEST"),
	   "a container cut off is noticed");
	take_away("step-000000000040.g7/data.1");
	ok(join(7, 40, NULL) == -EBADMSG && strstr(err.text, "ranks 1-2"), "and one that is gone");
	before = written("step-000000000040.g7/data.0");
	ok(part(three[1], NULL) == 0 && part(three[0], NULL) == 0 && before == written("step-000000000040.g7/data.0"),
	   "the part is written again where it is not whole, and only there");
	flip("step-000000000040.g7/data.3", 4096 + 4096 + 1000);
	ok(part(three[2], NULL) == 0 && join(7, 40, &manifest) == 0 && tpck_verify(tier, manifest, &err) == 0,
	   "so is one with a flipped bit");
	flip("step-000000000040.g7/data.3", 4096 + 4096 + 1000);
	ok(manifest && tpck_verify(tier, manifest, &err) == -EBADMSG && strstr(err.text, "data.3"),
	   "a bit that flips later is found by verifying");
	take_away("step-000000000040.g7/data.1");
	ok(manifest && tpck_verify_each(tier, manifest, count_fault, said) == 2 &&
		   strstr(said, "data.1, where shards of ranks 1-2 of 4 are"),
	   "shards that are missing are one fault, with their ranks");
	ok(manifest && tpck_manifest_need(manifest, tier, 2, &err) == 0 && tpck_session_create(&to, memory, &name, "x\n", &err) == 0 &&
		   tpck_stage_durable(tier, manifest, tpck_manifest_member(manifest, 2, 0), to->path, &err) == -ENOENT &&
		   strstr(err.text, "ranks 1-2 of 4"),
	   "and a rank that needs them is told so");
	tpck_session_remove(to->path);
	tpck_session_close(to);
	tpck_manifest_free(manifest);
	take_away("step-000000000040.g7");
}

/* ---- what the manifest says of marks ---------------------------------------------------------- */

static void flip_all(const char *text, size_t size)
{
	char *copy = malloc(size);
	size_t accepted = 0;

	for (size_t i = 0; i < 2 * size; i++) {
		struct tpck_manifest *read = NULL;
		size_t used = i % 2 ? i / 2 : size;

		/* By turns one bit is another, and the end is missing. */
		memcpy(copy, text, size);
		if (used == size)
			copy[i / 2] ^= (char)(1 << i / 2 % 8);
		if (tpck_manifest_parse_published(&read, copy, used, "it", &err) == 0)
			accepted++;
		tpck_manifest_free(read);
	}
	free(copy);
	ok(accepted == 0, "no flipped bit and no cut of it passes");
}

/* A text whose digest is right may still be made by somebody who means harm. */
static bool is_refused(struct tpck_manifest *manifest)
{
	struct tpck_manifest *read = NULL;
	struct tpck_ranks missing = {0};
	uint32_t twice;
	size_t size;
	char *text;
	int rc;

	if (tpck_manifest_format(manifest, &text, &size, &err))
		abort();
	rc = tpck_manifest_parse_published(&read, text, size, "it", &err);
	/* As whoever loads it does. */
	if (!rc)
		rc = tpck_manifest_ranks(read, &missing, &twice);
	tpck_manifest_free(read);
	free(text);
	return rc == -EBADMSG || rc == -EAGAIN;
}

static void check_hostile(struct tpck_manifest *made)
{
	static const char *const paths[] = {"../../etc/passwd", "step-000000000044.g7/../../x", "/etc/passwd", "step-000000000044.g7/.x",
					    "step-000000000045.g7/data.1"};
	struct tpck_part *first = &made->parts[0], *second = &made->parts[1];
	struct tpck_part_rank kept = second->ranks[0];
	char *older = first->older[0];
	bool good = !is_refused(made);

	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		first->older[0] = (char *)paths[i];
		good = is_refused(made) && good;
	}
	first->older[0] = older;
	ok(good, "no older container leads out of the job's folder, or is another part's");
	second->ranks[0].rank = 0;
	good = is_refused(made);
	second->ranks[0].rank = WORLD;
	good = is_refused(made) && good;
	second->ranks[0] = kept;
	strcpy(second->ranks[0].program, "../../../../../x");
	good = is_refused(made) && good;
	second->ranks[0] = kept;
	made->world = UINT32_MAX;
	good = is_refused(made) && good;
	made->world = WORLD - 1;
	good = is_refused(made) && good;
	made->world = WORLD;
	ok(good && !is_refused(made), "no rank is there twice, is none of the world, or is missing");
}

static void check_text(void)
{
	static const char manifest_name[] = "step-000000000045.g7/MANIFEST", mark_name[] = "step-000000000045.g7/mark.r1.o0";
	struct tpck_point point = {7, 45};
	struct tpck_manifest *before = NULL, *made = NULL, *again = NULL, *read = NULL;
	size_t size, again_size, mark_size;
	char *text, *again_text, *mark, *other, *format;

	fill(7, 44, 3);
	if (!parts(three, 3, NULL) || join(7, 44, &before))
		abort();
	fill(7, 45, 2);
	ok(parts(three, 3, before) && join(7, 45, &made) == 0 && made->container_count == 6, "a checkpoint of parts that refers to another one");
	text = text_of(manifest_name, &size);
	mark = text_of(mark_name, &mark_size);
	take_away(manifest_name);
	ok(join(7, 45, &again) == 0, "another one joins them");
	again_text = text_of(manifest_name, &again_size);
	ok(size == again_size && memcmp(text, again_text, size) == 0, "and comes to the same text");
	free(again_text);
	tpck_manifest_free(again);
	ok(tpck_manifest_load(&read, tier, &point, &err) == 0 && tpck_manifest_format(read, &again_text, &again_size, &err) == 0 &&
		   size == again_size && memcmp(text, again_text, size) == 0 && size < mark_size + 3 * 1000,
	   "what was read is written the same, and is small");
	free(again_text);
	flip_all(text, size);
	check_hostile(made);
	ok(tpck_manifest_parse(&again, text, size, "it", &err) == -EPROTO && strstr(err.text, "format 2, this program reads 1"),
	   "who reads format 1 alone refuses it by its number");
	format = strstr(text, "\"format\":2");
	format[strlen("\"format\":")] = '3';
	ok(tpck_manifest_parse_published(&again, text, size, "it", &err) == -EPROTO && strstr(err.text, "format 3, this program reads 1 and 2"),
	   "as a later one is");
	free(text);

	/* Marks. */
	flip(mark_name, mark_size - 100);
	ok(read && tpck_manifest_need(read, tier, 2, &err) == -EBADMSG && strstr(err.text, "mark.r1.o0") &&
		   tpck_manifest_need(read, tier, 0, &err) == 0,
	   "a damaged mark is noticed by whoever needs it");
	ok(read && tpck_verify(tier, read, &err) == -EBADMSG && strstr(err.text, "mark.r1.o0"), "and by verifying");
	flip(mark_name, mark_size - 100);
	flip(mark_name, 100);
	ok(read && tpck_verify(tier, read, &err) == -EBADMSG && strstr(err.text, "mark.r1.o0"), "so is a damaged head");
	put_text(mark_name, mark);
	if (tpck_part_load(&again, tier, mark_name, &err))
		abort();
	again->created_ns++;
	if (tpck_mark_format(again, &other, &err))
		abort();
	tpck_manifest_free(again);
	put_text(mark_name, other);
	ok(read && tpck_manifest_need(read, tier, 2, &err) == -EBADMSG && strstr(err.text, "not the one that the manifest names"),
	   "and a good one that was written later");
	free(other);
	take_away(mark_name);
	ok(read && tpck_manifest_need(read, tier, 2, &err) == -EBADMSG && strstr(err.text, "mark.r1.o0 of ranks 1-2 of 4 is gone"),
	   "one that is gone is named with its ranks");
	take_away(manifest_name);
	ok(read && tpck_manifest_need(read, tier, 2, &err) == -ENOENT, "and is no fault where all of it was removed");
	put_text(mark_name, mark);
	free(mark);

	/* As an agent wrote it that knew format 1 only: all ranks in the manifest. */
	for (uint32_t r = 0; r < WORLD; r++)
		if (tpck_manifest_need(made, tier, r, &err))
			abort();
	size = made->part_count;
	made->part_count = 0;
	if (tpck_manifest_format(made, &text, &again_size, &err))
		abort();
	made->part_count = size;
	put_text(manifest_name, text);
	free(text);
	tpck_manifest_free(read);
	read = NULL;
	ok(tpck_manifest_load(&read, tier, &point, &err) == 0 && !read->part_count && read->member_count == WORLD &&
		   tpck_verify(tier, read, &err) == 0,
	   "one of several nodes that holds all ranks is read as ever");
	fill(7, 47, 2);
	ok(read && parts(three, 3, read) && join(7, 47, &again) == 0 && tpck_verify(tier, again, &err) == 0 &&
		   again->stored_bytes < TPCK_CHUNK_BYTES,
	   "and referred to by the next");
	tpck_manifest_free(again);
	tpck_manifest_free(read);
	tpck_manifest_free(made);
	tpck_manifest_free(before);
	take_away("step-000000000047.g7");
	take_away("step-000000000045.g7");
	take_away("step-000000000044.g7");
}

/* ---- a tier that fails or ends -------------------------------------------------------------- */

static struct tpck_tier_operations faulty;
static const struct tpck_tier_operations *real;
static int ticks, kill_at;
static bool corrupt;
static _Atomic int *arrived; /* both joiners are at the commit */

static void tick(void)
{
	if (++ticks == kill_at)
		kill(getpid(), SIGKILL);
}

struct ticking {
	const struct tpck_source *source;
};

static int ticking_next(void *context, uint8_t *buffer, uint32_t *bytes, struct tpck_error *error)
{
	struct ticking *ticking = context;

	tick();
	return ticking->source->next(ticking->source->context, buffer, bytes, error);
}

static int faulty_put(struct tpck_tier *t, const char *path, const struct tpck_source *source, uint64_t *bytes, struct tpck_error *error)
{
	struct ticking ticking = {source};
	struct tpck_source ours = {ticking_next, &ticking};
	int rc;

	tick();
	rc = real->put(t, path, &ours, bytes, error);
	if (!rc && corrupt)
		flip(path, 4100);
	tick();
	return rc;
}

static int faulty_mark(struct tpck_tier *t, const char *path, const char *text, struct tpck_error *error)
{
	int rc;

	tick();
	rc = real->mark(t, path, text, error);
	tick();
	return rc;
}

static int faulty_commit(struct tpck_tier *t, const char *path, const char *text, size_t size, struct tpck_error *error)
{
	uint64_t begun = tpck_clock_monotonic_ns();
	int rc;

	tick();
	if (arrived) {
		atomic_fetch_add(arrived, 1);
		while (atomic_load(arrived) < 2 && tpck_clock_monotonic_ns() - begun < UINT64_C(60000000000))
			;
	}
	rc = real->commit_if_absent(t, path, text, size, error);
	tick();
	return rc;
}

static int faulty_remove(struct tpck_tier *t, const char *path, struct tpck_error *error)
{
	tick();
	return real->remove(t, path, error);
}

static _Atomic int whole_marks; /* that were read, by several threads at a time */

static int faulty_get_text(struct tpck_tier *t, const char *path, size_t limit, char **text, size_t *size, struct tpck_error *error)
{
	atomic_fetch_add(&whole_marks, strstr(path, "/" TPCK_MARK_PREFIX) != NULL);
	return real->get_text(t, path, limit, text, size, error);
}

static void make_faulty(void)
{
	real = tier->operations;
	faulty = *real;
	faulty.get_text = faulty_get_text;
	faulty.put = faulty_put;
	faulty.mark = faulty_mark;
	faulty.commit_if_absent = faulty_commit;
	faulty.remove = faulty_remove;
	tier->operations = &faulty;
}

static void check_failures(void)
{
	fill(7, 50, 3);
	ok(part(three[0], NULL) == 0, "a part");
	corrupt = true;
	ok(part(three[1], NULL) == -EIO && strstr(err.text, "data.1"), "one that the disk does not keep is found by reading back");
	corrupt = false;
	ok(!exists("step-000000000050.g7/data.1") && !exists("step-000000000050.g7/mark.r1.o0") &&
		   !exists("step-000000000050.g7/part.r1.o0"),
	   "and leaves nothing");
	ok(exists("step-000000000050.g7/data.0") && exists("step-000000000050.g7/mark.r0.o0"), "others stay");
	fenced = true;
	ok(part(three[1], NULL) == -ECANCELED && !exists("step-000000000050.g7/data.1"), "nor does one of a timeline that was left");
	fenced = false;
	ok(part(three[1], NULL) == 0 && part(three[2], NULL) == 0, "all parts");
	fenced = true;
	ok(join(7, 50, NULL) == -ECANCELED && !exists("step-000000000050.g7/MANIFEST"), "are not joined of such a timeline");
	fenced = false;
	whole_marks = 0;
	ok(join(7, 50, NULL) == 0, "and are of one that goes on");
	ok(whole_marks == 1, "of marks but the first one only heads are read");
}

/* Runs it in a process of its own that is killed at its nth tick; whether it came to an end before. */
static bool killed_at(int n, int (*run)(void))
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		/* Another tier: the writer's threads are the parent's. */
		tier = NULL;
		if (tpck_durable_tier_open(&tier, disk, "j", TPCK_WRITER_THREADS, &err))
			_exit(99);
		make_faulty();
		ticks = 0;
		kill_at = n;
		_exit(run() ? 98 : 0);
	}
	waitpid(child, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
		abort();
	return WIFEXITED(status);
}

static uint64_t kill_step;

static int run_part(void)
{
	return part(three[1], NULL);
}

static int run_join(void)
{
	return join(7, kill_step, NULL);
}

static void check_kills(void)
{
	struct tpck_point point = {7, 60};
	struct tpck_manifest *loaded = NULL;
	bool good = true, ended = false;
	int n;

	kill_step = point.step;
	fill(7, 60, 3);
	good = part(three[0], NULL) == 0 && part(three[2], NULL) == 0;
	for (n = 1; good && !ended; n++) {
		ended = killed_at(n, run_part);
		/* Either the part is there and good, or it is missing; and who comes after makes it whole. */
		good = ended || exists("step-000000000060.g7/mark.r1.o0") ||
		       (join(7, 60, NULL) == -EAGAIN && strstr(err.text, "ranks 1-2"));
		if (good && n % 3 == 0) {
			good = part(three[1], NULL) == 0;
			take_away("step-000000000060.g7/mark.r1.o0");
		}
	}
	ok(good && n > 8, "a node that is killed wherever in its part leaves a part or none");
	ok(part(three[1], NULL) == 0, "the next one writes it");
	ended = false;
	for (n = 1, good = true; good && !ended; n++) {
		ended = killed_at(n, run_join);
		if (tpck_manifest_load(&loaded, tier, &point, &err) == 0) {
			good = tpck_verify(tier, loaded, &err) == 0 && join(7, 60, NULL) == -EEXIST;
			tpck_manifest_free(loaded);
			take_away("step-000000000060.g7/MANIFEST");
		} else {
			good = err.code == ENOENT;
		}
	}
	ok(good && n > 4, "a committer that is killed anywhere leaves nothing to be seen or all of it");
	ok(join(7, 60, NULL) == 0, "another one takes over");
}

static void check_race(void)
{
	int won = 0, lost = 0;
	bool good = true;

	arrived = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (uint64_t step = 70; good && step < 75; step++) {
		struct tpck_manifest *loaded = NULL;
		struct tpck_point point = {7, step};
		pid_t child[2];

		fill(7, step, 3);
		good = parts(three, 3, NULL);
		atomic_store(arrived, 0);
		for (int i = 0; i < 2; i++) {
			child[i] = fork();
			if (child[i] == 0) {
				int rc = join(7, step, NULL);

				_exit(rc == 0 ? 1 : rc == -EEXIST ? 2 : 3);
			}
		}
		for (int i = 0; i < 2; i++) {
			int status = 0;

			waitpid(child[i], &status, 0);
			won += WIFEXITED(status) && WEXITSTATUS(status) == 1;
			lost += WIFEXITED(status) && WEXITSTATUS(status) == 2;
		}
		good = good && atomic_load(arrived) == 2 && tpck_manifest_load(&loaded, tier, &point, &err) == 0 &&
		       tpck_verify(tier, loaded, &err) == 0;
		tpck_manifest_free(loaded);
	}
	ok(good && won == 5 && lost == 5, "of two that join at the same time one does, and the other is told");
	arrived = NULL;
}

/* ---- keeping apart, and tidying ------------------------------------------------------------- */

static void check_locks(void)
{
	int a = tpck_tier_hold(tier, TPCK_HOLD_ADDS, 0, &err), b = tpck_tier_hold(tier, TPCK_HOLD_ADDS, 0, &err), c;

	ok(a >= 0 && b >= 0, "parts are written at the same time");
	ok(tpck_tier_hold(tier, TPCK_HOLD_CHANGES, 0, &err) == -EBUSY, "while nobody removes or joins");
	close(a);
	close(b);
	c = tpck_tier_hold(tier, TPCK_HOLD_CHANGES, 0, &err);
	ok(c >= 0 && tpck_tier_hold(tier, TPCK_HOLD_ADDS, 0, &err) == -EBUSY, "and no part while somebody does");
	close(c);
}

/* A process of the same number on another node may be writing the same file. */
static void check_temporaries(void)
{
	bool good = true;

	for (int n = 0; n < 20000; n += 2)
		close(open(path_of("namesake.tmp.%d.%d", (int)getpid(), n), O_WRONLY | O_CREAT, 0600));
	for (int i = 0; i < 2; i++)
		good = real->mark(tier, "namesake", "x", &err) == 0 && good;
	ok(good, "another one's temporary files are not in the way");
	for (int n = 0; n < 20000; n += 2)
		good = unlink(path_of("namesake.tmp.%d.%d", (int)getpid(), n)) == 0 && good;
	ok(good, "and stay");
}

static void note_generation(uint64_t generation)
{
	char text[32];

	snprintf(text, sizeof text, "%llu\n", (unsigned long long)generation);
	tier->operations->mark(tier, "generation", text, &err);
}

static void check_clear(void)
{
	struct tpck_retention rules = {.keep = 1};
	struct tpck_manifest *first = NULL, *second = NULL;
	struct tpck_point point = {8, 10};
	char name[64];

	fill(7, 80, 3);
	ok(part(three[0], NULL) == 0 && tpck_retention_clear(tier, &err) == 0 && exists("step-000000000080.g7/mark.r0.o0"),
	   "a part of the newest generation, as nothing says another");
	note_generation(8);
	ok(tpck_retention_clear(tier, &err) == 0 && !exists("step-000000000080.g7"), "is remains when there is a newer one");
	ok(part(three[0], NULL) == 0, "and another one");
	fill(8, 10, 3);
	ok(parts(three, 3, NULL) && join(8, 10, &first) == 0, "a checkpoint of the newest one");
	fill(8, 20, 2);
	ok(part(three[0], first) == 0 && part(three[1], first) == 0, "parts of its next one");
	/* One that a killed agent has begun: a container without a mark. */
	ok(part(three[2], first) == 0, "of which one is not done");
	take_away("step-000000000020.g8/mark.r3.o0");
	make_folder("step-000000000021.g8");
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof name, "step-000000000021.g8/data.%d", i);
		put_text(name, "x");
	}
	ok(tpck_retention_clear(tier, &err) == 0 && !exists("step-000000000080.g7"), "which is remains, too");
	ok(!exists("step-000000000021.g8"), "so is what is nobody's part, however many files it has");
	ok(exists("step-000000000020.g8/data.0") && exists("step-000000000020.g8/mark.r1.o0") && exists("step-000000000020.g8/data.3"),
	   "the newest one's parts stay");
	ok(tpck_retention_remove(tier, &point, true, &err) == 0 && !exists("step-000000000010.g8/MANIFEST") &&
		   exists("step-000000000010.g8/data.0") && exists("step-000000000010.g8/data.1") &&
		   !exists("step-000000000010.g8/data.3"),
	   "and what they refer to, when that is removed");
	ok(tpck_retention_apply(tier, &rules, &err) == 0 && exists("step-000000000010.g8/data.0") &&
		   exists("step-000000000020.g8/mark.r0.o0"),
	   "retention keeps both");
	/* The base's container is gone: what is written now does not refer to it. */
	ok(part(three[2], first) == 0 && join(8, 20, &second) == 0 && tpck_verify(tier, second, &err) == 0,
	   "the last part comes late, and all is whole");
	tpck_manifest_free(first);
	fill(8, 30, 0);
	ok(part(three[0], second) == 0, "a part whose step the others never get to");
	ok(tpck_retention_clear(tier, &err) == 0 && exists("step-000000000030.g8/mark.r0.o0"), "may still be joined");
	fill(8, 40, 1);
	tpck_manifest_free(joined);
	joined = NULL;
	ok(parts(other_three, 3, second) && join(8, 40, &joined) == 0, "until a later one is");
	ok(tpck_retention_apply(tier, &rules, &err) == 0 && !exists("step-000000000030.g8"), "then it is remains");
	ok(!exists("step-000000000020.g8/MANIFEST") && exists("step-000000000020.g8/data.1") && exists("step-000000000040.g8/MANIFEST") &&
		   joined && tpck_verify(tier, joined, &err) == 0,
	   "what the newest refers to stays, on whichever node it was written");
	tpck_manifest_free(second);
	/* All is new: nothing refers to anything older. */
	fill(8, 50, 3);
	ok(parts(three, 3, joined) && join(8, 50, NULL) == 0 && tpck_retention_apply(tier, &rules, &err) == 0 &&
		   !exists("step-000000000020.g8") && !exists("step-000000000040.g8") && exists("step-000000000050.g8/data.3"),
	   "and goes when nothing does");
}

/* For the commands: a store with two joined checkpoints and a part of a third, and one with a manifest that lacks ranks. */
static int make_store(void)
{
	static const struct tpck_point second = {7, 20};
	char *text = NULL;
	size_t size;
	int rc = 1;

	fill(7, 10, 3);
	if (parts(three, 3, NULL) && join(7, 10, &joined) == 0) {
		fill(7, 20, 2);
		rc = !parts(other_three, 3, joined) || join(7, 20, NULL);
		fill(7, 30, 3);
		rc = part(three[0], NULL) || rc;
		tpck_manifest_free(joined);
		joined = NULL;
		fill(7, 20, 3);
		joined = publish_alone(NULL);
	}
	if (!rc && joined) {
		joined->member_count = 3;
		rc = tpck_manifest_format(joined, &text, &size, &err) || alone->operations->remove(alone, "step-000000000020.g7/MANIFEST", &err) ||
		     alone->operations->commit_if_absent(alone, "step-000000000020.g7/MANIFEST", text, size, &err) ||
		     tpck_manifest_load(&joined, alone, &second, &err) != -EBADMSG;
		free(text);
	}
	tpck_folder_remove(memory);
	return rc;
}

int main(int argc, char **argv)
{
	tap_need_shm(256);
	memory = tap_folder("/dev/shm");
	disk = argc > 1 ? argv[1] : tap_folder(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	for (uint32_t r = 0; r < WORLD; r++)
		make_process(r);
	ok(open_tier(&tier, "j") && open_tier(&alone, "k"), "stores");
	if (argc > 1)
		return make_store();
	check_join();
	check_copy();
	check_misfits();
	check_damage();
	check_text();
	make_faulty();
	check_failures();
	/* Processes do not share objects in memory, and no one of them holds another off. */
	if (!OBJECTS) {
		check_kills();
		check_race();
		check_locks();
		check_temporaries();
	}
	check_clear();
	tpck_manifest_free(joined);
	for (uint32_t r = 0; r < WORLD; r++) {
		tpck_image_close(&process[r].image);
		tpck_session_close(process[r].session);
	}
	tpck_tier_close(tier);
	tpck_tier_close(alone);
	tpck_folder_remove(memory);
	tpck_folder_remove(disk);
	return tap_done();
}
