/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TPCK_RUNTIME_BASE_WHOLE_FILE_H
#define TPCK_RUNTIME_BASE_WHOLE_FILE_H

/* The bytes of a file, for free() by the caller; NULL where it cannot be read or is empty. */
void *tpck_whole_file(const char *path);

#endif
