/* SPDX-License-Identifier: Apache-2.0 */
/* Rings (io_uring) of this process. What is told to the kernel by one is not seen here: it may open, write, close and rename by it, and a
 * file that is registered with it is open without any descriptor. Whether there is a ring only /proc says, so it is asked where it matters. */
#include "config.h"

#include <errno.h>

#include "runtime/base/log.h"
#include "runtime/files/files_private.h"
#include "runtime/view/opened.h"

/* The process's first thread may have ended, and this one may have descriptors of its own. */
#define SELF "/proc/thread-self"

static _Atomic uint32_t taken;
static _Atomic bool said, hides;

static void is_there(struct tpck_view *view)
{
	if (view)
		atomic_store(&view->ring, tpck_files_pid());
	if (!atomic_exchange(&said, true))
		tpck_log_info("this process uses io_uring: what it opens, closes and renames by that is not seen here, and may be at its path before what it has closed otherwise");
}

/* `all`: one that only a mapping shows, too. */
static TPCK_FILES_SLOW struct tpck_opening look(struct tpck_opened *opened, unsigned count, bool all)
{
	struct tpck_opening opening = {0};

	tpck_opened_descriptors(SELF, opened, count, &opening);
	/* One may be mapped, and known to the kernel by another number than a descriptor's. */
	if (!opening.ring && all)
		tpck_opened_mappings(SELF, opened, count, &opening);
	if (opening.ring)
		is_there(atomic_load(&tpck_files_view));
	return opening;
}

bool tpck_files_has_ring(bool unsure)
{
	struct tpck_opening opening = look(NULL, 0, !unsure);

	if (unsure && opening.ring && opening.rings_unknown && !atomic_exchange(&hides, true)) {
		tpck_files_take_none();
		tpck_log_warn("this process has files registered with io_uring, and nothing says which: its files are written as ever from here on");
	}
	return opening.ring;
}

bool tpck_files_in_ring(uint64_t serial)
{
	struct tpck_opened opened = {.serial = serial};
	int saved = errno;
	struct tpck_opening opening = look(&opened, 1, true);

	errno = saved;
	return opened.registered || opening.rings_unknown;
}

/* The 1st, 2nd, 4th, 8th and so on: a ring that comes later is found by the agent. */
void tpck_files_taken(struct tpck_view *view)
{
	uint32_t count = atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed) + 1;
	struct tpck_opening opening = {0};

	if (atomic_load_explicit(&said, memory_order_relaxed))
		return;
	if (!(count & (count - 1)))
		tpck_opened_descriptors(SELF, NULL, 0, &opening);
	if (opening.ring || atomic_load(&view->ring) == tpck_files_pid())
		is_there(view);
}
