/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing and staging an offer. */
#include "config.h"

#include "agent/session/offer.h"
#include "runtime/base/tier_settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/loop/trouble.h"
#include "agent/programs/identity_text.h"
#include "agent/programs/met_programs.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/store/quarantine.h"
#include "runtime/store/stage.h"

struct choice {
	struct tpck_point point;
	struct memory_candidate *memory; /* or */
	struct tpck_manifest **manifest; /* in the catalog of a tier; set to NULL when taken over */
	size_t tier;
};

/* What one rank may be given, newest first. */
struct choices {
	struct choice *at;
	size_t count;
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
	bool left = request->compares && candidate->compared;
	struct tpck_image image = {0};
	int rc = tpck_image_open(&image, candidate->image_path, false, err);

	if (!rc)
		rc = tpck_image_check(&image, candidate->image_path, err);
	if (!rc)
		rc = tpck_log_check(candidate->session_path, &candidate->cut, err);
	if (!rc && !left)
		rc = tpck_image_check_device(&image, candidate->image_path, err);
	if (!rc && !left)
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

static int stage_durable(const struct offer_request *request, const struct choice *choice,
			 struct offer *offer, struct tpck_error *err)
{
	struct tpck_tier *tier = home.tiers.tier[choice->tier];
	struct tpck_manifest **manifest = choice->manifest;
	const struct tpck_member *member = tpck_manifest_member(*manifest, request->rank, request->ordinal);
	struct tpck_session_name name = {(*manifest)->point.generation, request->rank, request->ordinal};
	int rc = tpck_stage_durable(tier, *manifest, member, request->session_path, err);
	char text[64], from[TPCK_PATH_MAX + 80];

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
	/* What this rank has in memory may be of later steps, which another rank does not have. */
	tpck_session_name_format(&name, text, sizeof text);
	snprintf(from, sizeof from, "%s/%s", home.folder, text);
	tpck_stage_behind(from, &member->cut, request->session_path);
	offer->cut = member->cut;
	return 0;
}

static void say_unreadable(void *context, const struct tpck_point *point, const struct tpck_error *err)
{
	struct tpck_tier *tier = context;

	/* An unknown format is another version's good checkpoint; a damaged manifest is nobody's. */
	if (err->code == EBADMSG)
		tpck_quarantine(tier, point, err->text, NULL);
	else
		trouble_complain(err);
}

static bool resumable(const struct choice *choice, const struct offer_request *request)
{
	return choice->memory ? choice->memory->resumable
			      : tpck_manifest_member(*choice->manifest, request->rank, request->ordinal)->resumable;
}

/* Whether this rank may be given this point; a line for the user where there is a reason against it. */
static bool may_be_given(const struct offer_request *request, const struct choice *choice, struct offer *offer)
{
	enum tpck_allowed allowed = tpck_program_allows(request->program, &choice->point);

	/* Who names a step has seen what happened there. */
	if (allowed == TPCK_ALLOWED_NOT_LOOP && request->wanted_step == UINT64_MAX) {
		snprintf(offer->notice, sizeof offer->notice,
			 "not resuming at step %" PRIu64 ": the program died again and again on the way there or within an iteration of it; TRANSPCKPT_RESUME=%" PRIu64 " goes there all the same",
			 choice->point.step, choice->point.step);
		tpck_log_warn("%s", offer->notice);
		return false;
	}
	if (allowed != TPCK_ALLOWED && allowed != TPCK_ALLOWED_NOT_LOOP)
		return false;
	if (!resumable(choice, request)) {
		snprintf(offer->notice, sizeof offer->notice, "step %" PRIu64 " cannot be resumed: %.128s",
			 choice->point.step,
			 choice->memory ? "its log is not whole"
					: tpck_manifest_member(*choice->manifest, request->rank, request->ordinal)->reason);
		return false;
	}
	return true;
}

static bool same_point(const struct tpck_point *a, const struct tpck_point *b)
{
	return tpck_point_compare(a, b) == 0;
}

/* Whether nothing that is known by now is against giving this point to all. */
static bool seems_good(const struct offer_request *requests, const struct choices *choices, size_t count, const struct tpck_point *point)
{
	for (size_t r = 0; r < count; r++) {
		enum tpck_allowed allowed = tpck_program_allows(requests[r].program, point);
		bool good = false;

		if (allowed != TPCK_ALLOWED && !(allowed == TPCK_ALLOWED_NOT_LOOP && requests[r].wanted_step != UINT64_MAX))
			return false;
		for (size_t i = 0; i < choices[r].count && !good; i++)
			good = same_point(&choices[r].at[i].point, point) && resumable(&choices[r].at[i], &requests[r]);
		if (!good)
			return false;
	}
	return true;
}

/* Stages this rank's share of a point, from the fastest place that has it whole. */
static bool stage_one(const struct offer_request *request, const struct choices *choices,
		      const struct tpck_point *point, struct offer *offer, struct choice **taken)
{
	for (size_t i = 0; i < choices->count; i++) {
		struct choice *choice = &choices->at[i];
		struct tpck_error err = {0};

		if (!same_point(&choice->point, point) || !may_be_given(request, choice, offer))
			continue;
		if (!(choice->memory ? stage_memory(request, choice->memory, offer, &err)
				     : stage_durable(request, choice, offer, &err))) {
			*taken = choice;
			return true;
		}
		snprintf(offer->notice, sizeof offer->notice, "step %" PRIu64 " cannot be resumed: %.400s", point->step, err.text);
		tpck_stage_clear(request->session_path);
	}
	return false;
}

static bool has_point(const struct choices *choices, const struct tpck_point *point)
{
	for (size_t i = 0; i < choices->count; i++)
		if (same_point(&choices->at[i].point, point))
			return true;
	return false;
}

/* All ranks, or none. */
static bool stage_all(const struct offer_request *requests, const struct choices *choices,
		      struct offer *offers, size_t count, const struct tpck_point *point, struct tpck_manifest **base)
{
	struct choice *taken = NULL, *first = NULL;
	uint64_t begun = tpck_clock_monotonic_ns();
	size_t done = 0;

	for (; done < count; done++) {
		if (!stage_one(&requests[done], &choices[done], point, &offers[done], &taken))
			break;
		if (done == 0)
			first = taken;
		offers[done].made = true;
		offers[done].point = *point;
		offers[done].from = taken->memory ? "memory" : home.tiers.name[taken->tier];
	}
	if (done < count) {
		char why[481];

		snprintf(why, sizeof why, "%.480s", offers[done].notice);
		for (size_t i = 0; i < count; i++) {
			offers[i].made = false;
			if (i < done)
				tpck_stage_clear(requests[i].session_path);
			if (i != done && why[0])
				snprintf(offers[i].notice, sizeof offers[i].notice, "rank %u: %s", requests[done].rank, why);
		}
		return false;
	}
	tpck_log_info("offering step %" PRIu64 " of generation %" PRIu64 " from %s", point->step, point->generation,
		      offers[0].from);
	tpck_log_debug("step %" PRIu64 " of generation %" PRIu64 " was staged in %.3f s", point->step, point->generation,
		       (double)(tpck_clock_monotonic_ns() - begun) / 1e9);
	/* What is published next refers to what the first tier has. */
	if (!first->memory && first->tier == 0) {
		*base = *first->manifest;
		*first->manifest = NULL;
	}
	return true;
}

/* Goes through the points of the first rank, newest first, until one is staged for all. */
static void try_choices(const struct offer_request *requests, const struct choices *choices,
			struct offer *offers, size_t count, struct own_start *own, struct tpck_manifest **base)
{
	uint64_t wanted = requests[0].wanted_step;
	const struct tpck_point *last = NULL;
	bool wanted_seen = false;

	for (size_t i = 0; i < choices[0].count; i++) {
		const struct tpck_point *point = &choices[0].at[i].point;
		bool all = true;

		if ((last && same_point(last, point)) || (wanted != UINT64_MAX && point->step != wanted))
			continue;
		if (requests[0].only.generation && !same_point(point, &requests[0].only))
			continue;
		last = point;
		for (size_t r = 1; r < count; r++)
			all = all && has_point(&choices[r], point);
		if (!all)
			continue;
		wanted_seen = true;
		if (own && seems_good(requests, choices, count, point) && own_start_is_chosen(own, point))
			return;
		if (stage_all(requests, choices, offers, count, point, base))
			return;
	}
	for (size_t r = 0; r < count && !wanted_seen && wanted != UINT64_MAX; r++)
		snprintf(offers[r].notice, sizeof offers[r].notice, "there is no checkpoint of step %" PRIu64 " to resume at", wanted);
}

/* ---- what differs ------------------------------------------------------------------------- */

struct difference {
	struct tpck_point point;
	enum identity_relation relation;
	char what[320];
	bool found;
};

static void weigh(const struct offer_request *request, const char *identity,
		  const struct tpck_point *point, struct difference *newest, size_t *programs)
{
	struct tpck_program *program;
	struct difference d = {.point = *point, .found = true};

	d.relation = identity_compare(request->identity, identity, d.what, sizeof d.what);
	if (d.relation == IDENTITY_SAME || d.relation == IDENTITY_APART)
		return;
	program = program_of(identity, NULL);
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

static void notice_difference(const struct offer_request *request, struct tpck_tier *tier,
			      const struct tpck_catalog *catalog, struct offer *offer)
{
	struct difference newest = {.found = false};
	size_t programs = 0;

	/* Of several nodes' checkpoints this rank's part tells. */
	for (size_t i = 0; i < catalog->count; i++)
		if (catalog->manifests[i] && tpck_manifest_need(catalog->manifests[i], tier, request->rank, NULL) == 0)
			for (size_t m = 0; m < catalog->manifests[i]->member_count; m++)
				weigh(request, catalog->manifests[i]->members[m].identity,
				      &catalog->manifests[i]->point, &newest, &programs);
	for (size_t i = 0; i < request->memory_count; i++)
		weigh(request, request->memory[i].identity, &request->memory[i].point, &newest, &programs);
	if (request->other_identity)
		weigh(request, request->other_identity, &request->other_point, &newest, &programs);
	/* Another executable never was the one to go on: it needs no word. */
	if (newest.found && newest.relation == IDENTITY_CHANGED)
		snprintf(offer->notice, sizeof offer->notice, "not resuming: %s", newest.what);
}

/* ---- the whole ---------------------------------------------------------------------------- */

/* Whether the checkpoint has what the rank asks for. Of several nodes' only the rank's part is read. */
static bool has_request(struct tpck_manifest *manifest, struct tpck_tier *tier, const struct offer_request *request)
{
	struct tpck_error err = {0};

	if (!tpck_manifest_is_of(manifest, request->rank, request->ordinal, request->identity))
		return false;
	if (tpck_manifest_need(manifest, tier, request->rank, &err)) {
		if (err.code != ENOENT)
			say_unreadable(tier, &manifest->point, &err);
		return false;
	}
	return tpck_manifest_is_of(manifest, request->rank, request->ordinal, request->identity);
}

/* Checkpoints of one tier that are this program's. */
static void gather(const struct offer_request *request, const struct tpck_catalog *catalog, size_t tier,
		   struct choice *choices, size_t *count)
{
	for (size_t i = 0; i < catalog->count; i++)
		if (has_request(catalog->manifests[i], home.tiers.tier[tier], request))
			choices[(*count)++] = (struct choice){catalog->manifests[i]->point, NULL, &catalog->manifests[i], tier};
}

static void gather_all(const struct offer_request *request, struct tpck_catalog *catalogs,
		       struct choices *choices)
{
	size_t room = request->memory_count + 1;

	for (size_t t = 0; t < home.tiers.count; t++)
		room += catalogs[t].count;
	choices->at = calloc(room, sizeof *choices->at);
	for (size_t i = 0; choices->at && i < request->memory_count; i++)
		if (!request->memory[i].identity_differs && !request->memory[i].bad)
			choices->at[choices->count++] = (struct choice){request->memory[i].point, &request->memory[i], NULL, 0};
	for (size_t t = 0; choices->at && t < home.tiers.count; t++)
		gather(request, &catalogs[t], t, choices->at, &choices->count);
	if (choices->count)
		qsort(choices->at, choices->count, sizeof *choices->at, newest_first);
}

static bool given_up(const struct offer_request *request, struct offer *offer)
{
	if (request->wanted_step != UINT64_MAX || tpck_program_loops(request->program) < 2)
		return false;
	snprintf(offer->notice, sizeof offer->notice,
		 "not resuming: the program died again and again on the way to, or right after resuming at, two different steps; they are kept, and TRANSPCKPT_RESUME=STEP goes there all the same");
	tpck_log_warn("%s", offer->notice);
	return true;
}

void offer_choose(bool store, const struct offer_request *requests, struct offer *offers, size_t count,
		  struct own_start *own, struct tpck_manifest **base)
{
	struct tpck_catalog catalogs[TPCK_TIERS_MAX] = {{0}};
	struct choices *choices = calloc(count, sizeof *choices);
	bool loops = false;

	*base = NULL;
	memset(offers, 0, count * sizeof *offers);
	if (!choices)
		return;
	for (size_t t = home.tiers.count, first = store ? 0 : 1; t-- > first;) {
		struct tpck_error err = {0};

		home_enter(t);
		if (tpck_catalog_load(&catalogs[t], home.tiers.tier[t], NULL, say_unreadable, home.tiers.tier[t], &err))
			trouble_complain(&err);
	}
	for (size_t r = 0; r < count; r++) {
		gather_all(&requests[r], catalogs, &choices[r]);
		offers[r].any = choices[r].count > 0;
		loops = given_up(&requests[r], &offers[r]) || loops;
	}
	if (!loops)
		try_choices(requests, choices, offers, count, own, base);
	for (size_t t = 0; t < home.tiers.count; t++) {
		for (size_t r = 0; r < count; r++)
			if (!offers[r].made && choices[r].count == 0 && !offers[r].notice[0])
				notice_difference(&requests[r], home.tiers.tier[t], &catalogs[t], &offers[r]);
		tpck_catalog_free(&catalogs[t]);
		if (t > 0 || store)
			home_leave(t);
	}
	for (size_t r = 0; r < count; r++) {
		if (!offers[r].made && requests[r].lost.generation && !offers[r].notice[0])
			snprintf(offers[r].notice, sizeof offers[r].notice,
				 "not resuming at step %" PRIu64 ": no copy of it on other nodes can be had: %s", requests[r].lost.step,
				 requests[r].lost_why);
		free(choices[r].at);
	}
	free(choices);
}

void offer_tell(bool store, const struct offer_request *request, struct offer *offer)
{
	for (size_t t = store ? 0 : 1; t < home.tiers.count && !offer->notice[0]; t++) {
		struct tpck_catalog catalog = {0};

		home_enter(t);
		(void)tpck_catalog_load(&catalog, home.tiers.tier[t], NULL, NULL, NULL, NULL);
		notice_difference(request, home.tiers.tier[t], &catalog, offer);
		tpck_catalog_free(&catalog);
		home_leave(t);
	}
}
