/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of 2 MiB for files on tmpfs, whatever the mount says: MADV_COLLAPSE of madvise(2), Linux 6.1 and later. Getting memory in
 * them takes a ninth of the time that 4 KiB pages take, mapping it nearly none. Elsewhere all of this gives pages of 4 KiB. */
#ifndef TPCK_RUNTIME_BASE_HUGE_H
#define TPCK_RUNTIME_BASE_HUGE_H

#include <stddef.h>
#include <stdint.h>

#define TPCK_HUGE_BYTES (2ull << 20)

/* mmap(2) of [0, bytes) of a file, shared, at an address at which its huge pages are mapped as such. MAP_FAILED and errno as of mmap.
 * What it gives is given back by munmap. */
void *tpck_huge_map(int fd, size_t bytes, int protection);

/* Memory for [at, at + bytes) of a file of at least that size, whose first byte is mapped at `base`, by tpck_huge_map: so that no
 * store there can fail. What is there already stays as it is. 0 or -errno; then some of it may have memory. */
int tpck_huge_reserve(int fd, void *base, uint64_t at, uint64_t bytes);

#endif
