/* SPDX-License-Identifier: Apache-2.0 */
/* Which image is filled next: one that nobody needs; never one that is committed, in use, or wanted by other ranks. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/capture/images.h"
#include "tests/unit/store_tap.h"

#define check(good, what) tap_ok(good, what, NULL)

enum { IMAGES = 3, SMALL = 4 << 20, LARGE = 80 << 20, LARGER = 84 << 20 };

static uint64_t pinned_bytes;
static unsigned pinned_calls;
static struct tpck_staging *staging[IMAGES];

static unsigned refused; /* the call that is; 0: none */
static long takes_ms;    /* a call */
static double pinned_end, shortest_rest_ms = 1e9; /* of the last call; between the end of one and the next */

static int register_some(void *host, size_t bytes)
{
	struct timespec piece = {.tv_nsec = takes_ms * 1000000l}, now;
	double at;

	(void)host;
	clock_gettime(CLOCK_MONOTONIC, &now);
	at = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
	if (pinned_end > 0 && at - pinned_end < shortest_rest_ms)
		shortest_rest_ms = at - pinned_end;
	nanosleep(&piece, NULL);
	clock_gettime(CLOCK_MONOTONIC, &now);
	pinned_end = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
	if (++pinned_calls == refused)
		return -ENOMEM;
	pinned_bytes += bytes;
	return 0;
}

/* All pieces but the last of an image are full, and that is not registered where this is needed. */
static int unregister(void *host)
{
	(void)host;
	pinned_bytes -= TPCK_REGISTER_BYTES;
	return 0;
}

static const struct tpck_device device = {.host_register = register_some, .host_unregister = unregister};

static void make_files(const char *folder, uint64_t bytes)
{
	for (unsigned i = 0; i < IMAGES; i++) {
		char path[256];
		int fd;

		snprintf(path, sizeof path, "%s/image.%u", folder, i);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0 || ftruncate(fd, (off_t)(TPCK_IMAGE_DATA_AT + bytes)))
			exit(1);
		close(fd);
	}
}

static void remove_files(const char *folder)
{
	for (unsigned i = 0; i < IMAGES; i++) {
		char path[256];

		snprintf(path, sizeof path, "%s/image.%u", folder, i);
		unlink(path);
	}
	rmdir(folder);
}

static void set(unsigned i, enum tpck_image_state state, uint64_t step, uint32_t pins)
{
	atomic_store(&staging[i]->header->state, state);
	atomic_store(&staging[i]->header->pins, pins);
	staging[i]->header->step = step;
}

/* The number of the image that is taken, or -errno. */
static int taken(void)
{
	struct tpck_staging *got = NULL;
	uint32_t image = 99;
	int rc = tpck_images_take(&image, &got);

	if (rc)
		return rc;
	return image < IMAGES && got == staging[image] && atomic_load(&got->header->state) == TPCK_IMAGE_FILLING ? (int)image : -EIO;
}

/* False: there are no images to go on with. */
static bool test_map(const char *folder)
{
	struct tpck_staging *first;
	uint32_t image;

	check(tpck_images_room() == 0 && tpck_images_take(&image, &first) == -EAGAIN, "no image before there are any");
	check(tpck_images_map(&device, folder, IMAGES + 1, SMALL) == -ENOENT && tpck_images_room() == 0, "fewer files than asked for");
	check(tpck_images_map(&device, folder, IMAGES, SMALL) == 0 && tpck_images_room() == SMALL, "all are mapped");
	for (unsigned i = 0; i < IMAGES; i++) {
		if (!check(tpck_images_take(&image, &staging[i]) == 0 && image == i, "each is there"))
			return false;
		check(staging[i]->header->magic == TPCK_IMAGE_MAGIC && staging[i]->header->ordinal == i &&
			      staging[i]->header->version == TPCK_WIRE_VERSION && staging[i]->data_bytes == SMALL, "with a header that says which");
	}
	check(tpck_images_take(&image, &first) == -EAGAIN, "all are being filled");
	check(pinned_bytes == IMAGES * (uint64_t)SMALL && pinned_calls == IMAGES, "all of their data is pinned");
	return true;
}

static void test_larger(const char *folder)
{
	struct tpck_staging *old = staging[0];
	uint32_t image;

	set(0, TPCK_IMAGE_FREE, 0, 0);
	set(1, TPCK_IMAGE_COMMITTED, 8, 0);
	set(2, TPCK_IMAGE_COMMITTED, 9, 0);
	pinned_bytes = pinned_calls = 0;
	check(tpck_images_map(&device, folder, IMAGES, SMALL) == 0 && pinned_calls == 0, "what is large enough is not mapped again");
	make_files(folder, LARGE);
	refused = 2;
	check(tpck_images_map(&device, folder, 1, LARGE) == 0 && pinned_calls == 2 && pinned_bytes == 0,
	      "an image of which a part cannot be pinned is not pinned at all");
	check(tpck_images_pinned(&image) == 0 && image == 1, "which is known");
	refused = 0;
	pinned_calls = 0;
	takes_ms = 5;
	pinned_end = 0;
	shortest_rest_ms = 1e9;
	make_files(folder, LARGER);
	check(tpck_images_map(&device, folder, IMAGES, LARGER) == 0 && tpck_images_room() == LARGER, "larger ones");
	check(tpck_images_take(&image, &staging[0]) == 0 && image == 0 && staging[0] != old && staging[0]->data_bytes == LARGER,
	      "what is taken has the room");
	check(pinned_bytes == IMAGES * (uint64_t)LARGER && pinned_calls == 2 * IMAGES, "all of it is pinned, in pieces");
	check(shortest_rest_ms >= 5, "and the driver rests behind each for as long as it took");
	takes_ms = 0;
	check(tpck_images_pinned(&image) == IMAGES && image == IMAGES, "which is known, too");
	check(old->data_bytes == SMALL && atomic_load(&old->header->state) == TPCK_IMAGE_FILLING,
	      "who still has the old one sees the same image");
	atomic_store(&staging[0]->header->state, TPCK_IMAGE_COMMITTED);
	for (unsigned i = 1; i < IMAGES; i++) {
		/* By way of the old mapping, which is of the same file. */
		set(i, TPCK_IMAGE_FREE, 0, 0);
		check(tpck_images_take(&image, &staging[i]) == 0 && image == i && staging[i]->header->ordinal == i, "it keeps its header");
	}
}

static void test_choice(void)
{
	set(0, TPCK_IMAGE_COMMITTED, 1, 0);
	set(1, TPCK_IMAGE_ABANDONED, 2, 0);
	set(2, TPCK_IMAGE_FREE, 3, 0);
	check(taken() == 1 && taken() == 2 && taken() == -EAGAIN, "those given up and those free, and no other");
	set(1, TPCK_IMAGE_FREE, 2, 1);
	check(taken() == -EAGAIN, "a free one that somebody reads still");
	set(1, TPCK_IMAGE_HELD, 2, 0);
	check(taken() == -EAGAIN, "the only one that is held");
	set(2, TPCK_IMAGE_HELD, 3, 0);
	check(taken() == 1, "of two that are held, the older one");
	check(taken() == -EAGAIN, "and not the other one then");
	set(0, TPCK_IMAGE_HELD, 7, 0);
	set(1, TPCK_IMAGE_HELD, 6, 0);
	set(2, TPCK_IMAGE_HELD, 5, 0);
	check(taken() == 2 && taken() == 1 && taken() == -EAGAIN, "the oldest first, until one is left");
	set(0, TPCK_IMAGE_HELD, 7, 0);
	set(1, TPCK_IMAGE_HELD, 6, 0);
	set(2, TPCK_IMAGE_HELD, 5, 1);
	check(taken() == 1, "not one that somebody reads");
	set(1, TPCK_IMAGE_COMMITTED, 6, 0);
	check(taken() == -EAGAIN, "never one that is committed");
	set(0, TPCK_IMAGE_HELD, 7, 0);
	set(1, TPCK_IMAGE_HELD, 6, 0);
	set(2, TPCK_IMAGE_FREE, 5, 0);
	tpck_images_share(true);
	check(taken() == 2 && taken() == -EAGAIN, "none that is held, where other ranks hold the same step");
	tpck_images_share(false);
	check(taken() == 1, "but where there are none");
}

int main(void)
{
	char *folder = tap_folder("/dev/shm");

	make_files(folder, SMALL);
	if (test_map(folder)) {
		test_larger(folder);
		test_choice();
	}
	remove_files(folder);
	return tap_done();
}
