/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library may carry the vendor's runtime in itself, as CuPy's do, and that asks the driver for tables which only the vendor knows.
 * When such a library is loaded, its copies of the runtime's functions are made to jump to simgpu's of the same name; they are
 * found in its symbol table. What its constructors register before that is lost: kernels that are compiled into it cannot be
 * launched.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t jump[] = { 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0 }; /* movabs $..., %rax; jmp *%rax */

static bool of_the_runtime(const char *name)
{
	/* Not what constructors and destructors call: they have been with the other runtime, and stay there. */
	return !strncmp(name, "cuda", 4);
}

static void redirect(char *from, const void *to)
{
	uintptr_t page = (uintptr_t)from & ~(uintptr_t)4095, end = (uintptr_t)from + sizeof jump;
	uint8_t code[sizeof jump];

	memcpy(code, jump, sizeof jump);
	memcpy(code + 2, &to, sizeof to);
	if (mprotect((void *)page, end - page, PROT_READ | PROT_WRITE | PROT_EXEC)) {
		perror("simgpu: redirecting a runtime");
		return;
	}
	memcpy(from, code, sizeof code);
	mprotect((void *)page, end - page, PROT_READ | PROT_EXEC);
}

static void each_function(const char *file, size_t bytes, char *loaded, void *runtime)
{
	const Elf64_Ehdr *h = (const void *)file;
	const Elf64_Shdr *s = (const void *)(file + h->e_shoff);

	if (bytes < sizeof *h || memcmp(h->e_ident, ELFMAG, SELFMAG) || !h->e_shoff || h->e_shoff + h->e_shnum * sizeof *s > bytes)
		return;
	for (unsigned i = 0; i < h->e_shnum; i++) {
		if (s[i].sh_type != SHT_SYMTAB || s[i].sh_link >= h->e_shnum)
			continue;
		const Elf64_Sym *symbol = (const void *)(file + s[i].sh_offset), *last = symbol + s[i].sh_size / sizeof *symbol;
		const char *names = file + s[s[i].sh_link].sh_offset;

		for (; symbol < last; symbol++) {
			const char *name = names + symbol->st_name;
			/* What is exported is bound by name, to simgpu's first. */
			bool own = ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && ELF64_ST_BIND(symbol->st_info) == STB_LOCAL;
			const void *to = own && symbol->st_size >= sizeof jump && of_the_runtime(name) ? dlsym(runtime, name) : NULL;

			if (to)
				redirect(loaded + symbol->st_value, to);
		}
	}
}

static void look_at(void *handle)
{
	static void *runtime;
	struct link_map *map;
	struct stat st;

	if (!runtime)
		runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
	if (!runtime || dlinfo(handle, RTLD_DI_LINKMAP, &map) || !map->l_name || !map->l_name[0])
		return;
	/* simgpu's own, or another one that the program asked for by name. */
	if (strstr(map->l_name, "/libcudart.so"))
		return;
	int fd = open(map->l_name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	char *file = fstat(fd, &st) ? MAP_FAILED : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (file == MAP_FAILED)
		return;
	each_function(file, (size_t)st.st_size, (char *)map->l_addr, runtime);
	munmap(file, (size_t)st.st_size);
}

static void *(*next)(const char *, int);

static void *opened(const char *name, int flags)
{
	static __thread bool inside;
	void *handle = next(name, flags);

	if (handle && !inside) {
		inside = true;
		look_at(handle);
		inside = false;
	}
	return handle;
}

/* A name without a slash is looked for where the caller's object says: for libc that must be the caller, by a tail call. */
__attribute__((visibility("default"))) void *dlopen(const char *name, int flags)
{
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "dlopen");
	return name && strchr(name, '/') ? opened(name, flags) : next(name, flags);
}
