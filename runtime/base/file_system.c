/* SPDX-License-Identifier: Apache-2.0 */
/* File systems by the number that statfs() tells. */
#include "config.h"

#include "runtime/base/file_system.h"
#include "runtime/base/kernel.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Numbers from linux/magic.h and the file systems' own sources. No pointers, which the loader would have to fill in. */
static const struct kind {
	uint32_t type;
	bool site;
	char name[11];
} kinds[] = {
	{0xef53, false, "ext4"}, {0x58465342, false, "xfs"}, {0x9123683e, false, "btrfs"}, {0x01021994, false, "tmpfs"}, {0x858458f6, false, "ramfs"},
	{0x2fc12fc1, false, "zfs"}, {0x794c7630, false, "overlay"}, {0xf2f52010, false, "f2fs"},
	{0x6969, true, "nfs"}, {0x0bd00bd0, true, "lustre"}, {0x47504653, true, "gpfs"}, {0xff534d42, true, "cifs"},
	{0xfe534d42, true, "smb"}, {0x00c36400, true, "ceph"}, {0x19830326, true, "beegfs"}, {0x65735546, true, "fuse"},
	{0x01021997, true, "9p"}, {0x6e736673, true, "weka"}, {0xaad7aaea, true, "panfs"},
};

struct tpck_file_system tpck_file_system_by(uint32_t type)
{
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (type == kinds[i].type)
			return (struct tpck_file_system){kinds[i].name, kinds[i].site, true};
	return (struct tpck_file_system){"an unknown file system", false, false};
}

static bool is_there(const char *path)
{
	return !tpck_sys_faccessat(AT_FDCWD, path, F_OK);
}

bool tpck_file_system_of(const char *path, struct tpck_file_system *file_system)
{
	struct statfs status;
	char part[4096];

	snprintf(part, sizeof part, "%s", path);
	while (!is_there(part) && strrchr(part, '/') > part)
		*strrchr(part, '/') = '\0';
	if (tpck_sys_statfs(is_there(part) ? part : "/", &status))
		return false;
	*file_system = tpck_file_system_by((uint32_t)status.f_type);
	return true;
}
