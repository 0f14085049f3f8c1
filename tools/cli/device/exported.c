/* SPDX-License-Identifier: Apache-2.0 */
/* Names in the dynamic symbols of an ELF file (elf(5)). */
#include "config.h"

#include "tools/cli/device/exported.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

bool exported_has(const struct exported *exported, const char *name)
{
	return exported->count && bsearch(&name, exported->names, exported->count, sizeof *exported->names, by_name);
}

static bool is_call(const char *name)
{
	return name[0] == 'c' && name[1] == 'u' && isupper((unsigned char)name[2]);
}

void exported_free(struct exported *exported)
{
	for (size_t i = 0; i < exported->count; i++)
		free(exported->names[i]);
	free(exported->names);
	*exported = (struct exported){0};
}

/* The symbols that the table of one section defines. The file is `size` bytes at `file`. */
static void read_symbols(const char *file, size_t size, const Elf64_Shdr *section, const Elf64_Shdr *strings, struct exported *exported)
{
	size_t count = section->sh_size / sizeof(Elf64_Sym);

	if (section->sh_offset > size || section->sh_size > size - section->sh_offset || strings->sh_offset > size ||
	    strings->sh_size > size - strings->sh_offset || !strings->sh_size || file[strings->sh_offset + strings->sh_size - 1])
		return;
	exported->names = calloc(count + 1, sizeof *exported->names);
	for (size_t i = 0; i < count && exported->names; i++) {
		Elf64_Sym symbol;

		memcpy(&symbol, file + section->sh_offset + i * sizeof symbol, sizeof symbol);
		if (symbol.st_shndx == SHN_UNDEF || symbol.st_name >= strings->sh_size || !is_call(file + strings->sh_offset + symbol.st_name))
			continue;
		exported->names[exported->count] = strdup(file + strings->sh_offset + symbol.st_name);
		exported->count += exported->names[exported->count] != NULL;
	}
	if (exported->count)
		qsort(exported->names, exported->count, sizeof *exported->names, by_name);
	else
		exported_free(exported);
}

/* The header of a section by its number. False: it lies outside of the file. */
static bool section_at(const char *file, size_t size, uint64_t table, uint64_t number, Elf64_Shdr *section)
{
	if (table > size || number >= (size - table) / sizeof *section)
		return false;
	memcpy(section, file + table + number * sizeof *section, sizeof *section);
	return true;
}

int exported_parse(const void *bytes, size_t size, struct exported *exported)
{
	const char *file = bytes;
	Elf64_Ehdr head;

	*exported = (struct exported){0};
	if (size < sizeof head)
		return -ENOEXEC;
	memcpy(&head, file, sizeof head);
	for (unsigned i = 0; memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && i < head.e_shnum && !exported->count; i++) {
		Elf64_Shdr section, strings;

		if (!section_at(file, size, head.e_shoff, i, &section))
			break;
		if (section.sh_type == SHT_DYNSYM && section_at(file, size, head.e_shoff, section.sh_link, &strings))
			read_symbols(file, size, &section, &strings, exported);
	}
	return exported->count ? 0 : -ENOEXEC;
}

int exported_read(const char *path, struct exported *exported)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;
	struct stat status;
	void *file;

	*exported = (struct exported){0};
	if (fd < 0)
		return -errno;
	if (fstat(fd, &status) || !status.st_size) {
		close(fd);
		return -ENOEXEC;
	}
	file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (file == MAP_FAILED)
		return -errno;
	rc = exported_parse(file, (size_t)status.st_size, exported);
	munmap(file, (size_t)status.st_size);
	return rc;
}
