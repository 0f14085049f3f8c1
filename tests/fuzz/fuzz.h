/* SPDX-License-Identifier: Apache-2.0 */
/* What each fuzz target is, and what targets take out of an input. */
#ifndef TPCK_TESTS_FUZZ_FUZZ_H
#define TPCK_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* libFuzzer's entry (https://llvm.org/docs/LibFuzzer.html): one input, which lies in memory of just its size. 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is left of an input. */
struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

static inline uint8_t fuzz_byte(struct fuzz_input *input)
{
	return input->left ? (input->left--, *input->at++) : 0;
}

static inline uint16_t fuzz_short(struct fuzz_input *input)
{
	uint16_t low = fuzz_byte(input);

	return (uint16_t)(low | fuzz_byte(input) << 8);
}

/* A copy of the next bytes, `count` or what is left, in memory of just that size, which the caller frees. */
static inline void *fuzz_bytes(struct fuzz_input *input, size_t count, size_t *got)
{
	void *copy;

	*got = count < input->left ? count : input->left;
	copy = malloc(*got ? *got : 1);
	if (!copy)
		abort();
	if (*got)
		memcpy(copy, input->at, *got);
	input->at += *got;
	input->left -= *got;
	return copy;
}

/* The same with a NUL behind it. A text that has one inside ends there. */
static inline char *fuzz_text(struct fuzz_input *input, size_t count)
{
	size_t got = count < input->left ? count : input->left;
	char *text = malloc(got + 1), *exact;

	if (!text)
		abort();
	if (got)
		memcpy(text, input->at, got);
	text[got] = '\0';
	input->at += got;
	input->left -= got;
	exact = strdup(text);
	free(text);
	if (!exact)
		abort();
	return exact;
}

/* The texts of an input, with this byte between two of them: the next one, or NULL. The caller frees it. */
static inline char *fuzz_line(struct fuzz_input *input, char between)
{
	const uint8_t *end;
	char *text;

	if (!input->left)
		return NULL;
	end = memchr(input->at, between, input->left);
	text = fuzz_text(input, end ? (size_t)(end - input->at) : input->left);
	(void)fuzz_byte(input);
	return text;
}

/* What must hold, or the target ends as by a sanitizer. */
#define FUZZ_HOLDS(what) ((what) ? (void)0 : abort())

#endif
