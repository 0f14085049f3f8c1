/* SPDX-License-Identifier: Apache-2.0 */
/* The copies of other nodes' snapshots that are here, and how long they stay. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/store/file.h"
#include "tools/agent/identity.h"
#include "tools/agent/peers_private.h"

/* A generation is one launch's. */
static struct copy *find(uint64_t generation)
{
	for (struct copy *copy = peers.copies; copy; copy = copy->next)
		if (copy->replica->name.generation == generation)
			return copy;
	return NULL;
}

static void note_newest(struct copy *copy)
{
	copy->slot = tpck_replica_newest(copy->replica);
	if (copy->slot >= 0)
		copy->point = copy->replica->slot[copy->slot]->point;
}

static void free_copy(struct copy *copy)
{
	for (uint32_t m = 0; copy->member && m < copy->world; m++)
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
	copy->world = (uint32_t)manifest->member_count;
	copy->member = calloc(copy->world, sizeof *copy->member);
	whole = copy->member != NULL;
	for (uint32_t m = 0; whole && m < copy->world; m++) {
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
	note_newest(copy);
	if (replica->name.generation > peers.generation)
		peers.generation = replica->name.generation;
	copy->next = peers.copies;
	peers.copies = copy;
	return copy;
}

static void take_out(const struct copy *copy)
{
	for (struct copy **place = &peers.copies; *place; place = &(*place)->next)
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

static bool unused(const struct copy *copy)
{
	return !copy->pins && !copy->filling;
}

/* ---- what an earlier agent left ----------------------------------------------------------- */

static void adopt(const char *folder, const char *name)
{
	struct tpck_session_name session;
	struct tpck_replica *replica;
	struct tpck_error err = {0};
	int newest;

	if (tpck_session_name_parse(name + strlen(TPCK_REPLICA_PREFIX), &session) || find(session.generation))
		return;
	if (tpck_replica_open(&replica, folder, &session, &err)) {
		tpck_log_warn("%s", err.text);
		return;
	}
	newest = tpck_replica_newest(replica);
	/* The folder of another rank than the first says nothing by itself. */
	if (newest < 0 || !add(replica, replica->slot[newest], "")) {
		tpck_replica_close(replica);
		return;
	}
	tpck_log_info("holding a copy of step %" PRIu64 " of generation %" PRIu64 " since before",
		      replica->slot[newest]->point.step, session.generation);
}

/* What belongs to no copy that is whole. */
static void clear(const char *folder, const char *name)
{
	struct tpck_session_name session;
	char path[TPCK_PATH_MAX];

	if (tpck_session_name_parse(name + strlen(TPCK_REPLICA_PREFIX), &session) == 0 && !find(session.generation) &&
	    tpck_path_join(path, sizeof path, folder, name) == 0)
		(void)tpck_folder_remove(path);
}

static void for_each_folder(void (*act)(const char *folder, const char *name))
{
	DIR *folder = opendir(peers.agent->folder);
	struct dirent *entry;

	while (folder && (entry = readdir(folder)))
		if (strncmp(entry->d_name, TPCK_REPLICA_PREFIX, strlen(TPCK_REPLICA_PREFIX)) == 0)
			act(peers.agent->folder, entry->d_name);
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
	while (peers.copies)
		forget(peers.copies, false);
	pthread_mutex_unlock(&peers.lock);
}

/* ---- filling ------------------------------------------------------------------------------ */

static bool is_of(const struct copy *copy, const struct tpck_manifest *manifest)
{
	if (copy->world != manifest->member_count)
		return false;
	for (uint32_t m = 0; m < copy->world; m++)
		if (copy->member[m].rank != manifest->members[m].rank || copy->member[m].ordinal != manifest->members[m].ordinal ||
		    strcmp(copy->member[m].identity, manifest->members[m].identity) != 0)
			return false;
	return true;
}

struct copy *copy_for(const struct tpck_manifest *manifest, const char *owner, struct tpck_error *err)
{
	const struct tpck_member *member = &manifest->members[0];
	struct tpck_session_name name = {manifest->point.generation, member->rank, member->ordinal};
	struct tpck_replica *replica;
	struct copy *copy;

	pthread_mutex_lock(&peers.lock);
	copy = find(name.generation);
	if (!copy && tpck_replica_open(&replica, peers.agent->folder, &name, err) == 0) {
		copy = add(replica, manifest, owner);
		if (!copy) {
			tpck_error_set(err, ENOMEM, "keeping a peer's copy");
			tpck_replica_close(replica);
		}
	} else if (copy && (copy->filling || copy->pins || copy->doomed)) {
		tpck_error_set(err, EBUSY, "keeping a copy where another one is being written or read");
		copy = NULL;
	} else if (copy && !is_of(copy, manifest)) {
		tpck_error_set(err, EEXIST, "keeping a copy of generation %" PRIu64 ", which is another program's",
			       name.generation);
		copy = NULL;
	}
	if (copy) {
		copy->filling = true;
		if (owner[0])
			snprintf(copy->owner, sizeof copy->owner, "%s", owner);
	}
	pthread_mutex_unlock(&peers.lock);
	return copy;
}

/* Number of the rank in the copy's launch; -1: it has none of this identity. */
static int member_of(const struct copy *copy, const char *identity)
{
	for (uint32_t m = 0; m < copy->world; m++)
		if (strcmp(copy->member[m].identity, identity) == 0)
			return (int)m;
	return -1;
}

static void doom(const char *identity, uint64_t generation)
{
	for (struct copy *copy = peers.copies; copy; copy = copy->next)
		if (copy->replica->name.generation <= generation && member_of(copy, identity) >= 0)
			copy->doomed = true;
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
	note_newest(copy);
	/* A newer generation of the program has a copy: what is here of older ones is history. */
	if (whole)
		doom(copy->member[0].identity, copy->replica->name.generation - 1);
	else if (copy->slot < 0)
		copy->doomed = true;
	copies_here_sweep();
	pthread_cond_broadcast(&peers.changed);
	pthread_mutex_unlock(&peers.lock);
}

void copy_discard(struct copy *copy)
{
	pthread_mutex_lock(&peers.lock);
	copy->pins--;
	copy->doomed = true;
	if (copy->filling && !copy->pins) {
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

struct copy *copy_pin(const char *identity, uint32_t rank, uint32_t ordinal, struct tpck_point *point, int *slot)
{
	struct copy *found = NULL;

	pthread_mutex_lock(&peers.lock);
	for (struct copy *copy = peers.copies; copy; copy = copy->next)
		if (copy->member[0].rank == rank && copy->member[0].ordinal == ordinal && !copy->doomed &&
		    copy->slot >= 0 && strcmp(copy->member[0].identity, identity) == 0 &&
		    (!found || copy->replica->name.generation > found->replica->name.generation))
			found = copy;
	if (found) {
		*point = found->point;
		found->pins++;
	}
	if (found && slot)
		*slot = found->slot;
	pthread_mutex_unlock(&peers.lock);
	return found;
}

char *copies_here_other(const char *identity, uint32_t rank, struct tpck_point *point)
{
	const struct copy *found = NULL;
	char *text = NULL, what[320];

	pthread_mutex_lock(&peers.lock);
	for (const struct copy *copy = peers.copies; copy; copy = copy->next) {
		if (copy->doomed || copy->slot < 0 || copy->member[0].rank != rank)
			continue;
		if (identity_compare(identity, copy->member[0].identity, what, sizeof what) == IDENTITY_CHANGED &&
		    (!found || tpck_point_compare(&copy->point, &found->point) > 0))
			found = copy;
	}
	if (found) {
		text = strdup(found->member[0].identity);
		*point = found->point;
	}
	pthread_mutex_unlock(&peers.lock);
	return text;
}

void copy_unpin(struct copy *copy)
{
	pthread_mutex_lock(&peers.lock);
	copy->pins--;
	copies_here_sweep();
	pthread_mutex_unlock(&peers.lock);
}

/* ---- going -------------------------------------------------------------------------------- */

void copies_here_drop(const char *identity, uint64_t generation)
{
	pthread_mutex_lock(&peers.lock);
	doom(identity, generation);
	copies_here_sweep();
	pthread_mutex_unlock(&peers.lock);
}

/* Under the lock. */
void copies_here_sweep(void)
{
	struct copy *next;

	for (struct copy *copy = peers.copies; copy; copy = next) {
		next = copy->next;
		if (copy->doomed && unused(copy)) {
			tpck_log_info("the copy of generation %" PRIu64 " is not needed any more",
				      copy->replica->name.generation);
			forget(copy, true);
		}
	}
}

/* Under the lock: when the last one has waited long enough for its owner; 0: there is none. */
uint64_t copies_here_until(void)
{
	uint64_t linger = (uint64_t)(peers.agent->settings.linger_sec * 1e9), last = 0, now = tpck_clock_monotonic_ns();

	for (struct copy *copy = peers.copies; copy; copy = copy->next) {
		uint64_t until = copy->seen_ns + linger;

		if (until <= now && unused(copy))
			copy->doomed = true;
		last = until > last ? until : last;
	}
	copies_here_sweep();
	return last;
}
