/* SPDX-License-Identifier: Apache-2.0 */
/* Staging images. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/capture/images.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/huge.h"
#include "runtime/base/log.h"

/* The longest rest between two pieces. */
enum { REST_MAX_NS = 20000000 };

static struct tpck_staging *_Atomic stagings[TPCK_IMAGES_MAX];
static _Atomic uint32_t image_count;
static _Atomic uint64_t room;
static bool shared;

static void header_begin(struct tpck_image_header *header, uint32_t ordinal)
{
	if (header->magic == TPCK_IMAGE_MAGIC)
		return;
	header->magic = TPCK_IMAGE_MAGIC;
	header->version = TPCK_WIRE_VERSION;
	header->ordinal = ordinal;
	atomic_store(&header->state, TPCK_IMAGE_FREE);
}

/* Lets others have the driver for as long as it was held. */
static void rest(uint64_t since)
{
	uint64_t ns = tpck_clock_monotonic_ns() - since;
	struct timespec wait = {.tv_nsec = (long)(ns < REST_MAX_NS ? ns : REST_MAX_NS)};

	tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &wait, NULL);
}

/* Registered in pieces, so that no single call holds the driver for long, with a rest behind each: a driver registers some 10 GB a second, with locks that
 * launches need. Where one is refused (locked
 * memory is limited) none stays: copies still work, by way of the driver's own pages. */
static bool register_pieces(const struct tpck_device *device, const struct tpck_staging *staging)
{
	for (uint64_t from = 0; from < staging->data_bytes; from += TPCK_REGISTER_BYTES) {
		uint64_t left = staging->data_bytes - from, begun = tpck_clock_monotonic_ns();

		if (!device->host_register(tpck_staging_data(staging) + from, left < TPCK_REGISTER_BYTES ? left : TPCK_REGISTER_BYTES)) {
			rest(begun);
			continue;
		}
		tpck_log_info("image memory could not be pinned; copies are slower");
		while (from) {
			from -= TPCK_REGISTER_BYTES;
			device->host_unregister(tpck_staging_data(staging) + from);
		}
		return false;
	}
	return true;
}

static int image_open(const struct tpck_device *device, const char *folder, uint32_t image, uint64_t data_bytes)
{
	struct tpck_staging *made = calloc(1, sizeof *made);
	char path[320];
	void *at;
	int fd;

	if (!made)
		return -ENOMEM;
	snprintf(path, sizeof path, "%s/image.%u", folder, image);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0) {
		free(made);
		return -errno;
	}
	at = tpck_huge_map(fd, TPCK_IMAGE_DATA_AT + data_bytes, PROT_READ | PROT_WRITE);
	tpck_sys_close(fd);
	if (at == MAP_FAILED) {
		free(made);
		return -ENOMEM;
	}
	made->header = at;
	made->data_bytes = data_bytes;
	header_begin(made->header, image);
	made->pinned = register_pieces(device, made);
	atomic_store(&stagings[image], made);
	return 0;
}

int tpck_images_map(const struct tpck_device *device, const char *folder, uint32_t images, uint64_t data_bytes)
{
	int result = 0;

	if (images > TPCK_IMAGES_MAX)
		images = TPCK_IMAGES_MAX;
	for (uint32_t i = 0; i < images && !result; i++) {
		const struct tpck_staging *now = atomic_load(&stagings[i]);

		if (!now || now->data_bytes < data_bytes)
			result = image_open(device, folder, i, data_bytes);
		/* An image as large as those in use need not wait for the others to be pinned. */
		if (!result && atomic_load(&image_count) == i && i && atomic_load(&room) == data_bytes)
			atomic_store(&image_count, i + 1);
	}
	if (result)
		return result;
	atomic_store(&image_count, images);
	atomic_store(&room, data_bytes);
	return 0;
}

void tpck_images_share(bool with_ranks)
{
	shared = with_ranks;
}

uint32_t tpck_images_pinned(uint32_t *images)
{
	uint32_t pinned = 0;

	*images = atomic_load(&image_count);
	for (uint32_t i = 0; i < *images; i++)
		pinned += atomic_load(&stagings[i])->pinned;
	return pinned;
}

uint64_t tpck_images_room(void)
{
	return atomic_load(&room);
}

/* An agent that gets no processor in time commits late: of two images that are held, the older one is
 * no longer wanted. The newest one held and the newest one committed are never touched. */
static int image_supersede(uint32_t *image, uint32_t count)
{
	struct tpck_image_header *older = NULL;
	uint32_t held = 0;

	for (uint32_t i = 0; i < count && !shared; i++) {
		struct tpck_image_header *header = atomic_load(&stagings[i])->header;

		if (atomic_load(&header->state) != TPCK_IMAGE_HELD || atomic_load(&header->pins))
			continue;
		held++;
		if (!older || header->step < older->step) {
			older = header;
			*image = i;
		}
	}
	if (held >= 2) {
		uint32_t state = TPCK_IMAGE_HELD;

		if (atomic_compare_exchange_strong(&older->state, &state, TPCK_IMAGE_FILLING))
			return 0;
	}
	return -EAGAIN;
}

static int image_free(uint32_t *image, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct tpck_image_header *header = atomic_load(&stagings[i])->header;
		uint32_t state = atomic_load(&header->state);

		if ((state == TPCK_IMAGE_FREE || state == TPCK_IMAGE_ABANDONED) && !atomic_load(&header->pins) &&
		    atomic_compare_exchange_strong(&header->state, &state, TPCK_IMAGE_FILLING)) {
			*image = i;
			return 0;
		}
	}
	return image_supersede(image, count);
}

int tpck_images_take(uint32_t *image, struct tpck_staging **staging)
{
	int result = image_free(image, atomic_load(&image_count));

	if (!result)
		*staging = atomic_load(&stagings[*image]);
	return result;
}
