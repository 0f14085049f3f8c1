/* SPDX-License-Identifier: Apache-2.0 */
/* What manifests' texts of both formats are made of; for those who read and write them. */
#ifndef TPCK_RUNTIME_STORE_MANIFEST_TEXT_H
#define TPCK_RUNTIME_STORE_MANIFEST_TEXT_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/store/manifest.h"

/* ---- writing ------------------------------------------------------------------------------ */

void tpck_json_add_u64(json_object *to, const char *key, uint64_t value);
void tpck_json_add_text(json_object *to, const char *key, const char *text);
/* The keys that all formats begin with, the digest's digits still zeros. */
json_object *tpck_json_head(const struct tpck_manifest *manifest, int format);
/* Belongs to the object; NULL: no memory. */
const char *tpck_json_line(json_object *json, size_t *size);
/* Puts the digest of the text into it. */
void tpck_text_seal(char *text, size_t size);

/* ---- reading: false for a value that is missing or of another type ------------------------ */

bool tpck_json_get(json_object *from, const char *key, json_type type, json_object **value);
bool tpck_json_u64(json_object *from, const char *key, uint64_t *number);
bool tpck_json_u32(json_object *from, const char *key, uint32_t *number);
bool tpck_json_text(json_object *from, const char *key, char *text, size_t size);
bool tpck_json_digest(json_object *value, uint8_t digest[16]);
/* Whether a text is the one that its digest was taken of. */
bool tpck_json_digest_matches(const char *text, size_t size, json_object *json);
bool tpck_json_read_head(json_object *json, struct tpck_manifest *manifest);
/* Only "step-....g../name": a manifest must not lead out of the job's folder. */
bool tpck_container_path_valid(const char *path);

/* ---- a text that names parts -------------------------------------------------------------- */

int tpck_parts_text_format(const struct tpck_manifest *manifest, char **text, size_t *size, struct tpck_error *err);
/* `part`: what a mark begins with, of one part; *used (may be NULL: nothing may follow) is how much of the text it is.
 * Containers are not listed yet. */
int tpck_parts_text_parse(struct tpck_manifest **manifest, bool part, const char *text, size_t size, const char *name, size_t *used,
			  struct tpck_error *err);
/* Frees what an entry has. */
void tpck_part_clear(struct tpck_part *part);
/* Sorts the parts and lists their containers. */
int tpck_parts_settle(struct tpck_manifest *manifest, struct tpck_error *err);
/* tpck_manifest_ranks() of parts. -ENOMEM, too. */
int tpck_parts_ranks(struct tpck_manifest *manifest, struct tpck_ranks *missing, uint32_t *twice);
/* The head of the mark of a part, whose own text has this digest and size. -ENOMEM. */
int tpck_part_head(struct tpck_manifest **head, const struct tpck_manifest *part, const uint8_t digest[16], size_t size);

#endif
