/* SPDX-License-Identifier: Apache-2.0 */
/* The copies of other nodes' snapshots that are here, and how long they stay. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/copies/copies_private.h"
#include "agent/home/headroom.h"
#include "agent/programs/identity_text.h"
#include "runtime/base/clock.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/store/file.h"

/* After the job's end, an owner that was not heard of for so long is not there. */
#define GONE_NS (10 * 1000000000ull)
/* So long somebody may go on with what another one could not bring to its end. */
#define LEFT_NS (60 * 1000000000ull)

struct copies_here copies_here;

/* Number of the rank in the copy; -1: it has none such. */
static int member_of(const struct copy *copy, uint32_t rank, uint32_t ordinal)
{
	for (uint32_t m = 0; m < copy->ranks; m++)
		if (copy->member[m].rank == rank && copy->member[m].ordinal == ordinal)
			return (int)m;
	return -1;
}

static bool is_fragment(const struct copy *copy)
{
	return copy->replica->fragment.data != 0;
}

/* A generation is one launch's, and each of its ranks is in one part, of which there may be several fragments beside the whole. */
static struct copy *find(uint64_t generation, uint32_t rank, uint32_t ordinal, const struct tpck_fragment *fragment)
{
	for (struct copy *copy = copies_here.list; copy; copy = copy->next)
		if (copy->replica->name.generation == generation && member_of(copy, rank, ordinal) >= 0 &&
		    memcmp(&copy->replica->fragment, fragment, sizeof *fragment) == 0)
			return copy;
	return NULL;
}

static void note_slot(struct copy *copy, unsigned s)
{
	copy->slot[s].whole = copy->replica->slot[s] != NULL;
	if (copy->slot[s].whole)
		copy->slot[s].point = copy->replica->slot[s]->point;
}

int copy_newest(const struct copy *copy)
{
	int newest = -1;

	for (int s = 0; s < TPCK_REPLICA_SLOTS; s++)
		if (copy->slot[s].whole && (newest < 0 || copy->slot[s].point.step > copy->slot[newest].point.step))
			newest = s;
	return newest;
}

static void free_copy(struct copy *copy)
{
	for (uint32_t m = 0; copy->member && m < copy->ranks; m++)
		free(copy->member[m].identity);
	free(copy->member);
	free(copy);
}

static struct copy *add(struct tpck_replica *replica, const struct tpck_manifest *manifest, const char *owner)
{
	struct copy *copy = calloc(1, sizeof *copy);
	bool whole;

	if (!copy)
		return NULL;
	copy->replica = replica;
	copy->ranks = (uint32_t)manifest->member_count;
	copy->part = manifest->world > manifest->member_count;
	copy->member = calloc(copy->ranks, sizeof *copy->member);
	whole = copy->member != NULL;
	for (uint32_t m = 0; whole && m < copy->ranks; m++) {
		copy->member[m].identity = strdup(manifest->members[m].identity);
		copy->member[m].rank = manifest->members[m].rank;
		copy->member[m].ordinal = manifest->members[m].ordinal;
		whole = copy->member[m].identity != NULL;
	}
	if (!whole) {
		free_copy(copy);
		return NULL;
	}
	copy->seen_ns = tpck_clock_monotonic_ns();
	snprintf(copy->owner, sizeof copy->owner, "%s", owner);
	for (unsigned s = 0; s < TPCK_REPLICA_SLOTS; s++)
		note_slot(copy, s);
	if (replica->name.generation > peers.generation)
		peers.generation = replica->name.generation;
	copy->next = copies_here.list;
	copies_here.list = copy;
	return copy;
}

static void take_out(const struct copy *copy)
{
	for (struct copy **place = &copies_here.list; *place; place = &(*place)->next)
		if (*place == copy) {
			*place = copy->next;
			break;
		}
}

static void forget(struct copy *copy, bool files)
{
	take_out(copy);
	if (files)
		tpck_replica_remove(copy->replica);
	else
		tpck_replica_close(copy->replica);
	free_copy(copy);
}

static bool is_pinned(const struct copy *copy)
{
	return copy->slot[0].pins || copy->slot[1].pins;
}

static bool unused(const struct copy *copy)
{
	return !is_pinned(copy) && !copy->filling;
}

/* ---- what a start here is about to go on from --------------------------------------------- */

/* Under the lock. */
static struct want {
	char *identity;
	uint32_t rank, ordinal;
	struct tpck_point point;
	struct want *next;
} *wants;

static bool is_what(const struct want *want, const struct copy *copy)
{
	int m = member_of(copy, want->rank, want->ordinal);

	if (m < 0 || strcmp(copy->member[m].identity, want->identity) != 0)
		return false;
	for (unsigned s = 0; s < TPCK_REPLICA_SLOTS; s++)
		if (copy->slot[s].whole && tpck_point_compare(&copy->slot[s].point, &want->point) == 0)
			return true;
	return false;
}

static bool is_wanted(const struct copy *copy)
{
	for (const struct want *want = wants; want; want = want->next)
		if (is_what(want, copy))
			return true;
	return false;
}

static void forget_wants(const struct copy *copy)
{
	struct want **place = &wants;

	while (*place) {
		struct want *want = *place;

		if (copy && !is_what(want, copy)) {
			place = &want->next;
			continue;
		}
		*place = want->next;
		free(want->identity);
		free(want);
	}
}

void copies_here_want(const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point)
{
	struct want *want = calloc(1, sizeof *want);

	/* Without memory it is only not kept from going. */
	if (!want || !(want->identity = strdup(identity))) {
		free(want);
		return;
	}
	want->rank = rank;
	want->ordinal = ordinal;
	want->point = *point;
	pthread_mutex_lock(&peers.lock);
	want->next = wants;
	wants = want;
	pthread_mutex_unlock(&peers.lock);
}

void copies_here_want_none(void)
{
	pthread_mutex_lock(&peers.lock);
	forget_wants(NULL);
	copies_here_sweep();
	pthread_mutex_unlock(&peers.lock);
}

/* The copy is to go, and is nobody's start's. */
static bool goes(const struct copy *copy)
{
	return copy->doomed && !is_wanted(copy);
}

/* ---- what an earlier agent left ----------------------------------------------------------- */

static void adopt(const char *folder, const char *name)
{
	struct tpck_session_name session;
	struct tpck_fragment fragment;
	struct tpck_replica *replica;
	struct tpck_error err = {0};
	int newest;

	if (!tpck_replica_is_folder(name, &session, &fragment) || find(session.generation, session.rank, session.ordinal, &fragment))
		return;
	if (tpck_replica_open(&replica, folder, &session, &fragment, &err)) {
		tpck_log_warn("%s", err.text);
		return;
	}
	newest = tpck_replica_newest(replica);
	/* The folder of another rank than the first says nothing by itself. */
	if (newest < 0 || !add(replica, replica->slot[newest], "")) {
		tpck_replica_close(replica);
		return;
	}
	if (fragment.data)
		tpck_log_info("holding fragment %u of %u+%u of step %" PRIu64 " of generation %" PRIu64 " since before", fragment.index,
			      fragment.data, fragment.parity, replica->slot[newest]->point.step, session.generation);
	else
		tpck_log_info("holding a copy of step %" PRIu64 " of generation %" PRIu64 " since before",
			      replica->slot[newest]->point.step, session.generation);
}

/* What belongs to no copy that is whole. */
static void clear(const char *folder, const char *name)
{
	struct tpck_session_name session;
	struct tpck_fragment fragment;
	char path[TPCK_PATH_MAX];

	if (tpck_replica_is_folder(name, &session, &fragment) && !find(session.generation, session.rank, session.ordinal, &fragment) &&
	    tpck_path_join(path, sizeof path, folder, name) == 0)
		(void)tpck_folder_remove(path);
}

static void for_each_folder(void (*act)(const char *folder, const char *name))
{
	DIR *folder = opendir(home.folder);
	struct dirent *entry;

	while (folder && (entry = readdir(folder)))
		act(home.folder, entry->d_name);
	if (folder)
		closedir(folder);
}

void copies_here_find(void)
{
	pthread_mutex_lock(&peers.lock);
	for_each_folder(adopt);
	for_each_folder(clear);
	pthread_mutex_unlock(&peers.lock);
}

void copies_here_close(void)
{
	pthread_mutex_lock(&peers.lock);
	while (copies_here.list)
		forget(copies_here.list, false);
	pthread_mutex_unlock(&peers.lock);
}

/* ---- filling ------------------------------------------------------------------------------ */

static bool is_of(const struct copy *copy, const struct tpck_manifest *manifest)
{
	if (copy->ranks != manifest->member_count || copy->part != (manifest->world > manifest->member_count))
		return false;
	for (uint32_t m = 0; m < copy->ranks; m++)
		if (copy->member[m].rank != manifest->members[m].rank || copy->member[m].ordinal != manifest->members[m].ordinal ||
		    strcmp(copy->member[m].identity, manifest->members[m].identity) != 0)
			return false;
	return true;
}

static bool has_step(const struct copy *copy, uint64_t step)
{
	for (unsigned s = 0; s < TPCK_REPLICA_SLOTS; s++)
		if (copy->slot[s].whole && copy->slot[s].point.step == step)
			return true;
	return false;
}

/* Which of its slots the next copy goes to; -1: each is needed as it is. What nobody asked for leaves the newest alone, or the
 * one that its owner would have kept. */
static int slot_for(const struct copy *copy, uint64_t keep, bool wanted)
{
	int newest = copy_newest(copy), kept = wanted ? -1 : newest, best = -1;

	for (int s = 0; s < TPCK_REPLICA_SLOTS && !wanted && keep; s++)
		if (copy->slot[s].whole && copy->slot[s].point.step == keep - 1)
			kept = s;
	for (int s = 0; s < TPCK_REPLICA_SLOTS; s++)
		if (!copy->slot[s].pins && s != kept && (best < 0 || (copy->slot[best].whole && (!copy->slot[s].whole || best == newest))))
			best = s;
	return best;
}

static int may_be_written(const struct copy *copy, const struct tpck_manifest *manifest, bool wanted, struct tpck_error *err)
{
	int newest = copy_newest(copy);

	if (!is_of(copy, manifest))
		return tpck_error_set(err, EEXIST, "keeping a copy of generation %" PRIu64 ", which is another program's",
				      manifest->point.generation);
	if (!goes(copy) && has_step(copy, manifest->point.step))
		return -EALREADY;
	if (copy->filling || copy->doomed)
		return tpck_error_set(err, EBUSY, "keeping a copy where another one is being written or read");
	if (!wanted && newest >= 0 && copy->slot[newest].point.step > manifest->point.step)
		return tpck_error_set(err, ESTALE, "keeping a copy of step %" PRIu64 ", where there is a newer one",
				      manifest->point.step);
	return 0;
}

static int make(const struct tpck_manifest *manifest, const struct tpck_fragment *fragment, const char *owner, struct copy **copy,
		struct tpck_error *err)
{
	const struct tpck_member *first = &manifest->members[0];
	struct tpck_session_name name = {manifest->point.generation, first->rank, first->ordinal};
	struct tpck_replica *replica;
	int rc = tpck_replica_open(&replica, home.folder, &name, fragment, err);

	if (rc)
		return rc;
	*copy = add(replica, manifest, owner);
	if (*copy)
		return 0;
	tpck_replica_close(replica);
	return tpck_error_set(err, ENOMEM, "keeping a peer's copy");
}

int copy_for(const struct tpck_manifest *manifest, const struct tpck_fragment *fragment, const char *owner, uint64_t keep, bool wanted,
	     struct copy **out, struct tpck_error *err)
{
	struct copy *copy = NULL;
	int rc, slot = -1;

	pthread_mutex_lock(&peers.lock);
	for (size_t m = 0; m < manifest->member_count && !copy; m++)
		copy = find(manifest->point.generation, manifest->members[m].rank, manifest->members[m].ordinal, fragment);
	rc = copy ? may_be_written(copy, manifest, wanted, err) : make(manifest, fragment, owner, &copy, err);
	if (!rc)
		slot = slot_for(copy, keep, wanted);
	if (!rc && slot < 0)
		rc = tpck_error_set(err, EBUSY, "keeping a copy where others are being read");
	if (!rc) {
		copy->filling = true;
		copy->to = (unsigned)slot;
		copy->keep = keep;
		copy->slot[slot].whole = false;
		*out = copy;
	}
	if (!rc || rc == -EALREADY) {
		copy->seen_ns = tpck_clock_monotonic_ns();
		if (owner[0])
			snprintf(copy->owner, sizeof copy->owner, "%s", owner);
	}
	pthread_mutex_unlock(&peers.lock);
	return rc;
}

bool copy_room(const struct copy *copy, const struct tpck_manifest *manifest, unsigned slots, char *reason, size_t size)
{
	uint64_t bytes = tpck_replica_needs(copy->replica, manifest, slots);

	if (room_for(bytes, reason, size))
		return true;
	copies_here_drop_left(NULL, 0, 0);
	return room_for(bytes, reason, size);
}

static bool is_copy_of(const struct copy *copy, const char *identity)
{
	for (uint32_t m = 0; m < copy->ranks; m++)
		if (strcmp(copy->member[m].identity, identity) == 0)
			return true;
	return false;
}

static void doom(const char *identity, uint64_t generation)
{
	for (struct copy *copy = copies_here.list; copy; copy = copy->next)
		if (copy->replica->name.generation <= generation && is_copy_of(copy, identity))
			copy->doomed = true;
}

/* The owner gives this node other fragments than before, or the whole: what it had goes once the step that is to stay is newer. */
static void doom_others(const struct copy *filled)
{
	for (struct copy *copy = copies_here.list; copy; copy = copy->next) {
		int newest = copy_newest(copy);

		if (copy != filled && copy->replica->name.generation == filled->replica->name.generation &&
		    member_of(copy, filled->member[0].rank, filled->member[0].ordinal) >= 0 && newest >= 0 &&
		    copy->slot[newest].point.step + 1 < filled->keep)
			copy->doomed = true;
	}
}

void copy_filled(struct copy *copy, bool whole)
{
	pthread_mutex_lock(&peers.lock);
	if (copy->detached) {
		tpck_replica_close(copy->replica);
		free_copy(copy);
		pthread_mutex_unlock(&peers.lock);
		return;
	}
	copy->filling = false;
	copy->seen_ns = tpck_clock_monotonic_ns();
	note_slot(copy, copy->to);
	if (whole && copy->keep)
		doom_others(copy);
	/* A newer generation of the program has a copy: what is here of older ones is history. A part says nothing of the others:
	 * their nodes do, once all have copies; nor does a fragment. */
	for (uint32_t m = 0; whole && !copy->part && !is_fragment(copy) && m < copy->ranks; m++)
		doom(copy->member[m].identity, copy->replica->name.generation - 1);
	copy->left_ns = copy_newest(copy) < 0 && tpck_replica_has_left(copy->replica) ? copy->seen_ns : 0;
	if (copy_newest(copy) < 0 && !copy->left_ns)
		copy->doomed = true;
	copies_here_sweep();
	pthread_cond_broadcast(&peers.changed);
	pthread_mutex_unlock(&peers.lock);
}

void copy_discard(struct copy *copy, unsigned slot)
{
	pthread_mutex_lock(&peers.lock);
	copy->slot[slot].pins--;
	copy->doomed = true;
	forget_wants(copy);
	if (copy->filling && !is_pinned(copy)) {
		take_out(copy);
		copy->detached = true;
		tpck_replica_unlink(copy->replica);
	}
	copies_here_sweep();
	pthread_mutex_unlock(&peers.lock);
}

bool copy_is_detached(struct copy *copy)
{
	bool detached;

	pthread_mutex_lock(&peers.lock);
	detached = copy->detached;
	pthread_mutex_unlock(&peers.lock);
	return detached;
}

/* ---- reading ------------------------------------------------------------------------------ */

static struct copy *pin(const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point,
			const struct tpck_fragment *fragment, unsigned *slot)
{
	struct copy *found = NULL;

	pthread_mutex_lock(&peers.lock);
	for (struct copy *copy = copies_here.list; copy; copy = copy->next) {
		int m = goes(copy) ? -1 : member_of(copy, rank, ordinal);

		if (m < 0 || strcmp(copy->member[m].identity, identity) != 0 ||
		    memcmp(&copy->replica->fragment, fragment, sizeof *fragment) != 0)
			continue;
		for (unsigned s = 0; s < TPCK_REPLICA_SLOTS; s++) {
			const struct copy_slot *at = &copy->slot[s];

			if (at->whole && (point ? tpck_point_compare(&at->point, point) == 0
						: !copy->part && (!found || tpck_point_compare(&at->point, &found->slot[*slot].point) > 0))) {
				found = copy;
				*slot = s;
			}
		}
	}
	if (found)
		found->slot[*slot].pins++;
	pthread_mutex_unlock(&peers.lock);
	return found;
}

struct copy *copy_pin(const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point, unsigned *slot)
{
	return pin(identity, rank, ordinal, point, &(struct tpck_fragment){0}, slot);
}

struct copy *copy_pin_fragment(const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point,
			       const struct tpck_fragment *fragment, unsigned *slot)
{
	return pin(identity, rank, ordinal, point, fragment, slot);
}

struct tpck_peer_told *copies_here_pieces(const char *identity, uint32_t rank, uint32_t ordinal, size_t *count)
{
	struct tpck_peer_told *rows = NULL;

	*count = 0;
	pthread_mutex_lock(&peers.lock);
	for (struct copy *copy = copies_here.list; copy; copy = copy->next) {
		int m = copy->doomed || !(is_fragment(copy) || copy->part) ? -1 : member_of(copy, rank, ordinal);
		struct tpck_peer_told *grown;

		if (m < 0 || strcmp(copy->member[m].identity, identity) != 0 ||
		    !(grown = reallocarray(rows, *count + TPCK_REPLICA_SLOTS, sizeof *rows)))
			continue;
		rows = grown;
		for (unsigned s = 0; s < TPCK_REPLICA_SLOTS; s++)
			if (copy->slot[s].whole)
				rows[(*count)++] = (struct tpck_peer_told){
					.generation = copy->slot[s].point.generation, .step = copy->slot[s].point.step,
					.fragment = copy->replica->fragment, .part = copy->part,
				};
	}
	pthread_mutex_unlock(&peers.lock);
	return rows;
}

void copy_pin_again(struct copy *copy, unsigned slot)
{
	pthread_mutex_lock(&peers.lock);
	copy->slot[slot].pins++;
	pthread_mutex_unlock(&peers.lock);
}

static bool add_held(struct copies_held **rows, size_t *count, const struct copy *copy, unsigned s, const char *forms,
		     size_t size)
{
	for (uint32_t m = 0; m < copy->ranks; m++) {
		const struct copy_member *member = &copy->member[m];
		int form = identity_form_among(member->identity, forms, size);
		struct copies_held *grown;

		if (form < 0)
			continue;
		grown = reallocarray(*rows, *count + 1, sizeof *grown);
		if (!grown)
			return false;
		*rows = grown;
		grown[(*count)++] = (struct copies_held){
			.rank = member->rank, .ordinal = member->ordinal, .point = copy->slot[s].point,
			.resumable = copy->replica->slot[s]->members[m].resumable, .form = (uint32_t)form,
			.fragment = copy->replica->fragment,
		};
	}
	return true;
}

size_t copies_held(const char *forms, size_t size, struct copies_held **rows)
{
	size_t count = 0;
	bool more = true;

	*rows = NULL;
	pthread_mutex_lock(&peers.lock);
	for (const struct copy *copy = copies_here.list; copy && more; copy = copy->next)
		for (unsigned s = 0; s < TPCK_REPLICA_SLOTS && more; s++)
			more = copy->doomed || !copy->slot[s].whole || add_held(rows, &count, copy, s, forms, size);
	pthread_mutex_unlock(&peers.lock);
	return count;
}

bool copies_parts_held(const char *forms, size_t size)
{
	bool found = false;

	pthread_mutex_lock(&peers.lock);
	for (const struct copy *copy = copies_here.list; copy && !found; copy = copy->next)
		found = copy->part && !copy->doomed && identity_form_among(copy->member[0].identity, forms, size) >= 0;
	pthread_mutex_unlock(&peers.lock);
	return found;
}

char *copies_here_other(const char *identity, uint32_t rank, struct tpck_point *point)
{
	const struct copy *found = NULL;
	struct tpck_point newest;
	char *text = NULL, what[320];

	pthread_mutex_lock(&peers.lock);
	for (const struct copy *copy = copies_here.list; copy; copy = copy->next) {
		int slot = copy_newest(copy);

		if (copy->doomed || slot < 0 || copy->member[0].rank != rank)
			continue;
		if (identity_compare(identity, copy->member[0].identity, what, sizeof what) == IDENTITY_CHANGED &&
		    (!found || tpck_point_compare(&copy->slot[slot].point, &newest) > 0)) {
			found = copy;
			newest = copy->slot[slot].point;
		}
	}
	if (found) {
		text = strdup(found->member[0].identity);
		*point = newest;
	}
	pthread_mutex_unlock(&peers.lock);
	return text;
}

void copy_unpin(struct copy *copy, unsigned slot)
{
	pthread_mutex_lock(&peers.lock);
	copy->slot[slot].pins--;
	copies_here_sweep();
	pthread_mutex_unlock(&peers.lock);
}

/* ---- going -------------------------------------------------------------------------------- */

char *copies_here_identities(size_t *size)
{
	char *text = NULL;
	FILE *to = open_memstream(&text, size);

	if (!to)
		return NULL;
	pthread_mutex_lock(&peers.lock);
	for (const struct copy *copy = copies_here.list; copy; copy = copy->next)
		for (uint32_t m = 0; m < copy->ranks && !copy->doomed && copy_newest(copy) >= 0; m++)
			(void)fwrite(copy->member[m].identity, strlen(copy->member[m].identity) + 1, 1, to);
	pthread_mutex_unlock(&peers.lock);
	if (fclose(to)) {
		free(text);
		return NULL;
	}
	return text;
}

void copies_here_drop(const char *identity, uint64_t generation)
{
	pthread_mutex_lock(&peers.lock);
	doom(identity, generation);
	copies_here_sweep();
	pthread_mutex_unlock(&peers.lock);
}

void copies_here_drop_left(const char *identity, uint32_t rank, uint32_t ordinal)
{
	pthread_mutex_lock(&peers.lock);
	for (struct copy *copy = copies_here.list; copy; copy = copy->next) {
		int m = identity ? member_of(copy, rank, ordinal) : 0;

		if (copy->left_ns && !copy->filling && m >= 0 && (!identity || strcmp(copy->member[m].identity, identity) == 0))
			copy->doomed = true;
	}
	copies_here_sweep();
	pthread_mutex_unlock(&peers.lock);
}

/* Under the lock. */
void copies_here_sweep(void)
{
	struct copy *next;

	for (struct copy *copy = copies_here.list; copy; copy = next) {
		next = copy->next;
		if (goes(copy) && unused(copy)) {
			tpck_log_info("the copy of generation %" PRIu64 " is not needed any more",
				      copy->replica->name.generation);
			forget(copy, true);
		}
	}
}

/* Under the lock: when the last one has waited long enough for its owner; 0: there is none. */
uint64_t copies_here_until(void)
{
	uint64_t linger = (uint64_t)(home.settings.linger_sec * 1e9), last = 0, now = tpck_clock_monotonic_ns();

	/* With what is here of the job goes what others had. */
	if (peers.agent->nobody_returns && !peers.agent->lives && linger > GONE_NS)
		linger = GONE_NS;
	for (struct copy *copy = copies_here.list; copy; copy = copy->next) {
		uint64_t until = copy->seen_ns + (copy->left_ns && linger > LEFT_NS ? LEFT_NS : linger);

		/* What may be all that there is stays until it is durable, or is known not to be; before that it shows whether the owner is lost. */
		if (hearers_need(copy->replica->name.generation) || (until <= now && copies_owner_is_there(copy->owner)))
			until = UINT64_MAX;
		if (until <= now && unused(copy))
			copy->doomed = true;
		last = until > last ? until : last;
	}
	copies_here_sweep();
	return last;
}
