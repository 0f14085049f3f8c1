/* SPDX-License-Identifier: Apache-2.0 */
/* show: where copies of snapshots are on other nodes, and which steps in every tier, as the job's agent says. */
#include "config.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/wire/message.h"
#include "runtime/reach/reach.h"
#include "runtime/wire/segment.h"
#include "tools/cli/cli.h"

enum { ANSWER_MS = 2000 };

/* What the agent answers to QUERY, or NULL: there is none, or it does not answer. */
static json_object *ask_agent(const struct cli *cli, const char *job)
{
	struct tpck_message head = {.magic = TPCK_MESSAGE_MAGIC, .version = TPCK_WIRE_VERSION, .type = TPCK_MSG_QUERY};
	char path[2 * TPCK_PATH_MAX], *packet = malloc(TPCK_MESSAGE_BYTES_MAX + 1);
	struct pollfd wait = {.events = POLLIN};
	json_object *answer = NULL;
	ssize_t got = -1;

	snprintf(path, sizeof path, "%s/%.250s/agent.sock", cli->shm, job);
	wait.fd = packet ? tpck_reach_connect(path) : -1;
	if (wait.fd >= 0 && send(wait.fd, &head, sizeof head, MSG_NOSIGNAL) == sizeof head && poll(&wait, 1, ANSWER_MS) == 1)
		got = recv(wait.fd, packet, TPCK_MESSAGE_BYTES_MAX, 0);
	if (wait.fd >= 0)
		close(wait.fd);
	if (got > (ssize_t)sizeof head) {
		packet[got] = '\0';
		answer = json_tokener_parse(packet + sizeof head);
	}
	free(packet);
	return answer;
}

static const char *text_of(json_object *row, const char *key)
{
	json_object *value;

	return json_object_object_get_ex(row, key, &value) ? json_object_get_string(value) : "";
}

static void print_list(json_object *answer, const char *key, const char *before, const char *between, const char *who)
{
	json_object *list;

	if (!json_object_object_get_ex(answer, key, &list))
		return;
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		json_object *row = json_object_array_get_idx(list, i);
		const char *ranks = text_of(row, "ranks"), *code = text_of(row, "code");

		if (code[0])
			printf("  %sfragment %s of %s of step %s (generation %s, %s %s) %s %s\n", strncmp(before, "holds", 5) == 0 ? "holds " : "",
			       text_of(row, "fragment"), code, text_of(row, "step"), text_of(row, "generation"),
			       strtoul(ranks, NULL, 10) > 1 ? ranks : "rank", strtoul(ranks, NULL, 10) > 1 ? "ranks" : text_of(row, "rank"), between,
			       text_of(row, who));
		else if (strtoul(ranks, NULL, 10) > 1)
			printf("  %s of step %s (generation %s, %s ranks) %s %s\n", before, text_of(row, "step"),
			       text_of(row, "generation"), ranks, between, text_of(row, who));
		else
			printf("  %s of step %s (generation %s, rank %s) %s %s\n", before, text_of(row, "step"),
			       text_of(row, "generation"), text_of(row, "rank"), between, text_of(row, who));
	}
}

/* Files of the program's own that other nodes owe to their paths. */
static void print_files(json_object *answer)
{
	json_object *list;

	if (!json_object_object_get_ex(answer, "files_here", &list))
		return;
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		json_object *row = json_object_array_get_idx(list, i), *there;

		if (strtoull(text_of(row, "files"), NULL, 10) == 0)
			continue;
		printf("  holds %s files, %s, that %s has not put at their paths%s\n", text_of(row, "files"),
		       cli_bytes(strtoull(text_of(row, "bytes"), NULL, 10)), text_of(row, "owner"),
		       json_object_object_get_ex(row, "there", &there) && json_object_get_boolean(there) ? "" : ", which is gone");
	}
}

static void print_spares(json_object *answer)
{
	json_object *list, *there;

	if (!json_object_object_get_ex(answer, "spares", &list))
		return;
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		json_object *row = json_object_array_get_idx(list, i);

		printf("  %s is a spare node for %s ranks%s\n", text_of(row, "host"), text_of(row, "ranks"),
		       json_object_object_get_ex(row, "there", &there) && json_object_get_boolean(there) ? "" : ", and is gone");
	}
}

/* What was sent, and how long that was held back. */
static void print_replication(json_object *answer)
{
	json_object *row;
	double seconds, limited;
	uint64_t rate;

	if (!json_object_object_get_ex(answer, "replication", &row) || !strtoull(text_of(row, "copies"), NULL, 10))
		return;
	rate = strtoull(text_of(row, "bandwidth"), NULL, 10);
	seconds = strtod(text_of(row, "seconds"), NULL);
	limited = strtod(text_of(row, "limited_seconds"), NULL);
	printf("  %s copies sent, %s in %.1f s", text_of(row, "copies"), cli_bytes(strtoull(text_of(row, "bytes"), NULL, 10)), seconds);
	if (strtod(text_of(row, "paced_seconds"), NULL) > 0)
		printf(", %.1f s of them between pieces of a copy that was spread", strtod(text_of(row, "paced_seconds"), NULL));
	if (strtod(text_of(row, "yielded_seconds"), NULL) > 0)
		printf(", %.1f s while others used the network", strtod(text_of(row, "yielded_seconds"), NULL));
	if (rate)
		printf("; held back for %.1f s by the ceiling of %s/s", limited, cli_bytes(rate));
	printf("\n");
}

/* The newest step of each start that is in every tier, where there are several. */
static void print_watermarks(json_object *answer)
{
	json_object *list, *tiers;
	uint64_t last = 0;

	if (!json_object_object_get_ex(answer, "sessions", &list))
		return;
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		json_object *row = json_object_array_get_idx(list, i);
		uint64_t generation = strtoull(text_of(row, "generation"), NULL, 10);

		/* Ranks of one have the same. */
		if (generation == last || !json_object_object_get_ex(row, "in_tiers", &tiers))
			continue;
		last = generation;
		if (text_of(row, "watermark")[0])
			printf("  generation %" PRIu64 ": step %s is in every tier", generation, text_of(row, "watermark"));
		else
			printf("  generation %" PRIu64 ": no step is in every tier", generation);
		if (text_of(row, "behind")[0])
			printf("; %s is behind", text_of(row, "behind"));
		json_object_object_foreach(tiers, name, step)
			printf("; %s has %s", name, json_object_get_string(step));
		printf("\n");
	}
}

void cli_show_copies(const struct cli *cli, const char *job)
{
	json_object *answer = ask_agent(cli, job);

	if (!answer)
		return;
	print_watermarks(answer);
	print_list(answer, "copies_elsewhere", "copy", "on", "host");
	print_list(answer, "copies_here", "holds a copy", "for", "owner");
	print_files(answer);
	print_replication(answer);
	print_spares(answer);
	json_object_put(answer);
}

static void add_watermark(json_object *answer, uint64_t generation, json_object *to)
{
	static const char *const keys[] = {"watermark", "behind", "in_tiers"};
	json_object *list, *value;

	for (size_t i = 0; json_object_object_get_ex(answer, "sessions", &list) && i < json_object_array_length(list); i++) {
		json_object *row = json_object_array_get_idx(list, i);

		if (strtoull(text_of(row, "generation"), NULL, 10) != generation)
			continue;
		for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
			if (json_object_object_get_ex(row, keys[k], &value))
				json_object_object_add(to, keys[k], json_object_get(value));
		return;
	}
}

void cli_copies_json(const struct cli *cli, const char *job, uint64_t generation, json_object *to)
{
	json_object *answer = ask_agent(cli, job), *list, *found = json_object_new_array();

	if (answer && json_object_object_get_ex(answer, "copies_elsewhere", &list))
		for (size_t i = 0; i < json_object_array_length(list); i++) {
			json_object *row = json_object_array_get_idx(list, i);

			if (strtoull(text_of(row, "generation"), NULL, 10) == generation)
				json_object_array_add(found, json_object_get(row));
		}
	json_object_object_add(to, "copies", found);
	if (answer)
		add_watermark(answer, generation, to);
	if (answer && json_object_object_get_ex(answer, "replication", &list))
		json_object_object_add(to, "replication", json_object_get(list));
	json_object_put(answer);
}
