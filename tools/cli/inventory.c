/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting what a job has in memory and on disk. */
#include "config.h"

#include "tools/cli/inventory.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/store/program.h"

/* One that nobody waits for, as in a container without an init, still has its number. */
static bool is_zombie(pid_t pid)
{
	char path[64], line[512], *end;
	bool zombie = false;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	/* "pid (name) state": the name may hold anything. */
	if (fgets(line, sizeof line, file) && (end = strrchr(line, ')')))
		zombie = end[1] == ' ' && (end[2] == 'Z' || end[2] == 'X');
	fclose(file);
	return zombie;
}

bool inventory_alive(const struct tpck_session *session)
{
	pid_t pid = session->control->pid;

	return pid > 0 && atomic_load(&session->control->exit_status) == 0 && (kill(pid, 0) == 0 || errno == EPERM) &&
	       !is_zombie(pid);
}

static struct checkpoint *place_for(struct inventory *inventory, const struct tpck_point *point, uint32_t rank,
				    uint32_t ordinal)
{
	struct checkpoint *grown;

	for (size_t i = 0; i < inventory->count; i++) {
		struct checkpoint *c = &inventory->checkpoints[i];

		if (tpck_point_compare(&c->point, point) == 0 && c->rank == rank && c->ordinal == ordinal)
			return c;
	}
	grown = reallocarray(inventory->checkpoints, inventory->count + 1, sizeof *grown);
	if (!grown)
		return NULL;
	inventory->checkpoints = grown;
	grown = &grown[inventory->count++];
	memset(grown, 0, sizeof *grown);
	grown->point = *point;
	grown->rank = rank;
	grown->ordinal = ordinal;
	return grown;
}

static bool offerable(struct inventory *inventory, const char *memory_job, const char *id, const struct tpck_point *point)
{
	struct tpck_program *program;
	bool allowed;

	if (tpck_program_load_id(&program, memory_job, &inventory->tiers, id, NULL))
		return true;
	allowed = tpck_program_allows(program, point) == TPCK_ALLOWED;
	tpck_program_free(program);
	return allowed;
}

static void add_image(struct inventory *inventory, const struct tpck_session *session, const char *memory_job,
		      const char *path)
{
	const struct tpck_image_header *header;
	struct tpck_image image = {0};
	struct tpck_point point;
	struct checkpoint *c;
	uint32_t state;

	if (tpck_image_open(&image, path, false, NULL))
		return;
	header = image.header;
	state = atomic_load(&image.header->state);
	point = (struct tpck_point){header->generation, header->step};
	if ((state == TPCK_IMAGE_HELD || state == TPCK_IMAGE_COMMITTED) && header->footer == tpck_image_footer(header)) {
		c = place_for(inventory, &point, session->name.rank, session->name.ordinal);
		if (c) {
			c->in_memory = true;
			c->held = true;
			c->committed = c->committed || state == TPCK_IMAGE_COMMITTED;
			c->resumable = header->resumable;
			if (!c->bytes)
				c->bytes = header->data_bytes + header->rows * sizeof(struct tpck_image_row);
			if (header->held_ns)
				c->age_sec = (double)(tpck_clock_monotonic_ns() - header->held_ns) / 1e9;
			if (session->control->status.iteration_ns)
				c->iteration_sec = (double)session->control->status.iteration_ns / 1e9;
			tpck_program_id(session->identity, c->program);
			c->offerable = offerable(inventory, memory_job, c->program, &point);
		}
	}
	tpck_image_close(&image);
}

static void add_memory(struct inventory *inventory, const char *memory_job)
{
	struct tpck_session_name name;
	struct dirent *entry;
	DIR *folder = opendir(memory_job);

	while (folder && (entry = readdir(folder))) {
		struct tpck_session *session, **grown;
		struct tpck_error err = {0};
		char path[TPCK_PATH_MAX];

		if (tpck_session_name_parse(entry->d_name, &name))
			continue;
		if (tpck_session_open(&session, memory_job, entry->d_name, false, &err)) {
			if (err.code != ENOENT)
				fprintf(stderr, "transpckpt: %s\n", err.text);
			continue;
		}
		grown = reallocarray(inventory->sessions, inventory->session_count + 1, sizeof(struct tpck_session *));
		if (!grown) {
			tpck_session_close(session);
			break;
		}
		inventory->sessions = grown;
		inventory->sessions[inventory->session_count++] = session;
		for (unsigned i = 0; i < TPCK_IMAGES_MAX; i++) {
			snprintf(path, sizeof path, "%s/image.%u", session->path, i);
			if (access(path, F_OK) == 0)
				add_image(inventory, session, memory_job, path);
		}
	}
	if (folder)
		closedir(folder);
}

/* What is known of a rank of a stored checkpoint. */
struct stored_rank {
	uint32_t rank, ordinal;
	bool resumable;
	uint64_t iteration_ns;
	char program[TPCK_PROGRAM_ID];
};

static void add_rank(struct inventory *inventory, size_t tier, const struct tpck_manifest *manifest, const struct stored_rank *rank,
		     const char *memory_job)
{
	struct checkpoint *c = place_for(inventory, &manifest->point, rank->rank, rank->ordinal);

	if (!c)
		return;
	c->durable = c->in_tier[tier] = true;
	c->resumable = rank->resumable;
	c->bytes = tpck_manifest_bytes(manifest);
	c->stored_bytes = manifest->stored_bytes;
	if (!c->in_memory || c->age_sec <= 0)
		c->age_sec = (double)(tpck_clock_realtime_ns() - manifest->created_ns) / 1e9;
	if (c->iteration_sec <= 0)
		c->iteration_sec = (double)rank->iteration_ns / 1e9;
	snprintf(c->program, sizeof c->program, "%s", rank->program);
	c->offerable = offerable(inventory, memory_job, c->program, &manifest->point);
}

static void add_durable(struct inventory *inventory, size_t tier, const struct tpck_manifest *manifest,
			const char *memory_job)
{
	/* What the manifest says of parts is enough: their marks are not read. */
	for (size_t i = 0; i < manifest->part_count; i++) {
		const struct tpck_part *part = &manifest->parts[i];

		for (size_t r = 0; r < part->rank_count; r++) {
			struct stored_rank rank = {part->ranks[r].rank, part->ranks[r].ordinal, part->resumable, part->iteration_ns, ""};

			snprintf(rank.program, sizeof rank.program, "%s", part->ranks[r].program);
			add_rank(inventory, tier, manifest, &rank, memory_job);
		}
	}
	for (size_t m = 0; m < manifest->member_count; m++) {
		const struct tpck_member *member = &manifest->members[m];
		struct stored_rank rank = {member->rank, member->ordinal, member->resumable, member->notes.iteration_ns, ""};

		tpck_program_id(member->identity, rank.program);
		add_rank(inventory, tier, manifest, &rank, memory_job);
	}
}

static int oldest_first(const void *a, const void *b)
{
	const struct checkpoint *x = a, *y = b;

	return tpck_point_compare(&x->point, &y->point);
}

static void say(void *context, const struct tpck_point *point, const struct tpck_error *err)
{
	(void)context;
	(void)point;
	fprintf(stderr, "transpckpt: %s\n", err->text);
}

int inventory_load(struct inventory *inventory, struct cli *cli, const char *job, struct tpck_error *err)
{
	char memory_job[TPCK_PATH_MAX];
	int rc;

	memset(inventory, 0, sizeof *inventory);
	if (tpck_path_join(memory_job, sizeof memory_job, cli->shm, job))
		return tpck_error_set(err, ENAMETOOLONG, "opening %s", cli->shm);
	rc = tpck_tiers_open(&inventory->tiers, &cli->settings, job, TPCK_WRITER_THREADS, err);
	if (rc)
		return rc;
	for (size_t t = 0; t < inventory->tiers.count; t++) {
		struct tpck_error one = {0};
		size_t unreadable = 0;

		if (tpck_catalog_load(&inventory->catalog[t], inventory->tiers.tier[t], &unreadable, say, NULL, &one)) {
			/* The others may be all right. */
			if (inventory->tiers.count == 1) {
				*err = one;
				inventory_free(inventory);
				return -one.code;
			}
			fprintf(stderr, "transpckpt: %s\n", one.text);
			unreadable++;
		}
		inventory->unreadable += unreadable;
	}
	add_memory(inventory, memory_job);
	for (size_t t = 0; t < inventory->tiers.count; t++)
		for (size_t i = 0; i < inventory->catalog[t].count; i++)
			add_durable(inventory, t, inventory->catalog[t].manifests[i], memory_job);
	if (inventory->count)
		qsort(inventory->checkpoints, inventory->count, sizeof *inventory->checkpoints, oldest_first);
	return 0;
}

void inventory_free(struct inventory *inventory)
{
	for (size_t i = 0; i < inventory->session_count; i++)
		tpck_session_close(inventory->sessions[i]);
	free(inventory->sessions);
	free(inventory->checkpoints);
	for (size_t t = 0; t < inventory->tiers.count; t++)
		tpck_catalog_free(&inventory->catalog[t]);
	tpck_tiers_close(&inventory->tiers);
}
