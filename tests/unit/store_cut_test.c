/* SPDX-License-Identifier: Apache-2.0 */
/* Consistent cuts: images of the ranks of a job are of one cut, or a line says why not. */
#include "config.h"

#include <errno.h>
#include <sys/mman.h>

#include "runtime/store/cut.h"
#include "tests/unit/store_tap.h"

enum { RANKS = 4, WORLD = 0x77, PAIR = 0x22 };

static struct tpck_image images[RANKS];
static struct tpck_error err;

static void add(struct tpck_image *image, struct tpck_image_communicator communicator)
{
	tpck_image_communicators(image)[image->header->communicators++] = communicator;
}

static void transfer(struct tpck_image *image, uint32_t communicator, uint32_t peer, uint64_t sends, uint64_t receives)
{
	tpck_image_peers(image)[image->header->peers++] = (struct tpck_image_peer){communicator, peer, sends, receives};
}

/* Four ranks in one communicator, the last two in another one; there rank 0 sends three times, 1 answers twice. */
static void good_cut(void)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		struct tpck_image_header *header = images[r].header;

		memset(header, 0, sizeof *header);
		header->rows = 3;
		header->tensors = r;
		add(&images[r], (struct tpck_image_communicator){.id = WORLD, .size = RANKS, .rank = r, .collectives = 40, .order = 9});
		if (r >= 2)
			add(&images[r], (struct tpck_image_communicator){.id = PAIR, .index = 1, .size = 2, .rank = r - 2});
	}
	transfer(&images[0], 0, 1, 7, 0);
	transfer(&images[1], 0, 0, 0, 7);
	transfer(&images[2], 1, 1, 3, 2);
	transfer(&images[3], 1, 0, 2, 3);
}

static size_t rows; /* that were left */

/* In any order; `nodes`: each puts its ranks together, and what it has goes to one that has them all. */
static int match_by(unsigned nodes)
{
	struct tpck_counts all = {0};
	int rc = 0;

	err.text[0] = 0;
	for (unsigned n = 0; n < nodes && !rc; n++) {
		struct tpck_counts here = {0};

		for (unsigned r = 0; r < RANKS && !rc; r++)
			if ((r + 2) % RANKS * nodes / RANKS == n)
				rc = tpck_counts_add_image(&here, &images[(r + 2) % RANKS]);
		tpck_counts_merge(&here);
		rc = rc ? rc : tpck_counts_add(&all, here.counted, here.counted_count, here.transferred, here.transferred_count);
		tpck_counts_free(&here);
	}
	rc = rc ? rc : tpck_counts_match(&all, &err);
	rows = all.counted_count + all.transferred_count;
	tpck_counts_free(&all);
	return rc;
}

static int match(void)
{
	return match_by(1);
}

static void differs(const char *line, const char *what)
{
	for (unsigned nodes = 1; nodes <= RANKS; nodes *= 2)
		ok(match_by(nodes) == -EINVAL && strcmp(err.text, line) == 0, what);
	good_cut();
}

int main(void)
{
	for (unsigned r = 0; r < RANKS; r++) {
		images[r].size = TPCK_IMAGE_DATA_AT;
		images[r].header = mmap(NULL, images[r].size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (images[r].header == MAP_FAILED)
			return 77;
	}
	ok(match() == 0, "a job without communicators");
	good_cut();
	ok(match() == 0, "a consistent cut");
	ok(rows == 2, "takes as many rows as there are communicators");
	ok(match_by(2) == 0 && match_by(4) == 0 && rows == 2, "put together by nodes, too");

	tpck_image_communicators(&images[2])[0].collectives--;
	differs("communicator 0000000000000077: 40 collectives on its rank 0 and 39 on its rank 2", "one collective fewer");
	tpck_image_communicators(&images[3])[0].order++;
	differs("communicator 0000000000000077: its ranks 0 and 3 have made 40 collectives, not the same ones", "other collectives");
	tpck_image_peers(&images[2])[0].sends++;
	differs("communicator 0000000000000022: rank 0 has sent 4 times to rank 1, which has received 3", "sent and not received");
	tpck_image_peers(&images[2])[0].receives++;
	differs("communicator 0000000000000022: rank 1 has sent 2 times to rank 0, which has received 3", "received and not sent");
	images[1].header->peers = 0;
	differs("communicator 0000000000000077: rank 0 has sent 7 times to rank 1, which has received 0", "nothing received at all");
	images[3].header->communicators = 1;
	images[3].header->peers = 0;
	differs("communicator 0000000000000022 is not known to its rank 1", "a communicator that its last rank lacks");
	images[2].header->communicators = 1;
	images[2].header->peers = 0;
	differs("communicator 0000000000000022 is not known to its rank 0", "a communicator that its first rank lacks");
	tpck_image_communicators(&images[1])[0].rank = 3;
	differs("communicator 0000000000000077 is not known to its rank 1", "a rank in the place of another");
	tpck_image_communicators(&images[3])[0].rank = 2;
	differs("communicator 0000000000000077 has a rank 2 twice", "a rank twice");
	tpck_image_communicators(&images[3])[0].size = 5;
	differs("communicator 0000000000000077 has 4 ranks to its rank 0 and 5 to its rank 3", "sizes that differ");
	ok(match() == 0, "and a consistent cut again");
	return tap_done();
}
