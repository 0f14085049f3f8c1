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
	struct tpck_manifest **manifest; /* in the catalog; set to NULL when taken over */
};

static int newest_first(const void *a, const void *b)
{
	const struct choice *x = a, *y = b;
	int order = tpck_point_compare(&y->point, &x->point);

	/* The same one in memory and on disk: memory first. */
	return order ? order : (x->memory ? 0 : 1) - (y->memory ? 0 : 1);
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

static int stage_durable(struct agent *agent, const struct offer_request *request, struct tpck_manifest **manifest,
			 struct offer *offer, struct tpck_error *err)
{
	const struct tpck_member *member = tpck_manifest_member(*manifest, request->rank, request->ordinal);
	int rc = tpck_stage_durable(agent->tier, *manifest, member, request->session_path, err);

	if (rc == -EBADMSG || rc == -ENOENT) {
		struct tpck_error aside = {0};

		if (tpck_quarantine(agent->tier, &(*manifest)->point, err->text, &aside))
			tpck_log_warn("%s", aside.text);
		return rc;
	}
	if (rc) {
		tpck_log_warn("checkpoint of step %" PRIu64 " (generation %" PRIu64 ") cannot be loaded: %s",
			      (*manifest)->point.step, (*manifest)->point.generation, err->text);
		return rc;
	}
	offer->cut = member->cut;
	offer->base = *manifest;
	*manifest = NULL;
	return 0;
}

static void say_unreadable(void *context, const struct tpck_point *point, const struct tpck_error *err)
{
	struct agent *agent = context;

	/* An unknown format is another version's good checkpoint; a damaged manifest is nobody's. */
	if (err->code == EBADMSG)
		tpck_quarantine(agent->tier, point, err->text, NULL);
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
				   : stage_durable(agent, request, choice->manifest, offer, &err)) {
			snprintf(offer->notice, sizeof offer->notice, "step %" PRIu64 " cannot be resumed: %.400s",
				 choice->point.step, err.text);
			tpck_stage_clear(request->session_path);
			continue;
		}
		offer->made = true;
		offer->point = choice->point;
		tpck_log_info("offering step %" PRIu64 " of generation %" PRIu64 " from %s", choice->point.step,
			      choice->point.generation, choice->memory ? "memory" : "the store");
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

void offer_choose(struct agent *agent, const struct offer_request *request, struct offer *offer)
{
	struct tpck_catalog catalog;
	struct tpck_error err = {0};
	struct choice *choices;
	size_t count = 0, same = 0;

	memset(offer, 0, sizeof *offer);
	pthread_mutex_lock(&store_in_use);
	if (!request->store)
		memset(&catalog, 0, sizeof catalog);
	else if (tpck_catalog_load(&catalog, agent->tier, NULL, say_unreadable, agent, &err))
		agent_complain(&err);
	choices = calloc(request->memory_count + catalog.count + 1, sizeof *choices);
	for (size_t i = 0; choices && i < request->memory_count; i++)
		if (!request->memory[i].identity_differs)
			choices[count++] = (struct choice){request->memory[i].point, &request->memory[i], NULL};
	for (size_t i = 0; choices && i < catalog.count; i++) {
		const struct tpck_member *member =
			tpck_manifest_member(catalog.manifests[i], request->rank, request->ordinal);

		if (member && strcmp(member->identity, request->identity) == 0)
			choices[count++] = (struct choice){catalog.manifests[i]->point, NULL, &catalog.manifests[i]};
	}
	same = count;
	if (count)
		qsort(choices, count, sizeof *choices, newest_first);
	if (request->wanted_step == UINT64_MAX && tpck_program_loops(request->program) >= 2) {
		snprintf(offer->notice, sizeof offer->notice,
			 "not resuming: the program died again and again on the way to, or right after resuming at, two different steps; they are kept, and TRANSPCKPT_RESUME=STEP goes there all the same");
		tpck_log_warn("%s", offer->notice);
	} else {
		try_choices(agent, request, choices, count, offer);
	}
	if (!offer->made && same == 0 && !offer->notice[0])
		notice_difference(agent, request, &catalog, offer);
	free(choices);
	tpck_catalog_free(&catalog);
	pthread_mutex_unlock(&store_in_use);
}
