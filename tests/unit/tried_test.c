/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent keeps of the logs of starts that left no snapshot, and what the next start finds of that. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>

#include "runtime/replay/mail.h"
#include "runtime/store/packing.h"
#include "runtime/store/stage.h"
#include "runtime/store/tried.h"
#include "tests/unit/store_tap.h"

enum { GENERATION = 7, LONG = 5000, STARTED = 0 };
static struct tpck_error err;
static char told[4000];

static void note(struct tpck_log *log, enum tpck_record_type type, uint16_t detail, const void *payload, size_t bytes)
{
	(void)tpck_log_append(log, type, detail, 0, 0, payload, bytes);
}

static void hear(const struct tpck_record *record)
{
	snprintf(told + strlen(told), sizeof told - strlen(told), "%u/%u/%u:%.*s ", record->type, record->detail, record->bytes, record->bytes > 20 ? 4 : (int)record->bytes,
		 (const char *)(record + 1));
}

/* What is left in `folder` is read as a start does that was staged from `from`. */
static const char *read_tried(const char *from, struct tpck_cut cut, const char *folder, bool *all)
{
	told[0] = '\0';
	tpck_stage_behind(from, &cut, folder);
	*all = tpck_log_tried(folder, hear);
	return told;
}

static void logs(void)
{
	const char *first = tap_folder("/tmp"), *second = tap_folder("/tmp"), *third = tap_folder("/tmp");
	struct tpck_log *log = tpck_log_new(1 << 28), *other = tpck_log_new(1 << 28);
	struct tpck_log_position cut;
	char path[300], large[LONG], want[200];
	struct tpck_mail *mail;
	bool all;

	memset(large, 'l', sizeof large);
	if (!log || !other || tpck_log_attach(log, second, GENERATION, NULL))
		exit(99);
	note(log, TPCK_RECORD_PROGRAM, STARTED, "before", 7);
	cut = tpck_log_end(log);
	tpck_stage_hand_back(second, GENERATION, &(struct tpck_cut){cut.sequence, cut.offset}, first);
	snprintf(path, sizeof path, "%s/tried.g7", first);
	tap_ok(access(path, F_OK) != 0 && !*read_tried(first, (struct tpck_cut){0, 64}, third, &all) && all, "nothing behind the cut: there is no file", told);

	note(log, TPCK_RECORD_CHANCE, 0, "chance", 6);
	note(log, TPCK_RECORD_PROGRAM, STARTED, "one", 4);
	note(log, TPCK_RECORD_TALK, 3, large, sizeof large);
	/* More than a segment, of which the agent packs the first. */
	for (unsigned i = 0; i < 4000; i++)
		note(log, TPCK_RECORD_FROM_DEVICE, 0, large, sizeof large);
	note(log, TPCK_RECORD_PROGRAM, STARTED, "two", 4);
	snprintf(path, sizeof path, "%s/" TPCK_STARTED, second);
	mail = tpck_mail_new(1 << 16, path);
	tap_ok(mail && tpck_mail_send(mail, TPCK_RECORD_PROGRAM, STARTED, "three", 6, NULL, 0) && tpck_pack_segment(second, 0, &err) == 0, "a log, and mail", err.text);
	tpck_log_path(second, 0, path, sizeof path);
	unlink(path);
	tpck_stage_hand_back(second, GENERATION, &(struct tpck_cut){cut.sequence, cut.offset}, first);
	tpck_stage_hand_back(second, GENERATION + 1, &(struct tpck_cut){cut.sequence + 1, 48}, first);
	snprintf(want, sizeof want, "%u/0/4:one %u/3/320:llll %u/0/4:two %u/0/6:three ", TPCK_RECORD_PROGRAM, TPCK_RECORD_TALK, TPCK_RECORD_PROGRAM, TPCK_RECORD_PROGRAM);
	read_tried(first, (struct tpck_cut){0, 64}, third, &all);
	tap_ok(all && strstr(told, want) && strlen(told) > strlen(want), "of each start what was started and said is kept, of what is long its beginning", told);
	snprintf(path, sizeof path, "%s/behind.tried.g7", third);
	tap_ok(access(path, F_OK) != 0, "and it goes once it is read", path);
	read_tried(first, (struct tpck_cut){0, 64}, third, &all);
	tap_ok(all && strstr(told, want), "but is there for the next one", told);
	tap_ok(tpck_tried_write(second, &(struct tpck_cut){cut.sequence, cut.offset}, GENERATION, "/nowhere/tried", &err) == -ENOENT, "a session that is gone needs nothing", err.text);

	/* A log that is damaged, or has more than is looked at. */
	tap_ok(tpck_log_attach(other, third, GENERATION, NULL) == 0, "another log", "");
	note(other, TPCK_RECORD_PROGRAM, STARTED, "four", 5);
	note(other, TPCK_RECORD_PROGRAM, STARTED, "five", 5);
	tpck_log_path(third, 0, path, sizeof path);
	{
		int fd = open(path, O_RDWR);
		uint32_t bytes = 1 << 30;

		(void)!pwrite(fd, &bytes, sizeof bytes, 48 + 32);
		close(fd);
	}
	tpck_stage_hand_back(third, GENERATION, &(struct tpck_cut){0, 48}, second);
	snprintf(want, sizeof want, "%u/0/5:four ", TPCK_RECORD_PROGRAM);
	read_tried(second, (struct tpck_cut){9, 64}, first, &all);
	tap_ok(!all && strcmp(told, want) == 0, "of a log that is damaged what was before that, and that it is not all", told);
}

int main(void)
{
	logs();
	return tap_done();
}
