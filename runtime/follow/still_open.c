/* SPDX-License-Identifier: Apache-2.0 */
/* What the program still has open of scratch files at the boundary, descriptors and shared mappings, becomes the real files'. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/follow/follow.h"
#include "runtime/follow/follow_private.h"

#define SCRATCH "/memfd:" TPCK_SCRATCH_NAME

static struct tpck_overlay_entry **all;
static uint32_t all_count;

/* ---- identity -------------------------------------------------------------------------------- */

/* Programs remember a file's device and inode and look whether a path still has them (SQLite does): a file that was held
 * keeps those that it had while running forward. */
enum { ALIASES = 256 };
struct identity {
	dev_t device;
	ino_t inode;
};
static struct {
	struct identity real, shown;
} aliases[ALIASES] TPCK_LARGE;
_Atomic uint32_t tpck_still_open_aliases;

static void alias(const struct stat *real, const struct stat *scratch)
{
	uint32_t count = atomic_load(&tpck_still_open_aliases);

	for (uint32_t i = 0; i < count; i++)
		if (aliases[i].real.inode == real->st_ino && aliases[i].real.device == real->st_dev)
			return;
	if (count == ALIASES)
		return;
	aliases[count].real = (struct identity){real->st_dev, real->st_ino};
	aliases[count].shown = (struct identity){scratch->st_dev, scratch->st_ino};
	atomic_store(&tpck_still_open_aliases, count + 1);
}

static const struct identity *shown(dev_t device, ino_t inode)
{
	uint32_t count = atomic_load(&tpck_still_open_aliases);

	for (uint32_t i = 0; i < count; i++)
		if (aliases[i].real.inode == inode && aliases[i].real.device == device)
			return &aliases[i].shown;
	return NULL;
}

void tpck_follow_shown(struct stat *found)
{
	const struct identity *as = shown(found->st_dev, found->st_ino);

	if (as) {
		found->st_dev = as->device;
		found->st_ino = as->inode;
	}
	if (!found->st_nlink && S_ISREG(found->st_mode) && tpck_overlay_active())
		found->st_nlink = tpck_overlay_names(found->st_dev, found->st_ino);
}

void tpck_follow_shown_x(struct statx *found)
{
	const struct identity *as = shown(makedev(found->stx_dev_major, found->stx_dev_minor), found->stx_ino);

	if (as && found->stx_mask & STATX_INO) {
		found->stx_dev_major = major(as->device);
		found->stx_dev_minor = minor(as->device);
		found->stx_ino = as->inode;
	}
	if (found->stx_mask & STATX_NLINK && !found->stx_nlink && S_ISREG(found->stx_mode) && tpck_overlay_active())
		found->stx_nlink = (uint32_t)tpck_overlay_names(makedev(found->stx_dev_major, found->stx_dev_minor), found->stx_ino);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* The path whose scratch file has this identity, but for the descriptor of ours; NULL: none. */
static const char *path_of(const struct stat *found, int not_this)
{
	struct stat scratch;

	for (uint32_t i = 0; i < all_count; i++)
		if (all[i]->fd >= 0 && all[i]->fd != not_this &&
		    !tpck_sys_fstatat(all[i]->fd, "", &scratch, AT_EMPTY_PATH) &&
		    scratch.st_ino == found->st_ino && scratch.st_dev == found->st_dev)
			return all[i]->path;
	return NULL;
}

/* The path whose scratch file or stand-in a descriptor of the program's is, or NULL. */
static const char *path_behind(int fd, char *folder, size_t size)
{
	char name[TPCK_FOLLOW_PATH];
	struct stat found;

	if (!tpck_folders_link(fd, name, sizeof name))
		return NULL;
	/* One that is being listed is listed to its end. */
	if (tpck_folders_is_ours(name))
		return tpck_folders_is_standin(name) && tpck_folders_named(name, folder, size) ? folder : NULL;
	if (strncmp(name, SCRATCH, strlen(SCRATCH)) != 0 || tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH))
		return NULL;
	return path_of(&found, fd);
}

static bool is_ours(int fd)
{
	for (uint32_t i = 0; i < all_count; i++)
		if (all[i]->fd == fd)
			return true;
	return false;
}

/* Gives fd, and every later descriptor of the same open file description, the real file. */
static int descriptor_settle(int fd, const char *path, const int *later, int count)
{
	int flags = tpck_sys_fcntl(fd, F_GETFL, 0), kept = tpck_sys_fcntl(fd, F_GETFD, 0);
	off_t at = tpck_sys_lseek(fd, 0, SEEK_CUR);
	int real = tpck_sys_openat(AT_FDCWD, path, flags & ~(O_CREAT | O_EXCL | O_TRUNC), 0);
	struct stat from, to;

	if (real < 0)
		return -errno;
	if (!tpck_sys_fstatat(fd, "", &from, AT_EMPTY_PATH) && !tpck_sys_fstatat(real, "", &to, AT_EMPTY_PATH))
		alias(&to, &from);
	tpck_sys_lseek(real, at, SEEK_SET);
	for (int i = 0; i < count; i++) {
		int close_on_exec = tpck_sys_fcntl(later[i], F_GETFD, 0);

		if (tpck_sys_kcmp(getpid(), getpid(), 0 /* KCMP_FILE */, fd, later[i]) == 0)
			tpck_sys_dup3(real, later[i], close_on_exec & FD_CLOEXEC ? O_CLOEXEC : 0);
	}
	tpck_sys_dup3(real, fd, kept & FD_CLOEXEC ? O_CLOEXEC : 0);
	tpck_sys_close(real);
	return 0;
}

static int descriptors_settle(char *why, size_t size)
{
	int open_fds[1024], count = 0;
	char buffer[8192], folder_path[TPCK_FOLLOW_PATH];
	int folder = tpck_sys_openat(AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	ssize_t got;

	if (folder < 0) {
		snprintf(why, size, "cannot list open files in /proc/self/fd: %m");
		return -errno;
	}
	while ((got = tpck_sys_getdents(folder, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			int fd = atoi(((struct dirent64 *)at)->d_name);

			if (((struct dirent64 *)at)->d_name[0] != '.' && fd != folder && count < 1024 && !is_ours(fd))
				open_fds[count++] = fd;
		}
	tpck_sys_close(folder);
	for (int i = 0; i < count; i++) {
		const char *path = path_behind(open_fds[i], folder_path, sizeof folder_path);
		int result = path ? descriptor_settle(open_fds[i], path, open_fds + i + 1, count - i - 1) : 0;

		if (result) {
			snprintf(why, size, "cannot open %.100s again: %s", path, strerror(-result));
			return result;
		}
	}
	return 0;
}

/* ---- mappings -------------------------------------------------------------------------------- */

/* One line of /proc/self/maps. Only shared ones matter: a private one goes on with what it has. */
static int mapping_settle(const char *line, char *why, size_t size)
{
	unsigned long from, to, offset;
	unsigned device_major, device_minor;
	struct stat found = {0};
	char access[5];
	const char *path;
	int name = 0, protection, fd, result = 0;
	unsigned long inode;

	if (sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %n", &from, &to, access, &offset, &device_major, &device_minor, &inode,
		   &name) < 7 || access[3] != 's' || strncmp(line + name, SCRATCH, strlen(SCRATCH)) != 0)
		return 0;
	found.st_dev = makedev(device_major, device_minor);
	found.st_ino = inode;
	path = path_of(&found, -1);
	if (!path)
		return 0;
	protection = (access[0] == 'r' ? PROT_READ : 0) | (access[1] == 'w' ? PROT_WRITE : 0) | (access[2] == 'x' ? PROT_EXEC : 0);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0 && !(protection & PROT_WRITE))
		fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0 || tpck_sys_mmap((void *)from, to - from, protection, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) == MAP_FAILED) {
		result = -errno;
		snprintf(why, size, "cannot map %.100s again: %m", path);
	}
	if (fd >= 0)
		tpck_sys_close(fd);
	return result;
}

static int mappings_settle(char *why, size_t size)
{
	int fd = tpck_sys_openat(AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0), result = 0;
	size_t room = 1 << 20, used = 0;
	char *text = malloc(room), *end;
	ssize_t got = -1;

	/* Whole before the first is changed. */
	while (fd >= 0 && text && (got = tpck_sys_read(fd, text + used, room - used - 1)) > 0) {
		used += (size_t)got;
		if (room - used < 8192) {
			char *grown = realloc(text, room *= 2);

			if (!grown)
				break;
			text = grown;
		}
	}
	if (fd >= 0)
		tpck_sys_close(fd);
	if (got) {
		snprintf(why, size, "cannot read /proc/self/maps");
		free(text);
		return -EIO;
	}
	text[used] = '\0';
	for (char *line = text; *line && !result; line = end) {
		end = line + strcspn(line, "\n");
		if (*end)
			*end++ = '\0';
		result = mapping_settle(line, why, size);
	}
	free(text);
	return result;
}

int tpck_still_open_settle(struct tpck_overlay_entry **entries, uint32_t count, char *why, size_t size)
{
	int result;

	all = entries;
	all_count = count;
	result = mappings_settle(why, size);
	if (!result)
		result = descriptors_settle(why, size);
	all = NULL;
	all_count = 0;
	return result;
}
