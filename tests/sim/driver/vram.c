/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: one sparse file in granules of 2 MiB, and the address space through which host and device see it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/sim.h"

#define LEAF_BITS 13
#define LEAF (1u << LEAF_BITS)
#define HIGH_BASE 0x200000000000ull
#define LOW_BASE 0x1000000000ull
#define LOW_SPAN 0x8000000000ull

static int vram_fd = -1;
static char *alias;            /* all of device memory; an address nobody outside knows */
static struct {
	uint32_t *granule;  /* free ones: a stack, so that memory comes back with its old contents */
	uint64_t n_free;
	uint64_t own_bytes; /* exportable memory counts as device memory */
} part[SIM_DEVICES]; /* each device's of it */
static struct sim_page *directory[LEAF];
static uint64_t cursor;

int sim_vram_start(void)
{
	uint64_t n = sim_settings.memory >> SIM_PAGE_SHIFT, bytes = sim_settings.memory * (uint64_t)sim_settings.devices, r = 0;

	vram_fd = memfd_create("simgpu-vram", MFD_CLOEXEC);
	if (vram_fd < 0 || ftruncate(vram_fd, (off_t)bytes))
		return -errno;
	alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, vram_fd, 0);
	if (alias == MAP_FAILED)
		return -errno;
	/* A crash dump of the host holds no device memory, a forked child sees none of it. */
	madvise(alias, bytes, MADV_DONTDUMP);
	madvise(alias, bytes, MADV_DONTFORK);
	for (int d = 0; d < sim_settings.devices; d++) {
		part[d].granule = calloc(n, sizeof *part[d].granule);
		if (!part[d].granule)
			return -ENOMEM;
		for (uint64_t i = 0; i < n; i++)
			part[d].granule[i] = (uint32_t)((uint64_t)d * n + n - 1 - i);
		part[d].n_free = n;
	}
	/* As on hardware, where the driver's own heap lies differs from process to process. */
	if (getrandom(&r, sizeof r, GRND_NONBLOCK) != (ssize_t)sizeof r)
		r = sim_now();
	cursor = HIGH_BASE + (r % 0x80000) * (SIM_PAGE * 4);
	return sim_remote_start(vram_fd);
}

uint64_t sim_vram_free_bytes(int device)
{
	uint64_t f = part[device].n_free << SIM_PAGE_SHIFT, own = part[device].own_bytes;

	return f > own ? f - own : 0;
}

struct sim_phys *sim_phys_create(int device, uint64_t bytes, bool exportable)
{
	uint64_t pages = (bytes + SIM_PAGE - 1) >> SIM_PAGE_SHIFT;

	if (pages << SIM_PAGE_SHIFT > sim_vram_free_bytes(device))
		return NULL;
	struct sim_phys *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->refs = 1;
	p->device = device;
	p->fd = -1;
	p->bytes = pages << SIM_PAGE_SHIFT;
	p->pages = pages;
	if (exportable) {
		p->fd = memfd_create("simgpu-shared", MFD_CLOEXEC);
		if (p->fd < 0 || ftruncate(p->fd, (off_t)p->bytes))
			goto fail;
		p->alias = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, p->fd, 0);
		if (p->alias == MAP_FAILED)
			goto fail;
		part[device].own_bytes += p->bytes;
		return p;
	}
	p->granule = malloc(pages * sizeof *p->granule);
	if (!p->granule)
		goto fail;
	for (uint64_t i = 0; i < pages; i++)
		p->granule[i] = part[device].granule[--part[device].n_free];
	return p;
fail:
	if (p->fd >= 0)
		close(p->fd);
	free(p);
	return NULL;
}

struct sim_phys *sim_phys_import(int fd)
{
	struct sim_phys *p = calloc(1, sizeof *p);
	struct stat st;

	if (!p)
		return NULL;
	p->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (p->fd < 0 || fstat(p->fd, &st) || st.st_size == 0 || st.st_size % (off_t)SIM_PAGE)
		goto fail;
	p->refs = 1;
	p->bytes = (uint64_t)st.st_size;
	p->pages = p->bytes >> SIM_PAGE_SHIFT;
	p->alias = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, p->fd, 0);
	if (p->alias == MAP_FAILED)
		goto fail;
	return p;
fail:
	if (p->fd >= 0)
		close(p->fd);
	free(p);
	return NULL;
}

void sim_phys_unref(struct sim_phys *p)
{
	if (!p || --p->refs)
		return;
	if (p->granule) {
		for (uint64_t i = p->pages; i > 0; i--)
			part[p->device].granule[part[p->device].n_free++] = p->granule[i - 1];
		free(p->granule);
	} else {
		munmap(p->alias, p->bytes);
		close(p->fd);
		part[p->device].own_bytes -= part[p->device].own_bytes < p->bytes ? part[p->device].own_bytes : p->bytes;
	}
	/* What was handed out as a handle stays recognisable as stale. */
	if (!p->magic)
		free(p);
	else
		p->magic = 0;
}

struct sim_page *sim_page(uint64_t va)
{
	uint64_t page = va >> SIM_PAGE_SHIFT;

	if (page >> (2 * LEAF_BITS))
		return NULL;
	struct sim_page *leaf = directory[page >> LEAF_BITS];
	return leaf ? &leaf[page & (LEAF - 1)] : NULL;
}

static struct sim_page *page_make(uint64_t va)
{
	uint64_t page = va >> SIM_PAGE_SHIFT;

	if (page >> (2 * LEAF_BITS))
		return NULL;
	struct sim_page **leaf = &directory[page >> LEAF_BITS];
	if (!*leaf)
		*leaf = calloc(LEAF, sizeof **leaf);
	return *leaf ? &(*leaf)[page & (LEAF - 1)] : NULL;
}

bool sim_is_device_va(uint64_t va)
{
	struct sim_page *p = sim_page(va);

	return p && p->alias;
}

static uint64_t reserve_at(uint64_t bytes, uint64_t hint)
{
	void *at = mmap((void *)(uintptr_t)hint, bytes, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (at == MAP_FAILED)
		return 0;
	if ((uint64_t)(uintptr_t)at != hint) {
		munmap(at, bytes);
		return 0;
	}
	return hint;
}

uint64_t sim_va_reserve(uint64_t bytes, uint64_t align, uint64_t hint, bool exact)
{
	uint64_t va = 0;

	if (align < SIM_PAGE)
		align = SIM_PAGE;
	if (hint && hint % align == 0)
		va = reserve_at(bytes, hint);
	if (va || exact)
		return va;
	for (int i = 0; i < 64 && !va; i++) {
		/* ThreadSanitizer keeps the middle of the address space for itself. */
		if (i == 8 && cursor > HIGH_BASE)
			cursor = LOW_BASE + (cursor - HIGH_BASE) % LOW_SPAN;
		cursor = (cursor + align - 1) / align * align;
		va = reserve_at(bytes, cursor);
		cursor += bytes + SIM_PAGE;
	}
	return va;
}

void sim_va_release(uint64_t va, uint64_t bytes)
{
	munmap((void *)(uintptr_t)va, bytes);
}

void sim_va_note(uint64_t va, uint64_t bytes, struct sim_phys *p, uint64_t offset)
{
	for (uint64_t at = 0; at < bytes; at += SIM_PAGE) {
		struct sim_page *page = page_make(va + at);
		uint64_t i = (offset + at) >> SIM_PAGE_SHIFT;

		if (!page)
			return;
		page->alias = p->granule ? alias + ((uint64_t)p->granule[i] << SIM_PAGE_SHIFT) : p->alias + (i << SIM_PAGE_SHIFT);
		page->prot = PROT_NONE;
	}
}

static int remote_map(uint64_t va, uint64_t bytes, struct sim_phys *p, uint64_t offset, int prot)
{
	if (!p->granule)
		return sim_remote_map_file(va, bytes, offset, prot, p->fd);
	uint64_t first = offset >> SIM_PAGE_SHIFT, n = bytes >> SIM_PAGE_SHIFT;
	for (uint64_t i = 0, k; i < n; i += k) {
		for (k = 1; i + k < n && p->granule[first + i + k] == p->granule[first + i] + k; k++)
			;
		int e = sim_remote_map_vram(va + (i << SIM_PAGE_SHIFT), k << SIM_PAGE_SHIFT,
					    (uint64_t)p->granule[first + i] << SIM_PAGE_SHIFT, prot);
		if (e) {
			sim_remote_unmap(va, bytes);
			return e;
		}
	}
	return 0;
}

int sim_va_map(uint64_t va, uint64_t bytes, struct sim_phys *p, uint64_t offset, int prot)
{
	int e = prot == PROT_NONE ? 0 : remote_map(va, bytes, p, offset, prot);

	if (e)
		return e;
	sim_va_note(va, bytes, p, offset);
	for (uint64_t at = 0; at < bytes; at += SIM_PAGE)
		sim_page(va + at)->prot = (uint8_t)prot;
	return 0;
}

int sim_va_unmap(uint64_t va, uint64_t bytes)
{
	bool mapped = false;

	for (uint64_t at = 0; at < bytes; at += SIM_PAGE) {
		struct sim_page *page = sim_page(va + at);

		if (page) {
			mapped = mapped || page->prot;
			page->alias = NULL;
			page->prot = 0;
		}
	}
	return mapped ? sim_remote_unmap(va, bytes) : 0;
}
