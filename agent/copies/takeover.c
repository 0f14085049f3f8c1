/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lost nodes owed is put at its path by a peer that has it: when a process of the job begins and its owner does not answer,
 * or when the owner has been gone for long. The owner may live nevertheless, beyond a network that is cut: so all nodes see
 * first, in the job's folder of the store, up to which order somebody puts its files at their paths (taken.TABLE). From then on
 * whoever does so, the owner included, puts none over what is neither what it was to replace nor of the owner's own.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/copies/held_files.h"
#include "agent/files/debts.h"
#include "agent/loop/trouble.h"
#include "agent/peers/agents_folder.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/door.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/store/file.h"
#include "runtime/store/replace.h"

#define SEC 1000000000ull
/* An agent that was killed is there again sooner; a node that does not come back is not waited for longer. */
#define RESTART_NS (2 * SEC)
#define LOST_NS (30 * SEC)
/* How long a start waits: for others to be found who have something, and to answer; for what they do. */
#define FIND_NS (12 * SEC)
#define ANSWER_NS (10 * SEC)
#define TAKE_NS (30 * SEC)
enum { MARKS = 64, IDLE_MS = 200 };

/* ---- waiting ---------------------------------------------------------------------------------- */

/* Under the lock, which is let go of meanwhile. False: the time is over, or it ends. */
static bool wait_change(uint64_t until_ns)
{
	struct timespec until;

	if (held.stop || tpck_clock_monotonic_ns() >= until_ns)
		return false;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += IDLE_MS * 1000000;
	until.tv_sec += until.tv_nsec / (long)SEC;
	until.tv_nsec %= (long)SEC;
	pthread_cond_timedwait(&held.changed, &held.lock, &until);
	return true;
}

/* Asks one or all, and waits for the answers: which there were, bit by bit. *who: somebody who has files of it. */
static unsigned ask(enum tpck_peer_type type, uint32_t table, const uint64_t *only, uint64_t wait_ns, uint64_t *who)
{
	uint64_t until = tpck_clock_monotonic_ns() + wait_ns;
	struct tpck_peer_message head = {.generation = table};
	unsigned found = 0;
	bool open = true;

	pthread_mutex_lock(&peers.lock);
	pthread_mutex_lock(&held.lock);
	head.transfer = ++held.number;
	held.asked = 0;
	for (const struct peer *peer = peers.list; peer && held.asked < sizeof held.answer / sizeof *held.answer; peer = peer->next)
		if (peer->state == PEER_KNOWN && (!only || *only == peer->serial))
			held.answer[held.asked++] = (struct held_answer){.peer = peer->serial};
	pthread_mutex_unlock(&held.lock);
	pthread_mutex_unlock(&peers.lock);
	peers_say(only ? *only : 0, type, &head, NULL, 0);
	pthread_mutex_lock(&held.lock);
	while (open) {
		open = false;
		for (unsigned i = 0; i < held.asked; i++) {
			open = open || !held.answer[i].answered;
			if (!held.answer[i].answered || held.answer[i].value > 31)
				continue;
			found |= 1u << held.answer[i].value;
			if (held.answer[i].value == TPCK_PEER_FILE_HOLDS)
				*who = held.answer[i].peer;
		}
		open = open && wait_change(until);
	}
	held.asked = 0;
	pthread_mutex_unlock(&held.lock);
	return found;
}

/* ---- putting them at their paths -------------------------------------------------------------- */

struct taking {
	struct held_table *table;
	struct tpck_owed *list;
	size_t count, put, there, left;
	char *folders; /* that the owner's files were in, by the store: a peer's word does not lead to others */
};

static bool look_at(int folder, const char *name, struct stat *found)
{
	/* A network's file system looks again when a file is opened. */
	int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return !fstatat(folder, name, found, AT_SYMLINK_NOFOLLOW);
}

static enum tpck_owed_verdict judge(const struct taking *taking, size_t which, int folder)
{
	const struct tpck_owed *owed = &taking->list[which];
	uint64_t name = tpck_digest64(owed->name, strlen(owed->name), 0);
	struct tpck_view_there *lawful = calloc(taking->table->lawful_count + 1, sizeof *lawful);
	enum tpck_owed_verdict verdict;
	struct stat found;
	size_t count = 0;

	for (size_t i = 0; lawful && i < taking->table->lawful_count; i++)
		if (taking->table->lawful[i].folder_inode == owed->head.folder_inode && taking->table->lawful[i].name == name)
			lawful[count++] = taking->table->lawful[i].there;
	verdict = tpck_owed_judge(taking->list, taking->count, which, lawful, count, look_at(folder, owed->name, &found) ? &found : NULL);
	free(lawful);
	return verdict;
}

/* What the owner has beside the target: it is nobody's any more. */
static void clear_part(const struct tpck_owed *owed, const char *folders, int folder)
{
	char part[64];
	int other;

	tpck_view_part_name(part, owed->head.serial);
	unlinkat(folder, part, 0);
	if (!*owed->part || strncmp(owed->part, TPCK_VIEW_PART, sizeof TPCK_VIEW_PART - 1) != 0)
		return;
	if (!tpck_owed_folder_is_in(folders, owed->part_folder))
		return;
	other = open(owed->part_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (other >= 0) {
		unlinkat(other, owed->part, 0);
		close(other);
	}
}

static int give_all(const struct tpck_owed *owed, const struct tpck_sums *sums, int folder, const char *part,
		    struct tpck_error *err)
{
	int fd = openat(folder, part, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (!sums || sums->count != owed->head.chunks || memcmp(sums->digest, owed->digest, owed->head.chunks * sizeof *owed->digest) != 0) {
		if (fd >= 0)
			close(fd);
		return tpck_error_set(err, EBADMSG, "reading the copy of %s/%s, which is not what was sent", owed->folder, owed->name);
	}
	if (fd < 0)
		return tpck_error_set(err, errno, "writing %s", owed->name);
	tpck_owed_give_attributes(owed, fd);
	if (owed->head.group != getegid())
		(void)!fchown(fd, (uid_t)-1, owed->head.group);
	/* Behind the change of the group, which takes bits away. What runs with rights of its owner's is nobody's checkpoint. */
	(void)!fchmod(fd, owed->head.mode & 01777);
	(void)!fsync(fd);
	close(fd);
	return 0;
}

static int put_file(struct taking *taking, size_t which, int folder, struct tpck_error *err)
{
	const struct tpck_owed *owed = &taking->list[which];
	const struct tpck_owed_head *head = &owed->head;
	char path[TPCK_PATH_MAX], part[64];
	struct tpck_sums *sums = NULL;
	struct stat put;
	int bytes, rc;

	held_bytes_path(owed, path);
	bytes = open(path, O_RDONLY | O_CLOEXEC);
	if (bytes < 0)
		return tpck_error_set(err, EBADMSG, "reading the copy of %s/%s", owed->folder, owed->name);
	(void)!fchmod(bytes, head->mode | 0400);
	(void)!futimens(bytes, (const struct timespec[2]){{head->accessed_sec, head->accessed_ns}, {head->modified_sec, head->modified_ns}});
	/* The owner may be writing its own, and another holder its own. */
	snprintf(part, sizeof part, TPCK_VIEW_PART "%016" PRIx64 ".%08x.part", head->serial,
		 (unsigned)tpck_digest64(peers.host, strlen(peers.host), 0));
	rc = tpck_replace_copy(bytes, folder, part, owed->name, NULL, NULL, &sums, err);
	if (!rc)
		rc = give_all(owed, sums, folder, part, err);
	close(bytes);
	tpck_sums_free(sums);
	/* Copying takes its time. */
	if (!rc && judge(taking, which, folder) != TPCK_OWED_PUT) {
		unlinkat(folder, part, 0);
		return -EAGAIN;
	}
	if (!rc)
		rc = tpck_replace_commit(folder, part, folder, owed->name, err);
	if (rc) {
		unlinkat(folder, part, 0);
		return rc;
	}
	clear_part(owed, taking->folders, folder);
	if (!fstatat(folder, owed->name, &put, AT_SYMLINK_NOFOLLOW)) {
		struct tpck_view_there there = tpck_view_there_of(&put);

		pthread_mutex_lock(&held.lock);
		held_lawful_add(taking->table, owed, &there);
		pthread_mutex_unlock(&held.lock);
	}
	return 0;
}

static int put_one(struct taking *taking, size_t which, struct tpck_error *err)
{
	const struct tpck_owed *owed = &taking->list[which];
	enum tpck_owed_verdict verdict;
	struct stat found;
	int folder, rc = 0;

	if (!tpck_owed_folder_is_in(taking->folders, owed->folder)) {
		taking->left++;
		tpck_log_warn("%s/%s, which %s is said to have owed, is left as it is: as far as the store says, the job has no files in that folder",
			      owed->folder, owed->name, taking->table->host);
		return 0;
	}
	folder = open(owed->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if ((folder < 0 && errno == ENOENT) || (folder >= 0 && (fstat(folder, &found) || found.st_ino != owed->head.folder_inode))) {
		/* What is gone with its folder is gone. */
		if (!owed->head.removed)
			tpck_log_warn("%s/%s, which %s owed, is given up: its folder is not there, or another one", owed->folder, owed->name,
				      taking->table->host);
		if (folder >= 0)
			close(folder);
		return 0;
	}
	if (folder < 0)
		return tpck_error_set(err, errno, "opening the folder %s", owed->folder);
	verdict = judge(taking, which, folder);
	if (verdict == TPCK_OWED_PUT && owed->head.removed) {
		if (unlinkat(folder, owed->name, 0) && errno != ENOENT)
			rc = tpck_error_set(err, errno, "removing %s/%s", owed->folder, owed->name);
		else
			(void)!fsync(folder);
	} else if (verdict == TPCK_OWED_PUT) {
		rc = put_file(taking, which, folder, err);
		if (rc == -EAGAIN)
			verdict = judge(taking, which, folder);
		if (rc == -EAGAIN && verdict != TPCK_OWED_PUT)
			rc = 0;
	}
	if (verdict == TPCK_OWED_LEAVE) {
		taking->left++;
		tpck_log_warn("%s/%s, which %s owed, is left as it is: somebody else has saved it since", owed->folder, owed->name,
			      taking->table->host);
	}
	if (verdict != TPCK_OWED_PUT)
		clear_part(owed, taking->folders, folder);
	else
		taking->put += !rc;
	taking->there += verdict == TPCK_OWED_THERE;
	close(folder);
	return rc;
}

uint64_t copies_taken_over(uint32_t table)
{
	char path[TPCK_PATH_MAX], *text;
	uint64_t order = 0;

	owed_mark_path(path, "taken", table);
	if (peers.on && !shared_read(path, 4096, &text)) {
		order = strtoull(text, NULL, 10);
		free(text);
	}
	return order;
}

/* From here on its owner looks what is at a path before it puts something there. */
static int fence(uint32_t table, uint64_t order, struct tpck_error *err)
{
	char path[TPCK_PATH_MAX], text[TPCK_PEER_NAME + 40];

	if (copies_taken_over(table) >= order)
		return 0;
	owed_mark_path(path, "taken", table);
	snprintf(text, sizeof text, "%" PRIu64 " %s\n", order, peers.host);
	return shared_write(path, text, TPCK_FILE_DURABLE, err);
}

/* NULL: it cannot be read, or is not the user's own, as where somebody has renamed the job's folder. */
static char *read_folders(const char *mark)
{
	int fd = shared_open(mark);
	char *text = NULL, *folders = NULL;
	struct stat found;
	ssize_t got = -1;

	if (fd < 0)
		return NULL;
	if (!fstat(fd, &found) && S_ISREG(found.st_mode) && found.st_uid == geteuid() && !(found.st_mode & 022) && found.st_size <= OWED_MARK_MAX)
		text = malloc((size_t)found.st_size + 1);
	if (text)
		got = pread(fd, text, (size_t)found.st_size, 0);
	if (got >= 0) {
		text[got] = '\0';
		folders = strdup(owed_mark_folders(text));
	}
	free(text);
	close(fd);
	return folders;
}

/* True: it is done, or given up; false: it is tried again. */
static bool put_all(struct taking *taking, struct tpck_error *err)
{
	struct held_table *table = taking->table;
	uint64_t last = taking->list[taking->count - 1].head.order, done = 0;
	char mark[TPCK_PATH_MAX], missed[TPCK_PATH_MAX];
	bool marked;
	size_t i = 0;
	int rc = 0;

	owed_mark_path(mark, "files", table->table);
	owed_mark_path(missed, "missed", table->table);
	taking->folders = read_folders(mark);
	if (!taking->folders)
		taking->folders = read_folders(missed);
	/* Without a mark all of it has been at its path already. */
	marked = shared_look(mark) != -ENOENT || shared_look(missed) != -ENOENT;
	if (marked && !taking->folders)
		rc = tpck_error_set(err, EIO, "reading %s: what %s owed waits for that", mark, table->host);
	if (marked && !rc) {
		rc = fence(table->table, last, err);
		for (; !rc && i < taking->count; i += !rc) {
			rc = put_one(taking, i, err);
			done = rc ? done : taking->list[i].head.order;
		}
		/* What closed behind a file that is not good any more does not come without it. */
		if (rc == -EBADMSG) {
			trouble_complain(err);
			tpck_log_warn("%zu files that %s owed are given up with it", taking->count - i, table->host);
			rc = 0;
		}
	}
	if (!rc && marked)
		tpck_log_warn("%s is lost: of the files that it owed %zu were put at their paths, %zu were there, %zu are left as they are",
			      table->host, taking->put, taking->there, taking->left);
	if (!rc) {
		struct tpck_peer_message head = {.generation = table->table, .step = last};

		shared_remove(mark);
		shared_remove(missed);
		peers_say(0, TPCK_PEER_FILE_TAKEN, &head, NULL, 0);
		done = last;
	}
	pthread_mutex_lock(&held.lock);
	table->taking = false;
	table->backoff_sec = rc ? trouble_backoff(table->backoff_sec) : 0;
	table->retry_ns = tpck_clock_monotonic_ns() + (uint64_t)(table->backoff_sec * 1e9);
	held_drop(table, done);
	pthread_mutex_unlock(&held.lock);
	return !rc;
}

/* The table's owner does not answer. False: it cannot be done for now, which has been said. */
static bool take_over(uint32_t number)
{
	struct taking taking = {0};
	struct tpck_error err = {0};
	bool done;

	pthread_mutex_lock(&held.lock);
	taking.table = held_table_of(number);
	if (taking.table && taking.table->count && !taking.table->taking)
		taking.list = calloc(taking.table->count, sizeof *taking.list);
	for (; taking.list && taking.count < taking.table->count; taking.count++)
		taking.list[taking.count] = taking.table->file[taking.count].owed;
	if (taking.list)
		taking.table->taking = true;
	pthread_mutex_unlock(&held.lock);
	if (!taking.list)
		return true;
	done = put_all(&taking, &err);
	if (!done)
		trouble_complain(&err);
	free(taking.list);
	free(taking.folders);
	return done;
}

/* ---- whether an owner is lost ----------------------------------------------------------------- */

/* Something of this table is here, and its owner has not been there for so long. */
static bool has_lost(uint32_t number, uint64_t gone_ns)
{
	const struct held_table *table;
	bool lost;

	pthread_mutex_lock(&held.lock);
	table = held_table_of(number);
	lost = table && table->count && !table->peer && tpck_clock_monotonic_ns() >= table->gone_ns + gone_ns;
	pthread_mutex_unlock(&held.lock);
	return lost;
}

static bool has(uint32_t number)
{
	const struct held_table *table;
	bool some;

	pthread_mutex_lock(&held.lock);
	table = held_table_of(number);
	some = table && table->count;
	pthread_mutex_unlock(&held.lock);
	return some;
}

/* Who had this table says that it is not its own: it was started anew, and has lost it. */
static void disown(uint32_t number)
{
	struct held_table *table;

	pthread_mutex_lock(&held.lock);
	table = held_table_of(number);
	if (table && table->peer) {
		table->peer = 0;
		table->gone_ns = tpck_clock_monotonic_ns();
	}
	pthread_mutex_unlock(&held.lock);
}

#define OWNED (1u << TPCK_PEER_FILE_OWNS | 1u << TPCK_PEER_FILE_LEFT)

/* What is here of this table is put at its paths, unless its owner lives. False: it cannot be for now. */
static bool settle_here(uint32_t table, uint64_t until)
{
	uint64_t who;

	while (has(table) && tpck_clock_monotonic_ns() < until && !held.stop) {
		if (ask(TPCK_PEER_FILE_LOOK, table, NULL, ANSWER_NS, &who) & OWNED)
			return true;
		if (has_lost(table, RESTART_NS))
			return take_over(table);
		disown(table);
		usleep(IDLE_MS * 1000);
	}
	return !has(table);
}

/* ---- what is looked for ----------------------------------------------------------------------- */

/* Tables that had files with peers, and no other. */
static size_t marks(uint32_t table[MARKS])
{
	const struct tpck_view *view = owed_view();
	struct dirent *entry;
	size_t count = 0;
	char *end;
	int fd = tpck_door_file(peers.folder, 1, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	while (list && count < MARKS && (entry = readdir(list))) {
		if (strncmp(entry->d_name, "files.", 6) != 0)
			continue;
		table[count] = (uint32_t)strtoul(entry->d_name + 6, &end, 16);
		count += end == entry->d_name + 14 && !*end && !(view && owed_table(view) == table[count]);
	}
	if (list)
		closedir(list);
	else if (fd >= 0)
		close(fd);
	return count;
}

static bool is_marked(uint32_t table)
{
	char path[TPCK_PATH_MAX];

	owed_mark_path(path, "files", table);
	return shared_look(path) == 0;
}

/* No start waits for them once more. Who has them after all puts them at their paths when it comes back. */
static void give_up(uint32_t table)
{
	struct tpck_error err = {0};
	char path[TPCK_PATH_MAX], missed[TPCK_PATH_MAX], *host = NULL;

	owed_mark_path(path, "files", table);
	if (shared_read(path, OWED_MARK_MAX, &host))
		return;
	host[strcspn(host, "\n")] = '\0';
	tpck_error_set(&err, 0, "files that %.60s owed are not at their paths, and may be lost: no peer is there that has them", host);
	trouble_complain(&err);
	free(host);
	owed_mark_path(missed, "missed", table);
	shared_rename(path, missed);
}

/* One of these tables: its owner is at work, or what it owed is at its paths, or that cannot be for now. */
static void settle(uint32_t table)
{
	uint64_t begun = tpck_clock_monotonic_ns(), until = begun + FIND_NS, who;

	tpck_log_debug("what table %08x owed is looked for", table);
	do {
		unsigned found = ask(TPCK_PEER_FILE_LOOK, table, NULL, ANSWER_NS, &who);

		if (found & 1u << TPCK_PEER_FILE_OWNS)
			return;
		if (found & 1u << TPCK_PEER_FILE_LEFT) {
			/* Who wrote them may be what begins here now: the owner puts them at their paths. */
			until = begun + TAKE_NS;
		} else if (has(table)) {
			(void)settle_here(table, begun + TAKE_NS);
			return;
		} else if (found & 1u << TPCK_PEER_FILE_HOLDS) {
			(void)ask(TPCK_PEER_FILE_TAKE, table, &who, TAKE_NS, &who);
			return;
		} else if (until != begun + FIND_NS) {
			/* What was left was there a moment ago. */
			until = begun + FIND_NS + TAKE_NS;
		}
		usleep(IDLE_MS * 1000);
	} while (!held.stop && tpck_clock_monotonic_ns() < until && is_marked(table));
	if (!held.stop && until == begun + FIND_NS && is_marked(table))
		give_up(table);
}

static void look_for_lost(void)
{
	uint32_t table[MARKS];
	size_t count = marks(table);

	for (size_t i = 0; i < count && !held.stop; i++)
		settle(table[i]);
}

/* ---- processes that begin --------------------------------------------------------------------- */

struct looked {
	struct job job; /* first */
	uint64_t number;
};

static void looked_done(struct agent *agent, struct job *job)
{
	struct looked *looked = (struct looked *)job;

	for (struct client *client = agent->clients; client; client = client->next)
		if (client->look && client->look <= looked->number) {
			client->look = 0;
			client_send(client, TPCK_MSG_LOOKED, NULL, 0);
		}
	free(looked);
}

static void answer_looks(uint64_t number)
{
	struct looked *looked = calloc(1, sizeof *looked);

	if (!looked)
		return;
	looked->job.done = looked_done;
	looked->number = number;
	outbox_post(&looked->job);
}

void copies_look(struct client *client)
{
	if (!peers.on || !held.running) {
		client_send(client, TPCK_MSG_LOOKED, NULL, 0);
		return;
	}
	pthread_mutex_lock(&held.lock);
	client->look = ++held.looks;
	pthread_cond_broadcast(&held.changed);
	pthread_mutex_unlock(&held.lock);
}

/* ---- the thread ------------------------------------------------------------------------------- */

/* A table whose owner has been gone for long; 0: there is none. Under the lock. */
static uint32_t long_lost(void)
{
	uint64_t now = tpck_clock_monotonic_ns(), gone = peers.agent->stopping ? RESTART_NS : LOST_NS;

	for (const struct held_table *table = held.tables; table; table = table->next)
		if (table->count && !table->peer && now >= table->gone_ns + gone && now >= table->retry_ns)
			return table->table;
	return 0;
}

static void answer_take(const struct held_take *take)
{
	struct tpck_peer_message head = {.transfer = take->number, .generation = take->table, .value = 1};

	(void)settle_here(take->table, tpck_clock_monotonic_ns() + TAKE_NS);
	peers_say(take->peer, TPCK_PEER_FILE_TOOK, &head, NULL, 0);
}

void *takeover_main(void *unused)
{
	(void)unused;
	pthread_setname_np(pthread_self(), "tpck-held");
	pthread_mutex_lock(&held.lock);
	while (!held.stop) {
		uint64_t looks = held.looks;
		uint32_t lost = long_lost();
		struct held_take take;

		if (looks > held.answered) {
			held.answered = looks;
			pthread_mutex_unlock(&held.lock);
			look_for_lost();
			answer_looks(looks);
		} else if (held.takes) {
			take = held.take[--held.takes];
			pthread_mutex_unlock(&held.lock);
			answer_take(&take);
		} else if (lost) {
			pthread_mutex_unlock(&held.lock);
			(void)settle_here(lost, tpck_clock_monotonic_ns() + TAKE_NS);
		} else {
			(void)wait_change(UINT64_MAX);
			continue;
		}
		pthread_mutex_lock(&held.lock);
	}
	pthread_mutex_unlock(&held.lock);
	return NULL;
}
