/* SPDX-License-Identifier: Apache-2.0 */
/* The interval of durable checkpoints: asked for, or from the history; in numbers and in words. */
#include "config.h"

#include "runtime/base/tier_settings.h"
#include "tools/cli/cadence.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <string.h>

#include "runtime/policy/interval.h"
#include "runtime/store/runs.h"
#include "tools/cli/top.h"

struct known {
	const char *setting;
	double count;
	struct tpck_interval_history history[TPCK_TIERS_MAX];
};

static double real(struct json_object *json, const char *key)
{
	struct json_object *found;

	return json_object_object_get_ex(json, key, &found) ? json_object_get_double(found) : 0;
}

static const char *unit_name(const char *name)
{
	return strcmp(name, "seconds") == 0 ? "seconds" : strcmp(name, "iterations") == 0 ? "iterations" : "auto";
}

/* What the agent goes by: it keeps the settings that it was started with. */
static bool from_agent(const char *memory_job, const struct tpck_tiers *tiers, struct known *known)
{
	struct json_object *answer = cli_query(memory_job), *list = NULL, *unit = NULL;
	bool good = answer && json_object_object_get_ex(answer, "intervals", &list) && json_object_is_type(list, json_type_array) &&
		    json_object_array_length(list) == tiers->count && json_object_object_get_ex(answer, "durable_interval", &unit);

	for (size_t i = 0; good && i < tiers->count; i++) {
		struct json_object *one = json_object_array_get_idx(list, i);

		known->history[i] = (struct tpck_interval_history){
			real(one, "cost_sec"), real(one, "observed_sec"), (uint64_t)real(one, "failures")};
	}
	if (good) {
		known->setting = unit_name(json_object_get_string(unit));
		known->count = real(answer, "durable_count");
	}
	json_object_put(answer);
	return good;
}

static void from_history(const struct cli *cli, const char *memory_job, const struct tpck_tiers *tiers, struct known *known)
{
	const struct tpck_interval *set = &cli->settings.durable_interval;
	struct tpck_history history;
	struct tpck_runs runs;

	known->setting = set->unit == TPCK_INTERVAL_SECONDS ? "seconds" : set->unit == TPCK_INTERVAL_ITERATIONS ? "iterations" : "auto";
	known->count = set->count;
	(void)tpck_history_load(&history, memory_job, tiers, NULL);
	if (tpck_runs_of(&runs, &history) == 0) {
		for (size_t i = 0; i < tiers->count; i++)
			tpck_runs_rate(&runs, (int)i + 1, &known->history[i]);
		tpck_runs_free(&runs);
	}
	for (size_t e = 0; e < history.count; e++) {
		const struct tpck_event *event = &history.events[e];

		for (size_t i = 0; i < tiers->count; i++)
			if (tpck_event_is(event, i ? "copied" : "durable") && strcmp(tpck_event_text(event, "tier"), tiers->name[i]) == 0)
				known->history[i].cost_sec = tpck_event_real(event, "took_sec") + tpck_event_real(event, "write_sec") +
							     tpck_event_real(event, "verify_sec");
	}
	tpck_history_free(&history);
}

struct json_object *interval_json(const struct cli *cli, const char *job, const struct tpck_tiers *tiers)
{
	struct json_object *list = json_object_new_array();
	char memory_job[TPCK_PATH_MAX];
	struct known known = {0};

	if (tpck_path_join(memory_job, sizeof memory_job, cli->shm, job))
		return list;
	if (!from_agent(memory_job, tiers, &known))
		from_history(cli, memory_job, tiers, &known);
	for (size_t i = 0; i < tiers->count; i++) {
		struct json_object *one = json_object_new_object();
		struct tpck_interval_terms terms;
		bool set = strcmp(known.setting, "auto") != 0;

		tpck_interval_terms(&known.history[i], &terms);
		json_object_object_add(one, "tier", json_object_new_string(tiers->name[i]));
		json_object_object_add(one, "setting", json_object_new_string(known.setting));
		if (set)
			json_object_object_add(one, "count", json_object_new_double(known.count));
		json_object_object_add(one, "cost_sec", json_object_new_double(known.history[i].cost_sec));
		json_object_object_add(one, "failures", json_object_new_uint64(known.history[i].failures));
		json_object_object_add(one, "observed_sec", json_object_new_double(known.history[i].observed_sec));
		json_object_object_add(one, "prior_sec", json_object_new_double(TPCK_INTERVAL_PRIOR_SEC));
		json_object_object_add(one, "mean_sec", json_object_new_double(terms.mean));
		json_object_object_add(one, "formula_sec", json_object_new_double(terms.formula));
		json_object_object_add(one, "bound_sec", json_object_new_double(terms.bound));
		if (strcmp(known.setting, "iterations") != 0)
			json_object_object_add(one, "interval_sec", json_object_new_double(set ? known.count : terms.interval));
		json_object_array_add(list, one);
	}
	return list;
}

/* ---- in words ------------------------------------------------------------------------------- */

static const char *text_of(struct json_object *json, const char *key)
{
	struct json_object *found;

	return json_object_object_get_ex(json, key, &found) ? json_object_get_string(found) : "";
}

static void print_auto(struct json_object *one, size_t tier, const char *faster)
{
	double cost = real(one, "cost_sec"), failures = real(one, "failures");

	if (cost <= 0) {
		printf("as soon as there is a snapshot; what that costs is measured then\n");
		return;
	}
	printf("every %s\n", cli_span(real(one, "interval_sec")));
	if (real(one, "bound_sec") < real(one, "formula_sec"))
		printf("    = sqrt(2 x %.3f s x %s) by Young and Daly:", cost, cli_span(real(one, "mean_sec")));
	else
		printf("    = %s, more often than sqrt(2 x %.3f s x %s) = %s by Young and Daly would be too costly:",
		       real(one, "bound_sec") > TPCK_INTERVAL_LEAST_SEC ? "ten times what it costs" : "the least there is", cost,
		       cli_span(real(one, "mean_sec")), cli_span(real(one, "formula_sec")));
	printf(" the last write took %.3f s; ", cost);
	if (tier == 0)
		printf("what memory kept was lost");
	else
		printf("'%s' was lost with memory", faster);
	printf(" %.0f time%s in %s, and once in %s is assumed beside that\n", failures, failures == 1 ? "" : "s", cli_span(real(one, "observed_sec")),
	       cli_span(real(one, "prior_sec")));
}

void interval_print(struct json_object *intervals)
{
	const char *faster = "";

	for (size_t i = 0; i < json_object_array_length(intervals); i++) {
		struct json_object *one = json_object_array_get_idx(intervals, i);
		const char *setting = text_of(one, "setting");

		printf("  %s to '%s': ", i ? "copied" : "written", text_of(one, "tier"));
		if (strcmp(setting, "seconds") == 0)
			printf("every %s, as TRANSPCKPT_DURABLE_INTERVAL says\n", cli_span(real(one, "count")));
		else if (strcmp(setting, "iterations") == 0)
			printf("%s %.0f iteration%s, as TRANSPCKPT_DURABLE_INTERVAL says\n", i ? "what the first tier gets, every" : "every",
			       real(one, "count"), real(one, "count") == 1 ? "" : "s");
		else
			print_auto(one, i, faster);
		faster = i ? faster : text_of(one, "tier");
	}
}
