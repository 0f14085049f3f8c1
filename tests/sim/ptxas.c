/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands for the vendor's assembler: takes its command line and puts the PTX, as it is, into a cubin that simgpu's driver
 * knows. The device interprets the text.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "ptx_text.h"

#define EM_CUDA 190

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
	static const char names[] = "\0.shstrtab\0" SIMGPU_PTX_SECTION;
	struct {
		Elf64_Ehdr header;
		Elf64_Shdr section[3];
		char names[32];
	} cubin = { .header = { .e_type = ET_EXEC, .e_machine = EM_CUDA, .e_version = EV_CURRENT, .e_ehsize = sizeof(Elf64_Ehdr),
				.e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 3, .e_shstrndx = 1 } };
	FILE *f = fopen(path, "wbe");

	memcpy(cubin.header.e_ident, ELFMAG, SELFMAG);
	cubin.header.e_ident[EI_CLASS] = ELFCLASS64;
	cubin.header.e_ident[EI_DATA] = ELFDATA2LSB;
	cubin.header.e_ident[EI_VERSION] = EV_CURRENT;
	cubin.header.e_shoff = sizeof cubin.header;
	memcpy(cubin.names, names, sizeof names);
	cubin.section[1] = (Elf64_Shdr){ .sh_name = 1, .sh_type = SHT_STRTAB, .sh_size = sizeof names, .sh_addralign = 1 };
	cubin.section[1].sh_offset = sizeof cubin.header + sizeof cubin.section;
	cubin.section[2] = (Elf64_Shdr){ .sh_name = 11, .sh_type = SHT_PROGBITS, .sh_offset = sizeof cubin, .sh_size = bytes, .sh_addralign = 1 };
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
