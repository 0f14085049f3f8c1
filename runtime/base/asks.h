/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and places that the library asks a device's driver for, and `transpckpt doctor --device` tries. */
#ifndef TPCK_RUNTIME_BASE_ASKS_H
#define TPCK_RUNTIME_BASE_ASKS_H

/* Where the arena lies (runtime/track/arena.h): above what loaders and sanitizers use, below the mapping area. */
#define TPCK_ARENA_BASE 0x4a0000000000ull
#define TPCK_ARENA_BYTES (1ull << 38)

/* The data area of an image is registered with the driver in pieces of so many bytes from its beginning. A copy that touches two
 * registrations is refused (vendor documentation, cuMemcpyAsync: a range is registered as a whole or not at all). */
enum { TPCK_REGISTER_BYTES = 64 << 20 };

#endif
