/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of images: memory of a file on the memory tier, registered with the driver, and copied to. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/base/asks.h"
#include "runtime/base/clock.h"
#include "runtime/base/huge.h"
#include "tools/cli/device/libcuda.h"
#include "tools/cli/device/probe.h"
#include "tools/cli/device/probes.h"

static double gbps(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes / (double)ns : 0;
}

/* ---- an image ------------------------------------------------------------------------------------------ */

/* A file without a name: whatever ends the probe, nothing stays. In the nearest folder that is there. */
static int open_nameless(const char *shm)
{
	char folder[TPCK_PATH_MAX];
	int fd;

	snprintf(folder, sizeof folder, "%s", shm);
	while (access(folder, F_OK) != 0 && strrchr(folder, '/') > folder)
		*strrchr(folder, '/') = '\0';
	fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		return fd;
	if (snprintf(folder + strlen(folder), sizeof folder - strlen(folder), "/probe.XXXXXX") < 0)
		return -1;
	fd = mkostemp(folder, O_CLOEXEC);
	if (fd >= 0)
		unlink(folder);
	return fd;
}

/* How much of the wanted bytes there is room for: whole pieces, or two small ones. */
static void choose_size(int fd, size_t wanted, struct probe_image *image)
{
	size_t of_device = 0, total = 0;
	struct statvfs space;

	if (fstatvfs(fd, &space) == 0 && (uint64_t)space.f_bavail * space.f_frsize / 4 < wanted)
		wanted = (size_t)space.f_bavail * space.f_frsize / 4;
	if (cuda.cuMemGetInfo_v2 && CALL(cuMemGetInfo_v2, &of_device, &total) == CUDA_SUCCESS && of_device / 4 < wanted)
		wanted = of_device / 4;
	image->piece = TPCK_REGISTER_BYTES;
	if (wanted < 2 * image->piece)
		image->piece = wanted / 2 / (2 << 20) * (2 << 20);
	image->bytes = image->piece ? wanted / image->piece * image->piece : 0;
}

bool probe_image_open(struct probe_image *image, size_t wanted, const char *what)
{
	int fd = open_nameless(probe_cli.shm);
	uint64_t begun;

	*image = (struct probe_image){0};
	if (fd < 0) {
		probe_find(BAD, what, "not tried: no file can be made in %s (%s). Set TRANSPCKPT_SHM", probe_cli.shm, strerror(errno));
		return false;
	}
	choose_size(fd, wanted, image);
	image->at = MAP_FAILED;
	if (image->bytes && ftruncate(fd, (off_t)image->bytes) == 0)
		image->at = tpck_huge_map(fd, image->bytes, PROT_READ | PROT_WRITE);
	if (image->at == MAP_FAILED || tpck_huge_reserve(fd, image->at, 0, image->bytes)) {
		probe_find(BAD, what, "not tried: there is no room for it in %s, or on the device", probe_cli.shm);
		close(fd);
		return false;
	}
	close(fd);
	/* As the agent has done when the library registers it. */
	memset(image->at, 0, image->bytes);
	probe_at("cuMemHostRegister of memory on tmpfs");
	begun = tpck_clock_monotonic_ns();
	for (size_t from = 0; from < image->bytes && image->registered == CUDA_SUCCESS; from += image->piece) {
		image->registered = cuda.cuMemHostRegister_v2(image->at + from, image->piece, CU_MEMHOSTREGISTER_PORTABLE);
		while (image->registered != CUDA_SUCCESS && from) {
			from -= image->piece;
			(void)cuda.cuMemHostUnregister(image->at + from);
		}
	}
	image->ns = tpck_clock_monotonic_ns() - begun;
	return true;
}

/* What of the limits may be the reason for memory that is not pinned. */
static const char *locked_limit(void)
{
	static char text[200];
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return "no limit of locked memory is set";
	snprintf(text, sizeof text, "locked memory is limited to %s: raise it (ulimit -l unlimited; LimitMEMLOCK= of a service, --ulimit memlock=-1 of "
		 "a container, PropagateResourceLimitsExcept=MEMLOCK of Slurm)", cli_bytes(limit.rlim_cur));
	return text;
}

/* ---- copies -------------------------------------------------------------------------------------------- */

/* One pass over the whole of it, in one copy a registration. */
static CUresult copy(const struct probe_image *image, CUdeviceptr from, CUstream stream, uint64_t *submitted, uint64_t *done)
{
	uint64_t begun = tpck_clock_monotonic_ns();
	CUresult result = CUDA_SUCCESS;

	probe_at("cuMemcpyDtoHAsync into an image");
	for (size_t at = 0; at < image->bytes && result == CUDA_SUCCESS; at += image->piece)
		result = cuda.cuMemcpyDtoHAsync_v2(image->at + at, from + at, image->piece, stream);
	*submitted = tpck_clock_monotonic_ns() - begun;
	if (result == CUDA_SUCCESS)
		result = CALL(cuStreamSynchronize, stream);
	*done = tpck_clock_monotonic_ns() - begun;
	return result;
}

static bool holds(const struct probe_image *image, size_t at, size_t bytes, unsigned char value)
{
	for (size_t i = at; i < at + bytes; i++)
		if ((unsigned char)image->at[i] != value)
			return false;
	return true;
}

/* A copy that lies in two registrations. */
static const char *copy_over(const struct probe_image *image, CUdeviceptr from, CUstream stream)
{
	size_t at = image->piece - 65536, bytes = 131072;
	CUresult result;

	memset(image->at + at, 0, bytes);
	result = CALL(cuMemcpyDtoHAsync_v2, image->at + at, from + at, bytes, stream);
	if (result == CUDA_SUCCESS)
		result = CALL(cuStreamSynchronize, stream);
	if (result != CUDA_SUCCESS)
		return "refused, so the library cuts there";
	return holds(image, at, bytes, 0xa5) ? "carried out here; the library cuts there all the same" : "answered with wrong bytes; the library cuts there";
}

static void examine_copies(const struct probe_image *image, CUdeviceptr from, CUstream stream)
{
	uint64_t submitted = 0, done = 0, fastest = UINT64_MAX;
	bool waits = true;
	bool pinned = image->registered == CUDA_SUCCESS;
	CUresult result = CALL(cuMemsetD8_v2, from, 0xa5, image->bytes);

	/* The call returns before the device has done it, and the stream does not go by it. */
	if (result == CUDA_SUCCESS)
		result = CALL(cuCtxSynchronize);
	/* The first one finds memory that nobody has touched; on a busy machine a single one tells little. */
	for (int i = 0; i < 4 && result == CUDA_SUCCESS; i++) {
		result = copy(image, from, stream, &submitted, &done);
		fastest = i && done < fastest ? done : fastest;
		waits = waits && done > 5000000 && submitted > done * 4 / 5;
	}
	if (result != CUDA_SUCCESS) {
		probe_find(BAD, "copies", "from the device to an image fail (%s): no snapshots", probe_error(result));
		return;
	}
	if (!holds(image, 0, image->bytes, 0xa5)) {
		probe_find(BAD, "copies", "bring other bytes than the device has: no snapshot would hold what the device had");
		return;
	}
	if (!pinned)
		probe_find(NOTE, "copies", "%.1f GB/s into memory that is not pinned; the copying thread waits in the driver", gbps(image->bytes, fastest));
	else if (waits)
		probe_find(NOTE, "copies", "%.1f GB/s, but the calls wait until they are done: the copying thread waits in the driver, and a snapshot may be "
			   "handed over too late for the program's next step", gbps(image->bytes, fastest));
	else
		probe_find(GOOD, "copies", "%.1f GB/s from the device to pinned memory; one over two registrations is %s", gbps(image->bytes, fastest),
			   copy_over(image, from, stream));
}

void probe_image_run(void)
{
	struct probe_image image;
	CUdeviceptr from;
	CUstream stream;
	CUresult result;

	if (!probe_device_open("pinned images") || !probe_image_open(&image, 256 << 20, "pinned images"))
		return;
	if (image.registered != CUDA_SUCCESS)
		probe_find(NOTE, "pinned images", "memory of %s cannot be pinned (%s): copies are slower, and less beside the program. Here %s", probe_cli.shm,
			   probe_error(image.registered), locked_limit());
	else
		probe_find(GOOD, "pinned images", "memory of %s can be pinned, at %.1f GB/s in pieces of %s", probe_cli.shm, gbps(image.bytes, image.ns),
			   cli_bytes(image.piece));
	result = probe_map(image.bytes, &from);
	if (result == CUDA_SUCCESS)
		result = CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	if (result != CUDA_SUCCESS)
		probe_find(NOTE, "copies", "not tried: there is no device memory to copy (%s)", probe_error(result));
	else
		examine_copies(&image, from, stream);
}
