/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/shared_file.h"
#include "runtime/base/undumped.h"
#include "runtime/base/unsignalled.h"

static void *map(int fd, size_t bytes)
{
	void *at = tpck_undumped(tpck_sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), bytes);

	return at == MAP_FAILED ? NULL : at;
}

void *tpck_shared_file_new(const char *path, size_t bytes)
{
	struct tpck_unsignalled signals;
	void *at = NULL;
	int fd;

	tpck_sys_unlinkat(AT_FDCWD, path, 0);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	tpck_unsignalled_begin(&signals);
	if (fd >= 0 && !tpck_sys_fallocate(fd, 0, 0L, (long)bytes))
		at = map(fd, bytes);
	tpck_unsignalled_end(&signals);
	if (fd >= 0)
		tpck_sys_close(fd);
	if (fd >= 0 && !at)
		tpck_sys_unlinkat(AT_FDCWD, path, 0);
	return at;
}

void *tpck_shared_file_open(const char *path, size_t bytes)
{
	int fd = tpck_sys_openat(AT_FDCWD, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
	struct stat found = {0};
	void *at = NULL;

	if (fd < 0)
		return NULL;
	if (!tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) && S_ISREG(found.st_mode) && found.st_size >= (off_t)bytes)
		at = map(fd, bytes);
	tpck_sys_close(fd);
	return at;
}
