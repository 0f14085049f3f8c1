/* SPDX-License-Identifier: Apache-2.0 */
/* File systems by the number that statfs() tells. */
#include "config.h"

#include "runtime/store/file_system.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "runtime/store/layout.h"

/* Numbers from linux/magic.h and the file systems' own sources. */
static const struct kind {
	uint32_t magic;
	struct tpck_file_system is;
} kinds[] = {
	{0xef53, {"ext4", false}}, {0x58465342, {"xfs", false}}, {0x9123683e, {"btrfs", false}}, {0x01021994, {"tmpfs", false}},
	{0x2fc12fc1, {"zfs", false}}, {0x794c7630, {"overlay", false}}, {0xf2f52010, {"f2fs", false}},
	{0x6969, {"nfs", true}}, {0x0bd00bd0, {"lustre", true}}, {0x47504653, {"gpfs", true}}, {0xff534d42, {"cifs", true}},
	{0xfe534d42, {"smb", true}}, {0x00c36400, {"ceph", true}}, {0x19830326, {"beegfs", true}}, {0x65735546, {"fuse", true}},
	{0x01021997, {"9p", true}}, {0x6e736673, {"weka", true}}, {0xaad7aaea, {"panfs", true}},
};

bool tpck_file_system_of(const char *path, struct tpck_file_system *file_system)
{
	char part[TPCK_PATH_MAX];
	struct statfs status;

	snprintf(part, sizeof part, "%s", path);
	while (access(part, F_OK) != 0 && strrchr(part, '/') > part)
		*strrchr(part, '/') = '\0';
	if (statfs(access(part, F_OK) == 0 ? part : "/", &status))
		return false;
	*file_system = (struct tpck_file_system){"an unknown file system", false};
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if ((uint32_t)status.f_type == kinds[i].magic)
			*file_system = kinds[i].is;
	return true;
}
