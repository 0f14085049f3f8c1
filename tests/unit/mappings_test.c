/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses for the program's reservations, over a driver that gives large ranges only, or none. */
#include "config.h"

#include <errno.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/track/mappings.h"
#include "tests/unit/store_tap.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

static struct {
	unsigned reserved;
	uint64_t refused; /* what begins here is not given */
} fake;
static struct tpck_error err;

static int reserve(int device, uint64_t at, uint64_t bytes)
{
	(void)device;
	if (at == fake.refused || bytes < 128 * GIB || at % (1ull << 40))
		return -EADDRINUSE;
	fake.reserved++;
	return 0;
}

static const struct tpck_device device = {.reserve = reserve};

static uint64_t place(uint64_t bytes, uint64_t alignment)
{
	uint64_t at = tpck_mappings_place(&device, bytes, alignment);

	if (at && (at % (2 * MIB) || (alignment && at % alignment)))
		printf("# %#llx for %llu bytes\n", (unsigned long long)at, (unsigned long long)bytes);
	return at;
}

int main(void)
{
	uint64_t a = place(2 * MIB, 0), b = place(6 * MIB, 0), c = place(2 * MIB, 0), d, large, other;

	ok(a && tpck_mappings_range(a) && b == a + 2 * MIB && c == b + 6 * MIB && fake.reserved == 1, "small ones lie side by side in one reservation of the driver's");
	ok(!place(MIB, 0) && !place(0, 0) && !place(2 * MIB, 3 * MIB) && !place(UINT64_MAX - 2 * MIB + 1, 0), "what no driver would give is not given");
	ok(tpck_mappings_vacate(b, 2 * MIB) == -ENOENT && tpck_mappings_vacate(b + 2 * MIB, 6 * MIB) == -ENOENT && tpck_mappings_vacate(0x1000, 2 * MIB) == -ENOENT,
	   "only what was given is given back");
	ok(!tpck_mappings_add(b + 2 * MIB, 2 * MIB, 7) && tpck_mappings_vacate(b, 6 * MIB) == -EBUSY, "nor while memory is mapped there");
	tpck_mappings_drop(tpck_mappings_at(b + 2 * MIB));
	ok(!tpck_mappings_vacate(b, 6 * MIB) && tpck_mappings_vacate(b, 6 * MIB) == -ENOENT, "then it is, once");
	d = place(8 * MIB, 0);
	ok(d > c && place(4 * MIB, 0) == b && place(4 * MIB, 0) == d + 8 * MIB, "a gap takes what fits");
	other = place(2 * MIB, 64 * MIB);
	ok(other && !(other % (64 * MIB)), "an alignment is kept");
	large = place(900 * GIB, 0);
	ok(large && large - a < 1024 * GIB && place(900 * GIB, 0) == a + 1024 * GIB && fake.reserved == 2, "what does not fit lies in the next one, at its beginning");
	fake.refused = a + 2048 * GIB;
	ok(place(1024 * GIB, 0) == a + 3072 * GIB && fake.reserved == 3, "one that the driver does not give is passed over");
	for (d = 0; place(1024 * GIB, 0); d++)
		;
	ok(d == 5 && fake.reserved == 8 && place(2 * MIB, 0), "large ones come to an end, small ones do not");
	ok(!place(1025 * GIB, 0), "nothing larger than what the driver is asked for");
	return tap_done();
}
