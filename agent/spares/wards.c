/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks were started: those of this node, told to spare nodes; and those of others, for when they are to be started here. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/loop/trouble.h"
#include "agent/spares/spares_private.h"
#include "agent/twins/twin_sets.h"
#include "runtime/base/log.h"
#include "runtime/store/file.h"
#include "runtime/wire/command.h"

/* A rank of this node's that a spare node knows of. */
struct told {
	char node[TPCK_PEER_NAME];
	uint64_t generation;
	uint32_t rank;
	bool ended;
	struct told *next;
};
static struct told *tolds;

/* A rank of another node's. */
struct ward {
	char host[TPCK_PEER_NAME];
	uint64_t generation;
	uint32_t rank, world;
	char *text;
	size_t size;
	struct ward *next;
};
static struct ward *wards;

/* ---- of this node --------------------------------------------------------------------------------- */

static struct told *told_of(const char *node, uint64_t generation, uint32_t rank)
{
	struct told *told = tolds;

	while (told && (strcmp(told->node, node) != 0 || told->generation != generation || told->rank != rank))
		told = told->next;
	return told;
}

/* Values of an environment are for nobody between the nodes, whatever may become of snapshots. */
static bool is_sealed(void)
{
	static bool said;

	if (strcmp(home.settings.peer_security, "encrypt") == 0)
		return true;
	if (!said)
		tpck_log_warn("spare nodes are not told how ranks were started here: TRANSPCKPT_PEER_SECURITY is %.20s, and the environment would be sent in clear",
			      home.settings.peer_security);
	said = true;
	return false;
}

static void tell(const struct host *host, uint64_t generation, uint32_t world, uint32_t rank, pid_t supervisor)
{
	struct tpck_accord_message message = spares_message(TPCK_ACCORD_COMMAND);
	struct told *told = calloc(1, sizeof *told);
	struct tpck_error err = {0};
	char *text;
	size_t size;

	if (!told)
		return;
	snprintf(told->node, sizeof told->node, "%s", host->node);
	told->generation = generation;
	told->rank = rank;
	told->next = tolds;
	tolds = told;
	message.generation = generation;
	message.world = world;
	message.rank = rank;
	if (tpck_command_read(supervisor, &text, &size, &err)) {
		tpck_log_warn("rank %u is none that a spare node could start: %s", rank, err.text);
		return;
	}
	peers_talk(host->node, &message, text, size);
	free(text);
}

static void tell_end(struct told *told, const struct host *host)
{
	struct tpck_accord_message message = spares_message(TPCK_ACCORD_COMMAND);

	told->ended = true;
	message.generation = told->generation;
	message.rank = told->rank;
	message.value = 1;
	peers_talk(host->node, &message, NULL, 0);
}

/* Nobody may start a rank elsewhere that would not end here before. */
static void look_at_seat(void *context, uint64_t generation, const struct tpck_twin_set *set, uint32_t rank)
{
	const struct tpck_twin_seat *seat = &set->seat[rank];
	bool leased = atomic_load(&set->lease_ns) != 0;
	pid_t supervisor = atomic_load(&seat->supervisor);
	bool ended = atomic_load(&seat->ended);

	(void)context;
	if (supervisor <= 0 && !ended)
		return;
	for (const struct host *host = spares.hosts; host; host = host->next) {
		struct told *told = host->spare && host->there ? told_of(host->node, generation, rank) : NULL;

		if (told && ended && !told->ended)
			tell_end(told, host);
		else if (host->spare && host->there && !told && !ended && leased && is_sealed())
			tell(host, generation, set->world, rank, supervisor);
	}
}

/* A spare node's agent that is gone knows nothing any more. */
static void forget_gone(void)
{
	for (struct told **place = &tolds; *place;) {
		struct told *told = *place;
		bool known = false;

		for (const struct host *host = spares.hosts; host; host = host->next)
			known = known || (host->spare && host->there && strcmp(host->node, told->node) == 0);
		if (known) {
			place = &told->next;
			continue;
		}
		*place = told->next;
		free(told);
	}
}

void wards_tell(void)
{
	forget_gone();
	twins_each_seat(look_at_seat, NULL);
}

/* ---- of others ------------------------------------------------------------------------------------ */

static void ward_free(struct ward *ward)
{
	for (struct ward **place = &wards; *place; place = &(*place)->next)
		if (*place == ward) {
			*place = ward->next;
			break;
		}
	free(ward->text);
	free(ward);
}

static struct ward *ward_of(const char *host, uint32_t rank)
{
	struct ward *ward = wards;

	while (ward && (ward->rank != rank || strcmp(ward->host, host) != 0))
		ward = ward->next;
	return ward;
}

/* A rank is in one place, by the newest generation; of one that is started again its node may know before another has forgotten it. */
static void forget_older(uint32_t rank, uint64_t generation)
{
	for (struct ward *ward = wards, *next; ward; ward = next) {
		next = ward->next;
		if (ward->rank == rank && ward->generation <= generation)
			ward_free(ward);
	}
}

void wards_note(const char *host, const struct tpck_accord_message *message, const char *text, size_t size)
{
	struct ward *ward = ward_of(host, message->rank);
	struct tpck_command command;

	if (message->value) {
		if (ward && ward->generation <= message->generation)
			ward_free(ward);
		return;
	}
	if (!spares.spare || size > TPCK_COMMAND_MAX)
		return;
	for (ward = wards; ward; ward = ward->next)
		if (ward->rank == message->rank && ward->generation > message->generation)
			return;
	ward = calloc(1, sizeof *ward);
	if (ward)
		ward->text = malloc(size + 1);
	if (!ward || !ward->text) {
		free(ward);
		return;
	}
	memcpy(ward->text, text, size);
	ward->size = size;
	/* What cannot be started is not kept. */
	if (tpck_command_parse(ward->text, size, &command)) {
		tpck_log_warn("how rank %u was started on %s is not told in a way that is understood here", message->rank, host);
		free(ward->text);
		free(ward);
		return;
	}
	tpck_command_free(&command);
	snprintf(ward->host, sizeof ward->host, "%s", host);
	ward->generation = message->generation;
	ward->rank = message->rank;
	ward->world = message->world;
	forget_older(message->rank, message->generation);
	ward->next = wards;
	wards = ward;
	tpck_log_debug("rank %u of generation %" PRIu64 " could be started here in place of %s", ward->rank, ward->generation, host);
}

size_t wards_count(const char *host, uint64_t *generation)
{
	size_t count = 0;

	*generation = 0;
	for (const struct ward *ward = wards; ward; ward = ward->next)
		if (strcmp(ward->host, host) == 0) {
			count++;
			if (ward->generation > *generation)
				*generation = ward->generation;
		}
	return count;
}

void wards_move(const char *from, const char *to)
{
	for (struct ward *ward = wards; ward; ward = ward->next)
		if (strcmp(ward->host, from) == 0)
			snprintf(ward->host, sizeof ward->host, "%s", to);
}

static void start(const struct client *command, const struct ward *ward)
{
	struct tpck_stand stand = {.generation = ward->generation, .rank = ward->rank, .world = ward->world};
	struct tpck_error err = {0};
	char path[sizeof stand.command] = "", name[64];

	snprintf(name, sizeof name, "command.g%" PRIu64 ".r%u", ward->generation, ward->rank);
	if (tpck_path_join(path, sizeof path, home.folder, name))
		tpck_error_set(&err, ENAMETOOLONG, "starting rank %u", ward->rank);
	else if (!tpck_file_write(path, ward->text, ward->size, 0, &err)) {
		memcpy(stand.command, path, sizeof path);
		if (!client_send((struct client *)command, TPCK_MSG_STAND, &stand, sizeof stand))
			tpck_error_set(&err, EPIPE, "starting rank %u", ward->rank);
	}
	if (err.text[0])
		trouble_complain(&err);
}

void wards_start(struct agent *agent, const char *host)
{
	const struct client *command = agent->clients;

	while (command && !command->spare)
		command = command->next;
	for (struct ward *ward = wards, *next; ward; ward = next) {
		next = ward->next;
		if (strcmp(ward->host, host) != 0)
			continue;
		if (command)
			start(command, ward);
		ward_free(ward);
	}
}
