/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that copy look twice whether a file is the one that they have looked at, and give it up if it is not: cp says that it "was
 * replaced while being copied". A pending file is another one before and behind its publishing. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/files/files_private.h"
#include "runtime/view/view.h"

static bool compares(void)
{
	static const char *const names[] = {"cp", "mv", "install", "tar", "bsdtar", "cpio", "pax", "zip", "coreutils", "busybox"};
	static int known; /* 1: it does, 2: it does not */
	char path[TPCK_FILES_PATH], *name;
	ssize_t got;

	if (known)
		return known == 1;
	known = 2;
	got = tpck_sys_readlink("/proc/self/exe", path, sizeof path - 1);
	path[got > 0 ? got : 0] = '\0';
	name = strrchr(path, '/');
	for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
		if (strcmp(name + 1, names[i]) == 0)
			known = 1;
	return known == 1;
}

TPCK_FILES_SLOW void tpck_files_stays(int folder, const char *path, bool follow)
{
	const struct tpck_view_entry *entry;
	struct tpck_pending pending;
	uint64_t order = 0, device = 0;
	struct tpck_view *view;
	int saved = errno;

	if (!tpck_files_tool || tpck_files_idle() || !path || !compares() ||
	    tpck_files_look(folder, path, follow, &pending) != TPCK_SEEN_PENDING || !(view = tpck_files_lock())) {
		errno = saved;
		return;
	}
	entry = tpck_view_by_serial(view, pending.index, pending.serial);
	/* One that is being written has no end that could be waited for, and a disk that fails has its own. */
	if (entry && entry->state != TPCK_VIEW_OPEN && !view->failing) {
		order = entry->order;
		device = tpck_view_device_of(view, entry);
	}
	tpck_view_unlock(view);
	if (order)
		(void)tpck_files_await(order, device);
	errno = saved;
}
