/* SPDX-License-Identifier: Apache-2.0 */
/* Names: where sessions, checkpoints, programs and their files lie in the memory tier and the store. */
#ifndef TPCK_RUNTIME_STORE_FILE_NAMES_H
#define TPCK_RUNTIME_STORE_FILE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TPCK_PATH_MAX = 1024, TPCK_NAME_MAX = 256 };

/* A session folder of the memory tier: "g7.r0.o0". */
struct tpck_session_name {
	uint64_t generation;
	uint32_t rank, ordinal;
};
void tpck_session_name_format(const struct tpck_session_name *name, char *text, size_t size);
/* 0, or -EINVAL where text is no such name. */
int tpck_session_name_parse(const char *text, struct tpck_session_name *name);

/* A checkpoint is (generation, step), never a step alone. */
struct tpck_point {
	uint64_t generation, step;
};
/* Newer generation first, then later step: negative where a is older than b. */
int tpck_point_compare(const struct tpck_point *a, const struct tpck_point *b);

/* A checkpoint's folder of the store: "step-000000001234.g7". */
void tpck_checkpoint_name_format(const struct tpck_point *point, char *text, size_t size);
int tpck_checkpoint_name_parse(const char *text, struct tpck_point *point);

/* Whether text can be a job: not empty, no '/', no leading '.', printable, at most 200 bytes. */
bool tpck_job_name_valid(const char *text);

/* The program's id, from its identity text: 16 hexadecimal digits. */
enum { TPCK_PROGRAM_ID = 17 };
void tpck_program_id(const char *identity, char id[TPCK_PROGRAM_ID]);
/* An identity text by its digests, for whoever compares very many of them: of all of it, and the program's id as a number. */
struct tpck_identity_key {
	uint8_t digest[16];
	uint64_t program;
};
void tpck_identity_key(const char *identity, struct tpck_identity_key *key);

/* "a/b", cut never: 0, or -ENAMETOOLONG. */
int tpck_path_join(char *path, size_t size, const char *folder, const char *name);

#endif
