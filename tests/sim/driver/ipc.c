/* SPDX-License-Identifier: Apache-2.0 */
/* Legacy IPC: memory and events of one process in another, by handles of 64 bytes that go from hand to hand. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "driver/sim.h"

/*
 * A handle names a descriptor of a process. Behind it lies a nameless file that says the rest: it is found by /proc while that
 * process lives, and its cookie tells it from what else may have that number by then.
 */
#define HANDLE_MAGIC 0x4350493147504d53ull
enum kind { KIND_MEMORY = 1, KIND_EVENT };

struct handle {
	uint64_t magic;
	uint32_t kind;
	int32_t pid;
	int32_t fd;
	uint32_t reserved;
	uint64_t cookie[2];
	char zero[24];
};
_Static_assert(sizeof(struct handle) == sizeof(CUipcMemHandle) && sizeof(struct handle) == sizeof(CUipcEventHandle), "the API's handles");

struct memory {
	uint64_t offset, bytes, reserved; /* of the allocation, in its granules: small ones share one */
	uint64_t pages;
	int32_t vram_fd;
	uint32_t granule[];
};

/* More records than can be unfinished at once. */
#define TICKETS 4096u

/* A record of the event takes the next ticket, whichever process makes it, and puts it into its place when it is reached. */
struct tickets {
	_Atomic uint64_t taken;
	_Atomic uint64_t reached[TICKETS];
};

struct file {
	uint64_t magic;
	uint32_t kind;
	int32_t device; /* by its number on the machine */
	uint64_t cookie[2];
	union {
		struct memory memory;
		struct tickets tickets;
	} u;
};

struct sim_shared {
	int refs;
	int fd; /* -1: another process's */
	size_t bytes;
	struct file *file;
};

struct sim_opened {
	struct handle handle;
	uint64_t mapped; /* where its granules begin */
	int times;
};

void sim_shared_ref(struct sim_shared *s)
{
	s->refs++;
}

void sim_shared_unref(struct sim_shared *s)
{
	if (!s || --s->refs)
		return;
	munmap(s->file, s->bytes);
	if (s->fd >= 0)
		close(s->fd);
	free(s);
}

static struct sim_shared *shared_map(int fd, size_t bytes, bool own)
{
	struct sim_shared *s = calloc(1, sizeof *s);
	void *at = s ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (at == MAP_FAILED) {
		free(s);
		close(fd);
		return NULL;
	}
	if (!own)
		close(fd);
	*s = (struct sim_shared){ .refs = 1, .fd = own ? fd : -1, .bytes = bytes, .file = at };
	return s;
}

static struct sim_shared *shared_new(enum kind kind, size_t bytes, int device)
{
	int fd = memfd_create("simgpu-ipc", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)bytes)) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	struct sim_shared *s = shared_map(fd, bytes, true);
	if (!s)
		return NULL;
	s->file->kind = kind;
	s->file->device = sim_settings.physical[device];
	if (getrandom(s->file->cookie, sizeof s->file->cookie, 0) != (ssize_t)sizeof s->file->cookie)
		s->file->cookie[0] = sim_now();
	s->file->magic = HANDLE_MAGIC;
	return s;
}

static void handle_of(const struct sim_shared *s, void *out)
{
	struct handle h = { .magic = HANDLE_MAGIC, .kind = s->file->kind, .pid = getpid(), .fd = s->fd,
			    .cookie = { s->file->cookie[0], s->file->cookie[1] } };

	memcpy(out, &h, sizeof h);
}

/* Not by libc's open(): a host may have put something of its own in front of that, for its files. */
static int open_of(int pid, int fd)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
	return (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
}

/*
 * The documentation names the errors and not which is for what. A handle that no driver made is an invalid value, one whose
 * process or object is gone an invalid handle, one of this very process an invalid context, as drivers answer it.
 */
static CUresult shared_open(const struct handle *h, enum kind kind, struct sim_shared **out)
{
	static const char zero[sizeof h->zero];
	struct stat st;

	if (h->magic != HANDLE_MAGIC || h->kind != kind || h->pid <= 0 || h->fd < 0 || h->reserved || memcmp(h->zero, zero, sizeof zero))
		return CUDA_ERROR_INVALID_VALUE;
	if (h->pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	int fd = open_of(h->pid, h->fd);
	if (fd < 0)
		return CUDA_ERROR_INVALID_HANDLE;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(struct file)) {
		close(fd);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	struct sim_shared *s = shared_map(fd, (size_t)st.st_size, false);
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (s->file->magic != HANDLE_MAGIC || s->file->kind != kind || memcmp(s->file->cookie, h->cookie, sizeof h->cookie)) {
		sim_shared_unref(s);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	*out = s;
	return CUDA_SUCCESS;
}

/* By its number in this process; -1 where it is not visible. */
static int device_here(int physical)
{
	for (int d = 0; d < sim_settings.devices; d++)
		if (sim_settings.physical[d] == physical)
			return d;
	return -1;
}

/* ---- memory ---- */

static struct sim_shared *share(const struct sim_alloc *a)
{
	uint64_t offset;
	struct sim_phys *p = sim_heap_phys(a, &offset);
	size_t bytes = p ? sizeof(struct file) + p->pages * sizeof(uint32_t) : 0;
	struct sim_shared *s = p ? shared_new(KIND_MEMORY, bytes, a->device) : NULL;

	if (!s)
		return NULL;
	struct memory *m = &s->file->u.memory;
	m->offset = offset;
	m->bytes = a->bytes;
	m->reserved = a->reserved;
	m->pages = p->pages;
	m->vram_fd = sim_vram_fd();
	memcpy(m->granule, p->granule, p->pages * sizeof *p->granule);
	return s;
}

/* The handle is the allocation's, and opens at its beginning, wherever in it the address lies. */
SIM_API CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr va)
{
	SIM_ENTER();
	struct sim_alloc *a = sim_alloc_find(va);
	if (!out || !a || a->kind != SIM_ALLOC_DEVICE)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	if (!a->shared)
		a->shared = share(a);
	if (!a->shared)
		return sim_return(CUDA_ERROR_OUT_OF_MEMORY);
	handle_of(a->shared, out);
	return sim_return(CUDA_SUCCESS);
}

void sim_ipc_forget(struct sim_alloc *a)
{
	/* With the descriptor goes the handle. Who has it open keeps it open, and sees what becomes of it. */
	sim_shared_unref(a->shared);
	free(a->opened);
}

static struct sim_alloc *find_opened(const struct handle *h)
{
	for (struct sim_alloc *a = sim_alloc_next(0); a; a = sim_alloc_next(a->va + 1))
		if (a->opened && !memcmp(&a->opened->handle, h, sizeof *h))
			return a;
	return NULL;
}

static CUresult map_opened(const struct handle *h, struct file *f, CUdeviceptr *out)
{
	const struct memory *m = &f->u.memory;
	int device = device_here(f->device), fd = open_of(h->pid, m->vram_fd);
	struct sim_phys *p = fd < 0 ? NULL : sim_phys_foreign(fd, m->granule, m->pages);
	struct sim_opened *o = calloc(1, sizeof *o);
	uint64_t va = p && o ? sim_va_reserve(p->bytes, SIM_PAGE, 0, false) : 0;

	if (!va || sim_va_map(va, p->bytes, p, 0, PROT_READ | PROT_WRITE))
		goto fail;
	struct sim_alloc *a = sim_alloc_add(va + m->offset, m->bytes, SIM_ALLOC_IPC);
	if (!a) {
		sim_va_unmap(va, p->bytes);
		goto fail;
	}
	a->reserved = m->reserved;
	a->device = device;
	a->phys = p;
	a->prot = PROT_READ | PROT_WRITE;
	a->opened = o;
	*o = (struct sim_opened){ .handle = *h, .mapped = va, .times = 1 };
	*out = a->va;
	return CUDA_SUCCESS;
fail:
	if (va)
		sim_va_release(va, p->bytes);
	sim_phys_unref(p);
	free(o);
	return CUDA_ERROR_MAP_FAILED;
}

SIM_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
	struct sim_shared *s;
	struct handle h;

	SIM_ENTER();
	memcpy(&h, &handle, sizeof h);
	if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	CUresult r = shared_open(&h, KIND_MEMORY, &s);
	if (r != CUDA_SUCCESS)
		return sim_return(r);
	struct sim_alloc *a = find_opened(&h);
	if (a && a->ctx != sim_current()) {
		/* One context a device may have it, of each process. */
		r = CUDA_ERROR_INVALID_CONTEXT;
	} else if (a) {
		a->opened->times++;
		*out = a->va;
	} else if (device_here(s->file->device) < 0 || sim_fault_alloc()) {
		r = CUDA_ERROR_MAP_FAILED;
	} else {
		r = map_opened(&h, s->file, out);
	}
	sim_shared_unref(s);
	return sim_return(r);
}

void sim_ipc_close(struct sim_alloc *a)
{
	struct sim_phys *p = a->phys;
	uint64_t va = a->opened->mapped;

	sim_va_unmap(va, p->bytes);
	sim_va_release(va, p->bytes);
	sim_phys_unref(p);
	sim_alloc_remove(a);
}

SIM_API CUresult cuIpcCloseMemHandle(CUdeviceptr va)
{
	SIM_ENTER();
	struct sim_alloc *a = sim_alloc_find(va);
	if (!a || a->kind != SIM_ALLOC_IPC || a->va != va)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	if (a->opened->times > 1) {
		a->opened->times--;
		return sim_return(CUDA_SUCCESS);
	}
	/* As a free does, it waits for what may be using it. */
	int device = a->device;
	sim_wait_device(device);
	sim_wait_device(sim_device());
	a = sim_alloc_find(va);
	if (!a || a->kind != SIM_ALLOC_IPC || a->va != va)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	/* Somebody may have opened it in the meantime. */
	if (--a->opened->times == 0)
		sim_ipc_close(a);
	return sim_return(sim_sticky());
}

/* ---- events ---- */

struct sim_shared *sim_shared_event_new(void)
{
	return shared_new(KIND_EVENT, sizeof(struct file), sim_device());
}

uint64_t sim_ticket_take(struct sim_shared *s)
{
	return atomic_fetch_add(&s->file->u.tickets.taken, 1) + 1;
}

uint64_t sim_ticket_last(struct sim_shared *s)
{
	return atomic_load(&s->file->u.tickets.taken);
}

void sim_ticket_reach(struct sim_shared *s, uint64_t ticket)
{
	_Atomic uint64_t *place = &s->file->u.tickets.reached[ticket % TICKETS];
	uint64_t seen = atomic_load(place);

	while (seen < ticket && !atomic_compare_exchange_weak(place, &seen, ticket))
		;
}

bool sim_ticket_reached(struct sim_shared *s, uint64_t ticket)
{
	return atomic_load(&s->file->u.tickets.reached[ticket % TICKETS]) >= ticket;
}

SIM_API CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent h)
{
	SIM_ENTER();
	struct sim_event *e = sim_event_check(h);
	if (!out)
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	/* What came from another process is that one's to give away. */
	if (!e || !e->shared || e->shared->fd < 0)
		return sim_return(CUDA_ERROR_INVALID_HANDLE);
	handle_of(e->shared, out);
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
	struct sim_shared *s;
	struct handle h;

	SIM_ENTER();
	memcpy(&h, &handle, sizeof h);
	CUresult r = out ? shared_open(&h, KIND_EVENT, &s) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return sim_return(r);
	struct sim_event *e = sim_event_new(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS, s);
	if (!e)
		return sim_return(CUDA_ERROR_OUT_OF_MEMORY);
	*out = (CUevent)e;
	return sim_return(CUDA_SUCCESS);
}
