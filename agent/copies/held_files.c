/* SPDX-License-Identifier: Apache-2.0 */
/* What other nodes owe to paths, in this one's memory tier: SHM/JOB/owed.TABLE has a file SERIAL.record for each, written when all
 * of it is here, and its bytes, SERIAL.VERSION. */
#include "config.h"

#include "agent/copies/held_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/debts.h"
#include "agent/home/headroom.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/store/file.h"

#define PREFIX "owed."
enum { RECORD_MAX = 1 << 30 };
/* Who speaks for a table, and how much: a peer is another node's agent of this job, and may be broken. A node has as many files as its table has
 * entries, and a table for each of its agents. */
enum { FILES_MAX = TPCK_VIEW_ENTRIES, TABLES_MAX = 256 };

struct held held = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- tables ----------------------------------------------------------------------------------- */

void held_folder(uint32_t table, char path[TPCK_PATH_MAX])
{
	snprintf(path, TPCK_PATH_MAX, "%.900s/" PREFIX "%08x", home.folder, table);
}

static void path_in(uint32_t table, char path[TPCK_PATH_MAX], const char *name)
{
	held_folder(table, path);
	snprintf(path + strlen(path), TPCK_PATH_MAX - strlen(path), "/%s", name);
}

static void bytes_path(uint32_t table, uint64_t serial, uint64_t version, char path[TPCK_PATH_MAX])
{
	char name[48];

	snprintf(name, sizeof name, "%016" PRIx64 ".%016" PRIx64, serial, version);
	path_in(table, path, name);
}

static void record_path(uint32_t table, uint64_t serial, char path[TPCK_PATH_MAX])
{
	char name[48];

	snprintf(name, sizeof name, "%016" PRIx64 ".record", serial);
	path_in(table, path, name);
}

void held_bytes_path(const struct tpck_owed *owed, char path[TPCK_PATH_MAX])
{
	bytes_path(owed->head.table, owed->head.serial, owed->head.version, path);
}

struct held_table *held_table_of(uint32_t table)
{
	struct held_table *found = held.tables;

	while (found && found->table != table)
		found = found->next;
	return found;
}

static struct held_table *table_new(uint32_t number)
{
	struct held_table *table;
	unsigned count = 0;

	for (table = held.tables; table; table = table->next)
		count++;
	table = count < TABLES_MAX ? calloc(1, sizeof *table) : NULL;
	if (!table)
		return NULL;
	table->table = number;
	table->fd = -1;
	table->gone_ns = tpck_clock_monotonic_ns();
	table->next = held.tables;
	held.tables = table;
	return table;
}

/* What was coming, and is not whole, goes. */
static void coming_end(struct held_table *table, bool remove)
{
	char path[TPCK_PATH_MAX];

	if (table->fd >= 0) {
		close(table->fd);
		path_in(table->table, path, "coming");
		if (remove)
			unlink(path);
	}
	table->fd = -1;
	table->serial = table->version = table->bytes_count = table->chunks = 0;
	table->refused = false;
	free(table->record);
	table->record = NULL;
}

static void table_forget(struct held_table *table)
{
	char path[TPCK_PATH_MAX];

	coming_end(table, true);
	for (struct held_table **place = &held.tables; *place; place = &(*place)->next)
		if (*place == table) {
			*place = table->next;
			break;
		}
	held_folder(table->table, path);
	(void)tpck_folder_remove(path);
	free(table->file);
	free(table->lawful);
	free(table);
}

/* ---- files ------------------------------------------------------------------------------------ */

static void file_remove(struct held_table *table, size_t i, bool bytes)
{
	char path[TPCK_PATH_MAX];

	record_path(table->table, table->file[i].owed.head.serial, path);
	unlink(path);
	held_bytes_path(&table->file[i].owed, path);
	if (bytes)
		unlink(path);
	free(table->file[i].record);
	memmove(&table->file[i], &table->file[i + 1], (--table->count - i) * sizeof *table->file);
}

void held_drop(struct held_table *table, uint64_t order)
{
	while (table->count && table->file[0].owed.head.order <= order)
		file_remove(table, 0, true);
	if (!table->count && !table->peer)
		table_forget(table);
	pthread_cond_broadcast(&held.changed);
}

void held_lawful_add(struct held_table *table, const struct tpck_owed *owed, const struct tpck_view_there *there)
{
	enum { MOST = 4096 };
	struct held_lawful *more = table->lawful_count < MOST ? realloc(table->lawful, (table->lawful_count + 1) * sizeof *more) : NULL;

	if (!more)
		return;
	table->lawful = more;
	more[table->lawful_count++] = (struct held_lawful){
		owed->head.folder_inode, tpck_digest64(owed->name, strlen(owed->name), 0), *there,
	};
}

/* Takes the record over. It stands where its order says; one of its serial goes. False: there is no memory. */
static bool file_add(struct held_table *table, void *record, size_t size)
{
	struct held_file file = {.record = record, .size = size};
	struct held_file *more;
	size_t at = 0;

	if (tpck_owed_read(record, size, &file.owed))
		return false;
	if (table->count == table->room) {
		more = realloc(table->file, (table->room + 64) * sizeof *more);
		if (!more)
			return false;
		table->file = more;
		table->room += 64;
	}
	for (size_t i = 0; i < table->count; i++)
		if (table->file[i].owed.head.serial == file.owed.head.serial) {
			/* The copy's record has been replaced already. */
			char path[TPCK_PATH_MAX];

			held_bytes_path(&table->file[i].owed, path);
			if (table->file[i].owed.head.version != file.owed.head.version)
				unlink(path);
			free(table->file[i].record);
			memmove(&table->file[i], &table->file[i + 1], (--table->count - i) * sizeof *table->file);
			break;
		}
	while (at < table->count && table->file[at].owed.head.order < file.owed.head.order)
		at++;
	memmove(&table->file[at + 1], &table->file[at], (table->count++ - at) * sizeof *table->file);
	table->file[at] = file;
	return true;
}

/* ---- what the owner says ---------------------------------------------------------------------- */

static void refuse(struct peer *peer, uint32_t table, uint64_t serial, const char *why)
{
	struct tpck_peer_message head = {.generation = table, .step = serial};

	(void)peer_send_text(peer, TPCK_PEER_FILE_FULL, &head, why, strlen(why));
}

static void take_begin(struct peer *peer, uint32_t number)
{
	struct tpck_peer_message head = {.generation = number};
	struct held_table *table = held_table_of(number);
	struct tpck_peer_file *list = NULL;
	char path[TPCK_PATH_MAX];
	size_t count = 0;

	if (!table)
		table = table_new(number);
	if (!table)
		return;
	/* Files of one node are kept for that node: another one has no say in them. */
	if (table->count && strcmp(table->host, peer->other.host) != 0) {
		tpck_log_warn("%.60s speaks of files that %.60s owes, and is not heard", peer->other.host, table->host);
		return;
	}
	coming_end(table, true);
	table->attempt = 0;
	table->peer = peer->serial;
	memcpy(table->host, peer->other.host, sizeof table->host);
	held_folder(number, path);
	(void)tpck_folder_make(path, NULL);
	path_in(number, path, "owner");
	(void)tpck_file_write(path, table->host, strlen(table->host), 0, NULL);
	if (table->count && !table->taking)
		list = calloc(table->count, sizeof *list);
	for (; list && count < table->count; count++) {
		const struct tpck_owed_head *of = &table->file[count].owed.head;

		list[count] = (struct tpck_peer_file){of->serial, of->order, of->version};
	}
	(void)peer_send_text(peer, TPCK_PEER_FILE_HAS, &head, (const char *)list, count * sizeof *list);
	free(list);
}

/* The first of a file has come: where its bytes go. */
static void coming_begin(struct held_table *table, struct peer *peer, uint64_t serial, uint64_t version, uint64_t chunks, uint32_t attempt)
{
	char path[TPCK_PATH_MAX], reason[200], why[300];

	coming_end(table, true);
	table->serial = serial;
	table->version = version;
	table->attempt = attempt;
	table->chunks = chunks;
	if (table->taking) {
		snprintf(why, sizeof why, "what it has is being put at its path");
	} else if (table->count >= FILES_MAX) {
		snprintf(why, sizeof why, "more files than a table has");
	} else if (!room_for(chunks * TPCK_OWED_CHUNK, reason, sizeof reason)) {
		snprintf(why, sizeof why, "no room: %s", reason);
	} else {
		path_in(table->table, path, "coming");
		table->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (table->fd >= 0)
			return;
		snprintf(why, sizeof why, "making a file in memory: %s", strerror(errno));
	}
	table->refused = true;
	refuse(peer, table->table, serial, why);
}

/* The bytes get their name. Those that are here already have it. */
static int bytes_done(struct held_table *table, const struct tpck_owed *owed)
{
	char path[TPCK_PATH_MAX], came[TPCK_PATH_MAX];
	int rc;

	held_bytes_path(owed, path);
	if (owed->head.removed)
		return 0;
	for (size_t i = 0; i < table->count && !table->wanted; i++)
		if (table->file[i].owed.head.serial == owed->head.serial && table->file[i].owed.head.version == owed->head.version)
			return access(path, F_OK) ? -errno : 0;
	path_in(table->table, came, "coming");
	rc = ftruncate(table->fd, (off_t)owed->head.bytes) || rename(came, path) ? -errno : 0;
	return rc;
}

/* All of it is here. */
static void file_whole(struct held_table *table, struct peer *peer)
{
	struct tpck_peer_message answer = {.generation = table->table};
	char path[TPCK_PATH_MAX];
	struct tpck_owed owed;
	void *record = table->record;
	size_t size = table->record_size;

	if (tpck_owed_read(record, size, &owed))
		return;
	answer.step = owed.head.serial;
	record_path(table->table, owed.head.serial, path);
	if (bytes_done(table, &owed) || tpck_file_write(path, record, size, 0, NULL)) {
		coming_end(table, true);
		refuse(peer, table->table, owed.head.serial, "it cannot be kept");
		return;
	}
	table->record = NULL;
	coming_end(table, false);
	if (file_add(table, record, size)) {
		(void)peer_send(peer, TPCK_PEER_FILE_KEPT, &answer, NULL, 0, NULL);
		return;
	}
	refuse(peer, table->table, owed.head.serial, "out of memory");
	free(record);
}

static void take_bytes(struct held_table *table, struct peer *peer, const struct tpck_peer_message *head, const char *bytes, size_t count)
{
	uint8_t digest[16];

	if (head->offset > table->attempt)
		coming_begin(table, peer, head->step, head->transfer, head->rank, head->offset);
	if (head->offset < table->attempt || table->refused || table->fd < 0 || count <= sizeof digest || count > sizeof digest + TPCK_OWED_CHUNK)
		return;
	bytes += sizeof digest;
	count -= sizeof digest;
	tpck_digest128(bytes, count, digest);
	/* There is room for so many chunks as were told first. */
	if (memcmp(digest, bytes - sizeof digest, sizeof digest) != 0 || head->value >= table->chunks ||
	    pwrite(table->fd, bytes, count, (off_t)(head->value * TPCK_OWED_CHUNK)) != (ssize_t)count) {
		table->refused = true;
		refuse(peer, table->table, head->step, "its bytes are others here, or cannot be kept");
		return;
	}
	table->bytes_count++;
	if (table->record && table->bytes_count == table->wanted)
		file_whole(table, peer);
}

static void take_record(struct held_table *table, struct peer *peer, const struct tpck_peer_message *head, const char *bytes, size_t count)
{
	struct tpck_owed owed;
	void *copy = malloc(count + 1);

	if (!copy || tpck_owed_read(memcpy(copy, bytes, count), count, &owed) || owed.head.table != table->table ||
	    head->offset < table->attempt) {
		free(copy);
		return;
	}
	if (head->offset > table->attempt)
		coming_begin(table, peer, owed.head.serial, owed.head.version, head->value ? owed.head.chunks : 0, head->offset);
	if (table->refused || table->fd < 0 || owed.head.serial != table->serial || owed.head.version != table->version) {
		free(copy);
		return;
	}
	free(table->record);
	table->record = copy;
	table->record_size = count;
	table->wanted = head->value;
	if (table->bytes_count == table->wanted)
		file_whole(table, peer);
}

static void take_gone(struct held_table *table, const char *bytes, size_t count)
{
	for (size_t at = 0; at + sizeof(struct tpck_peer_gone) <= count && !table->taking; at += sizeof(struct tpck_peer_gone)) {
		struct tpck_peer_gone gone;

		memcpy(&gone, bytes + at, sizeof gone);
		for (size_t i = 0; i < table->count; i++)
			if (table->file[i].owed.head.serial == gone.serial) {
				if (gone.put.kind == TPCK_THERE_FILE)
					held_lawful_add(table, &table->file[i].owed, &gone.put);
				file_remove(table, i, true);
				break;
			}
	}
	/* Nothing of it can be replaced any more. */
	if (!table->count && !table->taking) {
		free(table->lawful);
		table->lawful = NULL;
		table->lawful_count = 0;
	}
}

/* ---- what others ask -------------------------------------------------------------------------- */

static void take_look(struct peer *peer, const struct tpck_peer_message *head)
{
	struct tpck_peer_message answer = {.transfer = head->transfer, .generation = head->generation};
	const struct held_table *table = held_table_of((uint32_t)head->generation);
	const struct tpck_view *view = owed_view();

	if (view && owed_table(view) == head->generation)
		answer.value = view->used && !held.writers ? TPCK_PEER_FILE_LEFT : TPCK_PEER_FILE_OWNS;
	else if (table && table->count)
		answer.value = TPCK_PEER_FILE_HOLDS;
	(void)peer_send(peer, TPCK_PEER_FILE_LOOKED, &answer, NULL, 0, NULL);
}

/* Answers of both kinds have the asker's number. */
static void take_answer(const struct peer *peer, const struct tpck_peer_message *head)
{
	for (unsigned i = 0; i < held.asked && head->transfer == held.number; i++)
		if (held.answer[i].peer == peer->serial) {
			held.answer[i].answered = true;
			held.answer[i].value = head->value;
		}
	pthread_cond_broadcast(&held.changed);
}

static void take_take(const struct peer *peer, const struct tpck_peer_message *head)
{
	if (held.takes < sizeof held.take / sizeof *held.take)
		held.take[held.takes++] = (struct held_take){peer->serial, head->transfer, (uint32_t)head->generation};
	pthread_cond_broadcast(&held.changed);
}

void held_message(struct peer *peer, const struct tpck_peer_message *head, char *bytes, size_t count)
{
	uint32_t number = (uint32_t)head->generation;
	struct held_table *table;

	pthread_mutex_lock(&held.lock);
	table = held_table_of(number);
	switch (head->type) {
	case TPCK_PEER_FILE_BEGIN:
		take_begin(peer, number);
		break;
	case TPCK_PEER_FILE_BYTES:
		if (table && table->peer == peer->serial)
			take_bytes(table, peer, head, bytes, count);
		break;
	case TPCK_PEER_FILE_RECORD:
		if (table && table->peer == peer->serial)
			take_record(table, peer, head, bytes, count);
		break;
	case TPCK_PEER_FILE_GONE:
		if (table && table->peer == peer->serial)
			take_gone(table, bytes, count);
		break;
	case TPCK_PEER_FILE_LOOK:
		take_look(peer, head);
		break;
	case TPCK_PEER_FILE_TAKE:
		take_take(peer, head);
		break;
	case TPCK_PEER_FILE_LOOKED:
	case TPCK_PEER_FILE_TOOK:
		take_answer(peer, head);
		break;
	case TPCK_PEER_FILE_TAKEN:
		/* An owner that is there says itself what is gone. */
		if (table && !table->taking && (!table->peer || table->peer == peer->serial))
			held_drop(table, head->step);
		break;
	default:
		tpck_log_debug("%s sends a message of type %u", peer->other.host, head->type);
	}
	pthread_mutex_unlock(&held.lock);
}

void held_gone(const struct peer *peer)
{
	struct held_table *next;

	pthread_mutex_lock(&held.lock);
	for (struct held_table *table = held.tables; table; table = next) {
		next = table->next;
		if (table->peer != peer->serial)
			continue;
		coming_end(table, true);
		table->peer = 0;
		table->gone_ns = tpck_clock_monotonic_ns();
		if (!table->count && !table->taking)
			table_forget(table);
	}
	for (unsigned i = 0; i < held.asked; i++)
		if (held.answer[i].peer == peer->serial)
			held.answer[i].answered = true;
	pthread_cond_broadcast(&held.changed);
	pthread_mutex_unlock(&held.lock);
}

bool copies_hold_files(void)
{
	bool any = false;

	pthread_mutex_lock(&held.lock);
	for (const struct held_table *table = held.tables; table; table = table->next)
		any = any || table->count;
	pthread_mutex_unlock(&held.lock);
	return any;
}

void held_consider(const struct agent *agent)
{
	unsigned writers = 0;

	for (const struct client *client = agent->clients; client; client = client->next)
		writers += client->files;
	held.writers = writers;
}

json_object *held_status(void)
{
	json_object *list = json_object_new_array();

	pthread_mutex_lock(&held.lock);
	for (const struct held_table *table = held.tables; table; table = table->next) {
		json_object *row = json_object_new_object();
		uint64_t bytes = 0;

		for (size_t i = 0; i < table->count; i++)
			bytes += table->file[i].owed.head.bytes;
		json_object_object_add(row, "owner", json_object_new_string(table->host));
		json_object_object_add(row, "there", json_object_new_boolean(table->peer != 0));
		json_object_object_add(row, "files", json_object_new_uint64(table->count));
		json_object_object_add(row, "bytes", json_object_new_uint64(bytes));
		json_object_array_add(list, row);
	}
	pthread_mutex_unlock(&held.lock);
	return list;
}

bool copies_hold_lost(void)
{
	bool any = false;

	pthread_mutex_lock(&held.lock);
	for (const struct held_table *table = held.tables; table && held.running; table = table->next)
		any = any || (table->count && !table->peer && table->backoff_sec == 0);
	pthread_mutex_unlock(&held.lock);
	return any;
}

/* ---- start and end ---------------------------------------------------------------------------- */

/* Whether the bytes of a record that an agent before this one kept are all here. */
static bool has_bytes(const struct tpck_owed *owed)
{
	char path[TPCK_PATH_MAX];
	struct stat found;

	held_bytes_path(owed, path);
	return owed->head.removed || (!stat(path, &found) && (uint64_t)found.st_size == owed->head.bytes);
}

static void adopt_records(struct held_table *table, DIR *list)
{
	char path[TPCK_PATH_MAX], *text;
	struct dirent *entry;
	struct tpck_owed owed;
	size_t size;

	while ((entry = readdir(list))) {
		const char *dot = strrchr(entry->d_name, '.');

		path_in(table->table, path, entry->d_name);
		if (!dot || strcmp(dot, ".record") != 0 || tpck_file_read(path, RECORD_MAX, &text, &size, NULL))
			continue;
		if (tpck_owed_read(text, size, &owed) || !has_bytes(&owed) || !file_add(table, text, size))
			free(text);
	}
}

static void adopt(const char *name)
{
	uint32_t number = (uint32_t)strtoul(name + sizeof PREFIX - 1, NULL, 16);
	struct held_table *table = table_new(number);
	char path[TPCK_PATH_MAX], *host;
	DIR *list;

	if (!table)
		return;
	path_in(number, path, "owner");
	if (tpck_file_read(path, TPCK_PEER_NAME - 1, &host, NULL, NULL) == 0) {
		snprintf(table->host, sizeof table->host, "%s", host);
		free(host);
	}
	held_folder(number, path);
	list = opendir(path);
	if (list) {
		adopt_records(table, list);
		closedir(list);
	}
	if (!table->count)
		table_forget(table);
}

void held_begin(void)
{
	DIR *list = opendir(home.folder);
	struct dirent *entry;
	sigset_t all, before;

	pthread_mutex_lock(&held.lock);
	while (list && (entry = readdir(list)))
		if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) == 0)
			adopt(entry->d_name);
	pthread_mutex_unlock(&held.lock);
	if (list)
		closedir(list);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	held.running = pthread_create(&held.thread, NULL, takeover_main, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!held.running)
		tpck_log_warn("cannot start a thread: what lost nodes owe stays with their peers");
}

void held_end(void)
{
	pthread_mutex_lock(&held.lock);
	held.stop = true;
	pthread_cond_broadcast(&held.changed);
	pthread_mutex_unlock(&held.lock);
	if (held.running)
		pthread_join(held.thread, NULL);
	held.running = false;
}
