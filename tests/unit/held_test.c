// SPDX-License-Identifier: Apache-2.0
/* Files that other nodes owe: what a peer that is broken, or means it ill, can have kept, dropped and written here. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/copies/held_files.h"
#include "agent/files/debts.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/log.h"
#include "runtime/store/file.h"
#include "tests/unit/fake_network.h"
#include "tests/unit/store_tap.h"

enum { TABLE = 7, SMALL = 100 };

/* ---- other nodes ------------------------------------------------------------------------------ */

enum { OWNER, OTHER };
static struct agent agent;
static char marks[TPCK_PATH_MAX], said[TPCK_PATH_MAX], program[TPCK_PATH_MAX], elsewhere[TPCK_PATH_MAX];
static _Atomic unsigned sent[64];

static void network_said(unsigned node, const struct tpck_peer_message *head, const void *bytes, size_t count)
{
	(void)node, (void)bytes, (void)count;
	sent[head->type % 64]++;
}

/* ---- what a peer sends ------------------------------------------------------------------------ */

static void say(unsigned node, enum tpck_peer_type type, uint32_t table, uint64_t step, const void *bytes, size_t count)
{
	struct tpck_peer_message head = {.generation = table, .step = step};

	network_bring(node, type, &head, bytes, count);
}

/* One MiB more or less of a file: which of how many. */
static void say_bytes(unsigned node, uint64_t serial, uint64_t which, uint32_t of, uint32_t attempt)
{
	static char bytes[16 + TPCK_OWED_CHUNK];
	struct tpck_peer_message head = {.generation = TABLE, .step = serial, .transfer = 9, .rank = of, .offset = attempt,
					 .value = which};

	memset(bytes + 16, 'x', SMALL);
	tpck_digest128(bytes + 16, SMALL, (uint8_t *)bytes);
	network_bring(node, TPCK_PEER_FILE_BYTES, &head, bytes, 16 + SMALL);
}

static uint64_t serial_of(uint64_t order)
{
	return (uint64_t)TABLE << 32 | order;
}

static void say_record(unsigned node, const char *folder, const char *name, uint64_t order, uint64_t of, uint32_t attempt)
{
	uint8_t digest[1][16];
	char bytes[SMALL];
	struct stat found = {0};
	struct tpck_owed owed = {
		.head = {.magic = TPCK_OWED_MAGIC, .table = TABLE, .mode = 04755, .group = getegid(), .serial = serial_of(of), .order = order, .version = 9,
			 .bytes = SMALL, .chunks = 1, .there = {.kind = TPCK_THERE_NOTHING}},
		.folder = folder, .name = name, .part_folder = "", .part = "", .attributes = "", .digest = (const uint8_t (*)[16])digest,
	};
	struct tpck_peer_message head = {.generation = TABLE, .step = order, .value = 1, .offset = attempt};
	size_t size;
	void *record;

	memset(bytes, 'x', sizeof bytes);
	tpck_digest128(bytes, sizeof bytes, digest[0]);
	(void)stat(folder, &found);
	owed.head.folder_inode = found.st_ino;
	record = tpck_owed_write(&owed, &size);
	network_bring(node, TPCK_PEER_FILE_RECORD, &head, record, size);
	free(record);
}

static void keep(unsigned node, const char *folder, const char *name, uint64_t order)
{
	uint32_t attempt = (uint32_t)order;

	say_bytes(node, serial_of(order), 0, 1, attempt);
	say_record(node, folder, name, order, order, attempt);
}

/* Whether the agent has said something of its marks. */
static bool complains(void)
{
	char *text = NULL;
	size_t size;
	bool found = !tpck_file_read(said, 1 << 20, &text, &size, NULL) && strstr(text, marks);

	free(text);
	return found;
}

static size_t kept(void)
{
	const struct held_table *table;
	size_t count;

	network_settle();
	pthread_mutex_lock(&held.lock);
	table = held_table_of(TABLE);
	count = table ? table->count : 0;
	pthread_mutex_unlock(&held.lock);
	return count;
}

/* ---- tests ------------------------------------------------------------------------------------ */

static void test_who_speaks(void)
{
	const struct tpck_peer_gone gone = {.serial = serial_of(1)};
	struct tpck_error err = {0};

	say(OWNER, TPCK_PEER_FILE_BEGIN, TABLE, 0, NULL, 0);
	keep(OWNER, program, "model.pt", 1);
	ok(kept() == 1 && sent[TPCK_PEER_FILE_KEPT] == 1, "a file that its owner sends is kept");
	say(OTHER, TPCK_PEER_FILE_GONE, TABLE, 0, &gone, sizeof gone);
	ok(kept() == 1, "another peer does not have it dropped");
	say(OTHER, TPCK_PEER_FILE_TAKEN, TABLE, 100, NULL, 0);
	ok(kept() == 1, "nor says that it was taken, while its owner is there");
	say(OTHER, TPCK_PEER_FILE_BEGIN, TABLE, 0, NULL, 0);
	network_settle();
	ok(held_table_of(TABLE)->peer == network_serial("owner"), "nor speaks for the owner");
	for (uint32_t i = 0; i < 1000; i++)
		say(OTHER, TPCK_PEER_FILE_BEGIN, 1000 + i, 0, NULL, 0);
	network_settle();
	ok(!held_table_of(1999), "there are not more tables than nodes have agents");
	network_lose(OTHER, "other");
}

static void test_how_much(void)
{
	char path[TPCK_PATH_MAX];
	struct tpck_error err = {0};
	struct stat found = {0};

	held_folder(TABLE, path);
	strcat(path, "/coming");
	say_bytes(OWNER, serial_of(2), 0, 1, 50);
	say_bytes(OWNER, serial_of(2), 4000, 5000, 50);
	network_settle();
	ok(!stat(path, &found) && found.st_size <= TPCK_OWED_CHUNK, "a file does not get more bytes than it was said to have, for which there is room");
	ok(sent[TPCK_PEER_FILE_FULL] == 1, "which the owner is told");
	say_bytes(OWNER, serial_of(2), 0, 1, 51);
	say_record(OWNER, program, "other.pt", 3, 3, 51);
	ok(kept() == 1, "the bytes of one file do not become those of another one");
}

/* The owner is lost. Its mark in the store names `program`; peers name other folders. */
static void test_where(void)
{
	char path[3 * TPCK_PATH_MAX], mark[TPCK_PATH_MAX], text[2 * TPCK_PATH_MAX], up[2 * TPCK_PATH_MAX];
	struct tpck_error err = {0};
	struct stat found = {0};
	uint64_t until = tpck_clock_monotonic_ns() + 60000000000ull;

	keep(OWNER, elsewhere, ".profile", 60);
	snprintf(up, sizeof up, "%s/../elsewhere", program);
	keep(OWNER, up, ".bashrc", 61);
	ok(kept() == 3, "files for other folders are kept, too");
	owed_mark_path(mark, "files", TABLE);
	snprintf(text, sizeof text, "owner\n%s\n", program);
	(void)tpck_file_write(mark, text, strlen(text), 0, NULL);
	network_lose(OWNER, "owner");
	agent.stopping = true;
	snprintf(path, sizeof path, "%s/model.pt", program);
	if (geteuid() == 0)
		(void)!chown(mark, 65534, 65534);
	held.running = pthread_create(&held.thread, NULL, takeover_main, NULL) == 0;
	if (geteuid() == 0) {
		while (!complains() && tpck_clock_monotonic_ns() < until)
			usleep(20000);
		ok(complains() && access(path, F_OK), "another user's list of folders is none");
		(void)!chown(mark, 0, 0);
	}
	while (kept() && tpck_clock_monotonic_ns() < until)
		usleep(20000);
	held_end();
	ok(!stat(path, &found) && found.st_size == SMALL, "when the owner is lost what it owed is put where the job's files are");
	ok((found.st_mode & 07777) == 0755, "without rights of its own");
	snprintf(path, sizeof path, "%s/.profile", elsewhere);
	ok(access(path, F_OK), "in no other folder");
	snprintf(path, sizeof path, "%s/.bashrc", elsewhere);
	ok(access(path, F_OK), "and in none that is reached by way of it");
}

int main(void)
{
	char *root = tap_folder("/tmp");

	char log[TPCK_PATH_MAX + 16];

	snprintf(home.folder, sizeof home.folder, "%s/memory", root);
	snprintf(marks, sizeof marks, "%s/marks", root);
	snprintf(program, sizeof program, "%s/program", root);
	snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", root);
	mkdir(home.folder, 0700);
	mkdir(marks, 0700);
	mkdir(program, 0700);
	mkdir(elsewhere, 0700);
	snprintf(said, sizeof said, "%s/log", root);
	snprintf(log, sizeof log, "warn:%s", said);
	(void)tpck_log_configure(log);
	home.settings.memory = 64 << 20;
	snprintf(peers.folder, sizeof peers.folder, "%s", marks);
	network_begin(&agent, &copies_cargo);
	network_meet(OWNER, "owner");
	network_meet(OTHER, "other");
	test_who_speaks();
	test_how_much();
	test_where();
	network_end();
	(void)tpck_folder_remove(root);
	return tap_done();
}
