/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: one sparse file in granules of 2 MiB, and the address space through which host and device see it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/random.h>
#include <sys/socket.h>
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
} part[SIM_DEVICES]; /* each device's of it */
static struct sim_page *directory[LEAF];
static uint64_t cursor;

/* What stands for memory of a device or of the driver is no file of the program's, and RLIMIT_FSIZE not about it. */
int sim_memory_size(int fd, uint64_t bytes)
{
	struct rlimit limit, none;
	int rc;

	if (getrlimit(RLIMIT_FSIZE, &limit))
		return -1;
	none = (struct rlimit){limit.rlim_max, limit.rlim_max};
	if (limit.rlim_cur != limit.rlim_max)
		(void)setrlimit(RLIMIT_FSIZE, &none);
	rc = ftruncate(fd, (off_t)bytes);
	if (limit.rlim_cur != limit.rlim_max)
		(void)setrlimit(RLIMIT_FSIZE, &limit);
	return rc;
}

int sim_vram_start(void)
{
	uint64_t n = sim_settings.memory >> SIM_PAGE_SHIFT, bytes = sim_settings.memory * (uint64_t)sim_settings.devices, r = 0;

	vram_fd = memfd_create("simgpu-vram", MFD_CLOEXEC);
	if (vram_fd < 0 || sim_memory_size(vram_fd, bytes))
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

int sim_vram_fd(void)
{
	return vram_fd;
}

static void granules_free(int device, const uint32_t *granule, uint64_t pages)
{
	for (uint64_t i = pages; i > 0; i--)
		part[device].granule[part[device].n_free++] = granule[i - 1];
}

/* Whether nobody has a descriptor, or memory that came by one, any more. */
static bool given_back(struct sim_phys *p)
{
	while (p->n_lent) {
		struct pollfd end = { .fd = p->lent[p->n_lent - 1] };

		if (poll(&end, 1, 0) < 1 || !(end.revents & POLLHUP))
			return false;
		close(end.fd);
		p->n_lent--;
	}
	return true;
}

/* What was handed out as a handle stays recognisable as stale. */
static void phys_end(struct sim_phys *p)
{
	if (p->foreign) {
		munmap(p->alias, p->bytes);
		close(p->fd);
		if (p->lent_by >= 0)
			close(p->lent_by);
	} else {
		granules_free(p->device, p->granule, p->pages);
	}
	free(p->granule);
	free(p->lent);
	p->granule = NULL;
	p->lent = NULL;
	if (!p->magic)
		free(p);
	else
		p->magic = 0;
}

/* Memory of which this process is done and others are not. */
static struct sim_phys **abroad;
static int n_abroad;

static void abroad_add(struct sim_phys *p)
{
	struct sim_phys **grown = realloc(abroad, (size_t)(n_abroad + 1) * sizeof(struct sim_phys *));

	if (!grown)
		abort();
	abroad = grown;
	abroad[n_abroad++] = p;
}

static void abroad_reap(void)
{
	for (int i = 0; i < n_abroad;)
		if (given_back(abroad[i])) {
			phys_end(abroad[i]);
			abroad[i] = abroad[--n_abroad];
		} else {
			i++;
		}
}

uint64_t sim_vram_free_bytes(int device)
{
	abroad_reap();
	return part[device].n_free << SIM_PAGE_SHIFT;
}

struct sim_phys *sim_phys_create(int device, uint64_t bytes)
{
	uint64_t pages = (bytes + SIM_PAGE - 1) >> SIM_PAGE_SHIFT;

	if (pages << SIM_PAGE_SHIFT > sim_vram_free_bytes(device))
		return NULL;
	struct sim_phys *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->refs = 1;
	p->device = device;
	p->fd = p->lent_by = -1;
	p->bytes = pages << SIM_PAGE_SHIFT;
	p->pages = pages;
	p->granule = malloc(pages * sizeof *p->granule);
	if (!p->granule) {
		free(p);
		return NULL;
	}
	for (uint64_t i = 0; i < pages; i++)
		p->granule[i] = part[device].granule[--part[device].n_free];
	for (uint64_t i = 0; i < pages && sim_settings.fresh >= 0; i++)
		memset((char *)alias + (uint64_t)p->granule[i] * SIM_PAGE, sim_settings.fresh, SIM_PAGE);
	return p;
}

/* The granules that lie together from `first` on. */
static uint64_t run_of(const uint32_t *granule, uint64_t first, uint64_t end)
{
	uint64_t n = 1;

	while (first + n < end && granule[first + n] == granule[first] + n)
		n++;
	return n;
}

struct sim_phys *sim_phys_foreign(int fd, const uint32_t *granule, uint64_t pages)
{
	struct sim_phys *p = calloc(1, sizeof *p);
	struct stat st;

	if (!p)
		goto fail;
	p->refs = 1;
	p->foreign = true;
	p->fd = fd;
	p->lent_by = -1;
	p->pages = pages;
	p->bytes = pages << SIM_PAGE_SHIFT;
	p->granule = malloc(pages * sizeof *p->granule);
	p->alias = mmap(NULL, p->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!p->granule || p->alias == MAP_FAILED || fstat(fd, &st))
		goto fail;
	memcpy(p->granule, granule, pages * sizeof *p->granule);
	for (uint64_t i = 0, k; i < pages; i += k) {
		k = run_of(granule, i, pages);
		if (((uint64_t)granule[i] + k) << SIM_PAGE_SHIFT > (uint64_t)st.st_size ||
		    mmap(p->alias + (i << SIM_PAGE_SHIFT), k << SIM_PAGE_SHIFT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
			 fd, (off_t)((uint64_t)granule[i] << SIM_PAGE_SHIFT)) == MAP_FAILED)
			goto fail;
	}
	madvise(p->alias, p->bytes, MADV_DONTDUMP);
	madvise(p->alias, p->bytes, MADV_DONTFORK);
	return p;
fail:
	if (p && p->alias && p->alias != MAP_FAILED)
		munmap(p->alias, p->bytes);
	if (p)
		free(p->granule);
	free(p);
	close(fd);
	return NULL;
}

/* What waits in the socket that is an exported descriptor, with the memory file; whoever imports it looks, and leaves it there. */
struct export {
	uint64_t magic;
	uint64_t pages;
	uint32_t granule[];
};
#define EXPORT_MAGIC 0x54524f5058454d53ull
#define EXPORT_PAGES (1u << 18)

union passing {
	struct cmsghdr header;
	char space[CMSG_SPACE(sizeof(int))];
};

static int send_export(int to, const struct sim_phys *p)
{
	size_t bytes = sizeof(struct export) + p->pages * sizeof(uint32_t);
	struct export *x = p->pages > EXPORT_PAGES ? NULL : calloc(1, bytes);
	union passing c = { .header = { .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)) } };
	struct iovec iov = { .iov_base = x, .iov_len = bytes };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c };
	int room = (int)bytes * 2, fd = p->foreign ? p->fd : vram_fd;

	if (!x)
		return -1;
	x->magic = EXPORT_MAGIC;
	x->pages = p->pages;
	memcpy(x->granule, p->granule, p->pages * sizeof *x->granule);
	memcpy(CMSG_DATA(&c.header), &fd, sizeof fd);
	if (bytes > 65536)
		setsockopt(to, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	ssize_t n = sendmsg(to, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	free(x);
	return n == (ssize_t)bytes ? 0 : -1;
}

int sim_phys_export(struct sim_phys *p)
{
	int pair[2], *grown;

	/* Memory of another process is its exporter's as long as this process has it. */
	if (p->lent_by >= 0)
		return fcntl(p->lent_by, F_DUPFD_CLOEXEC, 0);
	grown = realloc(p->lent, (size_t)(p->n_lent + 1) * sizeof *grown);
	if (!grown)
		return -1;
	p->lent = grown;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -1;
	if (send_export(pair[0], p)) {
		close(pair[0]);
		close(pair[1]);
		return -1;
	}
	p->lent[p->n_lent++] = pair[0];
	return pair[1];
}

struct sim_phys *sim_phys_import(int from)
{
	size_t room = sizeof(struct export) + EXPORT_PAGES * sizeof(uint32_t);
	struct export *x = malloc(room);
	union passing c;
	struct iovec iov = { .iov_base = x, .iov_len = room };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c };
	struct sim_phys *p = NULL;
	int fd = -1;

	if (!x)
		return NULL;
	ssize_t n = recvmsg(from, &m, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	for (struct cmsghdr *h = n < 0 ? NULL : CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
		if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(h), sizeof fd);
	if (n >= (ssize_t)sizeof *x && fd >= 0 && x->magic == EXPORT_MAGIC && (size_t)n == sizeof *x + x->pages * sizeof(uint32_t)) {
		p = sim_phys_foreign(fd, x->granule, x->pages);
		fd = -1;
	}
	if (fd >= 0)
		close(fd);
	free(x);
	if (p)
		p->lent_by = fcntl(from, F_DUPFD_CLOEXEC, 0);
	return p;
}

void sim_phys_unref(struct sim_phys *p)
{
	if (!p || --p->refs)
		return;
	if (given_back(p))
		phys_end(p);
	else
		abroad_add(p);
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
		page->alias = p->foreign ? p->alias + (i << SIM_PAGE_SHIFT) : alias + ((uint64_t)p->granule[i] << SIM_PAGE_SHIFT);
		page->prot = PROT_NONE;
	}
}

static int remote_map(uint64_t va, uint64_t bytes, struct sim_phys *p, uint64_t offset, int prot)
{
	uint64_t first = offset >> SIM_PAGE_SHIFT, n = bytes >> SIM_PAGE_SHIFT;

	for (uint64_t i = 0, k; i < n; i += k) {
		uint64_t at = va + (i << SIM_PAGE_SHIFT), from = (uint64_t)p->granule[first + i] << SIM_PAGE_SHIFT;

		k = run_of(p->granule, first + i, first + n);
		int e = p->foreign ? sim_remote_map_file(at, k << SIM_PAGE_SHIFT, from, prot, p->fd) :
				     sim_remote_map_vram(at, k << SIM_PAGE_SHIFT, from, prot);
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
