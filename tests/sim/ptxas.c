/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands for the vendor's assembler: takes its command line and puts the PTX, as it is, into a cubin that simgpu's driver
 * knows. The device interprets the text.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cubin.h"
#include "ptx_text.h"

static int fail(const char *what, const char *which)
{
	fprintf(stderr, "ptxas (simgpu): %s %s\n", what, which);
	return 1;
}

static char *contents(const char *path, size_t *bytes)
{
	FILE *f = fopen(path, "rbe");
	char *text = NULL;
	size_t n = 0, room = 0, got = 1;

	while (f && got) {
		if (n + 4096 > room) {
			char *grown = realloc(text, room = 2 * room + 8192);

			if (!grown)
				break;
			text = grown;
		}
		got = fread(text + n, 1, room - n - 1, f);
		n += got;
	}
	if (f)
		fclose(f);
	if (text)
		text[n] = 0;
	*bytes = n;
	return text;
}

static int write_cubin(const char *path, const char *text, size_t bytes)
{
	struct sim_cubin cubin = sim_cubin_of_ptx(bytes);
	FILE *f = fopen(path, "wbe");

	if (!f)
		return fail("cannot write", path);
	size_t written = fwrite(&cubin, sizeof cubin, 1, f) + fwrite(text, 1, bytes, f);
	return fclose(f) || written != 1 + bytes ? fail("cannot write", path) : 0;
}

int main(int argc, char **argv)
{
	const char *from = NULL, *to = "elf.o";
	struct sim_ptx_text t;
	size_t bytes;

	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--version") || !strcmp(argv[i], "-V")) {
			printf("ptxas: simgpu's stand-in\nCuda compilation tools, release 13.2, V13.2.0\n");
			return 0;
		} else if ((!strcmp(argv[i], "-o") || !strcmp(argv[i], "--output-file")) && i + 1 < argc) {
			to = argv[++i];
		} else if (!strcmp(argv[i], "--opt-level") || !strcmp(argv[i], "-O") || !strcmp(argv[i], "-arch") || !strcmp(argv[i], "--gpu-name")) {
			i++;
		} else if (argv[i][0] != '-') {
			from = argv[i];
		}
	if (!from)
		return fail("no input", "file");
	char *text = contents(from, &bytes);
	if (!text)
		return fail("cannot read", from);
	int r = sim_ptx_looks(text, bytes) && !sim_ptx_read(&t, text, bytes) ? 0 : fail("no PTX:", from);
	if (!r) {
		sim_ptx_text_free(&t);
		r = write_cubin(to, text, bytes);
	}
	free(text);
	return r;
}
