/* SPDX-License-Identifier: Apache-2.0 */
/* Records of forked children: what comes into the log, what is left of those that were killed, and a lock whose holder is gone. */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/shared_lock.h"
#include "runtime/replay/mail.h"
#include "tests/unit/store_tap.h"

static char left[200];

static void one_left(const struct tpck_record *record)
{
	snprintf(left + strlen(left), sizeof left - strlen(left), "%u:%.*s ", record->detail, (int)record->bytes, (const char *)(record + 1));
}

static bool sends(struct tpck_mail *mail, uint16_t detail, const char *text, const char *more)
{
	pid_t child = fork();
	int status = 1;

	if (!child)
		_exit(!tpck_mail_send(mail, TPCK_RECORD_TALK, detail, text, strlen(text), more, strlen(more)));
	waitpid(child, &status, 0);
	return !status;
}

static void locks(void)
{
	tpck_shared_lock *lock = mmap(NULL, sizeof *lock, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = fork();
	struct timespec before, after;
	int tell[2];
	char byte;

	if (!child) {
		(void)tpck_shared_lock_take(lock);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	tap_ok(atomic_load(lock) == child && tpck_shared_lock_take(lock) && atomic_load(lock) == getpid(), "the lock of one that was killed is taken over", "");
	tpck_shared_lock_free(lock);
	if (pipe(tell))
		return;
	child = fork();
	if (!child) {
		alarm(60);
		(void)!tpck_shared_lock_take(lock);
		(void)!write(tell[1], "", 1);
		pause();
	}
	(void)!read(tell[0], &byte, 1);
	tap_ok(!tpck_shared_lock_take(lock), "that of one that is there is not", "");
	kill(child, SIGSTOP);
	waitpid(child, NULL, WUNTRACED);
	clock_gettime(CLOCK_MONOTONIC, &before);
	tap_ok(!tpck_shared_lock_take(lock), "nor that of one that is stopped,", "");
	clock_gettime(CLOCK_MONOTONIC, &after);
	tap_ok(after.tv_sec - before.tv_sec < 1 || after.tv_nsec < before.tv_nsec, "which nobody waits for", "");
	/* Nobody waits for it yet. */
	kill(child, SIGKILL);
	siginfo_t ended;
	waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT);
	tap_ok(tpck_shared_lock_take(lock), "but once it has ended", "");
	waitpid(child, NULL, 0);
	/* One that has no processor for a while, as where many want one. */
	child = fork();
	if (!child) {
		atomic_store(lock, getpid());
		(void)!write(tell[1], "", 1);
		usleep(100000);
		tpck_shared_lock_free(lock);
		_exit(0);
	}
	(void)!read(tell[0], &byte, 1);
	tap_ok(tpck_shared_lock_take(lock) && atomic_load(lock) == getpid(), "who is there and gets on is waited for", "");
	waitpid(child, NULL, 0);
}

int main(void)
{
	char *folder = tap_folder("/tmp"), path[300], long_text[3000];
	struct tpck_log *log = tpck_log_new(1 << 20);
	struct tpck_log_reader *reader;
	const struct tpck_record *record;
	struct tpck_mail *mail, *small;
	char got[200] = "";

	snprintf(path, sizeof path, "%s/said", folder);
	mail = tpck_mail_new(64 << 10, path);
	if (!mail || !log || tpck_log_attach(log, folder, 1, NULL))
		return 1;
	tap_ok(sends(mail, 3, "one", "") && sends(mail, 4, "two", " parts"), "children send", "");
	tap_ok(!tpck_mail_is_empty(mail), "which is there", "");
	tpck_mail_take(mail, log);
	tap_ok(tpck_mail_is_empty(mail) && sends(mail, 5, "three", ""), "and send again once it was taken", "");
	if (tpck_log_open(&reader, folder, tpck_log_end(log)))
		return 1;
	while ((record = tpck_log_next(reader)))
		snprintf(got + strlen(got), sizeof got - strlen(got), "%u:%.*s ", record->detail, (int)record->bytes, (const char *)(record + 1));
	tap_ok(strcmp(got, "3:one 4:two parts ") == 0, "the log has what was taken", got);
	tpck_mail_left(path, one_left);
	tap_ok(strcmp(left, "5:three ") == 0, "the file has what was not", left);
	unlink(path);
	tpck_mail_left(path, one_left);
	tap_ok(strcmp(left, "5:three ") == 0, "a file that is not there has nothing", left);
	small = tpck_mail_new(4096, NULL);
	memset(long_text, 'x', sizeof long_text - 1);
	long_text[sizeof long_text - 1] = '\0';
	tap_ok(sends(small, 1, long_text, "") && !tpck_mail_lost(small) && !sends(small, 1, long_text, "") && tpck_mail_lost(small), "what has no room is lost, as is known", "");
	tpck_mail_take(small, log);
	tap_ok(sends(small, 1, long_text, ""), "until there is room again", "");
	locks();
	return tap_done();
}
