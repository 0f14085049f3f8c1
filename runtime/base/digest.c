/* SPDX-License-Identifier: Apache-2.0 */
/* Digests over xxhash.h, inlined so that the preloaded library links nothing. */
#include "config.h"

#include "runtime/base/digest.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/base/layout.h"

TPCK_AT_START __attribute__((flatten)) uint64_t tpck_digest64(const void *bytes, size_t size, uint64_t seed)
{
	return XXH3_64bits_withSeed(bytes, size, seed);
}

void tpck_digest128(const void *bytes, size_t size, uint8_t digest[16])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
	memcpy(digest, canonical.digest, 16);
}

void tpck_digest128_text(const uint8_t digest[16], char text[33])
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < 16; i++) {
		text[2 * i] = digits[digest[i] >> 4];
		text[2 * i + 1] = digits[digest[i] & 15];
	}
	text[32] = '\0';
}
