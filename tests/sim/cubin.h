/* SPDX-License-Identifier: Apache-2.0 */
/* What stands for the vendor's assembler and linker gives a cubin that simgpu's driver knows: it holds PTX as it is. */
#ifndef TESTS_SIM_CUBIN_H
#define TESTS_SIM_CUBIN_H

#include <elf.h>
#include <string.h>

#include "image.h"

#define SIM_EM_CUDA 190

struct sim_cubin {
	Elf64_Ehdr header;
	Elf64_Shdr section[3];
	char names[32];
};

/* What stands before a text of so many bytes. */
static inline struct sim_cubin sim_cubin_of_ptx(size_t bytes)
{
	static const char names[] = "\0.shstrtab\0" SIMGPU_PTX_SECTION;
	struct sim_cubin cubin = { .header = { .e_type = ET_EXEC, .e_machine = SIM_EM_CUDA, .e_version = EV_CURRENT,
					       .e_ehsize = sizeof(Elf64_Ehdr), .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 3, .e_shstrndx = 1 } };

	memcpy(cubin.header.e_ident, ELFMAG, SELFMAG);
	cubin.header.e_ident[EI_CLASS] = ELFCLASS64;
	cubin.header.e_ident[EI_DATA] = ELFDATA2LSB;
	cubin.header.e_ident[EI_VERSION] = EV_CURRENT;
	cubin.header.e_shoff = sizeof cubin.header;
	memcpy(cubin.names, names, sizeof names);
	cubin.section[1] = (Elf64_Shdr){ .sh_name = 1, .sh_type = SHT_STRTAB, .sh_size = sizeof names, .sh_addralign = 1 };
	cubin.section[1].sh_offset = sizeof cubin.header + sizeof cubin.section;
	cubin.section[2] = (Elf64_Shdr){ .sh_name = 11, .sh_type = SHT_PROGBITS, .sh_offset = sizeof cubin, .sh_size = bytes, .sh_addralign = 1 };
	return cubin;
}

#endif
