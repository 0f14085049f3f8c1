/* SPDX-License-Identifier: Apache-2.0 */
/* One logger for every process of ours: a line is one write(2), to standard error or to a file. */
#ifndef TPCK_RUNTIME_BASE_LOG_H
#define TPCK_RUNTIME_BASE_LOG_H

enum tpck_log_level {
	TPCK_LOG_NONE,
	TPCK_LOG_ERROR,
	TPCK_LOG_WARN,   /* default: what a user must know, among it "resuming at step N" */
	TPCK_LOG_INFO,
	TPCK_LOG_DEBUG,
};

/* level is "none", "error", "warn", "info" or "debug", optionally followed by ":FILE" (lines are
 * appended to FILE). Returns 0, or -EINVAL with nothing changed. The file is opened at the first
 * line. Not thread-safe; called once per process. */
int tpck_log_configure(const char *spec);
enum tpck_log_level tpck_log_level(void);
/* While held, lines are dropped. */
void tpck_log_hold(int held);
/* Writes "transpckpt: text\n". Allocates nothing, takes no lock, keeps errno, and says nothing
 * more of a line that cannot be written. `%m` works. At most 1000 bytes of a line are kept. Of warnings
 * and errors from one place in the code eight a minute are written; the next one behind them says how many were not. */
void tpck_log(enum tpck_log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#define tpck_log_error(...) tpck_log(TPCK_LOG_ERROR, __VA_ARGS__)
#define tpck_log_warn(...) tpck_log(TPCK_LOG_WARN, __VA_ARGS__)
#define tpck_log_info(...) tpck_log(TPCK_LOG_INFO, __VA_ARGS__)
#define tpck_log_debug(...) tpck_log(TPCK_LOG_DEBUG, __VA_ARGS__)

#endif
