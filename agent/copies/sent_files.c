/* SPDX-License-Identifier: Apache-2.0 */
/* What this node owes to paths, on its way to the memory of peers (TRANSPCKPT_FSYNC=replicated). One thread brings each of them
 * up to date, in the order of closing: who has a file has all that closed before it. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/copies/copies_private.h"
#include "agent/files/debts.h"
#include "agent/loop/trouble.h"
#include "agent/peers/agents_folder.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/peer/placement.h"
#include "runtime/store/file.h"

#define SEC 1000000000ull
/* Others may not be there yet; one that does not answer for so long is asked again. */
#define EARLY_NS (10 * SEC)
#define ANSWER_NS (30 * SEC)
/* What did not fit is tried again. */
#define FULL_NS SEC
/* Messages with bytes that may be under way to one peer: what its link takes in about a second, since the sign of life goes behind them. */
enum { WINDOW_FIRST = 2, WINDOW_MOST = 8 };
#define QUICK_NS 500000000ull
#define LATE_NS 1000000000ull
enum { IDLE_MS = 50, LATER_MS = 20 };

struct sent {
	uint64_t serial, order, version;
	uint32_t changed; /* as it was when it was sent; UINT32_MAX: by an agent before this one */
};

/* A peer that is to have what is owed. */
struct target {
	uint64_t peer;     /* its serial; 0: unused */
	char host[TPCK_PEER_NAME];
	_Atomic bool answered, lost;
	uint64_t full_ns;  /* it had no room then; 0: it has */
	struct sent *sent; /* what it has */
	size_t count, room;
	uint64_t asked;    /* the serial of the file under way */
	enum { WAITING, KEPT, REFUSED } outcome;
	uint32_t attempt;  /* to send it */
	unsigned under_way, window; /* messages with bytes; 0: the window is not known yet */
	uint64_t heard_ns;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	bool running, stop;
	struct target target[PARCEL_TARGETS];
	uint32_t marked;   /* the table that a mark was made for */
	char *folders;     /* that are in it */
} owed = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- messages --------------------------------------------------------------------------------- */

/* A piece of a file, on its way to the peer of this serial. */
struct piece {
	struct errand errand; /* first */
	uint64_t serial;
	struct tpck_peer_message head;
	uint64_t begun_ns;
	size_t size;
	char bytes[];
};

/* Under the lock of owed. */
static struct target *target_of(uint64_t serial)
{
	for (unsigned i = 0; serial && i < PARCEL_TARGETS; i++)
		if (owed.target[i].peer == serial)
			return &owed.target[i];
	return NULL;
}

static unsigned window_of(const struct target *target)
{
	return target->window ? target->window : WINDOW_FIRST;
}

static void learn(struct target *target, uint64_t took)
{
	unsigned window = window_of(target);

	if (took < QUICK_NS && window < WINDOW_MOST)
		window++;
	else if (took > LATE_NS && window > 1)
		window--;
	target->window = window;
}

void owed_sent(void *token)
{
	struct piece *piece = token;
	struct target *target;

	pthread_mutex_lock(&owed.lock);
	target = target_of(piece->serial);
	if (target && target->under_way) {
		target->under_way--;
		learn(target, tpck_clock_monotonic_ns() - piece->begun_ns);
	}
	pthread_cond_broadcast(&owed.changed);
	pthread_mutex_unlock(&owed.lock);
	free(piece);
}

static void piece_run(struct errand *errand)
{
	struct piece *piece = (struct piece *)errand;
	struct peer *peer = peer_of_serial(piece->serial);

	if (!peer || peer->state != PEER_KNOWN || peer_send(peer, TPCK_PEER_FILE_BYTES, &piece->head, piece->bytes, piece->size, (char *)piece + 2))
		owed_sent(piece);
}

static void take_has(struct target *target, const char *bytes, size_t count)
{
	target->count = count / sizeof(struct tpck_peer_file);
	target->room = target->count + 64;
	free(target->sent);
	target->sent = malloc(target->room * sizeof *target->sent);
	if (!target->sent) {
		target->count = target->room = 0;
		target->lost = true;
		return;
	}
	for (size_t i = 0; i < target->count; i++) {
		struct tpck_peer_file file;

		memcpy(&file, bytes + i * sizeof file, sizeof file);
		target->sent[i] = (struct sent){file.serial, file.order, file.version, UINT32_MAX};
	}
	target->answered = true;
}

void owed_message(struct peer *peer, const struct tpck_peer_message *head, char *bytes, size_t count)
{
	struct target *target;

	pthread_mutex_lock(&owed.lock);
	target = target_of(peer->serial);
	if (target) {
		target->heard_ns = tpck_clock_monotonic_ns();
		if (head->type == TPCK_PEER_FILE_HAS) {
			take_has(target, bytes, count);
		} else if (head->step == target->asked && head->type == TPCK_PEER_FILE_KEPT) {
			target->outcome = KEPT;
		} else if (head->step == target->asked) {
			struct tpck_error err = {0};

			target->outcome = REFUSED;
			if (!target->full_ns) {
				tpck_error_set(&err, 0, "%.60s keeps no files of this node for now, fsync does not wait for it: %.*s", peer->other.host,
					       count < 200 ? (int)count : 200, count ? bytes : "");
				trouble_complain(&err);
			}
		}
		pthread_cond_broadcast(&owed.changed);
	}
	pthread_mutex_unlock(&owed.lock);
}

void owed_gone(const struct peer *peer)
{
	struct target *target;

	pthread_mutex_lock(&owed.lock);
	target = target_of(peer->serial);
	if (target)
		target->lost = true;
	pthread_cond_broadcast(&owed.changed);
	pthread_mutex_unlock(&owed.lock);
}

/* ---- to whom ---------------------------------------------------------------------------------- */

static void target_end(struct target *target)
{
	free(target->sent);
	*target = (struct target){0};
}

static bool is_target(const char *host)
{
	for (unsigned i = 0; i < PARCEL_TARGETS; i++)
		if (owed.target[i].peer && strcmp(owed.target[i].host, host) == 0)
			return true;
	return false;
}

static void target_begin(uint64_t serial, const char *host)
{
	for (unsigned i = 0; i < PARCEL_TARGETS; i++)
		if (!owed.target[i].peer) {
			owed.target[i] = (struct target){.peer = serial, .heard_ns = tpck_clock_monotonic_ns()};
			snprintf(owed.target[i].host, sizeof owed.target[i].host, "%s", host);
			return;
		}
}

/* Who is gone makes place for another one; other failure domains first. How many there are, of how many nodes. */
static unsigned choose(uint32_t table, size_t *nodes)
{
	enum { MOST = 256 };
	struct tpck_place places[MOST];
	struct tpck_peer_message head = {.generation = table};
	uint64_t serials[MOST], begun[PARCEL_TARGETS];
	size_t count = 0, chosen[PARCEL_TARGETS], wanted = home.settings.peers.count;
	unsigned have = 0, begun_count = 0;
	char key[32];

	snprintf(key, sizeof key, "files %08x", table);
	if (wanted > PARCEL_TARGETS)
		wanted = PARCEL_TARGETS;
	pthread_mutex_lock(&peers.lock);
	pthread_mutex_lock(&owed.lock);
	for (unsigned i = 0; i < PARCEL_TARGETS; i++) {
		if (owed.target[i].peer && owed.target[i].lost)
			target_end(&owed.target[i]);
		have += owed.target[i].peer != 0;
	}
	for (struct peer *peer = peers.list; peer && count < MOST; peer = peer->next) {
		bool there = peer->state != PEER_KNOWN || strcmp(peer->other.host, peers.host) == 0;

		for (size_t i = 0; i < count && !there; i++)
			there = strcmp(places[i].host, peer->other.host) == 0;
		if (there)
			continue;
		serials[count] = peer->serial;
		places[count++] = (struct tpck_place){peer->other.host, peer->other.domain};
	}
	*nodes = count;
	wanted = tpck_placement(places, count, peers.domain, key, wanted, chosen);
	for (size_t i = 0; i < wanted && have < wanted; i++)
		if (!is_target(places[chosen[i]].host)) {
			target_begin(serials[chosen[i]], places[chosen[i]].host);
			begun[begun_count++] = serials[chosen[i]];
			have++;
		}
	pthread_mutex_unlock(&owed.lock);
	pthread_mutex_unlock(&peers.lock);
	for (unsigned i = 0; i < begun_count; i++)
		peers_say(begun[i], TPCK_PEER_FILE_BEGIN, &head, NULL, 0);
	return have;
}

/* Under the lock, which is let go of meanwhile. False: the time is over, or it ends. */
static bool wait_change(uint64_t until_ns)
{
	uint64_t now = tpck_clock_monotonic_ns();
	struct timespec until;

	if (owed.stop || now >= until_ns)
		return false;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 100000000;
	until.tv_sec += until.tv_nsec / (long)SEC;
	until.tv_nsec %= (long)SEC;
	pthread_cond_timedwait(&owed.changed, &owed.lock, &until);
	return true;
}

/* ---- one file to one of them ------------------------------------------------------------------ */

void owed_mark_path(char path[TPCK_PATH_MAX], const char *what, uint32_t table)
{
	*path = '\0'; /* nothing is there */
	if (peers.folder[0])
		snprintf(path, TPCK_PATH_MAX, "%.1000s/%s.%08x", peers.folder, what, table);
}

/* What an agent before this one has marked. */
static void read_mark(const char *path)
{
	char *text;

	free(owed.folders);
	owed.folders = NULL;
	if (shared_read(path, OWED_MARK_MAX, &text))
		return;
	owed.folders = strdup(owed_mark_folders(text));
	free(text);
}

const char *owed_mark_folders(const char *text)
{
	const char *end = strchr(text, '\n');

	return end ? end + 1 : "";
}

/* All nodes see that something of this table is with peers, and in which folders its files are: what a peer says of that is not enough. */
static bool mark(uint32_t table, const char *folder)
{
	char path[TPCK_PATH_MAX], *folders = NULL, *text = NULL;
	struct tpck_error err = {0};
	bool good = false;

	owed_mark_path(path, "files", table);
	if (owed.marked != table)
		read_mark(path);
	if (owed.marked == table && owed.folders && tpck_owed_folder_is_in(owed.folders, folder) && shared_look(path) == 0)
		return true;
	folders = tpck_owed_folders_with(owed.folders ? owed.folders : "", folder);
	if (folders && asprintf(&text, "%s\n%s", peers.host, folders) < 0)
		text = NULL;
	if (text && shared_write(path, text, TPCK_FILE_DURABLE, &err) == 0) {
		free(owed.folders);
		owed.folders = folders;
		owed.marked = table;
		folders = NULL;
		good = true;
	} else if (err.text[0]) {
		trouble_complain(&err);
	}
	free(folders);
	free(text);
	return good;
}

static struct sent *sent_of(struct target *target, uint64_t serial)
{
	for (size_t i = 0; i < target->count; i++)
		if (target->sent[i].serial == serial)
			return &target->sent[i];
	return NULL;
}

static bool is_zero(const char *bytes, size_t count)
{
	return !count || (!bytes[0] && memcmp(bytes, bytes + 1, count - 1) == 0);
}

/* One more may be under way. False: it is lost, or has no room. */
static bool may_send(struct target *target)
{
	bool may;

	pthread_mutex_lock(&owed.lock);
	while (!target->lost && target->outcome == WAITING && target->under_way >= window_of(target) && wait_change(UINT64_MAX))
		;
	may = !target->lost && target->outcome == WAITING && !owed.stop;
	target->under_way += may;
	pthread_mutex_unlock(&owed.lock);
	return may;
}

/* Reads all of it, and sends what is no hole, unless it is there. -EIO: it cannot be read. */
static int send_bytes(struct target *target, const struct owed_file *file, uint8_t (*digest)[16], bool is_there, uint64_t *count)
{
	const struct tpck_owed_head *of = &file->owed.head;
	struct tpck_peer_message head = {.generation = of->table, .step = of->serial, .transfer = of->version, .rank = of->chunks,
					 .offset = target->attempt};

	for (uint32_t i = 0; i < of->chunks; i++) {
		struct piece *piece = malloc(sizeof *piece + sizeof *digest + TPCK_OWED_CHUNK);
		uint64_t at = (uint64_t)i * TPCK_OWED_CHUNK;
		size_t want = of->bytes - at < TPCK_OWED_CHUNK ? (size_t)(of->bytes - at) : TPCK_OWED_CHUNK;
		char *bytes = piece ? piece->bytes + sizeof *digest : NULL;
		ssize_t got;

		got = piece ? pread(file->fd, bytes, want, (off_t)at) : -1;
		if (got != (ssize_t)want) {
			free(piece);
			return got < 0 ? -EIO : -EAGAIN;
		}
		tpck_digest128(bytes, want, digest[i]);
		if (is_there || is_zero(bytes, want)) {
			free(piece);
			continue;
		}
		if (!may_send(target)) {
			free(piece);
			return -EPIPE;
		}
		head.value = i;
		*piece = (struct piece){.errand.run = piece_run, .serial = target->peer, .head = head, .begun_ns = tpck_clock_monotonic_ns()};
		memcpy(piece->bytes, digest[i], sizeof *digest);
		piece->size = sizeof *digest + want;
		++*count;
		peers_errand(&piece->errand);
	}
	return 0;
}

static void note_sent(struct target *target, const struct owed_item *item, uint64_t version)
{
	struct sent *sent = sent_of(target, item->serial), *more;

	if (!sent && target->count == target->room) {
		more = realloc(target->sent, (target->room + 256) * sizeof *more);
		if (!more) {
			target->lost = true;
			return;
		}
		target->sent = more;
		target->room += 256;
	}
	if (!sent)
		sent = &target->sent[target->count++];
	*sent = (struct sent){item->serial, item->order, version, item->changed};
}

static bool send_record(struct target *target, const struct owed_item *item, const struct owed_file *file, uint64_t count)
{
	struct tpck_peer_message head = {.generation = file->owed.head.table, .step = item->order, .value = count,
					 .offset = target->attempt};
	bool kept = false;
	size_t size;
	void *record = tpck_owed_write(&file->owed, &size);

	if (!record)
		return false;
	pthread_mutex_lock(&owed.lock);
	target->heard_ns = tpck_clock_monotonic_ns();
	pthread_mutex_unlock(&owed.lock);
	peers_say(target->peer, TPCK_PEER_FILE_RECORD, &head, record, size);
	free(record);
	pthread_mutex_lock(&owed.lock);
	while (!target->lost && target->outcome == WAITING && wait_change(target->heard_ns + ANSWER_NS))
		;
	kept = target->outcome == KEPT;
	if (kept)
		note_sent(target, item, file->owed.head.version);
	if (target->outcome == WAITING && !owed.stop)
		target->lost = true;
	pthread_mutex_unlock(&owed.lock);
	return kept;
}

/* True: it has this one. */
static bool send_file(struct tpck_view *view, struct target *target, const struct owed_item *item)
{
	uint8_t (*digest)[16];
	struct owed_file file;
	uint64_t count = 0;
	bool there, kept = false;
	struct sent *sent;
	int rc = owed_open(view, item, &file);

	if (rc)
		return false;
	sent = sent_of(target, item->serial);
	there = file.fd < 0 || (sent && sent->version == file.owed.head.version);
	if (there && sent && sent->order == item->order) {
		sent->changed = item->changed;
		owed_close(&file);
		return true;
	}
	pthread_mutex_lock(&owed.lock);
	target->asked = item->serial;
	target->outcome = WAITING;
	target->attempt++;
	pthread_mutex_unlock(&owed.lock);
	digest = mark(file.owed.head.table, file.folder) ? calloc(file.owed.head.chunks + 1, sizeof *digest) : NULL;
	rc = digest ? 0 : -EIO;
	if (digest) {
		file.owed.digest = (const uint8_t (*)[16])digest;
		rc = send_bytes(target, &file, digest, there, &count);
		if (!rc && owed_is_still(view, item, &file))
			kept = send_record(target, item, &file, count);
	}
	pthread_mutex_lock(&owed.lock);
	/* What cannot be sent is not waited for either. */
	target->full_ns = target->outcome == REFUSED || rc == -EIO ? tpck_clock_monotonic_ns() : 0;
	target->asked = 0;
	pthread_mutex_unlock(&owed.lock);
	free(digest);
	owed_close(&file);
	return kept;
}

/* What it has and is not owed any more. */
static void send_gone(struct target *target, uint32_t table, const struct owed_item *list, size_t count)
{
	struct tpck_peer_message head = {.generation = table};
	enum { MOST = 64 };
	struct tpck_peer_gone gone[MOST];
	size_t left = 0, gone_count = 0;

	for (size_t i = 0; i < target->count; i++) {
		const struct sent sent = target->sent[i];
		bool there = false;

		for (size_t k = 0; k < count && !there; k++)
			there = list[k].serial == sent.serial;
		/* A larger message may come behind a smaller one that was sent later. */
		if (there || gone_count == MOST)
			target->sent[left++] = sent;
		else
			gone[gone_count++] = (struct tpck_peer_gone){sent.serial, sent.order, owed_was_put(sent.serial)};
	}
	if (gone_count) {
		target->count = left;
		peers_say(target->peer, TPCK_PEER_FILE_GONE, &head, gone, gone_count * sizeof *gone);
	}
}

/* Up to which order it has all; *moved: something was sent. */
static uint64_t bring_up(struct tpck_view *view, struct target *target, const struct owed_item *list, size_t count, uint64_t newest,
			 bool *moved)
{
	send_gone(target, owed_table(view), list, count);
	for (size_t i = 0; i < count; i++) {
		const struct sent *sent = sent_of(target, list[i].serial);

		if (list[i].open || (sent && sent->order == list[i].order && sent->changed == list[i].changed))
			continue;
		if (target->full_ns && tpck_clock_monotonic_ns() < target->full_ns + FULL_NS)
			return list[i].order - 1;
		if (!send_file(view, target, &list[i]))
			return list[i].order - 1;
		*moved = true;
	}
	return newest;
}

/* ---- the thread ------------------------------------------------------------------------------- */

/* Whoever waits in fsync() sees it. */
static void tell(struct tpck_view *view, uint32_t copies, uint64_t replicated)
{
	bool news = view->copies != copies || view->replicated < replicated;

	view->copies = copies;
	if (view->replicated < replicated)
		view->replicated = replicated;
	if (news)
		tpck_view_tell(&view->done);
}

static void say_fewer(unsigned have, size_t nodes)
{
	struct tpck_error err = {0};

	tpck_error_set(&err, 0, "TRANSPCKPT_PEERS is %llu, but agents of %zu other nodes are there: files that are owed have %u copies",
		       (unsigned long long)home.settings.peers.count, nodes, have);
	trouble_complain(&err);
}

/* False: there is nothing more to do for now. */
static bool round_of(struct tpck_view *view)
{
	bool early = tpck_clock_monotonic_ns() < peers.begun_ns + EARLY_NS, moved = false, begun = false;
	uint64_t newest, least = UINT64_MAX, has;
	struct owed_item *list;
	unsigned have, takes = 0;
	size_t count, nodes;

	have = choose(owed_table(view), &nodes);
	if (!early && have < home.settings.peers.count)
		say_fewer(have, nodes);
	if (!owed_list(view, &list, &count, &newest))
		return true;
	for (unsigned i = 0; i < PARCEL_TARGETS; i++) {
		struct target *target = &owed.target[i];

		if (!target->peer || target->lost)
			continue;
		begun = begun || !target->answered;
		has = target->answered ? bring_up(view, target, list, count, newest, &moved) : 0;
		if (target->lost || target->full_ns)
			continue;
		takes++;
		least = has < least ? has : least;
	}
	free(list);
	if (takes)
		tell(view, 1 + takes, least);
	else if (!begun && (have || !early))
		tell(view, 1, 0);
	return moved;
}

static void *owed_main(void *unused)
{
	(void)unused;
	pthread_setname_np(pthread_self(), "tpck-owed");
	while (!owed.stop) {
		struct tpck_view *view = owed_view();
		uint32_t seen = view ? view->news : 0;

		if (!view)
			usleep(IDLE_MS * 1000);
		else if (!round_of(view))
			tpck_view_wait(&view->news, seen, view->used ? LATER_MS : IDLE_MS);
	}
	return NULL;
}

void owed_begin(void)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	/* Where nodes find each other otherwise there is no folder in which all see what has been taken over. */
	owed.running = !home.settings.nodes[0] && !peers.listed && pthread_create(&owed.thread, NULL, owed_main, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void owed_consider_alone(void)
{
	struct tpck_view *view = owed.running ? NULL : owed_view();

	if (view && !view->copies)
		tell(view, 1, 0);
}

/* The mark goes with what it is about. */
void owed_end(void)
{
	struct tpck_view *view = owed_view();
	char path[TPCK_PATH_MAX];

	owed.stop = true;
	if (owed.running)
		pthread_join(owed.thread, NULL);
	owed.running = false;
	if (!view || view->used)
		return;
	owed_mark_path(path, "files", owed_table(view));
	shared_remove(path);
	owed_mark_path(path, "taken", owed_table(view));
	shared_remove(path);
}
