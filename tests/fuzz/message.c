/* SPDX-License-Identifier: Apache-2.0 */
/* Packets that come to the agent. An input is the type of the message, and its payload. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "agent/programs/identity_text.h"
#include "runtime/wire/message.h"
#include "runtime/wire/segment.h"

static volatile uint64_t seen;

static void read_all(const void *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		seen += ((const uint8_t *)at)[i];
}

/* Two identities, of which the second is the first one's with a line more or less. */
static void compare(const char *identity)
{
	char form[IDENTITY_FORM], what[300], *other = strdup(identity), *line;

	FUZZ_HOLDS(other);
	identity_form(identity, form);
	FUZZ_HOLDS(identity_form_among(identity, form, sizeof form) == 0);
	(void)identity_compare(identity, other, what, sizeof what);
	line = strrchr(other, '\n');
	if (line)
		*line = '\0';
	(void)identity_compare(identity, other, what, sizeof what);
	(void)identity_compare(other, identity, what, sizeof what);
	(void)identity_compare(identity, line ? strchr(identity, '\n') + 1 : "", what, sizeof what);
	free(other);
}

/* What the agent reads of each. */
static void read_payload(const struct tpck_message *head, const char *payload)
{
	const struct tpck_hello *hello = (const void *)payload;

	switch ((enum tpck_message_type)head->type) {
	case TPCK_MSG_HELLO:
		FUZZ_HOLDS(strlen(hello->master) < sizeof hello->master && strlen((const char *)(hello + 1)) <= hello->identity_bytes);
		compare((const char *)(hello + 1));
		break;
	case TPCK_MSG_MEET:
		FUZZ_HOLDS(strlen(((const struct tpck_meet *)(const void *)payload)->master) < sizeof hello->master);
		break;
	case TPCK_MSG_PREPARE:
		read_all(payload, sizeof(struct tpck_prepare));
		break;
	case TPCK_MSG_HELD:
		read_all(payload, sizeof(struct tpck_held));
		break;
	case TPCK_MSG_DIVERGED:
		read_all(payload, sizeof(struct tpck_diverged));
		break;
	case TPCK_MSG_ENDING:
		read_all(payload, sizeof(struct tpck_ending));
		break;
	default:
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	struct tpck_message head = {.magic = TPCK_MESSAGE_MAGIC, .version = TPCK_WIRE_VERSION, .type = fuzz_byte(&input)};
	char *packet;

	(void)tpck_message_check(data, size);
	head.bytes = (uint32_t)input.left;
	packet = malloc(sizeof head + head.bytes + 1);
	FUZZ_HOLDS(packet);
	memcpy(packet, &head, sizeof head);
	if (head.bytes)
		memcpy(packet + sizeof head, input.at, head.bytes);
	packet[sizeof head + head.bytes] = '\0';
	if (head.type == TPCK_MSG_HELLO && head.bytes >= sizeof(struct tpck_hello)) {
		/* The number of bytes is made right, or hardly any HELLO would be looked at. */
		struct tpck_hello *hello = (struct tpck_hello *)(void *)(packet + sizeof head);

		hello->identity_bytes = head.bytes - (uint32_t)sizeof *hello;
	}
	FUZZ_HOLDS(tpck_message_check(packet, sizeof head + head.bytes) == 0);
	if (tpck_message_is_sound(&head, packet + sizeof head))
		read_payload(&head, packet + sizeof head);
	free(packet);
	return 0;
}
