/* SPDX-License-Identifier: Apache-2.0 */
/* The administrator's folder of the memory tier, in which root makes one for each user. */
#include "config.h"

#include "tools/spank/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/spank.h>

int shared_make(const char *shared, uid_t uid, gid_t gid)
{
	bool made = mkdir(shared, 0755) == 0;
	int above = open(shared, O_RDONLY | O_DIRECTORY | O_CLOEXEC), folder = -1, rc = -1;
	const char *why = NULL;
	struct stat found;
	char name[40];

	snprintf(name, sizeof name, "transpckpt-%u", (unsigned)uid);
	/* The step's umask is the user's. */
	if (above < 0 || (made && fchmod(above, 0755)) || fstat(above, &found))
		goto out;
	if (found.st_uid != 0 || (found.st_mode & 022 && !(found.st_mode & S_ISVTX))) {
		why = "others than root can change what is in it";
		goto out;
	}
	if (mkdirat(above, name, 0700) && errno != EEXIST)
		goto out;
	folder = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder < 0 || fstat(folder, &found))
		goto out;
	/* Root's: made just now, or by one who was killed just then. */
	if (found.st_uid == 0 && (fchmod(folder, 0700) || fchown(folder, uid, gid)))
		goto out;
	if (found.st_uid != 0 && found.st_uid != uid) {
		why = "it is another user's";
		goto out;
	}
	rc = 0;
out:
	if (rc)
		slurm_error("transpckpt: %s/%s cannot be used: %s", shared, name, why ? why : strerror(errno));
	if (folder >= 0)
		close(folder);
	if (above >= 0)
		close(above);
	return rc;
}
