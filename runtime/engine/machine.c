/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine tells the program of itself (engine.h). */
#include "config.h"

#include "runtime/base/layout.h"
#include "runtime/engine/engine_private.h"
#include "runtime/replay/readings.h"

static struct tpck_engine *const engine = &tpck_engine;

TPCK_AT_START struct tpck_thread *tpck_engine_reading(void)
{
	struct tpck_thread *self = tpck_engine_mode() == TPCK_MODE_OFF ? NULL : tpck_thread_peek();

	/* A thread that looks after the machine, as a monitor does, would fill the log; libraries that are to know this machine get the truth. */
	if (!self || self->depth || self->ours || self->elsewhere || !(self->id == 1 || self->operations))
		return NULL;
	self->depth = 1;
	return self;
}

static TPCK_AT_START const void *answer(struct tpck_thread *self, uint32_t key, bool ahead, uint32_t *count)
{
	const void *bytes = NULL;

	*count = 0;
	if (tpck_engine_mode() != TPCK_MODE_FORWARD)
		return NULL;
	switch (tpck_forward_reading(self, key, ahead, &bytes, count)) {
	case TPCK_FORWARD_SAME:
	case TPCK_FORWARD_MORE:
		return bytes;
	case TPCK_FORWARD_END:
		tpck_resume_at_boundary(self);
		return NULL;
	default:
		return NULL;
	}
}

TPCK_AT_START const void *tpck_engine_reading_answer(struct tpck_thread *self, uint32_t key, uint32_t *count)
{
	return answer(self, key, false, count);
}

const void *tpck_engine_reading_ahead(struct tpck_thread *self, uint32_t key, uint32_t *count)
{
	return answer(self, key, true, count);
}

static TPCK_AT_START bool recording(void)
{
	uint32_t mode = tpck_engine_mode();

	return mode == TPCK_MODE_LIVE || mode == TPCK_MODE_EARLY;
}

void tpck_engine_reading_note(struct tpck_thread *self, uint32_t key, const void *bytes, uint32_t count)
{
	if (recording())
		tpck_readings_note(self, engine->log, key, bytes, count);
}

TPCK_AT_START void tpck_engine_reading_note_once(struct tpck_thread *self, uint32_t key, const void *bytes, uint32_t count)
{
	if (recording())
		tpck_readings_note_once(self, engine->log, key, bytes, count);
}
