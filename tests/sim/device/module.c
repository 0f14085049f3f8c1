/* SPDX-License-Identifier: Apache-2.0 */
/* Loads device code, objects and PTX, and points its references to variables at device memory. */
#define _GNU_SOURCE
#include "device/module.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/pseudo.h"
#include "device/ptx.h"

struct module {
	void *handle;
	void (**table)(void);
	struct sim_described *described;
	struct ptx_module *ptx;
	uint32_t n;
};

/* The control thread adds, the launch thread reads: modules are reached through the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct module *modules;
static size_t n_modules;

static int keep(const struct module *m, uint64_t *id)
{
	int e = 0;

	pthread_mutex_lock(&lock);
	struct module *grown = realloc(modules, (n_modules + 1) * sizeof *grown);
	if (grown) {
		modules = grown;
		modules[n_modules] = *m;
		*id = ++n_modules;
	} else {
		e = -ENOMEM;
	}
	pthread_mutex_unlock(&lock);
	return e;
}

int sim_module_describe(int fd, uint64_t bytes, bool ruled, uint64_t *id)
{
	struct module m = { 0 };
	char *image = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);

	if (image == MAP_FAILED)
		return -errno;
	int e = sim_describe(image, bytes, ruled, &m.described, &m.n);
	munmap(image, bytes);
	return e ? e : keep(&m, id);
}

/* 1 if it is no PTX. */
static int load_ptx(int fd, uint64_t bytes, struct module *m)
{
	char *text = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	int e = 1;

	if (text == MAP_FAILED)
		return -errno;
	if (sim_ptx_looks(text, bytes))
		e = ptx_module_new(text, bytes, &m->ptx);
	munmap(text, bytes);
	return e;
}

int sim_module_load(int fd, uint64_t bytes, uint64_t *id)
{
	char path[4096] = "/proc/self/fd/";
	struct module m = { 0 };
	size_t used = strlen(path);
	int e = load_ptx(fd, bytes, &m);

	if (e <= 0)
		return e ? e : keep(&m, id);
	/* The loader takes a path it has seen for the same object, and descriptors come again: every
	 * object gets a way of its own to write its path. */
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_modules && used + 32 < sizeof path; i++, used += 2)
		memcpy(path + used, "./", 2);
	pthread_mutex_unlock(&lock);
	snprintf(path + used, sizeof path - used, "%d", fd);
	m.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!m.handle) {
		fprintf(stderr, "simgpu: cannot load device code: %s\n", dlerror());
		return -ENOEXEC;
	}
	m.table = (void (**)(void))dlsym(m.handle, "simgpu_table");
	if (!m.table) {
		dlclose(m.handle);
		return -ENOEXEC;
	}
	return keep(&m, id);
}

static struct module *find(uint64_t id)
{
	return id && id <= n_modules && (modules[id - 1].handle || modules[id - 1].described || modules[id - 1].ptx) ? &modules[id - 1] : NULL;
}

int sim_module_unload(uint64_t id)
{
	int e = -ENOENT;

	pthread_mutex_lock(&lock);
	struct module *m = find(id);
	if (m) {
		if (m->handle)
			dlclose(m->handle);
		m->handle = NULL;
		m->described = NULL; /* a launch may still read these */
		m->ptx = NULL;
		e = 0;
	}
	pthread_mutex_unlock(&lock);
	return e;
}

bool sim_module_kernel(uint64_t id, uint32_t index, struct sim_code *code)
{
	pthread_mutex_lock(&lock);
	struct module *m = find(id);
	code->entry = m && m->table ? m->table[index] : NULL;
	code->described = m && m->described && index < m->n ? &m->described[index] : NULL;
	code->ptx = m ? m->ptx : NULL;
	pthread_mutex_unlock(&lock);
	return code->entry || code->described || code->ptx;
}

/* Device code reaches its variables through the global offset table, since another object could override them; the slots are where we do. */
static void repoint(const struct link_map *map, const ElfW(Rela) *rela, size_t n, const ElfW(Sym) *symbols,
		    const char *strings, const char *name, uint64_t address)
{
	for (size_t i = 0; i < n; i++) {
		unsigned type = ELF64_R_TYPE(rela[i].r_info);
		const ElfW(Sym) *s = &symbols[ELF64_R_SYM(rela[i].r_info)];

		if ((type == R_X86_64_GLOB_DAT || type == R_X86_64_64) && !strcmp(strings + s->st_name, name)) {
			uint64_t *slot = (uint64_t *)(map->l_addr + rela[i].r_offset);

			*slot = address + (type == R_X86_64_64 ? (uint64_t)rela[i].r_addend : 0);
		}
	}
}

int sim_module_bind(uint64_t id, const char *name, uint64_t address)
{
	pthread_mutex_lock(&lock);
	struct module *m = find(id);
	if (m && m->ptx) {
		int e = ptx_module_bind(m->ptx, name, address);

		pthread_mutex_unlock(&lock);
		return e;
	}
	void *own = m && m->handle ? dlsym(m->handle, name) : NULL;
	struct link_map *map = NULL;
	const ElfW(Rela) *rela = NULL;
	const ElfW(Sym) *symbols = NULL;
	const char *strings = NULL;
	size_t rela_bytes = 0;

	if (!own || dlinfo(m->handle, RTLD_DI_LINKMAP, &map)) {
		pthread_mutex_unlock(&lock);
		return -ENOENT;
	}
	for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++)
		switch (d->d_tag) {
		case DT_RELA:
			rela = (const void *)d->d_un.d_ptr;
			break;
		case DT_RELASZ:
			rela_bytes = d->d_un.d_val;
			break;
		case DT_SYMTAB:
			symbols = (const void *)d->d_un.d_ptr;
			break;
		case DT_STRTAB:
			strings = (const void *)d->d_un.d_ptr;
			break;
		default:
			break;
		}
	if (rela && symbols && strings)
		repoint(map, rela, rela_bytes / sizeof *rela, symbols, strings, name, address);
	pthread_mutex_unlock(&lock);
	return 0;
}

int sim_module_fill(uint64_t id, const char *name, uint64_t address, size_t bytes)
{
	pthread_mutex_lock(&lock);
	struct module *m = find(id);
	void *own = m && m->handle ? dlsym(m->handle, name) : NULL;
	int e = own ? 0 : -ENOENT;

	if (own)
		memcpy((void *)(uintptr_t)address, own, bytes);
	else if (m && m->ptx)
		e = ptx_module_fill(m->ptx, name, address, bytes);
	pthread_mutex_unlock(&lock);
	return e;
}
