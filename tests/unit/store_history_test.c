/* SPDX-License-Identifier: Apache-2.0 */
/* The history file: appended to by several, cut, torn, brought together from several places. */
#include "config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/store/file.h"
#include "runtime/store/history.h"
#include "runtime/store/runs.h"
#include "tests/unit/store_tap.h"

static struct tpck_error err;
static char path[300];

static int append(const char *where, unsigned at, const char *more, uint64_t limit)
{
	char line[400];

	snprintf(line, sizeof line, "{\"at_ns\":%u,\"event\":\"e\",\"more\":\"%s\"}\n", at, more);
	return tpck_history_append((struct tpck_below){AT_FDCWD, 0}, where, line, strlen(line), limit, &err);
}

static struct tpck_history load(const char *where)
{
	struct tpck_history history = {0};

	tpck_history_read(&history, where, &err);
	tpck_history_settle(&history);
	return history;
}

static void add_raw(const char *text)
{
	int fd = open(path, O_WRONLY | O_APPEND);

	(void)!write(fd, text, strlen(text));
	close(fd);
}

/* What was looked at is written to, whatever has its name by now. */
static void check_renamed(void)
{
	char root[320], away[330], there[340], elsewhere[340];
	int below;

	snprintf(root, sizeof root, "%.300s.job", path);
	snprintf(away, sizeof away, "%s.away", root);
	snprintf(there, sizeof there, "%s/history", root);
	snprintf(elsewhere, sizeof elsewhere, "%s/history", away);
	mkdir(root, 0700);
	below = open(root, O_PATH | O_DIRECTORY);
	(void)!rename(root, away);
	mkdir(root, 0700);
	ok(tpck_history_append((struct tpck_below){below, strlen(root) + 1}, there, "{}\n", 3, 1 << 20, &err) == 0 && access(there, F_OK) &&
		   access(elsewhere, F_OK) == 0,
	   "lines come into the folder that was looked at, whatever is called so by now");
	close(below);
	(void)tpck_folder_remove(root);
	(void)tpck_folder_remove(away);
}

static void check_torn(void)
{
	struct tpck_history h;

	ok(append(path, 10, "one", 1 << 20) == 0 && append(path, 20, "two", 1 << 20) == 0, "appended");
	add_raw("{\"at_ns\":30,\"event\":\"to");
	h = load(path);
	ok(h.count == 2 && h.bad == 1 && h.events[1].at_ns == 20, "a torn last line is ignored");
	tpck_history_free(&h);
	ok(append(path, 40, "four", 1 << 20) == 0, "appended behind it");
	h = load(path);
	ok(h.count == 3 && h.bad == 1 && h.events[2].at_ns == 40 && strcmp(tpck_event_text(&h.events[2], "more"), "four") == 0,
	   "the next line is whole");
	tpck_history_free(&h);
	add_raw("no event\n{\"event\":\"e\"}\n{\"at_ns\":\"5\",\"event\":\"e\"}\n[1]\n{\"at_ns\":5,\"event\":\"e\"} x\n");
	h = load(path);
	ok(h.count == 3 && h.bad == 6, "what is no event is none");
	tpck_history_free(&h);
}

static void check_cut(void)
{
	struct tpck_history h;
	struct stat status;
	unsigned n = 0;

	unlink(path);
	for (n = 1; n <= 500; n++)
		append(path, n, "0123456789012345678901234567890123456789", 8192);
	ok(stat(path, &status) == 0 && status.st_size <= 8192, "it does not grow beyond its limit");
	h = load(path);
	ok(h.bad == 0 && h.count > 8192 / 2 / 100 && h.events[h.count - 1].at_ns == 500, "the newest line is there, and half of the file");
	for (n = 1; n < h.count && h.events[n].at_ns == h.events[n - 1].at_ns + 1; n++)
		;
	ok(n == h.count, "and all before it, without a gap");
	tpck_history_free(&h);
	append(path, 1000, "x", 20);
	h = load(path);
	ok(h.count == 1 && h.events[0].at_ns == 1000, "the newest line stays, however long it is");
	tpck_history_free(&h);
}

/* What one appends while another cuts goes into the file that is there afterwards. */
static void check_together(void)
{
	enum { WRITERS = 3, LINES = 900 };
	struct tpck_history h;
	uint64_t last[WRITERS] = {0};
	bool good = true, gaps = false;

	unlink(path);
	for (unsigned w = 0; w < WRITERS; w++)
		if (fork() == 0) {
			for (unsigned i = 1; i <= LINES; i++)
				if (append(path, w * 1000 + i, "abcdefghijklmnopqrstuvwxyz", 600))
					_exit(1);
			_exit(0);
		}
	for (int status; wait(&status) > 0;)
		good = good && status == 0;
	h = load(path);
	for (size_t i = 0; i < h.count; i++) {
		uint64_t w = h.events[i].at_ns / 1000, n = h.events[i].at_ns % 1000;

		gaps = gaps || (last[w] && n != last[w] + 1);
		last[w] = n;
	}
	ok(good && h.bad == 0 && h.count > 3, "several append and cut at once: all lines are whole");
	/* The one that was last to end has its last line there. */
	ok(!gaps && (last[0] == LINES || last[1] == LINES || last[2] == LINES), "and none is missing among the newest");
	tpck_history_free(&h);
	unlink(path);
	for (unsigned w = 0; w < WRITERS; w++)
		if (fork() == 0) {
			for (unsigned i = 1; i <= LINES; i++)
				append(path, w * 1000 + i, "abcdefghijklmnopqrstuvwxyz", 1 << 20);
			_exit(0);
		}
	while (wait(NULL) > 0)
		;
	h = load(path);
	ok(h.count == WRITERS * LINES && h.bad == 0, "without a cut none is missing");
	tpck_history_free(&h);
}

static void check_places(const char *folder)
{
	char here[300], *text = NULL;
	struct tpck_history all, old;
	size_t size = 0;

	snprintf(here, sizeof here, "%s/other", folder);
	unlink(path);
	for (unsigned i = 1; i <= 4; i++)
		append(path, i * 10, "x", 1 << 20);
	append(here, 20, "x", 1 << 20);
	append(here, 25, "y", 1 << 20);
	old = load(here);
	all = load(path);
	tpck_history_read(&all, here, &err);
	tpck_history_settle(&all);
	ok(all.count == 5 && all.events[2].at_ns == 25, "two places are one history, in order");
	ok(tpck_history_missing(&all, &old, &text, &size) == 0 && size && text[size - 1] == '\n', "what one of them lacks");
	ok(tpck_history_append((struct tpck_below){AT_FDCWD, 0}, here, text, size, 1 << 20, &err) == 0, "is added");
	free(text);
	tpck_history_free(&old);
	tpck_history_free(&all);
	all = load(here);
	/* 10 was cut off, or never there: it does not come back. */
	ok(all.count == 4 && all.events[0].at_ns == 20 && all.events[3].at_ns == 40, "but not what is older than all it has");
	tpck_history_free(&all);
	unlink(path);
	(void)!symlink(here, path);
	ok(append(path, 50, "x", 1 << 20) != 0, "a link is not followed");
}

/* A line about a start, a death or another event of one program. */
static void say(struct tpck_history *h, unsigned at, const char *event, unsigned generation, const char *more)
{
	char line[400];

	snprintf(line, sizeof line, "{\"at_ns\":%u000000000,\"event\":\"%s\",\"program\":\"p\",\"generation\":%u%s%s}\n", at, event,
		 generation, more[0] ? "," : "", more);
	tpck_history_add(h, line, strlen(line));
}

static void check_runs(void)
{
	struct tpck_interval_history rate[3];
	struct tpck_history h = {0};
	struct tpck_runs runs;
	static const int levels[] = {0, 1, 0, 2, 1, 0, -1, -1, -1};
	bool good = true;

	say(&h, 0, "started", 1, "");
	say(&h, 100, "died", 1, "\"kept_step\":7,\"lost\":3,\"iterations\":10");
	/* From memory; nobody saw its end, and the next one goes on from the first tier. */
	say(&h, 110, "started", 2, "\"from_generation\":1,\"from_step\":7,\"from_level\":0");
	say(&h, 200, "durable", 2, "\"iterations\":20");
	/* What it left was written before memory went. */
	say(&h, 300, "started", 3, "\"from_generation\":2,\"from_step\":20,\"from_level\":1");
	say(&h, 400, "died", 3, "\"kept_step\":30,\"lost\":0,\"iterations\":30");
	say(&h, 2000, "started", 4, "\"from_generation\":3,\"from_step\":30,\"from_level\":1");
	/* The node. */
	say(&h, 2500, "died", 4, "\"kept_step\":50,\"lost\":1,\"iterations\":51");
	say(&h, 3000, "started", 5, "\"from_generation\":3,\"from_step\":30,\"from_level\":2");
	say(&h, 3100, "durable", 5, "\"iterations\":60");
	/* Memory and all that was stored. */
	say(&h, 3200, "started", 6, "");
	say(&h, 3300, "died", 6, "\"iterations\":1,\"lost\":1");
	say(&h, 3400, "started", 7, "");
	say(&h, 3450, "diverged", 7, "");
	say(&h, 3460, "died", 7, "");
	say(&h, 3500, "started", 8, "");
	say(&h, 3600, "ended", 8, "\"iterations\":70");
	say(&h, 3700, "started", 9, "");
	/* Another rank. */
	say(&h, 3701, "started", 9, "\"rank\":1");
	tpck_history_settle(&h);
	ok(tpck_runs_of(&runs, &h) == 0 && runs.count == 10, "a run for each start of a rank");
	for (size_t i = 0; i < 9 && runs.count == 10; i++)
		good = good && tpck_run_failure(&runs, &runs.run[i]) == levels[i];
	ok(good, "what each of them took along");
	ok(runs.run[0].lost == 3 && runs.run[0].iterations == 10 && runs.run[0].next == 1 && runs.run[8].next == SIZE_MAX &&
		   runs.run[1].end_ns == 200000000000ull,
	   "how far it came, what was lost, which is next");
	for (int level = 0; level < 3; level++)
		tpck_runs_rate(&runs, level, &rate[level]);
	ok(rate[0].failures == 6 && rate[1].failures == 3 && rate[2].failures == 1, "failures that each tier is needed for");
	ok(rate[1].observed_sec == 100 + 90 + 100 + 500 + 100 + 100 + 60 + 100, "and the time in which they were");
	tpck_runs_free(&runs);
	tpck_history_free(&h);
}

int main(void)
{
	char *folder = tap_folder("/dev/shm");

	snprintf(path, sizeof path, "%s/" TPCK_HISTORY, folder);
	check_torn();
	check_renamed();
	check_cut();
	check_together();
	check_places(folder);
	check_runs();
	tpck_folder_remove(folder);
	return tap_done();
}
