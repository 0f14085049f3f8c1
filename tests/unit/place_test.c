/* SPDX-License-Identifier: Apache-2.0 */
/* Which device a rank gets as another rank of its node, and which variables say only where a rank is. */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/place.h"
#include "tests/unit/store_tap.h"

static struct {
	char text[240];
} err;

/* The rank was `was` on device `ordinal` of `count`, and is `local` now; `wanted` NULL: refused. */
static bool devices(long was, unsigned ordinal, unsigned count, long local, const char *visible, unsigned here, const char *wanted)
{
	struct tpck_place_device then = {was, ordinal, count};
	char list[256];
	int result;

	err.text[0] = '\0';
	result = tpck_place_devices(&then, local, visible, here, list, sizeof list, err.text, sizeof err.text);
	if (result || !wanted)
		return result < 0 && !wanted && err.text[0] && !list[0];
	if (strcmp(list, wanted) != 0)
		snprintf(err.text, sizeof err.text, "'%.100s' and not '%.100s'", list, wanted);
	return strcmp(list, wanted) == 0;
}

static bool place_in_log(const char *text, size_t bytes)
{
	struct {
		struct tpck_record head;
		char text[64];
	} record = {.head = {.bytes = (uint32_t)bytes, .type = TPCK_RECORD_PLACE}};

	memcpy(record.text, text, bytes);
	tpck_place_learn(&record.head);
	return !tpck_place_return(err.text, sizeof err.text);
}

static struct tpck_device_traits present;

static int describe(int device, struct tpck_device_traits *traits)
{
	(void)device;
	*traits = present;
	return 0;
}

/* Whether one may go on here that was on device 1 of 2 of capability 9.0, 132 multiprocessors and 80 GiB. */
static bool goes_on(int ordinal, uint32_t capability, uint32_t multiprocessors, uint64_t mib)
{
	const struct tpck_device device = {.describe = describe};

	present = (struct tpck_device_traits){.count = 2, .capability = capability, .multiprocessors = multiprocessors, .memory = mib << 20};
	err.text[0] = '\0';
	return !tpck_place_compare(&device, ordinal, err.text, sizeof err.text);
}

static void learn_device(void)
{
	struct {
		struct tpck_record head;
		struct tpck_record_device device;
	} record = {{.bytes = sizeof record.device, .type = TPCK_RECORD_DEVICE}, {{2, 90, 132, 0, 80ull << 30}, 1, 0}};

	tpck_place_learn(&record.head);
}

int main(void)
{
	static char rank[] = "RANK=1", local[] = "LOCAL_RANK=1", world[] = "LOCAL_WORLD_SIZE=2";
	char *environment[] = {rank, local, world, NULL};

	ok(devices(0, 0, 2, 0, "0,1", 0, ""), "the same rank of its node, the same devices: as it is");
	ok(devices(0, 0, 2, 1, "0,1", 0, "1,0"), "the second one of a node that began as the first");
	ok(devices(1, 1, 2, 0, "0,1", 0, "1,0"), "the first one that began as the second");
	ok(devices(1, 1, 8, 6, NULL, 8, "0,6,1,2,3,4,5,7"), "by number where no list is set");
	ok(devices(5, 5, 8, 2, NULL, 8, "0,1,3,4,5,2,6,7"), "all others are seen, too");
	ok(devices(0, 0, 1, 1, "GPU-a,GPU-b", 0, "GPU-b"), "one that saw one device sees one, by whatever name");
	ok(devices(0, 0, 1, 0, "0,1", 0, "0"), "and so does the first one");
	ok(devices(3, 0, 1, 1, "2", 0, ""), "a launcher that gives each its own is left alone");
	ok(devices(3, 1, 2, 1, "0,1", 0, ""), "ranks that share devices: still on the second");
	ok(devices(3, 1, 2, 2, "0,1", 0, "1,0"), "and on the first");
	ok(devices(0, 0, 2, 1, "0", 0, ""), "on a node with fewer devices they share them");
	ok(devices(1, 1, 2, 0, "0", 0, NULL), "the number of its device does not exist here");
	ok(devices(1, 1, 2, 0, "", 0, NULL), "no device");
	ok(devices(1, 1, 2, 0, "-1,0", 0, NULL), "a list ends at what is no device");
	ok(devices(0, 1, 2, 1, "0,1", 0, NULL), "a program that chooses otherwise may not move");
	ok(devices(0, 1, 2, 0, "0,1", 0, ""), "but stay");
	ok(devices(-1, 1, 2, -1, "0,1", 0, ""), "nobody says");
	ok(devices(-1, 1, 2, 1, "0,1", 0, NULL), "or nobody said");
	ok(devices(-1, 1, 2, -1, "3,5,7", 0, "3,5"), "it sees no more devices than it did");
	ok(devices(-1, 1, 2, -1, "3", 0, NULL), "nor fewer, where its own is not among them");
	ok(devices(1, 1, 2, 0, NULL, 0, ""), "how many there are is not known: as it is");

	err.text[0] = '\0';
	ok(tpck_place_tells("LOCAL_RANK=1") && tpck_place_tells("MPI_LOCALRANKID=0") && tpck_place_tells("CUDA_VISIBLE_DEVICES=0"), "variables of place");
	ok(!tpck_place_tells("RANK=1") && !tpck_place_tells("LOCAL_RANKS=1") && !tpck_place_tells("WORLD_SIZE=2") && !tpck_place_tells("LOCAL_RANK"),
	   "others");

	/* As if it had been started so. */
	environment[0] = rank;
	putenv(local);
	putenv(world);
	putenv("GROUP_RANK=3");
	tpck_place_note(environment);
	ok(place_in_log("no end", 6) && strcmp(getenv("LOCAL_RANK"), "1") == 0, "a record that is not whole changes nothing");
	ok(place_in_log("LOCAL_RANK=0\nLOCAL_WORLD_SIZE=10\n", 34) && strcmp(getenv("LOCAL_RANK"), "0") == 0 && strcmp(local, "LOCAL_RANK=0") == 0 &&
		   strcmp(getenv("LOCAL_WORLD_SIZE"), "10") == 0 && !getenv("GROUP_RANK"),
	   "what the first start was told is there again, what it was not told is gone");
	ok(goes_on(0, 80, 108, 40 << 10), "nothing is known of the first run's device");
	learn_device();
	ok(goes_on(1, 90, 132, 80 << 10) && goes_on(1, 90, 132, (80 << 10) - 500), "the same device, by another driver");
	ok(!goes_on(1, 80, 132, 80 << 10) && !goes_on(1, 90, 114, 80 << 10) && !goes_on(1, 90, 132, 94 << 10) && !goes_on(1, 90, 132, 40 << 10) &&
		   strstr(err.text, "was of compute capability 9.0 with 132 multiprocessors and 81920 MiB, and this one is of 9.0 with 132 and 40960 MiB"),
	   "another one is refused");
	ok(!goes_on(0, 90, 132, 80 << 10) && strstr(err.text, "is on device 0, and was on device 1"),
	   "a program that was given its place back, and takes another device");
	return tap_done();
}
