/* SPDX-License-Identifier: Apache-2.0 */
/* The last layer of a path (layer.h): the real calls. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/files/files_private.h"
#include "runtime/files/layer.h"

static int kernel_open(const struct tpck_at *at, int flags, mode_t mode)
{
	int fd = tpck_sys_openat(at->folder, at->path, flags, mode);

	tpck_files_number(fd);
	return fd;
}

static int kernel_stat(const struct tpck_at *at, struct stat *found, int flags)
{
	return tpck_sys_fstatat(at->folder, at->path, found, flags);
}

static int kernel_statx(const struct tpck_at *at, int flags, unsigned mask, struct statx *found)
{
	return tpck_sys_statx(at->folder, at->path, flags, mask, found);
}

static int kernel_access(const struct tpck_at *at, int mode, int flags)
{
	return flags ? tpck_sys_faccessat2(at->folder, at->path, mode, flags) : tpck_sys_faccessat(at->folder, at->path, mode);
}

static ssize_t kernel_readlink(const struct tpck_at *at, char *target, size_t size)
{
	return tpck_sys_readlinkat(at->folder, at->path, target, size);
}

static int kernel_truncate(const struct tpck_at *at, off_t bytes)
{
	return tpck_sys_truncate(at->path, bytes);
}

static int kernel_chmod(const struct tpck_at *at, mode_t mode)
{
	return tpck_sys_fchmodat(at->folder, at->path, mode);
}

static int kernel_times(const struct tpck_at *at, const struct timespec times[2], int flags)
{
	return tpck_sys_utimensat(at->folder, at->path, times, flags);
}

static int kernel_mkdir(const struct tpck_at *at, mode_t mode)
{
	return tpck_sys_mkdirat(at->folder, at->path, mode);
}

static int kernel_symlink(const char *target, const struct tpck_at *at)
{
	return tpck_sys_symlinkat(target, at->folder, at->path);
}

static int kernel_link(const struct tpck_at *from, const struct tpck_at *to, int flags)
{
	return tpck_sys_linkat(from->folder, from->path, to->folder, to->path, flags);
}

static int kernel_unlink(const struct tpck_at *at, int flags)
{
	return tpck_sys_unlinkat(at->folder, at->path, flags);
}

static int kernel_rename(const struct tpck_at *from, const struct tpck_at *to, unsigned flags)
{
	return flags ? tpck_sys_renameat2(from->folder, from->path, to->folder, to->path, flags)
		     : tpck_sys_renameat(from->folder, from->path, to->folder, to->path);
}

static const char *kernel_place(const struct tpck_at *at, bool follow, bool changes, char *buffer)
{
	(void)follow;
	(void)changes;
	(void)buffer;
	return at->path;
}

static const char *kernel_around(const struct tpck_at *at, char *buffer)
{
	(void)buffer;
	return at->path;
}

static bool kernel_redirects(const struct tpck_at *at, int flags)
{
	(void)at;
	(void)flags;
	return false;
}

static void kernel_touches(const struct tpck_at *at, int flags)
{
	(void)at;
	(void)flags;
}

const struct tpck_layer tpck_layer_kernel = {
	.open = kernel_open,
	.stat = kernel_stat,
	.statx = kernel_statx,
	.access = kernel_access,
	.readlink = kernel_readlink,
	.truncate = kernel_truncate,
	.chmod = kernel_chmod,
	.times = kernel_times,
	.mkdir = kernel_mkdir,
	.symlink = kernel_symlink,
	.link = kernel_link,
	.unlink = kernel_unlink,
	.rename = kernel_rename,
	.place = kernel_place,
	.around = kernel_around,
	.redirects = kernel_redirects,
	.touches = kernel_touches,
};
