/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a fuzz target files and folders of inputs, where no libFuzzer does. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A sanitizer ends the program; the address sanitizer counts what is not freed at the end. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=1:allocator_may_return_null=1";
}

const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
	return "print_stacktrace=1";
}

#ifndef TPCK_LIBFUZZER

static unsigned long inputs;

static int run_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *bytes;
	struct stat found;
	size_t got;

	if (!file || fstat(fileno(file), &found)) {
		perror(path);
		return 1;
	}
	/* Of its size exactly, so that a byte too many is noticed. */
	bytes = malloc((size_t)found.st_size);
	got = bytes ? fread(bytes, 1, (size_t)found.st_size, file) : 0;
	fclose(file);
	if (!bytes || got != (size_t)found.st_size) {
		perror(path);
		return 1;
	}
	/* The last line of a target that crashes says which one it was. */
	fprintf(stderr, "%s\n", path);
	LLVMFuzzerTestOneInput(bytes, got);
	inputs++;
	free(bytes);
	return 0;
}

static int run(const char *path)
{
	struct dirent **list;
	struct stat found;
	int count, failed = 0;

	if (stat(path, &found)) {
		perror(path);
		return 1;
	}
	if (!S_ISDIR(found.st_mode))
		return run_file(path);
	count = scandir(path, &list, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		char inner[4096];

		snprintf(inner, sizeof inner, "%s/%s", path, list[i]->d_name);
		if (list[i]->d_name[0] != '.')
			failed |= run(inner);
		free(list[i]);
	}
	if (count >= 0)
		free(list);
	return failed;
}

int main(int argc, char *argv[])
{
	int failed = 0;

	for (int i = 1; i < argc; i++)
		failed |= run(argv[i]);
	printf("%lu inputs\n", inputs);
	return failed || !inputs;
}

#endif
