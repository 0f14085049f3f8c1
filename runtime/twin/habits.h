/* SPDX-License-Identifier: Apache-2.0 */
/* What programs do that do not repeat themselves, by what differs then (doc/limits.md). */
#ifndef TPCK_RUNTIME_TWIN_HABITS_H
#define TPCK_RUNTIME_TWIN_HABITS_H

/* The likely one behind a difference, as it is said; NULL: none comes to mind. */
const char *tpck_habit(const char *difference);

#endif
