/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine has to do with other ranks: operations on several streams at once, communicators in the log, errors. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>

#include "runtime/base/log.h"
#include "runtime/capture/fences.h"
#include "runtime/engine/engine_private.h"
#include "runtime/engine/offered.h"
#include "runtime/track/communicators.h"

static struct tpck_engine *const engine = &tpck_engine;

void tpck_engine_also(struct tpck_thread *self, tpck_stream_handle handle)
{
	struct tpck_stream *stream = tpck_engine_mode() == TPCK_MODE_LIVE ? tpck_stream_of(handle, self) : NULL;

	if (!stream)
		return;
	tpck_fence(stream, handle);
	atomic_store_explicit(&stream->dirty, 1, memory_order_relaxed);
}

void tpck_record_communicators(void)
{
	static uint64_t recorded;
	uint64_t changes = tpck_communicators_changes();
	struct tpck_communicators all;

	if (changes == recorded || tpck_communicators_take(&all))
		return;
	recorded = changes;
	tpck_log_append(engine->log, TPCK_RECORD_COMMUNICATORS, 0, 0, (uint32_t)engine->step, all.communicator,
			all.communicators * sizeof *all.communicator);
	tpck_communicators_free(&all);
}

void tpck_engine_trouble(const char *format, ...)
{
	char text[sizeof engine->control->status.trouble];
	uint32_t mode = tpck_engine_mode();
	va_list args;

	if (mode == TPCK_MODE_OFF)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	tpck_log_warn("%s", text);
	if (engine->control)
		snprintf(engine->control->status.trouble, sizeof engine->control->status.trouble, "%s", text);
}

const char *tpck_offered_communicators(char *buffer, size_t size)
{
	const struct tpck_image_header *image = tpck_offered();
	struct tpck_index_counts before = tpck_image_counts(image);
	const char *at;

	before.communicators = before.peers = 0;
	at = (const char *)image + TPCK_IMAGE_INDEX_AT + tpck_index_bytes(&before);
	return tpck_communicators_compare((const void *)at, image->communicators,
					  (const void *)(at + image->communicators * sizeof(struct tpck_image_communicator)),
					  image->peers, buffer, size);
}
