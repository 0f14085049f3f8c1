/* SPDX-License-Identifier: Apache-2.0 */
/* Messages as they come: nobody vouches for what sent them. */
#include "config.h"

#include "runtime/wire/message.h"

#include <errno.h>
#include <string.h>

#include "runtime/wire/segment.h"

int tpck_message_check(const void *packet, size_t size)
{
	struct tpck_message head;

	if (size < sizeof head)
		return -EPROTO;
	memcpy(&head, packet, sizeof head);
	if (head.magic != TPCK_MESSAGE_MAGIC || head.bytes != size - sizeof head)
		return -EPROTO;
	return head.version == TPCK_WIRE_VERSION ? 0 : -EPROTONOSUPPORT;
}

bool tpck_message_is_sound(const struct tpck_message *head, const void *payload)
{
	const struct tpck_hello *hello = payload;
	const struct tpck_meet *meet = payload;

	switch ((enum tpck_message_type)head->type) {
	case TPCK_MSG_HELLO:
		return head->bytes >= sizeof *hello && hello->identity_bytes == head->bytes - sizeof *hello &&
		       memchr(hello->master, 0, sizeof hello->master);
	case TPCK_MSG_MEET:
		return head->bytes == sizeof *meet && memchr(meet->master, 0, sizeof meet->master);
	case TPCK_MSG_ID:
		return head->bytes == sizeof(struct tpck_communicator_id);
	case TPCK_MSG_PREPARE:
		return head->bytes >= sizeof(struct tpck_prepare);
	case TPCK_MSG_HELD:
		return head->bytes >= sizeof(struct tpck_held);
	case TPCK_MSG_DIVERGED:
		return head->bytes >= sizeof(struct tpck_diverged);
	case TPCK_MSG_BEGUN:
		return head->bytes == sizeof(struct tpck_begun);
	case TPCK_MSG_SPARE:
		return head->bytes == sizeof(struct tpck_spare);
	case TPCK_MSG_ENDING:
		return head->bytes >= sizeof(struct tpck_ending);
	default:
		return true;
	}
}
