/* SPDX-License-Identifier: Apache-2.0 */
/* What an image holds, by class of blocks and role of tensors. */
#include "config.h"

#include "tools/cli/state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/infer/roles.h"
#include "runtime/store/verify.h"

/* Blocks of a class; of them what tensors with a role take; index 0 of these is what has none. */
struct tally {
	uint64_t blocks, bytes;
	struct {
		uint64_t tensors, bytes;
	} role[TPCK_TENSOR_ROLES];
};

const char *state_class_name(uint32_t class_)
{
	static const char *const names[TPCK_CLASSES] = {"unknown", "constant", "optimizer", "early", "dead", ""};

	return class_ < TPCK_CLASSES ? names[class_] : "";
}

static const struct tpck_image_row *rows_of(const struct state *state)
{
	return state->index;
}

static const struct tpck_image_tensor *tensors_of(const struct state *state)
{
	return (const void *)(rows_of(state) + state->rows);
}

static const struct tpck_image_optimizer *optimizers_of(const struct state *state)
{
	return (const void *)(tensors_of(state) + state->tensors);
}

static const struct tpck_image_communicator *communicators_of(const struct state *state)
{
	return (const void *)(optimizers_of(state) + state->optimizers);
}

static const struct tpck_image_peer *peers_of(const struct state *state)
{
	return (const void *)(communicators_of(state) + state->communicators);
}

/* ---- reading ------------------------------------------------------------------------------ */

/* The image is shared with its writer, who may begin to fill it anew at any time: what was copied counts if the image
 * is the same before and behind. */
static bool image_index(struct state *state, const char *path)
{
	struct tpck_image image = {0};
	struct tpck_image_header header;
	uint64_t bytes;
	bool good = false;

	if (tpck_image_open(&image, path, false, NULL))
		return false;
	memcpy(&header, image.header, sizeof header);
	bytes = tpck_image_index_bytes(&header);
	if ((header.state == TPCK_IMAGE_HELD || header.state == TPCK_IMAGE_COMMITTED) &&
	    header.footer == tpck_image_footer(&header) && header.step >= state->step &&
	    bytes <= TPCK_IMAGE_DATA_AT - TPCK_IMAGE_INDEX_AT) {
		void *index = malloc(bytes + 1);

		if (index)
			memcpy(index, tpck_image_rows(&image), bytes);
		atomic_thread_fence(memory_order_acquire);
		good = index && image.header->footer == header.footer && image.header->step == header.step &&
		       (atomic_load(&image.header->state) == TPCK_IMAGE_HELD ||
			atomic_load(&image.header->state) == TPCK_IMAGE_COMMITTED);
		if (good) {
			free(state->index);
			*state = (struct state){header.step, header.rows, header.tensors, header.optimizers,
						header.communicators, header.peers, index};
		} else {
			free(index);
		}
	}
	tpck_image_close(&image);
	return good;
}

bool state_of_session(struct state *state, const struct tpck_session *session)
{
	char path[TPCK_PATH_MAX];
	bool found = false;

	*state = (struct state){0};
	for (unsigned i = 0; i < TPCK_IMAGES_MAX; i++) {
		snprintf(path, sizeof path, "%s/image.%u", session->path, i);
		if (access(path, F_OK) == 0 && image_index(state, path))
			found = true;
	}
	return found;
}

bool state_of_manifest(struct state *state, struct tpck_tier *tier, const struct tpck_manifest *manifest)
{
	const struct tpck_member *member = &manifest->members[0];
	const struct tpck_object *index = member->objects;
	struct tpck_error err = {0};
	uint8_t *bytes = NULL, *buffer = NULL;
	int rc = 0;

	if (member->image_version != TPCK_WIRE_VERSION || member->object_count == 0 || index->kind != TPCK_OBJECT_INDEX ||
	    !tpck_member_index_fits(member) ||
	    index->bytes != tpck_member_index_bytes(member)) {
		fprintf(stderr, "transpckpt: step %" PRIu64 " has an index of another version\n", manifest->point.step);
		return false;
	}
	bytes = malloc(index->bytes + 1);
	buffer = aligned_alloc(4096, TPCK_CHUNK_BYTES);
	if (!bytes || !buffer)
		rc = tpck_error_set(&err, ENOMEM, "reading the index of step %" PRIu64, manifest->point.step);
	for (size_t i = 0; !rc && i < index->count; i++) {
		rc = tpck_verify_chunk(tier, manifest, index, i, buffer, &err);
		if (!rc)
			memcpy(bytes + i * (uint64_t)TPCK_CHUNK_BYTES, buffer, index->chunks[i].length);
	}
	free(buffer);
	if (rc) {
		fprintf(stderr, "transpckpt: %s\n", err.text);
		free(bytes);
		return false;
	}
	*state = (struct state){manifest->point.step, (uint32_t)member->rows, (uint32_t)member->tensors,
				(uint32_t)member->optimizers, (uint32_t)member->communicators,
				(uint32_t)member->peers, bytes};
	return true;
}

void state_free(struct state *state)
{
	free(state->index);
	*state = (struct state){0};
}

/* ---- showing ------------------------------------------------------------------------------ */

static void count(const struct state *state, struct tally tally[TPCK_CLASSES])
{
	const struct tpck_image_row *rows = rows_of(state);
	const struct tpck_image_tensor *tensors = tensors_of(state);

	memset(tally, 0, TPCK_CLASSES * sizeof *tally);
	for (uint32_t i = 0; i < state->rows; i++) {
		struct tally *of = &tally[rows[i].class_ < TPCK_CLASSES ? rows[i].class_ : TPCK_CLASS_UNKNOWN];

		of->blocks++;
		of->bytes += rows[i].bytes;
		of->role[TPCK_TENSOR_NONE].bytes += rows[i].bytes;
	}
	for (uint32_t i = 0; i < state->tensors; i++) {
		uint32_t class_ = tensors[i].row < state->rows ? rows[tensors[i].row].class_ : TPCK_CLASSES;
		uint64_t bytes = tensors[i].elements * (tensors[i].element >> 8);

		if (class_ >= TPCK_CLASSES || tensors[i].role >= TPCK_TENSOR_ROLES)
			continue;
		tally[class_].role[tensors[i].role].tensors++;
		tally[class_].role[tensors[i].role].bytes += bytes;
		tally[class_].role[TPCK_TENSOR_NONE].bytes -= bytes;
	}
}

static const char *const scalar_names[TPCK_SCALARS] = {"lr",   "beta1",     "beta2",      "eps",      "weight_decay", "momentum",
						       "step", "step_size", "grad_scale", "found_inf"};

static void print_optimizer(const struct tpck_image_optimizer *optimizer, uint32_t number)
{
	printf("  optimizer %u: %.*s", number, (int)sizeof optimizer->family, optimizer->family);
	if (optimizer->parameters)
		printf(", %u tensor%s", optimizer->parameters, optimizer->parameters == 1 ? "" : "s");
	for (int i = 0; i < TPCK_SCALARS; i++)
		if (optimizer->known & 1u << i)
			printf(", %s %.7g", scalar_names[i], optimizer->scalar[i]);
	putchar('\n');
}

void state_print(const struct state *state)
{
	struct tally tally[TPCK_CLASSES];

	count(state, tally);
	printf("  state of step %" PRIu64 ":\n", state->step);
	for (int class_ = 0; class_ < TPCK_CLASSES; class_++) {
		if (!tally[class_].blocks)
			continue;
		printf("    %-10s %8" PRIu64 " blocks   %10s\n", state_class_name((uint32_t)class_), tally[class_].blocks,
		       cli_bytes(tally[class_].bytes));
		for (uint32_t role = 1; role < TPCK_TENSOR_ROLES; role++)
			if (tally[class_].role[role].tensors)
				printf("      %-16s %4" PRIu64 " tensors  %10s\n", tpck_tensor_role_name(role),
				       tally[class_].role[role].tensors, cli_bytes(tally[class_].role[role].bytes));
		if (tally[class_].role[TPCK_TENSOR_NONE].bytes != tally[class_].bytes)
			printf("      %-30s %10s\n", "without a role", cli_bytes(tally[class_].role[TPCK_TENSOR_NONE].bytes));
	}
	for (uint32_t i = 0; i < state->optimizers; i++)
		print_optimizer(&optimizers_of(state)[i], i);
	for (uint32_t i = 0; i < state->communicators; i++) {
		const struct tpck_image_communicator *c = &communicators_of(state)[i];

		printf("    communicator %" PRIu32 ": rank %" PRIu32 " of %" PRIu32 ", %" PRIu64 " collectives\n", c->index, c->rank,
		       c->size, c->collectives);
	}
}

static json_object *tally_json(const struct tally *tally)
{
	json_object *json = json_object_new_object(), *roles = json_object_new_object();

	json_object_object_add(json, "blocks", json_object_new_uint64(tally->blocks));
	json_object_object_add(json, "bytes", json_object_new_uint64(tally->bytes));
	for (uint32_t role = 1; role < TPCK_TENSOR_ROLES; role++) {
		json_object *one;

		if (!tally->role[role].tensors)
			continue;
		one = json_object_new_object();
		json_object_object_add(one, "tensors", json_object_new_uint64(tally->role[role].tensors));
		json_object_object_add(one, "bytes", json_object_new_uint64(tally->role[role].bytes));
		json_object_object_add(roles, tpck_tensor_role_name(role), one);
	}
	json_object_object_add(json, "roles", roles);
	json_object_object_add(json, "without_role", json_object_new_uint64(tally->role[TPCK_TENSOR_NONE].bytes));
	return json;
}

static json_object *tensors_json(const struct state *state)
{
	json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < state->tensors; i++) {
		const struct tpck_image_tensor *tensor = &tensors_of(state)[i];
		json_object *json = json_object_new_object();
		char type[8];

		snprintf(type, sizeof type, "%c%u", (char)tensor->element, (tensor->element >> 8) & 255);
		json_object_object_add(json, "address", json_object_new_uint64(tensor->address));
		json_object_object_add(json, "elements", json_object_new_uint64(tensor->elements));
		json_object_object_add(json, "type", json_object_new_string(type));
		json_object_object_add(json, "role", json_object_new_string(tpck_tensor_role_name(tensor->role)));
		json_object_object_add(json, "optimizer", json_object_new_int64(tensor->optimizer));
		json_object_object_add(json, "position", json_object_new_int64(tensor->position));
		json_object_array_add(list, json);
	}
	return list;
}

static json_object *communicators_json(const struct state *state)
{
	json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < state->communicators; i++) {
		const struct tpck_image_communicator *from = &communicators_of(state)[i];
		json_object *one = json_object_new_object(), *peers = json_object_new_array();
		char id[17];

		snprintf(id, sizeof id, "%016" PRIx64, from->id);
		json_object_object_add(one, "id", json_object_new_string(id));
		json_object_object_add(one, "index", json_object_new_int64(from->index));
		json_object_object_add(one, "size", json_object_new_int64(from->size));
		json_object_object_add(one, "rank", json_object_new_int64(from->rank));
		json_object_object_add(one, "collectives", json_object_new_uint64(from->collectives));
		for (uint32_t p = 0; p < state->peers; p++) {
			const struct tpck_image_peer *peer = &peers_of(state)[p];
			json_object *row;

			if (peer->communicator != i)
				continue;
			row = json_object_new_object();
			json_object_object_add(row, "peer", json_object_new_int64(peer->peer));
			json_object_object_add(row, "sends", json_object_new_uint64(peer->sends));
			json_object_object_add(row, "receives", json_object_new_uint64(peer->receives));
			json_object_array_add(peers, row);
		}
		json_object_object_add(one, "peers", peers);
		json_object_array_add(list, one);
	}
	return list;
}

json_object *state_json(const struct state *state)
{
	struct tally tally[TPCK_CLASSES];
	json_object *json = json_object_new_object(), *classes = json_object_new_object(),
		    *optimizers = json_object_new_array();

	count(state, tally);
	json_object_object_add(json, "step", json_object_new_uint64(state->step));
	for (int class_ = 0; class_ < TPCK_CLASSES; class_++)
		if (tally[class_].blocks)
			json_object_object_add(classes, state_class_name((uint32_t)class_), tally_json(&tally[class_]));
	json_object_object_add(json, "classes", classes);
	for (uint32_t i = 0; i < state->optimizers; i++) {
		const struct tpck_image_optimizer *optimizer = &optimizers_of(state)[i];
		json_object *one = json_object_new_object();

		json_object_object_add(one, "family", json_object_new_string_len(optimizer->family,
			(int)strnlen(optimizer->family, sizeof optimizer->family)));
		json_object_object_add(one, "parameters", json_object_new_int64(optimizer->parameters));
		for (int s = 0; s < TPCK_SCALARS; s++)
			if (optimizer->known & 1u << s)
				json_object_object_add(one, scalar_names[s], json_object_new_double(optimizer->scalar[s]));
		json_object_array_add(optimizers, one);
	}
	json_object_object_add(json, "optimizers", optimizers);
	json_object_object_add(json, "tensors", tensors_json(state));
	json_object_object_add(json, "communicators", communicators_json(state));
	return json;
}
