/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing and staging an offer. */
#include "config.h"

#include "tools/agent/offer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/store/quarantine.h"
#include "runtime/store/stage.h"
#include "tools/agent/identity.h"

struct choice {
	struct tpck_point point;
	struct memory_candidate *memory; /* or */
	struct tpck_manifest **manifest; /* in the catalog of a tier; set to NULL when taken over */
	size_t tier;
};

static int newest_first(const void *a, const void *b)
{
	const struct choice *x = a, *y = b;
	int order = tpck_point_compare(&y->point, &x->point);

	/* The same one in several places: from the fastest. */
	return order ? order : (int)(x->memory ? 0 : 1 + x->tier) - (int)(y->memory ? 0 : 1 + y->tier);
}

static int stage_memory(const struct offer_request *request, struct memory_candidate *candidate,
			struct offer *offer, struct tpck_error *err)
{
	struct tpck_image image = {0};
	int rc = tpck_image_open(&image, candidate->image_path, false, err);

	if (!rc)
		rc = tpck_image_check(&image, candidate->image_path, err);
	if (!rc)
		rc = tpck_log_check(candidate->session_path, &candidate->cut, err);
	if (!rc)
		rc = tpck_image_check_device(&image, candidate->image_path, err);
	if (!rc)
		rc = tpck_image_check_chunks(&image, candidate->image_path, false, err);
	tpck_image_close(&image);
	if (!rc)
		rc = tpck_stage_memory(candidate->session_path, candidate->image_path, &candidate->cut,
				       request->session_path, err);
	if (rc) {
		candidate->bad = rc == -EBADMSG || rc == -ENOENT;
		tpck_log_warn("snapshot of step %" PRIu64 " (generation %" PRIu64 ") in memory is not usable: %s",
			      candidate->point.step, candidate->point.generation, err->text);
		return rc;
	}
	offer->cut = candidate->cut;
	return 0;
}

static int stage_durable(struct agent *agent, const struct offer_request *request, const struct choice *choice,
			 struct offer *offer, struct tpck_error *err)
{
	struct tpck_tier *tier = agent->tiers.tier[choice->tier];
	struct tpck_manifest **manifest = choice->manifest;
	const struct tpck_member *member = tpck_manifest_member(*manifest, request->rank, request->ordinal);
	int rc = tpck_stage_durable(tier, *manifest, member, request->session_path, err);

	if (rc == -EBADMSG || rc == -ENOENT) {
		struct tpck_error aside = {0};

		if (tpck_quarantine(tier, &(*manifest)->point, err->text, &aside))
			tpck_log_warn("%s", aside.text);
		return rc;
	}
	if (rc) {
		tpck_log_warn("checkpoint of step %" PRIu64 " (generation %" PRIu64 ") cannot be loaded: %s",
			      (*manifest)->point.step, (*manifest)->point.generation, err->text);
		return rc;
	}
	offer->cut = member->cut;
	/* What is published next refers to what the first tier has. */
	if (choice->tier == 0) {
		offer->base = *manifest;
		*manifest = NULL;
	}
	return 0;
}

static void say_unreadable(void *context, const struct tpck_point *point, const struct tpck_error *err)
{
	struct tpck_tier *tier = context;

	/* An unknown format is another version's good checkpoint; a damaged manifest is nobody's. */
	if (err->code == EBADMSG)
		tpck_quarantine(tier, point, err->text, NULL);
	else
		agent_complain(err);
}

static bool resumable(const struct choice *choice, const struct offer_request *request)
{
	return choice->memory ? choice->memory->resumable
			      : tpck_manifest_member(*choice->manifest, request->rank, request->ordinal)->resumable;
}

/* Goes through the choices, newest first, until one is staged. */
static void try_choices(struct agent *agent, const struct offer_request *request, struct choice *choices,
			size_t count, struct offer *offer)
{
	bool wanted_seen = false;

	for (size_t i = 0; i < count && !offer->made; i++) {
		struct choice *choice = &choices[i];
		enum tpck_allowed allowed = tpck_program_allows(request->program, &choice->point);
		struct tpck_error err = {0};

		if (request->wanted_step != UINT64_MAX && choice->point.step != request->wanted_step)
			continue;
		/* Who names a step has seen what happened there. */
		if (allowed == TPCK_ALLOWED_NOT_LOOP && request->wanted_step == UINT64_MAX) {
			snprintf(offer->notice, sizeof offer->notice,
				 "not resuming at step %" PRIu64 ": the program died again and again on the way there or within an iteration of it; TRANSPCKPT_RESUME=%" PRIu64 " goes there all the same",
				 choice->point.step, choice->point.step);
			tpck_log_warn("%s", offer->notice);
			continue;
		}
		if (allowed != TPCK_ALLOWED && allowed != TPCK_ALLOWED_NOT_LOOP)
			continue;
		if (!resumable(choice, request)) {
			snprintf(offer->notice, sizeof offer->notice, "step %" PRIu64 " cannot be resumed: %.128s",
				 choice->point.step,
				 choice->memory ? "its log is not whole"
						: tpck_manifest_member(*choice->manifest, request->rank,
								       request->ordinal)->reason);
			continue;
		}
		wanted_seen = true;
		if (choice->memory ? stage_memory(request, choice->memory, offer, &err)
				   : stage_durable(agent, request, choice, offer, &err)) {
			snprintf(offer->notice, sizeof offer->notice, "step %" PRIu64 " cannot be resumed: %.400s",
				 choice->point.step, err.text);
			tpck_stage_clear(request->session_path);
			continue;
		}
		offer->made = true;
		offer->point = choice->point;
		tpck_log_info("offering step %" PRIu64 " of generation %" PRIu64 " from %s", choice->point.step,
			      choice->point.generation, choice->memory ? "memory" : agent->tiers.name[choice->tier]);
	}
	if (!offer->made && !wanted_seen && request->wanted_step != UINT64_MAX)
		snprintf(offer->notice, sizeof offer->notice, "there is no checkpoint of step %" PRIu64 " to resume at",
			 request->wanted_step);
}

/* ---- what differs ------------------------------------------------------------------------- */

struct difference {
	struct tpck_point point;
	enum identity_relation relation;
	char what[320];
	bool found;
};

static void weigh(struct agent *agent, const struct offer_request *request, const char *identity,
		  const struct tpck_point *point, struct difference *newest, size_t *programs)
{
	struct tpck_program *program;
	struct difference d = {.point = *point, .found = true};

	d.relation = identity_compare(request->identity, identity, d.what, sizeof d.what);
	if (d.relation == IDENTITY_SAME || d.relation == IDENTITY_APART)
		return;
	program = program_of(agent, identity, NULL);
	/* Of one that ended well nobody expects to go on. */
	if (!program || tpck_program_allows(program, point) != TPCK_ALLOWED)
		return;
	(*programs)++;
	if (d.relation == IDENTITY_OTHER && newest->found && newest->relation == IDENTITY_CHANGED)
		return;
	if (!newest->found || tpck_point_compare(point, &newest->point) > 0 ||
	    (d.relation == IDENTITY_CHANGED && newest->relation == IDENTITY_OTHER))
		*newest = d;
}

static void notice_difference(struct agent *agent, const struct offer_request *request,
			      const struct tpck_catalog *catalog, struct offer *offer)
{
	struct difference newest = {.found = false};
	size_t programs = 0;

	for (size_t i = 0; i < catalog->count; i++)
		if (catalog->manifests[i])
			for (size_t m = 0; m < catalog->manifests[i]->member_count; m++)
				weigh(agent, request, catalog->manifests[i]->members[m].identity,
				      &catalog->manifests[i]->point, &newest, &programs);
	for (size_t i = 0; i < request->memory_count; i++)
		weigh(agent, request, request->memory[i].identity, &request->memory[i].point, &newest, &programs);
	/* Another executable never was the one to go on: it needs no word. */
	if (newest.found && newest.relation == IDENTITY_CHANGED)
		snprintf(offer->notice, sizeof offer->notice, "not resuming: %s", newest.what);
}

/* ---- the whole ---------------------------------------------------------------------------- */

/* Checkpoints of one tier that are this program's. */
static void gather(const struct offer_request *request, const struct tpck_catalog *catalog, size_t tier,
		   struct choice *choices, size_t *count)
{
	for (size_t i = 0; i < catalog->count; i++) {
		const struct tpck_member *member =
			tpck_manifest_member(catalog->manifests[i], request->rank, request->ordinal);

		if (member && strcmp(member->identity, request->identity) == 0)
			choices[(*count)++] = (struct choice){catalog->manifests[i]->point, NULL, &catalog->manifests[i], tier};
	}
}

void offer_choose(struct agent *agent, const struct offer_request *request, struct offer *offer)
{
	struct tpck_catalog catalogs[TPCK_TIERS_MAX] = {{0}};
	struct choice *choices;
	size_t count = 0, room = request->memory_count + 1;

	memset(offer, 0, sizeof *offer);
	pthread_mutex_lock(&store_in_use);
	for (size_t t = request->store ? 0 : 1; t < agent->tiers.count; t++) {
		struct tpck_error err = {0};

		if (tpck_catalog_load(&catalogs[t], agent->tiers.tier[t], NULL, say_unreadable, agent->tiers.tier[t], &err))
			agent_complain(&err);
		room += catalogs[t].count;
	}
	choices = calloc(room, sizeof *choices);
	for (size_t i = 0; choices && i < request->memory_count; i++)
		if (!request->memory[i].identity_differs)
			choices[count++] = (struct choice){request->memory[i].point, &request->memory[i], NULL, 0};
	for (size_t t = 0; choices && t < agent->tiers.count; t++)
		gather(request, &catalogs[t], t, choices, &count);
	if (count)
		qsort(choices, count, sizeof *choices, newest_first);
	if (request->wanted_step == UINT64_MAX && tpck_program_loops(request->program) >= 2) {
		snprintf(offer->notice, sizeof offer->notice,
			 "not resuming: the program died again and again on the way to, or right after resuming at, two different steps; they are kept, and TRANSPCKPT_RESUME=STEP goes there all the same");
		tpck_log_warn("%s", offer->notice);
	} else {
		try_choices(agent, request, choices, count, offer);
	}
	for (size_t t = 0; t < agent->tiers.count; t++) {
		if (!offer->made && count == 0 && !offer->notice[0])
			notice_difference(agent, request, &catalogs[t], offer);
		tpck_catalog_free(&catalogs[t]);
	}
	free(choices);
	pthread_mutex_unlock(&store_in_use);
}
