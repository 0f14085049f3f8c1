/* SPDX-License-Identifier: Apache-2.0 */
/* plugstack.conf's shm=FOLDER. */
#ifndef TPCK_TOOLS_SPANK_SHARED_H
#define TPCK_TOOLS_SPANK_SHARED_H

#include <sys/types.h>

/* As root: makes `shared`/transpckpt-UID, the user's and nobody else's. 0, or -1 behind a line. */
int shared_make(const char *shared, uid_t uid, gid_t gid);

#endif
