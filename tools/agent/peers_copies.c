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
#include "tools/agent/peers_private.h"

static struct copy *find(const struct tpck_session_name *name)
{
	for (struct copy *copy = peers.copies; copy; copy = copy->next)
		if (copy->replica->name.generation == name->generation && copy->replica->name.rank == name->rank &&
		    copy->replica->name.ordinal == name->ordinal)
			return copy;
	return NULL;
}

static void note_newest(struct copy *copy)
{
	const struct tpck_manifest *manifest;

	copy->slot = tpck_replica_newest(copy->replica);
	if (copy->slot < 0)
		return;
	manifest = copy->replica->slot[copy->slot];
	copy->point = manifest->point;
	copy->cut = manifest->members[0].cut;
	copy->resumable = manifest->members[0].resumable;
}

static struct copy *add(struct tpck_replica *replica, const char *identity, const char *owner)
{
	struct copy *copy = calloc(1, sizeof *copy);

	if (!copy)
		return NULL;
	copy->replica = replica;
	copy->identity = strdup(identity);
	copy->rank = replica->name.rank;
	copy->ordinal = replica->name.ordinal;
	copy->seen_ns = tpck_clock_monotonic_ns();
	snprintf(copy->owner, sizeof copy->owner, "%s", owner);
	note_newest(copy);
	if (!copy->identity) {
		free(copy);
		return NULL;
	}
	if (replica->name.generation > peers.generation)
		peers.generation = replica->name.generation;
	copy->next = peers.copies;
	peers.copies = copy;
	return copy;
}

static void forget(struct copy *copy, bool files)
{
	for (struct copy **place = &peers.copies; *place; place = &(*place)->next)
		if (*place == copy) {
			*place = copy->next;
			break;
		}
	if (files)
		tpck_replica_remove(copy->replica);
	else
		tpck_replica_close(copy->replica);
	free(copy->identity);
	free(copy);
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

	if (tpck_session_name_parse(name + strlen(TPCK_REPLICA_PREFIX), &session) || find(&session))
		return;
	if (tpck_replica_open(&replica, folder, &session, &err)) {
		tpck_log_warn("%s", err.text);
		return;
	}
	newest = tpck_replica_newest(replica);
	if (newest < 0 || !add(replica, replica->slot[newest]->members[0].identity, "")) {
		tpck_replica_remove(replica);
		return;
	}
	tpck_log_info("holding a copy of step %" PRIu64 " of generation %" PRIu64 " since before",
		      replica->slot[newest]->point.step, session.generation);
}

void copies_here_find(void)
{
	DIR *folder = opendir(peers.agent->folder);
	struct dirent *entry;

	pthread_mutex_lock(&peers.lock);
	while (folder && (entry = readdir(folder)))
		if (strncmp(entry->d_name, TPCK_REPLICA_PREFIX, strlen(TPCK_REPLICA_PREFIX)) == 0)
			adopt(peers.agent->folder, entry->d_name);
	pthread_mutex_unlock(&peers.lock);
	if (folder)
		closedir(folder);
}

void copies_here_close(void)
{
	pthread_mutex_lock(&peers.lock);
	while (peers.copies)
		forget(peers.copies, false);
	pthread_mutex_unlock(&peers.lock);
}

/* ---- filling ------------------------------------------------------------------------------ */

struct copy *copy_for(const struct tpck_manifest *manifest, const char *owner, struct tpck_error *err)
{
	const struct tpck_member *member = &manifest->members[0];
	struct tpck_session_name name = {manifest->point.generation, member->rank, member->ordinal};
	struct tpck_replica *replica;
	struct copy *copy;

	pthread_mutex_lock(&peers.lock);
	copy = find(&name);
	if (!copy && tpck_replica_open(&replica, peers.agent->folder, &name, err) == 0) {
		copy = add(replica, member->identity, owner);
		if (!copy) {
			tpck_error_set(err, ENOMEM, "keeping a peer's copy");
			tpck_replica_close(replica);
		}
	} else if (copy && (copy->filling || copy->pins || copy->doomed)) {
		tpck_error_set(err, EBUSY, "keeping a copy where another one is being written or read");
		copy = NULL;
	} else if (copy && strcmp(copy->identity, member->identity) != 0) {
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

static void doom(const char *identity, uint32_t rank, uint32_t ordinal, uint64_t generation, bool any_rank)
{
	for (struct copy *copy = peers.copies; copy; copy = copy->next)
		if (copy->replica->name.generation <= generation && strcmp(copy->identity, identity) == 0 &&
		    (any_rank || (copy->rank == rank && copy->ordinal == ordinal)))
			copy->doomed = true;
}

void copy_filled(struct copy *copy, bool whole)
{
	pthread_mutex_lock(&peers.lock);
	copy->filling = false;
	copy->seen_ns = tpck_clock_monotonic_ns();
	note_newest(copy);
	/* A newer generation of the program has a copy: what is here of older ones is history. */
	if (whole)
		doom(copy->identity, copy->rank, copy->ordinal, copy->replica->name.generation - 1, false);
	else if (copy->slot < 0)
		copy->doomed = true;
	copies_here_sweep();
	pthread_cond_broadcast(&peers.changed);
	pthread_mutex_unlock(&peers.lock);
}

/* ---- reading ------------------------------------------------------------------------------ */

struct copy *copy_pin(const char *identity, uint32_t rank, uint32_t ordinal, struct tpck_point *point)
{
	struct copy *found = NULL;

	pthread_mutex_lock(&peers.lock);
	for (struct copy *copy = peers.copies; copy; copy = copy->next)
		if (copy->rank == rank && copy->ordinal == ordinal && !copy->doomed && copy->slot >= 0 &&
		    strcmp(copy->identity, identity) == 0 &&
		    (!found || copy->replica->name.generation > found->replica->name.generation))
			found = copy;
	if (found) {
		if (point)
			*point = found->point;
		found->pins++;
	}
	pthread_mutex_unlock(&peers.lock);
	return found;
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
	doom(identity, 0, 0, generation, true);
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
