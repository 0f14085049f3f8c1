/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and events of one process in another: by legacy handles, and by descriptors of virtual memory management. */
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
static CUfunction add;

static void put(int to, const void *what, size_t n)
{
	CHECK(write(to, what, n) == (ssize_t)n);
}

static void get(int from, void *what, size_t n)
{
	CHECK(recv(from, what, n, MSG_WAITALL) == (ssize_t)n);
}

static void tell(int to)
{
	put(to, "x", 1);
}

static void hear(int from)
{
	char c;

	get(from, &c, 1);
}

static CUdeviceptr filled(size_t bytes, unsigned value)
{
	CUdeviceptr p;

	OK(cuMemAlloc(&p, bytes));
	OK(cuMemsetD32(p, value, bytes / 4));
	OK(cuCtxSynchronize());
	return p;
}

static unsigned word(CUdeviceptr p)
{
	unsigned v;

	OK(cuMemcpyDtoH(&v, p, 4));
	return v;
}

static CUdeviceptr opened(int from)
{
	CUipcMemHandle h;
	CUdeviceptr p;

	get(from, &h, sizeof h);
	OK(cuIpcOpenMemHandle(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	return p;
}

static void export(int to, CUdeviceptr p)
{
	CUipcMemHandle h;

	OK(cuIpcGetMemHandle(&h, p));
	put(to, &h, sizeof h);
}

static unsigned legacy_capable(CUdeviceptr p)
{
	unsigned v;

	OK(cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
	return v;
}

/* A big block, and two small ones that share their pages with each other. */
static void memory_exporter(int peer)
{
	CUdeviceptr big = filled(5 * MIB, 1), one = filled(4096, 2), two = filled(4096, 3);
	CUipcMemHandle a, b;

	CHECK(legacy_capable(big) && legacy_capable(one));
	OK(cuIpcGetMemHandle(&a, big));
	OK(cuIpcGetMemHandle(&b, big + 3 * MIB));
	CHECK(!memcmp(&a, &b, sizeof a));
	export(peer, big);
	export(peer, one);
	export(peer, two);
	hear(peer);
	CHECK(word(big) == 11 && word(big + 5 * MIB - 4) == 11 && word(one) == 2 && word(two) == 33);
	OK(cuMemsetD32(big, 4, 5 * MIB / 4));
	OK(cuCtxSynchronize());
	tell(peer);
	hear(peer);
}

static void memory_importer(int peer)
{
	CUipcMemHandle h;
	CUdeviceptr big, again, one, two, base;
	size_t bytes;
	unsigned type;

	get(peer, &h, sizeof h);
	OK(cuIpcOpenMemHandle(&big, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	one = opened(peer);
	two = opened(peer);
	CHECK(word(big) == 1 && word(big + 5 * MIB - 4) == 1 && word(one) == 2 && word(two) == 3);
	OK(cuMemGetAddressRange(&base, &bytes, big + 1000));
	CHECK(base == big && bytes == 5 * MIB);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, two));
	CHECK(type == CU_MEMORYTYPE_DEVICE && !legacy_capable(big));
	OK(launch_add(add, NULL, big, (int)(5 * MIB / 4), 10));
	OK(launch_add(add, NULL, two, 1, 30));
	OK(cuCtxSynchronize());
	tell(peer);
	hear(peer);
	CHECK(word(big + 2 * MIB) == 4);
	/* Opened twice it is the same memory at the same place, until it is closed twice. */
	OK(cuIpcOpenMemHandle(&again, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(again == big);
	OK(cuIpcCloseMemHandle(big));
	CHECK(word(big) == 4);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(big));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&h, big));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(big + 512));
	OK(cuIpcCloseMemHandle(big));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(big));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(big, 1, 1));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(filled(4096, 0)));
	tell(peer);
}

static void not_shared(CUdeviceptr p)
{
	CUipcMemHandle h;

	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&h, p));
	CHECK(!p || !legacy_capable(p));
}

static void refused_exporter(int peer)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUdeviceptr p, own = filled(MIB * 3, 1);
	CUmemGenericAllocationHandle vmm;
	CUipcMemHandle h;
	CUipcEventHandle eh;
	CUevent event;
	CUmodule m = kernels_load();
	size_t bytes;
	void *host;
	int fd;

	/* Only what cuMemAlloc gave. */
	OK(cuMemAllocAsync(&p, 4096, NULL));
	not_shared(p);
	OK(cuMemHostAlloc(&host, 4096, 0));
	not_shared((CUdeviceptr)(uintptr_t)host);
	OK(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
	not_shared(p);
	OK(cuModuleGetGlobal(&p, &bytes, m, "counter"));
	not_shared(p);
	OK(cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
	OK(cuMemCreate(&vmm, 2 * MIB, &prop, 0));
	OK(cuMemMap(p, 2 * MIB, 0, vmm, 0));
	not_shared(p);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&fd, vmm, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	not_shared(0);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(NULL, own));

	OK(cuIpcGetMemHandle(&h, own));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	put(peer, &h, sizeof h);
	OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	OK(cuIpcGetEventHandle(&eh, event));
	put(peer, &eh, sizeof eh);
	hear(peer);
	/* The same address again is another allocation with another handle. */
	OK(cuMemFree(own));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&h, own));
	export(peer, filled(MIB * 3, 5));
	OK(cuEventDestroy(event));
	tell(peer);
	hear(peer);
	raise(SIGKILL);
}

static void refused_importer(int peer)
{
	CUipcMemHandle h, wrong, later;
	CUipcEventHandle eh;
	CUcontext primary, other;
	CUdeviceptr p;
	CUevent e;
	char c;

	get(peer, &h, sizeof h);
	get(peer, &eh, sizeof eh);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&p, h, 0));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(NULL, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	memset(&wrong, 0, sizeof wrong);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&p, wrong, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	/* No bit of it may be another. */
	for (unsigned i = 0; i < sizeof wrong; i++) {
		wrong = h;
		((char *)&wrong)[i] ^= 1;
		CUresult r = cuIpcOpenMemHandle(&p, wrong, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
		CHECK(r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_INVALID_HANDLE || r == CUDA_ERROR_INVALID_CONTEXT);
	}
	memcpy(&wrong, &eh, sizeof wrong);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&p, wrong, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	memcpy(&eh, &h, sizeof eh);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenEventHandle(&e, eh));
	memcpy(&eh, &wrong, sizeof eh);
	OK(cuIpcOpenEventHandle(&e, eh));
	/* One context of a device has it. */
	OK(cuIpcOpenMemHandle(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuCtxGetCurrent(&primary));
	OK(cuCtxCreate(&other, NULL, 0, 0));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuCtxSetCurrent(primary));
	OK(cuIpcCloseMemHandle(p));
	/* With the context goes what it has open. */
	OK(cuCtxSetCurrent(other));
	OK(cuIpcOpenMemHandle(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(word(p) == 1);
	OK(cuCtxDestroy(other));
	OK(cuCtxSetCurrent(primary));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(p, 1, 1));
	tell(peer);
	get(peer, &later, sizeof later);
	hear(peer);
	CHECK(memcmp(&later, &h, sizeof h));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenMemHandle(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuIpcOpenMemHandle(&p, later, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(word(p) == 5);
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenEventHandle(&e, eh));
	tell(peer);
	/* The peer's end of the socket closes when it has gone. */
	CHECK(recv(peer, &c, 1, 0) == 0);
	OK(cuIpcCloseMemHandle(p));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenMemHandle(&p, later, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

/* What the documentation leaves undefined: nobody crashes, and nobody is spared. */
static void gone_exporter(int peer)
{
	CUdeviceptr p = filled(4 * MIB, 1), q;

	export(peer, p);
	hear(peer);
	OK(cuMemFree(p));
	q = filled(4 * MIB, 7);
	export(peer, q);
	tell(peer);
	hear(peer);
	raise(SIGKILL);
}

static void gone_importer(int peer)
{
	CUdeviceptr p = opened(peer), q;
	char c;

	CHECK(word(p) == 1);
	tell(peer);
	q = opened(peer);
	hear(peer);
	/* Freed under the importer's hands, the memory is somebody else's by now. */
	CHECK(word(p) == 7);
	OK(launch_add(add, NULL, p, 1, 1));
	CHECK(word(q) == 8);
	tell(peer);
	CHECK(recv(peer, &c, 1, 0) == 0);
	/* With its owner dead it is the importer's alone. */
	CHECK(word(q + 4 * MIB - 4) == 7);
	OK(launch_add(add, NULL, q, (int)(4 * MIB / 4), 1));
	OK(cuCtxSynchronize());
	CHECK(word(q + 4 * MIB - 4) == 8);
	OK(cuIpcCloseMemHandle(p));
	OK(cuIpcCloseMemHandle(q));
}

/* A stream that goes on when the host says so. */
static unsigned *gate_new(CUdeviceptr *address)
{
	unsigned *host;

	OK(cuMemHostAlloc((void **)&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	*host = 0;
	OK(cuMemHostGetDevicePointer(address, host, 0));
	return host;
}

static void gate_open(unsigned *gate, unsigned value)
{
	__atomic_store_n(gate, value, __ATOMIC_RELEASE);
}

static void event_exporter(int peer)
{
	CUdeviceptr p = filled(3 * MIB, 0), at;
	CUevent event, local;
	CUipcEventHandle h;
	unsigned *gate = gate_new(&at);
	CUstream s, o;
	int v;

	OK(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0));
	CHECK(v == 1);
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, CU_EVENT_INTERPROCESS));
	OK(cuEventCreate(&local, CU_EVENT_DISABLE_TIMING));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&h, local));
	OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
	OK(cuIpcGetEventHandle(&h, event));
	EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle(&local, h));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&o, CU_STREAM_NON_BLOCKING));
	export(peer, p);
	put(peer, &h, sizeof h);
	hear(peer);

	/* Kernel and record lie behind the gate, which opens when the importer has seen that they do. */
	OK(cuStreamWaitValue32(s, at, 1, CU_STREAM_WAIT_VALUE_GEQ));
	OK(launch_add(add, s, p, 1, 5));
	OK(cuEventRecord(event, s));
	EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
	tell(peer);
	hear(peer);
	gate_open(gate, 1);
	OK(cuEventSynchronize(event));
	OK(cuEventQuery(event));
	tell(peer);

	/* The other way round: the importer records, this process waits. */
	hear(peer);
	EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
	OK(cuStreamWaitEvent(s, event, 0));
	OK(launch_add(add, s, p, 1, 1000));
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	tell(peer);
	OK(cuStreamSynchronize(s));
	/* The importer doubles what it finds before it lets this one go on. */
	CHECK(word(p) == (5 + 5 + 100) + 1000);

	/* A wait is for the record that was the last when it was made, not for the one that is done first. */
	OK(cuStreamWaitValue32(s, at, 2, CU_STREAM_WAIT_VALUE_GEQ));
	OK(launch_add(add, s, p, 1, 1));
	OK(cuEventRecord(event, s));
	tell(peer);
	hear(peer);
	OK(cuEventRecord(event, o));
	OK(cuEventSynchronize(event));
	tell(peer);
	hear(peer);
	gate_open(gate, 2);
	hear(peer);
	OK(cuEventDestroy(event));
}

static void event_importer(int peer)
{
	CUdeviceptr p = opened(peer), at, copy = filled(4096, 0);
	unsigned *gate = gate_new(&at);
	CUipcEventHandle h;
	CUevent event, twice;
	CUstream s;
	float ms;

	get(peer, &h, sizeof h);
	OK(cuIpcOpenEventHandle(&event, h));
	OK(cuIpcOpenEventHandle(&twice, h));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&h, event));
	EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, event, twice));
	/* Not recorded yet: nothing to wait for. */
	OK(cuEventQuery(event));
	OK(cuEventSynchronize(twice));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	tell(peer);

	hear(peer);
	EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
	EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(twice));
	OK(cuStreamWaitEvent(s, event, 0));
	OK(cuMemcpyDtoDAsync(copy, p, 4, s));
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	CHECK(word(p) == 0);
	tell(peer);
	OK(cuStreamSynchronize(s));
	CHECK(word(copy) == 5);
	OK(cuEventSynchronize(event));
	hear(peer);

	OK(cuStreamWaitValue32(s, at, 1, CU_STREAM_WAIT_VALUE_GEQ));
	OK(launch_add(add, s, p, 1, 5));
	OK(launch_add(add, s, p, 1, 100));
	OK(cuEventRecord(twice, s));
	tell(peer);
	hear(peer);
	CHECK(word(p) == 5);
	gate_open(gate, 1);

	hear(peer);
	OK(cuStreamWaitEvent(s, event, 0));
	OK(cuMemcpyDtoDAsync(copy, p, 4, s));
	tell(peer);
	hear(peer);
	OK(cuEventQuery(event));
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	tell(peer);
	OK(cuStreamSynchronize(s));
	CHECK(word(copy) == 1111);
	OK(cuEventDestroy(event));
	tell(peer);
}

static void send_fd(int to, int fd)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} c = { .header = { .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)) } };
	struct iovec iov = { .iov_base = "x", .iov_len = 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c };

	memcpy(CMSG_DATA(&c.header), &fd, sizeof fd);
	CHECK(sendmsg(to, &m, 0) == 1);
}

static int receive_fd(int from)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} c;
	char x;
	struct iovec iov = { .iov_base = &x, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c };
	int fd;

	CHECK(recvmsg(from, &m, 0) == 1 && CMSG_FIRSTHDR(&m));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	return fd;
}

static CUdeviceptr mapped(CUmemGenericAllocationHandle h, size_t bytes)
{
	CUmemAccessDesc rw = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE }, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUdeviceptr p;

	OK(cuMemAddressReserve(&p, bytes, 0, 0, 0));
	OK(cuMemMap(p, bytes, 0, h, 0));
	OK(cuMemSetAccess(p, bytes, &rw, 1));
	return p;
}

static size_t available(void)
{
	size_t n, total;

	OK(cuMemGetInfo(&n, &total));
	return n;
}

/* What a descriptor stands for is there as long as anybody has that, or memory that came by it. */
static void descriptor_exporter(int peer)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemGenericAllocationHandle h;
	size_t before = available();
	CUdeviceptr p;
	int fd;

	OK(cuMemCreate(&h, 4 * MIB, &prop, 0));
	p = mapped(h, 4 * MIB);
	OK(cuMemsetD32(p, 9, MIB));
	OK(cuCtxSynchronize());
	OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	send_fd(peer, fd);
	close(fd);
	OK(cuMemUnmap(p, 4 * MIB));
	OK(cuMemRelease(h));
	CHECK(available() == before - 4 * MIB);
	tell(peer);
	hear(peer);
	/* The importer has closed the descriptor and kept the memory. */
	CHECK(available() == before - 4 * MIB);
	/* Nobody gets it meanwhile. */
	p = filled(20 * MIB, 1);
	OK(cuMemFree(p));
	tell(peer);
	hear(peer);
	CHECK(available() == before);
	OK(cuMemCreate(&h, 4 * MIB, &prop, 0));
	p = mapped(h, 4 * MIB);
	OK(cuMemsetD32(p, 10, MIB));
	OK(cuCtxSynchronize());
	OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	send_fd(peer, fd);
	raise(SIGKILL);
}

static void descriptor_importer(int peer)
{
	CUmemGenericAllocationHandle h, more;
	int fd = receive_fd(peer), other;
	CUdeviceptr p;
	char c;

	OK(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	/* Once more, by the descriptor that the import hands on. */
	OK(cuMemExportToShareableHandle(&other, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemImportFromShareableHandle(&more, (void *)(intptr_t)other, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	OK(cuMemRelease(more));
	close(other);
	close(fd);
	hear(peer);
	tell(peer);
	hear(peer);
	p = mapped(h, 4 * MIB);
	CHECK(word(p) == 9 && word(p + 4 * MIB - 4) == 9);
	OK(cuMemUnmap(p, 4 * MIB));
	OK(cuMemRelease(h));
	tell(peer);
	fd = receive_fd(peer);
	CHECK(recv(peer, &c, 1, 0) == 0);
	/* Also of a process that has gone. */
	OK(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	p = mapped(h, 4 * MIB);
	OK(launch_add(add, NULL, p, 1, 1));
	OK(cuCtxSynchronize());
	CHECK(word(p) == 11 && word(p + 4 * MIB - 4) == 10);
}

static const struct {
	const char *name;
	void (*role[2])(int);
} cases[] = {
	{ "memory", { memory_exporter, memory_importer } },
	{ "refusals", { refused_exporter, refused_importer } },
	{ "gone", { gone_exporter, gone_importer } },
	{ "events", { event_exporter, event_importer } },
	{ "descriptors", { descriptor_exporter, descriptor_importer } },
};

/* The two run as programs of their own, joined by a socket, so that what is preloaded takes each for one. */
static void in_two(const char *self, int which)
{
	int pair[2], status;
	pid_t pid[2];

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	for (int i = 0; i < 2; i++) {
		char numbers[3][16];

		snprintf(numbers[0], sizeof numbers[0], "%d", which);
		snprintf(numbers[1], sizeof numbers[1], "%d", i);
		snprintf(numbers[2], sizeof numbers[2], "%d", pair[i]);
		pid[i] = fork();
		CHECK(pid[i] >= 0);
		if (pid[i])
			continue;
		close(pair[!i]);
		execl("/proc/self/exe", self, numbers[0], numbers[1], numbers[2], NULL);
		_exit(127);
	}
	close(pair[0]);
	close(pair[1]);
	for (int i = 0; i < 2; i++) {
		CHECK(waitpid(pid[i], &status, 0) == pid[i]);
		if (status && !(!i && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
			fprintf(stderr, "%s: the %s ended with %x\n", cases[which].name, i ? "importer" : "exporter", (unsigned)status);
			exit(1);
		}
	}
}

/* ipc_test [CASE...] */
int main(int argc, char **argv)
{
	if (argc == 4 && argv[1][0] <= '9') {
		alarm(60);
		/* A first launch waits for the device, and that for the other process, which waits for this one. */
		setenv("CUDA_MODULE_LOADING", "EAGER", 1);
		device_start();
		add = kernel(kernels_load(), "add");
		cases[atoi(argv[1])].role[atoi(argv[2])](atoi(argv[3]));
		return 0;
	}
	setenv("SIMGPU_MEMORY", "64M", 1);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		bool wanted = argc == 1;

		for (int k = 1; k < argc; k++)
			wanted = wanted || !strcmp(argv[k], cases[i].name);
		if (wanted)
			in_two(argv[0], (int)i);
	}
	return 0;
}
