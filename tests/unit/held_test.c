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
#include "agent/home/headroom.h"
#include "agent/loop/trouble.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/store/file.h"
#include "tests/unit/store_tap.h"

enum { TABLE = 7, SMALL = 100 };

/* ---- what the rest of the agent would do ------------------------------------------------------ */

struct peers peers;
static struct agent agent;
static char marks[TPCK_PATH_MAX], program[TPCK_PATH_MAX], elsewhere[TPCK_PATH_MAX];
static unsigned sent[64];

int peer_send(struct peer *peer, enum tpck_peer_type type, const struct tpck_peer_message *fields, const void *bytes, size_t count, void *token)
{
	(void)peer, (void)fields, (void)bytes, (void)count, (void)token;
	sent[type]++;
	return 0;
}

int peer_send_text(struct peer *peer, enum tpck_peer_type type, const struct tpck_peer_message *fields, const char *text, size_t count)
{
	return peer_send(peer, type, fields, text, count, NULL);
}

bool room_for(uint64_t bytes, char *reason, size_t size)
{
	snprintf(reason, size, "a test's");
	return bytes <= 64 << 20;
}

void peers_say(uint64_t serial, enum tpck_peer_type type, const struct tpck_peer_message *fields, const void *bytes, size_t count)
{
	(void)serial, (void)fields, (void)bytes, (void)count;
	sent[type]++;
}

void owed_mark_path(char path[TPCK_PATH_MAX], const char *what, uint32_t table)
{
	snprintf(path, TPCK_PATH_MAX, "%.1000s/%s.%08x", marks, what, table);
}

const char *owed_mark_folders(const char *text)
{
	return strchr(text, '\n') ? strchr(text, '\n') + 1 : "";
}

bool client_send(struct client *client, enum tpck_message_type type, const void *payload, size_t size)
{
	(void)client, (void)type, (void)payload, (void)size;
	return true;
}

void outbox_post(struct job *job)
{
	(void)job;
}

double trouble_backoff(double last)
{
	return last + 1;
}

static _Atomic unsigned complaints;

void trouble_complain(const struct tpck_error *err)
{
	complaints++;
	printf("# %s\n", err->text);
}

/* ---- what a peer sends ------------------------------------------------------------------------ */

static struct peer owner = {.serial = 1, .other = {.host = "owner"}}, other = {.serial = 2, .other = {.host = "other"}};

static void say(struct peer *peer, enum tpck_peer_type type, uint32_t table, uint64_t step, const void *bytes, size_t count)
{
	struct tpck_peer_message head = {.type = (uint16_t)type, .generation = table, .step = step};

	held_message(peer, &head, (char *)bytes, count);
}

/* One MiB more or less of a file: which of how many. */
static void say_bytes(struct peer *peer, uint64_t serial, uint64_t which, uint32_t of, uint32_t attempt)
{
	static char bytes[16 + TPCK_OWED_CHUNK];
	struct tpck_peer_message head = {.type = TPCK_PEER_FILE_BYTES, .generation = TABLE, .step = serial, .transfer = 9, .rank = of, .offset = attempt,
					 .value = which};

	memset(bytes + 16, 'x', SMALL);
	tpck_digest128(bytes + 16, SMALL, (uint8_t *)bytes);
	held_message(peer, &head, bytes, 16 + SMALL);
}

static uint64_t serial_of(uint64_t order)
{
	return (uint64_t)TABLE << 32 | order;
}

static void say_record(struct peer *peer, const char *folder, const char *name, uint64_t order, uint64_t of, uint32_t attempt)
{
	uint8_t digest[1][16];
	char bytes[SMALL];
	struct stat found = {0};
	struct tpck_owed owed = {
		.head = {.magic = TPCK_OWED_MAGIC, .table = TABLE, .mode = 04755, .group = getegid(), .serial = serial_of(of), .order = order, .version = 9,
			 .bytes = SMALL, .chunks = 1, .there = {.kind = TPCK_THERE_NOTHING}},
		.folder = folder, .name = name, .part_folder = "", .part = "", .attributes = "", .digest = (const uint8_t (*)[16])digest,
	};
	struct tpck_peer_message head = {.type = TPCK_PEER_FILE_RECORD, .generation = TABLE, .step = order, .value = 1, .offset = attempt};
	size_t size;
	void *record;

	memset(bytes, 'x', sizeof bytes);
	tpck_digest128(bytes, sizeof bytes, digest[0]);
	(void)stat(folder, &found);
	owed.head.folder_inode = found.st_ino;
	record = tpck_owed_write(&owed, &size);
	held_message(peer, &head, record, size);
	free(record);
}

static void keep(struct peer *peer, const char *folder, const char *name, uint64_t order)
{
	uint32_t attempt = (uint32_t)order;

	say_bytes(peer, serial_of(order), 0, 1, attempt);
	say_record(peer, folder, name, order, order, attempt);
}

static size_t kept(void)
{
	const struct held_table *table = held_table_of(TABLE);

	return table ? table->count : 0;
}

/* ---- tests ------------------------------------------------------------------------------------ */

static void test_who_speaks(void)
{
	const struct tpck_peer_gone gone = {.serial = serial_of(1)};
	struct tpck_error err = {0};

	say(&owner, TPCK_PEER_FILE_BEGIN, TABLE, 0, NULL, 0);
	keep(&owner, program, "model.pt", 1);
	ok(kept() == 1 && sent[TPCK_PEER_FILE_KEPT] == 1, "a file that its owner sends is kept");
	say(&other, TPCK_PEER_FILE_GONE, TABLE, 0, &gone, sizeof gone);
	ok(kept() == 1, "another peer does not have it dropped");
	say(&other, TPCK_PEER_FILE_TAKEN, TABLE, 100, NULL, 0);
	ok(kept() == 1, "nor says that it was taken, while its owner is there");
	say(&other, TPCK_PEER_FILE_BEGIN, TABLE, 0, NULL, 0);
	ok(held_table_of(TABLE)->peer == owner.serial, "nor speaks for the owner");
	for (uint32_t i = 0; i < 1000; i++)
		say(&other, TPCK_PEER_FILE_BEGIN, 1000 + i, 0, NULL, 0);
	ok(!held_table_of(1999), "there are not more tables than nodes have agents");
	held_gone(&other);
}

static void test_how_much(void)
{
	char path[TPCK_PATH_MAX];
	struct tpck_error err = {0};
	struct stat found = {0};

	held_folder(TABLE, path);
	strcat(path, "/coming");
	say_bytes(&owner, serial_of(2), 0, 1, 50);
	say_bytes(&owner, serial_of(2), 4000, 5000, 50);
	ok(!stat(path, &found) && found.st_size <= TPCK_OWED_CHUNK, "a file does not get more bytes than it was said to have, for which there is room");
	ok(sent[TPCK_PEER_FILE_FULL] == 1, "which the owner is told");
	say_bytes(&owner, serial_of(2), 0, 1, 51);
	say_record(&owner, program, "other.pt", 3, 3, 51);
	ok(kept() == 1, "the bytes of one file do not become those of another one");
}

/* The owner is lost. Its mark in the store names `program`; peers name other folders. */
static void test_where(void)
{
	char path[3 * TPCK_PATH_MAX], mark[TPCK_PATH_MAX], text[2 * TPCK_PATH_MAX], up[2 * TPCK_PATH_MAX];
	struct tpck_error err = {0};
	struct stat found = {0};
	uint64_t until = tpck_clock_monotonic_ns() + 60000000000ull;

	keep(&owner, elsewhere, ".profile", 60);
	snprintf(up, sizeof up, "%s/../elsewhere", program);
	keep(&owner, up, ".bashrc", 61);
	ok(kept() == 3, "files for other folders are kept, too");
	owed_mark_path(mark, "files", TABLE);
	snprintf(text, sizeof text, "owner\n%s\n", program);
	(void)tpck_file_write(mark, text, strlen(text), 0, NULL);
	held_gone(&owner);
	agent.stopping = true;
	snprintf(path, sizeof path, "%s/model.pt", program);
	if (geteuid() == 0)
		(void)!chown(mark, 65534, 65534);
	held.running = pthread_create(&held.thread, NULL, takeover_main, NULL) == 0;
	if (geteuid() == 0) {
		while (!complaints && tpck_clock_monotonic_ns() < until)
			usleep(20000);
		ok(complaints && access(path, F_OK), "another user's list of folders is none");
		(void)!chown(mark, 0, 0);
	}
	while (tpck_clock_monotonic_ns() < until) {
		bool left;

		pthread_mutex_lock(&held.lock);
		left = kept();
		pthread_mutex_unlock(&held.lock);
		if (!left)
			break;
		usleep(20000);
	}
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

	peers.agent = &agent;
	strcpy(peers.host, "here");
	snprintf(home.folder, sizeof home.folder, "%s/memory", root);
	snprintf(marks, sizeof marks, "%s/marks", root);
	snprintf(program, sizeof program, "%s/program", root);
	snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", root);
	mkdir(home.folder, 0700);
	mkdir(marks, 0700);
	mkdir(program, 0700);
	mkdir(elsewhere, 0700);
	test_who_speaks();
	test_how_much();
	test_where();
	(void)tpck_folder_remove(root);
	return tap_done();
}
