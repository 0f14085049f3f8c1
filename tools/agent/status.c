/* SPDX-License-Identifier: Apache-2.0 */
/* QUERY: what the agent is at, as JSON. */
#include "config.h"

#include <json-c/json.h>
#include <string.h>

#include "agent/copies/copies.h"
#include "agent/durable/flush.h"
#include "agent/peers/peers.h"
#include "agent/session/events.h"
#include "agent/session/sessions.h"
#include "agent/session/watermark.h"
#include "agent/spares/spares.h"
#include "tools/agent/status.h"

void status_answer(struct agent *agent, struct client *client)
{
	static const char *const lives[] = {"running", "settling", "dead", "gone"};
	json_object *json = json_object_new_object(), *sessions = json_object_new_array();
	const char *text;

	json_object_object_add(json, "job", json_object_new_string(home.job));
	json_object_object_add(json, "store", json_object_new_string(home.tier->root));
	json_object_object_add(json, "memory", json_object_new_string(home.folder));
	json_object_object_add(json, "complaint", json_object_new_string(flush_complaint()));
	json_object_object_add(json, "memory_limit", json_object_new_uint64(home.settings.memory));
	history_answer(json);
	for (const struct live *live = agent->lives; live; live = live->next) {
		json_object *row = json_object_new_object();

		json_object_object_add(row, "generation", json_object_new_uint64(live->session->name.generation));
		json_object_object_add(row, "rank", json_object_new_int64(live->session->name.rank));
		json_object_object_add(row, "ordinal", json_object_new_int64(live->session->name.ordinal));
		json_object_object_add(row, "pid", json_object_new_int(live->pid));
		json_object_object_add(row, "state", json_object_new_string(lives[live->life]));
		json_object_object_add(row, "images", json_object_new_int64(live->image_count));
		if (live->newest >= 0)
			json_object_object_add(row, "committed_step", json_object_new_uint64(live->newest_step));
		if (live->launch->durable_any)
			json_object_object_add(row, "durable_step", json_object_new_uint64(live->launch->durable_step));
		watermark_status(live->launch, row);
		json_object_object_add(row, "flushing", json_object_new_boolean(live->launch->flushing));
		json_object_array_add(sessions, row);
	}
	json_object_object_add(json, "sessions", sessions);
	peers_status(json);
	copies_status(json);
	spares_status(json);
	text = json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN);
	client_send(client, TPCK_MSG_ANSWER, text, strlen(text) + 1);
	json_object_put(json);
}
