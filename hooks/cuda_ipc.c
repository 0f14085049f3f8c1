/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legacy IPC of device memory, as it is without us: the driver refuses it for memory that is mapped, as the arena's is. A
 * handle names the block and a socket of its process; another process that has this library gets descriptors of the
 * mappings there and maps them in the same order. Handles that the driver made go to the driver.
 *
 * The socket has no name in any folder and is served by a thread that makes no call of the driver's: descriptors are made
 * when the handle is, and kept until the block is freed.
 */
#include "config.h"

#include "hooks/cuda_ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "hooks/cuda_driver.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/track/threads.h"

#define HANDLE_MAGIC 0x314350494b435054ull
enum {
	PEER_WAIT_SEC = 10, /* for a process that does not answer, or does not go on asking */
};

/* What a program passes on as 64 opaque bytes. */
struct handle {
	uint64_t magic;
	uint32_t pid;
	uint32_t pieces;      /* mappings that the block lies in */
	uint64_t place;       /* makes the socket's name one of a kind */
	uint64_t cookie;      /* the block's */
	uint64_t offset;      /* of the block in its mappings */
	uint64_t bytes;       /* of the block */
	uint64_t mapped;      /* of its mappings */
	uint64_t zero;
};
_Static_assert(sizeof(struct handle) == sizeof(CUipcMemHandle), "a handle of the API's");

struct piece {
	uint64_t bytes;
	int descriptor;
};

/* A block of this process that others may have. */
struct export {
	struct handle handle;
	uint64_t address;
	struct export *next;
	struct piece piece[];
};

/* A block of another process. */
struct import {
	struct handle handle;
	CUcontext context;
	uint64_t reserved; /* where its mappings begin */
	uint64_t times;
	struct import *next;
};

/* Two, since a process opens a block of another one's while that opens one of its own: the socket's thread needs the first. */
static pthread_mutex_t exports_lock = PTHREAD_MUTEX_INITIALIZER, imports_lock = PTHREAD_MUTEX_INITIALIZER;
static struct export *exports;
static struct import *imports;
static _Atomic uint32_t exports_count, imports_count;
static struct {
	pid_t owner; /* a forked child has the socket and nobody who serves it */
	int listening;
	uint64_t place;
} server;

/* Past the hook of getrandom(): what is drawn here is no input of the program's. */
static uint64_t drawn(void)
{
	uint64_t value = 0;

	return syscall(SYS_getrandom, &value, sizeof value, GRND_NONBLOCK) == (long)sizeof value ? value : 0;
}

static socklen_t socket_name(struct sockaddr_un *name, uint32_t pid, uint64_t place)
{
	memset(name, 0, sizeof *name);
	name->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "transpckpt-ipc-%u-%016llx", pid,
					    (unsigned long long)place));
}

static bool waits_limited(int connection)
{
	struct timeval limit = {.tv_sec = PEER_WAIT_SEC};

	return !setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) &&
	       !setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static bool peer_is_us(int connection)
{
	struct ucred peer;
	socklen_t bytes = sizeof peer;

	return !getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) && peer.uid == geteuid();
}

union passing {
	struct cmsghdr header;
	char space[CMSG_SPACE(sizeof(int))];
};

/* One mapping a message. */
static bool send_piece(int connection, const struct piece *piece)
{
	union passing control = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
	uint64_t bytes = piece->bytes;
	struct iovec what = {.iov_base = &bytes, .iov_len = sizeof bytes};
	struct msghdr message = {.msg_iov = &what, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};

	memcpy(CMSG_DATA(&control.header), &piece->descriptor, sizeof(int));
	return sendmsg(connection, &message, MSG_NOSIGNAL) == (ssize_t)sizeof bytes;
}

static bool receive_piece(int connection, struct piece *piece)
{
	union passing control;
	struct iovec what = {.iov_base = &piece->bytes, .iov_len = sizeof piece->bytes};
	struct msghdr message = {.msg_iov = &what, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	ssize_t got;

	do
		got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	piece->descriptor = -1;
	if (got < 0)
		return false;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(&piece->descriptor, CMSG_DATA(c), sizeof(int));
	return got == (ssize_t)sizeof piece->bytes && piece->descriptor >= 0;
}

static void pieces_close(const struct piece *piece, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		close(piece[i].descriptor);
}

/* The pieces of the block as descriptors that stay if the block goes meanwhile; NULL if there is no such block. */
static struct piece *pieces_of(const struct handle *handle)
{
	struct piece *copy = NULL;
	struct export *e;

	pthread_mutex_lock(&exports_lock);
	for (e = exports; e && memcmp(&e->handle, handle, sizeof *handle); e = e->next)
		;
	copy = e ? calloc(handle->pieces, sizeof *copy) : NULL;
	for (uint32_t i = 0; copy && i < handle->pieces; i++) {
		copy[i] = (struct piece){e->piece[i].bytes, fcntl(e->piece[i].descriptor, F_DUPFD_CLOEXEC, 0)};
		if (copy[i].descriptor < 0) {
			pieces_close(copy, i);
			free(copy);
			copy = NULL;
		}
	}
	pthread_mutex_unlock(&exports_lock);
	return copy;
}

static void serve(int connection)
{
	struct handle asked;
	struct piece *piece;

	if (!waits_limited(connection) || !peer_is_us(connection) ||
	    recv(connection, &asked, sizeof asked, 0) != (ssize_t)sizeof asked)
		return;
	piece = pieces_of(&asked);
	if (!piece)
		return;
	for (uint32_t i = 0; i < asked.pieces && send_piece(connection, &piece[i]); i++)
		;
	pieces_close(piece, asked.pieces);
	free(piece);
}

static void *serve_all(void *unused)
{
	tpck_thread_own();
	for (;;) {
		struct pollfd end = {.fd = server.listening, .events = POLLIN};
		int connection = accept4(server.listening, NULL, NULL, SOCK_CLOEXEC);

		if (connection >= 0) {
			serve(connection);
			close(connection);
		} else if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK) {
			return unused; /* somebody closed it */
		} else {
			poll(&end, 1, 100); /* out of descriptors */
		}
	}
}

/* With the exports' lock held. */
static int server_start(void)
{
	struct sockaddr_un name;
	int listening, result;

	if (server.owner == getpid())
		return 0;
	listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (listening < 0)
		return -errno;
	server.place = drawn();
	if (bind(listening, (struct sockaddr *)&name, socket_name(&name, (uint32_t)getpid(), server.place)) ||
	    listen(listening, 64)) {
		result = -errno;
		close(listening);
		return result;
	}
	server.listening = listening;
	result = tpck_thread_start(serve_all);
	if (result)
		close(listening);
	else
		server.owner = getpid();
	return result;
}

static int descriptor_of(uint64_t address)
{
	CUmemGenericAllocationHandle memory;
	int descriptor = -1;

	if (tpck_cuda.cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)address) != CUDA_SUCCESS)
		return -1;
	if (tpck_cuda.cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
	    CUDA_SUCCESS)
		descriptor = -1;
	tpck_cuda.cuMemRelease(memory);
	if (descriptor >= 0)
		fcntl(descriptor, F_SETFD, FD_CLOEXEC);
	return descriptor;
}

/* The mappings that a block lies in are whole ones: other blocks may lie in them too, as the driver's may. */
static struct export *export_new(uint64_t base, uint64_t bytes)
{
	uint64_t start, length, first = 0, count = 0;
	struct export *e;

	for (uint64_t at = base; at < base + bytes; at = start + length, count++) {
		if (!tpck_engine_mapping(at, &start, &length))
			return NULL;
		if (!count)
			first = start;
	}
	e = calloc(1, sizeof *e + count * sizeof e->piece[0]);
	if (!e)
		return NULL;
	e->address = base;
	e->handle = (struct handle){.magic = HANDLE_MAGIC, .pid = (uint32_t)getpid(), .place = server.place, .cookie = drawn(),
				    .offset = base - first, .bytes = bytes};
	for (uint64_t at = base; at < base + bytes; at = start + length) {
		struct piece *piece = &e->piece[e->handle.pieces];

		piece->descriptor = tpck_engine_mapping(at, &start, &length) ? descriptor_of(start) : -1;
		if (piece->descriptor < 0) {
			pieces_close(e->piece, e->handle.pieces);
			free(e);
			return NULL;
		}
		piece->bytes = length;
		e->handle.mapped += length;
		e->handle.pieces++;
	}
	return e;
}

static CUresult export_block(CUipcMemHandle *out, uint64_t base, uint64_t bytes)
{
	struct export *e;
	int started;

	pthread_mutex_lock(&exports_lock);
	started = server_start();
	for (e = exports; e && (e->address != base || e->handle.pid != (uint32_t)getpid()); e = e->next)
		;
	if (!e && !started) {
		e = export_new(base, bytes);
		if (e) {
			e->next = exports;
			exports = e;
			atomic_fetch_add(&exports_count, 1);
		}
	}
	if (e)
		memcpy(out, &e->handle, sizeof *out);
	pthread_mutex_unlock(&exports_lock);
	if (started)
		tpck_log_warn("device memory cannot be shared with other processes: no socket: %s", strerror(-started));
	else if (!e)
		tpck_log_warn("device memory cannot be shared with other processes: the driver gives no descriptor of it");
	return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void tpck_ipc_freed(uint64_t address)
{
	struct export **link, *e;

	if (!atomic_load_explicit(&exports_count, memory_order_relaxed))
		return;
	pthread_mutex_lock(&exports_lock);
	for (link = &exports; *link && (*link)->address != address; link = &(*link)->next)
		;
	e = *link;
	if (e) {
		*link = e->next;
		atomic_fetch_sub(&exports_count, 1);
		pieces_close(e->piece, e->handle.pieces);
		free(e);
	}
	pthread_mutex_unlock(&exports_lock);
}

bool tpck_ipc_block(uint64_t address, uint64_t *base, uint64_t *bytes)
{
	bool found = false;

	if (!atomic_load_explicit(&imports_count, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&imports_lock);
	for (struct import *i = imports; i && !found; i = i->next) {
		uint64_t begin = i->reserved + i->handle.offset;

		found = address >= begin && address - begin < i->handle.bytes;
		if (found) {
			*base = begin;
			*bytes = i->handle.bytes;
		}
	}
	pthread_mutex_unlock(&imports_lock);
	return found;
}

static int connect_to(const struct handle *handle)
{
	struct sockaddr_un name;
	socklen_t bytes = socket_name(&name, handle->pid, handle->place);
	int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (connection >= 0 && (!waits_limited(connection) || connect(connection, (struct sockaddr *)&name, bytes) ||
				!peer_is_us(connection) || send(connection, handle, sizeof *handle, MSG_NOSIGNAL) != (ssize_t)sizeof *handle)) {
		close(connection);
		connection = -1;
	}
	return connection;
}

static CUresult map_piece(uint64_t at, const struct piece *piece)
{
	CUmemGenericAllocationHandle memory;
	CUresult result = tpck_cuda.cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)piece->descriptor,
								   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	if (result != CUDA_SUCCESS)
		return result;
	result = tpck_cuda.cuMemMap(at, piece->bytes, 0, memory, 0);
	tpck_cuda.cuMemRelease(memory); /* the mapping keeps it */
	return result;
}

/* Maps the pieces one behind the other, for the current device. Nothing of the handle is believed before the first has come:
 * its process sends none for a handle that it did not make. */
static CUresult map_block(const struct handle *handle, int connection, uint64_t *reserved)
{
	CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr base = 0;
	uint64_t mapped = 0;

	for (uint32_t i = 0; result == CUDA_SUCCESS && i < handle->pieces; i++) {
		struct piece piece;

		if (!receive_piece(connection, &piece))
			result = CUDA_ERROR_INVALID_HANDLE; /* the block is free, or its process is ending */
		else if (!i)
			result = tpck_cuda.cuMemAddressReserve(&base, handle->mapped, 0, 0, 0);
		if (result == CUDA_SUCCESS)
			result = piece.bytes > handle->mapped - mapped ? CUDA_ERROR_INVALID_HANDLE : map_piece(base + mapped, &piece);
		if (piece.descriptor >= 0)
			close(piece.descriptor);
		if (result == CUDA_SUCCESS)
			mapped += piece.bytes;
	}
	if (result == CUDA_SUCCESS)
		result = tpck_cuda.cuCtxGetDevice(&access.location.id);
	if (result == CUDA_SUCCESS)
		result = tpck_cuda.cuMemSetAccess(base, handle->mapped, &access, 1);
	if (result != CUDA_SUCCESS) {
		if (mapped)
			tpck_cuda.cuMemUnmap(base, mapped);
		if (base)
			tpck_cuda.cuMemAddressFree(base, handle->mapped);
		return result == CUDA_ERROR_INVALID_HANDLE ? result : CUDA_ERROR_MAP_FAILED;
	}
	*reserved = base;
	return CUDA_SUCCESS;
}

/* With the imports' lock held, so that a block is opened once. */
static CUresult import_block(CUdeviceptr *out, const struct handle *handle)
{
	struct import *i;
	CUcontext context = NULL;
	CUresult result = tpck_cuda.cuCtxGetCurrent(&context);
	int connection;

	if (result != CUDA_SUCCESS || !context)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_CONTEXT;
	for (i = imports; i && memcmp(&i->handle, handle, sizeof *handle); i = i->next)
		;
	if (i && i->context != context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!i) {
		i = calloc(1, sizeof *i);
		connection = i ? connect_to(handle) : -1;
		result = connection < 0 ? CUDA_ERROR_INVALID_HANDLE : map_block(handle, connection, &i->reserved);
		if (connection >= 0)
			close(connection);
		if (result != CUDA_SUCCESS) {
			free(i);
			return result;
		}
		i->handle = *handle;
		i->context = context;
		i->next = imports;
		imports = i;
		atomic_fetch_add(&imports_count, 1);
	}
	i->times++;
	*out = i->reserved + handle->offset;
	return CUDA_SUCCESS;
}

/* Hands the caller what was closed for the last time, to be unmapped without the lock; whether it was one of ours. */
static bool import_close(uint64_t address, struct import **last)
{
	struct import **link, *i;

	*last = NULL;
	if (!atomic_load_explicit(&imports_count, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&imports_lock);
	for (link = &imports; *link && (*link)->reserved + (*link)->handle.offset != address; link = &(*link)->next)
		;
	i = *link;
	if (i && --i->times == 0) {
		*link = i->next;
		atomic_fetch_sub(&imports_count, 1);
		*last = i;
	}
	pthread_mutex_unlock(&imports_lock);
	return i != NULL;
}

static CUresult unmap_block(struct import *i)
{
	CUresult result = tpck_cuda.cuCtxSynchronize();

	if (result == CUDA_SUCCESS)
		result = tpck_cuda.cuMemUnmap(i->reserved, i->handle.mapped);
	if (result == CUDA_SUCCESS)
		result = tpck_cuda.cuMemAddressFree(i->reserved, i->handle.mapped);
	free(i);
	return result;
}

void tpck_ipc_context_destroyed(const void *context)
{
	struct import **link = &imports;

	if (!atomic_load_explicit(&imports_count, memory_order_relaxed))
		return;
	pthread_mutex_lock(&imports_lock);
	while (*link) {
		struct import *i = *link;

		if (i->context != context) {
			link = &i->next;
			continue;
		}
		*link = i->next;
		atomic_fetch_sub(&imports_count, 1);
		tpck_cuda.cuMemUnmap(i->reserved, i->handle.mapped);
		tpck_cuda.cuMemAddressFree(i->reserved, i->handle.mapped);
		free(i);
	}
	pthread_mutex_unlock(&imports_lock);
}

/* What a hook leaves as it was: errno, and how the calling thread's captures take the calls that are made here. */
struct entered {
	struct tpck_thread *self; /* NULL: inside of us, or the engine is off; the memory is the arena's nevertheless */
	CUstreamCaptureMode mode;
	int saved_errno;
};

static struct entered enter(const char *why)
{
	struct entered entered = {tpck_engine_enter(), CU_STREAM_CAPTURE_MODE_RELAXED, errno};

	if (entered.self && why)
		tpck_engine_unresumable(why);
	(void)TPCK_CALL(cuThreadExchangeStreamCaptureMode, &entered.mode);
	return entered;
}

static CUresult leave(struct entered *entered, CUresult result)
{
	(void)TPCK_CALL(cuThreadExchangeStreamCaptureMode, &entered->mode);
	if (entered->self)
		tpck_engine_leave(entered->self);
	errno = entered->saved_errno;
	return result;
}

/* A context, and one that has not failed. */
static CUresult usable(void)
{
	CUdevice device;

	return TPCK_CALL(cuCtxGetDevice, &device);
}

CUresult tpck_hook_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct entered entered = enter("the program shares device memory with other processes (cuIpcGetMemHandle)");
	uint64_t base, bytes;
	CUresult result;

	if (pHandle && tpck_engine_block_of_its_own(dptr, &base, &bytes) && TPCK_REAL(cuMemRetainAllocationHandle)) {
		result = usable();
		if (result == CUDA_SUCCESS)
			result = export_block(pHandle, base, bytes);
	} else {
		result = TPCK_CALL(cuIpcGetMemHandle, pHandle, dptr);
	}
	return leave(&entered, result);
}

CUresult tpck_hook_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	struct entered entered = enter("the program uses another process's device memory (cuIpcOpenMemHandle)");
	struct handle ours;
	CUresult result;

	memcpy(&ours, &handle, sizeof ours);
	if (ours.magic != HANDLE_MAGIC)
		return leave(&entered, TPCK_CALL(cuIpcOpenMemHandle_v2, pdptr, handle, Flags));
	result = usable();
	if (result != CUDA_SUCCESS)
		return leave(&entered, result);
	if (!pdptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || ours.zero || !ours.pieces || ours.offset > ours.mapped ||
	    ours.bytes > ours.mapped - ours.offset)
		return leave(&entered, CUDA_ERROR_INVALID_VALUE);
	if (ours.pid == (uint32_t)getpid())
		return leave(&entered, CUDA_ERROR_INVALID_CONTEXT);
	pthread_mutex_lock(&imports_lock);
	result = import_block(pdptr, &ours);
	pthread_mutex_unlock(&imports_lock);
	return leave(&entered, result);
}

CUresult tpck_hook_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	struct entered entered = enter(NULL);
	struct import *last;
	CUresult result = CUDA_SUCCESS;

	if (!import_close(dptr, &last))
		result = TPCK_CALL(cuIpcCloseMemHandle, dptr);
	else if (last)
		result = unmap_block(last);
	return leave(&entered, result);
}
