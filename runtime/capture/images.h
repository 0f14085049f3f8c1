/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging images: the session's image files, mapped and pinned, into which snapshots are copied
 * (runtime/wire/segment.h). The agent makes them; which of them is free is read off their headers.
 */
#ifndef TPCK_RUNTIME_CAPTURE_IMAGES_H
#define TPCK_RUNTIME_CAPTURE_IMAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/asks.h"
#include "runtime/track/device.h"
#include "runtime/wire/segment.h"

/* A mapping of one image file; replaced, never unmapped, when the image grows while it is in use. */
struct tpck_staging {
	struct tpck_image_header *header;
	uint64_t data_bytes;
	/* The constant rows that lie in the data area already: of which plan, and each one's digest. */
	uint64_t constants_of;
	uint64_t *constants;
	uint64_t constants_step;
	uint64_t gaps_of; /* the plan between whose rows there are zeros */
	bool pinned;
};

static inline char *tpck_staging_data(const struct tpck_staging *staging)
{
	return (char *)staging->header + TPCK_IMAGE_DATA_AT;
}

static inline struct tpck_image_chunk *tpck_staging_chunk(const struct tpck_staging *staging, uint32_t chunk)
{
	return (struct tpck_image_chunk *)((char *)staging->header + TPCK_IMAGE_CHUNKS_AT) + chunk;
}

/* Maps and pins so many image files of a session folder for data_bytes each, those that are too small
 * anew. The caller's context is current. 0 or -errno. */
int tpck_images_map(const struct tpck_device *device, const char *folder, uint32_t images, uint64_t data_bytes);
/* Data bytes that every image can take; 0 before images are there. */
uint64_t tpck_images_room(void);
/* How many of the images that are mapped are pinned, of how many. */
uint32_t tpck_images_pinned(uint32_t *images);
/* Other ranks hold the same steps: no image that is held is taken back before the agent says so. */
void tpck_images_share(bool with_ranks);
/* An image that nobody needs, now FILLING. -EAGAIN if there is none. */
int tpck_images_take(uint32_t *image, struct tpck_staging **staging);

#endif
